"""Streamed text comes in rows of records that differ in little but a text. Where only the run is wanted, most of them
are read without the mapper: the run, the report and the events are the same."""

from __future__ import annotations

import copy
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace

TEXTS = ("a", " word", "", "\n", 'quoted "\\" text', "é漢😀", r"\ud83d", r"\ude00", r"\ud83d\ude00", "long " * 40)
# how harnesses begin what they say themselves
NOTICES = ("[API Error: no]", "API Error: 500", r"\u0045rror: no", "Error: no", "Warning: no", "Info: no", "\n\n")
HALF = "2026-01-01 \ud83d"


def line(record: dict[str, Any], text: str) -> str:
    """The record with the text, which may have escapes of its own, in place of TEXT."""
    written = text if r"\u" in text else json.dumps(text, ensure_ascii=False)[1:-1]
    return json.dumps(record, separators=(",", ":")).replace("TEXT", written)


def changed(record: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """The record with other members, at any depth; without those that are to be None."""
    inner = {k: changed(record.get(k) or {}, v) if isinstance(v, dict) else v for k, v in change.items()}
    return {key: value for key, value in {**record, **inner}.items() if not (key in change and value is None)}


def twin(value: Any) -> Any:
    """The same members with other values, and without halves of characters."""
    if isinstance(value, dict):
        return {key: twin(inner) for key, inner in value.items()}
    return (
        value.replace("\ud83d", "") + "2" if isinstance(value, str) else value + 1 if isinstance(value, int) else value
    )


def pi(kind: str, index: int, number: int) -> dict[str, Any]:
    event = {"type": kind, "contentIndex": index, "delta": "TEXT"}
    return {"type": "message_update", "usage": {"output": number}, "assistantMessageEvent": event}


def claude(kind: str, index: int, number: int) -> dict[str, Any]:
    key = {"thinking_delta": "thinking", "input_json_delta": "partial_json"}.get(kind, "text")
    event = {"type": "content_block_delta", "index": index, "delta": {"type": kind, key: "TEXT"}}
    session = {"session_id": "s", "parent_tool_use_id": None, "uuid": f"u{number}", "api_message_id": "m"}
    return {"type": "stream_event", "event": event, **session, "timestamp": f"2026-01-01T00:00:{number:02}Z"}


def qwen(kind: str, index: int, number: int) -> dict[str, Any]:
    key = {"thinking_delta": "thinking", "input_json_delta": "partial_json"}.get(kind, "text")
    event = {"type": "content_block_delta", "index": index, "delta": {"type": kind, key: "TEXT"}}
    return {"type": "stream_event", "uuid": f"u{number}", "session_id": "s", "parent_tool_use_id": None, "event": event}


def acp(kind: str, index: int, number: int) -> dict[str, Any]:
    update = {"sessionUpdate": kind, "messageId": f"msg_{index}", "content": {"type": "text", "text": "TEXT"}}
    meta = {"number": number}
    return {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update, "_meta": meta}}


def answer(number: int, **result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "result": result}


def agent(name: str) -> dict[str, Any]:
    return answer(0, protocolVersion=1, agentInfo={"name": name, "version": "1"}, agentCapabilities={})


