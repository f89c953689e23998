"""``headrace exec``: runs a harness, shows its events live, and ends with the verdict."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from ..dump import dumps
from ..harness import LINGER
from ..process import Process
from .app import INTERRUPTED, reading_options
from .output import write, write_document
from .safe import one_line, safe
from .summary import show
from .view import console

if TYPE_CHECKING:
    from rich.console import Console

    from ..types import OutputEvent

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

_WIDTH = 100


class _Live:
    """Prints events as they come: text as it streams, everything else on lines of its own."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._kind = ""  # of the text that is being printed

    def show(self, event: OutputEvent) -> None:
        update: Any = event["update"]
        kind = update["sessionUpdate"]
        if kind in ("agent_message_chunk", "agent_thought_chunk"):
            if update["content"]["type"] == "text":
                self._text(kind, safe(update["content"]["text"]))
        elif kind == "tool_call":
            self._line("> ", f"{update.get('toolName') or update['kind']}: {update['title']}", "cyan")
        elif kind == "tool_call_update" and update.get("status") == "failed":
            self._line("! ", f"{update['toolCallId']} failed", "red")
        elif kind == "error":
            self._line("! ", update["message"], "red")

    def end(self) -> None:
        """What follows begins on a line of its own."""
        if self._kind:
            self._out.print()
            self._kind = ""

    def _text(self, kind: str, text: str) -> None:
        if kind != self._kind:
            self.end()
            self._kind = kind
        style = "dim" if kind == "agent_thought_chunk" else ""
        self._out.print(Text(text, style), end="", soft_wrap=True)
        self._out.file.flush()

    def _line(self, mark: str, text: str, style: str) -> None:
        self.end()
        self._out.print(Text(mark + one_line(text, _WIDTH), style), soft_wrap=True)
        self._out.file.flush()


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
    process = Process(
        list(argv),
        stdin=sys.stdin.fileno() if pass_stdin else None,
        timeout=timeout,
        idle_timeout=idle_timeout,
        linger=linger,
        state=state,
        dialect=dialect,
        strict=strict,
        on_stderr=_pass_on,
    )
    out = console(sys.stdout)
    live = _Live(out)

    def interrupt(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        process.interrupt()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with process:
            for event in process:
                if as_json:
                    write(dumps(event) + b"\n")
                else:
                    live.show(event)
    finally:
        signal.signal(signal.SIGINT, before)
    if as_json:
        write_document({"run": process.run.to_dict(), "exit_code": process.returncode})
    else:
        live.end()
        show(process.run, argv[0], out)
    ctx.exit(CODES[process.run.verdict.outcome])


def _pass_on(piece: bytes) -> None:
    """Terminals get it in the safe form, files and pipes as it is."""
    if sys.stderr.isatty():
        sys.stderr.write(safe(piece.decode("utf-8", "replace")))
        sys.stderr.flush()
    else:
        sys.stderr.buffer.write(piece)
        sys.stderr.buffer.flush()
