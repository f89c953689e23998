"""Codex as a server: ``codex app-server`` (v2: JSON-RPC without the member `jsonrpc`, methods with slashes; v1:
`codex/event/...`, up to 0.98) and ``codex mcp-server`` (`codex/event`, JSON-RPC 2.0). Recorded: 0.50, 0.98, 0.171.

Several threads share one stdout: everything is keyed by its thread. A thread that a call spawned is a sub-agent; any
other is the client's and counts as main. Deltas come first, `item/completed` repeats the whole; an interrupted item
never completes. 0.98 prints v1 events beside v2 notifications for the same things: from the first v2 notification on,
v1 is not read.
"""

from __future__ import annotations

from typing import Any

from .. import event as ev
from .. import tool
from ..emit import Emitter, count
from ..event import Stamp
from ..record import Record
from ..run import Ending, Exit, Reducer
from . import SURE, UNKNOWN, Outcome, Sign
from . import codex_shapes as shapes
from .codex_events import Events

NAME = "codex-appserver"

#: heads of v2 methods that tell of threads
_V2 = ("thread/", "turn/", "item/")
#: notifications that say nothing for events
IGNORED = {
    "thread/status/changed": "status of a thread",
    "thread/readState/changed": "read state",
    "thread/archived": "list of threads",
    "thread/unarchived": "list of threads",
    "thread/closed": "list of threads",
    "thread/goal/updated": "goal",
    "thread/goal/cleared": "goal",
    "thread/settings/updated": "settings",
    "turn/diff/updated": "diff of the turn",
    "item/reasoning/summaryPartAdded": "section break",
    "item/reasoning/textDelta": "raw reasoning",
    "item/commandExecution/outputDelta": "output of a running command",
    "item/commandExecution/terminalInteraction": "output of a running command",
    "item/fileChange/outputDelta": "output of a patch",
    "item/fileChange/patchUpdated": "output of a patch",
    "item/mcpToolCall/progress": "progress of a tool",
    "item/plan/delta": "text of a plan",
    "item/autoApprovalReview/started": "automatic review",
    "item/autoApprovalReview/completed": "automatic review",
    "rawResponseItem/completed": "raw item",
    "execCommandApproval": "request that an event tells too",
    "applyPatchApproval": "request that an event tells too",
    "elicitation/create": "request that an event tells too",
    "item/tool/call": "request that an item tells too",
    "modelProvider/authRecoveryStarted": "account",
    "modelProvider/authRecoveryCompleted": "account",
    "thread/environment/connected": "environment",
    "thread/environment/disconnected": "environment",
    "thread/queue/changed": "queue of prompts",
    "thread/project/updated": "list of threads",
    "thread/deleted": "list of threads",
    "project/changed": "list of threads",
    "rawResponse/completed": "raw item",
    "model/verification": "notice of the provider",
    "model/safetyBuffering/updated": "notice of the provider",
    "turn/moderationMetadata": "notice of the provider",
    "sessionConfigured": "session of v1",
    "authStatusChange": "account",
    "loginChatGptComplete": "account",
}
#: heads of further methods that say nothing for events
_IGNORED_HEADS = {
    "account/": "account",
    "app/": "apps",
    "command/": "command of the client",
    "configWarning/": "configuration",
    "externalAgentConfig/": "configuration",
    "fs/": "files of the client",
    "fuzzyFileSearch/": "search of the client",
    "hook/": "hook",
    "mcpServer/": "MCP servers",
    "process/": "command of the client",
    "remoteControl/": "remote control",
    "skills/": "skills",
    "thread/realtime/": "realtime audio",
    "windows": "platform",
}
_WARNINGS = frozenset({"configWarning", "deprecationNotice", "warning", "guardianWarning"})
#: server requests that ask a person
APPROVALS = frozenset(
    {
        "item/commandExecution/requestApproval",
        "item/fileChange/requestApproval",
        "item/permissions/requestApproval",
        "item/tool/requestUserInput",
        "mcpServer/elicitation/request",
    }
)
#: error answers that only say that the client asked for something unknown
_REQUEST_ERRORS = frozenset({-32601, -32602, -32002})


