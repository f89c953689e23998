//! Codex as a server: `codex app-server` (v2: JSON-RPC without the member `jsonrpc`, methods with slashes; v1:
//! `codex/event/...`, up to 0.98) and `codex mcp-server` (`codex/event`, JSON-RPC 2.0). Recorded: 0.50, 0.98, 0.171.
//!
//! Several threads share one stdout: everything is keyed by its thread. A thread that a call spawned is a sub-agent; any
//! other is the client's and counts as main. Deltas come first, `item/completed` repeats the whole; an interrupted item
//! never completes. 0.98 prints v1 events beside v2 notifications for the same things: from the first v2 notification
//! on, v1 is not read.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::codex_events::{Agents, DELTAS, Events, end_turn, tell_plan};
use super::codex_responses::phase_of;
use super::codex_shapes::{self as shapes, Item, Meter, What, is, other_item};
use super::{Dialect, Make, Mapper, Outcome, SURE, Sign, filled, has_all};
use crate::emit::Emitter;
use crate::event::{Kind, PlanEntry, Stamp, State, iso_millis};
use crate::json::{Series, Text, Value};
use crate::number::count;
use crate::record::Record;
use crate::tool;

pub const DIALECT: Dialect = Dialect {
    name: "codex-appserver",
    sign,
    mapper: Make::of::<AppServer>(),
    series: SERIES,
};

/// Deltas of one item, or of one part of it.
const SERIES: &[Series] = &[
    Series {
        is: &[(
            &["method"],
            &["item/agentMessage/delta", "item/reasoning/summaryTextDelta"],
        )],
        text: &["params", "delta"],
        same: &[
            &["params", "threadId"],
            &["params", "thread", "id"],
            &["params", "itemId"],
            &["params", "summaryIndex"],
        ],
        ..Series::NO_FACTS
    },
    // those of v1 and of the MCP server
    Series {
        is: &[
            (
                &["method"],
                &[
                    "codex/event",
                    "codex/event/agent_message_delta",
                    "codex/event/agent_message_content_delta",
                    "codex/event/agent_reasoning_delta",
                    "codex/event/reasoning_content_delta",
                ],
            ),
            (&["params", "msg", "type"], DELTAS),
        ],
        text: &["params", "msg", "delta"],
        same: &[
            &["params", "conversationId"],
            &["params", "_meta", "threadId"],
            &["params", "msg", "item_id"],
        ],
        ..Series::NO_FACTS
    },
];

