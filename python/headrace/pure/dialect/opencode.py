"""OpenCode: ``opencode run --format json`` (recorded: 1.1.34, 1.2.27, 1.18.33; 2.0 by its source).

One line for each finished part of a message, each part whole: there are no deltas, no record of the prompt and none of
the end. A fast tool may be printed before the text that came before it: part ids ascend in the order of the model, so
blocks and calls are put in that order. A second step_start of a message without a step_finish between is a retry that
takes back what the try before it said. A step that ends for any reason but "tool-calls" ends the turn, until another
step starts; after a refused call the stream ends at "tool-calls". An error may be followed by more (a context overflow
by a compaction). In 2.0 an error has a type and a message, a call has its own id where its part's was, and what a tool
says of itself stands one level deeper; a call that a person declines ends its step without a finish, and the error of
that may be printed before the call.
"""

from __future__ import annotations

from typing import Any

from .. import event as ev
from .. import tool
from ..emit import Emitter, count, price, tokens, total
from ..event import Stamp
from ..record import Record
from ..run import Ending, Exit, Reducer
from ..wire import as_text
from . import SURE, UNKNOWN, Outcome, Sign

NAME = "opencode"

#: record types and the type of the part that each holds
PARTS = {
    "step_start": "step-start",
    "text": "text",
    "reasoning": "reasoning",
    "tool_use": "tool",
    "step_finish": "step-finish",
}
#: reasons of a step_finish that end the turn otherwise than well; "tool-calls" does not end it
FINISHES = {"length": "limit", "content-filter": "failed", "error": "failed"}
#: errors that are more than a failure
ERRORS = {
    "ContextOverflowError": "limit",
    "MessageOutputLengthError": "limit",
    "provider.quota": "limit",
    "MessageAbortedError": "cancelled",
    "aborted": "cancelled",
}
#: how the error of a call begins that a person refused: the loop ends there (a deny rule lets it go on)
REFUSALS = (
    "The user rejected permission",
    "The user dismissed this question",
    "PermissionRejectedError",
    "QuestionRejectedError",
)
#: the same in 2.0 (recorded by others: 2.0.5, 2.0.15), where they end the turn at once
DECLINES = ("The user declined this tool call", "The user dismissed this question")


def sign(record: dict[str, Any]) -> Sign | None:
    kind, part = record.get("type"), record.get("part")
    if isinstance(kind, str) and kind in PARTS and isinstance(part, dict) and part.get("type") == PARTS[kind]:
        return Sign(SURE, f"{kind} with a {PARTS[kind]} part")
    error = record.get("error")
    if kind == "error" and isinstance(error, dict) and isinstance(record.get("sessionID"), str):
        if "name" in error:
            return Sign(SURE, "an error with a name and sessionID")
        if error_name(error) is not None:
            return Sign(SURE, "an error with a type, a message and sessionID")
    return None


