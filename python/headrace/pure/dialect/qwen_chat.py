"""Qwen Code's session file, and the files of its sub-agents (recorded: 0.5.0, 0.12.0, 0.24.4).

One record per model turn, with Gemini's parts. The records are a tree: one whose `parentUuid` is not the record before
it takes back the branch in between (a rewind). Token counts stand in `assistant` records and again in telemetry, which
also has the calls that no record shows (sub-agents, helpers): a call is counted once, and one that only telemetry has
is a side call. Failures are telemetry too: one that no further answer follows is an error of the run. Nothing says
that a run is over: an answer as the last message is all there is.
"""

from __future__ import annotations

from typing import Any

from .. import event as ev
from ..emit import Emitter, count, price, tokens
from ..event import Stamp
from ..record import Record
from ..run import Ending, Exit, Reducer
from ..wire import as_text
from . import SURE, UNKNOWN, Outcome, Sign, qwen
from .gemini_chat import diff_of, images_of, parts_of, result_of, text_of

NAME = "qwen-chat"

#: `status` of a result; without one (sub-agents) the response tells
STATUS = {"success": "completed", "error": "failed", "cancelled": "failed"}
IGNORED = {
    "attribution_snapshot": "attribution",
    "file_history_snapshot": "file history",
    "slash_command": "slash command",
    "at_command": "command",
    "rewind": "rewind",
    "branch_checkpoint": "checkpoint",
    "turn_result": "result of a turn",
    "session_model": "model of the session",
    "goal_state": "goal state",
    # known from the source of 2026-11
    "agent_bootstrap": "sub-agent",
    "agent_launch_prompt": "sub-agent",
    "agent_retry": "sub-agent",
    "agent_session_ready": "sub-agent",
    "background_task_completed": "background task",
    "goal_turn_end": "goal state",
    "omni_recall": "recall",
    "parent_session": "facts of the session",
    "session_approval_mode": "facts of the session",
    "session_artifact_event": "artifacts",
    "session_artifact_snapshot": "artifacts",
    "session_execution_engine": "facts of the session",
    "session_notes": "notes",
    "session_source": "facts of the session",
    "session_sources_snapshot": "facts of the session",
    "user_text_elements": "elements of a prompt",
}
#: subtypes of `user` records that are a person's words: typed while tools ran, or spoken
SPOKEN = ("mid_turn_user_message", "realtime_message")
ABORT = "APIUserAbortError"
_MATCHES = 256  # how many model calls wait for their other half

_Triple = list[int | None]


def sign(record: dict[str, Any]) -> Sign | None:
    if "sessionId" not in record or "parentUuid" not in record:
        return None
    kind, message, version = as_text(record.get("type")), record.get("message"), as_text(record.get("version"))
    if isinstance(message, dict) and isinstance(message.get("parts"), list):
        return Sign(SURE, f"a record ({kind or 'no type'}) with parentUuid and message.parts", version)
    if kind == "system" and "systemPayload" in record:
        return Sign(SURE, "a system record with systemPayload", version)
    return None


