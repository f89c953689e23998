//! `Intake`: pipes that are drained whatever Python does.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use headrace_core::source::live::{DEFAULT_MEMORY_LIMIT, Limits, Live, LiveError, Taken};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors;

/// A waiting thread looks for signals this often: Ctrl-C ends the waiting.
const SLICE: Duration = Duration::from_millis(20);

/// Drains any number of pipes with one native thread that never holds the GIL, from `add` on, into a queue each.
///
/// memory_limit: bytes that wait in memory at most, of all streams together; beyond it they go to an unlinked file.
/// spill_dir: where that file is made; None for the system's folder of temporary files.
/// spill_limit: bytes that wait in that file at most; None for as many as the disk takes.
#[pyclass(frozen, module = "headrace._native")]
pub struct Intake {
    live: Live,
}

fn raise<T>(py: Python<'_>, result: Result<T, LiveError>) -> PyResult<T> {
    result.map_err(|error| errors::from_live(py, &error))
}

#[pymethods]
impl Intake {
    #[new]
    #[pyo3(signature = (*, memory_limit=DEFAULT_MEMORY_LIMIT, spill_dir=None, spill_limit=None))]
    fn new(memory_limit: u64, spill_dir: Option<PathBuf>, spill_limit: Option<u64>) -> Self {
        let limits = Limits {
            memory: memory_limit,
            spill: spill_limit.unwrap_or(u64::MAX),
            spill_dir,
        };
        Intake {
            live: Live::new(limits),
        }
    }

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

    fn keep(&self, py: Python<'_>, stream: usize, keep: bool) -> PyResult<()> {
        raise(py, self.live.keep(stream, keep))
    }

    #[pyo3(signature = (stream, most=262_144))]
    fn take<'py>(
        &self,
        py: Python<'py>,
        stream: usize,
        most: usize,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        match raise(py, py.detach(|| self.live.take(stream, most)))? {
            Taken::Bytes(bytes) => Ok(Some(PyBytes::new(py, &bytes))),
            Taken::Nothing => Ok(Some(PyBytes::new(py, b""))),
            Taken::End => Ok(None),
        }
    }

    fn wait(&self, py: Python<'_>, streams: Vec<usize>, timeout: f64) -> PyResult<bool> {
        let started = Instant::now();
        let timeout = Duration::try_from_secs_f64(timeout.max(0.0)).unwrap_or(Duration::MAX);
        loop {
            let left = timeout.saturating_sub(started.elapsed());
            let waited = py.detach(|| self.live.wait(&streams, left.min(SLICE)));
            let found = raise(py, waited)?;
            py.check_signals()?;
            if found || started.elapsed() >= timeout {
                return Ok(found);
            }
        }
    }

    fn ready(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        raise(py, self.live.ready())
    }

    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        raise(py, self.live.wake_descriptor())
    }

    fn tail<'py>(&self, py: Python<'py>, stream: usize) -> PyResult<Bound<'py, PyBytes>> {
        let tail = raise(py, self.live.tail(stream))?;
        Ok(PyBytes::new(py, &tail))
    }

    fn idle(&self, py: Python<'_>, stream: usize) -> PyResult<f64> {
        let (_, since) = raise(py, self.live.activity(stream))?;
        Ok(since.as_secs_f64())
    }

    fn total(&self, py: Python<'_>, stream: usize) -> PyResult<u64> {
        let (total, _) = raise(py, self.live.activity(stream))?;
        Ok(total)
    }

    fn waiting(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        raise(py, self.live.waiting())
    }

    fn remove(&self, py: Python<'_>, stream: usize) -> PyResult<()> {
        raise(py, py.detach(|| self.live.remove(stream)))
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.live.close());
    }
}
