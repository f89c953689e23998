//! Codex: `codex exec --json` and what came before it (recorded from 0.20 to 0.171, and the TypeScript CLI 0.1).
//!
//! Four eras, told apart record by record: `thread.started` and items with a `type` (0.44 on); `session.created` and
//! items with an `item_type`, without turns and usage (`--experimental-json`, 0.41 to 0.43); a line of settings, the
//! prompt, and `{"id", "msg"}` events (0.8 to 0.43, see `codex_events`); bare items of the model API (`codex -q --json`
//! of the TypeScript CLI, see `codex_responses`). There are no deltas but for raw reasoning, no clock, no model. `error`
//! is a retry notice unless `turn.failed` repeats it. Item ids are counted per process. 0.98 prints a sub-agent's items
//! into the parent's without a mark. A web_search item has the key `id` twice: the first is the item's.

use std::collections::HashMap;
use std::ops::Bound;

use serde::{Deserialize, Serialize};

use super::codex_events::{Agents, DELTAS, Events, end_turn, tell_plan};
use super::codex_responses::{Responses, is_response, response_sign};
use super::codex_shapes::{self as shapes, Item, What, is, other_item};
use super::{Dialect, Make, Mapper, Outcome, SURE, Sign, filled, has_all, key_count};
use crate::emit::{Emitter, Update};
use crate::event::{Kind, PlanEntry, Stamp, State};
use crate::json::{Series, Text, Value};
use crate::record::Record;
use crate::run::{Ending, Exit, LastWord, Reducer};
use crate::tool;

pub const DIALECT: Dialect = Dialect {
    name: "codex",
    sign,
    mapper: Make::of::<Codex>(),
    series: SERIES,
};

/// Deltas of one item, in the envelope of the events.
const SERIES: &[Series] = &[Series {
    is: &[(&["msg", "type"], DELTAS)],
    text: &["msg", "delta"],
    same: &[&["msg", "item_id"]],
    without: &[&["type"]],
    ..Series::NO_FACTS
}];

fn is_item_record(kind: &str) -> bool {
    matches!(kind, "item.started" | "item.updated" | "item.completed")
}

fn sign(record: Value<'_>) -> Option<Sign> {
    let old = || Some("0.8 to 0.43".to_owned());
    let object = |key| record.get(key).filter(Value::is_object);
    let kind = record.text_of("type");
    match kind.as_deref() {
        Some("thread.started") if record.text_of("thread_id").is_some() => {
            return Sign::new(SURE, "thread.started with thread_id");
        }
        Some("session.created") if record.text_of("session_id").is_some() => {
            let version = Some("0.41 to 0.43".to_owned());
            return Sign::of_version(SURE, "session.created with session_id", version);
        }
        Some(kind) if is_item_record(kind) => {
            if let Some(item) = object("item") {
                for key in ["type", "item_type"] {
                    if item.text_of(key).is_some() {
                        return Sign::new(SURE, format!("{kind} with item.{key}"));
                    }
                }
            }
        }
        Some("turn.started") if key_count(record) == 1 => {
            return Sign::new(60, "turn.started with no other key");
        }
        Some("turn.completed") if object("usage").is_some() => {
            return Sign::new(60, "turn.completed with usage");
        }
        Some("turn.failed") if object("error").is_some() => {
            return Sign::new(60, "turn.failed with an error object");
        }
        Some("error") if key_count(record) == 2 && has_all(record, &["message"]) => {
            return Sign::new(5, "an error record with a message");
        }
        _ => {}
    }
    if record.text_of("id").is_some() && object("msg").is_some() && key_count(record) == 2 {
        return Sign::of_version(SURE, "an event in an {id, msg} envelope", old());
    }
    if has_all(record, &["reasoning effort", "workdir"]) {
        return Sign::of_version(SURE, "a line of settings", old());
    }
    if key_count(record) == 1 && has_all(record, &["prompt"]) {
        return Sign::new(10, "a prompt line");
    }
    response_sign(record, 60)
}

/// Whose records come. One file may have runs of several eras, one behind another.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
enum Era {
    /// Threads, turns and items, from 0.41 on.
    Exec,
    /// Settings, the prompt and events in their envelope.
    Events,
    /// Items of the TypeScript CLI.
    Responses,
}

#[derive(Default, Deserialize, Serialize)]
struct Codex {
    session: Option<String>,
    /// Of the run that goes on.
    era: Option<Era>,
    /// The run of the TypeScript CLI has ended in an error.
    over: bool,
    /// How many calls the runs before this one made.
    calls_before: u32,
    exec: Exec,
    events: Events,
    agents: Agents,
    responses: Responses,
}

