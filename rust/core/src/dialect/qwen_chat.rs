//! Qwen Code's session file, and the files of its sub-agents (recorded: 0.5.0, 0.12.0, 0.24.4).
//!
//! One record per model turn, with Gemini's parts. The records are a tree: one whose `parentUuid` is not the record
//! before it takes back the branch in between (a rewind). Token counts stand in `assistant` records and again in
//! telemetry, which also has the calls that no record shows (sub-agents, helpers): a call is counted once, and one that
//! only telemetry has is a side call. Failures are telemetry too: one that no further answer follows is an error of the
//! run. Nothing says that a run is over: an answer as the last message is all there is.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::gemini_chat::{CHUNKS, Part, calls_of, counts, diff_of, parts_of, text_of};
use super::qwen::plan;
use super::{Dialect, Make, Mapper, Outcome, SURE, Sign, filled, has_all, rule};
use crate::emit::{Call, Emitter, Update};
use crate::event::{Item, Kind, Stamp, State, Tokens, text_content};
use crate::json::{Text, Value};
use crate::number::{Number, count, price};
use crate::record::Record;
use crate::run::{Ending, Exit, Reducer};

pub const DIALECT: Dialect = Dialect {
    name: "qwen-chat",
    sign,
    mapper: Make::of::<QwenChat>(),
    series: &[],
};

const IGNORED: &[(&str, &str)] = &[
    ("attribution_snapshot", "attribution"),
    ("file_history_snapshot", "file history"),
    ("slash_command", "slash command"),
    ("at_command", "command"),
    ("rewind", "rewind"),
    ("branch_checkpoint", "checkpoint"),
    ("turn_result", "result of a turn"),
    ("session_model", "model of the session"),
    ("goal_state", "goal state"),
    // known from the source of 2026-11
    ("agent_bootstrap", "sub-agent"),
    ("agent_launch_prompt", "sub-agent"),
    ("agent_retry", "sub-agent"),
    ("agent_session_ready", "sub-agent"),
    ("background_task_completed", "background task"),
    ("goal_turn_end", "goal state"),
    ("omni_recall", "recall"),
    ("parent_session", "facts of the session"),
    ("session_approval_mode", "facts of the session"),
    ("session_artifact_event", "artifacts"),
    ("session_artifact_snapshot", "artifacts"),
    ("session_execution_engine", "facts of the session"),
    ("session_notes", "notes"),
    ("session_source", "facts of the session"),
    ("session_sources_snapshot", "facts of the session"),
    ("user_text_elements", "elements of a prompt"),
];
/// Subtypes of `user` records that are a person's words: typed while tools ran, or spoken.
const SPOKEN: [&str; 2] = ["mid_turn_user_message", "realtime_message"];
const ABORT: &str = "APIUserAbortError";
/// How many model calls wait for their other half.
const MATCHES: usize = 256;

fn sign(record: Value<'_>) -> Option<Sign> {
    if !has_all(record, &["sessionId", "parentUuid"]) {
        return None;
    }
    let kind = filled(record.text_of("type"));
    let version = record.text_of("version").map(Text::into_string);
    if record
        .path(&["message", "parts"])
        .is_some_and(|parts| parts.is_array())
    {
        let kind = kind.unwrap_or("no type".into());
        let why = format!("a record ({}) with parentUuid and message.parts", &*kind);
        return Sign::of_version(SURE, why, version);
    }
    record.get("systemPayload")?;
    if kind.as_deref() != Some("system") {
        return None;
    }
    Sign::of_version(SURE, "a system record with systemPayload", version)
}

