//! What differs from agent to agent behind ACP: names, results, exit codes, usage. Facts of the agents' own `_meta` and
//! `rawOutput`, read by shape, so that a stream that starts in the middle (no `initialize` answer) is read alike.
//!
//! Recorded: claude-agent-acp 0.101 and claude-code-acp 0.16 (Zed), codex-acp 2.6 and 0.16 (Zed), Copilot 1.0.102,
//! droid 0.215, Gemini CLI 0.61, Kimi Code 2.1, OpenCode 1.18, Qwen Code 0.24. goose and Grok Build 1.0 by their
//! sources and samples of others.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::super::codex_shapes::outcome_of;
use super::super::{anthropic, droid, filled, key_count};
use super::shape::{filled_object, given, id_of, items, joined};
use crate::emit::Emitter;
use crate::event::Tokens;
use crate::json::{Kind, Text, Value};
use crate::number::{Number, count};

/// What the `usage` of the answer to session/prompt covers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Covers {
    Call,
    Turn,
    Session,
}

/// What a chunk is that the harness itself says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    Error,
    Warning,
    Info,
}

/// The habits of one agent that its messages alone do not show.
pub struct Agent {
    pub name: &'static str,
    pub covers: Covers,
    /// Each chunk is a whole block.
    pub whole: bool,
    /// A call's first title is the name of its tool.
    title_is_name: bool,
    /// `content` of a result is made up for people (a code fence), `rawOutput` is the result.
    dressed: bool,
    /// A thought starts with a chunk of two line feeds.
    pub sections: bool,
    /// Chunks without `messageId` are notices of the harness.
    unmarked: bool,
    /// How a chunk starts that is a notice, and what it is.
    notices: &'static [(&'static str, Notice)],
}

/// Devin's mark of a sub-agent's updates.
const DEVIN: &str = "cognition.ai/subagent_context";

const PLAIN: Agent = Agent {
    name: "",
    covers: Covers::Turn,
    whole: false,
    title_is_name: false,
    dressed: false,
    sections: false,
    unmarked: false,
    notices: &[],
};
/// Cursor does not say its name; it has these classes of errors.
pub static UNKNOWN: Agent = Agent {
    notices: &[
        ("\n\nError: RetriableError: ", Notice::Error),
        ("\n\nError: NonRetriableError: ", Notice::Error),
        ("\n\nError: ActionRequiredError: ", Notice::Error),
    ],
    ..PLAIN
};
static CLAUDE: Agent = Agent {
    name: "claude",
    dressed: true,
    ..PLAIN
};
static CODEX: Agent = Agent {
    name: "codex",
    sections: true,
    unmarked: true,
    ..PLAIN
};
/// Hands on the warnings of Codex as messages; each is a chunk.
static CODEX_ZED: Agent = Agent {
    name: "codex-zed",
    sections: true,
    notices: &[
        ("Model metadata for `", Notice::Warning),
        (
            "Heads up: Long threads and multiple compactions",
            Notice::Warning,
        ),
        ("Under-development features enabled: ", Notice::Warning),
    ],
    ..PLAIN
};
static COPILOT: Agent = Agent {
    name: "copilot",
    covers: Covers::Session,
    notices: &[
        ("Error: ", Notice::Error),
        ("Warning: ", Notice::Warning),
        ("Info: ", Notice::Info),
    ],
    ..PLAIN
};
static DROID: Agent = Agent {
    name: "droid",
    whole: true,
    ..PLAIN
};
const TOO_LONG: &str = "Context length exceeded: ";
/// Its loop says the failure of a model call as a message of its own.
static GOOSE: Agent = Agent {
    name: "goose",
    notices: &[
        ("Ran into this error", Notice::Error),
        ("Network error: ", Notice::Error),
        (TOO_LONG, Notice::Error),
    ],
    ..PLAIN
};
static GEMINI: Agent = Agent {
    name: "gemini",
    notices: &[("[API Error", Notice::Error)],
    ..PLAIN
};
pub static GROK: Agent = Agent {
    name: "grok",
    ..PLAIN
};
static KIMI: Agent = Agent {
    name: "kimi",
    title_is_name: true,
    ..PLAIN
};
static OPENCODE: Agent = Agent {
    name: "opencode",
    covers: Covers::Call,
    title_is_name: true,
    ..PLAIN
};
static QWEN: Agent = Agent {
    name: "qwen",
    notices: &[("[API Error", Notice::Error)],
    ..PLAIN
};

