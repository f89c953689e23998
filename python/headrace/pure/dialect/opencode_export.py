"""OpenCode's stored sessions (recorded: 1.1.34, 1.2.27, 1.18.33), in three forms.

The document of ``opencode export``: ``info`` and ``messages``, each with its parts. Dumps of the database (1.2 and
later), ``{"table", "row"}`` a line, and of the storage folder (1.1 and before), ``{"file", "json"}`` a line: there the
messages come first and the parts of all sessions after them, so what ends a message (its error, a compaction) is told
when the parts of a later one begin.

2.0 (by its source, and samples of others) exports the same document with messages that are whole: one for each step of
the model, each prompt, each compaction, each command that a person ran in between, and each time that the session came
to rest. Messages that go on are left out.

More than on the stream: prompts, the text of a cut step, calls without an end, sub-agents' sessions (in dumps; the
`task` call names its session). A message that failed has ``error``. The totals of a session hold no sub-agent.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from .. import event as ev
from .. import json
from ..emit import Emitter, count
from ..event import Stamp
from ..record import Record
from ..run import Ending, Exit, Reducer
from ..wire import as_text
from . import SURE, UNKNOWN, Outcome, Sign, opencode

NAME = "opencode-export"

#: tables of the database, and folders of the storage
PLACES = frozenset({"event", "message", "part", "project", "session", "session_diff", "todo"})
IGNORED_PLACES = {
    "event": "event log",
    "project": "project",
    "session_diff": "changes of the session",
    "todo": "todo list",
}
#: how a session of 2.0 came to rest
IDLE = {"failed": "failed", "interrupted": "cancelled", "succeeded": "completed"}
#: parts that say nothing for events
IGNORED_PARTS = {
    "agent": "agent",
    "patch": "changed files",
    "snapshot": "snapshot",
    "subtask": "sub-task",
}


def sign(record: dict[str, Any]) -> Sign | None:
    info = record.get("info")
    if isinstance(info, dict) and isinstance(record.get("messages"), list) and "projectID" in info:
        version = info.get("version")
        return Sign(
            SURE, "a session with info and messages", version if isinstance(version, str) else None, document=True
        )
    table, row = record.get("table"), record.get("row")
    if isinstance(table, str) and table in PLACES and isinstance(row, dict):
        version = row.get("version") if table == "session" else None
        return Sign(SURE, f"a row of {table}", version if isinstance(version, str) else None)
    if _folder(record.get("file")) in PLACES and "json" in record:
        return Sign(SURE, f"a stored file of {_folder(record['file'])}")
    return None


def _folder(path: Any) -> str | None:
    return path.partition("/")[0] if isinstance(path, str) and path.endswith(".json") else None


class Message:
    """What a message says of itself."""

    __slots__ = ("created", "error", "id", "model", "role", "session", "side", "summary")

    def __init__(self, message_id: str, session: str | None, info: dict[str, Any]) -> None:
        time = info.get("time")
        self.id = message_id
        self.session = session
        model = info.get("model")
        self.role = info.get("role")
        self.model = _clean(info.get("modelID")) or (_clean(model.get("id")) if isinstance(model, dict) else None)
        self.created = ev.iso_millis(time.get("created")) if isinstance(time, dict) else None
        self.error = ev.clean_value(info.get("error"))
        self.side = info.get("summary") is True or info.get("mode") == "compaction"
        self.summary: str | None = None  # the last text of a compaction


class Mapper:
    def __init__(self, out: Emitter) -> None:
        self.out = out
        self.seats: dict[str, opencode.Seat] = {}  # by session
        self.waiting: dict[str, deque[Message]] = {}  # dumps: those that have not ended, by session
        self.children: dict[str, str] = {}  # session of a sub-agent: the call that delegated
        self.sessions: dict[str, str | None] = {}  # those that were told: their parent session
        self.main: str | None = None  # the session that the run is of

    def map(self, record: Record) -> Outcome:
        value = record.value
        if isinstance(value.get("messages"), list) and isinstance(value.get("info"), dict):
            return self._document(value["info"], value["messages"])
        if isinstance(value.get("row"), dict):
            return self._row(value.get("table"), value["row"])
        stored = value.get("json")
        folder = _folder(value.get("file"))
        if folder in IGNORED_PLACES:
            return IGNORED_PLACES[folder]
        if not isinstance(stored, dict):
            return UNKNOWN
        if folder == "session":
            self._session(stored, _clean(stored.get("parentID")))
            return None
        session = _clean(stored.get("sessionID"))
        if folder == "message":
            return self._message(_clean(stored.get("id")), session, stored)
        if folder == "part":
            return self._later_part(_clean(stored.get("messageID")), session, as_text(stored.get("id")), stored)
        return UNKNOWN

    def close(self) -> None:
        for waiting in self.waiting.values():
            for message in waiting:
                self._end(message)

    def judge(self, run: Reducer, exit: Exit) -> Ending | None:
        seat = self.seats.get(self.main or "")
        return None if seat is None else opencode.judge(seat)

    # ------------------------------------------------------------ the three forms

    def _document(self, info: dict[str, Any], messages: list[Any]) -> Outcome:
        self._session(info, None)
        for item in messages:
            if not isinstance(item, dict):
                continue
            told = item.get("info")
            if not isinstance(told, dict):
                self._whole(Message(_clean(item.get("id")) or "", _clean(info.get("id")), item), item)
                continue
            message = Message(_clean(told.get("id")) or "", _clean(info.get("id")), told)
            for part in item["parts"] if isinstance(item.get("parts"), list) else ():
                if isinstance(part, dict):
                    self._part(message, as_text(part.get("id")), part)
            self._end(message)
        return None

    def _row(self, table: Any, row: dict[str, Any]) -> Outcome:
        if table == "session":
            self._session(
                {
                    "id": row.get("id"),
                    "version": row.get("version"),
                    "directory": row.get("directory"),
                    "title": row.get("title"),
                    "model": _decoded(row.get("model")),
                    "cost": row.get("cost"),
                    "tokens": {
                        "input": row.get("tokens_input"),
                        "output": row.get("tokens_output"),
                        "reasoning": row.get("tokens_reasoning"),
                        "cache": {"read": row.get("tokens_cache_read"), "write": row.get("tokens_cache_write")},
                    },
                },
                _clean(row.get("parent_id")),
            )
            return None
        data, session = _decoded(row.get("data")), _clean(row.get("session_id"))
        if table == "message" and isinstance(data, dict):
            return self._message(_clean(row.get("id")), session, data)
        if table == "part" and isinstance(data, dict):
            return self._later_part(_clean(row.get("message_id")), session, as_text(row.get("id")), data)
        return IGNORED_PLACES.get(table, UNKNOWN) if isinstance(table, str) else UNKNOWN

    def _message(self, message_id: str | None, session: str | None, info: dict[str, Any]) -> Outcome:
        if message_id is None:
            return UNKNOWN
        self.waiting.setdefault(session or "", deque()).append(Message(message_id, session, info))
        return "message, told with its parts"

    def _later_part(
        self, message_id: str | None, session: str | None, part_id: str | None, part: dict[str, Any]
    ) -> Outcome:
        """A part in a dump: the messages before its own are over."""
        if message_id is None:
            return UNKNOWN
        waiting = self.waiting.setdefault(session or "", deque())
        while waiting and waiting[0].id < message_id:  # ids ascend in time
            self._end(waiting.popleft())
        if not waiting or waiting[0].id != message_id:
            waiting.appendleft(Message(message_id, session, {"role": "assistant"}))
        return self._part(waiting[0], part_id, part)

    # ------------------------------------------------------------ sessions, messages, parts

    def _session(self, info: dict[str, Any], parent: str | None) -> None:
        """A session; one whose parent is in the same dump is a sub-agent's."""
        session_id = _clean(info.get("id"))
        if session_id is not None:
            self.sessions[session_id] = parent
        if parent is not None and (parent in self.sessions or session_id in self.children):
            return
        model, place = info.get("model"), info.get("location")
        stamp = Stamp(session_id=session_id)
        self.out.session_state(
            stamp,
            sessionId=session_id,
            version=as_text(info.get("version")),
            model=as_text(model.get("id")) if isinstance(model, dict) else None,
            cwd=as_text(info.get("directory"))
            or (as_text(place.get("directory")) if isinstance(place, dict) else None),
            title=as_text(info.get("title")),
        )
        if isinstance(info.get("tokens"), dict):
            usage = opencode.usage_of(info["tokens"], info.get("cost"), reasoning_apart=True)
            if usage["promptTokens"] is not None:
                self.out.usage("run", usage, stamp, key="run")

    def _thread(self, session: str | None) -> str | None:
        """The call that delegated to the session; None for the main one."""
        if session is None or session == self.main:
            return None
        if session in self.children:
            return self.children[session]
        parent = self.sessions.get(session)
        if parent is not None and parent in self.sessions:
            return session  # a sub-agent whose call is not there
        if self.main is None:
            self.main = session
        return None

    def _seat(self, message: Message) -> opencode.Seat:
        return self.seats.setdefault(message.session or "", opencode.Seat())

    def _stamp(self, message: Message) -> Stamp:
        return Stamp(
            session_id=message.session,
            timestamp=message.created,
            model=message.model,
            parent=self._thread(message.session),
        )

    def _part(self, message: Message, part_id: str | None, part: dict[str, Any]) -> Outcome:
        kind, seat = part.get("type"), self._seat(message)
        stamp = self._stamp(message)
        stamp.message_id = message.id
        stamp.timestamp = _when(part) or stamp.timestamp
        if message.role == "user" and kind in ("text", "file"):
            return self._prompt(kind, part, seat, stamp)
        if kind == "compaction":
            trigger = "overflow" if part.get("overflow") is True else "auto" if part.get("auto") is True else "manual"
            self.out.state("compaction", stamp, phase="start", trigger=trigger)
            return None
        if kind == "retry":
            error = opencode.error_message(part.get("error"))
            self.out.state("retry", stamp, phase="start", attempt=count(part.get("attempt")), message=error)
            return None
        if kind == "file":
            image = opencode.image(part)
            if image is None:
                return "file"
            self.out.image(ev.MESSAGE, image, stamp)
            return None
        if kind == "tool":
            self._delegated(part)
        if kind == "text" and message.side:
            message.summary = _clean(part.get("text"))
        outcome = opencode.part(self.out, seat, kind, part_id, part, stamp, side=message.side)
        return IGNORED_PARTS.get(kind, outcome) if outcome is UNKNOWN and isinstance(kind, str) else outcome

    def _prompted(self, seat: opencode.Seat, stamp: Stamp) -> None:
        if stamp.parent is None and not seat.turning:
            seat.turning = True
            self.out.state("turn", stamp, phase="start")

    def _prompt(self, kind: Any, part: dict[str, Any], seat: opencode.Seat, stamp: Stamp) -> Outcome:
        self._prompted(seat, stamp)
        if kind == "text":
            return opencode.user_text(self.out, part, stamp)
        image = opencode.image(part)
        if image is None:
            return "file"
        self.out.image(ev.USER, image, stamp)
        return None

    def _delegated(self, part: dict[str, Any]) -> None:
        """A `task` call names the session of its sub-agent; in 2.0 one of `subagent`, which has no other id."""
        state = part.get("state")
        metadata = state.get("metadata") if isinstance(state, dict) else None
        metadata = metadata if isinstance(metadata, dict) else {}
        child = _clean(metadata.get("sessionId")) or _clean(metadata.get("sessionID"))
        call_id = _clean(part.get("callID")) or _clean(part.get("id"))
        if child is not None and call_id is not None:
            self.children[child] = call_id

    def _end(self, message: Message) -> None:
        """All parts of the message were there."""
        stamp = self._stamp(message)
        if message.side:
            ok = not isinstance(message.error, dict)
            self.out.state("compaction", stamp, phase="end", success=ok, summary=message.summary)
        if isinstance(message.error, dict) and opencode.error(self.out, message.error, stamp) is None:
            seat = self._seat(message)
            if stamp.parent is None:
                seat.turning = False
                told, reason = seat.outcome_of(message.error), opencode.error_name(message.error)
                self.out.state("turn", stamp, phase="end", outcome=told, reason=reason)

    # ------------------------------------------------------------ messages of 2.0

    def _whole(self, message: Message, told: dict[str, Any]) -> None:
        kind, seat, stamp = told.get("type"), self._seat(message), self._stamp(message)
        stamp.message_id = message.id
        if kind == "user":
            self._prompted(seat, stamp)
            opencode.user_text(self.out, told, stamp)
            for file in _dicts(told.get("files")):
                image = attached(file)
                if image is not None:
                    self.out.image(ev.USER, image, stamp)
        elif kind in ("synthetic", "skill"):  # what the harness says to the model in a user's place
            opencode.user_text(self.out, {"text": told.get("text"), "synthetic": True}, stamp)
        elif kind == "assistant":
            self._step(message, told, seat, stamp)
        elif kind == "compaction":
            self._compaction(message, told, stamp)
        elif kind == "shell":
            self._command(told, stamp)
        elif kind == "idle" and stamp.parent is None:
            self._idle(as_text(told.get("outcome")), seat, stamp)

    def _step(self, message: Message, told: dict[str, Any], seat: opencode.Seat, stamp: Stamp) -> None:
        opencode.step_start(self.out, seat, stamp)
        retry = told.get("retry")
        if isinstance(retry, dict):
            reason = opencode.error_message(retry.get("error"))
            self.out.state("retry", stamp, phase="start", attempt=count(retry.get("attempt")), message=reason)
        for item in _dicts(told.get("content")):
            if item.get("type") == "tool":
                self._delegated(item)
                self._call(item, seat, stamp)
            else:
                opencode.part(self.out, seat, item.get("type"), None, item, stamp)
        self._spent(message, told, stamp, side=False)
        finish = as_text(told.get("finish"))
        if not isinstance(message.error, dict) and finish is not None:
            opencode.step_end(self.out, seat, finish, stamp)
        self._end(message)

    def _call(self, item: dict[str, Any], seat: opencode.Seat, stamp: Stamp) -> None:
        call_id, state, time = as_text(item.get("id")), item.get("state"), item.get("time")
        if call_id is None or not isinstance(state, dict):
            return
        seat.called = True
        time = time if isinstance(time, dict) else {}
        started = time.get("created") if time.get("ran") is None else time["ran"]
        input = state.get("input") if isinstance(state.get("input"), dict) else None  # text while it streams
        name, status = as_text(item.get("name")), state.get("status")
        self.out.call(
            call_id,
            name,
            input,
            stamp,
            status="in_progress" if status == "running" else "pending",
            started_at=ev.iso_millis(started),
        )
        if status not in ("completed", "error"):
            return
        content = []
        for block in _dicts(state.get("content")):
            image, text = opencode.image(block, "uri"), as_text(block.get("text"))
            if image is not None:
                content.append(ev.wrapped(image))
            elif text:
                content += ev.text_content(text)
        if status == "error":
            reason = opencode.error_message(state.get("error"))
            seat.declined = seat.declined or (reason is not None and reason.startswith(opencode.DECLINES))
            if reason and not content:
                content = ev.text_content(reason)
        metadata = state.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        opencode.settle(
            self.out,
            stamp,
            call_id,
            ok=status == "completed",
            title=None,
            content=content,
            facts=metadata,
            started=started,
            ended=time.get("completed"),
            raw_output=metadata or ...,
            todos=input.get("todos") if name == "todowrite" and input is not None else None,
        )

    def _compaction(self, message: Message, told: dict[str, Any], stamp: Stamp) -> None:
        self.out.state("compaction", stamp, phase="start", trigger=as_text(told.get("reason")))
        self._spent(message, told, stamp, side=True)
        failed = isinstance(message.error, dict)
        self.out.state("compaction", stamp, phase="end", success=not failed, summary=as_text(told.get("summary")))
        if failed:
            opencode.error(self.out, message.error, stamp)

    def _command(self, told: dict[str, Any], stamp: Stamp) -> None:
        """A command that a person ran in the session; earlier versions store it as a call, too."""
        call_id, output, time = as_text(told.get("shellID")), told.get("output"), told.get("time")
        if call_id is None:
            return
        time = time if isinstance(time, dict) else {}
        started = ev.iso_millis(time.get("created"))
        self.out.call(call_id, "shell", {"command": told.get("command")}, stamp, started_at=started)
        text = as_text(output.get("output")) if isinstance(output, dict) else None
        opencode.settle(
            self.out,
            stamp,
            call_id,
            ok=told.get("status") == "exited",
            title=None,
            content=ev.text_content(text) if text else [],
            facts=told,
            started=time.get("created"),
            ended=time.get("completed"),
            raw_output=...,
            todos=None,
        )

    def _spent(self, message: Message, told: dict[str, Any], stamp: Stamp, *, side: bool) -> None:
        if isinstance(told.get("tokens"), dict):
            usage = opencode.usage_of(told["tokens"], told.get("cost"), reasoning_apart=True)
            self.out.usage("call", usage, stamp, key=f"message:{message.id}", side=side)

    def _idle(self, told: str | None, seat: opencode.Seat, stamp: Stamp) -> None:
        """The session came to rest. What the last step said of the end is more exact, unless it ended well."""
        if told not in IDLE or (not seat.turning and (told == "succeeded" or not seat.well)):
            return
        outcome = "denied" if seat.declined else IDLE[told]
        seat.turning = False
        self.out.state("turn", stamp, phase="end", outcome=outcome, reason=told)


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def attached(file: dict[str, Any]) -> dict[str, Any] | None:
    """An image block from a file of a prompt, whose bytes stand beside it; None if it is no image."""
    mime, data = as_text(file.get("mime")), as_text(file.get("data"))
    if mime is None or data is None or not mime.startswith("image/"):
        return opencode.image(file, "uri")
    return ev.image_block(data, mime)


def _decoded(value: Any) -> Any:
    """A column that holds JSON text; None if it does not."""
    if not isinstance(value, str):
        return None
    try:
        return json.loads(ev.clean(value).encode())
    except json.JsonError:
        return None


def _when(part: dict[str, Any]) -> str | None:
    time = part.get("time")
    if not isinstance(time, dict):
        return None
    return ev.iso_millis(time.get("end")) or ev.iso_millis(time.get("start")) or ev.iso_millis(time.get("created"))


def _clean(value: Any) -> str | None:
    """A text that is kept."""
    return ev.clean(value) if isinstance(value, str) else None
