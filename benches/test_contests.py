"""The contests under pytest-benchmark: ``pytest benches -k "dicts and pi-deltas"``. No time is asserted."""

from __future__ import annotations

from typing import Any

import pytest

from .contests import CONTESTS, MEGABYTES, Work
from .corpus import corpus


def _case(contest: str, kind: str, name: str, work: Work) -> Any:
    group = pytest.mark.benchmark(group=f"{contest} {kind}")
    return pytest.param(work, kind, id=f"{contest}-{kind}-{name}", marks=group)


CASES = [
    _case(contest.name, kind, name, work)
    for contest in CONTESTS
    for kind in contest.kinds
    for name, work in contest.contestants.items()
]


@pytest.mark.parametrize(("work", "kind"), CASES)
def test_contest(benchmark: Any, work: Work, kind: str) -> None:
    files = corpus(kind, MEGABYTES)
    benchmark.extra_info["bytes"] = sum(path.stat().st_size for path in files)
    benchmark.pedantic(work, args=(files,), rounds=3, warmup_rounds=1)
