"""What a user relies on to know how a run ended, before the stream does, and what to do about it."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

import pytest

import headrace
from headrace.errclass import error_class

from .bundled import streams
from .engines import ENGINES, same

RECORDINGS = Path(__file__).parent / "data" / "recordings"


def data_of(name: str) -> bytes:
    return gzip.decompress((RECORDINGS / f"{name}.jsonl.gz").read_bytes())


@pytest.mark.once
@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_a_stream_is_final_from_its_terminal_record_on(engine: type[headrace.Events]) -> None:
    lines = data_of("pi/tools").splitlines(keepends=True)
    stream, final = engine(kinds=()), []
    for line in lines:
        stream.feed(line)
        final.append(stream.ending == "end")
    end = stream.run()["verdict"]["evidence"][0]["line"]
    assert final.index(True) == end - 1
    assert all(final[end - 1 :])


@pytest.mark.once
@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_a_turn_that_opens_after_the_end_takes_the_last_word_back(engine: type[headrace.Events]) -> None:
    data = data_of("claude/hello")
    stream = engine(kinds=())
    stream.feed(data)
    assert stream.ending == "end"
    stream.feed(data.splitlines(keepends=True)[0])  # init of the next turn
    assert stream.ending is None
    stream.feed(data)
    assert stream.ending == "end"


@pytest.mark.parametrize(
    ("name", "started"),
    [
        ("acp-opencode/hello", 1),
        ("acp-claude/hello", 3),
        ("claude/hello", 1),
        ("codex/hello", 1),
        ("copilot/hello", 1),
        ("droid/hello", 1),
        ("evosci/hello", 1),
        ("gemini/hello", 1),
        ("kimi-code/hello", 1),
        ("minicode/success", 1),
        ("opencode/hello", 1),
        ("pi/hello-chat", 1),
        ("qwen/hello", 1),
    ],
)
def test_a_run_that_only_began_does_not_end_as_the_one_before_it(name: str, started: int) -> None:
    data = data_of(name)
    assert headrace.reduce(data).verdict.outcome == "completed"
    begun = b"".join(data.splitlines(keepends=True)[:started])
    for code in (None, 0):
        assert headrace.reduce(data + begun, exit_code=code).verdict.outcome == "incomplete"
    both = headrace.reduce(data + data)
    assert both.verdict.outcome == "completed"
    starts = [
        sum(event["update"].get("phase") == "start" for event in headrace.events(source, only=(), state=True))
        for source in (data, data + data)
    ]
    assert starts[1] - starts[0] in (starts[0], starts[0] + 1)  # a stream may begin without a record of it


@pytest.mark.once
def test_both_backends_agree_on_the_last_word_and_on_the_ledger() -> None:
    for stream in streams():
        told = []
        for engine in ENGINES.values():
            reading = engine(kinds=())
            reading.feed(stream.data)
            reading.close()
            told.append((reading.ending, reading.ledger()))
        assert all(same(told[0], other) for other in told[1:]), stream.name


def test_verdict_tells_final_and_resumable_beside_its_dict() -> None:
    run = headrace.reduce(data_of("claude/hello"))
    assert (run.verdict.final, run.verdict.resumable) == (True, True)
    assert run.verdict.to_dict().keys() == {"outcome", "reason", "evidence"}
    cut = headrace.reduce(data_of("codex/sigint"))
    assert (cut.verdict.final, cut.verdict.resumable) == (False, True)
    nothing = headrace.reduce(b"", exit_code=1)
    assert (nothing.verdict.final, nothing.verdict.resumable) == (False, False)
    again = pickle.loads(pickle.dumps(run))
    assert again == run
    assert again.verdict.final


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("claude/fatal_401", "auth"),
        ("claude/fatal_429", "rate_limit"),
        ("claude/fatal_529", "overloaded"),
        ("claude/fatal_400", "invalid_request"),
        ("claude/fatal_toolong", "context_window"),
        ("claude/dropped", "network"),
        ("gemini/loop", "harness"),
        ("claude/hello", None),
        ("codex/sigint", None),
    ],
)
def test_a_failed_run_has_the_class_of_its_error(name: str, wanted: str | None) -> None:
    run = headrace.reduce(data_of(name))
    assert run.error_class == wanted
    assert len(run.error_classes) == len(run.errors)


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        ('401 {"error":{"type":"invalid_request_error","code":"invalid_api_key"}}', "auth"),
        ("exceeded retry limit, last status: 429 Too Many Requests", "rate_limit"),
        ("You exceeded your current quota, please check your plan (insufficient_quota)", "rate_limit"),
        ("Error code: 400 - {'message': 'content is too long for thi\ns model'}", "context_window"),
        ("prompt is too long: 213462 tokens > 200000 maximum", "context_window"),
        ("Error code: 400 - maximum con\ntext length is 8192 tokens", "context_window"),
        ("connect ECONNREFUSED 127.0.0.1:443", "network"),
        ("503 Service Unavailable", "overloaded"),
        ("MCP server 'files' failed to start", "tool"),
        ("unknown model gpt-9", "invalid_request"),
        ("read 429 lines of the file", "unknown"),
        ("", "unknown"),
    ],
)
def test_error_classes_are_told_by_code_or_words(message: str, wanted: str) -> None:
    assert error_class(message) == wanted


def test_what_ended_the_process_has_a_class_too() -> None:
    assert headrace.reduce(b"", exit_code=1, stderr="Error: Invalid API key").error_class == "auth"
    assert headrace.reduce(b"", exit_code=1).error_class == "unknown"


def test_the_ledger_adds_up_to_the_usage_of_the_run() -> None:
    for name in ("pi/tools", "claude/hello", "opencode/tools", "qwen/tools"):
        run = headrace.reduce(data_of(name))
        calls = run.usage["calls"]
        assert calls["count"] == len(run.ledger)
        for counter in ("prompt_tokens", "completion_tokens", "cached_tokens"):
            told = [row[counter] for row in run.ledger if row[counter] is not None]
            assert calls[counter] == (sum(told) if told else None), (name, counter)
        lines = data_of(name).split(b"\n")
        for row in run.ledger:
            assert data_of(name)[row["offset"] :].startswith(lines[row["line"] - 1])
