"""What a user relies on when the harness is Kimi: kimi-cli and kimi-code, their streams, wires and session files."""

from __future__ import annotations

import json
from typing import Any

import pytest

import headrace

Record = dict[str, Any] | str


def lines(*records: Record) -> bytes:
    texts = (record if isinstance(record, str) else json.dumps(record) for record in records)
    return "".join(text + "\n" for text in texts).encode()


def call(call_id: str, name: str = "Shell", arguments: str = '{"command": "ls"}') -> dict[str, Any]:
    return {"type": "function", "id": call_id, "function": {"name": name, "arguments": arguments}}


def assistant(content: Any, *calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **({"tool_calls": list(calls)} if calls else {})}


def tool(call_id: str, content: Any) -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": call_id}


VERSION = {"role": "meta", "type": "system.version", "version": "2.1.0"}
HINT = {"role": "meta", "type": "session.resume_hint", "session_id": "s-1", "command": "kimi -r s-1"}

# ---------------------------------------------------------------- the stream


def test_ids_that_come_again_in_later_messages_name_new_calls() -> None:
    run = headrace.reduce(
        lines(
            assistant([], call("Shell:0", arguments='{"command": "ls"}')),
            tool("Shell:0", "a"),
            assistant([], call("Shell:0", arguments='{"command": "pwd"}')),
            tool("Shell:0", "<system>ERROR: no</system>"),
            assistant("Done."),
        )
    )
    assert [(c["input"], c["ok"], c["result"]) for c in run.tool_calls] == [
        ({"command": "ls"}, True, "a"),
        ({"command": "pwd"}, False, "<system>ERROR: no</system>"),
    ]
    assert run.verdict.outcome == "completed"


def test_an_id_that_a_message_uses_twice_names_two_calls() -> None:
    calls = call("c", arguments='{"command": "a"}'), call("c", arguments='{"command": "b"}')
    run = headrace.reduce(lines(assistant([], *calls), tool("c", "A"), tool("c", "<system>ERROR: B</system>")))
    assert [(c["input"]["command"], c["ok"]) for c in run.tool_calls] == [("a", True), ("b", False)]


def test_a_command_that_failed_is_told_without_the_word_in_old_versions() -> None:
    told = {
        "<system>Command failed with exit code: 3.</system>": False,
        "<system>Command killed by timeout (60s)</system>": False,
        "<system>Command executed successfully.</system>": True,
        "Command failed with exit code: 3.": True,  # says the command
    }
    calls = [call(f"c{number}") for number in range(len(told))]
    results = [tool(f"c{number}", words) for number, words in enumerate(told)]
    run = headrace.reduce(lines(assistant("Go.", *calls), *results, assistant("Done.")))
    assert [c["ok"] for c in run.tool_calls] == list(told.values())


def test_calls_without_ids_have_their_results_in_order() -> None:
    nameless = [{key: value for key, value in call("").items() if key != "id"}, call("")]
    results = {"role": "tool", "content": "A"}, tool("", "<system>ERROR: B</system>")
    run = headrace.reduce(lines(assistant("Go.", *nameless, call("c")), tool("c", "C"), *results, assistant("Done.")))
    assert [(c["result"], c["ok"]) for c in run.tool_calls] == [
        ("A", True),
        ("<system>ERROR: B</system>", False),
        ("C", True),
    ]
    assert len({c["id"] for c in run.tool_calls}) == 3


@pytest.mark.parametrize("arguments", ['{"command": "echo 1"', '{"timeout": NaN}', "[1]"])
def test_arguments_that_are_no_object_stay_as_printed(arguments: str) -> None:
    stream = lines(assistant([], call("c", arguments=arguments)))
    events = list(headrace.events(stream))
    assert "rawInput" not in events[0]["update"]
    assert events[0]["extra"] == {"arguments": arguments}
    assert headrace.reduce(stream).tool_calls[0]["input"] is None


def test_one_edit_or_a_list_of_edits_gives_diffs() -> None:
    edit = {"old": "a", "new": "b"}
    for edits in (edit, [edit, edit]):
        arguments = json.dumps({"path": "f.py", "edit": edits})
        (event,) = headrace.events(lines(assistant([], call("c", "StrReplaceFile", arguments))))
        diff = {"type": "diff", "path": "f.py", "oldText": "a", "newText": "b"}
        assert event["update"]["content"] == [diff] * (len(edits) if isinstance(edits, list) else 1)


