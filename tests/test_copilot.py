"""What a user relies on when the harness is GitHub's Copilot CLI: its stream, and its session files."""

from __future__ import annotations

import json
from typing import Any

import headrace

from .truth import DATA

FOLDER = DATA / "recordings" / "copilot"


def lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def told(kind: str, agent: str | None = None, ephemeral: bool = False, **data: Any) -> dict[str, Any]:
    head = {"type": kind, "data": data, **({"ephemeral": True} if ephemeral else {})}
    own = {"agentId": agent} if agent is not None else {}
    return {**head, **own, "id": "e-1", "timestamp": "2026-11-29T18:00:00.000Z", "parentId": None}


def prompt(words: str = "Go.") -> dict[str, Any]:
    return told("user.message", content=words)


def delta(words: str, message: str = "m-1") -> dict[str, Any]:
    return told("assistant.message_delta", ephemeral=True, messageId=message, deltaContent=words)


def said(
    words: str, *requests: dict[str, Any], message: str = "m-1", agent: str | None = None, **facts: Any
) -> dict[str, Any]:
    return told("assistant.message", agent, messageId=message, content=words, toolRequests=list(requests), **facts)


def asks(call_id: str, name: str = "bash", **arguments: Any) -> dict[str, Any]:
    return {"toolCallId": call_id, "name": name, "arguments": arguments}


def done(call_id: str, content: str = "out", success: bool = True, **facts: Any) -> dict[str, Any]:
    result = {"result": {"content": content}} if success else {}
    return told("tool.execution_complete", toolCallId=call_id, success=success, **result, **facts)


def result(code: int = 0) -> dict[str, Any]:
    usage = {"premiumRequests": 0}
    return {
        "type": "result",
        "timestamp": "2026-11-29T18:00:01.000Z",
        "sessionId": "s-1",
        "exitCode": code,
        "usage": usage,
    }


# ---------------------------------------------------------------- the stream


def test_texts_and_thoughts_are_told_once_though_the_wire_repeats_them() -> None:
    thought = told("assistant.reasoning_delta", ephemeral=True, reasoningId="r-1", deltaContent="Hm.")
    again = told("assistant.reasoning", reasoningId="r-1", content="Hm.")
    stream = [prompt(), thought, delta("Half "), delta("a text."), said("Half a text.", reasoningText="Hm."), again]
    run = headrace.reduce(lines(*stream, result()))
    assert (run.texts, run.thinking, run.verdict.outcome) == (["Half a text."], ["Hm."], "completed")
    run = headrace.reduce(lines(prompt(), said("Whole.", reasoningText="Hm."), again, result()))
    assert (run.texts, run.thinking) == (["Whole."], ["Hm."])


def test_a_retry_takes_back_what_the_failed_try_said() -> None:
    retry = told("assistant.turn_retry", reason="api_error")
    stream = lines(prompt(), delta("Lost"), retry, delta("Kept.", "m-2"), said("Kept.", message="m-2"), result())
    assert headrace.reduce(stream).texts == ["Kept."]
    chunks = list(headrace.events(stream, only={"agent_message_chunk"}))
    assert sum(e.get("extra", {}).get("retract", 0) for e in chunks) == len("Lost")


def test_a_failed_command_has_not_succeeded_whatever_the_record_says() -> None:
    run = headrace.reduce(
        lines(
            prompt(),
            said("", asks("t-1", command="false"), asks("t-2", command="true")),
            done("t-2", shellExecution={"exitCode": 0}),
            done("t-1", shellExecution={"exitCode": 3}),
        )
    )
    assert [(c["id"], c["ok"], c["exit_code"]) for c in run.tool_calls] == [("t-1", False, 3), ("t-2", True, 0)]


def test_what_a_sub_agent_says_is_not_the_answer() -> None:
    run = headrace.reduce(
        lines(
            prompt(),
            said("", asks("t-1", "task", prompt="Look.")),
            told("subagent.started", "a-1", toolCallId="t-1", agentName="explore"),
            told("user.message", "a-1", content="Look.", source="agent-1"),
            said("Inside.", message="m-2", agent="a-1"),
            done("t-1", "Inside."),
            said("Outside.", message="m-3"),
            result(),
        )
    )
    assert (run.texts, run.final_text) == (["Outside."], "Outside.")
    assert [(agent["tool_call_id"], agent["texts"]) for agent in run.subagents] == [("t-1", ["Inside."])]
    assert [m["text"] for m in run.messages if m["role"] == "user" and m["parent"] is None] == ["Go."]