/// What is known of the running process.
#[derive(Default, Deserialize, Serialize)]
struct Exec {
    /// Calls of this process, and the sub-agent that they belong to.
    items: HashMap<String, Option<String>>,
    /// The process prints turn records.
    turned: bool,
    turn_open: bool,
    /// The start of the turn was told with the start of the process.
    begun: bool,
    /// The agent said something in this process.
    said: bool,
    /// A turn began in an open turn: a sub-agent's (0.98).
    nested: bool,
    /// Thread of a sub-agent: id of the call that spawned it.
    agents: HashMap<String, String>,
    /// Open calls that wait for sub-agents, and the call that spawned the first of them.
    waits: Vec<(String, String)>,
    plan: Option<Vec<PlanEntry<'static>>>,
    /// A call was refused, and no text or call came since.
    refused: bool,
    /// An error that is fatal if nothing follows.
    unsure: Option<String>,
}

impl Mapper for Codex {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        let value = record.value();
        let kind = record.kind();
        let begins = self.begins(kind.as_deref(), value);
        let behind = begins.is_some_and(|era| self.begin(era, out));
        self.exec.unsure = None;
        let Some(kind) = kind else {
            return self.old(value, behind, out);
        };
        let kind = &*kind;
        if matches!(kind, "thread.started" | "session.created") {
            let id = filled(value.text_of("thread_id")).or_else(|| value.text_of("session_id"));
            if let Some(id) = filled(id.clone()) {
                self.session = Some(id.into_string());
            }
            self.exec.start(out);
            out.session_state(&[("sessionId", id)], &Stamp::default());
            // 0.41 to 0.43 have no turn records: the session is the turn. And a run behind another is begun, whether or
            // not its turn comes: the end of the one before is not its own.
            self.exec.begun = behind;
            if behind || kind == "session.created" {
                let stamp = Stamp {
                    session_id: self.session.as_deref().map(Text::from),
                    ..Stamp::default()
                };
                out.state(State::new("turn").with("phase", "start"), &stamp);
            }
            return Outcome::Mapped;
        }
        if is_response(kind) {
            if behind {
                out.state(State::new("turn").with("phase", "start"), &Stamp::default());
            }
            return self.response(value, out);
        }
        let stamp = Stamp {
            session_id: self.session.as_deref().map(Text::from),
            ..Stamp::default()
        };
        self.exec.map(kind, value, &stamp, out)
    }

    fn close(&mut self, out: &mut Emitter<'_>) {
        self.give_up(out);
    }

    fn judge(&self, run: &Reducer, exit: &Exit) -> Option<Ending> {
        let progress = &run.progress;
        let (said, endless) = match self.era? {
            Era::Exec => (self.exec.said, !self.exec.turned),
            Era::Events => (self.events.said, true),
            Era::Responses => (self.responses.said, true),
        };
        let since = (Bound::Excluded(self.calls_before), Bound::Unbounded);
        let mut open = progress.open_calls.range(since);
        let over = said && progress.last_word == LastWord::Answer && open.next().is_none();
        (over && endless && !exit.failed()).then(|| {
            let why = "this version prints no end, and the last word is an answer";
            Ending::new("completed", None, why)
        })
    }
}

fn end(outcome: &'static str, reason: &str, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
    let state = State::new("end")
        .with("outcome", outcome)
        .with("reason", reason);
    out.state(state, stamp);
}

impl Codex {
    /// The era of the run that this record begins. A run of the TypeScript CLI has no first record of its own, and the
    /// first run of a source may have lost it.
    fn begins(&self, kind: Option<&str>, value: Value<'_>) -> Option<Era> {
        let first = self.era.is_none();
        let Some(kind) = kind else {
            let old = ["msg", "prompt"].iter().any(|key| value.get(key).is_some());
            return (has_all(value, &["workdir"]) || first && old).then_some(Era::Events);
        };
        if is_response(kind) {
            let begins = self.era != Some(Era::Responses) || self.over;
            return begins.then_some(Era::Responses);
        }
        let exec = match kind {
            "thread.started" | "session.created" => true,
            "error" | "turn.started" | "turn.completed" | "turn.failed" => first,
            _ => first && is_item_record(kind),
        };
        exec.then_some(Era::Exec)
    }

    /// A run begins: the one before ended here. Says if there was one.
    fn begin(&mut self, era: Era, out: &mut Emitter<'_>) -> bool {
        self.give_up(out);
        let behind = self.era.is_some();
        self.era = Some(era);
        self.over = false;
        self.calls_before = out.call_count();
        self.exec.said = false;
        self.events.said = false;
        self.responses.said = false;
        behind
    }

    /// Without turn records (0.42) the last record decides: an error ends the run.
    fn give_up(&self, out: &mut Emitter<'_>) {
        let Some(message) = &self.exec.unsure else {
            return;
        };
        let stamp = Stamp {
            session_id: self.session.as_deref().map(Text::from),
            ..Stamp::default()
        };
        let outcome = shapes::outcome_of(Some(message), None);
        out.error(message.as_str(), &stamp, true);
        end(outcome, "error", &stamp, out);
    }

