"""What a newer harness prints that headrace has not seen: record types and fields, by their shape and never by content.

Each dialect's known shapes are in ``shapes/<dialect>.txt``, made from the bundled recordings by
``tests/data/make_shapes.py``. A line is ``type: path``: ``[]`` stands for the elements of a list, ``(tag)`` for the
kind of an object as its ``type`` tells it, ``<key>`` for keys that are data, and ``{}`` for places where anything may
stand (tool arguments and results, metadata), which are not looked into.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Union

from . import _backend
from .errors import SourceError

__all__ = ["find", "paths_of", "type_of"]

PathLike = Union[str, "os.PathLike[str]"]

ENDINGS = (".jsonl", ".json", ".ndjson")
PACKED = (".gz", ".zst")

# places where tools, users and extensions put what they like
_FREE = {
    "_meta",
    "additionalProperties",
    "args",
    "arguments",
    "details",
    "diagnostics",
    "env",
    "fileDiff",
    "headers",
    "hook_input",
    "input",
    "inputSchema",
    "input_schema",
    "json_schema",
    "metadata",
    "output",
    "params_json",
    "parameters",
    "partialResult",
    "properties",
    "rawInput",
    "rawOutput",
    "raw_output",
    "responseHeaders",
    "resultDisplay",
    "schema",
    "structuredContent",
    "structured_content",
    "structured_output",
    "telemetry",
    "toolInput",
    "toolResponse",
    "toolTelemetry",
    "toolUseResult",
    "tool_input",
    "tool_use_result",
}
# maps whose keys are data: models, agents, files, tools
_MAPS = {
    "agentMetrics",
    "agents_states",
    "agentsStates",
    "byModel",
    "byName",
    "by_name",
    "by_type",
    "changes",
    "fileStates",
    "mcpServers",
    "modelMetrics",
    "modelUsage",
    "model_usage_since_last_result",
    "models",
    "toolCounts",
    "top_level_tools",
    "trackedFileBackups",
    "usageAccountingWatermarks",
}
_NAME = re.compile(r"\$?[A-Za-z_][A-Za-z0-9_]{0,39}")
_TAG = re.compile(r"[A-Za-z$_][A-Za-z0-9_$./:-]{0,63}")
_VERSION = re.compile(r"\d{1,4}(\.\d{1,6}){1,3}([-+.][0-9A-Za-z.]{1,16})?")
_UUID = re.compile(r"[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}")
_TAGS = ("type", "item_type", "sessionUpdate", "method")
_DEPTH = 4  # how deep the shape of an unknown field is shown
_WIDTH = 24  # and how many of its keys


def find(paths: PathLike | Iterable[PathLike]) -> list[dict[str, Any]]:
    """See `headrace.drift`."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for path in given:
        for file in files_under(Path(path)):
            _look(file, found)
    return [found[key] for key in sorted(found)]


def files_under(path: Path, unread: Callable[[SourceError], object] | None = None) -> Iterator[Path]:
    """A file, or the files of a folder and its folders; links to folders are not followed.

    What of a folder can't be looked at is told to ``unread``, or raised: it may hold what nobody would know is missing.
    """

    def fail(error: OSError) -> None:
        failed = SourceError(f"can't open {os.fspath(error.filename)!r}: {error.strerror}")
        if unread is None:
            raise failed from error
        unread(failed)

    if not os.path.isdir(path):
        yield path
        return
    found = []
    for folder, _, names in os.walk(path, onerror=fail):
        for name in names:
            bare = name
            for packed in PACKED:
                bare = bare.removesuffix(packed)
            if bare.endswith(ENDINGS):
                found.append(Path(folder, name))
    for file in sorted(found):
        try:
            is_file = stat.S_ISREG(os.stat(file).st_mode)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP):  # a link to nothing, or a file that has gone
                continue
            fail(error)
            continue
        if is_file:
            yield file


def _look(path: Path, found: dict[tuple[str, str, str], dict[str, Any]]) -> None:
    engine = _backend.Engine(kinds=())
    engine.attach_path(path)
    engine.drain_source()
    run = engine.run()
    dialect = run["dialect"]
    if dialect is None:
        return
    known, unknown = _known(dialect), run["report"]["unknown"]
    reader = _backend.Reader()
    reader.attach_path(path)
    for record in reader:
        value = record.to_dict()
        version = _version(value.get("version")) or _version(run["version"])
        kind = type_of(record.type, value)
        fields = known.get(kind)
        if fields is None:
            if record.type in unknown or record.type in _native(dialect):
                _note(found, dialect, kind, None, version, value)
            continue
        for field, part in _unknown(value, "", fields):
            _note(found, dialect, kind, field, version, part)


