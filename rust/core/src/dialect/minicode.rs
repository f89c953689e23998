//! minicode: `minicode exec --json` (`minicode.output.v1`, seed 004) and the notifications of `minicode acp`.
//!
//! Three kinds of line: envelopes with dotted types and a payload, bare text deltas, and one summary at the end. The same
//! text comes up to three times (`model.delta`, `text`, `model.completed`): the delta channel that is seen first is
//! used, the other repeats it. Tool arguments and whole outputs are never printed: a call has a target and the first
//! line of its result.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{Dialect, Make, Mapper, Outcome, SURE, Sign, filled, key_count, rule};
use crate::data::Data;
use crate::emit::{Call, Emitter, Update};
use crate::event::{Kind, Location, Stamp, State, Tokens, text_content};
use crate::json::{Str, Text, Value};
use crate::number::{count, price};
use crate::record::Record;
use crate::tool;

pub const DIALECT: Dialect = Dialect {
    name: "minicode",
    sign,
    mapper: Make::of::<Minicode>(),
};

const SCHEMA: &str = "minicode.output.v";
/// Tool terminals and the status they stand for; a refusal and a cancel are failures of the call.
const TERMINALS: &[(&str, &str)] = &[
    ("tool.completed", "completed"),
    ("tool.failed", "failed"),
    ("tool.denied", "failed"),
    ("tool.cancelled", "failed"),
];
const IGNORED: &[(&str, &str)] = &[
    ("reasoning.completed", "end of reasoning"),
    ("file.changed", "file change"),
    ("test.completed", "test result"),
    ("checkpoint.created", "checkpoint"),
    ("finding.detected", "finding"),
    ("result.produced", "result summary"),
    ("verification.observed", "verification"),
    ("diagnostic.raised", "diagnostic"),
];
const FLAT: [&str; 4] = ["turn.", "tool.", "approval.", "user."];

fn sign(record: Value<'_>) -> Option<Sign> {
    let (schema, kind) = (record.text_of("schema"), record.text_of("type"));
    if let (Some(schema), Some(_)) = (&schema, &kind)
        && schema.starts_with(SCHEMA)
    {
        let version = Some(schema.to_string());
        return Sign::of_version(SURE, format!("schema {}", &**schema), version);
    }
    let kind = kind.as_deref();
    if kind == Some("text")
        && record.text_of("delta").is_some()
        && key_count(record) == 2 + record.get("truncated").is_some() as usize
    {
        return Sign::new(40, "a bare text delta");
    }
    if kind == Some("tool") && record.get("name").is_some() && key_count(record) == 2 {
        return Sign::new(40, "a legacy tool record");
    }
    if let Some(kind) = kind
        && record.get("eventSeq").is_some()
        && FLAT.iter().any(|head| kind.starts_with(head))
    {
        return Sign::new(SURE, format!("a flat {kind} with eventSeq"));
    }
    if record.get("jsonrpc").is_some() || record.get("id").is_none() {
        return None;
    }
    let text = |path: &[&str]| record.path(path).and_then(|value| value.text());
    if text(&["result", "server"]).as_deref() == Some("minicode-acp") {
        return Sign::new(SURE, "a minicode-acp response");
    }
    if text(&["error", "category"]).is_some() && text(&["error", "message"]).is_some() {
        return Sign::new(SURE, "an error response with a category");
    }
    let ok = record.path(&["result", "ok"]).and_then(|ok| ok.as_bool());
    if ok.is_some() && record.path(&["result", "turns"]).is_some() {
        return Sign::new(60, "a run response with ok");
    }
    None
}

/// The two channels that print text.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
enum Channel {
    Text,
    ModelDelta,
}

#[derive(Default, Deserialize, Serialize)]
struct Minicode {
    /// The delta channel that is used.
    channel: Option<Channel>,
    /// Call id: name, from approvals and starts.
    names: HashMap<String, String>,
    /// How the last turn ended.
    ended: Option<Cow<'static, str>>,
    legacy_calls: u32,
}

