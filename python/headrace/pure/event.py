"""What mappers say of the wire: events with the stamp of their line, and the facts that only the reducer reads."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

MESSAGE = "agent_message_chunk"
THOUGHT = "agent_thought_chunk"
USER = "user_message_chunk"
CHUNKS = (MESSAGE, THOUGHT, USER)
TOOL_CALL = "tool_call"
TOOL_CALL_UPDATE = "tool_call_update"
PLAN = "plan"
ERROR = "error"
USAGE = "usage"
STATE = "state"
KINDS = (*CHUNKS, TOOL_CALL, TOOL_CALL_UPDATE, PLAN, ERROR, USAGE, STATE)

_KEYS = ("sessionId", "messageId", "timestamp", "model", "parentToolCallId", "extra")


class Stamp:
    """What a line says beside its update. Absent facts are None and do not show in the event.

    ``parent`` is the id of the call that delegated to the sub-agent whose line this is; it also names the thread that
    texts belong to (None: the main thread).
    """

    __slots__ = ("extra", "message_id", "model", "parent", "session_id", "timestamp")

    def __init__(
        self,
        *,
        session_id: str | None = None,
        message_id: str | None = None,
        timestamp: str | None = None,
        model: str | None = None,
        parent: str | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        self.session_id = session_id
        self.message_id = message_id
        self.timestamp = timestamp
        self.model = model
        self.parent = parent
        self.extra = extra


class Event:
    """One OutputEvent before it becomes a dict, with what the reducer needs besides.

    Attributes:
        update: the ``update`` dict of the event.
        stamp: what stands beside it.
        block: number of the text block (chunks only); chunks of one block belong together.
        call: number of the tool call (tool events only): an id may name several calls, a number names one.
        retract: characters of this thread and kind that a chunk takes back first.
        facts: more for the reducer, never shown in the event: see ``emit``.
        line, offset: where in the source.
    """

    __slots__ = ("block", "call", "facts", "line", "offset", "retract", "stamp", "update")

    def __init__(self, update: dict[str, Any], stamp: Stamp, line: int, offset: int) -> None:
        self.update = update
        self.stamp = stamp
        self.line = line
        self.offset = offset
        self.block = 0
        self.call = 0
        self.retract = 0
        self.facts: dict[str, Any] = {}

    @property
    def kind(self) -> str:
        kind: str = self.update["sessionUpdate"]
        return kind

    def to_dict(self) -> dict[str, Any]:
        stamp = self.stamp
        event: dict[str, Any] = {"update": self.update}
        for key, value in zip(
            _KEYS,
            (stamp.session_id, stamp.message_id, stamp.timestamp, stamp.model, stamp.parent, stamp.extra),
            strict=True,
        ):
            if value is not None and value != {}:
                event[key] = value
        if self.retract:
            event["extra"] = {**event.get("extra", {}), "retract": self.retract}
        return event


# ---------------------------------------------------------------- text that can always be encoded


def is_high(char: str) -> bool:
    return "\ud800" <= char <= "\udbff"


def is_low(char: str) -> bool:
    return "\udc00" <= char <= "\udfff"


def clean(text: str) -> str:
    """The text with each unpaired surrogate half as U+FFFD. Returns the same object when there is none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if is_high(c) or is_low(c) else c for c in text)
    return text


def clean_value(value: Any) -> Any:
    """A JSON value with all its texts and keys clean. Returns the same object when they were."""
    result, changed = [value], False
    due: list[Any] = [result]
    while due:  # no recursion: the wire may nest 1,024 levels
        container = due.pop()
        for key, inner in container.items() if isinstance(container, dict) else enumerate(container):
            cleaned = inner
            if isinstance(inner, str):
                cleaned = clean(inner)
                changed = changed or cleaned is not inner
            elif isinstance(inner, dict):
                cleaned = {clean(name): item for name, item in inner.items()}
                changed = changed or cleaned.keys() != inner.keys()
                due.append(cleaned)
            elif isinstance(inner, list):
                cleaned = inner.copy()
                due.append(cleaned)
            container[key] = cleaned
    return result[0] if changed else value


# ---------------------------------------------------------------- content blocks


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def image_block(data: str, mime: str, uri: str | None = None) -> dict[str, Any]:
    block = {"type": "image", "data": data, "mimeType": mime}
    if uri is not None:
        block["uri"] = uri
    return block


def wrapped(block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "content", "content": block}


def text_content(text: str) -> list[dict[str, Any]]:
    """The content of a tool result that is one text."""
    return [wrapped(text_block(text))]


def diff(path: str, old: str | None, new: str) -> dict[str, Any]:
    return {"type": "diff", "path": path, "oldText": old, "newText": new}


# ---------------------------------------------------------------- clocks

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LAST_MILLIS = 253402300800000  # what ISO 8601 can say with a year of four digits


def iso_millis(millis: Any) -> str | None:
    """Milliseconds since 1970 as ISO 8601 in UTC with milliseconds; None for what is no sensible time."""
    if type(millis) not in (int, float) or not 0 <= millis < _LAST_MILLIS:
        return None
    when = _EPOCH + timedelta(milliseconds=int(millis))
    return when.strftime("%Y-%m-%dT%H:%M:%S.") + f"{int(millis) % 1000:03d}Z"


def iso_seconds(seconds: Any) -> str | None:
    """Seconds since 1970, fractions cut to milliseconds, as ISO 8601; None for what is no sensible time."""
    if type(seconds) not in (int, float) or not 0 <= seconds < _LAST_MILLIS / 1000:
        return None
    return iso_millis(seconds * 1000)
