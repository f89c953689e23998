//! The tool calls of an ACP session: from the lines that tell of them to the Emitter.
//!
//! The wire gives a call in pieces: an announcement (`tool_call`, a permission request, or just the first update), then
//! updates that name what has changed. Arguments may grow; `content` before the result is about the call and not its
//! result; a status of "completed" may hide an exit code.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::super::{Outcome, filled};
use super::agents::{self, Agent, UNKNOWN};
use super::shape::{
    from_base64, given, glued, id_of, item_of, items, kind_of, locations_of, status_of,
};
use crate::data::Data;
use crate::emit::{self, Emitter, Update};
use crate::event::{Facts, Item, Stamp, State, iso_millis};
use crate::json::{Text, Value};
use crate::number::count;
use crate::tool;

const GUARDIAN: &str = "guardian_assessment:";
/// What its review says first: for JetBrains' clients codex leaves the structured record out.
const REVIEWS: [(&str, &str); 4] = [
    ("Status: Approved", "approved"),
    ("Status: Denied", "denied"),
    ("Status: Aborted", "aborted"),
    ("Status: Timed out", "timedOut"),
];

/// A terminal of the client in a merged log, or of version 2, which calls show as their content.
#[derive(Default, Deserialize, Serialize)]
struct Terminal {
    output: Vec<u8>,
    exit_code: Option<i64>,
}

/// What is kept of a call while later lines may add to it.
#[derive(Default, Deserialize, Serialize)]
struct Call {
    /// Number of the turn that it belongs to.
    turn: u32,
    name: Option<String>,
    /// For permission: it may never be heard of again.
    asked: bool,
    has_input: bool,
    /// A stand-in for a tool that does not exist.
    invalid: bool,
    /// Its output so far, until the result.
    output: String,
    has_output: bool,
    /// Ids of the terminals that it shows.
    terminals: Vec<String>,
    /// The harness's own record of the result was told.
    structured: bool,
    closed: bool,
    /// The result's text was told.
    shown: bool,
}

/// What a line tells of a call.
#[derive(Clone, Copy)]
pub struct Told<'a> {
    update: Value<'a>,
    part: Part,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    All,
    /// One more item of content.
    ContentChunk,
    /// Nothing but the arguments.
    Input,
    /// All but the arguments.
    NoInput,
}

impl<'a> Told<'a> {
    /// By a session/update of that kind.
    pub fn by(kind: &str, update: Value<'a>) -> Self {
        let part = match kind {
            "tool_call_content_chunk" => Part::ContentChunk,
            _ => Part::All,
        };
        Told { update, part }
    }

    fn only(self, part: Part) -> Self {
        Told { part, ..self }
    }

    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        let told = match self.part {
            Part::All => true,
            Part::ContentChunk => false,
            Part::Input => key == "rawInput",
            Part::NoInput => key != "rawInput",
        };
        self.update.get(key).filter(|_| told)
    }

    fn raw_input(&self) -> Option<Value<'a>> {
        given(self.get("rawInput"))
    }

    fn raw_output(&self) -> Option<Value<'a>> {
        given(self.get("rawOutput"))
    }

    fn failed_exit(&self) -> (bool, Option<i64>) {
        match self.part {
            Part::All | Part::NoInput => agents::failed_exit(self.update),
            Part::ContentChunk | Part::Input => (false, None),
        }
    }

    fn name(&self, agent: &Agent, id: &str, first: bool) -> Option<Text<'a>> {
        let told = matches!(self.part, Part::All | Part::NoInput);
        agent.tool_name(id, told.then_some(self.update), first)
    }

    /// Its content in the shape of events, and whether something in it has none.
    fn content(&self) -> (Vec<Item<'a>>, bool) {
        if self.part == Part::ContentChunk {
            let item = self.update.get("content").and_then(item_of);
            let odd = item.is_none();
            return (item.into_iter().collect(), odd);
        }
        let mut odd = false;
        let blocks = items(self.get("content"))
            .filter_map(|item| {
                let item = item_of(item);
                odd |= item.is_none();
                item
            })
            .collect();
        (blocks, odd)
    }

    /// The first text of its content.
    pub fn first_text(&self) -> Option<Text<'a>> {
        let texts = self.content().0.into_iter().filter_map(|item| match item {
            Item::Text(text) => filled(Some(text)),
            _ => None,
        });
        texts.into_iter().next()
    }

    fn has_content(&self) -> bool {
        self.part == Part::ContentChunk || self.get("content").is_some()
    }

    /// Its content as it stands on the wire.
    fn wire_content(&self) -> Data<'a> {
        match self.part {
            Part::ContentChunk => Data::List(vec![self.update.get("content").into()]),
            _ => self.get("content").into(),
        }
    }
}

