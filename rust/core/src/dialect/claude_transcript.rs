//! Claude Code's session files, `~/.claude/projects/<dir>/<session>.jsonl` (recorded from 0.2.126 to 2.1.332).
//!
//! The messages of the stream with camelCase facts around them, one block a line and the usage of the call on each: the
//! last one of a message id counts. Lines that a resumed or forked session copied come with the same uuid and count
//! once. There is no result; the stop reason of the last message tells how a prompt ended.
//!
//! Sidechains are what sub-agents said. In the session's own file (up to 1.0) each has a root of its own without a link
//! to the call: it is the open delegation whose prompt the root repeats. From 2.0 on they lie in files of their own, and
//! such a file alone is a conversation like any other. 2.1.38 has calls and results of sub-agents in the session's file as
//! well, each line wrapped in one of its own, with the call that delegated.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::anthropic::{
    self, Block, Counts, Models, Part, Plan, Records, blocks_of, chunk_of, joined_text,
};
use super::{Dialect, Make, Mapper, Outcome, SURE, Sign, filled, is_true, rule};
use crate::emit::{Call, Emitter};
use crate::event::{PlanEntry, Stamp, State, Usage};
use crate::json::{Text, Value};
use crate::number::{count, price};
use crate::record::Record;
use crate::run::{Ending, Exit, Reducer};

pub const DIALECT: Dialect = Dialect {
    name: "claude-transcript",
    sign,
    mapper: Make::of::<Transcript>(),
    series: &[],
};

/// Model calls that only its totals have.
const BEYOND: &str =
    "calls of sub-agents, helpers or earlier runs of the session, which are not in this file";

const HARNESS_TEXT: Outcome = Outcome::Ignored("text of the harness");

/// Line types that say nothing for events.
const IGNORED: &[(&str, &str)] = &[
    ("summary", "summary of another session"),
    ("queue-operation", "queue"),
    ("last-prompt", "last prompt"),
    ("tools-used", "tools used"),
    ("api-request", "request"),
    ("api-request-shape", "request"),
    ("api-request-blob", "request"),
    ("atis-latch", "latch"),
    ("mode", "mode"),
    ("permission-mode", "mode"),
    ("file-history-snapshot", "file history"),
    // known from 2.1.50
    ("agent-color", "agent"),
    ("agent-name", "agent"),
    ("agent-setting", "agent"),
    ("attribution-snapshot", "attribution"),
    ("pr-link", "pull request"),
    ("speculation-accept", "speculation"),
    ("tag", "tag"),
    // known from public samples of 2.1.220
    ("bridge-session", "bridge"),
    ("frame-link", "link"),
    ("worktree-state", "folder"),
    // known from the Agent SDK of 2.1.332
    ("content-replacement", "content on disk"),
    ("data-flow-incomplete", "data flow"),
    ("data-flow-records", "data flow"),
    ("derived-from", "fork"),
    ("history-suppression", "history"),
    ("hybrid-organization", "owner"),
    ("relocated", "folder"),
    ("session-owner", "owner"),
    // known from lists of public readers, up to 2.1.283
    ("continued-in", "fork"),
    ("file-history-delta", "file history"),
    ("fork-context-ref", "fork"),
];
/// The same for the subtypes of `system`.
const IGNORED_SYSTEM: &[(&str, &str)] = &[
    ("stop_hook_summary", "hook"),
    ("turn_duration", "duration"),
    ("local_command", "local command"),
    ("informational", "notice"),
    ("microcompact_boundary", "results cleared"),
    ("agents_killed", "task"),
    ("file_snapshot", "file history"),
    // known from public session files and types, 2.1.88 and 2.1.112
    ("api_metrics", "metrics"),
    ("away_summary", "recap for the user"),
    ("bridge_status", "bridge"),
    ("memory_saved", "memory"),
    ("permission_retry", "notice"),
    ("scheduled_task_fire", "schedule"),
];
/// Line types without uuid, and a key that each has.
const MARKS: &[(&str, &str)] = &[
    ("summary", "leafUuid"),
    ("queue-operation", "operation"),
    ("last-prompt", "lastPrompt"),
    ("tools-used", "type"),
    ("cost-state", "totalCostUSD"),
    ("api-request", "params"),
    ("api-request-shape", "shape"),
    ("api-request-blob", "hash"),
    ("atis-latch", "atis"),
    ("file-history-snapshot", "snapshot"),
    ("mode", "mode"),
    ("permission-mode", "permissionMode"),
];

