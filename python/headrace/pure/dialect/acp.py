"""ACP, the Agent Client Protocol: JSON-RPC 2.0 of any agent over stdio, one message a line (`protocolVersion` 1; the
unstable parts of its schema and the draft of version 2 as far as they say the same things).

Read is the agent's side. A log with both directions merged works too: then the client's requests tell prompts from
loads, and its answers tell what became of a permission request. The two directions number their requests apart, so a
line with `method` is a request whoever else used its id, and an answer is told by its shape.

The traps: chunks are all there is, no whole text comes after them, and without `messageId` any other update ends a
block; updates may come after the answer to session/prompt; that answer says "end_turn" for failures too; a
`user_message_chunk` after a finished turn opens the replay of session/load; errors and notices come as message chunks
(see `acp_agents`, as for all that the agents put into `_meta` and `rawOutput`).

The sessions that Grok Build stores (`updates.jsonl`) are its side without answers: how a turn ended is in an extension
of its own, which it prints live before the answer, too.
"""

from __future__ import annotations

from typing import Any

from .. import event as ev
from .. import tool
from ..emit import Emitter, count, price, tokens
from ..event import Stamp
from ..record import Record
from ..run import Ending, Exit, Reducer
from . import SURE, UNKNOWN, Outcome, Sign, acp_agents
from .acp_agents import AGENTS
from .acp_calls import Calls
from .acp_shape import (
    AGENT_METHODS,
    CLIENT_METHODS,
    EXTENSIONS,
    block_of,
    content_of,
    error_text,
    id_of,
    info_of,
    joined,
    mapping,
    model_of,
    request_id,
    sequence,
    shown_text,
    text_of,
    version_of,
)

NAME = "acp"

#: how a prompt ended, by its stop reason; a refusal is the model's; "error" is DeepSeek-Reasonix's word
OUTCOMES = {
    "end_turn": "completed",
    "max_tokens": "limit",
    "max_turn_requests": "limit",
    "refusal": "failed",
    "cancelled": "cancelled",
    "error": "failed",
}
#: error codes of answers to other requests than the prompt: no such method, bad params, no such thing, bad JSON
OTHER_ERRORS = frozenset({-32700, -32601, -32602, -32600, -32002})
CANCELLED_ERROR = -32800
PROMPT = "session/prompt"
#: requests whose failure is the run's, where the client's side is there to tell
FATAL_REQUESTS = frozenset(
    {"initialize", "authenticate", "auth/login", "session/new", "session/load", "session/resume", PROMPT}
)
#: Grok Build's own notifications: stored or replayed, and live; early versions said the same as plain updates
GROK_METHODS = frozenset({"_x.ai/session/update", "_x.ai/session_notification"})
GROK_UPDATES = frozenset(
    {
        "auto_compact_cancelled",
        "auto_compact_completed",
        "auto_compact_failed",
        "auto_compact_started",
        "model_changed",
        "retry_state",
        "turn_completed",
    }
)
#: with an update of these (a draft of the protocol, what Claude, codex, Cursor and Grok made of it) the session of a
#: sub-agent begins: where its id is
SPAWNS = {"subagent_spawned": ("subagentSessionId", "child_session_id"), "subagent_update": ("sessionId",)}
#: what counts of a sub-agent's session: its words and calls. Its prompt, plan, cost and title are not the session's.
OF_SUBAGENTS = frozenset(
    {
        "agent_message",
        "agent_message_chunk",
        "agent_thought",
        "agent_thought_chunk",
        "terminal_output_chunk",
        "terminal_update",
        "tool_call",
        "tool_call_content_chunk",
        "tool_call_update",
    }
)
#: codex: ids of "calls" that say that an MCP server did not start
MCP_STARTUP = "mcp_startup."
#: version 2: a whole message, that chunks may go on with
MESSAGES = {"agent_message": ev.MESSAGE, "agent_thought": ev.THOUGHT, "user_message": ev.USER}

IGNORED_UPDATES = {
    "available_commands_update": "commands",
    "current_mode_update": "session options",
    "compaction_summary_chunk": "compaction summary",
    "terminal_update": "terminal",
    "terminal_output_chunk": "terminal",
    "subagent_state_update": "sub-agent start and end",
    "session_message": "message between agents",
    "async_task_spawned": "background task",
    "async_task_progress": "background task",
    "async_task_state_update": "background task",
}


