//! pi: `pi --mode json` and `--mode rpc` (seed 002; recorded from 0.27.9 to 1.6.0), and what its fork oh-my-pi prints
//! (known from its source, of January to September 2026).
//!
//! Deltas first, then `*_end` with the block, then `message_end` with the message: the later is the authority. The same
//! message comes again in `turn_end` and `agent_end`, a tool result up to five times: each is taken once. Before 0.84
//! each `message_update` carried the whole message so far, which is ignored. The exit code is 0 for failures too: the
//! last assistant message's stop reason says how a prompt ended, and `agent_settled` (`agent_end` before 0.80.4) that
//! it did.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{
    Dialect, Make, Mapper, Outcome, SURE, Sign, filled, has_all, is_true, key_count, rule,
};
use crate::data::Data;
use crate::emit::{Call, Emitter, Update};
use crate::event::{Image, Item, Kind, Stamp, State, Tokens, iso_millis, text_content};
use crate::json::{Paths, Series, Text, Value};
use crate::number::{count, price, total};
use crate::record::Record;
use crate::run::{Ending, Exit, Reducer};

pub const DIALECT: Dialect = Dialect {
    name: "pi",
    sign,
    mapper: Make::of::<Pi>(),
    series: SERIES,
};

const IGNORED: &[(&str, &str)] = &[
    ("turn_start", "turn of one model call"),
    ("turn_end", "messages again"),
    ("bash_execution_update", "output of a direct command"),
    // of oh-my-pi
    ("advisor_cost_changed", "advisor"),
    ("advisor_yielded", "advisor"),
    ("available_commands_update", "commands of the session"),
    ("command_output", "output of a direct command"),
    ("config_update", "settings"),
    ("config_warnings_changed", "settings"),
    ("goal_updated", "goal"),
    ("host_tool_call", "question to the host"),
    ("host_tool_cancel", "question to the host"),
    ("host_uri_cancel", "question to the host"),
    ("host_uri_request", "question to the host"),
    ("irc_message", "message of another agent"),
    ("model_changed", "model, which it does not tell"),
    ("notice", "notice"),
    ("prompt_result", "end of a prompt again"),
    ("ready", "start of the process"),
    ("retry_fallback_applied", "model of a retry"),
    ("retry_fallback_succeeded", "model of a retry"),
    ("session_info_update", "session"),
    ("session_settled", "end of a prompt again"),
    ("subagent_event", "sub-agent"),
    ("subagent_lifecycle", "sub-agent"),
    ("subagent_progress", "sub-agent"),
    ("todo_auto_clear", "todos"),
    ("todo_reminder", "todos"),
    ("tool_presentation", "display of a call"),
    ("tool_stream_update", "part of a call"),
    ("ttsr_triggered", "rules"),
];
/// Extension dialogs that wait for a person.
const DIALOGS: [&str; 4] = ["select", "confirm", "input", "editor"];
/// Record types and a key that each has.
const MARKS: &[(&str, &str)] = &[
    ("agent_settled", "type"),
    ("queue_update", "steering"),
    ("session_info_changed", "type"),
    ("thinking_level_changed", "level"),
    ("thinking_level_changed", "thinkingLevel"),
    ("compaction_start", "reason"),
    ("compaction_end", "reason"),
    ("auto_compaction_start", "reason"),
    ("auto_compaction_end", "aborted"),
    ("auto_retry_start", "attempt"),
    ("auto_retry_end", "attempt"),
    ("summarization_retry_scheduled", "attempt"),
    ("summarization_retry_attempt_start", "source"),
    ("summarization_retry_finished", "type"),
    ("bash_execution_update", "delta"),
    ("extension_error", "error"),
    ("hook_error", "error"),
    ("ready", "supportedProtocolVersions"),
];

/// Deltas of one block.
const SERIES: &[Series] = &[Series {
    is: &[
        (&["type"], &["message_update"]),
        (
            &["assistantMessageEvent", "type"],
            &["text_delta", "thinking_delta"],
        ),
    ],
    text: &["assistantMessageEvent", "delta"],
    same: &[&["assistantMessageEvent", "contentIndex"]],
    stamp: Some(&[]),
    ..Series::NO_FACTS
}];

/// What is read of every `message_update`.
const UPDATE: [&[&str]; 4] = [
    &["assistantMessageEvent"],
    &["assistantMessageEvent", "type"],
    &["assistantMessageEvent", "contentIndex"],
    &["assistantMessageEvent", "delta"],
];

/// Stop reasons of the last assistant message: how the prompt ended.
pub(super) fn outcome(stop: Option<&str>) -> &'static str {
    match stop {
        Some("length") => "limit",
        Some("error") => "failed",
        Some("aborted") => "cancelled",
        _ => "completed",
    }
}

