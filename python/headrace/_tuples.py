"""The results that are tuples with names: ``Detection``, ``Difference`` and ``Estimate``.

They are imported when they are asked for, as ``NamedTuple`` needs ``typing``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Detection", "Difference", "Estimate"]


class Detection(NamedTuple):
    """Which dialect a stream is, by content.

    Attributes:
        dialect: its name, or None if no record looked like any dialect.
        version: version of the harness or of its format, where the wire tells.
        confidence: 0 to 1; 1 when a record was sure and nothing spoke against it.
        why: what decided, record by record.
    """

    dialect: str | None
    version: str | None
    confidence: float
    why: list[str]


class Difference(NamedTuple):
    """One thing in which two runs differ; ``str()`` says it in a line.

    Attributes:
        path: where, such as ``tool_calls[3].result``; the number is that of the first run, or of the second where only
            that one has it.
        what: ``differs``, ``only in the first`` or ``only in the second``.
        a, b: the two values, None where there is none.
    """

    path: str
    what: str
    a: Any
    b: Any

    def __str__(self) -> str:
        from ._diff import told

        return told(self)


class Estimate(NamedTuple):
    """What tokens cost at list prices. It is an estimate: no contract, no subscription, no service tier is known.

    Attributes:
        usd: the sum over what has a price, in US dollars; None if nothing has one.
        by_model: the same for each model that has a price.
        unpriced: what no price is known for, and what is not in the sum: model (None: no model is printed) to its
            ``calls`` and counters.
        prices: the library that the prices are from, its version, and where they were renewed since, when.
    """

    usd: float | None
    by_model: dict[str, float]
    unpriced: dict[str | None, dict[str, Any]]
    prices: str

    def to_dict(self) -> dict[str, Any]:
        """The same as plain dicts and lists; ``unpriced`` is a list, since JSON has no null for a key."""
        unpriced = [{"model": model, **row} for model, row in self.unpriced.items()]
        return {**self._asdict(), "by_model": dict(self.by_model), "unpriced": unpriced}
