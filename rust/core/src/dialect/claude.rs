//! Claude Code: `claude -p --output-format stream-json --verbose` (recorded from 0.2.126 to 2.1.332).
//!
//! One `assistant` record per finished block, all blocks of a model message with one `message.id`; its usage is that of
//! the moment, so the last one of an id counts, and with partial messages the `message_delta` of the stream has the true
//! one. Stream events come before the block that repeats them: the record is the authority. A cut message is closed with
//! `abandoned_blocks`, and what it takes back goes. `result` closes a turn, not the stream: the last one decides the
//! run. Its `subtype` says success for API failures too; `is_error` does not. Synthetic assistant records are the
//! harness's own words: an error or the output of a local command, never an answer.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::anthropic::{
    self, Block, Counts, Models, Part, Plan, Records, blocks_of, chunk_of, joined_text,
};
use super::{Dialect, Make, Mapper, Outcome, SURE, Sign, filled, has_all, has_any, is_true, rule};
use crate::data::Data;
use crate::emit::{Call, Emitter, Update};
use crate::event::{Kind, PlanEntry, Stamp, State, Usage};
use crate::json::{Paths, Pattern, Plans, Series, Spot, Text, Value};
use crate::number::{Number, count, price};
use crate::record::Record;

pub const DIALECT: Dialect = Dialect {
    name: "claude",
    sign,
    mapper: Make::of::<Claude>(),
    series: SERIES,
};

// model calls that only its totals have
const HELPERS: &str = "helper calls that are not printed, such as titles, summaries and warm-ups";
const HELPERS_OR_EARLIER: &str = "helper calls that are not printed, such as titles, summaries and warm-ups, \
                                  or earlier runs of the session";

const PART: Outcome = Outcome::Ignored("part of a block");
const AGAIN: Outcome = Outcome::Ignored("record again");
const HARNESS_TEXT: Outcome = Outcome::Ignored("text of the harness");

/// What a result behind the last one says where a background task ended (up to 2.1.6): no turn has failed.
const NO_TURN: &str = "only prompt commands are supported in streaming mode";

/// Record types that say nothing for events.
const IGNORED: &[(&str, &str)] = &[
    ("rate_limit_event", "rate limit"),
    ("control_response", "control"),
    ("control_cancel_request", "control"),
    ("keep_alive", "control"),
    ("transcript_mirror", "transcript mirror"),
    ("tool_use_summary", "tool summary"),
    ("prompt_suggestion", "prompt suggestion"),
    ("auth_status", "sign-in"),
    ("active_goal", "goal"),
    ("command_lifecycle", "command lifecycle"),
];
/// The same for the subtypes of `system`.
const IGNORED_SYSTEM: &[(&str, &str)] = &[
    ("hook_started", "hook"),
    ("hook_progress", "hook"),
    ("hook_response", "hook"),
    ("thinking_tokens", "estimate"),
    ("session_state_changed", "session state"),
    ("informational", "notice"),
    ("notification", "notice"),
    ("model_refusal_no_fallback", "notice"),
    ("task_progress", "task"),
    ("task_updated", "task"),
    ("task_notification", "task"),
    ("background_tasks_changed", "task"),
    ("local_command_output", "local command"),
    ("files_persisted", "files"),
    ("memory_recall", "memory"),
    ("plugin_install", "plugin"),
    ("mirror_error", "transcript mirror"),
    ("elicitation_complete", "elicitation"),
    ("control_request_progress", "control"),
    ("commands_changed", "commands"),
    ("worker_shutting_down", "shutdown"),
    ("session_writes_lost", "transcript mirror"),
    // known from lists of 2.1.283
    ("bridge_state", "bridge"),
    ("cloud_session_delta", "cloud session"),
    ("cloud_session_status", "cloud session"),
    ("code_change_published", "notice"),
    ("feedback_draft_queued", "notice"),
    ("peer_message_hold", "queue"),
    ("per_turn_effort_changed", "effort"),
    ("post_turn_summary", "summary of a turn"),
    ("session_metadata", "session state"),
    ("task_summary", "task"),
    ("turn_handoff_available", "session state"),
    ("turn_preempted", "session state"),
    ("turn_starting", "session state"),
    ("vcs_state_changed", "session state"),
];
/// Other subtypes of `system` that are known.
const SYSTEM: [&str; 9] = [
    "init",
    "status",
    "api_retry",
    "model_consent_fallback",
    "model_fallback",
    "model_refusal_fallback",
    "permission_denied",
    "task_started",
    "compact_boundary",
];
/// Terminal reasons of turns that died, whatever else the result says (2.1.207).
const DEAD: [&str; 11] = [
    "api_error",
    "blocking_limit",
    "budget_exhausted",
    "image_error",
    "malformed_tool_use_exhausted",
    "model_error",
    "prompt_too_long",
    "rapid_refill_breaker",
    "structured_output_retry_exhausted",
    "tool_deferred_unavailable",
    "turn_setup_failed",
];
const API_EVENTS: [&str; 6] = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
];
/// Record types, a key that each has, and what that weighs.
const MARKS: &[(&str, &str, i32)] = &[
    ("control_request", "request", 20),
    ("control_response", "response", 20),
    ("control_cancel_request", "request_id", 20),
    ("keep_alive", "type", 10),
    ("transcript_mirror", "entries", 60),
    ("tool_progress", "tool_use_id", 60),
    ("tool_use_summary", "preceding_tool_use_ids", 60),
    ("prompt_suggestion", "suggestion", 60),
];
/// What is read of every stream event.
const STREAM: [&[&str]; 10] = [
    &["event"],
    &["event", "type"],
    &["event", "index"],
    &["event", "delta", "type"],
    &["event", "delta", "text"],
    &["event", "delta", "thinking"],
    &["api_message_id"],
    &["session_id"],
    &["timestamp"],
    &["parent_tool_use_id"],
];
/// Deltas of one block.
const SERIES: &[Series] = &[
    Series {
        same: SAME,
        stamp: Some(&[&["timestamp"]]),
        ..anthropic::TEXT_DELTAS
    },
    Series {
        same: SAME,
        stamp: Some(&[&["timestamp"]]),
        ..anthropic::THINKING_DELTAS
    },
];
const SAME: &[&[&str]] = &[
    &["event", "index"],
    &["api_message_id"],
    &["session_id"],
    &["parent_tool_use_id"],
];
/// How many texts a result may still repeat.
const SAID: usize = 8;

