"""What threads may share: it serves one at a time, and the others wait."""

from __future__ import annotations

import os
import threading

from ..errors import HeadraceError, SourceError

__all__ = ["Turns"]


class Turns:
    """A with-block waits for this thread's turn and has it to its end; an error if the thread has it already."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._taken = False
        self._process = os.getpid()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            if self._process != os.getpid():
                raise SourceError(
                    "another thread was parsing this stream when the process was forked, and it is not here; open the "
                    "source again in the child process"
                )
            self._lock.acquire()
        if self._taken:
            self._lock.release()
            raise HeadraceError(
                "this stream is in the middle of a step, and what it calls there (on_malformed, the source's own code, "
                "a signal handler) can't ask it for anything: keep what you need, and ask when the step is over"
            )
        self._taken = True

    def __exit__(self, *_: object) -> None:
        self._taken = False
        self._lock.release()
