//! Qwen Code: `qwen PROMPT --output-format stream-json|json`, `--json-file` (recorded: 0.5.0, 0.12.0, 0.24.4).
//!
//! It looks like Claude Code's stream and is not: a model turn is several `assistant` records of one kind of block each,
//! of which only the last has the turn's usage; `input_tokens` includes the cached ones; deltas are numbered afresh
//! with each record. A failure is printed as if the model had said "[API Error: ...]", in a text block of its own or
//! glued to the answer it cut, and in the `result` (old versions: as its only text, under "success"). A `retry` that
//! does not preserve the text takes back what the turn said. A cap or a signal leaves no `result` at all. The person's
//! prompts are printed in dual output only (`--json-file`, which begins with `session_start`).

use serde::{Deserialize, Serialize};

use super::{Dialect, Make, Mapper, Outcome, SURE, Sign, anthropic, has_all, has_any, rule};
use crate::data::Data;
use crate::emit::{Call, Emitter, Update};
use crate::event::{Item, Kind, Stamp, State, Tokens, Usage};
use crate::json::{Series, Text, Value};
use crate::number::{count, price};
use crate::record::Record;
use crate::run::{Ending, Exit, Reducer};
use crate::tool;

pub const DIALECT: Dialect = Dialect {
    name: "qwen",
    sign,
    mapper: Make::of::<Qwen>(),
    series: SERIES,
};

/// Deltas of one block.
const SERIES: &[Series] = &[
    Series {
        same: SAME,
        odd: &FAILURES,
        ..anthropic::TEXT_DELTAS
    },
    Series {
        same: SAME,
        ..anthropic::THINKING_DELTAS
    },
];
const SAME: &[&[&str]] = &[&["event", "index"], &["parent_tool_use_id"]];

const CANCELLED: &str = "Operation cancelled.";
const QUOTA: &str = "Qwen OAuth quota exceeded:";
/// How failures begin that are printed as text.
const FAILURES: [&str; 3] = [
    "[API Error: ",
    QUOTA,
    "Qwen OAuth free tier has been discontinued",
];
const AGENTS: [&str; 2] = ["agent", "task"];
/// Model calls that only its total has.
const BEYOND: &str = "calls that are not printed: helpers such as memory extraction, attempts made again, \
                      earlier runs of the session";
const COUNTERS: [&str; 4] = [
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "total_tokens",
];
const EVENTS: &[(&str, &str)] = &[
    ("content_block_start", "start of a block"),
    ("content_block_stop", "end of a block"),
    ("message_stop", "end of a message"),
    ("goal_state", "goal state"),
    ("active_goal", "goal state"),
];
const NOTICES: &[(&str, &str)] = &[
    ("task_started", "background task"),
    ("task_notification", "background task"),
    ("session_end", "end of the session"),
    ("session_recording_degraded", "notice"),
    ("worktree_started", "notice"),
    ("worktree_restored", "notice"),
    ("vision_routing", "notice"),
    ("vision_bridge", "notice"),
    ("vision_bridge_failed", "notice"),
    ("continue_turn_failed", "notice"),
];

/// `subtype` of a failed result: how the run ended.
fn outcome(subtype: Option<&str>) -> &'static str {
    match subtype {
        Some(
            "error_max_turns" | "error_max_budget_usd" | "error_max_structured_output_retries",
        ) => "limit",
        _ => "failed",
    }
}

/// Whether a text is a failure that the harness printed as if the model had said it.
fn is_failure(text: &str) -> bool {
    FAILURES.iter().any(|beginning| text.starts_with(beginning))
}