def _note(
    found: dict[tuple[str, str, str], dict[str, Any]],
    dialect: str,
    kind: str,
    field: str | None,
    version: str | None,
    value: Any,
) -> None:
    entry = found.setdefault(
        (dialect, kind, field or ""),
        {"dialect": dialect, "type": kind, "field": field, "count": 0, "versions": [], "shape": _shape(value)},
    )
    entry["count"] += 1
    if version is not None and version not in entry["versions"]:
        entry["versions"] = sorted([*entry["versions"], version])


# ------------------------------------------------------------ what is known


@cache
def _known(dialect: str) -> dict[str, set[str]]:
    """Record types of a dialect, each with its paths and what leads to them."""
    known: dict[str, set[str]] = {}
    file = Path(__file__).parent / "shapes" / f"{dialect}.txt"
    if not file.is_file():
        return known
    for line in file.read_text("utf-8").splitlines():
        kind, _, path = line.partition(": ")
        paths = known.setdefault(kind, set())
        for end in [at for at, letter in enumerate(path) if letter in ".[({"] + [len(path)]:
            paths.add(path[:end])
            paths.add(path[:end].removesuffix("[]"))
    return known


@cache
def _native(dialect: str) -> frozenset[str | None]:
    """The native types of the known record types."""
    return frozenset(None if kind == "-" else kind.partition("/")[0] for kind in _known(dialect))


def _unknown(value: Any, path: str, known: set[str]) -> Iterator[tuple[str, Any]]:
    """The topmost paths that are not known, each once."""
    seen: set[str] = set()
    for place, part in _walk(value, path, known):
        if place not in seen:
            seen.add(place)
            yield place, part


def _walk(value: Any, path: str, known: set[str] | None) -> Iterator[tuple[str, Any]]:
    """All paths below a value with what stands there, or the topmost ones that are not known."""
    if isinstance(value, list):
        inner = f"{path}[]"
        if known is None:
            yield inner, None
        elif inner not in known:  # a scalar so far, or an empty list
            return
        for item in value:
            if isinstance(item, (dict, list)):
                yield from _walk(item, inner, known)
        return
    if not isinstance(value, dict):
        return
    if path:
        tag = _tag(value)
        if tag is not None:
            path += f"({tag})"
            if known is None:
                yield path, value
            elif path not in known:
                yield path, value
                return
    keyed = _last(path) in _MAPS
    for key, part in value.items():
        place = f"{path}.{_key(key, keyed)}" if path else _key(key, keyed)
        free = key in _FREE and isinstance(part, (dict, list))
        if known is None:
            yield place + "{}" * free, part
        elif place not in known:
            yield place, part
            continue
        if not free:
            yield from _walk(part, place, known)


def paths_of(value: dict[str, Any]) -> set[str]:
    """The paths of a record, as the shape files have them."""
    return {path for path, _ in _walk(value, "", None)}


def type_of(native: str | None, value: dict[str, Any]) -> str:
    """What the shape files call a record's type: the native type, with the subtype where there is one."""
    kind = "-" if native is None else _word(native)
    subtype = value.get("subtype")
    return f"{kind}/{_word(subtype)}" if isinstance(subtype, str) else kind


# ------------------------------------------------------------ names, never content


def _tag(value: dict[str, Any]) -> str | None:
    for key in _TAGS:
        tag = value.get(key)
        if isinstance(tag, str):
            return _word(tag)
    return None


def _word(tag: str) -> str:
    """A type as it stands, if it reads as a name."""
    return tag if _TAG.fullmatch(tag) and not _UUID.search(tag) else "<type>"


def _key(key: str, keyed: bool) -> str:
    """A key as it stands, if it reads as a name and not as data."""
    data = keyed or not _NAME.fullmatch(key) or sum(letter.isdigit() for letter in key) > 2
    return "<key>" if data else key


def _last(path: str) -> str:
    return re.split(r"[.\[(]", path.rstrip("[]"))[-1] if path else ""


def _version(version: Any) -> str | None:
    return version if isinstance(version, str) and _VERSION.fullmatch(version) else None


def _shape(value: Any, depth: int = 0) -> str:
    """The JSON types of a value, with the keys that read as names."""
    if isinstance(value, dict):
        if depth == _DEPTH:
            return "{...}"
        fields: dict[str, str] = {}
        for key, part in value.items():
            free = key in _FREE and isinstance(part, (dict, list))
            fields.setdefault(_key(key, False), "{}" if free else _shape(part, depth + 1))
        shown = [f"{key}: {part}" for key, part in list(fields.items())[:_WIDTH]]
        return "{" + ", ".join([*shown, "..."] if len(fields) > _WIDTH else shown) + "}"
    if isinstance(value, list):
        if depth == _DEPTH:
            return "[...]"
        kinds = list(dict.fromkeys(_shape(part, depth + 1) for part in value[:_WIDTH]))
        return "[" + " | ".join(kinds[:3]) + "]"
    if isinstance(value, bool):
        return "boolean"
    if value is None:
        return "null"
    return "string" if isinstance(value, str) else "number"
