"""The dialects: one module for each, all of the same shape.

A dialect module has

``NAME``
    its name in `DESIGN`'s words;
``sign(record)``
    how sure a record is of this dialect: a ``Sign`` for anything that has the shape of one of its top-level records,
    None for all else;
``Mapper``
    built with an Emitter; ``map(record)`` is called for each record and tells the emitter what it says. It returns
    None when the record was understood, the name of an ignore rule when it says nothing for events, and ``UNKNOWN``
    for a record type that it does not know. ``close()`` is called at the end of the stream, and ``judge(run, exit)``
    when a verdict is asked for and the stream has not said how it ended (None: nothing special is known).

Where a harness prints plain text instead of records when it fails, its Mapper may have ``tail(lines)``, called before
``close`` with the lines after the last record that are no JSON, and its module ``text_sign(line)``, which says why such
a line is the harness's (or None): it decides on streams without any record.

To add one: write its module, its Rust twin, and a line in each table.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple, Protocol

from ..emit import Emitter
from ..record import Record
from ..run import Ending, Exit, Reducer

SURE = 100  # a Sign of this weight decides alone


class Sign(NamedTuple):
    """That a record belongs to a dialect: how sure (SURE decides alone, weights of several records add up) and why.

    ``document``: it is a whole session, which the harness writes as one pretty-printed object over many lines.
    A weight of 0 only says that the record has the shape of one; a weight below 0 speaks against the dialect.
    """

    weight: int
    why: str
    version: str | None = None
    document: bool = False


class Unknown:
    """What ``map`` returns for a record type that the dialect does not know."""


UNKNOWN = Unknown()
Outcome = None | str | Unknown


class Mapper(Protocol):
    """The mapper of one dialect: records in, calls on the emitter out."""

    def __init__(self, out: Emitter) -> None: ...

    def map(self, record: Record) -> Outcome: ...

    def close(self) -> None: ...

    def judge(self, run: Reducer, exit: Exit) -> Ending | None: ...


from . import (  # noqa: E402  (they import SURE, Sign and UNKNOWN from here)
    acp,
    claude,
    claude_transcript,
    codex,
    codex_appserver,
    codex_rollout,
    copilot,
    copilot_session,
    droid,
    droid_session,
    evolve,
    evosci,
    gemini,
    gemini_chat,
    kimi,
    kimi_context,
    kimi_wire,
    minicode,
    opencode,
    opencode_export,
    pi,
    pi_session,
    qwen,
    qwen_chat,
)

#: every dialect; the order is that of preference when a stream fits two equally well
DIALECTS: dict[str, ModuleType] = {
    module.NAME: module
    for module in (
        codex,
        codex_appserver,
        codex_rollout,
        pi,
        pi_session,
        evosci,
        minicode,
        opencode,
        opencode_export,
        droid,
        droid_session,
        copilot,
        copilot_session,
        acp,
        gemini,
        gemini_chat,
        qwen,
        qwen_chat,
        kimi,
        kimi_wire,
        kimi_context,
        evolve,
        claude,
        claude_transcript,
    )
}


def is_record(value: Any, dialect: str | None = None) -> bool:
    """True if the object has the shape of a top-level record of the dialect (of any, if none is known yet)."""
    modules = [DIALECTS[dialect]] if dialect is not None else DIALECTS.values()
    return any(module.sign(value) is not None for module in modules)


def is_document(value: dict[str, Any], dialect: str | None = None) -> bool:
    """True if the object, printed over many lines and alone in its source, is one record of the dialect (of any)."""
    modules = [DIALECTS[dialect]] if dialect is not None else DIALECTS.values()
    signs = (module.sign(value) for module in modules)
    return any(sign is not None and sign.document for sign in signs)
