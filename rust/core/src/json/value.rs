//! Views of a parsed text. All of them are copies of a pointer and an index; nothing is decoded before it is asked for.

use std::borrow::Cow;

use super::tape::{INTEGER, Node};
use super::text::Str;

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Null,
    Bool,
    Number,
    String,
    Array,
    Object,
}

/// A parsed text: the nodes on the tape and the bytes they point into.
#[derive(Clone, Copy, Debug)]
pub struct Doc<'a> {
    pub(super) text: &'a str,
    pub(super) nodes: &'a [Node],
    pub(super) lone: bool,
}

impl<'a> Doc<'a> {
    /// The value of the text.
    pub fn root(&self) -> Value<'a> {
        Value { doc: *self, at: 0 }
    }

    /// Whether any string or key has an unpaired half of a surrogate pair.
    pub fn has_lone_surrogate(&self) -> bool {
        self.lone
    }

    #[inline(always)]
    fn string(&self, node: &Node) -> Str<'a> {
        Str::new(
            &self.text[node.start as usize + 1..node.end as usize - 1],
            node.info,
        )
    }
}

/// One value of a [`Doc`].
#[derive(Clone, Copy, Debug)]
pub struct Value<'a> {
    doc: Doc<'a>,
    at: u32,
}

impl<'a> Value<'a> {
    #[inline(always)]
    fn node(&self) -> &'a Node {
        &self.doc.nodes[self.at as usize]
    }

    #[inline(always)]
    fn first_byte(&self) -> u8 {
        self.doc.text.as_bytes()[self.node().start as usize]
    }

    pub fn kind(&self) -> Kind {
        match self.first_byte() {
            b'{' => Kind::Object,
            b'[' => Kind::Array,
            b'"' => Kind::String,
            b't' | b'f' => Kind::Bool,
            b'n' => Kind::Null,
            _ => Kind::Number,
        }
    }

    pub fn is_object(&self) -> bool {
        self.first_byte() == b'{'
    }

    pub fn is_array(&self) -> bool {
        self.first_byte() == b'['
    }

    pub fn is_null(&self) -> bool {
        self.first_byte() == b'n'
    }

    /// The member of that name; the last one if the object repeats it, as in a Python dict. None if this is no object.
    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        let mut found = None;
        let mut members = self.entries();
        while let Some(value) = members.find(key) {
            found = Some(value);
        }
        found
    }

    /// The member of that name; the first one if the object repeats it.
    pub fn first(&self, key: &str) -> Option<Value<'a>> {
        self.entries().find(key)
    }

    /// [`get`](Value::get) for each key in turn.
    pub fn path(&self, keys: &[&str]) -> Option<Value<'a>> {
        keys.iter().try_fold(*self, |value, key| value.get(key))
    }

    /// The elements of an array; nothing for other values.
    pub fn items(&self) -> Items<'a> {
        let end = if self.is_array() {
            self.node().next
        } else {
            self.at + 1
        };
        Items {
            doc: self.doc,
            at: self.at + 1,
            end,
        }
    }

    /// The members of an object in the order of the text, repeated keys included; nothing for other values.
    pub fn entries(&self) -> Entries<'a> {
        let end = if self.is_object() {
            self.node().next
        } else {
            self.at + 1
        };
        Entries {
            doc: self.doc,
            at: self.at + 1,
            end,
        }
    }

    /// Elements of an array or members of an object (repeated keys included); 0 for other values.
    pub fn len(&self) -> usize {
        if self.is_object() || self.is_array() {
            self.node().info as usize
        } else {
            0
        }
    }

    /// Whether [`len`](Value::len) is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of the value as they stand in the text.
    pub fn raw(&self) -> &'a [u8] {
        self.raw_str().as_bytes()
    }

    fn raw_str(&self) -> &'a str {
        let node = self.node();
        &self.doc.text[node.start as usize..node.end as usize]
    }

    pub fn as_str(&self) -> Option<Str<'a>> {
        if self.first_byte() == b'"' {
            Some(self.doc.string(self.node()))
        } else {
            None
        }
    }

    /// The decoded text of a string, unpaired halves replaced: `as_str()` and [`lossy`](Str::lossy).
    pub fn text(&self) -> Option<Cow<'a, str>> {
        self.as_str().map(|string| string.lossy())
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self.first_byte() {
            b't' => Some(true),
            b'f' => Some(false),
            _ => None,
        }
    }

    /// The characters of a number.
    pub fn number(&self) -> Option<&'a str> {
        if self.kind() == Kind::Number {
            Some(self.raw_str())
        } else {
            None
        }
    }

    /// Whether this is a number without point and exponent, which Python reads as an int.
    pub fn is_integer(&self) -> bool {
        self.kind() == Kind::Number && self.node().info & INTEGER != 0
    }

    /// An integer that fits. None for `1.0` and `1e2`, which Python reads as floats.
    pub fn as_i64(&self) -> Option<i64> {
        if self.is_integer() {
            self.raw_str().parse().ok()
        } else {
            None
        }
    }

    /// An integer that fits. None for `1.0` and `1e2`, which Python reads as floats.
    pub fn as_u64(&self) -> Option<u64> {
        if !self.is_integer() {
            return None;
        }
        match self.raw_str() {
            "-0" => Some(0),
            digits => digits.parse().ok(),
        }
    }

    /// The nearest double of any number, infinite when it is out of range, as Python's `float()`.
    pub fn as_f64(&self) -> Option<f64> {
        // Rust reads the words of the lax grammar (NaN, Infinity) as well.
        self.number()?.parse().ok()
    }
}

/// The elements of an array.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    doc: Doc<'a>,
    at: u32,
    end: u32,
}

impl<'a> Iterator for Items<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        if self.at >= self.end {
            return None;
        }
        let value = Value {
            doc: self.doc,
            at: self.at,
        };
        self.at = value.node().next;
        Some(value)
    }
}

/// The members of an object.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    doc: Doc<'a>,
    at: u32,
    end: u32,
}

impl<'a> Entries<'a> {
    /// The value of the next member with that key.
    #[inline]
    fn find(&mut self, key: &str) -> Option<Value<'a>> {
        while self.at < self.end {
            let name = &self.doc.nodes[self.at as usize];
            let value = Value {
                doc: self.doc,
                at: self.at + 1,
            };
            self.at = value.node().next;
            // Lengths first: they differ for most keys, and then the text is not touched. An escaped key is longer
            // in the text than decoded.
            let len = (name.end - name.start) as usize - 2;
            if len == key.len() && name.info == 0 {
                let start = name.start as usize + 1;
                if &self.doc.text.as_bytes()[start..start + len] == key.as_bytes() {
                    return Some(value);
                }
            } else if name.info != 0 && len > key.len() && self.doc.string(name).eq(key) {
                return Some(value);
            }
        }
        None
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = (Str<'a>, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.end {
            return None;
        }
        let name = self.doc.string(&self.doc.nodes[self.at as usize]);
        let value = Value {
            doc: self.doc,
            at: self.at + 1,
        };
        self.at = value.node().next;
        Some((name, value))
    }
}
