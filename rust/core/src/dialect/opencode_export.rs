//! OpenCode's stored sessions (recorded: 1.1.34, 1.2.27, 1.18.33), in three forms.
//!
//! The document of `opencode export`: `info` and `messages`, each with its parts. Dumps of the database (1.2 and later),
//! `{"table", "row"}` a line, and of the storage folder (1.1 and before), `{"file", "json"}` a line: there the messages
//! come first and the parts of all sessions after them, so what ends a message (its error, a compaction) is told when
//! the parts of a later one begin.
//!
//! 2.0 (by its source, and samples of others) exports the same document with messages that are whole: one for each step
//! of the model, each prompt, each compaction, each command that a person ran in between, and each time that the session
//! came to rest. Messages that go on are left out.
//!
//! More than on the stream: prompts, the text of a cut step, calls without an end, sub-agents' sessions (in dumps; the
//! `task` call names its session). A message that failed has `error`. The totals of a session hold no sub-agent.

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::opencode::{self, Failure, Seat, Settled};
use super::{Dialect, Make, Mapper, Outcome, SURE, Sign, filled, is_true, rule};
use crate::data::{Data, map};
use crate::emit::{Call, Emitter};
use crate::event::{Image, Item, Kind, Stamp, State, Tokens, iso_millis};
use crate::json::{Tape, Text, Value};
use crate::number::{count, price, total};
use crate::record::Record;
use crate::run::{Ending, Exit, Reducer};

pub const DIALECT: Dialect = Dialect {
    name: "opencode-export",
    sign,
    mapper: Make::of::<OpencodeExport>(),
    series: &[],
};

/// Tables of the database, and folders of the storage.
const PLACES: [&str; 7] = [
    "event",
    "message",
    "part",
    "project",
    "session",
    "session_diff",
    "todo",
];
const IGNORED_PLACES: &[(&str, &str)] = &[
    ("event", "event log"),
    ("project", "project"),
    ("session_diff", "changes of the session"),
    ("todo", "todo list"),
];
/// Parts that say nothing for events.
const IGNORED_PARTS: &[(&str, &str)] = &[
    ("agent", "agent"),
    ("patch", "changed files"),
    ("snapshot", "snapshot"),
    ("subtask", "sub-task"),
];

fn sign(record: Value<'_>) -> Option<Sign> {
    let info = record.get("info");
    if info.is_some_and(|info| info.get("projectID").is_some())
        && record.get("messages").is_some_and(|list| list.is_array())
    {
        let version = info.and_then(|info| info.text_of("version"));
        return Some(Sign {
            version: version.map(Text::into_string),
            ..Sign::of_document("a session with info and messages")?
        });
    }
    if let Some(table) = record.text_of("table")
        && PLACES.contains(&&*table)
        && let Some(row) = record.get("row").filter(Value::is_object)
    {
        let version = row.text_of("version").filter(|_| &*table == "session");
        let version = version.map(Text::into_string);
        return Sign::of_version(SURE, format!("a row of {}", &*table), version);
    }
    let file = record.text_of("file")?;
    let folder = folder_of(&file).filter(|folder| PLACES.contains(folder))?;
    record.get("json")?;
    Sign::new(SURE, format!("a stored file of {folder}"))
}

fn folder_of(path: &str) -> Option<&str> {
    path.ends_with(".json")
        .then(|| path.split('/').next().unwrap_or(path))
}

/// What a message says of itself.
#[derive(Deserialize, Serialize)]
struct Message {
    id: String,
    session: Option<String>,
    from_user: bool,
    model: Option<String>,
    created: Option<Text<'static>>,
    /// It was to have an error: what that says, if it says something.
    error: Option<Option<Failure<'static>>>,
    side: bool,
    /// The last text of a compaction.
    summary: Option<String>,
}

impl Message {
    fn new(id: String, session: Option<String>, info: Option<Value<'_>>) -> Self {
        let of = |key: &str| info.and_then(|info| info.get(key));
        let text = |key: &str| info.and_then(|info| info.text_of(key));
        let error = of("error").filter(Value::is_object);
        Message {
            id,
            session,
            from_user: text("role").as_deref() == Some("user"),
            model: filled(text("modelID"))
                .or_else(|| of("model").and_then(|model| model.text_of("id")))
                .map(Text::into_string),
            created: iso_millis(of("time").and_then(|time| time.get("created"))),
            error: error.map(|error| Failure::of(error).map(Failure::into_static)),
            side: is_true(of("summary")) || text("mode").as_deref() == Some("compaction"),
            summary: None,
        }
    }
}

