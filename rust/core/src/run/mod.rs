//! The run reducer: events in, the final state of the session out.
//!
//! It knows no dialect: what the wire means was decided by the mapper. Texts, calls, usage and errors are kept as they
//! come; [`verdict`] decides how the run ended when it is asked.

mod usage;
mod verdict;

use std::borrow::Cow;
use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::data::{Data, map};
use crate::emit::cut_chars;
use crate::event::{
    Chunk, Content, Event, Item, Kind, Place, Sink, State, ToolCall, ToolCallUpdate, Update,
};
use crate::json::Text;
use crate::number::Number;
use crate::report::Report;

pub use verdict::{Ending, Exit, LastWord, Progress};

/// What a dialect says of a stream that has not said how it ended; see [`verdict`].
pub type Judge<'j> = &'j dyn Fn(&Reducer, &Exit) -> Option<Ending>;

/// The keys of `Run.to_dict()`.
pub const KEYS: [&str; 19] = [
    "dialect",
    "version",
    "session_id",
    "model",
    "cwd",
    "verdict",
    "final_text",
    "texts",
    "thinking",
    "messages",
    "tool_calls",
    "plan",
    "subagents",
    "usage",
    "cost_usd",
    "errors",
    "retries",
    "compactions",
    "report",
];

/// What a run tells besides its events: `judge` is the dialect's word on a stream that has not said how it ended, `exit`
/// what the caller knows.
pub struct Known<'k, 'j> {
    pub dialect: Option<&'static str>,
    pub report: &'k Report,
    pub judge: Option<Judge<'j>>,
    pub exit: &'k Exit,
}

/// One block of text: which thread and message it belongs to.
#[derive(Deserialize, Serialize)]
struct Block {
    number: u32,
    kind: Kind,
    thread: Option<Box<str>>,
    message_id: Option<Box<str>>,
    model: Option<Box<str>>,
    line: u64,
    text: String,
    images: i64,
}

#[derive(Default, Deserialize, Serialize)]
struct Call {
    announced: bool,
    order: Option<String>,
    id: String,
    name: Option<String>,
    kind: Cow<'static, str>,
    title: String,
    input: Option<Box<[u8]>>,
    status: Option<String>,
    result: Option<String>,
    result_cut: Option<Cut>,
    raw_output: Option<Box<[u8]>>,
    raw_output_cut: Option<Cut>,
    parent: Option<String>,
    exit_code: Option<i64>,
    started_at: Option<String>,
    ended_at: Option<String>,
    duration_ms: Option<Number>,
}

impl Call {
    fn ok(&self) -> Option<bool> {
        match self.status.as_deref() {
            Some("completed") => Some(true),
            Some("failed") => Some(false),
            _ => None,
        }
    }
}

/// How much of each tool result is kept.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct ResultLimit {
    pub bytes: u64,
    /// Only tells what is to be cut, and keeps all of it: somebody else has to see it first.
    pub later: bool,
}

impl Default for ResultLimit {
    fn default() -> Self {
        ResultLimit {
            bytes: u64::MAX,
            later: false,
        }
    }
}

impl ResultLimit {
    /// How many bytes are kept now.
    fn kept(self) -> u64 {
        match self.later {
            true => u64::MAX,
            false => self.bytes,
        }
    }
}

/// Of what more came than is kept.
#[derive(Deserialize, Serialize)]
struct Cut {
    /// Its size when it was whole.
    bytes: u64,
    /// Of the record that has the whole.
    place: Place,
}

#[derive(Deserialize, Serialize)]
struct RunError {
    message: String,
    fatal: bool,
    line: u64,
}

