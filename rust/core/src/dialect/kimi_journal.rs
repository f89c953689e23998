//! kimi-code's `wire.jsonl`: flat records with dotted types (recorded: protocol 1.5), a part of the dialect kimi-wire.
//!
//! The loop events of a step are the history; the `agent.*` records of kind event print the same messages again. Usage
//! stands in `usage.record` and again in `step.end`, which comes first in protocol 1.4: whichever is first counts. A
//! failed attempt stays in the file, ends with finishReason error, and is taken back when the step is tried again. Each
//! agent has a file of its own.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{Outcome, SURE, Sign, filled, has_any, kimi, kimi_context};
use crate::emit::{Emitter, Update, scoped};
use crate::event::{Kind, Stamp, State, Tokens, iso_millis};
use crate::json::{Text, Value};
use crate::number::{count, price, total};
use crate::run::{Ending, Exit, Reducer};

/// Records that say nothing for events, by type or by what stands before the first dot.
const IGNORED: &[(&str, &str)] = &[
    ("agent", "messages again"),
    ("cron", "schedule"),
    ("file_history", "file history"),
    ("forked", "fork"),
    ("goal", "goal state"),
    ("interruptionReminder", "reminder"),
    ("mcp", "tool list"),
    ("metadata", "header"),
    ("micro_compaction", "context edit"),
    ("permission", "permissions"),
    ("plan", "plan mode"),
    ("plan_mode", "plan mode"),
    ("plugin", "plugins"),
    ("prompt", "end of a prompt"),
    ("runtime", "runtime"),
    ("staleGuard", "file state"),
    ("subagent", "sub-agent start and end"),
    ("swarm_mode", "swarm mode"),
    ("task", "background task"),
    ("token_counting", "size of the context"),
    ("tools", "tool list"),
    ("tower_mode", "tower mode"),
    ("turn.steer", "steering"),
    ("turn.step.interrupted", "interrupted step"),
    ("context.clear", "context edit"),
    ("context.undo", "context edit"),
    ("context.update_token_count", "size of the context"),
    ("full_compaction.complete", "end of a compaction"),
    ("llm.tools_snapshot", "tool list"),
];
const LIMITS: &[&str] = &["loop.max_steps_exceeded", "context.overflow"];
/// finishReason of a step whose output was cut by its cap: it ends the turn, which is "completed" all the same.
const CAPPED: &str = "max_tokens";
/// Origins of messages that no person and no other agent sent.
const INJECTED: &[&str] = &["injection", "compaction_summary"];
const MARKED: &[&str] = &[
    "context",
    "turn",
    "usage",
    "llm",
    "profile",
    "config",
    "interaction",
    "full_compaction",
];

pub(super) fn sign(record: Value<'_>) -> Option<Sign> {
    let kind = record.text_of("type")?;
    if !record.get("time")?.is_integer() {
        return None;
    }
    let (head, dot) = head(&kind);
    if !MARKED.contains(&head) && rule(head).is_none() {
        return None;
    }
    let event = record.text_of("kind").as_deref() == Some("event");
    if dot && (event || has_any(record, &["agentId"])) {
        let why = format!("a {} record with time and agentId", &*kind);
        return Sign::new(SURE, why);
    }
    Sign::new(60, format!("a {} record with time", &*kind))
}

/// What stands before the first dot, and whether there is one.
fn head(kind: &str) -> (&str, bool) {
    match kind.split_once('.') {
        Some((head, _)) => (head, true),
        None => (kind, false),
    }
}

fn rule(name: &str) -> Option<&'static str> {
    let found = IGNORED.iter().find(|(known, _)| *known == name)?;
    Some(found.1)
}

fn ignored(kind: &str) -> Outcome {
    match rule(kind) {
        Some(rule) => Outcome::Ignored(rule),
        None => Outcome::Unknown,
    }
}

