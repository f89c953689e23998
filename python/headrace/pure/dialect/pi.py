"""pi: ``pi --mode json`` and ``--mode rpc`` (seed 002; recorded from 0.27.9 to 1.6.0), and what its fork oh-my-pi
prints (known from its source, of January to September 2026).

Deltas first, then `*_end` with the block, then `message_end` with the message: the later is the authority. The same
message comes again in `turn_end` and `agent_end`, a tool result up to five times: each is taken once. Before 0.84 each
`message_update` carried the whole message so far, which is ignored. The exit code is 0 for failures too: the last
assistant message's stop reason says how a prompt ended, and `agent_settled` (`agent_end` before 0.80.4) that it did.
"""

from __future__ import annotations

from typing import Any

from .. import event as ev
from ..emit import Emitter, count, price, tokens, total
from ..event import Stamp
from ..record import Record
from ..run import Ending, Exit, Reducer
from ..wire import as_list, as_text
from . import SURE, UNKNOWN, Outcome, Sign

NAME = "pi"

IGNORED = {
    "turn_start": "turn of one model call",
    "turn_end": "messages again",
    "bash_execution_update": "output of a direct command",
    # of oh-my-pi
    "advisor_cost_changed": "advisor",
    "advisor_yielded": "advisor",
    "available_commands_update": "commands of the session",
    "command_output": "output of a direct command",
    "config_update": "settings",
    "config_warnings_changed": "settings",
    "goal_updated": "goal",
    "host_tool_call": "question to the host",
    "host_tool_cancel": "question to the host",
    "host_uri_cancel": "question to the host",
    "host_uri_request": "question to the host",
    "irc_message": "message of another agent",
    "model_changed": "model, which it does not tell",
    "notice": "notice",
    "prompt_result": "end of a prompt again",
    "ready": "start of the process",
    "retry_fallback_applied": "model of a retry",
    "retry_fallback_succeeded": "model of a retry",
    "session_info_update": "session",
    "session_settled": "end of a prompt again",
    "subagent_event": "sub-agent",
    "subagent_lifecycle": "sub-agent",
    "subagent_progress": "sub-agent",
    "todo_auto_clear": "todos",
    "todo_reminder": "todos",
    "tool_presentation": "display of a call",
    "tool_stream_update": "part of a call",
    "ttsr_triggered": "rules",
}
#: stop reasons of the last assistant message: how the prompt ended
OUTCOMES = {"stop": "completed", "toolUse": "completed", "length": "limit", "error": "failed", "aborted": "cancelled"}
#: extension dialogs that wait for a person
DIALOGS = frozenset({"select", "confirm", "input", "editor"})

_TOOL_KEYS = frozenset({"toolCallId", "toolName"})


def sign(record: dict[str, Any]) -> Sign | None:
    kind = record.get("type")
    if kind == "session" and "id" in record and "cwd" in record and "timestamp" in record:
        return Sign(50, "a session header", _format(record))
    if kind in ("agent_start", "turn_start") and len(record) == 1:
        return Sign(SURE, f"{kind} with no other key")
    if kind == "message_update" and isinstance(record.get("assistantMessageEvent"), dict):
        return Sign(SURE, "message_update with assistantMessageEvent")
    if isinstance(kind, str) and kind.startswith("tool_execution_") and record.keys() >= _TOOL_KEYS:
        return Sign(SURE, f"{kind} with toolCallId and toolName")
    if kind in ("message_start", "message_end") and isinstance(record.get("message"), dict):
        return Sign(60, f"{kind} with a message object")
    if kind == "response" and isinstance(record.get("command"), str) and isinstance(record.get("success"), bool):
        return Sign(SURE, "a response with command and success")
    if kind in ("extension_ui_request", "hook_ui_request") and isinstance(record.get("method"), str):
        return Sign(SURE, f"an {kind}")
    if kind == "entry_appended" and isinstance(record.get("entry"), dict):
        return Sign(SURE, "entry_appended with an entry")
    if kind == "turn_end" and isinstance(record.get("message"), dict) and "toolResults" in record:
        return Sign(SURE, "turn_end with toolResults")
    if kind == "agent_end" and isinstance(record.get("messages"), list):
        return Sign(SURE, "agent_end with messages")
    for name, key in _MARKS:
        if kind == name and key in record:
            return Sign(60, f"{name} with {key}")
    return None