fn sign(record: Value<'_>) -> Option<Sign> {
    let kind = record.text_of("type")?;
    let object = |key| record.get(key).filter(Value::is_object);
    match &*kind {
        "system" => system_sign(record),
        "assistant" if has_all(record, &["parent_tool_use_id"]) => {
            let id = object("message")?.text_of("id");
            if id.is_some() && id == record.text_of("uuid") {
                let why = "an assistant record whose message has the uuid of the record for id";
                return Sign::new(SURE, why);
            }
            Sign::new(10, "an assistant record")
        }
        "user" if has_all(record, &["parent_tool_use_id", "session_id"]) => {
            object("message")?;
            Sign::new(10, "a user record")
        }
        "stream_event" => match object("event")?.text_of("type").as_deref() {
            Some("goal_state" | "active_goal") => Sign::new(SURE, "a stream_event of a goal"),
            _ => Sign::new(10, "a stream_event"),
        },
        "result" if has_all(record, &["is_error", "permission_denials"]) => {
            if has_any(record, &["total_cost_usd", "modelUsage"]) {
                return None;
            }
            let told = object("error").is_some() || record.text_of("result").is_some();
            let sure = told && !has_any(record, &["stop_reason"]);
            let why = "a result without cost and modelUsage";
            Sign::new(if sure { SURE } else { 60 }, why)
        }
        "control_response" => {
            let answer = object("response")?.get("response").filter(Value::is_object);
            let initialize = answer.is_some_and(|answer| {
                answer.text_of("subtype").as_deref() == Some("initialize")
                    && has_all(answer, &["capabilities"])
            });
            if initialize {
                return Sign::new(SURE, "an answer to initialize with capabilities");
            }
            Sign::new(10, "a control_response")
        }
        "control_request" => {
            object("request")?;
            Sign::new(10, "a control_request")
        }
        _ => None,
    }
}

fn system_sign(record: Value<'_>) -> Option<Sign> {
    if let Some(version) = record.text_of("qwen_code_version") {
        let version = Some(version.into_string());
        return Sign::of_version(SURE, "system/init with qwen_code_version", version);
    }
    let subtype = record.text_of("subtype").unwrap_or_default();
    if &*subtype == "init" {
        let uuid = record.text_of("uuid");
        if has_all(record, &["permission_mode"])
            && uuid.is_some()
            && uuid == record.text_of("session_id")
        {
            let why = "system/init with permission_mode and the session_id as uuid";
            return Sign::new(SURE, why);
        }
        return None;
    }
    let data = record.get("data").filter(Value::is_object)?;
    record.get("session_id")?;
    if &*subtype == "session_start" && has_all(data, &["supported_events"]) {
        let version = data.text_of("version").map(Text::into_string);
        return Sign::of_version(SURE, "system/session_start with supported_events", version);
    }
    if &*subtype == "retry" && has_all(data, &["preserveText"]) {
        return Sign::new(SURE, "system/retry with preserveText");
    }
    Sign::new(60, "a system record with data")
}

#[derive(Deserialize, Serialize)]
struct Qwen {
    /// The person's prompts are printed too.
    dual: bool,
    /// Results came: what the model says next is a turn of its own.
    turn_over: bool,
    /// Text of the last record of the main agent that had text.
    said: String,
    /// The "[API Error: ...]" that was printed as text.
    error: Option<String>,
    /// The last error that was told.
    reported: Option<String>,
    /// Calls of attempts that were taken back.
    dropped: Vec<String>,
    /// Calls that delegated, while they are open.
    agents: Vec<String>,
    interrupted: bool,
    /// The last call of the main agent that has a result, if nothing came after.
    refused: Option<String>,
    /// The last record of the main agent is an answer.
    answered: bool,
}

impl Default for Qwen {
    fn default() -> Self {
        Qwen {
            dual: false,
            turn_over: true,
            said: String::new(),
            error: None,
            reported: None,
            dropped: Vec::new(),
            agents: Vec::new(),
            interrupted: false,
            refused: None,
            answered: false,
        }
    }
}