    // ---------------------------------------------------------------- before 0.44

    /// Lines without a type: the settings, the prompt, and events in their envelope.
    fn old(&mut self, value: Value<'_>, behind: bool, out: &mut Emitter<'_>) -> Outcome {
        let stamp = Stamp::default();
        if let Some(msg) = value.get("msg").filter(Value::is_object) {
            return self.events.map(msg, stamp, &mut self.agents, out);
        }
        if has_all(value, &["workdir"]) {
            let details = [
                ("model", value.text_of("model")),
                ("cwd", value.text_of("workdir")),
            ];
            out.session_state(&details, &stamp);
            self.events.begun = behind;
            if behind {
                out.state(State::new("turn").with("phase", "start"), &stamp);
            }
            return Outcome::Mapped;
        }
        let Some(prompt) = value.text_of("prompt") else {
            return Outcome::Unknown;
        };
        out.whole(Kind::User, prompt, &stamp);
        Outcome::Mapped
    }

    /// An item of the TypeScript CLI. What failed is a system message with an id of its own kind.
    fn response(&mut self, item: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let id = item.text_of("id").unwrap_or_default();
        let system = item.text_of("type").as_deref() == Some("message")
            && item.text_of("role").as_deref() == Some("system");
        let mut stamp = Stamp::default();
        if system && id.starts_with("error-") {
            let message = shapes::joined(shapes::texts_of(item.get("content")));
            let outcome = shapes::outcome_of(Some(&message), None);
            out.error(message, &stamp, true);
            end(outcome, "error", &stamp, out);
            self.over = true;
            return Outcome::Mapped;
        }
        self.responses.map(item, &mut stamp, out)
    }
}

impl Exec {
    fn map(
        &mut self,
        kind: &str,
        value: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        match kind {
            _ if is_item_record(kind) => match value.get("item").filter(Value::is_object) {
                Some(item) => self.item(kind, item, value, stamp, out),
                None => Outcome::Unknown,
            },
            "turn.started" => {
                self.turned = true;
                if self.turn_open {
                    self.nested = true;
                    return Outcome::Ignored("turn of a sub-agent");
                }
                self.turn_open = true;
                if !std::mem::take(&mut self.begun) {
                    out.state(State::new("turn").with("phase", "start"), stamp);
                }
                Outcome::Mapped
            }
            "turn.completed" => {
                // A sum over the thread: a resumed run prints the tokens of the runs before it too (0.98 and later).
                if let Some(usage) = value.get("usage").filter(Value::is_object) {
                    out.run_usage(&shapes::usage_of(usage), stamp, None);
                }
                let outcome = if self.refused { "denied" } else { "completed" };
                self.end(outcome, kind, stamp, out);
                Outcome::Mapped
            }
            "turn.failed" => {
                let message = match value.get("error") {
                    Some(error) if error.is_object() => error.text_of("message"),
                    error => error.and_then(|error| error.text()),
                };
                let outcome = shapes::outcome_of(message.as_deref(), None);
                if let Some(message) = message {
                    out.error(message, stamp, true);
                }
                self.end(outcome, kind, stamp, out);
                Outcome::Mapped
            }
            "error" => {
                let message = value.text_of("message").unwrap_or_default();
                match shapes::retry_of(&message) {
                    Some(retry) => shapes::tell_retry(out, message, Some(retry), stamp),
                    None => {
                        if !self.turned {
                            self.unsure = Some(message.to_string());
                        }
                        out.notice(message, stamp);
                    }
                }
                Outcome::Mapped
            }
            "request_user_input" => {
                let state = State::new("approval")
                    .with("phase", "requested")
                    .with("toolCallId", value.text_of("call_id"));
                out.state(state, stamp);
                Outcome::Mapped
            }
            "item.plan.delta" => Outcome::Ignored("text of a plan"),
            _ => Outcome::Unknown,
        }
    }

    // ---------------------------------------------------------------- sessions and turns

    /// A process starts: its items are counted from 0 again, also if the thread is an old one.
    fn start(&mut self, out: &mut Emitter<'_>) {
        out.commit(None);
        out.next_turn();
        self.items.clear();
        self.waits.clear();
        self.turned = false;
        self.turn_open = false;
        self.nested = false;
        self.refused = false;
    }

    fn end(
        &mut self,
        outcome: &'static str,
        reason: &str,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) {
        self.turned = true;
        self.turn_open = false;
        self.nested = false;
        self.refused = false;
        self.waits.clear();
        end_turn(outcome, Some(reason.into()), stamp, out);
        end(outcome, reason, stamp, out);
    }

    // ---------------------------------------------------------------- items

