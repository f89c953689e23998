"""What ACP's messages are made of: methods, and content blocks, locations, models and errors as events have them."""

from __future__ import annotations

import re
from base64 import b64decode
from typing import Any

from .. import event as ev
from ..emit import Emitter, count

KINDS = frozenset({"read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"})
#: the agent asks its client
CLIENT_METHODS = frozenset(
    {
        "fs/read_text_file",
        "fs/write_text_file",
        "terminal/create",
        "terminal/output",
        "terminal/release",
        "terminal/wait_for_exit",
        "terminal/kill",
        "mcp/connect",
        "mcp/message",
        "mcp/disconnect",
        "elicitation/complete",
        "$/cancel_request",
    }
)
#: the client asks the agent
AGENT_METHODS = frozenset(
    {
        "initialize",
        "authenticate",
        "logout",
        "auth/login",
        "auth/logout",
        "session/new",
        "session/load",
        "session/resume",
        "session/fork",
        "session/list",
        "session/delete",
        "session/close",
        "session/prompt",
        "session/cancel",
        "session/set_mode",
        "session/set_model",
        "session/set_config_option",
    }
)
#: what agents add of their own, and parts of the protocol that say nothing of a run
EXTENSIONS = ("_", "craft/", "providers/", "nes/", "document/")
STATUSES = {
    "pending": "pending",
    "in_progress": "in_progress",
    "completed": "completed",
    "failed": "failed",
    "cancelled": "failed",
}


def text_of(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def id_of(out: Emitter, value: Any) -> str | None:
    """A text that names something: as clean as events show it, so that it names the same thing everywhere."""
    return out.clean(value) if isinstance(value, str) else None


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def joined(blocks: Any) -> str | None:
    """The text blocks of a list, joined by one line feed; None if there are none."""
    texts = [
        block["text"] for block in sequence(blocks) if isinstance(block, dict) and isinstance(block.get("text"), str)
    ]
    return "\n".join(texts) if texts else None


def block_of(content: dict[str, Any]) -> dict[str, Any] | None:
    """A content block in the shape of events: text and images; None for audio, resources and links."""
    if content.get("type") == "text" and isinstance(content.get("text"), str):
        return ev.text_block(content["text"])
    data, mime = content.get("data"), content.get("mimeType")
    if content.get("type") == "image" and isinstance(data, str) and isinstance(mime, str):
        return ev.image_block(data, mime, text_of(content.get("uri")))
    return None


def content_of(items: Any) -> tuple[list[dict[str, Any]], bool]:
    """Tool content in the shape of events, and whether something in it has none (terminals, links, patches)."""
    blocks, odd = [], False
    for item in map(mapping, sequence(items)):
        block = None
        if item.get("type") == "content":
            inner = block_of(mapping(item.get("content")))
            block = None if inner is None else ev.wrapped(inner)
        elif item.get("type") == "diff" and isinstance(item.get("path"), str) and isinstance(item.get("newText"), str):
            block = ev.diff(item["path"], text_of(item.get("oldText")), item["newText"])
        if block is None:
            odd = True
        else:
            blocks.append(block)
    return blocks, odd


_BASE64 = re.compile("[A-Za-z0-9+/]*={0,2}")


def from_base64(data: Any) -> bytes:
    """The bytes of a string in base64; none if it is not."""
    if not isinstance(data, str) or len(data) % 4 or not _BASE64.fullmatch(data):
        return b""
    return b64decode(data)


def shown_text(block: dict[str, Any]) -> str | None:
    """The text of a block of tool content; None for diffs and images."""
    return text_of(mapping(block.get("content")).get("text"))


def locations_of(items: Any) -> list[dict[str, Any]]:
    """Paths, with a line only if it can be one: lines count from 1, and some agents print 0 for none."""
    places = []
    for item in map(mapping, sequence(items)):
        path, line = item.get("path"), count(item.get("line"))
        if isinstance(path, str) and path:
            places.append({"path": path} if line is None or line < 1 else {"path": path, "line": line})
    return places


def kind_of(update: dict[str, Any]) -> str | None:
    kind = update.get("kind")
    if not isinstance(kind, str):
        return None
    return kind if kind in KINDS else "other"


def model_of(result: dict[str, Any]) -> str | None:
    """The model that a session runs on, from `models` or from its options."""
    model = text_of(mapping(result.get("models")).get("currentModelId"))
    for option in map(mapping, sequence(result.get("configOptions"))):
        if model is None and "model" in (option.get("id"), option.get("configId"), option.get("category")):
            model = text_of(option.get("currentValue"))
    return model


def info_of(initialized: dict[str, Any]) -> dict[str, Any]:
    return mapping(initialized.get("agentInfo")) or mapping(initialized.get("info"))


def version_of(initialized: dict[str, Any]) -> str | None:
    """Name and version of the agent, from its answer to initialize."""
    info = info_of(initialized)
    parts = [part for part in (info.get("name"), info.get("version")) if isinstance(part, str) and part]
    return " ".join(parts) or None


def error_text(error: dict[str, Any]) -> str:
    """The message of a JSON-RPC error, with the cause that some agents put into its data."""
    message, data = text_of(error.get("message")) or "", error.get("data")
    fields = mapping(data)
    cause = text_of(data) or text_of(fields.get("message")) or text_of(fields.get("details"))
    if not cause or cause in message:
        return message
    return f"{message}: {cause}" if message else cause


def request_id(value: Any) -> str:
    """A request id as a key: the number 1 and the string "1" are two ids."""
    if isinstance(value, str):
        return f'"{ev.clean(value)}"'
    number = count(value)
    return "null" if number is None else str(number)