impl Mapper for Qwen {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        let value = record.value();
        let kind = record.kind().unwrap_or_default();
        let message = value.get("message").filter(Value::is_object);
        let event = value.get("event").filter(Value::is_object);
        match (&*kind, message, event) {
            ("stream_event", _, Some(event)) => self.event(value, event, out),
            ("assistant", Some(message), _) => self.assistant(value, message, out),
            ("user", Some(message), _) => self.user(value, message, out),
            ("system", ..) => self.system(value, out),
            ("result", ..) => self.result(value, out),
            ("control_request" | "control_response" | "control_cancel_request", ..) => {
                self.control(&kind, value, out)
            }
            _ => Outcome::Unknown,
        }
    }

    fn close(&mut self, out: &mut Emitter<'_>) {
        if let Some(error) = self.error.take() {
            self.report(error.into(), &Stamp::default(), true, out);
        }
    }

    fn judge(&self, run: &Reducer, exit: &Exit) -> Option<Ending> {
        let cap = match exit.code {
            Some(53) => Some("no result record, and the exit code means the cap on session turns"),
            Some(55) => {
                Some("no result record, and the exit code means a cap on tool calls or time")
            }
            _ => None,
        };
        if let (Some(why), Some(code)) = (cap, exit.code) {
            let reason = format!("exit code {code}");
            return Some(Ending::new("limit", Some(&reason), why));
        }
        let idle = run.progress.open_calls.is_empty();
        (self.dual && self.answered && idle && !exit.failed()).then(|| {
            let why = "dual output has no result record, and the last turn ended with an answer";
            Ending::new("completed", None, why)
        })
    }
}

impl Qwen {
    // ---------------------------------------------------------------- deltas

    fn event(&mut self, value: Value<'_>, event: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let thread = value.text_of("parent_tool_use_id");
        match event.text_of("type").as_deref() {
            Some("content_block_delta") => {
                let delta = event.get("delta").filter(Value::is_object);
                let kind = delta.and_then(|delta| delta.text_of("type"));
                let (Some(delta), Some(kind)) = (delta, kind) else {
                    return Outcome::Unknown;
                };
                let (chunk, key) = match &*kind {
                    "text_delta" => (Kind::Message, "text"),
                    "thinking_delta" => (Kind::Thought, "thinking"),
                    _ => return Outcome::Ignored("input of a call"),
                };
                let text = delta.get(key).and_then(|text| text.as_str());
                let Some(text) = text.filter(|text| !text.raw().is_empty()) else {
                    return Outcome::Ignored("empty text");
                };
                if thread.is_none() {
                    self.speak(out);
                }
                if chunk == Kind::Message && thread.is_none() {
                    let text = text.lossy();
                    if is_failure(&text) {
                        self.error = Some(text.into_owned());
                        return Outcome::Ignored("error as text");
                    }
                    self.refused = None;
                }
                let index = count(event.get("index")).unwrap_or(0);
                out.delta(chunk, index, text, &stamp_of(value));
                Outcome::Mapped
            }
            Some("message_start") => {
                if thread.is_none() {
                    self.speak(out);
                }
                Outcome::Ignored("start of a message")
            }
            Some("tool_progress") => match event.text_of("tool_use_id") {
                Some(id) if out.is_open(&id) => {
                    out.update(Update::new(id, Some("in_progress")), &stamp_of(value));
                    Outcome::Mapped
                }
                _ => Outcome::Ignored("late progress"),
            },
            Some(other) => rule(EVENTS, other),
            None => Outcome::Unknown,
        }
    }

    /// The main agent says something: if results came before, this is a new turn, and the last one stands.
    fn speak(&mut self, out: &mut Emitter<'_>) {
        if std::mem::take(&mut self.turn_over) {
            out.commit(None);
        }
    }

    // ---------------------------------------------------------------- whole records

    fn assistant(
        &mut self,
        value: Value<'_>,
        message: Value<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let stamp = stamp_of(value);
        let main = stamp.thread().is_none();
        let mut said = String::new();
        let mut calls = 0;
        if main {
            self.speak(out);
        }
        out.next_turn();
        let blocks = message.get("content").into_iter();
        for (index, block) in blocks.flat_map(|blocks| blocks.items()).enumerate() {
            let index = index as i64;
            match block.text_of("type").as_deref() {
                Some("text") => {
                    let mut text = block.text_of("text").unwrap_or_default();
                    if main {
                        text = self.without_error(text, &stamp, out);
                        said.push_str(&text);
                    }
                    out.final_text(Kind::Message, index, text, &stamp);
                }
                Some("thinking") => {
                    let text = block.text_of("thinking").unwrap_or_default();
                    out.final_text(Kind::Thought, index, text, &stamp);
                }
                Some("tool_use") => {
                    calls += 1;
                    self.call(block, &stamp, out);
                }
                _ => {}
            }
        }
        out.close(stamp.thread());
        let used = turn_usage(message.get("usage"), &stamp, out);
        if main {
            self.answered = used && calls == 0 && !said.is_empty();
            if calls > 0 || !said.is_empty() {
                self.refused = None;
            }
            if !said.is_empty() {
                self.said = said;
            }
        }
        Outcome::Mapped
    }

