"""pi's session file, format 1 (linear, entries without ids), 2 (tree) and 3 (recorded: 3, written by 0.27.9 to 1.6.0),
and that of its fork oh-my-pi, which has a line for the title before the header and entries of its own.

Whole messages, no deltas; an entry that a fork or clone copied comes with the same id and counts once. Failed attempts
stay in the file: a `context_edit` that hides one, or the next try of the same prompt, takes its text back.
"""

from __future__ import annotations

from typing import Any

from ..emit import Emitter
from ..event import Stamp
from ..record import Record
from ..run import Ending, Exit, Reducer
from ..wire import as_text
from . import SURE, UNKNOWN, Outcome, Sign, pi

NAME = "pi-session"

IGNORED = {
    "custom": "extension entry",
    "custom_message": "extension message",
    "label": "label",
    "context_edit": "context edit",
    # of oh-my-pi
    "archive": "archived branch",
    "credential_pin": "account",
    "mode_change": "mode",
    "reset_boundary": "context cleared",
    "service_tier_change": "service tier",
    "session_init": "start of a sub-agent",
    "ttsr_injection": "rules",
}
#: entry types and a key that each has
ENTRIES = {
    "message": "message",
    "model_change": "type",
    "thinking_level_change": "thinkingLevel",
    "compaction": "summary",
    "branch_summary": "summary",
    "custom": "customType",
    "custom_message": "customType",
    "label": "targetId",
    "session_info": "type",
    "context_edit": "targetId",
    "usage": "usage",
    "archive": "targetId",
    "credential_pin": "hash",
    "mode_change": "mode",
    "model_usage": "usage",
    "reset_boundary": "type",
    "service_tier_change": "serviceTier",
    "session_init": "task",
    "title_change": "title",
    "ttsr_injection": "injectedRules",
}


def sign(record: dict[str, Any]) -> Sign | None:
    kind = record.get("type")
    if kind == "session" and "id" in record and "cwd" in record and "timestamp" in record:
        return Sign(50, "a session header", pi._format(record))
    if kind == "title" and "pad" in record and "updatedAt" in record:
        return Sign(SURE, "a title with pad and updatedAt")
    if not isinstance(kind, str) or kind not in ENTRIES or ENTRIES[kind] not in record:
        return None
    if "id" in record and "parentId" in record and "uuid" not in record and "sessionID" not in record:
        return Sign(SURE, f"a {kind} entry with id and parentId")
    if isinstance(record.get("timestamp"), str) and "id" not in record:
        return Sign(60, f"a {kind} entry without id (format 1)")
    return None


class Mapper:
    def __init__(self, out: Emitter) -> None:
        self.out = out
        self.seen: set[str] = set()  # ids of entries
        self.model: str | None = None
        self.failure: pi.Failure | None = None
        self.aborted = False  # the last message was stopped by a person
        self.messages = 0
        self.reported: dict[tuple[str, int], int] = {}

    def map(self, record: Record) -> Outcome:
        value = record.value
        kind = value.get("type")
        entry_id = value.get("id")
        if isinstance(entry_id, str) and kind != "session":
            if entry_id in self.seen:
                return "entry again"
            self.seen.add(entry_id)
        stamp = Stamp(timestamp=as_text(value.get("timestamp")))
        if kind == "session":
            self.out.session_state(
                stamp,
                sessionId=as_text(value.get("id")),
                cwd=as_text(value.get("cwd")),
                title=as_text(value.get("title")) or None,
            )
            return None
        if kind == "message" and isinstance(value.get("message"), dict):
            return self._message(value["message"], stamp)
        if kind == "model_change":
            return self._model_change(value, stamp)
        if kind == "thinking_level_change":
            self.out.state("model", stamp, effort=as_text(value.get("thinkingLevel")))
            return None
        if kind == "session_info":
            self.out.session_state(stamp, title=as_text(value.get("name")))
            return None
        if kind in ("title", "title_change"):
            self.out.session_state(stamp, title=as_text(value.get("title")) or None)
            return None
        if kind == "compaction":
            pi.usage(self.out, value.get("usage"), stamp, side=True)
            self.out.state("compaction", stamp, phase="end", success=True, summary=as_text(value.get("summary")))
            return None
        if kind in ("branch_summary", "usage", "model_usage"):
            stamp.model = as_text(value.get("model"))
            pi.usage(self.out, value.get("usage"), stamp, side=True)
            return None
        return IGNORED.get(kind, UNKNOWN) if isinstance(kind, str) else UNKNOWN

    def _model_change(self, value: dict[str, Any], stamp: Stamp) -> Outcome:
        """To a model of a provider; oh-my-pi has both in one text, and models for other roles too."""
        if as_text(value.get("role")) not in (None, "default"):
            return "model of another role"
        self.model = pi.keep(self.out, value.get("modelId"))
        if self.model is None:
            model = pi.keep(self.out, value.get("model")) or ""
            self.model = model.partition("/")[2] or None
        self.out.state("model", stamp, model=self.model)
        return None

    def close(self) -> None:
        self._settle_failure()

    def judge(self, run: Reducer, exit: Exit) -> Ending | None:
        return None

    def _message(self, message: dict[str, Any], stamp: Stamp) -> Outcome:
        role = message.get("role")
        if role == "user":
            self._settle_failure()
            self.out.state("turn", stamp, phase="start")
            pi.user_message(self.out, message, stamp)
            return None
        if role == "assistant":
            self._assistant(message, stamp)
            return None
        if role == "toolResult":
            pi.tool_result(self.out, self.reported, message, stamp)
            return None
        return f"{role} message" if role in ("system", "custom", "hookMessage", "bashExecution") else "other role"

    def _assistant(self, message: dict[str, Any], stamp: Stamp) -> None:
        if self.aborted:
            self._settle_failure()  # nobody tries again what a person stopped
        if self.failure is not None:  # no prompt in between: this is the next try
            self.failure = None
            self.out.abandon(None, stamp)
            self.out.state("retry", stamp, phase="start")
        self.out.commit(None)
        self.out.next_turn()
        self.messages += 1
        self.model = pi.keep(self.out, message.get("model")) or self.model
        stop = as_text(message.get("stopReason"))
        stamp.message_id = as_text(message.get("responseId"))
        stamp.model = self.model
        stamp.extra = pi._extra(message, ("stopReason", "rawStopReason"))
        self.out.session_state(Stamp(timestamp=stamp.timestamp), model=self.model)
        pi.content(self.out, message.get("content"), stamp)
        pi.usage(self.out, message.get("usage"), stamp, key=f"message:{self.messages}")
        self.aborted = stop == "aborted"
        if stop in ("error", "aborted"):
            self.failure = pi.Failure(pi.keep(self.out, message.get("errorMessage")), [], stamp)
        if stop != "toolUse":
            self.out.state("turn", stamp, phase="end", outcome=pi.OUTCOMES.get(stop or "", "completed"), reason=stop)

    def _settle_failure(self) -> None:
        failure, self.failure = self.failure, None
        if failure is not None and failure.message is not None:
            self.out.error(failure.message, failure.stamp, fatal=True)
