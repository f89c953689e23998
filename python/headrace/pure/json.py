"""text -> value: strict RFC 8259, exact, with the reason when a text is none.

orjson decodes where it is exact, the standard json where orjson refuses or rounds (integers beyond 64 bits, lone
surrogate escapes, floats beyond the range), and `scan`, an iterative decoder, where recursion could run out. `scan`
is the specification: it has the last word on every text that the fast paths refuse.

The reasons of `JsonError` are exactly these. When several fit, the first in this list is given; all but the first
tell the first fault met when reading from the left:

- ``"invalid UTF-8"``: the text is not UTF-8. A multi-byte character that the end of the text cuts is not this fault
  when the text before it is cut off anyway.
- ``"too deep"``: a bracket opens the 1,025th level.
- ``"cut off"``: the text ends before its value does, or is empty.
- ``"not JSON"``: anything else.

(``"line too long"``, the fifth reason of the report, is about lines and found before any decoding.)
"""

from __future__ import annotations

import json as _std
import math
import re
from collections.abc import Iterator
from typing import Any, NoReturn

import orjson

__all__ = ["MAX_DEPTH", "JsonError", "after_blanks", "elements", "first", "loads", "loads_lax", "scan"]

MAX_DEPTH = 1024


class JsonError(ValueError):
    """The text is not one JSON value.

    Attributes:
        offset: byte offset in the text of what is wrong; its length when the text is cut off.
        reason: one of the few phrases in the docstring of this module.
    """

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"{reason} at byte {offset}")
        self.offset = offset
        self.reason = reason


def loads(text: bytes) -> Any:
    """The value of a text, equal to what the standard `json.loads` gives, without its leniencies and limits."""
    # orjson rounds integers beyond 64 bits to floats: keep every long run of digits away from it.
    if _LONG_RUN not in text.translate(_DIGITS):
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            pass
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_utf8(text, error) from None
    if _shallow(text):
        try:
            return _STRICT.decode(decoded)
        except (ValueError, RecursionError):
            pass  # RecursionError depends on how deep the caller is: it decides nothing
    return _whole(text, lax=False)


def loads_lax(text: bytes) -> Any:
    """As `loads`, but NaN, Infinity, raw control characters and invalid UTF-8 (as U+FFFD) are let through."""
    return _whole(text, lax=True)


def first(text: bytes, *path: str | int) -> Any:
    """The value at a path of keys and indexes, by the FIRST of duplicate keys; None where there is none.

    The text must be valid, for `loads` or at least for `loads_lax`.
    """
    try:
        value = _FIRST.decode(text.decode("utf-8"))
    except (ValueError, RecursionError):
        value = _whole(text, lax=True, first=True)
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def member(text: bytes, key: str) -> bytes | None:
    """The value of that name in a valid text that is an object, as it stands there; the last of duplicate keys."""
    found = None
    at = after_blanks(text, text.index(b"{") + 1)
    while text[at] != _CLOSE_OBJECT:
        name, at = _key(text, at, True)
        start = after_blanks(text, at)
        _, end = scan(text, start, lax=True)
        if name == key:
            found = text[start:end]
        at = after_blanks(text, end)
        if text[at] == _COMMA:
            at = after_blanks(text, at + 1)
    return found


def elements(text: bytes) -> Iterator[tuple[int, int]]:
    """Start and end of each element of a valid text that is an array."""
    inside = text.index(b"[") + 1
    start, depth = inside, 0
    for at, byte in _structure(text, inside):
        if byte in b"{[":
            depth += 1
        elif depth and byte in b"}]":
            depth -= 1
        elif not depth:  # a comma of this array, or its closing bracket
            start = after_blanks(text, start)
            end = start + len(text[start:at].rstrip(_BLANKS))
            if end > start:
                yield start, end
            if byte == _CLOSE_ARRAY:
                return
            start = at + 1


