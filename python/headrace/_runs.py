"""Several sessions in one source: each run is read by an engine of its own, from border to border."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import _backend
from .result import Run, last_run_of

__all__ = ["Start", "split"]

Start = tuple[int, int]  # line and offset of the first byte of a run in its source

_SLICE = 1 << 20  # how much of a chunk is looked at before runs are given
_SPARE = 2 << 20  # what borders may hold back besides one line


def split(chunks: Iterator[Any], options: dict[str, Any]) -> Iterator[Run]:
    """The runs of a source, each as soon as it is certain that the next one has begun."""
    limit: int = options["max_line_bytes"]
    borders = _backend.Borders(dialect=options["dialect"], max_line_bytes=limit)
    engine, start = _engine(options), (1, 0)
    held, base = bytearray(), 0  # what no engine has got yet, and its offset
    for chunk in _slices(chunks):
        held += chunk
        for place in borders.feed(chunk):
            engine.feed(_taken(held, place[1] - base))
            base = place[1]
            yield _closed(engine, start)
            engine, start = _engine(options), place
        certain = borders.certain - base
        if len(held) > limit + _SPARE:  # a line that is passed over
            certain = len(held)
        if certain > 0:
            engine.feed(_taken(held, certain))
            base += certain
    for place in borders.close():
        engine.feed(_taken(held, place[1] - base))
        base = place[1]
        yield _closed(engine, start)
        engine, start = _engine(options), place
    engine.feed(bytes(held))
    yield _closed(engine, start)


def _slices(chunks: Iterator[Any]) -> Iterator[memoryview]:
    for chunk in chunks:
        view = memoryview(chunk)
        for at in range(0, len(view), _SLICE):
            yield view[at : at + _SLICE]


def _taken(held: bytearray, size: int) -> bytes:
    """The first bytes, which are held no more."""
    taken = bytes(held[:size])
    del held[:size]
    return taken


def _engine(options: dict[str, Any]) -> Any:
    return _backend.Engine(kinds=(), **options)


def _closed(engine: Any, start: Start) -> Run:
    engine.close()
    return last_run_of(engine, start=start)
