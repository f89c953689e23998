"""What many files say was spent, each model call once.

The same call stands in several files when a stream and its session file are both kept, when a session was resumed,
forked or copied, and when a sub-agent has a file of its own; and one file may hold many runs. What is counted once, and
why, is written down for every entry that is left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Any

from . import _backend
from ._drift import files_under
from ._runs import engines
from ._sum import add_up
from .dump import dumps
from .errors import SourceError
from .pure.frame import DEFAULT_MAX_LINE_BYTES
from .pure.source import open_chunks
from .result import COUNTERS, Estimate, Usage
from .transcripts import File

__all__ = ["estimate_of", "gather"]

PathLike = str | os.PathLike[str]
Entry = dict[str, Any]

_RUNNING = ("codex", "droid", "qwen")  # their totals go on over a resumed session
_CLAUDE_RESTORES = (2, 1, 277)  # since then a resumed process of Claude Code begins with the session's totals
_WITH_AGENTS = ("gemini",)  # their totals include sub-agents, whose files are sessions of their own
_OWN_KEYS = ("pi",)  # numbers its messages: its keys name no call outside of the file
_MIN_ID = 8  # a shorter id proves nothing

_MIN_CALLS = 3  # fewer different calls may agree by chance
_RECORDS = ("event_bytes", "ignored_bytes", "unknown_bytes")

_OUTLINE = ("dialect", "session_id", "cwd", "model", "version", "usage")  # the rest of a run may be large

_STORED = ("-transcript", "-rollout", "-chat", "-wire", "-context", "-export", "-session")


class _File:
    """What one file says, or one of the runs in it."""

    def __init__(
        self,
        path: str,
        run: dict[str, Any],
        ledger: list[Entry],
        models: list[Entry] | None = None,
        line: int = 1,
        last: str | None = None,
    ) -> None:
        self.path = path
        self.line = line  # at which it begins
        self.dialect = dialect = run["dialect"] or ""
        self.stored = dialect.endswith(_STORED)
        self.harness = dialect.partition("-")[0]
        self.session: str | None = run["session_id"]
        self.cwd: str | None = run["cwd"]
        self.model: str | None = run["model"]
        self.total: dict[str, Any] | None = run["usage"]["run"]
        self.models = models or []  # the harness's own total of each
        self.version: str | None = run["version"]
        self.apart = False  # the price goes on over a resumed or forked session, what the models used does not
        costs = [total["cost_usd"] for total in self.models]
        if self.total is not None and self.total["cost_usd"] is not None and costs and None not in costs:
            own = add_up(costs)
            if abs(own - self.total["cost_usd"]) > 1e-9:
                self.apart = True
                self.total = {**self.total, "cost_usd": own}
        self.calls = [self._entry("call", row, row) for row in ledger]
        self.time = max((time for time in [*(row["timestamp"] for row in ledger), last] if time), default=None)
        # what the calls that started sub-agents show: their session ids are among it
        self.delegated = b""
        if self.harness in _WITH_AGENTS:
            self.delegated = b"".join(
                dumps(call["raw_output"]) for call in run["tool_calls"] if call["kind"] == "think"
            )
        told = {key: run[key] for key in _OUTLINE}
        self.outline = blake2b(dumps([told, self.models, [_facts(row) for row in ledger]])).digest()
        self.digest: bytes | None = None  # of all it says: found out if another file has the same outline

    def _entry(self, kind: str, counters: Entry, row: Entry) -> Entry:
        time = row["timestamp"]
        return {
            "kind": kind,
            "path": self.path,
            "line": row["line"] and row["line"] + self.line - 1,
            "dialect": self.dialect,
            "harness": self.harness,
            "session": row["session_id"] or self.session,
            "project": self.cwd,
            "day": time[:10] if time else None,
            "timestamp": time,
            "model": row["model"],
            "key": row["key"],
            "message_id": row["message_id"],
            "parent": row["parent"],
            "side": row["side"],
            **{name: counters[name] for name in COUNTERS},
            "cache_write_tokens": counters.get("cache_write_tokens"),
        }

    def entry(self, counters: Entry) -> Entry:
        """What the harness's own total has that no call has."""
        models = {call["model"] for call in self.calls} or {self.model}
        return self._rest(counters, models.pop() if len(models) == 1 else None)

    def entries(self, counters: Entry, told: list[Entry]) -> list[Entry]:
        """The same, an entry for each model where the harness prints such totals and they say as much."""
        rests = []
        for total in self.models:
            mine = [call for call in told if _bare(call["model"]) == _bare(total["model"])]
            rest = _beyond([total], mine)
            if rest is not None:
                written = (total["cache_write_tokens"] or 0) - sum(call["cache_write_tokens"] or 0 for call in mine)
                rests.append(self._rest({**rest, "cache_write_tokens": max(written, 0) or None}, total["model"]))
        same = all(abs(sum(rest[name] or 0 for rest in rests) - (counters[name] or 0)) < 1e-9 for name in COUNTERS)
        return rests if rests and same else [self.entry(counters)]

    def _rest(self, counters: Entry, model: str | None) -> Entry:
        row = dict.fromkeys(("line", "session_id", "key", "message_id", "parent"))
        return self._entry("rest", counters, {**row, "timestamp": self.time, "model": model, "side": False})


