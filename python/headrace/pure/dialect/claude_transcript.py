"""Claude Code's session files, ``~/.claude/projects/<dir>/<session>.jsonl`` (recorded from 0.2.126 to 2.1.332).

The messages of the stream with camelCase facts around them, one block a line and the usage of the call on each: the
last one of a message id counts. Lines that a resumed or forked session copied come with the same uuid and count once.
There is no result; the stop reason of the last message tells how a prompt ended.

Sidechains are what sub-agents said. In the session's own file (up to 1.0) each has a root of its own without a link to
the call: it is the open delegation whose prompt the root repeats. From 2.0 on they lie in files of their own, and such
a file alone is a conversation like any other. 2.1.38 has calls and results of sub-agents in the session's file as well,
each line wrapped in one of its own, with the call that delegated.
"""

from __future__ import annotations

from typing import Any

from .. import event as ev
from ..emit import Emitter, count, price
from ..event import Stamp
from ..record import Record
from ..run import Ending, Exit, Reducer
from ..wire import as_dict, as_list, as_text
from . import SURE, UNKNOWN, Outcome, Sign, anthropic
from .anthropic import Part

NAME = "claude-transcript"

HARNESS_TEXT = "text of the harness"
AGAIN = "record again"
STRAY = "sidechain without a call"

# model calls that only its totals have
BEYOND = "calls of sub-agents, helpers or earlier runs of the session, which are not in this file"

#: line types that say nothing for events
IGNORED = {
    "summary": "summary of another session",
    "queue-operation": "queue",
    "last-prompt": "last prompt",
    "tools-used": "tools used",
    "api-request": "request",
    "api-request-shape": "request",
    "api-request-blob": "request",
    "atis-latch": "latch",
    "mode": "mode",
    "permission-mode": "mode",
    "file-history-snapshot": "file history",
    # known from 2.1.50
    "agent-color": "agent",
    "agent-name": "agent",
    "agent-setting": "agent",
    "attribution-snapshot": "attribution",
    "pr-link": "pull request",
    "speculation-accept": "speculation",
    "tag": "tag",
    # known from public samples of 2.1.220
    "bridge-session": "bridge",
    "frame-link": "link",
    "worktree-state": "folder",
    # known from the Agent SDK of 2.1.332
    "content-replacement": "content on disk",
    "data-flow-incomplete": "data flow",
    "data-flow-records": "data flow",
    "derived-from": "fork",
    "history-suppression": "history",
    "hybrid-organization": "owner",
    "relocated": "folder",
    "session-owner": "owner",
    # known from lists of public readers, up to 2.1.283
    "continued-in": "fork",
    "file-history-delta": "file history",
    "fork-context-ref": "fork",
}
#: line types that give the session a title, and where it is
TITLES = {"ai-title": "aiTitle", "custom-title": "customTitle"}
#: the same for the subtypes of `system`
IGNORED_SYSTEM = {
    "stop_hook_summary": "hook",
    "turn_duration": "duration",
    "local_command": "local command",
    "informational": "notice",
    "microcompact_boundary": "results cleared",
    "agents_killed": "task",
    "file_snapshot": "file history",
    # known from public session files and types, 2.1.88 and 2.1.112
    "api_metrics": "metrics",
    "away_summary": "recap for the user",
    "bridge_status": "bridge",
    "memory_saved": "memory",
    "permission_retry": "notice",
    "scheduled_task_fire": "schedule",
}
#: stop reasons of a main message that ends its prompt
OUTCOMES = {
    "end_turn": "completed",
    "stop_sequence": "completed",
    "max_tokens": "limit",
    "model_context_window_exceeded": "limit",
    "refusal": "failed",
}

# line types without uuid, and a key that each has
_MARKS = (
    ("summary", "leafUuid"),
    ("queue-operation", "operation"),
    ("last-prompt", "lastPrompt"),
    ("tools-used", "type"),
    ("cost-state", "totalCostUSD"),
    ("api-request", "params"),
    ("api-request-shape", "shape"),
    ("api-request-blob", "hash"),
    ("atis-latch", "atis"),
    ("file-history-snapshot", "snapshot"),
    ("mode", "mode"),
    ("permission-mode", "permissionMode"),
)


