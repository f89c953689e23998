"""Kimi's stream-json: ``kimi --print --output-format stream-json`` of kimi-cli (recorded: 1.51.0) and ``kimi -p`` of
kimi-code (recorded: 2.1.0).

A chat transcript, one message a line, no deltas, no usage, no clock. kimi-code prints a version line first and a resume
hint last, kimi-cli neither; only kimi-cli says whether a tool failed: its result begins with ``<system>ERROR``. Ids
come again in later messages. kimi-cli tells of a failure in plain text, cut to lines of 80 columns: ``tail`` reads it.
"""

from __future__ import annotations

from typing import Any

from .. import event as ev
from .. import json, tool
from ..emit import NAMELESS, Emitter, count, price, scoped
from ..event import Stamp
from ..record import Record
from ..run import Ending, Exit, Reducer
from ..wire import as_text
from . import SURE, UNKNOWN, Outcome, Sign

NAME = "kimi"

#: how a kimi-cli failure begins, and what it was; the last one is what kimi-code prints on stderr
ENDINGS = (
    ("Interrupted by user", "cancelled"),
    ("Max number of steps reached: ", "limit"),
    ("Max steps reached: ", "limit"),
    ("Error code: ", "failed"),
    ("LLM provider error: ", "failed"),
    ("The API returned ", "failed"),
    ("Unknown error: ", "failed"),
    ("LLM not set", "failed"),
    ("LLM model '", "failed"),
    ("error: failed to run prompt: loop.max_steps_exceeded", "limit"),
    ("error: failed to run prompt: ", "failed"),
)
#: stderr's last line, which may be on the same pipe
RESUME_HINT = "To resume this session: "
TODO_TOOLS = ("SetTodoList", "TodoList")
#: how a failed result begins; the last two up to 0.70, which says nothing else of a failed command
FAILED = ("<system>ERROR", "<system>Command failed with exit code: ", "<system>Command killed by timeout (")

_NOTICE = frozenset({"id", "category", "type", "source_kind", "source_id", "title"})
_FOREIGN = frozenset(
    {"type", "id", "model", "session_id", "sessionId", "sessionID", "uuid", "timestamp", "usage", "refusal"}
)


def sign(record: dict[str, Any]) -> Sign | None:
    role, kind = record.get("role"), record.get("type")
    if role == "meta" and isinstance(kind, str):
        version = as_text(record.get("version")) if kind == "system.version" else None
        return Sign(SURE, f"a meta record {kind}", version)
    if kind == "goal.summary" and "goalId" in record:
        return Sign(SURE, "a goal summary")
    if record.keys() >= _NOTICE:
        return Sign(SURE, "a notice with source_kind and source_id")
    if record.keys() == {"content", "file_path"}:
        return Sign(40, "a plan with its file")
    if not is_message(record):
        return None
    if role == "assistant":
        return Sign(SURE, "an assistant message without type, id and model")
    if role == "tool":
        flagged = _lead(record.get("content")).startswith("<system>")
        return Sign(SURE if flagged else 60, "a tool message" + (" in <system>" if flagged else ""))
    return Sign(-SURE, f"a {role} message, which kimi never prints")  # a chat transcript of something else


def text_sign(line: str) -> str | None:
    for head, _ in ENDINGS:
        if line.startswith(head):
            return f'the text "{head.strip()}", as kimi prints it where it fails'
    return None


def is_message(record: dict[str, Any]) -> bool:
    """True for a record with the shape of a chat message."""
    role = record.get("role")
    if not _FOREIGN.isdisjoint(record):
        return False
    if role == "assistant":
        return "content" in record or "tool_calls" in record
    if role == "tool":
        return "content" in record and "tool_call_id" in record
    return role in ("user", "system", "developer") and "content" in record


def is_of_code(record: dict[str, Any]) -> bool:
    """True for a record that only kimi-code prints: kimi-cli's messages always have their content."""
    role = record.get("role")
    if role == "assistant":
        return "content" not in record
    return role == "meta" or (not isinstance(role, str) and record.get("type") == "goal.summary")


def is_hook_result(message: dict[str, Any]) -> bool:
    """True for what kimi-code prints of a hook in the assistant's name: "<event> hook[ blocked]", then its text."""
    head, gap, _ = (as_text(message.get("content")) or "").partition("\n\n")
    head = head.removesuffix(" blocked")
    event = head.removesuffix(" hook")
    return gap != "" and event != head and event.isascii() and event.isalpha()


