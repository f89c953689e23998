"""``headrace follow``: a session file is shown while a harness writes it."""

from __future__ import annotations

import sys

import click

from .._follow import Restart, follow
from .app import INTERRUPTED, reading_options
from .live import Live
from .output import write_document
from .summary import show
from .view import console

__all__ = ["command"]

_WHY = {
    "replaced": "another file has taken its place",
    "truncated": "the file was cut",
    "rewritten": "the file was written anew",
}


@click.command(
    short_help="Shows a session file while a harness writes it.",
    epilog="""\b
Examples:
  headrace follow ~/.claude/projects/my-project/1f0e9c5a.jsonl
  headrace follow --json --offset 48210 session.jsonl >> events.jsonl
  headrace follow --idle-timeout 600 session.jsonl

\b
Exit codes: 0 nothing new came for --idle-timeout seconds, 2 wrong usage or a file that can't be read, 130 Ctrl-C,
141 who read the output has closed the pipe.""",
)
@click.argument("path", type=click.Path(dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="The events as JSON lines on stdout, the run on the last line.")
@click.option("--state", is_flag=True, help="With --json: the state events too.")
@click.option("--offset", type=click.IntRange(min=0), default=0, metavar="N", help="Begin at this byte.")
@click.option("--idle-timeout", type=float, metavar="S", help="End after so many seconds without anything new.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.001),
    metavar="S",
    default=0.1,
    show_default=True,
    help="Seconds between two looks at the file where the system does not tell of changes.",
)
@reading_options
@click.pass_context
def command(
    ctx: click.Context,
    path: str,
    as_json: bool,
    state: bool,
    offset: int,
    idle_timeout: float | None,
    interval: float,
    dialect: str | None,
    strict: bool,
) -> None:
    """Shows what the session file at PATH tells, and what is added to it, until Ctrl-C.

    The file need not be there yet. A line is shown when it is whole. When the file is replaced, cut or written anew, it
    is read from its beginning again (with --json, a line {"restart": ...} says so). The last line of --json has the
    "offset" to go on at another day, together with --dialect.
    """
    out = console(sys.stdout)
    live = Live(out)

    def restarted(why: Restart) -> None:
        if as_json:
            write_document({"restart": why})
        else:
            live.note(f"{_WHY[why]}: from its beginning")

    following = follow(
        path,
        offset=offset,
        interval=interval,
        idle_timeout=idle_timeout,
        on_restart=restarted,
        state=state and as_json,
        dialect=dialect,
        strict=strict,
    )
    interrupted = live.show_all(following, following.close, as_json=as_json)
    if as_json:
        write_document({"run": following.run.to_dict(), "offset": following.offset})
    else:
        live.end()
        show(following.run, path, out)
    ctx.exit(INTERRUPTED if interrupted else 0)
