"""Several sessions in one source: each run is read by an engine of its own, from border to border."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from . import _backend
from .errors import MalformedLine
from .result import Run, last_run_of

__all__ = ["Start", "engines", "split"]

Start = tuple[int, int]  # line and offset of the first byte of a run in its source

_SLICE = 1 << 20  # how much of a chunk is looked at before runs are given
_SPARE = 2 << 20  # what borders may hold back besides one line


def split(chunks: _backend.decompress, options: dict[str, Any], source: str) -> Iterator[Run]:
    """The runs of a source, each as soon as it is certain that the next one has begun.

    ``source`` is what messages call it.
    """
    for engine, start in engines(chunks, options, source):
        yield last_run_of(engine, start=start)


def engines(chunks: _backend.decompress, options: dict[str, Any], source: str) -> Iterator[tuple[Any, Start]]:
    """As `split`: the engines that have read the runs, and where those begin."""
    with closing(chunks):  # the file, however the reading ends
        yield from _engines(chunks, options, source)


def _engines(chunks: Iterator[Any], options: dict[str, Any], source: str) -> Iterator[tuple[Any, Start]]:
    limit: int = options["max_line_bytes"]
    borders = _backend.Borders(dialect=options["dialect"], max_line_bytes=limit, source=source)
    options = {**options, "source": source}
    start = (1, 0)
    engine = _engine(options, start)
    held, base = bytearray(), 0  # what no engine has got yet, and its offset
    for chunk in _slices(chunks):
        held += chunk
        for place in borders.feed(chunk):
            _feed(engine, start, _taken(held, place[1] - base))
            base = place[1]
            yield _closed(engine, start)
            engine, start = _engine(options, place), place
        certain = borders.certain - base
        if len(held) > limit + _SPARE:  # a line that is passed over
            certain = len(held)
        if certain > 0:
            _feed(engine, start, _taken(held, certain))
            base += certain
    for place in borders.close():
        _feed(engine, start, _taken(held, place[1] - base))
        base = place[1]
        yield _closed(engine, start)
        engine, start = _engine(options, place), place
    _feed(engine, start, bytes(held))
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


def _engine(options: dict[str, Any], start: Start) -> Any:
    tell = options["on_malformed"]
    if tell is None:
        return _backend.Engine(kinds=(), **options)

    def tell_of(line: dict[str, Any]) -> None:
        place = {"line": line["line"] + start[0] - 1, "offset": line["offset"] + start[1]}
        tell({**line, **place})

    return _backend.Engine(kinds=(), **{**options, "on_malformed": tell_of})


def _feed(engine: Any, start: Start, data: bytes) -> None:
    with _placed(start):
        engine.feed(data)


@contextmanager
def _placed(start: Start) -> Iterator[None]:
    """An error tells the line of the source, as ``on_malformed`` does: who gets it has no run to add the start of."""
    try:
        yield
    except MalformedLine as error:
        line, offset = error.line + start[0] - 1, error.offset + start[1]
        raise MalformedLine(line, offset, error.reason, error.source) from None


def _closed(engine: Any, start: Start) -> tuple[Any, Start]:
    with _placed(start):
        engine.close()
    return engine, start
