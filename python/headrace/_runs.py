"""Several sessions in one source: where one run ends and the next one begins.

A run begins at a record that opens a session: the ``init`` of Claude Code, Qwen, Gemini and Droid, Codex's
``thread.started``, the header of a session file. One with the session id of the run that is read (another turn, a
resumed session behind the first) goes on with it. Lines are looked at by their bytes; only those that can open a
session are parsed apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from . import _backend
from .result import Run, last_run_of

__all__ = ["Start", "split"]

Start = tuple[int, int]  # line and offset of the first byte of a run in its source

_OPENER = re.compile(rb'"(?:init|thread\.started|session|session_meta|session\.start|step_start|projectHash)"')
# what opens a session in these dialects has the session's id, and no other record of theirs has another one
_OPENED = frozenset(
    [
        "claude",
        "qwen",
        "gemini",
        "droid",
        "codex",
        "copilot",
        "opencode",
        "pi",
        "codex-rollout",
        "copilot-session",
        "gemini-chat",
        "pi-session",
    ]
)


class _Part:
    """The run that is read."""

    def __init__(self, options: dict[str, Any], line: int, offset: int) -> None:
        self.engine = _backend.Engine(kinds=(), **options)
        self.start: Start = (line, offset)
        self.lines = 0
        self.size = 0
        self.session: str | None = None
        self.opener = b""

    def feed(self, data: bytes) -> None:
        self.engine.feed(data)
        self.lines += data.count(b"\n")
        self.size += len(data)

    def next(self, options: dict[str, Any]) -> _Part:
        return _Part(options, self.start[0] + self.lines, self.start[1] + self.size)

    def close(self) -> Run:
        self.engine.close()
        return last_run_of(self.engine, start=self.start)


def split(chunks: Iterator[Any], options: dict[str, Any]) -> Iterator[Run]:
    """The runs of a source, each as soon as the next one begins."""
    part = _Part(options, 1, 0)
    rest = b""
    for chunk in chunks:
        block = rest + bytes(chunk)
        end = block.rfind(b"\n") + 1
        rest = block[end:]
        done = 0
        for at, opener in _openers(block[:end]):
            session = _session(opener)
            if session is None or session == part.session:
                continue
            if part.session is not None and session.encode() not in part.opener:  # a fork names where it comes from
                part.feed(block[done:at])
                done = at
                yield part.close()
                part = part.next(options)
            if part.session is None:
                part.session, part.opener = session, opener
        part.feed(block[done:end])
    for _, opener in _openers(rest):
        session = _session(opener)
        if session not in (None, part.session) and part.session is not None:
            yield part.close()
            part = part.next(options)
    part.feed(rest)
    yield part.close()


def _openers(block: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines that may open a session, with where they start."""
    last = -1
    for found in _OPENER.finditer(block):
        start = block.rfind(b"\n", 0, found.start()) + 1
        if start != last:
            last = start
            end = block.find(b"\n", found.end())
            yield start, block[start : end if end >= 0 else len(block)]


def _session(line: bytes) -> str | None:
    """The session that a line opens."""
    engine = _backend.Engine(kinds=())
    engine.feed(line)
    engine.close()
    told = engine.run()
    session: str | None = told["session_id"]
    return session if told["dialect"] in _OPENED else None
