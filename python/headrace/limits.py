"""Time limits and signals of a running harness, kept by a thread of their own.

The consumer of a harness may be busy for minutes, or never read at all; its limits hold all the same. One thread looks
after every harness of this process, and is there only while there are any.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import threading
import time

from . import _backend
from .errors import SourceError

__all__ = ["CLOSING", "Guard"]

CLOSING = 0.5
"""Stderr may be held open by what the harness left behind: no longer than this is waited for its end."""

_SOON = 0.002  # what is due by then is done at once
_POLL = 0.02  # between two looks at a process that is being stopped
_NEVER = 3600.0  # seconds; looking again now and then costs nothing


class Guard:
    """What is known of one process, and when it is to be stopped. Safe to use from several threads.

    Attributes:
        exited, ended, final: since when the process has ended, stdout is at its end, and the stream has said its last
            word; None before.
        said: the stream has told of an ending, so that a limit is none any more.
        cause: the outcome that was brought about from here, and why.
        cause_at: how many bytes stdout had printed by then.
        lingered: the process was stopped because it stayed after its last word.
    """

    def __init__(
        self, *, timeout: float | None, idle_timeout: float | None, linger: float | None, grace: float
    ) -> None:
        self.timeout, self.idle_timeout, self.linger, self.grace = timeout, idle_timeout, linger, grace
        self.lock = threading.RLock()
        self.started = time.monotonic()
        self.exited: float | None = None
        self.ended: float | None = None
        self.final: float | None = None
        self.said = False
        self.cause: tuple[str, str] | None = None
        self.cause_at = 0
        self.lingered = False
        self.is_stopping = False
        self._popen: subprocess.Popen[bytes] | None = None
        self._intake: _backend.Intake | None = None
        self._streams: tuple[int, ...] = ()
        self._signals: list[tuple[float, int]] = []  # when which is due

    # ------------------------------------------------------------ from the start to the end

    def begin(self, popen: subprocess.Popen[bytes], intake: _backend.Intake, streams: tuple[int, ...]) -> None:
        """The process runs: from now on its limits are looked after."""
        self._popen, self._intake, self._streams = popen, intake, streams
        _watchdog.watch(self)

    def end(self) -> None:
        """Nothing is to be looked after any more."""
        with self.lock:
            self._streams = ()
            self._signals.clear()
        _watchdog.leave(self)

    def heard(self, *, is_final: bool, said: bool, at: int) -> None:
        """What the stream has told up to its byte ``at``."""
        with self.lock:
            self.said = said
            if said and at <= self.cause_at:
                self.cause = None  # it had been said before, and nobody had read it
            if not is_final:
                self.final = None
            elif self.final is None:
                self.final = time.monotonic()
                is_final = self.linger is not None
        if is_final:
            _watchdog.nudge(self.due())

    # ------------------------------------------------------------ the process

    def look(self) -> int | None:
        """The exit code, if there is one."""
        if self._popen is None:
            return None
        with self.lock:  # nobody sends a signal to a process that is being buried
            code = self._popen.poll()
            if code is not None and self.exited is None:
                self.exited = time.monotonic()
        return code

    def signal(self, number: int) -> None:
        """To the process and all of its group."""
        if self._popen is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # the group is gone
                os.killpg(self._popen.pid, number)

    def cancel(self, number: int, why: str) -> None:
        """The caller's signal."""
        with self.lock:
            if self._popen is not None and self.look() is None:
                self.brought_about("cancelled", why)
                self.signal(number)

    def brought_about(self, outcome: str, why: str) -> None:
        """From now on the end is our doing, unless the stream has told of one before."""
        if self.cause is None and not self.said:
            self.cause = (outcome, why)
            if self._intake is not None and self._streams:
                with contextlib.suppress(SourceError):  # closed by the caller
                    self.cause_at = self._intake.total(self._streams[0])

    def stop(self) -> None:
        """Ends the process, each step if the one before does not help: SIGINT was for the harness to clean up, so this
        begins with SIGTERM."""
        with self.lock:
            self._stop()
        _watchdog.nudge(0)

    def _stop(self) -> None:
        if not self.is_stopping:
            self.is_stopping = True
            now = time.monotonic()
            self._signals = [(now, signal.SIGTERM), (now + self.grace, signal.SIGKILL)]

    # ------------------------------------------------------------ the limits

    def check(self) -> None:
        """Does what is due."""
        with self.lock:
            now = time.monotonic()
            if self.exited is None:
                self.look()
            if self.exited is None:
                self._check_limits(now)
            while self._signals and self._signals[0][0] <= now:
                _, number = self._signals.pop(0)
                if self.exited is None or self.ended is None:
                    self.signal(number)
            waits = bool(self._signals)
        if waits:
            _watchdog.nudge(_POLL)

    def _check_limits(self, now: float) -> None:
        if self.is_stopping or not self._streams:
            return
        if self.timeout is not None and now - self.started >= self.timeout:
            self.brought_about("timeout", f"stopped after timeout={self.timeout:g} seconds")
            self._stop()
        elif self.idle_timeout is not None and self._idle() >= self.idle_timeout:
            self.brought_about("timeout", f"stopped after idle_timeout={self.idle_timeout:g} seconds without output")
            self._stop()
        elif self.linger is not None and (since := self._lingering_since) is not None and now - since >= self.linger:
            self.lingered = True
            self._stop()

    @property
    def _lingering_since(self) -> float | None:
        """Since when the process has nothing to say any more."""
        if self.ended is not None:
            return self.ended
        waits_for_input = self._popen is not None and self._popen.stdin is not None
        return None if waits_for_input else self.final

    @property
    def patience(self) -> float | None:
        """How long stdout may stay open after the process has ended."""
        return CLOSING if self.lingered or self.cause is not None else self.linger

    def _idle(self) -> float:
        assert self._intake is not None
        try:
            return min(self._intake.idle(stream) for stream in self._streams)
        except SourceError:  # closed by the caller, with everything in it
            return 0.0

    def due(self) -> float:
        """Seconds until something is due even if nothing is printed."""
        with self.lock:
            now = time.monotonic()
            at = [when for when, _ in self._signals[:1]]
            if self.exited is not None:
                if self.ended is not None:
                    at.append(max(self.exited, self.ended) + CLOSING)
                elif (patience := self.patience) is not None:
                    at.append(self.exited + patience)
            elif self.is_stopping:
                at.append(now + _POLL)
            elif self._streams:
                if self.timeout is not None:
                    at.append(self.started + self.timeout)
                if self.idle_timeout is not None:
                    at.append(now + self.idle_timeout - self._idle())
                if self.linger is not None and (since := self._lingering_since) is not None:
                    at.append(since + self.linger)
            return max(min(at, default=now + _NEVER) - now, 0.001)


