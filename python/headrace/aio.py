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
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Union

from . import _backend, api
from .errors import SourceError
from .harness import Harness
from .process import Process
from .result import Run, SoFar

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

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


_hubs: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, _Hub]] = weakref.WeakKeyDictionary()
"""The hubs of each loop by the identity of their intake; 0 for the one that everything shares."""


class _Hub:
    """Tells tasks of an event loop of the news of one intake."""

    def __init__(self, loop: asyncio.AbstractEventLoop, intake: _backend.Intake) -> None:
        self._loop = loop
        self.intake = intake
        self._waiting: dict[int, Callable[[], Callable[[], None] | None]] = {}
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

    def watch(self, streams: Iterable[int], tell: Callable[[], Callable[[], None] | None]) -> None:
        """Calls what ``tell`` gives (a weak reference: None when it is gone) whenever one of the streams has news."""
        if not self._waiting:
            self._descriptor = self.intake.fileno()
            self._loop.add_reader(self._descriptor, self._tell)
        for stream in streams:
            self._waiting[stream] = tell

    def leave(self, streams: Iterable[int]) -> None:
        for stream in streams:
            self._waiting.pop(stream, None)
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
            tell = self._waiting.get(stream)
            call = None if tell is None else tell()
            if call is not None:
                call()


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

    def __init__(self, argv: Any, *, intake: _backend.Intake | None = None, **options: Any) -> None:
        own = intake is None and any(name in options for name in ("memory_limit", "spill_dir", "spill_limit"))
        self._shares = intake is None and not own
        self._hub: _Hub | None = None
        self._news: asyncio.Future[None] | None = None  # of who waits now
        self._took = False  # there was something in the last step
        self._watch: int | None = None  # a descriptor that is readable when the process has ended
        super().__init__(argv, intake=intake, **options)

    async def __aenter__(self) -> Self:
        self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose(drop=kind is not None)

    def __aiter__(self) -> Self:
        return self

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
        while True:
            if self._took:
                await asyncio.sleep(0)  # the others' turn, once a batch
            self._took = took = not self.is_over and self.step()
            if self.ready:
                return True
            if self.failed is not None:
                failed, self.failed = self.failed, None
                raise failed
            if self.is_over:
                await self._wait_for_listeners()
                return False
            if not took:
                await self._wait()

    async def wait(self) -> Run:
        """Reads to the end, for the listeners and the run; gives the run."""
        while self.ready or await self._fill():
            self.ready.clear()
        return self.run

    async def send(self, record: Mapping[str, Any] | bytes | str) -> None:
        """Writes a record (or a line) to the harness's stdin, which must be ``headrace.PIPE``; waits without blocking
        the loop while the harness does not read. Cancelled in the middle, it may have written a part of the line."""
        line = memoryview(self.line_of(record))
        descriptor = self.input.fileno()
        os.set_blocking(descriptor, False)
        loop = asyncio.get_running_loop()
        while line:
            try:
                line = line[os.write(descriptor, line) :]
            except BlockingIOError:
                writable = asyncio.Event()
                loop.add_writer(descriptor, writable.set)
                try:
                    await writable.wait()
                finally:
                    loop.remove_writer(descriptor)

    async def aclose(self, *, drop: bool = False) -> None:
        """Stops the group if it still runs (SIGTERM, after ``grace`` seconds SIGKILL), and reads what it printed."""
        if self._started is None or self.is_over:
            self.abandon()
            return
        if self._guard.look() is None:
            self._guard.brought_about("cancelled", "the caller left before the end")
            self.close_stdin()
            self.stop()
        try:
            while not self.is_over:
                if drop and self._guard.look() is not None:
                    self.abandon()
                elif not self.step():
                    await self._wait()
                else:
                    if drop:
                        self.ready.clear()
                    await asyncio.sleep(0)
        except BaseException:  # cancelled: no waiting any more
            self.abandon()
            raise
        await self._wait_for_listeners()

    def _begin(self) -> None:
        if self._started is not None:
            return
        self._hub = _Hub.of(None if self._shares else self._intake)
        if self._shares:
            self._intake, self._own_intake = self._hub.intake, False
        try:
            self.start()
        except BaseException:
            if self._hub is not None:  # else it was left when the start failed
                self._hub.leave(())
            raise
        self._hub.watch(self.waiting_for(), weakref.WeakMethod(self._tell_news))
        if self.popen is not None and hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self._watch = os.pidfd_open(self.popen.pid)
                # the loop must not keep a process that everybody else has dropped
                weak = weakref.WeakMethod(self._ended_now)
                asyncio.get_running_loop().add_reader(self._watch, _call, weak)

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

    def _finish(self) -> None:
        streams = [self._out, self._err]
        super()._finish()
        if self._hub is not None:
            self._unwatch()
            self._hub.leave(streams)
            self._hub = None

    async def _wait(self) -> None:
        seconds = self.due()
        if self._watch is None and self._guard.exited is None:
            seconds = min(seconds, _POLL)
        streams = self.waiting_for()
        if streams and not self._listeners.are_behind and self._intake.wait(streams, 0):
            return  # it came just now
        loop = asyncio.get_running_loop()
        self._news = loop.create_future()
        alarm = loop.call_later(seconds, self._tell_news)
        try:
            await self._news
        finally:
            alarm.cancel()
            self._news = None

    def _tell_news(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def _wait_for_listeners(self) -> None:
        while not self.listeners_done:
            await asyncio.sleep(0.001)


def _call(weak: weakref.WeakMethod[Any]) -> None:
    call = weak()
    if call is not None:
        call()


class AsyncEvents(SoFar):
    """An async iterator of OutputEvent dicts over one source; what `aevents` returns."""

    def __init__(self, engine: _backend.Engine, chunks: AsyncIterator[Any]) -> None:
        self._engine = engine
        self._chunks = chunks
        self._ready: deque[OutputEvent] = deque()
        self._failed: BaseException | None = None
        self._over = False

    def __aiter__(self) -> Self:
        return self

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
    engine = _backend.Engine(
        dialect=dialect,
        kinds=api._kinds(only, state),
        strict=strict,
        spans=spans,
        max_line_bytes=max_line_bytes,
        max_result_bytes=max_result_bytes,
        on_malformed=on_malformed,
    )
    return AsyncEvents(engine, _chunks(source, intake))


def _chunks(source: Any, intake: _backend.Intake | None) -> AsyncIterator[Any]:
    from .pure.source import chunks

    if isinstance(source, asyncio.subprocess.Process):
        if source.stdout is None:
            raise SourceError(f"process {source.pid}: its stdout is not a pipe; start it with stdout=subprocess.PIPE")
        source = source.stdout
    if isinstance(source, asyncio.StreamReader):
        return _stream(source)
    if isinstance(source, AsyncIterable):
        return source.__aiter__()
    if isinstance(source, subprocess.Popen):
        descriptor, name = (-1 if source.stdout is None else source.stdout.fileno()), f"process {source.pid}"
        if descriptor < 0:
            raise SourceError(f"{name}: its stdout is not a pipe; start it with stdout=subprocess.PIPE")
    else:
        descriptor, name = _descriptor(source)
    if descriptor >= 0:
        return _drained(descriptor, name, intake)
    return _stepwise(chunks(source)[0])


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


async def _drained(descriptor: int, name: str, intake: _backend.Intake | None) -> AsyncIterator[bytes]:
    hub = _Hub.of(intake)
    news = asyncio.Event()
    stream = 0
    try:
        stream = hub.intake.add(descriptor, name)
        hub.watch((stream,), lambda: news.set)
        while True:
            news.clear()
            chunk = hub.intake.take(stream)
            if chunk is None:
                return
            if chunk:
                yield chunk
                await asyncio.sleep(0)
            else:
                await news.wait()
    finally:
        if stream:
            hub.intake.remove(stream)
        hub.leave((stream,))
