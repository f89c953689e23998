"""orjson and a short Python reducer for each dialect of the mixed corpus, of the kind that people write.

A file's name tells its dialect, so nothing is detected. Each reducer gathers texts and thoughts (joined from deltas, or
whole where the harness prints them), calls by id with name, input, result and ok, the output tokens, and how it ended.
pi, Claude Code and Qwen Code have theirs in ``peers.py``.

They give the number of calls and the last text that ``headrace.reduce`` gives on nearly all recordings. What they do
not do: check anything; read a line that orjson refuses (lone halves of surrogates, NaN); keep sub-agents, sessions,
and calls with equal ids apart; take back what a retry discards, but for the simplest cases; tell notices and errors
from answers; keep lines, offsets, times, models, prices or an account of the bytes. Of files on disk that are in the
corpus, they read what has the shape of the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from .peers import reduce_claude, reduce_pi

Record = dict[str, Any]


@dataclass(slots=True)
class Run:
    """What there is to say of a run."""

    texts: list[Any] = field(default_factory=list)
    """Each a string, or its parts as long as they come."""
    thoughts: list[Any] = field(default_factory=list)
    calls: dict[str, dict[str, Any]] = field(default_factory=dict)
    tokens: int = 0
    end: Any = None


def records(path: Path) -> Iterator[Record]:
    """What is JSON of the lines of a file."""
    with path.open("rb") as file:
        for line in file:
            try:
                yield orjson.loads(line)
            except ValueError:
                continue


def joined(parts: Any) -> Any:
    """The text of a list of content blocks."""
    if isinstance(parts, list):
        return "\n".join(part["text"] for part in parts if part.get("type") == "text")
    return parts


def acp(path: Path) -> Run:
    """The agent's side of the Agent Client Protocol, any agent."""
    run = Run()
    block: Any = None
    parts: list[str] = []
    for record in records(path):
        update = None
        if record.get("method") == "session/update":
            update = record["params"]["update"]
            kind = update["sessionUpdate"]
            if kind == "agent_message_chunk" or kind == "agent_thought_chunk":
                this = kind, update.get("messageId")
                if this != block:
                    block, parts = this, []
                    (run.texts if kind == "agent_message_chunk" else run.thoughts).append(parts)
                parts.append(update["content"].get("text", ""))
                continue
            if kind != "tool_call" and kind != "tool_call_update":
                continue
        elif record.get("method") == "session/request_permission":
            update = record["params"]["toolCall"]
        elif "result" in record:
            answer = record["result"] or {}
            if "stopReason" in answer:
                block, run.end = None, answer["stopReason"]
                run.tokens += (answer.get("usage") or {}).get("outputTokens", 0)
        elif "error" in record:
            run.end = record["error"]["message"]
        if update is not None:
            block = None
            call = run.calls.setdefault(update["toolCallId"], {"input": None, "result": None, "ok": None})
            if "title" in update:
                call["name"] = update["title"]
            if "rawInput" in update:
                call["input"] = update["rawInput"]
            if update.get("content"):
                contents = [part["content"] for part in update["content"] if part["type"] == "content"]
                call["result"] = joined(contents)
            meta = update.get("_meta") or {}
            if "terminal_output_delta" in meta:
                call.setdefault("output", []).append(meta["terminal_output_delta"]["data"])
            status = update.get("status")
            if status == "completed" or status == "failed":
                call["ok"] = status == "completed"
                if "output" in call:
                    call["result"] = "".join(call.pop("output"))
    run.texts = ["".join(parts) for parts in run.texts]
    run.thoughts = ["".join(parts) for parts in run.thoughts]
    return run


