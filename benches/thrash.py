"""What streams cost that are made to defeat the templates of the decoder, in instructions, counted by callgrind.

``python -m benches.thrash`` builds the core's example ``counts`` with the release profile and decodes the first 3,000
and the first 6,000 lines of each stream, with templates and without; a figure is the difference by 3,000. The aim is at
most 1.3 times the general path. ``--write`` puts the table into docs/benchmarks.md. Needs valgrind.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .corpus import FOLDER
from .counts import PAGE, ROOT, instructions

BEGIN, END = "<!-- begin: python -m benches.thrash -->\n", "<!-- end -->\n"
LINES = 3_000
AIM = 1.3

Record = dict[str, Any]


def delta(number: int) -> Record:
    """A record like those that agents print most."""
    usage = {"input": number % 999, "output": number, "cacheRead": 0, "cost": {"total": number / 1e5}}
    message = {"role": "assistant", "content": [], "usage": usage, "timestamp": 1760000000000 + number}
    return {"type": "update", "event": {"type": "delta", "index": 0, "delta": f"w{number}"}, "message": message}


def small(number: int) -> Record:
    return {"type": "text", "content": f"w{number}", "n": number}


def kinds(number: int, count: int, rng: random.Random) -> Record:
    """Each value is a number, a string or nothing."""
    return {f"k{at}": rng.choice((number, f"w{number}", None)) for at in range(count)}


def each(make: Callable[[int, random.Random], Record | str]) -> Iterator[str]:
    rng = random.Random(6)
    for number in range(2 * LINES):
        record = make(number, rng)
        yield record if isinstance(record, str) else json.dumps(record, separators=(",", ":"))


def mixed(number: int, shape: int, record: Record) -> Record:
    return {**record, f"last{shape}": number}


def first(number: int, shape: int, record: Record) -> Record:
    return {f"first{shape}": number, **record}


Line = Record | str
STREAMS: dict[str, Callable[[int, random.Random], Line]] = {
    "one shape (no thrashing)": lambda n, _: delta(n),
    "one shape, small records (no thrashing)": lambda n, _: small(n),
    "every record of a new shape: new first key": lambda n, _: first(n, n, delta(n)),
    "small records, new first key": lambda n, _: first(n, n, small(n)),
    "every record of a new shape: new last key": lambda n, _: mixed(n, n, delta(n)),
    "small records, new last key": lambda n, _: mixed(n, n, small(n)),
    "a new shape and a known one in turn": lambda n, _: mixed(n, n, delta(n)) if n % 2 else delta(n),
    "small records, a new shape and a known one in turn": lambda n, _: mixed(n, n, small(n)) if n % 2 else small(n),
    "three new shapes, then a known one": lambda n, _: mixed(n, n, delta(n)) if n % 4 else delta(n),
    "6 shapes in turn, last key differs": lambda n, _: mixed(n, n % 6, delta(n)),
    "6 shapes at random, last key differs": lambda n, rng: mixed(n, rng.randrange(6), delta(n)),
    "12 shapes at random, last key differs": lambda n, rng: mixed(n, rng.randrange(12), delta(n)),
    "64 shapes in turn, last key differs": lambda n, _: mixed(n, n % 64, delta(n)),
    "64 shapes at random, last key differs": lambda n, rng: mixed(n, rng.randrange(64), delta(n)),
    "65 shapes in turn, last key differs": lambda n, _: mixed(n, n % 65, delta(n)),
    "65 shapes in turn, small records": lambda n, _: mixed(n, n % 65, small(n)),
    "65 shapes in turn, first key differs": lambda n, _: first(n, n % 65, delta(n)),
    "200 shapes at random, small records": lambda n, rng: mixed(n, rng.randrange(200), small(n)),
    "12 values, each of one of three kinds": lambda n, rng: kinds(n, 12, rng),
    "64 numbers, new last key": lambda n, _: mixed(n, n, {"n": [n] * 63}),
    "64 numbers, 12 shapes at random": lambda n, rng: mixed(n, rng.randrange(12), {"n": [n] * 63}),
    "65 numbers": lambda n, _: {"n": [n] * 65},
    "200 brackets around 30 slots, new last key": lambda n, _: mixed(n, n, {"n": [[[[[[[n]]]]]]] * 30}),
    "3 kB of text, new last key": lambda n, _: mixed(n, n, {"s": f"text {n} " * 300}),
    "3 kB of escapes, new last key": lambda n, _: mixed(n, n, {"s": f"{n}\n" * 400}),
    "3 kB of escapes, 12 shapes at random": lambda n, rng: mixed(n, rng.randrange(12), {"s": f"{n}\n" * 400}),
    "20 kB of text, 12 shapes at random": lambda n, rng: mixed(n, rng.randrange(12), {"s": f"text {n} " * 2000}),
    "no JSON: cut off before the end": lambda n, _: json.dumps(delta(n))[:-1] if n > 9 else delta(n),
    "no JSON, in turn with a known shape": lambda n, _: json.dumps(delta(n))[:-1] if n % 2 else delta(n),
}


def per_record(workload: str, paths: list[Path]) -> float:
    counts = [instructions(["target/release/examples/counts", workload, str(path)]) for path in paths]
    return (counts[1] - counts[0]) / LINES


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benches.thrash", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    parser.add_argument("only", nargs="*", help="words of the streams to run")
    options = parser.parse_args()
    build = ["cargo", "build", "--release", "-p", "headrace-core", "--example", "counts"]
    subprocess.run(build, check=True, cwd=ROOT)
    FOLDER.mkdir(exist_ok=True)
    paths = [FOLDER / "thrash-half.jsonl", FOLDER / "thrash.jsonl"]
    rows = ["| stream | bytes | general path | templates | ratio |", "|---|---|---|---|---|"]
    for name, make in STREAMS.items():
        if any(word not in name for word in options.only):
            continue
        lines = list(each(make))
        for path, count in zip(paths, (LINES, 2 * LINES), strict=True):
            path.write_text("".join(line + "\n" for line in lines[:count]))
        general, templates = per_record("general", paths), per_record("templates", paths)
        size = paths[1].stat().st_size / len(lines)
        mark = " **not met**" if templates > AIM * general else ""
        rows.append(f"| {name} | {size:,.0f} | {general:,.0f} | {templates:,.0f} | {templates / general:.2f}{mark} |")
        print(rows[-1], flush=True)
    if options.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}{chr(10).join(rows)}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
