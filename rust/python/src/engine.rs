//! `Engine`: one stream from bytes to event dicts and run.

use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;

use headrace_core::detect::Detection;
use headrace_core::dialect;
use headrace_core::event::{Event, Kind, Kinds, Sink};
use headrace_core::parser::{Output, Parser};
use headrace_core::record::Options;
use headrace_core::report::Malformed;
use headrace_core::run::{Exit, ResultLimit};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::early::{Parsing, Work, give};
use crate::errors::{self, Failure};
use crate::feed::{Feed, Input, Pull, buffer, bytes_of, not_negative};
use crate::given::Given;
use crate::making::{Making, tell};
use crate::objects::Builder;
use crate::turns::{Turn, Turns};

/// So many events that were told early become Python objects at a time, for the reason that `SLICE` has in `feed`.
const EVENTS: usize = 16;

#[pyclass(frozen, subclass, module = "headrace._native")]
pub struct Engine(Turns<Stream>);

pub struct Stream {
    parsing: Parsing,
    making: Making,
    given: Given,
    pull: Pull,
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

impl Engine {
    pub fn turn(&self, py: Python<'_>) -> PyResult<Turn<'_, Stream>> {
        self.0.take(py)
    }
}

impl Stream {
    fn of(parser: Parser) -> Self {
        Stream {
            making: Making {
                spans: parser.has_spans(),
                ..Making::default()
            },
            parsing: Parsing::new(parser),
            given: Given::default(),
            pull: Pull::default(),
        }
    }

    /// Makes objects of some of what was told early.
    fn make(
        &mut self,
        py: Python<'_>,
        given: Option<&mut Given>,
        out: &mut VecDeque<Py<PyAny>>,
    ) -> Result<(), Failure> {
        let Stream {
            parsing,
            making,
            given: own,
            ..
        } = self;
        making.collect(py, given.unwrap_or(own), out, |output| {
            parsing.tell(EVENTS, output);
            Ok(())
        })
    }

    /// The next events of what was parsed early, as many at most; None if there is nothing of the kind. The dicts that are
    /// used again are the caller's, if it has any.
    pub fn early_events(
        &mut self,
        py: Python<'_>,
        most: usize,
        mut given: Option<&mut Given>,
    ) -> PyResult<Option<Vec<Py<PyAny>>>> {
        if !self.parsing.has_told() && self.parsing.settle(py)?.is_none() {
            return Ok(None);
        }
        let mut out = VecDeque::new();
        while out.len() < most && self.parsing.has_events() {
            let made = self.make(py, given.as_deref_mut(), &mut out);
            made.map_err(|failure| self.pull.error(py, failure))?;
        }
        if out.is_empty()
            && let Some(error) = self.parsing.take_error()
        {
            return Err(self.pull.error(py, error.into()));
        }
        given.unwrap_or(&mut self.given).expect(out.len());
        Ok(Some(out.into()))
    }

    pub fn parsing(&mut self) -> &mut Parsing {
        &mut self.parsing
    }

    /// What is told early comes first.
    pub fn parse_now(
        &mut self,
        py: Python<'_>,
        input: Input<'_>,
        mut given: Option<&mut Given>,
    ) -> PyResult<Vec<Py<PyAny>>> {
        let mut out = VecDeque::new();
        let parsed = self.parse_into(py, input, given.as_deref_mut(), &mut out);
        parsed.map_err(|failure| self.pull.error(py, failure))?;
        given.unwrap_or(&mut self.given).expect(out.len());
        Ok(out.into())
    }

