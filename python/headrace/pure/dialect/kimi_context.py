"""kimi-cli's ``context.jsonl``, the history that it sends to the model (recorded: 1.51.0), and the stream of kimi-cli
up to 0.53, which was this file read along (messages longer than 80 columns are cut to lines that are no records).

Messages as on the live stream, with checkpoints and the size of the context between them. No usage, no clock, no end:
a file that ends with an answer is complete. After compaction the file begins anew with the summary.
"""

from __future__ import annotations

from typing import Any

from ..emit import Emitter
from ..event import Stamp
from ..record import Record
from ..run import Ending, Exit, Reducer
from . import SURE, UNKNOWN, Outcome, Sign, kimi

NAME = "kimi-context"

IGNORED = {
    "_system_prompt": "system prompt",
    "_checkpoint": "checkpoint",
    "_usage": "size of the context",
    "system": "system message",
}
#: a key that each of the file's own roles has
MARKS = {"_system_prompt": "content", "_checkpoint": "id", "_usage": "token_count"}
SUMMARY = "<system>Previous context has been compacted."


def sign(record: dict[str, Any]) -> Sign | None:
    role = record.get("role")
    if isinstance(role, str) and MARKS.get(role) in record and "type" not in record:
        return Sign(SURE, f"a {role} record")
    return Sign(0, "a chat message") if kimi.is_message(record) else None


class Mapper:
    def __init__(self, out: Emitter) -> None:
        self.out = out
        self.plain = False  # the stream ends in a text that is no known failure

    def map(self, record: Record) -> Outcome:
        value = record.value
        role = value.get("role")
        if role == "assistant":
            kimi.assistant(self.out, value, Stamp())
            return None
        if role == "tool":
            return kimi.tool_message(self.out, value, Stamp(), flagged=True)
        if role == "user":
            return self._user(value)
        return IGNORED.get(role, UNKNOWN) if isinstance(role, str) else UNKNOWN

    def tail(self, lines: list[str]) -> None:
        self.plain = kimi.ending(self.out, lines)

    def close(self) -> None:
        pass

    def judge(self, run: Reducer, exit: Exit) -> Ending | None:
        return kimi.judge(run, exit, self.plain)

    def _user(self, value: dict[str, Any]) -> Outcome:
        texts = kimi.texts_of(value.get("content"))
        if texts and texts[0].startswith(SUMMARY):
            summary = "\n".join(texts[1:])
            self.out.state("compaction", Stamp(), phase="end", success=True, summary=summary or None)
            return None
        return kimi.user_message(self.out, value, Stamp())
