//! `Engine`: one stream from bytes to event dicts and run.

use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;

use headrace_core::dialect;
use headrace_core::event::{Event, Kind, Kinds, Sink};
use headrace_core::parser::{Output, Parser};
use headrace_core::record::{self, Options};
use headrace_core::report::Malformed;
use headrace_core::run::{Exit, ResultLimit};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{self, Failure};
use crate::feed::{Feed, Input, Pull, buffer, bytes_of};
use crate::given::Given;
use crate::objects::Builder;
use crate::record::Record;

#[pyclass(subclass, module = "headrace._native")]
pub struct Engine {
    parser: Parser,
    on_malformed: Option<Py<PyAny>>,
    /// Native types of the records that are given out before their events.
    types: HashSet<String>,
    pull: Pull,
    given: Given,
}

/// What a call to the parser gave, as Python objects.
struct Collector<'c, 'py> {
    py: Python<'py>,
    builder: Box<Builder>,
    types: &'c HashSet<String>,
    spans: bool,
    given: &'c mut Given,
    on_malformed: Option<&'c Py<PyAny>>,
    out: &'c mut VecDeque<Py<PyAny>>,
    failed: Option<PyErr>,
}

impl Sink for Collector<'_, '_> {
    fn take(&mut self, event: &Event<'_>) {
        if self.failed.is_none() {
            match self.builder.event(self.py, event, self.spans, self.given) {
                Ok(event) => self.out.push_back(event.into_any().unbind()),
                Err(error) => self.failed = Some(error),
            }
        }
    }
}

impl Output for Collector<'_, '_> {
    fn record(&mut self, record: &record::Record<'_>) {
        let wanted = record
            .native_type()
            .is_some_and(|kind| self.types.contains(&*kind.lossy()));
        if wanted && self.failed.is_none() {
            match Py::new(self.py, Record::new(record, None)) {
                Ok(record) => self.out.push_back(record.into_any()),
                Err(error) => self.failed = Some(error),
            }
        }
    }

    fn malformed(&mut self, line: &Malformed) {
        if let (Some(call), None) = (self.on_malformed, &self.failed) {
            self.failed = tell(self.py, call, line).err();
        }
    }
}

/// Calls `on_malformed`.
pub fn tell(py: Python<'_>, call: &Py<PyAny>, line: &Malformed) -> PyResult<()> {
    let line =
        Builder::with(|builder| Ok::<_, PyErr>(builder.data(py, &line.to_data())?.unbind()))?;
    call.call1(py, (line,)).map(drop)
}

/// Keeps malformed lines until the GIL is there to tell of them.
#[derive(Default)]
struct Quiet {
    told: bool,
    malformed: Vec<Malformed>,
}

