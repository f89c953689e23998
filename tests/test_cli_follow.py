"""``headrace follow``: a session file on the screen while it grows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.live import DONE, TEXT

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are of POSIX")

COMMAND = [sys.executable, "-m", "headrace", "follow", "--dialect", "evosci"]


def follow(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, timeout=60)


def test_it_shows_what_is_there_and_ends_when_nothing_comes(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text(TEXT % 1 + '{"type": "text", "content": "\\u001b[2Jgone"}\n' + DONE + '{"type": "te')
    done = follow("--idle-timeout", "0.1", str(path))
    assert done.returncode == 0
    assert done.stdout.startswith(b"1\\x1b[2Jgone\n")
    assert b"verdict     completed" in done.stdout
    assert done.stderr == b""


def test_json_has_restarts_and_where_to_go_on(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text(TEXT % 1)
    with subprocess.Popen([*COMMAND, "--json", str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["update"]["content"]["text"] == "1"
        (tmp_path / "new").write_text(TEXT % 2 + TEXT % 3)
        os.replace(tmp_path / "new", path)
        assert json.loads(process.stdout.readline()) == {"restart": "replaced"}
        for text in ("2", "3"):
            assert json.loads(process.stdout.readline())["update"]["content"]["text"] == text
        process.send_signal(signal.SIGINT)
        (last,) = process.stdout.read().splitlines()
    assert process.returncode == 130
    assert json.loads(last)["run"]["texts"] == ["23"]
    offset = json.loads(last)["offset"]
    assert offset == path.stat().st_size
    with open(path, "a") as file:
        file.write(TEXT % 4)
    done = follow("--json", "--offset", str(offset), "--idle-timeout", "0", str(path))
    assert json.loads(done.stdout.splitlines()[0])["update"]["content"]["text"] == "4"


def test_a_file_may_come_later(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    with subprocess.Popen([*COMMAND, str(path)], stdout=subprocess.PIPE) as process:
        time.sleep(0.3)
        path.write_text(TEXT % 1)
        assert process.stdout is not None
        assert process.stdout.read(1) == b"1"
        process.send_signal(signal.SIGINT)
        assert b"verdict     incomplete" in process.stdout.read()
    assert process.returncode == 130


def test_a_folder_is_refused(tmp_path: Path) -> None:
    done = follow(str(tmp_path))
    assert done.returncode == 2
    assert str(tmp_path).encode() in done.stderr