def gather(
    paths: PathLike | Iterable[PathLike], estimate: bool = False, unread: Callable[[SourceError], object] | None = None
) -> Usage:
    """See `headrace.usage`. With ``unread``, that is told of what can't be read, and the rest is counted."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    found: dict[str, Path] = {}
    for path in given:
        for file in files_under(Path(path), unread):
            found.setdefault(os.path.realpath(file), file)
    books = _Books()
    for file in found.values():
        try:
            books.files += _read(file)
        except SourceError as error:
            if unread is None:
                raise
            unread(error)
    usage = books.close()
    if estimate:
        from ._prices import estimated

        usage.estimate = estimated(usage.entries)
    return usage


def estimate_of(run: dict[str, Any], ledger: list[Entry], models: list[Entry]) -> Estimate:
    """See `Run.estimate`."""
    from ._prices import estimated

    books = _Books()
    books.files.append(_File("", run, ledger, models))
    return estimated(books.close().entries)


def _read(path: Path, whole: bool = False) -> list[_File]:
    """The runs in a file: what wrote it may have gone on in it with another session. ``whole``: with their digests."""
    blocks, name = open_chunks(path)
    options = {"max_line_bytes": DEFAULT_MAX_LINE_BYTES, "dialect": None, "on_malformed": None}
    found = [
        _told(path, engine, start[0], whole)
        for engine, start in engines(_backend.decompress(blocks, name), options, name)
    ]
    read = [file for file in found if file is not None]
    if len(read) > 1 and {file.dialect for file in read} == {"codex-rollout"}:
        # a fork may have its parent's header anywhere in the history that it copied
        engine = _backend.Engine(kinds=())
        engine.attach_path(path)
        engine.drain_source()
        one = _told(path, engine, 1, whole)
        return [] if one is None else [one]
    if not read and ".settings.json" in path.name:  # where Droid keeps a session's tokens
        settings = File(path)
        if settings.dialect is not None:
            read.append(_File(str(path), {**settings.run, "dialect": settings.dialect}, []))
            read[0].digest = _digest(settings.run, [])
    return read


def _told(path: Path, engine: Any, line: int, whole: bool) -> _File | None:
    run = {key: engine.run_part(key) for key in _OUTLINE}
    if run["dialect"] is None:
        return None
    if run["dialect"].startswith(_WITH_AGENTS):
        run["tool_calls"] = engine.run_part("tool_calls")
    ledger = engine.ledger()
    file = _File(str(path), run, ledger, engine.printed_models(), line, engine.last_call_time())
    if whole:
        file.digest = _digest(engine.run(), ledger)
    return file


def _digest(run: dict[str, Any], ledger: list[Entry]) -> bytes:
    return blake2b(dumps([_facts(run), [_facts(row) for row in ledger]])).digest()


def _facts(value: dict[str, Any]) -> dict[str, Any]:
    """What a run or a model call says, wherever it stands."""
    told = {key: fact for key, fact in value.items() if key not in ("line", "offset", "report")}
    if "report" in value:
        for key in ("messages", "errors"):
            told[key] = [_facts(fact) for fact in value[key]]
        told["verdict"] = {key: fact for key, fact in value["verdict"].items() if key != "evidence"}
        if value["session_id"] is None:  # two runs may come to the same: their records are as long
            told["report"] = {key: size for key, size in value["report"].items() if key in _RECORDS}
    return told


class _Books:
    """Enters what the files say, each call once."""

    def __init__(self) -> None:
        self.files: list[_File] = []
        self.kept: list[Entry] = []
        self.dropped: list[Entry] = []
        self.home: dict[int, _File] = {}  # of each call, by its identity
        self.instead: dict[int, Entry] = {}  # what counts for a call that does not
        self.digests: dict[str, dict[int, bytes | None]] = {}  # of the runs of a file, by the line at which they begin

    def close(self) -> Usage:
        self.home = {id(call): file for file in self.files for call in file.calls}
        files = self._wholes(self._copies())
        calls = [call for file in files for call in file.calls]
        calls = self._once(calls, _by_id, "the same model call")
        calls = self._once(calls, _by_time, "a replay: the same time, model and counts")
        calls = self._told_by_file(files, self._told_by_session(calls))
        self.kept = calls + self._rests(files, calls)
        order = {file: at for at, file in enumerate(self.files)}
        self.kept.sort(key=lambda entry: order[self.home[id(entry)]])
        read: dict[str, str] = {}
        for file in self.files:
            read.setdefault(file.path, file.dialect)
        return Usage(self.kept, self.dropped, list(read.items()))

    def _apart(self, call: Entry, other: Entry) -> bool:
        """Two files, or two runs, tell them."""
        return self.home[id(call)] is not self.home[id(other)]

    def _counted(self, call: Entry) -> Entry:
        """The call itself, or what counts for it."""
        while id(call) in self.instead:
            call = self.instead[id(call)]
        return call

    def _drop(self, entry: Entry, why: str, of: Entry | _File) -> None:
        path = of.path if isinstance(of, _File) else of["path"]
        self.dropped.append({**entry, "why": why, "counted_in": path})

    def _copies(self) -> list[_File]:
        """The files without those that say to the letter what another one says."""
        alike: dict[bytes, list[_File]] = {}
        for file in self.files:
            if file.calls or file.total is not None:
                alike.setdefault(file.outline, []).append(file)
        known: dict[Any, _File] = {}
        kept = []
        for file in self.files:
            first = file
            if len(alike.get(file.outline, ())) > 1:
                first = known.setdefault(self._digest(file), file)
            if first is file:
                kept.append(file)
            else:
                self._drop_file(file, "a copy of the file", first)
        return kept

    def _digest(self, file: _File) -> Any:
        """Of all that a file says, for which it is read again; of a file that can't be read any more, itself."""
        if file.digest is None:
            if file.path not in self.digests:
                try:
                    again = _read(Path(file.path), whole=True)
                except SourceError:
                    again = []
                self.digests[file.path] = {run.line: run.digest for run in again}
            file.digest = self.digests[file.path].get(file.line)
        return file.digest or file

    def _wholes(self, files: list[_File]) -> list[_File]:
        """The files without streams that another one begins with: a copy that was cut, or made before the end."""
        begun: dict[Any, list[_File]] = {}
        for file in sorted(files, key=lambda file: (len(file.calls), *_size(file)), reverse=True):
            if not file.stored and file.calls:
                alike = begun.setdefault((file.dialect, file.session, _mark(file.calls[0])), [])
                whole = next((other for other in alike if _begins(other, file)), None)
                if whole is None:
                    alike.append(file)
                else:
                    self._drop_file(file, "another file goes on from this one", whole)
                    files = [other for other in files if other is not file]
        return files

    def _drop_file(self, file: _File, why: str, of: _File) -> None:
        rest = _beyond([file.total] if file.total else [], file.calls)
        for entry in [*file.calls, *([file.entry(rest)] if rest else [])]:
            self._drop(entry, why, of)

    def _once(self, calls: list[Entry], name_of: Callable[[Entry], Any], why: str) -> list[Entry]:
        """Of calls with one name in several files the copy that says most: the main loop's, then the largest."""
        best: dict[Any, Entry] = {}
        for call in calls:
            name = name_of(call)
            if name is not None:
                known = best.get(name)
                if known is None or (self._apart(known, call) and _rank(call) > _rank(known)):
                    best[name] = call
        kept = []
        for call in calls:
            first = best.get(name_of(call))
            if first is None or not self._apart(first, call):
                kept.append(call)
            else:
                self._drop(call, why, first)
                self.instead[id(call)] = first
        return kept

    def _told_by_session(self, calls: list[Entry]) -> list[Entry]:
        """Without what one file of a session tells under other ids than another one, by session and counts: the calls
        of a sub-agent that has a file of its own, and those of a stream that the session file tells."""
        stored = [call for call in calls if _stored(call)]
        agents = [call for call in stored if not _is_main(call)]
        gone = self._pair(agents, filter(_is_main, stored), "the sub-agent's own file tells the same call")
        rest = [call for call in stored if id(call) not in gone]
        streamed = [call for call in calls if not _stored(call)]
        gone |= self._pair(streamed, rest, "the session file tells the same call")
        return [call for call in calls if id(call) not in gone]

    def _pair(self, calls: Iterable[Entry], others: Iterable[Entry], why: str) -> set[int]:
        """Drops each call that has a partner with the same session and counts in another file."""
        told: dict[Any, list[Entry]] = {}
        for other in others:
            told.setdefault(_counts(other), []).append(other)
        gone = set()
        for call in calls:
            partners = told.get(_counts(call), []) if call["session"] else []
            same = next((other for other in partners if self._apart(other, call)), None)
            if same is not None:
                partners.remove(same)
                gone.add(id(call))
                self._drop(call, why, same)
                self.instead[id(call)] = same
        return gone

    def _told_by_file(self, files: list[_File], calls: list[Entry]) -> list[Entry]:
        """Without the calls of old streams that print no session id, where one session file tells them all."""
        for file in files:
            mine = [call for call in calls if self.home[id(call)] is file]
            if file.stored or file.session or len({_counts(call) for call in mine}) < _MIN_CALLS:
                continue
            for other in files:
                if other.stored and other.harness == file.harness:
                    left = [_counts(call)[1:] for call in other.calls]
                    try:
                        for call in mine:
                            left.remove(_counts(call)[1:])
                    except ValueError:
                        continue
                    for call in mine:
                        self._drop(call, "a session file tells all calls of this stream", other)
                    calls = [call for call in calls if self.home[id(call)] is not file]
                    file.session = other.session
                    break
        return calls

    def _rests(self, files: list[_File], calls: list[Entry]) -> list[Entry]:
        """What the harnesses' own totals have beyond all calls that are told of the same session."""
        groups: dict[str | _File, list[_File]] = {}
        for file in files:
            if file.total is not None:
                groups.setdefault(file.session or file, []).append(file)
        counted = {id(call) for call in calls}
        of_session: dict[str | None, list[Entry]] = {}
        for file in files:
            for call in file.calls:
                of_session.setdefault(call["session"], []).append(call)
        agents = sorted({file.session for file in files if file.harness in _WITH_AGENTS and file.session})
        delegated: dict[str | _File, bytes] = {}
        for file in files:
            if file.session:
                delegated[file.session] = delegated.get(file.session, b"") + file.delegated
        rests = []
        for name, told in groups.items():
            # a stream's total is that of its process; a session file's may go beyond what the file tells
            group = [file for file in told if not file.stored] or [file for file in told if not file.calls] or told
            group = self._last_totals(group)
            sessions = [
                name,
                *(agent for agent in agents if agent != name and agent.encode() in delegated.get(name, b"")),
            ]
            told_calls = [
                call for session in sessions if isinstance(session, str) for call in of_session.get(session, ())
            ]
            # a session may change its id on the way
            told_calls += [call for file in group for call in file.calls if _is_main(call)]
            # also those that count in another session, such as a fork
            known = [
                call
                for call in {id(call): call for call in map(self._counted, told_calls)}.values()
                if id(call) in counted
            ]
            totals = [file.total for file in group if file.total is not None]
            rest = _beyond(totals, known)
            if rest is not None and group[0].stored and group[0].calls:
                # a fork's total has the calls that it copied, which count where they were made
                own = _beyond(totals, group[0].calls)
                cost = min(rest["cost_usd"] or 0, own["cost_usd"] or 0) if own else 0
                rest = {**dict.fromkeys(COUNTERS), "cost_usd": cost} if cost else None
            if rest is not None:
                more = group[-1].entries(rest, known) if len(group) == 1 else [group[-1].entry(rest)]
                self.home.update((id(entry), group[-1]) for entry in more)
                rests.extend(more)
            self._drop_told(group, known, rest)
        return rests

    def _drop_told(self, group: list[_File], known: list[Entry], rest: Entry | None) -> None:
        """Writes down what totals have beyond the calls of their own files, if other files tell it."""
        for file in group:
            other = next((call for call in known if self.home[id(call)] is not file), None)
            own = _beyond([file.total] if file.total else [], file.calls)
            if own is None or other is None:
                continue
            more = {name: own[name] for name in COUNTERS}
            for name in COUNTERS:
                if own[name] is not None and rest is not None and rest[name] is not None:
                    more[name] = own[name] - rest[name] if own[name] - rest[name] > 1e-9 else None
            if any(more.values()):
                self._drop(file.entry(more), "another file tells these calls", other)

    def _last_totals(self, group: list[_File]) -> list[_File]:
        """Of totals that go on over a resumed session, and of those that session files have, only the last, which is
        the largest."""
        if not (group[0].harness in _RUNNING or group[0].stored or all(map(_goes_on, group))):
            return group
        last = max(group, key=_size)
        for file in group:
            own = _beyond([file.total] if file.total else [], file.calls)
            if file is not last and own is not None:
                self._drop(file.entry(own), "a later total of the same session includes it", last)
        return [last]