def scan(text: bytes, at: int = 0, *, lax: bool = False, first: bool = False) -> tuple[Any, int]:
    """Decodes the one value that begins at or after `at`: (value, offset behind it). What follows is not looked at.

    Bytes from 0x80 up are taken for text in strings: whether they are UTF-8 is checked by the caller, or, with `lax`,
    repaired. With `first`, the first of duplicate keys wins.
    """
    size = len(text)
    value: Any
    open_containers: list[tuple[Any, Any]] = []  # (container, key that waits for its value)
    while True:
        # A value is due.
        at = after_blanks(text, at)
        if at == size:
            raise JsonError(size, "cut off")
        byte = text[at]
        if byte == _QUOTE:
            value, at = _string(text, at, lax)
        elif byte in b"{[":
            if len(open_containers) == MAX_DEPTH:
                raise JsonError(at, "too deep")
            value, closer = ({}, _CLOSE_OBJECT) if byte == _OPEN_OBJECT else ([], _CLOSE_ARRAY)
            at = after_blanks(text, at + 1)
            if at < size and text[at] == closer:
                at += 1
            else:
                key = None
                if closer == _CLOSE_OBJECT:
                    key, at = _key(text, at, lax)
                open_containers.append((value, key))
                continue
        elif byte in b"-0123456789":
            value, at = _number(text, at, lax)
        else:
            value, at = _literal(text, at, lax)
        # A value is complete: put it in its container, and close what ends here.
        while True:
            if not open_containers:
                return value, at
            container, key = open_containers[-1]
            if key is None:
                container.append(value)
                closer = _CLOSE_ARRAY
            else:
                if not (first and key in container):
                    container[key] = value
                closer = _CLOSE_OBJECT
            at = after_blanks(text, at)
            if at == size:
                raise JsonError(size, "cut off")
            byte = text[at]
            at += 1
            if byte == closer:
                value = container
                open_containers.pop()
            elif byte == _COMMA:
                if key is not None:
                    key, at = _key(text, after_blanks(text, at), lax)
                    open_containers[-1] = (container, key)
                break
            else:
                raise JsonError(at - 1, "not JSON")


# -- what stands behind loads ------------------------------------------------------------------------------------------

_DIGITS = bytes(0x30 if chr(byte) in "0123456789" else 0 for byte in range(256))
_LONG_RUN = b"0" * 19  # every integer of 18 digits fits 64 bits


def _shallow(text: bytes) -> bool:
    """Whether a valid text is certainly not nested too deep. Nothing is promised about an invalid one."""
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return True
    depth = 0
    for _, byte in _structure(text, 0):
        if byte in b"{[":
            depth += 1
            if depth > MAX_DEPTH:
                return False
        elif byte != _COMMA:
            depth -= 1
    return True


def _not_utf8(text: bytes, error: UnicodeDecodeError) -> JsonError:
    if error.reason == "unexpected end of data":
        try:
            scan(text[: error.start])
        except JsonError as cut:
            if cut.reason == "cut off":
                return JsonError(len(text), "cut off")
    return JsonError(error.start, "invalid UTF-8")


def _whole(text: bytes, *, lax: bool, first: bool = False) -> Any:
    value, end = scan(text, lax=lax, first=first)
    end = after_blanks(text, end)
    if end < len(text):
        raise JsonError(end, "not JSON")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def integer(digits: str) -> int:
    """int() of any number of digits: the interpreter refuses more than sys.get_int_max_str_digits()."""
    if len(digits) <= 640:  # the lowest limit that can be set
        return int(digits)
    if digits[0] == "-":
        return -integer(digits[1:])
    half = len(digits) // 2
    return integer(digits[:-half]) * int(10**half) + integer(digits[-half:])


_STRICT = _std.JSONDecoder(parse_int=integer, parse_constant=_refuse)
_FIRST = _std.JSONDecoder(
    parse_int=integer, parse_constant=_refuse, object_pairs_hook=lambda pairs: dict(reversed(pairs))
)
_LENIENT = _std.JSONDecoder(strict=False)  # lets raw control characters through


# -- tokens ------------------------------------------------------------------------------------------------------------