/// What the stop reason of a main message that ends its prompt says.
fn outcome_of(stop: Option<&str>) -> Option<&'static str> {
    match stop? {
        "end_turn" | "stop_sequence" => Some("completed"),
        "max_tokens" | "model_context_window_exceeded" => Some("limit"),
        "refusal" => Some("failed"),
        _ => None,
    }
}

fn sign(record: Value<'_>) -> Option<Sign> {
    let kind = record.text_of("type")?;
    let has = |key: &str| record.first(key).is_some();
    if has("systemPayload") {
        return None;
    }
    if has("parentUuid") && record.text_of("sessionId").is_some() {
        let object = |key| record.get(key).filter(Value::is_object);
        let message = object("message").and_then(|message| message.get("content"));
        let why = match &*kind {
            "user" | "assistant" if message.is_some() => {
                format!("a {} line with parentUuid and message.content", &*kind)
            }
            "attachment" if object("attachment").is_some() => {
                "an attachment line with parentUuid".to_owned()
            }
            "system" | "progress" if has("isSidechain") => {
                format!("a {} line with parentUuid and isSidechain", &*kind)
            }
            _ => return None,
        };
        let version = record.text_of("version").map(Text::into_string);
        return Sign::of_version(SURE, why, version);
    }
    let mark = |(name, key): &&(&str, &str)| *name == &*kind && has(key);
    let (name, _) = MARKS.iter().find(mark)?;
    let alone = matches!(*name, "summary" | "file-history-snapshot");
    (alone || has("sessionId")).then(|| Sign::new(60, format!("a {name} line")))?
}

/// The message that a thread is at, and the kind of block that it ends with so far.
///
/// Gateways give all messages of a session one id, and under load the API itself gave six in a row the same: the
/// request that it answers tells them apart.
#[derive(Deserialize, Serialize)]
struct Current {
    id: Option<String>,
    request: Option<String>,
    /// Of its usage.
    key: Option<String>,
    end: String,
    /// How many blocks there were, of one kind after the other.
    blocks: i64,
    lines: Records,
}

impl Current {
    fn new(id: Option<&str>, request: Option<&str>, before: Option<&Current>) -> Current {
        let again = before.is_some_and(|before| before.id.as_deref() == id);
        let key = id.filter(|id| !id.is_empty()).map(|id| match again {
            true => format!("{id} {}", request.unwrap_or_default()),
            false => id.to_owned(),
        });
        Current {
            id: id.map(str::to_owned),
            request: request.map(str::to_owned),
            key,
            end: String::new(),
            blocks: 0,
            lines: Vec::new(),
        }
    }

    /// Whether a line with these facts is of this message.
    fn goes_on(&mut self, id: Option<&str>, request: Option<&str>) -> bool {
        if id.is_none() || id != self.id.as_deref() {
            return false;
        }
        if self.request.is_none() {
            self.request = request.map(str::to_owned);
        }
        request.is_none() || request == self.request.as_deref()
    }
}

#[derive(Default, Deserialize, Serialize)]
struct Transcript {
    /// Uuids of lines, and the thread that each belongs to; "" is a sidechain whose call is not known.
    seen: HashMap<String, Option<String>>,
    /// The file is a sub-agent's own; None until its first message.
    own: Option<bool>,
    /// Calls that no sidechain belongs to yet, and their prompts.
    delegations: Vec<(String, String)>,
    /// Agent ids and the calls that they belong to.
    agents: HashMap<String, String>,
    current: HashMap<Option<String>, Current>,
    plan: Plan,
    /// A prompt is being worked on.
    running: bool,
    /// The last main message is an answer without a stop reason.
    answered: bool,
}