impl Sink for Quiet {
    fn take(&mut self, _event: &Event<'_>) {}
}

impl Output for Quiet {
    fn malformed(&mut self, line: &Malformed) {
        if self.told {
            self.malformed.push(line.clone());
        }
    }
}

/// Gives the parser its input; the next line of a decoded piece.
fn give(
    parser: &mut Parser,
    input: Input<'_>,
    output: &mut dyn Output,
) -> Result<Option<usize>, record::Error> {
    match input {
        Input::Bytes(chunk) => parser.feed(chunk, output).map(|()| None),
        Input::Decoded(piece, from, about) => parser.feed_decoded(piece, from, about, output),
        Input::End => parser.close(output).map(|()| None),
    }
}

/// Gives the parser its input, and pushes what comes out onto the queue.
fn parse(
    py: Python<'_>,
    parser: &mut Parser,
    types: &HashSet<String>,
    given: &mut Given,
    on_malformed: Option<&Py<PyAny>>,
    input: Input<'_>,
    out: &mut VecDeque<Py<PyAny>>,
) -> Result<Option<usize>, Failure> {
    let mut collector = Collector {
        py,
        builder: Builder::take(),
        types,
        spans: parser.has_spans(),
        given,
        on_malformed,
        out,
        failed: None,
    };
    let is_end = matches!(input, Input::End);
    let result = give(parser, input, &mut collector);
    collector.builder.put_back();
    if is_end {
        collector.given.close();
    }
    match collector.failed {
        Some(error) => Err(error.into()),
        None => Ok(result?),
    }
}

impl Engine {
    pub fn parse_now(&mut self, py: Python<'_>, input: Input<'_>) -> PyResult<Vec<Py<PyAny>>> {
        let mut out = VecDeque::new();
        let Engine {
            parser,
            on_malformed,
            types,
            given,
            ..
        } = self;
        match parse(
            py,
            parser,
            types,
            given,
            on_malformed.as_ref(),
            input,
            &mut out,
        ) {
            Ok(_) => {
                given.expect(out.len());
                Ok(out.into())
            }
            Err(failure) => Err(failure.raise(py)),
        }
    }
}

/// What the caller knows of the process.
fn exit(code: Option<i64>, stderr: Option<Vec<u8>>) -> Exit {
    Exit {
        code,
        stderr: stderr.unwrap_or_default(),
    }
}

#[pymethods]
impl Engine {
    #[new]
    #[allow(clippy::too_many_arguments)] // as Python's keywords
    #[pyo3(signature = (*, dialect=None, kinds=None, types=None, strict=false, spans=false, max_line_bytes=268_435_456, max_result_bytes=None, cut_later=false, on_malformed=None))]
    fn new(
        py: Python<'_>,
        dialect: Option<&str>,
        kinds: Option<Vec<String>>,
        types: Option<HashSet<String>>,
        strict: bool,
        spans: bool,
        max_line_bytes: u64,
        max_result_bytes: Option<i64>,
        cut_later: bool,
        on_malformed: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let dialect = match dialect {
            Some(name) => {
                let found = dialect::named(name);
                Some(found.ok_or_else(|| errors::unknown_dialect(py, name))?)
            }
            None => None,
        };
        let mut wanted = Kinds::EVENTS;
        if let Some(names) = kinds {
            wanted = Kinds::NONE;
            for name in names {
                let kind = Kind::named(&name);
                let unknown = || PyValueError::new_err(format!("no event kind is called {name:?}"));
                wanted = wanted.with(kind.ok_or_else(unknown)?);
            }
        }
        let options = Options {
            strict,
            max_line_bytes,
        };
        let types = types.unwrap_or_default();
        let mut parser = Parser::new(dialect, wanted, options);
        if !types.is_empty() {
            parser = parser.with_records();
        }
        if spans {
            parser = parser.with_spans();
        }
        if let Some(bytes) = max_result_bytes {
            let negative = |_| PyValueError::new_err("max_result_bytes is negative");
            parser = parser.with_result_limit(ResultLimit {
                bytes: bytes.try_into().map_err(negative)?,
                later: cut_later,
            });
        }
        Ok(Engine {
            parser,
            on_malformed,
            types,
            pull: Pull::default(),
            given: Given::default(),
        })
    }

    fn feed(&mut self, py: Python<'_>, chunk: &Bound<'_, PyAny>) -> PyResult<Vec<Py<PyAny>>> {
        let chunk = buffer(chunk)?;
        self.parse_now(py, Input::Bytes(bytes_of(&chunk)))
    }

    fn close(&mut self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        self.parse_now(py, Input::End)
    }

    /// The run so far as a dict; `code` and `stderr` are what the caller knows of the process.
    #[pyo3(signature = (code=None, stderr=None))]
    fn run(
        &mut self,
        py: Python<'_>,
        code: Option<i64>,
        stderr: Option<Vec<u8>>,
    ) -> PyResult<Py<PyAny>> {
        let exit = exit(code, stderr);
        let run = self.parser.run(&exit);
        Builder::with(|builder| Ok(builder.run(py, &run)?.unbind()))
    }

    /// One key of that dict.
    #[pyo3(signature = (key, code=None, stderr=None))]
    fn run_part(
        &mut self,
        py: Python<'_>,
        key: &str,
        code: Option<i64>,
        stderr: Option<Vec<u8>>,
    ) -> PyResult<Py<PyAny>> {
        let exit = exit(code, stderr);
        let part = self.parser.part(key, &exit);
        let part = part.ok_or_else(|| PyKeyError::new_err(key.to_owned()))?;
        Builder::with(|builder| Ok(builder.run(py, &part)?.unbind()))
    }

