"""ACP beyond the recordings: parts of the protocol that no agent printed for us, both directions in one log, and agents
that say the same thing in their own ways."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from headrace.pure import event as ev

from .engines import ENGINES

SESSION = "sess_1"


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> Any:
    return ENGINES[request.param]


def answer(id: Any, **result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def fails(id: Any, code: int, message: str, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message, **more}}


def hello(agent: str = "an agent", version: int = 1) -> dict[str, Any]:
    if version > 1:
        return answer(0, protocolVersion=version, capabilities={}, info={"name": agent, "version": "1"})
    return answer(0, protocolVersion=1, agentCapabilities={}, agentInfo={"name": agent, "version": "1"})


NEW = answer(1, sessionId=SESSION)
END = answer(2, stopReason="end_turn")


def update(kind: str, /, **rest: Any) -> dict[str, Any]:
    params = {"sessionId": SESSION, "update": {"sessionUpdate": kind, **rest}}
    return {"jsonrpc": "2.0", "method": "session/update", "params": params}


def says(text: str, kind: str = "agent_message_chunk", /, **rest: Any) -> dict[str, Any]:
    return update(kind, content={"type": "text", "text": text}, **rest)


def asks(id: Any, call: str, **rest: Any) -> dict[str, Any]:
    options = [
        {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
        {"optionId": "no", "name": "No", "kind": "reject_once"},
    ]
    params = {"sessionId": SESSION, "toolCall": {"toolCallId": call, **rest}, "options": options}
    return {"jsonrpc": "2.0", "id": id, "method": "session/request_permission", "params": params}


def request(id: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def wrapped(text: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": text}}


def read(engine: Any, *lines: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    parser = engine(kinds=ev.KINDS)
    events = parser.feed(b"".join(json.dumps(line).encode() + b"\n" for line in lines)) + parser.close()
    run = parser.run()
    assert run["dialect"] == "acp"
    return events, run


def states(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    updates = [event["update"] for event in events]
    return [u for u in updates if u["sessionUpdate"] == "state" and u["state"] == name]


# ---------------------------------------------------------------- version 2 and the unstable parts


def test_version_2_ends_a_turn_by_state_and_not_by_an_answer(engine: Any) -> None:
    events, run = read(
        engine,
        hello(version=2),
        NEW,
        answer(2),
        update("user_message", messageId="u1", content=[{"type": "text", "text": "do it"}]),
        update("state_update", state="running"),
        says("I will", messageId="m1"),
        update("tool_call_update", toolCallId="c1", title="Run", kind="execute", status="pending"),
        update("tool_call_content_chunk", toolCallId="c1", content=wrapped("one")),
        update("tool_call_content_chunk", toolCallId="c1", content=wrapped("two")),
        update("tool_call_update", toolCallId="c1", status="completed"),
        update("tool_call_update", toolCallId="c2", title="Stop", status="cancelled"),
        update("agent_message", messageId="m1", content=[{"type": "text", "text": "I would."}]),
        update("state_update", state="idle", stopReason="end_turn"),
    )
    assert run["verdict"]["outcome"] == "completed"
    assert run["texts"] == ["I would."]
    assert [message["role"] for message in run["messages"]] == ["user", "assistant"]
    assert [(call["id"], call["ok"], call["result"]) for call in run["tool_calls"]] == [
        ("c1", True, "one\ntwo"),
        ("c2", False, None),
    ]
    assert [state["phase"] for state in states(events, "turn")] == ["start", "end"]


def test_version_2_tells_the_usage_of_a_turn_where_it_ends(engine: Any) -> None:
    used = {"totalTokens": 12, "inputTokens": 10, "outputTokens": 2}
    running, idle = update("state_update", state="running"), update("state_update", state="idle", stopReason="end_turn")
    idle["params"]["update"]["usage"] = used
    _, run = read(engine, hello(version=2), NEW, answer(2), running, says("So", messageId="m"), idle)
    assert run["usage"]["run"]["prompt_tokens"] == 10


def test_version_2_says_its_last_reason_again_and_that_is_no_other_turn(engine: Any) -> None:
    running, idle = update("state_update", state="running"), update("state_update", state="idle", stopReason="end_turn")
    idle["params"]["update"]["usage"] = {"totalTokens": 12, "inputTokens": 10, "outputTokens": 2}
    events, run = read(engine, hello(version=2), NEW, idle, answer(2), running, says("So", messageId="m"), idle, idle)
    assert [state["phase"] for state in states(events, "turn")] == ["start", "end"]
    assert run["usage"]["run"]["prompt_tokens"] == 10


def test_version_2_says_why_a_turn_failed(engine: Any) -> None:
    error = {"code": -32603, "message": "The provider is overloaded"}
    idle = update("state_update", state="idle", stopReason="error", error=error)
    _, run = read(engine, hello(version=2), NEW, answer(2), update("state_update", state="running"), idle)
    assert run["verdict"]["outcome"] == "failed"
    assert [error["message"] for error in run["errors"]] == ["The provider is overloaded"]


def test_version_2_waits_for_idle(engine: Any) -> None:
    _, run = read(
        engine, hello(version=2), NEW, answer(2), update("state_update", state="running"), says("So", messageId="m")
    )
    assert run["verdict"]["outcome"] == "incomplete"


def test_unstable_updates(engine: Any) -> None:
    entries = [{"content": "one", "priority": "high", "status": "cancelled"}]
    events, run = read(
        engine,
        hello(),
        NEW,
        update("plan_update", plan={"type": "items", "planId": "p", "entries": entries}),
        update("notice", severity="warning", title="No MCP", description="going on"),
        update("notice", severity="info", title="hello"),
        update("compaction_update", compactionId="k", status="in_progress"),
        update("compaction_update", compactionId="k", status="completed", summary=[{"type": "text", "text": "short"}]),
        says("done"),
        END,
        update("something_new", field=1),
    )
    assert run["plan"] == [{"content": "one", "status": "completed", "priority": "high"}]
    assert run["errors"] == []
    assert [e["update"]["message"] for e in events if e["update"]["sessionUpdate"] == "error"] == ["No MCP: going on"]
    assert run["compactions"] == 1
    assert states(events, "compaction")[-1]["summary"] == "short"
    assert run["verdict"]["outcome"] == "completed"
    assert sum(run["report"]["unknown"].values()) == 1


def test_blocks_without_a_shape_go_along_as_they_are(engine: Any) -> None:
    link = {"type": "resource_link", "name": "f", "uri": "file:///f"}
    picture = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    events, run = read(
        engine,
        hello(),
        NEW,
        says("See "),
        update("agent_message_chunk", content=link),
        update("agent_message_chunk", content=picture),
        says("that"),
        update("tool_call", toolCallId="c", title="t", content=[{"type": "terminal", "terminalId": "x"}]),
        END,
    )
    chunks = [event for event in events if event["update"]["sessionUpdate"] == "agent_message_chunk"]
    assert chunks[1]["extra"] == {"content": link}
    assert chunks[2]["update"]["content"] == picture
    assert run["texts"] == ["See ", "that"]
    call = next(event for event in events if event["update"]["sessionUpdate"] == "tool_call")
    assert call["extra"] == {"content": [{"type": "terminal", "terminalId": "x"}]}


# ---------------------------------------------------------------- both directions


def merged(decision: dict[str, Any], *rest: dict[str, Any]) -> list[dict[str, Any]]:
    """Both sides in one log; the agent's question has the id of the client's prompt."""
    return [
        request(0, "initialize", protocolVersion=1, clientCapabilities={}),
        hello(),
        request(1, "session/new", cwd="/w", mcpServers=[]),
        NEW,
        request(2, "session/prompt", sessionId=SESSION, prompt=[{"type": "text", "text": "go"}]),
        says("Trying."),
        update("tool_call", toolCallId="c1", title="rm", kind="execute", status="pending", rawInput={"command": "rm"}),
        asks(2, "c1", title="rm"),
        answer(2, outcome=decision),
        update("tool_call_update", toolCallId="c1", status="failed", content=[wrapped("no")]),
        *rest,
        END,
    ]


def test_a_refusal_in_a_merged_log_is_denied(engine: Any) -> None:
    events, run = read(engine, *merged({"outcome": "selected", "optionId": "no"}))
    assert run["verdict"]["outcome"] == "denied"
    assert run["cwd"] == "/w"
    assert [(m["role"], m["text"]) for m in run["messages"]] == [("user", "go"), ("assistant", "Trying.")]
    assert [(s["phase"], s["toolCallId"]) for s in states(events, "approval")] == [
        ("requested", "c1"),
        ("settled", "c1"),
    ]


def test_an_allowed_call_that_fails_is_no_refusal(engine: Any) -> None:
    _, run = read(engine, *merged({"outcome": "selected", "optionId": "yes"}))
    assert run["verdict"]["outcome"] == "completed"


def test_a_thought_after_a_refusal_is_no_answer(engine: Any) -> None:
    thought = says("Hm.", "agent_thought_chunk")
    _, run = read(engine, *merged({"outcome": "selected", "optionId": "no"}, thought))
    assert run["verdict"]["outcome"] == "denied"


def test_text_after_a_refusal_is_an_answer(engine: Any) -> None:
    _, run = read(engine, *merged({"outcome": "selected", "optionId": "no"}, says("Then not.")))
    assert run["verdict"]["outcome"] == "completed"
    assert run["final_text"] == "Then not."


def test_other_requests_may_fail_in_a_merged_log(engine: Any) -> None:
    _, run = read(
        engine,
        *merged({"outcome": "selected", "optionId": "yes"}, says("Fine.")),
        request(3, "session/list"),
        fails(3, -32603, "no database"),
        request(4, "session/prompt", sessionId="nope", prompt=[]),
        fails(4, -32002, "no such session"),
    )
    assert run["verdict"]["outcome"] == "completed"
    assert run["errors"] == []


@pytest.mark.parametrize("code", [-32002, -32602, -32603])
def test_a_prompt_that_is_refused_in_a_merged_log_failed_whatever_the_code(engine: Any, code: int) -> None:
    log = merged({"outcome": "selected", "optionId": "yes"}, says("Fine."))[:5]
    _, run = read(engine, *log, fails(2, code, "no such model"))
    assert run["verdict"]["outcome"] == "failed"
    assert [error["message"] for error in run["errors"]] == ["no such model"]


def test_what_the_client_could_not_do_in_a_merged_log_is_no_failure(engine: Any) -> None:
    """The agent's request has the id of the client's prompt, and so has the answer to it."""
    reads = request(2, "fs/read_text_file", sessionId=SESSION, path="/w/none")
    failed = fails(2, -32603, "no such file")
    for rest in ([reads, failed], [reads, answer(2, content="text")]):
        _, run = read(engine, *merged({"outcome": "selected", "optionId": "yes"}, *rest, says("Fine.")))
        assert (run["verdict"]["outcome"], run["errors"]) == ("completed", [])
        _, run = read(engine, *merged({"outcome": "selected", "optionId": "yes"}, *rest)[:-1], fails(2, -32603, "500"))
        assert [error["message"] for error in run["errors"]] == ["500"]


def test_a_turn_that_the_client_cancelled_is_cancelled_though_the_agent_says_that_it_ended(engine: Any) -> None:
    """Copilot (github/copilot-cli#4561), goose and OpenCode have answered end_turn."""
    log = merged({"outcome": "selected", "optionId": "yes"}, says("I wi"))
    cancel = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": SESSION}}
    _, run = read(engine, *log[:-1], cancel, log[-1])
    assert run["verdict"]["outcome"] == "cancelled"
    again = [
        request(9, "session/prompt", sessionId=SESSION, prompt=[]),
        says("Done."),
        answer(9, stopReason="end_turn"),
    ]
    for last in ([], [cancel]):  # a cancel that came too late
        _, run = read(engine, *log[:-1], cancel, log[-1], *again, *last)
        assert run["verdict"]["outcome"] == "completed"


def test_a_turn_that_ended_in_an_error_says_so(engine: Any) -> None:
    """DeepSeek-Reasonix has a stop reason that the protocol has not (esengine/DeepSeek-Reasonix#8241)."""
    _, run = read(engine, hello(), NEW, says("I wi"), answer(2, stopReason="error"))
    assert run["verdict"]["outcome"] == "failed"


def test_a_refusal_of_a_call_is_not_the_model_s(engine: Any) -> None:
    """The first adapter for Claude answered a rejected call with "refusal" (claude-agent-acp#151)."""
    asked = asks(7, "c1", title="rm", kind="execute")
    failed = update("tool_call_update", toolCallId="c1", status="failed")
    _, run = read(engine, hello(), NEW, asked, failed, answer(2, stopReason="refusal"))
    assert run["verdict"]["outcome"] == "denied"
    _, run = read(engine, hello(), NEW, says("I can't."), answer(2, stopReason="refusal"))
    assert run["verdict"]["outcome"] == "failed"


def test_the_client_alone_tells_the_prompts(engine: Any) -> None:
    sent = ("initialize", "session/new", "session/prompt")
    client = [line for line in merged({"outcome": "cancelled"}) if line.get("method") in sent]
    _, run = read(engine, *client, answer(2, outcome={"outcome": "cancelled"}))
    assert [m["text"] for m in run["messages"]] == ["go"]
    assert run["verdict"]["outcome"] == "incomplete"


# ---------------------------------------------------------------- replays and late updates


HISTORY = [
    says("go", "user_message_chunk"),
    says("Old answer."),
    update("tool_call", toolCallId="old", title="ls", status="completed"),
]


def test_a_session_loaded_first_tells_history_and_no_run(engine: Any) -> None:
    _, run = read(engine, hello(), *HISTORY, answer(1, modes={}), says("New answer."), END)
    assert run["texts"] == ["New answer."]
    assert run["tool_calls"] == []
    assert run["verdict"]["outcome"] == "completed"


def test_a_load_request_opens_the_replay(engine: Any) -> None:
    load = request(1, "session/load", sessionId=SESSION, cwd="/w", mcpServers=[])
    prompt = request(2, "session/prompt", sessionId=SESSION, prompt=[{"type": "text", "text": "again"}])
    _, run = read(engine, hello(), load, *HISTORY, answer(1), prompt, says("New."), END)
    assert run["texts"] == ["New."]
    other = [request(7, "session/set_mode", sessionId=SESSION, modeId="ask"), answer(7)]
    _, run = read(engine, hello(), load, HISTORY[0], *other, *HISTORY[1:], answer(1), prompt, says("New."), END)
    assert run["texts"] == ["New."]
    assert [m["text"] for m in run["messages"] if m["role"] == "user"] == ["again"]


def test_an_agent_that_prints_prompts_live_replays_nothing(engine: Any) -> None:
    _, run = read(
        engine,
        hello(),
        NEW,
        says("one", "user_message_chunk"),
        says("First."),
        END,
        says("two", "user_message_chunk"),
        says("Second."),
        answer(3, stopReason="end_turn"),
    )
    assert run["texts"] == ["First.", "Second."]
    assert [m["text"] for m in run["messages"] if m["role"] == "user"] == ["one", "two"]


def test_a_second_prompt_that_was_not_answered_is_incomplete(engine: Any) -> None:
    _, run = read(engine, hello(), NEW, says("First.", messageId="m1"), END, says("Sec", messageId="m2"))
    assert run["verdict"]["outcome"] == "incomplete"
    assert run["texts"] == ["First.", "Sec"]


def test_the_end_of_a_known_message_may_come_late(engine: Any) -> None:
    _, run = read(engine, hello(), NEW, says("Fir", messageId="m1"), END, says("st.", messageId="m1"))
    assert run["verdict"]["outcome"] == "completed"
    assert run["texts"] == ["First."]


# ---------------------------------------------------------------- agents


def test_copilot_fails_by_a_chunk(engine: Any) -> None:
    lines = [hello("Copilot"), NEW, says("Info: Retrying..."), says("Partial."), says("Error: 400 bad request"), END]
    _, run = read(engine, *lines)
    assert run["verdict"]["outcome"] == "failed"
    assert run["texts"] == ["Partial."]
    assert [error["message"] for error in run["errors"]] == ["Error: 400 bad request"]


def test_qwen_says_its_errors_in_brackets(engine: Any) -> None:
    _, run = read(engine, hello("qwen-code"), NEW, says("[API Error: 400 bad]"), END)
    assert run["verdict"]["outcome"] == "failed"
    assert (run["texts"], [e["message"] for e in run["errors"]]) == ([], ["[API Error: 400 bad]"])


def test_droid_says_its_error_twice(engine: Any) -> None:
    failed = fails(2, -32603, "Internal error: Agent error", data="400 bad")
    _, run = read(engine, hello("@factory/cli"), NEW, says("Partial."), says("Error: 400 bad"), failed)
    assert run["texts"] == ["Partial."]
    assert [error["message"] for error in run["errors"]] == ["Internal error: Agent error: 400 bad"]


def test_droid_may_answer_with_the_word_error(engine: Any) -> None:
    _, run = read(engine, hello("@factory/cli"), NEW, says("Error: is what the log says."), END)
    assert run["verdict"]["outcome"] == "completed"
    assert run["final_text"] == "Error: is what the log says."


def test_claude_own_messages_are_told_by_their_id(engine: Any) -> None:
    own = "09fa1861-7fcf-4a1b-b58b-c4baa73a54b1"
    error = fails(2, -32603, "Internal error: Prompt is too long")
    agent = hello("@agentclientprotocol/claude-agent-acp")
    _, run = read(engine, agent, NEW, says("Hm.", messageId="msg_1"), says("Prompt is too long", messageId=own), error)
    assert run["texts"] == ["Hm."]
    assert [e["message"] for e in run["errors"]] == ["Internal error: Prompt is too long"]
    assert run["verdict"]["outcome"] == "limit"


def test_a_warning_of_codex_is_no_answer_where_zeds_adapter_says_it_as_one(engine: Any) -> None:
    warning = "Model metadata for `m-1` not found. Defaulting to fallback metadata; this can degrade performance."
    for begun in ([], [says("Al")]):
        _, run = read(engine, hello("codex-acp"), NEW, *begun, says(warning), says("so."), END)
        assert "".join(run["texts"]) == "".join(["Al" for _ in begun] + ["so."])
        assert run["errors"] == []
        assert run["verdict"]["outcome"] == "completed"


CUT = "Incomplete response returned, reason: max_output_tokens"
BROKEN = update("session_info_update", _meta={"codex": {"threadStatus": {"type": "systemError"}}})


def test_an_output_limit_is_a_limit_where_only_the_words_tell(engine: Any) -> None:
    _, run = read(engine, hello("@agentclientprotocol/codex-acp"), NEW, BROKEN, says(f"{CUT}\n\n"), END)
    assert run["verdict"]["outcome"] == "limit"
    failure = fails(2, -32603, "Internal error", data={"message": CUT, "codex_error_info": "other"})
    _, run = read(engine, hello("codex-acp"), NEW, says("Half"), failure)
    assert run["verdict"]["outcome"] == "limit"


def test_spent_credits_of_droid_are_a_limit_here_too(engine: Any) -> None:
    failure = fails(
        2, -32603, "Internal error", data={"message": "402 Ready for more? Reload your tokens at https://f"}
    )
    _, run = read(engine, hello("@factory/cli"), NEW, says("Half"), failure)
    assert run["verdict"]["outcome"] == "limit"


def test_a_codex_turn_has_failed_though_its_error_comes_after_the_answer(engine: Any) -> None:
    _, run = read(
        engine, hello("@agentclientprotocol/codex-acp"), NEW, says("Half", messageId="m"), END, BROKEN, says("lost\n\n")
    )
    assert run["verdict"]["outcome"] == "failed"
    assert [e["message"] for e in run["errors"]] == ["lost"]


def test_a_second_process_does_not_go_on_with_the_firsts_messages_and_calls(engine: Any) -> None:
    begun = [update("tool_call", toolCallId="c1", title="ls"), says("One", messageId="m")]
    ended = update("tool_call_update", toolCallId="c1", status="completed")
    _, run = read(engine, hello(), NEW, *begun, hello(), NEW, *begun, ended, END)
    assert run["texts"] == ["One", "One"]
    assert [c["ok"] for c in run["tool_calls"]] == [None, True]
    assert run["verdict"]["outcome"] == "completed"


@pytest.mark.parametrize(("kind", "outcome"), [("usageLimitExceeded", "limit"), ("badRequest", "failed")])
def test_codex_names_what_failed(engine: Any, kind: str, outcome: str) -> None:
    error = {"message": "it failed", "codexErrorInfo": kind, "willRetry": False}
    broken = {"codex": {"threadStatus": {"type": "systemError"}}}
    _, run = read(
        engine,
        hello("@agentclientprotocol/codex-acp"),
        NEW,
        update("session_info_update", _meta={"codex": {"error": error}}),
        update("session_info_update", _meta=broken),
        says("it failed\n\n"),
        END,
    )
    assert run["verdict"]["outcome"] == outcome
    assert [e["message"] for e in run["errors"]] == ["it failed"]
    assert run["texts"] == []


def test_usage_by_what_each_agent_counts(engine: Any) -> None:
    def turns(agent: str, *usages: dict[str, int]) -> dict[str, Any]:
        lines = [answer(2 + n, stopReason="end_turn", usage=usage) for n, usage in enumerate(usages)]
        return read(engine, hello(agent), NEW, *lines)[1]["usage"]

    outside = {"inputTokens": 10, "outputTokens": 3, "cachedReadTokens": 5, "thoughtTokens": 2, "totalTokens": 20}
    inside = {"inputTokens": 15, "outputTokens": 5, "cachedReadTokens": 5, "totalTokens": 20}
    nothing = {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0}
    per_call = turns("OpenCode", outside, nothing)
    assert (per_call["calls"]["count"], per_call["calls"]["prompt_tokens"]) == (1, 15)
    assert per_call["calls"]["completion_tokens"] == 5
    assert per_call["run"] is None
    per_turn = turns("@agentclientprotocol/codex-acp", inside, inside)
    assert (per_turn["run"]["prompt_tokens"], per_turn["run"]["cached_tokens"]) == (30, 10)
    per_session = turns("Copilot", inside, inside)
    assert per_session["run"]["prompt_tokens"] == 15


def test_two_sessions_in_one_stream_keep_their_texts_apart(engine: Any) -> None:
    other = says("two")
    other["params"]["sessionId"] = "sess_2"
    _, run = read(engine, hello(), NEW, says("one"), other, says("three"), END)
    assert run["texts"] == ["one", "two", "three"]


def of(session: str, line: dict[str, Any]) -> dict[str, Any]:
    return {**line, "params": {**line["params"], "sessionId": session}}


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (
            update("subagent_spawned", subagentSessionId="s1", name="explorer", task="Look.", capabilities={}),
            update("subagent_state_update", subagentSessionId="s1", state="completed"),
        ),
        (
            update("subagent_update", sessionId="s1", title="explorer", state={"state": "running"}),
            update("subagent_update", sessionId="s1", state={"state": "idle"}),
        ),
        (
            {
                "method": "_x.ai/session_notification",
                "params": {
                    "sessionId": SESSION,
                    "update": {"sessionUpdate": "subagent_spawned", "subagent_id": "a", "child_session_id": "s1"},
                },
            },
            update("session_message", messageId="m", senderSessionId="s1", content=[]),
        ),
    ],
)
def test_what_comes_with_the_session_of_a_sub_agent_is_its(engine: Any, begin: Any, end: Any) -> None:
    """Claude, codex, Cursor and Grok give a sub-agent a session of its own if the client can take it."""
    child = [says("Look.", "user_message_chunk"), says("I look.", "agent_thought_chunk"), says("Two files.")]
    child += [update("tool_call", toolCallId="c", title="ls", status="completed"), update("plan", entries=[])]
    child += [
        update("session_info_update", title="explorer"),
        update("usage_update", used=1, cost={"amount": 9, "currency": "USD"}),
    ]
    asks = {
        "id": 7,
        "method": "session/request_permission",
        "params": {"sessionId": "s1", "toolCall": {"toolCallId": "d"}},
    }
    stream = [hello(), NEW, says("I ask one."), begin, *(of("s1", line) for line in child), asks, end]
    events, run = read(engine, *stream, says("It has two."), END)
    assert (run["texts"], run["report"]["unknown"]) == (["I ask one.", "It has two."], {})
    assert (run["verdict"]["outcome"], run["plan"], run["cost_usd"]) == ("completed", None, None)
    assert "explorer" not in [state.get("title") for state in states(events, "session")]
    agent = {"tool_call_id": "s1", "name": None, "texts": ["Two files."], "thinking": ["I look."]}
    assert run["subagents"] == [{**agent, "tool_calls": ["c", "d"], "result": None}]


