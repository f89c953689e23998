"""``AsyncProcess`` and ``aevents``: the same in an event loop, without a thread per stream.

An intake drains the pipes in one native thread and wakes the loop through one descriptor (``loop.add_reader``); then
what is there is taken in one piece. Tested under asyncio's own loops and uvloop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import subprocess
import weakref
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Union

from . import _backend, api
from .errors import SourceError
from .harness import Harness
from .process import Process
from .result import Run, SoFar

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

    from ._native import Loan
    from .types import OutputEvent

__all__ = ["AsyncEvents", "AsyncProcess", "AsyncSource", "aevents"]

_BLOCK = 1 << 18
_POLL = 0.1  # between two looks at a process on systems that can't tell the loop of its end

AsyncSource = Union[
    asyncio.StreamReader,
    asyncio.subprocess.Process,
    "AsyncProcess",
    AsyncIterable["Buffer"],
    api.Source,
]
"""A StreamReader, a process of asyncio (with its stdout as a pipe), a descriptor of a pipe, a ``Popen``, an async
iterable of bytes, or any source of `events`."""


_Weak = weakref.ref[Any]
"""Of an `AsyncProcess` or a `_Drained`, which have the two methods that are called below: a loop must not keep what all
others have dropped."""

_hubs: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, _Hub]] = weakref.WeakKeyDictionary()
"""The hubs of each loop by the identity of their intake; 0 for the one that everything shares."""


class _Hub:
    """Tells tasks of an event loop of the news of one intake."""

    def __init__(self, loop: asyncio.AbstractEventLoop, intake: _backend.Intake) -> None:
        self._loop = loop
        self.intake = intake
        self._waiting: dict[int, _Weak] = {}
        self._lent: dict[int, Loan] = {}
        self._descriptor = -1

    @classmethod
    def of(cls, intake: _backend.Intake | None) -> _Hub:
        """The one of this loop for an intake; for None, of the intake that everything in this loop shares."""
        loop = asyncio.get_running_loop()
        hubs = _hubs.setdefault(loop, {})
        hub = hubs.get(0 if intake is None else id(intake))
        if hub is None:
            hub = cls(loop, _backend.Intake() if intake is None else intake)
            hubs[0 if intake is None else id(intake)] = hub
        return hub

    def watch(self, streams: Iterable[int], reader: _Weak) -> None:
        """Tells the reader whenever one of the streams has news."""
        if not self._waiting:
            self._descriptor = self.intake.fileno()
            self._loop.add_reader(self._descriptor, self._tell)
        for stream in streams:
            self._waiting[stream] = reader

    def borrow(self, stream: int) -> None:
        """Waits for the stream's own descriptor, if it may: saves what is written the way through another thread."""
        if stream not in self._lent and (loan := self.intake.lend(stream)) is not None:
            self._lent[stream] = loan
            self._loop.add_reader(loan.fileno(), _read_now, self._waiting[stream])

    def give_back(self, stream: int) -> None:
        loan = self._lent.pop(stream, None)
        if loan is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.remove_reader(loan.fileno())
            with contextlib.suppress(SourceError):  # the intake is closed
                self.intake.give_back(stream)

    def leave(self, streams: Iterable[int]) -> None:
        for stream in streams:
            self._waiting.pop(stream, None)
            self.give_back(stream)
        if self._waiting:
            return
        if self._descriptor >= 0:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.remove_reader(self._descriptor)
            self._descriptor = -1
        # The next one makes it anew: nothing is left when nothing is read.
        hubs = _hubs.get(self._loop, {})
        for key in [key for key, hub in hubs.items() if hub is self]:
            del hubs[key]
            if key == 0:
                self.intake.close()

    def _tell(self) -> None:
        for stream in self.intake.ready():
            self.give_back(stream)  # the thread had to read it
            weak = self._waiting.get(stream)
            if weak is not None:
                _tell_news(weak)


def _tell_news(weak: _Weak) -> None:
    """There may be something of its stream, or the end."""
    reader = weak()
    if reader is not None:
        reader._tell_news()


def _read_now(weak: _Weak) -> None:
    """The stream that the loop has borrowed for it is readable: it takes from it, or gives it back."""
    reader = weak()
    if reader is not None:
        reader._read_now()


