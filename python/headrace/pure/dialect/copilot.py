"""GitHub Copilot CLI: ``copilot -p ... --output-format json`` (recorded: 1.0.102).

Envelopes with dotted types and ``data``, then one last line of another shape: ``result`` with the exit code. Deltas
(unless ``--stream off``) come before the whole ``assistant.message``; its ``reasoningText`` comes again in
``assistant.reasoning``. A sub-agent's records are in the same stream, with ``agentId``. ``assistant.turn_retry`` takes
back the deltas of the failed try. A non-zero exit of a command is ``success: true`` with ``shellExecution.exitCode``.
Tokens are not on stdout, only in the session file; versions before say with each message what its output took.
"""

from __future__ import annotations

from typing import Any

from .. import event as ev
from ..emit import Emitter, count, tokens
from ..event import Stamp
from ..record import Record
from ..run import Ending, Exit, Reducer
from ..wire import as_text
from . import SURE, UNKNOWN, Outcome, Sign

NAME = "copilot"

#: heads of types that all say nothing for events, known from the vendor's SDK: what the host is asked, told and shown
IGNORED_HEADS = {
    "auto_mode_switch": "question to the host",
    "capabilities": "capabilities",
    "command": "command",
    "commands": "command",
    "elicitation": "question to the host",
    "exit_plan_mode": "question to the host",
    "external_tool": "question to the host",
    "factory": "factory run",
    "mcp": "MCP servers",
    "mcp_app": "MCP servers",
    "sampling": "question to the host",
    "session_limits_exhausted": "question to the host",
    "tool_search": "tool search",
    "ui": "user interface",
    "user_input": "question to the host",
}
#: how the dotted types begin
HEADS = frozenset(
    {
        "assistant",
        "hook",
        "model",
        "pending_messages",
        "permission",
        "session",
        "skill",
        "subagent",
        "system",
        "tool",
        "user",
    }
) | frozenset(IGNORED_HEADS)
#: record types that only the session file has
STORED = frozenset(
    {
        "session.start",
        "session.resume",
        "session.shutdown",
        "session.usage_record",
        "session.permissions_changed",
        "session.binary_asset",
        "system.message",
    }
)
IGNORED = {
    "assistant.intent": "intent",
    "assistant.message_start": "start of a message",
    "assistant.streaming_delta": "bytes received",
    "assistant.tool_call_delta": "part of a call",
    "hook.end": "hook",
    "hook.start": "hook",
    "model.call_final_result": "end of a model call",
    "model.call_finished": "end of a model call",
    "model.call_start": "start of a model call",
    "pending_messages.modified": "queue",
    "session.autopilot_stopped": "autopilot",
    "session.background_tasks_changed": "background tasks",
    "session.handoff": "handoff",
    "session.info": "information",
    "session.mcp_server_status_changed": "MCP servers",
    "session.mcp_server_tools_loaded": "MCP servers",
    "session.mcp_servers_loaded": "MCP servers",
    "session.mode_notice_delivered": "mode",
    "session.permissions_changed": "permissions",
    "session.skills_loaded": "skills",
    "session.task_complete": "summary of the task",
    "session.todos_changed": "todos, which it does not tell",
    "session.truncation": "truncation",
    "session.usage_info": "size of the context",
    "skill.invoked": "skill",
    "subagent.completed": "sub-agent",
    "subagent.configured": "sub-agent",
    "subagent.failed": "sub-agent",
    "subagent.selected": "sub-agent",
    "subagent.started": "sub-agent",
    "system.message": "system prompt",
    "system.notification": "notification",
    "tool.execution_partial_result": "output of a running call",
    "tool.shell_output": "output of a running call",
    "tool.user_requested": "call of the user",
    # known from the vendor's SDK
    "assistant.server_tool_progress": "progress",
    "hook.progress": "hook",
    "session.auto_mode_resolved": "mode",
    "session.autopilot_objective_changed": "autopilot",
    "session.context_cleared": "context cleared",
    "session.custom_agents_updated": "agents",
    "session.custom_notification": "notification",
    "session.extensions_loaded": "extensions",
    "session.import_legacy": "import",
    "session.managed_settings_enforced": "settings",
    "session.managed_settings_resolved": "settings",
    "session.mode_changed": "mode",
    "session.plan_changed": "plan, which it does not tell",
    "session.remote_steerable_changed": "remote",
    "session.schedule_cancelled": "schedule",
    "session.schedule_created": "schedule",
    "session.schedule_rearmed": "schedule",
    "session.session_limits_changed": "limits",
    "session.snapshot_rewind": "rewind",
    "session.usage_checkpoint": "credits",
    "session.workspace_file_changed": "workspace",
    "subagent.deselected": "sub-agent",
    "tool.execution_progress": "progress",
}
#: error types that are more than a failure
ERRORS = {"quota": "limit", "quota_exceeded": "limit", "context_limit": "limit"}
#: why the harness itself stopped a run; any other reason is somebody's wish
ABORTS = {"autopilot_credit_limit": "limit"}
#: codes of a failed call that mean a refusal
REFUSALS = ("denied", "rejected")
#: images that are kept for the result which refers to them
ASSETS = 16


