//! Whether something happens to a file: told by the system (inotify), without a look at it every now and then.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

/// Watches a folder: files in it may come, go, be written and be replaced.
///
/// Not everything is told: other machines write to network file systems unseen, and memory maps tell of nothing. Who
/// waits here looks for itself now and then.
pub struct Watch {
    descriptor: OwnedFd,
}

impl Watch {
    /// Begins to watch; what happens from here on is told.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let descriptor = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let wanted = WatchFlags::MODIFY
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        inotify::add_watch(&descriptor, folder, wanted)?;
        Ok(Watch { descriptor })
    }

    /// Takes what was told; whether it may concern the file of this name. None when the folder itself has gone.
    pub fn news_of(&self, name: &[u8]) -> io::Result<Option<bool>> {
        let gone = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::IGNORED;
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.descriptor, &mut buffer);
        let mut found = false;
        loop {
            match reader.next() {
                Ok(event) if event.events().intersects(gone) => return Ok(None),
                Ok(event) => {
                    found |= event.events().contains(ReadFlags::QUEUE_OVERFLOW)
                        || event
                            .file_name()
                            .is_some_and(|file| file.to_bytes() == name);
                }
                Err(rustix::io::Errno::AGAIN) => return Ok(Some(found)),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Watch {
    /// Readable while there is something to tell.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_changes_is_told_of_and_another_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let watch = Watch::new(folder.path()).unwrap();
        assert_eq!(watch.news_of(b"one").unwrap(), Some(false));
        std::fs::write(folder.path().join("two"), "x").unwrap();
        assert_eq!(watch.news_of(b"one").unwrap(), Some(false));
        std::fs::write(folder.path().join("one"), "x").unwrap();
        assert_eq!(watch.news_of(b"one").unwrap(), Some(true));
        std::fs::rename(folder.path().join("two"), folder.path().join("one")).unwrap();
        assert_eq!(watch.news_of(b"one").unwrap(), Some(true));
        assert_eq!(watch.news_of(b"one").unwrap(), Some(false));
        std::fs::remove_dir_all(folder.path()).unwrap();
        assert_eq!(watch.news_of(b"none").unwrap(), None);
        assert!(Watch::new(folder.path()).is_err());
    }
}
