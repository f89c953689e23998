"""What a user relies on when one source holds several sessions."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import headrace

from .bundled import streams
from .engines import BORDERS

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


# ---------------------------------------------------------------- any streams behind one another


class Part(NamedTuple):
    """A recording whose first line is a record."""

    name: str
    data: bytes
    run: headrace.Run
    first: dict[str, Any]
    last: dict[str, Any]


@cache
def parts() -> list[Part]:
    found = []
    for stream in streams():
        data = stream.data if stream.data.endswith(b"\n") else stream.data + b"\n"
        if len(data) > 100_000 or stream.name == "claude/local_commands.jsonl":  # the latter has two sessions
            continue
        try:
            lines = [
                json.loads(line, parse_constant=json.JSONDecodeError) for line in data.splitlines() if line.strip()
            ]
        except (TypeError, ValueError):
            continue  # damaged, or one document over many lines: such a one is alone in its source
        if not lines or not isinstance(lines[0], dict) or headrace.detect(data).confidence < 1:
            continue  # a few records that might be anybody's
        found.append(Part(stream.name, data, headrace.reduce(data), lines[0], lines[-1]))
    return found


BY_ID = {"acp", "codex-appserver"}  # a process says which session it is about, even if it is the one before
BY_START = {"kimi-wire", "kimi-context"}


def is_shown(a: Part, b: Part) -> bool:
    """Whether the wire shows that the second part is another run; what docs/runs.md says of it."""
    mine, other = a.run.dialect, b.run.dialect
    one_session = a.run.session_id is not None and a.run.session_id == b.run.session_id
    if mine != other:
        if {mine, other} == {"kimi", "kimi-context"}:  # a printer mixes the two
            return b.first["role"] in ("meta", "_system_prompt") or b.first.get("id") == 0
        return True
    if mine == "evosci":
        return a.last["type"] in ("done", "error")
    if mine == "kimi":
        return a.last.get("type") == "session.resume_hint" or b.first["role"] == "meta"
    if mine == "minicode":
        return a.last.get("type") == "summary" or b.first.get("eventId") == "s1:1:1"
    if mine == "copilot":
        return a.last["type"] == "result" or b.first["type"] == "session.skills_loaded"
    if mine == "opencode-export":
        return b.first.get("table") == "project"
    if mine == "pi":
        return b.first["type"] == "session" and not one_session
    if mine == "codex":
        return "role" not in b.first and not one_session
    if mine in BY_START:
        return True
    return not one_session and (mine in BY_ID or None not in (a.run.session_id, b.run.session_id))


def chain(pick: random.Random, among: list[Part], length: int) -> list[Part]:
    """Recordings behind one another whose borders are shown."""
    chosen = [pick.choice(among)]
    for _ in range(length):
        after = [part for part in pick.sample(among, min(len(among), 20)) if is_shown(chosen[-1], part)]
        if after:
            chosen.append(after[0])
    return chosen


def check(chosen: list[Part]) -> None:
    runs = list(headrace.runs(b"".join(part.data for part in chosen)))
    assert [run.start[1] for run in runs] == [
        sum(len(part.data) for part in chosen[:at]) for at in range(len(chosen))
    ], [part.name for part in chosen]
    for run, part in zip(runs, chosen, strict=True):
        assert run == part.run, part.name


LONG = 30 if headrace.backend == "native" else 5


@pytest.mark.parametrize("dialect", sorted({part.run.dialect or "" for part in parts()}))
def test_sessions_of_one_dialect_behind_one_another(dialect: str) -> None:
    check(chain(random.Random(dialect), [part for part in parts() if part.run.dialect == dialect], LONG))


@pytest.mark.parametrize("seed", range(12))
def test_sessions_of_any_dialects_behind_one_another(seed: int) -> None:
    check(chain(random.Random(seed), parts(), LONG))


@pytest.mark.once
def test_both_backends_find_the_same_borders_in_any_chunks() -> None:
    pick = random.Random(1)
    for _ in range(40):
        chosen = pick.sample(parts(), 4)
        data = b"".join(part.data[: pick.randrange(len(part.data)) if pick.random() < 0.3 else None] for part in chosen)
        size = pick.choice([997, 65_536, len(data)])
        told = []
        for make in BORDERS.values():
            borders, found = make(), []
            certain = 0
            for at in range(0, len(data), size):
                new = borders.feed(data[at : at + size])
                assert all(place[1] >= certain for place in new)
                assert borders.certain >= certain
                certain = borders.certain
                found += [*new, certain]
            told.append(found + borders.close())
        assert all(one == told[0] for one in told), [part.name for part in chosen]


def test_the_first_runs_of_two_processes_of_one_agent_are_told_by_their_sessions() -> None:
    """A process says hello before it says whether it resumes the session."""
    hello = b'{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"agentCapabilities":{}}}\n'
    opened = b'{"jsonrpc":"2.0","id":1,"result":{"sessionId":"%s"}}\n'
    update = (
        b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"%s","update":'
        b'{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Hi"}}}}\n'
    )
    one = hello + opened % b"s-1" + update % b"s-1"
    assert len(list(headrace.runs(one + one))) == 1
    two = hello + opened % b"s-2" + update % b"s-2"
    assert [run.session_id for run in headrace.runs(one + two)] == ["s-1", "s-2"]
    assert [run.start[1] for run in headrace.runs(one + hello)] == [0, len(one)]


def test_a_line_that_two_processes_wrote_is_cut_where_the_second_one_began() -> None:
    torn = data_of("claude/hello.jsonl")[:-1000]
    after = data_of("claude/tools.jsonl")
    first, second = headrace.runs(torn + after)
    assert second == headrace.reduce(after)
    assert first.report.truncated


def test_a_given_dialect_is_that_of_all_runs() -> None:
    data = data_of("pi/tools.jsonl") + data_of("claude/tools.jsonl")
    (run,) = headrace.runs(data, dialect="pi")
    assert run.report.unknown


def test_a_malformed_line_is_told_with_its_place_in_the_source() -> None:
    one = b'{"type": "thread.started", "thread_id": "thread-1"}\n'
    source, bad = one + b"oops\n" + one.replace(b"-1", b"-2") + b"oops\n", []
    found = list(headrace.runs(source, on_malformed=bad.append))
    assert [run.start for run in found] == [(1, 0), (3, len(one) + 5)]
    assert [(line["line"], line["offset"]) for line in bad] == [(2, len(one)), (4, 2 * len(one) + 5)]
    assert [run.report.malformed_lines[0]["line"] for run in found] == [2, 2]  # of the run
    with pytest.raises(headrace.MalformedLine) as raised:
        list(headrace.runs(source.replace(b"oops\n", b"", 1), strict=True))
    assert (raised.value.line, raised.value.offset) == (3, 2 * len(one))
