"""JSON texts to stdout."""

from __future__ import annotations

import sys
from typing import Any

from ..dump import dumps
from .safe import safe_json

__all__ = ["write", "write_document"]


def write(texts: bytes) -> None:
    """Writes JSON texts and flushes; they reach a terminal in the safe form."""
    left = memoryview(safe_json(texts))
    while left:  # an unbuffered stdout (PYTHONUNBUFFERED) may take a part only
        left = left[sys.stdout.buffer.write(left) or 0 :]
    sys.stdout.buffer.flush()


def write_document(value: Any) -> None:
    """Writes a value as JSON on a line of its own."""
    write(dumps(value) + b"\n")
