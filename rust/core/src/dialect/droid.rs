//! Factory Droid: `droid exec --output-format stream-json`, `json` and `stream-jsonrpc`.
//!
//! Recorded: stream-json and json of 0.215.0. The notifications of stream-jsonrpc are known from the vendor's public SDK:
//! they have deltas, and then the whole message is the authority.
//!
//! A record comes when its model call is complete, each text block whole. A good run ends with `completion`, a bad one
//! with an `error` of the agent loop, which has the cause, and one of the command line, which repeats the last text.
//! When the policy refuses a call the run ends there: the refusal comes as the result of the call, again as an assistant
//! message that no model wrote, and again as an error. SIGINT and SIGTERM end the stream with no record and exit code 0.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{Dialect, Make, Mapper, Outcome, SURE, Sign, filled, has_any, is_true, members, rule};
use crate::data::{Data, map};
use crate::emit::{Call, Emitter, Update};
use crate::event::{Image, Item, Kind, PlanEntry, Stamp, State, Tokens, iso_millis};
use crate::json::{Series, Str, Text, Value};
use crate::number::{count, total};
use crate::record::Record;
use crate::run::{Ending, Exit, Reducer};
use crate::tool;

pub const DIALECT: Dialect = Dialect {
    name: "droid",
    sign,
    mapper: Make::of::<Droid>(),
    series: SERIES,
};

/// Deltas of one block (stream-jsonrpc).
const SERIES: &[Series] = &[Series {
    is: &[
        (&["method"], &["droid.session_notification"]),
        (
            &["params", "notification", "type"],
            &["assistant_text_delta", "thinking_text_delta"],
        ),
    ],
    text: &["params", "notification", "textDelta"],
    same: &[
        &["params", "sessionId"],
        &["params", "notification", "messageId"],
        &["params", "notification", "blockIndex"],
    ],
    ..Series::NO_FACTS
}];

/// Keys of the init record of Claude Code and those who copied it, none of which Droid prints.
const CLAUDE_INIT: [&str; 6] = [
    "uuid",
    "apiKeySource",
    "permissionMode",
    "permission_mode",
    "mcp_servers",
    "qwen_code_version",
];
/// All keys of the one record of the json mode, which is a near copy of Claude's result.
const RESULT: [&str; 9] = [
    "type",
    "subtype",
    "is_error",
    "duration_ms",
    "num_turns",
    "result",
    "session_id",
    "usage",
    "structured_output",
];
/// Notifications that say nothing for events.
const IGNORED: &[(&str, &str)] = &[
    ("assistant_text_complete", "end of a block"),
    ("thinking_text_complete", "end of a block"),
    ("structured_output", "structured output"),
    ("tool_call_delta", "part of a call"),
    ("tool_execution_heartbeat", "heartbeat"),
    ("tool_execution_phase_changed", "tool phase"),
    ("loop_state_changed", "loop state"),
    ("queued_messages_discarded", "queue"),
    ("mcp_status_changed", "MCP servers"),
    ("mcp_auth_required", "MCP servers"),
    ("mcp_auth_completed", "MCP servers"),
    ("hook_execution_started", "hook"),
    ("hook_execution_completed", "hook"),
    ("mission_state_changed", "mission"),
    ("mission_features_changed", "mission"),
    ("mission_progress_entry", "mission"),
    ("mission_heartbeat", "heartbeat"),
    ("mission_worker_started", "mission"),
    ("mission_worker_completed", "mission"),
];
/// What stands in errors that name a cap: spent credits (`402 {"detail":"Ready for more? Reload your tokens at ...`) and
/// used-up plans (`You've reached your weekly usage limit`).
const LIMITS: [&str; 3] = ["Reload your tokens", "reload your tokens", "usage limit"];
/// Error answers that say only that a request was not understood.
const HARMLESS: [i64; 3] = [-32601, -32602, -32002];

/// How a turn ended for this reason (notification and session file).
pub(super) fn outcome(reason: Option<&str>) -> &'static str {
    match reason {
        Some("completed") => "completed",
        Some("cancelled" | "canceled" | "interrupted" | "aborted" | "user_cancelled") => {
            "cancelled"
        }
        Some("max_turns") => "limit",
        _ => "failed",
    }
}