def update(**members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": members}}


def of_update(**members: Any) -> dict[str, Any]:
    return {"params": {"update": members}}


def tokens(prompt: int) -> dict[str, int]:
    return {"inputTokens": prompt, "outputTokens": prompt, "totalTokens": 2 * prompt}


def gemini(kind: str, index: int, number: int) -> dict[str, Any]:
    time = f"2026-01-01T00:00:{number:02}Z"
    return {"type": "message", "timestamp": time, "role": kind, "content": "TEXT", "delta": True, "index": index}


def copilot(kind: str, index: int, number: int) -> dict[str, Any]:
    key = {"assistant.message_delta": "messageId", "assistant.reasoning_delta": "reasoningId"}.get(kind, "toolCallId")
    data = {key: f"{kind}{index}", "deltaContent": "TEXT"}
    time = {"id": f"r{number}", "timestamp": f"2026-01-01T00:00:{number:02}Z", "parentId": f"r{number - 1}"}
    return {"type": kind, "data": data, "ephemeral": True, **time}


def told(kind: str, **data: Any) -> dict[str, Any]:
    return {"type": kind, "data": data, "id": "x", "timestamp": "2026-01-01T00:01:00Z", "parentId": None}


def evosci(kind: str, index: int, number: int) -> dict[str, Any]:
    if kind == "subagent_text":
        return {"type": kind, "subagent": "planner", "content": "TEXT", "instance_id": f"tools:c{index}"}
    return {"type": kind, "content": "TEXT", "id": number}


def minicode(kind: str, index: int, number: int) -> dict[str, Any]:
    if kind == "text":
        return {"type": "text", "delta": "TEXT"}
    head = {"schema": "minicode.output.v1", "eventId": f"e{number}", "timestamp": f"2026-01-01T00:00:{number:02}Z"}
    return {**head, "sessionId": "s", "turnId": f"t{index}", "type": kind, "payload": {"delta": "TEXT"}}


def droid(kind: str, index: int, number: int) -> dict[str, Any]:
    inner = {"type": kind, "messageId": "m", "blockIndex": index, "textDelta": "TEXT", "timestamp": number}
    params = {"sessionId": "s", "notification": inner}
    return {"jsonrpc": "2.0", "factoryApiVersion": "1", "method": "droid.session_notification", "params": params}


def notified(kind: str, **members: Any) -> dict[str, Any]:
    params = {"sessionId": "s", "notification": {"type": kind, **members}}
    return {"jsonrpc": "2.0", "factoryApiVersion": "1", "method": "droid.session_notification", "params": params}


def kimi_wire(kind: str, index: int, number: int) -> dict[str, Any]:
    payload = {"type": kind, kind: "TEXT", "index": index}
    params = {"type": "ContentPart", "payload": payload}
    return {"jsonrpc": "2.0", "method": "event", "params": params, "number": number}


def wire(kind: str, **payload: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "event", "params": {"type": kind, "payload": payload}}


def codex(kind: str, index: int, number: int) -> dict[str, Any]:
    return {"id": str(number), "msg": {"type": kind, "item_id": f"i{index}", "delta": "TEXT"}}


def event(kind: str, **members: Any) -> dict[str, Any]:
    return {"id": "0", "msg": {"type": kind, **members}}


def appserver(kind: str, index: int, number: int) -> dict[str, Any]:
    if "/" not in kind:
        msg = {"type": kind, "delta": "TEXT", "item_id": f"i{index}"}
        params = {"id": str(number), "msg": msg, "conversationId": "c"}
        return {"method": f"codex/event/{kind}", "params": params}
    params = {"threadId": "t", "turnId": f"u{number}", "itemId": f"i{index}", "delta": "TEXT"}
    if kind.endswith("summaryTextDelta"):
        params["summaryIndex"] = "0"
    return {"method": kind, "params": params, "emittedAtMs": number}


def notification(method: str, **params: Any) -> dict[str, Any]:
    return {"method": method, "params": {"threadId": "t", **params}}


def evolve(kind: str, index: int, number: int) -> dict[str, Any]:
    stamp = {"sessionId": "s", "messageId": f"m{index}", "timestamp": f"2026-01-01T00:00:{number:02}Z", "model": "x"}
    return {"update": {"sessionUpdate": kind, "content": {"type": "text", "text": "TEXT"}}, **stamp}


CHUNKS = ["agent_message_chunk", "agent_thought_chunk", "user_message_chunk"]

# dialect: how to make a delta, its kinds, other records or a few at a time, and members that may differ
DIALECTS: dict[str, tuple[Any, list[str], list[Any], list[dict[str, Any]]]] = {
    "pi": (
        pi,
        ["text_delta", "thinking_delta", "toolcall_delta"],
        [
            {"type": "message_start", "message": {"role": "assistant", "model": "m", "content": []}},
            {
                "type": "message_end",
                "message": {"role": "assistant", "content": [{"type": "text", "text": "a word"}], "stopReason": "stop"},
            },
            {"type": "agent_settled"},
            {"type": "agent_start"},
        ],
        [{"timestamp": HALF}, {"usage": {"output": 1, "input": 2}}, {"type": "message_updated"}],
    ),
    "claude": (
        claude,
        ["text_delta", "thinking_delta", "input_json_delta"],
        [
            {
                "type": "stream_event",
                "event": {"type": "message_start", "message": {"id": "m", "model": "x", "usage": {"output_tokens": 1}}},
                "session_id": "s",
                "api_message_id": "m",
            },
            {"type": "stream_event", "event": {"type": "content_block_stop", "index": 0}, "session_id": "s"},
            {"type": "stream_event", "event": {"type": "message_stop"}, "session_id": "s", "api_message_id": "m"},
            {
                "type": "assistant",
                "message": {"id": "m", "content": [{"type": "text", "text": "a word"}]},
                "session_id": "s",
            },
            {"type": "result", "subtype": "success", "is_error": False, "result": "a", "session_id": "s"},
        ],
        [
            {"timestamp": HALF},
            {"session_id": "other"},
            {"parent_tool_use_id": "call"},
            {"api_message_id": "other"},
        ],
    ),
    "qwen": (
        qwen,
        ["text_delta", "thinking_delta", "input_json_delta"],
        [
            {"type": "stream_event", "event": {"type": "message_start"}, "parent_tool_use_id": None},
            {
                "type": "assistant",
                "message": {"id": "m", "content": [{"type": "text", "text": "a word[API Error: no]"}], "usage": {}},
                "parent_tool_use_id": None,
            },
            {
                "type": "user",
                "message": {"content": [{"type": "tool_result", "tool_use_id": "c", "content": "no"}]},
                "parent_tool_use_id": None,
            },
            {"type": "system", "subtype": "retry", "session_id": "s", "data": {"preserveText": False}},
            {
                "type": "result",
                "is_error": False,
                "result": "a",
                "subtype": "success",
                "permission_denials": [{"tool_use_id": "c"}],
            },
        ],
        [{"session_id": HALF}, {"parent_tool_use_id": "call"}],
    ),
    "acp": (
        acp,
        CHUNKS,
        [
            *map(agent, ("claude", "codex", "@agentclientprotocol/codex", "copilot", "factory", "gemini", "qwen")),
            answer(1, stopReason="end_turn"),
            {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "Internal error: no"}},
            {"jsonrpc": "2.0", "id": 1, "method": "session/prompt", "params": {"sessionId": "s", "prompt": []}},
            update(sessionUpdate="tool_call", toolCallId="call", title="task", rawInput={"agent_type": "x"}),
            update(sessionUpdate="tool_call_update", toolCallId="call", status="completed"),
            [
                agent("copilot"),
                update(sessionUpdate="tool_call", toolCallId="call", rawInput={"agent_type": "x"}),
                update(sessionUpdate="tool_call", toolCallId="call2", rawInput={"agent_type": "x"}),
            ],
            update(sessionUpdate="agent_message", messageId="msg_0", content=[{"type": "text", "text": "a word"}]),
            update(sessionUpdate="available_commands_update", availableCommands=[]),
        ],
        [
            {"params": {"sessionId": "ses_1"}},
            {"params": {"sessionId": HALF}},
            of_update(messageId=None),
            of_update(messageId="own"),
            of_update(_meta={"parentToolCallId": "call"}),
            of_update(_meta={"claudeCode": {"parentToolUseId": "call"}}),
            of_update(_meta={"github.com/copilot": {"agentId": "a"}}),
            of_update(_meta={"usage": tokens(0)}),
            of_update(content={"type": "image"}),
        ],
    ),
    "gemini": (
        gemini,
        ["assistant", "user", "system"],
        [
            {"type": "init", "timestamp": "2026", "session_id": "s", "model": "m"},
            {"type": "tool_use", "timestamp": "2026", "tool_name": "shell", "tool_id": "c", "parameters": {}},
            {
                "type": "tool_result",
                "timestamp": "2026",
                "tool_id": "c",
                "status": "error",
                "error": {"type": "policy_violation", "message": "no"},
            },
            {"type": "error", "timestamp": "2026", "severity": "warning", "message": "Loop detected"},
            {"type": "result", "timestamp": "2026", "status": "success", "stats": {"input_tokens": 1}},
        ],
        [{"timestamp": HALF}, {"type": "messages"}],
    ),
    "copilot": (
        copilot,
        ["assistant.message_delta", "assistant.reasoning_delta", "assistant.tool_call_delta"],
        [
            told("assistant.message", messageId="assistant.message_delta0", content="a word", toolRequests=[]),
            told("assistant.reasoning", reasoningId="assistant.reasoning_delta0", content="a word"),
            told("assistant.turn_start"),
            told("assistant.turn_retry", reason="no"),
            told("tool.execution_complete", toolCallId="c", success=False, error={"code": "denied", "message": "no"}),
            {**told("subagent.started", toolCallId="c", agentName="x"), "agentId": "a"},
            {"type": "result", "timestamp": "2026", "sessionId": "s", "exitCode": 0},
        ],
        [
            {"timestamp": HALF},
            {"agentId": "a"},
            {"data": {"parentToolCallId": "c"}},
        ],
    ),
    "evosci": (
        evosci,
        ["text", "thinking", "subagent_text"],
        [
            {"type": "tool_call", "id": "c0", "name": "task", "args": {"subagent_type": "planner"}},
            {"type": "tool_call", "id": "c1", "name": "task", "args": {"subagent_type": "writer"}},
            {"type": "tool_result", "id": "c0", "name": "task", "content": "done", "success": True},
            {"type": "model_retry", "attempt": 1, "discarded": {"text_chars": 2, "thinking_chars": 1}},
            {"type": "summarization", "content": "so far"},
            {"type": "interrupt", "interrupt_id": "i", "action_requests": []},
            {"type": "error", "message": "no"},
            {"type": "done", "content": "a word", "response": "a word"},
        ],
        [
            {"instance_id": HALF},
            {"subagent": "writer", "instance_id": "x"},
            {"subagent": "writer", "instance_id": None},
        ],
    ),
    "minicode": (
        minicode,
        ["reasoning.delta", "model.delta", "text"],
        [
            {"type": "turn.started", "sessionId": "s", "payload": {}, "schema": "minicode.output.v1"},
            {"type": "model.completed", "sessionId": "s", "payload": {"text": "a word"}},
            {"type": "turn.completed", "sessionId": "s", "payload": {}},
            {"id": 1, "error": {"category": "USER_ERROR", "message": "no"}},
            {"type": "summary", "ok": True, "text": "a word"},
        ],
        [
            {"timestamp": HALF},
            {"sessionId": "other"},
            {"payload": {"parentToolCallId": "c"}},
        ],
    ),
    "droid": (
        droid,
        ["assistant_text_delta", "thinking_text_delta", "tool_call_delta"],
        [
            notified("create_message", message={"id": "m", "role": "assistant", "content": [{"type": "text"}]}),
            notified(
                "create_message",
                message={"id": "m", "role": "assistant", "content": [{"type": "text", "text": "a word"}]},
            ),
            notified("droid_working_state_changed", newState="idle"),
            notified("child_session_available", childSessionId="other", toolUseId="c"),
            notified("agent_turn_completed", reason="completed"),
            notified("error", message="no"),
            notified("tool_call", toolUse={"type": "tool_use", "id": "c", "name": "Task", "input": {}}),
        ],
        [
            {"params": {"sessionId": HALF}},
            {"params": {"sessionId": "other"}},
            {"params": {"notification": {"messageId": "other"}}},
            {"params": {"notification": {"blockIndex": "x"}}},
        ],
    ),
    "kimi-wire": (
        kimi_wire,
        ["text", "think", "image_url"],
        [
            wire("TurnBegin", user_input="hi"),
            wire("StepBegin", n=1),
            wire("StatusUpdate", token_usage={"input_other": 1, "output": 2}, message_id="m"),
            wire("ToolCall", type="function", id="c", function={"name": "Shell", "arguments": "{"}),
            wire("ToolCallPart", arguments_part="}"),
            wire("StepRetry", next_attempt=2),
            wire("TurnEnd"),
            wire(
                "SubagentEvent",
                parent_tool_call_id="c",
                event={"type": "ContentPart", "payload": {"type": "text", "text": "sub"}},
            ),
            {"jsonrpc": "2.0", "id": "1", "result": {"status": "finished"}},
        ],
        [
            {
                "type": "context.append_loop_event",
                "event": {"type": "content.part", "part": {"type": "text", "text": "disk"}},
            },
            {"message": {"type": "ContentPart", "payload": {"type": "text", "text": "disk"}}},
            {"method": "request"},
        ],
    ),
    "codex": (
        codex,
        ["agent_message_delta", "agent_reasoning_delta", "agent_message_content_delta", "reasoning_content_delta"],
        [
            event("task_started"),
            event("agent_message", message="a word"),
            event("agent_reasoning", text="a word"),
            event("agent_reasoning_section_break"),
            event(
                "item_completed",
                item={"type": "AgentMessage", "id": "i0", "content": [{"type": "Text", "text": "a word"}]},
            ),
            event("exec_command_begin", call_id="c", command=["ls"]),
            event("exec_command_end", call_id="c", status="declined", exit_code=1),
            event("turn_aborted", reason="interrupted"),
            event("task_complete", last_agent_message="a word"),
        ],
        [
            {"msg": {"item_id": HALF}},
            {"msg": {"item_id": None}},
            {"type": "item.completed", "item": {"id": "i", "type": "agent_message", "text": "whole"}},
            {"workdir": "/w"},
        ],
    ),
    "codex-appserver": (
        appserver,
        ["item/agentMessage/delta", "item/reasoning/summaryTextDelta", "item/plan/delta", "agent_message_delta"],
        [
            notification("turn/started", turn={"id": "u"}),
            notification("turn/completed", turn={"id": "u", "status": "completed"}),
            notification("item/completed", item={"type": "agentMessage", "id": "i0", "text": "a word"}),
            notification(
                "item/started", item={"type": "collabAgentToolCall", "id": "c", "tool": "spawnAgent", "status": "x"}
            ),
            notification("item/completed", item={"type": "reasoning", "id": "i1", "summary": ["a word"]}),
            notification("thread/started", thread={"id": "other", "model": "m"}),
        ],
        [
            {"params": {"threadId": HALF}},
            {"params": {"threadId": "other"}},
            {"params": {"summaryIndex": 1}},
            {"params": {"thread": {"id": "third"}}},
        ],
    ),
    "evolve": (
        evolve,
        CHUNKS,
        [
            {"update": {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "x"}, "sessionId": "s"},
            {"update": {"sessionUpdate": "error", "message": "no", "fatal": True}},
            {"update": {"sessionUpdate": "state", "state": "turn", "phase": "start"}},
            {"update": {"sessionUpdate": "state", "state": "end", "outcome": "completed"}},
            {
                "update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": ""}},
                "messageId": "m0",
                "extra": {"retract": 2},
            },
        ],
        [
            {"timestamp": HALF},
            {"sessionId": "other"},
            {"model": "other"},
            {"messageId": None},
            {"messageId": ""},
            {"parentToolCallId": "c"},
            {"extra": {"retract": 0}},
        ],
    ),
}
# the same of v1
DIALECTS["codex-appserver v1"] = (
    appserver,
    DIALECTS["codex"][1],
    [
        {"method": "codex/event/task_started", "params": {"msg": {"type": "task_started"}, "conversationId": "c"}},
        {
            "method": "codex/event/agent_message",
            "params": {"msg": {"type": "agent_message", "message": "a word"}, "conversationId": "c"},
        },
        {
            "method": "codex/event/item_completed",
            "params": {
                "msg": {
                    "type": "item_completed",
                    "item": {"type": "AgentMessage", "id": "i0", "content": [{"type": "Text", "text": "a word"}]},
                },
                "conversationId": "c",
            },
        },
    ],
    [
        {"params": {"conversationId": HALF}},
        {"params": {"conversationId": "other"}},
        {"params": {"conversationId": None, "_meta": {"threadId": "x"}}},
        {"params": {"msg": {"item_id": None}}},
        {"method": "codex/event"},
    ],
)