/// Heads of v2 methods that tell of threads.
const V2: [&str; 3] = ["thread/", "turn/", "item/"];
/// Methods that say nothing for events.
const IGNORED: &[(&str, &str)] = &[
    ("thread/status/changed", "status of a thread"),
    ("thread/readState/changed", "read state"),
    ("thread/archived", "list of threads"),
    ("thread/unarchived", "list of threads"),
    ("thread/closed", "list of threads"),
    ("thread/goal/updated", "goal"),
    ("thread/goal/cleared", "goal"),
    ("thread/settings/updated", "settings"),
    ("turn/diff/updated", "diff of the turn"),
    ("item/reasoning/summaryPartAdded", "section break"),
    ("item/reasoning/textDelta", "raw reasoning"),
    (
        "item/commandExecution/outputDelta",
        "output of a running command",
    ),
    (
        "item/commandExecution/terminalInteraction",
        "output of a running command",
    ),
    ("item/fileChange/outputDelta", "output of a patch"),
    ("item/fileChange/patchUpdated", "output of a patch"),
    ("item/mcpToolCall/progress", "progress of a tool"),
    ("item/plan/delta", "text of a plan"),
    ("item/autoApprovalReview/started", "automatic review"),
    ("item/autoApprovalReview/completed", "automatic review"),
    ("rawResponseItem/completed", "raw item"),
    ("execCommandApproval", "request that an event tells too"),
    ("applyPatchApproval", "request that an event tells too"),
    ("elicitation/create", "request that an event tells too"),
    ("item/tool/call", "request that an item tells too"),
    ("modelProvider/authRecoveryStarted", "account"),
    ("modelProvider/authRecoveryCompleted", "account"),
    ("thread/environment/connected", "environment"),
    ("thread/environment/disconnected", "environment"),
    ("thread/queue/changed", "queue of prompts"),
    ("thread/project/updated", "list of threads"),
    ("thread/deleted", "list of threads"),
    ("project/changed", "list of threads"),
    ("rawResponse/completed", "raw item"),
    ("model/verification", "notice of the provider"),
    ("model/safetyBuffering/updated", "notice of the provider"),
    ("turn/moderationMetadata", "notice of the provider"),
    ("sessionConfigured", "session of v1"),
    ("authStatusChange", "account"),
    ("loginChatGptComplete", "account"),
];
/// Heads of further methods that say nothing for events.
const IGNORED_HEADS: &[(&str, &str)] = &[
    ("account/", "account"),
    ("app/", "apps"),
    ("command/", "command of the client"),
    ("configWarning/", "configuration"),
    ("externalAgentConfig/", "configuration"),
    ("fs/", "files of the client"),
    ("fuzzyFileSearch/", "search of the client"),
    ("hook/", "hook"),
    ("mcpServer/", "MCP servers"),
    ("process/", "command of the client"),
    ("remoteControl/", "remote control"),
    ("skills/", "skills"),
    ("thread/realtime/", "realtime audio"),
    ("windows", "platform"),
];

fn is_approval(method: &str) -> bool {
    matches!(
        method,
        "item/commandExecution/requestApproval"
            | "item/fileChange/requestApproval"
            | "item/permissions/requestApproval"
            | "item/tool/requestUserInput"
            | "mcpServer/elicitation/request"
    )
}

fn is_v2(method: &str) -> bool {
    V2.iter().any(|head| method.starts_with(head))
}

fn sign(record: Value<'_>) -> Option<Sign> {
    let method = record.text_of("method");
    let params = record
        .get("params")
        .is_some_and(|params| params.is_object());
    let result = record.get("result").filter(Value::is_object);
    if has_all(record, &["jsonrpc"]) {
        if method.as_deref() == Some("codex/event") && params {
            let version = Some("mcp-server".to_owned());
            return Sign::of_version(SURE, "JSON-RPC 2.0 with the method codex/event", version);
        }
        let info = result.and_then(|result| result.get("serverInfo"));
        let info = info.filter(|info| info.text_of("name").as_deref() == Some("codex-mcp-server"));
        if let Some(info) = info {
            let version = info.text_of("version").map(Text::into_string);
            return Sign::of_version(SURE, "an initialize answer of codex-mcp-server", version);
        }
        let response = record.get("method").is_none_or(|method| method.is_null())
            && has_all(record, &["id"])
            && (has_all(record, &["result"]) || has_all(record, &["error"]));
        return response.then(|| Sign::new(1, "a JSON-RPC response"))?;
    }
    if let Some(method) = method {
        let method = &*method;
        if !params {
            return None;
        }
        let without = "without the member jsonrpc";
        if method.starts_with("codex/event/") {
            let version = Some("v1".to_owned());
            return Sign::of_version(SURE, format!("{method} {without}"), version);
        }
        if is_v2(method) {
            let version = Some("v2".to_owned());
            return Sign::of_version(SURE, format!("{method} {without}"), version);
        }
        return Sign::new(30, format!("the method {method} {without}"));
    }
    if !has_all(record, &["id"]) {
        return None;
    }
    if let Some(result) = result {
        return match result.text_of("userAgent") {
            Some(agent) => {
                let version = version_of(&agent).map(str::to_owned);
                Sign::of_version(60, "an answer with userAgent", version)
            }
            None => Sign::new(5, "a response without the member jsonrpc"),
        };
    }
    let error = record.get("error").filter(Value::is_object)?;
    error.first("code")?;
    Sign::new(5, "an error response without the member jsonrpc")
}