fn sign(record: Value<'_>) -> Option<Sign> {
    if record
        .text_of("method")
        .is_some_and(|method| method.starts_with("droid."))
    {
        return Sign::new(SURE, "a method of droid");
    }
    if record.get("factoryApiVersion").is_some() {
        return Sign::new(SURE, "factoryApiVersion");
    }
    record.text_of("session_id")?;
    let kind = record.text_of("type")?;
    let text = |key: &str| record.text_of(key).is_some();
    match &*kind {
        "system"
            if record.text_of("subtype").as_deref() == Some("init")
                && !has_any(record, &CLAUDE_INIT) =>
        {
            if record.get("reasoning_effort").is_some() {
                return Sign::new(SURE, "an init with reasoning_effort");
            }
            Sign::new(50, "an init without what Claude Code prints")
        }
        "message" if text("role") && text("text") => {
            Sign::new(SURE, "a message with role and text")
        }
        "tool_call" | "tool_result" if record.get("toolId").is_some() => {
            Sign::new(SURE, format!("a {} with toolId", &*kind))
        }
        "reasoning" if text("text") => Sign::new(SURE, "a reasoning with session_id"),
        "completion" if record.get("finalText").is_some() => {
            Sign::new(SURE, "a completion with finalText")
        }
        "error" if text("source") && text("message") => Sign::new(SURE, "an error with source"),
        "result" => {
            record.get("is_error")?.as_bool()?;
            if record.path(&["usage", "factory_credits"]).is_some() {
                return Sign::new(SURE, "a result with factory_credits");
            }
            let known = |key: Str<'_>| RESULT.iter().any(|name| key.eq(name));
            if !record.entries().all(|(key, _)| known(key)) {
                return None;
            }
            Sign::new(40, "a result without what Claude Code prints")
        }
        _ => None,
    }
}

#[derive(Default, Deserialize, Serialize)]
struct Droid {
    /// Plans of todo calls without a result.
    todos: Todos,
    /// Id of the last reasoning record, and the texts of that message's.
    thought: (String, Vec<String>),
    /// Text of the main agent's last message, and its id.
    answer: String,
    answer_id: Option<String>,
    /// What the failed calls of the last message said.
    refusals: Vec<String>,
    /// A message repeated it: the policy ended the run.
    refused: bool,
    /// Outcome of the error that the agent loop told.
    failed: Option<Cow<'static, str>>,
    turning: bool,
    /// stream-jsonrpc: the message that each agent is at, by delegating call, "" for the main agent.
    streams: HashMap<String, Stream>,
    /// Arguments as told so far of calls without a result.
    inputs: HashMap<String, Box<[u8]>>,
    /// Session of a sub-agent: the call that delegated.
    children: HashMap<String, String>,
}

/// A message that comes in deltas.
#[derive(Default, Deserialize, Serialize)]
struct Stream {
    message: Option<String>,
    /// Block indexes of its texts, in the order of their first deltas.
    texts: Vec<Option<i64>>,
    thoughts: Vec<Option<i64>>,
    /// The whole message came.
    whole: bool,
}

impl Mapper for Droid {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        let value = record.value();
        if let Some(method) = value.text_of("method") {
            return self.method(&method, value.get("params"), out);
        }
        if value.get("factoryApiVersion").is_some() {
            return self.response(value, out);
        }
        let kind = record.kind().unwrap_or_default();
        let message_id = match &*kind {
            "message" | "reasoning" => value.text_of("id"),
            "tool_call" => value.text_of("messageId"),
            _ => None,
        };
        let stamp = Stamp {
            session_id: value.text_of("session_id"),
            message_id,
            timestamp: time_of(value),
            ..Stamp::default()
        };
        self.record(&kind, value, &stamp, out)
    }

    fn judge(&self, _run: &Reducer, _exit: &Exit) -> Option<Ending> {
        self.refused.then(denied)
    }
}

/// The policy refused a call and with it the run.
pub(super) fn denied() -> Ending {
    let why = "the run ended at a refused call";
    Ending::new("denied", Some("insufficient permission"), why)
}

