//! Strict RFC 8259 JSON, one text at a time, onto a reusable tape of borrowed spans.
//!
//! A parse checks every byte and decodes nothing: numbers and strings stay where they are until somebody asks. What the
//! RFC leaves open is settled this way: numbers of any size are accepted and keep their digits, escapes of unpaired
//! surrogate halves are accepted and marked, repeated keys are kept, and containers nest to [`MAX_DEPTH`].

mod decoded;
mod error;
mod escapes;
mod kept;
mod parse;
mod paths;
mod scan;
mod series;
mod short;
mod tape;
mod template;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod text;
mod value;

pub use decoded::{Decoded, Known, Stretch};
pub use error::{JsonError, Reason};
pub use kept::Kept;
pub use parse::MAX_DEPTH;
pub use paths::{Paths, Plans, Spot};
pub(crate) use scan::plain_end;
pub use series::{Expected, Forms, Head, Is, Part, Row, Series};
pub use short::Short;
pub use tape::Tape;
pub use template::{Decoder, Fitted, Pattern, Shape};
pub use text::{Halves, Str, Text};
use value::How;
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

fn doc<'a>(tape: &'a Tape, text: &'a str, parsed: &parse::Parsed) -> Doc<'a> {
    Doc {
        text,
        how: How::Parsed(&tape.nodes[..parsed.nodes], parsed.lone),
    }
}

/// The text as `str`, or the offset of the first byte that is no UTF-8.
fn utf8(text: &[u8]) -> Result<&str, JsonError> {
    simdutf8::basic::from_utf8(text).map_err(|_| {
        // Only this one tells where.
        let valid = simdutf8::compat::from_utf8(text);
        let valid = valid.map_or_else(|error| error.valid_up_to(), str::len);
        JsonError::new(valid, Reason::InvalidUtf8)
    })
}
