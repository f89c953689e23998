//! What threads of Python may share: it serves one at a time, and the others wait.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use pyo3::prelude::*;

use crate::errors;

/// A waiting thread looks for signals this often: Ctrl-C ends the waiting.
const MOMENT: Duration = Duration::from_millis(20);

pub struct Turns<T> {
    value: Mutex<T>,
    queue: Queue,
}

/// A thread has its turn until this is dropped, also while it does not hold the GIL.
pub struct Turn<'t, T> {
    value: MutexGuard<'t, T>,
    // dropped after the guard, as fields are
    bell: Bell<'t>,
}

struct Queue {
    /// The thread whose turn it is; 0 for none.
    thread: AtomicUsize,
    waiting: AtomicUsize,
    gate: Mutex<()>,
    over: Condvar,
    /// That made it.
    process: u32,
}

/// Rings for whoever waits when a turn is over.
struct Bell<'t>(&'t Queue);

/// A number that no other thread has.
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

impl<T> Turns<T> {
    pub fn new(value: T) -> Self {
        Turns {
            value: Mutex::new(value),
            queue: Queue {
                thread: AtomicUsize::new(0),
                waiting: AtomicUsize::new(0),
                gate: Mutex::new(()),
                over: Condvar::new(),
                process: std::process::id(),
            },
        }
    }

    /// Waits for this thread's turn; an error if it has it already.
    #[inline]
    pub fn take(&self, py: Python<'_>) -> PyResult<Turn<'_, T>> {
        loop {
            if let Some(value) = self.now() {
                self.queue.thread.store(this_thread(), Ordering::Relaxed);
                let bell = Bell(&self.queue);
                return Ok(Turn { value, bell });
            }
            self.queue.wait(py)?;
        }
    }

    /// The value, if it is nobody's turn.
    #[inline]
    pub fn now(&self) -> Option<MutexGuard<'_, T>> {
        match self.value.try_lock() {
            Ok(value) => Some(value),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Queue {
    #[cold]
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        if self.thread.load(Ordering::SeqCst) == this_thread() {
            return Err(errors::within(py));
        }
        if self.process != std::process::id() {
            return Err(errors::forked(py));
        }
        py.detach(|| {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
            if self.thread.load(Ordering::SeqCst) != 0 {
                let _ = self.over.wait_timeout(gate, MOMENT);
            }
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        });
        py.check_signals()
    }
}

impl<T> Deref for Turn<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Turn<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Turn<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.bell.0.thread.store(0, Ordering::Relaxed);
    }
}

impl Drop for Bell<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.waiting.load(Ordering::SeqCst) > 0 {
            let _gate = self.0.gate.lock().unwrap_or_else(PoisonError::into_inner);
            self.0.over.notify_all();
        }
    }
}
