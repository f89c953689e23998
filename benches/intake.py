"""Live intake: does a producer ever wait, what does it cost, how soon is an event there?

    python benches/intake.py stall     # one producer, a consumer that sleeps, against `producer | cat > /dev/null`
    python benches/intake.py many      # many producers in one event loop, against StreamReader.readline + orjson
    python benches/intake.py latency   # from write() to the handler, at 100 events a second

Sizes are small by default; see --help. Every comparison runs in turn in one call, on the same machine state.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

import orjson

import headrace

MB = 1_000_000

# Blocks of whole records (codex items), written as fast as the pipe takes them. The last line on stderr tells the
# seconds in all, and the longest write in milliseconds.
PRODUCER = """
import hashlib, json, os, sys, time
size, block_size = int(sys.argv[1]), int(sys.argv[2])
item = {"id": "item_0", "type": "command_execution", "command": "make", "aggregated_output": "z" * 180,
        "exit_code": 0, "status": "completed"}
line = json.dumps({"type": "item.completed", "item": item}, separators=(",", ":")).encode() + b"\\n"
block = line * max(block_size // len(line), 1)
digest, worst = hashlib.sha256(), 0.0
def write(data):
    global worst
    view = memoryview(data)
    while view:
        started = time.perf_counter()
        done = os.write(1, view)
        worst = max(worst, time.perf_counter() - started)
        view = view[done:]
started = time.perf_counter()
write(b'{"type":"thread.started","thread_id":"t-1"}\\n{"type":"turn.started"}\\n')
for _ in range(size // len(block)):
    write(block)
usage = {"input_tokens": 5, "cached_input_tokens": 0, "output_tokens": 1}
write(json.dumps({"type": "turn.completed", "usage": usage}).encode() + b"\\n")
print(json.dumps({"seconds": time.perf_counter() - started, "worst_ms": worst * 1000}), file=sys.stderr)
"""
TICKER = """
import os, time
for n in range(int(__import__("sys").argv[1])):
    time.sleep(0.01)
    os.write(1, b'{"type": "text", "content": "%d"}\\n' % time.perf_counter_ns())
os.write(1, b'{"type": "done", "content": "", "response": ""}\\n')
"""


def producer(size: int, block: int) -> list[str]:
    return [sys.executable, "-S", "-c", PRODUCER, str(size), str(block)]


# ---------------------------------------------------------------- (a)


def stall(arguments: argparse.Namespace) -> None:
    """The producer's own time: with cat, with a consumer that reads on, with one that sleeps until it has ended."""
    size = arguments.size * MB
    for _ in range(arguments.rounds):
        with subprocess.Popen(producer(size, 1 << 16), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as one:
            with open(os.devnull, "wb") as null:
                subprocess.run(["cat"], stdin=one.stdout, stdout=null, check=True)
            assert one.stderr is not None
            alone = json.loads(one.stderr.read())
        drained = _drain(size, arguments.spill_dir, sleep=False)
        slept = _drain(size, arguments.spill_dir, sleep=True)
        print(
            f"{arguments.size} MB: cat {alone['seconds']:.2f} s; consumer that reads {drained['seconds']:.2f} s "
            f"({drained['seconds'] / alone['seconds']:.2f}); that sleeps {slept['seconds']:.2f} s "
            f"({slept['seconds'] / alone['seconds']:.2f}), longest write {slept['worst_ms']:.0f} ms; "
            f"SHA-256 equal: {drained['digest'] == slept['digest']}; "
            f"peak RSS {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB"
        )


def _drain(size: int, spill_dir: str | None, *, sleep: bool) -> dict[str, Any]:
    intake = headrace.Intake(spill_dir=spill_dir)
    read, write = os.pipe()
    with subprocess.Popen(producer(size, 1 << 16), stdout=write, stderr=subprocess.PIPE) as one:
        os.close(write)
        stream = intake.add(read, "producer")
        os.close(read)
        if sleep:
            while one.poll() is None:
                time.sleep(0.05)
        digest = hashlib.sha256()
        while (chunk := intake.take(stream)) is not None:
            if chunk:
                digest.update(chunk)
            else:
                intake.wait([stream], 1)
        assert one.stderr is not None
        told: dict[str, Any] = json.loads(one.stderr.read())
    intake.close()
    return {**told, "digest": digest.hexdigest()}


# ---------------------------------------------------------------- (b)


def many(arguments: argparse.Namespace) -> None:
    """Total time, and the longest time that any producer was held in one write."""
    ways = {
        "StreamReader.readline + orjson": _readline,
        "headrace, every event": lambda argv: _events(argv, None),
        "headrace, run and errors": lambda argv: _events(argv, {"error"}),
    }
    for _ in range(arguments.rounds):
        for name, way in ways.items():
            started = time.perf_counter()
            worst = asyncio.run(_all(way, arguments.producers, arguments.size * MB))
            seconds = time.perf_counter() - started
            total = arguments.producers * arguments.size
            print(
                f"{arguments.producers} x {arguments.size} MB, {name}: {seconds:.2f} s, {total / seconds:.0f} MB/s, "
                f"longest write {worst:.0f} ms"
            )


async def _all(way: Any, count: int, size: int) -> float:
    return max(await asyncio.gather(*(way(producer(size, 1)) for _ in range(count))))


class _Handler:
    """Blocks the loop for 5 ms at every thousandth record or event."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, item: Any) -> None:
        self.seen += 1
        if self.seen % 1000 == 0:
            time.sleep(0.005)


async def _readline(argv: list[str]) -> float:
    process = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, limit=1 << 24)
    assert process.stdout is not None
    assert process.stderr is not None
    handle = _Handler()
    while line := await process.stdout.readline():
        handle(orjson.loads(line))
    told = json.loads(await process.stderr.read())
    await process.wait()
    return float(told["worst_ms"])


async def _events(argv: list[str], only: set[str] | None) -> float:
    handle = _Handler()
    async with headrace.AsyncProcess(argv, only=only) as process:
        async for event in process:
            handle(event)
    assert process.run.verdict.outcome == "completed"
    return float(json.loads(process.stderr_tail)["worst_ms"])


# ---------------------------------------------------------------- (c)


def latency(arguments: argparse.Namespace) -> None:
    argv = [sys.executable, "-S", "-c", TICKER, str(arguments.events)]
    for _ in range(arguments.rounds):
        for name, way in (
            ("asyncio readline + orjson", _ticks_readline),
            ("AsyncProcess", _ticks_async),
            ("Process", _ticks_sync),
        ):
            late = sorted(way(argv))
            p50, p99 = statistics.median(late), late[int(len(late) * 0.99)]
            print(f"{name}: p50 {p50:.0f} us, p99 {p99:.0f} us")


def _late(text: str) -> float:
    return (time.perf_counter_ns() - int(text)) / 1000


def _ticks_readline(argv: list[str]) -> list[float]:
    async def main() -> list[float]:
        process = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE)
        assert process.stdout is not None
        late = []
        while line := await process.stdout.readline():
            record = orjson.loads(line)
            if record["type"] == "text":
                late.append(_late(record["content"]))
        await process.wait()
        return late

    return asyncio.run(main())


def _ticks_async(argv: list[str]) -> list[float]:
    async def main() -> list[float]:
        async with headrace.AsyncProcess(argv, dialect="evosci") as process:
            return [_late(event["update"]["content"]["text"]) async for event in process]

    return asyncio.run(main())


def _ticks_sync(argv: list[str]) -> list[float]:
    with headrace.Process(argv, dialect="evosci") as process:
        return [_late(event["update"]["content"]["text"]) for event in process]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", choices=["stall", "many", "latency"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, help="MB of each producer (stall: 256, many: 2)")
    parser.add_argument("--producers", type=int, default=20)
    parser.add_argument("--events", type=int, default=300)
    parser.add_argument("--spill-dir")
    arguments = parser.parse_args()
    if arguments.size is None:
        arguments.size = 256 if arguments.bench == "stall" else 2
    print(f"headrace {headrace.__version__}, {headrace.backend} backend")
    {"stall": stall, "many": many, "latency": latency}[arguments.bench](arguments)


if __name__ == "__main__":
    main()
