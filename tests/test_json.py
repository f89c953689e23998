"""A valid line is never refused, an invalid one never accepted, and values are what the standard json gives."""

from __future__ import annotations

import json as std
import math
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SourceError
from headrace.pure import json

from .conftest import SHARED
from .streams import streams

pytestmark = pytest.mark.once

# Our own vectors. Each is tried alone, in an array, and as the value of a key.
VALID = [
    *(b"0", b"-0", b"-1", b"1.5", b"-0.0", b"1e5", b"1E+5", b"1e-05", b"0e0", b"123456789012345678"),
    *(b"9007199254740993", b"9223372036854775808", b"-9223372036854775809", b"18446744073709551616", b"1" * 5000),
    *(
        b"0.1",
        b"1e400",
        b"-1e400",
        b"1e-400",
        b"5e-324",
        b"1.7976931348623157e308",
        b"0." + b"1" * 400,
        b"1" * 400 + b".5",
    ),
    *(b"true", b"false", b"null", b"{}", b"[]", b'""', b" \t[ \t]\r ", b'{"a":1 , "b" : [ ] }', b"[[],{},[{}]]"),
    *(rb'"\"\\\/\b\f\n\r\t"', rb'"\u0000\u001F\u00e9\uABCD"', rb'"\ud83d\ude00"', b'"\x7f"'),
    *(rb'"\ud83d"', rb'"\ude00\ud83d"', rb'"\ud83dx\ude00"', rb'"\ud83d\ud83d\ude00"', rb'{"\uDEAD":"\udead"}'),
    *(
        '"é🙂\u2028\u2029\x85\ufeff\uffff\U0010ffff"'.encode(),
        b'{"a":1,"b":2,"a":3}',
        b'{"":""}',
        b'{"a":{"a":{}},"a":1}',
    ),
    *(b"[" * 1023 + b"]" * 1023, b'{"a":' * 1022 + b"[]" + b"}" * 1022, b'["' + b"[" * 3000 + b'"]'),
    *(
        b"[" + b"[]," * 2000 + b"1]",
        b'"' + rb"\\" * 999 + b'"',
        b'[12345678901234567890,"' + b"{" * 2000 + rb"\ud83d" + b'"]',
    ),
]
INVALID = [
    *(
        b"-",
        b"+1",
        b"01",
        b"-01",
        b"1.",
        b".5",
        b"1.e1",
        b"1e",
        b"1e+",
        b"0x1",
        b"1_0",
        b"--1",
        b"1 2",
        b"1e1.5",
        b"\xef\xbc\x91",
    ),
    *(b"tru", b"True", b"nul", b"NaN", b"Infinity", b"-Infinity", b"nan", b"inf", b"undefined", b"truefalse"),
    *(
        b'"',
        b'"a',
        b'"\\"',
        b"'a'",
        b'"\x00"',
        b'"\x1f"',
        b'"a\tb"',
        rb'"\x41"',
        rb'"\u12"',
        rb'"\u12g4"',
        rb'"\u+123"',
        rb'"\U0041"',
    ),
    *(
        b"[",
        b"]",
        b"[1",
        b"[1,",
        b"[1,]",
        b"[,1]",
        b"[1 2]",
        b"[1,,2]",
        b"[}",
        b"{]",
        b"[1}",
        b"[1]]",
        b"[" * 1025 + b"]" * 1025,
    ),
    *(
        b"{",
        b"}",
        b'{"a"',
        b'{"a":',
        b'{"a":1',
        b'{"a":1,}',
        b"{,}",
        b'{"a" 1}',
        b"{1:2}",
        b"{a:1}",
        b'{"a":1 "b":2}',
        b'{"a"::1}',
    ),
    *(
        b'"\xff"',
        b'"\xc0\x80"',
        b'"\xed\xa0\x80"',
        b'"\xf4\x90\x80\x80"',
        b'"\xe9"',
        b'"\xe2\x82"',
        b'{"\x80":1}',
        b"\xa0",
    ),
    *(
        b"\x0c1",
        b"1\x0b",
        b"\xc2\xa01",
        "\u20281".encode(),
        b"1\x00",
        b"\x00",
        b"// x",
        b"/**/1",
        b"1;",
        b'{"a":1}{"b":2}',
        b"[" * 200_000,
    ),
]


