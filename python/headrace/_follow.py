"""``follow``: the events of a session file while a harness writes it.

A file is looked at when the system tells that something happened to it (inotify, with the native backend on Linux), and
every ``interval`` seconds. Only whole lines are read: what follows the last LF waits for its rest.
The file at the path may be replaced, cut or rewritten at any time. Then its content decides, not its size or inode: if
it still begins with everything that was read (a harness that writes the file anew and renames it), reading goes on
behind that; if not, it is read from its beginning, as another session.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NamedTuple

from . import _backend, api
from .errors import SourceError
from .pure.source import is_compressed
from .result import SoFar

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._native import Watch as _Watch
    from .types import OutputEvent

Watch: type[_Watch] | None = None
if _backend.backend == "native":
    with contextlib.suppress(ImportError):  # on Linux only
        from ._native import Watch

__all__ = ["Follow", "Restart", "follow"]

Restart = Literal["replaced", "truncated", "rewritten"]
"""Why a file is read from its beginning again: another file is at the path; it is shorter than what was read of it;
what was read of it is not there any more."""

_BLOCK = 1 << 18
_SETTLE = 0.05  # seconds: a file that is being written anew is shorter for a moment than what was read
_SEEN = 4096  # bytes before the place of reading that are compared when the file has grown


class _State(NamedTuple):
    """What tells that a file may have changed."""

    device: int
    inode: int
    size: int
    changed: int


class _Bell:
    """Waits until it is worth a look at a file: something happened to it, a time has passed, or it is closed."""

    def __init__(self, path: str) -> None:
        folder, name = os.path.split(path)
        self._folder, self._name = folder or os.curdir, os.fsencode(name)
        self._lock = threading.RLock()  # a signal handler may close it too
        self._closed = threading.Event()
        self._watch: _Watch | None = None
        self._pipe: tuple[int, int] | None = None
        self._listen()

    def _listen(self) -> None:
        """Has the system tell, where it does. What it does not tell of is found all the same, a little later."""
        if Watch is not None and not self._closed.is_set():
            with contextlib.suppress(OSError):  # no such folder yet, or too many watches
                self._watch = Watch(self._folder)
                self._pipe = self._pipe or os.pipe()

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    def wait(self, seconds: float) -> None:
        if self._watch is None or self._pipe is None:
            self._closed.wait(seconds)
            self._listen()
            return
        deadline = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self._watch.fileno(), select.POLLIN)
        poll.register(self._pipe[0], select.POLLIN)
        while (left := deadline - time.monotonic()) > 0 and not self._closed.is_set():
            poll.poll(left * 1000)
            try:
                news = self._watch.news_of(self._name)
            except OSError:
                news = None
            if news is None:
                self._watch = None  # the folder has gone: perhaps there will be another
                return
            if news:
                return

    def close(self) -> None:
        """Ends a `wait`, from any thread."""
        with self._lock:
            if not self._closed.is_set():
                self._closed.set()
                if self._pipe is not None:
                    os.write(self._pipe[1], b"x")

    def free(self) -> None:
        """Nobody waits any more."""
        with self._lock:
            self._closed.set()
            self._watch = None
            if self._pipe is not None:
                for end in self._pipe:
                    os.close(end)
                self._pipe = None


class Follow(SoFar):
    """An iterator of the events of a growing file; what `follow` returns. It ends when it is closed, or idle too long.
    ``run`` and ``report`` are of the file as it is now: of the whole lines since the last restart.

    Attributes:
        offset: behind the last whole line that was read: where another ``follow(path, offset=...)`` can go on.
        restarts: why the file was read from its beginning again, each time.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        make: Callable[[], _backend.Engine],
        *,
        offset: int,
        interval: float,
        idle_timeout: float | None,
        on_restart: Callable[[Restart], object] | None,
        max_line_bytes: int,
    ) -> None:
        self._descriptor = -1
        self._path = os.fspath(path)
        self._bell = _Bell(self._path)
        self._make = make
        self._engine = make()
        self._interval = interval
        self._idle_timeout = idle_timeout
        self._on_restart = on_restart
        self._ready: deque[OutputEvent] = deque()
        self._state: _State | None = None
        self._short: tuple[_State, float] | None = None  # the file is shorter than what was read, since when
        self.offset = offset
        self.restarts: list[Restart] = []
        self._start = offset  # what lies before it was read by somebody else
        self._sum = 0  # checksum of what was read, from `start`
        self._rest = bytearray()  # of a line without its LF
        self._max_line_bytes = max_line_bytes
        self._passed = 0  # so much of that line is longer than a line may be, and was fed
        self._last = b""  # the bytes before the place of reading
        self._over = False
        self._quiet_since = time.monotonic()

    # ------------------------------------------------------------ the iterator

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> OutputEvent:
        while not self._ready:
            if self._over:
                raise StopIteration
            if self._bell.is_closed:
                self._end()
            elif self._look():
                self._quiet_since = time.monotonic()
            elif self._short is not None:
                self._bell.wait(min(self._interval, _SETTLE))
            elif self._is_idle():
                self._end()
            else:
                self._bell.wait(self._interval)
        return self._ready.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        self._end()

    def close(self) -> None:
        """Ends the iteration, from any thread. A line without its LF is not read: ``offset`` is before it."""
        self._bell.close()

    def __del__(self) -> None:
        self._leave()
        self._bell.free()

    # ------------------------------------------------------------ inside

    def _is_idle(self) -> bool:
        return self._idle_timeout is not None and time.monotonic() - self._quiet_since >= self._idle_timeout

    def _end(self) -> None:
        if not self._over:
            self._over = True
            self._leave()
            self._bell.free()
            self._ready.extend(self._engine.close())

    def _leave(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _look(self) -> bool:
        """Reads what is new; False if nothing is."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            self._short = None
            return self._descriptor >= 0 and self._read()  # what was written before it went
        except OSError as error:
            raise SourceError(f"can't follow {self._path!r}: {error.strerror}") from error
        if not stat.S_ISREG(found.st_mode):
            raise SourceError(f"can't follow {self._path!r}: it is no regular file")
        state = _State(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        if state == self._state:
            return self._at < state.size and self._read()
        if self._state is not None and state.size < self._at and self._is_settling(state):
            return state[:2] != self._state[:2] and self._read()
        self._short = None
        before, self._state = self._state, state
        if before is None:
            self._open()
        elif state[:2] != before[:2]:
            while self._read():  # the old file to its end
                pass
            self._open()
            if not self._is_what_was_read():
                self._restart("replaced")
        elif state.size < self._at:
            self._restart("truncated")
        elif not self._is_what_was_read(whole=state.size <= before.size):
            self._restart("rewritten")
        return self._read()

    def _is_settling(self, state: _State) -> bool:
        """Whether the file has become this short just now: its writer may be about to write it anew."""
        now = time.monotonic()
        if self._short is None or self._short[0] != state:
            self._short = state, now
        return now - self._short[1] < _SETTLE

    @property
    def _at(self) -> int:
        """The place of reading: behind the rest of an unfinished line."""
        return self.offset + self._passed + len(self._rest)

    def _open(self) -> None:
        self._leave()
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except FileNotFoundError:
            self._state = None  # gone again: the next look finds it, or not
        except OSError as error:
            raise SourceError(f"can't follow {self._path!r}: {error.strerror}") from error

    def _is_what_was_read(self, whole: bool = True) -> bool:
        """Whether the file still holds what was read of it: all of it, or what comes right before."""
        if self._descriptor < 0:
            return True
        if os.pread(self._descriptor, len(self._last), self._at - len(self._last)) != self._last:
            return False
        if not whole:
            return True
        at, total = self._start, 0
        while at < self._at:
            block = os.pread(self._descriptor, min(_BLOCK, self._at - at), at)
            if not block:
                return False
            total = zlib.crc32(block, total)
            at += len(block)
        return total == self._sum

    def _restart(self, why: Restart) -> None:
        self._ready.extend(self._engine.close())
        self._engine = self._make()
        self.offset = self._start = self._sum = self._passed = 0
        self._rest.clear()
        self._last = b""
        self.restarts.append(why)
        if self._on_restart is not None:
            self._on_restart(why)

    def _read(self) -> bool:
        """One block at most: the consumer gets what is there before more is read."""
        if self._descriptor < 0:
            return False
        try:
            block = os.pread(self._descriptor, _BLOCK, self._at)
        except OSError as error:
            raise SourceError(f"can't read {self._path!r}: {error.strerror}") from error
        if not block:
            return False
        if self._at == 0 and is_compressed(block):
            raise SourceError(
                f"can't follow {self._path!r}: it is compressed and does not grow by lines; `events` reads it"
            )
        self._sum = zlib.crc32(block, self._sum)
        self._last = (self._last + block)[-_SEEN:]
        end = block.rfind(b"\n") + 1
        if end:
            lines = bytes(self._rest) + block[:end]
            self.offset += self._passed + len(lines)
            self._passed = 0
            self._rest.clear()
            self._ready.extend(self._engine.feed(lines))
        self._rest += block[end:]
        if self._passed + len(self._rest) > self._max_line_bytes:
            self._passed += len(self._rest)
            self._ready.extend(self._engine.feed(bytes(self._rest)))
            self._rest.clear()
        return True


def follow(
    path: str | os.PathLike[str],
    *,
    offset: int = 0,
    interval: float = 0.1,
    idle_timeout: float | None = None,
    on_restart: Callable[[Restart], object] | None = None,
    only: Iterable[str] | None = None,
    state: bool = False,
    dialect: str | None = None,
    strict: bool = False,
    spans: bool = False,
    max_line_bytes: int = api.MAX_LINE_BYTES,
    max_result_bytes: int | None = None,
    on_malformed: api.OnMalformed | None = None,
) -> Follow:
    """The events of a session file that is being written, each as soon as its line is whole.

    Args:
        path: the file; it need not be there yet.
        offset: where to begin: the ``offset`` of an earlier `Follow`.
        interval: seconds between two looks at the file when nothing is told of it.
        idle_timeout: end after so many seconds without anything new; None follows until it is closed.
        on_restart: called with ``"replaced"``, ``"truncated"`` or ``"rewritten"`` when the file is read from its
            beginning again, because what was read is not there any more. ``run`` and ``report`` begin anew then.

    The other arguments: see `events`.

    Raises:
        SourceError: the file can't be read.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b'{"type": "text", "content": "Hi"}\\n{"type": "te')
    ...     file.flush()
    ...     following = follow(file.name, dialect="evosci", idle_timeout=0)
    ...     [event["update"]["content"]["text"] for event in following], following.offset
    (['Hi'], 34)
    """

    def make() -> _backend.Engine:
        return _backend.Engine(
            dialect=dialect,
            kinds=kinds,
            strict=strict,
            spans=spans,
            max_line_bytes=max_line_bytes,
            max_result_bytes=max_result_bytes,
            on_malformed=on_malformed,
            source=os.fsdecode(path),
        )

    if offset < 0:
        raise ValueError(f"offset={offset} is before the beginning")
    kinds = api._kinds(only, state)
    return Follow(
        path,
        make,
        offset=offset,
        interval=interval,
        idle_timeout=idle_timeout,
        on_restart=on_restart,
        max_line_bytes=max_line_bytes,
    )