/// 0.171.0 of `recorder/0.171.0 (...)`.
fn version_of(agent: &str) -> Option<&str> {
    let name = agent.split_once(' ').map_or(agent, |(name, _)| name);
    let (_, version) = name.split_once('/')?;
    (!version.is_empty()).then_some(version)
}

/// What is known of one thread.
#[derive(Default, Deserialize, Serialize)]
struct Thread {
    meter: Meter,
    /// Keys of the blocks that stream, and their kind.
    open: Vec<(String, Kind)>,
    plan: Option<Vec<PlanEntry<'static>>>,
    /// A turn or an item of it was told.
    works: bool,
    /// The agent said something in this turn.
    said: bool,
    /// The plan that it proposed in this turn.
    proposal: Option<String>,
    /// A call was refused, and no text or call came since.
    refused: bool,
    /// The error that ended the turn, as `error` told it.
    fatal: Option<String>,
}

#[derive(Default, Deserialize, Serialize)]
struct AppServer {
    v2: bool,
    threads: Vec<(String, Thread)>,
    /// Those of v1 and of the MCP server.
    conversations: HashMap<String, Events>,
    /// Thread of a sub-agent: id of the call that spawned it.
    agents: Agents,
    /// Threads that no call spawned.
    roots: HashSet<String>,
    /// Open calls that spawn a thread.
    spawning: Vec<String>,
    /// Id of an open server request: what it is about.
    requests: HashMap<String, String>,
    models: HashMap<String, String>,
    turns: u64,
    /// An error answer, while no turn has started.
    refusal: Option<String>,
    /// Any text of a main thread.
    said: bool,
    /// Compaction shows as items.
    compacted: bool,
}

impl Mapper for AppServer {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        let value = record.value();
        let Some(method) = value.text_of("method") else {
            return self.response(value, out);
        };
        let method = &*method;
        let params = Params(value.get("params").filter(Value::is_object));
        if method == "codex/event" || method.starts_with("codex/event/") {
            return self.event(params, out);
        }
        match method {
            "error" => {
                let stamp = self.stamp(params, value);
                self.error(params, &stamp, out)
            }
            "configWarning" | "deprecationNotice" | "warning" | "guardianWarning" => {
                let message = filled(params.text_of("message"));
                let message = message.or_else(|| params.text_of("summary"));
                if let Some(message) = message {
                    let stamp = self.stamp(params, value);
                    out.notice(message, &stamp);
                }
                Outcome::Mapped
            }
            _ if is_approval(method) => self.approval(value, params, out),
            "serverRequest/resolved" => {
                let call = self.requests.remove(&request(params.get("requestId")));
                let stamp = self.stamp(params, value);
                let state = State::new("approval")
                    .with("phase", "settled")
                    .with("toolCallId", call);
                out.state(state, &stamp);
                Outcome::Mapped
            }
            _ => {
                let exact = IGNORED.iter().find(|(name, _)| *name == method);
                let head = || {
                    IGNORED_HEADS
                        .iter()
                        .find(|(head, _)| method.starts_with(head))
                };
                if let Some((_, rule)) = exact.or_else(head) {
                    return Outcome::Ignored(rule);
                }
                if is_v2(method) {
                    self.v2 = true;
                    let stamp = self.stamp(params, value);
                    return self.notification(method, params, stamp, out);
                }
                if method == "model/rerouted" {
                    let stamp = self.stamp(params, value);
                    out.session_state(&[("model", params.text_of("toModel"))], &stamp);
                    return Outcome::Mapped;
                }
                Outcome::Unknown
            }
        }
    }

    /// A client that was refused before any turn: that is how the run ended.
    fn close(&mut self, out: &mut Emitter<'_>) {
        if let Some(message) = &self.refusal
            && self.turns == 0
        {
            let outcome = shapes::outcome_of(Some(message), None);
            out.error(message.as_str(), &Stamp::default(), true);
            end(outcome, "error response", out);
        }
    }
}

