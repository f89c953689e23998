//! Codex's own protocol events (`EventMsg`), wherever they are carried: `{"id", "msg"}` lines of the old exec mode,
//! `codex/event/...` notifications of app-server v1, `codex/event` of the MCP server, `event_msg` lines of a rollout.
//!
//! One message comes up to four times: two families of deltas (`agent_message_delta`, and from about 0.98
//! `agent_message_content_delta`), the item that closes it (`item_completed`), and `agent_message`. The delta family
//! that comes first is used, the item is the authority, and an event that repeats it is dropped. Raw response items that
//! the MCP server prints beside all that are not read.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::codex_shapes::{self as shapes, Item, Meter, What};
use super::{Outcome, filled, rule};
use crate::emit::{Emitter, Update};
use crate::event::{Kind, PlanEntry, Stamp, State};
use crate::json::{Text, Value};
use crate::tool;

const IGNORED: &[(&str, &str)] = &[
    ("agent_reasoning_raw_content", "raw reasoning"),
    ("agent_reasoning_raw_content_delta", "raw reasoning"),
    ("reasoning_raw_content_delta", "raw reasoning"),
    ("exec_command_output_delta", "output of a running command"),
    ("terminal_interaction", "output of a running command"),
    ("turn_diff", "diff of the turn"),
    ("mcp_startup_update", "start of MCP servers"),
    ("mcp_startup_complete", "start of MCP servers"),
    ("skills_update_available", "skills"),
    ("list_skills_response", "skills"),
    ("thread_settings_applied", "settings"),
    ("thread_rolled_back", "rollback"),
    ("thread_goal_updated", "goal"),
    ("sub_agent_activity", "sub-agent activity"),
    ("guardian_assessment", "automatic review"),
    ("hook_started", "hook"),
    ("hook_completed", "hook"),
    ("patch_apply_updated", "output of a patch"),
    (
        "dynamic_tool_call_request",
        "request that an item tells too",
    ),
    ("auth_recovery_started", "account"),
    ("auth_recovery_completed", "account"),
    ("environment_connected", "environment"),
    ("environment_disconnected", "environment"),
    ("thread_queue_changed", "queue of prompts"),
    ("raw_response_completed", "raw item"),
    ("safety_buffering", "notice of the provider"),
    ("model_verification", "notice of the provider"),
    ("turn_moderation_metadata", "notice of the provider"),
    ("realtime_conversation_started", "realtime audio"),
    ("realtime_conversation_realtime", "realtime audio"),
    ("realtime_conversation_closed", "realtime audio"),
    ("realtime_conversation_sdp", "realtime audio"),
    (
        "realtime_conversation_list_voices_response",
        "realtime audio",
    ),
    ("undo_started", "undo"),
    ("undo_completed", "undo"),
    ("entered_review_mode", "review mode"),
    ("exited_review_mode", "review mode"),
    ("get_history_entry_response", "answer to a request"),
    ("mcp_list_tools_response", "answer to a request"),
    ("list_custom_prompts_response", "answer to a request"),
    ("conversation_path", "answer to a request"),
    ("plan_delta", "text of a plan"),
    ("shutdown_complete", "shutdown"),
    // raw items of the model API
    ("raw_response_item", "raw item"),
    ("message", "raw item"),
    ("reasoning", "raw item"),
    ("function_call", "raw item"),
    ("function_call_output", "raw item"),
    ("custom_tool_call", "raw item"),
    ("custom_tool_call_output", "raw item"),
    ("local_shell_call", "raw item"),
    ("web_search_call", "raw item"),
    ("ghost_snapshot", "raw item"),
];
/// Deltas of messages and of the summary of the reasoning.
pub(super) const DELTAS: &[&str] = &[
    "agent_message_delta",
    "agent_message_content_delta",
    "agent_reasoning_delta",
    "reasoning_content_delta",
];
/// How many texts of items may wait for the event that repeats them.
const TOLD_LENGTH: usize = 32;

/// What the call of a begin or end event is, by the head of its name (which is the tool's name).
pub(super) fn call_kind(head: &str) -> Option<What> {
    Some(match head {
        "exec_command" => What::Command,
        "patch_apply" => What::Edit,
        "mcp_tool_call" => What::Mcp,
        "web_search" => What::Search,
        "image_generation" => What::Picture,
        _ => return None,
    })
}

