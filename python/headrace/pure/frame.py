"""bytes -> lines.

A line ends at LF and nowhere else: U+2028, U+0085, VT, FF and a lone CR are ordinary bytes. One CR right before
the LF is left out. A UTF-8 byte order mark at the start of the stream is skipped; UTF-16 is refused, with a byte order
mark or without.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ..errors import MalformedLine, SourceError

__all__ = ["DEFAULT_MAX_LINE_BYTES", "KEPT_BYTES", "Framer", "Line", "named", "naming"]

DEFAULT_MAX_LINE_BYTES = 256 * 2**20
KEPT_BYTES = 200
"""How much of a line that is too long, or malformed, is kept to show."""

_BOM = b"\xef\xbb\xbf"
_UTF16 = re.compile(
    rb"(?P<UTF16>\xff\xfe|\xfe\xff)|(?P<UTF16LE>[{\[]\0[\x01-\x7f]\0)|(?P<UTF16BE>\0[{\[]\0[\x01-\x7f])"
)
"""With its byte order mark, or as an object or an array begins without. NULs alone do not tell: they come before and
after records, where a machine crashed."""
_UNDECIDED = re.compile(rb"(\xef\xbb?|[\xff\xfe]|[{\[](\0[\x01-\x7f]?)?|\0([{\[]\0?)?)?\Z")
"""More bytes decide if this is the start of a byte order mark or of UTF-16."""

_REFUSAL = "the stream begins as"


def named(error: BaseException, source: str | None) -> BaseException:
    """An error of what was fed, which does not know what it is fed from, with the name of that."""
    if source is None:
        return error
    if isinstance(error, MalformedLine) and error.source is None:
        return MalformedLine(error.line, error.offset, error.reason, source)
    if isinstance(error, SourceError) and str(error).startswith(_REFUSAL):
        return SourceError(f"{source}: {error}")
    return error


@contextmanager
def naming(source: str | None) -> Iterator[None]:
    """Errors of what is fed here get the name of their source."""
    try:
        yield
    except (MalformedLine, SourceError) as error:
        told = named(error, source)
        if told is error:
            raise
        raise told from None


class Line(NamedTuple):
    """One line of the stream."""

    number: int  # 1-based
    offset: int  # of its first byte in the stream (a BOM before it is not part of it)
    size: int  # in bytes, its LF and CR included: the sizes of all lines and the BOM add up to the stream
    body: bytes  # without the LF and one CR before it; of a line that is too long, the first 200 bytes
    ended: bool  # False for a last line without LF
    too_long: bool  # longer than max_line_bytes: dropped


class Framer:
    """A push state machine: chunks in, lines out, at a cost that is linear in bytes whatever the chunk sizes.

    `feed` and `close` are generators: a chunk is taken when its lines are asked for, so use up each
    before the next call.
    """

    def __init__(self, max_line_bytes: int = DEFAULT_MAX_LINE_BYTES) -> None:
        if max_line_bytes < 0:
            raise ValueError("max_line_bytes is negative")
        self.max_line_bytes = max_line_bytes
        self.bom_bytes = 0
        """3 when the stream began with a byte order mark (known once a line or the end was seen)."""
        self._number = 0
        self._offset = 0  # of the line being collected
        self._carry = bytearray()  # its bytes so far; no more than KEPT_BYTES once it is too long
        self._size = 0  # its size so far
        self._at_start = True  # the first bytes may still turn out to be a byte order mark or UTF-16

    @property
    def fed(self) -> int:
        """How many bytes were fed."""
        return len(self._carry) if self._at_start else self._offset + self._size

    def feed(self, chunk: bytes | bytearray | memoryview) -> Iterator[Line]:
        """The lines that end in this chunk."""
        data = chunk if isinstance(chunk, bytes) else bytes(chunk)
        if self._at_start:
            # Hold back what may be the beginning of a byte order mark or of UTF-16.
            data = bytes(self._carry) + data
            self._carry.clear()
            if _UNDECIDED.match(data):
                self._carry += data
                return
            data = self._skip_bom(data)
        yield from self._lines_of(data)

    def _lines_of(self, data: bytes) -> Iterator[Line]:
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            if self._size:
                self._collect(data, start, end)
                body, size = bytes(self._carry), self._size
                self._carry.clear()
                self._size = 0
            else:
                size = end - start
                body = data[start:end] if size <= self.max_line_bytes else data[start : min(end, start + KEPT_BYTES)]
            yield self._line(body, size, ended=True)
            start = end + 1
        if start < len(data):
            self._collect(data, start, len(data))

    def close(self) -> Iterator[Line]:
        """The last line, when the stream does not end with LF."""
        if self._at_start:
            held = bytes(self._carry)
            self._carry.clear()
            yield from self._lines_of(self._skip_bom(held))
        if self._size:
            body, size = bytes(self._carry), self._size
            self._carry.clear()
            self._size = 0
            yield self._line(body, size, ended=False)

    def _skip_bom(self, data: bytes) -> bytes:
        self._at_start = False
        if (found := _UTF16.match(data)) is not None:
            encoding = str(found.lastgroup).replace("16", "-16")
            raise SourceError(
                f"{_REFUSAL} {encoding} does, and headrace reads UTF-8: re-encode it, for example with "
                f"`iconv -f {encoding} -t UTF-8 IN > OUT`, or in PowerShell with "
                "`Get-Content IN | Set-Content -Encoding utf8 OUT` (there, `>` is what writes UTF-16)"
            )
        if data.startswith(_BOM):
            self._offset = self.bom_bytes = len(_BOM)
            return data[len(_BOM) :]
        return data

    def _collect(self, data: bytes, start: int, end: int) -> None:
        """Adds to the line that is split over chunks, in bounded memory."""
        self._size += end - start
        if self._size <= self.max_line_bytes:
            self._carry += memoryview(data)[start:end]
            return
        del self._carry[KEPT_BYTES:]
        room = KEPT_BYTES - len(self._carry)
        self._carry += data[start : min(end, start + room)]

    def _line(self, body: bytes, size: int, *, ended: bool) -> Line:
        too_long = size > self.max_line_bytes
        if ended:
            size += 1
            if not too_long and body.endswith(b"\r"):
                body = body[:-1]
        self._number += 1
        offset = self._offset
        self._offset += size
        return Line(self._number, offset, size, body, ended, too_long)
