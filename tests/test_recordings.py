"""Real streams: the run is what the harness did, on both backends, however the bytes come."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headrace.pure import event as ev

from .engines import ENGINES, Engine, same
from .truth import Stream, cases, recordings, wrong

pytestmark = pytest.mark.once

LIVE = [stream for stream in recordings() if stream.kind == "live"]
ALL = [*recordings(), *cases()]


def named(streams: list[Stream]) -> Any:
    return pytest.mark.parametrize("stream", streams, ids=[stream.name for stream in streams])


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> Any:
    return ENGINES[request.param]


@named(ALL)
def test_the_run_is_what_the_truth_states(engine: type[Engine], stream: Stream) -> None:
    parser = engine(kinds=())
    parser.feed(stream.data)
    parser.close()
    assert wrong(stream, parser.run(stream.exit_code, stream.stderr)) == []


@named(ALL)
def test_native_and_pure_tell_the_same(stream: Stream) -> None:
    if len(ENGINES) < 2:
        pytest.fail("the native extension is not built: `make build-dev`")
    told = []
    for engine in ENGINES.values():
        parser = engine(kinds=ev.KINDS)
        events = [*parser.feed(stream.data), *parser.close()]
        told.append((events, parser.run(), parser.run(1, b"boom: reached max turns"), parser.detection))
    assert same(*told)


@named([stream for stream in ALL if stream.path.stat().st_size < 40_000])
def test_any_chunking_gives_the_same(engine: type[Engine], stream: Stream) -> None:
    rng, data = random.Random(stream.name), stream.data
    whole = engine(kinds=ev.KINDS)
    events = [*whole.feed(data), *whole.close()]
    parser, got, at = engine(kinds=ev.KINDS), [], 0
    while at < len(data):
        step = rng.choice((1, 2, 30, 1000, 5000))
        got += parser.feed(data[at : at + step])
        at += step
    got += parser.close()
    assert same(got, events)
    assert same(parser.run(), whole.run())


@named(LIVE)
def test_events_tell_the_story_of_the_run(engine: type[Engine], stream: Stream) -> None:
    parser = engine()
    events = [*parser.feed(stream.data), *parser.close()]
    run = parser.run()
    assert fold(events, ev.MESSAGE) == "".join(run["texts"])
    assert fold(events, ev.THOUGHT) == "".join(run["thinking"])
    called = {e["update"]["toolCallId"] for e in events if e["update"]["sessionUpdate"] == ev.TOOL_CALL}
    assert called == {call["id"] for call in run["tool_calls"]}
    for event in events:
        repr(event).encode()  # every text can be encoded
        assert set(event) <= {"update", "sessionId", "messageId", "timestamp", "model", "parentToolCallId", "extra"}
        assert all(value is not None for value in event.values())


@named(ALL)
def test_every_byte_is_accounted_for(engine: type[Engine], stream: Stream) -> None:
    parser = engine(kinds=())
    parser.feed(stream.data)
    parser.close()
    report = parser.report()
    parts = ("event_bytes", "ignored_bytes", "unknown_bytes", "malformed_bytes", "blank_bytes")
    assert report["bytes"] == sum(report[part] for part in parts) == len(stream.data)


def fold(events: list[dict[str, Any]], kind: str) -> str:
    """The main thread's text of one kind: each chunk first takes back `retract` characters, then adds its own."""
    text = ""
    for event in events:
        update = event["update"]
        if update["sessionUpdate"] == kind and "parentToolCallId" not in event and "text" in update["content"]:
            text = text[: len(text) - event.get("extra", {}).get("retract", 0)] + update["content"]["text"]
    return text
