"""``headrace events``: the normalised events of a stream, one JSON text a line."""

from __future__ import annotations

import sys

import click

from .. import api
from ..dump import dumps
from .app import reading_options
from .output import write
from .safe import one_line
from .source import opened, title

__all__ = ["command"]

KINDS = (*api.KINDS, "state")
_BLOCK = 1 << 16  # bytes that are collected while more input is ready


class _Lines:
    """Collects lines for stdout and writes many at once."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._size = 0

    def add(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)
        if self._size >= _BLOCK:
            self.flush()

    def flush(self) -> None:
        if self._lines:
            self._lines.append(b"")
            write(b"\n".join(self._lines))
            self._lines.clear()
            self._size = 0


def _kinds(ctx: click.Context, option: click.Parameter, given: tuple[str, ...]) -> set[str] | None:
    kinds = {kind.strip() for part in given for kind in part.split(",")}
    for kind in sorted(kinds - set(KINDS)):
        raise click.BadParameter(f"{kind!r} is no event kind; there are: {', '.join(KINDS)}")
    return kinds or None


@click.command(
    short_help="The normalised events of a stream as JSON lines.",
    epilog="""\b
Examples:
  headrace events run.jsonl
  headrace events --only tool_call,tool_call_update run.jsonl.gz
  claude -p "..." --output-format stream-json --verbose | headrace events - | jq -c .update

\b
Exit codes: 0 read to the end (how the run ended is told by `headrace run`), 2 wrong usage or a source that can't be
read, 130 Ctrl-C, 141 who read the output has closed the pipe.""",
)
@click.argument("file", type=click.Path(allow_dash=True))
@click.option(
    "--only", multiple=True, metavar="KIND[,KIND...]", callback=_kinds, help=f"Only these kinds: {', '.join(KINDS)}."
)
@click.option("--state", is_flag=True, help="The state events too: session, turns, retries, approvals, end, ...")
@click.option("--spans", is_flag=True, help="Each event says line, offset and bytes of its record (extra.span).")
@reading_options
def command(file: str, only: set[str] | None, state: bool, spans: bool, dialect: str | None, strict: bool) -> None:
    """Prints the events of FILE as JSON lines, each as soon as it is there.

    A number that JSON can't hold (NaN, Infinity) is null. In a pipe nothing waits in a buffer while there is nothing
    more to read.
    """
    lines = _Lines()
    with opened(file, waiting=lines.flush, progress=not sys.stdout.isatty()) as source:
        events = api.events(source, only=only, state=state, spans=spans, dialect=dialect, strict=strict)
        try:
            for event in events:
                lines.add(dumps(event))
        finally:
            lines.flush()
    if events.dialect is None and events.report.lines:
        said = f"headrace: {one_line(title(file))}: no dialect found; `headrace check` says what is in it"
        click.echo(said, err=True)
