"""The command ``headrace``. It needs the extra ``[cli]`` (click and rich), the rest of headrace does not.

One file per verb; ``app`` lists them. Wire text reaches a terminal only through ``safe``.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Runs the command line of ``sys.argv`` and exits with its code."""
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ImportError as error:
        print(
            f'headrace: the command line needs click and rich ({error}): pip install "headrace[cli]"', file=sys.stderr
        )
        sys.exit(2)
    from .app import app

    app(prog_name="headrace")
