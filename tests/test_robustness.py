"""Hostile and damaged input: nothing raises, nothing is lost from the account, and both backends still agree."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from headrace.pure import event as ev

from .engines import BORDERS, ENGINES, same
from .mutate import mutated, renamed, repeated
from .truth import cases, recordings

pytestmark = pytest.mark.once

MUTATIONS = int(os.environ.get("HEADRACE_MUTATIONS", "40"))  # of each folder of recordings; more by hand
SMALL = [stream for stream in [*recordings(), *cases()] if stream.path.stat().st_size < 12_000]
FOLDERS = sorted({stream.name.split("/")[0] for stream in SMALL})
TRUNCATED = ("pi/hello-responses", "evosci/surrogates", "minicode/success", "claude/hello", "codex/hello")


def read(engine: Any, data: bytes, sizes: Any = None) -> Any:
    parser, out, at = engine(kinds=ev.KINDS), [], 0
    while at < len(data):
        step = len(data) if sizes is None else sizes()
        out += parser.feed(data[at : at + step])
        at += step
    out += parser.close()
    report = parser.report()
    parts = ("event_bytes", "ignored_bytes", "unknown_bytes", "malformed_bytes", "blank_bytes")
    assert report["bytes"] == sum(report[part] for part in parts) == len(data)
    run = parser.run()
    times = [call[key] for call in run["tool_calls"] for key in ("started_at", "ended_at")]
    assert parser.last_call_time() == max((time for time in times if time is not None), default=None)
    return out, run, parser.run(1, b"boom"), parser.detection, parser.ledger(), parser.printed_models()


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("change", [mutated, repeated, renamed], ids=["mutated", "again", "renamed"])
def test_changed_streams_read_alike_on_both_backends(folder: str, change: Callable[..., bytes]) -> None:
    """Mutated, or with records that come again: those are read in another way than the first, see `template.rs`."""
    streams = [stream for stream in SMALL if stream.name.startswith(folder + "/")]
    for number in range(MUTATIONS):
        rng = random.Random(f"{change.__name__} {folder} {number}")
        stream = rng.choice(streams)
        data = change(stream.data, rng)
        told = [read(engine, data, lambda rng=rng: rng.choice((1, 50, 5000))) for engine in ENGINES.values()]
        assert all(same(one, told[0]) for one in told), f"{stream.name}, mutation {number}"


@pytest.mark.parametrize("folder", FOLDERS)
def test_both_backends_find_the_same_borders_in_mutated_streams(folder: str) -> None:
    streams = [stream for stream in SMALL if stream.name.startswith(folder + "/")]
    for number in range(MUTATIONS):
        rng = random.Random(f"{folder} {number}")
        chosen = [rng.choice(streams), rng.choice(SMALL), rng.choice(streams)]
        data = b"".join(mutated(stream.data, rng) for stream in chosen)
        told = []
        for make in BORDERS.values():
            borders = make()
            found = borders.feed(data) + borders.close()
            assert found == sorted(set(found)), chosen
            told.append(found)
        assert all(one == told[0] for one in told), f"{[stream.name for stream in chosen]}, mutation {number}"


@pytest.mark.parametrize("name", TRUNCATED)
def test_a_stream_cut_at_any_byte_is_read_up_to_there(name: str) -> None:
    """A prefix gives the events of its whole lines, never others, and an unfinished last line is told of."""
    data = next(stream for stream in SMALL if stream.name == name).data[:4000]
    for engine in ENGINES.values():
        grown, seen = engine(), []
        for end in range(len(data) + 1):
            seen += grown.feed(data[max(0, end - 1) : end])
            cut = engine()
            assert same(cut.feed(data[:end]), seen)
            cut.close()
            report = cut.report()
            tail = data[:end].rpartition(b"\n")[2]
            assert report["lines"] == data[:end].count(b"\n") + bool(tail)
            assert report["truncated"] == bool(tail and report["malformed"])


@pytest.mark.parametrize("engine", list(ENGINES))
@pytest.mark.parametrize(
    "line",
    [
        b"[" * 5000,
        b'{"a":' * 1025 + b"1" + b"}" * 1025,
        b'{"type":"text","content":"' + b"\\ud83d" * 3000 + b'"}',
        b'{"type":"text","content":' + b"9" * 100_000 + b"}",
        b'{"' * 20_000,
        b"\x00" * 100_000,
        b"\x1b]0;" * 20_000,
        b'{"type":"tool_call","args":{},"name":[],"id":{}}',
    ],
    ids=["brackets", "deep", "halves", "digits", "torn", "zeros", "titles", "odd types"],
)
def test_hostile_lines_end_nothing(engine: str, line: bytes) -> None:
    good = b'{"type": "usage_stats", "input_tokens": 1, "output_tokens": 1}\n'
    events, run, *_ = read(ENGINES[engine], good + line + b"\n" + good)
    assert [event["update"]["sessionUpdate"] for event in events].count("usage") == 2
    assert run["usage"]["calls"]["prompt_tokens"] == 2