impl Mapper for Transcript {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        let value = record.value();
        let kind = record.kind().unwrap_or_default();
        let uuid = value.text_of("uuid").map(Text::into_string);
        if uuid
            .as_ref()
            .is_some_and(|uuid| self.seen.contains_key(uuid))
        {
            return Outcome::Ignored("record again");
        }
        let message = value.get("message").filter(Value::is_object);
        if let ("user" | "assistant", Some(message)) = (&*kind, message) {
            self.own.get_or_insert(is_true(value.get("isSidechain")));
            let thread = self.thread(value, message);
            if let Some(uuid) = uuid {
                self.seen.insert(uuid, thread.clone());
            }
            let stamp = Stamp {
                parent: thread.as_deref().map(Text::from),
                ..stamp_of(value)
            };
            return self.message(&kind, value, message, stamp, record.line, out);
        }
        if let Some(uuid) = uuid {
            let parent = value.text_of("parentUuid").unwrap_or_default();
            let thread = self.seen.get(&*parent).cloned().flatten();
            self.seen.insert(uuid, thread);
        }
        match &*kind {
            "system" => self.system(value, out),
            "attachment" => self.attachment(value, out),
            "cost-state" => {
                let models = Models::of(value.get("modelUsage"));
                let tokens = models
                    .sum()
                    .to_tokens(price(value.get("totalCostUSD")), None);
                let stamp = Stamp {
                    session_id: value.text_of("sessionId"),
                    ..Stamp::default()
                };
                let usage = Usage {
                    models: &models.to_tokens(),
                    beyond: Some(BEYOND),
                    ..Usage::run(&tokens)
                };
                out.usage(usage, &stamp);
                Outcome::Mapped
            }
            "progress" => self.progress(value, record.line, out),
            "ai-title" => titled(value, "aiTitle", out),
            "custom-title" => titled(value, "customTitle", out),
            other => rule(IGNORED, other),
        }
    }

    fn judge(&self, run: &Reducer, _exit: &Exit) -> Option<Ending> {
        (self.answered && run.progress.open_calls.is_empty()).then(|| {
            let why = "the last message is an answer, though no stop reason is printed";
            Ending::new("completed", None, why)
        })
    }
}

fn stamp_of<'a>(value: Value<'a>) -> Stamp<'a> {
    Stamp {
        session_id: value.text_of("sessionId"),
        ..Stamp::at(value.text_of("timestamp"))
    }
}

impl Transcript {
    // ---------------------------------------------------------------- messages

    fn message(
        &mut self,
        kind: &str,
        value: Value<'_>,
        message: Value<'_>,
        mut stamp: Stamp<'_>,
        line: u64,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let stray = stamp.thread() == Some("");
        if stray {
            stamp.parent = None;
        }
        if kind == "user" {
            return match stray {
                true => Outcome::Ignored("sidechain without a call"),
                false => self.user(value, message, &stamp, out),
            };
        }
        if stray {
            let id = filled(message.text_of("id"));
            usage(value, message, id.as_deref(), line, &stamp, true, out);
            return Outcome::Mapped;
        }
        let synthetic = message.text_of("model").as_deref() == Some(anthropic::SYNTHETIC);
        if synthetic || is_true(value.get("isApiErrorMessage")) {
            return self.synthetic(value, message, &stamp, out);
        }
        self.assistant(value, message, stamp, line, out)
    }

    /// A line of a sub-agent, wrapped; in the file of its own it has the same uuid.
    fn progress(&mut self, value: Value<'_>, line: u64, out: &mut Emitter<'_>) -> Outcome {
        let told = value.path(&["data", "message"]);
        let kind = told.and_then(|told| told.text_of("type"));
        let message = told.and_then(|told| told.get("message"));
        let call = filled(value.text_of("parentToolUseID"));
        let of_agent = value.path(&["data", "type"]);
        let (Some(kind @ ("user" | "assistant")), Some(told), Some(message), Some(call), true) = (
            kind.as_deref(),
            told,
            message.filter(Value::is_object),
            call,
            of_agent.is_some_and(|kind| kind.is_text("agent_progress")),
        ) else {
            return Outcome::Ignored("progress");
        };
        if let Some(uuid) = told.text_of("uuid") {
            if self.seen.contains_key(&*uuid) {
                return Outcome::Ignored("record again");
            }
            self.seen.insert(uuid.into_string(), Some(call.to_string()));
        }
        let agent = value.path(&["data", "agentId"]);
        if let Some(agent) = filled(agent.and_then(|agent| agent.text())) {
            self.agents.insert(agent.into_string(), call.to_string());
        }
        self.delegations.retain(|(id, _)| **id != *call);
        let stamp = Stamp {
            session_id: value.text_of("sessionId"),
            parent: Some(call),
            ..Stamp::at(told.text_of("timestamp"))
        };
        self.message(kind, told, message, stamp, line, out)
    }

