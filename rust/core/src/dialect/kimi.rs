//! Kimi's stream-json: `kimi --print --output-format stream-json` of kimi-cli (recorded: 1.51.0) and `kimi -p` of
//! kimi-code (recorded: 2.1.0).
//!
//! A chat transcript, one message a line, no deltas, no usage, no clock. kimi-code prints a version line first and a
//! resume hint last, kimi-cli neither; only kimi-cli says whether a tool failed: its result begins with `<system>ERROR`.
//! Ids come again in later messages. kimi-cli tells of a failure in plain text, cut to lines of 80 columns: `tail` reads
//! it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{Dialect, Make, Mapper, Outcome, SURE, Sign, filled, has_all, has_any, key_count};
use crate::data::Data;
use crate::emit::{Call, Emitter, NAMELESS, Update, scoped};
use crate::event::{Image, Item, Kind, Stamp, State, text_content};
use crate::json::{Tape, Text, Value};
use crate::number::{count, price};
use crate::record::Record;
use crate::run::{Ending, Exit, LastWord, Reducer};
use crate::tool;

pub const DIALECT: Dialect = Dialect {
    name: "kimi",
    sign,
    mapper: Make::of::<Kimi>(),
    series: &[],
};

/// How a kimi-cli failure begins, and what it was; the last two are what kimi-code prints on stderr.
const ENDINGS: &[(&str, &str)] = &[
    ("Interrupted by user", "cancelled"),
    ("Max number of steps reached: ", "limit"),
    ("Max steps reached: ", "limit"),
    ("Error code: ", "failed"),
    ("LLM provider error: ", "failed"),
    ("The API returned ", "failed"),
    ("Unknown error: ", "failed"),
    ("LLM not set", "failed"),
    ("LLM model '", "failed"),
    (
        "error: failed to run prompt: loop.max_steps_exceeded",
        "limit",
    ),
    ("error: failed to run prompt: ", "failed"),
];
/// stderr's last line, which may be on the same pipe.
const RESUME_HINT: &str = "To resume this session: ";
const TODO_TOOLS: [&str; 2] = ["SetTodoList", "TodoList"];
/// How a failed result begins; the last two up to 0.70, which says nothing else of a failed command.
const FAILED: [&str; 3] = [
    "<system>ERROR",
    "<system>Command failed with exit code: ",
    "<system>Command killed by timeout (",
];

const NOTICE: &[&str] = &[
    "id",
    "category",
    "type",
    "source_kind",
    "source_id",
    "title",
];
const FOREIGN: &[&str] = &[
    "type",
    "id",
    "model",
    "session_id",
    "sessionId",
    "sessionID",
    "uuid",
    "timestamp",
    "usage",
    "refusal",
];

fn sign(record: Value<'_>) -> Option<Sign> {
    let (role, kind) = (record.text_of("role"), record.text_of("type"));
    if let (Some("meta"), Some(kind)) = (role.as_deref(), &kind) {
        let version = match &**kind {
            "system.version" => record.text_of("version").map(Text::into_string),
            _ => None,
        };
        return Sign::of_version(SURE, format!("a meta record {}", &**kind), version);
    }
    if kind.as_deref() == Some("goal.summary") && has_all(record, &["goalId"]) {
        return Sign::new(SURE, "a goal summary");
    }
    if has_all(record, NOTICE) {
        return Sign::new(SURE, "a notice with source_kind and source_id");
    }
    if has_all(record, &["content", "file_path"]) && key_count(record) == 2 {
        return Sign::new(40, "a plan with its file");
    }
    if !is_message(record) {
        return None;
    }
    match role.as_deref().unwrap_or_default() {
        "assistant" => Sign::new(SURE, "an assistant message without type, id and model"),
        "tool" if lead(record.get("content")).starts_with("<system>") => {
            Sign::new(SURE, "a tool message in <system>")
        }
        "tool" => Sign::new(60, "a tool message"),
        // a chat transcript of something else
        role => Sign::new(-SURE, format!("a {role} message, which kimi never prints")),
    }
}

pub fn text_sign(line: &str) -> Option<String> {
    let (head, _) = ENDINGS.iter().find(|(head, _)| line.starts_with(head))?;
    let head = head.trim();
    Some(format!(
        "the text \"{head}\", as kimi prints it where it fails"
    ))
}

