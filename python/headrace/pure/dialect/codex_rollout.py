"""Codex's session file, ``rollout-*.jsonl`` (recorded: 0.20, then 0.40 to 0.171; also compressed with zstd).

Up to 0.20 bare lines: a header, items of the model API, `record_type` lines. Then `{timestamp, type, payload}`, with an
`ordinal` in 0.171. A message stands there twice, as `response_item` and as `event_msg`, in either order, but not
always: texts are matched (`codex_responses`). Calls are announced by their item; `item_completed` and the `_end`
events tell better how they ended than the text of the output does. A fork or sub-agent may begin with a copy of its
parent's history, stamped with the time of the fork: it is left out. Before 0.125 there is no end record.
"""

from __future__ import annotations

from typing import Any

from .. import event as ev
from ..emit import Emitter, count
from ..event import Stamp
from ..record import Record
from ..run import Ending, Exit, Reducer
from . import SURE, UNKNOWN, Outcome, Sign
from . import codex_shapes as shapes
from .codex import response_sign
from .codex_events import CALL_KINDS, Events
from .codex_responses import TWINS, Responses, is_prompt, search_mark

NAME = "codex-rollout"

IGNORED = {
    "world_state": "state of the world",
    "inter_agent_communication": "message between agents",
    "inter_agent_communication_metadata": "message between agents",
    "session_state": "state of the session",
    "security_risk_score": "automatic review",
    "retained_context": "retained context",
    "realtime_item": "realtime audio",
}
TYPES = frozenset(
    {"session_meta", "turn_context", "response_item", "event_msg", "compacted", "token_usage_record", *IGNORED}
)
#: events that repeat what another record tells
_TOLD = {
    "agent_reasoning_section_break": "section break",
    "context_compacted": "compaction again",
    "user_message_begin": "begin of a message",
}
#: events by which a turn begins
_BEGIN = ("task_started", "turn_started")
_CHUNKS = {"user_message": ev.USER, "agent_message": ev.MESSAGE, "agent_reasoning": ev.THOUGHT}
_TIME = 13  # characters of a UUID of version 7 that are its time
_FORK_MILLIS = 1000  # a copied history is written within this time


def sign(record: dict[str, Any]) -> Sign | None:
    kind, payload = record.get("type"), record.get("payload")
    if isinstance(payload, dict) and isinstance(kind, str):
        if kind in TYPES:
            return Sign(SURE, f"{kind} with a payload", shapes.text(payload.get("cli_version")))
        if record.keys() <= {"timestamp", "type", "payload", "ordinal"} and isinstance(record.get("timestamp"), str):
            return Sign(40, "a record of timestamp, type and payload")
        return None
    if record.get("record_type") == "state" and kind is None:
        return Sign(SURE, "a record_type line", "0.20")
    if kind is None and record.keys() >= {"id", "timestamp", "instructions"}:
        return Sign(SURE, "a header with id, timestamp and instructions", "0.20")
    return response_sign(record, 50)


