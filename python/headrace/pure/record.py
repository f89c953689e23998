"""lines -> records: decodes each line, keeps the account, and gets back what a damaged line still holds.

The salvage rule. Leave out NUL runs, blanks, control characters and terminal escapes at both ends of a malformed line.
What is left must begin with ``{``, and its tail must be one or more whole objects up to its end, each with the shape of
a top-level record; NaN, Infinity, raw control characters and invalid UTF-8 (as U+FFFD) are let through in them.

Where can such a tail begin? At the first byte; or, when another writer cut in, near the byte at which the grammar
breaks: an object that the grammar places inside another one is never taken for a record, so a record that is only cut
off gives nothing.

The document rule. Some harnesses keep a session as ONE pretty-printed JSON document, of which no line is a record, and
some wrappers print all the records of a run as one array: a pretty one (claude-code-action its execution file), or one
with an element a line (as SQLite, DuckDB and ClickHouse export rows). When the first line that is not blank begins an
object or array and is cut off, it is held back, and the lines after it too: if all that comes up to the end of the
source is one JSON object, and a dialect knows it as a document, then it is one record, and those lines are its share;
if it is an array, and a dialect knows its first element as a record, then it stands for its elements. It is a stream
with a damaged first line as soon as a later line cannot be one of such a value: it stands alone as an object or array
that is not empty, where no element of an array can stand; it begins like no JSON token; or more than `max_line_bytes`
would be held. Then, and when the end disappoints, the lines are read like any others. Where the first element has a
line and a comma for itself, or the first line that is not blank is such a one without any bracket, it is the log of a
writer that was cut off: each later line of the kind is malformed, and its record is got back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..errors import MalformedLine
from . import json
from .frame import DEFAULT_MAX_LINE_BYTES, Framer, Line
from .report import Report

__all__ = ["Intake", "Record", "looks_like_record", "native_type", "salvage"]

_BLANKS = b" \t\r"
_TOKENS = tuple(bytes((byte,)) for byte in b'"{}[],-0123456789tfn')
"""How the lines of a printed value begin."""
_element_of = re.compile(rb"[ \t\r]*[\[,]?[ \t\r]*(\{.*\})[ \t\r]*[,\]]?[ \t\r]*", re.DOTALL).fullmatch
"""A line that one object of an array has for itself."""
_LINE_ENDS = (b"", b"\n", b"\r\n")
NOT_AN_OBJECT = "not an object"
"""The rule by which valid JSON that is no record is ignored."""


class Record:
    """One JSON object of the stream."""

    __slots__ = ("_value", "line", "lossy", "offset", "raw", "salvaged", "share")

    def __init__(
        self,
        raw: bytes,
        value: dict[str, Any] | None = None,
        line: int = 1,
        offset: int = 0,
        share: int = 0,
        *,
        lossy: bool = False,
        salvaged: bool = False,
    ) -> None:
        self.raw = raw
        """The bytes of its JSON text."""
        self._value = value
        self.line = line
        """Number of its line, 1-based."""
        self.offset = offset
        """Byte offset of `raw` in the stream."""
        self.share = share
        """The bytes of the input that it stands for: its line with LF, its part of an array's line, 0 if salvaged."""
        self.lossy = lossy
        """Something in its text became U+FFFD."""
        self.salvaged = salvaged
        """It comes from a malformed line."""

    @property
    def value(self) -> dict[str, Any]:
        if self._value is None:
            self._value = json.loads_lax(self.raw) if self.salvaged else json.loads(self.raw)
        return self._value

    @property
    def type(self) -> str | None:
        return native_type(self.value)

    def to_dict(self) -> dict[str, Any]:
        """All of it, as `json.loads` gives it: lone surrogates kept, integers exact. A new dict each time."""
        return json.loads_lax(self.raw) if self.salvaged else json.loads(self.raw)  # type: ignore[no-any-return]

    def get(self, *path: str) -> Any:
        """The value at a path of keys; None if it is not there."""
        value: Any = self.to_dict()
        for key in path:
            if not isinstance(value, dict) or key not in value:
                return None
            value = value[key]
        return value

    def __getitem__(self, key: str) -> Any:
        return self.to_dict()[key]

    def __contains__(self, key: str) -> bool:
        return key in self.value

    def __repr__(self) -> str:
        return f"<Record {self.type or ''!r} line={self.line} offset={self.offset} bytes={len(self.raw)}>"

    @property
    def may_hold_surrogates(self) -> bool:
        """Whether it may hold half a surrogate pair (False is certain)."""
        return b"\\ud" in self.raw or b"\\uD" in self.raw