/// Whether a record has the shape of a chat message.
pub(super) fn is_message(record: Value<'_>) -> bool {
    if has_any(record, FOREIGN) {
        return false;
    }
    match record.text_of("role").as_deref() {
        Some("assistant") => has_any(record, &["content", "tool_calls"]),
        Some("tool") => has_all(record, &["content", "tool_call_id"]),
        Some("user" | "system" | "developer") => has_all(record, &["content"]),
        _ => false,
    }
}

#[derive(Default, Deserialize, Serialize)]
struct Kimi {
    /// It is kimi-code.
    code: bool,
    /// Outcome and reason of a /goal prompt.
    goal: Option<(Cow<'static, str>, Option<String>)>,
    /// The stream ends in a text that is no known failure.
    plain: bool,
    /// A run printed more than the version, its first record.
    begun: bool,
}

impl Mapper for Kimi {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        let value = record.value();
        let (role, kind) = (value.text_of("role"), record.kind());
        let stamp = Stamp::default();
        self.code |= is_of_code(role.as_deref(), kind.as_deref(), value);
        self.begun |= kind.as_deref() != Some("system.version");
        match role.as_deref() {
            Some("assistant") if self.code && is_hook_result(value) => {
                return Outcome::Ignored("hook result");
            }
            Some("assistant") => {
                assistant(value, &stamp, out);
                return Outcome::Mapped;
            }
            Some("tool") => return tool_message(value, &stamp, !self.code, out),
            Some("user") => return user_message(value, &stamp, out),
            Some("meta") => return self.meta(kind.as_deref(), value, out),
            _ => {}
        }
        if kind.as_deref() == Some("goal.summary") {
            return self.goal(value, out);
        }
        if has_all(value, &["source_kind", "category"]) {
            return Outcome::Ignored("notice");
        }
        let null = |key| value.get(key).is_none_or(|value| value.is_null());
        if null("role") && null("type") && has_all(value, &["file_path"]) {
            return Outcome::Ignored("plan display");
        }
        match role.as_deref() {
            Some("system" | "developer") => Outcome::Ignored("system message"),
            _ => Outcome::Unknown,
        }
    }

    fn tail(&mut self, lines: &[&str], out: &mut Emitter<'_>) {
        self.plain = ending(lines, self.code, out);
    }

    fn judge(&self, run: &Reducer, exit: &Exit) -> Option<Ending> {
        if self.code && exit.code.is_none() {
            let why = "the stream ended without session.resume_hint";
            return Some(Ending::new("incomplete", None, why));
        }
        judge(run, exit, self.plain)
    }
}

/// Whether only kimi-code prints such a record: kimi-cli's messages always have their content.
fn is_of_code(role: Option<&str>, kind: Option<&str>, value: Value<'_>) -> bool {
    match role {
        Some("meta") => true,
        Some("assistant") => value.get("content").is_none(),
        Some(_) => false,
        None => kind == Some("goal.summary"),
    }
}

/// Whether this is what kimi-code prints of a hook in the assistant's name: "<event> hook[ blocked]", a blank line, text.
fn is_hook_result(message: Value<'_>) -> bool {
    let content = message.text_of("content");
    let head = content.as_deref().and_then(|text| text.split_once("\n\n"));
    let head = head.map(|(head, _)| head.strip_suffix(" blocked").unwrap_or(head));
    let event = head.and_then(|head| head.strip_suffix(" hook"));
    event.is_some_and(|event| !event.is_empty() && event.bytes().all(|b| b.is_ascii_alphabetic()))
}

impl Kimi {
    // ---------------------------------------------------------------- kimi-code's own records