class Mapper:
    def __init__(self, out: Emitter) -> None:
        self.out = out
        self.path: dict[str, int] = {}  # records of the branch that goes on, by uuid, in order
        self.last: str | None = None  # the last of them
        self.durations: dict[str, float] = {}  # of calls whose result is still to come
        self.untold: Call | None = None  # a model call that only telemetry told so far
        self.telemetry: list[_Triple] = []  # counters of calls that were told by telemetry
        self.records: list[_Triple] = []  # and by records
        self.failure: tuple[str, Stamp] | None = None  # of the last model call, which may be tried again
        self.ended: str | None = None  # how the last turn ended, as far as its last record tells

    def map(self, record: Record) -> Outcome:
        value = record.value
        uuid, kind = _kept(value.get("uuid")), value.get("type")
        stamp = self._stamp(value)
        if uuid is not None:
            if uuid in self.path:
                return "record again"
            if value.get("isSidechain") is not True:
                self._follow(uuid, _kept(value.get("parentUuid")))
        self.out.session_state(
            Stamp(timestamp=stamp.timestamp),
            sessionId=as_text(value.get("sessionId")),
            version=as_text(value.get("version")),
            cwd=as_text(value.get("cwd")),
        )
        if kind == "system":
            return self._system(value, stamp)
        self._tell(value.get("usageMetadata") if kind == "assistant" else None, uuid, stamp)
        message = value.get("message")
        parts = parts_of(message.get("parts")) if isinstance(message, dict) else []
        if kind == "assistant":
            self._assistant(parts, uuid, stamp)
            return None
        if kind == "tool_result":
            self._result(value, parts, stamp)
            return None
        if kind == "user":
            return self._user(value, parts, uuid, stamp)
        return UNKNOWN

    def close(self) -> None:
        self._tell(None, None, Stamp())
        self._settle_failure()

    def judge(self, run: Reducer, exit: Exit) -> Ending | None:
        if self.ended in ("failed", "cancelled"):
            return Ending(self.ended, None, "the last model call of the session failed")
        if self.ended == "completed" and not exit.code:
            return Ending("completed", None, "the last message of the session is an answer")
        return None

    # ------------------------------------------------------------ the tree

    def _follow(self, uuid: str, parent: str | None) -> None:
        """The record goes on where its parent stands; what came after that is taken back."""
        if parent != self.last and parent in self.path:
            ids = list(self.path)
            for gone in ids[self.path[parent] + 1 :][::-1]:
                del self.path[gone]
                for chunk in ev.CHUNKS:
                    self.out.drop(chunk, gone, Stamp(message_id=gone))
        self.path[uuid] = len(self.path)
        self.last = uuid

    def _stamp(self, value: dict[str, Any]) -> Stamp:
        return Stamp(
            session_id=as_text(value.get("sessionId")),
            message_id=as_text(value.get("uuid")),
            timestamp=as_text(value.get("timestamp")),
            model=as_text(value.get("model")),
            parent=self._delegating(value.get("agentId"), value.get("agentName")),
        )

    def _delegating(self, agent: Any, kind: Any) -> str | None:
        """The call that delegated: a sub-agent's id is its kind and the id of that call. Its own file stands alone."""
        if not isinstance(agent, str) or not isinstance(kind, str) or not agent.startswith(f"{kind}-"):
            return None
        call_id = agent[len(kind) + 1 :]
        return call_id if self.out.knows(call_id) else None

    # ------------------------------------------------------------ messages

    def _user(self, value: dict[str, Any], parts: list[dict[str, Any]], uuid: str | None, stamp: Stamp) -> Outcome:
        subtype = value.get("subtype")
        machine = subtype is not None and subtype not in SPOKEN
        if machine or value.get("provenance", "real_user") != "real_user":
            self.ended = None
            return "notice from the harness"
        self._settle_failure()
        self.ended = None
        if stamp.parent is None:
            self.out.state("turn", stamp, phase="start")
        self._say(ev.USER, uuid, text_of(parts), stamp)
        for image in images_of(parts):
            self.out.image(ev.USER, image, stamp)
        return None

    def _say(self, kind: str, uuid: str | None, text: str, stamp: Stamp) -> None:
        """A text of a record; the record's uuid names it for a rewind."""
        if uuid is None:
            self.out.whole(kind, text, stamp)
        else:
            self.out.final(kind, uuid, text, stamp)

    def _assistant(self, parts: list[dict[str, Any]], uuid: str | None, stamp: Stamp) -> None:
        self._retry()
        self.out.next_turn()
        self.out.session_state(Stamp(timestamp=stamp.timestamp), model=stamp.model)
        thoughts = "".join(p["text"] for p in parts if isinstance(p.get("text"), str) and p.get("thought") is True)
        text = text_of(parts)
        self._say(ev.THOUGHT, uuid, thoughts, stamp)
        self._say(ev.MESSAGE, uuid, text, stamp)
        calls = [part["functionCall"] for part in parts if isinstance(part.get("functionCall"), dict)]
        for call in calls:
            call_id, name, arguments = as_text(call.get("id")), as_text(call.get("name")), call.get("args")
            if call_id is None:
                continue
            self.out.call(call_id, name, arguments, stamp)
            qwen.plan(self.out, name, arguments, stamp)
        if stamp.parent is None:
            self.ended = "completed" if text and not calls else None

    def _result(self, value: dict[str, Any], parts: list[dict[str, Any]], stamp: Stamp) -> None:
        result = value.get("toolCallResult")
        result = result if isinstance(result, dict) else {}
        answers = [part["functionResponse"] for part in parts if isinstance(part.get("functionResponse"), dict)]
        call_id = as_text(result.get("callId")) or next(
            (a["id"] for a in answers if isinstance(a.get("id"), str)), None
        )
        if call_id is None:
            return
        word, display = result.get("status"), result.get("resultDisplay")
        failed = any(isinstance(a.get("response"), dict) and "error" in a["response"] for a in answers)
        status = STATUS.get(word) if isinstance(word, str) else "failed" if failed else "completed"
        content = [block for part in parts for block in result_of(part)]
        if not content and isinstance(display, str):
            content = ev.text_content(display)
        measured = self.durations.pop(ev.clean(call_id), None)
        self.out.update(
            call_id,
            stamp,
            status=status,
            done=True,
            content=content + diff_of(display),
            exit_code=count(display.get("exitCode")) if isinstance(display, dict) else None,
            duration_ms=measured if measured is not None else price(result.get("durationMs")),
            raw_output=result if result else ...,
        )

    # ------------------------------------------------------------ telemetry, and what it repeats

    def _system(self, value: dict[str, Any], stamp: Stamp) -> Outcome:
        subtype, payload = value.get("subtype"), value.get("systemPayload")
        payload = payload if isinstance(payload, dict) else {}
        if subtype == "ui_telemetry":
            event = payload.get("uiEvent")
            return self._telemetry(event, stamp) if isinstance(event, dict) else UNKNOWN
        if subtype == "chat_compression":
            self.out.state("compaction", stamp, phase="end", success=True)
            return None
        if subtype == "custom_title":
            self.out.session_state(stamp, title=as_text(payload.get("customTitle")))
            return None
        return IGNORED.get(subtype, UNKNOWN) if isinstance(subtype, str) else UNKNOWN

    def _telemetry(self, event: dict[str, Any], stamp: Stamp) -> Outcome:
        name = event.get("event.name")
        if name == "qwen-code.tool_call":
            call_id, duration = _kept(event.get("call_id")), price(event.get("duration_ms"))
            if call_id is not None and duration is not None and self.out.is_open(call_id):
                self.durations[call_id] = duration
            return "telemetry"
        if name == "qwen-code.api_error":
            return self._api_error(event, stamp)
        if name != "qwen-code.api_response":
            return "telemetry"
        self._tell(None, None, stamp)
        self._retry()
        call = Call(event, stamp)
        if call.triple in self.records:
            self.records.remove(call.triple)
            return "usage again"
        parent = self._delegating(event.get("subagent_id"), event.get("subagent_type"))
        call.stamp.parent = parent
        call.stamp.model = _kept(event.get("model"))
        if parent is not None or "subagent_id" in event:
            self._tell_side(call)
        else:
            self.untold = call
        return None

    def _api_error(self, event: dict[str, Any], stamp: Stamp) -> Outcome:
        if "subagent_id" in event:
            return "telemetry"
        self._retry()
        message = _kept(event.get("error_message")) or _kept(event.get("error")) or "a model call failed"
        self.failure = (message, _kept_stamp(stamp))
        self.ended = "cancelled" if event.get("error_type") == ABORT else "failed"
        return None

    def _tell(self, counters: Any, uuid: str | None, stamp: Stamp) -> None:
        """Counts a model call once: as the counters of its `assistant` record tell it, or as telemetry alone does."""
        call, self.untold = self.untold, None
        if isinstance(counters, dict):
            triple = [
                count(counters.get(key)) for key in ("promptTokenCount", "candidatesTokenCount", "totalTokenCount")
            ]
            if call is not None and call.triple == triple:
                call = None
            elif triple in self.telemetry:
                self.telemetry.remove(triple)
                counters = None
            else:
                self.records = [*self.records, triple][-_MATCHES:]
        if call is not None:
            self._tell_side(call)
        if isinstance(counters, dict):
            self.out.usage("call", _record_usage(counters), stamp, key=uuid)

    def _tell_side(self, call: Call) -> None:
        """A call of a sub-agent or a helper; the sub-agent's own file, read behind the session, has it again."""
        self.telemetry = [*self.telemetry, call.triple][-_MATCHES:]
        self.out.usage("call", call.usage, call.stamp, key=call.key, side=call.stamp.parent is None)

    def _retry(self) -> None:
        """A failed model call was tried again: its error was none of the run."""
        failure, self.failure = self.failure, None
        if failure is not None:
            self.out.error(failure[0], failure[1], fatal=False, notice=True)
            self.out.state("retry", failure[1], phase="start", message=failure[0])

    def _settle_failure(self) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            self.out.error(failure[0], failure[1], fatal=True)


