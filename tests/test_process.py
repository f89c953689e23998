"""Running a harness: it never waits for its consumer, nothing is lost, and it always ends."""

from __future__ import annotations

import errno
import gc
import hashlib
import json
import logging
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import headrace
from tests.live import DONE, TEXT, nothing_left, producer, python, threads

pytestmark = pytest.mark.skipif(os.name != "posix", reason="process groups are of POSIX")


def run(argv: list[str], **options: Any) -> headrace.Process:
    """A process of a given dialect: its events come at once, while the content alone would not tell at the first."""
    return headrace.Process(argv, dialect="evosci", **options)


def texts(events: Any) -> list[str]:
    return [event["update"]["content"]["text"] for event in events]


# ---------------------------------------------------------------- the reported cases


def test_a_working_folder_that_is_not_there_is_what_is_named(tmp_path: Path) -> None:
    for cwd in (tmp_path / "none", str(tmp_path / "none")):
        with nothing_left(), pytest.raises(headrace.SourceError, match=r"working folder '.*none': No such file"):
            headrace.Process([sys.executable], cwd=cwd).wait()
    with pytest.raises(headrace.SourceError, match="can't start 'headrace-no-such-program': No such file"):
        headrace.Process(["headrace-no-such-program"], cwd=tmp_path).wait()


def test_a_harness_that_hangs_after_its_result_is_stopped(tmp_path: Path) -> None:
    started = time.monotonic()
    with headrace.Process([sys.executable, str(producer("48", tmp_path))], linger=0.3) as process:
        for _ in process:
            if process.is_final:  # known at the result record, without an end of the stream
                assert process.run.final_text == "All set."
                assert process.returncode is None
    assert process.run.verdict.outcome == "completed"
    assert process.returncode == -signal.SIGTERM
    assert time.monotonic() - started < 10


def test_the_exit_code_does_not_throw_a_result_away(tmp_path: Path) -> None:
    with headrace.Process([sys.executable, str(producer("55", tmp_path))]) as process:
        process.wait()
    assert process.run.verdict.outcome == "completed"
    assert process.run.final_text == "Step is green."
    assert process.returncode == 1


def test_a_flood_on_stderr_blocks_nothing(tmp_path: Path) -> None:
    with headrace.Process([sys.executable, str(producer("95", tmp_path))], timeout=20) as process:
        process.wait()
    assert process.run.final_text == "Through."
    assert process.run.verdict.outcome == "completed"
    assert len(process.stderr_tail) == 64 << 10
    assert process.stderr_tail.endswith(b"xxx\n")


def test_a_slow_consumer_does_not_stall_the_harness(tmp_path: Path) -> None:
    with headrace.Process([sys.executable, str(producer("96", tmp_path))], only={"tool_call"}) as process:
        calls = 0
        for _ in process:
            if not calls:
                time.sleep(1)
            calls += 1
    assert calls == 3000
    assert process.report.records == 3004
    assert process.run.final_text == "Fast."
    assert json.loads(process.stderr_tail)["max_block_ms"] < 300


@pytest.mark.parametrize("case", ["03", "05"])
def test_torn_and_long_writes_are_read_as_they_were_meant(case: str, tmp_path: Path) -> None:
    with headrace.Process([sys.executable, str(producer(case, tmp_path))]) as process:
        process.wait()
    assert process.run.verdict.outcome == "completed"
    assert process.report.malformed == 0


# ---------------------------------------------------------------- how it ends


@pytest.mark.skipif(sys.platform != "linux" or headrace.backend != "native", reason="a thread's priority is Linux's")
def test_draining_goes_before_other_work_where_the_system_allows_it() -> None:
    """Hundreds of harnesses wait for one thread, that of an intake; their own priority is as it was."""
    code = "import os\ntry: os.setpriority(os.PRIO_PROCESS, 0, -10)\nexcept OSError: pass\nprint(os.getpriority(0, 0))"
    allowed = int(subprocess.check_output([sys.executable, "-c", code]))

    def of_threads() -> dict[str, int]:
        stats = [(task / "stat").read_text() for task in Path("/proc/self/task").iterdir()]
        split = [stat.rpartition(")") for stat in stats]
        return {name.partition("(")[2]: int(rest.split()[16]) for name, _, rest in split}

    text = """import os; write('{"type": "text", "content": "%d"}\\n' % os.getpriority(0, 0)); write(DONE)"""
    with headrace.Process(python(text), dialect="evosci") as process:
        event = next(process)
        assert of_threads()["headrace-intake"] == allowed
    assert event["update"]["content"]["text"] == str(os.getpriority(os.PRIO_PROCESS, 0))


