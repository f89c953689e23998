//! JSON data that goes out: borrowed from the wire where it stands there, built where it does not.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::json::{Kind, Tape, Text, Value, View, plain_end};
use crate::number::Number;

/// A JSON value on its way into events and runs.
#[derive(Clone, Debug)]
pub enum Data<'a> {
    Null,
    Bool(bool),
    Number(Number),
    Text(Text<'a>),
    /// As it stands on the wire.
    Wire(Value<'a>),
    /// A JSON text (NaN and raw control characters allowed), not parsed yet.
    Raw(Cow<'a, [u8]>),
    List(Vec<Data<'a>>),
    Map(Vec<(Text<'a>, Data<'a>)>),
}

impl<'a> Data<'a> {
    /// Whether this is a JSON object.
    pub fn is_map(&self) -> bool {
        match self {
            Data::Map(_) => true,
            Data::Wire(value) => value.is_object(),
            Data::Raw(text) => first_byte(text) == Some(b'{'),
            _ => false,
        }
    }

    pub fn is_null(&self) -> bool {
        match self {
            Data::Null => true,
            Data::Wire(value) => value.is_null(),
            Data::Raw(text) => first_byte(text) == Some(b'n'),
            _ => false,
        }
    }

    /// The member of that name; None if this is no object or has no such member.
    pub fn get(&self, key: &str) -> Option<Data<'_>> {
        match self {
            Data::Map(members) => {
                let found = members.iter().rev().find(|(name, _)| &**name == key)?;
                Some(found.1.clone())
            }
            Data::Wire(value) => value.get(key).map(Data::Wire),
            Data::Raw(text) => {
                let mut tape = Tape::new();
                let doc = tape.parse_lax(text).ok()?;
                Some(Data::Raw(Cow::Owned(doc.root().get(key)?.raw().to_vec())))
            }
            _ => None,
        }
    }

    /// The elements of a list; nothing for other values.
    pub fn items(&self) -> Vec<Data<'_>> {
        match self {
            Data::List(items) => items.clone(),
            Data::Wire(value) => value.items().map(Data::Wire).collect(),
            Data::Raw(text) => {
                let mut tape = Tape::new();
                match tape.parse_lax(text) {
                    Ok(doc) => {
                        let raw = |item: Value<'_>| Data::Raw(Cow::Owned(item.raw().to_vec()));
                        doc.root().items().map(raw).collect()
                    }
                    Err(_) => Vec::new(),
                }
            }
            _ => Vec::new(),
        }
    }

    /// The text of a string.
    pub fn text(&self) -> Option<Text<'_>> {
        match self {
            Data::Text(text) => Some(text.borrow()),
            Data::Wire(value) => value.text(),
            Data::Raw(raw) => {
                let mut tape = Tape::new();
                let text = tape.parse_lax(raw).ok()?.root().text()?;
                Some(Text::from(text.into_string()))
            }
            _ => None,
        }
    }

    /// Whether an unpaired half of a surrogate pair stands in it, which the output replaces.
    pub fn is_lossy(&self) -> bool {
        match self {
            Data::Text(text) => text.is_lossy(),
            Data::Wire(value) => value.is_lossy(),
            Data::Raw(text) => {
                let mut tape = Tape::new();
                tape.parse_lax(text)
                    .is_ok_and(|doc| doc.has_lone_surrogate())
            }
            Data::List(items) => items.iter().any(Data::is_lossy),
            Data::Map(members) => members
                .iter()
                .any(|(key, value)| key.is_lossy() || value.is_lossy()),
            _ => false,
        }
    }

    /// Writes it as JSON text, in which nothing is lossy any more.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Data::Null => out.extend_from_slice(b"null"),
            Data::Bool(true) => out.extend_from_slice(b"true"),
            Data::Bool(false) => out.extend_from_slice(b"false"),
            Data::Number(number) => number.write(out),
            Data::Text(text) => write_text(text, out),
            Data::Wire(value) => write_wire(*value, out),
            Data::Raw(text) => {
                let mut tape = Tape::new();
                match tape.parse_lax(text) {
                    Ok(doc) if doc.has_lone_surrogate() => write_wire(doc.root(), out),
                    _ => out.extend_from_slice(text),
                }
            }
            Data::List(items) => {
                write_list(items.iter(), out, |item, out| item.write(out));
            }
            Data::Map(members) => {
                out.push(b'{');
                for (index, (key, value)) in members.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    write_text(key, out);
                    out.push(b':');
                    value.write(out);
                }
                out.push(b'}');
            }
        }
    }

    /// About how many bytes it takes to keep: those of the texts and keys in it, those of the digits of an integer
    /// beyond 64 bits, and 8 for each value.
    pub fn size(&self) -> u64 {
        match self {
            Data::Text(text) => VALUE + text.len() as u64,
            Data::Wire(value) => wire_size(*value),
            Data::Raw(text) => {
                let mut tape = Tape::new();
                tape.parse_lax(text)
                    .map_or(VALUE, |doc| wire_size(doc.root()))
            }
            Data::List(items) => VALUE + items.iter().map(Data::size).sum::<u64>(),
            Data::Map(members) => {
                let members = members.iter();
                VALUE + members_size(members.map(|(key, value)| (Cow::from(&**key), value.size())))
            }
            _ => VALUE,
        }
    }

    /// The same value without a tie to its record.
    pub fn to_static(&self) -> Data<'static> {
        match self {
            Data::Null => Data::Null,
            Data::Bool(value) => Data::Bool(*value),
            Data::Number(number) => Data::Number(*number),
            Data::Text(text) => Data::Text(text.to_static()),
            other => Data::Raw(other.to_raw().into_vec().into()),
        }
    }

    /// About how many bytes of JSON text it has.
    fn room(&self) -> usize {
        const SHORT: usize = 8;
        match self {
            Data::Text(text) => SHORT + text.len(),
            Data::Wire(value) => value.raw().len(),
            Data::Raw(text) => text.len(),
            Data::List(items) => items.iter().map(|item| SHORT + item.room()).sum(),
            Data::Map(members) => {
                let room = |(key, value): &(Text<'_>, Data<'_>)| SHORT + key.len() + value.room();
                members.iter().map(room).sum()
            }
            Data::Null | Data::Bool(_) | Data::Number(_) => SHORT,
        }
    }

    /// The JSON text of it, kept for later.
    pub fn to_raw(&self) -> Box<[u8]> {
        let mut out = Vec::with_capacity(self.room());
        self.write(&mut out);
        out.into_boxed_slice()
    }
}

