"""What a FILE argument names, as a source: ``-`` is standard input, anything else a path."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ..api import Source
from ..errors import SourceError

__all__ = ["STDIN", "opened", "title"]

STDIN = "-"
LARGE = 64 << 20
"""Bytes from which a file is worth a progress bar."""


def title(name: str) -> str:
    """What a FILE argument is called in what is shown."""
    return "<stdin>" if name == STDIN else name


@contextmanager
def opened(name: str, *, waiting: Callable[[], None] | None = None, progress: bool = True) -> Iterator[Source]:
    """The source that a FILE argument names.

    Args:
        waiting: called before each read of a pipe: what is still buffered must go out now.
        progress: show a bar on stderr while a large file is read, if stderr is a terminal.

    Raises:
        SourceError: a pipe or device can't be opened. (A regular file is opened by who reads the source.)
    """
    if name == STDIN:
        if sys.stdin is None:
            raise SourceError("standard input is closed")
        yield _Piped(sys.stdin.buffer, title(name), waiting)
        return
    try:
        status = os.stat(name)
    except (OSError, ValueError):
        status = None  # whoever opens it says what is wrong with it
    if status is None or stat.S_ISDIR(status.st_mode):
        yield name
    elif not stat.S_ISREG(status.st_mode):
        with _open(name) as file:
            yield _Piped(file, name, waiting)
    elif progress and status.st_size >= LARGE and sys.stderr.isatty():
        with _open(name) as file, _bar(name, status.st_size) as read:
            yield _Watched(file, read)
    else:
        yield name


def _open(name: str) -> BinaryIO:
    try:
        return open(name, "rb")
    except OSError as error:
        raise SourceError(f"can't open {name!r}: {error.strerror}") from error


class _Piped:
    """What a pipe holds, as soon as it is there. Read in Python, so that Ctrl-C ends the waiting."""

    def __init__(self, file: Any, name: str, waiting: Callable[[], None] | None) -> None:
        self.name = name
        self._file = file
        self._waiting = waiting

    def read(self, size: int) -> bytes:
        if self._waiting is not None:
            self._waiting()
        block: bytes = self._file.read1(size)
        return block


class _Watched:
    """A file that tells how far it was read."""

    def __init__(self, file: BinaryIO, read: Callable[[int], object]) -> None:
        self.name = file.name
        self._file = file
        self._read = read

    def read(self, size: int) -> bytes:
        block = self._file.read(size)
        self._read(len(block))
        return block


@contextmanager
def _bar(name: str, size: int) -> Iterator[Callable[[int], object]]:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from .safe import one_line
    from .view import console

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console(sys.stderr), transient=True) as progress:
        task = progress.add_task(one_line(Path(name).name, 40), total=size)

        def read(count: int) -> Any:
            progress.advance(task, count)

        yield read
