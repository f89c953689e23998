"""The native extension: what ``headrace.pure.engine`` is in Python. Users go through the functions of ``headrace``."""

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from typing_extensions import Buffer, Self

DIALECTS: list[str]
"""Names of all dialects, in the order of preference."""

class Engine:
    """One stream from bytes to event dicts and run: fed with chunks, or pulling from an attached source.

    Args:
        dialect: name of the dialect; None finds it by content.
        kinds: event kinds that are built and given out; None for all but ``state``.
        types: native record types that are given out as ``Record``, each before its events.
        strict: salvage nothing and raise ``MalformedLine``.
        spans: each event says in ``extra["span"]`` where its record stands.
        max_line_bytes: longer lines are dropped in bounded memory and reported.
        max_result_bytes: how much of each tool result the run keeps; None for all.
        cut_later: only tell what is to be cut, and keep all of it.
        on_malformed: called with ``{line, offset, reason, text}`` for each malformed line.
        source: what messages call the source, where none is attached.

    Raises:
        UnknownDialect: no dialect has that name.
        ValueError: no event kind has that name, or ``max_result_bytes`` is negative.
    """

    def __init__(
        self,
        *,
        dialect: str | None = None,
        kinds: Sequence[str] | None = None,
        types: set[str] | None = None,
        strict: bool = False,
        spans: bool = False,
        max_line_bytes: int = 268_435_456,
        max_result_bytes: int | None = None,
        cut_later: bool = False,
        on_malformed: Callable[[dict[str, Any]], object] | None = None,
        source: str | None = None,
    ) -> None: ...
    def feed(self, chunk: Buffer) -> list[Any]:
        """The events (and asked-for records) of the lines that these bytes complete."""

    def close(self) -> list[Any]:
        """The stream is over: an unfinished last line counts now. Gives the last events; a second call gives none."""

    def run(self, code: int | None = None, stderr: bytes | None = None) -> dict[str, Any]:
        """The run so far, as ``Run.to_dict()``; ``code`` and ``stderr`` are what the caller knows of the process."""

    def run_part(self, key: str, code: int | None = None, stderr: bytes | None = None) -> Any:
        """One key of that dict. Raises KeyError for any other."""

    def ledger(self) -> list[dict[str, Any]]:
        """Each model call so far, as ``Run.ledger``."""

    def last_call_time(self) -> str | None:
        """The latest of the times at which calls began and ended, as they are printed; None if none was."""

    def printed_models(self) -> list[dict[str, Any]]:
        """The harness's own total of each model, as far as it prints them."""

    def report(self) -> dict[str, Any]:
        """The account of the bytes so far."""

    @property
    def detection(self) -> tuple[str, str | None, float, list[str]] | None:
        """Dialect, version, confidence (0 to 1) and reasons; None while nothing is decided."""

    @property
    def ending(self) -> str | None:
        """What the stream said last of how it ends: ``"end"`` after a terminal record, ``"turn"`` after a turn that
        ended with an outcome; None when it has said nothing, or when another turn was opened since."""

    @property
    def offset(self) -> int:
        """How many bytes were fed."""

    def snapshot(self) -> bytes:
        """All that is known so far, the bytes of an unfinished last line included, but ``types`` and
        ``on_malformed``."""

    @staticmethod
    def restore(snapshot: bytes, *, on_malformed: Callable[[dict[str, Any]], object] | None = None) -> Engine:
        """The engine that a snapshot of this version was made of. Raises ``SnapshotError`` for bytes that are none."""

    def attach_path(self, path: str | PathLike[str]) -> None:
        """Pull from a file (gzip and zstd found by content). Raises ``SourceError``."""

    def attach_descriptor(self, number: int, name: str) -> None:
        """Pull from a descriptor, which stays open; reading does not hold the GIL."""

    def attach_chunks(self, chunks: Iterator[Buffer], name: str) -> None:
        """Pull from an iterator of bytes-like chunks."""

    def drain_source(self) -> None:
        """Read the attached source to its end without building events."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...

class Reader:
    """One stream from bytes to records; those of other types than ``only`` are counted but never built."""

    def __init__(
        self,
        *,
        only: set[str] | None = None,
        strict: bool = False,
        max_line_bytes: int = 268_435_456,
        on_malformed: Callable[[dict[str, Any]], object] | None = None,
    ) -> None: ...
    def feed(self, chunk: Buffer) -> list[Record]: ...
    def close(self) -> list[Record]: ...
    def report(self) -> dict[str, Any]: ...
    @property
    def detection(self) -> tuple[str, str | None, float, list[str]] | None: ...
    def attach_path(self, path: str | PathLike[str]) -> None: ...
    def attach_descriptor(self, number: int, name: str) -> None: ...
    def attach_chunks(self, chunks: Iterator[Buffer], name: str) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Record: ...

class Borders:
    """Where the runs of a source begin: line and offset of each."""

    def __init__(
        self, *, dialect: str | None = None, max_line_bytes: int = 268_435_456, source: str | None = None
    ) -> None: ...
    def feed(self, chunk: Buffer) -> list[tuple[int, int]]:
        """The borders that the lines in these bytes show."""

    def close(self) -> list[tuple[int, int]]:
        """The borders that only the end of the source shows."""

    @property
    def certain(self) -> int:
        """The offset before which no more border can come to be."""

class Record:
    """One record of the raw layer. Nothing of it is decoded that is not asked for."""

    @property
    def type(self) -> str | None:
        """What the harness calls this kind of record: ``type``, else ``method``, ``msg.type`` or ``role``."""

    @property
    def raw(self) -> bytes:
        """The bytes of its JSON text."""

    @property
    def line(self) -> int:
        """Number of its line, from 1."""

    @property
    def offset(self) -> int:
        """Offset of its first byte in the (decompressed) stream."""

    @property
    def lossy(self) -> bool:
        """It was salvaged from a line that is not UTF-8: U+FFFD stands for what can't be decoded."""

    @property
    def salvaged(self) -> bool:
        """It was got back from a malformed line."""

    def to_dict(self) -> dict[str, Any]:
        """All of it, as ``json.loads`` gives it: the last of repeated keys, lone surrogates kept, exact integers."""

    def get(self, *path: str) -> Any:
        """The value at a path of keys; None if it is not there."""

    def __getitem__(self, key: str) -> Any: ...
    def __contains__(self, key: str) -> bool: ...