class Mapper:
    def __init__(self, out: Emitter) -> None:
        self.out = out
        self.seat = Seat()
        self.calls: set[str] = set()  # part ids of calls
        self.overflow: str | None = None  # message of a context overflow that nothing followed yet
        self.cancelled: str | None = None  # the error that cancelled the turn, if nothing followed it yet

    def map(self, record: Record) -> Outcome:
        value = record.value
        kind, session_id = value.get("type"), as_text(value.get("sessionID"))
        stamp = Stamp(session_id=session_id, timestamp=ev.iso_millis(value.get("timestamp")))
        self.out.session_state(Stamp(timestamp=stamp.timestamp), sessionId=session_id)
        if kind == "error":
            return self._error(value.get("error"), stamp)
        inner = value.get("part")
        if kind == "tool_use" and isinstance(inner, dict) and self._is_again(inner):
            return "call again"
        self.overflow = None
        if not isinstance(kind, str) or kind not in PARTS or not isinstance(inner, dict):
            return UNKNOWN
        stamp.message_id = as_text(inner.get("messageID"))
        if kind == "text" and inner.get("synthetic") is True:
            return self._synthetic(inner, stamp)
        outcome = part(self.out, self.seat, PARTS[kind], _part_id(inner), inner, stamp)
        if self.seat.declined and self.cancelled:  # the error came before the call that it is of
            self.out.state("turn", stamp, phase="end", outcome="denied", reason=self.cancelled)
        self.cancelled = None
        return outcome

    def _is_again(self, inner: dict[str, Any]) -> bool:
        """A call is printed again when its result is cleared from the context; in a resumed session, older ones too."""
        part_id, state = _part_id(inner), inner.get("state")
        time = state.get("time") if isinstance(state, dict) else None
        if part_id is not None:
            part_id = self.out.clean(part_id)
            if part_id in self.calls:
                return True
            self.calls.add(part_id)
        return isinstance(time, dict) and time.get("compacted") is not None

    def close(self) -> None:
        if self.overflow is not None:  # no compaction came: it was the end
            self.out.error(self.overflow, Stamp(), fatal=True)

    def judge(self, run: Reducer, exit: Exit) -> Ending | None:
        return judge(self.seat)

    def _synthetic(self, inner: dict[str, Any], stamp: Stamp) -> Outcome:
        """A text that the harness wrote for the model; the one after a compaction tells that there was one."""
        metadata = inner.get("metadata")
        if isinstance(metadata, dict) and metadata.get("compaction_continue") is True:
            self.out.state("compaction", stamp, phase="end", success=True)
        return user_text(self.out, inner, stamp)

    def _error(self, value: Any, stamp: Stamp) -> Outcome:
        outcome = error(self.out, value, stamp)
        if outcome is UNKNOWN:
            return outcome
        told, name = self.seat.outcome_of(value), error_name(value)
        self.overflow = ev.clean(error_message(value) or "") if told == "limit" else None
        self.cancelled = name if told == "cancelled" else None
        self.seat.turning = False
        self.seat.apart = self.seat.apart or "name" not in value
        self.out.state("turn", stamp, phase="end", outcome=told, reason=name)
        return None


# ---------------------------------------------------------------- parts, as the stored session has them too


class Seat:
    """How far a session has come: the main one of a stream, or a sub-agent's in a store."""

    __slots__ = ("apart", "called", "declined", "message", "refused", "said", "stepping", "stopped", "turning", "well")

    def __init__(self) -> None:
        self.message: str | None = None  # id of the message whose step started last
        self.stepping = False  # that step has not finished
        self.turning = False  # a turn was opened and not ended
        self.refused = False  # a call of the last step was refused
        self.stopped = False  # the last step finished, to go on after its calls
        self.apart = False  # 2.0: output leaves out the reasoning, though no total says so
        self.declined = False  # 2.0: a person declined a call of the last step, which ended the turn
        self.well = False  # the last turn ended with a finish that is no failure
        self.said = False  # the last step has text
        self.called = False  # the last step has a call

    def outcome_of(self, error: Any) -> str:
        """How a turn ends at that error: one that was aborted at a declined call is denied."""
        outcome = outcome_of(error)
        return "denied" if outcome == "cancelled" and self.declined else outcome


def part(
    out: Emitter,
    seat: Seat,
    kind: Any,
    part_id: str | None,
    value: dict[str, Any],
    stamp: Stamp,
    *,
    side: bool = False,
) -> Outcome:
    """A part of an assistant's message."""
    if kind == "step-start":
        step_start(out, seat, stamp)
        return None
    if kind in ("text", "reasoning"):
        text = as_text(value.get("text"))
        if not text:
            return "empty text"
        seat.said = seat.said or kind == "text"
        out.whole(ev.MESSAGE if kind == "text" else ev.THOUGHT, text, stamp, order=part_id)
        return None
    if kind == "tool":
        return call(out, seat, part_id, value, stamp)
    if kind == "step-finish":
        step_finish(out, seat, part_id, value, stamp, side=side)
        return None
    return UNKNOWN


def step_start(out: Emitter, seat: Seat, stamp: Stamp) -> None:
    message = None if stamp.message_id is None else ev.clean(stamp.message_id)
    if seat.stepping and seat.message == message:
        out.abandon(stamp.parent, stamp)
        out.state("retry", stamp, phase="start")
    out.commit(stamp.parent)
    out.next_turn()
    seat.message, seat.stepping, seat.refused, seat.stopped = message, True, False, False
    seat.declined = seat.well = seat.said = seat.called = False
    if not seat.turning and stamp.parent is None:
        seat.turning = True
        out.state("turn", stamp, phase="start")


