"""Shapes of what headrace yields: the OutputEvent of seed 003, the ``state`` kind, and lifecycle events.

Every event is a plain dict. Optional keys come from the wire or are absent; they are never guessed, and never 0 for
"not printed".
"""

from __future__ import annotations

import sys
from typing import Any, Literal

if sys.version_info >= (3, 12):
    from typing import NotRequired, TypedDict
elif sys.version_info >= (3, 11):
    try:  # pydantic takes no others before 3.12
        from typing_extensions import NotRequired, TypedDict
    except ImportError:
        from typing import NotRequired, TypedDict
else:
    from typing_extensions import NotRequired, TypedDict

# ---------------------------------------------------------------- content


class TextContent(TypedDict):
    """A text."""

    type: Literal["text"]
    text: str


class ImageContent(TypedDict):
    """An image, as data or by its address."""

    type: Literal["image"]
    data: str  # base64; empty when the wire names only a uri
    mimeType: str  # "image/png", "image/jpeg", ...
    uri: NotRequired[str]


ContentBlock = TextContent | ImageContent


class DiffContent(TypedDict):
    """What a tool changed in a file."""

    type: Literal["diff"]
    path: str
    oldText: str | None  # None: a new file, or the wire does not tell the old text
    newText: str


class WrappedContent(TypedDict):
    """What a tool shows."""

    type: Literal["content"]
    content: ContentBlock


ToolCallContent = WrappedContent | DiffContent

# ---------------------------------------------------------------- tools

ToolKind = Literal["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"]
ToolCallStatus = Literal["pending", "in_progress", "completed", "failed"]


class ToolCallLocation(TypedDict):
    """A file that a tool works on."""

    path: str
    line: NotRequired[int]  # 1-based, only if the harness printed it


# ---------------------------------------------------------------- the eight kinds of update


class AgentMessageChunk(TypedDict):
    """What the agent says, or a piece of it."""

    sessionUpdate: Literal["agent_message_chunk"]
    content: ContentBlock


class AgentThoughtChunk(TypedDict):
    """What the agent thinks, or a piece of it."""

    sessionUpdate: Literal["agent_thought_chunk"]
    content: ContentBlock


class UserMessageChunk(TypedDict):
    """What a person says to the agent, or a piece of it."""

    sessionUpdate: Literal["user_message_chunk"]
    content: ContentBlock


class ToolCall(TypedDict):
    """The agent calls a tool."""

    sessionUpdate: Literal["tool_call"]
    toolCallId: str
    title: str  # for people; never parse it
    toolName: NotRequired[str]  # the harness's own name of the tool, verbatim
    kind: ToolKind
    status: ToolCallStatus
    rawInput: NotRequired[dict[str, Any]]
    content: NotRequired[list[ToolCallContent]]
    locations: NotRequired[list[ToolCallLocation]]


class ToolCallUpdate(TypedDict):
    """What becomes of a call; keys that are absent stay as they were."""

    sessionUpdate: Literal["tool_call_update"]
    toolCallId: str
    status: NotRequired[ToolCallStatus]
    title: NotRequired[str]
    content: NotRequired[list[ToolCallContent]]
    locations: NotRequired[list[ToolCallLocation]]
    rawOutput: NotRequired[Any]  # the harness's own structured record of the result, verbatim


PlanEntryStatus = Literal["pending", "in_progress", "completed"]


class PlanEntry(TypedDict):
    """One thing that the agent plans to do."""

    content: str
    status: PlanEntryStatus
    priority: Literal["high", "medium", "low"]


class Plan(TypedDict):
    """The whole plan, each time it changes."""

    sessionUpdate: Literal["plan"]
    entries: list[PlanEntry]


class AgentError(TypedDict):
    """Something failed."""

    sessionUpdate: Literal["error"]
    message: str  # the harness's own words
    fatal: bool  # True when the harness treated it as the end of the turn


class TokenUsage(TypedDict, total=False):
    """Counters; what was not printed is absent."""

    promptTokens: int  # input INCLUDING the cached and cache-written shares
    completionTokens: int
    cachedTokens: int  # the cache-read share of promptTokens
    costUsd: float  # only when the harness priced it
    extra: dict[str, Any]  # the harness's other counters under its own names


class AgentUsage(TypedDict):
    """What was spent."""

    sessionUpdate: Literal["usage"]
    scope: Literal["call", "run"]  # one model call, or the harness's total of the whole run
    usage: TokenUsage


SessionUpdate = (
    AgentMessageChunk
    | AgentThoughtChunk
    | UserMessageChunk
    | ToolCall
    | ToolCallUpdate
    | Plan
    | AgentError
    | AgentUsage
)