/// Takes events one by one; [`to_data`](Reducer::to_data) and [`part`](Reducer::part) give the run so far at any moment.
#[derive(Default, Deserialize, Serialize)]
pub struct Reducer {
    session: Vec<(Cow<'static, str>, String)>,
    /// Of all threads and kinds, in order of their first chunk.
    texts: Vec<Block>,
    /// By number of the block: its place in `texts`, counted from 1; 0 for one that said nothing yet.
    blocks: Vec<u32>,
    /// By number; 0 is none.
    calls: Vec<Call>,
    plan: Option<Box<[u8]>>,
    errors: Vec<RunError>,
    retries: i64,
    compactions: i64,
    ledger: usage::Ledger,
    pub progress: Progress,
    limit: ResultLimit,
}

impl Sink for Reducer {
    fn take(&mut self, event: &Event<'_>) {
        match &event.update {
            Update::Chunk(chunk) => self.chunk(chunk, event),
            Update::ToolCall(call) => self.call(call, event),
            Update::ToolCallUpdate(update) => self.call_update(update, event),
            Update::Plan(_) if event.stamp.parent.is_some() => {} // a sub-agent has its own
            Update::Plan(entries) => {
                let entries = entries.iter().map(|entry| entry.to_data()).collect();
                self.plan = Some(Data::List(entries).to_raw());
            }
            Update::Error {
                message,
                fatal,
                notice: false,
            } => self.error(message, *fatal, event.place.line),
            Update::Error { .. } => {}
            Update::Usage(usage) => {
                let told = |key: &str| {
                    let found = self.session.iter().find(|(name, _)| *name == key);
                    found.map(|(_, value)| value.as_str())
                };
                let session = usage::Session {
                    id: told("sessionId"),
                    model: told("model"),
                };
                self.ledger.take(usage, event, &session);
            }
            Update::State(state) => self.state(state, event),
        }
    }
}

impl Reducer {
    /// From now on no more than so many bytes of each tool result are kept.
    pub fn limit_results(&mut self, limit: ResultLimit) {
        self.limit = limit;
    }

    /// Makes room for so many blocks and calls, as [`take`](Sink::take) does when they tell something: a restored
    /// parser then needs none but for new ones.
    pub(crate) fn make_room(&mut self, (blocks, calls): (u32, u32)) {
        if self.blocks.len() <= blocks as usize {
            self.blocks.resize(blocks as usize + 1, 0);
        }
        self.call_at(calls);
    }

    /// How many blocks and calls there is room for.
    pub(crate) fn room(&self) -> (usize, usize) {
        (self.blocks.len(), self.calls.len())
    }

    /// Whether a restored reducer is one that can be.
    pub(crate) fn is_sound(&self) -> bool {
        let (texts, blocks) = (self.texts.len(), self.blocks.len());
        self.blocks.iter().all(|at| *at as usize <= texts)
            && self
                .texts
                .iter()
                .all(|text| (text.number as usize) < blocks)
            && self.ledger.is_sound()
    }

    // ---------------------------------------------------------------- texts

    fn chunk(&mut self, chunk: &Chunk<'_>, event: &Event<'_>) {
        let thread = event.stamp.thread();
        if chunk.retract > 0 {
            self.take_back(chunk, thread);
        }
        match chunk.content {
            Content::Text("") => {}
            Content::Text(text) => self.block(chunk, event).text.push_str(text),
            Content::Image(_) => self.block(chunk, event).images += 1,
        }
        if chunk.kind == Kind::Message && thread.is_none() {
            self.progress.answered(event.place);
        }
    }

    /// More text for a block that has some, as by a [`Chunk`] of the record at that place.
    #[inline]
    pub(crate) fn go_on(
        &mut self,
        kind: Kind,
        block: u32,
        text: &str,
        is_main: bool,
        place: Place,
    ) {
        let at = self.blocks.get(block as usize).copied().unwrap_or_default();
        if let Some(block) = (at as usize)
            .checked_sub(1)
            .and_then(|at| self.texts.get_mut(at))
        {
            block.text.push_str(text);
        }
        if kind == Kind::Message && is_main {
            self.progress.answered(place);
        }
    }

    fn take_back(&mut self, chunk: &Chunk<'_>, thread: Option<&str>) {
        let mut gone = chunk.retract;
        let mine = |text: &&mut Block| text.kind == chunk.kind && text.thread.as_deref() == thread;
        for text in self.texts.iter_mut().rev().filter(mine) {
            if gone == 0 {
                break;
            }
            let cut = cut_chars(&mut text.text, gone);
            gone -= cut;
            if cut > 0 && text.text.is_empty() && text.images == 0 {
                self.blocks[text.number as usize] = 0; // if it is said again, then in its new place
            }
        }
    }

