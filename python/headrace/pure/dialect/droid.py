"""Factory Droid: ``droid exec --output-format stream-json``, ``json`` and ``stream-jsonrpc``.

Recorded: stream-json and json of 0.215.0. The notifications of stream-jsonrpc are known from the vendor's public SDK:
they have deltas, and then the whole message is the authority.

A record comes when its model call is complete, each text block whole. A good run ends with ``completion``, a bad one
with an ``error`` of the agent loop, which has the cause, and one of the command line, which repeats the last text. When
the policy refuses a call the run ends there: the refusal comes as the result of the call, again as an assistant message
that no model wrote, and again as an error. SIGINT and SIGTERM end the stream with no record and exit code 0.
"""

from __future__ import annotations

from typing import Any

from .. import event as ev
from .. import tool
from ..emit import Emitter, count, tokens, total
from ..event import Stamp
from ..record import Record
from ..run import Ending, Exit, Reducer
from ..wire import as_list, as_text
from . import SURE, UNKNOWN, Outcome, Sign

NAME = "droid"

#: keys of the init record of Claude Code and those who copied it, none of which Droid prints
_CLAUDE_INIT = frozenset(
    {"uuid", "apiKeySource", "permissionMode", "permission_mode", "mcp_servers", "qwen_code_version"}
)
#: all keys of the one record of the json mode, which is a near copy of Claude's result
_RESULT = frozenset(
    {
        "type",
        "subtype",
        "is_error",
        "duration_ms",
        "num_turns",
        "result",
        "session_id",
        "usage",
        "structured_output",
    }
)
#: reasons of the end of a turn (notification and session file); any other is a failure
REASONS = {
    "completed": "completed",
    "cancelled": "cancelled",
    "canceled": "cancelled",
    "interrupted": "cancelled",
    "aborted": "cancelled",
    "user_cancelled": "cancelled",
    "max_turns": "limit",
}
#: what stands in errors that name a cap: spent credits ("402 {"detail":"Ready for more? Reload your tokens at ...") and
#: used-up plans ("You've reached your weekly usage limit")
LIMITS = ("Reload your tokens", "reload your tokens", "usage limit")
#: notifications that say nothing for events
IGNORED = {
    "assistant_text_complete": "end of a block",
    "thinking_text_complete": "end of a block",
    "structured_output": "structured output",
    "tool_call_delta": "part of a call",
    "tool_execution_heartbeat": "heartbeat",
    "tool_execution_phase_changed": "tool phase",
    "loop_state_changed": "loop state",
    "queued_messages_discarded": "queue",
    "mcp_status_changed": "MCP servers",
    "mcp_auth_required": "MCP servers",
    "mcp_auth_completed": "MCP servers",
    "hook_execution_started": "hook",
    "hook_execution_completed": "hook",
    "mission_state_changed": "mission",
    "mission_features_changed": "mission",
    "mission_progress_entry": "mission",
    "mission_heartbeat": "heartbeat",
    "mission_worker_started": "mission",
    "mission_worker_completed": "mission",
}
#: error answers that say only that a request was not understood
_HARMLESS = (-32601, -32602, -32002)


def sign(record: dict[str, Any]) -> Sign | None:
    kind = record.get("type")
    method = record.get("method")
    if isinstance(method, str) and method.startswith("droid."):
        return Sign(SURE, "a method of droid")
    if "factoryApiVersion" in record:
        return Sign(SURE, "factoryApiVersion")
    if not isinstance(record.get("session_id"), str):
        return None
    if kind == "system" and record.get("subtype") == "init" and not _CLAUDE_INIT & record.keys():
        if "reasoning_effort" in record:
            return Sign(SURE, "an init with reasoning_effort")
        return Sign(50, "an init without what Claude Code prints")
    if kind == "message" and isinstance(record.get("role"), str) and isinstance(record.get("text"), str):
        return Sign(SURE, "a message with role and text")
    if kind in ("tool_call", "tool_result") and "toolId" in record:
        return Sign(SURE, f"a {kind} with toolId")
    if kind == "reasoning" and isinstance(record.get("text"), str):
        return Sign(SURE, "a reasoning with session_id")
    if kind == "completion" and "finalText" in record:
        return Sign(SURE, "a completion with finalText")
    if kind == "error" and isinstance(record.get("source"), str) and isinstance(record.get("message"), str):
        return Sign(SURE, "an error with source")
    if kind == "result" and isinstance(record.get("is_error"), bool):
        usage = record.get("usage")
        if isinstance(usage, dict) and "factory_credits" in usage:
            return Sign(SURE, "a result with factory_credits")
        if record.keys() <= _RESULT:
            return Sign(40, "a result without what Claude Code prints")
    return None


