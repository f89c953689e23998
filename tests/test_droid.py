"""What a user relies on when the harness is Factory's Droid: its three kinds of output, and its session files."""

from __future__ import annotations

import json
from typing import Any

import pytest

import headrace

REFUSAL = "Exec ended early: insufficient permission to proceed."
COUNTERS = {
    "input_tokens": 60,
    "output_tokens": 9,
    "cache_read_input_tokens": 30,
    "cache_creation_input_tokens": 10,
    "factory_credits": 0,
}


def lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def printed(kind: str, **facts: Any) -> dict[str, Any]:
    return {"type": kind, **facts, "timestamp": 1795977064768, "session_id": "s-1"}


def init() -> dict[str, Any]:
    facts = {"cwd": "/p", "session_id": "s-1", "tools": [], "model": "custom:M-0", "reasoning_effort": "none"}
    return {"type": "system", "subtype": "init", **facts}


def said(text: str, role: str = "assistant", message_id: str = "m-1") -> dict[str, Any]:
    return printed("message", role=role, id=message_id, text=text)


def call(call_id: str, name: str = "Execute", **arguments: Any) -> dict[str, Any]:
    return printed("tool_call", id=call_id, messageId="m-1", toolId=name, toolName=name, parameters=arguments)


def answered(call_id: str, value: str) -> dict[str, Any]:
    return printed("tool_result", id=call_id, messageId="m-1", toolId="x", isError=False, value=value)


def refused(call_id: str, message: str) -> dict[str, Any]:
    error = {"type": "tool_error", "message": message}
    return printed("tool_result", id=call_id, messageId="m-1", toolId="x", isError=True, error=error)


def completion(text: str) -> dict[str, Any]:
    return printed("completion", finalText=text, numTurns=1, durationMs=5, usage=COUNTERS)


def failure(source: str, message: str) -> dict[str, Any]:
    return printed("error", source=source, message=message)


# ---------------------------------------------------------------- stream-json and json


def test_the_answer_is_told_once_though_the_completion_repeats_it() -> None:
    run = headrace.reduce(lines(init(), said("Go.", "user"), said(" One.\n"), said("Two."), completion("One.\nTwo.")))
    assert run.texts == [" One.\n", "Two."]
    assert run.verdict.outcome == "completed"
    held_back = headrace.reduce(lines(init(), said("Go.", "user"), completion("Held back.")))
    assert held_back.texts == ["Held back."]


def test_a_thought_that_is_printed_twice_is_one() -> None:
    thought = printed("reasoning", id="m-1", text="Hm.")
    assert headrace.reduce(lines(init(), thought, thought, said("So."))).thinking == ["Hm."]


def test_the_prompt_is_the_sum_of_three_counters() -> None:
    total = headrace.reduce(lines(init(), said("So."), completion("So."))).usage["run"]
    assert (total["prompt_tokens"], total["completion_tokens"], total["cached_tokens"]) == (100, 9, 30)


def test_the_cause_of_a_failure_is_told_and_the_last_text_is_no_error() -> None:
    stream = lines(init(), said("Half."), failure("agent_loop", "400 bad request"), failure("cli", "Half."))
    run = headrace.reduce(stream)
    assert ([e["message"] for e in run.errors], run.verdict.outcome) == (["400 bad request"], "failed")
    run = headrace.reduce(lines(init(), failure("cli", "Exec failed")))
    assert ([e["message"] for e in run.errors], run.verdict.outcome) == (["Exec failed"], "failed")


def test_a_run_that_the_policy_ended_is_denied_and_the_refusal_is_no_answer() -> None:
    told = f"Error: {REFUSAL}"
    stream = [init(), said("Go.", "user"), said("I try."), call("t-1", command="rm x"), refused("t-1", told)]
    run = headrace.reduce(lines(*stream, said(REFUSAL, message_id="m-2"), failure("cli", REFUSAL)))
    assert (run.verdict.outcome, run.texts) == ("denied", ["I try."])
    went_on = headrace.reduce(lines(*stream, said("I may not.", message_id="m-2"), completion("I may not.")))
    assert (went_on.verdict.outcome, went_on.tool_calls[0]["ok"]) == ("completed", False)


def test_a_stream_without_a_last_record_is_incomplete_even_with_exit_code_0() -> None:
    assert headrace.reduce(lines(init(), said("So.")), exit_code=0).verdict.outcome == "incomplete"


