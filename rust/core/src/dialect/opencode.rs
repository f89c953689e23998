//! OpenCode: `opencode run --format json` (recorded: 1.1.34, 1.2.27, 1.18.33; 2.0 by its source).
//!
//! One line for each finished part of a message, each part whole: there are no deltas, no record of the prompt and none
//! of the end. A fast tool may be printed before the text that came before it: part ids ascend in the order of the
//! model, so blocks and calls are put in that order. A second step_start of a message without a step_finish between is a
//! retry that takes back what the try before it said. A step that ends for any reason but "tool-calls" ends the turn,
//! until another step starts; after a refused call the stream ends at "tool-calls". An error may be followed by more (a
//! context overflow by a compaction). In 2.0 an error has a type and a message, a call has its own id where its part's
//! was, and what a tool says of itself stands one level deeper; a call that a person declines ends its step without a
//! finish, and the error of that may be printed before the call.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::{Dialect, Make, Mapper, Outcome, SURE, Sign, filled, is_true, members};
use crate::data::Data;
use crate::emit::{Call, Emitter, Update};
use crate::event::{Image, Item, Kind, Stamp, State, Tokens, iso_millis};
use crate::json::{Text, Value};
use crate::number::{Number, count, price, total};
use crate::record::Record;
use crate::run::{Ending, Exit, Reducer};
use crate::tool;

pub const DIALECT: Dialect = Dialect {
    name: "opencode",
    sign,
    mapper: Make::of::<Opencode>(),
    series: &[],
};

/// Record types and the type of the part that each holds.
const PARTS: &[(&str, &str)] = &[
    ("step_start", "step-start"),
    ("text", "text"),
    ("reasoning", "reasoning"),
    ("tool_use", "tool"),
    ("step_finish", "step-finish"),
];
/// How the error of a call begins that a person refused: the loop ends there (a deny rule lets it go on).
const REFUSALS: [&str; 4] = [
    "The user rejected permission",
    "The user dismissed this question",
    "PermissionRejectedError",
    "QuestionRejectedError",
];
/// The same in 2.0 (recorded by others: 2.0.5, 2.0.15), where they end the turn at once.
const DECLINES: [&str; 2] = [
    "The user declined this tool call",
    "The user dismissed this question",
];

/// How a turn ended whose last step finished for this reason.
fn outcome_of_finish(reason: Option<&str>) -> &'static str {
    match reason {
        Some("length") => "limit",
        Some("content-filter" | "error") => "failed",
        _ => "completed",
    }
}

/// How a turn ended with an error of that name.
fn outcome_of_error(name: Option<&str>) -> &'static str {
    match name {
        Some("ContextOverflowError" | "MessageOutputLengthError" | "provider.quota") => "limit",
        Some("MessageAbortedError" | "aborted") => "cancelled",
        _ => "failed",
    }
}

fn part_type(kind: &str) -> Option<&'static str> {
    let found = PARTS.iter().find(|(name, _)| *name == kind)?;
    Some(found.1)
}

fn sign(record: Value<'_>) -> Option<Sign> {
    let kind = record.text_of("type")?;
    if let Some(wanted) = part_type(&kind)
        && let Some(part) = record.get("part")
        && part.text_of("type").as_deref() == Some(wanted)
    {
        return Sign::new(SURE, format!("{} with a {wanted} part", &*kind));
    }
    if &*kind == "error"
        && let Some(error) = record.get("error").filter(Value::is_object)
        && record.text_of("sessionID").is_some()
    {
        if error.get("name").is_some() {
            return Sign::new(SURE, "an error with a name and sessionID");
        }
        if error_name(error).is_some() {
            return Sign::new(SURE, "an error with a type, a message and sessionID");
        }
    }
    None
}

#[derive(Default, Deserialize, Serialize)]
struct Opencode {
    seat: Seat,
    /// Part ids of calls.
    calls: HashSet<String>,
    /// Message of a context overflow that nothing followed yet.
    overflow: Option<String>,
    /// The error that cancelled the turn, if nothing followed it yet.
    cancelled: Option<String>,
}

