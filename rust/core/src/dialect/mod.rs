//! The dialects: one file for each, all of the same shape.
//!
//! Each has `DIALECT`, the line for the table below; `sign`, how sure a record is of this dialect (something for
//! anything that has the shape of one of its top-level records, None for all else); and a [`Mapper`], which is called
//! for each record and tells the emitter what it says.
//!
//! To add one: write its file, its Python twin, and a line in each table.

mod anthropic;
mod claude;
mod claude_transcript;
mod evosci;
mod minicode;
mod pi;
mod pi_session;

use std::borrow::Cow;

use crate::emit::Emitter;
use crate::json::{Text, Value};
use crate::record::Record;
use crate::run::{Ending, Exit, Reducer};

/// A [`Sign`] of this weight decides alone.
pub const SURE: u32 = 100;

/// That a record belongs to a dialect: how sure (SURE decides alone, weights of several records add up) and why.
pub struct Sign {
    pub weight: u32,
    pub why: Cow<'static, str>,
    pub version: Option<String>,
}

impl Sign {
    pub fn new(weight: u32, why: impl Into<Cow<'static, str>>) -> Option<Sign> {
        Sign::of_version(weight, why, None)
    }

    pub fn of_version(
        weight: u32,
        why: impl Into<Cow<'static, str>>,
        version: Option<String>,
    ) -> Option<Sign> {
        let why = why.into();
        Some(Sign {
            weight,
            why,
            version,
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

/// The mapper of one dialect: records in, calls on the emitter out.
pub trait Mapper {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome;

    /// The end of the stream.
    fn close(&mut self, _out: &mut Emitter<'_>) {}

    /// Asked when a verdict is wanted and the stream has not said how it ended; None: nothing special is known.
    fn judge(&self, _run: &Reducer, _exit: &Exit) -> Option<Ending> {
        None
    }
}

/// One line of the table.
pub struct Dialect {
    pub name: &'static str,
    pub sign: fn(Value<'_>) -> Option<Sign>,
    pub mapper: fn() -> Box<dyn Mapper + Send + Sync>,
}

/// Every dialect; the order is that of preference when a stream fits two equally well.
pub static DIALECTS: &[Dialect] = &[
    pi::DIALECT,
    pi_session::DIALECT,
    evosci::DIALECT,
    minicode::DIALECT,
    claude::DIALECT,
    claude_transcript::DIALECT,
];

/// The dialect of that name.
pub fn named(name: &str) -> Option<&'static Dialect> {
    DIALECTS.iter().find(|dialect| dialect.name == name)
}

/// Whether the object has the shape of a top-level record of the dialect (of any, if none is known yet).
pub fn is_record(value: Value<'_>, dialect: Option<&Dialect>) -> bool {
    match dialect {
        Some(dialect) => (dialect.sign)(value).is_some(),
        None => DIALECTS
            .iter()
            .any(|dialect| (dialect.sign)(value).is_some()),
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
