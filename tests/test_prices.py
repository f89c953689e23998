"""What a user relies on when costs are estimated: asked for, offline, apart from printed costs, nothing made up."""

from __future__ import annotations

import gzip
import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import headrace
from headrace.cli.app import app

from .bundled import streams

RECORDINGS = Path(__file__).parent / "data" / "recordings"
CLAUDE = RECORDINGS / "claude" / "tools.jsonl.gz"
PI = RECORDINGS / "pi" / "tools.jsonl.gz"
GEMINI = RECORDINGS / "gemini" / "plan.jsonl.gz"

# where the harness's total is of other calls than those on the stream: /clear zeroes it, a resumed session's goes on, a
# call that failed costs nothing, and 0.2.126 prints nothing but the price
OTHER_CALLS = ("local_commands", "twoturns_", "old-0.2.126-", "old-2.0.77-retry")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("an estimate needs no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)


def test_estimates_agree_with_what_claude_code_prints() -> None:
    compared = 0
    for stream in streams():
        if not stream.name.startswith("claude/") or ".session" in stream.name or "/old-0" in stream.name:
            continue
        run = headrace.reduce(stream.data)
        if run.cost_usd and not any(part in stream.name for part in OTHER_CALLS):
            compared += 1
            guess = run.estimate()
            assert guess.usd == pytest.approx(run.cost_usd, abs=1e-6), stream.name
            assert guess.unpriced == {}
    assert compared > 50


def test_estimates_stand_beside_printed_costs() -> None:
    plain, usage = headrace.usage([CLAUDE, PI]), headrace.usage([CLAUDE, PI], estimate=True)
    assert plain.estimate is None
    assert "estimated_usd" not in plain.total
    assert all("estimated_usd" not in entry for entry in plain.entries)
    assert usage.total["cost_usd"] == plain.total["cost_usd"]
    assert [entry["cost_usd"] for entry in usage.entries] == [entry["cost_usd"] for entry in plain.entries]
    assert usage.estimate is not None
    assert usage.total["estimated_usd"] == pytest.approx(usage.estimate.usd)
    by_model = usage.by("model")
    assert by_model["scripted-a"]["estimated_usd"] is None
    assert by_model["scripted-a"]["cost_usd"] == pytest.approx(0.090594)
    assert {entry["priced_as"] for entry in usage.entries} == {"anthropic/claude-opus-5-5", None}
    json.dumps(usage.to_dict())


def test_an_unknown_model_is_named_and_never_counts_as_nothing() -> None:
    run = headrace.reduce(PI)
    guess = run.estimate()
    assert (guess.usd, guess.by_model) == (None, {})
    assert guess.unpriced["scripted-a"] == {"calls": 7, **run.usage.by_model["scripted-a"]}
    nameless = headrace.reduce(RECORDINGS / "codex" / "tools.jsonl.gz").estimate()
    assert nameless.usd is None
    assert nameless.unpriced[None]["prompt_tokens"] == 28028


def test_a_total_by_model_is_priced_by_model() -> None:
    guess = headrace.reduce(GEMINI).estimate()
    assert list(guess.by_model) == ["gemini-2.5-pro", "gemini-2.5-flash"]


def test_cached_tokens_have_their_own_price() -> None:
    def usd(cached: int, written: int) -> float:
        usage = {"input_tokens": 10_000 - cached - written, "output_tokens": 10}
        usage |= {"cache_read_input_tokens": cached, "cache_creation_input_tokens": written}
        message = {"id": "msg_00000001", "type": "message", "role": "assistant", "model": "claude-opus-5-5"}
        message |= {"content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn", "usage": usage}
        record = {"type": "assistant", "session_id": "s", "uuid": "u", "parent_tool_use_id": None, "message": message}
        found = headrace.reduce(json.dumps(record).encode(), dialect="claude").estimate().usd
        assert found is not None
        return found

    assert usd(9_000, 0) < usd(0, 0) < usd(0, 9_000)


def test_counts_that_cannot_be_are_no_error() -> None:
    record = {"type": "message_end", "message": {"role": "assistant", "model": "gpt-5", "content": []}}
    record["message"]["usage"] = {"input": -5, "output": 3, "cacheRead": 9, "cacheWrite": -1}  # type: ignore[index]
    headrace.reduce(json.dumps(record).encode(), dialect="pi").estimate()


def test_models_are_known_with_their_provider_or_window(tmp_path: Path) -> None:
    data = gzip.decompress(CLAUDE.read_bytes())
    for name in (b"anthropic/claude-opus-5-5", b"claude-opus-5-5[1m]"):
        run = headrace.reduce(data.replace(b"claude-opus-5-5", name))
        assert run.estimate().usd == pytest.approx(run.cost_usd)


def test_it_says_which_prices_it_took() -> None:
    from importlib.metadata import version

    assert headrace.reduce(CLAUDE).estimate().prices == f"genai-prices {version('genai-prices')}"


@pytest.mark.usefixtures("no_library")
def test_without_the_library_it_says_what_to_install() -> None:
    assert headrace.usage(CLAUDE).total["cost_usd"]
    for ask in (headrace.reduce(CLAUDE).estimate, lambda: headrace.usage(CLAUDE, estimate=True)):
        with pytest.raises(ImportError, match=r"pip install 'headrace\[prices\]'"):
            ask()
    result = CliRunner().invoke(app, ["usage", "--estimate", str(CLAUDE)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "headrace: estimates need a price library: pip install 'headrace[prices]'\n"


def test_the_command_shows_estimates_and_what_has_none() -> None:
    result = CliRunner().invoke(app, ["usage", "--estimate", "--by", "model", str(CLAUDE), str(PI)])
    assert result.exit_code == 0
    head, claude, pi, total, *notes = result.stdout.splitlines()
    assert head.split() == ["model", "calls", "prompt", "completion", "cached", "cost", "estimated"]
    assert claude.split()[-2:] == ["$0.1257", "$0.1257"]
    assert pi.split()[-2:] == ["$0.0906", "-"]
    assert total.split()[-2:] == ["$0.2163", "$0.1257"]
    assert notes[0].startswith("estimated: list prices of genai-prices ")
    assert notes[1:] == ["no price is known: scripted-a (31,416 tokens)"]
    told = json.loads(CliRunner().invoke(app, ["usage", "--estimate", "--json", str(CLAUDE), str(PI)]).stdout)
    assert [row["model"] for row in told["estimate"]["unpriced"]] == ["scripted-a"]
    assert told["total"]["estimated_usd"] == pytest.approx(0.1256668)
