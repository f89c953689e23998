//! GitHub Copilot CLI: `copilot -p ... --output-format json` (recorded: 1.0.102).
//!
//! Envelopes with dotted types and `data`, then one last line of another shape: `result` with the exit code. Deltas
//! (unless `--stream off`) come before the whole `assistant.message`; its `reasoningText` comes again in
//! `assistant.reasoning`. A sub-agent's records are in the same stream, with `agentId`. `assistant.turn_retry` takes back
//! the deltas of the failed try. A non-zero exit of a command is `success: true` with `shellExecution.exitCode`. Tokens
//! are not on stdout, only in the session file; versions before say with each message what its output took.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::{Dialect, Make, Mapper, Outcome, SURE, Sign, filled, is_true, rule};
use crate::data::Data;
use crate::emit::{Call, Emitter, Update};
use crate::event::{Image, Item, Kind, Stamp, State, Tokens};
use crate::json::{Series, Text, Value};
use crate::number::count;
use crate::record::Record;

pub const DIALECT: Dialect = Dialect {
    name: "copilot",
    sign,
    mapper: Make::of::<Copilot>(),
    series: SERIES,
};

/// Deltas of one message or thought.
const SERIES: &[Series] = &[Series {
    is: &[(
        &["type"],
        &["assistant.message_delta", "assistant.reasoning_delta"],
    )],
    text: &["data", "deltaContent"],
    same: &[
        &["data", "messageId"],
        &["data", "reasoningId"],
        &["data", "parentToolCallId"],
        &["agentId"],
    ],
    ..Series::NO_FACTS
}];

/// Heads of types that all say nothing for events, known from the vendor's SDK: what the host is asked, told and shown.
const IGNORED_HEADS: &[(&str, &str)] = &[
    ("auto_mode_switch", "question to the host"),
    ("capabilities", "capabilities"),
    ("command", "command"),
    ("commands", "command"),
    ("elicitation", "question to the host"),
    ("exit_plan_mode", "question to the host"),
    ("external_tool", "question to the host"),
    ("factory", "factory run"),
    ("mcp", "MCP servers"),
    ("mcp_app", "MCP servers"),
    ("sampling", "question to the host"),
    ("session_limits_exhausted", "question to the host"),
    ("tool_search", "tool search"),
    ("ui", "user interface"),
    ("user_input", "question to the host"),
];
/// How the other dotted types begin.
const HEADS: [&str; 11] = [
    "assistant",
    "hook",
    "model",
    "pending_messages",
    "permission",
    "session",
    "skill",
    "subagent",
    "system",
    "tool",
    "user",
];
/// Record types that only the session file has.
pub(super) const STORED: [&str; 7] = [
    "session.start",
    "session.resume",
    "session.shutdown",
    "session.usage_record",
    "session.permissions_changed",
    "session.binary_asset",
    "system.message",
];
const IGNORED: &[(&str, &str)] = &[
    ("assistant.intent", "intent"),
    ("assistant.message_start", "start of a message"),
    ("assistant.streaming_delta", "bytes received"),
    ("assistant.tool_call_delta", "part of a call"),
    ("hook.end", "hook"),
    ("hook.start", "hook"),
    ("model.call_final_result", "end of a model call"),
    ("model.call_finished", "end of a model call"),
    ("model.call_start", "start of a model call"),
    ("pending_messages.modified", "queue"),
    ("session.autopilot_stopped", "autopilot"),
    ("session.background_tasks_changed", "background tasks"),
    ("session.handoff", "handoff"),
    ("session.info", "information"),
    ("session.mcp_server_status_changed", "MCP servers"),
    ("session.mcp_server_tools_loaded", "MCP servers"),
    ("session.mcp_servers_loaded", "MCP servers"),
    ("session.mode_notice_delivered", "mode"),
    ("session.permissions_changed", "permissions"),
    ("session.skills_loaded", "skills"),
    ("session.task_complete", "summary of the task"),
    ("session.todos_changed", "todos, which it does not tell"),
    ("session.truncation", "truncation"),
    ("session.usage_info", "size of the context"),
    ("skill.invoked", "skill"),
    ("subagent.completed", "sub-agent"),
    ("subagent.configured", "sub-agent"),
    ("subagent.failed", "sub-agent"),
    ("subagent.selected", "sub-agent"),
    ("subagent.started", "sub-agent"),
    ("system.message", "system prompt"),
    ("system.notification", "notification"),
    ("tool.execution_partial_result", "output of a running call"),
    ("tool.shell_output", "output of a running call"),
    ("tool.user_requested", "call of the user"),
    // known from the vendor's SDK
    ("assistant.server_tool_progress", "progress"),
    ("hook.progress", "hook"),
    ("session.auto_mode_resolved", "mode"),
    ("session.autopilot_objective_changed", "autopilot"),
    ("session.context_cleared", "context cleared"),
    ("session.custom_agents_updated", "agents"),
    ("session.custom_notification", "notification"),
    ("session.extensions_loaded", "extensions"),
    ("session.import_legacy", "import"),
    ("session.managed_settings_enforced", "settings"),
    ("session.managed_settings_resolved", "settings"),
    ("session.mode_changed", "mode"),
    ("session.plan_changed", "plan, which it does not tell"),
    ("session.remote_steerable_changed", "remote"),
    ("session.schedule_cancelled", "schedule"),
    ("session.schedule_created", "schedule"),
    ("session.schedule_rearmed", "schedule"),
    ("session.session_limits_changed", "limits"),
    ("session.snapshot_rewind", "rewind"),
    ("session.usage_checkpoint", "credits"),
    ("session.workspace_file_changed", "workspace"),
    ("subagent.deselected", "sub-agent"),
    ("tool.execution_progress", "progress"),
];
/// Codes of a failed call that mean a refusal.
const REFUSALS: [&str; 2] = ["denied", "rejected"];
/// Images that are kept for the result which refers to them.
const ASSETS: usize = 16;