fn sign(record: Value<'_>) -> Option<Sign> {
    let kind = record.text_of("type")?;
    let object = |key| record.get(key).is_some_and(|value| value.is_object());
    let array = |key| record.get(key).is_some_and(|value| value.is_array());
    match &*kind {
        "session" => return header_sign(record),
        "agent_start" | "turn_start" if key_count(record) == 1 => {
            return Sign::new(SURE, format!("{} with no other key", &*kind));
        }
        "message_update" if object("assistantMessageEvent") => {
            return Sign::new(SURE, "message_update with assistantMessageEvent");
        }
        "message_start" | "message_end" if object("message") => {
            return Sign::new(60, format!("{} with a message object", &*kind));
        }
        "response"
            if record.text_of("command").is_some()
                && record.get("success").and_then(|s| s.as_bool()).is_some() =>
        {
            return Sign::new(SURE, "a response with command and success");
        }
        "extension_ui_request" | "hook_ui_request" if record.text_of("method").is_some() => {
            return Sign::new(SURE, format!("an {}", &*kind));
        }
        "entry_appended" if object("entry") => {
            return Sign::new(SURE, "entry_appended with an entry");
        }
        "turn_end" if object("message") && record.get("toolResults").is_some() => {
            return Sign::new(SURE, "turn_end with toolResults");
        }
        "agent_end" if array("messages") => {
            return Sign::new(SURE, "agent_end with messages");
        }
        other
            if other.starts_with("tool_execution_")
                && has_all(record, &["toolCallId", "toolName"]) =>
        {
            return Sign::new(SURE, format!("{other} with toolCallId and toolName"));
        }
        _ => {}
    }
    let mark = |(name, key): &&(&str, &str)| *name == &*kind && record.get(key).is_some();
    let (name, key) = MARKS.iter().find(mark)?;
    Sign::new(60, format!("{name} with {key}"))
}

/// The first line of a stream and of a session file alike.
pub(super) fn header_sign(record: Value<'_>) -> Option<Sign> {
    if !has_all(record, &["id", "cwd", "timestamp"]) {
        return None;
    }
    // a header without a version is of the first format
    let version = count(record.get("version")).unwrap_or(1);
    Sign::of_version(
        50,
        "a session header",
        Some(format!("session format {version}")),
    )
}

#[derive(Default, Deserialize, Serialize)]
struct Pi {
    /// Of [`UPDATE`].
    #[serde(skip)]
    paths: Paths<4>,
    /// Number of the assistant message that streams or came last.
    message: u32,
    /// It was started and has not ended.
    streaming: bool,
    model: Option<String>,
    /// Stop reason of the last assistant message.
    stop: Option<String>,
    /// A failed message that may still be retried.
    failure: Option<Failure>,
    /// The one that is being retried.
    retried: Option<Failure>,
    /// One whose retry was cancelled: an error if nothing follows.
    called_off: Option<Failure>,
    /// The last record said that a prompt failed, and not whether it was aborted (before 1.1).
    maybe_aborted: bool,
    running: bool,
    /// A turn is open: work goes on, or a retry waits.
    open: bool,
    /// Of a version that prints agent_settled: an agent_end is not the last word.
    settles: bool,
    /// An agent ran at all, or is to run.
    prompted: bool,
    /// An rpc command was answered.
    answered: bool,
    reported: Reported,
}

/// A message that ended in an error or an abort.
#[derive(Deserialize, Serialize)]
struct Failure {
    message: Option<String>,
    calls: Vec<FailedCall>,
    stamp: Stamp<'static>,
}

/// A call of a failed message: id, name and arguments.
#[derive(Deserialize, Serialize)]
struct FailedCall {
    id: String,
    name: Option<String>,
    input: Data<'static>,
}

