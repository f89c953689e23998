"""What a reader of docs/dialects.md relies on: the tables say what the bundled streams show."""

from __future__ import annotations

import re

from headrace import _backend

from .data.make_dialect_table import BEGIN, END, LIVE, PAGE, STORED, tables


def test_the_tables_are_what_the_recordings_show() -> None:
    page = PAGE.read_text("utf-8")
    made = page[page.index(BEGIN) : page.index(END) + len(END)]
    # a page that came since is linked at the next run
    assert _unlinked(made) == _unlinked(tables()), "run `python -m tests.data.make_dialect_table`"


def _unlinked(text: str) -> str:
    return re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text)


def test_every_dialect_is_in_the_tables() -> None:
    assert sorted([*LIVE, *STORED]) == sorted(_backend.dialects)