/// How a turn ended with an error of that type.
fn outcome_of_error(kind: Option<&str>) -> &'static str {
    match kind {
        Some("quota" | "quota_exceeded" | "context_limit") => "limit",
        _ => "failed",
    }
}

/// Why the harness itself stopped a run; any other reason is somebody's wish.
fn outcome_of_abort(reason: Option<&str>) -> &'static str {
    match reason {
        Some("autopilot_credit_limit") => "limit",
        _ => "cancelled",
    }
}

fn sign(record: Value<'_>) -> Option<Sign> {
    let kind = record.text_of("type")?;
    let has = |key: &str| record.get(key).is_some();
    if &*kind == "result" && has("sessionId") && has("exitCode") && !has("subtype") {
        return Sign::new(SURE, "a result with exitCode");
    }
    if !is_envelope(record, &kind) || STORED.contains(&&*kind) {
        return None;
    }
    if is_true(record.get("ephemeral")) {
        return Sign::new(SURE, "a dotted type with data, and ephemeral");
    }
    Sign::new(50, "a dotted type with data and parentId")
}

pub(super) fn is_envelope(record: Value<'_>, kind: &str) -> bool {
    let head = kind.split('.').next().unwrap_or(kind);
    let known = HEADS.contains(&head) || IGNORED_HEADS.iter().any(|(known, _)| *known == head);
    record.get("data").is_some_and(|data| data.is_object())
        && record.get("parentId").is_some()
        && (kind == "abort" || known)
}

/// What one agent's current turn has said.
#[derive(Default, Deserialize, Serialize)]
struct Seat {
    /// Thoughts came in deltas.
    streamed: bool,
    /// Thoughts came with the message.
    told: bool,
    /// Its message asks for no tool.
    answered: bool,
}