def native_type(value: dict[str, Any]) -> str | None:
    """What a harness calls this kind of record: `type`, else `method`, else `msg.type`, `message.type` or
    `update.sessionUpdate`, else `role`."""
    kind = value.get("type")
    if isinstance(kind, str):
        return kind
    kind = value.get("method")
    if isinstance(kind, str):
        return kind
    for holder, key in _INNER_TYPES:
        inner = value.get(holder)
        if isinstance(inner, dict) and isinstance(inner.get(key), str):
            return inner[key]  # type: ignore[no-any-return]
    kind = value.get("role")
    return kind if isinstance(kind, str) else None


_INNER_TYPES = (("msg", "type"), ("message", "type"), ("update", "sessionUpdate"))


class Intake:
    """Bytes in, records out, with the account in `report`.

    For each record the consumer calls one of `report.event`, `report.ignore` and `report.unknown_type` before it asks
    for the next. `feed` and `close` are generators: use up each before the next call.
    """

    def __init__(
        self,
        *,
        strict: bool = False,
        max_line_bytes: int = DEFAULT_MAX_LINE_BYTES,
        on_malformed: Callable[[dict[str, Any]], object] | None = None,
        is_record: Callable[[dict[str, Any]], bool] | None = None,
        is_document: Callable[[dict[str, Any]], bool] | None = None,
    ) -> None:
        self.report = Report()
        self.is_record = is_record or looks_like_record
        """Whether an object found on a damaged line has the shape of a top-level record; may be set at any time."""
        self.is_document = is_document or (lambda value: False)
        """Whether an object that is the whole source is a document of some dialect; may be set at any time."""
        self.malformed_size = 0
        """Bytes of the malformed line that `on_malformed` is told of, line end not included."""
        self._framer = Framer(max_line_bytes)
        self._strict = strict
        self.on_malformed = on_malformed
        """Told of each malformed line; may be set at any time."""
        self._failed: tuple[int, int, str] | None = None  # line, offset and reason, in strict mode
        self._at_start = True  # there were none but blank lines
        self._held: list[Line] = []  # what may be a document
        self._rows = False  # lines may be elements of an array that was cut off

    def feed(self, chunk: bytes | bytearray | memoryview) -> Iterator[Record]:
        self._go_on()
        for line in self._framer.feed(chunk):
            yield from self._take(line)
        self._take_bom()

    def close(self) -> Iterator[Record]:
        self._go_on()
        for line in self._framer.close():
            yield from self._take(line)
        yield from self._document()
        self._take_bom()

    @property
    def fed(self) -> int:
        """How many bytes were fed."""
        return self._framer.fed

    def _go_on(self) -> None:
        if self._failed is not None:
            raise MalformedLine(*self._failed)

    def _take_bom(self) -> None:
        self.report.blank_bytes += self._framer.bom_bytes
        self._framer.bom_bytes = 0

    def _take(self, line: Line) -> Iterable[Record]:
        self.report.lines += 1
        if not self._held:
            return self._read(line)
        if self._may_go_on(line):
            self._held.append(line)
            return ()
        return self._release(line)

    def _read(self, line: Line) -> Iterable[Record]:
        report, body = self.report, line.body
        at_start, self._at_start = self._at_start, False
        if line.too_long:
            self._malformed(line, "line too long")
            return ()
        try:
            value = json.loads(body)
        except json.JsonError as error:
            if not body.strip(_BLANKS):
                report.blank += 1
                report.blank_bytes += line.size
                self._at_start = at_start
                return ()
            if at_start and error.reason == "cut off" and line.ended and body.lstrip(_BLANKS).startswith((b"{", b"[")):
                self._held.append(line)
                return ()
            self._rows = self._rows or (at_start and self._begins_rows(body))
            self._malformed(line, error.reason)
            return self._salvaged(line)
        report.records += 1
        if isinstance(value, dict):
            return (Record(body, value, line.number, line.offset, line.size),)
        if isinstance(value, list) and value:
            return self._elements(line, body, line.size, value)
        report.ignore_bytes(line.size, NOT_AN_OBJECT)
        return ()

    def _salvaged(self, line: Line) -> Iterator[Record]:
        found = salvage(line.body, self.is_record)
        for start, end, value in found or (self._row(line.body) if self._rows else ()):
            raw = line.body[start:end]
            lossy = not _is_utf8(raw)
            self.report.salvaged += 1
            self.report.lossy += lossy
            yield Record(raw, value, line.number, line.offset + start, 0, lossy=lossy, salvaged=True)

    def _elements(self, first: Line, text: bytes, size: int, values: list[Any]) -> Iterator[Record]:
        """An array of records, which begins with the line `first`, stands for its elements; they share out its bytes
        among them."""
        taken = counted = 0
        number = first.number
        last = len(values) - 1
        for index, (start, end) in enumerate(json.elements(text)):
            upto = size if index == last else end
            share, taken = upto - taken, upto
            number, counted = number + text.count(b"\n", counted, start), start
            value = values[index]
            if isinstance(value, dict):
                yield Record(text[start:end], value, number, first.offset + start, share)
            else:
                self.report.ignore_bytes(share, NOT_AN_OBJECT)

    def _row(self, body: bytes) -> list[_Found]:
        """The element of an array that has this line for itself."""
        match = _element_of(body)
        if match is None:
            return []
        at = match.start(1)
        return [(at + start, at + end, value) for start, end, value in salvage(match[1], self.is_record)]

    def _begins_rows(self, body: bytes) -> bool:
        return body.rstrip(_BLANKS).endswith(b",") and bool(self._row(body))

    # The document rule:

    def _may_go_on(self, line: Line) -> bool:
        """Whether a line may be the next one of the value whose beginning is held."""
        last = self._held[-1]
        held = last.offset + last.size - self._held[0].offset
        if line.too_long or held + line.size > self._framer.max_line_bytes:
            return False
        body = line.body.strip(_BLANKS)
        if body.startswith((b"{", b"[")) and body.endswith((b"}", b"]")):
            try:
                return not json.loads(body) or self._awaits_element()
            except json.JsonError:
                pass
        return not body or body.startswith(_TOKENS)

    def _awaits_element(self) -> bool:
        """Whether what is held is an array up to the place of an element."""
        filled = (body for line in reversed(self._held) if (body := line.body.strip(_BLANKS)))
        return self._held[0].body.strip(_BLANKS).startswith(b"[") and next(filled).endswith((b"[", b","))

    def _document(self) -> Iterator[Record]:
        """The source is over: what is held is a document, or it is not."""
        held = self._held
        size = len(held)
        while size and not held[size - 1].body.strip(_BLANKS):
            size -= 1
        after = held[size:]
        del held[size:]
        raw = b"".join(line.body + _LINE_ENDS[line.size - len(line.body)] for line in held).rstrip(b" \t\r\n")
        try:
            value = json.loads(raw)
        except json.JsonError:
            value = None
        share = sum(line.size for line in held)
        if isinstance(value, dict) and self.is_document(value):
            first = held[0]
            held.clear()
            self.report.records += 1
            yield Record(raw, value, line=first.number, offset=first.offset, share=share)
        elif isinstance(value, list) and value and isinstance(value[0], dict) and self.is_record(value[0]):
            first = held[0]
            held.clear()
            self.report.records += 1
            yield from self._elements(first, raw, share, value)
        yield from self._release(*after)

    def _release(self, *more: Line) -> Iterator[Record]:
        held, self._held = self._held, []
        bodies = (body for line in held if (body := line.body.strip(_BLANKS)))
        first = next(bodies, b"")
        if first.startswith(b"["):
            self._rows = self._begins_rows(first if first != b"[" else next(bodies, b""))
        for line in (*held, *more):
            yield from self._read(line)

    def _malformed(self, line: Line, reason: str) -> None:
        if not line.ended:
            self.report.truncated = True
        self.malformed_size = line.size - line.ended if line.too_long else len(line.body)
        self.report.malformed_line(line.number, line.offset, line.size, reason, line.body, self.on_malformed)
        if self._strict:
            self._failed = line.number, line.offset, reason
            self._go_on()


