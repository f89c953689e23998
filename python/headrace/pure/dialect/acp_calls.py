"""The tool calls of an ACP session: from the lines that tell of them to the Emitter.

The wire gives a call in pieces: an announcement (`tool_call`, a permission request, or just the first update), then
updates that name what has changed. Arguments may grow; `content` before the result is about the call and not its
result; a status of "completed" may hide an exit code.
"""

from __future__ import annotations

from typing import Any

from .. import event as ev
from .. import tool
from ..emit import Emitter, count
from ..event import Stamp
from . import Outcome, acp_agents
from .acp_shape import (
    STATUSES,
    content_of,
    from_base64,
    id_of,
    joined,
    kind_of,
    locations_of,
    mapping,
    sequence,
    shown_text,
    text_of,
)

GUARDIAN = "guardian_assessment:"
#: what its review says first: for JetBrains' clients codex leaves the structured record out
REVIEWS = {
    "Status: Approved": "approved",
    "Status: Denied": "denied",
    "Status: Aborted": "aborted",
    "Status: Timed out": "timedOut",
}


class Terminal:
    """A terminal of the client in a merged log, or of version 2, which calls show as their content."""

    __slots__ = ("exit_code", "output")

    def __init__(self) -> None:
        self.output = b""
        self.exit_code: int | None = None


class Call:
    """What is kept of a call while later lines may add to it."""

    __slots__ = (
        "asked",
        "closed",
        "has_input",
        "invalid",
        "name",
        "output",
        "shown",
        "structured",
        "terminals",
        "turn",
    )

    def __init__(self, turn: int, name: str | None) -> None:
        self.turn = turn  # number of the turn that it belongs to
        self.name = name
        self.asked = False  # for permission: it may never be heard of again
        self.has_input = False
        self.invalid = False  # a stand-in for a tool that does not exist
        self.output: list[str] = []  # pieces of its output, until the result
        self.terminals: list[str] = []  # ids of those that it shows
        self.structured = False  # the harness's own record of the result was told
        self.closed = False
        self.shown = False  # the result's text was told


