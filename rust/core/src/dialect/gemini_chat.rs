//! Gemini CLI's session file: an upsert log in JSON lines (0.61.0); it was one pretty JSON document (0.12.0, 0.33.0).
//!
//! A message is written again under its id whenever its tokens or calls change: the last one stands, its tokens count
//! once. `$set.messages` puts a whole history in place of what came before (at the start, at a resume, after a failure
//! or a compression), `$rewindTo` takes back a message and all after it; calls and tokens of what was taken back stay,
//! for they happened. Results stand in `toolCalls` and again in user messages. Failed and cancelled attempts leave no
//! record, and nothing says that a run is over: an answer as the last message is all there is. Sub-agents have files of
//! their own.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::gemini::plan;
use super::{Dialect, Make, Mapper, Outcome, SURE, Sign, filled, has_all};
use crate::data::map;
use crate::emit::{Call, Emitter, Update};
use crate::event::{Image, Item, Kind, Stamp, State, Tokens, text_content};
use crate::json::{Text, Value};
use crate::number::count;
use crate::record::Record;
use crate::run::{Ending, Exit, Reducer};

pub const DIALECT: Dialect = Dialect {
    name: "gemini-chat",
    sign,
    mapper: Make::of::<GeminiChat>(),
    series: &[],
};

/// How user messages begin that the harness wrote.
const INJECTED: [&str; 2] = ["<session_context>", "<hook_context>"];
pub(super) const CHUNKS: [Kind; 3] = [Kind::Message, Kind::Thought, Kind::User];

fn sign(record: Value<'_>) -> Option<Sign> {
    let Some(kind) = record.get("type").filter(|kind| !kind.is_null()) else {
        if has_all(record, &["sessionId", "projectHash"]) {
            return match record.get("messages").filter(Value::is_array) {
                Some(messages) if !messages.is_empty() => {
                    Sign::of_document("a session with projectHash and messages")
                }
                _ => Sign::new(SURE, "a header with sessionId and projectHash"),
            };
        }
        if patch(record).is_none() && record.text_of("$rewindTo").is_none() {
            return None;
        }
        return Sign::new(SURE, "a $set or $rewindTo record");
    };
    record.text_of("id")?;
    if !has_all(record, &["timestamp", "content"]) {
        return None;
    }
    match &*kind.text()? {
        "gemini" => Sign::new(SURE, "a message of type gemini with id"),
        kind @ ("user" | "info" | "error" | "warning") => {
            Sign::new(60, format!("a message of type {kind} with id and content"))
        }
        _ => None,
    }
}

fn patch(record: Value<'_>) -> Option<Value<'_>> {
    record.get("$set").filter(Value::is_object)
}

#[derive(Default, Deserialize, Serialize)]
struct GeminiChat {
    messages: Messages,
    /// Id of a call: id of the message that has it.
    calls: HashMap<String, String>,
    subagent: bool,
}

/// What a message tells of the end of the session.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
enum What {
    Prompt,
    Answer,
    Work,
    Aside,
}

/// What each message is, in order. Messages go only from the end.
#[derive(Default, Deserialize, Serialize)]
struct Messages {
    list: Vec<(String, What)>,
    places: HashMap<String, usize>,
}

impl Messages {
    fn set(&mut self, id: &str, what: What) {
        let place = self.places.get(id);
        match place.and_then(|at| self.list.get_mut(*at)) {
            Some(known) => known.1 = what,
            None => {
                self.places.insert(id.to_owned(), self.list.len());
                self.list.push((id.to_owned(), what));
            }
        }
    }

    fn pop(&mut self) -> Option<String> {
        let (id, _) = self.list.pop()?;
        self.places.remove(&id);
        Some(id)
    }
}

impl Mapper for GeminiChat {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        let value = record.value();
        if let Some(target) = value.text_of("$rewindTo") {
            // an unknown target clears all
            let from = self.messages.places.get(&*target).copied().unwrap_or(0);
            self.take_back(from, out);
            return Outcome::Mapped;
        }
        if let Some(id) = value.text_of("id") {
            return self.message(value, &id, false, out);
        }
        if let Some(patch) = patch(value) {
            return self.header(patch, out);
        }
        if has_all(value, &["sessionId", "projectHash"]) {
            self.subagent = value.text_of("kind").as_deref() == Some("subagent");
            return self.header(value, out);
        }
        Outcome::Unknown
    }

    fn judge(&self, _run: &Reducer, exit: &Exit) -> Option<Ending> {
        let mut last = self.messages.list.iter().rev().map(|(_, what)| *what);
        let last = last.find(|what| *what != What::Aside)?;
        (last == What::Answer && !exit.failed()).then(|| {
            let why = "the last message of the session is an answer";
            Ending::new("completed", None, why)
        })
    }
}

