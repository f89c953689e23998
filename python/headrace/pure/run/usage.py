"""The usage of a run: its model calls, their sum, the harness's own total, and why the two differ."""

from __future__ import annotations

from typing import Any

from ..event import Event

_COUNTERS = (
    ("prompt_tokens", "promptTokens"),
    ("completion_tokens", "completionTokens"),
    ("cached_tokens", "cachedTokens"),
    ("cost_usd", "costUsd"),
)


class ModelCall:
    __slots__ = ("main", "usage")

    def __init__(self, usage: dict[str, Any], main: bool) -> None:
        self.usage = usage
        self.main = main


class Ledger:
    """Each model call once: a later usage with the same key takes the place of the earlier one."""

    def __init__(self) -> None:
        self.calls: dict[str | int, ModelCall] = {}
        self.total: dict[str, Any] | None = None

    def take(self, event: Event) -> None:
        usage = event.update["usage"]
        if event.update["scope"] == "run":
            self.total = event.facts["total"] or usage
            return
        key = event.facts["key"]
        self.calls[len(self.calls) if key is None else key] = ModelCall(
            usage, event.stamp.parent is None and not event.facts["side"]
        )

    def to_dict(self) -> dict[str, Any]:
        calls = _sum([call.usage for call in self.calls.values()])
        main = _sum([call.usage for call in self.calls.values() if call.main])
        run = None if self.total is None else {"count": None, **_counters(self.total)}
        return {"calls": calls, "run": run, "difference": difference(calls, main, run)}

    def cost(self) -> float | None:
        """What the harness says the run cost; the sum of its calls' costs if it gives no total."""
        cost: float | None = None if self.total is None else self.total.get("costUsd")
        if cost is None:
            cost = _sum([call.usage for call in self.calls.values()])["cost_usd"]
        return cost


def _counters(usage: dict[str, Any]) -> dict[str, Any]:
    return {name: usage.get(key) for name, key in _COUNTERS}


def _sum(usages: list[dict[str, Any]]) -> dict[str, Any]:
    """The counters added up; one that no call printed is None, never 0."""
    total: dict[str, Any] = {"count": len(usages)}
    for name, key in _COUNTERS:
        known = [usage[key] for usage in usages if usage.get(key) is not None]
        total[name] = sum(known) if known else None
    return total


def difference(calls: dict[str, Any], main: dict[str, Any], run: dict[str, Any] | None) -> str | None:
    """In words, why the sum of the calls is not the harness's total; None if it is, or if one of them is not there."""
    if run is None or not calls["count"]:
        return None
    apart = []
    for name, label in (("prompt_tokens", "prompt"), ("completion_tokens", "completion")):
        mine, own = calls[name], run[name]
        if mine is not None and own is not None and mine != own:
            apart.append(f"{label}: calls {mine}, harness {own}")
    if not apart:
        return None
    if all(main[name] == run[name] for name in ("prompt_tokens", "completion_tokens")):
        why = "the harness counts the main thread only"
    elif any((run[name] or 0) > (calls[name] or 0) for name in ("prompt_tokens", "completion_tokens")):
        why = "the harness counts calls that it does not print, or earlier runs of the session"
    else:
        why = "the harness leaves out calls that the wire shows"
    return "; ".join(apart) + f" ({why})"