# -- salvage -----------------------------------------------------------------------------------------------------------

# What terminals and zero-filled disk blocks leave around a record: blanks and control characters, a byte order mark,
# and escape sequences (CSI; OSC and the other strings; the short ones). "{" is never taken for the end of a sequence.
_noise = re.compile(
    rb"[\x00-\x1a\x1c-\x20\x7f]+"
    rb"|\xef\xbb\xbf"
    rb"|\x1b\[[0-?]*[ -/]*[@-z|}~]"
    rb"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"
    rb"|\x1b[ -/]*[0-z|}~]"
    rb"|\x1b"
).match
_OPEN_OBJECT, _QUOTE = b'{"'
_MAX_ATTEMPTS = 1000  # per line; nothing real comes near

_Found = tuple[int, int, dict[str, Any]]


def salvage(body: bytes, is_record: Callable[[dict[str, Any]], bool]) -> list[_Found]:
    """The records that a malformed line still holds: (start, end, value) of each.

    An attempt begins at or close before the byte at which the one before it failed, so that the cost stays linear.
    """
    start = _after_noise(body, 0)
    if body[start : start + 1] != b"{":
        return []
    for _ in range(_MAX_ATTEMPTS):
        try:
            found, broken = _objects(body, start)
        except json.JsonError as error:
            if error.reason != "not JSON":
                return []  # every object behind `start` lies inside one that is cut off (or too deep)
            broken = error.offset
        else:
            if broken == len(body):
                good = len(found)
                while good and is_record(found[good - 1][2]):
                    good -= 1
                return found[good:]
        start = _restart(body, start, broken)
        if start < 0:
            break
    return []