def same(left: Any, right: Any) -> bool:
    """Equal in value, type, order of keys and sign of zero. (repr would recurse.)"""
    todo = [(left, right)]
    while todo:
        left, right = todo.pop()
        if type(left) is not type(right):
            return False
        if isinstance(left, dict):
            if list(left) != list(right):
                return False
            todo += zip(left.values(), right.values(), strict=True)
        elif isinstance(left, list):
            if len(left) != len(right):
                return False
            todo += zip(left, right, strict=True)
        elif isinstance(left, float):
            if not (left == right and math.copysign(1, left) == math.copysign(1, right)):
                return False
        elif left != right:
            return False
    return True


def standard(text: bytes) -> Any:
    """What the standard json reads, its limits lifted."""
    digits = getattr(sys, "get_int_max_str_digits", lambda: None)()
    depth = sys.getrecursionlimit()
    try:
        if digits is not None:
            sys.set_int_max_str_digits(0)
        sys.setrecursionlimit(20_000)
        return std.loads(text.decode("utf-8"), parse_constant=refuse)
    finally:
        sys.setrecursionlimit(depth)
        if digits is not None:
            sys.set_int_max_str_digits(digits)


def refuse(constant: str) -> None:
    raise ValueError(constant)


def refusal(text: bytes) -> str | None:
    try:
        json.loads(text)
    except json.JsonError as error:
        return error.reason
    return None


def in_places(text: bytes) -> list[bytes]:
    return [text, b"[" + text + b"]", b'{"v":' + text + b"}"]


@pytest.mark.parametrize("text", VALID, ids=lambda text: repr(text[:30]))
def test_valid_is_read_exactly(backend: Any, text: bytes) -> None:
    for placed in in_places(text):
        assert same(json.loads(placed), standard(placed))
    assert backend.read([text]).report["records"] == 1
    reading = backend.read([b'{"v":' + text + b"}"])
    assert same(reading.values, [standard(b'{"v":' + text + b"}")])


@pytest.mark.parametrize("text", INVALID, ids=lambda text: repr(text[:30]))
def test_invalid_is_refused(backend: Any, text: bytes) -> None:
    for placed in in_places(text):
        with pytest.raises(json.JsonError):
            json.loads(placed)
    for stream in (b"\n" + text + b"\n", text):
        assert backend.read([stream]).report["malformed"] == 1


def test_nesting_is_read_however_deep_the_caller_is() -> None:
    text = b"[" * 1024 + rb'"\ud83d",' + b"1" * 30 + b"]" * 1024
    done = []

    def call(depth: int) -> None:
        if depth:
            call(depth - 1)
        else:
            done.append(json.loads(text))

    thread = threading.Thread(target=call, args=(sys.getrecursionlimit() - 100,))
    thread.start()
    thread.join()
    assert same(done, [standard(text)])


@given(streams() | st.binary())
def test_the_decoder_of_last_resort_agrees_with_the_fast_ones(stream: bytes) -> None:
    for line in stream.split(b"\n"):
        reason = refusal(line)
        if reason is not None:
            assert reason in ("invalid UTF-8", "too deep", "cut off", "not JSON")
            with pytest.raises(ValueError):  # noqa: PT011 (its two kinds, and that of NaN)
                standard(line)
            continue
        fast = json.loads(line)
        value, end = json.scan(line)
        assert same(value, fast)
        assert not line[end:].strip(b" \t\r\n")
        assert same(json.loads_lax(line), fast)


@given(st.integers(-(10**400), 10**400) | st.floats(allow_nan=False, allow_infinity=False) | st.text())
def test_values_come_back(value: Any) -> None:
    for text in (std.dumps(value), std.dumps(value, ensure_ascii=False)):
        assert same(json.loads(text.encode()), value)
        assert same(json.scan(text.encode())[0], value)


