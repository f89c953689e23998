//! `Intake`: pipes that are drained whatever Python does.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use headrace_core::ahead::Pool;
use headrace_core::frame::whole_lines;
use headrace_core::source::live::{BLOCK, DEFAULT_MEMORY_LIMIT, Limits, Live, LiveError, Taken};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyWeakrefReference};

use crate::early::Work;
use crate::engine::Engine;
use crate::errors;
use crate::feed::{Input, not_negative};
use crate::given::{Given, Shared};

/// A waiting thread looks for signals this often: Ctrl-C ends the waiting.
const MOMENT: Duration = Duration::from_millis(20);
/// About how much a tap gives at a time: its events are handed out, and gone, before there are more.
const SLICE: usize = 1 << 15;
/// No event of them comes of less bytes, in the mean.
const BYTES: usize = 1 << 7;
/// About how much another thread parses at a time.
const AHEAD: u64 = 4 * BLOCK as u64;
/// A block that has so much is a sign that more waits.
const MUCH: u64 = 1 << 15;

/// Drains any number of pipes with one native thread that never holds the GIL, from `add` on, into a queue each.
///
/// memory_limit: bytes that wait in memory at most, of all streams together; beyond it they go to an unlinked file.
/// spill_dir: where that file is made; None for the system's folder of temporary files.
/// spill_limit: bytes that wait in that file at most; None for as many as the disk takes.
#[pyclass(frozen, module = "headrace._native")]
pub struct Intake {
    live: Live,
    /// Threads that parse what waits, once so much does that it pays.
    pool: Mutex<Option<Arc<Pool>>>,
    /// What its taps share, as long as there are any.
    dicts: Mutex<Option<Py<PyWeakrefReference>>>,
}

/// The dicts that all taps of an intake use again: few, however many streams there are. Not the intake's own, which is
/// known to whoever looks after a process: what was put into a dict must not be kept by that.
#[pyclass(frozen, weakref)]
#[derive(Default)]
struct Dicts(Shared);

#[pymethods]
impl Dicts {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.0.traverse(&visit)
    }

    fn __clear__(&self) {
        self.0.forget();
    }
}

impl Intake {
    fn pool(&self) -> Option<Arc<Pool>> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if pool.is_none() {
            *pool = Pool::shared();
        }
        pool.clone()
    }

    fn dicts(&self, py: Python<'_>) -> PyResult<Py<Dicts>> {
        let mut dicts = self.dicts.lock().unwrap_or_else(PoisonError::into_inner);
        let known = dicts.as_ref().and_then(|dicts| dicts.bind(py).upgrade());
        if let Some(known) = known {
            return Ok(known.cast_into::<Dicts>()?.unbind());
        }
        let new = Bound::new(py, Dicts::default())?;
        *dicts = Some(PyWeakrefReference::new(&new)?.unbind());
        Ok(new.unbind())
    }
}

fn raise<T>(py: Python<'_>, result: Result<T, LiveError>) -> PyResult<T> {
    result.map_err(|error| errors::from_live(py, &error))
}

#[pymethods]
impl Intake {
    #[new]
    #[pyo3(signature = (*, memory_limit=DEFAULT_MEMORY_LIMIT as i64, spill_dir=None, spill_limit=None))]
    fn new(
        py: Python<'_>,
        memory_limit: i64,
        spill_dir: Option<PathBuf>,
        spill_limit: Option<i64>,
    ) -> PyResult<Self> {
        if let Some(folder) = spill_dir.as_ref().filter(|folder| !folder.is_dir()) {
            return Err(errors::no_folder(py, folder));
        }
        let spill_limit = spill_limit.map(|bytes| not_negative(bytes, "spill_limit"));
        let limits = Limits {
            memory: not_negative(memory_limit, "memory_limit")?,
            spill: spill_limit.transpose()?.unwrap_or(u64::MAX),
            spill_dir,
        };
        Ok(Intake {
            live: Live::new(limits),
            pool: Mutex::default(),
            dicts: Mutex::default(),
        })
    }

    /// Drain a copy of a descriptor; gives the number of the stream. Its last `tail` bytes are kept apart, and with keep=False
    /// only they. Raises SourceError for what can't be waited for.
    #[pyo3(signature = (descriptor, name, *, tail=0, keep=true))]
    fn add(
        &self,
        py: Python<'_>,
        descriptor: i32,
        name: &str,
        tail: usize,
        keep: bool,
    ) -> PyResult<usize> {
        if descriptor < 0 {
            let error = std::io::Error::other("no descriptor has that number");
            let name = name.to_owned();
            return raise(py, Err(LiveError::Open { name, error }));
        }
        // SAFETY: the number is only used to duplicate the descriptor, which fails if it is not open.
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
        raise(py, self.live.add(descriptor, name, tail, keep))
    }

