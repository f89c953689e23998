//! One step that another thread may take before it is asked for.

use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use super::Pool;

/// Work that was handed over; [`finish`](Early::finish) gets it back, done.
pub struct Early<T> {
    work: Arc<Mutex<Work<T>>>,
    step: fn(&mut T),
    pool: Arc<Pool>,
}

struct Work<T> {
    /// None while the step is taken, and when it is back.
    thing: Option<T>,
    is_done: bool,
}

/// Another process has the thread that had begun.
#[derive(Debug)]
pub struct Gone;

impl<T: Send + 'static> Early<T> {
    pub fn new(thing: T, step: fn(&mut T), pool: Arc<Pool>) -> Self {
        let work = Arc::new(Mutex::new(Work {
            thing: Some(thing),
            is_done: false,
        }));
        if pool.is_here() {
            let work = work.clone();
            pool.spawn(move || {
                work.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take(step);
            });
        }
        Early { work, step, pool }
    }

    /// Takes the step if nobody has begun with it, else waits for its end.
    ///
    /// # Panics
    /// If the step has.
    pub fn finish(self) -> Result<T, Gone> {
        let mut work = if self.pool.is_here() {
            self.work.lock().unwrap_or_else(PoisonError::into_inner)
        } else {
            match self.work.try_lock() {
                Ok(work) => work,
                Err(TryLockError::Poisoned(error)) => error.into_inner(),
                Err(TryLockError::WouldBlock) => return Err(Gone),
            }
        };
        work.take(self.step);
        Ok(work.thing.take().expect("a step ended in a panic"))
    }
}

impl<T> Drop for Early<T> {
    /// Nobody wants it any more: what has not been begun is not done.
    fn drop(&mut self) {
        if let Ok(mut work) = self.work.try_lock() {
            work.is_done = true;
        }
    }
}

impl<T> Work<T> {
    fn take(&mut self, step: fn(&mut T)) {
        if self.is_done {
            return;
        }
        self.is_done = true;
        if let Some(mut thing) = self.thing.take() {
            step(&mut thing);
            self.thing = Some(thing);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn pool() -> Arc<Pool> {
        Arc::new(Pool::with(1).unwrap())
    }

    #[test]
    fn a_step_is_taken_once_whoever_takes_it() {
        let pool = pool();
        for number in 0..1000 {
            let early = Early::new(number, |number| *number += 1, pool.clone());
            if number % 3 == 0 {
                std::thread::yield_now();
            }
            assert_eq!(early.finish().unwrap(), number + 1);
        }
    }

    #[test]
    #[should_panic(expected = "a step ended in a panic")]
    fn a_step_that_panics_is_told_of() {
        let early = Early::new(0, |_| panic!("oops"), pool());
        std::thread::sleep(Duration::from_millis(20));
        let _ = early.finish();
    }
}