fn sign(record: Value<'_>) -> Option<Sign> {
    let kind = record.text_of("type")?;
    if has_any(record, &["sessionId", "parentUuid"]) {
        return None;
    }
    let has = |key: &str| record.first(key).is_some();
    let object = |key| record.get(key).filter(Value::is_object);
    match &*kind {
        "system" => return system_sign(record),
        "assistant" => return assistant_sign(record),
        "user" if object("message").is_some() && has("session_id") => {
            return match has("tool_use_result") {
                true => Sign::new(SURE, "a user record with tool_use_result"),
                false => Sign::new(30, "a user record with a message"),
            };
        }
        "result" if record.text_of("subtype").is_some() && has("is_error") => {
            return match has_any(record, &["modelUsage", "total_cost_usd", "total_cost"]) {
                true => Sign::new(SURE, "a result with the cost"),
                false => Sign::new(30, "a result with subtype and is_error"),
            };
        }
        "stream_event" => {
            if let Some(event) = object("event")
                && API_EVENTS.contains(&&*event.text_of("type").unwrap_or_default())
            {
                let usage = event.path(&["message", "usage"]);
                return match has("api_message_id") || usage.is_some_and(|usage| usage.is_object()) {
                    true => Sign::new(
                        SURE,
                        "a stream_event with an API event and the message's id or usage",
                    ),
                    false => Sign::new(30, "a stream_event with an API event"),
                };
            }
        }
        "rate_limit_event" if object("rate_limit_info").is_some() => {
            return Sign::new(SURE, "a rate_limit_event");
        }
        "conversation_reset" if has("new_conversation_id") => {
            return Sign::new(SURE, "a conversation_reset");
        }
        _ => {}
    }
    let mark = |(name, key, _): &&(&str, &str, i32)| *name == &*kind && has(key);
    let (name, key, weight) = MARKS.iter().find(mark)?;
    Sign::new(*weight, format!("{name} with {key}"))
}

fn system_sign(record: Value<'_>) -> Option<Sign> {
    let subtype = record.text_of("subtype");
    let has = |key: &str| record.first(key).is_some();
    if subtype.as_deref() == Some("init") {
        if let Some(version) = record.text_of("claude_code_version") {
            let why = "a system init with claude_code_version";
            return Sign::of_version(SURE, why, Some(version.into_string()));
        }
        if has_all(record, &["permissionMode", "apiKeySource", "tools"]) {
            let why = "a system init with permissionMode, apiKeySource and tools";
            return Sign::new(SURE, why);
        }
        if has_any(
            record,
            &["qwen_code_version", "permission_mode", "reasoning_effort"],
        ) {
            return None;
        }
        if has_all(record, &["tools", "mcp_servers"]) && !has("model") {
            let why = "a system init with tools and mcp_servers and no model";
            return Sign::new(60, why);
        }
        return has("session_id").then(|| Sign::new(20, "a system init"))?;
    }
    let subtype = subtype?;
    if !has("session_id") || has("data") {
        return None;
    }
    let ignored = IGNORED_SYSTEM.iter().any(|(name, _)| *name == &*subtype);
    if SYSTEM.contains(&&*subtype) || ignored {
        return Sign::new(60, format!("a system record {}", &*subtype));
    }
    Sign::new(10, "a system record")
}

fn assistant_sign(record: Value<'_>) -> Option<Sign> {
    let message = record.get("message").filter(Value::is_object)?;
    record.first("session_id")?;
    let Some(id) = message.text_of("id") else {
        return Sign::new(30, "an assistant record with a message");
    };
    if record.text_of("uuid").as_deref() == Some(&*id) {
        let why = "an assistant record whose message id is its uuid";
        return Sign::new(10, why);
    }
    if id.starts_with("msg_") || record.first("parent_tool_use_id").is_some() {
        return Sign::new(SURE, "an assistant record with a message id");
    }
    Sign::new(30, "an assistant record with a message")
}

/// A stream event with text of the main agent: where the records that fit one pattern have what is read of it.
#[derive(Clone, Copy, Debug)]
struct Delta {
    index: Index,
    text: Spot,
    id: Spot,
    session: Spot,
    timestamp: Spot,
}

/// The index of a block.
#[derive(Clone, Copy, Debug)]
enum Index {
    /// That of all records that fit the pattern.
    Same(i64),
    At(Spot),
}

impl Delta {
    /// `spots`: those of [`STREAM`].
    fn of(pattern: &Pattern, spots: [Spot; 10]) -> Option<Delta> {
        let [_, event, index, kind, text, thinking, rest @ ..] = spots;
        let [id, session, timestamp, parent] = rest;
        let says = |spot, word| pattern.constant(spot).is_some_and(|it| it.is_text(word));
        let text = if says(kind, "text_delta") {
            text
        } else if says(kind, "thinking_delta") {
            thinking
        } else {
            return None;
        };
        let index = match pattern.constant(index) {
            Some(number) => Index::Same(count(Some(number))?),
            None => Index::At(index),
        };
        let no_parent = pattern.constant(parent).is_some_and(|it| it.is_null());
        let is_main = no_parent || !parent.is_there();
        (is_main && says(event, "content_block_delta")).then_some(Delta {
            index,
            text,
            id,
            session,
            timestamp,
        })
    }
}

/// The model message that a thread is at.
#[derive(Default, Deserialize, Serialize)]
struct Message {
    id: Option<String>,
    model: Option<String>,
    /// Of its usage.
    key: String,
    /// Between message_start and message_stop.
    streaming: bool,
    /// Index of the block that streams now.
    open: Option<i64>,
    /// The blocks that were streamed, in order.
    blocks: Vec<Streamed>,
    /// Usage so far.
    counts: Counts,
    /// Service tier.
    tier: Option<String>,
    /// Its message_delta was seen.
    is_final: bool,
    /// The request that it answers.
    request: Option<String>,
    records: Records,
    /// Texts that were not streamed.
    wholes: i64,
}

/// A streamed block: its index, what it is, whether its record came, and the call that it holds.
#[derive(Deserialize, Serialize)]
struct Streamed {
    index: i64,
    kind: String,
    whole: bool,
    call: Option<String>,
}

