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

from ._backend import backend
from .api import Events, Parser, Records, Source, detect, diff, drift, events, records, reduce, runs, usage
from .errors import HeadraceError, MalformedLine, MismatchedTranscript, SourceError, SpillError, UnknownDialect
from .result import Detection, Difference, Report, Run, Usage, Verdict
from .router import Router

__version__ = "0.1.0"

__all__ = [
    "Detection",
    "Difference",
    "Events",
    "HeadraceError",
    "MalformedLine",
    "MismatchedTranscript",
    "Parser",
    "Records",
    "Report",
    "Router",
    "Run",
    "Source",
    "SourceError",
    "SpillError",
    "UnknownDialect",
    "Usage",
    "Verdict",
    "backend",
    "detect",
    "diff",
    "drift",
    "events",
    "records",
    "reduce",
    "runs",
    "usage",
]
