"""The raw layer: bytes in, records out, no dialect asked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from .detect import Detection, Detector
from .dialect import is_document, is_record
from .record import Intake, Record

NOT_ASKED_FOR = "type not asked for"  # the rule by which records of other types are left out


class Reader:
    """One stream from bytes to records; those of other native types than asked for are only counted."""

    def __init__(
        self,
        *,
        only: Collection[str] | None = None,
        strict: bool = False,
        max_line_bytes: int = 256 << 20,
        on_malformed: Callable[[dict[str, Any]], object] | None = None,
    ) -> None:
        self._only = None if only is None else frozenset(only)
        self._detector = Detector()
        self._detection: Detection | None = None
        self._intake = Intake(
            strict=strict,
            max_line_bytes=max_line_bytes,
            on_malformed=on_malformed,
            is_record=lambda value: is_record(value, self._detection and self._detection.dialect),
            is_document=lambda value: is_document(value, self._detection and self._detection.dialect),
        )

    @property
    def detection(self) -> Detection | None:
        """What the records so far say of the dialect."""
        return self._detection or self._detector.best()

    def report(self) -> dict[str, Any]:
        return self._intake.report.to_dict()

    def feed(self, chunk: bytes | bytearray | memoryview, out: Any = None) -> Any:
        """The records of the lines that these bytes complete, appended to ``out``."""
        return self._filter(self._intake.feed(chunk), out)

    def close(self, out: Any = None) -> Any:
        return self._filter(self._intake.close(), out)

    def _filter(self, records: Iterable[Record], out: Any) -> Any:
        out = [] if out is None else out
        for record in records:
            if self._detection is None and not self._detector.full:
                self._detection = self._detector.look(record.value, record.line, len(record.raw))
            if self._only is None or record.type in self._only:
                self._intake.report.event(record)
                out.append(record)
            else:
                self._intake.report.ignore(record, NOT_ASKED_FOR)
        return out
