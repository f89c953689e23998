//! Why a text is not JSON, and where.

use std::fmt;

/// What is wrong with a text. The words of `Display` are part of the interface: reports show them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A byte sequence that is not UTF-8 (overlong forms and encoded surrogates included).
    InvalidUtf8,
    /// The text stops before its value does: it was cut, or it is blank.
    UnexpectedEnd,
    /// A byte that cannot stand here.
    UnexpectedCharacter,
    /// A raw byte below 0x20 between quotes.
    ControlCharacter,
    /// A backslash that starts none of the nine escapes, or `\u` without four hexadecimal digits.
    InvalidEscape,
    /// Something that starts like a number and does not go on like one.
    InvalidNumber,
    /// Containers nested deeper than [`MAX_DEPTH`](super::MAX_DEPTH).
    TooDeep,
    /// One whole value, and then something else than blanks.
    TrailingData,
    /// A text of 4 GiB or more.
    TooLong,
}

impl Reason {
    /// The words shown to users.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::InvalidUtf8 => "invalid UTF-8",
            Reason::UnexpectedEnd => "unexpected end",
            Reason::UnexpectedCharacter => "unexpected character",
            Reason::ControlCharacter => "control character in string",
            Reason::InvalidEscape => "invalid escape",
            Reason::InvalidNumber => "invalid number",
            Reason::TooDeep => "too deep",
            Reason::TrailingData => "trailing data",
            Reason::TooLong => "too long",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A refused text: the reason, and the offset of the byte that gave it away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonError {
    /// Bytes before the offending one; the length of the text for [`Reason::UnexpectedEnd`].
    pub offset: usize,
    pub reason: Reason,
}

impl JsonError {
    pub(super) const fn new(offset: usize, reason: Reason) -> Self {
        JsonError { offset, reason }
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.reason, self.offset)
    }
}

impl std::error::Error for JsonError {}
