"""Growing session files: each record once, whatever the writer does to the file."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace import _follow
from tests.live import DONE, TEXT, nothing_left, producer


def following(path: Path, **options: Any) -> headrace.Follow:
    return headrace.follow(path, **{"dialect": "evosci", "interval": 0.005, "idle_timeout": 0.05, **options})


def texts(events: Any) -> list[str]:
    return [event["update"]["content"]["text"] for event in events]


def lines(*numbers: int) -> str:
    return "".join(TEXT % number for number in numbers)


def test_a_torn_last_line_waits_for_its_rest(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    writer = subprocess.Popen([sys.executable, str(producer("91", tmp_path)), str(path)])
    with headrace.follow(path, interval=0.02, idle_timeout=3) as follow:
        list(follow)
    writer.wait()
    assert follow.dialect == "claude-transcript"
    assert follow.report.records == 3
    assert follow.report.malformed == 1
    assert follow.run.texts == ["split \u6f22\u5b57 text", "last"]
    assert follow.offset == path.stat().st_size


def test_stopping_and_going_on_at_any_moment_gives_each_record_once(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    writer = subprocess.Popen([sys.executable, str(producer("91", tmp_path)), str(path)])
    offset = records = malformed = 0
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and (writer.poll() is None or offset < path.stat().st_size):
        with headrace.follow(path, dialect="claude-transcript", offset=offset, interval=0.01, idle_timeout=0) as follow:
            list(follow)
        records += follow.report.records
        malformed += follow.report.malformed
        offset = follow.offset
        assert not offset or path.read_bytes()[offset - 1 : offset] == b"\n"
    assert (records, malformed) == (3, 1)


def test_a_file_may_come_later_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_follow, "_SETTLE", 5)
    path = tmp_path / "session.jsonl"
    with nothing_left():
        follow = following(path, idle_timeout=10)
        threading.Timer(0.05, path.write_text, [lines(1)]).start()
        assert texts([next(follow)]) == ["1"]
        path.unlink()
        threading.Timer(0.05, path.write_text, [lines(1, 2)]).start()
        assert texts([next(follow)]) == ["2"]  # it begins as what was read
        follow.close()
        assert not list(follow)
        assert follow.restarts == []


@pytest.mark.skipif(headrace.backend != "native" or sys.platform != "linux", reason="only inotify tells")
@pytest.mark.parametrize("way", ["append", "replace", "come"])
def test_a_change_is_told_and_need_not_be_looked_for(way: str, tmp_path: Path) -> None:
    path, new = tmp_path / "session.jsonl", tmp_path / "new"
    with nothing_left():
        if way != "come":
            path.write_text(lines(1))
        follow = following(path, interval=60, idle_timeout=100)
        if way != "come":
            assert texts([next(follow)]) == ["1"]

        def change() -> None:
            (tmp_path / "another").write_text("not this one")
            if way == "replace":
                new.write_text(lines(2))
                os.replace(new, path)
            else:
                with open(path, "a") as file:
                    file.write(lines(2)[:10])
                    file.flush()
                    time.sleep(0.01)
                    file.write(lines(2)[10:])

        threading.Timer(0.05, change).start()
        started = time.monotonic()
        assert texts([next(follow)]) == ["2"]
        threading.Timer(0.05, follow.close).start()
        assert not list(follow)
        assert time.monotonic() - started < 10
        del follow


def test_a_folder_may_come_later_and_go(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "session.jsonl"
    follow = following(path, idle_timeout=10)
    for text in (1, 2):
        threading.Timer(0.03, lambda text=text: (path.parent.mkdir(), path.write_text(lines(text)))).start()
        assert texts([next(follow)]) == [str(text)]
        path.unlink()
        path.parent.rmdir()
    assert follow.restarts == ["replaced"]
    follow.close()


def test_a_file_that_is_written_anew_is_read_on_if_it_begins_the_same(tmp_path: Path) -> None:
    path, new = tmp_path / "session.jsonl", tmp_path / "new"
    path.write_text(lines(1, 2))
    follow = following(path, idle_timeout=10)
    assert texts([next(follow), next(follow)]) == ["1", "2"]
    new.write_text(lines(1, 2, 3))
    os.replace(new, path)
    assert texts([next(follow)]) == ["3"]
    assert follow.restarts == []


@pytest.mark.parametrize("way", ["in place", "as another file"])
def test_a_file_that_is_being_written_anew_is_no_other_file(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer has opened it, and has not written everything that was there before."""
    monkeypatch.setattr(_follow, "_SETTLE", 5)
    path = tmp_path / "session.jsonl"
    path.write_text(lines(1, 2))
    follow = following(path, interval=0.001, idle_timeout=10)
    assert texts([next(follow), next(follow)]) == ["1", "2"]

    def write() -> None:
        if way != "in place":
            path.unlink()
        with open(path, "w") as file:
            for part in (lines(1), lines(2) + lines(3)):
                time.sleep(0.02)
                file.write(part)
                file.flush()

    threading.Timer(0.05, write).start()
    assert texts([next(follow)]) == ["3"]
    assert follow.restarts == []