def step_finish(
    out: Emitter, seat: Seat, part_id: str | None, value: dict[str, Any], stamp: Stamp, *, side: bool
) -> None:
    reason = as_text(value.get("reason"))
    out.usage(
        "call",
        usage_of(value.get("tokens"), value.get("cost"), reasoning_apart=seat.apart or None),
        stamp,
        key=None if part_id is None else f"part:{ev.clean(part_id)}",
        side=side,
    )
    step_end(out, seat, reason, stamp)


def step_end(out: Emitter, seat: Seat, reason: str | None, stamp: Stamp) -> None:
    out.commit(stamp.parent)
    seat.stepping = False
    broken = reason == "unknown"  # the provider's stream ended without a reason
    seat.stopped = reason == "tool-calls" or (broken and seat.called)
    if not seat.stopped and stamp.parent is None:
        seat.turning = False
        outcome = "failed" if broken and not seat.said else FINISHES.get(reason or "", "completed")
        seat.well = outcome == "completed"
        out.state("turn", stamp, phase="end", outcome=outcome, reason=reason)


def usage_of(value: Any, cost: Any, *, reasoning_apart: bool | None = None) -> dict[str, Any]:
    """The counters of a step: input leaves out what was read from and written to the cache.

    Output leaves out the reasoning since some version after 1.2.27. Then the total adds up only with it; before, the
    total adds up without it, or is not printed.
    """
    value = value if isinstance(value, dict) else {}
    cache = value.get("cache")
    cache = cache if isinstance(cache, dict) else {}
    prompt = total(value.get("input"), cache.get("read"), cache.get("write"))
    completion, reasoning = count(value.get("output")), count(value.get("reasoning"))
    if reasoning_apart is None:
        printed = count(value.get("total"))
        reasoning_apart = printed is not None and printed != plus(prompt, completion)
    return tokens(
        prompt,
        plus(completion, reasoning) if reasoning_apart else completion,
        count(cache.get("read")),
        price(cost),
        {key: item for key, item in value.items() if key not in ("input", "output")},
    )


def _part_id(value: dict[str, Any]) -> str | None:
    """The id of a part; in 2.0 that of a call's stands beside the call's own."""
    return as_text(value.get("partID")) or as_text(value.get("id"))


def plus(one: int | None, two: int | None) -> int | None:
    return two if one is None else one if two is None else one + two


def call(out: Emitter, seat: Seat, part_id: str | None, value: dict[str, Any], stamp: Stamp) -> Outcome:
    """A tool part: on the stream a call that has ended, in a store also one that never did."""
    state = value.get("state")
    own = as_text(value.get("id")) if as_text(value.get("partID")) else None  # 2.0
    seat.apart = seat.apart or own is not None
    call_id = as_text(value.get("callID")) or own or part_id
    if call_id is None or not isinstance(state, dict):
        return UNKNOWN
    seat.called = True
    name, input, status = as_text(value.get("tool")), state.get("input"), state.get("status")
    invalid = name == "invalid" and isinstance(input, dict) and isinstance(input.get("tool"), str)
    if invalid and isinstance(input, dict):
        # the tool that stands in for one that is not there, or whose arguments were no JSON: they are not printed
        name, input = input["tool"], None
    time = state.get("time")
    time = time if isinstance(time, dict) else {}
    out.call(
        call_id,
        name,
        input,
        stamp,
        status="in_progress" if status == "running" else "pending",
        order=part_id,
        started_at=ev.iso_millis(time.get("start")),
    )
    if status not in ("completed", "error"):
        return None
    if status == "error":
        text = as_text(state.get("error"))
        seat.refused = seat.refused or (text is not None and text.startswith(REFUSALS))
        seat.declined = seat.declined or (own is not None and text is not None and text.startswith(DECLINES))
        ok = False
    else:
        text = as_text(state.get("output"))
        ok = not invalid
    metadata = state.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    facts = metadata["metadata"] if isinstance(metadata.get("metadata"), dict) else metadata
    content = ev.text_content(text) if text else []
    content += attachments(state.get("attachments"))
    settle(
        out,
        stamp,
        call_id,
        ok=ok,
        title=as_text(state.get("title")),
        content=content,
        facts=facts,
        started=time.get("start"),
        ended=time.get("end"),
        raw_output=metadata or ...,
        todos=input.get("todos") if name == "todowrite" and isinstance(input, dict) else None,
    )
    return None