/// Calls of the agent tools, by the head of their begin and end events.
fn agent_call(head: &str) -> Option<&'static str> {
    Some(match head {
        "collab_agent_spawn" => "spawn_agent",
        "collab_agent_interaction" => "send_input",
        "collab_waiting" => "wait",
        "collab_close" => "close_agent",
        "collab_resume" => "resume_agent",
        _ => return None,
    })
}

/// The calls that spawned sub-agents, by thread.
pub(super) type Agents = HashMap<String, String>;

/// The events of one conversation; its name keeps the blocks of conversations apart.
#[derive(Default, Deserialize, Serialize)]
pub(super) struct Events {
    name: String,
    pub meter: Meter,
    /// The family of deltas that is used.
    channel: Option<Channel>,
    /// Id of the item whose content deltas come.
    item: Option<String>,
    /// Number of summary parts so far.
    thoughts: u64,
    /// Keys of the parts that were streamed and have no final text yet.
    waiting: Vec<String>,
    new_part: bool,
    /// Texts of items, until the event that repeats them.
    told: Vec<String>,
    plan: Option<Vec<PlanEntry<'static>>>,
    /// The start of the turn was told with the start of the process.
    pub begun: bool,
    /// The agent said something in this turn.
    pub said: bool,
    /// The turn has ended in an error.
    failed: bool,
    /// A call was refused, and no text or call came since.
    refused: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
enum Channel {
    Plain,
    Content,
}

impl Events {
    pub fn named(name: &str) -> Self {
        Events {
            name: name.to_owned(),
            ..Events::default()
        }
    }

    pub fn map<'a>(
        &mut self,
        msg: Value<'a>,
        mut stamp: Stamp<'a>,
        agents: &mut Agents,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let Some(kind) = msg.text_of("type") else {
            return Outcome::Unknown;
        };
        match &*kind {
            delta if delta.ends_with("_delta") && rule(IGNORED, delta) == Outcome::Unknown => {
                self.delta(delta, msg, stamp, out)
            }
            "agent_reasoning_section_break" => {
                self.new_part = true;
                Outcome::Ignored("section break")
            }
            "agent_message" | "agent_reasoning" | "user_message" => {
                self.text(&kind, msg, &stamp, out)
            }
            "item_started" | "item_completed" => self.item(&kind, msg.get("item"), &mut stamp, out),
            event if event.ends_with("_begin") || event.ends_with("_end") => {
                self.call(event, msg, &stamp, agents, out)
            }
            "view_image_tool_call" => {
                let Some(id) = msg.text_of("call_id") else {
                    return Outcome::Unknown;
                };
                self.acted();
                let item = Item::new(msg);
                if shapes::announce(out, What::Image, kind, &item, id.clone(), &stamp) {
                    out.update(Update::new(id, Some("completed")), &stamp);
                }
                Outcome::Mapped
            }
            "token_count" => self.count(msg, &stamp, out),
            "plan_update" => self.plan(msg.get("plan"), &stamp, out),
            _ => self.state(&kind, msg, &stamp, out),
        }
    }

    /// The agent said or did something: a refusal before this is no end.
    fn acted(&mut self) {
        self.refused = false;
    }

    /// The turn is over: texts that were cut stay as they are.
    fn close(&mut self, parent: Option<&str>, out: &mut Emitter<'_>) {
        out.settle(Kind::Message, &*self.key("message"), parent);
        self.close_thoughts(parent, out);
        self.item = None;
        self.told.clear();
    }

    // ---------------------------------------------------------------- texts

    fn key(&self, what: &str) -> String {
        format!("{}/{what}", self.name)
    }

