"""How everything is shown: a title, and below it rows with a label each.

What is given here must be safe already (see ``safe``); rich markup is never read.
"""

from __future__ import annotations

import os
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["Card", "Line", "console"]

Line = str | Text
_LABEL = 10  # width of the labels


def console(file: TextIO) -> Console:
    """A console that colours nothing but a terminal, and nothing at all with NO_COLOR, and reads no markup."""
    if hasattr(file, "reconfigure"):
        file.reconfigure(errors="backslashreplace")  # a terminal without UTF-8
    terminal = file.isatty()
    return Console(
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
        out.print(Text(self._title, "bold"), soft_wrap=True)
        if out.is_terminal:
            # rich breaks long lines inside of the value's column
            grid = Table.grid(padding=(0, 2))
            grid.add_column(width=_LABEL, no_wrap=True)
            grid.add_column(overflow="fold")
            for label, lines in self._rows:
                grid.add_row(Text(label, "dim"), Text("\n").join(_text(line) for line in lines))
            out.print(grid)
        else:
            for label, lines in self._rows:
                for line in lines:
                    for part in _text(line).split("\n", allow_blank=True):
                        row = Text(f"{label:{_LABEL}}  ").append_text(part)
                        row.rstrip()
                        out.print(row, soft_wrap=True)
                        label = ""


def _text(line: Line) -> Text:
    return Text(line) if isinstance(line, str) else line