    /// Whether the stream is queued from now on.
    fn keep(&self, py: Python<'_>, stream: usize, keep: bool) -> PyResult<()> {
        raise(py, self.live.keep(stream, keep))
    }

    /// The next bytes; empty when there are none yet, None at the end. Raises SourceError or SpillError after all bytes
    /// before it.
    #[pyo3(signature = (stream, most=262_144))]
    fn take<'py>(
        &self,
        py: Python<'py>,
        stream: usize,
        most: usize,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        match raise(py, py.detach(|| self.live.take(stream, most)))? {
            Taken::Bytes(bytes) => {
                let taken = PyBytes::new(py, &bytes);
                self.live.pool().put_back(bytes);
                Ok(Some(taken))
            }
            Taken::Nothing => Ok(Some(PyBytes::new(py, b""))),
            Taken::End => Ok(None),
        }
    }

    /// What takes the stream a few lines at a time; then nobody else may `take` of it.
    fn tap(slf: Py<Self>, py: Python<'_>, stream: usize) -> PyResult<Tap> {
        Ok(Tap {
            dicts: slf.get().dicts(py)?,
            intake: slf,
            stream,
            block: Vec::new(),
            at: 0,
            has_events: false,
            is_ahead: false,
            is_over: false,
        })
    }

    /// Lends the stream to an event loop that has taken all there is, and reads it itself from then on; None when that
    /// can't be now.
    fn lend(&self, py: Python<'_>, stream: usize) -> PyResult<Option<Loan>> {
        let file = raise(py, self.live.lend(stream))?;
        Ok(file.map(|file| Loan { file }))
    }

    /// The loan is over: the thread reads as ever.
    fn give_back(&self, py: Python<'_>, stream: usize) -> PyResult<()> {
        raise(py, self.live.give_back(stream))
    }

    /// Wait until one of the streams has bytes or an end; a signal handler that raises ends it.
    fn wait(&self, py: Python<'_>, streams: Vec<usize>, timeout: f64) -> PyResult<bool> {
        let started = Instant::now();
        let timeout = Duration::try_from_secs_f64(timeout.max(0.0)).unwrap_or(Duration::MAX);
        loop {
            let left = timeout.saturating_sub(started.elapsed());
            let waited = py.detach(|| self.live.wait(&streams, left.min(MOMENT)));
            let found = raise(py, waited)?;
            py.check_signals()?;
            if found || started.elapsed() >= timeout {
                return Ok(found);
            }
        }
    }

    /// The streams with news since the last call.
    fn ready(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        raise(py, self.live.ready())
    }

    /// A descriptor that is readable while `ready` has something to tell; it belongs to the intake.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        raise(py, self.live.wake_descriptor())
    }

    /// The last bytes of a stream.
    fn tail<'py>(&self, py: Python<'py>, stream: usize) -> PyResult<Bound<'py, PyBytes>> {
        let tail = raise(py, self.live.tail(stream))?;
        Ok(PyBytes::new(py, &tail))
    }

    /// Seconds since its last byte.
    fn idle(&self, py: Python<'_>, stream: usize) -> PyResult<f64> {
        let (_, since) = raise(py, self.live.activity(stream))?;
        Ok(since.as_secs_f64())
    }

    /// Bytes that were read of it.
    fn total(&self, py: Python<'_>, stream: usize) -> PyResult<u64> {
        let (total, _) = raise(py, self.live.activity(stream))?;
        Ok(total)
    }

    /// Bytes that wait now: in memory, in the file.
    fn waiting(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        raise(py, self.live.waiting())
    }

    /// Let go of a stream and of what waits of it.
    fn remove(&self, py: Python<'_>, stream: usize) -> PyResult<()> {
        raise(py, py.detach(|| self.live.remove(stream)))
    }

    /// Let go of everything and end the thread; dropping the object does it too.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.live.close());
        let pool = self
            .pool
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(pool); // its threads end, if they are nobody else's
    }
}

/// A stream that is lent: keeps its descriptor open.
#[pyclass(frozen, module = "headrace._native")]
pub struct Loan {
    file: Arc<File>,
}