_MARKS = (
    ("agent_settled", "type"),
    ("queue_update", "steering"),
    ("session_info_changed", "type"),
    ("thinking_level_changed", "level"),
    ("thinking_level_changed", "thinkingLevel"),
    ("compaction_start", "reason"),
    ("compaction_end", "reason"),
    ("auto_compaction_start", "reason"),
    ("auto_compaction_end", "aborted"),
    ("auto_retry_start", "attempt"),
    ("auto_retry_end", "attempt"),
    ("summarization_retry_scheduled", "attempt"),
    ("summarization_retry_attempt_start", "source"),
    ("summarization_retry_finished", "type"),
    ("bash_execution_update", "delta"),
    ("extension_error", "error"),
    ("hook_error", "error"),
    ("ready", "supportedProtocolVersions"),
)


def _format(header: dict[str, Any]) -> str:
    """Version of the session format; a header without one is of the first."""
    version = count(header.get("version"))
    return f"session format {1 if version is None else version}"


class Mapper:
    def __init__(self, out: Emitter) -> None:
        self.out = out
        self.message = 0  # number of the assistant message that streams or came last
        self.streaming = False  # it was started and has not ended
        self.model: str | None = None
        self.stop: str | None = None  # stop reason of the last assistant message
        self.failure: Failure | None = None  # a failed message that may still be retried
        self.retried: Failure | None = None  # the one that is being retried
        self.called_off: Failure | None = None  # one whose retry was cancelled: an error if nothing follows
        #: the last record said that a prompt failed, and not whether it was aborted (before 1.1)
        self.maybe_aborted = False
        self.running = False
        self.open = False  # a turn is open: work goes on, or a retry waits
        self.settles = False  # of a version that prints agent_settled: an agent_end is not the last word
        self.prompted = False  # an agent ran at all, or is to run
        self.answered = False  # an rpc command was answered
        self.reported: dict[tuple[str, int], int] = {}  # messages of a sub-agent that were told

    def map(self, record: Record) -> Outcome:
        value = record.value
        kind = value.get("type")
        if kind == "message_update":
            return self._update(value)
        maybe_aborted, self.maybe_aborted = self.maybe_aborted, False
        if kind in ("message_start", "message_end") and isinstance(value.get("message"), dict):
            return self._message(kind, value["message"])
        if isinstance(kind, str) and kind.startswith("tool_execution_"):
            return self._execution(kind, value)
        if kind == "session":
            stamp = Stamp(timestamp=as_text(value.get("timestamp")))
            self._another_run(stamp)
            self.out.session_state(
                stamp,
                sessionId=as_text(value.get("id")),
                cwd=as_text(value.get("cwd")),
                title=as_text(value.get("title")) or None,
            )
            return None
        if kind == "agent_start":
            self._settle_failure()
            self.called_off = None
            self.running = True
            self._open()
            return None
        if kind == "agent_end":
            return self._agent_end(value)
        if kind == "agent_settled":
            self._settle_failure()
            cancelled = value.get("aborted") is True
            self.called_off, self.retried = None if cancelled else self.retried or self.called_off, None
            outcome = "cancelled" if cancelled else OUTCOMES.get(self.stop or "", "completed")
            self.out.state("end", Stamp(), outcome=outcome, reason="aborted" if cancelled else self.stop)
            self.running = self.open = False
            self.settles = True
            self.maybe_aborted = "aborted" not in value and self.stop == "error"
            return None
        if kind == "response" and maybe_aborted and value.get("command") == "abort" and value.get("success") is True:
            # it is answered as soon as what it stopped has ended
            self.answered = True
            self.called_off = None
            self.out.state("end", Stamp(), outcome="cancelled", reason="aborted")
            return None
        if isinstance(kind, str) and "compaction" in kind:
            return self._compaction(kind, value)
        if isinstance(kind, str) and "retry" in kind:
            return self._retry(kind, value)
        return self._rest(kind, value)

    def close(self) -> None:
        self._settle_failure()
        if self.called_off is not None and self.called_off.message is not None:
            self.out.error(self.called_off.message, self.called_off.stamp, fatal=True)

    def judge(self, run: Reducer, exit: Exit) -> Ending | None:
        if self.prompted:
            if self.open or self.stop is None or exit.code != 0:
                return None
            why = "the last agent ended, and so did the process: no work was left"
            return Ending(OUTCOMES.get(self.stop, "completed"), self.stop, why)
        if exit.code:
            return Ending("failed", f"exit code {exit.code}", "no agent ran, and the exit code tells of a failure")
        if self.answered:
            return Ending("completed", None, "rpc commands were answered, and no prompt was among them")
        return None

    # ------------------------------------------------------------ text

    def _update(self, value: dict[str, Any]) -> Outcome:
        event = value.get("assistantMessageEvent")
        if not isinstance(event, dict):
            return UNKNOWN
        self._begin()
        kind, index = event.get("type"), count(event.get("contentIndex")) or 0
        if kind in ("text_delta", "thinking_delta"):
            text = event.get("delta")
            if not isinstance(text, str) or not text:
                return "empty text"
            self.out.delta(_chunk_of(kind), index, text, self._stamp())
            return None
        if kind in ("text_end", "thinking_end"):
            if isinstance(event.get("content"), str):
                self.out.final(_chunk_of(kind), index, event["content"], self._stamp())
            return None
        if kind == "toolcall_end" and isinstance(event.get("toolCall"), dict):
            call(self.out, event["toolCall"], self._stamp())
            return None
        return "part of a block"

    def _message(self, kind: str, message: dict[str, Any]) -> Outcome:
        role = message.get("role")
        if role == "assistant":
            if kind == "message_start":
                # a live snapshot that may hold the first delta already: nothing of it is text
                self.streaming = False
                self._begin()
                self.model = keep(self.out, message.get("model"))
                # the word of versions since 0.83, and they print agent_settled
                self.settles = self.settles or message.get("stopReason") == "pending"
                return "start of a message"
            return self._assistant_end(message)
        if kind == "message_start":
            return "start of a message"
        stamp = Stamp(timestamp=ev.iso_millis(message.get("timestamp")))
        if role == "user":
            self._settle_failure()
            user_message(self.out, message, stamp)
            return None
        if role == "toolResult":
            tool_result(self.out, self.reported, message, stamp)
            return None
        return f"{role} message" if role in ("system", "custom", "hookMessage") else "message of another role"

    def _begin(self) -> None:
        """An assistant message starts, whether or not a record says so."""
        if self.streaming:
            return
        self.streaming = True
        self.maybe_aborted = False
        self.retried = None
        self._settle_failure()
        self.out.commit(None)
        self.out.next_turn()
        self.message += 1

    def _assistant_end(self, message: dict[str, Any]) -> Outcome:
        self._begin()
        self.streaming = False
        stamp = self._stamp(message)
        self.stop = keep(self.out, message.get("stopReason"))
        failed = self.stop in ("error", "aborted")
        calls = []
        texts: dict[str, dict[int, str]] = {ev.MESSAGE: {}, ev.THOUGHT: {}}
        for index, block in enumerate(as_list(message.get("content"))):
            if not isinstance(block, dict):
                continue
            kind = block.get("type")
            if kind == "text" and isinstance(block.get("text"), str):
                texts[ev.MESSAGE][index] = block["text"]
            elif kind == "thinking" and isinstance(block.get("thinking"), str):
                texts[ev.THOUGHT][index] = block["thinking"]
            elif kind == "toolCall":
                calls.append(block)
        for chunk, blocks in texts.items():
            self._finals(chunk, blocks, stamp)
        usage(self.out, message.get("usage"), stamp, key=f"message:{self.message}")
        if failed:
            # its calls may be cut and its error may be retried: both wait until that is known
            cut = [
                {**block, "id": keep(self.out, block["id"]), "name": keep(self.out, block.get("name"))}
                for block in calls
                if isinstance(block.get("id"), str)
            ]
            self.failure = Failure(keep(self.out, message.get("errorMessage")), cut, stamp)
        else:
            for block in calls:
                call(self.out, block, stamp)
        return None

    def _finals(self, chunk: str, blocks: dict[int, str], stamp: Stamp) -> None:
        """The blocks of one kind by the authority. Streamed ones that it lacks go, and those that come after one that
        was not streamed are said again behind it."""
        streamed = self.out.open_keys(chunk, None)
        missing = next((index for index, text in blocks.items() if text and index not in streamed), None)
        for key in reversed(streamed):
            if key not in blocks or (missing is not None and isinstance(key, int) and key > missing):
                self.out.drop(chunk, key, stamp)
        for index, text in blocks.items():
            self.out.final(chunk, index, text, stamp)

    def _stamp(self, message: dict[str, Any] | None = None) -> Stamp:
        if message is None:
            return Stamp(model=self.model)
        self.model = keep(self.out, message.get("model")) or self.model
        return Stamp(
            message_id=as_text(message.get("responseId")),
            timestamp=ev.iso_millis(message.get("timestamp")),
            model=self.model,
            extra=_extra(message, ("stopReason", "rawStopReason")),
        )

    # ------------------------------------------------------------ tools

    def _execution(self, kind: str, value: dict[str, Any]) -> Outcome:
        call_id, name = as_text(value.get("toolCallId")), as_text(value.get("toolName"))
        if call_id is None:
            return UNKNOWN
        stamp = Stamp(parent=as_text(value.get("parentToolCallId")))
        if kind == "tool_execution_start":
            if self.out.call(call_id, name, value.get("args"), stamp, status="in_progress"):
                return None
            self.out.update(call_id, stamp, status="in_progress")
            return None
        if kind == "tool_execution_update":
            partial = value.get("partialResult")
            content = content_of(partial.get("content")) if isinstance(partial, dict) else []
            if isinstance(partial, dict):
                subagents(self.out, self.reported, call_id, partial.get("details"))
            return None if self.out.update(call_id, stamp, status="in_progress", content=content) else "late progress"
        if kind != "tool_execution_end":
            return UNKNOWN
        told = value.get("result")  # up to 0.22 a text if the call failed
        result = told if isinstance(told, dict) else {}
        subagents(self.out, self.reported, call_id, result.get("details"))
        structured = result.get("structuredContent")
        exit_code = count(structured.get("exit_code")) if isinstance(structured, dict) else None
        raw = {key: item for key, item in result.items() if key != "content" and item not in (None, {}, [])}
        self.out.update(
            call_id,
            stamp,
            status="failed" if True in (value.get("isError"), result.get("isError")) or exit_code else "completed",
            content=content_of(told if isinstance(told, str) else result.get("content")),
            exit_code=exit_code,
            duration_ms=price(value.get("durationMs")),
            raw_output=raw or ...,
        )
        return None

    # ------------------------------------------------------------ ends, retries, compaction

    def _another_run(self, stamp: Stamp) -> None:
        """Another process, of whatever version: the first record of each but in rpc mode."""
        self.close()
        self.out.commit(None)
        self.out.next_turn()
        self.out.another_run(stamp)
        self.stop = self.retried = self.called_off = None
        self.streaming = self.running = self.open = self.settles = self.prompted = self.answered = False

    def _agent_end(self, value: dict[str, Any]) -> Outcome:
        self.running = False
        if value.get("willRetry") is True:
            return "attempt that is retried"
        if value.get("yielded") is False:  # oh-my-pi: it retries, compacts or reminds
            return "end of an agent that goes on"
        self._end_turn()
        return None

    def _open(self) -> None:
        self.prompted = True
        if not self.open:
            self.open = True
            self.out.state("turn", Stamp(), phase="start")

    def _end_turn(self) -> None:
        self.open = False
        outcome = None if self.settles else OUTCOMES.get(self.stop or "", "completed")
        self.out.state("turn", Stamp(), phase="end", outcome=outcome, reason=self.stop)

    def _retry(self, kind: str, value: dict[str, Any]) -> Outcome:
        if kind in ("auto_retry_start", "summarization_retry_scheduled"):
            if kind == "auto_retry_start":
                self._take_back()
                self._open()
            self.out.state(
                "retry",
                Stamp(),
                phase="start",
                attempt=count(value.get("attempt")),
                maxAttempts=count(value.get("maxAttempts")),
                delayMs=price(value.get("delayMs")),
                message=as_text(value.get("errorMessage")),
            )
            return None
        if kind == "auto_retry_end":
            success = value.get("success")
            self.out.state(
                "retry",
                Stamp(),
                phase="end",
                attempt=count(value.get("attempt")),
                success=success if isinstance(success, bool) else None,
                message=as_text(value.get("finalError")),
            )
            if success is False and self.stop == "stop" and isinstance(value.get("finalError"), str):
                # oh-my-pi: the answers were empty, however often it asked
                self.stop = "error"
                self.failure = Failure(keep(self.out, value["finalError"]), [], Stamp(model=self.model))
                if not self.running:
                    self._end_turn()
                return None
            if success is False and not self.running:
                self.called_off, self.retried = self.retried or self.called_off, None
                if self.open and not self.settles:
                    self._end_turn()  # a retry that was called off was the last of it
            return None
        return "summary retry" if kind.startswith("summarization_retry_") else IGNORED.get(kind, UNKNOWN)

    def _compaction(self, kind: str, value: dict[str, Any]) -> Outcome:
        trigger = as_text(value.get("reason"))
        if kind.endswith("compaction_start"):
            self.out.state("compaction", Stamp(), phase="start", trigger=trigger)
            return None
        if not kind.endswith("compaction_end"):
            return UNKNOWN
        result = value.get("result")
        done = isinstance(result, dict)
        if isinstance(result, dict):
            usage(self.out, result.get("usage"), Stamp(), side=True)
        if value.get("willRetry") is True:
            self._take_back()  # the overflow that the compaction cures
            self._open()
        self.out.state(
            "compaction",
            Stamp(),
            phase="end",
            trigger=trigger,
            success=done,
            summary=as_text(result.get("summary")) if isinstance(result, dict) else None,
            message=as_text(value.get("errorMessage")),
        )
        if isinstance(value.get("errorMessage"), str):
            self._settle_failure()  # the overflow that it could not cure
            self.out.error(value["errorMessage"], Stamp(), fatal=False)
        return None

    def _take_back(self) -> None:
        """The failed attempt is tried again: what it said does not count, and its error was none."""
        self.failure, self.retried = None, self.failure
        self.out.abandon(None, Stamp())

    def _settle_failure(self) -> None:
        """No retry came: the failed message stands, with its calls and its error."""
        failure, self.failure = self.failure, None
        if failure is None:
            return
        for block in failure.calls:
            call(self.out, {**block, "arguments": self.out.clean_value(block.get("arguments"))}, failure.stamp)
        if failure.message is not None:
            self.out.error(failure.message, failure.stamp, fatal=True)

    # ------------------------------------------------------------ rpc and the rest

    def _rest(self, kind: Any, value: dict[str, Any]) -> Outcome:
        if kind == "queue_update":
            prompts = [p for p in as_list(value.get("steering")) + as_list(value.get("followUp")) if isinstance(p, str)]
            self.out.state("queue", Stamp(), prompts=prompts)
            return None
        if kind == "thinking_level_changed":
            level = as_text(value.get("level")) or as_text(value.get("thinkingLevel"))
            self.out.state("model", Stamp(), effort=level)
            return None
        if kind == "session_info_changed":
            self.out.session_state(Stamp(), title=as_text(value.get("name")))
            return None
        if kind in ("extension_ui_request", "hook_ui_request"):
            if as_text(value.get("method")) not in DIALOGS:
                return "extension display"
            self.out.state("approval", Stamp(), phase="requested", message=as_text(value.get("title")))
            return None
        if kind in ("extension_error", "hook_error"):
            self.out.error(as_text(value.get("error")) or "extension error", Stamp(), fatal=False)
            return None
        if kind == "entry_appended" and isinstance(value.get("entry"), dict):
            entry = value["entry"]
            if entry.get("type") == "usage":
                usage(self.out, entry.get("usage"), Stamp(model=as_text(entry.get("model"))), side=True)
                return None
            return "session entry"
        if kind == "response":
            return self._response(value)
        return IGNORED.get(kind, UNKNOWN) if isinstance(kind, str) else UNKNOWN

    def _response(self, value: dict[str, Any]) -> Outcome:
        """An answer to an rpc command; only a refused prompt is a failure of the run."""
        self.answered = True
        data = value.get("data")
        if value.get("command") == "get_state" and isinstance(data, dict):
            model = data.get("model")
            self.out.session_state(
                Stamp(),
                sessionId=as_text(data.get("sessionId")),
                model=as_text(model.get("id")) if isinstance(model, dict) else None,
            )
            return None
        if value.get("command") == "prompt" and isinstance(data, dict) and data.get("disposition") == "started":
            self._open()
            return None
        if value.get("command") == "prompt" and value.get("success") is False and not self.running:
            message = as_text(value.get("error")) or "prompt refused"
            self.out.error(message, Stamp(), fatal=True)
            self.out.state("end", Stamp(), outcome="failed", reason="prompt refused")
            return None
        return "response"


