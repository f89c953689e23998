"""kimi-code's ``wire.jsonl``: flat records with dotted types (recorded: protocol 1.5), a part of the dialect kimi-wire.

The loop events of a step are the history; the ``agent.*`` records of kind event print the same messages again. Usage
stands in ``usage.record`` and again in ``step.end``, which comes first in protocol 1.4: whichever is first counts. A
failed attempt stays in the file, ends with finishReason error, and is taken back when the step is tried again. Each
agent has a file of its own.
"""

from __future__ import annotations

from typing import Any

from .. import event as ev
from ..emit import Emitter, count, price, scoped, tokens, total
from ..event import Stamp
from ..run import Ending, Exit, Reducer
from . import SURE, UNKNOWN, Outcome, Sign, kimi

#: records that say nothing for events, by type or by what stands before the first dot
IGNORED = {
    "agent": "messages again",
    "cron": "schedule",
    "file_history": "file history",
    "forked": "fork",
    "goal": "goal state",
    "interruptionReminder": "reminder",
    "mcp": "tool list",
    "metadata": "header",
    "micro_compaction": "context edit",
    "permission": "permissions",
    "plan": "plan mode",
    "plan_mode": "plan mode",
    "plugin": "plugins",
    "prompt": "end of a prompt",
    "runtime": "runtime",
    "staleGuard": "file state",
    "subagent": "sub-agent start and end",
    "swarm_mode": "swarm mode",
    "task": "background task",
    "token_counting": "size of the context",
    "tools": "tool list",
    "tower_mode": "tower mode",
    "turn.steer": "steering",
    "turn.step.interrupted": "interrupted step",
    "context.clear": "context edit",
    "context.undo": "context edit",
    "context.update_token_count": "size of the context",
    "full_compaction.complete": "end of a compaction",
    "llm.tools_snapshot": "tool list",
}
#: reasons of turn.ended; a turn that a hook blocks never runs
REASONS = {"completed": "completed", "cancelled": "cancelled", "failed": "failed", "blocked": "denied"}
LIMITS = ("loop.max_steps_exceeded", "context.overflow")
#: finishReason of a step whose output was cut by its cap: it ends the turn, which is "completed" all the same
CAPPED = "max_tokens"
#: origins of messages that no person and no other agent sent
INJECTED = ("injection", "compaction_summary")

_MARKED = frozenset({"context", "turn", "usage", "llm", "profile", "config", "interaction", "full_compaction"})


def sign(record: dict[str, Any]) -> Sign | None:
    kind = record.get("type")
    time = record.get("time")
    if not isinstance(kind, str) or not isinstance(time, int) or isinstance(time, bool):
        return None
    head, dot, _ = kind.partition(".")
    known = head in _MARKED or head in IGNORED
    if dot and known and ("agentId" in record or record.get("kind") == "event"):
        return Sign(SURE, f"a {kind} record with time and agentId")
    return Sign(60, f"a {kind} record with time") if known else None