    fn block(&mut self, chunk: &Chunk<'_>, event: &Event<'_>) -> &mut Block {
        let number = chunk.block as usize;
        let at = match self.blocks.get(number) {
            Some(&at) if at > 0 => at,
            _ => self.new_block(chunk, event),
        };
        &mut self.texts[at as usize - 1]
    }

    #[cold]
    fn new_block(&mut self, chunk: &Chunk<'_>, event: &Event<'_>) -> u32 {
        let own = |text: &Option<Text<'_>>| text.as_deref().map(Box::from);
        self.texts.push(Block {
            number: chunk.block,
            kind: chunk.kind,
            thread: own(&event.stamp.parent),
            message_id: own(&event.stamp.message_id),
            model: own(&event.stamp.model),
            line: event.place.line,
            text: String::new(),
            images: 0,
        });
        let (number, at) = (chunk.block as usize, self.texts.len() as u32);
        if self.blocks.len() <= number {
            self.blocks.resize(number + 1, 0);
        }
        self.blocks[number] = at;
        at
    }

    // ---------------------------------------------------------------- calls

    fn call_at(&mut self, number: u32) -> &mut Call {
        let at = number as usize;
        if self.calls.len() <= at {
            self.calls.resize_with(at + 1, || Call {
                kind: "other".into(),
                ..Call::default()
            });
        }
        &mut self.calls[at]
    }

    fn call(&mut self, call: &ToolCall<'_>, event: &Event<'_>) {
        let (stamp, limit) = (event.stamp, self.limit);
        let known = self.call_at(call.call);
        known.announced = true;
        known.id = call.id.to_owned();
        known.name = call.name.map(str::to_owned);
        known.kind = call.kind.into();
        known.title = call.title.to_owned();
        if known.input.is_none() && !call.input.is_null() {
            known.input = Some(call.input.to_raw());
        }
        known.parent = own(&stamp.parent);
        let started = call.started_at.or(stamp.timestamp.as_deref());
        known.started_at = started.map(str::to_owned);
        known.order = call.order.map(str::to_owned);
        known.status = Some(call.status.to_owned());
        if !call.no_result {
            known.keep_content(call.content, limit, event.place);
        }
        self.progress.called(call, event);
    }

    fn call_update(&mut self, update: &ToolCallUpdate<'_>, event: &Event<'_>) {
        let limit = self.limit;
        let known = self.call_at(update.call);
        if let Some(status) = update.status {
            known.status = Some(status.to_owned());
        }
        if let Some(title) = update.title {
            known.title = title.to_owned();
        }
        if let Some(raw) = update.raw_output {
            known.keep_raw_output(raw, limit, event.place);
        }
        let facts = update.facts;
        if let Some(input) = facts.input.as_ref().filter(|input| !input.is_null()) {
            known.input = Some(input.to_raw());
        }
        if let Some(name) = &facts.name {
            known.name = Some(name.to_string());
        }
        if let Some(kind) = facts.kind {
            known.kind = kind.into();
        }
        known.exit_code = facts.exit_code.or(known.exit_code);
        known.duration_ms = facts.duration_ms.or(known.duration_ms);
        if let Some(started) = &facts.started_at {
            known.started_at = Some(started.to_string());
        }
        if update.done {
            let ended = facts.ended_at.as_ref().or(event.stamp.timestamp.as_ref());
            known.ended_at = ended.map(|time| time.to_string());
        }
        if !facts.no_result {
            known.keep_content(update.content, limit, event.place);
        }
        if let Some(result) = &facts.result {
            known.keep_result([result].into_iter(), limit, event.place);
        }
        self.progress.updated(update, event);
    }

    // ---------------------------------------------------------------- errors and states

    fn error(&mut self, message: &str, fatal: bool, line: u64) {
        match self.errors.last_mut() {
            // the fatal message counts once
            Some(last) if last.message == message => last.fatal |= fatal,
            _ => self.errors.push(RunError {
                message: message.to_owned(),
                fatal,
                line,
            }),
        }
    }

