"""The objects that records and events become: right values of the right types, and nothing that two of them share."""

from __future__ import annotations

import gc
import json
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import headrace
from headrace import errors

VALUES = [
    *("0", "-0", "1", "-1", "255", "256", "-5", "-6", "1073741824", "9007199254740993", "999999999999999999"),
    *("9223372036854775807", "-9223372036854775808", "9223372036854775808", "18446744073709551616", "7" * 70),
    *("0.0", "-0.0", "0.1", "1e5", "1E-7", "1e400", "-1e400", "1e-400", "2.9999999999999997e-05", "0." + "3" * 80),
    *('""', '"a"', '"0123456789abcdef"', '"0123456789abcdefg"', '"' + "x" * 62 + '"', '"' + "x" * 63 + '"'),
    *('"' + "long " * 2000 + '"', '"é"', '"ÿĀ"', '"漢字かな交じり文の長い文字列"', '"🙂 and 🙃"', '"\x7f"'),
    *(r'"\n"', r'"\"\\\/\b\f\r\t"', r'"\u0000"', r'"\u00e9"', r'"\ud83d\ude00"', r'"\ud83d"', r'"\ude00 tail"'),
]
NUMBERS = [value for value in VALUES if value[0] != '"']
TEXTS = [value for value in VALUES if value[0] == '"']


