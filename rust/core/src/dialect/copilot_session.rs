//! Copilot CLI's session file, `session-state/<id>/events.jsonl` (recorded: written by 1.0.102).
//!
//! The envelopes of the stream without the ephemeral ones, so no deltas and no `result`, and with what the stream lacks:
//! `session.start` with version and folder, `session.usage_record` for each model call, `session.shutdown` with the
//! totals. A killed run has no shutdown; a resumed session goes on in the same file, with totals of the whole.

use serde::{Deserialize, Serialize};

use super::copilot::{self, Copilot};
use super::{Dialect, Make, Mapper, Outcome, SURE, Sign, filled, is_true, members};
use crate::emit::Emitter;
use crate::event::{State, Tokens, Usage};
use crate::json::{Str, Text, Value};
use crate::number::count;
use crate::record::Record;

pub const DIALECT: Dialect = Dialect {
    name: "copilot-session",
    sign,
    mapper: Make::of::<CopilotSession>(),
    series: &[],
};

fn sign(record: Value<'_>) -> Option<Sign> {
    let kind = record.text_of("type")?;
    if !copilot::is_envelope(record, &kind) || is_true(record.get("ephemeral")) {
        return None;
    }
    if &*kind == "session.start" {
        let version = record.path(&["data", "copilotVersion"]);
        let version = version.and_then(|version| version.text());
        return Sign::of_version(SURE, "session.start", version.map(Text::into_string));
    }
    if copilot::STORED.contains(&&*kind) {
        return Sign::new(SURE, format!("{}, which is only stored", &*kind));
    }
    Sign::new(50, "a dotted type with data and parentId")
}

#[derive(Default, Deserialize, Serialize)]
struct CopilotSession {
    records: Copilot,
}

impl Mapper for CopilotSession {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        let value = record.value();
        let data = value.get("data").filter(Value::is_object);
        let (Some(kind), Some(data)) = (record.kind(), data) else {
            return Outcome::Unknown;
        };
        let mut stamp = self.records.stamp(value, data);
        match &*kind {
            "session.usage_record" => {
                let usage = data.get("usage").filter(Value::is_object);
                let parent = usage.and_then(|usage| usage.text_of("parentToolCallId"));
                stamp.parent = stamp.parent.or(parent);
                copilot::usage(usage, stamp, out);
            }
            "session.shutdown" => {
                let models = metrics_of(data);
                let totals = totals(&models);
                let usage = Usage {
                    key: Some("run"),
                    models: &each(&models),
                    ..Usage::run(&totals)
                };
                out.usage(usage, &stamp);
                let reason = data.text_of("shutdownType").unwrap_or(kind);
                let outcome = match self.records.turning {
                    _ if &*reason == "error" => {
                        // a crash or a fatal error ended the session
                        if let Some(message) = filled(data.text_of("errorReason")) {
                            out.error(message, &stamp, true);
                        }
                        self.records.failed.as_deref().unwrap_or("failed")
                    }
                    true => "incomplete",
                    false => self.records.outcome(),
                };
                let state = State::new("end")
                    .with("outcome", outcome)
                    .with("reason", reason);
                out.state(state, &stamp);
            }
            other => return self.records.take(other, data, stamp, out),
        }
        Outcome::Mapped
    }
}

/// The counters of each model.
fn metrics_of(data: Value<'_>) -> Vec<(Str<'_>, Value<'_>)> {
    let metrics = data.get("modelMetrics").filter(Value::is_object);
    let metrics = metrics.or_else(|| data.path(&["accountingSnapshot", "modelMetrics"]));
    let models = metrics.into_iter().flat_map(members);
    models
        .filter_map(|(name, model)| Some((name, model.get("usage")?)))
        .filter(|(_, usage)| usage.is_object())
        .collect()
}

/// The harness's own total of each model.
fn each<'a>(models: &[(Str<'a>, Value<'a>)]) -> Vec<(Text<'a>, Tokens<'a>)> {
    let models = models.iter();
    models
        .map(|(name, usage)| {
            let counters = copilot::counters(|key| count(usage.get(key)));
            ((*name).into(), counters)
        })
        .collect()
}

/// The counters of all models together.
fn totals(models: &[(Str<'_>, Value<'_>)]) -> Tokens<'static> {
    copilot::counters(|name| {
        let counts = models
            .iter()
            .filter_map(|(_, usage)| count(usage.get(name)));
        counts.reduce(|one, two| one + two)
    })
}