def test_cursor_names_the_call_of_a_sub_agent_s_session(engine: Any) -> None:
    task = update("tool_call", toolCallId="t", title="Task: Look", rawInput={"_toolName": "task", "prompt": "Look."})
    begin = update("subagent_spawned", subagentSessionId="s1", name="explore", _meta={"cursor": {"toolCallId": "t"}})
    ends = update("tool_call_update", toolCallId="t", status="completed")
    _, run = read(engine, hello(), NEW, task, begin, of("s1", says("Two files.")), ends, says("Two."), END)
    assert [(agent["tool_call_id"], agent["texts"]) for agent in run["subagents"]] == [("t", ["Two files."])]
    assert run["texts"] == ["Two."]


@pytest.mark.parametrize("name", ["RetriableError", "NonRetriableError", "ActionRequiredError"])
def test_cursor_says_its_errors_as_text_and_ends_the_turn(engine: Any, name: str) -> None:
    _, run = read(
        engine, hello(), NEW, says("I look."), says(f"\n\nError: {name}: [canceled] http/2 stream closed"), END
    )
    assert (run["verdict"]["outcome"], run["texts"]) == ("failed", ["I look."])
    assert [error["message"] for error in run["errors"]] == [f"Error: {name}: [canceled] http/2 stream closed"]
    _, run = read(engine, hello(), NEW, says(f"I saw an Error: {name}: stream closed"), END)
    assert run["verdict"]["outcome"] == "completed"