/// What the three forms say of a session.
struct Session<'a> {
    id: Option<String>,
    parent: Option<String>,
    version: Option<Text<'a>>,
    model: Option<Text<'a>>,
    directory: Option<Text<'a>>,
    title: Option<Text<'a>>,
    tokens: Option<Tokens<'a>>,
}

impl<'a> Session<'a> {
    fn of_info(info: Value<'a>, parent: Option<String>) -> Self {
        let tokens = info.get("tokens").filter(Value::is_object);
        Session {
            id: info.text_of("id").map(Text::into_string),
            parent,
            version: info.text_of("version"),
            model: info.get("model").and_then(|model| model.text_of("id")),
            directory: filled(info.text_of("directory")).or_else(|| {
                info.get("location")
                    .and_then(|place| place.text_of("directory"))
            }),
            title: info.text_of("title"),
            tokens: tokens
                .map(|tokens| opencode::usage_of(Some(tokens), info.get("cost"), Some(true))),
        }
    }

    fn of_row(row: Value<'a>) -> Self {
        let model = decoded(row.get("model"), |model| {
            model.text_of("id").map(Text::into_string)
        });
        let of = |key: &str| row.get(key);
        let data = |key: &str| -> Data<'a> { row.get(key).into() };
        let [read, write] = ["tokens_cache_read", "tokens_cache_write"];
        let (output, reasoning) = (count(of("tokens_output")), count(of("tokens_reasoning")));
        Session {
            id: row.text_of("id").map(Text::into_string),
            parent: row.text_of("parent_id").map(Text::into_string),
            version: row.text_of("version"),
            model: model.flatten().map(Text::from),
            directory: row.text_of("directory"),
            title: row.text_of("title"),
            tokens: Some(Tokens {
                prompt: total([of("tokens_input"), of(read), of(write)]),
                completion: opencode::plus(output, reasoning),
                cached: count(of(read)),
                cost: price(of("cost")),
                extra: vec![
                    ("reasoning".into(), data("tokens_reasoning")),
                    (
                        "cache".into(),
                        map([("read", data(read)), ("write", data(write))]),
                    ),
                ],
            }),
        }
    }
}

#[derive(Default, Deserialize, Serialize)]
struct OpencodeExport {
    /// By session.
    seats: HashMap<String, Seat>,
    /// Dumps: the messages that have not ended, by session in order, and where each session is in it.
    waiting: Vec<VecDeque<Message>>,
    places: HashMap<String, usize>,
    /// Session of a sub-agent: the call that delegated.
    children: HashMap<String, String>,
    /// Those that were told: their parent session.
    sessions: HashMap<String, Option<String>>,
    /// The session that the run is of.
    main: Option<String>,
}

impl Mapper for OpencodeExport {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        let value = record.value();
        let messages = value.get("messages").filter(Value::is_array);
        let info = value.get("info").filter(Value::is_object);
        if let (Some(messages), Some(info)) = (messages, info) {
            self.document(info, messages, out);
            return Outcome::Mapped;
        }
        if let Some(row) = value.get("row").filter(Value::is_object) {
            let table = value.text_of("table").unwrap_or_default();
            return self.row(&table, row, out);
        }
        let file = value.text_of("file");
        let folder = file.as_deref().and_then(folder_of).unwrap_or("");
        if let ignored @ Outcome::Ignored(_) = rule(IGNORED_PLACES, folder) {
            return ignored;
        }
        let Some(stored) = value.get("json").filter(Value::is_object) else {
            return Outcome::Unknown;
        };
        let text = |key: &str| stored.text_of(key).map(Text::into_string);
        match folder {
            "session" => {
                self.session(Session::of_info(stored, text("parentID")), out);
                Outcome::Mapped
            }
            "message" => self.message(text("id"), text("sessionID"), stored),
            "part" => {
                let id = stored.text_of("id");
                self.later_part(text("messageID"), text("sessionID"), id, stored, out)
            }
            _ => Outcome::Unknown,
        }
    }

    fn close(&mut self, out: &mut Emitter<'_>) {
        for message in std::mem::take(&mut self.waiting).into_iter().flatten() {
            self.end(message, out);
        }
    }

    fn judge(&self, _run: &Reducer, _exit: &Exit) -> Option<Ending> {
        let main = self.main.as_deref().unwrap_or("");
        self.seats.get(main)?.judge()
    }
}

