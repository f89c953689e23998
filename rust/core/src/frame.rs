//! bytes -> lines.
//!
//! A line ends at LF and nowhere else: U+2028, U+0085, VT, FF and a lone CR are ordinary bytes. One CR right before the
//! LF is left out. A UTF-8 byte order mark at the start of the stream is skipped; UTF-16 is refused, with a byte
//! order mark or without.

use memchr::memchr;
use serde::{Deserialize, Serialize};

use crate::source::SourceError;

/// Longer lines are dropped unless the caller says otherwise.
pub const DEFAULT_MAX_LINE_BYTES: u64 = 256 << 20;

/// What the decoder's offsets, which have 32 bits, can tell.
pub const MAX_TEXT_BYTES: u64 = u32::MAX as u64 - 1;

/// How much of a line that is too long, or malformed, is kept to show.
pub const KEPT_BYTES: usize = 200;

/// How long the beginning of `bytes` is that has at least `about` bytes and ends with a line; all, if none ends there.
pub fn whole_lines(bytes: &[u8], about: usize) -> usize {
    let from = about.clamp(1, bytes.len().max(1)) - 1;
    memchr(b'\n', &bytes[from..]).map_or(bytes.len(), |at| from + at + 1)
}

const BOM: &[u8] = b"\xef\xbb\xbf";
/// So many bytes tell a byte order mark, or UTF-16 without one.
const HEAD_BYTES: usize = 4;
/// A carry buffer that has grown beyond this is given back after its line.
const CARRY_BYTES: usize = 1 << 20;

/// One line of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// 1-based.
    pub number: u64,
    /// Of its first byte in the stream. A byte order mark before it is not part of it.
    pub offset: u64,
    /// In bytes, its LF and CR included: the sizes of all lines and the byte order mark add up to the stream.
    pub size: u64,
    /// Without the LF and one CR before it; of a line that is too long, the first [`KEPT_BYTES`].
    pub body: &'a [u8],
    /// False for a last line without LF.
    pub ended: bool,
    /// Longer than the limit: dropped.
    pub too_long: bool,
}

/// Takes the lines of a [`Framer`]. Any `FnMut(Line)` is one.
pub trait Lines<E> {
    /// Takes the line at the start of `rest`, or several, if it can tell where they end: how many lines of how many bytes.
    fn ahead(&mut self, _rest: Rest<'_>) -> Result<Option<(u64, u64)>, E> {
        Ok(None)
    }

    /// `asked`: [`ahead`](Lines::ahead) has not taken it.
    fn line(&mut self, line: Line<'_>, asked: bool) -> Result<(), E>;
}

impl<E, F: FnMut(Line<'_>) -> Result<(), E>> Lines<E> for F {
    #[inline]
    fn line(&mut self, line: Line<'_>, _asked: bool) -> Result<(), E> {
        self(line)
    }
}

/// What begins with a line, which may be cut off.
#[derive(Clone, Copy, Debug)]
pub struct Rest<'a> {
    /// No more of it than the longest line and its LF may have.
    pub bytes: &'a [u8],
    /// As [`Line::number`].
    pub number: u64,
    /// As [`Line::offset`].
    pub offset: u64,
}

/// A push state machine: chunks in, lines out. A line that lies whole in a chunk is borrowed from it; only a line that
/// is split over chunks is copied. The cost is linear in bytes whatever the chunk sizes.
#[derive(Debug, Deserialize, Serialize)]
pub struct Framer {
    max_line_bytes: u64,
    bom_bytes: u64,
    number: u64,
    /// Of the line being collected.
    offset: u64,
    /// Its bytes so far; no more than `KEPT_BYTES` once it is too long.
    carry: Vec<u8>,
    /// Its size so far.
    size: u64,
    /// The first bytes may still turn out to be a byte order mark or UTF-16.
    at_start: bool,
}

impl Default for Framer {
    fn default() -> Self {
        Framer::new(DEFAULT_MAX_LINE_BYTES)
    }
}

