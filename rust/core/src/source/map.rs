//! A file in memory, handed out in pieces that end with a line.

use std::fs::File;
use std::io;

use memchr::{memchr, memrchr};
use memmap2::Mmap;

/// About the size of a piece: what is copied out of the map stays in the processor's cache until it is parsed.
const PIECE: usize = 1 << 18;

pub(super) struct Mapped {
    map: Mmap,
    at: usize,
}

impl Mapped {
    pub(super) fn new(file: &File) -> io::Result<Self> {
        // SAFETY: the map is read-only and private to this struct, which gives out only borrowed slices. What the type
        // system can't see is another process that changes the file meanwhile: every byte is checked each time it is
        // read, nothing is assumed to stay equal between two reads except by code that copies first, and a file that
        // shrinks ends the process with SIGBUS, as it does for every program that maps files. Harnesses only append.
        let map = unsafe { Mmap::map(file)? };
        Ok(Mapped { map, at: 0 })
    }

    /// The next piece, empty at the end.
    pub(super) fn piece(&self) -> &[u8] {
        let rest = &self.map[self.at..];
        if rest.len() <= PIECE {
            return rest;
        }
        // Whole lines, so that the framer needs to copy none.
        let end = memrchr(b'\n', &rest[..PIECE])
            .or_else(|| memchr(b'\n', &rest[PIECE..]).map(|at| PIECE + at))
            .map_or(rest.len(), |at| at + 1);
        &rest[..end]
    }

    pub(super) fn advance(&mut self, taken: usize) {
        self.at += taken;
    }
}
