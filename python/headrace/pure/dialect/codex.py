"""Codex: ``codex exec --json`` and what came before it (recorded from 0.20 to 0.171, and the TypeScript CLI 0.1).

Four eras, told apart record by record: `thread.started` and items with a `type` (0.44 on); `session.created` and items
with an `item_type`, without turns and usage (`--experimental-json`, 0.41 to 0.43); a line of settings, the prompt, and
`{"id", "msg"}` events (0.8 to 0.43, see `codex_events`); bare items of the model API (`codex -q --json` of the
TypeScript CLI, see `codex_responses`). There are no deltas but for raw reasoning, no clock, no model. `error` is a
retry notice unless `turn.failed` repeats it. Item ids are counted per process. 0.98 prints a sub-agent's items into
the parent's without a mark. A web_search item has the key `id` twice: the first is the item's.
"""

from __future__ import annotations

from typing import Any

from .. import event as ev
from .. import json, tool
from ..emit import Emitter
from ..event import Stamp
from ..record import Record
from ..run import Ending, Exit, Reducer
from . import SURE, UNKNOWN, Outcome, Sign
from . import codex_shapes as shapes
from .codex_events import Events
from .codex_responses import CALLS as RESPONSE_CALLS
from .codex_responses import OUTPUTS as RESPONSE_OUTPUTS
from .codex_responses import Responses

NAME = "codex"

_ITEM_RECORDS = frozenset({"item.started", "item.updated", "item.completed"})
_RECORDS = _ITEM_RECORDS | {"error", "turn.started", "turn.completed", "turn.failed"}
_RESPONSES = RESPONSE_CALLS | RESPONSE_OUTPUTS | {"message", "reasoning", "web_search_call"}


def sign(record: dict[str, Any]) -> Sign | None:
    kind = shapes.text(record.get("type"))
    if kind == "thread.started" and isinstance(record.get("thread_id"), str):
        return Sign(SURE, "thread.started with thread_id")
    if kind == "session.created" and isinstance(record.get("session_id"), str):
        return Sign(SURE, "session.created with session_id", "0.41 to 0.43")
    if kind in _ITEM_RECORDS and isinstance(record.get("item"), dict):
        for key in ("type", "item_type"):
            if isinstance(record["item"].get(key), str):
                return Sign(SURE, f"{kind} with item.{key}")
    if kind == "turn.started" and len(record) == 1:
        return Sign(60, "turn.started with no other key")
    if kind == "turn.completed" and isinstance(record.get("usage"), dict):
        return Sign(60, "turn.completed with usage")
    if kind == "turn.failed" and isinstance(record.get("error"), dict):
        return Sign(60, "turn.failed with an error object")
    if kind == "error" and record.keys() == {"type", "message"}:
        return Sign(5, "an error record with a message")
    if isinstance(record.get("id"), str) and isinstance(record.get("msg"), dict) and len(record) == 2:
        return Sign(SURE, "an event in an {id, msg} envelope", "0.8 to 0.43")
    if "reasoning effort" in record and "workdir" in record:
        return Sign(SURE, "a line of settings", "0.8 to 0.43")
    if record.keys() == {"prompt"}:
        return Sign(10, "a prompt line")
    return response_sign(record, 60)


def response_sign(record: dict[str, Any], weight: int) -> Sign | None:
    """A bare item of the model API: the TypeScript CLI prints them, and rollouts of 0.20 hold them."""
    kind = record.get("type")
    if not isinstance(kind, str) or kind not in _RESPONSES:
        return None
    content = record.get("content")
    if kind == "message" and isinstance(record.get("role"), str) and isinstance(content, list):
        if all(isinstance(part, dict) and part.get("type") in _PARTS for part in content):
            return Sign(weight, "a message of input_text or output_text")
    elif kind == "reasoning" and isinstance(record.get("summary"), list):
        return Sign(weight, "a reasoning item with a summary")
    elif kind in RESPONSE_CALLS | RESPONSE_OUTPUTS and isinstance(record.get("call_id"), str):
        return Sign(weight, f"a {kind} with call_id")
    elif kind == "web_search_call" and isinstance(record.get("action"), dict):
        return Sign(weight, "a web_search_call with an action")
    return None