class Call:
    """A model call as telemetry tells it."""

    __slots__ = ("key", "stamp", "triple", "usage")

    def __init__(self, event: dict[str, Any], stamp: Stamp) -> None:
        prompt, completion = count(event.get("input_token_count")), count(event.get("output_token_count"))
        self.triple = [prompt, completion, count(event.get("total_token_count"))]
        self.key = _kept(event.get("response_id"))
        self.stamp = _kept_stamp(Stamp(session_id=stamp.session_id, timestamp=stamp.timestamp))
        self.usage = tokens(
            prompt,
            completion,
            count(event.get("cached_content_token_count")),
            extra=_counts(event, ("thoughts_token_count", "total_token_count")),
        )


def _record_usage(counters: dict[str, Any]) -> dict[str, Any]:
    """Gemini's names with OpenAI's sums: the candidates include the thoughts."""
    return tokens(
        count(counters.get("promptTokenCount")),
        count(counters.get("candidatesTokenCount")),
        count(counters.get("cachedContentTokenCount")),
        extra=_counts(counters, ("thoughtsTokenCount", "totalTokenCount")),
    )


def _counts(value: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: value[key] for key in keys if count(value.get(key)) is not None}


def _kept(value: Any) -> str | None:
    """A text that is kept beyond its record, as it can be shown."""
    return ev.clean(value) if isinstance(value, str) else None


def _kept_stamp(stamp: Stamp) -> Stamp:
    return Stamp(
        session_id=_kept(stamp.session_id),
        message_id=_kept(stamp.message_id),
        timestamp=_kept(stamp.timestamp),
        model=_kept(stamp.model),
        parent=_kept(stamp.parent),
    )
