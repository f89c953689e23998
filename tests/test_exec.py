"""``headrace exec``: a harness is run, shown live, and its verdict is the exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.live import producer, python

pytestmark = pytest.mark.skipif(os.name != "posix", reason="process groups are of POSIX")


def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "headrace", "exec", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=60)


def test_it_shows_what_is_said_and_ends_with_the_verdict(tmp_path: Path) -> None:
    done = run("--linger", "0.2", "--", sys.executable, str(producer("48", tmp_path)))
    assert done.returncode == 0
    assert done.stdout.startswith(b"All set.\n")
    assert b"verdict     completed (success)" in done.stdout
    assert done.stderr == b""


def test_json_is_events_and_then_the_run() -> None:
    code = "sys.stderr.write('careful\\n'); write(TEXT % 1); write(DONE)"
    done = run("--json", "--dialect", "evosci", "--", *python(code))
    event, last = map(json.loads, done.stdout.splitlines())
    assert event["update"]["content"]["text"] == "1"
    assert last["run"]["verdict"]["outcome"] == "completed"
    assert last["exit_code"] == 0
    assert done.stderr == b"careful\n"


def test_the_exit_code_is_the_verdict() -> None:
    assert run("--", *python("sys.exit(7)")).returncode == 1
    assert run("--timeout", "0.2", "--", "sleep", "60").returncode == 124
    assert run("--idle-timeout", "0.2", "--", "sleep", "60").returncode == 124
    missing = run("--", "headrace-no-such-program")
    assert missing.returncode == 2
    assert b"can't start" in missing.stderr


def test_standard_input_can_be_given() -> None:
    code = "write(TEXT % len(sys.stdin.read())); write(DONE)"
    assert run("--stdin", "--dialect", "evosci", "--", *python(code), stdin=b"prompt").stdout.startswith(b"6\n")
    assert run("--dialect", "evosci", "--", *python(code), stdin=b"prompt").stdout.startswith(b"0\n")


def test_ctrl_c_interrupts_the_harness() -> None:
    code = "write(TEXT % 1); time.sleep(60)"
    command = [sys.executable, "-m", "headrace", "exec", "--json", "--dialect", "evosci", "--", *python(code)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        (last,) = process.stdout.read().splitlines()
    assert json.loads(last)["run"]["verdict"]["outcome"] == "cancelled"
    assert process.returncode == 130
    assert time.monotonic() - started < 10


def test_what_a_terminal_would_act_on_is_not_printed() -> None:
    code = r"""write('{"type": "text", "content": "\\u001b[2Jgone"}\n'); write(DONE)"""
    assert b"\x1b" not in run("--dialect", "evosci", "--", *python(code)).stdout


def on_a_terminal(code: str) -> bytes:
    """What reaches a terminal from the stderr of a harness."""
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "headrace", "exec", "--dialect", "evosci", "--", *python(code)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        shown = bytearray()
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # what Linux says at the end of a terminal
                break
            if not piece:
                break
            shown += piece
        process.communicate()
    os.close(ours)
    return bytes(shown)


def test_stderr_reaches_a_terminal_in_the_safe_form_and_a_file_as_it_is() -> None:
    text = "\x1b]52;c;cm0gLXJm\x07\x9b2J caf\u00e9 \u202e\r"
    code = f"""
        for byte in {text!r}.encode(): os.write(2, bytes([byte])); time.sleep(0.002)
        os.write(2, b"\\xff end\\n"); write(DONE)
    """
    shown = on_a_terminal(code)
    for acting in (b"\x1b", b"\x07", "\x9b".encode(), "\u202e".encode()):
        assert acting not in shown
    assert b"\\x1b]52;c;cm0gLXJm\\x07\\x9b2J caf\xc3\xa9 \\u202e\\x0d\xef\xbf\xbd end" in shown
    assert run("--dialect", "evosci", "--", *python(code)).stderr == text.encode() + b"\xff end\n"