def test_an_integer_may_have_any_number_of_digits() -> None:
    value = json.loads(b"-" + b"7" * 20_001)
    assert value == -(10**20_001 // 9 * 7)


def test_the_first_of_duplicate_keys() -> None:
    text = b'{"item":{"id":"one","list":[{"n":1,"n":2}],"id":"two"}}'
    assert json.loads(text)["item"]["id"] == "two"
    assert json.first(text, "item", "id") == "one"
    assert json.first(text, "item", "list", 0, "n") == 1
    assert json.first(text, "item", "none") is None
    assert json.first(text, "item", "id", "deeper") is None
    deep = b'{"a":' * 1000 + b'{"id":NaN,"id":2}' + b"}" * 1000
    assert math.isnan(json.first(deep, *["a"] * 1000, "id"))


# -- the JSON test suite, where it lies beside the project -------------------------------------------------------------

SUITE = SHARED / "json_test_suite"
# Where the RFC leaves it to the implementation (the i_ files): what is a record here. Read as a stream, so that a byte
# order mark is skipped, or refused.
RECORD = True
MALFORMED = False
REFUSED = None
CHOICES = {
    "number_double_huge_neg_exp": RECORD,  # 0.0
    "number_huge_exp": RECORD,  # infinite, as in Python
    "number_neg_int_huge_exp": RECORD,
    "number_pos_double_huge_exp": RECORD,
    "number_real_neg_overflow": RECORD,
    "number_real_pos_overflow": RECORD,
    "number_real_underflow": RECORD,
    "number_too_big_neg_int": RECORD,
    "number_too_big_pos_int": RECORD,
    "number_very_big_negative_int": RECORD,
    "object_key_lone_2nd_surrogate": RECORD,  # lone halves are grammatical
    "string_1st_surrogate_but_2nd_missing": RECORD,
    "string_1st_valid_surrogate_2nd_invalid": RECORD,
    "string_incomplete_surrogate_and_escape_valid": RECORD,
    "string_incomplete_surrogate_pair": RECORD,
    "string_incomplete_surrogates_escape_valid": RECORD,
    "string_invalid_lonely_surrogate": RECORD,
    "string_invalid_surrogate": RECORD,
    "string_inverted_surrogates_U+1D11E": RECORD,
    "string_lone_second_surrogate": RECORD,
    "structure_500_nested_arrays": RECORD,
    "structure_UTF-8_BOM_empty_object": RECORD,
    "string_UTF-8_invalid_sequence": MALFORMED,
    "string_UTF8_surrogate_U+D800": MALFORMED,
    "string_invalid_utf-8": MALFORMED,
    "string_iso_latin_1": MALFORMED,
    "string_lone_utf8_continuation_byte": MALFORMED,
    "string_not_in_unicode_range": MALFORMED,
    "string_overlong_sequence_2_bytes": MALFORMED,
    "string_overlong_sequence_6_bytes": MALFORMED,
    "string_overlong_sequence_6_bytes_null": MALFORMED,
    "string_truncated-utf-8": MALFORMED,
    "string_utf16BE_no_BOM": REFUSED,
    "string_utf16LE_no_BOM": REFUSED,
    "string_UTF-16LE_with_BOM": REFUSED,
}


@pytest.mark.skipif(not SUITE.is_dir(), reason="the suite does not lie beside the project; the vectors above cover it")
@pytest.mark.parametrize("path", sorted(SUITE.glob("*.json")), ids=lambda path: path.stem)
def test_the_json_test_suite(backend: Any, path: Path) -> None:
    kind, name = path.stem.split("_", 1)
    wanted = CHOICES[name] if kind == "i" else kind == "y"
    # A text is one line here: LF between its tokens becomes CR, which is white space there too, and wrong in strings.
    text = path.read_bytes().replace(b"\n", b"\r")
    if wanted is REFUSED:
        with pytest.raises(SourceError):
            backend.read([text])
        return
    report = backend.read([text]).report
    assert report["records"] == wanted
    assert report["malformed"] == (not wanted and bool(text.removeprefix(b"\xef\xbb\xbf").strip(b" \t\r")))
    if wanted and not text.startswith(b"\xef\xbb\xbf"):
        assert same(json.loads(text), standard(text))