    /// Each model call so far, as a list of dicts.
    fn ledger(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let rows = self.parser.ledger();
        Builder::with(|builder| Ok(builder.data(py, &rows)?.unbind()))
    }

    /// The harness's own total of each model, as a list of dicts.
    fn printed_models(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let models = self.parser.printed_models();
        Builder::with(|builder| Ok(builder.data(py, &models)?.unbind()))
    }

    fn report(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let report = self.parser.report().to_data();
        Builder::with(|builder| Ok(builder.data(py, &report)?.unbind()))
    }

    /// (dialect, version, confidence, why), or None while the dialect is not known.
    #[getter]
    fn detection(&self) -> Option<(&'static str, Option<String>, f64, Vec<String>)> {
        let found = self.parser.detection()?.clone();
        Some((
            found.dialect.name,
            found.version,
            found.confidence,
            found.why,
        ))
    }

    /// "end" after a terminal record, "turn" after a turn that ended with an outcome, None before both.
    #[getter]
    fn ending(&self) -> Option<&'static str> {
        self.parser.ending()
    }

    // ---------------------------------------------------------------- stopping and going on

    /// How many bytes were fed.
    #[getter]
    fn offset(&self) -> u64 {
        self.parser.offset()
    }

    /// All that is known so far but `types` and `on_malformed`.
    fn snapshot<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let snapshot = self.parser.snapshot();
        let snapshot = snapshot.map_err(|error| errors::snapshot(py, &error.to_string()))?;
        Ok(PyBytes::new(py, &snapshot))
    }

    #[staticmethod]
    #[pyo3(signature = (snapshot, *, on_malformed=None))]
    fn restore(py: Python<'_>, snapshot: &[u8], on_malformed: Option<Py<PyAny>>) -> PyResult<Self> {
        let parser = Parser::restore(snapshot);
        Ok(Engine {
            parser: parser.ok_or_else(|| errors::snapshot(py, "the snapshot is damaged"))?,
            on_malformed,
            types: HashSet::new(),
            pull: Pull::default(),
            given: Given::default(),
        })
    }

    // ---------------------------------------------------------------- pulling from a source

    fn attach_path(&mut self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.pull.attach(Feed::path(py, path)?);
        Ok(())
    }

    #[cfg(unix)]
    fn attach_descriptor(&mut self, py: Python<'_>, number: i32, name: &str) -> PyResult<()> {
        self.pull.attach(Feed::descriptor(py, number, name)?);
        Ok(())
    }

    fn attach_chunks(&mut self, chunks: Py<PyAny>, name: &str) {
        self.pull.attach(Feed::chunks(chunks, name));
    }

    /// Reads the attached source to its end for the run alone; the GIL is not held while bytes are parsed.
    fn drain_source(&mut self, py: Python<'_>) -> PyResult<()> {
        let mut quiet = Quiet {
            told: self.on_malformed.is_some(),
            ..Quiet::default()
        };
        let mut more = true;
        while more {
            let parser = &mut self.parser;
            let step = match self.pull.feed() {
                Some(feed) => {
                    feed.step_silently(py, &mut |input| Ok(give(parser, input, &mut quiet)?))
                }
                None => Ok(false),
            };
            more = step.map_err(|failure| failure.raise(py))?;
            if !more {
                let closed = self.parser.close(&mut quiet);
                closed.map_err(|error| errors::from_core(py, error))?;
            }
            if let Some(call) = &self.on_malformed {
                for line in quiet.malformed.drain(..) {
                    tell(py, call, &line)?;
                }
            }
        }
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.given.traverse(&visit)
    }

    fn __clear__(&mut self) {
        self.given.close();
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let Engine {
            parser,
            on_malformed,
            types,
            pull,
            given,
        } = self;
        pull.next(py, &mut |input, out| {
            parse(py, parser, types, given, on_malformed.as_ref(), input, out)
        })
    }
}