impl Message {
    /// The streamed block with this index.
    fn block(&mut self, index: i64, kind: &str) -> &mut Streamed {
        let found = self.blocks.iter().position(|block| block.index == index);
        let at = found.unwrap_or_else(|| {
            self.blocks.push(Streamed {
                index,
                kind: kind.to_owned(),
                whole: false,
                call: None,
            });
            self.blocks.len() - 1
        });
        &mut self.blocks[at]
    }

    /// The streamed block that a whole block of this kind repeats: the open one, else the first without its record.
    ///
    /// The stream has blocks of a kind in the same order as the records.
    fn closes(&mut self, kind: &str) -> Option<&mut Streamed> {
        let open = self.open;
        let waits = |block: &&mut Streamed| block.kind == kind && !block.whole;
        let mut waiting: Vec<_> = self.blocks.iter_mut().filter(waits).collect();
        if waiting.is_empty() {
            return None;
        }
        let at = waiting.iter().position(|block| Some(block.index) == open);
        Some(waiting.swap_remove(at.unwrap_or(0)))
    }

    /// The stamp of a record of this message.
    fn stamp<'a>(&'a self, value: Value<'a>) -> Stamp<'a> {
        self.stamped(stamp_of(value))
    }

    fn stamped<'a>(&'a self, record: Stamp<'a>) -> Stamp<'a> {
        Stamp {
            message_id: self.id.as_deref().map(Text::from),
            model: self.model.as_deref().map(Text::from),
            ..record
        }
    }
}