class Mapper:
    def __init__(self, out: Emitter) -> None:
        self.out = out
        self.todos: dict[str, list[dict[str, str]]] = {}  # plans of todo calls without a result
        self.thought: list[str] = []  # id of the last reasoning record, and the texts of that message's
        self.answer = ""  # text of the main agent's last message
        self.answer_id: str | None = None
        self.refusals: list[str] = []  # what the failed calls of the last message said
        self.refused = False  # a message repeated it: the policy ended the run
        self.failed: str | None = None  # outcome of the error that the agent loop told
        self.turning = False
        self.streams: dict[str, Stream] = {}  # stream-jsonrpc: by delegating call, "" for the main agent
        self.inputs: dict[str, Any] = {}  # arguments as told so far of calls without a result
        self.children: dict[str, str] = {}  # session of a sub-agent: the call that delegated

    def map(self, record: Record) -> Outcome:
        value = record.value
        if isinstance(value.get("method"), str):
            return self._method(value["method"], value.get("params"))
        if "factoryApiVersion" in value:
            return self._response(value)
        return self._record(value, self._stamp(value))

    def close(self) -> None:
        pass

    def judge(self, run: Reducer, exit: Exit) -> Ending | None:
        if self.refused:
            return Ending("denied", "insufficient permission", "the run ended at a refused call")
        return None

    # ------------------------------------------------------------ stream-json and json

    def _record(self, value: dict[str, Any], stamp: Stamp) -> Outcome:
        kind = value.get("type")
        if kind == "system" and value.get("subtype") == "init":
            self.out.another_run(stamp)
            self.out.session_state(
                stamp,
                sessionId=stamp.session_id,
                model=as_text(value.get("model")),
                cwd=as_text(value.get("cwd")),
            )
            return None
        if kind == "message":
            return self._message(value.get("role"), as_text(value.get("text")), stamp)
        if kind == "reasoning":
            return self._reasoning(as_text(value.get("text")), stamp)
        if kind == "tool_call":
            return self._call(value.get("id"), value.get("toolName"), value.get("parameters"), stamp)
        if kind == "tool_result":
            error = value.get("error")
            message = error.get("message") if isinstance(error, dict) else error
            content = value.get("value", message)
            raw = {"error": error} if isinstance(error, dict) else ...
            return self._result(value.get("id"), value.get("isError"), content, stamp, raw)
        if kind == "completion":
            return self._completion(value, stamp)
        if kind == "result":
            return self._only_result(value, stamp)
        if kind == "error":
            return self._error(value, stamp)
        return UNKNOWN

    def _stamp(self, value: dict[str, Any]) -> Stamp:
        kind = value.get("type")
        message_id = value.get("id") if kind in ("message", "reasoning") else None
        return Stamp(
            session_id=as_text(value.get("session_id")),
            message_id=as_text(value.get("messageId") if kind == "tool_call" else message_id),
            timestamp=ev.iso_millis(value.get("timestamp")) or as_text(value.get("timestamp")),
        )

    def _message(self, role: Any, text: str | None, stamp: Stamp) -> Outcome:
        if role == "user":
            self._start(stamp)
        if not text:
            return "empty text"
        if role == "user":
            self.out.whole(ev.USER, text, stamp)
            return None
        if role != "assistant":
            return "message of the harness"
        if is_refusal(text, self.refusals):
            self.refused = True
            return "refusal again"
        self._answered(text, stamp)
        self.out.whole(ev.MESSAGE, text, stamp)
        return None

    def _answered(self, text: str, stamp: Stamp) -> None:
        if stamp.parent is not None:
            return
        message = clean(stamp.message_id)
        if message is None or message != self.answer_id:
            self.answer = ""
        self.answer, self.answer_id = self.answer + ev.clean(text), message

    def _reasoning(self, text: str | None, stamp: Stamp) -> Outcome:
        """With some providers each thought is printed twice."""
        if not text:
            return "empty text"
        message_id, thought = clean(stamp.message_id) or "", ev.clean(text)
        if self.thought[:1] != [message_id]:
            self.thought = [message_id]
        if thought in self.thought[1:]:
            return "thought again"
        self.thought.append(thought)
        self.out.whole(ev.THOUGHT, text, stamp)
        return None

    def _start(self, stamp: Stamp) -> None:
        """A prompt opens a turn."""
        if stamp.parent is None:
            self.refusals, self.answer, self.refused, self.failed, self.turning = [], "", False, None, True
            self.out.commit(None)
            self.out.state("turn", stamp, phase="start")

    def _call(self, call_id: Any, name: Any, input: Any, stamp: Stamp) -> Outcome:
        if not isinstance(call_id, str):
            return UNKNOWN
        if stamp.parent is None:
            self.refusals = []
        call(self.out, self.todos, call_id, as_text(name), input, stamp)
        return None

    def _result(self, call_id: Any, is_error: Any, content: Any, stamp: Stamp, raw: Any = ...) -> Outcome:
        if not isinstance(call_id, str):
            return UNKNOWN
        refusal = result(self.out, self.todos, call_id, is_error, content, stamp, raw)
        if stamp.parent is None and refusal is not None:
            self.refusals.append(refusal)
        return None

    def _completion(self, value: dict[str, Any], stamp: Stamp) -> Outcome:
        text = as_text(value.get("finalText"))
        if text and _without_blanks(ev.clean(text)) != _without_blanks(
            self.answer
        ):  # it is trimmed, and joins the blocks
            self.out.whole(ev.MESSAGE, text, stamp)
        usage(self.out, value.get("usage"), stamp)
        self.turning = False
        self.out.state("end", stamp, outcome="completed", reason="completion")
        return None

    def _only_result(self, value: dict[str, Any], stamp: Stamp) -> Outcome:
        """The whole output of the json mode."""
        self.out.session_state(stamp, sessionId=stamp.session_id)
        usage(self.out, value.get("usage"), stamp)
        text, subtype = as_text(value.get("result")), as_text(value.get("subtype"))
        if value.get("is_error") is True:
            self.out.error(text or subtype or "error", stamp, fatal=True)
            self.out.state("end", stamp, outcome=outcome_of_error(text or ""), reason=subtype)
            return None
        if text:
            self.out.whole(ev.MESSAGE, text, stamp)
        self.out.state("end", stamp, outcome="completed", reason=subtype)
        return None

    def _error(self, value: dict[str, Any], stamp: Stamp) -> Outcome:
        message, source = as_text(value.get("message")), as_text(value.get("source"))
        if message is None:
            return UNKNOWN
        if source == "cli" and self.failed is not None:
            return "last text again"  # after the cause, which the agent loop told
        outcome = outcome_of_error(message)
        self.failed = None if source == "cli" else outcome
        self.turning = False
        self.out.error(message, stamp, fatal=True)
        denied = self.refused and is_refusal(message, self.refusals)
        self.out.state("end", stamp, outcome="denied" if denied else outcome, reason=source)
        return None

    # ------------------------------------------------------------ stream-jsonrpc

    def _method(self, method: str, params: Any) -> Outcome:
        params = params if isinstance(params, dict) else {}
        if method == "droid.session_notification":
            value = params.get("notification")
            return self._notification(value if isinstance(value, dict) else params, params.get("sessionId"))
        if method == "droid.request_permission":
            for use in as_list(params.get("toolUses")):
                if not isinstance(use, dict):
                    continue
                inner = use.get("toolUse")
                inner = inner if isinstance(inner, dict) else {}
                self.out.state(
                    "approval",
                    Stamp(),
                    phase="requested",
                    toolCallId=as_text(inner.get("id")),
                    toolName=as_text(inner.get("name")),
                )
            return None
        if method == "droid.ask_user":
            self.out.state("approval", Stamp(), phase="requested", toolCallId=as_text(params.get("toolCallId")))
            return None
        return "request" if method.startswith("droid.") else UNKNOWN

    def _response(self, value: dict[str, Any]) -> Outcome:
        """An answer to the client. Only one that comes before any turn can be a failure of the run."""
        result, error = value.get("result"), value.get("error")
        if isinstance(result, dict):
            settings = result.get("settings")
            self.out.session_state(
                Stamp(),
                sessionId=as_text(result.get("sessionId")),
                model=as_text(settings.get("modelId")) if isinstance(settings, dict) else None,
                cwd=as_text(result.get("cwd")),
            )
            return "response"
        message = error.get("message") if isinstance(error, dict) else None
        if not isinstance(message, str) or not isinstance(error, dict) or count(error.get("code")) in _HARMLESS:
            return "response"
        fatal = not self.turning and not self.answer
        self.out.error(message, Stamp(), fatal=fatal)
        if fatal:
            self.out.state("end", Stamp(), outcome="failed", reason="error response")
        return None

    def _notification(self, value: dict[str, Any], session_id: Any) -> Outcome:
        kind = value.get("type")
        stamp = Stamp(
            session_id=as_text(session_id),
            message_id=as_text(value.get("messageId")),
            timestamp=ev.iso_millis(value.get("timestamp")) or as_text(value.get("timestamp")),
            parent=self.children.get(clean(session_id) or ""),
        )
        if kind in ("assistant_text_delta", "thinking_text_delta"):
            return self._delta(kind, value, stamp)
        if kind == "create_message" and isinstance(value.get("message"), dict):
            return self._whole_message(value["message"], stamp)
        if kind == "tool_call" and isinstance(value.get("toolUse"), dict):
            return self._tool_use(value["toolUse"], stamp)
        if kind == "tool_result" and isinstance(value.get("toolUseId"), str):
            stamp.message_id = None  # that of the message which takes the result to the model
            self.inputs.pop(ev.clean(value["toolUseId"]), None)
            return self._result(value["toolUseId"], value.get("isError"), value.get("content"), stamp)
        if kind in ("tool_progress_update", "tool_progress"):
            return self._progress(value, stamp)
        if kind == "error":
            return self._failure(value, stamp)
        if kind in ("agent_turn_completed", "droid_working_state_changed"):
            return self._working(kind, value, stamp)
        if kind in ("message", "reasoning", "completion", "tool_call", "tool_result", "result"):
            return self._record(value, stamp)
        return self._facts(kind, value, stamp)

    def _delta(self, kind: str, value: dict[str, Any], stamp: Stamp) -> Outcome:
        text = as_text(value.get("textDelta"))
        if not text:
            return "empty text"
        stream = self._stream(stamp)
        chunk, blocks = (ev.MESSAGE, stream.texts) if kind.startswith("assistant") else (ev.THOUGHT, stream.thoughts)
        index = count(value.get("blockIndex"))
        if index not in blocks:
            blocks.append(index)
        self.out.delta(chunk, blocks.index(index), text, stamp)
        return None

    def _stream(self, stamp: Stamp) -> Stream:
        """The message that the stamp's thread is at; with another id, the one before is over."""
        stream = self.streams.get(stamp.parent or "")
        message = clean(stamp.message_id)
        if stream is None or stream.message != message:
            stream = self.streams[stamp.parent or ""] = Stream(message)
            self.out.commit(stamp.parent)
            self.out.next_turn()
        return stream

    def _whole_message(self, message: dict[str, Any], stamp: Stamp) -> Outcome:
        role, content = message.get("role"), message.get("content")
        stamp.message_id = as_text(message.get("id"))
        stamp.timestamp = stamp.timestamp or ev.iso_millis(message.get("createdAt"))
        stamp.model = as_text(message.get("modelId"))
        if role == "assistant":
            self._stream(stamp).whole = True
            self._blocks(as_list(content), stamp)
            return None
        if role != "user":
            return "message of the harness"
        if message.get("visibility") == "llm_only":
            return "harness reminder"
        for block in as_list(content):
            kind = block.get("type") if isinstance(block, dict) else None
            if kind == "text":
                self._message("user", as_text(block.get("text")), stamp)
            elif kind == "image":
                user_image(self.out, block, stamp)
        return None

    def _blocks(self, blocks: list[Any], stamp: Stamp) -> None:
        """The blocks of a whole message; the deltas of its n-th text belong to its n-th text block."""
        texts = thoughts = 0
        self.answer_id = None
        for block in blocks:
            kind = block.get("type") if isinstance(block, dict) else None
            if kind == "text" and isinstance(block.get("text"), str):
                if is_refusal(block["text"], self.refusals):
                    self.refused = True
                    continue
                self.out.final(ev.MESSAGE, texts, block["text"], stamp)
                self._answered(block["text"], stamp)
                texts += 1
            elif kind == "thinking" and isinstance(block.get("thinking"), str):
                self.out.final(ev.THOUGHT, thoughts, block["thinking"], stamp)
                thoughts += 1
            elif kind == "tool_use":
                self._tool_use(block, stamp)

    def _tool_use(self, block: dict[str, Any], stamp: Stamp) -> Outcome:
        """A call, which may come again with more of its arguments."""
        call_id, input = as_text(block.get("id")), block.get("input")
        if call_id is None:
            return UNKNOWN
        name, key = as_text(block.get("name")), ev.clean(call_id)
        if not self.out.is_open(call_id):
            self.inputs[key] = input
            return self._call(call_id, name, input, stamp)
        if not isinstance(input, dict) or self.inputs.get(key) == input:
            return "call again"
        self.inputs[key] = input
        facts = tool.describe(NAME, name, input)
        self.out.update(
            call_id, stamp, title=facts.title, content=facts.content, locations=facts.locations, input=input
        )
        remember(self.todos, call_id, name, input)
        return None

    def _progress(self, value: dict[str, Any], stamp: Stamp) -> Outcome:
        call_id, update = as_text(value.get("toolUseId")), value.get("update")
        if call_id is None:
            return UNKNOWN
        text = as_text(update.get("text")) if isinstance(update, dict) else None
        content = ev.text_content(text) if text else None
        return None if self.out.update(call_id, stamp, status="in_progress", content=content) else "late progress"

    def _failure(self, value: dict[str, Any], stamp: Stamp) -> Outcome:
        message = as_text(value.get("message"))
        if message is None:
            return UNKNOWN
        self.failed = outcome_of_error(message)
        self.out.error(message, stamp, fatal=stamp.parent is None)
        self._end(None, stamp)
        return None

    def _working(self, kind: str, value: dict[str, Any], stamp: Stamp) -> Outcome:
        if kind == "agent_turn_completed":
            for key in ("cumulativeTokenUsage", "tokenUsage"):
                if isinstance(value.get(key), dict):
                    rpc_usage(self.out, value[key], stamp)
                    break
            reason = as_text(value.get("reason"))
            self.turning = self.turning or stamp.parent is None
            self._end(reason or "completed", stamp)
            return None
        state = value.get("newState")
        if state == "idle":
            self._end("completed", stamp)
            return None
        if state == "compacting_conversation":
            self.out.state("compaction", stamp, phase="start")
            return None
        return "working state"

    def _end(self, reason: str | None, stamp: Stamp) -> None:
        """The turn is over, if one is: with the reason that was told, or because of an error."""
        if not self.turning or stamp.parent is not None:
            return
        self.turning = False
        outcome = REASONS.get(reason or "", "failed")
        if self.refused:
            outcome = "denied"
        elif self.failed is not None and outcome in ("completed", "failed"):
            outcome = self.failed
        self.out.close(None)
        self.out.state("turn", stamp, phase="end", outcome=outcome, reason=reason)

    def _facts(self, kind: Any, value: dict[str, Any], stamp: Stamp) -> Outcome:
        """Notifications about the session."""
        if kind == "session_token_usage_changed":
            inclusive = value.get("inclusiveTokenUsage")
            rpc_usage(self.out, inclusive if isinstance(inclusive, dict) else value.get("tokenUsage"), stamp)
            return None
        if kind == "settings_updated":
            settings = value.get("settings")
            settings = settings if isinstance(settings, dict) else {}
            model, effort = as_text(settings.get("modelId")), as_text(settings.get("reasoningEffort"))
            self.out.state("model", stamp, model=model, effort=effort)
            return None
        if kind == "session_title_updated":
            self.out.session_state(stamp, title=as_text(value.get("title")))
            return None
        if kind == "session_working_directory_changed":
            self.out.session_state(stamp, cwd=as_text(value.get("cwd")))
            return None
        if kind == "session_compacted":
            self.out.state("compaction", stamp, phase="end", success=True)
            return None
        if kind == "llm_retry":
            attempt, reason = count(value.get("attempt")), as_text(value.get("reason"))
            stream = self.streams.get(stamp.parent or "")
            if stream is not None and not stream.whole:
                self.out.abandon(stamp.parent, stamp)
            self.out.state("retry", stamp, phase="start", attempt=attempt, message=reason)
            return None
        if kind == "permission_resolved":
            decision = as_text(value.get("selectedOption"))
            for call_id in as_list(value.get("toolUseIds")):
                if isinstance(call_id, str):
                    self.out.state("approval", stamp, phase="settled", toolCallId=call_id, decision=decision)
            return None
        if kind == "child_session_available":
            child, call_id = clean(value.get("childSessionId")), clean(value.get("toolUseId"))
            if child is not None and call_id is not None:
                self.children[child] = call_id
            return "session of a sub-agent"
        return IGNORED.get(kind, UNKNOWN) if isinstance(kind, str) else UNKNOWN


