"""The same work by headrace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headrace

Paths = list[Path]


def dicts(paths: Paths) -> None:
    """The dict of every record, as `json.loads` gives it."""
    for path in paths:
        for record in headrace.records(path):
            record.to_dict()


def records(paths: Paths) -> None:
    """Every record as an object, nothing decoded."""
    for path in paths:
        for _ in headrace.records(path):
            pass


def one_field(paths: Paths) -> None:
    """One field of every record."""
    for path in paths:
        for record in headrace.records(path):
            record.get("type")


def events(paths: Paths) -> None:
    """Every event as a dict."""
    for path in paths:
        for _ in headrace.events(path):
            pass


def only_records(paths: Paths) -> None:
    """The records of one rare type."""
    for path in paths:
        for _ in headrace.records(path, only={"result"}):
            pass


def only_events(paths: Paths) -> None:
    """The events of one rare kind."""
    for path in paths:
        for _ in headrace.events(path, only={"error"}):
            pass


def reduce(paths: Paths) -> list[Any]:
    """The run of every stream."""
    return [headrace.reduce(path) for path in paths]
