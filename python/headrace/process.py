"""``Process``: runs a harness and gives its events, and never lets it wait."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .harness import PIPE, Harness
from .result import Run

if TYPE_CHECKING:
    from typing_extensions import Self

    from .types import OutputEvent

__all__ = ["PIPE", "Process"]

_SLICE = 0.02  # between two looks at the process while nothing is printed


class Process(Harness):
    r"""Runs a harness in a process group of its own; an iterator of its events.

    Its stdout and stderr are drained natively from the first byte to the last, whatever the consumer does: what waits
    is kept in memory up to ``memory_limit`` and beyond it in an unlinked file.

    >>> import sys
    >>> program = 'print(\'{"type": "done", "content": "Hi", "response": "Hi"}\')'
    >>> with Process([sys.executable, "-c", program], dialect="evosci") as process:
    ...     kinds = [event["update"]["sessionUpdate"] for event in process]
    >>> kinds, process.run.verdict.outcome, process.returncode
    (['agent_message_chunk'], 'completed', 0)

    Args:
        argv: the program and its arguments; no shell is asked.
        stdin: bytes or a string to be read there; ``headrace.PIPE`` to `send` records while it runs; a file or
            descriptor; None for nothing.
        env, cwd: as for ``subprocess.Popen``.
        timeout: seconds from the start; idle_timeout: seconds without a byte on stdout or stderr. Then the group is
            stopped, and the verdict is ``timeout`` if the stream had not said its own before.
        linger: seconds that the process may stay after the stream has said how it ended, or that something it left
            behind may hold stdout open after it; then the group is stopped. None waits for ever. With ``stdin=PIPE``
            it counts from `close_stdin` only.
        grace: seconds between SIGTERM and SIGKILL when the group is stopped.
        dialect, only, state, strict, spans, max_line_bytes, max_result_bytes, on_malformed: as for `events`.
        memory_limit, spill_dir, spill_limit: where what waits is kept: bytes in memory (None for 64 MiB), the folder of
            the spill file, and bytes in that at most.
        on_stderr: called with all of stderr, piece by piece, in a thread of its own.
        stderr_file: a path or binary file to write all of stderr to.
        command: ``lifecycle`` tells of a plain command (``command_start``, ...), which completes with exit code 0.
        intake: an `Intake` to share with other processes: one thread and one memory limit for all.

    Raises:
        SourceError: the program can't be started, when the with-block or the iteration begins.
        SpillError: ``spill_dir`` is no folder; from the iterator, after all events before it: what waits has no room.
    """

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(drop=kind is not None)

    def __iter__(self) -> Self:
        self.start()
        return self

    def __next__(self) -> OutputEvent:
        if not self.ready and not self._fill():
            raise StopIteration
        return self.ready.popleft()

    def batches(self) -> Iterator[list[OutputEvent]]:
        """The events in lists, of what was there at once. ``clear()`` a list when you are done with it: two of them
        alive at a time cost the garbage collector more than lists save."""
        while self.ready or self._fill():
            batch = list(self.ready)
            self.ready.clear()
            yield batch

    def _fill(self) -> bool:
        """Waits until there are events; False at the end."""
        self.start()
        while not self.ready:
            if self.failed is not None:
                failed, self.failed = self.failed, None
                raise failed
            if self.is_over:
                self._wait_for_listeners()
                return False
            if not self.step():
                self._wait()
        return True

    def wait(self) -> Run:
        """Reads to the end, for the listeners and the run; gives the run."""
        while self.ready or self._fill():
            self.ready.clear()
        return self.run

    def send(self, record: Mapping[str, Any] | bytes | str) -> None:
        """Writes a record (or a line) to the harness's stdin, which must be ``headrace.PIPE``. Records that several
        threads send go one behind the other.

        Raises:
            SourceError: stdin is no pipe, or is closed, or is closed before all was written.
            BrokenPipeError: the harness does not read any more.
        """
        line = memoryview(self.line_of(record))
        with self._sends:
            while line:
                line = line[self.input.write(line) or 0 :]

    def close(self, *, drop: bool = False) -> None:
        """Stops the group if it still runs (SIGTERM, after ``grace`` seconds SIGKILL), and reads what it printed.

        Args:
            drop: don't parse what waits.
        """
        if not self._leave():
            return
        try:
            while not self.is_over:
                if not self._last_step(drop):
                    self._wait()
        except BaseException:
            self.abandon()
            raise
        self._wait_for_listeners()

    def _wait(self) -> None:
        streams = self.waiting_for()
        seconds = min(self.due(), _SLICE)
        if self._listeners.are_behind or not streams:
            time.sleep(min(seconds, 0.005))
        elif not self._intake.wait(streams, seconds):
            self._check_time(False)

    def _wait_for_listeners(self) -> None:
        while not self.listeners_done:
            time.sleep(0.001)