    fn delta<'a>(
        &mut self,
        kind: &str,
        msg: Value<'a>,
        mut stamp: Stamp<'a>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let (channel, message) = match kind {
            "agent_message_content_delta" => (Channel::Content, true),
            "reasoning_content_delta" => (Channel::Content, false),
            "agent_message_delta" => (Channel::Plain, true),
            "agent_reasoning_delta" => (Channel::Plain, false),
            _ => return Outcome::Unknown,
        };
        if *self.channel.get_or_insert(channel) != channel {
            return Outcome::Ignored("the other family of deltas");
        }
        let delta = msg.get("delta").and_then(|delta| delta.as_str());
        let Some(delta) = delta.filter(|delta| !delta.raw().is_empty()) else {
            return Outcome::Ignored("empty text");
        };
        stamp.message_id = msg.text_of("item_id");
        if stamp.message_id.as_deref() != self.item.as_deref() {
            // the item before was cut, or it is closed already
            out.settle(Kind::Message, &*self.key("message"), stamp.thread());
            self.close_thoughts(stamp.thread(), out);
            self.item = stamp.message_id.as_ref().map(|id| id.to_string());
        }
        if message {
            self.acted();
            self.said = true;
            out.delta(Kind::Message, &*self.key("message"), delta, &stamp);
            return Outcome::Mapped;
        }
        if self.new_part || self.waiting.is_empty() {
            self.new_part = false;
            let key = self.next_thought();
            self.waiting.push(key);
        }
        if let Some(key) = self.waiting.last() {
            out.delta(Kind::Thought, key.as_str(), delta, &stamp);
        }
        Outcome::Mapped
    }

    fn next_thought(&mut self) -> String {
        self.thoughts += 1;
        self.key(&format!("thought {}", self.thoughts))
    }

    fn text(
        &mut self,
        kind: &str,
        msg: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let key = if kind == "agent_reasoning" {
            "text"
        } else {
            "message"
        };
        let Some(text) = filled(msg.text_of(key)) else {
            return Outcome::Ignored("empty text");
        };
        if kind == "user_message" {
            out.whole(Kind::User, text, stamp);
            return Outcome::Mapped;
        }
        let mark = format!("{kind} {}", &*text);
        if let Some(at) = self.told.iter().position(|told| *told == mark) {
            self.told.remove(at);
            return Outcome::Ignored("item again");
        }
        self.final_text(kind, text, stamp, out);
        Outcome::Mapped
    }

    /// The whole text of a message or of one part of the reasoning's summary.
    fn final_text(&mut self, kind: &str, text: Text<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        let (chunk, key) = if kind == "agent_message" {
            self.acted();
            self.said = true;
            (Kind::Message, self.key("message"))
        } else if self.waiting.is_empty() {
            (Kind::Thought, self.next_thought())
        } else {
            (Kind::Thought, self.waiting.remove(0))
        };
        out.final_text(chunk, key.as_str(), text, stamp);
        out.settle(chunk, key.as_str(), stamp.thread());
    }

    fn close_thoughts(&mut self, parent: Option<&str>, out: &mut Emitter<'_>) {
        for key in self.waiting.drain(..) {
            out.settle(Kind::Thought, key.as_str(), parent);
        }
        self.new_part = false;
    }

    /// `{"type": "AgentMessage", ...}` (0.50: `{"AgentMessage": {...}}`). Only texts are news: calls have events.
    fn item<'a>(
        &mut self,
        kind: &str,
        item: Option<Value<'a>>,
        stamp: &mut Stamp<'a>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let Some(mut item) = item.filter(Value::is_object) else {
            return Outcome::Unknown;
        };
        let mut name = item.text_of("type");
        if name.is_none()
            && super::key_count(item) == 1
            && let Some((key, _)) = item.entries().next()
        {
            name = Some(key.into());
            item = item.entries().last().map_or(item, |(_, inner)| inner);
        }
        let message = match name.as_deref() {
            Some("AgentMessage") if kind == "item_completed" => true,
            Some("Reasoning") if kind == "item_completed" => false,
            _ => return Outcome::Ignored("item"),
        };
        stamp.message_id = item.text_of("id");
        let (texts, repeat) = if message {
            let whole = shapes::joined(shapes::texts_of(item.get("content")));
            (vec![whole], "agent_message")
        } else {
            (shapes::strings(item.get("summary_text")), "agent_reasoning")
        };
        let mut shown = false;
        for text in texts.into_iter().filter(|text| !text.is_empty()) {
            let mark = format!("{repeat} {}", &*text);
            self.final_text(repeat, text, stamp, out);
            if self.told.len() == TOLD_LENGTH {
                self.told.remove(0);
            }
            self.told.push(mark);
            shown = true;
        }
        if !message {
            self.close_thoughts(stamp.thread(), out);
        }
        self.item = None;
        if shown {
            Outcome::Mapped
        } else {
            Outcome::Ignored("empty text")
        }
    }

    // ---------------------------------------------------------------- calls

    fn call(
        &mut self,
        event: &str,
        msg: Value<'_>,
        stamp: &Stamp<'_>,
        agents: &mut Agents,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let (head, tail) = event.rsplit_once('_').unwrap_or((event, ""));
        let Some(id) = msg.text_of("call_id") else {
            return Outcome::Unknown;
        };
        let (what, name, item) = match (call_kind(head), agent_call(head)) {
            (Some(what), _) => (what, head, Item::of_event(Some(what), msg)),
            (None, Some(tool)) => {
                if let Some(child) = msg.text_of("new_thread_id") {
                    agents.insert(child.into_string(), id.to_string());
                }
                let mut item = Item::of_event(None, msg);
                item.tool = Some(tool.into());
                item.status = None; // it is the agent's, not the call's
                (What::Agent, "collab_tool_call", item)
            }
            (None, None) => return Outcome::Unknown,
        };
        self.acted();
        if tail == "begin" {
            return match shapes::announce(out, what, name.into(), &item, id, stamp) {
                true => Outcome::Mapped,
                false => Outcome::Ignored("begin again"),
            };
        }
        if !out.knows(&id) {
            shapes::announce(out, what, name.into(), &item, id.clone(), stamp);
        }
        self.refused = item.status.as_deref() == Some("declined");
        match shapes::settle(out, what, &item, id, stamp, false) {
            true => Outcome::Mapped,
            false => Outcome::Ignored("end again"),
        }
    }

    fn plan(
        &mut self,
        steps: Option<Value<'_>>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let entries = tool::plan_of(steps, "step", "status");
        tell_plan(entries, &mut self.plan, stamp, out)
    }

    // ---------------------------------------------------------------- usage

    /// `token_count`: flat counters of one call (0.20), later `info` with the thread's total and the last call.
    fn count(&mut self, msg: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        let Some(info) = msg.get("info") else {
            out.call_usage(&shapes::usage_of(msg), stamp, None, false);
            return Outcome::Mapped;
        };
        if !info.is_object() {
            return Outcome::Ignored("rate limits");
        }
        let total = info.get("total_token_usage");
        let last = info.get("last_token_usage");
        match self.meter.take(out, total, last, stamp) {
            true => Outcome::Mapped,
            false => Outcome::Ignored("token count again"),
        }
    }

    // ---------------------------------------------------------------- turns, errors and the rest

    fn state(
        &mut self,
        kind: &str,
        msg: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let main = stamp.parent.is_none();
        match kind {
            "session_configured" if main => {
                let details = [
                    ("sessionId", msg.text_of("session_id")),
                    ("model", msg.text_of("model")),
                    ("cwd", msg.text_of("cwd")),
                ];
                out.session_state(&details, stamp);
            }
            "session_configured" => {}
            "task_started" | "turn_started" => self.start(stamp, out),
            "task_complete" | "turn_complete" => self.complete(msg, stamp, out),
            "turn_aborted" => {
                self.close(stamp.thread(), out);
                if main {
                    let reason = msg.text_of("reason");
                    let outcome = shapes::abort_of(reason.as_deref());
                    end_turn(outcome, reason, stamp, out);
                }
            }
            "error" => {
                let (message, info) = (msg.text_of("message"), msg.get("codex_error_info"));
                if !is_beside(info) {
                    self.fail(message, info, stamp, out);
                } else if let Some(message) = message {
                    out.notice(message, stamp);
                }
            }
            "stream_error" | "background_event" => {
                let message = msg.text_of("message").unwrap_or_default();
                let retry = shapes::retry_of(&message);
                if retry.is_none() && kind == "background_event" {
                    return Outcome::Ignored("background event");
                }
                shapes::tell_retry(out, message, retry, stamp);
            }
            "warning" | "deprecation_notice" | "guardian_warning" => {
                let message = filled(msg.text_of("message")).or_else(|| msg.text_of("summary"));
                if let Some(message) = message {
                    out.notice(message, stamp);
                }
            }
            "context_compacted" => {
                let state = State::new("compaction").with("phase", "end");
                out.state(state.with("success", true), stamp);
            }
            "exec_approval_request"
            | "apply_patch_approval_request"
            | "request_user_input"
            | "elicitation_request" => {
                let message = filled(msg.text_of("reason")).or_else(|| msg.text_of("message"));
                let state = State::new("approval")
                    .with("phase", "requested")
                    .with("toolCallId", msg.text_of("call_id"))
                    .with("message", message);
                out.state(state, stamp);
            }
            "model_reroute" | "thread_name_updated" => {
                let details = [
                    ("model", msg.text_of("to_model")),
                    ("title", msg.text_of("thread_name")),
                ];
                out.session_state(&details, stamp);
            }
            other => return rule(IGNORED, other),
        }
        Outcome::Mapped
    }

    /// A turn begins.
    fn start(&mut self, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        self.close(stamp.thread(), out);
        self.said = false;
        self.failed = false;
        self.refused = false;
        if stamp.parent.is_none() {
            out.next_turn();
            if !std::mem::take(&mut self.begun) {
                out.state(State::new("turn").with("phase", "start"), stamp);
            }
        }
    }

    /// A turn has ended by itself; an error that ended it came before, or stands here (rollout of 0.171).
    fn complete(&mut self, msg: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
        if let Some(error) = msg.get("error").filter(Value::is_object) {
            let info = error.get("codex_error_info");
            self.fail(error.text_of("message"), info, stamp, out);
        }
        if let Some(last) = filled(msg.text_of("last_agent_message"))
            && !self.said
            && !self.failed
        {
            self.final_text("agent_message", last, stamp, out);
        }
        self.close(stamp.thread(), out);
        if stamp.parent.is_none() && !self.failed {
            let outcome = if self.refused { "denied" } else { "completed" };
            end_turn(outcome, msg.text_of("type"), stamp, out);
        }
    }

    /// An error that ends the turn.
    fn fail(
        &mut self,
        message: Option<Text<'_>>,
        info: Option<Value<'_>>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) {
        self.close(stamp.thread(), out);
        let main = stamp.parent.is_none();
        match &message {
            Some(message) if main => out.error(message.borrow(), stamp, true),
            Some(message) => out.notice(message.borrow(), stamp),
            None => {}
        }
        if main {
            self.failed = true;
            let outcome = shapes::outcome_of(message.as_deref(), info);
            end_turn(outcome, message, stamp, out);
        }
    }
}

