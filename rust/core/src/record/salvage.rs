//! The salvage rule.
//!
//! Leave out NUL runs, blanks, control characters and terminal escapes at both ends of a malformed line. What is left
//! must begin with `{`, and its tail must be one or more whole objects up to its end, each with the shape of a top-level
//! record; NaN, Infinity, raw control characters and invalid UTF-8 (as U+FFFD) are let through in them.
//!
//! Where can such a tail begin? At the first byte; or, when another writer cut in, near the byte at which the grammar
//! breaks: an object that the grammar places inside another one is never taken for a record, so a record that is only
//! cut off gives nothing.

use memchr::memchr;

use crate::json::{JsonError, Reason, Tape, Value, extent_lax};

/// Per line; nothing real comes near.
const MAX_ATTEMPTS: usize = 1000;

/// Start and end of the records that a malformed line still holds.
///
/// An attempt begins at or close before the byte at which the one before it failed, so that the cost stays linear.
pub(super) fn find(
    tape: &mut Tape,
    body: &[u8],
    is_record: &impl Fn(Value<'_>) -> bool,
) -> Vec<(usize, usize)> {
    let mut start = after_noise(body, 0);
    if body.get(start) != Some(&b'{') {
        return Vec::new();
    }
    for _ in 0..MAX_ATTEMPTS {
        let broken = match objects(tape, body, start) {
            Ok((mut found, broken)) => {
                if broken == body.len() {
                    let bad = found
                        .iter()
                        .rposition(|&(start, end)| !passes(tape, &body[start..end], is_record));
                    found.drain(..bad.map_or(0, |bad| bad + 1));
                    return found;
                }
                broken
            }
            // Every object behind `start` lies inside one that is cut off (or too deep).
            Err(error) if matches!(error.reason, Reason::UnexpectedEnd | Reason::TooDeep) => break,
            Err(error) => error.offset,
        };
        match restart(body, start, broken) {
            Some(next) => start = next,
            None => break,
        }
    }
    Vec::new()
}

fn passes(tape: &mut Tape, raw: &[u8], is_record: &impl Fn(Value<'_>) -> bool) -> bool {
    let text = String::from_utf8_lossy(raw);
    tape.parse_lax(text.as_bytes())
        .is_ok_and(|doc| is_record(doc.root()))
}

/// The whole objects that follow each other from `at`, and the end of the body if nothing but noise comes then, else
/// the offset of what comes.
fn objects(
    tape: &mut Tape,
    body: &[u8],
    mut at: usize,
) -> Result<(Vec<(usize, usize)>, usize), JsonError> {
    let mut found = Vec::new();
    while body.get(at) == Some(&b'{') {
        let extent = extent_lax(tape, &body[at..]).map_err(|error| JsonError {
            offset: at + error.offset,
            ..error
        })?;
        let end = at + extent;
        found.push((at, end));
        at = end;
        while at < body.len() && is_blank(body[at]) {
            at += 1;
        }
    }
    let rest = if after_noise(body, at) == body.len() {
        body.len()
    } else {
        at
    };
    Ok((found, rest))
}

/// Where another record may begin that cut into the one at `start`, which breaks at `broken`.
fn restart(body: &[u8], start: usize, broken: usize) -> Option<usize> {
    // Torn inside a string, the record takes the `{"` of the other one for the end of this string.
    let at = before_blanks(body, broken);
    if body[at - 1] == b'"' {
        let at = before_blanks(body, at - 1) - 1;
        if body[at] == b'{' && at > start {
            return Some(at);
        }
    }
    memchr(b'{', &body[broken..]).map(|at| broken + at)
}

fn before_blanks(body: &[u8], mut at: usize) -> usize {
    // The record's own "{" stops it.
    while is_blank(body[at - 1]) {
        at -= 1;
    }
    at
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// The offset behind what terminals and zero-filled disk blocks leave around a record: blanks and control characters,
/// a byte order mark, and escape sequences (CSI; OSC and the other strings; the short ones).
fn after_noise(body: &[u8], mut at: usize) -> usize {
    loop {
        at = match body[at..] {
            [0x1b, ..] => at + escape(&body[at..]),
            [0..=0x20 | 0x7f, ..] => at + 1,
            [0xef, 0xbb, 0xbf, ..] => at + 3,
            _ => return at,
        };
    }
}

/// The length of the escape sequence at the start of `text`; 1 if there is none. "{" is never taken for its end.
fn escape(text: &[u8]) -> usize {
    let run = |at: usize, from: u8, to: u8| {
        let run = text[at..]
            .iter()
            .take_while(|&&byte| from <= byte && byte <= to);
        at + run.count()
    };
    match text.get(1) {
        Some(b'[') => {
            let end = run(run(2, b'0', b'?'), b' ', b'/');
            if matches!(text.get(end), Some(b'@'..=b'~')) && text[end] != b'{' {
                return end + 1;
            }
        }
        Some(b']' | b'P' | b'X' | b'^' | b'_') => {
            let end = text[2..]
                .iter()
                .position(|&byte| byte == 0x07 || byte == 0x1b);
            match end.map(|end| &text[end + 2..]) {
                Some([0x07, ..]) => return end.unwrap() + 3,
                Some([0x1b, b'\\', ..]) => return end.unwrap() + 4,
                _ => {}
            }
        }
        _ => {}
    }
    let end = run(1, b' ', b'/');
    match text.get(end) {
        Some(b'0'..=b'~') if text[end] != b'{' => end + 1,
        _ => 1,
    }
}

/// Content blocks and messages that dialects keep inside their records, each with the key that it is known by.
const BLOCKS: [(&str, &str); 10] = [
    ("text", "text"),
    ("input_text", "text"),
    ("output_text", "text"),
    ("thinking", "thinking"),
    ("tool_use", "input"),
    ("tool_result", "tool_use_id"),
    ("image", "source"),
    ("document", "source"),
    ("function", "function"),
    ("message", "role"),
];
const RECORD_KEYS: [&str; 5] = ["timestamp", "session_id", "sessionId", "sessionID", "uuid"];

/// Whether an object has the shape of a top-level record of some dialect.
///
/// Used for what is found on a damaged line when the dialect is not known. A content block or a chat message that
/// dialects keep inside their records does not pass, unless it carries what only records have.
pub fn looks_like_record(value: Value<'_>) -> bool {
    let has = |key: &str| value.get(key).is_some();
    let string = |key: &str| value.get(key).and_then(|value| value.as_str());
    if let Some(kind) = string("type") {
        let block = BLOCKS.iter().find(|(name, _)| kind.eq(name));
        return block.is_none_or(|(_, key)| !has(key)) || RECORD_KEYS.into_iter().any(has);
    }
    if has("jsonrpc") || string("method").is_some() {
        return true;
    }
    match value.get("msg") {
        Some(msg) if msg.is_object() => msg.get("type").is_some_and(|kind| kind.as_str().is_some()),
        _ => string("role").is_some() && has("content"),
    }
}