#[derive(Default, Deserialize, Serialize)]
pub(super) struct Copilot {
    /// Id of a sub-agent: the call that delegated.
    agents: HashMap<String, String>,
    /// By delegating call, "" for the main agent.
    seats: HashMap<String, Seat>,
    /// Outcome of an error since the last prompt.
    pub(super) failed: Option<Cow<'static, str>>,
    /// The same of an abort.
    aborted: Option<Cow<'static, str>>,
    /// A call was refused, and no text came after it.
    denied: bool,
    pub(super) turning: bool,
    /// The last line of a process came last.
    over: bool,
    /// Session file: the last images, by asset id.
    assets: VecDeque<(String, String)>,
    /// Usage has records of its own.
    billed: bool,
}

impl Mapper for Copilot {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        let value = record.value();
        let kind = record.kind();
        if kind.as_deref() == Some("result") && value.get("exitCode").is_some() {
            return self.exit(value, out);
        }
        let data = value.get("data").filter(Value::is_object);
        let (Some(kind), Some(data)) = (kind, data) else {
            return Outcome::Unknown;
        };
        let stamp = self.stamp(value, data);
        if std::mem::take(&mut self.over) {
            (self.failed, self.aborted, self.denied) = (None, None, false);
            out.another_run(&stamp);
        }
        self.take(&kind, data, stamp, out)
    }
}

impl Copilot {
    /// Whose record it is: a sub-agent goes by the call that delegated, by its own id if that was not told.
    pub(super) fn stamp<'a>(&mut self, value: Value<'a>, data: Value<'a>) -> Stamp<'a> {
        let mut parent = data.text_of("parentToolCallId").map(Text::into_string);
        if let Some(agent) = value.text_of("agentId").map(Text::into_string) {
            if value.text_of("type").as_deref() == Some("subagent.started")
                && let Some(call) = data.text_of("toolCallId")
            {
                self.agents.insert(agent.clone(), call.into_string());
            }
            let call = self.agents.get(&agent).filter(|call| !call.is_empty());
            let parent_told = parent.filter(|parent| !parent.is_empty());
            parent = Some(call.cloned().or(parent_told).unwrap_or(agent));
        }
        Stamp {
            message_id: data.text_of("messageId"),
            timestamp: value.text_of("timestamp"),
            parent: parent.map(Text::from),
            ..Stamp::default()
        }
    }

    /// One envelope; the session file has most of them too.
    pub(super) fn take(
        &mut self,
        kind: &str,
        data: Value<'_>,
        stamp: Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let (head, tail) = kind.split_once('.').unwrap_or((kind, ""));
        match head {
            "assistant" => self.assistant(kind, tail, data, stamp, out),
            "tool" => self.tool(kind, tail, data, &stamp, out),
            "session" => self.session(kind, tail, data, &stamp, out),
            "permission" => permission(tail, data, &stamp, out),
            _ => match kind {
                "user.message" => self.user(data, &stamp, out),
                "model.call_failure" => {
                    let message = filled(data.text_of("errorMessage"));
                    if let Some(message) = message.or_else(|| data.text_of("failureKind")) {
                        out.notice(message, &stamp);
                    }
                    Outcome::Mapped
                }
                "abort" => {
                    let reason = filled(data.text_of("reason"));
                    self.abort(outcome_of_abort(reason.as_deref()));
                    out.error(reason.unwrap_or("abort".into()), &stamp, true);
                    self.end_turn(&stamp, out);
                    Outcome::Mapped
                }
                other => match rule(IGNORED, other) {
                    Outcome::Unknown => rule(IGNORED_HEADS, head),
                    known => known,
                },
            },
        }
    }

    // ---------------------------------------------------------------- what the agents say