    fn parse_into(
        &mut self,
        py: Python<'_>,
        input: Input<'_>,
        mut given: Option<&mut Given>,
        out: &mut VecDeque<Py<PyAny>>,
    ) -> Result<(), Failure> {
        self.parsing.settle(py)?;
        while self.parsing.has_events() {
            self.make(py, given.as_deref_mut(), out)?;
        }
        if let Some(error) = self.parsing.take_error() {
            return Err(error.into());
        }
        let parser = self.parsing.parser(py)?;
        let given = given.unwrap_or(&mut self.given);
        self.making.parse(py, parser, input, given, out).map(drop)
    }
}

/// Dialect, version, confidence and reasons.
pub type Found = (&'static str, Option<String>, f64, Vec<String>);

pub fn found(detection: &Detection) -> Found {
    let Detection {
        dialect,
        version,
        confidence,
        why,
    } = detection.clone();
    (dialect.name, version, confidence, why)
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
    #[pyo3(signature = (*, dialect=None, kinds=None, types=None, strict=false, spans=false, max_line_bytes=268_435_456, max_result_bytes=None, cut_later=false, on_malformed=None, source=None))]
    fn new(
        py: Python<'_>,
        dialect: Option<&str>,
        kinds: Option<Vec<String>>,
        types: Option<HashSet<String>>,
        strict: bool,
        spans: bool,
        max_line_bytes: i64,
        max_result_bytes: Option<i64>,
        cut_later: bool,
        on_malformed: Option<Py<PyAny>>,
        source: Option<String>,
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
            max_line_bytes: not_negative(max_line_bytes, "max_line_bytes")?,
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
            parser = parser.with_result_limit(ResultLimit {
                bytes: not_negative(bytes, "max_result_bytes")?,
                later: cut_later,
            });
        }
        let mut stream = Stream::of(parser);
        stream.making.on_malformed = on_malformed;
        stream.making.types = types;
        stream.pull.name = source;
        Ok(Engine(Turns::new(stream)))
    }

    fn feed(&self, py: Python<'_>, chunk: &Bound<'_, PyAny>) -> PyResult<Vec<Py<PyAny>>> {
        let chunk = buffer(chunk)?;
        let mut stream = self.turn(py)?;
        stream.parse_now(py, Input::Bytes(bytes_of(&chunk)), None)
    }

    fn close(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        self.turn(py)?.parse_now(py, Input::End, None)
    }

    /// The run so far as a dict; `code` and `stderr` are what the caller knows of the process.
    #[pyo3(signature = (code=None, stderr=None))]
    fn run(
        &self,
        py: Python<'_>,
        code: Option<i64>,
        stderr: Option<Vec<u8>>,
    ) -> PyResult<Py<PyAny>> {
        let exit = exit(code, stderr);
        let mut stream = self.turn(py)?;
        let run = stream.parsing.parser(py)?.run(&exit);
        Builder::with(|builder| Ok(builder.run(py, &run)?.unbind()))
    }

    /// One key of that dict.
    #[pyo3(signature = (key, code=None, stderr=None))]
    fn run_part(
        &self,
        py: Python<'_>,
        key: &str,
        code: Option<i64>,
        stderr: Option<Vec<u8>>,
    ) -> PyResult<Py<PyAny>> {
        let exit = exit(code, stderr);
        let mut stream = self.turn(py)?;
        let part = stream.parsing.parser(py)?.part(key, &exit);
        let part = part.ok_or_else(|| PyKeyError::new_err(key.to_owned()))?;
        Builder::with(|builder| Ok(builder.run(py, &part)?.unbind()))
    }

    /// Each model call so far, as a list of dicts.
    fn ledger(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let mut stream = self.turn(py)?;
        let rows = stream.parsing.parser(py)?.ledger();
        Builder::with(|builder| Ok(builder.data(py, &rows)?.unbind()))
    }

    /// The latest of the times at which calls began and ended, as they are printed; None if none was.
    fn last_call_time(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let mut stream = self.turn(py)?;
        let time = stream.parsing.parser(py)?.last_call_time();
        Ok(time.map(str::to_owned))
    }

    /// The harness's own total of each model, as a list of dicts.
    fn printed_models(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let mut stream = self.turn(py)?;
        let models = stream.parsing.parser(py)?.printed_models();
        Builder::with(|builder| Ok(builder.data(py, &models)?.unbind()))
    }

    fn report(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let mut stream = self.turn(py)?;
        let report = stream.parsing.parser(py)?.report().to_data();
        Builder::with(|builder| Ok(builder.data(py, &report)?.unbind()))
    }

    /// (dialect, version, confidence, why), or None while the dialect is not known.
    #[getter]
    fn detection(&self, py: Python<'_>) -> PyResult<Option<Found>> {
        Ok(self.turn(py)?.parsing.detection().map(found))
    }

    /// "end" after a terminal record, "turn" after a turn that ended with an outcome, None before both.
    #[getter]
    fn ending(&self, py: Python<'_>) -> PyResult<Option<&'static str>> {
        Ok(self.turn(py)?.parsing.ending())
    }

    // ---------------------------------------------------------------- stopping and going on

    /// How many bytes were fed.
    #[getter]
    fn offset(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.turn(py)?.parsing.offset())
    }

    /// All that is known so far but `types` and `on_malformed`.
    fn snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let snapshot = self.turn(py)?.parsing.parser(py)?.snapshot();
        let snapshot = snapshot.map_err(|error| errors::snapshot(py, &error.to_string()))?;
        Ok(PyBytes::new(py, &snapshot))
    }

    #[staticmethod]
    #[pyo3(signature = (snapshot, *, on_malformed=None))]
    fn restore(py: Python<'_>, snapshot: &[u8], on_malformed: Option<Py<PyAny>>) -> PyResult<Self> {
        let parser = Parser::restore(snapshot);
        let parser = parser.ok_or_else(|| errors::snapshot(py, "the snapshot is damaged"))?;
        let mut stream = Stream::of(parser);
        stream.making.on_malformed = on_malformed;
        Ok(Engine(Turns::new(stream)))
    }

