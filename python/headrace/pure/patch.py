"""Patches: unified diffs and the `*** Begin Patch` format, as diff blocks and locations.

Each hunk becomes a diff block of its own whose texts are the hunk's lines: the file around them is not known, and
nothing is made up.
"""

from __future__ import annotations

from typing import Any

from . import event as ev
from . import tool


class Body:
    """The lines of a hunk as they come: such a patch does not count them."""

    def __init__(self) -> None:
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

    @property
    def empty(self) -> bool:
        return not any(self.old) and not any(self.new)


def blocks_of_diff(path: str, diff: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Diff blocks and the location of one file's unified diff."""
    found = tool.hunks(diff)
    location: dict[str, Any] = {"path": path}
    if found and found[0].line > 0:
        location["line"] = found[0].line
    return [ev.diff(path, hunk.old, hunk.new) for hunk in found], [location]


def blocks_of_patch(patch: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Diff blocks and locations of a patch in the ``*** Begin Patch`` format; both empty if it is none."""
    content: list[dict[str, Any]] = []
    locations: list[dict[str, Any]] = []
    path, adds = "", False
    body = Body()
    if not patch.lstrip(" \t\r\n").startswith("*** Begin Patch"):
        return content, locations

    for line in [*patch.split("\n"), "*** End Patch"]:
        directive, _, name = line.partition(": ")
        ends = directive in ("*** Add File", "*** Update File", "*** Delete File") or line == "*** End Patch"
        if ends or line.startswith("@@"):
            if path and not body.empty:
                content.append(ev.diff(path, None if adds else "".join(body.old), "".join(body.new)))
            body = Body()
        if ends:
            path, adds = name, directive == "*** Add File"
            if path:
                locations.append({"path": path})
        elif directive == "*** Move to":
            locations.append({"path": name})
        elif not line.startswith(("@@", "*** ")):
            body.take(line)
    return content, locations