class Intake:
    """Drains any number of pipes with one native thread that never holds the GIL, from `add` on, into a queue each.

    Args:
        memory_limit: bytes that wait in memory at most, of all streams together; beyond it they go to an unlinked file.
        spill_dir: where that file is made; None for the system's folder of temporary files.
        spill_limit: bytes that wait in that file at most; None for as many as the disk takes.

    Raises:
        SpillError: ``spill_dir`` is no folder.
        ValueError: a limit is negative.
    """

    def __init__(
        self,
        *,
        memory_limit: int = 67_108_864,
        spill_dir: str | PathLike[str] | None = None,
        spill_limit: int | None = None,
    ) -> None: ...
    def add(self, descriptor: int, name: str, *, tail: int = 0, keep: bool = True) -> int:
        """Drain a copy of a descriptor; gives the number of the stream. Its last ``tail`` bytes are kept apart, and
        with ``keep=False`` only they. Raises ``SourceError`` for what can't be waited for."""

    def keep(self, stream: int, keep: bool) -> None:
        """Whether the stream is queued from now on."""

    def take(self, stream: int, most: int = 262_144) -> bytes | None:
        """The next bytes; empty when there are none yet, None at the end. Raises ``SourceError`` or ``SpillError``
        after all bytes before it."""

    def tap(self, stream: int) -> Tap:
        """What takes the stream a few lines at a time; then nobody else may `take` of it."""

    def lend(self, stream: int) -> Loan | None:
        """Lends the stream to an event loop that has taken all there is: whenever ``fileno()`` of the loan is readable,
        `take` reads the stream at once, without the way through the thread. The thread ends the loan by reading
        itself (which `ready` tells of) when something is left there for some milliseconds, or much comes. None when
        the stream can't be lent now."""

    def give_back(self, stream: int) -> None:
        """The loan is over: the thread reads as ever."""

    def wait(self, streams: list[int], timeout: float) -> bool:
        """Wait until one of the streams has bytes or an end; a signal handler that raises ends it."""

    def ready(self) -> list[int]:
        """The streams with news since the last call."""

    def fileno(self) -> int:
        """A descriptor that is readable while `ready` has something to tell; it belongs to the intake."""

    def tail(self, stream: int) -> bytes:
        """The last bytes of a stream."""

    def idle(self, stream: int) -> float:
        """Seconds since its last byte."""

    def total(self, stream: int) -> int:
        """Bytes that were read of it."""

    def waiting(self) -> tuple[int, int]:
        """Bytes that wait now: in memory, in the file."""

    def remove(self, stream: int) -> None:
        """Let go of a stream and of what waits of it."""

    def close(self) -> None:
        """Let go of everything and end the thread; dropping the object does it too."""

class Loan:
    """Keeps the descriptor of a stream that is lent open."""

    def fileno(self) -> int:
        """Readable when the stream has something, or is over."""

class decompress:
    """The chunks of an iterator as they are, or decompressed when they begin as gzip or zstd does.

    Raises:
        SourceError: the data is corrupt, or cut; after what could be read.
    """

    def __init__(self, chunks: Iterator[Buffer], name: str) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> bytes: ...
    def close(self) -> None:
        """Lets go of the iterator."""

class Each:
    """``async for`` over the items of a deque, without a coroutine for each; awaits what ``following`` gives when it is
    empty. Nothing is taken before it is awaited."""

    def __init__(self, ready: deque[Any], following: Callable[[], Awaitable[Any]]) -> None: ...
    def __aiter__(self) -> Each: ...
    def __anext__(self) -> Awaitable[Any]: ...

class Tap:
    """Takes a stream of an `Intake` about ``about`` bytes at a time, up to the end of a line, or all that is there."""

    @property
    def is_over(self) -> bool:
        """The stream is over and everything was taken."""

    @property
    def has_more(self) -> bool:
        """Something was taken from the intake that was not given yet."""

    @property
    def is_ahead(self) -> bool:
        """The engine was fed with more than `feed` has given the events of: what is taken now comes after those."""

    def feed(self, engine: Engine, about: int = 32_768, *, ahead: bool = True) -> list[Any] | None:
        """Feeds the engine with the next lines, and gives what it makes of them; None when there are none now. With
        ``ahead``, another thread parses what waits behind them, if that is much. Raises what `Intake.take` and
        `Engine.feed` raise."""

    def take(self, about: int = 32_768) -> bytes | None:
        """The next lines; None when there are none now."""

class Watch:
    """Tells when something happens to the files of a folder: inotify, on Linux only. Raises ``OSError`` where that
    can't be told."""

    def __init__(self, folder: str | PathLike[str]) -> None: ...
    def fileno(self) -> int:
        """A descriptor that is readable while there is something to tell."""

    def news_of(self, name: bytes) -> bool | None:
        """Takes what was told: whether it may concern the file of this name. None when the folder itself has gone."""
