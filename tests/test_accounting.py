"""Every byte of the input is accounted for, and damage costs no more than it must."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import MalformedLine

from .conftest import SHARED
from .streams import chunkings, streams

pytestmark = pytest.mark.once

PARTS = ("event_bytes", "ignored_bytes", "unknown_bytes", "malformed_bytes", "blank_bytes")


def numbers(report: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(report[name] for name in names)


@given(st.data())
def test_the_account_is_complete(backend: Any, data: st.DataObject) -> None:
    stream = data.draw(streams() | st.binary())
    if stream[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return
    report = backend.read([stream]).report
    assert report["bytes"] == len(stream) == sum(report[part] for part in PARTS)
    assert report["lines"] == report["records"] + report["malformed"] + report["blank"]
    assert len(report["malformed_lines"]) == report["malformed"]


@given(st.data())
def test_chunks_make_no_difference(backend: Any, data: st.DataObject) -> None:
    stream = data.draw(streams())
    assert repr(backend.read(data.draw(chunkings(stream)))) == repr(
        backend.read([stream])
    )  # repr: NaN differs from NaN


@given(streams())
def test_records_are_where_they_say(backend: Any, stream: bytes) -> None:
    for line, offset, _, lossy, salvaged, raw, value in backend.read([stream]).records:
        assert stream[offset : offset + len(raw)] == raw
        assert line == stream[:offset].count(b"\n") + 1
        assert isinstance(value, dict)
        if not salvaged:
            assert not lossy
            assert repr(value) == repr(json.loads(raw))


def test_what_is_counted(backend: Any) -> None:
    stream = b'\xef\xbb\xbf{"type":"a"}\r\n\n \t\r\n42\nnull\n[]\noops\n{"type":"b"}'
    report = backend.read([stream]).report
    assert numbers(report, "lines", "records", "malformed", "blank") == (8, 5, 1, 2)
    assert numbers(report, *PARTS) == (14 + 12, 3 + 5 + 3, 0, 5, 3 + 1 + 4)
    assert report["ignored"] == {"not an object": 3}
    assert report["malformed_lines"] == [{"line": 7, "offset": 33, "reason": "not JSON", "text": "oops"}]
    assert not report["truncated"]


def test_an_array_stands_for_its_elements(backend: Any) -> None:
    reading = backend.read([b' [ {"a":[1,"]"]} ,7 ,\t{"b":"x, \\"{"} ] \r\n{"c":1}\n'])
    assert reading.values == [{"a": [1, "]"]}, {"b": 'x, "{'}, {"c": 1}]
    assert [(line, offset, share, raw) for line, offset, share, _, _, raw, _ in reading.records] == [
        (1, 3, 16, b'{"a":[1,"]"]}'),
        (1, 22, 22, b'{"b":"x, \\"{"}'),
        (2, 41, 8, b'{"c":1}'),
    ]
    assert numbers(reading.report, "records", "ignored_bytes", "event_bytes") == (2, 3, 46)
    assert reading.report["ignored"] == {"not an object": 1}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"oops", "not JSON"),
        (b"{'a': 1}", "not JSON"),
        (b'{"a":1}}', "not JSON"),
        (b'{"a":NaN}', "not JSON"),
        (b'{"a":"\x01"}', "not JSON"),
        (b"\xef\xbb\xbf1", "not JSON"),
        (b"[01]", "not JSON"),
        (b"\x00", "not JSON"),
        (b'{"a":', "cut off"),
        (b'{"a":"x\\', "cut off"),
        (b'{"a":"x\\u12', "cut off"),
        (b"[1.", "cut off"),
        (b"[1e+", "cut off"),
        (b"-", "cut off"),
        (b"[tru", "cut off"),
        ('{"a":"é'.encode()[:-1], "cut off"),
        ('oops "é'.encode()[:-1], "invalid UTF-8"),
        (b'{"a":"\xff', "invalid UTF-8"),
        (b"oops \xff", "invalid UTF-8"),
        (b'"\xed\xa0\xbd"', "invalid UTF-8"),
        (b"[" * 1025, "too deep"),
        (b"[" * 1024, "cut off"),
        (b"x" + b"[" * 1025, "not JSON"),
        (b'{"a":' * 1025 + b"1" + b"}" * 1025, "too deep"),
        (b"[" * 100_000 + b"]" * 100_000, "too deep"),
    ],
)
def test_the_reason_is_one_of_few_words(backend: Any, line: bytes, reason: str) -> None:
    report = backend.read([b"\n" + line + b"\n"]).report
    assert [entry["reason"] for entry in report["malformed_lines"]] == [reason]
    with pytest.raises(MalformedLine) as caught:
        backend.read([b"1\n" + line], strict=True)
    assert (caught.value.line, caught.value.offset, caught.value.reason) == (2, 2, reason)


def test_a_cut_last_line_is_reported_as_truncated(backend: Any) -> None:
    assert backend.read([b'{"type":"x"}\n{"type":"y']).report["truncated"]
    assert not backend.read([b'{"type":"x"}\n{"type":"y\n']).report["truncated"]
    assert not backend.read([b'{"type":"x"}\n{"type":"y"}']).report["truncated"]


def test_a_line_that_is_too_long_is_malformed(backend: Any) -> None:
    reading = backend.read([b'{"type":"' + b"x" * 300 + b'"}\n{"type":"b"}\n'], max_line_bytes=200)
    assert reading.values == [{"type": "b"}]
    assert reading.report["malformed_lines"][0]["reason"] == "line too long"
    assert reading.report["malformed_bytes"] == 312


def test_the_account_stays_small(backend: Any) -> None:
    seen: list[dict[str, Any]] = []
    report = backend.read([b"oops " * 100 + b"\n"] * 1500, on_malformed=seen.append).report
    assert report["malformed"] == len(seen) == 1500
    assert len(report["malformed_lines"]) == 1000
    assert seen[1000] == {"line": 1001, "offset": 501 * 1000, "reason": "not JSON", "text": "oops " * 40}


def test_strict_delivers_what_was_before_the_line() -> None:
    from headrace.pure.record import Intake

    intake = Intake(strict=True)
    found = intake.feed(b'{"type":"a"}\n{"type":"b"}{"type":"c"}\n{"type":"d"}\n')
    assert next(found).type == "a"
    with pytest.raises(MalformedLine):
        next(found)
    with pytest.raises(MalformedLine):
        list(intake.feed(b'{"type":"e"}\n'))


# -- salvage -----------------------------------------------------------------------------------------------------------

A = b'{"type":"message","timestamp":1,"message":{"role":"user","content":[{"type":"text","text":"one"}]}}'
B = b'{"type":"message","timestamp":2,"message":{"role":"user","content":[{"type":"text","text":"two"}]}}'


@pytest.mark.parametrize(
    "line",
    [
        A + B,
        A + b" \t" + B,
        b"\x00" * 50 + A + B + b"\x00" * 50,
        b"\x1b[2K\x1b[1;31m" + A + B + b"\x1b[0m",
        b"\x1b]0;title\x07\x1b]0;title\x1b\\" + A + B + b"\x1b[?25h\r",
        b"\xef\xbb\xbf\x07" + A + B,
    ],
)
def test_whole_records_on_a_damaged_line_are_got_back(backend: Any, line: bytes) -> None:
    reading = backend.read([b"\n" + line + b"\n"])
    assert [record[5] for record in reading.records] == [A, B]
    assert [record[2:5] for record in reading.records] == [(0, False, True)] * 2
    assert numbers(reading.report, "malformed", "salvaged", "malformed_bytes") == (1, 2, len(line) + 1)


@pytest.mark.parametrize(
    "line",
    [
        b"INFO " + A,  # text before it
        A + b" done",
        b"[" + A + b"," + B,  # an array that is cut
        A + B[:-1],
        b'{"type":"x","inner":' + A,  # never a nested object
        b'{"type":"x","inner":[' + A + b"," + B,
        b'{"type":"x","inner":' * 1100 + A + b"}" * 1100,
        b'{"a":1}{"b":2}',  # no records
        b'"' + A[1:],
        b"{" + A[1:-1],
        b"{",
    ],
)
def test_nothing_else_is_taken_for_a_record(backend: Any, line: bytes) -> None:
    assert backend.read([line + b"\n"]).records == []


@pytest.mark.parametrize("at", range(1, len(A)))
def test_a_record_that_cuts_into_another_is_got_back(backend: Any, at: int) -> None:
    reading = backend.read([A[:at] + B + b"\n"])
    found = [record[5] for record in reading.records]
    # Where a value is due, the other record could as well be nested: it is not taken.
    due = A[:at].endswith((b":", b"["))
    assert found == ([] if due else [B])


def test_torn_three_times(backend: Any) -> None:
    assert [record[5] for record in backend.read([A[:90] + B[:90] + A[:40] + B + A]).records] == [B, A]


def test_what_python_writers_print(backend: Any) -> None:
    reading = backend.read([b'{"type":"x","a":[NaN,Infinity,-Infinity],"NaN":"NaN"}\n'])
    assert repr(reading.values) == "[{'type': 'x', 'a': [nan, inf, -inf], 'NaN': 'NaN'}]"
    assert not reading.report["lossy"]


def test_raw_control_characters(backend: Any) -> None:
    assert backend.read([b'{"type":"x","a":"tab\there\x1b[0m\\n"}\n']).values == [
        {"type": "x", "a": "tab\there\x1b[0m\n"}
    ]


def test_invalid_utf8_is_replaced_and_flagged(backend: Any) -> None:
    good = b'{"type":"x","a":"ok"}'
    reading = backend.read([b'{"type":"x","a":"caf\xe9 \xe6\x8f"}' + good + b"\n"])
    assert reading.values == [{"type": "x", "a": "caf\ufffd \ufffd"}, {"type": "x", "a": "ok"}]
    assert [record[3] for record in reading.records] == [True, False]
    assert numbers(reading.report, "lossy", "salvaged") == (1, 2)


def test_salvage_is_not_slow_on_hostile_lines(backend: Any) -> None:
    for piece in (b'{"a":"x', b"{", b'{"a":', b'{"a":"\\q', b"\x1b]", b'{"type":"x"}', b'{"', b"[{"):
        backend.read([piece * (400_000 // len(piece)) + b"\n"])


# -- the failure cases from public reports -----------------------------------------------------------------------------


def case_files() -> list[Path]:
    return sorted((SHARED / "cases").glob("*/input.*"))


@pytest.mark.parametrize("path", case_files(), ids=lambda path: path.parent.name)
def test_the_numbers_of_the_cases(backend: Any, path: Path) -> None:
    expected = json.loads((path.parent / "expect.json").read_bytes())
    report = backend.read_source(path).report
    wanted = (expected["records"], expected["malformed"], expected.get("salvage", 0))
    assert numbers(report, "records", "malformed", "salvaged") == wanted
