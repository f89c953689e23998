"""One run out of a live stream and the session files of the same run.

Both are reduced first, by whichever backend; this module only joins the dicts. The stream has the say on the verdict,
on the texts and on the order of things. What it lacks (None, an absent call, no thinking, no usage) is taken from the
file, and `Run.sources` names each fact that was: a dotted path, such as ``tool_calls[3].result``, with its file.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from .pure.run import agent_name, beginning
from .pure.run.usage import difference
from .result import copied

__all__ = ["Part", "cut_results", "fuse", "match_calls"]

Facts = dict[str, Any]

_FILLED = ("name", "input", "result", "raw_output", "exit_code", "started_at", "ended_at", "duration_ms")
_COUNTERS = ("count", "prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd")
_SHELL_FLAGS = ("-c", "-lc", "-ic", "-lic", "-Command", "/c")
_COUNTS_SUBAGENTS = ("qwen-chat",)  # the main thread's file has their model calls too
_FAILURES = ("failed", "limit", "timeout")
_EDITS = ("edit", "delete", "move")
_PATCH_MARKS = (("*** Add File: ", "add"), ("*** Update File: ", "update"), ("*** Delete File: ", "delete"))
_ALIKE = 0.2  # how much of the words of two inputs must agree for two calls with other ids to be one


class Part(NamedTuple):
    """What one session file tells of the run.

    Attributes:
        run: its reduced state, cut to the turns that the stream shows.
        name, dialect: for `Run.sources`.
        diffs: for each of its calls, the diffs that its events show.
        parent: id of the delegating call if the file is a sub-agent's, else None.
        whole: nothing was cut off, so that its totals are the run's.
        sure: which turns are the stream's is known; if not, only facts of calls that both show are taken.
    """

    run: Facts
    name: str
    dialect: str | None
    diffs: list[list[Facts]]
    parent: str | None = None
    whole: bool = True
    sure: bool = True

    @property
    def source(self) -> Facts:
        return {"source": "transcript", "path": self.name, "dialect": self.dialect}


class _Item:
    """A call or message of the fused run, with the facts of it that came from a file."""

    __slots__ = ("diffs", "facts", "marks", "new")

    def __init__(self, facts: Facts, diffs: list[Facts] | None = None, mark: Facts | None = None) -> None:
        self.facts = facts
        self.diffs = diffs or []
        self.marks: dict[str, Facts] = {} if mark is None else {"": mark}
        self.new = mark is not None

    def take(self, key: str, value: Any, source: Facts) -> None:
        self.facts[key] = value
        if not self.new:
            self.marks[f".{key}"] = source


def fuse(run: Facts, diffs: list[list[Facts]], parts: Iterable[Part]) -> tuple[Facts, dict[str, Facts]]:
    """The stream's run with the facts it lacks, and where those came from.

    Args:
        run: what the stream came to.
        diffs: for each of its calls, the diffs that its events show.
        parts: what the session files tell, the main thread's first.
    """
    fusion = _Fusion(run, diffs)
    for part in parts:
        fusion.take(part)
    return fusion.result()


class _Fusion:
    def __init__(self, run: Facts, diffs: list[list[Facts]]) -> None:
        self.run = copied(run)
        self.calls = [_Item(call, shown) for call, shown in zip(self.run["tool_calls"], diffs, strict=True)]
        self.messages = [_Item(message) for message in self.run["messages"]]
        self.sources: dict[str, Facts] = {}
        self.usages: list[Part] = []

    def take(self, part: Part) -> None:
        names = self._take_calls(part)
        if part.parent is None:
            self._take_scalars(part)
        if not part.sure:
            return
        self.usages.append(part)
        lost = []
        if part.parent is None:
            lost = self._take_main(part)
        for thread in _threads(part.run):
            self._take_thread(part, thread, part.parent if thread is None else names.get(thread, thread), lost)

    # ------------------------------------------------------------ one fact each

    def _set(self, key: str, value: Any, part: Part) -> None:
        self.run[key] = value
        self.sources[key] = part.source

    def _take_scalars(self, part: Part) -> None:
        for key in ("version", "session_id", "model", "cwd"):
            if self.run[key] is None and part.run[key] is not None:
                self._set(key, part.run[key], part)

    def _take_main(self, part: Part) -> list[str]:
        """Plan, thinking, counts, and how it ended if the stream broke off. Gives the texts that the stream lost."""
        run, told = self.run, part.run
        if run["plan"] is None and told["plan"] is not None:
            self._set("plan", told["plan"], part)
        if not run["thinking"] and told["thinking"]:
            self._set("thinking", list(told["thinking"]), part)
        for key in ("retries", "compactions"):
            if not run[key] and told[key]:
                self._set(key, told[key], part)
        if run["cost_usd"] is None and told["cost_usd"] is not None and part.whole:
            self._set("cost_usd", told["cost_usd"], part)
        open_end = run["verdict"]["outcome"] == "incomplete" and run["verdict"]["reason"] is None
        if open_end and told["verdict"]["outcome"] != "incomplete":
            self._set("verdict", copied(told["verdict"]), part)
        if run["verdict"]["outcome"] in _FAILURES and not run["errors"] and told["errors"]:
            self._set("errors", [dict(error) for error in told["errors"]], part)
        if open_end:
            self._end_text(part)
        shown = len(run["texts"])
        lost: list[str] = told["texts"][shown:] if open_end and told["texts"][:shown] == run["texts"] else []
        for at, text in enumerate(lost, shown):
            run["texts"].append(text)
            self.sources[f"texts[{at}]"] = part.source
        if lost:
            self._set("final_text", lost[-1], part)
        return lost

    def _end_text(self, part: Part) -> None:
        """The rest of a text in whose middle the stream broke off."""
        texts, told = self.run["texts"], part.run["texts"][: len(self.run["texts"])]
        if len(told) < len(texts) or not texts or told[:-1] != texts[:-1]:
            return
        begun, whole = texts[-1], told[-1]
        if whole == begun or not whole.startswith(begun):
            return
        texts[-1] = whole
        self.sources[f"texts[{len(texts) - 1}]"] = part.source
        if self.run["final_text"] == begun:
            self._set("final_text", whole, part)
        for item in reversed(self.messages):
            message = item.facts
            if (message["role"], message["text"], message["parent"]) == ("assistant", begun, None):
                item.take("text", whole, part.source)
                break

    # ------------------------------------------------------------ calls

    def _take_calls(self, part: Part) -> dict[str, str]:
        """Fills calls that both show, adds those that only the file has. Gives the stream's ids for the file's."""
        told = part.run["tool_calls"]
        pairs = dict(match_calls([item.facts for item in self.calls], told, part.parent, self._diffs(), part.diffs))
        found = {j: self.calls[i] for i, j in pairs.items()}
        names = {told[j]["id"]: item.facts["id"] for j, item in found.items()}
        for j, item in found.items():
            _fill(item, told[j], part.diffs[j], part.source)
        if not part.sure:
            return names
        # a call of the stream without its like in the file may be any of that kind: adding those would count it twice
        doubtful = {
            item.facts["kind"]
            for i, item in enumerate(self.calls)
            if i not in pairs and not item.new and item.facts["parent"] == part.parent
        }
        after = next((item for item in self.calls if item.facts["id"] == part.parent), None)
        if after is None:
            first = min((self.calls.index(item) for item in found.values()), default=len(self.calls))
            at = first
        else:
            at = self.calls.index(after) + 1
        for j, call in enumerate(told):
            if j in found:
                at = max(at, self.calls.index(found[j]) + 1)
            elif call["kind"] not in doubtful:
                facts = copied(call)
                thread = call["parent"]
                facts["parent"] = part.parent if thread is None else names.get(thread, thread)
                item = _Item(facts, mark=part.source)
                if part.diffs[j]:
                    _add_diffs(item, part.diffs[j], part.source)
                self.calls.insert(at, item)
                at += 1
        return names

    def _diffs(self) -> list[list[Facts]]:
        return [item.diffs for item in self.calls]

    # ------------------------------------------------------------ threads

    def _take_thread(self, part: Part, theirs: str | None, mine: str | None, lost: list[str]) -> None:
        """The messages of one thread, and what its sub-agent said if it is not the main one."""
        told = [message for message in part.run["messages"] if message["parent"] == theirs]
        shown = [item for item in self.messages if item.facts["parent"] == mine]
        no_users = not any(item.facts["role"] == "user" for item in shown)
        silent = mine is not None and not any(item.facts["role"] == "assistant" for item in shown)
        waiting = list(shown)
        at = self.messages.index(shown[-1]) + 1 if shown and silent else 0
        if mine is not None and not shown:
            at = len(self.messages)
        pending: list[_Item] = []  # not on the stream: they go before the next message that is
        for message in told:
            like = next((item for item in waiting if _same_message(item.facts, message)), None)
            if like is not None:
                del waiting[: waiting.index(like) + 1]
                for key in ("message_id", "model"):
                    if like.facts[key] is None and message[key] is not None:
                        like.take(key, message[key], part.source)
                at = self.messages.index(like)
                self.messages[at:at] = pending
                at += len(pending) + 1
                pending = []
            elif no_users if message["role"] == "user" else silent or message["text"] in lost:
                pending.append(_Item({**message, "parent": mine}, mark=part.source))
        at = max(at, len(self.messages)) if mine is None else at
        self.messages[at:at] = pending
        if mine is not None:
            self._take_subagent(part, theirs, mine)

    def _take_subagent(self, part: Part, theirs: str | None, mine: str) -> None:
        own = [part.run] if theirs is None else part.run["subagents"]
        said = next((agent for agent in own if theirs is None or agent["tool_call_id"] == theirs), None)
        agents = self.run["subagents"]
        at = next((at for at, agent in enumerate(agents) if agent["tool_call_id"] == mine), None)
        if said is None:
            return
        if at is None:
            delegating = next((item.facts for item in self.calls if item.facts["id"] == mine), None)
            at = len(agents)
            name = agent_name(delegating)
            agents.append({"tool_call_id": mine, "name": name, "texts": [], "thinking": [], "tool_calls": []})
            agents[at]["result"] = None
            self.sources[f"subagents[{at}]"] = part.source
        for key in ("texts", "thinking"):
            if not agents[at][key] and said[key]:
                agents[at][key] = list(said[key])
                if f"subagents[{at}]" not in self.sources:
                    self.sources[f"subagents[{at}].{key}"] = part.source

    # ------------------------------------------------------------ usage

    def _take_usage(self) -> None:
        """The files' model calls if they are the more complete: no counter less than the stream's, and one more."""
        mains = [part for part in self.usages if part.parent is None]
        if not mains:
            return
        usage = self.run["usage"]
        main = max(mains, key=lambda part: part.run["usage"]["calls"]["count"])  # of several, one has the usage
        inline = set(_threads(main.run))
        apart = [
            part
            for part in self.usages
            if part.parent is not None and part.parent not in inline and part.dialect not in _COUNTS_SUBAGENTS
        ]
        told = _sum(part.run["usage"]["calls"] for part in [main, *apart])
        mine = usage["calls"]
        if told["count"] and all((told[key] or 0) >= (mine[key] or 0) for key in _COUNTERS[:-1]) and told != mine:
            if told["cost_usd"] is None:
                told["cost_usd"] = mine["cost_usd"]
            if told != mine:
                usage["calls"] = told
                self.sources["usage.calls"] = main.source
        total = next((part for part in mains if part.whole and part.run["usage"]["run"] is not None), None)
        if usage["run"] is None and total is not None:
            usage["run"] = dict(total.run["usage"]["run"])
            self.sources["usage.run"] = total.source
        if "usage.calls" in self.sources or "usage.run" in self.sources:
            usage["difference"] = difference(usage["calls"], main.run["usage"]["calls"], usage["run"])
        if self.run["cost_usd"] is None and usage["calls"]["cost_usd"] is not None:
            self._set("cost_usd", usage["calls"]["cost_usd"], main)

    # ------------------------------------------------------------ the end

    def result(self) -> tuple[Facts, dict[str, Facts]]:
        self._take_usage()
        run = self.run
        run["tool_calls"] = [item.facts for item in self.calls]
        run["messages"] = [item.facts for item in self.messages]
        known = {agent["tool_call_id"] for agent in run["subagents"]}
        for item in self.calls:
            if item.new and item.facts["parent"] is not None and item.facts["parent"] not in known:
                known.add(item.facts["parent"])
                agent = next((other.facts for other in self.calls if other.facts["id"] == item.facts["parent"]), None)
                self.sources[f"subagents[{len(run['subagents'])}]"] = item.marks[""]
                run["subagents"].append(
                    {"tool_call_id": item.facts["parent"], "name": agent_name(agent), "texts": [], "thinking": []}
                )
        results = {call["id"]: call["result"] for call in run["tool_calls"]}
        for agent in run["subagents"]:
            owner = agent["tool_call_id"]
            agent["tool_calls"] = [call["id"] for call in run["tool_calls"] if call["parent"] == owner]
            agent["result"] = results.get(owner)
        for kind, items in (("tool_calls", self.calls), ("messages", self.messages)):
            for at, item in enumerate(items):
                for key, source in item.marks.items():
                    self.sources[f"{kind}[{at}]{key}"] = source
        return run, self.sources


def cut_results(run: Facts, most: int) -> None:
    """Cuts the results of which an engine with ``cut_later`` has told that more came than is to be kept."""
    agents = {agent["tool_call_id"]: agent for agent in run["subagents"]}
    for call in run["tool_calls"]:
        cut = call.get("cut", {})
        if "result" in cut:
            call["result"] = beginning(call["result"], most)
        if "raw_output" in cut:
            call["raw_output"] = None
        if call["id"] in agents and agents[call["id"]]["result"] is not None:
            agents[call["id"]]["result"] = beginning(agents[call["id"]]["result"], most)


# ------------------------------------------------------------ calls of one thread


def _fill(item: _Item, told: Facts, diffs: list[Facts], source: Facts) -> None:
    facts = item.facts
    for key in _FILLED:
        if facts[key] is None and told[key] is not None:
            value = told[key]
            item.take(key, copied(value) if isinstance(value, dict) else value, source)
            _take_cut(facts, told, key)
    if facts["ok"] is None and told["ok"] is not None:
        item.take("ok", told["ok"], source)
        item.take("status", told["status"], source)
    mine, theirs = facts["raw_output"], told["raw_output"]
    if mine is not theirs and isinstance(mine, dict) and isinstance(theirs, dict):
        _take_cut(facts, told, "raw_output")
        for key, value in theirs.items():
            if key not in mine:
                mine[key] = value
                if not item.new and ".raw_output" not in item.marks:
                    item.marks[f".raw_output.{key}"] = source
    if diffs and not item.diffs:
        _add_diffs(item, diffs, source)


def _take_cut(facts: Facts, told: Facts, key: str) -> None:
    """What was taken from a file is to be cut, if its engine said so."""
    cut = told.get("cut", {}).get(key)
    if cut is not None and key not in facts.get("cut", {}):
        facts["cut"] = {**facts.get("cut", {}), key: copied(cut)}


def _add_diffs(item: _Item, diffs: list[Facts], source: Facts) -> None:
    """What an edit changed is in the events only; a run has it under `raw_output` if the stream does not show it."""
    raw = item.facts["raw_output"]
    if raw is None:
        item.take("raw_output", {"diffs": diffs}, source)
    elif isinstance(raw, dict) and "diffs" not in raw:
        raw["diffs"] = diffs
        if not item.new and ".raw_output" not in item.marks:
            item.marks[".raw_output.diffs"] = source
    item.diffs = diffs


def match_calls(
    mine: list[Facts],
    theirs: list[Facts],
    parent: str | None,
    my_diffs: list[list[Facts]],
    their_diffs: list[list[Facts]],
) -> Iterator[tuple[int, int]]:
    """Which calls are the same, as pairs of positions: by id; if the two have no id in common, by what they did.

    Codex numbers the items of its stream and keeps the model's call ids in its session file: there kind, arguments and
    result tell, and then the place between neighbours that were found.
    """
    by_id: dict[Any, list[int]] = {}
    for j, call in enumerate(theirs):
        by_id.setdefault(call["id"], []).append(j)
    found: dict[int, int] = {}
    for i in range(len(mine) - 1, -1, -1):  # from the end: a file may hold earlier turns that use the same ids
        if by_id.get(mine[i]["id"]):
            found[i] = by_id[mine[i]["id"]].pop()
    if not found:
        ours = [i for i, call in enumerate(mine) if call["parent"] == parent]
        others = [j for j, call in enumerate(theirs) if call["parent"] is None]
        my_words = {i: _words(mine[i], my_diffs[i]) for i in ours}
        their_words = {j: _words(theirs[j], their_diffs[j]) for j in others}
        for i in ours:
            best, most = None, _ALIKE
            for j in others:
                if _same_kind(mine[i], theirs[j], their_words[j]) and j not in found.values():
                    alike = _alike(my_words[i], their_words[j], mine[i], theirs[j])
                    if alike > most:
                        best, most = j, alike
            if best is not None:
                found[i] = best
        found.update(_by_place(mine, theirs, ours, others, found))
    yield from sorted(found.items())


def _same_kind(mine: Facts, theirs: Facts, words: set[str]) -> bool:
    """Codex shows a patch that was made by a command as an edit."""
    patched = mine["kind"] in _EDITS and theirs["kind"] == "execute" and any(" " in word for word in words)
    return patched or bool(mine["kind"] == theirs["kind"])


def _by_place(
    mine: list[Facts], theirs: list[Facts], ours: list[int], others: list[int], found: dict[int, int]
) -> Iterator[tuple[int, int]]:
    """Calls that are the only ones of their kind between two neighbours that were found."""
    for i in ours:
        if i in found:
            continue
        low = max((found[k] for k in ours if k < i and k in found), default=-1)
        high = min((found[k] for k in ours if k > i and k in found), default=len(theirs))
        kind = mine[i]["kind"]
        there = [j for j in others if low < j < high and theirs[j]["kind"] == kind and j not in found.values()]
        rivals = [
            k
            for k in ours
            if k not in found and mine[k]["kind"] == kind and not any(min(i, k) < other < max(i, k) for other in found)
        ]
        if len(there) == 1 and rivals == [i]:
            yield i, there[0]


def _alike(a: set[str], b: set[str], mine: Facts, theirs: Facts) -> float:
    """0 to 2: the share of words that agree, and 1 more if the results do; a call's name counts as a word."""
    if theirs["name"] in a:
        b = b | {theirs["name"]}
    common = a & b
    if not common:
        return 0.0
    same = mine["result"] is not None and mine["result"] == theirs["result"]
    return len(common) / min(len(a), len(b)) + same


