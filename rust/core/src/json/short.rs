//! Texts of short values, to tell whether the next one says the same.

use super::value::Value;

/// Longer ones are not taken.
const MOST: usize = 64;

/// The bytes of a value as they stand in the text, if they are few.
#[derive(Debug)]
pub struct Short {
    len: usize,
    bytes: [u8; MOST],
}

impl Short {
    /// That of no value.
    pub const NONE: Short = Short {
        len: 0,
        bytes: [0; MOST],
    };

    pub fn is_none(&self) -> bool {
        self.len == 0
    }

    /// Whether the value is written just so.
    #[inline(always)]
    pub fn is(&self, value: Value<'_>) -> bool {
        let raw = value.raw();
        if raw.len() != self.len {
            return false;
        }
        // Nearly all have up to eight bytes. What follows in the text is read too, and shifted out.
        if let (1..=8, Some(word), Some(mine)) = (self.len, value.word(), self.bytes.first_chunk())
        {
            return (word ^ u64::from_le_bytes(*mine)) << (64 - 8 * self.len) == 0;
        }
        self.bytes[..self.len] == *raw
    }

    /// Takes the bytes of another value; none if they are too many.
    #[inline(always)]
    pub fn set(&mut self, value: Value<'_>) {
        let raw = value.raw();
        self.len = if raw.len() <= MOST { raw.len() } else { 0 };
        self.bytes[..self.len].copy_from_slice(&raw[..self.len]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Tape;

    #[test]
    fn a_short_text_is_itself_and_no_other() {
        let long = format!("\"{}\"", "x".repeat(MOST));
        let texts = [
            "1",
            "12",
            "10",
            "1.0",
            "12345678",
            "12345679",
            "123456789",
            "\"1\"",
            "\"12345678\"",
            "true",
        ];
        let texts: Vec<&str> = texts.into_iter().chain([long.as_str()]).collect();
        // with nothing behind the value, and with much
        for (before, after) in [("", ""), ("[", ",12345678]")] {
            let mut short = Short::NONE;
            for one in &texts {
                let (mut tape, mut other_tape) = (Tape::new(), Tape::new());
                let text = format!("{before}{one}{after}");
                let doc = tape.parse(text.as_bytes()).unwrap();
                let value = doc.root().items().next().unwrap_or(doc.root());
                assert!(!short.is(value));
                short.set(value);
                assert_eq!(short.is_none(), one.len() > MOST);
                for other in &texts {
                    let doc = other_tape.parse(other.as_bytes()).unwrap();
                    assert_eq!(
                        short.is(doc.root()),
                        one == other && one.len() <= MOST,
                        "{one} {other}"
                    );
                }
            }
        }
    }
}