class Mapper:
    def __init__(self, out: Emitter) -> None:
        self.out = out
        self.code = False  # it is kimi-code
        self.goal: tuple[str, str | None] | None = None  # outcome and reason of a /goal prompt
        self.plain = False  # the stream ends in a text that is no known failure
        self.begun = False  # a run printed more than the version, its first record

    def map(self, record: Record) -> Outcome:
        value = record.value
        role, kind = value.get("role"), value.get("type")
        self.code = self.code or is_of_code(value)
        self.begun = self.begun or kind != "system.version"
        if role == "assistant":
            if self.code and is_hook_result(value):
                return "hook result"
            assistant(self.out, value, Stamp())
            return None
        if role == "tool":
            return tool_message(self.out, value, Stamp(), flagged=not self.code)
        if role == "user":
            return user_message(self.out, value, Stamp())
        if role == "meta":
            return self._meta(kind, value)
        if kind == "goal.summary":
            return self._goal(value)
        if "source_kind" in value and "category" in value:
            return "notice"
        if role is None and kind is None and "file_path" in value:
            return "plan display"
        return "system message" if role in ("system", "developer") else UNKNOWN

    def tail(self, lines: list[str]) -> None:
        self.plain = ending(self.out, lines, known_only=self.code)

    def close(self) -> None:
        pass

    def judge(self, run: Reducer, exit: Exit) -> Ending | None:
        if self.code and exit.code is None:
            return Ending("incomplete", None, "the stream ended without session.resume_hint")
        return judge(run, exit, self.plain)

    # ------------------------------------------------------------ kimi-code's own records

    def _meta(self, kind: Any, value: dict[str, Any]) -> Outcome:
        if kind == "system.version":
            if self.begun:  # another run in the same source
                self.begun, self.goal = False, None
                self.out.state("turn", Stamp(), phase="start")
            self.out.session_state(Stamp(), version=as_text(value.get("version")))
            return None
        if kind == "turn.step.retrying":
            self.out.state(
                "retry",
                Stamp(extra=extra_of(value, ("error_name", "status_code"))),
                phase="start",
                attempt=count(value.get("failed_attempt")),
                maxAttempts=count(value.get("max_attempts")),
                delayMs=price(value.get("delay_ms")),
                message=as_text(value.get("error_message")),
            )
            return None
        if kind == "session.resume_hint":
            self.out.session_state(Stamp(), sessionId=as_text(value.get("session_id")))
            outcome, reason = self.goal or ("completed", "session.resume_hint")
            self.out.state("end", Stamp(), outcome=outcome, reason=reason)
            return None
        return UNKNOWN

    def _goal(self, value: dict[str, Any]) -> Outcome:
        """The end of a ``/goal`` prompt. A goal that is blocked or paused waits for a person."""
        status, reason = as_text(value.get("status")), as_text(value.get("reason"))
        outcome = "completed" if status == "complete" else "incomplete"
        if status == "blocked" and reason is not None:
            if "token budget " in reason or "turn budget " in reason:
                outcome = "limit"
            elif "wall-clock budget " in reason:
                outcome = "timeout"
        reason = reason or status
        self.goal = (outcome, None if reason is None else self.out.clean(reason))
        self.out.state("end", Stamp(), outcome=outcome, reason=reason)
        return None


# ---------------------------------------------------------------- messages, shared with kimi-context and kimi-wire


def assistant(out: Emitter, message: dict[str, Any], stamp: Stamp) -> None:
    """A whole assistant message: its texts and thoughts, then its calls."""
    out.commit(stamp.parent)
    out.next_turn()
    say(out, message.get("content"), stamp)
    for block in list_of(message.get("tool_calls")):
        if isinstance(block, dict):
            function = block.get("function")
            call_id = as_text(block.get("id")) or out.nameless()
            call(out, call_id, function if isinstance(function, dict) else {}, stamp, twin=True)


def say(out: Emitter, content: Any, stamp: Stamp, kind: str = ev.MESSAGE) -> None:
    """The parts of a message; a string is one text part."""
    if isinstance(content, str):
        out.whole(kind, content, stamp)
    for part in list_of(content):
        if not isinstance(part, dict):
            continue
        if part.get("type") == "text":
            out.whole(kind, as_text(part.get("text")) or "", stamp)
        elif part.get("type") == "think":
            out.whole(ev.THOUGHT, as_text(part.get("think")) or "", stamp)
        else:
            image = image_of(part)
            if image is not None:
                out.image(kind, image, stamp)


def user_message(out: Emitter, message: dict[str, Any], stamp: Stamp) -> Outcome:
    """A prompt. What the harness puts into its own context as a user's words is left out."""
    if is_injected(message.get("content")):
        return "injected message"
    out.commit(None)
    say(out, message.get("content"), stamp, ev.USER)
    return None


def is_injected(content: Any) -> bool:
    return _lead(content).startswith(("<system-reminder>", "<system>", "<notification "))


