//! One pass over the text, left to right, no recursion: the first error it meets is the one it reports.
//!
//! The helpers are functions of an offset that return the offset after what they read, and not methods of a parser:
//! so everything the loop works with stays in registers.

use super::error::{JsonError, Reason};
use super::scan::{digits_end, plain_end};
use super::tape::{ESCAPES, INTEGER, LONE, Node};

/// Containers may be nested this deep.
pub const MAX_DEPTH: usize = 1024;

/// "No container around this one" in the `end` of an open container.
const OUTERMOST: u32 = u32::MAX;

/// What a parse learns besides the nodes.
pub(super) struct Parsed {
    /// Offset after the last byte of the value.
    pub end: usize,
    /// Nodes that the value took.
    pub nodes: usize,
    /// Some string has an unpaired half of a surrogate pair.
    pub lone: bool,
}

/// Reads the value at the start of `text` (after blanks) into `nodes`, whose length is its room: it grows when that is
/// used up, and is never cleared. The bytes of strings are not checked for UTF-8.
pub(super) fn value<const LAX: bool>(
    text: &[u8],
    nodes: &mut Vec<Node>,
) -> Result<Parsed, JsonError> {
    if text.len() >= u32::MAX as usize {
        return Err(JsonError::new(u32::MAX as usize, Reason::TooLong));
    }
    let mut at = 0;
    let mut used = 0;
    let mut flags = 0;
    // The innermost open container, how many stand around the next value, and how many values it has so far.
    let mut open = OUTERMOST;
    let mut depth = 0;
    let mut count = 0;
    let mut in_object = false;

    // The next byte that is no blank. Agents print none: one comparison is all that most tokens pay.
    macro_rules! byte {
        ($byte:ident) => {
            let mut $byte = byte(text, at);
            if $byte <= b' ' {
                at = skip_blanks(text, at);
                $byte = byte(text, at);
            }
        };
    }
    macro_rules! push {
        ($start:expr, $end:expr, $info:expr) => {{
            if used >= nodes.len() {
                grow(nodes);
            }
            nodes[used] = Node {
                start: $start as u32,
                end: $end as u32,
                skip: 1,
                info: $info,
            };
            used += 1;
        }};
    }
    macro_rules! string {
        () => {{
            let start = at;
            let info;
            (at, info) = string::<LAX>(text, start)?;
            flags |= info;
            push!(start, at, info);
        }};
    }
    macro_rules! key {
        () => {{
            byte!(byte);
            if byte != b'"' {
                return Err(unexpected(text, at));
            }
            string!();
            byte!(byte);
            if byte != b':' {
                return Err(unexpected(text, at));
            }
            at += 1;
        }};
    }

    loop {
        // A value.
        byte!(first);
        match first {
            b'"' => string!(),
            b'-' | b'0'..=b'9' => {
                let start = at;
                let info;
                (at, info) = number::<LAX>(text, start)?;
                push!(start, at, info);
            }
            b'{' | b'[' => {
                if depth == MAX_DEPTH {
                    return Err(JsonError::new(at, Reason::TooDeep));
                }
                depth += 1;
                if open != OUTERMOST {
                    nodes[open as usize].info = count;
                }
                push!(at, open, 0);
                open = used as u32 - 1;
                in_object = first == b'{';
                at += 1;
                byte!(byte);
                if byte != closing(in_object) {
                    count = 1;
                    if in_object {
                        key!();
                    }
                    continue;
                }
                count = 0;
            }
            _ => {
                let start = at;
                at = match first {
                    b't' => word(text, at, "true")?,
                    b'f' => word(text, at, "false")?,
                    b'n' => word(text, at, "null")?,
                    b'N' if LAX => word(text, at, "NaN")?,
                    b'I' if LAX => word(text, at, "Infinity")?,
                    _ => return Err(unexpected(text, at)),
                };
                push!(start, at, 0);
            }
        }
        // What follows a value, or the closing bracket of an empty container.
        loop {
            if open == OUTERMOST {
                return Ok(Parsed {
                    end: at,
                    nodes: used,
                    lone: flags & LONE != 0,
                });
            }
            byte!(byte);
            if byte == b',' {
                at += 1;
                count += 1;
                if in_object {
                    key!();
                }
                break;
            }
            if byte != closing(in_object) {
                return Err(unexpected(text, at));
            }
            at += 1;
            depth -= 1;
            let closed = open;
            let node = &mut nodes[open as usize];
            open = std::mem::replace(&mut node.end, at as u32);
            node.skip = used as u32 - closed;
            node.info = count;
            if open != OUTERMOST {
                let around = &nodes[open as usize];
                count = around.info;
                in_object = text[around.start as usize] == b'{';
            }
        }
    }
}

#[inline(always)]
fn closing(object: bool) -> u8 {
    if object { b'}' } else { b']' }
}

#[cold]
#[inline(never)]
fn grow(nodes: &mut Vec<Node>) {
    let room = (nodes.len() * 2).max(256);
    nodes.resize(room, Node::default());
}

/// The byte here, or 0 after the end: like any NUL between tokens, that is an error.
#[inline(always)]
fn byte(text: &[u8], at: usize) -> u8 {
    if at < text.len() { text[at] } else { 0 }
}