@st.composite
def streams(draw: st.DrawFn, dialect: str) -> bytes:
    """Rows of deltas, and what may stand between and behind them."""
    make, kinds, others, changes = DIALECTS[dialect]
    lines, number = [], 0
    change = draw(st.sampled_from([{}, *changes]))
    few = [{}, change, twin(change), draw(st.sampled_from(changes))]
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from([kinds[0], kinds[0], *kinds]))
        for place in range(draw(st.integers(1, 12))):
            if place == 0 or draw(st.integers(0, 4)) == 0:
                index, change = draw(st.sampled_from([0, 0, 1])), draw(st.sampled_from(few))
            number += 1
            text = draw(st.sampled_from(TEXTS * 3 + NOTICES))
            lines.append(line(changed(make(kind, index, number), change), text))
        between = draw(st.sampled_from(["", "", "", "oops", "[1]", '{"type":"other"}', "record", "record"]))
        lines += scene(draw(st.sampled_from(others))) if between == "record" else [between]
    return draw(st.sampled_from(["\n", "\r\n"])).join(lines).encode() + b"\n"


def scene(records: dict[str, Any] | list[dict[str, Any]]) -> list[str]:
    """The lines of one record or of several."""
    return [json.dumps(record) for record in (records if isinstance(records, list) else [records])]