# ---------------------------------------------------------------- the ninth kind, with state=True

Outcome = Literal["completed", "failed", "cancelled", "timeout", "denied", "limit", "incomplete"]


class SessionState(TypedDict):
    """What the harness says of its session; comes again when it changes (a resumed or second session in one stream)."""

    sessionUpdate: Literal["state"]
    state: Literal["session"]
    sessionId: NotRequired[str]
    version: NotRequired[str]  # of the harness, as printed
    model: NotRequired[str]
    cwd: NotRequired[str]
    title: NotRequired[str]


class TurnState(TypedDict):
    """A turn of the main agent starts or ends. A turn is what one prompt sets off."""

    sessionUpdate: Literal["state"]
    state: Literal["turn"]
    phase: Literal["start", "end"]
    outcome: NotRequired[Outcome]  # with phase "end", if the wire tells
    reason: NotRequired[str]  # the harness's own word: stop reason, error class


class RetryState(TypedDict):
    """A model call is tried again, or the retrying is over. Never an error by itself."""

    sessionUpdate: Literal["state"]
    state: Literal["retry"]
    phase: Literal["start", "end"]
    attempt: NotRequired[int]
    maxAttempts: NotRequired[int]
    delayMs: NotRequired[float]
    message: NotRequired[str]
    success: NotRequired[bool]  # with phase "end"


class CompactionState(TypedDict):
    """The harness shortens its context."""

    sessionUpdate: Literal["state"]
    state: Literal["compaction"]
    phase: Literal["start", "end"]
    trigger: NotRequired[str]  # "manual", "auto", "threshold", "overflow", ... as printed
    success: NotRequired[bool]
    summary: NotRequired[str]
    message: NotRequired[str]  # why it failed


class ApprovalState(TypedDict):
    """The harness asks a person (permission or question), or the question is settled."""

    sessionUpdate: Literal["state"]
    state: Literal["approval"]
    phase: Literal["requested", "settled"]
    toolCallId: NotRequired[str]
    toolName: NotRequired[str]
    decision: NotRequired[str]  # the harness's own word
    message: NotRequired[str]


class QueueState(TypedDict):
    """Prompts that wait for their turn: the whole queue each time."""

    sessionUpdate: Literal["state"]
    state: Literal["queue"]
    prompts: list[str]


class ModelState(TypedDict):
    """The model or its effort changes in the middle of a session."""

    sessionUpdate: Literal["state"]
    state: Literal["model"]
    model: NotRequired[str]
    effort: NotRequired[str]


class EndState(TypedDict):
    """The terminal record: the harness says that it is done. More may follow (a further turn): the last one counts."""

    sessionUpdate: Literal["state"]
    state: Literal["end"]
    outcome: Outcome
    reason: NotRequired[str]


StateUpdate = (
    SessionState | TurnState | RetryState | CompactionState | ApprovalState | QueueState | ModelState | EndState
)

# ---------------------------------------------------------------- the event


class Span(TypedDict):
    """Where the record stands that made an event come: ``extra["span"]`` with ``spans=True``."""

    line: int  # 1-based
    offset: int  # of its first byte in the stream, after decompression
    bytes: int  # its length, line end not included


class OutputEvent(TypedDict):
    """One event, with what its line tells of itself."""

    update: SessionUpdate | StateUpdate
    sessionId: NotRequired[str]
    messageId: NotRequired[str]  # the harness's id of the model message that the line belongs to
    timestamp: NotRequired[str]  # the harness's own clock, ISO 8601
    model: NotRequired[str]  # the model that the harness named for this line
    parentToolCallId: NotRequired[str]  # on a sub-agent's line: the call that delegated to it
    extra: NotRequired[dict[str, Any]]  # other facts of the line; "retract": n on chunks, "span": Span with spans=True


# ---------------------------------------------------------------- lifecycle of a process


class LifecycleEvent(TypedDict):
    """What becomes of a process, as listeners of ``lifecycle`` are told."""

    sandbox_id: str | None
    sandbox: Literal["booting", "error", "ready", "running", "paused", "stopped"]
    agent: Literal["idle", "running", "interrupted", "error"]
    timestamp: str
    browser: NotRequired[dict[str, str]]
    reason: Literal[
        "browser_ready",
        "sandbox_boot",
        "sandbox_ready",
        "sandbox_connected",
        "sandbox_pause",
        "sandbox_resume",
        "sandbox_killed",
        "sandbox_error",
        "run_start",
        "run_complete",
        "run_interrupted",
        "run_failed",
        "run_background_complete",
        "run_background_failed",
        "command_start",
        "command_complete",
        "command_interrupted",
        "command_failed",
        "command_background_complete",
        "command_background_failed",
    ]
