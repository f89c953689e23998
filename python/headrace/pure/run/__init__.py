"""The run reducer: events in, the final state of the session out.

It knows no dialect: what the wire means was decided by the mapper. Texts, calls, usage and errors are kept as they
come; ``verdict`` decides how the run ended when it is asked.
"""

from __future__ import annotations

from typing import Any

from .. import event as ev
from ..event import Event
from . import usage, verdict
from .verdict import Ending, Exit

__all__ = ["Ending", "Exit", "Reducer"]


class Text:
    """One block of text: which thread and message it belongs to."""

    __slots__ = ("images", "kind", "line", "message_id", "model", "number", "text", "thread")

    def __init__(self, event: Event) -> None:
        self.number = event.block
        self.kind = event.kind
        self.thread = event.stamp.parent
        self.message_id = event.stamp.message_id
        self.model = event.stamp.model
        self.line = event.line
        self.text = ""
        self.images = 0


class Call:
    __slots__ = ("announced", "cuts", "facts", "order")

    def __init__(self) -> None:
        self.announced = False
        self.order: str | None = None
        self.cuts: dict[str, dict[str, Any]] = {}  # of what more came than is kept
        self.facts: dict[str, Any] = {
            "id": None,
            "name": None,
            "kind": "other",
            "title": None,
            "input": None,
            "status": None,
            "ok": None,
            "result": None,
            "raw_output": None,
            "parent": None,
            "exit_code": None,
            "started_at": None,
            "ended_at": None,
            "duration_ms": None,
        }

    def to_dict(self) -> dict[str, Any]:
        cuts = {name: self.cuts[name] for name in ("result", "raw_output") if name in self.cuts}
        return {**self.facts, **({"cut": cuts} if cuts else {})}


