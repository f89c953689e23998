//! Gemini CLI: `gemini -p PROMPT --output-format stream-json` and `json` (recorded: 0.12.0, 0.33.0, 0.61.0).
//!
//! Six record types, always with deltas and without message ids: a text block ends where any other record comes, and an
//! attempt that was retried in mid-answer stays glued to the next one, since nothing marks it. A `result` of status
//! "success" is none when the loop guard, a hook or the turn limit stopped the run: a warning just before it says so.
//! SIGINT leaves the stream without a `result`, like a kill, at exit code 0. Thoughts, sub-agents and the usage of
//! single calls are in the session file only (`gemini_chat`).

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{Dialect, Make, Mapper, Outcome, SURE, Sign, has_all, members};
use crate::data::map;
use crate::emit::{Call, Emitter, Update};
use crate::event::{Kind, Stamp, State, Tokens, Usage, text_content};
use crate::json::{Series, Text, Value};
use crate::number::count;
use crate::record::Record;
use crate::tool;

pub const DIALECT: Dialect = Dialect {
    name: "gemini",
    sign,
    mapper: Make::of::<Gemini>(),
    series: SERIES,
};

/// Parts of the answer.
const SERIES: &[Series] = &[Series {
    is: &[(&["type"], &["message"]), (&["role"], &["assistant"])],
    text: &["content"],
    ..Series::NO_FACTS
}];

/// How the `error` records begin after which the run stops, although its `result` is a success.
const STOPS: &[(&str, &str)] = &[
    ("Loop detected", "failed"),
    ("Agent execution blocked", "denied"),
    ("Maximum session turns exceeded", "limit"),
    (
        "Model response was truncated because it exceeded the token limit",
        "limit",
    ),
];
/// `error.type` of a call that a policy refused.
const REFUSED: &str = "policy_violation";
/// What else `stats` counts; thoughts and prompts of tools are in the total only.
const COUNTERS: &[&str] = &[
    "total_tokens",
    "input",
    "tool_calls",
    "duration_ms",
    "models",
];
/// What a `thought` record (proposed, in no release seen) may call its text.
const THOUGHT_KEYS: [&str; 4] = ["content", "thought", "thinking", "text"];

/// `error.type` of a failed result: how the run ended.
fn outcome(reason: &str) -> &'static str {
    match reason.trim_start_matches('_') {
        "FatalTurnLimitedError" | "TerminalQuotaError" => "limit",
        "FatalCancellationError" => "cancelled",
        _ => "failed",
    }
}

fn sign(record: Value<'_>) -> Option<Sign> {
    let Some(kind) = record.get("type").filter(|kind| !kind.is_null()) else {
        json_mode(record)?;
        return Sign::of_document("one object with response and stats (json mode)");
    };
    record.text_of("timestamp")?;
    let (keys, why): (&[&str], &str) = match &*kind.text()? {
        "init" => (
            &["session_id", "model"],
            "an init record with session_id and model",
        ),
        "message" => {
            record.text_of("content")?;
            (&["role"], "a message with role and a text as content")
        }
        "tool_use" => (
            &["tool_name", "tool_id"],
            "a tool_use with tool_name and tool_id",
        ),
        "tool_result" => (
            &["tool_id", "status"],
            "a tool_result with tool_id and status",
        ),
        "error" => (&["severity", "message"], "an error with severity"),
        "result" => {
            record.get("stats").filter(Value::is_object)?;
            (&["status"], "a result with status and stats")
        }
        _ => return None,
    };
    if !has_all(record, keys) {
        return None;
    }
    Sign::new(SURE, why.to_owned())
}

/// The models of the statistics in the one object of json mode.
fn json_mode(record: Value<'_>) -> Option<Value<'_>> {
    record.get("response")?;
    record
        .path(&["stats", "models"])
        .filter(|models| models.is_object())
}

#[derive(Default, Deserialize, Serialize)]
struct Gemini {
    /// As asked for.
    model: Option<String>,
    /// What an error record says of how the run will end.
    stop: Option<Cow<'static, str>>,
    /// The last thing that happened is a refused call.
    refused: bool,
    /// The model was asked something and has not answered.
    unheard: bool,
}

impl Mapper for Gemini {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        let value = record.value();
        let Some(kind) = value.get("type").filter(|kind| !kind.is_null()) else {
            return match json_mode(value) {
                Some(models) => self.document(value, models, out),
                None => Outcome::Unknown,
            };
        };
        match kind.text().as_deref() {
            Some("message") => self.message(value, out),
            Some("tool_use") => self.call(value, out),
            Some("tool_result") => self.result(value, out),
            Some("init") => {
                out.commit(None);
                let model = value.text_of("model");
                let details = [
                    ("sessionId", value.text_of("session_id")),
                    ("model", model.clone()),
                ];
                let stamp = Stamp {
                    timestamp: value.text_of("timestamp"),
                    model: model.clone(),
                    ..Stamp::default()
                };
                out.another_run(&stamp);
                out.session_state(&details, &stamp);
                self.model = model.map(Text::into_string);
                Outcome::Mapped
            }
            Some("error") => {
                let fatal = value.text_of("severity").as_deref() == Some("error");
                let message = value.text_of("message").unwrap_or_default();
                out.commit(None);
                self.warning(message, fatal, &self.stamp(value), out)
            }
            Some("result") => self.end(value, out),
            Some("thought" | "thinking") => self.thought(value, out),
            _ => Outcome::Unknown,
        }
    }
}

