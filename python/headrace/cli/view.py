"""How everything is shown: a title, and below it rows with a label each.

What is given here must be safe already (see ``safe``); rich markup is never read.
"""

from __future__ import annotations

import os
from typing import TextIO

from rich.console import Console
from rich.containers import Lines
from rich.text import Text

__all__ = ["Card", "Line", "console"]

Line = str | Text
_LABEL = 10  # width of the labels


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Called while the error is handled. Rich ends the command here, with an exit code of its own."""
        raise


def console(file: TextIO) -> Console:
    """A console that colours nothing but a terminal, and nothing at all with NO_COLOR, and reads no markup."""
    if hasattr(file, "reconfigure"):
        file.reconfigure(errors="backslashreplace")  # a terminal without UTF-8
    terminal = file.isatty()
    return _Console(
        file=file,
        force_terminal=terminal,
        force_jupyter=False,
        color_system="auto" if terminal and not os.environ.get("NO_COLOR") else None,
        markup=False,
        emoji=False,
        highlight=False,
    )


class Card:
    """Rows of ``label  value``; a value may have several lines."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._rows: list[tuple[str, list[Line]]] = []

    def add(self, label: str, *lines: Line) -> None:
        """A row; without lines there is none."""
        if lines:
            self._rows.append((label, list(lines)))

    def show(self, out: Console) -> None:
        """Prints the rows; on a terminal long lines are broken inside of the value's column."""
        out.print(Text(self._title, "bold"), soft_wrap=True)
        for label, lines in self._rows:
            head = Text.assemble((f"{label:{_LABEL}}  ", "dim"))
            for line in lines:
                text = Text(line) if isinstance(line, str) else line
                parts = text.split("\n", allow_blank=True)
                if out.is_terminal:
                    parts = Lines(piece for part in parts for piece in part.wrap(out, out.width - len(head)) or [part])
                for part in parts:
                    row = head + part
                    row.rstrip()
                    out.print(row, soft_wrap=True)
                    head = Text(" " * len(head))