fn time_of(value: Value<'_>) -> Option<Text<'_>> {
    iso_millis(value.get("timestamp")).or_else(|| value.text_of("timestamp"))
}

impl Droid {
    // ---------------------------------------------------------------- stream-json and json

    fn record(
        &mut self,
        kind: &str,
        value: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        match kind {
            "system" if value.text_of("subtype").as_deref() == Some("init") => {
                let details = [
                    ("sessionId", stamp.session_id.clone()),
                    ("model", value.text_of("model")),
                    ("cwd", value.text_of("cwd")),
                ];
                out.another_run(stamp);
                out.session_state(&details, stamp);
                Outcome::Mapped
            }
            "message" => {
                let role = value.text_of("role");
                self.message(role.as_deref(), value.text_of("text"), stamp, out)
            }
            "reasoning" => self.reasoning(value.text_of("text"), stamp, out),
            "tool_call" => {
                let (id, name) = (value.text_of("id"), value.text_of("toolName"));
                self.call(id, name, value.get("parameters"), stamp, out)
            }
            "tool_result" => {
                let error = value.get("error");
                let told = error.filter(Value::is_object);
                let message = match told {
                    Some(told) => told.get("message"),
                    None => error,
                };
                let content = value.get("value").or(message);
                let raw = told.map(|told| map([("error", told.into())]));
                let id = value.text_of("id");
                self.result(id, value.get("isError"), content, raw, stamp, out)
            }
            "completion" => {
                let text = filled(value.text_of("finalText"));
                // it is trimmed, and joins the blocks
                if let Some(text) = text
                    && !without_blanks(&text).eq(without_blanks(&self.answer))
                {
                    out.whole(Kind::Message, text, stamp);
                }
                usage(value.get("usage"), stamp, out);
                self.turning = false;
                out.state(end("completed", "completion"), stamp);
                Outcome::Mapped
            }
            "result" => only_result(value, stamp, out),
            "error" => self.error(value, stamp, out),
            _ => Outcome::Unknown,
        }
    }

    fn message(
        &mut self,
        role: Option<&str>,
        text: Option<Text<'_>>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        if role == Some("user") {
            self.start(stamp, out);
        }
        let Some(text) = filled(text) else {
            return Outcome::Ignored("empty text");
        };
        match role {
            Some("user") => out.whole(Kind::User, text, stamp),
            Some("assistant") => {
                if is_refusal(&text, &self.refusals) {
                    self.refused = true;
                    return Outcome::Ignored("refusal again");
                }
                self.answered(&text, stamp);
                out.whole(Kind::Message, text, stamp);
            }
            _ => return Outcome::Ignored("message of the harness"),
        }
        Outcome::Mapped
    }

    fn answered(&mut self, text: &str, stamp: &Stamp<'_>) {
        if stamp.thread().is_some() {
            return;
        }
        let message = stamp.message_id.as_deref();
        if message.is_none() || message != self.answer_id.as_deref() {
            self.answer.clear();
        }
        self.answer.push_str(text);
        self.answer_id = message.map(str::to_owned);
    }

    /// With some providers each thought is printed twice.
    fn reasoning(
        &mut self,
        text: Option<Text<'_>>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let Some(text) = filled(text) else {
            return Outcome::Ignored("empty text");
        };
        let message = stamp.message_id.as_deref().unwrap_or("");
        if self.thought.0 != message {
            self.thought = (message.to_owned(), Vec::new());
        }
        if self.thought.1.iter().any(|said| *said == *text) {
            return Outcome::Ignored("thought again");
        }
        self.thought.1.push(text.to_string());
        out.whole(Kind::Thought, text, stamp);
        Outcome::Mapped
    }

    /// A prompt opens a turn.
    fn start(&mut self, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        if stamp.thread().is_none() {
            self.refusals.clear();
            self.answer.clear();
            self.refused = false;
            self.failed = None;
            self.turning = true;
            out.commit(None);
            out.state(State::new("turn").with("phase", "start"), stamp);
        }
    }

    fn call(
        &mut self,
        id: Option<Text<'_>>,
        name: Option<Text<'_>>,
        input: Option<Value<'_>>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let Some(id) = id else {
            return Outcome::Unknown;
        };
        if stamp.thread().is_none() {
            self.refusals.clear();
        }
        call(id, name, input, &mut self.todos, stamp, out);
        Outcome::Mapped
    }

    fn result(
        &mut self,
        id: Option<Text<'_>>,
        is_error: Option<Value<'_>>,
        content: Option<Value<'_>>,
        raw: Option<Data<'_>>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let Some(id) = id else {
            return Outcome::Unknown;
        };
        let refusal = result(id, is_error, content, raw, &mut self.todos, stamp, out);
        if stamp.thread().is_none() {
            self.refusals.extend(refusal);
        }
        Outcome::Mapped
    }

    fn error(&mut self, value: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        let Some(message) = value.text_of("message") else {
            return Outcome::Unknown;
        };
        let source = value.text_of("source");
        let from_cli = source.as_deref() == Some("cli");
        if from_cli && self.failed.is_some() {
            return Outcome::Ignored("last text again"); // after the cause, which the agent loop told
        }
        let outcome = outcome_of_error(&message);
        self.failed = (!from_cli).then(|| outcome.into());
        self.turning = false;
        let denied = self.refused && is_refusal(&message, &self.refusals);
        out.error(message, stamp, true);
        let state = State::new("end")
            .with("outcome", if denied { "denied" } else { outcome })
            .with("reason", source);
        out.state(state, stamp);
        Outcome::Mapped
    }

    // ---------------------------------------------------------------- stream-jsonrpc

    fn method(
        &mut self,
        method: &str,
        params: Option<Value<'_>>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let params = params.filter(Value::is_object);
        let stamp = Stamp::default();
        match method {
            "droid.session_notification" => {
                let Some(params) = params else {
                    return Outcome::Unknown;
                };
                let value = params.get("notification").filter(Value::is_object);
                let session = params.text_of("sessionId");
                return self.notification(value.unwrap_or(params), session, out);
            }
            "droid.request_permission" => {
                let uses = params.and_then(|params| params.get("toolUses"));
                for use_ in uses.into_iter().flat_map(|uses| uses.items()) {
                    if !use_.is_object() {
                        continue;
                    }
                    let inner = use_.get("toolUse");
                    let text = |key: &str| inner.and_then(|inner| inner.text_of(key));
                    let state = State::new("approval")
                        .with("phase", "requested")
                        .with("toolCallId", text("id"))
                        .with("toolName", text("name"));
                    out.state(state, &stamp);
                }
            }
            "droid.ask_user" => {
                let id = params.and_then(|params| params.text_of("toolCallId"));
                let state = State::new("approval").with("phase", "requested");
                out.state(state.with("toolCallId", id), &stamp);
            }
            other if other.starts_with("droid.") => return Outcome::Ignored("request"),
            _ => return Outcome::Unknown,
        }
        Outcome::Mapped
    }

    /// An answer to the client. Only one that comes before any turn can be a failure of the run.
    fn response(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let stamp = Stamp::default();
        if let Some(result) = value.get("result").filter(Value::is_object) {
            let details = [
                ("sessionId", result.text_of("sessionId")),
                (
                    "model",
                    result
                        .get("settings")
                        .and_then(|settings| settings.text_of("modelId")),
                ),
                ("cwd", result.text_of("cwd")),
            ];
            out.session_state(&details, &stamp);
            return Outcome::Ignored("response");
        }
        let error = value.get("error");
        let message = error.and_then(|error| error.text_of("message"));
        let code = count(error.and_then(|error| error.get("code")));
        let Some(message) = message.filter(|_| !code.is_some_and(|c| HARMLESS.contains(&c))) else {
            return Outcome::Ignored("response");
        };
        let fatal = !self.turning && self.answer.is_empty();
        out.error(message, &stamp, fatal);
        if fatal {
            out.state(end("failed", "error response"), &stamp);
        }
        Outcome::Mapped
    }

    fn notification(
        &mut self,
        value: Value<'_>,
        session: Option<Text<'_>>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let kind = value.text_of("type").unwrap_or_default();
        let parent = self.children.get(session.as_deref().unwrap_or(""));
        let mut stamp = Stamp {
            message_id: value.text_of("messageId"),
            timestamp: time_of(value),
            parent: parent.map(|call| call.clone().into()),
            session_id: session,
            ..Stamp::default()
        };
        let object = |key: &str| value.get(key).filter(Value::is_object);
        match &*kind {
            "assistant_text_delta" => return self.delta(Kind::Message, value, &stamp, out),
            "thinking_text_delta" => return self.delta(Kind::Thought, value, &stamp, out),
            "create_message" => {
                if let Some(message) = object("message") {
                    return self.whole_message(message, stamp, out);
                }
            }
            "tool_call" => {
                if let Some(block) = object("toolUse") {
                    return self.tool_use(block, &stamp, out);
                }
            }
            "tool_result" => {
                if let Some(id) = value.text_of("toolUseId") {
                    stamp.message_id = None; // that of the message which takes the result to the model
                    self.inputs.remove(&*id);
                    let (failed, content) = (value.get("isError"), value.get("content"));
                    return self.result(Some(id), failed, content, None, &stamp, out);
                }
            }
            "tool_progress_update" | "tool_progress" => return progress(value, &stamp, out),
            "error" => return self.failure(value, &stamp, out),
            "agent_turn_completed" | "droid_working_state_changed" => {
                return self.working(&kind, value, &stamp, out);
            }
            _ => {}
        }
        match &*kind {
            "message" | "reasoning" | "completion" | "tool_call" | "tool_result" | "result" => {
                self.record(&kind, value, &stamp, out)
            }
            other => self.facts(other, value, &stamp, out),
        }
    }

    fn delta(
        &mut self,
        chunk: Kind,
        value: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let delta = value.get("textDelta").and_then(|delta| delta.as_str());
        let Some(text) = delta.filter(|text| !text.raw().is_empty()) else {
            return Outcome::Ignored("empty text");
        };
        let stream = self.stream(stamp, out);
        let blocks = match chunk {
            Kind::Message => &mut stream.texts,
            _ => &mut stream.thoughts,
        };
        let index = count(value.get("blockIndex"));
        let known = blocks.iter().position(|block| *block == index);
        let place = known.unwrap_or_else(|| {
            blocks.push(index);
            blocks.len() - 1
        });
        out.delta(chunk, place as i64, text, stamp);
        Outcome::Mapped
    }

    /// The message that the stamp's thread is at; with another id, the one before is over.
    fn stream(&mut self, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> &mut Stream {
        let thread = stamp.thread().unwrap_or("");
        let message = stamp.message_id.as_deref();
        let known = self.streams.get(thread);
        if known.is_none_or(|stream| stream.message.as_deref() != message) {
            let stream = Stream {
                message: message.map(str::to_owned),
                ..Stream::default()
            };
            self.streams.insert(thread.to_owned(), stream);
            out.commit(stamp.thread());
            out.next_turn();
        }
        self.streams.entry(thread.to_owned()).or_default()
    }

    fn whole_message(
        &mut self,
        message: Value<'_>,
        stamp: Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let stamp = Stamp {
            message_id: message.text_of("id"),
            timestamp: filled(stamp.timestamp).or_else(|| iso_millis(message.get("createdAt"))),
            model: message.text_of("modelId"),
            session_id: stamp.session_id,
            parent: stamp.parent,
            extra: stamp.extra,
        };
        let content = message.get("content");
        let blocks = content.into_iter().flat_map(|content| content.items());
        match message.text_of("role").as_deref() {
            Some("assistant") => {
                self.stream(&stamp, out).whole = true;
                self.blocks(blocks, &stamp, out);
                Outcome::Mapped
            }
            Some("user") if message.text_of("visibility").as_deref() == Some("llm_only") => {
                Outcome::Ignored("harness reminder")
            }
            Some("user") => {
                for block in blocks {
                    match block.text_of("type").as_deref() {
                        Some("text") => {
                            self.message(Some("user"), block.text_of("text"), &stamp, out);
                        }
                        Some("image") => user_image(block, &stamp, out),
                        _ => {}
                    }
                }
                Outcome::Mapped
            }
            _ => Outcome::Ignored("message of the harness"),
        }
    }

    /// The blocks of a whole message; the deltas of its n-th text belong to its n-th text block.
    fn blocks<'v>(
        &mut self,
        blocks: impl Iterator<Item = Value<'v>>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) {
        let (mut texts, mut thoughts) = (0i64, 0i64);
        self.answer_id = None;
        for block in blocks {
            match block.text_of("type").as_deref() {
                Some("text") => {
                    let Some(text) = block.text_of("text") else {
                        continue;
                    };
                    if is_refusal(&text, &self.refusals) {
                        self.refused = true;
                        continue;
                    }
                    self.answered(&text, stamp);
                    out.final_text(Kind::Message, texts, text, stamp);
                    texts += 1;
                }
                Some("thinking") => {
                    if let Some(text) = block.text_of("thinking") {
                        out.final_text(Kind::Thought, thoughts, text, stamp);
                        thoughts += 1;
                    }
                }
                Some("tool_use") => {
                    self.tool_use(block, stamp, out);
                }
                _ => {}
            }
        }
    }

    /// A call, which may come again with more of its arguments.
    fn tool_use(&mut self, block: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        let Some(id) = block.text_of("id") else {
            return Outcome::Unknown;
        };
        let (name, input) = (block.text_of("name"), block.get("input"));
        let told = input.map(|input| Data::Wire(input).to_raw());
        if !out.is_open(&id) {
            match told {
                Some(told) => self.inputs.insert(id.to_string(), told),
                None => self.inputs.remove(&*id),
            };
            return self.call(Some(id), name, input, stamp, out);
        }
        let (Some(input), Some(told)) = (input.filter(Value::is_object), told) else {
            return Outcome::Ignored("call again");
        };
        if self.inputs.get(&*id) == Some(&told) {
            return Outcome::Ignored("call again");
        }
        self.inputs.insert(id.to_string(), told);
        let data = Data::Wire(input);
        let facts = tool::describe(DIALECT.name, name.as_deref(), &data);
        let mut update = Update {
            title: Some(facts.title),
            content: facts.content,
            locations: facts.locations,
            ..Update::new(id.borrow(), None)
        };
        update.facts.input = Some(input.into());
        out.update(update, stamp);
        self.todos.remember(&id, name.as_deref(), Some(input));
        Outcome::Mapped
    }

    fn failure(&mut self, value: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        let Some(message) = value.text_of("message") else {
            return Outcome::Unknown;
        };
        self.failed = Some(outcome_of_error(&message).into());
        out.error(message, stamp, stamp.thread().is_none());
        self.end(None, stamp, out);
        Outcome::Mapped
    }

    fn working(
        &mut self,
        kind: &str,
        value: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        if kind == "agent_turn_completed" {
            let object = |key: &str| value.get(key).filter(Value::is_object);
            let usage = object("cumulativeTokenUsage").or_else(|| object("tokenUsage"));
            rpc_usage(usage, stamp, out);
            let reason = filled(value.text_of("reason")).unwrap_or("completed".into());
            self.turning |= stamp.thread().is_none();
            self.end(Some(reason), stamp, out);
            return Outcome::Mapped;
        }
        match value.text_of("newState").as_deref() {
            Some("idle") => self.end(Some("completed".into()), stamp, out),
            Some("compacting_conversation") => {
                out.state(State::new("compaction").with("phase", "start"), stamp);
            }
            _ => return Outcome::Ignored("working state"),
        }
        Outcome::Mapped
    }

    /// The turn is over, if one is: with the reason that was told, or because of an error.
    fn end(&mut self, reason: Option<Text<'_>>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        if !self.turning || stamp.thread().is_some() {
            return;
        }
        self.turning = false;
        let outcome = match outcome(reason.as_deref()) {
            _ if self.refused => "denied",
            told @ ("completed" | "failed") => self.failed.as_deref().unwrap_or(told),
            told => told,
        };
        out.close(None);
        let state = State::new("turn")
            .with("phase", "end")
            .with("outcome", outcome)
            .with("reason", reason);
        out.state(state, stamp);
    }

    /// Notifications about the session.
    fn facts(
        &mut self,
        kind: &str,
        value: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        match kind {
            "session_token_usage_changed" => {
                let inclusive = value.get("inclusiveTokenUsage").filter(Value::is_object);
                rpc_usage(inclusive.or_else(|| value.get("tokenUsage")), stamp, out);
            }
            "settings_updated" => {
                let settings = value.get("settings");
                let text = |key: &str| settings.and_then(|settings| settings.text_of(key));
                let state = State::new("model")
                    .with("model", text("modelId"))
                    .with("effort", text("reasoningEffort"));
                out.state(state, stamp);
            }
            "session_title_updated" => {
                out.session_state(&[("title", value.text_of("title"))], stamp);
            }
            "session_working_directory_changed" => {
                out.session_state(&[("cwd", value.text_of("cwd"))], stamp);
            }
            "session_compacted" => {
                let state = State::new("compaction")
                    .with("phase", "end")
                    .with("success", true);
                out.state(state, stamp);
            }
            "llm_retry" => {
                let stream = self.streams.get(stamp.thread().unwrap_or(""));
                if stream.is_some_and(|stream| !stream.whole) {
                    out.abandon(stamp.thread(), stamp);
                }
                let state = State::new("retry")
                    .with("phase", "start")
                    .with("attempt", count(value.get("attempt")))
                    .with("message", value.text_of("reason"));
                out.state(state, stamp);
            }
            "permission_resolved" => {
                let ids = value.get("toolUseIds");
                for id in ids.into_iter().flat_map(|ids| ids.items()) {
                    let Some(id) = id.text() else { continue };
                    let state = State::new("approval")
                        .with("phase", "settled")
                        .with("toolCallId", id)
                        .with("decision", value.text_of("selectedOption"));
                    out.state(state, stamp);
                }
            }
            "child_session_available" => {
                let call = value.text_of("toolUseId");
                if let (Some(child), Some(call)) = (value.text_of("childSessionId"), call) {
                    self.children
                        .insert(child.into_string(), call.into_string());
                }
                return Outcome::Ignored("session of a sub-agent");
            }
            other => return rule(IGNORED, other),
        }
        Outcome::Mapped
    }
}