class Stream:
    """A message that comes in deltas."""

    __slots__ = ("message", "texts", "thoughts", "whole")

    def __init__(self, message: str | None) -> None:
        self.message = message
        self.texts: list[int | None] = []  # block indexes of its texts, in the order of their first deltas
        self.thoughts: list[int | None] = []
        self.whole = False  # the whole message came


# ---------------------------------------------------------------- shapes that the session file shares


def call(
    out: Emitter, todos: dict[str, list[dict[str, str]]], call_id: str, name: str | None, input: Any, stamp: Stamp
) -> None:
    """A call. MCP tools are named ``server___tool``."""
    server, separator, rest = (name or "").partition("___")
    out.call(call_id, name, input, stamp, title=f"{server}: {rest}" if separator and server and rest else None)
    remember(todos, call_id, name, input)


def remember(todos: dict[str, list[dict[str, str]]], call_id: str, name: str | None, input: Any) -> None:
    """The plan that a todo call asks for: it holds when the call succeeds."""
    if name == "TodoWrite" and isinstance(input, dict):
        entries = plan(input.get("todos"))
        if entries is not None:
            todos[ev.clean(call_id)] = ev.clean_value(entries)


def plan(todos: Any) -> list[dict[str, str]] | None:
    """Todos as a text, ``1. [pending] first thing`` a line, or as a list."""
    if not isinstance(todos, str):
        return tool.plan_of(todos)
    entries = []
    for line in todos.split("\n"):
        _, bracket, rest = line.partition("[")
        status, end, text = rest.partition("]")
        entry = tool.plan_entry(text.strip(" \t\r"), status) if bracket and end else None
        if entry is not None:
            entries.append(entry)
    return entries