def name_of(dialect: str) -> str:
    """The dialect's name, without its era."""
    return dialect.split(" ")[0]


def one_by_one(stream: bytes, **options: Any) -> tuple[list[Any], Any, Any]:
    """Events, run and report of a stream that comes line by line: there are no rows, the mapper sees every record."""
    events = headrace.events(stream.splitlines(keepends=True), **options)
    return [*map(copy.deepcopy, events)], events.run.to_dict(), events.report


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_run_does_not_depend_on_who_wants_the_events(dialect: str) -> None:
    name = name_of(dialect)

    @settings(max_examples=100, deadline=None)
    @given(streams(dialect), st.integers(1, 900))
    def check(stream: bytes, size: int) -> None:
        told, run, report = one_by_one(stream, dialect=name)
        events = headrace.events([stream], dialect=name)
        assert [*map(copy.deepcopy, events)] == told
        assert (events.run.to_dict(), events.report) == (run, report)
        chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert headrace.reduce([stream], dialect=name).to_dict() == run
        assert headrace.reduce(chunks, dialect=name).to_dict() == run
        some = headrace.events(chunks, dialect=name, only={"error"})
        list(some)
        assert (some.run.to_dict(), some.report) == (run, report)

    check()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_row_goes_on_where_a_member_that_matters_is_another(dialect: str) -> None:
    """Two records that differ in one member of a few, each behind the other, when all that differs in them is known."""
    make, kinds, others, changes = DIALECTS[dialect]
    for kind, change, before in itertools.product(kinds, [{}, *changes], [[], *others]):
        for pair in [change, twin(change)], [{}, change]:
            lines = scene(before)
            for number, place in enumerate([0, 0, 0, 1, 1, 1, 0, 0, 1, 0, 1, 1, 0, 1]):
                index = place if change == {} else 0
                text = NOTICES[number % len(NOTICES)] if number > 6 else f"t{number} "
                lines += [
                    line(changed(make(kind, index, number), pair[place]), f"t{number} "),
                    line(changed(make(kind, index, number), pair[place]), text),
                ]
            stream = "\n".join(lines).encode() + b"\n"
            told, run, _ = one_by_one(stream, dialect=name_of(dialect))
            assert [*headrace.events([stream], dialect=name_of(dialect))] == told
            assert headrace.reduce([stream], dialect=name_of(dialect)).to_dict() == run


