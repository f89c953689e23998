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


@pytest.mark.parametrize(
    "message",
    [
        "Your workspace is out of credits. Add credits to continue.",
        "You hit your spend cap set by the owner of your workspace. Ask an owner to increase your spend cap.",
        "Error running remote compact task: You've hit your usage limit. Try again later.",
        "Error running remote compact task: Codex ran out of room in the model's context window. Start a new thread.",
    ],
)
def test_a_cap_of_a_workspace_or_of_a_compaction_is_a_limit(message: str) -> None:
    assert reduce(*STARTED, {"type": "turn.failed", "error": {"message": message}})["verdict"]["outcome"] == "limit"


def test_a_patch_has_all_of_its_changes_though_it_was_told_while_it_was_written() -> None:
    def patch(kind: str, status: str, *paths: str) -> dict[str, Any]:
        changes = [{"path": path, "kind": "add", "diff": "x\n"} for path in paths]
        return {"type": kind, "item": {"id": "item_0", "type": "file_change", "changes": changes, "status": status}}

    run = reduce(
        *STARTED,
        patch("item.updated", "in_progress", "/a"),
        patch("item.updated", "in_progress", "/a", "/b"),
        patch("item.completed", "completed", "/a", "/b"),
        DONE,
    )
    [call] = run["tool_calls"]
    assert [change["path"] for change in call["input"]["changes"]] == ["/a", "/b"]
    assert (call["ok"], call["result"]) == (True, None)


THREAD = "019c0000-0000-7000-8000-000000000001"