fn end(outcome: &'static str, reason: &'static str) -> State<'static> {
    State::new("end")
        .with("outcome", outcome)
        .with("reason", reason)
}

/// The whole output of the json mode.
fn only_result(value: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
    out.session_state(&[("sessionId", stamp.session_id.clone())], stamp);
    usage(value.get("usage"), stamp, out);
    let (text, subtype) = (filled(value.text_of("result")), value.text_of("subtype"));
    let mut outcome = "completed";
    if is_true(value.get("is_error")) {
        outcome = outcome_of_error(text.as_deref().unwrap_or(""));
        let message = text.or_else(|| filled(subtype.clone()));
        out.error(message.unwrap_or("error".into()), stamp, true);
    } else if let Some(text) = text {
        out.whole(Kind::Message, text, stamp);
    }
    let state = State::new("end")
        .with("outcome", outcome)
        .with("reason", subtype);
    out.state(state, stamp);
    Outcome::Mapped
}

fn progress(value: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
    let Some(id) = value.text_of("toolUseId") else {
        return Outcome::Unknown;
    };
    let text = value.path(&["update", "text"]).and_then(|text| text.text());
    let update = Update {
        content: filled(text).map(Item::Text).into_iter().collect(),
        ..Update::new(id, Some("in_progress"))
    };
    match out.update(update, stamp) {
        true => Outcome::Mapped,
        false => Outcome::Ignored("late progress"),
    }
}

