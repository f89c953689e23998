"""pi and minicode: what the recordings do not show."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .engines import ENGINES
from .truth import recordings


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> Any:
    return ENGINES[request.param]


def run(engine: Any, data: bytes) -> dict[str, Any]:
    parser = engine(kinds=())
    parser.feed(data)
    parser.close()
    return parser.run()


def recording(name: str) -> bytes:
    return next(stream.data for stream in recordings() if stream.name == name)


def test_a_retry_that_is_called_off_leaves_its_error(engine: Any) -> None:
    """`rpc-retry-abort` up to the first prompt's end: the run failed, and it is said why."""
    data = recording("pi/rpc-retry-abort")
    end = data.index(b'"agent_settled","aborted":false}\n') + len(b'"agent_settled","aborted":false}\n')
    got = run(engine, data[:end])
    assert got["verdict"]["outcome"] == "failed"
    assert [error["message"][:3] for error in got["errors"]] == ["529"]
    assert run(engine, data)["errors"] == []  # the prompt after it was cancelled


def test_messages_without_a_start_are_messages_of_their_own(engine: Any) -> None:
    """Usage counts once for each message, whether or not its start was printed."""
    lines = [{"type": "agent_start"}]
    for output in (3, 4):
        usage = {"input": 10, "output": output, "cacheRead": 0, "cacheWrite": 0}
        content = [{"type": "text", "text": f"Answer {output}."}]
        message = {"role": "assistant", "content": content, "usage": usage, "stopReason": "stop"}
        lines.append({"type": "message_end", "message": message})
    got = run(engine, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    assert got["usage"]["calls"]["count"] == 2
    assert got["usage"]["calls"]["completion_tokens"] == 7
    assert got["texts"] == ["Answer 3.", "Answer 4."]


def test_minicode_without_its_summary_is_incomplete(engine: Any) -> None:
    data = recording("minicode/success")
    cut = data[: data.rindex(b"\n", 0, -1) + 1]
    assert run(engine, data)["verdict"]["outcome"] == "completed"
    assert run(engine, cut)["verdict"]["outcome"] == "incomplete"
