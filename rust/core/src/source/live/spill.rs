//! Where bytes wait that memory has no room for: an unlinked file, which the system frees even when we are killed.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::buffer::spare_capacity;

/// Disk space is asked for in pieces of this size: writing where there is none yet is several times slower.
const AHEAD: u64 = 16 << 20;

/// The account of the file. The bytes themselves are written and read without any lock: [`Spill::reserve`] gives out
/// each range once, and a range is not given out again before [`Spill::release`].
pub(super) struct Spill {
    dir: Option<PathBuf>,
    limit: u64,
    file: Option<Arc<File>>,
    /// Where the next range begins.
    end: u64,
    /// Up to here the file has disk space; the maximum where that can't be asked for.
    prepared: u64,
    /// Bytes in ranges that are not released.
    live: u64,
}

impl Spill {
    pub fn new(dir: Option<PathBuf>, limit: u64) -> Self {
        Spill {
            dir,
            limit,
            file: None,
            end: 0,
            prepared: 0,
            live: 0,
        }
    }

    pub fn live(&self) -> u64 {
        self.live
    }

    /// The folder, for messages.
    pub fn dir(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// A range of `size` bytes and the file that it is in.
    pub fn reserve(&mut self, size: u64) -> io::Result<(Arc<File>, u64)> {
        if self.live + size > self.limit {
            return Err(io::Error::other(format!(
                "the spill limit of {} bytes is reached",
                self.limit
            )));
        }
        let file = match &self.file {
            Some(file) => file.clone(),
            None => {
                let file = match &self.dir {
                    Some(dir) => tempfile::tempfile_in(dir),
                    None => tempfile::tempfile(),
                };
                self.file.insert(Arc::new(file?)).clone()
            }
        };
        let at = self.end;
        self.end += size;
        self.live += size;
        if self.end > self.prepared {
            let ahead = AHEAD.min(self.limit - self.live + size).max(size);
            self.prepared = match prepare(&file, at, ahead) {
                Ok(()) => at + ahead,
                Err(_) => u64::MAX, // the write itself tells if there is no space
            };
        }
        Ok((file, at))
    }

    pub fn file(&self) -> Option<Arc<File>> {
        self.file.clone()
    }

    /// The range is not needed any more: its disk space is given back, as far as the file system can.
    pub fn release(&mut self, at: u64, size: u64) {
        self.live -= size;
        let Some(file) = &self.file else { return };
        // Failing here costs disk space, never data.
        if self.live == 0 {
            // A little is kept: space that is used again is the fastest there is.
            if self.end > AHEAD {
                let _ = file.set_len(0);
                self.prepared = 0;
            }
            self.end = 0;
        } else if self.end > AHEAD {
            punch(file, at, size);
        }
    }
}

#[cfg(target_os = "linux")]
fn prepare(file: &File, at: u64, size: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    Ok(fallocate(file, FallocateFlags::empty(), at, size)?)
}

#[cfg(not(target_os = "linux"))]
fn prepare(_file: &File, _at: u64, _size: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(target_os = "linux")]
fn punch(file: &File, at: u64, size: u64) {
    use rustix::fs::{FallocateFlags, fallocate};
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let _ = fallocate(file, flags, at, size);
}

#[cfg(not(target_os = "linux"))]
fn punch(_file: &File, _at: u64, _size: u64) {}

pub(super) fn read_back(file: &File, at: u64, size: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(size);
    while bytes.len() < size {
        let place = at + bytes.len() as u64;
        match rustix::io::pread(file, spare_capacity(&mut bytes), place) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    bytes.truncate(size); // the capacity may be larger than what was asked for
    Ok(bytes)
}
