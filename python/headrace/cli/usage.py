"""``headrace usage``: what many files say was spent."""

from __future__ import annotations

import sys
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from .._usage import gather
from ..errors import SourceError
from ..result import Usage
from .app import FAILED, complain
from .output import write_document
from .safe import one_line
from .view import console

__all__ = ["command"]

_KEYS = ("day", "model", "harness", "project", "session", "dialect", "path")
_HEADS = ("calls", "prompt", "completion", "cached", "cost", "estimated")


@click.command(
    short_help="What many files say was spent, each model call once.",
    epilog="""\b
Examples:
  headrace usage ~/.claude/projects ~/.codex/sessions
  headrace usage --by day --by model logs/
  headrace usage --estimate --json logs/ | jq .estimate

\b
Exit codes: 0 done, 2 wrong usage, a file or folder that can't be read (the others are still counted), or --estimate
without the price library, 130 Ctrl-C, 141 who read the output has closed the pipe.""",
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path())
@click.option(
    "--by",
    "keys",
    multiple=True,
    type=click.Choice(_KEYS),
    metavar="KEY",
    help=f"Group by this: {', '.join(_KEYS)}. May be given again. Without it: harness and model.",
)
@click.option(
    "--estimate", is_flag=True, help="Also what the tokens cost at list prices; needs the extra prices, no network."
)
@click.option("--json", "as_json", is_flag=True, help="All entries, counted and dropped, as one JSON object.")
@click.pass_context
def command(ctx: click.Context, paths: tuple[str, ...], keys: tuple[str, ...], estimate: bool, as_json: bool) -> None:
    """Adds up the usage in the files and folders PATH, each model call once, however many files tell it."""
    unread = 0

    def complain_of(error: SourceError) -> None:
        nonlocal unread
        unread += 1
        complain(error)

    try:
        usage = gather(list(paths), estimate, complain_of)
    except ImportError as error:
        complain(error)
        ctx.exit(FAILED)
    if usage.files or not unread:
        if as_json:
            write_document(usage.to_dict())
        else:
            _show(usage, keys or ("harness", "model"), console(sys.stdout))
    ctx.exit(FAILED if unread else 0)


def _show(usage: Usage, keys: tuple[str, ...], out: Console) -> None:
    heads = _HEADS if usage.estimate is not None else _HEADS[:-1]
    groups = usage.by(*keys)
    names = [group if isinstance(group, tuple) else (group,) for group in groups]
    rows = [
        [*(one_line(part or "-", 60) for part in name), *_row(row)]
        for name, row in zip(names, groups.values(), strict=True)
    ]
    rows.append(["total", *[""] * (len(keys) - 1), *_row(usage.total)])
    table = [[*keys, *heads], *rows]
    widths = [max(len(row[at]) for row in table) for at in range(len(table[0]))]
    for number, row in enumerate(table):
        cells = [
            cell.ljust(width) if at < len(keys) else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        style = "dim" if number == 0 else "bold" if number == len(table) - 1 else ""
        out.print(Text("  ".join(cells).rstrip(), style), soft_wrap=True)
    _notes(usage, out)


def _row(row: dict[str, Any]) -> list[str]:
    counts = [row["calls"], row["prompt_tokens"], row["completion_tokens"], row["cached_tokens"]]
    prices = [row["cost_usd"]] + ([row["estimated_usd"]] if "estimated_usd" in row else [])
    return ["-" if count is None else f"{count:,}" for count in counts] + [
        "-" if price is None else f"${price:,.4f}" for price in prices
    ]


def _notes(usage: Usage, out: Console) -> None:
    """What the table does not say: what was left out, and what the estimates are."""
    whys: dict[str, int] = {}
    for entry in usage.dropped:
        whys[entry["why"]] = whys.get(entry["why"], 0) + 1
    for why, count in whys.items():
        out.print(Text(f"{count:,} not counted: {why}", "dim"), soft_wrap=True)
    if usage.estimate is None:
        return
    out.print(Text(f"estimated: list prices of {usage.estimate.prices}", "dim"), soft_wrap=True)
    for model, row in usage.estimate.unpriced.items():
        name = "usage that names no model" if model is None else one_line(model, 60)
        tokens = (row["prompt_tokens"] or 0) + (row["completion_tokens"] or 0)
        out.print(Text(f"no price is known: {name} ({tokens:,} tokens)", "yellow"), soft_wrap=True)
