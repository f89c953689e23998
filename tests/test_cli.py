"""The command line: what is shown, what a script can rely on, and that nothing on the wire can reach the terminal."""

from __future__ import annotations

import gzip
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import headrace
from headrace.cli import source
from headrace.cli.app import VERBS, app
from headrace.cli.safe import one_line, safe, safe_json
from headrace.cli.summary import show
from headrace.dump import dumps

ROOT = Path(__file__).parents[1]
RECORDINGS = Path(__file__).parent / "data" / "recordings"
TOOLS = RECORDINGS / "pi" / "tools.jsonl.gz"
FAILED = RECORDINGS / "pi" / "fatal.jsonl.gz"
CUT = RECORDINGS / "pi" / "killed-cut.jsonl.gz"

SAID = b'{"type": "text", "content": "Hi"}\n{"type": "usage_stats", "input_tokens": 3, "output_tokens": 1}\n'
DONE = b'{"type": "done", "content": "Hi", "response": "Hi"}\n'
COMMAND = [sys.executable, "-m", "headrace"]


def run(*arguments: str | Path, stdin: bytes = b"") -> Result:
    """The command in this process."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin, prog_name="headrace")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def process(*arguments: str | Path, stdin: bytes = b"", **options: Any) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own."""
    return subprocess.run([*COMMAND, *map(str, arguments)], input=stdin, capture_output=True, timeout=60, **options)


# ---------------------------------------------------------------- run


def test_run_shows_how_it_ended_and_what_was_done() -> None:
    result = process("run", TOOLS)
    assert (result.returncode, result.stderr) == (0, b"")
    lines = result.stdout.decode().splitlines()
    assert lines[:3] == [
        str(TOOLS),
        "verdict     completed (stop)",
        "            line 168, byte 73,463: terminal record",
    ]
    assert "answer      All is done ✅. notes.txt has three lines." in lines
    assert "calls       8: 6 ok, 2 failed" in lines
    assert "            failed  execute         67 ms  `echo before; exit 3`  exit code 3" in lines
    assert "            failed  read            23 ms  Read missing.txt" in lines
    assert "usage       7 model calls: 31,108 prompt (2,800 cached), 308 completion tokens" in lines
    assert lines[-1] == "report      168 lines, 73,504 bytes: all read"
    assert "echo out-1; sleep 0.1" in result.stdout.decode()
    assert "\u2028" not in result.stdout.decode()


def test_run_says_what_the_report_has_against_the_stream() -> None:
    result = process("run", CUT)
    assert result.returncode == 1
    shown = result.stdout.decode()
    assert "verdict     incomplete\n" in shown
    assert "open    other" in shown
    assert re.search(
        r"report .*: 1 malformed, 0 records got back, the end is cut off\n +line 15, byte 9,162: cut off: ", shown
    )


@pytest.mark.parametrize(
    ("files", "code"),
    [([TOOLS], 0), ([FAILED], 1), ([CUT, TOOLS], 1), ([TOOLS, "missing"], 2), ([FAILED, "missing"], 2), ([ROOT], 2)],
)
def test_exit_codes_of_run(files: list[str | Path], code: int) -> None:
    assert run("run", *files).exit_code == code
    assert run("run", "--json", *files).exit_code == code


def test_a_file_that_cannot_be_read_keeps_nothing_from_the_others() -> None:
    result = run("run", "missing", TOOLS)
    assert "All is done" in result.stdout
    assert result.stderr.startswith("headrace: can't open")
    assert "missing" in result.stderr


def test_json_is_to_dict() -> None:
    result = run("run", "--json", TOOLS, FAILED)
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    assert documents == [headrace.reduce(TOOLS).to_dict(), headrace.reduce(FAILED).to_dict()]


ODD = (
    b'{"type": "tool_call", "id": "1", "name": "x", "args": {"n": %d, "x": [NaN, -Infinity, 1e999], "deep": %s}}\n'
    % (
        10**4299,
        b"[" * 1000 + b"]" * 1000,
    )
)


@pytest.mark.parametrize(("verb", "quote"), [(("run", "--json", "-"), ""), (("events", "-"), '"')])
def test_numbers_that_json_cannot_hold_are_null_and_integers_exact(verb: tuple[str, ...], quote: str) -> None:
    text = run(*verb, stdin=ODD + SAID + DONE).stdout
    assert f'"n":{quote}{10**4299}{quote},"x":[null,null,null],"deep":{"[" * 1000}]' in text
    assert "NaN" not in text.replace("bare NaN", "")