    fn assistant(
        &mut self,
        kind: &str,
        tail: &str,
        data: Value<'_>,
        stamp: Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        match tail {
            "message_delta" => {
                let key = stamp.message_id.clone().unwrap_or_default();
                return self.delta(Kind::Message, &key, data, &stamp, out);
            }
            "reasoning_delta" => {
                self.seat(&stamp).streamed = true;
                let key = data.text_of("reasoningId").unwrap_or_default();
                return self.delta(Kind::Thought, &key, data, &stamp, out);
            }
            "message" => self.message(data, stamp, out),
            "reasoning" => return self.reasoning(data, &stamp, out),
            "turn_start" => {
                out.commit(stamp.thread());
                *self.seat(&stamp) = Seat::default();
                self.start_turn(&stamp, out);
            }
            "turn_end" => {
                out.close(stamp.thread());
                if !self.seat(&stamp).answered || stamp.thread().is_some() {
                    return Outcome::Ignored("end of a model's turn");
                }
                self.end_turn(&stamp, out);
            }
            "turn_retry" => {
                out.abandon(stamp.thread(), &stamp);
                *self.seat(&stamp) = Seat::default();
                let state = State::new("retry").with("phase", "start");
                out.state(state.with("message", data.text_of("reason")), &stamp);
            }
            "idle" => self.idle(data, &stamp, out),
            "usage" => self.usage(Some(data), stamp, out),
            _ => return rule(IGNORED, kind),
        }
        Outcome::Mapped
    }