class Journal:
    """The part of the kimi-wire mapper that reads flat records."""

    def __init__(self, out: Emitter) -> None:
        self.out = out
        self.seen = False
        self.model: str | None = None
        self.alias: str | None = None  # what the settings call it
        self.requested = False  # a request told the model itself: recorded since July 2026
        self.step: str | None = None  # uuid of the step that runs or ran last
        self.failed = False  # its attempt failed, and may be tried again
        self.billed = False  # its usage was told
        self.again: list[int | None] | None = (
            None  # the counts that its end told, as long as its usage.record may still come
        )
        self.finish: str | None = None  # finishReason of the last step
        self.cancelled = False
        self.summarised = False  # the compaction that runs gave its summary
        self.refused = False  # a call of this step was rejected
        self.word = ""  # what came last in the turn: "answer" or "result"
        self.agents: dict[str, str] = {}  # id of a sub-agent: id of the call that delegated

    def map(self, value: dict[str, Any]) -> Outcome:
        kind = str(value.get("type"))
        self.seen = self.seen or kind != "metadata"
        stamp = Stamp(
            timestamp=ev.iso_millis(value.get("time")),
            parent=self.agents.get(ev.clean(text(value.get("agentId")) or "")),
        )
        event = value.get("event")
        if kind == "context.append_loop_event" and isinstance(event, dict):
            return self._loop(event, stamp)
        if kind == "context.append_message" and isinstance(value.get("message"), dict):
            return self._message(value["message"], stamp)
        if kind == "usage.record":
            usage, side = value.get("usage"), value.get("usageScope") == "session"
            self._known_as(value.get("model"), anew=False)
            if not side and self.again is not None and self.again == counts_of(usage):
                self.again = None
                return "usage again"
            return self._usage(usage, stamp, side=side)
        if kind == "llm.request":
            return self._request(value, stamp)
        if kind in ("profile.bind", "config.update"):
            return self._profile(value, stamp)
        if kind.startswith("turn."):
            return self._turn(kind, value, stamp)
        if kind.startswith("full_compaction.") or kind == "context.apply_compaction":
            return self._compaction(kind, value, stamp)
        if kind in ("interaction.request", "interaction.resolved", "permission.record_approval_result"):
            return self._approval(kind, value, stamp)
        if kind == "subagent.spawned":
            agent, call_id = text(value.get("subagentId")), text(value.get("parentToolCallId"))
            if agent is not None and call_id is not None:
                self.agents[self.out.clean(agent)] = self.out.clean(call_id)
        if kind == "prompt.aborted":
            self.cancelled = True
        return IGNORED.get(kind) or IGNORED.get(kind.partition(".")[0], UNKNOWN)

    def judge(self, run: Reducer, exit: Exit) -> Ending | None:
        """Older protocols do not tell the end of a turn."""
        if self.cancelled:
            return Ending("cancelled", None, "the turn was cancelled")
        if exit.code:
            return kimi.exit_failed(exit)
        if self.finish == "end_turn":
            return Ending("completed", "end_turn", "the last step ended the turn")
        if self.finish == CAPPED:
            return Ending("limit", CAPPED, "the last step ran into the cap of its output")
        return None

    # ------------------------------------------------------------ steps

    def _loop(self, event: dict[str, Any], stamp: Stamp) -> Outcome:
        kind = event.get("type")
        if kind == "step.begin":
            self._begin(event, stamp)
            return "start of a step"
        stamp.message_id = text(event.get("stepUuid")) or self.step
        if kind == "content.part":
            part = event.get("part")
            if isinstance(part, dict) and part.get("type") == "text" and text(part.get("text")):
                self.word = "answer"
            kimi.say(self.out, [part], self._model(stamp))
            return None
        if kind == "tool.call":
            arguments = event.get("args")
            function = {"name": event.get("name"), "arguments": arguments}
            kimi.call(self.out, event.get("toolCallId"), function, self._model(stamp))
            return None
        if kind == "tool.result":
            return self._result(event, stamp)
        if kind == "step.end":
            self.finish = text(event.get("finishReason"))
            self.failed = self.finish == "error"
            if self.billed or self.failed:
                return "end of a step"
            self.again = counts_of(event.get("usage"))
            return self._usage(event.get("usage"), stamp)
        return UNKNOWN

    def _begin(self, event: dict[str, Any], stamp: Stamp) -> None:
        if self.failed:  # no turn.step.retrying came between
            self._take_back(stamp)
            self.out.state("retry", stamp, phase="start")
        self.out.commit(stamp.parent)
        self.out.next_turn()
        step = text(event.get("uuid"))
        self.step = None if step is None else self.out.clean(step)
        self.billed = self.refused = False
        self.again = None
        self.finish = None

    def _take_back(self, stamp: Stamp) -> None:
        self.failed = False
        self.out.abandon(stamp.parent, stamp)

    def _result(self, event: dict[str, Any], stamp: Stamp) -> Outcome:
        call_id, result = event.get("toolCallId"), event.get("result")
        if not isinstance(call_id, str) or not isinstance(result, dict):
            return UNKNOWN
        self.word = "result"
        call_id = self.out.clean(call_id)
        shown = self.out.update(
            call_id,
            stamp,
            key=scoped(call_id, stamp),
            status="failed" if result.get("isError") is True else "completed",
            content=kimi.content_of(result.get("output")),
            raw_output=result,
            duration_ms=price(result.get("durationMs")),
        )
        return None if shown else "second result of a call"

    def _usage(self, usage: Any, stamp: Stamp, *, side: bool = False) -> Outcome:
        if not isinstance(usage, dict):
            return "usage without counts"
        self.billed = self.billed or not side
        if not side:
            stamp.message_id = self.step
        self.out.usage(
            "call",
            tokens(
                total(usage.get("inputOther"), usage.get("inputCacheRead"), usage.get("inputCacheCreation")),
                count(usage.get("output")),
                count(usage.get("inputCacheRead")),
                extra=kimi.extra_of(usage, ("inputCacheCreation",)),
            ),
            self._model(stamp),
            side=side,
        )
        return None

    # ------------------------------------------------------------ messages

    def _message(self, message: dict[str, Any], stamp: Stamp) -> Outcome:
        """A message that is put into the context: a prompt, or the history of an imported or forked session."""
        role, origin = message.get("role"), message.get("origin")
        source = text(origin.get("kind")) if isinstance(origin, dict) else None
        stamp.message_id = text(message.get("id")) or text(message.get("providerMessageId"))
        if role == "assistant":
            self.out.commit(stamp.parent)
            self.out.next_turn()
            kimi.say(self.out, message.get("content"), stamp)
            for block in kimi.list_of(message.get("toolCalls")):
                if isinstance(block, dict):
                    function = block.get("function")  # protocol 1.0
                    kimi.call(self.out, block.get("id"), function if isinstance(function, dict) else block, stamp)
            return None
        if role == "tool" and isinstance(message.get("toolCallId"), str):
            status = "failed" if message.get("isError") is True else "completed"
            content = kimi.content_of(message.get("content"))
            call_id = self.out.clean(message["toolCallId"])
            shown = self.out.update(call_id, stamp, key=scoped(call_id, stamp), status=status, content=content)
            return None if shown else "second result of a call"
        if role == "user" and source not in INJECTED and not kimi.is_injected(message.get("content")):
            if source not in (None, "user"):
                stamp.extra = {"origin": source}
            kimi.say(self.out, message.get("content"), stamp, ev.USER)
            return None
        return "injected message"

    def _request(self, value: dict[str, Any], stamp: Stamp) -> Outcome:
        model = text(value.get("model"))
        if model is None or value.get("kind") != "loop":
            return "model request"
        self.model, self.requested = self.out.clean(model), True
        if stamp.parent is None:
            self.out.session_state(stamp, model=model)
        return None

    def _profile(self, value: dict[str, Any], stamp: Stamp) -> Outcome:
        disclosed = value.get("environmentDisclosure")
        cwd = disclosed.get("cwd") if isinstance(disclosed, dict) else value.get("cwd")
        if stamp.parent is None:
            self.out.session_state(stamp, cwd=text(cwd))
        self._known_as(value.get("modelAlias"), anew=True)
        return None

    def _known_as(self, alias: Any, *, anew: bool) -> None:
        """What the settings call the model is its name as long as no request tells it."""
        if isinstance(alias, str) and alias and not self.requested and (anew or self.alias is None):
            self.alias, self.model = self.out.clean(alias), None

    def _model(self, stamp: Stamp) -> Stamp:
        if self.model is None and self.alias is not None:
            self.model = self.alias
            if stamp.parent is None:
                self.out.session_state(stamp, model=self.model)
        stamp.model = self.model
        return stamp

    # ------------------------------------------------------------ turns

    def _turn(self, kind: str, value: dict[str, Any], stamp: Stamp) -> Outcome:
        if kind == "turn.prompt":
            self.failed = self.cancelled = self.refused = False
            self.finish = None
            self.word = ""
            self.out.commit(stamp.parent)
            if stamp.parent is None:
                self.out.state("turn", stamp, phase="start")
            return None
        if kind == "turn.step.retrying":
            self._take_back(stamp)
            stamp.extra = kimi.extra_of(value, ("errorName", "statusCode"))
            self.out.state(
                "retry",
                stamp,
                phase="start",
                attempt=count(value.get("failedAttempt")),
                maxAttempts=count(value.get("maxAttempts")),
                delayMs=price(value.get("delayMs")),
                message=text(value.get("errorMessage")),
            )
            return None
        if kind == "turn.ended":
            return self._ended(value, stamp)
        if kind == "turn.cancel":
            self.cancelled = value.get("target") != "queued"
            return "cancel"
        return IGNORED.get(kind, UNKNOWN)

    def _ended(self, value: dict[str, Any], stamp: Stamp) -> Outcome:
        self.failed = False  # the last attempt's text stays
        self.out.commit(stamp.parent)
        if stamp.parent is not None:
            return "end of a sub-agent's turn"
        reason, error = text(value.get("reason")), value.get("error")
        outcome = REASONS.get(reason or "")
        if outcome == "completed" and self.refused and self.word == "result":
            outcome = "denied"
        elif outcome == "completed" and self.finish == CAPPED:
            outcome, reason = "limit", CAPPED
        if isinstance(error, dict):
            code, message = text(error.get("code")), text(error.get("message"))
            if message is not None:
                extra = {"code": code} if code else None
                self.out.error(message, Stamp(timestamp=stamp.timestamp, extra=extra), fatal=True)
            if outcome == "failed" and code in LIMITS:
                outcome = "limit"
            reason = code or reason
        self.out.state("turn", stamp, phase="end", outcome=outcome, reason=reason)
        return None

    def _compaction(self, kind: str, value: dict[str, Any], stamp: Stamp) -> Outcome:
        if kind == "full_compaction.begin":
            self.summarised = False
            self.out.state("compaction", stamp, phase="start", trigger=text(value.get("source")))
            return None
        if kind == "full_compaction.cancel":
            self.out.state("compaction", stamp, phase="end", success=False)
            return None
        if kind == "context.apply_compaction":
            self.summarised = True
            summary = value.get("summary")
            if isinstance(summary, dict):
                summary = "\n".join(kimi.texts_of(summary.get("content")))
            summary = text(value.get("contextSummary")) or text(summary)
            self.out.state("compaction", stamp, phase="end", success=True, summary=summary)
            return None
        if kind == "full_compaction.complete" and not self.summarised:
            self.out.state("compaction", stamp, phase="end", success=True)
            return None
        return IGNORED.get(kind, UNKNOWN)

    def _approval(self, kind: str, value: dict[str, Any], stamp: Stamp) -> Outcome:
        if kind == "interaction.resolved":
            return "answer of a person"  # it names neither call nor decision; the next record of the call does
        phase = "requested" if kind == "interaction.request" else "settled"
        result = value.get("result")
        result = result if isinstance(result, dict) else {}
        self.refused = self.refused or result.get("decision") == "rejected"
        self.out.state(
            "approval",
            stamp,
            phase=phase,
            toolCallId=text(value.get("toolCallId")),
            toolName=text(value.get("toolName")),
            decision=text(result.get("decision")),
            message=text(result.get("feedback")),
        )
        return None


def counts_of(usage: Any) -> list[int | None] | None:
    if not isinstance(usage, dict):
        return None
    return [count(usage.get(key)) for key in ("inputOther", "output", "inputCacheRead", "inputCacheCreation")]


def text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