CLAUDE = hello("@agentclientprotocol/claude-agent-acp")


@pytest.mark.parametrize("ids", [({}, {}), ({"messageId": "5f1d"}, {"messageId": "81c0"})])
def test_a_block_that_claude_says_again_under_another_id_counts_once(engine: Any, ids: Any) -> None:
    thought, (first, second) = "agent_thought_chunk", ids
    _, run = read(
        engine,
        *(CLAUDE, NEW, says("Hm", thought, **first), says(".", thought, **first)),
        says("Hm.", thought, messageId="msg_1"),
        *(says("I ", **first), says("look.", **first), says("I look.", messageId="msg_1")),
        update("tool_call", toolCallId="a", title="Read", status="completed"),
        *(says("Done", **second), says(".", **second), says("Done.", messageId="msg_2"), END),
    )
    assert (run["thinking"], run["texts"]) == (["Hm."], ["I look.", "Done."])
    assert (run["verdict"]["outcome"], run["report"]["ignored"]["text again"]) == ("completed", 3)


def test_a_message_of_claude_that_begins_like_the_one_before_is_whole(engine: Any) -> None:
    tries = [says("On", messageId="msg_1"), says("On", messageId="msg_2"), says("ce", messageId="msg_2")]
    _, run = read(engine, CLAUDE, NEW, *tries, says(".", messageId="msg_2"), END)
    assert run["texts"] == ["On", "Once."]
    call = update("tool_call", toolCallId="a", title="Read", status="completed")
    _, run = read(engine, CLAUDE, NEW, says("OK", messageId="msg_1"), call, says("OK", messageId="msg_2"), END)
    assert run["texts"] == ["OK", "OK"]
    _, run = read(engine, hello(), NEW, says("OK", messageId="msg_1"), says("OK", messageId="msg_2"), END)
    assert run["texts"] == ["OK", "OK"]


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("Network error: Could not connect to localhost:1.\n\nPlease resend your message to try again.", "failed"),
        ("Ran into this error: Server error: 500.\n\nPlease retry if you think this is a transient one.", "failed"),
        ("Context length exceeded: 9 of 8.\n\nThe conversation is too long.", "limit"),
    ],
)
def test_goose_says_its_errors_as_text_and_ends_the_turn(engine: Any, text: str, outcome: str) -> None:
    _, run = read(engine, hello("goose"), NEW, says("I look."), says(text), END)
    assert (run["verdict"]["outcome"], run["texts"]) == (outcome, ["I look."])
    assert [error["message"] for error in run["errors"]] == [text]
    unnamed = update("session_info_update", _meta={"goose": {"activeRunId": "1"}})
    assert read(engine, unnamed, says(text), END)[1]["verdict"]["outcome"] == outcome
    assert read(engine, hello(), NEW, says(text), END)[1]["verdict"]["outcome"] == "completed"