@pytest.mark.parametrize("way", ["replaced", "truncated", "rewritten", "rewritten longer", "rewritten in the middle"])
def test_another_content_is_read_from_its_beginning(way: str, tmp_path: Path) -> None:
    path, new = tmp_path / "session.jsonl", tmp_path / "new"
    path.write_text(lines(1, 2, 3))
    told: list[str] = []
    follow = following(path, idle_timeout=10, on_restart=told.append)
    assert texts([next(follow) for _ in range(3)]) == ["1", "2", "3"]
    time.sleep(0.02)  # coarse clocks of file systems
    if way == "replaced":
        new.write_text(lines(4, 5))
        os.replace(new, path)
        expected = ["4", "5"]
    elif way == "truncated":
        path.write_text(lines(4))
        expected = ["4"]
    elif way == "rewritten":
        path.write_text(lines(4, 5, 6))  # same inode, same size
        expected = ["4", "5", "6"]
    elif way == "rewritten longer":
        path.write_text(lines(4, 5, 6, 7))
        expected = ["4", "5", "6", "7"]
    else:
        with open(path, "r+b") as file:  # one byte, in place
            file.seek(len(lines(1)) + lines(2).index("2"))
            file.write(b"9")
        expected = ["1", "9", "3"]
    assert texts([next(follow) for _ in expected]) == expected
    assert told == follow.restarts == [way.split()[0]]
    assert follow.report.bytes == path.stat().st_size


def test_what_an_old_file_still_got_is_read_before_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text(lines(1))
    follow = following(path, idle_timeout=10)
    assert texts([next(follow)]) == ["1"]
    with open(path, "a") as old:
        os.rename(path, tmp_path / "session.jsonl.1")
        old.write(lines(2))
    path.write_text(lines(3))
    assert texts([next(follow), next(follow)]) == ["2", "3"]
    assert follow.restarts == ["replaced"]


def test_a_line_that_is_never_finished_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text(lines(1) + DONE[:-1])
    follow = following(path)
    assert texts(follow) == ["1"]
    assert follow.offset == len(lines(1))
    assert not follow.report.truncated
    with open(path, "a") as file:
        file.write("\n")
    assert list(following(path, offset=follow.offset)) == []


def test_a_long_line_in_small_pieces_costs_no_more_than_its_length(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    text = "x" * 2_000_000
    line = '{"type": "text", "content": "' + text + '"}\n'

    def write() -> None:
        with open(path, "a") as file:
            for at in range(0, len(line), 20_000):
                file.write(line[at : at + 20_000])
                file.flush()

    writer = threading.Thread(target=write)
    writer.start()
    assert texts([next(following(path, idle_timeout=10))]) == [text]
    writer.join()


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(headrace.SourceError, match="no regular file"):
        next(headrace.follow(tmp_path))
    with pytest.raises(ValueError, match="before the beginning"):
        headrace.follow(tmp_path, offset=-1)
    with pytest.raises(headrace.UnknownDialect):
        headrace.follow(tmp_path, dialect="klingon").run  # noqa: B018


@pytest.mark.parametrize("data", [gzip.compress(b"{}\n"), b"\x28\xb5\x2f\xfd more"], ids=["gzip", "zstd"])
def test_a_compressed_file_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(data)
    with following(path) as follow, pytest.raises(headrace.SourceError, match="it is compressed"):
        next(follow)


def test_a_line_longer_than_lines_may_be_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    with open(path, "w") as file, following(path, max_line_bytes=100, idle_timeout=10) as follow:
        file.write(lines(1) + "x" * 5_000_000)
        file.flush()
        assert texts([next(follow)]) == ["1"]
        assert follow.offset == len(lines(1))
        file.write("x\n" + lines(2))
        file.flush()
        assert texts([next(follow)]) == ["2"]
        assert len(follow._rest) == 0
        assert follow.offset == path.stat().st_size
        (line,) = follow.report.malformed_lines
        assert (line["line"], line["reason"]) == (2, "line too long")
