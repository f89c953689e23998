"""What mappers say of the wire: events with the stamp of their line, and the facts that only the reducer reads."""

from __future__ import annotations

from collections.abc import Callable
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

    def with_extra(self, extra: dict[str, Any] | None) -> Stamp:
        """The same stamp with other facts beside it."""
        return Stamp(
            session_id=self.session_id,
            message_id=self.message_id,
            timestamp=self.timestamp,
            model=self.model,
            parent=self.parent,
            extra=extra,
        )


class Event:
    """One OutputEvent before it becomes a dict, with what the reducer needs besides.

    Attributes:
        update: the ``update`` dict of the event.
        stamp: what stands beside it.
        block: number of the text block (chunks only); chunks of one block belong together.
        call: number of the tool call (tool events only): an id may name several calls, a number names one.
        retract: characters of this thread and kind that a chunk takes back first.
        facts: more for the reducer, never shown in the event: see ``emit``.
        line, offset, size: the record in the source that made it come; line 0 for none.
    """

    __slots__ = ("block", "call", "facts", "line", "offset", "retract", "size", "stamp", "update")

    def __init__(self, update: dict[str, Any], stamp: Stamp, line: int, offset: int, size: int) -> None:
        self.update = update
        self.stamp = stamp
        self.line = line
        self.offset = offset
        self.size = size
        self.block = 0
        self.call = 0
        self.retract = 0
        self.facts: dict[str, Any] = {}

    @property
    def kind(self) -> str:
        kind: str = self.update["sessionUpdate"]
        return kind

    @property
    def span(self) -> dict[str, int]:
        """Where the record stands, as ``extra`` and cut results tell it."""
        return {"line": self.line, "offset": self.offset, "bytes": self.size}

    def to_dict(self, spans: bool = False) -> dict[str, Any]:
        """The event as users get it; with ``spans``, its ``extra`` says where its record stands."""
        stamp = self.stamp
        event: dict[str, Any] = {"update": writable(self.update)}
        for key, value in zip(
            _KEYS,
            (stamp.session_id, stamp.message_id, stamp.timestamp, stamp.model, stamp.parent, stamp.extra),
            strict=True,
        ):
            if value is not None and value != {}:
                event[key] = writable(value)
        if self.retract:
            event["extra"] = {**event.get("extra", {}), "retract": self.retract}
        if spans and self.line:
            event["extra"] = {**event.get("extra", {}), "span": self.span}
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
    return _rebuilt(value, lambda inner: clean(inner) if isinstance(inner, str) else inner, clean)


def _rebuilt(value: Any, leaf: Callable[[Any], Any], name: Callable[[str], str]) -> Any:
    """A copy of a JSON value with what `leaf` and `name` make of its leaves and keys; the same object if they change
    nothing."""
    result, changed = [value], False
    due: list[Any] = [result]
    while due:  # no recursion: the wire may nest 1,024 levels
        container = due.pop()
        for key, inner in container.items() if isinstance(container, dict) else enumerate(container):
            if isinstance(inner, dict):
                made: Any = {name(known): item for known, item in inner.items()}
                changed = changed or made.keys() != inner.keys()
                due.append(made)
            elif isinstance(inner, list):
                made = inner.copy()
                due.append(made)
            else:
                made = leaf(inner)
                changed = changed or made is not inner
            container[key] = made
    return result[0] if changed else value


_SHORT = 10**640  # the lowest limit that can be set for str() of an int


def digits(number: int) -> str:
    """str() of an integer of any size: the interpreter refuses more than sys.get_int_max_str_digits()."""
    if -_SHORT < number < _SHORT:
        return str(number)
    if number < 0:
        return "-" + digits(-number)
    half = number.bit_length() * 3 // 20  # about half of its digits
    high, low = divmod(number, 10**half)
    return digits(high) + digits(low).zfill(half)


def size(value: Any) -> int:
    """About how many bytes a JSON value takes to keep: those of the texts and keys in it, those of the digits of an
    integer beyond 64 bits, and 8 for each value."""
    total = 0
    due = [value]
    while due:
        inner = due.pop()
        total += 8
        if isinstance(inner, str):
            total += len(inner.encode())
        elif isinstance(inner, dict):
            total += sum(len(key.encode()) for key in inner)
            due.extend(inner.values())
        elif isinstance(inner, list):
            due.extend(inner)
        elif type(inner) is int and not -(2**63) <= inner < 2**64:
            total += len(digits(inner))
    return total


def writable(value: Any) -> Any:
    """A JSON value that any JSON writer takes: an integer beyond 64 bits becomes the text of its digits.

    (Runs and records keep it as the integer that it is.) Returns the same object when there is none.
    """
    return _rebuilt(value, _short_integer, str)


def _short_integer(leaf: Any) -> Any:
    return digits(leaf) if type(leaf) is int and not -(2**63) <= leaf < 2**64 else leaf


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


def iso(value: Any) -> str | None:
    """A printed time as ISO 8601 in UTC: text with a zone, seconds or milliseconds since 1970; None for anything else.

    Text in UTC stays as it is, digits of the second included. Text without a zone is no time: nobody knows whose.
    """
    if not isinstance(value, str):
        return (iso_millis if _is_millis(value) else iso_seconds)(value)
    whole, rest = value[:19], value[19:]
    parts = [whole[at:end] for at, end in _DATE_PARTS]
    if whole[4:5] + whole[7:8] + whole[10:11] + whole[13:14] + whole[16:17] != "--T::" or not _digits("".join(parts)):
        return None
    digits = len(rest) - len(rest[1:].lstrip("0123456789")) if rest[:1] == "." else 0
    fraction, zone = rest[:digits], rest[digits:]
    if fraction == ".":
        return None
    try:
        when = datetime(*map(int, parts), tzinfo=timezone.utc)  # type: ignore[misc, arg-type]
        if zone == "Z":
            return value
        if len(zone) != 6 or zone[0] not in "+-" or zone[3] != ":" or not _digits(zone[1:3] + zone[4:]):
            return None
        offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[4:]))
        when = when - offset if zone[0] == "+" else when + offset
    except (ValueError, OverflowError):
        return None
    return when.isoformat()[:19] + fraction + "Z"


def millis(time: str) -> int:
    """Milliseconds since 1970 of a time as ``iso`` gives it."""
    when = datetime(*(int(time[at:end]) for at, end in _DATE_PARTS), tzinfo=timezone.utc)  # type: ignore[misc, arg-type]
    fraction = (time[20:-1] + "000")[:3] if time[19] == "." else "000"
    return (when - _EPOCH) // timedelta(milliseconds=1) + int(fraction)


_DATE_PARTS = ((0, 4), (5, 7), (8, 10), (11, 13), (14, 16), (17, 19))


def _is_millis(value: Any) -> bool:
    return type(value) in (int, float) and value >= 100_000_000_000


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit()