def test_a_grandchild_that_keeps_stdout_open_is_not_waited_for() -> None:
    code = "subprocess.Popen(['sleep', '60']); write(TEXT % 1); write(DONE)"
    with nothing_left():
        started = time.monotonic()
        with run(python(code), linger=0.3) as process:
            assert texts(process) == ["1"]
        assert time.monotonic() - started < 10
        assert process.returncode == 0
        assert process.run.verdict.outcome == "completed"
        with pytest.raises(ProcessLookupError):  # noqa: PT012
            for _ in range(500):  # the group is gone, as soon as its dead are buried
                os.killpg(process.pid or 0, 0)
                time.sleep(0.01)
        process = None  # type: ignore[assignment]


def test_a_harness_that_ignores_sigterm_is_killed() -> None:
    code = "signal.signal(signal.SIGTERM, signal.SIG_IGN); write(TEXT % 1); time.sleep(60)"
    with run(python(code), grace=0.2) as process:
        next(process)
    assert process.returncode == -signal.SIGKILL
    assert process.run.verdict.outcome == "cancelled"


def test_time_limits_give_the_verdict_timeout() -> None:
    for limits in ({"timeout": 0.5}, {"idle_timeout": 0.3}):
        with run(python("write(TEXT % 1); time.sleep(60)"), **limits) as process:  # type: ignore[arg-type]
            assert texts(process) == ["1"]
        assert process.run.verdict.outcome == "timeout"
        assert "timeout" in process.run.verdict.reason


@pytest.mark.parametrize("limits", [{"timeout": 0.3}, {"idle_timeout": 0.3}])
def test_time_limits_hold_while_nobody_reads(limits: dict[str, float]) -> None:
    with nothing_left():
        code = "signal.signal(signal.SIGTERM, signal.SIG_IGN); write(TEXT % 1); time.sleep(60)"
        with run(python(code), grace=0.2, **limits) as process:  # type: ignore[arg-type]
            started = time.monotonic()
            while process.returncode is None and time.monotonic() < started + 10:
                time.sleep(0.01)
            assert process.returncode == -signal.SIGKILL
            assert texts(process) == ["1"]
        assert process.run.verdict.outcome == "timeout"
        del process


def test_linger_holds_while_the_consumer_is_busy() -> None:
    with run(python("write(TEXT % 1 + DONE); time.sleep(60)"), linger=0.2) as process:
        for _ in process:
            started = time.monotonic()
            while process.returncode is None and time.monotonic() < started + 10:
                pass  # computes, and does not come back for the next event
            assert process.returncode == -signal.SIGTERM
    assert process.run.verdict.outcome == "completed"


@pytest.mark.parametrize(("said", "outcome"), [(True, "failed"), (False, "timeout")])
def test_what_was_said_before_a_limit_counts_though_it_is_read_after_it(said: bool, outcome: str) -> None:
    """The stream fails by itself before its harness is stopped, or because it is stopped."""
    code = """
    failed = lambda *_: (write('{"type": "error", "message": "No such model"}\\n'), os._exit(1))
    signal.signal(signal.SIGTERM, lambda *_: os._exit(1) if SAID else failed())
    write(TEXT % 1)
    if SAID: write('{"type": "error", "message": "No such model"}\\n')
    time.sleep(60)
    """
    with run(python(f"SAID = {said}\n" + textwrap.dedent(code)), timeout=0.5, linger=None) as process:
        while process.returncode is None:
            time.sleep(0.01)
        process.wait()
    assert process.run.verdict.outcome == outcome
    assert process.run.errors


def test_output_keeps_a_harness_from_being_idle() -> None:
    code = "for n in range(8): write(TEXT % n); time.sleep(0.1)\nwrite(DONE)"
    with run(python(code), idle_timeout=0.5) as process:
        process.wait()
    assert process.run.verdict.outcome == "completed"


def test_a_limit_does_not_overrule_what_the_stream_said() -> None:
    with run(python("write(DONE); time.sleep(60)"), timeout=0.5, linger=None) as process:
        process.wait()
    assert process.run.verdict.outcome == "completed"


