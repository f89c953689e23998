"""What a tool call is for people: kind, title, locations and diffs, from the table ``headrace/tools.tsv``.

The table is shared with the Rust core. Titles are for reading and may change; never parse them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from . import event as ev

TITLE_LENGTH = 200  # characters


class Described(NamedTuple):
    kind: str
    title: str
    locations: list[dict[str, Any]]
    content: list[dict[str, Any]]


class Row(NamedTuple):
    kind: str
    title: str
    paths: list[str]
    diffs: list[tuple[str, str, str]]  # path, old and new argument


@lru_cache(maxsize=1)
def table() -> dict[tuple[str, str], Row]:
    """The rows by (dialect or "*", tool name)."""
    rows = {}
    for text in files("headrace").joinpath("tools.tsv").read_text("utf-8").split("\n"):
        if not text or text.startswith("#"):
            continue
        names, dialects, kind, title, paths, diffs = text.split("\t")
        row = Row(
            kind,
            "" if title == "-" else title,
            [] if paths == "-" else paths.split(","),
            [] if diffs == "-" else [(path, old, new) for path, old, new in (d.split(":") for d in diffs.split(" "))],
        )
        for name in names.split(" "):
            for dialect in dialects.split(","):
                rows[dialect, name] = row
    return rows


_UNKNOWN = Row("other", "", [], [])


def describe(dialect: str, name: str | None, input: Any) -> Described:
    """Kind, title, locations and diffs of a call by its tool name and arguments."""
    rows = table()
    row = rows.get((dialect, name or "")) or rows.get(("*", name or "")) or _UNKNOWN
    arguments = input if isinstance(input, dict) else {}
    title = _fill(row.title, arguments) or _plain_title(name)
    locations = [{"path": path} for key in row.paths for path in _paths(arguments.get(key))]
    content = [block for spec in row.diffs for block in _diffs(spec, arguments)]
    return Described(row.kind, title, locations, content)


def _plain_title(name: str | None) -> str:
    """``mcp__server__tool`` reads "server: tool"; any other name is its own title."""
    if name is None:
        return "tool"
    parts = name.split("__", 2)
    return f"{parts[1]}: {parts[2]}" if len(parts) == 3 and parts[0] == "mcp" and parts[1] and parts[2] else name


def _fill(template: str, arguments: dict[str, Any]) -> str:
    """The template with its one placeholder filled; "" if the argument is missing."""
    before, brace, rest = template.partition("{")
    if not brace:
        return template
    names, _, after = rest.partition("}")
    value = _argument(arguments, names)
    if value is None:
        return ""
    return before + first_line(value) + after


def first_line(text: str) -> str:
    """The first line that holds something, cut to a readable length."""
    for line in text.split("\n"):
        line = line.strip(" \t\r")
        if line:
            return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1] + "…"
    return ""


def _argument(arguments: dict[str, Any], names: str) -> str | None:
    for name in names.split("|"):
        value = arguments.get(name)
        if isinstance(value, str) and value:
            return value
    return None


def _paths(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value] if value else []
    return [item for item in value if isinstance(item, str) and item] if isinstance(value, list) else []


def _diffs(spec: tuple[str, str, str], arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    path_name, old_name, new_name = spec
    path = _argument(arguments, path_name)
    if path is None:
        return
    holders = [arguments]
    if "[]." in new_name:
        list_name, _, new_name = new_name.partition("[].")
        old_name = old_name.partition("[].")[2]
        edits = arguments.get(list_name)
        if isinstance(edits, dict):  # kimi: one edit stands without a list
            edits = [edits]
        holders = [edit for edit in edits if isinstance(edit, dict)] if isinstance(edits, list) else []
    for holder in holders:
        new = _text_argument(holder, new_name)
        old = None if old_name == "-" else _text_argument(holder, old_name)
        if new is not None:
            yield ev.diff(path, old, new)


def _text_argument(arguments: dict[str, Any], names: str) -> str | None:
    for name in names.split("|"):
        value = arguments.get(name)
        if isinstance(value, str):
            return value
    return None


# ---------------------------------------------------------------- plans

_PLAN_STATUS = {
    "pending": "pending",
    "in_progress": "in_progress",
    "inprogress": "in_progress",
    "running": "in_progress",
    "active": "in_progress",
    "completed": "completed",
    "complete": "completed",
    "done": "completed",
    "cancelled": "completed",
    "skipped": "completed",
}
_PRIORITIES = ("high", "medium", "low")


def plan_entry(content: Any, status: Any, priority: Any = None) -> dict[str, str] | None:
    """A plan entry in the one shape all dialects share; None if it has no text. Unknown status: pending; unknown or
    missing priority: medium (the shape demands one)."""
    if not isinstance(content, str):
        return None
    known = status.lower().replace("-", "_").replace(" ", "_") if isinstance(status, str) else ""
    return {
        "content": content,
        "status": _PLAN_STATUS.get(known, "pending"),
        "priority": priority if isinstance(priority, str) and priority in _PRIORITIES else "medium",
    }


def plan_of(items: Any, content_key: str = "content", status_key: str = "status") -> list[dict[str, str]] | None:
    """The plan in a todo tool's list of objects; None if it is no list."""
    if not isinstance(items, list):
        return None
    entries = (
        plan_entry(item.get(content_key), item.get(status_key), item.get("priority"))
        for item in items
        if isinstance(item, dict)
    )
    return [entry for entry in entries if entry]