    fn meta(&mut self, kind: Option<&str>, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let stamp = Stamp::default();
        match kind {
            Some("system.version") => {
                if std::mem::take(&mut self.begun) {
                    self.goal = None; // another run in the same source
                    out.state(State::new("turn").with("phase", "start"), &stamp);
                }
                out.session_state(&[("version", value.text_of("version"))], &stamp);
            }
            Some("turn.step.retrying") => {
                let stamp = Stamp {
                    extra: extra_of(value, &["error_name", "status_code"]),
                    ..stamp
                };
                let state = State::new("retry")
                    .with("phase", "start")
                    .with("attempt", count(value.get("failed_attempt")))
                    .with("maxAttempts", count(value.get("max_attempts")))
                    .with("delayMs", price(value.get("delay_ms")))
                    .with("message", value.text_of("error_message"));
                out.state(state, &stamp);
            }
            Some("session.resume_hint") => {
                out.session_state(&[("sessionId", value.text_of("session_id"))], &stamp);
                let state = match &self.goal {
                    Some((outcome, reason)) => State::new("end")
                        .with("outcome", &**outcome)
                        .with("reason", reason.as_deref()),
                    None => State::new("end")
                        .with("outcome", "completed")
                        .with("reason", "session.resume_hint"),
                };
                out.state(state, &stamp);
            }
            _ => return Outcome::Unknown,
        }
        Outcome::Mapped
    }

    /// The end of a `/goal` prompt. A goal that is blocked or paused waits for a person.
    fn goal(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let (status, reason) = (value.text_of("status"), value.text_of("reason"));
        let outcome = match (status.as_deref(), reason.as_deref()) {
            (Some("complete"), _) => "completed",
            (Some("blocked"), Some(reason))
                if reason.contains("token budget ") || reason.contains("turn budget ") =>
            {
                "limit"
            }
            (Some("blocked"), Some(reason)) if reason.contains("wall-clock budget ") => "timeout",
            _ => "incomplete",
        };
        let reason = filled(reason).or(status).map(|reason| out.keep(reason));
        let state = State::new("end")
            .with("outcome", outcome)
            .with("reason", reason.as_deref());
        out.state(state, &Stamp::default());
        self.goal = Some((outcome.into(), reason));
        Outcome::Mapped
    }
}

// -------------------------------------------------------------------- messages, shared with kimi-context and kimi-wire

/// A whole assistant message: its texts and thoughts, then its calls.
pub(super) fn assistant(message: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
    out.commit(stamp.thread());
    out.next_turn();
    say(message.get("content"), stamp, Kind::Message, out);
    for block in items(message.get("tool_calls")).filter(Value::is_object) {
        let function = block.get("function").filter(Value::is_object);
        let of = |key| function.and_then(|function| function.get(key));
        let name = of("name").and_then(|name| name.text());
        let arguments = Arguments::of(of("arguments"));
        let id = filled(block.text_of("id")).unwrap_or_else(|| out.nameless().into());
        call(Some(id), name, arguments, true, stamp, out);
    }
}

/// The parts of a message; a string is one text part.
pub(super) fn say(
    content: Option<Value<'_>>,
    stamp: &Stamp<'_>,
    kind: Kind,
    out: &mut Emitter<'_>,
) {
    if let Some(text) = content.and_then(|content| content.text()) {
        out.whole(kind, text, stamp);
    }
    for part in items(content) {
        say_part(part, stamp, kind, out);
    }
}

pub(super) fn say_part(part: Value<'_>, stamp: &Stamp<'_>, kind: Kind, out: &mut Emitter<'_>) {
    match part.text_of("type").as_deref() {
        Some("text") => out.whole(kind, part.text_of("text").unwrap_or_default(), stamp),
        Some("think") => {
            let text = part.text_of("think").unwrap_or_default();
            out.whole(Kind::Thought, text, stamp);
        }
        _ => {
            if let Some(image) = image_of(part) {
                out.image(kind, &image, stamp);
            }
        }
    }
}

/// A prompt. What the harness puts into its own context as a user's words is left out.
pub(super) fn user_message(
    message: Value<'_>,
    stamp: &Stamp<'_>,
    out: &mut Emitter<'_>,
) -> Outcome {
    let content = message.get("content");
    if is_injected(content) {
        return Outcome::Ignored("injected message");
    }
    out.commit(None);
    say(content, stamp, Kind::User, out);
    Outcome::Mapped
}

pub(super) fn is_injected(content: Option<Value<'_>>) -> bool {
    let lead = lead(content);
    ["<system-reminder>", "<system>", "<notification "]
        .iter()
        .any(|head| lead.starts_with(head))
}