def sign(record: dict[str, Any]) -> Sign | None:
    method, params = record.get("method"), record.get("params")
    if "jsonrpc" in record:
        if method == "codex/event" and isinstance(params, dict):
            return Sign(SURE, "JSON-RPC 2.0 with the method codex/event", "mcp-server")
        result = record.get("result")
        info = result.get("serverInfo") if isinstance(result, dict) else None
        if isinstance(info, dict) and info.get("name") == "codex-mcp-server":
            return Sign(SURE, "an initialize answer of codex-mcp-server", shapes.text(info.get("version")))
        if method is None and "id" in record and ("result" in record or "error" in record):
            return Sign(1, "a JSON-RPC response")
        return None
    if isinstance(method, str):
        if method.startswith("codex/event/") and isinstance(params, dict):
            return Sign(SURE, f"{method} without the member jsonrpc", "v1")
        if method.startswith(_V2) and isinstance(params, dict):
            return Sign(SURE, f"{method} without the member jsonrpc", "v2")
        if isinstance(params, dict):
            return Sign(30, f"the method {method} without the member jsonrpc")
        return None
    if "id" in record and isinstance(record.get("result"), dict):
        agent = record["result"].get("userAgent")
        if isinstance(agent, str):
            return Sign(60, "an answer with userAgent", _version(agent))
        return Sign(5, "a response without the member jsonrpc")
    if "id" in record and isinstance(record.get("error"), dict) and "code" in record["error"]:
        return Sign(5, "an error response without the member jsonrpc")
    return None


def _version(agent: str) -> str | None:
    """0.171.0 of ``recorder/0.171.0 (...)``."""
    version = agent.partition(" ")[0].partition("/")[2]
    return version or None


class Thread:
    """What is known of one thread."""

    __slots__ = ("fatal", "meter", "open", "plan", "proposal", "refused", "said", "works")

    def __init__(self) -> None:
        self.meter = shapes.Meter()
        self.open: dict[str, str] = {}  # keys of the blocks that stream, and their kind
        self.plan: list[dict[str, str]] | None = None
        self.works = False  # a turn or an item of it was told
        self.said = False  # the agent said something in this turn
        self.proposal: str | None = None  # the plan that it proposed in this turn
        self.refused = False  # a call was refused, and no text or call came since
        self.fatal: str | None = None  # the error that ended the turn, as `error` told it