class _Watchdog:
    """The thread. It knows guards, not harnesses: those may be dropped at any time."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._guards: set[Guard] = set()
        self._thread: threading.Thread | None = None
        self._wakes = 0.0  # when it looks again; 0 while it looks
        self._nudged = False
        self._closed = False

    def watch(self, guard: Guard) -> None:
        seconds = guard.due()
        with self._changed:
            self._guards.add(guard)
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="headrace-limits", daemon=True)
                self._thread.start()
        self.nudge(seconds)

    def leave(self, guard: Guard) -> None:
        with self._changed:
            self._guards.discard(guard)
            if not self._guards:
                self.nudge(0)

    def close(self) -> None:
        """Before the interpreter goes down: it would stop the thread anywhere, with a lock in its hands."""
        with self._changed:
            self._closed = True
            thread = self._thread
            self.nudge(0)
        if thread is not None:
            thread.join()

    def nudge(self, seconds: float) -> None:
        """Something is due in so many seconds."""
        with self._changed:
            if time.monotonic() + seconds < self._wakes:
                self._changed.notify()
            elif not self._wakes:
                self._nudged = True

    def _run(self) -> None:
        while True:
            with self._changed:
                self._wakes, self._nudged = 0.0, False
                if not self._guards or self._closed:
                    self._thread = None
                    return
                guards = list(self._guards)
            seconds = _NEVER
            for guard in guards:
                if guard.exited is not None:
                    continue  # the rest is for who reads
                if (due := guard.due()) <= _SOON or guard.is_stopping:
                    guard.check()
                    due = guard.due()
                if guard.exited is None:
                    seconds = min(seconds, due)
            guard = guards = None  # type: ignore[assignment]
            with self._changed:
                if not self._nudged:
                    self._wakes = time.monotonic() + seconds
                    self._changed.wait(seconds)


_watchdog = _Watchdog()


@atexit.register
def _exiting() -> None:
    _watchdog.close()


def _forked() -> None:
    """The thread is the parent's, and so are the processes that it looks after."""
    global _watchdog
    _watchdog = _Watchdog()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
