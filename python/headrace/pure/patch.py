"""Patches: unified diffs and the `*** Begin Patch` format, as diff blocks and locations.

Each hunk becomes a diff block of its own whose texts are the hunk's lines: the file around them is not known, and
nothing is made up.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import event as ev


class Hunk(NamedTuple):
    """One hunk: the line of the new file where it begins, if told, and its text before and after."""

    line: int | None
    old: str
    new: str


def hunks(diff: str) -> list[Hunk]:
    """The hunks of one file's unified diff. What stands before the first ``@@`` is no text of the file."""
    found: list[Hunk] = []
    body: Body | None = None
    for line in diff.split("\n"):
        if line.startswith("@@"):
            if body is not None:
                found.append(body.hunk())
            body = Body(_new_start(line))
        elif line.startswith("diff --git "):
            if body is not None:
                found.append(body.hunk())
            body = None
        elif body is not None:
            body.take(line)
    if body is not None:
        found.append(body.hunk())
    return found


class Body:
    """The lines of a hunk as they come."""

    def __init__(self, line: int | None) -> None:
        self.line = line
        self.old: list[str] = []
        self.new: list[str] = []
        self.last = ""  # the sign of the line above

    def take(self, line: str) -> None:
        unended = line[:1] == "\\"  # "\ No newline at end of file": said of the line above
        sign = self.last if unended else line[:1]
        for lines, other in ((self.old, "+"), (self.new, "-")):
            if sign not in (" ", "+", "-") or sign == other:
                continue
            if unended:
                lines[-1] = lines[-1].removesuffix("\n")
            else:
                lines.append(line[1:] + "\n")
        self.last = "" if unended else sign

    def hunk(self) -> Hunk:
        return Hunk(self.line, "".join(self.old), "".join(self.new))

    @property
    def empty(self) -> bool:
        return not any(self.old) and not any(self.new)


def _new_start(header: str) -> int | None:
    """12 of ``@@ -10,2 +12,3 @@``."""
    after = header.partition(" +")[2]
    digits = after[: len(after) - len(after.lstrip("0123456789"))]
    return int(digits) if 0 < len(digits) < 10 and int(digits) else None


def blocks_of_diff(path: str, diff: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Diff blocks and the location of one file's unified diff."""
    found = hunks(diff)
    location: dict[str, Any] = {"path": path}
    if found and found[0].line is not None:
        location["line"] = found[0].line
    return [ev.diff(path, hunk.old, hunk.new) for hunk in found], [location]


def blocks_of_patch(patch: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Diff blocks and locations of a patch in the ``*** Begin Patch`` format; both empty if it is none."""
    content: list[dict[str, Any]] = []
    locations: list[dict[str, Any]] = []
    path, adds = "", False
    body = Body(None)
    if not patch.lstrip(" \t\r\n").startswith("*** Begin Patch"):
        return content, locations

    for line in [*patch.split("\n"), "*** End Patch"]:
        directive, _, name = line.partition(": ")
        ends = directive in ("*** Add File", "*** Update File", "*** Delete File") or line == "*** End Patch"
        if ends or line.startswith("@@"):
            if path and not body.empty:
                hunk = body.hunk()
                content.append(ev.diff(path, None if adds else hunk.old, hunk.new))
            body = Body(None)
        if ends:
            path, adds = name, directive == "*** Add File"
            if path:
                locations.append({"path": path})
        elif directive == "*** Move to":
            locations.append({"path": name})
        elif not line.startswith(("@@", "*** ")):
            body.take(line)
    return content, locations
