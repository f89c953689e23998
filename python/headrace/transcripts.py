"""Session files of a run that was also read live: which of a file's turns are the stream's, and whose file it is.

A session file may hold more than the process that printed the stream did: earlier and later runs of the same session.
It is cut at its prompts, and only the turns that the stream shows count. A file may also be a sub-agent's; then it
belongs to the call that started it.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from . import _backend, api
from .errors import MismatchedTranscript
from .fuse import Facts, Part, fuse, match_calls
from .pure.source import open_chunks

__all__ = ["KINDS", "File", "Stream", "fuse_files"]

KINDS = ("tool_call", "tool_call_update")
"""The events that show what runs do not keep."""

_LISTS = ("texts", "thinking", "messages", "errors")
_MIN_PROMPT = 8  # a shorter prompt proves nothing


class Stream:
    """A stream that an engine reads: its run, and what its events show of calls."""

    def __init__(self, engine: Any, name: str, exit_code: int | None = None, stderr: bytes | None = None) -> None:
        self.name = name
        self.shown = _Shown()
        self.shown.take(engine, 0)
        self.run: Facts = engine.run(exit_code, stderr)
        self.dialect: str | None = self.run["dialect"]

    def diffs(self, run: Facts) -> list[list[Facts]]:
        """For each call of the run, or of an earlier state of it, the diffs that its events show."""
        return self.shown.diffs_of(run["tool_calls"])


class File(Stream):
    """A session file, held in memory: it may have to be cut to the turns that a stream shows."""

    def __init__(self, source: Any, max_result_bytes: int | None = None) -> None:
        blocks, name = open_chunks(source)
        self.data = b"".join(_backend.decompress(blocks, name))
        self._max_result_bytes = max_result_bytes
        engine = self._engine(None)
        engine.attach_chunks(iter([self.data]), name)
        super().__init__(engine, name)
        if self.dialect is None:
            self._read_settings()

    def _read_settings(self) -> None:
        """Droid keeps a session's tokens in ``<session id>.settings.json`` beside its records."""
        try:
            settings = json.loads(self.data)
        except ValueError:
            return
        tokens = settings.get("tokenUsage") if isinstance(settings, dict) else None
        if not isinstance(tokens, dict):
            return
        self.dialect = "droid-session"
        prompt = [_count(tokens.get(key)) for key in ("inputTokens", "cacheReadTokens", "cacheCreationTokens")]
        model = settings.get("model")
        self.run["model"] = model if isinstance(model, str) else None
        self.run["session_id"] = os.path.basename(self.name).partition(".settings.json")[0] or None
        self.run["usage"]["run"] = {
            "count": None,
            "prompt_tokens": None if prompt[0] is None else sum(number or 0 for number in prompt),
            "completion_tokens": _count(tokens.get("outputTokens")),
            "cached_tokens": prompt[1],
            "cost_usd": None,
        }

    def _engine(self, dialect: str | None) -> Any:
        return _backend.Engine(dialect=dialect, kinds=KINDS, max_result_bytes=self._max_result_bytes, cut_later=True)

    # ------------------------------------------------------------ turns

    def prompts(self) -> list[int]:
        """The lines of the main thread's prompts; one at most if the file is one document."""
        lines = [
            message["line"]
            for message in self.run["messages"]
            if message["role"] == "user" and message["parent"] is None and isinstance(message["line"], int)
        ]
        return sorted(set(lines))

    def turns(self) -> list[bytes]:
        """The file cut before each prompt but the first."""
        cuts = self.prompts()[1:]
        lines = self.data.split(b"\n")
        starts = [0, *(cut - 1 for cut in cuts), len(lines)]
        parts = [b"\n".join(lines[a:b]) + b"\n" for a, b in pairwise(starts)]
        parts[-1] = parts[-1][:-1]
        return parts

    def cut_to(self, stream: Facts, diffs: list[list[Facts]]) -> Part:
        """What the file tells of the turns that the stream shows."""
        prompts, run = self.prompts(), self.run
        if len(prompts) < 2:
            several = sum(m["role"] == "user" and m["parent"] is None for m in run["messages"]) > 1
            sure = not (several and len(run["texts"]) > len(stream["texts"]))  # a document of several turns
            return Part(run, self.name, self.dialect, self.diffs(run), sure=sure)
        turns = self.turns()
        pairs = match_calls(stream["tool_calls"], run["tool_calls"], None, diffs, self.diffs(run))
        made = self._turns_of_calls(turns)
        calls = {made[j] for _, j in pairs if j < len(made)}
        told = [(m["text"], max(0, bisect_right(prompts, m["line"] or 0) - 1)) for m in _said(run)]
        seen = calls | _aligned([m["text"] for m in _said(stream)], told, calls)
        if not seen:
            return Part(run, self.name, self.dialect, self.diffs(run), whole=False, sure=False)
        return self._window(turns, min(seen), max(seen) + 1, {turn for _, turn in told} | set(made))

    def _turns_of_calls(self, turns: list[bytes]) -> list[int]:
        shown, engine = _Shown(), self._engine(self.dialect)
        for number, turn in enumerate(turns):
            shown.take(engine.feed(turn), number)
        shown.take(engine.close(), len(turns) - 1)
        return shown.turns_of(self.run["tool_calls"])

    def _window(self, turns: list[bytes], start: int, end: int, busy: set[int]) -> Part:
        """The run from one turn to before another: what came to be between the two."""
        engine = self._engine(self.dialect)
        before: list[Facts] = [engine.run()]
        for turn in turns[:start]:
            engine.feed(turn)
            before.append(engine.run())
        # a prompt in several records: records without work right before the first turn are of it
        while start and start - 1 not in busy and _spent(before[start - 1]) == _spent(before[start]):
            start -= 1
        for turn in turns[len(before) - 1 : end]:
            engine.feed(turn)
        if end == len(turns):
            engine.close()
        told = engine.run()
        part = Part(told, self.name, self.dialect, self.diffs(told), whole=start == 0 and end == len(turns))
        return part if start == 0 else _since(part, before[start])


