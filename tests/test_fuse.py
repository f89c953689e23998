"""What a user relies on when both the stream and the session files of a run are there: one run, and nothing twice."""

from __future__ import annotations

import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace import _backend

from .engines import ENGINES
from .mutate import mutated
from .truth import DATA, Stream, read, recordings, wrong

RECORDINGS = DATA / "recordings"
LIVE = {stream.name: stream for stream in recordings() if stream.kind == "live"}


def files_of(stream: Stream) -> list[Path]:
    """The session files of a recorded run: the main thread's and its sub-agents'."""
    stem = stream.path.name.removesuffix(".gz").rpartition(".")[0]
    found = [
        path
        for path in sorted(stream.path.parent.iterdir())
        if path != stream.path
        and path.name.startswith((f"{stem}.session", f"{stem}.sub", f"{stem}-sub", f"{stem}.wire"))
        and "expect" not in path.name
        and ".meta." not in path.name
        and "session2" not in path.name  # acp-gemini: another session, opened and left empty
    ]
    wires = {
        path.name.partition(".wire")[0] for path in found if ".wire" in path.name
    }  # kimi: tells all its context does
    return [path for path in found if ".wire" in path.name or path.name.partition(".session")[0] not in wires]


PAIRS = [stream for stream in LIVE.values() if files_of(stream)]

# usage of the whole run, sub-agents included, that no stream shows call by call: the truth's total
WHOLE = [
    "claude/compact",
    "claude/large",
    "claude/old-1.0.128-tools",
    "claude/old-2.1.197-subagents",
    "claude/tools",
    "codex/appserver-interrupt",
    "codex/compact",
    "codex/denied",
    "codex/denied-review",
    "codex/hello",
    "codex/image",
    "codex/killed",
    "codex/plan",
    "codex/sigint",
    "codex/subagent-v2",
    "codex/tools",
    "codex/tools-codemode",
    "codex/twoturns-3",
    "codex/v0142-plan",
    "codex/v0142-twoturns-2",
    "codex/v050-twoturns-2",
    "codex/v098-plan",
    "codex/v098-twoturns-2",
    "copilot/denied",
    "copilot/hello",
    "copilot/plan",
    "copilot/sigint",
    "copilot/tools",
    "gemini/hello",
    "gemini/tools",
    "gemini/old_0.33.0_tools",
    "opencode/tools",
    "acp-qwen/session",
    "qwen/plan",
    "qwen/subagent_bg",
    "qwen/old_0.5.0_plan",
    "qwen/tools",
    "qwen/twoturns2",
]


@pytest.fixture(params=list(ENGINES), autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_backend, "Engine", ENGINES[request.param])


def fused(name: str) -> headrace.Run:
    stream = LIVE[name]
    known = {"exit_code": stream.exit_code, "stderr": stream.stderr}
    return headrace.reduce(stream.path, transcript=files_of(stream), **known)


def facts(name: str) -> Any:
    return json.loads(read(RECORDINGS / f"{name}.expect.json.gz"))


def test_several_files_may_be_a_list_or_a_tuple() -> None:
    stream = LIVE["claude/plan"]
    files = files_of(stream)
    assert len(files) > 1
    assert headrace.reduce(stream.path, transcript=tuple(files)) == headrace.reduce(stream.path, transcript=files)


@pytest.mark.parametrize("name", WHOLE)
def test_usage_is_that_of_the_whole_run(name: str) -> None:
    truth = facts(name)["usage"]
    apart = truth.get("subagent_calls") or []
    run = fused(name)
    calls = run.usage["calls"]
    whole = [truth[key] + sum(call[key] for call in apart) for key in ("prompt", "completion")]
    main = [truth["main"][key] for key in ("prompt", "completion")] if name.startswith("claude/") else None
    # Claude's helper calls (titles, summaries) are in no file
    assert [calls["prompt_tokens"], calls["completion_tokens"]] in (whole, main)
    if name.startswith(("codex/tools", "copilot/", "gemini/")):
        assert run.sources["usage.calls"]["source"] == "transcript"


@pytest.mark.parametrize("stream", PAIRS, ids=[stream.name for stream in PAIRS])
def test_what_the_stream_says_stays(stream: Stream) -> None:
    alone = headrace.reduce(stream.path, exit_code=stream.exit_code, stderr=stream.stderr)
    run = fused(stream.name)
    assert run.to_dict().keys() == alone.to_dict().keys()
    assert run.texts[: len(alone.texts)] == alone.texts
    assert run.verdict.outcome == alone.verdict.outcome or alone.verdict.outcome == "incomplete"
    calls = {call["id"]: call for call in run.tool_calls}
    for call in alone.tool_calls:
        mine = calls[call["id"]]
        assert all(mine[key] == value for key, value in call.items() if value is not None and key not in LOOSE)
        assert call["ok"] in (None, mine["ok"])
    if not all(path in run.sources for path in ("texts[0]", "final_text")):
        findings = [finding for finding in wrong(stream, run.to_dict()) if finding.field not in MORE]
        assert findings == [f for f in wrong(stream, alone.to_dict()) if f.field not in MORE]


