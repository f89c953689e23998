//! Views of a parsed text: a few words each, to be copied. Nothing is decoded before it is asked for.

use super::paths::Spot;
use super::tape::{INTEGER, LONE, Node};
use super::template::{Fitted, Unfolded};
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

/// A text that was read.
#[derive(Clone, Copy, Debug)]
pub struct Doc<'a> {
    pub(super) text: &'a str,
    pub(super) how: How<'a>,
}

/// How a text was read.
#[derive(Clone, Copy, Debug)]
pub(super) enum How<'a> {
    /// By the parser, into these nodes; whether some string has an unpaired half of a surrogate pair.
    Parsed(&'a [Node], bool),
    /// By comparison with texts before it: there are no nodes yet.
    Fits(Fitted<'a>, &'a Unfolded),
}

impl<'a> Doc<'a> {
    /// The value of the text.
    #[inline]
    pub fn root(&self) -> Value<'a> {
        let nodes = match self.how {
            How::Parsed(nodes, _) => nodes,
            How::Fits(fitted, unfolded) => unfolded.nodes(fitted),
        };
        Value {
            text: self.text,
            nodes,
        }
    }

    /// One of the values in it as a text of its own.
    pub fn part(&self, value: Value<'a>) -> Doc<'a> {
        Doc {
            text: value.text,
            how: How::Parsed(value.nodes, self.has_lone_surrogate()),
        }
    }

    /// How many bytes the value has, without blanks around it.
    #[inline]
    pub fn size(&self) -> usize {
        match self.how {
            How::Parsed(..) => self.root().raw().len(),
            How::Fits(..) => self.text.trim_end_matches([' ', '\t', '\r', '\n']).len(), // no others before it
        }
    }

    /// [`Value::is_object`] of the root.
    #[inline]
    pub fn is_object(&self) -> bool {
        match self.how {
            How::Parsed(..) => self.root().is_object(),
            How::Fits(..) => true, // no others are learned
        }
    }

    /// [`Value::at`] of the root. Often its other values need not be looked at for that.
    #[inline(always)]
    pub fn at(&self, spot: Spot) -> Option<Value<'a>> {
        if !spot.is_there() {
            return None;
        }
        if let How::Fits(fitted, _) = self.how
            && let Some(value) = fitted.at(spot, self.text)
        {
            return Some(value);
        }
        self.root().at(spot)
    }

    /// What a text that fits a pattern has in a slot.
    #[inline(always)]
    pub(super) fn slot(&self, place: u8) -> Option<Value<'a>> {
        let slots = self.fitted()?.slots;
        Some(Value {
            text: self.text,
            nodes: std::slice::from_ref(slots.get(usize::from(place))?),
        })
    }

    /// The pattern that it fits, if it is like texts before it.
    #[inline]
    pub fn fitted(&self) -> Option<Fitted<'a>> {
        match self.how {
            How::Parsed(..) => None,
            How::Fits(fitted, _) => Some(fitted),
        }
    }

    /// Whether any string or key has an unpaired half of a surrogate pair.
    #[inline]
    pub fn has_lone_surrogate(&self) -> bool {
        match self.how {
            How::Parsed(_, lone) => lone,
            How::Fits(fitted, _) => fitted.has_lone_surrogate(),
        }
    }
}