class Failure:
    """A message that ended in an error or an abort."""

    __slots__ = ("calls", "message", "stamp")

    def __init__(self, message: str | None, calls: list[dict[str, Any]], stamp: Stamp) -> None:
        self.message = message
        self.calls = calls
        self.stamp = stamp


# ---------------------------------------------------------------- shapes that the session file shares


def keep(out: Emitter, value: Any) -> str | None:
    """A text that is kept for later records: what it lost is told of this one."""
    return out.clean(value) if isinstance(value, str) else None


def user_message(out: Emitter, message: dict[str, Any], stamp: Stamp) -> None:
    """What a person typed: a string (old versions) or blocks."""
    content = message.get("content")
    if isinstance(content, str):
        out.whole(ev.USER, content, stamp)
        return
    for block in content_of(content):
        inner = block["content"]
        if inner["type"] == "text":
            out.whole(ev.USER, inner["text"], stamp)
        else:
            out.image(ev.USER, inner, stamp)


def tool_result(out: Emitter, reported: dict[tuple[str, int], int], message: dict[str, Any], stamp: Stamp) -> None:
    """A toolResult message: the result again after its tool_execution_end, or the only one in a session file."""
    call_id = as_text(message.get("toolCallId"))
    if call_id is None:
        return
    details = message.get("details")
    subagents(out, reported, call_id, details)
    out.update(
        call_id,
        stamp,
        status="failed" if message.get("isError") is True else "completed",
        content=content_of(message.get("content", message.get("output"))),  # `output` up to 0.5
        duration_ms=price(message.get("durationMs")),
        raw_output={"details": details} if isinstance(details, dict) and details else ...,
    )
    if stamp.parent is None:
        usage(out, message.get("usage"), Stamp(timestamp=stamp.timestamp), side=True)  # of a model that the tool asked
    nested(out, message.get("nestedCalls"), Stamp(timestamp=stamp.timestamp, parent=call_id))


