"""Shapes of Anthropic's messages that Claude Code's stream and its transcripts share: blocks, results, plans, usage."""

from __future__ import annotations

from typing import Any

from .. import event as ev
from .. import tool
from ..emit import Emitter, count, price, tokens
from ..event import Stamp

SYNTHETIC = "<synthetic>"
"""The model that the harness names for what it says itself."""

CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})

TEXTS = {"text": ev.MESSAGE, "thinking": ev.THOUGHT}
"""The chunks that blocks of text become."""

#: how the texts begin by which the harness tells the model that a turn was stopped, and how the turn ended: by a
#: person, or with its process (the Agent SDK of 2.1.332 has the list)
_INTERRUPTS = (
    ("[Request interrupted by user", "cancelled"),
    ("[Request interrupted: the session ended", "incomplete"),
    ("[This turn ended before it finished.]", "incomplete"),
)
#: how the harness begins what it writes in the user's name
_WRAPPERS = (
    "<local-command-",
    "<command-name>",
    "<command-message>",
    "<bash-input>",
    "<bash-stdout>",
    "<bash-stderr>",
    "<task-notification>",  # 2.1.39, without another mark
    "<ide_opened_file>",  # 2.1.79, what an editor adds to the prompt
    "<ide_selection>",
)
#: caps, as error codes and terminal reasons name them
_LIMITS = frozenset(
    {
        "max_turns",
        "budget_exhausted",
        "prompt_too_long",
        "blocking_limit",
        "usage_limit_reached",
        "max_output_tokens",
    }
)
#: the same in the words of versions without such codes
_LIMIT_WORDS = (
    "Prompt is too long",
    "API Error: Claude's response exceeded the ",
    "API Error: The model has reached its context window limit",
    # a plan that is used up: 1.0
    "Claude AI usage limit reached",
    "5-hour limit reached",
    "Limit reached ",
    "Opus weekly limit reached",
    "Session limit reached",
    "Spending cap reached",
    "Usage limit reached",
    "Weekly limit reached",
    # 2.0 and 2.1
    "You've hit your ",
    "You've reached your ",
    "You're out of extra usage",
    "You're out of usage credits",
    "Your org is out of usage",
    "Your group's usage limit is ",
)
#: counters of a usage object, and what `modelUsage` calls them
_COUNTERS = (
    ("input_tokens", "inputTokens"),
    ("cache_creation_input_tokens", "cacheCreationInputTokens"),
    ("cache_read_input_tokens", "cacheReadInputTokens"),
    ("output_tokens", "outputTokens"),
)


#: what a block of a record told: a text, by the kind and key of its block, or a call, by its id
Part = tuple[str, int | str]

# ---------------------------------------------------------------- blocks


def blocks_of(content: Any) -> list[dict[str, Any]]:
    """The blocks of a message; a string is one text block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def joined_text(content: Any) -> str:
    """The texts of a message, joined by LF."""
    texts = (text_of(block) for block in blocks_of(content))
    return "\n".join(text for text in texts if text is not None)


def text_of(block: dict[str, Any]) -> str | None:
    """The text of a text block."""
    text = block.get("text")
    return text if block.get("type") == "text" and isinstance(text, str) else None


def interrupt_of(block: dict[str, Any]) -> str | None:
    """How the turn ended, if this is a text by which the harness tells the model that it was stopped."""
    text = text_of(block) or ""
    return next((outcome for beginning, outcome in _INTERRUPTS if text.startswith(beginning)), None)


def is_wrapped(block: dict[str, Any]) -> bool:
    """True for a local command and its output, which the harness wraps in tags of its own."""
    text = text_of(block)
    return text is not None and text.startswith(_WRAPPERS)


def is_limit(codes: tuple[Any, ...], words: str) -> bool:
    """True if an error names a cap, by one of its codes or in the harness's own words."""
    return any(isinstance(code, str) and code in _LIMITS for code in codes) or words.startswith(_LIMIT_WORDS)


def extra_of(value: dict[str, Any], key: str) -> dict[str, Any] | None:
    """A fact of a line that goes into an event's ``extra``."""
    return {key: value[key]} if isinstance(value.get(key), str) else None


def image_of(block: dict[str, Any]) -> dict[str, Any] | None:
    """An image block in the shape of the events."""
    source = block.get("source")
    if block.get("type") != "image" or not isinstance(source, dict):
        return None
    mime = source.get("media_type")
    mime = mime if isinstance(mime, str) else ""
    if isinstance(source.get("data"), str):
        return ev.image_block(source["data"], mime)
    return ev.image_block("", mime, source["url"]) if isinstance(source.get("url"), str) else None


