"""Fields of a record as the type that they should have: any field may hold anything."""

from __future__ import annotations

from typing import Any

__all__ = ["as_dict", "as_list", "as_text"]


def as_text(value: Any) -> str | None:
    """The value if it is a text, else None."""
    return value if isinstance(value, str) else None


def as_list(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def as_dict(value: Any) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}
