//! Copilot CLI's session file, `session-state/<id>/events.jsonl` (recorded: written by 1.0.102).
//!
//! The envelopes of the stream without the ephemeral ones, so no deltas and no `result`, and with what the stream lacks:
//! `session.start` with version and folder, `session.usage_record` for each model call, `session.shutdown` with the
//! totals. A killed run has no shutdown; a resumed session goes on in the same file, with totals of the whole. Before
//! `accountingSnapshot` they are those of one process (so others found in files of 1.0.67 and before), and add up.

use serde::{Deserialize, Serialize};

use super::copilot::{self, Copilot};
use super::{Dialect, Make, Mapper, Outcome, SURE, Sign, filled, is_true, members};
use crate::emit::Emitter;
use crate::event::{State, Tokens, Usage};
use crate::json::{Text, Value};
use crate::number::{count, is_sensible};
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

const COUNTERS: [&str; 5] = [
    "inputTokens",
    "outputTokens",
    "cacheReadTokens",
    "cacheWriteTokens",
    "reasoningTokens",
];
type Counts = [Option<i64>; COUNTERS.len()];
/// The counters of each model.
type Models = Vec<(String, Counts)>;

#[derive(Default, Deserialize, Serialize)]
struct CopilotSession {
    records: Copilot,
    /// Of the processes that are over.
    over: Models,
    /// Of those and the process whose end came last.
    last: Models,
    processes: u32,
}

impl Mapper for CopilotSession {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        let value = record.value();
        let data = value.get("data").filter(Value::is_object);
        let (Some(kind), Some(data)) = (record.kind(), data) else {
            return Outcome::Unknown;
        };
        let mut stamp = self.records.stamp(value, data);
        if &*kind != "session.shutdown" && !self.last.is_empty() {
            self.over = std::mem::take(&mut self.last);
            self.processes += 1;
        }
        match &*kind {
            "session.usage_record" => {
                let usage = data.get("usage").filter(Value::is_object);
                let parent = usage.and_then(|usage| usage.text_of("parentToolCallId"));
                stamp.parent = stamp.parent.or(parent);
                self.records.usage(usage, stamp, out);
            }
            "session.shutdown" => {
                let models = metrics_of(data);
                let whole = data.get("accountingSnapshot").filter(Value::is_object);
                self.last = match whole {
                    Some(_) => Models::new(),
                    None => self.over.clone(),
                };
                for (name, counts) in &models {
                    add(&mut self.last, name, counts);
                }
                let share = totals(&models);
                let usage = Usage {
                    key: Some(&format!("run:{}", self.processes)),
                    total: Some(&totals(&self.last)),
                    models: &each(&self.last),
                    ..Usage::run(&share)
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

fn metrics_of(data: Value<'_>) -> Models {
    let metrics = data.get("modelMetrics").filter(Value::is_object);
    let metrics = metrics.or_else(|| data.path(&["accountingSnapshot", "modelMetrics"]));
    let mut models = Models::new();
    for (name, model) in metrics.into_iter().flat_map(members) {
        if let Some(usage) = model.get("usage").filter(Value::is_object) {
            let counts = COUNTERS.map(|counter| count(usage.get(counter)));
            add(&mut models, &Text::from(name), &counts);
        }
    }
    models
}

fn add(models: &mut Models, name: &str, counts: &Counts) {
    let at = models.iter().position(|(known, _)| known == name);
    let at = at.unwrap_or_else(|| {
        models.push((name.to_owned(), Counts::default()));
        models.len() - 1
    });
    for (sum, count) in models[at].1.iter_mut().zip(counts) {
        if let Some(count) = count {
            *sum = Some(sum.unwrap_or(0).saturating_add(*count));
        }
    }
}

fn tokens(counts: &Counts) -> Tokens<'static> {
    copilot::counters(|name| {
        let at = COUNTERS.iter().position(|counter| *counter == name)?;
        counts[at].filter(|sum| is_sensible(*sum))
    })
}

/// The harness's own total of each model.
fn each(models: &Models) -> Vec<(Text<'static>, Tokens<'static>)> {
    let models = models.iter();
    models
        .map(|(name, counts)| (name.clone().into(), tokens(counts)))
        .collect()
}

/// The counters of all models together.
fn totals(models: &Models) -> Tokens<'static> {
    let mut sums = Models::new();
    for (_, counts) in models {
        add(&mut sums, "", counts);
    }
    tokens(&sums.pop().unwrap_or_default().1)
}