impl Mapper for Opencode {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        let value = record.value();
        let kind = record.kind().unwrap_or_default();
        let mut stamp = Stamp {
            session_id: value.text_of("sessionID"),
            timestamp: iso_millis(value.get("timestamp")),
            ..Stamp::default()
        };
        let at = Stamp::at(stamp.timestamp.clone());
        out.session_state(&[("sessionId", stamp.session_id.clone())], &at);
        if &*kind == "error" {
            return self.error(value.get("error"), &stamp, out);
        }
        let inner = value.get("part").filter(Value::is_object);
        let id = inner.and_then(part_id);
        if &*kind == "tool_use" && self.is_again(inner, id.as_ref(), out) {
            return Outcome::Ignored("call again");
        }
        self.overflow = None;
        let (Some(part_kind), Some(inner)) = (part_type(&kind), inner) else {
            return Outcome::Unknown;
        };
        stamp.message_id = inner.text_of("messageID");
        if part_kind == "text" && is_true(inner.get("synthetic")) {
            return synthetic(inner, &stamp, out);
        }
        let outcome = part(part_kind, id, inner, &mut self.seat, &stamp, false, out);
        let cancelled = self.cancelled.take();
        if self.seat.declined && cancelled.is_some() {
            // the error came before the call that it is of
            let state = State::new("turn")
                .with("phase", "end")
                .with("outcome", "denied")
                .with("reason", cancelled);
            out.state(state, &stamp);
        }
        outcome
    }

    fn close(&mut self, out: &mut Emitter<'_>) {
        if let Some(message) = self.overflow.take() {
            out.error(message, &Stamp::default(), true); // no compaction came: it was the end
        }
    }

    fn judge(&self, _run: &Reducer, _exit: &Exit) -> Option<Ending> {
        self.seat.judge()
    }
}

impl Opencode {
    /// A call is printed again when its result is cleared from the context; in a resumed session, older ones too.
    fn is_again(
        &mut self,
        part: Option<Value<'_>>,
        id: Option<&Text<'_>>,
        out: &mut Emitter<'_>,
    ) -> bool {
        let cleared = part.and_then(|part| part.path(&["state", "time", "compacted"]));
        let known = id.is_some_and(|id| !self.calls.insert(out.keep(id.borrow())));
        known || cleared.is_some_and(|time| !time.is_null())
    }

    fn error(
        &mut self,
        value: Option<Value<'_>>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let Some(failure) = value.and_then(Failure::of) else {
            return Outcome::Unknown;
        };
        failure.tell(stamp, out);
        let outcome = self.seat.outcome_of(&failure);
        self.overflow = (outcome == "limit").then(|| failure.message.to_string());
        let name = failure.name.as_ref().filter(|_| outcome == "cancelled");
        self.cancelled = name.map(|name| name.to_string());
        self.seat.turning = false;
        self.seat.apart |= value.is_some_and(|value| value.get("name").is_none());
        out.state(failure.end_of_turn(outcome), stamp);
        Outcome::Mapped
    }
}

/// A text that the harness wrote for the model; the one after a compaction tells that there was one.
fn synthetic(inner: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
    if is_true(inner.path(&["metadata", "compaction_continue"])) {
        let state = State::new("compaction")
            .with("phase", "end")
            .with("success", true);
        out.state(state, stamp);
    }
    user_text(inner, stamp, out)
}

// -------------------------------------------------------------------- parts, as the stored session has them too

/// How far a session has come: the main one of a stream, or a sub-agent's in a store.
#[derive(Default, Deserialize, Serialize)]
pub(super) struct Seat {
    /// Id of the message whose step started last.
    message: Option<String>,
    /// That step has not finished.
    stepping: bool,
    /// A turn was opened and not ended.
    pub(super) turning: bool,
    /// A call of the last step was refused.
    refused: bool,
    /// The last step finished, to go on after its calls.
    stopped: bool,
    /// 2.0: output leaves out the reasoning, though no total says so.
    apart: bool,
    /// 2.0: a person declined a call of the last step, which ended the turn.
    pub(super) declined: bool,
    /// The last turn ended with a finish that is no failure.
    pub(super) well: bool,
    /// The last step has text.
    said: bool,
    /// The last step has a call.
    pub(super) called: bool,
}

impl Seat {
    /// The stream ended at a step that would go on: was it because a person refused a call?
    pub(super) fn judge(&self) -> Option<Ending> {
        let why = "the turn ended at a refused call";
        let reason = self.stopped.then_some("tool-calls");
        (self.declined || (self.stopped && self.refused))
            .then(|| Ending::new("denied", reason, why))
    }