@pytest.mark.parametrize("way", ["interrupt", "terminate", "kill"])
def test_what_the_caller_stops_is_cancelled(way: str) -> None:
    with run(python("write(TEXT % 1); time.sleep(60)")) as process:
        next(process)
        getattr(process, way)()
        process.wait()
    assert process.run.verdict.outcome == "cancelled"
    assert process.returncode != 0


def test_a_program_that_is_not_there_is_an_error() -> None:
    with nothing_left(), pytest.raises(headrace.SourceError, match="can't start 'headrace-no-such-program'"):
        headrace.Process(["headrace-no-such-program"]).start()
    with pytest.raises(TypeError):
        headrace.Process("claude -p")  # type: ignore[arg-type]


def test_exit_code_and_stderr_fill_in_what_the_stream_left_open() -> None:
    with run(python("sys.stderr.write('no key'); sys.exit(3)")) as process:
        process.wait()
    assert process.run.verdict.outcome == "failed"
    assert process.run.errors[0]["message"] == "no key"
    assert process.returncode == 3


def test_ctrl_c_ends_the_waiting() -> None:
    process = headrace.Process(["sleep", "60"])

    def interrupt() -> None:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt), process:  # noqa: PT012
        thread.start()
        process.wait()
    thread.join()
    assert time.monotonic() - started < 3
    assert process.returncode == -signal.SIGTERM


# ---------------------------------------------------------------- input


def test_records_can_be_sent() -> None:
    code = """
        for line in sys.stdin:
            write(line)
        write(DONE)
    """
    with run(python(code), stdin=headrace.PIPE) as process:
        process.send({"type": "text", "content": "ping"})
        assert texts([next(process)]) == ["ping"]
        process.send('{"type": "text", "content": "pong"}')
        assert texts([next(process)]) == ["pong"]
        process.close_stdin()
        process.wait()
        with pytest.raises(headrace.SourceError):
            process.send({})
    assert process.run.texts == ["pingpong"]


