"""Copies the recordings and cases that the tests need, compressed: ``python tests/data/collect.py SHARED``.

Layout: ``recordings/<folder>/<file>.gz`` and ``cases/<case>/<file>.gz``, truth files included; gzip without a time
stamp, so that a second run changes nothing. What only drives a harness (what went to its stdin) is left out.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

HERE = Path(__file__).parent
LEFT_OUT = (".stdin.jsonl", ".md", ".mcp.json", ".txt.json")


def copy(source: Path, target: Path) -> int:
    data = source.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
        target = target.with_name(target.name.removesuffix(".gz"))
    packed = gzip.compress(data, 9, mtime=0)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.with_name(target.name + ".gz").write_bytes(packed)
    return len(packed)


def main(shared: Path) -> None:
    total = 0
    for kind in ("recordings", "cases"):
        for source in sorted((shared / kind).rglob("*")):
            if source.is_file() and not source.name.endswith(LEFT_OUT) and "__pycache__" not in source.parts:
                total += copy(source, HERE / kind / source.relative_to(shared / kind))
    print(f"{total / 1e6:.1f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
