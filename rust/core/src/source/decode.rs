//! Chunks as they are, or decompressed when they begin as gzip or zstd does.

use std::io;

use zstd::stream::raw::{Decoder as Zstd, Operation};

use super::error::SourceError;
use super::gzip::Gunzip;

const GZIP: &[u8] = b"\x1f\x8b\x08";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
const MAGIC_BYTES: usize = 4;
/// Output buffer: what one step gives to the sink at a time.
pub(super) const OUT: usize = 1 << 18;

/// A push decompressor. Memory is bounded whatever the input: output goes to the sink in pieces.
pub struct Decoder {
    name: String,
    format: Format,
    /// Compressed bytes taken so far.
    taken: u64,
}

enum Format {
    /// Too early to tell: the first bytes, fewer than `MAGIC_BYTES`.
    Open(Vec<u8>),
    Plain,
    Gzip(Box<Gunzip>),
    Zstd {
        decoder: Zstd<'static>,
        out: Box<[u8]>,
        inside: bool,
    },
}

impl Decoder {
    /// `name` is for messages.
    pub fn new(name: &str) -> Self {
        Decoder {
            name: name.to_owned(),
            format: Format::Open(Vec::new()),
            taken: 0,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether chunks are given on as they are; `peek` tells how the next one begins.
    pub(super) fn is_plain(
        &mut self,
        peek: impl FnOnce(&mut [u8]) -> io::Result<&[u8]>,
    ) -> io::Result<bool> {
        if let Format::Open(head) = &self.format
            && head.is_empty()
        {
            let mut next = [0; MAGIC_BYTES];
            let next = peek(&mut next)?;
            if next.len() == MAGIC_BYTES && !next.starts_with(GZIP) && !is_zstd(next) {
                self.format = Format::Plain;
            }
        }
        Ok(matches!(self.format, Format::Plain))
    }

    /// Takes a whole chunk.
    pub fn push<E: From<SourceError>>(
        &mut self,
        mut chunk: &[u8],
        sink: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        while !chunk.is_empty() {
            let taken = self.step(chunk, sink)?;
            chunk = &chunk[taken..];
        }
        Ok(())
    }

    /// Takes the beginning of a chunk, as much as gives about one piece of output, and says how much that was: 0 when
    /// output from before filled the piece.
    pub fn step<E: From<SourceError>>(
        &mut self,
        chunk: &[u8],
        sink: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        if chunk.is_empty() {
            return Ok(0);
        }
        let taken = match &mut self.format {
            Format::Plain => {
                sink(chunk)?;
                chunk.len()
            }
            Format::Open(_) => return self.decide(chunk, sink),
            Format::Gzip(gunzip) => gunzip.step(chunk, sink, |why| SourceError::Corrupt {
                name: self.name.clone(),
                format: "gzip",
                at: self.taken,
                why: why.to_owned(),
            })?,
            Format::Zstd {
                decoder,
                out,
                inside,
            } => {
                let mut taken = 0;
                loop {
                    let status = decoder
                        .run_on_buffers(&chunk[taken..], out)
                        .map_err(|error| SourceError::Corrupt {
                            name: self.name.clone(),
                            format: "zstd",
                            at: self.taken,
                            why: error.to_string(),
                        })?;
                    taken += status.bytes_read;
                    *inside = status.remaining != 0;
                    if status.bytes_written > 0 {
                        sink(&out[..status.bytes_written])?;
                    }
                    // A full buffer may leave output behind in the decoder.
                    if !*inside || status.bytes_written < out.len() || taken < chunk.len() {
                        break taken;
                    }
                }
            }
        };
        self.taken += taken as u64;
        Ok(taken)
    }

    /// The end of the input.
    pub fn finish<E: From<SourceError>>(
        &mut self,
        sink: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (format, inside) = match &mut self.format {
            Format::Open(head) => {
                let head = std::mem::take(head);
                self.format = Format::Plain;
                if !head.is_empty() {
                    sink(&head)?;
                }
                return Ok(());
            }
            Format::Plain => return Ok(()),
            Format::Gzip(gunzip) => ("gzip", gunzip.is_inside()),
            Format::Zstd { inside, .. } => ("zstd", *inside),
        };
        if inside {
            let (name, at) = (self.name.clone(), self.taken);
            return Err(SourceError::Cut { name, format, at }.into());
        }
        Ok(())
    }

    /// Looks at the first bytes; what was held back goes first.
    fn decide<E: From<SourceError>>(
        &mut self,
        chunk: &[u8],
        sink: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        let Format::Open(head) = &mut self.format else {
            unreachable!("only called while open")
        };
        let held = head.len();
        head.extend_from_slice(&chunk[..chunk.len().min(MAGIC_BYTES - held)]);
        let taken = head.len() - held;
        let decoder = if head.starts_with(GZIP) {
            Format::Gzip(Box::default())
        } else if is_zstd(head) && head.len() == MAGIC_BYTES {
            Format::Zstd {
                decoder: Zstd::new().expect("zstd allocates its decoder"),
                out: vec![0; OUT].into_boxed_slice(),
                inside: true,
            }
        } else if GZIP.starts_with(head) || is_zstd(head) {
            return Ok(taken); // still open
        } else {
            let head = std::mem::take(head);
            self.format = Format::Plain;
            if held > 0 {
                sink(&head[..held])?;
            }
            sink(chunk)?;
            return Ok(chunk.len());
        };
        let head = std::mem::take(head);
        self.format = decoder;
        self.push(&head, sink)?;
        Ok(taken)
    }
}

/// Whether this is, or may become, the beginning of a zstd frame or of a skippable one.
fn is_zstd(head: &[u8]) -> bool {
    let head = &head[..head.len().min(MAGIC_BYTES)];
    let skippable = match head {
        [0x50..=0x5f, rest @ ..] => b"\x2a\x4d\x18".starts_with(rest),
        _ => false,
    };
    ZSTD.starts_with(head) || skippable
}
