"""Claude Code: ``claude -p --output-format stream-json --verbose`` (recorded from 0.2.126 to 2.1.332).

One `assistant` record per finished block, all blocks of a model message with one `message.id`; its usage is that of the
moment, so the last one of an id counts, and with partial messages the `message_delta` of the stream has the true one.
Stream events come before the block that repeats them: the record is the authority. A cut message is closed with
`abandoned_blocks`, and what it takes back goes. `result` closes a turn, not the stream: the last one decides the run.
Its `subtype` says success for API failures too; `is_error` does not. Synthetic assistant records are the harness's own
words: an error or the output of a local command, never an answer.
"""

from __future__ import annotations

from typing import Any

from .. import event as ev
from .. import json
from ..emit import Emitter, count, price
from ..event import Stamp
from ..record import Record
from ..run import Ending, Exit, Reducer
from ..wire import as_dict, as_list, as_text
from . import SURE, UNKNOWN, Outcome, Sign, anthropic
from .anthropic import TEXTS, Part

NAME = "claude"

PART = "part of a block"
AGAIN = "record again"
HARNESS_TEXT = "text of the harness"

#: record types that say nothing for events
IGNORED = {
    "rate_limit_event": "rate limit",
    "control_response": "control",
    "control_cancel_request": "control",
    "keep_alive": "control",
    "transcript_mirror": "transcript mirror",
    "tool_use_summary": "tool summary",
    "prompt_suggestion": "prompt suggestion",
    "auth_status": "sign-in",
    "active_goal": "goal",
    "command_lifecycle": "command lifecycle",
}
#: the same for the subtypes of `system`
IGNORED_SYSTEM = {
    "hook_started": "hook",
    "hook_progress": "hook",
    "hook_response": "hook",
    "thinking_tokens": "estimate",
    "session_state_changed": "session state",
    "informational": "notice",
    "notification": "notice",
    "model_refusal_no_fallback": "notice",
    "task_progress": "task",
    "task_updated": "task",
    "task_notification": "task",
    "background_tasks_changed": "task",
    "local_command_output": "local command",
    "files_persisted": "files",
    "memory_recall": "memory",
    "plugin_install": "plugin",
    "mirror_error": "transcript mirror",
    "elicitation_complete": "elicitation",
    "control_request_progress": "control",
    "commands_changed": "commands",
    "worker_shutting_down": "shutdown",
    "session_writes_lost": "transcript mirror",
    # known from lists of 2.1.283
    "bridge_state": "bridge",
    "cloud_session_delta": "cloud session",
    "cloud_session_status": "cloud session",
    "code_change_published": "notice",
    "feedback_draft_queued": "notice",
    "peer_message_hold": "queue",
    "per_turn_effort_changed": "effort",
    "post_turn_summary": "summary of a turn",
    "session_metadata": "session state",
    "task_summary": "task",
    "turn_handoff_available": "session state",
    "turn_preempted": "session state",
    "turn_starting": "session state",
    "vcs_state_changed": "session state",
}
#: other subtypes of `system` that are known
SYSTEM = frozenset(
    {
        "init",
        "status",
        "api_retry",
        "model_consent_fallback",
        "model_fallback",
        "model_refusal_fallback",
        "permission_denied",
        "task_started",
        "compact_boundary",
    }
)
ABORTS = frozenset({"aborted_streaming", "aborted_tools"})
#: terminal reasons of turns that died, whatever else the result says (2.1.207)
DEAD = frozenset(
    {
        "api_error",
        "blocking_limit",
        "budget_exhausted",
        "image_error",
        "malformed_tool_use_exhausted",
        "model_error",
        "prompt_too_long",
        "rapid_refill_breaker",
        "structured_output_retry_exhausted",
        "tool_deferred_unavailable",
        "turn_setup_failed",
    }
)

API_EVENTS = frozenset(
    {
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    }
)
# model calls that only its totals have
HELPERS = "helper calls that are not printed, such as titles, summaries and warm-ups"
HELPERS_OR_EARLIER = HELPERS + ", or earlier runs of the session"
#: what a result behind the last one says where a background task ended (up to 2.1.6): no turn has failed
NO_TURN = "only prompt commands are supported in streaming mode"
SAID = 8  # texts that a result may still repeat