    fn state(&mut self, state: &State<'_>, event: &Event<'_>) {
        match state.name {
            "session" => {
                for (key, value) in &state.details {
                    if let Some(value) = value.text() {
                        self.set_session(key, &value);
                    }
                }
            }
            "model" => {
                if let Some(model) = state.text("model") {
                    self.set_session("model", &model);
                }
            }
            "retry" if state.text("phase").as_deref() == Some("start") => self.retries += 1,
            "compaction"
                if state.text("phase").as_deref() == Some("end")
                    && !matches!(state.get("success"), Some(Data::Bool(false))) =>
            {
                self.compactions += 1;
            }
            _ => {}
        }
        self.progress.state(state, event);
    }

    fn set_session(&mut self, key: &'static str, value: &str) {
        match self.session.iter_mut().find(|(name, _)| *name == key) {
            Some((_, old)) => *old = value.to_owned(),
            None => self.session.push((key.into(), value.to_owned())),
        }
    }

    // ---------------------------------------------------------------- the run

    /// Each model call so far, as `Run.ledger`.
    pub fn ledger(&self) -> Data<'_> {
        self.ledger.rows()
    }

    /// The harness's own total of each model, as far as it prints them.
    pub fn printed_models(&self) -> Data<'_> {
        self.ledger.printed()
    }

    /// One key of the run so far; None if runs have no such key.
    pub fn part<'r>(&'r self, key: &str, known: &Known<'r, '_>) -> Option<Data<'r>> {
        let session = |key: &str| -> Data<'r> {
            let found = self.session.iter().find(|(name, _)| *name == key);
            found.map(|(_, value)| value.as_str()).into()
        };
        Some(match key {
            "dialect" => known.dialect.into(),
            "version" => session("version"),
            "session_id" => session("sessionId"),
            "model" => session("model"),
            "cwd" => session("cwd"),
            "verdict" => self.decide(known).0,
            "final_text" => self.main(Kind::Message).last().into(),
            "texts" => self.main(Kind::Message).collect::<Vec<_>>().into(),
            "thinking" => self.main(Kind::Thought).collect::<Vec<_>>().into(),
            "messages" => self.messages(),
            "tool_calls" => {
                let calls = self.ordered_calls();
                Data::List(calls.iter().map(|call| call.to_data()).collect())
            }
            "plan" => raw(&self.plan),
            "subagents" => self.subagents(&self.ordered_calls()),
            "usage" => {
                let agents = self.subagents(&self.ordered_calls());
                let has_agents = matches!(&agents, Data::List(agents) if !agents.is_empty());
                self.ledger.to_data(self.compactions > 0, has_agents)
            }
            "cost_usd" => self.ledger.cost().into(),
            "errors" => self.told_errors(known),
            "retries" => self.retries.into(),
            "compactions" => self.compactions.into(),
            "report" => known.report.to_data(),
            _ => return None,
        })
    }

    /// The run so far, with the keys of `Run.to_dict()`.
    pub fn to_data<'r>(&'r self, known: &Known<'r, '_>) -> Data<'r> {
        map(KEYS.map(|key| (key, self.part(key, known).unwrap_or(Data::Null))))
    }

    fn decide(&self, known: &Known<'_, '_>) -> (Data<'static>, Cow<'static, str>) {
        let records = known.report.records + known.report.salvaged;
        self.progress.decide(self, records, known.judge, known.exit)
    }

    /// The main thread's blocks of this kind.
    fn main(&self, kind: Kind) -> impl Iterator<Item = &str> {
        let texts = self.texts.iter();
        texts
            .filter(move |text| text.kind == kind && text.thread.is_none() && !text.text.is_empty())
            .map(|text| text.text.as_str())
    }

    /// What failed; stderr where the stream does not say.
    fn told_errors(&self, known: &Known<'_, '_>) -> Data<'_> {
        let told = self.errors.iter().map(|error| {
            map([
                ("message", error.message.as_str().into()),
                ("fatal", error.fatal.into()),
                ("line", (error.line as i64).into()),
            ])
        });
        let mut errors: Vec<Data<'_>> = told.collect();
        let stderr = known.exit.stderr_text();
        if errors.is_empty() && !stderr.is_empty() {
            let (told, outcome) = self.decide(known);
            let reason = told.get("reason");
            let reason = reason.as_ref().and_then(Data::text);
            if outcome == "failed" || reason.as_deref() == Some("stderr") {
                // only that names the limit
                errors.push(map([
                    ("message", stderr.into_owned().into()),
                    ("fatal", true.into()),
                    ("line", Data::Null),
                ]));
            }
        }
        Data::List(errors)
    }

    /// The latest of the times at which calls began and ended, as they are printed.
    pub fn last_call_time(&self) -> Option<&str> {
        let announced = self.calls.iter().filter(|call| call.announced);
        let times = announced.flat_map(|call| [&call.started_at, &call.ended_at]);
        times.flatten().map(String::as_str).max()
    }

    /// The calls that were announced, as announced; one with an order goes before those with a greater one.
    fn ordered_calls(&self) -> Vec<&Call> {
        let mut calls: Vec<&Call> = Vec::new();
        for call in self.calls.iter().filter(|call| call.announced) {
            let after = |other: &&&Call| {
                call.order.is_some() && other.order.is_some() && other.order > call.order
            };
            let later = calls.iter().rev().take_while(after).count();
            calls.insert(calls.len() - later, call);
        }
        calls
    }

    /// What persons and agents said, block by block: role, text, and whose it is.
    fn messages(&self) -> Data<'_> {
        let said = |text: &&Block| {
            text.kind != Kind::Thought && (!text.text.is_empty() || text.images > 0)
        };
        Data::List(self.texts.iter().filter(said).map(Block::to_data).collect())
    }

    /// Each thread that is not the main one: the delegating call, its texts, its calls.
    fn subagents<'r>(&'r self, calls: &[&'r Call]) -> Data<'r> {
        let spoke = self.texts.iter().filter_map(|text| text.thread.as_deref());
        let called = calls.iter().filter_map(|call| call.parent.as_deref());
        let mut threads: Vec<&str> = Vec::new();
        let mut seen = HashSet::new();
        threads.extend(spoke.chain(called).filter(|thread| seen.insert(*thread)));
        Data::List(
            threads
                .into_iter()
                .map(|thread| {
                    let texts = |kind: Kind| -> Vec<&'r str> {
                        let texts = self.texts.iter();
                        texts
                            .filter(|t| t.kind == kind && t.thread.as_deref() == Some(thread))
                            .map(|text| text.text.as_str())
                            .filter(|text| !text.is_empty())
                            .collect()
                    };
                    let mine = calls.iter().filter(|c| c.parent.as_deref() == Some(thread));
                    let ids: Vec<&'r str> = mine.map(|call| call.id.as_str()).collect();
                    let delegating = calls.iter().rev().find(|call| call.id == thread);
                    map([
                        ("tool_call_id", thread.into()),
                        ("name", delegating.and_then(|call| call.agent_name()).into()),
                        ("texts", texts(Kind::Message).into()),
                        ("thinking", texts(Kind::Thought).into()),
                        ("tool_calls", ids.into()),
                        (
                            "result",
                            delegating.and_then(|call| call.result.as_deref()).into(),
                        ),
                    ])
                })
                .collect(),
        )
    }
}

