"""EvoScientist: ``EvoSci --output-format stream-json`` (seed 001; recorded with 0.3.8).

No ids, clock, model or session stand on this stream. What the seed does not say and the recordings show: `model_retry`
and `model_output_discarded` take output back; a task's `tool_result` comes before its `subagent_end`; `done.response`
joins the texts of all model calls, so it is a check and not the answer; a pause for approval ends with `done` too.
"""

from __future__ import annotations

from typing import Any

from .. import event as ev
from .. import tool
from ..emit import Emitter, count, price, scoped, tokens
from ..event import Stamp
from ..record import Record
from ..run import Ending, Exit, Reducer
from ..wire import as_text
from . import SURE, UNKNOWN, Outcome, Sign

NAME = "evosci"

IGNORED = {
    "tool_selection": "tool selection",
    "panel_dispatch_start": "panel dispatch",
    "panel_dispatch_complete": "panel dispatch",
    "panel_dispatch_error": "panel dispatch",
    "rubric_evaluation_deferred": "rubric evaluation",
    "goal_state": "goal state",
}

WORK = ("text", "thinking", "tool_call", "model_retry", "usage_stats")
"""Records that another run in the same source may begin with."""

# keys that tell the record types apart from the same words of other harnesses; (needed keys, weight)
SIGNS: dict[str, tuple[frozenset[str], int]] = {
    "thinking": (frozenset({"content", "id"}), SURE),
    "text": (frozenset({"content"}), 40),
    "tool_call": (frozenset({"name", "args", "id"}), SURE),
    "tool_result": (frozenset({"name", "content", "success", "id"}), SURE),
    "subagent_start": (frozenset({"name", "description"}), SURE),
    "subagent_text": (frozenset({"subagent", "content", "instance_id"}), SURE),
    "subagent_tool_call": (frozenset({"subagent", "name", "args"}), SURE),
    "subagent_tool_result": (frozenset({"subagent", "name", "content"}), SURE),
    "subagent_end": (frozenset({"name"}), SURE),
    "tool_selection": (frozenset({"tools"}), 60),
    "summarization_start": (frozenset(), 60),
    "summarization": (frozenset({"content"}), 60),
    "usage_stats": (frozenset({"input_tokens", "output_tokens"}), SURE),
    "interrupt": (frozenset({"interrupt_id", "action_requests"}), SURE),
    "ask_user": (frozenset({"interrupt_id", "questions"}), SURE),
    "error": (frozenset({"message"}), 10),
    "done": (frozenset({"content", "response"}), SURE),
    "model_retry": (frozenset({"attempt", "discarded"}), SURE),
    "model_output_discarded": (frozenset({"discarded"}), SURE),
    "panel_dispatch_start": (frozenset({"eval_id"}), SURE),
    "panel_dispatch_complete": (frozenset({"eval_id"}), SURE),
    "panel_dispatch_error": (frozenset({"eval_id"}), SURE),
    "rubric_evaluation_start": (frozenset({"iteration"}), SURE),
    "rubric_evaluation": (frozenset({"result"}), SURE),
    "rubric_evaluation_deferred": (frozenset({"tasks"}), 60),
    "goal_state": (frozenset({"change", "status"}), 60),
}
_SERVED = "tools:"
_FOREIGN = frozenset({"sessionID", "session_id", "sessionId", "timestamp", "message_id", "part", "uuid", "schema"})


def sign(record: dict[str, Any]) -> Sign | None:
    kind = record.get("type")
    known = SIGNS.get(kind) if isinstance(kind, str) else None
    if known is None or not known[0] <= record.keys() or not _FOREIGN.isdisjoint(record):
        return None
    return Sign(known[1], f"a {kind} record with " + (", ".join(sorted(known[0])) or "nothing else"))


