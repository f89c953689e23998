//! What mappers say of the wire: events with the stamp of their line, borrowed from the record they come from, and what
//! only the reducer reads.

use std::borrow::Cow;
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::data::Data;
use crate::json::{Text, Value};
use crate::number::{Number, price};

/// The event kinds, with the names that users see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[repr(u8)]
pub enum Kind {
    Message,
    Thought,
    User,
    ToolCall,
    ToolCallUpdate,
    Plan,
    Error,
    Usage,
    State,
}

impl Kind {
    pub const ALL: [Kind; 9] = [
        Kind::Message,
        Kind::Thought,
        Kind::User,
        Kind::ToolCall,
        Kind::ToolCallUpdate,
        Kind::Plan,
        Kind::Error,
        Kind::Usage,
        Kind::State,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Message => "agent_message_chunk",
            Kind::Thought => "agent_thought_chunk",
            Kind::User => "user_message_chunk",
            Kind::ToolCall => "tool_call",
            Kind::ToolCallUpdate => "tool_call_update",
            Kind::Plan => "plan",
            Kind::Error => "error",
            Kind::Usage => "usage",
            Kind::State => "state",
        }
    }

    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A set of event kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Kinds(u16);

impl Kinds {
    pub const NONE: Kinds = Kinds(0);
    /// All but `state`.
    pub const EVENTS: Kinds = Kinds((1 << 8) - 1);

    pub fn with(self, kind: Kind) -> Kinds {
        Kinds(self.0 | 1 << kind as u8)
    }

    pub fn has(self, kind: Kind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }
}

/// What a line says beside its update. `parent` is the id of the call that delegated to the sub-agent whose line this
/// is; it also names the thread that texts belong to (None: the main thread).
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Stamp<'a> {
    pub session_id: Option<Text<'a>>,
    pub message_id: Option<Text<'a>>,
    pub timestamp: Option<Text<'a>>,
    pub model: Option<Text<'a>>,
    pub parent: Option<Text<'a>>,
    pub extra: Vec<(Text<'a>, Data<'a>)>,
}

impl<'a> Stamp<'a> {
    /// The stamp of a sub-agent's line.
    pub fn of_thread(parent: Option<impl Into<Text<'a>>>) -> Self {
        Stamp {
            parent: parent.map(Into::into),
            ..Stamp::default()
        }
    }

    /// The stamp of a line of which only the time is known.
    pub fn at(timestamp: Option<Text<'a>>) -> Self {
        Stamp {
            timestamp,
            ..Stamp::default()
        }
    }

    /// The same stamp without a tie to its record.
    pub fn to_static(&self) -> Stamp<'static> {
        let own = |text: &Option<Text<'a>>| text.as_ref().map(Text::to_static);
        Stamp {
            session_id: own(&self.session_id),
            message_id: own(&self.message_id),
            timestamp: own(&self.timestamp),
            model: own(&self.model),
            parent: own(&self.parent),
            extra: to_static(&self.extra),
        }
    }

    /// What it says besides `extra`.
    pub(crate) fn texts(&self) -> [&Option<Text<'a>>; 5] {
        [
            &self.session_id,
            &self.message_id,
            &self.timestamp,
            &self.model,
            &self.parent,
        ]
    }

    /// The thread that the line belongs to.
    pub fn thread(&self) -> Option<&str> {
        self.parent.as_deref()
    }

    pub(crate) fn is_lossy(&self) -> bool {
        self.texts().into_iter().flatten().any(Text::is_lossy)
            || self
                .extra
                .iter()
                .any(|(key, value)| key.is_lossy() || value.is_lossy())
    }
}

/// The same members without a tie to their record.
fn to_static(members: &[(Text<'_>, Data<'_>)]) -> Vec<(Text<'static>, Data<'static>)> {
    let own = |(key, value): &(Text<'_>, Data<'_>)| (key.to_static(), value.to_static());
    members.iter().map(own).collect()
}

/// Where a record stands in its stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Place {
    /// Number of its line, 1-based; 0 for no record at all.
    pub line: u64,
    /// Byte offset of its first byte.
    pub offset: u64,
    /// Its bytes, line end not included.
    pub size: u64,
}