def test_spent_credits_of_goose_are_a_limit(engine: Any) -> None:
    spent = fails(2, -32603, "Add credits", data={"reason": "credits_exhausted"})
    _, run = read(engine, hello("goose"), NEW, spent)
    assert (run["verdict"]["outcome"], run["verdict"]["reason"]) == ("limit", "credits_exhausted")


def shell(call: str = "a") -> dict[str, Any]:
    terminal = [{"type": "terminal", "terminalId": call}]
    return update("tool_call_update", toolCallId=call, title="ls", status="pending", content=terminal)


def terminal(call: str = "a", **rest: Any) -> dict[str, Any]:
    return update("terminal_update", terminalId=call, **rest)


def coded(data: bytes) -> str:
    return b64encode(data).decode()


@pytest.mark.parametrize(("code", "ok"), [(0, True), (3, False)])
def test_what_a_terminal_of_version_2_shows_is_the_result_of_its_call(engine: Any, code: int, ok: bool) -> None:
    whole = "à.ts\nb.ts".encode()
    pieces = [update("terminal_output_chunk", terminalId="a", data=coded(part)) for part in (whole[:1], whole[1:])]
    ends = [terminal(exitStatus={"exitCode": code}), update("tool_call_update", toolCallId="a", status="completed")]
    idle = update("state_update", state="idle", stopReason="end_turn")
    for shown in (
        [terminal(output={"data": coded(whole)})],
        pieces,
        [*pieces, terminal(output={"data": coded(whole)})],
    ):
        _, run = read(engine, hello(version=2), NEW, terminal(command="ls"), shell(), *shown, *ends, idle)
        (call,) = run["tool_calls"]
        assert (call["result"], call["exit_code"], call["ok"]) == (whole.decode(), code, ok)
    for data in ("YQ", "YQ===", "Y Q=", "YQ=\n", "ÿQ==", None, "QUJDYQ==YQ=="):
        _, run = read(engine, hello(version=2), NEW, shell(), terminal(output={"data": data}), *ends, idle)
        assert run["tool_calls"][0]["result"] is None