class Mapper:
    def __init__(self, out: Emitter) -> None:
        self.out = out
        self.streaming: dict[str | None, str] = {}  # kind of text that streams now, by thread
        self.tasks: dict[str, str] = {}  # name of a sub-agent: id of the last call that delegated to one of that name
        self.agents: dict[str, str] = {}  # instance id of a sub-agent, or its name: id of the call that delegated to it
        self.waits = False  # an interrupt or a question came, and nothing of the agent since
        self.rubric: str | None = None  # result of the last rubric evaluation
        self.said = False  # any text of the main agent
        self.summary: str | None = None  # of the compaction that is told now, as far as it came
        self.failed = False  # an error was the last record
        self.over = False  # a run ended, and none began since

    def map(self, record: Record) -> Outcome:
        value = record.value
        kind = value.get("type")
        failed, self.failed = self.failed, False
        if self.summary is not None and kind != "summarization":
            self._end_summary()
        if self.over and kind in WORK:
            self.over = False
            self.out.state("turn", Stamp(), phase="start")
        if kind in ("text", "thinking"):
            return self._text(ev.MESSAGE if kind == "text" else ev.THOUGHT, value, None)
        if kind == "subagent_text":
            return self._text(ev.MESSAGE, value, self._thread(value))
        if kind in ("tool_call", "subagent_tool_call"):
            return self._call(value)
        if kind in ("tool_result", "subagent_tool_result"):
            return self._result(value)
        if kind == "usage_stats":
            self.out.usage("call", tokens(count(value.get("input_tokens")), count(value.get("output_tokens"))), Stamp())
            self._end_call(None)
            return None
        if kind in ("subagent_start", "subagent_end"):
            return self._subagent(kind, value)
        if kind in ("model_retry", "model_output_discarded"):
            return self._discard(kind, value)
        if kind in ("interrupt", "ask_user"):
            return self._ask(kind, value)
        if kind == "summarization_start":
            self.out.state("compaction", Stamp(), phase="start")
            return None
        if kind == "summarization":
            self.summary = (self.summary or "") + self.out.clean(as_text(value.get("content")) or "")
            return None
        if kind in ("rubric_evaluation_start", "rubric_evaluation"):
            self._end_call(None)  # a pass is graded: what comes next is a new answer
            self.rubric = as_text(value.get("result"))
            return "rubric evaluation"
        if kind == "error":
            return self._error(value)
        if kind == "done":
            return "end after an error" if failed else self._done(value)
        return IGNORED.get(kind, UNKNOWN) if isinstance(kind, str) else UNKNOWN

    def close(self) -> None:
        if self.summary is not None:
            self._end_summary()

    def judge(self, run: Reducer, exit: Exit) -> Ending | None:
        return None

    # ------------------------------------------------------------ records

    def _text(self, kind: str, value: dict[str, Any], thread: str | None) -> Outcome:
        text = as_text(value.get("content"))
        if not text:
            return "empty text"
        if value["type"] == "subagent_text" and thread is None:
            return "sub-agent without a call"
        if self.streaming.get(thread, kind) != kind:
            self.out.close(thread)
        self.streaming[thread] = kind
        self.out.delta(kind, "stream", text, Stamp(parent=thread))
        if thread is None:
            self.waits = False
            self.said = self.said or kind == ev.MESSAGE
        return None

    def _call(self, value: dict[str, Any]) -> Outcome:
        thread = self._thread(value)
        name, arguments = as_text(value.get("name")), value.get("args")
        self.out.close(thread)
        self.streaming.pop(thread, None)
        call_id, stamp = as_text(value.get("id")) or "", Stamp(parent=thread)
        self.out.call(call_id, name, arguments, stamp, key=scoped(call_id, stamp), twin=True)
        agent = as_text(arguments.get("subagent_type")) if isinstance(arguments, dict) else None
        if agent and thread is None:
            self.tasks[ev.clean(agent)] = ev.clean(call_id)
        if name == "write_todos" and isinstance(arguments, dict):
            entries = tool.plan_of(arguments.get("todos"))
            if entries is not None:
                self.out.plan(entries, Stamp(parent=thread))
        self.waits = False
        return None

    def _result(self, value: dict[str, Any]) -> Outcome:
        thread = self._thread(value)
        self._end_call(thread)
        success = value.get("success")
        status = {True: "completed", False: "failed"}.get(success) if isinstance(success, bool) else None
        content = value.get("content")
        call_id, stamp = as_text(value.get("id")) or "", Stamp(parent=thread)
        self.out.update(
            call_id,
            stamp,
            key=scoped(call_id, stamp),
            status=status,
            done=True,
            content=ev.text_content(content) if isinstance(content, str) else None,
        )
        self.waits = False
        return None

    def _subagent(self, kind: str, value: dict[str, Any]) -> Outcome:
        name = as_text(value.get("name")) or ""
        if name == "tools":
            return "sub-agent that is a plain tool call"
        name = ev.clean(name)
        agent = ev.clean(as_text(value.get("instance_id")) or "") or name
        if kind == "subagent_start":
            call_id = as_text(value.get("tool_call_id")) or self.tasks.get(name)
            if agent and call_id:
                self.agents[agent] = ev.clean(call_id)
        elif agent in self.agents:
            self.out.close(self.agents[agent])
        return "sub-agent start and end"

    def _discard(self, kind: str, value: dict[str, Any]) -> Outcome:
        """Output of a failed attempt is taken back: that of the main agent or of one sub-agent."""
        thread = self._thread(value)
        stamp = Stamp(parent=thread)
        if thread is not None or not (as_text(value.get("instance_id")) or as_text(value.get("subagent"))):
            discarded = value.get("discarded")
            discarded = discarded if isinstance(discarded, dict) else {}
            self.out.take_back(ev.MESSAGE, max(0, count(discarded.get("text_chars")) or 0), stamp)
            self.out.take_back(ev.THOUGHT, max(0, count(discarded.get("thinking_chars")) or 0), stamp)
            ids = discarded.get("tool_call_ids")
            for call_id in ids if isinstance(ids, list) else []:
                if isinstance(call_id, str) and self.out.is_open(scoped(call_id, stamp)):
                    self.out.update(call_id, stamp, key=scoped(call_id, stamp), status="failed")
            self._end_call(thread)
        if kind == "model_retry":
            attempt, wait = count(value.get("attempt")), price(value.get("wait_seconds"))
            self.out.state(
                "retry",
                stamp,
                phase="start",
                attempt=None if attempt is None else attempt - 1,  # printed: the number of the attempt to come
                delayMs=None if wait is None else wait * 1000,
                message=as_text(value.get("cause")) or as_text(value.get("reason")),
            )
        return None

    def _ask(self, kind: str, value: dict[str, Any]) -> Outcome:
        self.waits = True
        if kind == "ask_user":
            questions = value.get("questions")
            first = questions[0] if isinstance(questions, list) and questions else None
            question = as_text(first.get("question")) if isinstance(first, dict) else None
            self.out.state(
                "approval", Stamp(), phase="requested", toolCallId=as_text(value.get("tool_call_id")), message=question
            )
            return None
        requests = value.get("action_requests")
        for request in requests if isinstance(requests, list) else []:
            if isinstance(request, dict):
                self.out.state(
                    "approval",
                    Stamp(),
                    phase="requested",
                    toolName=as_text(request.get("name")),
                    message=as_text(request.get("description")),
                )
        return None

    def _error(self, value: dict[str, Any]) -> Outcome:
        message = as_text(value.get("message")) or ""
        limit = message.startswith("Recursion limit of ")
        self.out.error(message, Stamp(), fatal=True)
        self.out.state("end", Stamp(), outcome="limit" if limit else "failed", reason="error")
        self._end_run()
        self.failed = True
        return None

    def _done(self, value: dict[str, Any]) -> Outcome:
        response = as_text(value.get("response"))
        if response and not self.said:
            self.out.whole(ev.MESSAGE, response, Stamp())  # only the terminal record carries the answer
        outcome, reason = "completed", "done"
        if self.waits:
            outcome, reason = "incomplete", "waits for an answer"
        elif self.rubric is not None and self.rubric.startswith("max_iterations"):
            outcome, reason = "limit", self.rubric
        self.out.state("end", Stamp(), outcome=outcome, reason=reason)
        self._end_run()
        return None

    def _end_summary(self) -> None:
        """A summary comes whole or in parts, and nothing but the next record says that it is whole."""
        summary, self.summary = self.summary, None
        self.out.state("compaction", Stamp(), phase="end", success=True, summary=summary)

    # ------------------------------------------------------------ threads

    def _thread(self, value: dict[str, Any]) -> str | None:
        """The delegating call, on a sub-agent's record: by its instance, or by its name if the wire tells no more."""
        instance, name = (ev.clean(as_text(value.get(key)) or "") for key in ("instance_id", "subagent"))
        thread = self.agents.get(instance) or self.agents.get(name) or self.tasks.get(name)
        if thread is None and instance.startswith(_SERVED) and self.out.knows(instance.removeprefix(_SERVED)):
            thread = instance.removeprefix(_SERVED)  # the langgraph server names the call
        return thread

    def _end_call(self, thread: str | None) -> None:
        """A model call is over: its texts stay, the next text is a block of its own."""
        self.out.commit(thread)
        self.out.next_turn()
        self.streaming.pop(thread, None)

    def _end_run(self) -> None:
        """What comes next is another run in the same source."""
        self._end_call(None)
        self.waits, self.rubric, self.said = False, None, False
        self.over = True