LOOSE = ("raw_output", "status")  # a record gains fields; a status comes with its `ok`
MORE = ("tool_calls.count", "tool_calls.ok", "thinking", "usage")  # what a file adds to the truth of a stream


@pytest.mark.parametrize("stream", PAIRS, ids=[stream.name for stream in PAIRS])
def test_each_fact_from_a_file_is_named(stream: Stream) -> None:
    alone, run = headrace.reduce(stream.path).to_dict(), headrace.reduce(stream.path, transcript=files_of(stream))
    whole, names = run.to_dict(), {str(path) for path in files_of(stream)}
    for path, source in run.sources.items():
        assert source["source"] == "transcript"
        assert source["path"] in names
        value = whole
        for step in re.findall(r"[^.\[\]]+", path):
            value = value[int(step)] if isinstance(value, list) else value[step]
    changed = {key for key in whole if whole[key] != alone[key]}
    assert changed - {"subagents"} <= {re.split(r"[.\[]", path)[0] for path in run.sources}


@pytest.mark.parametrize("name", LIVE)
def test_a_stream_with_itself_changes_nothing(name: str) -> None:
    stream = LIVE[name]
    alone = headrace.reduce(stream.path)
    if alone.dialect is None:
        with pytest.raises(headrace.MismatchedTranscript, match="dialect"):
            headrace.reduce(stream.path, transcript=stream.path)
        return
    run = headrace.reduce(stream.path, transcript=stream.path)
    assert run == alone
    assert run.sources == {}


def test_codex_diffs_and_times_come_from_the_rollout() -> None:
    run = fused("codex/tools")
    assert [call["id"] for call in run.tool_calls] == [f"item_{n}" for n in (2, 3, 4, 5, 7, 8, 9)]
    assert run.tool_calls[3]["raw_output"]["diffs"][0]["newText"] == "alpha\ngamma\n"
    assert run.sources["tool_calls[3].raw_output.diffs"]["dialect"] == "codex-rollout"
    assert [call["duration_ms"] for call in run.tool_calls[-2:]] == [481, 76]  # parallel calls are not swapped
    assert run.model == "gpt-5.5"
    assert run.messages[0]["role"] == "user"


def test_codex_calls_that_the_stream_leaves_out() -> None:
    run = fused("codex/denied")
    assert [call["ok"] for call in run.tool_calls] == [False] * 4
    assert set(run.sources) >= {f"tool_calls[{n}]" for n in range(4)}


def test_codex_sub_agents() -> None:
    run = fused("codex/plan")
    (agent,) = [agent for agent in run.subagents if agent["texts"]]
    spawn = next(call for call in run.tool_calls if call["id"] == agent["tool_call_id"])
    assert spawn["input"]["tool"] == "spawn_agent"
    assert agent["tool_calls"] == ["call_sub_ls"]
    (reviewer,) = fused("codex/denied-review").subagents  # no call started it: it stands under its own session
    assert reviewer["tool_call_id"].startswith("01a22889-a92d")


def test_kimi_ok_flags_thinking_and_usage_come_from_the_wire_file() -> None:
    truth, run = facts("kimi-code/tools.session"), fused("kimi-code/tools")
    assert run.thinking == truth["thinking"]
    assert [(call["id"], call["ok"]) for call in run.tool_calls] == [
        (call["id"], call["ok"]) for call in truth["tool_calls"]
    ]
    assert run.usage["calls"]["prompt_tokens"] == 31531
    assert {"thinking", "usage.calls", "tool_calls[0].ok"} <= set(run.sources)


@pytest.mark.parametrize("name", ["kimi/plan", "kimi-code/plan"])
def test_kimi_sub_agents_belong_to_the_calls_that_started_them(name: str) -> None:
    calls = {call["id"]: call for call in fused(name).tool_calls}
    inner = [call for call in facts(name)["tool_calls"] if call["parent"] is not None]
    assert inner
    assert [calls[call["id"]]["parent"] for call in inner] == [call["parent"] for call in inner]


def test_only_the_turns_of_the_stream_count() -> None:
    run = fused("kimi-code/twoturns")  # the file holds both runs of the session, the stream is the second
    assert (run.usage["calls"]["count"], run.usage["calls"]["prompt_tokens"]) == (1, 2002)
    assert [message["role"] for message in run.messages] == ["user", "assistant"]
    run = fused("codex/twoturns-3")
    assert run.usage["calls"]["prompt_tokens"] == 4004
    assert run.usage["run"]["prompt_tokens"] == 10010  # as the harness prints it, over the whole thread


