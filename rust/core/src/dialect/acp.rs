//! ACP, the Agent Client Protocol: JSON-RPC 2.0 of any agent over stdio, one message a line (`protocolVersion` 1; the
//! unstable parts of its schema and the draft of version 2 as far as they say the same things).
//!
//! Read is the agent's side. A log with both directions merged works too: then the client's requests tell prompts from
//! loads, and its answers tell what became of a permission request. The two directions number their requests apart, so
//! a line with `method` is a request whoever else used its id, and an answer is told by its shape.
//!
//! The traps: chunks are all there is, no whole text comes after them, and without `messageId` any other update ends a
//! block; updates may come after the answer to session/prompt; that answer says "end_turn" for failures too; a
//! `user_message_chunk` after a finished turn opens the replay of session/load; errors and notices come as message
//! chunks (see `agents`, as for all that the agents put into `_meta` and `rawOutput`).
//!
//! The sessions that Grok Build stores (`updates.jsonl`) are its side without answers: how a turn ended is in an
//! extension of its own, which it prints live before the answer, too.

mod agents;
mod calls;
mod shape;

use std::collections::HashMap;

use super::{Dialect, Make, Mapper, Outcome, SURE, Sign, filled, rule};
use crate::data::Data;
use crate::emit::{Emitter, Key};
use crate::event::{Kind, Stamp, State, Tokens};
use crate::json::{Series, Str, Text, Value};
use crate::number::{count, price};
use crate::record::Record;
use crate::tool;

use agents::{Agent, Covers, Notice};
use calls::{Calls, Told};
use serde::{Deserialize, Serialize};
use shape::{
    AGENT_METHODS, Block, CLIENT_METHODS, error_text, filled_object, given, id_of, info_of,
    is_extension, items, joined, model_of, request_id, version_of,
};

pub const DIALECT: Dialect = Dialect {
    name: "acp",
    sign,
    mapper: Make::of::<Acp>(),
    series: SERIES,
};

/// Chunks of one block. The words are those by which agents' own notices are told from a text: see [`agents`].
const SERIES: &[Series] = &[Series {
    is: &[
        (&["method"], &["session/update"]),
        (
            &["params", "update", "sessionUpdate"],
            &["agent_message_chunk", "agent_thought_chunk"],
        ),
        (&["params", "update", "content", "type"], &["text"]),
    ],
    text: &["params", "update", "content", "text"],
    same: &[
        &["params", "sessionId"],
        &["params", "update", "messageId"],
        &["params", "update", "_meta", "claudeCode", "parentToolUseId"],
        &["params", "update", "_meta", "parentToolCallId"],
        &["params", "update", "_meta", "github.com/copilot", "agentId"],
    ],
    without: &[&["params", "update", "_meta", "usage"]],
    odd: &[
        "Error",
        " error",
        "exceeded: ",
        "Warning: ",
        "Info: ",
        "Model metadata for ",
        "Heads up: ",
        "Under-development ",
    ],
    ..Series::NO_FACTS
}];

/// Error codes of answers to other requests than the prompt: no such method, bad params, no such thing, bad JSON.
const OTHER_ERRORS: [i64; 5] = [-32700, -32601, -32602, -32600, -32002];
const CANCELLED_ERROR: i64 = -32800;
const PROMPT: &str = "session/prompt";
/// Requests whose failure is the run's, where the client's side is there to tell.
const FATAL_REQUESTS: &[&str] = &[
    "initialize",
    "authenticate",
    "auth/login",
    "session/new",
    "session/load",
    "session/resume",
    PROMPT,
];
/// Grok Build's own notifications: stored or replayed, and live; early versions said the same as plain updates.
const GROK_METHODS: [&str; 2] = ["_x.ai/session/update", "_x.ai/session_notification"];
const GROK_UPDATES: [&str; 7] = [
    "auto_compact_cancelled",
    "auto_compact_completed",
    "auto_compact_failed",
    "auto_compact_started",
    "model_changed",
    "retry_state",
    "turn_completed",
];
/// codex: ids of "calls" that say that an MCP server did not start.
const MCP_STARTUP: &str = "mcp_startup.";
const IGNORED_UPDATES: &[(&str, &str)] = &[
    ("available_commands_update", "commands"),
    ("current_mode_update", "session options"),
    ("compaction_summary_chunk", "compaction summary"),
    ("terminal_update", "terminal"),
    ("terminal_output_chunk", "terminal"),
    ("subagent_state_update", "sub-agent start and end"),
    ("session_message", "message between agents"),
    ("async_task_spawned", "background task"),
    ("async_task_progress", "background task"),
    ("async_task_state_update", "background task"),
];

/// Where the id of a sub-agent's session is in an update that such a session begins with (a draft of the protocol, what
/// Claude, codex, Cursor and Grok made of it).
fn spawns(kind: &str) -> Option<&'static [&'static str]> {
    match kind {
        "subagent_spawned" => Some(&["subagentSessionId", "child_session_id"]),
        "subagent_update" => Some(&["sessionId"]),
        _ => None,
    }
}

/// What counts of a sub-agent's session: its words and calls. Its prompt, plan, cost and title are not the session's.
fn of_subagents(kind: &str) -> bool {
    matches!(
        kind,
        "agent_message"
            | "agent_message_chunk"
            | "agent_thought"
            | "agent_thought_chunk"
            | "terminal_output_chunk"
            | "terminal_update"
            | "tool_call"
            | "tool_call_content_chunk"
            | "tool_call_update"
    )
}

/// How a prompt ended, by its stop reason; a refusal is the model's; "error" is DeepSeek-Reasonix's word.
fn outcome(reason: &str) -> &'static str {
    match reason {
        "max_tokens" | "max_turn_requests" => "limit",
        "refusal" | "error" => "failed",
        "cancelled" => "cancelled",
        _ => "completed",
    }
}

// -------------------------------------------------------------------- detection

fn sign(record: Value<'_>) -> Option<Sign> {
    let method = record.text_of("method");
    let params = record.get("params").filter(Value::is_object);
    if method.as_deref() == Some("session/update") {
        let kind = params?.path(&["update", "sessionUpdate"])?.text()?;
        return Sign::new(SURE, format!("session/update {}", &*kind));
    }
    if record.text_of("jsonrpc").as_deref() != Some("2.0") || record.first("type").is_some() {
        return None;
    }
    if let Some(method) = method {
        return sign_request(&method, params);
    }
    let answers = record.first("result").is_some() || record.first("error").is_some();
    (record.first("id").is_some() && answers)
        .then(|| sign_answer(record))
        .flatten()
}