impl Framer {
    /// A framer that drops lines of more than `max_line_bytes`, LF not counted. More than 4 GiB can't be asked for:
    /// the decoder's offsets have 32 bits.
    pub fn new(max_line_bytes: u64) -> Self {
        Framer {
            max_line_bytes: max_line_bytes.min(MAX_TEXT_BYTES),
            bom_bytes: 0,
            number: 0,
            offset: 0,
            carry: Vec::new(),
            size: 0,
            at_start: true,
        }
    }

    /// 3 when the stream began with a byte order mark; 0 when asked again.
    pub fn take_bom(&mut self) -> u64 {
        std::mem::take(&mut self.bom_bytes)
    }

    /// How many bytes were fed.
    pub fn fed(&self) -> u64 {
        match self.at_start {
            true => self.carry.len() as u64,
            false => self.offset + self.size,
        }
    }

    /// Whether a restored framer is one that can be.
    pub(crate) fn is_sound(&self) -> bool {
        let carried = self.carry.len() as u64;
        self.max_line_bytes <= MAX_TEXT_BYTES
            && match self.at_start {
                true => carried < HEAD_BYTES as u64,
                false => carried <= self.size,
            }
    }

    /// Gives `sink` the lines that end in this chunk. After an error of the sink the rest of the chunk is lost.
    pub fn feed<E: From<SourceError>>(
        &mut self,
        mut chunk: &[u8],
        sink: &mut impl Lines<E>,
    ) -> Result<(), E> {
        if self.at_start {
            let Some((held, rest)) = self.start(chunk)? else {
                return Ok(());
            };
            self.lines_of(&held, sink)?;
            chunk = rest;
        }
        self.lines_of(chunk, sink)
    }

    fn lines_of<E>(&mut self, mut chunk: &[u8], sink: &mut impl Lines<E>) -> Result<(), E> {
        if self.size > 0 && !chunk.is_empty() {
            let Some(end) = memchr(b'\n', chunk) else {
                self.collect(chunk);
                return Ok(());
            };
            self.collect(&chunk[..end]);
            chunk = &chunk[end + 1..];
            self.give_carry(true, sink)?;
        }
        while !chunk.is_empty() {
            let longest = chunk.len() as u64;
            let longest = longest.min(self.max_line_bytes.saturating_add(1));
            let rest = Rest {
                bytes: &chunk[..longest as usize],
                number: self.number + 1,
                offset: self.offset,
            };
            if let Some((lines, size)) = sink.ahead(rest)? {
                self.pass(lines, size);
                chunk = &chunk[size as usize..];
                continue;
            }
            let Some(end) = memchr(b'\n', chunk) else {
                self.collect(chunk);
                break;
            };
            let body = &chunk[..end];
            chunk = &chunk[end + 1..];
            let line = self.line(body, body.len() as u64, true);
            sink.line(line, true)?;
        }
        Ok(())
    }

    /// Whether there may be a byte order mark to come, or the rest of one.
    pub fn is_at_start(&self) -> bool {
        self.at_start
    }

    /// Whether the next byte begins a line, and is not the first of the stream.
    pub fn is_between_lines(&self) -> bool {
        !self.at_start && self.size == 0
    }