    fn item<'a>(
        &mut self,
        record_kind: &str,
        item: Value<'a>,
        record: Value<'a>,
        stamp: &Stamp<'a>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let name = filled(item.text_of("type")).or_else(|| item.text_of("item_type"));
        let name = name.unwrap_or_default();
        let Some(what) = What::of(&name) else {
            return other_item(&name);
        };
        match what {
            What::Todo => return self.todo(item, stamp, out),
            What::Error => {
                out.notice(item.text_of("message").unwrap_or_default(), stamp);
                return Outcome::Mapped;
            }
            _ => {}
        }
        let id = match what {
            What::Search => {
                let first = record.first("item").and_then(|item| item.first("id"));
                first.and_then(|id| id.text())
            }
            _ => item.text_of("id"),
        };
        let Some(id) = id else {
            return Outcome::Unknown;
        };
        let parent = match self.items.get(&*id) {
            Some(parent) => parent.clone(),
            None => self.delegate(what),
        };
        let mut stamp = stamp.clone();
        stamp.parent = parent.clone().map(Text::from);
        if what.is_call() {
            if !self.items.contains_key(&*id) {
                self.items.insert(id.to_string(), parent);
                let call = Item::new(item);
                shapes::announce(out, what, name, &call, id.clone(), &stamp);
            }
            return self.call(record_kind, what, item, id, &stamp, out);
        }
        let chunk = match what {
            What::Message => Kind::Message,
            What::Reasoning => Kind::Thought,
            What::User => Kind::User,
            _ => return Outcome::Ignored("item"),
        };
        let text = filled(item.text_of("text"));
        let text = text.unwrap_or_else(|| shapes::lines(shapes::strings(item.get("summary"))));
        if text.is_empty() {
            return Outcome::Ignored("empty text");
        }
        stamp.message_id = Some(id.clone());
        out.final_text(chunk, &*id, text, &stamp);
        if record_kind == "item.completed" {
            out.settle(chunk, &*id, stamp.thread());
        }
        if chunk == Kind::Message {
            self.refused = false;
            self.said = true;
        }
        Outcome::Mapped
    }

    /// The sub-agent that a new item belongs to. While the parent waits for one, what comes is the sub-agent's, if this
    /// version prints a sub-agent's items at all: then it printed the start of its turn.
    fn delegate(&self, what: What) -> Option<String> {
        if !self.nested || what == What::Agent {
            return None;
        }
        self.waits.first().map(|(_, spawn)| spawn.clone())
    }

    fn call(
        &mut self,
        record_kind: &str,
        what: What,
        item: Value<'_>,
        id: Text<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        if what == What::Agent {
            self.follow(record_kind, item, &id);
        }
        if record_kind == "item.completed" {
            let item = Item::new(item);
            self.refused = item.status.as_deref() == Some("declined");
            return match shapes::settle(out, what, &item, id, stamp, false) {
                true => Outcome::Mapped,
                false => Outcome::Ignored("item again"),
            };
        }
        self.refused = false;
        if record_kind == "item.updated" && what == What::Edit {
            shapes::amend(out, &Item::new(item), id, stamp);
        } else if record_kind == "item.updated" {
            let output = filled(item.text_of("aggregated_output"));
            let update = Update {
                content: crate::event::text_content(output),
                ..Update::new(id, Some("in_progress"))
            };
            out.update(update, stamp);
        }
        Outcome::Mapped
    }

    /// Remembers which call spawned which thread, and which call waits for it.
    fn follow(&mut self, record_kind: &str, item: Value<'_>, id: &str) {
        let threads = shapes::strings(item.get("receiver_thread_ids"));
        let tool = item.text_of("tool");
        if record_kind == "item.completed" {
            self.waits.retain(|(wait, _)| wait != id);
            if tool.as_deref() == Some("spawn_agent") {
                let spawned = threads
                    .into_iter()
                    .map(|thread| (thread.into_string(), id.to_owned()));
                self.agents.extend(spawned);
            }
        } else if tool.as_deref() == Some("wait") {
            let spawn = threads.iter().find_map(|thread| self.agents.get(&**thread));
            if let Some(spawn) = spawn {
                match self.waits.iter_mut().find(|(wait, _)| wait == id) {
                    Some((_, known)) => known.clone_from(spawn),
                    None => self.waits.push((id.to_owned(), spawn.clone())),
                }
            }
        }
    }

    fn todo(&mut self, item: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        let steps = item.get("items");
        let entries = steps.into_iter().flat_map(|steps| steps.items());
        let entries = entries.filter_map(|step| {
            let done = is(step.get("completed"), true);
            let status = if done { "completed" } else { "pending" };
            Some(tool::plan_entry(step.text_of("text")?, Some(status), None))
        });
        tell_plan(Some(entries.collect()), &mut self.plan, stamp, out)
    }
}