impl Mapper for Minicode {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        let value = record.value();
        let kind = record.kind();
        if kind.as_deref() == Some("text") {
            let delta = value.get("delta").and_then(|delta| delta.as_str());
            return self.delta(Channel::Text, delta, &Stamp::default(), out);
        }
        if kind.as_deref() == Some("tool")
            && let Some(name) = value.text_of("name")
        {
            return self.legacy(name, out);
        }
        let Some(kind) = kind else {
            return match value.get("id") {
                Some(_) => self.response(value, out),
                None => Outcome::Unknown,
            };
        };
        // acp prints the payload's keys flat
        let payload = value
            .get("payload")
            .filter(Value::is_object)
            .unwrap_or(value);
        let stamp = Stamp {
            session_id: value.text_of("sessionId"),
            timestamp: value.text_of("timestamp"),
            parent: payload.text_of("parentToolCallId"),
            ..Stamp::default()
        };
        if &*kind == "summary" {
            return self.summary(value, out);
        }
        if stamp.session_id.is_some() {
            let at = Stamp::at(stamp.timestamp.clone());
            out.session_state(&[("sessionId", stamp.session_id.clone())], &at);
        }
        let (head, tail) = kind.split_once('.').unwrap_or((&kind, ""));
        match (head, &*kind) {
            ("turn", _) => self.turn(tail, payload, &stamp, out),
            ("tool", _) => self.tool(&kind, payload, &stamp, out),
            ("approval", _) => self.approval(tail, payload, &stamp, out),
            (_, "model.delta") => {
                let delta = payload.get("delta").and_then(|delta| delta.as_str());
                self.delta(Channel::ModelDelta, delta, &stamp, out)
            }
            (_, "model.completed") => self.completed(payload, &stamp, out),
            (_, "reasoning.delta") => {
                let delta = payload.get("delta").and_then(|delta| delta.as_str());
                let Some(delta) = delta.filter(|delta| !delta.raw().is_empty()) else {
                    return Outcome::Ignored("empty text");
                };
                out.delta(Kind::Thought, "reasoning", delta, &stamp);
                Outcome::Mapped
            }
            (_, "user.message") => {
                let Some(text) = filled(payload.text_of("text")) else {
                    return Outcome::Ignored("empty text");
                };
                out.whole(Kind::User, text, &stamp);
                Outcome::Mapped
            }
            (_, "plan.updated") => self.plan(payload, &stamp, out),
            (_, "context.compacted") => {
                let trigger = filled(payload.text_of("compactionReason"))
                    .or_else(|| payload.text_of("reason"));
                let state = State::new("compaction")
                    .with("phase", "end")
                    .with("success", true)
                    .with("trigger", trigger);
                out.state(state, &stamp);
                Outcome::Mapped
            }
            (_, other) => rule(IGNORED, other),
        }
    }
}

impl Minicode {
    // ---------------------------------------------------------------- text

