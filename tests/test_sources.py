"""Any source gives the same bytes, and what can't be read says why."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace import _backend
from headrace.errors import SourceError
from headrace.pure import source

pytestmark = pytest.mark.once

zstandard = pytest.importorskip("zstandard")

STREAM = b"".join(b'{"type":"message","n":%d}\n' % n for n in range(20_000))


def read(given: Any) -> bytes:
    return b"".join(source.chunks(given)[0])


def zst(data: bytes) -> bytes:
    return bytes(zstandard.ZstdCompressor().compress(data))


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


SKIPPABLE = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"
HALF = len(STREAM) // 2
PACKED = {
    "plain": STREAM,
    "gzip": gzip.compress(STREAM),
    "two gzip members": gzip.compress(STREAM[:HALF]) + gzip.compress(STREAM[HALF:]),
    "gzip, padded": gzip.compress(STREAM) + b"\0" * 5000,
    "zstd": zst(STREAM),
    "three zstd frames": zst(STREAM[:HALF]) + zst(b"") + SKIPPABLE + zst(STREAM[HALF:]),
    "a skippable zstd frame first": SKIPPABLE + zst(STREAM),
}


@pytest.fixture(params=PACKED)
def packed(request: pytest.FixtureRequest) -> bytes:
    return PACKED[request.param]


def test_every_kind_of_source(packed: bytes, tmp_path: Path) -> None:
    path = tmp_path / "no-suffix"
    path.write_bytes(packed)
    assert read(path) == read(str(path)) == STREAM
    assert read(packed) == read(bytearray(packed)) == read(memoryview(packed)) == STREAM
    with path.open("rb") as file:
        assert read(file) == STREAM
        file.seek(0)
        assert read(file.fileno()) == STREAM
        assert not file.closed
    with path.open("rb", buffering=0) as file:
        assert read(file) == STREAM
    assert read(io.BytesIO(packed)) == STREAM
    for size in (1, 1000):
        assert read(pieces(packed[:3000], size) if packed is STREAM else pieces(packed, size)) == (
            STREAM[:3000] if packed is STREAM else STREAM
        )
    assert read([packed[:5], b"", bytearray(packed[5:9]), memoryview(packed)[9:]]) == STREAM
    command = [sys.executable, "-c", "import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read())", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert read(process) == STREAM


def test_a_backend_reads_packed_sources(backend: Any, packed: bytes) -> None:
    assert backend.read_source(packed).report["records"] == 20_000


@given(st.binary(max_size=20), st.integers(1, 5))
def test_what_only_looks_packed_is_left_alone(data: bytes, size: int) -> None:
    if data[:3] == b"\x1f\x8b\x08" or data[1:4] in (b"\xb5\x2f\xfd", b"\x2a\x4d\x18"):
        return
    assert read(pieces(data, size)) == data


def test_chunks_come_as_they_are_read() -> None:
    out, into = os.pipe()
    chunks, name = source.chunks(out)
    os.write(into, b"{")
    assert next(chunks) == b"{"
    os.close(into)
    assert list(chunks) == []
    os.close(out)
    assert name == f"file descriptor {out}"


@pytest.mark.parametrize("packed", [PACKED["gzip"], PACKED["zstd"]], ids=["gzip", "zstd"])
@pytest.mark.parametrize("damage", ["cut", "corrupt"])
def test_what_could_be_read_comes_before_the_error(packed: bytes, damage: str) -> None:
    broken = packed[:-20] if damage == "cut" else gzip.compress(STREAM) + b"garbage"
    chunks, _ = source.chunks(broken)
    got = []
    with pytest.raises(SourceError, match="ends inside" if damage == "cut" else "corrupt"):
        got.extend(chunks)
    assert STREAM.startswith(b"".join(got))
    assert got


def text_file(tmp_path: Path) -> Any:
    path = tmp_path / "text"
    path.write_text("{}\n")
    return path.open()


def closed_file(tmp_path: Path) -> Any:
    file = io.BytesIO(b"{}")
    file.close()
    return file


def write_only(tmp_path: Path) -> Any:
    return (tmp_path / "out").open("wb")


def not_permitted(tmp_path: Path) -> Any:
    path = tmp_path / "secret"
    path.touch(mode=0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    return path


def corrupt_gzip_file(tmp_path: Path) -> Any:
    return gzip.GzipFile(fileobj=io.BytesIO(gzip.compress(b"{}\n")[:-4]))


def quiet_pipe(tmp_path: Path) -> Any:
    out, _ = os.pipe()
    os.set_blocking(out, False)
    return open(out, "rb", buffering=0)


def popen_without_pipe(tmp_path: Path) -> Any:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process


UNREADABLE = {
    "missing": (lambda tmp_path: tmp_path / "missing.jsonl", "No such file"),
    "a directory": (lambda tmp_path: tmp_path, "directory"),
    "not permitted": (not_permitted, "ermission"),
    "NUL in the name": (lambda tmp_path: "a\0b", "null"),
    "a text file": (text_file, "text mode"),
    "a text stream": (lambda tmp_path: io.StringIO("{}"), "text mode"),
    "a closed file": (closed_file, "closed"),
    "write only": (write_only, "read"),
    "a closed descriptor": (lambda tmp_path: 987654, "descriptor"),
    "an iterable of str": (lambda tmp_path: ["{}\n"], "encode"),
    "an iterable of int": (lambda tmp_path: [1], "int"),
    "nothing": (lambda tmp_path: None, "a source is"),
    "True": (lambda tmp_path: True, "a source is"),
    "a gzip file object that is cut": (corrupt_gzip_file, "ended"),
    "gzip, corrupt inside": (lambda tmp_path: b"\x1f\x8b\x08" + b"\xff" * 50, "corrupt"),
    "zstd, corrupt inside": (lambda tmp_path: b"\x28\xb5\x2f\xfd" + b"\xff" * 50, "corrupt"),
    "a Popen without a pipe": (popen_without_pipe, "PIPE"),
    "a pipe that is not blocking": (quiet_pipe, "blocking"),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_what_can_not_be_read_says_why(what: str, tmp_path: Path) -> None:
    make, words = UNREADABLE[what]
    given = make(tmp_path)
    with pytest.raises(SourceError, match=words):
        read(given)
    if hasattr(given, "close"):
        given.close()


def test_errors_of_an_iterable_are_its_own() -> None:
    def broken() -> Iterator[bytes]:
        yield b"{}\n"
        raise KeyError("mine")

    with pytest.raises(KeyError):
        read(broken())


def test_a_crafted_file_takes_little_memory() -> None:
    for packed in (gzip.compress(b"\0" * 2**26), zst(b"\0" * 2**26)):
        assert max(len(chunk) for chunk in source.chunks(packed)[0]) <= 2**25


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux tells what is mapped")
def test_a_run_does_not_keep_its_file_open(tmp_path: Path) -> None:
    path = tmp_path / "read.jsonl"
    path.write_bytes(b'{"type":"agent_start"}\n' * 100_000)  # decoded ahead, too
    run = headrace.reduce(path)
    assert run.dialect == "pi"
    assert path.name not in Path("/proc/self/maps").read_text()
    assert path.name not in "".join(str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.exists())


@pytest.mark.skipif(headrace.backend != "native", reason="the pure backend needs a package")
def test_what_reads_run_by_run_needs_nothing_to_decompress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)  # the extension brings its own
    said = b'{"type": "text", "content": "a"}\n' * 1000 + b'{"type": "done", "content": "", "response": ""}\n'
    path = tmp_path / "run.jsonl"
    path.write_bytes(zst(said))
    (run,) = headrace.runs(path)
    assert (run.texts, run.report.bytes) == (["a" * 1000], len(said))
    assert headrace.usage(path).files == [(str(path), "evosci")]


WAYS = [source.decompress, _backend.decompress]


@pytest.mark.parametrize("decompress", WAYS)
@pytest.mark.parametrize("packed", ["gzip", "zstd"])
def test_chunks_are_decompressed_up_to_the_damage(packed: str, decompress: Any) -> None:
    whole, cut = PACKED[packed], PACKED[packed][:-20]
    for size in (1, 100, len(whole)):
        assert b"".join(decompress(pieces(whole, size), "a.gz")) == STREAM
        chunks, out = decompress(pieces(cut, size), "a.gz"), list[bytes]()
        with pytest.raises(SourceError, match=f"a.gz: the {packed} data ends inside a compressed frame"):
            out.extend(chunks)
        assert out
        assert STREAM.startswith(b"".join(out))
        assert next(chunks, None) is None


@pytest.mark.parametrize("decompress", WAYS)
def test_chunks_that_nobody_wants_any_more_are_closed(decompress: Any) -> None:
    closed = []

    def give() -> Iterator[bytes]:
        try:
            yield b"plain"
            raise ZeroDivisionError
        finally:
            closed.append(True)

    chunks = decompress(give(), "x")
    assert next(chunks) == b"plain"
    with pytest.raises(ZeroDivisionError):
        next(chunks)
    chunks = decompress(give(), "x")
    next(chunks)
    chunks.close()
    assert closed == [True, True]
