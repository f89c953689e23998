"""Makes the streams that the benchmarks read, in the shapes of the bundled recordings.

``python -m benches.corpus KIND MB`` writes one and prints its path; the suites call `corpus`. Kinds:

- ``pi-deltas``: pi text deltas, with a tool call for each message;
- ``claude-deltas``: Claude Code with ``--include-partial-messages``, likewise;
- ``claude-transcript``: a Claude Code session file with large tool results;
- ``mixed``: all recordings, dialect by dialect, each repeated to its share of the size: a folder with a file for each.

The records are those of the recordings with other texts, ids and counters in them. The same kind and size gives the
same bytes every time.
"""

from __future__ import annotations

import copy
import functools
import gzip
import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FOLDER = HERE / "corpus"
RECORDINGS = Path(os.environ.get("HEADRACE_RECORDINGS", HERE.parent / "tests" / "data" / "recordings"))

WORDS = [
    *("the", "parser", "reads", "a", "line", "of", "the", "stream", "and", "checks", "every", "byte", "before", "it"),
    *("counts", "as", "a", "record", "so", "that", "nothing", "which", "the", "model", "said", "is", "lost", "when"),
    *("a", "pipe", "breaks", "or", "a", "chunk", "ends", "in", "the", "middle", "of", "a", "character", "def"),
    *("return", "import", "self", "None", "list", "test", "error", "value", "path", "index", "buffer", "result"),
    *("config", "module", "function", "class", "async", "await", "café", "naïve", "—", "你好", "✓", "🚀"),
]
DELTAS = 300  # of one message

Json = Any
Record = dict[str, Json]


def read(dialect: str, name: str) -> Iterator[Record]:
    """The records of a bundled recording (or of one in ``HEADRACE_RECORDINGS``, compressed or not)."""
    for line in raw(RECORDINGS / dialect / name).splitlines():
        yield json.loads(line)


def raw(path: Path) -> bytes:
    """The bytes of a recording; the name may lack its ``.gz``."""
    packed = path if path.suffix == ".gz" else path.with_name(path.name + ".gz")
    return gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()


class Text:
    """Deltas, tool output and ids, always the same for one seed."""

    def __init__(self) -> None:
        self._random = random.Random(7)

    def delta(self) -> str:
        """One or two words, as models stream them."""
        word = self._random.choice(WORDS)
        dice = self._random.random()
        if dice < 0.03:
            return word + ".\n"
        return f" {word} {self._random.choice(WORDS)}" if dice < 0.2 else f" {word}"

    def lines(self, count: int) -> str:
        """Tool output."""
        return "\n".join(" ".join(self._random.choices(WORDS, k=12)) for _ in range(count))

    def size(self, low: int, high: int) -> int:
        return self._random.randrange(low, high)

    def uuid(self) -> str:
        digits = f"{self._random.getrandbits(128):032x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def first(records: list[Record], wanted: Callable[[Record], bool]) -> Record:
    """The first record of that kind: the shape that the corpus repeats."""
    return copy.deepcopy(next(record for record in records if wanted(record)))


# -------------------------------------------------------------------- pi