/// Parts of `agentInfo.name`, in lower case; the first that fits.
static NAMES: &[(&str, &Agent)] = &[
    ("claude", &CLAUDE),
    ("@agentclientprotocol/codex", &CODEX),
    ("codex", &CODEX_ZED),
    ("copilot", &COPILOT),
    ("factory", &DROID),
    ("gemini", &GEMINI),
    ("goose", &GOOSE),
    ("kimi", &KIMI),
    ("opencode", &OPENCODE),
    ("qwen", &QWEN),
];
/// Keys of `_meta` that give an agent away.
static MARKS: &[(&str, &Agent)] = &[
    ("claudeCode", &CLAUDE),
    ("codex", &CODEX),
    ("terminal_output_delta", &CODEX),
    ("github.com/copilot", &COPILOT),
    ("goose", &GOOSE),
    ("x.ai/tool", &GROK),
];

impl Serialize for Agent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.name.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for &'static Agent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let mut known = NAMES.iter().chain(MARKS);
        let known = known.find(|(_, agent)| agent.name == name);
        Ok(known.map_or(&UNKNOWN, |(_, agent)| agent))
    }
}

impl Agent {
    /// The agent that gives itself this name.
    pub fn by_name(name: &str) -> &'static Agent {
        let lower = name.to_lowercase();
        let known = NAMES.iter().find(|(part, _)| lower.contains(part));
        known.map_or(&UNKNOWN, |(_, agent)| agent)
    }

    /// The agent as its `_meta` or the form of its session id show it.
    pub fn by_mark(meta: Option<Value<'_>>, session: Option<&str>) -> &'static Agent {
        if session.is_some_and(|id| id.starts_with("ses_")) {
            return &OPENCODE;
        }
        let has = |mark: &str| meta.is_some_and(|meta| meta.first(mark).is_some());
        let known = MARKS.iter().find(|(mark, _)| has(mark));
        known.map_or(&UNKNOWN, |(_, agent)| agent)
    }

    // ---------------------------------------------------------------- tool calls

    /// The harness's own name of the tool, where the wire has it; titles that were written for people are none.
    pub fn tool_name<'a>(
        &self,
        id: &str,
        update: Option<Value<'a>>,
        first: bool,
    ) -> Option<Text<'a>> {
        let text = |keys: &[&str]| filled(update?.path(keys)?.text());
        let of_mcp = update
            .and_then(|update| update.path(&["_meta", "is_mcp_tool_call"])?.as_bool())
            .unwrap_or(false);
        let name = text(&["name"])
            .or_else(|| text(&["_meta", "claudeCode", "toolName"]))
            .or_else(|| text(&["_meta", "toolName"]))
            .or_else(|| text(&["_meta", "x.ai/tool", "name"]))
            .or_else(|| text(&["rawInput", "tool"]).filter(|_| of_mcp));
        if name.is_some() {
            return name;
        }
        if first && self.title_is_name {
            let title = text(&["title"]).filter(|title| !title.contains(' '));
            if title.is_some() {
                return title;
            }
        }
        if self.name == "gemini" {
            let (name, _) = id.split_once("__")?;
            return filled(Some(name.to_owned().into()));
        }
        None
    }

    /// Whether this is the tool of its own that OpenCode runs in place of one that does not exist, and says that it
    /// completed.
    pub fn is_invalid_tool(&self, raw_input: Value<'_>) -> bool {
        self.name == "opencode"
            && key_count(raw_input) == 2
            && raw_input.first("tool").is_some()
            && raw_input.first("error").is_some()
    }

    /// The text of a result: what `content` shows, unless `rawOutput` is known to be nearer to what the tool said.
    pub fn result_text<'a>(
        &self,
        raw: Option<Value<'a>>,
        shown: Option<Text<'a>>,
    ) -> Option<Text<'a>> {
        let text = |key: &str| filled(raw?.text_of(key));
        let aggregated = text("aggregated_output");
        if aggregated.is_some() {
            return aggregated;
        }
        let plain = || match raw.map(|raw| raw.kind()) {
            Some(Kind::String) => Some(filled(raw?.text())),
            Some(Kind::Array) => Some(joined(raw)),
            _ => None,
        };
        if let (true, Some(text)) = (self.dressed, plain()) {
            return text;
        }
        if shown.is_some() {
            return shown;
        }
        if let Some(text) = plain() {
            return text;
        }
        let answer = joined(raw.and_then(|raw| raw.path(&["result", "content"])));
        if answer.is_some() {
            return answer;
        }
        let keys = [
            "content",
            "text",
            "output",
            "formatted_output",
            "message",
            "error",
        ];
        keys.into_iter().find_map(|key| {
            let value = raw?.get(key)?;
            let value = if value.is_object() {
                value.get("message")?
            } else {
                value
            };
            filled(value.text())
        })
    }

    // ---------------------------------------------------------------- notices

    /// What a message chunk is that is the harness's own word and not the model's.
    ///
    /// Claude's own messages have a UUID where the API's begin with "msg_"; codex's come without id; Copilot marks
    /// nothing, so that only the wording tells.
    pub fn notice(&self, message_id: Option<&str>, text: &str) -> Option<Notice> {
        let own = message_id.is_some_and(|id| !id.starts_with("msg_"));
        if self.name == "claude" && own && text.contains("API Error") {
            return Some(Notice::Error);
        }
        if self.unmarked && message_id.is_none() {
            return Some(Notice::Warning);
        }
        let known = self
            .notices
            .iter()
            .find(|(start, _)| text.starts_with(start));
        known.map(|(_, what)| *what)
    }

    /// Whether the last message before an error answer is not the model's but says the error.
    pub fn is_echo(&self, message_id: Option<&str>, text: &str, error: &str) -> bool {
        match self.name {
            "droid" => text.starts_with("Error: "),
            "claude" => {
                message_id.is_some_and(|id| !id.starts_with("msg_")) && error.ends_with(text)
            }
            _ => false,
        }
    }
}

