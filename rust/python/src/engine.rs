//! `Engine`: one stream from bytes to event dicts and run.

use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use headrace_core::ahead::{Ahead, Early, Pool};
use headrace_core::backlog::Backlog;
use headrace_core::detect::Detection;
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
use crate::feed::{Feed, Input, Pull, advance, buffer, bytes_of};
use crate::given::Given;
use crate::objects::Builder;
use crate::record::Record;

/// So many events of a backlog become Python objects at a time, for the reason that `SLICE` has in `feed`.
const EVENTS: usize = 16;
/// About how much another thread parses at a time: it wakes up with cold caches.
const EARLY: u64 = 1 << 18;
/// Where an event comes of more bytes than these, in the mean, there is little to make, and what there is was copied
/// twice: threads that decode ahead help more.
const SPARSE: u64 = 1 << 10;
/// After that, so many bytes are parsed without.
const PAUSE: u64 = 1 << 23;

#[pyclass(subclass, module = "headrace._native")]
pub struct Engine {
    /// None while another thread has it.
    parser: Option<Box<Parser>>,
    early: Option<Early<Job>>,
    /// What was parsed early last, if it was a block.
    block: Option<Vec<u8>>,
    /// What the parser said when it went away.
    said: Said,
    told: Told,
    /// Before this offset of the stream, nothing is parsed early.
    early_from: u64,
    making: Making,
    pull: Pull,
}

/// How events become Python objects.
#[derive(Default)]
struct Making {
    on_malformed: Option<Py<PyAny>>,
    /// Native types of the records that are given out before their events.
    types: HashSet<String>,
    spans: bool,
    given: Given,
}

/// What another thread does: parses what is next.
struct Job {
    parser: Box<Parser>,
    work: Work,
    told: Backlog,
    result: Result<bool, record::Error>,
}

/// What is parsed.
enum Work {
    Block(Vec<u8>),
    /// Its next pieces.
    Source(Box<Ahead>),
}

impl Job {
    fn run(&mut self) {
        let Job {
            parser,
            work,
            told,
            result,
        } = self;
        *result = match work {
            Work::Block(block) => parser.feed(block, told).map(|()| true),
            Work::Source(source) => {
                let end = parser.offset() + EARLY;
                loop {
                    let more = advance(source, &mut |input| give(parser, input, told));
                    if !matches!(more, Ok(true)) || parser.offset() >= end {
                        break more;
                    }
                }
            }
        };
    }
}

/// What was parsed early and is not handed out yet.
#[derive(Default)]
struct Told {
    backlogs: VecDeque<Backlog>,
    /// How much of the first is handed out.
    at: usize,
    spare: Backlog,
    /// What comes after it.
    failed: Option<record::Error>,
}

impl Told {
    fn is_empty(&self) -> bool {
        self.backlogs.is_empty()
    }

    /// Not even an error is left.
    fn is_over(&self) -> bool {
        self.is_empty() && self.failed.is_none()
    }

    fn push(&mut self, backlog: Backlog) {
        if backlog.is_empty() {
            self.spare = backlog;
        } else {
            self.backlogs.push_back(backlog);
        }
    }

    /// The next events, as many at most; false if there are none.
    fn tell(&mut self, most: usize, output: &mut dyn Output) -> bool {
        let Some(first) = self.backlogs.front() else {
            return false;
        };
        let end = first.len().min(self.at.saturating_add(most));
        first.tell(self.at..end, output);
        self.at = end;
        if end == first.len()
            && let Some(mut first) = self.backlogs.pop_front()
        {
            self.at = 0;
            first.clear();
            self.spare = first;
        }
        true
    }
}

/// What the parser says of the stream, and what it went away for.
#[derive(Default)]
struct Said {
    is_block: bool,
    detection: Option<Detection>,
    ending: Option<&'static str>,
    offset: u64,
}