impl Mapper for Pi {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        if record.kind.is_some_and(|kind| kind.eq("message_update")) {
            return self.update(record, out);
        }
        let maybe_aborted = std::mem::take(&mut self.maybe_aborted);
        let Some(kind) = record.kind() else {
            return Outcome::Unknown;
        };
        let value = record.value();
        let message = value.get("message").filter(Value::is_object);
        match (&*kind, message) {
            ("message_start", Some(message)) => self.message_start(message, out),
            ("message_end", Some(message)) => self.message_end(message, out),
            ("session", _) => {
                let details = [
                    ("sessionId", value.text_of("id")),
                    ("cwd", value.text_of("cwd")),
                    ("title", filled(value.text_of("title"))),
                ];
                let stamp = Stamp::at(value.text_of("timestamp"));
                self.another_run(&stamp, out);
                out.session_state(&details, &stamp);
                Outcome::Mapped
            }
            ("agent_start", _) => {
                self.settle_failure(out);
                self.called_off = None;
                self.running = true;
                self.open(out);
                Outcome::Mapped
            }
            ("agent_end", _) => self.agent_end(value, out),
            ("agent_settled", _) => {
                self.settle_failure(out);
                let aborted = value.get("aborted");
                let cancelled = is_true(aborted);
                let called_off = self.retried.take().or(self.called_off.take());
                self.called_off = called_off.filter(|_| !cancelled);
                let state = State::new("end");
                let state = if cancelled {
                    state.with("outcome", "cancelled").with("reason", "aborted")
                } else {
                    state
                        .with("outcome", outcome(self.stop.as_deref()))
                        .with("reason", self.stop.clone())
                };
                out.state(state, &Stamp::default());
                (self.running, self.open, self.settles) = (false, false, true);
                self.maybe_aborted = aborted.is_none() && self.stop.as_deref() == Some("error");
                Outcome::Mapped
            }
            ("response", _) if maybe_aborted && is_abort(value) => {
                // it is answered as soon as what it stopped has ended
                self.answered = true;
                self.called_off = None;
                let state = State::new("end").with("outcome", "cancelled");
                out.state(state.with("reason", "aborted"), &Stamp::default());
                Outcome::Mapped
            }
            (kind, _) if kind.starts_with("tool_execution_") => self.execution(kind, value, out),
            (kind, _) if kind.contains("compaction") => self.compaction(kind, value, out),
            (kind, _) if kind.contains("retry") => self.retry(kind, value, out),
            (kind, _) => self.rest(kind, value, out),
        }
    }

    fn close(&mut self, out: &mut Emitter<'_>) {
        self.settle_failure(out);
        if let Some(Failure {
            message: Some(message),
            stamp,
            ..
        }) = self.called_off.take()
        {
            out.error(message, &stamp, true);
        }
    }

    fn judge(&self, _run: &Reducer, exit: &Exit) -> Option<Ending> {
        if self.prompted {
            if self.open || self.stop.is_none() || exit.code != Some(0) {
                return None;
            }
            let why = "the last agent ended, and so did the process: no work was left";
            let stop = self.stop.as_deref();
            return Some(Ending::new(outcome(stop), stop, why));
        }
        if let Some(code) = exit.code.filter(|_| exit.failed()) {
            let why = "no agent ran, and the exit code tells of a failure";
            let reason = format!("exit code {code}");
            return Some(Ending::new("failed", Some(&reason), why));
        }
        self.answered.then(|| {
            let why = "rpc commands were answered, and no prompt was among them";
            Ending::new("completed", None, why)
        })
    }
}

/// True for the answer to the rpc command that stops the agent.
fn is_abort(response: Value<'_>) -> bool {
    let command = response.get("command");
    command.is_some_and(|command| command.is_text("abort")) && is_true(response.get("success"))
}