impl Place {
    /// As the `span` of events and cut results has it.
    pub fn to_data(self) -> Data<'static> {
        crate::data::map([
            ("line", (self.line as i64).into()),
            ("offset", (self.offset as i64).into()),
            ("bytes", (self.size as i64).into()),
        ])
    }
}

/// One event.
#[derive(Debug)]
pub struct Event<'e> {
    pub update: Update<'e>,
    pub stamp: &'e Stamp<'e>,
    /// Of the record that made it come.
    pub place: Place,
}

/// The update of an event, one variant for each shape.
#[derive(Debug)]
pub enum Update<'e> {
    Chunk(Chunk<'e>),
    ToolCall(ToolCall<'e>),
    ToolCallUpdate(ToolCallUpdate<'e>),
    Plan(&'e [PlanEntry<'e>]),
    Error {
        message: &'e str,
        fatal: bool,
        /// An event, but no error of the run: a retry, a warning.
        notice: bool,
    },
    Usage(Usage<'e>),
    State(&'e State<'e>),
}

#[derive(Debug)]
pub struct Chunk<'e> {
    pub kind: Kind,
    pub content: Content<'e>,
    /// Characters of this thread and kind that are taken back first.
    pub retract: usize,
    /// Number of the text block: chunks of one block belong together.
    pub block: u32,
}

/// A content block of a chunk.
#[derive(Debug)]
pub enum Content<'e> {
    Text(&'e str),
    Image(&'e Image<'e>),
}

#[derive(Clone, Debug)]
pub struct Image<'a> {
    pub data: Text<'a>,
    pub mime: Text<'a>,
    pub uri: Option<Text<'a>>,
}

/// One item of a tool call's content.
#[derive(Clone, Debug)]
pub enum Item<'a> {
    Text(Text<'a>),
    Image(Image<'a>),
    Diff {
        path: Text<'a>,
        /// None: a new file, or the wire does not tell the old text.
        old: Option<Text<'a>>,
        new: Text<'a>,
    },
}

impl<'a> Item<'a> {
    pub fn text(text: impl Into<Text<'a>>) -> Self {
        Item::Text(text.into())
    }

    /// The same item without a tie to its record.
    pub fn to_static(&self) -> Item<'static> {
        match self {
            Item::Text(text) => Item::Text(text.to_static()),
            Item::Image(image) => Item::Image(image.to_static()),
            Item::Diff { path, old, new } => Item::Diff {
                path: path.to_static(),
                old: old.as_ref().map(Text::to_static),
                new: new.to_static(),
            },
        }
    }

    pub fn is_lossy(&self) -> bool {
        match self {
            Item::Text(text) => text.is_lossy(),
            Item::Image(image) => image.is_lossy(),
            Item::Diff { path, old, new } => {
                path.is_lossy() || new.is_lossy() || old.as_ref().is_some_and(Text::is_lossy)
            }
        }
    }
}

impl Image<'_> {
    /// The same image without a tie to its record.
    pub fn to_static(&self) -> Image<'static> {
        Image {
            data: self.data.to_static(),
            mime: self.mime.to_static(),
            uri: self.uri.as_ref().map(Text::to_static),
        }
    }

    pub fn is_lossy(&self) -> bool {
        self.data.is_lossy()
            || self.mime.is_lossy()
            || self.uri.as_ref().is_some_and(Text::is_lossy)
    }
}

/// The content of a tool result that is one text; nothing if there is no text.
pub fn text_content<'a>(text: Option<Text<'a>>) -> Vec<Item<'a>> {
    text.map(Item::Text).into_iter().collect()
}

#[derive(Clone, Debug)]
pub struct Location<'a> {
    pub path: Text<'a>,
    /// 1-based, only if the harness printed it.
    pub line: Option<i64>,
}

impl Location<'_> {
    /// The same location without a tie to its record.
    pub fn to_static(&self) -> Location<'static> {
        Location {
            path: self.path.to_static(),
            line: self.line,
        }
    }
}

#[derive(Debug)]
pub struct ToolCall<'e> {
    pub id: &'e str,
    pub name: Option<&'e str>,
    pub title: &'e str,
    pub kind: &'static str,
    pub status: &'e str,
    pub input: &'e Data<'e>,
    pub content: &'e [Item<'e>],
    pub locations: &'e [Location<'e>],
    /// Number of the call: an id may name several calls, a number names one.
    pub call: u32,
    pub started_at: Option<&'e str>,
    /// The content is about the call, not its result.
    pub no_result: bool,
    /// Its place among the calls of the run: before those with a greater one.
    pub order: Option<&'e str>,
}

