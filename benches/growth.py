"""How cost grows: with the size of a file, of a chunk and of a line, and what a pipe costs in memory.

``python -m benches.growth`` prints tables in Markdown. CPU time of this process, not of the clock: the machine may be
busy. Nothing is asserted.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import headrace

from .corpus import FOLDER, corpus, write


def cost(work: Callable[[], Any], size: int, rounds: int = 3) -> float:
    """Nanoseconds of CPU for each byte, the best of some rounds."""
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best / size * 1e9


def sizes() -> None:
    """The same stream, short and long."""
    print("\n| file | reduce() ns/byte | events() ns/byte | dicts ns/byte |\n|---|---|---|---|")
    for megabytes in (20, 100, 500):
        (path,) = corpus("pi-deltas", megabytes)
        size = path.stat().st_size

        def events(path: Path = path) -> None:
            for _ in headrace.events(path):
                pass

        def dicts(path: Path = path) -> None:
            for record in headrace.records(path):
                record.to_dict()

        rounds = 5 if megabytes < 500 else 2
        works = (lambda path=path: headrace.reduce(path), events, dicts)
        figures = " | ".join(f"{cost(work, size, rounds):.2f}" for work in works)
        print(f"| {megabytes} MB | {figures} |")


def chunks() -> None:
    """The same bytes in chunks of all sizes."""
    (path,) = corpus("pi-deltas", 20)
    print("\n| chunk | Parser.feed ns/byte | ns/chunk |\n|---|---|---|")
    for size in (1, 16, 256, 4096, 1 << 16, 1 << 20, 1 << 22):
        data = path.read_bytes()[: 2_000_000 if size < 256 else None]
        parts = [data[at : at + size] for at in range(0, len(data), size)]

        def feed(parts: Iterable[bytes] = parts) -> None:
            parser = headrace.Parser(only={"error"})
            for part in parts:
                parser.feed(part)
            parser.close()

        each = cost(feed, len(data))
        print(f"| {size:,} | {each:.2f} | {each * size:,.0f} |")


def line() -> None:
    """One huge line against ordinary ones."""
    path = FOLDER / "line-300.jsonl"
    if not path.exists():
        head = b'{"type":"message_end","message":{"role":"user","content":[{"type":"text","text":"'
        write(path, iter([head, b"all work and no play " * (300_000_000 // 21), b'"}]}}\n']))
    print("\n| one line of 300 MB | ns/byte |\n|---|---|")
    limit = 1 << 30
    size = path.stat().st_size
    each = cost(lambda: sum(1 for _ in headrace.records(path, max_line_bytes=limit)), size, 1)
    print(f"| records() | {each:.2f} |")
    print(f"| reduce() | {cost(lambda: headrace.reduce(path, max_line_bytes=limit), size, 1):.2f} |")
    print(f"| dropped, as longer than 256 MiB | {cost(lambda: headrace.reduce(path), size, 1):.2f} |")


def memory() -> None:
    """Highest resident memory of a reduce over a pipe, beside that over an empty one (Linux)."""
    (path,) = corpus("pi-deltas", 500)
    script = (
        "import headrace, re, sys; run = headrace.reduce(sys.stdin.buffer);"
        "text = sum(map(len, run.texts)) + sum(len(call['result'] or '') for call in run.tool_calls);"
        "print(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1], text)"
    )
    print("\n| reduce() over a pipe | peak RSS, MB | text in the run, MB |\n|---|---|---|")
    for name, command in (("nothing", ["true"]), ("500 MB", ["cat", str(path)])):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as producer:
            reader = [sys.executable, "-c", script]
            told = subprocess.check_output(reader, stdin=producer.stdout)
        peak, text = map(int, told.split())
        print(f"| {name} | {peak / 1e3:.0f} | {text / 1e6:.0f} |")


if __name__ == "__main__":
    for part in (sizes, chunks, line, memory):
        part()