    /// A text block without the failure that the harness put at its end, as far as that can be told already.
    fn without_error<'a>(
        &mut self,
        text: Text<'a>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Text<'a> {
        let size = match self.error.take() {
            Some(error) if text.ends_with(&error) => text.len() - error.len(),
            None if is_failure(&text) => 0,
            _ => return text,
        };
        let error = text.rewrite(|text| text[size..].to_owned());
        self.report(error, stamp, false, out);
        text.rewrite(|text| text[..size].to_owned())
    }

    /// A failure; it is printed as text first and then in the result.
    fn report(&mut self, message: Text<'_>, stamp: &Stamp<'_>, fatal: bool, out: &mut Emitter<'_>) {
        self.reported = Some(message.to_string());
        out.error(message, stamp, fatal);
    }

    fn call(&mut self, block: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        let Some(id) = block.text_of("id") else {
            return;
        };
        let (name, input) = (block.text_of("name"), block.get("input"));
        let call = Call {
            twin: true,
            ..Call::new(id.borrow(), name.clone(), input)
        };
        out.call(call, stamp);
        let name = name.unwrap_or_default();
        if AGENTS.contains(&&*name) && stamp.thread().is_none() {
            self.agents.push(id.into_string());
        }
        plan(&name, input, stamp, out);
    }

    fn user(&mut self, value: Value<'_>, message: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let stamp = stamp_of(value);
        let main = stamp.thread().is_none();
        let content = message.get("content");
        let mut texts: Vec<Text<'_>> = content.and_then(|text| text.text()).into_iter().collect();
        let mut outcome = Outcome::Ignored("notice from the harness");
        for block in content.into_iter().flat_map(|content| content.items()) {
            match block.text_of("type").as_deref() {
                Some("tool_result") => {
                    self.tool_result(block, &stamp, out);
                    outcome = Outcome::Mapped;
                }
                Some("text") => texts.extend(block.text_of("text")),
                _ => {}
            }
        }
        if main {
            self.turn_over = true;
        }
        if !texts.is_empty() && main && self.dual {
            self.turn_starts(&stamp, out);
        }
        // a sub-agent's prompt, or a person's
        if !texts.is_empty() && (!main || self.dual) {
            for text in texts {
                out.whole(Kind::User, text, &stamp);
            }
            outcome = Outcome::Mapped;
        }
        outcome
    }

    fn tool_result(&mut self, block: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        let Some(id) = block.text_of("tool_use_id") else {
            return;
        };
        let content = block.get("content");
        let parts = content.into_iter().flat_map(|content| content.items());
        let parts = parts.filter_map(|part| part.text_of("text"));
        let texts = content
            .and_then(|text| text.text())
            .into_iter()
            .chain(parts);
        let status = match block.get("is_error").and_then(|error| error.as_bool()) {
            Some(true) => Some("failed"),
            Some(false) => Some("completed"),
            None => None,
        };
        let update = Update {
            done: Some(true),
            content: texts.map(Item::Text).collect(),
            again: self.dropped.iter().any(|dropped| **dropped == *id),
            ..Update::new(id.borrow(), status)
        };
        out.update(update, stamp);
        if let Some(at) = self.agents.iter().position(|agent| **agent == *id) {
            self.agents.remove(at);
        }
        if stamp.thread().is_none() {
            self.refused = Some(id.into_string());
            self.answered = false;
        }
    }

    // ---------------------------------------------------------------- system and control

