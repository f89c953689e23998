"""What a user relies on when the harness is Qwen Code: its stream, and its session files."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .engines import ENGINES, same
from .truth import DATA, read


def lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def reduce(stream: bytes, exit_code: int | None = None, stderr: bytes = b"") -> dict[str, Any]:
    """The run, which all backends must agree on."""
    runs = []
    for engine in ENGINES.values():
        parser = engine(kinds=())
        parser.feed(stream)
        parser.close()
        runs.append(parser.run(exit_code, stderr))
    assert all(same(run, runs[0]) for run in runs)
    return runs[0]


def printed(kind: str, **facts: Any) -> dict[str, Any]:
    return {"type": kind, "session_id": "s-1", "parent_tool_use_id": None, **facts}


INIT = printed("system", subtype="init", uuid="s-1", qwen_code_version="0.24.4", model="m-1", cwd="/p")
_numbers = iter(range(1000))


def said(*blocks: dict[str, Any], used: int = 0, **facts: Any) -> dict[str, Any]:
    uuid = f"u-{next(_numbers)}"
    usage = {"input_tokens": used, "output_tokens": used}
    return printed(
        "assistant", uuid=uuid, message={"id": uuid, "model": "m-1", "content": list(blocks), "usage": usage}, **facts
    )


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(call_id: str, name: str = "run_shell_command", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def answered(call_id: str, words: str, *, is_error: bool = False, **facts: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call_id, "is_error": is_error, "content": words}
    return printed("user", message={"role": "user", "content": [block]}, **facts)


def delta(words: str, **facts: Any) -> dict[str, Any]:
    event = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": words}}
    return printed("stream_event", event=event, **facts)


def retry(*, preserve: bool = False, discarded: int = 0) -> dict[str, Any]:
    return printed("system", subtype="retry", data={"preserveText": preserve, "discardedToolCalls": discarded})


def result(words: str = "", **facts: Any) -> dict[str, Any]:
    usage = {"input_tokens": 9, "output_tokens": 1}
    success = {"subtype": "success", "is_error": False, "duration_ms": 5, "result": words, "permission_denials": []}
    return printed("result", usage=usage, **{**success, **facts})


def failed(words: str, **facts: Any) -> dict[str, Any]:
    error = {"subtype": "error_during_execution", "is_error": True, "error": {"message": words}}
    return result(**{**error, **facts})


FAILURE = "[API Error: 500 out of order]"


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("before", ["", "So far "])
def test_a_failure_is_no_words_of_the_model(before: str, partial: bool) -> None:
    streamed = [delta(part) for part in (before, FAILURE) if part] if partial else []
    run = reduce(lines(INIT, *streamed, said(text(before + FAILURE)), failed(FAILURE)))
    assert run["verdict"]["outcome"] == "failed"
    assert "".join(run["texts"]) == before
    assert [error["message"] for error in run["errors"]] == [FAILURE]


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        ("Qwen OAuth quota exceeded: Your free daily quota has been reached.", "limit"),
        ("Qwen OAuth free tier has been discontinued on 2026-04-15.", "failed"),
    ],
)
def test_a_used_up_quota_is_no_answer(words: str, outcome: str, partial: bool) -> None:
    streamed = [delta(words)] if partial else []
    for end in (result(words), failed(words)):  # old versions call it a success
        run = reduce(lines(INIT, *streamed, said(text(words)), end))
        assert (run["verdict"]["outcome"], run["texts"]) == (outcome, [])
        assert [error["message"] for error in run["errors"]] == [words]


@pytest.mark.parametrize("partial", [False, True])
def test_a_failure_behind_a_text_is_one_though_old_versions_call_it_a_success(partial: bool) -> None:
    streamed = [delta("So far "), delta(FAILURE)] if partial else []
    run = reduce(lines(INIT, *streamed, said(text(f"So far {FAILURE}")), result(f"So far {FAILURE}")))
    assert (run["verdict"]["outcome"], run["texts"]) == ("failed", ["So far "])
    assert [error["message"] for error in run["errors"]] == [FAILURE]


@pytest.mark.parametrize(("words", "used"), [(f"The log says {FAILURE}", 3), (f"{FAILURE[:-1]}, says the log", 0)])
def test_an_answer_may_quote_a_failure(words: str, used: int) -> None:
    words = f"Look: {words}"
    run = reduce(lines(INIT, said(text(words), used=used), result(words)))
    assert (run["verdict"]["outcome"], run["texts"], run["errors"]) == ("completed", [words], [])


def test_an_id_that_the_model_used_twice_names_two_calls() -> None:
    results = answered("x", "A"), answered("x", "B", is_error=True)
    run = reduce(
        lines(INIT, said(call("x", n=1), call("x", n=2), used=3), *results, said(text("Done.")), result("Done."))
    )
    assert [(c["input"]["n"], c["result"], c["ok"]) for c in run["tool_calls"]] == [(1, "A", True), (2, "B", False)]


def test_old_versions_call_a_failure_a_success() -> None:
    run = reduce(lines(INIT, said(text(FAILURE)), result(FAILURE)))
    assert (run["verdict"]["outcome"], run["texts"]) == ("failed", [])


def test_a_retry_takes_back_its_turn_and_no_other() -> None:
    turn = [said(text("Looking.")), said(call("c-1", command="ls"), used=5), answered("c-1", "f")]
    lost = [said(text("Half an ans")), retry(), retry()]
    run = reduce(lines(INIT, *turn, *lost, said(text("Done."), used=7), result("Done.")))
    assert run["texts"] == ["Looking.", "Done."]
    silent = [retry(), retry()]  # of an attempt that had said nothing
    run = reduce(lines(INIT, *turn, *silent, said(text("Done."), used=7), result("Done.")))
    assert run["texts"] == ["Looking.", "Done."]


@pytest.mark.parametrize("first", ["retry", "result"])
def test_calls_of_a_dropped_attempt_have_failed(first: str) -> None:
    skipped = answered("c-1", "Skipped because the provider attempt was retried.", is_error=True)
    retries = [retry(discarded=1), retry(discarded=1)]
    between = [*retries, skipped] if first == "retry" else [skipped, *retries]
    lost = [said(text("One moment.")), said(call("c-1", command="ls"))]
    again = [said(call("c-2", command="ls"), used=5), answered("c-2", "f"), said(text("Done."), used=7)]
    run = reduce(lines(INIT, *lost, *between, *again, result("Done.")))
    assert run["texts"] == ["Done."]
    assert [(c["id"], c["ok"], (c["result"] or "")[:7]) for c in run["tool_calls"]] == [
        ("c-1", False, "Skipped"),
        ("c-2", True, "f"),
    ]


@pytest.mark.parametrize(
    ("exit_code", "stderr", "outcome"),
    [
        (53, b"", "limit"),
        (55, b"Run aborted: wall-clock budget of 4s exceeded (--max-wall-time).", "timeout"),
        (55, b"Run aborted: tool-call budget of 2 exceeded (--max-tool-calls).", "limit"),
        (130, b"", "cancelled"),
        (None, b"", "incomplete"),
    ],
)
def test_a_stream_without_a_result_is_judged_from_outside(exit_code: int, stderr: bytes, outcome: str) -> None:
    run = reduce(lines(INIT, said(call("c-1", command="ls"), used=5), answered("c-1", "f")), exit_code, stderr)
    assert run["verdict"]["outcome"] == outcome
    assert [error["message"] for error in run["errors"]] == ([stderr.decode()] if stderr else [])


def test_a_sub_agents_failure_in_mid_stream_is_not_the_runs() -> None:
    run = reduce(
        lines(
            INIT,
            said(call("c-1", "agent", prompt="Look."), used=5),
            printed("user", message={"role": "user", "content": [text("Look.")]}, parent_tool_use_id="c-1"),
            said(call("c-2", command="ls"), parent_tool_use_id="c-1"),
            answered("c-2", "f", parent_tool_use_id="c-1"),
            failed("The sub-agent broke.", duration_ms=0),
            answered("c-1", "It broke.", is_error=True),
            said(text("It broke."), used=7),
            result("It broke."),
        )
    )
    assert (run["verdict"]["outcome"], run["errors"], run["texts"]) == ("completed", [], ["It broke."])
    assert [(c["id"], c["parent"]) for c in run["tool_calls"]] == [("c-1", None), ("c-2", "c-1")]


def test_a_turn_that_ends_at_a_refused_call_is_denied() -> None:
    refused = [said(call("c-1", command="rm x"), used=5), answered("c-1", "declined", is_error=True)]
    denials = [{"tool_name": "run_shell_command", "tool_use_id": "c-1", "tool_input": {}}]
    assert reduce(lines(INIT, *refused, result(permission_denials=denials)))["verdict"]["outcome"] == "denied"
    thought = said({"type": "thinking", "thinking": "Hm."}, used=7)
    assert reduce(lines(INIT, *refused, thought, result(permission_denials=denials)))["verdict"]["outcome"] == "denied"
    told = said(text("I may not."), used=7)
    run = reduce(lines(INIT, *refused, told, result("I may not.", permission_denials=denials)))
    assert run["verdict"]["outcome"] == "completed"


# ---------------------------------------------------------------- session files


def wrote(kind: str, uuid: str, parent: str | None, *parts: dict[str, Any], **facts: Any) -> dict[str, Any]:
    where = {"uuid": uuid, "parentUuid": parent, "sessionId": "s-1", "version": "0.24.4", "cwd": "/p"}
    return {**where, "type": kind, "message": {"role": "x", "parts": list(parts)}, **facts}


def used(prompt: int) -> dict[str, Any]:
    return {"usageMetadata": {"promptTokenCount": prompt, "candidatesTokenCount": 1, "totalTokenCount": prompt + 1}}


def telemetry(uuid: str, parent: str, name: str, **facts: Any) -> dict[str, Any]:
    where = {"uuid": uuid, "parentUuid": parent, "sessionId": "s-1", "type": "system", "subtype": "ui_telemetry"}
    return {**where, "systemPayload": {"uiEvent": {"event.name": f"qwen-code.{name}", **facts}}}


def response(uuid: str, parent: str, prompt: int, **facts: Any) -> dict[str, Any]:
    counts = {"input_token_count": prompt, "output_token_count": 1, "total_token_count": prompt + 1}
    return telemetry(uuid, parent, "api_response", response_id=uuid, **counts, **facts)


def test_a_model_call_counts_once_and_those_of_telemetry_alone_count_too() -> None:
    run = reduce(
        lines(
            wrote("user", "u-1", None, {"text": "Do it."}),
            response("u-2", "u-1", 5),
            wrote("assistant", "u-3", "u-2", {"functionCall": {"id": "c-1", "name": "agent"}}, **used(5)),
            response("u-4", "u-3", 100, subagent_id="helper-c-1", subagent_type="helper"),
            wrote("tool_result", "u-5", "u-4", toolCallResult={"callId": "c-1", "status": "success"}),
            response("u-6", "u-5", 7),
            response("u-7", "u-6", 1000),  # a helper, before the record of the other
            wrote("assistant", "u-8", "u-7", {"text": "Done."}, **used(7)),
        )
    )
    assert (run["usage"]["calls"]["count"], run["usage"]["calls"]["prompt_tokens"]) == (4, 1112)
    assert (run["verdict"]["outcome"], run["version"]) == ("completed", "0.24.4")


def test_a_rewound_branch_is_taken_back() -> None:
    run = reduce(
        lines(
            wrote("user", "u-1", None, {"text": "One."}),
            wrote("assistant", "u-2", "u-1", {"text": "Uno."}),
            wrote("user", "u-3", "u-2", {"text": "Two."}),
            wrote("assistant", "u-4", "u-3", {"text": "Due."}),
            wrote("user", "u-5", "u-2", {"text": "Three."}),
            wrote("assistant", "u-6", "u-5", {"text": "Tre."}),
        )
    )
    assert [text["text"] for text in run["messages"]] == ["One.", "Uno.", "Three.", "Tre."]


def test_what_a_person_says_while_tools_run_is_said_by_that_person() -> None:
    asked = {"subtype": "mid_turn_user_message", "provenance": "real_user"}
    notes = {"subtype": "session_notes", "systemPayload": {"notes": "n"}}
    stream = lines(
        wrote("user", "u-1", None, {"text": "One."}),
        {**wrote("user", "u-2", "u-1", {"text": "And two."}), **asked},
        {**wrote("system", "u-3", "u-2"), **notes},
        wrote("assistant", "u-4", "u-3", {"text": "Both."}),
    )
    run = reduce(stream)
    assert [text["text"] for text in run["messages"]] == ["One.", "And two.", "Both."]
    assert run["report"]["unknown"] == {}


@pytest.mark.parametrize(("kind", "outcome"), [("ApiError", "failed"), ("APIUserAbortError", "cancelled")])
def test_the_last_failed_call_decides_and_a_tried_again_one_does_not(kind: str, outcome: str) -> None:
    prompt = wrote("user", "u-1", None, {"text": "Do it."})
    error = telemetry("u-2", "u-1", "api_error", error_message="Broken.", error_type=kind)
    run = reduce(lines(prompt, error))
    assert (run["verdict"]["outcome"], [e["message"] for e in run["errors"]]) == (outcome, ["Broken."])
    run = reduce(lines(prompt, error, wrote("assistant", "u-3", "u-2", {"text": "Done."}, **used(5))))
    assert (run["verdict"]["outcome"], run["errors"], run["retries"]) == ("completed", [], 1)


def test_a_sub_agents_file_is_a_conversation_of_its_own_and_part_of_the_session_behind_it() -> None:
    folder = DATA / "recordings" / "qwen"
    alone = read(folder / "plan.subagent.session.jsonl.gz")
    run = reduce(alone)
    assert (run["final_text"], run["usage"]["calls"]["prompt_tokens"]) == ("sub result ✔", 60060)
    run = reduce(read(folder / "plan.session.jsonl.gz") + alone)
    assert (run["final_text"], run["usage"]["calls"]["prompt_tokens"]) == ("The plan is done.", 88088)
    assert run["subagents"][0]["texts"] == ["sub text one", "sub text two", "sub result ✔"]
