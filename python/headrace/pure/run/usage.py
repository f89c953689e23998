"""The usage of a run: its model calls, their sum, the harness's own total, and why the two differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..._sum import add_up
from ..emit import count
from ..event import Event

_COUNTERS = (
    ("prompt_tokens", "promptTokens"),
    ("completion_tokens", "completionTokens"),
    ("cached_tokens", "cachedTokens"),
    ("cost_usd", "costUsd"),
)


_STAMPED = ("message_id", "model", "timestamp", "session_id")

# what harnesses call the tokens that were written to the cache
_WRITTEN = (
    "cache_creation_input_tokens",
    "cache_write_input_tokens",
    "cacheWriteInputTokens",
    "cacheWriteTokens",
    "cacheWrite",
    "inputCacheCreation",
    "input_cache_creation",
)

_PENNY = 1e-6  # costs that differ by less are the same: sums of floats
_BEYOND = "calls that are not printed, or earlier runs of the session"


class ModelCall:
    __slots__ = ("begun", "facts", "main", "usage")

    def __init__(self, event: Event, session: dict[str, Any]) -> None:
        stamp = event.stamp
        self.usage = event.update["usage"]
        self.main = stamp.parent is None and not event.facts["side"]
        self.begun: bool = event.facts["begun"]
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
        self.models: dict[str, dict[str, Any]] = {}  # the harness's own totals of each
        self.beyond: str | None = None

    def take(self, event: Event, session: dict[str, Any]) -> None:
        if event.update["scope"] == "run":
            self.total = event.facts["total"] or event.update["usage"]
            self.models = event.facts["models"] or {}
            self.beyond = event.facts["beyond"]
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
        return [
            {**call.facts, **_counters(call.usage), "cache_write_tokens": _written(call.usage)}
            for call in self.calls.values()
        ]

    def printed(self) -> list[dict[str, Any]]:
        """The harness's own total of each model, as far as it prints them."""
        return [
            {"model": name, **_counters(usage), "cache_write_tokens": _written(usage)}
            for name, usage in self.models.items()
        ]

    def to_dict(self, compacted: bool, agents: bool) -> dict[str, Any]:
        """``compacted``, ``agents``: whether the run has compactions, and sub-agents."""
        run = None if self.total is None else {"count": None, **_counters(self.total)}
        calls = list(self.calls.values())
        sums, main = _sum(calls), _sum([call for call in calls if call.main])
        known = Known(calls, self.models, self.beyond, compacted, agents)
        return {"calls": sums, "run": run, "difference": difference(sums, main, run, known)}

    def cost(self) -> float | None:
        """What the harness says the run cost; the sum of its calls' costs if it gives no total."""
        cost: float | None = None if self.total is None else self.total.get("costUsd")
        if cost is None:
            cost = _sum(list(self.calls.values()))["cost_usd"]
        return cost


class Known(NamedTuple):
    """What is known of a run besides its sums."""

    calls: Sequence[ModelCall] = ()
    models: Mapping[str, dict[str, Any]] = {}
    beyond: str | None = None
    compacted: bool = False
    agents: bool = False


def difference(
    calls: dict[str, Any], main: dict[str, Any], run: dict[str, Any] | None, known: Known | None = None
) -> str | None:
    """In words, why the sum of the calls is not the harness's total; None if it is, or if one of them is not there.

    ``main``: the sum of the main loop's calls.
    """
    if run is None or not calls["count"]:
        return None
    apart = []
    for name, label in (("prompt_tokens", "prompt"), ("completion_tokens", "completion"), ("cached_tokens", "cached")):
        mine, own = calls[name], run[name]
        if mine is not None and own is not None and mine != own:
            apart.append(f"{label}: calls {mine}, harness {own}")
    mine, own = calls["cost_usd"], run["cost_usd"]
    if mine is not None and own is not None and abs(mine - own) > _PENNY:
        apart.append(f"cost: calls {mine:.6f}, harness {own:.6f}")
    if not apart:
        return None
    return "; ".join(apart) + f" ({'; '.join(_reasons(calls, main, run, known or Known()))})"


def _reasons(calls: dict[str, Any], main: dict[str, Any], run: dict[str, Any], known: Known) -> list[str]:
    mine, own = _size(calls), _size(run)
    if own == (0, 0) and mine != own:
        return ["the harness counts none of the calls"]
    beside = calls["count"] - main["count"]
    if beside > 0 and mine != own and _size(main) == own:
        return [f"the harness counts the main loop only, without {_calls(beside)} of sub-agents and helpers"]
    reasons = []
    shown = {_bare(call.facts["model"]) for call in known.calls}
    for name, usage in known.models.items():
        prompt, completion = usage.get("promptTokens") or 0, usage.get("completionTokens") or 0
        if _bare(name) not in shown and (prompt or completion):
            reasons.append(
                f"the harness counts {prompt} prompt and {completion} completion tokens of {name}, "
                "of which no call is printed"
            )
            own = (own[0] - prompt, own[1] - completion)
    begun = sum(call.begun for call in known.calls)
    if own[0] > mine[0] or (own[1] > mine[1] and not begun):
        what = (["compaction"] if known.compacted else []) + (["sub-agents"] if known.agents else [])
        if what:
            among = " and ".join(what)
            reasons.append(f"the harness counts calls that are not printed, among them those of {among}")
        else:
            reasons.append(f"the harness also counts {known.beyond or _BEYOND}")
    if own[1] > mine[1] and begun:
        up_to = "up to " if begun > 1 or own[0] != mine[0] else ""
        reasons.append(f"the output of {up_to}{_calls(begun)} is printed as it stood when a call began")
    if own[0] < mine[0] or own[1] < mine[1]:
        reasons.append(_left_out(own, known.calls))
    return reasons or ["the harness reckons its total by itself"]


def _left_out(own: tuple[int, int], calls: Sequence[ModelCall]) -> str:
    """What the harness's total lacks: all calls before one, if the rest adds up to it."""
    prompt = completion = 0
    for at in range(len(calls) - 1, 0, -1):
        prompt += calls[at].usage.get("promptTokens") or 0
        completion += calls[at].usage.get("completionTokens") or 0
        if (prompt, completion) == own:
            line = calls[at].facts["line"]
            return f"the harness's total began anew: it leaves out {_calls(at)} before line {line}"
    return "the harness leaves out calls that the wire shows"


def _counters(usage: dict[str, Any]) -> dict[str, Any]:
    return {name: usage.get(key) for name, key in _COUNTERS}


def _written(usage: dict[str, Any]) -> int | None:
    """The tokens that were written to the cache, as the harness calls them."""
    extra = usage.get("extra") or {}
    cache = extra.get("cache")
    for value in (*(extra.get(name) for name in _WRITTEN), cache.get("write") if isinstance(cache, dict) else None):
        if count(value) is not None:
            return count(value)
    return None


def _sum(calls: list[ModelCall]) -> dict[str, Any]:
    """The counters added up; one that no call printed is None, never 0."""
    total: dict[str, Any] = {"count": len(calls)}
    for name, key in _COUNTERS:
        known = [call.usage[key] for call in calls if call.usage.get(key) is not None]
        total[name] = add_up(known) if known else None
    return total


def _size(counters: dict[str, Any]) -> tuple[int, int]:
    return counters["prompt_tokens"] or 0, counters["completion_tokens"] or 0


def _bare(model: str | None) -> str | None:
    """A model's name without what Claude Code says of its context window: `[1m]`."""
    return model and model.partition("[")[0]


def _calls(number: int) -> str:
    return "1 call" if number == 1 else f"{number} calls"