/// The part of the kimi-wire mapper that reads flat records.
#[derive(Default, Deserialize, Serialize)]
pub(super) struct Journal {
    pub(super) seen: bool,
    model: Option<String>,
    /// What the settings call it.
    alias: Option<String>,
    /// A request told the model itself: recorded since July 2026.
    requested: bool,
    /// uuid of the step that runs or ran last.
    step: Option<String>,
    /// Its attempt failed, and may be tried again.
    failed: bool,
    /// Its usage was told.
    billed: bool,
    /// The counts that its end told, as long as its usage.record may still come.
    again: Option<[Option<i64>; 4]>,
    /// finishReason of the last step.
    finish: Option<String>,
    cancelled: bool,
    /// The compaction that runs gave its summary.
    summarised: bool,
    /// A call of this step was rejected.
    refused: bool,
    /// A result came last in the turn, not an answer.
    results_last: bool,
    /// Id of a sub-agent: id of the call that delegated.
    agents: HashMap<String, String>,
}

impl Journal {
    pub(super) fn map(&mut self, kind: &str, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        self.seen |= kind != "metadata";
        let agent = value.text_of("agentId").unwrap_or_default();
        let stamp = Stamp {
            parent: self.agents.get(&*agent).map(|call| call.clone().into()),
            ..Stamp::at(iso_millis(value.get("time")))
        };
        let object = |key| value.get(key).filter(Value::is_object);
        match kind {
            "context.append_loop_event" if object("event").is_some() => {
                let event = object("event").unwrap_or(value);
                return self.loop_event(event, stamp, out);
            }
            "context.append_message" if object("message").is_some() => {
                let message = object("message").unwrap_or(value);
                return message_of(message, stamp, out);
            }
            "usage.record" => {
                let usage = value.get("usage");
                let side = value.text_of("usageScope").as_deref() == Some("session");
                self.known_as(value.text_of("model"), false, out);
                if !side && self.again.is_some() && self.again == counts_of(usage) {
                    self.again = None;
                    return Outcome::Ignored("usage again");
                }
                return self.usage(usage, stamp, side, out);
            }
            "llm.request" => return self.request(value, &stamp, out),
            "profile.bind" | "config.update" => return self.profile(value, &stamp, out),
            "context.apply_compaction" => return self.compaction(kind, value, &stamp, out),
            "interaction.request"
            | "interaction.resolved"
            | "permission.record_approval_result" => {
                return self.approval(kind, value, &stamp, out);
            }
            "subagent.spawned" => {
                let call = value.text_of("parentToolCallId");
                if let (Some(agent), Some(call)) = (value.text_of("subagentId"), call) {
                    self.agents.insert(out.keep(agent), out.keep(call));
                }
            }
            "prompt.aborted" => self.cancelled = true,
            _ if kind.starts_with("turn.") => return self.turn(kind, value, stamp, out),
            _ if kind.starts_with("full_compaction.") => {
                return self.compaction(kind, value, &stamp, out);
            }
            _ => {}
        }
        match rule(kind) {
            Some(rule) => Outcome::Ignored(rule),
            None => ignored(head(kind).0),
        }
    }

    /// Older protocols do not tell the end of a turn.
    pub(super) fn judge(&self, _run: &Reducer, exit: &Exit) -> Option<Ending> {
        if self.cancelled {
            return Some(Ending::new("cancelled", None, "the turn was cancelled"));
        }
        if let Some(failed) = kimi::exit_failed(exit) {
            return Some(failed);
        }
        let (outcome, why) = match self.finish.as_deref()? {
            "end_turn" => ("completed", "the last step ended the turn"),
            CAPPED => ("limit", "the last step ran into the cap of its output"),
            _ => return None,
        };
        Some(Ending::new(outcome, self.finish.as_deref(), why))
    }

    // ---------------------------------------------------------------- steps

