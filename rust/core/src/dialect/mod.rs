//! The dialects: one file for each, all of the same shape.
//!
//! Each has `DIALECT`, the line for the table below; `sign`, how sure a record is of this dialect (something for
//! anything that has the shape of one of its top-level records, None for all else); a [`Mapper`], which is called for
//! each record and tells the emitter what it says; and `SERIES`, if it streams text: the records that a mapper need not
//! see, as they only go on with the one before them.
//!
//! To add one: write its file, its Python twin, and a line in each table.

mod acp;
mod anthropic;
mod claude;
mod claude_transcript;
mod codex;
mod codex_appserver;
mod codex_events;
mod codex_responses;
mod codex_rollout;
mod codex_shapes;
mod copilot;
mod copilot_session;
mod droid;
mod droid_session;
mod evolve;
mod evosci;
mod gemini;
mod gemini_chat;
mod kimi;
mod kimi_context;
mod kimi_journal;
mod kimi_wire;
mod minicode;
mod opencode;
mod opencode_export;
mod pi;
mod pi_session;
mod qwen;
mod qwen_chat;

use std::borrow::Cow;

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::emit::Emitter;
use crate::json::{Series, Str, Text, Value};
use crate::record::Record;
use crate::run::{Ending, Exit, Reducer};

/// A [`Sign`] of this weight decides alone.
pub const SURE: i32 = 100;

/// That a record belongs to a dialect: how sure (SURE decides alone, weights of several records add up) and why.
///
/// A weight of 0 only says that the record has the shape of one; a weight below 0 speaks against the dialect.
pub struct Sign {
    pub weight: i32,
    pub why: Cow<'static, str>,
    pub version: Option<String>,
    /// It is a whole session, which the harness writes as one pretty-printed object over many lines.
    pub document: bool,
}

impl Sign {
    pub fn new(weight: i32, why: impl Into<Cow<'static, str>>) -> Option<Sign> {
        Sign::of_version(weight, why, None)
    }

    pub fn of_version(
        weight: i32,
        why: impl Into<Cow<'static, str>>,
        version: Option<String>,
    ) -> Option<Sign> {
        let why = why.into();
        Some(Sign {
            weight,
            why,
            version,
            document: false,
        })
    }

    /// The sign of a document, sure.
    pub fn of_document(why: &'static str) -> Option<Sign> {
        let sign = Sign::new(SURE, why)?;
        Some(Sign {
            document: true,
            ..sign
        })
    }
}

/// What became of a record.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was understood.
    Mapped,
    /// It says nothing for events, by this rule.
    Ignored(&'static str),
    /// The dialect does not know this type of record.
    Unknown,
}

/// The mapper of one dialect: records in, calls on the emitter out. All that it remembers is in a snapshot.
pub trait Mapper: Save {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome;

