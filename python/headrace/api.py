"""The functions that users call. They open the source and hand the work to the backend."""

from __future__ import annotations

import os

from . import _backend
from .errors import SourceError
from .result import Report, Run, SoFar, last_run_of, run_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from typing_extensions import Buffer, Self

    from ._sources import OnMalformed as OnMalformed
    from ._sources import Source
    from ._tuples import Detection, Difference
    from .result import Usage
    from .types import OutputEvent
else:

    def __getattr__(name):
        if name not in ("OnMalformed", "Readable", "Source"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from . import _sources

        return getattr(_sources, name)


__all__ = [
    "Events",
    "Parser",
    "Records",
    "Source",
    "detect",
    "diff",
    "drift",
    "events",
    "records",
    "reduce",
    "runs",
    "usage",
]


MAX_LINE_BYTES = 256 << 20
KINDS = (
    "agent_message_chunk",
    "agent_thought_chunk",
    "user_message_chunk",
    "tool_call",
    "tool_call_update",
    "plan",
    "error",
    "usage",
)
"""Every event kind but ``state``."""

DETECT_RECORDS = 64  # how many records `detect` reads at most


class _Reading:
    """What every iterator of this module tells of its stream while it runs."""

    detection: tuple[str, str | None, float, list[str]] | None

    @property
    def dialect(self) -> str | None:
        """Name of the dialect; None while it is not decided."""
        return None if self.detection is None else self.detection[0]


class Events(_Reading, _backend.Engine):
    """An iterator of OutputEvent dicts over one source; what `events` returns.

    Threads may share it: each event goes to one of them, and whoever asks while another thread reads waits.

    Attributes:
        dialect: name of the dialect, None while it is not decided.
    """

    @property
    def run(self) -> Run:  # type: ignore[override]
        """The run so far."""
        return run_of(self, _backend.Engine.run(self))

    @property
    def report(self) -> Report:  # type: ignore[override]
        """The account of the bytes so far."""
        return Report(_backend.Engine.report(self))


class Records(_Reading, _backend.Reader):
    """An iterator of `Record` over one source; what `records` returns. Threads may share it, as they may `Events`."""

    @property
    def report(self) -> Report:  # type: ignore[override]
        """The account of the bytes so far."""
        return Report(_backend.Reader.report(self))


class Parser(SoFar):
    """The push parser: for bytes that somebody else reads.

    Args:
        dialect: name of the dialect; None finds it by content.
        only: the event kinds that are wanted; None for all.
        state: give out the ``state`` events too (turns, retries, compaction, approvals, queue, model, session, end).
        strict: salvage nothing, and raise `MalformedLine` at the first malformed line.
        spans: each event says in ``extra["span"]`` where its record stands: ``line``, ``offset`` and ``bytes``.
        max_line_bytes: longer lines are dropped in bounded memory and reported.
        max_result_bytes: how much of each tool result the run keeps, in UTF-8; None for all. Events are never cut.
        on_malformed: called with ``{line, offset, reason, text}`` for each malformed line.

    Raises:
        UnknownDialect: no dialect has that name.

    >>> parser = Parser()
    >>> parser.feed(b'{"type": "text", "content": "Hi"}\\n{"type": "usage_stats", "input_tokens": 3, "outp')
    []
    >>> [event["update"]["sessionUpdate"] for event in parser.feed(b'ut_tokens": 1}\\n')]
    ['agent_message_chunk', 'usage']
    >>> parser.run.texts
    ['Hi']
    """

    def __init__(
        self,
        *,
        dialect: str | None = None,
        only: Iterable[str] | None = None,
        state: bool = False,
        strict: bool = False,
        spans: bool = False,
        max_line_bytes: int = MAX_LINE_BYTES,
        max_result_bytes: int | None = None,
        on_malformed: OnMalformed | None = None,
    ) -> None:
        self._engine = _backend.Engine(
            dialect=dialect,
            kinds=_kinds(only, state),
            strict=strict,
            spans=spans,
            max_line_bytes=max_line_bytes,
            max_result_bytes=max_result_bytes,
            on_malformed=on_malformed,
        )

    def feed(self, chunk: Buffer) -> list[OutputEvent]:
        """Takes the next bytes; returns the events of the lines that they complete.

        Raises:
            MalformedLine: with ``strict=True``.
            SourceError: the stream is UTF-16.
        """
        return self._engine.feed(chunk)

    def close(self) -> list[OutputEvent]:
        """The stream is over: an unfinished last line counts now. Returns the last events; a second call none."""
        return self._engine.close()

    @property
    def offset(self) -> int:
        """How many bytes were fed: where in the stream the next byte stands."""
        return self._engine.offset

    def snapshot(self) -> bytes:
        """All that the parser knows, for `restore`: in another process, days later, after a crash.

        It holds what was fed of an unfinished last line too, so there is one rule: the restored parser goes on with the
        byte of the stream at `offset`. It may be made at any moment, after `close` too, and changes nothing.

        Only the version of headrace and the backend that made a snapshot can restore it: keep the stream as well, and
        read it again where that is not enough.
        """
        from ._snapshot import seal

        return seal(self._engine.snapshot())

    @classmethod
    def restore(cls, state: Buffer, *, on_malformed: OnMalformed | None = None) -> Self:
        """The parser that `snapshot` was called on, with its options; `offset` says which byte comes next.

        Args:
            state: what `snapshot` gave. Bytes that somebody changed are refused, or at worst make a parser that tells
                nonsense: nothing in them is ever run as code.
            on_malformed: as for a new parser; a snapshot can't hold it.

        Raises:
            SnapshotError: made by another version or on the other backend, cut off, damaged, or no snapshot at all.

        >>> stream = b'{"type": "text", "content": "Hi"}\\n{"type": "done"}\\n'
        >>> parser = Parser()
        >>> _ = parser.feed(stream[:40])
        >>> later = Parser.restore(parser.snapshot())
        >>> [event["update"]["content"]["text"] for event in later.feed(stream[later.offset :]) + later.close()]
        ['Hi']
        """
        from ._snapshot import unseal

        parser = cls.__new__(cls)
        parser._engine = _backend.Engine.restore(unseal(bytes(memoryview(state))), on_malformed=on_malformed)
        return parser

    @property
    def detection(self) -> Detection:
        """Dialect, version, confidence and reasons so far."""
        return _detection(self._engine.detection)


def events(
    source: Source,
    *,
    only: Iterable[str] | None = None,
    state: bool = False,
    dialect: str | None = None,
    strict: bool = False,
    spans: bool = False,
    max_line_bytes: int = MAX_LINE_BYTES,
    max_result_bytes: int | None = None,
    on_malformed: OnMalformed | None = None,
) -> Events:
    """The OutputEvents of a source, one by one, as soon as they are there.

    Args:
        source: a path, bytes-like, a binary file object, a descriptor, a ``Popen`` or an iterable of bytes.
        only: the event kinds that are wanted, such as ``{"tool_call", "error"}``; others never become Python objects.
        state: give out the ``state`` events too.
        dialect: name of the dialect; None finds it by content.
        strict: salvage nothing, and raise `MalformedLine` at the first malformed line.
        spans: each event says in ``extra["span"]`` where its record stands: ``line``, ``offset`` and ``bytes``.
        max_line_bytes: longer lines are dropped in bounded memory and reported.
        max_result_bytes: how much of each tool result the run keeps, in UTF-8; None for all. Events are never cut.
        on_malformed: called with ``{line, offset, reason, text}`` for each malformed line.

    Returns:
        An iterator; its ``run``, ``report`` and ``dialect`` tell of what was read so far. That may be ahead of the
        events that were handed out: by some lines, and in a big file, which another thread parses, by half a megabyte.
        A `Parser` gives both of the same line.

    Raises:
        SourceError: the source can't be read.
        UnknownDialect: ``dialect`` names none.
        ValueError: ``only`` names an event kind that there is not; ``max_line_bytes`` or ``max_result_bytes`` is
            negative.
    """
    stream = Events(
        dialect=dialect,
        kinds=_kinds(only, state),
        strict=strict,
        spans=spans,
        max_line_bytes=max_line_bytes,
        max_result_bytes=max_result_bytes,
        on_malformed=on_malformed,
    )
    _attach(stream, source)
    return stream


def records(
    source: Source,
    *,
    only: Iterable[str] | None = None,
    strict: bool = False,
    max_line_bytes: int = MAX_LINE_BYTES,
    on_malformed: OnMalformed | None = None,
) -> Records:
    """The raw records of a source: no dialect is asked, nothing is decoded that is not asked for.

    Args:
        only: native record types that are wanted, such as ``{"result"}``; others are only counted.

    The other arguments, and what is raised: see `events`.
    """
    stream = Records(
        only=None if only is None else _names(only),
        strict=strict,
        max_line_bytes=max_line_bytes,
        on_malformed=on_malformed,
    )
    _attach(stream, source)
    return stream


def reduce(
    source: Source,
    *,
    dialect: str | None = None,
    exit_code: int | None = None,
    stderr: bytes | str | None = None,
    transcript: Source | Sequence[Source] | None = None,
    strict: bool = False,
    max_line_bytes: int = MAX_LINE_BYTES,
    max_result_bytes: int | None = None,
    on_malformed: OnMalformed | None = None,
) -> Run:
    """The final state of one session.

    Args:
        source: as for `events`.
        dialect: name of the dialect; None finds it by content.
        exit_code: of the harness's process if the caller knows it, as ``subprocess`` gives it (or 128+n for a signal).
        stderr: what the harness printed there. Exit code and stderr only decide what the stream left open.
        transcript: the session file that the harness wrote of the same run, or a list of them (the main thread's and
            its sub-agents'). Facts that the stream does not show are taken from there; `Run.sources` tells which.
        strict, max_line_bytes, on_malformed: as for `events`.
        max_result_bytes: how much of each tool result the run keeps, in UTF-8; None for all. A call of which more came
            has a key ``cut`` that says how much, and where to read it.

    Returns:
        The `Run`; also for a source without any record that is known (dialect None).

    Raises:
        SourceError: the source can't be read, or is UTF-16.
        UnknownDialect: ``dialect`` names none.
        MalformedLine: with ``strict=True``.
        MismatchedTranscript: ``transcript`` is of another session or harness than the stream.
    """
    if isinstance(stderr, str):
        stderr = stderr.encode("utf-8", "replace")
    engine = _backend.Engine(
        dialect=dialect,
        kinds=() if transcript is None else ("tool_call", "tool_call_update"),
        strict=strict,
        max_line_bytes=max_line_bytes,
        max_result_bytes=max_result_bytes,
        cut_later=transcript is not None,
        on_malformed=on_malformed,
    )
    _attach(engine, source)
    if transcript is None:
        engine.drain_source()
        return last_run_of(engine, exit_code, stderr)
    from .fuse import cut_results
    from .transcripts import File, Stream, fuse_files

    stream = Stream(engine, _name(source), exit_code, stderr)
    files = transcript if isinstance(transcript, (list, tuple)) else [transcript]
    facts, sources = fuse_files(stream, [File(file, max_result_bytes) for file in files])
    if max_result_bytes is not None:
        cut_results(facts, max_result_bytes)
    return run_of(engine, facts, sources=sources)


def detect(source: Source) -> Detection:
    """Which dialect a source is, by its first records, and what decided it.

    A live source loses the records that are read for this: use ``events(...).dialect`` there.
    """
    stream = records(source)
    for number, _ in enumerate(stream, 1):
        found = stream.detection
        if (found is not None and found[2] >= 1) or number >= DETECT_RECORDS:
            break
    return _detection(stream.detection)


def diff(run_a: Run, run_b: Run, *, only: Iterable[str] | None = None) -> list[Difference]:
    """In what two runs differ: verdict, texts, thinking, tool calls, usage, errors; an empty list if in nothing.

    Between runs of two dialects, such as a stream and its session file, only what both print is compared: there a fact
    that one of them leaves out is no difference, nor is where a text is cut into blocks, nor the harness's words for
    things. Ids, times and lines are never compared; calls are paired by id, or by what they did.

    Args:
        run_a: what `reduce` gave of one source.
        run_b: and of another.
        only: the parts that are compared, of ``verdict, texts, thinking, tool_calls, usage, errors``; None for all.

    Returns:
        Differences: ``path``, ``what`` (differs, only in the first, only in the second), ``a`` and ``b``; ``str()`` of
        one says it in a line.

    Raises:
        ValueError: ``only`` names a part that there is not.

    >>> one, two = (reduce(b'{"type": "text", "content": "%s"}\\n{"type": "done"}' % text) for text in (b"Hi", b"Ho"))
    >>> [str(difference) for difference in diff(one, two)]
    ["texts[0]: 'Hi' against 'Ho'"]
    """
    from ._diff import compare

    return compare(run_a, run_b, only)


def drift(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[dict[str, Any]]:
    """The record types and fields that headrace does not know for their dialect.

    Args:
        paths: a file, a folder (searched for .jsonl, .json and .ndjson, plain or .gz or .zst), or several of them.

    Returns:
        One dict for each: ``dialect``, ``type`` of the record, ``field`` (a path; None if the type itself is new),
        ``count`` (records that have it), ``versions`` of the harness (those that the streams print), and ``shape``. No
        value is shown, and ``<key>`` in place of keys that look like data. Files of no dialect are passed over.

    Raises:
        SourceError: a path can't be read.

    >>> import pathlib, tempfile
    >>> lines = '{"type": "text", "content": "Hi", "mood": {"level": 3}}\\n{"type": "done", "response": "Hi"}\\n'
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "run.jsonl").write_text(lines)
    ...     drift(folder)
    [{'dialect': 'evosci', 'type': 'text', 'field': 'mood', 'count': 1, 'versions': [], 'shape': '{level: number}'}]
    """
    from ._drift import find

    return find(paths)


def runs(
    source: Source,
    *,
    dialect: str | None = None,
    strict: bool = False,
    max_line_bytes: int = MAX_LINE_BYTES,
    max_result_bytes: int | None = None,
    on_malformed: OnMalformed | None = None,
) -> Iterator[Run]:
    """The runs of a source with several sessions in it, one after the other, of any dialects.

    A run begins at the first record of another session or of another dialect, as far as the wire shows it; docs/runs.md
    says by what in each dialect, and where it can't be seen. A session that is resumed right behind itself goes on in
    its run; one that was cleared (Claude Code's ``/clear``) is a new one.

    The arguments, and what is raised: see `reduce`. Lines and offsets of a run count from its ``start``; those that
    ``on_malformed`` gets, and of a `MalformedLine`, are of the source.

    >>> two = b"".join(b'{"type": "thread.started", "thread_id": "thread-%d"}\\n' % number for number in (1, 2))
    >>> [(run.session_id, run.start) for run in runs(two)]
    [('thread-1', (1, 0)), ('thread-2', (2, 52))]
    """
    from ._runs import split
    from .pure.source import open_chunks

    options = {
        "dialect": dialect,
        "strict": strict,
        "max_line_bytes": max_line_bytes,
        "max_result_bytes": max_result_bytes,
        "on_malformed": on_malformed,
    }
    blocks, name = open_chunks(source)
    return split(_backend.decompress(blocks, name), options, name)


def usage(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], *, estimate: bool = False) -> Usage:
    """What many files say was spent, each model call once.

    A call counts once, wherever it stands: in a stream and in the session file of the same run, in sessions that were
    resumed, forked or copied, in a sub-agent's own file. What a harness's total has beyond the calls it printed counts
    too, unless a session file tells those calls.

    Args:
        paths: a file, a folder (searched for .jsonl, .json and .ndjson, plain or .gz or .zst), or several of them.
        estimate: also reckon what the tokens cost at list prices; needs the extra ``prices``, and no network. Estimates
            have keys of their own (``estimated_usd``) beside ``cost_usd``, which is what harnesses print.

    Returns:
        A `Usage`: the entries, their total, totals by day, model, harness, project or session, and the entries that
        were dropped with the reason for each.

    Raises:
        SourceError: a path can't be read.
        ImportError: with ``estimate=True`` if the price library is not installed.
    """
    from ._usage import gather

    return gather(paths, estimate)


def _detection(found: tuple[str, str | None, float, list[str]] | None) -> Detection:
    from ._tuples import Detection

    if found is None:
        return Detection(None, None, 0.0, ["no record looks like any dialect"])
    return Detection(*found)


def _kinds(only: Iterable[str] | None, state: bool) -> list[str] | None:
    """The kinds to build; None stands for all but `state`."""
    if only is None:
        return [*KINDS, "state"] if state else None
    return [*_names(only), *(["state"] if state else [])]


def _names(only: Iterable[str]) -> set[str]:
    if isinstance(only, str):
        raise TypeError(f"only= takes a set of names, not a string: {{{only!r}}}")
    return set(only)


def _name(source: Source) -> str:
    """What messages call a source."""
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    return str(getattr(source, "name", f"<{type(source).__name__}>"))


def _attach(stream: Any, source: Source) -> None:
    """Tells the backend where to read; what Python must read itself is read by the shared `pure.source`."""
    if isinstance(source, (str, os.PathLike)):
        stream.attach_path(source)
    elif isinstance(source, int) and not isinstance(source, bool):
        if source < 0:
            raise SourceError(f"{source} is no file descriptor")
        stream.attach_descriptor(source, f"file descriptor {source}")
    else:
        from .pure.source import open_chunks

        chunks, name = open_chunks(source)
        stream.attach_chunks(chunks, name)
