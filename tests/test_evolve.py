"""What a user relies on when the stream already consists of OutputEvents."""

from __future__ import annotations

import json
from typing import Any

import pytest

import headrace
from headrace.pure import event as ev

from .engines import ENGINES
from .truth import Stream, recordings

SMALL = [stream for stream in recordings() if stream.kind == "live" and stream.path.stat().st_size < 8_000]


def lines(*events: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def update(kind: str, /, beside: dict[str, Any] | None = None, **facts: Any) -> dict[str, Any]:
    return {"update": {"sessionUpdate": kind, **facts}, **(beside or {})}


def chunk(text: str, kind: str = ev.MESSAGE, **beside: Any) -> dict[str, Any]:
    return update(kind, beside, content={"type": "text", "text": text})


def started(call_id: str, status: str = "pending", **beside: Any) -> dict[str, Any]:
    return update(ev.TOOL_CALL, beside, toolCallId=call_id, title="`ls`", kind="execute", status=status)


def ended(call_id: str, status: str = "completed", **beside: Any) -> dict[str, Any]:
    return update(ev.TOOL_CALL_UPDATE, beside, toolCallId=call_id, status=status)


def read(engine: Any, data: bytes) -> tuple[list[dict[str, Any]], Any]:
    parser = engine(kinds=ev.KINDS)
    return [*parser.feed(data), *parser.close()], parser


def shown(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["update"]["sessionUpdate"] != ev.STATE]


@pytest.mark.parametrize("stream", SMALL, ids=[stream.name for stream in SMALL])
def test_events_of_a_stream_go_through_as_they_are_and_reduce_to_the_same(stream: Stream) -> None:
    for engine in ENGINES.values():
        events, source = read(engine, stream.data)
        if not events:
            continue
        again, reader = read(engine, lines(*events))
        assert reader.detection[0] == "evolve"
        assert shown(again) == shown(events)
        run, same = source.run(), reader.run()
        for key in ("texts", "thinking"):  # two messages in a row with nothing between are one
            assert "".join(run[key]) == "".join(same[key])
        told = [sorted((c["id"], str(c["ok"]), str(c["parent"])) for c in r["tool_calls"]) for r in (run, same)]
        assert told[0] == told[1]
        for key in ("plan", "retries", "compactions"):
            assert run[key] == same[key]
        if stream.name.split("/")[0] in ("pi", "evosci", "minicode", "kimi", "kimi-code"):
            assert again == events
            assert run["usage"] == same["usage"]


def test_blocks_end_where_kind_or_message_changes_and_at_other_events() -> None:
    run = headrace.reduce(
        lines(
            chunk("One ", messageId="m-1"),
            chunk("text."),
            chunk("Another.", messageId="m-2"),
            chunk("Thought.", ev.THOUGHT),
            chunk("A third."),
            started("c"),
            chunk("The last."),
        )
    )
    assert run.texts == ["One text.", "Another.", "A third.", "The last."]


def test_a_sub_agent_in_between_ends_no_block_of_the_main_agent() -> None:
    run = headrace.reduce(lines(chunk("One "), chunk("Aside.", parentToolCallId="c"), chunk("text.")))
    assert run.texts == ["One text."]


def test_retract_takes_back_over_blocks() -> None:
    stream = lines(chunk("Half "), started("c"), chunk("an ans"), chunk("The answer.", extra={"retract": 11}))
    assert headrace.reduce(stream).texts == ["The answer."]
    assert list(headrace.events(stream))[-1]["extra"] == {"retract": 11}


def test_halves_of_a_character_over_two_chunks_are_joined() -> None:
    stream = b"".join(
        b'{"update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "%s"}}}\n' % half
        for half in (b"a\\ud83d", b"\\ude42b")
    )
    run = headrace.reduce(stream)
    assert (run.texts, run.report.lossy) == (["a\U0001f642b"], 0)


def test_an_update_may_come_before_its_call_and_an_id_may_come_again() -> None:
    run = headrace.reduce(lines(ended("a", "failed"), started("a"), started("a"), ended("a")))
    assert [call["ok"] for call in run.tool_calls] == [False, True]


def test_a_call_that_is_printed_again_as_ended_is_one_call() -> None:
    run = headrace.reduce(lines(started("a", "in_progress"), started("a", "completed")))
    assert [call["ok"] for call in run.tool_calls] == [True]


def test_the_last_usage_of_a_message_counts() -> None:
    def usage(prompt: int, message: str | None, scope: str = "call") -> dict[str, Any]:
        beside = {} if message is None else {"messageId": message}
        return update(ev.USAGE, beside, scope=scope, usage={"promptTokens": prompt})

    run = headrace.reduce(lines(usage(1, "m"), usage(5, "m"), usage(5, None), usage(5, None), usage(99, None, "run")))
    assert (run.usage["calls"]["prompt_tokens"], run.usage["run"]["prompt_tokens"]) == (15, 99)


def test_errors_that_are_not_fatal_are_notices() -> None:
    notice = update(ev.ERROR, message="Reconnecting... 1/5", fatal=False)
    fatal = update(ev.ERROR, message="Gave up.", fatal=True)
    good = headrace.reduce(lines(notice, chunk("Done.")))
    assert (good.verdict.outcome, good.errors) == ("completed", [])
    bad = headrace.reduce(lines(chunk("Half"), notice, fatal))
    assert (bad.verdict.outcome, [error["message"] for error in bad.errors]) == ("failed", ["Gave up."])


def test_states_decide_where_they_are_told() -> None:
    session = update(ev.STATE, state="session", sessionId="s-1", cwd="/p")
    end = update(ev.STATE, state="end", outcome="denied", reason="refused")
    run = headrace.reduce(lines(session, chunk("Text."), end))
    assert (run.session_id, run.cwd, run.verdict.outcome) == ("s-1", "/p", "denied")
    assert headrace.reduce(lines(session, chunk("Text."))).verdict.outcome == "incomplete"


def test_unknown_kinds_are_counted_by_name() -> None:
    run = headrace.reduce(lines(chunk("Text."), update("current_mode_update", currentModeId="plan")))
    assert run.report.unknown == {"current_mode_update": 1}


def test_acp_lines_are_not_evolve() -> None:
    event = chunk("Text.")
    rpc = {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", **event}}
    found = headrace.detect(lines(rpc))
    assert found is None or found.dialect != "evolve"
