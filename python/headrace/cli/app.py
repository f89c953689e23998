"""The group of verbs, what they share, and how every one of them ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

import click

from .. import __version__, backend
from ..errors import HeadraceError
from .safe import safe

__all__ = ["FAILED", "NOT_COMPLETED", "VERBS", "app", "complain", "reading_options"]

VERBS = ("run", "events", "check", "detect", "usage", "exec", "follow")
"""Each is a module of this package that holds a click command named ``command``."""

NOT_COMPLETED = 1
FAILED = 2
INTERRUPTED = 128 + 2  # as shells tell of SIGINT
CLOSED_PIPE = 128 + 13  # and of SIGPIPE

_Command = TypeVar("_Command", bound=Callable[..., Any])


class _App(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        command: click.Command = import_module(f"{__package__}.{name}").command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the verb; every way to end has its exit code, and none has a traceback but a bug."""
        if sys.stderr is None:  # closed by the caller; the next file that is opened must not take its place
            sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (for good)
        if sys.stdout is None:
            complain("can't write the output: standard output is closed")
            ctx.exit(FAILED)
        try:
            super().invoke(ctx)
            sys.stdout.flush()
        except HeadraceError as error:
            complain(error)
            ctx.exit(FAILED)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            _abandon_stdout()
            ctx.exit(CLOSED_PIPE)
        except OSError as error:
            _abandon_stdout()
            complain(f"can't write the output: {error.strerror}")
            ctx.exit(FAILED)


@click.group(
    cls=_App,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=(
        "\b\nExit codes:\n"
        "  0    done; of `run`: every run completed; of `check`: every line could be read; of `detect`: every file\n"
        "       has a dialect\n"
        "  1    a run did not complete (`run`); a file has malformed lines (`check`), or no dialect that headrace\n"
        "       knows (`check`, `detect`)\n"
        "  2    wrong usage, a source that can't be read, or output that can't be written\n"
        "  130  Ctrl-C\n"
        "  141  who read the output has closed the pipe"
    ),
)
@click.version_option(__version__, message=f"headrace {__version__} ({backend} backend)")
def app() -> None:
    """Reads what coding agents print: streams of JSON lines and session files of any harness.

    FILE is a path (.gz and .zst are found by content), or - for standard input.
    """


def complain(error: object) -> None:
    """Says on stderr what went wrong."""
    click.echo(f"headrace: {safe(str(error))}", err=True)


def reading_options(command: _Command) -> _Command:
    """The options of every verb that reads a dialect."""
    strict = click.option("--strict", is_flag=True, help="Stop at the first malformed line (exit code 2).")
    dialect = click.option("--dialect", metavar="NAME", help="Read it as this dialect; else the content decides.")
    return dialect(strict(command))


def _abandon_stdout() -> None:
    """What is still buffered has nobody to read it: the flush at exit must not complain."""
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