fn end(outcome: &'static str, reason: &'static str, out: &mut Emitter<'_>) {
    let state = State::new("end")
        .with("outcome", outcome)
        .with("reason", reason);
    out.state(state, &Stamp::default());
}

/// The params of a notification; they may be missing.
#[derive(Clone, Copy)]
struct Params<'a>(Option<Value<'a>>);

impl<'a> Params<'a> {
    fn get(self, key: &str) -> Option<Value<'a>> {
        self.0?.get(key)
    }

    fn text_of(self, key: &str) -> Option<Text<'a>> {
        self.0?.text_of(key)
    }

    fn object(self, key: &str) -> Option<Value<'a>> {
        self.get(key).filter(Value::is_object)
    }
}

impl AppServer {
    // ---------------------------------------------------------------- threads

    fn stamp<'a>(&mut self, params: Params<'a>, value: Value<'a>) -> Stamp<'a> {
        let thread = match params.object("thread") {
            Some(thread) => thread.text_of("id"),
            None => params.text_of("threadId"),
        };
        let model = self.models.get(thread.as_deref().unwrap_or("")).cloned();
        Stamp {
            timestamp: iso_millis(value.get("emittedAtMs")),
            model: model.map(Text::from),
            parent: self.parent(thread.as_deref()).map(Text::from),
            session_id: thread,
            ..Stamp::default()
        }
    }

    /// The call that spawned a thread. A thread that shows up while a call spawns one is that call's.
    fn parent(&mut self, thread: Option<&str>) -> Option<String> {
        let thread = thread?;
        if self.roots.contains(thread) {
            return None;
        }
        if let Some(call) = self.agents.get(thread) {
            return Some(call.clone());
        }
        let Some(call) = self.spawning.last() else {
            self.roots.insert(thread.to_owned());
            return None;
        };
        self.agents.insert(thread.to_owned(), call.clone());
        Some(call.clone())
    }

    fn thread(&mut self, stamp: &Stamp<'_>) -> &mut Thread {
        let id = stamp.session_id.as_deref().unwrap_or("");
        let known = self.threads.iter().position(|(name, _)| name == id);
        let at = known.unwrap_or_else(|| {
            self.threads.push((id.to_owned(), Thread::default()));
            self.threads.len() - 1
        });
        &mut self.threads[at].1
    }

    /// A thread object: the answer to thread/start and the like, or thread/started.
    fn introduce(
        &mut self,
        facts: Value<'_>,
        cwd: Option<Text<'_>>,
        model: Option<Text<'_>>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) {
        let Some(thread) = facts.text_of("id") else {
            return;
        };
        if facts.text_of("parentThreadId").is_some() && !self.agents.contains_key(&*thread) {
            // a sub-agent whose call is not printed: its thread stands for the call
            let call = self.spawning.last().map_or(&*thread, |call| call.as_str());
            self.agents.insert(thread.to_string(), call.to_owned());
        }
        let model = filled(facts.text_of("model")).or(model);
        if let Some(model) = &model {
            self.models.insert(thread.to_string(), model.to_string());
        }
        if self.parent(Some(&thread)).is_none() {
            let details = [
                ("sessionId", Some(thread)),
                ("version", facts.text_of("cliVersion")),
                ("model", model),
                ("cwd", facts.get("cwd").map_or(cwd, |cwd| cwd.text())),
                ("title", facts.text_of("name")),
            ];
            out.session_state(&details, stamp);
        }
    }

    // ---------------------------------------------------------------- v2