fn stamp_of(value: Value<'_>) -> Stamp<'_> {
    stamp(value.fields(["session_id", "timestamp", "parent_tool_use_id"]))
}

fn stamp([session, time, parent]: [Option<Value<'_>>; 3]) -> Stamp<'_> {
    Stamp {
        session_id: session.and_then(|id| id.text()),
        timestamp: time.and_then(|time| time.text()),
        parent: parent.and_then(|id| id.text()),
        ..Stamp::default()
    }
}

#[derive(Default, Deserialize, Serialize)]
struct Claude {
    /// Of [`STREAM`].
    #[serde(skip)]
    paths: Paths<10>,
    #[serde(skip)]
    plans: Plans<Delta>,
    /// The message that the main agent is at.
    main: Option<Box<Message>>,
    /// Those of sub-agents, by thread.
    agents: HashMap<String, Box<Message>>,
    /// Of the usage of all messages so far.
    keys: HashSet<String>,
    /// Records of the message before this one, which may still be taken back.
    before: Records,
    plan: Plan,
    /// A turn is open.
    running: bool,
    /// The uuid of the last result.
    ended: Option<String>,
    /// The main agent's last texts that no result repeated yet.
    said: Vec<String>,
    /// The last texts of sub-agents and of the harness.
    told: Vec<String>,
    /// The last error of the turn.
    error: Option<String>,
    /// That error names a cap.
    capped: bool,
    /// A person stopped the turn.
    interrupted: bool,
    /// Calls that a person was asked about.
    asked: HashSet<String>,
    /// Calls that were refused in this turn.
    denied: HashSet<String>,
    /// A hook refused the prompt.
    blocked: bool,
    /// The last record of what a person said.
    prompt: Option<String>,
    /// The main agent's call whose result came last, and no text or call since.
    last: Option<String>,
    /// The harness's own count of the run so far.
    total: Counts,
    /// And of each model.
    models: Models,
    /// Its results print what is new since the last one.
    increments: bool,
    /// What the run cost, as it was last printed.
    cost: Option<Number>,
}

impl Mapper for Claude {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        if record.kind.is_some_and(|kind| kind.eq("stream_event")) {
            return self.stream(record, out);
        }
        let value = record.value();
        let Some(kind) = record.kind() else {
            return Outcome::Unknown;
        };
        match &*kind {
            "assistant" => self.assistant(value, record.line, out),
            "user" => self.user(value, out),
            "result" => self.result(value, out),
            "system" => self.system(value, out),
            "control_request" => self.control(value, out),
            "tool_progress" => alive(value.text_of("parent_tool_use_id"), value, out),
            "conversation_reset" => {
                let session = [("sessionId", value.text_of("new_conversation_id"))];
                out.session_state(&session, &Stamp::default());
                Outcome::Mapped
            }
            other => rule(IGNORED, other),
        }
    }
}

impl Claude {
    // ---------------------------------------------------------------- stream events

    #[inline(never)] // its own frame: nearly all records come here
    fn stream(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        let Claude { paths, plans, .. } = self;
        let delta = record.plan(plans, |pattern| {
            Delta::of(pattern, record.spots(&STREAM, paths))
        });
        let outcome = delta.and_then(|delta| self.delta(delta, record, out));
        outcome.unwrap_or_else(|| self.stream_event(record, out))
    }

    /// A block of the main agent's message goes on. None if it is another message or block.
    fn delta(
        &mut self,
        delta: Delta,
        record: &Record<'_>,
        out: &mut Emitter<'_>,
    ) -> Option<Outcome> {
        let str_at = |spot| record.json.at(spot).and_then(|value| value.as_str());
        let message = self.main.as_deref_mut()?;
        if let Some(id) = str_at(delta.id)
            && !message.id.as_deref().is_some_and(|known| id.eq(known))
        {
            return None;
        }
        let index = match delta.index {
            Index::Same(index) => index,
            Index::At(spot) => count(record.json.at(spot))?,
        };
        let mut blocks = message.blocks.iter();
        let block = blocks.find(|block| block.index == index)?;
        let text = str_at(delta.text).filter(|text| !text.raw().is_empty() && !block.whole);
        let (Some(chunk), Some(text)) = (chunk_of(&block.kind), text) else {
            return Some(PART);
        };
        // Put together in place: see docs/benchmarks.md on structs that are moved.
        let mut stamp = Stamp::default();
        if let Some(id) = str_at(delta.session) {
            stamp.session_id = Some(id.into());
        }
        if let Some(id) = &message.id {
            stamp.message_id = Some(id.as_str().into());
        }
        if let Some(time) = str_at(delta.timestamp) {
            stamp.timestamp = Some(time.into());
        }
        if let Some(model) = &message.model {
            stamp.model = Some(model.as_str().into());
        }
        out.delta(chunk, index, text, &stamp);
        if chunk == Kind::Message {
            self.last = None;
        }
        Some(Outcome::Mapped)
    }

    fn stream_event(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        let value = record.value();
        let [event, kind, index, delta, text, thinking, id, stamp @ ..] =
            record.spots(&STREAM, &mut self.paths);
        let Some(event) = value.at(event).filter(Value::is_object) else {
            return Outcome::Unknown;
        };
        let kind = value.at(kind).and_then(|kind| kind.text());
        let kind = kind.unwrap_or_default();
        let is_delta = &*kind == "content_block_delta";
        if !is_delta && !API_EVENTS.contains(&&*kind) {
            return Outcome::Ignored("other event of the API");
        }
        let stamp = self::stamp(stamp.map(|spot| value.at(spot)));
        let id = value.at(id).and_then(|id| id.text());
        let parent = stamp.parent.clone();
        let thread = parent.as_deref();
        if &*kind == "message_start" {
            self.message_start(thread, id, event, record, out);
            return Outcome::Mapped;
        }
        let mut message = match self.take(thread) {
            Some(message) if id.is_none() || message.id.as_deref() == id.as_deref() => message,
            old => {
                self.put_back(thread, old);
                let mut lost = self.begin(thread, id, None, value, record.line, None, out);
                lost.streaming = true; // its start did not come through
                lost
            }
        };
        let index = value.at(index);
        let outcome = if is_delta {
            let of_kind = |name| value.at(delta).is_some_and(|kind| kind.is_text(name));
            if of_kind("text_delta") {
                let text = value.at(text);
                self.streamed(&mut message, index, Some("text"), text, stamp, out)
            } else if of_kind("thinking_delta") {
                let text = value.at(thinking);
                self.streamed(&mut message, index, Some("thinking"), text, stamp, out)
            } else {
                PART
            }
        } else {
            self.stream_part(&mut message, &kind, index, event, value, stamp, out)
        };
        self.put(thread, message);
        outcome
    }

    fn message_start(
        &mut self,
        thread: Option<&str>,
        id: Option<Text<'_>>,
        event: Value<'_>,
        record: &Record<'_>,
        out: &mut Emitter<'_>,
    ) {
        let value = record.value();
        let start = event.get("message");
        let of = |key| start.and_then(|start| start.text_of(key));
        let id = filled(of("id")).or(id);
        let (model, call) = (of("model"), format!("line {}", record.line));
        let mut message = self.begin(thread, id, model, value, record.line, Some(&call), out);
        message.streaming = true;
        let counts = start.and_then(|start| start.get("usage"));
        usage(&mut message, counts, value, Vec::new(), true, out);
        self.put(thread, message);
    }

    /// Any event of a message but its start and its deltas.
    #[allow(clippy::too_many_arguments)] // the record's parts, which were looked up already
    fn stream_part(
        &mut self,
        message: &mut Message,
        kind: &str,
        index: Option<Value<'_>>,
        event: Value<'_>,
        value: Value<'_>,
        stamp: Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        match kind {
            "content_block_start" => match count(index) {
                Some(number) => {
                    message.open = Some(number);
                    let content = event.get("content_block");
                    let kind = content.and_then(|content| content.text_of("type"));
                    let kind = kind.unwrap_or_default();
                    let block = message.block(number, &kind);
                    let text = content.and_then(|content| content.get(&block.kind));
                    self.streamed(message, index, None, text, stamp, out)
                }
                None => PART,
            },
            "content_block_stop" => {
                if count(index).is_some() {
                    message.open = None;
                }
                PART
            }
            "message_delta" => {
                usage(message, event.get("usage"), value, Vec::new(), false, out);
                message.is_final = true;
                Outcome::Mapped
            }
            _ => {
                message.streaming = false;
                message.open = None;
                abandon(message, value, out)
            }
        }
    }

    /// Text of a block that streams; `kind` is what a delta says of the block.
    fn streamed(
        &mut self,
        message: &mut Message,
        index: Option<Value<'_>>,
        kind: Option<&str>,
        text: Option<Value<'_>>,
        stamp: Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let Some(index) = count(index) else {
            return PART;
        };
        let block = message.block(index, kind.unwrap_or_default());
        let (Some(chunk), false) = (chunk_of(&block.kind), block.whole) else {
            return PART;
        };
        let text = text.and_then(|text| text.as_str());
        let Some(text) = text.filter(|text| !text.raw().is_empty()) else {
            return PART;
        };
        let stamp = message.stamped(stamp);
        out.delta(chunk, index, text, &stamp);
        if stamp.parent.is_none() && chunk == Kind::Message {
            self.last = None;
        }
        Outcome::Mapped
    }

    // ---------------------------------------------------------------- assistant records

    fn assistant(&mut self, value: Value<'_>, line: u64, out: &mut Emitter<'_>) -> Outcome {
        let Some(wire) = value.get("message").filter(Value::is_object) else {
            return Outcome::Unknown;
        };
        let model = wire.text_of("model");
        if model.as_deref() == Some(anthropic::SYNTHETIC)
            || is_true(value.get("is_api_error_message"))
        {
            return self.synthetic(value, wire, out);
        }
        let thread = value.text_of("parent_tool_use_id");
        let id = wire.text_of("id");
        if thread.is_none() {
            self.retract(value.get("supersedes"), &stamp_of(value), out);
        }
        let mut current = self.take(thread.as_deref());
        if let (Some(message), Some(id)) = (&mut current, &id)
            && message.streaming
            && message.id.is_none()
        {
            // its start was lost
            message.id = Some(id.to_string());
            message.model = model.as_deref().map(str::to_owned);
            if !id.is_empty() {
                message.key = id.to_string();
            }
        }
        let request = filled(value.text_of("request_id"));
        let same = |message: &Message| message.id.as_deref() == id.as_deref();
        let another = current.as_ref().is_some_and(|message| {
            same(message) && differ(request.as_deref(), message.request.as_deref())
        });
        let mut message = match current {
            Some(message) if !another && (same(&message) || id.is_none() && message.streaming) => {
                message
            }
            old => {
                self.put_back(thread.as_deref(), old);
                let call = request.as_deref().filter(|_| another);
                self.begin(thread.as_deref(), id, model, value, line, call, out)
            }
        };
        if let Some(request) = request {
            message.request = Some(request.into_string());
        }
        let uuid = filled(value.text_of("uuid"));
        if let Some(uuid) = &uuid
            && message.records.iter().any(|(known, _)| *known == **uuid)
        {
            self.put(thread.as_deref(), message);
            return AGAIN;
        }
        let mut told = Vec::new();
        for block in blocks_of(wire.get("content")) {
            told.extend(self.block(&mut message, block, value, wire, out));
        }
        if let Some(uuid) = uuid {
            message.records.push((uuid.into_string(), told));
        }
        if !message.is_final {
            let extra = anthropic::extra_of(wire, "stop_reason");
            let begun = wire.text_of("stop_reason").is_none();
            usage(&mut message, wire.get("usage"), value, extra, begun, out);
        }
        self.put(thread.as_deref(), message);
        Outcome::Mapped
    }

    fn block(
        &mut self,
        message: &mut Message,
        block: Block<'_>,
        value: Value<'_>,
        wire: Value<'_>,
        out: &mut Emitter<'_>,
    ) -> Option<Part> {
        let kind = block.kind();
        let call = block.text_of("id").filter(|_| anthropic::is_call(&kind));
        let streamed = message.closes(&kind).map(|streamed| {
            streamed.whole = true;
            if let Some(id) = &call {
                streamed.call = Some(id.to_string());
            }
            streamed.index
        });
        let mut stamp = message.stamp(value);
        stamp.extra = anthropic::extra_of(wire, "stop_reason");
        let mut acts = true;
        let mut part = None;
        if let Some(chunk) = chunk_of(&kind) {
            let text = block.text_of(&kind).unwrap_or_default();
            acts = chunk == Kind::Message && !text.is_empty();
            if streamed.is_none() && is_told(message, chunk, &kind, &text, stamp.thread(), out) {
                return None;
            }
            let key = streamed.unwrap_or(-message.wholes - 1);
            if chunk == Kind::Message {
                let texts = match stamp.parent {
                    None => &mut self.said,
                    Some(_) => &mut self.told,
                };
                keep(texts, &text);
            }
            out.final_text(chunk, key, text, &stamp);
            part = Some(Part::Text(chunk, key));
        } else if let Some(id) = call {
            part = Some(Part::Call(id.to_string()));
            let call = Call {
                twin: true,
                ..Call::new(id, block.text_of("name"), block.get("input"))
            };
            out.call(call, &stamp);
            show(self.plan.call(block), &stamp, out);
        } else {
            anthropic::other_block(block, &stamp, out);
        }
        if stamp.parent.is_none() && acts {
            self.last = None;
        }
        if streamed.is_none() && matches!(part, Some(Part::Text(..))) {
            message.wholes += 1;
        }
        part
    }

    /// What the harness says in the assistant's name: why it failed, or the output of a local command.
    fn synthetic(&mut self, value: Value<'_>, wire: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let text = joined_text(wire.get("content"));
        let error = value.text_of("error");
        let coded = is_true(value.get("is_api_error_message")) || error.is_some();
        let failed = coded || text.starts_with("API Error");
        if !failed || value.first("local_command_run").is_some() {
            keep(&mut self.told, &text);
            return HARNESS_TEXT;
        }
        let stamp = stamp_of(value);
        if stamp.parent.is_some() {
            out.notice(text, &stamp); // the delegating call fails, not the run
            return Outcome::Mapped;
        }
        self.capped = anthropic::is_limit([value.text_of("api_error"), error], &text);
        self.error = Some(text.to_string());
        out.error(text, &stamp, true);
        Outcome::Mapped
    }

    // ---------------------------------------------------------------- user records

    fn user(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let Some(wire) = value.get("message").filter(Value::is_object) else {
            return Outcome::Unknown;
        };
        let mut stamp = stamp_of(value);
        let blocks = blocks_of(wire.get("content"));
        let is_result = |block: &&Block<'_>| &*block.kind() == "tool_result";
        let results = blocks.iter().filter(is_result).count();
        if results == 0 {
            let uuid = filled(value.text_of("uuid"));
            if uuid.is_some() && uuid.as_deref() == self.prompt.as_deref() {
                return AGAIN; // hosts print the first prompt before the init record and after it
            }
            self.prompt = uuid.map(Text::into_string);
        }
        if is_true(value.get("isReplay")) && results == 0 {
            stamp.extra = vec![("isReplay".into(), true.into())];
        }
        let raw = value.get("tool_use_result");
        let raw = raw.filter(|raw| results == 1 && !raw.is_null());
        let synthetic = is_true(value.get("isSynthetic"));
        let mut outcome = HARNESS_TEXT;
        for block in &blocks {
            if is_result(&block) {
                self.tool_result(*block, raw, value.get("tool_result_meta"), &stamp, out);
                outcome = Outcome::Mapped;
            } else if let Some(ended) = block.interrupt() {
                self.interrupt(ended, &stamp, out);
                outcome = Outcome::Mapped;
            } else if !synthetic
                && !block.is_wrapped()
                && anthropic::user_block(*block, &stamp, out)
            {
                outcome = Outcome::Mapped;
            }
        }
        outcome
    }

    fn tool_result(
        &mut self,
        block: Block<'_>,
        raw: Option<Value<'_>>,
        metas: Option<Value<'_>>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) {
        let Some(id) = block.text_of("tool_use_id") else {
            return;
        };
        anthropic::tool_result(id.borrow(), block, raw, stamp, out);
        let failed = anthropic::has_failed(block, raw);
        show(self.plan.result(&id, failed, raw), stamp, out);
        if stamp.parent.is_none() {
            self.last = Some(id.to_string());
        }
        for meta in metas.into_iter().flat_map(|metas| metas.items()) {
            if meta.text_of("id").as_deref() != Some(&*id) {
                continue;
            }
            if meta.text_of("non_execution_kind").is_some() {
                self.denied.insert(id.to_string());
            }
            let decision = meta.path(&["permission_decision", "decision"]);
            if let Some(decision) = decision.and_then(|decision| decision.text())
                && self.asked.remove(&*id)
            {
                let state = State::new("approval")
                    .with("phase", "settled")
                    .with("toolCallId", id.borrow())
                    .with("decision", decision);
                out.state(state, stamp);
            }
        }
    }

    /// The turn was stopped, as a rule by a person. A result should follow; on a busy machine it may not.
    fn interrupt(&mut self, outcome: &'static str, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        if stamp.parent.is_none() {
            self.interrupted = outcome == "cancelled";
            self.running = false;
            let state = State::new("turn")
                .with("phase", "end")
                .with("outcome", outcome)
                .with("reason", "interrupted");
            out.state(state, stamp);
        }
    }

    // ---------------------------------------------------------------- results

    fn result(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let mut stamp = stamp_of(value);
        let errors = value.get("errors").into_iter();
        let mut errors = errors.flat_map(|errors| errors.items());
        if !self.running && errors.any(|error| error.is_text(NO_TURN)) {
            out.notice(NO_TURN, &stamp);
            return Outcome::Mapped;
        }
        let uuid = filled(value.text_of("uuid")).map(Text::into_string);
        if !self.running && uuid.is_some() && uuid == self.ended {
            return AGAIN;
        }
        self.ended = uuid;
        out.session_state(&[("sessionId", stamp.session_id.clone())], &stamp);
        stamp.extra = anthropic::extra_of(value, "stop_reason");
        self.remember(None, out);
        out.commit(None);
        self.before.clear();
        let mut answer = value.text_of("result").unwrap_or_default();
        let failed = is_true(value.get("is_error"));
        let structured = value.get("structured_output");
        if let Some(structured) = structured.filter(|value| !value.is_null())
            && answer.is_empty()
            && !failed
        {
            // before the result repeated it
            answer = str::from_utf8(structured.raw()).unwrap_or_default().into();
        }
        let subtype = value.text_of("subtype");
        // 2.1.50 prints an error in the middle of a run with is_error false, and a person's interrupt alike
        let broken = subtype.as_deref() == Some("error_during_execution") && !self.interrupted;
        if failed || broken {
            self.report(value, &answer, &stamp, out);
        } else if !self.claim(&answer) && value.first("local_command").is_none() {
            out.whole(Kind::Message, answer.borrow(), &stamp); // only the result carries it
            self.last = None;
        }
        self.run_usage(value, &stamp, out);
        let outcome = self.outcome(value, failed, &answer);
        let reason = value.text_of("terminal_reason");
        let reason = filled(reason).or(subtype);
        for state in [State::new("turn").with("phase", "end"), State::new("end")] {
            let state = state
                .with("outcome", outcome)
                .with("reason", reason.clone());
            out.state(state, &stamp);
        }
        self.running = false;
        self.interrupted = false;
        self.capped = false;
        self.blocked = false;
        self.error = None;
        self.last = None;
        self.asked.clear();
        self.denied.clear();
        Outcome::Mapped
    }

    /// The errors that a result names, unless a synthetic record told them before.
    fn report(
        &mut self,
        value: Value<'_>,
        answer: &Text<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) {
        let listed = value.get("errors");
        let listed = listed.into_iter().flat_map(|errors| errors.items());
        let mut errors: Vec<Text<'_>> = listed.filter_map(|error| error.text()).collect();
        if errors.is_empty() && !answer.is_empty() {
            errors.push(answer.borrow());
        }
        if errors.is_empty() && self.error.is_none() {
            let subtype = filled(value.text_of("subtype"));
            errors.push(subtype.unwrap_or("error".into()));
        }
        for error in errors {
            if self.error.as_deref() != Some(&*error) {
                out.error(error, stamp, true);
            }
        }
    }

    fn outcome(&mut self, value: Value<'_>, failed: bool, answer: &str) -> &'static str {
        let subtype = value.text_of("subtype").unwrap_or_default();
        let reason = value.text_of("terminal_reason");
        if subtype.starts_with("error_max_") {
            return "limit"; // before 2.1.112 is_error was false here
        }
        let aborted = matches!(
            reason.as_deref(),
            Some("aborted_streaming" | "aborted_tools")
        );
        if aborted || &*subtype == "error_during_execution" && self.interrupted {
            return "cancelled";
        }
        let dead = reason
            .as_deref()
            .is_some_and(|reason| DEAD.contains(&reason));
        if failed || subtype.starts_with("error") || dead {
            let codes = [value.text_of("api_error"), reason];
            return match self.capped || anthropic::is_limit(codes, answer) {
                true => "limit",
                false => "failed",
            };
        }
        if reason.as_deref() == Some("tool_deferred") {
            return "incomplete"; // a call waits for someone's word
        }
        if self.blocked {
            return "denied";
        }
        let stop = value.text_of("stop_reason");
        if let Some("max_tokens" | "model_context_window_exceeded") = stop.as_deref() {
            return "limit";
        }
        let denials = value.get("permission_denials");
        for denial in denials.into_iter().flat_map(|denials| denials.items()) {
            if let Some(id) = denial.text_of("tool_use_id") {
                self.denied.insert(id.into_string());
            }
        }
        match &self.last {
            Some(id) if self.denied.contains(id) => "denied",
            _ => "completed",
        }
    }

    /// The harness's own total of this process: its increments where printed, else the cumulative modelUsage.
    ///
    /// Without either it is the usage of the last result that had any.
    fn run_usage(&mut self, value: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        let news = value.get("model_usage_since_last_result");
        let usage = Counts::of_usage(value.get("usage"));
        if let Some(news) = news.filter(Value::is_object) {
            if !self.increments {
                self.increments = true;
                self.models = Models::default();
            }
            self.models.add(Models::of(Some(news)));
            self.total = self.models.sum();
        } else if !self.increments {
            let models = Models::of(value.get("modelUsage"));
            let sum = models.sum();
            let counts = if sum.is_empty() { usage } else { sum };
            if counts.is_any() || self.total.is_empty() {
                self.total = counts;
                self.models = models;
            }
        }
        let cost = price(value.get("total_cost_usd")).or_else(|| price(value.get("total_cost")));
        self.cost = cost.or(self.cost);
        let counts = if self.total.is_empty() {
            usage
        } else {
            self.total
        };
        let tokens = counts.to_tokens(self.cost, None);
        let beyond = match self.increments {
            true => HELPERS,
            false => HELPERS_OR_EARLIER,
        };
        let usage = Usage {
            models: &self.models.to_tokens(),
            beyond: Some(beyond),
            ..Usage::run(&tokens)
        };
        out.usage(usage, stamp);
    }

    // ---------------------------------------------------------------- system and control records

    fn system(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let stamp = stamp_of(value);
        let subtype = value.text_of("subtype").unwrap_or_default();
        match &*subtype {
            "init" => {
                self.remember(None, out);
                out.commit(None);
                self.before.clear();
                self.main = None; // a message that was cut does not go on in another turn
                let session = [
                    ("sessionId", value.text_of("session_id")),
                    ("version", value.text_of("claude_code_version")),
                    ("model", value.text_of("model")),
                    ("cwd", value.text_of("cwd")),
                ];
                out.session_state(&session, &stamp);
                self.start(&stamp, out);
            }
            "status" => return status(value, &stamp, out),
            "compact_boundary" => {
                let trigger = value.path(&["compact_metadata", "trigger"]);
                let state = State::new("compaction")
                    .with("phase", "end")
                    .with("trigger", trigger.and_then(|trigger| trigger.text()))
                    .with("success", true);
                out.state(state, &stamp);
            }
            "api_retry" => {
                self.retried(value, out);
                let state = State::new("retry")
                    .with("phase", "start")
                    .with("attempt", count(value.get("attempt")))
                    .with("maxAttempts", count(value.get("max_retries")))
                    .with("delayMs", price(value.get("retry_delay_ms")))
                    .with("message", value.text_of("error"));
                out.state(state, &stamp);
            }
            "model_consent_fallback" | "model_fallback" | "model_refusal_fallback" => {
                self.retract(value.get("retracted_message_uuids"), &stamp, out);
                if value.text_of("scope").as_deref() != Some("local") {
                    // that of a sub-agent or a side question
                    let state = State::new("model").with("model", value.text_of("fallback_model"));
                    out.state(state, &stamp);
                }
            }
            "permission_denied" => {
                let id = value.text_of("tool_use_id");
                if let Some(id) = &id {
                    self.denied.insert(id.to_string());
                }
                let state = State::new("approval")
                    .with("phase", "settled")
                    .with("toolCallId", id)
                    .with("toolName", value.text_of("tool_name"))
                    .with("decision", "denied")
                    .with("message", value.text_of("message"));
                out.state(state, &stamp);
            }
            "task_started" => return alive(value.text_of("tool_use_id"), value, out),
            "informational" => {
                // the result repeats why a prompt was refused
                keep(
                    &mut self.told,
                    &value.text_of("content").unwrap_or_default(),
                );
                let kind = value.path(&["prompt_submit_outcome", "kind"]);
                self.blocked |= kind.is_some_and(|kind| kind.is_text("blocked_by_hook"));
                return rule(IGNORED_SYSTEM, "informational");
            }
            other => return rule(IGNORED_SYSTEM, other),
        }
        Outcome::Mapped
    }

    /// The answer that broke off begins anew: what of it has no record is taken back.
    ///
    /// 2.1.215 to 2.1.290 close such a message without `message_delta` and `abandoned_blocks`.
    fn retried(&mut self, value: Value<'_>, out: &mut Emitter<'_>) {
        if let Some(message) = self.main.as_deref_mut()
            && !(message.streaming || message.is_final)
        {
            void(message, |block| !block.whole, stamp_of(value), out);
        }
    }

    fn control(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let of = |key| value.path(&["request", key]).and_then(|value| value.text());
        if of("subtype").as_deref() != Some("can_use_tool") {
            return Outcome::Ignored("control");
        }
        let id = of("tool_use_id");
        if let Some(id) = &id {
            self.asked.insert(id.to_string());
        }
        let state = State::new("approval")
            .with("phase", "requested")
            .with("toolCallId", id)
            .with("toolName", of("tool_name"))
            .with("message", of("description"));
        out.state(state, &Stamp::default());
        Outcome::Mapped
    }

    /// Another answer takes the place of these records, as a fallback model's does of a refused one: what they told is
    /// taken back, once, for a notice may name them again. While the answer streams, it is the message that has no
    /// record yet; the records are those of the message before it, which goes as a whole.
    fn retract(&mut self, uuids: Option<Value<'_>>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        let records = self.main.as_mut().map(|message| &mut message.records);
        let of_this = records.filter(|records| !records.is_empty());
        let streams = of_this.is_none();
        let parts = anthropic::retracted(of_this.unwrap_or(&mut self.before), uuids);
        let Some(mut parts) = parts else {
            return;
        };
        if streams {
            out.abandon(None, stamp); // also what was streamed of the answer: its record tells it again
            self.said.clear();
            self.before.clear();
            parts.retain(|part| matches!(part, Part::Call(_)));
        }
        for part in parts {
            if let Part::Text(Kind::Message, key) = part {
                // a text that was taken back is none that the result repeats
                let text = core(out.streamed(Kind::Message, key, None).unwrap_or_default());
                self.said.retain(|said| said != text);
            }
            anthropic::take_back(part, stamp, out);
        }
    }

    // ---------------------------------------------------------------- turns and messages

    fn start(&mut self, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        self.running = true;
        out.state(State::new("turn").with("phase", "start"), stamp);
    }

    /// Takes the message of a thread out, to be put back.
    fn take(&mut self, thread: Option<&str>) -> Option<Box<Message>> {
        match thread {
            None => self.main.take(),
            Some(thread) => self.agents.remove(thread),
        }
    }

    fn put(&mut self, thread: Option<&str>, message: Box<Message>) {
        match thread {
            None => self.main = Some(message),
            Some(thread) => {
                self.agents.insert(thread.to_owned(), message);
            }
        }
    }

    fn put_back(&mut self, thread: Option<&str>, message: Option<Box<Message>>) {
        if let Some(message) = message {
            self.put(thread, message);
        }
    }

    /// A new model message of a thread; the main agent's opens a turn if no init record did.
    ///
    /// `call` names its model call where the wire tells that it is another one than those before, whatever its id: some
    /// gateways give all their messages the same, and under load the API itself gave it to six in a row. What the main
    /// agent's message before it said can still be taken back.
    #[allow(clippy::too_many_arguments)] // the record's parts, which were looked up already
    fn begin(
        &mut self,
        thread: Option<&str>,
        id: Option<Text<'_>>,
        model: Option<Text<'_>>,
        value: Value<'_>,
        line: u64,
        call: Option<&str>,
        out: &mut Emitter<'_>,
    ) -> Box<Message> {
        self.remember(thread, out);
        if thread.is_none() {
            let previous = self.main.as_mut();
            let records = previous.map(|previous| std::mem::take(&mut previous.records));
            self.before = records.unwrap_or_default();
            out.settle_closed(None);
            out.close(None);
        } else {
            out.commit(thread);
        }
        out.next_turn();
        let mut key = match filled(id.clone()) {
            Some(id) => id.into_string(),
            None => format!("line {line}"),
        };
        if let Some(call) = call.filter(|_| self.keys.contains(&key)) {
            key = format!("{key} {call}");
        }
        self.keys.insert(key.clone());
        let message = Box::new(Message {
            key,
            id: id.map(Text::into_string),
            model: model.map(Text::into_string),
            ..Message::default()
        });
        if thread.is_none() {
            let stamp = message.stamp(value);
            out.session_state(&[("sessionId", stamp.session_id.clone())], &stamp);
            if !self.running {
                self.start(&stamp, out);
            }
        }
        message
    }

    // ---------------------------------------------------------------- what results repeat

    /// Texts that were streamed and whose records never came were said too.
    fn remember(&mut self, thread: Option<&str>, out: &mut Emitter<'_>) {
        let (message, texts) = match thread {
            None => (self.main.as_mut(), &mut self.said),
            Some(thread) => (self.agents.get_mut(thread), &mut self.told),
        };
        for block in message.into_iter().flat_map(|message| &mut message.blocks) {
            if block.kind == "text" && !block.whole {
                block.whole = true;
                let text = out.streamed(Kind::Message, block.index, thread);
                keep(texts, text.unwrap_or_default());
            }
        }
    }

    /// Whether the answer was said before: as one of the last texts, or as several of them in a row.
    ///
    /// A result that was held back repeats an earlier text; what came after it waits for the next result.
    fn claim(&mut self, answer: &str) -> bool {
        let answer = core(answer);
        if answer.is_empty() {
            return true;
        }
        for first in 0..self.said.len() {
            for last in first..self.said.len() {
                let texts = &self.said[first..=last];
                if texts.concat() == answer || texts.join("\n") == answer {
                    self.said.drain(..=last);
                    return true;
                }
            }
        }
        self.said.clear();
        self.told.iter().any(|text| text == answer)
    }
}

/// Whether both are known and not the same.
fn differ(request: Option<&str>, other: Option<&str>) -> bool {
    request.is_some() && other.is_some() && request != other
}

/// Whether a text was streamed and had its record before: 2.1.237 prints a second one where a gateway's message id does
/// not begin as the API's do.
fn is_told(
    message: &Message,
    chunk: Kind,
    kind: &str,
    text: &str,
    thread: Option<&str>,
    out: &mut Emitter<'_>,
) -> bool {
    let mut blocks = message.blocks.iter();
    blocks.any(|block| {
        let told = block.whole && block.kind == kind;
        told && out.streamed(chunk, block.index, thread) == Some(text)
    })
}

/// Adds a text to those that a result may repeat.
fn keep(texts: &mut Vec<String>, text: &str) {
    let text = core(text);
    if !text.is_empty() {
        texts.push(text.to_owned());
        if texts.len() > SAID {
            texts.remove(0);
        }
    }
}

/// What of a text is compared.
fn core(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\r', '\n'])
}

fn show(plan: Option<Vec<PlanEntry<'_>>>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
    if let Some(plan) = plan {
        out.plan(&plan, stamp);
    }
}

/// The counters of a message as far as they are known.
fn usage<'a>(
    message: &mut Message,
    printed: Option<Value<'_>>,
    value: Value<'a>,
    extra: Vec<(Text<'a>, Data<'a>)>,
    begun: bool,
    out: &mut Emitter<'_>,
) {
    message.counts.renew(Counts::of_usage(printed));
    let tier = printed.and_then(|usage| usage.text_of("service_tier"));
    if let Some(tier) = filled(tier) {
        message.tier = Some(tier.into_string());
    }
    let stamp = Stamp {
        extra,
        ..message.stamp(value)
    };
    let tier = message.tier.as_deref().map(Text::from);
    let tokens = message.counts.to_tokens(None, tier);
    let usage = Usage {
        key: Some(&message.key),
        begun,
        ..Usage::call(&tokens)
    };
    out.usage(usage, &stamp);
}

/// The end of a message; one that was cut says from which block on it is void.
fn abandon(message: &mut Message, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
    let Some(since) = count(value.path(&["abandoned_blocks", "from_block_index"])) else {
        return Outcome::Ignored("end of a message");
    };
    let stamp = stamp_of(value);
    void(message, |block| block.index >= since, stamp, out);
    Outcome::Mapped
}

/// What these blocks of the message said is taken back.
fn void(
    message: &mut Message,
    is_gone: impl Fn(&Streamed) -> bool,
    stamp: Stamp<'_>,
    out: &mut Emitter<'_>,
) {
    let gone: Vec<usize> = (0..message.blocks.len())
        .filter(|&at| is_gone(&message.blocks[at]))
        .collect();
    for &at in &gone {
        message.blocks[at].whole = true; // nothing more of it counts
    }
    let stamp = message.stamped(stamp);
    for block in gone.iter().map(|&at| &message.blocks[at]) {
        if let Some(chunk) = chunk_of(&block.kind) {
            out.drop_block(chunk, block.index, &stamp);
        } else if let Some(id) = block.call.as_deref().filter(|id| out.is_open(id)) {
            let update = Update {
                done: Some(false),
                ..Update::new(id, Some("failed"))
            };
            out.update(update, &stamp);
        }
    }
}

fn status(value: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
    if value.text_of("status").as_deref() == Some("compacting") {
        out.state(State::new("compaction").with("phase", "start"), stamp);
        return Outcome::Mapped;
    }
    match value.text_of("compact_result").as_deref() {
        None | Some("success") => Outcome::Ignored("status"), // of success the compact_boundary tells
        Some(_) => {
            let state = State::new("compaction")
                .with("phase", "end")
                .with("success", false)
                .with("message", value.text_of("compact_error"));
            out.state(state, stamp);
            Outcome::Mapped
        }
    }
}

/// A sign of life of a call. The record's own parent_tool_use_id is that call, not who delegated it.
fn alive(call: Option<Text<'_>>, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
    let Some(id) = call.filter(|id| out.is_open(id)) else {
        return Outcome::Ignored("task");
    };
    let stamp = Stamp {
        session_id: value.text_of("session_id"),
        ..Stamp::of_thread(out.thread_of(&id))
    };
    out.update(Update::new(id, Some("in_progress")), &stamp);
    Outcome::Mapped
}