class Calls:
    def __init__(self, out: Emitter, dialect: str) -> None:
        self.out = out
        self.dialect = dialect
        self.agent = ""  # key in AGENTS
        self.turn = 0
        self.calls: dict[str, Call] = {}
        self.refused: list[str] = []  # calls that wait for permission or were refused, and no word of the agent since
        self.tasks: dict[str, bool] = {}  # open calls of sub-agents (Copilot): True if the main agent waits for them
        self.agents: dict[str, str] = {}  # id of a sub-agent (Copilot, Kiro): its call
        self.terminals: dict[str, Terminal] = {}  # by id, until the result of their call
        self.children: dict[str, str] = {}  # session of a sub-agent: its call, or the session again
        self.compactions: list[str] = []  # ids of "calls" that are compactions under way

    def begin(self) -> None:
        """A turn begins."""
        self.turn += 1
        self.refused.clear()

    @property
    def unfinished(self) -> bool:
        """Whether calls of the turn are still at work (a refused one may never be heard of again)."""
        return any(call.turn == self.turn and not call.closed and not call.asked for call in self.calls.values())

    def is_new(self, kind: str, call_id: str) -> bool:
        """Whether the line is the first of its call. An id that is announced again in a later turn names a new one."""
        if call_id.startswith(GUARDIAN):
            return False
        call = self.calls.get(call_id)
        return call is None or (kind == "tool_call" and call.closed and call.turn != self.turn)

    def tell(self, kind: str, call_id: str, update: dict[str, Any], stamp: Stamp) -> Outcome:
        """A line that tells of a call."""
        if call_id.startswith(GUARDIAN):
            return self._guardian(call_id, update, stamp)
        if self.is_new(kind, call_id):
            return self._open(call_id, update, stamp)
        call = self.calls[call_id]
        if kind == "tool_call_content_chunk" and not call.closed:
            piece = joined([mapping(mapping(item).get("content")) for item in sequence(update["content"])])
            if piece is not None:
                piece = self.out.clean(piece)
                call.output.append("\n" + piece if call.output else piece)
        return self._apply(call_id, call, update, stamp)

    def again(self, call_id: str, update: dict[str, Any], stamp: Stamp) -> Outcome:
        """A call that session/load tells again: only what was not told before is news."""
        call, raw = self.calls.get(call_id), update.get("rawOutput")
        if call is None or call.shown:
            return "replay"
        if not call.closed:
            return self._apply(call_id, call, update, stamp)
        blocks = self._result(call, content_of(update.get("content"))[0], raw)
        if not call.shown:
            return "replay"
        news = {} if raw is None or call.structured else {"raw_output": raw}
        self.out.update(call_id, stamp, content=blocks, done=False, again=True, **news)
        return None

    def terminal(self, kind: str, update: dict[str, Any]) -> None:
        """Version 2: what runs in a terminal has printed something, or has ended."""
        terminal_id = id_of(self.out, update.get("terminalId"))
        if not terminal_id:
            return
        kept = self.terminals.setdefault(terminal_id, Terminal())
        if kind == "terminal_output_chunk":
            kept.output += from_base64(update.get("data"))
        elif "output" in update:  # all of it so far
            kept.output = from_base64(mapping(update["output"]).get("data"))
        code = count(mapping(update.get("exitStatus")).get("exitCode"))
        kept.exit_code = kept.exit_code if code is None else code

    def printed(self, terminal_id: str | None, told: dict[str, Any]) -> None:
        """The client answers what runs in a terminal of its own has printed, or how it ended."""
        output, codes = told.get("output"), (told.get("exitCode"), mapping(told.get("exitStatus")).get("exitCode"))
        code = next((code for code in map(count, codes) if code is not None), None)
        if not terminal_id or (not isinstance(output, str) and code is None):
            return
        kept = self.terminals.setdefault(terminal_id, Terminal())
        kept.output = self.out.clean(output).encode() if isinstance(output, str) else kept.output
        kept.exit_code = kept.exit_code if code is None else code

    def ask(self, call_id: str, update: dict[str, Any], stamp: Stamp) -> None:
        """A permission request: for some agents a call's first line, or the first with its arguments."""
        call, raw_input = self.calls.get(call_id), update.get("rawInput")
        if call is None:
            self._open(call_id, update, stamp)
            call = self.calls[call_id]
        elif not call.closed and not call.has_input and raw_input is not None:
            self._apply(call_id, call, {"rawInput": raw_input}, stamp)
        stamp.extra = None
        call.asked = True
        if not call.closed and call_id not in self.refused:
            self.refused.append(call_id)

    def allow(self, call_id: str) -> None:
        """The client said yes."""
        if call_id in self.refused:
            self.refused.remove(call_id)

    def thread(self, meta: dict[str, Any], session: str | None, call_id: str | None) -> str | None:
        """The delegating call of the sub-agent whose line this is, or the sub-agent's session if it has its own. Kiro
        gives sub-agents ids that their calls name, too. Copilot names its sub-agents' calls only: a text that comes
        while the main agent waits for a sub-agent is the latter's."""
        parent = self.children.get(session or "") or acp_agents.parent_call(self.out, meta)
        kiro = mapping(meta.get("kiro"))
        if parent is None and (agent := id_of(self.out, kiro.get("agentSubtaskId"))):
            if kiro.get("kind") == "agent-subtask" and call_id:
                self.agents[agent] = call_id
            parent = self.agents.get(agent, agent)
        if parent is not None or self.agent != "copilot":
            return parent if parent != call_id else None
        agent = id_of(self.out, mapping(meta.get("github.com/copilot")).get("agentId"))
        if agent is None:
            return next((call_id for call_id, waits in self.tasks.items() if waits), None)
        if agent not in self.agents:
            free = [call_id for call_id in self.tasks if call_id not in self.agents.values()]
            if not free:
                return None
            self.agents[agent] = free[0]
        return self.agents[agent]

    # ------------------------------------------------------------ inside

    def _guardian(self, call_id: str, update: dict[str, Any], stamp: Stamp) -> Outcome:
        """Codex has a model of its own review a call in place of a person: no call of the agent, but an approval."""
        raw = mapping(update.get("rawOutput"))
        target = id_of(self.out, raw.get("targetItemId")) or id_of(
            self.out, mapping(update.get("rawInput")).get("targetItemId")
        )
        decision = text_of(mapping(raw.get("review")).get("status"))
        if decision is None:
            shown = next(filter(None, map(shown_text, content_of(update.get("content"))[0])), "")
            decision = REVIEWS.get(shown.partition("\n")[0])
        if decision == "denied":
            self.refused.append(call_id if target is None else target)
        phase = "requested" if decision is None else "settled"
        self.out.state("approval", stamp, phase=phase, toolCallId=target, decision=decision)
        return None

    def _open(self, call_id: str, update: dict[str, Any], stamp: Stamp) -> Outcome:
        """The first line of a call, an announcement or not."""
        call = self.calls[call_id] = Call(self.turn, acp_agents.tool_name(self.agent, call_id, update, True))
        raw_input = update.get("rawInput")
        self._takes_input(call_id, call, raw_input)
        self._takes_terminals(call, update)
        status = self._status(call, update)
        blocks, odd = content_of(update.get("content"))
        stamp.extra = {"content": update["content"]} if odd else None
        self.out.call(
            call_id,
            call.name,
            raw_input,
            stamp,
            status=status or "pending",
            kind=kind_of(update),
            title=text_of(update.get("title")),
            content=blocks if "content" in update else None,
            locations=locations_of(update.get("locations")),
            started_at=ev.iso_millis(mapping(raw_input).get("started_at_ms")),
            no_result=True,
        )
        if status in ("completed", "failed"):
            return self._apply(call_id, call, {**update, "rawInput": None}, stamp)
        return None

    def _apply(self, call_id: str, call: Call, update: dict[str, Any], stamp: Stamp) -> Outcome:
        """An update: only what it names has changed."""
        raw_input, raw, meta = update.get("rawInput"), update.get("rawOutput"), mapping(update.get("_meta"))
        self._takes_input(call_id, call, raw_input)
        self._takes_terminals(call, update)
        status = None if call.closed else self._status(call, update)
        exit_code = self._exit(call, update)[1]
        done = status in ("completed", "failed")
        name = acp_agents.tool_name(self.agent, call_id, update, False)
        call.name = name or call.name
        blocks, odd = content_of(update.get("content"))
        extra = {} if raw_input is None else {"rawInput": raw_input}
        if odd:
            extra["content"] = update["content"]
        for key in ("terminal_output_delta", "terminal_output"):  # the latter in a terminal of the client, as in Zed
            piece = mapping(meta.get(key))
            if isinstance(piece.get("data"), str) and not call.closed:
                call.output.append(self.out.clean(piece["data"]))
                if not done:
                    extra[key] = piece
        if done:
            self._takes_output(call)
            blocks = self._result(call, blocks, raw)
        elif not blocks and status == "in_progress" and isinstance(raw_input, dict):
            blocks = tool.describe(self.dialect, call.name, raw_input).content  # diffs that only the arguments show
        response = mapping(meta.get("claudeCode")).get("toolResponse")
        if "elapsedTimeSeconds" in mapping(response):  # a sign of life while the tool runs
            response = None
        if response is not None:  # Claude's own record of the result; the adapter's is only its text
            raw, call.structured = response, True
        elif call.structured:
            raw = None
        stamp.extra = extra or None
        self.out.update(
            call_id,
            stamp,
            status=status,
            title=text_of(update.get("title")),
            content=blocks,
            locations=locations_of(update.get("locations")),
            again=call.closed,
            name=name,
            kind=kind_of(update),
            input=raw_input,
            exit_code=exit_code,
            duration_ms=acp_agents.duration_ms(raw),
            no_result=None if done else True,
            **({} if raw is None else {"raw_output": raw}),
        )
        if done:
            self._close(call_id, call, update, status == "failed", exit_code is not None)
        return None

    def _status(self, call: Call, update: dict[str, Any]) -> str | None:
        """The status as it is: a command that failed did not complete, nor did a tool that does not exist."""
        status = STATUSES.get(text_of(update.get("status")) or "")
        if status == "completed" and (call.invalid or self._exit(call, update)[0]):
            return "failed"
        return status

    def _exit(self, call: Call, update: dict[str, Any]) -> tuple[bool, int | None]:
        """Whether an exit code says that the command failed, and the code."""
        failed, code = acp_agents.failed_exit(update)
        if failed or code is not None:
            return failed, code
        codes = [self.terminals[key].exit_code for key in call.terminals if key in self.terminals]
        code = next((code for code in codes if code is not None), None)
        return bool(code), code

    def _takes_terminals(self, call: Call, update: dict[str, Any]) -> None:
        for item in map(mapping, sequence(update.get("content"))):
            terminal_id = id_of(self.out, item.get("terminalId")) if item.get("type") == "terminal" else None
            if terminal_id and terminal_id not in call.terminals:
                call.terminals.append(terminal_id)

    def _takes_output(self, call: Call) -> None:
        """What its terminals show, where nothing else tells it."""
        shown = [self.terminals.pop(key).output for key in call.terminals if key in self.terminals]
        if not call.output:
            call.output = [output.decode(errors="replace") for output in shown]

    def _takes_input(self, call_id: str, call: Call, raw_input: Any) -> None:
        if raw_input is None:
            return
        call.has_input = raw_input != {}
        call.invalid = acp_agents.is_invalid_tool(self.agent, raw_input)
        if self.agent == "copilot" and isinstance(mapping(raw_input).get("agent_type"), str):
            self.tasks[call_id] = raw_input.get("mode") != "background"

    def _result(self, call: Call, blocks: list[dict[str, Any]], raw: Any) -> list[dict[str, Any]]:
        """The content of a result, with its text as the tool said it."""
        texts = [text for text in map(shown_text, blocks) if text is not None]
        shown = "\n".join(texts) if texts else "".join(call.output) or None
        text = acp_agents.result_text(self.agent, raw, shown)
        call.output = []
        call.shown = text is not None
        if text is None or (texts and text == shown):
            return blocks
        return ev.text_content(text) + [block for block in blocks if shown_text(block) is None]

    def _close(self, call_id: str, call: Call, update: dict[str, Any], failed: bool, ran: bool) -> None:
        call.closed = True
        if call_id in self.refused:
            if not failed or ran:
                self.refused.remove(call_id)
        elif failed and acp_agents.is_refusal(update):
            self.refused.append(call_id)
        self.tasks.pop(call_id, None)
        self.out.commit(call_id)  # the thread of its sub-agent