    /// How a turn ends at that error: one that was aborted at a declined call is denied.
    pub(super) fn outcome_of(&self, failure: &Failure<'_>) -> &'static str {
        match failure.outcome() {
            "cancelled" if self.declined => "denied",
            outcome => outcome,
        }
    }

    /// A call ended with that error.
    pub(super) fn failed(&mut self, error: &str) {
        self.declined |= DECLINES.iter().any(|words| error.starts_with(words));
    }

    pub(super) fn step_start(&mut self, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        let message = stamp.message_id.as_ref().map(|id| id.to_string());
        if self.stepping && self.message == message {
            out.abandon(stamp.thread(), stamp);
            out.state(State::new("retry").with("phase", "start"), stamp);
        }
        out.commit(stamp.thread());
        out.next_turn();
        self.message = message;
        self.stepping = true;
        self.refused = false;
        self.stopped = false;
        self.declined = false;
        self.well = false;
        self.said = false;
        self.called = false;
        if !self.turning && stamp.thread().is_none() {
            self.turning = true;
            out.state(State::new("turn").with("phase", "start"), stamp);
        }
    }

    fn step_finish(
        &mut self,
        id: Option<Text<'_>>,
        value: Value<'_>,
        stamp: &Stamp<'_>,
        side: bool,
        out: &mut Emitter<'_>,
    ) {
        let reason = value.text_of("reason");
        let key = id.map(|id| format!("part:{}", &*id));
        let apart = self.apart.then_some(true);
        let tokens = usage_of(value.get("tokens"), value.get("cost"), apart);
        out.call_usage(&tokens, stamp, key.as_deref(), side);
        self.step_end(reason, stamp, out);
    }

    pub(super) fn step_end(
        &mut self,
        reason: Option<Text<'_>>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) {
        out.commit(stamp.thread());
        self.stepping = false;
        let broken = reason.as_deref() == Some("unknown"); // the provider's stream ended without a reason
        self.stopped = reason.as_deref() == Some("tool-calls") || broken && self.called;
        if !self.stopped && stamp.thread().is_none() {
            self.turning = false;
            let outcome = match broken && !self.said {
                true => "failed",
                false => outcome_of_finish(reason.as_deref()),
            };
            self.well = outcome == "completed";
            let state = State::new("turn")
                .with("phase", "end")
                .with("outcome", outcome)
                .with("reason", reason);
            out.state(state, stamp);
        }
    }
}

/// A part of an assistant's message.
pub(super) fn part(
    kind: &str,
    id: Option<Text<'_>>,
    value: Value<'_>,
    seat: &mut Seat,
    stamp: &Stamp<'_>,
    side: bool,
    out: &mut Emitter<'_>,
) -> Outcome {
    match kind {
        "step-start" => seat.step_start(stamp, out),
        "text" | "reasoning" => {
            let Some(text) = filled(value.text_of("text")) else {
                return Outcome::Ignored("empty text");
            };
            let kind = match kind {
                "text" => Kind::Message,
                _ => Kind::Thought,
            };
            seat.said |= kind == Kind::Message;
            out.whole_in_order(kind, text, id, stamp);
        }
        "tool" => return call(id, value, seat, stamp, out),
        "step-finish" => seat.step_finish(id, value, stamp, side, out),
        _ => return Outcome::Unknown,
    }
    Outcome::Mapped
}

/// The counters of a step: input leaves out what was read from and written to the cache.
///
/// Output leaves out the reasoning since some version after 1.2.27. Then the total adds up only with it; before, the
/// total adds up without it, or is not printed.
pub(super) fn usage_of<'a>(
    value: Option<Value<'a>>,
    cost: Option<Value<'a>>,
    reasoning_apart: Option<bool>,
) -> Tokens<'a> {
    let value = value.filter(Value::is_object);
    let of = |key: &str| value.and_then(|value| value.get(key));
    let cache = |key: &str| of("cache").and_then(|cache| cache.get(key));
    let prompt = total([of("input"), cache("read"), cache("write")]);
    let (completion, reasoning) = (count(of("output")), count(of("reasoning")));
    let reasoning_apart = reasoning_apart.unwrap_or_else(|| {
        let printed = count(of("total"));
        printed.is_some() && printed != plus(prompt, completion)
    });
    let others = value.into_iter().flat_map(members);
    let others = others.filter(|(key, _)| !key.eq("input") && !key.eq("output"));
    Tokens {
        prompt,
        completion: if reasoning_apart {
            plus(completion, reasoning)
        } else {
            completion
        },
        cached: count(cache("read")),
        cost: price(cost),
        extra: others
            .map(|(key, item)| (key.into(), item.into()))
            .collect(),
    }
}