#[derive(Debug)]
pub struct ToolCallUpdate<'e> {
    pub id: &'e str,
    pub status: Option<&'e str>,
    pub title: Option<&'e str>,
    pub content: &'e [Item<'e>],
    pub locations: &'e [Location<'e>],
    pub raw_output: Option<&'e Data<'e>>,
    pub call: u32,
    /// Whether this is the result.
    pub done: bool,
    pub facts: &'e Facts<'e>,
}

/// What an update tells the reducer besides its event.
#[derive(Debug, Default)]
pub struct Facts<'a> {
    /// Arguments that came late.
    pub input: Option<Data<'a>>,
    pub name: Option<Text<'a>>,
    pub kind: Option<&'static str>,
    pub exit_code: Option<i64>,
    pub duration_ms: Option<Number>,
    pub started_at: Option<Text<'a>>,
    /// If it is not the time of the line.
    pub ended_at: Option<Text<'a>>,
    /// The result's text, where it is not the content's.
    pub result: Option<Text<'a>>,
    /// The content is about the call, not its result.
    pub no_result: bool,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct PlanEntry<'a> {
    pub content: Text<'a>,
    pub status: Cow<'static, str>,
    pub priority: Cow<'static, str>,
}

impl PlanEntry<'_> {
    /// The same entry without a tie to its record.
    pub fn to_static(&self) -> PlanEntry<'static> {
        PlanEntry {
            content: self.content.to_static(),
            status: self.status.clone(),
            priority: self.priority.clone(),
        }
    }

    pub fn to_data(&self) -> Data<'_> {
        crate::data::map([
            ("content", self.content.borrow().into()),
            ("status", (&*self.status).into()),
            ("priority", (&*self.priority).into()),
        ])
    }
}

/// Token counts; what the wire did not print is None.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Tokens<'a> {
    /// Input including the cached and cache-written shares.
    pub prompt: Option<i64>,
    pub completion: Option<i64>,
    /// The cache-read share of `prompt`.
    pub cached: Option<i64>,
    /// USD, only where the harness priced it.
    pub cost: Option<Number>,
    /// The harness's other counters under its own names.
    pub extra: Vec<(Text<'a>, Data<'a>)>,
}

impl Tokens<'_> {
    /// The same counts without a tie to their record.
    pub fn to_static(&self) -> Tokens<'static> {
        Tokens {
            prompt: self.prompt,
            completion: self.completion,
            cached: self.cached,
            cost: self.cost,
            extra: to_static(&self.extra),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.prompt.is_none()
            && self.completion.is_none()
            && self.cached.is_none()
            && self.cost.is_none()
            && self.extra.is_empty()
    }

    /// As the `usage` of an event.
    pub fn to_data(&self) -> Data<'_> {
        let mut members: Vec<(Text<'_>, Data<'_>)> = Vec::new();
        for (name, value) in [
            ("promptTokens", self.prompt),
            ("completionTokens", self.completion),
            ("cachedTokens", self.cached),
        ] {
            if let Some(value) = value {
                members.push((name.into(), value.into()));
            }
        }
        if let Some(cost) = self.cost {
            members.push(("costUsd".into(), cost.into()));
        }
        if !self.extra.is_empty() {
            members.push(("extra".into(), Data::Map(self.extra.clone())));
        }
        Data::Map(members)
    }
}

#[derive(Debug)]
pub struct Usage<'e> {
    /// The harness's total, not one model call.
    pub run: bool,
    pub tokens: &'e Tokens<'e>,
    /// Names the model call: the last usage of a key counts.
    pub key: Option<&'e str>,
    /// A call that is not the main loop's.
    pub side: bool,
    /// The counts are those of the call's beginning.
    pub begun: bool,
    /// What `run.usage.run` becomes, where the record tells only a share of it.
    pub total: Option<&'e Tokens<'e>>,
    /// The harness's own total of each model.
    pub models: &'e [(Text<'e>, Tokens<'e>)],
    /// Which model calls are in the harness's totals and not on the wire.
    pub beyond: Option<&'static str>,
}