/// The arguments of a call: an object, or JSON text that should be one.
pub(super) enum Arguments<'a> {
    Object(Value<'a>),
    Text(Text<'a>),
}

impl<'a> Arguments<'a> {
    pub(super) fn of(value: Option<Value<'a>>) -> Option<Self> {
        let value = value?;
        match value.is_object() {
            true => Some(Arguments::Object(value)),
            false => value.text().map(Arguments::Text),
        }
    }
}

/// A tool call in OpenAI's form. Arguments that are no JSON object stay as printed in `extra`.
pub(super) fn call(
    id: Option<Text<'_>>,
    name: Option<Text<'_>>,
    arguments: Option<Arguments<'_>>,
    twin: bool,
    stamp: &Stamp<'_>,
    out: &mut Emitter<'_>,
) {
    let Some(id) = id.map(|id| out.keep(id)) else {
        return;
    };
    let mut tape = Tape::new();
    let text;
    let mut odd = None;
    let input = match arguments {
        Some(Arguments::Object(value)) => Some(value),
        Some(Arguments::Text(given)) => {
            text = out.keep(given);
            let input = object(&mut tape, &text, out);
            odd = input.is_none().then_some(text.as_str());
            input
        }
        None => None,
    };
    let odd = odd.filter(|text| !text.is_empty()).map(|text| Stamp {
        timestamp: stamp.timestamp.clone(),
        message_id: stamp.message_id.clone(),
        model: stamp.model.clone(),
        parent: stamp.parent.clone(),
        extra: vec![("arguments".into(), text.into())],
        ..Stamp::default()
    });
    let stamp = odd.as_ref().unwrap_or(stamp);
    let todos = name.as_deref().is_some_and(|n| TODO_TOOLS.contains(&n));
    let call = Call {
        key: Some(scoped(&id, stamp)),
        twin,
        ..Call::new(id, name, input)
    };
    out.call(call, stamp);
    if let (true, Some(input)) = (todos, input)
        && let Some(entries) = tool::plan_of(input.get("todos"), "title", "status")
    {
        out.plan(&entries, stamp); // without todos the call only reads the plan
    }
}

/// The object in an argument string; None if it is broken, holds NaN, or is something else.
pub(super) fn object<'t>(
    tape: &'t mut Tape,
    text: &'t str,
    out: &mut Emitter<'_>,
) -> Option<Value<'t>> {
    let doc = tape.parse(text.as_bytes()).ok()?;
    let value = doc.root();
    if !value.is_object() {
        return None;
    }
    out.note(doc.has_lone_surrogate());
    Some(value)
}

/// A tool's result: one without an id is that of the first open call that has none. `flagged`: this program marks
/// failures.
pub(super) fn tool_message(
    message: Value<'_>,
    stamp: &Stamp<'_>,
    flagged: bool,
    out: &mut Emitter<'_>,
) -> Outcome {
    let id = filled(message.text_of("tool_call_id")).or_else(|| {
        let mut open = out.open_calls(stamp.thread()).into_iter();
        open.find(|key| key.starts_with(NAMELESS)).map(Text::from)
    });
    let Some(id) = id else {
        return Outcome::Ignored("result without an id");
    };
    let content = message.get("content");
    let lead = lead(content);
    let status = match FAILED.iter().any(|begin| lead.starts_with(begin)) {
        _ if !flagged => None,
        true => Some("failed"),
        false => Some("completed"),
    };
    let update = Update {
        done: Some(true),
        content: content_of(content),
        ..Update::new(id, status)
    };
    shown(out.update(update, stamp))
}

pub(super) fn shown(shown: bool) -> Outcome {
    match shown {
        true => Outcome::Mapped,
        false => Outcome::Ignored("second result of a call"),
    }
}