/// The id of a part; in 2.0 that of a call's stands beside the call's own.
fn part_id(value: Value<'_>) -> Option<Text<'_>> {
    filled(value.text_of("partID")).or_else(|| value.text_of("id"))
}

pub(super) fn plus(one: Option<i64>, two: Option<i64>) -> Option<i64> {
    match (one, two) {
        (Some(one), Some(two)) => Some(one + two),
        _ => one.or(two),
    }
}

/// A tool part: on the stream a call that has ended, in a store also one that never did.
fn call(
    id: Option<Text<'_>>,
    value: Value<'_>,
    seat: &mut Seat,
    stamp: &Stamp<'_>,
    out: &mut Emitter<'_>,
) -> Outcome {
    let own = filled(value.text_of("partID")).and_then(|_| value.text_of("id")); // 2.0
    let second = own.is_some();
    seat.apart |= second;
    let call_id = filled(value.text_of("callID")).or_else(|| filled(own).or_else(|| id.clone()));
    let state = value.get("state").filter(Value::is_object);
    let (Some(call_id), Some(state)) = (call_id, state) else {
        return Outcome::Unknown;
    };
    seat.called = true;
    let status = state.text_of("status").unwrap_or_default();
    let (mut name, mut input) = (value.text_of("tool"), state.get("input"));
    // the tool that stands in for one that is not there, or whose arguments were no JSON: they are not printed
    let meant = input.and_then(|input| input.text_of("tool"));
    let invalid = name.as_deref() == Some("invalid") && meant.is_some();
    if invalid {
        (name, input) = (meant, None);
    }
    let time = state.get("time");
    let at = |key: &str| time.and_then(|time| time.get(key));
    let announced = Call {
        status: if &*status == "running" {
            "in_progress"
        } else {
            "pending"
        },
        order: id,
        started_at: iso_millis(at("start")),
        ..Call::new(call_id.borrow(), name.clone(), input)
    };
    out.call(announced, stamp);
    let metadata = state.get("metadata").filter(Value::is_object);
    let (text, ok) = match &*status {
        "error" => {
            let text = state.text_of("error");
            let begins = |text: &Text<'_>| REFUSALS.iter().any(|words| text.starts_with(words));
            seat.refused |= text.as_ref().is_some_and(begins);
            if let Some(text) = text.as_ref().filter(|_| second) {
                seat.failed(text);
            }
            (text, false)
        }
        "completed" => (state.text_of("output"), !invalid),
        _ => return Outcome::Mapped,
    };
    let deeper = metadata.and_then(|metadata| metadata.get("metadata"));
    let mut content: Vec<Item<'_>> = filled(text).map(Item::Text).into_iter().collect();
    content.extend(attachments(state.get("attachments")));
    let planning = name.as_deref() == Some("todowrite");
    let settled = Settled {
        call_id,
        ok,
        title: state.text_of("title"),
        content,
        facts: deeper.filter(Value::is_object).or(metadata),
        started: at("start"),
        ended: at("end"),
        raw_output: metadata,
        todos: input
            .filter(|_| planning)
            .and_then(|input| input.get("todos")),
    };
    settled.tell(stamp, out);
    Outcome::Mapped
}

/// A call that has ended.
pub(super) struct Settled<'a> {
    pub(super) call_id: Text<'a>,
    pub(super) ok: bool,
    pub(super) title: Option<Text<'a>>,
    pub(super) content: Vec<Item<'a>>,
    /// What the tool says of itself: a command that failed has completed.
    pub(super) facts: Option<Value<'a>>,
    pub(super) started: Option<Value<'a>>,
    pub(super) ended: Option<Value<'a>>,
    pub(super) raw_output: Option<Value<'a>>,
    pub(super) todos: Option<Value<'a>>,
}

impl Settled<'_> {
    pub(super) fn tell(self, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        let facts = self.facts;
        let exit = facts.and_then(|facts| facts.get("exit"));
        let ok = self.ok && (exit.is_none() || count(exit) == Some(0));
        let diff = facts.and_then(|facts| facts.text_of("diff"));
        let changes = diff.map(|diff| tool::hunks(&diff)).unwrap_or_default();
        let mut content = self.content;
        content.extend(changes.iter().map(tool::Hunk::item));
        let mut update = Update {
            title: self.title,
            content,
            locations: changes.iter().map(tool::Hunk::location).collect(),
            raw_output: self
                .raw_output
                .filter(|metadata| !metadata.is_empty())
                .map(Data::Wire),
            ..Update::new(self.call_id, Some(if ok { "completed" } else { "failed" }))
        };
        update.facts.exit_code = count(exit);
        update.facts.duration_ms = span(count(self.started), count(self.ended));
        update.facts.ended_at = iso_millis(self.ended);
        out.update(update, stamp);
        if ok && let Some(entries) = tool::plan_of(self.todos, "content", "status") {
            out.plan(&entries, stamp);
        }
    }
}

fn span(start: Option<i64>, end: Option<i64>) -> Option<Number> {
    let (start, end) = (start?, end?);
    (end >= start).then(|| Number::Int(end - start))
}

