"""What a user relies on without naming a dialect: a stream is recognised by its content, and it is told by which lines.

A wrong guess that calls itself sure is the worst answer: no cut, no missing start and no noise may bring it about.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import headrace

from .bundled import Bundled, streams
from .engines import ENGINES

pytestmark = pytest.mark.once

ALL = streams()
BY_NAME = {stream.name: stream for stream in ALL}
FEW = [stream for stream in ALL if re.search(r"/(hello|tools|session|fatal|acp)\b[^/]*$", stream.name)]

UNSURE = {
    "claude/old-0.2.126-sigint.jsonl",  # nothing but an init record, of a version that named no model yet
    "evosci/fatal.jsonl",  # one error record, as many programs print it
}
"""Streams too short to be sure of."""


def named(bundled: list[Bundled]) -> Any:
    return pytest.mark.parametrize("stream", bundled, ids=[stream.name for stream in bundled])


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> Any:
    return ENGINES[request.param]


def detect(engine: Any, data: bytes) -> tuple[str | None, float, list[str], int]:
    """Dialect, confidence and reasons, and how many records there were."""
    parser = engine(kinds=())
    parser.feed(data)
    parser.close()
    report = parser.report()
    records = report["records"] + report["salvaged"]
    if parser.detection is None:
        return None, 0.0, [], records
    dialect, _, confidence, why = parser.detection
    return dialect, confidence, why, records


def test_there_are_recordings() -> None:
    assert len(ALL) > 500
    assert len({stream.name.split("/")[0] for stream in ALL}) == 19


@named(ALL)
def test_every_stream_is_recognised(engine: Any, stream: Bundled) -> None:
    data = stream.data
    dialect, confidence, why, records = detect(engine, data)
    if dialect is None:
        assert records == 0  # a harness that printed nothing, or only text
        return
    assert dialect in stream.dialects
    assert confidence == 1 or records == 0 or stream.name in UNSURE
    lines = data.count(b"\n") + 1
    for reason in why:
        found = re.fullmatch(r"line (\d+): .+", reason)
        assert found is not None
        assert 1 <= int(found[1]) <= lines


@named(ALL)
def test_no_cut_brings_a_wrong_sure_answer(engine: Any, stream: Bundled) -> None:
    """A killed process: some first lines are all there is."""
    lines = stream.data.split(b"\n")
    for count in (1, 2, 3, 5, 8, 13):
        dialect, confidence, _, _ = detect(engine, b"\n".join(lines[:count]))
        assert dialect in stream.dialects or confidence < 1


SHARED_SHAPES = {
    ("codex-rollout", "codex"),
    ("droid-session", "pi-session"),
    ("kimi-context", "kimi"),
    ("qwen", "claude"),
}
"""Dialects whose records look alike from the second line on: what the first said is gone."""


@named(ALL)
def test_a_missing_start_brings_no_wrong_sure_answer(engine: Any, stream: Bundled) -> None:
    """A log that was rotated away: some last lines are all there is."""
    lines = stream.data.split(b"\n")
    for count in {1, 2, len(lines) // 2, len(lines) - 3}:
        if 0 < count < len(lines):
            dialect, confidence, _, _ = detect(engine, b"\n".join(lines[count:]))
            alike = any((mine, dialect) in SHARED_SHAPES for mine in stream.dialects)
            assert dialect in stream.dialects or confidence < 1 or alike


NOISE = [
    b"npm warn deprecated something@1.0.0",
    b"(node:7) [DEP0040] DeprecationWarning: something is deprecated",
    b"2026-11-29T18:20:13Z INFO hook started",
    b"42",
    b"null",
    b"\x1b]0;a title\x07",
    b"",
    b'{"hook": "PreRun", "status": "ok", "output": {"lines": 3}}',
    b'{"level": "info", "msg": "listening", "time": 1795976355676}',
]


@named([stream for stream in FEW if stream.data.lstrip().startswith(b"{")])
def test_preambles_may_come_first(engine: Any, stream: Bundled) -> None:
    """Hook output, logger lines and titles, and objects that are nobody's records."""
    data = stream.data
    plain, _, why, records = detect(engine, data)
    if data.lstrip().startswith(b"{\n"):
        return  # one document alone in its file; with something before it, it is no stream at all
    dialect, confidence, moved, _ = detect(engine, b"\n".join([*NOISE, data]))
    assert dialect == plain
    assert confidence == 1 or stream.name in UNSURE or records < 2
    shift = len(NOISE)
    assert moved == [re.sub(r"\d+", lambda line: str(int(line[0]) + shift), reason, count=1) for reason in why]


