"""``python -m benches``: every contest on every corpus, all contestants in turn, and the table in docs/benchmarks.md.

``--mb`` is the size of a corpus, ``--rounds`` how often each contestant runs, ``--only`` names one contest. Without
``--write`` the tables are only printed.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import headrace

from .contests import BASE, CONTESTS, MEGABYTES, Contest
from .corpus import corpus

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- begin: python -m benches -->\n", "<!-- end -->\n"


def run(contest: Contest, kind: str, megabytes: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Seconds, and CPU seconds of all threads, by contestant. Rounds go over the contestants in turn: a busy machine is
    busy for all of them."""
    files = corpus(kind, megabytes)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in contest.contestants}
    for path in files:
        path.read_bytes()  # into the page cache
    for _ in range(rounds):
        for name, work in contest.contestants.items():
            start, spent = time.perf_counter(), time.process_time()
            work(files)
            times[name].append((time.perf_counter() - start, time.process_time() - spent))
    return times


def table(contest: Contest, megabytes: int, rounds: int) -> Iterator[str]:
    """The rows of one contest: MB/s of the median round, and how many times the base that is, by the clock and by CPU
    time."""
    for kind in contest.kinds:
        times = run(contest, kind, megabytes, rounds)
        size = sum(path.stat().st_size for path in corpus(kind, megabytes))
        columns = {name: zip(*rounds, strict=True) for name, rounds in times.items()}
        medians = {name: [statistics.median(column) for column in both] for name, both in columns.items()}
        for name, (seconds, spent) in medians.items():
            ratios = f"{medians[BASE][0] / seconds:.2f} | {medians[BASE][1] / spent:.2f}"
            row = f"| {contest.name} | {kind} | `{name}` | {size / seconds / 1e6:,.0f} | {ratios} |"
            print(row, file=sys.stderr)
            yield row


def startup() -> Iterator[str]:
    """What importing costs over bare Python, and the first event of a ten-line stream."""

    # Once, Python keeps the bytecode of what it imports.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def milliseconds(code: str, rounds: int = 25) -> float:
        times = []
        for _ in range(rounds):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", code], check=True, env=environment)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            times.append(spent * 1e3)
        return statistics.median(times)

    bare = milliseconds("pass")
    more = milliseconds("import headrace") - bare
    yield f"- `import headrace`: {more:.0f} ms of CPU more than bare Python ({bare:.0f} ms)."
    delta = b'{"type":"message_update","assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"x"}}'
    lines = b"\n".join([b'{"type":"agent_start"}', *[delta] * 9, b""])
    times = []
    for _ in range(101):
        start = time.perf_counter()
        next(headrace.events(lines))
        times.append((time.perf_counter() - start) * 1e3)
    yield f"- First event of a 10-line stream: {statistics.median(times):.3f} ms after the call."


def machine() -> str:
    """What the figures were measured with; nothing that names the machine."""
    model = "unknown processor"
    if Path("/proc/cpuinfo").exists():
        found = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        model = found[0].partition(":")[2].strip() if found else model
    peers = ", ".join(f"{name} {version(name)}" for name in ("orjson", "msgspec", "pysimdjson", "jiter"))
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{os.cpu_count()} cores ({model}), {platform.system()}, {python}, backend {headrace.backend}; {peers}."


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benches", description=__doc__)
    parser.add_argument("--mb", type=int, default=MEGABYTES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=sorted({contest.name for contest in CONTESTS}))
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    options = parser.parse_args()
    lines = [
        f"{machine()} Corpora of about {options.mb} MB; medians of {options.rounds} rounds.",
        "",
        f"| work | corpus | by | MB/s | times `{BASE}` | the same in CPU time |",
        "|---|---|---|---|---|---|",
    ]
    for contest in CONTESTS:
        if options.only in (None, contest.name):
            lines += table(contest, options.mb, options.rounds)
    lines += ["", *startup()]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.write:
        page = PAGE.read_text()
        before, _, rest = page.partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{BEGIN}{text}{END}{after}")


if __name__ == "__main__":
    main()
