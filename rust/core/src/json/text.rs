//! Strings: decoding on demand, and what to do with unpaired halves of surrogate pairs.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::OnceLock;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::escapes::{self, backslash, meaning};
use super::tape::{ESCAPES, LONE};

/// A string of a parsed text, not yet decoded.
#[derive(Clone, Copy, Debug)]
pub struct Str<'a> {
    raw: &'a str,
    flags: u8,
}

/// A string whose text may go on in another record: what [`Str::halves`] returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Halves<'a> {
    /// The decoded text between the two halves.
    pub text: Cow<'a, str>,
    /// The string starts with this unpaired low half.
    pub lead: Option<u16>,
    /// The string ends with this unpaired high half.
    pub trail: Option<u16>,
    /// Some other half stood alone; `text` has U+FFFD for it.
    pub lossy: bool,
}

/// Text that can be shown: U+FFFD stands for each half of a surrogate pair that had no other half, and it is known
/// whether that was so.
#[derive(Clone, Debug)]
pub struct Text<'a> {
    kept: Kept<'a>,
    lossy: bool,
}

#[derive(Clone, Debug)]
enum Kept<'a> {
    Text(Cow<'a, str>),
    Wire(Box<Wire<'a>>),
}

/// A string with escapes, decoded when somebody asks for its text: much of what an event tells, nobody reads.
#[derive(Clone, Debug)]
struct Wire<'a> {
    string: Str<'a>,
    text: OnceLock<String>,
}

impl<'a> Wire<'a> {
    #[inline(never)]
    fn new(string: Str<'a>) -> Box<Self> {
        Box::new(Wire {
            string,
            text: OnceLock::new(),
        })
    }

    #[inline(never)]
    fn text(&self) -> &str {
        self.text.get_or_init(|| self.string.decoded())
    }
}

impl<'a> Kept<'a> {
    /// The string, if it was not decoded.
    fn unread(&self) -> Option<Str<'a>> {
        match self {
            Kept::Wire(wire) if wire.text.get().is_none() => Some(wire.string),
            _ => None,
        }
    }
}

impl<'a> Text<'a> {
    fn new(text: Cow<'a, str>, lossy: bool) -> Self {
        Text {
            kept: Kept::Text(text),
            lossy,
        }
    }

    /// Whether the wire said something that no UTF-8 can say.
    pub fn is_lossy(&self) -> bool {
        self.lossy
    }

    #[inline]
    pub fn as_str(&self) -> &str {
        match &self.kept {
            Kept::Text(text) => text,
            Kept::Wire(wire) => wire.text(),
        }
    }

    pub fn into_cow(self) -> Cow<'a, str> {
        match self.kept {
            Kept::Text(text) => text,
            Kept::Wire(wire) => match wire.text.into_inner() {
                Some(text) => Cow::Owned(text),
                None => wire.string.lossy(),
            },
        }
    }

    pub fn into_string(self) -> String {
        self.into_cow().into_owned()
    }

    /// Adds it to another text.
    pub fn push_to(&self, text: &mut String) {
        match self.kept.unread() {
            Some(string) => string.push_to(text),
            None => text.push_str(self),
        }
    }

    /// A text made of this one: as lossy as this.
    pub fn rewrite(&self, make: impl FnOnce(&str) -> String) -> Text<'static> {
        Text::new(Cow::Owned(make(self)), self.lossy)
    }

    /// The same text without a tie to its record, which has been told of if it was lossy.
    pub fn to_static(&self) -> Text<'static> {
        Text::from(self.as_str().to_owned())
    }

    /// Several texts as one: lossy if one of them is.
    pub fn concat(parts: impl IntoIterator<Item = Text<'a>>) -> Text<'a> {
        let mut parts = parts.into_iter();
        let (Some(first), second) = (parts.next(), parts.next()) else {
            return Text::default();
        };
        let Some(second) = second else {
            return first;
        };
        let (mut lossy, mut all) = (first.lossy, first.into_string());
        for part in std::iter::once(second).chain(parts) {
            part.push_to(&mut all);
            lossy |= part.lossy;
        }
        Text::new(Cow::Owned(all), lossy)
    }

    /// The same text, borrowed.
    pub fn borrow(&self) -> Text<'_> {
        match self.kept.unread() {
            Some(string) => string.into(),
            None => Text::new(Cow::Borrowed(self), self.lossy),
        }
    }
}

impl Deref for Text<'_> {
    type Target = str;

    #[inline]
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl Default for Text<'_> {
    fn default() -> Self {
        "".into()
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.lossy == other.lossy && self.as_str() == other.as_str()
    }
}

impl Eq for Text<'_> {}

