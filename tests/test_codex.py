"""What a user relies on when the harness is Codex: limits, refusals, and several runs in one file."""

from __future__ import annotations

import json
from typing import Any

import pytest

import headrace

from .engines import ENGINES, same


def lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def reduce(*records: dict[str, Any], exit_code: int | None = None) -> dict[str, Any]:
    """The run, which all backends must agree on."""
    runs = []
    for engine in ENGINES.values():
        parser = engine(kinds=())
        parser.feed(lines(*records))
        parser.close()
        runs.append(parser.run(exit_code, b""))
    assert all(same(run, runs[0]) for run in runs)
    return runs[0]


def item(kind: str, **facts: Any) -> dict[str, Any]:
    return {"type": "item.completed", "item": {"id": "item_0", "type": kind, **facts}}


def old_item(kind: str, **facts: Any) -> dict[str, Any]:
    return {"type": "item.completed", "item": {"id": "item_0", "item_type": kind, **facts}}


STARTED = [{"type": "thread.started", "thread_id": "t-1"}, {"type": "turn.started"}]
DONE = {"type": "turn.completed", "usage": {"input_tokens": 1, "cached_input_tokens": 0, "output_tokens": 1}}
SESSION = {"type": "session.created", "session_id": "t-1"}


@pytest.mark.parametrize(
    ("message", "outcome"),
    [
        ("Incomplete response returned, reason: max_output_tokens", "limit"),
        ("stream disconnected before completion: Incomplete response returned, reason: max_output_tokens", "limit"),
        ("stream disconnected before completion: Incomplete response returned, reason: content_filter", "failed"),
        ("Your input exceeds the context window of this model.", "limit"),
        ("exceeded retry limit, last status: 429 Too Many Requests", "failed"),
    ],
)
def test_a_cap_is_a_limit_wherever_the_message_names_it(message: str, outcome: str) -> None:
    failed = {"type": "turn.failed", "error": {"message": message}}
    run = reduce(*STARTED, {"type": "error", "message": message}, failed)
    assert run["verdict"]["outcome"] == outcome
    assert [error["message"] for error in run["errors"]] == [message]


def test_a_turn_that_ends_at_a_refused_call_is_denied_whatever_the_model_thought() -> None:
    refused = item("command_execution", command="rm x", aggregated_output="", exit_code=None, status="declined")
    thought = {"type": "item.completed", "item": {"id": "item_1", "type": "reasoning", "text": "Hm."}}
    told = {"type": "item.completed", "item": {"id": "item_2", "type": "agent_message", "text": "I may not."}}
    assert reduce(*STARTED, refused, thought, DONE)["verdict"]["outcome"] == "denied"
    assert reduce(*STARTED, refused, thought, told, DONE)["verdict"]["outcome"] == "completed"


def test_an_error_before_another_process_ended_the_first_one() -> None:
    failure, answer = {"type": "error", "message": "401 Unauthorized"}, old_item("assistant_message", text="Hi.")
    run = reduce(SESSION, failure, SESSION, answer, exit_code=0)
    assert [error["message"] for error in run["errors"]] == ["401 Unauthorized"]
    assert (run["verdict"]["outcome"], run["texts"]) == ("completed", ["Hi."])


def test_a_session_without_turns_is_not_judged_by_what_came_before_it() -> None:
    settings = {"workdir": "/p", "model": "m-1", "reasoning effort": "low"}
    failure = {"id": "1", "msg": {"type": "error", "message": "401 Unauthorized"}}
    run = reduce(settings, {"prompt": "Hi"}, failure, SESSION, old_item("assistant_message", text="Hi."))
    assert run["verdict"]["outcome"] == "completed"