def result(
    out: Emitter,
    todos: dict[str, list[dict[str, str]]],
    call_id: str,
    is_error: Any,
    content: Any,
    stamp: Stamp,
    raw: Any = ...,
) -> str | None:
    """The result of a call: a text or blocks. Returns what a failed call said."""
    blocks = ev.text_content(content) if isinstance(content, str) and content else content_of(content)
    failed = is_error is True
    out.update(call_id, stamp, status="failed" if failed else "completed", content=blocks, raw_output=raw)
    entries = todos.pop(ev.clean(call_id), None)
    if entries is not None and not failed:
        out.plan(entries, stamp)
    return clean(content) if failed else None


def outcome_of_error(message: str) -> str:
    """How a run with this error ended: a cap that is named is a limit, anything else a failure."""
    return "limit" if any(words in message for words in LIMITS) else "failed"


def is_refusal(text: str, refusals: list[str]) -> bool:
    """True if a message only repeats what one of the failed calls before it said."""
    text = ev.clean(text)
    return any(text in (refusal, refusal.removeprefix("Error: ")) for refusal in refusals)


def content_of(content: Any) -> list[dict[str, Any]]:
    """Tool content from text and image blocks."""
    blocks = []
    for block in as_list(content):
        if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str):
            blocks.append(ev.wrapped(ev.text_block(block["text"])))
        elif isinstance(block, dict) and block.get("type") == "image":
            image = image_of(block)
            if image is not None:
                blocks.append(ev.wrapped(image))
    return blocks