class AsyncProcess(Harness):
    r"""Runs a harness in a process group of its own; an async iterator of its events.

    Takes what `Process` takes. All processes of an event loop share one intake (one thread, one memory limit) unless
    ``intake``, ``memory_limit``, ``spill_dir`` or ``spill_limit`` is given.

    >>> import asyncio, sys
    >>> program = 'print(\'{"type": "done", "content": "Hi", "response": "Hi"}\')'
    >>> async def main():
    ...     async with AsyncProcess([sys.executable, "-c", program], dialect="evosci") as process:
    ...         async for event in process:
    ...             print(event["update"]["content"]["text"])
    ...     return process.run.verdict.outcome
    >>> asyncio.run(main())
    Hi
    'completed'
    """

    _hub: _Hub | None = None
    _weak: _Weak
    _news: asyncio.Future[None] | None = None  # of who waits now
    _took = False  # there was something in the last step
    _took_all = False  # all that there was, and whoever waits is told when there is more
    _fills = False  # somebody wants events
    _alarm: asyncio.TimerHandle | None = None
    _alarm_at = 0.0
    _watch: int | None = None  # a descriptor that is readable when the process has ended
    _sending: asyncio.Lock
    _full: asyncio.Future[None] | None = None  # of who waits for room in stdin

    async def __aenter__(self) -> Self:
        self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose(drop=kind is not None)

    def __aiter__(self) -> AsyncIterator[OutputEvent]:
        return _backend.Each(self.ready, self.__anext__)

    async def __anext__(self) -> OutputEvent:
        if not self.ready and not await self._fill():
            raise StopAsyncIteration
        return self.ready.popleft()

    async def batches(self) -> AsyncIterator[list[OutputEvent]]:
        """The events in lists, of what was there at once. ``clear()`` a list when you are done with it: two of them
        alive at a time cost the garbage collector more than lists save."""
        while self.ready or await self._fill():
            batch = list(self.ready)
            self.ready.clear()
            yield batch

    async def _fill(self) -> bool:
        """Waits until there are events; False at the end."""
        self._begin()
        self._fills = True
        try:
            while not self.ready:
                if self._took and (self._tap is None or not self._tap.has_more):
                    self._took = False
                    await asyncio.sleep(0)  # the others' turn
                took = not self._took_all and not self.is_over and self.step()
                self._took = self._took or took
                self._took_all = False
                if self.ready:
                    break
                if self.failed is not None:
                    failed, self.failed = self.failed, None
                    raise failed
                if self.is_over:
                    await self._wait_for_listeners()
                    return False
                if not took:
                    await self._wait()
            return True
        finally:
            self._fills = False

    async def wait(self) -> Run:
        """Reads to the end, for the listeners and the run; gives the run."""
        while self.ready or await self._fill():
            self.ready.clear()
        return self.run

    async def send(self, record: Mapping[str, Any] | bytes | str) -> None:
        """Writes a record (or a line) to the harness's stdin, which must be ``headrace.PIPE``; waits without blocking
        the loop while the harness does not read. Records that several tasks send go one behind the other. Cancelled in
        the middle, it may have written a part of the line.

        Raises:
            SourceError: stdin is no pipe, or is closed, or is closed before all was written.
            BrokenPipeError: the harness does not read any more.
        """
        line = memoryview(self.line_of(record))
        os.set_blocking(self.input.fileno(), False)
        async with self._sending:
            while line:
                try:
                    line = line[os.write(self.input.fileno(), line) :]
                except BlockingIOError:
                    await self._room()

    async def _room(self) -> None:
        """Waits until the harness has read something, or stdin is closed."""
        loop = asyncio.get_running_loop()
        self._full = loop.create_future()
        loop.add_writer(self.input.fileno(), self._has_room)
        try:
            await self._full
        finally:
            self._has_room()

    def _has_room(self) -> None:
        if self._full is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._full.get_loop().remove_writer(self.input.fileno())
                if not self._full.done():
                    self._full.set_result(None)
            self._full = None

    def close_stdin(self) -> None:
        """Nothing more is sent: most harnesses end then."""
        self._has_room()  # before the descriptor is somebody else's
        super().close_stdin()

    async def aclose(self, *, drop: bool = False) -> None:
        """Stops the group if it still runs (SIGTERM, after ``grace`` seconds SIGKILL), and reads what it printed."""
        if not self._leave():
            return
        try:
            while not self.is_over:
                if self._last_step(drop):
                    await asyncio.sleep(0)
                else:
                    await self._wait()
        except BaseException:  # cancelled: no waiting any more
            self.abandon()
            raise
        await self._wait_for_listeners()

    def _begin(self) -> None:
        if self._started is not None:
            return
        self._weak = weakref.ref(self)
        self._sending = asyncio.Lock()
        self._hub = _Hub.of(None if self._shares else self._intake)
        if self._shares:
            self._intake, self._own_intake = self._hub.intake, False
        try:
            self.start()
        except BaseException:
            if self._hub is not None:  # else it was left when the start failed
                self._hub.leave(())
            raise
        self._hub.watch(self.waiting_for(), self._weak)
        if self.popen is not None and hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self._watch = os.pidfd_open(self.popen.pid)
                asyncio.get_running_loop().add_reader(self._watch, _ended_now, self._weak)

    def _ended_now(self) -> None:
        """The process has ended: the descriptor stays readable, so it is let go at once."""
        self._unwatch()
        self._tell_news()

    def _unwatch(self) -> None:
        if self._watch is not None:
            assert self._hub is not None
            with contextlib.suppress(RuntimeError):
                self._hub._loop.remove_reader(self._watch)
            os.close(self._watch)
            self._watch = None

    def _end_stream(self) -> None:
        if self._hub is not None:
            self._hub.give_back(self._out)
        super()._end_stream()

    def _finish(self) -> None:
        streams = [self._out, self._err]
        super()._finish()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._hub is not None:
            self._unwatch()
            self._hub.leave(streams)
            self._hub = None

    async def _wait(self) -> None:
        seconds = self.due()
        if self._watch is None and self._guard.exited is None:
            seconds = min(seconds, _POLL)
        if self._hub is not None and not self._out_over and not self._listeners.are_behind:
            self._hub.borrow(self._out)
        loop = asyncio.get_running_loop()
        self._set_alarm(loop, seconds)
        self._news = loop.create_future()
        try:
            await self._news
        finally:
            self._news = None

    def _set_alarm(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        """Ends the waiting by then. An alarm that comes too early does no harm, so one that is set is left alone."""
        when = loop.time() + seconds
        if self._alarm is not None:
            if self._alarm_at <= when:
                return
            self._alarm.cancel()
        self._alarm, self._alarm_at = loop.call_later(seconds, _ring, self._weak), when

    def _ring(self) -> None:
        self._alarm = None
        self._tell_news()

    def _read_now(self) -> None:
        """Stdout is lent, and readable."""
        if self._news is not None and not self._news.done():
            # an event that is there need not wait for anything else
            took = self.step() if self._listeners.names else self._take_stdout()
            if not took and self._hub is not None:
                self._hub.give_back(self._out)  # it can't be taken now
            self._news.set_result(None)
            self._took_all = took and self._tap is not None and not self._tap.has_more
        elif not self._fills and self._hub is not None:
            self._hub.give_back(self._out)  # nobody wants it now

    def _tell_news(self) -> None:
        self._took_all = False
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def _wait_for_listeners(self) -> None:
        while not self.listeners_done:
            await asyncio.sleep(0.001)


def _ring(weak: _Weak) -> None:
    process = weak()
    if process is not None:
        process._ring()


def _ended_now(weak: _Weak) -> None:
    process = weak()
    if process is not None:
        process._ended_now()


class AsyncEvents(SoFar):
    """An async iterator of OutputEvent dicts over one source; what `aevents` returns."""

    def __init__(self, engine: _backend.Engine, chunks: AsyncIterator[Any]) -> None:
        self._engine = engine
        self._chunks = chunks
        self._ready: deque[OutputEvent] = deque()
        self._failed: BaseException | None = None
        self._over = False

    def __aiter__(self) -> AsyncIterator[OutputEvent]:
        return _backend.Each(self._ready, self.__anext__)

    async def __anext__(self) -> OutputEvent:
        while not self._ready:
            if self._failed is not None:
                failed, self._failed = self._failed, None
                raise failed
            if self._over:
                raise StopAsyncIteration
            try:
                chunk = await self._chunks.__anext__()
            except StopAsyncIteration:
                self._over = True
                self._ready.extend(self._engine.close())
            except asyncio.CancelledError:
                raise  # nothing was taken yet
            except Exception as error:
                self._over, self._failed = True, error
            else:
                if len(chunk):
                    self._ready.extend(self._engine.feed(chunk))
        return self._ready.popleft()

    async def aclose(self) -> None:
        """Lets go of the source; what it still has is not read."""
        self._over = True
        close = getattr(self._chunks, "aclose", None)
        if close is not None:
            await close()


def aevents(
    source: AsyncSource,
    *,
    only: Iterable[str] | None = None,
    state: bool = False,
    dialect: str | None = None,
    strict: bool = False,
    spans: bool = False,
    max_line_bytes: int = api.MAX_LINE_BYTES,
    max_result_bytes: int | None = None,
    on_malformed: api.OnMalformed | None = None,
    intake: _backend.Intake | None = None,
) -> AsyncEvents | AsyncProcess:
    """The OutputEvents of a source in an event loop, as soon as they are there.

    A pipe (a descriptor, a ``Popen``, a pipe file) is drained natively from the first step of the iteration on, so its
    producer never waits. A StreamReader is read as asyncio feeds it: there, the loop is what the producer waits for.

    Args:
        source: see `AsyncSource`. An `AsyncProcess` is given back as it is.
        intake: an `Intake` to drain with, instead of the one of this loop.

    The other arguments, and what is raised: see `events`.
    """
    if isinstance(source, AsyncProcess):
        return source
    if isinstance(source, Process):
        raise SourceError("a Process is for synchronous code; in an event loop use headrace.AsyncProcess")
    chunks, name = _chunks(source, intake)
    engine = _backend.Engine(
        dialect=dialect,
        kinds=api._kinds(only, state),
        strict=strict,
        spans=spans,
        max_line_bytes=max_line_bytes,
        max_result_bytes=max_result_bytes,
        on_malformed=on_malformed,
        source=name,
    )
    return AsyncEvents(engine, chunks)


def _chunks(source: Any, intake: _backend.Intake | None) -> tuple[AsyncIterator[Any], str]:
    """The chunks of a source, and a name for it in messages."""
    from .pure.source import open_chunks

    if isinstance(source, asyncio.subprocess.Process):
        if source.stdout is None:
            raise SourceError(f"process {source.pid}: its stdout is not a pipe; start it with stdout=subprocess.PIPE")
        source = source.stdout
    if isinstance(source, asyncio.StreamReader):
        return _stream(source), "<StreamReader>"
    if isinstance(source, AsyncIterable):
        return source.__aiter__(), f"<{type(source).__name__}>"
    if isinstance(source, subprocess.Popen):
        descriptor, name = (-1 if source.stdout is None else source.stdout.fileno()), f"process {source.pid}"
        if descriptor < 0:
            raise SourceError(f"{name}: its stdout is not a pipe; start it with stdout=subprocess.PIPE")
    else:
        descriptor, name = _descriptor(source)
    if descriptor >= 0:
        return _Drained(descriptor, name, intake), name
    blocks, name = open_chunks(source)
    return _stepwise(_backend.decompress(blocks, name)), name


def _descriptor(source: Any) -> tuple[int, str]:
    """The descriptor of a source that can be waited for; -1 for any other."""
    number = source
    if not isinstance(source, int):
        try:
            number = source.fileno()
        except (AttributeError, OSError, ValueError):
            return -1, ""
    try:
        mode = os.fstat(number).st_mode
    except (OSError, OverflowError) as error:
        raise SourceError(f"{source!r} is no open descriptor: {error}") from error
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return -1, ""
    return number, f"file descriptor {number}"


async def _stream(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while block := await reader.read(_BLOCK):
        yield block


async def _stepwise(chunks: Iterable[Any]) -> AsyncIterator[Any]:
    """What never waits long: the others have their turn between two chunks."""
    for chunk in chunks:
        view = memoryview(chunk)
        for at in range(0, len(view), _BLOCK):
            yield view[at : at + _BLOCK]
            await asyncio.sleep(0)


class _Drained:
    """The lines of a pipe, a few at a time, from an intake. No generator: a wait that is cancelled would end that."""

    def __init__(self, descriptor: int, name: str, intake: _backend.Intake | None) -> None:
        self._source = descriptor, name, intake
        self._hub: _Hub | None = None
        self._stream = 0
        self._tap: _backend.Tap | None = None
        self._early: bytes | None = None  # taken before the task had its turn
        self._took = self._asks = self._over = False
        self._news: asyncio.Future[None] | None = None  # of who waits now

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._over:
            raise StopAsyncIteration
        tap = self._tap or self._begin()
        self._asks = True
        try:
            while True:
                if self._took and not tap.has_more:
                    self._took = False
                    await asyncio.sleep(0)  # the others' turn
                lines, self._early = self._early or tap.take(), None
                if lines is not None:
                    self._took = True
                    return lines
                if tap.is_over:
                    self._end()
                    raise StopAsyncIteration
                await self._wait()
        except SourceError:
            self._end()
            raise
        finally:
            self._asks = False

    async def aclose(self) -> None:
        self._end()

    def _begin(self) -> _backend.Tap:
        descriptor, name, intake = self._source
        self._hub = hub = _Hub.of(intake)
        try:
            self._stream = hub.intake.add(descriptor, name)
        except BaseException:
            self._end()
            raise
        hub.watch((self._stream,), weakref.ref(self))
        self._tap = tap = hub.intake.tap(self._stream)
        return tap

    async def _wait(self) -> None:
        assert self._hub is not None
        self._hub.borrow(self._stream)
        self._news = asyncio.get_running_loop().create_future()
        try:
            await self._news
        finally:
            self._news = None

    def _tell_news(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _read_now(self) -> None:
        """The stream is lent, and readable."""
        if self._hub is None or self._tap is None:
            return
        if self._news is not None and not self._news.done():
            with contextlib.suppress(SourceError):  # raised again for who waits
                self._early = self._tap.take()
            if self._early is None:
                self._hub.give_back(self._stream)  # at its end, or not to be read
            self._tell_news()
        elif not self._asks:
            self._hub.give_back(self._stream)  # nobody wants it now

    def _end(self) -> None:
        self._over = True
        hub, self._hub, self._tap = self._hub, None, None
        if hub is not None:
            if self._stream:
                hub.intake.remove(self._stream)
            hub.leave((self._stream,))

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._end()