    fn loop_event<'a>(
        &mut self,
        event: Value<'a>,
        mut stamp: Stamp<'a>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let kind = event.text_of("type");
        let kind = kind.as_deref().unwrap_or_default();
        if kind == "step.begin" {
            self.begin(event, &stamp, out);
            return Outcome::Ignored("start of a step");
        }
        let uuid = filled(event.text_of("stepUuid"));
        stamp.message_id = uuid.or_else(|| self.step.clone().map(Text::from));
        match kind {
            "content.part" => {
                self.stamp_model(&mut stamp, out);
                if let Some(part) = event.get("part") {
                    let is_text = part.text_of("type").as_deref() == Some("text");
                    if is_text && filled(part.text_of("text")).is_some() {
                        self.results_last = false;
                    }
                    kimi::say_part(part, &stamp, Kind::Message, out);
                }
                Outcome::Mapped
            }
            "tool.call" => {
                self.stamp_model(&mut stamp, out);
                let arguments = kimi::Arguments::of(event.get("args"));
                let (id, name) = (event.text_of("toolCallId"), event.text_of("name"));
                kimi::call(id, name, arguments, false, &stamp, out);
                Outcome::Mapped
            }
            "tool.result" => self.result(event, &stamp, out),
            "step.end" => {
                self.finish = event.text_of("finishReason").map(Text::into_string);
                self.failed = self.finish.as_deref() == Some("error");
                if self.billed || self.failed {
                    return Outcome::Ignored("end of a step");
                }
                self.again = counts_of(event.get("usage"));
                self.usage(event.get("usage"), stamp, false, out)
            }
            _ => Outcome::Unknown,
        }
    }

    fn begin(&mut self, event: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        if self.failed {
            // no turn.step.retrying came between
            self.take_back(stamp, out);
            out.state(State::new("retry").with("phase", "start"), stamp);
        }
        out.commit(stamp.thread());
        out.next_turn();
        self.step = event.text_of("uuid").map(|uuid| out.keep(uuid));
        self.billed = false;
        self.again = None;
        self.refused = false;
        self.finish = None;
    }

    fn take_back(&mut self, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        self.failed = false;
        out.abandon(stamp.thread(), stamp);
    }

    fn result(&mut self, event: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        let result = event.get("result").filter(Value::is_object);
        let (Some(id), Some(result)) = (event.text_of("toolCallId"), result) else {
            return Outcome::Unknown;
        };
        self.results_last = true;
        let id = out.keep(id);
        let mut update = Update {
            key: Some(scoped(&id, stamp)),
            content: kimi::content_of(result.get("output")),
            raw_output: Some(result.into()),
            ..Update::new(id, Some(status(result)))
        };
        update.facts.duration_ms = price(result.get("durationMs"));
        kimi::shown(out.update(update, stamp))
    }

    fn usage<'a>(
        &mut self,
        usage: Option<Value<'a>>,
        mut stamp: Stamp<'a>,
        side: bool,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let Some(usage) = usage.filter(Value::is_object) else {
            return Outcome::Ignored("usage without counts");
        };
        self.billed |= !side;
        if !side {
            stamp.message_id = self.step.clone().map(Text::from);
        }
        self.stamp_model(&mut stamp, out);
        let of = |key| usage.get(key);
        let cached = of("inputCacheRead");
        let tokens = Tokens {
            prompt: total([of("inputOther"), cached, of("inputCacheCreation")]),
            completion: count(of("output")),
            cached: count(cached),
            extra: kimi::extra_of(usage, &["inputCacheCreation"]),
            ..Tokens::default()
        };
        out.call_usage(&tokens, &stamp, None, side);
        Outcome::Mapped
    }

    fn request(&mut self, value: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        let main = value.text_of("kind").as_deref() == Some("loop");
        let Some(model) = value.text_of("model").filter(|_| main) else {
            return Outcome::Ignored("model request");
        };
        self.model = Some(out.keep(model.clone()));
        self.requested = true;
        if stamp.parent.is_none() {
            out.session_state(&[("model", Some(model))], stamp);
        }
        Outcome::Mapped
    }

    fn profile(&mut self, value: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        let disclosed = value.get("environmentDisclosure").filter(Value::is_object);
        let cwd = disclosed.unwrap_or(value).text_of("cwd");
        if stamp.parent.is_none() {
            out.session_state(&[("cwd", cwd)], stamp);
        }
        self.known_as(value.text_of("modelAlias"), true, out);
        Outcome::Mapped
    }

    /// What the settings call the model is its name as long as no request tells it.
    fn known_as(&mut self, alias: Option<Text<'_>>, anew: bool, out: &mut Emitter<'_>) {
        if let Some(alias) = filled(alias)
            && !self.requested
            && (anew || self.alias.is_none())
        {
            self.alias = Some(out.keep(alias));
            self.model = None;
        }
    }

    fn stamp_model(&mut self, stamp: &mut Stamp<'_>, out: &mut Emitter<'_>) {
        if self.model.is_none()
            && let Some(alias) = &self.alias
        {
            self.model = Some(alias.clone());
            if stamp.parent.is_none() {
                out.session_state(&[("model", Some(alias.as_str().into()))], stamp);
            }
        }
        stamp.model = self.model.clone().map(Text::from);
    }

    // ---------------------------------------------------------------- turns

    fn turn<'a>(
        &mut self,
        kind: &str,
        value: Value<'a>,
        mut stamp: Stamp<'a>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        match kind {
            "turn.prompt" => {
                self.failed = false;
                self.cancelled = false;
                self.refused = false;
                self.finish = None;
                self.results_last = false;
                out.commit(stamp.thread());
                if stamp.parent.is_none() {
                    out.state(State::new("turn").with("phase", "start"), &stamp);
                }
                Outcome::Mapped
            }
            "turn.step.retrying" => {
                self.take_back(&stamp, out);
                stamp.extra = kimi::extra_of(value, &["errorName", "statusCode"]);
                let state = State::new("retry")
                    .with("phase", "start")
                    .with("attempt", count(value.get("failedAttempt")))
                    .with("maxAttempts", count(value.get("maxAttempts")))
                    .with("delayMs", price(value.get("delayMs")))
                    .with("message", value.text_of("errorMessage"));
                out.state(state, &stamp);
                Outcome::Mapped
            }
            "turn.ended" => self.ended(value, &stamp, out),
            "turn.cancel" => {
                self.cancelled = value.text_of("target").as_deref() != Some("queued");
                Outcome::Ignored("cancel")
            }
            other => ignored(other),
        }
    }

    fn ended(&mut self, value: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        self.failed = false; // the last attempt's text stays
        out.commit(stamp.thread());
        if stamp.parent.is_some() {
            return Outcome::Ignored("end of a sub-agent's turn");
        }
        let mut reason = value.text_of("reason");
        let mut outcome = match reason.as_deref() {
            Some("completed") if self.refused && self.results_last => Some("denied"),
            Some("completed") if self.finish.as_deref() == Some(CAPPED) => {
                reason = Some(CAPPED.into());
                Some("limit")
            }
            Some("completed") => Some("completed"),
            Some("cancelled") => Some("cancelled"),
            Some("failed") => Some("failed"),
            Some("blocked") => Some("denied"), // a turn that a hook blocks never runs
            _ => None,
        };
        if let Some(error) = value.get("error").filter(Value::is_object) {
            let code = error.text_of("code");
            if let Some(message) = error.text_of("message") {
                let code = filled(code.clone()).map(|code| ("code".into(), code.into()));
                let stamp = Stamp {
                    extra: code.into_iter().collect(),
                    ..Stamp::at(stamp.timestamp.clone())
                };
                out.error(message, &stamp, true);
            }
            let limit = code.as_deref().is_some_and(|code| LIMITS.contains(&code));
            if outcome == Some("failed") && limit {
                outcome = Some("limit");
            }
            reason = filled(code).or(reason);
        }
        let state = State::new("turn")
            .with("phase", "end")
            .with("outcome", outcome)
            .with("reason", reason);
        out.state(state, stamp);
        Outcome::Mapped
    }

    fn compaction(
        &mut self,
        kind: &str,
        value: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let state = State::new("compaction");
        let state = match kind {
            "full_compaction.begin" => {
                self.summarised = false;
                state
                    .with("phase", "start")
                    .with("trigger", value.text_of("source"))
            }
            "full_compaction.cancel" => state.with("phase", "end").with("success", false),
            "context.apply_compaction" => {
                self.summarised = true;
                let summary = value.get("summary");
                let message = summary.filter(Value::is_object);
                let summary = match (filled(value.text_of("contextSummary")), message) {
                    (Some(summary), _) => Some(summary),
                    (None, Some(message)) => {
                        let texts = kimi::texts_of(message.get("content"));
                        Some(kimi_context::joined(&texts, out))
                    }
                    (None, None) => summary.and_then(|summary| summary.text()),
                };
                state
                    .with("phase", "end")
                    .with("success", true)
                    .with("summary", summary)
            }
            "full_compaction.complete" if !self.summarised => {
                state.with("phase", "end").with("success", true)
            }
            other => return ignored(other),
        };
        out.state(state, stamp);
        Outcome::Mapped
    }

    fn approval(
        &mut self,
        kind: &str,
        value: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let phase = match kind {
            // it names neither call nor decision; the next record of the call does
            "interaction.resolved" => return Outcome::Ignored("answer of a person"),
            "interaction.request" => "requested",
            _ => "settled",
        };
        let of = |key| value.get("result").and_then(|result| result.text_of(key));
        let decision = of("decision");
        self.refused |= decision.as_deref() == Some("rejected");
        let state = State::new("approval")
            .with("phase", phase)
            .with("toolCallId", value.text_of("toolCallId"))
            .with("toolName", value.text_of("toolName"))
            .with("decision", decision)
            .with("message", of("feedback"));
        out.state(state, stamp);
        Outcome::Mapped
    }
}

