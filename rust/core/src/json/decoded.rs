//! Lines that were decoded before anybody asked for them, in another thread.

use std::sync::Arc;

use memchr::memchr;

use super::series::{Forms, Row};
use super::tape::Node;
use super::template::{Decoder, Fitted, Pattern};
use super::value::{Doc, How};

/// A longer text is left to who asks for it: its nodes may take eight times its bytes.
const MAX_TEXT: usize = 2 << 20;
/// Nodes beyond these are not kept: 2 MiB of them.
const MAX_NODES: usize = 1 << 17;

/// What a decoder makes of the lines that end in a piece of a stream.
#[derive(Debug, Default)]
pub struct Decoded {
    /// The piece, of so many bytes.
    bytes: Vec<u8>,
    size: usize,
    lines: Vec<Line>,
    /// Of all lines that are JSON: those in the slots of a text that fits a pattern, else all.
    nodes: Vec<Node>,
    patterns: Vec<Arc<Pattern>>,
    rows: Vec<Span>,
    /// Of all rows.
    texts: String,
}

/// A line, or several that are told of as one.
#[derive(Debug)]
struct Line {
    /// Offset of its LF; of the last one.
    end: u32,
    /// Where its nodes end.
    nodes: u32,
    what: What,
    lone: bool,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// Not looked at, or no JSON.
    Unknown,
    Parsed,
    /// With the place of its pattern.
    Fits(u16),
    /// With the place of the row.
    Row(u32),
}

/// A [`Row`].
#[derive(Debug)]
struct Span {
    count: u32,
    longest: u32,
    last: (u32, u32),
    /// Where its text ends, among those of all rows.
    texts: u32,
    pattern: u32,
}

/// What comes next of a piece.
#[derive(Clone, Copy, Debug)]
pub enum Stretch<'a> {
    /// A line without its LF, and what is known of its text.
    Line(&'a [u8], Option<Known<'a>>),
    Row(Row<'a>),
}

/// What is known of a text: what [`Decoder::recall`] takes.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    pub(super) text: &'a str,
    pub(super) nodes: &'a [Node],
    pub(super) pattern: Option<&'a Arc<Pattern>>,
    pub(super) lone: bool,
}