def test_a_text_in_whose_middle_the_stream_broke_off_ends_as_in_the_file() -> None:
    folder = RECORDINGS / "claude"
    lines = gzip.decompress((folder / "large.jsonl.gz").read_bytes()).splitlines(keepends=True)
    file = folder / "large.session.jsonl.gz"
    whole = headrace.reduce(b"".join(lines), transcript=file)
    broken = headrace.reduce(b"".join(lines[: len(lines) // 2]))
    run = headrace.reduce(b"".join(lines[: len(lines) // 2]), transcript=file)
    assert 0 < len(broken.final_text) < len(whole.final_text)
    assert (run.verdict.outcome, run.final_text, run.texts) == ("completed", whole.final_text, whole.texts)
    assert [(m["role"], m["text"]) for m in run.messages] == [(m["role"], m["text"]) for m in whole.messages]
    assert {"verdict", "texts[0]", "final_text", "messages[1].text"} <= run.sources.keys()


def test_a_sub_agents_file_says_nothing_for_a_run_that_broke_off_before_its_call() -> None:
    stream = LIVE["claude/old-2.0.77-tools"]
    start = b"".join(read(stream.path).splitlines(keepends=True)[:2])
    main, *agents = sorted(files_of(stream), key=lambda path: "agent" in path.name)
    assert len(agents) == 3
    alone = headrace.reduce(start, transcript=main)
    for files in ([main, *agents], [*agents, main]):
        run = headrace.reduce(start, transcript=files)
        assert (run.final_text, run.texts, run.usage.calls) == (alone.final_text, alone.texts, alone.usage.calls)
    assert headrace.reduce(start, transcript=agents).verdict.outcome == "incomplete"


def test_claude_sub_agents_and_true_output_tokens() -> None:
    run = fused("claude/plan")
    assert run.subagents[0]["texts"][-1].startswith("Scout")
    assert run.subagents[0]["thinking"]
    assert run.usage["calls"]["completion_tokens"] == 651  # the stream has what a message began with, 1 each
    assert run.usage["run"]["completion_tokens"] == 706


def test_gemini_thoughts_and_opencode_prompts() -> None:
    run = fused("gemini/tools")
    assert run.thinking == facts("gemini/tools")["thinking"]
    assert fused("opencode/tools").messages[0]["role"] == "user"


@pytest.mark.parametrize("name", ["opencode/plan", "opencode/v1.2.27-plan"])
def test_opencode_sub_agents_are_counted_with_the_run(name: str) -> None:
    main, whole = headrace.reduce(LIVE[name].path).usage["calls"], fused(name).usage["calls"]
    assert (main["count"], main["prompt_tokens"]) == (7, 28028)
    assert (whole["count"], whole["prompt_tokens"]) == (9, 28028 + 30030)


def test_droid_tokens_come_from_the_settings_file(tmp_path: Path) -> None:
    stream = LIVE["droid/sigint"]
    session = headrace.reduce(stream.path).session_id
    settings = tmp_path / f"{session}.settings.json"
    tokens = {"inputTokens": 901, "outputTokens": 11, "cacheReadTokens": 100, "cacheCreationTokens": 0}
    settings.write_text(json.dumps({"model": "m", "tokenUsage": tokens}))
    run = headrace.reduce(stream.path, transcript=[*files_of(stream), settings])
    assert (run.usage["run"]["prompt_tokens"], run.usage["run"]["completion_tokens"]) == (1001, 11)
    assert run.sources["usage.run"]["path"] == str(settings)


def test_the_same_file_twice_counts_once() -> None:
    stream = LIVE["codex/plan"]
    files = files_of(stream)
    once = headrace.reduce(stream.path, transcript=files)
    assert headrace.reduce(stream.path, transcript=[*files, *files]) == once


@pytest.mark.parametrize(
    ("name", "other", "says"),
    [
        ("codex/tools", "codex/hello.session.jsonl.gz", "session"),
        ("codex/tools", "claude/tools.session.jsonl.gz", "same harness"),
        ("kimi/tools", "kimi/stdin.wire.jsonl.gz", "no text and no call"),
    ],
)
def test_files_of_other_runs_are_refused(name: str, other: str, says: str) -> None:
    with pytest.raises(headrace.MismatchedTranscript, match=says) as refused:
        headrace.reduce(LIVE[name].path, transcript=RECORDINGS / other)
    assert isinstance(refused.value, (ValueError, headrace.HeadraceError))


SMALL = [stream for stream in PAIRS if stream.path.stat().st_size < 15_000]


@pytest.mark.parametrize("seed", range(10))
def test_damaged_streams_and_files_are_fused_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    for stream in rng.sample(SMALL, 20):
        data = mutated(stream.data, rng)
        files = [mutated(read(path), rng) for path in files_of(stream)]
        alone = headrace.reduce(data)
        try:
            headrace.reduce(data, transcript=files)
            run = headrace.reduce(data, transcript=data)
        except headrace.MismatchedTranscript:
            continue
        assert run == alone
        assert run.sources == {}