def sign(record: dict[str, Any]) -> Sign | None:
    kind = record.get("type")
    if kind == "result" and "sessionId" in record and "exitCode" in record and "subtype" not in record:
        return Sign(SURE, "a result with exitCode")
    if not is_envelope(record) or kind in STORED:
        return None
    if record.get("ephemeral") is True:
        return Sign(SURE, "a dotted type with data, and ephemeral")
    return Sign(50, "a dotted type with data and parentId")


def is_envelope(record: dict[str, Any]) -> bool:
    kind = record.get("type")
    if not isinstance(kind, str) or not isinstance(record.get("data"), dict) or "parentId" not in record:
        return False
    return kind == "abort" or kind.partition(".")[0] in HEADS


class Seat:
    """What one agent's current turn has said."""

    __slots__ = ("answered", "streamed", "told")

    def __init__(self) -> None:
        self.streamed = False  # thoughts came in deltas
        self.told: str | None = None  # thoughts that came with the message
        self.answered = False  # its message asks for no tool


class Mapper:
    def __init__(self, out: Emitter) -> None:
        self.out = out
        self.agents: dict[str, str] = {}  # id of a sub-agent: the call that delegated
        self.seats: dict[str, Seat] = {}  # by delegating call, "" for the main agent
        self.failed: str | None = None  # outcome of an error since the last prompt
        self.aborted: str | None = None  # the same of an abort
        self.denied = False  # a call was refused, and no text came after it
        self.turning = False
        self.over = False  # the last line of a process came last
        self.assets: dict[str, str] = {}  # session file: the last images, by asset id
        self.billed = False  # usage has records of its own

    def map(self, record: Record) -> Outcome:
        value = record.value
        kind, data = value.get("type"), value.get("data")
        if kind == "result" and "exitCode" in value:
            return self._exit(value)
        if not isinstance(kind, str) or not isinstance(data, dict):
            return UNKNOWN
        stamp = self.stamp(value, data)
        if self.over:
            self.over, self.failed, self.aborted, self.denied = False, None, None, False
            self.out.another_run(stamp)
        return self.take(kind, data, stamp)

    def close(self) -> None:
        pass

    def judge(self, run: Reducer, exit: Exit) -> Ending | None:
        return None

    def stamp(self, value: dict[str, Any], data: dict[str, Any]) -> Stamp:
        """Whose record it is: a sub-agent goes by the call that delegated, by its own id if that was not told."""
        agent = as_text(value.get("agentId"))
        parent = as_text(data.get("parentToolCallId"))
        if agent is not None:
            call_id = as_text(data.get("toolCallId"))
            if value.get("type") == "subagent.started" and call_id is not None:
                self.agents[ev.clean(agent)] = ev.clean(call_id)
            parent = self.agents.get(ev.clean(agent)) or parent or agent
        return Stamp(
            message_id=as_text(data.get("messageId")),
            timestamp=as_text(value.get("timestamp")),
            parent=None if parent is None else ev.clean(parent),
        )

    def take(self, kind: str, data: dict[str, Any], stamp: Stamp) -> Outcome:
        """One envelope; the session file has most of them too."""
        head, _, tail = kind.partition(".")
        if head == "assistant":
            return self._assistant(tail, data, stamp)
        if head == "tool":
            return self._tool(tail, data, stamp)
        if head == "session":
            return self._session(tail, data, stamp)
        if head == "permission":
            return self._permission(tail, data, stamp)
        if kind == "user.message":
            return self._user(data, stamp)
        if kind == "model.call_failure":
            message = as_text(data.get("errorMessage")) or as_text(data.get("failureKind"))
            if message is not None:
                self.out.error(message, stamp, fatal=False, notice=True)
            return None
        if kind == "abort":
            reason = as_text(data.get("reason")) or kind
            self.failed = self.aborted = ABORTS.get(reason, "cancelled")
            self.out.error(reason, stamp, fatal=True)
            self._end_turn(stamp)
            return None
        return IGNORED.get(kind) or IGNORED_HEADS.get(head, UNKNOWN)

    # ------------------------------------------------------------ what the agents say

    def _assistant(self, tail: str, data: dict[str, Any], stamp: Stamp) -> Outcome:
        if tail == "message_delta":
            return self._delta(ev.MESSAGE, stamp.message_id or "", data, stamp)
        if tail == "reasoning_delta":
            self._seat(stamp).streamed = True
            return self._delta(ev.THOUGHT, as_text(data.get("reasoningId")) or "", data, stamp)
        if tail == "message":
            return self._message(data, stamp)
        if tail == "reasoning":
            return self._reasoning(data, stamp)
        if tail == "turn_start":
            self.out.commit(stamp.parent)
            self.seats[stamp.parent or ""] = Seat()
            self._start_turn(stamp)
            return None
        if tail == "turn_end":
            self.out.close(stamp.parent)
            if self._seat(stamp).answered and stamp.parent is None:
                self._end_turn(stamp)
                return None
            return "end of a model's turn"
        if tail == "turn_retry":
            self.out.abandon(stamp.parent, stamp)
            self.seats[stamp.parent or ""] = Seat()
            self.out.state("retry", stamp, phase="start", message=as_text(data.get("reason")))
            return None
        if tail == "idle":
            return self._idle(data, stamp)
        if tail == "usage":
            self.usage(data, stamp)
            return None
        return IGNORED.get(f"assistant.{tail}", UNKNOWN)

    def usage(self, value: Any, stamp: Stamp) -> None:
        """One model call: input includes what was read from the cache, output the reasoning. `cost` is no money."""
        if not isinstance(value, dict):
            return
        self.billed = True
        key = as_text(value.get("apiCallId"))
        stamp.model = as_text(value.get("model"))
        self.out.usage("call", counters(value), stamp, key=None if key is None else f"call:{key}")

    def _seat(self, stamp: Stamp) -> Seat:
        return self.seats.setdefault(stamp.parent or "", Seat())

    def _delta(self, kind: str, key: str, data: dict[str, Any], stamp: Stamp) -> Outcome:
        text = as_text(data.get("deltaContent"))
        if not text:
            return "empty text"
        if kind == ev.MESSAGE and stamp.parent is None:
            self.denied = False
        self.out.delta(kind, ev.clean(key), text, stamp)
        return None

    def _message(self, data: dict[str, Any], stamp: Stamp) -> Outcome:
        """The whole answer of a model call."""
        stamp.model = as_text(data.get("model"))
        seat = self._seat(stamp)
        thought = as_text(data.get("reasoningText"))
        if thought and not seat.streamed:
            seat.told = thought
            self.out.whole(ev.THOUGHT, thought, stamp)
        text = as_text(data.get("content"))
        if text is not None:
            self.out.final(ev.MESSAGE, ev.clean(stamp.message_id or ""), text, stamp)
        if not self.billed:
            key = as_text(data.get("apiCallId")) or stamp.message_id
            output = tokens(None, count(data.get("outputTokens")))
            self.out.usage("call", output, stamp, key=None if key is None else f"call:{ev.clean(key)}")
        if text and stamp.parent is None:
            self.denied = False
        requests = data.get("toolRequests")
        requests = [item for item in requests if isinstance(item, dict)] if isinstance(requests, list) else []
        seat.answered = not requests
        self.out.next_turn()
        for request in requests:
            call_id = as_text(request.get("toolCallId"))
            if call_id is not None:
                self._call(call_id, as_text(request.get("name")), request, stamp, "pending")
        return None

    def _reasoning(self, data: dict[str, Any], stamp: Stamp) -> Outcome:
        """The thought again, after the message."""
        seat, text = self._seat(stamp), as_text(data.get("content"))
        if text is None:
            return "empty text"
        if seat.told is not None:
            return "thought again"
        self.out.final(ev.THOUGHT, ev.clean(as_text(data.get("reasoningId")) or ""), text, stamp)
        return None

    def _user(self, data: dict[str, Any], stamp: Stamp) -> Outcome:
        """A prompt, a sub-agent's task, or a push of the autopilot (which is empty)."""
        if stamp.parent is None:
            self.failed, self.aborted, self.denied, self.turning = None, None, False, False
            self._start_turn(stamp)
        text, source = as_text(data.get("content")), as_text(data.get("source"))
        if not text:
            return "empty text"
        self.out.whole(ev.USER, text, stamp.with_extra({"source": source} if source is not None else None))
        return None

    # ------------------------------------------------------------ tools

    def _call(self, call_id: str, name: str | None, data: dict[str, Any], stamp: Stamp, status: str) -> None:
        server, tool_name = as_text(data.get("mcpServerName")), as_text(data.get("mcpToolName"))
        title = f"{server}: {tool_name}" if server and tool_name else None
        self.out.call(call_id, name, data.get("arguments"), stamp, status=status, title=title)

    def _tool(self, tail: str, data: dict[str, Any], stamp: Stamp) -> Outcome:
        call_id = as_text(data.get("toolCallId"))
        if tail == "execution_start" and call_id is not None:
            if self.out.is_open(call_id):
                self.out.update(call_id, stamp, status="in_progress", started_at=stamp.timestamp)
            else:
                self._call(call_id, as_text(data.get("toolName")), data, stamp, "in_progress")
            return None
        if tail == "execution_complete" and call_id is not None:
            return None if self._complete(call_id, data, stamp) else "second end of a call"
        return IGNORED.get(f"tool.{tail}", UNKNOWN)

    def _complete(self, call_id: str, data: dict[str, Any], stamp: Stamp) -> bool:
        result, error, shell = data.get("result"), data.get("error"), data.get("shellExecution")
        ok = data.get("success") is True
        exit_code = None
        if isinstance(shell, dict) and "exitCode" in shell:
            exit_code = count(shell["exitCode"])
            ok = ok and exit_code == 0
        content = content_of(result, self.assets) if isinstance(result, dict) else []
        if not content and isinstance(error, dict) and isinstance(error.get("message"), str):
            content = ev.text_content(error["message"])
        if stamp.parent is None:
            self.denied = isinstance(error, dict) and error.get("code") in REFUSALS
        raw = {key: data[key] for key in ("shellExecution", "fileEdits", "error", "toolTelemetry") if key in data}
        return self.out.update(
            call_id,
            stamp,
            status="completed" if ok else "failed",
            content=content,
            exit_code=exit_code,
            raw_output=raw or ...,
        )

    def _permission(self, tail: str, data: dict[str, Any], stamp: Stamp) -> Outcome:
        if tail == "requested":
            request = data.get("permissionRequest")
            request = request if isinstance(request, dict) else {}
            self.out.state(
                "approval",
                stamp,
                phase="requested",
                toolCallId=as_text(request.get("toolCallId")),
                message=as_text(request.get("fullCommandText")) or as_text(request.get("kind")),
            )
            return None
        if tail == "completed":
            result = data.get("result")
            self.out.state(
                "approval",
                stamp,
                phase="settled",
                toolCallId=as_text(data.get("toolCallId")),
                decision=as_text(result.get("kind")) if isinstance(result, dict) else None,
            )
            return None
        return UNKNOWN

    # ------------------------------------------------------------ the session

    def _session(self, tail: str, data: dict[str, Any], stamp: Stamp) -> Outcome:
        if tail in ("start", "resume"):
            context = data.get("context")
            self.out.session_state(
                stamp,
                sessionId=as_text(data.get("sessionId")),
                version=as_text(data.get("copilotVersion")),
                model=as_text(data.get("selectedModel")),
                cwd=as_text(context.get("cwd")) if isinstance(context, dict) else None,
            )
            return None
        if tail == "binary_asset":
            asset, image = as_text(data.get("assetId")), as_text(data.get("data"))
            if asset is not None and image is not None:
                if len(self.assets) >= ASSETS:
                    self.assets.pop(next(iter(self.assets)))
                self.assets[ev.clean(asset)] = ev.clean(image)
            return "asset"
        if tail == "tools_updated":
            self.out.session_state(stamp, model=as_text(data.get("model")))
            return None
        if tail == "model_change":
            if stamp.parent is not None:
                return "sub-agent"
            model, effort = as_text(data.get("newModel")), as_text(data.get("reasoningEffort"))
            self.out.state("model", stamp, model=model, effort=effort)
            return None
        if tail == "error":
            return self._error(data, stamp)
        if tail == "warning":
            self.out.error(as_text(data.get("message")) or "warning", stamp, fatal=False, notice=True)
            return None
        if tail == "idle":
            return self._idle(data, stamp)
        if tail == "title_changed":
            self.out.session_state(stamp, title=as_text(data.get("title")))
            return None
        if tail == "context_changed":
            self.out.session_state(stamp, cwd=as_text(data.get("cwd")))
            return None
        if tail.startswith(("canvas.", "extensions.")):
            return "canvas"
        if tail == "compaction_start":
            self.out.state("compaction", stamp, phase="start")
            return None
        if tail == "compaction_complete":
            self.out.state(
                "compaction",
                stamp,
                phase="end",
                success=data.get("success") is not False,
                summary=as_text(data.get("summaryContent")),
                message=as_text(data.get("error")),
            )
            return None
        return IGNORED.get(f"session.{tail}", UNKNOWN)

    def _error(self, data: dict[str, Any], stamp: Stamp) -> Outcome:
        message, kind = as_text(data.get("message")), as_text(data.get("errorType"))
        if message is None:
            return UNKNOWN
        if stamp.parent is None:
            self.failed = ERRORS.get(kind or "", "failed")
        extra = {"errorType": kind} if kind is not None else None
        self.out.error(message, stamp.with_extra(extra), fatal=stamp.parent is None)
        self._end_turn(stamp)
        return None

    # ------------------------------------------------------------ turns and the end

    def _start_turn(self, stamp: Stamp) -> None:
        if not self.turning and stamp.parent is None:
            self.turning = True
            self.out.state("turn", stamp, phase="start")

    def _idle(self, data: dict[str, Any], stamp: Stamp) -> Outcome:
        """The agent has stopped, which may be because somebody stopped it."""
        if data.get("aborted") is True and self.failed is None and stamp.parent is None:
            self.failed = self.aborted = "cancelled"
        self._end_turn(stamp)
        return None

    def _end_turn(self, stamp: Stamp) -> None:
        if self.turning and stamp.parent is None:
            self.turning = False
            self.out.state("turn", stamp, phase="end", outcome=self.outcome())

    def outcome(self) -> str:
        """How the last prompt ended, if it did."""
        return self.failed or ("denied" if self.denied else "completed")

    def _exit(self, value: dict[str, Any]) -> Outcome:
        """The last line."""
        stamp = Stamp(timestamp=as_text(value.get("timestamp")))
        self.out.session_state(stamp, sessionId=as_text(value.get("sessionId")))
        self.turning, self.over = False, True
        code = count(value.get("exitCode"))
        outcome = "denied" if self.denied else "completed"
        if code != 0:
            outcome = self.failed or "failed"
        elif self.aborted is not None:
            outcome = self.aborted  # an abort is not the harness's failure
        self.out.state("end", stamp, outcome=outcome, reason=f"exit code {code}" if code is not None else None)
        return None


# ---------------------------------------------------------------- shapes


def content_of(result: dict[str, Any], assets: dict[str, str]) -> list[dict[str, Any]]:
    """Tool content: the text, and the images that an MCP server or a viewed file gave (a stored one by asset id)."""
    text = as_text(result.get("content"))
    blocks = ev.text_content(text) if text else []
    images = result.get("contents")
    if not isinstance(images, list):
        images = result.get("binaryResultsForLlm")
    for item in images if isinstance(images, list) else []:
        if not isinstance(item, dict) or item.get("type") != "image":
            continue
        asset = as_text(item.get("assetId"))
        data = as_text(item.get("data")) or assets.get(ev.clean(asset or ""))
        if data is not None:
            blocks.append(ev.wrapped(ev.image_block(data, as_text(item.get("mimeType")) or "")))
    return blocks


def counters(value: dict[str, Any]) -> dict[str, Any]:
    extra = {key: value[key] for key in ("cacheWriteTokens", "reasoningTokens") if count(value.get(key)) is not None}
    return tokens(
        count(value.get("inputTokens")),
        count(value.get("outputTokens")),
        count(value.get("cacheReadTokens")),
        extra=extra,
    )