def sign(record: dict[str, Any]) -> Sign | None:
    kind = record.get("type")
    if not isinstance(kind, str) or "systemPayload" in record:
        return None
    if "parentUuid" in record and isinstance(record.get("sessionId"), str):
        message = record.get("message")
        if kind in ("user", "assistant") and isinstance(message, dict) and "content" in message:
            return Sign(SURE, f"a {kind} line with parentUuid and message.content", as_text(record.get("version")))
        if kind == "attachment" and isinstance(record.get("attachment"), dict):
            return Sign(SURE, "an attachment line with parentUuid", as_text(record.get("version")))
        if kind in ("system", "progress") and "isSidechain" in record:
            return Sign(SURE, f"a {kind} line with parentUuid and isSidechain", as_text(record.get("version")))
        return None
    for name, key in _MARKS:
        if kind == name and key in record and ("sessionId" in record or name in ("summary", "file-history-snapshot")):
            return Sign(60, f"a {name} line")
    return None


class Message:
    """A model message: its id, the request that it answers, and the key of its usage.

    Gateways give all messages of a session one id, and under load the API itself gave six in a row the same: the
    request tells them apart.
    """

    __slots__ = ("blocks", "end", "id", "key", "lines", "request")

    def __init__(self, message_id: str | None, request: str | None, before: Message | None) -> None:
        self.id = message_id
        self.request = request
        again = message_id and before is not None and before.id == message_id
        self.key = f"{message_id} {request}" if again else message_id
        self.end = ""  # the kind of block that it ends with so far
        self.blocks = 0  # how many of these there were
        self.lines: dict[str, list[Part]] = {}  # by uuid, what each told that was not taken back

    def goes_on(self, message_id: str | None, request: str | None) -> bool:
        """True if a line with these facts is of this message."""
        if message_id is None or message_id != self.id:
            return False
        self.request = self.request or request
        return not request or request == self.request


