//! The account: what became of every byte of the input.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::data::{Data, map};
use crate::event::Place;
use crate::frame::KEPT_BYTES;
use crate::json::Row;
use crate::record::Record;

/// Of how many malformed lines line number, offset, reason and text are kept.
pub const MAX_MALFORMED_KEPT: usize = 1000;
/// How many different types (or rules) are counted one by one; the rest counts under "(other)".
pub const MAX_NAMES: usize = 1000;
/// Characters of a type that are kept.
const MAX_NAME: usize = 100;

/// A line that is not one JSON text.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Malformed {
    /// 1-based.
    pub line: u64,
    /// Byte offset of its first byte in the stream.
    pub offset: u64,
    /// One of the five phrases of [`record::reason`](crate::record::reason).
    pub reason: Cow<'static, str>,
    /// Its first bytes.
    pub text: String,
    /// How many it has, line end not included.
    pub size: u64,
}

impl Malformed {
    /// Where it stands in the stream.
    pub fn place(&self) -> Place {
        Place {
            line: self.line,
            offset: self.offset,
            size: self.size,
        }
    }

    pub fn to_data(&self) -> Data<'_> {
        map([
            ("line", (self.line as i64).into()),
            ("offset", (self.offset as i64).into()),
            ("reason", (&*self.reason).into()),
            ("text", self.text.as_str().into()),
        ])
    }
}

/// How many, and how many bytes of the input they stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Tally {
    pub count: u64,
    pub bytes: u64,
}

/// The account of a stream so far. Bytes of a line that has not ended yet are in none of the counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Report {
    pub lines: u64,
    /// Lines that are one valid JSON text, of any kind.
    pub records: u64,
    /// The other lines that are not blank.
    pub malformed: u64,
    /// Records got back from malformed lines.
    pub salvaged: u64,
    /// Records in whose text something became U+FFFD.
    pub lossy: u64,
    pub blank: u64,
    pub event_bytes: u64,
    pub ignored_bytes: u64,
    pub unknown_bytes: u64,
    pub malformed_bytes: u64,
    /// Blank lines, and a byte order mark.
    pub blank_bytes: u64,
    /// Records that a dialect knows.
    pub event_records: u64,
    /// Records of unknown types, by native type.
    pub unknown: BTreeMap<String, Tally>,
    /// What was left out on purpose, by rule.
    pub ignored: BTreeMap<String, Tally>,
    /// The stream ends in a line without LF that is not valid.
    pub truncated: bool,
    /// The first [`MAX_MALFORMED_KEPT`] of them.
    pub malformed_lines: Vec<Malformed>,
}

/// For each record a consumer calls one of [`event`](Report::event), [`ignore`](Report::ignore) and
/// [`unknown_type`](Report::unknown_type).
impl Report {
    /// All bytes accounted for, whatever became of them.
    pub fn bytes(&self) -> u64 {
        self.event_bytes
            + self.ignored_bytes
            + self.unknown_bytes
            + self.malformed_bytes
            + self.blank_bytes
    }

    /// As `Run.to_dict()["report"]` has it.
    pub fn to_data(&self) -> Data<'_> {
        let number = |value: u64| Data::from(value as i64);
        let by_name = |tallies: &BTreeMap<String, Tally>, told: fn(&Tally) -> u64| {
            let members = tallies.iter();
            Data::Map(
                members
                    .map(|(name, tally)| (name.clone().into(), number(told(tally))))
                    .collect(),
            )
        };
        let counts = |tallies| by_name(tallies, |tally| tally.count);
        let sizes = |tallies| by_name(tallies, |tally| tally.bytes);
        let malformed = self.malformed_lines.iter().map(|line| line.to_data());
        map([
            ("bytes", number(self.bytes())),
            ("lines", number(self.lines)),
            ("records", number(self.records)),
            ("malformed", number(self.malformed)),
            ("salvaged", number(self.salvaged)),
            ("lossy", number(self.lossy)),
            ("blank", number(self.blank)),
            ("event_bytes", number(self.event_bytes)),
            ("ignored_bytes", number(self.ignored_bytes)),
            ("unknown_bytes", number(self.unknown_bytes)),
            ("malformed_bytes", number(self.malformed_bytes)),
            ("blank_bytes", number(self.blank_bytes)),
            ("event_records", number(self.event_records)),
            ("unknown", counts(&self.unknown)),
            ("unknown_sizes", sizes(&self.unknown)),
            ("ignored", counts(&self.ignored)),
            ("ignored_sizes", sizes(&self.ignored)),
            ("truncated", self.truncated.into()),
            ("malformed_lines", Data::List(malformed.collect())),
        ])
    }

    /// A dialect knows this record.
    #[inline]
    pub fn event(&mut self, record: &Record<'_>) {
        self.event_records += 1;
        self.event_bytes += record.share;
    }

    /// Lines with records that a dialect knows.
    pub(crate) fn row(&mut self, row: &Row<'_>) {
        self.lines += row.count;
        self.records += row.count;
        self.event_records += row.count;
        self.event_bytes += row.bytes.len() as u64;
    }

    /// A dialect knows this record and leaves it out, by a rule that it can name.
    pub fn ignore(&mut self, record: &Record<'_>, rule: &str) {
        self.ignore_bytes(record.share, rule);
    }

    /// No dialect knows a record of this type.
    pub fn unknown_type(&mut self, record: &Record<'_>, native_type: Option<&str>) {
        self.unknown_bytes += record.share;
        let name = native_type.unwrap_or("(none)");
        count(&mut self.unknown, name, record.share);
    }

    /// Half a character in a record's text became U+FFFD. A record that was salvaged so is counted already.
    pub fn lossy_record(&mut self) {
        self.lossy += 1;
    }

    pub(crate) fn ignore_bytes(&mut self, size: u64, rule: &str) {
        self.ignored_bytes += size;
        count(&mut self.ignored, rule, size);
    }

    pub(crate) fn malformed_line(
        &mut self,
        line: &crate::frame::Line<'_>,
        reason: &'static str,
    ) -> Malformed {
        self.malformed += 1;
        self.malformed_bytes += line.size;
        let kept = &line.body[..line.body.len().min(KEPT_BYTES)];
        let malformed = Malformed {
            line: line.number,
            offset: line.offset,
            reason: reason.into(),
            text: String::from_utf8_lossy(kept).into_owned(),
            size: match line.too_long {
                true => line.size - u64::from(line.ended),
                false => line.body.len() as u64,
            },
        };
        if self.malformed_lines.len() < MAX_MALFORMED_KEPT {
            self.malformed_lines.push(malformed.clone());
        }
        malformed
    }
}

/// Counts a name that the input chose: neither many nor long ones may grow the account.
fn count(tallies: &mut BTreeMap<String, Tally>, mut name: &str, bytes: u64) {
    if name.len() > MAX_NAME
        && let Some((end, _)) = name.char_indices().nth(MAX_NAME)
    {
        name = &name[..end];
    }
    let tally = match tallies.get_mut(name) {
        Some(seen) => seen,
        None => {
            if tallies.len() >= MAX_NAMES {
                name = "(other)";
            }
            tallies.entry(name.to_owned()).or_default()
        }
    };
    tally.count += 1;
    tally.bytes += bytes;
}
