"""Threads may share what reads a stream: an iterator, a parser."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import headrace

LINES = [b'{"type": "text", "content": "%d"}\n' % number for number in range(400)]
MIDDLE = "in the middle of a step"


def slow() -> Iterator[bytes]:
    """Hands over to another thread in the middle of each step."""
    for line in LINES:
        time.sleep(0.0001)
        yield line


def pipe() -> int:
    out, into = os.pipe()

    def write() -> None:
        with open(into, "wb", buffering=0) as file:
            for line in LINES:
                file.write(line)

    threading.Thread(target=write, daemon=True).start()
    return out


def texts(event: dict[str, Any]) -> str:
    text: str = event["update"]["content"]["text"]
    return text


@pytest.mark.parametrize("source", [slow, pipe])
@pytest.mark.parametrize(
    ("read", "text"), [(headrace.events, texts), (headrace.records, lambda record: record["content"])]
)
def test_workers_may_share_an_iterator_and_each_event_comes_once(
    source: Callable[[], Any], read: Any, text: Callable[[Any], str]
) -> None:
    opened = source()
    stream = read(opened)
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(lambda: [text(item) for item in stream]) for _ in range(4)]
        got = [job.result() for job in jobs]
    assert sorted((text for part in got for text in part), key=int) == [str(number) for number in range(len(LINES))]
    assert all(part == sorted(part, key=int) for part in got)
    if isinstance(opened, int):
        os.close(opened)


def test_any_thread_may_ask_what_was_read_so_far() -> None:
    stream = headrace.events(slow(), dialect="evosci")
    counts: list[int] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            assert stream.dialect == "evosci"
            counts.append(len("".join(stream.run.texts)) + stream.report.records)

    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(look) for _ in range(2)]
        try:
            assert len(list(stream)) == len(LINES)
        finally:
            over.set()
        for job in jobs:
            job.result()
    assert counts


def test_threads_may_feed_one_parser() -> None:
    parser = headrace.Parser(dialect="evosci")
    with ThreadPoolExecutor(4) as pool:
        fed = sum(len(events) for events in pool.map(parser.feed, LINES))
    assert fed + len(parser.close()) == len(LINES)
    assert parser.report.records == len(LINES)


@pytest.mark.parametrize("read", [headrace.events, headrace.records])
@pytest.mark.parametrize("ask", [next, lambda stream: stream.report, lambda stream: stream.dialect])
def test_a_callback_that_asks_its_own_stream_is_told_why_it_can_not(read: Any, ask: Callable[[Any], Any]) -> None:
    stream = read([LINES[0], b"{\n", LINES[1]], on_malformed=lambda line: ask(stream))
    with pytest.raises(headrace.HeadraceError, match=MIDDLE):
        list(stream)
    assert stream.report.malformed == 1  # it can be asked afterwards

    def asks() -> Iterator[bytes]:
        yield LINES[0]
        ask(stream)

    stream = read(asks())
    with pytest.raises(headrace.HeadraceError, match=MIDDLE):
        list(stream)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_is_not_held_up_by_a_thread_that_is_not_there() -> None:
    entered, go = threading.Event(), threading.Event()

    def held() -> Iterator[bytes]:
        entered.set()
        go.wait()
        yield from LINES

    stream = headrace.events(held(), dialect="evosci")
    reader = threading.Thread(target=lambda: list(stream))
    reader.start()
    entered.wait()
    child = os.fork()
    if child == 0:
        try:
            _ = stream.report
        except headrace.SourceError:
            os._exit(0)
        finally:
            os._exit(1)
    go.set()
    reader.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert stream.report.records == len(LINES)