#[derive(Default, Deserialize, Serialize)]
struct QwenChat {
    /// Records of the branch that goes on, in order, and their places.
    path: Vec<String>,
    places: HashMap<String, usize>,
    /// Of calls whose result is still to come.
    durations: HashMap<String, Number>,
    /// A model call that only telemetry told so far.
    untold: Option<ModelCall>,
    /// Counters of calls that were told by telemetry, and by records.
    telemetry: Vec<Triple>,
    records: Vec<Triple>,
    /// Of the last model call, which may be tried again.
    failure: Option<(String, Stamp<'static>)>,
    ended: Ended,
}

/// How the last turn ended, as far as its last record tells.
#[derive(Default, PartialEq, Eq, Deserialize, Serialize)]
enum Ended {
    #[default]
    Open,
    Answered,
    Failed,
    Cancelled,
}

/// Prompt, completion and total of a model call.
type Triple = [Option<i64>; 3];

/// A model call as telemetry tells it.
#[derive(Deserialize, Serialize)]
struct ModelCall {
    key: Option<String>,
    stamp: Stamp<'static>,
    triple: Triple,
    tokens: Tokens<'static>,
}

impl Mapper for QwenChat {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        let value = record.value();
        let uuid = value.text_of("uuid");
        let uuid = uuid.as_deref();
        let kind = record.kind().unwrap_or_default();
        let stamp = stamp_of(value, out);
        if let Some(uuid) = uuid {
            if self.places.contains_key(uuid) {
                return Outcome::Ignored("record again");
            }
            let side = value.get("isSidechain").and_then(|flag| flag.as_bool()) == Some(true);
            if !side {
                self.follow(uuid, value.text_of("parentUuid").as_deref(), out);
            }
        }
        let details = [
            ("sessionId", value.text_of("sessionId")),
            ("version", value.text_of("version")),
            ("cwd", value.text_of("cwd")),
        ];
        out.session_state(&details, &Stamp::at(stamp.timestamp.clone()));
        if &*kind == "system" {
            return self.system(value, &stamp, out);
        }
        let counters = value.get("usageMetadata").filter(Value::is_object);
        self.tell(
            counters.filter(|_| &*kind == "assistant"),
            uuid,
            &stamp,
            out,
        );
        let parts = parts_of(value.path(&["message", "parts"]));
        match &*kind {
            "assistant" => self.assistant(&parts, uuid, &stamp, out),
            "tool_result" => self.result(value, &parts, &stamp, out),
            "user" => return self.user(value, &parts, uuid, &stamp, out),
            _ => return Outcome::Unknown,
        }
        Outcome::Mapped
    }

    fn close(&mut self, out: &mut Emitter<'_>) {
        self.tell(None, None, &Stamp::default(), out);
        self.settle_failure(out);
    }

    fn judge(&self, _run: &Reducer, exit: &Exit) -> Option<Ending> {
        let failed = "the last model call of the session failed";
        match self.ended {
            Ended::Failed => Some(Ending::new("failed", None, failed)),
            Ended::Cancelled => Some(Ending::new("cancelled", None, failed)),
            Ended::Answered if !exit.failed() => {
                let why = "the last message of the session is an answer";
                Some(Ending::new("completed", None, why))
            }
            _ => None,
        }
    }
}

impl QwenChat {
    /// The record goes on where its parent stands; what came after that is taken back.
    fn follow(&mut self, uuid: &str, parent: Option<&str>, out: &mut Emitter<'_>) {
        let place = parent.and_then(|parent| self.places.get(parent));
        if let Some(place) = place.copied() {
            while self.path.len().saturating_sub(1) > place
                && let Some(gone) = self.path.pop()
            {
                self.places.remove(&gone);
                let stamp = Stamp {
                    message_id: Some(gone.as_str().into()),
                    ..Stamp::default()
                };
                for chunk in CHUNKS {
                    out.drop_block(chunk, gone.as_str(), &stamp);
                }
            }
        }
        self.places.insert(uuid.to_owned(), self.path.len());
        self.path.push(uuid.to_owned());
    }

    // ---------------------------------------------------------------- messages