#[derive(Default, Deserialize, Serialize)]
pub struct Calls {
    agent: Option<&'static Agent>,
    turn: u32,
    calls: HashMap<String, Call>,
    /// Calls that wait for permission or were refused, and no word of the agent since.
    pub refused: Vec<String>,
    /// Open calls of sub-agents (Copilot): whether the main agent waits for them.
    tasks: Vec<(String, bool)>,
    /// Id of a sub-agent (Copilot, Kiro): its call.
    agents: HashMap<String, String>,
    /// By id, until the result of their call.
    terminals: HashMap<String, Terminal>,
    /// Session of a sub-agent: its call, or the session again.
    pub children: HashMap<String, String>,
    /// Ids of "calls" that are compactions under way.
    pub compactions: Vec<String>,
}

impl Calls {
    pub fn of_child(&self, session: Option<&str>) -> bool {
        session.is_some_and(|session| self.children.contains_key(session))
    }

    pub fn agent(&self) -> &'static Agent {
        self.agent.unwrap_or(&UNKNOWN)
    }

    pub fn set_agent(&mut self, agent: &'static Agent) {
        self.agent = Some(agent);
    }

    /// A turn begins.
    pub fn begin(&mut self) {
        self.turn += 1;
        self.refused.clear();
    }

    /// Whether calls of the turn are still at work (a refused one may never be heard of again).
    pub fn unfinished(&self) -> bool {
        let mut calls = self.calls.values();
        calls.any(|call| call.turn == self.turn && !call.closed && !call.asked)
    }

    /// Whether the line is the first of its call. An id that is announced again in a later turn names a new one.
    pub fn is_new(&self, kind: &str, id: &str) -> bool {
        if id.starts_with(GUARDIAN) {
            return false;
        }
        self.calls
            .get(id)
            .is_none_or(|call| kind == "tool_call" && call.closed && call.turn != self.turn)
    }

    /// A line that tells of a call.
    pub fn tell<'a>(
        &mut self,
        kind: &str,
        id: &str,
        told: Told<'a>,
        stamp: &mut Stamp<'a>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        if id.starts_with(GUARDIAN) {
            return self.guardian(id, told, stamp, out);
        }
        if self.is_new(kind, id) {
            return self.open(id, told, stamp, out);
        }
        if told.part == Part::ContentChunk {
            let text = told.update.path(&["content", "content", "text"]);
            let text = text.and_then(|text| text.text());
            if let (Some(call), Some(text)) = (self.calls.get_mut(id), text)
                && !call.closed
            {
                if call.has_output {
                    call.output.push('\n');
                }
                call.output.push_str(&out.clean(text));
                call.has_output = true;
            }
        }
        self.apply(id, told, stamp, out)
    }

    /// A call that session/load tells again: only what was not told before is news.
    pub fn again<'a>(
        &mut self,
        id: &str,
        told: Told<'a>,
        stamp: &mut Stamp<'a>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let agent = self.agent();
        let Some(call) = self.calls.get_mut(id).filter(|call| !call.shown) else {
            return Outcome::Ignored("replay");
        };
        if !call.closed {
            return self.apply(id, told, stamp, out);
        }
        let raw = told.raw_output();
        let content = result(agent, call, told.content().0, raw);
        if !call.shown {
            return Outcome::Ignored("replay");
        }
        let update = Update {
            content,
            done: Some(false),
            again: true,
            raw_output: raw.filter(|_| !call.structured).map(Data::Wire),
            ..Update::new(id.to_owned(), None)
        };
        out.update(update, stamp);
        Outcome::Mapped
    }

    /// A permission request: for some agents a call's first line, or the first with its arguments.
    pub fn ask<'a>(
        &mut self,
        id: &str,
        update: Value<'a>,
        stamp: &mut Stamp<'a>,
        out: &mut Emitter<'_>,
    ) {
        let told = Told {
            update,
            part: Part::All,
        };
        match self.calls.get(id) {
            None => {
                self.open(id, told, stamp, out);
            }
            Some(call) => {
                if !call.closed && !call.has_input && told.raw_input().is_some() {
                    self.apply(id, told.only(Part::Input), stamp, out);
                }
            }
        }
        stamp.extra.clear();
        if let Some(call) = self.calls.get_mut(id) {
            call.asked = true;
            if !call.closed && !self.refused.iter().any(|other| other == id) {
                self.refused.push(id.to_owned());
            }
        }
    }

    /// The client said yes.
    pub fn allow(&mut self, id: &str) {
        if let Some(at) = self.refused.iter().position(|other| other == id) {
            self.refused.remove(at);
        }
    }

    /// The delegating call of the sub-agent whose line this is, or the sub-agent's session if it has its own. Kiro gives
    /// sub-agents ids that their calls name, too. Copilot names its sub-agents' calls only: a text that comes while the
    /// main agent waits for a sub-agent is the latter's.
    pub fn thread(
        &mut self,
        meta: Option<Value<'_>>,
        session: Option<&str>,
        call: Option<&str>,
        out: &mut Emitter<'_>,
    ) -> Option<String> {
        let child = session.and_then(|session| self.children.get(session));
        let mut parent = child.cloned().or_else(|| agents::parent_call(meta, out));
        let kiro = meta.and_then(|meta| meta.get("kiro"));
        if let (None, Some(kiro)) = (&parent, kiro)
            && let Some(agent) = id_of(kiro.get("agentSubtaskId"), out)
            && !agent.is_empty()
        {
            if let Some(call) = call.filter(|call| !call.is_empty())
                && kiro
                    .get("kind")
                    .is_some_and(|kind| kind.is_text("agent-subtask"))
            {
                self.agents.insert(agent.clone(), call.to_owned());
            }
            parent = Some(self.agents.get(&agent).cloned().unwrap_or(agent));
        }
        if parent.is_some() || self.agent().name != "copilot" {
            return parent.filter(|parent| Some(&**parent) != call);
        }
        let agent = meta.and_then(|meta| meta.path(&["github.com/copilot", "agentId"]));
        let Some(agent) = id_of(agent, out) else {
            let waited = self.tasks.iter().find(|(_, waits)| *waits)?;
            return Some(waited.0.clone());
        };
        if !self.agents.contains_key(&agent) {
            let taken = |id: &String| self.agents.values().any(|other| other == id);
            let (free, _) = self.tasks.iter().find(|(id, _)| !taken(id))?;
            self.agents.insert(agent.clone(), free.clone());
        }
        self.agents.get(&agent).cloned()
    }

    // ---------------------------------------------------------------- inside

    /// Codex has a model of its own review a call in place of a person: no call of the agent, but an approval.
    fn guardian(
        &mut self,
        call: &str,
        told: Told<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let (raw, input) = (told.raw_output(), told.raw_input());
        let id = |value: Option<Value<'_>>, out: &mut Emitter<'_>| {
            id_of(value.and_then(|value| value.get("targetItemId")), out)
        };
        let target = id(raw, out)
            .filter(|target| !target.is_empty())
            .or_else(|| id(input, out));
        let decision = raw.and_then(|raw| raw.path(&["review", "status"])?.text());
        let decision = decision.or_else(|| {
            let shown = told.first_text()?;
            let first = shown.split('\n').next();
            let (_, decision) = REVIEWS.iter().find(|(says, _)| Some(*says) == first)?;
            Some(Text::from(*decision))
        });
        if decision.as_deref() == Some("denied") {
            self.refused
                .push(target.clone().unwrap_or_else(|| call.to_owned()));
        }
        let state = State::new("approval")
            .with(
                "phase",
                if decision.is_none() {
                    "requested"
                } else {
                    "settled"
                },
            )
            .with("toolCallId", target)
            .with("decision", decision);
        out.state(state, stamp);
        Outcome::Mapped
    }

    /// The first line of a call, an announcement or not.
    fn open<'a>(
        &mut self,
        id: &str,
        told: Told<'a>,
        stamp: &mut Stamp<'a>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let agent = self.agent();
        let name = told.name(agent, id, true);
        let mut call = Call {
            turn: self.turn,
            name: name.as_ref().map(|name| name.to_string()),
            ..Call::default()
        };
        let raw_input = told.raw_input();
        self.take_input(id, &mut call, raw_input);
        take_terminals(&mut call, told, out);
        let status = self.status(&call, told);
        let (blocks, odd) = told.content();
        stamp.extra.clear();
        if odd {
            stamp.extra.push(("content".into(), told.wire_content()));
        }
        let announced = emit::Call {
            status: status.unwrap_or("pending"),
            kind: kind_of(told.get("kind")),
            title: told.get("title").and_then(|title| title.text()),
            content: told.has_content().then_some(blocks),
            locations: Some(locations_of(told.get("locations"))),
            started_at: raw_input.and_then(|input| iso_millis(input.get("started_at_ms"))),
            no_result: true,
            ..emit::Call::new(id.to_owned(), name, raw_input)
        };
        out.call(announced, stamp);
        self.calls.insert(id.to_owned(), call);
        if matches!(status, Some("completed" | "failed")) {
            let rest = match told.part {
                Part::All => told.only(Part::NoInput),
                _ => told,
            };
            return self.apply(id, rest, stamp, out);
        }
        Outcome::Mapped
    }

    /// An update: only what it names has changed.
    fn apply<'a>(
        &mut self,
        id: &str,
        told: Told<'a>,
        stamp: &mut Stamp<'a>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let Some(mut call) = self.calls.remove(id) else {
            return Outcome::Unknown;
        };
        let agent = self.agent();
        let (raw_input, mut raw) = (told.raw_input(), told.raw_output());
        let meta = told.get("_meta");
        self.take_input(id, &mut call, raw_input);
        take_terminals(&mut call, told, out);
        let status = self.status(&call, told).filter(|_| !call.closed);
        let exit_code = self.exit(&call, told).1;
        let done = matches!(status, Some("completed" | "failed"));
        let name = told.name(agent, id, false);
        if let Some(name) = &name {
            call.name = Some(name.to_string());
        }
        let name_so_far = call.name.clone();
        let input = raw_input.map_or(Data::Null, Data::Wire);
        let (mut blocks, odd) = told.content();
        stamp.extra.clear();
        if let Some(input) = raw_input {
            stamp.extra.push(("rawInput".into(), input.into()));
        }
        if odd {
            stamp.extra.push(("content".into(), told.wire_content()));
        }
        for (key, piece) in agents::output_pieces(meta).filter(|_| !call.closed) {
            let data = piece.text_of("data").unwrap_or_default();
            call.output.push_str(&out.clean(data));
            call.has_output = true;
            if !done {
                stamp.extra.push((key.into(), piece.into()));
            }
        }
        if done {
            self.take_output(&mut call);
            blocks = result(agent, &mut call, blocks, raw);
        } else if blocks.is_empty() && status == Some("in_progress") && input.is_map() {
            // diffs that only the arguments show
            let described = tool::describe(super::DIALECT.name, name_so_far.as_deref(), &input);
            blocks = described.content;
        }
        let response = meta
            .and_then(|meta| given(meta.path(&["claudeCode", "toolResponse"])))
            .filter(|response| response.get("elapsedTimeSeconds").is_none()); // a sign of life while the tool runs
        if response.is_some() {
            // Claude's own record of the result; the adapter's is only its text
            raw = response;
            call.structured = true;
        } else if call.structured {
            raw = None;
        }
        let update = Update {
            status,
            title: told.get("title").and_then(|title| title.text()),
            content: blocks,
            locations: locations_of(told.get("locations")),
            raw_output: raw.map(Data::Wire),
            again: call.closed,
            facts: Facts {
                input: raw_input.map(Data::Wire),
                name,
                kind: kind_of(told.get("kind")),
                exit_code,
                duration_ms: agents::duration_ms(raw),
                no_result: !done,
                ..Facts::default()
            },
            ..Update::new(id.to_owned(), None)
        };
        out.update(update, stamp);
        if done {
            let failed = status == Some("failed");
            self.close(id, &mut call, told, failed, exit_code.is_some(), out);
        }
        self.calls.insert(id.to_owned(), call);
        Outcome::Mapped
    }

    fn take_input(&mut self, id: &str, call: &mut Call, raw_input: Option<Value<'_>>) {
        let Some(input) = raw_input else { return };
        let agent = self.agent();
        call.has_input = !(input.is_object() && input.is_empty());
        call.invalid = agent.is_invalid_tool(input);
        if agent.name == "copilot" && input.text_of("agent_type").is_some() {
            let waits = input.text_of("mode").as_deref() != Some("background");
            match self.tasks.iter_mut().find(|(task, _)| task == id) {
                Some(task) => task.1 = waits,
                None => self.tasks.push((id.to_owned(), waits)),
            }
        }
    }

    fn close(
        &mut self,
        id: &str,
        call: &mut Call,
        told: Told<'_>,
        failed: bool,
        ran: bool,
        out: &mut Emitter<'_>,
    ) {
        call.closed = true;
        if self.refused.iter().any(|other| other == id) {
            if !failed || ran {
                self.allow(id);
            }
        } else if failed && agents::is_refusal(told.update) {
            self.refused.push(id.to_owned());
        }
        self.tasks.retain(|(task, _)| task != id);
        out.commit(Some(id)); // the thread of its sub-agent
    }

    /// The status as it is: a command that failed did not complete, nor did a tool that does not exist.
    fn status(&self, call: &Call, told: Told<'_>) -> Option<&'static str> {
        match status_of(told.get("status")) {
            Some("completed") if call.invalid || self.exit(call, told).0 => Some("failed"),
            status => status,
        }
    }

    /// Whether an exit code says that the command failed, and the code.
    fn exit(&self, call: &Call, told: Told<'_>) -> (bool, Option<i64>) {
        let (failed, code) = told.failed_exit();
        if failed || code.is_some() {
            return (failed, code);
        }
        let shown = call
            .terminals
            .iter()
            .filter_map(|id| self.terminals.get(id));
        let code = shown.filter_map(|terminal| terminal.exit_code).next();
        (code.is_some_and(|code| code != 0), code)
    }

    /// What its terminals show, where nothing else tells it.
    fn take_output(&mut self, call: &mut Call) {
        let fresh = call.output.is_empty();
        for id in &call.terminals {
            if let Some(terminal) = self.terminals.remove(id)
                && fresh
            {
                call.output
                    .push_str(&String::from_utf8_lossy(&terminal.output));
            }
        }
    }

    /// The client answers what runs in a terminal of its own has printed, or how it ended.
    pub fn printed(
        &mut self,
        terminal: Option<String>,
        told: Option<Value<'_>>,
        out: &mut Emitter<'_>,
    ) {
        let (Some(id), Some(told)) = (terminal.filter(|id| !id.is_empty()), told) else {
            return;
        };
        let output = told.text_of("output");
        let code = count(told.get("exitCode"));
        let code = code.or_else(|| count(told.path(&["exitStatus", "exitCode"])));
        if output.is_none() && code.is_none() {
            return;
        }
        let kept = self.terminals.entry(id).or_default();
        if let Some(output) = output {
            kept.output = out.clean(output).as_bytes().to_vec();
        }
        kept.exit_code = code.or(kept.exit_code);
    }

    /// Version 2: what runs in a terminal has printed something, or has ended.
    pub fn terminal(&mut self, kind: &str, update: Value<'_>, out: &mut Emitter<'_>) {
        let id = id_of(update.get("terminalId"), out);
        let Some(id) = id.filter(|id| !id.is_empty()) else {
            return;
        };
        let kept = self.terminals.entry(id).or_default();
        if kind == "terminal_output_chunk" {
            kept.output.extend(from_base64(update.get("data")));
        } else if let Some(output) = update.get("output") {
            kept.output = from_base64(output.get("data")); // all of it so far
        }
        let code = count(update.path(&["exitStatus", "exitCode"]));
        kept.exit_code = code.or(kept.exit_code);
    }
}