class Mapper:
    def __init__(self, out: Emitter) -> None:
        self.out = out
        self.seen: dict[str, str | None] = {}  # uuids of lines, and the thread that each belongs to
        self.own: bool | None = None  # the file is a sub-agent's own; None until its first message
        self.delegations: dict[str, str] = {}  # calls that no sidechain belongs to yet, and their prompts
        self.agents: dict[str, str] = {}  # agent ids and the calls that they belong to
        self.current: dict[str | None, Message] = {}  # the message that a thread is at
        self.plan = anthropic.Plan()
        self.running = False  # a prompt is being worked on
        self.answered = False  # the last main message is an answer without a stop reason

    def map(self, record: Record) -> Outcome:
        value = record.value
        kind, uuid = value.get("type"), as_text(value.get("uuid"))
        if uuid is not None and uuid in self.seen:
            return AGAIN
        if kind in ("user", "assistant") and isinstance(value.get("message"), dict):
            if self.own is None:
                self.own = value.get("isSidechain") is True
            thread = self._thread(value)
            if uuid is not None:
                self.seen[uuid] = thread
            return self._message(value, value["message"], thread, as_text(value.get("sessionId")))
        if uuid is not None:
            self.seen[uuid] = self.seen.get(as_text(value.get("parentUuid")) or "")
        if kind == "system":
            return self._system(value)
        if kind == "attachment":
            return self._attachment(value)
        if kind == "cost-state":
            models = anthropic.model_usage(value.get("modelUsage"))
            usage = anthropic.usage_of(anthropic.summed(models), price(value.get("totalCostUSD")))
            stamp = Stamp(session_id=as_text(value.get("sessionId")))
            self.out.usage("run", usage, stamp, models=anthropic.usage_of_models(models), beyond=BEYOND)
            return None
        if kind == "progress":
            return self._progress(value)
        if isinstance(kind, str) and kind in TITLES:
            self.out.session_state(
                Stamp(session_id=as_text(value.get("sessionId"))), title=as_text(value.get(TITLES[kind]))
            )
            return None
        return IGNORED.get(kind, UNKNOWN) if isinstance(kind, str) else UNKNOWN

    def close(self) -> None:
        pass

    def judge(self, run: Reducer, exit: Exit) -> Ending | None:
        if self.answered and not run.progress.open_calls:
            return Ending("completed", None, "the last message is an answer, though no stop reason is printed")
        return None

    # ------------------------------------------------------------ messages

    def _message(
        self, value: dict[str, Any], message: dict[str, Any], thread: str | None, session_id: str | None
    ) -> Outcome:
        stamp = Stamp(session_id=session_id, timestamp=as_text(value.get("timestamp")), parent=thread or None)
        if thread == "":
            if value["type"] == "user":
                return STRAY
            key = as_text(message.get("id")) or f"line {self.out.line}"
            self._usage(value, message, stamp, key, side=True)
            return None
        if value["type"] == "user":
            return self._user(value, message, stamp)
        if message.get("model") == anthropic.SYNTHETIC or value.get("isApiErrorMessage") is True:
            return self._synthetic(value, message, stamp)
        return self._assistant(value, message, stamp)

    def _progress(self, value: dict[str, Any]) -> Outcome:
        """A line of a sub-agent, wrapped; in the file of its own it has the same uuid."""
        data, call_id = as_dict(value.get("data")), as_text(value.get("parentToolUseID"))
        line = as_dict(data.get("message"))
        message, uuid, agent = line.get("message"), as_text(line.get("uuid")), as_text(data.get("agentId"))
        told = data.get("type") == "agent_progress" and line.get("type") in ("user", "assistant")
        if not told or not isinstance(message, dict) or not call_id:
            return "progress"
        if uuid is not None:
            if uuid in self.seen:
                return AGAIN
            self.seen[uuid] = call_id
        if agent:
            self.agents[agent] = call_id
        self.delegations.pop(call_id, None)
        return self._message(line, message, call_id, as_text(value.get("sessionId")))

    def _assistant(self, value: dict[str, Any], message: dict[str, Any], stamp: Stamp) -> Outcome:
        stamp.message_id, stamp.model = as_text(message.get("id")), as_text(message.get("model"))
        stamp.extra = anthropic.extra_of(message, "stop_reason")
        thread = stamp.parent
        if thread is None:
            self._retract(value.get("supersedesUuids"), stamp)
        message_id, request = anthropic.kept(stamp.message_id), anthropic.kept(value.get("requestId"))
        current = self.current.get(thread)
        if current is None or not current.goes_on(message_id, request):
            current = self.current[thread] = Message(message_id, request, current)
            self.out.commit(thread)
            self.out.next_turn()
        if thread is None:
            self._session(value, stamp)
            if not self.running:
                self._start(stamp)
        kind, told = "", list[Part]()
        for content in anthropic.blocks_of(message.get("content")):
            kind = as_text(content.get("type")) or ""
            if kind != current.end or "apiBlockIndex" in value:
                current.blocks += 1
            current.end = kind
            told += self._block(kind, current.blocks, content, stamp)
        uuid = anthropic.kept(value.get("uuid"))
        if uuid is not None:
            current.lines[uuid] = told
        self._usage(value, message, stamp, current.key or f"line {self.out.line}")
        if thread is None:
            self._stop(as_text(message.get("stop_reason")), kind, stamp)
        return None

    def _block(self, kind: str, key: int, content: dict[str, Any], stamp: Stamp) -> list[Part]:
        if kind in anthropic.TEXTS:
            # pieces of one text, as gateways print them, lie on lines that follow each other
            self.out.delta(anthropic.TEXTS[kind], key, as_text(content.get(kind)) or "", stamp)
            return [(anthropic.TEXTS[kind], key)]
        if kind in anthropic.CALLS and isinstance(content.get("id"), str):
            arguments = content.get("input")
            prompt = arguments.get("prompt") if isinstance(arguments, dict) else None
            if content.get("name") in ("Task", "Agent") and isinstance(prompt, str):
                self.delegations[content["id"]] = prompt
            self.out.call(content["id"], as_text(content.get("name")), arguments, stamp, twin=True)
            self._show(self.plan.call(content), stamp)
            return [(ev.TOOL_CALL, ev.clean(content["id"]))]
        anthropic.other_block(self.out, content, stamp)
        return []

    def _retract(self, uuids: Any, stamp: Stamp) -> None:
        """Another answer takes the place of these lines, as a fallback model's does of a refused one. They stay in the
        file (2.1.197): what they told is taken back, once, for a notice may name them again."""
        named = {anthropic.kept(uuid) for uuid in as_list(uuids)}
        message = self.current.get(None)
        if message is None:
            return
        gone = [uuid for uuid in message.lines if uuid in named]
        parts = [part for uuid in gone for part in message.lines[uuid]]
        for part in reversed(parts):
            anthropic.take_back(self.out, part, stamp)
        message.lines.update((uuid, []) for uuid in gone)
        if parts:
            message.end = ""  # what comes next is a text of its own

    def _usage(
        self, value: dict[str, Any], message: dict[str, Any], stamp: Stamp, key: str, *, side: bool = False
    ) -> None:
        """The usage of the call, final in newer versions; 0.2 prices each line, which was a whole message."""
        counts = anthropic.usage_counts(message.get("usage"))
        usage = anthropic.usage_of(counts, price(value.get("costUSD")))
        self.out.usage("call", usage, stamp, key=key, side=side)

    def _stop(self, reason: str | None, kind: str, stamp: Stamp) -> None:
        """After a line of the main agent: whether its prompt is done. A thought is never the last block."""
        self.answered = reason is None and kind == "text"
        if reason in OUTCOMES and kind not in ("thinking", "redacted_thinking"):
            self.running = False
            self.out.state("turn", stamp, phase="end", outcome=OUTCOMES[reason], reason=reason)

    def _synthetic(self, value: dict[str, Any], message: dict[str, Any], stamp: Stamp) -> Outcome:
        """What the harness says in the assistant's name: why it failed, or nothing that counts."""
        text = anthropic.joined_text(message.get("content"))
        coded = value.get("isApiErrorMessage") is True or isinstance(value.get("error"), str)
        if not (coded or text.startswith("API Error")):
            return HARNESS_TEXT
        if stamp.parent is not None:
            self.out.error(text, stamp, fatal=False, notice=True)  # the delegating call fails, not the run
            return None
        self.running = self.answered = False
        capped = anthropic.is_limit((value.get("apiError"), value.get("error")), text)
        self.out.error(text, stamp, fatal=True)
        self.out.state("turn", stamp, phase="end", outcome="limit" if capped else "failed", reason="api_error")
        return None

    def _user(self, value: dict[str, Any], message: dict[str, Any], stamp: Stamp) -> Outcome:
        contents = anthropic.blocks_of(message.get("content"))
        results = sum(content.get("type") == "tool_result" for content in contents)
        raw = value.get("toolUseResult") if results == 1 else None
        machine = _is_machine(value)
        outcome: Outcome = HARNESS_TEXT
        for content in contents:
            if content.get("type") == "tool_result":
                self._tool_result(content, raw, stamp)
                outcome = None
            elif (ended := anthropic.interrupt_of(content)) is not None:
                self._interrupt(ended, stamp)
                outcome = None
            elif not machine and not anthropic.is_wrapped(content) and self._prompt(value, content, stamp):
                outcome = None
        return outcome

    def _tool_result(self, content: dict[str, Any], raw: Any, stamp: Stamp) -> None:
        call_id = as_text(content.get("tool_use_id"))
        if call_id is None:
            return
        agent = raw.get("agentId") if isinstance(raw, dict) else None
        if isinstance(agent, str) and agent:
            self.agents[agent] = call_id
        anthropic.tool_result(self.out, call_id, content, raw, stamp)
        self._show(self.plan.result(call_id, anthropic.has_failed(content, raw), raw), stamp)

    def _interrupt(self, outcome: str, stamp: Stamp) -> None:
        if stamp.parent is None:
            self.running = self.answered = False
            self.out.state("turn", stamp, phase="end", outcome=outcome, reason="interrupted")

    def _prompt(self, value: dict[str, Any], content: dict[str, Any], stamp: Stamp) -> bool:
        """What a person typed, or what an agent told its sub-agent."""
        if stamp.parent is None and not self.running:
            self._session(value, stamp)
            self._start(stamp)
        return anthropic.user_block(self.out, content, stamp)

    def _show(self, plan: list[dict[str, str]] | None, stamp: Stamp) -> None:
        if plan is not None:
            self.out.plan(plan, stamp)

    # ------------------------------------------------------------ other lines

    def _system(self, value: dict[str, Any]) -> Outcome:
        subtype = as_text(value.get("subtype")) or ""
        stamp = Stamp(session_id=as_text(value.get("sessionId")), timestamp=as_text(value.get("timestamp")))
        if subtype == "compact_boundary":
            data = value.get("compactMetadata")
            trigger = as_text(data.get("trigger")) if isinstance(data, dict) else None
            self.out.state("compaction", stamp, phase="end", trigger=trigger, success=True)
            return None
        if subtype == "api_error":
            self.out.state(
                "retry",
                stamp,
                phase="start",
                attempt=count(value.get("retryAttempt")),
                maxAttempts=count(value.get("maxRetries")),
                delayMs=price(value.get("retryInMs")),
            )
            return None
        if subtype in ("model_consent_fallback", "model_fallback", "model_refusal_fallback"):
            self._retract(value.get("retractedMessageUuids"), stamp)
            if value.get("scope") != "local":  # that of a sub-agent or a side question
                self.out.state("model", stamp, model=as_text(value.get("fallbackModel")))
            return None
        return IGNORED_SYSTEM.get(subtype, UNKNOWN)

    def _attachment(self, value: dict[str, Any]) -> Outcome:
        """What goes to the model beside the messages; only a prompt that was typed ahead is a person's."""
        content = value.get("attachment")
        if not isinstance(content, dict) or content.get("type") != "queued_command":
            return "attachment"
        if value.get("isSidechain") is True or content.get("commandMode", "prompt") != "prompt":
            return "attachment"
        stamp = Stamp(session_id=as_text(value.get("sessionId")), timestamp=as_text(value.get("timestamp")))
        outcome: Outcome = "attachment"
        for block in anthropic.blocks_of(content.get("prompt")):
            if self._prompt(value, block, stamp):
                outcome = None
        return outcome

    # ------------------------------------------------------------ threads and turns

    def _thread(self, value: dict[str, Any]) -> str | None:
        """The call that a sidechain belongs to, "" if none is known; None for the file's own conversation."""
        if self.own or value.get("isSidechain") is not True:
            return None
        agent, parent = as_text(value.get("agentId")) or "", as_text(value.get("parentUuid")) or ""
        call_id = self.agents.get(agent) or self.seen.get(parent)
        if call_id is None:
            prompt = anthropic.joined_text(value["message"].get("content"))
            call_id = next((i for i, text in self.delegations.items() if text == prompt), "")
            self.delegations.pop(call_id, None)
        if agent and call_id:
            self.agents[agent] = call_id
        return call_id

    def _session(self, value: dict[str, Any], stamp: Stamp) -> None:
        self.out.session_state(
            Stamp(session_id=stamp.session_id, timestamp=stamp.timestamp),
            sessionId=stamp.session_id,
            version=as_text(value.get("version")),
            model=stamp.model,
            cwd=as_text(value.get("cwd")),
        )

    def _start(self, stamp: Stamp) -> None:
        self.running, self.answered = True, False
        self.out.state("turn", Stamp(session_id=stamp.session_id, timestamp=stamp.timestamp), phase="start")


def _is_machine(value: dict[str, Any]) -> bool:
    """True for a user line that no person typed."""
    origin = value.get("origin")
    kind = origin.get("kind") if isinstance(origin, dict) else None
    marked = any(value.get(key) is True for key in ("isMeta", "isCompactSummary", "isVisibleInTranscriptOnly"))
    return marked or value.get("rowSource") == "harness" or kind not in (None, "human", "user")
