"""What a user relies on when the harness is Gemini CLI: its stream, its json mode, and its session files."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .engines import ENGINES, same
from .truth import DATA, read

CONTEXT = [{"text": "<session_context>\nThe setting."}]


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
    return {"type": kind, "timestamp": "2026-03-01T10:00:00.000Z", **facts}


INIT = printed("init", session_id="s-1", model="m-1")
PROMPT = printed("message", role="user", content="Do it.")


def said(words: str) -> dict[str, Any]:
    return printed("message", role="assistant", content=words, delta=True)


def result(status: str = "success", **facts: Any) -> dict[str, Any]:
    return printed("result", status=status, stats={"input_tokens": 5, "output_tokens": 1}, **facts)


@pytest.mark.parametrize(
    ("message", "outcome", "errors"),
    [
        ("Loop detected, stopping execution", "failed", 1),
        ("Agent execution blocked: not today", "denied", 1),
        ("Maximum session turns exceeded", "limit", 1),
        (
            "Model response was truncated because it exceeded the token limit. "
            "Try using /compress to free up context space.",
            "limit",
            1,
        ),
        ("Something is slow", "completed", 0),
    ],
)
def test_a_success_after_a_stop_is_none(message: str, outcome: str, errors: int) -> None:
    run = reduce(lines(INIT, PROMPT, said("So "), printed("error", severity="warning", message=message), result()))
    assert run["verdict"]["outcome"] == outcome
    assert [error["message"] for error in run["errors"]] == [message] * errors


@pytest.mark.parametrize(
    ("prompt", "between", "used", "outcome"),
    [
        ("Do it.", [], 0, "denied"),  # a hook stopped it, which nothing else says
        ("Do it.", [said("Done.")], 0, "completed"),
        ("Do it.", [], 5, "completed"),  # an empty answer
        ("/about", [], 0, "completed"),  # is for the harness
    ],
)
def test_a_success_without_a_model_call_is_none(
    prompt: str, between: list[dict[str, Any]], used: int, outcome: str
) -> None:
    stats = {"total_tokens": used, "input_tokens": used, "output_tokens": 0, "models": {"m-1": {}} if used else {}}
    end = printed("result", status="success", stats=stats)
    run = reduce(lines(INIT, printed("message", role="user", content=prompt), *between, end))
    assert run["verdict"]["outcome"] == outcome


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        ("FatalTurnLimitedError", "limit"),
        ("_FatalTurnLimitedError", "limit"),
        ("FatalCancellationError", "cancelled"),
        ("unknown", "failed"),
    ],
)
def test_a_failed_result_says_how(kind: str, outcome: str) -> None:
    run = reduce(lines(INIT, PROMPT, result("error", error={"type": kind, "message": "No more."})))
    assert (run["verdict"]["outcome"], run["verdict"]["reason"]) == (outcome, kind)
    assert [error["message"] for error in run["errors"]] == ["No more."]


def test_an_id_that_the_model_used_twice_names_two_calls() -> None:
    calls = [printed("tool_use", tool_name="t", tool_id="x", parameters={"n": n}) for n in (1, 2)]
    results = [printed("tool_result", tool_id="x", status="success", output=o) for o in "AB"]
    run = reduce(lines(INIT, PROMPT, *calls, *results, said("Done."), result()))
    assert [(c["input"]["n"], c["result"]) for c in run["tool_calls"]] == [(1, "A"), (2, "B")]


def test_a_turn_that_ends_at_a_refused_call_is_denied() -> None:
    refused = [
        printed("tool_use", tool_name="run_shell_command", tool_id="t-1", parameters={"command": "rm x"}),
        printed("tool_result", tool_id="t-1", status="error", error={"type": "policy_violation", "message": "No."}),
    ]
    run = reduce(lines(INIT, PROMPT, *refused, result()))
    assert (run["verdict"]["outcome"], run["tool_calls"][0]["ok"]) == ("denied", False)
    assert run["tool_calls"][0]["result"] == "No."
    assert reduce(lines(INIT, PROMPT, *refused, said("I may not."), result()))["verdict"]["outcome"] == "completed"


def test_json_mode_is_one_object_over_many_lines() -> None:
    models = {"m-1": {"tokens": {"prompt": 9, "candidates": 2, "cached": 4}}, "m-2": {"tokens": {"prompt": 1}}}
    answer = {"session_id": "s-1", "response": "Done.", "stats": {"models": models}}
    run = reduce(json.dumps(answer, indent=2).encode() + b"\n")
    assert (run["dialect"], run["verdict"]["outcome"], run["texts"]) == ("gemini", "completed", ["Done."])
    used = run["usage"]["run"]
    assert (used["prompt_tokens"], used["completion_tokens"], used["cached_tokens"]) == (10, 2, 4)
    assert (run["report"]["records"], run["report"]["malformed"]) == (1, 0)
    failed = reduce(json.dumps({**answer, "error": {"type": "Error", "message": "Bad."}}, indent=2).encode())
    assert (failed["verdict"]["outcome"], failed["errors"][0]["message"]) == ("failed", "Bad.")


# ---------------------------------------------------------------- session files

HEADER = {"sessionId": "s-1", "projectHash": "h", "startTime": "2026-03-01T10:00:00.000Z", "kind": "main"}


def message(kind: str, message_id: str, content: Any, **facts: Any) -> dict[str, Any]:
    return {"id": message_id, "timestamp": "2026-03-01T10:00:00.000Z", "type": kind, "content": content, **facts}


def tokens(prompt: int) -> dict[str, int]:
    return {"input": prompt, "output": 1, "cached": 0}


CALL = {"id": "c-1", "name": "write_file", "args": {"file_path": "/p/f", "content": "b"}, "status": "success"}


def test_a_message_that_is_written_again_counts_once() -> None:
    edit = {"filePath": "/p/f", "originalContent": "a", "newContent": "b"}
    response = {"functionResponse": {"id": "c-1", "name": "write_file", "response": {"output": "Written."}}}
    done = {**CALL, "result": [response], "resultDisplay": edit}
    stream = lines(
        HEADER,
        {"$set": {"messages": [message("user", "m-0", CONTEXT)]}},
        message("user", "m-1", [{"text": "Do it."}]),
        message("gemini", "m-2", "Wri", tokens=None),
        message("gemini", "m-2", "Writing.", tokens=tokens(5)),
        message("gemini", "m-2", "Writing.", tokens=tokens(7), toolCalls=[done]),
        message("user", "m-3", [response]),
        message("gemini", "m-4", "Done.", tokens=tokens(9)),
    )
    run = reduce(stream)
    assert [text["text"] for text in run["messages"]] == ["Do it.", "Writing.", "Done."]
    assert run["usage"]["calls"]["prompt_tokens"] == 16
    call = run["tool_calls"][0]
    assert (call["ok"], call["result"]) == (True, "Written.")
    assert run["verdict"]["outcome"] == "completed"
    parser = ENGINES["python"](kinds={"tool_call_update"})
    update = (parser.feed(stream) + parser.close())[0]["update"]
    assert update["content"][1] == {"type": "diff", "path": "/p/f", "oldText": "a", "newText": "b"}


def test_a_history_takes_the_place_of_what_came_before() -> None:
    first = [message("user", "m-1", [{"text": "One."}]), message("gemini", "m-2", "Uno.", tokens=tokens(5))]
    cut = [message("user", "m-3", [{"text": "Two."}]), message("gemini", "m-4", "Du", toolCalls=[CALL])]
    again = [first[0], {**first[1], "content": [{"text": "Uno."}]}]
    run = reduce(lines(HEADER, *first, *cut, {"$set": {"messages": again}}))
    assert [text["text"] for text in run["messages"]] == ["One.", "Uno."]
    assert (run["usage"]["calls"]["count"], len(run["tool_calls"])) == (1, 1)
    other = [message("user", "n-1", [{"text": "In short: one."}]), message("gemini", "n-2", "Yes.")]
    run = reduce(lines(HEADER, *first, {"$set": {"messages": other}}))
    assert run["texts"] == ["Yes."]


def test_a_rewind_takes_back_a_message_and_all_after_it() -> None:
    talk = [message("user", "m-1", "One."), message("gemini", "m-2", "Uno."), message("user", "m-3", "Two.")]
    run = reduce(lines(HEADER, *talk, {"$rewindTo": "m-2"}, message("gemini", "m-4", "Eins.")))
    assert [text["text"] for text in run["messages"]] == ["One.", "Eins."]
    assert reduce(lines(HEADER, *talk, {"$rewindTo": "nowhere"}))["messages"] == []


def test_an_old_session_is_one_pretty_document() -> None:
    name = "old_0.12.0_tools.session"
    folder = DATA / "recordings" / "gemini"
    truth = json.loads(read(folder / f"{name}.expect.json.gz"))
    run = reduce(read(folder / f"{name}.json.gz"))
    assert (run["dialect"], run["report"]["records"], run["report"]["malformed"]) == ("gemini-chat", 1, 0)
    assert run["texts"] == [text for text in truth["texts"] if text]
    assert {call["id"]: call["ok"] for call in run["tool_calls"]} == {c["id"]: c["ok"] for c in truth["tool_calls"]}
    assert run["usage"]["calls"]["prompt_tokens"] == truth["usage"]["prompt"]


def test_a_sub_agents_file_ends_with_its_task() -> None:
    run = reduce(read(DATA / "recordings" / "gemini" / "plan.subagent.session.jsonl.gz"))
    assert (run["verdict"]["outcome"], run["cwd"]) == ("completed", "/home/dev/project-gemini")
    assert run["tool_calls"][-1]["name"] == "complete_task"