/// Whether an error went wrong beside the turn, with a request of the client: the turn goes on.
fn is_beside(info: Option<Value<'_>>) -> bool {
    let beside = ["thread_rollback_failed", "active_turn_not_steerable"];
    match info {
        Some(info) if info.is_object() => {
            let first = info.entries().next();
            first.is_some_and(|(key, _)| beside.iter().any(|name| key.eq(name)))
        }
        info => info
            .and_then(|info| info.text())
            .is_some_and(|info| beside.contains(&&*info)),
    }
}

/// The end of a turn of the main agent.
pub(super) fn end_turn(
    outcome: &'static str,
    reason: Option<Text<'_>>,
    stamp: &Stamp<'_>,
    out: &mut Emitter<'_>,
) {
    let state = State::new("turn")
        .with("phase", "end")
        .with("outcome", outcome)
        .with("reason", reason);
    out.state(state, stamp);
}

/// A plan, unless it is none or the one that was told last.
pub(super) fn tell_plan(
    entries: Option<Vec<PlanEntry<'_>>>,
    known: &mut Option<Vec<PlanEntry<'static>>>,
    stamp: &Stamp<'_>,
    out: &mut Emitter<'_>,
) -> Outcome {
    let Some(entries) = entries.filter(|entries| known.as_ref() != Some(entries)) else {
        return Outcome::Ignored("plan again");
    };
    out.plan(&entries, stamp);
    let own = entries.iter().map(|entry| PlanEntry {
        content: shapes::own(&entry.content),
        ..entry.clone()
    });
    *known = Some(own.collect());
    Outcome::Mapped
}
