"""Both backends side by side in one process."""

from __future__ import annotations

from typing import Any

from headrace.pure import borders as _borders
from headrace.pure import engine as _pure

try:
    from headrace import _native
except ImportError:
    _native = None  # type: ignore[assignment]

Engine = _pure.Engine
ENGINES: dict[str, Any] = {"python": _pure.Engine, **({"native": _native.Engine} if _native else {})}
BORDERS: dict[str, Any] = {"python": _borders.Borders, **({"native": _native.Borders} if _native else {})}
READERS: dict[str, Any] = {"python": _pure.Reader, **({"native": _native.Reader} if _native else {})}


def same(one: Any, two: Any) -> bool:
    """Equal, and NaN equals NaN."""
    if isinstance(one, dict):
        return isinstance(two, dict) and one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return isinstance(two, (list, tuple)) and len(one) == len(two) and all(map(same, one, two))
    return bool((one == two and isinstance(one, bool) == isinstance(two, bool)) or (one != one and two != two))