def nested(out: Emitter, told: Any, stamp: Stamp) -> None:
    """The calls that a tool made by itself (codemode), as far as they had no records of their own."""
    for block in as_list(told.get("calls") if isinstance(told, dict) else None):
        call_id = as_text(block.get("id")) if isinstance(block, dict) else None
        if call_id is None or out.knows(call_id):
            continue
        call(out, block, stamp)
        status = {"ok": "completed", "error": "failed"}.get(as_text(block.get("status")) or "")
        if status is not None:
            error = as_text(block.get("error"))
            content = ev.text_content(error) if error else None
            out.update(call_id, stamp, status=status, content=content, duration_ms=price(block.get("durationMs")))


def subagents(out: Emitter, reported: dict[tuple[str, int], int], call_id: str, details: Any) -> None:
    """What the sub-agents of a call said and did, from the details that the `subagent` extension prints.

    Each list of messages is cumulative: `reported` holds how many of it were told. Their usage is not told: they are
    processes of their own, which pi's own totals leave out too.
    """
    results = details.get("results") if isinstance(details, dict) else None
    for index, result in enumerate(as_list(results)):
        messages = as_list(result.get("messages")) if isinstance(result, dict) else []
        told = reported.get((call_id, index), 0)
        reported[call_id, index] = max(told, len(messages))
        for message in messages[told:]:
            if not isinstance(message, dict):
                continue
            stamp = Stamp(
                parent=call_id,
                message_id=as_text(message.get("responseId")),
                timestamp=ev.iso_millis(message.get("timestamp")),
                model=as_text(message.get("model")),
            )
            if message.get("role") == "assistant":
                out.next_turn()
                content(out, message.get("content"), stamp)
            elif message.get("role") == "toolResult":
                tool_result(out, reported, message, stamp)


