"""The recordings that the tests read: every stream and session file, with the dialects that it may be.

They are bundled as `tests/data/recordings/<folder>/<file>.gz`; the environment variable HEADRACE_RECORDINGS names
another folder of that layout, compressed or not.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import NamedTuple

ROOT = Path(os.environ.get("HEADRACE_RECORDINGS") or Path(__file__).parent / "data" / "recordings")

LIVE = {
    "acp-claude": {"acp"},
    "acp-codex": {"acp"},
    "acp-copilot": {"acp"},
    "acp-droid": {"acp"},
    "acp-gemini": {"acp"},
    "acp-opencode": {"acp"},
    "acp-qwen": {"acp"},
    "claude": {"claude"},
    "codex": {"codex"},
    "copilot": {"copilot"},
    "droid": {"droid"},
    "evosci": {"evosci"},
    "gemini": {"gemini"},
    "kimi": {"kimi"},
    "kimi-code": {"kimi"},
    "minicode": {"minicode"},
    "opencode": {"opencode"},
    "pi": {"pi"},
    "qwen": {"qwen"},
}
"""Folder: what its live streams are."""

LIVE_APART = {
    "kimi/acp.": {"acp"},
    "kimi-code/acp.": {"acp"},
    # its printer reads the context file along and prints the lines of both
    "kimi/v0.53-": {"kimi", "kimi-context"},
}
"""Start of a name: what the stream is, where that differs from its folder."""

STORED = {
    "acp-gemini": "gemini-chat",
    "acp-qwen": "qwen-chat",
    "claude": "claude-transcript",
    "codex": "codex-rollout",
    "copilot": "copilot-session",
    "droid": "droid-session",
    "gemini": "gemini-chat",
    "kimi": "kimi-context",
    "kimi-code": "kimi-wire",
    "opencode": "opencode-export",
    "pi": "pi-session",
    "qwen": "qwen-chat",
}
"""Folder: what its session files are."""

STORED_APART = {".wire.": "kimi-wire", ".sqlite-rows.": "opencode-export", ".storage-files.": "opencode-export"}
"""Part of a name: what the session file is."""

_NO_STREAMS = (".expect.json", ".stdin.jsonl", ".meta.json", ".mcp.json", ".txt.json")


class Bundled(NamedTuple):
    """One stream or session file."""

    name: str  # folder/file
    path: Path
    dialects: frozenset[str]  # any of which is right

    @property
    def data(self) -> bytes:
        raw = self.path.read_bytes()
        return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw


def streams() -> list[Bundled]:
    """Every one that is there, sorted by name."""
    found = []
    for path in sorted(ROOT.glob("*/*")):
        name = path.name.removesuffix(".gz")
        if path.parent.name in LIVE and name.endswith((".jsonl", ".json")) and not name.endswith(_NO_STREAMS):
            full = f"{path.parent.name}/{name}"
            found.append(Bundled(full, path, frozenset(_dialects(path.parent.name, full))))
    return found


def _dialects(folder: str, name: str) -> set[str]:
    for part, dialect in STORED_APART.items():
        if part in name:
            return {dialect}
    if ".session" not in name and ("appserver-" in name or "mcpserver-" in name):
        return {"codex-appserver"}
    if ".session" in name:
        return {STORED[folder]}
    return next((dialects for start, dialects in LIVE_APART.items() if name.startswith(start)), LIVE[folder])
