"""The account of a stream in words, for people: what ``Report.explain`` gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .cli.safe import one_line

if TYPE_CHECKING:
    from .result import Report

__all__ = ["told"]

_NAMES = 20  # of rules and of types that are listed
_FAULTS = 10  # of malformed lines
_WIDTH = 100  # characters of what the wire said


def told(report: Report) -> str:
    """The lines of the account. What the wire said is in them as a terminal may show it."""
    if not report.bytes and not report.lines:
        return "Nothing was read."
    return "\n".join(_lines(report))


def _lines(report: Report) -> Iterator[str]:
    yield f"{_count(report.bytes, 'byte')} in {_count(report.lines, 'line')}:"
    for label, size, what in (
        ("events", report.event_bytes, _count(report.event_records, "record")),
        ("ignored", report.ignored_bytes, _of(report.ignored, "by rule")),
        ("unknown", report.unknown_bytes, _of(report.unknown, "by type")),
        ("malformed", report.malformed_bytes, _count(report.malformed, "line")),
        ("blank", report.blank_bytes, _count(report.blank, "line")),
    ):
        yield _row(report, label, size, what)
        if label == "ignored":
            yield from _names(report, report.ignored, report.ignored_sizes)
        elif label == "unknown":
            yield from _names(report, report.unknown, report.unknown_sizes)
        elif label == "malformed":
            yield from _malformed(report)
    yield from _remarks(report)
    yield from _checked(report)


def _row(report: Report, label: str, size: int, what: str) -> str:
    width = len(f"{report.bytes:,}")
    share = size / report.bytes if report.bytes else 0.0
    return f"  {label:9}  {size:{width},}  {share:6.1%}  {what}"


def _of(counts: dict[str, int], how: str) -> str:
    number = sum(counts.values())
    return _count(number, "record") + (f", {how}:" if number else "")


def _names(report: Report, counts: dict[str, int], sizes: dict[str, int]) -> Iterator[str]:
    names = sorted(counts, key=lambda name: (-sizes[name], -counts[name], name))
    for name in names[:_NAMES]:
        yield _row(report, "", sizes[name], f"{one_line(name, _WIDTH)}: {counts[name]:,}")
    if len(names) > _NAMES:
        rest = names[_NAMES:]
        size, number = sum(sizes[name] for name in rest), sum(counts[name] for name in rest)
        yield _row(report, "", size, f"{_count(len(rest), 'other')}: {number:,}")


def _malformed(report: Report) -> Iterator[str]:
    for line in report.malformed_lines[:_FAULTS]:
        where = f"line {line['line']:,}, byte {line['offset']:,}"
        yield f"             {where}: {one_line(line['reason'])}: {one_line(line['text'], _WIDTH)}"
    if report.malformed > _FAULTS:
        yield f"             … {report.malformed - _FAULTS:,} more"


def _remarks(report: Report) -> Iterator[str]:
    if report.salvaged:
        yield f"{_were(report.salvaged)} got back from malformed lines, with whose bytes theirs are counted."
    if report.lossy:
        yield f"{_were(report.lossy)} shown with U+FFFD for what was no text."
    if report.truncated:
        yield "The stream ends in the middle of a line."
    held = report.lines - report.blank
    if held > 0 and not report.records and not report.malformed:  # nothing but a document is held back
        yield f"{_count(held, 'line')} may be the beginning of one document: read when the rest is there."


def _checked(report: Report) -> Iterator[str]:
    """Whether the parts add up to the whole. They always do; if not, somebody must know."""
    parts = (
        report.event_bytes,
        report.ignored_bytes,
        report.unknown_bytes,
        report.malformed_bytes,
        report.blank_bytes,
    )
    wrong = [
        f"{name}: {part:,} against {whole:,}"
        for name, part, whole in (
            ("bytes", sum(parts), report.bytes),
            ("ignored bytes", sum(report.ignored_sizes.values()), report.ignored_bytes),
            ("unknown bytes", sum(report.unknown_sizes.values()), report.unknown_bytes),
        )
        if part != whole
    ]
    if wrong:
        yield f"THE ACCOUNT DOES NOT ADD UP ({'; '.join(wrong)}): please report it as a bug of headrace."
    else:
        yield "The sums add up: no byte is missing."


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _were(records: int) -> str:
    return f"{_count(records, 'record')} {'was' if records == 1 else 'were'}"