/// The JSON text of a line: without one CR at its end.
fn text(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

impl Decoded {
    /// Where another piece is put, from the beginning on. What was decoded before is gone.
    pub fn room(&mut self) -> &mut Vec<u8> {
        self.size = 0;
        self.lines.clear();
        &mut self.bytes
    }

    /// Decodes the lines of so many bytes that were put there, 4 GiB at most; those of series are told of as rows. What
    /// comes first may be the end of a line, so no row goes on with it.
    pub fn decode(&mut self, size: usize, decoder: &mut Decoder, mut forms: Option<&mut Forms>) {
        self.size = size;
        let Decoded {
            bytes,
            lines,
            nodes,
            patterns,
            rows,
            texts,
            ..
        } = self;
        lines.clear();
        nodes.clear();
        patterns.clear();
        rows.clear();
        texts.clear();
        let piece = &bytes[..size];
        let mut at = 0;
        while nodes.len() <= MAX_NODES {
            let rest = &piece[at..];
            if let Some((doc, raw)) = decoder.parse_line(rest) {
                at += raw.len() + usize::from(rest[raw.len()] == b'\r');
                lines.push(Line::new(at, Some(doc), nodes, patterns));
                at += 1;
                let forms = forms.as_deref_mut().filter(|_| lines.len() > 1);
                let head = forms.and_then(|forms| forms.head(&doc));
                let row = head.and_then(|head| decoder.row(&head, &piece[at..], texts, None));
                if let Some(row) = row {
                    let (from, size) = row.last;
                    at += row.bytes.len();
                    let span = Span {
                        count: row.count as u32,
                        longest: row.longest as u32,
                        last: (from as u32, size as u32),
                        pattern: row.pattern,
                        texts: 0,
                    };
                    lines.push(Line::of_row(at - 1, rows.len(), nodes.len()));
                    rows.push(Span {
                        texts: texts.len() as u32,
                        ..span
                    });
                }
            } else if let Some(size) = memchr(b'\n', rest) {
                let text = text(&rest[..size]);
                at += size;
                let doc = (text.len() <= MAX_TEXT).then(|| decoder.parse_unlike(text).ok());
                lines.push(Line::new(at, doc.flatten(), nodes, patterns));
                at += 1;
            } else {
                break;
            }
        }
    }

    /// The piece.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.size]
    }

    /// Its stretches from this one on.
    pub fn stretches(&self, from: usize) -> impl Iterator<Item = Stretch<'_>> {
        let before = from.checked_sub(1).and_then(|at| self.lines.get(at));
        let (mut start, mut first) = match before {
            Some(before) => (before.end as usize + 1, before.nodes as usize),
            None => (0, 0),
        };
        self.lines[from..].iter().map(move |line| {
            let bytes = &self.bytes[start..line.end as usize];
            let nodes = &self.nodes[first..line.nodes as usize];
            let offset = std::mem::replace(&mut start, line.end as usize + 1);
            first = line.nodes as usize;
            let pattern = match line.what {
                What::Unknown => return Stretch::Line(bytes, None),
                What::Parsed => None,
                What::Fits(at) => Some(&self.patterns[at as usize]),
                What::Row(at) => {
                    return Stretch::Row(self.row(at as usize, &self.bytes[offset..start]));
                }
            };
            let known = Known {
                // SAFETY: these bytes have not changed since a decoder found them to be UTF-8.
                text: unsafe { std::str::from_utf8_unchecked(text(bytes)) },
                nodes,
                pattern,
                lone: line.lone,
            };
            Stretch::Line(bytes, Some(known))
        })
    }

    /// What stands behind the last line that was decoded.
    pub fn rest(&self) -> &[u8] {
        let last = self.lines.last();
        &self.bytes()[last.map_or(0, |line| line.end as usize + 1)..]
    }

    fn row<'a>(&'a self, at: usize, bytes: &'a [u8]) -> Row<'a> {
        let row = &self.rows[at];
        let before = at
            .checked_sub(1)
            .map_or(0, |before| self.rows[before].texts);
        let (from, size) = row.last;
        Row {
            bytes,
            count: row.count.into(),
            longest: row.longest.into(),
            last: (from.into(), size.into()),
            text: &self.texts[before as usize..row.texts as usize],
            parts: &[],
            pattern: row.pattern,
        }
    }
}

impl Line {
    fn of_row(end: usize, row: usize, nodes: usize) -> Self {
        Line {
            end: end as u32,
            nodes: nodes as u32,
            what: What::Row(row as u32),
            lone: false,
        }
    }

    #[inline]
    fn new(
        end: usize,
        doc: Option<Doc<'_>>,
        nodes: &mut Vec<Node>,
        patterns: &mut Vec<Arc<Pattern>>,
    ) -> Self {
        let (mut what, mut lone) = (What::Unknown, false);
        match doc.map(|doc| doc.how) {
            Some(How::Parsed(parsed, is_lone)) => {
                nodes.extend_from_slice(parsed);
                (what, lone) = (What::Parsed, is_lone);
            }
            Some(How::Fits(Fitted { pattern, slots }, _)) => {
                if let Some(at) = place(patterns, pattern) {
                    nodes.extend_from_slice(slots);
                    what = What::Fits(at);
                }
            }
            None => (),
        }
        Line {
            end: end as u32,
            nodes: nodes.len() as u32,
            what,
            lone,
        }
    }
}

/// The place of the pattern among them; None if there are too many.
#[inline]
fn place(patterns: &mut Vec<Arc<Pattern>>, pattern: &Arc<Pattern>) -> Option<u16> {
    let at = match patterns
        .iter()
        .rposition(|other| Arc::ptr_eq(other, pattern))
    {
        Some(at) => at,
        None => {
            patterns.push(pattern.clone());
            patterns.len() - 1
        }
    };
    at.try_into().ok()
}

impl Decoder {
    /// What [`parse`](Decoder::parse) says of a text, from what is known of it.
    #[inline]
    pub fn recall<'a>(&'a mut self, known: Known<'a>) -> Doc<'a> {
        let Known {
            text,
            nodes,
            pattern,
            lone,
        } = known;
        let how = match pattern {
            None => How::Parsed(nodes, lone),
            Some(pattern) => {
                self.recalled.clear();
                let slots = nodes;
                How::Fits(Fitted { pattern, slots }, &self.recalled)
            }
        };
        Doc { text, how }
    }
}