    /// One model call: input includes what was read from the cache, output the reasoning. `cost` is no money.
    pub(super) fn usage<'a>(
        &mut self,
        value: Option<Value<'a>>,
        stamp: Stamp<'a>,
        out: &mut Emitter<'_>,
    ) {
        let Some(value) = value.filter(Value::is_object) else {
            return;
        };
        self.billed = true;
        let stamp = Stamp {
            model: value.text_of("model"),
            ..stamp
        };
        let key = value
            .text_of("apiCallId")
            .map(|id| format!("call:{}", &*id));
        let tokens = counters(|name| count(value.get(name)));
        out.call_usage(&tokens, &stamp, key.as_deref(), false);
    }

    fn seat(&mut self, stamp: &Stamp<'_>) -> &mut Seat {
        let thread = stamp.thread().unwrap_or("");
        self.seats.entry(thread.to_owned()).or_default()
    }

    fn delta(
        &mut self,
        kind: Kind,
        key: &str,
        data: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let delta = data.get("deltaContent").and_then(|delta| delta.as_str());
        let Some(text) = delta.filter(|text| !text.raw().is_empty()) else {
            return Outcome::Ignored("empty text");
        };
        if kind == Kind::Message && stamp.thread().is_none() {
            self.denied = false;
        }
        out.delta(kind, key, text, stamp);
        Outcome::Mapped
    }

    /// The whole answer of a model call.
    fn message<'a>(&mut self, data: Value<'a>, mut stamp: Stamp<'a>, out: &mut Emitter<'_>) {
        stamp.model = data.text_of("model");
        let requests = data.get("toolRequests");
        let requests = requests.into_iter().flat_map(|requests| requests.items());
        let requests: Vec<Value<'_>> = requests.filter(Value::is_object).collect();
        let seat = self.seat(&stamp);
        seat.answered = requests.is_empty();
        if let Some(thought) = filled(data.text_of("reasoningText"))
            && !seat.streamed
        {
            seat.told = true;
            out.whole(Kind::Thought, thought, &stamp);
        }
        if let Some(text) = data.text_of("content") {
            if !text.is_empty() && stamp.thread().is_none() {
                self.denied = false;
            }
            let key = stamp.message_id.clone().unwrap_or_default();
            out.final_text(Kind::Message, &*key, text, &stamp);
        }
        if !self.billed {
            let key = filled(data.text_of("apiCallId")).or(stamp.message_id.clone());
            let key = key.map(|key| format!("call:{}", &*key));
            let output = Tokens {
                completion: count(data.get("outputTokens")),
                ..Tokens::default()
            };
            out.call_usage(&output, &stamp, key.as_deref(), false);
        }
        out.next_turn();
        for request in requests {
            if let Some(id) = request.text_of("toolCallId") {
                call(id, request.text_of("name"), request, "pending", &stamp, out);
            }
        }
    }

    /// The thought again, after the message.
    fn reasoning(&mut self, data: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        let Some(text) = data.text_of("content") else {
            return Outcome::Ignored("empty text");
        };
        if self.seat(stamp).told {
            return Outcome::Ignored("thought again");
        }
        let key = data.text_of("reasoningId").unwrap_or_default();
        out.final_text(Kind::Thought, &*key, text, stamp);
        Outcome::Mapped
    }

    /// A prompt, a sub-agent's task, or a push of the autopilot (which is empty).
    fn user(&mut self, data: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        if stamp.thread().is_none() {
            (self.failed, self.aborted) = (None, None);
            self.denied = false;
            self.turning = false;
            self.start_turn(stamp, out);
        }
        let Some(text) = filled(data.text_of("content")) else {
            return Outcome::Ignored("empty text");
        };
        out.whole(
            Kind::User,
            text,
            &with_extra(stamp, "source", data.text_of("source")),
        );
        Outcome::Mapped
    }

    // ---------------------------------------------------------------- tools

    fn tool(
        &mut self,
        kind: &str,
        tail: &str,
        data: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        match (tail, data.text_of("toolCallId")) {
            ("execution_start", Some(id)) => {
                if out.is_open(&id) {
                    let mut update = Update::new(id, Some("in_progress"));
                    update.facts.started_at = stamp.timestamp.clone();
                    out.update(update, stamp);
                } else {
                    call(
                        id,
                        data.text_of("toolName"),
                        data,
                        "in_progress",
                        stamp,
                        out,
                    );
                }
                Outcome::Mapped
            }
            ("execution_complete", Some(id)) => match self.complete(id, data, stamp, out) {
                true => Outcome::Mapped,
                false => Outcome::Ignored("second end of a call"),
            },
            _ => rule(IGNORED, kind),
        }
    }

    fn complete(
        &mut self,
        id: Text<'_>,
        data: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> bool {
        let error = data.get("error").filter(Value::is_object);
        let exit = data.path(&["shellExecution", "exitCode"]);
        let exit_code = count(exit);
        let ok = is_true(data.get("success")) && (exit.is_none() || exit_code == Some(0));
        let result = data.get("result").filter(Value::is_object);
        let mut content = match result {
            Some(result) => content_of(result, &self.assets),
            None => Vec::new(),
        };
        if content.is_empty() {
            let message = error.and_then(|error| error.text_of("message"));
            content.extend(message.map(Item::Text));
        }
        if stamp.thread().is_none() {
            let code = error.and_then(|error| error.text_of("code"));
            self.denied = code.is_some_and(|code| REFUSALS.contains(&&*code));
        }
        let facts = ["shellExecution", "fileEdits", "error", "toolTelemetry"];
        let raw = facts
            .into_iter()
            .filter_map(|key| Some((Text::from(key), Data::Wire(data.get(key)?))));
        let raw: Vec<_> = raw.collect();
        let mut update = Update {
            content,
            raw_output: (!raw.is_empty()).then_some(Data::Map(raw)),
            ..Update::new(id, Some(if ok { "completed" } else { "failed" }))
        };
        update.facts.exit_code = exit_code;
        out.update(update, stamp)
    }

    // ---------------------------------------------------------------- the session

    fn session(
        &mut self,
        kind: &str,
        tail: &str,
        data: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        match tail {
            "start" | "resume" => {
                let context = data.get("context");
                let details = [
                    ("sessionId", data.text_of("sessionId")),
                    ("version", data.text_of("copilotVersion")),
                    ("model", data.text_of("selectedModel")),
                    ("cwd", context.and_then(|context| context.text_of("cwd"))),
                ];
                out.session_state(&details, stamp);
            }
            "binary_asset" => {
                if let (Some(asset), Some(image)) = (data.text_of("assetId"), data.text_of("data"))
                {
                    self.keep(asset.into_string(), image.into_string());
                }
                return Outcome::Ignored("asset");
            }
            "tools_updated" => out.session_state(&[("model", data.text_of("model"))], stamp),
            "model_change" if stamp.thread().is_some() => return Outcome::Ignored("sub-agent"),
            "model_change" => {
                let state = State::new("model")
                    .with("model", data.text_of("newModel"))
                    .with("effort", data.text_of("reasoningEffort"));
                out.state(state, stamp);
            }
            "error" => return self.error(data, stamp, out),
            "warning" => {
                let message = filled(data.text_of("message"));
                out.notice(message.unwrap_or("warning".into()), stamp);
            }
            "idle" => self.idle(data, stamp, out),
            "title_changed" => {
                out.session_state(&[("title", data.text_of("title"))], stamp);
            }
            "context_changed" => out.session_state(&[("cwd", data.text_of("cwd"))], stamp),
            _ if tail.starts_with("canvas.") || tail.starts_with("extensions.") => {
                return Outcome::Ignored("canvas");
            }
            "compaction_start" => {
                out.state(State::new("compaction").with("phase", "start"), stamp);
            }
            "compaction_complete" => {
                let failed = data.get("success").and_then(|s| s.as_bool()) == Some(false);
                let state = State::new("compaction")
                    .with("phase", "end")
                    .with("success", !failed)
                    .with("summary", data.text_of("summaryContent"))
                    .with("message", data.text_of("error"));
                out.state(state, stamp);
            }
            _ => return rule(IGNORED, kind),
        }
        Outcome::Mapped
    }

    fn keep(&mut self, asset: String, image: String) {
        if self.assets.len() >= ASSETS {
            self.assets.pop_front();
        }
        match self.assets.iter_mut().find(|(id, _)| *id == asset) {
            Some(known) => known.1 = image,
            None => self.assets.push_back((asset, image)),
        }
    }

    fn error(&mut self, data: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        let Some(message) = data.text_of("message") else {
            return Outcome::Unknown;
        };
        let kind = data.text_of("errorType");
        let main = stamp.thread().is_none();
        if main {
            self.failed = Some(outcome_of_error(kind.as_deref()).into());
        }
        out.error(message, &with_extra(stamp, "errorType", kind), main);
        self.end_turn(stamp, out);
        Outcome::Mapped
    }

    // ---------------------------------------------------------------- turns and the end

    fn start_turn(&mut self, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        if !self.turning && stamp.thread().is_none() {
            self.turning = true;
            out.state(State::new("turn").with("phase", "start"), stamp);
        }
    }

    fn abort(&mut self, outcome: &'static str) {
        self.failed = Some(outcome.into());
        self.aborted = Some(outcome.into());
    }

    /// The agent has stopped, which may be because somebody stopped it.
    fn idle(&mut self, data: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        if is_true(data.get("aborted")) && self.failed.is_none() && stamp.thread().is_none() {
            self.abort("cancelled");
        }
        self.end_turn(stamp, out);
    }

    fn end_turn(&mut self, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        if self.turning && stamp.thread().is_none() {
            self.turning = false;
            let state = State::new("turn").with("phase", "end");
            out.state(state.with("outcome", self.outcome()), stamp);
        }
    }

    /// How the last prompt ended, if it did.
    pub(super) fn outcome(&self) -> &str {
        let denied = if self.denied { "denied" } else { "completed" };
        self.failed.as_deref().unwrap_or(denied)
    }

    /// The last line.
    fn exit(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let stamp = Stamp::at(value.text_of("timestamp"));
        out.session_state(&[("sessionId", value.text_of("sessionId"))], &stamp);
        (self.turning, self.over) = (false, true);
        let code = count(value.get("exitCode"));
        let outcome = match (code, &self.aborted) {
            (Some(0), Some(aborted)) => aborted,
            (Some(0), None) if self.denied => "denied",
            (Some(0), None) => "completed",
            _ => self.failed.as_deref().unwrap_or("failed"),
        };
        let state = State::new("end")
            .with("outcome", outcome)
            .with("reason", code.map(|code| format!("exit code {code}")));
        out.state(state, &stamp);
        Outcome::Mapped
    }
}