def settle(
    out: Emitter,
    stamp: Stamp,
    call_id: str,
    *,
    ok: bool,
    title: str | None,
    content: list[dict[str, Any]],
    facts: dict[str, Any],
    started: Any,
    ended: Any,
    raw_output: Any,
    todos: Any,
) -> None:
    """A call that has ended. ``facts`` is what the tool says of itself: a command that failed has completed."""
    if "exit" in facts:
        ok = ok and count(facts["exit"]) == 0
    changes = tool.hunks(facts["diff"]) if isinstance(facts.get("diff"), str) else []
    content = content + [ev.diff(hunk.path, hunk.old, hunk.new) for hunk in changes]
    out.update(
        call_id,
        stamp,
        status="completed" if ok else "failed",
        title=title,
        content=content,
        locations=[_place(hunk) for hunk in changes],
        exit_code=count(facts.get("exit")),
        duration_ms=_span(started, ended),
        ended_at=ev.iso_millis(ended),
        raw_output=raw_output,
    )
    entries = tool.plan_of(todos) if ok else None
    if entries is not None:
        out.plan(entries, stamp)


def attachments(value: Any) -> list[dict[str, Any]]:
    """Tool content from the images among a result's files."""
    images = [image(item) for item in value if isinstance(item, dict)] if isinstance(value, list) else []
    return [ev.wrapped(block) for block in images if block is not None]


def image(file: dict[str, Any], place: str = "url") -> dict[str, Any] | None:
    """An image block from a file part; None if it is no image."""
    mime, url = as_text(file.get("mime")), as_text(file.get(place))
    if mime is None or url is None or not mime.startswith("image/"):
        return None
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return ev.image_block(data, mime)
    return ev.image_block("", mime, url)


def user_text(out: Emitter, value: dict[str, Any], stamp: Stamp) -> Outcome:
    text = as_text(value.get("text"))
    if not text:
        return "empty text"
    out.whole(ev.USER, text, stamp.with_extra({"synthetic": True}) if value.get("synthetic") is True else stamp)
    return None


def error(out: Emitter, value: Any, stamp: Stamp) -> Outcome:
    """An error record, or the error of a stored message. After a context overflow the work may go on."""
    message = error_message(value)
    if message is None:
        return UNKNOWN
    data, name = value.get("data"), error_name(value)
    extra: dict[str, Any] = {} if name is None else {"name": name}
    for key in ("statusCode", "isRetryable", "ref"):
        if isinstance(data, dict) and data.get(key) is not None:
            extra[key] = data[key]
    if "name" not in value and value.get("status") is not None:
        extra["statusCode"] = value["status"]
    out.error(message, stamp.with_extra(extra), fatal=stamp.parent is None and outcome_of(value) != "limit")
    return None


def error_message(value: Any) -> str | None:
    """What an error says, else its name; None if it is none."""
    if not isinstance(value, dict):
        return None
    data, name = value.get("data"), error_name(value)
    if "name" not in value and name is not None:
        return as_text(value.get("message")) or name
    message = as_text(data.get("message")) if isinstance(data, dict) else None
    return message or name


def error_name(value: dict[str, Any]) -> str | None:
    """Its name, or in 2.0 its type."""
    if "name" in value:
        return as_text(value["name"])
    return as_text(value.get("type")) if isinstance(value.get("message"), str) else None


def outcome_of(value: Any) -> str:
    name = error_name(value) if isinstance(value, dict) else None
    return "failed" if name is None else ERRORS.get(name, "failed")


def judge(seat: Seat) -> Ending | None:
    """The stream ended at a step that would go on: was it because a person refused a call?"""
    if seat.declined or (seat.stopped and seat.refused):
        return Ending("denied", "tool-calls" if seat.stopped else None, "the turn ended at a refused call")
    return None


def _place(hunk: tool.Hunk) -> dict[str, Any]:
    return {"path": hunk.path, "line": hunk.line} if hunk.line > 0 else {"path": hunk.path}


def _span(started: Any, ended: Any) -> int | None:
    start, end = count(started), count(ended)
    return end - start if start is not None and end is not None and end >= start else None