/// The blocks of one kind by the authority. Streamed ones that it lacks go, and those that come after one that was not
/// streamed are said again behind it.
fn finals(chunk: Kind, blocks: Vec<(i64, Text<'_>)>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
    let streamed = out.open_indexes(chunk, None);
    let mut missing = blocks.iter().filter(|(_, text)| !text.is_empty());
    let missing = missing.find(|(index, _)| !streamed.contains(index));
    let missing = missing.map_or(i64::MAX, |(index, _)| *index);
    for index in streamed.into_iter().rev() {
        if index > missing || blocks.iter().all(|(known, _)| *known != index) {
            out.drop_block(chunk, index, stamp);
        }
    }
    for (index, text) in blocks {
        out.final_text(chunk, index, text, stamp);
    }
}

impl Pi {
    // ---------------------------------------------------------------- text

    fn update(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        let [event, kind, index, delta] = record.spots(&UPDATE, &mut self.paths);
        let kind = record.json.at(kind).and_then(|kind| kind.as_str());
        let index = || count(record.json.at(index)).unwrap_or(0);
        let streamed = match kind {
            Some(kind) if kind.eq("text_delta") => Some(Kind::Message),
            Some(kind) if kind.eq("thinking_delta") => Some(Kind::Thought),
            _ => None,
        };
        if let Some(chunk) = streamed {
            return self.streamed(chunk, index(), record.json.at(delta), out);
        }
        let event = record.json.at(event);
        let Some(event) = event.filter(Value::is_object) else {
            return Outcome::Unknown;
        };
        self.begin(out);
        let kind = kind.map(Text::from).unwrap_or_default();
        let chunk = if kind.starts_with("text") {
            Kind::Message
        } else {
            Kind::Thought
        };
        match &*kind {
            "text_end" | "thinking_end" => {
                if let Some(text) = event.text_of("content") {
                    out.final_text(chunk, index(), text, &self.stamp());
                }
                Outcome::Mapped
            }
            "toolcall_end" => match event.get("toolCall").filter(Value::is_object) {
                Some(block) => {
                    call(block, &self.stamp(), out);
                    Outcome::Mapped
                }
                None => Outcome::Ignored("part of a block"),
            },
            _ => Outcome::Ignored("part of a block"),
        }
    }

    #[inline]
    fn streamed(
        &mut self,
        chunk: Kind,
        index: i64,
        text: Option<Value<'_>>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        self.begin(out);
        let text = text.and_then(|text| text.as_str());
        let Some(text) = text.filter(|text| !text.raw().is_empty()) else {
            return Outcome::Ignored("empty text");
        };
        out.delta(chunk, index, text, &self.stamp());
        Outcome::Mapped
    }

    fn message_start(&mut self, message: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        if message.text_of("role").as_deref() == Some("assistant") {
            // a live snapshot that may hold the first delta already: nothing of it is text
            self.streaming = false;
            self.begin(out);
            self.model = message.text_of("model").map(|model| out.keep(model));
            // the word of versions since 0.83, and they print agent_settled
            self.settles |= message.text_of("stopReason").as_deref() == Some("pending");
        }
        Outcome::Ignored("start of a message")
    }

    fn message_end(&mut self, message: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let stamp = Stamp::at(iso_millis(message.get("timestamp")));
        match message.text_of("role").as_deref() {
            Some("assistant") => self.assistant_end(message, out),
            Some("user") => {
                self.settle_failure(out);
                user_message(message, &stamp, out);
                Outcome::Mapped
            }
            Some("toolResult") => {
                tool_result(message, &mut self.reported, &stamp, out);
                Outcome::Mapped
            }
            Some("system") => Outcome::Ignored("system message"),
            Some("custom") => Outcome::Ignored("custom message"),
            Some("hookMessage") => Outcome::Ignored("hookMessage message"),
            _ => Outcome::Ignored("message of another role"),
        }
    }

    /// An assistant message starts, whether or not a record says so.
    fn begin(&mut self, out: &mut Emitter<'_>) {
        if self.streaming {
            return;
        }
        self.streaming = true;
        self.maybe_aborted = false;
        self.retried = None;
        self.settle_failure(out);
        out.commit(None);
        out.next_turn();
        self.message += 1;
    }

    fn assistant_end(&mut self, message: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        self.begin(out);
        self.streaming = false;
        if let Some(model) = message.text_of("model").filter(|model| !model.is_empty()) {
            self.model = Some(out.keep(model));
        }
        let model = self.model.clone();
        let stamp = message_stamp(message, iso_millis(message.get("timestamp")), model);
        let stop = message.text_of("stopReason").map(|stop| out.keep(stop));
        let failed = matches!(stop.as_deref(), Some("error" | "aborted"));
        self.stop = stop;
        let (mut texts, mut thoughts, mut calls) = (Vec::new(), Vec::new(), Vec::new());
        let blocks = message.get("content");
        let blocks = blocks.into_iter().flat_map(|list| list.items());
        for (index, block) in blocks.enumerate() {
            let indexed = |text| (index as i64, text);
            match block.text_of("type").as_deref() {
                Some("text") => texts.extend(block.text_of("text").map(indexed)),
                Some("thinking") => thoughts.extend(block.text_of("thinking").map(indexed)),
                Some("toolCall") => calls.push(block),
                _ => {}
            }
        }
        finals(Kind::Message, texts, &stamp, out);
        finals(Kind::Thought, thoughts, &stamp, out);
        let key = format!("message:{}", self.message);
        usage(message.get("usage"), &stamp, Some(&key), false, out);
        if failed {
            // its calls may be cut and its error may be retried: both wait until that is known
            self.failure = Some(Failure {
                message: message.text_of("errorMessage").map(|text| out.keep(text)),
                calls: calls
                    .into_iter()
                    .filter_map(|block| FailedCall::of(block, out))
                    .collect(),
                stamp: stamp.to_static(),
            });
        } else {
            for block in calls {
                call(block, &stamp, out);
            }
        }
        Outcome::Mapped
    }

    fn stamp(&self) -> Stamp<'_> {
        Stamp {
            model: self.model.as_deref().map(Text::from),
            ..Stamp::default()
        }
    }

    // ---------------------------------------------------------------- tools

    fn execution(&mut self, kind: &str, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let Some(id) = value.text_of("toolCallId") else {
            return Outcome::Unknown;
        };
        let stamp = Stamp::of_thread(value.text_of("parentToolCallId"));
        match kind {
            "tool_execution_start" => {
                let call = Call {
                    status: "in_progress",
                    ..Call::new(id.borrow(), value.text_of("toolName"), value.get("args"))
                };
                if !out.call(call, &stamp) {
                    out.update(Update::new(id, Some("in_progress")), &stamp);
                }
                Outcome::Mapped
            }
            "tool_execution_update" => {
                let partial = value.get("partialResult");
                let details = partial.and_then(|partial| partial.get("details"));
                subagents(&id, details, &mut self.reported, out);
                let update = Update {
                    content: content_of(partial.and_then(|partial| partial.get("content"))),
                    ..Update::new(id, Some("in_progress"))
                };
                match out.update(update, &stamp) {
                    true => Outcome::Mapped,
                    false => Outcome::Ignored("late progress"),
                }
            }
            "tool_execution_end" => {
                self.execution_end(id, value, &stamp, out);
                Outcome::Mapped
            }
            _ => Outcome::Unknown,
        }
    }

    fn execution_end(
        &mut self,
        id: Text<'_>,
        value: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) {
        let result = value.get("result");
        let told = result.and_then(|result| result.as_str()); // up to 0.22, if the call failed
        let of = |key| result.and_then(|result| result.get(key));
        subagents(&id, of("details"), &mut self.reported, out);
        let mut raw: Vec<(Text<'_>, Data<'_>)> = Vec::new();
        for (key, item) in result.into_iter().flat_map(|result| result.entries()) {
            let empty = item.is_null() || (item.is_object() || item.is_array()) && item.is_empty();
            if !key.eq("content") && !empty {
                raw.push((key.into(), item.into()));
            }
        }
        let code = of("structuredContent").and_then(|structured| structured.get("exit_code"));
        let code = count(code);
        let failed = is_true(value.get("isError"))
            || is_true(of("isError"))
            || code.is_some_and(|code| code != 0);
        let mut update = Update {
            content: content_of(match told {
                Some(_) => result,
                None => of("content"),
            }),
            raw_output: (!raw.is_empty()).then_some(Data::Map(raw)),
            ..Update::new(id, Some(if failed { "failed" } else { "completed" }))
        };
        update.facts.exit_code = code;
        update.facts.duration_ms = price(value.get("durationMs"));
        out.update(update, stamp);
    }

    // ---------------------------------------------------------------- ends, retries, compaction

    /// Another process, of whatever version: the first record of each but in rpc mode.
    fn another_run(&mut self, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        self.close(out);
        out.commit(None);
        out.next_turn();
        out.another_run(stamp);
        self.stop = None;
        self.retried = None;
        for flag in [
            &mut self.streaming,
            &mut self.running,
            &mut self.open,
            &mut self.settles,
            &mut self.prompted,
            &mut self.answered,
        ] {
            *flag = false;
        }
    }

    fn agent_end(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        self.running = false;
        if is_true(value.get("willRetry")) {
            return Outcome::Ignored("attempt that is retried");
        }
        if value.get("yielded").and_then(|yielded| yielded.as_bool()) == Some(false) {
            // oh-my-pi: it retries, compacts or reminds
            return Outcome::Ignored("end of an agent that goes on");
        }
        self.end_turn(out);
        Outcome::Mapped
    }

    fn open(&mut self, out: &mut Emitter<'_>) {
        self.prompted = true;
        if !self.open {
            self.open = true;
            out.state(State::new("turn").with("phase", "start"), &Stamp::default());
        }
    }

    fn end_turn(&mut self, out: &mut Emitter<'_>) {
        self.open = false;
        let told = outcome(self.stop.as_deref());
        let state = State::new("turn")
            .with("phase", "end")
            .with("outcome", Some(told).filter(|_| !self.settles))
            .with("reason", self.stop.clone());
        out.state(state, &Stamp::default());
    }

    fn retry(&mut self, kind: &str, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        match kind {
            "auto_retry_start" | "summarization_retry_scheduled" => {
                if kind == "auto_retry_start" {
                    self.take_back(out);
                    self.open(out);
                }
                let state = State::new("retry")
                    .with("phase", "start")
                    .with("attempt", count(value.get("attempt")))
                    .with("maxAttempts", count(value.get("maxAttempts")))
                    .with("delayMs", price(value.get("delayMs")))
                    .with("message", value.text_of("errorMessage"));
                out.state(state, &Stamp::default());
                Outcome::Mapped
            }
            "auto_retry_end" => {
                let success = value.get("success").and_then(|success| success.as_bool());
                let state = State::new("retry")
                    .with("phase", "end")
                    .with("attempt", count(value.get("attempt")))
                    .with("success", success)
                    .with("message", value.text_of("finalError"));
                out.state(state, &Stamp::default());
                if let Some(message) = value.text_of("finalError")
                    && success == Some(false)
                    && self.stop.as_deref() == Some("stop")
                {
                    // oh-my-pi: the answers were empty, however often it asked
                    self.stop = Some("error".into());
                    self.failure = Some(Failure {
                        message: Some(out.keep(message)),
                        calls: Vec::new(),
                        stamp: self.stamp().to_static(),
                    });
                    if !self.running {
                        self.end_turn(out);
                    }
                    return Outcome::Mapped;
                }
                if success == Some(false) && !self.running {
                    self.called_off = self.retried.take().or(self.called_off.take());
                    if self.open && !self.settles {
                        self.end_turn(out); // a retry that was called off was the last of it
                    }
                }
                Outcome::Mapped
            }
            other if other.starts_with("summarization_retry_") => Outcome::Ignored("summary retry"),
            other => rule(IGNORED, other),
        }
    }

    fn compaction(&mut self, kind: &str, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let trigger = value.text_of("reason");
        let stamp = Stamp::default();
        if kind.ends_with("compaction_start") {
            let state = State::new("compaction").with("phase", "start");
            out.state(state.with("trigger", trigger), &stamp);
            return Outcome::Mapped;
        }
        if !kind.ends_with("compaction_end") {
            return Outcome::Unknown;
        }
        let result = value.get("result").filter(Value::is_object);
        usage(result.and_then(|r| r.get("usage")), &stamp, None, true, out);
        if is_true(value.get("willRetry")) {
            self.take_back(out); // the overflow that the compaction cures
            self.open(out);
        }
        let message = value.text_of("errorMessage");
        let state = State::new("compaction")
            .with("phase", "end")
            .with("trigger", trigger)
            .with("success", result.is_some())
            .with(
                "summary",
                result.and_then(|result| result.text_of("summary")),
            )
            .with("message", message.clone());
        out.state(state, &stamp);
        if let Some(message) = message {
            self.settle_failure(out); // the overflow that it could not cure
            out.error(message, &stamp, false);
        }
        Outcome::Mapped
    }

    /// The failed attempt is tried again: what it said does not count, and its error was none.
    fn take_back(&mut self, out: &mut Emitter<'_>) {
        self.retried = self.failure.take();
        out.abandon(None, &Stamp::default());
    }

    /// No retry came: the failed message stands, with its calls and its error.
    fn settle_failure(&mut self, out: &mut Emitter<'_>) {
        let Some(failure) = self.failure.take() else {
            return;
        };
        for call in failure.calls {
            let name = call.name.map(Text::from);
            out.call(Call::new(call.id, name, call.input), &failure.stamp);
        }
        if let Some(message) = failure.message {
            out.error(message, &failure.stamp, true);
        }
    }

    // ---------------------------------------------------------------- rpc and the rest

    fn rest(&mut self, kind: &str, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let stamp = Stamp::default();
        match kind {
            "queue_update" => {
                let queues = [value.get("steering"), value.get("followUp")];
                let items = queues.into_iter().flatten().flat_map(|queue| queue.items());
                let prompts: Vec<Text<'_>> = items.filter_map(|prompt| prompt.text()).collect();
                out.state(State::new("queue").with("prompts", prompts), &stamp);
            }
            "thinking_level_changed" => {
                let level = filled(value.text_of("level"));
                let level = level.or_else(|| value.text_of("thinkingLevel"));
                let state = State::new("model").with("effort", level);
                out.state(state, &stamp);
            }
            "session_info_changed" => {
                out.session_state(&[("title", value.text_of("name"))], &stamp);
            }
            "extension_ui_request" | "hook_ui_request" => {
                let method = value.text_of("method").unwrap_or_default();
                if !DIALOGS.contains(&&*method) {
                    return Outcome::Ignored("extension display");
                }
                let state = State::new("approval")
                    .with("phase", "requested")
                    .with("message", value.text_of("title"));
                out.state(state, &stamp);
            }
            "extension_error" | "hook_error" => {
                let message = value.text_of("error").filter(|text| !text.is_empty());
                out.error(message.unwrap_or("extension error".into()), &stamp, false);
            }
            "entry_appended" => match value.get("entry").filter(Value::is_object) {
                Some(entry) if entry.text_of("type").as_deref() == Some("usage") => {
                    let stamp = Stamp {
                        model: entry.text_of("model"),
                        ..stamp
                    };
                    usage(entry.get("usage"), &stamp, None, true, out);
                }
                Some(_) => return Outcome::Ignored("session entry"),
                None => return Outcome::Unknown,
            },
            "response" => return self.response(value, out),
            other => return rule(IGNORED, other),
        }
        Outcome::Mapped
    }

    /// An answer to an rpc command; only a refused prompt is a failure of the run.
    fn response(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        self.answered = true;
        let stamp = Stamp::default();
        let command = value.text_of("command").unwrap_or_default();
        if &*command == "get_state"
            && let Some(data) = value.get("data").filter(Value::is_object)
        {
            let details = [
                ("sessionId", data.text_of("sessionId")),
                (
                    "model",
                    data.get("model").and_then(|model| model.text_of("id")),
                ),
            ];
            out.session_state(&details, &stamp);
            return Outcome::Mapped;
        }
        let disposition = value.path(&["data", "disposition"]);
        if &*command == "prompt" && disposition.is_some_and(|word| word.is_text("started")) {
            self.open(out);
            return Outcome::Mapped;
        }
        let refused = value.get("success").and_then(|s| s.as_bool()) == Some(false);
        if &*command == "prompt" && refused && !self.running {
            let message = value.text_of("error").filter(|text| !text.is_empty());
            out.error(message.unwrap_or("prompt refused".into()), &stamp, true);
            let state = State::new("end")
                .with("outcome", "failed")
                .with("reason", "prompt refused");
            out.state(state, &stamp);
            return Outcome::Mapped;
        }
        Outcome::Ignored("response")
    }
}

