"""What differs from agent to agent behind ACP: names, results, exit codes, usage. Facts of the agents' own `_meta` and
`rawOutput`, read by shape, so that a stream that starts in the middle (no `initialize` answer) is read alike.

Recorded: claude-agent-acp 0.101 and claude-code-acp 0.16 (Zed), codex-acp 2.6 and 0.16 (Zed), Copilot 1.0.102, droid
0.215, Gemini CLI 0.61, Kimi Code 2.1, OpenCode 1.18, Qwen Code 0.24. goose and Grok Build 1.0 by their sources and
samples of others.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..emit import Emitter, count, tokens
from . import anthropic, droid
from . import codex_shapes as shapes
from .acp_shape import id_of, joined, mapping, sequence

#: what the `usage` of the answer to session/prompt covers
CALL, TURN, SESSION = "call", "turn", "session"


class Agent(NamedTuple):
    """The habits of one agent that its messages alone do not show.

    usage: what `result.usage` covers. whole: each chunk is a whole block. title_is_name: a call's first title is the
    name of its tool. dressed: `content` of a result is made up for people (a code fence), `rawOutput` is the result.
    sections: a thought starts with a chunk of two line feeds. unmarked: chunks without `messageId` are notices of the
    harness. notices: how a chunk starts that is a notice, and what it is.
    """

    usage: str = TURN
    whole: bool = False
    title_is_name: bool = False
    dressed: bool = False
    sections: bool = False
    unmarked: bool = False
    notices: tuple[tuple[str, str], ...] = ()


#: Cursor, which does not say its name, has these classes of errors
CURSOR = tuple((f"\n\nError: {name}Error: ", "error") for name in ("Retriable", "NonRetriable", "ActionRequired"))

#: codex-acp of Zed, which hands on the warnings of Codex as messages; each is a chunk
CODEX_ZED = (
    ("Model metadata for `", "warning"),
    ("Heads up: Long threads and multiple compactions", "warning"),
    ("Under-development features enabled: ", "warning"),
)

TOO_LONG = "Context length exceeded: "
#: goose, whose loop says the failure of a model call as a message of its own
GOOSE = (("Ran into this error", "error"), ("Network error: ", "error"), (TOO_LONG, "error"))

AGENTS: dict[str, Agent] = {
    "": Agent(notices=CURSOR),
    "claude": Agent(dressed=True),
    "codex": Agent(sections=True, unmarked=True),
    "codex-zed": Agent(sections=True, notices=CODEX_ZED),
    "copilot": Agent(usage=SESSION, notices=(("Error: ", "error"), ("Warning: ", "warning"), ("Info: ", "info"))),
    "droid": Agent(whole=True),
    "goose": Agent(notices=GOOSE),
    "grok": Agent(),
    "gemini": Agent(notices=(("[API Error", "error"),)),
    "kimi": Agent(title_is_name=True),
    "opencode": Agent(usage=CALL, title_is_name=True),
    "qwen": Agent(notices=(("[API Error", "error"),)),
}
#: parts of `agentInfo.name`, in lower case; the first that fits
_NAMES = (
    ("claude", "claude"),
    ("@agentclientprotocol/codex", "codex"),
    ("codex", "codex-zed"),
    ("copilot", "copilot"),
    ("factory", "droid"),
    ("gemini", "gemini"),
    ("goose", "goose"),
    ("kimi", "kimi"),
    ("opencode", "opencode"),
    ("qwen", "qwen"),
)
#: Devin's mark of a sub-agent's updates
DEVIN = "cognition.ai/subagent_context"
#: keys of `_meta` that give an agent away
_MARKS = (
    ("claudeCode", "claude"),
    ("codex", "codex"),
    ("terminal_output_delta", "codex"),
    ("github.com/copilot", "copilot"),
    ("goose", "goose"),
    ("x.ai/tool", "grok"),
)


def by_name(name: str) -> str:
    """The key in AGENTS for the name that an agent gives itself."""
    lower = name.lower()
    return next((key for part, key in _NAMES if part in lower), "")


def by_mark(meta: dict[str, Any], session_id: str | None) -> str:
    """The agent as its `_meta` or the form of its session id show it; "" if they do not."""
    if session_id is not None and session_id.startswith("ses_"):
        return "opencode"
    return next((key for mark, key in _MARKS if mark in meta), "")


# ---------------------------------------------------------------- tool calls


def tool_name(agent: str, call_id: str, update: dict[str, Any], first: bool) -> str | None:
    """The harness's own name of the tool, where the wire has it; titles that were written for people are none."""
    meta = mapping(update.get("_meta"))
    raw = mapping(update.get("rawInput"))
    for name in (
        update.get("name"),
        mapping(meta.get("claudeCode")).get("toolName"),
        meta.get("toolName"),
        mapping(meta.get("x.ai/tool")).get("name"),
        raw.get("tool") if meta.get("is_mcp_tool_call") is True else None,
    ):
        if isinstance(name, str) and name:
            return name
    title = update.get("title")
    if first and AGENTS[agent].title_is_name and isinstance(title, str) and title and " " not in title:
        return title
    if agent == "gemini" and "__" in call_id:
        return call_id.partition("__")[0] or None
    return None


