"""The errors that headrace raises. Each message says what happened, where, why, and what to do."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "HeadraceError",
    "MalformedLine",
    "MismatchedTranscript",
    "SnapshotError",
    "SourceError",
    "SpillError",
    "UnknownDialect",
]


class HeadraceError(Exception):
    """Base of every error that headrace raises on purpose."""


class MalformedLine(HeadraceError):
    """A line that is not one JSON text, met with ``strict=True``.

    Attributes:
        line: line number, 1-based.
        offset: byte offset of the line's first byte in the stream (after decompression).
        reason: what is wrong with the line, in words.
        source: what messages call the source; None where there is none, as for a `Parser`.
    """

    def __init__(self, line: int, offset: int, reason: str, source: str | None = None) -> None:
        where = "" if source is None else f"{source}: "
        super().__init__(
            f"{where}line {line} (byte offset {offset}) is not valid JSON: {reason}; "
            "read with strict=False to count such lines in the report and go on"
        )
        self.line = line
        self.offset = offset
        self.reason = reason
        self.source = source

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.line, self.offset, self.reason, self.source)


class UnknownDialect(HeadraceError, ValueError):
    """``dialect=`` names no dialect that headrace knows."""


class MismatchedTranscript(HeadraceError, ValueError):
    """``transcript=`` names a file of another session, or of another harness, than the stream."""


class SnapshotError(HeadraceError, ValueError):
    """The bytes are no snapshot that this version and backend can restore: of another one, cut off, or damaged."""


class SourceError(HeadraceError, OSError):
    """The source can't be read: missing, a directory, no permission, text mode, corrupt compression, UTF-16, ...

    Where it is the system that says so, ``__cause__`` is its `OSError`, with the ``errno``.
    """


class SpillError(HeadraceError, OSError):
    """The intake could not keep what a live source printed (disk full, spill limit)."""