def user_block(out: Emitter, block: dict[str, Any], stamp: Stamp) -> bool:
    """What a person typed; False if there is nothing to show."""
    text, image = text_of(block), image_of(block)
    if text:
        out.whole(ev.USER, text, stamp)
    elif image is not None:
        out.image(ev.USER, image, stamp)
    return bool(text) or image is not None


def other_block(out: Emitter, block: dict[str, Any], stamp: Stamp) -> None:
    """A block of an assistant message that is neither text nor thought nor call."""
    kind, image = block.get("type"), image_of(block)
    if image is not None:
        out.image(ev.MESSAGE, image, stamp)
    elif isinstance(kind, str) and kind.endswith("_tool_result"):
        server_result(out, block, stamp)


def take_back(out: Emitter, part: Part, stamp: Stamp) -> None:
    """The part is void: its text goes, its call has failed if it has no result."""
    kind, key = part
    if kind != ev.TOOL_CALL:
        out.drop(kind, key, stamp)
    elif out.is_open(str(key)):
        out.update(str(key), stamp, status="failed")


# ---------------------------------------------------------------- tool results


def content_of(content: Any) -> list[dict[str, Any]]:
    """The content of a tool result: texts and images; references and other parts are left out."""
    shown = []
    for block in blocks_of(content):
        text, image = text_of(block), image_of(block)
        if text is not None:
            shown.append(ev.wrapped(ev.text_block(text)))
        elif image is not None:
            shown.append(ev.wrapped(image))
    return shown


def has_failed(block: dict[str, Any], raw: Any) -> bool:
    """True if a tool_result says so, or its structured twin that the call was cut short."""
    return block.get("is_error") is True or (isinstance(raw, dict) and raw.get("interrupted") is True)


def tool_result(out: Emitter, call_id: str, block: dict[str, Any], raw: Any, stamp: Stamp) -> None:
    """A tool_result block; ``raw`` is its structured twin (None: not printed)."""
    failed = has_failed(block, raw)
    # a call that stepped aside for what a person said goes on, and its result is told in another turn (2.1.332)
    detached = isinstance(raw, dict) and raw.get("detachedToolCall") is True
    diffs, places = patch_of(raw)
    out.update(
        call_id,
        stamp,
        status="failed" if failed else "in_progress" if detached else "completed",
        content=content_of(block.get("content")) + diffs,
        locations=places,
        duration_ms=_duration(raw),
        raw_output=... if raw is None else raw,
    )


def server_result(out: Emitter, block: dict[str, Any], stamp: Stamp) -> None:
    """The result of a tool that ran at the provider: it stands in the assistant's message."""
    call_id, content = block.get("tool_use_id"), block.get("content")
    if not isinstance(call_id, str):
        return
    facts = content if isinstance(content, dict) else {}
    error, code = facts.get("error_code"), count(facts.get("return_code"))
    shown = content_of(content)
    if isinstance(error, str):
        shown = ev.text_content(error)
    out.update(
        call_id,
        stamp,
        status="failed" if has_failed(block, None) or error is not None or code else "completed",
        content=shown,
        exit_code=code,
        raw_output=... if content is None else content,
    )