    fn user(
        &mut self,
        value: Value<'_>,
        parts: &[Part<'_>],
        uuid: Option<&str>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let person = match value.get("provenance") {
            Some(provenance) => provenance.text().as_deref() == Some("real_user"),
            None => true,
        };
        let spoken = |subtype: Value<'_>| SPOKEN.iter().any(|word| subtype.is_text(word));
        let subtype = value.get("subtype");
        let plain = subtype.is_none_or(|subtype| subtype.is_null() || spoken(subtype));
        if !person || !plain {
            self.ended = Ended::Open;
            return Outcome::Ignored("notice from the harness");
        }
        self.settle_failure(out);
        self.ended = Ended::Open;
        if stamp.thread().is_none() {
            out.state(State::new("turn").with("phase", "start"), stamp);
        }
        say(Kind::User, uuid, text_of(parts), stamp, out);
        for image in parts.iter().filter_map(Part::image) {
            out.image(Kind::User, &image, stamp);
        }
        Outcome::Mapped
    }

    fn assistant(
        &mut self,
        parts: &[Part<'_>],
        uuid: Option<&str>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) {
        self.retry(out);
        out.next_turn();
        out.session_state(
            &[("model", stamp.model.clone())],
            &Stamp::at(stamp.timestamp.clone()),
        );
        let thoughts = parts.iter().filter(|part| part.is_thought());
        let thoughts = Text::concat(thoughts.filter_map(Part::text));
        let text = text_of(parts);
        let silent = text.is_empty();
        say(Kind::Thought, uuid, thoughts, stamp, out);
        say(Kind::Message, uuid, text, stamp, out);
        let calls = calls_of(parts);
        for call in &calls {
            let (name, input) = (call.text_of("name"), call.get("args"));
            if let Some(id) = call.text_of("id") {
                out.call(Call::new(id, name.clone(), input), stamp);
                plan(&name.unwrap_or_default(), input, stamp, out);
            }
        }
        if stamp.thread().is_none() {
            let answered = !silent && calls.is_empty();
            self.ended = if answered {
                Ended::Answered
            } else {
                Ended::Open
            };
        }
    }

    fn result(
        &mut self,
        value: Value<'_>,
        parts: &[Part<'_>],
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) {
        let result = value.get("toolCallResult").filter(Value::is_object);
        let of = |key| result.and_then(|result| result.get(key));
        let answers = || parts.iter().filter_map(|part| part.get("functionResponse"));
        let id = filled(of("callId").and_then(|id| id.text()));
        let Some(id) = id.or_else(|| answers().find_map(|answer| answer.text_of("id"))) else {
            return;
        };
        // without a status (sub-agents) the response tells
        let failed = answers().any(|answer| answer.path(&["response", "error"]).is_some());
        let status = match of("status").and_then(|status| status.text()).as_deref() {
            Some("success") => Some("completed"),
            Some("error" | "cancelled") => Some("failed"),
            Some(_) => None,
            None if failed => Some("failed"),
            None => Some("completed"),
        };
        let display = of("resultDisplay");
        let mut content: Vec<Item<'_>> = parts.iter().flat_map(Part::result).collect();
        if content.is_empty() {
            content = text_content(display.and_then(|display| display.text()));
        }
        content.extend(display.and_then(diff_of));
        let measured = self.durations.remove(&*id);
        let mut update = Update {
            done: Some(true),
            content,
            raw_output: result.filter(|result| !result.is_empty()).map(Into::into),
            ..Update::new(id, status)
        };
        update.facts.exit_code = count(display.and_then(|display| display.get("exitCode")));
        update.facts.duration_ms = measured.or_else(|| price(of("durationMs")));
        out.update(update, stamp);
    }

    // ---------------------------------------------------------------- telemetry, and what it repeats

    fn system(&mut self, value: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        let payload = value.get("systemPayload");
        match value.text_of("subtype").as_deref() {
            Some("ui_telemetry") => {
                let event = payload.and_then(|payload| payload.get("uiEvent"));
                match event.filter(Value::is_object) {
                    Some(event) => self.telemetry(event, stamp, out),
                    None => Outcome::Unknown,
                }
            }
            Some("chat_compression") => {
                let state = State::new("compaction")
                    .with("phase", "end")
                    .with("success", true);
                out.state(state, stamp);
                Outcome::Mapped
            }
            Some("custom_title") => {
                let title = payload.and_then(|payload| payload.text_of("customTitle"));
                out.session_state(&[("title", title)], stamp);
                Outcome::Mapped
            }
            Some(other) => rule(IGNORED, other),
            None => Outcome::Unknown,
        }
    }

    fn telemetry(&mut self, event: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        match event.text_of("event.name").as_deref() {
            Some("qwen-code.tool_call") => {
                if let Some(id) = event.text_of("call_id")
                    && let Some(duration) = price(event.get("duration_ms"))
                    && out.is_open(&id)
                {
                    self.durations.insert(id.into_string(), duration);
                }
                Outcome::Ignored("telemetry")
            }
            Some("qwen-code.api_error") => self.api_error(event, stamp, out),
            Some("qwen-code.api_response") => self.api_response(event, stamp, out),
            _ => Outcome::Ignored("telemetry"),
        }
    }

    fn api_error(&mut self, event: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        if has_all(event, &["subagent_id"]) {
            return Outcome::Ignored("telemetry");
        }
        self.retry(out);
        let message = filled(event.text_of("error_message"));
        let message = message.or_else(|| filled(event.text_of("error")));
        let message = message.unwrap_or("a model call failed".into());
        self.failure = Some((message.into_string(), stamp.to_static()));
        self.ended = match event.text_of("error_type").as_deref() {
            Some(ABORT) => Ended::Cancelled,
            _ => Ended::Failed,
        };
        Outcome::Mapped
    }

    fn api_response(
        &mut self,
        event: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        self.tell(None, None, stamp, out);
        self.retry(out);
        let mut call = ModelCall::new(event, stamp);
        if take(&mut self.records, &call.triple) {
            return Outcome::Ignored("usage again");
        }
        let parent = delegating(
            event.text_of("subagent_id"),
            event.text_of("subagent_type"),
            out,
        );
        if parent.is_some() || has_all(event, &["subagent_id"]) {
            call.stamp.parent = parent.map(Text::from);
            self.tell_side(&call, out);
        } else {
            self.untold = Some(call);
        }
        Outcome::Mapped
    }

    /// Counts a model call once: as the counters of its `assistant` record tell it, or as telemetry alone does.
    fn tell(
        &mut self,
        counters: Option<Value<'_>>,
        uuid: Option<&str>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) {
        let mut call = self.untold.take();
        let mut counters = counters;
        if let Some(value) = counters {
            let of = |key| count(value.get(key));
            let triple = [
                of("promptTokenCount"),
                of("candidatesTokenCount"),
                of("totalTokenCount"),
            ];
            if call.as_ref().is_some_and(|call| call.triple == triple) {
                call = None;
            } else if take(&mut self.telemetry, &triple) {
                counters = None;
            } else {
                keep(&mut self.records, triple);
            }
        }
        if let Some(call) = call {
            self.tell_side(&call, out);
        }
        if let Some(counters) = counters {
            // Gemini's names with OpenAI's sums: the candidates include the thoughts
            let tokens = Tokens {
                prompt: count(counters.get("promptTokenCount")),
                completion: count(counters.get("candidatesTokenCount")),
                cached: count(counters.get("cachedContentTokenCount")),
                extra: counts(counters, &["thoughtsTokenCount", "totalTokenCount"]),
                ..Tokens::default()
            };
            out.call_usage(&tokens, stamp, uuid, false);
        }
    }

    /// A call of a sub-agent or a helper; the sub-agent's own file, read behind the session, has it again.
    fn tell_side(&mut self, call: &ModelCall, out: &mut Emitter<'_>) {
        keep(&mut self.telemetry, call.triple);
        let side = call.stamp.parent.is_none();
        out.call_usage(&call.tokens, &call.stamp, call.key.as_deref(), side);
    }

    /// A failed model call was tried again: its error was none of the run.
    fn retry(&mut self, out: &mut Emitter<'_>) {
        if let Some((message, stamp)) = self.failure.take() {
            out.notice(message.as_str(), &stamp);
            let state = State::new("retry")
                .with("phase", "start")
                .with("message", message);
            out.state(state, &stamp);
        }
    }

    fn settle_failure(&mut self, out: &mut Emitter<'_>) {
        if let Some((message, stamp)) = self.failure.take() {
            out.error(message, &stamp, true);
        }
    }
}

impl ModelCall {
    fn new(event: Value<'_>, stamp: &Stamp<'_>) -> Self {
        let of = |key| count(event.get(key));
        let triple = [
            of("input_token_count"),
            of("output_token_count"),
            of("total_token_count"),
        ];
        let extra = ["thoughts_token_count", "total_token_count"].into_iter();
        let extra = extra.filter_map(|key| Some((key.into(), of(key)?.into())));
        let stamp = Stamp {
            session_id: stamp.session_id.clone(),
            timestamp: stamp.timestamp.clone(),
            model: event.text_of("model"),
            ..Stamp::default()
        };
        ModelCall {
            key: event.text_of("response_id").map(Text::into_string),
            stamp: stamp.to_static(),
            triple,
            tokens: Tokens {
                prompt: triple[0],
                completion: triple[1],
                cached: of("cached_content_token_count"),
                extra: extra.collect(),
                ..Tokens::default()
            },
        }
    }
}

fn keep(triples: &mut Vec<Triple>, triple: Triple) {
    if triples.len() == MATCHES {
        triples.remove(0);
    }
    triples.push(triple);
}

fn take(triples: &mut Vec<Triple>, triple: &Triple) -> bool {
    let found = triples.iter().position(|known| known == triple);
    if let Some(at) = found {
        triples.remove(at);
    }
    found.is_some()
}

fn stamp_of<'a>(value: Value<'a>, out: &Emitter<'_>) -> Stamp<'a> {
    let parent = delegating(value.text_of("agentId"), value.text_of("agentName"), out);
    Stamp {
        session_id: value.text_of("sessionId"),
        message_id: value.text_of("uuid"),
        timestamp: value.text_of("timestamp"),
        model: value.text_of("model"),
        parent: parent.map(Text::from),
        ..Stamp::default()
    }
}

/// The call that delegated: a sub-agent's id is its kind and the id of that call. Its own file stands alone.
fn delegating(
    agent: Option<Text<'_>>,
    kind: Option<Text<'_>>,
    out: &Emitter<'_>,
) -> Option<String> {
    let agent = agent?;
    let call = agent.strip_prefix(&*kind?)?.strip_prefix('-')?;
    out.knows(call).then(|| call.to_owned())
}

/// A text of a record; the record's uuid names it for a rewind.
fn say(kind: Kind, uuid: Option<&str>, text: Text<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
    match uuid {
        Some(uuid) => out.final_text(kind, uuid, text, stamp),
        None => out.whole(kind, text, stamp),
    }
}
