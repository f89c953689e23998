//! Gzip members that follow each other (RFC 1952), pushed in pieces of any size.

use flate2::{Crc, Decompress, FlushDecompress, Status};

use super::decode::OUT;
use super::error::SourceError;

/// Bits of the header's flags byte.
const HEADER_CRC: u8 = 2;
const EXTRA: u8 = 4;
const NAME: u8 = 8;
const COMMENT: u8 = 16;
const RESERVED: u8 = 0xe0;

pub(super) struct Gunzip {
    at: At,
    /// Of the header: those whose fields are still to come.
    flags: u8,
    inflate: Decompress,
    crc: Crc,
    out: Box<[u8]>,
}

/// What the next byte is part of.
enum At {
    /// Nothing: before a member, or in the zeros that pad tapes and disk blocks.
    Between,
    /// The ten fixed bytes of a header, so many of them behind.
    Fixed(u8),
    ExtraLength(Option<u8>),
    Extra(u16),
    /// A name or comment.
    Text,
    HeaderCrc(u8),
    Body,
    /// Checksum and length, so many bytes of them behind.
    Trailer([u8; 8], usize),
}

impl Default for Gunzip {
    fn default() -> Self {
        Gunzip {
            at: At::Between,
            flags: 0,
            inflate: Decompress::new(false),
            crc: Crc::new(),
            out: vec![0; OUT].into_boxed_slice(),
        }
    }
}

impl Gunzip {
    /// Whether the input can't end here.
    pub(super) fn is_inside(&self) -> bool {
        !matches!(self.at, At::Between)
    }

    /// Takes the beginning of a chunk that is not empty and says how much.
    pub(super) fn step<E: From<SourceError>>(
        &mut self,
        chunk: &[u8],
        sink: &mut impl FnMut(&[u8]) -> Result<(), E>,
        corrupt: impl Fn(&str) -> SourceError,
    ) -> Result<usize, E> {
        let mut taken = 0;
        while taken < chunk.len() {
            if let At::Body = self.at {
                break;
            }
            self.header_or_trailer(chunk[taken]).map_err(&corrupt)?;
            taken += 1;
        }
        if taken == chunk.len() {
            return Ok(taken);
        }
        loop {
            let (before_in, before_out) = (self.inflate.total_in(), self.inflate.total_out());
            let status = self
                .inflate
                .decompress(&chunk[taken..], &mut self.out, FlushDecompress::None)
                .map_err(|error| corrupt(&error.to_string()))?;
            taken += (self.inflate.total_in() - before_in) as usize;
            let written = (self.inflate.total_out() - before_out) as usize;
            if status == Status::StreamEnd {
                self.at = At::Trailer([0; 8], 0);
            }
            if written > 0 {
                self.crc.update(&self.out[..written]);
                sink(&self.out[..written])?;
            }
            // A full buffer may leave output behind.
            if status == Status::StreamEnd || written < self.out.len() || taken < chunk.len() {
                return Ok(taken);
            }
        }
    }

    fn header_or_trailer(&mut self, byte: u8) -> Result<(), &'static str> {
        self.at = match self.at {
            At::Between if byte == 0 => At::Between,
            At::Between if byte == 0x1f => At::Fixed(1),
            At::Fixed(1) if byte == 0x8b => At::Fixed(2),
            At::Between | At::Fixed(1) => return Err("no gzip header where one is due"),
            At::Fixed(2) if byte != 8 => return Err("unknown compression method"),
            At::Fixed(3) if byte & RESERVED != 0 => return Err("unknown header flags"),
            At::Fixed(behind) => {
                if behind == 3 {
                    self.flags = byte;
                }
                if behind == 9 {
                    self.next_field()
                } else {
                    At::Fixed(behind + 1)
                }
            }
            At::ExtraLength(None) => At::ExtraLength(Some(byte)),
            At::ExtraLength(Some(low)) => match u16::from_le_bytes([low, byte]) {
                0 => self.next_field(),
                length => At::Extra(length),
            },
            At::Extra(1) => self.next_field(),
            At::Extra(left) => At::Extra(left - 1),
            At::Text if byte == 0 => self.next_field(),
            At::Text => At::Text,
            At::HeaderCrc(0) => At::HeaderCrc(1),
            At::HeaderCrc(_) => self.next_field(),
            At::Body => At::Body,
            At::Trailer(mut bytes, behind) => {
                bytes[behind] = byte;
                if behind < 7 {
                    At::Trailer(bytes, behind + 1)
                } else {
                    self.check(u64::from_le_bytes(bytes))?;
                    At::Between
                }
            }
        };
        Ok(())
    }

    /// The next part of the header, or the body, made ready.
    fn next_field(&mut self) -> At {
        for (flag, field) in [
            (EXTRA, At::ExtraLength(None)),
            (NAME, At::Text),
            (COMMENT, At::Text),
            (HEADER_CRC, At::HeaderCrc(0)),
        ] {
            if self.flags & flag != 0 {
                self.flags &= !flag;
                return field;
            }
        }
        self.inflate.reset(false);
        self.crc.reset();
        At::Body
    }

    fn check(&self, trailer: u64) -> Result<(), &'static str> {
        if trailer as u32 != self.crc.sum() {
            return Err("the checksum does not fit");
        }
        if (trailer >> 32) as u32 != self.crc.amount() {
            return Err("the length does not fit");
        }
        Ok(())
    }
}