impl Block {
    fn to_data(&self) -> Data<'_> {
        let role = match self.kind {
            Kind::User => "user",
            _ => "assistant",
        };
        map([
            ("role", role.into()),
            ("text", self.text.as_str().into()),
            ("images", self.images.into()),
            ("message_id", self.message_id.as_deref().into()),
            ("model", self.model.as_deref().into()),
            ("parent", self.thread.as_deref().into()),
            ("line", (self.line as i64).into()),
        ])
    }
}

impl Call {
    /// The result is the text parts of the content, one after the other.
    fn keep_content(&mut self, content: &[Item<'_>], limit: ResultLimit, place: Place) {
        let mut texts = content.iter().filter_map(|item| match item {
            Item::Text(text) => Some(text),
            _ => None,
        });
        if let Some(first) = texts.next() {
            self.keep_result(std::iter::once(first).chain(texts), limit, place);
        }
    }

    /// Keeps the texts, joined by line ends: the first bytes of them, or a few less where these would end within a
    /// character.
    fn keep_result<'t>(
        &mut self,
        texts: impl Iterator<Item = &'t Text<'t>>,
        limit: ResultLimit,
        place: Place,
    ) {
        let (mut kept, mut bytes) = (String::new(), 0);
        for (number, text) in texts.enumerate() {
            if limit.kept() == u64::MAX {
                kept.push_str(if number > 0 { "\n" } else { "" });
                text.push_to(&mut kept);
                bytes = kept.len() as u64;
                continue;
            }
            for part in [if number > 0 { "\n" } else { "" }, text] {
                let room = limit.kept().saturating_sub(bytes);
                if room > 0 {
                    kept.push_str(beginning(part, room));
                }
                bytes += part.len() as u64;
            }
        }
        kept.shrink_to_fit();
        self.result = Some(kept);
        self.result_cut = (bytes > limit.bytes).then_some(Cut { bytes, place });
    }

