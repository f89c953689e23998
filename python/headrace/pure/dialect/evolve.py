"""evolve: a stream that already consists of OutputEvents (seed 003), such as ``headrace events`` prints.

Valid events go out as they came in, ``state`` events included; what is not of their shape is left out. A text block
ends where its kind or messageId changes, and at any other event of its thread. A ``tool_call`` whose id is still open
is a new call, unless it says that the call has ended. A usage that comes again for a messageId takes the place of the
earlier one, as the seed has it. An error that is not fatal is a notice: harnesses print it while they try again.
"""

from __future__ import annotations

from typing import Any

from .. import event as ev
from .. import tool
from ..emit import Emitter, count, price, scoped, tokens
from ..event import Stamp
from ..record import Record
from ..run import Ending, Exit, Reducer
from ..wire import as_text
from . import SURE, UNKNOWN, Outcome, Sign

NAME = "evolve"

KINDS = ("read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other")
STATUSES = ("pending", "in_progress", "completed", "failed")
OUTCOMES = ("completed", "failed", "cancelled", "timeout", "denied", "limit", "incomplete")
TEXT, COUNT, PRICE, FLAG = "text", "count", "price", "flag"
#: the states of ``types.StateUpdate``: whether they have a phase of these two, and their details
STATES: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "session": ((), {"sessionId": TEXT, "version": TEXT, "model": TEXT, "cwd": TEXT, "title": TEXT}),
    "turn": (("start", "end"), {"outcome": TEXT, "reason": TEXT}),
    "retry": (
        ("start", "end"),
        {"attempt": COUNT, "maxAttempts": COUNT, "delayMs": PRICE, "message": TEXT, "success": FLAG},
    ),
    "compaction": (("start", "end"), {"trigger": TEXT, "success": FLAG, "summary": TEXT, "message": TEXT}),
    "approval": (
        ("requested", "settled"),
        {"toolCallId": TEXT, "toolName": TEXT, "decision": TEXT, "message": TEXT},
    ),
    "queue": ((), {}),
    "model": ((), {"model": TEXT, "effort": TEXT}),
    "end": ((), {"outcome": TEXT, "reason": TEXT}),
}


def sign(record: dict[str, Any]) -> Sign | None:
    update = record.get("update")
    kind = update.get("sessionUpdate") if isinstance(update, dict) else None
    if not isinstance(kind, str) or "jsonrpc" in record or "method" in record:
        return None
    return Sign(SURE if kind in ev.KINDS else 40, f"an update {kind}")