/// What a snapshot keeps of it.
#[derive(Deserialize, Serialize)]
enum Kept<'a> {
    Text(Text<'a>),
    Raw(Cow<'a, [u8]>),
}

impl Serialize for Data<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let kept = match self {
            Data::Text(text) => Kept::Text(text.borrow()),
            Data::Raw(text) => Kept::Raw(Cow::Borrowed(text)),
            other => Kept::Raw(Cow::Owned(other.to_raw().into_vec())),
        };
        kept.serialize(serializer)
    }
}

impl<'de, 'a> Deserialize<'de> for Data<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Kept::deserialize(deserializer)? {
            Kept::Text(text) => Data::Text(text),
            Kept::Raw(text) => Data::Raw(text),
        })
    }
}

impl<'a> From<Value<'a>> for Data<'a> {
    fn from(value: Value<'a>) -> Self {
        Data::Wire(value)
    }
}

impl<'a> From<Text<'a>> for Data<'a> {
    fn from(text: Text<'a>) -> Self {
        Data::Text(text)
    }
}

impl<'a> From<&'a str> for Data<'a> {
    fn from(text: &'a str) -> Self {
        Data::Text(text.into())
    }
}

impl From<String> for Data<'_> {
    fn from(text: String) -> Self {
        Data::Text(text.into())
    }
}

