//! Codex's session file, `rollout-*.jsonl` (recorded: 0.20, then 0.40 to 0.171; also compressed with zstd).
//!
//! Up to 0.20 bare lines: a header, items of the model API, `record_type` lines. Then `{timestamp, type, payload}`, with
//! an `ordinal` in 0.171. A message stands there twice, as `response_item` and as `event_msg`, in either order, but not
//! always: texts are matched (`codex_responses`). Calls are announced by their item; `item_completed` and the `_end`
//! events tell better how they ended than the text of the output does. A fork or sub-agent may begin with a copy of its
//! parent's history, stamped with the time of the fork: it is left out. Before 0.125 there is no end record.

use serde::{Deserialize, Serialize};

use super::codex_events::{Agents, Events, call_kind};
use super::codex_responses::{Family, Responses, is_prompt, phase_of, response_sign};
use super::codex_shapes::{self as shapes, Item, Meter, What, other_item};
use super::{Dialect, Make, Mapper, Outcome, SURE, Sign, filled, has_all};
use crate::emit::{Emitter, Mark};
use crate::event::{Kind, Stamp, State, iso, millis};
use crate::json::{Text, Value};
use crate::number::count;
use crate::record::Record;
use crate::run::{Ending, Exit, LastWord, Reducer};

pub const DIALECT: Dialect = Dialect {
    name: "codex-rollout",
    sign,
    mapper: Make::of::<Rollout>(),
    series: &[],
};

const IGNORED: &[(&str, &str)] = &[
    ("world_state", "state of the world"),
    ("inter_agent_communication", "message between agents"),
    (
        "inter_agent_communication_metadata",
        "message between agents",
    ),
    ("session_state", "state of the session"),
    ("security_risk_score", "automatic review"),
    ("retained_context", "retained context"),
    ("realtime_item", "realtime audio"),
];
const TYPES: &[&str] = &[
    "session_meta",
    "turn_context",
    "response_item",
    "event_msg",
    "compacted",
    "token_usage_record",
];
/// A copied history is written within this time.
const FORK_MILLIS: i64 = 1000;
/// Characters of a UUID of version 7 that are its time.
const TIME: usize = 13;
/// Events by which a turn begins.
const BEGIN: [&str; 2] = ["task_started", "turn_started"];

fn sign(record: Value<'_>) -> Option<Sign> {
    let kind = record.text_of("type");
    let payload = record.get("payload").filter(Value::is_object);
    if let (Some(kind), Some(payload)) = (&kind, payload) {
        let kind = &**kind;
        if TYPES.contains(&kind) || IGNORED.iter().any(|(name, _)| *name == kind) {
            let version = payload.text_of("cli_version").map(Text::into_string);
            return Sign::of_version(SURE, format!("{kind} with a payload"), version);
        }
        let known = ["timestamp", "type", "payload", "ordinal"];
        let only = record
            .entries()
            .all(|(key, _)| known.iter().any(|name| key.eq(name)));
        let timed = record.text_of("timestamp").is_some();
        return (only && timed)
            .then(|| Sign::new(40, "a record of timestamp, type and payload"))?;
    }
    let version = || Some("0.20".to_owned());
    if record.get("type").is_none_or(|kind| kind.is_null()) {
        if record.text_of("record_type").as_deref() == Some("state") {
            return Sign::of_version(SURE, "a record_type line", version());
        }
        if has_all(record, &["id", "timestamp", "instructions"]) {
            let why = "a header with id, timestamp and instructions";
            return Sign::of_version(SURE, why, version());
        }
    }
    response_sign(record, 50)
}