def codex(path: Path) -> Run:
    """Codex: ``exec --json``, new and old, the app server and the MCP server, and the first CLI."""
    run = Run()
    calls = run.calls
    deltas: dict[str, list[str]] = {}
    for record in records(path):
        kind = record.get("type") or record.get("method")
        if kind == "item.completed" or kind == "item.started":
            item = record["item"]
            what = item.get("type") or item.get("item_type")
            if what == "agent_message" or what == "assistant_message":
                run.texts.append(item["text"])
            elif what == "reasoning":
                run.thoughts.append(item["text"])
            elif what != "error" and what != "todo_list":
                status = item.get("status")
                result = item.get("result")
                calls[item["id"]] = {
                    "name": item.get("tool") or what,
                    "input": item.get("command") or item.get("arguments") or item.get("changes") or item.get("query"),
                    "result": joined(result["content"]) if result else item.get("aggregated_output"),
                    "ok": None if status == "in_progress" else status == "completed",
                }
        elif kind == "turn.completed":
            run.end = "completed"
            run.tokens += record["usage"]["output_tokens"]
        elif kind == "turn.failed":
            run.end = record["error"]["message"]
        elif kind == "item/agentMessage/delta":
            params = record["params"]
            deltas.setdefault(params["itemId"], []).append(params["delta"])
        elif kind == "item/completed" or kind == "item/started":
            item = record["params"]["item"]
            what = item["type"]
            if what == "agentMessage":
                if kind == "item/completed":
                    deltas.pop(item["id"], None)
                    run.texts.append(item["text"])
            elif what == "reasoning":
                if kind == "item/completed":
                    run.thoughts.append("\n".join(item["summary"]))
            elif what != "userMessage":
                result = item.get("result")
                calls[item["id"]] = {
                    "name": item.get("tool") or what,
                    "input": item.get("command") or item.get("arguments") or item.get("changes") or item.get("query"),
                    "result": joined(result["content"]) if result else item.get("aggregatedOutput"),
                    "ok": None if item.get("status") == "inProgress" else item.get("status") == "completed",
                }
        elif kind == "thread/tokenUsage/updated":
            run.tokens = record["params"]["tokenUsage"]["total"]["outputTokens"]
        elif kind == "turn/completed":
            run.end = record["params"]["turn"]["status"]
        elif kind == "message" and record["role"] == "assistant":
            run.texts.extend(part["text"] for part in record["content"] if part["type"] == "output_text")
        elif kind == "reasoning":
            run.thoughts.extend(part["text"] for part in record["summary"])
        elif kind == "function_call":
            call = {"name": record["name"], "input": record["arguments"], "result": None, "ok": None}
            calls[record["call_id"]] = call
        elif kind == "function_call_output":
            output = orjson.loads(record["output"])
            call = calls.setdefault(record["call_id"], {})
            call["result"], call["ok"] = output["output"], output["metadata"].get("exit_code") == 0
        else:
            message = record.get("msg") or (record.get("params") or {}).get("msg")
            if message is not None:
                what = message.get("type", "")
                if what == "agent_message":
                    run.texts.append(message["message"])
                elif what == "agent_reasoning":
                    run.thoughts.append(message["text"])
                elif what == "exec_command_begin":
                    call = {"name": "exec_command", "input": message["command"], "result": None, "ok": None}
                    calls[message["call_id"]] = call
                elif what == "exec_command_end":
                    call = calls.setdefault(message["call_id"], {})
                    call["result"] = message.get("aggregated_output") or message["stdout"]
                    call["ok"] = message["exit_code"] == 0
                elif what == "mcp_tool_call_begin" or what == "patch_apply_begin":
                    invocation = message.get("invocation") or {}
                    call = {"name": invocation.get("tool", "apply_patch"), "result": None, "ok": None}
                    call["input"] = invocation.get("arguments") or message.get("changes")
                    calls[message["call_id"]] = call
                elif what == "mcp_tool_call_end":
                    call = calls.setdefault(message["call_id"], {})
                    good = message["result"].get("Ok")
                    call["result"] = joined(good["content"]) if good else message["result"]["Err"]
                    call["ok"] = bool(good) and not good.get("isError")
                elif what == "patch_apply_end":
                    call = calls.setdefault(message["call_id"], {})
                    call["result"], call["ok"] = message["stdout"], message["success"]
                elif what == "token_count":
                    info = message.get("info")
                    if info:
                        run.tokens = info["total_token_usage"]["output_tokens"]
                    else:
                        run.tokens += message.get("output_tokens", 0)
                elif what == "task_complete" or what == "error":
                    run.end = what
    run.texts.extend("".join(text) for text in deltas.values())  # cut off
    return run


