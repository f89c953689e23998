"""Live intake: does a producer ever wait, what does it cost, how soon is an event there?

    python -m benches.intake stall     # one producer, a consumer that sleeps, against `producer | cat > /dev/null`
    python -m benches.intake many      # many producers in one event loop, against StreamReader.readline + orjson
    python -m benches.intake latency   # from write() to the handler, at 100 events a second

Sizes are small by default; ``--full`` takes those of the bars (2 GB; 200 producers of 10 MB). Every comparison runs in
turn in one call, and the figures are its medians and best. Producers are a small C program where there is a compiler,
else Python. On a busy machine the figures are of the others' work too: look at the load that is printed with them.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson

import headrace
from benches.corpus import corpus

MB = 1_000_000
BLOCK = 1 << 16

PRODUCER = """
import json, os, sys, time
path, left, block = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
data, at, worst, started = memoryview(open(path, "rb").read()), 0, 0.0, time.perf_counter()
while left:
    before = time.perf_counter()
    done = os.write(1, data[at : min(at + block, at + left)])
    worst = max(worst, time.perf_counter() - before)
    left, at = left - done, (at + done) % len(data)
print(json.dumps({"seconds": time.perf_counter() - started, "worst_ms": worst * 1000}), file=sys.stderr)
"""
TICKER = """
import os, sys, time
for n in range(int(sys.argv[1])):
    time.sleep(0.01)
    os.write(1, b'{"type": "text", "content": "%d"}\\n' % time.perf_counter_ns())
os.write(1, b'{"type": "done", "content": "", "response": ""}\\n')
"""


class Producer:
    """Commands that write a stream."""

    def __init__(self, kind: str, folder: Path) -> None:
        (self.path,) = corpus(kind, 10)
        self.program: Path | None = folder / "producer"
        compiler = shutil.which("cc")
        if compiler is None:
            self.program = None
        else:
            source = Path(__file__).with_name("producer.c")
            subprocess.run([compiler, "-O2", "-o", str(self.program), str(source)], check=True)
        print(f"{kind}, written by {'a C program' if self.program else 'Python'} in blocks of {BLOCK} bytes")

    def argv(self, size: int) -> list[str]:
        head = [sys.executable, "-S", "-c", PRODUCER] if self.program is None else [str(self.program)]
        return [*head, str(self.path), str(size), str(BLOCK)]

    def digest(self, size: int) -> str:
        data, digest = self.path.read_bytes(), hashlib.sha256()
        while size > 0:
            digest.update(data[:size])
            size -= min(size, len(data))
        return digest.hexdigest()


def spread(values: list[float], unit: str) -> str:
    return f"median {statistics.median(values):.2f}{unit}, best {min(values):.2f}{unit}"


def load() -> str:
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


# ---------------------------------------------------------------- (a)


def stall(arguments: argparse.Namespace, producer: Producer) -> None:
    """The producer's own time: with cat, with a consumer that reads on, with one that sleeps until it has ended."""
    size = arguments.size * MB
    argv, digest = producer.argv(size), producer.digest(size)
    seconds: dict[str, list[float]] = {"cat": [], "asleep": [], "reading": []}
    worst, equal = 0.0, True
    for _ in range(arguments.rounds):
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as one:
            with open(os.devnull, "wb") as null:
                subprocess.run(["cat"], stdin=one.stdout, stdout=null, check=True)
            assert one.stderr is not None
            seconds["cat"].append(json.loads(one.stderr.read())["seconds"])
        for way in ("asleep", "reading"):
            told, found = _drain(argv, arguments.spill_dir, sleep=way == "asleep")
            seconds[way].append(told["seconds"])
            equal = equal and found == digest
            if way == "asleep":
                worst = max(worst, told["worst_ms"])
        print(", ".join(f"{way} {times[-1]:.2f} s" for way, times in seconds.items()) + f"; {load()}", flush=True)
    for way in ("asleep", "reading"):
        ratios = [ours / theirs for ours, theirs in zip(seconds[way], seconds["cat"], strict=True)]
        best = min(seconds[way]) / min(seconds["cat"])
        print(
            f"{arguments.size} MB, consumer {way}: {statistics.median(ratios):.2f} times cat in the median, "
            f"{best:.2f} best against best"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"longest write {worst:.0f} ms; SHA-256 equal: {equal}; peak RSS {peak:.0f} MiB with a limit of 64 MiB")


def _drain(argv: list[str], spill_dir: str | None, *, sleep: bool) -> tuple[dict[str, Any], str]:
    intake = headrace.Intake(spill_dir=spill_dir)
    read, write = os.pipe()
    with subprocess.Popen(argv, stdout=write, stderr=subprocess.PIPE) as one:
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
    return told, digest.hexdigest()


# ---------------------------------------------------------------- (b)

Way = Callable[[list[str]], Awaitable[float]]