#[derive(Default, Deserialize, Serialize)]
struct Rollout {
    session: Option<String>,
    model: Option<String>,
    /// The thread that it was forked from.
    parent: Option<String>,
    /// The time of its session_meta.
    started_at: Option<String>,
    /// Ordinal of the first record that is no copy.
    first_own: Option<i64>,
    /// It came from another thread, and no turn of its own has begun.
    forked: bool,
    /// A copy of the parent's history is read.
    copying: bool,
    /// The copied turns tell when they began.
    dated: bool,
    /// The copy kept its times.
    old_times: bool,
    /// The file has records of turns.
    turned: bool,
    /// A prompt came, and nothing of the agent since (no turn records).
    prompted: bool,
    /// How far the texts were when a turn began that has no prompt yet.
    mark: Option<Mark>,
    /// The same of the turns that have one.
    turns: Vec<Mark>,
    events: Events,
    agents: Agents,
    responses: Responses,
}

impl Mapper for Rollout {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        let value = record.value();
        let mut stamp = Stamp {
            session_id: self.session.clone().map(Text::from),
            timestamp: iso(value.get("timestamp")),
            model: self.model.clone().map(Text::from),
            ..Stamp::default()
        };
        let Some(payload) = value.get("payload").filter(Value::is_object) else {
            return self.bare(value, stamp, out);
        };
        let kind = record.kind().unwrap_or_default();
        if &*kind == "session_meta" {
            return self.meta(payload, stamp, out);
        }
        if self.forked || self.copying {
            let time = stamp.timestamp.as_deref();
            let begun_here = self.is_begun_here(payload);
            if self.forked && (begun_here == Some(false) || self.is_older(time)) {
                self.copying = true; // without the parent's session_meta
            }
            if self.copying && !self.is_own(value, begun_here, time) {
                return self.copied(&kind, payload);
            }
            self.copying = false;
            let what = payload.text_of("type").unwrap_or_default();
            if self.forked && &*what == "token_count" {
                return self.copied(&kind, payload); // before any turn it is the parent's
            }
            self.forked &= !(&*kind == "turn_context" || BEGIN.contains(&&*what));
        }
        match &*kind {
            "turn_context" => {
                let model = filled(payload.text_of("model"));
                if let Some(model) = &model {
                    self.model = Some(model.to_string());
                }
                stamp.model = self.model.clone().map(Text::from);
                let details = [("model", model), ("cwd", payload.text_of("cwd"))];
                out.session_state(&details, &stamp);
                Outcome::Mapped
            }
            "response_item" => self.item(payload, stamp, out),
            "event_msg" => self.event(payload, stamp, out),
            "token_usage_record" => self.usage(payload, &stamp, out),
            "compacted" => {
                self.compacted(payload, &stamp, out);
                Outcome::Mapped
            }
            other => super::rule(IGNORED, other),
        }
    }

    fn judge(&self, run: &Reducer, _exit: &Exit) -> Option<Ending> {
        let progress = &run.progress;
        let over = progress.last_word == LastWord::Answer && progress.open_calls.is_empty();
        (over && !self.turned).then(|| {
            let why = "this version writes no end, and the last word is an answer";
            Ending::new("completed", None, why)
        })
    }
}

impl Rollout {
    // ---------------------------------------------------------------- sessions, forks