def parent_call(out: Emitter, meta: dict[str, Any]) -> str | None:
    """The delegating call, where a sub-agent's line names it. Devin has a call for each sub-agent, with its id."""
    named = mapping(meta.get("claudeCode")).get("parentToolUseId")
    agent = id_of(out, mapping(meta.get(DEVIN)).get("parentAgentId"))
    return id_of(out, named) or id_of(out, meta.get("parentToolCallId")) or (agent if agent != "root" else None) or None


def of_subagent(meta: dict[str, Any]) -> bool:
    """Whether Devin or Kiro mark an update, of whatever kind, as a sub-agent's (or Devin as the main agent's)."""
    return DEVIN in meta or "agentSubtaskId" in mapping(meta.get("kiro"))


def is_refusal(update: dict[str, Any]) -> bool:
    """A result that says in a field of its own that the call was not allowed to run."""
    kind = mapping(mapping(update.get("_meta")).get("claudeCode")).get("nonExecutionKind")
    code = mapping(update.get("rawOutput")).get("code")
    response = mapping(mapping(mapping(update.get("_meta")).get("claudeCode")).get("toolResponse"))
    return (
        kind in ("user-rejected", "permission-rule")
        or code in ("rejected", "denied")
        or isinstance(response.get("decisionReasonType"), str)
    )


def failed_exit(update: dict[str, Any]) -> tuple[bool, int | None]:
    """Whether a structured exit code says that the command failed, and the code. A code that is null says so too."""
    raw, meta = mapping(update.get("rawOutput")), mapping(update.get("_meta"))
    shells = [item for item in sequence(raw.get("contents")) if mapping(item).get("type") == "shell_exit"]
    for holder, key in (
        (mapping(meta.get("terminal_exit")), "exit_code"),
        (raw, "exit_code"),
        (raw, "exitCode"),
        (mapping(raw.get("metadata")), "exit"),
        (shells[-1] if shells else {}, "exitCode"),
    ):
        if key in holder:
            code = count(holder[key])
            return code != 0, code
    return False, None


def is_invalid_tool(agent: str, raw_input: Any) -> bool:
    """OpenCode runs a tool of its own in place of one that does not exist, and says that it completed."""
    return agent == "opencode" and isinstance(raw_input, dict) and raw_input.keys() == {"tool", "error"}


def result_text(agent: str, raw: Any, shown: str | None) -> str | None:
    """The text of a result: what `content` shows, unless `rawOutput` is known to be nearer to what the tool said.

    Args:
        agent: key in AGENTS.
        raw: `rawOutput`.
        shown: the texts of `content`, joined; None if it has none.
    """
    fields = mapping(raw)
    aggregated = fields.get("aggregated_output")
    if isinstance(aggregated, str) and aggregated:
        return aggregated
    if AGENTS[agent].dressed and isinstance(raw, (str, list)):
        return (raw or None) if isinstance(raw, str) else joined(raw)
    if shown is not None:
        return shown
    if isinstance(raw, str):
        return raw or None
    if isinstance(raw, list):
        return joined(raw)
    text = joined(mapping(fields.get("result")).get("content"))
    if text is not None:
        return text
    for key in ("content", "text", "output", "formatted_output", "message", "error"):
        value = fields.get(key)
        value = value.get("message") if isinstance(value, dict) else value
        if isinstance(value, str) and value:
            return value
    return None


def duration_ms(raw: Any) -> int | None:
    """How long a command ran, as Zed's codex prints it."""
    duration = mapping(mapping(raw).get("duration"))
    seconds, nanos = count(duration.get("secs")), count(duration.get("nanos"))
    return None if seconds is None or nanos is None else seconds * 1000 + nanos // 1_000_000


# ---------------------------------------------------------------- notices


def notice(agent: str, message_id: str | None, text: str) -> str | None:
    """What a message chunk is that is the harness's own word and not the model's: "error", "warning" or "info".

    Claude's own messages have a UUID where the API's begin with "msg_"; codex's come without id; Copilot marks nothing,
    so that only the wording tells.
    """
    habits = AGENTS[agent]
    if agent == "claude" and message_id is not None and not message_id.startswith("msg_") and "API Error" in text:
        return "error"
    if habits.unmarked and message_id is None:
        return "warning"
    return next((what for start, what in habits.notices if text.startswith(start)), None)