BIG = 2 << 20 if headrace.backend == "native" else 1 << 18  # what is decoded ahead is, by the native one


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_big_file_of_rows_gives_the_run_of_its_records(dialect: str, tmp_path: Path) -> None:
    path = tmp_path / "big.jsonl"

    @settings(max_examples=6, deadline=None)
    @given(st.lists(streams(dialect), min_size=3, max_size=6), st.sampled_from([100, 5_000, 1 << 28]))
    def check(parts: list[bytes], longest: int) -> None:
        # As long as one row, and as many parts of the same between them as make a big file.
        make, kinds, *_ = DIALECTS[dialect]
        row = b"".join(line(make(kinds[0], 0, number), "row ").encode() + b"\n" for number in range(900))
        stream = row + b"".join(parts)
        stream *= 1 + BIG // len(stream)
        path.write_bytes(stream)
        options: dict[str, Any] = {"dialect": name_of(dialect), "max_line_bytes": longest}
        told, run, report = one_by_one(stream, **options)
        assert headrace.reduce(path, **options).to_dict() == run
        events = headrace.events(path, **options)
        assert [*events] == told
        some = headrace.events(path, only={"error"}, **options)
        list(some)
        for it in events, some:
            assert (it.run.to_dict(), it.report) == (run, report)

    check()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_row_can_be_stopped_and_gone_on_with_after_each_record(dialect: str) -> None:
    make, kinds, *_ = DIALECTS[dialect]
    lines = [line(make(kinds[0], number // 7, number), f"t{number} ").encode() + b"\n" for number in range(20)]
    whole = headrace.reduce([b"".join(lines)], dialect=name_of(dialect)).to_dict()
    parser = headrace.Parser(dialect=name_of(dialect), only=())
    for part in lines:
        parser.feed(part)
        parser = headrace.Parser.restore(parser.snapshot())
    parser.close()
    assert parser.run.to_dict() == whole
    assert "".join(whole["texts"] or whole["thinking"]) == "".join(f"t{number} " for number in range(20))


def test_a_thought_after_a_refused_call_is_no_answer() -> None:
    """Claude: one rule, whether the record is like others before it or not."""
    refused = {
        "type": "user",
        "session_id": "s",
        "message": {"content": [{"type": "tool_result", "tool_use_id": "c", "content": "no", "is_error": True}]},
    }
    call = {"id": "m", "content": [{"type": "tool_use", "id": "c", "name": "Bash", "input": {"command": "ls"}}]}
    asked = {
        "type": "control_request",
        "request_id": "r",
        "request": {"subtype": "can_use_tool", "tool_name": "Bash", "input": {}, "tool_use_id": "c"},
    }
    start = {
        "type": "stream_event",
        "session_id": "s",
        "event": {"type": "message_start", "message": {"id": "n", "model": "x"}},
    }
    thoughts = [claude("thinking_delta", 0, number) | {"api_message_id": "n"} for number in range(6)]
    result: dict[str, Any] = {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "result": "",
        "session_id": "s",
    }
    denials: list[Any] = [{"tool_name": "Bash", "tool_use_id": "c", "tool_input": {}}]
    outcomes = set()
    for count in range(7):
        records = [{"type": "assistant", "message": call, "session_id": "s"}, asked, refused, start]
        records += [*thoughts[:count], {**result, "permission_denials": denials}]
        stream = "".join(line(record, "hm ") + "\n" for record in records).encode()
        for only in ((), None):
            parser = headrace.Parser(dialect="claude", only=only)
            parser.feed(stream)
            parser.close()
            outcomes.add(parser.run.verdict.outcome)
    assert outcomes == {"denied"}