// -------------------------------------------------------------------- shapes

fn call(
    id: Text<'_>,
    name: Option<Text<'_>>,
    data: Value<'_>,
    status: &'static str,
    stamp: &Stamp<'_>,
    out: &mut Emitter<'_>,
) {
    let server = filled(data.text_of("mcpServerName"));
    let tool = filled(data.text_of("mcpToolName"));
    let title = server.zip(tool).map(|(server, tool)| {
        let (odd, title) = (tool.is_lossy(), format!("{}: {}", &*server, &*tool));
        if odd { tool } else { server }.rewrite(|_| title)
    });
    let announced = Call {
        status,
        title,
        ..Call::new(id, name, data.get("arguments"))
    };
    out.call(announced, stamp);
}

fn permission(tail: &str, data: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
    match tail {
        "requested" => {
            let request = data.get("permissionRequest");
            let text = |key: &str| request.and_then(|request| request.text_of(key));
            let message = filled(text("fullCommandText")).or_else(|| text("kind"));
            let state = State::new("approval")
                .with("phase", "requested")
                .with("toolCallId", text("toolCallId"))
                .with("message", message);
            out.state(state, stamp);
        }
        "completed" => {
            let result = data.get("result");
            let state = State::new("approval")
                .with("phase", "settled")
                .with("toolCallId", data.text_of("toolCallId"))
                .with("decision", result.and_then(|result| result.text_of("kind")));
            out.state(state, stamp);
        }
        _ => return Outcome::Unknown,
    }
    Outcome::Mapped
}

