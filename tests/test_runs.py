"""What a user relies on when one source holds several sessions."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import headrace

from .bundled import streams

RECORDINGS = Path(__file__).parent / "data" / "recordings"
NAMES = [
    "claude/tools.jsonl",
    "codex/tools.jsonl",
    "gemini/tools.jsonl",
    "pi/tools.jsonl",
    "qwen/tools.jsonl",
    "droid/tools.jsonl",
    "opencode/tools.jsonl",
    "codex/subagent-v2.session.jsonl",
    "pi/tools.session.jsonl",
]


def data_of(name: str) -> bytes:
    return gzip.decompress((RECORDINGS / f"{name}.gz").read_bytes())


@pytest.mark.once
def test_a_stream_of_one_session_is_one_run() -> None:
    for stream in streams():
        if stream.name == "claude/local_commands.jsonl":  # /clear opens another session
            continue
        (run,) = headrace.runs(stream.data)
        assert run == headrace.reduce(stream.data), stream.name
        assert run.start == (1, 0)


@pytest.mark.parametrize("size", [None, 1000])
def test_sessions_of_many_dialects_behind_one_another_are_runs_of_their_own(size: int | None) -> None:
    parts = [data_of(name) for name in NAMES]
    whole = b"".join(parts)
    source = whole if size is None else (whole[at : at + size] for at in range(0, len(whole), size))
    runs = list(headrace.runs(source))
    assert len(runs) == len(NAMES)
    for run, part, name in zip(runs, parts, NAMES, strict=True):
        assert run == headrace.reduce(part), name
    for run, after in pairwise(runs):
        assert after.start == (run.start[0] + run.report.lines, run.start[1] + run.report.bytes)


def test_a_session_that_is_resumed_behind_itself_goes_on() -> None:
    first, second = data_of("codex/twoturns-1.jsonl"), data_of("codex/twoturns-2.jsonl")
    (run,) = headrace.runs(first + second)
    assert len(run.texts) == len(headrace.reduce(first).texts) + len(headrace.reduce(second).texts)


def test_runs_come_as_soon_as_the_next_one_begins() -> None:
    def chunks() -> Iterator[bytes]:
        yield data_of("pi/tools.jsonl") + data_of("claude/tools.jsonl")[:5000]
        raise AssertionError("nobody asked for more")

    assert next(headrace.runs(chunks())).dialect == "pi"


def test_a_cleared_session_is_another_one() -> None:
    before, after = headrace.runs(data_of("claude/local_commands.jsonl"))
    assert before.session_id != after.session_id


def test_a_last_line_without_an_end_may_open_a_session_too() -> None:
    line = b'{"type": "thread.started", "thread_id": "thread-2"}'
    runs = list(headrace.runs(line.replace(b"-2", b"-1") + b"\n" + line))
    assert [run.session_id for run in runs] == ["thread-1", "thread-2"]
    assert next(headrace.runs(b"")).dialect is None
