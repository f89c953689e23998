"""Public parsers of Claude Code beside headrace, on the bundled recordings with their truth.

    pip install claude-agent-sdk agentabi agent-trajectory      # the last one needs node
    python -m benches.peers_claude [--list]

Each peer reads as its own code does when it runs the harness: the SDK frames and parses 64 KiB chunks, agentabi runs a
process that prints the recording and exits as the harness did, agent-trajectory gets the session file. Only recordings
in the mode that they ask the harness for count (stream-json). What they make of one is compared with the truth beside
it, by the fields that the peer has at all, and of several totals that a user might take any may be the right one. After
a failure no other field of that stream is counted. ``docs/peers.md`` has the result and its date.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from tests.truth import Stream, printed_totals, recordings

import headrace

CHUNK = 65_536


class Told:
    """What a reader made of a stream; a field is None if the reader has no such thing."""

    def __init__(self) -> None:
        self.raised: list[str] = []
        self.lost = 0  # records that are dropped because of their type, or because a sub-agent made them
        self.texts: list[str] | None = None
        self.thinking: list[str] | None = None
        self.calls: dict[str, bool | None] | None = None
        self.usages: list[tuple[int, int]] = []  # totals that a user might take
        self.no_usage = False  # the reader never has one
        self.completed: bool | None = None


# ------------------------------------------------------------ the readers


def read_headrace(stream: Stream) -> Told:
    run = headrace.reduce(stream.data, exit_code=stream.exit_code, stderr=stream.stderr)
    told = Told()
    told.lost = sum(run.report.unknown.values())
    told.texts, told.thinking = run.texts, run.thinking
    told.calls = {call["id"]: call["ok"] for call in run.tool_calls}
    totals = [usage for usage in (run.usage["run"], run.usage["calls"]) if usage is not None]
    told.usages = [(usage["prompt_tokens"] or 0, usage["completion_tokens"] or 0) for usage in totals]
    told.completed = run.verdict.outcome == "completed"
    return told


def read_sdk(stream: Stream) -> Told:
    """claude-agent-sdk: its line framer, line parser and message parser. A record that raises ends its iterator; here
    reading goes on, to count them."""
    from claude_agent_sdk import types
    from claude_agent_sdk._internal.message_parser import parse_message
    from claude_agent_sdk._internal.transport import subprocess_cli as cli

    told, results, calls = Told(), [], {}
    told.texts, told.thinking, told.calls = [], [], {}
    for line in _lines(stream.data, cli):
        try:
            if len(line) > cli._DEFAULT_MAX_BUFFER_SIZE:
                raise ValueError("a line is longer than the SDK's buffer")
            data = cli._parse_stdout_line(line)
            if data is None or data.get("type") in ("control_request", "control_response"):
                continue  # for the SDK's own client
            message = parse_message(data)
        except Exception as error:  # what a user of the SDK gets
            if line and not stream.data.endswith(b"\n") and stream.data.endswith(line[-20:].encode()):
                continue  # a cut last line: dropped in silence
            told.raised.append(f"{type(error).__name__}: {str(error)[:70]}")
            continue
        if message is None:
            told.lost += 1
        elif isinstance(message, types.ResultMessage):
            results.append(message)
        elif isinstance(message, (types.AssistantMessage, types.UserMessage)):
            main = message.parent_tool_use_id is None
            if isinstance(message, types.AssistantMessage):
                if message.error is not None:
                    continue  # marked as what it is: no text
                if message.usage and message.message_id:
                    calls[message.message_id] = message.usage
            for block in message.content if isinstance(message.content, list) else ():
                if isinstance(block, types.TextBlock) and main and isinstance(message, types.AssistantMessage):
                    told.texts.append(block.text)
                elif isinstance(block, types.ThinkingBlock) and main:
                    told.thinking.append(block.thinking)
                elif isinstance(block, (types.ToolUseBlock, types.ServerToolUseBlock)):
                    told.calls[block.id] = None
                elif isinstance(block, types.ToolResultBlock):
                    told.calls[block.tool_use_id] = not block.is_error
    if results:
        segments = [result.usage or {} for result in results]
        told.usages = [_total(segments[-1:], PROMPT), _total(segments, PROMPT)]
        models = list((results[-1].model_usage or {}).values())
        told.usages.append(_total(models, MODEL_PROMPT, "outputTokens"))
        told.completed = not results[-1].is_error and results[-1].subtype == "success"
    else:
        told.completed = False
    told.usages.append(_total(list(calls.values()), PROMPT))
    return told


PROMPT = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
MODEL_PROMPT = ("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")


def _total(usages: list[Any], prompt: tuple[str, ...], output: str = "output_tokens") -> tuple[int, int]:
    return (
        sum(usage.get(key) or 0 for usage in usages for key in prompt),
        sum(usage.get(output) or 0 for usage in usages),
    )


def _lines(data: bytes, cli: Any) -> Iterator[str]:
    framer = cli._LineFramer()
    text = data.decode("utf-8", "replace")
    for at in range(0, len(text), CHUNK):
        yield from framer.push(text[at : at + CHUNK])
    yield framer.flush()


def read_agentabi(stream: Stream) -> Told:
    """agentabi: its provider for the Claude command line, with a command that prints the recording."""
    from agentabi.providers.claude_native import ClaudeNativeProvider

    with tempfile.NamedTemporaryFile() as file:
        file.write(stream.data)
        file.flush()

        class Provider(ClaudeNativeProvider):
            @staticmethod
            def _build_command(task: Any) -> list[str]:
                return ["sh", "-c", f'cat "$0"; exit {stream.exit_code or 0}', file.name]

        told = Told()
        told.calls = {}
        streamed: list[str] = []
        final: list[str] = []
        thoughts: list[str] = []
        usages: list[Any] = []
        fatal = False

        async def run() -> None:
            nonlocal fatal
            async for event in Provider().stream({"prompt": "x"}):
                kind = event["type"]
                if kind == "message_delta":
                    streamed.append(event["text"])
                elif kind == "message_end" and event.get("text"):
                    final.append(event["text"])
                elif kind == "reasoning_delta":
                    thoughts.append(event["reasoning"])
                elif kind == "tool_use":
                    told.calls[event["tool_use_id"]] = None
                elif kind == "tool_result":
                    told.calls[event["tool_use_id"]] = not event.get("is_error")
                elif kind == "usage":
                    usages.append(event["usage"])
                elif kind == "error":
                    fatal = True

        try:
            asyncio.run(run())
        except Exception as error:  # what a user of agentabi gets: the rest of the run is lost
            told.raised.append(f"{type(error).__name__}: {str(error)[:70]}")
    told.texts, told.thinking = final or streamed, thoughts
    if usages:
        prompt = ("input_tokens", "cache_read_tokens", "cache_creation_tokens")
        told.usages = [_total(usages[-1:], prompt), _total(usages, prompt)]
    told.completed = bool(usages) and not fatal and not told.raised
    return told


def read_trajectory(stream: Stream) -> Told:
    """agent-trajectory, on session files."""
    from trajectory import normalize_transcript

    told = Told()
    told.no_usage = True
    try:
        result = normalize_transcript(source="claude-code", transcript=stream.data.decode("utf-8", "replace"))
    except Exception as error:  # what a user gets
        told.raised.append(f"{type(error).__name__}: {str(error)[:70]}")
        return told
    told.texts, told.calls = [], {}
    told.lost = sum(
        note.get("count", 1) for note in result["diagnostics"] if note["code"] == "sidechain_record_dropped"
    )
    for record in result["records"]:
        if record["role"] == "assistant":
            if record.get("content"):
                told.texts.append(record["content"])
            for call in record.get("tool_calls") or ():
                told.calls[call["id"]] = None
        elif record["role"] == "tool":
            told.calls[record["tool_call_id"]] = record.get("ok")
    return told


# ------------------------------------------------------------ the truth


def faults(stream: Stream, told: Told) -> Iterator[tuple[str, str]]:
    """What is wrong, as (field, detail)."""
    truth = stream.truth
    if told.raised:
        yield "raised", f"{len(told.raised)}x {told.raised[0]}"
        return
    assert told.texts is not None
    partial = truth.get("partial_text_is_prefix_of") or truth.get("cut_texts")
    if truth.get("texts") is not None and not partial and stream.kind == "live":
        wanted, got = "".join(truth["texts"]), "".join(told.texts)
        if wanted != got:
            yield "texts", _how(wanted, got)
    if truth.get("thinking") is not None and told.thinking is not None and not partial and stream.kind == "live":
        wanted, got = "".join(truth["thinking"]), "".join(told.thinking)
        if wanted != got:
            yield "thinking", _how(wanted, got)
    final = truth.get("final_text")
    last = told.texts[-1] if told.texts else ""
    if stream.kind == "stored" and truth.get("outcome") == "completed" and final and last != final:
        yield "final text", _how(final, last)
    for call in truth.get("tool_calls") or ():
        if call.get("on_stream") is False or told.calls is None:
            continue
        if call["id"] not in told.calls:
            if stream.kind == "live":
                yield "call lost", call["id"]
        elif call.get("ok") is not None and told.calls[call["id"]] is not call["ok"]:
            yield "call ok", f"{call['id']} {told.calls[call['id']]}, is {call['ok']}"
    usage = truth.get("usage") or {}
    totals = printed_totals(stream, usage) if usage.get("prompt") and stream.kind == "live" else []
    if totals and not told.no_usage:
        pairs = [(total["prompt"], total["completion"]) for total in totals]
        if not any(wanted[0] == got[0] and wanted[1] in (None, got[1]) for wanted in pairs for got in told.usages):
            yield "usage", f"{told.usages[0] if told.usages else None}, is {pairs[0]}"
    if told.completed is not None and "outcome" in truth:
        outcomes = truth["outcome"] if isinstance(truth["outcome"], list) else [truth["outcome"]]
        if told.completed != ("completed" in outcomes):
            yield "outcome", f"{'completed' if told.completed else 'not completed'}, is {outcomes[0]}"


def _how(wanted: str, got: str) -> str:
    if wanted and got == wanted * 2:
        return "twice"
    if not got:
        return "none"
    return f"{len(got)} characters, are {len(wanted)}"


READERS: dict[str, tuple[str, str, Callable[[Stream], Told]]] = {
    "headrace": ("live", "headrace", read_headrace),
    "claude-agent-sdk": ("live", "claude-agent-sdk", read_sdk),
    "agentabi": ("live", "agentabi", read_agentabi),
    "headrace, session files": ("stored", "headrace", read_headrace),
    "agent-trajectory, session files": ("stored", "agent-trajectory", read_trajectory),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name every fault")
    options = parser.parse_args()
    streams = [
        stream
        for stream in recordings()
        if stream.name.startswith("claude/") and "stream-json" in stream.truth.get("command", "")
    ]
    for title, (kind, package, read) in READERS.items():
        version = headrace.__version__ if package == "headrace" else importlib.metadata.version(package)
        mine = [stream for stream in streams if stream.kind == kind]
        counts: dict[str, list[str]] = {}
        lost = 0
        for stream in mine:
            told = read(stream)
            lost += told.lost
            for field, detail in faults(stream, told):
                counts.setdefault(field, []).append(f"{stream.name.removeprefix('claude/')} ({detail})")
        print(f"## {title} {version}: {len(mine)} streams, {lost} records dropped")
        for field, details in counts.items():
            names = {detail.partition(" (")[0] for detail in details}
            print(f"- {field}: {len(details)} in {len(names)} streams")
            if options.list:
                print("\n".join(f"    - {detail}" for detail in details))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
