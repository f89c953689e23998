"""What the tests of live sources share: harnesses to run, and what must not be left behind."""

from __future__ import annotations

import gc
import gzip
import os
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CASES = Path(__file__).parent / "data" / "cases"

TEXT = '{"type": "text", "content": "%d"}\n'
DONE = '{"type": "done", "content": "", "response": ""}\n'


def producer(case: str, folder: Path) -> Path:
    """The script of a case, unpacked."""
    (packed,) = CASES.glob(f"{case}-*/producer.py.gz")
    path = folder / f"producer_{case}.py"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return path


def python(code: str) -> list[str]:
    """The command that runs Python code, with what it needs most imported."""
    head = "import os, sys, time, signal, subprocess\nwrite = lambda text: os.write(1, text.encode())\n"
    return [sys.executable, "-S", "-c", head + f"TEXT, DONE = {TEXT!r}, {DONE!r}\n" + textwrap.dedent(code)]


def threads() -> int:
    """All threads of this process, native ones too."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


def descriptors() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return len(os.listdir("/dev/fd"))


@contextmanager
def nothing_left() -> Iterator[None]:
    """Threads and descriptors are as many after the block as before."""
    gc.collect()
    before = threads(), descriptors()
    yield
    deadline = time.monotonic() + 5
    while True:
        gc.collect()
        after = threads(), descriptors()
        if after <= before or time.monotonic() > deadline:
            break
        time.sleep(0.01)
    assert after[0] <= before[0], "threads are left"
    assert after[1] <= before[1], "descriptors are left"