def many(arguments: argparse.Namespace, producer: Producer) -> None:
    """Total time, and the longest time that any producer was held in one write."""
    ways: dict[str, Way] = {
        "StreamReader.readline + orjson": _readline,
        "headrace, one event at a time": _one_by_one,
        "headrace, batches": lambda argv: _batches(argv, None),
        "headrace, batches, tool calls and errors": lambda argv: _batches(argv, {"tool_call", "error"}),
    }
    size = arguments.size * MB
    argv, count = producer.argv(size), arguments.producers
    total = count * arguments.size
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(arguments.rounds):
        if producer.program is not None:
            print(f"the same producers, read and dropped by a C program: longest write {_dropped(argv, count):.0f} ms")
        for name, way in ways.items():
            gc.collect()
            started = time.perf_counter()
            worst = asyncio.run(_all(way, argv, count))
            seconds[name].append(time.perf_counter() - started)
            print(
                f"{count} x {arguments.size} MB, {name}: {seconds[name][-1]:.2f} s, "
                f"{total / seconds[name][-1]:.0f} MB/s, longest write {worst:.0f} ms; {load()}",
                flush=True,
            )
    theirs = seconds["StreamReader.readline + orjson"]
    for name, ours in seconds.items():
        ratios = [their / our for their, our in zip(theirs, ours, strict=True)]
        print(f"{name}: {spread(ours, ' s')}; {statistics.median(ratios):.1f} times as fast in the median")


def _dropped(argv: list[str], count: int) -> float:
    told = subprocess.run([argv[0], "--drain", str(count), *argv[1:]], stderr=subprocess.PIPE, check=True).stderr
    return max(float(json.loads(line)["worst_ms"]) for line in told.splitlines())


async def _all(way: Way, argv: list[str], count: int) -> float:
    return max(await asyncio.gather(*(way(argv) for _ in range(count))))


class _Handler:
    """Takes an item, and blocks the loop for 5 ms ten times a second."""

    blocked = 0.0

    def __call__(self, item: Any) -> None:
        now = time.perf_counter()
        if now - _Handler.blocked >= 0.1:
            time.sleep(0.005)
            _Handler.blocked = now


async def _readline(argv: list[str]) -> float:
    process = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, limit=1 << 24)
    assert process.stdout is not None
    assert process.stderr is not None
    handle = _Handler()
    while line := await process.stdout.readline():
        if line.endswith(b"\n"):  # the last one is cut
            handle(orjson.loads(line))
    told = json.loads(await process.stderr.read())
    await process.wait()
    return float(told["worst_ms"])


async def _one_by_one(argv: list[str]) -> float:
    handle = _Handler()
    async with headrace.AsyncProcess(argv) as process:
        async for event in process:
            handle(event)
    return float(json.loads(process.stderr_tail)["worst_ms"])


async def _batches(argv: list[str], only: set[str] | None) -> float:
    handle = _Handler()
    async with headrace.AsyncProcess(argv, only=only) as process:
        async for events in process.batches():
            for event in events:
                handle(event)
            events.clear()
    return float(json.loads(process.stderr_tail)["worst_ms"])


# ---------------------------------------------------------------- (c)


def latency(arguments: argparse.Namespace) -> None:
    argv = [sys.executable, "-S", "-c", TICKER, str(arguments.events)]
    ways = {
        "asyncio readline + orjson": _ticks_readline,
        "AsyncProcess": _ticks_async,
        "Process": _ticks_sync,
    }
    p50: dict[str, list[float]] = {name: [] for name in ways}
    p99: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(arguments.rounds):
        for name, way in ways.items():
            late = sorted(way(argv))
            p50[name].append(statistics.median(late))
            p99[name].append(late[int(len(late) * 0.99)])
            print(f"{name}: p50 {p50[name][-1]:.0f} us, p99 {p99[name][-1]:.0f} us; {load()}", flush=True)
    for name in ways:
        print(
            f"{name}, {arguments.rounds} x {arguments.events} events: p50 {statistics.median(p50[name]):.0f} us, "
            f"p99 {statistics.median(p99[name]):.0f} us in the median"
        )


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
    parser.add_argument("--full", action="store_true", help="2000 MB; 200 producers of 10 MB; 1000 events")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, help="MB of each producer (stall: 256, many: 2)")
    parser.add_argument("--producers", type=int, help="20")
    parser.add_argument("--events", type=int, help="300")
    parser.add_argument("--kind", default="pi-deltas", help="what is written: see benches/corpus.py")
    parser.add_argument("--spill-dir")
    arguments = parser.parse_args()
    full = arguments.full
    if arguments.size is None:
        arguments.size = (2000 if full else 256) if arguments.bench == "stall" else (10 if full else 2)
    arguments.producers = arguments.producers or (200 if full else 20)
    arguments.events = arguments.events or (1000 if full else 300)
    print(f"headrace {headrace.__version__}, {headrace.backend} backend")
    if arguments.bench == "latency":
        latency(arguments)
        return
    with tempfile.TemporaryDirectory() as folder:
        {"stall": stall, "many": many}[arguments.bench](arguments, Producer(arguments.kind, Path(folder)))


if __name__ == "__main__":
    main()
