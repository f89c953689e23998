"""minicode: what the recordings do not show."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .engines import ENGINES

OK = {"schema": "minicode.output.v1", "type": "summary", "ok": True, "sessionId": "s1", "usage": {"inputTokens": 1}}
START = ("turn.started", {"promptRef": "turn:1"})
END = ("turn.completed", {"summary": {}})


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> Any:
    return ENGINES[request.param]


def run(engine: Any, *records: Any, acp: bool = False) -> dict[str, Any]:
    """Records, and events as (type, payload): in envelopes, or flat as acp prints them."""
    lines = []
    for number, record in enumerate(records, 1):
        if isinstance(record, tuple):
            kind, payload = record
            envelope = {"schema": "minicode.output.v1", "eventId": f"s1:1:{number}", "type": kind, "sessionId": "s1"}
            record = {"type": kind, "eventSeq": number, **payload} if acp else {**envelope, "payload": payload}
        lines.append(json.dumps(record).encode() + b"\n")
    parser = engine(kinds=())
    parser.feed(b"".join(lines))
    parser.close()
    got: dict[str, Any] = parser.run()
    return got


def said(text: str) -> list[Any]:
    return [("model.delta", {"delta": text}), {"type": "text", "delta": text}]


def started(call_id: str, **more: str) -> Any:
    return ("tool.started", {"toolCallId": call_id, "name": "bash", "target": "$ make", **more})


def ended(call_id: str, how: str = "completed", **more: str) -> Any:
    return (f"tool.{how}", {"toolCallId": call_id, "toolSummary": "ok", **more})


def failed(category: str, message: str) -> dict[str, Any]:
    return {**OK, "ok": False, "error": {"category": category, "message": message}}


def outcome(got: dict[str, Any]) -> str:
    word: str = got["verdict"]["outcome"]
    return word


def test_why_a_turn_failed_is_told_though_the_summary_never_came(engine: Any) -> None:
    turn = ("turn.failed", {"error": "rate limited", "cause": "provider"})
    got = run(engine, START, turn)
    assert (outcome(got), [error["message"] for error in got["errors"]]) == ("failed", ["rate limited"])
    got = run(engine, START, turn, failed("PROVIDER_ERROR", "rate limited"))
    assert len(got["errors"]) == 1


@pytest.mark.parametrize("linked", [{}, {"parentToolCallId": "d"}])
def test_the_end_of_a_childs_turn_is_not_the_end_of_the_run(engine: Any, linked: dict[str, str]) -> None:
    child = ("turn.cancelled", {"reason": "parent-aborted", **linked})
    user = ("turn.cancelled", {"reason": "user"})
    got = run(engine, START, started("d"), child, ended("d", "cancelled"), user, failed("USER_ERROR", "aborted"))
    assert outcome(got) == "cancelled"


def test_what_a_child_says_is_not_the_answer_on_either_channel(engine: Any) -> None:
    child = [("turn.started", {"parentToolCallId": "d"}), ("model.delta", {"delta": "Kid.", "parentToolCallId": "d"})]
    for twin in ([], [{"type": "text", "delta": "Kid."}]):
        got = run(engine, START, started("d"), *child, *twin, ended("d"), {"type": "text", "delta": "Root."}, END, OK)
        assert got["texts"] == ["Root."]
        assert got["subagents"][0]["texts"] == ["Kid."]


@pytest.mark.parametrize("text", ["I do it.", "Done."])
def test_the_final_text_of_a_turn_is_news_only_if_no_delta_said_it(engine: Any, text: str) -> None:
    final = ("model.completed", {"text": text, "truncated": False})
    got = run(engine, START, *said("I do it."), started("a"), ended("a"), final, END, OK)
    assert got["texts"] == (["I do it."] if text == "I do it." else ["I do it.", "Done."])


def test_a_thought_between_two_texts_parts_them(engine: Any) -> None:
    got = run(engine, START, *said("One."), ("reasoning.delta", {"delta": "Hm."}), *said("Two."), END, OK)
    assert (got["texts"], got["thinking"]) == (["One.", "Two."], ["Hm."])


def test_a_turn_that_ends_at_a_refused_call_is_denied(engine: Any) -> None:
    refusal = ("tool.denied", {"toolCallId": "a", "message": "no", "reason": "mode"})
    assert outcome(run(engine, START, *said("I try."), refusal, END, OK)) == "denied"
    assert outcome(run(engine, START, refusal, failed("PERMISSION_ERROR", "denied"))) == "denied"
    assert outcome(run(engine, START, refusal, *said("Then not."), END, OK)) == "completed"


@pytest.mark.parametrize(
    ("category", "message", "word"),
    [
        ("AGENT_ERROR", "Reached max steps (25)", "limit"),
        ("AGENT_ERROR", "Run exceeded timeout of 1200ms", "timeout"),
        ("PROVIDER_ERROR", "request timed out", "failed"),
        ("USER_ERROR", "aborted", "cancelled"),
        ("USER_ERROR", "prompt is required", "failed"),
    ],
)
def test_the_summary_says_how_it_ended_where_no_turn_does(engine: Any, category: str, message: str, word: str) -> None:
    assert outcome(run(engine, failed(category, message))) == word


def test_an_end_before_its_start_is_one_call(engine: Any) -> None:
    got = run(engine, START, ended("a"), started("a"), *said("Done."), END, OK)
    assert [(call["name"], call["ok"]) for call in got["tool_calls"]] == [("bash", True)]


def test_an_id_that_comes_again_in_the_next_turn_is_another_call(engine: Any) -> None:
    ask = ("approval.requested", {"toolCallId": "a", "name": "write_file"})
    refusal = ("tool.denied", {"toolCallId": "a", "message": "no", "reason": "mode"})
    got = run(engine, START, started("a"), ended("a"), END, START, ask, refusal, *said("No."), END, OK)
    assert [(call["name"], call["ok"]) for call in got["tool_calls"]] == [("bash", True), ("write_file", False)]


def test_a_run_without_a_turn_is_not_ended_by_the_turn_of_another(engine: Any) -> None:
    turn = ("turn.cancelled", {"reason": "user"})
    got = run(engine, START, turn, failed("USER_ERROR", "aborted"), failed("CONFIGURATION_ERROR", "no provider"))
    assert outcome(got) == "failed"


def test_an_error_answer_to_another_request_is_no_failure_of_the_run(engine: Any) -> None:
    result = {"ok": True, "sessionId": "s", "model": "m", "inputTokens": 1, "turns": 1, "text": "Hi there."}
    start, text = START, [{"type": "text", "delta": "Hi "}, {"type": "text", "delta": "there."}]
    busy = {"id": 3, "error": {"message": "a run is active", "category": "USER_ERROR"}}
    answer = {"id": 2, "result": result}
    got = run(engine, start, text[0], busy, text[1], END, answer, acp=True)
    assert (outcome(got), got["errors"], got["texts"]) == ("completed", [], ["Hi there."])
    got = run(engine, start, *text, END, answer, {"id": 4, "error": {"message": "unknown method"}}, acp=True)
    assert (outcome(got), got["errors"]) == ("completed", [])
    crash = {"id": 2, "error": {"message": "crashed", "category": "AGENT_ERROR"}}
    got = run(engine, start, text[0], crash, {"id": 5, "result": {}}, acp=True)
    assert (outcome(got), [error["message"] for error in got["errors"]]) == ("failed", ["crashed"])


@pytest.mark.parametrize("behind", [[], [{"id": 5, "result": {}}]])
def test_an_error_answer_in_an_open_turn_ends_its_run_if_another_turn_follows(engine: Any, behind: list[Any]) -> None:
    crash = {"id": 2, "error": {"message": "crashed", "category": "AGENT_ERROR"}}
    answer = {"id": 3, "result": {"ok": True, "turns": 1, "text": "Hi."}}
    said = {"type": "text", "delta": "Hi."}
    got = run(engine, START, crash, *behind, START, said, END, answer, acp=True)
    assert [error["message"] for error in got["errors"]] == ["crashed"]
    assert (outcome(got), got["texts"]) == ("completed", ["Hi."])
    got = run(engine, START, crash, *behind, START, said, acp=True)
    assert outcome(got) == "incomplete"
    child = ("turn.started", {"parentToolCallId": "d"})
    got = run(engine, START, started("d"), crash, child, said, END, answer, acp=True)
    assert (outcome(got), got["errors"]) == ("completed", [])


def test_an_answer_that_only_the_response_has_is_the_text(engine: Any) -> None:
    result = {"ok": True, "turns": 1, "text": "Hello."}
    assert run(engine, START, END, {"id": 2, "result": result}, acp=True)["texts"] == ["Hello."]


DELTA, TEXT = ("model.delta", {"delta": "Half."}), {"type": "text", "delta": "Half."}


@pytest.mark.parametrize("cut", [[DELTA], [TEXT], [DELTA, TEXT]])
@pytest.mark.parametrize("whole", [[("model.delta", {"delta": "Whole."})], [{"type": "text", "delta": "Whole."}]])
@pytest.mark.parametrize("turn", [[], [END]])
def test_what_a_run_says_behind_an_unfinished_one_is_its_own(engine: Any, cut: Any, whole: Any, turn: Any) -> None:
    got = run(engine, START, *cut, *turn, START, *whole, END, OK)
    assert (outcome(got), got["texts"]) == ("completed", ["Half.", "Whole."])
    got = run(engine, START, *cut, *turn, START, *said("Whole."), END, OK)
    assert got["texts"] == ["Half.", "Whole."]


def test_a_text_is_not_the_twin_of_what_a_child_of_an_unfinished_run_said(engine: Any) -> None:
    child = ("model.delta", {"delta": "Whole.", "parentToolCallId": "d"})
    got = run(engine, START, started("d"), child, START, {"type": "text", "delta": "Whole."}, END, OK)
    assert got["texts"] == ["Whole."]


def test_the_turns_of_one_run_say_everything_once(engine: Any) -> None:
    got = run(engine, START, *said("One."), END, START, *said("Two."), END, OK)
    assert got["texts"] == ["One.", "Two."]


def test_the_response_is_the_text_of_a_run_that_printed_none(engine: Any) -> None:
    def answered(text: str) -> dict[str, Any]:
        return {"id": 2, "result": {"ok": True, "turns": 1, "text": text}}

    got = run(engine, START, TEXT, START, END, answered("Whole."), acp=True)
    assert got["texts"] == ["Half.", "Whole."]
    # the turns of one run, of which the last was silent
    got = run(engine, START, TEXT, END, START, END, answered("Half."), acp=True)
    assert got["texts"] == ["Half."]
