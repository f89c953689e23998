"""A running harness, without the waiting: what ``Process`` and ``AsyncProcess`` share.

``step`` takes what is there and never waits; ``due`` says how long one may wait before the next step at most.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import IO, TYPE_CHECKING, Any, TypeVar, Union, overload

from . import _backend
from .api import MAX_LINE_BYTES, OnMalformed, _kinds
from .dump import dumps
from .errors import HeadraceError, SourceError
from .limits import CLOSING, Guard
from .listen import Listener, Listeners
from .result import Report, Run, SoFar, run_of

if TYPE_CHECKING:
    from .types import OutputEvent

__all__ = ["PIPE", "Harness", "Stdin"]

PIPE = subprocess.PIPE
"""``stdin=PIPE``: records can be sent while the harness runs."""

Stdin = bytes | str | int | IO[bytes] | None
Argument = Union[str, "os.PathLike[str]"]
_Call = TypeVar("_Call", bound=Callable[[Any], object])

LINGER = 5.0
GRACE = 3.0
STDERR_TAIL = 64 << 10
MEMORY_LIMIT = 64 << 20

_CHECK = 0.1  # between two looks at the process while its output keeps coming


class Harness(SoFar):
    """One process, from its start to its verdict."""

    def __init__(
        self,
        argv: Sequence[Argument],
        *,
        stdin: Stdin = None,
        env: Mapping[str, str] | None = None,
        cwd: Argument | None = None,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        linger: float | None = LINGER,
        grace: float = GRACE,
        dialect: str | None = None,
        only: Iterable[str] | None = None,
        state: bool = False,
        strict: bool = False,
        spans: bool = False,
        max_line_bytes: int = MAX_LINE_BYTES,
        max_result_bytes: int | None = None,
        on_malformed: OnMalformed | None = None,
        memory_limit: int | None = None,
        spill_dir: Argument | None = None,
        spill_limit: int | None = None,
        on_stderr: Callable[[bytes], object] | None = None,
        stderr_file: Argument | IO[bytes] | None = None,
        command: bool = False,
        intake: _backend.Intake | None = None,
    ) -> None:
        if isinstance(argv, (str, bytes)) or not argv:
            raise TypeError('argv is a list of the program and its arguments, such as ["claude", "-p", "..."]')
        self.argv = [os.fspath(part) for part in argv]
        self._stdin, self._env, self._cwd = stdin, env, cwd
        self._guard = Guard(timeout=timeout, idle_timeout=idle_timeout, linger=linger, grace=grace)
        self._engine = _backend.Engine(
            dialect=dialect,
            kinds=_kinds(only, state),
            strict=strict,
            spans=spans,
            max_line_bytes=max_line_bytes,
            max_result_bytes=max_result_bytes,
            on_malformed=on_malformed,
            source=f"stdout of {os.fsdecode(argv[0])}",
        )
        self._lock = threading.RLock()  # a step is more than one call of the engine; anyone may ask for the run
        self._sends = threading.RLock()  # one record behind the other, also when a signal handler sends one
        self._own_intake = intake is None
        # no intake is asked for: an event loop has one for all of its processes
        self._shares = intake is None and memory_limit is None and spill_dir is None and spill_limit is None
        self._intake = intake or _backend.Intake(
            memory_limit=MEMORY_LIMIT if memory_limit is None else memory_limit,
            spill_dir=spill_dir,
            spill_limit=spill_limit,
        )
        self._noun = "command" if command else "run"
        self._on_stderr = None if on_stderr is None else Listener("on_stderr", on_stderr)
        self._stderr_file, self._close_stderr_file = stderr_file, False
        self._sink: IO[bytes] | None = None
        self._unwritten: SourceError | None = None  # raised at the end: it must not cost the run
        self._listeners = Listeners()
        self._lifecycle: deque[dict[str, Any]] = deque()
        self._decode = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}

        self.popen: subprocess.Popen[bytes] | None = None
        self.ready: deque[OutputEvent] = deque()
        self.failed: BaseException | None = None
        """Raised once everything before it was given."""
        self.is_over = False
        self._out = self._err = 0
        self._out_over = self._err_over = False
        self._tail = b""
        self._tap: _backend.Tap | None = None  # of stdout
        self._ending: str | None = None  # that the guard knows of
        self._checked = 0.0
        self._err_wanted = False
        self._started: float | None = None

    # ------------------------------------------------------------ what is known

    @property
    def pid(self) -> int | None:
        """The process's number, which is its group's too; None before the start."""
        return None if self.popen is None else self.popen.pid

    @property
    def returncode(self) -> int | None:
        """As ``subprocess`` gives it: negative for a signal; None while the process runs."""
        return None if self.popen is None else self.popen.returncode

    @property
    def stderr_tail(self) -> bytes:
        """The last 64 KiB of stderr so far."""
        return self._intake.tail(self._err) if self._err else self._tail

    @property
    def run(self) -> Run:
        """The run so far. Exit code and stderr fill in what the stream left open; a time limit or a signal from here
        decides what the stream had not decided before."""
        with self._lock:
            return self._run()

    def _run(self) -> Run:
        facts = self._engine.run(*self._known())
        facts["verdict"] = self._decided(facts["verdict"])
        return run_of(self._engine, facts)

    def _known(self) -> tuple[int | None, bytes]:
        """What the stream does not say."""
        return None if self._guard.lingered else self.returncode, self.stderr_tail

    def _decided(self, verdict: dict[str, Any]) -> dict[str, Any]:
        """The verdict of the stream, or of what ended the process before."""
        cause = self._guard.cause
        if cause is None or not self.is_over or verdict["outcome"] == "completed":
            return verdict
        outcome, why = cause
        evidence = [*verdict["evidence"], {"line": None, "offset": None, "why": why}]
        reason = verdict["reason"] if verdict["outcome"] == outcome else why
        return {"outcome": outcome, "reason": reason, "evidence": evidence}

    @property
    def report(self) -> Report:
        """The account of the bytes so far."""
        with self._lock:
            return super().report

    @property
    def dialect(self) -> str | None:
        """Name of the dialect; None while it is not decided."""
        with self._lock:
            return super().dialect

    @property
    def is_final(self) -> bool:
        """The stream has said how it ends, and no turn was opened since."""
        with self._lock:
            return self._engine.ending == "end"

    # ------------------------------------------------------------ listeners

    @overload
    def on(self, name: str) -> Callable[[_Call], _Call]: ...
    @overload
    def on(self, name: str, call: _Call) -> _Call: ...
    def on(self, name: str, call: _Call | None = None) -> _Call | Callable[[_Call], _Call]:
        """Has a function called with each ``content`` event, each piece of ``stdout`` or ``stderr`` text, or each
        ``lifecycle`` event. Also a decorator: ``@process.on("content")``.

        Each listener has a thread of its own: one that raises (which is logged) or is slow disturbs nobody.

        Raises:
            ValueError: there is nothing of that name.
        """
        if call is None:

            def decorate(call: _Call) -> _Call:
                self.on(name, call)
                return call

            if name not in ("content", "stdout", "stderr", "lifecycle"):
                self._listeners.add(name, print)  # raises
            return decorate
        self._listeners.add(name, call)
        if name == "stderr" and self._err:
            self._err_wanted = True
            self._intake.keep(self._err, True)
        return call

    def _tell(self, reason: str, sandbox: str, agent: str) -> None:
        event = {
            "sandbox_id": None,
            "sandbox": sandbox,
            "agent": agent,
            "timestamp": datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "reason": f"{self._noun}_{reason}",
        }
        self._lifecycle.append(event)

    # ------------------------------------------------------------ start

    def start(self) -> None:
        """Starts the process, once."""
        if self._started is not None:
            return
        self._started = self._guard.started = time.monotonic()
        if isinstance(self._stderr_file, (str, os.PathLike)):
            try:
                self._sink = open(self._stderr_file, "wb", buffering=0)  # noqa: SIM115 (closed by _finish)
            except OSError as error:
                raise SourceError(f"can't write to {os.fspath(self._stderr_file)!r}: {error.strerror}") from error
            self._close_stderr_file = True
        else:
            self._sink = self._stderr_file
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        given: IO[bytes] | None = None
        try:
            # Drained before there is anything to drain: the first byte can't wait.
            self._out = self._intake.add(out_read, f"stdout of {self.argv[0]}")
            self._tap = self._intake.tap(self._out)
            is_heard = self._on_stderr is not None or "stderr" in self._listeners.names
            self._err_wanted = is_heard or self._sink is not None
            self._err = self._intake.add(err_read, f"stderr of {self.argv[0]}", tail=STDERR_TAIL, keep=self._err_wanted)
            stdin: Any = subprocess.DEVNULL if self._stdin is None else self._stdin
            if isinstance(stdin, str):
                stdin = stdin.encode()
            if isinstance(stdin, bytes):
                # A file, not a pipe: it can't block, however late the harness reads it.
                given = tempfile.TemporaryFile()  # noqa: SIM115 (closed below)
                given.write(stdin)
                given.seek(0)
                stdin = given
            self.popen = subprocess.Popen(
                self.argv,
                stdin=stdin,
                stdout=out_write,
                stderr=err_write,
                env=None if self._env is None else dict(self._env),
                cwd=self._cwd,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            self._tell("failed", "error", "error")
            self._finish()
            if isinstance(error, HeadraceError):
                raise
            why = error.strerror or error
            if self._cwd is not None and error.filename == self._cwd:
                why = f"its working folder {os.fspath(self._cwd)!r}: {why}"
            raise SourceError(f"can't start {self.argv[0]!r}: {why}") from error
        finally:
            for end in (out_read, out_write, err_read, err_write):
                os.close(end)
            if given is not None:
                given.close()
        self._guard.begin(self.popen, self._intake, (self._out, self._err))
        self._tell("start", "running", "running")

    # ------------------------------------------------------------ input and signals

    @property
    def input(self) -> IO[bytes]:
        """The pipe to the harness's stdin.

        Raises:
            SourceError: there is none, or it is closed.
        """
        if self.popen is None or self.popen.stdin is None:
            raise SourceError("nothing can be sent: stdin=headrace.PIPE was not given, or the process is over")
        return self.popen.stdin

    def line_of(self, record: Mapping[str, Any] | bytes | str) -> bytes:
        """What is written for a record that is sent."""
        if isinstance(record, str):
            record = record.encode()
        line = bytes(record) if isinstance(record, (bytes, bytearray)) else dumps(record)
        return line if line.endswith(b"\n") else line + b"\n"

    def close_stdin(self) -> None:
        """Nothing more is sent: most harnesses end then."""
        if self.popen is not None and self.popen.stdin is not None:
            with contextlib.suppress(OSError):
                self.popen.stdin.close()
            self.popen.stdin = None

    def interrupt(self) -> None:
        """Sends SIGINT to the process and all of its group; what it still prints is read."""
        self._guard.cancel(signal.SIGINT, "interrupted by the caller")

    def terminate(self) -> None:
        """Sends SIGTERM to the process and all of its group; what it still prints is read."""
        self._guard.cancel(signal.SIGTERM, "terminated by the caller")

    def kill(self) -> None:
        """Sends SIGKILL to the process and all of its group."""
        self._guard.cancel(signal.SIGKILL, "killed by the caller")

    def stop(self) -> None:
        """Ends the process: SIGTERM to its group, SIGKILL when that does not help."""
        self._guard.stop()

    # ------------------------------------------------------------ one step

    def step(self) -> bool:
        """Takes what is there; events go to ``ready``. False when there was nothing.

        Never raises what is wrong with the stream: that is in ``failed``.
        """
        if self._listeners.names:
            while self._lifecycle and "lifecycle" in self._listeners.names:
                self._listeners.tell("lifecycle", self._lifecycle.popleft())
            if self._listeners.are_behind:
                return False
        took = self._take_stdout()
        if not took or self._err_wanted:
            took = self._take_stderr() or took
        # An event that is there need not wait for a look at the process.
        if not took or time.monotonic() - self._checked >= _CHECK:
            self._check_time(took)
        return took

    def _take_stdout(self) -> bool:
        if self._out_over or self._tap is None:
            return False
        with self._lock:
            try:
                raw = bool(self._guard.cause_at) or "stdout" in self._listeners.names
                if raw and not self._tap.is_ahead:
                    took = self._feed(self._tap.take())
                else:  # what was parsed ahead was printed before
                    took = self._give(self._tap.feed(self._engine, ahead=not raw))
                if took:
                    self._hear()
                elif self._tap.is_over:
                    self._end_stream()
                    return True
                return took
            except HeadraceError as error:
                self.failed = error
                self._end_stream()
                self.stop()
                return True
            except BaseException as error:  # on_malformed, or Ctrl-C
                self.failed = error
                return True

    def _feed(self, lines: bytes | None) -> bool:
        """Parses what must be seen before; False if there is nothing."""
        if lines is None:
            return False
        if "stdout" in self._listeners.names:
            self._listeners.tell("stdout", self._decode["stdout"].decode(lines))
        # What was printed before we stopped it is told apart from what it printed for that.
        before = self._guard.cause_at - self._engine.offset
        if 0 < before < len(lines):
            self._give(self._engine.feed(lines[:before]))
            self._hear()
            lines = lines[before:]
        return self._give(self._engine.feed(lines))

    def _hear(self) -> None:
        ending = self._engine.ending
        if ending != self._ending:
            self._ending = ending
            self._guard.heard(is_final=ending == "end", said=ending is not None, at=self._engine.offset)

    def _give(self, events: list[OutputEvent] | None) -> bool:
        if events is None:
            return False
        self.ready.extend(events)
        if "content" in self._listeners.names:
            for event in events:
                self._listeners.tell("content", event)
        return True

    def _end_stream(self) -> None:
        """Stdout has ended, or nobody waits for its end any more."""
        self._out_over, self._tap = True, None
        self._guard.ended = time.monotonic()
        try:
            with self._lock:
                self._give(self._engine.close())
        except HeadraceError as error:
            self.failed = self.failed or error

    def _take_stderr(self) -> bool:
        if self._err_over or not self._err:
            return False
        try:
            chunk = self._intake.take(self._err)
        except HeadraceError as error:
            self.failed = self.failed or error
            chunk = None
        if chunk is None:
            self._err_over = True
            return True
        if chunk:
            self._write_stderr(memoryview(chunk))
            if self._on_stderr is not None:
                self._on_stderr.put(chunk)
            if "stderr" in self._listeners.names:
                self._listeners.tell("stderr", self._decode["stderr"].decode(chunk))
        return bool(chunk)

    def _write_stderr(self, left: memoryview) -> None:
        try:
            while left and self._sink is not None:
                left = left[self._sink.write(left) or 0 :]
        except OSError as error:
            if self._close_stderr_file and self._sink is not None:
                self._sink.close()
            self._sink = None
            self._unwritten = SourceError(f"can't write stderr to stderr_file: {error.strerror or error}")

    def _check_time(self, took: bool) -> None:
        """What is due: the end, a time limit, the next signal."""
        now = self._checked = time.monotonic()
        self._guard.check()
        exited = self._guard.exited
        if exited is None or took:
            return
        if not self._out_over:
            # what was left behind holds stdout open
            patience = self._guard.patience
            if patience is not None and now - exited >= patience:
                if not self._guard.is_stopping:
                    self._guard.signal(signal.SIGTERM)
                self._end_stream()
        elif self._err_over or now - max(exited, self._guard.ended or 0.0) >= CLOSING:
            self._finish()

    def due(self) -> float:
        """Seconds until the next step has something to do even if nothing is printed."""
        return 0.01 if self._listeners.are_behind else self._guard.due()

    def waiting_for(self) -> list[int]:
        """The streams of the intake that may still have something."""
        streams = [] if self._out_over else [self._out]
        if self._err and not self._err_over:
            streams.append(self._err)
        return streams

    def _finish(self) -> None:
        """The process has ended and everything was taken."""
        if self.is_over:
            return
        self._guard.end()
        self.close_stdin()
        if self._err:
            self._tail = self._intake.tail(self._err)
        for stream in (self._out, self._err):
            if stream:
                self._intake.remove(stream)
        self._out = self._err = 0
        if self._own_intake:
            self._intake.close()
        if self._close_stderr_file and self._sink is not None:
            self._sink.close()
        if self._on_stderr is not None:
            self._on_stderr.end()
        self.is_over = True
        self.failed = self.failed or self._unwritten
        if self.popen is not None:
            with self._lock:
                verdict = self._engine.run_part("verdict", *self._known())
            outcome = self._decided(verdict)["outcome"]
            completed = outcome == "completed" if self._noun == "run" else self.returncode == 0
            if self._guard.cause is not None and outcome == "cancelled":
                self._tell("interrupted", "stopped", "interrupted")
            elif completed:
                self._tell("complete", "stopped", "idle")
            else:
                self._tell("failed", "stopped", "error")
        if "lifecycle" in self._listeners.names:
            for event in self._lifecycle:
                self._listeners.tell("lifecycle", event)
        self._lifecycle.clear()
        self._listeners.end()

    def _leave(self) -> bool:
        """The caller leaves: the group is stopped if it still runs. False if there is nothing to wait for."""
        if self._started is None or self.is_over:
            self.abandon()
            return False
        if self._guard.look() is None:
            self._guard.brought_about("cancelled", "the caller left before the end")
            self.close_stdin()
            self.stop()
        return True

    def _last_step(self, drop: bool) -> bool:
        """A step to the end of what was left; False when there was nothing."""
        if drop and self._guard.look() is not None:
            self.abandon()
            return True
        took = self.step()
        if drop:
            self.ready.clear()
        return took

    @property
    def listeners_done(self) -> bool:
        """Everything was told to every listener."""
        return self._listeners.are_done and (self._on_stderr is None or self._on_stderr.is_done)

    def abandon(self) -> None:
        """At once: the group is killed, what waits is dropped."""
        if self._started is None or self.is_over:
            if not self.is_over and self._own_intake:
                self._intake.close()
            return
        if self.popen is not None:
            self._guard.cancel(signal.SIGKILL, "killed by the caller")
            self.popen.wait()
        if not self._out_over:
            self._end_stream()
        self._finish()

    def __del__(self) -> None:
        if sys is not None and getattr(self, "popen", None) is not None:
            with contextlib.suppress(Exception):
                self.abandon()
