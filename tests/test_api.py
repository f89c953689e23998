"""The public API: what a program that uses headrace relies on."""

from __future__ import annotations

import asyncio
import copy
import errno
import gzip
import inspect
import io
import json
import mmap
import os
import pickle
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace import _backend, types

zstandard = pytest.importorskip("zstandard")
RECORDINGS = Path(__file__).parent / "data" / "recordings"
TOOLS = RECORDINGS / "pi" / "tools.jsonl.gz"
DATA = gzip.decompress(TOOLS.read_bytes())

LINES = [
    b'{"type": "text", "content": "Hello"}\n',
    b'{"type": "usage_stats", "input_tokens": 3, "output_tokens": 1}\n',
    b'{"type": "text", "content": " there"}\n',
    b'{"type": "tool_call", "id": "1", "name": "read_file", "args": {"path": "a.txt"}}\n',
    b'{"type": "news", "of": "tomorrow"}\n',
    b'{"type": "done", "content": "Hello there", "response": "Hello there"}\n',
]
STREAM = b"".join(LINES)
KINDS = ["agent_message_chunk", "usage", "agent_message_chunk", "tool_call"]


def kinds(events: Any) -> list[str]:
    return [event["update"]["sessionUpdate"] for event in events]


# ---------------------------------------------------------------- import


def test_import_is_light() -> None:
    """Whoever imports headrace pays for headrace alone."""
    heavy = ["click", "rich", "pyarrow", "zstandard", "msgspec", "asyncio", "multiprocessing", "ray"]
    heavy += ["headrace.cli", "headrace.dump"]
    if headrace.backend == "native":
        heavy += ["orjson", "subprocess", "headrace.pure", "typing", "collections", "enum", "re", "dataclasses", "json"]
        heavy += ["pathlib", "contextlib", "functools", "warnings"]
    code = (
        "import sys; old = {*sys.modules}; import headrace; "
        f"print([name for name in {heavy!r} if name in sys.modules.keys() - old])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"[]\n"


def test_everything_public_is_documented_and_there() -> None:
    for name in headrace.__all__:
        thing = getattr(headrace, name)
        assert name in ("backend", "Source", "AsyncSource") or inspect.getdoc(thing), name
        for method in vars(thing).values() if name in ("Intake", "Process", "AsyncProcess", "Parser", "Record") else ():
            called = getattr(method, "__name__", "_")
            assert called.startswith("_") or not callable(method) or inspect.getdoc(method), f"{name}.{called}"
    assert sorted(headrace.__all__, key=lambda name: (not name.isupper(), name)) == headrace.__all__


def test_the_backend_can_be_forced() -> None:
    code = "import headrace; print(headrace.backend)"
    for forced, told in (("python", b"python\n"), ("native", b"native\n"), ("other", b"")):
        environment = {**os.environ, "HEADRACE_BACKEND": forced}
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment)
        assert result.stdout == told
    assert b"HEADRACE_BACKEND is 'other'; it may be 'native' or 'python', or not be set" in result.stderr


