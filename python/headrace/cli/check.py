"""``headrace check``: whether all of a file can be read, and what became of every byte of it."""

from __future__ import annotations

import sys

import click
from rich.text import Text

from .. import api
from ..errors import HeadraceError
from .app import FAILED, NOT_COMPLETED, complain, reading_options
from .output import write_document
from .safe import one_line
from .source import opened, title
from .view import console

__all__ = ["command"]


@click.command(
    short_help="Whether all of a file can be read: the account of every byte.",
    epilog="""\b
Examples:
  headrace check run.jsonl
  headrace check --json *.jsonl.gz | jq -c 'select(.report.malformed > 0) | .file'

\b
Exit codes: 0 every line of every file could be read, 1 a file has malformed lines, or no dialect that headrace knows,
2 wrong usage or a source that can't be read (the other files are still shown), 130 Ctrl-C.""",
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(allow_dash=True))
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line: file, dialect, report.")
@reading_options
@click.pass_context
def command(ctx: click.Context, files: tuple[str, ...], as_json: bool, dialect: str | None, strict: bool) -> None:
    """Tells what became of every byte of each FILE: events, ignored by which rule, of unknown type, malformed, blank.

    Records of unknown types are no fault; they are what a newer harness prints.
    """
    out = console(sys.stdout)
    code = 0
    for name in files:
        try:
            with opened(name) as source:
                run = api.reduce(source, dialect=dialect, strict=strict, max_result_bytes=0)
        except HeadraceError as error:
            complain(error)
            code = FAILED
            continue
        if run.report.malformed or run.dialect is None:
            code = max(code, NOT_COMPLETED)
        if as_json:
            write_document({"file": name, "dialect": run.dialect, "report": run.report.to_dict()})
            continue
        out.print(
            Text.assemble(f"{one_line(title(name))}: ", (run.dialect or "no dialect found", "bold")), soft_wrap=True
        )
        for line in run.report.explain().split("\n"):
            out.print(Text(f"    {line}"), soft_wrap=True)
    ctx.exit(code)