def pi_deltas() -> Iterator[Record]:
    """Turns of one pi session, without end."""
    text = Text()
    records = list(read("pi", "tools.jsonl"))

    def of(kind: str, **fields: Json) -> Record:
        def wanted(record: Record) -> bool:
            event = record.get("assistantMessageEvent") or record.get("message") or {}
            return record["type"] == kind and all(event.get(key) == value for key, value in fields.items())

        return first(records, wanted)

    start, update = of("message_start", role="assistant"), of("message_update", type="text_delta")
    end, turn_end = of("message_end", role="assistant"), of("turn_end")
    run, done = of("tool_execution_start"), of("tool_execution_end")
    result = of("message_end", role="toolResult")
    yield from records[: records.index(start)]
    for turn in range(1, sys.maxsize):
        if turn > 1:
            yield {"type": "turn_start"}
        yield start
        call_id = f"toolu_{turn:06}"
        input_ = {"command": f"make {turn} " + text.delta()}
        call = {"type": "toolCall", "id": call_id, "name": "bash", "arguments": input_}
        said: list[str] = []

        def updated(said: list[str] = said, **event: Json) -> Record:
            usage = update["usage"]
            usage["output"] = 11 + len(said)
            usage["totalTokens"] = usage["input"] + usage["output"] + usage["cacheRead"] + usage["cacheWrite"]
            usage["cost"]["output"] = usage["output"] * 15 / 1e6
            usage["cost"]["total"] = sum(usage["cost"][key] for key in ("input", "output", "cacheRead", "cacheWrite"))
            return {**update, "assistantMessageEvent": event}

        yield updated(type="text_start", contentIndex=0)
        for _ in range(DELTAS):
            said.append(text.delta())
            yield updated(type="text_delta", contentIndex=0, delta=said[-1])
        whole = "".join(said)
        yield updated(type="text_end", contentIndex=0, content=whole)
        yield updated(type="toolcall_start", contentIndex=1, id=call_id, toolName="bash")
        arguments = json.dumps(call["arguments"])
        for at in range(0, len(arguments), 12):
            yield updated(type="toolcall_delta", contentIndex=1, delta=arguments[at : at + 12])
        yield updated(type="toolcall_end", contentIndex=1, toolCall=call)
        message = end["message"] | {"content": [{"type": "text", "text": whole}, call], "usage": update["usage"]}
        output = [{"type": "text", "text": text.lines(text.size(2, 120))}]
        yield {**end, "message": message}
        yield {**run, "toolCallId": call_id, "args": call["arguments"]}
        yield {**done, "toolCallId": call_id, "result": {"content": output}}
        answer = result["message"] | {"toolCallId": call_id, "content": output}
        yield {"type": "message_start", "message": answer}
        yield {"type": "message_end", "message": answer}
        yield {**turn_end, "message": message, "toolResults": [answer]}


# -------------------------------------------------------------------- Claude Code


def claude_deltas() -> Iterator[Record]:
    """Turns of one ``claude -p --include-partial-messages`` run, without end."""
    text = Text()
    records = list(read("claude", "plan_partial.jsonl"))

    def event(kind: str) -> Record:
        return first(records, lambda record: record["type"] == "stream_event" and record["event"]["type"] == kind)

    start, stop = event("message_start"), event("message_stop")
    block_start, block_stop = event("content_block_start"), event("content_block_stop")
    delta, message_delta = event("content_block_delta"), event("message_delta")
    whole, result = (first(records, lambda r, t=t: r["type"] == t) for t in ("assistant", "user"))
    yield first(records, lambda record: record["type"] == "system")
    for turn in range(1, sys.maxsize):
        message_id, call_id = f"msg_01Bench{turn:06}", f"toolu_01Bench{turn:06}"

        def stamped(record: Record, message_id: str = message_id, **fields: Json) -> Record:
            known = {"api_message_id": message_id} if "api_message_id" in record else {}
            return record | {"uuid": text.uuid()} | known | fields

        def block(index: int, deltas: list[Record], **content: Json) -> Iterator[Record]:
            yield stamped(block_start, event={**block_start["event"], "index": index, "content_block": content})
            for part in deltas:
                yield stamped(delta, event={**delta["event"], "index": index, "delta": part})

        def message(content: Json, message_id: str = message_id) -> Record:
            return stamped(whole, message=whole["message"] | {"id": message_id, "content": [content]})

        head = start["event"]["message"] | {"id": message_id}
        yield stamped(start, event={"type": "message_start", "message": head})
        said = [text.delta() for _ in range(DELTAS)]
        yield from block(0, [{"type": "text_delta", "text": part} for part in said], type="text", text="")
        yield message({"type": "text", "text": "".join(said)})
        yield stamped(block_stop, event={"type": "content_block_stop", "index": 0})
        call = {"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": f"make {turn} " + text.delta()}}
        arguments = json.dumps(call["input"])
        parts = [arguments[at : at + 12] for at in range(0, len(arguments), 12)]
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
        yield from block(1, deltas, **{**call, "input": {}})
        yield message(call)
        yield stamped(block_stop, event={"type": "content_block_stop", "index": 1})
        yield stamped(message_delta)
        yield stamped(stop)
        output = text.lines(text.size(2, 120))
        answer = {"tool_use_id": call_id, "type": "tool_result", "content": output, "is_error": False}
        yield stamped(
            result,
            message={"role": "user", "content": [answer]},
            tool_use_result={"stdout": output, "stderr": "", "interrupted": False, "isImage": False},
            tool_result_meta=[{"id": call_id}],
        )


