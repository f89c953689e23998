//! The document rule. Some harnesses keep a session as ONE pretty-printed JSON document, of which no line is a record,
//! and some wrappers print all the records of a run as one array: a pretty one (claude-code-action its execution file),
//! or one with an element a line (as SQLite, DuckDB and ClickHouse export rows).
//!
//! When the first line that is not blank begins an object or array and is cut off, it is held back, and the lines after
//! it too: if all that comes up to the end of the source is one JSON object, and a dialect knows it as a document, then
//! it is one record, and those lines are its share; if it is an array, and a dialect knows its first element as a
//! record, then it stands for its elements. It is a stream with a damaged first line as soon as a later line cannot be
//! one of such a value: it stands alone as an object or array that is not empty, where no element of an array can
//! stand; it begins like no JSON token; or more than `max_line_bytes` would be held. Then, and when the end disappoints,
//! the lines are read like any others. Where the first element has a line and a comma for itself, or the first line that
//! is not blank is such a one without any bracket, it is the log of a writer that was cut off: each later line of the
//! kind is malformed, and its record is got back.

use serde::{Deserialize, Serialize};

use crate::frame::Line;
use crate::json::Tape;

/// Whether a line that is cut off begins an object or an array.
pub fn begins(body: &[u8]) -> bool {
    matches!(body.iter().find(|byte| !is_blank(byte)), Some(b'{' | b'['))
}

/// The place of the object in a line that one element of an array has for itself.
pub fn element(body: &[u8]) -> Option<(usize, usize)> {
    let mut text = trimmed(body);
    if let [b'[' | b',', rest @ ..] = text {
        text = trimmed(rest);
    }
    if let [rest @ .., b',' | b']'] = text {
        text = trimmed(rest);
    }
    let start = text.as_ptr() as usize - body.as_ptr() as usize;
    (text.starts_with(b"{") && text.ends_with(b"}")).then_some((start, start + text.len()))
}

/// Whether there is a comma behind what a line says.
pub fn ends_in_comma(body: &[u8]) -> bool {
    trimmed(body).ends_with(b",")
}

fn trimmed(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| !is_blank(byte));
    let text = &text[..end.map_or(0, |end| end + 1)];
    let start = text.iter().position(|byte| !is_blank(byte));
    &text[start.unwrap_or(0)..]
}

fn is_blank(byte: &u8) -> bool {
    b" \t\r\n".contains(byte)
}

/// Lines that may be a document.
#[derive(Debug, Deserialize, Serialize)]
pub struct Held {
    /// Their bytes, line ends included.
    text: Vec<u8>,
    lines: Vec<HeldLine>,
    /// How many of them make up the document; the rest is blank.
    document: usize,
}

/// A line whose body stands in `text` from `start` on.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct HeldLine {
    number: u64,
    offset: u64,
    size: u64,
    start: usize,
    len: usize,
    ended: bool,
}

/// The text that all the lines make up, and where it stands.
pub struct Document<'h> {
    pub text: &'h [u8],
    pub line: u64,
    pub offset: u64,
    pub share: u64,
}

impl Held {
    pub fn new(line: &Line<'_>) -> Self {
        let mut held = Held {
            text: Vec::new(),
            lines: Vec::new(),
            document: 0,
        };
        held.push(line);
        held
    }

    /// Whether restored lines are ones that can be.
    pub fn is_sound(&self) -> bool {
        let within = |line: &HeldLine| self.text.get(line.start..)?.get(..line.len);
        !self.lines.is_empty() && self.lines.iter().all(|line| within(line).is_some())
    }

    pub fn push(&mut self, line: &Line<'_>) {
        self.lines.push(HeldLine {
            number: line.number,
            offset: line.offset,
            size: line.size,
            start: self.text.len(),
            len: line.body.len(),
            ended: line.ended,
        });
        self.text.extend_from_slice(line.body);
        let line_end: &[u8] = match line.size - line.body.len() as u64 {
            0 => b"",
            1 => b"\n",
            _ => b"\r\n",
        };
        self.text.extend_from_slice(line_end);
    }

    /// Whether a line may be the next one of the value whose beginning is held.
    pub fn may_go_on(&self, line: &Line<'_>, limit: u64, tape: &mut Tape) -> bool {
        if line.too_long || self.text.len() as u64 + line.size > limit {
            return false;
        }
        let Some(first) = line.body.iter().find(|byte| !is_blank(byte)) else {
            return true;
        };
        let last = line.body.iter().rev().find(|byte| !is_blank(byte));
        if matches!(first, b'{' | b'[')
            && matches!(last, Some(b'}' | b']'))
            && let Ok(doc) = tape.parse(line.body)
        {
            return doc.root().is_empty() || self.awaits_element();
        }
        matches!(
            first,
            b'"' | b'{' | b'}' | b'[' | b']' | b',' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n'
        )
    }

    /// Whether what is held is an array up to the place of an element.
    fn awaits_element(&self) -> bool {
        let first = self.text.iter().find(|byte| !is_blank(byte));
        let last = self.text.iter().rev().find(|byte| !is_blank(byte));
        first == Some(&b'[') && matches!(last, Some(b'[' | b','))
    }

    /// The line of the first element, if what is held begins an array.
    pub fn first_element(&self) -> Option<&[u8]> {
        let bodies = self.lines().map(|line| trimmed(line.body));
        let mut bodies = bodies.filter(|body| !body.is_empty());
        let first = bodies.next().filter(|body| body.starts_with(b"["))?;
        if first == b"[" {
            bodies.next()
        } else {
            Some(first)
        }
    }

    /// All that is held, as one text.
    pub fn document(&mut self) -> Document<'_> {
        let end = self.text.iter().rposition(|byte| !is_blank(byte));
        let text = &self.text[..end.map_or(0, |end| end + 1)];
        self.document = self.lines.partition_point(|line| line.start < text.len());
        let share = self.lines[..self.document].iter().map(|line| line.size);
        Document {
            text,
            line: self.lines[0].number,
            offset: self.lines[0].offset,
            share: share.sum(),
        }
    }

    /// Forgets the lines of the document: they were a record.
    pub fn keep_what_follows(&mut self) {
        self.lines.drain(..self.document);
    }

    pub fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        self.lines.iter().map(|line| Line {
            number: line.number,
            offset: line.offset,
            size: line.size,
            body: &self.text[line.start..line.start + line.len],
            ended: line.ended,
            too_long: false,
        })
    }
}
