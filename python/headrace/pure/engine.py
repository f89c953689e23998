"""The pure backend behind the public functions: what the native extension's classes are in Rust."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from os import PathLike
from typing import Any

from .._owner import Owner
from ..errors import SnapshotError, UnknownDialect
from . import event as ev
from . import source
from .detect import Detection
from .dialect import DIALECTS as _DIALECTS
from .frame import named, naming
from .parser import Parser
from .reader import Reader as _Reader
from .record import Record
from .run import Exit
from .turns import Turns

__all__ = ["DIALECTS", "Engine", "Reader", "Record"]

DIALECTS = list(_DIALECTS)
Chunk = bytes | bytearray | memoryview
_SLICE = 1 << 16  # how much of a large chunk is parsed at a time


class _Pull(Owner):
    """Pulling from an attached source: what came out before an error is given before the error is raised."""

    _parser: Any

    def __init__(self) -> None:
        self._turns = Turns()
        self._chunks: Iterator[Chunk] | None = None
        self._name: str | None = None  # what messages call the source
        self._ready: deque[Any] = deque()
        self._failed: BaseException | None = None
        self._done = False

    def feed(self, chunk: Chunk) -> list[Any]:
        if not isinstance(chunk, (bytes, bytearray, memoryview)):
            chunk = memoryview(chunk).cast("B")  # what has no bytes at all raises TypeError
        with self._turns, naming(self._name):
            fed: list[Any] = self._parser.feed(chunk)
        return fed

    def close(self) -> list[Any]:
        with self._turns, naming(self._name):
            last: list[Any] = self._parser.close()
        return last

    def report(self) -> dict[str, Any]:
        with self._turns:
            report: dict[str, Any] = self._parser.report()
        return report

    @property
    def detection(self) -> tuple[str, str | None, float, list[str]] | None:
        with self._turns:
            found: Detection | None = self._parser.detection
        return None if found is None else (found.dialect, found.version, found.confidence, found.why)

    def attach_path(self, path: str | PathLike[str]) -> None:
        chunks, self._name = source.chunks(path)
        self._chunks = _slices(chunks)

    def attach_descriptor(self, number: int, name: str) -> None:
        self._chunks, self._name = _slices(source.chunks(number)[0]), name

    def attach_chunks(self, chunks: Iterator[Chunk], name: str) -> None:
        self._chunks, self._name = _slices(source.decompress(chunks, name)), name

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        with self._turns:
            while not self._ready:
                self._step()
            return self._ready.popleft()

    def _step(self) -> None:
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed
        if self._done:
            raise StopIteration
        try:
            chunk = None if self._chunks is None else next(self._chunks, None)
            if chunk is None:
                self._done = True
                self._parser.close(self._ready)
            else:
                self._parser.feed(chunk, self._ready)
        except BaseException as error:
            self._done = True
            self._chunks = None  # the file is closed, however long somebody keeps the error
            self._failed = named(error, self._name)


class Engine(_Pull):
    """One stream from bytes to event dicts and run; see the native class for the arguments."""

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
        source: str | None = None,
    ) -> None:
        super().__init__()
        self._name = source
        if dialect is not None and dialect not in _DIALECTS:
            raise UnknownDialect(f"no dialect is called {dialect!r}; known are: {', '.join(_DIALECTS)}")
        for kind in kinds or ():
            if kind not in ev.KINDS:
                raise ValueError(f"no event kind is called {kind!r}")
        if max_result_bytes is not None and max_result_bytes < 0:
            raise ValueError("max_result_bytes is negative")
        self._parser = Parser(
            dialect=dialect,
            kinds=kinds,
            types=types,
            strict=strict,
            spans=spans,
            max_line_bytes=max_line_bytes,
            max_result_bytes=max_result_bytes,
            cut_later=cut_later,
            on_malformed=on_malformed,
        )

    def run(self, code: int | None = None, stderr: bytes | None = None) -> dict[str, Any]:
        with self._turns:
            run: dict[str, Any] = self._parser.run(Exit(code, stderr or b""))
        return run

    def run_part(self, key: str, code: int | None = None, stderr: bytes | None = None) -> Any:
        return self.run(code, stderr)[key]

    def ledger(self) -> list[dict[str, Any]]:
        with self._turns:
            rows: list[dict[str, Any]] = self._parser.ledger()
        return rows

    def last_call_time(self) -> str | None:
        with self._turns:
            time: str | None = self._parser.last_call_time()
        return time

    def printed_models(self) -> list[dict[str, Any]]:
        with self._turns:
            models: list[dict[str, Any]] = self._parser.printed_models()
        return models

    @property
    def ending(self) -> str | None:
        with self._turns:
            ending: str | None = self._parser.ending
        return ending

    @property
    def offset(self) -> int:
        with self._turns:
            offset: int = self._parser.offset
        return offset

    def snapshot(self) -> bytes:
        with self._turns:
            snapshot: bytes = self._parser.snapshot()
        return snapshot

    @staticmethod
    def restore(snapshot: bytes, *, on_malformed: Callable[[dict[str, Any]], object] | None = None) -> Engine:
        try:
            parser = Parser.restore(snapshot, on_malformed)
        except ValueError as error:
            raise SnapshotError("the snapshot is damaged") from error
        engine = Engine()
        engine._parser = parser
        return engine

    def drain_source(self) -> None:
        for _ in self:
            pass


class Reader(_Pull):
    """One stream from bytes to records; see the native class for the arguments."""

    def __init__(
        self,
        *,
        only: Collection[str] | None = None,
        strict: bool = False,
        max_line_bytes: int = 256 << 20,
        on_malformed: Callable[[dict[str, Any]], object] | None = None,
    ) -> None:
        super().__init__()
        self._parser = _Reader(only=only, strict=strict, max_line_bytes=max_line_bytes, on_malformed=on_malformed)


def _slices(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """Large chunks in parts: the consumer gets what is there before the rest is parsed."""
    for chunk in chunks:
        if len(chunk) <= _SLICE:
            yield chunk
            continue
        view = memoryview(chunk)
        for at in range(0, len(view), _SLICE):
            yield view[at : at + _SLICE]