_BLANKS = b" \t\n\r"
_QUOTE, _COMMA, _COLON, _BACKSLASH = b'",:\\'
_OPEN_OBJECT, _CLOSE_OBJECT, _CLOSE_ARRAY = b"{}]"

_blanks = re.compile(rb"[ \t\n\r]*").match
_plain = re.compile(rb'[^"\\\x00-\x1f]*').match
_plain_lax = re.compile(rb'[^"\\]*').match
_hex = re.compile(rb"[0-9a-fA-F]{0,4}").match
_number_token = re.compile(rb"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?").match
_number_cut = re.compile(rb"-?(?:(?:0|[1-9][0-9]*)(?:\.|(?:\.[0-9]+)?[eE][+-]?))?\Z").match
_structural = re.compile(rb'["\[\]{},]').search

_LITERALS = {b"true": True, b"false": False, b"null": None}
_LAX_LITERALS = _LITERALS | {b"NaN": math.nan, b"Infinity": math.inf}


def after_blanks(text: bytes, at: int) -> int:
    """The offset of the next byte that is not white space."""
    match = _blanks(text, at)
    assert match is not None
    return match.end()


def _string(text: bytes, at: int, lax: bool) -> tuple[str, int]:
    plain, size, start = (_plain_lax if lax else _plain), len(text), at + 1
    at = start
    escaped = False
    while True:
        match = plain(text, at)
        assert match is not None
        at = match.end()
        if at == size:
            raise JsonError(size, "cut off")
        if text[at] == _QUOTE:
            break
        if text[at] != _BACKSLASH:
            raise JsonError(at, "not JSON")
        escaped = True
        escape = text[at + 1 : at + 2]
        if escape == b"u":
            match = _hex(text, at + 2)
            assert match is not None
            if match.end() < at + 6:
                raise JsonError(size, "cut off") if match.end() == size else JsonError(at, "not JSON")
            at += 6
        elif escape in (b'"', b"\\", b"/", b"b", b"f", b"n", b"r", b"t"):
            at += 2
        else:
            raise JsonError(at, "not JSON") if escape else JsonError(size, "cut off")
    value = text[start:at].decode("utf-8", "replace")
    if escaped:
        value = _LENIENT.decode(f'"{value}"')
    return value, at + 1


def _key(text: bytes, at: int, lax: bool) -> tuple[str, int]:
    """A key and its colon."""
    if at < len(text):
        if text[at] != _QUOTE:
            raise JsonError(at, "not JSON")
        key, at = _string(text, at, lax)
        at = after_blanks(text, at)
    if at == len(text):
        raise JsonError(at, "cut off")
    if text[at] != _COLON:
        raise JsonError(at, "not JSON")
    return key, at + 1


def _number(text: bytes, at: int, lax: bool) -> tuple[int | float, int]:
    match = _number_token(text, at)
    end = match.end() if match else at + 1
    if text[end : end + 1] in (b".", b"e", b"E") or match is None:
        if lax and text.startswith(b"-Infinity", at):
            return float("-inf"), at + 9
        if _number_cut(text, at):
            raise JsonError(len(text), "cut off")
        raise JsonError(at, "not JSON")
    token = match[0].decode()
    return (float(token) if match[1] or match[2] else integer(token)), end


def _literal(text: bytes, at: int, lax: bool) -> tuple[Any, int]:
    for word, value in (_LAX_LITERALS if lax else _LITERALS).items():
        if text.startswith(word, at):
            return value, at + len(word)
        if word.startswith(text[at : at + len(word)]):
            raise JsonError(len(text), "cut off")
    raise JsonError(at, "not JSON")


def _structure(text: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Brackets and commas outside of strings, each with its offset. The text must be valid."""
    while match := _structural(text, at):
        found = match.start()
        at = found + 1
        if text[found] != _QUOTE:
            yield found, text[found]
            continue
        while True:  # to the quote that no backslash escapes
            quote = text.find(b'"', at)
            if quote < 0:
                return
            before = quote
            while text[before - 1] == _BACKSLASH:
                before -= 1
            at = quote + 1
            if (quote - before) % 2 == 0:
                break
