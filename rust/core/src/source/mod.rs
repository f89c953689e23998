//! Any source -> chunks of bytes; gzip and zstd are found by content, whatever the name says.
//!
//! What can be read is delivered before the error that ends the reading.

mod decode;
mod error;
mod file;
mod gzip;
#[cfg(unix)]
pub mod live;
#[cfg(target_os = "linux")]
pub mod watch;

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Once;

pub use decode::Decoder;
pub use error::SourceError;
use file::Regular;
pub use file::{Part, Short};

const BLOCK: usize = 1 << 18;

/// glibc gives freed memory back to the system beyond a limit that begins at 128 KiB and follows the biggest block that was
/// freed, up to 32 MiB. To get it anew, page by page, takes as long as to read a file into it.
const KEPT_MEMORY: usize = 31 << 20;

/// Has the allocator keep what is freed, as in any process that has freed so big a block once. This one is never written
/// to, so that it costs two calls of the system and no memory.
fn keep_freed_memory() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut block = Vec::<u8>::new();
        if block.try_reserve_exact(KEPT_MEMORY).is_ok() {
            drop(black_box(block));
        }
    });
}

/// Bytes to be pulled, one bounded step at a time. (Chunks that are pushed by somebody else go through a [`Decoder`].)
pub struct Source {
    input: Input,
    /// What was read last; made when it is needed first.
    block: Box<[u8]>,
    /// The part of the block that is not taken yet.
    left: Range<usize>,
    decoder: Decoder,
    done: bool,
}

enum Input {
    Regular(Regular),
    Reader(Box<dyn Read + Send + Sync>),
}

impl Source {
    /// A regular file, or anything else that has a path (a pipe, a device).
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        let name = path.display().to_string();
        let open = || {
            let file = File::open(path)?;
            let kind = file.metadata()?;
            if kind.is_dir() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            Ok(match kind.is_file() && kind.len() > 0 {
                true => Input::Regular(Regular::new(file)?),
                false => Input::Reader(Box::new(file)), // some of what looks empty is not, as in /proc
            })
        };
        match open() {
            Ok(input) => Ok(Source::new(input, &name)),
            Err(error) => Err(SourceError::Open { name, error }),
        }
    }

    /// Anything that reads; `name` is for messages.
    pub fn reader(reader: impl Read + Send + Sync + 'static, name: &str) -> Self {
        Source::new(Input::Reader(Box::new(reader)), name)
    }

    fn new(input: Input, name: &str) -> Self {
        keep_freed_memory();
        Source {
            input,
            block: Box::default(),
            left: 0..0,
            decoder: Decoder::new(name),
            done: false,
        }
    }

    /// What it is called in messages.
    pub fn name(&self) -> &str {
        self.decoder.name()
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        matches!(self.input, Input::Regular(_))
    }

    /// Takes so many bytes of a regular file. None of what is compressed or no such file, and at the end; then
    /// [`step`](Source::step) tells more.
    pub fn part(&mut self, size: usize) -> Result<Option<Part>, SourceError> {
        let Input::Regular(file) = &mut self.input else {
            return Ok(None);
        };
        let decoder = &mut self.decoder;
        let mut take = || {
            if !decoder.is_plain(|head| file.peek(head))? {
                return Ok(None);
            }
            let part = file.part(size)?;
            Ok((part.size() > 0).then_some(part))
        };
        take().map_err(|error| self.failed(error))
    }

    /// It can't be read on.
    pub fn failed(&mut self, error: io::Error) -> SourceError {
        self.done = true;
        let name = self.decoder.name().to_owned();
        SourceError::Read { name, error }
    }

    /// One step: at most one read, and at most about a megabyte for the sink, decompressed. False at the end.
    pub fn step<E: From<SourceError>>(
        &mut self,
        sink: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        if self.done {
            return Ok(false);
        }
        if self.left.is_empty() {
            match self.fill() {
                Ok(size) => {
                    self.left = 0..size;
                    self.done = size == 0;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
                Err(error) => return Err(self.failed(error).into()),
            }
        }
        self.left.start += self.decoder.step(&self.block[self.left.clone()], sink)?;
        if self.done {
            self.decoder.finish(sink)?;
        }
        Ok(!self.done)
    }

    /// Reads the next block; how many bytes it has.
    fn fill(&mut self) -> io::Result<usize> {
        if self.block.is_empty() {
            self.block = vec![0; BLOCK].into_boxed_slice();
        }
        match &mut self.input {
            Input::Reader(reader) => reader.read(&mut self.block),
            Input::Regular(file) => {
                let size = file.peek(&mut self.block)?.len();
                file.advance(size);
                Ok(size)
            }
        }
    }
}

#[cfg(test)]
mod tests;
