"""Writes the tables of ``docs/dialects.md``: what each dialect's bundled recordings show, computed from them.

``python -m tests.data.make_dialect_table`` after recordings or mappers changed; a test holds the page to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import headrace

from ..truth import cases, read
from .make_shapes import HERE, streams

PAGE = HERE.parent.parent / "docs" / "dialects.md"
BEGIN, END = "<!-- made by tests/data/make_dialect_table.py -->", "<!-- end -->"

LIVE = [
    "claude",
    "codex",
    "codex-appserver",
    "gemini",
    "qwen",
    "kimi",
    "opencode",
    "droid",
    "copilot",
    "pi",
    "evosci",
    "minicode",
    "acp",
    "evolve",
]
STORED = [
    "claude-transcript",
    "codex-rollout",
    "gemini-chat",
    "qwen-chat",
    "kimi-wire",
    "kimi-context",
    "opencode-export",
    "pi-session",
    "droid-session",
    "copilot-session",
]

OUTCOMES = ("completed", "failed", "cancelled", "timeout", "denied", "limit", "incomplete")
FEATURES = {
    "texts": "texts",
    "thinking": "thinking",
    "deltas": "text in deltas",
    "user": "prompts",
    "calls": "tool calls",
    "ok": "`ok` flag",
    "exit": "exit code",
    "diffs": "diffs",
    "plan": "plan",
    "usage_call": "usage per call",
    "usage_run": "usage of the run",
    "cost": "cost",
    "subagents": "sub-agents",
    "errors": "errors",
    "retries": "retries",
    "retract": "text taken back",
    "compactions": "compactions",
    "session": "session id",
    "model": "model",
    "timestamps": "timestamps",
}


# what headrace reads where a harness prints it (another mode or version, public documents), but no bundled stream shows
UNRECORDED = {
    "claude": "exit",
    "codex": "deltas compactions",
    "codex-appserver": "compactions",
    "gemini": "thinking",
    "kimi": "user",
    "minicode": "user",
    "droid": "deltas plan subagents retries retract compactions",
    "copilot": "usage_call compactions",
    "copilot-session": "retries retract compactions",
    "acp": "user compactions",
    "claude-transcript": "errors retries",
    "gemini-chat": "errors",
    "qwen-chat": "errors retries retract compactions",
    "kimi-wire": "errors compactions",
    "kimi-context": "compactions",
    "pi-session": "retract",
}


def survey() -> dict[str, Entry]:
    """What the bundled recordings and cases show of each dialect. The evolve streams are the events of the others."""
    found = {name: Entry() for name in [*LIVE, *STORED]}
    for name, data, version in _sources():
        stream = headrace.events(data, state=True)
        events = list(stream)
        if stream.dialect is None:
            continue
        found[stream.dialect].take(name, stream.run, events, version)
        if stream.dialect in ("acp", "claude", "pi") and len(data) < 60_000:
            lines = b"".join(json.dumps(event).encode() + b"\n" for event in events)
            again = headrace.events(lines, state=True, dialect="evolve")
            events = list(again)
            found["evolve"].take(f"{name}, its events", again.run, events, None)
    return found


def _sources() -> Iterator[tuple[str, bytes, str | None]]:
    for path in streams():
        stem = re.sub(r"[.](jsonl|json)[.]gz$", "", path.name)
        expect = path.with_name(f"{re.sub('[.](session|wire|sub).*', '', stem)}.expect.json.gz")
        version = json.loads(read(expect)).get("version") if expect.exists() else None
        yield f"{path.parent.name}/{stem}", read(path), version
    for case in cases():
        yield case.name, case.data, None


class Entry:
    """What is recorded of a dialect: each fact with the first stream that shows it."""

    def __init__(self) -> None:
        self.versions: set[str] = set()
        self.outcomes: dict[str, str] = {}
        self.features: dict[str, str] = {}

    def take(self, name: str, run: headrace.Run, events: list[Any], version: str | None) -> None:
        if isinstance(version, str):
            self.versions.add(version.removeprefix("droid ").removeprefix("@github/copilot "))
        if run.verdict.evidence[0]["line"] is not None:  # the stream itself tells
            self.outcomes.setdefault(run.verdict.outcome, name)
        for feature in _shown(run, events):
            if feature == "deltas" and run.dialect in STORED:
                continue  # a text of several blocks
            self.features.setdefault(feature, name)


def _shown(run: headrace.Run, events: list[Any]) -> Iterator[str]:
    calls = run.tool_calls
    chunks = [
        e for e in events if e["update"]["sessionUpdate"] == "agent_message_chunk" and "parentToolCallId" not in e
    ]
    kinds = {event["update"]["sessionUpdate"] for event in events}
    scopes = {event["update"]["scope"] for event in events if event["update"]["sessionUpdate"] == "usage"}
    blocks = [block for event in events for block in _content(event)]
    facts = {
        "texts": run.texts,
        "thinking": run.thinking,
        "deltas": len(chunks) > len(run.texts)
        and run.texts
        and not any("retract" in e.get("extra", {}) for e in chunks),
        "user": any(message["role"] == "user" for message in run.messages),
        "calls": calls,
        "ok": any(call["ok"] is not None for call in calls),
        "exit": any(call["exit_code"] is not None for call in calls),
        "diffs": any(block["type"] == "diff" for block in blocks),
        "plan": "plan" in kinds,
        "usage_call": "call" in scopes,
        "usage_run": "run" in scopes,
        "cost": run.cost_usd is not None,
        "subagents": run.subagents,
        "errors": run.errors,
        "retries": run.retries,
        "retract": any("retract" in event.get("extra", {}) for event in events),
        "compactions": run.compactions,
        "session": run.session_id,
        "model": run.model,
        "timestamps": any("timestamp" in event for event in events) or any(call["started_at"] for call in calls),
    }
    yield from (feature for feature, fact in facts.items() if fact)


def _content(event: Any) -> list[Any]:
    content = event["update"].get("content", [])
    return content if isinstance(content, list) else []


# ------------------------------------------------------------ the page


def tables() -> str:
    """The generated part of the page."""
    found = survey()
    return "\n".join(
        [BEGIN, "", *_table("Live", LIVE, found), *_table("On disk", STORED, found), *_evidence(found), END]
    )


def _table(title: str, names: list[str], found: dict[str, Entry]) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield "| | " + " | ".join(_link(name) for name in names) + " |"
    yield "|---" * (len(names) + 1) + "|"
    for feature, title in FEATURES.items():
        cells = [_cell(found[name], feature, UNRECORDED.get(name, "").split()) for name in names]
        yield f"| {title} | " + " | ".join(cells) + " |"
    yield "| verdicts told apart | " + " | ".join(_outcomes(found[name]) for name in names) + " |"
    yield "| versions recorded | " + " | ".join(_versions(found[name]) for name in names) + " |"
    yield ""


def _link(name: str) -> str:
    page = PAGE.parent / "dialects" / f"{name}.md"
    return f"[{name}](dialects/{name}.md)" if page.is_file() else name


def _cell(entry: Entry, feature: str, unrecorded: list[str]) -> str:
    if feature in entry.features:
        assert feature not in unrecorded, f"{feature} is recorded now: {entry.features[feature]}"
        return "tested"
    return "read, not recorded" if feature in unrecorded else "not on the wire"


def _outcomes(entry: Entry) -> str:
    return ", ".join(outcome for outcome in OUTCOMES if outcome in entry.outcomes) or "none"


def _versions(entry: Entry) -> str:
    return ", ".join(sorted(entry.versions, key=_order)) or "of the streams it came from"


def _order(version: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"[. ]", version)]


def _evidence(found: dict[str, Entry]) -> Iterator[str]:
    yield "## What shows it"
    yield ""
    yield "One stream of `tests/data` for each tested cell, the first by name."
    yield ""
    for name, entry in found.items():
        shown = [
            f"{FEATURES[feature]} `{entry.features[feature]}`" for feature in FEATURES if feature in entry.features
        ]
        shown += [f"{outcome} `{entry.outcomes[outcome]}`" for outcome in OUTCOMES if outcome in entry.outcomes]
        yield f"- **{name}**: " + "; ".join(shown) + "."
    yield ""


def main() -> None:
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    PAGE.write_text(before + tables() + rest.partition(END)[2], "utf-8")


if __name__ == "__main__":
    main()
