"""Qwen Code: ``qwen PROMPT --output-format stream-json|json``, ``--json-file`` (recorded: 0.5.0, 0.12.0, 0.24.4).

It looks like Claude Code's stream and is not: a model turn is several `assistant` records of one kind of block each,
of which only the last has the turn's usage; `input_tokens` includes the cached ones; deltas are numbered afresh with
each record. A failure is printed as if the model had said "[API Error: ...]", in a text block of its own or glued to
the answer it cut, and in the `result` (old versions: as its only text, under "success"). A `retry` that does not
preserve the text takes back what the turn said. A cap or a signal leaves no `result` at all. The person's prompts are
printed in dual output only (`--json-file`, which begins with `session_start`).
"""

from __future__ import annotations

from typing import Any

from .. import event as ev
from .. import tool
from ..emit import Emitter, count, price, tokens
from ..event import Stamp
from ..record import Record
from ..run import Ending, Exit, Reducer
from ..wire import as_list, as_text
from . import SURE, UNKNOWN, Outcome, Sign

NAME = "qwen"

#: `subtype` of a failed result: how the run ended; any other is a failure
OUTCOMES = {
    "error_max_turns": "limit",
    "error_max_budget_usd": "limit",
    "error_max_structured_output_retries": "limit",
}
#: exit codes of runs that a cap ended: no record tells
EXITS = {53: "the cap on session turns", 55: "a cap on tool calls or time"}
COUNTERS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "total_tokens")
CANCELLED = "Operation cancelled."
API_ERROR = "[API Error: "
QUOTA = "Qwen OAuth quota exceeded:"
#: how failures begin that are printed as text
FAILURES = (API_ERROR, QUOTA, "Qwen OAuth free tier has been discontinued")
AGENTS = ("agent", "task")
# model calls that only its total has
BEYOND = (
    "calls that are not printed: helpers such as memory extraction, attempts made again, earlier runs of the session"
)

EVENTS = {
    "content_block_start": "start of a block",
    "content_block_stop": "end of a block",
    "message_stop": "end of a message",
    "goal_state": "goal state",
    "active_goal": "goal state",
}
NOTICES = {
    "task_started": "background task",
    "task_notification": "background task",
    "session_end": "end of the session",
    "session_recording_degraded": "notice",
    "worktree_started": "notice",
    "worktree_restored": "notice",
    "vision_routing": "notice",
    "vision_bridge": "notice",
    "vision_bridge_failed": "notice",
    "continue_turn_failed": "notice",
}
_DELTAS = {"text_delta": (ev.MESSAGE, "text"), "thinking_delta": (ev.THOUGHT, "thinking")}
_BLOCKS = {"text": (ev.MESSAGE, "text"), "thinking": (ev.THOUGHT, "thinking")}


def sign(record: dict[str, Any]) -> Sign | None:
    kind = record.get("type")
    if kind == "system":
        return _system_sign(record)
    message = record.get("message")
    if kind == "assistant" and isinstance(message, dict) and "parent_tool_use_id" in record:
        if isinstance(message.get("id"), str) and message["id"] == record.get("uuid"):
            return Sign(SURE, "an assistant record whose message has the uuid of the record for id")
        return Sign(10, "an assistant record")
    if kind == "user" and isinstance(message, dict) and "parent_tool_use_id" in record and "session_id" in record:
        return Sign(10, "a user record")
    event = record.get("event")
    if kind == "stream_event" and isinstance(event, dict):
        if event.get("type") in ("goal_state", "active_goal"):
            return Sign(SURE, "a stream_event of a goal")
        return Sign(10, "a stream_event")
    if kind == "result" and "is_error" in record and "permission_denials" in record:
        if "total_cost_usd" in record or "modelUsage" in record:
            return None
        failed = isinstance(record.get("error"), dict) or isinstance(record.get("result"), str)
        return Sign(SURE if failed and "stop_reason" not in record else 60, "a result without cost and modelUsage")
    if kind == "control_response" and isinstance(record.get("response"), dict):
        answer = record["response"].get("response")
        if isinstance(answer, dict) and answer.get("subtype") == "initialize" and "capabilities" in answer:
            return Sign(SURE, "an answer to initialize with capabilities")
        return Sign(10, "a control_response")
    if kind == "control_request" and isinstance(record.get("request"), dict):
        return Sign(10, "a control_request")
    return None


