//! minicode: `minicode exec --json` (`minicode.output.v1`, seed 004) and the notifications of `minicode acp`.
//!
//! Three kinds of line: envelopes with dotted types and a payload, bare text deltas, and one summary at the end. The same
//! text comes up to three times (`model.delta`, `text`, `model.completed`): the delta channel that is seen first is
//! used, the other repeats it. Tool arguments and whole outputs are never printed: a call has a target and the first
//! line of its result.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{Dialect, Make, Mapper, Outcome, SURE, Sign, filled, is_true, key_count, rule};
use crate::data::Data;
use crate::emit::{Call, Emitter, Update};
use crate::event::{Kind, Location, Stamp, State, Tokens, text_content};
use crate::json::{Series, Str, Text, Value};
use crate::number::{count, price};
use crate::record::Record;
use crate::tool;

pub const DIALECT: Dialect = Dialect {
    name: "minicode",
    sign,
    mapper: Make::of::<Minicode>(),
    series: SERIES,
};

/// Thoughts; of the answer's deltas each one counts by itself.
const SERIES: &[Series] = &[Series {
    is: &[(&["type"], &["reasoning.delta"])],
    text: &["payload", "delta"],
    same: &[&["sessionId"], &["payload", "parentToolCallId"]],
    ..Series::NO_FACTS
}];

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
/// Beginnings of the dotted types.
const HEADS: [&str; 13] = [
    "turn.",
    "tool.",
    "approval.",
    "user.",
    "file.",
    "test.",
    "checkpoint.",
    "plan.",
    "finding.",
    "result.",
    "diagnostic.",
    "context.",
    "verification.",
];
const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];
/// What the message of a terminal error says of a cap: category (None: any), words, outcome.
const WORDS: &[(Option<&str>, &[&str], &str)] = &[
    (None, &["over budget"], "limit"),
    (
        Some("AGENT_ERROR"),
        &["max steps", "maximum steps", "step limit"],
        "limit",
    ),
    (
        Some("AGENT_ERROR"),
        &["exceeded timeout", "timed out"],
        "timeout",
    ),
    (Some("USER_ERROR"), &["abort", "cancel"], "cancelled"),
];

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
        && HEADS.iter().any(|head| kind.starts_with(head))
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
    /// The last delta of a child, which a bare text may repeat.
    twin: Option<String>,
    /// The last block of text of the main agent in this turn, and in the turns before it.
    block: String,
    earlier: String,
    /// The main agent's last block is a thought.
    thinks: bool,
    /// Call id: name, from approvals and starts.
    names: HashMap<String, String>,
    /// Calls that ended in this turn: whether well, if they had not begun.
    over: HashMap<String, Option<bool>>,
    /// A call was refused, and nothing was said or begun since.
    refused: bool,
    /// A turn is open.
    open: bool,
    /// How the last turn ended.
    ended: Option<Cow<'static, str>>,
    /// Why it failed, until that is told.
    cause: Option<String>,
    /// The run had its terminal record.
    answered: bool,
    /// Message and category of an error response in an open turn.
    refusal: Option<(Option<String>, Option<String>)>,
    legacy_calls: u32,
}

impl Mapper for Minicode {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        let value = record.value();
        let kind = record.kind();
        if kind.as_deref().is_some_and(|kind| kind != "turn.started") {
            self.refusal = None; // the run goes on: it was the answer to another request
        }
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
                if stamp.parent.is_none() && !self.thinks {
                    out.close(None);
                    self.thinks = true;
                }
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

    fn close(&mut self, out: &mut Emitter<'_>) {
        if let Some((message, category)) = self.refusal.take() {
            // nothing followed: it was the answer to `run`
            self.failed(message.map(Text::from), category.map(Text::from), out);
        }
        self.tell_cause(out);
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
        if stamp.parent.is_some() {
            self.twin = Some(text.lossy().into_owned());
            out.delta(Kind::Message, "answer", text, stamp);
            return Outcome::Mapped;
        }
        let twin = self.twin.take();
        if channel == Channel::Text && twin.is_some_and(|twin| twin == text.lossy())
            || *self.channel.get_or_insert(channel) != channel
        {
            return Outcome::Ignored("the other delta channel");
        }
        self.answer(out);
        self.block.push_str(&text.lossy());
        out.delta(Kind::Message, "answer", text, stamp);
        Outcome::Mapped
    }

    /// The main agent says something.
    fn answer(&mut self, out: &mut Emitter<'_>) {
        self.refused = false;
        if std::mem::take(&mut self.thinks) {
            out.close(None);
        }
        if out.streamed(Kind::Message, "answer", None).is_none() {
            self.block.clear();
        }
    }

