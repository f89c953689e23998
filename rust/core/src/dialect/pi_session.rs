//! pi's session file, format 1 (linear, entries without ids), 2 (tree) and 3 (recorded: 3, written by 0.27.9 to 1.6.0),
//! and that of its fork oh-my-pi, which has a line for the title before the header and entries of its own.
//!
//! Whole messages, no deltas; an entry that a fork or clone copied comes with the same id and counts once. Failed
//! attempts stay in the file: a `context_edit` that hides one, or the next try of the same prompt, takes its text back.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::pi::{self, Reported};
use super::{Dialect, Make, Mapper, Outcome, SURE, Sign, filled, has_all, has_any, rule};
use crate::emit::Emitter;
use crate::event::{Stamp, State};
use crate::json::{Text, Value};
use crate::record::Record;

pub const DIALECT: Dialect = Dialect {
    name: "pi-session",
    sign,
    mapper: Make::of::<PiSession>(),
    series: &[],
};

const IGNORED: &[(&str, &str)] = &[
    ("custom", "extension entry"),
    ("custom_message", "extension message"),
    ("label", "label"),
    ("context_edit", "context edit"),
    // of oh-my-pi
    ("archive", "archived branch"),
    ("credential_pin", "account"),
    ("mode_change", "mode"),
    ("reset_boundary", "context cleared"),
    ("service_tier_change", "service tier"),
    ("session_init", "start of a sub-agent"),
    ("ttsr_injection", "rules"),
];
/// Entry types and a key that each has.
const ENTRIES: &[(&str, &str)] = &[
    ("message", "message"),
    ("model_change", "type"),
    ("thinking_level_change", "thinkingLevel"),
    ("compaction", "summary"),
    ("branch_summary", "summary"),
    ("custom", "customType"),
    ("custom_message", "customType"),
    ("label", "targetId"),
    ("session_info", "type"),
    ("context_edit", "targetId"),
    ("usage", "usage"),
    ("archive", "targetId"),
    ("credential_pin", "hash"),
    ("mode_change", "mode"),
    ("model_usage", "usage"),
    ("reset_boundary", "type"),
    ("service_tier_change", "serviceTier"),
    ("session_init", "task"),
    ("title_change", "title"),
    ("ttsr_injection", "injectedRules"),
];

fn sign(record: Value<'_>) -> Option<Sign> {
    let kind = record.text_of("type")?;
    if &*kind == "session"
        && let Some(sign) = pi::header_sign(record)
    {
        return Some(sign);
    }
    if &*kind == "title" && has_all(record, &["pad", "updatedAt"]) {
        return Sign::new(SURE, "a title with pad and updatedAt");
    }
    let (kind, key) = ENTRIES.iter().find(|(name, _)| *name == &*kind)?;
    record.get(key)?;
    if has_all(record, &["id", "parentId"]) && !has_any(record, &["uuid", "sessionID"]) {
        return Sign::new(SURE, format!("a {kind} entry with id and parentId"));
    }
    if record.text_of("timestamp").is_some() && record.get("id").is_none() {
        return Sign::new(60, format!("a {kind} entry without id (format 1)"));
    }
    None
}

#[derive(Default, Deserialize, Serialize)]
struct PiSession {
    /// Ids of entries.
    seen: HashSet<String>,
    model: Option<String>,
    /// A failed message that the next try takes back: its error and its stamp.
    failure: Option<(Option<String>, Stamp<'static>)>,
    /// The last message was stopped by a person.
    aborted: bool,
    messages: u32,
    reported: Reported,
}

impl Mapper for PiSession {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        let value = record.value();
        let kind = record.kind().unwrap_or_default();
        if let Some(id) = value.text_of("id")
            && &*kind != "session"
            && !self.seen.insert(id.into_string())
        {
            return Outcome::Ignored("entry again");
        }
        let stamp = Stamp::at(value.text_of("timestamp"));
        match &*kind {
            "session" => {
                let details = [
                    ("sessionId", value.text_of("id")),
                    ("cwd", value.text_of("cwd")),
                    ("title", filled(value.text_of("title"))),
                ];
                out.session_state(&details, &stamp);
            }
            "message" => match value.get("message").filter(Value::is_object) {
                Some(message) => return self.message(message, stamp, out),
                None => return Outcome::Unknown,
            },
            "model_change" => return self.model_change(value, &stamp, out),
            "thinking_level_change" => {
                let state = State::new("model").with("effort", value.text_of("thinkingLevel"));
                out.state(state, &stamp);
            }
            "session_info" => out.session_state(&[("title", value.text_of("name"))], &stamp),
            "title" | "title_change" => {
                out.session_state(&[("title", filled(value.text_of("title")))], &stamp);
            }
            "compaction" => {
                pi::usage(value.get("usage"), &stamp, None, true, out);
                let state = State::new("compaction")
                    .with("phase", "end")
                    .with("success", true)
                    .with("summary", value.text_of("summary"));
                out.state(state, &stamp);
            }
            "branch_summary" | "usage" | "model_usage" => {
                let stamp = Stamp {
                    model: value.text_of("model"),
                    ..stamp
                };
                pi::usage(value.get("usage"), &stamp, None, true, out);
            }
            other => return rule(IGNORED, other),
        }
        Outcome::Mapped
    }