    fn assistant<'a>(
        &mut self,
        value: Value<'a>,
        message: Value<'a>,
        stamp: Stamp<'a>,
        line: u64,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let stamp = Stamp {
            message_id: message.text_of("id"),
            model: message.text_of("model"),
            extra: anthropic::extra_of(message, "stop_reason"),
            ..stamp
        };
        let thread = stamp.thread().map(str::to_owned);
        if thread.is_none() {
            self.retract(value.get("supersedesUuids"), &stamp, out);
        }
        let id = stamp.message_id.as_deref();
        let request = filled(value.text_of("requestId"));
        let request = request.as_deref();
        let current = self.current.get_mut(&thread);
        if current.is_none_or(|current| !current.goes_on(id, request)) {
            let current = Current::new(id, request, self.current.get(&thread));
            self.current.insert(thread.clone(), current);
            out.commit(thread.as_deref());
            out.next_turn();
        }
        if thread.is_none() {
            session(value, &stamp, out);
            if !self.running {
                self.start(&stamp, out);
            }
        }
        let mut kind = Text::default();
        let mut told = Vec::new();
        for block in blocks_of(message.get("content")) {
            kind = block.kind();
            let mut key = 0;
            if let Some(current) = self.current.get_mut(&thread) {
                if current.end != *kind || value.first("apiBlockIndex").is_some() {
                    current.blocks += 1;
                }
                current.end.clear();
                current.end.push_str(&kind);
                key = current.blocks;
            }
            told.extend(self.block(&kind, key, block, &stamp, out));
        }
        if let (Some(current), Some(uuid)) = (self.current.get_mut(&thread), value.text_of("uuid"))
        {
            current.lines.push((uuid.into_string(), told));
        }
        let key = self.current.get(&thread);
        let key = key.and_then(|current| current.key.as_deref());
        usage(value, message, key, line, &stamp, false, out);
        if thread.is_none() {
            self.stop(message.text_of("stop_reason"), &kind, &stamp, out);
        }
        Outcome::Mapped
    }

    fn block(
        &mut self,
        kind: &str,
        key: i64,
        block: Block<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Option<Part> {
        if let Some(chunk) = chunk_of(kind) {
            // pieces of one text, as gateways print them, lie on lines that follow each other
            if let Some(text) = block.get(kind).and_then(|text| text.as_str()) {
                out.delta(chunk, key, text, stamp);
            }
            return Some(Part::Text(chunk, key));
        } else if let Some(id) = block.text_of("id").filter(|_| anthropic::is_call(kind)) {
            let name = block.text_of("name");
            let input = block.get("input");
            let prompt = input.and_then(|input| input.text_of("prompt"));
            if let (Some("Task" | "Agent"), Some(prompt)) = (name.as_deref(), prompt) {
                let prompt = prompt.into_string();
                match self.delegations.iter_mut().find(|(call, _)| **call == *id) {
                    Some((_, old)) => *old = prompt,
                    None => self.delegations.push((id.to_string(), prompt)),
                }
            }
            let part = Part::Call(id.to_string());
            let call = Call {
                twin: true,
                ..Call::new(id, name, input)
            };
            out.call(call, stamp);
            show(self.plan.call(block), stamp, out);
            return Some(part);
        }
        anthropic::other_block(block, stamp, out);
        None
    }

    /// Another answer takes the place of these lines, as a fallback model's does of a refused one. They stay in the file
    /// (2.1.197): what they told is taken back, once, for a notice may name them again.
    fn retract(&mut self, uuids: Option<Value<'_>>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        let Some(message) = self.current.get_mut(&None) else {
            return;
        };
        let parts = anthropic::retracted(&mut message.lines, uuids).unwrap_or_default();
        if !parts.is_empty() {
            message.end.clear(); // what comes next is a text of its own
        }
        for part in parts {
            anthropic::take_back(part, stamp, out);
        }
    }

    /// After a line of the main agent: whether its prompt is done. A thought is never the last block.
    fn stop(
        &mut self,
        reason: Option<Text<'_>>,
        kind: &str,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) {
        self.answered = reason.is_none() && kind == "text";
        if let Some(outcome) = outcome_of(reason.as_deref())
            && !matches!(kind, "thinking" | "redacted_thinking")
        {
            self.running = false;
            end_turn(outcome, reason, stamp, out);
        }
    }

    /// What the harness says in the assistant's name: why it failed, or nothing that counts.
    fn synthetic(
        &mut self,
        value: Value<'_>,
        message: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let text = joined_text(message.get("content"));
        let error = value.text_of("error");
        let coded = is_true(value.get("isApiErrorMessage")) || error.is_some();
        if !coded && !text.starts_with("API Error") {
            return HARNESS_TEXT;
        }
        if stamp.parent.is_some() {
            out.notice(text, stamp); // the delegating call fails, not the run
            return Outcome::Mapped;
        }
        self.running = false;
        self.answered = false;
        let capped = anthropic::is_limit([value.text_of("apiError"), error], &text);
        out.error(text, stamp, true);
        let outcome = if capped { "limit" } else { "failed" };
        end_turn(outcome, Some("api_error".into()), stamp, out);
        Outcome::Mapped
    }

    fn user(
        &mut self,
        value: Value<'_>,
        message: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let blocks = blocks_of(message.get("content"));
        let is_result = |block: &&Block<'_>| &*block.kind() == "tool_result";
        let results = blocks.iter().filter(is_result).count();
        let raw = value.get("toolUseResult");
        let raw = raw.filter(|raw| results == 1 && !raw.is_null());
        let machine = is_machine(value);
        let mut outcome = HARNESS_TEXT;
        for block in &blocks {
            if is_result(&block) {
                self.tool_result(*block, raw, stamp, out);
                outcome = Outcome::Mapped;
            } else if let Some(ended) = block.interrupt() {
                self.interrupt(ended, stamp, out);
                outcome = Outcome::Mapped;
            } else if !machine && !block.is_wrapped() && self.prompt(value, *block, stamp, out) {
                outcome = Outcome::Mapped;
            }
        }
        outcome
    }

    fn tool_result(
        &mut self,
        block: Block<'_>,
        raw: Option<Value<'_>>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) {
        let Some(id) = block.text_of("tool_use_id") else {
            return;
        };
        if let Some(agent) = filled(raw.and_then(|raw| raw.text_of("agentId"))) {
            self.agents.insert(agent.into_string(), id.to_string());
        }
        anthropic::tool_result(id.borrow(), block, raw, stamp, out);
        let failed = anthropic::has_failed(block, raw);
        show(self.plan.result(&id, failed, raw), stamp, out);
    }

    fn interrupt(&mut self, outcome: &'static str, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        if stamp.parent.is_none() {
            self.running = false;
            self.answered = false;
            end_turn(outcome, Some("interrupted".into()), stamp, out);
        }
    }

    /// What a person typed, or what an agent told its sub-agent.
    fn prompt(
        &mut self,
        value: Value<'_>,
        block: Block<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> bool {
        if stamp.parent.is_none() && !self.running {
            session(value, stamp, out);
            self.start(stamp, out);
        }
        anthropic::user_block(block, stamp, out)
    }

    // ---------------------------------------------------------------- other lines

    fn system(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let stamp = stamp_of(value);
        let subtype = value.text_of("subtype").unwrap_or_default();
        let state = match &*subtype {
            "compact_boundary" => {
                let trigger = value.path(&["compactMetadata", "trigger"]);
                State::new("compaction")
                    .with("phase", "end")
                    .with("trigger", trigger.and_then(|trigger| trigger.text()))
                    .with("success", true)
            }
            "api_error" => State::new("retry")
                .with("phase", "start")
                .with("attempt", count(value.get("retryAttempt")))
                .with("maxAttempts", count(value.get("maxRetries")))
                .with("delayMs", price(value.get("retryInMs"))),
            "model_consent_fallback" | "model_fallback" | "model_refusal_fallback" => {
                self.retract(value.get("retractedMessageUuids"), &stamp, out);
                if value.text_of("scope").as_deref() == Some("local") {
                    return Outcome::Mapped; // that of a sub-agent or a side question
                }
                State::new("model").with("model", value.text_of("fallbackModel"))
            }
            other => return rule(IGNORED_SYSTEM, other),
        };
        out.state(state, &stamp);
        Outcome::Mapped
    }

    /// What goes to the model beside the messages; only a prompt that was typed ahead is a person's.
    fn attachment(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let content = value.get("attachment");
        let of = |key| content.and_then(|content| content.get(key));
        let is = |key, text| of(key).and_then(|v| v.text()).as_deref() == Some(text);
        let typed = is("type", "queued_command")
            && !is_true(value.get("isSidechain"))
            && (of("commandMode").is_none() || is("commandMode", "prompt"));
        let mut outcome = Outcome::Ignored("attachment");
        if !typed {
            return outcome;
        }
        let stamp = stamp_of(value);
        for block in blocks_of(of("prompt")) {
            if self.prompt(value, block, &stamp, out) {
                outcome = Outcome::Mapped;
            }
        }
        outcome
    }

    // ---------------------------------------------------------------- threads and turns

    /// The call that a sidechain belongs to, "" if none is known; None for the file's own conversation.
    fn thread(&mut self, value: Value<'_>, message: Value<'_>) -> Option<String> {
        if self.own == Some(true) || !is_true(value.get("isSidechain")) {
            return None;
        }
        let agent = value.text_of("agentId").unwrap_or_default();
        let parent = value.text_of("parentUuid").unwrap_or_default();
        let known = self.agents.get(&*agent).cloned();
        let known = known.or_else(|| self.seen.get(&*parent).cloned().flatten());
        let call = known.unwrap_or_else(|| {
            let prompt = joined_text(message.get("content"));
            let mut delegations = self.delegations.iter();
            match delegations.position(|(_, text)| **text == *prompt) {
                Some(at) => self.delegations.remove(at).0,
                None => String::new(),
            }
        });
        if !agent.is_empty() && !call.is_empty() {
            self.agents.insert(agent.into_string(), call.clone());
        }
        Some(call)
    }

    fn start(&mut self, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        self.running = true;
        self.answered = false;
        out.state(State::new("turn").with("phase", "start"), &bare(stamp));
    }
}

