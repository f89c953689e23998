//! Views of a parsed text: a few words each, to be copied. Nothing is decoded before it is asked for.

use super::tape::{INTEGER, LONE, Node};
use super::text::{Str, Text};

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
    pub(super) root: Value<'a>,
    pub(super) lone: bool,
}

impl<'a> Doc<'a> {
    /// The value of the text.
    #[inline]
    pub fn root(&self) -> Value<'a> {
        self.root
    }

    /// Whether any string or key has an unpaired half of a surrogate pair.
    #[inline]
    pub fn has_lone_surrogate(&self) -> bool {
        self.lone
    }
}

/// One value of a [`Doc`].
///
/// Views are small and passed by value. Their methods are inlined, or else every step down a path would move them
/// through memory, which costs more than the step.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a> {
    /// The whole text.
    pub(super) text: &'a str,
    /// The nodes from this value's own on.
    pub(super) nodes: &'a [Node],
}

impl<'a> Value<'a> {
    #[inline(always)]
    fn node(&self) -> &'a Node {
        &self.nodes[0]
    }

    #[inline(always)]
    fn first_byte(&self) -> u8 {
        self.text.as_bytes()[self.node().start as usize]
    }

    /// The nodes inside a container.
    #[inline(always)]
    fn inside(&self) -> &'a [Node] {
        &self.nodes[1..self.node().skip as usize]
    }

    #[inline]
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

    #[inline]
    pub fn is_object(&self) -> bool {
        self.first_byte() == b'{'
    }

    #[inline]
    pub fn is_array(&self) -> bool {
        self.first_byte() == b'['
    }

    #[inline]
    pub fn is_null(&self) -> bool {
        self.first_byte() == b'n'
    }

    /// The member of that name; the last one if the object repeats it, as in a Python dict. None if this is no object.
    #[inline]
    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        self.find::<true>(key)
    }

    /// The member of that name; the first one if the object repeats it.
    #[inline]
    pub fn first(&self, key: &str) -> Option<Value<'a>> {
        self.find::<false>(key)
    }

    #[inline(always)]
    fn find<const LAST: bool>(&self, key: &str) -> Option<Value<'a>> {
        if !self.is_object() {
            return None;
        }
        let nodes = find::<LAST>(self.text, self.inside(), key)?;
        Some(Value {
            text: self.text,
            nodes,
        })
    }

    /// [`get`](Value::get) for each key in turn.
    #[inline]
    pub fn path(&self, keys: &[&str]) -> Option<Value<'a>> {
        keys.iter().try_fold(*self, |value, key| value.get(key))
    }

    /// The elements of an array; nothing for other values.
    #[inline]
    pub fn items(&self) -> Items<'a> {
        Items {
            text: self.text,
            rest: if self.is_array() { self.inside() } else { &[] },
        }
    }

    /// The members of an object in the order of the text, repeated keys included; nothing for other values.
    #[inline]
    pub fn entries(&self) -> Entries<'a> {
        Entries {
            text: self.text,
            rest: if self.is_object() { self.inside() } else { &[] },
        }
    }

    /// Elements of an array or members of an object (repeated keys included); 0 for other values.
    #[inline]
    pub fn len(&self) -> usize {
        if self.is_object() || self.is_array() {
            self.node().info as usize
        } else {
            0
        }
    }

    /// Whether [`len`](Value::len) is 0.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of the value as they stand in the text.
    #[inline]
    pub fn raw(&self) -> &'a [u8] {
        self.raw_str().as_bytes()
    }

    fn raw_str(&self) -> &'a str {
        let node = self.node();
        &self.text[node.start as usize..node.end as usize]
    }

    #[inline]
    pub fn as_str(&self) -> Option<Str<'a>> {
        if self.first_byte() == b'"' {
            Some(string(self.text, self.node()))
        } else {
            None
        }
    }

    /// The decoded text of a string, unpaired halves replaced.
    #[inline]
    pub fn text(&self) -> Option<Text<'a>> {
        self.as_str().map(Text::from)
    }

    /// The text of the member of that name, if it is a string.
    pub fn text_of(&self, key: &str) -> Option<Text<'a>> {
        self.get(key)?.text()
    }

    /// Whether it is or holds a string or key with an unpaired half of a surrogate pair.
    pub fn is_lossy(&self) -> bool {
        let text = self.text.as_bytes();
        let nodes = &self.nodes[..self.node().skip as usize];
        nodes
            .iter()
            .filter(|node| text[node.start as usize] == b'"')
            .any(|node| node.info & LONE != 0)
    }

    #[inline]
    pub fn as_bool(&self) -> Option<bool> {
        match self.first_byte() {
            b't' => Some(true),
            b'f' => Some(false),
            _ => None,
        }
    }

    /// The characters of a number.
    #[inline]
    pub fn number(&self) -> Option<&'a str> {
        if self.kind() == Kind::Number {
            Some(self.raw_str())
        } else {
            None
        }
    }

    /// Whether this is a number without point and exponent, which Python reads as an int.
    #[inline]
    pub fn is_integer(&self) -> bool {
        self.kind() == Kind::Number && self.node().info & INTEGER != 0
    }

    /// An integer that fits. None for `1.0` and `1e2`, which Python reads as floats.
    #[inline]
    pub fn as_i64(&self) -> Option<i64> {
        if self.is_integer() {
            self.raw_str().parse().ok()
        } else {
            None
        }
    }

    /// An integer that fits. None for `1.0` and `1e2`, which Python reads as floats.
    #[inline]
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
    #[inline]
    pub fn as_f64(&self) -> Option<f64> {
        // Rust reads the words of the lax grammar (NaN, Infinity) as well.
        self.number()?.parse().ok()
    }
}

