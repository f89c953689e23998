"""The account: what became of every byte of the input."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .frame import KEPT_BYTES

if TYPE_CHECKING:
    from .record import Record

__all__ = ["MAX_MALFORMED_KEPT", "MAX_NAMES", "Report"]

MAX_MALFORMED_KEPT = 1000
"""Of how many malformed lines line number, offset, reason and text are kept."""
MAX_NAMES = 1000
"""How many different types (or rules) are counted one by one; the rest counts under "(other)"."""
_MAX_NAME = 100  # characters of a type that are kept

_Body = bytes  # in Report, `bytes` is the property


class Report:
    """The account of a stream so far.

    `bytes` is always `event_bytes + ignored_bytes + unknown_bytes + malformed_bytes + blank_bytes`. Bytes of a line
    that has not ended yet are in none of them.
    """

    def __init__(self) -> None:
        self.lines = 0
        self.records = 0
        """Lines that are one valid JSON text, of any kind."""
        self.malformed = 0
        """The other lines that are not blank."""
        self.salvaged = 0
        """Records got back from malformed lines."""
        self.lossy = 0
        """Records in whose text something became U+FFFD."""
        self.blank = 0
        self.event_bytes = 0
        self.ignored_bytes = 0
        self.unknown_bytes = 0
        self.malformed_bytes = 0
        self.blank_bytes = 0
        """Blank lines, and a byte order mark."""
        self.event_records = 0
        """Records that a dialect knows."""
        self.unknown: dict[str, list[int]] = {}
        """Records of unknown types: how many and their bytes, by native type."""
        self.ignored: dict[str, list[int]] = {}
        """What was left out on purpose: how many and their bytes, by rule."""
        self.truncated = False
        """The stream ends in a line without LF that is not valid."""
        self.malformed_lines: list[dict[str, Any]] = []
        """``{"line", "offset", "reason", "text"}`` of the first 1,000; text is the first 200 bytes."""

    @property
    def bytes(self) -> int:
        return self.event_bytes + self.ignored_bytes + self.unknown_bytes + self.malformed_bytes + self.blank_bytes

    # For each record one of these three is called:

    def event(self, record: Record) -> None:
        """A dialect knows this record."""
        self.event_records += 1
        self.event_bytes += record.share

    def ignore(self, record: Record, rule: str) -> None:
        """A dialect knows this record and leaves it out, by a rule that it can name."""
        self.ignore_bytes(record.share, rule)

    def unknown_type(self, record: Record, native_type: str | None) -> None:
        """No dialect knows a record of this type."""
        self.unknown_bytes += record.share
        _count(self.unknown, native_type, record.share)

    def lossy_record(self) -> None:
        """Half a character in a record's text became U+FFFD. A record that was salvaged so is counted already."""
        self.lossy += 1

    # The intake calls these:

    def ignore_bytes(self, size: int, rule: str) -> None:
        self.ignored_bytes += size
        _count(self.ignored, rule, size)

    def malformed_line(
        self,
        line: int,
        offset: int,
        size: int,
        reason: str,
        body: _Body,
        on_malformed: Callable[[dict[str, Any]], object] | None,
    ) -> None:
        self.malformed += 1
        self.malformed_bytes += size
        if on_malformed is None and len(self.malformed_lines) >= MAX_MALFORMED_KEPT:
            return
        text = body[:KEPT_BYTES].decode("utf-8", "replace")
        entry = {"line": line, "offset": offset, "reason": reason, "text": text}
        if len(self.malformed_lines) < MAX_MALFORMED_KEPT:
            self.malformed_lines.append(entry)
        if on_malformed is not None:
            on_malformed(entry)

    def to_dict(self) -> dict[str, Any]:
        return {
            "bytes": self.bytes,
            "lines": self.lines,
            "records": self.records,
            "malformed": self.malformed,
            "salvaged": self.salvaged,
            "lossy": self.lossy,
            "blank": self.blank,
            "event_bytes": self.event_bytes,
            "ignored_bytes": self.ignored_bytes,
            "unknown_bytes": self.unknown_bytes,
            "malformed_bytes": self.malformed_bytes,
            "blank_bytes": self.blank_bytes,
            "event_records": self.event_records,
            "unknown": _column(self.unknown, 0),
            "unknown_sizes": _column(self.unknown, 1),
            "ignored": _column(self.ignored, 0),
            "ignored_sizes": _column(self.ignored, 1),
            "truncated": self.truncated,
            "malformed_lines": [dict(entry) for entry in self.malformed_lines],
        }


def _column(tallies: dict[str, list[int]], at: int) -> dict[str, int]:
    return {name: tally[at] for name, tally in sorted(tallies.items())}


def _count(tallies: dict[str, list[int]], name: str | None, size: int) -> None:
    """Counts a name that the input chose: neither many nor long nor odd ones may grow the account."""
    name = "(none)" if name is None else name[:_MAX_NAME]
    if name not in tallies:
        name = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in name)
        if name not in tallies and len(tallies) >= MAX_NAMES:
            name = "(other)"
    tally = tallies.setdefault(name, [0, 0])
    tally[0] += 1
    tally[1] += size