class _Shown:
    """What events show of calls that runs do not keep, by id and by how often the id was used before."""

    def __init__(self) -> None:
        self.known: dict[str, list[tuple[int, list[Facts]]]] = {}

    def take(self, events: Iterable[Any], turn: int) -> None:
        for event in events:
            update = event["update"]
            calls = self.known.setdefault(update["toolCallId"], [])
            if update["sessionUpdate"] == "tool_call" or not calls:
                calls.append((turn, []))
            diffs = [block for block in update.get("content", ()) if block["type"] == "diff"]
            if diffs:
                calls[-1][1][:] = diffs  # content replaces

    def _of(self, calls: list[Facts]) -> list[tuple[int, list[Facts]]]:
        used: dict[str, int] = {}
        found = []
        for call in calls:
            known = self.known.get(call["id"], [])
            nth = used[call["id"]] = used.get(call["id"], -1) + 1
            found.append(known[min(nth, len(known) - 1)] if known else (0, []))
        return found

    def diffs_of(self, calls: list[Facts]) -> list[list[Facts]]:
        return [diffs for _, diffs in self._of(calls)]

    def turns_of(self, calls: list[Facts]) -> list[int]:
        return [turn for turn, _ in self._of(calls)]


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _said(run: Facts) -> list[Facts]:
    return [m for m in run["messages"] if m["role"] == "assistant" and m["parent"] is None and m["text"]]


def _aligned(texts: list[str], told: list[tuple[str, int]], calls: set[int]) -> set[int]:
    """The turns of the texts that both show in a row; of equal fits the one with the calls, then the last."""
    best: tuple[int, int] = (0, 0)
    turns: set[int] = set()
    for shift in range(1 - len(texts), len(told)):
        fits = {
            told[shift + i][1]: text
            for i, text in enumerate(texts)
            if 0 <= shift + i < len(told) and told[shift + i][0] == text
        }
        count = sum(0 <= shift + i < len(told) and told[shift + i][0] == text for i, text in enumerate(texts))
        rank = (count, len(calls & set(fits)))
        if count and rank >= best:
            best, turns = rank, set(fits)
    return turns


def _spent(run: Facts) -> tuple[Any, int]:
    return run["usage"]["calls"]["count"], len(run["errors"])


def _since(part: Part, before: Facts) -> Part:
    """What a part tells beyond an earlier state of the same run."""
    told = dict(part.run)
    for key in _LISTS:
        told[key] = told[key][len(before[key]) :]
    gone = len(before["tool_calls"])
    told["tool_calls"] = told["tool_calls"][gone:]
    for key in ("retries", "compactions"):
        told[key] -= before[key]
    if told["plan"] == before["plan"]:
        told["plan"] = None
    told["final_text"] = told["texts"][-1] if told["texts"] else None
    threads = {message["parent"] for message in told["messages"]} | {call["parent"] for call in told["tool_calls"]}
    told["subagents"] = [agent for agent in told["subagents"] if agent["tool_call_id"] in threads]
    calls, earlier = told["usage"]["calls"], before["usage"]["calls"]
    spent = {
        key: value if value is None or earlier[key] is None else value - earlier[key] for key, value in calls.items()
    }
    told["usage"] = {"calls": spent, "run": None, "difference": None}
    told["cost_usd"] = spent["cost_usd"]
    return part._replace(run=told, diffs=part.diffs[gone:])


# ------------------------------------------------------------ whose file it is