fn with_extra<'a>(stamp: &Stamp<'a>, key: &'static str, value: Option<Text<'a>>) -> Stamp<'a> {
    Stamp {
        extra: value
            .map(|value| (key.into(), value.into()))
            .into_iter()
            .collect(),
        ..stamp.clone()
    }
}

/// Tool content: the text, and the images that an MCP server or a viewed file gave (a stored one by asset id).
fn content_of<'a>(result: Value<'a>, assets: &VecDeque<(String, String)>) -> Vec<Item<'a>> {
    let text = filled(result.text_of("content")).map(Item::Text);
    let images = result.get("contents").filter(Value::is_array);
    let images = images.or_else(|| result.get("binaryResultsForLlm"));
    let images = images.into_iter().flat_map(|images| images.items());
    let images = images.filter_map(|item| {
        if item.text_of("type").as_deref() != Some("image") {
            return None;
        }
        let stored = || {
            let asset = item.text_of("assetId").unwrap_or_default();
            let (_, image) = assets.iter().find(|(id, _)| *id == *asset)?;
            Some(Text::from(image.clone()))
        };
        Some(Item::Image(Image {
            data: filled(item.text_of("data")).or_else(stored)?,
            mime: item.text_of("mimeType").unwrap_or_default(),
            uri: None,
        }))
    });
    text.into_iter().chain(images).collect()
}

pub(super) fn counters(of: impl Fn(&str) -> Option<i64>) -> Tokens<'static> {
    let others = ["cacheWriteTokens", "reasoningTokens"].into_iter();
    let others = others.filter_map(|name| Some((name.into(), of(name)?.into())));
    Tokens {
        prompt: of("inputTokens"),
        completion: of("outputTokens"),
        cached: of("cacheReadTokens"),
        cost: None,
        extra: others.collect(),
    }
}
