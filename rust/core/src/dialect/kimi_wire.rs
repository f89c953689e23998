//! Kimi's wire: `wire.jsonl` on disk, of kimi-cli (recorded: protocol 1.1 and 1.10) and of kimi-code ([`kimi_journal`]),
//! and the JSON-RPC lines of `kimi --wire`.
//!
//! What stream-json lacks stands here: usage for each step, is_error, prompts, thoughts, sub-agents, clock. On disk a
//! text is one record, live it comes as deltas, and so do a call's arguments: a call whose arguments are no whole object
//! yet waits for the next record of its thread. A cut attempt that kimi-cli tries again inside a step stays glued to the
//! next one: only `StepRetry` takes back. kimi-cli 0.46 to 0.58 has other names for the same (known from its source).

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::{
    Dialect, Make, Mapper, Outcome, SURE, Sign, filled, has_all, has_any, kimi, kimi_journal, rule,
};
use crate::emit::{Emitter, Update, scoped};
use crate::event::{Item, Kind, Location, Stamp, State, Tokens, iso_seconds};
use crate::json::{Series, Tape, Text, Value};
use crate::number::{count, price, total};
use crate::record::Record;
use crate::run::{Ending, Exit, Reducer};

pub const DIALECT: Dialect = Dialect {
    name: "kimi-wire",
    sign,
    mapper: Make::of::<Wire>(),
    series: SERIES,
};

/// Live parts of what the main agent says or thinks.
const SERIES: &[Series] = &[
    Series {
        is: &[
            (&["method"], &["event"]),
            (&["params", "type"], &["ContentPart"]),
            (&["params", "payload", "type"], &["text"]),
        ],
        text: &["params", "payload", "text"],
        without: OTHERS,
        ..Series::NO_FACTS
    },
    Series {
        is: &[
            (&["method"], &["event"]),
            (&["params", "type"], &["ContentPart"]),
            (&["params", "payload", "type"], &["think"]),
        ],
        text: &["params", "payload", "think"],
        without: OTHERS,
        ..Series::NO_FACTS
    },
];
/// What the records on disk have.
const OTHERS: &[&[&str]] = &[&["type"], &["message"]];

const IGNORED: &[(&str, &str)] = &[
    ("MCPLoadingBegin", "loading of MCP servers"),
    ("MCPLoadingEnd", "loading of MCP servers"),
    ("HookTriggered", "hook"),
    ("HookResolved", "hook"),
    ("HookRequest", "hook"),
    ("Notification", "notice"),
    ("PlanDisplay", "plan display"),
    ("BtwBegin", "side question"),
    ("BtwEnd", "side question"),
    ("ToolCallRequest", "call again"),
];
/// The types of kimi-cli 0.46 to 0.58.
const OLD_NAMES: &[(&str, &str)] = &[
    ("approval", "ApprovalRequest"),
    ("compaction_begin", "CompactionBegin"),
    ("compaction_end", "CompactionEnd"),
    ("content_part", "ContentPart"),
    ("status_update", "StatusUpdate"),
    ("step_begin", "StepBegin"),
    ("step_interrupted", "StepInterrupted"),
    ("subagent_event", "SubagentEvent"),
    ("tool_call", "ToolCall"),
    ("tool_call_part", "ToolCallPart"),
    ("tool_result", "ToolResult"),
];
/// JSON-RPC errors that end a prompt; the others answer requests that were wrong or came at the wrong time.
const PROMPT_ERRORS: [i64; 6] = [-32001, -32002, -32003, -32004, -32099, -32603];
/// What a status has that ends a step; others tell of MCP servers and modes.
const STEP_FACTS: &[&str] = &["token_usage", "message_id", "context_usage"];
/// Requests of the client, if a log holds both directions.
const CLIENT_METHODS: &[&str] = &[
    "initialize",
    "prompt",
    "steer",
    "replay",
    "set_plan_mode",
    "cancel",
    "run",
    "interrupt",
];

