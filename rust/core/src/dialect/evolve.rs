//! evolve: a stream that already consists of OutputEvents (seed 003), such as `headrace events` prints.
//!
//! Valid events go out as they came in, `state` events included; what is not of their shape is left out. A text block
//! ends where its kind or messageId changes, and at any other event of its thread. A `tool_call` whose id is still open
//! is a new call, unless it says that the call has ended. A usage that comes again for a messageId takes the place of the
//! earlier one, as the seed has it. An error that is not fatal is a notice: harnesses print it while they try again.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{Dialect, Make, Mapper, Outcome, SURE, Sign, filled, has_any, kimi};
use crate::data::Data;
use crate::emit::{Call, Emitter, Update, scoped};
use crate::event::{Image, Item, Kind, Location, Stamp, State, Tokens};
use crate::json::{Series, Text, Value};
use crate::number::{count, price};
use crate::record::Record;
use crate::run::{Ending, Exit, LastWord, Reducer};
use crate::tool;

pub const DIALECT: Dialect = Dialect {
    name: "evolve",
    sign,
    mapper: Make::of::<Evolve>(),
    series: SERIES,
};

/// Chunks of one block.
const SERIES: &[Series] = &[Series {
    is: &[
        (
            &["update", "sessionUpdate"],
            &["agent_message_chunk", "agent_thought_chunk"],
        ),
        (&["update", "content", "type"], &["text"]),
    ],
    text: &["update", "content", "text"],
    same: &[
        &["sessionId"],
        &["messageId"],
        &["model"],
        &["parentToolCallId"],
    ],
    without: &[&["extra", "retract"]],
    ..Series::NO_FACTS
}];

const KINDS: &[&str] = &[
    "read",
    "edit",
    "delete",
    "move",
    "search",
    "execute",
    "think",
    "fetch",
    "switch_mode",
    "other",
];
const STATUSES: &[&str] = &["pending", "in_progress", "completed", "failed"];
const OUTCOMES: &[&str] = &[
    "completed",
    "failed",
    "cancelled",
    "timeout",
    "denied",
    "limit",
    "incomplete",
];

#[derive(Clone, Copy)]
enum Detail {
    Text,
    Count,
    Price,
    Flag,
}

/// A state of `types.StateUpdate`: its phases, if it has any, and its details.
struct Known {
    name: &'static str,
    phases: &'static [&'static str],
    details: &'static [(&'static str, Detail)],
}

const STATES: &[Known] = &[
    Known {
        name: "session",
        phases: &[],
        details: &[
            ("sessionId", Detail::Text),
            ("version", Detail::Text),
            ("model", Detail::Text),
            ("cwd", Detail::Text),
            ("title", Detail::Text),
        ],
    },
    Known {
        name: "turn",
        phases: &["start", "end"],
        details: &[("outcome", Detail::Text), ("reason", Detail::Text)],
    },
    Known {
        name: "retry",
        phases: &["start", "end"],
        details: &[
            ("attempt", Detail::Count),
            ("maxAttempts", Detail::Count),
            ("delayMs", Detail::Price),
            ("message", Detail::Text),
            ("success", Detail::Flag),
        ],
    },
    Known {
        name: "compaction",
        phases: &["start", "end"],
        details: &[
            ("trigger", Detail::Text),
            ("success", Detail::Flag),
            ("summary", Detail::Text),
            ("message", Detail::Text),
        ],
    },
    Known {
        name: "approval",
        phases: &["requested", "settled"],
        details: &[
            ("toolCallId", Detail::Text),
            ("toolName", Detail::Text),
            ("decision", Detail::Text),
            ("message", Detail::Text),
        ],
    },
    Known {
        name: "queue",
        phases: &[],
        details: &[],
    },
    Known {
        name: "model",
        phases: &[],
        details: &[("model", Detail::Text), ("effort", Detail::Text)],
    },
    Known {
        name: "end",
        phases: &[],
        details: &[("outcome", Detail::Text), ("reason", Detail::Text)],
    },
];

