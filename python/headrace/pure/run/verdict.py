"""How a run ended, and the records that prove it.

The stream has the first word: its terminal record, then its last turn, then open turns and calls. Exit code and stderr
fill in what it left open and never overrule what it said.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ..event import Event

if TYPE_CHECKING:
    from . import Reducer


class Exit(NamedTuple):
    """What the caller knows of the process: exit code as ``subprocess`` gives it (or 128+n), and its stderr."""

    code: int | None = None
    stderr: bytes = b""

    @property
    def stderr_text(self) -> str:
        return self.stderr.decode("utf-8", "replace").strip()

    @property
    def signal(self) -> int | None:
        """The signal that ended the process."""
        if self.code is None:
            return None
        if self.code < 0:
            return -self.code
        return self.code - 128 if self.code in (128 + 1, 128 + 2, 128 + 9, 128 + 13, 128 + 15) else None


class Ending(NamedTuple):
    """An outcome with the harness's word for it and the reason in ours."""

    outcome: str
    reason: str | None
    why: str


Judge = Callable[["Reducer", Exit], "Ending | None"]

_SIGNALS = {1: "SIGHUP", 2: "SIGINT", 9: "SIGKILL", 13: "SIGPIPE", 15: "SIGTERM"}
_CANCELLING = (2, 15)

# caps that harnesses name on stderr when the stream just stops
_LIMIT = re.compile(
    r"max(imum)?[ _-]?(number of )?(session[ _-]?)?(turns?|steps?|tool[ _-]?calls?|budget|output tokens)"
    r"|(turn|step|budget|quota|usage|context|tool call)s?[ _-](limit|cap)\b|limit (of \S+ )?(reached|exceeded)"
    r"|exceeded (the )?(maximum|limit|quota)|recursion limit|loop\.max_steps_exceeded",
    re.I | re.A,
)
_TIMEOUT = re.compile(r"wall[ _-]?(clock|time)|timed out after|run exceeded timeout|\btimeout exceeded", re.I | re.A)


class Progress:
    """What the stream said so far of how it ends."""

    def __init__(self) -> None:
        self.turn_open = False
        self.ended: Ending | None = None  # the last terminal record
        self.turn: Ending | None = None  # how the last turn ended
        self.where: tuple[int, int] = (0, 0)  # line and offset of the record that decided last
        self.last: tuple[int, int] = (0, 0)  # of the last record that gave an event
        self.open_calls: dict[int, str] = {}  # number: id, main thread and others
        self.last_word = ""  # "answer", "call" or "result": what came last on the main thread, in the last turn

    def answered(self, event: Event) -> None:
        self._seen(event)
        self.last_word = "answer"

    def called(self, event: Event) -> None:
        self._seen(event)
        if event.update["status"] in ("pending", "in_progress"):
            self.open_calls[event.call] = event.update["toolCallId"]
        if event.stamp.parent is None:
            self.last_word = "call"

    def updated(self, event: Event) -> None:
        self._seen(event)
        if event.facts["done"]:
            self.open_calls.pop(event.call, None)
            if event.stamp.parent is None:
                self.last_word = "result"

    def state(self, event: Event) -> None:
        self._seen(event)
        update = event.update
        state, phase = update["state"], update.get("phase")
        if state == "turn" and phase == "start":
            self.turn_open, self.ended, self.turn, self.last_word = True, None, None, ""
        elif state == "turn":
            self.turn_open = False
            self.turn = None
            if "outcome" in update:
                self.turn = Ending(update["outcome"], update.get("reason"), "the last turn ended here")
                self.where = (event.line, event.offset)
        elif state == "end":
            self.turn_open = False
            self.ended = Ending(update["outcome"], update.get("reason"), "terminal record")
            self.where = (event.line, event.offset)

    def word(self) -> str | None:
        """What the stream said last of how it ends: "end" after a terminal record, "turn" after a turn that ended with
        an outcome; None when it has said nothing, or when another turn was opened since."""
        return "end" if self.ended is not None else "turn" if self.turn is not None else None

    def _seen(self, event: Event) -> None:
        self.last = (event.line, event.offset)

    # ------------------------------------------------------------ the decision

    def decide(self, run: Reducer, report: dict[str, Any], judge: Judge | None, exit: Exit) -> dict[str, Any]:
        """The verdict as a dict: outcome, reason, evidence."""
        ending, where = self.ended or self.turn, self.where
        if ending is None:
            ending, where = self._unsaid(run, report, judge, exit), self.last
        line, offset = where if where[0] else (None, None)  # nothing on the stream: the evidence is from outside
        evidence = [{"line": line, "offset": offset, "why": ending.why}]
        return {"outcome": ending.outcome, "reason": ending.reason, "evidence": evidence}

    def _unsaid(self, run: Reducer, report: dict[str, Any], judge: Judge | None, exit: Exit) -> Ending:
        """The stream has not said how it ended."""
        signal = exit.signal
        if signal in _CANCELLING:
            return Ending("cancelled", _SIGNALS[signal], "no terminal record, and the process ended by a signal")
        if signal is not None:
            name = _SIGNALS.get(signal, f"signal {signal}")
            return Ending("incomplete", name, "no terminal record, and the process was killed")
        if exit.code and _TIMEOUT.search(exit.stderr_text):
            return Ending("timeout", "stderr", "no terminal record, and stderr names a time limit")
        if exit.code and _LIMIT.search(exit.stderr_text):
            return Ending("limit", "stderr", "no terminal record, and stderr names a limit")
        told = judge(run, exit) if judge is not None else None
        if told is not None:
            return told
        if exit.code and not report["records"] and not report["salvaged"]:
            return Ending("failed", f"exit code {exit.code}", "no record at all, and the exit code tells of a failure")
        if self.turn_open:
            return Ending("incomplete", None, "the stream ended in an open turn")
        if self.open_calls:
            return Ending("incomplete", None, "the stream ended with an open tool call")
        return Ending("incomplete", None, "the stream ended without a terminal record")
