"""Gemini CLI's session file: an upsert log in JSON lines (0.61.0); it was one pretty JSON document (0.12.0, 0.33.0).

A message is written again under its id whenever its tokens or calls change: the last one stands, its tokens count
once. `$set.messages` puts a whole history in place of what came before (at the start, at a resume, after a failure or
a compression), `$rewindTo` takes back a message and all after it; calls and tokens of what was taken back stay, for
they happened. Results stand in `toolCalls` and again in user messages. Failed and cancelled attempts leave no record,
and nothing says that a run is over: an answer as the last message is all there is. Sub-agents have files of their own.
"""

from __future__ import annotations

from typing import Any

from .. import event as ev
from ..emit import Emitter, count, tokens
from ..event import Stamp
from ..record import Record
from ..run import Ending, Exit, Reducer
from ..wire import as_text
from . import SURE, UNKNOWN, Outcome, Sign, gemini

NAME = "gemini-chat"

#: `status` of a call: how it ended; any other status is one of a call that goes on
STATUS = {"success": "completed", "error": "failed", "cancelled": "failed"}
#: how user messages begin that the harness wrote
INJECTED = ("<session_context>", "<hook_context>")
NOTES = ("info", "error", "warning")

# What the last message tells of the end of the session.
_PROMPT, _ANSWER, _WORK, _ASIDE = "prompt", "answer", "work", "aside"


def sign(record: dict[str, Any]) -> Sign | None:
    kind = record.get("type")
    if kind is None:
        if "sessionId" in record and "projectHash" in record:
            if isinstance(record.get("messages"), list) and record["messages"]:
                return Sign(SURE, "a session with projectHash and messages", document=True)
            return Sign(SURE, "a header with sessionId and projectHash")
        if isinstance(record.get("$set"), dict) or isinstance(record.get("$rewindTo"), str):
            return Sign(SURE, "a $set or $rewindTo record")
        return None
    if not isinstance(record.get("id"), str) or "timestamp" not in record or "content" not in record:
        return None
    if kind == "gemini":
        return Sign(SURE, "a message of type gemini with id")
    if kind == "user" or kind in NOTES:
        return Sign(60, f"a message of type {kind} with id and content")
    return None