/// How a prompt ended, by result.status of its response.
fn outcome_of(status: &str) -> Option<&'static str> {
    match status {
        "finished" => Some("completed"),
        "cancelled" => Some("cancelled"),
        "max_steps_reached" => Some("limit"),
        _ => None,
    }
}

fn sign(record: Value<'_>) -> Option<Sign> {
    if record.text_of("type").as_deref() == Some("metadata")
        && let Some(version) = record.text_of("protocol_version")
    {
        let version = format!("wire protocol {}", &*version);
        return Sign::of_version(SURE, "metadata with protocol_version", Some(version));
    }
    if has_all(record, &["timestamp"])
        && !has_any(record, &["type"])
        && envelope(record.get("message")).is_some()
    {
        return Sign::new(SURE, "an envelope with timestamp, type and payload");
    }
    let method = record.text_of("method");
    if let Some(method @ ("event" | "request")) = method.as_deref()
        && envelope(record.get("params")).is_some()
    {
        return Sign::new(SURE, format!("a JSON-RPC {method} with type and payload"));
    }
    if has_all(record, &["jsonrpc"]) && !has_any(record, &["method"]) {
        let result = record.get("result").filter(Value::is_object);
        let server = result.and_then(|result| result.get("server"));
        if let (Some(result), Some(server)) = (result, server.filter(Value::is_object))
            && has_all(result, &["protocol_version"])
        {
            let version = server.text_of("version").map(Text::into_string);
            let why = "the answer to initialize, with protocol_version and server";
            return Sign::of_version(SURE, why, version);
        }
        let status = result.and_then(|result| result.text_of("status"));
        if status.is_some_and(|status| outcome_of(&status).is_some()) {
            return Sign::new(60, "the answer to a prompt, with a status");
        }
        if record.text_of("id").is_some() && has_any(record, &["result", "error"]) {
            return Sign::new(10, "a JSON-RPC response with a text id");
        }
    }
    kimi_journal::sign(record)
}

/// Type and payload of a wire message.
fn envelope(value: Option<Value<'_>>) -> Option<(Text<'_>, Value<'_>)> {
    let value = value?;
    let mut kind = value.text_of("type")?;
    let mut payload = value.get("payload");
    if let Some((_, name)) = OLD_NAMES.iter().find(|(old, _)| *old == &*kind) {
        kind = (*name).into();
        payload = payload.filter(|payload| !payload.is_null()).or(Some(value)); // some had none
    }
    Some((kind, payload.filter(Value::is_object)?))
}

/// What a thread is about: the text that streams, and the call whose arguments may not be whole.
#[derive(Default, Deserialize, Serialize)]
struct Step {
    /// Of the text that streams now: "text" or "think".
    kind: Cow<'static, str>,
    call: Option<Waiting>,
}

/// A call that waits for its arguments.
#[derive(Deserialize, Serialize)]
struct Waiting {
    id: String,
    name: Option<String>,
    timestamp: Option<String>,
    arguments: String,
}

/// What came last in the turn.
#[derive(Default, PartialEq, Deserialize, Serialize)]
enum Word {
    #[default]
    Nothing,
    Answer,
    Call,
    Result,
}

#[derive(Deserialize, Serialize)]
struct Wire {
    journal: kimi_journal::Journal,
    /// By thread, in the order of their first record.
    steps: Vec<(Option<String>, Step)>,
    /// Id of an approval request: id of its call.
    asked: HashMap<String, String>,
    /// Ids of calls that a person rejected.
    rejected: HashSet<String>,
    /// A rejected call of this step has its result.
    refused: bool,
    /// No step is open: the last one told its status.
    finished: bool,
    /// The last step was interrupted by an error.
    broken: bool,
    word: Word,
}

impl Default for Wire {
    fn default() -> Self {
        Wire {
            journal: kimi_journal::Journal::default(),
            steps: Vec::new(),
            asked: HashMap::new(),
            rejected: HashSet::new(),
            refused: false,
            finished: true,
            broken: false,
            word: Word::Nothing,
        }
    }
}