impl GeminiChat {
    // ---------------------------------------------------------------- the log

    /// Facts of the session: its header, a patch of it, or a whole old session.
    fn header(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let directories = value.get("directories");
        let first = directories.and_then(|list| list.items().next());
        let title = value.text_of("summary").filter(|_| !self.subagent);
        let details = [
            ("sessionId", value.text_of("sessionId")),
            ("cwd", first.and_then(|first| first.text())),
            ("title", title),
        ];
        out.session_state(&details, &Stamp::at(value.text_of("startTime")));
        if let Some(messages) = value.get("messages").filter(Value::is_array) {
            self.replace(messages, out);
            return Outcome::Mapped;
        }
        match value.entries().all(|(key, _)| key.eq("lastUpdated")) {
            true => Outcome::Ignored("time of the last change"),
            false => Outcome::Mapped,
        }
    }

    /// These messages take the place of all so far. Those that both begin with stay.
    fn replace(&mut self, messages: Value<'_>, out: &mut Emitter<'_>) {
        let with_id = |message: Value<'_>| message.text_of("id").is_some();
        let messages = || messages.items().filter(|message| with_id(*message));
        let known = self.messages.list.iter().zip(messages());
        let same = known
            .take_while(|((id, _), message)| message.text_of("id").as_deref() == Some(id))
            .count();
        self.take_back(same, out);
        for message in messages() {
            if let Some(id) = message.text_of("id") {
                self.message(message, &id, true, out);
            }
        }
    }

    /// The messages from this place on are gone.
    fn take_back(&mut self, from: usize, out: &mut Emitter<'_>) {
        while self.messages.list.len() > from
            && let Some(id) = self.messages.pop()
        {
            let stamp = Stamp {
                message_id: Some(id.as_str().into()),
                ..Stamp::default()
            };
            for kind in CHUNKS {
                out.drop_block(kind, id.as_str(), &stamp);
            }
        }
    }

    // ---------------------------------------------------------------- messages

    /// A message, new or again. `told_before`: as part of a history, whose calls may stand under other ids.
    fn message(
        &mut self,
        value: Value<'_>,
        id: &str,
        told_before: bool,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let stamp = Stamp {
            message_id: value.text_of("id"),
            timestamp: value.text_of("timestamp"),
            model: value.text_of("model"),
            ..Stamp::default()
        };
        let new = !self.messages.places.contains_key(id);
        match value.text_of("type").as_deref() {
            Some("user") => self.user(value, id, &stamp, new, out),
            Some("gemini") => {
                self.gemini(value, id, &stamp, told_before, out);
                Outcome::Mapped
            }
            Some("info") => {
                self.messages.set(id, What::Aside);
                Outcome::Ignored("note")
            }
            Some(kind @ ("error" | "warning")) => {
                self.messages.set(id, What::Aside);
                let text = text_of(&parts_of(value.get("content")));
                match kind {
                    _ if !new => {}
                    "error" => out.error(text, &stamp, false),
                    _ => out.notice(text, &stamp),
                }
                Outcome::Mapped
            }
            _ => Outcome::Unknown,
        }
    }

    fn user(
        &mut self,
        value: Value<'_>,
        id: &str,
        stamp: &Stamp<'_>,
        new: bool,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let parts = parts_of(value.get("content"));
        let text = text_of(&parts);
        if INJECTED.iter().any(|start| text.starts_with(start)) {
            self.messages.set(id, What::Aside);
            return Outcome::Ignored("context from the harness");
        }
        let answers = || parts.iter().filter_map(|part| part.get("functionResponse"));
        if answers().next().is_some() {
            self.messages.set(id, What::Work);
            for answer in answers() {
                response(answer, stamp, out);
            }
            return Outcome::Mapped;
        }
        self.messages.set(id, What::Prompt);
        if new {
            out.state(State::new("turn").with("phase", "start"), stamp);
        }
        let shown = filled(Some(text_of(&parts_of(value.get("displayContent")))));
        out.final_text(Kind::User, id, shown.unwrap_or(text), stamp);
        if new {
            for image in parts.iter().filter_map(Part::image) {
                out.image(Kind::User, &image, stamp);
            }
        }
        Outcome::Mapped
    }

