//! One pass over the text, left to right, no recursion: the first error it meets is the one it reports.
//!
//! The helpers are functions of an offset that return the offset after what they read, and not methods of a parser:
//! so everything the loop works with stays in registers.

use super::error::{JsonError, Reason};
use super::escapes;
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
    let mut lone = false;
    // The bracket that closes the innermost open container, its node, how many are open, how many values it has so far.
    let mut close = 0;
    let mut open = OUTERMOST;
    let mut depth = 0;
    let mut count = 0;

    // The next byte that is no blank. Agents print none: one comparison is all that most tokens pay.
    macro_rules! byte {
        () => {
            match byte(text, at) {
                0..=b' ' => {
                    at = skip_blanks(text, at);
                    byte(text, at)
                }
                byte => byte,
            }
        };
    }
    macro_rules! push {
        ($start:expr, $end:expr, $info:expr) => {{
            if used >= nodes.len() {
                grow(nodes);
            }
            let (start, end) = ($start as u32, $end as u32);
            nodes[used] = Node {
                start,
                end,
                skip: 1,
                info: $info,
            };
            used += 1;
        }};
    }
    // The rest of a string that starts at `at` and has something else than text at `stop`.
    macro_rules! string_rest {
        ($stop:expr) => {{
            let (end, info) = string_rest::<LAX>(text, $stop)?;
            lone |= info & LONE != 0;
            push!(at, end, info);
            at = end;
        }};
    }
    // A key and its colon.
    macro_rules! key {
        () => {{
            if byte!() != b'"' {
                return Err(unexpected(text, at));
            }
            let stop = plain_end(text, at + 1);
            if text.get(stop..stop + 2) == Some(b"\":") {
                push!(at, stop + 1, 0);
                at = stop + 2;
            } else {
                string_rest!(stop);
                if byte!() != b':' {
                    return Err(unexpected(text, at));
                }
                at += 1;
            }
        }};
    }

    loop {
        // A value.
        let first = byte!();
        match first {
            b'"' => {
                let stop = plain_end(text, at + 1);
                if byte(text, stop) == b'"' {
                    push!(at, stop + 1, 0);
                    at = stop + 1;
                } else {
                    string_rest!(stop);
                }
            }
            b'0'..=b'9' | b'-' => {
                let (end, info) = number::<LAX>(text, at)?;
                push!(at, end, info);
                at = end;
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
                close = closing(first);
                at += 1;
                if byte!() != close {
                    count = 1;
                    if close == b'}' {
                        key!();
                    }
                    continue;
                }
                count = 0;
            }
            _ => {
                let end = match first {
                    b't' => word(text, at, "true")?,
                    b'f' => word(text, at, "false")?,
                    b'n' => word(text, at, "null")?,
                    b'N' if LAX => word(text, at, "NaN")?,
                    b'I' if LAX => word(text, at, "Infinity")?,
                    _ => return Err(unexpected(text, at)),
                };
                push!(at, end, 0);
                at = end;
            }
        }
        // What follows a value, or the closing bracket of an empty container.
        loop {
            if open == OUTERMOST {
                return Ok(Parsed {
                    end: at,
                    nodes: used,
                    lone,
                });
            }
            let byte = byte!();
            if byte == b',' {
                at += 1;
                count += 1;
                if close == b'}' {
                    key!();
                }
                break;
            }
            if byte != close {
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
                close = closing(text[around.start as usize]);
            }
        }
    }
}

/// The bracket that closes `open`: in ASCII both come two after.
#[inline(always)]
fn closing(open: u8) -> u8 {
    open + 2
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

/// The rest of a string that has an escape or a control character at `at`, or no end: the offset after its quote, and
/// its flags.
#[inline(never)]
pub(super) fn string_rest<const LAX: bool>(
    text: &[u8],
    mut at: usize,
) -> Result<(usize, u32), JsonError> {
    let mut flags = 0;
    // Where the escape of a high half ended, if the last escape was one: its low half must start right there.
    let mut high_end = None;
    loop {
        // Nearly all of it.
        let (stop, found) = escapes::skip(text, at);
        at = stop;
        if found {
            flags |= ESCAPES;
        }
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
        _ if escapes::is_short(text, start + 1) => Ok((start + 2, 0)),
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

/// A number, from its sign or first digit (there is a byte): its end and its flags.
#[inline(always)]
pub(super) fn number<const LAX: bool>(
    text: &[u8],
    start: usize,
) -> Result<(usize, u32), JsonError> {
    // The usual number is digits, and then a byte that does not go on with it.
    let end = digits_end(text, start);
    let zeros = text[start] == b'0' && end != start + 1;
    if end != start && !zeros && !matches!(byte(text, end), b'.' | b'e' | b'E') {
        return Ok((end, INTEGER));
    }
    any_number::<LAX>(text, start, end)
}

/// A number of any form; `end` is the offset after the digits that it starts with.
#[inline(never)]
fn any_number<const LAX: bool>(
    text: &[u8],
    start: usize,
    end: usize,
) -> Result<(usize, u32), JsonError> {
    let digits = |from: usize| match digits_end(text, from) {
        end if end == from => Err(broken(text, from, Reason::InvalidNumber)),
        end => Ok(end),
    };
    let whole = start + (text[start] == b'-') as usize;
    if LAX && byte(text, whole) == b'I' {
        return Ok((word(text, whole, "Infinity")?, 0));
    }
    let mut at = match end > start {
        true => end,
        false => digits(whole)?,
    };
    if text[whole] == b'0' && at > whole + 1 {
        return Err(JsonError::new(whole + 1, Reason::InvalidNumber));
    }
    let mut info = INTEGER;
    if byte(text, at) == b'.' {
        info = 0;
        at = digits(at + 1)?;
    }
    if let b'e' | b'E' = byte(text, at) {
        info = 0;
        let signed = matches!(byte(text, at + 1), b'+' | b'-');
        at = digits(at + 1 + signed as usize)?;
    }
    Ok((at, info))
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