@pytest.mark.parametrize("agent", ["@agentclientprotocol/claude-agent-acp", "@agentclientprotocol/codex-acp"])
def test_the_output_of_a_command_that_runs_in_the_client_s_terminal_is_its_result(engine: Any, agent: str) -> None:
    pieces = [
        update("tool_call_update", toolCallId="a", _meta={"terminal_output": {"data": d}}) for d in ("a\n", "b\n")
    ]
    end = update(
        "tool_call_update",
        toolCallId="a",
        status="completed",
        content=[{"type": "terminal", "terminalId": "a"}],
        _meta={"terminal_exit": {"exit_code": 0, "signal": None}},
    )
    events, run = read(engine, hello(agent), NEW, shell(), *pieces, end, END)
    assert (run["tool_calls"][0]["result"], run["tool_calls"][0]["exit_code"]) == ("a\nb\n", 0)
    shown = [event.get("extra", {}).get("terminal_output", {}).get("data") for event in events]
    assert [data for data in shown if data] == ["a\n", "b\n"]


def test_codex_tells_the_output_of_a_command_that_no_terminal_shows(engine: Any) -> None:
    output = {"formatted_output": "found\n", "exit_code": 0}
    end = update("tool_call_update", toolCallId="a", status="completed", rawOutput=output)
    _, run = read(engine, hello("@agentclientprotocol/codex-acp"), NEW, shell(), end, END)
    assert run["tool_calls"][0]["result"] == "found\n"


