"""What a user relies on when the harness is OpenCode: its stream, and its stored sessions."""

from __future__ import annotations

import json
from typing import Any

import headrace

from .truth import DATA

FOLDER = DATA / "recordings" / "opencode"
TYPES = {"step-start": "step_start", "tool": "tool_use", "step-finish": "step_finish"}


def lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def printed(kind: str, number: int, message: str = "msg_1", **facts: Any) -> dict[str, Any]:
    part = {"type": kind, "id": f"prt_{number:03}", "messageID": message, "sessionID": "ses_1D", **facts}
    return {"type": TYPES.get(kind, kind), "timestamp": 1795977106954, "sessionID": "ses_1D", "part": part}


def start(number: int, message: str = "msg_1") -> dict[str, Any]:
    return printed("step-start", number, message)


def finish(number: int, reason: str = "stop", message: str = "msg_1", **tokens: Any) -> dict[str, Any]:
    return printed("step-finish", number, message, reason=reason, cost=0.5, tokens=tokens)


def call(number: int, tool: str = "bash", message: str = "msg_1", **state: Any) -> dict[str, Any]:
    told = {"status": "completed", "input": {}, "output": "out", "title": "t", "metadata": {}, **state}
    return printed("tool", number, message, tool=tool, callID=f"call_{number}", state=told)


def failure(name: str, message: str) -> dict[str, Any]:
    error = {"name": name, "data": {"message": message}}
    return {"type": "error", "timestamp": 1795977106954, "sessionID": "ses_1D", "error": error}


def outcome(*records: dict[str, Any]) -> str:
    return headrace.reduce(lines(*records)).verdict.outcome


# ---------------------------------------------------------------- the stream


def test_a_step_that_broke_off_without_an_answer_is_no_success() -> None:
    """The provider's stream ended without a reason and said nothing: OpenCode stops and exits with 0."""
    nothing = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    thought, text = printed("reasoning", 2, text="Let me"), printed("text", 2, text="So.")
    assert outcome(start(1), thought, finish(3, "unknown", **nothing)) == "failed"
    assert outcome(start(1), finish(3, "unknown", **nothing)) == "failed"
    assert outcome(start(1), text, finish(3, "unknown")) == "completed"  # some providers never give a reason
    assert outcome(start(1), text, call(2), finish(3, "unknown")) == "incomplete"  # no model read the result
    went_on = [start(4, "msg_2"), printed("text", 5, "msg_2", text="Done."), finish(6, "stop", "msg_2")]
    run = headrace.reduce(lines(start(1), thought, finish(3, "unknown", **nothing), *went_on))
    assert (run.verdict.outcome, run.errors) == ("completed", [])


def test_a_call_whose_result_was_cleared_from_the_context_is_not_another_call() -> None:
    """They are printed again, in a session that was resumed those of its earlier turns too."""
    cleared = {"time": {"start": 1, "end": 2, "compacted": 3}}
    stream = [start(11), call(12), finish(13, "tool-calls"), start(21, "msg_2")]
    stream += [printed("text", 22, "msg_2", text="Ok."), call(12, **cleared), finish(23, message="msg_2")]
    stream += [call(2, "read", "msg_0", **cleared), call(12)]
    run = headrace.reduce(lines(*stream))
    assert [c["id"] for c in run.tool_calls] == ["call_12"]
    assert (run.texts, run.verdict.outcome) == (["Ok."], "completed")
    assert run.report.ignored == {"call again": 3}


def test_parts_are_put_in_the_order_of_the_model_and_told_at_once() -> None:
    stream = lines(
        start(1), printed("text", 5, text="Then this."), call(4), call(3), printed("text", 2, text="First. ")
    )
    assert [e["update"]["sessionUpdate"] for e in headrace.events(stream)].count("tool_call") == 2
    run = headrace.reduce(stream)
    assert run.texts == ["First. ", "Then this."]
    assert [c["id"] for c in run.tool_calls] == ["call_3", "call_4"]
    chunks = list(headrace.events(stream, only={"agent_message_chunk"}))
    assert [(c["update"]["content"]["text"], c.get("extra")) for c in chunks] == [
        ("Then this.", None),
        ("First. ", {"retract": 10}),
        ("Then this.", None),
    ]