class Mapper:
    def __init__(self, out: Emitter) -> None:
        self.out = out
        self.messages: dict[str, str] = {}  # what each one is, by id, in order
        self.calls: dict[str, str] = {}  # id of a call: id of the message that has it
        self.subagent = False

    def map(self, record: Record) -> Outcome:
        value = record.value
        if isinstance(value.get("$rewindTo"), str):
            self._rewind(value["$rewindTo"])
            return None
        if isinstance(value.get("id"), str):
            return self._message(value, told_before=False)
        if isinstance(value.get("$set"), dict):
            return self._header(value["$set"])
        if "sessionId" in value and "projectHash" in value:
            self.subagent = value.get("kind") == "subagent"
            return self._header(value)
        return UNKNOWN

    def close(self) -> None:
        pass

    def judge(self, run: Reducer, exit: Exit) -> Ending | None:
        last = next((what for what in reversed(self.messages.values()) if what != _ASIDE), None)
        if last == _ANSWER and not exit.code:
            return Ending("completed", None, "the last message of the session is an answer")
        return None

    # ------------------------------------------------------------ the log

    def _header(self, value: dict[str, Any]) -> Outcome:
        """Facts of the session: its header, a patch of it, or a whole old session."""
        directories = value.get("directories")
        self.out.session_state(
            Stamp(timestamp=as_text(value.get("startTime"))),
            sessionId=as_text(value.get("sessionId")),
            cwd=as_text(directories[0]) if isinstance(directories, list) and directories else None,
            title=None if self.subagent else as_text(value.get("summary")),
        )
        messages = value.get("messages")
        if isinstance(messages, list):
            self._replace([m for m in messages if isinstance(m, dict) and isinstance(m.get("id"), str)])
            return None
        return None if value.keys() - {"lastUpdated"} else "time of the last change"

    def _replace(self, messages: list[dict[str, Any]]) -> None:
        """These messages take the place of all so far. Those that both begin with stay."""
        same = 0
        for known, message in zip(self.messages, messages, strict=False):
            if known != ev.clean(message["id"]):
                break
            same += 1
        for message_id in list(self.messages)[same:][::-1]:
            self._take_back(message_id)
        for message in messages:
            self._message(message, told_before=True)

    def _rewind(self, target: str) -> None:
        """The message and all after it are gone; an unknown target clears all."""
        ids, target = list(self.messages), ev.clean(target)
        for message_id in ids[ids.index(target) if target in self.messages else 0 :][::-1]:
            self._take_back(message_id)

    def _take_back(self, message_id: str) -> None:
        del self.messages[message_id]
        for kind in ev.CHUNKS:
            self.out.drop(kind, message_id, Stamp(message_id=message_id))

    # ------------------------------------------------------------ messages

    def _message(self, value: dict[str, Any], *, told_before: bool) -> Outcome:
        """A message, new or again. ``told_before``: as part of a history, whose calls may stand under other ids."""
        kind, message_id = value.get("type"), ev.clean(value["id"])
        stamp = Stamp(
            message_id=value["id"], timestamp=as_text(value.get("timestamp")), model=as_text(value.get("model"))
        )
        new = message_id not in self.messages
        if kind == "user":
            return self._user(value, message_id, stamp, new)
        if kind == "gemini":
            self._gemini(value, message_id, stamp, told_before)
            return None
        if isinstance(kind, str) and kind in NOTES:
            self.messages[message_id] = _ASIDE
            if kind == "info":
                return "note"
            if new:
                text = text_of(parts_of(value.get("content")))
                self.out.error(text, stamp, fatal=False, notice=kind == "warning")
            return None
        return UNKNOWN

    def _user(self, value: dict[str, Any], message_id: str, stamp: Stamp, new: bool) -> Outcome:
        parts = parts_of(value.get("content"))
        text = text_of(parts)
        if text.startswith(INJECTED):
            self.messages[message_id] = _ASIDE
            return "context from the harness"
        if any("functionResponse" in part for part in parts):
            self.messages[message_id] = _WORK
            for part in parts:
                self._response(part.get("functionResponse"), stamp)
            return None
        self.messages[message_id] = _PROMPT
        if new:
            self.out.state("turn", stamp, phase="start")
        shown = parts_of(value.get("displayContent"))
        self.out.final(ev.USER, message_id, text_of(shown) or text, stamp)
        if new:
            for image in images_of(parts):
                self.out.image(ev.USER, image, stamp)
        return None

    def _gemini(self, value: dict[str, Any], message_id: str, stamp: Stamp, told_before: bool) -> None:
        parts, calls = parts_of(value.get("content")), value.get("toolCalls")
        text = text_of(parts)
        asked = [part["functionCall"] for part in parts if isinstance(part.get("functionCall"), dict)]
        told = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
        self.messages[message_id] = _WORK if asked or told or not text else _ANSWER
        self.out.session_state(Stamp(timestamp=stamp.timestamp), model=stamp.model)
        thoughts = _thoughts(value.get("thoughts"))
        if thoughts or "thoughts" in value:
            self.out.final(ev.THOUGHT, message_id, thoughts, stamp)
        self.out.final(ev.MESSAGE, message_id, text, stamp)
        self._tokens(value.get("tokens"), message_id, stamp)
        for call in told:
            self._call(call, message_id, stamp, told_before)
        for call in asked:
            self._announce(call, message_id, stamp, told_before)

    def _tokens(self, value: Any, message_id: str, stamp: Stamp) -> None:
        if isinstance(value, dict):
            extra = {key: value[key] for key in ("thoughts", "tool", "total") if count(value.get(key)) is not None}
            usage = tokens(
                count(value.get("input")), count(value.get("output")), count(value.get("cached")), extra=extra
            )
            self.out.usage("call", usage, stamp, key=message_id)

    # ------------------------------------------------------------ calls

    def _announce(self, call: dict[str, Any], message_id: str, stamp: Stamp, told_before: bool) -> str | None:
        """Tells of a call, once; gives its id."""
        call_id, name = as_text(call.get("id")), as_text(call.get("name"))
        if call_id is None:
            return None
        key = ev.clean(call_id)
        owner = self.calls.get(key)
        if owner is None or not (told_before or owner == message_id):
            self.calls[key] = message_id
            self.out.next_turn()
            self.out.call(call_id, name, call.get("args"), stamp)
            gemini.plan(self.out, name, call.get("args"), stamp)
        return call_id

    def _call(self, call: dict[str, Any], message_id: str, stamp: Stamp, told_before: bool) -> None:
        call_id = self._announce(call, message_id, stamp, told_before)
        if call_id is None:
            return
        word, display = call.get("status"), call.get("resultDisplay")
        status = STATUS.get(word, "in_progress") if isinstance(word, str) else None
        parts = parts_of(call.get("result"))
        content = [block for part in parts for block in result_of(part)]
        if not content and isinstance(display, str):
            content = ev.text_content(display)
        if call.get("name") == "complete_task" and status == "completed":
            self.messages[message_id] = _ANSWER  # how a sub-agent ends
        self.out.update(
            call_id,
            Stamp(message_id=message_id, timestamp=as_text(call.get("timestamp")), model=stamp.model),
            status=status,
            content=content + diff_of(display),
            raw_output=... if display is None else {"resultDisplay": display},
        )

    def _response(self, value: Any, stamp: Stamp) -> None:
        """A result in a user message: mostly again, sometimes the only one."""
        call_id = as_text(value.get("id")) if isinstance(value, dict) else None
        if call_id is not None and self.out.is_open(call_id):
            failed = isinstance(value.get("response"), dict) and "error" in value["response"]
            status = "failed" if failed else "completed"
            self.out.update(call_id, stamp, status=status, content=result_of({"functionResponse": value}))