fn sign_request(method: &str, params: Option<Value<'_>>) -> Option<Sign> {
    if method == "initialize" {
        count(params?.get("protocolVersion"))?;
        return Sign::new(SURE, "initialize with a numeric protocolVersion");
    }
    let why = || format!("a request {method}");
    if CLIENT_METHODS.contains(&method)
        || AGENT_METHODS.contains(&method)
        || method == "session/request_permission"
    {
        let has = |key| params.is_some_and(|params| params.first(key).is_some());
        let weight = if has("sessionId") || has("cwd") {
            SURE
        } else {
            20
        };
        return Sign::new(weight, why());
    }
    (is_extension(method) || method == "elicitation/create")
        .then(|| Sign::new(20, why()))
        .flatten()
}

fn sign_answer(record: Value<'_>) -> Option<Sign> {
    let result = record.get("result").filter(Value::is_object);
    let text = |keys: &[&str]| result?.path(keys)?.text();
    if let Some(result) = result
        && count(result.get("protocolVersion")).is_some()
        && (result.first("agentCapabilities").is_some() || result.first("info").is_some())
    {
        let version = version_of(result).map(Text::into_string);
        let why = "an answer with protocolVersion and agentCapabilities";
        return Sign::of_version(SURE, why, version);
    }
    if text(&["stopReason"]).is_some() {
        return Sign::new(60, "an answer with stopReason");
    }
    if text(&["outcome", "outcome"]).is_some() {
        return Sign::new(40, "an answer with the outcome of a question");
    }
    if text(&["sessionId"]).is_some() {
        return Sign::new(40, "an answer with sessionId");
    }
    Sign::new(5, "a JSON-RPC answer")
}

// -------------------------------------------------------------------- the mapper

/// Names a text block: by session and messageId, or by a number for one without.
#[derive(Clone, Deserialize, PartialEq, Serialize)]
struct BlockKey {
    id: Option<String>,
    name: String,
    run: i64,
}

impl BlockKey {
    fn key(&self) -> Key<'_> {
        Key::new(&self.name, self.run)
    }
}

/// A block with its kind and thread.
#[derive(Clone, Deserialize, PartialEq, Serialize)]
struct Place {
    kind: Kind,
    thread: Option<String>,
    block: BlockKey,
}

/// Whether a chunk says anything that was not said.
enum Once {
    /// It does, behind what was held back.
    More(Option<String>),
    Again,
}

/// An open permission request: the call, and the ids of the options that refuse it.
#[derive(Deserialize, Serialize)]
struct Ask {
    call: Option<String>,
    rejects: Vec<String>,
}

#[derive(Deserialize, Serialize)]
struct Acp {
    /// Of the protocol.
    version: i64,
    initialized: bool,
    /// The session's id was told.
    named: bool,
    /// Ids that session/new gave, or that the client loaded.
    sessions: Vec<String>,
    /// The client's side is there.
    merged: bool,
    /// Merged: the client's open requests, id: method.
    requests: HashMap<String, String>,
    /// Merged: the agent's open permission requests by id.
    asks: HashMap<String, Ask>,
    /// Merged: ids of its other open requests, and their terminals.
    errands: HashMap<String, Option<String>>,

    running: bool,
    /// A turn has ended and no other begun.
    ended: bool,
    /// It ended with calls still at work: its updates are not over.
    unfinished: bool,
    /// The agent prints the user's messages live.
    echoes: bool,
    replay: bool,
    /// Version 2: the answer to session/resume was there, which names no session.
    resumed: bool,
    /// The harness has said, as a chunk, why this turn fails.
    failure: bool,
    /// codex: the thread is broken.
    system_error: bool,
    /// And a cap is the reason.
    limit: bool,
    /// Merged: the client has cancelled the turn.
    called_off: bool,
    /// Grok: how the turn ended was said before the answer.
    told: bool,

    /// Number of the block without id.
    run: i64,
    /// Session, thread and kind of its chunks; None: it has ended.
    place: Option<(String, String, Kind)>,
    /// Key of the main thread's last message block.
    last: Option<BlockKey>,
    /// claude: the block of the last chunk; None: something else came behind it.
    heard: Option<Place>,
    /// claude: a chunk that says a block again, if no more of it comes.
    again: Option<(Place, String)>,
    calls: Calls,
    /// The run's usage so far.
    total: Tokens<'static>,
}

impl Default for Acp {
    fn default() -> Self {
        Acp {
            version: 1,
            initialized: false,
            named: false,
            sessions: Vec::new(),
            merged: false,
            requests: HashMap::new(),
            asks: HashMap::new(),
            errands: HashMap::new(),
            running: false,
            ended: false,
            unfinished: false,
            echoes: false,
            replay: false,
            resumed: false,
            failure: false,
            system_error: false,
            limit: false,
            called_off: false,
            told: false,
            run: 0,
            place: None,
            last: None,
            heard: None,
            again: None,
            calls: Calls::default(),
            total: Tokens::default(),
        }
    }
}

impl Mapper for Acp {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        let value = record.value();
        let [method, params] = value.fields(["method", "params"]);
        if let Some(method) = method.and_then(|method| method.text()) {
            let params = params.filter(Value::is_object);
            return match &*method {
                "session/update" => self.update(params, out),
                method => self.request(method, value, params, out),
            };
        }
        if value.first("result").is_some() || value.first("error").is_some() {
            return self.answer(value, out);
        }
        Outcome::Unknown
    }

    fn has_series(&self) -> bool {
        !self.calls.agent().whole
    }
}

impl Acp {
    // ---------------------------------------------------------------- session/update