def test_a_retry_takes_back_what_the_try_before_it_said() -> None:
    thought = printed("reasoning", 2, text="Hm.")
    run = headrace.reduce(lines(start(1), thought, start(3), printed("reasoning", 4, text="Hm."), finish(5)))
    assert run.thinking == ["Hm."]
    assert run.verdict.outcome == "completed"


def test_a_failed_command_has_not_succeeded_whatever_its_status_says() -> None:
    run = headrace.reduce(lines(start(1), call(2, metadata={"exit": 3}), call(3, metadata={"exit": 0}), finish(4)))
    assert [(c["ok"], c["exit_code"]) for c in run.tool_calls] == [(False, 3), (True, 0)]


def test_a_call_of_a_tool_that_is_not_there_keeps_the_name_the_model_said() -> None:
    run = headrace.reduce(
        lines(start(1), call(2, "invalid", input={"tool": "nope", "error": "no such tool"}), finish(3))
    )
    (only,) = run.tool_calls
    assert (only["name"], only["input"], only["ok"]) == ("nope", None, False)


def test_an_edit_shows_its_diff_and_its_line() -> None:
    patch = "Index: /p/f\n--- /p/f\n+++ /p/f\n@@ -7,2 +7,2 @@\n a\n-b\n+c\n"
    edit = call(2, "edit", input={"filePath": "/p/f", "oldString": "b", "newString": "c"}, metadata={"diff": patch})
    opened, closed = (
        e["update"] for e in headrace.events(lines(start(1), edit), only={"tool_call", "tool_call_update"})
    )
    assert opened["content"] == [{"type": "diff", "path": "/p/f", "oldText": "b", "newText": "c"}]
    assert {"type": "diff", "path": "/p/f", "oldText": "a\nb\n", "newText": "a\nc\n"} in closed["content"]
    assert closed["locations"] == [{"path": "/p/f", "line": 7}]


def test_todos_are_a_plan_besides_the_call() -> None:
    todos = [{"content": "Look", "status": "in_progress", "priority": "high"}]
    run = headrace.reduce(lines(start(1), call(2, "todowrite", input={"todos": todos}), finish(3)))
    assert [(entry["content"], entry["status"]) for entry in run.plan] == [("Look", "in_progress")]
    assert len(run.tool_calls) == 1


def test_tokens_of_every_version_are_counted_the_same() -> None:
    cache = {"read": 30, "write": 10}
    for tokens in (
        {"total": 149, "input": 60, "output": 40, "reasoning": 9, "cache": cache},  # now
        {"total": 149, "input": 60, "output": 49, "reasoning": 9, "cache": cache},  # 1.2
        {"input": 60, "output": 49, "reasoning": 9, "cache": cache},  # 1.1
    ):
        calls = headrace.reduce(lines(start(1), finish(2, **tokens))).usage["calls"]
        assert (calls["prompt_tokens"], calls["completion_tokens"], calls["cached_tokens"]) == (100, 49, 30)


def test_the_reason_of_the_last_step_is_the_outcome() -> None:
    said = printed("text", 2, text="So.")
    assert outcome(start(1), said, finish(3)) == "completed"
    assert outcome(start(1), said, finish(3, "length")) == "limit"
    assert outcome(start(1), said, finish(3, "content-filter"), failure("ContentFilterError", "no")) == "failed"
    assert outcome(start(1), said, finish(3, "tool-calls")) == "incomplete"
    assert outcome(start(1), said) == "incomplete"
    refused = call(2, status="error", error="The user rejected permission to use this tool.")
    ruled = call(2, status="error", error="A rule prevents this call.")
    assert outcome(start(1), refused, finish(3, "tool-calls")) == "denied"
    assert outcome(start(1), ruled, finish(3, "tool-calls")) == "incomplete"