def test_a_failure_is_told_in_plain_text_after_the_last_record() -> None:
    stream = lines(assistant("One moment."), "Error code: 400 - {'error': {'message': 'too long for thi", "s model'}}")
    run = headrace.reduce(stream)
    assert run.verdict.outcome == "failed"
    assert run.errors[0]["message"] == "Error code: 400 - {'error': {'message': 'too long for thi\ns model'}}"
    assert run.report.malformed == 2


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("Interrupted by user", "cancelled"),
        ("Max number of steps reached: 3", "limit"),
        ("The API returned an empty response.", "failed"),
        ("peer closed connection", "failed"),
    ],
)
def test_the_text_says_how_it_ended(text: str, outcome: str) -> None:
    run = headrace.reduce(lines(assistant("Half an ans"), text), exit_code=1)
    assert (run.verdict.outcome, run.errors[0]["message"]) == (outcome, text)


def test_the_text_says_how_it_ended_behind_lines_of_stderr_too() -> None:
    run = headrace.reduce(lines(assistant("One moment."), "a warning", "Max number of steps reached: 3"), exit_code=1)
    assert run.verdict.outcome == "limit"


def test_a_stream_of_nothing_but_the_failure_is_still_kimi() -> None:
    run = headrace.reduce(lines("Interrupted by user"), exit_code=1)
    assert (run.dialect, run.verdict.outcome) == ("kimi", "cancelled")
    assert headrace.reduce(lines("some other text"), exit_code=1).dialect is None


def test_what_is_no_failure_is_no_error() -> None:
    resume = "To resume this session: kimi -r s-1"
    cut = '{"role":"assistant","content":"hal'
    for rest in (resume, cut):
        run = headrace.reduce(lines(assistant("Done."), rest), exit_code=0)
        assert (run.verdict.outcome, run.errors) == ("completed", [])


def test_an_answer_without_an_exit_code_is_taken_for_the_end_and_a_tool_result_is_not() -> None:
    assert headrace.reduce(lines(assistant("Done."))).verdict.outcome == "completed"
    cut = headrace.reduce(lines(assistant([], call("c")), tool("c", "x")))
    assert cut.verdict.outcome == "incomplete"
    assert headrace.reduce(lines(assistant("Done.")), exit_code=75).verdict.outcome == "failed"


def test_kimi_code_ends_with_its_hint_and_says_of_no_tool_whether_it_failed() -> None:
    told = lines(VERSION, assistant("Go.", call("c", "Bash")), tool("c", "Command failed with exit code: 3."))
    run = headrace.reduce(told + lines(assistant("Done."), HINT))
    assert (run.version, run.session_id, run.verdict.outcome) == ("2.1.0", "s-1", "completed")
    assert run.tool_calls[0]["ok"] is None
    assert headrace.reduce(told + lines(assistant("Done."))).verdict.outcome == "incomplete"
    failed = headrace.reduce(told, exit_code=1, stderr=b"error: failed to run prompt: provider.api_error: 500\n")
    assert failed.verdict.outcome == "failed"
    assert failed.errors[0]["message"].endswith("provider.api_error: 500")


def test_a_run_that_was_cut_behind_a_good_one_is_incomplete() -> None:
    run = headrace.reduce(lines(VERSION, assistant("Done."), HINT, VERSION, assistant("Half")))
    assert (run.texts, run.verdict.outcome) == (["Done.", "Half"], "incomplete")


@pytest.mark.parametrize("before", [[HINT], [VERSION, assistant("Done."), HINT], [VERSION, assistant("Done.")]])
def test_a_run_that_only_began_is_not_completed_by_the_answer_of_the_one_before(before: list[Any]) -> None:
    assert headrace.reduce(lines(*before, VERSION), exit_code=0).verdict.outcome == "incomplete"
    run = headrace.reduce(lines(*before, VERSION, assistant("Again.")), exit_code=0)
    assert run.verdict.outcome == "completed"


@pytest.mark.parametrize("head", ["UserPromptSubmit hook", "Stop hook blocked"])
def test_what_kimi_code_prints_of_a_hook_is_no_answer(head: str) -> None:
    run = headrace.reduce(lines(VERSION, assistant(f"{head}\n\nMind the tests."), assistant("Done."), HINT))
    assert run.texts == ["Done."]


