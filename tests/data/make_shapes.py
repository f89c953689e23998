"""Writes ``python/headrace/shapes/<dialect>.txt``, the record types and fields that the bundled recordings have.

Run it after recordings were added: ``python tests/data/make_shapes.py``. A second run changes nothing.
"""

from __future__ import annotations

from pathlib import Path

import headrace
from headrace._drift import paths_of, type_of

HERE = Path(__file__).parent
SHAPES = HERE.parent.parent / "python" / "headrace" / "shapes"
NOT_STREAMS = (".expect.json.gz", ".txt.gz", ".meta.json.gz")


def streams() -> list[Path]:
    """Every bundled recording, live and stored."""
    return [path for path in sorted((HERE / "recordings").rglob("*.gz")) if not path.name.endswith(NOT_STREAMS)]


def shapes() -> dict[str, set[str]]:
    """The lines of each dialect's file."""
    lines: dict[str, set[str]] = {}
    for path in streams():
        dialect = headrace.reduce(path).dialect
        if dialect is None:
            continue
        known = lines.setdefault(dialect, set())
        for record in headrace.records(path):
            value = record.to_dict()
            kind = type_of(record.type, value)
            known.update(f"{kind}: {part}" for part in paths_of(value))
            known.add(f"{kind}: ")
    return {dialect: _longest(known) for dialect, known in lines.items()}


def _longest(lines: set[str]) -> set[str]:
    """Without lines that another one goes on from."""
    starts = {line[:end] for line in lines for end, letter in enumerate(line) if letter in ".[({"}
    starts |= {line[: line.index(": ") + 2] for line in lines if not line.endswith(": ")}
    return lines - starts


def main() -> None:
    SHAPES.mkdir(exist_ok=True)
    for old in SHAPES.glob("*.txt"):
        old.unlink()
    for dialect, lines in shapes().items():
        (SHAPES / f"{dialect}.txt").write_text("".join(f"{line}\n" for line in sorted(lines)), "utf-8")


if __name__ == "__main__":
    main()