impl Gemini {
    // ---------------------------------------------------------------- records

    fn message(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        match value.text_of("role").as_deref() {
            Some("user") => {
                out.commit(None);
                self.stop = None;
                self.refused = false;
                let stamp = self.stamp(value);
                out.state(State::new("turn").with("phase", "start"), &stamp);
                let text = value.text_of("content").unwrap_or_default();
                self.unheard = !text.starts_with('/'); // commands are for the harness
                out.whole(Kind::User, text, &stamp);
                Outcome::Mapped
            }
            Some("assistant") => {
                let content = value.get("content").and_then(|content| content.as_str());
                let Some(text) = content.filter(|text| !text.raw().is_empty()) else {
                    return Outcome::Ignored("empty text");
                };
                self.refused = false;
                self.unheard = false;
                out.delta(Kind::Message, "text", text, &self.stamp(value));
                Outcome::Mapped
            }
            _ => Outcome::Ignored("message of another role"),
        }
    }

    fn thought(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let text = |key| value.get(key).and_then(|text| text.as_str());
        self.unheard = false;
        match THOUGHT_KEYS.into_iter().find_map(text) {
            Some(text) => {
                out.delta(Kind::Thought, "thought", text, &self.stamp(value));
                Outcome::Mapped
            }
            None => Outcome::Unknown,
        }
    }

    fn call(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let Some(id) = value.text_of("tool_id") else {
            return Outcome::Unknown;
        };
        out.commit(None);
        self.refused = false;
        self.unheard = false;
        let stamp = self.stamp(value);
        let (name, input) = (value.text_of("tool_name"), value.get("parameters"));
        let call = Call {
            twin: true,
            ..Call::new(id, name.clone(), input)
        };
        out.call(call, &stamp);
        plan(name.as_deref(), input, &stamp, out);
        Outcome::Mapped
    }

    fn result(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let Some(id) = value.text_of("tool_id") else {
            return Outcome::Unknown;
        };
        out.commit(None);
        out.next_turn();
        let status = match value.text_of("status").as_deref() {
            Some("success") => Some("completed"),
            Some("error") => Some("failed"),
            _ => None,
        };
        let error = value.get("error").filter(Value::is_object);
        let message = || error.and_then(|error| error.text_of("message"));
        let kind = error.and_then(|error| error.text_of("type"));
        self.refused = kind.as_deref() == Some(REFUSED);
        let update = Update {
            done: Some(true),
            content: text_content(value.text_of("output").or_else(message)),
            raw_output: error
                .filter(|error| !error.is_empty())
                .map(|error| map([("error", error.into())])),
            ..Update::new(id, status)
        };
        out.update(update, &self.stamp(value));
        Outcome::Mapped
    }

    /// An error record that is not terminal by itself; some tell how the run will end.
    fn warning(
        &mut self,
        message: Text<'_>,
        fatal: bool,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let mut stops = STOPS.iter();
        let stop = stops.find(|(beginning, _)| message.starts_with(beginning));
        if fatal || stop.is_some() {
            out.error(message, stamp, fatal);
        } else {
            out.notice(message, stamp);
        }
        if let Some((_, outcome)) = stop {
            self.stop = Some((*outcome).into());
        }
        Outcome::Mapped
    }