def test_a_call_that_a_rule_of_claude_forbids_is_refused(engine: Any) -> None:
    why = {"toolResponse": {"decisionReasonType": "rule", "message": "No."}}
    refused = update("tool_call_update", toolCallId="a", status="failed", _meta={"claudeCode": why})
    _, run = read(engine, CLAUDE, NEW, shell(), refused, END)
    assert run["verdict"]["outcome"] == "denied"
    _, run = read(engine, CLAUDE, NEW, shell(), refused, says("I may not."), END)
    assert run["verdict"]["outcome"] == "completed"


@pytest.mark.parametrize("name", [{"id": "model"}, {"configId": "model"}, {"id": "llm", "category": "model"}])
def test_the_model_is_the_option_that_says_so(engine: Any, name: dict[str, Any]) -> None:
    options = [{"id": "mode", "category": "mode", "currentValue": "plan"}, {**name, "currentValue": "m-1"}]
    _, run = read(engine, hello(), answer(1, sessionId=SESSION, configOptions=options), says("Hi."), END)
    assert run["model"] == "m-1"


@pytest.mark.parametrize(("code", "ok"), [(0, True), (2, False)])
def test_a_log_of_both_sides_tells_what_the_client_s_terminal_printed(engine: Any, code: int, ok: bool) -> None:
    prompt = [{"type": "text", "text": "Run it."}]
    _, run = read(
        engine,
        *(request(0, "initialize", protocolVersion=1), hello()),
        *(request(1, "session/new", cwd="/w"), NEW, request(2, "session/prompt", sessionId=SESSION, prompt=prompt)),
        *(request(0, "terminal/create", sessionId=SESSION, command="ls"), answer(0, terminalId="a"), shell()),
        *(request(1, "terminal/output", sessionId=SESSION, terminalId="a"), answer(1, output="a", truncated=False)),
        *(request(3, "terminal/wait_for_exit", sessionId=SESSION, terminalId="a"), answer(3, exitCode=code)),
        *(request(4, "terminal/output", sessionId=SESSION, terminalId="a"), answer(4, output="a.ts", truncated=False)),
        update("tool_call_update", toolCallId="a", status="completed"),
        *(says("Done."), END),
    )
    (call,) = run["tool_calls"]
    assert (call["result"], call["exit_code"], call["ok"]) == ("a.ts", code, ok)
    assert (run["verdict"]["outcome"], run["texts"]) == ("completed", ["Done."])


def air(**failure: Any) -> dict[str, Any]:
    return {"jetbrains": {"air": {"version": 1, "sessionFailure": {"id": "t:error", "revision": 1, **failure}}}}


@pytest.mark.parametrize(
    ("category", "actions", "outcome"),
    [("limit", [], "limit"), ("limit", ["retry"], "failed"), ("service", ["retry", "new_session"], "failed")],
)
def test_a_turn_whose_failure_jetbrains_clients_are_told_in_an_extension_failed(
    engine: Any, category: str, actions: list[str], outcome: str
) -> None:
    meta = air(category=category, severity="error", title="No more.", actions=actions)
    end = answer(2, stopReason="end_turn", _meta=meta)
    _, run = read(engine, CLAUDE, NEW, says("Half", messageId="msg_1"), end)
    assert (run["verdict"]["outcome"], run["texts"]) == (outcome, ["Half"])
    assert [error["message"] for error in run["errors"]] == ["No more."]
    idle = update("state_update", state="idle", stopReason="end_turn", _meta=meta)
    assert read(engine, hello(version=2), NEW, says("Half"), idle)[1]["verdict"]["outcome"] == outcome


def test_a_warning_of_that_extension_and_what_it_says_beside_turns_fail_none(engine: Any) -> None:
    told = update("session_info_update", _meta=air(category="connection", severity="warning", title="Again, 1/5"))
    end = answer(2, stopReason="end_turn", _meta=air(category="limit", severity="warning", title="90 %", actions=[]))
    late = update("session_info_update", _meta=air(category="connection", severity="error", title="Gone."))
    _, run = read(engine, CLAUDE, NEW, told, says("Hi.", messageId="msg_1"), end, late)
    assert run["verdict"]["outcome"] == "completed"