/// The stamp without what is said of the message.
fn bare<'a>(stamp: &'a Stamp<'_>) -> Stamp<'a> {
    Stamp {
        session_id: stamp.session_id.as_ref().map(Text::borrow),
        ..Stamp::at(stamp.timestamp.as_ref().map(Text::borrow))
    }
}

/// A line that gives the session a title.
fn titled(value: Value<'_>, key: &str, out: &mut Emitter<'_>) -> Outcome {
    let stamp = Stamp {
        session_id: value.text_of("sessionId"),
        ..Stamp::default()
    };
    out.session_state(&[("title", value.text_of(key))], &stamp);
    Outcome::Mapped
}

fn session(value: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
    let details = [
        ("sessionId", stamp.session_id.as_ref().map(Text::borrow)),
        ("version", value.text_of("version")),
        ("model", stamp.model.as_ref().map(Text::borrow)),
        ("cwd", value.text_of("cwd")),
    ];
    out.session_state(&details, &bare(stamp));
}

fn end_turn(
    outcome: &'static str,
    reason: Option<Text<'_>>,
    stamp: &Stamp<'_>,
    out: &mut Emitter<'_>,
) {
    let state = State::new("turn")
        .with("phase", "end")
        .with("outcome", outcome)
        .with("reason", reason);
    out.state(state, stamp);
}