/// Tool content from a string or from parts.
pub(super) fn content_of(content: Option<Value<'_>>) -> Vec<Item<'_>> {
    if let Some(text) = content.and_then(|content| content.text()) {
        return text_content(filled(Some(text)));
    }
    let part = content.filter(Value::is_object);
    part.into_iter()
        .chain(items(content))
        .filter_map(item_of)
        .collect()
}

fn item_of(part: Value<'_>) -> Option<Item<'_>> {
    match part.text_of("type").as_deref() {
        Some("text") => part.text_of("text").map(Item::Text),
        _ => image_of(part).map(Item::Image),
    }
}

/// The text parts of a message; a string is one.
pub(super) fn texts_of(content: Option<Value<'_>>) -> Vec<Text<'_>> {
    if let Some(text) = content.and_then(|content| content.text()) {
        return vec![text];
    }
    let texts = items(content).filter(|part| part.text_of("type").as_deref() == Some("text"));
    texts.filter_map(|part| part.text_of("text")).collect()
}

/// The image block of an `image_url` part: a data URL holds the image, any other names it.
fn image_of(part: Value<'_>) -> Option<Image<'_>> {
    let holder = part.get("image_url").or_else(|| part.get("imageUrl"))?;
    let url = holder.text_of("url")?;
    if part.text_of("type").as_deref() != Some("image_url") {
        return None;
    }
    let Some(rest) = url.strip_prefix("data:") else {
        return Some(Image {
            data: "".into(),
            mime: "".into(),
            uri: Some(url),
        });
    };
    let (mime, data) = rest.split_once(";base64,")?;
    Some(Image {
        data: url.rewrite(|_| data.to_owned()),
        mime: url.rewrite(|_| mime.to_owned()),
        uri: None,
    })
}

// -------------------------------------------------------------------- the end

/// The text after the last record: why it failed, if it is not the rest of a cut record. True: it is, but not in words
/// that tell how the run ended.
pub(super) fn ending(lines: &[&str], known_only: bool, out: &mut Emitter<'_>) -> bool {
    let lines: Vec<&str> = lines
        .iter()
        .filter(|line| !line.starts_with(RESUME_HINT))
        .copied()
        .collect();
    if lines.first().is_none_or(|first| first.starts_with('{')) {
        return false;
    }
    let known = lines.iter().find_map(|line| {
        let (_, outcome) = ENDINGS.iter().find(|(head, _)| line.starts_with(head))?;
        Some((*line, *outcome))
    });
    if known.is_none() && known_only {
        return false;
    }
    let stamp = Stamp::default();
    out.error(lines.join("\n"), &stamp, true);
    if let Some((reason, outcome)) = known {
        let state = State::new("end")
            .with("outcome", outcome)
            .with("reason", reason);
        out.state(state, &stamp);
    }
    known.is_none()
}

/// No record says how it ended: ask the exit code, then what came last.
pub(super) fn judge(run: &Reducer, exit: &Exit, plain: bool) -> Option<Ending> {
    if let Some(failed) = exit_failed(exit) {
        return Some(failed);
    }
    let answered = run.progress.last_word == LastWord::Answer;
    if plain && !(answered && exit.code == Some(0)) {
        let why = "the stream ended in a text that is no record";
        return Some(Ending::new("failed", None, why));
    }
    let why = "the last message asks for no tool";
    answered.then(|| Ending::new("completed", None, why))
}

/// What the exit code says, if it tells of a failure.
pub(super) fn exit_failed(exit: &Exit) -> Option<Ending> {
    let code = exit.code.filter(|code| *code != 0)?;
    let why = "no terminal record, and the exit code tells of a failure";
    Some(Ending::new(
        "failed",
        Some(&format!("exit code {code}")),
        why,
    ))
}

// -------------------------------------------------------------------- values

pub(super) fn extra_of<'a>(value: Value<'a>, keys: &[&'static str]) -> Vec<(Text<'a>, Data<'a>)> {
    let known = keys.iter().filter_map(|key| {
        let item = value.get(key).filter(|item| !item.is_null())?;
        Some(((*key).into(), item.into()))
    });
    known.collect()
}

/// The first text of a message.
pub(super) fn lead(content: Option<Value<'_>>) -> Text<'_> {
    if let Some(text) = content.and_then(|content| content.text()) {
        return text;
    }
    let is_text = |part: &Value<'_>| part.text_of("type").as_deref() == Some("text");
    let mut texts = items(content)
        .filter(is_text)
        .filter_map(|part| part.text_of("text"));
    texts.next().unwrap_or_default()
}

pub(super) fn items(value: Option<Value<'_>>) -> impl Iterator<Item = Value<'_>> {
    value.into_iter().flat_map(|value| value.items())
}
