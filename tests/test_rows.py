"""Streamed text comes in rows of records that differ in little but a text. Where only the run is wanted, most of them are
read without the mapper: the run, the report and the events are the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import headrace

TEXTS = ("a", " word", "", "\n", 'quoted "\\" text', "é漢😀", r"\ud83d", r"\ude00", r"\ud83d\ude00", "long " * 40)
EXTRA: dict[str, Any] = {"timestamp": "2026-01-01T00:00:00Z"}
HALF: dict[str, Any] = {"timestamp": "\ud83d"}


def line(record: dict[str, Any], text: str) -> str:
    """The record with the text, which may have escapes of its own, in place of TEXT."""
    written = text if r"\u" in text else json.dumps(text, ensure_ascii=False)[1:-1]
    return json.dumps(record, separators=(",", ":")).replace("TEXT", written)


def pi(kind: str, index: int, number: int) -> dict[str, Any]:
    event = {"type": kind, "contentIndex": index, "delta": "TEXT"}
    return {"type": "message_update", "usage": {"output": number}, "assistantMessageEvent": event}


def claude(kind: str, index: int, number: int) -> dict[str, Any]:
    key = {"thinking_delta": "thinking", "input_json_delta": "partial_json"}.get(kind, "text")
    event = {"type": "content_block_delta", "index": index, "delta": {"type": kind, key: "TEXT"}}
    session = {"session_id": "s", "parent_tool_use_id": None, "uuid": f"u{number}", "api_message_id": "m"}
    return {"type": "stream_event", "event": event, **session}


# dialect: how to make a delta, its kinds, other records, and members that may differ for some records
DIALECTS: dict[str, tuple[Any, list[str], list[dict[str, Any]], list[dict[str, Any]]]] = {
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
        [EXTRA, HALF, {"usage": {"output": 1, "input": 2}}, {"type": "message_updated"}],
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
        [EXTRA, HALF, {"session_id": "other"}, {"parent_tool_use_id": "call"}, {"api_message_id": "other"}],
    ),
}


@st.composite
def streams(draw: st.DrawFn, dialect: str) -> bytes:
    """Rows of deltas, and what may stand between and behind them."""
    make, kinds, others, changes = DIALECTS[dialect]
    lines, number = [], 0
    for _ in range(draw(st.integers(1, 8))):
        kind, index = draw(st.sampled_from(kinds)), draw(st.integers(0, 2))
        change = draw(st.sampled_from([{}, {}, *changes]))
        for _ in range(draw(st.integers(1, 12))):
            number += 1
            lines.append(line({**make(kind, index, number), **change}, draw(st.sampled_from(TEXTS))))
        between = draw(st.sampled_from(["", "", "", "oops", "[1]", '{"type":"other"}', "record", "record"]))
        lines.append(json.dumps(draw(st.sampled_from(others))) if between == "record" else between)
    return draw(st.sampled_from(["\n", "\r\n"])).join(lines).encode() + b"\n"


def of_events(source: Any, dialect: str) -> tuple[Any, Any]:
    """The run and the report where every event is wanted: the mapper sees every record."""
    events = headrace.events(source, dialect=dialect)
    for _ in events:
        pass
    return events.run.to_dict(), events.report


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_run_does_not_depend_on_who_wants_the_events(dialect: str) -> None:
    @settings(max_examples=150, deadline=None)
    @given(streams(dialect), st.integers(1, 400))
    def check(stream: bytes, size: int) -> None:
        run, report = of_events([stream], dialect)
        chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert headrace.reduce(chunks, dialect=dialect).to_dict() == run
        some = headrace.events(chunks, dialect=dialect, only={"error"})
        list(some)
        assert (some.run.to_dict(), some.report) == (run, report)

    check()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_big_file_of_rows_gives_the_run_of_its_records(dialect: str, tmp_path: Path) -> None:
    path = tmp_path / "big.jsonl"

    @settings(max_examples=6, deadline=None)
    @given(st.lists(streams(dialect), min_size=3, max_size=6), st.sampled_from([100, 5_000, 1 << 28]))
    def check(parts: list[bytes], longest: int) -> None:
        # As long as one row, and as many parts of the same between them as make two megabytes.
        row = b"".join(line(DIALECTS[dialect][0]("text_delta", 0, n), "row ").encode() + b"\n" for n in range(900))
        stream = row + b"".join(parts)
        stream *= 1 + (2 << 20) // len(stream)
        path.write_bytes(stream)
        options: dict[str, Any] = {"dialect": dialect, "max_line_bytes": longest}
        events = headrace.events(path, **options)
        for _ in events:
            pass
        run = events.run.to_dict()
        assert headrace.reduce(path, **options).to_dict() == run
        some = headrace.events(path, only={"error"}, **options)
        list(some)
        assert (some.run.to_dict(), some.report) == (run, events.report)

    check()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_row_can_be_stopped_and_gone_on_with_after_each_record(dialect: str) -> None:
    make = DIALECTS[dialect][0]
    lines = [line(make("text_delta", number // 7, number), f"t{number} ").encode() + b"\n" for number in range(20)]
    whole = headrace.reduce([b"".join(lines)], dialect=dialect).to_dict()
    parser = headrace.Parser(dialect=dialect, only=())
    for part in lines:
        parser.feed(part)
        parser = headrace.Parser.restore(parser.snapshot())
    parser.close()
    assert parser.run.to_dict() == whole
    assert "".join(whole["texts"]) == "".join(f"t{number} " for number in range(20))


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
    result = {"type": "result", "subtype": "success", "is_error": False, "result": "", "session_id": "s"}
    denials = [{"tool_name": "Bash", "tool_use_id": "c", "tool_input": {}}]
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