def copilot(path: Path) -> Run:
    """GitHub Copilot CLI. It tells no tokens."""
    run = Run()
    deltas: dict[str, list[str]] = {}
    for record in records(path):
        kind = record["type"]
        if kind == "assistant.message_delta":
            data = record["data"]
            deltas.setdefault(data["messageId"], []).append(data["deltaContent"])
        elif kind == "assistant.message":
            data = record["data"]
            deltas.pop(data["messageId"], None)
            if data["content"] and "agentId" not in record:
                run.texts.append(data["content"])
            if data.get("reasoningText"):
                run.thoughts.append(data["reasoningText"])
        elif kind == "assistant.turn_retry":
            deltas.clear()
        elif kind == "tool.execution_start":
            data = record["data"]
            call = {"name": data["toolName"], "input": data.get("arguments"), "result": None, "ok": None}
            run.calls[data["toolCallId"]] = call
        elif kind == "tool.execution_complete":
            data = record["data"]
            call = run.calls.setdefault(data["toolCallId"], {})
            call["ok"] = data["success"] and not (data.get("shellExecution") or {}).get("exitCode")
            call["result"] = data["result"]["content"] if data.get("result") else data["error"]["message"]
        elif kind == "session.error":
            run.end = record["data"]["message"]
        elif kind == "result":
            run.end = record["exitCode"]
    run.texts.extend("".join(text) for text in deltas.values())
    return run


def droid(path: Path) -> Run:
    """Factory Droid, which prints no deltas."""
    run = Run()
    for record in records(path):
        kind = record["type"]
        if kind == "message":
            if record["role"] == "assistant":
                run.texts.append(record["text"])
        elif kind == "reasoning":
            run.thoughts.append(record["text"])
        elif kind == "tool_call":
            call = {"name": record["toolName"], "input": record["parameters"], "result": None, "ok": None}
            run.calls[record["id"]] = call
        elif kind == "tool_result":
            call = run.calls.setdefault(record["id"], {})
            call["ok"] = not record["isError"]
            call["result"] = record["error"]["message"] if record["isError"] else record["value"]
        elif kind == "completion":
            run.end = "completed"
            run.tokens = record["usage"]["output_tokens"]
        elif kind == "error":
            run.end = record["message"]
    return run


def evosci(path: Path) -> Run:
    """EvoScientist. A block ends where another kind of record comes."""
    run = Run()
    block: Any = None
    parts: list[str] = []
    for record in records(path):
        kind = record["type"]
        if kind == "text" or kind == "thinking":
            if kind != block:
                block, parts = kind, []
                (run.texts if kind == "text" else run.thoughts).append(parts)
            parts.append(record["content"])
            continue
        if kind.startswith("subagent_"):
            kind = kind[len("subagent_") :]
        else:
            block = None
        if kind == "tool_call":
            call = {"name": record["name"], "input": record["args"], "result": None, "ok": None}
            run.calls[record["id"]] = call
        elif kind == "tool_result":
            call = run.calls.setdefault(record["id"], {})
            call["result"], call["ok"] = record["content"], record["success"]
        elif kind == "usage_stats":
            run.tokens += record["output_tokens"]
        elif kind == "model_retry" or kind == "model_output_discarded":
            discarded = record["discarded"]
            if not record["instance_id"] and discarded["text_chars"]:
                run.texts.pop()
            if not record["instance_id"] and discarded["thinking_chars"]:
                run.thoughts.pop()
        elif kind == "done" or kind == "error":
            run.end = record.get("message", kind)
    run.texts = ["".join(parts) for parts in run.texts]
    run.thoughts = ["".join(parts) for parts in run.thoughts]
    return run


def gemini(path: Path) -> Run:
    """Gemini CLI. A text ends where another kind of record comes."""
    run = Run()
    parts: list[str] | None = None
    for record in records(path):
        kind = record["type"]
        if kind == "message":
            if record["role"] == "assistant":
                if parts is None:
                    parts = []
                    run.texts.append(parts)
                parts.append(record["content"])
            continue
        parts = None
        if kind == "tool_use":
            call = {"name": record["tool_name"], "input": record["parameters"], "result": None, "ok": None}
            run.calls[record["tool_id"]] = call
        elif kind == "tool_result":
            call = run.calls.setdefault(record["tool_id"], {})
            call["ok"] = record["status"] == "success"
            call["result"] = record["output"] if "output" in record else record.get("error", {}).get("message")
        elif kind == "result":
            run.end = record["status"]
            run.tokens += record["stats"]["output_tokens"]
    run.texts = ["".join(parts) for parts in run.texts]
    return run