def call(out: Emitter, call_id: Any, function: dict[str, Any], stamp: Stamp, *, twin: bool = False) -> None:
    """A tool call in OpenAI's form. Arguments that are no JSON object stay as printed in ``extra``."""
    if not isinstance(call_id, str):
        return
    call_id = out.clean(call_id)
    name, text = as_text(function.get("name")), function.get("arguments")
    arguments = text if isinstance(text, dict) else arguments_of(out, text)
    if arguments is None and isinstance(text, str) and text:
        stamp = Stamp(
            timestamp=stamp.timestamp,
            message_id=stamp.message_id,
            model=stamp.model,
            parent=stamp.parent,
            extra={"arguments": out.clean(text)},
        )
    out.call(call_id, name, arguments, stamp, key=scoped(call_id, stamp), twin=twin)
    plan(out, name, arguments, stamp)


def plan(out: Emitter, name: str | None, arguments: Any, stamp: Stamp) -> None:
    """The plan of a todo tool's call; without todos the call only reads it."""
    if name in TODO_TOOLS and isinstance(arguments, dict):
        entries = tool.plan_of(arguments.get("todos"), "title")
        if entries is not None:
            out.plan(entries, stamp)


def arguments_of(out: Emitter, text: Any) -> dict[str, Any] | None:
    """The object in an argument string; None if it is broken, holds NaN, or is something else."""
    if not isinstance(text, str):
        return None
    try:
        value = json.loads(out.clean(text).encode())
    except json.JsonError:
        return None
    return out.clean_value(value) if isinstance(value, dict) else None


def tool_message(out: Emitter, message: dict[str, Any], stamp: Stamp, *, flagged: bool) -> Outcome:
    """A tool's result: one without an id is that of the first open call that has none. ``flagged``: this program marks
    failures."""
    call_id, content = as_text(message.get("tool_call_id")), message.get("content")
    if not call_id:
        call_id = next((key for key in out.open_calls(stamp.parent) if key.startswith(NAMELESS)), None)
    if call_id is None:
        return "result without an id"
    status = None
    if flagged:
        status = "failed" if _lead(content).startswith(FAILED) else "completed"
    shown = out.update(call_id, stamp, status=status, done=True, content=content_of(content))
    return None if shown else "second result of a call"


def content_of(content: Any) -> list[dict[str, Any]]:
    """Tool content from a string, a part or parts."""
    if isinstance(content, str):
        return ev.text_content(content) if content else []
    blocks = []
    for part in [content] if isinstance(content, dict) else list_of(content):
        if not isinstance(part, dict):
            continue
        text, image = part.get("text"), image_of(part)
        if part.get("type") == "text" and isinstance(text, str):
            blocks.append(ev.wrapped(ev.text_block(text)))
        elif image is not None:
            blocks.append(ev.wrapped(image))
    return blocks


def texts_of(content: Any) -> list[str]:
    """The text parts of a message; a string is one."""
    if isinstance(content, str):
        return [content]
    texts = (part.get("text") for part in list_of(content) if isinstance(part, dict) and part.get("type") == "text")
    return [text for text in texts if isinstance(text, str)]


def image_of(part: dict[str, Any]) -> dict[str, Any] | None:
    """The image block of an ``image_url`` part: a data URL holds the image, any other names it."""
    holder = part.get("image_url") if "image_url" in part else part.get("imageUrl")
    url = holder.get("url") if isinstance(holder, dict) else None
    if part.get("type") != "image_url" or not isinstance(url, str):
        return None
    if url.startswith("data:"):
        mime, comma, data = url[len("data:") :].partition(";base64,")
        return ev.image_block(data, mime) if comma else None
    return ev.image_block("", "", url)


# ---------------------------------------------------------------- the end


def ending(out: Emitter, lines: list[str], *, known_only: bool = False) -> bool:
    """The text after the last record: why it failed, if it is not the rest of a cut record. True: it is, but not in
    words that tell how the run ended."""
    lines = [line for line in lines if not line.startswith(RESUME_HINT)]
    if not lines or lines[0].startswith("{"):
        return False
    known = ((line, outcome) for line in lines for head, outcome in ENDINGS if line.startswith(head))
    reason, outcome = next(known, (None, None))
    if outcome is None and known_only:
        return False
    out.error("\n".join(lines), Stamp(), fatal=True)
    if outcome is not None:
        out.state("end", Stamp(), outcome=outcome, reason=reason)
    return outcome is None


def judge(run: Reducer, exit: Exit, plain: bool) -> Ending | None:
    """No record says how it ended: ask the exit code, then what came last."""
    if exit.code:
        return exit_failed(exit)
    answered = run.progress.last_word == "answer"
    if plain and not (answered and exit.code == 0):
        return Ending("failed", None, "the stream ended in a text that is no record")
    if answered:
        return Ending("completed", None, "the last message asks for no tool")
    return None


def exit_failed(exit: Exit) -> Ending:
    return Ending("failed", f"exit code {exit.code}", "no terminal record, and the exit code tells of a failure")


# ---------------------------------------------------------------- values


def extra_of(value: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any] | None:
    return {key: value[key] for key in keys if value.get(key) is not None} or None


def _lead(content: Any) -> str:
    """The first text of a message."""
    texts = texts_of(content)
    return texts[0] if texts else ""


def list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
