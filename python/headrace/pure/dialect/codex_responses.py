"""Items of the model API as Codex logs them: messages, reasoning, calls and their outputs.

The TypeScript CLI prints them bare, and a rollout holds them (bare up to 0.20, later as `response_item`). Outputs of
calls have no flag: the exit code stands in a JSON wrapper (up to 0.64) or in a header above the text (0.98 and later).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import event as ev
from .. import json, patch, tool
from ..emit import Emitter, count
from ..event import Stamp
from . import UNKNOWN, Outcome
from . import codex_shapes as shapes

IGNORED = {
    "ghost_snapshot": "snapshot",
    "additional_tools": "definitions of tools",
    "agent_message": "message between agents",
    "compaction": "compaction item",
    "compaction_summary": "compaction item",
    "context_compaction": "compaction item",
    "compaction_trigger": "compaction item",
    "configuration_update": "settings",
    "other": "other item",
}
CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "tool_search_call"})
OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output", "tool_search_output"})
#: how user messages begin that the harness writes
INJECTED = (
    "<environment_context>",
    "<user_instructions>",
    "<turn_aborted>",
    "<subagent_notification>",
    "<permissions",
    "<skill>",
    "<skills_instructions>",
    "<user_shell_command>",
    "<user_action>",
    "<hook_prompt ",
    "<goal_context>",
    "<codex_internal_context",
    "<extension_context>",
    "<external_",
    "<model_switch>",
    "<collaboration_mode>",
    "# AGENTS.md instructions for ",
    "Warning: The maximum number of unified exec processes",
    "Warning: apply_patch was requested via ",
    "Warning: Your account was flagged for ",
    "[left out: ",  # what stands in recordings for such texts
)
#: tools whose output always has the header or the wrapper if they ran at all: without it they were refused
WITH_HEADER = frozenset({"shell", "shell_command", "exec_command", "write_stdin", "apply_patch"})
#: tools of the harness that answer with a JSON object if they did what was asked
AGENT_TOOLS = frozenset(
    {"spawn_agent", "send_input", "send_message", "wait", "wait_agent", "close_agent", "resume_agent", "list_agents"}
)
#: tools of the harness that answer with JSON, as MCP servers do, or with an error in plain text
JSON_TOOLS = frozenset({"list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource", "request_user_input"})
#: the text by which a tool of the harness says that it did what was asked
DONE = {"update_plan": "Plan updated", "view_image": "attached local image path"}
#: how the harness begins to tell that a call never ran, or not to its end
NOT_DONE = (
    "unsupported call: ",
    "unsupported custom tool call: ",
    "failed to parse function arguments: ",
    "unable to locate image at ",
    "aborted by user after ",
)
#: how the harness begins to tell, in the place of an MCP server's answer, that there was none
NO_ANSWER = ("tool call error: tool call failed for `", "user rejected MCP tool call", "user cancelled MCP tool call")
#: tools that answer with the header of a JavaScript cell
CELLS = frozenset({"exec", "wait"})
TWINS = 32  # how many texts may wait for their twin


class Responses:
    """Items of one conversation. A rollout tells each text twice, as item and as event, in either order: ``say`` shows
    it once, and a text that really comes again shows again."""

    def __init__(self, out: Emitter) -> None:
        self.out = out
        self.names: dict[str, str] = {}  # call id: name of the tool, until its output
        self.silent: list[str] = []  # ids of calls that an event ended without a word, until their output
        self.awaited: dict[str, str] = {}  # call id: the cell or process that it waits for, until its output
        self.running: list[tuple[str, str]] = []  # cells and processes that calls left running, and the calls' ids
        self.searches = 0
        self.searched: list[str] = []  # what events said that the provider looked for, until the item that repeats it
        self.waiting: dict[str, list[str]] = {"item": [], "event": []}  # texts without their twin of the other family
        self.alone = 0  # characters of the last thing said, if it was an answer that no event told
        self.said = False  # the agent said something in this turn

    # ------------------------------------------------------------ texts

    def say(self, kind: str, text: str, stamp: Stamp, family: str) -> bool:
        """Shows a text unless the other family has shown it."""
        mark = f"{kind} {text}"
        other = self.waiting["event" if family == "item" else "item"]
        if mark in other:
            other.remove(mark)
            self.alone = 0
            return False
        mine = self.waiting[family]
        mine.append(mark)
        del mine[:-TWINS]
        self.out.commit(None)
        self.out.whole(kind, text, stamp)
        self.alone = len(text) if kind == ev.MESSAGE and family == "item" else 0
        self.said = self.said or kind == ev.MESSAGE
        return True

    def acted(self) -> None:
        """Something else than a text: what was said before stands."""
        self.alone = 0
        self.out.commit(None)

    def start(self) -> None:
        """A turn begins."""
        self.silent.clear()
        self.searched.clear()
        for texts in self.waiting.values():
            texts.clear()
        self.alone = 0
        self.said = False

    # ------------------------------------------------------------ items

    def map(self, item: dict[str, Any], stamp: Stamp) -> Outcome:
        kind = item.get("type")
        if not isinstance(kind, str):
            return UNKNOWN
        if kind == "message":
            return self._message(item, stamp)
        if kind == "reasoning":
            stamp.message_id = shapes.text(item.get("id"))
            shown = [self.say(ev.THOUGHT, text, stamp, "item") for text in shapes.text_of(item.get("summary")) if text]
            return None if any(shown) else "reasoning again" if shown else "reasoning without summary"
        if kind in CALLS:
            return self._call(kind, item, stamp)
        if kind in OUTPUTS:
            return self._output(kind, item, stamp)
        if kind == "web_search_call":
            return self._search(item, stamp)
        if kind == "image_generation_call":
            return self._picture(item, stamp)
        return IGNORED.get(kind, UNKNOWN)

    def _message(self, item: dict[str, Any], stamp: Stamp) -> Outcome:
        role = item.get("role")
        stamp.message_id = shapes.text(item.get("id"))
        if role == "assistant":
            phase = shapes.text(item.get("phase"))
            stamp.extra = None if phase is None else {"phase": phase}
            shown = [self.say(ev.MESSAGE, text, stamp, "item") for text in shapes.text_of(item.get("content")) if text]
            return None if any(shown) else "message again" if shown else "empty text"
        if is_prompt(item):
            return self._prompt(item, stamp)
        return f"{role} message" if role in ("user", "developer", "system") else "message of another role"

    def _prompt(self, item: dict[str, Any], stamp: Stamp) -> Outcome:
        shown = []
        for part in item["content"] if isinstance(item.get("content"), list) else []:
            url = part.get("image_url") if isinstance(part, dict) else None
            if isinstance(url, str):
                self.out.image(ev.USER, shapes.image_of(url), stamp)
                shown.append(True)
        shown += [self.say(ev.USER, text, stamp, "item") for text in shapes.text_of(item.get("content")) if text]
        return None if any(shown) else "prompt again"

    def _call(self, kind: str, item: dict[str, Any], stamp: Stamp) -> Outcome:
        call_id = shapes.text(item.get("call_id")) or shapes.text(item.get("id"))
        if call_id is None:
            return UNKNOWN
        self.acted()
        if self.out.knows(call_id) and call_id not in self.names:
            return "call again"  # an event has told it, or it was copied
        call = read_call(kind, item)
        self.names[call_id] = call.path
        awaited = awaited_by(call)
        if awaited is not None:
            self.awaited[call_id] = awaited
        self.out.call(
            call_id,
            call.name,
            call.input,
            stamp,
            kind=call.kind,
            title=call.title,
            content=call.content,
            locations=call.locations,
        )
        if call.name == "update_plan" and isinstance(call.input, dict):
            entries = tool.plan_of(call.input.get("plan"), "step")
            if entries is not None:
                self.out.plan(entries, stamp)
        return None

    def _output(self, kind: str, item: dict[str, Any], stamp: Stamp) -> Outcome:
        call_id = shapes.text(item.get("call_id"))
        if call_id is None:
            # the app tells a thread so what another thread wants of it
            return UNKNOWN if shapes.text(item.get("name")) is None else "output without a call"
        self.acted()
        name, awaited = self.names.pop(call_id, ""), self.awaited.pop(call_id, None)
        if kind == "tool_search_output":
            found = {"tools": item.get("tools")}
            status = shapes.status_of(shapes.text(item.get("status")))
            shown = self.out.update(call_id, stamp, status=status, done=True, raw_output=found)
            return None if shown else "output again"
        output = read_output(name, item.get("output"))
        if call_id in self.silent:
            self.silent.remove(call_id)
            if output.content:
                raw = ... if output.raw is None else output.raw
                self.out.update(call_id, stamp, done=False, content=output.content, raw_output=raw, again=True)
                return None
        shown = self.out.update(
            call_id,
            stamp,
            status=output.status,
            done=output.done,
            content=output.content,
            exit_code=output.exit_code,
            raw_output=... if output.raw is None else output.raw,
        )
        if not output.done:
            left = left_running(item.get("output"))
            self.running += [] if left is None else [(left, call_id)]
            del self.running[:-TWINS]
        elif awaited is not None and output.status is not None:
            over = [left for left in self.running if left[0] == awaited]
            self.running = [left for left in self.running if left[0] != awaited]
            for _, earlier in over:
                self.out.update(earlier, stamp, status=output.status, done=True, exit_code=output.exit_code)
        return None if shown else "output again"

    def _search(self, item: dict[str, Any], stamp: Stamp) -> Outcome:
        """A search that the provider ran: one item says all. Without an id (0.64 to 0.129) it is counted, unless an
        event has told it (0.122 to 0.129), which has one."""
        self.acted()
        call_id, mark = shapes.text(item.get("id")), search_mark(item)
        if not call_id and mark in self.searched:
            self.searched.remove(mark)
            return "call again"
        self.searches += 1
        call_id = call_id or f"web_search:{self.searches}"
        if self.out.knows(call_id):
            return "call again"
        action = item.get("action")
        search = shapes.Item(item)
        search.query = shapes.text(action.get("query")) if isinstance(action, dict) else None
        shapes.announce(self.out, "search", "web_search", search, call_id, stamp)
        shapes.settle(self.out, "search", search, call_id, stamp)
        return None

    def _picture(self, item: dict[str, Any], stamp: Stamp) -> Outcome:
        """An image that the provider made: one item says all, and an event may say it again."""
        call_id = shapes.text(item.get("id"))
        if call_id is None:
            return UNKNOWN
        self.acted()
        if self.out.knows(call_id):
            return "call again"
        shapes.announce(self.out, "picture", "image_generation", shapes.Item(item), call_id, stamp)
        shapes.settle(self.out, "picture", shapes.Item(item), call_id, stamp)
        return None


def search_mark(record: dict[str, Any]) -> str:
    """What the provider looked for, as the item and the event of a search both say it."""
    action = record.get("action")
    parts = [action.get(key) for key in ("type", "query", "url", "pattern")] if isinstance(action, dict) else []
    return "\n".join(ev.clean(part) if isinstance(part, str) else "" for part in parts)


def is_prompt(item: dict[str, Any]) -> bool:
    """True for a user message that a person wrote. 0.171 says so; before, the text tells, and a message without any
    holds an image that a tool attached."""
    if item.get("type") != "message" or item.get("role") != "user":
        return False
    facts = item.get("internal_chat_message_metadata_passthrough")
    kinds = facts.get("content_item_kinds") if isinstance(facts, dict) else None
    if isinstance(kinds, list) and kinds:
        return any(isinstance(kind, str) and kind.startswith("user.") for kind in kinds)
    texts = shapes.text_of(item.get("content"))
    return bool(texts) and not texts[0].startswith(INJECTED)


# ---------------------------------------------------------------- calls


class Call(NamedTuple):
    name: str | None
    path: str  # the name, with its namespace if that is an MCP server
    input: Any
    kind: str | None
    title: str | None
    content: list[dict[str, Any]] | None
    locations: list[dict[str, Any]] | None


def read_call(kind: str, item: dict[str, Any]) -> Call:
    name, space = shapes.text(item.get("name")), shapes.text(item.get("namespace"))
    arguments: Any = item.get("arguments")
    tool_kind = title = content = locations = None
    if kind == "custom_tool_call":
        arguments = {"input": item["input"]} if "input" in item else None
    elif kind == "local_shell_call":
        name, arguments = "local_shell", item.get("action")
    elif kind == "tool_search_call":
        name = "tool_search"
    elif isinstance(arguments, str):
        arguments = _json(arguments)
    if isinstance(arguments, dict):
        text = _patch_of(name, arguments)
        if text is not None:
            tool_kind = "edit"
            content, locations = patch.blocks_of_patch(text)
            title = f"Edit {locations[0]['path']}" if len(locations) == 1 else "Apply patch"
        elif name != "apply_patch" and "command" in arguments:
            title = shapes.command_title(arguments["command"])
    path = name or ""
    if space is not None and space.startswith("mcp__"):  # others are the harness's own: clock, web, image_gen ...
        title = shapes.mcp_title(space[5:].removesuffix("__"), name)  # 0.125: mcp__server__
        path = f"{space}__{path}"
    return Call(name, path, arguments, tool_kind, title, content, locations)


def _json(text: str) -> Any:
    """The arguments of a call; the text itself if the model broke them."""
    try:
        return json.loads(text.encode("utf-8", "surrogatepass"))
    except json.JsonError:
        return text


def _patch_of(name: str | None, arguments: dict[str, Any]) -> str | None:
    """The patch of an apply_patch call: a tool of its own, or a shell command."""
    text = arguments.get("input") if name == "apply_patch" else None
    command = arguments.get("command")
    if isinstance(command, list) and len(command) == 2 and command[0] == "apply_patch":
        text = command[1]
    return text if isinstance(text, str) else None


#: tools that wait for what another call left running, and the argument that names it
_WAITING = {"wait": "cell_id", "write_stdin": "session_id"}
#: how the line of an output begins that names what goes on
_GOES_ON = (("Script running with cell ID ", "cell_id"), ("Process running with session ID ", "session_id"))


def awaited_by(call: Call) -> str | None:
    """The cell or process that a call waits for."""
    key = _WAITING.get(call.path)
    value = call.input.get(key) if key is not None and isinstance(call.input, dict) else None
    number = count(value)
    if number is not None:
        value = str(number)
    return f"{key} {ev.clean(value)}" if isinstance(value, str) else None


def left_running(output: Any) -> str | None:
    """The cell or process that goes on, by the header of an output."""
    text = output if isinstance(output, str) else next(iter(shapes.text_of(output)), "")
    for line in text.split("\n"):
        for head, key in _GOES_ON:
            if line.startswith(head):
                return f"{key} {ev.clean(line[len(head) :])}"
        if line == "Output:":
            break
    return None


# ---------------------------------------------------------------- outputs


class Output(NamedTuple):
    content: list[dict[str, Any]]
    status: str | None = None
    done: bool = True
    exit_code: int | None = None
    raw: Any = None  # the header, or what the wrapper says beside the output


class Header(NamedTuple):
    text: str
    exit_code: int | None
    running: bool


_HEADER_LINES = ("Chunk ID: ", "Wall time", "Original token count: ", "Total output lines: ")


def read_header(text: str) -> Header | None:
    """The lines above ``Output:``, if the text begins with them."""
    exit_code, running, at = None, False, 0
    while True:
        end = text.find("\n", at)
        line = text[at:] if end < 0 else text[at:end]
        if line == "Output:":
            return Header(text if end < 0 else text[: end + 1], exit_code, running) if at else None
        for head in ("Process exited with code ", "Exit code: "):
            if line.startswith(head):
                exit_code = _integer(line[len(head) :])
                break
        else:
            if line.startswith("Process running with "):
                running = True
            elif not line.startswith(_HEADER_LINES):
                return None
        if end < 0:
            return None
        at = end + 1


class Cell(NamedTuple):
    text: str
    status: str | None

    @property
    def running(self) -> bool:
        return self.status == "in_progress"


def read_cell(text: str) -> Cell | None:
    """The lines above ``Output:`` of a JavaScript cell, if the text begins with them. Without any output they are all
    of it, and then they stand as a text, not as a part."""
    line, _, rest = text.partition("\n")
    status = {"Script completed": "completed", "Script failed": "failed", "Script terminated": None}
    if line not in status and not line.startswith("Script running with cell ID "):
        return None
    if rest.startswith("Wall time "):
        rest = rest.partition("\n")[2]
    if rest != "Output:" and not rest.startswith("Output:\n"):
        return None
    return Cell(text[: len(text) - len(rest) + len("Output:\n")], status.get(line, "in_progress"))


def _integer(text: str) -> int | None:
    digits = text.removeprefix("-")
    return int(text) if 0 < len(digits) < 10 and digits.isascii() and digits.isdigit() else None


def read_output(name: str, output: Any) -> Output:
    """Output of the call to the tool ``name`` (with its namespace if that is an MCP server, see ``Call.path``)."""
    tool_name = name.rpartition("__")[2]
    mcp = "__" in name and not name.startswith(("functions__", "collaboration__", "multi_agent_"))
    mcp = mcp or tool_name in JSON_TOOLS
    if isinstance(output, list):
        found = _parts_output(tool_name, output)
        return found._replace(status="failed") if mcp and _is_no_answer(found.content) else found
    if isinstance(output, dict):  # up to 0.50 in memory: {"content", "success"}
        success, content = output.get("success"), shapes.text(output.get("content"))
        told = {True: "completed", False: "failed"}.get(success) if isinstance(success, bool) else None
        return Output(ev.text_content(content) if content else [], told)
    if not isinstance(output, str):
        return Output([])
    cell = read_cell(output) if tool_name in CELLS else None
    if cell is not None:
        body = output[len(cell.text) :]
        return Output(ev.text_content(body) if body else [], cell.status, not cell.running, None, cell.text)
    body, exit_code = output, None
    status: str | None = None
    raw: Any = None
    header = read_header(body)
    while header is not None:  # 0.142 prints one above the other
        raw = header.text if raw is None else raw + header.text
        body = body[len(header.text) :]
        if header.running:
            return Output(ev.text_content(body) if body else [], "in_progress", False, None, raw)
        exit_code = header.exit_code if exit_code is None else exit_code
        header = read_header(body)
    value = _json(body) if body[:1] in ("{", "[") else body
    if isinstance(value, dict) and isinstance(value.get("metadata"), dict) and isinstance(value.get("output"), str):
        body, raw = value["output"], {"metadata": value["metadata"]}
        exit_code = count(value["metadata"].get("exit_code"))
        status = "completed" if exit_code == 0 else "failed"
    elif exit_code is not None:
        status = "completed" if exit_code == 0 else "failed"
    elif mcp:
        # only an answer of the server is JSON, which may be cut in the middle, or has a header; the harness tells its
        # own errors in plain text
        answered = raw is not None or body[:1] in ("{", "[")
        status = "completed" if answered else "failed"
        blocks = shapes.parts_content(value)
        if blocks:
            return Output(blocks, "failed" if _is_no_answer(blocks) else status, raw=raw)
    elif (raw is None and tool_name in WITH_HEADER) or body.startswith(NOT_DONE):
        status = "failed"
    elif (tool_name in AGENT_TOOLS and isinstance(value, dict)) or body == DONE.get(tool_name):
        status = "completed"
    return Output(ev.text_content(body) if body else [], status, True, exit_code, raw)


def _is_no_answer(content: list[dict[str, Any]]) -> bool:
    """Whether parts are no MCP server's, but the harness's error in the shape of an answer (0.125 on)."""
    text = content[0]["content"].get("text") if len(content) == 1 else None
    return isinstance(text, str) and text.startswith(NO_ANSWER)


def _parts_output(name: str, parts: list[Any]) -> Output:
    """Output as a list of parts; the first may be a header of the harness."""
    content = shapes.parts_content(parts)
    status: str | None = "completed"
    raw = None
    first = content[0]["content"].get("text") if content else None
    cell = read_cell(first) if name in CELLS and isinstance(first, str) else None
    if cell is not None and isinstance(first, str):
        rest = first[len(cell.text) :]
        content = [*(ev.text_content(rest) if rest else []), *content[1:]]
        return Output(content, cell.status, not cell.running, None, cell.text)
    if name == "exec" and isinstance(first, str):
        status = None
    elif isinstance(first, str):
        header = read_header(first)
        if header is not None and header.text == first:
            raw, content = first, content[1:]
    return Output(content, status, True, None, raw)
