"""Every byte of a damaged stream of any dialect is accounted for, and every event says whose bytes it comes from."""

from __future__ import annotations

import json
import os
import random
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace
from headrace.pure import engine as pure
from headrace.pure import event as ev

from .bundled import streams
from .engines import ENGINES, same
from .mutate import damaged

pytestmark = pytest.mark.once

EXAMPLES = int(os.environ.get("HEADRACE_MUTATIONS", "40"))  # of each dialect; more by hand
PARTS = ("event_bytes", "ignored_bytes", "unknown_bytes", "malformed_bytes", "blank_bytes")


@cache
def samples(dialect: str) -> list[bytes]:
    """Small recordings of a dialect."""
    if dialect == "evolve":
        return [evolve(data) for data in samples("pi") + samples("claude")]
    found = [stream.data for stream in streams() if dialect in stream.dialects]
    return [data for data in found if 0 < len(data) < 300_000]


def evolve(data: bytes) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in headrace.events(data, state=True))


class Account:
    """What the pure engine booked, record by record."""

    def __init__(self, engine: pure.Engine) -> None:
        self.booked: dict[tuple[int, int], tuple[str, int]] = {}
        """Offset and size of a record: what became of it, and its share."""
        report = engine._parser._report
        for fate in ("event", "ignore", "unknown_type"):
            setattr(report, fate, self._watched(fate, getattr(report, fate)))

    def _watched(self, fate: str, book: Any) -> Any:
        def watched(record: Any, *more: Any) -> None:
            place = (record.offset, len(record.raw))
            assert place not in self.booked
            self.booked[place] = (fate, record.share)
            book(record, *more)

        return watched

    def share(self, fate: str) -> int:
        return sum(share for booked, share in self.booked.values() if booked == fate)


def read(engine: Any, data: bytes, rng: random.Random) -> tuple[list[Any], list[Any]]:
    """The events that came while the stream was read, and those at its end."""
    sizes, out, at = rng.choice(((1, 50), (50, 5000), (1 << 20,))), [], 0
    while at < len(data):
        step = rng.choice(sizes)
        out += engine.feed(data[at : at + step])
        at += step
    return out, engine.close()


@pytest.mark.parametrize("dialect", headrace._backend.dialects)
@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32))
def test_the_account_of_damaged_streams(dialect: str, seed: int) -> None:
    rng = random.Random(seed)
    data = damaged(samples(dialect), rng)
    given = rng.choice((None, dialect))
    told = []
    for name, make in ENGINES.items():
        engine = make(kinds=ev.KINDS, spans=True, dialect=given)
        account = Account(engine) if name == "python" else None
        events, last = read(engine, data, rng)
        report = engine.report()
        check_sums(report, data)
        if account is not None:
            check_records(account, report, data)
            check_spans(account, report, events, last, data)
        told.append((events + last, report, engine.run(), engine.detection))
    assert all(same(one, told[0]) for one in told)


def check_sums(report: dict[str, Any], data: bytes) -> None:
    assert report["bytes"] == sum(report[part] for part in PARTS) == len(data)
    assert report["lines"] == report["records"] + report["malformed"] + report["blank"]
    assert report["lines"] == data.count(b"\n") + (not data.endswith(b"\n") and data not in (b"", b"\xef\xbb\xbf"))
    for name in ("ignored", "unknown"):
        assert report[name].keys() == report[f"{name}_sizes"].keys()
        assert sum(report[f"{name}_sizes"].values()) == report[f"{name}_bytes"]
    assert not data or headrace.Report(report).explain().endswith("The sums add up: no byte is missing.")


def check_records(account: Account, report: dict[str, Any], data: bytes) -> None:
    """The shares of the records make up the account; what has none is told of by a rule, or is no record."""
    assert account.share("event") == report["event_bytes"]
    assert account.share("unknown_type") == report["unknown_bytes"]
    no_records = report["ignored_sizes"].get("not an object", 0)
    assert account.share("ignore") + no_records == report["ignored_bytes"]
    end = 0
    for offset, size in sorted(account.booked):
        assert end <= offset < offset + size <= len(data)
        end = offset + size


def check_spans(account: Account, report: dict[str, Any], events: list[Any], last: list[Any], data: bytes) -> None:
    """A span is that of a record which the account knows, and one that was not left out."""
    malformed = {(line["line"], line["offset"]) for line in report["malformed_lines"]}
    for event in events + last:
        span = event.get("extra", {}).get("span")
        if span is None:  # nothing was there to make it come
            assert not account.booked
            continue
        line, offset, size = span["line"], span["offset"], span["bytes"]
        assert line == data[:offset].count(b"\n") + 1
        booked = account.booked.get((offset, size))
        if booked is None:  # text behind the last record
            assert event in last
            assert (line, offset) in malformed
            assert data[offset : offset + size].rstrip(b"\r") == data[offset:].partition(b"\n")[0].rstrip(b"\r")
        elif event not in last:
            assert booked[0] != "ignore"
