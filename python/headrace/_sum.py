"""Sums that are the same on every Python and on both backends."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["add_up"]


def add_up(numbers: Iterable[float]) -> float:
    """The numbers, added up one after the other; 0 if there are none.

    Python's ``sum`` makes up for rounding from 3.12 on, so that costs would differ in their last digit.
    """
    total: float = 0
    for number in numbers:
        total += number
    return total
