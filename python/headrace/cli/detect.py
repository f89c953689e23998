"""``headrace detect``: which dialect a file is, and what decided it."""

from __future__ import annotations

import sys

import click
from rich.text import Text

from .. import api
from ..errors import HeadraceError
from .app import FAILED, NOT_COMPLETED, complain
from .output import write_document
from .safe import one_line
from .source import opened, title
from .view import console

__all__ = ["command"]


@click.command(
    short_help="The dialect of files, and what decided it.",
    epilog="""\b
Examples:
  headrace detect *.jsonl
  headrace detect --json run.jsonl | jq -r .dialect

\b
Exit codes: 0 every file has a dialect, 1 a file has none that headrace knows, 2 wrong usage or a source that can't be
read.""",
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(allow_dash=True))
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON object a line: file, dialect, version, confidence, why."
)
@click.pass_context
def command(ctx: click.Context, files: tuple[str, ...], as_json: bool) -> None:
    """Tells the dialect of each FILE by its first records, never by its name."""
    out = console(sys.stdout)
    code = 0
    for name in files:
        try:
            with opened(name, progress=False) as source:
                found = api.detect(source)
        except HeadraceError as error:
            complain(error)
            code = FAILED
            continue
        if found.dialect is None:
            code = max(code, NOT_COMPLETED)
        if as_json:
            write_document({"file": name, **found._asdict()})
            continue
        version = f", {one_line(found.version)}" if found.version else ""
        line = Text.assemble(f"{one_line(title(name))}: ", (found.dialect or "no dialect found", "bold"), version)
        if found.dialect:
            line.append(f" ({found.confidence:.0%} sure)")
        out.print(line, soft_wrap=True)
        for why in found.why:
            out.print(Text(f"    {one_line(why)}", "dim"), soft_wrap=True)
    ctx.exit(code)
