"""What all surfaces of Codex print alike: items, token counts, failures.

An item has three spellings: `command_execution` with `aggregated_output` (exec), `commandExecution` with
`aggregatedOutput` (app-server), `CommandExecution` (rollout). The functions here read all of them; a tool's name in
events is the type as it was printed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import event as ev
from .. import patch, tool
from ..emit import Emitter, count, price, tokens
from ..event import Stamp

#: item types of all spellings and what they are; those of CALLS are tool calls
ITEMS = {
    "command_execution": "command",
    "commandExecution": "command",
    "CommandExecution": "command",
    "file_change": "edit",
    "fileChange": "edit",
    "FileChange": "edit",
    "mcp_tool_call": "mcp",
    "mcpToolCall": "mcp",
    "McpToolCall": "mcp",
    "collab_tool_call": "agent",
    "collabAgentToolCall": "agent",
    "CollabAgentToolCall": "agent",
    "web_search": "search",
    "webSearch": "search",
    "WebSearch": "search",
    "image_view": "image",
    "imageView": "image",
    "ImageView": "image",
    "dynamicToolCall": "dynamic",
    "DynamicToolCall": "dynamic",
    "image_generation": "picture",
    "imageGeneration": "picture",
    "ImageGeneration": "picture",
    "image_gen.generation": "picture",
    "image_gen.image_generation": "picture",
    "web.search": "search",
    "sleep": "other",
    "Sleep": "other",
    "clock.sleep": "other",
    "agent_message": "message",
    "assistant_message": "message",
    "agentMessage": "message",
    "AgentMessage": "message",
    "reasoning": "reasoning",
    "Reasoning": "reasoning",
    "userMessage": "user",
    "UserMessage": "user",
    "todo_list": "todo",
    "error": "error",
    "contextCompaction": "compaction",
    "ContextCompaction": "compaction",
}
CALLS = frozenset({"command", "edit", "mcp", "agent", "search", "image", "dynamic", "picture", "other"})
IGNORED_ITEMS = {
    "plan": "text of a plan",
    "Plan": "text of a plan",
    "enteredReviewMode": "review mode",
    "EnteredReviewMode": "review mode",
    "exitedReviewMode": "review mode",
    "ExitedReviewMode": "review mode",
    "hookPrompt": "prompt of a hook",
    "HookPrompt": "prompt of a hook",
    "functionCallOutput": "output of a call again",
    "FunctionCallOutput": "output of a call again",
    "subAgentActivity": "sub-agent activity",
    "SubAgentActivity": "sub-agent activity",
}

#: fields of an item that its rawOutput leaves out, because the event says them elsewhere or nobody asks
_TOLD = frozenset(
    {
        "id",
        "call_id",
        "type",
        "item_type",
        "command",
        "aggregated_output",
        "aggregatedOutput",
        "formatted_output",
        "changes",
        "server",
        "tool",
        "arguments",
        "invocation",
        "result",
        "contentItems",
        "content_items",
        "prompt",
        "path",
        "startedAtMs",
        "completedAtMs",
        "internal_chat_message_metadata_passthrough",
    }
)


def name_of(item: dict[str, Any]) -> str:
    """The type of an item; for an extension's (0.149 on: `{"type": "Extension", "kind": "web.search"}`) its kind."""
    name = text(item.get("type")) or ""
    return text(item.get("kind")) or name if name == "Extension" else name


# ---------------------------------------------------------------- items that are tool calls


