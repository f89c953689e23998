"""What a user relies on when the harness is Claude Code: its stream, and its session files."""

from __future__ import annotations

import json
from typing import Any

import pytest

import headrace

USAGE = {"input_tokens": 10, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 30, "output_tokens": 1}


def lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def on_stream(kind: str, **facts: Any) -> dict[str, Any]:
    return {"type": kind, "session_id": "s-1", "parent_tool_use_id": None, **facts}


def init(**facts: Any) -> dict[str, Any]:
    return on_stream("system", subtype="init", claude_code_version="2.1.332", model="m-1", cwd="/p", tools=[], **facts)


def said(*content: dict[str, Any], message_id: str = "msg_1", **facts: Any) -> dict[str, Any]:
    message = {"id": message_id, "model": "m-1", "role": "assistant", "content": list(content), "usage": USAGE}
    return on_stream("assistant", **{"message": message, **facts})


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(call_id: str, name: str = "Bash", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def answered(call_id: str, content: Any, **facts: Any) -> dict[str, Any]:
    error = facts.pop("is_error", False)
    block = {"type": "tool_result", "tool_use_id": call_id, "content": content, "is_error": error}
    return on_stream("user", message={"role": "user", "content": [block]}, **facts)


def api(kind: str, **facts: Any) -> dict[str, Any]:
    outside = {"abandoned_blocks": facts.pop("abandoned")} if "abandoned" in facts else {}
    return on_stream("stream_event", event={"type": kind, **facts}, api_message_id="msg_1", **outside)


def delta(words: str, index: int = 0) -> dict[str, Any]:
    return api("content_block_delta", index=index, delta={"type": "text_delta", "text": words})


def result(answer: str | None = None, **facts: Any) -> dict[str, Any]:
    told = {} if answer is None else {"result": answer}
    return on_stream("result", **{"subtype": "success", "is_error": False, "total_cost_usd": 0.5, **told, **facts})


def streamed(*after_text: dict[str, Any]) -> list[dict[str, Any]]:
    start = api("message_start", message={"id": "msg_1", "model": "m-1", "usage": USAGE})
    return [
        init(),
        start,
        api("content_block_start", index=0, content_block=text("")),
        delta("Half "),
        delta("a text."),
        *after_text,
    ]


# ---------------------------------------------------------------- the stream


def test_a_text_is_told_once_though_the_wire_has_it_three_times() -> None:
    stream = lines(
        *streamed(
            said(text("Half a text.")),
            api("content_block_stop", index=0),
            api("message_delta", delta={}, usage={"output_tokens": 9}),
            api("message_stop"),
            result("Half a text."),
        )
    )
    chunks = [event["update"]["content"]["text"] for event in headrace.events(stream, only={"agent_message_chunk"})]
    assert chunks == ["Half ", "a text."]
    run = headrace.reduce(stream)
    assert run.texts == ["Half a text."]
    assert run.usage["calls"] == {
        "count": 1,
        "prompt_tokens": 42,
        "completion_tokens": 9,
        "cached_tokens": 30,
        "cost_usd": None,
    }


def test_what_a_cut_message_said_is_taken_back() -> None:
    abandoned = {"api_message_id": "msg_1", "from_block_index": 0}
    stream = lines(
        *streamed(
            api("content_block_stop", index=0),
            api("message_stop", abandoned=abandoned),
            on_stream("system", subtype="api_retry", attempt=1, max_retries=10, retry_delay_ms=5, error="unknown"),
            said(text("Whole."), message_id="msg_2"),
            result("Whole."),
        )
    )
    told = ""
    for event in headrace.events(stream, only={"agent_message_chunk"}):
        told = told[: len(told) - event.get("extra", {}).get("retract", 0)] + event["update"]["content"]["text"]
    assert told == "Whole."
    run = headrace.reduce(stream)
    assert (run.texts, run.retries, run.errors) == (["Whole."], 1, [])


def test_an_api_failure_is_a_failed_run_and_its_words_are_no_answer() -> None:
    words = "API Error: 500 out of order"
    synthetic = {"id": "u", "model": "<synthetic>", "content": [text(words)], "usage": {"input_tokens": 0}}
    run = headrace.reduce(
        lines(
            init(),
            said(text("Working.")),
            on_stream("assistant", message=synthetic, error="server_error"),
            result(words, is_error=True, terminal_reason="api_error"),
        )
    )
    assert (run.verdict.outcome, run.final_text) == ("failed", "Working.")
    assert [error["message"] for error in run.errors] == [words]
    assert run.usage["calls"]["count"] == 1


def test_an_answer_that_only_the_result_carries_is_the_final_text() -> None:
    run = headrace.reduce(lines(result('{"n": 5}', structured_output={"n": 5})))
    assert (run.dialect, run.final_text, run.verdict.outcome) == ("claude", '{"n": 5}', "completed")


def test_a_result_that_was_held_back_does_not_repeat_its_text() -> None:
    run = headrace.reduce(
        lines(
            init(),
            said(text("It runs.")),
            said(text("Sub-agent."), message_id="msg_s", parent_tool_use_id="toolu_1"),
            said(text("It ended."), message_id="msg_2"),
            result("It runs."),
            result("It ended."),
        )
    )
    assert run.texts == ["It runs.", "It ended."]


@pytest.mark.parametrize(
    "first", [result(""), result(subtype="error_max_turns", is_error=True, errors=["Reached 1 turn"])]
)
def test_a_text_is_told_once_though_an_empty_or_failed_result_came_before_its_own(first: dict[str, Any]) -> None:
    ended = said(text("It ended."), message_id="msg_2")
    run = headrace.reduce(lines(init(), said(call("toolu_1", "Agent")), init(), ended, first, result("It ended.")))
    assert run.texts == ["It ended."]


def test_an_answer_that_supersedes_another_takes_its_place() -> None:
    refused, instead = said(text("No."), uuid="u-1"), said(text("Yes."), message_id="msg_2", supersedes=["u-1"])
    run = headrace.reduce(lines(init(), refused, instead, result("Yes.")))
    assert run.texts == ["Yes."]


@pytest.mark.parametrize("one_record", [True, False])
def test_an_id_that_a_message_uses_twice_names_two_calls(one_record: bool) -> None:
    calls = call("toolu_1", command="a"), call("toolu_1", command="b")
    told = [said(*calls, uuid="u-1")] if one_record else [said(calls[0], uuid="u-1"), said(calls[1], uuid="u-2")]
    run = headrace.reduce(
        lines(init(), *told, answered("toolu_1", "A"), answered("toolu_1", "B", is_error=True), result("Done."))
    )
    assert [(c["input"]["command"], c["result"], c["ok"]) for c in run.tool_calls] == [
        ("a", "A", True),
        ("b", "B", False),
    ]


def test_a_record_that_comes_again_is_told_once() -> None:
    records = said(text("One."), uuid="u-1"), said(call("toolu_1"), uuid="u-2")
    run = headrace.reduce(lines(init(), *records, answered("toolu_1", "A"), *records, result("One.")))
    assert (run.texts, len(run.tool_calls)) == (["One."], 1)


def test_a_result_that_comes_again_is_told_once() -> None:
    end = result("Hi.", uuid="u-9", usage=USAGE)
    run = headrace.reduce(lines(init(), said(text("Hi.")), end, end)).to_dict()
    once = headrace.reduce(lines(init(), said(text("Hi.")), end)).to_dict()
    told = ("texts", "usage", "cost_usd", "messages", "verdict")
    assert {key: run[key] for key in told} == {key: once[key] for key in told}
    turns = init(), said(text("Hi.")), end, init(), said(text("Hi."), message_id="msg_2"), end
    again = headrace.reduce(lines(*turns))
    assert (again.texts, again.verdict.outcome) == (["Hi.", "Hi."], "completed")


def test_a_message_whose_start_was_lost_is_told_once() -> None:
    lost = [
        record
        for record in streamed(said(text("Half a text.")))
        if "start" not in record.get("event", {}).get("type", "")
    ]
    for record in lost:
        record.pop("api_message_id", None)
    run = headrace.reduce(lines(*lost, result("Half a text.")))
    assert run.texts == ["Half a text."]
    assert run.usage["calls"]["count"] == 1


def test_a_cut_message_does_not_go_on_in_the_next_turn() -> None:
    run = headrace.reduce(lines(*streamed(), init(), said(text("Another.")), result("Another.")))
    assert run.texts == ["Half a text.", "Another."]


def streamed_as(message_id: str, words: str, *records: dict[str, Any], stop: str = "end_turn") -> list[dict[str, Any]]:
    """A message in partial mode: its events, and the records of its block."""
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": message_id, "model": "m-1", "usage": USAGE}},
        {"type": "content_block_start", "index": 0, "content_block": text("")},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": words}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]
    told = [on_stream("stream_event", event=event, api_message_id=message_id) for event in events]
    return [*told[:3], *(records or [said(text(words), message_id=message_id)]), *told[3:]]


def test_an_answer_in_place_of_a_refused_one_takes_its_place_while_both_are_streamed() -> None:
    refused = streamed_as("msg_1", "No", said(text("No"), uuid="u-1"), stop="refusal")
    instead = streamed_as("msg_2", "Yes.", said(text("Yes."), message_id="msg_2", uuid="u-2", supersedes=["u-1"]))
    stream = lines(init(), *refused, *instead, result("Yes."))
    told = ""
    for event in headrace.events(stream, only={"agent_message_chunk"}):
        told = told[: len(told) - event.get("extra", {}).get("retract", 0)] + event["update"]["content"]["text"]
    run = headrace.reduce(stream)
    assert (told, run.texts, run.usage["calls"]["count"]) == ("Yes.", ["Yes."], 2)


def test_a_late_notice_of_a_refusal_takes_back_no_answer() -> None:
    refused = streamed_as("msg_1", "No", said(text("No"), uuid="u-1"), stop="refusal")
    instead = streamed_as("msg_2", "Yes.", said(text("Yes."), message_id="msg_2", uuid="u-2"))
    notice = on_stream(
        "system", subtype="model_refusal_fallback", fallback_model="m-2", retracted_message_uuids=["u-1"]
    )
    run = headrace.reduce(lines(init(), *refused, *instead, notice, result("Yes.")))
    assert run.final_text == "Yes."


def test_an_error_behind_the_last_result_that_no_turn_had_is_none_of_the_run() -> None:
    words = "only prompt commands are supported in streaming mode"
    behind = on_stream(
        "result", subtype="error_during_execution", is_error=True, num_turns=0, total_cost_usd=0, errors=[words]
    )
    run = headrace.reduce(lines(init(), said(text("Done.")), result("Done."), behind))
    assert (run.verdict.outcome, run.errors, run.cost_usd) == ("completed", [], 0.5)
    assert headrace.reduce(lines(init(), said(text("So")), behind)).verdict.outcome == "failed"


def test_a_call_that_stepped_aside_is_not_over() -> None:
    aside = answered("toolu_1", "Still running.", tool_use_result={"detachedToolCall": True})
    run = headrace.reduce(
        lines(init(), said(call("toolu_1", "WebFetch")), aside, said(text("Later.")), result("Later."))
    )
    assert (run.tool_calls[0]["ok"], run.tool_calls[0]["status"]) == (None, "in_progress")


@pytest.mark.parametrize(
    ("reason", "outcome"), [("api_error", "failed"), ("blocking_limit", "limit"), ("hook_stopped", "completed")]
)
def test_a_turn_that_died_is_not_completed_though_the_result_does_not_flag_it(reason: str, outcome: str) -> None:
    run = headrace.reduce(lines(init(), said(text("So far.")), result("So far.", terminal_reason=reason)))
    assert run.verdict.outcome == outcome


@pytest.mark.parametrize("before", [[], [said(text("I see."))], [said(text('{"n": [5, "\\u00e9"]}'))]])
def test_a_structured_answer_is_the_final_text_though_the_result_does_not_repeat_it(before: list[Any]) -> None:
    answer = {"n": [5, "\u00e9"]}
    run = headrace.reduce(lines(init(), *before, result("", structured_output=answer)))
    assert json.loads(run.final_text or "") == answer
    assert len(run.texts) == (2 if "I see." in run.texts else 1)
    assert headrace.reduce(lines(init(), result("", structured_output=None))).texts == []


def test_an_answer_that_goes_on_with_a_refused_text_is_told_once() -> None:
    notice = on_stream(
        "system", subtype="model_refusal_fallback", fallback_model="m-2", retracted_message_uuids=["u-1", "u-2"]
    )
    start = said({"type": "thinking", "thinking": "Hm."}, uuid="u-0"), said(text("One"), uuid="u-1")
    whole = said(text("One, two."), uuid="u-3", supersedes=["u-1"])
    run = headrace.reduce(lines(init(), *start, whole, notice, result("One, two.")))
    assert (run.texts, run.thinking) == (["One, two."], ["Hm."])
    again = lines(init(), *streamed_as("msg_1", "One", start[1], whole), notice, result("One, two."))
    assert headrace.reduce(again).texts == ["One, two."]


def test_an_answer_in_place_of_a_call_that_could_not_be_parsed_takes_its_place() -> None:
    earlier = streamed_as("msg_0", "Before.", said(text("Before."), message_id="msg_0", uuid="u-0"))
    broken = streamed_as("msg_1", "<invoke", said(text("<invoke"), uuid="u-1"), stop="tool_use")
    instead = streamed_as("msg_2", "Done.", said(text("Done."), message_id="msg_2", uuid="u-2", supersedes=["u-1"]))
    run = headrace.reduce(lines(init(), *earlier, *broken, *instead, result("Done.")))
    assert run.texts == ["Before.", "Done."]


def test_a_side_question_that_another_model_answered_leaves_the_sessions_model() -> None:
    local = on_stream("system", subtype="model_refusal_fallback", scope="local", fallback_model="m-2")
    consent = on_stream("system", subtype="model_consent_fallback", choice="consent", fallback_model="m-3")
    told = said(text("Yes.")), result("Yes.")
    assert headrace.reduce(lines(init(), local, *told)).model == "m-1"
    events = headrace.events(lines(init(), consent, *told), state=True)
    assert [e["update"]["model"] for e in events if e["update"].get("state") == "model"] == ["m-3"]


def test_a_refused_message_stays_if_nothing_takes_its_place() -> None:
    refused = streamed_as("msg_1", "No", said(text("No"), uuid="u-1"), stop="refusal")
    again = streamed_as("msg_2", "Still no", said(text("Still no"), message_id="msg_2", uuid="u-2"))
    assert headrace.reduce(lines(init(), *refused, *again, result("Still no"))).texts == ["No", "Still no"]


def test_calls_count_though_a_gateway_gives_all_its_messages_one_id() -> None:
    run = headrace.reduce(lines(init(), *streamed_as("x", "One."), *streamed_as("x", "Two."), result("Two.")))
    assert (run.texts, run.usage["calls"]["count"], run.usage["calls"]["completion_tokens"]) == (["One.", "Two."], 2, 6)
    told = [said(text(words), message_id="x", request_id=f"req_{words}") for words in ("One.", "One.", "Two.")]
    assert headrace.reduce(lines(init(), *told, result("Two."))).usage["calls"]["count"] == 2


def test_a_record_that_a_gateways_message_id_doubles_is_told_once() -> None:
    twice = [said(text("One."), message_id="resp_1", uuid=uuid) for uuid in ("u-1", "u-2")]
    run = headrace.reduce(lines(init(), *streamed_as("resp_1", "One.", *twice), result("One.")))
    assert (run.texts, run.usage["calls"]["count"]) == (["One."], 1)


def test_a_retry_takes_back_what_an_answer_that_broke_off_had_streamed() -> None:
    # as 2.1.215 to 2.1.290 close it: no message_delta, no abandoned_blocks
    start = [init(), api("message_start", message={"id": "msg_1", "model": "m-1", "usage": USAGE})]
    block = api("content_block_start", index=0, content_block={"type": "text", "text": ""})
    broken = [block, delta("This is "), delta("cut"), api("content_block_stop", index=0), api("message_stop")]
    retry = on_stream("system", subtype="api_retry", attempt=1, max_retries=10, retry_delay_ms=5, error="unknown")
    whole = said(text("Whole."), message_id="msg_2")
    events = headrace.events(lines(*start, *broken, retry, whole, result("Whole.")))
    taken_back = [event.get("extra", {}).get("retract", 0) for event in events]
    assert sum(taken_back) == len("This is cut")
    assert (events.run.texts, events.run.final_text) == (["Whole."], "Whole.")
    # what had its record before the retry stays, and so does what a message said that was not cut
    kept = headrace.reduce(lines(*start, *broken[:3], said(text("This is cut")), *broken[3:], retry, whole))
    assert kept.texts == ["This is cut", "Whole."]
    ended = [broken[0], broken[1], broken[3], api("message_delta", delta={}, usage=USAGE), broken[4]]
    assert headrace.reduce(lines(*start, *ended, retry, whole)).texts == ["This is ", "Whole."]


def test_a_prompt_that_a_hook_refused_is_denied_and_has_no_answer() -> None:
    why = "UserPromptSubmit operation blocked by hook:\n[check]: no"
    blocked = {"kind": "blocked_by_hook", "prompt_kept": False, "reason": "no"}
    notice = on_stream("system", subtype="informational", content=why, prompt_submit_outcome=blocked)
    run = headrace.reduce(lines(init(), notice, result(why, num_turns=0)))
    assert (run.verdict.outcome, run.texts, run.final_text, run.errors) == ("denied", [], None, [])
    later = [init(), said(text("Yes.")), result("Yes.")]
    run = headrace.reduce(lines(init(), notice, result(why, num_turns=0), *later))
    assert (run.verdict.outcome, run.texts) == ("completed", ["Yes."])


def test_an_error_in_the_middle_is_told_though_old_versions_do_not_flag_it() -> None:
    broken = on_stream("result", subtype="error_during_execution", is_error=False, errors=["It broke."])
    run = headrace.reduce(lines(init(), said(text("So far.")), broken))
    assert (run.verdict.outcome, [error["message"] for error in run.errors]) == ("failed", ["It broke."])
    stopped = on_stream("user", message={"role": "user", "content": [text("[Request interrupted by user]")]})
    run = headrace.reduce(lines(init(), said(text("So far.")), stopped, broken))
    assert (run.verdict.outcome, run.errors) == ("cancelled", [])


def test_a_first_prompt_that_is_printed_twice_is_one() -> None:
    asked = on_stream("user", message={"role": "user", "content": "Do it."}, uuid="u-1")
    run = headrace.reduce(lines(asked, init(), asked, said(text("Done.")), result("Done.")))
    assert [message["text"] for message in run.messages] == ["Do it.", "Done."]


@pytest.mark.parametrize(
    "words",
    [
        "You've hit your limit · resets 3pm",
        "5-hour limit reached ∙ resets 3pm",
        "You're out of extra usage · resets 9am",
        "Spending cap reached ∙ resets 9am",
        "API Error: The model has reached its context window limit.",
    ],
)
def test_a_used_up_plan_is_a_limit_where_no_code_says_so(words: str) -> None:
    assert headrace.reduce(lines(init(), result(words, is_error=True))).verdict.outcome == "limit"


def test_the_total_is_that_of_this_process_and_the_cost_is_as_printed() -> None:
    def of(prompt: int) -> dict[str, Any]:
        return {"m-1": {"inputTokens": prompt, "outputTokens": 1, "cacheReadInputTokens": 0}}

    resumed = [
        result("One.", modelUsage=of(110), model_usage_since_last_result=of(10)),
        result("Two.", modelUsage=of(130), model_usage_since_last_result=of(20), total_cost_usd=0.75),
    ]
    run = headrace.reduce(lines(init(), *resumed))
    assert (run.usage["run"]["prompt_tokens"], run.cost_usd) == (30, 0.75)
    run = headrace.reduce(lines(init(), *[{k: v for k, v in r.items() if "since" not in k} for r in resumed]))
    assert run.usage["run"]["prompt_tokens"] == 130


def test_a_result_without_a_cost_leaves_the_one_before_it() -> None:
    last = {"subtype": "error_during_execution", "is_error": True}
    run = headrace.reduce(lines(init(), said(text("Done.")), result("Done."), on_stream("result", **last)))
    assert run.cost_usd == 0.5


def test_results_come_in_any_order_and_an_interrupted_call_has_failed() -> None:
    run = headrace.reduce(
        lines(
            init(),
            said(call("toolu_1", command="sleep 9"), call("toolu_2", command="ls"), call("toolu_3", command="w")),
            answered("toolu_2", [text("a"), {"type": "tool_reference"}, text("b")]),
            answered("toolu_1", "rejected", is_error=True, tool_use_result="User rejected tool use"),
            on_stream(
                "user", message={"role": "user", "content": [text("[Request interrupted by user for tool use]")]}
            ),
        )
    )
    assert [(c["id"], c["ok"], c["result"]) for c in run.tool_calls] == [
        ("toolu_1", False, "rejected"),
        ("toolu_2", True, "a\nb"),
        ("toolu_3", None, None),
    ]
    assert run.verdict.outcome == "cancelled"


def test_a_run_that_ends_at_a_refused_call_is_denied() -> None:
    refused = [
        init(),
        said(call("toolu_1", "Write", file_path="x", content="y")),
        on_stream("system", subtype="permission_denied", tool_name="Write", tool_use_id="toolu_1", message="no"),
        answered("toolu_1", "no", is_error=True),
    ]
    assert headrace.reduce(lines(*refused, result(""))).verdict.outcome == "denied"
    thought = said({"type": "thinking", "thinking": "Hm."}, message_id="msg_2")
    assert headrace.reduce(lines(*refused, thought, result(""))).verdict.outcome == "denied"
    told = said(text("I may not."), message_id="msg_2")
    assert headrace.reduce(lines(*refused, told, result("I may not."))).verdict.outcome == "completed"


def test_an_edit_shows_its_hunks_and_their_lines() -> None:
    patch = [{"oldStart": 7, "newStart": 7, "lines": [" a", "-b", "+c"]}]
    stream = lines(
        init(),
        said(call("toolu_1", "Edit", file_path="/p/f", old_string="b", new_string="c")),
        answered("toolu_1", "done", tool_use_result={"filePath": "/p/f", "structuredPatch": patch}),
    )
    opened, closed = (event["update"] for event in headrace.events(stream, only={"tool_call", "tool_call_update"}))
    assert opened["content"] == [{"type": "diff", "path": "/p/f", "oldText": "b", "newText": "c"}]
    assert closed["content"][1] == {"type": "diff", "path": "/p/f", "oldText": "a\nb", "newText": "a\nc"}
    assert closed["locations"] == [{"path": "/p/f", "line": 7}]


def test_tasks_make_a_plan() -> None:
    run = headrace.reduce(
        lines(
            init(),
            said(call("toolu_1", "TaskCreate", subject="Look"), call("toolu_2", "TaskCreate", subject="Report")),
            answered("toolu_1", "#1", tool_use_result={"task": {"id": "1", "subject": "Look"}}),
            answered("toolu_2", "#2", tool_use_result={"task": {"id": "2", "subject": "Report"}}),
            said(call("toolu_3", "TaskUpdate", taskId="1", status="completed"), message_id="msg_2"),
            answered("toolu_3", "ok", tool_use_result={"statusChange": {"from": "pending", "to": "completed"}}),
        )
    )
    assert [(entry["content"], entry["status"]) for entry in run.plan] == [("Look", "completed"), ("Report", "pending")]
    assert len(run.tool_calls) == 3


def test_what_the_harness_writes_in_the_users_name_is_no_prompt() -> None:
    run = headrace.reduce(
        lines(
            init(),
            on_stream("user", message={"role": "user", "content": "Do it."}, isReplay=True),
            on_stream("user", message={"role": "user", "content": [text("Go on.")]}, isSynthetic=True),
            on_stream("user", message={"role": "user", "content": "<local-command-stdout>x</local-command-stdout>"}),
        )
    )
    assert [message["text"] for message in run.messages] == ["Do it."]


# ---------------------------------------------------------------- session files


def on_disk(kind: str, uuid: str, parent: str | None = None, **facts: Any) -> dict[str, Any]:
    return {"parentUuid": parent, "isSidechain": False, "sessionId": "s-1", "type": kind, "uuid": uuid, **facts}


def wrote(uuid: str, *content: dict[str, Any], message_id: str = "msg_1", **facts: Any) -> dict[str, Any]:
    stop = facts.pop("stop", "end_turn")
    message = {"id": message_id, "model": "m-1", "content": list(content), "usage": USAGE, "stop_reason": stop}
    return on_disk("assistant", uuid, message=message, **facts)


def typed(uuid: str, words: str, **facts: Any) -> dict[str, Any]:
    return on_disk("user", uuid, message={"role": "user", "content": words}, **facts)


def test_lines_that_a_resumed_session_copied_count_once() -> None:
    old = [typed("u-1", "One."), wrote("u-2", text("Uno."))]
    copies = [{**line, "sessionId": "s-2"} for line in old]
    new = [typed("u-3", "Two."), wrote("u-4", text("Due."), message_id="msg_2")]
    run = headrace.reduce(lines(*old, *copies, *new))
    assert run.dialect == "claude-transcript"
    assert (run.texts, run.usage["calls"]["count"]) == (["Uno.", "Due."], 2)
    assert [m["text"] for m in run.messages if m["role"] == "user"] == ["One.", "Two."]


def test_lines_that_another_answer_supersedes_are_taken_back() -> None:
    refused = wrote("u-2", text("No,"), stop="refusal"), wrote("u-3", call("toolu_1"), stop="refusal")
    instead = wrote("u-4", text("Yes."), message_id="msg_2", supersedesUuids=["u-2", "u-3"])
    run = headrace.reduce(lines(typed("u-1", "Do."), *refused, instead))
    assert (run.texts, run.verdict.outcome, run.tool_calls[0]["ok"]) == (["Yes."], "completed", False)
    assert run.usage["calls"]["count"] == 2


def test_a_text_of_a_file_that_goes_on_with_a_refused_one_is_told_once() -> None:
    first = wrote("u-2", text("One"), stop=None)
    whole = wrote("u-3", text("One, two."), supersedesUuids=["u-2"])
    notice = on_disk(
        "system", "u-4", subtype="model_refusal_fallback", fallbackModel="m-2", retractedMessageUuids=["u-2"]
    )
    assert headrace.reduce(lines(typed("u-1", "Count."), first, whole, notice)).texts == ["One, two."]
    assert headrace.reduce(lines(typed("u-1", "Count."), first, notice)).texts == []


def test_notices_of_background_tasks_and_of_the_editor_are_no_prompts() -> None:
    opened = {"type": "text", "text": "<ide_opened_file>The user opened a.py</ide_opened_file>"}
    asked = on_disk("user", "u-1", message={"role": "user", "content": [opened, text("Test it.")]})
    notice = typed("u-3", "<task-notification>\n<task-id>b1</task-id>\n</task-notification>")
    run = headrace.reduce(lines(asked, wrote("u-2", text("Running.")), notice, wrote("u-4", text("Done."))))
    assert [m["text"] for m in run.messages if m["role"] == "user"] == ["Test it."]


def test_an_id_that_a_message_of_a_file_uses_twice_names_two_calls() -> None:
    told = wrote("u-2", call("toolu_1", command="a"), stop="tool_use"), wrote("u-3", call("toolu_1", command="b"))
    blocks = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": words} for words in "AB"]
    results = [on_disk("user", f"r-{b['content']}", message={"role": "user", "content": [b]}) for b in blocks]
    run = headrace.reduce(lines(typed("u-1", "Go."), *told, *results))
    assert [(c["input"]["command"], c["result"]) for c in run.tool_calls] == [("a", "A"), ("b", "B")]


def test_calls_of_a_file_count_though_their_messages_have_one_id() -> None:
    told = [
        wrote(f"u-{n}", block, requestId=request, stop="tool_use")
        for n, (request, block) in enumerate(
            [("r-1", text("One.")), ("r-1", call("toolu_1")), ("r-2", call("toolu_2"))]
        )
    ]
    run = headrace.reduce(lines(typed("p-1", "Go."), *told))
    assert (run.usage["calls"]["count"], len(run.tool_calls)) == (2, 2)
    run = headrace.reduce(lines(typed("p-1", "Go."), *({k: v for k, v in t.items() if k != "requestId"} for t in told)))
    assert run.usage["calls"]["count"] == 1


@pytest.mark.parametrize(
    "words",
    [
        "[Request interrupted: the session ended before this agent finished. Nobody asked it to stop.]",
        "[This turn ended before it finished.]",
    ],
)
def test_a_turn_that_ended_with_its_process_is_incomplete_and_no_prompt(words: str) -> None:
    run = headrace.reduce(lines(typed("u-1", "Go."), wrote("u-2", text("So"), stop=None), typed("u-3", words)))
    assert (run.verdict.outcome, [m["text"] for m in run.messages if m["role"] == "user"]) == ("incomplete", ["Go."])


def test_lines_about_the_session_are_known() -> None:
    about = [
        {"type": "custom-title", "customTitle": "Mine", "sessionId": "s-1"},
        {"type": "tag", "tag": "t", "sessionId": "s-1"},
        {"type": "pr-link", "prNumber": 1, "sessionId": "s-1"},
        on_disk("system", "u-3", subtype="microcompact_boundary"),
        on_disk("system", "u-4", subtype="away_summary", content="Goal: tests. Next: merge."),
        on_disk("system", "u-5", subtype="scheduled_task_fire", content="Claude resuming /loop wakeup"),
    ]
    stream = lines(typed("u-1", "Go."), wrote("u-2", text("Done.")), *about)
    events = [event["update"] for event in headrace.events(stream, state=True)]
    assert [update["title"] for update in events if "title" in update] == ["Mine"]
    run = headrace.reduce(stream)
    assert (run.report.unknown, run.compactions, run.verdict.outcome) == ({}, 0, "completed")


def test_a_sidechain_belongs_to_the_call_whose_prompt_it_repeats() -> None:
    run = headrace.reduce(
        lines(
            typed("u-1", "Scout."),
            wrote("u-2", call("toolu_1", "Task", prompt="Look left."), stop="tool_use"),
            wrote("u-3", call("toolu_2", "Task", prompt="Look right."), stop="tool_use"),
            typed("u-4", "Look right.", isSidechain=True),
            wrote("u-5", text("Nothing."), message_id="msg_s", isSidechain=True, parentUuid="u-4"),
            typed("u-6", "Who asked?", isSidechain=True),
            wrote("u-7", text("Stray."), message_id="msg_t", isSidechain=True, parentUuid="u-6"),
            wrote("u-8", text("Done."), message_id="msg_2"),
        )
    )
    assert run.texts == ["Done."]
    assert [(agent["tool_call_id"], agent["texts"]) for agent in run.subagents] == [("toolu_2", ["Nothing."])]
    assert run.usage["calls"]["count"] == 4


def test_a_sub_agents_own_file_is_a_conversation() -> None:
    facts = {"isSidechain": True, "agentId": "a-1"}
    run = headrace.reduce(lines(typed("u-1", "Look.", **facts), wrote("u-2", text("Seen."), **facts)))
    assert (run.texts, run.verdict.outcome) == (["Seen."], "completed")


def test_what_a_sub_agent_did_is_told_though_its_lines_are_wrapped_in_progress() -> None:
    block = {"type": "tool_result", "tool_use_id": "toolu_2", "content": "x"}
    own = [
        typed("s-1", "Look.", isSidechain=True, agentId="a-1"),
        wrote("s-2", call("toolu_2", "Read"), message_id="msg_s", isSidechain=True, agentId="a-1", stop="tool_use"),
        on_disk("user", "s-3", message={"role": "user", "content": [block]}, isSidechain=True, agentId="a-1"),
    ]
    told = [{key: line[key] for key in ("type", "uuid", "message")} for line in own]
    progress = [{"type": "agent_progress", "agentId": "a-1", "message": line} for line in told]
    wrapped = [on_disk("progress", f"w-{n}", parentToolUseID="toolu_1", data=data) for n, data in enumerate(progress)]
    hook = on_disk("progress", "w-9", parentToolUseID="toolu_1", data={"type": "hook_progress"})
    last = wrote("s-4", text("Seen."), message_id="msg_t", isSidechain=True, agentId="a-1", parentUuid="s-3")
    session = [
        typed("u-1", "Scout."),
        wrote("u-2", call("toolu_1", "Agent", prompt="Look."), stop="tool_use"),
        *wrapped,
        hook,
        wrote("u-3", text("Done."), message_id="msg_2"),
    ]
    for stream, texts, calls in ((session, [], 3), ([*session, *own, last], ["Seen."], 4)):
        run = headrace.reduce(lines(*stream))
        assert (run.texts, run.verdict.outcome, run.usage["calls"]["count"]) == (["Done."], "completed", calls)
        assert [(c["id"], c["parent"], c["ok"]) for c in run.tool_calls][1:] == [("toolu_2", "toolu_1", True)]
        assert [agent["texts"] for agent in run.subagents] == [texts]


def test_compaction_and_machine_lines_are_no_prompts() -> None:
    run = headrace.reduce(
        lines(
            typed("u-1", "<local-command-caveat>x</local-command-caveat>", isMeta=True),
            typed("u-2", "Real?"),
            wrote("u-3", text("Yes.")),
            on_disk("system", "u-4", subtype="compact_boundary", compactMetadata={"trigger": "auto"}),
            typed("u-5", "This session goes on …", isCompactSummary=True),
        )
    )
    assert [m["text"] for m in run.messages if m["role"] == "user"] == ["Real?"]
    assert (run.compactions, run.verdict.outcome) == (1, "completed")


def test_the_end_of_a_prompt_is_read_from_the_stop_reason() -> None:
    asked = typed("u-1", "Go.")
    assert headrace.reduce(lines(asked)).verdict.outcome == "incomplete"
    assert headrace.reduce(lines(asked, wrote("u-2", text("So"), stop="max_tokens"))).verdict.outcome == "limit"
    assert headrace.reduce(lines(asked, wrote("u-2", call("toolu_1"), stop="tool_use"))).verdict.outcome == "incomplete"
    assert headrace.reduce(lines(asked, wrote("u-2", text("Old."), stop=None))).verdict.outcome == "completed"