def sign(record: dict[str, Any]) -> Sign | None:
    kind = record.get("type")
    if "sessionId" in record or "parentUuid" in record or not isinstance(kind, str):
        return None
    if kind == "system":
        return _system_sign(record)
    if kind == "assistant":
        return _assistant_sign(record)
    if kind == "user" and isinstance(record.get("message"), dict) and "session_id" in record:
        if "tool_use_result" in record:
            return Sign(SURE, "a user record with tool_use_result")
        return Sign(30, "a user record with a message")
    if kind == "result" and isinstance(record.get("subtype"), str) and "is_error" in record:
        if "modelUsage" in record or "total_cost_usd" in record or "total_cost" in record:
            return Sign(SURE, "a result with the cost")
        return Sign(30, "a result with subtype and is_error")
    event = record.get("event")
    if kind == "stream_event" and isinstance(event, dict) and as_text(event.get("type")) in API_EVENTS:
        message = event.get("message")
        if "api_message_id" in record or (isinstance(message, dict) and isinstance(message.get("usage"), dict)):
            return Sign(SURE, "a stream_event with an API event and the message's id or usage")
        return Sign(30, "a stream_event with an API event")
    if kind == "rate_limit_event" and isinstance(record.get("rate_limit_info"), dict):
        return Sign(SURE, "a rate_limit_event")
    if kind == "conversation_reset" and "new_conversation_id" in record:
        return Sign(SURE, "a conversation_reset")
    for name, key, weight in _MARKS:
        if kind == name and key in record:
            return Sign(weight, f"{name} with {key}")
    return None


_MARKS = (
    ("control_request", "request", 20),
    ("control_response", "response", 20),
    ("control_cancel_request", "request_id", 20),
    ("keep_alive", "type", 10),
    ("transcript_mirror", "entries", 60),
    ("tool_progress", "tool_use_id", 60),
    ("tool_use_summary", "preceding_tool_use_ids", 60),
    ("prompt_suggestion", "suggestion", 60),
)


def _system_sign(record: dict[str, Any]) -> Sign | None:
    subtype = record.get("subtype")
    if subtype == "init":
        version = record.get("claude_code_version")
        if isinstance(version, str):
            return Sign(SURE, "a system init with claude_code_version", version)
        if "permissionMode" in record and "apiKeySource" in record and "tools" in record:
            return Sign(SURE, "a system init with permissionMode, apiKeySource and tools")
        if "qwen_code_version" in record or "permission_mode" in record or "reasoning_effort" in record:
            return None
        if "tools" in record and "mcp_servers" in record and "model" not in record:
            return Sign(60, "a system init with tools and mcp_servers and no model")
        return Sign(20, "a system init") if "session_id" in record else None
    if "session_id" not in record or "data" in record or not isinstance(subtype, str):
        return None
    if subtype in SYSTEM or subtype in IGNORED_SYSTEM:
        return Sign(60, f"a system record {subtype}")
    return Sign(10, "a system record")


def _assistant_sign(record: dict[str, Any]) -> Sign | None:
    message = record.get("message")
    if not isinstance(message, dict) or "session_id" not in record:
        return None
    message_id = as_text(message.get("id"))
    if message_id is not None and message_id == record.get("uuid"):
        return Sign(10, "an assistant record whose message id is its uuid")
    if message_id is not None and (message_id.startswith("msg_") or "parent_tool_use_id" in record):
        return Sign(SURE, "an assistant record with a message id")
    return Sign(30, "an assistant record with a message")


class Message:
    """The model message that a thread is at."""

    __slots__ = (
        "blocks",
        "counts",
        "final",
        "id",
        "key",
        "model",
        "open",
        "records",
        "request",
        "streaming",
        "tier",
        "wholes",
    )

    def __init__(self, message_id: str | None, model: str | None, key: str) -> None:
        self.id = message_id
        self.model = model
        self.key = key  # of its usage
        self.streaming = False  # between message_start and message_stop
        self.open: int | None = None  # index of the block that streams now
        self.blocks: list[Block] = []  # those that were streamed, in order
        self.counts: dict[str, int] = {}  # usage so far, by the wire's names
        self.tier: str | None = None  # service tier
        self.final = False  # its message_delta was seen
        self.request: str | None = None  # the request that it answers
        self.records: dict[str, list[Part]] = {}  # by uuid, what each told that was not taken back
        self.wholes = 0  # texts that were not streamed

    def block(self, index: int, kind: str) -> Block:
        """The streamed block with this index."""
        for block in self.blocks:
            if block.index == index:
                return block
        block = Block(index, kind)
        self.blocks.append(block)
        return block

    def closes(self, kind: str) -> Block | None:
        """The streamed block that a whole block of this kind repeats: the open one, else the first without its record.

        The stream has blocks of a kind in the same order as the records.
        """
        waiting = [block for block in self.blocks if block.kind == kind and not block.whole]
        return next((block for block in waiting if block.index == self.open), waiting[0] if waiting else None)