    /// The line of these bytes and an LF behind them, when the framer [is between lines](Framer::is_between_lines).
    #[inline]
    pub fn whole_line<'a>(&mut self, body: &'a [u8]) -> Line<'a> {
        self.line(body, body.len() as u64, true)
    }

    /// Number and offset of the next line, when the framer [is between lines](Framer::is_between_lines).
    pub fn next(&self) -> (u64, u64) {
        (self.number + 1, self.offset)
    }

    /// Goes over so many whole lines of so many bytes, none of them too long.
    pub fn pass(&mut self, lines: u64, bytes: u64) {
        self.number += lines;
        self.offset += bytes;
    }

    pub fn max_line_bytes(&self) -> u64 {
        self.max_line_bytes
    }

    /// Gives `sink` the last line, when the stream does not end with LF.
    pub fn close<E: From<SourceError>>(&mut self, sink: &mut impl Lines<E>) -> Result<(), E> {
        if self.at_start {
            // What was held back is neither a byte order mark nor UTF-16.
            self.at_start = false;
            let held = std::mem::take(&mut self.carry);
            self.lines_of(&held, sink)?;
        }
        if self.size > 0 {
            self.give_carry(false, sink)?;
        }
        Ok(())
    }

    /// What was held back and what of the chunk goes on with it, without a byte order mark; None while that is open.
    #[expect(clippy::type_complexity, reason = "two runs of bytes")]
    fn start<'a>(&mut self, chunk: &'a [u8]) -> Result<Option<(Vec<u8>, &'a [u8])>, SourceError> {
        let held = self.carry.len();
        self.carry
            .extend_from_slice(&chunk[..chunk.len().min(HEAD_BYTES - held)]);
        if is_undecided(&self.carry) {
            return Ok(None);
        }
        self.at_start = false;
        let mut head = std::mem::take(&mut self.carry);
        if let Some(encoding) = utf16(&head) {
            return Err(SourceError::Utf16(encoding));
        }
        if head.starts_with(BOM) {
            self.bom_bytes = BOM.len() as u64;
            self.offset = self.bom_bytes;
            return Ok(Some((Vec::new(), &chunk[BOM.len() - held..])));
        }
        head.truncate(held);
        Ok(Some((head, chunk)))
    }

    /// Adds to the line that is split over chunks, in bounded memory.
    fn collect(&mut self, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        if self.size <= self.max_line_bytes {
            self.carry.extend_from_slice(bytes);
            return;
        }
        self.carry.truncate(KEPT_BYTES);
        let room = KEPT_BYTES - self.carry.len();
        self.carry
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn give_carry<E>(&mut self, ended: bool, sink: &mut impl Lines<E>) -> Result<(), E> {
        let mut carry = std::mem::take(&mut self.carry);
        let size = std::mem::take(&mut self.size);
        let line = self.line(&carry, size, ended);
        let result = sink.line(line, false);
        if carry.capacity() <= CARRY_BYTES {
            carry.clear();
            self.carry = carry;
        }
        result
    }

    #[inline]
    fn line<'a>(&mut self, mut body: &'a [u8], mut size: u64, ended: bool) -> Line<'a> {
        let too_long = size > self.max_line_bytes;
        if too_long {
            body = &body[..body.len().min(KEPT_BYTES)];
        }
        if ended {
            size += 1;
            if !too_long && let Some(rest) = body.strip_suffix(b"\r") {
                body = rest;
            }
        }
        self.number += 1;
        let offset = self.offset;
        self.offset += size;
        Line {
            number: self.number,
            offset,
            size,
            body,
            ended,
            too_long,
        }
    }
}

/// The encoding of a stream that begins so, if it is UTF-16: with its byte order mark, or as an object or an array does
/// without. NULs alone do not tell: they come before and after records, where a machine crashed.
fn utf16(head: &[u8]) -> Option<&'static str> {
    match head {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some("UTF-16"),
        [b'{' | b'[', 0, 1..=0x7f, 0] => Some("UTF-16LE"),
        [0, b'{' | b'[', 0, 1..=0x7f] => Some("UTF-16BE"),
        _ => None,
    }
}