// -------------------------------------------------------------------- shapes that the session file shares

/// The plans that todo calls ask for: each holds when its call succeeds.
#[derive(Default, Deserialize, Serialize)]
pub(super) struct Todos(HashMap<String, Vec<PlanEntry<'static>>>);

impl Todos {
    fn remember(&mut self, id: &str, name: Option<&str>, input: Option<Value<'_>>) {
        let todos = input.and_then(|input| input.get("todos"));
        if name == Some("TodoWrite")
            && let Some(entries) = todos.and_then(plan)
        {
            self.0.insert(id.to_owned(), entries);
        }
    }
}

/// Todos as a text, `1. [pending] first thing` a line, or as a list.
fn plan(todos: Value<'_>) -> Option<Vec<PlanEntry<'static>>> {
    let Some(text) = todos.text() else {
        let entries = tool::plan_of(Some(todos), "content", "status")?;
        let own = |entry: PlanEntry<'_>| PlanEntry {
            content: entry.content.into_string().into(),
            status: entry.status,
            priority: entry.priority,
        };
        return Some(entries.into_iter().map(own).collect());
    };
    let entry = |line: &str| {
        let (status, content) = line.split_once('[')?.1.split_once(']')?;
        let content = content.trim_matches([' ', '\t', '\r']).to_owned();
        Some(tool::plan_entry(content.into(), Some(status), None))
    };
    Some(text.split('\n').filter_map(entry).collect())
}

/// A call. MCP tools are named `server___tool`.
pub(super) fn call(
    id: Text<'_>,
    name: Option<Text<'_>>,
    input: Option<Value<'_>>,
    todos: &mut Todos,
    stamp: &Stamp<'_>,
    out: &mut Emitter<'_>,
) {
    let parts = name.as_deref().and_then(|name| name.split_once("___"));
    let parts = parts.filter(|(server, tool)| !server.is_empty() && !tool.is_empty());
    let title = parts.map(|(server, tool)| Text::from(format!("{server}: {tool}")));
    let announced = Call {
        title,
        ..Call::new(id.borrow(), name.clone(), input)
    };
    out.call(announced, stamp);
    todos.remember(&id, name.as_deref(), input);
}

/// The result of a call: a text or blocks. Returns what a failed call said.
pub(super) fn result(
    id: Text<'_>,
    is_error: Option<Value<'_>>,
    content: Option<Value<'_>>,
    raw: Option<Data<'_>>,
    todos: &mut Todos,
    stamp: &Stamp<'_>,
    out: &mut Emitter<'_>,
) -> Option<String> {
    let failed = is_true(is_error);
    let text = content.and_then(|content| content.text());
    let entries = todos.0.remove(&*id).filter(|_| !failed);
    let update = Update {
        content: match filled(text.clone()) {
            Some(text) => vec![Item::Text(text)],
            None => content.into_iter().flat_map(content_of).collect(),
        },
        raw_output: raw,
        ..Update::new(id, Some(if failed { "failed" } else { "completed" }))
    };
    out.update(update, stamp);
    if let Some(entries) = entries {
        out.plan(&entries, stamp);
    }
    text.filter(|_| failed).map(Text::into_string)
}

/// How a run with this error ended: a cap that is named is a limit, anything else a failure.
pub(super) fn outcome_of_error(message: &str) -> &'static str {
    match LIMITS.iter().any(|words| message.contains(words)) {
        true => "limit",
        false => "failed",
    }
}