def _words(call: Facts, diffs: list[Facts]) -> set[str]:
    """What a call's arguments say, without what harnesses put around it: the shell, the folder."""
    edited = _edited(call, diffs)
    return edited if call["kind"] in _EDITS or edited else set(_leaves(call["input"]))


def _edited(call: Facts, diffs: list[Facts]) -> set[str]:
    """The names of the files that an edit or a patch in a command touches, alone and with what it does to them."""
    changes = list(_changes(call["input"]))
    changes += [("add" if diff["oldText"] is None else "update", str(diff["path"])) for diff in diffs]
    names = [(verb, path.replace("\\", "/").rpartition("/")[2]) for verb, path in changes]
    return {name for _, name in names} | {f"{verb} {name}" for verb, name in names if verb}


def _changes(arguments: Any) -> Iterator[tuple[str, str]]:
    """Verb and path of each change that arguments name."""
    for value in _containers(arguments):
        if isinstance(value, str):
            for line in value.splitlines() if "*** Begin Patch" in value else ():
                for mark, verb in _PATCH_MARKS:
                    if line.startswith(mark):
                        yield verb, line[len(mark) :].strip()
        elif isinstance(value, dict):
            for key in ("path", "file_path", "filePath"):
                if isinstance(value.get(key), str):
                    yield str(value.get("kind") or ""), value[key]
            changes = value.get("changes")
            for path, change in changes.items() if isinstance(changes, dict) else ():
                verb = change.get("type") or next(iter(change), "") if isinstance(change, dict) else ""
                yield str(verb), path