impl OpencodeExport {
    // ---------------------------------------------------------------- the three forms

    fn document(&mut self, info: Value<'_>, messages: Value<'_>, out: &mut Emitter<'_>) {
        self.session(Session::of_info(info, None), out);
        let session = info.text_of("id").map(Text::into_string);
        for item in messages.items().filter(Value::is_object) {
            let Some(told) = item.get("info").filter(Value::is_object) else {
                let id = item.text_of("id").map(Text::into_string);
                let message = Message::new(id.unwrap_or_default(), session.clone(), Some(item));
                self.whole(message, item, out);
                continue;
            };
            let id = told.text_of("id").map(Text::into_string);
            let mut message = Message::new(id.unwrap_or_default(), session.clone(), Some(told));
            let parts = item
                .get("parts")
                .into_iter()
                .flat_map(|parts| parts.items());
            for part in parts.filter(Value::is_object) {
                self.part(&mut message, part.text_of("id"), part, out);
            }
            self.end(message, out);
        }
    }

    fn row(&mut self, table: &str, row: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let text = |key: &str| row.text_of(key).map(Text::into_string);
        if table == "session" {
            self.session(Session::of_row(row), out);
            return Outcome::Mapped;
        }
        if table == "message" || table == "part" {
            let told = decoded(row.get("data"), |data| {
                if !data.is_object() {
                    return Outcome::Unknown;
                }
                if table == "message" {
                    return self.message(text("id"), text("session_id"), data);
                }
                let id = row.text_of("id");
                self.later_part(text("message_id"), text("session_id"), id, data, out)
            });
            return told.unwrap_or(Outcome::Unknown);
        }
        rule(IGNORED_PLACES, table)
    }

    fn message(&mut self, id: Option<String>, session: Option<String>, info: Value<'_>) -> Outcome {
        let Some(id) = id else {
            return Outcome::Unknown;
        };
        let message = Message::new(id, session, Some(info));
        let place = self.place(message.session.as_deref());
        self.waiting[place].push_back(message);
        Outcome::Ignored("message, told with its parts")
    }

    fn place(&mut self, session: Option<&str>) -> usize {
        let session = session.unwrap_or("");
        let known = self.places.get(session).copied();
        if let Some(place) = known.filter(|place| *place < self.waiting.len()) {
            return place;
        }
        self.waiting.push(VecDeque::new());
        self.places
            .insert(session.to_owned(), self.waiting.len() - 1);
        self.waiting.len() - 1
    }

    /// A part in a dump: the messages before its own are over.
    fn later_part(
        &mut self,
        message_id: Option<String>,
        session: Option<String>,
        id: Option<Text<'_>>,
        part: Value<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let Some(message_id) = message_id else {
            return Outcome::Unknown;
        };
        let place = self.place(session.as_deref());
        let mut next = self.waiting[place].pop_front();
        while let Some(message) = next.take_if(|message| message.id < message_id) {
            self.end(message, out); // ids ascend in time
            next = self.waiting[place].pop_front();
        }
        let mut message = match next {
            Some(message) if message.id == message_id => message,
            other => {
                if let Some(later) = other {
                    self.waiting[place].push_front(later);
                }
                Message::new(message_id, session, None)
            }
        };
        let outcome = self.part(&mut message, id, part, out);
        self.waiting[place].push_front(message);
        outcome
    }

    // ---------------------------------------------------------------- sessions, messages, parts