class Mapper:
    def __init__(self, out: Emitter) -> None:
        self.out = out
        self.session: str | None = None
        self.model: str | None = None
        self.parent: str | None = None  # the thread that it was forked from
        self.started_at: str | None = None  # the time of its session_meta
        self.first_own: int | None = None  # ordinal of the first record that is no copy
        self.forked = False  # it came from another thread, and no turn of its own has begun
        self.copying = False  # a copy of the parent's history is read
        self.dated = False  # the copied turns tell when they began
        self.old_times = False  # the copy kept its times
        self.turned = False  # the file has records of turns
        self.prompted = False  # a turn is open that a prompt began (no turn records)
        self.mark: dict[str, int] | None = None  # how far the texts were when a turn began that has no prompt yet
        self.turns: list[dict[str, int]] = []  # the same of the turns that have one
        self.events = Events(out)
        self.responses = Responses(out)

    def map(self, record: Record) -> Outcome:
        value = record.value
        kind, payload = value.get("type"), value.get("payload")
        stamp = Stamp(session_id=self.session, timestamp=ev.iso(value.get("timestamp")), model=self.model)
        if not isinstance(payload, dict):
            return self._bare(value, stamp)
        if kind == "session_meta":
            return self._meta(payload, stamp)
        begun_here = self._is_begun_here(payload) if self.forked or self.copying else None
        if self.forked and (begun_here is False or self._is_older(stamp.timestamp)):
            self.copying = True  # without the parent's session_meta
        if self.copying and not self._is_own(value, begun_here, stamp.timestamp):
            return self._copied(kind, payload)
        self.copying = False
        if self.forked and payload.get("type") == "token_count":
            return self._copied(kind, payload)  # before any turn it is the parent's
        self.forked = self.forked and not (kind == "turn_context" or payload.get("type") in _BEGIN)
        if kind == "turn_context":
            model = shapes.text(payload.get("model")) or None
            self.model = stamp.model = shapes.kept(model) or self.model
            self.out.session_state(stamp, model=model, cwd=shapes.text(payload.get("cwd")))
            return None
        if kind == "response_item":
            return self._item(payload, stamp)
        if kind == "event_msg":
            return self._event(payload, stamp)
        if kind == "token_usage_record":
            return self._usage(payload, stamp)
        if kind == "compacted":
            return self._compacted(payload, stamp)
        return IGNORED.get(kind, UNKNOWN) if isinstance(kind, str) else UNKNOWN

    def close(self) -> None:
        pass

    def judge(self, run: Reducer, exit: Exit) -> Ending | None:
        if self.turned or run.progress.last_word != "answer" or run.progress.open_calls:
            return None
        return Ending("completed", None, "this version writes no end, and the last word is an answer")

    # ------------------------------------------------------------ sessions, forks

    def _bare(self, value: dict[str, Any], stamp: Stamp) -> Outcome:
        """A line of 0.20: a header, an item, a mark."""
        if isinstance(value.get("type"), str):
            return self._item(value, stamp)
        if "record_type" in value:
            return "record_type line"
        if "instructions" not in value:
            return UNKNOWN
        self.session = shapes.kept(value.get("id"))
        self.out.session_state(Stamp(timestamp=stamp.timestamp), sessionId=shapes.text(value.get("id")))
        return None

    def _meta(self, meta: dict[str, Any], stamp: Stamp) -> Outcome:
        thread, parent = shapes.text(meta.get("id")), _parent_of(meta)
        other = shapes.kept(thread) != self.session
        if self.session is not None and other and (self.parent or self._is_early(stamp.timestamp)):
            self.copying = True  # the parent's, copied into a fork
            return "session_meta of the parent"
        if other:
            self.session, self.parent, self.started_at = shapes.kept(thread), parent, stamp.timestamp
            first = count(meta.get("subagent_history_start_ordinal"))
            self.first_own = None if first is None or first <= 1 else first
            self.forked = bool(parent)
            self.copying = self.first_own is not None
            self.dated = self.old_times = False
            self.turned = self.prompted = False
            self.mark, self.turns = None, []
            self.events.meter = shapes.Meter()
        stamp.session_id = thread
        stamp.extra = None if parent is None else {"parentThreadId": parent}
        self.out.session_state(
            stamp,
            sessionId=thread,
            version=shapes.text(meta.get("cli_version")),
            cwd=shapes.text(meta.get("cwd")),
        )
        return None

    def _is_begun_here(self, payload: dict[str, Any]) -> bool | None:
        """Whether the turn of a record began in this thread, where the record tells: by an id that is no older than the
        thread's (both begin with their time), or, with other ids, by the time at which the turn began."""
        turn = shapes.text(payload.get("turn_id"))
        if turn is not None and _has_time(turn) and self.session is not None and _has_time(self.session):
            return turn[:_TIME] >= self.session[:_TIME]
        began = count(payload.get("started_at")) if payload.get("type") in _BEGIN else None
        if began is None or self.started_at is None:
            return None
        return began * 1000 + _FORK_MILLIS > ev.millis(self.started_at)

    def _is_own(self, value: dict[str, Any], begun_here: bool | None, timestamp: str | None) -> bool:
        """Whether the copy of the parent's history is over. The ordinal says so, or a turn that began in this thread,
        or the clock. A long copy takes its time: where its turns tell when they began, the clock says nothing."""
        ordinal = count(value.get("ordinal"))
        if self.first_own is not None and ordinal is not None:
            return ordinal >= self.first_own
        if begun_here is not None:
            self.dated = self.dated or not begun_here
            return begun_here
        if self.dated:
            return False
        if timestamp is None or self.started_at is None:
            return False
        apart = ev.millis(timestamp) - ev.millis(self.started_at)
        self.old_times = self.old_times or apart < 0
        return apart >= 0 if self.old_times else apart > _FORK_MILLIS

    def _is_older(self, timestamp: str | None) -> bool:
        """Whether a record was written before the thread was there."""
        if timestamp is None or self.started_at is None:
            return False
        return ev.millis(timestamp) + _FORK_MILLIS < ev.millis(self.started_at)

    def _is_early(self, timestamp: str | None) -> bool:
        """Whether a record was written together with the file's first: a copy is, a second session is not."""
        if timestamp is None or self.started_at is None:
            return True
        return abs(ev.millis(timestamp) - ev.millis(self.started_at)) <= _FORK_MILLIS

    def _copied(self, kind: Any, payload: dict[str, Any]) -> Outcome:
        """A copied record: only the sum of tokens so far is remembered."""
        info = payload.get("info")
        if kind == "event_msg" and isinstance(info, dict) and isinstance(info.get("total_token_usage"), dict):
            self.events.meter.know(info["total_token_usage"])
        return "history of the parent"

    # ------------------------------------------------------------ items and events

    def _item(self, item: dict[str, Any], stamp: Stamp) -> Outcome:
        prompt = is_prompt(item)
        if prompt and not self.turned and not self.prompted:
            # without records of turns a prompt begins one; several in a row are one
            self.responses.start()
            self.mark = self.out.mark()
            self.out.next_turn()
            self.out.state("turn", stamp, phase="start")
        if prompt:
            self._asked()
        self.prompted = prompt or (self.prompted and item.get("role") in ("user", "developer"))
        return self.responses.map(item, stamp)

    def _event(self, msg: dict[str, Any], stamp: Stamp) -> Outcome:
        kind = msg.get("type")
        if not isinstance(kind, str):
            return UNKNOWN
        if kind == "user_message":
            self._asked()
        if kind in _CHUNKS:
            text = shapes.text(msg.get("text" if kind == "agent_reasoning" else "message"))
            return self._said(_CHUNKS[kind], [text or ""], stamp)
        if kind == "item_completed" and isinstance(msg.get("item"), dict):
            return self._completed(msg, msg["item"], stamp)
        if kind in _TOLD:
            return _TOLD[kind]
        head, _, tail = kind.rpartition("_")
        if kind == "dynamic_tool_call_response":
            return self._ended("dynamic", head, shapes.Item(msg), shapes.text(msg.get("call_id")), stamp)
        if tail == "end" and head in CALL_KINDS:
            item = shapes.Item.of_event(CALL_KINDS[head], msg)
            return self._ended(CALL_KINDS[head], head, item, shapes.text(msg.get("call_id")), stamp)
        if kind == "task_started":
            self.turned = True
            self.mark = self.out.mark()
            self.responses.start()
        if kind == "thread_rolled_back":
            return self._roll_back(count(msg.get("num_turns")) or 0, stamp)
        self.events.said = self.responses.said
        return self.events.map(msg, stamp)

    def _said(self, kind: str, texts: list[str], stamp: Stamp) -> Outcome:
        shown = [self.responses.say(kind, text, stamp, "event") for text in texts if text]
        return None if any(shown) else "message again" if shown else "empty text"

    def _completed(self, msg: dict[str, Any], item: dict[str, Any], stamp: Stamp) -> Outcome:
        """`item_completed` (0.171). Items of other threads are those of a reviewer: only its calls are told."""
        name, item_id = shapes.name_of(item), shapes.text(item.get("id"))
        kind = shapes.ITEMS.get(name)
        if kind is None:
            return shapes.IGNORED_ITEMS.get(name, UNKNOWN)
        if kind in shapes.CALLS:
            call = shapes.Item(item)
            call.started = msg.get("started_at_ms")
            return self._ended(kind, name, call, item_id, stamp)
        if kind == "compaction":
            return "compaction again"
        thread = shapes.kept(msg.get("thread_id"))
        if thread is not None and thread != self.session:
            return "item of another thread"
        stamp.message_id = item_id
        if kind == "reasoning":
            return self._said(ev.THOUGHT, shapes.strings(item.get("summary_text")), stamp)
        if kind == "message":
            phase = shapes.text(item.get("phase"))
            stamp.extra = None if phase is None else {"phase": phase}
            return self._said(ev.MESSAGE, shapes.text_of(item.get("content")), stamp)
        if kind != "user":
            return UNKNOWN
        self._asked()
        return self._said(ev.USER, shapes.text_of(item.get("content")), stamp)

    def _asked(self) -> None:
        """A person's words: those that steer a turn begin none."""
        if self.mark is not None:
            self.turns.append(self.mark)
            self.mark = None

    def _roll_back(self, turns: int, stamp: Stamp) -> Outcome:
        """The thread goes on as if its last turns had not been: what was said in them is taken back. Their calls and
        what they used stay, for that happened."""
        if turns <= 0 or not self.turns:
            return "rollback"
        gone = self.turns[-turns:]
        del self.turns[-turns:]
        self.out.rewind(gone[0], stamp)
        self.responses.start()
        self.mark = None
        return None

    def _ended(self, kind: str, name: str, item: shapes.Item, call_id: str | None, stamp: Stamp) -> Outcome:
        """How a call ended, in structure: better than its output in text, which may have come before."""
        if call_id is None:
            return UNKNOWN
        self.responses.acted()
        if not self.out.knows(call_id):
            shapes.announce(self.out, kind, name, item, call_id, stamp)
            if kind == "search":
                self.responses.searched.append(search_mark(item.facts))
                del self.responses.searched[:-TWINS]
        shapes.settle(self.out, kind, item, call_id, stamp, again=True)
        if shapes.is_silent(kind, item):
            self.responses.silent.append(call_id)
            del self.responses.silent[:-TWINS]
        return None

    # ------------------------------------------------------------ usage, compaction

    def _usage(self, record: dict[str, Any], stamp: Stamp) -> Outcome:
        """`token_usage_record` (0.153 on): one for each model call; the token_count after it tells the call again."""
        response, turn = shapes.kept(record.get("response_id")), shapes.kept(record.get("turn_id"))
        key = None if response is None else f"{turn or ''}/{response}"
        meter = self.events.meter
        known = meter.record(self.out, record.get("thread_token_usage"), record.get("usage"), stamp, key)
        return None if known else "token count again"

    def _compacted(self, record: dict[str, Any], stamp: Stamp) -> Outcome:
        """The model's summary stands before this record as if it were an answer: it is taken back."""
        if self.responses.alone:
            self.out.take_back(ev.MESSAGE, self.responses.alone, stamp)
            self.responses.alone = 0
        summary = shapes.text(record.get("message"))
        self.out.state("compaction", stamp, phase="end", success=True, summary=summary or None)
        return None


def _parent_of(meta: dict[str, Any]) -> str | None:
    """The thread that a fork or sub-agent comes from."""
    for key in ("parent_thread_id", "forked_from_id"):
        if isinstance(meta.get(key), str):
            return shapes.text(meta[key])
    source = meta.get("source")
    spawn = source.get("subagent") if isinstance(source, dict) else None
    spawn = spawn.get("thread_spawn") if isinstance(spawn, dict) else None
    return shapes.text(spawn.get("parent_thread_id")) if isinstance(spawn, dict) else None


def _has_time(identity: str) -> bool:
    """True for a UUID of version 7: the time comes first, so that ids sort by it."""
    return identity.isascii() and len(identity) == 36 and identity[14] == "7" and identity[8] == "-"