impl FailedCall {
    fn of(block: Value<'_>, out: &mut Emitter<'_>) -> Option<FailedCall> {
        let input = match block.get("arguments") {
            Some(arguments) => Data::Wire(arguments).to_static(),
            None => Data::Null,
        };
        Some(FailedCall {
            id: out.keep(block.text_of("id")?),
            name: block.text_of("name").map(|name| out.keep(name)),
            input,
        })
    }
}

// -------------------------------------------------------------------- shapes that the session file shares

/// How many messages of each sub-agent (call id, index) were told.
pub(super) type Reported = HashMap<(String, usize), usize>;

/// The stamp of an assistant message.
pub(super) fn message_stamp<'a>(
    message: Value<'a>,
    timestamp: Option<Text<'a>>,
    model: Option<String>,
) -> Stamp<'a> {
    let reasons = ["stopReason", "rawStopReason"];
    let extra = reasons
        .into_iter()
        .filter_map(|key| Some((key.into(), message.text_of(key)?.into())));
    Stamp {
        message_id: message.text_of("responseId"),
        timestamp,
        model: model.map(Text::from),
        extra: extra.collect(),
        ..Stamp::default()
    }
}

/// What a person typed: a string (old versions) or blocks.
pub(super) fn user_message(message: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
    if let Some(text) = message.text_of("content") {
        out.whole(Kind::User, text, stamp);
        return;
    }
    for item in content_of(message.get("content")) {
        match item {
            Item::Text(text) => out.whole(Kind::User, text, stamp),
            Item::Image(image) => out.image(Kind::User, &image, stamp),
            Item::Diff { .. } => {}
        }
    }
}

