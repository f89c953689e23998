//! One pass over the text, left to right, no recursion: the first error it meets is the one it reports.

use super::error::{JsonError, Reason};
use super::scan::plain_end;
use super::tape::{ESCAPES, INTEGER, LONE, Node};

/// Containers may be nested this deep.
pub const MAX_DEPTH: usize = 1024;

/// "No container around this one" in the `end` of an open container.
const OUTERMOST: u32 = u32::MAX;

/// What a parse learns besides the nodes.
pub(super) struct Parsed {
    /// Offset after the last byte of the value.
    pub end: usize,
    /// Some string has an unpaired half of a surrogate pair.
    pub lone: bool,
}

/// Reads the value at the start of `text` (after blanks) into `nodes`. The bytes of strings are not checked for UTF-8.
pub(super) fn value<const LAX: bool>(
    text: &[u8],
    nodes: &mut Vec<Node>,
) -> Result<Parsed, JsonError> {
    if text.len() >= u32::MAX as usize {
        return Err(JsonError::new(u32::MAX as usize, Reason::TooLong));
    }
    nodes.clear();
    Parser::<LAX> {
        text,
        nodes,
        at: 0,
        lone: false,
    }
    .run()
}

/// Offset of the first byte at or after `at` that is no JSON blank.
#[inline(always)]
pub(super) fn skip_blanks(text: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = text.get(at) {
        at += 1;
    }
    at
}

struct Parser<'t, const LAX: bool> {
    text: &'t [u8],
    nodes: &'t mut Vec<Node>,
    at: usize,
    lone: bool,
}