def _objects(body: bytes, at: int) -> tuple[list[_Found], int]:
    """The whole objects that follow each other from `at`, and the end of the body if nothing but noise comes then,
    else the offset of what comes."""
    found: list[_Found] = []
    while at < len(body) and body[at] == _OPEN_OBJECT:
        value, end = json.scan(body, at, lax=True)
        found.append((at, end, value))
        at = json.after_blanks(body, end)
    return found, len(body) if _after_noise(body, at) == len(body) else at


def _restart(body: bytes, start: int, broken: int) -> int:
    """Where another record may begin that cut into the one at `start`, which breaks at `broken`; -1 for nowhere."""
    # Torn inside a string, the record takes the `{"` of the other one for the end of this string.
    at = _before_blanks(body, broken)
    if body[at - 1] == _QUOTE:
        at = _before_blanks(body, at - 1) - 1
        if body[at] == _OPEN_OBJECT and at > start:
            return at
    return body.find(b"{", broken)


def _before_blanks(body: bytes, at: int) -> int:
    while body[at - 1] in b" \t\n\r":  # the record's own "{" stops it
        at -= 1
    return at


def _after_noise(body: bytes, at: int) -> int:
    while match := _noise(body, at):
        at = match.end()
    return at


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


_BLOCKS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "thinking": "thinking",
    "tool_use": "input",
    "tool_result": "tool_use_id",
    "image": "source",
    "document": "source",
    "function": "function",
    "message": "role",
}
_RECORD_KEYS = ("timestamp", "session_id", "sessionId", "sessionID", "uuid")


def looks_like_record(value: dict[str, Any]) -> bool:
    """Whether an object has the shape of a top-level record of some dialect.

    Used for what is found on a damaged line when the dialect is not known. A content block or a chat message that
    dialects keep inside their records does not pass, unless it carries what only records have.
    """
    kind = value.get("type")
    if isinstance(kind, str):
        return _BLOCKS.get(kind) not in value or any(key in value for key in _RECORD_KEYS)
    if "jsonrpc" in value or isinstance(value.get("method"), str):
        return True
    msg = value.get("msg")
    if isinstance(msg, dict):
        return isinstance(msg.get("type"), str)
    return isinstance(value.get("role"), str) and "content" in value
