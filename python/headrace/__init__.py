"""headrace reads what coding agents print: one fast, exact parser for every harness's JSON lines.

>>> import headrace
>>> stream = b'''{"type": "text", "content": "All done."}
... {"type": "usage_stats", "input_tokens": 10, "output_tokens": 3}
... {"type": "done", "content": "All done.", "response": "All done."}
... '''
>>> run = headrace.reduce(stream)
>>> run.dialect, run.verdict.outcome, run.final_text
('evosci', 'completed', 'All done.')
>>> for event in headrace.events(stream, only={"agent_message_chunk"}):
...     print(event["update"]["content"]["text"])
All done.
"""

from typing import TYPE_CHECKING, Any

from ._backend import Intake, backend
from .api import Events, Parser, Records, Source, detect, diff, drift, events, records, reduce, runs, usage
from .errors import (
    HeadraceError,
    MalformedLine,
    MismatchedTranscript,
    SnapshotError,
    SourceError,
    SpillError,
    UnknownDialect,
)
from .result import Detection, Difference, Estimate, Report, Run, RunUsage, Usage, Verdict
from .router import Router

if TYPE_CHECKING:
    from ._follow import Follow, follow
    from .aio import AsyncEvents, AsyncProcess, AsyncSource, aevents
    from .process import PIPE, Process

__version__ = "0.1.0"

__all__ = [
    "PIPE",
    "AsyncEvents",
    "AsyncProcess",
    "AsyncSource",
    "Detection",
    "Difference",
    "Estimate",
    "Events",
    "Follow",
    "HeadraceError",
    "Intake",
    "MalformedLine",
    "MismatchedTranscript",
    "Parser",
    "Process",
    "Records",
    "Report",
    "Router",
    "Run",
    "RunUsage",
    "SnapshotError",
    "Source",
    "SourceError",
    "SpillError",
    "UnknownDialect",
    "Usage",
    "Verdict",
    "aevents",
    "backend",
    "detect",
    "diff",
    "drift",
    "events",
    "follow",
    "records",
    "reduce",
    "runs",
    "usage",
]

_LATER = {
    "AsyncEvents": "aio",
    "AsyncProcess": "aio",
    "AsyncSource": "aio",
    "aevents": "aio",
    "Follow": "_follow",
    "follow": "_follow",
    "PIPE": "process",
    "Process": "process",
}
"""Imported when they are asked for: asyncio alone takes as long as all the rest."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
