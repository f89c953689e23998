"""``headrace run``: how a run ended, and what it did."""

from __future__ import annotations

import sys
from typing import IO, Any

import click

from .. import api
from ..errors import HeadraceError
from .app import FAILED, NOT_COMPLETED, complain, reading_options
from .output import write_document
from .source import opened, title
from .summary import show
from .view import console

__all__ = ["command"]


@click.command(
    short_help="How a run ended and why, and what it did.",
    epilog="""\b
Examples:
  headrace run run.jsonl
  headrace run --exit-code 1 --stderr run.err run.jsonl
  headrace run --transcript rollout.jsonl run.jsonl
  headrace run --json *.jsonl.gz | jq -r .verdict.outcome
  codex exec --json "..." | headrace run -

\b
Exit codes: 0 every run completed, 1 a run did not complete, 2 wrong usage or a source that can't be read (the other
files are still shown), 130 Ctrl-C, 141 who read the output has closed the pipe.""",
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(allow_dash=True))
@click.option("--json", "as_json", is_flag=True, help="The whole run as JSON, one line a file.")
@click.option("--full", is_flag=True, help="Cut no text and leave out no tool call.")
@click.option("--exit-code", type=int, metavar="N", help="Exit code of the harness, if you know it.")
@click.option("--stderr", type=click.File("rb"), metavar="FILE", help="What the harness printed on stderr.")
@click.option(
    "--transcript",
    "transcripts",
    multiple=True,
    metavar="FILE",
    help="The session file of the same run; what the stream does not show is taken from there. May be given again.",
)
@reading_options
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    as_json: bool,
    full: bool,
    exit_code: int | None,
    stderr: IO[bytes] | None,
    transcripts: tuple[str, ...],
    dialect: str | None,
    strict: bool,
) -> None:
    """Shows how the run in each FILE ended and why, its answer, tool calls, usage and errors.

    Exit code and stderr of the harness only decide what the stream itself has left open. With --json a number that JSON
    can't hold (NaN, Infinity) is null.
    """
    if transcripts and len(files) > 1:
        raise click.UsageError("--transcript goes with one FILE")
    options: dict[str, Any] = {
        "exit_code": exit_code,
        "stderr": None if stderr is None else stderr.read(),
        "transcript": list(transcripts) or None,
        "dialect": dialect,
        "strict": strict,
    }
    out = console(sys.stdout)
    code = 0
    for name in files:
        try:
            with opened(name) as source:
                run = api.reduce(source, **options)
        except HeadraceError as error:
            complain(error)
            code = FAILED
            continue
        if run.verdict.outcome != "completed":
            code = max(code, NOT_COMPLETED)
        if as_json:
            write_document(run.to_dict())
        else:
            show(run, title(name), out, full=full)
    ctx.exit(code)
