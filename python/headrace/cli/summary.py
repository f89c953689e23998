"""A run as people read it: verdict first, then what the run said and did, what it cost, and what went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Console
from rich.text import Text

from ..result import Report, Run
from .safe import one_line, safe
from .view import Card, Line

__all__ = ["show"]

_OUTCOMES = {"completed": "bold green", "failed": "bold red"}  # the others: yellow
_CALLS = {"ok": "green", "failed": "red", "open": "yellow", "done": ""}
_STEPS = {"completed": "[x]", "in_progress": "[>]", "pending": "[ ]"}

_WIDTH = 120  # columns of a line that is cut, where there is no terminal
_TEXT = 4000  # how much of a text is shown: characters
_LINES = 40  # and lines
_ITEMS = 40  # how much of a list is shown
_FAULTS = 10  # and of what the report has against the stream


def show(run: Run, title: str, out: Console, *, full: bool = False) -> None:
    """Prints the run under its title. ``full`` cuts no text and leaves out no item."""
    width = None if full else max((out.width if out.is_terminal else _WIDTH) - 12, 20)
    shape = _Shape(width, full)
    card = Card(one_line(title))
    card.add("verdict", *_verdict(run))
    card.add("harness", *_harness(run))
    card.add("session", *_session(run))
    label = "answer" if run.verdict.outcome == "completed" else "last text"
    card.add(label, *([] if run.final_text is None else shape.text(run.final_text)))
    card.add("calls", *_calls(run, shape))
    card.add("plan", *_plan(run, shape))
    card.add("agents", *_agents(run, shape))
    card.add("usage", *_usage(run))
    card.add("cost", *([] if run.cost_usd is None else [f"${run.cost_usd:,.4f}"]))
    card.add("errors", *_errors(run, shape))
    card.add("retries", *([str(run.retries)] if run.retries else []))
    card.add("compacted", *([_times(run.compactions)] if run.compactions else []))
    card.add("report", *_report(run.report, shape))
    card.show(out)


class _Shape:
    """How much is shown."""

    def __init__(self, width: int | None, full: bool) -> None:
        self.width = width
        self._full = full

    def line(self, text: str, taken: int = 0) -> str:
        """A text on one line, when ``taken`` columns of it are used already."""
        return one_line(text, None if self.width is None else max(self.width - taken, 20))

    def text(self, text: str) -> list[Line]:
        if self._full:
            return [safe(text)]
        text = text.strip("\n")
        lines = safe(text[:_TEXT]).split("\n")[:_LINES]
        left = len(text) - len("\n".join(text.split("\n")[:_LINES])[:_TEXT])
        more: list[Line] = [Text(f"… {left:,} more characters (--full shows them)", "dim")] if left else []
        return [*lines, *more]

    def items(self, lines: Iterable[Line], count: int, most: int = _ITEMS) -> Iterator[Line]:
        """The first of ``count`` lines; the iterable is asked for no more than is shown."""
        for number, line in enumerate(lines):
            if number >= most and not self._full:
                yield Text(f"… {count - most:,} more (--full shows them)", "dim")
                return
            yield line


def _verdict(run: Run) -> Iterator[Line]:
    outcome = run.verdict.outcome
    line = Text.assemble((one_line(outcome, 20), _OUTCOMES.get(outcome, "bold yellow")))
    if run.verdict.reason and run.verdict.reason != outcome:
        line.append(f" ({one_line(run.verdict.reason, _WIDTH)})")
    yield line
    for fact in run.verdict.evidence:
        where = "" if fact["line"] is None else f"line {fact['line']:,}, byte {fact['offset']:,}: "
        yield Text(f"{where}{one_line(fact['why'])}", "dim")


def _harness(run: Run) -> Iterator[Line]:
    if run.dialect is None:
        yield "no dialect found (headrace detect tells what was looked at)"
        return
    models = [run.model] if run.model else list(dict.fromkeys(m["model"] for m in run.messages if m["model"]))
    parts = [run.dialect + (f" {run.version}" if run.version else ""), *models]
    yield ", ".join(one_line(part, _WIDTH) for part in parts)


def _session(run: Run) -> Iterator[Line]:
    parts = [one_line(run.session_id, _WIDTH)] if run.session_id else []
    if run.cwd:
        parts.append(f"in {one_line(run.cwd, _WIDTH)}")
    if parts:
        yield " ".join(parts)


def _calls(run: Run, shape: _Shape) -> Iterator[Line]:
    calls = run.tool_calls
    if not calls:
        return
    ends = [_end(call) for call in calls]
    counts = ", ".join(f"{ends.count(end)} {end}" for end in _CALLS if end in ends)
    yield f"{len(calls):,}: {counts}"
    depths = _depths(calls)
    yield from shape.items(
        (_call(call, end, depth, shape) for call, end, depth in zip(calls, ends, depths, strict=True)), len(calls)
    )


def _call(call: dict[str, Any], end: str, depth: int, shape: _Shape) -> Text:
    took = "" if call["duration_ms"] is None else _duration(call["duration_ms"])
    indent = "  " * min(depth, 8)
    line = Text.assemble((f"{end:6}", _CALLS[end]))
    line.append(f"  {one_line(call['kind'], 11):11}  {took:>8}  {indent}")
    code = f"  exit code {one_line(str(call['exit_code']), 20)}" if call["exit_code"] else ""
    line.append(shape.line(call["title"] or call["name"] or call["id"], len(line) + len(code)))
    line.append(code, "dim")
    return line


def _end(call: dict[str, Any]) -> str:
    if call["ok"] is not None:
        return "ok" if call["ok"] else "failed"
    return "open" if call["result"] is None and call["ended_at"] is None else "done"  # done: the wire has no flag


def _depths(calls: list[dict[str, Any]]) -> list[int]:
    """How many delegations deep each call is."""
    known: dict[str, int] = {}
    depths = []
    for call in calls:
        depth = 0 if call["parent"] is None else known.get(call["parent"], 0) + 1
        known[call["id"]] = depth
        depths.append(depth)
    return depths


def _plan(run: Run, shape: _Shape) -> Iterator[Line]:
    if run.plan is None:
        return
    done = sum(step["status"] == "completed" for step in run.plan)
    yield f"{done} of {len(run.plan)} done"
    steps = (f"{_STEPS.get(step['status'], '[ ]')} {shape.line(step['content'], 4)}" for step in run.plan)
    yield from shape.items(steps, len(run.plan))


def _agents(run: Run, shape: _Shape) -> Iterator[Line]:
    agents = (
        shape.line(agent["name"] or agent["tool_call_id"], 30)
        + f": {_count(len(agent['texts']), 'text')}, {_count(len(agent['tool_calls']), 'call')}"
        for agent in run.subagents
    )
    yield from shape.items(agents, len(run.subagents))


def _usage(run: Run) -> Iterator[Line]:
    calls, total = run.usage["calls"], run.usage["run"]
    if calls["count"]:
        yield f"{_count(calls['count'], 'model call')}: {_tokens(calls)}"
    if total is not None:
        yield f"the harness's total: {_tokens(total)}"
    if run.usage["difference"]:
        yield Text(one_line(run.usage["difference"]), "yellow")


def _tokens(usage: dict[str, Any]) -> str:
    if usage["prompt_tokens"] is None and usage["completion_tokens"] is None:
        return "no token counts printed"
    cached = "" if usage["cached_tokens"] is None else f" ({usage['cached_tokens']:,} cached)"
    names = (("prompt_tokens", "prompt", cached), ("completion_tokens", "completion", ""))
    parts = [f"{usage[key]:,} {name}{more}" for key, name, more in names if usage[key] is not None]
    return ", ".join(parts) + " tokens"


def _errors(run: Run, shape: _Shape) -> Iterator[Line]:
    yield from shape.items((_error(error, shape) for error in run.errors), len(run.errors))


def _error(error: dict[str, Any], shape: _Shape) -> Text:
    where = "" if error["line"] is None else f"line {error['line']:,}: "
    line = Text.assemble((f"{where}{'fatal: ' if error['fatal'] else ''}", "red"))
    for number, part in enumerate(shape.text(error["message"])):
        line.append("\n  " if number else "")
        line.append_text(part if isinstance(part, Text) else Text(part))
    return line


def _report(report: Report, shape: _Shape) -> Iterator[Line]:
    size = f"{_count(report.lines, 'line')}, {_count(report.bytes, 'byte')}"
    if not report.bytes:
        yield "nothing was printed"
        return
    if not (report.malformed or report.lossy or report.unknown):
        yield f"{size}: all read"
        return
    parts = (
        [f"{report.malformed:,} malformed, {_count(report.salvaged, 'record')} got back"] if report.malformed else []
    )
    if report.lossy:
        parts.append(f"{_count(report.lossy, 'record')} with damaged text")
    if report.truncated:
        parts.append("the end is cut off")
    if report.unknown:
        unknown = sum(report.unknown.values())
        parts.append(f"{_count(unknown, 'record')} of unknown type")
    yield f"{size}: {', '.join(parts)}"
    bad = (
        f"line {line['line']:,}, byte {line['offset']:,}: {one_line(line['reason'])}: {shape.line(line['text'], 40)}"
        for line in report.malformed_lines
    )
    yield from shape.items(bad, report.malformed, _FAULTS)
    types = (f"unknown type {shape.line(name, 30)}: {count:,}" for name, count in report.unknown.items())
    yield from shape.items(types, len(report.unknown), _FAULTS)


def _duration(millis: float) -> str:
    if millis < 1000:
        return f"{millis:.0f} ms"
    seconds = millis / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes} m {seconds:02} s"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"
