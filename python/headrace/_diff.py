"""What differs between two runs: of a stream and its session file, of two backends, of yesterday and today."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from typing import Any

import orjson

from .dump import dumps
from .fuse import match_calls
from .result import Difference, Run

__all__ = ["PARTS", "compare", "told"]

PARTS = ("verdict", "texts", "thinking", "tool_calls", "usage", "errors")
"""What is compared."""

_CALL = ("name", "kind", "input", "ok", "status", "result", "exit_code", "raw_output")
_CALL_ACROSS = ("ok", "result", "exit_code")  # names, kinds and structured results are each surface's own
_COUNTERS = ("count", "prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd")
_SHOWN = 60  # how much of a value a message shows


def compare(run_a: Run, run_b: Run, only: Iterable[str] | None) -> list[Difference]:
    """See `headrace.diff`."""
    wanted = set(PARTS if only is None else only)
    if unknown := sorted(wanted - set(PARTS)):
        raise ValueError(f"{', '.join(unknown)}: not compared; what can be is {', '.join(PARTS)}")
    a, b = run_a.to_dict(), run_b.to_dict()
    across = a["dialect"] != b["dialect"]
    parts = {
        "verdict": _verdict,
        "texts": _texts("texts"),
        "thinking": _texts("thinking"),
        "tool_calls": _calls,
        "usage": _usage,
        "errors": _errors,
    }
    return [found for part in PARTS if part in wanted for found in parts[part](a, b, across)]


def told(difference: Difference) -> str:
    """A difference in a line that a terminal can show."""
    if difference.what == "differs":
        a, b = _around(difference.a, difference.b)
        return f"{difference.path}: {a} against {b}"
    return f"{difference.path}: {difference.what}: {_shown(difference.b if difference.a is None else difference.a)}"


def _verdict(a: dict[str, Any], b: dict[str, Any], across: bool) -> Iterator[Difference]:
    keys = ("outcome",) if across else ("outcome", "reason")
    yield from _facts("verdict", a["verdict"], b["verdict"], keys, across)


def _texts(key: str) -> Any:
    def compare(a: dict[str, Any], b: dict[str, Any], across: bool) -> Iterator[Difference]:
        mine, theirs = a[key], b[key]
        unprinted = key == "thinking" and not (mine and theirs)
        if across and (unprinted or "".join(mine) == "".join(theirs)):
            return
        for i, j in _aligned(mine, theirs):
            yield from _item(f"{key}[{j if i is None else i}]", mine, i, theirs, j)

    return compare


def _errors(a: dict[str, Any], b: dict[str, Any], across: bool) -> Iterator[Difference]:
    mine, theirs = a["errors"], b["errors"]
    for i, j in _aligned([error["message"] for error in mine], [error["message"] for error in theirs]):
        path = f"errors[{j if i is None else i}]"
        if i is None or j is None:
            yield from _item(path, mine, i, theirs, j)
        else:
            yield from _facts(path, mine[i], theirs[j], ("message", "fatal"), across)


def _usage(a: dict[str, Any], b: dict[str, Any], across: bool) -> Iterator[Difference]:
    for key in ("calls", "run"):
        mine, theirs = a["usage"][key], b["usage"][key]
        if mine is not None and theirs is not None:
            empty = key == "calls" and not (mine["count"] and theirs["count"])
            if not (across and empty):
                yield from _facts(f"usage.{key}", mine, theirs, _COUNTERS, across)
        elif mine != theirs and not across:
            yield Difference(
                f"usage.{key}", "only in the first" if theirs is None else "only in the second", mine, theirs
            )
    yield from _facts("", a, b, ("cost_usd",), across)


def _calls(a: dict[str, Any], b: dict[str, Any], across: bool) -> Iterator[Difference]:
    mine, theirs = a["tool_calls"], b["tool_calls"]
    pairs = _paired(mine, theirs)
    keys = _CALL_ACROSS if across else _CALL
    for i, call in enumerate(mine):
        path = f"tool_calls[{i}]"
        if i not in pairs:
            yield Difference(path, "only in the first", call, None)
            continue
        other = theirs[pairs[i]]
        same_tool = across and call["name"] == other["name"]  # else its arguments are other ones too
        yield from _facts(path, call, other, ("input", *keys) if same_tool else keys, across)
        if (call["parent"] is None) != (other["parent"] is None) and not across:
            yield Difference(f"{path}.parent", "differs", call["parent"], other["parent"])
    found = set(pairs.values())
    for j, call in enumerate(theirs):
        if j not in found:
            yield Difference(f"tool_calls[{j}]", "only in the second", None, call)


def _paired(mine: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> dict[int, int]:
    """Which calls of two runs are the same."""
    pairs = dict(match_calls(mine, theirs, None, [[] for _ in mine], [[] for _ in theirs]))
    spare = [j for j in range(len(theirs)) if j not in set(pairs.values())]
    for alike in (_does, lambda call: call["name"]):
        for i, call in enumerate(mine):
            if i not in pairs:
                j = next((j for j in spare if alike(theirs[j]) == alike(call)), None)
                if j is not None:
                    spare.remove(j)
                    pairs[i] = j
    return pairs


def _does(call: dict[str, Any]) -> tuple[Any, bytes]:
    return call["name"], dumps(call["input"])


# ------------------------------------------------------------ values


def _facts(path: str, a: dict[str, Any], b: dict[str, Any], keys: Iterable[str], across: bool) -> Iterator[Difference]:
    for key in keys:
        mine, theirs = a[key], b[key]
        if across and (mine is None or theirs is None):
            continue
        if not _same(mine, theirs):
            yield Difference(f"{path}.{key}" if path else key, "differs", mine, theirs)


def _item(path: str, mine: list[Any], i: int | None, theirs: list[Any], j: int | None) -> Iterator[Difference]:
    if i is None and j is not None:
        yield Difference(path, "only in the second", None, theirs[j])
    elif j is None and i is not None:
        yield Difference(path, "only in the first", mine[i], None)
    elif i is not None and j is not None and mine[i] != theirs[j]:
        yield Difference(path, "differs", mine[i], theirs[j])


def _aligned(mine: list[str], theirs: list[str]) -> Iterator[tuple[int | None, int | None]]:
    """Positions that belong together: equal ones, and between them one by one."""
    for _, i, i_end, j, j_end in SequenceMatcher(None, mine, theirs, autojunk=False).get_opcodes():
        for step in range(max(i_end - i, j_end - j)):
            yield (i + step if i + step < i_end else None), (j + step if j + step < j_end else None)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, (int, float)):
        return math.isclose(a, b, rel_tol=1e-9) or (a != a and b != b)  # sums depend on their order in the last bit
    if isinstance(a, (dict, list)) and isinstance(b, (dict, list)):
        return a is b or _canonical(a) == _canonical(b)
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def _canonical(value: Any) -> bytes:
    """Of values nested 1,024 levels too, which ``==`` refuses; the order of keys does not count."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return dumps(value)


def _shown(value: Any) -> str:
    if isinstance(value, dict) and "name" in value and "input" in value:
        value = f"{value['name']} {dumps(value['input']).decode()}"
    elif isinstance(value, dict) and "message" in value:
        value = value["message"]
    text = _line(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _line(value: Any) -> str:
    """A value as one line that a terminal can show: controls are escaped."""
    return repr(value) if value is None or isinstance(value, (str, int, float)) else dumps(value).decode()


def _around(a: Any, b: Any) -> tuple[str, str]:
    """Two values, long ones cut to where they begin to differ."""
    if isinstance(a, str) and isinstance(b, str) and max(len(a), len(b)) > _SHOWN:
        at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        start = max(0, at - _SHOWN // 3)
        lead = f"at character {at}: " if at else ""
        cut = [repr(text[start : start + _SHOWN]) + ("..." if len(text) > start + _SHOWN else "") for text in (a, b)]
        return lead + cut[0], cut[1]
    return _shown(a), _shown(b)