def test_records_of_several_threads_go_one_behind_the_other() -> None:
    code = "time.sleep(0.2)\nfor line in sys.stdin: write(TEXT % int(line[0] * 2 + str(len(set(line)))))\nwrite(DONE)"
    with run(python(code), stdin=headrace.PIPE) as process:
        process.start()
        threads = [threading.Thread(target=process.send, args=[str(n) * 300_000]) for n in range(1, 6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        process.close_stdin()
        assert sorted(texts(process)) == ["112", "222", "332", "442", "552"]


def test_a_large_prompt_that_nobody_reads_blocks_nothing() -> None:
    code = "write(TEXT % 1); write(DONE)"
    with run(python(code), stdin="x" * 5_000_000) as process:
        process.wait()
    assert process.run.verdict.outcome == "completed"
    with run(python("write(TEXT % len(sys.stdin.read())); write(DONE)"), stdin=b"x" * 300_000) as process:
        assert texts(process) == ["300000"]


def test_stderr_goes_where_it_is_wanted(tmp_path: Path) -> None:
    seen: list[bytes] = []
    code = "sys.stderr.write('warning\\n' * 20_000); write(DONE)"
    with run(python(code), on_stderr=seen.append, stderr_file=tmp_path / "err") as process:
        process.wait()
    assert b"".join(seen) == (tmp_path / "err").read_bytes() == b"warning\n" * 20_000


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a file that is always full")
def test_a_stderr_file_that_takes_no_more_is_an_error_and_stops_nothing() -> None:
    process = run(python("sys.stderr.write('warning'); write(TEXT % 1); write(DONE)"), stderr_file="/dev/full")
    with process, pytest.raises(headrace.SourceError, match="stderr_file"):
        process.wait()
    assert process.run.texts == ["1"]
    assert process.stderr_tail == b"warning"


# ---------------------------------------------------------------- listeners


def test_listeners_are_told_everything() -> None:
    told: dict[str, list[Any]] = {"content": [], "stdout": [], "stderr": [], "lifecycle": []}
    code = "write(TEXT % 1); sys.stderr.write('é'); write(DONE)"
    process = run(python(code))
    for name, items in told.items():
        process.on(name, items.append)
    with process:
        process.wait()
    assert texts(told["content"]) == ["1"]
    assert "".join(told["stdout"]) == TEXT % 1 + DONE
    assert "".join(told["stderr"]) == "é"
    assert [event["reason"] for event in told["lifecycle"]] == ["run_start", "run_complete"]
    assert [(event["sandbox"], event["agent"]) for event in told["lifecycle"]] == [
        ("running", "running"),
        ("stopped", "idle"),
    ]
    with pytest.raises(ValueError, match="there are: content, stdout, stderr, lifecycle"):
        process.on("done", print)


def test_lifecycle_tells_how_it_ended() -> None:
    def reasons(code: str, stop: bool = False, **options: Any) -> list[str]:
        events: list[Any] = []
        with run(python(code), **options) as process:
            process.on("lifecycle", events.append)
            if stop:
                next(process)
                process.interrupt()
            process.wait()
        return [event["reason"] for event in events]

    assert reasons("write(TEXT % 1); time.sleep(60)", stop=True) == ["run_start", "run_interrupted"]
    assert reasons("sys.exit(1)") == ["run_start", "run_failed"]
    assert reasons("pass", command=True) == ["command_start", "command_complete"]
    assert reasons("sys.exit(1)", command=True) == ["command_start", "command_failed"]


def test_a_listener_that_raises_or_is_slow_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    good: list[float] = []
    slow: list[str] = []
    code = "for n in range(5): write(TEXT % n); time.sleep(0.05)\nwrite(DONE)"
    process = run(python(code))

    @process.on("content")
    def bad(event: Any) -> None:
        raise RuntimeError("bad listener")

    @process.on("content")
    def late(event: Any) -> None:
        time.sleep(0.3)
        slow.append(event)

    process.on("content", lambda event: good.append(time.monotonic()))
    with caplog.at_level(logging.ERROR, "headrace"), process:
        for _ in process:
            last = time.monotonic()
    assert len(good) == len(slow) == 5
    assert good[-1] < last + 0.2  # it did not wait for the slow one
    assert sum("bad listener" in (record.exc_text or "") for record in caplog.records) == 5


# ---------------------------------------------------------------- nothing is lost


def test_single_bytes_are_put_together() -> None:
    code = "for byte in ((TEXT % 7) * 100 + DONE).encode(): os.write(1, bytes([byte]))"
    with run(python(code)) as process:
        assert texts(process) == ["7"] * 100
    assert process.report.malformed == 0


def test_a_huge_line_arrives_whole() -> None:
    size = 300_000_000 if headrace.backend == "native" else 30_000_000
    code = f"""
        write('{{"type": "text", "content": "')
        for _ in range({size // 100_000}): sys.stdout.write("x" * 100_000)
        sys.stdout.flush()
        write('"}}\\n'); write(DONE)
    """
    with run(python(code), memory_limit=8 << 20, max_line_bytes=size + 1000) as process:
        (event,) = process
    assert len(event["update"]["content"]["text"]) == size


def test_a_harness_killed_at_any_moment_gives_what_it_had_printed() -> None:
    chance = random.Random(5)
    code = "n = 0\nwhile True: write(TEXT % n); n += 1"
    for memory in [1 << 12, 1 << 16, 1 << 24] * 4:
        with run(python(code), memory_limit=memory) as process:
            first = next(process)
            time.sleep(chance.random() * 0.05)
            os.killpg(process.pid or 0, signal.SIGKILL)
            got = texts([first, *process])
        assert got == [str(n) for n in range(len(got))]
        assert process.returncode == -signal.SIGKILL
        assert process.run.verdict.outcome == "incomplete"
        assert process.report.malformed == int(process.report.truncated)


def test_what_waits_beyond_the_memory_limit_comes_back_from_disk(tmp_path: Path) -> None:
    code = "for n in range(30): write(''.join(TEXT % (n * 1000 + m) for m in range(1000)))\nwrite(DONE)"
    with run(python(code), memory_limit=100_000, spill_dir=tmp_path) as process:
        first = next(process)
        deadline = time.monotonic() + 20
        while process.returncode is None and time.monotonic() < deadline:  # it ends while nothing is taken
            time.sleep(0.01)
            process.popen.poll()  # type: ignore[union-attr]
        memory, disk = process._intake.waiting()
        assert memory <= 200_000
        assert disk > 500_000
        assert not list(tmp_path.iterdir())  # unlinked
        assert texts([first, *process]) == [str(n) for n in range(30_000)]


def until_spilled(process: headrace.Process) -> tuple[list[Any], headrace.SpillError]:
    """What a consumer that sleeps once gets before the error."""
    got = []
    with process:
        try:
            for event in process:
                if not got:
                    time.sleep(1)
                got.append(event)
        except headrace.SpillError as error:
            return got, error
    raise AssertionError("it did not spill over")


def test_a_spill_limit_is_an_error_after_everything_before_it() -> None:
    code = "n = 0\nwhile True: write(''.join(TEXT % (n * 1000 + m) for m in range(1000))); n += 1"
    process = run(python(code), memory_limit=50_000, spill_limit=300_000)
    got, error = until_spilled(process)
    assert "spill limit" in str(error)
    assert texts(got) == [str(n) for n in range(len(got))]
    assert len(got) * 30 >= 300_000  # ten thousand lines, sometimes exactly
    assert process.report.bytes > 350_000


def _tmpfs(folder: Path) -> str | None:
    """Mounts a file system of 1 MB; says why if that can't be done."""
    if os.name != "posix" or sys.platform != "linux":
        return "tmpfs is of Linux"
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        return f"can't run mount: {error}"
    return f"can't mount a tmpfs here: {done.stderr.strip()}" if done.returncode else None


def test_a_disk_that_fills_up_is_an_error_after_everything_before_it(tmp_path: Path) -> None:
    why = _tmpfs(tmp_path)
    if why is not None:
        pytest.skip(why)
    try:
        code = "n = 0\nwhile True: write(''.join(TEXT % (n * 1000 + m) for m in range(1000))); n += 1"
        process = run(python(code), memory_limit=100_000, spill_dir=tmp_path)
        got, error = until_spilled(process)
        assert isinstance(error.__cause__, OSError)
        assert error.__cause__.errno == errno.ENOSPC
        assert str(tmp_path) in str(error)
        assert texts(got) == [str(n) for n in range(len(got))]
        assert process.report.bytes > 900_000
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_file_that_may_not_grow_is_an_error_after_everything_before_it(tmp_path: Path) -> None:
    """The same where nothing can be mounted."""
    code = "n = 0\nwhile True: write(''.join(TEXT % (n * 1000 + m) for m in range(1000))); n += 1"
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
        import resource, sys, time
        import headrace
        resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))
        argv, folder = {python(code)!r}, {str(tmp_path)!r}
        process = headrace.Process(argv, dialect="evosci", memory_limit=100_000, spill_dir=folder)
        got = []
        try:
            with process:
                for event in process:
                    if not got:
                        time.sleep(1)
                    got.append(event["update"]["content"]["text"])
        except headrace.SpillError as error:
            assert got == [str(n) for n in range(len(got))]
            assert process.report.bytes > 500_000, process.report.bytes
            sys.exit(f"SpillError: {{error.__cause__.errno}}")
        """)
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == f"SpillError: {errno.EFBIG}", done.stderr


def test_an_intake_can_be_closed_while_its_pipe_is_written_to() -> None:
    """Its thread is woken by the pipe and by the close at one time, and both free what they share."""
    read, write = os.pipe()
    stopped = threading.Event()

    def fill() -> None:
        while not stopped.is_set():
            os.write(write, b"x")

    filler = threading.Thread(target=fill)
    filler.start()
    with nothing_left():
        for abandoned in [False, True] * 10:
            intake = headrace.Intake()
            intake.add(read, "a pipe")
            if abandoned:
                circle: list[Any] = [intake]
                circle.append(circle)
                del intake, circle
                gc.collect()
            else:
                intake.close()
    stopped.set()
    os.read(read, 1 << 20)
    filler.join()
    os.close(read)
    os.close(write)


@pytest.mark.skipif(headrace.backend != "python", reason="only its way of reading can be looked into")
def test_an_intake_whose_pipe_somebody_else_reads_can_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.pure import intake as module

    pipe, write = os.pipe()
    waits = threading.Event()

    class Thief:
        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def read(self, descriptor: int, most: int) -> bytes:
            if not waits.is_set() and most > 1 << 16:
                os.read(pipe, most)
                waits.set()
            return os.read(descriptor, most)

    monkeypatch.setattr(module, "os", Thief())
    intake = headrace.Intake()
    stream = intake.add(pipe, "a pipe")
    os.write(write, b"{}")
    assert waits.wait(5)
    started = time.monotonic()
    assert intake.take(stream) == b""
    intake.close()
    assert time.monotonic() - started < 5
    os.close(write)  # ends the wait
    os.close(pipe)


def test_what_an_intake_can_never_keep_to_is_refused_at_once(tmp_path: Path) -> None:
    for make in (headrace.Intake, lambda **options: headrace.Process(["true"], **options)):
        with pytest.raises(headrace.SpillError, match=r'spill_dir ".*nowhere" is no folder'):
            make(spill_dir=tmp_path / "nowhere")
        for option in ("memory_limit", "spill_limit"):
            with pytest.raises(ValueError, match=f"{option} is negative"):
                make(**{option: -1})


def test_a_closed_intake_says_so() -> None:
    read, write = os.pipe()
    intake = headrace.Intake()
    stream = intake.add(read, "a pipe")
    os.write(write, b"{}")
    assert intake.wait([stream], 5)
    intake.close()
    assert intake.waiting() == (0, 0)
    assert intake.ready() == []
    for refused in (intake.fileno, lambda: intake.take(stream), lambda: intake.add(read, "again")):
        with pytest.raises(headrace.SourceError, match="is closed"):
            refused()
    os.close(read)
    os.close(write)


def test_hundreds_of_harnesses_at_once_share_one_thread(tmp_path: Path) -> None:
    """One consumer takes them one after the other; none waits for its turn to print."""
    path, count = tmp_path / "stream.jsonl", 300
    path.write_text("".join(TEXT % n + " " * 900 + "\n" for n in range(200)) + DONE)  # more than a pipe holds
    with nothing_left():
        intake = headrace.Intake(memory_limit=1 << 20)
        processes = [run(["cat", str(path)], intake=intake) for _ in range(count)]
        before = threads()
        for process in processes:
            process.start()
        assert threads() <= before + 2  # one drains, one looks after time limits
        for process in processes:
            while process.returncode is None:  # it ends before anything of it is taken
                time.sleep(0.005)
                process.popen.poll()  # type: ignore[union-attr]
        for process in processes:
            assert texts(process) == [str(n) for n in range(200)]
            assert process.run.verdict.outcome == "completed"
        intake.close()


def test_the_bytes_are_the_same() -> None:
    code = "import random; out = random.Random(3).randbytes(3_000_000); write(DONE); sys.stdout.buffer.write(out)"
    digest = hashlib.sha256()
    intake = headrace.Intake(memory_limit=1 << 20)
    read, write = os.pipe()
    with subprocess.Popen(python(code), stdout=write):
        stream = intake.add(read, "test")
        os.close(read)
        os.close(write)
        while (chunk := intake.take(stream)) is not None:
            digest.update(chunk)
            if not chunk:
                intake.wait([stream], 1)
    intake.close()
    assert digest.digest() == hashlib.sha256(DONE.encode() + random.Random(3).randbytes(3_000_000)).digest()


# ---------------------------------------------------------------- nothing is left


def test_abandoned_processes_leave_nothing_behind() -> None:
    with nothing_left():
        for _ in range(3):
            process = run(python("while True: write(TEXT % 1)"))
            next(process)
            pid = process.popen.pid  # type: ignore[union-attr]
            del process  # no with-block, no close
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
        headrace.Process(["true"])  # never started
        with run(python("write(DONE)")) as process:
            process.wait()
        del process


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_touch_the_intake() -> None:
    with run(python("write(TEXT % 1); sys.stdin.read(); write(TEXT % 2); write(DONE)"), stdin=headrace.PIPE) as process:
        next(process)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                process._intake.take(process._out)
            except headrace.SourceError as error:
                code = 0 if "forked" in str(error) else 2
            finally:
                process._intake.close()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert status == 0
        process.close_stdin()
        assert texts(process) == ["2"]


def test_an_interpreter_that_exits_leaves_no_harness() -> None:
    """While a harness runs, prints more than memory takes, and nobody reads."""
    code = f"""
        import headrace
        process = headrace.Process({python("while True: write(TEXT % 1)")!r}, memory_limit=1000)
        process.start()
        print(process.pid)
    """
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - started < 20
    with pytest.raises(ProcessLookupError):  # noqa: PT012
        for _ in range(500):
            os.killpg(int(done.stdout), 0)
            time.sleep(0.01)
