//! Where bytes wait that memory has no room for: an unlinked file, which the system frees even when we are killed.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The file is used in regions of this size. Disk space is asked for and given back a region at a time: writing where
/// there is none yet is several times slower, and many small holes are slower still.
pub(super) const REGION: u64 = 16 << 20;
/// So many free regions keep their space: space that is used again is the fastest there is.
const SPARE: usize = 2;

/// The account of the file. The bytes themselves are written and read without any lock: [`Spill::reserve`] gives out
/// each range once, and a range is not given out again before [`Spill::release`].
pub(super) struct Spill {
    dir: Option<PathBuf>,
    limit: u64,
    file: Option<Arc<File>>,
    /// Bytes in ranges that are not released, of each region.
    regions: Vec<u64>,
    /// Regions without such bytes: with space on disk, and without.
    spare: Vec<usize>,
    empty: Vec<usize>,
    /// The region that is being filled, and how much of it is.
    current: usize,
    used: u64,
    /// Bytes in ranges that are not released.
    live: u64,
    /// Whether disk space can be asked for.
    prepares: bool,
}

/// Disk space to be given back, which may take its time: by who holds no lock.
#[must_use]
pub(super) struct Hole {
    file: Arc<File>,
    region: usize,
}

impl Hole {
    pub fn punch(&self) {
        // Failing here costs disk space, never data.
        punch(&self.file, self.region as u64 * REGION);
    }
}

impl Spill {
    pub fn new(dir: Option<PathBuf>, limit: u64) -> Self {
        Spill {
            dir,
            limit,
            file: None,
            regions: Vec::new(),
            spare: Vec::new(),
            empty: Vec::new(),
            current: 0,
            used: REGION,
            live: 0,
            prepares: true,
        }
    }

    pub fn live(&self) -> u64 {
        self.live
    }

    /// The folder, for messages.
    pub fn dir(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// A range of `size` bytes, a region at most, and the file that it is in.
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
        if self.used + size > REGION {
            self.next_region(&file);
        }
        let at = self.current as u64 * REGION + self.used;
        self.used += size;
        self.live += size;
        self.regions[self.current] += size;
        Ok((file, at))
    }

    fn next_region(&mut self, file: &File) {
        self.used = 0;
        if let Some(region) = self.spare.pop() {
            self.current = region;
            return;
        }
        self.current = self.empty.pop().unwrap_or_else(|| {
            self.regions.push(0);
            self.regions.len() - 1
        });
        // A write tells by itself if there is no space.
        self.prepares = self.prepares
            && self.limit >= REGION
            && prepare(file, self.current as u64 * REGION).is_ok();
    }

    pub fn file(&self) -> Option<Arc<File>> {
        self.file.clone()
    }

    /// The range is not needed any more. Its disk space is given back once nothing of its region is: a hole must come
    /// back as [`Spill::freed`].
    pub fn release(&mut self, at: u64, size: u64) -> Option<Hole> {
        self.live -= size;
        let region = (at / REGION) as usize;
        self.regions[region] -= size;
        if self.regions[region] > 0 {
            return None;
        }
        if region == self.current {
            self.used = 0;
            return None;
        }
        if self.spare.len() < SPARE {
            self.spare.push(region);
            return None;
        }
        let file = self.file.clone()?;
        Some(Hole { file, region })
    }

    pub fn freed(&mut self, hole: &Hole) {
        self.empty.push(hole.region);
    }
}

#[cfg(target_os = "linux")]
fn prepare(file: &File, at: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    Ok(fallocate(file, FallocateFlags::empty(), at, REGION)?)
}

#[cfg(not(target_os = "linux"))]
fn prepare(_file: &File, _at: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(target_os = "linux")]
fn punch(file: &File, at: u64) {
    use rustix::fs::{FallocateFlags, fallocate};
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let _ = fallocate(file, flags, at, REGION);
}

#[cfg(not(target_os = "linux"))]
fn punch(_file: &File, _at: u64) {}

/// Reads a range into `bytes`, which is empty and has room for it.
pub(super) fn read_back(
    file: &File,
    at: u64,
    size: usize,
    mut bytes: Vec<u8>,
) -> io::Result<Vec<u8>> {
    while bytes.len() < size {
        let done = bytes.len();
        let room = &mut bytes.spare_capacity_mut()[..size - done];
        match rustix::io::pread(file, room, at + done as u64) {
            Ok(([], _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((read, _)) => {
                let read = read.len();
                // SAFETY: so many bytes behind its end were written just now.
                unsafe { bytes.set_len(done + read) };
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
}