/// A toolResult message: the result again after its tool_execution_end, or the only one in a session file.
pub(super) fn tool_result(
    message: Value<'_>,
    reported: &mut Reported,
    stamp: &Stamp<'_>,
    out: &mut Emitter<'_>,
) {
    let Some(id) = message.text_of("toolCallId") else {
        return;
    };
    let details = message.get("details");
    subagents(&id, details, reported, out);
    let failed = is_true(message.get("isError"));
    let details = details.filter(|details| details.is_object() && !details.is_empty());
    let mut update = Update {
        content: content_of(message.get("content").or_else(|| message.get("output"))), // `output` up to 0.5
        raw_output: details.map(|details| Data::Map(vec![("details".into(), details.into())])),
        ..Update::new(
            id.borrow(),
            Some(if failed { "failed" } else { "completed" }),
        )
    };
    update.facts.duration_ms = price(message.get("durationMs"));
    out.update(update, stamp);
    let timestamp = || stamp.timestamp.as_ref().map(Text::borrow);
    if stamp.thread().is_none() {
        let stamp = Stamp {
            timestamp: timestamp(),
            ..Stamp::default()
        };
        usage(message.get("usage"), &stamp, None, true, out); // of a model that the tool asked
    }
    let stamp = Stamp {
        timestamp: timestamp(),
        ..Stamp::of_thread(Some(&*id))
    };
    nested(message.path(&["nestedCalls", "calls"]), &stamp, out);
}