impl Mapper for Wire {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        let value = record.value();
        if let Some(kind) = record.kind() {
            return self.journal.map(&kind, value, out);
        }
        if let Some((kind, payload)) = envelope(value.get("message")) {
            let stamp = Stamp::at(iso_seconds(value.get("timestamp")));
            return self.event(kind, payload, stamp, out);
        }
        let method = value.text_of("method");
        let method = method.as_deref();
        if let (Some("event" | "request"), Some((kind, payload))) =
            (method, envelope(value.get("params")))
        {
            return self.event(kind, payload, Stamp::default(), out);
        }
        if method.is_some_and(|method| CLIENT_METHODS.contains(&method)) {
            return Outcome::Ignored("request of the client");
        }
        if !has_any(value, &["method"]) && has_any(value, &["result", "error"]) {
            return self.response(value, out);
        }
        Outcome::Unknown
    }

    fn close(&mut self, out: &mut Emitter<'_>) {
        for at in 0..self.steps.len() {
            self.flush_call(at, out);
        }
    }

    fn judge(&self, run: &Reducer, exit: &Exit) -> Option<Ending> {
        if self.journal.seen {
            return self.journal.judge(run, exit);
        }
        if let Some(failed) = kimi::exit_failed(exit) {
            return Some(failed);
        }
        // protocol 1.1 has no TurnEnd
        let why = "the last step is complete and asks for no tool";
        (self.finished && self.word == Word::Answer).then(|| Ending::new("completed", None, why))
    }
}

impl Wire {
    // ---------------------------------------------------------------- events

