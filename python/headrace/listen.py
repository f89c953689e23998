"""Listeners of a running harness: each has a thread of its own, so that none can disturb the others."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["NAMES", "Listener", "Listeners"]

NAMES = ("content", "stdout", "stderr", "lifecycle")
BACKLOG = 10_000
"""So many items wait for a slow listener; then the reading waits for it, and bytes wait in the intake."""

_logger = logging.getLogger("headrace")
_END = object()


class Listener:
    """Calls a function with each item, in order, in a thread of its own. What it raises is logged."""

    def __init__(self, name: str, call: Callable[[Any], object]) -> None:
        self._name = name
        self._call = call
        self._items: queue.Queue[Any] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name=f"headrace-{name}", daemon=True)
        self._thread.start()

    @property
    def is_behind(self) -> bool:
        return self._items.qsize() >= BACKLOG

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def put(self, item: Any) -> None:
        self._items.put(item)

    def end(self) -> None:
        """Nothing more comes; the thread ends when everything is told."""
        self._items.put(_END)

    def _run(self) -> None:
        while (item := self._items.get()) is not _END:
            try:
                self._call(item)
            except Exception:
                _logger.exception("a listener for %r raised; it is called again for what comes next", self._name)


class Listeners:
    """The listeners of one process, by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, list[Listener]] = {name: [] for name in NAMES}
        self._all: list[Listener] = []
        self.names: set[str] = set()
        """What somebody listens to."""

    def add(self, name: str, call: Callable[[Any], object]) -> None:
        if name not in self._by_name:
            raise ValueError(f"nothing to listen to is called {name!r}; there are: {', '.join(NAMES)}")
        listener = Listener(name, call)
        self._by_name[name].append(listener)
        self._all.append(listener)
        self.names.add(name)

    def tell(self, name: str, item: Any) -> None:
        for listener in self._by_name[name]:
            listener.put(item)

    @property
    def are_behind(self) -> bool:
        return any(listener.is_behind for listener in self._all)

    @property
    def are_done(self) -> bool:
        return all(listener.is_done for listener in self._all)

    def end(self) -> None:
        for listener in self._all:
            listener.end()
