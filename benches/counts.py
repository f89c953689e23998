"""Instructions for each record, counted by callgrind: figures without noise, for five micro-workloads.

``python -m benches.counts`` (``make counts``) builds the core's example ``counts`` with the release profile, runs each
workload on the first 2,000 and on the first 4,000 lines of a corpus, and divides the difference by 2,000: what starting
costs is in neither. ``dicts`` and ``events`` run the installed package in this Python. Needs valgrind. ``--write`` puts
the table into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from .corpus import FOLDER, corpus

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- begin: python -m benches.counts -->\n", "<!-- end -->\n"
LINES = 2_000
KINDS = ("pi-deltas", "claude-deltas")

CORE = {
    "json": "the JSON text parsed, nothing read",
    "records": "framed, parsed, counted",
    "reduce": "framed, parsed, mapped, reduced",
}
PYTHON = {
    "dicts": ("records(), to_dict()", "for record in headrace.records(path): record.to_dict()"),
    "events": ("events()", "for event in headrace.events(path): pass"),
}


def instructions(command: list[str]) -> int:
    """How many instructions a command takes."""
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *command]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "HEADRACE_THREADS": "0"}  # a thread that waits would count
    told = subprocess.run(valgrind, check=True, capture_output=True, text=True, env=environment, cwd=ROOT)
    found = re.search(r"Collected : (\d+)", told.stderr)
    assert found, told.stderr
    return int(found[1])


def head(kind: str, lines: int) -> Path:
    """The first lines of a corpus as a file of their own."""
    (path,) = corpus(kind, 5)
    short = FOLDER / f"{kind}-{lines}-lines.jsonl"
    short.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:lines]))
    return short


def per_record(kind: str, name: str) -> float:
    counts = []
    for lines in (LINES, 2 * LINES):
        path = head(kind, lines)
        if name in CORE:
            command = ["target/release/examples/counts", name, str(path)]
        else:
            script = f"import sys, headrace; path = sys.argv[1]\n{PYTHON[name][1]}"
            command = [sys.executable, "-c", script, str(path)]
        counts.append(instructions(command))
    return (counts[1] - counts[0]) / LINES


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benches.counts", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    options = parser.parse_args()
    build = ["cargo", "build", "--release", "-p", "headrace-core", "--example", "counts"]
    subprocess.run(build, check=True, cwd=ROOT)
    rows = [f"| instructions a record | {' | '.join(KINDS)} |", "|---" * (len(KINDS) + 1) + "|"]
    what = CORE | {name: text for name, (text, _) in PYTHON.items()}
    for name, text in what.items():
        figures = " | ".join(f"{per_record(kind, name):,.0f}" for kind in KINDS)
        rows.append(f"| {name}: {text} | {figures} |")
    sizes = [head(kind, LINES).stat().st_size / LINES for kind in KINDS]
    rows.append(f"| bytes a record | {' | '.join(f'{size:,.0f}' for size in sizes)} |")
    table = "\n".join(rows) + "\n"
    print(table)
    if options.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}{table}{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