    fn event<'a>(
        &mut self,
        mut kind: Text<'a>,
        mut payload: Value<'a>,
        mut stamp: Stamp<'a>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        while &*kind == "SubagentEvent" {
            let parent = payload.text_of("parent_tool_call_id");
            // protocol 1.5 and older
            let parent = parent.or_else(|| payload.text_of("task_tool_call_id"));
            let (Some(parent), Some(event)) = (parent, envelope(payload.get("event"))) else {
                return Outcome::Ignored("sub-agent without a call");
            };
            if let Some(at) = self.find(stamp.thread()) {
                self.flush_call(at, out);
            }
            (kind, payload) = event;
            stamp = Stamp {
                parent: Some(out.keep(parent).into()),
                ..Stamp::at(stamp.timestamp)
            };
        }
        let at = self.step(stamp.thread());
        let main = stamp.parent.is_none();
        if &*kind == "ToolCallPart" {
            if let (Some(call), Some(part)) = (
                &mut self.steps[at].1.call,
                payload.text_of("arguments_part"),
            ) {
                call.arguments.push_str(&out.keep(part));
            }
            return Outcome::Ignored("part of a call");
        }
        self.flush_call(at, out);
        match &*kind {
            "ContentPart" => self.content(at, payload, &stamp, out),
            "ToolCall" => self.call(at, payload, &stamp, out),
            "ToolResult" => self.result(payload, &stamp, out),
            "StatusUpdate" => self.status(payload, stamp, out),
            "TurnBegin" | "SteerInput" => self.prompt(at, &kind, payload, &stamp, out),
            "StepBegin" => {
                self.end_block(at, &stamp, out);
                out.commit(stamp.thread());
                out.next_turn();
                if main {
                    self.finished = false;
                    self.broken = false;
                    self.refused = false;
                }
                Outcome::Ignored("start of a step")
            }
            "StepRetry" => self.retry(at, payload, stamp, out),
            "StepInterrupted" => {
                self.broken |= main;
                Outcome::Ignored("interrupted step")
            }
            "TurnEnd" => self.turn_end(at, &stamp, out),
            "CompactionBegin" | "CompactionEnd" => {
                let end = &*kind == "CompactionEnd";
                let state = State::new("compaction")
                    .with("phase", if end { "end" } else { "start" })
                    .with("success", end.then_some(true));
                out.state(state, &stamp);
                Outcome::Mapped
            }
            "ApprovalRequest" | "QuestionRequest" => self.ask(&kind, payload, &stamp, out),
            "ApprovalResponse" | "ApprovalRequestResolved" => self.settle(payload, &stamp, out),
            other => rule(IGNORED, other),
        }
    }

    fn prompt(
        &mut self,
        at: usize,
        kind: &str,
        payload: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        self.end_block(at, stamp, out);
        if stamp.parent.is_some() {
            return Outcome::Ignored("prompt of a sub-agent"); // the delegating call holds it
        }
        if kind == "TurnBegin" {
            self.finished = true;
            self.broken = false;
            self.refused = false;
            self.word = Word::Nothing;
            self.rejected.clear();
            out.commit(None);
            out.state(State::new("turn").with("phase", "start"), stamp);
        }
        let input = payload.get("user_input");
        if !kimi::is_injected(input) {
            kimi::say(input, stamp, Kind::User, out);
        }
        Outcome::Mapped
    }

    /// A part of the answer: one whole part on disk, a delta live. Parts of one kind in a row are one text.
    fn content(
        &mut self,
        at: usize,
        payload: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let (kind, chunk) = match payload.text_of("type").as_deref() {
            Some("text") => ("text", Kind::Message),
            Some("think") => ("think", Kind::Thought),
            _ => {
                self.end_block(at, stamp, out);
                kimi::say_part(payload, stamp, Kind::Message, out);
                return Outcome::Mapped;
            }
        };
        let text = payload.get(kind).and_then(|text| text.as_str());
        let Some(text) = text.filter(|text| !text.raw().is_empty()) else {
            return Outcome::Ignored("empty text");
        };
        if self.steps[at].1.kind != kind {
            self.end_block(at, stamp, out);
            self.steps[at].1.kind = kind.into();
        }
        out.delta(chunk, kind, text, stamp);
        if stamp.parent.is_none() && kind == "text" {
            self.word = Word::Answer;
        }
        Outcome::Mapped
    }

    fn status<'a>(
        &mut self,
        payload: Value<'a>,
        mut stamp: Stamp<'a>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let told = |key: &&str| payload.get(key).is_some_and(|fact| !fact.is_null());
        self.finished |= stamp.parent.is_none() && STEP_FACTS.iter().any(told);
        let Some(usage) = payload.get("token_usage").filter(Value::is_object) else {
            return Outcome::Ignored("status without usage");
        };
        stamp.message_id = payload.text_of("message_id");
        let of = |key| usage.get(key);
        let cached = of("input_cache_read");
        let tokens = Tokens {
            prompt: total([of("input_other"), cached, of("input_cache_creation")]),
            completion: count(of("output")),
            cached: count(cached),
            extra: kimi::extra_of(usage, &["input_cache_creation"]),
            ..Tokens::default()
        };
        out.call_usage(&tokens, &stamp, None, false);
        Outcome::Mapped
    }

    /// The step is tried again: what the failed attempt said does not count.
    fn retry<'a>(
        &mut self,
        at: usize,
        payload: Value<'a>,
        mut stamp: Stamp<'a>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        self.end_block(at, &stamp, out);
        out.abandon(stamp.thread(), &stamp);
        let attempt = count(payload.get("next_attempt"));
        let wait = price(payload.get("wait_s"));
        stamp.extra = kimi::extra_of(payload, &["error_type", "status_code"]);
        let state = State::new("retry")
            .with("phase", "start")
            // printed: the number of the attempt to come
            .with("attempt", attempt.map(|next| next - 1))
            .with("maxAttempts", count(payload.get("max_attempts")))
            .with("delayMs", wait.map(|wait| wait.thousandfold()));
        out.state(state, &stamp);
        Outcome::Mapped
    }

    // ---------------------------------------------------------------- tools

    /// A call; live, its arguments may follow in parts.
    fn call(
        &mut self,
        at: usize,
        payload: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        self.end_block(at, stamp, out);
        if stamp.parent.is_none() {
            self.word = Word::Call;
        }
        let function = payload.get("function").filter(Value::is_object);
        let of = |key| function.and_then(|function| function.get(key)?.text());
        let (id, name, arguments) = (payload.text_of("id"), of("name"), of("arguments"));
        if let Some(text) = &arguments {
            out.note(text.is_lossy());
            if kimi::object(&mut Tape::new(), text, out).is_some() {
                let arguments = Some(kimi::Arguments::Text(text.borrow()));
                kimi::call(id, name, arguments, false, stamp, out);
                return Outcome::Mapped;
            }
        }
        if let Some(id) = id {
            self.steps[at].1.call = Some(Waiting {
                id: out.keep(id),
                name: name.map(|name| out.keep(name)),
                timestamp: stamp.timestamp.as_deref().map(str::to_owned),
                arguments: arguments.map(|text| out.keep(text)).unwrap_or_default(),
            });
        }
        Outcome::Mapped
    }

    /// No more parts of its arguments come.
    fn flush_call(&mut self, at: usize, out: &mut Emitter<'_>) {
        let (thread, step) = &mut self.steps[at];
        let Some(call) = step.call.take() else { return };
        let stamp = Stamp {
            parent: thread.as_deref().map(Text::from),
            ..Stamp::at(call.timestamp.map(Text::from))
        };
        let arguments = Some(kimi::Arguments::Text(call.arguments.into()));
        let name = call.name.map(Text::from);
        kimi::call(Some(call.id.into()), name, arguments, false, &stamp, out);
    }

    fn result(&mut self, payload: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        let is = |value: Option<Value<'_>>| value.and_then(|value| value.as_bool());
        let mut value = payload.get("return_value").filter(|value| !value.is_null());
        let mut failed = is(value.and_then(|value| value.get("is_error"))) == Some(true);
        if value.is_none() {
            // kimi-cli 0.46 to 0.55
            value = payload.get("result");
            failed = is(payload.get("ok")) == Some(false);
        }
        let (Some(id), Some(value)) = (
            payload.text_of("tool_call_id"),
            value.filter(Value::is_object),
        ) else {
            return Outcome::Unknown;
        };
        let id = out.keep(id);
        if stamp.parent.is_none() {
            self.word = Word::Result;
            self.refused |= self.rejected.contains(&id);
        }
        let mut content = kimi::content_of(value.get("output"));
        if failed && content.is_empty() {
            content.extend(filled(value.text_of("message")).map(Item::Text));
        }
        let mut locations = Vec::new();
        for block in kimi::items(value.get("display")) {
            if let Some((diff, place)) = diff(block) {
                content.push(diff);
                locations.push(place);
            }
        }
        let update = Update {
            key: Some(scoped(&id, stamp)),
            content,
            locations,
            raw_output: Some(value.into()),
            ..Update::new(id, Some(if failed { "failed" } else { "completed" }))
        };
        kimi::shown(out.update(update, stamp))
    }

    fn ask(
        &mut self,
        kind: &str,
        payload: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let id = payload.text_of("tool_call_id").map(|id| out.keep(id));
        if let (Some(request), Some(id)) = (payload.text_of("id"), &id) {
            self.asked.insert(out.keep(request), id.clone());
        }
        let message = match kind {
            "QuestionRequest" => {
                let first = kimi::items(payload.get("questions")).next();
                first.and_then(|question| question.text_of("question"))
            }
            _ => payload.text_of("description"),
        };
        let state = State::new("approval")
            .with("phase", "requested")
            .with("toolCallId", id)
            .with("toolName", payload.text_of("sender"))
            .with("message", message);
        out.state(state, stamp);
        Outcome::Mapped
    }

    fn settle(&mut self, payload: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        let request = payload.text_of("request_id");
        let id = request.and_then(|request| self.asked.remove(&out.keep(request)));
        let response = payload.text_of("response");
        if let (Some("reject"), Some(id)) = (response.as_deref(), &id) {
            self.rejected.insert(id.clone());
        }
        let state = State::new("approval")
            .with("phase", "settled")
            .with("toolCallId", id)
            .with("decision", response)
            .with("message", filled(payload.text_of("feedback")));
        out.state(state, stamp);
        Outcome::Mapped
    }

    // ---------------------------------------------------------------- ends

    /// Every turn ends so, the good ones and those that an error, a cancel or a cap cut off.
    fn turn_end(&mut self, at: usize, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        self.end_block(at, stamp, out);
        if stamp.parent.is_some() {
            return Outcome::Ignored("end of a sub-agent's turn");
        }
        let (outcome, reason) = if self.broken {
            (Some("failed"), Some("StepInterrupted"))
        } else if self.denied() {
            (Some("denied"), Some("reject"))
        } else if self.finished && matches!(self.word, Word::Answer | Word::Nothing) {
            (Some("completed"), None)
        } else {
            (None, None)
        };
        let state = State::new("turn")
            .with("phase", "end")
            .with("outcome", outcome)
            .with("reason", reason);
        out.state(state, stamp);
        Outcome::Mapped
    }

    fn denied(&self) -> bool {
        self.refused && self.word != Word::Answer
    }

    /// The answer to a request of the client: that to `prompt` is the turn's terminal record.
    fn response(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let stamp = Stamp::default();
        if let Some(error) = value.get("error").filter(Value::is_object) {
            let code = count(error.get("code")).filter(|code| PROMPT_ERRORS.contains(code));
            let (Some(code), Some(message)) = (code, error.text_of("message")) else {
                return Outcome::Ignored("error answer to another request");
            };
            out.error(message, &stamp, true);
            let state = State::new("end")
                .with("outcome", "failed")
                .with("reason", format!("code {code}"));
            out.state(state, &stamp);
            return Outcome::Mapped;
        }
        let Some(result) = value.get("result").filter(Value::is_object) else {
            return Outcome::Ignored("answer to a request");
        };
        if let Some(server) = result.get("server").filter(Value::is_object) {
            out.session_state(&[("version", server.text_of("version"))], &stamp);
            return Outcome::Mapped;
        }
        let status = result.text_of("status");
        let outcome = status.as_deref().and_then(outcome_of);
        // events: the answer to a replay
        let Some(outcome) = outcome.filter(|_| !has_any(result, &["events"])) else {
            return Outcome::Ignored("answer to a request");
        };
        let denied = outcome == "completed" && self.denied();
        let state = State::new("end")
            .with("outcome", if denied { "denied" } else { outcome })
            .with("reason", status);
        out.state(state, &stamp);
        Outcome::Mapped
    }

    // ---------------------------------------------------------------- threads

    fn find(&self, thread: Option<&str>) -> Option<usize> {
        let mut steps = self.steps.iter();
        steps.position(|(name, _)| name.as_deref() == thread)
    }

    fn step(&mut self, thread: Option<&str>) -> usize {
        self.find(thread).unwrap_or_else(|| {
            let thread = thread.map(str::to_owned);
            self.steps.push((thread, Step::default()));
            self.steps.len() - 1
        })
    }

    fn end_block(&mut self, at: usize, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        out.close(stamp.thread());
        self.steps[at].1.kind = "".into();
    }
}

/// The diff of a result's display block, and its place; a summary has counts instead of texts.
fn diff(block: Value<'_>) -> Option<(Item<'_>, Location<'_>)> {
    let summary = block
        .get("is_summary")
        .and_then(|summary| summary.as_bool());
    if block.text_of("type").as_deref() != Some("diff") || summary == Some(true) {
        return None;
    }
    let (path, new) = (block.text_of("path")?, block.text_of("new_text")?);
    let place = Location {
        path: path.clone(),
        line: count(block.get("new_start")),
    };
    let old = block.text_of("old_text");
    Some((Item::Diff { path, old, new }, place))
}
