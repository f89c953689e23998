"""Kimi's wire: ``wire.jsonl`` on disk, of kimi-cli (recorded: protocol 1.1 and 1.10) and of kimi-code
(``kimi_journal``), and the JSON-RPC lines of ``kimi --wire``.

What stream-json lacks stands here: usage for each step, is_error, prompts, thoughts, sub-agents, clock. On disk a text
is one record, live it comes as deltas, and so do a call's arguments: a call whose arguments are no whole object yet
waits for the next record of its thread. A cut attempt that kimi-cli tries again inside a step stays glued to the next
one: only ``StepRetry`` takes back. kimi-cli 0.46 to 0.58 has other names for the same (known from its source).
"""

from __future__ import annotations

from typing import Any

from .. import event as ev
from ..emit import Emitter, count, price, scoped, tokens, total
from ..event import Stamp
from ..record import Record
from ..run import Ending, Exit, Reducer
from . import SURE, UNKNOWN, Outcome, Sign, kimi, kimi_journal

NAME = "kimi-wire"

IGNORED = {
    "MCPLoadingBegin": "loading of MCP servers",
    "MCPLoadingEnd": "loading of MCP servers",
    "HookTriggered": "hook",
    "HookResolved": "hook",
    "HookRequest": "hook",
    "Notification": "notice",
    "PlanDisplay": "plan display",
    "BtwBegin": "side question",
    "BtwEnd": "side question",
    "ToolCallRequest": "call again",
}
#: the types of kimi-cli 0.46 to 0.58
OLD_NAMES = {
    "approval": "ApprovalRequest",
    "compaction_begin": "CompactionBegin",
    "compaction_end": "CompactionEnd",
    "content_part": "ContentPart",
    "status_update": "StatusUpdate",
    "step_begin": "StepBegin",
    "step_interrupted": "StepInterrupted",
    "subagent_event": "SubagentEvent",
    "tool_call": "ToolCall",
    "tool_call_part": "ToolCallPart",
    "tool_result": "ToolResult",
}
#: ends of a prompt, by result.status of its response
STATUSES = {"finished": "completed", "cancelled": "cancelled", "max_steps_reached": "limit"}
#: JSON-RPC errors that end a prompt; the others answer requests that were wrong or came at the wrong time
PROMPT_ERRORS = (-32001, -32002, -32003, -32004, -32099, -32603)
#: what a status has that ends a step; others tell of MCP servers and modes
STEP_FACTS = ("token_usage", "message_id", "context_usage")
#: requests of the client, if a log holds both directions
CLIENT_METHODS = ("initialize", "prompt", "steer", "replay", "set_plan_mode", "cancel", "run", "interrupt")


def sign(record: dict[str, Any]) -> Sign | None:
    message, params = record.get("message"), record.get("params")
    if record.get("type") == "metadata" and isinstance(record.get("protocol_version"), str):
        return Sign(SURE, "metadata with protocol_version", f"wire protocol {record['protocol_version']}")
    if "timestamp" in record and "type" not in record and _envelope(message) is not None:
        return Sign(SURE, "an envelope with timestamp, type and payload")
    if record.get("method") in ("event", "request") and _envelope(params) is not None:
        return Sign(SURE, f"a JSON-RPC {record['method']} with type and payload")
    if "jsonrpc" in record and "method" not in record:
        result = record.get("result")
        if isinstance(result, dict) and "protocol_version" in result and isinstance(result.get("server"), dict):
            version = kimi_journal.text(result["server"].get("version"))
            return Sign(SURE, "the answer to initialize, with protocol_version and server", version)
        if isinstance(result, dict) and result.get("status") in tuple(STATUSES):
            return Sign(60, "the answer to a prompt, with a status")
        if isinstance(record.get("id"), str) and ("result" in record or "error" in record):
            return Sign(10, "a JSON-RPC response with a text id")
    return kimi_journal.sign(record)


def _envelope(value: Any) -> tuple[str, dict[str, Any]] | None:
    """Type and payload of a wire message."""
    kind, payload = (value.get("type"), value.get("payload")) if isinstance(value, dict) else (None, None)
    if not isinstance(kind, str):
        return None
    if kind in OLD_NAMES:
        kind, payload = OLD_NAMES[kind], value if payload is None else payload  # some had none
    return (kind, payload) if isinstance(payload, dict) else None


