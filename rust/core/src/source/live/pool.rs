//! Blocks of memory that are used again: pages that are there already cost nothing, new ones a fault each.

use std::sync::{Mutex, PoisonError};

/// So many bytes has a block: what fits into a core's cache, with room for what is made of it.
pub const BLOCK: usize = 1 << 16;
/// So many blocks are kept at most.
const SPARE: usize = 64;

/// Blocks that nobody needs now.
#[derive(Default)]
pub struct Pool {
    free: Mutex<Vec<Vec<u8>>>,
}

impl Pool {
    /// An empty block.
    pub(super) fn block(&self) -> Vec<u8> {
        let free = self.free.lock();
        let block = free.unwrap_or_else(PoisonError::into_inner).pop();
        block.unwrap_or_else(|| Vec::with_capacity(BLOCK))
    }

    /// Takes back what [`super::Live::take`] gave, or anything like it.
    pub fn put_back(&self, mut block: Vec<u8>) {
        if block.capacity() != BLOCK {
            return;
        }
        block.clear();
        // Never waits: a forked child may find the lock in the hands of a thread that is not there.
        if let Ok(mut free) = self.free.try_lock()
            && free.len() < SPARE
        {
            free.push(block);
        }
    }
}
