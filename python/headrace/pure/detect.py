"""Which dialect a stream is, by content alone: the first records say, and it is told why."""

from __future__ import annotations

from typing import Any, NamedTuple

from .dialect import DIALECTS, SURE, Sign
from .event import clean

WINDOW_RECORDS = 64  # how many records may wait for a decision
WINDOW_BYTES = 1 << 20  # and how many bytes of them


class Detection(NamedTuple):
    """A decision: confidence from 0 to 1, and what decided it, record by record."""

    dialect: str
    version: str | None
    confidence: float
    why: list[str]


class Detector:
    """Looks at records one by one until one is sure, or until the window is full and the best guess must do."""

    def __init__(self) -> None:
        self._weights: dict[str, int] = {}
        self._why: dict[str, list[str]] = {}
        self._version: dict[str, str] = {}
        self._records = 0
        self._bytes = 0

    def look(self, record: dict[str, Any], line: int, size: int) -> Detection | None:
        """Takes the next record; returns the decision as soon as there is one."""
        self._records += 1
        self._bytes += size
        for name, module in DIALECTS.items():
            sign: Sign | None = module.sign(record)
            if sign is None:
                continue
            self._weights[name] = self._weights.get(name, 0) + sign.weight
            self._why.setdefault(name, []).append(clean(f"line {line}: {sign.why}"))
            if sign.version is not None:
                self._version.setdefault(name, clean(sign.version))
        best = self.best()
        if best is not None and best.confidence >= 1:
            return best
        return best if self.full else None

    @property
    def full(self) -> bool:
        """No more records may wait: the best guess must do, now or as soon as there is one."""
        return self._records >= WINDOW_RECORDS or self._bytes >= WINDOW_BYTES

    def best(self) -> Detection | None:
        """The best guess so far; None if no record looked like any dialect."""
        if not self._weights:
            return None
        name = max(self._weights, key=lambda n: self._weights[n])  # the first in the table's order wins a tie
        rivals = [weight for other, weight in self._weights.items() if other != name]
        weight = self._weights[name]
        if weight <= 0:  # shapes that could be anything's, or that speak against it
            return None
        sure = weight >= SURE and weight > max(rivals, default=0)
        confidence = 1.0 if sure else min(weight / SURE, 0.99)
        return Detection(name, self._version.get(name), confidence, self._why[name])

    def by_text(self, lines: list[dict[str, Any]]) -> Detection | None:
        """A guess for a stream without any record: a harness that printed nothing but why it failed."""
        if self._records:
            return None
        for name, module in DIALECTS.items():
            if not hasattr(module, "text_sign"):
                continue
            for entry in lines:
                why = module.text_sign(entry["text"])
                if why is not None:
                    return Detection(name, None, 0.4, [f"line {entry['line']}: {why}"])
        return None
