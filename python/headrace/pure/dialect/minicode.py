"""minicode: ``minicode exec --json`` (`minicode.output.v1`, seed 004) and the notifications of ``minicode acp``.

Three kinds of line: envelopes with dotted types and a payload, bare text deltas, and one summary at the end. The same
text comes up to three times (`model.delta`, `text`, `model.completed`): the delta channel that is seen first is used,
the other repeats it. Tool arguments and whole outputs are never printed: a call has a target and the first line of its
result.
"""

from __future__ import annotations

from typing import Any

from .. import event as ev
from .. import tool
from ..emit import Emitter, count, price, tokens
from ..event import Stamp
from ..record import Record
from ..run import Ending, Exit, Reducer
from ..wire import as_text
from . import SURE, UNKNOWN, Outcome, Sign

NAME = "minicode"
SCHEMA = "minicode.output.v"

#: tool terminals and the status they stand for; a refusal and a cancel are failures of the call
TERMINALS = {
    "tool.completed": "completed",
    "tool.failed": "failed",
    "tool.denied": "failed",
    "tool.cancelled": "failed",
}
#: reasons of turn.cancelled
CANCELS = {"user": "cancelled", "timeout": "timeout", "budget": "limit"}
IGNORED = {
    "reasoning.completed": "end of reasoning",
    "file.changed": "file change",
    "test.completed": "test result",
    "checkpoint.created": "checkpoint",
    "finding.detected": "finding",
    "result.produced": "result summary",
    "verification.observed": "verification",
    "diagnostic.raised": "diagnostic",
}
FLAT = frozenset({"turn.", "tool.", "approval.", "user."})


def sign(record: dict[str, Any]) -> Sign | None:
    schema, kind = record.get("schema"), record.get("type")
    if isinstance(schema, str) and schema.startswith(SCHEMA) and isinstance(kind, str):
        return Sign(SURE, f"schema {schema}", schema)
    if kind == "text" and isinstance(record.get("delta"), str) and record.keys() <= {"type", "delta", "truncated"}:
        return Sign(40, "a bare text delta")
    if kind == "tool" and record.keys() == {"type", "name"}:
        return Sign(40, "a legacy tool record")
    if isinstance(kind, str) and "eventSeq" in record and any(kind.startswith(head) for head in FLAT):
        return Sign(SURE, f"a flat {kind} with eventSeq")
    if "jsonrpc" not in record and "id" in record:
        result, error = record.get("result"), record.get("error")
        if isinstance(result, dict) and result.get("server") == "minicode-acp":
            return Sign(SURE, "a minicode-acp response")
        if isinstance(error, dict) and isinstance(error.get("category"), str) and isinstance(error.get("message"), str):
            return Sign(SURE, "an error response with a category")
        if isinstance(result, dict) and isinstance(result.get("ok"), bool) and "turns" in result:
            return Sign(60, "a run response with ok")
    return None