/// The delegating call, where a sub-agent's line names it.
/// Devin has a call for each sub-agent, with its id.
pub fn parent_call(meta: Option<Value<'_>>, out: &mut Emitter<'_>) -> Option<String> {
    let meta = meta?;
    let mut id = |value: Option<Value<'_>>| id_of(value, out).filter(|id| !id.is_empty());
    id(meta.path(&["claudeCode", "parentToolUseId"]))
        .or_else(|| id(meta.get("parentToolCallId")))
        .or_else(|| id(meta.path(&[DEVIN, "parentAgentId"])).filter(|agent| agent != "root"))
}

/// Whether Devin or Kiro mark an update, of whatever kind, as a sub-agent's (or Devin as the main agent's).
pub fn of_subagent(meta: Option<Value<'_>>) -> bool {
    meta.is_some_and(|meta| {
        meta.get(DEVIN).is_some() || meta.path(&["kiro", "agentSubtaskId"]).is_some()
    })
}

/// A result that says in a field of its own that the call was not allowed to run.
pub fn is_refusal(update: Value<'_>) -> bool {
    let text = |keys: &[&str]| update.path(keys).and_then(|value| value.text());
    let kind = text(&["_meta", "claudeCode", "nonExecutionKind"]);
    let code = text(&["rawOutput", "code"]);
    matches!(kind.as_deref(), Some("user-rejected" | "permission-rule"))
        || matches!(code.as_deref(), Some("rejected" | "denied"))
        || text(&["_meta", "claudeCode", "toolResponse", "decisionReasonType"]).is_some()
}

/// Whether a structured exit code says that the command failed, and the code. A code that is null says so too.
pub fn failed_exit(update: Value<'_>) -> (bool, Option<i64>) {
    let raw = update.get("rawOutput");
    let shell = items(raw.and_then(|raw| raw.get("contents")))
        .filter(|item| item.text_of("type").as_deref() == Some("shell_exit"))
        .last();
    let printed = update
        .path(&["_meta", "terminal_exit", "exit_code"])
        .or_else(|| raw?.get("exit_code"))
        .or_else(|| raw?.get("exitCode"))
        .or_else(|| raw?.path(&["metadata", "exit"]))
        .or_else(|| shell?.get("exitCode"));
    match printed {
        Some(printed) => {
            let code = count(Some(printed));
            (code != Some(0), code)
        }
        None => (false, None),
    }
}

/// How long a command ran, as Zed's codex prints it.
pub fn duration_ms(raw: Option<Value<'_>>) -> Option<Number> {
    let duration = raw?.get("duration")?;
    let (seconds, nanos) = (count(duration.get("secs"))?, count(duration.get("nanos"))?);
    let millis = seconds.saturating_mul(1000);
    Some(Number::Int(
        millis.saturating_add(nanos.div_euclid(1_000_000)),
    ))
}

/// Error classes of claude (`errorKind`), codex (`codexErrorInfo`), Zed's codex and OpenCode (`errorName`) and goose
/// (`reason`) that name a cap, in lower case and without the underscores in which they differ.
const LIMITS: [&str; 7] = [
    "creditsexhausted",
    "maxoutputtokens",
    "usagelimitexceeded",
    "contextwindowexceeded",
    "sessionbudgetexceeded",
    "contextoverflowerror",
    "messageoutputlengtherror",
];