    fn notification<'a>(
        &mut self,
        method: &str,
        params: Params<'a>,
        stamp: Stamp<'a>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        match method {
            "item/started" | "item/completed" => match params.object("item") {
                Some(item) => self.item(method == "item/completed", item, stamp, out),
                None => Outcome::Unknown,
            },
            "item/agentMessage/delta" | "item/reasoning/summaryTextDelta" => {
                self.delta(method, params, stamp, out)
            }
            "thread/started" => {
                if let Some(thread) = params.object("thread") {
                    self.introduce(thread, None, None, &stamp, out);
                }
                Outcome::Mapped
            }
            "turn/started" | "turn/completed" => {
                self.turn(method == "turn/started", params, stamp, out)
            }
            "turn/plan/updated" => {
                let entries = tool::plan_of(params.get("plan"), "step", "status");
                tell_plan(entries, &mut self.thread(&stamp).plan, &stamp, out)
            }
            "thread/tokenUsage/updated" => {
                let usage = params.object("tokenUsage");
                let of = |key| usage.and_then(|usage| usage.get(key));
                let total = of("total").filter(Value::is_object);
                let thread = self.thread(&stamp);
                let known = match total.filter(|_| !thread.works) {
                    Some(total) => {
                        thread.meter.know(total); // told to a client that resumes a thread: no model call
                        false
                    }
                    None => thread.meter.take(out, total, of("last"), &stamp),
                };
                match known {
                    true => Outcome::Mapped,
                    false => Outcome::Ignored("token count again"),
                }
            }
            "thread/name/updated" => {
                if stamp.parent.is_none() {
                    out.session_state(&[("title", params.text_of("threadName"))], &stamp);
                }
                Outcome::Mapped
            }
            "thread/compacted" if self.compacted => Outcome::Ignored("compaction again"),
            "thread/compacted" => {
                let state = State::new("compaction").with("phase", "end");
                out.state(state.with("success", true), &stamp);
                Outcome::Mapped
            }
            _ => Outcome::Unknown,
        }
    }

    fn turn<'a>(
        &mut self,
        starts: bool,
        params: Params<'a>,
        mut stamp: Stamp<'a>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let turn = Params(params.object("turn"));
        let thread = self.thread(&stamp);
        for (key, kind) in thread.open.drain(..) {
            out.settle(kind, key.as_str(), stamp.thread()); // what was cut stays as it is
        }
        if starts {
            thread.works = true;
            thread.said = false;
            thread.refused = false;
            thread.fatal = None;
            thread.proposal = None;
            self.turns += 1;
            if stamp.parent.is_none() {
                out.state(State::new("turn").with("phase", "start"), &stamp);
            }
            return Outcome::Mapped;
        }
        let status = turn.text_of("status");
        thread.last_words(turn.get("items"), &mut stamp, out);
        if let Some(proposal) = &thread.proposal
            && !thread.said
            && status.as_deref() == Some("completed")
        {
            out.whole(Kind::Message, proposal.as_str(), &stamp);
        }
        if stamp.parent.is_some() {
            return Outcome::Ignored("end of a sub-agent's turn");
        }
        let outcome = match status.as_deref() {
            Some("completed") if thread.refused => "denied",
            Some("completed") => "completed",
            Some("interrupted") => "cancelled",
            _ => {
                let error = Params(turn.object("error"));
                let message = filled(error.text_of("message"));
                if let Some(message) = &message
                    && thread.fatal.as_deref() != Some(&**message)
                {
                    out.error(message.borrow(), &stamp, true);
                }
                let message = message.as_deref().or(thread.fatal.as_deref());
                shapes::outcome_of(message, error.get("codexErrorInfo"))
            }
        };
        end_turn(outcome, status, &stamp, out);
        Outcome::Mapped
    }

    // ---------------------------------------------------------------- items

    fn delta<'a>(
        &mut self,
        method: &str,
        params: Params<'a>,
        mut stamp: Stamp<'a>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let delta = params.get("delta").and_then(|delta| delta.as_str());
        let delta = delta.filter(|delta| !delta.raw().is_empty());
        let (Some(item), Some(delta)) = (params.text_of("itemId"), delta) else {
            return Outcome::Ignored("empty text");
        };
        stamp.message_id = Some(item.clone());
        let message = method == "item/agentMessage/delta";
        let (kind, index) = if message {
            (Kind::Message, None)
        } else {
            (Kind::Thought, params.get("summaryIndex"))
        };
        let key = key(&stamp, &item, digits(index).unwrap_or(""));
        let thread = self.thread(&stamp);
        thread.works = true;
        if message {
            thread.refused = false;
            thread.said = true;
        }
        if !thread.open.iter().any(|(open, _)| *open == key) {
            thread.open.push((key.clone(), kind));
        }
        out.delta(kind, key.as_str(), delta, &stamp);
        Outcome::Mapped
    }

    fn item<'a>(
        &mut self,
        done: bool,
        item: Value<'a>,
        mut stamp: Stamp<'a>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let name = item.text_of("type").unwrap_or_default();
        let Some(id) = item.text_of("id") else {
            return Outcome::Unknown;
        };
        if &*name == "subAgentActivity"
            && let Some(child) = item.text_of("agentThreadId")
            && item.text_of("kind").as_deref() == Some("started")
        {
            let call = id.to_string();
            self.agents.entry(child.into_string()).or_insert(call);
        }
        self.thread(&stamp).works = true;
        if &*name == "plan" && done {
            // plan mode: it is the turn's answer if that says nothing else
            let proposal = filled(item.text_of("text")).map(Text::into_string);
            self.thread(&stamp).proposal = proposal;
        }
        let Some(what) = What::of(&name) else {
            return other_item(&name);
        };
        if what.is_call() {
            return self.call(what, item, done, &stamp, out);
        }
        if what == What::Compaction {
            self.compacted = true;
            let state = State::new("compaction");
            let state = if done {
                state.with("phase", "end").with("success", true)
            } else {
                state.with("phase", "start")
            };
            out.state(state, &stamp);
            return Outcome::Mapped;
        }
        if !done {
            return Outcome::Ignored("start of an item");
        }
        stamp.message_id = Some(id.clone());
        stamp.extra = phase_of(item);
        let (kind, parts) = match what {
            What::User => {
                let mut shown = false;
                for text in shapes::texts_of(item.get("content")) {
                    shown |= !text.is_empty();
                    out.whole(Kind::User, text, &stamp);
                }
                return mapped(shown);
            }
            What::Message => {
                let text = item.text_of("text").unwrap_or_default();
                (Kind::Message, vec![(key(&stamp, &id, ""), text)])
            }
            What::Reasoning => {
                let parts = shapes::strings(item.get("summary")).into_iter().enumerate();
                let keyed = parts.map(|(at, text)| (key(&stamp, &id, &at.to_string()), text));
                (Kind::Thought, keyed.collect())
            }
            _ => return Outcome::Unknown,
        };
        self.thread(&stamp).finals(kind, parts, &stamp, out)
    }

    fn call(
        &mut self,
        what: What,
        item: Value<'_>,
        done: bool,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let name = item.text_of("type").unwrap_or_default();
        let id = item.text_of("id").unwrap_or_default();
        let item = Item::new(item);
        self.thread(stamp).refused = done && item.status.as_deref() == Some("declined");
        let known = out.is_open(&id) || done && out.knows(&id);
        if !known {
            shapes::announce(out, what, name, &item, id.clone(), stamp);
        }
        if what == What::Agent && item.tool.as_deref() == Some("spawnAgent") {
            if done {
                if let Some(at) = self.spawning.iter().position(|call| **call == *id) {
                    self.spawning.remove(at);
                }
            } else if !known {
                self.spawning.push(id.to_string());
            }
            for child in shapes::strings(item.facts.get("receiverThreadIds")) {
                let call = id.to_string();
                self.agents.entry(child.into_string()).or_insert(call);
            }
        }
        let told = if done {
            shapes::settle(out, what, &item, id, stamp, false)
        } else {
            !known
        };
        match told {
            true => Outcome::Mapped,
            false => Outcome::Ignored("item again"),
        }
    }

    // ---------------------------------------------------------------- errors and approvals

    fn error(&mut self, params: Params<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        let error = Params(params.object("error"));
        let message = error.text_of("message").unwrap_or_default();
        if is(params.get("willRetry"), true) {
            let retry = shapes::retry_of(&message);
            shapes::tell_retry(out, message, retry, stamp);
            return Outcome::Mapped;
        }
        self.thread(stamp).fatal = Some(message.to_string());
        match stamp.parent {
            None => out.error(message, stamp, true),
            Some(_) => out.notice(message, stamp),
        }
        Outcome::Mapped
    }

    fn approval(&mut self, value: Value<'_>, params: Params<'_>, out: &mut Emitter<'_>) -> Outcome {
        let item = params.text_of("itemId");
        if let Some(item) = &item {
            let id = request(value.get("id"));
            self.requests.insert(id, item.to_string());
        }
        let message = filled(params.text_of("reason")).or_else(|| params.text_of("message"));
        let stamp = self.stamp(params, value);
        let state = State::new("approval")
            .with("phase", "requested")
            .with("toolCallId", item)
            .with("message", message);
        out.state(state, &stamp);
        Outcome::Mapped
    }

    // ---------------------------------------------------------------- v1 and the MCP server

    fn event(&mut self, params: Params<'_>, out: &mut Emitter<'_>) -> Outcome {
        if self.v2 {
            return Outcome::Ignored("v1 event of what v2 tells");
        }
        let Some(msg) = params.object("msg") else {
            return Outcome::Unknown;
        };
        let name = params.text_of("conversationId").or_else(|| {
            let meta = params.object("_meta")?;
            meta.text_of("threadId")
        });
        let key = name.as_deref().unwrap_or("");
        let parent = self.agents.get(key).cloned();
        if parent.is_none()
            && let Some(name) = &name
        {
            out.session_state(&[("sessionId", Some(name.borrow()))], &Stamp::default());
        }
        if matches!(
            msg.text_of("type").as_deref(),
            Some("task_started" | "turn_started")
        ) {
            self.turns += 1;
        }
        if !self.conversations.contains_key(key) {
            let events = Events::named(key);
            self.conversations.insert(key.to_owned(), events);
        }
        let Some(events) = self.conversations.get_mut(key) else {
            return Outcome::Unknown;
        };
        let main = parent.is_none();
        let stamp = Stamp {
            session_id: name.as_ref().map(Text::borrow),
            parent: parent.map(Text::from),
            ..Stamp::default()
        };
        let outcome = events.map(msg, stamp, &mut self.agents, out);
        self.said |= events.said && main;
        outcome
    }

    // ---------------------------------------------------------------- responses

    fn response(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let stamp = Stamp::default();
        if !has_all(value, &["id"]) {
            return Outcome::Unknown;
        }
        if let Some(error) = value.get("error").filter(Value::is_object) {
            // the client asked for something unknown
            let known = matches!(count(error.get("code")), Some(-32601 | -32602 | -32002));
            let Some(message) = error.text_of("message").filter(|_| !known) else {
                return Outcome::Ignored("error response");
            };
            self.refusal = Some(message.to_string());
            out.notice(message, &stamp);
            return Outcome::Mapped;
        }
        let Some(result) = value.get("result").filter(Value::is_object) else {
            return Outcome::Ignored("response");
        };
        if let Some(agent) = result.text_of("userAgent") {
            let version = version_of(&agent).map(str::to_owned);
            let version = version.map(|version| match version.contains('\u{fffd}') {
                true => agent.rewrite(|_| version),
                false => version.into(),
            });
            out.session_state(&[("version", version)], &stamp);
        } else if let Some(info) = result.get("serverInfo").filter(Value::is_object) {
            out.session_state(&[("version", info.text_of("version"))], &stamp);
        } else if let Some(thread) = result.get("thread").filter(Value::is_object) {
            let (cwd, model) = (result.text_of("cwd"), result.text_of("model"));
            self.introduce(thread, cwd, model, &stamp, out);
        } else if let Some(conversation) = result.text_of("conversationId") {
            let details = [
                ("sessionId", Some(conversation)),
                ("model", result.text_of("model")),
            ];
            out.session_state(&details, &stamp);
        } else if let Some(content) = result.get("content").filter(Value::is_array)
            && has_all(value, &["jsonrpc"])
        {
            return self.answer(result, content, out);
        } else {
            return Outcome::Ignored("response");
        }
        Outcome::Mapped
    }

    /// The answer of the MCP server to tools/call: the final text, which the events have told, or an error.
    fn answer(&mut self, result: Value<'_>, content: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let text = shapes::lines(shapes::texts_of(Some(content)));
        if is(result.get("isError"), true) {
            let outcome = shapes::outcome_of(Some(&text), None);
            out.error(text, &Stamp::default(), true);
            end(outcome, "isError", out);
            return Outcome::Mapped;
        }
        if !self.said {
            out.whole(Kind::Message, text, &Stamp::default());
        }
        if self.turns == 0 {
            end("completed", "response", out);
        }
        if self.said && self.turns > 0 {
            Outcome::Ignored("answer again")
        } else {
            Outcome::Mapped
        }
    }
}