/// What a snapshot keeps of it.
#[derive(Deserialize, Serialize)]
struct Saved<'a> {
    text: Cow<'a, str>,
    lossy: bool,
}

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let saved = Saved {
            text: Cow::Borrowed(self),
            lossy: self.lossy,
        };
        saved.serialize(serializer)
    }
}

impl<'de, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Saved { text, lossy } = Saved::deserialize(deserializer)?;
        Ok(Text::new(text, lossy))
    }
}

impl<'a> From<Cow<'a, str>> for Text<'a> {
    #[inline]
    fn from(text: Cow<'a, str>) -> Self {
        Text::new(text, false)
    }
}

impl<'a> From<&'a str> for Text<'a> {
    #[inline]
    fn from(text: &'a str) -> Self {
        Cow::Borrowed(text).into()
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Cow::<str>::Owned(text).into()
    }
}

impl<'a> From<Str<'a>> for Text<'a> {
    #[inline(always)]
    fn from(string: Str<'a>) -> Self {
        Text {
            kept: match string.has_escapes() {
                false => Kept::Text(Cow::Borrowed(string.raw)),
                true => Kept::Wire(Wire::new(string)),
            },
            lossy: string.is_lossy(),
        }
    }
}

impl<'a> Str<'a> {
    #[inline(always)]
    pub(super) fn new(raw: &'a str, flags: u32) -> Self {
        Str {
            raw,
            flags: flags as u8,
        }
    }

    /// What stands between the quotes.
    #[inline]
    pub fn raw(&self) -> &'a str {
        self.raw
    }

    /// Whether the raw text differs from the decoded one.
    #[inline]
    pub fn has_escapes(&self) -> bool {
        self.flags & ESCAPES as u8 != 0
    }

    /// Whether some unpaired half of a surrogate pair has no place in UTF-8.
    #[inline]
    pub fn is_lossy(&self) -> bool {
        self.flags & LONE as u8 != 0
    }

    /// Whether the decoded string is `other`. A string with an unpaired half equals no `str`.
    #[allow(clippy::should_implement_trait)] // not an equivalence between strings of texts
    #[inline(always)]
    pub fn eq(&self, other: &str) -> bool {
        match self.has_escapes() {
            false => self.raw == other,
            true => self.decodes_to(other),
        }
    }

    #[inline(never)]
    fn decodes_to(&self, other: &str) -> bool {
        let mut rest = other;
        for piece in Pieces::new(self.raw) {
            let left = match piece {
                Piece::Plain(plain) => rest.strip_prefix(plain),
                Piece::Char(character) => rest.strip_prefix(character),
                Piece::Half(_) => None,
            };
            match left {
                Some(left) => rest = left,
                None => return false,
            }
        }
        rest.is_empty()
    }

    /// The decoded text, with U+FFFD for each unpaired half.
    #[inline(always)]
    pub fn lossy(&self) -> Cow<'a, str> {
        if !self.has_escapes() {
            return Cow::Borrowed(self.raw);
        }
        Cow::Owned(self.decoded())
    }

    #[inline(never)]
    fn decoded(&self) -> String {
        let mut text = String::new();
        self.decode_to(&mut text);
        text
    }

    /// Adds the decoded text to another, with U+FFFD for each unpaired half.
    #[inline]
    pub fn push_to(&self, text: &mut String) {
        match self.has_escapes() {
            false => text.push_str(self.raw),
            true => self.decode_to(text),
        }
    }

    /// The decoded text, with U+FFFD for each unpaired half. It is all that is in `room` then.
    pub fn decode_in<'r>(&self, room: &'r mut String) -> &'r str {
        room.clear();
        self.decode_to(room);
        room
    }

    #[inline(never)]
    fn decode_to(&self, text: &mut String) {
        let raw = self.raw.as_bytes();
        // SAFETY: what is added to the bytes is UTF-8, see below.
        let room = unsafe { text.as_mut_vec() };
        room.reserve(raw.len()); // no escape is shorter than what it stands for
        let before = room.len();
        let out = room.spare_capacity_mut();
        let (mut at, mut to) = (0, 0);
        loop {
            let (read, written) = escapes::decode(&raw[at..], &mut out[to..]);
            at += read;
            to += written;
            if at == raw.len() {
                break;
            }
            let (len, character) = escape(&self.raw[at..]);
            at += len;
            for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                out[to].write(byte);
                to += 1;
            }
        }
        // SAFETY: so many bytes were written, and there is room for them. They are whole characters, as what was copied
        // ends at a backslash or with the text.
        unsafe { room.set_len(before + to) };
    }

    /// The decoded text, with the halves at its two ends kept apart: they may have their other half in another record.
    pub fn halves(&self) -> Halves<'a> {
        if !self.is_lossy() {
            return Halves {
                text: self.lossy(),
                lead: None,
                trail: None,
                lossy: false,
            };
        }
        let mut halves = Halves {
            text: Cow::Borrowed(""),
            lead: None,
            trail: None,
            lossy: false,
        };
        let mut text = String::with_capacity(self.raw.len());
        let mut first = true;
        let mut pieces = Pieces::new(self.raw);
        while let Some(piece) = pieces.next() {
            match piece {
                Piece::Half(low @ 0xdc00..) if first => halves.lead = Some(low),
                Piece::Half(high @ ..0xdc00) if pieces.rest.is_empty() => halves.trail = Some(high),
                piece => {
                    halves.lossy |= matches!(piece, Piece::Half(_));
                    piece.push_lossy(&mut text);
                }
            }
            first = false;
        }
        halves.text = Cow::Owned(text);
        halves
    }

    /// The decoded text with unpaired halves kept, as WTF-8: what Python's `surrogatepass` reads.
    pub fn wtf8(&self) -> Cow<'a, [u8]> {
        if !self.has_escapes() {
            return Cow::Borrowed(self.raw.as_bytes());
        }
        let mut bytes = Vec::with_capacity(self.raw.len());
        for piece in Pieces::new(self.raw) {
            match piece {
                Piece::Plain(plain) => bytes.extend_from_slice(plain.as_bytes()),
                Piece::Char(character) => {
                    bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Piece::Half(half) => {
                    let low_six = |bits: u16| 0x80 | (bits & 0x3f) as u8;
                    bytes.extend_from_slice(&[
                        0xe0 | (half >> 12) as u8,
                        low_six(half >> 6),
                        low_six(half),
                    ]);
                }
            }
        }
        Cow::Owned(bytes)
    }
}