    /// A line of 0.20: a header, an item, a mark.
    fn bare<'a>(&mut self, value: Value<'a>, stamp: Stamp<'a>, out: &mut Emitter<'_>) -> Outcome {
        if value.text_of("type").is_some() {
            return self.item(value, stamp, out);
        }
        if has_all(value, &["record_type"]) {
            return Outcome::Ignored("record_type line");
        }
        if !has_all(value, &["instructions"]) {
            return Outcome::Unknown;
        }
        let id = value.text_of("id");
        self.session = id.as_ref().map(|id| id.to_string());
        out.session_state(&[("sessionId", id)], &Stamp::at(stamp.timestamp));
        Outcome::Mapped
    }

    fn meta<'a>(
        &mut self,
        meta: Value<'a>,
        mut stamp: Stamp<'a>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let (thread, parent) = (meta.text_of("id"), parent_of(meta));
        let other = thread.as_deref() != self.session.as_deref();
        if self.session.is_some()
            && other
            && (self
                .parent
                .as_deref()
                .is_some_and(|parent| !parent.is_empty())
                || self.is_early(stamp.timestamp.as_deref()))
        {
            self.copying = true; // the parent's, copied into a fork
            return Outcome::Ignored("session_meta of the parent");
        }
        if other {
            self.session = thread.as_ref().map(|thread| thread.to_string());
            self.parent = parent.as_ref().map(|parent| parent.to_string());
            self.started_at = stamp.timestamp.as_ref().map(|time| time.to_string());
            let first = count(meta.get("subagent_history_start_ordinal"));
            self.first_own = first.filter(|first| *first > 1);
            self.forked = self.parent.as_ref().is_some_and(|id| !id.is_empty());
            self.copying = self.first_own.is_some();
            self.dated = false;
            self.old_times = false;
            self.turned = false;
            self.prompted = false;
            self.mark = None;
            self.turns.clear();
            self.events.meter = Meter::default();
        }
        stamp.session_id = thread.clone();
        stamp.extra = parent
            .map(|parent| ("parentThreadId".into(), parent.into()))
            .into_iter()
            .collect();
        let details = [
            ("sessionId", thread),
            ("version", meta.text_of("cli_version")),
            ("cwd", meta.text_of("cwd")),
        ];
        out.session_state(&details, &stamp);
        Outcome::Mapped
    }

    /// Whether the turn of a record began in this thread, where the record tells: by an id that is no older than the
    /// thread's (both begin with their time), or, with other ids, by the time at which the turn began.
    fn is_begun_here(&self, payload: Value<'_>) -> Option<bool> {
        let turn = payload.text_of("turn_id");
        if let (Some(turn), Some(session)) = (turn, &self.session)
            && has_time(&turn)
            && has_time(session)
        {
            return Some(turn[..TIME] >= session[..TIME]);
        }
        let what = payload.text_of("type").unwrap_or_default();
        let began = count(
            payload
                .get("started_at")
                .filter(|_| BEGIN.contains(&&*what)),
        )?;
        Some(began * 1000 + FORK_MILLIS > millis(self.started_at.as_ref()?))
    }

    /// Whether the copy of the parent's history is over. The ordinal says so, or a turn that began in this thread, or
    /// the clock. A long copy takes its time: where its turns tell when they began, the clock says nothing.
    fn is_own(
        &mut self,
        value: Value<'_>,
        begun_here: Option<bool>,
        timestamp: Option<&str>,
    ) -> bool {
        let ordinal = count(value.get("ordinal"));
        if let (Some(first), Some(ordinal)) = (self.first_own, ordinal) {
            return ordinal >= first;
        }
        if let Some(begun_here) = begun_here {
            self.dated |= !begun_here;
            return begun_here;
        }
        if self.dated {
            return false;
        }
        let (Some(time), Some(start)) = (timestamp, &self.started_at) else {
            return false;
        };
        let apart = millis(time) - millis(start);
        self.old_times |= apart < 0;
        if self.old_times {
            apart >= 0
        } else {
            apart > FORK_MILLIS
        }
    }

    /// Whether a record was written before the thread was there.
    fn is_older(&self, timestamp: Option<&str>) -> bool {
        let (Some(time), Some(start)) = (timestamp, &self.started_at) else {
            return false;
        };
        millis(time) + FORK_MILLIS < millis(start)
    }

    /// Whether a record was written together with the file's first: a copy is, a second session is not.
    fn is_early(&self, timestamp: Option<&str>) -> bool {
        let (Some(time), Some(start)) = (timestamp, &self.started_at) else {
            return true;
        };
        (millis(time) - millis(start)).abs() <= FORK_MILLIS
    }

    /// A copied record: only the sum of tokens so far is remembered.
    fn copied(&mut self, kind: &str, payload: Value<'_>) -> Outcome {
        let total = payload.path(&["info", "total_token_usage"]);
        if let Some(total) = total.filter(|total| kind == "event_msg" && total.is_object()) {
            self.events.meter.know(total);
        }
        Outcome::Ignored("history of the parent")
    }

    // ---------------------------------------------------------------- items and events

    fn item<'a>(
        &mut self,
        item: Value<'a>,
        mut stamp: Stamp<'a>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let prompt = is_prompt(item);
        if prompt && !self.turned && !self.prompted {
            // without records of turns a prompt begins one; several in a row are one
            self.responses.start();
            self.mark = Some(out.mark());
            out.next_turn();
            out.state(State::new("turn").with("phase", "start"), &stamp);
        }
        if prompt {
            self.asked();
        }
        let role = item.text_of("role");
        let still = matches!(role.as_deref(), Some("user" | "developer"));
        self.prompted = prompt || self.prompted && still;
        self.responses.map(item, &mut stamp, out)
    }

    fn event<'a>(&mut self, msg: Value<'a>, stamp: Stamp<'a>, out: &mut Emitter<'_>) -> Outcome {
        let Some(kind) = msg.text_of("type") else {
            return Outcome::Unknown;
        };
        if &*kind == "user_message" {
            self.asked();
        }
        let chunk = match &*kind {
            "user_message" => Some((Kind::User, "message")),
            "agent_message" => Some((Kind::Message, "message")),
            "agent_reasoning" => Some((Kind::Thought, "text")),
            _ => None,
        };
        if let Some((chunk, key)) = chunk {
            return self.said(chunk, msg.text_of(key), &stamp, out);
        }
        if &*kind == "item_completed"
            && let Some(item) = msg.get("item").filter(Value::is_object)
        {
            return self.completed(msg, item, stamp, out);
        }
        match &*kind {
            "agent_reasoning_section_break" => return Outcome::Ignored("section break"),
            "context_compacted" => return Outcome::Ignored("compaction again"),
            "user_message_begin" => return Outcome::Ignored("begin of a message"),
            "task_started" => {
                self.turned = true;
                self.mark = Some(out.mark());
                self.responses.start();
            }
            "thread_rolled_back" => {
                let turns = count(msg.get("num_turns")).unwrap_or_default();
                return self.roll_back(turns, &stamp, out);
            }
            "dynamic_tool_call_response" => {
                let (name, id) = ("dynamic_tool_call".into(), msg.text_of("call_id"));
                return self.ended(What::Dynamic, name, &Item::new(msg), id, &stamp, out);
            }
            other => {
                if let Some(head) = other.strip_suffix("_end")
                    && let Some(what) = call_kind(head)
                {
                    let item = Item::of_event(Some(what), msg);
                    return self.ended(
                        what,
                        head.into(),
                        &item,
                        msg.text_of("call_id"),
                        &stamp,
                        out,
                    );
                }
            }
        }
        self.events.said = self.responses.said;
        self.events.map(msg, stamp, &mut self.agents, out)
    }

    fn said<'t>(
        &mut self,
        kind: Kind,
        texts: impl IntoIterator<Item = Text<'t>>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        match self
            .responses
            .say_all(kind, texts, stamp, Family::Event, out)
        {
            (true, _) => Outcome::Mapped,
            (false, true) => Outcome::Ignored("message again"),
            (false, false) => Outcome::Ignored("empty text"),
        }
    }

    /// `item_completed` (0.171). Items of other threads are those of a reviewer: only its calls are told.
    fn completed<'a>(
        &mut self,
        msg: Value<'a>,
        item: Value<'a>,
        mut stamp: Stamp<'a>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let name = shapes::name_of(item);
        let Some(what) = What::of(&name) else {
            return other_item(&name);
        };
        let id = item.text_of("id");
        if what.is_call() {
            let mut call = Item::new(item);
            call.started = msg.get("started_at_ms");
            return self.ended(what, name, &call, id, &stamp, out);
        }
        if what == What::Compaction {
            return Outcome::Ignored("compaction again");
        }
        let thread = msg.text_of("thread_id");
        if thread.is_some_and(|thread| Some(&*thread) != self.session.as_deref()) {
            return Outcome::Ignored("item of another thread");
        }
        stamp.message_id = id;
        let content = || shapes::texts_of(item.get("content"));
        match what {
            What::Reasoning => {
                let parts = shapes::strings(item.get("summary_text"));
                self.said(Kind::Thought, parts, &stamp, out)
            }
            What::Message => {
                stamp.extra = phase_of(item);
                self.said(Kind::Message, content(), &stamp, out)
            }
            What::User => {
                self.asked();
                self.said(Kind::User, content(), &stamp, out)
            }
            _ => Outcome::Unknown,
        }
    }

    /// A person's words: those that steer a turn begin none.
    fn asked(&mut self) {
        self.turns.extend(self.mark.take());
    }

    /// The thread goes on as if its last turns had not been: what was said in them is taken back. Their calls and what
    /// they used stay, for that happened.
    fn roll_back(&mut self, turns: i64, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        let turns = usize::try_from(turns).unwrap_or_default();
        let first = self.turns.len().saturating_sub(turns);
        let Some(mark) = self.turns.get(first) else {
            return Outcome::Ignored("rollback");
        };
        out.rewind(*mark, stamp);
        self.turns.truncate(first);
        self.responses.start();
        self.mark = None;
        Outcome::Mapped
    }

    /// How a call ended, in structure: better than its output in text, which may have come before.
    fn ended(
        &mut self,
        what: What,
        name: Text<'_>,
        item: &Item<'_>,
        id: Option<Text<'_>>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let Some(id) = id else {
            return Outcome::Unknown;
        };
        self.responses.acted(out);
        if !out.knows(&id) {
            shapes::announce(out, what, name, item, id.clone(), stamp);
            if what == What::Search {
                self.responses.searched(item.facts);
            }
        }
        if shapes::is_silent(what, item) {
            self.responses.ended_silently(id.to_string());
        }
        shapes::settle(out, what, item, id, stamp, true);
        Outcome::Mapped
    }

    // ---------------------------------------------------------------- usage, compaction

    /// `token_usage_record` (0.153 on): one for each model call; the token_count after it tells the call again.
    fn usage(&mut self, record: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        let turn = record.text_of("turn_id").unwrap_or_default();
        let response = record.text_of("response_id");
        let key = response.map(|response| format!("{}/{}", &*turn, &*response));
        let (total, usage) = (record.get("thread_token_usage"), record.get("usage"));
        match self
            .events
            .meter
            .record(out, total, usage, stamp, key.as_deref())
        {
            true => Outcome::Mapped,
            false => Outcome::Ignored("token count again"),
        }
    }

    /// The model's summary stands before this record as if it were an answer: it is taken back.
    fn compacted(&mut self, record: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        let alone = std::mem::take(&mut self.responses.alone);
        if alone > 0 {
            out.take_back(Kind::Message, alone, stamp);
        }
        let state = State::new("compaction")
            .with("phase", "end")
            .with("success", true)
            .with("summary", filled(record.text_of("message")));
        out.state(state, stamp);
    }
}

/// The thread that a fork or sub-agent comes from.
fn parent_of(meta: Value<'_>) -> Option<Text<'_>> {
    let parent = meta.text_of("parent_thread_id");
    parent
        .or_else(|| meta.text_of("forked_from_id"))
        .or_else(|| {
            let spawn = meta.path(&["source", "subagent", "thread_spawn"])?;
            spawn.text_of("parent_thread_id")
        })
}

/// True for a UUID of version 7: the time comes first, so that ids sort by it.
fn has_time(id: &str) -> bool {
    let bytes = id.as_bytes();
    id.is_ascii() && bytes.len() == 36 && bytes[14] == b'7' && bytes[8] == b'-'
}