impl<'e> Usage<'e> {
    /// One model call.
    pub fn call(tokens: &'e Tokens<'e>) -> Self {
        Usage {
            run: false,
            tokens,
            key: None,
            side: false,
            begun: false,
            total: None,
            models: &[],
            beyond: None,
        }
    }

    /// The harness's own total.
    pub fn run(tokens: &'e Tokens<'e>) -> Self {
        Usage {
            run: true,
            ..Usage::call(tokens)
        }
    }
}

/// A state: its name and its details, None left out.
#[derive(Clone, Debug)]
pub struct State<'a> {
    pub name: &'static str,
    pub details: Vec<(&'static str, Data<'a>)>,
}

impl<'a> State<'a> {
    pub fn new(name: &'static str) -> Self {
        State {
            name,
            details: Vec::new(),
        }
    }

    /// Adds a detail; Null says that there is none.
    pub fn with(mut self, key: &'static str, value: impl Into<Data<'a>>) -> Self {
        let value = value.into();
        if !matches!(value, Data::Null) {
            self.details.push((key, value));
        }
        self
    }

    /// The same state without a tie to its record.
    pub fn to_static(&self) -> State<'static> {
        let own = |(key, value): &(&'static str, Data<'a>)| (*key, value.to_static());
        State {
            name: self.name,
            details: self.details.iter().map(own).collect(),
        }
    }

    pub fn get(&self, key: &str) -> Option<&Data<'a>> {
        let found = self.details.iter().find(|(name, _)| *name == key)?;
        Some(&found.1)
    }

    pub fn text(&self, key: &str) -> Option<Text<'_>> {
        self.get(key)?.text()
    }
}

impl<'e> Event<'e> {
    pub fn kind(&self) -> Kind {
        match &self.update {
            Update::Chunk(chunk) => chunk.kind,
            Update::ToolCall(_) => Kind::ToolCall,
            Update::ToolCallUpdate(_) => Kind::ToolCallUpdate,
            Update::Plan(_) => Kind::Plan,
            Update::Error { .. } => Kind::Error,
            Update::Usage(_) => Kind::Usage,
            Update::State(_) => Kind::State,
        }
    }
}