    // ---------------------------------------------------------------- pulling from a source

    fn attach_path(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let mut stream = self.turn(py)?;
        let series = stream.parsing.parser(py)?.series();
        let name = path.display().to_string();
        stream.pull.attach(Feed::path(py, path, series)?, &name);
        Ok(())
    }

    #[cfg(unix)]
    fn attach_descriptor(&self, py: Python<'_>, number: i32, name: &str) -> PyResult<()> {
        let mut stream = self.turn(py)?;
        let series = stream.parsing.parser(py)?.series();
        let feed = Feed::descriptor(py, number, name, series)?;
        stream.pull.attach(feed, name);
        Ok(())
    }

    fn attach_chunks(&self, py: Python<'_>, chunks: Py<PyAny>, name: &str) -> PyResult<()> {
        self.turn(py)?.pull.attach(Feed::chunks(chunks, name), name);
        Ok(())
    }

    /// Reads the attached source to its end for the run alone.
    fn drain_source(&self, py: Python<'_>) -> PyResult<()> {
        self.turn(py)?.drain(py)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let stream = self.0.now();
        stream.map_or(Ok(()), |stream| stream.given.traverse(&visit))
    }

    fn __clear__(&self) {
        if let Some(mut stream) = self.0.now() {
            stream.given.close();
        }
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.turn(py)?.next(py)
    }
}

impl Stream {
    /// Reads the attached source to its end for the run alone; the GIL is not held while bytes are parsed.
    fn drain(&mut self, py: Python<'_>) -> PyResult<()> {
        self.parsing.settle(py)?;
        self.give_back();
        if let Some(error) = self.parsing.take_error() {
            return Err(self.pull.error(py, error.into()));
        }
        let parser = self.parsing.parser(py)?;
        let mut quiet = Quiet {
            told: self.making.on_malformed.is_some(),
            ..Quiet::default()
        };
        let mut more = true;
        while more {
            let step = match self.pull.feed() {
                Some(feed) => {
                    feed.step_silently(py, &mut |input| Ok(give(parser, input, &mut quiet)?))
                }
                None => Ok(false),
            };
            more = step.map_err(|failure| self.pull.error(py, failure))?;
            if !more {
                let closed = parser.close(&mut quiet);
                closed.map_err(|error| self.pull.error(py, error.into()))?;
                self.pull.close();
            }
            if let Some(call) = &self.making.on_malformed {
                for line in quiet.malformed.drain(..) {
                    tell(py, call, &line)?;
                }
            }
        }
        Ok(())
    }

    /// The next event, or record of a type that was asked for.
    fn next(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        loop {
            if let Some(object) = self.pull.ready().pop_front() {
                return Ok(Some(object));
            }
            if self.parsing.has_events() {
                let mut ready = std::mem::take(self.pull.ready());
                let made = self.make(py, None, &mut ready);
                *self.pull.ready() = ready;
                if let Err(failure) = made {
                    self.end(py, self.pull.error(py, failure))?;
                }
                continue;
            }
            if let Some(error) = self.parsing.take_error() {
                self.end(py, self.pull.error(py, error.into()))?;
            }
            let more = self.parsing.settle(py)?;
            self.give_back();
            if more.is_some() {
                py.check_signals()?;
            }
            // The next pieces are parsed while objects are made of these.
            if more != Some(false) && self.source_early() || self.parsing.has_told() {
                continue;
            }
            let Stream {
                parsing,
                making,
                given,
                pull,
            } = self;
            let parser = parsing.parser(py)?;
            return pull.next(py, &mut |input, out| {
                making.parse(py, parser, input, given, out)
            });
        }
    }

    /// Nothing comes any more but this error.
    fn end(&mut self, py: Python<'_>, error: PyErr) -> PyResult<()> {
        self.parsing.settle(py)?;
        self.parsing.forget();
        self.parsing.take_back();
        self.pull.fail(error);
        Ok(())
    }

    /// A source that was parsed early may be parsed here again.
    fn give_back(&mut self) {
        if let Some(Work::Source(source)) = self.parsing.take_back() {
            self.pull.give_back(source);
        }
    }

    /// Whether another thread parses the next pieces of the source from now on.
    fn source_early(&mut self) -> bool {
        // Records are not kept in a backlog.
        if !self.making.types.is_empty() || !self.parsing.may_go_early() {
            return false;
        }
        let Some((source, pool)) = self.pull.lend() else {
            return false;
        };
        self.parsing.go_early(Work::Source(source), pool);
        true
    }
}