    fn system(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let stamp = stamp_of(value);
        let data = value.get("data").filter(Value::is_object);
        let of = |key| data.and_then(|data| data.text_of(key));
        match value.text_of("subtype").as_deref() {
            Some("init") => {
                let details = [
                    ("sessionId", value.text_of("session_id")),
                    ("version", value.text_of("qwen_code_version")),
                    ("model", value.text_of("model")),
                    ("cwd", value.text_of("cwd")),
                ];
                out.session_state(&details, &stamp);
                self.turn_starts(&stamp, out);
                Outcome::Mapped
            }
            Some("session_start") => {
                self.dual = true;
                let details = [
                    ("sessionId", value.text_of("session_id")),
                    ("version", of("version")),
                    ("cwd", of("cwd")),
                ];
                out.session_state(&details, &stamp);
                Outcome::Mapped
            }
            Some("retry") => self.retry(data, &stamp, out),
            Some("model_fallback") => {
                out.state(State::new("model").with("model", of("toModel")), &stamp);
                Outcome::Mapped
            }
            Some(other) => rule(NOTICES, other),
            None => Outcome::Unknown,
        }
    }

    /// A prompt: the person's next one, in a process that takes several.
    fn turn_starts(&mut self, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        out.commit(None);
        self.turn_over = true;
        self.interrupted = false;
        self.answered = false;
        self.said.clear();
        self.reported = None;
        self.dropped.clear();
        out.state(State::new("turn").with("phase", "start"), stamp);
    }

    fn retry(
        &mut self,
        data: Option<Value<'_>>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let of = |key| data.and_then(|data| data.get(key));
        if of("preserveText").and_then(|flag| flag.as_bool()) == Some(false) {
            if self.turn_over && count(of("discardedToolCalls")).unwrap_or(0) == 0 {
                out.commit(None); // the attempt that failed had said nothing
            } else {
                self.dropped.extend(out.open_calls(None));
                out.abandon(None, stamp);
                self.said.clear();
            }
        }
        let state = State::new("retry")
            .with("phase", "start")
            .with("attempt", count(of("attempt")))
            .with("maxAttempts", count(of("maxRetries")))
            .with("delayMs", price(of("delayMs")))
            .with("message", of("reason").and_then(|reason| reason.text()));
        out.state(state, stamp);
        Outcome::Mapped
    }

    fn control(&mut self, kind: &str, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let request = value.get("request");
        let asks = request.and_then(|request| request.text_of("subtype"));
        if kind == "control_request" && asks.as_deref() == Some("can_use_tool") {
            let of = |key| request.and_then(|request| request.text_of(key));
            let state = State::new("approval")
                .with("phase", "requested")
                .with("toolCallId", of("tool_use_id"))
                .with("toolName", of("tool_name"));
            out.state(state, &Stamp::default());
            return Outcome::Mapped;
        }
        let answer = value.path(&["response", "response"]);
        let of = |key| answer.and_then(|answer| answer.get(key));
        let subtype = of("subtype").and_then(|subtype| subtype.text());
        self.interrupted |= subtype.as_deref() == Some("interrupt");
        let Some(allowed) = of("allowed").and_then(|allowed| allowed.as_bool()) else {
            return Outcome::Ignored("control");
        };
        let state = State::new("approval")
            .with("phase", "settled")
            .with("decision", if allowed { "allowed" } else { "denied" });
        out.state(state, &Stamp::default());
        Outcome::Mapped
    }

    // ---------------------------------------------------------------- the end