def patch_of(raw: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Diffs and places of an edit, hunk by hunk, as its structured result prints them."""
    diffs: list[dict[str, Any]] = []
    places: list[dict[str, Any]] = []
    path = raw.get("filePath") if isinstance(raw, dict) else None
    hunks = raw.get("structuredPatch") if isinstance(raw, dict) else None
    if not isinstance(path, str) or not isinstance(hunks, list):
        return diffs, places
    for hunk in hunks:
        lines = hunk.get("lines") if isinstance(hunk, dict) else None
        if not isinstance(lines, list):
            continue
        lines = [line for line in lines if isinstance(line, str)]
        old = [line[1:] for line in lines if line.startswith((" ", "-"))]
        new = [line[1:] for line in lines if line.startswith((" ", "+"))]
        diffs.append(ev.diff(path, "\n".join(old), "\n".join(new)))
        start = count(hunk.get("newStart"))
        if start:
            places.append({"path": path, "line": start})
    return diffs, places


def _duration(raw: Any) -> float | None:
    """How long a call took, where its structured result says it."""
    if not isinstance(raw, dict):
        return None
    whole = price(raw.get("totalDurationMs"))
    return price(raw.get("durationMs")) if whole is None else whole


# ---------------------------------------------------------------- plans


class Plan:
    """The plan that todo tools keep: whole lists (TodoWrite), or one task at a time (TaskCreate, TaskUpdate)."""

    def __init__(self) -> None:
        self.tasks: dict[str, dict[str, str | None]] = {}  # id: content and status
        self.calls: dict[str, dict[str, str | None]] = {}  # the open task calls: name, task and subject

    def call(self, block: dict[str, Any]) -> list[dict[str, str]] | None:
        """Takes a tool call; gives the plan if the call itself tells it."""
        name, arguments = block.get("name"), block.get("input")
        arguments = arguments if isinstance(arguments, dict) else {}
        if name == "TodoWrite":
            return tool.plan_of(arguments.get("todos"))
        if name in ("TaskCreate", "TaskUpdate", "TaskList") and isinstance(block.get("id"), str):
            task, subject = arguments.get("taskId"), kept(arguments.get("subject"))
            task = task if isinstance(task, str) else None
            self.calls[block["id"]] = {"name": name, "task": task, "subject": subject}
        return None

    def result(self, call_id: str, failed: bool, raw: Any) -> list[dict[str, str]] | None:
        """Takes a result; gives the plan if it changed."""
        call = self.calls.pop(call_id, None)
        if call is None or failed or not isinstance(raw, dict):
            return None
        if call["name"] == "TaskList":
            listed = raw.get("tasks")
            self.tasks = {}
            for task in listed if isinstance(listed, list) else []:
                self._add(task)
        elif call["name"] == "TaskCreate":
            self._add(raw.get("task"))
        else:
            self._update(call, raw.get("statusChange"))
        entries = (tool.plan_entry(task["content"], task["status"]) for task in self.tasks.values())
        return [entry for entry in entries if entry]

    def _add(self, task: Any) -> None:
        if isinstance(task, dict) and isinstance(task.get("id"), str):
            self.tasks[task["id"]] = {"content": kept(task.get("subject")), "status": kept(task.get("status"))}

    def _update(self, call: dict[str, str | None], change: Any) -> None:
        task_id = call["task"]
        if task_id is None or task_id not in self.tasks:
            return
        task = self.tasks[task_id]
        task["content"] = task["content"] if call["subject"] is None else call["subject"]
        status = change.get("to") if isinstance(change, dict) else None
        if status == "deleted":
            del self.tasks[task_id]
        elif status is not None:
            task["status"] = kept(status)


def kept(value: Any) -> str | None:
    """A text that is shown with later records, so that it must be clean by itself."""
    return ev.clean(value) if isinstance(value, str) else None


# ---------------------------------------------------------------- usage


def usage_counts(usage: Any) -> dict[str, int]:
    """The counters that a usage object prints, by the wire's names."""
    return _counts(usage, 0)


def model_usage(models: Any) -> dict[str, dict[str, Any]]:
    """The counters of each model of a `modelUsage` object, and its costUSD."""
    if not isinstance(models, dict):
        return {}
    return {name: _counts(model, 1) | _cost(model) for name, model in models.items()}


def _cost(model: Any) -> dict[str, Any]:
    cost = price(model.get("costUSD")) if isinstance(model, dict) else None
    return {} if cost is None else {"costUSD": cost}


def add_models(models: dict[str, dict[str, Any]], news: dict[str, dict[str, Any]]) -> None:
    """Adds the counters of each model to what is known of it."""
    for name, counts in news.items():
        known = models.setdefault(name, {})
        for counter, number in counts.items():
            known[counter] = known.get(counter, 0) + number


def summed(models: dict[str, dict[str, Any]]) -> dict[str, int]:
    """The counters of all models together."""
    sums: dict[str, int] = {}
    for counts in models.values():
        for name, number in counts.items():
            if name != "costUSD":
                sums[name] = sums.get(name, 0) + number
    return sums


def usage_of_models(models: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The harness's own total of each model as token usage."""
    return {ev.clean(name): usage_of(counts, counts.get("costUSD")) for name, counts in models.items()}


def _counts(usage: Any, spelling: int) -> dict[str, int]:
    counts = {}
    for names in _COUNTERS:
        number = count(usage.get(names[spelling])) if isinstance(usage, dict) else None
        if number is not None:
            counts[names[0]] = number
    return counts


def usage_of(counts: dict[str, int], cost: float | None = None, tier: str | None = None) -> dict[str, Any]:
    """Counters as token usage: what was read from or written to the cache is part of the prompt."""
    written, read = counts.get("cache_creation_input_tokens"), counts.get("cache_read_input_tokens")
    prompt = [number for number in (counts.get("input_tokens"), written, read) if number is not None]
    extra = {"cache_creation_input_tokens": written, "service_tier": tier}
    return tokens(
        sum(prompt) if prompt else None,
        counts.get("output_tokens"),
        read,
        cost,
        {name: value for name, value in extra.items() if value is not None},
    )
