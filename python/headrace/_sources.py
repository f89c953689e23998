"""What can be read, for type checkers and whoever asks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, Union

if TYPE_CHECKING:
    import subprocess

    from typing_extensions import Buffer

__all__ = ["OnMalformed", "Readable", "Source"]


class Readable(Protocol):
    """A file object that gives bytes: an open file, ``sys.stdin.buffer``, a gzip file, an HTTP response."""

    def read(self, size: int, /) -> bytes | None:
        """At most that many bytes; none at the end."""
        ...


Source = Union[str, "os.PathLike[str]", "Buffer", int, Readable, "subprocess.Popen[bytes]", Iterable["Buffer"]]
"""A path, bytes-like, a binary file object, a file descriptor, a ``Popen`` or an iterable of bytes.

``.gz`` and ``.zst`` are found by content, whatever the name says."""

OnMalformed = Callable[[dict[str, Any]], object]
