"""pi, and the summary of minicode: what the recordings do not show."""

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


@pytest.mark.parametrize("retried", [False, True])
@pytest.mark.parametrize(
    ("settled", "answer", "outcome"),
    [
        ({}, {"command": "abort", "success": True}, "cancelled"),
        ({}, {"command": "abort", "success": False}, "failed"),
        ({}, {"command": "get_state", "success": True}, "failed"),
        ({"aborted": False}, {"command": "abort", "success": True}, "failed"),
    ],
)
def test_before_1_1_the_answer_to_an_abort_tells_of_it(
    engine: Any, settled: dict[str, Any], answer: dict[str, Any], outcome: str, retried: bool
) -> None:
    """0.84 to 0.87 end an aborted prompt with an error, where a tool ran or a retry waited: only the answer right
    behind its end tells it from a failure."""
    message = {"role": "assistant", "content": [], "stopReason": "error", "errorMessage": "It was aborted"}
    lines: list[dict[str, Any]] = [
        {"type": "agent_start"},
        {"type": "message_end", "message": message},
        {"type": "agent_end", "messages": [], "willRetry": retried},
    ]
    if retried:
        lines.append({"type": "auto_retry_start", "attempt": 1, "maxAttempts": 3, "delayMs": 50, "errorMessage": "529"})
        lines.append({"type": "auto_retry_end", "success": False, "attempt": 1, "finalError": "Retry cancelled"})
    lines.append({"type": "agent_settled", **settled})
    lines.append({"type": "response", **answer})
    got = run(engine, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    assert got["verdict"]["outcome"] == outcome
    assert len(got["errors"]) == (0 if retried and outcome == "cancelled" else 1)
    lines.insert(-1, {"type": "thinking_level_changed", "level": "low"})  # the prompt had ended by itself
    got = run(engine, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    assert got["verdict"]["outcome"] == "failed"


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


def test_the_message_decides_which_blocks_there_are_and_their_order(engine: Any) -> None:
    """An extension may put a thought in front of a streamed one, and leave a text out."""

    def update(kind: str, index: int, delta: str) -> dict[str, Any]:
        event = {"type": f"{kind}_delta", "contentIndex": index, "delta": delta}
        return {"type": "message_update", "assistantMessageEvent": event}

    content = [
        {"type": "thinking", "thinking": "First. "},
        {"type": "text", "text": "Said."},
        {"type": "thinking", "thinking": "Second."},
    ]
    message = {"role": "assistant", "content": content, "stopReason": "stop"}
    lines = [
        {"type": "agent_start"},
        update("text", 1, "Said."),
        update("thinking", 2, "Second."),
        update("text", 3, "Left out."),
        {"type": "message_end", "message": message},
        {"type": "agent_end", "messages": []},
    ]
    got = run(engine, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    assert got["thinking"] == ["First. ", "Second."]
    assert got["texts"] == ["Said."]


def test_a_model_that_a_tool_asked_is_billed(engine: Any) -> None:
    usage = {"input": 10, "output": 3, "cacheRead": 0, "cacheWrite": 0}
    call = {"type": "toolCall", "id": "c", "name": "ask", "arguments": {}}
    message = {"role": "assistant", "content": [call], "usage": usage, "stopReason": "toolUse"}
    told = {"role": "toolResult", "toolCallId": "c", "content": [], "usage": {**usage, "input": 5}, "isError": False}
    lines = [
        {"type": "agent_start"},
        {"type": "message_end", "message": message},
        {"type": "message_start", "message": told},
        {"type": "message_end", "message": told},
        {"type": "turn_end", "message": message, "toolResults": [told]},
    ]
    got = run(engine, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    calls = got["usage"]["calls"]
    assert (calls["count"], calls["prompt_tokens"], calls["completion_tokens"]) == (2, 15, 6)


def test_minicode_without_its_summary_is_incomplete(engine: Any) -> None:
    data = recording("minicode/success")
    cut = data[: data.rindex(b"\n", 0, -1) + 1]
    assert run(engine, data)["verdict"]["outcome"] == "completed"
    assert run(engine, cut)["verdict"]["outcome"] == "incomplete"


def lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def answer(text: str, stop: str = "stop", error: str | None = None) -> list[dict[str, Any]]:
    """An assistant message without deltas, as versions since 0.83 begin it."""
    begun = {"role": "assistant", "content": [], "stopReason": "pending"}
    message = {"role": "assistant", "content": [{"type": "text", "text": text}], "stopReason": stop}
    message = message if error is None else {**message, "errorMessage": error}
    return [{"type": "message_start", "message": begun}, {"type": "message_end", "message": message}]


def old(message: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return message[1:]


AGENT = {"type": "agent_start"}
AGENT_END = {"type": "agent_end", "messages": []}
RETRY = {"type": "auto_retry_start", "attempt": 1, "maxAttempts": 3, "delayMs": 50, "errorMessage": "529"}
CALLED_OFF = {"type": "auto_retry_end", "success": False, "attempt": 1, "finalError": "Retry cancelled"}


def outcome(engine: Any, data: bytes, code: int | None = None) -> str:
    parser = engine(kinds=())
    parser.feed(data)
    parser.close()
    word: str = parser.run(code, b"")["verdict"]["outcome"]
    return word


def test_an_agents_end_is_not_the_end_where_the_version_prints_one(engine: Any) -> None:
    """A compaction, a retry or queued work may follow it; before 0.80.4 it was the last record."""
    data = lines(AGENT, *answer("Yes."), AGENT_END)
    assert outcome(engine, data, -9) == "incomplete"
    assert outcome(engine, data, 0) == "completed"  # it ended by itself
    assert outcome(engine, lines(AGENT, *old(answer("Yes.")), AGENT_END)) == "completed"


def test_a_session_that_an_older_version_printed_ends_with_its_agent_behind_that_of_a_newer_one(engine: Any) -> None:
    new = lines(AGENT, *answer("Yes."), AGENT_END, {"type": "agent_settled"})
    header = {"type": "session", "version": 3, "id": "u", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/w"}
    data = new + lines(header, AGENT, *old(answer("No.")), AGENT_END)
    assert outcome(engine, data) == "completed"
    assert outcome(engine, new + lines(header, AGENT, *answer("No."), AGENT_END)) == "incomplete"


def test_a_stream_cut_while_a_retry_waits_is_incomplete(engine: Any) -> None:
    for message in (answer("", "error", "529"), old(answer("", "error", "529"))):
        assert outcome(engine, lines(AGENT, *message, AGENT_END, RETRY), -9) == "incomplete"


def test_an_old_retry_that_is_called_off_is_a_failure_with_its_error(engine: Any) -> None:
    """Before 0.80.4 no record says so, but that nothing follows."""
    for end in (AGENT_END, {**AGENT_END, "willRetry": True}):
        data = lines(AGENT, *old(answer("", "error", "529")), end, RETRY, CALLED_OFF)
        assert outcome(engine, data) == "failed"
        assert [error["message"] for error in run(engine, data)["errors"]] == ["529"]


def test_a_prompt_that_was_taken_and_not_run_is_incomplete(engine: Any) -> None:
    response = {"id": "1", "type": "response", "command": "prompt", "success": True}
    for disposition, word in (("started", "incomplete"), ("handled", "completed")):
        assert outcome(engine, lines({**response, "data": {"disposition": disposition}})) == word


def test_a_start_that_failed_after_the_header_is_a_failure(engine: Any) -> None:
    header = {"type": "session", "version": 3, "id": "u", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/w"}
    parser = engine(kinds=())
    parser.feed(lines(header))
    parser.close()
    got = parser.run(1, b"Error: no key\n")
    assert got["verdict"]["outcome"] == "failed"
    assert [error["message"] for error in got["errors"]] == ["Error: no key"]


def test_calls_that_a_tool_made_by_itself_are_told_once(engine: Any) -> None:
    """They have records of their own on the stream; in a session file only the result of the tool names them."""
    calls = [
        {"id": "p/1", "name": "bash", "arguments": {"command": "ls"}, "status": "ok"},
        {"id": "p/2", "name": "read", "arguments": {"path": "a"}, "status": "error", "error": "no such file"},
        {"id": "p/3", "name": "read", "arguments": {"path": "b"}, "status": "unfinished"},
    ]
    asked = {"type": "toolCall", "id": "p", "name": "code", "arguments": {}}
    result = {"role": "toolResult", "toolCallId": "p", "content": [], "isError": False, "nestedCalls": {"calls": calls}}
    begun = {"toolCallId": "p/1", "toolName": "bash", "parentToolCallId": "p"}
    live = lines(
        AGENT,
        {"type": "message_end", "message": {"role": "assistant", "content": [asked], "stopReason": "toolUse"}},
        {"type": "tool_execution_start", **begun, "args": {"command": "ls"}},
        {"type": "tool_execution_end", **begun, "result": {"content": []}, "isError": False},
        {"type": "message_end", "message": result},
    )
    got = [(call["id"], call["ok"], call["result"], call["parent"]) for call in run(engine, live)["tool_calls"]]
    assert got == [
        ("p", True, None, None),
        ("p/1", True, None, "p"),
        ("p/2", False, "no such file", "p"),
        ("p/3", None, None, "p"),
    ]


def test_what_a_person_stopped_is_not_tried_again(engine: Any) -> None:
    """In a session file: after an error the next answer without a prompt is the next try, after an abort it is not."""
    stamp = {"timestamp": "2026-01-01T00:00:00.000Z"}
    for stop, texts, retries in (("error", ["Whole."], 1), ("aborted", ["Half.", "Whole."], 0)):
        messages = [{"role": "user", "content": "Go."}]
        messages += [answer("Half.", stop, "why")[1]["message"], answer("Whole.")[1]["message"]]
        entries = [
            {"type": "message", "id": f"e{at}", "parentId": None, **stamp, "message": message}
            for at, message in enumerate(messages)
        ]
        got = run(engine, lines({"type": "session", "version": 3, "id": "u", "cwd": "/w", **stamp}, *entries))
        assert (got["dialect"], got["texts"], got["retries"]) == ("pi-session", texts, retries)


def test_the_first_versions_have_results_as_text(engine: Any) -> None:
    """Up to 0.22 a failed call ended in a text; up to 0.5 a toolResult message had one as `output`."""
    block = {"type": "toolCall", "id": "c-1", "name": "bash", "arguments": {"command": "x"}}
    asks = {"role": "assistant", "content": [block], "stopReason": "toolUse"}
    call = {"toolCallId": "c-1", "toolName": "bash"}
    for content in ({"content": [{"type": "text", "text": "boom"}]}, {"output": "boom"}):
        told = {"role": "toolResult", **call, **content, "isError": True}
        ended = {"type": "tool_execution_end", **call, "result": "boom", "isError": True}
        live = [AGENT, {"type": "message_end", "message": asks}, ended, {"type": "message_end", "message": told}]
        head = {"type": "session", "id": "s-1", "timestamp": "2025-11-11T00:00:00.000Z", "cwd": "/p"}
        entries = [{"type": "message", "timestamp": "2025-11-11T00:00:01.000Z", "message": m} for m in (asks, told)]
        for stream in (live, [head, *entries]):
            got = run(engine, lines(*stream))["tool_calls"]
            assert [(call["ok"], call["result"]) for call in got] == [(False, "boom")]


# ---------------------------------------------------------------- oh-my-pi


def entry(kind: str, number: int, **facts: Any) -> dict[str, Any]:
    head = {"type": kind, "id": f"0000000{number}", "parentId": None, "timestamp": "2026-09-01T00:00:01.000Z"}
    return {**head, **facts}


def omp_session() -> list[dict[str, Any]]:
    spent = {"input": 100, "output": 20, "cacheRead": 300, "cacheWrite": 0, "totalTokens": 420, "cost": {"total": 0.5}}
    small = {**spent, "input": 7, "output": 3, "cacheRead": 0}
    said = {"role": "assistant", "content": [{"type": "text", "text": "So."}], "model": "vendor/m", "usage": spent}
    session = {"type": "session", "version": 3, "id": "s-1", "timestamp": "2026-09-01T00:00:00.000Z", "cwd": "/p"}
    return [
        {"type": "title", "v": 1, "title": "A fix", "source": "auto", "updatedAt": "2026-09-01", "pad": "   "},
        {**session, "title": "A fix"},
        entry("model_change", 1, model="gateway/vendor/m", role="default"),
        entry("model_change", 2, model="gateway/tiny", role="smol"),
        entry("message", 3, message={"role": "user", "content": "Go."}),
        entry("message", 4, message={**said, "stopReason": "stop"}),
        entry("model_usage", 5, purpose="title", role="tiny", model="tiny", usage=small, stopReason="stop"),
        entry("title_change", 6, title="Another fix", source="user"),
        entry("mode_change", 7, mode="plan"),
        entry("credential_pin", 8, provider="gateway", hash="h"),
        entry("reset_boundary", 9),
    ]


def test_a_session_of_oh_my_pi_is_one_of_pi(engine: Any) -> None:
    """Its file begins with a line for the title, before the header (session-entries.ts of September 2026)."""
    records = omp_session()
    got = run(engine, lines(*records))
    assert (got["dialect"], got["session_id"], got["model"]) == ("pi-session", "s-1", "vendor/m")
    assert (got["texts"], got["verdict"]["outcome"]) == (["So."], "completed")
    for end in (1, 3):  # alone each of its first lines says whose it is
        assert run(engine, lines(*records[:end]))["dialect"] == "pi-session"
    assert run(engine, lines(records[2]))["dialect"] == "pi-session"
    assert run(engine, lines(*records))["model"] == "vendor/m"


def test_calls_beside_the_conversation_are_billed(engine: Any) -> None:
    got = run(engine, lines(*omp_session()))
    assert got["usage"]["calls"]["count"] == 2
    assert (got["usage"]["calls"]["prompt_tokens"], got["usage"]["calls"]["completion_tokens"]) == (407, 23)
    parser = engine(kinds=())
    parser.feed(lines(*omp_session()))
    parser.close()
    assert parser.report()["unknown"] == {}


def test_the_stream_of_oh_my_pi_is_read_like_that_of_pi(engine: Any) -> None:
    bash = {"toolCallId": "c-1", "toolName": "bash"}
    failed = {"content": [{"type": "text", "text": "no"}], "isError": True}
    stream = [
        {"type": "ready", "protocolVersion": 1, "supportedProtocolVersions": [1, 2]},
        {"type": "available_commands_update", "commands": []},
        {"type": "agent_start"},
        {"type": "thinking_level_changed", "thinkingLevel": "high"},
        {"type": "tool_execution_start", **bash, "args": {"command": "x"}},
        {"type": "tool_execution_end", **bash, "result": failed},
        *old(answer("Half.", "error", "503")),
        {"type": "agent_end", "messages": [], "yielded": False},
    ]
    got = run(engine, lines(*stream))
    assert got["verdict"]["outcome"] == "incomplete"  # it goes on
    assert [call["ok"] for call in got["tool_calls"]] == [False]
    more = [
        {"type": "auto_retry_start", "attempt": 1, "maxAttempts": 3, "delayMs": 5, "errorMessage": "503"},
        {"type": "retry_fallback_applied", "from": "a/m", "to": "b/m", "role": "default"},
        {"type": "agent_start"},
        *old(answer("Whole.")),
        {"type": "agent_end", "messages": [], "yielded": True},
        {"type": "prompt_result", "id": "1", "agentInvoked": True, "status": "completed", "sessionSettled": True},
        {"type": "session_settled"},
    ]
    parser = engine(kinds=())
    parser.feed(lines(*stream, *more))
    parser.close()
    got = parser.run()
    assert (got["verdict"]["outcome"], got["texts"], got["errors"]) == ("completed", ["Whole."], [])
    assert (got["retries"], parser.report()["unknown"]) == (1, {})


def test_answers_that_stay_empty_are_a_failure(engine: Any) -> None:
    """oh-my-pi asks again, and gives up with a failed retry since July 2026, behind the agent's end or before it."""
    gave_up = {"type": "auto_retry_end", "success": False, "attempt": 3, "finalError": "empty"}
    empty = [AGENT, *old(answer("", "stop"))]
    for stream in ([*empty, AGENT_END, gave_up], [*empty, gave_up, AGENT_END]):
        got = run(engine, lines(*stream))
        assert (got["verdict"]["outcome"], [error["message"] for error in got["errors"]]) == ("failed", ["empty"])
        got = run(engine, lines(*stream, AGENT, *old(answer("So.")), AGENT_END))
        assert (got["verdict"]["outcome"], got["final_text"]) == ("completed", "So.")