/// Where events go.
pub trait Sink {
    fn take(&mut self, event: &Event<'_>);
}

/// 9999-12-31, the last millisecond that ISO 8601 can say with four digits.
const LAST_MILLIS: f64 = 253_402_300_800_000.0;

/// Milliseconds since 1970 as ISO 8601 in UTC with milliseconds; None for what is no sensible time.
pub fn iso_millis(value: Option<Value<'_>>) -> Option<Text<'static>> {
    format_millis(price(value)?)
}

/// Seconds since 1970, fractions cut to milliseconds, as ISO 8601; None for what is no sensible time.
pub fn iso_seconds(value: Option<Value<'_>>) -> Option<Text<'static>> {
    let seconds = price(value)?;
    (0.0..LAST_MILLIS / 1000.0)
        .contains(&seconds.as_f64())
        .then(|| format_millis(seconds.thousandfold()))?
}

fn format_millis(millis: Number) -> Option<Text<'static>> {
    if !(0.0..LAST_MILLIS).contains(&millis.as_f64()) {
        return None;
    }
    let whole = match millis {
        Number::Int(value) => value as u64,
        Number::Float(value) => value as u64,
    };
    let time = UNIX_EPOCH + Duration::from_millis(whole);
    Some(Text::from(
        humantime::format_rfc3339_millis(time).to_string(),
    ))
}

/// A printed time as ISO 8601 in UTC: text with a zone, seconds or milliseconds since 1970; None for anything else.
///
/// Text in UTC stays as it is, digits of the second included. Text without a zone is no time: nobody knows whose.
pub fn iso(value: Option<Value<'_>>) -> Option<Text<'_>> {
    let Some(text) = value?.text() else {
        let millis = price(value)?.as_f64() >= 100_000_000_000.0;
        return if millis {
            iso_millis(value)
        } else {
            iso_seconds(value)
        };
    };
    let seconds = civil_seconds(&text)?;
    let rest = &text[19..];
    let digits = match rest.strip_prefix('.') {
        Some(after) => 1 + after.bytes().take_while(u8::is_ascii_digit).count(),
        None => 0,
    };
    let (fraction, zone) = rest.split_at(digits);
    if fraction == "." {
        return None;
    }
    if zone == "Z" {
        return Some(text);
    }
    let sign = match zone.as_bytes().first()? {
        b'+' => -60,
        b'-' => 60,
        _ => return None,
    };
    if zone.len() != 6 || zone.as_bytes()[3] != b':' {
        return None;
    }
    let minutes = number(zone.get(1..3)?)? * 60 + number(zone.get(4..6)?)?;
    let seconds = seconds + sign * minutes;
    if !(FIRST_SECOND..LAST_MILLIS as i64 / 1000).contains(&seconds) {
        return None;
    }
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    Some(Text::from(format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z"
    )))
}

/// Milliseconds since 1970 of a time as [`iso`] gives it.
pub fn millis(time: &str) -> i64 {
    let seconds = civil_seconds(time).unwrap_or(0);
    let mut fraction = 0;
    for at in 0..3 {
        let digit = time
            .as_bytes()
            .get(20 + at)
            .filter(|byte| byte.is_ascii_digit());
        let digit = digit.filter(|_| time.as_bytes()[19] == b'.');
        fraction = fraction * 10 + digit.map_or(0, |digit| i64::from(digit - b'0'));
    }
    seconds * 1000 + fraction
}

/// 0001-01-01.
const FIRST_SECOND: i64 = -62_135_596_800;

/// Seconds since 1970 of `2026-11-29T18:18:33`, with which the text begins.
fn civil_seconds(text: &str) -> Option<i64> {
    let whole = text.get(..19)?;
    let marks = [4, 7, 10, 13, 16].map(|at| whole.as_bytes()[at]);
    if marks != *b"--T::" {
        return None;
    }
    let part = |at: usize, end: usize| number(whole.get(at..end)?);
    let (year, month, day) = (part(0, 4)?, part(5, 7)?, part(8, 10)?);
    let (hour, minute, second) = (part(11, 13)?, part(14, 16)?, part(17, 19)?);
    if year == 0 || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = days(year, month, day);
    if civil(days) != (year, month, day) {
        return None; // no such month, or no such day in it
    }
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

fn number(digits: &str) -> Option<i64> {
    let digits = digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then_some(digits)?;
    digits.parse().ok()
}

/// Days since 1970 of a date in the Gregorian calendar. The year begins in March, so that a leap day is its last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + (153 * month + 2) / 5 + day - 719_469
}

/// Year, month and day of the day that is so many days after 1970-01-01.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = year + era * 400;
    if month < 10 {
        (year, month + 3, day)
    } else {
        (year + 1, month - 9, day)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Tape;

    #[test]
    fn times_of_any_form_are_told_in_utc() {
        let mut tape = Tape::new();
        for (wire, wanted) in [
            (
                r#""2026-03-01T19:00:04+09:00""#,
                Some("2026-03-01T10:00:04Z"),
            ),
            (
                r#""2026-03-01T10:00:05.123456789Z""#,
                Some("2026-03-01T10:00:05.123456789Z"),
            ),
            (
                r#""2024-02-29T23:30:05.5-01:30""#,
                Some("2024-03-01T01:00:05.5Z"),
            ),
            (r#""2026-02-29T10:00:00Z""#, None),
            (r#""2026-03-01T10:00:05""#, None),
            (r#""2026-03-01T10:00:05.Z""#, None),
            (r#""0001-01-01T00:00:00+09:00""#, None),
            (r#""yesterday""#, None),
            ("1772359202000", Some("2026-03-01T10:00:02.000Z")),
            ("1772359203.25", Some("2026-03-01T10:00:03.250Z")),
            ("true", None),
        ] {
            let doc = tape.parse(wire.as_bytes()).unwrap();
            assert_eq!(iso(Some(doc.root())).as_deref(), wanted, "{wire}");
        }
    }

    #[test]
    fn days_and_dates_are_inverse() {
        for day in -719_162..2_932_896 {
            let (year, month, of_month) = civil(day);
            assert_eq!(days(year, month, of_month), day);
        }
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(millis("2026-03-01T10:00:05.123456789Z"), 1_772_359_205_123);
        assert_eq!(millis("2026-03-01T10:00:05.1Z"), 1_772_359_205_100);
        assert_eq!(millis("2026-03-01T10:00:05Z"), 1_772_359_205_000);
    }
}