def image_of(block: dict[str, Any]) -> dict[str, Any] | None:
    source = block.get("source")
    if not isinstance(source, dict) or not isinstance(source.get("data"), str):
        return None
    return ev.image_block(source["data"], as_text(source.get("media_type")) or as_text(source.get("mediaType")) or "")


def user_image(out: Emitter, block: dict[str, Any], stamp: Stamp) -> None:
    image = image_of(block)
    if image is not None:
        out.image(ev.USER, image, stamp)


def usage(out: Emitter, value: Any, stamp: Stamp) -> None:
    """The run's total: input leaves out what was read from and written to the cache. Cumulative over the session, with
    its earlier runs and its sub-agents."""
    if isinstance(value, dict):
        cached, written = value.get("cache_read_input_tokens"), value.get("cache_creation_input_tokens")
        extra = {key: item for key, item in value.items() if key not in _COUNTERS}
        out.usage("run", _tokens(value.get("input_tokens"), value.get("output_tokens"), cached, written, extra), stamp)


_COUNTERS = ("input_tokens", "output_tokens", "cache_read_input_tokens")


def rpc_usage(out: Emitter, value: Any, stamp: Stamp) -> None:
    if isinstance(value, dict) and stamp.parent is None:
        cached, written = value.get("cacheReadTokens"), value.get("cacheCreationTokens")
        extra = {key: item for key, item in value.items() if key not in _RPC_COUNTERS}
        usage = _tokens(value.get("inputTokens"), value.get("outputTokens"), cached, written, extra)
        out.usage("run", usage, stamp, key="run")


_RPC_COUNTERS = ("inputTokens", "outputTokens", "cacheReadTokens")


def _tokens(input: Any, output: Any, cached: Any, written: Any, extra: dict[str, Any]) -> dict[str, Any]:
    return tokens(total(input, cached, written), count(output), count(cached), extra=extra)


_BLANKS = str.maketrans("", "", " \t\r\n\x0b\x0c\xa0\ufeff\u2028\u2029")


def _without_blanks(text: str) -> str:
    return text.translate(_BLANKS)


def clean(value: Any) -> str | None:
    """A text that is kept."""
    return ev.clean(value) if isinstance(value, str) else None