/// The nodes from the value of that key on, among the members of an object.
fn find<'a, const LAST: bool>(
    text: &'a str,
    mut members: &'a [Node],
    key: &str,
) -> Option<&'a [Node]> {
    let mut found = None;
    while let [name, value, ..] = members {
        // Lengths first: they tell most keys apart, and the text need not be touched. An escaped key is longer in the
        // text than decoded.
        let len = (name.end - name.start) as usize - 2;
        let equal = if name.info == 0 {
            let start = name.start as usize + 1;
            len == key.len() && same(&text.as_bytes()[start..start + len], key.as_bytes())
        } else {
            len > key.len() && string(text, name).eq(key)
        };
        if equal {
            found = Some(&members[1..]);
            if !LAST {
                break;
            }
        }
        members = &members[1 + value.skip as usize..];
    }
    found
}

#[inline(always)]
fn string<'a>(text: &'a str, node: &Node) -> Str<'a> {
    Str::new(
        &text[node.start as usize + 1..node.end as usize - 1],
        node.info,
    )
}

/// Whether two keys of one length are the same. Keys are short: two overlapping words beat a call of `memcmp`.
#[inline(always)]
fn same(a: &[u8], b: &[u8]) -> bool {
    match a.len() {
        8..=16 => {
            a.first_chunk::<8>() == b.first_chunk::<8>()
                && a.last_chunk::<8>() == b.last_chunk::<8>()
        }
        4..8 => {
            a.first_chunk::<4>() == b.first_chunk::<4>()
                && a.last_chunk::<4>() == b.last_chunk::<4>()
        }
        _ => a == b,
    }
}

/// The elements of an array.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    text: &'a str,
    rest: &'a [Node],
}

impl<'a> Iterator for Items<'a> {
    type Item = Value<'a>;

    #[inline]
    fn next(&mut self) -> Option<Value<'a>> {
        let value = Value {
            text: self.text,
            nodes: self.rest,
        };
        self.rest = &self.rest[self.rest.first()?.skip as usize..];
        Some(value)
    }
}

/// The members of an object.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    text: &'a str,
    rest: &'a [Node],
}

impl<'a> Iterator for Entries<'a> {
    type Item = (Str<'a>, Value<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (name, nodes) = self.rest.split_first()?;
        let value = Value {
            text: self.text,
            nodes,
        };
        self.rest = &nodes[value.node().skip as usize..];
        Some((string(self.text, name), value))
    }
}