def test_todos_are_a_plan_once_the_call_succeeded() -> None:
    todo = call("t-1", "TodoWrite", todos="1. [completed] Look\n2. [in_progress] Report")
    plan = headrace.reduce(lines(init(), todo, answered("t-1", "ok"))).plan
    assert [(entry["content"], entry["status"]) for entry in plan] == [("Look", "completed"), ("Report", "in_progress")]
    assert not headrace.reduce(lines(init(), todo, refused("t-1", "no"))).plan


def test_tools_of_an_mcp_server_have_a_readable_title() -> None:
    run = headrace.reduce(lines(init(), call("t-1", "rig___echo_text", say="x")))
    assert (run.tool_calls[0]["name"], run.tool_calls[0]["title"]) == ("rig___echo_text", "rig: echo_text")


def test_the_json_mode_is_a_run_of_one_record() -> None:
    facts = {"is_error": False, "duration_ms": 5, "num_turns": 1, "result": "So.", "session_id": "s-1"}
    for new in ({}, {"a_new_field": 1}):
        run = headrace.reduce(lines({"type": "result", "subtype": "success", **facts, **new, "usage": COUNTERS}))
        assert (run.dialect, run.texts, run.verdict.outcome) == ("droid", ["So."], "completed")
        assert run.usage["run"]["prompt_tokens"] == 100


SPENT = '402 {"detail":"Ready for more? Reload your tokens at https://app.factory.ai/settings/billing","status":402}'


@pytest.mark.parametrize(
    ("message", "outcome"),
    [
        (SPENT, "limit"),
        ("402 payment required: reload your tokens", "limit"),
        ("You've reached your weekly usage limit. Resets in 3d 4h", "limit"),
        ("400 bad request", "failed"),
    ],
)
def test_spent_credits_and_used_up_plans_are_a_limit(message: str, outcome: str) -> None:
    facts = {"is_error": True, "duration_ms": 5, "num_turns": 0, "session_id": "s-1"}
    asked = {"type": "message", "id": "m-1", "message": {"role": "user", "content": [text("Go.")]}}
    notice = {"role": "user", "content": [text(f"Error: {message}")], "visibility": "user_only"}
    rejected = {"type": "agent_turn_outcome", "turnId": "1", "reason": "model_request_rejected"}
    for records in (
        [init(), said("Half."), failure("agent_loop", message), failure("cli", "Half.")],
        [{"type": "result", "subtype": "failure", **facts, "result": message}],
        [prompt(), notified("error", message=message)],
        [prompt(), notified("error", message=message), notified("droid_working_state_changed", newState="idle")],
        [asked, {"type": "message", "id": "m-2", "message": notice}, rejected],
    ):
        run = headrace.reduce(lines(*records))
        assert (run.verdict.outcome, message in run.errors[0]["message"]) == (outcome, True)


# ---------------------------------------------------------------- stream-jsonrpc


def notified(kind: str, session: str = "s-1", **facts: Any) -> dict[str, Any]:
    params = {"sessionId": session, "notification": {"type": kind, **facts}}
    return {"jsonrpc": "2.0", "method": "droid.session_notification", "params": params}


def delta(words: str, index: int = 0, kind: str = "assistant_text", message: str = "m-2") -> dict[str, Any]:
    return notified(f"{kind}_delta", messageId=message, blockIndex=index, textDelta=words)


def whole(*content: dict[str, Any], role: str = "assistant", message: str = "m-2") -> dict[str, Any]:
    return notified("create_message", message={"id": message, "role": role, "content": list(content)})


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def prompt() -> dict[str, Any]:
    return whole(text("Go."), role="user", message="m-1")


def over(**facts: Any) -> dict[str, Any]:
    return notified("agent_turn_completed", reason="completed", **facts)


def test_deltas_and_the_whole_message_are_one_text_and_the_message_is_right() -> None:
    stream = [prompt(), delta("Hm", kind="thinking_text"), delta("Half ", 1), delta("a txt.", 1)]
    message = whole({"type": "thinking", "thinking": "Hm."}, text("Half a text."))
    run = headrace.reduce(lines(*stream, message, over()))
    assert (run.dialect, run.texts, run.thinking) == ("droid", ["Half a text."], ["Hm."])
    assert run.verdict.outcome == "completed"
    assert headrace.reduce(lines(*stream)).texts == ["Half a txt."]


def test_a_retry_takes_back_the_deltas_of_the_try_before_it() -> None:
    retry = notified("llm_retry", attempt=1, reason="overloaded")
    run = headrace.reduce(lines(prompt(), delta("Lost"), retry, delta("Kept."), whole(text("Kept.")), over()))
    assert run.texts == ["Kept."]