def test_without_the_extension_one_warning_and_it_works() -> None:
    code = (
        "import sys; sys.modules['headrace._native'] = None; import headrace; "
        "print(headrace.backend, headrace.detect(b'').dialect)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "HEADRACE_BACKEND"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment)
    assert result.stdout == b"python None\n"
    assert result.stderr.count(b"RuntimeWarning: headrace runs on its pure-Python backend") == 1


# ---------------------------------------------------------------- events


def test_events_are_plain_dicts_of_the_documented_kinds() -> None:
    events = list(headrace.events(STREAM))
    assert kinds(events) == KINDS
    assert events[0] == {
        "update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "Hello"}}
    }
    for event in headrace.events(DATA, state=True):
        assert type(event) is dict
        assert json.loads(json.dumps(event)) == event


def test_only_some_kinds() -> None:
    assert kinds(headrace.events(STREAM, only={"usage", "tool_call"})) == ["usage", "tool_call"]
    assert kinds(headrace.events(STREAM, only=["usage"])) == ["usage"]
    assert kinds(headrace.events(STREAM, only=iter(["usage"]))) == ["usage"]
    assert kinds(headrace.events(STREAM, only=())) == []
    assert kinds(headrace.events(STREAM, only={"usage"}, state=True)) == ["usage", "state"]
    assert kinds(headrace.events(STREAM, only={"state"})) == ["state"]
    with pytest.raises(TypeError, match="only= takes a set of names, not a string"):
        headrace.events(STREAM, only="usage")
    with pytest.raises(ValueError, match=r"no event kind is called .nope."):
        headrace.events(STREAM, only={"nope"})


def test_states_are_those_of_the_closed_list() -> None:
    allowed = {}
    for state in types.StateUpdate.__args__:
        (name,) = get_args(get_type_hints(state)["state"])
        allowed[name] = set(get_type_hints(state))
    seen = set()
    for name in (
        "pi/tools",
        "pi/retry",
        "pi/compact-threshold",
        "minicode/denied",
        "minicode/success",
        "evosci/interrupt",
    ):
        for event in headrace.events(RECORDINGS / f"{name}.jsonl.gz", only={"state"}):
            state = event["update"]
            seen.add(state["state"])
            assert set(state) <= allowed[state["state"]]
    assert {"session", "turn", "retry", "compaction", "approval", "end"} <= seen
    assert not [event for event in headrace.events(DATA) if event["update"]["sessionUpdate"] == "state"]


def test_an_event_comes_as_soon_as_its_line() -> None:
    given: list[bytes] = []

    def source() -> Iterator[bytes]:
        for line in LINES:
            given.append(line)
            yield line

    events = headrace.events(source())
    assert (events.dialect, events.run.dialect, events.report.bytes) == (None, None, 0)
    next(events)
    assert len(given) == 2  # the second line made sure of the dialect
    assert events.dialect == "evosci"
    assert (events.run.texts, events.run.verdict.outcome) == (["Hello"], "incomplete")
    assert events.report.lines == 2
    assert kinds([next(events), next(events)]) == ["usage", "agent_message_chunk"]
    assert len(given) == 3
    assert events.run.texts == ["Hello", " there"]
    list(events)
    assert events.run == headrace.reduce(STREAM)
    assert events.report == events.run.report
    assert events.report.bytes == len(STREAM)
    assert next(events, None) is None


def test_the_iterator_can_be_dropped_and_taken_up() -> None:
    events = headrace.events(STREAM)
    assert iter(events) is events
    first = next(events)
    assert [first, *events] == list(headrace.events(STREAM))


def test_malformed_lines_are_told() -> None:
    told: list[dict[str, Any]] = []
    events = headrace.events(LINES[0] + b"oops\n" + LINES[1] + b'{"cut', on_malformed=told.append)
    assert kinds(events) == ["agent_message_chunk", "usage"]
    assert told == events.report.malformed_lines
    assert [(line["line"], line["offset"], line["reason"], line["text"]) for line in told] == [
        (2, len(LINES[0]), "not JSON", "oops"),
        (4, len(LINES[0]) + 5 + len(LINES[1]), "cut off", '{"cut'),
    ]
    assert (events.report.malformed, events.report.truncated) == (2, True)


def test_strict_gives_what_came_before_the_malformed_line() -> None:
    events = headrace.events([LINES[0] + LINES[1], b"oops\n" + LINES[2]], strict=True)
    assert kinds([next(events), next(events)]) == ["agent_message_chunk", "usage"]
    with pytest.raises(headrace.MalformedLine) as raised:
        next(events)
    error = raised.value
    assert (error.line, error.offset, error.reason) == (3, len(LINES[0] + LINES[1]), "not JSON")
    assert str(error).startswith(
        f"<list>: line 3 (byte offset {error.offset}) is not valid JSON: not JSON; read with strict=False"
    )
    assert list(events) == []


def test_what_the_source_raises_reaches_the_reader() -> None:
    def source() -> Iterator[bytes]:
        yield STREAM
        raise LookupError("gone")

    events = headrace.events(source())
    given = []
    with pytest.raises(LookupError, match="gone"):
        given.extend(iter(lambda: next(events), None))
    assert kinds(given) == KINDS
    with pytest.raises(LookupError, match="gone"):
        headrace.reduce(source())
    with pytest.raises(ZeroDivisionError):
        list(headrace.events(b"oops\n" + STREAM, on_malformed=lambda line: 1 / 0))


# ---------------------------------------------------------------- the push parser


def test_the_parser_is_fed() -> None:
    parser = headrace.Parser()
    assert (parser.dialect, parser.detection.dialect) == (None, None)
    given = [parser.feed(STREAM[at : at + 7]) for at in range(0, len(STREAM), 7)]
    given.append(parser.close())
    assert [event for events in given for event in events] == list(headrace.events(STREAM))
    assert parser.close() == []
    assert parser.run == headrace.reduce(STREAM)
    assert parser.report == parser.run.report
    assert parser.dialect == "evosci"
    assert parser.detection == headrace.detect(STREAM)


def test_the_parser_takes_any_bytes() -> None:
    for chunk in (STREAM, bytearray(STREAM), memoryview(STREAM)):
        parser = headrace.Parser()
        assert kinds(parser.feed(chunk)) == KINDS
    for wrong in ("text", 5, None):
        with pytest.raises(TypeError):
            headrace.Parser().feed(wrong)  # type: ignore[arg-type]


def test_the_parser_options() -> None:
    assert kinds(headrace.Parser(only={"usage"}).feed(STREAM)) == ["usage"]
    assert kinds(headrace.Parser(only=(), state=True).feed(STREAM)) == ["state"]
    assert headrace.Parser(dialect="pi").dialect == "pi"
    with pytest.raises(headrace.UnknownDialect, match=r"no dialect is called .nope.; known are: .*evosci"):
        headrace.Parser(dialect="nope")
    with pytest.raises(headrace.MalformedLine):
        headrace.Parser(strict=True).feed(b"oops\n")
    parser = headrace.Parser(max_line_bytes=64)
    parser.feed(b'{"type": "text", "content": "' + b"x" * 64 + b'"}\n' + LINES[0] + LINES[1])
    assert parser.report.malformed_lines[0]["reason"] == "line too long"
    assert parser.run.texts == ["Hello"]


@given(st.data())
def test_the_size_of_the_chunks_makes_no_difference(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 300) | st.integers(1, len(DATA)))
    parser = headrace.Parser()
    events = [event for at in range(0, len(DATA), size) for event in parser.feed(DATA[at : at + size])]
    assert events + parser.close() == EVENTS
    assert parser.run == RUN


