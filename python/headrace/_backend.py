"""Which backend does the work: the Rust extension, or the pure-Python twin.

``HEADRACE_BACKEND=native`` or ``python`` forces one; otherwise the native one is taken if it can be imported. Both have
the same classes: ``Engine`` (bytes -> event dicts and run), ``Reader`` (bytes -> records), ``Borders`` (bytes -> where
runs begin), ``decompress`` (chunks -> chunks), ``Intake`` (drains pipes) and ``Each`` (what is there already ->
``async for``).
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

__all__ = ["Borders", "Each", "Engine", "Intake", "Reader", "Record", "Tap", "backend", "decompress", "dialects"]

_WANTED = os.environ.get("HEADRACE_BACKEND", "")
if _WANTED not in ("", "native", "python"):
    raise ImportError(f"HEADRACE_BACKEND is {_WANTED!r}; it may be 'native' or 'python', or not be set")

backend: Literal["native", "python"] = "python"
if _WANTED != "python":
    try:
        from ._native import DIALECTS as dialects
        from ._native import Borders, Each, Engine, Intake, Reader, Record, Tap, decompress

        backend = "native"
    except ImportError as error:
        if _WANTED == "native":
            raise
        import warnings

        warnings.warn(
            f"headrace runs on its pure-Python backend, many times slower: its native extension can't be imported "
            f"({error}). Install a wheel for this platform or build one with cargo; HEADRACE_BACKEND=python says that "
            f"this is wanted and silences the warning",
            RuntimeWarning,
            stacklevel=3,
        )
if backend == "python" and not TYPE_CHECKING:
    from .pure.borders import Borders
    from .pure.engine import DIALECTS as dialects
    from .pure.engine import Engine, Reader, Record
    from .pure.intake import Each, Intake, Tap
    from .pure.source import decompress