def fuse_files(stream: Stream, files: list[File]) -> tuple[Facts, dict[str, Facts]]:
    """The stream's run with what its session files add.

    Raises:
        MismatchedTranscript: a file is of another session or of another harness.
    """
    run, diffs = stream.run, stream.diffs(stream.run)
    parts: list[Part] = []
    waiting = []
    for at, file in enumerate(files):
        if any(file.data == other.data for other in files[:at]):
            continue
        _same_harness(stream, file)
        started = _is_side(file) or _parent(file, run["session_id"], run["tool_calls"], set()) is not None
        if not started and _is_main(run, file, diffs):
            parts.append(file.cut_to(run, diffs))
        else:
            waiting.append(file)
    taken: set[Any] = set()
    while waiting:  # a sub-agent may have been started by another one, whose calls are in a file
        calls = fuse(run, diffs, parts)[0]["tool_calls"]
        owners = [_parent(file, run["session_id"], calls, taken) for file in waiting]
        if not any(owners):
            owners = [_stray(stream, file) for file in waiting]
        if not any(owners):
            side = next((file for file in waiting if _is_side(file) and _is_main(run, file, diffs)), None)
            if side is None:
                raise _mismatch(stream, waiting[0])
            waiting.remove(side)  # no call is known to have started it: it tells nothing of the run
            parts.append(Part(side.run, side.name, side.dialect, side.diffs(side.run), sure=False))
            continue
        file, owner = next(pair for pair in zip(waiting, owners, strict=True) if pair[1] is not None)
        waiting.remove(file)
        taken.add(owner)
        parts.append(Part(file.run, file.name, file.dialect, file.diffs(file.run), parent=owner))
    return fuse(run, diffs, parts)


def _is_side(file: File) -> bool:
    """Claude Code marks what a sub-agent does, in a file of its own too."""
    first = next(api.records(file.data), None)
    return file.dialect == "claude-transcript" and first is not None and first.get("isSidechain") is True


def _is_main(run: Facts, file: File, diffs: list[list[Facts]]) -> bool:
    """Nothing speaks against a file of the main thread: its session id, or at least something that both show."""
    mine, theirs = run["session_id"], file.run["session_id"]
    if mine is not None and theirs is not None:
        return bool(mine == theirs)
    if not run["texts"] and not run["tool_calls"]:
        return True
    if {m["text"] for m in _said(run)} & {m["text"] for m in _said(file.run)}:
        return True
    mine_calls, their_calls = run["tool_calls"], file.run["tool_calls"]
    pairs = match_calls(mine_calls, their_calls, None, diffs, file.diffs(file.run))
    # ids such as call_01 prove nothing
    return any(
        mine_calls[i]["id"] != their_calls[j]["id"] or mine_calls[i]["input"] == their_calls[j]["input"]
        for i, j in pairs
    )


def _parent(file: File, session_id: str | None, calls: list[Facts], taken: set[Any]) -> str | None:
    """Id of the call that started a sub-agent whose file this is; None if none is known to have done so."""
    told = file.run
    own = {call["id"] for call in told["tool_calls"] if call["parent"] is None}
    for call in calls:
        if call["parent"] is not None and call["id"] in own:
            parent: str = call["parent"]
            return parent
    prompts = [m["text"].strip() for m in told["messages"] if m["role"] == "user"]
    found = []
    for call in calls:
        if call["kind"] != "think" or call["id"] in taken or call["id"] in own:
            continue
        report = str(call["result"] or "") + str(call["raw_output"] or "")
        named = told["session_id"] not in (None, session_id) and told["session_id"] in report
        asked = isinstance(call["input"], dict) and any(
            isinstance(text, str) and len(text) >= _MIN_PROMPT and any(p.endswith(text.strip()) for p in prompts)
            for text in call["input"].values()
        )
        if named or asked:
            said = bool(told["final_text"]) and told["final_text"].strip() in report
            found.append((asked, named, said, call["id"]))
    best = max(found, key=lambda one: one[:3], default=None)
    return None if best is None else best[3]


def _stray(stream: Stream, file: File) -> str | None:
    """A sub-agent that no call started, such as Codex's reviewer, names the session that it works for in its first
    record; it stands under its own session id."""
    owner, own = stream.run["session_id"], file.run["session_id"]
    if owner is None or own is None or owner == own or owner.encode() not in file.data.partition(b"\n")[0]:
        return None
    return str(own)


def _same_harness(stream: Stream, file: File) -> None:
    if file.dialect is None:
        raise MismatchedTranscript(
            f"{file.name}: no record of it looks like any dialect; give the session file that the harness wrote"
        )
    mine, theirs = ((of or "").partition("-")[0] for of in (stream.dialect, file.dialect))
    if stream.dialect is not None and mine not in (theirs, "acp", "evolve"):
        raise MismatchedTranscript(
            f"{file.name} is {file.dialect}, but the stream ({stream.name}) is {stream.dialect}: "
            "give a session file of the same harness"
        )


def _mismatch(stream: Stream, file: File) -> MismatchedTranscript:
    mine, theirs = stream.run["session_id"], file.run["session_id"]
    if mine is not None and theirs is not None and mine != theirs:
        why = f"its session is {theirs}, the stream's is {mine}, and no call of the run started it as a sub-agent"
    else:
        why = "it shows no text and no call of the stream, and no call of the run started it as a sub-agent"
    return MismatchedTranscript(
        f"{file.name} is not a session file of {stream.name}: {why}; give the file of this run, "
        "and a sub-agent's only together with that of the thread that started it"
    )