/// A message that is put into the context: a prompt, or the history of an imported or forked session.
fn message_of<'a>(message: Value<'a>, mut stamp: Stamp<'a>, out: &mut Emitter<'_>) -> Outcome {
    let origin = message.get("origin");
    let source = origin.and_then(|origin| origin.text_of("kind"));
    let id = filled(message.text_of("id"));
    stamp.message_id = id.or_else(|| message.text_of("providerMessageId"));
    let content = message.get("content");
    match message.text_of("role").as_deref() {
        Some("assistant") => {
            out.commit(stamp.thread());
            out.next_turn();
            kimi::say(content, &stamp, Kind::Message, out);
            for block in kimi::items(message.get("toolCalls")).filter(Value::is_object) {
                // protocol 1.0 wraps name and arguments
                let function = block.get("function").filter(Value::is_object);
                let function = function.unwrap_or(block);
                let arguments = kimi::Arguments::of(function.get("arguments"));
                let name = function.text_of("name");
                kimi::call(block.text_of("id"), name, arguments, false, &stamp, out);
            }
            Outcome::Mapped
        }
        Some("tool") if message.text_of("toolCallId").is_some() => {
            let id = message.text_of("toolCallId").unwrap_or_default();
            let id = out.keep(id);
            let update = Update {
                key: Some(scoped(&id, &stamp)),
                content: kimi::content_of(content),
                ..Update::new(id, Some(status(message)))
            };
            kimi::shown(out.update(update, &stamp))
        }
        Some("user")
            if !source
                .as_deref()
                .is_some_and(|source| INJECTED.contains(&source))
                && !kimi::is_injected(content) =>
        {
            if let Some(source) = source.filter(|source| &**source != "user") {
                stamp.extra = vec![("origin".into(), source.into())];
            }
            kimi::say(content, &stamp, Kind::User, out);
            Outcome::Mapped
        }
        _ => Outcome::Ignored("injected message"),
    }
}

fn status(result: Value<'_>) -> &'static str {
    match result.get("isError").and_then(|error| error.as_bool()) {
        Some(true) => "failed",
        _ => "completed",
    }
}

fn counts_of(usage: Option<Value<'_>>) -> Option<[Option<i64>; 4]> {
    let usage = usage.filter(Value::is_object)?;
    let keys = [
        "inputOther",
        "output",
        "inputCacheRead",
        "inputCacheCreation",
    ];
    Some(keys.map(|key| count(usage.get(key))))
}
