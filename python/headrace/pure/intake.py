"""Live sources: one thread drains any number of pipes, so that no producer waits for its consumer.

The twin of the native intake, with the same methods; see ``_native.pyi``. Its thread needs the GIL, so a consumer that
computes slows it down, but one that sleeps or waits does not.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import IO, TYPE_CHECKING, Any

from .._owner import Owner
from ..errors import SourceError, SpillError

if TYPE_CHECKING:
    from ..types import OutputEvent
    from .engine import Engine

__all__ = ["Intake", "Tap"]

_BLOCK = 1 << 18  # one read takes at most this
_PIPE = 1 << 18  # what a pipe is enlarged to
_SLICE = 1 << 15  # about how much a tap gives at a time
_JOINED = 1 << 16  # small reads are put together up to this size

_CLOSED = "the intake, or this stream of it, is closed"

_Piece = bytearray | tuple[int, int]  # bytes in memory, or (offset, size) in the spill file


class _Stream:
    def __init__(self, name: str, descriptor: int, tail: int, keep: bool) -> None:
        self.name = name
        self.descriptor: int | None = descriptor  # None when it is over
        self.queue: deque[_Piece] = deque()
        self.ended = False
        self.error: SourceError | SpillError | None = None
        self.keep = keep
        self.tail = bytearray()
        self.tail_limit = tail
        self.total = 0
        self.last = time.monotonic()
        self.in_news = False


class Each:
    """Leaves everything to the coroutines of who has the items: here they cost no more than anything else."""

    def __init__(self, ready: deque[Any], following: Callable[[], Awaitable[Any]]) -> None:
        self._following = following

    def __aiter__(self) -> Each:
        return self

    def __anext__(self) -> Awaitable[Any]:
        return self._following()


class Tap:
    """Takes a stream a few lines at a time; see the native class."""

    is_ahead = False
    """Never: the GIL leaves another thread no time to parse in."""

    def __init__(self, intake: Intake, stream: int) -> None:
        self._intake = intake
        self._stream = stream
        self._block = b""
        self._at = 0
        self.is_over = False

    @property
    def has_more(self) -> bool:
        return self._at < len(self._block)

    def feed(self, engine: Engine, about: int = _SLICE, *, ahead: bool = True) -> list[OutputEvent] | None:
        lines = self.take(about)
        return None if lines is None else engine.feed(lines)

    def take(self, about: int = _SLICE) -> bytes | None:
        if not self.has_more:
            block = self._intake.take(self._stream, _BLOCK)
            self._block, self._at, self.is_over = block or b"", 0, block is None
            if not block:
                return None
        start = self._at
        self._at = self._block.find(b"\n", start + max(about, 1) - 1) + 1 or len(self._block)
        return self._block[start : self._at]


class Intake(Owner):
    """Drains pipes from `add` on into a queue each; see the native class."""

    def __init__(
        self,
        *,
        memory_limit: int = 64 << 20,
        spill_dir: str | os.PathLike[str] | None = None,
        spill_limit: int | None = None,
    ) -> None:
        for name, limit in (("memory_limit", memory_limit), ("spill_limit", spill_limit or 0)):
            if limit < 0:
                raise ValueError(f"{name} is negative")
        if spill_dir is not None and not os.path.isdir(spill_dir):
            raise SpillError(f'spill_dir "{os.fspath(spill_dir)}" is no folder')
        self._memory_limit = memory_limit
        self._spill_dir = spill_dir
        self._spill_limit = spill_limit
        self._process = os.getpid()
        self._changed = threading.Condition()  # its lock guards everything below
        self._streams: dict[int, _Stream] = {}
        self._next = 1
        self._memory = 0
        self._file: IO[bytes] | None = None
        self._end = self._spilled = 0
        self._news: list[int] = []
        self._wake: tuple[int, int] | None = None
        self._signalled = False
        self._selector: selectors.BaseSelector | None = None
        self._nudge: tuple[int, int] | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._let_thread_go = threading.Event()  # nothing touches its selector and its nudge any more

    # ------------------------------------------------------------ for the consumer

    def add(self, descriptor: int, name: str, *, tail: int = 0, keep: bool = True) -> int:
        """Drain a copy of a descriptor; gives the number of the stream. Its last ``tail`` bytes are kept apart, and
        with ``keep=False`` only they. Raises ``SourceError`` for what can't be waited for."""
        self._check()
        try:
            copy = os.dup(descriptor)
        except (OSError, OverflowError) as error:
            raise SourceError(f"{name} can't be drained as it grows: {error}") from error
        _enlarge(copy)
        with self._changed:
            if self._closed:
                os.close(copy)
                raise SourceError(_CLOSED)
            selector = self._start()
            try:
                selector.register(copy, selectors.EVENT_READ, self._next)
            except (OSError, ValueError) as error:
                os.close(copy)
                raise SourceError(
                    f"{name} can't be drained as it grows: {error}; only pipes, sockets and terminals can"
                ) from error
            number = self._next
            self._next += 1
            self._streams[number] = _Stream(name, copy, tail, keep)
            self._poke()
        return number

    def keep(self, stream: int, keep: bool) -> None:
        """Whether the stream is queued from now on."""
        with self._locked(stream) as found:
            found.keep = keep

    def take(self, stream: int, most: int = 262_144) -> bytes | None:
        """The next bytes; empty when there are none yet, None at the end. Raises ``SourceError`` or ``SpillError``
        after all bytes before it."""
        with self._locked(stream) as found:
            if not found.queue:
                if found.error is not None:
                    raise type(found.error)(str(found.error)) from found.error.__cause__
                return None if found.ended else b""
            piece = found.queue[0]
            if isinstance(piece, bytearray):
                taken = bytearray()
                while found.queue and isinstance(piece := found.queue[0], bytearray):
                    if taken and len(taken) + len(piece) > most:
                        break
                    taken += piece
                    self._memory -= len(piece)
                    found.queue.popleft()
                return bytes(taken)
            at, size = piece
            part = min(size, max(most, 1))
            if part < size:
                found.queue[0] = (at + part, size - part)
            else:
                found.queue.popleft()
            assert self._file is not None
            file = os.dup(self._file.fileno())  # somebody may close the intake before it is read
        try:
            data = os.pread(file, part, at)  # without the lock: the disk may be slow
        finally:
            os.close(file)
        with self._changed:
            if not self._closed:
                self._release(part)
        if len(data) != part:
            raise SpillError(f"{found.name}: the spill file lost bytes")
        return data

    def tap(self, stream: int) -> Tap:
        """What takes the stream a few lines at a time; then nobody else may `take` of it."""
        return Tap(self, stream)

    def lend(self, stream: int) -> None:
        """Never: it would save time, and who has little takes the native one."""

    def give_back(self, stream: int) -> None:
        """There was no loan."""

    def wait(self, streams: list[int], timeout: float) -> bool:
        """Wait until one of the streams has bytes or an end; a signal handler that raises ends it."""
        self._check()

        def news() -> bool:
            known = [self._streams[number] for number in streams if number in self._streams]
            return self._closed or any(stream.queue or stream.ended for stream in known)

        with self._changed:
            return self._changed.wait_for(news, timeout)

    def ready(self) -> list[int]:
        """The streams with news since the last call."""
        self._check()
        with self._changed:
            if self._signalled and self._wake is not None:
                self._signalled = False
                os.read(self._wake[0], 8)
            news, self._news = self._news, []
            for number in news:
                if number in self._streams:
                    self._streams[number].in_news = False
            return news

    def fileno(self) -> int:
        """A descriptor that is readable while `ready` has something to tell; it belongs to the intake."""
        self._check()
        with self._changed:
            if self._closed:
                raise SourceError(_CLOSED)
            if self._wake is None:
                self._wake = os.pipe()
                if self._news:
                    self._signal()
            return self._wake[0]

    def tail(self, stream: int) -> bytes:
        """The last bytes of a stream."""
        with self._locked(stream) as found:
            return bytes(found.tail)

    def idle(self, stream: int) -> float:
        """Seconds since its last byte."""
        with self._locked(stream) as found:
            return time.monotonic() - found.last

    def total(self, stream: int) -> int:
        """Bytes that were read of it."""
        with self._locked(stream) as found:
            return found.total

    def waiting(self) -> tuple[int, int]:
        """Bytes that wait now: in memory, in the file."""
        self._check()
        with self._changed:
            return self._memory, self._spilled

    def remove(self, stream: int) -> None:
        """Let go of a stream and of what waits of it."""
        self._check()
        with self._changed:
            found = self._streams.pop(stream, None)
            if found is not None:
                self._forget(found)
                self._let_go(found)
            self._changed.notify_all()

    def close(self) -> None:
        """Let go of everything and end the thread; dropping the object does it too."""
        if os.getpid() != self._process:
            return  # a forked child must not touch what it shares with its parent
        with self._changed:
            if self._closed:
                return
            self._closed = True
            for found in self._streams.values():
                self._let_go(found)
            self._streams.clear()
            self._memory = self._spilled = 0
            self._news.clear()
            self._poke()
            self._let_thread_go.set()
            self._changed.notify_all()
            if self._wake is not None:
                for end in self._wake:
                    os.close(end)
                self._wake = None
                self._signalled = False
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(1)
        if self._file is not None:
            self._file.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # half made, or the interpreter is going down
            self.close()

    # ------------------------------------------------------------ inside

    def _check(self) -> None:
        if os.getpid() != self._process:
            raise SourceError(
                "this intake belongs to the process that made it, and this process was forked from that: make another "
                "one here"
            )

    @contextlib.contextmanager
    def _locked(self, stream: int) -> Iterator[_Stream]:
        self._check()
        with self._changed:
            found = self._streams.get(stream)
            if found is None:
                raise SourceError(_CLOSED)
            yield found

    def _start(self) -> selectors.BaseSelector:
        if self._selector is None:
            self._selector = selectors.DefaultSelector()
            self._nudge = os.pipe()
            self._selector.register(self._nudge[0], selectors.EVENT_READ, 0)
            # the thread must not keep an abandoned intake alive
            arguments = (weakref.ref(self), self._let_thread_go, self._selector, self._nudge)
            self._thread = threading.Thread(target=_drain, args=arguments, name="headrace-intake", daemon=True)
            self._thread.start()
        return self._selector

    def _poke(self) -> None:
        """The thread must look again."""
        if self._nudge is not None:
            os.write(self._nudge[1], b"x")

    def _let_go(self, stream: _Stream) -> None:
        if stream.descriptor is not None:
            if self._selector is not None:
                self._selector.unregister(stream.descriptor)
            os.close(stream.descriptor)
            stream.descriptor = None

    def _read(self, number: int) -> None:
        """Called by the thread: the stream is readable."""
        with self._changed:
            stream = self._streams.get(number)
            if stream is None or stream.descriptor is None:
                return
            descriptor = os.dup(stream.descriptor)  # somebody may let go of the stream before it is read
        error: SourceError | None = None
        try:
            block = os.read(descriptor, _BLOCK)  # without the lock: it waits if somebody else has read what was there
        except BlockingIOError:
            return
        except OSError as why:
            block = b""
            if why.errno != 5:  # what a terminal says when the last program on it has ended
                error = SourceError(f"can't read {stream.name}: {why.strerror}")
                error.__cause__ = why
        finally:
            os.close(descriptor)
        with self._changed:
            if stream.descriptor is None:
                return
            stream.error = error
            if block:
                self._deliver(stream, block)
            if not block or stream.error is not None:
                self._let_go(stream)
                stream.ended = True
            self._tell(number, stream)

    def _deliver(self, stream: _Stream, block: bytes) -> None:
        stream.total += len(block)
        stream.last = time.monotonic()
        if stream.tail_limit:
            stream.tail += block
            del stream.tail[: -stream.tail_limit]
        if not stream.keep:
            return
        if self._memory + len(block) <= self._memory_limit:
            self._push(stream, block)
            return
        try:
            at = self._write(block)
        except OSError as error:
            self._push(stream, block)  # what was read is delivered, over the limit by one block
            stream.error = SpillError(
                f"{stream.name}: what it printed fits neither into memory_limit nor into the spill file in "
                f"{os.fspath(self._spill_dir or tempfile.gettempdir())!r}: {error.strerror or error}; everything up to "
                f"here was delivered and nothing after it was read; free space there, or give a larger memory_limit or "
                f"another spill_dir"
            )
            stream.error.__cause__ = error
            return
        stream.queue.append((at, len(block)))

    def _push(self, stream: _Stream, block: bytes) -> None:
        self._memory += len(block)
        last = stream.queue[-1] if stream.queue else None
        if isinstance(last, bytearray) and len(last) + len(block) <= _JOINED:
            last += block
        else:
            stream.queue.append(bytearray(block))

    def _write(self, block: bytes) -> int:
        if self._spill_limit is not None and self._spilled + len(block) > self._spill_limit:
            raise OSError(f"the spill limit of {self._spill_limit} bytes is reached")
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0, dir=self._spill_dir)  # noqa: SIM115 (closed by close)
        at = self._end
        done = 0
        while done < len(block):
            done += os.pwrite(self._file.fileno(), block[done:], at + done)
        self._end += len(block)
        self._spilled += len(block)
        return at

    def _release(self, size: int) -> None:
        self._spilled -= size
        if not self._spilled and self._file is not None and not self._file.closed:
            self._end = 0
            self._file.truncate(0)

    def _forget(self, stream: _Stream) -> None:
        for piece in stream.queue:
            if isinstance(piece, bytearray):
                self._memory -= len(piece)
            else:
                self._release(piece[1])
        stream.queue.clear()

    def _tell(self, number: int, stream: _Stream) -> None:
        self._changed.notify_all()
        if not stream.in_news:
            stream.in_news = True
            self._news.append(number)
            self._signal()

    def _signal(self) -> None:
        if self._wake is not None and not self._signalled:
            self._signalled = True
            os.write(self._wake[1], b"x")  # the pipe is empty: this can't wait


def _drain(
    owner: weakref.ref[Intake], may_go: threading.Event, selector: selectors.BaseSelector, nudge: tuple[int, int]
) -> None:
    """The thread: reads what is there, one block a stream and round."""
    try:
        while True:
            ready = [key.data for key, _ in selector.select()]
            if 0 in ready:
                os.read(nudge[0], 4096)  # before the look at what it is for, or one of later would be lost with it
            intake = owner()
            if intake is None or intake._closed:
                may_go.wait()  # who closes may be in the middle of it: what is freed here is still in use there
                return
            for number in filter(None, ready):
                intake._read(number)
            del intake
    finally:
        selector.close()
        for end in nudge:
            os.close(end)


def _enlarge(descriptor: int) -> None:
    # Refused for what is no pipe, and where the user's pipes hold too much already: then it stays as it is.
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        if fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ) < _PIPE:  # type: ignore[attr-defined,unused-ignore]
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE)  # type: ignore[attr-defined,unused-ignore]
