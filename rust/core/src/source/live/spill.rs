//! Where bytes wait that memory has no room for: an unlinked file, which the system frees even when we are killed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// The account of the file. The bytes themselves are written and read without any lock: [`Spill::reserve`] gives out
/// each range once, and a range is not given out again before [`Spill::release`].
pub(super) struct Spill {
    dir: Option<PathBuf>,
    limit: u64,
    file: Option<Arc<File>>,
    /// Where the next range begins.
    end: u64,
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
            self.end = 0;
            let _ = file.set_len(0);
        } else {
            punch(file, at, size);
        }
    }
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
    let mut bytes = vec![0; size];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}