    /// Keeps it whole or not at all: a part of a structure is none.
    fn keep_raw_output(&mut self, raw: &Data<'_>, limit: ResultLimit, place: Place) {
        let bytes = match limit.bytes {
            u64::MAX => 0, // nobody asks
            _ => raw.size(),
        };
        let keep = bytes <= limit.kept();
        self.raw_output = keep.then(|| raw.to_raw());
        self.raw_output_cut = (bytes > limit.bytes).then_some(Cut { bytes, place });
    }

    /// What was cut, if anything was.
    fn cut(&self) -> Option<Data<'_>> {
        let cuts = [
            ("result", &self.result_cut),
            ("raw_output", &self.raw_output_cut),
        ];
        let members = cuts.into_iter().filter_map(|(name, cut)| {
            let cut = cut.as_ref()?;
            let told = map([
                ("bytes", (cut.bytes as i64).into()),
                ("span", cut.place.to_data()),
            ]);
            Some((Text::from(name), told))
        });
        let members: Vec<_> = members.collect();
        (!members.is_empty()).then_some(Data::Map(members))
    }

    fn to_data(&self) -> Data<'_> {
        let mut call = map([
            ("id", self.id.as_str().into()),
            ("name", self.name.as_deref().into()),
            ("kind", (&*self.kind).into()),
            ("title", self.title.as_str().into()),
            ("input", raw(&self.input)),
            ("status", self.status.as_deref().into()),
            ("ok", self.ok().into()),
            ("result", self.result.as_deref().into()),
            ("raw_output", raw(&self.raw_output)),
            ("parent", self.parent.as_deref().into()),
            ("exit_code", self.exit_code.into()),
            ("started_at", self.started_at.as_deref().into()),
            ("ended_at", self.ended_at.as_deref().into()),
            ("duration_ms", self.duration_ms.into()),
        ]);
        if let (Data::Map(members), Some(cut)) = (&mut call, self.cut()) {
            members.push(("cut".into(), cut));
        }
        call
    }

    /// What the arguments of a delegating call name the agent.
    fn agent_name(&self) -> Option<String> {
        let input = raw(&self.input);
        let keys = ["subagent_type", "agent_name", "agent", "agent_type", "name"];
        keys.into_iter()
            .find_map(|key| Some(input.get(key)?.text()?.into_string()))
    }
}

/// A JSON text that was kept; Null if there is none.
fn raw(text: &Option<Box<[u8]>>) -> Data<'_> {
    text.as_deref()
        .map_or(Data::Null, |text| Data::Raw(Cow::Borrowed(text)))
}

fn own(text: &Option<Text<'_>>) -> Option<String> {
    text.as_deref().map(str::to_owned)
}

/// As many of the first bytes as make up whole characters.
fn beginning(text: &str, most: u64) -> &str {
    let mut end = text.len().min(usize::try_from(most).unwrap_or(usize::MAX));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