class Reducer:
    """Takes events one by one; ``to_dict`` gives the run so far at any moment.

    Args:
        max_result_bytes: how much of each tool result is kept; None for all.
        cut_later: only tell what is to be cut, and keep all of it: somebody else has to see it first.
    """

    def __init__(self, max_result_bytes: int | None = None, cut_later: bool = False) -> None:
        self._most = max_result_bytes
        self._cut_later = cut_later
        self.session: dict[str, Any] = {}
        self.texts: list[Text] = []  # of all threads and kinds, in order of their first chunk
        self.blocks: dict[int, Text] = {}  # the same by number
        self.calls: dict[int, Call] = {}  # by number
        self.plan: list[dict[str, Any]] | None = None
        self.errors: list[dict[str, Any]] = []
        self.retries = 0
        self.compactions = 0
        self.ledger = usage.Ledger()
        self.progress = verdict.Progress()

    def take(self, event: Event) -> None:
        kind = event.kind
        if kind in ev.CHUNKS:
            self._chunk(event)
        elif kind == ev.TOOL_CALL:
            self._call(event)
        elif kind == ev.TOOL_CALL_UPDATE:
            self._call_update(event)
        elif kind == ev.PLAN:
            if event.stamp.parent is None:  # a sub-agent has its own
                self.plan = event.update["entries"]
        elif kind == ev.ERROR:
            self._error(event)
        elif kind == ev.USAGE:
            self.ledger.take(event, self.session)
        else:
            self._state(event)

    # ------------------------------------------------------------ texts

    def _chunk(self, event: Event) -> None:
        kind, thread = event.kind, event.stamp.parent
        gone = event.retract
        if gone:
            for at in range(len(self.texts) - 1, -1, -1):
                text = self.texts[at]
                if text.kind == kind and text.thread == thread and text.text:
                    part = min(gone, len(text.text))
                    text.text = text.text[: len(text.text) - part]
                    gone -= part
                    if not text.text and not text.images:  # if it is said again, then in its new place
                        del self.blocks[text.number]
                    if not gone:
                        break
        content = event.update["content"]
        if content["type"] == "text":
            if content["text"]:
                self._block(event).text += content["text"]
        else:
            self._block(event).images += 1
        if kind == ev.MESSAGE and thread is None:
            self.progress.answered(event)

    def _block(self, event: Event) -> Text:
        text = self.blocks.get(event.block)
        if text is None:
            text = self.blocks[event.block] = Text(event)
            self.texts.append(text)
        return text

    # ------------------------------------------------------------ calls

    def _call_of(self, event: Event) -> Call:
        call = self.calls.get(event.call)
        if call is None:
            call = self.calls[event.call] = Call()
        return call

    def _call(self, event: Event) -> None:
        call, update = self._call_of(event), event.update
        call.announced = True
        facts = call.facts
        facts["id"] = update["toolCallId"]
        facts["name"] = update.get("toolName")
        facts["kind"] = update["kind"]
        facts["title"] = update["title"]
        if facts["input"] is None:
            facts["input"] = event.facts.get("input")
        facts["parent"] = event.stamp.parent
        facts["started_at"] = event.facts.get("started_at") or event.stamp.timestamp
        call.order = event.facts.get("order")
        self._status(facts, update["status"])
        self._content(event, call)
        self.progress.called(event)

    def _call_update(self, event: Event) -> None:
        call, update = self._call_of(event), event.update
        facts = call.facts
        if "status" in update:
            self._status(facts, update["status"])
        if "title" in update:
            facts["title"] = update["title"]
        if "rawOutput" in update:
            self._raw_output(event, call)
        for key in ("input", "name", "kind", "exit_code", "duration_ms", "started_at"):
            if event.facts.get(key) is not None:
                facts[key] = event.facts[key]
        if event.facts["done"]:
            facts["ended_at"] = event.facts.get("ended_at") or event.stamp.timestamp
        self._content(event, call)
        if event.facts.get("result") is not None:
            self._result(event, call, event.facts["result"])
        self.progress.updated(event)

    def _status(self, facts: dict[str, Any], status: str) -> None:
        facts["status"] = status
        facts["ok"] = {"completed": True, "failed": False}.get(status)

    def _content(self, event: Event, call: Call) -> None:
        if event.facts.get("no_result"):
            return
        texts = [
            item["content"]["text"]
            for item in event.update.get("content", ())
            if item["type"] == "content" and item["content"]["type"] == "text"
        ]
        if texts:
            self._result(event, call, "\n".join(texts))

    def _result(self, event: Event, call: Call, text: str) -> None:
        """Keeps the first bytes of a result, or a few less where these would end within a character."""
        call.cuts.pop("result", None)
        if self._most is not None:
            size = len(text.encode())
            if size > self._most:
                call.cuts["result"] = {"bytes": size, "span": event.span}
                text = text if self._cut_later else beginning(text, self._most)
        call.facts["result"] = text

    def _raw_output(self, event: Event, call: Call) -> None:
        """Keeps it whole or not at all: a part of a structure is none."""
        call.cuts.pop("raw_output", None)
        raw = event.update["rawOutput"]
        if self._most is not None:
            size = ev.size(raw)
            if size > self._most:
                call.cuts["raw_output"] = {"bytes": size, "span": event.span}
                raw = raw if self._cut_later else None
        call.facts["raw_output"] = raw

    # ------------------------------------------------------------ errors and states

    def _error(self, event: Event) -> None:
        if event.facts["notice"]:
            return
        message, fatal = event.update["message"], event.update["fatal"]
        if self.errors and self.errors[-1]["message"] == message:  # the fatal message counts once
            self.errors[-1]["fatal"] = self.errors[-1]["fatal"] or fatal
        else:
            self.errors.append({"message": message, "fatal": fatal, "line": event.line})

    def _state(self, event: Event) -> None:
        update = event.update
        state = update["state"]
        if state == "session":
            self.session.update((key, value) for key, value in update.items() if key not in ("sessionUpdate", "state"))
        elif state == "model" and "model" in update:
            self.session["model"] = update["model"]
        elif state == "retry" and update["phase"] == "start":
            self.retries += 1
        elif state == "compaction" and update["phase"] == "end" and update.get("success", True):
            self.compactions += 1
        self.progress.state(event)

    # ------------------------------------------------------------ the run

    def to_dict(
        self,
        dialect: str | None,
        report: dict[str, Any],
        judge: verdict.Judge | None = None,
        exit: Exit | None = None,
    ) -> dict[str, Any]:
        """The run so far, with the keys of issue 2; ``judge`` is the dialect's word on a stream that has not said how
        it ended, ``exit`` what the caller knows besides."""
        shown = [text for text in self.texts if text.text]
        texts = [text.text for text in shown if text.kind == ev.MESSAGE and text.thread is None]
        calls = [call.to_dict() for call in self._ordered_calls()]
        agents = self._subagents(calls)
        exit = exit or Exit()
        told = self.progress.decide(self, report, judge, exit)
        errors = [dict(error) for error in self.errors]
        by_stderr = told["outcome"] == "failed" or told["reason"] == "stderr"  # the latter: only stderr names the limit
        if by_stderr and not errors and exit.stderr_text:
            errors.append({"message": exit.stderr_text, "fatal": True, "line": None})
        return {
            "dialect": dialect,
            "version": self.session.get("version"),
            "session_id": self.session.get("sessionId"),
            "model": self.session.get("model"),
            "cwd": self.session.get("cwd"),
            "verdict": told,
            "final_text": texts[-1] if texts else None,
            "texts": texts,
            "thinking": [text.text for text in shown if text.kind == ev.THOUGHT and text.thread is None],
            "messages": self._messages(),
            "tool_calls": calls,
            "plan": self.plan,
            "subagents": agents,
            "usage": self.ledger.to_dict(self.compactions > 0, bool(agents)),
            "cost_usd": self.ledger.cost(),
            "errors": errors,
            "retries": self.retries,
            "compactions": self.compactions,
            "report": report,
        }

    def last_call_time(self) -> str | None:
        """The latest of the times at which calls began and ended, as they are printed."""
        facts = (call.facts for call in self._ordered_calls())
        times = (call[key] for call in facts for key in ("started_at", "ended_at"))
        return max((time for time in times if time is not None), default=None)

    def _ordered_calls(self) -> list[Call]:
        """The calls that were announced, as announced; one with an order goes before those with a greater one."""
        calls: list[Call] = []
        for _, call in sorted(self.calls.items()):
            at = len(calls)
            while at and call.order is not None and (calls[at - 1].order or "") > call.order:
                at -= 1
            if call.announced:
                calls.insert(at, call)
        return calls

    def _messages(self) -> list[dict[str, Any]]:
        """What persons and agents said, block by block: role, text, and whose it is."""
        return [
            {
                "role": "user" if text.kind == ev.USER else "assistant",
                "text": text.text,
                "images": text.images,
                "message_id": text.message_id,
                "model": text.model,
                "parent": text.thread,
                "line": text.line,
            }
            for text in self.texts
            if text.kind != ev.THOUGHT and (text.text or text.images)
        ]

    def _subagents(self, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Each thread that is not the main one: the delegating call, its texts, its calls."""
        threads: dict[str, dict[str, Any]] = {}
        names = {call["id"]: call for call in calls}
        for thread in [t.thread for t in self.texts if t.thread is not None] + [
            call["parent"] for call in calls if call["parent"] is not None
        ]:
            if thread not in threads:
                delegating = names.get(thread)
                threads[thread] = {
                    "tool_call_id": thread,
                    "name": agent_name(delegating),
                    "texts": [t.text for t in self.texts if t.thread == thread and t.kind == ev.MESSAGE and t.text],
                    "thinking": [t.text for t in self.texts if t.thread == thread and t.kind == ev.THOUGHT and t.text],
                    "tool_calls": [call["id"] for call in calls if call["parent"] == thread],
                    "result": delegating["result"] if delegating else None,
                }
        return list(threads.values())


def beginning(text: str, most: int) -> str:
    """As many of the first ``most`` bytes of a text as make up whole characters."""
    return text.encode()[:most].decode("utf-8", "ignore")


def agent_name(call: dict[str, Any] | None) -> str | None:
    """What the delegating call's arguments call the agent."""
    arguments = call["input"] if call and isinstance(call["input"], dict) else {}
    for key in ("subagent_type", "agent_name", "agent", "agent_type", "name"):
        if isinstance(arguments.get(key), str):
            name: str = arguments[key]
            return name
    return None
