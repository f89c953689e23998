"""What reading a stream comes to: ``Run``, ``Verdict`` and ``Report``, the same on both backends."""

from __future__ import annotations

from ._owner import Owner
from ._sum import add_up

TYPE_CHECKING = False  # as type checkers know it; typing takes longer to import than all of headrace
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ._backend import Engine
    from ._tuples import Detection, Difference, Estimate
    from .errclass import ErrorClass
    from .types import Outcome

    _Dict = dict[str, Any]
else:
    _Dict = dict

    def __getattr__(name):
        if name not in ("Detection", "Difference", "Estimate"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from . import _tuples

        return getattr(_tuples, name)


__all__ = ["Detection", "Difference", "Estimate", "Report", "Run", "RunUsage", "Usage", "Verdict"]

COUNTERS = ("prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd")


class Usage:
    """What many files say was spent, each model call once.

    Attributes:
        entries: what is counted, one dict each: ``kind`` (``call``: one model call; ``rest``: what a harness's own
            total has beyond the calls that any file tells), ``path``, ``line``, ``dialect``, ``harness``, ``session``,
            ``project`` (the working folder), ``day`` and ``timestamp`` as printed, ``model``, ``key``,
            ``message_id``, ``parent``, ``side``, and ``prompt_tokens``, ``completion_tokens``, ``cached_tokens``,
            ``cost_usd``, ``cache_write_tokens`` (None: not printed). With ``estimate=True`` also ``estimated_usd``
            (None: no price is known) and ``priced_as`` (provider and model whose prices were taken); totals have
            ``estimated_usd`` too.
        dropped: entries that are not counted, each with ``why`` and ``counted_in`` (the file that counts them).
        files: path and dialect of every file that was read; files of no dialect are passed over.
        estimate: the `Estimate` with ``estimate=True``, else None.
    """

    __slots__ = ("dropped", "entries", "estimate", "files")

    estimate: Estimate | None

    def __init__(
        self, entries: list[dict[str, Any]], dropped: list[dict[str, Any]], files: list[tuple[str, str]]
    ) -> None:
        self.entries = entries
        self.dropped = dropped
        self.files = files
        self.estimate = None

    @property
    def total(self) -> dict[str, Any]:
        """The counters added up, and ``calls``, how many model calls; a counter that nobody printed is None."""
        return _added(self.entries)

    def by(self, *keys: str) -> dict[Any, dict[str, Any]]:
        """The totals of groups: ``by("day")``, ``by("harness", "model")``, also of session, project, dialect, path.

        Returns:
            Group to totals, sorted; with several keys a group is a tuple. None stands for what was not printed.

        Raises:
            ValueError: entries have no such key.
        """
        known = ("day", "model", "harness", "project", "session", "dialect", "path", "kind")
        if not keys or not set(keys) <= set(known):
            raise ValueError(f"by() takes {', '.join(known)}, not {', '.join(keys) or 'nothing'}")
        groups: dict[Any, list[dict[str, Any]]] = {}
        for entry in self.entries:
            group = tuple(entry[key] for key in keys)
            groups.setdefault(group[0] if len(keys) == 1 else group, []).append(entry)
        return {group: _added(groups[group]) for group in sorted(groups, key=_order)}

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain dicts and lists."""
        files = [{"path": path, "dialect": dialect} for path, dialect in self.files]
        told = {
            "total": self.total,
            "entries": [dict(entry) for entry in self.entries],
            "dropped": [dict(entry) for entry in self.dropped],
            "files": files,
        }
        return told if self.estimate is None else {**told, "estimate": self.estimate.to_dict()}

    def __repr__(self) -> str:
        calls = self.total["calls"]
        return f"<Usage of {len(self.files)} files: {calls} calls, {len(self.dropped)} entries dropped>"


class RunUsage(_Dict):
    """The usage of a run, with its parts: ``calls``, ``run`` and ``difference``, as keys and as attributes.

    Attributes:
        by_model: calls and counters of each model, from `Run.ledger`; None stands for calls that name no model. They
            add up to ``calls``.
        by_agent: the same of each agent: the id of the delegating call, None for the main agent; helper calls
            (compaction, titles) are the main agent's. `Run.subagents` has their names.
        printed_by_model: the harness's own total of each model, where it prints them. They may count calls that are not
            on the wire, and are never added to those.
    """

    __slots__ = ("_ledger", "printed_by_model")

    printed_by_model: dict[str, dict[str, Any]]

    def __init__(
        self, facts: dict[str, Any], ledger: list[dict[str, Any]], models: list[dict[str, Any]] | None = None
    ) -> None:
        super().__init__(facts)
        self._ledger = ledger
        self.printed_by_model = {row["model"]: {name: row[name] for name in COUNTERS} for row in models or []}

    @property
    def calls(self) -> dict[str, Any]:
        """The sum over distinct model calls."""
        calls: dict[str, Any] = self["calls"]
        return calls

    @property
    def run(self) -> dict[str, Any] | None:
        """The harness's own total, None if it prints none."""
        run: dict[str, Any] | None = self["run"]
        return run

    @property
    def difference(self) -> str | None:
        """Why ``calls`` and ``run`` differ; None if they do not, or if one of them is not there."""
        difference: str | None = self["difference"]
        return difference

    @property
    def by_model(self) -> dict[str | None, dict[str, Any]]:
        """Calls and counters of each model; None: of calls that name no model."""
        return self._by("model")

    @property
    def by_agent(self) -> dict[str | None, dict[str, Any]]:
        """Calls and counters of each agent, by the id of the delegating call; None: of the main agent."""
        return self._by("parent")

    def _by(self, key: str) -> dict[str | None, dict[str, Any]]:
        groups: dict[str | None, list[dict[str, Any]]] = {}
        for row in self._ledger:
            groups.setdefault(row[key], []).append(row)
        return {group: {"calls": len(rows), **sums(rows)} for group, rows in groups.items()}


def sums(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The counters added up; one that nobody printed is None."""
    added: dict[str, Any] = {}
    rows = list(rows)
    for name in COUNTERS:
        known = [row[name] for row in rows if row[name] is not None]
        added[name] = add_up(known) if known else None
    return added


def _added(entries: list[dict[str, Any]]) -> dict[str, Any]:
    added = {"calls": sum(entry["kind"] == "call" for entry in entries), **sums(entries)}
    if any("estimated_usd" in entry for entry in entries):
        priced = [entry["estimated_usd"] for entry in entries if entry["estimated_usd"] is not None]
        added["estimated_usd"] = add_up(priced) if priced else None
    return added


def _order(group: Any) -> list[tuple[bool, str]]:
    return [(part is not None, part or "") for part in (group if isinstance(group, tuple) else (group,))]


class _Facts:
    """A dict that was built once, with attributes for its keys."""

    __slots__ = ("_facts",)

    def __init__(self, facts: dict[str, Any]) -> None:
        self._facts = facts

    def to_dict(self) -> dict[str, Any]:
        """A copy as plain dicts and lists, which JSON can hold."""
        return copied(self._facts)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self._facts[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no {name!r}; it has {', '.join(self._names())}") from None

    def _names(self) -> Iterable[str]:
        return self._facts

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._facts == self._facts

    __hash__ = None  # type: ignore[assignment]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._names()})


def copied(facts: dict[str, Any]) -> dict[str, Any]:
    """A copy of nested dicts and lists. No recursion: the wire may nest 1,024 levels."""
    copy = facts.copy()
    due: list[Any] = [copy]
    while due:
        container = due.pop()
        for key, inner in container.items() if isinstance(container, dict) else enumerate(container):
            if isinstance(inner, (dict, list)):
                container[key] = inner.copy()
                due.append(container[key])
    return copy


class Report(_Facts):
    """The account of every input byte.

    ``bytes == event_bytes + ignored_bytes + unknown_bytes + malformed_bytes + blank_bytes``, always.

    Attributes:
        bytes: all bytes that were read, after decompression; a line's LF belongs to the line.
        lines: physical lines.
        records: lines that are one valid JSON text of any kind.
        malformed: the other lines that are not blank, a cut last line included.
        salvaged: records got back from malformed lines.
        lossy: records in whose text something had to become U+FFFD.
        blank: blank lines.
        event_records: records that became events, or that events rest on.
        unknown: records of types that the dialect does not know, counted by type.
        ignored: records that say nothing for events, counted by rule.
        unknown_sizes, ignored_sizes: their bytes by type and by rule. The bytes of a record that was salvaged stay with
            its malformed line.
        truncated: the stream ends in the middle of a line.
        malformed_lines: line, offset, reason and the first 200 bytes of the first 1,000 malformed lines.
    """

    bytes: int
    lines: int
    records: int
    malformed: int
    salvaged: int
    lossy: int
    blank: int
    event_bytes: int
    ignored_bytes: int
    unknown_bytes: int
    malformed_bytes: int
    blank_bytes: int
    event_records: int
    unknown: dict[str, int]
    unknown_sizes: dict[str, int]
    ignored: dict[str, int]
    ignored_sizes: dict[str, int]
    truncated: bool
    malformed_lines: list[dict[str, Any]]

    def explain(self) -> str:
        r"""The account in words: how the bytes split, by which rules and types, and the first malformed lines.

        Several lines of text, for people and safe for a terminal: what the wire said is escaped.

        >>> from headrace import reduce
        >>> lines = b'{"type": "text", "content": "Hi"}', b'{"type": "mood"}', b"", b"\x1b[2Joops"
        >>> print(reduce(b"\n".join(lines)).report.explain())
        60 bytes in 4 lines:
          events     34   56.7%  1 record
          ignored     0    0.0%  0 records
          unknown    17   28.3%  1 record, by type:
                     17   28.3%  mood: 1
          malformed   8   13.3%  1 line
                     line 4, byte 52: not JSON: \x1b[2Joops
          blank       1    1.7%  1 line
        The stream ends in the middle of a line.
        The sums add up: no byte is missing.
        """
        from ._explain import told

        return told(self)

    def __repr__(self) -> str:
        return (
            f"<Report {self.bytes} bytes, {self.records} records, {self.malformed} malformed, {self.salvaged} salvaged>"
        )


class Verdict(_Facts):
    """How a run ended.

    Attributes:
        outcome: completed, failed, cancelled, timeout, denied, limit or incomplete.
        reason: the harness's own word for it (stop reason, error class, signal), or None.
        evidence: the records that decided: line, byte offset (None if nothing on the stream did) and why.
        final: the stream has said its last word: a terminal record, and no turn was opened since. Nothing has to be
            waited for, not even the end of the process. Not in `to_dict`.
        resumable: the harness left a session id to resume; whether it still keeps that session only it can tell. Not in
            `to_dict`.
    """

    __slots__ = ("final", "resumable")

    final: bool
    resumable: bool

    def __init__(self, facts: dict[str, Any], final: bool = False, resumable: bool = False) -> None:
        super().__init__(facts)
        self.final = final
        self.resumable = resumable

    outcome: Outcome
    reason: str | None
    evidence: list[dict[str, Any]]

    def __repr__(self) -> str:
        reason = f" ({self.reason})" if self.reason else ""
        return f"<Verdict {self.outcome}{reason}>"


RUN_KEYS = (
    *("dialect", "version", "session_id", "model", "cwd", "verdict", "final_text", "texts", "thinking", "messages"),
    *("tool_calls", "plan", "subagents", "usage", "cost_usd", "errors", "retries", "compactions", "report"),
)


class Run(_Facts):
    """The reduced state of one session.

    A run whose stream was read to its end (by `reduce`, `runs`) makes Python objects of its parts when they are asked
    for, and not before.

    Attributes:
        dialect: name of the dialect, None if it could not be told.
        version, session_id, model, cwd: what the harness printed of itself, None if it did not.
        verdict: a `Verdict`.
        final_text: the last of ``texts``, whether or not the run completed; None if there is none.
        texts, thinking: the main thread's blocks of text and of thought, in order.
        messages: what persons and agents said, sub-agents included: role, text, images, message_id, model,
            parent, line.
        tool_calls: id, name, kind, title, input, status, ok (None: no result was seen), result, raw_output, parent (id
            of the delegating call), exit_code, started_at, ended_at (ISO 8601), duration_ms; and cut where
            ``max_result_bytes`` was given and more came than is kept: how many bytes, and the record that has them.
        plan: the main agent's last plan, None if there was none.
        subagents: tool_call_id, name, texts, thinking, tool_calls, result of each sub-agent.
        usage: a `RunUsage`: ``calls`` (the sum over distinct model calls), ``run`` (the harness's own total, None if it
            prints none) and ``difference`` (why the two differ). Counters that were not printed are None, never 0.
            ``by_model`` and ``by_agent`` are its parts.
        cost_usd: what the harness says the run cost, in US dollars; None if it says nothing.
        errors: message, fatal, line of what failed; retries and warnings are not errors.
        retries, compactions: how many.
        report: a `Report`.
        sources: where facts come from that the stream itself does not show: a dotted path, such as
            ``tool_calls[3].result``, to ``{"source": "transcript", "path", "dialect"}``. Not in `to_dict`.
        ledger: each model call that the source shows, once: key (by which repeats are known), message_id, model,
            timestamp, session_id, parent (the sub-agent's thread), side (compaction, titles: not the main loop's), line
            and offset of the record that told its counts last, prompt_tokens, completion_tokens, cached_tokens,
            cost_usd, cache_write_tokens. Their sum is ``usage["calls"]``. Of the stream alone where a transcript was
            given. Not in `to_dict`.
        start: line (from 1) and byte offset at which the run begins in its source; other than ``(1, 0)`` for the later
            runs of `runs`, whose own lines and offsets count from there. Not in `to_dict`.
    """

    __slots__ = ("_final", "_ledger", "_models", "_told", "sources", "start")

    sources: dict[str, dict[str, Any]]
    start: tuple[int, int]

    def __init__(
        self,
        facts: dict[str, Any],
        sources: dict[str, dict[str, Any]] | None = None,
        *,
        final: bool = False,
        ledger: list[dict[str, Any]] | None = None,
        models: list[dict[str, Any]] | None = None,
        start: tuple[int, int] = (1, 0),
        told: tuple[Any, int | None, bytes | None] | None = None,
    ) -> None:
        super().__init__(facts)
        self.start = start
        self.sources = sources or {}
        self._ledger = ledger
        self._models = models
        self._final = final
        self._told = told  # the engine that knows the parts which are not in facts, with exit code and stderr

    def to_dict(self) -> dict[str, Any]:
        """A copy as plain dicts and lists, which JSON can hold."""
        if self._told is None:
            return super().to_dict()
        engine, *known = self._told
        return copied({**engine.run(*known), **self._facts})  # parts that were asked for may have been changed since

    def __getattr__(self, name: str) -> Any:
        if name in RUN_KEYS and name not in self._facts and self._told is not None:
            engine, *known = self._told
            self._facts[name] = engine.run_part(name, *known)
        return super().__getattr__(name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self.to_dict() == other.to_dict()

    __hash__ = None

    def _names(self) -> Iterable[str]:
        return RUN_KEYS

    def __reduce__(self) -> tuple[Any, ...]:
        return _whole_run, (self.to_dict(), self.sources, self._final, self.ledger, self._printed, self.start)

    dialect: str | None
    version: str | None
    session_id: str | None
    model: str | None
    cwd: str | None
    final_text: str | None
    texts: list[str]
    thinking: list[str]
    messages: list[dict[str, Any]]
    tool_calls: list[dict[str, Any]]
    plan: list[dict[str, Any]] | None
    subagents: list[dict[str, Any]]
    cost_usd: float | None
    errors: list[dict[str, Any]]
    retries: int
    compactions: int

    @property
    def ledger(self) -> list[dict[str, Any]]:
        """Each model call that the source shows, once."""
        if self._ledger is None:
            self._ledger = [] if self._told is None else self._told[0].ledger()
        return self._ledger

    @property
    def _printed(self) -> list[dict[str, Any]]:
        if self._models is None:
            self._models = [] if self._told is None else self._told[0].printed_models()
        return self._models

    @property
    def verdict(self) -> Verdict:
        """How the run ended, and the records that say so."""
        return Verdict(self.__getattr__("verdict"), self._final, self.session_id is not None)

    @property
    def usage(self) -> RunUsage:
        """What was spent: by the calls, by the harness's own total, and why the two differ."""
        return RunUsage(self.__getattr__("usage"), self.ledger, self._printed)

    def estimate(self) -> Estimate:
        """What the tokens of the run cost at list prices, beside ``cost_usd``, which is what the harness says.

        Model calls are priced one by one, each at the prices of its time; what the harness's own total has beyond them
        is priced too, where its model is known. Needs the extra ``prices``. No network is used.

        Raises:
            ImportError: the price library is not installed; the message says how to install it.
        """
        from ._usage import estimate_of

        return estimate_of(self.to_dict(), self.ledger, self._printed)

    @property
    def error_classes(self) -> list[ErrorClass]:
        """The class of each of ``errors``, by its code or its words; see `error_class` for what they mean."""
        from .errclass import error_class

        return [error_class(error["message"]) for error in self.errors]

    @property
    def error_class(self) -> ErrorClass | None:
        """The class of what the run ended with: of its last fatal error, else of the harness's word for the end.
        None if the run was completed, or just stopped."""
        verdict, errors = self.__getattr__("verdict"), self.errors
        fatal = [name for name, error in zip(self.error_classes, errors, strict=True) if error["fatal"]]
        if verdict["outcome"] not in ("failed", "limit", "timeout") and not (fatal and verdict["outcome"] == "denied"):
            return None
        told = (fatal or self.error_classes or ["unknown"])[-1]
        if told == "unknown" and verdict["reason"]:
            from .errclass import error_class

            told = error_class(verdict["reason"])
        return told

    @property
    def report(self) -> Report:
        """What became of every byte of the input."""
        return Report(self.__getattr__("report"))

    def __repr__(self) -> str:
        calls = len(self.tool_calls)
        return f"<Run {self.dialect} {self.verdict.outcome}, {len(self.texts)} texts, {calls} tool calls>"


def _whole_run(
    facts: dict[str, Any],
    sources: dict[str, dict[str, Any]],
    final: bool,
    ledger: list[dict[str, Any]],
    models: list[dict[str, Any]],
    start: tuple[int, int],
) -> Run:
    """What a copy or pickle of a run becomes."""
    return Run(facts, sources, final=final, ledger=ledger, models=models, start=start)


def run_of(engine: Any, facts: dict[str, Any] | None = None, **known: Any) -> Run:
    """The run of an engine so far, with what is not in its dict: whether it is over, and its ledger.

    ``facts`` is that dict where it was changed or made with what the caller knows; ``known`` goes on to `Run`.
    """
    facts = engine.run() if facts is None else facts
    return Run(facts, final=engine.ending == "end", ledger=engine.ledger(), models=engine.printed_models(), **known)


def last_run_of(engine: Any, code: int | None = None, stderr: bytes | None = None, **known: Any) -> Run:
    """The run of an engine that gets no more bytes."""
    return Run({}, final=engine.ending == "end", told=(engine, code, stderr), **known)


class SoFar(Owner):
    """What every reader that has an engine tells of its stream at any moment."""

    _engine: Engine

    @property
    def run(self) -> Run:
        """The run so far."""
        return run_of(self._engine)

    @property
    def report(self) -> Report:
        """The account of the bytes so far."""
        return Report(self._engine.report())

    @property
    def dialect(self) -> str | None:
        """Name of the dialect; None while it is not decided."""
        return None if self._engine.detection is None else self._engine.detection[0]