    /// A session; one whose parent is in the same dump is a sub-agent's.
    fn session(&mut self, session: Session<'_>, out: &mut Emitter<'_>) {
        if let Some(id) = &session.id {
            self.sessions.insert(id.clone(), session.parent.clone());
        }
        if let Some(parent) = &session.parent
            && (self.sessions.contains_key(parent)
                || session
                    .id
                    .as_ref()
                    .is_some_and(|id| self.children.contains_key(id)))
        {
            return;
        }
        let id = session.id.map(Text::from);
        let stamp = Stamp {
            session_id: id.clone(),
            ..Stamp::default()
        };
        let details = [
            ("sessionId", id),
            ("version", session.version),
            ("model", session.model),
            ("cwd", session.directory),
            ("title", session.title),
        ];
        out.session_state(&details, &stamp);
        if let Some(tokens) = session.tokens.filter(|tokens| tokens.prompt.is_some()) {
            out.run_usage_so_far(&tokens, &stamp);
        }
    }

    /// The call that delegated to the session; None for the main one.
    fn thread(&mut self, session: Option<&str>) -> Option<String> {
        let session = session.filter(|session| self.main.as_deref() != Some(session))?;
        if let Some(call) = self.children.get(session) {
            return Some(call.clone());
        }
        let parent = self.sessions.get(session).and_then(Option::as_ref);
        if parent.is_some_and(|parent| self.sessions.contains_key(parent)) {
            return Some(session.to_owned()); // a sub-agent whose call is not there
        }
        if self.main.is_none() {
            self.main = Some(session.to_owned());
        }
        None
    }

    fn stamp<'a>(&mut self, message: &Message) -> Stamp<'a> {
        Stamp {
            session_id: message.session.clone().map(Text::from),
            timestamp: message.created.clone(),
            model: message.model.clone().map(Text::from),
            parent: self.thread(message.session.as_deref()).map(Text::from),
            ..Stamp::default()
        }
    }

    fn part(
        &mut self,
        message: &mut Message,
        id: Option<Text<'_>>,
        part: Value<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let kind = part.text_of("type").unwrap_or_default();
        let mut stamp = self.stamp(message);
        stamp.message_id = Some(message.id.clone().into());
        stamp.timestamp = when(part).or(stamp.timestamp);
        let session = message.session.clone().unwrap_or_default();
        let seat = self.seats.entry(session).or_default();
        match &*kind {
            "text" | "file" if message.from_user => {
                prompted(seat, &stamp, out);
                if &*kind == "text" {
                    return opencode::user_text(part, &stamp, out);
                }
                return file(Kind::User, part, &stamp, out);
            }
            "compaction" => {
                let trigger = if is_true(part.get("overflow")) {
                    "overflow"
                } else if is_true(part.get("auto")) {
                    "auto"
                } else {
                    "manual"
                };
                let state = State::new("compaction").with("phase", "start");
                out.state(state.with("trigger", trigger), &stamp);
                return Outcome::Mapped;
            }
            "retry" => {
                let state = State::new("retry")
                    .with("phase", "start")
                    .with("attempt", count(part.get("attempt")))
                    .with(
                        "message",
                        part.get("error").and_then(opencode::error_message),
                    );
                out.state(state, &stamp);
                return Outcome::Mapped;
            }
            "file" => return file(Kind::Message, part, &stamp, out),
            "tool" => {
                delegated(&mut self.children, part);
            }
            "text" if message.side => {
                message.summary = part.text_of("text").map(Text::into_string);
            }
            _ => {}
        }
        match opencode::part(&kind, id, part, seat, &stamp, message.side, out) {
            Outcome::Unknown => rule(IGNORED_PARTS, &kind),
            outcome => outcome,
        }
    }

    /// All parts of the message were there.
    fn end(&mut self, message: Message, out: &mut Emitter<'_>) {
        let stamp = self.stamp(&message);
        if message.side {
            let state = State::new("compaction")
                .with("phase", "end")
                .with("success", message.error.is_none())
                .with("summary", message.summary);
            out.state(state, &stamp);
        }
        let Some(Some(failure)) = message.error else {
            return;
        };
        failure.tell(&stamp, out);
        let seat = self
            .seats
            .entry(message.session.unwrap_or_default())
            .or_default();
        if stamp.thread().is_none() {
            seat.turning = false;
            out.state(failure.end_of_turn(seat.outcome_of(&failure)), &stamp);
        }
    }

    // ---------------------------------------------------------------- messages of 2.0

