"""Harnesses in an event loop: no thread per stream, nothing lost when a task is cancelled, nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import gzip
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import headrace
from tests.live import CASES, DONE, TEXT, nothing_left, producer, python, threads

pytestmark = pytest.mark.skipif(os.name != "posix", reason="process groups are of POSIX")


Loops = Callable[[], asyncio.AbstractEventLoop]
LOOPS: list[Any] = [pytest.param(asyncio.new_event_loop, id="asyncio")]
try:
    import uvloop
except ImportError:  # no wheel for this platform
    LOOPS.append(pytest.param(None, id="uvloop", marks=pytest.mark.skip(reason="uvloop is not installed")))
else:
    LOOPS.append(pytest.param(uvloop.new_event_loop, id="uvloop"))
    uvloop.run(asyncio.sleep(0))  # what it opens once for all loops is no leak

_new_loop: Loops = asyncio.new_event_loop


@pytest.fixture(params=LOOPS, autouse=True)
def _each_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is tested under each kind of event loop."""
    monkeypatch.setattr(sys.modules[__name__], "_new_loop", request.param)


def go(main: Coroutine[Any, Any, Any]) -> Any:
    loop = _new_loop()
    try:
        return loop.run_until_complete(asyncio.wait_for(main, 60))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def run(argv: list[str], **options: Any) -> headrace.AsyncProcess:
    return headrace.AsyncProcess(argv, dialect="evosci", **options)


async def texts(events: Any) -> list[str]:
    return [event["update"]["content"]["text"] async for event in events]


def test_the_reported_cases(tmp_path: Path) -> None:
    async def main() -> None:
        for case, code in (("48", -signal.SIGTERM), ("55", 1), ("95", 0)):
            argv = [sys.executable, str(producer(case, tmp_path))]
            async with headrace.AsyncProcess(argv, linger=0.3) as process:
                await process.wait()
            assert process.run.verdict.outcome == "completed"
            assert process.returncode == code

    with nothing_left():
        go(main())


def test_hundreds_of_harnesses_share_their_threads_while_the_loop_is_busy(tmp_path: Path) -> None:
    path, count, most = tmp_path / "stream.jsonl", 300, 0
    path.write_text("".join(TEXT % n + " " * 900 + "\n" for n in range(100)) + DONE)  # more than a pipe holds

    async def one() -> list[str]:
        nonlocal most
        async with run(["cat", str(path)]) as process:
            got = []
            async for event in process:
                got.append(event["update"]["content"]["text"])
                if len(got) % 50 == 0:
                    time.sleep(0.002)  # a handler that blocks the loop
                most = max(most, threads())
        assert process.run.verdict.outcome == "completed"
        return got

    async def main() -> None:
        before = threads()
        for got in await asyncio.gather(*(one() for _ in range(count))):
            assert got == [str(n) for n in range(100)]
        assert most <= before + 5  # one drains, one looks after time limits, three at most parse ahead

    with nothing_left():
        go(main())