    fn end(&mut self, value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        out.commit(None);
        let stamp = self.stamp(value);
        if let Some(stats) = value.get("stats").filter(Value::is_object) {
            let extra = COUNTERS
                .iter()
                .filter_map(|key| Some(((*key).into(), stats.get(key)?.into())));
            let tokens = Tokens {
                prompt: count(stats.get("input_tokens")),
                completion: count(stats.get("output_tokens")),
                cached: count(stats.get("cached")),
                extra: extra.collect(),
                ..Tokens::default()
            };
            let names = ["input_tokens", "output_tokens", "cached"];
            let usage = Usage {
                models: &models_of(stats.get("models"), None, names),
                ..Usage::run(&tokens)
            };
            out.usage(usage, &stamp);
            // A hook stopped the run, which 0.61.0 does not say: the model was not asked, or its answer not taken.
            let models = stats.get("models").filter(Value::is_object);
            let is_used = models.is_some_and(|models| !models.is_empty());
            if self.unheard && count(stats.get("total_tokens")) == Some(0) && !is_used {
                self.refused = true;
            }
        }
        let failed = value.text_of("status").as_deref() == Some("error");
        let error = value.get("error").filter(Value::is_object);
        self.finish(error, failed, &stamp, out);
        Outcome::Mapped
    }

    /// The terminal record: what it says, unless an error record has said better.
    fn finish(
        &self,
        error: Option<Value<'_>>,
        failed: bool,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) {
        let reason = error.and_then(|error| error.text_of("type"));
        if let Some(message) = error.and_then(|error| error.text_of("message")) {
            out.error(message, stamp, true);
        }
        let told = match &reason {
            _ if !failed && self.refused => "denied",
            _ if !failed => "completed",
            Some(reason) => outcome(reason),
            None => "failed",
        };
        let word = if failed { "error" } else { "success" };
        let reason = reason.filter(|reason| !reason.is_empty());
        let state = State::new("end")
            .with("outcome", self.stop.as_deref().unwrap_or(told))
            .with("reason", reason.unwrap_or(word.into()));
        out.state(state, stamp);
    }

    fn stamp<'a>(&self, value: Value<'a>) -> Stamp<'a> {
        Stamp {
            timestamp: value.text_of("timestamp"),
            model: self.model.clone().map(Text::from),
            ..Stamp::default()
        }
    }

    // ---------------------------------------------------------------- json mode

    /// The one object of `--output-format json`: the text of the last turn, counters, what failed.
    fn document(&mut self, value: Value<'_>, models: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
        let stamp = Stamp::default();
        out.session_state(&[("sessionId", value.text_of("session_id"))], &stamp);
        let text = value.text_of("response").unwrap_or_default();
        out.whole(Kind::Message, text, &stamp);
        let warnings = value.get("warnings");
        for warning in warnings.into_iter().flat_map(|list| list.items()) {
            if let Some(warning) = warning.text() {
                self.warning(warning, false, &stamp, out);
            }
        }
        let sum = |key: &str| {
            let counts = models
                .entries()
                .filter_map(|(_, model)| count(model.path(&["tokens", key])));
            counts.reduce(|a, b| a + b)
        };
        let tokens = Tokens {
            prompt: sum("prompt"),
            completion: sum("candidates"),
            cached: sum("cached"),
            extra: vec![("models".into(), models.into())],
            ..Tokens::default()
        };
        let names = ["prompt", "candidates", "cached"];
        let usage = Usage {
            models: &models_of(Some(models), Some("tokens"), names),
            ..Usage::run(&tokens)
        };
        out.usage(usage, &stamp);
        let error = value.get("error").filter(Value::is_object);
        self.finish(error, error.is_some(), &stamp, out);
        Outcome::Mapped
    }
}

/// The total of each model: prompt, completion and cached tokens by their names.
fn models_of<'a>(
    models: Option<Value<'a>>,
    inside: Option<&str>,
    names: [&str; 3],
) -> Vec<(Text<'a>, Tokens<'a>)> {
    let models = models.map(members).unwrap_or_default();
    let models = models.into_iter().filter_map(|(name, model)| {
        let counters = match inside {
            Some(inside) => model.get(inside)?,
            None => model,
        };
        let [prompt, completion, cached] = names.map(|name| count(counters.get(name)));
        let tokens = Tokens {
            prompt,
            completion,
            cached,
            ..Tokens::default()
        };
        counters.is_object().then(|| (name.into(), tokens))
    });
    models.collect()
}

/// The plan in the arguments of the todo tool.
pub(super) fn plan(
    name: Option<&str>,
    input: Option<Value<'_>>,
    stamp: &Stamp<'_>,
    out: &mut Emitter<'_>,
) {
    if name == Some("write_todos") {
        let todos = input.and_then(|input| input.get("todos"));
        if let Some(entries) = tool::plan_of(todos, "description", "status") {
            out.plan(&entries, stamp);
        }
    }
}