def marked(line: dict[str, Any], **meta: Any) -> dict[str, Any]:
    rest = line["params"]["update"]
    return update(
        rest["sessionUpdate"], **{**rest, "_meta": {key.replace("__", "/"): value for key, value in meta.items()}}
    )


def test_devin_marks_what_its_sub_agents_do(engine: Any) -> None:
    """A call with the sub-agent's id tells its begin and end; `root` is the main agent."""
    own: dict[str, Any] = {"cognition.ai__subagent_context": {"parentAgentId": "a1"}}
    root: dict[str, Any] = {"cognition.ai__subagent_context": {"parentAgentId": "root"}}
    costs = update("usage_update", used=1, size=2, cost={"amount": 9, "currency": "USD"})
    begin = marked(update("tool_call_update", toolCallId="a1", status="in_progress"), cognition={"agentId": "a1"})
    stream = [hello(), NEW, says("I ask one."), begin, marked(says("Two files."), **own), marked(costs, **own)]
    stream += [marked(update("tool_call", toolCallId="c", title="Ran ls"), **own), marked(says("It has two."), **root)]
    _, run = read(engine, *stream, update("tool_call_update", toolCallId="a1", status="completed"), END)
    assert (run["texts"], run["cost_usd"]) == (["I ask one.", "It has two."], None)
    assert [(call["id"], call["parent"]) for call in run["tool_calls"]] == [("a1", None), ("c", "a1")]
    assert [(agent["tool_call_id"], agent["texts"]) for agent in run["subagents"]] == [("a1", ["Two files."])]


def test_kiro_marks_what_its_sub_agents_do(engine: Any) -> None:
    """Version 3: the call that delegates has the sub-agent's id too, which is another one once it runs."""
    call: dict[str, Any] = {"toolCallId": "invoke_subagent_1", "title": "Sub-agent: poet"}
    begin = update("tool_call", **call, status="pending", rawInput={"name": "poet", "prompt": "Write."})
    runs = update("tool_call_update", **call, status="in_progress")
    ends = update("tool_call_update", **call, status="completed", rawOutput={"response": "A rose."})
    own: dict[str, Any] = {"kiro": {"agentSubtaskId": "u-1"}}
    task: dict[str, Any] = {"kiro": {"agentSubtaskId": "u-1", "kind": "agent-subtask"}}
    first: dict[str, Any] = {"kiro": {"agentSubtaskId": "invoke_subagent_1", "kind": "agent-subtask"}}
    stream = [
        hello(),
        NEW,
        says("I ask one."),
        marked(begin, **first),
        marked(runs, **task),
        marked(says("A rose."), **own),
    ]
    stream += [marked(says("Write.", "user_message_chunk"), **own)]
    stream += [marked(update("tool_call", toolCallId="c", title="ls", status="completed"), **own), marked(ends, **task)]
    _, run = read(engine, *stream, says("Done."), END)
    assert run["texts"] == ["I ask one.", "Done."]
    assert [(call["id"], call["parent"]) for call in run["tool_calls"]] == [
        ("invoke_subagent_1", None),
        ("c", "invoke_subagent_1"),
    ]
    (agent,) = run["subagents"]
    assert (agent["name"], agent["texts"], agent["tool_calls"]) == ("poet", ["A rose."], ["c"])


# ---------------------------------------------------------------- calls that are none


def test_a_compaction_that_is_shown_as_a_call_is_a_compaction(engine: Any) -> None:
    """codex and claude mark it, for JetBrains' clients in an extension and there maybe on the first line only."""
    told = {"version": 1}
    for meta in ({"contextCompaction": told}, {"jetbrains": {"air": {"contextCompaction": told}}}):
        shown = update("tool_call", toolCallId="k", kind="think", title="Compact", status="in_progress", _meta=meta)
        over = update("tool_call_update", toolCallId="k", status="completed")
        events, run = read(engine, hello("claude"), NEW, says("A"), shown, over, says("B"), END)
        compactions = [(state["phase"], state.get("success")) for state in states(events, "compaction")]
        assert compactions == [("start", None), ("end", True)]
        assert (run["tool_calls"], run["verdict"]["outcome"]) == ([], "completed")
    why = {"jetbrains": {"air": {"contextCompaction": {**told, "error": "too small"}}}}
    broken = update("tool_call_update", toolCallId="k", status="failed", _meta=why)
    events, _ = read(engine, hello("claude"), NEW, shown, broken, END)
    assert [state.get("message") for state in states(events, "compaction")] == [None, "too small"]


def test_an_mcp_server_that_did_not_start_is_no_call_of_the_agent(engine: Any) -> None:
    text = {"type": "content", "content": {"type": "text", "text": "MCP server `db` failed to start"}}
    failed = update("tool_call", toolCallId="mcp_startup.db", title="mcp__db__startup", status="failed", content=[text])
    events, run = read(engine, hello("@agentclientprotocol/codex-acp"), NEW, failed)
    assert (run["tool_calls"], states(events, "turn")) == ([], [])
    assert [event["update"]["message"] for event in events if event["update"]["sessionUpdate"] == "error"] == [
        "MCP server `db` failed to start"
    ]
    _, run = read(engine, hello("@agentclientprotocol/codex-acp"), NEW, failed, says("Hi", messageId="m"), END)
    assert run["verdict"]["outcome"] == "completed"


def test_what_codex_guardian_decided_is_known_without_its_record(engine: Any) -> None:
    """For JetBrains' clients codex leaves `rawOutput` and the call's id out."""

    def review(kind: str, status: str, says: str) -> dict[str, Any]:
        content = [{"type": "content", "content": {"type": "text", "text": f"Status: {says}\nRisk: high"}}]
        return update(kind, toolCallId="guardian_assessment:r", status=status, content=content)

    begin = review("tool_call", "in_progress", "In progress")
    for status, words, decision, outcome in (
        ("failed", "Denied", "denied", "denied"),
        ("failed", "Timed out", "timedOut", "completed"),
        ("completed", "Approved", "approved", "completed"),
    ):
        end = review("tool_call_update", status, words)
        events, run = read(engine, hello("@agentclientprotocol/codex-acp"), NEW, begin, end, END)
        assert [(state["phase"], state.get("decision")) for state in states(events, "approval")] == [
            ("requested", None),
            ("settled", decision),
        ]
        assert (run["verdict"]["outcome"], run["tool_calls"]) == (outcome, [])