fn sign(record: Value<'_>) -> Option<Sign> {
    let kind = record.get("update")?.text_of("sessionUpdate")?;
    if has_any(record, &["jsonrpc", "method"]) {
        return None;
    }
    let weight = if Kind::named(&kind).is_some() {
        SURE
    } else {
        40
    };
    Sign::new(weight, format!("an update {}", &*kind))
}

/// One of the words, if the value is one of them.
fn word(value: Option<Value<'_>>, words: &'static [&'static str]) -> Option<&'static str> {
    let text = value?.text()?;
    words.iter().find(|word| **word == &*text).copied()
}

#[derive(Default, Deserialize, Serialize)]
struct Evolve {
    /// Key of the latest call of an id.
    keys: HashMap<String, String>,
    /// Kind and messageId of a thread's open block.
    saying: HashMap<Option<String>, (Kind, Option<String>)>,
    /// The stream has state events: they tell session and model.
    stateful: bool,
    /// A fatal error came, and no answer since.
    failed: bool,
}

impl Mapper for Evolve {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        let value = record.value();
        let Some(update) = value.get("update").filter(Value::is_object) else {
            return Outcome::Unknown;
        };
        let stamp = stamp_of(value, out);
        let kind = update.text_of("sessionUpdate");
        let kind = kind.as_deref().and_then(Kind::named);
        if !self.stateful && kind != Some(Kind::State) && stamp.parent.is_none() {
            let details = [
                ("sessionId", filled(stamp.session_id.clone())),
                ("model", filled(stamp.model.clone())),
            ];
            out.session_state(&details, &Stamp::default());
        }
        if let Some(kind @ (Kind::Message | Kind::Thought | Kind::User)) = kind {
            return self.chunk(kind, update.get("content"), stamp, out);
        }
        self.end_block(&stamp, out);
        match kind {
            Some(Kind::ToolCall) => self.call(update, &stamp, out),
            Some(Kind::ToolCallUpdate) => self.call_update(update, &stamp, out),
            Some(Kind::Plan) => plan(update, &stamp, out),
            Some(Kind::Error) => self.error(update, &stamp, out),
            Some(Kind::Usage) => usage(update, &stamp, out),
            Some(Kind::State) => self.state(update, &stamp, out),
            _ => Outcome::Unknown,
        }
    }

    /// No state event says how it ended; a stream that has such events would have said that it is complete.
    fn judge(&self, run: &Reducer, exit: &Exit) -> Option<Ending> {
        if let Some(code) = exit.code.filter(|code| *code != 0) {
            let why = "no terminal state, and the exit code tells of a failure";
            return Some(Ending::new(
                "failed",
                Some(&format!("exit code {code}")),
                why,
            ));
        }
        if self.failed {
            return Some(Ending::new("failed", None, "a fatal error came last"));
        }
        let answered = run.progress.last_word == LastWord::Answer;
        let complete = !self.stateful && answered && run.progress.open_calls.is_empty();
        let why = "the last message asks for no tool";
        complete.then(|| Ending::new("completed", None, why))
    }
}

impl Evolve {
    // ---------------------------------------------------------------- chunks

    fn chunk(
        &mut self,
        kind: Kind,
        content: Option<Value<'_>>,
        mut stamp: Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        if let Some(image) = content.and_then(image_of) {
            self.end_block(&stamp, out);
            out.image(kind, &image, &stamp);
            return Outcome::Mapped;
        }
        let is_text = |content: &Value<'_>| content.text_of("type").as_deref() == Some("text");
        let text = content
            .filter(is_text)
            .and_then(|content| content.get("text"));
        let Some(text) = text.and_then(|text| text.as_str()) else {
            return Outcome::Unknown;
        };
        let id = stamp.message_id.clone().map(|id| out.keep(id));
        let thread = stamp.thread().map(str::to_owned);
        let (known_kind, mut known_id) = match self.saying.get(&thread) {
            Some((kind, id)) => (*kind, id.clone()),
            None => (kind, None),
        };
        let other_id = id.is_some() && known_id.is_some() && known_id != id;
        if known_kind != kind || other_id {
            self.end_block(&stamp, out);
            known_id = None;
        }
        let id = id.filter(|id| !id.is_empty()).or(known_id);
        self.saying.insert(thread, (kind, id));
        let retract = stamp
            .extra
            .iter()
            .rev()
            .find(|(key, _)| &**key == "retract");
        let retract = match retract {
            Some((_, Data::Wire(value))) => count(Some(*value)).unwrap_or(0),
            _ => 0,
        };
        if retract > 0 {
            stamp.extra.retain(|(key, _)| &**key != "retract");
        }
        let retract = usize::try_from(retract).unwrap_or(0);
        out.forward(kind, text, retract, &stamp);
        if kind == Kind::Message && stamp.parent.is_none() && !text.raw().is_empty() {
            self.failed = false;
        }
        Outcome::Mapped
    }

    fn end_block(&mut self, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        out.commit(stamp.thread());
        self.saying.remove(&stamp.thread().map(str::to_owned));
    }

    // ---------------------------------------------------------------- tools

    fn call(&mut self, update: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        let Some(id) = update.text_of("toolCallId").map(|id| out.keep(id)) else {
            return Outcome::Unknown;
        };
        let key = self.key(&id, stamp, true, out);
        let status = word(update.get("status"), STATUSES);
        let content = content_of(update.get("content"));
        let locations = locations_of(update.get("locations"));
        if out.is_open(&key) && matches!(status, Some("completed" | "failed")) {
            let update = Update {
                key: Some(key),
                content,
                locations,
                ..Update::new(id, status)
            };
            out.update(update, stamp);
            return Outcome::Mapped;
        }
        let input = update.get("rawInput").filter(Value::is_object);
        let call = Call {
            key: Some(key),
            status: status.unwrap_or("pending"),
            kind: word(update.get("kind"), KINDS),
            title: update.text_of("title"),
            content: Some(content),
            locations: Some(locations),
            again: true,
            ..Call::new(id, update.text_of("toolName"), input)
        };
        out.call(call, stamp);
        Outcome::Mapped
    }

    fn call_update(
        &mut self,
        update: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let Some(id) = update.text_of("toolCallId").map(|id| out.keep(id)) else {
            return Outcome::Unknown;
        };
        let update = Update {
            key: Some(self.key(&id, stamp, false, out)),
            title: update.text_of("title"),
            content: content_of(update.get("content")),
            locations: locations_of(update.get("locations")),
            raw_output: update.get("rawOutput").map(Data::Wire),
            again: true,
            ..Update::new(id, word(update.get("status"), STATUSES))
        };
        out.update(update, stamp);
        Outcome::Mapped
    }

    /// Sub-agents may use the same ids, but not every line of a call says whose it is.
    fn key(&mut self, id: &str, stamp: &Stamp<'_>, starts: bool, out: &Emitter<'_>) -> String {
        let mut key = scoped(id, stamp);
        if let Some(latest) = self.keys.get(id)
            && !out.knows(if starts { latest } else { &key })
        {
            key.clone_from(latest);
        }
        self.keys.insert(id.to_owned(), key.clone());
        key
    }

    // ---------------------------------------------------------------- the rest

    fn error(&mut self, update: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        let Some(message) = update.text_of("message") else {
            return Outcome::Unknown;
        };
        if update.get("fatal").and_then(|fatal| fatal.as_bool()) == Some(true) {
            self.failed = true;
            out.error(message, stamp, true);
        } else {
            out.notice(message, stamp);
        }
        Outcome::Mapped
    }

    fn state(&mut self, update: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        let name = update.text_of("state");
        let known = STATES
            .iter()
            .find(|state| name.as_deref() == Some(state.name));
        let Some(known) = known else {
            return Outcome::Unknown;
        };
        self.stateful = true;
        let phase = word(update.get("phase"), known.phases);
        let outcome = update.get("outcome").filter(|outcome| !outcome.is_null());
        let odd_outcome = outcome.is_some() && word(outcome, OUTCOMES).is_none();
        let no_phase = phase.is_none() && !known.phases.is_empty();
        if no_phase || odd_outcome || (known.name == "end" && outcome.is_none()) {
            return Outcome::Unknown;
        }
        let mut state = State::new(known.name).with("phase", phase);
        for (key, kind) in known.details {
            state = state.with(key, detail(update.get(key), *kind));
        }
        if known.name == "queue" {
            let prompts = kimi::items(update.get("prompts")).filter_map(|prompt| prompt.text());
            state = state.with("prompts", Data::List(prompts.map(Data::Text).collect()));
        }
        out.state(state, stamp);
        Outcome::Mapped
    }
}

fn stamp_of<'a>(value: Value<'a>, out: &mut Emitter<'_>) -> Stamp<'a> {
    let extra = value.get("extra").filter(Value::is_object);
    let extra = extra.into_iter().flat_map(|extra| extra.entries());
    Stamp {
        session_id: value.text_of("sessionId"),
        message_id: value.text_of("messageId"),
        timestamp: value.text_of("timestamp"),
        model: value.text_of("model"),
        parent: value
            .text_of("parentToolCallId")
            .map(|parent| out.keep(parent).into()),
        extra: extra.map(|(key, item)| (key.into(), item.into())).collect(),
    }
}

// -------------------------------------------------------------------- shapes

/// The items of a tool call's content that have a shape of the seed.
fn content_of(items: Option<Value<'_>>) -> Vec<Item<'_>> {
    kimi::items(items).filter_map(item_of).collect()
}

fn item_of(item: Value<'_>) -> Option<Item<'_>> {
    match item.text_of("type").as_deref() {
        Some("content") => {
            let block = item.get("content")?;
            if let Some(image) = image_of(block) {
                return Some(Item::Image(image));
            }
            let is_text = block.text_of("type").as_deref() == Some("text");
            block.text_of("text").filter(|_| is_text).map(Item::Text)
        }
        Some("diff") => Some(Item::Diff {
            path: item.text_of("path")?,
            old: item.text_of("oldText"),
            new: item.text_of("newText")?,
        }),
        _ => None,
    }
}

fn image_of(block: Value<'_>) -> Option<Image<'_>> {
    let image = Image {
        data: block.text_of("data")?,
        mime: block.text_of("mimeType")?,
        uri: block.text_of("uri"),
    };
    (block.text_of("type").as_deref() == Some("image")).then_some(image)
}

fn locations_of(items: Option<Value<'_>>) -> Vec<Location<'_>> {
    kimi::items(items).filter_map(location_of).collect()
}

fn location_of(item: Value<'_>) -> Option<Location<'_>> {
    Some(Location {
        path: item.text_of("path")?,
        line: count(item.get("line")),
    })
}

// -------------------------------------------------------------------- the rest

fn plan(update: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
    let Some(entries) = tool::plan_of(update.get("entries"), "content", "status") else {
        return Outcome::Unknown;
    };
    out.plan(&entries, stamp);
    Outcome::Mapped
}

fn usage(update: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
    let scope = word(update.get("scope"), &["call", "run"]);
    let usage = update.get("usage").filter(Value::is_object);
    let (Some(scope), Some(usage)) = (scope, usage) else {
        return Outcome::Unknown;
    };
    let extra = usage.get("extra").filter(Value::is_object);
    let extra = extra.into_iter().flat_map(|extra| extra.entries());
    let tokens = Tokens {
        prompt: count(usage.get("promptTokens")),
        completion: count(usage.get("completionTokens")),
        cached: count(usage.get("cachedTokens")),
        cost: price(usage.get("costUsd")),
        extra: extra
            .map(|(key, item)| (Text::from(key), Data::from(item)))
            .collect(),
    };
    if scope == "run" {
        out.run_usage(&tokens, stamp, None);
        return Outcome::Mapped;
    }
    let key = stamp.message_id.clone().map(|id| out.keep(id));
    out.call_usage(&tokens, stamp, key.as_deref(), false);
    Outcome::Mapped
}

/// A state's detail, if it has the type that the state wants.
fn detail(value: Option<Value<'_>>, kind: Detail) -> Data<'_> {
    match kind {
        Detail::Text => value.and_then(|value| value.text()).into(),
        Detail::Count => count(value).into(),
        Detail::Price => price(value).into(),
        Detail::Flag => value.and_then(|value| value.as_bool()).into(),
    }
}