def test_kimi_code_is_known_without_its_first_line() -> None:
    """Its messages have no content where nothing was said; kimi-cli's always have one."""
    run = headrace.reduce(lines({"role": "assistant", "tool_calls": [call("c")]}, tool("c", "x"), assistant("Done.")))
    assert run.tool_calls[0]["ok"] is None
    assert run.verdict.outcome == "incomplete"  # its hint is missing


@pytest.mark.parametrize(
    ("status", "reason", "outcome"),
    [
        ("complete", None, "completed"),
        ("blocked", "Blocked: token budget 1000", "limit"),
        ("blocked", "needs a key", "incomplete"),
        ("paused", None, "incomplete"),
    ],
)
def test_a_goal_ends_as_its_summary_says(status: str, reason: str | None, outcome: str) -> None:
    summary = {"type": "goal.summary", "goalId": "g", "status": status, "reason": reason}
    assert headrace.reduce(lines(VERSION, assistant("Said."), summary, HINT)).verdict.outcome == outcome


def test_a_chat_transcript_is_not_kimi() -> None:
    chat = lines({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"})
    assert headrace.detect(chat).dialect is None


# ---------------------------------------------------------------- the wire


def stored(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": 1795975618.25, "message": {"type": kind, "payload": payload}}


def live(kind: str, **payload: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "event", "params": {"type": kind, "payload": payload}}


def answer(**result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": "2", "result": result}


METADATA = {"type": "metadata", "protocol_version": "1.10"}
START = [METADATA, stored("TurnBegin", user_input="Do it."), stored("StepBegin", n=1)]
USAGE = {"input_other": 10, "output": 2, "input_cache_read": 30, "input_cache_creation": 4}
STATUS = stored("StatusUpdate", token_usage=USAGE, message_id="m-1")


def on_wire(call_id: str, arguments: str = "{}", name: str = "Shell") -> dict[str, Any]:
    return {"type": "function", "id": call_id, "function": {"name": name, "arguments": arguments}}


def returned(call_id: str, output: Any = "", message: str = "", is_error: bool = False, **more: Any) -> dict[str, Any]:
    value = {"is_error": is_error, "output": output, "message": message, **more}
    return {"tool_call_id": call_id, "return_value": value}


def test_the_wire_has_usage_and_is_error() -> None:
    run = headrace.reduce(
        lines(
            *START,
            stored("ToolCall", **on_wire("c")),
            STATUS,
            stored("ToolResult", **returned("c", message="It broke.", is_error=True)),
            stored("StepBegin", n=2),
            stored("ContentPart", type="text", text="Done."),
            STATUS,
            stored("TurnEnd"),
        )
    )
    assert (run.tool_calls[0]["ok"], run.tool_calls[0]["result"]) == (False, "It broke.")
    assert run.tool_calls[0]["ended_at"] == "2026-11-29T18:06:58.250Z"
    assert run.usage["calls"]["prompt_tokens"] == 88  # what was read from and written to the cache is part of it
    assert run.usage["calls"]["cached_tokens"] == 60
    assert run.verdict.outcome == "completed"


def test_live_text_and_arguments_come_in_parts() -> None:
    stream = lines(
        {"jsonrpc": "2.0", "id": "1", "result": {"protocol_version": "1.10", "server": {"version": "1.51.0"}}},
        live("TurnBegin", user_input="Do it."),
        live("StepBegin", n=1),
        live("ContentPart", type="text", text="Let me "),
        live("ContentPart", type="text", text="look."),
        live("ToolCall", **on_wire("c", "")),
        live("ToolCallPart", arguments_part='{"command": '),
        live("ToolCallPart", arguments_part='"ls"}'),
        live("ToolResult", **returned("c", "a\n")),
        live("TurnEnd"),
        answer(status="finished"),
    )
    run = headrace.reduce(stream)
    assert (run.version, run.texts, run.verdict.outcome) == ("1.51.0", ["Let me look."], "completed")
    assert (run.tool_calls[0]["input"], run.tool_calls[0]["result"]) == ({"command": "ls"}, "a\n")
    calls = [e for e in headrace.events(stream) if e["update"]["sessionUpdate"] == "tool_call"]
    assert [e["update"]["rawInput"] for e in calls] == [{"command": "ls"}]


@pytest.mark.parametrize(
    ("last", "outcome"),
    [
        (answer(status="cancelled"), "cancelled"),
        (answer(status="max_steps_reached", steps=3), "limit"),
        ({"jsonrpc": "2.0", "id": "2", "error": {"code": -32003, "message": "Error code: 500"}}, "failed"),
        ({"jsonrpc": "2.0", "id": "3", "error": {"code": -32000, "message": "in progress"}}, "incomplete"),
        (answer(status="finished", events=4, requests=0), "incomplete"),  # of a replay
    ],
)
def test_the_answer_to_the_prompt_says_how_it_ended(last: dict[str, Any], outcome: str) -> None:
    turn = [live("TurnBegin", user_input="Do it."), live("StepBegin", n=1)]
    assert headrace.reduce(lines(*turn, last)).verdict.outcome == outcome


def test_a_marked_retry_takes_back_what_the_step_said() -> None:
    run = headrace.reduce(
        lines(
            *START,
            stored("ContentPart", type="text", text="Half an ans"),
            stored("StepRetry", n=1, next_attempt=2, max_attempts=3, wait_s=0.5, error_type="APIStatusError"),
            stored("ContentPart", type="text", text="The answer."),
            STATUS,
            stored("TurnEnd"),
        )
    )
    assert (run.texts, run.retries, run.errors) == (["The answer."], 1, [])


def test_a_turn_that_ends_at_a_rejected_call_is_denied() -> None:
    run = headrace.reduce(
        lines(
            *START,
            stored("ToolCall", **on_wire("c")),
            stored("ApprovalRequest", id="a", tool_call_id="c", sender="Shell", description="Run it"),
            stored("ApprovalResponse", request_id="a", response="reject"),
            STATUS,
            stored("ToolResult", **returned("c", message="Rejected.", is_error=True)),
            stored("TurnEnd"),
        )
    )
    assert run.verdict.outcome == "denied"


def test_sub_agents_that_number_calls_alike_are_kept_apart() -> None:
    def sub(parent: str, kind: str, **payload: Any) -> dict[str, Any]:
        event = {"type": kind, "payload": payload}
        return stored("SubagentEvent", parent_tool_call_id=parent, agent_id="a", event=event)

    run = headrace.reduce(
        lines(
            *START,
            stored("ToolCall", **on_wire("Agent:0", name="Agent")),
            stored("ToolCall", **on_wire("Agent:1", name="Agent")),
            sub("Agent:0", "ToolCall", **on_wire("Shell:0")),
            sub("Agent:1", "ToolCall", **on_wire("Shell:0")),
            sub("Agent:0", "ContentPart", type="text", text="Aside."),
            sub("Agent:1", "StatusUpdate", token_usage=USAGE),
            sub("Agent:0", "ToolResult", **returned("Shell:0", "one")),
            sub("Agent:1", "ToolResult", **returned("Shell:0", "two", is_error=True)),
        )
    )
    told = [(c["id"], c["parent"], c["result"], c["ok"]) for c in run.tool_calls[2:]]
    assert told == [("Shell:0", "Agent:0", "one", True), ("Shell:0", "Agent:1", "two", False)]
    assert run.texts == []
    assert [agent["texts"] for agent in run.subagents] == [["Aside."], []]


def test_a_displayed_diff_has_its_line() -> None:
    diff = {"type": "diff", "path": "/p/f", "old_text": "a", "new_text": "b", "new_start": 7, "is_summary": False}
    result = stored("ToolResult", **returned("c", display=[diff, {**diff, "is_summary": True}]))
    stream = lines(*START, stored("ToolCall", **on_wire("c")), result)
    update = list(headrace.events(stream))[-1]["update"]
    assert update["content"] == [{"type": "diff", "path": "/p/f", "oldText": "a", "newText": "b"}]
    assert update["locations"] == [{"path": "/p/f", "line": 7}]


# ---------------------------------------------------------------- kimi-code's files


def flat(kind: str, **facts: Any) -> dict[str, Any]:
    return {"type": kind, "agentId": "main", **facts, "time": 1795975891466}


def step(kind: str, **facts: Any) -> dict[str, Any]:
    return flat("context.append_loop_event", event={"type": kind, "turnId": "0", **facts})


COUNTS = {"inputOther": 10, "output": 2, "inputCacheRead": 30, "inputCacheCreation": 0}


def test_a_step_that_is_tried_again_is_taken_back_and_counted_once() -> None:
    stream = lines(
        {"type": "metadata", "protocol_version": "1.5", "created_at": 1},
        flat("turn.prompt", input=[], origin={"kind": "user"}),
        step("step.begin", uuid="u-1"),
        step("content.part", stepUuid="u-1", part={"type": "text", "text": "Half an ans"}),
        step("step.end", uuid="u-1", finishReason="error"),
        step("step.begin", uuid="u-2"),
        flat("usage.record", usage=COUNTS, usageScope="turn"),
        step("content.part", stepUuid="u-2", part={"type": "text", "text": "The answer."}),
        step("step.end", uuid="u-2", finishReason="end_turn", usage=COUNTS),
        flat("turn.ended", turnId=0, reason="completed"),
    )
    run = headrace.reduce(stream)
    assert (run.dialect, run.texts, run.retries) == ("kimi-wire", ["The answer."], 1)
    assert run.usage["calls"] == {
        "count": 1, "prompt_tokens": 40, "completion_tokens": 2, "cached_tokens": 30, "cost_usd": None
    }  # fmt: skip


@pytest.mark.parametrize("told", [True, False])
def test_a_turn_whose_answer_was_cut_by_the_cap_of_the_output_is_at_its_limit(told: bool) -> None:
    records = [
        flat("turn.prompt", input=[], origin={"kind": "user"}),
        step("step.begin", uuid="u-1"),
        step("content.part", stepUuid="u-1", part={"type": "text", "text": "Half an ans"}),
        step("step.end", uuid="u-1", finishReason="max_tokens", usage=COUNTS),
    ]
    run = headrace.reduce(lines(*records, *[flat("turn.ended", turnId=0, reason="completed")] * told))
    assert (run.verdict.outcome, run.verdict.reason) == ("limit", "max_tokens")


def test_the_usage_of_a_step_counts_once_whichever_record_of_it_comes_first() -> None:
    """Protocol 1.4 wrote the step's end before the record of its usage."""
    begin, end = step("step.begin"), step("step.end", usage=COUNTS, finishReason="tool_use")
    record = flat("usage.record", usage=COUNTS, usageScope="turn")
    for one, two in ((record, end), (end, record)):
        run = headrace.reduce(lines(flat("turn.prompt"), begin, one, two, begin, one, two))
        assert (run.usage.calls["count"], run.usage.calls["prompt_tokens"]) == (2, 80)
    run = headrace.reduce(lines(flat("turn.prompt"), begin, end, record, record))  # another call's, beside the loop
    assert run.usage.calls["count"] == 2


def test_compaction_is_a_call_beside_the_loop() -> None:
    run = headrace.reduce(
        lines(
            flat("turn.prompt", input=[], origin={"kind": "user"}),
            flat("full_compaction.begin", source="auto"),
            flat("usage.record", usage=COUNTS, usageScope="session"),
            flat("context.apply_compaction", contextSummary="Short.", compactedCount=3),
            flat("full_compaction.complete"),
            flat("turn.ended", turnId=0, reason="failed", error={"code": "loop.max_steps_exceeded", "message": "No."}),
        )
    )
    assert (run.compactions, run.usage["calls"]["count"]) == (1, 1)
    assert (run.verdict.outcome, run.errors[0]["message"]) == ("limit", "No.")


# ---------------------------------------------------------------- context.jsonl


def test_the_context_file_leaves_out_what_no_person_said() -> None:
    run = headrace.reduce(
        lines(
            {"role": "_system_prompt", "content": "You are."},
            {"role": "_checkpoint", "id": 0},
            {"role": "user", "content": "Do it."},
            {"role": "user", "content": [{"type": "text", "text": "<system-reminder>\nNow.\n</system-reminder>"}]},
            {"role": "_usage", "token_count": 1001},
            assistant("Done."),
        )
    )
    assert (run.dialect, run.verdict.outcome) == ("kimi-context", "completed")
    assert [message["text"] for message in run.messages if message["role"] == "user"] == ["Do it."]
    assert run.usage["calls"]["count"] == 0  # the size of the context is no bill


def old_event(kind: str, payload: dict[str, Any] | None = None) -> dict[str, Any]:
    params = {"type": kind} if payload is None else {"type": kind, "payload": payload}
    return {"jsonrpc": "2.0", "method": "event", "params": params}


def old_result(call_id: str, ok: bool, output: Any, message: str = "") -> dict[str, Any]:
    result = {"output": output, "message": message, "brief": ""}
    return old_event("tool_result", {"tool_call_id": call_id, "ok": ok, "result": result})


def test_the_wire_of_november_2025_is_read() -> None:
    """kimi-cli 0.46 to 0.58 had other names on the wire, and no prompts."""
    ask = {"id": "r-1", "tool_call_id": "c-2", "sender": "Shell", "action": "run", "description": "Run it?"}
    inner = old_event("content_part", {"type": "text", "text": "Inner."})["params"]
    run = headrace.reduce(
        lines(
            old_event("step_begin", {"n": 1}),
            old_event("content_part", {"type": "text", "text": "Let "}),
            old_event("content_part", {"type": "text", "text": "me."}),
            old_event("tool_call", call("c-1", arguments="")),
            old_event("tool_call_part", {"arguments_part": '{"command": "ls"}'}),
            old_result("c-1", True, {"type": "text", "text": "a"}),
            old_event("tool_call", call("c-2")),
            {"jsonrpc": "2.0", "id": "r-1", "method": "request", "params": {"type": "approval", "payload": ask}},
            old_result("c-2", False, "", "No."),
            old_event("subagent_event", {"task_tool_call_id": "c-1", "event": inner}),
            old_event("status_update", {"context_usage": 0.1}),
            old_event("compaction_begin"),
            old_event("compaction_end"),
            old_event("step_begin", {"n": 2}),
            old_event("content_part", {"type": "text", "text": "Done."}),
            old_event("status_update", {"context_usage": 0.2}),
            {"jsonrpc": "2.0", "id": "1", "result": {"status": "finished"}},
        )
    )
    assert (run.dialect, run.texts, run.verdict.outcome) == ("kimi-wire", ["Let me.", "Done."], "completed")
    assert [(c["input"], c["ok"], c["result"]) for c in run.tool_calls] == [
        ({"command": "ls"}, True, "a"),
        ({"command": "ls"}, False, "No."),
    ]
    assert run.report.unknown == {}
    failed = {"jsonrpc": "2.0", "id": "1", "error": {"code": -32099, "message": "Run failed: x"}}
    run = headrace.reduce(lines(old_event("step_begin", {"n": 1}), old_event("step_interrupted"), failed))
    assert (run.verdict.outcome, [error["message"] for error in run.errors]) == ("failed", ["Run failed: x"])


def test_kimi_code_without_requests_names_the_model_as_its_settings_do() -> None:
    """Requests are in the file since July 2026; before, settings and usage have the model's alias."""

    def told(kind: str, **facts: Any) -> dict[str, Any]:
        return {"type": kind, "time": 1782012661213, **facts}

    def step(text: str, output: int) -> list[dict[str, Any]]:
        part, usage = {"type": "text", "text": text}, {"inputOther": 10, "output": output, "inputCacheRead": 0}
        events: list[dict[str, Any]] = [{"type": "step.begin"}, {"type": "content.part", "part": part}]
        events.append({"type": "step.end", "usage": usage, "finishReason": "end_turn"})
        return [told("context.append_loop_event", event=event) for event in events]

    head = {"type": "metadata", "protocol_version": "1.4", "created_at": 1782012661212}
    first, other = told("config.update", modelAlias="vendor/one"), told("config.update", modelAlias="vendor/two")
    run = headrace.reduce(lines(head, first, *step("A", 1), other, *step("B", 2)))
    assert run.model == "vendor/two"
    assert {name: part["completion_tokens"] for name, part in run.usage.by_model.items()} == {
        "vendor/one": 1,
        "vendor/two": 2,
    }
    record = told("usage.record", model="vendor/one", usage={"inputOther": 1, "output": 5}, usageScope="turn")
    assert headrace.reduce(lines(head, record)).model == "vendor/one"
    request = {**told("llm.request", model="one", modelAlias="vendor/one"), "kind": "loop"}
    run = headrace.reduce(lines(head, first, request, other, *step("A", 1), record))
    assert (run.model, list(run.usage.by_model)) == ("one", ["one"])