def test_an_error_is_fatal_unless_the_work_goes_on() -> None:
    full = failure("ContextOverflowError", "too long")
    run = headrace.reduce(
        lines(start(1), full, start(2, "msg_2"), printed("text", 3, "msg_2", text="On."), finish(4, message="msg_2"))
    )
    assert (run.verdict.outcome, [e["fatal"] for e in run.errors]) == ("completed", [False])
    assert outcome(start(1), full) == "limit"
    run = headrace.reduce(lines(failure("UnknownError", "Boom")))
    assert (run.verdict.outcome, run.errors[0]["message"], run.errors[0]["fatal"]) == ("failed", "Boom", True)


def second(number: int, own: str, message: str = "msg_1", **state: Any) -> dict[str, Any]:
    """A call as 2.0 prints it."""
    told = {"status": "completed", "input": {}, "output": "out", "title": "shell", **state}
    record = printed("tool", number, message, tool="shell", partID=f"prt_{number:03}", state=told)
    record["part"]["id"] = own
    return record


def broken(kind: str, message: str, **facts: Any) -> dict[str, Any]:
    error = {"type": kind, "message": message, **facts}
    return {"type": "error", "timestamp": 1795977106954, "sessionID": "ses_1D", "error": error}


def test_calls_of_the_second_version_stand_where_the_model_made_them_and_tell_their_exit_code() -> None:
    used = {"input": 10, "output": 5, "reasoning": 3, "cache": {"read": 0, "write": 0}}
    shell = second(13, "call_1", metadata={"metadata": {"exit": 2}, "content": []})
    stream = [start(11), shell, printed("text", 12, text="Look."), finish(14, "tool-calls", **used)]
    stream += [start(21, "msg_2"), printed("text", 22, "msg_2", text="Ok."), finish(23, message="msg_2", **used)]
    run = headrace.reduce(lines(*stream))
    assert [(c["id"], c["ok"], c["exit_code"]) for c in run.tool_calls] == [("call_1", False, 2)]
    assert (run.texts, run.verdict.outcome) == (["Look.", "Ok."], "completed")
    assert run.usage.calls["completion_tokens"] == 16  # the output leaves out the reasoning


def test_a_failure_of_the_second_version_is_one_and_may_be_followed_by_more() -> None:
    run = headrace.reduce(lines(broken("provider.no-route", "Model unavailable: a/b")))
    assert (run.dialect, run.session_id, run.verdict.outcome) == ("opencode", "ses_1D", "failed")
    assert [error["message"] for error in run.errors] == ["Model unavailable: a/b"]
    assert outcome(start(1), broken("aborted", "Session interrupted: shutdown")) == "cancelled"
    lost = broken("provider.transport", "ECONNRESET", status=200)
    assert outcome(start(1), lost, start(2), printed("text", 3, text="Ok."), finish(4)) == "completed"


def test_a_call_that_a_person_declines_ends_a_run_of_the_second_version_as_denied() -> None:
    """2.0.15 prints the error of it, then the call; others the call, with the error or without."""
    gone = broken("aborted", "Session interrupted: shutdown")
    declined = second(13, "call_1", status="error", error="The user declined this tool call")
    before = [start(11), printed("text", 12, text="Look.")]
    for stream in ([gone, declined], [declined, gone], [declined]):
        run = headrace.reduce(lines(*before, *stream))
        assert (run.verdict.outcome, run.final_text, run.tool_calls[0]["ok"]) == ("denied", "Look.", False)
    assert outcome(*before, gone) == "cancelled"
    assert outcome(*before, declined, start(21, "msg_2"), printed("text", 22, "msg_2"), finish(23)) == "completed"


