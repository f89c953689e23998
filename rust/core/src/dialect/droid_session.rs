//! Droid's session file (recorded: format 2, written by 0.215.0).
//!
//! Whole messages with blocks in the manner of Anthropic, and `agent_turn_outcome` when a turn is over; a killed run just
//! ends. Usage is not in it (it is in `<id>.settings.json`). A model that could not be reached is a user message that
//! only the user sees.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::droid::{self, Todos};
use super::{Dialect, Make, Mapper, Outcome, SURE, Sign, has_any, rule};
use crate::emit::Emitter;
use crate::event::{Kind, Stamp, State};
use crate::json::{Text, Value};
use crate::number::count;
use crate::record::Record;
use crate::run::{Ending, Exit, Reducer};

pub const DIALECT: Dialect = Dialect {
    name: "droid-session",
    sign,
    mapper: Make::of::<DroidSession>(),
    series: &[],
};

const IGNORED: &[(&str, &str)] = &[
    ("todo_state", "todo state"),
    ("compaction_state", "compaction state"),
];
const MESSAGE_MARKS: [&str; 4] = [
    "modelId",
    "visibility",
    "interactionMode",
    "reasoningEffort",
];

fn sign(record: Value<'_>) -> Option<Sign> {
    let kind = record.text_of("type")?;
    match &*kind {
        "session_start" if record.get("id").is_some() && has_any(record, &["hostId", "owner"]) => {
            let version = count(record.get("version"));
            let version = version.map(|version| format!("session format {version}"));
            Sign::of_version(SURE, "session_start with owner", version)
        }
        "agent_turn_outcome" if record.get("turnId").is_some() => {
            Sign::new(SURE, "agent_turn_outcome with turnId")
        }
        "message" if record.get("id").is_some() && !has_any(record, &["uuid", "sessionID"]) => {
            let message = record.get("message")?;
            if !message.get("content")?.is_array() || message.get("timestamp").is_some() {
                return None;
            }
            if has_any(message, &MESSAGE_MARKS) {
                return Sign::new(
                    SURE,
                    "a message entry with blocks and what Droid says of it",
                );
            }
            Sign::new(30, "a message entry with blocks")
        }
        _ => None,
    }
}

#[derive(Default, Deserialize, Serialize)]
struct DroidSession {
    todos: Todos,
    refusals: Vec<String>,
    refused: bool,
    /// An error of the turn named a cap.
    capped: bool,
    /// Ids of messages.
    seen: HashSet<String>,
}

impl Mapper for DroidSession {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        let value = record.value();
        let kind = record.kind().unwrap_or_default();
        let stamp = Stamp::at(value.text_of("timestamp"));
        match &*kind {
            "session_start" => {
                let details = [
                    ("sessionId", value.text_of("id")),
                    ("cwd", value.text_of("cwd")),
                    ("title", value.text_of("title")),
                ];
                out.session_state(&details, &stamp);
                Outcome::Mapped
            }
            "message" => match value.get("message").filter(Value::is_object) {
                Some(message) => self.message(value.text_of("id"), message, stamp, out),
                None => Outcome::Unknown,
            },
            "agent_turn_outcome" => {
                let reason = value.text_of("reason");
                let outcome = match droid::outcome(reason.as_deref()) {
                    _ if self.refused => "denied",
                    "failed" if self.capped => "limit",
                    told => told,
                };
                out.commit(None);
                let state = State::new("turn")
                    .with("phase", "end")
                    .with("outcome", outcome)
                    .with("reason", reason);
                out.state(state, &stamp);
                Outcome::Mapped
            }
            other => rule(IGNORED, other),
        }
    }

    fn judge(&self, _run: &Reducer, _exit: &Exit) -> Option<Ending> {
        self.refused.then(droid::denied)
    }
}

impl DroidSession {
    fn message<'a>(
        &mut self,
        id: Option<Text<'a>>,
        message: Value<'a>,
        mut stamp: Stamp<'a>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        if let Some(id) = &id
            && !self.seen.insert(id.to_string())
        {
            return Outcome::Ignored("message again");
        }
        let content = message.get("content");
        let blocks = content.into_iter().flat_map(|content| content.items());
        let blocks = blocks.filter(Value::is_object);
        let visibility = message.text_of("visibility");
        match (message.text_of("role").as_deref(), visibility.as_deref()) {
            (Some("assistant"), _) => {
                stamp.message_id = id;
                stamp.model = message.text_of("modelId");
                let at = Stamp::at(stamp.timestamp.clone());
                out.session_state(&[("model", stamp.model.clone())], &at);
                self.assistant(blocks, &stamp, out)
            }
            (Some("user"), Some("llm_only")) => Outcome::Ignored("harness reminder"),
            (Some("user"), Some("user_only")) => {
                // what the harness tells the user, and the model does not see: why a model call failed
                for block in blocks {
                    if block.text_of("type").as_deref() == Some("text")
                        && let Some(text) = block.text_of("text")
                    {
                        self.capped = droid::outcome_of_error(&text) == "limit";
                        out.error(text, &stamp, true);
                    }
                }
                Outcome::Mapped
            }
            (Some("user"), _) => self.user(blocks, &stamp, out),
            _ => Outcome::Ignored("message of the harness"),
        }
    }

    fn assistant<'v>(
        &mut self,
        blocks: impl Iterator<Item = Value<'v>>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        out.commit(None);
        out.next_turn();
        let mut told = Outcome::Ignored("empty message");
        for block in blocks {
            let kind = block.text_of("type").unwrap_or_default();
            match (&*kind, block.text_of("text"), block.text_of("thinking")) {
                ("text", Some(text), _) => {
                    if droid::is_refusal(&text, &self.refusals) {
                        self.refused = true;
                        told = Outcome::Ignored("refusal again");
                        continue;
                    }
                    out.whole(Kind::Message, text, stamp);
                }
                ("thinking", _, Some(text)) => out.whole(Kind::Thought, text, stamp),
                ("tool_use", _, _) => {
                    let Some(id) = block.text_of("id") else {
                        continue;
                    };
                    let (name, input) = (block.text_of("name"), block.get("input"));
                    self.refusals.clear();
                    droid::call(id, name, input, &mut self.todos, stamp, out);
                }
                _ => continue,
            }
            told = Outcome::Mapped;
        }
        told
    }

    fn user<'v>(
        &mut self,
        blocks: impl Iterator<Item = Value<'v>>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let mut told = Outcome::Ignored("empty message");
        let mut turn = false;
        for block in blocks {
            let kind = block.text_of("type").unwrap_or_default();
            match &*kind {
                "tool_result" => {
                    let Some(id) = block.text_of("tool_use_id") else {
                        continue;
                    };
                    let (failed, content) = (block.get("is_error"), block.get("content"));
                    let todos = &mut self.todos;
                    let refusal = droid::result(id, failed, content, None, todos, stamp, out);
                    self.refusals.extend(refusal);
                }
                "text" => {
                    let Some(text) = block.text_of("text") else {
                        continue;
                    };
                    if !turn {
                        turn = true;
                        self.refusals.clear();
                        (self.refused, self.capped) = (false, false);
                        out.state(State::new("turn").with("phase", "start"), stamp);
                    }
                    out.whole(Kind::User, text, stamp);
                }
                "image" => droid::user_image(block, stamp, out),
                _ => continue,
            }
            told = Outcome::Mapped;
        }
        told
    }
}
