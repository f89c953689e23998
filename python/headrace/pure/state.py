"""The state of a parser as JSON text, and back.

All that is state is plain data and instances of the classes of this package that `_MODULES` names; callables are none:
whoever restores connects them again. Objects may refer to each other in any way: each that can change is written once,
and a value that is one is its number.

Reading builds instances of those classes without calling anything of theirs, so a text that somebody forged can make a
parser that tells nonsense, and nothing worse.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from typing import Any

__all__ = ["dump", "load"]

_MODULES = ("detect", "emit", "event", "frame", "parser", "record", "report", "run", "run.usage", "run.verdict")
_DIALECTS = "dialect."
_PLAIN: dict[str, type] = {"list": list, "deque": deque, "set": set, "dict": dict}
_SHORT = 2**63


def dump(root: object) -> bytes:
    """All that can be reached from `root`."""
    writer = _Writer(root)
    return json.dumps(writer.contents(), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def load(text: bytes) -> Any:
    """The root that `text` was made of; ValueError for a text that no parser gave."""
    try:
        nodes = json.loads(text.decode("utf-8", "surrogatepass"))
        reader = _Reader(nodes)
        for made, node in zip(reader.objects, nodes, strict=True):
            reader.fill(made, node)
        return reader.objects[0]
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ValueError("no state of a parser") from error


class _Writer:
    def __init__(self, root: object) -> None:
        self._objects = [root]
        self._numbers = {id(root): 0}

    def contents(self) -> list[list[Any]]:
        """What each object holds; it grows while it is written."""
        return [self._content(made) for made in self._objects]

    def _content(self, made: Any) -> list[Any]:
        if isinstance(made, bytearray):
            return ["bytearray", made.decode("latin-1")]
        if isinstance(made, (list, deque, set)):
            return [type(made).__name__, *map(self._value, made)]
        members = made if isinstance(made, dict) else _attributes(made)
        pairs = (self._value(part) for pair in members.items() if not callable(pair[1]) for part in pair)
        return ["dict" if made is members else _name(type(made)), *pairs]

    def _value(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, str, float)):
            return value
        if isinstance(value, int):
            return value if -_SHORT <= value < _SHORT else {"int": hex(value)}
        if isinstance(value, bytes):
            return {"bytes": value.decode("latin-1")}
        if isinstance(value, (tuple, frozenset)):
            return {_name(type(value)): list(map(self._value, value))}
        number = self._numbers.setdefault(id(value), len(self._objects))
        if number == len(self._objects):
            self._objects.append(value)
        return [number]


class _Reader:
    def __init__(self, nodes: list[list[Any]]) -> None:
        self.objects = [_empty(node[0]) for node in nodes]

    def fill(self, made: Any, node: list[Any]) -> None:
        if isinstance(made, bytearray):
            made += node[1].encode("latin-1")
            return
        values = [self._value(value) for value in node[1:]]
        if isinstance(made, (list, deque)):
            made.extend(values)
        elif isinstance(made, set):
            made.update(values)
        elif isinstance(made, dict):
            made.update(zip(values[::2], values[1::2], strict=True))
        else:
            for name, value in zip(values[::2], values[1::2], strict=True):
                object.__setattr__(made, name, value)

    def _value(self, value: Any) -> Any:
        if isinstance(value, list):
            return self.objects[value[0]]
        if not isinstance(value, dict):
            return value
        ((name, content),) = value.items()
        if name == "int":
            return int(content, 16)
        if name == "bytes":
            return content.encode("latin-1")
        values = map(self._value, content)
        if name == "frozenset":
            return frozenset(values)
        return tuple(values) if name == "tuple" else _class(name)._make(values)  # type: ignore[attr-defined]


def _empty(name: str) -> Any:
    if name in _PLAIN:
        return _PLAIN[name]()
    return bytearray() if name == "bytearray" else object.__new__(_class(name))


def _attributes(made: object) -> dict[str, Any]:
    slots = getattr(type(made), "__slots__", None)
    return vars(made) if slots is None else {name: getattr(made, name) for name in slots}


def _name(kind: type) -> str:
    module = kind.__module__.removeprefix(f"{__package__}.")
    return kind.__name__ if module == "builtins" else f"{module}:{kind.__name__}"


def _class(name: str) -> type:
    module, _, kind = name.partition(":")
    if module in _MODULES or module.startswith(_DIALECTS):
        path = f"{__package__}.{module}"
        found = vars(sys.modules[path])[kind]
        if isinstance(found, type) and found.__module__ == path:
            return found
    raise ValueError(f"{name} is no class of states")
