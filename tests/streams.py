"""Streams for property tests: JSON lines as harnesses print them, and the damage that happens to them."""

from __future__ import annotations

import json

from hypothesis import strategies as st

_texts = st.text(max_size=12) | st.sampled_from(
    ["\u2028\u2029\x85\x0b\x0c", "\ud83d", "a\r\nb", "🙂", '{"', "\\", "\x00\x1b"]
)
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(-(2**70), 2**70) | st.floats() | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=8,
)
_records = st.builds(
    lambda kind, rest, ascii_only: json.dumps({**rest, "type": kind}, ensure_ascii=ascii_only).encode(
        "utf-8", "backslashreplace" if ascii_only else "replace"
    ),
    st.sampled_from(["message", "tool_call", "result"]),
    st.dictionaries(_texts, _values, max_size=4),
    st.booleans(),
)
_lines = st.one_of(
    _records,
    _records,
    st.builds(lambda items: b"[" + b", ".join(items) + b"]", st.lists(_records, max_size=3)),
    st.builds(lambda value: json.dumps(value).encode(), _values),
    st.binary(max_size=12),
    st.sampled_from([b"", b"  \t", b"\r", b"noise", b"\x00" * 20, b"\x1b[2K\x1b]0;title\x07", b"\xef\xbb\xbf", b"{"]),
)


def _cut(line: bytes, at: int) -> bytes:
    return line[: at % (len(line) + 1)]


_damaged = st.one_of(
    _lines,
    _lines,
    st.builds(lambda a, b: a + b, _lines, _lines),  # glued
    st.builds(lambda a, at, b: _cut(a, at) + b, _records, st.integers(0, 200), _records),  # torn, then appended to
    st.builds(_cut, _records, st.integers(0, 200)),
)
_ends = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\r\r\n", b"\r", b""])


def streams() -> st.SearchStrategy[bytes]:
    """Whole streams, damaged ones included."""
    return st.builds(
        lambda bom, lines: bom + b"".join(lines),
        st.sampled_from([b"", b"", b"", b"\xef\xbb\xbf", b"\xef\xbb", b"{\0\n{}\n"]),
        st.lists(st.builds(lambda line, end: line + end, _damaged, _ends), max_size=8),
    )


@st.composite
def chunkings(draw: st.DrawFn, stream: bytes) -> list[bytes]:
    """A stream in chunks of any sizes."""
    sizes = draw(st.lists(st.integers(0, 9) | st.integers(0, 400), min_size=1, max_size=30))
    chunks, at, turn = [], 0, 0
    while at < len(stream):
        size = sizes[turn % len(sizes)]
        if turn >= len(sizes) and not any(sizes):
            size = 1
        chunks.append(stream[at : at + size])
        at += size
        turn += 1
    return chunks