impl<const LAX: bool> Parser<'_, LAX> {
    fn run(mut self) -> Result<Parsed, JsonError> {
        // The innermost open container, how many stand around the next value, and how many values it has.
        let mut open = OUTERMOST;
        let mut depth = 0;
        let mut count = 0;
        let mut in_object = false;
        loop {
            // A value.
            self.at = skip_blanks(self.text, self.at);
            match self.peek() {
                Some(b'"') => self.string()?,
                Some(bracket @ (b'{' | b'[')) => {
                    if depth == MAX_DEPTH {
                        return Err(self.error(Reason::TooDeep));
                    }
                    depth += 1;
                    if open != OUTERMOST {
                        self.nodes[open as usize].info = count;
                    }
                    let start = self.at as u32;
                    self.nodes.push(Node {
                        start,
                        end: open,
                        next: 0,
                        info: 0,
                    });
                    open = self.nodes.len() as u32 - 1;
                    count = 0;
                    in_object = bracket == b'{';
                    self.at = skip_blanks(self.text, self.at + 1);
                    match self.peek() {
                        Some(b'}') if in_object => {}
                        Some(b']') if !in_object => {}
                        _ => {
                            count = 1;
                            if in_object {
                                self.key()?;
                            }
                            continue;
                        }
                    }
                }
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(b't') => self.word("true", 0)?,
                Some(b'f') => self.word("false", 0)?,
                Some(b'n') => self.word("null", 0)?,
                Some(b'N') if LAX => self.word("NaN", 0)?,
                Some(b'I') if LAX => self.word("Infinity", 0)?,
                _ => return Err(self.unexpected()),
            }
            // What follows a value, or the first bracket of an empty container.
            loop {
                if open == OUTERMOST {
                    return Ok(Parsed {
                        end: self.at,
                        lone: self.lone,
                    });
                }
                self.at = skip_blanks(self.text, self.at);
                match self.peek() {
                    Some(b',') => {
                        self.at += 1;
                        count += 1;
                        if in_object {
                            self.at = skip_blanks(self.text, self.at);
                            self.key()?;
                        }
                        break;
                    }
                    Some(b'}') if in_object => {}
                    Some(b']') if !in_object => {}
                    _ => return Err(self.unexpected()),
                }
                self.at += 1;
                depth -= 1;
                let next = self.nodes.len() as u32;
                let node = &mut self.nodes[open as usize];
                let around = std::mem::replace(&mut node.end, self.at as u32);
                node.next = next;
                node.info = count;
                open = around;
                if open != OUTERMOST {
                    let node = &self.nodes[open as usize];
                    count = node.info;
                    in_object = self.text[node.start as usize] == b'{';
                }
            }
        }
    }

    #[inline(always)]
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn error(&self, reason: Reason) -> JsonError {
        JsonError::new(self.at, reason)
    }

    /// The byte here cannot stand here, or there is none.
    #[cold]
    fn unexpected(&self) -> JsonError {
        self.broken(Reason::UnexpectedCharacter)
    }

    /// `reason`, unless the text simply stops here.
    #[cold]
    fn broken(&self, reason: Reason) -> JsonError {
        self.error(if self.at >= self.text.len() {
            Reason::UnexpectedEnd
        } else {
            reason
        })
    }

    #[inline(always)]
    fn leaf(&mut self, start: usize, info: u32) {
        let next = self.nodes.len() as u32 + 1;
        self.nodes.push(Node {
            start: start as u32,
            end: self.at as u32,
            next,
            info,
        });
    }

    /// A key and its colon.
    #[inline(always)]
    fn key(&mut self) -> Result<(), JsonError> {
        if self.peek() != Some(b'"') {
            return Err(self.unexpected());
        }
        self.string()?;
        self.at = skip_blanks(self.text, self.at);
        if self.peek() != Some(b':') {
            return Err(self.unexpected());
        }
        self.at += 1;
        Ok(())
    }

    /// A string, from its first quote.
    #[inline(always)]
    fn string(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        let stop = plain_end(self.text, start + 1);
        if self.text.get(stop) == Some(&b'"') {
            self.at = stop + 1;
            self.leaf(start, 0);
            return Ok(());
        }
        self.string_rest(start, stop)
    }

    /// The rest of a string that has an escape or a control character at `stop`, or no end.
    #[inline(never)]
    fn string_rest(&mut self, start: usize, stop: usize) -> Result<(), JsonError> {
        let mut info = 0;
        // Where the escape of a high half ended, if the last escape was one: its low half must start right there.
        let mut high_end = None;
        self.at = stop;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    info |= ESCAPES;
                    let before = self.at;
                    let half = self.escape()?;
                    let pending = high_end.take();
                    let paired = pending == Some(before) && matches!(half, Some(0xdc00..=0xdfff));
                    if !paired {
                        if pending.is_some() {
                            info |= LONE;
                        }
                        match half {
                            Some(0xd800..=0xdbff) => high_end = Some(self.at),
                            Some(0xdc00..=0xdfff) => info |= LONE,
                            _ => {}
                        }
                    }
                }
                Some(_) if LAX => self.at += 1,
                Some(_) => return Err(self.error(Reason::ControlCharacter)),
                None => return Err(self.error(Reason::UnexpectedEnd)),
            }
            self.at = plain_end(self.text, self.at);
        }
        if high_end.is_some() {
            info |= LONE;
        }
        self.lone |= info & LONE != 0;
        self.at += 1;
        self.leaf(start, info);
        Ok(())
    }

    /// An escape, from its backslash. The UTF-16 unit of a `\u` escape.
    #[inline(always)]
    fn escape(&mut self) -> Result<Option<u16>, JsonError> {
        self.at += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 1;
                Ok(None)
            }
            Some(b'u') => {
                self.at += 1;
                let mut unit = 0;
                for _ in 0..4 {
                    let digit = match self.peek().and_then(|byte| (byte as char).to_digit(16)) {
                        Some(digit) => digit as u16,
                        None => return Err(self.broken(Reason::InvalidEscape)),
                    };
                    unit = unit << 4 | digit;
                    self.at += 1;
                }
                Ok(Some(unit))
            }
            _ => Err(self.broken(Reason::InvalidEscape)),
        }
    }

    /// A number, from its sign or first digit.
    #[inline(always)]
    fn number(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        let mut info = INTEGER;
        if self.peek() == Some(b'-') {
            self.at += 1;
            if LAX && self.peek() == Some(b'I') {
                return self.word("Infinity", 1);
            }
        }
        match self.peek() {
            Some(b'0') => {
                self.at += 1;
                if let Some(b'0'..=b'9') = self.peek() {
                    return Err(self.error(Reason::InvalidNumber));
                }
            }
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            info = 0;
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            info = 0;
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        self.leaf(start, info);
        Ok(())
    }

    /// One digit or more.
    #[inline(always)]
    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start {
            return Err(self.broken(Reason::InvalidNumber));
        }
        Ok(())
    }

    /// A literal of which `sign` bytes are already behind.
    #[inline(always)]
    fn word(&mut self, word: &str, sign: usize) -> Result<(), JsonError> {
        let start = self.at - sign;
        if self.text[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            self.leaf(start, 0);
            return Ok(());
        }
        while self.peek() == word.as_bytes().get(self.at - start - sign).copied() {
            self.at += 1;
        }
        Err(self.unexpected())
    }
}
