"""Integers of any size: exact in runs and records, and in events what any JSON writer can write."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pure.event import digits

from .engines import ENGINES, READERS


@pytest.fixture(params=list(ENGINES))
def name(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize(
    "text",
    ["9223372036854775807", "18446744073709551615", "18446744073709551616", "-9223372036854775809", "9" * 6000, "-0"],
)
def test_an_integer_keeps_its_digits(name: str, text: str) -> None:
    line = b'{"type": "tool_call", "name": "t", "args": {"n": [%b]}, "id": "c"}\n' % text.encode()
    parser = ENGINES[name]()
    [event] = [*parser.feed(line), *parser.close()]
    [record] = READERS[name]().feed(line)
    [exact] = parser.run()["tool_calls"][0]["input"]["n"]
    [shown] = event["update"]["rawInput"]["n"]
    assert type(exact) is int
    assert digits(exact) == (text if text != "-0" else "0")
    assert record.to_dict()["args"]["n"] == [exact]
    assert shown == (exact if -(2**63) <= exact < 2**64 else text)
    orjson.dumps(event)


@given(st.integers(-(10**1500), 10**1500))
def test_digits_of_any_size(number: int) -> None:
    assert digits(number) == str(number)