APART = [
    # Qwen Code imitates Claude Code, record by record
    ("claude/tools.jsonl", "qwen/tools.jsonl"),
    # the stream and the session file of one harness
    ("claude/tools.jsonl", "claude/tools.session.jsonl"),
    ("codex/tools.jsonl", "codex/tools.session.jsonl"),
    ("copilot/tools.jsonl", "copilot/tools.session.jsonl"),
    ("droid/tools.jsonl", "droid/tools.session.jsonl"),
    ("gemini/tools.jsonl", "gemini/tools.session.jsonl"),
    ("kimi/tools.jsonl", "kimi/tools.session.jsonl"),
    ("kimi/tools.wire.jsonl", "kimi/tools.session.jsonl"),
    ("opencode/tools.jsonl", "opencode/tools.sqlite-rows.jsonl"),
    ("pi/tools.jsonl", "pi/tools.session.jsonl"),
    ("qwen/tools.jsonl", "qwen/tools.session.jsonl"),
    # one harness, two surfaces
    ("codex/tools.jsonl", "codex/appserver-hello.jsonl"),
    ("claude/tools.jsonl", "acp-claude/tools.jsonl"),
    ("minicode/success.jsonl", "acp-codex/hello.jsonl"),
]


@pytest.mark.parametrize(("one", "other"), APART)
def test_look_alikes_are_told_apart(engine: Any, one: str, other: str) -> None:
    found = [detect(engine, BY_NAME[name].data) for name in (one, other)]
    assert found[0][0] in BY_NAME[one].dialects
    assert found[1][0] in BY_NAME[other].dialects
    assert found[0][0] != found[1][0]


@pytest.mark.parametrize(
    ("record", "dialect"),
    [
        # MCP shares the method and the member with ACP, but its version is a date
        ({"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": "2025-06-18", "serverInfo": {}}}, None),
        ({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}, None),
        ({"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": 1, "agentCapabilities": {}}}, "acp"),
        ({"jsonrpc": "2.0", "method": "session/update", "params": {"update": {"sessionUpdate": "x"}}}, "acp"),
        # objects that are nobody's
        ({}, None),
        ({"type": "something", "data": 1}, None),
        ({"role": "user", "content": "a chat export"}, None),
        ({"level": "error", "message": "x", "timestamp": "2026-11-29T18:20:13Z"}, None),
    ],
)
def test_one_record_alone(engine: Any, record: dict[str, Any], dialect: str | None) -> None:
    found, confidence, _, _ = detect(engine, json.dumps(record).encode() + b"\n")
    if dialect is None:
        assert confidence < 1
    else:
        assert (found, confidence) == (dialect, 1)


@named([stream for stream in FEW if stream.name.endswith((".session.json", "/hello.jsonl"))])
def test_detect_reads_a_path(stream: Bundled) -> None:
    """By content and never by name: the bundled files are compressed, and nothing is told but the path."""
    found = headrace.detect(stream.path)
    assert found.dialect in stream.dialects
    assert found.confidence == 1


def test_what_is_no_stream_has_no_dialect() -> None:
    for data in (b"", b"\n\n", b"plain text\nmore of it\n", b"[1, 2, 3]\n", b"42\n"):
        found = headrace.detect(data)
        assert found.dialect is None
        assert found.confidence == 0
        assert found.why
