"""Droid's session file (recorded: format 2, written by 0.215.0).

Whole messages with blocks in the manner of Anthropic, and `agent_turn_outcome` when a turn is over; a killed run just
ends. Usage is not in it (it is in `<id>.settings.json`). A model that could not be reached is a user message that only
the user sees.
"""

from __future__ import annotations

from typing import Any

from .. import event as ev
from ..emit import Emitter, count
from ..event import Stamp
from ..record import Record
from ..run import Ending, Exit, Reducer
from ..wire import as_text
from . import SURE, UNKNOWN, Outcome, Sign, droid

NAME = "droid-session"

IGNORED = {
    "todo_state": "todo state",
    "compaction_state": "compaction state",
}
_MESSAGE_MARKS = frozenset({"modelId", "visibility", "interactionMode", "reasoningEffort"})


def sign(record: dict[str, Any]) -> Sign | None:
    kind = record.get("type")
    if kind == "session_start" and "id" in record and ("hostId" in record or "owner" in record):
        version = count(record.get("version"))
        return Sign(SURE, "session_start with owner", None if version is None else f"session format {version}")
    if kind == "agent_turn_outcome" and "turnId" in record:
        return Sign(SURE, "agent_turn_outcome with turnId")
    message = record.get("message")
    if kind != "message" or "id" not in record or "uuid" in record or "sessionID" in record:
        return None
    if not isinstance(message, dict) or not isinstance(message.get("content"), list) or "timestamp" in message:
        return None
    if _MESSAGE_MARKS & message.keys():
        return Sign(SURE, "a message entry with blocks and what Droid says of it")
    return Sign(30, "a message entry with blocks")


class Mapper:
    def __init__(self, out: Emitter) -> None:
        self.out = out
        self.todos: dict[str, list[dict[str, str]]] = {}
        self.refusals: list[str] = []
        self.refused = False
        self.capped = False  # an error of the turn named a cap
        self.seen: set[str] = set()  # ids of messages

    def map(self, record: Record) -> Outcome:
        value = record.value
        kind = value.get("type")
        stamp = Stamp(timestamp=as_text(value.get("timestamp")))
        if kind == "session_start":
            self.out.session_state(
                stamp,
                sessionId=as_text(value.get("id")),
                cwd=as_text(value.get("cwd")),
                title=as_text(value.get("title")),
            )
            return None
        if kind == "message" and isinstance(value.get("message"), dict):
            return self._message(value.get("id"), value["message"], stamp)
        if kind == "agent_turn_outcome":
            return self._turn_outcome(as_text(value.get("reason")), stamp)
        return IGNORED.get(kind, UNKNOWN) if isinstance(kind, str) else UNKNOWN

    def close(self) -> None:
        pass

    def judge(self, run: Reducer, exit: Exit) -> Ending | None:
        if self.refused:
            return Ending("denied", "insufficient permission", "the run ended at a refused call")
        return None

    def _message(self, message_id: Any, message: dict[str, Any], stamp: Stamp) -> Outcome:
        if isinstance(message_id, str):
            if ev.clean(message_id) in self.seen:
                return "message again"
            self.seen.add(ev.clean(message_id))
        role, content = message.get("role"), message.get("content")
        blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
        if role == "assistant":
            stamp.message_id, stamp.model = as_text(message_id), as_text(message.get("modelId"))
            self.out.session_state(Stamp(timestamp=stamp.timestamp), model=stamp.model)
            return self._assistant(blocks, stamp)
        if role != "user":
            return "message of the harness"
        if message.get("visibility") == "llm_only":
            return "harness reminder"
        if message.get("visibility") == "user_only":
            return self._notice(blocks, stamp)
        return self._user(blocks, stamp)

    def _assistant(self, blocks: list[dict[str, Any]], stamp: Stamp) -> Outcome:
        self.out.commit(None)
        self.out.next_turn()
        told: Outcome = "empty message"
        for block in blocks:
            kind = block.get("type")
            if kind == "text" and isinstance(block.get("text"), str):
                if droid.is_refusal(block["text"], self.refusals):
                    self.refused = True
                    told = "refusal again"
                    continue
                self.out.whole(ev.MESSAGE, block["text"], stamp)
            elif kind == "thinking" and isinstance(block.get("thinking"), str):
                self.out.whole(ev.THOUGHT, block["thinking"], stamp)
            elif kind == "tool_use" and isinstance(block.get("id"), str):
                self.refusals = []
                droid.call(self.out, self.todos, block["id"], as_text(block.get("name")), block.get("input"), stamp)
            else:
                continue
            told = None
        return told

    def _user(self, blocks: list[dict[str, Any]], stamp: Stamp) -> Outcome:
        told: Outcome = "empty message"
        turn = False
        for block in blocks:
            kind = block.get("type")
            if kind == "tool_result" and isinstance(block.get("tool_use_id"), str):
                refusal = droid.result(
                    self.out, self.todos, block["tool_use_id"], block.get("is_error"), block.get("content"), stamp
                )
                if refusal is not None:
                    self.refusals.append(refusal)
            elif kind == "text" and isinstance(block.get("text"), str):
                if not turn:
                    turn = True
                    self._start(stamp)
                self.out.whole(ev.USER, block["text"], stamp)
            elif kind == "image":
                droid.user_image(self.out, block, stamp)
            else:
                continue
            told = None
        return told

    def _start(self, stamp: Stamp) -> None:
        self.refusals, self.refused, self.capped = [], False, False
        self.out.state("turn", stamp, phase="start")

    def _notice(self, blocks: list[dict[str, Any]], stamp: Stamp) -> Outcome:
        """What the harness tells the user, and the model does not see: why a model call failed."""
        for block in blocks:
            if block.get("type") == "text" and isinstance(block.get("text"), str):
                self.capped = droid.outcome_of_error(block["text"]) == "limit"
                self.out.error(block["text"], stamp, fatal=True)
        return None

    def _turn_outcome(self, reason: str | None, stamp: Stamp) -> Outcome:
        outcome = droid.REASONS.get(reason or "", "failed")
        if self.refused:
            outcome = "denied"
        elif self.capped and outcome == "failed":
            outcome = "limit"
        self.out.commit(None)
        self.out.state("turn", stamp, phase="end", outcome=outcome, reason=reason)
        return None
