"""What a user relies on when usage is added up over many files: a call counts once, and every drop has a cause."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import headrace

from .test_fuse import files_of
from .truth import recordings

RECORDINGS = Path(__file__).parent / "data" / "recordings"
LIVE = {stream.name: stream for stream in recordings() if stream.kind == "live"}

# a stream and the session files of the same run, sub-agents' included: together they tell the run's usage once
ONCE = [
    "claude/tools",
    "claude/compact",
    "claude/compact_auto",
    "claude/plan",
    "claude/old-1.0.128-subagents",
    "claude/old-2.0.77-tools",
    "claude/old-2.1.197-subagents",
    "codex/tools",
    "codex/v040-tools",
    "copilot/tools",
    "droid/tools",
    "gemini/tools",
    "gemini/plan",
    "gemini/old_0.12.0_tools",
    "opencode/tools",
    "pi/tools",
    "pi/compact-overflow",
    "pi/v0.27.9-tools",
    "qwen/tools",
    "qwen/plan",
    "qwen/subagent_bg",
]


def test_the_files_of_a_run_are_bundled() -> None:
    assert set(ONCE) <= LIVE.keys()


@pytest.mark.parametrize("name", ONCE)
def test_a_stream_and_its_session_files_count_once(name: str) -> None:
    stream = LIVE[name]
    truth = stream.truth["usage"]
    for files in ([stream.path, *files_of(stream)], [*files_of(stream), stream.path]):
        usage = headrace.usage(files)
        total = usage.total["prompt_tokens"], usage.total["completion_tokens"]
        assert total == (truth["prompt"], truth["completion"])
        if truth.get("cost_usd") is not None:
            assert usage.total["cost_usd"] == pytest.approx(truth["cost_usd"])
        assert all(entry["why"] and entry["counted_in"] != entry["path"] for entry in usage.dropped)


def test_a_copy_of_a_file_counts_once(tmp_path: Path) -> None:
    data = gzip.decompress((RECORDINGS / "evosci" / "tools.jsonl.gz").read_bytes())
    for name in ("one.jsonl", "two.jsonl"):
        (tmp_path / name).write_bytes(data)
    usage = headrace.usage(tmp_path)
    assert usage.total["calls"] == headrace.reduce(data).usage["calls"]["count"]
    assert {entry["why"] for entry in usage.dropped} == {"a copy of the file"}
    assert len(usage.files) == 2


def claude(path: Path, session: str, calls: list[tuple[str, int, bool]], day: str = "2026-11-29") -> None:
    """A session file with model calls: id, output tokens, and whether a side-chain made it."""
    records: list[dict[str, Any]] = [
        {
            "type": "assistant",
            "uuid": f"{session}-{number}",
            "parentUuid": None,
            "isSidechain": side,
            "sessionId": session,
            "cwd": "/home/dev/project",
            "version": "2.1.197",
            "timestamp": f"{day}T10:00:{number:02}.123Z",
            "message": {
                "id": message,
                "type": "message",
                "role": "assistant",
                "model": "claude-x",
                "content": [{"type": "text", "text": "Hi"}],
                "stop_reason": "end_turn",
                "usage": {"input_tokens": 100, "output_tokens": output},
            },
        }
        for number, (message, output, side) in enumerate(calls)
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_a_fork_does_not_count_again_what_it_copied(tmp_path: Path) -> None:
    claude(tmp_path / "a.jsonl", "s-parent", [("msg_00000001", 10, False), ("msg_00000002", 20, False)])
    claude(tmp_path / "b.jsonl", "s-fork", [("msg_00000001", 10, False), ("msg_00000003", 40, False)])
    usage = headrace.usage([tmp_path / "a.jsonl", tmp_path / "b.jsonl"])
    assert usage.total == {
        "calls": 3,
        "prompt_tokens": 300,
        "completion_tokens": 70,
        "cached_tokens": None,
        "cost_usd": None,
    }
    (dropped,) = usage.dropped
    assert (dropped["message_id"], dropped["why"]) == ("msg_00000001", "the same model call")
    assert (Path(dropped["path"]).name, Path(dropped["counted_in"]).name) == ("b.jsonl", "a.jsonl")


def test_the_largest_count_of_a_call_wins(tmp_path: Path) -> None:
    claude(tmp_path / "a.jsonl", "s-1", [("msg_00000001", 1, False)])
    claude(tmp_path / "b.jsonl", "s-2", [("msg_00000001", 50, False)])
    assert headrace.usage(tmp_path).total["completion_tokens"] == 50


def test_equal_counts_of_different_calls_are_no_replay(tmp_path: Path) -> None:
    claude(tmp_path / "a.jsonl", "s-1", [("msg_00000001", 10, False)], day="2026-11-28")
    claude(tmp_path / "b.jsonl", "s-2", [("msg_00000002", 10, False)], day="2026-11-29")
    usage = headrace.usage(tmp_path)
    assert usage.total["calls"] == 2
    assert usage.dropped == []
    assert {day: group["completion_tokens"] for day, group in usage.by("day").items()} == {
        "2026-11-28": 10,
        "2026-11-29": 10,
    }


def test_a_resumed_thread_prints_running_totals_and_only_the_last_counts() -> None:
    files = [RECORDINGS / "codex" / f"twoturns-{n}.jsonl.gz" for n in (1, 2, 3)]
    usage = headrace.usage(files)
    (entry,) = usage.entries
    assert (entry["prompt_tokens"], entry["completion_tokens"]) == (10010, 110)
    assert {entry["why"] for entry in usage.dropped} == {"a later total of the same session includes it"}


def test_groups_add_up_to_the_total() -> None:
    usage = headrace.usage([LIVE[name].path for name in ("claude/tools", "pi/tools", "gemini/tools", "evosci/tools")])
    for key in ("day", "model", "harness", "project", "session"):
        groups = usage.by(key)
        for counter in ("calls", "prompt_tokens", "completion_tokens"):
            assert sum(group[counter] or 0 for group in groups.values()) == usage.total[counter]
    assert list(usage.by("harness")) == ["claude", "evosci", "gemini", "pi"]
    assert ("claude", "claude-opus-5-5") in usage.by("harness", "model")
    with pytest.raises(ValueError, match="by\\(\\) takes day, model"):
        usage.by("mood")
    json.dumps(usage.to_dict())


def test_files_of_no_dialect_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text('{"a": 1}')
    usage = headrace.usage(tmp_path)
    assert (usage.files, usage.entries, usage.total["calls"]) == ([], [], 0)
    with pytest.raises(headrace.SourceError):
        headrace.usage(tmp_path / "missing.jsonl")
