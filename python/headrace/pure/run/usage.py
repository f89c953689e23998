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


_STAMPED = ("message_id", "model", "timestamp", "session_id")


class ModelCall:
    __slots__ = ("facts", "main", "usage")

    def __init__(self, event: Event, session: dict[str, Any]) -> None:
        stamp = event.stamp
        self.usage = event.update["usage"]
        self.main = stamp.parent is None and not event.facts["side"]
        self.facts: dict[str, Any] = {
            "key": event.facts["key"],
            "message_id": stamp.message_id,
            "model": stamp.model or (session.get("model") if stamp.parent is None else None),
            "timestamp": stamp.timestamp,
            "session_id": stamp.session_id or session.get("sessionId"),
            "parent": stamp.parent,
            "side": event.facts["side"],
            "line": event.line,
            "offset": event.offset,
        }


class Ledger:
    """Each model call once: a later usage with the same key takes the place of the earlier one."""

    def __init__(self) -> None:
        self.calls: dict[str | int, ModelCall] = {}
        self.total: dict[str, Any] | None = None

    def take(self, event: Event, session: dict[str, Any]) -> None:
        if event.update["scope"] == "run":
            self.total = event.facts["total"] or event.update["usage"]
            return
        key = event.facts["key"]
        call = ModelCall(event, session)
        earlier = None if key is None else self.calls.get(key)
        if earlier is not None:
            for name in _STAMPED:
                if call.facts[name] is None:
                    call.facts[name] = earlier.facts[name]
        self.calls[len(self.calls) if key is None else key] = call

    def rows(self) -> list[dict[str, Any]]:
        """Each model call: whose it is, its counters, and where the record stands that told them last."""
        return [{**call.facts, **_counters(call.usage)} for call in self.calls.values()]

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
