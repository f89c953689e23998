//! EvoScientist: `EvoSci --output-format stream-json` (seed 001; recorded with 0.3.8).
//!
//! No ids, clock, model or session stand on this stream. What the seed does not say and the recordings show:
//! `model_retry` and `model_output_discarded` take output back; a task's `tool_result` comes before its `subagent_end`;
//! `done.response` joins the texts of all model calls, so it is a check and not the answer; a pause for approval ends
//! with `done` too.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{Dialect, Make, Mapper, Outcome, SURE, Sign, filled, has_all, has_any, rule};
use crate::emit::{Call, Emitter, Update, scoped};
use crate::event::{Kind, Stamp, State, Tokens, text_content};
use crate::json::{Series, Text, Value};
use crate::number::{count, price};
use crate::record::Record;
use crate::tool;

pub const DIALECT: Dialect = Dialect {
    name: "evosci",
    sign,
    mapper: Make::of::<Evosci>(),
    series: SERIES,
};

/// What one agent says or thinks.
const SERIES: &[Series] = &[Series {
    is: &[(&["type"], &["text", "thinking", "subagent_text"])],
    text: &["content"],
    same: &[&["instance_id"], &["subagent"]],
    ..Series::NO_FACTS
}];

const IGNORED: &[(&str, &str)] = &[
    ("tool_selection", "tool selection"),
    ("panel_dispatch_start", "panel dispatch"),
    ("panel_dispatch_complete", "panel dispatch"),
    ("panel_dispatch_error", "panel dispatch"),
    ("rubric_evaluation_deferred", "rubric evaluation"),
    ("goal_state", "goal state"),
];

/// Keys that tell the record types apart from the same words of other harnesses: type, needed keys (sorted), weight.
const SIGNS: &[(&str, &[&str], i32)] = &[
    ("thinking", &["content", "id"], SURE),
    ("text", &["content"], 40),
    ("tool_call", &["args", "id", "name"], SURE),
    ("tool_result", &["content", "id", "name", "success"], SURE),
    ("subagent_start", &["description", "name"], SURE),
    (
        "subagent_text",
        &["content", "instance_id", "subagent"],
        SURE,
    ),
    ("subagent_tool_call", &["args", "name", "subagent"], SURE),
    (
        "subagent_tool_result",
        &["content", "name", "subagent"],
        SURE,
    ),
    ("subagent_end", &["name"], SURE),
    ("tool_selection", &["tools"], 60),
    ("summarization_start", &[], 60),
    ("summarization", &["content"], 60),
    ("usage_stats", &["input_tokens", "output_tokens"], SURE),
    ("interrupt", &["action_requests", "interrupt_id"], SURE),
    ("ask_user", &["interrupt_id", "questions"], SURE),
    ("error", &["message"], 10),
    ("done", &["content", "response"], SURE),
    ("model_retry", &["attempt", "discarded"], SURE),
    ("model_output_discarded", &["discarded"], SURE),
    ("panel_dispatch_start", &["eval_id"], SURE),
    ("panel_dispatch_complete", &["eval_id"], SURE),
    ("panel_dispatch_error", &["eval_id"], SURE),
    ("rubric_evaluation_start", &["iteration"], SURE),
    ("rubric_evaluation", &["result"], SURE),
    ("rubric_evaluation_deferred", &["tasks"], 60),
    ("goal_state", &["change", "status"], 60),
];
const FOREIGN: &[&str] = &[
    "sessionID",
    "session_id",
    "sessionId",
    "timestamp",
    "message_id",
    "part",
    "uuid",
    "schema",
];

fn sign(record: Value<'_>) -> Option<Sign> {
    let kind = record.text_of("type")?;
    let (kind, keys, weight) = SIGNS.iter().find(|(name, _, _)| *name == &*kind)?;
    if !has_all(record, keys) || has_any(record, FOREIGN) {
        return None;
    }
    let with = if keys.is_empty() {
        "nothing else".to_owned()
    } else {
        keys.join(", ")
    };
    Sign::new(*weight, format!("a {kind} record with {with}"))
}

