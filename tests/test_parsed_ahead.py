"""What waits is parsed by another thread before it is asked for: what comes out, and in which order, is the same."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import signal
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace import _backend
from tests.live import DONE, TEXT, nothing_left
from tests.truth import recordings

LINES = 40_000
BAD = "oops\n"
THOUGHT = '{"type": "thinking", "content": "%d", "id": 0}\n'
TOOL = '{"type": "tool_call", "id": "%d", "name": "execute", "args": {"command": "ls", "n": [1.5, "\\u00e9"]}}\n'
RESULT = '{"type": "tool_result", "id": "%d", "name": "execute", "content": "a\\nb", "success": true}\n'


def stream(bad: int | None = None) -> str:
    """Text, thoughts and tool calls, and one line that is no JSON."""
    parts = []
    for number in range(LINES):
        kind = number % 40
        if number == bad:
            parts.append(BAD)
        elif kind == 7:
            parts.append(THOUGHT % number)
        elif kind == 20:
            parts.append(TOOL % number)
        elif kind == 21:
            parts.append(RESULT % (number - 1))
        else:
            parts.append(TEXT % number)
    return "".join(parts) + DONE


def parsed(text: str, **options: Any) -> tuple[list[Any], Any]:
    """What a parser makes of it that is fed with all at once."""
    parser = headrace.Parser(dialect="evosci", **options)
    events = parser.feed(text.encode()) + parser.close()
    return events, parser


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "stream.jsonl"
    path.write_text(stream())
    return path


# ---------------------------------------------------------------- big files


def test_the_run_may_be_looked_at_between_any_two_events_of_a_big_file(path: Path) -> None:
    expected, parser = parsed(path.read_text(), spans=True)
    events = headrace.events(path, dialect="evosci", spans=True)
    got: list[Any] = []
    while some := list(itertools.islice(events, 3_001)):
        got += some
        report, run = events.report, events.run
        given = got[-1]["extra"]["span"]
        # It is of what was read: that is a little ahead, and never behind.
        assert given["offset"] + given["bytes"] <= report.bytes <= given["offset"] + (1 << 20)
        assert sum(len(text) for text in run.texts) >= sum(
            len(event["update"]["content"]["text"])
            for event in got
            if event["update"]["sessionUpdate"] == "agent_message_chunk"
        )
    assert got == expected
    assert events.run.to_dict() == parser.run.to_dict()
    assert events.report == parser.report


def test_a_bad_line_of_a_big_file_is_told_of_when_it_is_reached(tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    path.write_text(stream(bad=LINES * 3 // 4))
    told: list[Any] = []
    events = headrace.events(path, dialect="evosci", spans=True, on_malformed=told.append)
    for event in events:
        line = event["extra"]["span"]["line"]
        assert bool(told) or line <= LINES * 3 // 4
        assert not told or line > LINES * 3 // 4 - 4_000  # events are made some at a time
    assert [line["line"] for line in told] == [LINES * 3 // 4 + 1]


def test_all_events_before_a_bad_line_come_before_its_error(tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    text = stream(bad=LINES * 3 // 4)
    path.write_text(text)
    expected, _ = parsed(text[: text.index(BAD)])
    events = headrace.events(path, dialect="evosci", strict=True)
    got = []
    with pytest.raises(headrace.MalformedLine) as caught:
        got.extend(events)
    # What the end of the stream would bring is not in them.
    assert got == expected[: len(got)]
    assert len(expected) - len(got) <= 1
    assert caught.value.line == LINES * 3 // 4 + 1
    assert list(events) == []


def test_an_error_of_on_malformed_ends_a_big_file_after_the_events_before_it(tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    path.write_text(stream(bad=LINES * 3 // 4))

    def call(line: Any) -> None:
        raise RuntimeError("enough")

    events = headrace.events(path, dialect="evosci", spans=True, on_malformed=call)
    lines: list[int] = []
    with pytest.raises(RuntimeError, match="enough"):
        lines.extend(event["extra"]["span"]["line"] for event in events)
    assert lines[-1] == LINES * 3 // 4
    assert list(events) == []
    assert events.run.texts


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_a_forked_child_goes_on_with_a_big_file_or_says_why_not(path: Path) -> None:
    """Its parser may be in the hands of a thread that is not there."""
    expected = list(headrace.events(path, dialect="evosci"))
    events = headrace.events(path, dialect="evosci")
    before = list(itertools.islice(events, LINES // 2))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            rest = list(events)
            # a file object of Python, which the pure backend reads, has one place for both
            code = 0 if headrace.backend == "python" or before + rest == expected else 2
        except headrace.SourceError as error:
            code = 0 if "open the source again" in str(error) else 3
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert headrace.backend == "python" or before + list(events) == expected


# ---------------------------------------------------------------- what waits in an intake


@pytest.mark.once
@pytest.mark.skipif(os.name != "posix", reason="descriptors of pipes")
@pytest.mark.parametrize("folder", sorted({stream.name.split("/")[0] for stream in recordings()}))
def test_what_waits_is_told_alike_in_every_dialect(folder: str) -> None:
    """Some blocks of a stream wait: all but the first are parsed ahead. Every kind of event comes out as it went in."""
    streams = [stream.data for stream in recordings() if stream.name.startswith(folder + "/")]
    data = b"".join(streams)
    data *= 1 + 400_000 // len(data)
    options: dict[str, Any] = {"kinds": [*headrace.api.KINDS, "state"], "spans": True}
    whole, engine = _backend.Engine(**options), _backend.Engine(**options)
    expected = whole.feed(data) + whole.close()
    intake = headrace.Intake()
    read, write = os.pipe()
    stream = intake.add(read, folder)
    os.close(read)
    with open(write, "wb") as pipe:
        pipe.write(data)
    while intake.total(stream) < len(data):
        time.sleep(0.001)
    got: list[Any] = []
    was_ahead = False
    tap = intake.tap(stream)
    while (events := tap.feed(engine)) is not None or not tap.is_over:
        got += events or ()
        was_ahead = was_ahead or tap.is_ahead
    got += engine.close()
    intake.close()
    assert got == expected
    assert (engine.run(), engine.report(), engine.detection) == (whole.run(), whole.report(), whole.detection)
    assert was_ahead == (headrace.backend == "native" and len(os.sched_getaffinity(0)) > 1)


# ---------------------------------------------------------------- processes whose consumer is slow


def cat(path: Path) -> list[str]:
    return ["cat", str(path)]


@pytest.mark.skipif(os.name != "posix", reason="process groups are of POSIX")
def test_a_slow_consumer_has_every_event_once_and_in_order(path: Path) -> None:
    expected, parser = parsed(path.read_text())
    with nothing_left():
        with headrace.Process(cat(path), dialect="evosci") as process:
            got = []
            for event in process:
                got.append(event)
                if len(got) % 5_000 == 1:
                    time.sleep(0.02)  # the rest of the stream waits
                    assert process.run.texts
                    assert process.report.bytes > 0
        assert got == expected
        assert process.run.to_dict()["messages"] == parser.run.to_dict()["messages"]
        assert process.report == parser.report
        del process


@pytest.mark.skipif(os.name != "posix", reason="process groups are of POSIX")
def test_many_slow_consumers_in_a_loop_have_every_event_once_and_in_order(path: Path) -> None:
    expected, _ = parsed(path.read_text())

    async def one(number: int) -> list[Any]:
        got: list[Any] = []
        async with headrace.AsyncProcess(cat(path), dialect="evosci") as process:
            if number % 2:
                async for event in process:
                    got.append(event)
            else:
                async for events in process.batches():
                    got += events
                    events.clear()
                    time.sleep(0.0005)
        assert process.run.verdict.outcome == "completed"
        return got

    async def main() -> list[list[Any]]:
        return await asyncio.gather(*(one(number) for number in range(6)))

    with nothing_left():
        for got in asyncio.run(main()):
            assert got == expected


@pytest.mark.skipif(os.name != "posix", reason="process groups are of POSIX")
def test_an_event_stays_as_it_is_whatever_other_streams_of_the_intake_tell(path: Path) -> None:
    """Dicts that nobody has any more are used again, for all streams. Not those that are kept, or were changed."""
    expected, _ = parsed(path.read_text())

    async def one(number: int) -> list[tuple[int, Any]]:
        kept: list[tuple[int, Any]] = []
        count = 0
        async with headrace.AsyncProcess(cat(path), dialect="evosci") as process:
            async for events in process.batches():
                for event in events:
                    assert event == expected[count]
                    if count % (5 + number) == 0:
                        kept.append((count, event))
                    elif count % 7 == 0:
                        event["update"]["content"] = number
                    elif count % 11 == 0:
                        event["mine"] = event["update"].pop("sessionUpdate")
                    count += 1
                    if count % 1_000 == 500:
                        await asyncio.sleep(0)  # what is made now is of others, and this one has the rest of its list
        assert count == len(expected)
        return kept

    async def main() -> list[list[tuple[int, Any]]]:
        return await asyncio.gather(*(one(number) for number in range(6)))

    for kept in asyncio.run(main()):
        for count, event in kept:
            assert event == expected[count]


class Mine:
    """Something of the user's."""


