//! Threads that do early what somebody will ask for.

use std::mem::ManuallyDrop;
use std::num::NonZero;
use std::sync::{Arc, Mutex, Weak};
use std::{process, thread};

use rayon::{ThreadPool, ThreadPoolBuilder};

/// Threads of a machine with many cores. Who takes what they make keeps up with no more.
const MAX_THREADS: usize = 3;
const MOST_THREADS: usize = 64;
/// The environment variable that says how many there are; 0: nothing is done early.
const THREADS: &str = "HEADRACE_THREADS";

/// Threads that all streams of the process share, and that are there as long as one of them has the pool.
pub struct Pool {
    /// The process that has them: one that is forked off it has not.
    owner: u32,
    threads: ManuallyDrop<ThreadPool>,
}

impl Pool {
    /// None on a machine with one core, and when this is no moment to ask.
    pub fn shared() -> Option<Arc<Pool>> {
        static POOL: Mutex<Weak<Pool>> = Mutex::new(Weak::new());
        let mut shared = POOL.try_lock().ok()?; // nobody waits for it: a fork may leave it locked
        let pool = shared.upgrade().filter(|pool| pool.is_here());
        let pool = pool.or_else(|| Some(Arc::new(Pool::new()?)))?;
        *shared = Arc::downgrade(&pool);
        Some(pool)
    }

    fn new() -> Option<Pool> {
        let told = std::env::var(THREADS).ok();
        let threads = told.and_then(|told| told.trim().parse::<usize>().ok());
        let threads = threads.map(|threads| threads.min(MOST_THREADS));
        let threads = threads.unwrap_or_else(|| {
            let cores = thread::available_parallelism().map_or(1, NonZero::get);
            (cores - 1).min(MAX_THREADS)
        });
        (threads > 0).then(|| Pool::with(threads))?
    }

    /// One with so many threads.
    pub(super) fn with(threads: usize) -> Option<Pool> {
        let threads = ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|_| "headrace-decode".to_owned())
            .panic_handler(|_| ()) // who waits for the piece reads it, and sees the same
            .build();
        Some(Pool {
            owner: process::id(),
            threads: ManuallyDrop::new(threads.ok()?),
        })
    }

    /// Whether its threads are in this process: in a fork of it, they are not.
    pub fn is_here(&self) -> bool {
        self.owner == process::id()
    }

    /// How many threads it has: at least one.
    pub fn size(&self) -> usize {
        self.threads.current_num_threads()
    }

    /// Has one of them do something, after what was spawned before.
    pub fn spawn(&self, job: impl FnOnce() + Send + 'static) {
        self.threads.spawn_fifo(job);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.is_here() {
            // SAFETY: it is not used again.
            unsafe { ManuallyDrop::drop(&mut self.threads) };
        }
    }
}
