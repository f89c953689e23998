//! A regular file, handed out in parts, which whoever needs them reads.
//!
//! It is read and not mapped: a file that another process cuts or rewrites meanwhile gives an error, or other lines, where
//! a mapped one would end this process with a signal, or change under the eyes of the parser.

use std::fs::File;
use std::io;
use std::sync::Arc;

/// A file from here on.
pub(super) struct Regular {
    file: Arc<File>,
    at: u64,
    /// What it had when it was last asked: it may grow while it is read.
    size: u64,
}

/// A part of a source.
pub enum Part {
    /// To be read by whoever needs it.
    Extent(Extent),
    Bytes(Vec<u8>),
}

/// Where in a file a part is.
pub struct Extent {
    file: Arc<File>,
    at: u64,
    size: usize,
}

impl Part {
    /// In bytes.
    pub fn size(&self) -> usize {
        match self {
            Part::Extent(extent) => extent.size,
            Part::Bytes(bytes) => bytes.len(),
        }
    }

    /// Puts it into the room, from the beginning on. The room grows if it is too small.
    pub fn read(&self, room: &mut Vec<u8>) -> Result<(), Short> {
        let size = self.size();
        if room.len() < size {
            room.resize(size, 0);
        }
        match self {
            Part::Extent(extent) => read_exact_at(&extent.file, &mut room[..size], extent.at)?,
            Part::Bytes(bytes) => room[..size].copy_from_slice(bytes),
        }
        Ok(())
    }
}

/// Not everything could be read.
pub struct Short {
    /// How many bytes could.
    pub size: usize,
    pub error: io::Error,
}

impl Regular {
    pub(super) fn new(file: File) -> io::Result<Self> {
        Ok(Regular {
            size: file.metadata()?.len(),
            file: Arc::new(file),
            at: 0,
        })
    }

    /// The next bytes, which are not taken; fewer at the end.
    pub(super) fn peek<'a>(&mut self, room: &'a mut [u8]) -> io::Result<&'a [u8]> {
        let end = self.end(room.len() as u64)?;
        let room = &mut room[..(end - self.at) as usize];
        match read_exact_at(&self.file, room, self.at) {
            Ok(()) => Ok(room),
            Err(Short { size: 0, error }) => Err(error),
            Err(Short { size, .. }) => Ok(&room[..size]), // the error comes again when these are taken
        }
    }

    pub(super) fn advance(&mut self, taken: usize) {
        self.at += taken as u64;
    }

    /// Takes the next part, of so many bytes; fewer at the end.
    pub(super) fn part(&mut self, size: usize) -> io::Result<Part> {
        let end = self.end(size as u64)?;
        let at = std::mem::replace(&mut self.at, end);
        Ok(Part::Extent(Extent {
            file: self.file.clone(),
            at,
            size: (end - at) as usize,
        }))
    }

    /// Where so many bytes end, or the file.
    fn end(&mut self, about: u64) -> io::Result<u64> {
        if self.at == self.size {
            self.size = self.size.max(self.file.metadata()?.len());
        }
        Ok(self.size.min(self.at + about))
    }
}

fn read_exact_at(file: &File, room: &mut [u8], at: u64) -> Result<(), Short> {
    let mut size = 0;
    while size < room.len() {
        match read_at(file, &mut room[size..], at + size as u64) {
            Ok(0) => {
                let why = "it became shorter while it was read";
                let error = io::Error::new(io::ErrorKind::UnexpectedEof, why);
                return Err(Short { size, error });
            }
            Ok(more) => size += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Short { size, error }),
        }
    }
    Ok(())
}

#[cfg(unix)]
fn read_at(file: &File, room: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, room, at)
}

#[cfg(windows)]
fn read_at(file: &File, room: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, room, at)
}