/// Records that another run in the same source may begin with.
const WORK: [&str; 5] = [
    "text",
    "thinking",
    "tool_call",
    "model_retry",
    "usage_stats",
];

#[derive(Default, Deserialize, Serialize)]
struct Evosci {
    /// Kind of text that streams now, by thread.
    streaming: HashMap<Option<String>, Kind>,
    /// Name of a sub-agent: id of the last call that delegated to one of that name.
    tasks: HashMap<String, String>,
    /// Instance id of a sub-agent, or its name: id of the call that delegated to it.
    agents: HashMap<String, String>,
    /// An interrupt or a question came, and nothing of the agent since.
    waits: bool,
    /// Result of the last rubric evaluation.
    rubric: Option<String>,
    /// Any text of the main agent.
    said: bool,
    /// Of the compaction that is told now, as far as it came.
    summary: Option<String>,
    /// An error was the last record.
    failed: bool,
    /// A run ended, and none began since.
    over: bool,
}

impl Mapper for Evosci {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        let value = record.value();
        let kind = record.kind();
        let failed = std::mem::take(&mut self.failed);
        if kind.as_deref() != Some("summarization") {
            self.end_summary(out);
        }
        let Some(kind) = kind else {
            return Outcome::Unknown;
        };
        if self.over && WORK.contains(&&*kind) {
            self.over = false;
            out.state(State::new("turn").with("phase", "start"), &Stamp::default());
        }
        match &*kind {
            "text" => self.text(Kind::Message, value, false, out),
            "thinking" => self.text(Kind::Thought, value, false, out),
            "subagent_text" => self.text(Kind::Message, value, true, out),
            "tool_call" | "subagent_tool_call" => self.call(value, out),
            "tool_result" | "subagent_tool_result" => self.result(value, out),
            "usage_stats" => {
                let tokens = Tokens {
                    prompt: count(value.get("input_tokens")),
                    completion: count(value.get("output_tokens")),
                    ..Tokens::default()
                };
                out.call_usage(&tokens, &Stamp::default(), None, false);
                self.end_call(None, out);
                Outcome::Mapped
            }
            "subagent_start" | "subagent_end" => self.subagent(&kind, value, out),
            "model_retry" | "model_output_discarded" => self.discard(&kind, value, out),
            "interrupt" | "ask_user" => self.ask(&kind, value, out),
            "summarization_start" => {
                out.state(
                    State::new("compaction").with("phase", "start"),
                    &Stamp::default(),
                );
                Outcome::Mapped
            }
            "summarization" => {
                let part = out.clean(value.text_of("content").unwrap_or_default());
                self.summary.get_or_insert_default().push_str(&part);
                Outcome::Mapped
            }
            "rubric_evaluation_start" | "rubric_evaluation" => {
                self.end_call(None, out); // a pass is graded: what comes next is a new answer
                self.rubric = value.text_of("result").map(Text::into_string);
                Outcome::Ignored("rubric evaluation")
            }
            "error" => self.error(value, out),
            "done" if failed => Outcome::Ignored("end after an error"),
            "done" => self.done(value, out),
            other => rule(IGNORED, other),
        }
    }

    fn close(&mut self, out: &mut Emitter<'_>) {
        self.end_summary(out);
    }
}

impl Evosci {
    // ---------------------------------------------------------------- records

    fn text(
        &mut self,
        kind: Kind,
        value: Value<'_>,
        subagent: bool,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let content = value.get("content").and_then(|content| content.as_str());
        let Some(text) = content.filter(|text| !text.raw().is_empty()) else {
            return Outcome::Ignored("empty text");
        };
        let thread = if subagent {
            self.thread(value, out)
        } else {
            None
        };
        if subagent && thread.is_none() {
            return Outcome::Ignored("sub-agent without a call");
        }
        if self.streaming.get(&thread).is_some_and(|now| *now != kind) {
            out.close(thread.as_deref());
        }
        self.streaming.insert(thread.clone(), kind);
        out.delta(kind, "stream", text, &Stamp::of_thread(thread.as_deref()));
        if thread.is_none() {
            self.waits = false;
            self.said |= kind == Kind::Message;
        }
        Outcome::Mapped
    }