def test_a_run_that_ends_at_a_refused_call_is_denied() -> None:
    error = {"code": "denied", "message": "no"}
    refused = [prompt(), said("", asks("t-1", command="rm x")), done("t-1", success=False, error=error)]
    assert headrace.reduce(lines(*refused, result())).verdict.outcome == "denied"
    run = headrace.reduce(lines(*refused, said("I may not.", message="m-2"), result()))
    assert (run.verdict.outcome, run.tool_calls[0]["ok"]) == ("completed", False)


def test_the_exit_code_and_the_error_tell_the_outcome() -> None:
    error = told("session.error", errorType="query", message="400 bad request")
    run = headrace.reduce(lines(prompt(), error, result(1)))
    assert (run.verdict.outcome, run.errors[0]["message"], run.errors[0]["fatal"]) == (
        "failed",
        "400 bad request",
        True,
    )
    quota = told("session.error", errorType="quota", message="used up")
    assert headrace.reduce(lines(prompt(), quota, result(1))).verdict.outcome == "limit"
    failure = told("model.call_failure", failureKind="api_error", errorMessage="502")
    run = headrace.reduce(lines(prompt(), failure, said("So."), result()))
    assert (run.verdict.outcome, [e["fatal"] for e in run.errors if e["fatal"]]) == ("completed", [])
    assert headrace.reduce(lines(prompt(), said("So."))).verdict.outcome != "failed"


def test_the_last_line_is_not_taken_for_that_of_claude() -> None:
    assert headrace.reduce(lines(result())).dialect == "copilot"
    assert headrace.reduce(lines(prompt(), said("So."), result())).session_id == "s-1"


# ---------------------------------------------------------------- session files


def test_tokens_are_in_the_session_file_and_its_totals_are_not_added_to_them() -> None:
    counters = {"model": "m", "inputTokens": 100, "outputTokens": 9, "cacheReadTokens": 30, "cost": 1}
    metrics = {"m": {"usage": {"inputTokens": 150, "outputTokens": 11, "cacheReadTokens": 30}}}
    begun = told("session.start", sessionId="s-1", copilotVersion="1.0.102", producer="copilot-agent")
    stream = [begun, prompt(), told("session.usage_record", usage=counters), said("So."), told("assistant.turn_end")]
    run = headrace.reduce(lines(*stream, told("session.shutdown", shutdownType="routine", modelMetrics=metrics)))
    assert (run.dialect, run.session_id, run.version) == ("copilot-session", "s-1", "1.0.102")
    assert (run.usage["calls"]["prompt_tokens"], run.usage["run"]["prompt_tokens"]) == (100, 150)
    assert run.cost_usd is None
    assert run.verdict.outcome == "completed"


def test_stream_and_session_file_tell_the_same_run() -> None:
    for name in ("hello", "tools", "plan", "denied", "fatal400"):
        stream = headrace.reduce(FOLDER / f"{name}.jsonl.gz")
        stored = headrace.reduce(FOLDER / f"{name}.session.jsonl.gz")
        assert stored.dialect == "copilot-session"
        assert (stored.texts, stored.thinking) == (stream.texts, stream.thinking), name
        assert stored.verdict.outcome == stream.verdict.outcome, name
        assert [(c["id"], c["ok"]) for c in stored.tool_calls] == [(c["id"], c["ok"]) for c in stream.tool_calls], name


def test_a_killed_run_has_no_end() -> None:
    assert headrace.reduce(FOLDER / "killed.session.jsonl.gz").verdict.outcome == "incomplete"
    assert headrace.reduce(FOLDER / "killed.jsonl.gz").verdict.outcome == "incomplete"


def test_an_abort_is_a_cancel_whatever_the_exit_code() -> None:
    abort = told("abort", reason="user initiated")
    for code in (0, 1, 130):
        assert headrace.reduce(lines(prompt(), delta("Half"), abort, result(code))).verdict.outcome == "cancelled"


def test_a_run_that_its_credits_ended_is_a_limit() -> None:
    abort = told("abort", reason="autopilot_credit_limit")
    for code in (0, 1):
        assert headrace.reduce(lines(prompt(), delta("Half"), abort, result(code))).verdict.outcome == "limit"


