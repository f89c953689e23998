"""A value as a JSON text that every reader takes: RFC 8259, integers of any size exact, any depth.

``json.dumps`` writes NaN and Infinity, which are no JSON, and gives up on deep values and on integers of more than
4,300 digits; orjson refuses integers beyond 64 bits. Here NaN and the infinities are null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import orjson

__all__ = ["dumps"]


def dumps(value: Any) -> bytes:
    """The JSON text, on one line in UTF-8, of a value of dicts with str keys, lists, str, int, float, bool and None.

    >>> dumps({"n": 2**70, "x": [float("nan"), "ü"]}).decode()
    '{"n":1180591620717411303424,"x":[null,"ü"]}'
    """
    try:
        return orjson.dumps(value)
    except TypeError:  # an integer beyond 64 bits, half a surrogate pair, or too deep for it
        # backslashreplace writes such a half as JSON does: \ud83d
        return "".join(_pieces(value)).encode("utf-8", "backslashreplace")


def _pieces(value: Any) -> Iterator[str]:
    """Without recursion: only the memory bounds the depth."""
    open_containers: list[tuple[Iterator[tuple[str, Any]], str]] = [(iter([("", value)]), "")]
    while open_containers:
        rest, closing = open_containers[-1]
        for before, inner in rest:
            yield before
            if isinstance(inner, dict):
                yield "{"
                open_containers.append((_members(inner), "}"))
                break
            if isinstance(inner, (list, tuple)):
                yield "["
                open_containers.append((_elements(inner), "]"))
                break
            yield _scalar(inner)
        else:
            yield closing
            open_containers.pop()


def _members(value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    comma = ""
    for key, inner in value.items():
        yield f"{comma}{json.dumps(key, ensure_ascii=False)}:", inner
        comma = ","


def _elements(value: list[Any] | tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    comma = ""
    for inner in value:
        yield comma, inner
        comma = ","


def _scalar(value: Any) -> str:
    if type(value) is int:
        return _digits(value)
    if type(value) is float and not math.isfinite(value):
        return "null"
    return json.dumps(value, ensure_ascii=False)


def _digits(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # more digits than Python converts unasked
        from decimal import Decimal

        return format(Decimal(value), "f")