fn take_terminals(call: &mut Call, told: Told<'_>, out: &mut Emitter<'_>) {
    let content = told.get("content");
    let chunk = match told.part {
        Part::ContentChunk => told.update.get("content"),
        _ => None,
    };
    for item in items(content).chain(chunk) {
        if item.text_of("type").as_deref() == Some("terminal")
            && let Some(id) = id_of(item.get("terminalId"), out)
            && !id.is_empty()
            && !call.terminals.contains(&id)
        {
            call.terminals.push(id);
        }
    }
}

/// The content of a result, with its text as the tool said it.
fn result<'a>(
    agent: &Agent,
    call: &mut Call,
    blocks: Vec<Item<'a>>,
    raw: Option<Value<'a>>,
) -> Vec<Item<'a>> {
    let texts: Vec<Text<'_>> = blocks.iter().filter_map(text_of).collect();
    let output = std::mem::take(&mut call.output);
    call.has_output = false;
    let shown = glued(&texts, "\n").or_else(|| filled(Some(Text::from(output))));
    let has_texts = !texts.is_empty();
    drop(texts);
    let same = shown.as_ref().map(|shown| shown.to_string());
    let text = agent.result_text(raw, shown);
    call.shown = text.is_some();
    match text {
        Some(text) if !(has_texts && same.as_deref() == Some(text.as_str())) => {
            let others = blocks.into_iter().filter(|item| text_of(item).is_none());
            std::iter::once(Item::Text(text)).chain(others).collect()
        }
        _ => blocks,
    }
}

fn text_of<'i>(item: &'i Item<'_>) -> Option<Text<'i>> {
    match item {
        Item::Text(text) => Some(text.borrow()),
        _ => None,
    }
}
