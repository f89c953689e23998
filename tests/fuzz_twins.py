"""Both backends read streams that are made at random, until somebody stops it or they differ.

    python -m tests.fuzz_twins CORPUS SECONDS [SEED]

The streams are those of the fuzz target `templates` (rust/fuzz): records of recordings with other values in their
slots, cut, glued and damaged. The native backend reads them with templates, so that with the target itself all three
ways are compared: with templates, without, and the pure twin. CORPUS is what the target has found, or any folder of
files. Each core can have a call with a seed of its own.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

from headrace.errors import SourceError

from .engines import ENGINES, same
from .test_robustness import read

FUZZ = Path(__file__).parents[1] / "rust" / "fuzz"


def next_stream(out: BinaryIO) -> bytes | None:
    head = out.read(4)
    return out.read(int.from_bytes(head, "little")) if len(head) == 4 else None


def told(engine: Any, stream: bytes) -> Any:
    try:
        return read(engine, stream)
    except SourceError as error:
        return str(error)  # UTF-16


def main() -> None:
    corpus, seconds, seed = Path(sys.argv[1]).resolve(), float(sys.argv[2]), (sys.argv[3:] or ["1"])[0]
    assert len(ENGINES) == 2, "the native backend is not built"
    run = ["cargo", "run", "-q", "--release", "--example", "streams", "--", str(corpus), seed]
    with subprocess.Popen(run, cwd=FUZZ, stdout=subprocess.PIPE) as maker:
        assert maker.stdout is not None
        number, stream = 0, next_stream(maker.stdout)
        started = shown = time.monotonic()
        while stream is not None and time.monotonic() - started < seconds:
            number += 1
            one, two = (told(engine, stream) for engine in ENGINES.values())
            if not same(one, two):
                Path("twins-failure").write_bytes(stream)
                raise SystemExit(f"stream {number} of seed {seed} is read differently: see twins-failure")
            if time.monotonic() - shown > 10:
                shown = time.monotonic()
                print(f"{number} streams, {number / (shown - started):.0f} a second", flush=True)
            stream = next_stream(maker.stdout)
        maker.terminate()
        print(f"{number} streams without a difference")


if __name__ == "__main__":
    main()
