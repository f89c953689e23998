//! From a pipe into a file without a look at the bytes: while they wait on disk, nobody needs them in memory.
//!
//! They go through a pipe of our own. Its pages change hands there without being copied, which empties the producer's
//! pipe at once; a splice right into the file would hold the lock of the producer's pipe while the file is written.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::AsFd;

use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, splice};

pub(super) struct Relay {
    reader: PipeReader,
    writer: PipeWriter,
    room: usize,
    holds: usize,
}

impl Relay {
    pub fn new(size: usize) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        // refused where the user's pipes hold too much already: then it stays as it is
        let room = fcntl_setpipe_size(&writer, size).unwrap_or(1 << 16);
        Ok(Relay {
            reader,
            writer,
            room,
            holds: 0,
        })
    }

    /// Takes what is in the pipe, which must not be shared with another reader; never waits.
    pub fn fill(&mut self, pipe: impl AsFd) -> io::Result<usize> {
        debug_assert_eq!(self.holds, 0);
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        self.holds = splice(pipe, None, &self.writer, None, self.room, flags)?;
        Ok(self.holds)
    }

    /// Writes everything that it holds into the file; gives back what could not be written this way.
    pub fn empty_into(&mut self, file: &File, at: u64) -> Vec<u8> {
        let mut at = at;
        while self.holds > 0 {
            match splice(
                &self.reader,
                None,
                file,
                Some(&mut at),
                self.holds,
                SpliceFlags::MOVE,
            ) {
                Ok(0) => break,
                Ok(size) => self.holds -= size,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => break,
            }
        }
        self.empty()
    }

    /// Gives everything that it holds.
    pub fn empty(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; self.holds];
        self.holds = 0;
        self.reader
            .read_exact(&mut bytes)
            .expect("a pipe gives what it holds");
        bytes
    }
}