impl Thread {
    /// The whole text of an item's parts.
    fn finals(
        &mut self,
        kind: Kind,
        parts: Vec<(String, Text<'_>)>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let mut shown = false;
        for (key, text) in parts {
            if !text.is_empty() {
                out.final_text(kind, key.as_str(), text, stamp);
                shown = true;
            }
            self.open.retain(|(open, _)| *open != key);
            out.settle(kind, key.as_str(), stamp.thread());
        }
        if shown && kind == Kind::Message {
            self.said = true;
            self.refused = false;
        }
        mapped(shown)
    }

    /// The end of a turn repeats its last message; it is news only if nothing was said.
    fn last_words<'a>(
        &mut self,
        items: Option<Value<'a>>,
        stamp: &mut Stamp<'a>,
        out: &mut Emitter<'_>,
    ) {
        if self.said {
            return;
        }
        for item in items.into_iter().flat_map(|items| items.items()) {
            if let Some(text) = filled(item.text_of("text"))
                && item.text_of("type").as_deref() == Some("agentMessage")
            {
                stamp.message_id = item.text_of("id");
                out.whole(Kind::Message, text, stamp);
                self.said = true;
            }
        }
    }
}

fn mapped(shown: bool) -> Outcome {
    match shown {
        true => Outcome::Mapped,
        false => Outcome::Ignored("empty text"),
    }
}

/// Names a block: items of several threads may share an id.
fn key(stamp: &Stamp<'_>, item: &str, index: &str) -> String {
    let session = stamp.session_id.as_deref().unwrap_or("");
    format!("{session}/{item}/{index}")
}

/// The digits of an integer; nothing for other values.
fn digits(value: Option<Value<'_>>) -> Option<&str> {
    let digits = value.filter(Value::is_integer)?.number()?;
    Some(if digits == "-0" { "0" } else { digits })
}

/// Names a server request: 1 and "1" are two.
fn request(id: Option<Value<'_>>) -> String {
    match (digits(id), id.and_then(|id| id.text())) {
        (Some(digits), _) => digits.to_owned(),
        (None, Some(text)) => format!("\"{}\"", &*text),
        (None, None) => String::new(),
    }
}