    fn close(&mut self, out: &mut Emitter<'_>) {
        self.settle_failure(out);
    }
}

impl PiSession {
    /// To a model of a provider; oh-my-pi has both in one text, and models for other roles too.
    fn model_change(
        &mut self,
        value: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        if !matches!(value.text_of("role").as_deref(), None | Some("default")) {
            return Outcome::Ignored("model of another role");
        }
        let model = value.text_of("modelId").or_else(|| {
            let both = value.text_of("model")?;
            let (_, model) = both.split_once('/')?;
            filled(Some(both.rewrite(|_| model.to_owned())))
        });
        self.model = model.as_ref().map(|model| model.to_string());
        out.state(State::new("model").with("model", model), stamp);
        Outcome::Mapped
    }

    fn message(&mut self, message: Value<'_>, stamp: Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        match message.text_of("role").as_deref() {
            Some("user") => {
                self.settle_failure(out);
                out.state(State::new("turn").with("phase", "start"), &stamp);
                pi::user_message(message, &stamp, out);
                Outcome::Mapped
            }
            Some("assistant") => {
                self.assistant(message, &stamp, out);
                Outcome::Mapped
            }
            Some("toolResult") => {
                pi::tool_result(message, &mut self.reported, &stamp, out);
                Outcome::Mapped
            }
            Some("system") => Outcome::Ignored("system message"),
            Some("custom") => Outcome::Ignored("custom message"),
            Some("hookMessage") => Outcome::Ignored("hookMessage message"),
            Some("bashExecution") => Outcome::Ignored("bashExecution message"),
            _ => Outcome::Ignored("other role"),
        }
    }

    fn assistant(&mut self, message: Value<'_>, entry: &Stamp<'_>, out: &mut Emitter<'_>) {
        if self.aborted {
            self.settle_failure(out); // nobody tries again what a person stopped
        }
        if self.failure.take().is_some() {
            // no prompt in between: this is the next try
            out.abandon(None, entry);
            out.state(State::new("retry").with("phase", "start"), entry);
        }
        out.commit(None);
        out.next_turn();
        self.messages += 1;
        if let Some(model) = message.text_of("model").filter(|model| !model.is_empty()) {
            self.model = Some(out.keep(model));
        }
        let timestamp = entry.timestamp.as_ref().map(Text::borrow);
        let model = self.model.as_deref().map(Text::from);
        out.session_state(&[("model", model)], &Stamp::at(timestamp.clone()));
        let stop = message.text_of("stopReason");
        let stamp = pi::message_stamp(message, timestamp, self.model.clone());
        pi::content(message.get("content"), &stamp, out);
        let key = format!("message:{}", self.messages);
        pi::usage(message.get("usage"), &stamp, Some(&key), false, out);
        self.aborted = stop.as_deref() == Some("aborted");
        if self.aborted || stop.as_deref() == Some("error") {
            let error = message.text_of("errorMessage").map(|text| out.keep(text));
            self.failure = Some((error, stamp.to_static()));
        }
        if stop.as_deref() != Some("toolUse") {
            let state = State::new("turn")
                .with("phase", "end")
                .with("outcome", pi::outcome(stop.as_deref()))
                .with("reason", stop);
            out.state(state, &stamp);
        }
    }

    fn settle_failure(&mut self, out: &mut Emitter<'_>) {
        if let Some((Some(message), stamp)) = self.failure.take() {
            out.error(message, &stamp, true);
        }
    }
}