/// The calls that a tool made by itself (codemode), as far as they had no records of their own.
fn nested(calls: Option<Value<'_>>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
    for block in calls.into_iter().flat_map(|calls| calls.items()) {
        let Some(id) = block.text_of("id").filter(|id| !out.knows(id)) else {
            continue;
        };
        call(block, stamp, out);
        let status = match block.text_of("status").as_deref() {
            Some("ok") => "completed",
            Some("error") => "failed",
            _ => continue,
        };
        let error = block.text_of("error").filter(|text| !text.is_empty());
        let mut update = Update {
            content: text_content(error),
            ..Update::new(id, Some(status))
        };
        update.facts.duration_ms = price(block.get("durationMs"));
        out.update(update, stamp);
    }
}

/// What the sub-agents of a call said and did, from the details that the `subagent` extension prints.
///
/// Each list of messages is cumulative: `reported` holds how many of it were told. Their usage is not told: they are
/// processes of their own, which pi's own totals leave out too.
fn subagents(id: &str, details: Option<Value<'_>>, reported: &mut Reported, out: &mut Emitter<'_>) {
    let results = details.and_then(|details| details.get("results"));
    let results = results.into_iter().flat_map(|results| results.items());
    for (index, result) in results.enumerate() {
        let messages = result.get("messages").filter(Value::is_array);
        let length = messages.map_or(0, |messages| messages.len());
        let told = reported.entry((id.to_owned(), index)).or_default();
        let first = *told;
        *told = first.max(length);
        for message in messages.into_iter().flat_map(|m| m.items()).skip(first) {
            let stamp = Stamp {
                message_id: message.text_of("responseId"),
                timestamp: iso_millis(message.get("timestamp")),
                model: message.text_of("model"),
                ..Stamp::of_thread(Some(id))
            };
            match message.text_of("role").as_deref() {
                Some("assistant") => {
                    out.next_turn();
                    content(message.get("content"), &stamp, out);
                }
                Some("toolResult") => tool_result(message, reported, &stamp, out),
                _ => {}
            }
        }
    }
}

