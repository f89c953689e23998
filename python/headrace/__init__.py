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

from ._backend import Intake, Record, backend
from .api import Events, Parser, Records, detect, diff, drift, events, records, reduce, runs, usage
from .errors import (
    HeadraceError,
    MalformedLine,
    MismatchedTranscript,
    SnapshotError,
    SourceError,
    SpillError,
    UnknownDialect,
)
from .result import Report, Run, RunUsage, Usage, Verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._follow import Follow, follow
    from ._sources import Source
    from ._tuples import Detection, Difference, Estimate
    from .aio import AsyncEvents, AsyncProcess, AsyncSource, aevents
    from .process import PIPE, Process
    from .router import Router

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
    "Record",
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
    "Detection": "_tuples",
    "Difference": "_tuples",
    "Estimate": "_tuples",
    "Follow": "_follow",
    "PIPE": "process",
    "Process": "process",
    "Router": "router",
    "Source": "_sources",
    "aevents": "aio",
    "follow": "_follow",
}
"""Imported when they are asked for: asyncio or typing alone takes longer than all the rest."""

if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