# ---------------------------------------------------------------- unified diffs


class Hunk(NamedTuple):
    path: str
    line: int  # of the new text, 1-based as printed
    old: str | None  # None: a new file
    new: str


def hunks(patch: str) -> list[Hunk]:
    """The hunks of a unified diff, of one file or of several: for each its old and its new text."""
    found: list[Hunk] = []
    lines = patch.split("\n")
    before = after = ""
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if line.startswith("--- "):
            before = _diff_path(line)
        elif line.startswith("+++ "):
            after = _diff_path(line)
        elif line.startswith("@@ -"):
            counts = _hunk_counts(line)
            if counts is None:
                continue
            old, new, at = _hunk_texts(lines, at, counts[0], counts[2])
            path = after if after != _NO_FILE else before
            if before.startswith("a/") and after.startswith("b/"):
                path = path[2:]
            found.append(Hunk(path, counts[1], None if before == _NO_FILE else old, new))
    return found


_NO_FILE = "/dev/null"


def _diff_path(line: str) -> str:
    return line[4:].partition("\t")[0].rstrip("\r")


def _hunk_counts(header: str) -> tuple[int, int, int] | None:
    """Old count, new start and new count of ``@@ -1,2 +1,3 @@``; a count left out is 1."""
    ranges = header.split(" ")
    if len(ranges) < 3 or not ranges[2].startswith("+"):
        return None
    numbers = []
    for text in (ranges[1][1:], ranges[2][1:]):
        start, comma, count = text.partition(",")
        for digits in (start, count if comma else "1"):
            if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
                return None
            numbers.append(int(digits))
    return numbers[1], numbers[2], numbers[3]


def _hunk_texts(lines: list[str], at: int, old_left: int, new_left: int) -> tuple[str, str, int]:
    """The texts of a hunk whose lines begin at ``at``, and where they end."""
    old: list[str] = []
    new: list[str] = []
    sides = [old, new]  # of the last line: which a "no newline" remark is about
    while at < len(lines):
        mark, text = lines[at][:1], lines[at][1:]
        if mark == "\\":
            for side in sides:
                if side:
                    side[-1] = side[-1][:-1]
        elif old_left <= 0 and new_left <= 0:
            break
        elif mark == "-":
            sides, old_left = [old], old_left - 1
        elif mark == "+":
            sides, new_left = [new], new_left - 1
        elif mark in (" ", ""):
            sides, old_left, new_left = [old, new], old_left - 1, new_left - 1
        else:
            break
        if mark != "\\":
            for side in sides:
                side.append(text + "\n")
        at += 1
    return "".join(old), "".join(new), at