def logged(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": "2026-01-01T00:00:00.000Z", "type": kind, "payload": payload}


def event(kind: str, **facts: Any) -> dict[str, Any]:
    return logged("event_msg", type=kind, **facts)


def message(role: str, text: str) -> dict[str, Any]:
    part = "output_text" if role == "assistant" else "input_text"
    return logged("response_item", type="message", role=role, content=[{"type": part, "text": text}])


OPEN = [logged("session_meta", id=THREAD, cli_version="0.155.0"), event("task_started", turn_id="t-1")]
SAID = [message("assistant", "Hi."), event("agent_message", message="Hi.")]
COMPLETE = event("task_complete", turn_id="t-1", last_agent_message="Hi.")


def tokens(number: int) -> dict[str, int]:
    return {"input_tokens": number, "cached_input_tokens": 0, "output_tokens": number // 10, "total_tokens": number}


def metered(response: str, sum_so_far: int, used: int = 100) -> dict[str, Any]:
    total = tokens(sum_so_far)
    return logged("token_usage_record", response_id=response, usage=tokens(used), thread_token_usage=total)


def counted(sum_so_far: int, last: int = 100) -> dict[str, Any]:
    return event("token_count", info={"total_token_usage": tokens(sum_so_far), "last_token_usage": tokens(last)})


def test_a_model_call_with_a_usage_record_is_counted_once_after_a_compaction_too() -> None:
    # the token counts leave the compaction out, so their sums lag behind for the rest of the thread
    first, compaction = metered("r-1", 100), [metered("r-3", 300), logged("compacted", message="")]
    before = [first, counted(100), first, counted(100), metered("r-2", 200), counted(200), *compaction]
    resumed = [event("task_started", turn_id="t-2"), metered("r-4", 400), counted(200), metered("r-5", 500)]
    run = reduce(*OPEN, *before, counted(200, 0), counted(200, 0), COMPLETE, *resumed, counted(300), *SAID, COMPLETE)
    usage = run["usage"]
    assert (usage["calls"]["count"], usage["calls"]["prompt_tokens"]) == (5, 500)
    assert usage["run"]["prompt_tokens"] == 500


def test_the_key_of_a_model_call_can_be_encoded_like_any_text() -> None:
    stream = lines(*OPEN, metered("r-\ud83d", 100), *SAID, COMPLETE)
    for engine in ENGINES.values():
        parser = engine(kinds=())
        parser.feed(stream)
        parser.close()
        assert [row["key"] for row in parser.ledger()] == ["/r-\ufffd"]


def test_a_thread_that_goes_on_in_a_version_with_usage_records_keeps_what_it_used_before() -> None:
    run = reduce(*OPEN, counted(100), counted(100), metered("r-2", 200), counted(200), *SAID, COMPLETE)
    assert (run["usage"]["calls"]["count"], run["usage"]["calls"]["prompt_tokens"]) == (2, 200)


def test_a_context_that_is_full_is_no_model_call_and_takes_nothing_back() -> None:
    full = {**tokens(0), "total_tokens": 272000}
    mark = event("token_count", info={"total_token_usage": full, "last_token_usage": full})
    error = event("error", message="Codex ran out of room in the model's context window.")
    usage = reduce(*OPEN, counted(100), mark, error)["usage"]
    assert (usage["calls"]["count"], usage["run"]["prompt_tokens"]) == (1, 100)


@pytest.mark.parametrize("info", ["thread_rollback_failed", {"active_turn_not_steerable": {"turn_kind": "review"}}])
def test_a_request_that_went_wrong_beside_the_turn_does_not_fail_it(info: Any) -> None:
    error = event("error", message="num_turns must be >= 1", codex_error_info=info)
    for records in ([error, *SAID, COMPLETE], [*SAID, COMPLETE, error]):
        run = reduce(*OPEN, *records)
        assert (run["verdict"]["outcome"], run["errors"]) == ("completed", [])


def test_an_image_that_the_provider_made_is_a_call_that_went_well() -> None:
    made = {"status": "generating", "revised_prompt": "A cat", "result": "Zm9v"}
    item = logged("response_item", type="image_generation_call", id="ig-1", **made)
    end = event("image_generation_end", call_id="ig-1", **made)
    for records in ([item, end], [end, item], [item], [end]):
        run = reduce(*OPEN, *records, *SAID, COMPLETE)
        assert [(call["name"], call["ok"]) for call in run["tool_calls"]] == [("image_generation", True)]
        assert run["report"]["unknown"] == {}


def test_items_of_extensions_are_calls_and_keep_what_the_model_asked_for() -> None:
    def ended(item_id: str, kind: str, **facts: Any) -> dict[str, Any]:
        return event("item_completed", item={"type": "Extension", "id": item_id, "kind": kind, **facts})

    asked = '{"search_query":[{"q":"rust"}]}'
    records = [
        logged("response_item", type="function_call", namespace="web", name="run", arguments=asked, call_id="c-1"),
        ended("c-1", "web.search", query="rust", action={"type": "search", "query": "rust"}, results=[]),
        ended("e-1", "web.search", query="cargo", action={"type": "search", "query": "cargo"}, results=[]),
        ended("e-2", "clock.sleep", durationMs=1500),
        ended("e-3", "image_gen.generation", status="completed", result="", failure=None),
        ended("e-4", "image_gen.generation", status="completed", result="", failure={"message": "refused"}),
    ]
    run = reduce(*OPEN, *records, *SAID, COMPLETE)
    assert [(call["name"], call["input"], call["ok"]) for call in run["tool_calls"]] == [
        ("run", {"search_query": [{"q": "rust"}]}, True),
        ("web.search", {"query": "cargo"}, True),
        ("clock.sleep", None, True),
        ("image_gen.generation", None, True),
        ("image_gen.generation", None, False),
    ]
    assert run["report"]["unknown"] == {}


@pytest.mark.parametrize(("space", "ok"), [("clock", None), ("codex_app", None), ("mcp__tiny", False)])
def test_plain_text_is_a_failure_of_mcp_servers_only(space: str, ok: bool | None) -> None:
    call = logged("response_item", type="function_call", namespace=space, name="sleep", arguments="{}", call_id="c-1")
    output = logged("response_item", type="function_call_output", call_id="c-1", output="Sleep completed.")
    run = reduce(*OPEN, call, output, *SAID, COMPLETE)
    assert [(call["ok"], call["result"]) for call in run["tool_calls"]] == [(ok, "Sleep completed.")]


@pytest.mark.parametrize(
    ("output", "ok"),
    [
        ('Wall time: 0.0025 seconds\nOutput:\n[{"type":"text","text":"aaa…900 tokens truncated…"},{"ty', True),
        ("Wall time: 0.0025 seconds\nOutput:", True),
        ('[{"type":"text","text":"aaa…900 tokens truncated…"},{"ty', True),
        ("Wall time: 0.0025 seconds\nOutput:\nWarning: truncated output (original token count: 9)\n\n[{", True),
        ("user rejected MCP tool call", False),
    ],
)
def test_an_answer_of_an_mcp_server_that_was_cut_or_is_empty_is_no_failure(output: str, ok: bool) -> None:
    call = logged("response_item", type="function_call", namespace="mcp__tiny", name="say", arguments="{}", call_id="c")
    answer = logged("response_item", type="function_call_output", call_id="c", output=output)
    assert [call["ok"] for call in reduce(*OPEN, call, answer, *SAID, COMPLETE)["tool_calls"]] == [ok]


@pytest.mark.parametrize(
    ("text", "ok"),
    [
        ("tool call error: tool call failed for `tiny/say`\n\nCaused by:\n    Mcp error: -32000: no", False),
        ("user rejected MCP tool call", False),
        ("tool call error: it says so itself", True),
    ],
)
def test_what_the_harness_says_in_the_place_of_an_mcp_server_is_a_failure(text: str, ok: bool) -> None:
    # 0.125 writes its own errors in the shape of an answer, and no event of the end
    call = logged(
        "response_item", type="function_call", namespace="mcp__tiny__", name="say", arguments="{}", call_id="c-1"
    )
    told = "Wall time: 0.0008 seconds\nOutput:\n"
    for output in (
        told + json.dumps([{"type": "text", "text": text}]),
        [{"type": "input_text", "text": told}, {"type": "input_text", "text": text}],
    ):
        answer = logged("response_item", type="function_call_output", call_id="c-1", output=output)
        run = reduce(*OPEN, call, answer, *SAID, COMPLETE)
        assert [(call["title"], call["ok"], call["result"]) for call in run["tool_calls"]] == [("tiny: say", ok, text)]


@pytest.mark.parametrize(
    ("name", "output", "ok"),
    [
        ("update_plan", "Plan updated", True),
        ("update_plan", "failed to parse function arguments: missing field `plan`", False),
        ("view_image", "attached local image path", True),
        ("view_image", "unable to locate image at `/p/a.png`: No such file or directory", False),
        ("no_such_tool", "unsupported call: no_such_tool", False),
        ("update_goal", "aborted by user after 1.2s", False),
        ("list_mcp_resources", '{"resources":[]}', True),
        ("read_mcp_resource", "resources/read failed: unknown MCP server", False),
        ("request_user_input", '{"answers":{"mode":{"answers":["Blue"]}}}', True),
        ("request_user_input", "request_user_input is unavailable in Default mode", False),
        ("read_file", "Plan updated", None),
    ],
)
def test_the_harness_says_by_its_own_words_whether_its_tool_did_what_was_asked(
    name: str, output: str, ok: bool | None
) -> None:
    call = logged("response_item", type="function_call", name=name, arguments="{}", call_id="c-1")
    answer = logged("response_item", type="function_call_output", call_id="c-1", output=output)
    run = reduce(*OPEN, call, answer, *SAID, COMPLETE)
    assert [(call["ok"], call["result"]) for call in run["tool_calls"]] == [(ok, output)]


@pytest.mark.parametrize(
    ("name", "goes_on", "waits", "argument", "over", "ok", "code"),
    [
        ("exec", "Script running with cell ID 7", "wait", {"cell_id": "7"}, "Script completed", True, None),
        ("exec", "Script running with cell ID 7", "wait", {"cell_id": "7"}, "Script failed", False, None),
        ("exec", "Script running with cell ID 7", "wait", {"cell_id": "8"}, "Script completed", None, None),
        (
            "exec_command",
            "Process running with session ID 5",
            "write_stdin",
            {"session_id": 5, "chars": ""},
            "Process exited with code 3",
            False,
            3,
        ),
    ],
)
def test_what_a_call_left_running_ends_where_another_call_sees_its_end(
    name: str, goes_on: str, waits: str, argument: dict[str, Any], over: str, ok: bool | None, code: int | None
) -> None:
    def call(call_id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        facts = {"name": name, "arguments": json.dumps(arguments), "call_id": call_id}
        return logged("response_item", type="function_call", **facts)

    def output(call_id: str, line: str) -> dict[str, Any]:
        text = f"{line}\nWall time 1.0 seconds\nOutput:\n"
        return logged("response_item", type="function_call_output", call_id=call_id, output=text)

    begun = [call("c-1", name, {"cmd": "make"}), output("c-1", goes_on)]
    asked = [call("c-2", waits, argument), output("c-2", goes_on), call("c-3", waits, argument), output("c-3", over)]
    run = reduce(*OPEN, *begun, *SAID, COMPLETE)
    assert [(call["ok"], call["status"]) for call in run["tool_calls"]] == [(None, "in_progress")]
    run = reduce(*OPEN, *begun, *asked, *SAID, COMPLETE)
    assert (run["tool_calls"][0]["ok"], run["tool_calls"][0]["exit_code"]) == (ok, code)
    assert run["tool_calls"][2]["ok"] is not None


def test_a_search_that_an_event_and_an_item_without_an_id_tell_is_one() -> None:
    # 0.122 to 0.129 write both; 0.98 writes the item alone
    looked: dict[str, Any] = {"type": "search", "query": "rates", "queries": ["rates", "limits"]}
    opened: dict[str, Any] = {"type": "open_page", "url": "https://example.com"}

    def item(action: dict[str, Any]) -> dict[str, Any]:
        return logged("response_item", type="web_search_call", status="completed", action=action)

    def told(number: int, query: str, action: dict[str, Any]) -> dict[str, Any]:
        return event("web_search_end", call_id=f"ws_{number}", query=query, action=action)

    pairs = [told(1, "rates", looked), item(looked), told(2, "https://example.com", opened), item(opened)]
    run = reduce(*OPEN, *pairs, told(3, "rates", looked), item(looked), *SAID, COMPLETE)
    assert [call["id"] for call in run["tool_calls"]] == ["ws_1", "ws_2", "ws_3"]
    run = reduce(*OPEN, item(looked), item(looked), item(opened), *SAID, COMPLETE)
    assert len(run["tool_calls"]) == 3


def test_a_call_whose_end_says_nothing_has_the_result_that_the_model_saw() -> None:
    call = logged("response_item", type="function_call", name="exec_command", arguments="{}", call_id="c-1")
    item = {"type": "CommandExecution", "id": "c-1", "command": ["rm"], "status": "declined"}
    output = logged("response_item", type="function_call_output", call_id="c-1", output="rejected by user")
    silent, told = event("item_completed", item=item), event("item_completed", item={**item, "stderr": "no"})
    for records, result in (
        ([silent, output], "rejected by user"),
        ([output, silent], "rejected by user"),
        ([told, output], "no"),
    ):
        run = reduce(*OPEN, call, *records, *SAID, COMPLETE)
        assert [(call["ok"], call["result"]) for call in run["tool_calls"]] == [(False, result)]


@pytest.mark.parametrize("name", ["exec", "wait"])
@pytest.mark.parametrize(
    ("line", "ok", "status"),
    [
        ("Script completed", True, "completed"),
        ("Script failed", False, "failed"),
        ("Script running with cell ID 7", None, "in_progress"),
    ],
)
def test_a_code_cell_says_how_it_ended_with_and_without_output(
    name: str, line: str, ok: bool | None, status: str
) -> None:
    head = f"{line}\nWall time 0.1 seconds\nOutput:\n"
    call = logged("response_item", type="custom_tool_call", name=name, input="text(1)", call_id="c-1")
    parts = [{"type": "input_text", "text": head}, {"type": "input_text", "text": "1"}]
    for output, text in ((head, None), (f"{head}1", "1"), (parts, "1")):
        answer = logged("response_item", type="custom_tool_call_output", call_id="c-1", output=output)
        run = reduce(*OPEN, call, answer, *SAID, COMPLETE)
        told = [(call["ok"], call["status"], call["result"]) for call in run["tool_calls"]]
        assert told == [(ok, status, text)]


def test_a_tool_of_the_client_says_whether_it_failed() -> None:
    call = logged("response_item", type="function_call", name="lookup", arguments="{}", call_id="c-1")
    answer = {"call_id": "c-1", "tool": "lookup", "content_items": [], "success": False, "error": "no such ticket"}
    output = logged("response_item", type="function_call_output", call_id="c-1", output="failed")
    run = reduce(*OPEN, call, event("dynamic_tool_call_response", **answer), output, *SAID, COMPLETE)
    assert [(call["ok"], call["result"]) for call in run["tool_calls"]] == [(False, "no such ticket")]


@pytest.mark.parametrize(
    "text",
    [
        '<hook_prompt hook_run_id="r-1">Go on.</hook_prompt>',
        '<codex_internal_context source="goal">Go on.</codex_internal_context>',
        "<goal_context>\nGo on.\n</goal_context>",
        "Warning: apply_patch was requested via shell. Use the apply_patch tool instead of exec_command.",
    ],
)
def test_what_the_harness_tells_the_model_as_a_user_is_no_prompt(text: str) -> None:
    run = reduce(OPEN[0], message("user", "Hi"), *SAID, message("user", text), *SAID[:1])
    assert [part["text"] for part in run["messages"] if part["role"] == "user"] == ["Hi"]


def test_a_plan_is_the_answer_of_a_turn_that_says_nothing_else() -> None:
    def told(method: str, **params: Any) -> dict[str, Any]:
        return {"method": method, "params": {"threadId": "t-1", **params}}

    started = told("turn/started", turn={"id": "u-1", "status": "inProgress"})
    ended = told("turn/completed", turn={"id": "u-1", "status": "completed"})
    plan = told("item/completed", item={"type": "plan", "id": "p-1", "text": "# Plan"})
    text = told("item/completed", item={"type": "agentMessage", "id": "m-1", "text": "See the plan."})
    assert reduce(started, plan, ended)["final_text"] == "# Plan"
    assert reduce(started, plan, text, ended)["texts"] == ["See the plan."]


CHILD, OWN, OLD = (f"01a0000{n}-0000-7000-8000-000000000000" for n in (5, 6, 1))


def turn(turn_id: str, prompt: str, answer: str, sum_so_far: int) -> list[dict[str, Any]]:
    return [
        event("task_started", turn_id=turn_id),
        logged("turn_context", turn_id=turn_id, model="m-1"),
        event("user_message", message=prompt),
        event("agent_message", message=answer),
        counted(sum_so_far),
        event("task_complete", turn_id=turn_id),
    ]


@pytest.mark.parametrize("metas", [["parent"], []])
def test_history_that_a_fork_copied_is_not_its_own_however_long_that_took(metas: list[str]) -> None:
    records = [logged("session_meta", id=CHILD, forked_from_id="parent")]
    records += [logged("session_meta", id=meta) for meta in metas]
    records += [*turn(OLD, "P1", "A1", 100), *turn(OLD, "P2", "A2", 200), *turn(OWN, "Mine", "Own", 300)]
    for second, record in enumerate(records):
        record["timestamp"] = f"2026-09-04T10:00:{second:02}.000Z"
    run = reduce(*records)
    assert (run["texts"], run["usage"]["calls"]["count"], run["usage"]["calls"]["prompt_tokens"]) == (["Own"], 1, 100)
    assert reduce(*records[:-6])["texts"] == []


def test_what_the_parent_used_before_a_forks_first_turn_is_no_call_of_the_fork() -> None:
    told = counted(500, 70)
    run = reduce(logged("session_meta", id=CHILD, forked_from_id="parent"), told, *turn(OWN, "Mine", "Own", 600))
    assert (run["usage"]["calls"]["count"], run["usage"]["calls"]["prompt_tokens"]) == (1, 100)


def test_a_sum_that_is_set_is_no_model_call() -> None:
    run = reduce(*OPEN, counted(500, 0), *SAID, counted(600), counted(0, 0), counted(700), COMPLETE)
    assert (run["usage"]["calls"]["count"], run["usage"]["calls"]["prompt_tokens"]) == (2, 200)


def test_what_a_resumed_thread_had_used_is_told_to_its_client_and_is_no_call() -> None:
    def used(total: int, last: int) -> dict[str, Any]:
        usage = {"total": {"inputTokens": total}, "last": {"inputTokens": last}}
        return {"method": "thread/tokenUsage/updated", "params": {"threadId": "t-1", "tokenUsage": usage}}

    def turned(what: str, **facts: Any) -> dict[str, Any]:
        return {"method": f"turn/{what}", "params": {"threadId": "t-1", "turn": {"id": "u-2", **facts}}}

    answer = {"id": "i-1", "type": "agentMessage", "text": "Yes."}
    said = {"method": "item/completed", "params": {"threadId": "t-1", "item": answer}}
    run = reduce(used(900, 90), turned("started"), said, used(1000, 100), turned("completed", status="completed"))
    usage = run["usage"]
    assert (usage["calls"]["count"], usage["calls"]["prompt_tokens"], usage["run"]["prompt_tokens"]) == (1, 100, 1000)


def test_turns_that_were_rolled_back_are_no_part_of_the_conversation() -> None:
    def plain(prompt: str, answer: str) -> list[dict[str, Any]]:
        return [message("user", prompt), event("user_message", message=prompt), message("assistant", answer)]

    back = event("thread_rolled_back", num_turns=2)
    steered = [*turn("t-2", "P2", "A2", 200)[:4], event("user_message", message="No, so."), counted(200)]
    told = [*turn("t-1", "P1", "A1", 100), *steered, *turn("t-3", "P3", "A3", 300), back]
    old = [*plain("P1", "A1"), *plain("P2", "A2"), *plain("P3", "A3"), back]
    for records, calls in ((told, 3), (old, 0)):
        run = reduce(logged("session_meta", id=THREAD), *records, *turn("t-4", "P2, again.", "A4", 400))
        said = [(message["role"], message["text"]) for message in run["messages"]]
        assert said == [("user", "P1"), ("assistant", "A1"), ("user", "P2, again."), ("assistant", "A4")]
        assert (run["texts"], run["usage"]["calls"]["count"]) == (["A1", "A4"], calls + 1)
    assert reduce(logged("session_meta", id=THREAD), *told)["final_text"] == "A1"
