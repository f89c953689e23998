"""Codex's own protocol events (`EventMsg`), wherever they are carried: `{"id", "msg"}` lines of the old exec mode,
`codex/event/...` notifications of app-server v1, `codex/event` of the MCP server, `event_msg` lines of a rollout.

One message comes up to four times: two families of deltas (`agent_message_delta`, and from about 0.98
`agent_message_content_delta`), the item that closes it (`item_completed`), and `agent_message`. The delta family that
comes first is used, the item is the authority, and an event that repeats it is dropped. Raw response items that the MCP
server prints beside all that are not read.
"""

from __future__ import annotations

from typing import Any

from .. import event as ev
from .. import tool
from ..emit import Emitter
from ..event import Stamp
from . import UNKNOWN, Outcome
from . import codex_shapes as shapes

IGNORED = {
    "agent_reasoning_raw_content": "raw reasoning",
    "agent_reasoning_raw_content_delta": "raw reasoning",
    "reasoning_raw_content_delta": "raw reasoning",
    "exec_command_output_delta": "output of a running command",
    "terminal_interaction": "output of a running command",
    "turn_diff": "diff of the turn",
    "mcp_startup_update": "start of MCP servers",
    "mcp_startup_complete": "start of MCP servers",
    "skills_update_available": "skills",
    "list_skills_response": "skills",
    "thread_settings_applied": "settings",
    "thread_rolled_back": "rollback",
    "thread_goal_updated": "goal",
    "sub_agent_activity": "sub-agent activity",
    "guardian_assessment": "automatic review",
    "hook_started": "hook",
    "hook_completed": "hook",
    "patch_apply_updated": "output of a patch",
    "dynamic_tool_call_request": "request that an item tells too",
    "auth_recovery_started": "account",
    "auth_recovery_completed": "account",
    "environment_connected": "environment",
    "environment_disconnected": "environment",
    "thread_queue_changed": "queue of prompts",
    "raw_response_completed": "raw item",
    "safety_buffering": "notice of the provider",
    "model_verification": "notice of the provider",
    "turn_moderation_metadata": "notice of the provider",
    "realtime_conversation_started": "realtime audio",
    "realtime_conversation_realtime": "realtime audio",
    "realtime_conversation_closed": "realtime audio",
    "realtime_conversation_sdp": "realtime audio",
    "realtime_conversation_list_voices_response": "realtime audio",
    "undo_started": "undo",
    "undo_completed": "undo",
    "entered_review_mode": "review mode",
    "exited_review_mode": "review mode",
    "get_history_entry_response": "answer to a request",
    "mcp_list_tools_response": "answer to a request",
    "list_custom_prompts_response": "answer to a request",
    "conversation_path": "answer to a request",
    "plan_delta": "text of a plan",
    "shutdown_complete": "shutdown",
    # raw items of the model API
    "raw_response_item": "raw item",
    "message": "raw item",
    "reasoning": "raw item",
    "function_call": "raw item",
    "function_call_output": "raw item",
    "custom_tool_call": "raw item",
    "custom_tool_call_output": "raw item",
    "local_shell_call": "raw item",
    "web_search_call": "raw item",
    "ghost_snapshot": "raw item",
}
#: events that ask a person
APPROVALS = frozenset(
    {"exec_approval_request", "apply_patch_approval_request", "request_user_input", "elicitation_request"}
)
#: calls of the agent tools, by the head of their begin and end events
AGENT_CALLS = {
    "collab_agent_spawn": "spawn_agent",
    "collab_agent_interaction": "send_input",
    "collab_waiting": "wait",
    "collab_close": "close_agent",
    "collab_resume": "resume_agent",
}
#: what the calls of other events are, by the head of their name (which is the tool's name)
CALL_KINDS = {
    "exec_command": "command",
    "patch_apply": "edit",
    "mcp_tool_call": "mcp",
    "web_search": "search",
    "image_generation": "picture",
}
#: what went wrong beside the turn, with a request of the client: the turn goes on
_BESIDE = frozenset({"thread_rollback_failed", "active_turn_not_steerable"})
TOLD_LENGTH = 32  # how many texts of items may wait for the event that repeats them