    fn whole(&mut self, message: Message, told: Value<'_>, out: &mut Emitter<'_>) {
        let kind = told.text_of("type").unwrap_or_default();
        let mut stamp = self.stamp(&message);
        stamp.message_id = Some(message.id.clone().into());
        let session = message.session.clone().unwrap_or_default();
        let seat = self.seats.entry(session).or_default();
        match &*kind {
            "user" => {
                prompted(seat, &stamp, out);
                opencode::user_text(told, &stamp, out);
                for image in dicts(told.get("files")).filter_map(attached) {
                    out.image(Kind::User, &image, &stamp);
                }
            }
            // what the harness says to the model in a user's place
            "synthetic" | "skill" => {
                opencode::said(told.text_of("text"), true, &stamp, out);
            }
            "assistant" => self.step(message, told, &stamp, out),
            "compaction" => compaction(message, told, &stamp, out),
            "shell" => command(told, &stamp, out),
            "idle" if stamp.thread().is_none() => {
                idle(told.text_of("outcome"), seat, &stamp, out);
            }
            _ => {}
        }
    }

    fn step(
        &mut self,
        message: Message,
        told: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) {
        let session = message.session.clone().unwrap_or_default();
        let seat = self.seats.entry(session).or_default();
        seat.step_start(stamp, out);
        if let Some(retry) = told.get("retry").filter(Value::is_object) {
            let reason = retry.get("error").and_then(opencode::error_message);
            let state = State::new("retry")
                .with("phase", "start")
                .with("attempt", count(retry.get("attempt")))
                .with("message", reason);
            out.state(state, stamp);
        }
        for item in dicts(told.get("content")) {
            let kind = item.text_of("type").unwrap_or_default();
            if &*kind == "tool" {
                delegated(&mut self.children, item);
                call(item, seat, stamp, out);
            } else {
                opencode::part(&kind, None, item, seat, stamp, false, out);
            }
        }
        spent(&message, told, stamp, false, out);
        if let Some(finish) = told.text_of("finish").filter(|_| message.error.is_none()) {
            seat.step_end(Some(finish), stamp, out);
        }
        self.end(message, out);
    }
}

fn prompted(seat: &mut Seat, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
    if stamp.thread().is_none() && !seat.turning {
        seat.turning = true;
        out.state(State::new("turn").with("phase", "start"), stamp);
    }
}

/// A `task` call names the session of its sub-agent; in 2.0 one of `subagent`, which has no other id.
fn delegated(children: &mut HashMap<String, String>, part: Value<'_>) {
    let metadata = part.path(&["state", "metadata"]);
    let of = |key: &str| metadata.and_then(|metadata| filled(metadata.text_of(key)));
    let child = of("sessionId").or_else(|| of("sessionID"));
    let call = filled(part.text_of("callID")).or_else(|| filled(part.text_of("id")));
    if let (Some(child), Some(call)) = (child, call) {
        children.insert(child.into_string(), call.into_string());
    }
}

fn call(item: Value<'_>, seat: &mut Seat, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
    let state = item.get("state").filter(Value::is_object);
    let (Some(call_id), Some(state)) = (item.text_of("id"), state) else {
        return;
    };
    seat.called = true;
    let time = item.get("time");
    let at = |key: &str| time.and_then(|time| time.get(key));
    let started = at("ran")
        .filter(|time| !time.is_null())
        .or_else(|| at("created"));
    let input = state.get("input").filter(Value::is_object); // text while it streams
    let name = item.text_of("name");
    let planning = name.as_deref() == Some("todowrite");
    let status = state.text_of("status").unwrap_or_default();
    let announced = Call {
        status: if &*status == "running" {
            "in_progress"
        } else {
            "pending"
        },
        started_at: iso_millis(started),
        ..Call::new(call_id.borrow(), name, input)
    };
    out.call(announced, stamp);
    if !matches!(&*status, "completed" | "error") {
        return;
    }
    let blocks = dicts(state.get("content"));
    let mut content: Vec<Item<'_>> = blocks
        .filter_map(|block| match opencode::image(block, "uri") {
            Some(image) => Some(Item::Image(image)),
            None => filled(block.text_of("text")).map(Item::Text),
        })
        .collect();
    if &*status == "error" {
        let reason = state.get("error").and_then(opencode::error_message);
        if let Some(reason) = &reason {
            seat.failed(reason);
        }
        if content.is_empty() {
            content.extend(filled(reason).map(Item::Text));
        }
    }
    let metadata = state.get("metadata").filter(Value::is_object);
    let settled = Settled {
        call_id,
        ok: &*status == "completed",
        title: None,
        content,
        facts: metadata,
        started,
        ended: at("completed"),
        raw_output: metadata,
        todos: input
            .filter(|_| planning)
            .and_then(|input| input.get("todos")),
    };
    settled.tell(stamp, out);
}