/// Offset of the first byte at or after `at` that is no JSON blank.
#[cold]
pub(super) fn skip_blanks(text: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = text.get(at) {
        at += 1;
    }
    at
}

/// The byte here cannot stand here, or there is none.
#[cold]
fn unexpected(text: &[u8], at: usize) -> JsonError {
    broken(text, at, Reason::UnexpectedCharacter)
}

/// `reason`, unless the text simply stops here.
#[cold]
fn broken(text: &[u8], at: usize, reason: Reason) -> JsonError {
    JsonError::new(
        at,
        if at >= text.len() {
            Reason::UnexpectedEnd
        } else {
            reason
        },
    )
}

/// A string, from its first quote: its end and its flags.
#[inline(always)]
fn string<const LAX: bool>(text: &[u8], start: usize) -> Result<(usize, u32), JsonError> {
    let stop = plain_end(text, start + 1);
    if text.get(stop) == Some(&b'"') {
        return Ok((stop + 1, 0));
    }
    string_rest::<LAX>(text, stop)
}

/// The rest of a string that has an escape or a control character at `at`, or no end.
#[inline(never)]
fn string_rest<const LAX: bool>(text: &[u8], mut at: usize) -> Result<(usize, u32), JsonError> {
    let mut flags = 0;
    // Where the escape of a high half ended, if the last escape was one: its low half must start right there.
    let mut high_end = None;
    loop {
        match text.get(at) {
            Some(b'"') => break,
            Some(b'\\') => {
                flags |= ESCAPES;
                let start = at;
                let unit;
                (at, unit) = escape(text, start)?;
                let low = matches!(unit, 0xdc00..=0xdfff);
                // A pair is whole if both are there; any other mixture leaves some half alone.
                if low != (high_end == Some(start)) || (high_end.is_some() && !low) {
                    flags |= LONE;
                }
                high_end = matches!(unit, 0xd800..=0xdbff).then_some(at);
            }
            Some(_) if LAX => at += 1,
            Some(_) => return Err(JsonError::new(at, Reason::ControlCharacter)),
            None => return Err(JsonError::new(at, Reason::UnexpectedEnd)),
        }
        at = plain_end(text, at);
    }
    if high_end.is_some() {
        flags |= LONE;
    }
    Ok((at + 1, flags))
}

/// An escape, from its backslash: its end, and the UTF-16 unit if it is a `\u` escape, else 0.
#[inline(always)]
fn escape(text: &[u8], start: usize) -> Result<(usize, u16), JsonError> {
    match text.get(start + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok((start + 2, 0)),
        Some(b'u') => {
            let mut unit = 0;
            for at in start + 2..start + 6 {
                match text.get(at).and_then(|&byte| (byte as char).to_digit(16)) {
                    Some(digit) => unit = unit << 4 | digit as u16,
                    None => return Err(broken(text, at, Reason::InvalidEscape)),
                }
            }
            Ok((start + 6, unit))
        }
        _ => Err(broken(text, start + 1, Reason::InvalidEscape)),
    }
}

/// A number, from its sign or first digit: its end and its flags.
#[inline(always)]
fn number<const LAX: bool>(text: &[u8], start: usize) -> Result<(usize, u32), JsonError> {
    let whole = start + (text[start] == b'-') as usize;
    let at = digits_end(text, whole);
    // The usual number: digits, and a byte after them that does not go on with it.
    if at > whole
        && (text[whole] != b'0' || at == whole + 1)
        && !matches!(text.get(at), Some(b'.' | b'e' | b'E'))
    {
        return Ok((at, INTEGER));
    }
    number_rest::<LAX>(text, whole, at)
}

/// A number that is no plain integer: its digits start at `whole` and end at `at`.
#[inline(never)]
fn number_rest<const LAX: bool>(
    text: &[u8],
    whole: usize,
    mut at: usize,
) -> Result<(usize, u32), JsonError> {
    if at == whole {
        if LAX && text.get(at) == Some(&b'I') {
            return Ok((word(text, at, "Infinity")?, 0));
        }
        return Err(broken(text, at, Reason::InvalidNumber));
    }
    if text[whole] == b'0' && at > whole + 1 {
        return Err(JsonError::new(whole + 1, Reason::InvalidNumber));
    }
    let digits = |from: usize| match digits_end(text, from) {
        end if end == from => Err(broken(text, from, Reason::InvalidNumber)),
        end => Ok(end),
    };
    if text.get(at) == Some(&b'.') {
        at = digits(at + 1)?;
    }
    if let Some(b'e' | b'E') = text.get(at) {
        let signed = matches!(text.get(at + 1), Some(b'+' | b'-'));
        at = digits(at + 1 + signed as usize)?;
    }
    Ok((at, 0))
}

/// The end of a literal.
#[inline(always)]
fn word(text: &[u8], start: usize, word: &str) -> Result<usize, JsonError> {
    let rest = &text[start..];
    if rest.starts_with(word.as_bytes()) {
        return Ok(start + word.len());
    }
    let common = rest
        .iter()
        .zip(word.as_bytes())
        .take_while(|(a, b)| a == b)
        .count();
    Err(unexpected(text, start + common))
}
