"""A big file is decoded ahead by other threads; what comes out tells nothing of it."""

from __future__ import annotations

import gzip
import itertools
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import headrace

from .mutate import mutated, repeated
from .truth import recordings

SIZE = 3_000_000
SMALL = [stream for stream in recordings() if stream.path.stat().st_size < 12_000]
FOLDERS = ("acp-claude", "claude", "codex", "copilot", "droid", "evosci", "gemini", "kimi", "opencode", "pi", "qwen")


def big(folder: str) -> bytes:
    """Streams of a folder again and again: with other values, with damage, and as they are."""
    rng = random.Random(folder)
    streams = [stream.data for stream in SMALL if stream.name.startswith(folder + "/")]
    parts: list[bytes] = []
    size = 0
    while size < SIZE:
        change = rng.choice((mutated, repeated, None))
        data = rng.choice(streams)
        parts.append(data if change is None else change(data, rng))
        size += len(parts[-1])
    return b"".join(parts)


def told(parser: Any) -> Any:
    return parser.run.to_dict(), parser.run.ledger, parser.report


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_big_file_gives_what_its_bytes_give(folder: str, tmp_path: Path) -> None:
    data = big(folder)
    path = tmp_path / "big.jsonl"
    path.write_bytes(data)
    parser = headrace.Parser(spans=True)
    expected = list(
        itertools.chain.from_iterable(parser.feed(data[at : at + 50_000]) for at in range(0, len(data), 50_000))
    )
    expected += parser.close()
    events = headrace.events(path, spans=True)
    assert list(events) == expected
    assert told(events) == told(parser)
    assert headrace.reduce(path).to_dict() == parser.run.to_dict()

    def read(source: Any) -> list[Any]:
        return [(record.line, record.offset, record.raw, record.type) for record in headrace.records(source)]

    assert read(path) == read([data])


def test_a_big_compressed_file_gives_what_its_bytes_give(tmp_path: Path) -> None:
    data = big("pi")
    path = tmp_path / "big.jsonl.gz"
    path.write_bytes(gzip.compress(data, 1))
    assert [record.raw for record in headrace.records(path)] == [record.raw for record in headrace.records([data])]


def dicts(path: Path) -> list[Any]:
    return [record.to_dict() for record in headrace.records(path)]


def test_many_big_files_can_be_read_side_by_side(tmp_path: Path) -> None:
    paths = [tmp_path / folder for folder in ("pi", "claude", "codex")]
    for path in paths:
        path.write_bytes(big(path.name))
    expected = [dicts(path) for path in paths]
    found: dict[Path, list[Any]] = {}
    threads = [threading.Thread(target=lambda path=path: found.update({path: dicts(path)})) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[path] for path in paths] == expected


def threads() -> int:
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else threading.active_count()


def test_a_reader_that_is_dropped_in_the_middle_leaves_no_threads_behind(tmp_path: Path) -> None:
    path = tmp_path / "big.jsonl"
    path.write_bytes(big("pi"))
    before = threads()
    for _ in range(20):
        for _ in itertools.islice(headrace.events(path), 10_000):
            pass
    deadline = time.monotonic() + 30
    while threads() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threads() <= before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_a_forked_child_reads_big_files_too(tmp_path: Path) -> None:
    """The threads stay with the parent."""
    path = tmp_path / "big.jsonl"
    path.write_bytes(big("pi"))
    expected = dicts(path)
    begun = headrace.records(path)
    before = [record.to_dict() for record in itertools.islice(begun, len(expected) * 2 // 3)]
    child = os.fork()
    if child == 0:
        right = dicts(path) == expected and before + [record.to_dict() for record in begun] == expected
        os._exit(0 if right else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert before + [record.to_dict() for record in begun] == expected


LINES = b"".join(b'{"type": "text", "content": "%d"}\n' % n for n in range(300_000))


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_a_file_that_is_cut_while_it_is_read_gives_an_error(packed: bool, tmp_path: Path) -> None:
    """As by a harness that writes its session anew. It must not end the process, nor look like the end of a run."""
    path = tmp_path / "session.jsonl"
    noise = random.Random(1).randbytes(4 << 20).hex()
    lines = b"".join(
        b'{"type": "text", "content": "%b"}\n' % noise[at : at + 80].encode() for at in range(0, len(noise), 80)
    )
    path.write_bytes(gzip.compress(lines, 1) if packed else lines)
    events = headrace.events(path, dialect="evosci")
    assert next(events)["update"]["content"]["text"] == noise[:80]
    os.truncate(path, 2 << 20)
    with pytest.raises(headrace.SourceError, match=r"session.jsonl.*became shorter while it was read"):
        list(events)


@pytest.mark.parametrize("cut", [100, 300_001, (2 << 20) + 100_001])
def test_what_is_left_of_a_file_that_is_cut_is_read_before_the_error(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(LINES)
    records = headrace.records(path)
    told = [next(records)["content"]]
    os.truncate(path, cut)
    with pytest.raises(headrace.SourceError, match="became shorter"):
        told += (record["content"] for record in records)
    assert len(told) >= LINES[:cut].count(b"\n")
    assert told == [str(number) for number in range(len(told))]


def test_a_file_that_is_made_empty_while_it_is_read_gives_an_error(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(LINES)
    records = headrace.records(path)
    assert next(records)["content"] == "0"
    path.write_bytes(b"")
    with pytest.raises(headrace.SourceError, match="became shorter"):
        list(records)


def test_what_is_appended_to_a_file_while_it_is_read_is_read(tmp_path: Path) -> None:
    count = 300_000 if headrace.backend == "native" else 30_000  # more than is read at once, and decoded ahead
    path = tmp_path / "session.jsonl"
    path.write_bytes(b"".join(LINES.splitlines(keepends=True)[:count]))
    events = headrace.events(path, dialect="evosci")
    next(events)
    with path.open("ab") as file:
        file.write(b'{"type": "text", "content": "the last"}\n' * 3)
    texts = [event["update"]["content"]["text"] for event in events]
    assert texts == [*map(str, range(1, count)), *["the last"] * 3]