    /// Where a harness prints plain text instead of records when it fails: called before [`close`](Mapper::close) with
    /// the lines after the last record that are no JSON, if there are any.
    fn tail(&mut self, _lines: &[&str], _out: &mut Emitter<'_>) {}

    /// Whether what the dialect says of [`Series`] is true of the harness that prints this stream, as far as it is
    /// known.
    fn has_series(&self) -> bool {
        true
    }

    /// The end of the stream.
    fn close(&mut self, _out: &mut Emitter<'_>) {}

    /// Asked when a verdict is wanted and the stream has not said how it ended; None: nothing special is known.
    fn judge(&self, _run: &Reducer, _exit: &Exit) -> Option<Ending> {
        None
    }
}

pub type BoxedMapper = Box<dyn Mapper + Send + Sync>;

/// What a snapshot keeps of a mapper whose type is not known.
pub trait Save {
    fn save(&self) -> postcard::Result<Vec<u8>>;
}

impl<M: Serialize> Save for M {
    fn save(&self) -> postcard::Result<Vec<u8>> {
        postcard::to_stdvec(self)
    }
}

/// How the mappers of a dialect come to be: new, or as they were [saved](Save).
pub struct Make {
    pub new: fn() -> BoxedMapper,
    pub load: fn(&[u8]) -> postcard::Result<BoxedMapper>,
}

impl Make {
    pub const fn of<M>() -> Make
    where
        M: Mapper + Default + DeserializeOwned + Send + Sync + 'static,
    {
        Make {
            new: || Box::new(M::default()),
            load: |saved| Ok(Box::new(postcard::from_bytes::<M>(saved)?)),
        }
    }
}

/// One line of the table.
pub struct Dialect {
    pub name: &'static str,
    pub sign: fn(Value<'_>) -> Option<Sign>,
    pub mapper: Make,
    /// What the mapper need not see: a record of one of them that goes on with the record before it.
    pub series: &'static [Series],
}

impl Serialize for Dialect {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.name.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for &'static Dialect {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        named(&name).ok_or_else(|| D::Error::custom("no such dialect"))
    }
}

/// Every dialect; the order is that of preference when a stream fits two equally well.
pub static DIALECTS: &[Dialect] = &[
    codex::DIALECT,
    codex_appserver::DIALECT,
    codex_rollout::DIALECT,
    pi::DIALECT,
    pi_session::DIALECT,
    evosci::DIALECT,
    minicode::DIALECT,
    opencode::DIALECT,
    opencode_export::DIALECT,
    droid::DIALECT,
    droid_session::DIALECT,
    copilot::DIALECT,
    copilot_session::DIALECT,
    acp::DIALECT,
    gemini::DIALECT,
    gemini_chat::DIALECT,
    qwen::DIALECT,
    qwen_chat::DIALECT,
    kimi::DIALECT,
    kimi_wire::DIALECT,
    kimi_context::DIALECT,
    evolve::DIALECT,
    claude::DIALECT,
    claude_transcript::DIALECT,
];

/// Why a line of text is a harness's, or None.
pub type TextSign = fn(&str) -> Option<String>;

/// What decides on streams without any record: harnesses that print plain text when they fail.
pub static TEXT_SIGNS: &[(&str, TextSign)] = &[(kimi::DIALECT.name, kimi::text_sign)];

/// The dialect of that name.
pub fn named(name: &str) -> Option<&'static Dialect> {
    DIALECTS.iter().find(|dialect| dialect.name == name)
}

/// Whether the object has the shape of a top-level record of the dialect (of any, if none is known yet).
pub fn is_record(value: Value<'_>, dialect: Option<&Dialect>) -> bool {
    any_sign(value, dialect, |_| true)
}

/// Whether the object, printed over many lines and alone in its source, is one record of the dialect (of any).
pub fn is_document(value: Value<'_>, dialect: Option<&Dialect>) -> bool {
    any_sign(value, dialect, |sign| sign.document)
}

fn any_sign(value: Value<'_>, dialect: Option<&Dialect>, wanted: fn(Sign) -> bool) -> bool {
    let signs = |dialect: &Dialect| (dialect.sign)(value).is_some_and(wanted);
    match dialect {
        Some(dialect) => signs(dialect),
        None => DIALECTS.iter().any(signs),
    }
}

// -------------------------------------------------------------------- what mappers share

/// Whether the object has all of these keys.
fn has_all(value: Value<'_>, keys: &[&str]) -> bool {
    keys.iter().all(|key| value.first(key).is_some())
}

/// Whether the object has one of these keys.
fn has_any(value: Value<'_>, keys: &[&str]) -> bool {
    keys.iter().any(|key| value.first(key).is_some())
}

/// How many different keys the object has.
fn key_count(value: Value<'_>) -> usize {
    let mut keys: Vec<_> = value.entries().map(|(key, _)| key.wtf8()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.len()
}

/// The rule by which a type is ignored, from a table of (type, rule).
fn rule(table: &[(&str, &'static str)], kind: &str) -> Outcome {
    match table.iter().find(|(name, _)| *name == kind) {
        Some((_, rule)) => Outcome::Ignored(rule),
        None => Outcome::Unknown,
    }
}

/// The text, unless it is empty.
fn filled(text: Option<Text<'_>>) -> Option<Text<'_>> {
    text.filter(|text| !text.is_empty())
}

fn is_true(value: Option<Value<'_>>) -> bool {
    value.and_then(|value| value.as_bool()) == Some(true)
}

/// The members of an object as a Python dict has them: of a repeated key, the last value.
fn members(value: Value<'_>) -> Vec<(Str<'_>, Value<'_>)> {
    let mut members: Vec<(Str<'_>, Value<'_>)> = Vec::new();
    for (key, item) in value.entries() {
        match members.iter_mut().find(|(k, _)| k.wtf8() == key.wtf8()) {
            Some(known) => known.1 = item,
            None => members.push((key, item)),
        }
    }
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_series_has_more_members_than_are_compared() {
        let series = DIALECTS.iter().flat_map(|dialect| dialect.series);
        for Series {
            is, same, stamp, ..
        } in series
        {
            let stamp = stamp.map_or(0, |stamp| stamp.len());
            assert!(is.len() + same.len() + stamp <= Series::MEMBERS);
        }
    }
}