EVENTS, RUN = list(headrace.events(DATA)), headrace.reduce(DATA)


# ---------------------------------------------------------------- sources


class Pathlike:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __fspath__(self) -> str:
        return str(self._path)


class OnlyRead:
    """A file object that has no more than it must."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def read(self, size: int, /) -> bytes:
        return self._file.read(min(size, 1000))


def opened(path: Path, how: str) -> Any:
    """The source `how` for the file's bytes."""
    data = path.read_bytes()
    if how == "str":
        return str(path)
    if how == "Path":
        return path
    if how == "os.PathLike":
        return Pathlike(path)
    if how == "mmap":
        with open(path, "rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if how == "binary file":
        return open(path, "rb")  # closed with the test's process; reading does not close it
    if how == "raw file":
        return open(path, "rb", buffering=0)
    if how == "gzip.open":
        return gzip.GzipFile(fileobj=io.BytesIO(gzip.compress(data)))
    if how == "descriptor":
        return os.open(path, os.O_RDONLY)
    if how == "pipe":
        read, write = os.pipe()

        def fill() -> None:
            with open(write, "wb") as out:
                out.write(data)

        threading.Thread(target=fill).start()
        return read
    if how == "Popen":
        code = "import sys, shutil; shutil.copyfileobj(open(sys.argv[1], 'rb'), sys.stdout.buffer)"
        return subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE)
    return {
        "bytes": lambda: data,
        "bytearray": lambda: bytearray(data),
        "memoryview": lambda: memoryview(data),
        "strided memoryview": lambda: memoryview(bytes(b for byte in data for b in (byte, 0)))[::2],
        "BytesIO": lambda: io.BytesIO(data),
        "least file object": lambda: OnlyRead(data),
        "list": lambda: [data[at : at + 1000] for at in range(0, len(data), 1000)],
        "generator": lambda: (data[at : at + 777] for at in range(0, len(data), 777)),
        "iterable of mixed": lambda: [bytearray(data[:10]), b"", memoryview(data)[10:]],
    }[how]()


def close(source: Any) -> None:
    if isinstance(source, subprocess.Popen):
        with source:
            pass
    elif isinstance(source, int):
        os.close(source)
    elif hasattr(source, "close"):
        source.close()


HOWS = [
    *("str", "Path", "os.PathLike", "mmap", "binary file", "raw file", "gzip.open", "descriptor", "pipe", "Popen"),
    *("bytes", "bytearray", "memoryview", "strided memoryview", "BytesIO", "least file object"),
    *("list", "generator", "iterable of mixed"),
]
PACKED = {"plain": DATA, "gzip": gzip.compress(DATA), "zstd": zstandard.ZstdCompressor().compress(DATA)}


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("how", HOWS)
def test_every_kind_of_source(how: str, packed: str, tmp_path: Path) -> None:
    path = tmp_path / "no-suffix-tells"
    path.write_bytes(PACKED[packed])
    for read in (
        lambda source: headrace.reduce(source),
        lambda source: len([*headrace.events(source)]),
        lambda source: len([*headrace.records(source)]),
        lambda source: headrace.detect(source).dialect,
        lambda source: headrace.Router().run(source),
    ):
        source = opened(path, how)
        try:
            got = read(source)
        finally:
            if not (how == "pipe" and packed == "plain"):
                close(source)
        assert got in (RUN, len(EVENTS), 168, "pi")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("/no/such/file", "can't open ./no/such/file.: No such file"),
        (Path(__file__).parent, "(?i)is a directory"),
        ("nul\0byte", "can't open .nul"),
        (io.StringIO("text"), 'open in text mode.*mode "rb"'),
        (["text"], "gave a str where bytes are needed; encode it"),
        ([STREAM, 5], "gave a int where bytes are needed"),
        (object(), "can't read a object: a source is a path, bytes"),
        (None, "can't read a NoneType"),
        (True, "can't read a bool"),
        (-1, "-1 is no file descriptor"),
        (987654, "file descriptor 987654.*Bad file descriptor"),
        (gzip.compress(STREAM)[:-9], "ends inside a compressed frame"),
        (gzip.compress(STREAM)[:-8] + b"12345678", "the gzip data is corrupt"),
        (zstandard.ZstdCompressor().compress(STREAM)[:-3], "zstd"),
        (STREAM.decode().encode("utf-16"), "UTF-16.*iconv -f UTF-16 -t UTF-8"),
        (STREAM.decode().encode("utf-16-be"), "UTF-16BE.*iconv -f UTF-16BE -t UTF-8"),
    ],
)
def test_what_cannot_be_read_says_why(source: Any, message: str) -> None:
    for read in (headrace.reduce, lambda source: list(headrace.events(source)), headrace.Router().run):
        with pytest.raises(headrace.SourceError, match=message):
            read(source)