fn compaction(message: Message, told: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
    let state = State::new("compaction").with("phase", "start");
    out.state(state.with("trigger", told.text_of("reason")), stamp);
    spent(&message, told, stamp, true, out);
    let state = State::new("compaction")
        .with("phase", "end")
        .with("success", message.error.is_none())
        .with("summary", told.text_of("summary"));
    out.state(state, stamp);
    if let Some(Some(failure)) = message.error {
        failure.tell(stamp, out);
    }
}

/// A command that a person ran in the session; earlier versions store it as a call, too.
fn command(told: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
    let Some(call_id) = told.text_of("shellID") else {
        return;
    };
    let time = told.get("time");
    let at = |key: &str| time.and_then(|time| time.get(key));
    let announced = Call {
        started_at: iso_millis(at("created")),
        ..Call::new(
            call_id.borrow(),
            Some("shell".into()),
            map([("command", told.get("command").into())]),
        )
    };
    out.call(announced, stamp);
    let output = told
        .get("output")
        .and_then(|output| output.text_of("output"));
    let settled = Settled {
        call_id,
        ok: told.text_of("status").as_deref() == Some("exited"),
        title: None,
        content: filled(output).map(Item::Text).into_iter().collect(),
        facts: Some(told),
        started: at("created"),
        ended: at("completed"),
        raw_output: None,
        todos: None,
    };
    settled.tell(stamp, out);
}

fn spent(message: &Message, told: Value<'_>, stamp: &Stamp<'_>, side: bool, out: &mut Emitter<'_>) {
    if let Some(tokens) = told.get("tokens").filter(Value::is_object) {
        let tokens = opencode::usage_of(Some(tokens), told.get("cost"), Some(true));
        let key = format!("message:{}", message.id);
        out.call_usage(&tokens, stamp, Some(&key), side);
    }
}

/// The session came to rest. What the last step said of the end is more exact, unless it ended well.
fn idle(told: Option<Text<'_>>, seat: &mut Seat, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
    let outcome = match told.as_deref() {
        Some("failed") => "failed",
        Some("interrupted") => "cancelled",
        Some("succeeded") => "completed",
        _ => return,
    };
    if !seat.turning && (outcome == "completed" || !seat.well) {
        return;
    }
    seat.turning = false;
    let state = State::new("turn")
        .with("phase", "end")
        .with("outcome", if seat.declined { "denied" } else { outcome })
        .with("reason", told);
    out.state(state, stamp);
}

fn dicts(value: Option<Value<'_>>) -> impl Iterator<Item = Value<'_>> {
    let items = value.into_iter().flat_map(|list| list.items());
    items.filter(Value::is_object)
}

/// An image from a file of a prompt, whose bytes stand beside it; None if it is no image.
fn attached(file: Value<'_>) -> Option<Image<'_>> {
    let mime = file
        .text_of("mime")
        .filter(|mime| mime.starts_with("image/"));
    match (mime, file.text_of("data")) {
        (Some(mime), Some(data)) => Some(Image {
            data,
            mime,
            uri: None,
        }),
        _ => opencode::image(file, "uri"),
    }
}

fn file(kind: Kind, part: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
    match opencode::image(part, "url") {
        Some(image) => {
            out.image(kind, &image, stamp);
            Outcome::Mapped
        }
        None => Outcome::Ignored("file"),
    }
}

/// What `read` makes of a column that holds JSON text; None if it does not.
fn decoded<T>(value: Option<Value<'_>>, read: impl FnOnce(Value<'_>) -> T) -> Option<T> {
    let text = value?.text()?;
    let mut tape = Tape::new();
    let doc = tape.parse(text.as_bytes()).ok()?;
    Some(read(doc.root()))
}

fn when(part: Value<'_>) -> Option<Text<'static>> {
    let time = part.get("time")?;
    let at = |key: &str| iso_millis(time.get(key));
    at("end").or_else(|| at("start")).or_else(|| at("created"))
}