    fn update(&mut self, params: Option<Value<'_>>, out: &mut Emitter<'_>) -> Outcome {
        let [session, update] =
            params.map_or([None; 2], |params| params.fields(["sessionId", "update"]));
        let session = id_of(session, out);
        let update = update.filter(Value::is_object);
        let [meta, message, kind, call] = update.map_or([None; 4], |update| {
            update.fields(["_meta", "messageId", "sessionUpdate", "toolCallId"])
        });
        if self.calls.agent().name.is_empty() {
            let agent = Agent::by_mark(meta, session.as_deref());
            self.calls.set_agent(agent);
        }
        let message = id_of(message, out);
        let call = id_of(call, out);
        let mut stamp = Stamp {
            session_id: session.clone().map(Text::from),
            message_id: message.map(Text::from),
            parent: self
                .calls
                .thread(meta, session.as_deref(), call.as_deref(), out)
                .map(Text::from),
            ..Stamp::default()
        };
        let Some(update) = update else {
            return Outcome::Unknown;
        };
        let Some(kind) = kind.and_then(|kind| kind.text()) else {
            return Outcome::Unknown;
        };
        if session.is_some() && !self.named {
            self.named = true;
            out.session_state(&[("sessionId", session.clone().map(Text::from))], &stamp);
        }
        if let Some(keys) = spawns(&kind) {
            self.end_block();
            self.spawned(keys, update, session.as_deref(), out);
            return Outcome::Ignored("sub-agent start and end");
        }
        let own = self.calls.of_child(session.as_deref())
            || (stamp.parent.is_some() && agents::of_subagent(meta));
        if own && !of_subagents(&kind) {
            return Outcome::Ignored("sub-agent's session");
        }
        let chunk = match &*kind {
            "agent_message_chunk" => Some(Kind::Message),
            "agent_thought_chunk" => Some(Kind::Thought),
            "user_message_chunk" => Some(Kind::User),
            _ => None,
        };
        if let Some(kind) = chunk {
            return self.chunk(kind, update, meta, &mut stamp, out);
        }
        self.end_block();
        match &*kind {
            "tool_call" | "tool_call_update" | "tool_call_content_chunk" => {
                self.tool(&kind, update, &mut stamp, out)
            }
            "plan" => self.plan(update.get("entries"), &stamp, out),
            "usage_update" => self.cost(update, meta, &stamp, out),
            "session_info_update" => self.info(update, meta, &stamp, out),
            "config_option_update" => {
                out.session_state(&[("model", model_of(Some(update)))], &stamp);
                Outcome::Ignored("session options")
            }
            kind => self.draft(kind, update, &mut stamp, out),
        }
    }

    /// What comes with the id of a sub-agent's session from now on is the sub-agent's. Cursor names the call.
    fn spawned(
        &mut self,
        keys: &[&str],
        update: Value<'_>,
        session: Option<&str>,
        out: &mut Emitter<'_>,
    ) {
        let call = id_of(update.path(&["_meta", "cursor", "toolCallId"]), out);
        let call = call.filter(|call| !call.is_empty());
        for key in keys {
            let child = id_of(update.get(key), out).filter(|child| !child.is_empty());
            if let Some(child) = child
                && session != Some(&*child)
                && !self.sessions.contains(&child)
            {
                let children = &mut self.calls.children;
                let own = children.get(&child).unwrap_or(&child);
                let thread = call.as_ref().unwrap_or(own).clone();
                children.insert(child, thread);
            }
        }
    }

