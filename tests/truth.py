"""What the truth files beside the bundled recordings and cases state of a run, field by field.

A truth states only what its stream shows; a field that it leaves out is not compared. `disputes.json` names fields
whose truth the wire cannot show, each with the reason.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from headrace.pure import source

DATA = Path(__file__).parent / "data"
DISPUTES: dict[str, dict[str, str]] = json.loads((DATA / "disputes.json").read_text())


class Stream(NamedTuple):
    """One bundled stream or session file with its truth."""

    name: str  # folder/file
    kind: str  # "live", "stored" or "case"
    path: Path
    truth: dict[str, Any]
    stderr: bytes

    @property
    def data(self) -> bytes:
        """Its bytes, decompressed (one case is a zstd file of its own)."""
        return b"".join(source.decompress(iter([read(self.path)]), self.name))

    @property
    def exit_code(self) -> int | None:
        code = self.truth.get("exit_code")
        return code if self.kind == "live" and isinstance(code, int) else None


def read(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes())


def recordings() -> list[Stream]:
    """Every bundled recording: live streams, and the session files of the same runs."""
    found = []
    for expect in sorted((DATA / "recordings").rglob("*.expect.json.gz")):
        truth = json.loads(read(expect))
        stem, folder = expect.name.removesuffix(".expect.json.gz"), expect.parent
        beside = folder / f"{stem}.stderr.txt.gz"
        stderr = read(beside) if beside.exists() else b""
        for end in (".jsonl.gz", ".json.gz"):
            live = folder / (stem + end)
            if live.exists() and (end == ".jsonl.gz" or folder.name == "qwen"):
                found.append(Stream(f"{folder.name}/{stem}", "live", live, truth, stderr))
                break
        for end in (".session.jsonl.gz", ".session.json.gz"):
            stored = folder / (stem + end)
            if stored.exists() and not (folder / f"{stem}.session.expect.json.gz").exists():
                found.append(Stream(f"{folder.name}/{stem}.session", "stored", stored, truth, b""))
                break
    return found


def cases() -> list[Stream]:
    """Every bundled case that is a file; those with a producer script are tested with real processes."""
    found = []
    for expect in sorted((DATA / "cases").rglob("expect.json.gz")):
        inputs = sorted(expect.parent.glob("input.*"))
        if inputs and not (expect.parent / "producer.py.gz").exists():
            truth = json.loads(read(expect))
            found.append(Stream(f"cases/{expect.parent.name}", "case", inputs[0], truth, b""))
    return found


class Finding(NamedTuple):
    field: str
    wanted: Any
    got: Any


def wrong(stream: Stream, run: dict[str, Any]) -> list[Finding]:
    """The fields of the run that the truth contradicts, undisputed."""
    compare = {"live": _live, "stored": _stored, "case": _case}[stream.kind]
    disputed = DISPUTES.get(stream.name, {})
    return [finding for finding in compare(stream, run) if finding.field not in disputed]


def _case(stream: Stream, run: dict[str, Any]) -> Iterator[Finding]:
    truth, final = stream.truth, stream.truth.get("final", {})
    for key, mine in (("records", "records"), ("malformed", "malformed"), ("salvage", "salvaged")):
        if key in truth:
            yield from _same(key, truth[key], run["report"][mine])
    if truth.get("dialect"):
        name = {"claude-code": "claude", "evoscientist": "evosci"}.get(truth["dialect"], truth["dialect"])
        yield from _same("dialect", name, run["dialect"])
    yield from _story(final, run)
    if "final_text" in final:
        yield from _same("final_text", final["final_text"] or None, run["final_text"])
    calls, total = (_counters(run["usage"][key]) for key in ("calls", "run"))
    if final.get("usage_calls"):
        yield from _usage("usage_calls", [final["usage_calls"]], [calls])
    if final.get("usage_run"):
        yield from _usage("usage_run", [final["usage_run"]], [total])
    elif "usage_run" in final:
        yield from _same("usage_run", None, total)
    yield from _cost(final.get("cost_usd"), run)


def _live(stream: Stream, run: dict[str, Any]) -> Iterator[Finding]:
    truth = dict(stream.truth)
    if truth.get("outcome_from_stream"):
        truth["outcome"] = [truth["outcome"], truth["outcome_from_stream"]]
    yield from _story(truth, run, names=not stream.name.startswith("acp-"))
    part = truth.get("partial_text_is_prefix_of")
    if part:
        whole = part if isinstance(part, str) else "".join(part)
        if not (whole.startswith("".join(run["texts"])) and run["texts"]):
            yield Finding("texts", whole, run["texts"])
    elif "final_text" in truth and (truth["final_text"] or truth.get("outcome") == "completed"):
        yield from _same("final_text", truth["final_text"] or None, run["final_text"])
    for key in ("texts", "thinking"):
        unprinted = key == "thinking" and truth.get("harness") == "gemini"  # thoughts are in its session file only
        if truth.get(key) is not None and not part and not truth.get("cut_texts") and not unprinted:
            yield from _same(key, "".join(truth[key]), "".join(run[key]))
    usage = truth.get("usage")
    if isinstance(usage, dict) and usage.get("prompt"):
        totals = printed_totals(stream, usage)
        if totals:
            yield from _usage("usage", totals, [_counters(run["usage"][key]) for key in ("calls", "run")])
        yield from _cost(usage.get("cost_usd", usage.get("cost_usd_reported")), run)


def _stored(stream: Stream, run: dict[str, Any]) -> Iterator[Finding]:
    """A session file tells more than the stream: only what both must show is compared."""
    truth = stream.truth
    if run["dialect"] is None:
        yield Finding("dialect", "one", None)
    if truth.get("outcome") == "completed" and "final_text" in truth:
        yield from _same("session.final_text", truth["final_text"] or None, run["final_text"])
    calls = {call["id"]: call for call in run["tool_calls"]}
    for call in truth.get("tool_calls") or ():
        mine = calls.get(call.get("id")) or calls.get(call.get("call_id"))
        if mine and call.get("ok") is not None:
            yield from _same("session.tool_calls.ok", call["ok"], mine["ok"])
    usage = truth.get("usage") or {}
    mine = [_counters(run["usage"][key]) for key in ("calls", "run")]
    if usage.get("prompt") and mine[0] and (mine[0]["prompt"] or mine[1]):
        yield from _usage("session.usage", [usage, *([usage["main"]] if usage.get("main") else [])], mine)


def _story(truth: dict[str, Any], run: dict[str, Any], *, names: bool = True) -> Iterator[Finding]:
    """Outcome, tool calls and errors."""
    if "outcome" in truth:
        wanted = truth["outcome"] if isinstance(truth["outcome"], list) else [truth["outcome"]]
        if run["verdict"]["outcome"] not in wanted:
            yield Finding("outcome", wanted, run["verdict"])
    if "tool_calls" in truth:
        yield from _calls([c for c in truth["tool_calls"] if c.get("on_stream") is not False], run, names)
    messages = [error["message"] for error in run["errors"]]
    for error in truth.get("errors") or ():
        if not any(str(error)[:60] in got or got[:60] in str(error) for got in messages if got):
            yield Finding("errors", error, messages)
    if truth.get("errors") == []:
        yield from _same("errors", [], messages)


def _calls(wanted: list[dict[str, Any]], run: dict[str, Any], names: bool) -> Iterator[Finding]:
    spare = list(run["tool_calls"])
    yield from _same("tool_calls.count", len(wanted), len(spare))
    for call in wanted:
        ids = {call.get("id"), call.get("call_id"), call.get("second_id")} - {None}
        mine = next((m for m in spare if m["id"] in ids), None)
        if mine is None and not call.get("id"):
            mine = next((m for m in spare if m["name"] == call.get("name")), None)
        if mine is None:
            yield Finding("tool_calls.found", call.get("id") or call.get("name"), [m["id"] for m in spare])
            continue
        spare.remove(mine)
        for key in ("name", "input", "ok", "parent"):
            unstated = call.get(key) is None and key in ("name", "input")
            if key in call and not unstated and (key != "name" or names):
                yield from _same(f"tool_calls.{key}", call[key], mine[key])
        if isinstance(call.get("result"), str):
            begin = call["result"][:200]
            yield from _same("tool_calls.result", begin, (mine["result"] or "")[: len(begin)])


def printed_totals(stream: Stream, usage: dict[str, Any]) -> list[dict[str, Any]]:
    """The totals any of which may show: the whole script's, the main loop's, what the harness printed."""
    truth = stream.truth
    if stream.name.startswith("acp-") or usage.get("on_stream") is False or truth.get("usage_on_stream") is False:
        return []
    if truth.get("harness") == "codex" and not usage.get("printed"):
        return []
    totals = [usage, *([usage["main"]] if usage.get("main") else [])]
    printed = usage.get("printed")
    if isinstance(printed, dict) and "input_tokens" in printed:
        totals.append(
            {
                "prompt": printed["input_tokens"],
                "completion": printed["output_tokens"],
                "cached": printed.get("cached_input_tokens", 0),
            }
        )
    return totals


def _counters(part: dict[str, Any] | None) -> dict[str, int] | None:
    if part is None:
        return None
    return {key: part[f"{key}_tokens"] or 0 for key in ("prompt", "completion", "cached")}


def _usage(field: str, wanted: list[dict[str, Any]], got: list[dict[str, int] | None]) -> Iterator[Finding]:
    for total in wanted:
        stated = {key: total[key] for key in ("prompt", "completion", "cached") if total.get(key) is not None}
        if any(mine is not None and stated.items() <= mine.items() for mine in got):
            return
    yield Finding(field, wanted, got)


def _cost(wanted: float | None, run: dict[str, Any]) -> Iterator[Finding]:
    if wanted is not None and (run["cost_usd"] is None or abs(run["cost_usd"] - wanted) > 1e-6):
        yield Finding("cost_usd", wanted, run["cost_usd"])


def _same(field: str, wanted: Any, got: Any) -> Iterator[Finding]:
    if wanted != got:
        yield Finding(field, wanted, got)