@pytest.mark.parametrize(("output", "ok"), [('{"output":"a","metadata":{"exit_code":0}}', True), ("rejected", False)])
def test_a_shell_call_without_its_wrapper_did_not_run(output: str, ok: bool) -> None:
    def logged(**payload: Any) -> dict[str, Any]:
        return {"timestamp": "2026-01-01T00:00:00.000Z", "type": "response_item", "payload": payload}

    run = reduce(
        logged(type="function_call", name="shell", call_id="c-1", arguments='{"command":["ls"]}'),
        logged(type="function_call_output", call_id="c-1", output=output),
    )
    assert run["dialect"] == "codex-rollout"
    assert [call["ok"] for call in run["tool_calls"]] == [ok]


ANSWER = item("agent_message", text="Hi.")
SETTINGS = {"workdir": "/p", "model": "m-1", "reasoning effort": "low"}
OLD = [SETTINGS, {"prompt": "Hi"}, {"id": "1", "msg": {"type": "task_started"}}]
OLD_ANSWER = {"id": "1", "msg": {"type": "agent_message", "message": "Old."}}
OLD_CALL = {"id": "1", "msg": {"type": "exec_command_begin", "call_id": "c-1", "command": ["ls"], "cwd": "/p"}}
OLD_ERROR = {"id": "1", "msg": {"type": "error", "message": "401 Unauthorized"}}
OLD_SESSION = [SESSION, old_item("assistant_message", text="Older.")]
ASKED = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
BARE = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "Oldest."}]}
BARE_CALL = {"type": "function_call", "call_id": "c-2", "name": "shell", "arguments": "{}"}
BARE_ERROR = {"type": "message", "id": "error-1", "role": "system", "content": [{"type": "input_text", "text": "No."}]}

WHOLE = {
    "exec": [*STARTED, ANSWER, DONE],
    "session": OLD_SESSION,
    "events": [*OLD, OLD_ANSWER],
    "typescript": [ASKED, BARE],
}
CUT = {
    "exec": [*STARTED, ANSWER],
    "thread alone": STARTED[:1],
    "session": [SESSION, old_item("reasoning", text="Hm.")],
    "session alone": [SESSION],
    "events": [*OLD, OLD_CALL],
    "settings alone": [SETTINGS],
    "typescript": [ASKED, BARE_CALL],
}
FAILED = {
    "exec": [*STARTED, {"type": "turn.failed", "error": {"message": "401 Unauthorized"}}],
    "session": [SESSION, {"type": "error", "message": "401 Unauthorized"}],
    "events": [*OLD, OLD_ERROR],
    "typescript": [ASKED, BARE_ERROR],
}


@pytest.mark.parametrize("cut", CUT)
@pytest.mark.parametrize("whole", WHOLE)
def test_a_run_that_was_cut_behind_a_good_one_is_incomplete(whole: str, cut: str) -> None:
    assert reduce(*CUT[cut], exit_code=0)["verdict"]["outcome"] == "incomplete"
    assert reduce(*WHOLE[whole], *CUT[cut], exit_code=0)["verdict"]["outcome"] == "incomplete"


@pytest.mark.parametrize("last", WHOLE)
@pytest.mark.parametrize("before", [*WHOLE.values(), *CUT.values(), *FAILED.values()])
def test_a_file_with_runs_of_several_eras_ends_as_its_last_run_says(before: list[dict[str, Any]], last: str) -> None:
    if not (last == "typescript" and before is CUT["typescript"]):  # nothing parts these two
        assert reduce(*before, *WHOLE[last], exit_code=0)["verdict"]["outcome"] == "completed"
    assert reduce(*before, *FAILED[last], exit_code=0)["verdict"]["outcome"] == "failed"


def test_a_thread_that_got_no_turn_is_judged_by_how_the_process_ended() -> None:
    for before in ([], WHOLE["exec"]):
        run = reduce(*before, STARTED[0], exit_code=-2)
        assert run["verdict"]["outcome"] == "cancelled"


@pytest.mark.parametrize("era", ["exec", "session", "events"])
def test_each_run_of_a_file_begins_one_turn(era: str) -> None:
    events = headrace.events(lines(*WHOLE[era], *WHOLE[era]), state=True)
    updates = [event["update"] for event in events]
    turns = [update["phase"] for update in updates if update.get("state") == "turn"]
    assert turns.count("start") == 2