/// Whether an error says that a cap was reached and not that something broke: by its class, or in the words that
/// Claude Code, Codex and Droid have for it on their own streams, and goose here.
pub fn names_limit(kind: Option<&str>, message: &str) -> bool {
    let class = kind.map(|kind| kind.to_lowercase().replace('_', ""));
    if class.is_some_and(|class| LIMITS.contains(&class.as_str())) {
        return true;
    }
    let message = message.strip_prefix("Internal error: ").unwrap_or(message);
    anthropic::is_limit([None, None], message)
        || outcome_of(Some(message), None) == "limit"
        || droid::outcome_of_error(message) == "limit"
        || message.starts_with(TOO_LONG)
}

/// What marks a "call" of claude and codex that is a compaction; JetBrains' clients find it in their extension.
pub fn compaction_of(meta: Option<Value<'_>>) -> Option<Value<'_>> {
    let meta = meta?;
    [Some(meta), meta.path(&["jetbrains", "air"])]
        .into_iter()
        .flatten()
        .filter_map(|holder| holder.get("contextCompaction"))
        .find(Value::is_object)
}

/// What an extension of claude and codex tells JetBrains' clients of a failure of a turn or of the session.
pub fn failure_of(meta: Option<Value<'_>>) -> Option<Value<'_>> {
    meta?
        .path(&["jetbrains", "air", "sessionFailure"])
        .filter(Value::is_object)
}

/// Whether it is a cap; a rate that was too high is none: the client may try again.
pub fn is_spent(failure: Value<'_>) -> bool {
    failure.text_of("category").as_deref() == Some("limit")
        && !items(failure.get("actions")).any(|action| action.is_text("retry"))
}

// -------------------------------------------------------------------- usage

/// ACP's counters as ours. Agents differ in what `inputTokens` and `outputTokens` leave out; `totalTokens` is right for
/// all, so the gap between it and the two tells. All zero is what an agent prints that does not know: None.
pub fn usage_of(usage: Option<Value<'_>>) -> Option<Tokens<'static>> {
    let counter = |key: &str| count(usage?.get(key));
    let (mut prompt, mut completion) = (counter("inputTokens")?, counter("outputTokens")?);
    if prompt == 0 && completion == 0 {
        return None;
    }
    let (read, written) = (counter("cachedReadTokens"), counter("cachedWriteTokens"));
    let thought = counter("thoughtTokens");
    let cached = read.unwrap_or(0) + written.unwrap_or(0);
    let gap = counter("totalTokens").map_or(0, |whole| whole - prompt - completion);
    if gap > 0 && (gap == cached || gap == cached + thought.unwrap_or(0)) {
        prompt += cached;
        completion += gap - cached;
    } else if gap > 0 && Some(gap) == thought {
        completion += gap;
    }
    let extra = [("cachedWriteTokens", written), ("thoughtTokens", thought)];
    Some(Tokens {
        prompt: Some(prompt),
        completion: Some(completion),
        cached: read,
        cost: None,
        extra: extra
            .into_iter()
            .filter_map(|(key, value)| Some((key.into(), value.filter(|v| *v != 0)?.into())))
            .collect(),
    })
}

/// Gemini's counters of a prompt, in the `_meta` of its answer.
pub fn quota_of(meta: Option<Value<'_>>) -> Option<Tokens<'static>> {
    let counts = meta?.path(&["quota", "token_count"])?;
    let (prompt, completion) = (
        count(counts.get("input_tokens")),
        count(counts.get("output_tokens")),
    );
    let known = prompt.is_some_and(|n| n != 0) || completion.is_some_and(|n| n != 0);
    known.then(|| Tokens {
        prompt,
        completion,
        ..Tokens::default()
    })
}

/// Claude's counters of the whole session by model, sub-agents and side calls included.
pub fn session_quota(meta: Option<Value<'_>>) -> Option<Tokens<'static>> {
    let (mut prompt, mut completion, mut cached) = (0, 0, 0);
    for model in items(meta?.path(&["quota", "model_usage"])) {
        let counter = |key: &str| count(model.path(&["token_count", key])).unwrap_or(0);
        let read = counter("cachedInputTokens");
        prompt += counter("inputTokens") + read + counter("cachedWriteTokens");
        completion += counter("outputTokens");
        cached += read;
    }
    (prompt != 0 || completion != 0).then(|| Tokens {
        prompt: Some(prompt),
        completion: Some(completion),
        cached: Some(cached),
        ..Tokens::default()
    })
}

/// The terminal output that a line of codex or claude brings, and its key: the second where the client says that it has
/// terminals, as Zed does.
pub fn output_pieces<'a>(
    meta: Option<Value<'a>>,
) -> impl Iterator<Item = (&'static str, Value<'a>)> {
    ["terminal_output_delta", "terminal_output"]
        .into_iter()
        .filter_map(move |key| {
            let piece = filled_object(given(meta?.get(key)))?;
            piece.text_of("data").map(|_| (key, piece))
        })
}