fn show(plan: Option<Vec<PlanEntry<'_>>>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
    if let Some(plan) = plan {
        out.plan(&plan, stamp);
    }
}

/// The usage of the call, final in newer versions; 0.2 prices each line, which was a whole message.
fn usage(
    value: Value<'_>,
    message: Value<'_>,
    key: Option<&str>,
    line: u64,
    stamp: &Stamp<'_>,
    side: bool,
    out: &mut Emitter<'_>,
) {
    let tokens =
        Counts::of_usage(message.get("usage")).to_tokens(price(value.get("costUSD")), None);
    match key {
        Some(key) => out.call_usage(&tokens, stamp, Some(key), side),
        None => out.call_usage(&tokens, stamp, Some(&format!("line {line}")), side),
    }
}

/// A user line that no person typed.
fn is_machine(value: Value<'_>) -> bool {
    let marks = ["isMeta", "isCompactSummary", "isVisibleInTranscriptOnly"];
    let origin = value
        .path(&["origin", "kind"])
        .filter(|kind| !kind.is_null());
    let human = |kind: Value<'_>| matches!(kind.text().as_deref(), Some("human" | "user"));
    marks.iter().any(|key| is_true(value.get(key)))
        || value.text_of("rowSource").as_deref() == Some("harness")
        || origin.is_some_and(|kind| !human(kind))
}