    fn call(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let thread = self.thread(value, out);
        let stamp = Stamp::of_thread(thread.as_deref());
        let name = value.text_of("name");
        out.close(thread.as_deref());
        self.streaming.remove(&thread);
        let id = value.text_of("id").unwrap_or_default();
        let todos = name.as_deref() == Some("write_todos");
        let agent = value
            .path(&["args", "subagent_type"])
            .and_then(|agent| agent.text());
        if let Some(agent) = filled(agent)
            && thread.is_none()
        {
            self.tasks.insert(agent.into_string(), id.to_string());
        }
        let call = Call {
            key: Some(scoped(&id, &stamp)),
            twin: true,
            ..Call::new(id, name, value.get("args"))
        };
        out.call(call, &stamp);
        if todos
            && let Some(entries) = value
                .path(&["args", "todos"])
                .and_then(|list| tool::plan_of(Some(list), "content", "status"))
        {
            out.plan(&entries, &stamp);
        }
        self.waits = false;
        Outcome::Mapped
    }

    fn result(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let thread = self.thread(value, out);
        self.end_call(thread.as_deref(), out);
        let status = match value.get("success").and_then(|success| success.as_bool()) {
            Some(true) => Some("completed"),
            Some(false) => Some("failed"),
            None => None,
        };
        let stamp = Stamp::of_thread(thread.as_deref());
        let id = value.text_of("id").unwrap_or_default();
        let update = Update {
            key: Some(scoped(&id, &stamp)),
            done: Some(true),
            content: text_content(value.text_of("content")),
            ..Update::new(id, status)
        };
        out.update(update, &stamp);
        self.waits = false;
        Outcome::Mapped
    }

    fn subagent(&mut self, kind: &str, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let name = value.text_of("name").unwrap_or_default();
        if &*name == "tools" {
            return Outcome::Ignored("sub-agent that is a plain tool call");
        }
        let agent = filled(value.text_of("instance_id")).unwrap_or(name.borrow());
        if kind == "subagent_end" {
            if let Some(thread) = self.agents.get(&*agent) {
                out.close(Some(thread));
            }
        } else if !agent.is_empty() {
            let call = filled(value.text_of("tool_call_id")).map(Text::into_string);
            let call = call.or_else(|| self.tasks.get(&*name).cloned());
            if let Some(call) = call.filter(|call| !call.is_empty()) {
                self.agents.insert(agent.into_string(), call);
            }
        }
        Outcome::Ignored("sub-agent start and end")
    }

    /// Output of a failed attempt is taken back: that of the main agent or of one sub-agent.
    fn discard(&mut self, kind: &str, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let thread = self.thread(value, out);
        let stamp = Stamp::of_thread(thread.as_deref());
        let told = |key| filled(value.text_of(key)).is_some();
        if thread.is_some() || !(told("instance_id") || told("subagent")) {
            let chars = |key| {
                let number = count(value.path(&["discarded", key])).unwrap_or(0);
                usize::try_from(number).unwrap_or(0)
            };
            out.take_back(Kind::Message, chars("text_chars"), &stamp);
            out.take_back(Kind::Thought, chars("thinking_chars"), &stamp);
            let ids = value.path(&["discarded", "tool_call_ids"]);
            for id in ids.into_iter().flat_map(|ids| ids.items()) {
                let Some(id) = id.text() else { continue };
                let key = scoped(&id, &stamp);
                if out.is_open(&key) {
                    let update = Update {
                        key: Some(key),
                        ..Update::new(id, Some("failed"))
                    };
                    out.update(update, &stamp);
                }
            }
            self.end_call(thread.as_deref(), out);
        }
        if kind == "model_retry" {
            let wait = price(value.get("wait_seconds"));
            let message = filled(value.text_of("cause")).or_else(|| value.text_of("reason"));
            let state = State::new("retry")
                .with("phase", "start")
                // printed: the number of the attempt to come
                .with("attempt", count(value.get("attempt")).map(|next| next - 1))
                .with("delayMs", wait.map(|wait| wait.thousandfold()))
                .with("message", message);
            out.state(state, &stamp);
        }
        Outcome::Mapped
    }