/// How long the escape at the start of the text is, and what it stands for; U+FFFD for an unpaired half. (A backslash that
/// begins no escape would stand for itself, but the parser accepts none.)
#[inline]
fn escape(text: &str) -> (usize, char) {
    match text.as_bytes().get(1) {
        Some(b'u') => match Pieces::new(text).next() {
            Some(Piece::Char(character)) if character > '\u{ffff}' => (12, character),
            Some(Piece::Char(character)) => (6, character),
            Some(Piece::Half(_)) => (6, char::REPLACEMENT_CHARACTER),
            _ => (1, '\\'),
        },
        Some(&other) if other.is_ascii() => (2, meaning(other) as char),
        _ => (1, '\\'),
    }
}

/// Part of a decoded string.
enum Piece<'a> {
    Plain(&'a str),
    Char(char),
    /// An unpaired half of a surrogate pair.
    Half(u16),
}

impl Piece<'_> {
    #[inline(always)]
    fn push_lossy(&self, text: &mut String) {
        match *self {
            Piece::Plain(plain) => text.push_str(plain),
            Piece::Char(character) => text.push(character),
            Piece::Half(_) => text.push(char::REPLACEMENT_CHARACTER),
        }
    }
}

/// The pieces of a raw string that the parser has accepted.
struct Pieces<'a> {
    rest: &'a str,
}

impl<'a> Pieces<'a> {
    fn new(raw: &'a str) -> Self {
        Pieces { rest: raw }
    }

    /// The UTF-16 unit of the `\u` escape at the start of `text`, if there is one.
    fn unit(text: &str) -> Option<u16> {
        let digits = text.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(digits, 16).ok()
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    #[inline]
    fn next(&mut self) -> Option<Piece<'a>> {
        let bytes = self.rest.as_bytes();
        if bytes.first()? != &b'\\' {
            let (plain, rest) = self.rest.split_at(backslash(bytes, 0));
            self.rest = rest;
            return Some(Piece::Plain(plain));
        }
        let character = match bytes.get(1)? {
            b'u' => {
                let unit = Self::unit(self.rest)?;
                self.rest = &self.rest[6..];
                if let 0xd800..=0xdbff = unit
                    && let Some(low @ 0xdc00..=0xdfff) = Self::unit(self.rest)
                {
                    self.rest = &self.rest[6..];
                    let code = 0x10000 + ((unit as u32 & 0x3ff) << 10 | low as u32 & 0x3ff);
                    return char::from_u32(code).map(Piece::Char);
                }
                // Only the halves of surrogate pairs are no characters.
                return Some(char::from_u32(unit as u32).map_or(Piece::Half(unit), Piece::Char));
            }
            &other => meaning(other) as char,
        };
        self.rest = &self.rest[2..];
        Some(Piece::Char(character))
    }
}