class Item:
    """A tool call as its item tells it, or a pair of events: what stands where in all of them."""

    __slots__ = ("error", "facts", "inputs", "query", "result", "started", "status", "tool")

    def __init__(self, facts: dict[str, Any], inputs: dict[str, Any] | None = None) -> None:
        self.facts = facts  # the whole item or event
        self.inputs = facts if inputs is None else inputs  # where server, tool and arguments of an MCP call stand
        self.tool = text(self.inputs.get("tool"))
        self.query = text(facts.get("query"))
        self.status = text(facts.get("status"))
        self.result = facts.get("result")
        self.error = facts.get("error")
        self.started = either(facts, "startedAtMs", "started_at_ms")

    @staticmethod
    def of_event(kind: str, msg: dict[str, Any]) -> Item:
        """A begin or end event; an end says `success` or `{"Ok": ...}` where an item has a status."""
        invocation, success, result = msg.get("invocation"), msg.get("success"), msg.get("result")
        item = Item(msg, invocation if isinstance(invocation, dict) else None)
        if kind == "edit" and item.status is None and isinstance(success, bool):
            item.status = "completed" if success else "failed"
        if kind == "mcp" and isinstance(result, dict):
            item.result, item.error = result.get("Ok"), result.get("Err")
        return item

    def input(self, kind: str) -> dict[str, Any] | None:
        """The call's arguments, as far as they are printed."""
        if kind == "command":
            found = pick(self.facts, ("command",))
        elif kind == "edit":
            found = pick(self.facts, ("changes",))
        elif kind == "mcp":
            found = pick(self.inputs, ("server", "tool", "arguments"))
        elif kind == "agent":
            found = {} if self.tool is None else {"tool": self.tool}
            found.update(pick(self.facts, ("prompt",)))
        elif kind == "search":
            found = {} if self.query is None else {"query": self.query}
        elif kind == "image":
            found = pick(self.facts, ("path",))
        else:
            found = pick(self.facts, ("tool", "arguments"))
        return found or None

    def title(self, kind: str) -> str | None:
        facts = self.facts
        if kind == "command":
            return command_title(facts.get("command"))
        if kind == "edit":
            changes = changes_of(facts.get("changes"))
            if len(changes) == 1:
                verb = {"add": "Create", "delete": "Delete"}.get(changes[0].kind, "Edit")
                return f"{verb} {changes[0].path}"
            return f"Edit {len(changes)} files" if changes else None
        if kind == "mcp":
            return mcp_title(text(self.inputs.get("server")), self.tool)
        if kind == "agent":
            return tool.first_line(text(facts.get("prompt")) or "") or self.tool
        if kind == "search":
            return f"Search the web: {tool.first_line(self.query)}" if self.query else None
        if kind == "image":
            path = text(facts.get("path"))
            return None if path is None else f"Read {path.removeprefix('file://')}"
        return self.tool


def announce(out: Emitter, kind: str, name: str, item: Item, call_id: str, stamp: Stamp) -> bool:
    """A tool_call event for an item (``kind`` is one of CALLS)."""
    content: list[dict[str, Any]] | None = None
    locations: list[dict[str, Any]] | None = None
    if kind == "edit":
        content, locations = blocks_of_changes(changes_of(item.facts.get("changes")))
    elif kind == "image" and isinstance(item.facts.get("path"), str):
        locations = [{"path": item.facts["path"].removeprefix("file://")}]
    return out.call(
        call_id,
        name,
        item.input(kind),
        stamp,
        status="in_progress",
        title=item.title(kind),
        content=content,
        locations=locations,
        started_at=ev.iso_millis(item.started),
    )


def settle(out: Emitter, kind: str, item: Item, call_id: str, stamp: Stamp, *, again: bool = False) -> bool:
    """The tool_call_update event of an item that has ended."""
    facts = item.facts
    # a web search has no status: it ends well; that of an image is the provider's, "generating" as a rule
    status = status_of(item.status) or "completed"
    if kind == "picture":
        status = "failed" if item.status == "failed" or facts.get("failure") is not None else "completed"
    content: list[dict[str, Any]] = []
    exit_code = None
    raw = {key: value for key, value in facts.items() if key not in _TOLD}
    if kind == "command":
        exit_code = count(either(facts, "exit_code", "exitCode"))
        if status == "completed" and exit_code != 0 and ("exit_code" in facts or "exitCode" in facts):
            status = "failed"
        output = text(either(facts, "aggregated_output", "aggregatedOutput"))
        content = _text_content(output or joined(facts.get("stdout"), facts.get("stderr")))
    elif kind == "edit":
        content = _text_content(joined(facts.get("stdout"), facts.get("stderr")))
    elif kind == "mcp":
        failed, content = mcp_result(item.result, item.error)
        status = "failed" if failed else status
        if isinstance(item.result, dict):
            raw["result"] = {key: value for key, value in item.result.items() if key != "content"}
    elif kind == "dynamic":
        content = parts_content(either(facts, "contentItems", "content_items"))
        content = content or _text_content(text(item.error) or "")
        status = "failed" if facts.get("success") is False else status
    search = kind == "search"  # it was announced before its query was known, unless the model called an extension's
    return out.update(
        call_id,
        stamp,
        status=status,
        done=True,
        title=item.title(kind) if search else None,
        content=content,
        raw_output=raw or ...,
        again=again,
        input=item.input(kind) if search and item.query and facts.get("type") != "Extension" else None,
        exit_code=exit_code,
        duration_ms=duration_of(facts),
    )


def is_silent(kind: str, item: Item) -> bool:
    """Whether the end of a call says nothing of what it gave: then its output does."""
    keys = ("aggregated_output", "aggregatedOutput", "stdout", "stderr")
    return kind not in ("mcp", "dynamic") and not any(text(item.facts.get(key)) for key in keys)


