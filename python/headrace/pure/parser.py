"""The push parser: bytes in, events out, with the run and the report at any moment."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from . import event as ev
from . import state
from .detect import Detection, Detector
from .dialect import DIALECTS, Mapper, is_document, is_record
from .emit import Emitter
from .event import Event
from .record import Intake, Record
from .report import Report
from .run import Exit, Reducer

MAX_TAIL = 100  # lines of text after the last record that a mapper may look at

Out = Any  # a list or deque of event dicts and records


class Parser:
    """One stream from bytes to events and run.

    Args:
        dialect: name of the dialect, or None to find it.
        kinds: event kinds to give out; None for all but ``state``.
        types: native types of records that are given out too, each before its events.
        strict: salvage nothing, raise MalformedLine.
        spans: each event says where its record stands.
        max_line_bytes: longer lines are dropped and reported.
        max_result_bytes: how much of each tool result the run keeps; None for all.
        cut_later: only tell what is to be cut, and keep all of it.
        on_malformed: called with each malformed line's dict.
    """

    def __init__(
        self,
        *,
        dialect: str | None = None,
        kinds: Collection[str] | None = None,
        types: Collection[str] | None = None,
        strict: bool = False,
        spans: bool = False,
        max_line_bytes: int = 256 << 20,
        max_result_bytes: int | None = None,
        cut_later: bool = False,
        on_malformed: Callable[[dict[str, Any]], object] | None = None,
    ) -> None:
        self.detection: Detection | None = None
        self._kinds = frozenset(ev.KINDS) - {ev.STATE} if kinds is None else frozenset(kinds)
        self._types = frozenset(types or ())
        self._on_malformed = on_malformed
        self._spans = spans
        self._tail: list[dict[str, Any]] = []  # the malformed lines since the last record
        self._tail_size = 0  # bytes of the first of them
        self._intake = Intake(strict=strict, max_line_bytes=max_line_bytes)
        self._detector = Detector()
        self._waiting: list[Record] = []  # until the dialect is known
        self._mapper: Mapper | None = None
        self._told = False  # an event came of the record
        self._reducer = Reducer(max_result_bytes, cut_later)
        self._out: Out = []
        self._emitter: Emitter | None = None
        self._closed = False
        self._connect()
        if dialect is not None:
            self._decide(Detection(dialect, None, 1.0, ["given by the caller"]))

    @property
    def dialect(self) -> str | None:
        return None if self.detection is None else self.detection.dialect

    def report(self) -> dict[str, Any]:
        return self._report.to_dict()

    def feed(self, chunk: bytes | bytearray | memoryview, out: Out | None = None) -> Out:
        """Takes the next bytes; gives the events of the lines that they complete (appended to ``out``)."""
        self._out = out = [] if out is None else out
        for record in self._intake.feed(chunk):
            self._take(record)
        return out

    def close(self, out: Out | None = None) -> Out:
        """The stream is over: an unfinished last line counts now. Gives the last events."""
        self._out = out = [] if out is None else out
        if self._closed:
            return out
        self._closed = True
        for record in self._intake.close():
            self._take(record)
        if self._mapper is None:
            self._settle(self._detector.best() or self._detector.by_text(self._tail))
        if self._mapper is not None and self._emitter is not None:
            self._emitter.lossy = False
            self._read_tail()
            self._mapper.close()
            self._emitter.finish()
            if self._emitter.lossy:
                self._report.lossy_record()
        return out

    def run(self, exit: Exit | None = None) -> dict[str, Any]:
        """The run so far, as ``Run.to_dict()`` has it."""
        judge = None if self._mapper is None else self._mapper.judge
        return self._reducer.to_dict(self.dialect, self._report.to_dict(), judge, exit)

    def ledger(self) -> list[dict[str, Any]]:
        """Each model call so far, as ``Run.ledger`` has it."""
        return self._reducer.ledger.rows()

    def last_call_time(self) -> str | None:
        """See `Reducer.last_call_time`."""
        return self._reducer.last_call_time()

    def printed_models(self) -> list[dict[str, Any]]:
        """The harness's own total of each model, as far as it prints them."""
        return self._reducer.ledger.printed()

    @property
    def ending(self) -> str | None:
        """See `Progress.word`."""
        return self._reducer.progress.word()

    # ------------------------------------------------------------ stopping and going on

    @property
    def offset(self) -> int:
        """How many bytes were fed."""
        return self._intake.fed

    def snapshot(self) -> bytes:
        """All that is known so far, the bytes of an unfinished last line included."""
        self._out = []
        return state.dump(self)

    @classmethod
    def restore(cls, snapshot: bytes, on_malformed: Callable[[dict[str, Any]], object] | None = None) -> Parser:
        """The parser that a snapshot was made of; ValueError for bytes that are none."""
        parser = state.load(snapshot)
        if not isinstance(parser, cls):
            raise ValueError("no parser")
        parser._on_malformed = on_malformed
        try:
            parser._connect()
        except (AttributeError, LookupError, TypeError) as error:
            raise ValueError("no whole parser") from error
        return parser

    def _connect(self) -> None:
        """What the parts call: the only thing that is not in a snapshot."""
        self._intake.on_malformed = self._malformed
        self._intake.is_record = lambda value: is_record(value, self.dialect)
        self._intake.is_document = lambda value: is_document(value, self.dialect)
        if self._emitter is not None:
            self._emitter.sink = self._sink

    # ------------------------------------------------------------ inside

    @property
    def _report(self) -> Report:
        return self._intake.report

    def _malformed(self, entry: dict[str, Any]) -> None:
        if not self._tail:
            self._tail_size = self._intake.malformed_size
        if len(self._tail) < MAX_TAIL:
            self._tail.append(entry)
        if self._on_malformed is not None:
            self._on_malformed(entry)

    def _read_tail(self) -> None:
        """Some harnesses print plain text where they fail: mappers that have ``tail`` are told of it."""
        tail = getattr(self._mapper, "tail", None)
        emitter = self._emitter
        if tail is not None and self._tail and emitter is not None:
            place = emitter.line, emitter.offset, emitter.size
            first = self._tail[0]
            emitter.line, emitter.offset, emitter.size = first["line"], first["offset"], self._tail_size
            tail([entry["text"] for entry in self._tail])
            emitter.line, emitter.offset, emitter.size = place

    def _take(self, record: Record) -> None:
        self._tail.clear()
        if self._mapper is not None:
            self._map(record)
            return
        self._waiting.append(record)
        found = self._detector.look(record.value, record.line, len(record.raw))
        if found is not None:
            self._settle(found)
        elif self._detector.full:
            self._settle(None)

    def _settle(self, found: Detection | None) -> None:
        """Decides on a dialect, or that the records that wait are of none."""
        if found is not None:
            self._decide(found)
        waiting, self._waiting = self._waiting, []
        for record in waiting:
            self._map(record)

    def _decide(self, found: Detection) -> None:
        self.detection = found
        self._emitter = Emitter(self._sink, found.dialect)
        self._mapper = DIALECTS[found.dialect].Mapper(self._emitter)

    def _map(self, record: Record) -> None:
        if record.type in self._types:
            self._out.append(record)
        emitter, mapper = self._emitter, self._mapper
        if mapper is None or emitter is None:
            self._report.unknown_type(record, record.type)
            return
        emitter.line, emitter.offset, emitter.size = record.line, record.offset, len(record.raw)
        emitter.surrogates, emitter.lossy = record.may_hold_surrogates, False
        self._told = False
        outcome = mapper.map(record)
        # of a record to be left out, what stands around it, or that it comes now, may still make an event
        if outcome is None or (isinstance(outcome, str) and self._told):
            self._report.event(record)
        elif isinstance(outcome, str):
            self._report.ignore(record, outcome)
        else:
            self._report.unknown_type(record, record.type)
        if emitter.lossy and not record.lossy:  # the intake has counted the latter
            self._report.lossy_record()

    def _sink(self, event: Event) -> None:
        self._told = True
        self._reducer.take(event)
        if event.kind in self._kinds:
            self._out.append(event.to_dict(self._spans))
