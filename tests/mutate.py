"""Damage to real streams: what disks, pipes and newer versions of a harness do to them, and worse."""

from __future__ import annotations

import json
import random
import re
from typing import Any

_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1.5,
    1e300,
    2**53 + 1,
    2**70,
    "",
    "x",
    "\ud83d",
    "\ude00a",
    [],
    {},
    [1],
    ["a", {}],
    {"type": "text", "text": "t"},
)


# What may stand in the place of a string or number of a record that comes again; the last of each are no JSON.
_STRINGS: tuple[bytes, ...] = (
    b"",
    b"x",
    b"exactly sixteen!",
    b"0198-a36c-4b2e-9d1f-6a6bcb5b84d2-000",
    "sixteen and more \N{GRINNING FACE}".encode(),
    b"a text of more than sixty-four bytes, in which " + "\N{LATIN SMALL LETTER A WITH DIAERESIS}".encode() * 20,
    b"long " * 1000,
    rb"\n\"\\ \u00e9",
    b"\\ud83d\\ude00",
    b"\\ud83d",
    b"\\ude00 \\ud83d",
    b"\\x",
    b"raw\ttab",
    b'"',
    b"\xff",
    b"\xed\xa0\xbd",
    b"cut \xf0\x9f\x98",
)
_NUMBERS: tuple[bytes, ...] = (
    b"0",
    b"-0",
    b"7",
    b"-12345678",
    b"1.5",
    b"2.9999999999999997e-05",
    b"1E+9",
    b"1e400",
    b"9223372036854775808",
    b"123456789012345678901234567890",
    b"01",
    b"1.",
    b"-",
    b"NaN",
    b"",
)
_VALUE = re.compile(rb'"((?:[^"\\]|\\.)*)"(?!\s*:)|(?<=[:,\[])\s*(-?\d[\d.eE+-]*)')


def repeated(data: bytes, rng: random.Random) -> bytes:
    """The stream with some lines printed again and again, each time with other strings and numbers in a few places."""
    lines: list[bytes] = []
    for line in data.split(b"\n"):
        lines.append(line)
        if len(line) < 4000 and rng.random() < 0.3:
            lines += [_refilled(line, rng) for _ in range(rng.randrange(1, 6))]
    return b"\n".join(lines)


def renamed(data: bytes, rng: random.Random) -> bytes:
    """The stream with a short string, such as an id, as another one wherever it stands: cut in an emoji, empty, odd."""
    strings = sorted({match[1] for match in _VALUE.finditer(data) if match[1] and len(match[1]) < 60})
    if not strings:
        return data
    old = rng.choice(strings)
    new = rng.choice([old[:-1] + rb"\ud83d", rb"\udc00" + old[1:], b"", old + rb"\u0000", old + rb"\ud83d\ude00"])
    return data.replace(b'"%s"' % old, b'"%s"' % new)


def _refilled(line: bytes, rng: random.Random) -> bytes:
    spans = [found.span(1 if found[1] is not None else 2) for found in _VALUE.finditer(line)]
    # Faults are rare, or nothing would be like anything before.
    faults = rng.random() < 0.1
    for start, end in sorted(rng.sample(spans, min(len(spans), rng.randrange(4))), reverse=True):
        quoted = line[start - 1 : start] == b'"'
        values = _STRINGS if quoted else _NUMBERS
        upto = len(values) if faults else len(values) - (6 if quoted else 5)
        line = line[:start] + values[rng.randrange(upto)] + line[end:]
    return line


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The stream with one to five lines lost, repeated, moved, cut, hit by a bit, or changed in one value."""
    lines = data.split(b"\n")
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(lines))
        kind = rng.randrange(9)
        if kind == 0 and len(lines) > 1:
            lines.pop(at)
        elif kind == 1:
            lines.insert(at, lines[at])
        elif kind == 2:
            other = rng.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        elif kind == 3:
            lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
        elif kind == 4 and lines[at]:
            line = bytearray(lines[at])
            line[rng.randrange(len(line))] = rng.randrange(256)
            lines[at] = bytes(line)
        else:
            lines[at] = _changed(lines[at], rng)
    return b"\n".join(lines)


def _changed(line: bytes, rng: random.Random) -> bytes:
    """The record with one value somewhere in it replaced, removed or added."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):  # one case nests to 1,024 levels
        return line
    holder, key, inner = None, None, record
    while isinstance(inner, (dict, list)) and inner and (holder is None or rng.random() < 0.8):
        holder, key = inner, rng.choice(list(inner)) if isinstance(inner, dict) else rng.randrange(len(inner))
        inner = inner[key]
    if holder is None:
        return line
    value = rng.choice(_VALUES)
    if isinstance(holder, dict) and rng.random() < 0.1:
        del holder[key]
    elif isinstance(holder, dict) and rng.random() < 0.2:
        holder[rng.choice(["type", "id", "message", "status", "content", "text", "role"])] = value
    else:
        holder[key] = value
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=rng.random() < 0.5)
    return text.encode("utf-8", "surrogatepass")


_NOISE = (
    b"",
    b"  \t",
    b"\r",
    b"npm warn deprecated",
    b"\x00" * 20,
    b"\x1b[2K\x1b]0;title\x07",
    b"\xc3\xff\xfe",
    b"{",
    b"[]",
    b"42",
    b'{"type":"mood"}',
    b'{"no":"type"}',
)
_MOST = 60  # lines


def damaged(streams: list[bytes], rng: random.Random) -> bytes:
    """A stretch of one of the streams, mutated, and then what happens between a harness and its reader: lines glued,
    torn, shuffled, put into arrays, mixed with noise, blanks and lines of another stream; any line ends, a byte order
    mark, no last LF."""
    data = rng.choice(streams)
    lines = data.split(b"\n")
    if len(lines) > _MOST:
        start = rng.choice((0, 0, rng.randrange(len(lines))))
        lines = lines[start : start + _MOST]
    lines = mutated(b"\n".join(lines), rng).split(b"\n")
    for _ in range(rng.randrange(6)):
        at = rng.randrange(len(lines))
        kind = rng.randrange(8)
        if kind == 0:
            lines[at : at + 2] = [b"".join(lines[at : at + 2])]
        elif kind == 1:
            lines[at : at + 3] = [b"[" + rng.choice((b",", b" , ")).join(lines[at : at + 3]) + b"]"]
        elif kind == 2:
            lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)] + rng.choice(lines)
        elif kind == 3:
            lines[at] = rng.choice(_NOISE) + lines[at] + rng.choice(_NOISE)
        elif kind == 4:
            part = lines[at : at + 5]
            rng.shuffle(part)
            lines[at : at + 5] = part
        elif kind == 5:
            lines[at:at] = rng.choice(streams).split(b"\n")[:3]
        else:
            lines.insert(at, rng.choice(_NOISE))
    ends = rng.choice(((b"\n",), (b"\r\n",), (b"\n", b"\n", b"\r\n", b"\n\n")))
    text = b"".join(line + rng.choice(ends) for line in lines)
    text = text[: len(text) - rng.choice((0, 0, 1, 1, 2, rng.randrange(20)))]
    return rng.choice((b"", b"", b"", b"\xef\xbb\xbf", b"\n")) + text
