"""How cost grows: with the size of a file, of a chunk and of a line, and what a pipe costs in memory.

``python -m benches.growth`` prints tables in Markdown; with ``--full`` up to the sizes of the bars: a file and a pipe
of 2 GB, a line of 1 GB. CPU time of this process, not of the clock: the machine may be busy. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import headrace

from .corpus import FOLDER, corpus, write

LINE = 100_000  # bytes of an ordinary line beside a huge one


def cost(work: Callable[[], Any], size: int, rounds: int = 3) -> float:
    """Nanoseconds of CPU for each byte, the best of some rounds."""
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best / size * 1e9


def sizes(full: bool) -> None:
    """The same stream, short and long."""
    print("\n| file | reduce() ns/byte | events() ns/byte | dicts ns/byte |\n|---|---|---|---|")
    for megabytes in (20, 100, 500, 2000) if full else (20, 100, 500):
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


def chunks(_full: bool) -> None:
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


def line(full: bool) -> None:
    """One huge line against ordinary ones with the same text."""
    megabytes = 1000 if full else 300
    limit = 2 << 30
    print(f"\n| {megabytes} MB | records() ns/byte | reduce() ns/byte | dropped: longer than 1 MB |\n|---|---|---|---|")
    for name, bytes_each in ((f"lines of {LINE // 1000} kB", LINE), ("one line", megabytes * 1_000_000)):
        path = FOLDER / f"line-{megabytes}-{bytes_each}.jsonl"
        if not path.exists():
            text = b"all work and no play " * (bytes_each // 21)
            head = b'{"type":"message_end","message":{"role":"user","content":[{"type":"text","text":"'
            write(path, itertools.repeat(head + text + b'"}]}}\n', megabytes * 1_000_000 // bytes_each))
        size = path.stat().st_size
        works = (
            lambda path=path: sum(1 for _ in headrace.records(path, max_line_bytes=limit)),
            lambda path=path: headrace.reduce(path, max_line_bytes=limit),
            lambda path=path: headrace.reduce(path, max_line_bytes=1_000_000),
        )
        figures = " | ".join(f"{cost(work, size, 3):.2f}" for work in works[: 3 if bytes_each > LINE else 2])
        print(f"| {name} | {figures} |")


def memory(full: bool) -> None:
    """Highest resident memory of a reduce over a pipe, beside that over an empty one (Linux)."""
    megabytes = 2000 if full else 500
    (path,) = corpus("pi-deltas", megabytes)
    script = (
        "import headrace, json, re, sys; run = headrace.reduce(sys.stdin.buffer, **json.loads(sys.argv[1]));"
        "peak = lambda: re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1]; before = peak();"
        "text = sum(map(len, run.texts)) + sum(len(call['result'] or '') for call in run.tool_calls);"
        "print(before, peak(), text)"
    )
    print("\n| reduce() over a pipe | peak RSS, MB | its parts in Python | text, MB |\n|---|---|---|---|")
    for name, command, options in (
        ("nothing", ["true"], "{}"),
        (f"{megabytes} MB", ["cat", str(path)], "{}"),
        (f"{megabytes} MB, results cut", ["cat", str(path)], '{"max_result_bytes": 200}'),
    ):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as producer:
            reader = [sys.executable, "-c", script, options]
            told = subprocess.check_output(reader, stdin=producer.stdout)
        before, after, text = map(int, told.split())
        print(f"| {name} | {before / 1e3:.0f} | {after / 1e3:.0f} | {text / 1e6:.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--full", action="store_true", help="2 GB, and a line of 1 GB; takes some minutes and 6 GB of disk"
    )
    full = parser.parse_args().full
    for part in (sizes, chunks, line, memory):
        part(full)


if __name__ == "__main__":
    main()