class Block:
    """A streamed block: its index, what it is, whether its record came, and the call that it holds."""

    __slots__ = ("call", "index", "kind", "whole")

    def __init__(self, index: int, kind: str) -> None:
        self.index = index
        self.kind = kind
        self.whole = False
        self.call: str | None = None


class Mapper:
    def __init__(self, out: Emitter) -> None:
        self.out = out
        self.messages: dict[str | None, Message] = {}  # by thread
        self.keys: set[str] = set()  # of the usage of all messages so far
        self.before: dict[str, list[Part]] = {}  # records of the message before this one, which may still be taken back
        self.plan = anthropic.Plan()
        self.running = False  # a turn is open
        self.ended: str | None = None  # the uuid of the last result
        self.said: list[str] = []  # the main agent's last texts that no result repeated yet
        self.told: list[str] = []  # the last texts of sub-agents and of the harness
        self.error: str | None = None  # the last error of the turn
        self.capped = False  # that error names a cap
        self.interrupted = False  # a person stopped the turn
        self.asked: set[str] = set()  # calls that a person was asked about
        self.denied: set[str] = set()  # calls that were refused in this turn
        self.blocked = False  # a hook refused the prompt
        self.prompt: str | None = None  # the last record of what a person said
        self.last: str | None = None  # the main agent's call whose result came last, and no text or call since
        self.total: dict[str, int] = {}  # the harness's own count of the run so far
        self.models: dict[str, dict[str, Any]] = {}  # and of each model
        self.increments = False  # its results print what is new since the last one
        self.cost: float | None = None  # what the run cost, as it was last printed

    def map(self, record: Record) -> Outcome:
        value = record.value
        kind = value.get("type")
        if kind == "stream_event":
            return self._stream(value)
        if kind == "assistant":
            return self._assistant(value)
        if kind == "user":
            return self._user(value)
        if kind == "result":
            return self._result(value, record)
        if kind == "system":
            return self._system(value)
        if kind == "control_request":
            return self._control(value)
        if kind == "tool_progress":
            return self._alive(value.get("parent_tool_use_id"), value)
        if kind == "conversation_reset":
            self.out.session_state(Stamp(), sessionId=as_text(value.get("new_conversation_id")))
            return None
        return IGNORED.get(kind, UNKNOWN) if isinstance(kind, str) else UNKNOWN

    def close(self) -> None:
        pass

    def judge(self, run: Reducer, exit: Exit) -> Ending | None:
        return None

    # ------------------------------------------------------------ stream events

    def _stream(self, value: dict[str, Any]) -> Outcome:
        event = value.get("event")
        if not isinstance(event, dict):
            return UNKNOWN
        kind = event.get("type")
        if not isinstance(kind, str) or kind not in API_EVENTS:
            return "other event of the API"
        thread, message_id = as_text(value.get("parent_tool_use_id")), anthropic.kept(value.get("api_message_id"))
        if kind == "message_start":
            start = as_dict(event.get("message"))
            begun_id, model = anthropic.kept(start.get("id")) or message_id, anthropic.kept(start.get("model"))
            message = self._begin(thread, begun_id, model, value, call=f"line {self.out.line}")
            message.streaming = True
            self._usage(message, start.get("usage"), self._stamp(value, message), begun=True)
            return None
        current = self.messages.get(thread)
        if current is None or (message_id is not None and current.id != message_id):
            current = self._begin(thread, message_id, None, value)  # its start was lost
            current.streaming = True
        stamp = self._stamp(value, current)
        if kind == "message_delta":
            self._usage(current, event.get("usage"), stamp)
            current.final = True
            return None
        if kind == "message_stop":
            current.streaming, current.open = False, None
            return self._abandon(current, as_dict(value.get("abandoned_blocks")), stamp)
        index = count(event.get("index"))
        if index is None:
            return PART
        if kind == "content_block_stop":
            current.open = None
            return PART
        if kind == "content_block_start":
            content = as_dict(event.get("content_block"))
            block = current.block(index, as_text(content.get("type")) or "")
            current.open = index
            return self._delta(block, content.get(block.kind), stamp)
        delta = as_dict(event.get("delta"))
        if delta.get("type") == "text_delta":
            return self._delta(current.block(index, "text"), delta.get("text"), stamp)
        if delta.get("type") == "thinking_delta":
            return self._delta(current.block(index, "thinking"), delta.get("thinking"), stamp)
        return PART

    def _delta(self, block: Block, text: Any, stamp: Stamp) -> Outcome:
        if not isinstance(text, str) or not text or block.whole or block.kind not in TEXTS:
            return PART
        self.out.delta(TEXTS[block.kind], block.index, text, stamp)
        if stamp.parent is None and block.kind == "text":
            self.last = None
        return None

    def _abandon(self, message: Message, abandoned: dict[str, Any], stamp: Stamp) -> Outcome:
        """The end of a message; one that was cut says from which block on it is void."""
        since = count(abandoned.get("from_block_index"))
        if since is None:
            return "end of a message"
        self._void([block for block in message.blocks if block.index >= since], stamp)
        return None

    def _void(self, blocks: list[Block], stamp: Stamp) -> None:
        """What these blocks said is taken back."""
        for block in blocks:
            block.whole = True  # nothing more of it counts
            if block.kind in TEXTS:
                self.out.drop(TEXTS[block.kind], block.index, stamp)
            elif block.call is not None and self.out.is_open(block.call):
                self.out.update(block.call, stamp, status="failed", done=False)

    # ------------------------------------------------------------ assistant records

    def _assistant(self, value: dict[str, Any]) -> Outcome:
        message = value.get("message")
        if not isinstance(message, dict):
            return UNKNOWN
        thread = as_text(value.get("parent_tool_use_id"))
        if message.get("model") == anthropic.SYNTHETIC or value.get("is_api_error_message") is True:
            return self._synthetic(value, message, thread)
        message_id, model = anthropic.kept(message.get("id")), anthropic.kept(message.get("model"))
        if thread is None:
            self._retract(value.get("supersedes"), self._stamp(value, None))
        current = self.messages.get(thread)
        if current is not None and current.streaming and current.id is None and message_id is not None:
            current.id, current.model, current.key = message_id, model, message_id or current.key  # its start was lost
        request = anthropic.kept(value.get("request_id"))
        another = current is not None and message_id == current.id and _differ(request, current.request)
        if current is None or another or (message_id != current.id and not (message_id is None and current.streaming)):
            current = self._begin(thread, message_id, model, value, call=request if another else None)
        current.request = request or current.request
        uuid = anthropic.kept(value.get("uuid"))
        if uuid and uuid in current.records:
            return AGAIN
        stamp = self._stamp(value, current)
        stamp.extra = anthropic.extra_of(message, "stop_reason")
        told = [self._block(current, content, stamp) for content in anthropic.blocks_of(message.get("content"))]
        if uuid:
            current.records[uuid] = [part for part in told if part is not None]
        if not current.final:
            begun = as_text(message.get("stop_reason")) is None
            self._usage(current, message.get("usage"), stamp, begun=begun)
        return None

    def _block(self, message: Message, content: dict[str, Any], stamp: Stamp) -> Part | None:
        kind = as_text(content.get("type")) or ""
        streamed = message.closes(kind)
        if streamed is not None:
            streamed.whole = True
        acts = kind not in TEXTS
        part: Part | None = None
        if kind in TEXTS:
            text = as_text(content.get(kind)) or ""
            acts = kind == "text" and text != ""
            if streamed is None and self._told(message, kind, text, stamp):
                return None
            if streamed is None:
                message.wholes += 1
            key = -message.wholes if streamed is None else streamed.index
            part = TEXTS[kind], key
            self.out.final(TEXTS[kind], key, text, stamp)
            if kind == "text":
                _keep(self.said if stamp.parent is None else self.told, text)
        elif kind in anthropic.CALLS and isinstance(content.get("id"), str):
            if streamed is not None:
                streamed.call = content["id"]
            self.out.call(content["id"], as_text(content.get("name")), content.get("input"), stamp, twin=True)
            self._show(self.plan.call(content), stamp)
            part = ev.TOOL_CALL, ev.clean(content["id"])
        else:
            anthropic.other_block(self.out, content, stamp)
        if stamp.parent is None and acts:
            self.last = None
        return part

    def _told(self, message: Message, kind: str, text: str, stamp: Stamp) -> bool:
        """True for a text that was streamed and had its record before: 2.1.237 prints a second one where a gateway's
        message id does not begin as the API's do."""
        blocks = (block for block in message.blocks if block.kind == kind and block.whole)
        text = ev.clean(text)
        return any(self.out.streamed(TEXTS[kind], block.index, stamp.parent) == text for block in blocks)

    def _synthetic(self, value: dict[str, Any], message: dict[str, Any], thread: str | None) -> Outcome:
        """What the harness says in the assistant's name: why it failed, or the output of a local command."""
        text = anthropic.joined_text(message.get("content"))
        coded = value.get("is_api_error_message") is True or isinstance(value.get("error"), str)
        if "local_command_run" in value or not (coded or text.startswith("API Error")):
            _keep(self.told, text)
            return HARNESS_TEXT
        stamp = self._stamp(value, None)
        if thread is not None:
            self.out.error(text, stamp, fatal=False, notice=True)  # the delegating call fails, not the run
            return None
        self.capped = anthropic.is_limit((value.get("api_error"), value.get("error")), text)
        self.error = ev.clean(text)
        self.out.error(text, stamp, fatal=True)
        return None

    # ------------------------------------------------------------ user records

    def _user(self, value: dict[str, Any]) -> Outcome:
        message = value.get("message")
        if not isinstance(message, dict):
            return UNKNOWN
        stamp = self._stamp(value, None)
        contents = anthropic.blocks_of(message.get("content"))
        results = [content for content in contents if content.get("type") == "tool_result"]
        if not results:
            uuid = anthropic.kept(value.get("uuid"))
            if uuid and uuid == self.prompt:
                return AGAIN  # hosts print the first prompt before the init record and after it
            self.prompt = uuid
        if value.get("isReplay") is True and not results:
            stamp.extra = {"isReplay": True}
        raw = value.get("tool_use_result") if len(results) == 1 else None
        outcome: Outcome = HARNESS_TEXT
        for content in contents:
            if content.get("type") == "tool_result":
                self._tool_result(content, raw, value.get("tool_result_meta"), stamp)
                outcome = None
            elif (ended := anthropic.interrupt_of(content)) is not None:
                self._interrupt(ended, stamp)
                outcome = None
            elif value.get("isSynthetic") is True or anthropic.is_wrapped(content):
                continue
            elif anthropic.user_block(self.out, content, stamp):
                outcome = None
        return outcome

    def _tool_result(self, content: dict[str, Any], raw: Any, metas: Any, stamp: Stamp) -> None:
        call_id = as_text(content.get("tool_use_id"))
        if call_id is None:
            return
        anthropic.tool_result(self.out, call_id, content, raw, stamp)
        self._show(self.plan.result(call_id, anthropic.has_failed(content, raw), raw), stamp)
        if stamp.parent is None:
            self.last = call_id
        for meta in map(as_dict, as_list(metas)):
            if meta.get("id") != call_id:
                continue
            if isinstance(meta.get("non_execution_kind"), str):
                self.denied.add(call_id)
            decision = as_text(as_dict(meta.get("permission_decision")).get("decision"))
            if call_id in self.asked and decision is not None:
                self.asked.discard(call_id)
                self.out.state("approval", stamp, phase="settled", toolCallId=call_id, decision=decision)

    def _interrupt(self, outcome: str, stamp: Stamp) -> None:
        """The turn was stopped, as a rule by a person. A result should follow; on a busy machine it may not."""
        if stamp.parent is None:
            self.interrupted, self.running = outcome == "cancelled", False
            self.out.state("turn", stamp, phase="end", outcome=outcome, reason="interrupted")

    def _show(self, plan: list[dict[str, str]] | None, stamp: Stamp) -> None:
        if plan is not None:
            self.out.plan(plan, stamp)

    # ------------------------------------------------------------ results

    def _result(self, value: dict[str, Any], record: Record) -> Outcome:
        stamp = self._stamp(value, None)
        if not self.running and NO_TURN in as_list(value.get("errors")):
            self.out.error(NO_TURN, stamp, fatal=False, notice=True)
            return None
        uuid = anthropic.kept(value.get("uuid"))
        if not self.running and uuid and uuid == self.ended:
            return AGAIN
        self.ended = uuid
        self.out.session_state(stamp, sessionId=stamp.session_id)
        stamp.extra = anthropic.extra_of(value, "stop_reason")
        self._remember(None)
        self.out.commit(None)
        self.before = {}
        answer = as_text(value.get("result")) or ""
        failed = value.get("is_error") is True
        if not answer and not failed and value.get("structured_output") is not None:
            # before the result repeated it
            answer = (json.member(record.raw, "structured_output") or b"").decode("utf-8", "replace")
        # 2.1.50 prints an error in the middle of a run with is_error false, and a person's interrupt alike
        if failed or (value.get("subtype") == "error_during_execution" and not self.interrupted):
            self._report(value, answer, stamp)
        elif not self._claim(answer) and "local_command" not in value:
            self.out.whole(ev.MESSAGE, answer, stamp)  # only the result carries it
            self.last = None
        self._run_usage(value, stamp)
        outcome = self._outcome(value, failed, answer)
        reason = as_text(value.get("terminal_reason")) or as_text(value.get("subtype"))
        self.out.state("turn", stamp, phase="end", outcome=outcome, reason=reason)
        self.out.state("end", stamp, outcome=outcome, reason=reason)
        self.running = self.interrupted = self.capped = self.blocked = False
        self.error = self.last = None
        self.asked.clear()
        self.denied.clear()
        return None

    def _report(self, value: dict[str, Any], answer: str, stamp: Stamp) -> None:
        """The errors that a result names, unless a synthetic record told them before."""
        errors = [text for text in as_list(value.get("errors")) if isinstance(text, str)]
        if not errors and answer:
            errors = [answer]
        if not errors and self.error is None:
            errors = [as_text(value.get("subtype")) or "error"]
        for text in errors:
            if ev.clean(text) != self.error:
                self.out.error(text, stamp, fatal=True)

    def _outcome(self, value: dict[str, Any], failed: bool, answer: str) -> str:
        subtype, reason = as_text(value.get("subtype")) or "", as_text(value.get("terminal_reason"))
        if subtype.startswith("error_max_"):
            return "limit"  # before 2.1.112 is_error was false here
        if reason in ABORTS or (subtype == "error_during_execution" and self.interrupted):
            return "cancelled"
        if failed or subtype.startswith("error") or reason in DEAD:
            capped = self.capped or anthropic.is_limit((value.get("api_error"), reason), answer)
            return "limit" if capped else "failed"
        if reason == "tool_deferred":
            return "incomplete"  # a call waits for someone's word
        if self.blocked:
            return "denied"
        if value.get("stop_reason") in ("max_tokens", "model_context_window_exceeded"):
            return "limit"
        for denial in as_list(value.get("permission_denials")):
            call_id = as_text(as_dict(denial).get("tool_use_id"))
            if call_id is not None:
                self.denied.add(call_id)
        return "denied" if self.last is not None and self.last in self.denied else "completed"

    def _run_usage(self, value: dict[str, Any], stamp: Stamp) -> None:
        """The harness's own total of this process: its increments where printed, else the cumulative modelUsage.

        Without either it is the usage of the last result that had any.
        """
        news = value.get("model_usage_since_last_result")
        if isinstance(news, dict):
            if not self.increments:
                self.increments, self.models = True, {}
            anthropic.add_models(self.models, anthropic.model_usage(news))
            self.total = anthropic.summed(self.models)
        elif not self.increments:
            models = anthropic.model_usage(value.get("modelUsage"))
            counts = anthropic.summed(models) or anthropic.usage_counts(value.get("usage"))
            if any(counts.values()) or not self.total:
                self.total, self.models = counts, models
        cost = price(value.get("total_cost_usd"))
        cost = price(value.get("total_cost")) if cost is None else cost
        self.cost = self.cost if cost is None else cost
        counts = self.total or anthropic.usage_counts(value.get("usage"))
        self.out.usage(
            "run",
            anthropic.usage_of(counts, self.cost),
            stamp,
            models=anthropic.usage_of_models(self.models),
            beyond=HELPERS if self.increments else HELPERS_OR_EARLIER,
        )

    # ------------------------------------------------------------ system and control records

    def _system(self, value: dict[str, Any]) -> Outcome:
        subtype = as_text(value.get("subtype")) or ""
        stamp = self._stamp(value, None)
        if subtype == "init":
            self._remember(None)
            self.out.commit(None)
            self.before = {}
            self.messages.pop(None, None)  # a message that was cut does not go on in another turn
            self.out.session_state(
                stamp,
                sessionId=stamp.session_id,
                version=as_text(value.get("claude_code_version")),
                model=as_text(value.get("model")),
                cwd=as_text(value.get("cwd")),
            )
            self._start(stamp)
            return None
        if subtype in ("status", "compact_boundary"):
            return self._compaction(value, stamp)
        if subtype == "api_retry":
            self._retried(value)
            self.out.state(
                "retry",
                stamp,
                phase="start",
                attempt=count(value.get("attempt")),
                maxAttempts=count(value.get("max_retries")),
                delayMs=price(value.get("retry_delay_ms")),
                message=as_text(value.get("error")),
            )
            return None
        if subtype in ("model_consent_fallback", "model_fallback", "model_refusal_fallback"):
            self._retract(value.get("retracted_message_uuids"), stamp)
            if value.get("scope") != "local":  # that of a sub-agent or a side question
                self.out.state("model", stamp, model=as_text(value.get("fallback_model")))
            return None
        if subtype == "permission_denied":
            return self._denied(value, stamp)
        if subtype == "task_started":
            return self._alive(value.get("tool_use_id"), value)
        if subtype == "informational":
            _keep(self.told, as_text(value.get("content")) or "")  # the result repeats why a prompt was refused
            if as_dict(value.get("prompt_submit_outcome")).get("kind") == "blocked_by_hook":
                self.blocked = True
        return IGNORED_SYSTEM.get(subtype, UNKNOWN)

    def _retried(self, value: dict[str, Any]) -> None:
        """The answer that broke off begins anew: what of it has no record is taken back.

        2.1.215 to 2.1.290 close such a message without `message_delta` and `abandoned_blocks`.
        """
        message = self.messages.get(None)
        if message is not None and not (message.streaming or message.final):
            self._void([block for block in message.blocks if not block.whole], self._stamp(value, message))

    def _compaction(self, value: dict[str, Any], stamp: Stamp) -> Outcome:
        if value["subtype"] == "compact_boundary":
            trigger = as_text(as_dict(value.get("compact_metadata")).get("trigger"))
            self.out.state("compaction", stamp, phase="end", trigger=trigger, success=True)
            return None
        if value.get("status") == "compacting":
            self.out.state("compaction", stamp, phase="start")
            return None
        result = as_text(value.get("compact_result"))
        if result is None or result == "success":  # of success the compact_boundary tells
            return "status"
        message = as_text(value.get("compact_error"))
        self.out.state("compaction", stamp, phase="end", success=False, message=message)
        return None

    def _denied(self, value: dict[str, Any], stamp: Stamp) -> Outcome:
        call_id = as_text(value.get("tool_use_id"))
        if call_id is not None:
            self.denied.add(call_id)
        self.out.state(
            "approval",
            stamp,
            phase="settled",
            toolCallId=call_id,
            toolName=as_text(value.get("tool_name")),
            decision="denied",
            message=as_text(value.get("message")),
        )
        return None

    def _control(self, value: dict[str, Any]) -> Outcome:
        request = as_dict(value.get("request"))
        if request.get("subtype") != "can_use_tool":
            return "control"
        call_id = as_text(request.get("tool_use_id"))
        if call_id is not None:
            self.asked.add(call_id)
        self.out.state(
            "approval",
            Stamp(),
            phase="requested",
            toolCallId=call_id,
            toolName=as_text(request.get("tool_name")),
            message=as_text(request.get("description")),
        )
        return None

    def _alive(self, call_id: Any, value: dict[str, Any]) -> Outcome:
        """A sign of life of a call. The record's own parent_tool_use_id is that call, not who delegated it."""
        if not isinstance(call_id, str) or not self.out.is_open(call_id):
            return "task"
        stamp = Stamp(session_id=as_text(value.get("session_id")), parent=self.out.thread_of(call_id))
        self.out.update(call_id, stamp, status="in_progress")
        return None

    def _retract(self, uuids: Any, stamp: Stamp) -> None:
        """Another answer takes the place of these records, as a fallback model's does of a refused one: what they told
        is taken back, once, for a notice may name them again. While the answer streams, it is the message that has no
        record yet; the records are those of the message before it, which goes as a whole."""
        named = {anthropic.kept(uuid) for uuid in as_list(uuids)}
        message = self.messages.get(None)
        records = message.records if message is not None and message.records else self.before
        gone = [uuid for uuid in records if uuid in named]
        parts = [part for uuid in gone for part in records[uuid]]
        records.update((uuid, []) for uuid in gone)
        if gone and records is self.before:
            self.out.abandon(None, stamp)  # also what was streamed of the answer: its record tells it again
            self.said.clear()
            self.before = {}
            parts = [part for part in parts if part[0] == ev.TOOL_CALL]
        for part in reversed(parts):
            if part[0] == ev.MESSAGE:
                self._forget(self.out.streamed(ev.MESSAGE, part[1], None) or "")
            anthropic.take_back(self.out, part, stamp)

    def _forget(self, text: str) -> None:
        """A text that was taken back is none that the result repeats."""
        text = _core(text)
        self.said = [said for said in self.said if said != text]

    # ------------------------------------------------------------ turns and messages

    def _start(self, stamp: Stamp) -> None:
        self.running = True
        self.out.state("turn", stamp, phase="start")

    def _begin(
        self,
        thread: str | None,
        message_id: str | None,
        model: str | None,
        value: dict[str, Any],
        *,
        call: str | None = None,
    ) -> Message:
        """A new model message of a thread; the main agent's opens a turn if no init record did.

        ``call`` names its model call where the wire tells that it is another one than those before, whatever its id:
        some gateways give all their messages the same, and under load the API itself gave it to six in a row. What the
        main agent's message before it said can still be taken back.
        """
        self._remember(thread)
        if thread is None:
            previous = self.messages.get(None)
            self.before = {} if previous is None else previous.records
            self.out.settle_closed(None)
            self.out.close(None)
        else:
            self.out.commit(thread)
        self.out.next_turn()
        key = message_id or f"line {self.out.line}"
        if call is not None and key in self.keys:
            key = f"{key} {call}"
        self.keys.add(key)
        message = self.messages[thread] = Message(message_id, model, key)
        if thread is None:
            stamp = self._stamp(value, message)
            self.out.session_state(stamp, sessionId=stamp.session_id)
            if not self.running:
                self._start(stamp)
        return message

    def _stamp(self, value: dict[str, Any], message: Message | None) -> Stamp:
        return Stamp(
            session_id=as_text(value.get("session_id")),
            message_id=message.id if message is not None else None,
            timestamp=as_text(value.get("timestamp")),
            model=message.model if message is not None else None,
            parent=as_text(value.get("parent_tool_use_id")),
        )

    def _usage(self, message: Message, usage: Any, stamp: Stamp, *, begun: bool = False) -> None:
        """The counters of a message as far as they are known; a zero never takes the place of a number."""
        for name, number in anthropic.usage_counts(usage).items():
            if number or name not in message.counts:
                message.counts[name] = number
        message.tier = anthropic.kept(as_dict(usage).get("service_tier")) or message.tier
        self.out.usage(
            "call",
            anthropic.usage_of(message.counts, tier=message.tier),
            stamp,
            key=message.key,
            begun=begun,
        )

    # ------------------------------------------------------------ what results repeat

    def _remember(self, thread: str | None) -> None:
        """Texts that were streamed and whose records never came were said too."""
        message = self.messages.get(thread)
        for block in message.blocks if message is not None else []:
            if block.kind == "text" and not block.whole:
                block.whole = True
                text = self.out.streamed(ev.MESSAGE, block.index, thread) or ""
                _keep(self.said if thread is None else self.told, text)

    def _claim(self, answer: str) -> bool:
        """True if the answer was said before: as one of the last texts, or as several of them in a row.

        A result that was held back repeats an earlier text; what came after it waits for the next result.
        """
        answer = _core(answer)
        if not answer:
            return True
        for first in range(len(self.said)):
            for last in range(first, len(self.said)):
                texts = self.said[first : last + 1]
                if answer in ("".join(texts), "\n".join(texts)):
                    del self.said[: last + 1]
                    return True
        self.said.clear()
        return answer in self.told


def _differ(request: str | None, other: str | None) -> bool:
    """True if both are known and not the same."""
    return bool(request) and bool(other) and request != other


def _keep(texts: list[str], text: str) -> None:
    """Adds a text to those that a result may repeat."""
    text = _core(text)
    if text:
        texts.append(text)
        del texts[:-SAID]


def _core(text: str) -> str:
    """What of a text is compared."""
    return ev.clean(text).strip(" \t\r\n")