/// A value by what it is, for code that handles all kinds.
pub enum View<'a> {
    Null,
    Bool(bool),
    /// An integer of at most 64 bits, signed.
    Int(i64),
    /// Any other number.
    Number,
    String(Str<'a>),
    Array(Items<'a>),
    Object(Entries<'a>),
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
    pub fn view(&self) -> View<'a> {
        let (text, inside) = (self.text, self.inside());
        match self.first_byte() {
            b'{' => View::Object(Entries { text, rest: inside }),
            b'[' => View::Array(Items { text, rest: inside }),
            b'"' => View::String(string(text, self.node())),
            b't' => View::Bool(true),
            b'f' => View::Bool(false),
            b'n' => View::Null,
            _ => self.as_i64().map_or(View::Number, View::Int),
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

    /// [`get`](Value::get) for several keys in one pass over the members.
    #[inline(always)]
    pub fn fields<const N: usize>(&self, keys: [&str; N]) -> [Option<Value<'a>>; N] {
        let mut found = [None; N];
        if self.is_object() {
            let mut rest = self.inside();
            while let [name, value, ..] = rest {
                let len = (name.end - name.start) as usize - 2;
                for (key, found) in keys.iter().zip(&mut found) {
                    let is_key = match name.info {
                        0 => len == key.len() && same(key_text(self.text, name), key.as_bytes()),
                        _ => is_escaped_key(self.text, name, key),
                    };
                    if is_key {
                        *found = Some(Value {
                            text: self.text,
                            nodes: &rest[1..],
                        });
                    }
                }
                rest = rest.get(1 + value.skip as usize..).unwrap_or(&[]);
            }
        }
        found
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

    /// The value at that spot, counted from this one; None if it is nowhere.
    #[inline(always)]
    pub fn at(&self, spot: Spot) -> Option<Value<'a>> {
        if spot == Spot::NOWHERE {
            return None;
        }
        let nodes = self.nodes.get(spot.0 as usize..)?;
        Some(Value {
            text: self.text,
            nodes,
        })
    }

    /// The spot of a value that is in this one.
    pub fn spot_of(&self, value: Value<'a>) -> Spot {
        // Not from the lengths: a value's nodes may go beyond it, or end with the container around it.
        let bytes = value.nodes.as_ptr().addr() - self.nodes.as_ptr().addr();
        Spot((bytes / size_of::<Node>()) as u32)
    }

    /// The nodes of this value and of all that is in it.
    #[inline]
    pub(super) fn own_nodes(&self) -> &'a [Node] {
        &self.nodes[..self.node().skip as usize]
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
        let node = self.node();
        &self.text.as_bytes()[node.start as usize..node.end as usize]
    }

    /// The first eight bytes of the value and what follows it; None if there are no eight.
    #[inline(always)]
    pub(super) fn word(&self) -> Option<u64> {
        let bytes = &self.text.as_bytes()[self.node().start as usize..];
        bytes.first_chunk().map(|word| u64::from_le_bytes(*word))
    }

    #[inline]
    pub(super) fn raw_str(&self) -> &'a str {
        let node = self.node();
        &self.text[node.start as usize..node.end as usize]
    }

    #[inline(always)]
    pub fn as_str(&self) -> Option<Str<'a>> {
        if self.first_byte() == b'"' {
            Some(string(self.text, self.node()))
        } else {
            None
        }
    }

    /// The decoded text of a string, unpaired halves replaced.
    #[inline(always)]
    pub fn text(&self) -> Option<Text<'a>> {
        self.as_str().map(Text::from)
    }

    /// Whether this is a string that says `text`.
    #[inline]
    pub fn is_text(&self, text: &str) -> bool {
        self.as_str().is_some_and(|string| string.eq(text))
    }

    /// The text of the member of that name, if it is a string.
    #[inline]
    pub fn text_of(&self, key: &str) -> Option<Text<'a>> {
        self.get(key)?.text()
    }

    /// Whether it is or holds a string or key with an unpaired half of a surrogate pair.
    pub fn is_lossy(&self) -> bool {
        let text = self.text.as_bytes();
        self.own_nodes()
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
        matches!(self.first_byte(), b'0'..=b'9' | b'-') && self.node().info & INTEGER != 0
    }

    /// An integer that fits. None for `1.0` and `1e2`, which Python reads as floats.
    #[inline]
    pub fn as_i64(&self) -> Option<i64> {
        if !self.is_integer() {
            return None;
        }
        match self.raw() {
            digits @ [b'0'..=b'9', ..] if digits.len() <= 8 && self.word().is_some() => {
                // Moved up, the digits have zeros before them; then two are one number, and four, and all.
                let word = self.word()? << (64 - 8 * digits.len()) & 0x0f0f_0f0f_0f0f_0f0f;
                let pairs = (word * 10 + (word >> 8)) & 0x00ff_00ff_00ff_00ff;
                let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
                Some(((fours * 10_000 + (fours >> 32)) & 0xffff_ffff) as i64)
            }
            // Nearly all others: no sign, and so few digits that nothing can overflow.
            digits @ [b'0'..=b'9', ..] if digits.len() <= 18 => {
                let add = |sum, digit: &u8| sum * 10 + i64::from(digit - b'0');
                Some(digits.iter().fold(0, add))
            }
            _ => self.raw_str().parse().ok(),
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
        let number = self.number()?;
        // Rust reads the words of the lax grammar (NaN, Infinity) as well.
        short_decimal(number.as_bytes()).or_else(|| number.parse().ok())
    }
}

/// The value of a number such as `0.003003`: few digits, a point, no exponent, no sign.
///
/// Digits that fit into 53 bits and a power of ten up to 10^22 are doubles without an error, so that their quotient is
/// rounded once and right.
fn short_decimal(number: &[u8]) -> Option<f64> {
    const POWERS: [f64; 18] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
        1e17,
    ];
    if number.len() > POWERS.len() {
        return None;
    }
    let mut digits = 0;
    let mut point = None;
    for (at, byte) in number.iter().enumerate() {
        match byte {
            b'0'..=b'9' => digits = digits * 10 + u64::from(byte - b'0'),
            b'.' => point = Some(at),
            _ => return None,
        }
    }
    let places = number.len() - 1 - point?;
    (digits < 1 << 53).then(|| digits as f64 / POWERS[places])
}

/// The nodes from the value of that key on, among the members of an object.
fn find<'a, const LAST: bool>(text: &str, members: &'a [Node], key: &str) -> Option<&'a [Node]> {
    let mut found = None;
    let mut rest = members;
    while let [name, value, ..] = rest {
        // Lengths first: they tell most keys apart, and the text need not be touched.
        let len = (name.end - name.start) as usize - 2;
        let is_key = match name.info {
            0 => len == key.len() && same(key_text(text, name), key.as_bytes()),
            _ => is_escaped_key(text, name, key),
        };
        if is_key {
            found = Some(&rest[1..]);
            if !LAST {
                break;
            }
        }
        rest = rest.get(1 + value.skip as usize..).unwrap_or(&[]);
    }
    found
}

#[cold]
#[inline(never)]
fn is_escaped_key(text: &str, name: &Node, key: &str) -> bool {
    string(text, name).eq(key)
}

/// The bytes of a key without its quotes.
#[inline(always)]
fn key_text<'a>(text: &'a str, name: &Node) -> &'a [u8] {
    &text.as_bytes()[name.start as usize + 1..name.end as usize - 1]
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
