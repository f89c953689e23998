"""Any source -> chunks of bytes; .gz and .zst are found by content, whatever the name says.

What can be read is delivered before the error that ends the reading is raised.
"""

from __future__ import annotations

import io
import os
import stat
import subprocess
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

from ..errors import SourceError

__all__ = ["Chunk", "chunks", "decompress"]

Chunk = bytes | bytearray | memoryview

_BLOCK = 2**20


def chunks(source: Any) -> tuple[Generator[Chunk, None, None], str]:
    """The chunks of a source, decompressed, and a name for it in messages.

    A source is a path, bytes-like, a binary file object, a file descriptor, a `subprocess.Popen`, or an iterable of
    bytes. Only a path is opened, and closed, here.
    """
    raw, name = open_chunks(source)
    return decompress(raw, name), name


def open_chunks(source: Any) -> tuple[Iterator[Chunk], str]:
    """As `chunks`, without decompression: the native backend has its own."""
    if isinstance(source, (str, os.PathLike)):
        return _path(source)
    if isinstance(source, memoryview):
        source = source.cast("B") if source.c_contiguous else source.tobytes()
    if isinstance(source, (bytes, bytearray, memoryview)):
        return iter((source,)), "<bytes>"
    if isinstance(source, int) and not isinstance(source, bool):
        name = f"file descriptor {source}"
        return _blocks(lambda: os.read(source, _BLOCK), name), name
    if isinstance(source, subprocess.Popen):
        name = f"process {source.pid}"
        if source.stdout is None:
            raise SourceError(f"{name}: its stdout is not a pipe; start it with stdout=subprocess.PIPE")
        return _file(source.stdout, name), name
    if hasattr(source, "read"):
        given = getattr(source, "name", None)
        name = given if isinstance(given, str) else f"<{type(source).__name__}>"
        return _file(source, name), name
    if isinstance(source, Iterable):
        name = f"<{type(source).__name__}>"
        return _iterable(source, name), name
    hint = "; headrace.aevents reads async sources" if hasattr(source, "__aiter__") else ""
    raise SourceError(
        f"can't read a {type(source).__name__}: a source is a path, bytes, a binary file, a file descriptor, a Popen, "
        f"or an iterable of bytes{hint}"
    )


def _path(path: str | os.PathLike[str]) -> tuple[Iterator[Chunk], str]:
    name = os.fsdecode(path)
    try:
        file = open(path, "rb", buffering=0)  # noqa: SIM115 (closed by the generator)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise SourceError(f"can't open {name!r}: {_why(error)}") from error

    def read() -> Iterator[Chunk]:
        with file:
            yield b""
            found = os.fstat(file.fileno())
            at = 0

            def block_at() -> bytes:
                # by its place: a forked process shares the file's own
                return os.pread(file.fileno(), _BLOCK, at)

            regular = stat.S_ISREG(found.st_mode) and hasattr(os, "pread")
            for block in _blocks(block_at if regular else lambda: file.read(_BLOCK), name):
                yield block
                at += len(block)
            if at < found.st_size:
                raise SourceError(f"can't read {name!r}: it became shorter while it was read")

    blocks = read()
    next(blocks)  # it is in its with-block: the file is closed when nobody wants more
    return blocks, name


def _file(file: Any, name: str) -> Iterator[Chunk]:
    if isinstance(file, io.TextIOBase):
        raise SourceError(
            f"{name}: the file is open in text mode, which may already have changed its bytes; "
            'open it with mode "rb", or give its .buffer (sys.stdin.buffer, or Popen without text=True)'
        )
    if getattr(file, "closed", False):
        raise SourceError(f"{name}: the file is closed")
    # read1 gives what a pipe holds at once; read would wait for a full block.
    read: Callable[[int], Any] = getattr(file, "read1", file.read)
    return _blocks(lambda: read(_BLOCK), name)


def _blocks(read: Callable[[], Any], name: str) -> Iterator[Chunk]:
    while True:
        try:
            block = read()
        except (OSError, ValueError, EOFError, zlib.error) as error:  # the latter: file objects that decompress
            raise SourceError(f"can't read {name!r}: {_why(error)}") from error
        if block is None:
            raise SourceError(f"{name}: nothing to read yet in non-blocking mode; make it blocking (os.set_blocking)")
        _check(block, name)
        if not block:
            return
        yield block


