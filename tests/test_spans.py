"""``spans=True``: each event says which bytes of the source it comes from."""

from __future__ import annotations

import asyncio
import gzip
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import headrace

from .bundled import streams

RECORDINGS = Path(__file__).parent / "data" / "recordings"
ONE = b'{"type": "text", "content": "Hi"}'
TWO = b'{"type": "text", "content": " there"}'
DONE = b'{"type": "done", "response": "Hi there"}'


def spans(data: bytes, **options: Any) -> list[tuple[int, bytes]]:
    """Line and bytes that each event says."""
    told = [event["extra"]["span"] for event in headrace.events(data, spans=True, **options)]
    return [(span["line"], data[span["offset"] : span["offset"] + span["bytes"]]) for span in told]


def test_the_record_of_an_event() -> None:
    data = b"\xef\xbb\xbf\n" + ONE + b"\r\nnoise\n" + TWO
    assert spans(data) == [(2, ONE), (4, TWO)]


def test_records_on_one_line() -> None:
    assert spans(b"\n[ " + ONE + b" ,7, " + TWO + b"]\n") == [(2, ONE), (2, TWO)]


def test_records_that_were_got_back() -> None:
    assert spans(b"\x00\x00" + ONE + b" " + TWO + b"\x1b[0m\n" + TWO[:10] + ONE) == [(1, ONE), (1, TWO), (2, ONE)]
    hurt = b'{"type": "text", "content": "caf\xe9 NaN"}'
    assert spans(b"\x07" + hurt + b"\n") == [(1, hurt)]
    assert spans(hurt + b"\n" + ONE) == [(1, hurt), (2, ONE)]  # it waits until the dialect is known


def test_a_document_over_many_lines() -> None:
    data = gzip.decompress((RECORDINGS / "gemini" / "old_0.33.0_tools.session.json.gz").read_bytes())
    assert data.count(b"\n") > 10
    assert set(spans(b"\n" + data + b"\n\n")) == {(2, data.strip())}


def test_what_comes_late_says_what_made_it_come() -> None:
    half, other = rb'{"type": "text", "content": "\ud83d"}', rb'{"type": "text", "content": "\ude42"}'
    assert spans(half + b"\n" + other + b"\n") == [(2, other)]
    assert spans(ONE + b"\n" + half + b"\n") == [(1, ONE), (2, half)]  # at the end: the last record


def test_text_behind_the_last_record() -> None:
    record, text = b'{"role":"assistant","content":"Hi"}', b"Max number of steps reached: 3"
    assert spans(record + b"\n" + text, dialect="kimi", state=True)[-1] == (2, text)


def test_text_without_any_record() -> None:
    for dialect in headrace._backend.dialects:
        told = [(1, b"noise")] if dialect in ("kimi", "kimi-context") else []
        assert spans(b"noise\n", dialect=dialect, state=True) == told


def test_any_chunks_tell_the_same() -> None:
    data = gzip.decompress((RECORDINGS / "pi" / "tools.jsonl.gz").read_bytes())
    whole = list(headrace.events(data, spans=True))
    for size in (1, 77, 5000):
        parser = headrace.Parser(spans=True)
        events = [event for at in range(0, len(data), size) for event in parser.feed(data[at : at + size])]
        assert events + parser.close() == whole


@pytest.mark.parametrize("dialect", headrace._backend.dialects)
def test_nothing_else_changes(dialect: str) -> None:
    data = next((s.data for s in streams() if dialect in s.dialects and 500 < len(s.data) < 300_000), ONE)
    plain = list(headrace.events(data, state=True))
    told = list(headrace.events(data, state=True, spans=True))
    assert all("span" not in event.get("extra", {}) for event in plain)
    for event in told:
        del event["extra"]["span"]
        if not event["extra"]:
            del event["extra"]
    assert told == plain


def test_facts_of_the_wire_stay_beside_the_span() -> None:
    content = b'{"type": "text", "text": "Hi"}'
    data = b'{"update": {"sessionUpdate": "agent_message_chunk", "content": %s}, "extra": {"a": 1}}' % content
    (event,) = headrace.events(data, spans=True)
    assert event["extra"] == {"a": 1, "span": {"line": 1, "offset": 0, "bytes": len(data)}}


def test_every_way_to_events_takes_it(tmp_path: Path) -> None:
    data = ONE + b"\n" + TWO + b"\n" + DONE + b"\n"
    path = tmp_path / "run.jsonl"
    path.write_bytes(data)
    wanted = list(headrace.events(data, dialect="evosci", spans=True))
    options: dict[str, Any] = {"dialect": "evosci", "spans": True}
    assert [span for event in wanted for span in [event["extra"]["span"]["offset"]]] == [0, len(ONE) + 1]

    async def read(source: Any) -> list[Any]:
        return [event async for event in source]

    assert list(headrace.follow(path, idle_timeout=0, **options)) == wanted
    assert asyncio.run(read(headrace.aevents(path, **options))) == wanted
    router, seen = headrace.Router(), []
    router.on("agent_message_chunk")(seen.append)
    router.run(path, **options)
    assert seen == wanted
    argv = [sys.executable, "-c", f"import sys; sys.stdout.buffer.write({data!r})"]
    with headrace.Process(argv, **options) as process:
        assert list(process) == wanted
    assert asyncio.run(read(headrace.AsyncProcess(argv, env=dict(os.environ), **options))) == wanted