    /// One of two channels prints the text: `model.delta` comes first if both do, and then `text` is the twin.
    fn delta(
        &mut self,
        channel: Channel,
        text: Option<Str<'_>>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let Some(text) = text.filter(|text| !text.raw().is_empty()) else {
            return Outcome::Ignored("empty text");
        };
        if *self.channel.get_or_insert(channel) != channel {
            return Outcome::Ignored("the other delta channel");
        }
        out.delta(Kind::Message, "answer", text, stamp);
        Outcome::Mapped
    }

    /// The final text of the turn's last message: only what no delta said is news.
    fn completed(
        &mut self,
        payload: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let cut = payload.get("truncated").and_then(|cut| cut.as_bool()) == Some(true);
        let text = filled(payload.text_of("text")).filter(|_| !cut);
        let streamed = out
            .streamed(Kind::Message, "answer", stamp.thread())
            .is_some();
        match text {
            Some(text) if !streamed => {
                out.final_text(Kind::Message, "answer", text, stamp);
                Outcome::Mapped
            }
            _ => Outcome::Ignored("final text of the turn"),
        }
    }

    // ---------------------------------------------------------------- turns and the end

    fn turn(
        &mut self,
        what: &str,
        payload: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        if what == "started" {
            out.commit(None);
            out.next_turn();
            self.ended = None;
            out.state(State::new("turn").with("phase", "start"), stamp);
            return Outcome::Mapped;
        }
        if !matches!(what, "completed" | "failed" | "cancelled") {
            return Outcome::Unknown;
        }
        if self.ended.is_some() {
            return Outcome::Ignored("second end of a turn"); // the first stands
        }
        let reason = if what == "cancelled" {
            payload.text_of("reason")
        } else {
            filled(payload.text_of("error")).or_else(|| payload.text_of("cause"))
        };
        let outcome = match (what, reason.as_deref()) {
            ("completed", _) => "completed",
            ("cancelled", Some("user")) => "cancelled",
            ("cancelled", Some("timeout")) => "timeout",
            ("cancelled", Some("budget")) => "limit",
            _ => "failed",
        };
        self.ended = Some(outcome.into());
        out.close(None);
        let state = State::new("turn")
            .with("phase", "end")
            // a good turn is not the last word: a budget check or a further turn may follow, and only the summary says
            .with("outcome", Some(outcome).filter(|told| *told != "completed"))
            .with("reason", reason);
        out.state(state, stamp);
        Outcome::Mapped
    }

    fn summary(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        session(value, out);
        if let Some(usage) = value.get("usage").filter(Value::is_object) {
            let known = ["inputTokens", "outputTokens", "cost"];
            let mut extra: Vec<(Text<'_>, Data<'_>)> = Vec::new();
            for (key, item) in usage.entries() {
                if !known.iter().any(|name| key.eq(name)) {
                    extra.push((key.into(), item.into()));
                }
            }
            out.run_usage(&total(usage, extra), &Stamp::default(), None);
        }
        out.close(None);
        if value.get("ok").and_then(|ok| ok.as_bool()) == Some(true) {
            completed(out);
        } else {
            self.failed(value.get("error"), out);
        }
        Outcome::Mapped
    }

    /// The terminal error of a run; the last turn's end says if it was a cancel, a time limit or a budget.
    fn failed(&mut self, error: Option<Value<'_>>, out: &mut Emitter<'_>) {
        let text = |key| error.and_then(|error| error.text_of(key));
        let message = text("message");
        let outcome = match (self.ended.as_deref(), message.as_deref()) {
            (Some(ended @ ("cancelled" | "timeout" | "limit")), _) => ended,
            (_, Some(text)) if text.contains("over budget") || text.starts_with("max steps") => {
                "limit"
            }
            _ => "failed",
        };
        if let Some(message) = message {
            out.error(message, &Stamp::default(), true);
        }
        let state = State::new("end")
            .with("outcome", outcome)
            .with("reason", text("category"));
        out.state(state, &Stamp::default());
    }

    /// A response of the acp server: the one to `run` is the run's terminal record.
    fn response(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let error = value.get("error").filter(Value::is_object);
        if error.is_some() {
            self.failed(error, out);
            return Outcome::Mapped;
        }
        let Some(result) = value.get("result") else {
            return Outcome::Ignored("response");
        };
        let Some(ok) = result.get("ok").and_then(|ok| ok.as_bool()) else {
            return Outcome::Ignored("response");
        };
        if result.get("turns").is_none() {
            return Outcome::Ignored("response");
        }
        session(result, out);
        out.run_usage(&total(result, Vec::new()), &Stamp::default(), None);
        out.close(None);
        if ok {
            completed(out);
        } else {
            self.failed(result.get("error"), out);
        }
        Outcome::Mapped
    }

    // ---------------------------------------------------------------- tools

    fn tool(
        &mut self,
        kind: &str,
        payload: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let Some(id) = payload.text_of("toolCallId") else {
            return Outcome::Unknown;
        };
        if let Some(name) = name_of(payload) {
            self.names.insert(id.to_string(), name.into_string());
        }
        if kind == "tool.started" {
            self.start(&id, payload, stamp, out);
            return Outcome::Mapped;
        }
        if kind == "tool.progress" {
            let update = Update {
                content: text_content(filled(payload.text_of("message"))),
                ..Update::new(id, Some("in_progress"))
            };
            return match out.update(update, stamp) {
                true => Outcome::Mapped,
                false => Outcome::Ignored("late progress"),
            };
        }
        let Some((_, status)) = TERMINALS.iter().find(|(name, _)| *name == kind) else {
            return Outcome::Unknown;
        };
        if !out.knows(&id) {
            self.start(&id, payload, stamp, out); // a gate refusal has no tool.started
        }
        // the first line of the result is printed, or why there is none; a cancel has neither
        let text = filled(payload.text_of("toolSummary")).or_else(|| payload.text_of("message"));
        let mut update = Update {
            content: text_content(filled(text)),
            raw_output: payload
                .get("receipt")
                .filter(Value::is_object)
                .map(Data::Wire),
            ..Update::new(id, Some(status))
        };
        update.facts.duration_ms = price(payload.get("durationMs"));
        match out.update(update, stamp) {
            true => Outcome::Mapped,
            false => Outcome::Ignored("second end of a call"),
        }
    }

    fn start(
        &mut self,
        id: &Text<'_>,
        payload: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) {
        out.close(stamp.thread());
        let name = self.names.get(&**id);
        let target = payload.text_of("target");
        let command = target.as_ref().and_then(|target| target.strip_prefix("$ "));
        let title = target.as_ref().map(|target| {
            target.rewrite(|target| match command {
                Some(command) => format!("`{command}`"),
                None => format!("{} {target}", name.map_or("tool", |name| name.as_str())),
            })
        });
        let kind = tool::kind(DIALECT.name, name.map(String::as_str));
        let is_file = matches!(kind, "read" | "edit" | "delete" | "move") && command.is_none();
        let path = filled(target.as_ref().map(Text::borrow)).filter(|_| is_file);
        let call = Call {
            status: "in_progress",
            title,
            locations: path.map(|path| vec![Location { path, line: None }]),
            ..Call::new(
                id.borrow(),
                name.map(|name| name.as_str().into()),
                Data::Null,
            )
        };
        out.call(call, stamp);
    }

    /// Old versions print a name and nothing else; the event needs an id, so calls are counted.
    fn legacy(&mut self, name: Text<'_>, out: &mut Emitter<'_>) -> Outcome {
        self.legacy_calls += 1;
        out.close(None);
        let id = format!("tool:{}", self.legacy_calls);
        out.call(Call::new(id, Some(name), Data::Null), &Stamp::default());
        Outcome::Mapped
    }

    fn approval(
        &mut self,
        what: &str,
        payload: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let id = payload.text_of("toolCallId");
        let name = name_of(payload);
        if let (Some(id), Some(name)) = (&id, &name) {
            let names = self.names.entry(id.to_string());
            names.or_insert_with(|| name.to_string());
        }
        let state = match what {
            "requested" => State::new("approval")
                .with("phase", "requested")
                .with("toolCallId", id)
                .with("toolName", name),
            "settled" => {
                let text = |key| payload.path(&["outcome", key]).and_then(|text| text.text());
                State::new("approval")
                    .with("phase", "settled")
                    .with("toolCallId", id)
                    .with("decision", text("decision"))
                    .with("message", text("reason"))
            }
            _ => return Outcome::Unknown,
        };
        out.state(state, stamp);
        Outcome::Mapped
    }

    fn plan(&mut self, payload: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        let Some(entries) = tool::plan_of(payload.get("steps"), "title", "status") else {
            return Outcome::Ignored("plan without steps");
        };
        out.plan(&entries, stamp);
        Outcome::Mapped
    }
}

fn name_of(payload: Value<'_>) -> Option<Text<'_>> {
    filled(payload.text_of("qualified")).or_else(|| payload.text_of("name"))
}

fn session(value: Value<'_>, out: &mut Emitter<'_>) {
    let details = [
        ("sessionId", value.text_of("sessionId")),
        ("model", value.text_of("model")),
    ];
    out.session_state(&details, &Stamp::default());
}

fn total<'a>(usage: Value<'a>, extra: Vec<(Text<'a>, Data<'a>)>) -> Tokens<'a> {
    Tokens {
        prompt: count(usage.get("inputTokens")),
        completion: count(usage.get("outputTokens")),
        cached: None,
        cost: price(usage.get("cost")),
        extra,
    }
}

fn completed(out: &mut Emitter<'_>) {
    let state = State::new("end")
        .with("outcome", "completed")
        .with("reason", "ok");
    out.state(state, &Stamp::default());
}