def test_a_sign_of_life_of_a_tool_is_not_its_result(engine: Any) -> None:
    """claude-agent-acp says in `toolResponse` how long a tool has been running."""
    beat = {"claudeCode": {"toolName": "mcp__a__b", "toolResponse": {"elapsedTimeSeconds": 3}}}
    stream = [hello("claude"), NEW, update("tool_call", toolCallId="c", status="pending", title="b")]
    stream += [update("tool_call_update", toolCallId="c", status="in_progress", _meta=beat)]
    done = update("tool_call_update", toolCallId="c", status="completed", rawOutput=[{"type": "text", "text": "ok"}])
    events, run = read(engine, *stream, done, END)
    outputs = [event["update"].get("rawOutput") for event in events if "rawOutput" in event["update"]]
    assert outputs == [[{"type": "text", "text": "ok"}]]
    assert run["tool_calls"][0]["ok"] is True


def test_what_a_session_of_version_2_tells_when_it_is_resumed_is_no_news(engine: Any) -> None:
    """Its answer comes behind the history and names no session."""
    history = [update("user_message", messageId="u", content=[]), says("Fix it", "user_message_chunk", messageId="u")]
    history += [says("Fixed.", messageId="m")]
    prompt = update("user_message", messageId="u2", content=[{"type": "text", "text": "And now?"}])
    live = [prompt, update("state_update", state="running"), answer(2, messageId="u2"), says("Done.", messageId="m2")]
    live += [update("state_update", state="idle", stopReason="end_turn")]
    for told in (history, []):
        events, run = read(engine, hello("claude", version=2), *told, answer(1, configOptions=[]), *live)
        assert [state["phase"] for state in states(events, "turn")] == ["start", "end"]
        assert [
            event["update"]["content"]["text"] for event in events if event["update"]["sessionUpdate"] == ev.USER
        ] == ["And now?"]
        assert (run["texts"], run["verdict"]["outcome"]) == (["Done."], "completed")


# ---------------------------------------------------------------- Grok Build


def grok(kind: str, /, method: str = "_x.ai/session/update", **rest: Any) -> dict[str, Any]:
    return {"method": method, "params": {"sessionId": SESSION, "update": {"sessionUpdate": kind, **rest}}}


def completed(reason: str, /, **rest: Any) -> dict[str, Any]:
    return grok("turn_completed", prompt_id="p", stop_reason=reason, **rest)


def test_a_session_that_grok_stored_tells_how_its_turns_ended(engine: Any) -> None:
    """`updates.jsonl`: no answers, the end of a turn is an extension."""
    hook = grok("hook_execution", event_name="session_start", runs=[])
    used = {"inputTokens": 100, "outputTokens": 20, "totalTokens": 120, "cachedReadTokens": 40, "modelCalls": 2}
    ran = update("tool_call", toolCallId="c", title="Run it", rawInput={}, _meta={"x.ai/tool": {"name": "run"}})
    first = [
        hook,
        says("Hi", "user_message_chunk"),
        ran,
        update("tool_call_update", toolCallId="c", status="completed"),
    ]
    first += [says("Done."), completed("end_turn", usage=used)]
    _, run = read(engine, *first)
    assert (run["verdict"]["outcome"], run["texts"], run["tool_calls"][0]["name"]) == ("completed", ["Done."], "run")
    assert (run["usage"]["run"]["prompt_tokens"], run["usage"]["run"]["cached_tokens"]) == (100, 40)
    _, run = read(engine, *first, says("And?", "user_message_chunk"), says("So."), completed("cancelled", usage=used))
    assert (run["verdict"]["outcome"], run["texts"]) == ("cancelled", ["Done.", "So."])
    assert run["usage"]["run"]["prompt_tokens"] == 200
    _, run = read(engine, *first, says("And?", "user_message_chunk"), says("So."))
    assert run["verdict"]["outcome"] == "incomplete"


def test_a_turn_that_failed_at_grok_tells_why(engine: Any) -> None:
    prompt = says("Hi", "user_message_chunk")
    last = grok("retry_state", type="exhausted", attempts=2, reason="429", is_rate_limited=True)
    _, run = read(engine, prompt, last, completed("rate_limit"))
    assert (run["verdict"]["outcome"], [e["message"] for e in run["errors"]]) == ("failed", ["429"])
    _, run = read(engine, prompt, completed("error", agent_result="API error (status 404)"))
    assert (run["verdict"]["outcome"], [e["message"] for e in run["errors"]]) == ("failed", ["API error (status 404)"])


def test_what_grok_said_before_it_tried_again_is_void(engine: Any) -> None:
    stream = [says("Hi", "user_message_chunk"), says("Look."), update("tool_call", toolCallId="c", title="t")]
    stream += [update("tool_call_update", toolCallId="c", status="completed", _meta={"x.ai/tool": {"name": "t"}})]
    stream += [says("Half an"), grok("retry_state", type="retrying", attempt=1, max_retries=3, reason="reset")]
    _, run = read(engine, *stream, says("An answer."), completed("end_turn"))
    assert (run["texts"], run["retries"], run["tool_calls"][0]["ok"]) == (["Look.", "An answer."], 1, True)


def test_the_end_that_grok_tells_live_and_the_answer_are_one(engine: Any) -> None:
    end = {**completed("end_turn"), "method": "_x.ai/session_notification"}
    events, _ = read(engine, hello(), NEW, says("Ok."), end, END)
    assert [state["phase"] for state in states(events, "turn")] == ["start", "end"]
    broken = {**completed("error", agent_result="boom"), "method": "_x.ai/session_notification"}
    _, run = read(engine, hello(), NEW, says("Ok."), broken, fails(2, -32603, "Internal error", data="boom"))
    assert (run["verdict"]["outcome"], len(run["errors"])) == ("failed", 1)
    _, run = read(engine, hello(), NEW, says("Ok."), end, END, says("More."))
    assert run["verdict"]["outcome"] == "incomplete"
