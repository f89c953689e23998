"""What a user relies on when usage is added up over many files: a call counts once, and every drop has a cause."""

from __future__ import annotations

import errno
import gzip
import json
import os
import random
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import headrace
from headrace.cli.app import app
from headrace.result import COUNTERS

from .bundled import streams
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


def forked(parent: bytes, restamped: bool) -> bytes:
    """A Codex fork: its own header, the parent's records, as they were or stamped anew, and one call more."""
    told = [json.loads(line) for line in parent.splitlines()]
    header = json.loads(json.dumps(told[0]))
    header["payload"] |= {"id": "01a22fff-0000-7000-8000-000000000001", "forked_from_id": told[0]["payload"]["id"]}
    header["timestamp"] = header["payload"]["timestamp"] = "2026-11-30T10:00:00.100Z"
    copy = [{**record, "timestamp": "2026-11-30T10:00:00.150Z"} if restamped else record for record in told]
    started = {"type": "task_started", "turn_id": "01a22fff-1111-7000-8000-000000000001"}
    total = next(r for r in reversed(told) if r["payload"].get("type") == "token_count" and r["payload"]["info"])
    count = json.loads(json.dumps(total))["payload"]
    info = count["info"]
    info["last_token_usage"] = {"input_tokens": 777, "cached_input_tokens": 7, "output_tokens": 77, "total_tokens": 854}
    for name, number in info["last_token_usage"].items():
        info["total_token_usage"][name] += number
    new = [
        {"timestamp": "2026-11-30T10:04:59.000Z", "type": "event_msg", "payload": started},
        {"timestamp": "2026-11-30T10:05:00.000Z", "type": "event_msg", "payload": count},
    ]
    return b"".join(json.dumps(record).encode() + b"\n" for record in (header, *copy, *new))


@pytest.mark.parametrize("restamped", [False, True])
def test_a_codex_fork_does_not_count_its_parents_calls_again(restamped: bool, tmp_path: Path) -> None:
    parent = gzip.decompress((RECORDINGS / "codex" / "tools.session.jsonl.gz").read_bytes())
    (tmp_path / "parent.jsonl").write_bytes(parent)
    alone = headrace.usage(tmp_path).total
    fork = forked(parent, restamped)
    (tmp_path / "fork.jsonl").write_bytes(fork)
    both = headrace.usage(tmp_path).total
    assert both["calls"] == alone["calls"] + 1
    assert both["prompt_tokens"] == alone["prompt_tokens"] + 777
    assert both["completion_tokens"] == alone["completion_tokens"] + 77
    sessions = [run.session_id for run in headrace.runs(parent + fork + parent)]
    assert len(sessions) == 3
    assert sessions[0] == sessions[2] != sessions[1]


def told(*names: str) -> bytes:
    return b"".join(gzip.decompress((RECORDINGS / f"{name}.gz").read_bytes()) for name in names)


def sums(*files: Path) -> dict[str, Any]:
    total = headrace.usage(files).total
    return {name: number if number is None else pytest.approx(number) for name, number in total.items()}


def test_runs_that_one_file_holds_count_like_files_of_their_own(tmp_path: Path) -> None:
    names = ["claude/tools", "claude/compact", "gemini/tools", "gemini/plan", "pi/tools", "codex/tools", "codex/denied"]
    names += ["qwen/tools", "droid/tools", "opencode/tools", "acp-claude/tools", "evosci/tools", "minicode/success"]
    apart = [RECORDINGS / f"{name}.jsonl.gz" for name in names]
    log = tmp_path / "log.jsonl"
    log.write_bytes(told(*(f"{name}.jsonl" for name in names)))
    assert headrace.usage(log).total == sums(*apart)
    assert headrace.usage([*apart, log]).total == sums(*apart)
    usage = headrace.usage(log)
    assert usage.files == [(str(log), "claude")]
    assert set(usage.by("dialect")) == set(headrace.usage(apart).by("dialect"))
    lines = log.read_bytes().splitlines()
    calls = [entry for entry in usage.entries if entry["harness"] == "pi"]
    assert calls
    for entry in calls:
        assert entry["message_id"].encode() in lines[entry["line"] - 1]


