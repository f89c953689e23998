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
#: those that only a child's turn has
ORPHANED = ("parent-ended", "parent-aborted")
#: what the message of a terminal error says of a cap: category (None: any), words, outcome
WORDS = (
    (None, ("over budget",), "limit"),
    ("AGENT_ERROR", ("max steps", "maximum steps", "step limit"), "limit"),
    ("AGENT_ERROR", ("exceeded timeout", "timed out"), "timeout"),
    ("USER_ERROR", ("abort", "cancel"), "cancelled"),
)
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
#: beginnings of the dotted types
HEADS = (
    "turn.",
    "tool.",
    "approval.",
    "user.",
    "file.",
    "test.",
    "checkpoint.",
    "plan.",
    "finding.",
    "result.",
    "diagnostic.",
    "context.",
    "verification.",
)
_BLANKS = " \t\r\n"


def sign(record: dict[str, Any]) -> Sign | None:
    schema, kind = record.get("schema"), record.get("type")
    if isinstance(schema, str) and schema.startswith(SCHEMA) and isinstance(kind, str):
        return Sign(SURE, f"schema {schema}", schema)
    if kind == "text" and isinstance(record.get("delta"), str) and record.keys() <= {"type", "delta", "truncated"}:
        return Sign(40, "a bare text delta")
    if kind == "tool" and record.keys() == {"type", "name"}:
        return Sign(40, "a legacy tool record")
    if isinstance(kind, str) and "eventSeq" in record and kind.startswith(HEADS):
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
        self.twin: str | None = None  # the last delta of a child, which a bare text may repeat
        self.earlier = ""  # the last block of text of the main agent in the turns before this one
        self.block = ""  # in this turn, and whether its last block is a thought
        self.thinks = False
        self.names: dict[str, str] = {}  # call id: name, from approvals and starts
        self.over: dict[str, str] = {}  # calls that ended in this turn: how, if they had not begun
        self.refused = False  # a call was refused, and nothing was said or begun since
        self.open = False  # a turn is open
        self.ended: str | None = None  # how the last turn ended
        self.cause: str | None = None  # why it failed, until that is told
        self.answered = False  # the run had its terminal record
        self.refusal: list[str | None] | None = None  # message and category of an error response in an open turn
        self.legacy_calls = 0

    def map(self, record: Record) -> Outcome:
        value = record.value
        kind = value.get("type")
        if isinstance(kind, str) and kind != "turn.started":
            self.refusal = None  # the run goes on: it was the answer to another request
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
            if stamp.parent is None and not self.thinks:
                self.out.close(None)
                self.thinks = True
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
        if self.refusal is not None:
            self._failed(*self.refusal)  # nothing followed: it was the answer to `run`
        self._tell_cause()

    def judge(self, run: Reducer, exit: Exit) -> Ending | None:
        return None

    # ------------------------------------------------------------ text

    def _delta(self, channel: str, text: Any, stamp: Stamp) -> Outcome:
        """One of two channels prints the text: `model.delta` comes first if both do, and then `text` is the twin."""
        if not isinstance(text, str) or not text:
            return "empty text"
        if stamp.parent is not None:
            self.twin = ev.clean(text)
            self.out.delta(ev.MESSAGE, "answer", text, stamp)
            return None
        twin, self.twin = self.twin, None
        if channel == "text" and twin is not None and twin == ev.clean(text):
            return "the other delta channel"
        if self.channel is None:
            self.channel = channel
        if channel != self.channel:
            return "the other delta channel"
        self._answer()
        self.block += ev.clean(text)
        self.out.delta(ev.MESSAGE, "answer", text, stamp)
        return None

    def _answer(self) -> None:
        """The main agent says something."""
        self.refused = False
        if self.thinks:
            self.out.close(None)
            self.thinks = False
        if self.out.streamed(ev.MESSAGE, "answer", None) is None:
            self.block = ""

    def _completed(self, payload: dict[str, Any], stamp: Stamp) -> Outcome:
        """The final text of the turn: only what no delta said is news."""
        text = as_text(payload.get("text")) or ""
        streamed = self.out.streamed(ev.MESSAGE, "answer", stamp.parent) is not None
        if not text or streamed or (stamp.parent is None and self._is_said(text, payload.get("truncated") is True)):
            return "final text of the turn"
        if stamp.parent is None:
            self._answer()
            self.block = ev.clean(text)
        self.out.final(ev.MESSAGE, "answer", text, stamp)
        return None

    def _is_said(self, text: str, cut: bool) -> bool:
        block, text = self.block.strip(_BLANKS), ev.clean(text).strip(_BLANKS)
        return bool(block) and (cut or text.endswith(block) or block.endswith(text))

    # ------------------------------------------------------------ turns and the end

    def _turn(self, what: str, payload: dict[str, Any], stamp: Stamp) -> Outcome:
        if what not in ("started", "completed", "failed", "cancelled"):
            return UNKNOWN
        refusal, self.refusal = self.refusal, None
        reason = as_text(payload.get("reason"))
        if stamp.parent is not None or (what == "cancelled" and reason in ORPHANED):
            return "turn of a child"
        if what == "started":
            if refusal is not None:
                self._failed(*refusal)  # a turn begins in an open one: that was of a run that is over
            self._tell_cause()
            self.out.commit(None)
            self.out.next_turn()
            self.channel = self.twin = None  # the turn may be that of another run, which prints on the other channel
            self.earlier = self.block or self.earlier
            self.block, self.thinks, self.refused, self.over = "", False, False, {}
            self.open, self.answered, self.ended = True, False, None
            self.out.state("turn", stamp, phase="start")
            return None
        if self.ended is not None:
            return "second end of a turn"  # the first stands
        if what == "cancelled":
            outcome = CANCELS.get(reason or "", "failed")
        else:
            outcome = what
            reason = as_text(payload.get("error")) or as_text(payload.get("cause"))
        self.cause = ev.clean(as_text(payload.get("error")) or "") if what == "failed" else None
        self.open, self.ended = False, outcome
        self.out.close(None)
        # a good turn is not the last word: a budget check or a further turn may follow, and only the summary says
        told = None if outcome == "completed" else outcome
        self.out.state("turn", stamp, phase="end", outcome=told, reason=reason)
        return None

    def _tell_cause(self) -> None:
        """A turn failed, and the terminal record that would say why did not come or says that the run went well."""
        cause, self.cause = self.cause, None
        if cause:
            self.out.error(cause, Stamp(), fatal=True)

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
        if value.get("ok") is True:
            self._succeeded()
        else:
            self._failed(*_error(value.get("error")))
        return None

    def _succeeded(self) -> None:
        self._tell_cause()
        self.out.state("end", Stamp(), outcome="denied" if self.refused else "completed", reason="ok")
        self._end_run()

    def _failed(self, message: str | None, category: str | None) -> None:
        """The terminal error of a run; the last turn's end says if it was a cancel, a time limit or a budget."""
        outcome = "failed"
        if self.ended in ("cancelled", "timeout", "limit"):
            outcome = self.ended
        elif self.refused and category == "PERMISSION_ERROR":
            outcome = "denied"
        elif message is not None:
            words = message.lower()
            for of, marks, told in WORDS:
                if of in (None, category) and any(mark in words for mark in marks):
                    outcome = told
                    break
        if message is not None:
            self.out.error(message, Stamp(), fatal=True)
            self.cause = None
        self._tell_cause()
        self.out.state("end", Stamp(), outcome=outcome, reason=category)
        self._end_run()

    def _end_run(self) -> None:
        """What comes next is another run."""
        self.out.close(None)
        self.channel = self.twin = self.ended = self.refusal = None
        self.block, self.earlier, self.thinks, self.refused = "", "", False, False
        self.open, self.answered = False, True

    def _response(self, value: dict[str, Any]) -> Outcome:
        """A response of the acp server: the one to `run` is the run's terminal record."""
        error, result = value.get("error"), value.get("result")
        if isinstance(error, dict):
            return self._refused(error)
        if not isinstance(result, dict) or not isinstance(result.get("ok"), bool) or "turns" not in result:
            return "response"
        self.out.session_state(Stamp(), sessionId=as_text(result.get("sessionId")), model=as_text(result.get("model")))
        self.out.usage(
            "run",
            tokens(count(result.get("inputTokens")), count(result.get("outputTokens")), cost=price(result.get("cost"))),
            Stamp(),
        )
        text = as_text(result.get("text"))
        if text and not self.block and not _repeats(text, self.earlier):
            # only the response carries the answer: it joins all texts of the run, and none was printed
            self.out.whole(ev.MESSAGE, text, Stamp())
        if result["ok"]:
            self._succeeded()
        else:
            self._failed(*_error(result.get("error")))
        return None

    def _refused(self, error: dict[str, Any]) -> Outcome:
        """An error response: to `run`, or to another request, which may come while a run goes on or after it."""
        message, category = _error(error)
        if self.open:
            self.refusal = [None if text is None else self.out.clean(text) for text in (message, category)]
        elif self.answered and category is None:
            return "error response"
        else:
            self._failed(message, category)
        return None

    # ------------------------------------------------------------ tools

    def _tool(self, kind: str, payload: dict[str, Any], stamp: Stamp) -> Outcome:
        call_id = as_text(payload.get("toolCallId"))
        if call_id is None:
            return UNKNOWN
        name = as_text(payload.get("qualified")) or as_text(payload.get("name"))
        if name is not None:
            self.names[call_id] = self.out.clean(name)
        if kind == "tool.started":
            return self._started(call_id, payload, stamp)
        if kind == "tool.progress":
            message = as_text(payload.get("message"))
            content = ev.text_content(message) if message else None
            if not self.out.update(call_id, stamp, status="in_progress", content=content):
                return "late progress"
            return None
        if kind not in TERMINALS:
            return UNKNOWN
        if call_id in self.over:
            return "second end of a call"
        begun = self.out.is_open(call_id)
        if not begun:
            self._start(call_id, payload, stamp)  # a gate refusal has no tool.started
        if kind == "tool.denied":
            self.refused = self.refused or stamp.parent is None
            begun = True  # and none will come
        self.over[call_id] = "" if begun else TERMINALS[kind]
        # the first line of the result is printed, or why there is none; a cancel has neither
        text = as_text(payload.get("toolSummary")) or as_text(payload.get("message"))
        receipt = payload.get("receipt")
        self.out.update(
            call_id,
            stamp,
            status=TERMINALS[kind],
            content=ev.text_content(text) if text else None,
            duration_ms=price(payload.get("durationMs")),
            raw_output=receipt if isinstance(receipt, dict) else ...,
        )
        return None

    def _started(self, call_id: str, payload: dict[str, Any], stamp: Stamp) -> Outcome:
        status = self.over.pop(call_id, None)
        if status:  # its end came first, and made the call
            name = self.names.get(call_id)
            self.over[call_id] = status
            self.out.update(call_id, stamp, status=status, title=self._title(name, payload), name=name, again=True)
            return None
        if stamp.parent is None:
            self.refused = False
        self._start(call_id, payload, stamp)
        return None

    def _start(self, call_id: str, payload: dict[str, Any], stamp: Stamp) -> None:
        self.out.close(stamp.parent)
        if stamp.parent is None:
            self.thinks = False
        target, name = as_text(payload.get("target")), self.names.get(call_id)
        command = target is not None and target.startswith("$ ")
        self.out.call(
            call_id,
            name,
            None,
            stamp,
            status="in_progress",
            title=self._title(name, payload),
            locations=[{"path": target}] if target and not command and self._is_file_tool(name) else None,
        )

    def _title(self, name: str | None, payload: dict[str, Any]) -> str | None:
        target = as_text(payload.get("target"))
        if target is None:
            return None
        return f"`{target[2:]}`" if target.startswith("$ ") else f"{name or 'tool'} {target}"

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
        if call_id is not None and name is not None and not self.out.is_open(call_id):
            self.names[call_id] = self.out.clean(name)
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


def _repeats(text: str, block: str) -> bool:
    """Whether a text ends in a block that was printed."""
    block = block.strip(_BLANKS)
    return bool(block) and ev.clean(text).strip(_BLANKS).endswith(block)


def _error(value: Any) -> tuple[str | None, str | None]:
    """Message and category."""
    value = value if isinstance(value, dict) else {}
    return as_text(value.get("message")), as_text(value.get("category"))
