"""``report.explain()``: the account in words that anybody may read on a terminal."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace

from .streams import streams

TEXT = b'{"type": "text", "content": "Hi"}\n'
ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def told(data: bytes) -> list[str]:
    return headrace.reduce(data, dialect="evosci").report.explain().split("\n")


def test_every_part_is_named() -> None:
    data = TEXT + b'{"type": "mood"}\n42\n\n\x00' + TEXT + b"oops"
    assert "\n".join(told(data)) == WHOLE


WHOLE = """\
94 bytes in 6 lines:
  events     34   36.2%  2 records
  ignored     3    3.2%  1 record, by rule:
              3    3.2%  not an object: 1
  unknown    17   18.1%  1 record, by type:
             17   18.1%  mood: 1
  malformed  39   41.5%  2 lines
             line 5, byte 55: not JSON: \\x00{"type": "text", "content": "Hi"}
             line 6, byte 90: not JSON: oops
  blank       1    1.1%  1 line
1 record was got back from malformed lines, with whose bytes theirs are counted.
The stream ends in the middle of a line.
The sums add up: no byte is missing."""


def test_nothing_was_read() -> None:
    assert told(b"") == ["Nothing was read."]
    assert headrace.Parser().report.explain() == "Nothing was read."


def test_long_lists_are_cut() -> None:
    types = b"".join(b'{"type": "type-%d"}\n' % number for number in range(50))
    shown = told(types + b"oops\n" * 1500)
    assert len(shown) < 50
    assert any("30 others: 30" in line for line in shown)
    assert any("… 1,490 more" in line for line in shown)


def test_in_the_middle_of_a_stream() -> None:
    parser = headrace.Parser()
    parser.feed(b'{\n"a": 1,\n')
    assert "2 lines may be the beginning of one document" in parser.report.explain()
    parser.feed(b'"b": ')
    assert parser.report.explain().startswith("0 bytes in 2 lines:")


def test_a_document_that_was_read_is_not_held_back() -> None:
    stamp = "2026-01-01T00:00:00Z"
    asked = {"id": "1", "timestamp": stamp, "type": "user", "content": "Hi."}
    read = {"sessionId": "s", "projectHash": "h", "startTime": stamp, "lastUpdated": stamp, "messages": [asked]}
    shown = headrace.reduce(json.dumps(read, indent=2).encode()).report.explain()
    assert "1 record\n" in shown
    assert "one document" not in shown


def test_an_account_that_does_not_add_up_says_so() -> None:
    facts = headrace.reduce(TEXT + b'{"type": "mood"}\n').report.to_dict()
    facts["unknown_sizes"]["mood"] -= 1
    facts["event_bytes"] += 2
    shown = headrace.Report(facts).explain()
    assert "bytes: 53 against 51; unknown bytes: 16 against 17" in shown
    assert "add up: no byte" not in shown


@given(streams() | st.text().map(lambda text: f'{{"type": "{text}"}}\n{text}'.encode("utf-8", "replace")))
def test_it_is_safe_for_a_terminal(data: bytes) -> None:
    try:
        shown = headrace.reduce(data).report.explain()
    except headrace.SourceError:  # UTF-16
        return
    assert not ACTING.search(shown)
    shown.encode()


@pytest.mark.parametrize("form", ["\x1b[2J", "\u202e", "\x9b", "\r"])
def test_types_and_lines_of_the_wire_are_escaped(form: str) -> None:
    shown = headrace.reduce(f'{{"type": "a{form}b"}}\nx{form}y\n'.encode(), dialect="evosci").report.explain()
    assert form not in shown