def _system_sign(record: dict[str, Any]) -> Sign | None:
    version = record.get("qwen_code_version")
    if isinstance(version, str):
        return Sign(SURE, "system/init with qwen_code_version", version)
    data = record.get("data")
    if record.get("subtype") == "init":
        uuid = record.get("uuid")
        if "permission_mode" in record and isinstance(uuid, str) and uuid == record.get("session_id"):
            return Sign(SURE, "system/init with permission_mode and the session_id as uuid")
        return None
    if not isinstance(data, dict) or "session_id" not in record:
        return None
    if record.get("subtype") == "session_start" and "supported_events" in data:
        return Sign(SURE, "system/session_start with supported_events", as_text(data.get("version")))
    if record.get("subtype") == "retry" and "preserveText" in data:
        return Sign(SURE, "system/retry with preserveText")
    return Sign(60, "a system record with data")


class Mapper:
    def __init__(self, out: Emitter) -> None:
        self.out = out
        self.dual = False  # the person's prompts are printed too
        self.turn_over = True  # results came: what the model says next is a turn of its own
        self.said = ""  # text of the last record of the main agent that had text
        self.error: str | None = None  # the "[API Error: ...]" that was printed as text
        self.reported: str | None = None  # the last error that was told
        self.dropped: list[str] = []  # calls of attempts that were taken back
        self.agents: list[str] = []  # calls that delegated, while they are open
        self.interrupted = False
        self.refused: str | None = (
            None  # the last call of the main agent that has a result, if no text or call came after
        )
        self.answered = False  # the last record of the main agent is an answer

    def map(self, record: Record) -> Outcome:
        value = record.value
        kind = value.get("type")
        if kind == "stream_event" and isinstance(value.get("event"), dict):
            return self._event(value, value["event"])
        if kind == "assistant" and isinstance(value.get("message"), dict):
            return self._assistant(value, value["message"])
        if kind == "user" and isinstance(value.get("message"), dict):
            return self._user(value, value["message"])
        if kind == "system":
            return self._system(value)
        if kind == "result":
            return self._result(value)
        if kind in ("control_request", "control_response", "control_cancel_request"):
            return self._control(kind, value)
        return UNKNOWN

    def close(self) -> None:
        if self.error is not None:
            self._report(self.error, Stamp(), fatal=True)

    def judge(self, run: Reducer, exit: Exit) -> Ending | None:
        if exit.code in EXITS:
            why = f"no result record, and the exit code means {EXITS[exit.code]}"
            return Ending("limit", f"exit code {exit.code}", why)
        if self.dual and self.answered and not run.progress.open_calls and not exit.code:
            return Ending("completed", None, "dual output has no result record, and the last turn ended with an answer")
        return None

    # ------------------------------------------------------------ deltas

    def _event(self, value: dict[str, Any], event: dict[str, Any]) -> Outcome:
        kind, thread = event.get("type"), as_text(value.get("parent_tool_use_id"))
        if kind == "content_block_delta":
            delta = event.get("delta")
            if not isinstance(delta, dict) or not isinstance(delta.get("type"), str):
                return UNKNOWN
            if delta["type"] not in _DELTAS:
                return "input of a call"
            chunk, key = _DELTAS[delta["type"]]
            text = as_text(delta.get(key))
            if not text:
                return "empty text"
            if thread is None:
                self._speak()
            if chunk == ev.MESSAGE and thread is None and text.startswith(FAILURES):
                self.error = ev.clean(text)
                return "error as text"
            if chunk == ev.MESSAGE and thread is None:
                self.refused = None
            self.out.delta(chunk, _index(event.get("index")), text, self._stamp(value))
            return None
        if kind == "message_start":
            if thread is None:
                self._speak()
            return "start of a message"
        if kind == "tool_progress":
            call_id = as_text(event.get("tool_use_id"))
            if call_id is not None and self.out.is_open(call_id):
                self.out.update(call_id, self._stamp(value), status="in_progress")
                return None
            return "late progress"
        return EVENTS.get(kind, UNKNOWN) if isinstance(kind, str) else UNKNOWN

    def _speak(self) -> None:
        """The main agent says something: if results came before, this is a new turn, and the last one stands."""
        if self.turn_over:
            self.turn_over = False
            self.out.commit(None)

    # ------------------------------------------------------------ whole records

    def _assistant(self, value: dict[str, Any], message: dict[str, Any]) -> Outcome:
        stamp = self._stamp(value)
        thread, texts, calls = stamp.parent, [], 0
        if thread is None:
            self._speak()
        self.out.next_turn()
        for index, block in enumerate(as_list(message.get("content"))):
            if not isinstance(block, dict):
                continue
            kind = block.get("type")
            if isinstance(kind, str) and kind in _BLOCKS:
                chunk, key = _BLOCKS[kind]
                text = as_text(block.get(key)) or ""
                if chunk == ev.MESSAGE and thread is None:
                    text = self._without_error(text, stamp)
                    texts.append(text)
                self.out.final(chunk, index, text, stamp)
            elif kind == "tool_use":
                calls += 1
                self._call(block, stamp)
        self.out.close(thread)
        if thread is None:
            self.said = "".join(texts) or self.said
            if calls or any(texts):
                self.refused = None
        used = self._usage(message.get("usage"), stamp)
        if thread is None:
            self.answered = used and not calls and any(texts)
        return None

    def _without_error(self, text: str, stamp: Stamp) -> str:
        """A text block without the failure that the harness put at its end, as far as that can be told already."""
        error, self.error = self.error, None
        if error is None and text.startswith(FAILURES):
            error = text
        if error is None or not ev.clean(text).endswith(error):
            return text
        size = len(text) - len(error)
        self._report(text[size:], stamp, fatal=False)
        return text[:size]

    def _report(self, message: str, stamp: Stamp, *, fatal: bool) -> None:
        """A failure; it is printed as text first and then in the result."""
        self.reported = message
        self.out.error(message, stamp, fatal=fatal)

    def _call(self, block: dict[str, Any], stamp: Stamp) -> None:
        call_id, name, arguments = as_text(block.get("id")), as_text(block.get("name")), block.get("input")
        if call_id is None:
            return
        self.out.call(call_id, name, arguments, stamp, twin=True)
        if name in AGENTS and stamp.parent is None:
            self.agents.append(call_id)
        plan(self.out, name, arguments, stamp)

    def _usage(self, value: Any, stamp: Stamp) -> bool:
        """The usage of a turn; False for the zeros that all its records but the last print."""
        if not isinstance(value, dict) or not any(count(value.get(key)) for key in COUNTERS):
            return False
        self.out.usage("call", usage(value), stamp, key=stamp.message_id)
        return True

    def _user(self, value: dict[str, Any], message: dict[str, Any]) -> Outcome:
        stamp, content = self._stamp(value), message.get("content")
        texts: list[str] = [content] if isinstance(content, str) else []
        outcome: Outcome = "notice from the harness"
        for block in as_list(content):
            if not isinstance(block, dict):
                continue
            if block.get("type") == "tool_result":
                self._tool_result(block, stamp)
                outcome = None
            elif block.get("type") == "text" and isinstance(block.get("text"), str):
                texts.append(block["text"])
        if stamp.parent is None:
            self.turn_over = True
        if texts and stamp.parent is None and self.dual:
            self._turn_starts(stamp)
        if texts and (stamp.parent is not None or self.dual):  # a sub-agent's prompt, or a person's
            for text in texts:
                self.out.whole(ev.USER, text, stamp)
            outcome = None
        return outcome

    def _tool_result(self, block: dict[str, Any], stamp: Stamp) -> None:
        call_id, content, error = as_text(block.get("tool_use_id")), block.get("content"), block.get("is_error")
        if call_id is None:
            return
        texts = (
            [content]
            if isinstance(content, str)
            else [
                item["text"]
                for item in as_list(content)
                if isinstance(item, dict) and isinstance(item.get("text"), str)
            ]
        )
        status = {True: "failed", False: "completed"}.get(error) if isinstance(error, bool) else None
        self.out.update(
            call_id,
            stamp,
            status=status,
            done=True,
            content=[ev.wrapped(ev.text_block(text)) for text in texts],
            again=ev.clean(call_id) in self.dropped,
        )
        if call_id in self.agents:
            self.agents.remove(call_id)
        if stamp.parent is None:
            self.refused = call_id
            self.answered = False

    # ------------------------------------------------------------ system and control

    def _system(self, value: dict[str, Any]) -> Outcome:
        subtype, data = value.get("subtype"), value.get("data")
        stamp = self._stamp(value)
        data = data if isinstance(data, dict) else {}
        if subtype == "init":
            self.out.session_state(
                stamp,
                sessionId=as_text(value.get("session_id")),
                version=as_text(value.get("qwen_code_version")),
                model=as_text(value.get("model")),
                cwd=as_text(value.get("cwd")),
            )
            self._turn_starts(stamp)
            return None
        if subtype == "session_start":
            self.dual = True
            self.out.session_state(
                stamp,
                sessionId=as_text(value.get("session_id")),
                version=as_text(data.get("version")),
                cwd=as_text(data.get("cwd")),
            )
            return None
        if subtype == "retry":
            return self._retry(data, stamp)
        if subtype == "model_fallback":
            self.out.state("model", stamp, model=as_text(data.get("toModel")))
            return None
        return NOTICES.get(subtype, UNKNOWN) if isinstance(subtype, str) else UNKNOWN

    def _turn_starts(self, stamp: Stamp) -> None:
        """A prompt: the person's next one, in a process that takes several."""
        self.out.commit(None)
        self.turn_over, self.interrupted, self.answered = True, False, False
        self.said, self.reported, self.dropped = "", None, []
        self.out.state("turn", stamp, phase="start")

    def _retry(self, data: dict[str, Any], stamp: Stamp) -> Outcome:
        if data.get("preserveText") is False:
            if self.turn_over and not count(data.get("discardedToolCalls")):
                self.out.commit(None)  # the attempt that failed had said nothing
            else:
                self.dropped += self.out.open_calls()
                self.out.abandon(None, stamp)
                self.said = ""
        self.out.state(
            "retry",
            stamp,
            phase="start",
            attempt=count(data.get("attempt")),
            maxAttempts=count(data.get("maxRetries")),
            delayMs=price(data.get("delayMs")),
            message=as_text(data.get("reason")),
        )
        return None

    def _control(self, kind: str, value: dict[str, Any]) -> Outcome:
        request, response = value.get("request"), value.get("response")
        if kind == "control_request" and isinstance(request, dict) and request.get("subtype") == "can_use_tool":
            self.out.state(
                "approval",
                Stamp(),
                phase="requested",
                toolCallId=as_text(request.get("tool_use_id")),
                toolName=as_text(request.get("tool_name")),
            )
            return None
        answer = response.get("response") if isinstance(response, dict) else None
        if isinstance(answer, dict) and answer.get("subtype") == "interrupt":
            self.interrupted = True
        if isinstance(answer, dict) and isinstance(answer.get("allowed"), bool):
            self.out.state("approval", Stamp(), phase="settled", decision="allowed" if answer["allowed"] else "denied")
            return None
        return "control"

    # ------------------------------------------------------------ the end

    def _result(self, value: dict[str, Any]) -> Outcome:
        stamp, subtype, error = self._stamp(value), as_text(value.get("subtype")), value.get("error")
        message = as_text(error.get("message")) if isinstance(error, dict) else None
        failed = value.get("is_error") is True
        if failed and count(value.get("duration_ms")) == 0 and self.agents:
            if message is not None:
                self.out.error(message, stamp, fatal=False, notice=True)
            return None  # that of a sub-agent
        text = as_text(value.get("result")) or ""
        if not failed and text.startswith(FAILURES):  # old versions call it a success
            failed, message, text = True, text, ""
        elif not failed and self.reported is not None and text.endswith(self.reported):  # behind the text that it cut
            failed, message, text = True, self.reported, ""
        elif not failed and (at := self._cut_by_failure(text)) is not None:
            failed, message, text = True, text[at:], ""
        if isinstance(value.get("usage"), dict):
            self.out.usage("run", usage(value["usage"]), stamp, beyond=BEYOND)
        self._fail(message, stamp) if failed else self._answer(text, stamp)
        outcome = OUTCOMES.get(subtype or "", "failed") if failed else "completed"
        if failed and (self.interrupted or message == CANCELLED):
            outcome = "cancelled"
        elif failed and (message or "").startswith(QUOTA):
            outcome = "limit"
        elif not failed and self._denied(value.get("permission_denials")):
            outcome = "denied"
        self.out.commit(None)
        self.turn_over = True
        self.out.state("end", stamp, outcome=outcome, reason=subtype)
        return None

    def _answer(self, text: str, stamp: Stamp) -> None:
        """The answer again, or one that only the result carries (structured output)."""
        if text and text != self.said:
            self.out.commit(None)
            self.out.whole(ev.MESSAGE, text, stamp)

    def _fail(self, message: str | None, stamp: Stamp) -> None:
        if message is None:
            return
        if message != self.reported and self.said.endswith(message):  # glued to the text that the failure cut
            self.out.take_back(ev.MESSAGE, len(message), stamp)
        self._report(message, stamp, fatal=True)

    def _cut_by_failure(self, answer: str) -> int | None:
        """Where the failure begins that old versions glued to the answer it cut, in a run that they call a success.

        An answer that came whole has a usage: there the model quotes a failure.
        """
        cut = not self.answered and answer == self.said and answer.endswith("]")
        at = answer.rfind(API_ERROR) if cut else -1
        return at if at >= 0 else None

    def _denied(self, denials: Any) -> bool:
        """The turn ended at a call that was refused, and the model said nothing more."""
        ids = [denial.get("tool_use_id") for denial in as_list(denials) if isinstance(denial, dict)]
        return self.refused is not None and self.refused in ids

    def _stamp(self, value: dict[str, Any]) -> Stamp:
        message = value.get("message")
        message = message if isinstance(message, dict) else {}
        return Stamp(
            session_id=as_text(value.get("session_id")),
            message_id=as_text(message.get("id")),
            model=as_text(message.get("model")),
            parent=as_text(value.get("parent_tool_use_id")),
        )


def plan(out: Emitter, name: str | None, arguments: Any, stamp: Stamp) -> None:
    """The plan in the arguments of the todo tool."""
    if name == "todo_write" and isinstance(arguments, dict):
        entries = tool.plan_of(arguments.get("todos"))
        if entries is not None:
            out.plan(entries, stamp)


def usage(value: dict[str, Any]) -> dict[str, Any]:
    """Qwen's counters: input includes what was read from the cache."""
    return tokens(
        count(value.get("input_tokens")),
        count(value.get("output_tokens")),
        count(value.get("cache_read_input_tokens")),
        extra={"total_tokens": value["total_tokens"]} if count(value.get("total_tokens")) is not None else None,
    )


def _index(value: Any) -> int:
    return count(value) or 0