def amend(out: Emitter, item: Item, call_id: str, stamp: Stamp) -> None:
    """The changes of a patch that is still being written: each time there are more of them."""
    content, locations = blocks_of_changes(changes_of(item.facts.get("changes")))
    out.update(
        call_id,
        stamp,
        status="in_progress",
        title=item.title("edit"),
        content=content,
        locations=locations,
        input=item.input("edit"),
        no_result=True,
    )


def mcp_result(result: Any, error: Any) -> tuple[bool, list[dict[str, Any]]]:
    """Whether an MCP call failed, and its content; an error without an answer gives its message."""
    failed = False
    content: list[dict[str, Any]] = []
    if isinstance(result, dict):
        content = parts_content(result.get("content"))
        failed = either(result, "isError", "is_error") is True
    message = text(error.get("message") if isinstance(error, dict) else error)
    if message is not None:
        failed = True
        content = content or ev.text_content(message)
    return failed, content


def status_of(word: str | None) -> str | None:
    """A terminal word of Codex other than `completed` (failed, declined, interrupted ...) is a failure."""
    if word is None:
        return None
    return {"completed": "completed", "in_progress": "in_progress", "inProgress": "in_progress"}.get(word, "failed")


def mcp_title(server: str | None, name: str | None) -> str | None:
    return None if server is None or name is None else f"{server}: {name}"


def command_title(command: Any) -> str | None:
    """The script of a shell call, or the command line."""
    if isinstance(command, list):
        words = [word for word in command if isinstance(word, str)]
        command = words[2] if len(words) == 3 and words[1] in ("-lc", "-c") else " ".join(words)
    line = tool.first_line(command) if isinstance(command, str) else ""
    return f"`{line}`" if line else None


def duration_of(item: dict[str, Any]) -> float | None:
    """Milliseconds, from `durationMs` or from `duration` {secs, nanos}."""
    millis = price(either(item, "durationMs", "duration_ms"))
    if millis is not None:
        return millis
    duration = item.get("duration")
    if not isinstance(duration, dict):
        return None
    secs, nanos = count(duration.get("secs")), count(duration.get("nanos"))
    return None if secs is None or nanos is None else secs * 1000 + nanos // 1_000_000


# ---------------------------------------------------------------- changes of files


class Change(NamedTuple):
    path: str
    kind: str  # add, delete or update
    text: str | None  # the whole file of an add or delete, the unified diff of an update; None: not printed
    moved: str | None


def changes_of(changes: Any) -> list[Change]:
    """The changes of a patch in any of its shapes: a list (items) or an object by path (protocol events)."""
    found = []
    if isinstance(changes, list):
        for change in changes:
            if not isinstance(change, dict) or not isinstance(change.get("path"), str):
                continue
            kind: Any = change.get("kind")
            moved = kind.get("move_path") if isinstance(kind, dict) else None
            kind = kind.get("type") if isinstance(kind, dict) else kind
            found.append(_change(change["path"], kind, change.get("diff"), moved))
    elif isinstance(changes, dict):
        for path, change in changes.items():
            if not isinstance(change, dict):
                continue
            facts: dict[str, Any] = change
            kind = facts.get("type")
            for word in ("add", "delete", "update"):  # up to 0.50: {"add": {...}}
                if not isinstance(kind, str) and isinstance(facts.get(word), dict):
                    kind, facts = word, facts[word]
            text = facts.get("unified_diff") if kind == "update" else facts.get("content")
            found.append(_change(path, kind, text, facts.get("move_path")))
    return found


def _change(path: str, kind: Any, text: Any, moved: Any) -> Change:
    return Change(
        path,
        kind if isinstance(kind, str) else "update",
        text if isinstance(text, str) else None,
        moved if isinstance(moved, str) else None,
    )


