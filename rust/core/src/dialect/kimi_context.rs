//! kimi-cli's `context.jsonl`, the history that it sends to the model (recorded: 1.51.0), and the stream of kimi-cli up
//! to 0.53, which was this file read along (messages longer than 80 columns are cut to lines that are no records).
//!
//! Messages as on the live stream, with checkpoints and the size of the context between them. No usage, no clock, no
//! end: a file that ends with an answer is complete. After compaction the file begins anew with the summary.

use serde::{Deserialize, Serialize};

use super::{Dialect, Make, Mapper, Outcome, SURE, Sign, filled, has_all, has_any, kimi, rule};
use crate::emit::Emitter;
use crate::event::{Stamp, State};
use crate::json::{Text, Value};
use crate::record::Record;
use crate::run::{Ending, Exit, Reducer};

pub const DIALECT: Dialect = Dialect {
    name: "kimi-context",
    sign,
    mapper: Make::of::<Context>(),
    series: &[],
};

const IGNORED: &[(&str, &str)] = &[
    ("_system_prompt", "system prompt"),
    ("_checkpoint", "checkpoint"),
    ("_usage", "size of the context"),
    ("system", "system message"),
];
/// A key that each of the file's own roles has.
const MARKS: &[(&str, &str)] = &[
    ("_system_prompt", "content"),
    ("_checkpoint", "id"),
    ("_usage", "token_count"),
];
const SUMMARY: &str = "<system>Previous context has been compacted.";

fn sign(record: Value<'_>) -> Option<Sign> {
    let role = record.text_of("role");
    let mark = MARKS
        .iter()
        .find(|(name, _)| role.as_deref() == Some(*name));
    if let Some((name, key)) = mark
        && has_all(record, &[key])
        && !has_any(record, &["type"])
    {
        return Sign::new(SURE, format!("a {name} record"));
    }
    match kimi::is_message(record) {
        true => Sign::new(0, "a chat message"),
        false => None,
    }
}

#[derive(Default, Deserialize, Serialize)]
struct Context {
    /// The stream ends in a text that is no known failure.
    plain: bool,
}

impl Mapper for Context {
    fn map(&mut self, record: &Record<'_>, out: &mut Emitter<'_>) -> Outcome {
        let value = record.value();
        let stamp = Stamp::default();
        match value.text_of("role").as_deref() {
            Some("assistant") => {
                kimi::assistant(value, &stamp, out);
                Outcome::Mapped
            }
            Some("tool") => kimi::tool_message(value, &stamp, true, out),
            Some("user") => user(value, out),
            Some(role) => rule(IGNORED, role),
            None => Outcome::Unknown,
        }
    }

    fn tail(&mut self, lines: &[&str], out: &mut Emitter<'_>) {
        self.plain = kimi::ending(lines, false, out);
    }

    fn judge(&self, run: &Reducer, exit: &Exit) -> Option<Ending> {
        kimi::judge(run, exit, self.plain)
    }
}

fn user(value: Value<'_>, out: &mut Emitter<'_>) -> Outcome {
    let stamp = Stamp::default();
    let texts = kimi::texts_of(value.get("content"));
    let Some((_, summary)) = texts
        .split_first()
        .filter(|(first, _)| first.starts_with(SUMMARY))
    else {
        return kimi::user_message(value, &stamp, out);
    };
    let state = State::new("compaction")
        .with("phase", "end")
        .with("success", true)
        .with("summary", filled(Some(joined(summary, out))));
    out.state(state, &stamp);
    Outcome::Mapped
}

/// The texts, one on each line.
pub(super) fn joined(texts: &[Text<'_>], out: &mut Emitter<'_>) -> Text<'static> {
    out.note(texts.iter().any(Text::is_lossy));
    let texts: Vec<&str> = texts.iter().map(Text::as_str).collect();
    texts.join("\n").into()
}