@pytest.mark.skipif(os.name != "posix", reason="process groups are of POSIX")
def test_what_was_put_into_an_event_is_not_kept_by_an_intake_that_others_use(path: Path) -> None:
    intake = headrace.Intake()
    with headrace.Process(cat(path), dialect="evosci", intake=intake) as process:
        for event in process:
            event["mine"] = mine = Mine()
    del event
    ref = weakref.ref(mine)
    del mine
    gc.collect()
    assert ref() is None
    intake.close()


@pytest.mark.skipif(os.name != "posix", reason="process groups are of POSIX")
def test_a_process_that_was_put_into_its_own_event_is_let_go(path: Path) -> None:
    with nothing_left():
        process = headrace.Process(cat(path), dialect="evosci")
        for event in itertools.islice(process, 1_000):
            event["mine"] = process
        ref = weakref.ref(process)
        del process, event
        gc.collect()
        assert ref() is None


@pytest.mark.skipif(os.name != "posix", reason="process groups are of POSIX")
def test_what_was_printed_before_it_was_stopped_is_all_there(path: Path) -> None:
    """A harness that prints much and then hangs is stopped by its caller while most of that waits."""
    code = f"import sys, time; sys.stdout.write(open({str(path)!r}).read()); sys.stdout.flush(); time.sleep(60)"
    expected, _ = parsed(path.read_text())
    with headrace.Process([sys.executable, "-S", "-c", code], dialect="evosci", linger=None) as process:
        got = list(itertools.islice(process, 2_000))
        while process._intake.total(process._out) < path.stat().st_size:
            time.sleep(0.005)
        process.interrupt()
        got += process
    assert got == expected
    assert process.returncode == -signal.SIGINT
    assert process.run.verdict.outcome == "completed"  # it had said so before


