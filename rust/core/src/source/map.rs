//! A file in memory, handed out in pieces that end with a line.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use memchr::{memchr, memrchr};
use memmap2::Mmap;

/// About the size of a piece: what is copied out of the map stays in the processor's cache until it is parsed.
const PIECE: usize = 1 << 18;
/// Of a line that is longer than any that is parsed, a piece has a part.
const MOST: usize = u32::MAX as usize;

pub(super) struct Mapped {
    map: Arc<Mmap>,
    at: usize,
}

/// A part of a file in memory.
pub struct Extent {
    map: Arc<Mmap>,
    at: Range<usize>,
}

impl Extent {
    pub fn bytes(&self) -> &[u8] {
        &self.map[self.at.clone()]
    }
}

impl Mapped {
    pub(super) fn new(file: &File) -> io::Result<Self> {
        // SAFETY: the map is read-only and private to this module, which gives out only borrowed slices. What the type
        // system can't see is another process that changes the file meanwhile: what another thread decodes ahead is
        // copied before or looked at after, but between two reads of one record here it would not be noticed; and a
        // file that shrinks ends the process with SIGBUS, as it does for every program that maps files. Harnesses only
        // append.
        let map = unsafe { Mmap::map(file)? };
        Ok(Mapped {
            map: Arc::new(map),
            at: 0,
        })
    }

    /// The next piece, empty at the end.
    pub(super) fn piece(&self) -> &[u8] {
        &self.rest()[..self.size(PIECE)]
    }

    /// All that is left.
    pub(super) fn rest(&self) -> &[u8] {
        &self.map[self.at..]
    }

    /// The size of the next piece of about so many bytes: of whole lines, so that the framer needs to copy none.
    fn size(&self, about: usize) -> usize {
        let rest = self.rest();
        if rest.len() <= about {
            return rest.len();
        }
        memrchr(b'\n', &rest[..about])
            .or_else(|| memchr(b'\n', &rest[about..rest.len().min(MOST)]).map(|at| about + at))
            .map_or(rest.len().min(MOST), |at| at + 1)
    }

    /// Takes the next piece, of about so many bytes.
    pub(super) fn extent(&mut self, about: usize) -> Extent {
        let end = self.at + self.size(about);
        Extent {
            map: self.map.clone(),
            at: std::mem::replace(&mut self.at, end)..end,
        }
    }

    pub(super) fn advance(&mut self, taken: usize) {
        self.at += taken;
    }
}
