"""Who does which work, on which corpus: what the suites and the table of docs/benchmarks.md have in common."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import ours, peers, peers_mixed
from .corpus import KINDS

MEGABYTES = int(os.environ.get("HEADRACE_BENCH_MB", "50"))
"""Size of a corpus; the bars are measured with 200."""

BASE = "for line in file: orjson.loads(line)"
"""What everything is compared with."""

Work = Callable[[list[Path]], Any]


@dataclass(frozen=True)
class Contest:
    """One kind of work, done by several."""

    name: str
    kinds: tuple[str, ...]
    """The corpora that it is done on."""
    contestants: dict[str, Work]


_LOOPS: dict[str, Work] = {f"for line in file: {name}": work for name, work in peers.LOOPS.items() if name != "orjson"}

CONTESTS = (
    Contest(
        "dicts",
        tuple(KINDS),
        {BASE: peers.LOOPS["orjson"], **_LOOPS, "records(), to_dict()": ours.dicts},
    ),
    Contest(
        "records",
        tuple(KINDS),
        {
            BASE: peers.LOOPS["orjson"],
            "records()": ours.records,
            "records(), get('type')": ours.one_field,
        },
    ),
    Contest("events", tuple(KINDS), {BASE: peers.LOOPS["orjson"], "events()": ours.events}),
    Contest(
        "filter",
        tuple(KINDS),
        {
            BASE: peers.LOOPS["orjson"],
            "records(only={'result'})": ours.only_records,
            "events(only={'error'})": ours.only_events,
        },
    ),
    Contest(
        "reduce",
        ("pi-deltas",),
        {BASE: peers.LOOPS["orjson"], "orjson and a Python reducer": peers.reduce_pi, "reduce()": ours.reduce},
    ),
    Contest(
        "reduce",
        ("claude-deltas", "claude-transcript"),
        {BASE: peers.LOOPS["orjson"], "orjson and a Python reducer": peers.reduce_claude, "reduce()": ours.reduce},
    ),
    Contest(
        "reduce",
        ("mixed",),
        {BASE: peers.LOOPS["orjson"], "orjson and a Python reducer": peers_mixed.reduce, "reduce()": ours.reduce},
    ),
)