#[pymethods]
impl Loan {
    fn fileno(&self) -> i32 {
        self.file.as_raw_fd()
    }
}

/// Takes a stream a few lines at a time, and gives them to an engine where they are.
#[pyclass(module = "headrace._native")]
pub struct Tap {
    intake: Py<Intake>,
    dicts: Py<Dicts>,
    stream: usize,
    /// What was taken, and what of it was given begins at `at`.
    block: Vec<u8>,
    at: usize,
    /// Events were parsed ahead, and are not given yet.
    has_events: bool,
    #[pyo3(get)]
    is_ahead: bool,
    #[pyo3(get)]
    is_over: bool,
}

impl Tap {
    /// The next lines; None if there are none now.
    fn next(&mut self, py: Python<'_>, about: usize) -> PyResult<Option<Range<usize>>> {
        if self.at == self.block.len() {
            let live = &self.intake.get().live;
            live.pool().put_back(std::mem::take(&mut self.block));
            self.at = 0;
            let stream = self.stream;
            match raise(py, py.detach(|| live.take(stream, BLOCK)))? {
                Taken::Bytes(bytes) => self.block = bytes,
                Taken::Nothing => return Ok(None),
                Taken::End => {
                    self.is_over = true;
                    return Ok(None);
                }
            }
        }
        let start = self.at;
        self.at += whole_lines(&self.block[start..], about);
        Ok(Some(start..self.at))
    }

    /// If much of the stream waits, has another thread read and parse it, until it is asked for.
    fn look_ahead(&self, engine: &Bound<'_, Engine>) -> PyResult<()> {
        let intake = self.intake.get();
        let mut stream = engine.get().turn(engine.py())?;
        let Some(pool) = intake.pool().filter(|_| stream.parsing().is_here()) else {
            return Ok(());
        };
        let (mut claims, mut size) = (Vec::new(), 0);
        // The end, or an error, is found again when what was before it is given.
        while size < AHEAD
            && let Ok(Taken::Bytes(claim)) = intake.live.claim(self.stream, BLOCK)
        {
            size += claim.size();
            claims.push(claim);
        }
        if size > 0 {
            stream.parsing().go_early(Work::Waiting(claims, size), pool);
        }
        Ok(())
    }
}

#[pymethods]
impl Tap {
    #[pyo3(signature = (engine, about=SLICE, *, ahead=true))]
    fn feed(
        &mut self,
        py: Python<'_>,
        engine: &Bound<'_, Engine>,
        about: usize,
        ahead: bool,
    ) -> PyResult<Option<Vec<Py<PyAny>>>> {
        let dicts = self.dicts.clone_ref(py);
        let mut given = dicts.get().0.get();
        // The engine is not kept while the GIL is not held: other threads may ask it for the run.
        let mut stream = engine.get().turn(py)?;
        let early = stream.early_events(py, about / BYTES, given.as_deref_mut())?;
        let done = stream.parsing().take_back();
        drop(stream);
        let (events, size) = match early {
            Some(events) => match done {
                Some(Work::Waiting(_, size)) => (events, size),
                _ => (events, 0),
            },
            None => {
                let Some(lines) = self.next(py, about)? else {
                    // Nobody is kept by what was put into a dict while there is nothing to do.
                    given.as_deref_mut().map(Given::forget);
                    return Ok(None);
                };
                let lines = Input::Bytes(&self.block[lines]);
                let mut stream = engine.get().turn(py)?;
                let events = stream.parse_now(py, lines, given.as_deref_mut())?;
                (events, self.block.len() as u64)
            }
        };
        drop(given);
        if ahead && size >= MUCH && self.at == self.block.len() {
            self.look_ahead(engine)?;
        }
        let mut stream = engine.get().turn(py)?;
        self.has_events = stream.parsing().has_told();
        self.is_ahead = self.has_events || stream.parsing().is_away();
        Ok(Some(events))
    }

    #[pyo3(signature = (about=SLICE))]
    fn take<'py>(
        &mut self,
        py: Python<'py>,
        about: usize,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let lines = self.next(py, about)?;
        Ok(lines.map(|lines| PyBytes::new(py, &self.block[lines])))
    }

    /// Whether something was taken that is not given yet.
    #[getter]
    fn has_more(&self) -> bool {
        self.has_events || self.at < self.block.len()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.dicts)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.dicts.get().0.forget();
        let block = std::mem::take(&mut self.block);
        self.intake.get().live.pool().put_back(block);
    }
}