    /// The final text of the turn: only what no delta said is news.
    fn completed(
        &mut self,
        payload: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let main = stamp.parent.is_none();
        let cut = is_true(payload.get("truncated"));
        let streamed = out
            .streamed(Kind::Message, "answer", stamp.thread())
            .is_some();
        let text = filled(payload.text_of("text"));
        match text.filter(|text| !streamed && (!main || !self.is_said(text, cut))) {
            Some(text) => {
                if main {
                    self.answer(out);
                    self.block = text.to_string();
                }
                out.final_text(Kind::Message, "answer", text, stamp);
                Outcome::Mapped
            }
            None => Outcome::Ignored("final text of the turn"),
        }
    }

    fn is_said(&self, text: &str, cut: bool) -> bool {
        let (block, text) = (self.block.trim_matches(BLANKS), text.trim_matches(BLANKS));
        !block.is_empty() && (cut || text.ends_with(block) || block.ends_with(text))
    }

    // ---------------------------------------------------------------- turns and the end

    fn turn(
        &mut self,
        what: &str,
        payload: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        if !matches!(what, "started" | "completed" | "failed" | "cancelled") {
            return Outcome::Unknown;
        }
        let refusal = self.refusal.take();
        let reason = payload.text_of("reason");
        // reasons that only a child's turn has
        let orphaned = matches!(reason.as_deref(), Some("parent-ended" | "parent-aborted"));
        if stamp.parent.is_some() || (what == "cancelled" && orphaned) {
            return Outcome::Ignored("turn of a child");
        }
        if what == "started" {
            if let Some((message, category)) = refusal {
                // a turn begins in an open one: that was of a run that is over
                self.failed(message.map(Text::from), category.map(Text::from), out);
            }
            self.tell_cause(out);
            out.commit(None);
            out.next_turn();
            // the turn may be that of another run, which prints on the other channel
            (self.channel, self.twin) = (None, None);
            if !self.block.is_empty() {
                self.earlier = std::mem::take(&mut self.block);
            }
            self.over.clear();
            (self.thinks, self.refused) = (false, false);
            (self.open, self.answered, self.ended) = (true, false, None);
            out.state(State::new("turn").with("phase", "start"), stamp);
            return Outcome::Mapped;
        }
        if self.ended.is_some() {
            return Outcome::Ignored("second end of a turn"); // the first stands
        }
        let reason = if what == "cancelled" {
            reason
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
        let error = payload.text_of("error").filter(|_| what == "failed");
        self.cause = error.map(Text::into_string);
        self.open = false;
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

    /// A turn failed, and the terminal record that would say why did not come or says that the run went well.
    fn tell_cause(&mut self, out: &mut Emitter<'_>) {
        if let Some(cause) = self.cause.take().filter(|cause| !cause.is_empty()) {
            out.error(cause, &Stamp::default(), true);
        }
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
        if is_true(value.get("ok")) {
            self.succeeded(out);
        } else {
            let (message, category) = error_of(value.get("error"));
            self.failed(message, category, out);
        }
        Outcome::Mapped
    }

    fn succeeded(&mut self, out: &mut Emitter<'_>) {
        self.tell_cause(out);
        let outcome = if self.refused { "denied" } else { "completed" };
        let state = State::new("end")
            .with("outcome", outcome)
            .with("reason", "ok");
        out.state(state, &Stamp::default());
        self.end_run(out);
    }

    /// The terminal error of a run; the last turn's end says if it was a cancel, a time limit or a budget.
    fn failed(
        &mut self,
        message: Option<Text<'_>>,
        category: Option<Text<'_>>,
        out: &mut Emitter<'_>,
    ) {
        let kind = category.as_deref();
        let outcome = match self.ended.as_deref() {
            Some("cancelled") => "cancelled",
            Some("timeout") => "timeout",
            Some("limit") => "limit",
            _ if self.refused && kind == Some("PERMISSION_ERROR") => "denied",
            _ => {
                let words = message.as_deref().unwrap_or_default().to_lowercase();
                let told = WORDS.iter().find(|(of, marks, _)| {
                    (of.is_none() || *of == kind) && marks.iter().any(|mark| words.contains(mark))
                });
                told.map_or("failed", |(_, _, outcome)| outcome)
            }
        };
        if let Some(message) = message {
            out.error(message, &Stamp::default(), true);
            self.cause = None;
        }
        self.tell_cause(out);
        let state = State::new("end")
            .with("outcome", outcome)
            .with("reason", category);
        out.state(state, &Stamp::default());
        self.end_run(out);
    }

    /// What comes next is another run.
    fn end_run(&mut self, out: &mut Emitter<'_>) {
        out.close(None);
        (self.channel, self.twin) = (None, None);
        (self.ended, self.refusal) = (None, None);
        self.block.clear();
        self.earlier.clear();
        (self.thinks, self.refused) = (false, false);
        (self.open, self.answered) = (false, true);
    }

    /// A response of the acp server: the one to `run` is the run's terminal record.
    fn response(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        if let Some(error) = value.get("error").filter(Value::is_object) {
            return self.refuse(error, out);
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
        if let Some(text) = filled(result.text_of("text"))
            && self.block.is_empty()
            && !repeats(&text, &self.earlier)
        {
            // only the response carries the answer: it joins all texts of the run, and none was printed
            out.whole(Kind::Message, text, &Stamp::default());
        }
        if ok {
            self.succeeded(out);
        } else {
            let (message, category) = error_of(result.get("error"));
            self.failed(message, category, out);
        }
        Outcome::Mapped
    }

    /// An error response: to `run`, or to another request, which may come while a run goes on or after it.
    fn refuse(&mut self, error: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let (message, category) = error_of(Some(error));
        if self.open {
            let message = message.map(|text| out.clean(text).into_owned());
            let category = category.map(|text| out.clean(text).into_owned());
            self.refusal = Some((message, category));
        } else if self.answered && category.is_none() {
            return Outcome::Ignored("error response");
        } else {
            self.failed(message, category, out);
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
            self.names.insert(id.to_string(), out.keep(name));
        }
        if kind == "tool.started" {
            self.started(id, payload, stamp, out);
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
        if self.over.contains_key(&*id) {
            return Outcome::Ignored("second end of a call");
        }
        let mut begun = out.is_open(&id);
        if !begun {
            self.start(&id, payload, stamp, out); // a gate refusal has no tool.started
        }
        if kind == "tool.denied" {
            self.refused |= stamp.parent.is_none();
            begun = true; // and none will come
        }
        let well = *status == "completed";
        self.over
            .insert(id.to_string(), Some(well).filter(|_| !begun));
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
        out.update(update, stamp);
        Outcome::Mapped
    }

    fn started(
        &mut self,
        id: Text<'_>,
        payload: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) {
        if let Some(Some(well)) = self.over.get(&*id) {
            // its end came first, and made the call
            let name = self.names.get(&*id).map(String::as_str);
            let status = if *well { "completed" } else { "failed" };
            let mut update = Update {
                title: title(name, payload),
                again: true,
                ..Update::new(id, Some(status))
            };
            update.facts.name = name.map(Text::from);
            out.update(update, stamp);
            return;
        }
        self.over.remove(&*id);
        if stamp.parent.is_none() {
            self.refused = false;
        }
        self.start(&id, payload, stamp, out);
    }

    fn start(
        &mut self,
        id: &Text<'_>,
        payload: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) {
        out.close(stamp.thread());
        if stamp.parent.is_none() {
            self.thinks = false;
        }
        let name = self.names.get(&**id).map(String::as_str);
        let target = payload.text_of("target");
        let command = target
            .as_ref()
            .is_some_and(|target| target.starts_with("$ "));
        let kind = tool::kind(DIALECT.name, name);
        let is_file = matches!(kind, "read" | "edit" | "delete" | "move") && !command;
        let path = filled(target.as_ref().map(Text::borrow)).filter(|_| is_file);
        let call = Call {
            status: "in_progress",
            title: title(name, payload),
            locations: path.map(|path| vec![Location { path, line: None }]),
            ..Call::new(id.borrow(), name.map(Text::from), Data::Null)
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
        if let (Some(id), Some(name)) = (&id, &name)
            && !out.is_open(id)
        {
            out.note(name.is_lossy());
            self.names.insert(id.to_string(), name.to_string());
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

/// Whether a text ends in a block that was printed.
fn repeats(text: &str, block: &str) -> bool {
    let block = block.trim_matches(BLANKS);
    !block.is_empty() && text.trim_matches(BLANKS).ends_with(block)
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

/// A command as it is, else the name and what it is about.
fn title<'a>(name: Option<&str>, payload: Value<'a>) -> Option<Text<'a>> {
    let title = |target: &str| match target.strip_prefix("$ ") {
        Some(command) => format!("`{command}`"),
        None => format!(
            "{} {target}",
            name.filter(|name| !name.is_empty()).unwrap_or("tool")
        ),
    };
    Some(payload.text_of("target")?.rewrite(title))
}

/// Message and category.
fn error_of(error: Option<Value<'_>>) -> (Option<Text<'_>>, Option<Text<'_>>) {
    let text = |key| error.and_then(|error| error.text_of(key));
    (text("message"), text("category"))
}
