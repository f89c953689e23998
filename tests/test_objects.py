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


CHANGES: list[Any] = [
    lambda it: it.clear(),
    lambda it: it.update(new=1),
    lambda it: it.setdefault("new", []).append(it),
    lambda it: it.pop(next(iter(it))),
    lambda it: it.popitem(),
    lambda it: it.update({"new": it.pop(next(iter(it)))}),
    lambda it: it.update({key: it.pop(key) for key in list(it)}),
    lambda it: it.update(reversed(list(it.items()))),
    lambda it: it.update(dict.fromkeys(it, "other")),
    lambda it: it.update(dict.fromkeys(it, it)),
    lambda it: it.update({key: dict(value) for key, value in it.items() if isinstance(value, dict)}),
    lambda it: it.update({key: Text(value) for key, value in it.items() if isinstance(value, str)}),
    lambda it: it.update({1: 2}),
    lambda it: [it.pop(key) for key in list(it)],
    lambda it: it.update({"x" * n: n for n in range(40)}) or [it.pop("x" * n) for n in range(40)],
]


class Text(str):
    """A text, but none of which nobody hears when it goes."""

    def __del__(self) -> None:
        list(headrace.events(b'{"type":"text","content":"Hi"}\n'))


@pytest.mark.parametrize("change", range(len(CHANGES)))
@pytest.mark.parametrize("stream", [claude_stream(), pi_stream()], ids=["claude", "pi"])
def test_what_was_done_to_an_event_is_not_in_the_next(stream: str, change: int) -> None:
    """One that is dropped may be the next one."""
    right = [exact(event) for event in list(headrace.events(stream.encode()))]
    paths: list[tuple[str, ...]] = [(), ("update",), ("update", "content")]
    for path in paths:
        for every in (1, 2, 5):
            for number, event in enumerate(headrace.events(stream.encode())):
                assert exact(event) == right[number]
                inner: Any = event
                for key in path:
                    inner = inner[key]
                if number % every == 0:
                    CHANGES[change](inner)
                del inner, event
    assert [exact(event) for event in headrace.events(stream.encode())] == right


@pytest.mark.parametrize("change", range(len(CHANGES)))
@pytest.mark.parametrize("pattern", PATTERNS[:4], ids=range(4))
def test_what_was_done_to_a_record_is_not_in_the_next(pattern: str, change: int) -> None:
    stream = list(lines(pattern, NUMBERS[:20], TEXTS[:9]))
    for every in (1, 2, 5):
        for number, record in enumerate(headrace.records("\n".join(stream).encode())):
            made = record.to_dict()
            assert exact(made) == exact(json.loads(stream[number]))
            for inner in list(containers(made)) if number % every == 0 else ():
                if isinstance(inner, dict) and inner:
                    CHANGES[change](inner)


@pytest.mark.parametrize(
    "path", [(), ("update",), ("update", "content"), ("update", "content", "text"), ("messageId",)]
)
def test_what_is_kept_of_an_event_stays(path: tuple[str, ...]) -> None:
    def part(event: Any) -> Any:
        for key in path:
            event = event.get(key, event) if isinstance(event, dict) else event
        return event

    stream = claude_stream().encode()
    right = [exact(part(event)) for event in list(headrace.events(stream))]
    for every in (1, 3):
        kept = [part(event) for number, event in enumerate(headrace.events(stream)) if number % every == 0]
        assert [exact(it) for it in kept] == right[::every]


def test_parts_of_records_that_are_kept_stay() -> None:
    stream = list(lines(PATTERNS[1], NUMBERS, TEXTS))
    usages, costs, deltas = [], [], []
    for number, record in enumerate(headrace.records("\n".join(stream).encode())):
        [usages, costs, deltas][number % 3].append((number, record.to_dict()))
        kept = [usages, costs, deltas][number % 3]
        kept[-1] = (number, [kept[-1][1]["usage"], kept[-1][1]["usage"]["cost"], kept[-1][1]["event"]][number % 3])
    for number, value in [*usages, *costs, *deltas]:
        right = json.loads(stream[number])
        assert exact(value) == exact([right["usage"], right["usage"]["cost"], right["event"]][number % 3])


def test_batches_of_a_parser_are_their_own() -> None:
    stream = (claude_stream() + "\n").encode()
    right = [exact(event) for event in list(headrace.events(stream))]
    for size in (100, 700, 4000):
        for keep in (0, 1, 3):
            parser = headrace.Parser()
            batches: list[Any] = []
            seen = []
            for at in range(0, len(stream), size):
                batch = parser.feed(stream[at : at + size])
                seen += [exact(event) for event in batch]
                batches.append((len(seen) - len(batch), batch))
                del batch
                batches = batches[len(batches) - keep :]
                for first, kept in batches:
                    assert [exact(event) for event in kept] == right[first : first + len(kept)]
            assert seen == right


def test_what_was_put_into_events_and_records_goes_with_their_stream() -> None:
    stream = claude_stream().encode()
    witness = Witness()
    for event in headrace.events(stream):
        event["witness"] = event["update"]["witness"] = witness  # type: ignore[typeddict-unknown-key]
    for record in headrace.records(stream):
        record.to_dict()["witness"] = witness
    gone = weakref.ref(witness)
    del event, record, witness
    assert gone() is None


def test_cycles_through_readers_are_found() -> None:
    """What is remembered of the dicts that were given out keeps nothing in memory."""
    stream = claude_stream().encode()
    gone = []
    for turn in range(4):
        witness = Witness()
        gone.append(weakref.ref(witness))
        reader, records, events = headrace.records(stream), [], headrace.events(stream)
        for record in reader:
            made = record.to_dict()
            made.update(reader=reader, record=record, events=events, witness=witness)
            records.append(record)
            if turn % 2 and len(records) == 20:
                break
        for number, event in enumerate(events):
            event.update(reader=reader, record=record, events=events, witness=witness)  # type: ignore[call-arg]
            if turn % 2 and number == 20:
                break
        for record in records if turn // 2 else ():
            record.to_dict().update(record=record, witness=witness)
        del made, event, record, witness, reader, records, events
    gc.collect()
    assert [it() for it in gone] == [None] * 4