def test_what_the_caller_knows_besides(tmp_path: Path) -> None:
    assert "incomplete" in run("run", "-", stdin=SAID).stdout
    assert "cancelled (SIGINT)" in run("run", "--exit-code", "130", "-", stdin=SAID).stdout
    stderr = tmp_path / "stderr.txt"
    stderr.write_bytes(b"out of luck\xff\x1b[31m")
    shown = run("run", "--exit-code", "1", "--stderr", stderr, "-", stdin=b"").stdout
    assert "errors      fatal: out of luck\ufffd\\x1b[31m\n" in shown


def test_the_session_file_fills_in_too() -> None:
    stream, session = RECORDINGS / "codex" / "tools.jsonl.gz", RECORDINGS / "codex" / "tools.session.jsonl.gz"
    assert ", gpt-5.5\n" in run("run", "--transcript", session, stream).stdout
    assert "gpt" not in run("run", stream).stdout
    result = run("run", "--transcript", session, TOOLS)
    assert result.exit_code == 2
    assert result.stderr.startswith("headrace: ")
    assert "goes with one FILE" in run("run", "--transcript", session, stream, TOOLS).stderr


def test_long_things_are_cut_unless_asked_for() -> None:
    text = "\n".join(f"line {number}" for number in range(100))
    stream = b'{"type": "text", "content": %s}\n' % json.dumps(text).encode() + SAID.splitlines(True)[1]
    calls = b"".join(
        b'{"type": "tool_call", "id": "%d", "name": "execute", "args": {"command": "%s"}}\n' % (number, b"x" * 500)
        for number in range(50)
    )
    short, full = run("run", "-", stdin=stream + calls).stdout, run("run", "--full", "-", stdin=stream + calls).stdout
    assert "line 39" in short
    assert "line 40" not in short
    assert "more characters (--full shows them)" in short
    assert "… 10 more (--full shows them)" in short
    assert max(map(len, short.splitlines())) <= 120
    assert "line 99" in full
    assert "--full" not in full


def test_a_stream_of_nothing() -> None:
    result = run("run", "-", stdin=b"")
    assert result.exit_code == 1
    assert "no dialect found" in result.stdout
    assert "report      nothing was printed\n" in result.stdout


# ---------------------------------------------------------------- events


def test_events_are_those_of_the_api() -> None:
    for options, arguments in (
        ({}, []),
        ({"state": True}, ["--state"]),
        ({"only": {"tool_call", "usage"}}, ["--only", "tool_call,usage"]),
        ({"only": {"tool_call", "usage"}}, ["--only", "tool_call", "--only", "usage"]),
        ({"dialect": "pi"}, ["--dialect", "pi"]),
    ):
        result = process("events", *arguments, TOOLS)
        assert (result.returncode, result.stderr) == (0, b"")
        assert [json.loads(line) for line in result.stdout.split(b"\n")[:-1]] == list(headrace.events(TOOLS, **options))


def test_events_of_a_failed_run_were_read_all_the_same() -> None:
    assert run("events", FAILED).exit_code == 0


