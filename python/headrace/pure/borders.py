"""Where one run of a source ends and the next one begins.

What the records of each dialect show of it is in `RULES`. Besides, a record of another dialect is never of the run that
is read. Nothing is decided on a guess: a border that the wire does not show is none.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import event as ev
from .detect import WINDOW_RECORDS, Detection, Detector
from .dialect import DIALECTS, is_document, is_record
from .frame import DEFAULT_MAX_LINE_BYTES, naming
from .record import Intake, Record

__all__ = ["RULES", "Borders", "Rule"]

Place = tuple[int, int]
"""Line, from 1, and byte offset."""
Mark = tuple[str, str | None]
"""A dotted path, and the text (or integer) that stands there; `abc*` and `*abc` are its beginning and its end, None is
anything but null."""
_STRONG = 0.5  # confidence that makes a border of what no later record has spoken against


class Rule(NamedTuple):
    """What shows the sessions of a dialect.

    Attributes:
        ids: where the session's id stands, on records that only the session itself has: a path, or the type of the
            record (`-`: none) and a path.
        names: the same where other sessions' ids (sub-agents', other conversations') may stand too: they only tell the
            session that a herald has opened.
        starts: marks of records that only a session's beginning has.
        heralds: marks of the first record of a process, which does not say yet whether it resumes the session.
        opening: marks of other records at a beginning; a start right behind such records is no other one.
        ends: marks of the record after which the session says nothing more.
        first: the session's first record has its id; a run that has shown none is another one.
        holds: another dialect whose records it has too.
    """

    ids: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    starts: tuple[Mark, ...] = ()
    heralds: tuple[Mark, ...] = ()
    opening: tuple[Mark, ...] = ()
    ends: tuple[Mark, ...] = ()
    first: bool = False
    holds: str | None = None


# how servers of JSON-RPC answer `initialize`: each is a stranger to the other
_ACP_AGENT: tuple[Mark, ...] = (("result.agentCapabilities", None),)
_CODEX_SERVER: tuple[Mark, ...] = (("result.userAgent", None), ("result.serverInfo", None))
_KIMI: tuple[Mark, ...] = (("type", "system.version"), ("role", "_system_prompt"), ("id", "0"))

RULES = {
    "acp": Rule(names=("result.sessionId", "params.sessionId"), starts=_CODEX_SERVER, heralds=_ACP_AGENT),
    "claude": Rule(ids=("session_id", "response.response.session_id"), heralds=(("response.response.commands", None),)),
    "claude-transcript": Rule(ids=("sessionId",)),
    "codex": Rule(ids=("thread_id", "session_id"), starts=(("workdir", None),), first=True),
    "codex-appserver": Rule(
        names=(
            "result.thread.id",
            "result.conversationId",
            "params.threadId",
            "params.conversationId",
            "params.msg.session_id",
        ),
        starts=_ACP_AGENT,
        heralds=_CODEX_SERVER,
    ),
    "codex-rollout": Rule(ids=("session_meta payload.id", "- id"), opening=(("type", "session_meta"),)),
    "copilot": Rule(
        starts=(("type", "session.skills_loaded"),), opening=(("type", "session.*"),), ends=(("type", "result"),)
    ),
    "copilot-session": Rule(ids=("session.start data.sessionId",)),
    "droid": Rule(ids=("session_id",)),
    "droid-session": Rule(ids=("session_start id",)),
    "evosci": Rule(ends=(("type", "done"), ("type", "error"))),
    "gemini": Rule(ids=("session_id",)),
    "gemini-chat": Rule(ids=("sessionId",)),
    "kimi": Rule(starts=_KIMI, ends=(("type", "session.resume_hint"),), holds="kimi-context"),
    "kimi-context": Rule(starts=_KIMI, holds="kimi"),
    "kimi-wire": Rule(starts=(("protocol_version", None),)),
    "minicode": Rule(starts=(("eventId", "*:1:1"),), ends=(("type", "summary"),)),
    "opencode": Rule(ids=("sessionID",)),
    "opencode-export": Rule(ids=("info.id",), starts=(("table", "project"),)),
    "pi": Rule(ids=("session id",), first=True),
    "pi-session": Rule(ids=("session id",)),
    "qwen": Rule(ids=("session_id", "response.response.session_id")),
    "qwen-chat": Rule(ids=("sessionId",)),
}


class Borders:
    """Bytes in, the places at which another run begins out.

    Args:
        dialect: name of the dialect of all runs, or None to find them.
        max_line_bytes: longer lines are passed over.
        source: what messages call the source.
    """

    def __init__(
        self, *, dialect: str | None = None, max_line_bytes: int = DEFAULT_MAX_LINE_BYTES, source: str | None = None
    ) -> None:
        self._given = dialect
        self._source = source
        self._out: list[Place] = []
        self._intake = Intake(
            max_line_bytes=max_line_bytes,
            is_record=lambda value: is_record(value, self._dialect),
            is_document=lambda value: is_document(value, self._dialect),
        )
        self._herald: Place | None = None  # where a process begins, of which session is not known yet
        self._since = 0  # records since then
        self._line = 0  # of the last record
        self._start()

    def _start(self, found: Detection | None = None) -> None:
        """Another run is read."""
        self._dialect = self._given if found is None else found.dialect
        self._sure = self._dialect is not None
        self._detector = Detector()
        self._session: str | None = None
        self._first = b""  # the records that opened it
        self._fresh = True  # there was nothing but what opens a session
        self._ended = False
        self._start_mark: Mark | None = None  # by which it began
        self._stranger: Place | None = None  # the first of the last records that look like another dialect's
        self._strangers = Detector()
        self._named: str | None = None  # the session that they name

    def feed(self, chunk: bytes | bytearray | memoryview) -> list[Place]:
        """The borders that the lines in these bytes show."""
        self._out = []
        with naming(self._source):
            for record in self._intake.feed(chunk):
                self._take(record)
        return self._out

    def close(self) -> list[Place]:
        """The borders that only the end of the source shows."""
        self._out = []
        with naming(self._source):
            for record in self._intake.close():
                self._take(record)
        if self._herald is not None:
            self._cut(self._herald)
        self._cut_strangers()
        return self._out

    @property
    def certain(self) -> int:
        """The offset before which no more border can come to be."""
        places = [place[1] for place in (self._herald, self._stranger) if place is not None]
        return min([self._intake.report.bytes, *places])

    # ------------------------------------------------------------ one record

    def _take(self, record: Record) -> None:
        report = self._intake.report
        # the line before the record begins where the account stands, if the record is not from a damaged line
        place = (record.line, record.offset if record.salvaged else report.bytes)
        report.event(record)
        if record.line == self._line and not record.salvaged:
            return  # of one JSON array
        self._line = record.line
        if self._ended or self._opens(record.value):
            self._cut_strangers()
            self._cut(self._stranger or place)
        self._note(record, place, self._know(record, place))

    def _opens(self, value: dict[str, Any]) -> bool:
        """Whether another session of the dialect begins here."""
        rule = RULES.get(self._dialect or "", Rule())
        start = _any(rule.starts, value)
        if start is not None and (not self._fresh or start == self._start_mark):
            return True
        own = _id(rule.ids, value)
        named = own or _id(rule.names, value)
        if self._herald is not None:
            self._since += 1
            if named is not None and named == self._session:
                self._herald = None  # it was resumed
            elif named is not None or self._since > WINDOW_RECORDS:
                self._cut(self._herald, same=True)
            return False
        if self._session is None:
            return rule.first and own is not None and not self._fresh
        if own is None or own == self._session:
            return False
        # a fork's header names the session whose header and history it copies
        return not (self._fresh and own.encode() in self._first)

    def _know(self, record: Record, place: Place) -> bool:
        """Looks at what dialect the record is; whether it is one of the run's."""
        value, size = record.value, len(record.raw)
        if not self._sure:
            found = self._detector.look(value, record.line, size)
            best = found or self._detector.best()
            self._dialect = None if best is None else best.dialect
            self._sure = found is not None or self._detector.full
            return best is not None
        sign = None if self._dialect is None else DIALECTS[self._dialect].sign(value)
        if sign is not None and sign.weight > 0:
            self._stranger = None
            return True
        if self._given is not None:
            return False
        if self._stranger is None:
            self._strangers, self._named = Detector(), None
        found = self._strangers.look(value, record.line, size)
        best = found or self._strangers.best()
        if best is None or best.dialect in (self._dialect, RULES.get(self._dialect or "", Rule()).holds):
            self._stranger = None
            return best is not None
        if self._stranger is None:
            self._stranger = place
        if self._named is None:
            self._named = _id(RULES.get(best.dialect, Rule()).ids, value)
        if found is not None:
            first = self._stranger
            self._cut(first, found)
            self._fresh = first == place
            return True
        return False

    def _note(self, record: Record, place: Place, known: bool) -> None:
        """Keeps what the record says of its session."""
        rule = RULES.get(self._dialect or "", Rule())
        value = record.value
        if self._session is None:
            self._session = _id(rule.ids, value) or _id(rule.names, value)
        if self._fresh:
            self._first += record.raw
        herald = _any(rule.heralds, value)
        if herald is not None and (not self._fresh or herald == self._start_mark):
            if self._herald is not None:
                self._cut(self._herald, same=True)
            self._herald, self._since = place, 0
        start = herald or _any(rule.starts, value)
        if self._fresh and start is not None:
            self._start_mark = start
        elif known and _any(rule.opening, value) is None:
            self._fresh, self._first = False, b""
        self._ended = _any(rule.ends, value) is not None

    # ------------------------------------------------------------ borders

    def _cut(self, place: Place, found: Detection | None = None, *, same: bool = False) -> None:
        """A run begins at a place: of the dialect that was found there, or of the same one."""
        self._out.append(place)
        dialect, named = self._dialect, self._named
        self._herald = None
        self._start(found)
        if found is not None:
            self._session, self._fresh = named, False
        if same:
            self._dialect, self._sure, self._fresh = dialect, True, False

    def _cut_strangers(self) -> None:
        """The last records looked like another dialect's, and none came that speaks against it."""
        best = None if self._stranger is None else self._strangers.best()
        if best is not None and best.confidence >= _STRONG and self._stranger is not None:
            self._cut(self._stranger, best)


def _id(paths: tuple[str, ...], value: dict[str, Any]) -> str | None:
    for path in paths:
        kind, blank, path_of_kind = path.partition(" ")
        if blank and value.get("type") != (None if kind == "-" else kind):
            continue
        found = _at(value, path_of_kind if blank else path)
        if isinstance(found, str) and found:
            return ev.clean(found)
    return None


def _any(marks: tuple[Mark, ...], value: dict[str, Any]) -> Mark | None:
    """The mark that a record has."""
    return next((mark for mark in marks if _fits(_at(value, mark[0]), mark[1])), None)


def _fits(found: Any, text: str | None) -> bool:
    if text is None:
        return found is not None
    if type(found) is int:
        return str(found) == text
    if not isinstance(found, str):
        return False
    if text.endswith("*"):
        return found.startswith(text[:-1])
    return found.endswith(text[1:]) if text.startswith("*") else found == text


def _at(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value