class Mapper:
    def __init__(self, out: Emitter) -> None:
        self.out = out
        self.v2 = False
        self.threads: dict[str, Thread] = {}
        self.conversations: dict[str, Events] = {}  # those of v1 and of the MCP server
        self.agents: dict[str, str] = {}  # thread of a sub-agent: id of the call that spawned it
        self.roots: set[str] = set()  # threads that no call spawned
        self.spawning: list[str] = []  # open calls that spawn a thread
        self.requests: dict[str, str] = {}  # id of an open server request: what it is about
        self.models: dict[str, str] = {}
        self.turns = 0
        self.refusal: str | None = None  # an error answer, while no turn has started
        self.said = False  # any text of a main thread
        self.compacted = False  # compaction shows as items

    def map(self, record: Record) -> Outcome:
        value = record.value
        method, params = value.get("method"), value.get("params")
        params = params if isinstance(params, dict) else {}
        if not isinstance(method, str):
            return self._response(value)
        if method == "codex/event" or method.startswith("codex/event/"):
            return self._event(params)
        if method == "error":
            return self._error(params, self._stamp(params, value))
        if method in _WARNINGS:
            message = shapes.text(params.get("message")) or shapes.text(params.get("summary"))
            if message is not None:
                self.out.error(message, self._stamp(params, value), fatal=False, notice=True)
            return None
        if method in APPROVALS:
            return self._approval(value, params)
        if method == "serverRequest/resolved":
            call_id = self.requests.pop(_request(params.get("requestId")), None)
            self.out.state("approval", self._stamp(params, value), phase="settled", toolCallId=call_id)
            return None
        if method in IGNORED:
            return IGNORED[method]
        for head, rule in _IGNORED_HEADS.items():
            if method.startswith(head):
                return rule
        if method.startswith(_V2):
            self.v2 = True
            return self._notification(method, params, self._stamp(params, value))
        if method == "model/rerouted":
            self.out.session_state(self._stamp(params, value), model=shapes.text(params.get("toModel")))
            return None
        return UNKNOWN

    def close(self) -> None:
        """A client that was refused before any turn: that is how the run ended."""
        if self.refusal is not None and not self.turns:
            self.out.error(self.refusal, Stamp(), fatal=True)
            self.out.state("end", Stamp(), outcome=shapes.outcome_of(self.refusal), reason="error response")

    def judge(self, run: Reducer, exit: Exit) -> Ending | None:
        return None

    # ------------------------------------------------------------ threads

    def _stamp(self, params: dict[str, Any], value: dict[str, Any]) -> Stamp:
        thread = _thread_id(params)
        return Stamp(
            session_id=thread,
            timestamp=ev.iso_millis(value.get("emittedAtMs")),
            model=self.models.get(thread or ""),
            parent=self._parent(thread),
        )

    def _parent(self, thread: str | None) -> str | None:
        """The call that spawned a thread. A thread that shows up while a call spawns one is that call's."""
        if thread is None or thread in self.roots:
            return None
        if thread not in self.agents:
            if not self.spawning:
                self.roots.add(thread)
                return None
            self.agents[thread] = self.spawning[-1]
        return self.agents[thread]

    def _thread(self, stamp: Stamp) -> Thread:
        thread = self.threads.get(stamp.session_id or "")
        if thread is None:
            thread = self.threads[stamp.session_id or ""] = Thread()
        return thread

    def _introduce(self, facts: dict[str, Any], stamp: Stamp, model: Any = None) -> None:
        """A thread object: the answer to thread/start and the like, or thread/started."""
        thread, parent = shapes.text(facts.get("id")), shapes.text(facts.get("parentThreadId"))
        if thread is None:
            return
        if parent is not None and thread not in self.agents:
            # a sub-agent whose call is not printed: its thread stands for the call
            self.agents[thread] = self.spawning[-1] if self.spawning else ev.clean(thread)
        model = shapes.text(facts.get("model")) or shapes.text(model)
        if model is not None:
            self.models[thread] = ev.clean(model)
        if self._parent(thread) is None:
            self.out.session_state(
                stamp,
                sessionId=thread,
                version=shapes.text(facts.get("cliVersion")),
                model=model,
                cwd=shapes.text(facts.get("cwd")),
                title=shapes.text(facts.get("name")),
            )

    # ------------------------------------------------------------ v2

    def _notification(self, method: str, params: dict[str, Any], stamp: Stamp) -> Outcome:
        if method in ("item/started", "item/completed"):
            item = params.get("item")
            return self._item(method, item, stamp) if isinstance(item, dict) else UNKNOWN
        if method in ("item/agentMessage/delta", "item/reasoning/summaryTextDelta"):
            return self._delta(method, params, stamp)
        if method == "thread/started":
            if isinstance(params.get("thread"), dict):
                self._introduce(params["thread"], stamp)
            return None
        if method in ("turn/started", "turn/completed"):
            turn = params.get("turn")
            return self._turn(method, turn if isinstance(turn, dict) else {}, stamp)
        if method == "turn/plan/updated":
            thread, entries = self._thread(stamp), tool.plan_of(params.get("plan"), "step")
            if entries is None or entries == thread.plan:
                return "plan again"
            thread.plan = entries
            self.out.plan(entries, stamp)
            return None
        if method == "thread/tokenUsage/updated":
            usage = params.get("tokenUsage")
            usage = usage if isinstance(usage, dict) else {}
            thread, total = self._thread(stamp), usage.get("total")
            if not thread.works and isinstance(total, dict):
                thread.meter.know(total)  # told to a client that resumes a thread: no model call
                return "token count again"
            known = thread.meter.take(self.out, total, usage.get("last"), stamp)
            return None if known else "token count again"
        if method == "thread/name/updated":
            if stamp.parent is None:
                self.out.session_state(stamp, title=shapes.text(params.get("threadName")))
            return None
        if method == "thread/compacted":
            if self.compacted:
                return "compaction again"
            self.out.state("compaction", stamp, phase="end", success=True)
            return None
        return UNKNOWN

    def _turn(self, method: str, turn: dict[str, Any], stamp: Stamp) -> Outcome:
        thread = self._thread(stamp)
        for key, kind in thread.open.items():
            self.out.settle(kind, key, stamp.parent)  # what was cut stays as it is
        thread.open.clear()
        if method == "turn/started":
            thread.works = True
            thread.said = thread.refused = False
            thread.fatal = thread.proposal = None
            self.turns += 1
            if stamp.parent is None:
                self.out.state("turn", stamp, phase="start")
            return None
        status, error = shapes.text(turn.get("status")), turn.get("error")
        self._last_words(turn.get("items"), thread, stamp)
        if not thread.said and thread.proposal is not None and status == "completed":
            self.out.whole(ev.MESSAGE, thread.proposal, stamp)
        if stamp.parent is not None:
            return "end of a sub-agent's turn"
        outcome = {"completed": "completed", "interrupted": "cancelled"}.get(status or "", "failed")
        if outcome == "failed":
            error = error if isinstance(error, dict) else {}
            message = shapes.text(error.get("message")) or thread.fatal
            if message is not None and ev.clean(message) != thread.fatal:
                self.out.error(message, stamp, fatal=True)
            outcome = shapes.outcome_of(message, error.get("codexErrorInfo"))
        elif outcome == "completed" and thread.refused:
            outcome = "denied"
        self.out.state("turn", stamp, phase="end", outcome=outcome, reason=status)
        return None

    def _last_words(self, items: Any, thread: Thread, stamp: Stamp) -> None:
        """The end of a turn repeats its last message; it is news only if nothing was said."""
        for item in items if isinstance(items, list) and not thread.said else []:
            text = shapes.text(item.get("text")) if isinstance(item, dict) else None
            if text and item.get("type") == "agentMessage":
                stamp.message_id = shapes.text(item.get("id"))
                self.out.whole(ev.MESSAGE, text, stamp)
                thread.said = True

    # ------------------------------------------------------------ items

    def _delta(self, method: str, params: dict[str, Any], stamp: Stamp) -> Outcome:
        item, text = shapes.text(params.get("itemId")), shapes.text(params.get("delta"))
        if not text or item is None:
            return "empty text"
        thread = self._thread(stamp)
        thread.works = True
        stamp.message_id = item
        if method == "item/agentMessage/delta":
            thread.refused = False
            thread.said = True
            self._open(thread, ev.MESSAGE, _key(stamp, item), text, stamp)
        else:
            self._open(thread, ev.THOUGHT, _key(stamp, item, params.get("summaryIndex")), text, stamp)
        return None

    def _open(self, thread: Thread, kind: str, key: str, text: str, stamp: Stamp) -> None:
        thread.open[key] = kind
        self.out.delta(kind, key, text, stamp)

    def _item(self, method: str, item: dict[str, Any], stamp: Stamp) -> Outcome:
        name, item_id = shapes.text(item.get("type")) or "", shapes.text(item.get("id"))
        kind = shapes.ITEMS.get(name)
        done = method == "item/completed"
        if item_id is None:
            return UNKNOWN
        if name == "subAgentActivity":
            child = shapes.text(item.get("agentThreadId"))
            if child is not None and item.get("kind") == "started":
                self.agents.setdefault(child, ev.clean(item_id))
        thread = self._thread(stamp)
        thread.works = True
        if name == "plan" and done:  # plan mode: it is the turn's answer if that says nothing else
            thread.proposal = shapes.kept(item.get("text")) or None
        if kind is None:
            return shapes.IGNORED_ITEMS.get(name, UNKNOWN)
        if kind in shapes.CALLS:
            return self._call(kind, name, item, item_id, thread, done, stamp)
        if kind == "compaction":
            self.compacted = True
            if done:
                self.out.state("compaction", stamp, phase="end", success=True)
            else:
                self.out.state("compaction", stamp, phase="start")
            return None
        if not done:
            return "start of an item"
        stamp.message_id = item_id
        phase = shapes.text(item.get("phase"))
        stamp.extra = None if phase is None else {"phase": phase}
        if kind == "user":
            prompts = [text for text in shapes.text_of(item.get("content")) if text]
            for prompt in prompts:
                self.out.whole(ev.USER, prompt, stamp)
            return None if prompts else "empty text"
        if kind == "message":
            text = shapes.text(item.get("text")) or ""
            return self._final(thread, ev.MESSAGE, [(_key(stamp, item_id), text)], stamp)
        if kind == "reasoning":
            parts = shapes.strings(item.get("summary"))
            texts = [(_key(stamp, item_id, index), part) for index, part in enumerate(parts)]
            return self._final(thread, ev.THOUGHT, texts, stamp)
        return UNKNOWN

    def _final(self, thread: Thread, kind: str, parts: list[tuple[str, str]], stamp: Stamp) -> Outcome:
        """The whole text of an item's parts."""
        shown = False
        for key, text in parts:
            if text:
                self.out.final(kind, key, text, stamp)
                shown = True
            thread.open.pop(key, None)
            self.out.settle(kind, key, stamp.parent)
        if kind == ev.MESSAGE and shown:
            thread.said, thread.refused = True, False
        return None if shown else "empty text"

    def _call(
        self, kind: str, name: str, item: dict[str, Any], item_id: str, thread: Thread, done: bool, stamp: Stamp
    ) -> Outcome:
        thread.refused = done and item.get("status") == "declined"
        fresh = not self.out.is_open(item_id) and not (done and self.out.knows(item_id))
        if fresh:
            shapes.announce(self.out, kind, name, shapes.Item(item), item_id, stamp)
        if kind == "agent" and item.get("tool") == "spawnAgent":
            if not done and fresh:
                self.spawning.append(ev.clean(item_id))
            elif done and ev.clean(item_id) in self.spawning:
                self.spawning.remove(ev.clean(item_id))
            for child in shapes.strings(item.get("receiverThreadIds")):
                self.agents.setdefault(child, ev.clean(item_id))
        if not done:
            return None if fresh else "item again"
        return None if shapes.settle(self.out, kind, shapes.Item(item), item_id, stamp) else "item again"

    # ------------------------------------------------------------ errors and approvals

    def _error(self, params: dict[str, Any], stamp: Stamp) -> Outcome:
        error = params.get("error")
        error = error if isinstance(error, dict) else {}
        message = shapes.text(error.get("message")) or ""
        if params.get("willRetry") is True:
            shapes.tell_retry(self.out, message, shapes.retry_of(message), stamp)
            return None
        main = stamp.parent is None
        self._thread(stamp).fatal = ev.clean(message)
        self.out.error(message, stamp, fatal=main, notice=not main)
        return None

    def _approval(self, value: dict[str, Any], params: dict[str, Any]) -> Outcome:
        item = shapes.text(params.get("itemId"))
        if item is not None:
            self.requests[_request(value.get("id"))] = ev.clean(item)
        message = shapes.text(params.get("reason")) or shapes.text(params.get("message"))
        self.out.state("approval", self._stamp(params, value), phase="requested", toolCallId=item, message=message)
        return None

    # ------------------------------------------------------------ v1 and the MCP server

    def _event(self, params: dict[str, Any]) -> Outcome:
        msg, meta = params.get("msg"), params.get("_meta")
        if self.v2:
            return "v1 event of what v2 tells"
        if not isinstance(msg, dict):
            return UNKNOWN
        name = shapes.text(params.get("conversationId"))
        if name is None and isinstance(meta, dict):
            name = shapes.text(meta.get("threadId"))
        events = self.conversations.get(name or "")
        if events is None:
            events = self.conversations[name or ""] = Events(self.out, name or "", self.agents)
        parent = self.agents.get(name or "")
        if parent is None and name is not None:
            self.out.session_state(Stamp(), sessionId=name)
        if msg.get("type") in ("task_started", "turn_started"):
            self.turns += 1
        outcome = events.map(msg, Stamp(session_id=name, parent=parent))
        self.said = self.said or (events.said and parent is None)
        return outcome

    # ------------------------------------------------------------ responses

    def _response(self, value: dict[str, Any]) -> Outcome:
        if "id" not in value:
            return UNKNOWN
        error, result = value.get("error"), value.get("result")
        if isinstance(error, dict):
            message = shapes.text(error.get("message"))
            if message is not None and count(error.get("code")) not in _REQUEST_ERRORS:
                self.refusal = ev.clean(message)
                self.out.error(message, Stamp(), fatal=False, notice=True)
                return None
            return "error response"
        if not isinstance(result, dict):
            return "response"
        agent, info = shapes.text(result.get("userAgent")), result.get("serverInfo")
        if agent is not None:
            self.out.session_state(Stamp(), version=_version(agent))
            return None
        if isinstance(info, dict):
            self.out.session_state(Stamp(), version=shapes.text(info.get("version")))
            return None
        if isinstance(result.get("thread"), dict):
            self._introduce({"cwd": result.get("cwd"), **result["thread"]}, Stamp(), result.get("model"))
            return None
        conversation = shapes.text(result.get("conversationId"))
        if conversation is not None:
            self.out.session_state(Stamp(), sessionId=conversation, model=shapes.text(result.get("model")))
            return None
        if isinstance(result.get("content"), list) and "jsonrpc" in value:
            return self._answer(result)
        return "response"

    def _answer(self, result: dict[str, Any]) -> Outcome:
        """The answer of the MCP server to tools/call: the final text, which the events have told, or an error."""
        text = "\n".join(shapes.text_of(result["content"]))
        if result.get("isError") is True:
            self.out.error(text, Stamp(), fatal=True)
            self.out.state("end", Stamp(), outcome=shapes.outcome_of(text), reason="isError")
            return None
        if not self.said and text:
            self.out.whole(ev.MESSAGE, text, Stamp())
        if not self.turns:
            self.out.state("end", Stamp(), outcome="completed", reason="response")
        return "answer again" if self.said and self.turns else None


def _thread_id(params: dict[str, Any]) -> str | None:
    """The thread that a notification is about."""
    thread = params.get("thread")
    if isinstance(thread, dict):
        return shapes.text(thread.get("id"))
    return shapes.text(params.get("threadId"))


def _key(stamp: Stamp, item: str, index: Any = None) -> str:
    """Names a block: items of several threads may share an id."""
    return f"{stamp.session_id or ''}/{item}/{index if type(index) is int else ''}"


def _request(number: Any) -> str:
    """Names a server request: 1 and "1" are two."""
    return str(number) if type(number) is int else f'"{number}"' if isinstance(number, str) else ""
