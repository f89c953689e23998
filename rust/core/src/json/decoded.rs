//! Lines that were decoded before anybody asked for them, in another thread.

use std::sync::Arc;

use memchr::memchr;

use super::tape::Node;
use super::template::{Decoder, Fitted, Pattern};
use super::value::{Doc, How};

/// A longer text is left to who asks for it: its nodes may take eight times its bytes.
const MAX_TEXT: usize = 1 << 20;
/// Nodes beyond these are not kept: 2 MiB of them.
const MAX_NODES: usize = 1 << 17;

/// A piece of a stream, and what a decoder makes of the lines that end in it.
#[derive(Debug, Default)]
pub struct Decoded {
    bytes: Vec<u8>,
    lines: Vec<Line>,
    /// Of all lines that are JSON: those in the slots of a text that fits a pattern, else all.
    nodes: Vec<Node>,
    patterns: Vec<Arc<Pattern>>,
}

#[derive(Debug)]
struct Line {
    /// Offset of its LF.
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
    /// Takes other bytes. No more than 4 GiB can be told of.
    pub fn fill(&mut self, bytes: &[u8]) {
        self.lines.clear();
        self.nodes.clear();
        self.patterns.clear();
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Decodes the lines.
    pub fn decode(&mut self, decoder: &mut Decoder) {
        let Decoded {
            bytes,
            lines,
            nodes,
            patterns,
        } = self;
        let mut at = 0;
        while nodes.len() <= MAX_NODES {
            let rest = &bytes[at..];
            if let Some((doc, raw)) = decoder.parse_line(rest) {
                at += raw.len() + usize::from(rest[raw.len()] == b'\r');
                lines.push(Line::new(at, Some(doc), nodes, patterns));
            } else if let Some(size) = memchr(b'\n', rest) {
                let text = text(&rest[..size]);
                at += size;
                let doc = (text.len() <= MAX_TEXT).then(|| decoder.parse_unlike(text).ok());
                lines.push(Line::new(at, doc.flatten(), nodes, patterns));
            } else {
                break;
            }
            at += 1;
        }
    }

    /// The lines from this one on, without their LF: the first byte of each, and what is known of its text.
    pub fn lines(&self, from: usize) -> impl Iterator<Item = (&[u8], Option<Known<'_>>)> {
        let (mut start, mut first) = match from.checked_sub(1).and_then(|at| self.lines.get(at)) {
            Some(before) => (before.end as usize + 1, before.nodes as usize),
            None => (0, 0),
        };
        self.lines[from..].iter().map(move |line| {
            let bytes = &self.bytes[start..line.end as usize];
            let nodes = &self.nodes[first..line.nodes as usize];
            (start, first) = (line.end as usize + 1, line.nodes as usize);
            let pattern = match line.what {
                What::Unknown => return (bytes, None),
                What::Parsed => None,
                What::Fits(at) => Some(&self.patterns[at as usize]),
            };
            let known = Known {
                // SAFETY: these bytes have not changed since a decoder found them to be UTF-8.
                text: unsafe { std::str::from_utf8_unchecked(text(bytes)) },
                nodes,
                pattern,
                lone: line.lone,
            };
            (bytes, Some(known))
        })
    }

    /// What stands behind the last of them.
    pub fn rest(&self) -> &[u8] {
        let start = self.lines.last().map_or(0, |line| line.end as usize + 1);
        &self.bytes[start..]
    }
}

impl Line {
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
