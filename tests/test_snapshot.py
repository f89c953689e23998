"""Stop and go on: a parser that was restored is the one that was never stopped."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import zlib
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace
from headrace import HeadraceError, Parser, SnapshotError
from headrace.pure import event as ev
from headrace.pure import state

from .engines import ENGINES, same
from .mutate import mutated
from .streams import streams
from .truth import Stream, cases, recordings

ALL = [*recordings(), *cases()]
FOLDERS = sorted({stream.name.split("/")[0] for stream in ALL})

# The seconds that stops take grow with their number times the size of the stream. The suite stops at every border where
# that is below a limit, else at as many as the limit allows, and on the slow backend it reads one stream in so many. By
# hand, HEADRACE_SNAPSHOTS=all stops at every border of every stream on both.
WORK = {"native": 100_000_000, "python": 400_000}
ONE_IN = {"native": 1, "python": 12}
if os.environ.get("HEADRACE_SNAPSHOTS") == "all":
    WORK, ONE_IN = {"native": 10**15, "python": 10**15}, {"native": 1, "python": 1}

HELLO = b"""{"type": "thinking", "content": "Let me see."}
{"type": "tool_call", "id": "1", "name": "execute", "args": {"command": "ls"}}
{"type": "tool_result", "id": "1", "name": "execute", "content": "a.txt", "success": true}
{"type": "text", "content": "One file."}
{"type": "usage_stats", "input_tokens": 10, "output_tokens": 3}
{"type": "done", "content": "One file.", "response": "One file."}
"""


class Twins:
    """A parser that goes on and on, and one that is stopped and restored now and then: what they tell is the same."""

    def __init__(self, engine: Any, **options: Any) -> None:
        self.engine = engine
        self.heard: tuple[list[Any], list[Any]] = ([], [])
        self.both = [engine(on_malformed=heard.append, **options) for heard in self.heard]

    def feed(self, chunk: bytes) -> None:
        assert same(*(told(parser.feed, chunk) for parser in self.both))

    def stop(self) -> None:
        snapshot = self.both[1].snapshot()
        self.both[1] = self.engine.restore(snapshot, on_malformed=self.heard[1].append)
        assert self.both[0].offset == self.both[1].offset

    def close(self) -> None:
        assert same(*(told(parser.close) for parser in self.both))
        self.compare()
        self.stop()
        self.compare()

    def compare(self) -> None:
        assert same(*self.heard)
        assert same(*(everything(parser) for parser in self.both))


def told(call: Any, *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except HeadraceError as error:
        return type(error).__name__, str(error)


def everything(parser: Any) -> Any:
    exits = ((), (1, b"boom: reached max turns"))
    return [parser.run(*exit) for exit in exits], parser.report(), parser.ledger(), parser.detection, parser.ending


@pytest.fixture(params=list(ENGINES))
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


# ---------------------------------------------------------------- equal to never having stopped


def of_folder(folder: str, one_in: int = 1) -> list[Stream]:
    return [stream for stream in ALL if stream.name.split("/")[0] == folder][::one_in]


SMALL = [s for folder in FOLDERS for s in of_folder(folder, 8) if s.path.stat().st_size < 4000]


@pytest.mark.once
@pytest.mark.parametrize("folder", FOLDERS)
def test_stopping_at_record_borders_and_within_lines_changes_nothing(backend: str, folder: str) -> None:
    for stream in of_folder(folder, ONE_IN[backend]):
        lines = stream.data.splitlines(keepends=True)
        every = 1 + len(stream.data) * len(lines) // WORK[backend]
        twins = Twins(ENGINES[backend], kinds=ev.KINDS)
        rng = random.Random(stream.name)
        first = rng.randrange(every)
        for number, line in enumerate(lines):
            half = rng.randrange(len(line)) if number % (every * 10) == first else 0
            twins.feed(line[:half])
            if half:
                twins.stop()
            twins.feed(line[half:])
            if number % every == first:
                twins.stop()
        twins.close()


@pytest.mark.once
def test_the_rest_of_the_stream_may_come_at_once(backend: str) -> None:
    for stream in SMALL:
        data, engine = stream.data, ENGINES[backend]
        for at in {0, len(data) // 3, data.rfind(b"\n", 0, len(data) // 2) + 1, len(data)}:
            twins = Twins(engine, kinds=ev.KINDS)
            twins.feed(data[:at])
            twins.stop()
            assert twins.both[1].offset == at
            twins.feed(data[at:])
            twins.close()


@pytest.mark.once
@settings(max_examples=60)
@given(st.data())
def test_damaged_streams_stopped_anywhere_are_read_alike(backend: str, data: st.DataObject) -> None:
    options = {
        "strict": data.draw(st.booleans()),
        "max_line_bytes": data.draw(st.sampled_from([10, 60, 1 << 20])),
        "dialect": data.draw(st.sampled_from([None, "claude", "pi"])),
    }
    stream = data.draw(streams())
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6).map(sorted))
    twins = Twins(ENGINES[backend], **options)
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        twins.feed(stream[start:end])
        twins.stop()
    twins.close()


@pytest.mark.once
@pytest.mark.parametrize("folder", FOLDERS)
def test_mutated_streams_stopped_anywhere_are_read_alike(backend: str, folder: str) -> None:
    smallest = min(of_folder(folder), key=lambda stream: stream.path.stat().st_size)
    choice = [stream for stream in of_folder(folder) if stream in SMALL] or [smallest]
    for number in range(6):
        rng = random.Random(f"{folder} {number}")
        data = mutated(rng.choice(choice).data, rng)
        twins, at = Twins(ENGINES[backend], kinds=ev.KINDS), 0
        while at < len(data):
            step = rng.choice((1, 200, 3000))
            twins.feed(data[at : at + step])
            twins.stop()
            at += step
        twins.close()


STARTS = {
    "byte order mark": b"\xef\xbb\xbf" + HELLO,
    "document": b'\xef\xbb\xbf{\n"a": [\n1,\n' + HELLO,
    "half an emoji": b'{"type": "text", "content": "\\ud83d"}\n{"type": "text", "content": "\\ude00"}\n',
    "UTF-16": HELLO.decode().encode("utf-16"),
    "UTF-16 without its mark": HELLO.decode().encode("utf-16-be"),
}


@pytest.mark.once
@pytest.mark.parametrize("start", STARTS)
def test_nothing_is_lost_that_waits_for_more(backend: str, start: str) -> None:
    twins = Twins(ENGINES[backend])
    for at in range(len(STARTS[start])):
        twins.feed(STARTS[start][at : at + 1])
        twins.stop()
    twins.close()


# ---------------------------------------------------------------- what a user relies on


def test_a_restored_parser_goes_on_at_its_offset() -> None:
    for at in range(len(HELLO) + 1):
        parser = Parser()
        events = parser.feed(HELLO[:at])
        later = Parser.restore(parser.snapshot())
        assert later.offset == parser.offset == at
        events += later.feed(HELLO[later.offset :]) + later.close()
        whole = Parser()
        assert events == whole.feed(HELLO) + whole.close()
        assert later.run.to_dict() == whole.run.to_dict()


def test_a_snapshot_changes_nothing_and_may_be_restored_twice() -> None:
    parser = Parser()
    parser.feed(HELLO[:100])
    snapshot = parser.snapshot()
    first, second = Parser.restore(snapshot), Parser.restore(bytearray(snapshot))
    assert first.feed(HELLO[100:]) == second.feed(HELLO[100:]) == parser.feed(HELLO[100:])


def test_the_options_are_kept() -> None:
    parser = Parser(only={"tool_call"}, state=True, strict=True, max_line_bytes=200, dialect="evosci")
    heard: list[Any] = []
    later = Parser.restore(parser.snapshot(), on_malformed=heard.append)
    kinds = [event["update"]["sessionUpdate"] for event in later.feed(HELLO)]
    assert later.dialect == "evosci"
    assert set(kinds) == {"tool_call", "state"}
    with pytest.raises(headrace.MalformedLine, match="line too long"):
        later.feed(b"x" * 300 + b"\n")
    assert [line["reason"] for line in heard] == ["line too long"]
    again = Parser.restore(later.snapshot())
    with pytest.raises(headrace.MalformedLine, match="line too long"):
        again.feed(b"\n")


def test_a_closed_parser_stays_closed() -> None:
    parser = Parser()
    parser.feed(HELLO)
    parser.close()
    later = Parser.restore(parser.snapshot())
    assert later.close() == []
    assert later.run.to_dict() == parser.run.to_dict()


def test_a_snapshot_outlives_its_process() -> None:
    parser = Parser()
    parser.feed(HELLO[:100])
    code = (
        "import sys, headrace\n"
        "parser = headrace.Parser.restore(bytes.fromhex(sys.argv[1]))\n"
        "parser.feed(bytes.fromhex(sys.argv[2])[parser.offset:])\n"
        "print(parser.run.final_text, parser.run.verdict.outcome)"
    )
    arguments = [sys.executable, "-c", code, parser.snapshot().hex(), HELLO.hex()]
    environment = {**os.environ, "HEADRACE_BACKEND": headrace.backend}
    assert subprocess.run(arguments, capture_output=True, check=True, env=environment).stdout.split() == [
        b"One",
        b"file.",
        b"completed",
    ]


@pytest.mark.once
def test_the_run_can_be_read_at_any_moment(backend: str) -> None:
    """Reading it changes nothing, and what was read stays as it was."""
    for stream in SMALL:
        read, unread = (ENGINES[backend](kinds=ev.KINDS) for _ in range(2))
        runs = []
        for line in stream.data.splitlines(keepends=True):
            assert same(read.feed(line), unread.feed(line))
            run = read.run()
            runs.append((run, repr(run)))
            read.report(), read.ledger()
        assert same(read.close(), unread.close())
        assert same(everything(read), everything(unread))
        assert all(repr(run) == seen for run, seen in runs), stream.name


# ---------------------------------------------------------------- refused


def snapshot_of(data: bytes) -> bytes:
    parser = Parser()
    parser.feed(data)
    return parser.snapshot()


def test_a_snapshot_that_is_cut_off_is_refused() -> None:
    snapshot = snapshot_of(HELLO[:200])
    for end in range(len(snapshot)):
        with pytest.raises(SnapshotError):
            Parser.restore(snapshot[:end])
    with pytest.raises(SnapshotError, match="damaged"):
        Parser.restore(snapshot + b"\n")


def test_a_snapshot_with_a_changed_bit_is_refused() -> None:
    snapshot = snapshot_of(HELLO[:200])
    for at in range(len(snapshot)):
        changed = bytearray(snapshot)
        changed[at] ^= 1 << at % 8
        with pytest.raises(SnapshotError):
            Parser.restore(changed)


def resealed(old: bytes, new: bytes) -> bytes:
    """A good snapshot whose cover says something else."""
    cover, _, content = snapshot_of(HELLO[:200]).partition(b"\n")
    cover = cover[:-8].replace(old, new)
    return b"%s%08x\n%s" % (cover, zlib.crc32(content, zlib.crc32(cover)), content)


def test_another_version_and_another_backend_are_refused() -> None:
    version = headrace.__version__
    other = {"native": "python", "python": "native"}[headrace.backend]
    with pytest.raises(SnapshotError, match=f"made by headrace 9.9.9, and this is headrace {version}"):
        Parser.restore(resealed(version.encode(), b"9.9.9"))
    with pytest.raises(SnapshotError, match=f"made on the {other} backend.*HEADRACE_BACKEND={other}"):
        Parser.restore(resealed(headrace.backend.encode(), other.encode()))


@pytest.mark.parametrize("given", [b"", b"{}", HELLO, b"headrace snapshot", b"\x80\x04N."])
def test_what_is_no_snapshot_is_refused(given: bytes) -> None:
    with pytest.raises(SnapshotError, match="no snapshot"):
        Parser.restore(given)


@pytest.mark.parametrize("given", ["", 7, None])
def test_what_is_no_bytes_is_a_type_error(given: Any) -> None:
    with pytest.raises(TypeError):
        Parser.restore(given)


# What is not as it should be in Python objects of any kind, and nothing worse; native objects can't be so.
NONSENSE = {
    "native": (HeadraceError,),
    "python": (HeadraceError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError),
}


@pytest.mark.once
def test_a_forged_state_is_refused_or_tells_nonsense(backend: str) -> None:
    """The checksum proves nothing to who can make one: nothing but an error may come of it, whatever the bytes say."""
    rng, engine = random.Random(4), ENGINES[backend]
    for stream in [rng.choice(of_folder(folder)) for folder in FOLDERS]:
        data = stream.data[:20_000]
        parser = engine()
        parser.feed(data[: len(data) // 2])
        good = parser.snapshot()
        for _ in range(40):
            forged = bytearray(good)
            for _ in range(rng.randrange(1, 4)):
                forged[rng.randrange(len(forged))] = rng.choice((0, 1, 127, rng.randrange(256)))
            end = rng.choice((len(forged), rng.randrange(len(forged))))
            try:
                restored = engine.restore(bytes(forged[:end]))
            except SnapshotError:
                continue
            with suppress(*NONSENSE[backend]):
                restored.feed(data[len(data) // 2 :])
                restored.close()
                restored.run()


@pytest.mark.parametrize("name", ["os:system", "intake:Intake", "source:open_chunks", "builtins:eval", "dialect.os:x"])
def test_a_forged_state_names_no_code(name: str) -> None:
    for text in (f'[["{name}","a",1]]', f'[["list",{{"{name}":["true"]}}]]'):
        with pytest.raises(ValueError, match="no state of a parser"):
            state.load(text.encode())


def test_spans_and_cut_results_go_on() -> None:
    data = next(stream.data for stream in ALL if stream.name == "pi/tools")
    parser, events = Parser(spans=True, max_result_bytes=10), []
    for at in range(0, len(data), 997):
        events += parser.feed(data[at : at + 997])
        parser = Parser.restore(parser.snapshot())
    assert events + parser.close() == list(headrace.events(data, spans=True))
    assert Parser.restore(parser.snapshot()).run == headrace.reduce(data, max_result_bytes=10)