class Mapper:
    def __init__(self, out: Emitter) -> None:
        self.out = out
        self.keys: dict[str, str] = {}  # key of the latest call of an id
        self.saying: dict[str | None, tuple[str, str | None]] = {}  # kind and messageId of a thread's open block
        self.stateful = False  # the stream has state events: they tell session and model
        self.failed = False  # a fatal error came, and no answer since

    def map(self, record: Record) -> Outcome:
        value = record.value
        update = value.get("update")
        if not isinstance(update, dict):
            return UNKNOWN
        kind = update.get("sessionUpdate")
        stamp = self._stamp(value)
        if not self.stateful and kind != ev.STATE and stamp.parent is None:
            self.out.session_state(Stamp(), sessionId=stamp.session_id or None, model=stamp.model or None)
        if kind in ev.CHUNKS:
            return self._chunk(str(kind), update.get("content"), stamp)
        self._end_block(stamp.parent)
        if kind == ev.TOOL_CALL:
            return self._call(update, stamp)
        if kind == ev.TOOL_CALL_UPDATE:
            return self._call_update(update, stamp)
        if kind == ev.PLAN:
            return self._plan(update, stamp)
        if kind == ev.ERROR:
            return self._error(update, stamp)
        if kind == ev.USAGE:
            return self._usage(update, stamp)
        return self._state(update, stamp) if kind == ev.STATE else UNKNOWN

    def close(self) -> None:
        pass

    def judge(self, run: Reducer, exit: Exit) -> Ending | None:
        """No state event says how it ended; a stream that has such events would have said that it is complete."""
        if exit.code:
            return Ending("failed", f"exit code {exit.code}", "no terminal state, and the exit code tells of a failure")
        if self.failed:
            return Ending("failed", None, "a fatal error came last")
        if not self.stateful and run.progress.last_word == "answer" and not run.progress.open_calls:
            return Ending("completed", None, "the last message asks for no tool")
        return None

    # ------------------------------------------------------------ chunks

    def _stamp(self, value: dict[str, Any]) -> Stamp:
        extra = value.get("extra")
        return Stamp(
            session_id=as_text(value.get("sessionId")),
            message_id=as_text(value.get("messageId")),
            timestamp=as_text(value.get("timestamp")),
            model=as_text(value.get("model")),
            parent=self._clean(value.get("parentToolCallId")),
            extra=extra if isinstance(extra, dict) else None,
        )

    def _chunk(self, kind: str, content: Any, stamp: Stamp) -> Outcome:
        content = content if isinstance(content, dict) else {}
        image = _image(content)
        if image is not None:
            self._end_block(stamp.parent)
            self.out.image(kind, image, stamp)
            return None
        text = content.get("text")
        if content.get("type") != "text" or not isinstance(text, str):
            return UNKNOWN
        message_id = self._clean(stamp.message_id)
        known_kind, known_id = self.saying.get(stamp.parent, (kind, None))
        if known_kind != kind or (None not in (known_id, message_id) and known_id != message_id):
            self._end_block(stamp.parent)
            known_id = None
        self.saying[stamp.parent] = (kind, message_id or known_id)
        retract = count(stamp.extra.get("retract")) if stamp.extra else None
        if retract is not None and retract > 0 and stamp.extra is not None:
            stamp.extra = {key: item for key, item in stamp.extra.items() if key != "retract"}
        self.out.forward(kind, text, max(retract or 0, 0), stamp)
        if kind == ev.MESSAGE and stamp.parent is None and text:
            self.failed = False
        return None

    def _end_block(self, thread: str | None) -> None:
        self.out.commit(thread)
        self.saying.pop(thread, None)

    # ------------------------------------------------------------ tools

    def _call(self, update: dict[str, Any], stamp: Stamp) -> Outcome:
        call_id = self._clean(update.get("toolCallId"))
        if call_id is None:
            return UNKNOWN
        key = self._key(call_id, stamp, starts=True)
        status, kind = update.get("status"), update.get("kind")
        content, locations = _content(update.get("content")), _locations(update.get("locations"))
        if self.out.is_open(key) and status in ("completed", "failed"):
            self.out.update(call_id, stamp, key=key, status=status, content=content, locations=locations)
            return None
        self.out.call(
            call_id,
            as_text(update.get("toolName")),
            _dict(update.get("rawInput")),
            stamp,
            key=key,
            status=status if status in STATUSES else "pending",
            kind=kind if kind in KINDS else None,
            title=as_text(update.get("title")),
            content=content,
            locations=locations,
            again=True,
        )
        return None

    def _call_update(self, update: dict[str, Any], stamp: Stamp) -> Outcome:
        call_id = self._clean(update.get("toolCallId"))
        if call_id is None:
            return UNKNOWN
        status = update.get("status")
        self.out.update(
            call_id,
            stamp,
            key=self._key(call_id, stamp, starts=False),
            status=status if status in STATUSES else None,
            title=as_text(update.get("title")),
            content=_content(update.get("content")),
            locations=_locations(update.get("locations")),
            raw_output=update.get("rawOutput", ...),
            again=True,
        )
        return None

    def _key(self, call_id: str, stamp: Stamp, *, starts: bool) -> str:
        """Sub-agents may use the same ids, but not every line of a call says whose it is."""
        key, latest = scoped(call_id, stamp), self.keys.get(call_id)
        if latest is not None and not self.out.knows(latest if starts else key):
            key = latest
        self.keys[call_id] = key
        return key

    # ------------------------------------------------------------ the rest

    def _plan(self, update: dict[str, Any], stamp: Stamp) -> Outcome:
        entries = tool.plan_of(update.get("entries"))
        if entries is None:
            return UNKNOWN
        self.out.plan(entries, stamp)
        return None

    def _error(self, update: dict[str, Any], stamp: Stamp) -> Outcome:
        message = as_text(update.get("message"))
        if message is None:
            return UNKNOWN
        fatal = update.get("fatal") is True
        self.failed = self.failed or fatal
        self.out.error(message, stamp, fatal=fatal, notice=not fatal)
        return None

    def _usage(self, update: dict[str, Any], stamp: Stamp) -> Outcome:
        scope, usage = update.get("scope"), update.get("usage")
        if scope not in ("call", "run") or not isinstance(usage, dict):
            return UNKNOWN
        self.out.usage(
            scope,
            tokens(
                count(usage.get("promptTokens")),
                count(usage.get("completionTokens")),
                count(usage.get("cachedTokens")),
                price(usage.get("costUsd")),
                _dict(usage.get("extra")),
            ),
            stamp,
            key=self._clean(stamp.message_id) if scope == "call" else None,
        )
        return None

    def _state(self, update: dict[str, Any], stamp: Stamp) -> Outcome:
        name = as_text(update.get("state"))
        if name is None or name not in STATES:
            return UNKNOWN
        self.stateful = True
        phases, known = STATES[name]
        phase, outcome = update.get("phase"), update.get("outcome")
        if (phases and phase not in phases) or (outcome is not None and outcome not in OUTCOMES):
            return UNKNOWN
        if name == "end" and outcome is None:
            return UNKNOWN
        details = {key: _detail(update.get(key), kind) for key, kind in known.items()}
        if phases:
            details = {"phase": phase, **details}
        if name == "queue":
            prompts = update.get("prompts")
            prompts = prompts if isinstance(prompts, list) else []
            details = {"prompts": [text for text in prompts if isinstance(text, str)]}
        self.out.state(name, stamp, **details)
        return None

    def _clean(self, value: Any) -> str | None:
        return self.out.clean(value) if isinstance(value, str) else None