def _by_id(call: Entry) -> Any:
    name = call["message_id"] if call["harness"] in _OWN_KEYS else call["key"] or call["message_id"]
    if name is None or len(name) < _MIN_ID:
        return None
    return name, call["prompt_tokens"]  # some gateways give one id to all


def _by_time(call: Entry) -> Any:
    """A time with fractions of a second, and counts: two calls do not agree in both by chance."""
    time = call["timestamp"]
    if not time or "." not in time:
        return None
    return (time, call["model"], *(call[name] for name in COUNTERS[:3]))


def _counts(call: Entry) -> Any:
    return (call["session"], *(call[name] for name in COUNTERS[:3]))


def _stored(call: Entry) -> bool:
    return bool(call["dialect"].endswith(_STORED))


def _is_main(call: Entry) -> bool:
    return call["parent"] is None and not call["side"]


def _mark(call: Entry) -> Any:
    return _by_id(call) or _counts(call)


def _begins(whole: _File, part: _File) -> bool:
    """Whether the calls of one are the first ones of the other, and more than chance."""
    sure = part.session or any(_by_id(call) for call in part.calls)
    if not sure and len({_counts(call) for call in part.calls}) < _MIN_CALLS:
        return False
    return [_mark(call) for call in part.calls] == [_mark(call) for call in whole.calls[: len(part.calls)]]