def lines(pattern: str, numbers: list[str], texts: list[str]) -> Iterator[str]:
    """The pattern with each number and text in turn, every one more than once."""
    for turn in range(3 * max(len(numbers), len(texts))):
        number, text = numbers[turn % len(numbers)], texts[turn % len(texts)]
        last = numbers[turn // 2 % len(numbers)]
        yield pattern.replace("NUMBER", number).replace("TEXT", text).replace("LAST", last)


def read(stream: list[str]) -> list[Any]:
    return [record.to_dict() for record in headrace.records("\n".join(stream).encode())]


def exact(value: Any) -> str:
    """What tells 1 from 1.0 and True, 0.0 from -0.0, and the order of keys."""
    return repr(value)


PATTERNS = [
    '{"type":"a","n":NUMBER,"text":TEXT,"same":1.5}',
    '{"type":"a","usage":{"in":NUMBER,"cost":{"in":LAST,"out":0}},"event":{"delta":{"text":TEXT}},"on":true,"off":null}',
    '{"list":[1,[NUMBER,{"t":TEXT}],[],{}],"type":"list"}',
    '{"a":NUMBER,"b":LAST,"c":TEXT,"d":1,"e":2,"f":3,"g":4,"h":5,"i":6,"j":7,"k":8,"l":9,"m":{"n":TEXT}}',
    '{"twice":NUMBER,"type":"x","twice":TEXT}',
    r'{"\u0061\n":NUMBER,"type":TEXT,"\ud83d":1}',
    '{"":TEXT,"é":NUMBER,"漢":{"🙂":LAST}}',
    "{" + ",".join(f'"key{i}":NUMBER' for i in range(30)) + ',"type":TEXT}',
]


@pytest.mark.parametrize("pattern", PATTERNS, ids=range(len(PATTERNS)))
def test_records_of_one_pattern_have_the_values_of_json(pattern: str) -> None:
    stream = list(lines(pattern, NUMBERS, TEXTS))
    assert [exact(value) for value in read(stream)] == [exact(json.loads(line)) for line in stream]


def test_small_changes_of_a_record_are_seen() -> None:
    texts = ['"12345678"', '"12345679"', '"123456789"', '"1234567890123456"', '"1234567x90123456"']
    texts += ['"12345678 and between 87654321"', '"12345678 but between 87654321"', '"1"', "1", "1.0", "10", '"10"']
    stream = [f'{{"type":"t","value":{text},"n":{number}}}' for number in range(6) for text in texts for _ in range(2)]
    assert [exact(value) for value in read(stream)] == [exact(json.loads(line)) for line in stream]


OBJECTS = [
    '{"a":NUMBER}',
    '{"id":NUMBER,"text":TEXT,"inner":{"n":LAST},"list":[LAST],"none":null,"yes":true}',
    '{"é":TEXT,"":LAST,"a key of more than sixteen bytes":NUMBER,"twelve bytes":1}',
    r'{"n":NUMBER,"\u006e":TEXT}',
    '{"twice":NUMBER,"twice":TEXT}',
    "{" + ",".join(f'"{i}":NUMBER' for i in range(40)) + "}",
    '{"%s":TEXT,"n":NUMBER}' % ("k" * 70),
    "{}",
]


def objects_in_many_records() -> list[str]:
    """Records that have no more in common than the objects in them."""
    stream = []
    for pattern in OBJECTS:
        objects = list(lines(pattern, NUMBERS, TEXTS))
        counts = [turn * 7 % 5 for turn in range(len(objects))]
        at = 0
        for turn, count in enumerate(counts):
            if at < len(objects):
                stream.append(f'{{"type":"t{turn}","of {turn}":[{",".join(objects[at : at + count])}]}}')
            at += count
    return stream


def test_objects_of_one_shape_have_their_own_values() -> None:
    stream = objects_in_many_records()
    assert [exact(value) for value in read(stream)] == [exact(json.loads(line)) for line in stream]


def containers(value: Any) -> Iterator[Any]:
    if isinstance(value, (dict, list)):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from containers(inner)


def spoil(value: Any) -> None:
    for container in list(containers(value)):
        container.clear()
        if isinstance(container, dict):
            container["spoiled"] = container


@pytest.mark.parametrize("pattern", [*PATTERNS, ""], ids=range(len(PATTERNS) + 1))
def test_nothing_that_can_be_changed_is_shared(pattern: str) -> None:
    stream = list(lines(pattern, NUMBERS, TEXTS)) if pattern else objects_in_many_records()
    kept = read(stream)
    seen = [container for value in kept for container in containers(value)]
    assert len({id(container) for container in seen}) == len(seen)
    for line, record in zip(stream, headrace.records("\n".join(stream).encode()), strict=True):
        made = record.to_dict()
        again = record.to_dict()
        assert exact(made) == exact(json.loads(line))
        spoil(made)
        assert exact(again) == exact(json.loads(line))
        spoil(again)


DELTA = '{"type":"message_update","assistantMessageEvent":{"type":"KIND_delta","contentIndex":0,"delta":TEXT}}'
CLAUDE = (
    '{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":TEXT}},'
    '"session_id":"SESSION","parent_tool_use_id":PARENT,"uuid":"u","api_message_id":"MESSAGE"}'
)


def claude_stream() -> str:
    stream = []
    for turn in range(40):
        parent = ["null", '"call_1"', '"call_2"'][turn % 3]
        line = CLAUDE.replace("SESSION", f"session-{turn // 17}").replace("PARENT", parent)
        line = line.replace("MESSAGE", f"message-{turn // 4}-{turn % 3}").replace("TEXT", json.dumps(f"text {turn}"))
        stream.append(line)
    return "\n".join(stream)


def pi_stream() -> str:
    texts = [text for text in TEXTS if text != '""' and r"\ud83d" not in text and r"\ude00" not in text]
    kinds = ["text", "thinking", "text"]
    return "\n".join(
        DELTA.replace("TEXT", text).replace("KIND", kinds[turn % 3]) for turn, text in enumerate(texts * 4)
    )


@pytest.mark.parametrize("stream", [claude_stream(), pi_stream()], ids=["claude", "pi"])
def test_events_are_their_own(stream: str) -> None:
    kept = list(headrace.events(stream.encode()))
    assert len(kept) > 20
    seen = [container for event in kept for container in containers(event)]
    assert len({id(container) for container in seen}) == len(seen)
    before = [exact(event) for event in kept]
    after = []
    for event in headrace.events(stream.encode()):
        after.append(exact(event))
        spoil(event)
    assert after == before


def test_events_say_what_their_own_lines_say() -> None:
    events = list(headrace.events(claude_stream().encode()))
    for turn, event in enumerate(events):
        assert event["update"]["content"] == {"type": "text", "text": f"text {turn}"}  # type: ignore[typeddict-item]
        assert event["sessionId"] == f"session-{turn // 17}"
        assert event["messageId"] == f"message-{turn // 4}-{turn % 3}"
        assert event.get("parentToolCallId") == [None, "call_1", "call_2"][turn % 3]


class Witness:
    """What a weak reference can be made to."""


@pytest.mark.parametrize("alike", [True, False], ids=["templates", "shapes"])
@pytest.mark.parametrize("path", [(), ("usage",), ("usage", "cost"), ("list",)], ids=str)
def test_the_garbage_collector_finds_cycles_through_records(path: tuple[str, ...], alike: bool) -> None:
    pad = ["" if alike else " " * n for n in range(12)]
    stream = [f'{{"type":"a","usage":{{"cost":{{"n":{n}}}}}{pad[n]},"list":[{n}],"flat":{n}}}' for n in range(12)]
    made = read(stream)[-1]
    gc.collect()  # which may stop watching what has nothing to be collected in it
    inner = made
    for key in path:
        inner = inner[key]
    witness = Witness()
    if isinstance(inner, list):
        inner += [made, witness]
    else:
        inner |= {"whole": made, "witness": witness}
    gone = weakref.ref(witness)
    del made, inner, witness
    gc.collect()
    assert gone() is None


def test_objects_go_when_they_are_dropped() -> None:
    stream = "\n".join(lines(PATTERNS[1], NUMBERS, TEXTS)).encode()

    def turn() -> None:
        for record in headrace.records(stream):
            record.to_dict()
        for _ in headrace.events(pi_stream().encode()):
            pass

    for _ in range(70):  # what is kept of patterns is bounded
        turn()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(20):
        turn()
    gc.collect()
    assert sys.getallocatedblocks() < before + 500


def test_an_error_in_between_leaves_the_next_records_right() -> None:
    good = [f'{{"type":"a","n":{n},"text":"{n}"}}' for n in range(8)]
    with pytest.raises(errors.MalformedLine):
        for _ in headrace.records("\n".join([*good, "{"]).encode(), strict=True):
            pass
    assert read(good) == [json.loads(line) for line in good]


def test_members_of_records_like_others_are_what_their_dicts_say() -> None:
    """A record that is like those before it is not looked at as a whole for one of its members."""
    lines = [
        {
            "type": "a",
            "same": {"x": [1, {"y": "z"}]},
            "n": n,
            "text": f"t{n}",
            "in": {"n": n, "same": 1},
            "list": [n, 2],
        }
        for n in range(50)
    ]
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    data += b'{"type": "b", "n": 1, "n": 2}\n' * 5 + b'{"n": 1, "type": null, "method": "m"}\n' * 5
    for record in headrace.records(data):
        whole = record.to_dict()
        assert record.type == whole["type"] or record.type == whole["method"]
        for key, value in whole.items():
            assert record[key] == record.get(key) == value
            assert key in record
        for path in (("in", "n"), ("in", "same"), ("same", "x"), ("in", "none"), ("text", "x"), ("none", "x")):
            inner = whole.get(path[0])
            assert record.get(*path) == (inner.get(path[1]) if isinstance(inner, dict) else None)
        assert record.get() == whole
        assert "none" not in record
        assert record.get("none") is None
        with pytest.raises(KeyError):
            record["none"]
