"""Events as they come, for people: what ``exec`` and ``follow`` show."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ..dump import dumps
from .output import write
from .safe import one_line, safe

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from .._follow import Follow
    from ..process import Process
    from ..types import OutputEvent

__all__ = ["Live"]

_WIDTH = 100


class Live:
    """Prints events as they come: text as it streams, everything else on lines of its own."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._kind = ""  # of the text that is being printed

    def show_all(self, source: Process | Follow, interrupt: Callable[[], object], *, as_json: bool) -> bool:
        """Shows the events of a source to its end, or prints them as JSON lines.

        The first Ctrl-C calls ``interrupt``, and what still comes is shown; the second ends it all. Gives whether there
        was one.
        """
        interrupted = False

        def interrupted_by(number: int, frame: object) -> None:
            nonlocal interrupted
            interrupted = True
            signal.signal(signal.SIGINT, signal.default_int_handler)
            interrupt()

        before = signal.signal(signal.SIGINT, interrupted_by)
        try:
            with source:
                for event in source:
                    if as_json:
                        write(dumps(event) + b"\n")
                    else:
                        self.show(event)
        finally:
            signal.signal(signal.SIGINT, before)
        return interrupted

    def show(self, event: OutputEvent) -> None:
        """Prints what one event says."""
        update: Any = event["update"]
        kind = update["sessionUpdate"]
        if kind in ("agent_message_chunk", "agent_thought_chunk"):
            if update["content"]["type"] == "text":
                self._text(kind, safe(update["content"]["text"]))
        elif kind == "tool_call":
            self._line("> ", f"{update.get('toolName') or update['kind']}: {update['title']}", "cyan")
        elif kind == "tool_call_update" and update.get("status") == "failed":
            self._line("! ", f"{update['toolCallId']} failed", "red")
        elif kind == "error":
            self._line("! ", update["message"], "red")

    def note(self, text: str) -> None:
        """Something that no event tells of."""
        self._line("- ", text, "yellow")

    def end(self) -> None:
        """What follows begins on a line of its own."""
        if self._kind:
            self._out.print()
            self._kind = ""

    def _text(self, kind: str, text: str) -> None:
        if kind != self._kind:
            self.end()
            self._kind = kind
        style = "dim" if kind == "agent_thought_chunk" else ""
        self._out.print(Text(text, style), end="", soft_wrap=True)
        self._out.file.flush()

    def _line(self, mark: str, text: str, style: str) -> None:
        self.end()
        self._out.print(Text(mark + one_line(text, _WIDTH), style), soft_wrap=True)
        self._out.file.flush()