/// Tool content from the images among a result's files.
fn attachments(value: Option<Value<'_>>) -> impl Iterator<Item = Item<'_>> {
    let files = value.into_iter().flat_map(|files| files.items());
    let image = |file| image(file, "url");
    files.filter_map(image).map(Item::Image)
}

/// An image from a file part; None if it is no image.
pub(super) fn image<'a>(file: Value<'a>, place: &str) -> Option<Image<'a>> {
    let (mime, url) = (file.text_of("mime")?, file.text_of(place)?);
    if !mime.starts_with("image/") {
        return None;
    }
    let data = url
        .split_once(',')
        .filter(|(head, _)| head.starts_with("data:") && head.ends_with(";base64"));
    match data {
        Some((_, data)) => {
            let data = data.to_owned();
            Some(Image {
                data: url.rewrite(|_| data),
                mime,
                uri: None,
            })
        }
        None => Some(Image {
            data: "".into(),
            mime,
            uri: Some(url),
        }),
    }
}

pub(super) fn user_text(value: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
    let synthetic = is_true(value.get("synthetic"));
    said(value.text_of("text"), synthetic, stamp, out)
}

/// What a user says to the model, or the harness in a user's place.
pub(super) fn said(
    text: Option<Text<'_>>,
    synthetic: bool,
    stamp: &Stamp<'_>,
    out: &mut Emitter<'_>,
) -> Outcome {
    let Some(text) = filled(text) else {
        return Outcome::Ignored("empty text");
    };
    if synthetic {
        let stamp = Stamp {
            extra: vec![("synthetic".into(), true.into())],
            ..stamp.clone()
        };
        out.whole(Kind::User, text, &stamp);
    } else {
        out.whole(Kind::User, text, stamp);
    }
    Outcome::Mapped
}

/// An error record, or the error of a stored message.
#[derive(Deserialize, Serialize)]
pub(super) struct Failure<'a> {
    message: Text<'a>,
    name: Option<Text<'a>>,
    extra: Vec<(Text<'static>, Data<'a>)>,
}

impl<'a> Failure<'a> {
    /// None if it is none.
    pub(super) fn of(value: Value<'a>) -> Option<Failure<'a>> {
        let name = error_name(value);
        let mut extra: Vec<(Text<'static>, Data<'a>)> = Vec::new();
        if let Some(name) = &name {
            extra.push(("name".into(), name.clone().into()));
        }
        let data = value.get("data");
        for key in ["statusCode", "isRetryable", "ref"] {
            if let Some(item) = data.and_then(|data| data.get(key))
                && !item.is_null()
            {
                extra.push((key.into(), item.into()));
            }
        }
        let status = value.get("status").filter(|_| value.get("name").is_none());
        if let Some(status) = status.filter(|status| !status.is_null()) {
            extra.push(("statusCode".into(), status.into()));
        }
        Some(Failure {
            message: error_message(value)?,
            name,
            extra,
        })
    }

    pub(super) fn outcome(&self) -> &'static str {
        outcome_of_error(self.name.as_deref())
    }

    /// After a context overflow the work may go on.
    pub(super) fn tell(&self, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        let fatal = stamp.thread().is_none() && self.outcome() != "limit";
        let extra = self.extra.iter();
        let stamp = Stamp {
            extra: extra
                .map(|(key, item)| (key.borrow(), item.clone()))
                .collect(),
            ..stamp.clone()
        };
        out.error(self.message.borrow(), &stamp, fatal);
    }

    pub(super) fn end_of_turn(&self, outcome: &'static str) -> State<'_> {
        State::new("turn")
            .with("phase", "end")
            .with("outcome", outcome)
            .with("reason", self.name.as_ref().map(Text::borrow))
    }

    /// The same without a tie to its record.
    pub(super) fn into_static(self) -> Failure<'static> {
        let own = |(key, item): (_, Data<'_>)| (key, item.to_static());
        Failure {
            message: self.message.to_static(),
            name: self.name.as_ref().map(Text::to_static),
            extra: self.extra.into_iter().map(own).collect(),
        }
    }
}

/// What an error says, else its name; None if it is none.
pub(super) fn error_message(value: Value<'_>) -> Option<Text<'_>> {
    let name = error_name(value);
    if value.get("name").is_none() && name.is_some() {
        return filled(value.text_of("message")).or(name);
    }
    let message = value.get("data").and_then(|data| data.text_of("message"));
    filled(message).or(name)
}

/// Its name, or in 2.0 its type.
fn error_name(value: Value<'_>) -> Option<Text<'_>> {
    match value.get("name") {
        Some(name) => name.text(),
        None => value
            .text_of("type")
            .filter(|_| value.text_of("message").is_some()),
    }
}