def test_an_agent_that_was_stopped_has_not_completed() -> None:
    stopped = told("session.idle", ephemeral=True, aborted=True)
    assert headrace.reduce(lines(prompt(), delta("Half"), stopped)).verdict.outcome == "cancelled"
    assert headrace.reduce(lines(prompt(), said("So."), told("session.idle", ephemeral=True))).final_text == "So."


def test_a_session_that_crashed_has_failed() -> None:
    begun = told("session.start", sessionId="s-1", copilotVersion="1.0.102", producer="copilot-agent")
    crash = told("session.shutdown", shutdownType="error", errorReason="out of memory", modelMetrics={})
    run = headrace.reduce(lines(begun, prompt(), told("assistant.turn_start"), crash))
    assert (run.verdict.outcome, [error["message"] for error in run.errors]) == ("failed", ["out of memory"])


def test_records_that_only_the_vendors_sdk_names_are_known() -> None:
    moved = told("session.context_changed", cwd="/q", branch="main")
    others = ("mcp.tools.list_changed", "session.canvas.opened", "user_input.requested", "session.mode_changed")
    stream = lines(prompt(), moved, *map(told, others), said("So."), result())
    run = headrace.reduce(stream)
    assert (run.dialect, run.cwd, run.report.unknown) == ("copilot", "/q", {})


# ---------------------------------------------------------------- usage of versions before 1.0.102


def ended(prompt_tokens: int, output: int, model: str = "gpt-5.4", **facts: Any) -> dict[str, Any]:
    counts = {"inputTokens": prompt_tokens, "outputTokens": output, "cacheReadTokens": 0, "cacheWriteTokens": 0}
    metrics = {model: {"requests": {"count": 1, "cost": 0}, "usage": counts}}
    return told("session.shutdown", shutdownType="routine", modelMetrics=metrics, **facts)


BEGUN = told("session.start", sessionId="s-1", copilotVersion="1.0.20", producer="copilot-agent")


def test_the_output_of_each_message_is_counted_where_nothing_else_is() -> None:
    calls = headrace.reduce(
        lines(
            prompt(), said("", asks("c-1"), outputTokens=536), done("c-1"), said("So.", message="m-2", outputTokens=9)
        )
    ).usage["calls"]
    assert (calls["count"], calls["completion_tokens"], calls["prompt_tokens"]) == (2, 545, None)


def test_a_message_that_is_split_is_one_call() -> None:
    chunks = [said(word, message=word, apiCallId="a-1", outputTokens=7) for word in ("One", "Two")]
    assert headrace.reduce(lines(prompt(), *chunks)).usage["calls"]["completion_tokens"] == 7


def test_the_output_of_messages_is_not_counted_beside_usage_records() -> None:
    spent = told("assistant.usage", ephemeral=True, model="m", inputTokens=10, outputTokens=9)
    run = headrace.reduce(lines(prompt(), spent, said("So.", outputTokens=9), result()))
    assert (run.usage["calls"]["count"], run.usage["calls"]["completion_tokens"]) == (1, 9)


def test_the_totals_of_a_resumed_sessions_processes_add_up() -> None:
    """Up to 1.0.67 each process begins to count anew."""
    first = [BEGUN, prompt(), said("One."), ended(2000, 12)]
    second = [prompt(), said("Two.", message="m-2"), ended(5000, 34), ended(5000, 34)]  # and may say it twice
    run = headrace.reduce(lines(*first, *second))
    assert (run.usage["run"]["prompt_tokens"], run.usage["run"]["completion_tokens"]) == (7000, 46)
    assert run.usage.printed_by_model["gpt-5.4"]["prompt_tokens"] == 7000
    same = headrace.reduce(lines(*first, *first[1:]))
    assert same.usage["run"]["prompt_tokens"] == 4000
    other = headrace.reduce(lines(*first, prompt(), said("Two."), ended(500, 3, "claude-sonnet-4.5")))
    assert other.usage["run"]["prompt_tokens"] == 2500
    assert {name: sums["completion_tokens"] for name, sums in other.usage.printed_by_model.items()} == {
        "gpt-5.4": 12,
        "claude-sonnet-4.5": 3,
    }


def test_totals_of_the_whole_session_do_not_add_up() -> None:
    whole = [ended(counts, 1, accountingSnapshot={"totalUserRequests": 1}) for counts in (2000, 7000)]
    run = headrace.reduce(lines(BEGUN, prompt(), said("One."), whole[0], prompt(), said("Two."), whole[1]))
    assert run.usage["run"]["prompt_tokens"] == 7000
