//! Lines that were decoded before anybody asked for them, in another thread.

use std::sync::Arc;

use memchr::memchr_iter;

use super::tape::Node;
use super::template::{Decoder, Fitted, Pattern};
use super::value::{Doc, Value};

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
        let mut start = 0;
        for end in memchr_iter(b'\n', bytes) {
            let text = text(&bytes[start..end]);
            start = end + 1;
            let (mut what, mut lone) = (What::Unknown, false);
            if text.len() <= MAX_TEXT
                && nodes.len() <= MAX_NODES
                && let Ok(doc) = decoder.parse(text)
            {
                lone = doc.lone;
                match doc
                    .fitted
                    .map(|Fitted { pattern, slots }| (place(patterns, pattern), slots))
                {
                    Some((Some(at), slots)) => {
                        nodes.extend_from_slice(slots);
                        what = What::Fits(at);
                    }
                    _ => {
                        nodes.extend_from_slice(doc.root.own_nodes());
                        what = What::Parsed;
                    }
                }
            }
            lines.push(Line {
                end: end as u32,
                nodes: nodes.len() as u32,
                what,
                lone,
            });
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

    /// What stands behind the last LF.
    pub fn rest(&self) -> &[u8] {
        let start = self.lines.last().map_or(0, |line| line.end as usize + 1);
        &self.bytes[start..]
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
        let fitted = pattern.map(|pattern| Fitted {
            pattern,
            slots: nodes,
        });
        let nodes = match fitted {
            Some(fitted) => self.recalled.nodes(fitted),
            None => nodes,
        };
        Doc {
            root: Value { text, nodes },
            lone,
            fitted,
        }
    }
}

/// The nodes of the last text that was recalled and fitted a pattern.
#[derive(Debug, Default)]
pub(super) struct Recalled {
    /// The number of the pattern.
    of: u32,
    nodes: Vec<Node>,
}

impl Recalled {
    #[inline]
    fn nodes(&mut self, fitted: Fitted<'_>) -> &[Node] {
        let Fitted { pattern, slots } = fitted;
        if self.of != pattern.number() {
            self.of = pattern.number();
            self.nodes.clear();
            self.nodes.extend_from_slice(pattern.learned());
        }
        pattern.move_nodes(&mut self.nodes, slots);
        &self.nodes
    }
}