def sign(record: dict[str, Any]) -> Sign | None:
    method, params = record.get("method"), record.get("params")
    params = mapping(params)
    if method == "session/update":
        update = mapping(params.get("update")).get("sessionUpdate")
        return Sign(SURE, f"session/update {ev.clean(update)}") if isinstance(update, str) else None
    if record.get("jsonrpc") != "2.0" or "type" in record:
        return None
    if isinstance(method, str):
        return _sign_request(method, params)
    if "id" in record and ("result" in record or "error" in record):
        return _sign_response(record)
    return None


def _sign_request(method: str, params: dict[str, Any]) -> Sign | None:
    if method == "initialize":
        known = count(params.get("protocolVersion")) is not None
        return Sign(SURE, "initialize with a numeric protocolVersion") if known else None
    if method in CLIENT_METHODS or method in AGENT_METHODS or method == "session/request_permission":
        weight = SURE if "sessionId" in params or "cwd" in params else 20
        return Sign(weight, f"a request {method}")
    if method.startswith(EXTENSIONS) or method == "elicitation/create":
        return Sign(20, f"a request {ev.clean(method)}")
    return None


def _sign_response(record: dict[str, Any]) -> Sign:
    result = mapping(record.get("result"))
    if count(result.get("protocolVersion")) is not None and ("agentCapabilities" in result or "info" in result):
        return Sign(SURE, "an answer with protocolVersion and agentCapabilities", version_of(result))
    if isinstance(result.get("stopReason"), str):
        return Sign(60, "an answer with stopReason")
    if isinstance(mapping(result.get("outcome")).get("outcome"), str):
        return Sign(40, "an answer with the outcome of a question")
    if isinstance(result.get("sessionId"), str):
        return Sign(40, "an answer with sessionId")
    return Sign(5, "a JSON-RPC answer")


#: kind, thread and key of a block
Place = tuple[str, str | None, str]