_PARTS = ("input_text", "output_text", "input_image", "refusal")


class Mapper:
    def __init__(self, out: Emitter) -> None:
        self.out = out
        self.session: str | None = None
        self.era: str | None = None  # of the run that goes on: "exec", "events" or "responses"
        self.over = False  # the run of the TypeScript CLI has ended in an error
        self.calls_before = 0  # how many calls the runs before this one made
        self.items: dict[str, str | None] = {}  # calls of this process, and the sub-agent that they belong to
        self.turned = False  # the process prints turn records
        self.turn_open = False
        self.begun = False  # the start of the turn was told with the start of the process
        self.said = False  # the agent said something in this process
        self.nested = False  # a turn began in an open turn: a sub-agent's (0.98)
        self.agents: dict[str, str] = {}  # thread of a sub-agent: id of the call that spawned it
        self.waits: dict[str, str] = {}  # open call that waits for sub-agents: the call that spawned the first of them
        self.plan: list[dict[str, str]] | None = None
        self.refused = False  # a call was refused, and no text or call came since
        self.unsure: str | None = None  # an error that is fatal if nothing follows
        self.events = Events(out)
        self.responses = Responses(out)

    def map(self, record: Record) -> Outcome:
        value = record.value
        kind = shapes.text(value.get("type"))
        era = self._begins(kind, value)
        behind = era is not None and self._begin(era)
        self.unsure = None
        if kind is None:
            return self._old(value, behind)
        if kind in _ITEM_RECORDS and isinstance(value.get("item"), dict):
            return self._item(kind, value["item"], record)
        if kind in ("thread.started", "session.created"):
            session = shapes.text(value.get("thread_id")) or shapes.text(value.get("session_id"))
            return self._session(kind, session, behind)
        if kind == "turn.started":
            return self._turn_started()
        if kind == "turn.completed":
            self._usage(value.get("usage"))
            self._end("denied" if self.refused else "completed", kind)
            return None
        if kind == "turn.failed":
            error = value.get("error")
            message = shapes.text(error.get("message")) if isinstance(error, dict) else shapes.text(error)
            if message is not None:
                self.out.error(message, self._stamp(), fatal=True)
            self._end(shapes.outcome_of(message), kind)
            return None
        if kind == "error":
            return self._error(shapes.text(value.get("message")) or "")
        if kind in _RESPONSES:
            if behind:
                self.out.state("turn", Stamp(), phase="start")
            return self._response(value)
        if kind == "request_user_input":
            self.out.state("approval", self._stamp(), phase="requested", toolCallId=shapes.text(value.get("call_id")))
            return None
        return "text of a plan" if kind == "item.plan.delta" else UNKNOWN

    def close(self) -> None:
        self._give_up()

    def _begins(self, kind: str | None, value: dict[str, Any]) -> str | None:
        """The era of the run that this record begins. A run of the TypeScript CLI has no first record of its own, and
        the first run of a source may have lost it."""
        first = self.era is None
        if kind is None:
            return "events" if "workdir" in value or (first and ("msg" in value or "prompt" in value)) else None
        if kind in _RESPONSES:
            return "responses" if self.era != "responses" or self.over else None
        begins = kind in ("thread.started", "session.created") or (first and kind in _RECORDS)
        return "exec" if begins else None

    def _begin(self, era: str) -> bool:
        """A run begins: the one before ended here. Says if there was one."""
        self._give_up()
        behind = self.era is not None
        self.era, self.over = era, False
        self.calls_before = self.out.call_count()
        self.said = self.events.said = self.responses.said = False
        return behind

    def _give_up(self) -> None:
        """Without turn records (0.42) the last record decides: an error ends the run."""
        if self.unsure is not None:
            self.out.error(self.unsure, self._stamp(), fatal=True)
            self.out.state("end", self._stamp(), outcome=shapes.outcome_of(self.unsure), reason="error")

    def judge(self, run: Reducer, exit: Exit) -> Ending | None:
        said = {"exec": self.said and not self.turned, "events": self.events.said, "responses": self.responses.said}
        if self.era is None or not said[self.era] or exit.code or run.progress.last_word != "answer":
            return None
        if any(number > self.calls_before for number in run.progress.open_calls):
            return None
        return Ending("completed", None, "this version prints no end, and the last word is an answer")

    # ------------------------------------------------------------ sessions and turns

    def _stamp(self, parent: str | None = None) -> Stamp:
        return Stamp(session_id=self.session, parent=parent)

    def _session(self, kind: str, session: str | None, behind: bool) -> Outcome:
        """A process starts: its items are counted from 0 again, also if the thread is an old one."""
        self.session = shapes.kept(session) or self.session
        self.out.commit(None)
        self.out.next_turn()
        self.items.clear()
        self.waits.clear()
        self.turned = self.turn_open = self.nested = self.refused = False
        self.out.session_state(Stamp(), sessionId=session)
        # 0.41 to 0.43 have no turn records: the session is the turn. And a run behind another is begun, whether or not
        # its turn comes: the end of the one before is not its own.
        self.begun = behind
        if behind or kind == "session.created":
            self.out.state("turn", self._stamp(), phase="start")
        return None

    def _turn_started(self) -> Outcome:
        self.turned = True
        if self.turn_open:
            self.nested = True
            return "turn of a sub-agent"
        self.turn_open = True
        if not self.begun:
            self.out.state("turn", self._stamp(), phase="start")
        self.begun = False
        return None

    def _end(self, outcome: str, reason: str) -> None:
        self.turned = True
        self.turn_open = self.nested = self.refused = False
        self.waits.clear()
        self.out.state("turn", self._stamp(), phase="end", outcome=outcome, reason=reason)
        self.out.state("end", self._stamp(), outcome=outcome, reason=reason)

    def _usage(self, usage: Any) -> None:
        """A sum over the thread: a resumed run prints the tokens of the runs before it too (0.98 and later)."""
        if isinstance(usage, dict):
            self.out.usage("run", shapes.usage_of(usage), self._stamp())

    def _error(self, message: str) -> Outcome:
        retry = shapes.retry_of(message)
        if retry is not None:
            shapes.tell_retry(self.out, message, retry, self._stamp())
            return None
        self.out.error(message, self._stamp(), fatal=False, notice=True)
        if not self.turned:
            self.unsure = shapes.kept(message)
        return None

    # ------------------------------------------------------------ items

    def _item(self, record_kind: str, item: dict[str, Any], record: Record) -> Outcome:
        name = shapes.text(item.get("type")) or shapes.text(item.get("item_type")) or ""
        kind = shapes.ITEMS.get(name)
        item_id = shapes.text(json.first(record.raw, "item", "id") if kind == "search" else item.get("id"))
        if kind is None:
            return shapes.IGNORED_ITEMS.get(name, UNKNOWN)
        if kind == "todo":
            return self._todo(item)
        if kind == "error":
            self.out.error(shapes.text(item.get("message")) or "", self._stamp(), fatal=False, notice=True)
            return None
        if item_id is None:
            return UNKNOWN
        parent = self.items[item_id] if item_id in self.items else self._delegate(kind)
        if kind in shapes.CALLS:
            return self._call(record_kind, kind, name, item, item_id, parent)
        chunk = {"message": ev.MESSAGE, "reasoning": ev.THOUGHT, "user": ev.USER}.get(kind)
        if chunk is None:
            return "item"
        text = shapes.text(item.get("text")) or "\n".join(shapes.strings(item.get("summary")))
        if not text:
            return "empty text"
        stamp = self._stamp(parent)
        stamp.message_id = item_id
        self.out.final(chunk, item_id, text, stamp)
        if record_kind == "item.completed":
            self.out.settle(chunk, item_id, parent)
        if chunk == ev.MESSAGE:
            self.refused, self.said = False, True
        return None

    def _delegate(self, kind: str) -> str | None:
        """The sub-agent that a new item belongs to. While the parent waits for one, what comes is the sub-agent's, if
        this version prints a sub-agent's items at all: then it printed the start of its turn."""
        if not self.nested or not self.waits or kind == "agent":
            return None
        return next(iter(self.waits.values()))

    def _call(
        self, record_kind: str, kind: str, name: str, item: dict[str, Any], item_id: str, parent: str | None
    ) -> Outcome:
        stamp = self._stamp(parent)
        if item_id not in self.items:
            self.items[item_id] = parent
            shapes.announce(self.out, kind, name, shapes.Item(item), item_id, stamp)
        if kind == "agent":
            self._follow(record_kind, item, item_id)
        if record_kind == "item.completed":
            self.refused = item.get("status") == "declined"
            return None if shapes.settle(self.out, kind, shapes.Item(item), item_id, stamp) else "item again"
        self.refused = False
        if record_kind == "item.updated" and kind == "edit":
            shapes.amend(self.out, shapes.Item(item), item_id, stamp)
        elif record_kind == "item.updated":
            output = shapes.text(item.get("aggregated_output"))
            content = ev.text_content(output) if output else None
            self.out.update(item_id, stamp, status="in_progress", content=content)
        return None

    def _follow(self, record_kind: str, item: dict[str, Any], item_id: str) -> None:
        """Remembers which call spawned which thread, and which call waits for it."""
        threads = shapes.strings(item.get("receiver_thread_ids"))
        if record_kind == "item.completed":
            self.waits.pop(item_id, None)
            if item.get("tool") == "spawn_agent":
                self.agents.update((thread, ev.clean(item_id)) for thread in threads)
        elif item.get("tool") == "wait":
            spawned = [self.agents[thread] for thread in threads if thread in self.agents]
            if spawned:
                self.waits[item_id] = spawned[0]

    def _todo(self, item: dict[str, Any]) -> Outcome:
        steps = item.get("items")
        entries = []
        for step in steps if isinstance(steps, list) else []:
            if isinstance(step, dict):
                done = "completed" if step.get("completed") is True else "pending"
                entry = tool.plan_entry(step.get("text"), done)
                if entry is not None:
                    entries.append(entry)
        if entries == self.plan:
            return "plan again"
        self.plan = entries
        self.out.plan(entries, self._stamp())
        return None

    # ------------------------------------------------------------ before 0.44

    def _old(self, value: dict[str, Any], behind: bool) -> Outcome:
        """Lines without a type: the settings, the prompt, and events in their envelope."""
        if isinstance(value.get("msg"), dict):
            return self.events.map(value["msg"], Stamp())
        if "workdir" in value:
            self.out.session_state(
                Stamp(), model=shapes.text(value.get("model")), cwd=shapes.text(value.get("workdir"))
            )
            self.events.begun = behind
            if behind:
                self.out.state("turn", Stamp(), phase="start")
            return None
        prompt = shapes.text(value.get("prompt"))
        if prompt is None:
            return UNKNOWN
        self.out.whole(ev.USER, prompt, Stamp())
        return None

    def _response(self, item: dict[str, Any]) -> Outcome:
        """An item of the TypeScript CLI. What failed is a system message with an id of its own kind."""
        item_id = shapes.text(item.get("id")) or ""
        if item.get("type") == "message" and item.get("role") == "system" and item_id.startswith("error-"):
            message = "".join(shapes.text_of(item.get("content")))
            self.out.error(message, Stamp(), fatal=True)
            self.out.state("end", Stamp(), outcome=shapes.outcome_of(message), reason="error")
            self.over = True
            return None
        return self.responses.map(item, Stamp())