def test_wrong_usage() -> None:
    for arguments, message in (
        (("events", "--only", "nope", TOOLS), "'nope' is no event kind; there are: agent_message_chunk, "),
        (("events", "--dialect", "nope", TOOLS), "nope"),
        (("events",), "Missing argument"),
        (("run",), "Missing argument"),
        (("nope",), "No such command"),
    ):
        result = run(*arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert message in result.stderr


def test_strict_stops_at_the_malformed_line() -> None:
    result = run("events", "--strict", "-", stdin=SAID + b"oops\n" + DONE)
    assert result.exit_code == 2
    assert len(result.stdout.splitlines()) == 2
    assert result.stderr.startswith("headrace: <stdin>: line 3 (byte offset 97) is not valid JSON")
    assert run("run", "--strict", "-", stdin=SAID + b"oops\n" + DONE).exit_code == 2


@pytest.fixture
def live() -> Any:
    """A pipe on both sides of `headrace events -`."""
    command = [*COMMAND, "events", "-"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    with child:
        yield child
        child.kill()


def test_events_come_while_the_producer_still_runs(live: Any) -> None:
    live.stdin.write(SAID)
    assert json.loads(live.stdout.readline())["update"]["content"]["text"] == "Hi"
    live.stdin.write(b'{"type": "text", "con')
    live.stdin.write(b'tent": "Ho"}\n')
    assert json.loads(live.stdout.readline())["update"]["sessionUpdate"] == "usage"
    assert json.loads(live.stdout.readline())["update"]["content"]["text"] == "Ho"
    live.stdin.close()
    assert live.stdout.read() == b""
    assert (live.wait(), live.stderr.read()) == (0, b"")


def test_ctrl_c_is_quiet(live: Any) -> None:
    live.stdin.write(SAID)
    live.stdout.readline()
    live.send_signal(signal.SIGINT)
    assert (live.wait(), live.stderr.read()) == (130, b"")


def test_ctrl_c_while_run_waits_for_more() -> None:
    command = [*COMMAND, "run", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdin
        assert child.stderr
        child.stdin.write(b" " * (1 << 20))  # more than a pipe holds: it reads by now
        child.stdin.flush()
        child.send_signal(signal.SIGINT)
        assert (child.wait(), child.stderr.read()) == (130, b"")


def test_a_closed_pipe_is_quiet(live: Any) -> None:
    live.stdin.write(SAID)
    live.stdout.readline()
    live.stdout.close()
    live.stdin.write(SAID)
    assert (live.wait(), live.stderr.read()) == (141, b"")


def test_a_reader_that_leaves_a_large_file() -> None:
    for verb in (["events"], ["run", "--json"]):
        script = 'set -o pipefail; "$@" | head -c 1'
        command = ["bash", "-c", script, "bash", *COMMAND, *verb, RECORDINGS / "evosci" / "large.jsonl.gz"]
        result = subprocess.run(command, capture_output=True, timeout=60)
        assert (result.returncode, result.stderr) == (141, b"")
        assert result.stdout == b"{"


@pytest.mark.parametrize("verb", ["run", "check", "detect", "usage"])
def test_a_reader_that_leaves_what_is_for_people(verb: str, tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.jsonl" for number in range(400)]
    for path in paths:
        path.write_bytes(SAID + DONE)
    names = ["--by", "path", tmp_path] if verb == "usage" else paths
    child = subprocess.Popen([*COMMAND, verb, *names], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with child:
        assert child.stdout
        assert child.stderr
        child.stdout.read(1)
        child.stdout.close()
        assert (child.wait(), child.stderr.read()) == (141, b"")


def test_streams_that_the_caller_has_closed() -> None:
    def closed(redirection: str, *arguments: str | Path) -> tuple[int, bytes]:
        script = f'exec "$@" {redirection}'
        command = ["bash", "-c", script, "bash", *COMMAND, *map(str, arguments)]
        result = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
        return result.returncode, result.stderr

    said = b"headrace: can't write the output: standard output is closed\n"
    for verb in ("run", "events", "check", "detect", "usage"):
        assert closed(">&-", verb, TOOLS) == (2, said)
    assert closed(">&-", "exec", "--", "true") == (2, said)
    assert closed("2>&-", "run", "no-such-file") == (2, b"")
    assert closed("2>&-", "exec", "--", "bash", "-c", "echo oops >&2") == (1, b"")
    for verb in (("run", "-"), ("exec", "--stdin", "--", "cat")):
        assert closed("<&-", *verb) == (2, b"headrace: standard input is closed\n")


def test_standard_input_has_a_name_in_what_is_said() -> None:
    assert b"<stdin>: the gzip data ends inside" in process("run", "-", stdin=TOOLS.read_bytes()[:2000]).stderr
    assert b"<stdin>: the stream begins as UTF-16" in process("run", "-", stdin="{}".encode("utf-16")).stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_full_disk_is_no_success() -> None:
    for verb in ("events", "run", "detect"):
        with open("/dev/full", "wb") as full:
            result = subprocess.run([*COMMAND, verb, TOOLS], stdout=full, stderr=subprocess.PIPE, timeout=60)
        assert result.returncode == 2
        assert result.stderr == b"headrace: can't write the output: No space left on device\n"


def test_any_kind_of_file_is_a_source(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    child = subprocess.Popen([*COMMAND, "events", fifo], stdout=subprocess.PIPE)
    with child, open(fifo, "wb", buffering=0) as out:
        out.write(SAID)
        assert child.stdout
        assert b"Hi" in child.stdout.readline()  # a pipe by name is read as it comes, too
        out.close()
        assert child.wait() == 0
    assert process("run", "-", stdin=gzip.compress(SAID + DONE)).returncode == 0
    assert b"is a directory" in process("events", tmp_path).stderr.lower()


# ---------------------------------------------------------------- check


def test_check_gives_the_account_of_every_byte() -> None:
    result = run("check", TOOLS)
    assert result.exit_code == 0
    title, *account = result.stdout.splitlines()
    assert title == f"{TOOLS}: pi"
    assert [line[4:] for line in account] == headrace.reduce(TOOLS).report.explain().split("\n")


def test_check_finds_fault_with_what_cannot_be_read() -> None:
    assert run("check", "-", stdin=SAID + b'{"type": "mood"}\n').exit_code == 0
    for data in (SAID + b"oops\n", SAID[:-5], b'{"some": "thing"}\n', b""):
        assert run("check", "-", stdin=data).exit_code == 1
    assert run("check", TOOLS, "missing").exit_code == 2
    assert run("check", "--strict", CUT).exit_code == 2
    result = run("check", "--json", CUT, "-", stdin=SAID)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(entry["file"], entry["dialect"]) for entry in found] == [(str(CUT), "pi"), ("-", "evosci")]
    assert found[0]["report"] == headrace.reduce(CUT).report.to_dict()


# ---------------------------------------------------------------- detect


def test_detect_tells_what_decided(tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text('{"some": "thing"}\n')
    result = run("detect", TOOLS)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{TOOLS}: pi, session format 3 (100% sure)\n    line 1: a session header\n")
    result = run("detect", other, TOOLS)
    assert result.exit_code == 1
    assert result.stdout.startswith(f"{other}: no dialect found\n")
    result = run("detect", "--json", "-", "missing", stdin=SAID)
    assert result.exit_code == 2
    found = json.loads(result.stdout)
    assert found == {"file": "-", **headrace.detect(SAID)._asdict()}


# ---------------------------------------------------------------- the command as such


def test_help_has_examples_and_exit_codes() -> None:
    assert "Exit codes:" in run("--help").stdout
    for verb in VERBS:
        assert verb in run("--help").stdout
        for option in ("-h", "--help"):
            result = run(verb, option)
            assert result.exit_code == 0
            assert f"headrace {verb} " in result.stdout.split("Examples:")[1]
            assert "Exit codes: 0 " in result.stdout


def test_version() -> None:
    assert run("--version").stdout == f"headrace {headrace.__version__} ({headrace.backend} backend)\n"


@pytest.mark.parametrize("missing", ["click", "rich"])
@pytest.mark.parametrize(
    "start",
    ["from headrace.cli import main; main()", "import runpy; runpy.run_module('headrace', run_name='__main__')"],
)
def test_without_the_extra_it_says_what_to_install(missing: str, start: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; sys.argv = ['headrace', 'run', '-']; {start}"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert (result.returncode, result.stdout) == (2, b"")
    assert b'pip install "headrace[cli]"' in result.stderr
    assert result.stderr.count(b"\n") == 1


def on_a_terminal(arguments: list[str | Path], **environment: str) -> str:
    """What the command prints when stdout is a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    known = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", **environment}
    child = subprocess.Popen([*COMMAND, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=theirs, env=known)
    os.close(theirs)
    shown = b""
    while True:
        try:
            block = os.read(ours, 1 << 16)
        except OSError:  # Linux says EIO when the other side is closed
            block = b""
        if not block:
            break
        shown += block
    os.close(ours)
    assert child.wait() == 0
    return shown.decode().replace("\r\n", "\n")


def test_colour_only_on_a_terminal() -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    assert b"\x1b" not in process("run", TOOLS, env={**environment, "FORCE_COLOR": "1"}).stdout
    coloured = on_a_terminal(["run", TOOLS], NO_COLOR="")
    plain = on_a_terminal(["run", TOOLS], NO_COLOR="1")
    assert "\x1b[1;32mcompleted\x1b[0m" in coloured
    assert "\x1b" not in plain
    assert SGR.sub("", coloured) == plain
    assert max(map(len, plain.splitlines()[1:])) <= 80


# ---------------------------------------------------------------- safety

ACTING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
SGR = re.compile(r"\x1b\[[0-9;]*m")
NASTY = [
    "\x1b[2J\x1b[H",
    "\x1b]0;title\x07",
    "\x1b]52;c;bGV0IG1lIGlu\x1b\\",
    "\x1b]8;;http://example.com\x1b\\link\x1b]8;;\x1b\\",
    "\x9b31mred",
    "\x90q\x9c",
    "harmless\rdeleted ",
    "a\r\nb",
    "\u202etxt.exe\u202c",
    "\u2066x\u2069",
    "\x08\x08\x08",
    "\x7f",
    "[bold red]markup[/] [link=file:///etc]x[/link]",
    ":smile:",
    "\ud83d",
    "\u2028",
    "é🙂\t漢字",
    "\\x1b",
]
texts = st.one_of(st.text(max_size=20), st.sampled_from(NASTY), st.builds("".join, st.lists(st.sampled_from(NASTY))))


def test_what_a_terminal_would_act_on_is_shown() -> None:
    assert safe("\x1b]0;pwned\x07 \x9b2J \r \u202e \ud83d") == "\\x1b]0;pwned\\x07 \\x9b2J \\x0d \\u202e \\ud83d"
    assert safe("one\r\ntwo\n\tthree é 漢字 🙂 [bold]") == "one\ntwo\n\tthree é 漢字 🙂 [bold]"
    assert one_line("\n one\n\ttwo\n") == "one\\n\\ttwo"
    assert one_line("abcdef", 4) == "abc…"


@given(texts)
def test_nothing_acting_is_left(text: str) -> None:
    assert not ACTING.search(safe(text))
    assert safe(safe(text)) == safe(text)
    safe(text).encode()
    assert "\n" not in one_line(text)
    assert len(one_line(text, 7)) <= 7


@given(st.recursive(texts, lambda inner: st.lists(inner) | st.dictionaries(texts, inner)))
def test_safe_json_says_the_same(value: Any) -> None:
    text = dumps(value)
    assert json.loads(safe_json(text)) == json.loads(text) == value
    assert not ACTING.search(safe_json(text).decode())


def test_safe_json_knows_every_acting_character() -> None:
    everything = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x11000)]))
    safe_text = safe_json(dumps(everything)).decode()
    assert not ACTING.search(safe_text)
    assert json.loads(safe_text) == everything
    assert {char for char in everything if char not in safe(char)} == {
        char for char in everything if ACTING.match(char)
    }


def replaced(value: Any, text: str) -> Any:
    """The value with this text for every string in it, and for the names that the wire chose."""
    if isinstance(value, str):
        return text
    if isinstance(value, list):
        return [replaced(item, text) for item in value]
    if isinstance(value, dict):
        return {text if key == "custom" else key: replaced(item, text) for key, item in value.items()}
    return value


FULL = headrace.reduce(RECORDINGS / "evosci" / "plan.jsonl.gz").to_dict()
FULL["errors"] = [{"message": "broken", "fatal": True, "line": 1}]
FULL["usage"]["difference"] = "some"
FULL["version"] = FULL["model"] = FULL["cwd"] = "known"
FULL["report"] |= {
    "malformed": 1,
    "malformed_lines": [{"line": 1, "offset": 0, "reason": "not JSON", "text": "text"}],
    "unknown": {"custom": 1},
}


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("full", [False, True])
@given(texts)
def test_nothing_acting_leaves_the_summary(terminal: bool, full: bool, text: str) -> None:
    out = io.StringIO()
    colours = "truecolor" if terminal else None
    console = Console(
        file=out, force_terminal=terminal, color_system=colours, markup=False, emoji=False, highlight=False
    )
    show(headrace.Run(replaced(FULL, text)), text, console, full=full)
    shown = SGR.sub("", out.getvalue())
    assert not ACTING.search(shown)
    if text in ("[bold red]markup[/] [link=file:///etc]x[/link]", ":smile:"):
        assert shown.count(text[:7]) > 10


def test_file_names_are_wire_text_too(tmp_path: Path) -> None:
    for name in (b"a\x1b[31mb\nc", b"\xff\xfe", "\u202egpj.exe".encode(), b"[bold]"):
        path = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name)))
        path.write_bytes(SAID + DONE)
        for arguments in (
            ("run",),
            ("run", "--json"),
            ("check",),
            ("check", "--json"),
            ("detect",),
            ("detect", "--json"),
            ("events",),
        ):
            result = run(*arguments, path)
            assert (result.exit_code, result.stderr) == (0, "")
            assert not ACTING.search(result.stdout)
        assert not ACTING.search(process("detect", path).stdout.decode())
        path.unlink()
        result = run("run", path)
        assert result.exit_code == 2
        assert not ACTING.search(result.stderr)


def test_a_terminal_without_utf_8() -> None:
    result = process("run", TOOLS, env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert result.returncode == 0
    assert b"All is done \\u2705." in result.stdout


# ---------------------------------------------------------------- progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_for_large_files_on_a_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "[red]large\x1b.jsonl"
    path.write_bytes(SAID + DONE)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with source.opened(str(path)) as small:
        assert small == str(path)
    monkeypatch.setattr(source, "LARGE", 1)
    with source.opened(str(path), progress=False) as unwatched:
        assert unwatched == str(path)
    with source.opened(str(path)) as watched:
        assert headrace.reduce(watched).final_text == "Hi"
    shown = sys.stderr.getvalue()
    assert "[red]large\\x1b.jsonl" in shown
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with source.opened(str(path)) as unwatched:
        assert unwatched == str(path)


def test_no_events_because_of_no_dialect_is_said(tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text('{"level": "info"}\n')
    result = run("events", other)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"headrace: {other}: no dialect found; `headrace check` says what is in it\n"
    assert run("events", "-").stderr == ""  # nothing at all