def test_a_call_grows_until_its_arguments_are_whole() -> None:
    def use(**arguments: Any) -> dict[str, Any]:
        return {"type": "tool_use", "id": "t-1", "name": "Read", "input": arguments}

    run = headrace.reduce(
        lines(
            prompt(),
            notified("tool_call", toolUse=use()),
            notified("tool_call", toolUse=use(file_path="/p/f")),
            whole(use(file_path="/p/f")),
            notified("tool_result", toolUseId="t-1", isError=False, content="x"),
            over(),
        )
    )
    (only,) = run.tool_calls
    assert (only["input"], only["title"], only["ok"]) == ({"file_path": "/p/f"}, "Read /p/f", True)


def test_what_a_sub_agent_says_is_not_the_answer() -> None:
    run = headrace.reduce(
        lines(
            prompt(),
            notified("child_session_available", childSessionId="s-2", toolUseId="t-1"),
            notified("create_message", "s-2", message={"id": "m-9", "role": "assistant", "content": [text("Inside.")]}),
            whole(text("Outside.")),
            over(cumulativeTokenUsage={"inputTokens": 5, "outputTokens": 2, "cacheReadTokens": 1}),
        )
    )
    assert run.texts == ["Outside."]
    assert [(agent["tool_call_id"], agent["texts"]) for agent in run.subagents] == [("t-1", ["Inside."])]
    assert run.usage["run"]["prompt_tokens"] == 6


def test_an_error_answer_ends_a_run_only_before_its_first_turn() -> None:
    answer = {"jsonrpc": "2.0", "factoryApiVersion": "1.0.0", "type": "response", "id": "1"}
    refusal = {**answer, "error": {"code": -32000, "message": "no such model"}}
    assert headrace.reduce(lines(refusal)).verdict.outcome == "failed"
    assert headrace.reduce(lines(prompt(), refusal, whole(text("So.")), over())).verdict.outcome == "completed"


# ---------------------------------------------------------------- session files


def test_a_session_file_is_read_without_what_the_harness_wrote_for_the_model() -> None:
    def entry(role: str, message_id: str, *content: dict[str, Any], **facts: Any) -> dict[str, Any]:
        message = {"role": role, "content": list(content), **facts}
        return {"type": "message", "id": message_id, "timestamp": "2026-11-29T18:00:00.000Z", "message": message}

    begun = {
        "type": "session_start",
        "id": "s-1",
        "title": "T",
        "owner": "dev",
        "version": 2,
        "cwd": "/p",
        "hostId": "h",
    }
    ended = {"type": "agent_turn_outcome", "turnId": "1", "reason": "completed"}
    reminder = entry("user", "context-1", text("Remember."), visibility="llm_only")
    asked, answer = entry("user", "m-1", text("Go.")), entry("assistant", "m-2", text("Gone."), modelId="M")
    run = headrace.reduce(lines(begun, reminder, asked, answer, ended))
    assert (run.dialect, run.session_id, run.model) == ("droid-session", "s-1", "M")
    assert [(m["role"], m["text"]) for m in run.messages] == [("user", "Go."), ("assistant", "Gone.")]
    assert run.verdict.outcome == "completed"
    assert headrace.reduce(lines(begun, reminder, asked, answer)).verdict.outcome == "incomplete"
    broken = entry("user", "m-3", text("BYOK Error: 400"), visibility="user_only")
    rejected = {**ended, "reason": "model_request_rejected"}
    run = headrace.reduce(lines(begun, asked, broken, rejected))
    assert (run.verdict.outcome, run.errors[0]["message"]) == ("failed", "BYOK Error: 400")


def test_thoughts_that_are_printed_twice_are_told_once_in_any_order() -> None:
    thoughts = [printed("reasoning", id="m-1", text=text) for text in ("One.", "Two.", "One.", "Two.")]
    again = printed("reasoning", id="m-2", text="One.")
    run = headrace.reduce(lines(init(), *thoughts, said("So."), again, said("So be it.", message_id="m-2")))
    assert run.thinking == ["One.", "Two.", "One."]


def test_the_refusal_may_be_that_of_any_call_of_the_message() -> None:
    """Calls side by side have their results in the order of the calls, whichever ended the run."""
    told = f"Error: {REFUSAL}"
    calls = [said("Go.", "user"), said("I try."), call("t-1", command="rm x"), call("t-2", command="ls")]
    end = [said(REFUSAL, message_id="m-2"), failure("cli", REFUSAL)]
    for last in (answered("t-2", "x"), refused("t-2", "Error: no such file")):
        run = headrace.reduce(lines(init(), *calls, refused("t-1", told), last, *end))
        assert (run.verdict.outcome, run.texts) == ("denied", ["I try."])