/// The blocks of a whole assistant message.
pub(super) fn content(blocks: Option<Value<'_>>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
    for block in blocks.into_iter().flat_map(|blocks| blocks.items()) {
        match block.text_of("type").as_deref() {
            Some("text") => {
                out.whole(
                    Kind::Message,
                    block.text_of("text").unwrap_or_default(),
                    stamp,
                );
            }
            Some("thinking") => {
                let text = block.text_of("thinking").unwrap_or_default();
                out.whole(Kind::Thought, text, stamp);
            }
            Some("toolCall") => call(block, stamp, out),
            _ => {}
        }
    }
}

fn call(block: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
    if let Some(id) = block.text_of("id") {
        let name = block.text_of("name");
        out.call(Call::new(id, name, block.get("arguments")), stamp);
    }
}

/// Tool content from pi's text and image blocks.
/// Tool content from blocks, or from a text.
fn content_of(content: Option<Value<'_>>) -> Vec<Item<'_>> {
    if let Some(text) = content.and_then(|content| content.text()) {
        return text_content(filled(Some(text)));
    }
    let blocks = content.into_iter().flat_map(|content| content.items());
    blocks.filter_map(item_of).collect()
}

fn item_of(block: Value<'_>) -> Option<Item<'_>> {
    match block.text_of("type").as_deref() {
        Some("text") => block.text_of("text").map(Item::Text),
        Some("image") => Some(Item::Image(Image {
            data: block.text_of("data")?,
            mime: block.text_of("mimeType").unwrap_or_default(),
            uri: None,
        })),
        _ => None,
    }
}

/// pi's counters: input excludes what was read from or written to the cache.
pub(super) fn usage(
    value: Option<Value<'_>>,
    stamp: &Stamp<'_>,
    key: Option<&str>,
    side: bool,
    out: &mut Emitter<'_>,
) {
    let Some(value) = value.filter(Value::is_object) else {
        return;
    };
    let of = |key| value.get(key);
    let mut extra: Vec<(Text<'_>, Data<'_>)> = Vec::new();
    for (name, item) in value.entries() {
        if ["cacheWrite", "cacheWrite1h", "reasoning"]
            .iter()
            .any(|known| name.eq(known))
        {
            extra.push((name.into(), item.into()));
        }
    }
    let tokens = Tokens {
        prompt: total([of("input"), of("cacheRead"), of("cacheWrite")]),
        completion: count(of("output")),
        cached: count(of("cacheRead")),
        cost: price(of("cost").and_then(|cost| cost.get("total"))),
        extra,
    };
    out.call_usage(&tokens, stamp, key, side);
}