@pytest.mark.parametrize("name", ["claude/tools", "qwen/tools", "gemini/tools", "acp-claude/tools", "evosci/tools"])
def test_a_copy_in_other_bytes_counts_once(name: str, tmp_path: Path) -> None:
    data = told(f"{name}.jsonl")
    files = [tmp_path / f"{number}.jsonl" for number in range(3)]
    files[0].write_bytes(data)
    files[1].write_bytes(data + b"\n")
    files[2].write_bytes(data.replace(b"\n", b"\r\n"))
    alone = headrace.usage(files[0]).total
    for order in (files, files[::-1]):
        usage = headrace.usage(order)
        assert usage.total == alone
        assert {entry["why"] for entry in usage.dropped} <= {"a copy of the file", "another file goes on from this one"}


@pytest.mark.parametrize(
    "name",
    [
        "claude/bg_shell.jsonl",
        "qwen/inputjson.jsonl",
        "pi/compact-threshold.jsonl",
        "codex/v098-appserver-tools.jsonl",
        "claude/tools.session.jsonl",
        "opencode/twoturns.sqlite-rows.jsonl",
        "copilot/twoturns.session.jsonl",
    ],
)
def test_a_copy_that_was_made_before_the_end_adds_nothing(name: str, tmp_path: Path) -> None:
    lines = told(name).splitlines(keepends=True)
    whole, early = tmp_path / "whole.jsonl", tmp_path / "early.jsonl"
    whole.write_bytes(b"".join(lines))
    alone = sums(whole)
    for end in range(1, len(lines), max(1, len(lines) // 12)):
        early.write_bytes(b"".join(lines[:end]))
        assert headrace.usage([whole, early]).total == alone
        assert headrace.usage([early, whole]).total == alone


def test_what_a_resumed_or_forked_claude_session_spent_counts_once() -> None:
    """Since 2.1.277 its price goes on with the session's; `model_usage_since_last_result` is what the process used."""
    names = ("twoturns_1", "twoturns_2_resume", "twoturns_3_fork")
    files = [RECORDINGS / "claude" / f"{name}.jsonl.gz" for name in names]
    last = headrace.reduce(files[2]).cost_usd
    assert last is not None
    for order in (files, files[::-1]):
        total = headrace.usage(order).total
        assert (total["calls"], total["prompt_tokens"], total["completion_tokens"]) == (3, 8076, 66)
        assert total["cost_usd"] == pytest.approx(last)


@pytest.mark.parametrize(("version", "restores"), [("2.1.276", False), ("2.1.278", True)])
def test_a_resumed_claude_session_without_increments_counts_as_its_version_does(
    version: str, restores: bool, tmp_path: Path
) -> None:
    files = []
    for name in ("twoturns_1", "twoturns_2_resume"):
        records = [json.loads(line) for line in told(f"claude/{name}.jsonl").splitlines()]
        for record in records:
            record.pop("model_usage_since_last_result", None)
            if "claude_code_version" in record:
                record["claude_code_version"] = version
        files.append(tmp_path / f"{name}.jsonl")
        files[-1].write_text("".join(json.dumps(record) + "\n" for record in records))
    totals = [headrace.reduce(file).usage["run"] for file in files]
    usage = headrace.usage(files)
    for name in ("prompt_tokens", "cost_usd"):
        expected = totals[1][name] + (0 if restores else totals[0][name])
        assert usage.total[name] == pytest.approx(expected)


def test_the_calls_of_a_stream_that_a_forks_file_tells_count_once(tmp_path: Path) -> None:
    stream = RECORDINGS / "claude" / "tools.jsonl.gz"
    session = headrace.reduce(stream).session_id
    assert session is not None
    fork = tmp_path / "fork.jsonl"
    copied = told("claude/tools.session.jsonl").replace(session.encode(), session[:-4].encode() + b"0000")
    fork.write_bytes(b"".join(line for line in copied.splitlines(keepends=True) if b'"cost-state"' not in line))
    alone = sums(stream)
    assert headrace.usage([stream, fork]).total == alone
    assert headrace.usage([fork, stream]).total == alone


def test_the_order_of_files_makes_no_difference() -> None:
    files = sorted((RECORDINGS / "claude").glob("[b-p]*.jsonl.gz"))
    totals = sums(*files)
    for seed in range(3):
        random.Random(seed).shuffle(files)
        assert headrace.usage(files).total == totals


def test_a_resumed_qwen_session_begins_with_what_it_had_used(tmp_path: Path) -> None:
    files = [RECORDINGS / "qwen" / f"{name}.jsonl.gz" for name in ("twoturns", "twoturns2", "twoturns2.session")]
    for given in (files, files[:2], files[1::-1], files[2:]):
        total = headrace.usage(given).total
        assert (total["calls"], total["prompt_tokens"], total["completion_tokens"]) == (3, 6006, 66)


def test_an_opencode_fork_costs_what_it_did_itself(tmp_path: Path) -> None:
    """A fork copies messages under new ids, with their times, and its row has the price of all."""
    parent, fork = tmp_path / "parent.jsonl", tmp_path / "fork.jsonl"
    parent.write_bytes(told("opencode/twoturns.sqlite-rows.jsonl"))
    fork.write_bytes(re.sub(rb"(ses|msg|prt)_[0-9a-z]{4}", rb"\1_33ff", parent.read_bytes()))
    assert headrace.reduce(fork).session_id != headrace.reduce(parent).session_id
    assert headrace.usage([parent, fork]).total == sums(parent)
    assert headrace.usage([fork, parent]).total == sums(parent)


def test_files_of_no_dialect_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text('{"a": 1}')
    usage = headrace.usage(tmp_path)
    assert (usage.files, usage.entries, usage.total["calls"]) == ([], [], 0)
    with pytest.raises(headrace.SourceError):
        headrace.usage(tmp_path / "missing.jsonl")


# ---------------------------------------------------------------- one run


def test_the_parts_of_a_run_add_up_to_its_calls() -> None:
    for stream in streams():
        usage = headrace.reduce(stream.data).usage
        for parts in (usage.by_model, usage.by_agent):
            assert sum(part["calls"] for part in parts.values()) == usage.calls["count"], stream.name
            for counter in COUNTERS:
                known = [part[counter] for part in parts.values() if part[counter] is not None]
                told = usage.calls[counter]
                assert (sum(known) if known else None) == (told if told is None else pytest.approx(told)), stream.name


def test_the_parts_of_a_run_by_agent_are_its_sub_agents() -> None:
    run = headrace.reduce(RECORDINGS / "kimi" / "plan.wire.jsonl.gz")
    assert set(run.usage.by_agent) == {None, *(agent["tool_call_id"] for agent in run.subagents)}


def test_what_a_harness_prints_by_model_is_apart_and_adds_up_to_its_total() -> None:
    printed = 0
    for stream in streams():
        usage = headrace.reduce(stream.data).usage
        if usage.printed_by_model and usage.run is not None:
            printed += 1
            for counter in ("prompt_tokens", "completion_tokens"):
                told = sum(part[counter] or 0 for part in usage.printed_by_model.values())
                assert told == (usage.run[counter] or 0), stream.name
    assert printed > 100


def test_a_difference_is_explained_whenever_there_is_one() -> None:
    reasons = set()
    for stream in streams():
        usage = headrace.reduce(stream.data).usage
        calls, total = usage.calls, usage.run
        differs = False
        if total is not None and calls["count"]:
            both = [(calls[name], total[name]) for name in COUNTERS if None not in (calls[name], total[name])]
            differs = any(abs(mine - own) > 1e-6 for mine, own in both)
        assert (usage.difference is not None) == differs, stream.name
        if usage.difference:
            reasons.add(usage.difference.partition(" (")[2])
            assert "leaves out calls that the wire shows" not in usage.difference or "retry" in stream.name
            assert "reckons its total by itself" not in usage.difference
    assert len(reasons) > 20


def test_a_total_by_model_leaves_a_rest_by_model() -> None:
    usage = headrace.usage(RECORDINGS / "claude" / "old-1.0.128-tools.jsonl.gz")
    (rest,) = [entry for entry in usage.entries if entry["kind"] == "rest" and entry["prompt_tokens"]]
    assert (rest["model"], rest["prompt_tokens"]) == ("claude-3-5-haiku-20241022", 693)
    assert list(headrace.usage(RECORDINGS / "gemini" / "plan.jsonl.gz").by("model")) == [
        "gemini-2.5-flash",
        "gemini-2.5-pro",
    ]


def test_the_command_adds_up_files(tmp_path: Path) -> None:
    files = [str(RECORDINGS / "claude" / name) for name in ("compact.jsonl.gz", "compact.session.jsonl.gz")]
    result = CliRunner().invoke(app, ["usage", "--by", "day", "--by", "harness", *files])
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1].split() == ["2026-11-29", "claude", "3", "18,814", "154", "4,228", "$0.0628"]
    told = json.loads(CliRunner().invoke(app, ["usage", "--json", *files]).stdout)
    assert told == json.loads(json.dumps(headrace.usage(files).to_dict()))
    missing = CliRunner().invoke(app, ["usage", str(tmp_path / "missing")])
    assert (missing.exit_code, missing.stdout) == (2, "")
    nothing = CliRunner().invoke(app, ["usage", str(tmp_path)])
    assert nothing.stdout.splitlines()[1].split() == ["total", "0", "-", "-", "-", "-"]


def test_a_file_that_cannot_be_read_keeps_the_command_from_no_other(tmp_path: Path) -> None:
    good, cut, wide = tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl.gz", tmp_path / "c.jsonl"
    whole = (RECORDINGS / "pi" / "tools.jsonl.gz").read_bytes()
    good.write_bytes(whole)
    cut.write_bytes(whole[:2000])
    wide.write_bytes('{"type": "text"}\n'.encode("utf-16"))
    result = CliRunner().invoke(app, ["usage", str(tmp_path), str(tmp_path / "none.jsonl")])
    assert result.exit_code == 2
    assert result.stdout == CliRunner().invoke(app, ["usage", str(good)]).stdout
    assert [
        line.startswith(("headrace: can't open", f"headrace: {cut}: ", f"headrace: {wide}: "))
        for line in result.stderr.splitlines()
    ] == [True] * 3
    alone = CliRunner().invoke(app, ["usage", "--json", str(cut)])
    assert (alone.exit_code, alone.stdout) == (2, "")
    with pytest.raises(headrace.SourceError, match=r"b\.jsonl\.gz"):
        headrace.usage(tmp_path)


@pytest.mark.parametrize("call", ["scandir", "stat"])  # no permission to list it, or to look at what is in it
def test_a_folder_that_cannot_be_looked_into_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    folder = tmp_path / "private"
    folder.mkdir()
    (folder / "run.jsonl").write_bytes(b'{"type": "done"}\n')
    (tmp_path / "nothing.jsonl").symlink_to("no-such-file")
    (tmp_path / "itself.jsonl").symlink_to("itself.jsonl")
    (tmp_path / "round").symlink_to(tmp_path)
    refused = folder if call == "scandir" else folder / "run.jsonl"
    allowed = getattr(os, call)

    def look(path: Any, *arguments: Any, **options: Any) -> Any:
        if path == refused or path == str(refused):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return allowed(path, *arguments, **options)

    for read in (headrace.usage, headrace.drift):
        read(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(os, call, look)
            with pytest.raises(headrace.SourceError, match=f"{re.escape(str(refused))}.*Permission denied"):
                read(tmp_path)


def test_costs_add_up_the_same_on_every_python() -> None:
    """Python 3.12 made ``sum`` more exact, which the native backend is not."""
    cost = 0.1
    records = [
        {"type": "message_end", "message": {"role": "assistant", "content": [], "usage": {"cost": {"total": cost}}}}
        for _ in range(10)
    ]
    data = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    run = headrace.reduce(data, dialect="pi")
    expected = cost + cost + cost + cost + cost + cost + cost + cost + cost + cost
    assert expected != 1.0
    assert run.cost_usd == run.usage.calls["cost_usd"] == expected