/// Whether a message only repeats what one of the failed calls before it said.
pub(super) fn is_refusal(text: &str, refusals: &[String]) -> bool {
    let again = |said: &String| text == said || said.strip_prefix("Error: ") == Some(text);
    refusals.iter().any(again)
}

/// Tool content from text and image blocks.
fn content_of(content: Value<'_>) -> impl Iterator<Item = Item<'_>> {
    content
        .items()
        .filter_map(|block| match block.text_of("type").as_deref() {
            Some("text") => block.text_of("text").map(Item::Text),
            Some("image") => image_of(block).map(Item::Image),
            _ => None,
        })
}

fn image_of(block: Value<'_>) -> Option<Image<'_>> {
    let source = block.get("source")?;
    let mime = filled(source.text_of("media_type")).or_else(|| source.text_of("mediaType"));
    Some(Image {
        data: source.text_of("data")?,
        mime: mime.unwrap_or_default(),
        uri: None,
    })
}

pub(super) fn user_image(block: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
    if let Some(image) = image_of(block) {
        out.image(Kind::User, &image, stamp);
    }
}

/// The run's total: input leaves out what was read from and written to the cache. Cumulative over the session, with its
/// earlier runs and its sub-agents.
fn usage(value: Option<Value<'_>>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
    let names = [
        "input_tokens",
        "output_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
    ];
    if let Some(value) = value.filter(Value::is_object) {
        out.run_usage(&tokens(value, names), stamp, None);
    }
}

fn rpc_usage(value: Option<Value<'_>>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
    let names = [
        "inputTokens",
        "outputTokens",
        "cacheReadTokens",
        "cacheCreationTokens",
    ];
    if let Some(value) = value.filter(Value::is_object)
        && stamp.thread().is_none()
    {
        out.run_usage_so_far(&tokens(value, names), stamp);
    }
}

fn tokens<'a>(value: Value<'a>, names: [&str; 4]) -> Tokens<'a> {
    let [input, output, cached, written] = names.map(|name| value.get(name));
    let others = members(value).into_iter();
    let others = others.filter(|(key, _)| !names[..3].iter().any(|name| key.eq(name)));
    Tokens {
        prompt: total([input, cached, written]),
        completion: count(output),
        cached: count(cached),
        cost: None,
        extra: others
            .map(|(key, item)| (key.into(), item.into()))
            .collect(),
    }
}

fn without_blanks(text: &str) -> impl Iterator<Item = char> {
    let is_blank = |character: &char| {
        matches!(
            character,
            ' ' | '\t'..='\r' | '\u{a0}' | '\u{feff}' | '\u{2028}' | '\u{2029}'
        )
    };
    text.chars().filter(move |character| !is_blank(character))
}
