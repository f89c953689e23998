"""EvoScientist: what the recordings do not show."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .engines import ENGINES

USAGE = {"type": "usage_stats", "input_tokens": 10, "output_tokens": 2}


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> Any:
    return ENGINES[request.param]


def run(engine: Any, *records: dict[str, Any]) -> dict[str, Any]:
    parser = engine(kinds=())
    parser.feed(b"".join(json.dumps(record).encode() + b"\n" for record in records))
    parser.close()
    got: dict[str, Any] = parser.run()
    return got


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "content": content}


def done(response: str) -> dict[str, Any]:
    return {"type": "done", "content": response, "response": response}


def task(call_id: str, agent: str) -> dict[str, Any]:
    return {"type": "tool_call", "name": "task", "args": {"subagent_type": agent}, "id": call_id}


def result(call_id: str, **where: str) -> dict[str, Any]:
    kind = "subagent_tool_result" if where else "tool_result"
    return {"type": kind, "name": "x", "content": "ok", "success": True, "id": call_id, **where}


def test_a_failed_run_stays_failed_though_a_done_follows(engine: Any) -> None:
    got = run(engine, text("Half"), {"type": "error", "message": "boom"}, done("Half"))
    assert got["verdict"]["outcome"] == "failed"
    assert got["texts"] == ["Half"]


def test_two_runs_in_one_stream_do_not_share_their_texts(engine: Any) -> None:
    got = run(engine, text("One"), {"type": "error", "message": "boom"}, text("Two"), USAGE, done("Two"))
    assert (got["verdict"]["outcome"], got["texts"]) == ("completed", ["One", "Two"])
    got = run(engine, text("One"), USAGE, done("One"), USAGE, done("Two"))
    assert got["texts"] == ["One", "Two"]


def test_a_run_that_was_cut_behind_a_good_one_is_incomplete(engine: Any) -> None:
    got = run(engine, text("Done."), USAGE, done("Done."), text("Half"))
    assert (got["texts"], got["verdict"]["outcome"]) == (["Done.", "Half"], "incomplete")


def test_an_id_that_the_model_used_twice_names_two_calls(engine: Any) -> None:
    calls = [{"type": "tool_call", "name": "x", "args": {"n": n}, "id": "c"} for n in (1, 2)]
    got = run(
        engine, *calls, USAGE, result("c"), {**result("c"), "success": False}, text("Done."), USAGE, done("Done.")
    )
    assert [(call["input"]["n"], call["ok"]) for call in got["tool_calls"]] == [(1, True), (2, False)]


def test_sub_agents_side_by_side_may_use_the_same_call_ids(engine: Any) -> None:
    lines = [task("p1", "a"), task("p2", "b"), USAGE]
    for name, call_id in (("a", "p1"), ("b", "p2")):
        where = {"subagent": name, "instance_id": f"tools:{name}"}
        lines.append({"type": "subagent_start", "name": name, "description": "", "tool_call_id": call_id, **where})
        lines.append({"type": "subagent_tool_call", "name": "x", "args": {}, "id": "call_0", **where})
    for name, call_id in (("b", "p2"), ("a", "p1")):
        lines += [result("call_0", subagent=name, instance_id=f"tools:{name}"), result(call_id)]
    got = run(engine, *lines, text("End."), USAGE, done("End."))
    calls = [(call["id"], call["ok"], call["parent"]) for call in got["tool_calls"]]
    assert calls == [("p1", True, None), ("p2", True, None), ("call_0", True, "p1"), ("call_0", True, "p2")]


def test_a_sub_agent_without_an_instance_goes_by_its_name(engine: Any) -> None:
    """The records as the protocol's own page has them."""
    got = run(
        engine,
        task("p", "coder"),
        USAGE,
        {"type": "subagent_start", "name": "coder", "description": "Look."},
        {"type": "subagent_text", "subagent": "coder", "content": "Looking.", "instance_id": "i"},
        {"type": "subagent_tool_call", "subagent": "coder", "name": "x", "args": {}, "id": "s"},
        result("s", subagent="coder"),
        {"type": "subagent_end", "name": "coder"},
        result("p"),
        text("End."),
        done("End."),
    )
    assert got["texts"] == ["End."]
    assert [(call["id"], call["parent"]) for call in got["tool_calls"]] == [("p", None), ("s", "p")]
    assert [agent["texts"] for agent in got["subagents"]] == [["Looking."]]


def test_the_todos_of_a_sub_agent_are_not_the_plan_of_the_run(engine: Any) -> None:
    def todos(content: str, kind: str = "tool_call", **where: str) -> dict[str, Any]:
        args = {"todos": [{"content": content, "status": "pending"}]}
        return {"type": kind, "name": "write_todos", "args": args, "id": content, **where}

    start = {"type": "subagent_start", "name": "w", "description": "", "instance_id": "tools:x", "tool_call_id": "t"}
    kid = todos("kid", "subagent_tool_call", subagent="w", instance_id="tools:x")
    got = run(engine, todos("main"), task("t", "w"), USAGE, start, kid, result("t"), done(""))
    assert [entry["content"] for entry in got["plan"]] == ["main"]


def test_a_summary_in_parts_is_one_compaction(engine: Any) -> None:
    parts = [{"type": "summarization", "content": part} for part in ("So ", "far.")]
    for tail in ([text("End."), USAGE, done("End.")], []):
        got = run(engine, text("Step."), USAGE, {"type": "summarization_start"}, *parts, *tail)
        assert got["compactions"] == 1


def test_a_graded_answer_and_its_revision_are_two_texts(engine: Any) -> None:
    """Also where the model calls have no usage."""
    grade = {"type": "rubric_evaluation", "iteration": 0, "result": "needs_revision"}
    got = run(engine, text("No."), grade, text("Yes."), {**grade, "result": "satisfied"}, done("No.\n\nYes."))
    assert (got["texts"], got["verdict"]["outcome"]) == (["No.", "Yes."], "completed")


def test_a_sub_agent_behind_the_langgraph_server_goes_by_the_call_in_its_instance(engine: Any) -> None:
    where = {"subagent": "tools", "instance_id": "tools:p"}
    inner = {"type": "subagent_tool_call", "name": "x", "args": {}, "id": "s", **where}
    got = run(engine, task("p", "coder"), USAGE, inner, result("s", **where), result("p"), text("End."), done("End."))
    assert [(call["id"], call["ok"], call["parent"]) for call in got["tool_calls"]] == [
        ("p", True, None),
        ("s", True, "p"),
    ]


def test_a_damaged_id_of_a_call_makes_no_later_record_lossy() -> None:
    """A sub-agent's records have the id of its call from the record that began it. Both backends."""
    start = b'{"type":"subagent_start","name":"p","description":"","instance_id":"i","tool_call_id":"\\ud83d"}\n'
    text = b'{"type":"subagent_text","subagent":"p","content":"x","instance_id":"i"}\n'
    told = []
    for make in ENGINES.values():
        engine = make()
        events = engine.feed(start + text) + engine.close()
        told.append((events, engine.run()))
    assert all(one == told[0] for one in told)
    assert told[0][1]["report"]["lossy"] == 0