impl From<bool> for Data<'_> {
    fn from(value: bool) -> Self {
        Data::Bool(value)
    }
}

impl From<i64> for Data<'_> {
    fn from(value: i64) -> Self {
        Data::Number(Number::Int(value))
    }
}

impl From<Number> for Data<'_> {
    fn from(value: Number) -> Self {
        Data::Number(value)
    }
}

impl<'a, T: Into<Data<'a>>> From<Option<T>> for Data<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Data::Null, Into::into)
    }
}

impl<'a, T: Into<Data<'a>>> From<Vec<T>> for Data<'a> {
    fn from(items: Vec<T>) -> Self {
        Data::List(items.into_iter().map(Into::into).collect())
    }
}

/// An object from its members in order.
pub fn map<'a, const N: usize>(members: [(&'static str, Data<'a>); N]) -> Data<'a> {
    Data::Map(members.into_iter().map(|(k, v)| (k.into(), v)).collect())
}

fn first_byte(text: &[u8]) -> Option<u8> {
    text.iter().find(|byte| !b" \t\r\n".contains(byte)).copied()
}

/// What a value counts for by itself.
const VALUE: u64 = 8;

fn wire_size(value: Value<'_>) -> u64 {
    let inside = match value.view() {
        View::String(text) => text.lossy().len() as u64,
        View::Number if value.is_integer() && value.as_u64().is_none() => value.raw().len() as u64,
        View::Array(items) => items.map(wire_size).sum(),
        View::Object(entries) => {
            members_size(entries.map(|(key, item)| (key.lossy(), wire_size(item))))
        }
        _ => 0,
    };
    VALUE + inside
}

/// Of the members of an object, from the size of each; of a repeated key the last one counts.
fn members_size<'k>(members: impl Iterator<Item = (Cow<'k, str>, u64)>) -> u64 {
    let members: HashMap<Cow<'k, str>, u64> = members.collect();
    members
        .iter()
        .map(|(key, size)| key.len() as u64 + size)
        .sum()
}

fn write_wire(value: Value<'_>, out: &mut Vec<u8>) {
    if !value.is_lossy() {
        // LF stands only between the tokens of a document that is one record over many lines: the output is one line
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', value.raw()) {
            out.extend_from_slice(&value.raw()[start..end]);
            start = end + 1;
        }
        out.extend_from_slice(&value.raw()[start..]);
        return;
    }
    match value.kind() {
        Kind::String => match value.as_str() {
            Some(string) if string.is_lossy() => write_text(&string.lossy(), out),
            _ => out.extend_from_slice(value.raw()),
        },
        Kind::Array => write_list(value.items(), out, write_wire),
        Kind::Object => {
            out.push(b'{');
            for (index, (key, item)) in value.entries().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_text(&key.lossy(), out);
                out.push(b':');
                write_wire(item, out);
            }
            out.push(b'}');
        }
        _ => out.extend_from_slice(value.raw()),
    }
}

fn write_list<T>(
    items: impl Iterator<Item = T>,
    out: &mut Vec<u8>,
    write: impl Fn(T, &mut Vec<u8>),
) {
    out.push(b'[');
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(item, out);
    }
    out.push(b']');
}

/// Writes a JSON string.
pub fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        let end = plain_end(bytes, at);
        out.extend_from_slice(&bytes[at..end]);
        let escape: &[u8] = match bytes.get(end) {
            None => break,
            Some(b'\n') => b"\\n",
            Some(b'\r') => b"\\r",
            Some(b'\t') => b"\\t",
            Some(byte @ ..0x20) => &[
                b'\\',
                b'u',
                b'0',
                b'0',
                b'0' + (byte >> 4),
                b"0123456789abcdef"[(byte & 15) as usize],
            ],
            Some(&byte) => &[b'\\', byte],
        };
        out.extend_from_slice(escape);
        at = end + 1;
    }
    out.push(b'"');
}