impl Said {
    fn by(parser: &Parser, work: &Work) -> Self {
        Said {
            is_block: matches!(work, Work::Block(_)),
            detection: parser.detection().cloned(),
            ending: parser.ending(),
            offset: parser.offset(),
        }
    }
}

/// What a call to the parser gave, as Python objects.
struct Collector<'c, 'py> {
    py: Python<'py>,
    builder: Box<Builder>,
    making: &'c mut Making,
    out: &'c mut VecDeque<Py<PyAny>>,
    failed: Option<PyErr>,
}

impl Sink for Collector<'_, '_> {
    fn take(&mut self, event: &Event<'_>) {
        if self.failed.is_none() {
            let Making { spans, given, .. } = self.making;
            match self.builder.event(self.py, event, *spans, given) {
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
            .is_some_and(|kind| self.making.types.contains(&*kind.lossy()));
        if wanted && self.failed.is_none() {
            match Py::new(self.py, Record::new(record, None)) {
                Ok(record) => self.out.push_back(record.into_any()),
                Err(error) => self.failed = Some(error),
            }
        }
    }

    fn malformed(&mut self, line: &Malformed) {
        if let (Some(call), None) = (&self.making.on_malformed, &self.failed) {
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

impl Making {
    /// Has something tell its output of events, and pushes them onto the queue.
    fn collect<T>(
        &mut self,
        py: Python<'_>,
        out: &mut VecDeque<Py<PyAny>>,
        tell: impl FnOnce(&mut dyn Output) -> Result<T, record::Error>,
    ) -> Result<T, Failure> {
        let mut collector = Collector {
            py,
            builder: Builder::take(),
            making: self,
            out,
            failed: None,
        };
        let result = tell(&mut collector);
        collector.builder.put_back();
        match collector.failed {
            Some(error) => Err(error.into()),
            None => Ok(result?),
        }
    }

    /// The same of what the parser makes of its input.
    fn parse(
        &mut self,
        py: Python<'_>,
        parser: &mut Parser,
        input: Input<'_>,
        out: &mut VecDeque<Py<PyAny>>,
    ) -> Result<Option<usize>, Failure> {
        let is_end = matches!(input, Input::End);
        let parsed = self.collect(py, out, |output| give(parser, input, output));
        if is_end {
            self.given.close();
        }
        parsed
    }
}

impl Engine {
    fn of(parser: Parser) -> Self {
        Engine {
            making: Making {
                spans: parser.has_spans(),
                ..Making::default()
            },
            parser: Some(Box::new(parser)),
            early: None,
            block: None,
            said: Said::default(),
            told: Told::default(),
            early_from: 0,
            pull: Pull::default(),
        }
    }

    /// The parser, once whoever has it is done with its piece.
    fn parser(&mut self, py: Python<'_>) -> PyResult<&mut Parser> {
        self.settle(py)?;
        let parser = self.parser.as_deref_mut();
        parser.ok_or_else(|| errors::forked(py))
    }

    /// Events, after those that were made before, of what another thread parses from now on.
    fn go_early(&mut self, parser: Box<Parser>, work: Work, pool: Arc<Pool>) {
        self.said = Said::by(&parser, &work);
        let job = Job {
            parser,
            work,
            told: std::mem::take(&mut self.told.spare),
            result: Ok(true),
        };
        self.early = Some(Early::new(job, Job::run, pool));
    }

    /// Has the parser back, and in the backlog what it told meanwhile. Whether there is more; None if it was here.
    fn settle(&mut self, py: Python<'_>) -> PyResult<Option<bool>> {
        let Some(early) = self.early.take() else {
            return Ok(None);
        };
        // A block is soon done. While a source is waited for, other threads of Python have their turn.
        let job = match self.said.is_block {
            true => early.finish(),
            false => py.detach(|| early.finish()),
        };
        let Job {
            parser,
            work,
            told,
            result,
        } = job.map_err(|_| errors::forked(py))?;
        let size = parser.offset() - self.said.offset;
        if size > told.len() as u64 * SPARSE {
            self.early_from = parser.offset() + PAUSE;
        }
        self.parser = Some(parser);
        self.told.push(told);
        match work {
            Work::Source(source) => self.pull.give_back(source),
            Work::Block(block) => self.block = Some(block),
        }
        let more = result.unwrap_or_else(|error| {
            self.told.failed = Some(error);
            false
        });
        Ok(Some(more))
    }

    /// Everything that was parsed early.
    fn catch_up(&mut self, py: Python<'_>, out: &mut VecDeque<Py<PyAny>>) -> Result<(), Failure> {
        self.settle(py)?;
        while self.tell(py, out)? {}
        match self.told.failed.take() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// The next events of blocks that were parsed early, as many at most; None if there is nothing of the kind.
    pub fn early_events(
        &mut self,
        py: Python<'_>,
        most: usize,
    ) -> PyResult<Option<Vec<Py<PyAny>>>> {
        if self.told.is_over() && self.settle(py)?.is_none() {
            return Ok(None);
        }
        let mut out = VecDeque::new();
        let mut told = Ok(true);
        while out.len() < most && matches!(told, Ok(true)) {
            told = self.tell(py, &mut out);
        }
        let failed = match (told, self.told.failed.take_if(|_| out.is_empty())) {
            (Err(failure), _) => Some(failure.raise(py)),
            (Ok(_), Some(error)) => Some(errors::from_core(py, error)),
            (Ok(_), None) => None,
        };
        match failed {
            Some(error) => Err(error),
            None => {
                self.making.given.expect(out.len());
                Ok(Some(out.into()))
            }
        }
    }

    /// The block that was parsed early last, once.
    pub fn take_block(&mut self) -> Option<Vec<u8>> {
        self.block.take()
    }

    /// Events wait that were parsed early.
    pub fn has_told(&self) -> bool {
        !self.told.is_over()
    }

    /// Another thread parses, or events wait that it parsed.
    pub fn is_early(&self) -> bool {
        self.early.is_some() || self.has_told()
    }

    /// Has another thread parse a block, unless one parses already.
    pub fn block_early(&mut self, block: Vec<u8>, pool: &Arc<Pool>) -> Result<(), Vec<u8>> {
        match self.parser.take() {
            Some(parser) => {
                self.go_early(parser, Work::Block(block), pool.clone());
                Ok(())
            }
            None => Err(block),
        }
    }

    /// Some of what was parsed early; false if there is nothing.
    fn tell(&mut self, py: Python<'_>, out: &mut VecDeque<Py<PyAny>>) -> Result<bool, Failure> {
        let told = &mut self.told;
        let tell = |output: &mut dyn Output| Ok(told.tell(EVENTS, output));
        self.making.collect(py, out, tell)
    }

    pub fn parse_now(&mut self, py: Python<'_>, input: Input<'_>) -> PyResult<Vec<Py<PyAny>>> {
        let mut out = VecDeque::new();
        let parsed = self.catch_up(py, &mut out).and_then(|()| {
            let parser = self.parser.as_mut().ok_or_else(|| errors::forked(py))?;
            self.making.parse(py, parser, input, &mut out)
        });
        match parsed {
            Ok(_) => {
                self.making.given.expect(out.len());
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
        let mut engine = Engine::of(parser);
        engine.making.on_malformed = on_malformed;
        engine.making.types = types;
        Ok(engine)
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
        let run = self.parser(py)?.run(&exit);
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
        let part = self.parser(py)?.part(key, &exit);
        let part = part.ok_or_else(|| PyKeyError::new_err(key.to_owned()))?;
        Builder::with(|builder| Ok(builder.run(py, &part)?.unbind()))
    }

    /// Each model call so far, as a list of dicts.
    fn ledger(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let rows = self.parser(py)?.ledger();
        Builder::with(|builder| Ok(builder.data(py, &rows)?.unbind()))
    }

    /// The harness's own total of each model, as a list of dicts.
    fn printed_models(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let models = self.parser(py)?.printed_models();
        Builder::with(|builder| Ok(builder.data(py, &models)?.unbind()))
    }

    fn report(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let report = self.parser(py)?.report().to_data();
        Builder::with(|builder| Ok(builder.data(py, &report)?.unbind()))
    }

    /// (dialect, version, confidence, why), or None while the dialect is not known.
    #[getter]
    fn detection(&self) -> Option<(&'static str, Option<String>, f64, Vec<String>)> {
        let found = match &self.parser {
            Some(parser) => parser.detection(),
            None => self.said.detection.as_ref(),
        };
        let found = found?.clone();
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
        match &self.parser {
            Some(parser) => parser.ending(),
            None => self.said.ending,
        }
    }

    // ---------------------------------------------------------------- stopping and going on

    /// How many bytes were fed.
    #[getter]
    fn offset(&self) -> u64 {
        match &self.parser {
            Some(parser) => parser.offset(),
            None => self.said.offset,
        }
    }

    /// All that is known so far but `types` and `on_malformed`.
    fn snapshot<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let snapshot = self.parser(py)?.snapshot();
        let snapshot = snapshot.map_err(|error| errors::snapshot(py, &error.to_string()))?;
        Ok(PyBytes::new(py, &snapshot))
    }

    #[staticmethod]
    #[pyo3(signature = (snapshot, *, on_malformed=None))]
    fn restore(py: Python<'_>, snapshot: &[u8], on_malformed: Option<Py<PyAny>>) -> PyResult<Self> {
        let parser = Parser::restore(snapshot);
        let parser = parser.ok_or_else(|| errors::snapshot(py, "the snapshot is damaged"))?;
        let mut engine = Engine::of(parser);
        engine.making.on_malformed = on_malformed;
        Ok(engine)
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
        self.settle(py)?;
        let parser = self.parser.as_mut().ok_or_else(|| errors::forked(py))?;
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
            more = step.map_err(|failure| failure.raise(py))?;
            if !more {
                let closed = parser.close(&mut quiet);
                closed.map_err(|error| errors::from_core(py, error))?;
            }
            if let Some(call) = &self.making.on_malformed {
                for line in quiet.malformed.drain(..) {
                    tell(py, call, &line)?;
                }
            }
        }
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.making.given.traverse(&visit)
    }

    fn __clear__(&mut self) {
        self.making.given.close();
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        loop {
            if let Some(object) = self.pull.ready().pop_front() {
                return Ok(Some(object));
            }
            if !self.told.is_empty() {
                let mut ready = std::mem::take(self.pull.ready());
                let told = self.tell(py, &mut ready);
                *self.pull.ready() = ready;
                if let Err(failure) = told {
                    self.end(failure.raise(py));
                }
                continue;
            }
            if let Some(error) = self.told.failed.take() {
                self.end(errors::from_core(py, error));
            }
            let ask = match self.settle(py)? {
                Some(more) => {
                    py.check_signals()?;
                    more
                }
                None => self.making.types.is_empty(),
            };
            if (ask && self.source_early()) || !self.told.is_over() {
                continue;
            }
            let Engine {
                parser,
                making,
                pull,
                ..
            } = self;
            let parser = parser.as_mut().ok_or_else(|| errors::forked(py))?;
            return pull.next(py, &mut |input, out| making.parse(py, parser, input, out));
        }
    }
}

impl Engine {
    /// Nothing comes any more but this error.
    fn end(&mut self, error: PyErr) {
        self.told = Told::default();
        self.pull.fail(error);
    }

    /// Whether another thread parses the next piece of the source from now on.
    fn source_early(&mut self) -> bool {
        let due = |parser: &mut Box<Parser>| parser.offset() >= self.early_from;
        let Some(parser) = self.parser.take_if(due) else {
            return false;
        };
        let Some((source, pool)) = self.pull.lend() else {
            self.parser = Some(parser);
            return false;
        };
        self.go_early(parser, Work::Source(source), pool);
        true
    }
}