def kimi(path: Path) -> Run:
    """Kimi CLI and Kimi Code: chat messages, and the records of ``wire.jsonl``. ACP of theirs is another reducer's."""
    run = Run()
    for record in records(path):
        role = record.get("role")
        if role == "assistant":
            content = record.get("content")
            for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
                if part["type"] == "text" and part["text"]:
                    run.texts.append(part["text"])
                elif part["type"] == "think":
                    run.thoughts.append(part["think"])
            for call in record.get("tool_calls") or ():
                function = call["function"]
                made = {"name": function["name"], "input": function["arguments"], "result": None, "ok": None}
                run.calls[call["id"]] = made
        elif role == "tool":
            call = run.calls.setdefault(record["tool_call_id"], {})
            call["result"] = joined(record["content"])
            call["ok"] = not call["result"].startswith("<system>ERROR")
        elif role == "meta":
            if record["type"] == "session.resume_hint":
                run.end = "completed"
        elif "message" in record:
            kind, payload = record["message"]["type"], record["message"]["payload"]
            if kind == "ContentPart":
                if payload["type"] == "text":
                    run.texts.append(payload["text"])
                elif payload["type"] == "think":
                    run.thoughts.append(payload["think"])
            elif kind == "ToolCall":
                function = payload["function"]
                made = {"name": function["name"], "input": function["arguments"], "result": None, "ok": None}
                run.calls[payload["id"]] = made
            elif kind == "ToolResult":
                call = run.calls.setdefault(payload["tool_call_id"], {})
                call["result"] = joined(payload["return_value"]["output"])
                call["ok"] = not payload["return_value"]["is_error"]
            elif kind == "StatusUpdate":
                run.tokens += (payload.get("token_usage") or {}).get("output", 0)
            elif kind == "TurnEnd":
                run.end = kind
    return run


def minicode(path: Path) -> Run:
    """minicode."""
    run = Run()
    parts: list[str] = []
    thought: list[str] = []
    for record in records(path):
        kind = record.get("type", "")
        if kind == "text":
            parts.append(record["delta"])
        elif kind == "reasoning.delta":
            thought.append(record["payload"]["delta"])
        elif kind == "reasoning.completed":
            run.thoughts.append("".join(thought))
            thought.clear()
        elif kind.startswith("tool."):
            payload = record.get("payload") or record
            call = run.calls.setdefault(payload["toolCallId"], {"result": None, "ok": None})
            if kind == "tool.started":
                if parts:
                    run.texts.append("".join(parts))
                    parts.clear()
                call["name"], call["input"] = payload["name"], payload.get("target")
            elif kind != "tool.progress" and call["ok"] is None:
                call["ok"] = kind == "tool.completed"
                call["result"] = payload.get("toolSummary") or payload.get("message")
        elif kind.startswith("turn."):
            if parts:
                run.texts.append("".join(parts))
                parts.clear()
            run.end = kind
        elif kind == "summary":
            run.end = record["ok"]
            run.tokens += (record.get("usage") or {}).get("outputTokens", 0)
    if parts:
        run.texts.append("".join(parts))
    return run


def opencode(path: Path) -> Run:
    """OpenCode, which prints whole parts."""
    run = Run()
    for record in records(path):
        kind = record.get("type")
        if kind == "text":
            run.texts.append(record["part"]["text"])
        elif kind == "reasoning":
            run.thoughts.append(record["part"]["text"])
        elif kind == "tool_use":
            part = record["part"]
            state = part["state"]
            run.calls[part["callID"]] = {
                "name": part["tool"],
                "input": state["input"],
                "result": state["output"] if "output" in state else state.get("error"),
                "ok": state["status"] == "completed" and not (state.get("metadata") or {}).get("exit"),
            }
        elif kind == "step_finish":
            part = record["part"]
            run.end = part["reason"]
            run.tokens += part["tokens"]["output"] + part["tokens"]["reasoning"]
        elif kind == "error":
            run.end = record["error"]["name"]
    return run


REDUCERS: dict[str, Callable[[Path], Any]] = {
    "claude": lambda path: reduce_claude([path]),
    "codex": codex,
    "copilot": copilot,
    "droid": droid,
    "evosci": evosci,
    "gemini": gemini,
    "kimi": kimi,
    "kimi-code": kimi,
    "minicode": minicode,
    "opencode": opencode,
    "pi": lambda path: reduce_pi([path]),
    "qwen": lambda path: reduce_claude([path]),
}


def reduce(paths: list[Path]) -> list[Any]:
    """The run of every file; one whose name begins with "acp" is of that protocol."""
    return [REDUCERS.get(path.stem, acp)(path) for path in paths]