class Step:
    """What a thread is about: the text that streams, and the call whose arguments may not be whole."""

    def __init__(self) -> None:
        self.kind = ""  # of the text that streams now
        self.call: str | None = None  # id of the call that waits for its arguments
        self.name: str | None = None  # its tool
        self.call_at: str | None = None  # its timestamp
        self.arguments: list[str] = []  # the parts of its arguments


class Mapper:
    def __init__(self, out: Emitter) -> None:
        self.out = out
        self.journal = kimi_journal.Journal(out)
        self.steps: dict[str | None, Step] = {}
        self.asked: dict[str, str] = {}  # id of an approval request: id of its call
        self.rejected: set[str] = set()  # ids of calls that a person rejected
        self.refused = False  # a rejected call of this step has its result
        self.finished = True  # no step is open: the last one told its status
        self.broken = False  # the last step was interrupted by an error
        self.word = ""  # what came last in the turn: "answer", "call" or "result"

    def map(self, record: Record) -> Outcome:
        value = record.value
        if isinstance(value.get("type"), str):
            return self.journal.map(value)
        stored, live = _envelope(value.get("message")), _envelope(value.get("params"))
        if stored is not None:
            return self._event(*stored, Stamp(timestamp=ev.iso_seconds(value.get("timestamp"))))
        if live is not None and value.get("method") in ("event", "request"):
            return self._event(*live, Stamp())
        if value.get("method") in CLIENT_METHODS:
            return "request of the client"
        if "method" not in value and ("result" in value or "error" in value):
            return self._response(value)
        return UNKNOWN

    def close(self) -> None:
        for thread in self.steps:
            self._flush_call(thread)

    def judge(self, run: Reducer, exit: Exit) -> Ending | None:
        if self.journal.seen:
            return self.journal.judge(run, exit)
        if exit.code:
            return kimi.exit_failed(exit)
        if self.finished and self.word == "answer":  # protocol 1.1 has no TurnEnd
            return Ending("completed", None, "the last step is complete and asks for no tool")
        return None

    # ------------------------------------------------------------ events

    def _event(self, kind: str, payload: dict[str, Any], stamp: Stamp) -> Outcome:
        while kind == "SubagentEvent":
            parent, event = payload.get("parent_tool_call_id"), _envelope(payload.get("event"))
            if not isinstance(parent, str):
                parent = payload.get("task_tool_call_id")  # protocol 1.5 and older
            if not isinstance(parent, str) or event is None:
                return "sub-agent without a call"
            self._flush_call(stamp.parent)
            kind, payload = event
            stamp = Stamp(timestamp=stamp.timestamp, parent=self.out.clean(parent))
        step = self.steps.setdefault(stamp.parent, Step())
        if kind == "ToolCallPart":
            part = payload.get("arguments_part")
            if step.call is not None and isinstance(part, str):
                step.arguments.append(self.out.clean(part))
            return "part of a call"
        self._flush_call(stamp.parent)
        if kind == "ContentPart":
            return self._content(step, payload, stamp)
        if kind == "ToolCall":
            return self._call(step, payload, stamp)
        if kind == "ToolResult":
            return self._result(payload, stamp)
        if kind == "StatusUpdate":
            return self._status(payload, stamp)
        if kind in ("TurnBegin", "SteerInput"):
            return self._prompt(kind, payload, stamp)
        if kind == "StepBegin":
            self._end_block(stamp.parent)
            self.out.commit(stamp.parent)
            self.out.next_turn()
            if stamp.parent is None:
                self.finished = self.broken = self.refused = False
            return "start of a step"
        if kind == "StepRetry":
            return self._retry(payload, stamp)
        if kind == "StepInterrupted":
            self.broken = self.broken or stamp.parent is None
            return "interrupted step"
        if kind == "TurnEnd":
            return self._turn_end(stamp)
        if kind in ("CompactionBegin", "CompactionEnd"):
            end = kind == "CompactionEnd"
            self.out.state("compaction", stamp, phase="end" if end else "start", success=True if end else None)
            return None
        if kind in ("ApprovalRequest", "QuestionRequest", "ApprovalResponse", "ApprovalRequestResolved"):
            return self._approval(kind, payload, stamp)
        return IGNORED.get(kind, UNKNOWN)

    def _prompt(self, kind: str, payload: dict[str, Any], stamp: Stamp) -> Outcome:
        self._end_block(stamp.parent)
        if stamp.parent is not None:
            return "prompt of a sub-agent"  # the delegating call holds it
        if kind == "TurnBegin":
            self.finished, self.broken, self.refused = True, False, False
            self.word = ""
            self.rejected.clear()
            self.out.commit(None)
            self.out.state("turn", stamp, phase="start")
        if not kimi.is_injected(payload.get("user_input")):
            kimi.say(self.out, payload.get("user_input"), stamp, ev.USER)
        return None

    def _content(self, step: Step, payload: dict[str, Any], stamp: Stamp) -> Outcome:
        """A part of the answer: one whole part on disk, a delta live. Parts of one kind in a row are one text."""
        kind = payload.get("type")
        text = payload.get("text" if kind == "text" else "think")
        if kind not in ("text", "think"):
            self._end_block(stamp.parent)
            kimi.say(self.out, [payload], stamp)
            return None
        if not isinstance(text, str) or not text:
            return "empty text"
        if step.kind != kind:
            self._end_block(stamp.parent)
            step.kind = kind
        self.out.delta(ev.MESSAGE if kind == "text" else ev.THOUGHT, kind, text, stamp)
        if stamp.parent is None and kind == "text":
            self.word = "answer"
        return None

    def _status(self, payload: dict[str, Any], stamp: Stamp) -> Outcome:
        usage = payload.get("token_usage")
        if stamp.parent is None and any(payload.get(key) is not None for key in STEP_FACTS):
            self.finished = True
        if not isinstance(usage, dict):
            return "status without usage"
        stamp.message_id = kimi_journal.text(payload.get("message_id"))
        self.out.usage(
            "call",
            tokens(
                total(usage.get("input_other"), usage.get("input_cache_read"), usage.get("input_cache_creation")),
                count(usage.get("output")),
                count(usage.get("input_cache_read")),
                extra=kimi.extra_of(usage, ("input_cache_creation",)),
            ),
            stamp,
        )
        return None

    def _retry(self, payload: dict[str, Any], stamp: Stamp) -> Outcome:
        """The step is tried again: what the failed attempt said does not count."""
        self._end_block(stamp.parent)
        self.out.abandon(stamp.parent, stamp)
        attempt, wait = count(payload.get("next_attempt")), price(payload.get("wait_s"))
        self.out.state(
            "retry",
            Stamp(
                timestamp=stamp.timestamp,
                parent=stamp.parent,
                extra=kimi.extra_of(payload, ("error_type", "status_code")),
            ),
            phase="start",
            attempt=None if attempt is None else attempt - 1,  # printed: the number of the attempt to come
            maxAttempts=count(payload.get("max_attempts")),
            delayMs=None if wait is None else wait * 1000,
        )
        return None

    # ------------------------------------------------------------ tools

    def _call(self, step: Step, payload: dict[str, Any], stamp: Stamp) -> Outcome:
        """A call; live, its arguments may follow in parts."""
        self._end_block(stamp.parent)
        function = payload.get("function")
        function = function if isinstance(function, dict) else {}
        if stamp.parent is None:
            self.word = "call"
        if kimi.arguments_of(self.out, function.get("arguments")) is not None:
            kimi.call(self.out, payload.get("id"), function, stamp)
            return None
        call_id, name, text = payload.get("id"), function.get("name"), function.get("arguments")
        if isinstance(call_id, str):
            step.call = self.out.clean(call_id)
            step.name = self.out.clean(name) if isinstance(name, str) else None
            step.call_at = stamp.timestamp
            step.arguments = [self.out.clean(text)] if isinstance(text, str) else []
        return None

    def _flush_call(self, thread: str | None) -> None:
        """No more parts of its arguments come."""
        step = self.steps.get(thread)
        if step is None or step.call is None:
            return
        call_id, step.call = step.call, None
        function = {"name": step.name, "arguments": "".join(step.arguments)}
        step.arguments = []
        kimi.call(self.out, call_id, function, Stamp(timestamp=step.call_at, parent=thread))

    def _result(self, payload: dict[str, Any], stamp: Stamp) -> Outcome:
        call_id, value = payload.get("tool_call_id"), payload.get("return_value")
        failed = isinstance(value, dict) and value.get("is_error") is True
        if value is None:
            value, failed = payload.get("result"), payload.get("ok") is False  # kimi-cli 0.46 to 0.55
        if not isinstance(call_id, str) or not isinstance(value, dict):
            return UNKNOWN
        call_id = self.out.clean(call_id)
        if stamp.parent is None:
            self.word = "result"
            self.refused = self.refused or call_id in self.rejected
        content, message = kimi.content_of(value.get("output")), value.get("message")
        if failed and not content and isinstance(message, str) and message:
            content = ev.text_content(message)
        diffs, locations = _diffs(value.get("display"))
        shown = self.out.update(
            call_id,
            stamp,
            key=scoped(call_id, stamp),
            status="failed" if failed else "completed",
            content=content + diffs,
            locations=locations,
            raw_output=value,
        )
        return None if shown else "second result of a call"

    def _approval(self, kind: str, payload: dict[str, Any], stamp: Stamp) -> Outcome:
        request_id, call_id = payload.get("id"), kimi_journal.text(payload.get("tool_call_id"))
        call_id = None if call_id is None else self.out.clean(call_id)
        if kind in ("ApprovalRequest", "QuestionRequest"):
            if isinstance(request_id, str) and call_id is not None:
                self.asked[self.out.clean(request_id)] = call_id
            message = payload.get("description")
            if kind == "QuestionRequest":
                questions = payload.get("questions")
                first = questions[0] if isinstance(questions, list) and questions else None
                message = first.get("question") if isinstance(first, dict) else None
            self.out.state(
                "approval",
                stamp,
                phase="requested",
                toolCallId=call_id,
                toolName=kimi_journal.text(payload.get("sender")),
                message=kimi_journal.text(message),
            )
            return None
        request_id = payload.get("request_id")
        call_id = self.asked.pop(self.out.clean(request_id), None) if isinstance(request_id, str) else None
        if payload.get("response") == "reject" and call_id is not None:
            self.rejected.add(call_id)
        self.out.state(
            "approval",
            stamp,
            phase="settled",
            toolCallId=call_id,
            decision=kimi_journal.text(payload.get("response")),
            message=kimi_journal.text(payload.get("feedback")) or None,
        )
        return None

    # ------------------------------------------------------------ ends

    def _turn_end(self, stamp: Stamp) -> Outcome:
        """Every turn ends so, the good ones and those that an error, a cancel or a cap cut off."""
        self._end_block(stamp.parent)
        if stamp.parent is not None:
            return "end of a sub-agent's turn"
        outcome, reason = None, None
        if self.broken:
            outcome, reason = "failed", "StepInterrupted"
        elif self.refused and self.word != "answer":
            outcome, reason = "denied", "reject"
        elif self.finished and self.word in ("answer", ""):
            outcome = "completed"
        self.out.state("turn", stamp, phase="end", outcome=outcome, reason=reason)
        return None

    def _response(self, value: dict[str, Any]) -> Outcome:
        """The answer to a request of the client: that to ``prompt`` is the turn's terminal record."""
        result, error = value.get("result"), value.get("error")
        if isinstance(error, dict):
            message = kimi_journal.text(error.get("message"))
            code = count(error.get("code"))
            if code not in PROMPT_ERRORS or message is None:
                return "error answer to another request"
            self.out.error(message, Stamp(), fatal=True)
            self.out.state("end", Stamp(), outcome="failed", reason=f"code {code}")
            return None
        if not isinstance(result, dict):
            return "answer to a request"
        server = result.get("server")
        if isinstance(server, dict):
            self.out.session_state(Stamp(), version=kimi_journal.text(server.get("version")))
            return None
        status = result.get("status")
        if not isinstance(status, str) or status not in STATUSES or "events" in result:  # events: of a replay
            return "answer to a request"
        denied = status == "finished" and self.refused and self.word != "answer"
        outcome = "denied" if denied else STATUSES[status]
        self.out.state("end", Stamp(), outcome=outcome, reason=status)
        return None

    def _end_block(self, thread: str | None) -> None:
        self.out.close(thread)
        if thread in self.steps:
            self.steps[thread].kind = ""


def _diffs(display: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Diffs and their places from a result's display blocks; a summary has counts instead of texts."""
    diffs, places = [], []
    for block in display if isinstance(display, list) else []:
        if not isinstance(block, dict) or block.get("type") != "diff" or block.get("is_summary") is True:
            continue
        path, new, old, line = (block.get(key) for key in ("path", "new_text", "old_text", "new_start"))
        if isinstance(path, str) and isinstance(new, str):
            diffs.append(ev.diff(path, old if isinstance(old, str) else None, new))
            line = count(line)
            places.append({"path": path} if line is None else {"path": path, "line": line})
    return diffs, places