    fn ask(&mut self, kind: &str, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        self.waits = true;
        let stamp = Stamp::default();
        if kind == "ask_user" {
            let first = value.get("questions").and_then(|list| list.items().next());
            let state = State::new("approval")
                .with("phase", "requested")
                .with("toolCallId", value.text_of("tool_call_id"))
                .with("message", first.and_then(|first| first.text_of("question")));
            out.state(state, &stamp);
            return Outcome::Mapped;
        }
        let requests = value.get("action_requests");
        for request in requests.into_iter().flat_map(|list| list.items()) {
            if request.is_object() {
                let state = State::new("approval")
                    .with("phase", "requested")
                    .with("toolName", request.text_of("name"))
                    .with("message", request.text_of("description"));
                out.state(state, &stamp);
            }
        }
        Outcome::Mapped
    }

    fn error(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let message = value.text_of("message").unwrap_or_default();
        let limit = message.starts_with("Recursion limit of ");
        out.error(message, &Stamp::default(), true);
        let state = State::new("end")
            .with("outcome", if limit { "limit" } else { "failed" })
            .with("reason", "error");
        out.state(state, &Stamp::default());
        self.end_run(out);
        self.failed = true;
        Outcome::Mapped
    }

    fn done(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        if let Some(response) = filled(value.text_of("response"))
            && !self.said
        {
            // only the terminal record carries the answer
            out.whole(Kind::Message, response, &Stamp::default());
        }
        let (outcome, reason) = match &self.rubric {
            _ if self.waits => ("incomplete", "waits for an answer"),
            Some(rubric) if rubric.starts_with("max_iterations") => ("limit", rubric.as_str()),
            _ => ("completed", "done"),
        };
        let state = State::new("end")
            .with("outcome", outcome)
            .with("reason", reason);
        out.state(state, &Stamp::default());
        self.end_run(out);
        Outcome::Mapped
    }

    /// A summary comes whole or in parts, and nothing but the next record says that it is whole.
    fn end_summary(&mut self, out: &mut Emitter<'_>) {
        if let Some(summary) = self.summary.take() {
            let state = State::new("compaction")
                .with("phase", "end")
                .with("success", true)
                .with("summary", summary);
            out.state(state, &Stamp::default());
        }
    }

    // ---------------------------------------------------------------- threads

    /// The delegating call, on a sub-agent's record: by its instance, or by its name if the wire tells no more.
    fn thread(&self, value: Value<'_>, out: &Emitter<'_>) -> Option<String> {
        let instance = value.text_of("instance_id").unwrap_or_default();
        let name = value.text_of("subagent").unwrap_or_default();
        let agent = self.agents.get(&*instance);
        let agent = agent.or_else(|| self.agents.get(&*name));
        let agent = agent.or_else(|| self.tasks.get(&*name)).cloned();
        agent.or_else(|| {
            // the langgraph server names the call
            let call = instance.strip_prefix("tools:")?;
            out.knows(call).then(|| call.to_owned())
        })
    }

    /// A model call is over: its texts stay, the next text is a block of its own.
    fn end_call(&mut self, thread: Option<&str>, out: &mut Emitter<'_>) {
        out.commit(thread);
        out.next_turn();
        self.streaming.remove(&thread.map(str::to_owned));
    }

    /// What comes next is another run in the same source.
    fn end_run(&mut self, out: &mut Emitter<'_>) {
        self.end_call(None, out);
        self.waits = false;
        self.rubric = None;
        self.said = false;
        self.over = true;
    }
}