def test_errors_are_of_one_family() -> None:
    for error in (headrace.SourceError, headrace.MalformedLine, headrace.UnknownDialect, headrace.SpillError):
        assert issubclass(error, headrace.HeadraceError)
    assert issubclass(headrace.SourceError, OSError)
    assert issubclass(headrace.UnknownDialect, ValueError)


def test_what_is_wrong_with_a_stream_says_which_source_it_is(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_bytes(b"oops\n")
    for read in (headrace.reduce, headrace.events, headrace.records):
        with pytest.raises(headrace.MalformedLine) as malformed:
            list(read(path, strict=True))
        assert str(malformed.value).startswith(f"{path}: line 1 (byte offset 0) is not valid JSON")
        assert malformed.value.source == str(path)
    with open(path, "rb") as file, pytest.raises(headrace.MalformedLine, match=re.escape(f"{path}: line 1")):
        headrace.reduce(file, strict=True)
    one = b'{"type": "thread.started", "thread_id": "thread-1"}\n'
    path.write_bytes(one + one.replace(b"-1", b"-2") + b"oops\n")
    with pytest.raises(headrace.MalformedLine, match=re.escape(f"{path}: line 3 (byte offset {2 * len(one)})")):
        list(headrace.runs(path, strict=True))  # not the line of its run
    with pytest.raises(headrace.MalformedLine, match=re.escape(f"{path}: line 3 ")):
        list(headrace.follow(path, strict=True, idle_timeout=0))
    with pytest.raises(headrace.MalformedLine, match=r"stdout of .*: line 1 "):
        headrace.Process([sys.executable, "-c", "print('oops')"], strict=True).wait()

    async def read_on(source: Any) -> None:
        async for _ in headrace.aevents(source, strict=True):
            pass

    with pytest.raises(headrace.MalformedLine, match=re.escape(f"{path}: line 3 ")):
        asyncio.run(read_on(path))
    parser = headrace.Parser(strict=True)
    with pytest.raises(headrace.MalformedLine, match=r"^line 1 ") as fed:
        parser.feed(b"oops\n")
    assert fed.value.source is None
    path.write_bytes(STREAM.decode().encode("utf-16"))
    for read in (headrace.reduce, headrace.events, headrace.records, headrace.runs):
        with pytest.raises(headrace.SourceError, match=re.escape(f"{path}: the stream begins as UTF-16")):
            list(read(path))
    with pytest.raises(headrace.SourceError, match=r"^the stream begins as UTF-16"):
        headrace.Parser().feed(path.read_bytes())


def test_a_file_is_closed_when_nobody_reads_on(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_bytes(b"oops\n" + STREAM)

    def is_open() -> bool:
        return any(is_of(int(number)) for number in os.listdir("/dev/fd"))

    def is_of(descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), path.stat())
        except OSError:  # that of the listing itself
            return False

    stream = headrace.events(path, strict=True)
    assert is_open()
    with pytest.raises(headrace.MalformedLine) as raised:
        next(stream)
    assert not is_open(), raised.value  # while it is still there
    headrace.events(path)
    next(headrace.records(path))
    assert not is_open()


def test_what_the_system_says_of_a_file_is_the_cause(tmp_path: Path) -> None:
    (tmp_path / "itself.jsonl").symlink_to("itself.jsonl")
    for name, number in (("none.jsonl", errno.ENOENT), ("itself.jsonl", errno.ELOOP)):
        with pytest.raises(headrace.SourceError) as raised:
            headrace.reduce(tmp_path / name)
        assert isinstance(raised.value.__cause__, OSError)
        assert raised.value.__cause__.errno == number


def test_an_error_of_a_worker_process_reaches_its_parent() -> None:
    for read in (
        lambda: headrace.reduce(b"oops\n", strict=True),
        lambda: headrace.reduce(b"", dialect="pie"),
        lambda: headrace.reduce("no-such-file"),
        lambda: headrace.Parser.restore(b"?"),
    ):
        with pytest.raises(headrace.HeadraceError) as raised:
            read()
        for again in (pickle.loads(pickle.dumps(raised.value)), copy.deepcopy(raised.value)):
            assert (type(again), str(again), vars(again)) == (
                type(raised.value),
                str(raised.value),
                vars(raised.value),
            )


def test_a_negative_limit_is_refused() -> None:
    for read in (headrace.events, headrace.records, headrace.reduce):
        with pytest.raises(ValueError, match="max_line_bytes is negative"):
            read(STREAM, max_line_bytes=-1)
    with pytest.raises(ValueError, match="max_line_bytes is negative"):
        next(headrace.runs(STREAM, max_line_bytes=-1))


def test_what_a_run_has_is_told() -> None:
    run = headrace.reduce(STREAM)
    with pytest.raises(AttributeError, match=r"Run has no 'outcome'; it has dialect, version, .*, errors, .*, report$"):
        _ = run.outcome
    assert len(dir(run)) == len(set(dir(run)))
    assert {"errors", "plan", "ledger", "to_dict"} <= set(dir(run))


def test_files_that_are_not_for_reading(tmp_path: Path) -> None:
    with open(os.devnull, "rb") as closed:
        pass
    with pytest.raises(headrace.SourceError, match="the file is closed"):
        headrace.reduce(closed)
    with open(tmp_path / "out", "wb") as out, pytest.raises(headrace.SourceError):
        headrace.reduce(out)
    child = subprocess.Popen([sys.executable, "-c", ""])
    with (
        child,
        pytest.raises(headrace.SourceError, match=r"its stdout is not a pipe; start it with stdout=subprocess.PIPE"),
    ):
        headrace.reduce(child)

    async def later() -> Any:
        yield STREAM

    with pytest.raises(headrace.SourceError, match=r"headrace.aevents reads async sources"):
        headrace.reduce(later())  # type: ignore[arg-type]


def test_what_could_be_read_comes_before_the_error() -> None:
    events = headrace.events(gzip.compress(STREAM + b"\n" * 5000)[:-9])
    given = []
    with pytest.raises(headrace.SourceError):
        given.extend(iter(lambda: next(events), None))
    assert kinds(given) == KINDS


def test_files_and_descriptors_stay_open() -> None:
    with open(TOOLS, "rb") as file:
        headrace.reduce(file)
        assert not file.closed
        file.seek(0)
        headrace.reduce(file.fileno())
        os.fstat(file.fileno())


def test_waiting_for_a_pipe_lets_other_threads_run() -> None:
    read, write = os.pipe()
    done: list[headrace.Run] = []
    reader = threading.Thread(target=lambda: done.append(headrace.reduce(read)))
    reader.start()
    for line in LINES:
        os.write(write, line)
        time.sleep(0.01)
    assert not done
    os.close(write)
    reader.join(30)
    os.close(read)
    assert done[0].texts == ["Hello", " there"]


# ---------------------------------------------------------------- records

RAW = b'{"type": "a", "b": {"c": [1, {"d": 2}], "n": null}, "x": 1, "x": 2, "s": "\\ud83d", "big": %d}' % 10**30


def test_a_record_gives_what_is_asked_for() -> None:
    (record,) = headrace.records(b"\n  " + RAW + b"  \r\n")
    assert (record.type, record.line, record.lossy, record.salvaged) == ("a", 2, False, False)
    assert record["b"] == {"c": [1, {"d": 2}], "n": None}
    assert record["x"] == 2
    assert record["s"] == "\ud83d"
    assert record["big"] == 10**30
    assert record.get("b", "c") == [1, {"d": 2}]
    assert record.get("b", "n") is None
    assert record.get("b", "c", "d") is None
    assert record.get("nope", "c") is None
    assert "x" in record
    assert "nope" not in record
    with pytest.raises(KeyError, match="nope"):
        record["nope"]
    assert record.to_dict() == json.loads(RAW)
    assert json.loads(record.raw) == record.to_dict()


def test_records_of_some_types() -> None:
    records = headrace.records(STREAM, only={"text", "done"})
    assert [record["content"] for record in records] == ["Hello", " there", "Hello there"]
    assert records.report.records == len(LINES)
    assert sum(records.report.ignored.values()) == 3
    assert records.report.bytes == len(STREAM)
    assert records.dialect == "evosci"
    with pytest.raises(TypeError, match="only= takes a set of names, not a string"):
        headrace.records(STREAM, only="text")


def test_records_need_no_dialect() -> None:
    records = headrace.records(b'{"a": 1}\n[{"b": 2}, {"c": 3}]\n42\n{"type": "x"}\n')
    assert [record.to_dict() for record in records] == [{"a": 1}, {"b": 2}, {"c": 3}, {"type": "x"}]
    assert records.dialect is None
    assert [(r.line, r.offset, r.raw) for r in headrace.records(b'\xef\xbb\xbf{"a": 1}\r\n{"b":2}')] == [
        (1, 3, b'{"a": 1}'),
        (2, 13, b'{"b":2}'),
    ]


def test_a_record_outlives_its_source() -> None:
    source = bytearray(STREAM)
    kept = list(headrace.records(source))
    source[:] = b"x" * len(source)
    assert [record.to_dict() for record in kept] == [json.loads(line) for line in LINES]


# ---------------------------------------------------------------- reduce and Run

KEYS = [
    *("dialect", "version", "session_id", "model", "cwd", "verdict", "final_text", "texts", "thinking", "messages"),
    *("tool_calls", "plan", "subagents", "usage", "cost_usd", "errors", "retries", "compactions", "report"),
]
CALL = [
    *("id", "name", "kind", "title", "input", "status", "ok", "result", "raw_output", "parent", "exit_code"),
    *("started_at", "ended_at", "duration_ms"),
]


def test_a_run_has_exactly_these_keys() -> None:
    run = RUN.to_dict()
    assert list(run) == KEYS
    assert list(run["verdict"]) == ["outcome", "reason", "evidence"]
    assert list(run["verdict"]["evidence"][0]) == ["line", "offset", "why"]
    assert all(list(call) == CALL for call in run["tool_calls"])
    assert list(run["usage"]) == ["calls", "run", "difference"]
    assert list(run["usage"]["calls"]) == ["count", "prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd"]
    assert json.loads(json.dumps(run)) == run
    failed = headrace.reduce(RECORDINGS / "pi" / "fatal.jsonl.gz").to_dict()
    assert list(failed["errors"][0]) == ["message", "fatal", "line"]
    empty = headrace.reduce(b"").to_dict()
    assert list(empty) == KEYS
    assert (empty["dialect"], empty["final_text"], empty["plan"], empty["usage"]["run"]) == (None, None, None, None)
    assert (empty["texts"], empty["errors"], empty["usage"]["calls"]["prompt_tokens"]) == ([], [], None)


def test_a_run_has_attributes() -> None:
    assert RUN.dialect == "pi"
    assert RUN.verdict.outcome == "completed"
    assert RUN.verdict.evidence == [{"line": 168, "offset": 73463, "why": "terminal record"}]
    assert RUN.report.records == 168
    assert [call["ok"] for call in RUN.tool_calls] == [True, False, True, True, True, True, True, False]
    assert repr(RUN) == "<Run pi completed, 4 texts, 8 tool calls>"
    assert repr(RUN.verdict) == "<Verdict completed (stop)>"
    assert repr(RUN.report) == "<Report 73504 bytes, 168 records, 0 malformed, 0 salvaged>"
    assert set(KEYS) <= set(dir(RUN))
    with pytest.raises(AttributeError, match="Run has no 'nope'; it has dialect, "):
        _ = RUN.nope
    assert headrace.reduce(b"") != RUN
    assert RUN.to_dict() != RUN
    with pytest.raises(TypeError):
        hash(RUN)


def test_to_dict_is_a_copy() -> None:
    run = headrace.reduce(STREAM)
    changed = run.to_dict()
    changed["texts"].append("more")
    changed["usage"]["calls"]["count"] = 99
    changed["tool_calls"][0]["input"]["path"] = "elsewhere"
    assert run == headrace.reduce(STREAM)


def test_a_run_can_be_copied_and_sent() -> None:
    for run in (copy.copy(RUN), copy.deepcopy(RUN), pickle.loads(pickle.dumps(RUN))):
        assert run == RUN
        assert run.report == RUN.report


def test_deep_values_and_long_integers_are_nothing_special() -> None:
    deep = b"[" * 1000 + b"]" * 1000
    line = b'{"type": "tool_call", "id": "1", "name": "x", "args": {"deep": %s, "s": "\\ud83d", "n": %d}}\n'
    stream = line % (deep, 10**4299) + STREAM
    (event,) = [e for e in headrace.events(stream, only={"tool_call"}) if e["update"]["toolName"] == "x"]
    call = headrace.reduce(stream).to_dict()["tool_calls"][0]
    # in events as digits: every JSON writer can write those
    for args, long in ((call["input"], 10**4299), (event["update"]["rawInput"], str(10**4299))):
        assert (args["n"], args["s"]) == (long, "\ufffd")
        depth, inner = 0, args["deep"]
        while inner:
            depth, inner = depth + 1, inner[0]
        assert depth == 999


@pytest.mark.parametrize(
    ("stream", "known", "outcome", "reason"),
    [
        (STREAM, {}, "completed", "done"),
        (STREAM, {"exit_code": 1}, "completed", "done"),  # the stream has the first word
        (STREAM, {"exit_code": -9, "stderr": "killed"}, "completed", "done"),
        (LINES[0] + LINES[1], {}, "incomplete", None),
        (LINES[0] + LINES[1], {"exit_code": -2}, "cancelled", "SIGINT"),
        (LINES[0] + LINES[1], {"exit_code": 130}, "cancelled", "SIGINT"),
        (LINES[0] + LINES[1], {"exit_code": -15}, "cancelled", "SIGTERM"),
        (LINES[0] + LINES[1], {"exit_code": 137}, "incomplete", "SIGKILL"),
        (LINES[0] + LINES[1], {"exit_code": 1, "stderr": "reached max turns (3)"}, "limit", "stderr"),
        (LINES[0] + LINES[1], {"exit_code": 1, "stderr": b"timed out after 5 s"}, "timeout", "stderr"),
        (b"", {}, "incomplete", None),
        (b"", {"exit_code": 1, "stderr": "no such model"}, "failed", "exit code 1"),
    ],
)
def test_what_the_caller_knows_fills_in(stream: bytes, known: dict[str, Any], outcome: str, reason: str | None) -> None:
    verdict = headrace.reduce(stream, **known).verdict
    assert (verdict.outcome, verdict.reason) == (outcome, reason)


def test_stderr_is_the_error_when_the_stream_has_none() -> None:
    run = headrace.reduce(b"", exit_code=1, stderr=b"\n boom \xff\n")
    assert run.errors == [{"message": "boom \ufffd", "fatal": True, "line": None}]
    assert headrace.reduce(b"", exit_code=1, stderr="boom é").errors[0]["message"] == "boom é"


def test_another_dialect_can_be_forced() -> None:
    assert headrace.reduce(STREAM, dialect="minicode").dialect == "minicode"
    with pytest.raises(headrace.UnknownDialect):
        headrace.reduce(STREAM, dialect="nope")


# ---------------------------------------------------------------- the report


def test_the_report_accounts_for_every_byte() -> None:
    stream = b"\xef\xbb\xbf" + LINES[0] + b"\r\n" + b"noise\n" + b"\x00\x00" + LINES[1] + LINES[4] + b'{"cut'
    report = headrace.reduce(stream).report
    parts = ("event_bytes", "ignored_bytes", "unknown_bytes", "malformed_bytes", "blank_bytes")
    assert report.bytes == len(stream) == sum(getattr(report, part) for part in parts)
    assert (report.lines, report.records, report.malformed, report.salvaged, report.blank) == (6, 2, 3, 1, 1)
    assert report.unknown == {"news": 1}
    assert report.truncated
    assert set(report.to_dict()) == set(report.__annotations__)


# ---------------------------------------------------------------- detect


def test_detect_says_what_decided() -> None:
    found = headrace.detect(TOOLS)
    assert found == ("pi", "session format 3", 1.0, found.why)
    assert found.why[0] == "line 1: a session header"
    assert headrace.detect(b"") == (None, None, 0.0, ["no record looks like any dialect"])
    assert headrace.detect(b'{"some": "thing"}\n' * 100).dialect is None
    assert headrace.detect(b"noise\n" * 100 + STREAM).dialect == "evosci"


def test_detect_reads_no_more_than_it_must() -> None:
    given = []

    def source() -> Iterator[bytes]:
        for number in range(10_000):
            given.append(number)
            yield b'{"some": "thing"}\n'

    headrace.detect(source())
    assert len(given) < 100


# ---------------------------------------------------------------- Router


def test_the_router_calls_in_the_order_of_the_stream() -> None:
    router, called = headrace.Router(), []

    @router.on("agent_message_chunk", "tool_call")
    def event(event: Any) -> None:
        called.append(event["update"]["sessionUpdate"])

    @router.on("usage_stats", "done")
    def record(record: Any) -> None:
        called.append(record.type)

    run = router.run(STREAM)
    assert called == ["agent_message_chunk", "usage_stats", "agent_message_chunk", "tool_call", "done"]
    assert run == headrace.reduce(STREAM)
    router.run(STREAM)
    assert len(called) == 10


def test_a_name_that_is_both_kind_and_record_type() -> None:
    router, called = headrace.Router(), []
    router.on("tool_call")(lambda event: called.append(event["update"]["toolCallId"]))
    router.on_record("tool_call")(lambda record: called.append(record["args"]))
    router.run(STREAM)
    assert called == [{"path": "a.txt"}, "1"]


def test_several_handlers_and_one_for_the_rest() -> None:
    router, called = headrace.Router(), []
    router.on("usage")(lambda event: called.append("first"))
    router.on("usage")(lambda event: called.append("second"))
    router.otherwise(lambda event: called.append(event["update"]["sessionUpdate"]))
    router.run(STREAM)
    assert called == ["agent_message_chunk", "first", "second", "agent_message_chunk", "tool_call"]


def test_states_come_to_those_who_ask() -> None:
    router, called = headrace.Router(), []
    router.on("state")(lambda event: called.append(event["update"]["state"]))
    router.run(STREAM)
    assert called == ["end"]


def test_unknown_records_can_be_handled() -> None:
    router, called = headrace.Router(), []
    router.on("news")(lambda record: called.append(record.to_dict()))
    router.run(STREAM)
    assert called == [{"type": "news", "of": "tomorrow"}]


def test_a_handler_stays_a_function_and_may_raise() -> None:
    router = headrace.Router()

    @router.on("tool_call")
    def handler(event: Any) -> int:
        raise LookupError(event["update"]["toolCallId"])

    with pytest.raises(LookupError, match="1"):
        router.run(STREAM)
    with pytest.raises(LookupError):
        handler({"update": {"toolCallId": "1"}})
    with pytest.raises(headrace.MalformedLine):
        headrace.Router().run(b"oops\n", strict=True)
    told: list[Any] = []
    headrace.Router().run(b"oops\n", on_malformed=told.append)
    assert told[0]["reason"] == "not JSON"


# ---------------------------------------------------------------- types


def test_the_kinds_of_the_types_are_the_kinds_of_events() -> None:
    names = [get_args(get_type_hints(kind)["sessionUpdate"]) for kind in types.SessionUpdate.__args__]
    assert tuple(name for (name,) in names) == headrace.api.KINDS


def test_a_run_is_the_same_part_by_part_as_at_once() -> None:
    run = headrace.reduce(STREAM, exit_code=1, stderr="gone")
    whole = run.to_dict()
    for name, part in whole.items():
        read = getattr(run, name)
        assert (read.to_dict() if hasattr(read, "to_dict") else read) == part
    assert run.tool_calls is run.tool_calls
    run.errors.append({"message": "of the caller", "fatal": False, "line": None})
    assert run.to_dict()["errors"] == run.errors
    assert list(run.to_dict()) == list(whole)
    with pytest.raises(KeyError):
        _backend.Engine().run_part("nope")


# ---------------------------------------------------------------- dicts of records that are alike

ALIKE = [
    '{"type": "x", "n": %s, "usage": {"input": %s, "list": [1, {"deep": %s}, []], "ok": true}, "text": %s}',
    '{"type": "x", "again": %s, "again": %s, "both": {"a": %s}, "text": %s}',
    '{"type": "x", "k\\u0065y": %s, "empty": {}, "null": null, "pair": [%s, %s], "text": %s}',
]
VALUES = ["0", "-1", "1.5", "2.9999999999999997e-05", "123456789012345678901234567890", "1e400"]
TEXTS = ['"a"', '""', '"\\ud83d"', '"\\ud83d\\ude00"', '"ä 😀"', '"\\n"', json.dumps("long " * 40)]


@pytest.mark.parametrize("shape", ALIKE)
def test_records_that_are_alike_give_the_dicts_that_json_loads_gives(shape: str) -> None:
    lines = []
    for number in range(60):
        numbers = [VALUES[(number // step) % len(VALUES)] for step in (1, 2, 7)]
        lines.append(shape % (*numbers, TEXTS[number % len(TEXTS)]))
    stream = "\n".join(lines).encode()
    dicts = [record.to_dict() for record in headrace.records(stream)]
    assert dicts == [json.loads(line) for line in lines]
    assert [list(made) for made in dicts] == [list(json.loads(line)) for line in lines]
    for record in headrace.records(stream):
        assert (record["text"], record.to_dict()["text"]) == (record.get("text"), json.loads(record.raw)["text"])


def test_a_dict_that_is_changed_changes_no_other() -> None:
    def wipe(value: Any) -> None:
        for inner in list(value.values() if isinstance(value, dict) else value):
            if isinstance(inner, (dict, list)):
                wipe(inner)
        value.clear()

    lines = [ALIKE[0] % (1, number, 3, '"same"') for number in range(20)]
    for record, line in zip(headrace.records("\n".join(lines).encode()), lines, strict=True):
        made = record.to_dict()
        assert made == json.loads(line)
        assert record.to_dict() is not made
        wipe(made)
    chunk = b'{"type": "text", "content": "same"}\n'
    expected = None
    for event in headrace.events(STREAM + chunk * 20):
        if event["update"]["sessionUpdate"] == "agent_message_chunk":
            if event["update"]["content"]["text"] == "same":
                expected = expected or copy.deepcopy(event)
                assert event == expected
            wipe(event)
    assert expected


OWNERS = ["events", "records", "aevents", "follow", "Parser", "Process", "AsyncProcess", "Intake"]


@pytest.mark.parametrize("name", OWNERS)
def test_what_owns_a_source_can_not_be_copied(name: str) -> None:
    """The copy would close, or kill, what the other one reads."""
    arguments: dict[str, list[Any]] = {"Parser": [], "Intake": [], "Process": [["true"]], "AsyncProcess": [["true"]]}
    owner = getattr(headrace, name)(*arguments.get(name, ["session.jsonl" if name == "follow" else b"{}"]))
    for way in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot"):
            way(owner)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic takes those of typing")
def test_the_types_of_events_are_such_as_pydantic_takes() -> None:
    typing_extensions = pytest.importorskip("typing_extensions")
    assert type(types.OutputEvent).__module__ == typing_extensions.__name__