/// Whether more bytes decide if this is the start of a byte order mark or of UTF-16.
fn is_undecided(head: &[u8]) -> bool {
    matches!(
        head,
        [] | [0xef]
            | [0xef, 0xbb]
            | [0xff | 0xfe]
            | [b'{' | b'[']
            | [b'{' | b'[', 0]
            | [b'{' | b'[', 0, 1..=0x7f]
            | [0]
            | [0, b'{' | b'[']
            | [0, b'{' | b'[', 0]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    type Owned = (u64, u64, u64, Vec<u8>, bool, bool);

    fn frame(chunks: &[&[u8]], max_line_bytes: u64) -> Result<Vec<Owned>, SourceError> {
        let mut framer = Framer::new(max_line_bytes);
        let mut lines = Vec::new();
        let mut take = |line: Line<'_>| {
            let Line {
                number,
                offset,
                size,
                body,
                ended,
                too_long,
            } = line;
            lines.push((number, offset, size, body.to_vec(), ended, too_long));
            Ok::<_, SourceError>(())
        };
        for chunk in chunks {
            framer.feed(chunk, &mut take)?;
        }
        framer.close(&mut take)?;
        Ok(lines)
    }

    fn bodies(chunks: &[&[u8]]) -> Vec<Vec<u8>> {
        let lines = frame(chunks, DEFAULT_MAX_LINE_BYTES).unwrap();
        lines.into_iter().map(|line| line.3).collect()
    }

    #[test]
    fn only_lf_ends_a_line() {
        let text = "a\u{2028}b\u{2029}c\u{85}d\x0be\x0cf\x1cg\rh";
        assert_eq!(
            bodies(&[text.as_bytes(), b"\n", b"x\r\r\n\r"]),
            [text.as_bytes(), b"x\r", b"\r"]
        );
    }

    #[test]
    fn lines_know_where_they_are() {
        let expected = vec![
            (1, 3, 4, b"ab".to_vec(), true, false),
            (2, 7, 1, b"".to_vec(), true, false),
            (3, 8, 1, b"c".to_vec(), false, false),
        ];
        assert_eq!(
            frame(&[b"\xef\xbb\xbfab\r\n\n", b"c"], 100).unwrap(),
            expected
        );
    }

    #[test]
    fn chunks_make_no_difference() {
        let long = [b"x".repeat(300), b"\r\ny\n".to_vec()].concat();
        let streams: [&[u8]; 17] = [
            b"\xef\xbb\xbfa\r\n\r\n\nb\rc\r\n\xef\xbb\xbf\nd",
            b"\xef\xbbx\n",
            b"\xef",
            b"\xff\n",
            b"\xff",
            b"{\0\0\0\n{}\n",
            b"{\0\n\xff",
            b"[\0\n",
            b"{\0\r\n",
            b"\0[\n{}",
            b"{\0\"",
            b"\0{\"a\":1}\n",
            b"\0\0{}\n",
            b"[",
            b"\n\n",
            b"",
            &long,
        ];
        for stream in streams {
            for most in [1, 5, 250, DEFAULT_MAX_LINE_BYTES] {
                let whole = frame(&[stream], most).unwrap();
                let lines = stream.split_inclusive(|byte| *byte == b'\n').count();
                assert_eq!(whole.len(), lines, "{stream:?}");
                for size in 1..8 {
                    let chunks: Vec<_> = stream.chunks(size).collect();
                    assert_eq!(frame(&chunks, most).unwrap(), whole, "{stream:?} by {size}");
                }
            }
        }
    }

    #[test]
    fn utf16_is_refused() {
        let marked: [&[u8]; 2] = [b"\xff\xfe{\0", b"\xfe\xff\0{"];
        let bare: [&[u8]; 4] = [b"{\0\"\0t\0", b"\0{\0\"\0t", b"[\0{\0", b"\0[\0{"];
        for stream in marked.into_iter().chain(bare) {
            for size in [1, 3, 4, 10] {
                let chunks: Vec<_> = stream.chunks(size).collect();
                let framed = frame(&chunks, 100);
                assert!(matches!(framed, Err(SourceError::Utf16(_))), "{stream:?}");
            }
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_dropped_in_bounded_memory() {
        let mut framer = Framer::new(1000);
        let mut seen = Vec::new();
        let mut take = |line: Line<'_>| {
            seen.push((line.size, line.body.len(), line.too_long));
            Ok::<_, SourceError>(())
        };
        for _ in 0..10_000 {
            framer.feed(&[b'x'; 1000], &mut take).unwrap();
        }
        assert!(framer.carry.capacity() <= 2000);
        framer.feed(b"\nshort\n", &mut take).unwrap();
        assert_eq!(seen, [(10_000_001, 200, true), (6, 5, false)]);
    }
}