def _detail(value: Any, kind: str) -> Any:
    """A state's detail, if it has the type that the state wants."""
    if kind == TEXT:
        return as_text(value)
    if kind == FLAG:
        return value if isinstance(value, bool) else None
    return count(value) if kind == COUNT else price(value)


def _image(block: dict[str, Any]) -> dict[str, Any] | None:
    data, mime = block.get("data"), block.get("mimeType")
    if block.get("type") != "image" or not isinstance(data, str) or not isinstance(mime, str):
        return None
    return ev.image_block(data, mime, as_text(block.get("uri")))


def _content(items: Any) -> list[dict[str, Any]]:
    """The items of a tool call's content that have a shape of the seed."""
    content = []
    for item in items if isinstance(items, list) else []:
        if not isinstance(item, dict):
            continue
        block = item.get("content")
        if item.get("type") == "content" and isinstance(block, dict):
            image, text = _image(block), block.get("text")
            if image is not None:
                content.append(ev.wrapped(image))
            elif block.get("type") == "text" and isinstance(text, str):
                content.append(ev.wrapped(ev.text_block(text)))
        elif item.get("type") == "diff":
            path, new = item.get("path"), item.get("newText")
            if isinstance(path, str) and isinstance(new, str):
                content.append(ev.diff(path, as_text(item.get("oldText")), new))
    return content


def _locations(items: Any) -> list[dict[str, Any]]:
    places = []
    for item in items if isinstance(items, list) else []:
        path, line = (item.get("path"), count(item.get("line"))) if isinstance(item, dict) else (None, None)
        if isinstance(path, str):
            places.append({"path": path} if line is None else {"path": path, "line": line})
    return places


def _dict(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None