def _iterable(source: Iterable[Any], name: str) -> Iterator[Chunk]:
    for chunk in source:
        _check(chunk, name)
        if len(chunk):
            yield chunk


def _check(chunk: Any, name: str) -> None:
    if not isinstance(chunk, (bytes, bytearray, memoryview)):
        hint = "; encode it, or read in binary mode" if isinstance(chunk, str) else ""
        raise SourceError(f"{name}: gave a {type(chunk).__name__} where bytes are needed{hint}")


def _why(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


# -- compression -------------------------------------------------------------------------------------------------------

_GZIP = b"\x1f\x8b\x08"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = tuple(bytes((0x50 + n, 0x2A, 0x4D, 0x18)) for n in range(16))
_MAGICS = (_GZIP, _ZSTD, *_ZSTD_SKIPPABLE)


def is_compressed(head: bytes) -> bool:
    """Whether data that begins so is gzip or zstd."""
    return head.startswith(_MAGICS)


def decompress(raw: Iterator[Chunk], name: str) -> Generator[Chunk, None, None]:
    """The chunks as they are, or decompressed when they begin as gzip or zstd does."""
    try:
        yield from _decompressed(raw, name)
    finally:
        close = getattr(raw, "close", None)
        if close is not None:
            close()


def _decompressed(raw: Iterator[Chunk], name: str) -> Iterator[Chunk]:
    head = b""
    for chunk in raw:
        if not head and bytes(chunk[:1]) not in (b"\x1f", b"\x28", *(magic[:1] for magic in _ZSTD_SKIPPABLE)):
            yield chunk  # the common case costs no copy
            break
        head += chunk
        if not any(magic.startswith(head[: len(magic)]) and len(head) < len(magic) for magic in _MAGICS):
            break  # enough to decide
    if head.startswith(_GZIP):
        yield from _members(_chain(head, raw), name, "gzip", _gzip())
    elif head.startswith((_ZSTD, *_ZSTD_SKIPPABLE)):
        yield from _members(_chain(head, raw), name, "zstd", _zstd(name))
    else:
        if head:
            yield head
        yield from raw


def _chain(head: bytes, rest: Iterator[Chunk]) -> Iterator[Chunk]:
    yield head
    yield from rest


_PIECE = 2**10  # compressed bytes at a time: bounds the memory that a crafted file can blow up to


def _members(raw: Iterator[Chunk], name: str, kind: str, codec: tuple[Callable[[], Any], Any]) -> Iterator[Chunk]:
    """Decompresses gzip members or zstd frames that follow each other."""
    start, codec_error = codec
    member: Any = None
    taken = 0  # compressed bytes
    for chunk in raw:
        for at in range(0, len(chunk), _PIECE):
            piece = bytes(chunk[at : at + _PIECE])
            while piece:
                if member is None:
                    if kind == "gzip" and piece[0] == 0:  # padding of tapes and disk blocks
                        piece = piece.lstrip(b"\0")
                        continue
                    member = start()
                try:
                    data = member.decompress(piece)
                except codec_error as error:
                    where = f"near compressed byte {taken}"
                    raise SourceError(f"{name}: the {kind} data is corrupt {where}: {error}") from error
                if data:
                    yield data
                rest = member.unused_data
                taken += len(piece) - len(rest)
                piece = rest
                if member.eof:
                    member = None
    if member is not None:
        raise SourceError(
            f"{name}: the {kind} data ends inside a compressed frame, after {taken} compressed bytes: the file is cut "
            "or still being written; `events` gives what can be read of it"
        )


def _gzip() -> tuple[Callable[[], Any], Any]:
    return lambda: zlib.decompressobj(wbits=31), zlib.error


def _zstd(name: str) -> tuple[Callable[[], Any], Any]:
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # Python 3.14

        return zstd.ZstdDecompressor, zstd.ZstdError
    except ImportError:
        pass
    try:
        import zstandard
    except ImportError as error:
        raise SourceError(
            f"{name}: the data is compressed with zstd, and nothing here can read that: pip install 'headrace[zstd]'"
        ) from error
    return lambda: zstandard.ZstdDecompressor().decompressobj(), zstandard.ZstdError