class Mapper:
    def __init__(self, out: Emitter) -> None:
        self.out = out
        self.channel: str | None = None  # "text" or "model.delta": the delta channel that is used
        self.names: dict[str, str] = {}  # call id: name, from approvals and starts
        self.ended: str | None = None  # how the last turn ended
        self.turn_reason: str | None = None
        self.legacy_calls = 0

    def map(self, record: Record) -> Outcome:
        value = record.value
        kind = value.get("type")
        if kind == "text":
            return self._delta("text", value.get("delta"), Stamp())
        if kind == "tool" and isinstance(value.get("name"), str):
            return self._legacy(value["name"])
        if not isinstance(kind, str):
            return self._response(value) if "id" in value else UNKNOWN
        payload = value.get("payload")
        payload = payload if isinstance(payload, dict) else value  # acp prints the payload's keys flat
        stamp = Stamp(
            session_id=as_text(value.get("sessionId")),
            timestamp=as_text(value.get("timestamp")),
            parent=as_text(payload.get("parentToolCallId")),
        )
        if kind == "summary":
            return self._summary(value)
        if stamp.session_id is not None:
            self.out.session_state(Stamp(timestamp=stamp.timestamp), sessionId=stamp.session_id)
        head, _, tail = kind.partition(".")
        if head == "turn":
            return self._turn(tail, payload, stamp)
        if head == "tool":
            return self._tool(kind, payload, stamp)
        if head == "approval":
            return self._approval(tail, payload, stamp)
        if kind == "model.delta":
            return self._delta(kind, payload.get("delta"), stamp)
        if kind == "model.completed":
            return self._completed(payload, stamp)
        if kind == "reasoning.delta":
            delta = as_text(payload.get("delta"))
            if not delta:
                return "empty text"
            self.out.delta(ev.THOUGHT, "reasoning", delta, stamp)
            return None
        if kind == "user.message":
            text = as_text(payload.get("text"))
            if not text:
                return "empty text"
            self.out.whole(ev.USER, text, stamp)
            return None
        if kind == "plan.updated":
            return self._plan(payload, stamp)
        if kind == "context.compacted":
            trigger = as_text(payload.get("compactionReason")) or as_text(payload.get("reason"))
            self.out.state("compaction", stamp, phase="end", success=True, trigger=trigger)
            return None
        return IGNORED.get(kind, UNKNOWN)

    def close(self) -> None:
        pass

    def judge(self, run: Reducer, exit: Exit) -> Ending | None:
        return None

    # ------------------------------------------------------------ text

    def _delta(self, channel: str, text: Any, stamp: Stamp) -> Outcome:
        """One of two channels prints the text: `model.delta` comes first if both do, and then `text` is the twin."""
        if not isinstance(text, str) or not text:
            return "empty text"
        if self.channel is None:
            self.channel = channel
        if channel != self.channel:
            return "the other delta channel"
        self.out.delta(ev.MESSAGE, "answer", text, stamp)
        return None

    def _completed(self, payload: dict[str, Any], stamp: Stamp) -> Outcome:
        """The final text of the turn's last message: only what no delta said is news."""
        text = as_text(payload.get("text"))
        if not text or payload.get("truncated") is True:
            return "final text of the turn"
        if self.out.streamed(ev.MESSAGE, "answer", stamp.parent) is not None:
            return "final text of the turn"
        self.out.final(ev.MESSAGE, "answer", text, stamp)
        return None

    # ------------------------------------------------------------ turns and the end

    def _turn(self, what: str, payload: dict[str, Any], stamp: Stamp) -> Outcome:
        if what == "started":
            self.out.commit(None)
            self.out.next_turn()
            self.ended = self.turn_reason = None
            self.out.state("turn", stamp, phase="start")
            return None
        if what not in ("completed", "failed", "cancelled"):
            return UNKNOWN
        if self.ended is not None:
            return "second end of a turn"  # the first stands
        if what == "cancelled":
            self.turn_reason = as_text(payload.get("reason"))
            outcome = CANCELS.get(self.turn_reason or "", "failed")
        else:
            self.turn_reason = as_text(payload.get("error")) or as_text(payload.get("cause"))
            outcome = what
        self.ended = outcome
        self.out.close(None)
        # a good turn is not the last word: a budget check or a further turn may follow, and only the summary says
        told = None if outcome == "completed" else outcome
        self.out.state("turn", stamp, phase="end", outcome=told, reason=self.turn_reason)
        return None

    def _summary(self, value: dict[str, Any]) -> Outcome:
        self.out.session_state(Stamp(), sessionId=as_text(value.get("sessionId")), model=as_text(value.get("model")))
        usage = value.get("usage")
        if isinstance(usage, dict):
            known = ("inputTokens", "outputTokens", "cost")
            self.out.usage(
                "run",
                tokens(
                    count(usage.get("inputTokens")),
                    count(usage.get("outputTokens")),
                    cost=price(usage.get("cost")),
                    extra={key: item for key, item in usage.items() if key not in known},
                ),
                Stamp(),
            )
        self.out.close(None)
        if value.get("ok") is True:
            self.out.state("end", Stamp(), outcome="completed", reason="ok")
            return None
        self._failed(value.get("error"))
        return None

    def _failed(self, error: Any) -> None:
        """The terminal error of a run; the last turn's end says if it was a cancel, a time limit or a budget."""
        error = error if isinstance(error, dict) else {}
        message = as_text(error.get("message"))
        outcome = "failed"
        if self.ended in ("cancelled", "timeout", "limit"):
            outcome = self.ended
        elif message is not None and ("over budget" in message or message.startswith("max steps")):
            outcome = "limit"
        if message is not None:
            self.out.error(message, Stamp(), fatal=True)
        self.out.state("end", Stamp(), outcome=outcome, reason=as_text(error.get("category")))

    def _response(self, value: dict[str, Any]) -> Outcome:
        """A response of the acp server: the one to `run` is the run's terminal record."""
        error, result = value.get("error"), value.get("result")
        if isinstance(error, dict):
            self._failed(error)
            return None
        if not isinstance(result, dict) or not isinstance(result.get("ok"), bool) or "turns" not in result:
            return "response"
        self.out.session_state(Stamp(), sessionId=as_text(result.get("sessionId")), model=as_text(result.get("model")))
        self.out.usage(
            "run",
            tokens(count(result.get("inputTokens")), count(result.get("outputTokens")), cost=price(result.get("cost"))),
            Stamp(),
        )
        self.out.close(None)
        if result["ok"]:
            self.out.state("end", Stamp(), outcome="completed", reason="ok")
        else:
            self._failed(result.get("error"))
        return None

    # ------------------------------------------------------------ tools

    def _tool(self, kind: str, payload: dict[str, Any], stamp: Stamp) -> Outcome:
        call_id = as_text(payload.get("toolCallId"))
        if call_id is None:
            return UNKNOWN
        name = as_text(payload.get("qualified")) or as_text(payload.get("name"))
        if name is not None:
            self.names[call_id] = name
        if kind == "tool.started":
            self._start(call_id, payload, stamp)
            return None
        if kind == "tool.progress":
            message = as_text(payload.get("message"))
            content = ev.text_content(message) if message else None
            if not self.out.update(call_id, stamp, status="in_progress", content=content):
                return "late progress"
            return None
        if kind not in TERMINALS:
            return UNKNOWN
        if not self.out.knows(call_id):
            self._start(call_id, payload, stamp)  # a gate refusal has no tool.started
        # the first line of the result is printed, or why there is none; a cancel has neither
        text = as_text(payload.get("toolSummary")) or as_text(payload.get("message"))
        receipt = payload.get("receipt")
        shown = self.out.update(
            call_id,
            stamp,
            status=TERMINALS[kind],
            content=ev.text_content(text) if text else None,
            duration_ms=price(payload.get("durationMs")),
            raw_output=receipt if isinstance(receipt, dict) else ...,
        )
        return None if shown else "second end of a call"

    def _start(self, call_id: str, payload: dict[str, Any], stamp: Stamp) -> None:
        self.out.close(stamp.parent)
        target = as_text(payload.get("target"))
        name = self.names.get(call_id)
        command = target is not None and target.startswith("$ ")
        self.out.call(
            call_id,
            name,
            None,
            stamp,
            status="in_progress",
            title=None if target is None else f"`{target[2:]}`" if command else f"{name or 'tool'} {target}",
            locations=[{"path": target}] if target and not command and self._is_file_tool(name) else None,
        )

    def _is_file_tool(self, name: str | None) -> bool:
        return tool.describe(NAME, name, None).kind in ("read", "edit", "delete", "move")

    def _legacy(self, name: str) -> Outcome:
        """Old versions print a name and nothing else; the event needs an id, so calls are counted."""
        self.legacy_calls += 1
        self.out.close(None)
        self.out.call(f"tool:{self.legacy_calls}", name, None, Stamp())
        return None

    def _approval(self, what: str, payload: dict[str, Any], stamp: Stamp) -> Outcome:
        call_id = as_text(payload.get("toolCallId"))
        name = as_text(payload.get("qualified")) or as_text(payload.get("name"))
        if call_id is not None and name is not None:
            self.names.setdefault(call_id, name)
        if what == "requested":
            self.out.state("approval", stamp, phase="requested", toolCallId=call_id, toolName=name)
            return None
        if what == "settled":
            outcome = payload.get("outcome")
            outcome = outcome if isinstance(outcome, dict) else {}
            self.out.state(
                "approval",
                stamp,
                phase="settled",
                toolCallId=call_id,
                decision=as_text(outcome.get("decision")),
                message=as_text(outcome.get("reason")),
            )
            return None
        return UNKNOWN

    def _plan(self, payload: dict[str, Any], stamp: Stamp) -> Outcome:
        entries = tool.plan_of(payload.get("steps"), "title")
        if entries is None:
            return "plan without steps"
        self.out.plan(entries, stamp)
        return None