def test_a_used_up_quota_is_a_limit() -> None:
    run = headrace.reduce(lines(start(1), broken("provider.quota", "Usage limit reached", status=429)))
    assert (run.verdict.outcome, [error["message"] for error in run.errors]) == ("limit", ["Usage limit reached"])


# ---------------------------------------------------------------- stored sessions


def test_an_export_a_dump_of_the_database_and_the_stream_tell_the_same_run() -> None:
    for name in ("tools", "plan", "hello", "image"):
        runs = [headrace.reduce(FOLDER / f"{name}.{end}.gz") for end in ("jsonl", "session.json", "sqlite-rows.jsonl")]
        stream, export, rows = runs
        assert [run.dialect for run in runs] == ["opencode", "opencode-export", "opencode-export"]
        for stored in (export, rows):
            assert (stored.texts, stored.verdict.outcome) == (stream.texts, stream.verdict.outcome)
            assert [c["id"] for c in stored.tool_calls if c["parent"] is None] == [c["id"] for c in stream.tool_calls]
            assert stored.usage["calls"]["prompt_tokens"] >= stream.usage["calls"]["prompt_tokens"]


def test_a_dump_has_what_the_sub_agent_said_under_its_call() -> None:
    run = headrace.reduce(FOLDER / "plan.sqlite-rows.jsonl.gz")
    (agent,) = run.subagents
    task = next(c for c in run.tool_calls if c["name"] == "task")
    assert agent["tool_call_id"] == task["id"]
    assert agent["texts"]
    assert not set(agent["texts"]) & set(run.texts)


def test_a_stored_session_has_the_text_that_the_interrupt_cut() -> None:
    assert headrace.reduce(FOLDER / "v1.1.34-sigint.jsonl.gz").texts == ["Before the end."]
    run = headrace.reduce(FOLDER / "v1.1.34-sigint.storage-files.jsonl.gz")
    assert run.verdict.outcome == "incomplete"
    assert run.texts[0] == "Before the end."
    assert run.texts[1].startswith("This is a slow text")
    assert [m["text"] for m in run.messages if m["role"] == "user"] == ['"MAINMARK please do the scripted work"\n']


def test_a_stored_message_that_failed_ends_the_turn() -> None:
    run = headrace.reduce(FOLDER / "fatal400.session.json.gz")
    assert (run.verdict.outcome, run.errors[0]["message"]) == ("failed", "messages.3: bad request on purpose")


# ---------------------------------------------------------------- exports of 2.0

TIME = {"created": 1789589781193, "completed": 1789589782193}
MODEL = {"id": "glm-5", "providerID": "x"}
SPENT = {"input": 50, "output": 10, "reasoning": 3, "cache": {"read": 2, "write": 0}}


def exported(*messages: dict[str, Any]) -> headrace.Run:
    """The document that 2.0 exports."""
    info = {"id": "ses_2", "projectID": "p", "model": MODEL, "cost": 0.5, "tokens": SPENT, "title": "T", "time": TIME}
    numbered = [{"id": f"msg_{number}", "time": TIME, **message} for number, message in enumerate(messages)]
    document = {"info": {**info, "location": {"directory": "/project"}}, "messages": numbered}
    return headrace.reduce(json.dumps(document, indent=2).encode())


def step(*content: dict[str, Any], finish: str | None = "stop", **facts: Any) -> dict[str, Any]:
    told = {
        "type": "assistant",
        "agent": "build",
        "model": MODEL,
        "content": list(content),
        "cost": 0.25,
        "tokens": SPENT,
    }
    return {**told, **({} if finish is None else {"finish": finish}), **facts}


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def used(own: str, name: str, **state: Any) -> dict[str, Any]:
    time = {"created": 1789589781193, "ran": 1789589781200, "completed": 1789589781300}
    return {"type": "tool", "id": own, "name": name, "state": {"input": {}, **state}, "time": time}


def idle(outcome: str) -> dict[str, Any]:
    return {"type": "idle", "outcome": outcome}


PROMPT = {"type": "user", "text": "Hi"}


