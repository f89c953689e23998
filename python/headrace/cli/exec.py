"""``headrace exec``: runs a harness, shows its events live, and ends with the verdict."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable

import click

from ..errors import SourceError
from ..harness import LINGER
from ..process import Process
from .app import INTERRUPTED, reading_options
from .live import Live
from .output import write_document
from .safe import safe
from .summary import show
from .view import console

__all__ = ["command"]

CODES = {
    "completed": 0,
    "failed": 1,
    "incomplete": 1,
    "limit": 3,
    "denied": 4,
    "timeout": 124,
    "cancelled": INTERRUPTED,
}
"""Exit codes by outcome. 124 is what timeout(1) gives."""


@click.command(
    short_help="Runs a harness, shows its events live, ends with the verdict.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="""\b
Examples:
  headrace exec -- claude -p "..." --output-format stream-json --verbose
  headrace exec --json --timeout 600 -- codex exec --json "..." > events.jsonl
  echo "..." | headrace exec --stdin -- codex exec --json -

\b
Exit codes: 0 completed, 1 failed or incomplete, 2 wrong usage or a program that can't be started,
3 a limit was reached, 4 denied, 124 a time limit of this command, 130 cancelled or Ctrl-C.""",
)
@click.argument("argv", nargs=-1, required=True, metavar="-- CMD...", type=click.UNPROCESSED)
@click.option("--json", "as_json", is_flag=True, help="The events as JSON lines on stdout, the run on the last line.")
@click.option("--state", is_flag=True, help="With --json: the state events too.")
@click.option("--stdin", "pass_stdin", is_flag=True, help="Give the harness this command's standard input.")
@click.option("--timeout", type=float, metavar="S", help="Stop it after so many seconds.")
@click.option("--idle-timeout", type=float, metavar="S", help="Stop it after so many seconds without output.")
@click.option(
    "--linger",
    type=float,
    metavar="S",
    default=LINGER,
    show_default=True,
    help="Seconds it may stay after its last word.",
)
@reading_options
@click.pass_context
def command(
    ctx: click.Context,
    argv: tuple[str, ...],
    as_json: bool,
    state: bool,
    pass_stdin: bool,
    timeout: float | None,
    idle_timeout: float | None,
    linger: float,
    dialect: str | None,
    strict: bool,
) -> None:
    """Runs CMD, which must print JSON lines, and shows what the agent says and does while it runs.

    Its stderr is passed through. The first Ctrl-C interrupts CMD as its own terminal would; the second stops it.
    """
    if pass_stdin and sys.stdin is None:
        raise SourceError("standard input is closed")
    process = Process(
        list(argv),
        stdin=sys.stdin.fileno() if pass_stdin else None,
        timeout=timeout,
        idle_timeout=idle_timeout,
        linger=linger,
        state=state,
        dialect=dialect,
        strict=strict,
        on_stderr=_passer_on(),
    )
    out = console(sys.stdout)
    live = Live(out)
    live.show_all(process, process.interrupt, as_json=as_json)
    if as_json:
        write_document({"run": process.run.to_dict(), "exit_code": process.returncode})
    else:
        live.end()
        show(process.run, argv[0], out)
    ctx.exit(CODES[process.run.verdict.outcome])


def _passer_on() -> Callable[[bytes], None]:
    """Passes stderr on: to a terminal in the safe form, to files and pipes as it is."""
    if not sys.stderr.isatty():
        return _pass_on
    decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a piece may end within a character

    def show_safely(piece: bytes) -> None:
        sys.stderr.write(safe(decoder.decode(piece)))
        sys.stderr.flush()

    return show_safely


def _pass_on(piece: bytes) -> None:
    left = memoryview(piece)
    while left:
        left = left[sys.stderr.buffer.write(left) or 0 :]
    sys.stderr.buffer.flush()
