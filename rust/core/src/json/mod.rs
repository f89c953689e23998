//! Strict RFC 8259 JSON, one text at a time, onto a reusable tape of borrowed spans.
//!
//! A parse checks every byte and decodes nothing: numbers and strings stay where they are until somebody asks. What the
//! RFC leaves open is settled this way: numbers of any size are accepted and keep their digits, escapes of unpaired
//! surrogate halves are accepted and marked, repeated keys are kept, and containers nest to [`MAX_DEPTH`].

mod error;
mod kept;
mod parse;
mod paths;
mod scan;
mod short;
mod tape;
mod template;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod text;
mod value;

pub use error::{JsonError, Reason};
pub use kept::Kept;
pub use parse::MAX_DEPTH;
pub use paths::{Paths, Spot};
pub use short::Short;
pub use tape::Tape;
pub use template::{Decoder, Fitted, Pattern, Shape};
pub use text::{Halves, Str, Text};
pub use value::{Doc, Entries, Items, Kind, Value, View};

impl Tape {
    /// Reads exactly one value, with JSON blanks around it or not.
    pub fn parse<'a>(&'a mut self, text: &'a [u8]) -> Result<Doc<'a>, JsonError> {
        whole::<false>(self, text)
    }

    /// As [`parse`](Tape::parse), for salvage: also takes `NaN`, `Infinity` and `-Infinity` as numbers, and raw control
    /// characters in strings.
    pub fn parse_lax<'a>(&'a mut self, text: &'a [u8]) -> Result<Doc<'a>, JsonError> {
        whole::<true>(self, text)
    }
}

/// Reads the value at the start of `text` and says how many bytes it took, blanks before it included. What follows is
/// not looked at, so that records glued on one line cost no more than their length.
pub fn parse_prefix<'a>(tape: &'a mut Tape, text: &'a [u8]) -> Result<(Doc<'a>, usize), JsonError> {
    prefix::<false>(tape, text)
}

/// [`parse_prefix`] by the rules of [`Tape::parse_lax`].
pub fn parse_prefix_lax<'a>(
    tape: &'a mut Tape,
    text: &'a [u8],
) -> Result<(Doc<'a>, usize), JsonError> {
    prefix::<true>(tape, text)
}

/// The length of the value at the start of `text`, blanks before it included, by the rules of [`Tape::parse_lax`], and
/// without checking that its strings are UTF-8: how salvage finds whole objects in damaged text.
pub(crate) fn extent_lax(tape: &mut Tape, text: &[u8]) -> Result<usize, JsonError> {
    parse::value::<true>(text, &mut tape.nodes).map(|parsed| parsed.end)
}

fn whole<'a, const LAX: bool>(tape: &'a mut Tape, text: &'a [u8]) -> Result<Doc<'a>, JsonError> {
    tape.trim(text);
    let text = utf8(text)?;
    let parsed = parse::value::<LAX>(text.as_bytes(), &mut tape.nodes)?;
    let end = parse::skip_blanks(text.as_bytes(), parsed.end);
    if end < text.len() {
        return Err(JsonError::new(end, Reason::TrailingData));
    }
    Ok(doc(tape, text, &parsed))
}

fn prefix<'a, const LAX: bool>(
    tape: &'a mut Tape,
    text: &'a [u8],
) -> Result<(Doc<'a>, usize), JsonError> {
    tape.trim(text);
    match parse::value::<LAX>(text, &mut tape.nodes) {
        Ok(parsed) => {
            let text = utf8(&text[..parsed.end])?;
            Ok((doc(tape, text, &parsed), parsed.end))
        }
        // Bytes that are no UTF-8 count first, as in a whole text, but only those that were read.
        Err(error) => utf8(text.get(..error.offset).unwrap_or(text)).and(Err(error)),
    }
}

fn doc<'a>(tape: &'a Tape, text: &'a str, parsed: &parse::Parsed) -> Doc<'a> {
    Doc {
        root: Value {
            text,
            nodes: &tape.nodes[..parsed.nodes],
        },
        lone: parsed.lone,
        fitted: None,
    }
}

/// The text as `str`, or the offset of the first byte that is no UTF-8.
fn utf8(text: &[u8]) -> Result<&str, JsonError> {
    simdutf8::basic::from_utf8(text).map_err(|_| {
        let valid = std::str::from_utf8(text).map_or_else(|error| error.valid_up_to(), str::len);
        JsonError::new(valid, Reason::InvalidUtf8)
    })
}
