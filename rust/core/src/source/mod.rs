//! Any source -> chunks of bytes; gzip and zstd are found by content, whatever the name says.
//!
//! What can be read is delivered before the error that ends the reading.

mod decode;
mod error;
mod gzip;
#[cfg(unix)]
pub mod live;
mod map;
#[cfg(target_os = "linux")]
pub mod watch;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

pub use decode::Decoder;
pub use error::SourceError;
pub use map::Extent;
use map::Mapped;

const BLOCK: usize = 1 << 18;

/// Bytes to be pulled, one bounded step at a time. (Chunks that are pushed by somebody else go through a [`Decoder`].)
pub struct Source {
    input: Input,
    decoder: Decoder,
    done: bool,
}

enum Input {
    Mapped(Mapped),
    Reader {
        reader: Box<dyn Read + Send + Sync>,
        block: Box<[u8]>,
        /// The part of the block that is not taken yet.
        at: usize,
        filled: usize,
    },
}

impl Source {
    /// A regular file is mapped, anything else (a pipe, a device) is read.
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        let name = path.display().to_string();
        let open = || -> io::Result<(File, bool)> {
            let file = File::open(path)?;
            let kind = file.metadata()?;
            if kind.is_dir() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            Ok((file, kind.is_file() && kind.len() > 0))
        };
        let result = open().and_then(|(file, mappable)| {
            if !mappable {
                return Ok(Source::reader(file, &name));
            }
            Ok(Source {
                input: Input::Mapped(Mapped::new(&file)?),
                decoder: Decoder::new(&name),
                done: false,
            })
        });
        result.map_err(|error| SourceError::Open { name, error })
    }

    /// Anything that reads; `name` is for messages.
    pub fn reader(reader: impl Read + Send + Sync + 'static, name: &str) -> Self {
        Source {
            input: Input::Reader {
                reader: Box::new(reader),
                block: vec![0; BLOCK].into_boxed_slice(),
                at: 0,
                filled: 0,
            },
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
        matches!(self.input, Input::Mapped(_))
    }

    /// Takes about so many bytes as they are in memory, whole lines if there are such. None of what is compressed or
    /// must be read, and at the end; then [`step`](Source::step) tells more.
    pub fn extent(&mut self, about: usize) -> Option<Extent> {
        match &mut self.input {
            Input::Mapped(map) if self.decoder.is_plain(map.rest()) => {
                let extent = map.extent(about);
                (!extent.bytes().is_empty()).then_some(extent)
            }
            _ => None,
        }
    }

    /// One step: at most one read, and at most about a megabyte for the sink, decompressed. False at the end.
    pub fn step<E: From<SourceError>>(
        &mut self,
        sink: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        if self.done {
            return Ok(false);
        }
        match &mut self.input {
            Input::Mapped(map) => {
                let piece = map.piece();
                self.done = piece.is_empty();
                let taken = self.decoder.step(piece, sink)?;
                map.advance(taken);
            }
            Input::Reader {
                reader,
                block,
                at,
                filled,
            } => {
                if at == filled {
                    *at = 0;
                    *filled = match reader.read(block) {
                        Ok(size) => size,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                            return Ok(true);
                        }
                        Err(error) => {
                            self.done = true;
                            let name = self.decoder.name().to_owned();
                            return Err(SourceError::Read { name, error }.into());
                        }
                    };
                    self.done = *filled == 0;
                }
                *at += self.decoder.step(&block[*at..*filled], sink)?;
            }
        }
        if self.done {
            self.decoder.finish(sink)?;
        }
        Ok(!self.done)
    }
}

#[cfg(test)]
mod tests;
