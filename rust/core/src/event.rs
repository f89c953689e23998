//! What mappers say of the wire: events with the stamp of their line, borrowed from the record they come from, and what
//! only the reducer reads.

use std::time::{Duration, UNIX_EPOCH};

use crate::data::Data;
use crate::json::{Text, Value};
use crate::number::{Number, price};

/// The event kinds, with the names that users see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, Default)]
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
    pub(crate) fn to_static(&self) -> Stamp<'static> {
        let own = |text: &Option<Text<'a>>| text.as_ref().map(|t| Text::from(t.to_string()));
        Stamp {
            session_id: own(&self.session_id),
            message_id: own(&self.message_id),
            timestamp: own(&self.timestamp),
            model: own(&self.model),
            parent: own(&self.parent),
            extra: self
                .extra
                .iter()
                .map(|(key, value)| {
                    let raw = value.to_raw().into_vec();
                    (Text::from(key.to_string()), Data::Raw(raw.into()))
                })
                .collect(),
        }
    }

    /// The thread that the line belongs to.
    pub fn thread(&self) -> Option<&str> {
        self.parent.as_deref()
    }

    pub(crate) fn is_lossy(&self) -> bool {
        let texts = [
            &self.session_id,
            &self.message_id,
            &self.timestamp,
            &self.model,
            &self.parent,
        ];
        texts.into_iter().flatten().any(Text::is_lossy)
            || self
                .extra
                .iter()
                .any(|(key, value)| key.is_lossy() || value.is_lossy())
    }
}

/// One event.
#[derive(Debug)]
pub struct Event<'e> {
    pub update: Update<'e>,
    pub stamp: &'e Stamp<'e>,
    pub line: u64,
    pub offset: u64,
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
}

#[derive(Clone, Debug, PartialEq)]
pub struct PlanEntry<'a> {
    pub content: Text<'a>,
    pub status: &'static str,
    pub priority: &'static str,
}

impl PlanEntry<'_> {
    pub fn to_data(&self) -> Data<'_> {
        crate::data::map([
            ("content", self.content.borrow().into()),
            ("status", self.status.into()),
            ("priority", self.priority.into()),
        ])
    }
}

/// Token counts; what the wire did not print is None.
#[derive(Clone, Debug, Default)]
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
    /// What `run.usage.run` becomes, where the record tells only a share of it.
    pub total: Option<&'e Tokens<'e>>,
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
    iso(price(value)?)
}

/// Seconds since 1970, fractions cut to milliseconds, as ISO 8601; None for what is no sensible time.
pub fn iso_seconds(value: Option<Value<'_>>) -> Option<Text<'static>> {
    let seconds = price(value)?;
    (0.0..LAST_MILLIS / 1000.0)
        .contains(&seconds.as_f64())
        .then(|| iso(seconds.thousandfold()))?
}

fn iso(millis: Number) -> Option<Text<'static>> {
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