    fn gemini(
        &mut self,
        value: Value<'_>,
        id: &str,
        stamp: &Stamp<'_>,
        told_before: bool,
        out: &mut Emitter<'_>,
    ) {
        let parts = parts_of(value.get("content"));
        let text = text_of(&parts);
        let asked = calls_of(&parts);
        let told = value.get("toolCalls").into_iter();
        let told: Vec<Value<'_>> = told
            .flat_map(|calls| calls.items())
            .filter(Value::is_object)
            .collect();
        let answer = asked.is_empty() && told.is_empty() && !text.is_empty();
        self.messages
            .set(id, if answer { What::Answer } else { What::Work });
        out.session_state(
            &[("model", stamp.model.clone())],
            &Stamp::at(stamp.timestamp.clone()),
        );
        if let Some(thoughts) = value.get("thoughts") {
            out.final_text(Kind::Thought, id, thoughts_of(thoughts), stamp);
        }
        out.final_text(Kind::Message, id, text, stamp);
        if let Some(counters) = value.get("tokens").filter(Value::is_object) {
            let tokens = Tokens {
                prompt: count(counters.get("input")),
                completion: count(counters.get("output")),
                cached: count(counters.get("cached")),
                extra: counts(counters, &["thoughts", "tool", "total"]),
                ..Tokens::default()
            };
            out.call_usage(&tokens, stamp, Some(id), false);
        }
        for call in told {
            self.call(call, id, stamp, told_before, out);
        }
        for call in asked {
            self.announce(call, id, stamp, told_before, out);
        }
    }

    // ---------------------------------------------------------------- calls

    /// Tells of a call, once; gives its id.
    fn announce<'a>(
        &mut self,
        call: Value<'a>,
        message: &str,
        stamp: &Stamp<'_>,
        told_before: bool,
        out: &mut Emitter<'_>,
    ) -> Option<Text<'a>> {
        let id = call.text_of("id")?;
        let owner = self.calls.get(&*id);
        if owner.is_none_or(|owner| !told_before && owner != message) {
            self.calls.insert(id.to_string(), message.to_owned());
            out.next_turn();
            let (name, input) = (call.text_of("name"), call.get("args"));
            out.call(Call::new(id.borrow(), name.clone(), input), stamp);
            plan(name.as_deref(), input, stamp, out);
        }
        Some(id)
    }

    fn call(
        &mut self,
        call: Value<'_>,
        message: &str,
        stamp: &Stamp<'_>,
        told_before: bool,
        out: &mut Emitter<'_>,
    ) {
        let Some(id) = self.announce(call, message, stamp, told_before, out) else {
            return;
        };
        let status = call.text_of("status").map(|word| match &*word {
            "success" => "completed",
            "error" | "cancelled" => "failed",
            _ => "in_progress", // one of a call that goes on
        });
        let display = call.get("resultDisplay").filter(|shown| !shown.is_null());
        let parts = parts_of(call.get("result"));
        let mut content: Vec<Item<'_>> = parts.iter().flat_map(Part::result).collect();
        if content.is_empty() {
            content = text_content(display.and_then(|display| display.text()));
        }
        content.extend(display.and_then(diff_of));
        let name = call.text_of("name");
        if name.as_deref() == Some("complete_task") && status == Some("completed") {
            self.messages.set(message, What::Answer); // how a sub-agent ends
        }
        let update = Update {
            content,
            raw_output: display.map(|display| map([("resultDisplay", display.into())])),
            ..Update::new(id, status)
        };
        let stamp = Stamp {
            message_id: Some(message.into()),
            timestamp: call.text_of("timestamp"),
            model: stamp.model.clone(),
            ..Stamp::default()
        };
        out.update(update, &stamp);
    }
}

/// A result in a user message: mostly again, sometimes the only one.
fn response(answer: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
    if let Some(id) = answer.text_of("id")
        && out.is_open(&id)
    {
        let failed = answer.path(&["response", "error"]).is_some();
        let update = Update {
            content: result_of(answer),
            ..Update::new(id, Some(if failed { "failed" } else { "completed" }))
        };
        out.update(update, stamp);
    }
}

// -------------------------------------------------------------------- shapes that the session files of Qwen share