def _leaves(arguments: Any) -> Iterator[str]:
    """The texts in arguments, and the script of a command that is given to a shell."""
    for value in _containers(arguments):
        if isinstance(value, str):
            yield _script(value)
        elif isinstance(value, list) and len(value) == 3 and value[1] in _SHELL_FLAGS and isinstance(value[2], str):
            yield value[2]


def _containers(value: Any) -> Iterator[Any]:
    """A value and all that is in it. No recursion: the wire may nest 1,024 levels."""
    due = [value]
    while due:
        part = due.pop()
        yield part
        if isinstance(part, dict):
            due.extend(part.values())
        elif isinstance(part, list):
            due.extend(part)


def _script(command: str) -> str:
    """``/bin/bash -lc 'echo one'`` is ``echo one``."""
    if not any(f" {flag} " in command[:64] for flag in _SHELL_FLAGS):
        return command
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    return words[2] if len(words) == 3 and words[1] in _SHELL_FLAGS else command


# ------------------------------------------------------------ small helpers


def _threads(run: Facts) -> list[str | None]:
    """The threads of a run: the main one, and those of sub-agents whose messages or words it holds."""
    threads: dict[str | None, None] = {None: None}
    for message in run["messages"]:
        threads[message["parent"]] = None
    for agent in run["subagents"]:
        threads[agent["tool_call_id"]] = None
    return list(threads)


def _same_message(mine: Facts, theirs: Facts) -> bool:
    return bool(mine["role"] == theirs["role"] and mine["text"] == theirs["text"])


def _sum(usages: Iterable[Facts]) -> Facts:
    total: Facts = dict.fromkeys(_COUNTERS)
    total["count"] = 0
    for usage in usages:
        for key in _COUNTERS:
            if usage[key] is not None:
                total[key] = usage[key] + (total[key] or 0)
    return total
