"""A session that a harness keeps as one pretty-printed JSON document is one record, and an array of records, pretty or
with a line for each, stands for them; a damaged stream never does."""

from __future__ import annotations

import json

import pytest

from headrace.errors import MalformedLine
from headrace.pure.record import Intake

from .engines import ENGINES

pytestmark = pytest.mark.once

VALUE = {"sessionId": "s", "projectHash": "h", "messages": [{"id": 1, "parts": []}, {}, "text", -1.5, None, True]}
PRETTY = json.dumps(VALUE, indent=2).encode()


def read(data: bytes, size: int, *, max_line_bytes: int = 1 << 20, known: bool = True):
    """(line, offset, share, value) of each record, and the report."""
    intake = Intake(max_line_bytes=max_line_bytes, is_document=lambda value: known and "messages" in value)
    records = []

    def take(found):
        for record in found:
            intake.report.event(record)
            records.append((record.line, record.offset, record.share, record.value))
            assert data[record.offset :].startswith(record.raw)

    for at in range(0, len(data), size):
        take(intake.feed(data[at : at + size]))
    take(intake.close())
    assert intake.report.bytes == len(data)
    return records, intake.report


def every_size(data: bytes, **options):
    results = [read(data, size, **options) for size in (1, 7, len(data))]
    reports = [report.to_dict() for _, report in results]
    assert results[0][0] == results[1][0] == results[2][0]
    assert reports[0] == reports[1] == reports[2]
    return results[0]


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\n \n\n"])
@pytest.mark.parametrize("start", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_a_document_is_one_record(start, end):
    data = start + PRETTY + end
    records, report = every_size(data)
    blank = start.count(b"\n")
    assert [(line, offset, value) for line, offset, _, value in records] == [(1 + blank, len(start), VALUE)]
    assert (report.records, report.malformed, report.truncated) == (1, 0, False)
    assert report.lines == data.count(b"\n") + (end == b"")


def test_line_ends_of_windows_stay_in_the_record():
    records, report = every_size(PRETTY.replace(b"\n", b"\r\n") + b"\r\n")
    assert records[0][3] == VALUE
    assert report.malformed == 0


RECORDS = [{"type": "x", "said": [1, {}]}, {"type": "y"}, "text", {"type": "x", "said": []}]
ARRAY = json.dumps(RECORDS, indent=2).encode()


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\n \n\n"])
@pytest.mark.parametrize("start", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_a_pretty_array_of_records_stands_for_them(start, end):
    data = start + ARRAY.replace(b"\n", end[:2] if end == b"\r\n" else b"\n") + end
    records, report = every_size(data)
    assert [value for *_, value in records] == [value for value in RECORDS if isinstance(value, dict)]
    places = [(data[:offset].count(b"\n") + 1, offset) for _, offset, *_ in records]
    assert [(line, offset) for line, offset, *_ in records] == places
    assert (report.records, report.malformed, report.truncated) == (1, 0, False)


def test_a_pretty_array_of_anything_else_is_no_stream():
    for values in ([1, 2], [[1], 2], [{"name": "a package"}, {"type": "x"}]):
        records, report = every_size(json.dumps(values, indent=2).encode())
        assert not records
        assert report.malformed > 2


def test_what_a_wrapper_printed_as_a_pretty_array_is_read_like_the_stream():
    # claude-code-action 1.0 writes its execution file so: JSON.stringify(messages, null, 2)
    facts = {"session_id": "s-1", "uuid": "u-1"}
    answer = {"id": "m-1", "role": "assistant", "content": [{"type": "text", "text": "Hi."}], "model": "m", "usage": {}}
    records = [
        {"type": "system", "subtype": "init", "cwd": "/p", "model": "m", "tools": [], "apiKeySource": "none", **facts},
        {"type": "assistant", "message": answer, "parent_tool_use_id": None, **facts},
        {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "Hi.", **facts},
    ]
    lines = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    told = []
    for engine in ENGINES.values():
        for data in (lines, json.dumps(records, indent=2).encode()):
            parser = engine()
            parser.feed(data)
            parser.close()
            run = parser.run()
            told.append((run["dialect"], run["texts"], run["verdict"]["outcome"], parser.report()["malformed"]))
    assert told == [("claude", ["Hi."], "completed", 0)] * len(told)


RECORD = b'{"type": "x"}'


DAMAGED = [
    PRETTY + b"\n" + RECORD,  # a stream that happens to begin with a pretty object
    b"{\n" + RECORD,
    b'{"type":"cut\n' + RECORD,
    b"{\n  \nnpm notice\n" + RECORD,
    b'{\n"a": [1,\n[2]\n]}\n' + RECORD,
    RECORD + b"\n" + PRETTY,
    PRETTY[:-1],  # cut off
    b"[\n" + RECORD,
    b"[\n" + RECORD + b"\n" + RECORD,
    b"[\n" + RECORD + b"\n" + RECORD + b"\n]",
    b'{"a": [\n' + RECORD + b"\n]}",
    b"[\n" + RECORD + b"\n]\n" + RECORD,
    ARRAY + b"\n" + RECORD,
    ARRAY[:-1],
    ARRAY + b"\n]",
    PRETTY + b"\n}",
]


@pytest.mark.parametrize("after", DAMAGED)
def test_a_stream_with_a_damaged_line_keeps_its_account(after):
    records, report = every_size(after)
    lines = [line for line in after.split(b"\n") if line.strip()]
    alone = [line for line in lines if is_json(line)]
    assert [value for *_, value in records] == [json.loads(line) for line in alone if line.strip().startswith(b"{")]
    assert (report.records, report.malformed) == (len(alone), len(lines) - len(alone))


def test_only_a_known_document_counts():
    records, report = every_size(PRETTY, known=False)
    assert not records
    assert report.malformed > 5


def test_no_more_is_held_than_a_line_may_be_long():
    _, report = every_size(PRETTY, max_line_bytes=len(PRETTY) // 2)
    assert report.malformed > 5
    _, report = every_size(PRETTY, max_line_bytes=len(PRETTY) + 1)
    assert report.malformed == 0


def test_a_record_is_not_held_back_by_a_damaged_line_before_it():
    intake = Intake(is_document=lambda value: True)
    assert not list(intake.feed(b'{"type":\n'))
    assert [record.line for record in intake.feed(RECORD + b"\n")] == [2]


@pytest.mark.parametrize("max_line_bytes", [1 << 20, len(PRETTY) + 1, len(PRETTY) // 2, 5])
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_every_backend_keeps_the_same_account(size: int, max_line_bytes: int) -> None:
    documents = [
        data
        for text in (PRETTY, ARRAY, ARRAY.replace(b'"x"', b'"item.completed"'))
        for data in (text, text.replace(b"\n", b"\r\n") + b"\r\n", b"\n\t\n" + text + b"\n \n\n")
    ]
    rows = [data.replace(b'"x"', b'"item.completed"') for data in (*ROWS, *CUT_ROWS)]
    for data in [*documents, *DAMAGED, *ROWS, *CUT_ROWS, *rows, PRETTY.replace(b"projectHash", b"other")]:
        told = []
        for engine in ENGINES.values():
            parser = engine(max_line_bytes=max_line_bytes)
            for at in range(0, len(data), size):
                parser.feed(data[at : at + size])
            parser.close()
            told.append((parser.report(), parser.run()["dialect"]))
        assert told == [told[0]] * len(told)


ROWS = [
    b"[\n" + b",\n".join([RECORD] * 3) + b"\n]\n",  # ClickHouse
    b"[\n\t" + b",\n\t".join([RECORD] * 3) + b"\n]\n",  # DuckDB's COPY
    b"[" + b",\n".join([RECORD] * 3) + b"]\n",  # SQLite's and DuckDB's .mode json
    b"[" + RECORD + b"\n," + RECORD + b"\n," + RECORD + b"\n]\n",
    b"[ \r\n\r\n" + RECORD + b" ,\r\n \r\n" + RECORD + b"\t,\r\n" + RECORD + b"\r\n]",
]


@pytest.mark.parametrize("data", ROWS)
def test_an_array_with_a_line_for_each_record_stands_for_them(data):
    records, report = every_size(data)
    assert [data[: offset + 1].count(b"\n") + 1 for _, offset, *_ in records] == [line for line, *_ in records]
    assert [value for *_, value in records] == [json.loads(RECORD)] * 3
    assert (report.records, report.malformed, report.salvaged, report.blank) == (1, 0, 0, 0)


CUT_ROWS = [
    b"[\n" + (RECORD + b",\n") * 3,
    b"[\n" + (RECORD + b",\n") * 3 + b'{"type": "cu',
    b"[" + (RECORD + b",\n") * 3,
    (RECORD + b",\n") * 3,
    b"\n" + (RECORD + b" ,\r\n") * 3 + b"\n",
    b"[\n" + (RECORD + b",\n") * 2 + b"noise\n" + RECORD + b"\n]\n",
    b"[" + (RECORD + b",\n") * 2 + b"noise\n" + RECORD + b"]\n",
]


@pytest.mark.parametrize("data", CUT_ROWS)
def test_what_a_cut_array_with_a_line_for_each_record_holds_is_got_back(data):
    records, report = every_size(data)
    assert [value for *_, value in records] == [json.loads(RECORD)] * 3
    assert report.malformed == sum(not is_json(line) for line in data.split(b"\n") if line.strip())
    assert report.salvaged == 3 - sum(is_json(line) for line in data.split(b"\n"))


def test_elements_of_a_cut_array_are_mended_like_other_lines():
    records, report = every_size(b'[\n{"type": "x", "said": NaN},\n' + RECORD + b",\n")
    assert [value["type"] for *_, value in records] == ["x", "x"]
    assert (report.records, report.malformed, report.salvaged) == (0, 3, 2)


NO_ROWS = [
    RECORD + b"\n" + RECORD + b",\n",  # the first line is a record
    b"noise\n" + RECORD + b",\n",
    b"[\n{\n" + RECORD + b",\n",
    b'[\n{"name": "a package"},\n' + RECORD + b",\n",
    b'{"a": [\n' + RECORD + b",\n",
]


@pytest.mark.parametrize("data", NO_ROWS)
def test_a_comma_behind_a_record_is_damage_anywhere_else(data):
    records, report = every_size(data)
    assert len(records) == report.records == sum(is_json(line) for line in data.split(b"\n"))
    assert report.salvaged == 0


@pytest.mark.parametrize("data", CUT_ROWS)
def test_strict_reading_stops_at_a_cut_array(data):
    intake = Intake(strict=True)
    with pytest.raises(MalformedLine):
        [*intake.feed(data), *intake.close()]


def is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