class Mapper:
    def __init__(self, out: Emitter) -> None:
        self.out = out
        self.version = 1  # of the protocol
        self.initialized = False
        self.named = False  # the session's id was told
        self.sessions: list[str] = []  # that session/new gave, or that the client loaded
        self.merged = False  # the client's side is there
        self.requests: dict[str, str] = {}  # merged: the client's open requests, id: method
        self.asks: dict[str, Ask] = {}  # merged: the agent's open permission requests by id
        self.errands: dict[str, str | None] = {}  # merged: ids of its other open requests, and their terminals

        self.running = False
        self.ended = False  # a turn has ended and no other begun
        self.unfinished = False  # it ended with calls still at work: its updates are not over
        self.echoes = False  # the agent prints the user's messages live
        self.replay = False
        self.resumed = False  # version 2: the answer to session/resume was there, which names no session
        self.failure = False  # the harness has said, as a chunk, why this turn fails
        self.system_error = False  # codex: the thread is broken
        self.limit = False  # and a cap is the reason
        self.called_off = False  # merged: the client has cancelled the turn
        self.told = False  # Grok: how the turn ended was said before the answer

        self.run = 0  # number of the block without id
        self.place: tuple[str, str, str] | None = None  # session, thread and kind of its chunks; None: it has ended
        self.last: tuple[str, str | None] | None = None  # key and messageId of the main thread's last message block
        self.heard: Place | None = None  # claude: the block of the last chunk; None: something else came behind it
        self.again: tuple[Place, str] | None = None  # claude: a chunk that says a block again, if no more of it comes
        self.calls = Calls(out, NAME)
        self.total: dict[str, Any] = {}  # the run's usage so far

    @property
    def agent(self) -> str:
        """Key in AGENTS."""
        return self.calls.agent

    def map(self, record: Record) -> Outcome:
        value = record.value
        method = value.get("method")
        if isinstance(method, str):
            params = mapping(value.get("params"))
            return self._update(params) if method == "session/update" else self._request(method, value, params)
        if "result" in value or "error" in value:
            return self._answer(value)
        return UNKNOWN

    def close(self) -> None:
        pass

    def judge(self, run: Reducer, exit: Exit) -> Ending | None:
        return None

    # ------------------------------------------------------------ session/update

    def _update(self, params: dict[str, Any]) -> Outcome:
        update = mapping(params.get("update"))
        kind, meta = text_of(update.get("sessionUpdate")), mapping(update.get("_meta"))
        session = id_of(self.out, params.get("sessionId"))
        self.calls.agent = self.agent or acp_agents.by_mark(meta, session)
        stamp = Stamp(
            session_id=session,
            message_id=id_of(self.out, update.get("messageId")),
            parent=self.calls.thread(meta, session, id_of(self.out, update.get("toolCallId"))),
        )
        if kind is None:
            return UNKNOWN
        if session is not None and not self.named:
            self.named = True
            self.out.session_state(stamp, sessionId=session)
        if kind in SPAWNS:
            self._break()
            return self._spawned(kind, update, session)
        own = session in self.calls.children or (stamp.parent is not None and acp_agents.of_subagent(meta))
        if own and kind not in OF_SUBAGENTS:
            return "sub-agent's session"
        if kind in ev.CHUNKS:
            return self._chunk(kind, update, stamp, meta)
        self._break()
        if kind in ("tool_call", "tool_call_update"):
            return self._tool(kind, update, stamp)
        if kind == "plan":
            return self._plan(update.get("entries"), stamp)
        if kind == "usage_update":
            return self._cost(update, meta, stamp)
        if kind == "session_info_update":
            return self._info(update, meta, stamp)
        if kind == "config_option_update":
            return self._options(update, stamp)
        return self._draft(kind, update, stamp)

    def _spawned(self, kind: str, update: dict[str, Any], session: str | None) -> Outcome:
        """What comes with the id of a sub-agent's session from now on is the sub-agent's. Cursor names the call."""
        cursor = mapping(mapping(update.get("_meta")).get("cursor"))
        call_id = id_of(self.out, cursor.get("toolCallId"))
        for key in SPAWNS[kind]:
            child = id_of(self.out, update.get(key))
            if child and child != session and child not in self.sessions:
                self.calls.children[child] = call_id or self.calls.children.get(child, child)
        return "sub-agent start and end"

    def _draft(self, kind: str, update: dict[str, Any], stamp: Stamp) -> Outcome:
        """Updates of the unstable schema and of version 2, and those of Grok."""
        if kind in GROK_UPDATES:
            return self._grok(kind, update, stamp)
        if kind in MESSAGES:
            return self._whole(MESSAGES[kind], update, stamp)
        if kind == "tool_call_content_chunk":
            item = update.get("content")
            return self._tool(kind, {"toolCallId": update.get("toolCallId"), "content": [item]}, stamp)
        if kind == "plan_update":
            return self._plan(mapping(update.get("plan")).get("entries"), stamp)
        if kind == "plan_removed":
            return self._plan([], stamp)
        if kind == "state_update":
            return self._state(update, stamp)
        if kind == "notice":
            return self._notice(update, stamp)
        if kind == "compaction_update":
            return self._compaction(update, stamp)
        if kind in ("terminal_update", "terminal_output_chunk") and not self.replay:
            self.calls.terminal(kind, update)
        return IGNORED_UPDATES.get(kind, UNKNOWN)

    # ------------------------------------------------------------ text

    def _chunk(self, kind: str, update: dict[str, Any], stamp: Stamp, meta: dict[str, Any]) -> Outcome:
        content = mapping(update.get("content"))
        text = text_of(content.get("text")) if content.get("type") == "text" else None
        if kind == ev.USER:
            rule = self._user_rule()
            if rule is not None:
                return rule
        if self.replay:
            return "replay"
        used = acp_agents.usage_of(meta.get("usage"))  # Qwen: after each model call, with an empty text
        if used is not None:
            self.out.usage("call", used, stamp)
        if text == "":
            self._break()
            return None if used is not None else "empty text"
        if kind == ev.MESSAGE and stamp.parent is None and text is not None:
            notice = acp_agents.notice(self.agent, stamp.message_id, text)
            if notice is not None:
                return self._said(notice, text, stamp)
        key = self._key(kind, stamp)
        before: str | None = ""
        if text is not None and kind != ev.USER and self.agent == "claude":
            before = self._once(kind, key, text, stamp)
            if before is None:
                return "text again"
        self._talks(kind, key, stamp)
        if text is None:
            return self._other(kind, content, stamp)
        opens = self.out.streamed(kind, key, stamp.parent) is None
        if opens and text == "\n\n" and kind == ev.THOUGHT and AGENTS[self.agent].sections:
            return "section break before a thought"
        if before:
            self.out.delta(kind, key, before, stamp)
        self.out.delta(kind, key, text, stamp)
        return None

    def _key(self, kind: str, stamp: Stamp) -> str:
        """The block that a chunk belongs to: by its messageId, else by what came before it."""
        if stamp.message_id is not None:
            self.place = None
            return f"id {stamp.session_id or ''} {stamp.message_id}"
        place = (stamp.session_id or "", stamp.parent or "", kind)
        if place != self.place or AGENTS[self.agent].whole:
            self.run += 1
            self.place = place
        return f"run {self.run}"

    def _once(self, kind: str, key: str, text: str, stamp: Stamp) -> str | None:
        """What claude said of a chunk's block that was held back. None if the chunk says the whole block before it once
        more, under another id (a turn that began in mid-message, 0.47): that is held back, for a new message may begin
        like that as well, and then more of it comes."""
        place = (kind, stamp.parent, key)
        heard, self.heard = self.heard, place
        again, self.again = self.again, None
        if again is not None and again[0] == place:
            return again[1]
        if stamp.message_id is None or heard is None or heard == place or heard[:2] != place[:2]:
            return ""
        if self.out.streamed(kind, key, stamp.parent) is not None:
            return ""
        if self.out.streamed(kind, heard[2], stamp.parent) != text:
            return ""
        self.again = (place, text)
        return None

    def _break(self) -> None:
        """Ends the block without messageId."""
        self.place = self.heard = None

    def _talks(self, kind: str, key: str, stamp: Stamp) -> None:
        """The main agent's word: it begins a turn unless it belongs to the one that has ended."""
        if stamp.parent is not None or kind == ev.USER:
            return
        late = self.out.streamed(kind, key, None) is not None or (self.unfinished and stamp.message_id is None)
        if not late:
            self._begin(stamp)
        self.failure = False
        if kind == ev.MESSAGE:
            self.calls.refused.clear()
            self.last = (key, stamp.message_id)

    def _other(self, kind: str, content: dict[str, Any], stamp: Stamp) -> Outcome:
        """An image, or a block that events have no shape for: that goes along as it is."""
        self._break()
        block = block_of(content)
        if block is None:
            stamp.extra = {"content": content}
            self.out.blank(kind, stamp)
        else:
            self.out.image(kind, block, stamp)
        return None

    def _said(self, notice: str, text: str, stamp: Stamp) -> Outcome:
        """The harness speaks, not the model."""
        self._break()
        text = text.strip("\n")
        if notice == "info":
            return "notice of the harness"
        if notice == "error" or self.system_error:
            if not (self.ended and self.system_error):  # else the turn's answer came before its error
                self._begin(stamp)
            self.failure = True
            self.limit = self.limit or acp_agents.names_limit(None, text)
            self.out.error(text, stamp, fatal=True)
        else:
            self.out.error(text, stamp, fatal=False, notice=True)
        return None

    def _whole(self, kind: str, update: dict[str, Any], stamp: Stamp) -> Outcome:
        """Version 2: the message so far; it takes the place of all chunks with its id."""
        if kind == ev.USER:
            rule = self._user_rule()
            if rule is not None:
                return rule
        if self.replay:
            return "replay"
        if "content" not in update or stamp.message_id is None:
            return "message without news"
        key = self._key(kind, stamp)
        self._talks(kind, key, stamp)
        self.out.final(kind, key, joined(update["content"]) or "", stamp)
        return None

    def _user_rule(self) -> str | None:
        """Why a user's message is not news; None if it is."""
        if self.merged:
            return "replay" if self.replay else "prompt again"
        unopened = not self.running and not self.ended and self.initialized and not self.sessions
        if self.version == 1 and not self.echoes and (self.ended or unopened):
            self.replay = True  # nobody prints live prompts but agents that did so in their first turn
        elif self.version > 1 and unopened and not self.resumed:
            self.replay = True  # all print live prompts, but none before the session is there
        if self.replay:
            return "replay"
        self.echoes = True
        self._begin(Stamp())
        return None

    # ------------------------------------------------------------ turns

    def _begin(self, stamp: Stamp) -> None:
        if self.running:
            return
        self.running, self.ended, self.unfinished = True, False, False
        self.failure = self.system_error = self.limit = self.called_off = self.told = False
        self.calls.begin()
        self.out.commit(None)
        self.out.next_turn()
        self.out.state("turn", Stamp(session_id=stamp.session_id), phase="start")

    def _end(self, outcome: str, reason: str | None, stamp: Stamp) -> None:
        self._begin(stamp)
        self.running, self.ended = False, True
        self.unfinished = outcome == "completed" and self.calls.unfinished
        if not self.unfinished:
            self._break()
        self.out.state("turn", stamp, phase="end", outcome=outcome, reason=reason)

    def _stop(self, reason: str, stamp: Stamp) -> None:
        """A prompt ended with a stop reason; "end_turn" is what failures, cancelled turns (Copilot, goose and OpenCode
        of 2026) and refused calls say as well. For a refused call Zed's adapter for Claude said "refusal" (0.10)."""
        outcome = OUTCOMES.get(reason, "completed")
        if outcome == "completed":
            if self.failure or self.system_error:
                outcome = "limit" if self.limit else "failed"
            elif self.called_off:
                outcome = "cancelled"
            elif self.calls.refused:
                outcome = "denied"
        elif reason == "refusal" and self.calls.refused:
            outcome = "denied"
        self._end(outcome, reason, stamp)

    def _fail(self, error: dict[str, Any]) -> None:
        stamp = Stamp()
        self._begin(stamp)
        message, data = error_text(error), mapping(error.get("data"))
        kind = next(
            (data[key] for key in ("errorKind", "codex_error_info", "errorName") if isinstance(data.get(key), str)),
            text_of(data.get("reason")) if self.agent == "goose" else None,
        )
        self._take_back_echo(message)
        code = count(error.get("code"))
        if code == CANCELLED_ERROR:
            self._end("cancelled", message, stamp)
            return
        if not self.failure:  # else a chunk has said it
            self.out.error(message, stamp, fatal=True)
        limit = self.limit or acp_agents.names_limit(kind, message)
        self._end("limit" if limit else "failed", kind or (None if code is None else str(code)), stamp)

    def _take_back_echo(self, error: str) -> None:
        """Some agents print the error as a message first: then it is no text."""
        if self.last is None:
            return
        key, message_id = self.last
        text = self.out.streamed(ev.MESSAGE, key, None)
        if text and acp_agents.is_echo(self.agent, message_id, text, error):
            self.out.drop(ev.MESSAGE, key, Stamp(message_id=message_id))
            if text.removeprefix("Error: ") not in error:
                self.failure = True
                self.out.error(text, Stamp(), fatal=True)

    def _air(self, ends: dict[str, Any], stamp: Stamp) -> None:
        """JetBrains' clients are told in an extension why a turn of claude or codex failed, beside "end_turn"."""
        failure = acp_agents.failure_of(mapping(ends.get("_meta")))
        title = text_of(failure.get("title"))
        if title is None or failure.get("severity") != "error":
            return
        self._begin(stamp)
        if not self.failure:
            self.out.error(title, stamp, fatal=True)
        self.failure = True
        self.limit = self.limit or acp_agents.is_spent(failure)

    def _state(self, update: dict[str, Any], stamp: Stamp) -> Outcome:
        """Version 2: the session works, waits for a person, or has come to an end."""
        state, reason = update.get("state"), text_of(update.get("stopReason"))
        if state == "running":
            self._begin(stamp)
            return None
        if state == "idle" and reason is not None:
            if not self.running:  # a snapshot may carry the last reason
                return "session state again"
            self._use(update, stamp)
            self._air(update, stamp)
            error = update.get("error")  # beside "error" (schema 1.11 on)
            if reason == "error" and isinstance(error, dict):
                self._fail(error)
            else:
                self._stop(reason, stamp)
            return None
        return "session state"

    # ------------------------------------------------------------ other updates

    def _tool(self, kind: str, update: dict[str, Any], stamp: Stamp) -> Outcome:
        call_id = id_of(self.out, update.get("toolCallId"))
        if not call_id:
            return UNKNOWN
        if call_id.startswith(MCP_STARTUP):
            return self._unstarted(update, stamp)
        compaction = acp_agents.compaction_of(mapping(update.get("_meta")))
        if compaction is not None or call_id in self.calls.compactions:
            return self._compacts(call_id, update, mapping(compaction), stamp)
        if self.replay:
            return self.calls.again(call_id, update, stamp)
        if self.calls.is_new(kind, call_id):
            self._opens(stamp)
        outcome = self.calls.tell(kind, call_id, update, stamp)
        if self.agent == "grok" and stamp.parent is None and update.get("status") in ("completed", "failed"):
            self.out.commit(None)  # a retry goes back to here
        return outcome

    def _unstarted(self, update: dict[str, Any], stamp: Stamp) -> Outcome:
        """codex says as a failed call that an MCP server did not start."""
        text = next(filter(None, map(shown_text, content_of(update.get("content"))[0])), None)
        if text is None:
            return "start of MCP servers"
        self.out.error(text, stamp, fatal=False, notice=True)
        return None

    def _compacts(self, call_id: str, update: dict[str, Any], told: dict[str, Any], stamp: Stamp) -> Outcome:
        """claude and codex show a compaction as a call; only its first line may be marked."""
        if self.replay:
            return "replay"
        status = text_of(update.get("status"))
        if status in ("completed", "failed"):
            if call_id in self.calls.compactions:
                self.calls.compactions.remove(call_id)
            message = text_of(told.get("error"))
            self.out.state("compaction", stamp, phase="end", success=status == "completed", message=message)
            return None
        if status is None or call_id in self.calls.compactions:
            return "compaction"
        self.calls.compactions.append(call_id)
        self.out.state("compaction", stamp, phase="start")
        return None

    def _opens(self, stamp: Stamp) -> None:
        """A new call: if it is the main agent's, a turn is running."""
        if stamp.parent is None:
            self._begin(stamp)

    def _plan(self, entries: Any, stamp: Stamp) -> Outcome:
        plan = tool.plan_of(entries)
        if plan is None:
            return "plan without entries"
        if self.replay:
            return "replay"
        self.out.plan(plan, stamp)
        return None

    def _cost(self, update: dict[str, Any], meta: dict[str, Any], stamp: Stamp) -> Outcome:
        """The fill of the context, which is no usage, and the price of the session so far."""
        self.out.session_state(stamp, model=text_of(meta.get("_claude/model")))
        cost = mapping(update.get("cost"))
        amount = price(cost.get("amount"))
        if amount is None or cost.get("currency") != "USD" or amount == self.total.get("costUsd"):
            return "context size"
        self.total["costUsd"] = amount
        self.out.usage("run", tokens(cost=amount), stamp, total=dict(self.total))
        return None

    def _info(self, update: dict[str, Any], meta: dict[str, Any], stamp: Stamp) -> Outcome:
        self.out.session_state(stamp, title=text_of(update.get("title")))
        codex = mapping(meta.get("codex"))
        status = mapping(codex.get("threadStatus")).get("type")
        if status == "active":
            self._begin(stamp)
        elif status == "systemError":
            if self.ended:  # the answer said "end_turn" before
                self.out.state("turn", stamp, phase="end", outcome="failed", reason=status)
            else:
                self._begin(stamp)
            self.system_error = True
        elif status == "idle":
            self.system_error = False
        error = mapping(codex.get("error"))
        message = text_of(error.get("message"))
        if message is not None and error.get("willRetry") is True:
            self.out.state("retry", stamp, phase="start", message=text_of(error.get("additionalDetails")) or message)
        elif message is not None:
            self._begin(stamp)
            self.failure = True
            self.limit = acp_agents.names_limit(error.get("codexErrorInfo"), message)
            self.out.error(message, stamp, fatal=True)
        title = text_of(acp_agents.failure_of(meta).get("title"))
        if title is not None:
            self.out.error(title, stamp, fatal=False, notice=True)
        told = message is not None or status is not None or title is not None or "title" in update
        return None if told else "session info"

    def _options(self, update: dict[str, Any], stamp: Stamp) -> Outcome:
        self.out.session_state(stamp, model=model_of(update))
        return "session options"

    def _notice(self, update: dict[str, Any], stamp: Stamp) -> Outcome:
        """An advice that never ends a turn, whatever its severity."""
        parts = [part for part in (update.get("title"), update.get("description")) if isinstance(part, str) and part]
        if update.get("severity") == "info" or not parts:
            return "notice of the harness"
        self.out.error(": ".join(parts), stamp, fatal=False, notice=True)
        return None

    def _compaction(self, update: dict[str, Any], stamp: Stamp) -> Outcome:
        status, error = update.get("status"), update.get("error")
        if status == "in_progress":
            self.out.state("compaction", stamp, phase="start")
            return None
        if status not in ("completed", "failed", "cancelled"):
            return "compaction"
        self.out.state(
            "compaction",
            stamp,
            phase="end",
            success=status == "completed",
            summary=joined(update.get("summary")),
            message=text_of(mapping(error).get("message")) or text_of(error),
        )
        return None

    def _grok(self, kind: str, update: dict[str, Any], stamp: Stamp) -> Outcome:
        """What Grok Build says of a turn: its end, tries of a model call, compactions."""
        if self.replay:
            return "replay"
        if self.sessions and stamp.session_id not in self.sessions:
            return "extension"  # a sub-agent's
        self.calls.agent = self.agent or "grok"
        if kind == "turn_completed":
            return self._completed(update, stamp)
        if kind == "retry_state":
            return self._tries(update, stamp)
        if kind == "model_changed":
            self.out.session_state(stamp, model=text_of(update.get("model_id")))
            return None
        if kind == "auto_compact_started":
            self.out.state("compaction", stamp, phase="start")
            return None
        self.out.state(
            "compaction",
            stamp,
            phase="end",
            success=kind == "auto_compact_completed",
            summary=text_of(update.get("summary_preview")),
            message=text_of(update.get("error")) or text_of(update.get("reason")),
        )
        return None

    def _completed(self, update: dict[str, Any], stamp: Stamp) -> Outcome:
        """The end of a turn, however it went."""
        reason = text_of(update.get("stop_reason"))
        if reason is None:
            return "extension"
        self._begin(stamp)
        self._use(update, stamp)
        if reason in ("error", "rate_limit"):
            message = text_of(update.get("agent_result"))
            if message and not self.failure:
                self.out.error(message, stamp, fatal=True)
                self.limit = acp_agents.names_limit(None, message)
            self._end("limit" if self.limit else "failed", reason, stamp)
        else:
            self._stop(reason, stamp)
        self.told = True
        return None

    def _tries(self, update: dict[str, Any], stamp: Stamp) -> Outcome:
        """A model call failed: it is made again, and what it said is void; or that was the last try."""
        message = text_of(update.get("message")) or text_of(update.get("reason"))
        if update.get("type") == "retrying":
            self.out.abandon(None, stamp)
            self.last = None
            self.out.state("retry", stamp, phase="start", attempt=count(update.get("attempt")), message=message)
            return None
        if update.get("type") not in ("exhausted", "failed") or message is None:
            return "extension"
        self._begin(stamp)
        self.failure = True
        self.limit = acp_agents.names_limit(None, message)
        self.out.error(message, stamp, fatal=True)
        return None

    # ------------------------------------------------------------ requests

    def _request(self, method: str, value: dict[str, Any], params: dict[str, Any]) -> Outcome:
        if method == "session/request_permission":
            return self._ask(value, params)
        if method == "elicitation/create":
            self.out.state("approval", Stamp(), phase="requested", message=text_of(params.get("message")))
            return None
        if method in AGENT_METHODS:
            return self._client(method, value, params)
        if method in CLIENT_METHODS:
            if self.merged and "id" in value:
                self.errands[request_id(value["id"])] = id_of(self.out, params.get("terminalId"))
            return "request to the client"
        if method in GROK_METHODS:
            update = mapping(params.get("update"))
            kind = text_of(update.get("sessionUpdate"))
            session = id_of(self.out, params.get("sessionId"))
            if kind in GROK_UPDATES and session not in self.calls.children:
                self._break()
                return self._grok(kind, update, Stamp(session_id=session))
            if kind in SPAWNS:
                self._spawned(kind, update, session)
            self.calls.agent = self.agent or "grok"
        return "extension" if method.startswith(EXTENSIONS) else UNKNOWN

    def _ask(self, value: dict[str, Any], params: dict[str, Any]) -> Outcome:
        """The agent asks if a call may run. For some this is the call's first line, or the first with arguments."""
        subject = mapping(params.get("subject"))  # version 2
        update = mapping(params.get("toolCall")) or mapping(subject.get("toolCall"))
        session = id_of(self.out, params.get("sessionId"))
        call_id = id_of(self.out, update.get("toolCallId")) or id_of(self.out, subject.get("toolCallId"))
        stamp = Stamp(session_id=session, parent=self.calls.thread(mapping(update.get("_meta")), session, call_id))
        if call_id:
            if self.calls.is_new("session/request_permission", call_id):
                self._break()
                self._opens(stamp)
            self.calls.ask(call_id, update or subject, stamp)
        if self.merged and "id" in value:
            self.asks[request_id(value["id"])] = Ask(self.out, call_id, params.get("options"))
        self.out.state(
            "approval",
            stamp,
            phase="requested",
            toolCallId=call_id,
            toolName=acp_agents.tool_name(self.agent, call_id or "", update, False),
            message=text_of(params.get("title")) or text_of(update.get("title")),
        )
        return None

    def _client(self, method: str, value: dict[str, Any], params: dict[str, Any]) -> Outcome:
        """The client's side of a merged log."""
        self.merged = True
        if "id" in value:
            self.requests[request_id(value["id"])] = method
        session = id_of(self.out, params.get("sessionId"))
        if method in ("session/new", "session/load", "session/resume"):
            self.replay = method != "session/new"
            self._opened(session)
            self.out.session_state(Stamp(), sessionId=session, cwd=text_of(params.get("cwd")))
            return None
        if method != PROMPT:
            self.called_off = self.called_off or (method == "session/cancel" and self.running)
            return "request to the agent"
        if self.sessions and session not in self.sessions:
            if (key := request_id(value.get("id"))) in self.requests:
                self.requests[key] = ""  # its answer says nothing of the run either
            return "prompt of no session"
        stamp = Stamp(session_id=session)
        self._break()
        self._begin(stamp)
        for block in sequence(params.get("prompt")):
            content = mapping(block)
            if content.get("type") == "text":
                self.out.whole(ev.USER, text_of(content.get("text")) or "", stamp)
            else:
                self._other(ev.USER, content, stamp)
                stamp = Stamp(session_id=session)
        return None

    # ------------------------------------------------------------ answers

    def _answer(self, value: dict[str, Any]) -> Outcome:
        key = request_id(value.get("id"))
        result, error = mapping(value.get("result")), value.get("error")
        decided = mapping(result.get("outcome"))
        if isinstance(decided.get("outcome"), str) or (key in self.asks and key not in self.requests):
            return self._decision(key, decided)
        if key in self.errands and not any(key in result for key in ("stopReason", "protocolVersion", "sessionId")):
            self.calls.printed(self.errands.pop(key), result)
            return "answer of the client"
        method = self.requests.pop(key, None)
        self.resumed = self.resumed or self.replay or "configOptions" in result
        self.replay = self.replay and method is not None and method not in FATAL_REQUESTS
        if isinstance(error, dict):
            other = count(error.get("code")) in OTHER_ERRORS and method != PROMPT
            if other or (method is not None and method not in FATAL_REQUESTS):
                return "error answer to another request"
            if self.told:
                self.told = False
                return "end of a turn again"
            self._fail(error)
            return None
        if count(result.get("protocolVersion")) is not None:
            return self._initialize(result)
        reason = text_of(result.get("stopReason"))
        if reason is not None and self.told:
            self.told = False
            return "end of a turn again"
        if reason is not None:
            self._use(result, Stamp())
            self._air(result, Stamp())
            self._stop(reason, Stamp())
            return None
        session = id_of(self.out, result.get("sessionId"))
        self._opened(session)
        self.out.session_state(Stamp(), sessionId=session, model=model_of(result))
        return None if session is not None else "answer"

    def _opened(self, session: str | None) -> None:
        """A session was made or loaded."""
        self.named = self.named or session is not None
        if session is not None and session not in self.sessions:
            self.sessions.append(session)

    def _initialize(self, result: dict[str, Any]) -> Outcome:
        if self.initialized:
            self._restart()
        self.initialized = True
        self.version = count(result["protocolVersion"]) or 1
        self.calls.agent = acp_agents.by_name(text_of(info_of(result).get("name")) or "")
        self.out.session_state(Stamp(), version=version_of(result))
        return None

    def _restart(self) -> None:
        """Another process of the agent in the same source: nothing of it belongs to what the first one left open."""
        self.out.commit(None)
        self.out.next_turn()
        self.out.another_run(Stamp())
        self.calls = Calls(self.out, NAME)
        self.named = self.echoes = self.resumed = False
        self.running = self.ended = self.unfinished = False
        self.failure = self.system_error = self.limit = self.called_off = self.told = False
        self.sessions.clear()
        self.place = self.last = self.heard = self.again = None

    def _decision(self, key: str, decided: dict[str, Any]) -> Outcome:
        """The client's answer to a question of the agent."""
        ask = self.asks.pop(key, None)
        option = id_of(self.out, decided.get("optionId"))
        call_id = None if ask is None else ask.call_id
        if ask is not None and call_id is not None and option is not None and option not in ask.rejects:
            self.calls.allow(call_id)
        self.out.state(
            "approval",
            Stamp(),
            phase="settled",
            toolCallId=call_id,
            decision=option or text_of(decided.get("outcome")),
        )
        return None

    def _use(self, result: dict[str, Any], stamp: Stamp) -> None:
        """The usage in the answer to session/prompt: of its last model call, of the prompt, or of the session."""
        usage = acp_agents.usage_of(result.get("usage")) or acp_agents.quota_of(result.get("_meta"))
        if usage is None:
            return
        covers = AGENTS[self.agent].usage
        if covers == acp_agents.CALL:
            self.out.usage("call", usage, stamp)
            return
        whole = acp_agents.session_quota(result.get("_meta")) if self.agent == "claude" else None
        for name in ("promptTokens", "completionTokens", "cachedTokens"):
            counted = (whole or usage)[name]
            if whole is None and covers == acp_agents.TURN and counted is not None:
                counted += self.total.get(name) or 0
            self.total[name] = counted
        self.out.usage("run", usage, stamp, total=dict(self.total))


class Ask:
    """An open permission request: the call, and the ids of the options that refuse it."""

    __slots__ = ("call_id", "rejects")

    def __init__(self, out: Emitter, call_id: str | None, options: Any) -> None:
        self.call_id = call_id
        self.rejects: list[str] = []
        for option in map(mapping, sequence(options)):
            option_id, kind = id_of(out, option.get("optionId")), text_of(option.get("kind"))
            if option_id is not None and kind is not None and kind.startswith("reject"):
                self.rejects.append(option_id)
