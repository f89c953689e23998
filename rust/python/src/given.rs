//! Dicts that were given out: one that nobody has any more is made into the next one, as `zip` does with its tuples.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

/// Dicts that are remembered, unless more are asked for.
const FEW: usize = 64;
const MOST: usize = 1024;

/// The dicts that were given out last, the oldest first. They are kept for as long as there may be more: whoever gives them
/// out closes this then, and shows it to the garbage collector, as users may put anything into a dict.
pub struct Given {
    dicts: VecDeque<Py<PyAny>>,
    /// 0: none, ever again.
    most: usize,
}

impl Default for Given {
    fn default() -> Self {
        Given {
            dicts: VecDeque::new(),
            most: FEW,
        }
    }
}

impl Given {
    /// The oldest, if nobody has it any more.
    #[inline]
    pub fn back<'py>(&mut self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let oldest = self.dicts.front()?;
        // SAFETY: a live object.
        let is_free = unsafe { ffi::Py_REFCNT(oldest.as_ptr()) } == 1;
        if is_free || self.dicts.len() >= self.most {
            let oldest = self.dicts.pop_front()?.into_bound(py);
            return is_free.then_some(oldest);
        }
        None
    }

    /// Remembers a dict.
    #[inline]
    pub fn keep(&mut self, dict: &Bound<'_, PyAny>) {
        if self.most > 0 {
            self.dicts.push_back(dict.clone().unbind());
        }
    }

    /// So many were given out at once, and next time it may be as many.
    pub fn expect(&mut self, count: usize) {
        if self.most > 0 {
            self.most = (2 * count).clamp(FEW, MOST);
            let over = self.dicts.len().saturating_sub(self.most);
            self.dicts.drain(..over);
        }
    }

    /// Forgets all dicts.
    pub fn forget(&mut self) {
        let most = self.most.min(FEW);
        drop(std::mem::replace(
            self,
            Given {
                most,
                ..Given::default()
            },
        ));
    }

    /// Forgets all dicts, and remembers no more.
    pub fn close(&mut self) {
        self.most = 0;
        self.dicts = VecDeque::new();
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.dicts.iter().try_for_each(|dict| visit.call(dict))
    }
}

/// The same, for the records of a reader or the streams of an intake. It is those that show it to the garbage collector.
#[pyclass(frozen)]
#[derive(Default)]
pub struct Shared(Mutex<Given>);

impl Shared {
    /// None while somebody else has it: code of the user, which a dict ran when it went.
    #[inline]
    pub fn get(&self) -> Option<MutexGuard<'_, Given>> {
        self.0.try_lock().ok()
    }

    /// See [`Given::forget`].
    pub fn forget(&self) {
        if let Some(mut given) = self.get() {
            given.forget();
        }
    }

    pub fn close(&self) {
        if let Some(mut given) = self.get() {
            given.close();
        }
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.get().map_or(Ok(()), |given| given.traverse(visit))
    }
}