def is_echo(agent: str, message_id: str | None, text: str, error: str) -> bool:
    """Whether the last message before an error answer is not the model's but says the error."""
    if agent == "droid":
        return text.startswith("Error: ")
    return agent == "claude" and message_id is not None and not message_id.startswith("msg_") and error.endswith(text)


#: error classes of claude (`errorKind`), codex (`codexErrorInfo`), Zed's codex and OpenCode (`errorName`) and goose
#: (`reason`) that name a cap, in lower case and without the underscores in which they differ
_LIMITS = frozenset(
    {
        "creditsexhausted",
        "maxoutputtokens",
        "usagelimitexceeded",
        "contextwindowexceeded",
        "sessionbudgetexceeded",
        "contextoverflowerror",
        "messageoutputlengtherror",
    }
)


def names_limit(kind: Any, message: str) -> bool:
    """Whether an error says that a cap was reached and not that something broke: by its class, or in the words that
    Claude Code, Codex and Droid have for it on their own streams, and goose here."""
    if isinstance(kind, str) and kind.lower().replace("_", "") in _LIMITS:
        return True
    message = message.removeprefix("Internal error: ")
    return (
        anthropic.is_limit((), message)
        or shapes.outcome_of(message) == "limit"
        or droid.outcome_of_error(message) == "limit"
        or message.startswith(TOO_LONG)
    )


def compaction_of(meta: dict[str, Any]) -> dict[str, Any] | None:
    """What marks a "call" of claude and codex that is a compaction; JetBrains' clients find it in their extension."""
    for holder in (meta, mapping(mapping(meta.get("jetbrains")).get("air"))):
        told = holder.get("contextCompaction")
        if isinstance(told, dict):
            return told
    return None


def failure_of(meta: dict[str, Any]) -> dict[str, Any]:
    """What an extension of claude and codex tells JetBrains' clients of a failure of a turn or of the session."""
    return mapping(mapping(mapping(meta.get("jetbrains")).get("air")).get("sessionFailure"))


def is_spent(failure: dict[str, Any]) -> bool:
    """Whether it is a cap; a rate that was too high is none: the client may try again."""
    return failure.get("category") == "limit" and "retry" not in sequence(failure.get("actions"))


# ---------------------------------------------------------------- usage


def usage_of(usage: Any) -> dict[str, Any] | None:
    """ACP's counters as ours. Agents differ in what `inputTokens` and `outputTokens` leave out; `totalTokens` is right
    for all, so the gap between it and the two tells. All zero is what an agent prints that does not know: None."""
    fields = mapping(usage)
    prompt, completion = count(fields.get("inputTokens")), count(fields.get("outputTokens"))
    if prompt is None or completion is None or not (prompt or completion):
        return None
    read, written = count(fields.get("cachedReadTokens")), count(fields.get("cachedWriteTokens"))
    thought, whole = count(fields.get("thoughtTokens")), count(fields.get("totalTokens"))
    cached = (read or 0) + (written or 0)
    gap = 0 if whole is None else whole - prompt - completion
    if gap > 0 and gap in (cached, cached + (thought or 0)):
        prompt += cached
        completion += gap - cached
    elif gap > 0 and gap == thought:
        completion += gap
    extra = {"cachedWriteTokens": written, "thoughtTokens": thought}
    return tokens(prompt, completion, read, extra={key: value for key, value in extra.items() if value})


def quota_of(meta: Any) -> dict[str, Any] | None:
    """Gemini's counters of a prompt, in the `_meta` of its answer."""
    counts = mapping(mapping(mapping(meta).get("quota")).get("token_count"))
    prompt, completion = count(counts.get("input_tokens")), count(counts.get("output_tokens"))
    return tokens(prompt, completion) if prompt or completion else None


def session_quota(meta: Any) -> dict[str, Any] | None:
    """Claude's counters of the whole session by model, sub-agents and side calls included."""
    sums = [0, 0, 0]
    models = sequence(mapping(mapping(meta).get("quota")).get("model_usage"))
    for model in models:
        counts = mapping(mapping(model).get("token_count"))
        read = count(counts.get("cachedInputTokens")) or 0
        sums[0] += (count(counts.get("inputTokens")) or 0) + read + (count(counts.get("cachedWriteTokens")) or 0)
        sums[1] += count(counts.get("outputTokens")) or 0
        sums[2] += read
    return tokens(sums[0], sums[1], sums[2]) if sums[0] or sums[1] else None