class Events:
    """The events of one conversation. ``agents`` (conversation: the call that spawned it) is shared by all of a
    stream; ``name`` keeps the blocks of conversations apart."""

    def __init__(self, out: Emitter, name: str = "", agents: dict[str, str] | None = None) -> None:
        self.out = out
        self.name = name
        self.agents: dict[str, str] = {} if agents is None else agents
        self.meter = shapes.Meter()
        self.channel: str | None = None  # the family of deltas that is used
        self.item: str | None = None  # id of the item whose content deltas come
        self.thoughts = 0  # number of summary parts so far
        self.waiting: list[str] = []  # keys of the parts that were streamed and have no final text yet
        self.new_part = False
        self.told: list[str] = []  # texts of items, until the event that repeats them
        self.plan: list[dict[str, str]] | None = None
        self.begun = False  # the start of the turn was told with the start of the process
        self.said = False  # the agent said something in this turn
        self.failed = False  # the turn has ended in an error
        self.refused = False  # a call was refused, and no text or call came since

    def map(self, msg: dict[str, Any], stamp: Stamp) -> Outcome:
        kind = msg.get("type")
        if not isinstance(kind, str):
            return UNKNOWN
        if kind.endswith("_delta") and kind not in IGNORED:
            return self._delta(kind, msg, stamp)
        if kind == "agent_reasoning_section_break":
            self.new_part = True
            return "section break"
        if kind in ("agent_message", "agent_reasoning", "user_message"):
            return self._text(kind, msg, stamp)
        if kind in ("item_started", "item_completed"):
            return self._item(kind, msg.get("item"), stamp)
        if kind.endswith(("_begin", "_end")):
            return self._call(kind, msg, stamp)
        if kind == "view_image_tool_call":
            call_id = shapes.text(msg.get("call_id"))
            if call_id is None:
                return UNKNOWN
            self.acted()
            if shapes.announce(self.out, "image", kind, shapes.Item(msg), call_id, stamp):
                self.out.update(call_id, stamp, status="completed")
            return None
        if kind == "token_count":
            return self.count(msg, stamp)
        if kind == "plan_update":
            return self._plan(msg.get("plan"), stamp)
        return self._state(kind, msg, stamp)

    def acted(self) -> None:
        """The agent said or did something: a refusal before this is no end."""
        self.refused = False

    def close(self, parent: str | None) -> None:
        """The turn is over: texts that were cut stay as they are."""
        self.out.settle(ev.MESSAGE, self._key("message"), parent)
        self._close_thoughts(parent)
        self.item = None
        self.told.clear()

    # ------------------------------------------------------------ texts

    def _key(self, what: str) -> str:
        return f"{self.name}/{what}"

    def _delta(self, kind: str, msg: dict[str, Any], stamp: Stamp) -> Outcome:
        channel = "content" if kind in ("agent_message_content_delta", "reasoning_content_delta") else "plain"
        if channel == "plain" and kind not in ("agent_message_delta", "agent_reasoning_delta"):
            return UNKNOWN
        if self.channel is None:
            self.channel = channel
        if channel != self.channel:
            return "the other family of deltas"
        text = shapes.text(msg.get("delta"))
        if not text:
            return "empty text"
        stamp.message_id = shapes.text(msg.get("item_id"))
        if stamp.message_id != self.item:  # the item before was cut, or it is closed already
            self.out.settle(ev.MESSAGE, self._key("message"), stamp.parent)
            self._close_thoughts(stamp.parent)
            self.item = stamp.message_id
        if kind in ("agent_message_delta", "agent_message_content_delta"):
            self.acted()
            self.said = True
            self.out.delta(ev.MESSAGE, self._key("message"), text, stamp)
            return None
        if self.new_part or not self.waiting:
            self.new_part = False
            self.thoughts += 1
            self.waiting.append(self._key(f"thought {self.thoughts}"))
        self.out.delta(ev.THOUGHT, self.waiting[-1], text, stamp)
        return None

    def _text(self, kind: str, msg: dict[str, Any], stamp: Stamp) -> Outcome:
        text = shapes.text(msg.get("text" if kind == "agent_reasoning" else "message"))
        if not text:
            return "empty text"
        if kind == "user_message":
            self.out.whole(ev.USER, text, stamp)
            return None
        if f"{kind} {text}" in self.told:
            self.told.remove(f"{kind} {text}")
            return "item again"
        self._final(kind, text, stamp)
        return None

    def _final(self, kind: str, text: str, stamp: Stamp) -> None:
        """The whole text of a message or of one part of the reasoning's summary."""
        if kind == "agent_message":
            self.acted()
            self.said = True
            self.out.final(ev.MESSAGE, self._key("message"), text, stamp)
            self.out.settle(ev.MESSAGE, self._key("message"), stamp.parent)
            return
        if self.waiting:
            key = self.waiting.pop(0)
        else:
            self.thoughts += 1
            key = self._key(f"thought {self.thoughts}")
        self.out.final(ev.THOUGHT, key, text, stamp)
        self.out.settle(ev.THOUGHT, key, stamp.parent)

    def _close_thoughts(self, parent: str | None) -> None:
        for key in self.waiting:
            self.out.settle(ev.THOUGHT, key, parent)
        self.waiting.clear()
        self.new_part = False

    def _item(self, kind: str, item: Any, stamp: Stamp) -> Outcome:
        """`{"type": "AgentMessage", ...}` (0.50: `{"AgentMessage": {...}}`). Only texts are news: calls have events."""
        if not isinstance(item, dict):
            return UNKNOWN
        name = item.get("type")
        if not isinstance(name, str) and len(item) == 1:
            name = next(iter(item))
            item = item[name] if isinstance(item[name], dict) else {}
        if kind == "item_started" or name not in ("AgentMessage", "Reasoning"):
            return "item"
        stamp.message_id = shapes.text(item.get("id"))
        if name == "AgentMessage":
            texts, repeat = ["".join(shapes.text_of(item.get("content")))], "agent_message"
        else:
            texts, repeat = shapes.strings(item.get("summary_text")), "agent_reasoning"
        for text in texts:
            if text:
                self._final(repeat, text, stamp)
                self.told = [*self.told[1 - TOLD_LENGTH :], f"{repeat} {text}"]
        if name == "Reasoning":
            self._close_thoughts(stamp.parent)
        self.item = None
        return None if any(texts) else "empty text"

    # ------------------------------------------------------------ calls

    def _call(self, event: str, msg: dict[str, Any], stamp: Stamp) -> Outcome:
        name, _, what = event.rpartition("_")
        call_id = shapes.text(msg.get("call_id"))
        if call_id is None:
            return UNKNOWN
        kind = CALL_KINDS.get(name)
        item = shapes.Item.of_event(kind or "", msg)
        if name in AGENT_CALLS:
            # the status is the agent's, not the call's
            kind, item.tool, item.status = "agent", AGENT_CALLS[name], None
            name = "collab_tool_call"
            child = shapes.text(msg.get("new_thread_id"))
            if child is not None:
                self.agents[child] = ev.clean(call_id)
        if kind is None:
            return UNKNOWN
        self.acted()
        if what == "begin":
            return None if shapes.announce(self.out, kind, name, item, call_id, stamp) else "begin again"
        if not self.out.knows(call_id):
            shapes.announce(self.out, kind, name, item, call_id, stamp)
        self.refused = item.status == "declined"
        return None if shapes.settle(self.out, kind, item, call_id, stamp) else "end again"

    def _plan(self, steps: Any, stamp: Stamp) -> Outcome:
        entries = tool.plan_of(steps, "step")
        if entries is None or entries == self.plan:
            return "plan again"
        self.plan = entries
        self.out.plan(entries, stamp)
        return None

    # ------------------------------------------------------------ usage

    def count(self, msg: dict[str, Any], stamp: Stamp) -> Outcome:
        """`token_count`: flat counters of one call (0.20), later `info` with the thread's total and the last call."""
        if "info" not in msg:
            self.out.usage("call", shapes.usage_of(msg), stamp)
            return None
        info = msg["info"]
        if not isinstance(info, dict):
            return "rate limits"
        known = self.meter.take(self.out, info.get("total_token_usage"), info.get("last_token_usage"), stamp)
        return None if known else "token count again"

    # ------------------------------------------------------------ turns, errors and the rest

    def _state(self, kind: str, msg: dict[str, Any], stamp: Stamp) -> Outcome:
        main = stamp.parent is None
        if kind == "session_configured":
            if main:
                self.out.session_state(
                    stamp,
                    sessionId=shapes.text(msg.get("session_id")),
                    model=shapes.text(msg.get("model")),
                    cwd=shapes.text(msg.get("cwd")),
                )
            return None
        if kind in ("task_started", "turn_started"):
            self.start(stamp)
            return None
        if kind in ("task_complete", "turn_complete"):
            self.complete(msg, stamp)
            return None
        if kind == "turn_aborted":
            reason = shapes.text(msg.get("reason"))
            self.close(stamp.parent)
            if main:
                outcome = shapes.ABORTS.get(reason or "", "cancelled")
                self.out.state("turn", stamp, phase="end", outcome=outcome, reason=reason)
            return None
        if kind == "error":
            message, info = shapes.text(msg.get("message")), msg.get("codex_error_info")
            if (next(iter(info), None) if isinstance(info, dict) else info) not in _BESIDE:
                self.fail(message, info, stamp)
            elif message is not None:
                self.out.error(message, stamp, fatal=False, notice=True)
            return None
        if kind in ("stream_error", "background_event"):
            return self._retry(kind, msg, stamp)
        if kind in ("warning", "deprecation_notice", "guardian_warning"):
            message = shapes.text(msg.get("message")) or shapes.text(msg.get("summary"))
            if message is not None:
                self.out.error(message, stamp, fatal=False, notice=True)
            return None
        if kind == "context_compacted":
            self.out.state("compaction", stamp, phase="end", success=True)
            return None
        if kind in APPROVALS:
            self.out.state(
                "approval",
                stamp,
                phase="requested",
                toolCallId=shapes.text(msg.get("call_id")),
                message=shapes.text(msg.get("reason")) or shapes.text(msg.get("message")),
            )
            return None
        if kind in ("model_reroute", "thread_name_updated"):
            self.out.session_state(
                stamp, model=shapes.text(msg.get("to_model")), title=shapes.text(msg.get("thread_name"))
            )
            return None
        return IGNORED.get(kind, UNKNOWN)

    def start(self, stamp: Stamp) -> None:
        """A turn begins."""
        self.close(stamp.parent)
        self.said = self.failed = self.refused = False
        if stamp.parent is None:
            self.out.next_turn()
            if not self.begun:
                self.out.state("turn", stamp, phase="start")
            self.begun = False

    def complete(self, msg: dict[str, Any], stamp: Stamp) -> None:
        """A turn has ended by itself; an error that ended it came before, or stands here (rollout of 0.171)."""
        error = msg.get("error")
        if isinstance(error, dict):
            self.fail(shapes.text(error.get("message")), error.get("codex_error_info"), stamp)
        last = shapes.text(msg.get("last_agent_message"))
        if last and not self.said and not self.failed:
            self._final("agent_message", last, stamp)
        self.close(stamp.parent)
        if stamp.parent is None and not self.failed:
            outcome = "denied" if self.refused else "completed"
            self.out.state("turn", stamp, phase="end", outcome=outcome, reason=shapes.text(msg.get("type")))

    def fail(self, message: str | None, info: Any, stamp: Stamp) -> None:
        """An error that ends the turn."""
        self.close(stamp.parent)
        main = stamp.parent is None
        if message is not None:
            self.out.error(message, stamp, fatal=main, notice=not main)
        if main:
            self.failed = True
            self.out.state("turn", stamp, phase="end", outcome=shapes.outcome_of(message, info), reason=message)

    def _retry(self, kind: str, msg: dict[str, Any], stamp: Stamp) -> Outcome:
        message = shapes.text(msg.get("message")) or ""
        retry = shapes.retry_of(message)
        if retry is None and kind == "background_event":
            return "background event"
        shapes.tell_retry(self.out, message, retry, stamp)
        return None