def blocks_of_changes(changes: list[Change]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Diff blocks, as far as the wire has the texts, and the locations."""
    content: list[dict[str, Any]] = []
    locations: list[dict[str, Any]] = []
    for change in changes:
        places: list[dict[str, Any]] = [{"path": change.path}]
        if change.text is not None and change.kind == "add":
            content.append(ev.diff(change.path, None, change.text))
        elif change.text is not None and change.kind == "delete":
            content.append(ev.diff(change.path, change.text, ""))
        elif change.text is not None:
            blocks, places = patch.blocks_of_diff(change.path, change.text)
            content += blocks
        if change.moved is not None:
            places.append({"path": change.moved})
        locations += places
    return content, locations


# ---------------------------------------------------------------- texts


def text_of(content: Any) -> list[str]:
    """The texts of a message's parts: `{"type": "output_text", "text": ...}`, or `{"Text": {"text": ...}}` (0.50)."""
    texts = []
    for part in content if isinstance(content, list) else []:
        if isinstance(part, dict) and isinstance(part.get("Text"), dict):
            part = part["Text"]
        if isinstance(part, dict) and isinstance(part.get("text"), str) and part.get("type") != "refusal":
            texts.append(part["text"])
    return texts


def parts_content(parts: Any) -> list[dict[str, Any]]:
    """Tool content from a list of text and image parts, MCP's or the model API's."""
    content = []
    for part in parts if isinstance(parts, list) else []:
        if not isinstance(part, dict):
            continue
        url = either(part, "image_url", "imageUrl")
        if isinstance(part.get("text"), str):
            content.append(ev.wrapped(ev.text_block(part["text"])))
        elif part.get("type") == "image" and isinstance(part.get("data"), str):
            mime = either(part, "mimeType", "mime_type")
            content.append(ev.wrapped(ev.image_block(part["data"], mime if isinstance(mime, str) else "")))
        elif isinstance(url, str):
            content.append(ev.wrapped(image_of(url)))
    return content


def image_of(url: str) -> dict[str, Any]:
    """An image block from a URL, which may be a data URL."""
    head, comma, data = url.partition(";base64,")
    if comma and head.startswith("data:"):
        return ev.image_block(data, head[5:])
    return ev.image_block("", "", url)


def _text_content(text: str) -> list[dict[str, Any]]:
    return ev.text_content(text) if text else []


def joined(*texts: Any) -> str:
    return "".join(text for text in texts if isinstance(text, str))


# ---------------------------------------------------------------- token counts


class Meter:
    """The token counts of one thread: each model call once, however often and by whatever record it is told.

    A rollout since about 0.153 has a record of its own for each model call, and the token count after it repeats the
    call. Their sums may differ: only the records' holds the calls that compacted the context, and a resumed thread may
    go on from an old token count.
    """

    __slots__ = ("ahead", "counted", "total")

    def __init__(self) -> None:
        self.total: list[int | None] | None = None  # input, cached and output tokens so far
        self.counted: list[int | None] | None = None  # as the last token count printed them
        self.ahead = False  # records told calls that no token count has repeated yet

    def know(self, total: dict[str, Any]) -> None:
        """A sum that is told elsewhere."""
        self.total = self.counted = sums(total)

    def take(self, out: Emitter, total: Any, last: Any, stamp: Stamp) -> bool:
        """Tells the model call ``last`` of a token count if ``total``, the thread's sum so far, is news. A thread that
        is resumed may start its sum again. Without ``last`` the call is what the sum grew by."""
        before = self.total
        if isinstance(total, dict):
            now = sums(total)
            if now == self.counted or _is_mark(total, now):
                return False
            told, self.counted, self.ahead = self.ahead or now == self.total, now, False
            if told:
                return False
            self.total = now
        return _tell_call(out, total, last, before, stamp)

    def record(self, out: Emitter, total: Any, last: Any, stamp: Stamp, key: str | None) -> bool:
        """Tells the model call of a record of its own."""
        before = self.total
        if isinstance(total, dict):
            if sums(total) == before:
                return False
            self.total = sums(total)
        self.ahead = True
        return _tell_call(out, total, last, before, stamp, key=key)


def _tell_call(
    out: Emitter, total: Any, last: Any, before: list[int | None] | None, stamp: Stamp, *, key: str | None = None
) -> bool:
    if not isinstance(last, dict):
        if not isinstance(total, dict):
            return False
        last = _growth(sums(total), before)
    if not any(sums(last)):
        return False  # a sum that was set: no model was called
    out.usage("call", usage_of(last), stamp, key=key)
    if isinstance(total, dict) and stamp.parent is None:
        out.usage("run", usage_of(total), stamp)
    return True


def _is_mark(total: dict[str, Any], now: list[int | None]) -> bool:
    """A context that is full: Codex sets the sum to the size of the window, with all counters 0, and no model call
    was made."""
    whole = count(either(total, "total_tokens", "totalTokens"))
    return bool(whole) and not any(now)


def _growth(now: list[int | None], before: list[int | None] | None) -> dict[str, Any]:
    """What a sum grew by; all of it if it began again."""
    names = ("input_tokens", "cached_input_tokens", "output_tokens")
    grown = [None if new is None else new - (old or 0) for new, old in zip(now, before or [0, 0, 0], strict=True)]
    if any(number is not None and number < 0 for number in grown):
        grown = now
    return dict(zip(names, grown, strict=True))


def sums(usage: dict[str, Any]) -> list[int | None]:
    """Input, cached and output tokens in either spelling."""
    return [
        count(either(usage, "input_tokens", "inputTokens")),
        count(either(usage, "cached_input_tokens", "cachedInputTokens")),
        count(either(usage, "output_tokens", "outputTokens")),
    ]


_COUNTERS = frozenset(
    {"input_tokens", "inputTokens", "cached_input_tokens", "cachedInputTokens", "output_tokens", "outputTokens"}
)


def usage_of(usage: dict[str, Any]) -> dict[str, Any]:
    """Token counts in either spelling: input includes what was cached, output includes reasoning."""
    prompt, cached, completion = sums(usage)
    extra = {key: value for key, value in usage.items() if key not in _COUNTERS and key != "type"}
    return tokens(prompt, completion, cached, extra=extra)


# ---------------------------------------------------------------- failures


class Retry(NamedTuple):
    attempt: int | None
    attempts: int | None
    delay_ms: float | None


def retry_of(message: str) -> Retry | None:
    """What a retry notice says; None if the message is none.

    `Reconnecting... 1/5 (cause)` (0.50: `Re-connecting...`), up to 0.44 `stream error: cause; retrying 1/5 in 203ms…`.
    """
    for head in ("Reconnecting... ", "Re-connecting... "):
        if message.startswith(head):
            return Retry(*_fraction(message[len(head) :]), None)
    if message.startswith("stream error: ") and "; retrying " in message:
        told, _, rest = message[message.rindex("; retrying ") + len("; retrying ") :].partition(" in ")
        return Retry(*_fraction(told), _delay(rest))
    return None


def _fraction(text: str) -> tuple[int | None, int | None]:
    """The two numbers of ``1/5 ...``."""
    first, _, rest = text.partition("/")
    second = rest.partition(" ")[0]
    return (int(first), int(second)) if _is_number(first) and _is_number(second) else (None, None)


def _delay(text: str) -> float | None:
    """Milliseconds of ``203ms…`` or ``1.455s…``."""
    text = text.rstrip("…")
    unit = 1 if text.endswith("ms") else 1000
    whole, _, rest = text.removesuffix("ms").removesuffix("s").partition(".")
    if not _is_number(whole) or (rest and not _is_number(rest)):
        return None
    return float(f"{whole}.{rest or 0}") * unit


def _is_number(text: str) -> bool:
    return 0 < len(text) < 10 and text.isascii() and text.isdigit()


#: what stands in messages that name a cap, anywhere: some are bodies of the API, others follow "stream disconnected
#: before completion: " or "Error running remote compact task: "; the apostrophe is a typographic one in new versions
_LIMITS = (
    "You've hit your usage limit",
    "Quota exceeded.",
    "Codex ran out of room in the model's context window",
    "Your workspace is out of credits",
    "You hit your spend cap",
    "Incomplete response returned, reason: max_output_tokens",
    "context_length_exceeded",
    "exceeds the context window",
)
_LIMIT_CODES = frozenset({"usagelimitexceeded", "contextwindowexceeded", "sessionbudgetexceeded"})


def outcome_of(message: str | None, info: Any = None) -> str:
    """How a turn with this error ended: a cap that is named is a limit, anything else a failure."""
    if isinstance(info, dict) and info:
        info = next(iter(info))
    if isinstance(info, str) and info.replace("_", "").lower() in _LIMIT_CODES:
        return "limit"
    plain = (message or "").replace("\u2019", "'")
    return "limit" if any(part in plain for part in _LIMITS) else "failed"


#: reasons of an aborted turn; all others were somebody's will
ABORTS = {"budget_limited": "limit"}


def tell_retry(out: Emitter, message: str, retry: Retry | None, stamp: Stamp) -> None:
    """A retry notice: a state, and an error that is none of the run."""
    out.state(
        "retry",
        stamp,
        phase="start",
        attempt=None if retry is None else retry.attempt,
        maxAttempts=None if retry is None else retry.attempts,
        delayMs=None if retry is None else retry.delay_ms,
        message=message,
    )
    out.error(message, stamp, fatal=False, notice=True)


# ---------------------------------------------------------------- small things


def either(item: dict[str, Any], one: str, other: str) -> Any:
    """The value of a field in the one spelling or the other."""
    value = item.get(one)
    return item.get(other) if value is None else value


def pick(item: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: item[key] for key in keys if key in item}


def text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def kept(value: Any) -> str | None:
    """A text to remember: clean, so that only the record that said it is lossy."""
    return ev.clean(value) if isinstance(value, str) else None


def strings(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