def content(out: Emitter, blocks: Any, stamp: Stamp) -> None:
    """The blocks of a whole assistant message."""
    for block in as_list(blocks):
        if not isinstance(block, dict):
            continue
        if block.get("type") == "text":
            out.whole(ev.MESSAGE, as_text(block.get("text")) or "", stamp)
        elif block.get("type") == "thinking":
            out.whole(ev.THOUGHT, as_text(block.get("thinking")) or "", stamp)
        elif block.get("type") == "toolCall":
            call(out, block, stamp)


def call(out: Emitter, block: dict[str, Any], stamp: Stamp) -> None:
    call_id = as_text(block.get("id"))
    if call_id is not None:
        out.call(call_id, as_text(block.get("name")), block.get("arguments"), stamp)


def content_of(content: Any) -> list[dict[str, Any]]:
    """Tool content from pi's text and image blocks, or from a text."""
    if isinstance(content, str):
        return ev.text_content(content) if content else []
    blocks = []
    for block in as_list(content):
        if not isinstance(block, dict):
            continue
        if block.get("type") == "text" and isinstance(block.get("text"), str):
            blocks.append(ev.wrapped(ev.text_block(block["text"])))
        elif block.get("type") == "image" and isinstance(block.get("data"), str):
            blocks.append(ev.wrapped(ev.image_block(block["data"], as_text(block.get("mimeType")) or "")))
    return blocks


def usage(out: Emitter, value: Any, stamp: Stamp, *, key: str | None = None, side: bool = False) -> None:
    """pi's counters: input excludes what was read from or written to the cache."""
    if not isinstance(value, dict):
        return
    cost = value.get("cost")
    out.usage(
        "call",
        tokens(
            total(value.get("input"), value.get("cacheRead"), value.get("cacheWrite")),
            count(value.get("output")),
            count(value.get("cacheRead")),
            price(cost.get("total")) if isinstance(cost, dict) else None,
            {key: item for key, item in value.items() if key in ("cacheWrite", "cacheWrite1h", "reasoning")},
        ),
        stamp,
        key=key,
        side=side,
    )


def _chunk_of(kind: str) -> str:
    return ev.MESSAGE if kind.startswith("text") else ev.THOUGHT


def _extra(value: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any] | None:
    return {key: value[key] for key in keys if isinstance(value.get(key), str)} or None