# ---------------------------------------------------------------- shapes


def parts_of(content: Any) -> list[dict[str, Any]]:
    """Content as parts: it is a string, a part, or a list of both."""
    items = content if isinstance(content, list) else [content]
    parts = [{"text": item} if isinstance(item, str) else item for item in items]
    return [part for part in parts if isinstance(part, dict)]


def text_of(parts: list[dict[str, Any]]) -> str:
    return "".join(p["text"] for p in parts if isinstance(p.get("text"), str) and p.get("thought") is not True)


def _thoughts(value: Any) -> str:
    """The thoughts of a message as one text, subjects set off as the model does it."""
    text = ""
    for thought in value if isinstance(value, list) else []:
        if isinstance(thought, dict):
            subject, description = as_text(thought.get("subject")), as_text(thought.get("description"))
            words = [word for word in (f"**{subject}**" if subject else "", description or "") if word]
            text += (("\n\n" if subject else " ") if text and words else "") + " ".join(words)
    return text


def images_of(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    blocks = []
    for part in parts:
        data = part.get("inlineData")
        if isinstance(data, dict) and isinstance(data.get("data"), str):
            mime = as_text(data.get("mimeType")) or ""
            if mime.startswith("image/"):
                blocks.append(ev.image_block(data["data"], mime))
    return blocks


def result_of(part: dict[str, Any]) -> list[dict[str, Any]]:
    """Tool content from a part of a result: what the model was told, and pictures beside it."""
    answer = part.get("functionResponse")
    blocks = [ev.wrapped(image) for image in images_of([part])]
    if isinstance(answer, dict):
        response = answer.get("response")
        for key in ("output", "error"):
            if isinstance(response, dict) and isinstance(response.get(key), str):
                blocks += ev.text_content(response[key])
        blocks += [ev.wrapped(image) for image in images_of(parts_of(answer.get("parts")))]
    elif isinstance(part.get("text"), str):
        blocks += ev.text_content(part["text"])
    return blocks


def diff_of(display: Any) -> list[dict[str, Any]]:
    """The file before and after an edit, where the display has both texts."""
    if not isinstance(display, dict):
        return []
    path, new, old = display.get("filePath"), display.get("newContent"), display.get("originalContent")
    if not isinstance(path, str) or not isinstance(new, str):
        return []
    return [ev.diff(path, old if isinstance(old, str) and display.get("isNewFile") is not True else None, new)]