def test_batches_are_the_events_in_lists(tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    path.write_text("".join(TEXT % n for n in range(30_000)) + DONE)

    async def main() -> list[list[Any]]:
        async with run(["cat", str(path)]) as process:
            return [batch async for batch in process.batches()]

    batches = go(main())
    assert all(batches)
    assert len(batches) < 1000
    with headrace.Process(["cat", str(path)], dialect="evosci") as process:
        assert [*chain(*process.batches())] == [*chain(*batches)] == [*headrace.events(path, dialect="evosci")]


def test_an_event_arrives_at_once() -> None:
    code = "for n in range(30): write(TEXT % (time.monotonic_ns() // 1000)); time.sleep(0.01)\nwrite(DONE)"

    async def main() -> list[float]:
        late = []
        async with run(python(code)) as process:
            async for event in process:
                late.append(time.monotonic() - int(event["update"]["content"]["text"]) / 1e6)
        return late

    late = sorted(go(main()))
    assert late[len(late) // 2] < 0.05


@pytest.mark.parametrize("busy", ["in a handler", "elsewhere"])
def test_a_harness_is_not_held_up_by_who_had_waited_for_it(busy: str) -> None:
    """The loop was the one to read what comes next; when that comes it blocks, or nobody in it wants any."""
    code = """
    write(TEXT % 0); sys.stdin.readline(); started = time.monotonic()
    for n in range(1, 1000): write(TEXT % n + " " * 3000 + "\\n")
    write(TEXT % (1000 * (time.monotonic() - started))); write(DONE)
    """

    async def main() -> list[str]:
        async with run(python(code), stdin=headrace.PIPE) as process:
            got = [(await process.__anext__())["update"]["content"]["text"]]
            waits = asyncio.ensure_future(process.__anext__())
            await asyncio.sleep(0.1)
            if busy == "elsewhere":
                waits.cancel()
            await process.send(b"")
            if busy == "in a handler":
                time.sleep(1)
                got.append((await waits)["update"]["content"]["text"])
            else:
                await asyncio.sleep(1)
            return got + await texts(process)

    began = time.process_time()
    *got, milliseconds = go(main())
    assert got == [str(n) for n in range(1000)]
    assert float(milliseconds) < 900
    assert time.process_time() - began < 0.9  # nor did the loop spin for what nobody wants


def test_a_cancelled_wait_for_a_pipe_loses_nothing() -> None:
    code = "for n in range(40): write(TEXT % n); time.sleep(0.005)\nwrite(DONE)"

    async def main() -> list[str]:
        got: list[str] = []
        with subprocess.Popen(python(code), stdout=subprocess.PIPE) as process:
            events = headrace.aevents(process, dialect="evosci")
            while True:
                try:
                    event = await asyncio.wait_for(events.__anext__(), 0.003)
                except asyncio.TimeoutError:
                    continue
                except StopAsyncIteration:
                    return got
                got.append(event["update"]["content"]["text"])

    with nothing_left():
        assert go(main()) == [str(n) for n in range(40)]


def test_a_cancelled_wait_loses_nothing() -> None:
    code = "for n in range(40): write(TEXT % n); time.sleep(0.005)\nwrite(DONE)"

    async def main() -> list[str]:
        got: list[str] = []
        async with run(python(code)) as process:
            while True:
                try:
                    event = await asyncio.wait_for(process.__anext__(), 0.003)
                except asyncio.TimeoutError:
                    continue
                except StopAsyncIteration:
                    return got
                got.append(event["update"]["content"]["text"])

    assert go(main()) == [str(n) for n in range(40)]


def test_a_cancelled_wait_of_a_loop_loses_nothing() -> None:
    """`async for` asks its own iterator, which may have the next event already."""
    code = "for n in range(40): write(TEXT % n + TEXT % n); time.sleep(0.005)\nwrite(DONE)"

    async def main() -> list[str]:
        got: list[str] = []
        async with run(python(code)) as process:
            events = aiter(process)
            while True:
                try:
                    event = await asyncio.wait_for(anext(events), 0 if len(got) % 4 == 1 else 0.003)
                except asyncio.TimeoutError:
                    if len(got) % 4 == 1:
                        got.append((await process.__anext__())["update"]["content"]["text"])
                    continue
                except StopAsyncIteration:
                    return got
                got.append(event["update"]["content"]["text"])

    assert go(main()) == [str(n // 2) for n in range(80)]


def test_two_tasks_may_ask_for_what_comes_next() -> None:
    """Each has the next event when it comes to its turn, and waits if there is none."""
    code = "write(TEXT % 0 + TEXT % 1 + TEXT % 2); sys.stdin.readline(); write(TEXT % 3); write(DONE)"

    async def main() -> list[str]:
        async with run(python(code), stdin=headrace.PIPE) as process:
            events = aiter(process)
            got = [await anext(events)]
            first, second, third = events.__anext__(), anext(events, None), events.__anext__()
            got += [await third, await second]
            waits = asyncio.ensure_future(first)
            await asyncio.sleep(0.05)
            assert not waits.done()
            await process.send(b"go on")
            got += [await waits]
            return [event["update"]["content"]["text"] for event in got]

    assert go(main()) == ["0", "1", "2", "3"]


def test_the_answer_to_one_question_is_given_once() -> None:
    async def main() -> None:
        async with run(python("write(TEXT % 0 + TEXT % 1); write(DONE)")) as process:
            events = aiter(process)
            await anext(events)
            asked = events.__anext__()
            assert (await asked)["update"]["content"]["text"] == "1"
            with pytest.raises(RuntimeError, match=r"awaited"):
                await asked

    go(main())


def test_a_loop_over_events_can_be_traced() -> None:
    """Debuggers and coverage make the interpreter ask in another way."""

    async def main() -> list[str]:
        async with run(python("for n in range(20): write(TEXT % n)\nwrite(DONE)")) as process:
            before = sys.gettrace()
            sys.settrace(lambda *_: None)
            try:
                return await texts(process)
            finally:
                sys.settrace(before)

    assert go(main()) == [str(n) for n in range(20)]


def test_a_cancelled_task_ends_its_harness() -> None:
    processes = []

    async def one() -> None:
        async with run(python("write(TEXT % 1); time.sleep(60)")) as process:
            processes.append(process)
            await process.wait()

    async def main() -> None:
        task = asyncio.create_task(one())
        while not processes or not processes[0].report.bytes:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert processes[0].returncode == -signal.SIGTERM
        assert processes[0].run.verdict.outcome == "cancelled"

    with nothing_left():
        go(main())
        processes.clear()


def test_time_limits_and_signals() -> None:
    async def main() -> None:
        async with run(["sleep", "60"], timeout=0.2) as process:
            await process.wait()
        assert process.run.verdict.outcome == "timeout"
        async with run(["sleep", "60"]) as process:
            process.interrupt()
            await process.wait()
        assert process.run.verdict.outcome == "cancelled"
        async with run(python("subprocess.Popen(['sleep', '60']); write(DONE)"), linger=0.2) as process:
            await process.wait()
        assert process.run.verdict.outcome == "completed"

    go(main())


def test_records_can_be_sent_however_slowly_they_are_read() -> None:
    code = "time.sleep(0.2)\nfor line in sys.stdin: write(TEXT % len(line))\nwrite(DONE)"

    async def main() -> None:
        async with run(python(code), stdin=headrace.PIPE) as process:
            await process.send(b"x" * 500_000)
            await process.send({"type": "hello"})
            process.close_stdin()
            assert await texts(process) == ["500001", "17"]

    go(main())


def test_records_of_several_tasks_go_one_behind_the_other() -> None:
    code = "time.sleep(0.2)\nfor line in sys.stdin: write(TEXT % int(line[0] * 2 + str(len(set(line)))))\nwrite(DONE)"

    async def main() -> None:
        async with run(python(code), stdin=headrace.PIPE) as process:
            await asyncio.gather(*(process.send(str(n) * 300_000) for n in range(1, 6)))
            process.close_stdin()
            assert await texts(process) == ["112", "222", "332", "442", "552"]

    go(main())


def test_a_record_that_is_not_read_can_be_given_up() -> None:
    async def main() -> None:
        async with run(["sleep", "60"], stdin=headrace.PIPE) as process:
            sending = asyncio.create_task(process.send(b"x" * 500_000))
            await asyncio.sleep(0.05)
            process.close_stdin()
            other, pipe = os.pipe()  # has the number of the pipe that was closed
            with pytest.raises(headrace.SourceError, match="nothing can be sent"):
                await sending
            os.close(pipe)
            assert os.read(other, 9) == b""
            os.close(other)
            sending = asyncio.create_task(process.send(b"y"))
            with pytest.raises(headrace.SourceError, match="nothing can be sent"):
                await sending

    go(main())


def test_a_process_that_ends_unread_breaks_the_pipe() -> None:
    async def main() -> None:
        async with run(python("time.sleep(0.2); write(DONE)"), stdin=headrace.PIPE) as process:
            sending = asyncio.create_task(process.send(b"x" * 500_000))
            await process.wait()
            with pytest.raises((BrokenPipeError, headrace.SourceError)):
                await sending

    go(main())


def test_listeners_are_told_everything() -> None:
    told: list[Any] = []
    reasons: list[str] = []

    async def main() -> None:
        process = run(python("for n in range(5): write(TEXT % n)\nwrite(DONE)"))
        process.on("content", lambda event: told.append(event["update"]["content"]["text"]))
        process.on("lifecycle", lambda event: reasons.append(event["reason"]))
        with pytest.raises(ValueError, match="nothing to listen to"):
            process.on("end", print)
        async with process:
            await process.wait()

    go(main())
    assert told == ["0", "1", "2", "3", "4"]
    assert reasons == ["run_start", "run_complete"]


def test_a_program_that_is_not_there_leaves_nothing() -> None:
    async def main() -> None:
        with pytest.raises(headrace.SourceError):
            async with headrace.AsyncProcess(["headrace-no-such-program"]):
                pass

    with nothing_left():
        go(main())


def test_it_takes_what_a_process_takes_and_says_so() -> None:
    signature = inspect.signature(headrace.AsyncProcess)
    assert signature == inspect.signature(headrace.Process)
    assert not any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())


def test_an_own_memory_limit_is_kept(tmp_path: Path) -> None:
    code = "for n in range(20): write(''.join(TEXT % (n * 1000 + m) for m in range(1000)))\nwrite(DONE)"

    async def main() -> list[str]:
        async with run(python(code), memory_limit=50_000, spill_dir=tmp_path) as process:
            first = await process.__anext__()
            while process._intake.waiting()[1] < 100_000:
                await asyncio.sleep(0.01)
            return await texts(_then([first], process))

    with nothing_left():
        assert go(main()) == [str(n) for n in range(20_000)]


async def _then(first: list[Any], rest: Any) -> AsyncIterator[Any]:
    for item in first:
        yield item
    async for item in rest:
        yield item


@pytest.mark.parametrize("kind", ["descriptor", "file", "popen", "stream", "subprocess", "iterable", "path", "bytes"])
def test_any_source_can_be_read(kind: str, tmp_path: Path) -> None:
    data = gzip.decompress(next(CASES.glob("62-*/input.jsonl.gz")).read_bytes())
    path = tmp_path / "run.jsonl"
    path.write_bytes(data)

    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(data), 100):
            yield data[at : at + 100]

    async def main() -> None:
        popen = None
        source: Any = path
        if kind == "bytes":
            source = data
        elif kind == "iterable":
            source = chunks()
        elif kind == "stream":
            source = asyncio.StreamReader()
            source.feed_data(data)
            source.feed_eof()
        elif kind == "subprocess":
            source = await asyncio.create_subprocess_exec("cat", str(path), stdout=subprocess.PIPE)
        elif kind != "path":
            source = popen = subprocess.Popen(["cat", str(path)], stdout=subprocess.PIPE)
            if kind != "popen":
                source = popen.stdout if kind == "file" else popen.stdout.fileno()  # type: ignore[union-attr]
        stream = headrace.aevents(source)
        assert [event async for event in stream] == list(headrace.events(data))
        assert stream.run == headrace.reduce(data)
        assert stream.dialect == "claude-transcript"
        if popen is not None:
            popen.communicate()
        if kind == "subprocess":
            await source.wait()

    go(main())


def test_an_abandoned_source_is_let_go() -> None:
    read, write = os.pipe()

    async def main() -> None:
        stream = headrace.aevents(read, dialect="evosci")
        os.write(write, (TEXT % 1).encode())
        assert (await stream.__anext__())["update"]["content"]["text"] == "1"
        await stream.aclose()
        with pytest.raises(StopAsyncIteration):
            await stream.__anext__()

    with nothing_left():
        go(main())
    os.close(read)
    os.close(write)


def test_a_dropped_process_leaves_nothing_behind() -> None:
    async def main() -> None:
        process = run(python("while True: write(TEXT % 1)"))
        await process.__anext__()
        pid = process.pid or 0
        del process  # no with-block
        gc.collect()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    with nothing_left():
        go(main())


def test_errors_come_after_what_was_read() -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield (TEXT % 1 + DONE).encode()
        raise OSError("line is down")

    async def main() -> None:
        stream = headrace.aevents(broken(), dialect="evosci")
        assert (await stream.__anext__())["update"]["content"]["text"] == "1"
        with pytest.raises(OSError, match="line is down"):
            await stream.__anext__()
        with pytest.raises(headrace.SourceError):
            headrace.aevents(headrace.Process(["true"]))  # type: ignore[arg-type]

    go(main())


def test_loops_in_several_threads_do_not_meet() -> None:
    failed: list[BaseException] = []

    def work() -> None:
        async def main() -> None:
            async with run(python("for n in range(200): write(TEXT % n)\nwrite(DONE)")) as process:
                assert await texts(process) == [str(n) for n in range(200)]

        try:
            asyncio.run(main())
        except BaseException as error:
            failed.append(error)

    with nothing_left():
        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert not failed


# ---------------------------------------------------------------- other event loops


def test_any_other_event_loop_can_wait_for_an_intake() -> None:
    trio = pytest.importorskip("trio")

    async def main() -> list[str]:
        intake, parser, got = headrace.Intake(), headrace.Parser(dialect="evosci"), []
        with subprocess.Popen(
            python("for n in range(50): write(TEXT % n)\nwrite(DONE)"), stdout=subprocess.PIPE
        ) as one:
            assert one.stdout is not None
            stream = intake.add(one.stdout.fileno(), "harness")
            while True:
                await trio.lowlevel.wait_readable(intake.fileno())
                assert intake.ready() == [stream]
                while chunk := intake.take(stream):
                    got += parser.feed(chunk)
                if chunk is None:
                    break
        got += parser.close()
        intake.close()
        return [event["update"]["content"]["text"] for event in got]

    with nothing_left():
        assert trio.run(main) == [str(n) for n in range(50)]