def _goes_on(file: _File) -> bool:
    """Whether the total of a stream has what earlier processes of its session used."""
    if file.dialect != "claude" or file.apart:
        return False
    numbers = (file.version or "").split(".")[:3]
    return all(map(str.isdecimal, numbers)) and tuple(map(int, numbers)) >= _CLAUDE_RESTORES


def _rank(call: Entry) -> tuple[bool, int, bool, int, float]:
    told = call["cached_tokens"] or 0, call["cost_usd"] or 0.0
    return not call["side"], call["completion_tokens"] or 0, _stored(call), *told


def _size(file: _File) -> tuple[int, float]:
    total = file.total or {}
    tokens = (total.get("prompt_tokens") or 0) + (total.get("completion_tokens") or 0)
    return tokens, total.get("cost_usd") or 0.0


def _bare(model: str | None) -> str | None:
    """A model's name without what Claude Code says of its context window."""
    return model and model.partition("[")[0]


def _beyond(totals: list[dict[str, Any]], calls: list[Entry]) -> Entry | None:
    """What totals have beyond calls, counter by counter; None if they have nothing."""
    rest: Entry = dict.fromkeys(COUNTERS)
    for name in COUNTERS:
        printed = [total[name] for total in totals if total[name] is not None]
        told = [call[name] for call in calls if call[name] is not None]
        more = add_up(printed) - add_up(told)
        if printed and (more > 1e-9 or not told):  # costs are sums of floats
            rest[name] = more
    return rest if any(rest.values()) else None