    /// Updates of the unstable schema and of version 2.
    fn draft<'a>(
        &mut self,
        kind: &str,
        update: Value<'a>,
        stamp: &mut Stamp<'a>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        match kind {
            "agent_message" => self.whole(Kind::Message, update, stamp, out),
            "agent_thought" => self.whole(Kind::Thought, update, stamp, out),
            "user_message" => self.whole(Kind::User, update, stamp, out),
            "plan_update" => self.plan(update.path(&["plan", "entries"]), stamp, out),
            "plan_removed" if self.replay => Outcome::Ignored("replay"),
            "plan_removed" => {
                out.plan(&[], stamp);
                Outcome::Mapped
            }
            "state_update" => self.state(update, stamp, out),
            "notice" => notice(update, stamp, out),
            "compaction_update" => compaction(update, stamp, out),
            "terminal_update" | "terminal_output_chunk" if !self.replay => {
                self.calls.terminal(kind, update, out);
                Outcome::Ignored("terminal")
            }
            kind if GROK_UPDATES.contains(&kind) => self.grok(kind, update, stamp, out),
            other => rule(IGNORED_UPDATES, other),
        }
    }

    // ---------------------------------------------------------------- text

    fn chunk<'a>(
        &mut self,
        kind: Kind,
        update: Value<'a>,
        meta: Option<Value<'a>>,
        stamp: &mut Stamp<'a>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let content = update.get("content").filter(Value::is_object);
        let [sort, text] = content.map_or([None; 2], |content| content.fields(["type", "text"]));
        let text = text.filter(|_| sort.is_some_and(|sort| sort.is_text("text")));
        let text = text.and_then(|text| text.as_str());
        if kind == Kind::User
            && let Some(rule) = self.user_rule(out)
        {
            return Outcome::Ignored(rule);
        }
        if self.replay {
            return Outcome::Ignored("replay");
        }
        // Qwen: after each model call, with an empty text
        let used = agents::usage_of(meta.and_then(|meta| meta.get("usage")));
        if let Some(used) = &used {
            out.call_usage(used, stamp, None, false);
        }
        let agent = self.calls.agent();
        if let Some(text) = text {
            if text.raw().is_empty() {
                self.end_block();
                return match used {
                    Some(_) => Outcome::Mapped,
                    None => Outcome::Ignored("empty text"),
                };
            }
            if kind == Kind::Message && stamp.parent.is_none() {
                let said = Text::from(text);
                if let Some(notice) = agent.notice(stamp.message_id.as_deref(), &said) {
                    return self.said(notice, said, stamp, out);
                }
            }
        }
        let block = self.block_of(kind, stamp);
        let mut before = None;
        if let Some(text) = text
            && kind != Kind::User
            && agent.name == "claude"
        {
            match self.once(kind, &block, text, stamp, out) {
                Once::More(said) => before = said,
                Once::Again => return Outcome::Ignored("text again"),
            }
        }
        self.talks(kind, &block, stamp, out);
        let Some(text) = text else {
            return self.other(kind, content, stamp, out);
        };
        if agent.sections && kind == Kind::Thought && text.eq("\n\n") {
            let opens = out.streamed(kind, block.key(), stamp.thread()).is_none();
            if opens {
                return Outcome::Ignored("section break before a thought");
            }
        }
        if let Some(before) = before {
            out.delta(kind, block.key(), Text::from(before), stamp);
        }
        out.delta(kind, block.key(), text, stamp);
        Outcome::Mapped
    }

    /// What claude said of a chunk's block that was held back, or that the chunk says the whole block before it once
    /// more, under another id (a turn that began in mid-message, 0.47): that is held back, for a new message may begin
    /// like that as well, and then more of it comes.
    fn once(
        &mut self,
        kind: Kind,
        block: &BlockKey,
        text: Str<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Once {
        let place = Place {
            kind,
            thread: stamp.thread().map(str::to_owned),
            block: block.clone(),
        };
        let again = self.again.take().filter(|again| again.0 == place);
        let heard = self.heard.take();
        let repeats = again.is_none()
            && stamp.message_id.is_some()
            && heard.is_some_and(|heard| {
                heard != place
                    && (heard.kind, &heard.thread) == (kind, &place.thread)
                    && out.streamed(kind, block.key(), stamp.thread()).is_none()
                    && out
                        .streamed(kind, heard.block.key(), stamp.thread())
                        .is_some_and(|said| text.eq(said))
            });
        if repeats {
            self.again = Some((place.clone(), Text::from(text).to_string()));
        }
        self.heard = Some(place);
        match repeats {
            true => Once::Again,
            false => Once::More(again.map(|again| again.1)),
        }
    }

    /// The block that a chunk belongs to: by its messageId, else by what came before it.
    fn block_of(&mut self, kind: Kind, stamp: &Stamp<'_>) -> BlockKey {
        let session = stamp.session_id.as_deref().unwrap_or("");
        if let Some(id) = stamp.message_id.as_deref() {
            self.place = None;
            return BlockKey {
                id: Some(id.to_owned()),
                name: ["id ", session, " ", id].concat(),
                run: 0,
            };
        }
        let thread = stamp.thread().unwrap_or("");
        let same = self
            .place
            .as_ref()
            .is_some_and(|place| place.0 == session && place.1 == thread && place.2 == kind);
        if !same || self.calls.agent().whole {
            self.run += 1;
            self.place = Some((session.to_owned(), thread.to_owned(), kind));
        }
        BlockKey {
            id: None,
            name: String::new(),
            run: self.run,
        }
    }

    /// Ends the block without messageId.
    fn end_block(&mut self) {
        self.place = None;
        self.heard = None;
    }

    /// The main agent's word: it begins a turn unless it belongs to the one that has ended.
    fn talks(&mut self, kind: Kind, block: &BlockKey, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        if stamp.parent.is_some() || kind == Kind::User {
            return;
        }
        let known = out.streamed(kind, block.key(), None).is_some();
        let late = known || (self.unfinished && stamp.message_id.is_none());
        if !late {
            self.begin(stamp, out);
        }
        self.failure = false;
        if kind == Kind::Message {
            self.calls.refused.clear();
            if self.last.as_ref() != Some(block) {
                self.last = Some(block.clone());
            }
        }
    }

    /// An image, or a block that events have no shape for: that goes along as it is.
    fn other<'a>(
        &mut self,
        kind: Kind,
        content: Option<Value<'a>>,
        stamp: &mut Stamp<'a>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        self.end_block();
        match Block::of(content) {
            Some(Block::Image(image)) => out.image(kind, &image, stamp),
            _ => {
                let content = content.map_or(Data::Map(Vec::new()), Data::Wire);
                stamp.extra.push(("content".into(), content));
                out.blank(kind, stamp);
            }
        }
        Outcome::Mapped
    }

    /// The harness speaks, not the model.
    fn said(
        &mut self,
        notice: Notice,
        text: Text<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        self.end_block();
        if notice == Notice::Info {
            return Outcome::Ignored("notice of the harness");
        }
        let text = text.rewrite(|text| text.trim_matches('\n').to_owned());
        if notice == Notice::Error || self.system_error {
            if !(self.ended && self.system_error) {
                self.begin(stamp, out); // else the turn's answer came before its error
            }
            self.failure = true;
            self.limit |= agents::names_limit(None, &text);
            out.error(text, stamp, true);
        } else {
            out.notice(text, stamp);
        }
        Outcome::Mapped
    }

    /// Version 2: the message so far; it takes the place of all chunks with its id.
    fn whole(
        &mut self,
        kind: Kind,
        update: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        if kind == Kind::User
            && let Some(rule) = self.user_rule(out)
        {
            return Outcome::Ignored(rule);
        }
        if self.replay {
            return Outcome::Ignored("replay");
        }
        let content = update.get("content");
        if content.is_none() || stamp.message_id.is_none() {
            return Outcome::Ignored("message without news");
        }
        let block = self.block_of(kind, stamp);
        self.talks(kind, &block, stamp, out);
        out.final_text(
            kind,
            block.key(),
            joined(content).unwrap_or_default(),
            stamp,
        );
        Outcome::Mapped
    }

    /// Why a user's message is not news; None if it is.
    fn user_rule(&mut self, out: &mut Emitter<'_>) -> Option<&'static str> {
        if self.merged {
            return Some(if self.replay {
                "replay"
            } else {
                "prompt again"
            });
        }
        let unopened = !self.running && !self.ended && self.initialized && self.sessions.is_empty();
        if self.version == 1 && !self.echoes && (self.ended || unopened) {
            self.replay = true; // nobody prints live prompts but agents that did so in their first turn
        } else if self.version > 1 && unopened && !self.resumed {
            self.replay = true; // all print live prompts, but none before the session is there
        }
        if self.replay {
            return Some("replay");
        }
        self.echoes = true;
        self.begin(&Stamp::default(), out);
        None
    }

    // ---------------------------------------------------------------- turns

    fn begin(&mut self, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        if self.running {
            return;
        }
        self.running = true;
        self.ended = false;
        self.unfinished = false;
        self.failure = false;
        self.system_error = false;
        self.limit = false;
        self.called_off = false;
        self.told = false;
        self.calls.begin();
        out.commit(None);
        out.next_turn();
        let stamp = Stamp {
            session_id: stamp.session_id.clone(),
            ..Stamp::default()
        };
        out.state(State::new("turn").with("phase", "start"), &stamp);
    }

    fn end(
        &mut self,
        outcome: &'static str,
        reason: Option<Text<'_>>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) {
        self.begin(stamp, out);
        self.running = false;
        self.ended = true;
        self.unfinished = outcome == "completed" && self.calls.unfinished();
        if !self.unfinished {
            self.end_block();
        }
        out.state(turn_end(outcome).with("reason", reason), stamp);
    }

    /// A prompt ended with a stop reason; "end_turn" is what failures, cancelled turns (Copilot, goose and OpenCode of
    /// 2026) and refused calls say as well. For a refused call Zed's adapter for Claude said "refusal" (0.10).
    fn stop(&mut self, reason: Text<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        let outcome = match outcome(&reason) {
            "completed" if self.failure || self.system_error => {
                if self.limit {
                    "limit"
                } else {
                    "failed"
                }
            }
            "completed" if self.called_off => "cancelled",
            "completed" if !self.calls.refused.is_empty() => "denied",
            _ if &*reason == "refusal" && !self.calls.refused.is_empty() => "denied",
            other => other,
        };
        self.end(outcome, Some(reason), stamp, out);
    }

    fn fail(&mut self, error: Value<'_>, out: &mut Emitter<'_>) {
        let stamp = Stamp::default();
        self.begin(&stamp, out);
        let message = error_text(error);
        let class = |key: &str| error.path(&["data", key]).and_then(|class| class.text());
        let kinds = ["errorKind", "codex_error_info", "errorName"];
        let kind = kinds.into_iter().find_map(class);
        let kind = kind.or_else(|| class("reason").filter(|_| self.calls.agent().name == "goose"));
        self.take_back_echo(&message, out);
        let code = count(error.get("code"));
        if code == Some(CANCELLED_ERROR) {
            self.end("cancelled", Some(message), &stamp, out);
            return;
        }
        if !self.failure {
            // else a chunk has said it
            out.error(message.borrow(), &stamp, true);
        }
        let limit = self.limit || agents::names_limit(kind.as_deref(), &message);
        let outcome = if limit { "limit" } else { "failed" };
        let reason = filled(kind).or_else(|| code.map(|code| code.to_string().into()));
        self.end(outcome, reason, &stamp, out);
    }

    /// Some agents print the error as a message first: then it is no text.
    fn take_back_echo(&mut self, error: &str, out: &mut Emitter<'_>) {
        let Some(block) = self.last.clone() else {
            return;
        };
        let Some(text) = out.streamed(Kind::Message, block.key(), None) else {
            return;
        };
        let text = text.to_owned();
        let agent = self.calls.agent();
        if text.is_empty() || !agent.is_echo(block.id.as_deref(), &text, error) {
            return;
        }
        let stamp = Stamp {
            message_id: block.id.clone().map(Text::from),
            ..Stamp::default()
        };
        out.drop_block(Kind::Message, block.key(), &stamp);
        if !error.contains(text.strip_prefix("Error: ").unwrap_or(&text)) {
            self.failure = true;
            out.error(text, &Stamp::default(), true);
        }
    }

    /// JetBrains' clients are told in an extension why a turn of claude or codex failed, beside "end_turn".
    fn air(&mut self, meta: Option<Value<'_>>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        let Some(failure) = agents::failure_of(meta) else {
            return;
        };
        let Some(title) = failure.text_of("title") else {
            return;
        };
        if failure.text_of("severity").as_deref() != Some("error") {
            return;
        }
        self.begin(stamp, out);
        if !self.failure {
            out.error(title, stamp, true);
        }
        self.failure = true;
        self.limit |= agents::is_spent(failure);
    }

    /// Version 2: the session works, waits for a person, or has come to an end.
    fn state(&mut self, update: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        let state = update.text_of("state");
        match (state.as_deref(), update.text_of("stopReason")) {
            (Some("running"), _) => {
                self.begin(stamp, out);
                Outcome::Mapped
            }
            (Some("idle"), Some(_)) if !self.running => {
                Outcome::Ignored("session state again") // a snapshot may carry the last reason
            }
            (Some("idle"), Some(reason)) => {
                self.use_of(Some(update), stamp, out);
                self.air(update.get("_meta"), stamp, out);
                let error = update.get("error"); // beside "error" (schema 1.11 on)
                match error.filter(|error| *reason == *"error" && error.is_object()) {
                    Some(error) => self.fail(error, out),
                    None => self.stop(reason, stamp, out),
                }
                Outcome::Mapped
            }
            _ => Outcome::Ignored("session state"),
        }
    }

    // ---------------------------------------------------------------- other updates

    fn tool<'a>(
        &mut self,
        kind: &str,
        update: Value<'a>,
        stamp: &mut Stamp<'a>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let id = id_of(update.get("toolCallId"), out);
        let Some(id) = id.filter(|id| !id.is_empty()) else {
            return Outcome::Unknown;
        };
        let told = Told::by(kind, update);
        if id.starts_with(MCP_STARTUP) {
            // codex says as a failed call that an MCP server did not start
            let Some(text) = told.first_text() else {
                return Outcome::Ignored("start of MCP servers");
            };
            out.notice(text, stamp);
            return Outcome::Mapped;
        }
        let compaction = agents::compaction_of(told.get("_meta"));
        if compaction.is_some() || self.calls.compactions.contains(&id) {
            return self.compacts(id, told, compaction, stamp, out);
        }
        if self.replay {
            return self.calls.again(&id, told, stamp, out);
        }
        if self.calls.is_new(kind, &id) {
            self.opens(stamp, out);
        }
        let main = stamp.parent.is_none();
        let outcome = self.calls.tell(kind, &id, told, stamp, out);
        let status = update.text_of("status");
        let over = matches!(status.as_deref(), Some("completed" | "failed"));
        if main && over && self.calls.agent().name == "grok" {
            out.commit(None); // a retry goes back to here
        }
        outcome
    }

    /// claude and codex show a compaction as a call; only its first line may be marked.
    fn compacts(
        &mut self,
        id: String,
        told: Told<'_>,
        mark: Option<Value<'_>>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        if self.replay {
            return Outcome::Ignored("replay");
        }
        let state = State::new("compaction");
        let status = told.get("status").and_then(|status| status.text());
        if let Some(status @ ("completed" | "failed")) = status.as_deref() {
            self.calls.compactions.retain(|other| *other != id);
            let state = state
                .with("phase", "end")
                .with("success", status == "completed")
                .with("message", mark.and_then(|mark| mark.text_of("error")));
            out.state(state, stamp);
            return Outcome::Mapped;
        }
        if status.is_none() || self.calls.compactions.contains(&id) {
            return Outcome::Ignored("compaction");
        }
        self.calls.compactions.push(id);
        out.state(state.with("phase", "start"), stamp);
        Outcome::Mapped
    }

    /// A new call: if it is the main agent's, a turn is running.
    fn opens(&mut self, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        if stamp.parent.is_none() {
            self.begin(stamp, out);
        }
    }

    fn plan(
        &mut self,
        entries: Option<Value<'_>>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let Some(plan) = tool::plan_of(entries, "content", "status") else {
            return Outcome::Ignored("plan without entries");
        };
        if self.replay {
            return Outcome::Ignored("replay");
        }
        out.plan(&plan, stamp);
        Outcome::Mapped
    }

    /// The fill of the context, which is no usage, and the price of the session so far.
    fn cost(
        &mut self,
        update: Value<'_>,
        meta: Option<Value<'_>>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let model = meta.and_then(|meta| meta.text_of("_claude/model"));
        out.session_state(&[("model", model)], stamp);
        let cost = update.get("cost");
        let in_dollars = cost.is_some_and(|c| c.text_of("currency").as_deref() == Some("USD"));
        let amount = price(cost.and_then(|cost| cost.get("amount"))).filter(|_| in_dollars);
        let told = self.total.cost.map(|told| told.as_f64());
        let Some(amount) = amount.filter(|amount| Some(amount.as_f64()) != told) else {
            return Outcome::Ignored("context size");
        };
        self.total.cost = Some(amount);
        let tokens = Tokens {
            cost: Some(amount),
            ..Tokens::default()
        };
        out.run_usage(&tokens, stamp, Some(&self.total));
        Outcome::Mapped
    }

    fn info(
        &mut self,
        update: Value<'_>,
        meta: Option<Value<'_>>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        out.session_state(&[("title", update.text_of("title"))], stamp);
        let codex = meta.and_then(|meta| meta.get("codex"));
        let status = given(codex.and_then(|codex| codex.path(&["threadStatus", "type"])));
        match status.and_then(|status| status.text()).as_deref() {
            Some("active") => self.begin(stamp, out),
            Some("systemError") => {
                if self.ended {
                    // the answer said "end_turn" before
                    out.state(turn_end("failed").with("reason", "systemError"), stamp);
                } else {
                    self.begin(stamp, out);
                }
                self.system_error = true;
            }
            Some("idle") => self.system_error = false,
            _ => {}
        }
        let error = codex.and_then(|codex| codex.get("error"));
        let text = |key: &str| error.and_then(|error| error.text_of(key));
        if let Some(message) = text("message") {
            let retries = error.and_then(|error| error.get("willRetry")?.as_bool()) == Some(true);
            if retries {
                let details = filled(text("additionalDetails")).unwrap_or(message);
                let state = State::new("retry").with("phase", "start");
                out.state(state.with("message", details), stamp);
            } else {
                self.begin(stamp, out);
                self.failure = true;
                self.limit = agents::names_limit(text("codexErrorInfo").as_deref(), &message);
                out.error(message, stamp, true);
            }
            return Outcome::Mapped;
        }
        let title = agents::failure_of(meta).and_then(|failure| failure.text_of("title"));
        let failed = title.is_some();
        if let Some(title) = title {
            out.notice(title, stamp);
        }
        if status.is_some() || failed || update.first("title").is_some() {
            Outcome::Mapped
        } else {
            Outcome::Ignored("session info")
        }
    }

    fn is_grok(&mut self) {
        if self.calls.agent().name.is_empty() {
            self.calls.set_agent(&agents::GROK);
        }
    }

    /// What Grok Build says of a turn: its end, tries of a model call, compactions.
    fn grok(
        &mut self,
        kind: &str,
        update: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        if self.replay {
            return Outcome::Ignored("replay");
        }
        let session = stamp.session_id.as_deref();
        let known = |session: &str| self.sessions.iter().any(|known| known == session);
        if !self.sessions.is_empty() && !session.is_some_and(known) {
            return Outcome::Ignored("extension"); // a sub-agent's
        }
        self.is_grok();
        match kind {
            "turn_completed" => return self.completed(update, stamp, out),
            "retry_state" => return self.tries(update, stamp, out),
            "model_changed" => {
                out.session_state(&[("model", update.text_of("model_id"))], stamp);
            }
            "auto_compact_started" => {
                out.state(State::new("compaction").with("phase", "start"), stamp);
            }
            _ => {
                let message = filled(update.text_of("error")).or_else(|| update.text_of("reason"));
                let state = State::new("compaction")
                    .with("phase", "end")
                    .with("success", kind == "auto_compact_completed")
                    .with("summary", update.text_of("summary_preview"))
                    .with("message", message);
                out.state(state, stamp);
            }
        }
        Outcome::Mapped
    }

    /// The end of a turn, however it went.
    fn completed(
        &mut self,
        update: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let Some(reason) = update.text_of("stop_reason") else {
            return Outcome::Ignored("extension");
        };
        self.begin(stamp, out);
        self.use_of(Some(update), stamp, out);
        if matches!(&*reason, "error" | "rate_limit") {
            let message = filled(update.text_of("agent_result"));
            if let Some(message) = message.filter(|_| !self.failure) {
                self.limit = agents::names_limit(None, &message);
                out.error(message, stamp, true);
            }
            let outcome = if self.limit { "limit" } else { "failed" };
            self.end(outcome, Some(reason), stamp, out);
        } else {
            self.stop(reason, stamp, out);
        }
        self.told = true;
        Outcome::Mapped
    }

    /// A model call failed: it is made again, and what it said is void; or that was the last try.
    fn tries(&mut self, update: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        let message = filled(update.text_of("message")).or_else(|| update.text_of("reason"));
        match (update.text_of("type").as_deref(), message) {
            (Some("retrying"), message) => {
                out.abandon(None, stamp);
                self.last = None;
                let state = State::new("retry")
                    .with("phase", "start")
                    .with("attempt", count(update.get("attempt")))
                    .with("message", message);
                out.state(state, stamp);
            }
            (Some("exhausted" | "failed"), Some(message)) => {
                self.begin(stamp, out);
                self.failure = true;
                self.limit = agents::names_limit(None, &message);
                out.error(message, stamp, true);
            }
            _ => return Outcome::Ignored("extension"),
        }
        Outcome::Mapped
    }

    // ---------------------------------------------------------------- requests

    fn request(
        &mut self,
        method: &str,
        value: Value<'_>,
        params: Option<Value<'_>>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        match method {
            "session/request_permission" => self.ask(value, params, out),
            "elicitation/create" => {
                let message = params.and_then(|params| params.text_of("message"));
                let state = State::new("approval").with("phase", "requested");
                out.state(state.with("message", message), &Stamp::default());
                Outcome::Mapped
            }
            method if AGENT_METHODS.contains(&method) => self.client(method, value, params, out),
            method if CLIENT_METHODS.contains(&method) => {
                if self.merged && value.first("id").is_some() {
                    let terminal = params.and_then(|params| id_of(params.get("terminalId"), out));
                    self.errands.insert(request_id(value.get("id")), terminal);
                }
                Outcome::Ignored("request to the client")
            }
            method if GROK_METHODS.contains(&method) => {
                let update = params.and_then(|params| params.get("update"));
                let kind = update.and_then(|update| update.text_of("sessionUpdate"));
                let session = params.and_then(|params| params.get("sessionId"));
                let session = id_of(session, out);
                if let (Some(update), Some(kind)) = (update, kind) {
                    if GROK_UPDATES.contains(&&*kind) && !self.calls.of_child(session.as_deref()) {
                        self.end_block();
                        let stamp = Stamp {
                            session_id: session.map(Text::from),
                            ..Stamp::default()
                        };
                        return self.grok(&kind, update, &stamp, out);
                    }
                    if let Some(keys) = spawns(&kind) {
                        self.spawned(keys, update, session.as_deref(), out);
                    }
                }
                self.is_grok();
                Outcome::Ignored("extension")
            }
            method if is_extension(method) => Outcome::Ignored("extension"),
            _ => Outcome::Unknown,
        }
    }

    /// The agent asks if a call may run. For some this is the call's first line, or the first with arguments.
    fn ask(
        &mut self,
        value: Value<'_>,
        params: Option<Value<'_>>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let param = |key: &str| params.and_then(|params| params.get(key));
        let subject = param("subject"); // version 2
        let update = filled_object(param("toolCall"))
            .or_else(|| filled_object(subject.and_then(|subject| subject.get("toolCall"))));
        let meta = update.and_then(|update| update.get("_meta"));
        let session = id_of(param("sessionId"), out);
        let named = |holder: Option<Value<'_>>, out: &mut Emitter<'_>| {
            id_of(holder.and_then(|holder| holder.get("toolCallId")), out)
        };
        let id = named(update, out)
            .filter(|id| !id.is_empty())
            .or_else(|| named(subject, out));
        let parent = self
            .calls
            .thread(meta, session.as_deref(), id.as_deref(), out);
        let mut stamp = Stamp {
            session_id: session.map(Text::from),
            parent: parent.map(Text::from),
            ..Stamp::default()
        };
        // a version 2 request may name the call and nothing of it
        let told = update.or(subject);
        if let (Some(id), Some(told)) = (id.as_deref().filter(|id| !id.is_empty()), told) {
            if self.calls.is_new("session/request_permission", id) {
                self.end_block();
                self.opens(&stamp, out);
            }
            self.calls.ask(id, told, &mut stamp, out);
        }
        if self.merged && value.first("id").is_some() {
            let rejects = items(param("options"))
                .filter_map(|option| {
                    let id = id_of(option.get("optionId"), out)?;
                    let kind = option.text_of("kind")?;
                    kind.starts_with("reject").then_some(id)
                })
                .collect();
            let ask = Ask {
                call: id.clone(),
                rejects,
            };
            self.asks.insert(request_id(value.get("id")), ask);
        }
        let agent = self.calls.agent();
        let id_text = id.as_deref().unwrap_or("");
        let name = agent.tool_name(id_text, update, false);
        let title = filled(param("title").and_then(|title| title.text()))
            .or_else(|| update.and_then(|update| update.text_of("title")));
        let state = State::new("approval")
            .with("phase", "requested")
            .with("toolCallId", id)
            .with("toolName", name)
            .with("message", title);
        out.state(state, &stamp);
        Outcome::Mapped
    }

    /// The client's side of a merged log.
    fn client(
        &mut self,
        method: &str,
        value: Value<'_>,
        params: Option<Value<'_>>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        self.merged = true;
        if value.first("id").is_some() {
            let id = request_id(value.get("id"));
            self.requests.insert(id, method.to_owned());
        }
        let param = |key: &str| params.and_then(|params| params.get(key));
        let session = id_of(param("sessionId"), out);
        match method {
            "session/new" | "session/load" | "session/resume" => {
                self.replay = method != "session/new";
                self.opened(session.as_deref());
                let details = [
                    ("sessionId", session.map(Text::from)),
                    ("cwd", param("cwd").and_then(|cwd| cwd.text())),
                ];
                out.session_state(&details, &Stamp::default());
                Outcome::Mapped
            }
            PROMPT => {
                let known = session
                    .as_ref()
                    .is_some_and(|id| self.sessions.contains(id));
                if !self.sessions.is_empty() && !known {
                    if let Some(asked) = self.requests.get_mut(&request_id(value.get("id"))) {
                        asked.clear(); // its answer says nothing of the run either
                    }
                    return Outcome::Ignored("prompt of no session");
                }
                let stamp = Stamp {
                    session_id: session.map(Text::from),
                    ..Stamp::default()
                };
                self.end_block();
                self.begin(&stamp, out);
                for block in items(param("prompt")) {
                    if block.text_of("type").as_deref() == Some("text") {
                        let text = block.text_of("text").unwrap_or_default();
                        out.whole(Kind::User, text, &stamp);
                    } else {
                        let content = Some(block).filter(Value::is_object);
                        self.other(Kind::User, content, &mut stamp.clone(), out);
                    }
                }
                Outcome::Mapped
            }
            _ => {
                self.called_off |= method == "session/cancel" && self.running;
                Outcome::Ignored("request to the agent")
            }
        }
    }

    // ---------------------------------------------------------------- answers

    fn answer(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let key = request_id(value.get("id"));
        let result = value.get("result").filter(Value::is_object);
        let member = |key: &str| result.and_then(|result| result.get(key));
        let decided = member("outcome").filter(Value::is_object);
        let decides = decided.is_some_and(|decided| decided.text_of("outcome").is_some());
        if decides || (self.asks.contains_key(&key) && !self.requests.contains_key(&key)) {
            return self.decision(&key, decided, out);
        }
        let own = ["stopReason", "protocolVersion", "sessionId"];
        if !own.iter().any(|key| member(key).is_some())
            && let Some(terminal) = self.errands.remove(&key)
        {
            self.calls.printed(terminal, result, out);
            return Outcome::Ignored("answer of the client");
        }
        let method = self.requests.remove(&key);
        let method = method.as_deref();
        self.resumed |= self.replay || member("configOptions").is_some();
        self.replay &= method.is_some_and(|method| !FATAL_REQUESTS.contains(&method));
        if let Some(error) = value.get("error").filter(Value::is_object) {
            let code = count(error.get("code"));
            let other = code.is_some_and(|code| OTHER_ERRORS.contains(&code));
            let fatal = |method| FATAL_REQUESTS.contains(&method);
            if other && method != Some(PROMPT) || !method.is_none_or(fatal) {
                return Outcome::Ignored("error answer to another request");
            }
            if std::mem::take(&mut self.told) {
                return Outcome::Ignored("end of a turn again");
            }
            self.fail(error, out);
            return Outcome::Mapped;
        }
        let stamp = Stamp::default();
        if let Some(result) = result
            && let Some(version) = count(result.get("protocolVersion"))
        {
            if self.initialized {
                self.restart(out);
            }
            self.initialized = true;
            self.version = if version == 0 { 1 } else { version };
            let name = info_of(result).and_then(|info| info.text_of("name"));
            let agent = Agent::by_name(name.as_deref().unwrap_or(""));
            self.calls.set_agent(agent);
            out.session_state(&[("version", version_of(result))], &stamp);
            return Outcome::Mapped;
        }
        if let Some(reason) = member("stopReason").and_then(|reason| reason.text()) {
            if std::mem::take(&mut self.told) {
                return Outcome::Ignored("end of a turn again");
            }
            self.use_of(result, &stamp, out);
            self.air(member("_meta"), &stamp, out);
            self.stop(reason, &stamp, out);
            return Outcome::Mapped;
        }
        let session = id_of(member("sessionId"), out);
        self.opened(session.as_deref());
        let named = session.is_some();
        let details = [
            ("sessionId", session.map(Text::from)),
            ("model", model_of(result)),
        ];
        out.session_state(&details, &stamp);
        if named {
            Outcome::Mapped
        } else {
            Outcome::Ignored("answer")
        }
    }

    /// Another process of the agent in the same source: nothing of it belongs to what the first one left open.
    fn restart(&mut self, out: &mut Emitter<'_>) {
        out.commit(None);
        out.next_turn();
        out.another_run(&Stamp::default());
        self.calls = Calls::default();
        self.sessions.clear();
        self.place = None;
        self.last = None;
        self.heard = None;
        self.again = None;
        for flag in [
            &mut self.named,
            &mut self.echoes,
            &mut self.resumed,
            &mut self.running,
            &mut self.ended,
            &mut self.unfinished,
            &mut self.failure,
            &mut self.system_error,
            &mut self.limit,
            &mut self.called_off,
            &mut self.told,
        ] {
            *flag = false;
        }
    }

    /// A session was made or loaded.
    fn opened(&mut self, session: Option<&str>) {
        let Some(session) = session else { return };
        self.named = true;
        if !self.sessions.iter().any(|known| known == session) {
            self.sessions.push(session.to_owned());
        }
    }

    /// The client's answer to a question of the agent.
    fn decision(
        &mut self,
        key: &str,
        decided: Option<Value<'_>>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let ask = self.asks.remove(key);
        let option = id_of(decided.and_then(|decided| decided.get("optionId")), out);
        if let (Some(ask), Some(option)) = (&ask, &option)
            && let Some(call) = &ask.call
            && !ask.rejects.contains(option)
        {
            self.calls.allow(call);
        }
        let decision = option
            .filter(|option| !option.is_empty())
            .map(Text::from)
            .or_else(|| decided.and_then(|decided| decided.text_of("outcome")));
        let state = State::new("approval")
            .with("phase", "settled")
            .with("toolCallId", ask.and_then(|ask| ask.call))
            .with("decision", decision);
        out.state(state, &Stamp::default());
        Outcome::Mapped
    }

    /// The usage in the answer to session/prompt: of its last model call, of the prompt, or of the session.
    fn use_of(&mut self, result: Option<Value<'_>>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        let meta = result.and_then(|result| result.get("_meta"));
        let usage = agents::usage_of(result.and_then(|result| result.get("usage")))
            .or_else(|| agents::quota_of(meta));
        let Some(usage) = usage else { return };
        let agent = self.calls.agent();
        if agent.covers == Covers::Call {
            out.call_usage(&usage, stamp, None, false);
            return;
        }
        let whole = agents::session_quota(meta).filter(|_| agent.name == "claude");
        let adds = whole.is_none() && agent.covers == Covers::Turn;
        let add = |so_far: Option<i64>, counted: Option<i64>| {
            let before = if adds { so_far.unwrap_or(0) } else { 0 };
            counted.map(|counted| counted.saturating_add(before))
        };
        let counted = whole.as_ref().unwrap_or(&usage);
        self.total.prompt = add(self.total.prompt, counted.prompt);
        self.total.completion = add(self.total.completion, counted.completion);
        self.total.cached = add(self.total.cached, counted.cached);
        out.run_usage(&usage, stamp, Some(&self.total));
    }
}

