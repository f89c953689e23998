"""What people write today: a loop over the lines of a file, and what a reducer needs at least."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jiter
import msgspec
import orjson
import simdjson

Paths = list[Path]
Loads = Callable[[bytes], Any]


def loop(loads: Loads) -> Callable[[Paths], int]:
    """``for line in file: loads(line)``; gives the number of lines that it could not read."""

    def run(paths: Paths) -> int:
        refused = 0
        for path in paths:
            with path.open("rb") as file:
                for line in file:
                    try:
                        loads(line)
                    except (ValueError, RuntimeError):  # pysimdjson has no integers beyond 64 bits
                        refused += 1
        return refused

    return run


LOOPS: dict[str, Callable[[Paths], int]] = {
    "json": loop(json.loads),
    "orjson": loop(orjson.loads),
    "msgspec": loop(msgspec.json.decode),
    "pysimdjson": loop(simdjson.loads),
    "jiter": loop(jiter.from_json),
}


def reduce_pi(paths: Paths) -> dict[str, Any]:
    """orjson and a short reducer for pi: texts, thoughts, calls with results, usage. It checks nothing."""
    texts: list[str] = []
    thoughts: list[str] = []
    calls: dict[str, dict[str, Any]] = {}
    tokens = 0
    stop = None
    open_blocks: dict[int, list[str]] = {}
    for path in paths:
        with path.open("rb") as file:
            for line in file:
                try:
                    record = orjson.loads(line)
                    kind = record.get("type")
                except (ValueError, AttributeError):  # no JSON, or no object
                    continue
                if kind == "message_update":
                    event = record["assistantMessageEvent"]
                    what = event["type"]
                    if what in ("text_delta", "thinking_delta"):
                        open_blocks.setdefault(event["contentIndex"], []).append(event["delta"])
                    elif what == "text_end":
                        texts.append(event.get("content") or "".join(open_blocks.pop(event["contentIndex"], ())))
                    elif what == "thinking_end":
                        thoughts.append(event.get("content") or "".join(open_blocks.pop(event["contentIndex"], ())))
                elif kind == "message_end":
                    message = record["message"]
                    if message["role"] == "assistant":
                        open_blocks.clear()
                        stop = message.get("stopReason")
                        tokens += (message.get("usage") or {}).get("output", 0)
                elif kind == "tool_execution_start":
                    calls[record["toolCallId"]] = {"name": record["toolName"], "input": record["args"], "result": None}
                elif kind == "tool_execution_end":
                    call = calls.setdefault(record["toolCallId"], {})
                    call["ok"] = not record.get("isError")
                    call["result"] = "\n".join(part.get("text", "") for part in record["result"]["content"])
    return {"texts": texts, "thoughts": thoughts, "calls": calls, "tokens": tokens, "stop": stop}


def reduce_claude(paths: Paths) -> dict[str, Any]:
    """orjson and a short reducer for Claude Code's streams and session files. It checks nothing."""
    texts: list[str] = []
    thoughts: list[str] = []
    calls: dict[str, dict[str, Any]] = {}
    usages: dict[str, Any] = {}
    result = None
    streamed: dict[int, list[str]] = {}
    for path in paths:
        with path.open("rb") as file:
            for line in file:
                try:
                    record = orjson.loads(line)
                    kind = record.get("type")
                except (ValueError, AttributeError):  # no JSON, or no object
                    continue
                if kind == "stream_event":
                    event = record["event"]
                    if event["type"] == "content_block_delta":
                        delta = event["delta"]
                        if delta["type"] == "text_delta":
                            streamed.setdefault(event["index"], []).append(delta["text"])
                        elif delta["type"] == "thinking_delta":
                            streamed.setdefault(event["index"], []).append(delta["thinking"])
                    elif event["type"] == "message_start":
                        streamed.clear()
                elif kind == "assistant":
                    message = record["message"]
                    usages[message["id"]] = message.get("usage")
                    for block in message["content"]:
                        if block["type"] == "text":
                            texts.append(block["text"])
                        elif block["type"] == "thinking":
                            thoughts.append(block["thinking"])
                        elif block["type"] == "tool_use":
                            calls[block["id"]] = {"name": block["name"], "input": block["input"], "result": None}
                elif kind == "user":
                    content = record["message"]["content"]
                    for block in content if isinstance(content, list) else ():
                        if block["type"] == "tool_result":
                            call = calls.setdefault(block["tool_use_id"], {})
                            call["ok"] = not block.get("is_error")
                            call["result"] = block["content"]
                elif kind == "result":
                    result = record.get("result")
    return {"texts": texts, "thoughts": thoughts, "calls": calls, "usages": usages, "result": result}