def claude_transcript() -> Iterator[Record]:
    """Turns of one Claude Code session file, each with a large tool result, without end."""
    text = Text()
    records = list(read("claude", "tools.session.jsonl"))

    def block(kind: str) -> Record:
        def wanted(record: Record) -> bool:
            content = (record.get("message") or {}).get("content")
            return record["type"] in ("user", "assistant") and isinstance(content, list) and content[0]["type"] == kind

        return first(records, wanted)

    said, used, result = block("text"), block("tool_use"), block("tool_result")
    yield first(records, lambda record: record["type"] == "user")
    parent = text.uuid()

    def after(record: Record, **fields: Json) -> Record:
        nonlocal parent
        before, parent = parent, text.uuid()
        return record | {"parentUuid": before, "uuid": parent} | fields

    for turn in range(1, sys.maxsize):
        call_id = f"toolu_01Bench{turn:06}"

        def message(record: Record, content: Json, turn: int = turn) -> Record:
            return after(record, message=record["message"] | {"id": f"msg_01Bench{turn:06}", "content": [content]})

        yield message(said, {"type": "text", "text": text.lines(3)})
        call = {"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": f"make {turn} " + text.delta()}}
        yield message(used, call)
        output = text.lines(text.size(20, 1200))
        answer = {"tool_use_id": call_id, "type": "tool_result", "content": output, "is_error": False}
        yield after(
            result,
            message={"role": "user", "content": [answer]},
            toolUseResult=result["toolUseResult"] | {"stdout": output},
        )


# -------------------------------------------------------------------- files

STREAMS: dict[str, Callable[[], Iterator[Record]]] = {
    "pi-deltas": pi_deltas,
    "claude-deltas": claude_deltas,
    "claude-transcript": claude_transcript,
}
KINDS = [*STREAMS, "mixed"]


def corpus(kind: str, megabytes: int) -> list[Path]:
    """The files of that kind, about so many megabytes in all; made if they are not there yet."""
    FOLDER.mkdir(exist_ok=True)
    if kind == "mixed":
        return mixed(megabytes * 1_000_000)
    path = FOLDER / f"{kind}-{megabytes}.jsonl"
    if not path.exists():
        write(path, dump(STREAMS[kind](), megabytes * 1_000_000))
    return [path]


def dump(records: Iterator[Record], size: int) -> Iterator[bytes]:
    """Lines, as Node prints them, until the size is reached."""
    written = 0
    encode = functools.partial(json.dumps, separators=(",", ":"), ensure_ascii=False)
    while written < size:
        line = encode(next(records)).encode() + b"\n"
        written += len(line)
        yield line


def write(path: Path, parts: Iterator[bytes]) -> None:
    """All of the file or nothing."""
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        file.writelines(parts)
    partial.rename(path)


def mixed(size: int) -> list[Path]:
    """A file for each folder of recordings, the share of each as large as what was recorded of it."""
    streams: dict[str, bytes] = {}
    for folder in sorted(path for path in RECORDINGS.iterdir() if path.is_dir()):
        names = sorted(path for path in folder.iterdir() if ".jsonl" in path.name and ".stdin." not in path.name)
        live = [raw(path) for path in names if ".session" not in path.name]
        streams[folder.name] = b"".join(part if part.endswith(b"\n") else part + b"\n" for part in live if part)
    total = sum(map(len, streams.values()))
    folder = FOLDER / f"mixed-{size // 1_000_000}"
    folder.mkdir(exist_ok=True)
    files = []
    for name, stream in streams.items():
        path = folder / f"{name}.jsonl"
        if not path.exists():
            write(path, iter([stream] * max(1, round(size / total))))
        files.append(path)
    return files


if __name__ == "__main__":
    for made in corpus(sys.argv[1], int(sys.argv[2])):
        print(made.relative_to(HERE.parent))