@pytest.mark.skipif(os.name != "posix", reason="process groups are of POSIX")
def test_a_listener_that_comes_late_hears_what_is_read_from_then_on(path: Path) -> None:
    text = path.read_text()
    heard: list[str] = []
    with headrace.Process(cat(path), dialect="evosci") as process:
        got = list(itertools.islice(process, 500))
        time.sleep(0.1)
        process.on("stdout", heard.append)
        got += process
    assert got == parsed(text)[0]
    said = "".join(heard)
    assert said
    assert text.endswith(said)


@pytest.mark.skipif(os.name != "posix", reason="process groups are of POSIX")
def test_a_process_that_is_left_in_the_middle_leaves_nothing(path: Path) -> None:
    with nothing_left():
        for _ in range(5):
            with headrace.Process(cat(path), dialect="evosci") as process:
                for number, _ in enumerate(process):
                    if number == 1_000:
                        time.sleep(0.01)
                    if number == 3_000:
                        break
            del process


@pytest.mark.skipif(os.name != "posix", reason="process groups are of POSIX")
def test_another_thread_may_look_at_the_run_at_any_moment(path: Path) -> None:
    """Even while objects are made: the garbage collector may run code of others then, and another thread."""
    seen: list[int] = []
    failed: list[BaseException] = []
    with headrace.Process(cat(path), dialect="evosci") as process:

        def look() -> None:
            try:
                while process.returncode is None or not process.is_over:
                    seen.append(len(process.run.texts))
            except BaseException as error:  # as a listener of the user's would
                failed.append(error)

        def pause(*_: object) -> None:
            time.sleep(0)

        thread = threading.Thread(target=look)
        gc.callbacks.append(pause)
        try:
            thread.start()
            count = 0
            for _ in process:
                count += 1
                if count % 4_000 == 0:
                    time.sleep(0.02)
            thread.join()
        finally:
            gc.callbacks.remove(pause)
    assert not failed
    assert seen == sorted(seen)
    assert count == len(parsed(path.read_text())[0])