def test_an_export_of_the_second_version_tells_the_session() -> None:
    shell = used("c1", "shell", status="completed", content=[said("out")], metadata={"exit": 1})
    read = used("c2", "read", status="error", error={"type": "tool.execution", "message": "no such file"})
    image = {"mime": "image/png", "data": "QUJD", "source": {"type": "inline"}}
    run = exported(
        {"type": "model-switched", "model": MODEL},
        {**PROMPT, "files": [image]},
        step({"type": "reasoning", "text": "Hm."}, said("Look."), shell, read, finish="tool-calls"),
        {"type": "synthetic", "text": "Go on."},
        step(said("Done.")),
        idle("succeeded"),
    )
    assert (run.dialect, run.session_id, run.model, run.cwd) == ("opencode-export", "ses_2", "glm-5", "/project")
    assert (run.verdict.outcome, run.texts, run.thinking) == ("completed", ["Look.", "Done."], ["Hm."])
    users = [(m["text"], m["images"]) for m in run.messages if m["role"] == "user"]
    assert users == [("Hi", 0), ("", 1), ("Go on.", 0)]
    calls = [(c["id"], c["ok"], c["result"], c["exit_code"], c["duration_ms"]) for c in run.tool_calls]
    assert calls == [("c1", False, "out", 1, 100), ("c2", False, "no such file", None, 100)]
    assert (run.usage.calls["count"], run.usage.calls["prompt_tokens"]) == (2, 104)
    assert (run.usage.calls["completion_tokens"], run.usage.run["completion_tokens"]) == (26, 13)


def test_how_a_session_of_the_second_version_came_to_rest_is_its_end() -> None:
    lost = {"type": "provider.auth", "message": "HTTP 401", "status": 401}
    gone = {"type": "aborted", "message": "Step interrupted"}
    declined = used(
        "c1", "shell", status="error", error={"type": "aborted", "message": "The user declined this tool call"}
    )
    on = step(said("Look."), finish="tool-calls")
    ends = {
        "completed": [[on, step(said("Ok.")), idle("succeeded")], [step(said("Ok."))], [on, idle("succeeded")]],
        "failed": [[step(finish="error", error=lost), idle("failed")], [step(said("Ok.")), idle("failed")]],
        "cancelled": [[step(finish="error", error=gone), idle("interrupted")], [on, idle("interrupted")]],
        "denied": [[step(declined, finish="error", error=gone), idle("interrupted")]],
        "limit": [[step(said("Cut"), finish="length"), idle("succeeded")]],
        "incomplete": [[], [on], [step(said("Ok.")), idle("succeeded"), PROMPT]],
    }
    for outcome, sessions in ends.items():
        for session in sessions:
            assert exported(PROMPT, *session).verdict.outcome == outcome


def test_a_step_of_the_second_version_that_failed_may_be_followed_by_another() -> None:
    lost = {"type": "provider.transport", "message": "ECONNRESET"}
    run = exported(PROMPT, step(said("One"), finish="error", error=lost), step(said("two.")), idle("succeeded"))
    assert (run.verdict.outcome, run.texts) == ("completed", ["One", "two."])
    assert [error["message"] for error in run.errors] == ["ECONNRESET"]


def test_a_compaction_of_the_second_version_and_a_command_of_the_user_are_no_answers() -> None:
    shrunk = {"type": "compaction", "status": "completed", "reason": "auto", "summary": "Before.", "recent": ""}
    shell = {"type": "shell", "shellID": "sh_1", "command": "ls", "status": "exited", "exit": 0}
    run = exported({**shell, "output": {"output": "a\n"}}, PROMPT, {**shrunk, "tokens": SPENT}, step(said("Ok.")))
    assert (run.texts, run.compactions, run.usage.calls["count"]) == (["Ok."], 1, 2)
    assert [(c["name"], c["input"], c["ok"], c["result"]) for c in run.tool_calls] == [
        ("shell", {"command": "ls"}, True, "a\n")
    ]
