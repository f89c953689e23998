"""Dispatch by event kind or by native record type: what has no handler never becomes a Python object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from . import api
from .result import Run

__all__ = ["Router"]

_KINDS = frozenset((*api.KINDS, "state"))
_Handler = TypeVar("_Handler", bound=Callable[[Any], object])


class Router:
    """Calls a function for each event of a kind, or for each record of a native type.

    >>> router = Router()
    >>> @router.on("agent_message_chunk")
    ... def show(event):
    ...     print(event["update"]["content"]["text"])
    >>> @router.on_record("usage_stats")
    ... def count(record):
    ...     print(record["input_tokens"], "tokens")
    >>> run = router.run(b'''{"type": "text", "content": "Hi"}
    ... {"type": "usage_stats", "input_tokens": 3, "output_tokens": 1}
    ... ''')
    Hi
    3 tokens
    """

    def __init__(self) -> None:
        self._events: dict[str, list[Callable[[Any], object]]] = {}
        self._records: dict[str, list[Callable[[Any], object]]] = {}
        self._otherwise: list[Callable[[Any], object]] = []

    def on(self, *names: str) -> Callable[[_Handler], _Handler]:
        """A decorator: the function gets each event of these kinds; a name that is no event kind is a record type.

        Where a harness uses the name of an event kind for its records (EvoScientist's ``tool_call``), `on_record` says
        that the record is meant.
        """

        def register(handler: _Handler) -> _Handler:
            for name in names:
                (self._events if name in _KINDS else self._records).setdefault(name, []).append(handler)
            return handler

        return register

    def on_record(self, *types: str) -> Callable[[_Handler], _Handler]:
        """A decorator: the function gets the `Record` of each record of these native types, before its events."""

        def register(handler: _Handler) -> _Handler:
            for name in types:
                self._records.setdefault(name, []).append(handler)
            return handler

        return register

    def otherwise(self, handler: _Handler) -> _Handler:
        """A decorator: the function gets every event (but ``state``) of a kind that has no handler."""
        self._otherwise.append(handler)
        return handler

    def run(
        self,
        source: api.Source,
        *,
        dialect: str | None = None,
        strict: bool = False,
        spans: bool = False,
        max_line_bytes: int = api.MAX_LINE_BYTES,
        max_result_bytes: int | None = None,
        on_malformed: api.OnMalformed | None = None,
    ) -> Run:
        """Reads the source to its end, calls the handlers in the order of the stream, and returns the run.

        What a handler raises ends the reading and reaches the caller. Arguments and errors: see `headrace.events`.
        """
        kinds = list({*self._events, *api.KINDS} if self._otherwise else self._events)
        stream = api.Events(
            dialect=dialect,
            kinds=kinds,
            types=set(self._records),
            strict=strict,
            spans=spans,
            max_line_bytes=max_line_bytes,
            max_result_bytes=max_result_bytes,
            on_malformed=on_malformed,
        )
        api._attach(stream, source)
        for item in stream:
            if isinstance(item, dict):
                handlers = self._events.get(item["update"]["sessionUpdate"], self._otherwise)
            else:
                handlers = self._records[item.type]
            for handler in handlers:
                handler(item)
        return stream.run