/// A part of a message's content.
pub(super) enum Part<'a> {
    Text(Text<'a>),
    Object(Value<'a>),
}

/// Content as parts: it is a string, a part, or a list of both.
pub(super) fn parts_of(content: Option<Value<'_>>) -> Vec<Part<'_>> {
    match content {
        Some(list) if list.is_array() => list.items().filter_map(Part::of).collect(),
        other => other.and_then(Part::of).into_iter().collect(),
    }
}

/// The text of the parts, thoughts left out.
pub(super) fn text_of<'a>(parts: &[Part<'a>]) -> Text<'a> {
    let spoken = parts.iter().filter(|part| !part.is_thought());
    Text::concat(spoken.filter_map(Part::text))
}

/// The calls that the parts ask for.
pub(super) fn calls_of<'a>(parts: &[Part<'a>]) -> Vec<Value<'a>> {
    let calls = parts.iter().filter_map(|part| part.get("functionCall"));
    calls.filter(Value::is_object).collect()
}

impl<'a> Part<'a> {
    fn of(value: Value<'a>) -> Option<Part<'a>> {
        match value.text() {
            Some(text) => Some(Part::Text(text)),
            None => value.is_object().then_some(Part::Object(value)),
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<Value<'a>> {
        match self {
            Part::Text(_) => None,
            Part::Object(value) => value.get(key),
        }
    }

    pub(super) fn text(&self) -> Option<Text<'a>> {
        match self {
            Part::Text(text) => Some(text.clone()),
            Part::Object(value) => value.text_of("text"),
        }
    }

    pub(super) fn is_thought(&self) -> bool {
        self.get("thought").and_then(|thought| thought.as_bool()) == Some(true)
    }

    pub(super) fn image(&self) -> Option<Image<'a>> {
        let data = self.get("inlineData")?;
        let (mime, data) = (data.text_of("mimeType")?, data.text_of("data")?);
        mime.starts_with("image/").then_some(Image {
            data,
            mime,
            uri: None,
        })
    }

    /// Tool content from a part of a result: what the model was told, and pictures beside it.
    pub(super) fn result(&self) -> Vec<Item<'a>> {
        let mut items: Vec<_> = self.image().map(Item::Image).into_iter().collect();
        match self.get("functionResponse").filter(Value::is_object) {
            Some(answer) => items.extend(result_of(answer)),
            None => items.extend(self.text().map(Item::Text)),
        }
        items
    }
}

fn result_of(answer: Value<'_>) -> Vec<Item<'_>> {
    let texts = ["output", "error"].into_iter();
    let texts = texts.filter_map(|key| answer.path(&["response", key])?.text());
    let pictures = parts_of(answer.get("parts"));
    let pictures = pictures.iter().filter_map(Part::image).map(Item::Image);
    texts.map(Item::Text).chain(pictures).collect()
}

/// The file before and after an edit, where the display has both texts.
pub(super) fn diff_of(display: Value<'_>) -> Option<Item<'_>> {
    let (path, new) = (display.text_of("filePath")?, display.text_of("newContent")?);
    let is_new = display.get("isNewFile").and_then(|flag| flag.as_bool()) == Some(true);
    let old = display.text_of("originalContent").filter(|_| !is_new);
    Some(Item::Diff { path, old, new })
}

/// The counters of these names, as far as they are printed.
pub(super) fn counts<'a>(
    counters: Value<'a>,
    keys: &[&'static str],
) -> Vec<(Text<'a>, crate::data::Data<'a>)> {
    let printed = keys
        .iter()
        .filter_map(|key| Some(((*key).into(), count(counters.get(key))?.into())));
    printed.collect()
}

/// The thoughts of a message as one text, subjects set off as the model does it.
fn thoughts_of(list: Value<'_>) -> Text<'_> {
    let mut all: Vec<Text<'_>> = Vec::new();
    for thought in list.items() {
        let subject = filled(thought.text_of("subject"));
        let description = filled(thought.text_of("description"));
        if subject.is_none() && description.is_none() {
            continue;
        }
        if !all.is_empty() {
            all.push(if subject.is_some() { "\n\n" } else { " " }.into());
        }
        if let Some(subject) = &subject {
            all.push(subject.rewrite(|subject| format!("**{subject}**")));
            if description.is_some() {
                all.push(" ".into());
            }
        }
        all.extend(description);
    }
    Text::concat(all)
}
