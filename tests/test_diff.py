"""What a user relies on when two runs are compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace import Run

from .bundled import streams
from .engines import ENGINES

RECORDINGS = Path(__file__).parent / "data" / "recordings"

# a stream and its session file that tell the same of the same run
SAME = [
    "copilot/hello",
    "copilot/plan",
    "copilot/tools",
    "codex/hello",
    "codex/dropped",
    "codex/multi",
    "droid/hello",
    "droid/tools",
    "droid/sigint",
    "opencode/hello",
    "opencode/tools",
    "opencode/image",
    "opencode/denied",
    "pi/tools",
    "pi/plan",
    "pi/fatal",
    "pi/retry",
    "pi/compact-overflow",
    "pi/surrogates",
    "qwen/hello",
]


def run_of(name: str) -> Run:
    return headrace.reduce(next(RECORDINGS.glob(f"{name}.gz")))


def session_of(name: str) -> Run:
    found = [path for path in RECORDINGS.glob(f"{name}.session*.gz") if "expect" not in path.name]
    return headrace.reduce(sorted(found)[0])


def evosci(*records: dict[str, Any]) -> Run:
    return headrace.reduce("".join(json.dumps(record) + "\n" for record in records).encode())


@pytest.mark.parametrize("name", SAME)
def test_a_stream_and_its_session_file_tell_the_same(name: str) -> None:
    assert [str(found) for found in headrace.diff(run_of(f"{name}.jsonl"), session_of(name))] == []


@pytest.mark.once
@pytest.mark.skipif(len(ENGINES) < 2, reason="one backend only")
def test_the_two_backends_do_not_differ() -> None:
    for stream in streams():
        runs = []
        for engine in ENGINES.values():
            reading = engine(kinds=())
            reading.feed(stream.data)
            reading.close()
            runs.append(Run(reading.run()))
        assert headrace.diff(*runs) == [], stream.name


def test_a_run_does_not_differ_from_itself_and_shows_what_was_changed() -> None:
    run = run_of("pi/tools.jsonl")
    assert headrace.diff(run, run) == []
    facts = run.to_dict()
    facts["texts"].append("One more.")
    facts["tool_calls"][0]["ok"] = False
    del facts["tool_calls"][3]
    facts["usage"]["calls"]["prompt_tokens"] += 1
    facts["verdict"]["outcome"] = "failed"
    facts["errors"].append({"message": "It broke.", "fatal": True, "line": 9})
    found = headrace.diff(run, Run(facts))
    assert [(one.path, one.what) for one in found] == [
        ("verdict.outcome", "differs"),
        (f"texts[{len(run.texts)}]", "only in the second"),
        ("tool_calls[0].ok", "differs"),
        ("tool_calls[3]", "only in the first"),
        ("usage.calls.prompt_tokens", "differs"),
        ("errors[0]", "only in the second"),
    ]
    assert [one.path for one in headrace.diff(run, Run(facts), only={"errors"})] == ["errors[0]"]


def test_a_difference_is_one_line_that_a_terminal_can_show() -> None:
    one = evosci({"type": "text", "content": "a" * 500 + "\x1b[31mred\nnext"}, {"type": "done"})
    two = evosci({"type": "text", "content": "a" * 500 + "\x1b[32mgreen"}, {"type": "done"})
    (found,) = map(str, headrace.diff(one, two))
    assert found.startswith("texts[0]: at character 503: ")
    assert found.isprintable()
    assert len(found) < 250


def test_values_of_any_depth_are_compared() -> None:
    def deep(leaf: str) -> Run:
        nested = json.loads('{"a":' * 900 + f'"{leaf}"' + "}" * 900)
        return evosci({"type": "tool_call", "id": "1", "name": "read_file", "args": nested}, {"type": "done"})

    assert headrace.diff(deep("x"), deep("x")) == []
    assert [one.path for one in headrace.diff(deep("x"), deep("y"))] == ["tool_calls[0].input"]


def test_other_dialects_are_not_blamed_for_what_they_do_not_print() -> None:
    assert headrace.diff(run_of("gemini/tools.jsonl"), session_of("gemini/tools"), only={"thinking", "usage"}) == []


def test_a_part_that_is_not_compared_is_refused() -> None:
    with pytest.raises(ValueError, match="mood: not compared; what can be is verdict, texts"):
        headrace.diff(run_of("pi/tools.jsonl"), run_of("pi/tools.jsonl"), only={"mood"})
