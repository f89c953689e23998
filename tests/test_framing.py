"""A line ends at LF and nowhere else, whatever the chunks are."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SourceError
from headrace.pure.frame import Framer, Line

from .streams import chunkings, streams

pytestmark = pytest.mark.once


def frame(chunks: list[bytes], **options: Any) -> list[Line]:
    framer = Framer(**options)
    lines = [line for chunk in chunks for line in framer.feed(chunk)]
    lines += framer.close()
    return lines


def bodies(*chunks: bytes) -> list[bytes]:
    return [line.body for line in frame(list(chunks))]


def test_other_separators_are_ordinary_bytes() -> None:
    text = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\rh".encode()
    assert bodies(text + b"\n" + text) == [text, text]


def test_one_cr_before_the_lf_is_left_out() -> None:
    assert bodies(b"a\r\nb\r\r\nc\r") == [b"a", b"b\r", b"c\r"]


def test_a_cr_lf_may_straddle_chunks() -> None:
    assert bodies(b"a\r", b"\nb\r", b"", b"\n") == [b"a", b"b"]


def test_lines_know_where_they_are() -> None:
    assert frame([b"\xef\xbb\xbfab\r\n\n", b"c"]) == [
        Line(1, 3, 4, b"ab", True, False),
        Line(2, 7, 1, b"", True, False),
        Line(3, 8, 1, b"c", False, False),
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 50])
def test_a_byte_order_mark_is_skipped_at_the_start_only(size: int) -> None:
    stream = b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n"
    assert bodies(*(stream[at : at + size] for at in range(0, len(stream), size))) == [b"a", b"\xef\xbb\xbfb"]


@pytest.mark.parametrize("beginning", [b"\xef", b"\xef\xbb", b"\xff", b"\xfe", b"\xef\xbbx", b"\xfea"])
def test_half_a_byte_order_mark_is_none(beginning: bytes) -> None:
    assert bodies(beginning) == [beginning]
    assert bodies(*(bytes([byte]) for byte in beginning)) == [beginning]


@pytest.mark.parametrize(
    ("encoded", "named"),
    [
        ('{"type":"x"}\n'.encode("utf-16"), "UTF-16"),
        ('\ufeff{"type":"x"}\n'.encode("utf-16-be"), "UTF-16"),
        ('{"type":"x"}\n'.encode("utf-32"), "UTF-16"),
        ('{"type":"x"}\n'.encode("utf-16-le"), "UTF-16LE"),
        ('{"type":"x"}\n'.encode("utf-16-be"), "UTF-16BE"),
        ('[{"type":"x"}]\n'.encode("utf-16-le"), "UTF-16LE"),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_utf16_is_refused_with_a_way_out_marked_or_not(encoded: bytes, named: str, size: int) -> None:
    with pytest.raises(SourceError, match=f"begins as {named} does.*`iconv -f {named} -t"):
        frame([encoded[at : at + size] for at in range(0, len(encoded), size)])


@pytest.mark.parametrize("stream", [b'\0{"a":1}', b"{\0\0\0\0\0", b'{\0"a', b"\0\0[\0", b"[", b"\0", b"{\0"])
def test_nuls_of_a_crash_are_not_taken_for_utf16(stream: bytes) -> None:
    assert bodies(stream) == bodies(*(bytes([byte]) for byte in stream)) == [stream]


@pytest.mark.parametrize("stream", [b"{\0\n", b"{\0\n\xff", b"[\0\n{}\n", b"\0[\n", b"{\0\r\n\n"])
def test_a_line_may_end_where_utf16_is_still_open(stream: bytes) -> None:
    assert bodies(stream) == bodies(*(bytes([byte]) for byte in stream)) == stream.replace(b"\r", b"").splitlines()


@given(st.data(), st.sampled_from([5, 60, 2**28]))
def test_chunks_make_no_difference(data: st.DataObject, most: int) -> None:
    stream = data.draw(streams())
    chunks = data.draw(chunkings(stream))
    assert frame(chunks, max_line_bytes=most) == frame([stream], max_line_bytes=most)


@given(st.binary())
def test_no_byte_is_lost(stream: bytes) -> None:
    if stream[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return
    framer = Framer()
    lines = [*framer.feed(stream), *framer.close()]
    assert sum(line.size for line in lines) + framer.bom_bytes == len(stream)
    for line in lines:
        assert stream[line.offset : line.offset + len(line.body)] == line.body
    expected = stream.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert [line.body + b"\r" * (line.size - len(line.body) - line.ended) for line in lines] == expected


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_line_that_is_too_long_is_dropped_and_the_next_one_is_read(size: int) -> None:
    stream = b"a\n" + b"x" * 500 + b"\r\n" + b"b" * 100 + b"\n" + b"y" * 101
    lines = frame([stream[at : at + size] for at in range(0, len(stream), size)], max_line_bytes=100)
    assert [(line.body, line.size, line.offset, line.too_long) for line in lines] == [
        (b"a", 2, 0, False),
        (b"x" * 200, 502, 2, True),
        (b"b" * 100, 101, 504, False),
        (b"y" * 101, 101, 605, True),
    ]


def test_a_line_that_is_too_long_takes_no_memory() -> None:
    framer = Framer(max_line_bytes=2**20)
    block = b"x" * 2**20
    for _ in range(64):
        assert not list(framer.feed(block))
    assert len(framer._carry) <= 2**20
    assert [(line.size, line.too_long) for line in framer.close()] == [(64 * 2**20, True)]


def test_cost_is_linear_in_one_byte_chunks() -> None:
    def seconds(size: int) -> float:
        framer = Framer()
        start = time.perf_counter()
        for _ in range(size):
            for _ in framer.feed(b"x"):
                pass
        assert [line.size for line in framer.close()] == [size]
        return time.perf_counter() - start

    seconds(1000)
    assert seconds(400_000) < 40 * max(seconds(40_000), 0.005)


def test_a_chunk_may_be_a_buffer_that_is_reused() -> None:
    framer = Framer()
    buffer = bytearray(b"ab")
    assert list(framer.feed(memoryview(buffer))) == []
    buffer[:] = b"c\n"
    assert [line.body for line in framer.feed(memoryview(buffer))] == [b"abc"]
