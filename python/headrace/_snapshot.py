"""The cover of a snapshot: one line that says who made it, and a checksum, before what the backend wrote.

The encodings of the backends are their own and follow their code: no other version reads them, nor the other backend.
"""

from __future__ import annotations

import re
import zlib

from ._backend import backend
from .errors import SnapshotError

__all__ = ["seal", "unseal"]

_COVER = re.compile(rb"headrace snapshot, version (\S{1,50}), (native|python) backend, crc32 ([0-9a-f]{8})\n")


def seal(state: bytes) -> bytes:
    who = f"headrace snapshot, version {_version()}, {backend} backend, crc32 ".encode()
    return b"%s%08x\n%s" % (who, zlib.crc32(state, zlib.crc32(who)), state)


def unseal(snapshot: bytes) -> bytes:
    """The state under the cover; SnapshotError for one that is not this version's and this backend's, or damaged."""
    cover = _COVER.match(snapshot)
    if cover is None:
        raise SnapshotError(
            "these bytes are no snapshot of a parser, or only the first few of one: give what Parser.snapshot() gave"
        )
    state = snapshot[cover.end() :]
    if zlib.crc32(state, zlib.crc32(snapshot[: cover.start(3)])) != int(cover[3], 16):
        raise SnapshotError(
            "the snapshot is damaged: its bytes do not have its checksum, so some are missing or were changed; "
            "take an older snapshot, or read the stream again from its start"
        )
    version, made_by = cover[1].decode("utf-8", "replace"), cover[2].decode()
    if version != _version():
        raise SnapshotError(
            f"the snapshot was made by headrace {version}, and this is headrace {_version()}: restore it with the "
            "version that made it, or read the stream again from its start"
        )
    if made_by != backend:
        raise SnapshotError(
            f"the snapshot was made on the {made_by} backend, and this is the {backend} one, which keeps its state in "
            f"another form: set HEADRACE_BACKEND={made_by}, or read the stream again from its start"
        )
    return state


def _version() -> str:
    from . import __version__

    return __version__