fn turn_end(outcome: &'static str) -> State<'static> {
    State::new("turn")
        .with("phase", "end")
        .with("outcome", outcome)
}

/// An advice that never ends a turn, whatever its severity.
fn notice(update: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
    let parts: Vec<Text<'_>> = ["title", "description"]
        .into_iter()
        .filter_map(|key| filled(update.text_of(key)))
        .collect();
    match shape::glued(&parts, ": ") {
        Some(text) if update.text_of("severity").as_deref() != Some("info") => {
            out.notice(text, stamp);
            Outcome::Mapped
        }
        _ => Outcome::Ignored("notice of the harness"),
    }
}

fn compaction(update: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
    let status = update.text_of("status");
    let state = State::new("compaction");
    match status.as_deref() {
        Some("in_progress") => out.state(state.with("phase", "start"), stamp),
        Some("completed" | "failed" | "cancelled") => {
            let error = update.get("error");
            let message = filled(error.and_then(|error| error.text_of("message")))
                .or_else(|| error.and_then(|error| error.text()));
            let state = state
                .with("phase", "end")
                .with("success", status.as_deref() == Some("completed"))
                .with("summary", joined(update.get("summary")))
                .with("message", message);
            out.state(state, stamp);
        }
        _ => return Outcome::Ignored("compaction"),
    }
    Outcome::Mapped
}
