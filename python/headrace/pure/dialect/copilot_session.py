"""Copilot CLI's session file, ``session-state/<id>/events.jsonl`` (recorded: written by 1.0.102).

The envelopes of the stream without the ephemeral ones, so no deltas and no ``result``, and with what the stream lacks:
``session.start`` with version and folder, ``session.usage_record`` for each model call, ``session.shutdown`` with the
totals. A killed run has no shutdown; a resumed session goes on in the same file, with totals of the whole. Before
``accountingSnapshot`` they are those of one process (so others found in files of 1.0.67 and before), and add up.
"""

from __future__ import annotations

from typing import Any

from .. import event as ev
from ..emit import Emitter, count
from ..record import Record
from ..run import Ending, Exit, Reducer
from ..wire import as_text
from . import SURE, UNKNOWN, Outcome, Sign, copilot

NAME = "copilot-session"

COUNTERS = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens", "reasoningTokens")
Models = dict[str, dict[str, int]]
"""The counters of each model."""


def sign(record: dict[str, Any]) -> Sign | None:
    kind, data = record.get("type"), record.get("data")
    if not copilot.is_envelope(record) or record.get("ephemeral") is True or not isinstance(data, dict):
        return None
    if kind == "session.start":
        version = data.get("copilotVersion")
        return Sign(SURE, "session.start", version if isinstance(version, str) else None)
    if kind in copilot.STORED:
        return Sign(SURE, f"{kind}, which is only stored")
    return Sign(50, "a dotted type with data and parentId")


class Mapper:
    def __init__(self, out: Emitter) -> None:
        self.out = out
        self.records = copilot.Mapper(out)
        self.over: Models = {}  # of the processes that are over
        self.last: Models = {}  # of those and the process whose end came last
        self.processes = 0

    def map(self, record: Record) -> Outcome:
        value = record.value
        kind, data = value.get("type"), value.get("data")
        if not isinstance(kind, str) or not isinstance(data, dict):
            return UNKNOWN
        stamp = self.records.stamp(value, data)
        if kind != "session.shutdown" and self.last:
            self.over, self.last = self.last, {}
            self.processes += 1
        if kind == "session.usage_record":
            inner = data.get("usage")
            if isinstance(inner, dict) and stamp.parent is None:
                call_id = inner.get("parentToolCallId")
                stamp.parent = call_id if isinstance(call_id, str) else None
            self.records.usage(inner, stamp)
            return None
        if kind == "session.shutdown":
            models = metrics_of(data)
            whole = isinstance(data.get("accountingSnapshot"), dict)
            self.last = {} if whole else {name: dict(counts) for name, counts in self.over.items()}
            for name, counts in models.items():
                add(self.last, name, counts)
            self.out.usage(
                "run",
                totals(models),
                stamp,
                key=f"run:{self.processes}",
                total=totals(self.last),
                models=each(self.last),
            )
            outcome = "incomplete" if self.records.turning else self.records.outcome()
            reason, message = as_text(data.get("shutdownType")), as_text(data.get("errorReason"))
            if reason == "error":  # a crash or a fatal error ended the session
                outcome = self.records.failed or "failed"
                if message:
                    self.out.error(message, stamp, fatal=True)
            self.out.state("end", stamp, outcome=outcome, reason=kind if reason is None else reason)
            return None
        return self.records.take(kind, data, stamp)

    def close(self) -> None:
        pass

    def judge(self, run: Reducer, exit: Exit) -> Ending | None:
        return None


def metrics_of(data: dict[str, Any]) -> Models:
    """The counters of each model."""
    metrics, snapshot = data.get("modelMetrics"), data.get("accountingSnapshot")
    if not isinstance(metrics, dict) and isinstance(snapshot, dict):
        metrics = snapshot.get("modelMetrics")
    models: Models = {}
    for name, model in metrics.items() if isinstance(metrics, dict) else ():
        usage = model.get("usage") if isinstance(model, dict) else None
        if isinstance(usage, dict):
            counts = {key: usage[key] for key in COUNTERS if count(usage.get(key)) is not None}
            add(models, ev.clean(name), counts)
    return models


def add(models: Models, name: str, counts: dict[str, int]) -> None:
    sums = models.setdefault(name, {})
    for key, value in counts.items():
        sums[key] = sums.get(key, 0) + value


def each(models: Models) -> dict[str, dict[str, Any]]:
    """The harness's own total of each model."""
    return {name: copilot.counters(counts) for name, counts in models.items()}


def totals(models: Models) -> dict[str, Any]:
    """The counters of all models together."""
    sums: Models = {}
    for counts in models.values():
        add(sums, "", counts)
    return copilot.counters(sums.get("", {}))