    fn result(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let stamp = stamp_of(value);
        let error = value.get("error").filter(Value::is_object);
        let mut message = error.and_then(|error| error.text_of("message"));
        let mut failed = value.get("is_error").and_then(|flag| flag.as_bool()) == Some(true);
        if failed && count(value.get("duration_ms")) == Some(0) && !self.agents.is_empty() {
            if let Some(message) = message {
                out.notice(message, &stamp);
            }
            return Outcome::Mapped; // that of a sub-agent
        }
        let mut text = value.text_of("result").unwrap_or_default();
        if !failed && is_failure(&text) {
            // old versions call it a success
            failed = true;
            message = Some(std::mem::take(&mut text));
        } else if let Some(reported) = &self.reported
            && !failed
            && text.ends_with(reported.as_str())
        {
            // behind the text that it cut
            failed = true;
            message = Some(reported.clone().into());
        } else if !failed && let Some(at) = self.cut_by_failure(&text) {
            failed = true;
            message = Some(text[at..].to_owned().into());
        }
        if let Some(counters) = value.get("usage").filter(Value::is_object) {
            let tokens = tokens(counters);
            let usage = Usage {
                beyond: Some(BEYOND),
                ..Usage::run(&tokens)
            };
            out.usage(usage, &stamp);
        }
        let cancelled = self.interrupted || message.as_deref() == Some(CANCELLED);
        let used_up = message.as_deref().is_some_and(|it| it.starts_with(QUOTA));
        let subtype = value.text_of("subtype");
        let outcome = if failed {
            self.fail(message, &stamp, out);
            match subtype.as_deref() {
                _ if cancelled => "cancelled",
                _ if used_up => "limit",
                subtype => outcome(subtype),
            }
        } else {
            self.answer(text, &stamp, out);
            if self.denied(value.get("permission_denials")) {
                "denied"
            } else {
                "completed"
            }
        };
        out.commit(None);
        self.turn_over = true;
        let state = State::new("end")
            .with("outcome", outcome)
            .with("reason", subtype);
        out.state(state, &stamp);
        Outcome::Mapped
    }

    /// The answer again, or one that only the result carries (structured output).
    fn answer(&self, text: Text<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        if !text.is_empty() && *text != self.said {
            out.commit(None);
            out.whole(Kind::Message, text, stamp);
        }
    }

    fn fail(&mut self, message: Option<Text<'_>>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        let Some(message) = message else {
            return;
        };
        // glued to the text that the failure cut
        if self.reported.as_deref() != Some(&*message) && self.said.ends_with(&*message) {
            out.take_back(Kind::Message, message.chars().count(), stamp);
        }
        self.report(message, stamp, true, out);
    }

    /// Where the failure begins that old versions glued to the answer it cut, in a run that they call a success.
    ///
    /// An answer that came whole has a usage: there the model quotes a failure.
    fn cut_by_failure(&self, answer: &str) -> Option<usize> {
        let cut = !self.answered && *answer == self.said && answer.ends_with(']');
        cut.then(|| answer.rfind(FAILURES[0])).flatten()
    }

    /// The turn ended at a call that was refused, and the model said nothing more.
    fn denied(&self, denials: Option<Value<'_>>) -> bool {
        let mut denials = denials.into_iter().flat_map(|denials| denials.items());
        self.refused.is_some()
            && denials.any(|d| d.text_of("tool_use_id").as_deref() == self.refused.as_deref())
    }
}

fn stamp_of(value: Value<'_>) -> Stamp<'_> {
    let message = value.get("message");
    let of = |key| message.and_then(|message| message.text_of(key));
    Stamp {
        session_id: value.text_of("session_id"),
        message_id: of("id"),
        model: of("model"),
        parent: value.text_of("parent_tool_use_id"),
        ..Stamp::default()
    }
}

/// The plan in the arguments of the todo tool.
pub(super) fn plan(name: &str, input: Option<Value<'_>>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
    if name == "todo_write" {
        let todos = input.and_then(|input| input.get("todos"));
        if let Some(entries) = tool::plan_of(todos, "content", "status") {
            out.plan(&entries, stamp);
        }
    }
}

/// The usage of a turn; false for the zeros that all its records but the last print.
fn turn_usage(value: Option<Value<'_>>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> bool {
    let Some(value) = value.filter(Value::is_object) else {
        return false;
    };
    let used = COUNTERS
        .iter()
        .any(|key| count(value.get(key)).is_some_and(|number| number != 0));
    if used {
        out.call_usage(&tokens(value), stamp, stamp.message_id.as_deref(), false);
    }
    used
}

/// Qwen's counters: input includes what was read from the cache.
fn tokens(value: Value<'_>) -> Tokens<'_> {
    let total = count(value.get("total_tokens"));
    let extra = total.map(|total| ("total_tokens".into(), Data::from(total)));
    Tokens {
        prompt: count(value.get("input_tokens")),
        completion: count(value.get("output_tokens")),
        cached: count(value.get("cache_read_input_tokens")),
        extra: extra.into_iter().collect(),
        ..Tokens::default()
    }
}
