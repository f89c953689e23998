"""Untrusted text, made safe to show: what a terminal would act on becomes a visible escape.

Tool output may hold anything. A terminal acts on ESC and the other C0 and C1 controls (colours, cursor, window title,
clipboard, answers typed into the shell); a lone CR overwrites the line; bidirectional controls make text read as other
text than it is; some programs take U+2028 and U+2029 for line ends; a lone surrogate half (in a file name: a raw byte)
can't be encoded. LF and TAB stay, CR LF is shown as LF.
"""

from __future__ import annotations

import re

__all__ = ["one_line", "safe", "safe_json"]

# DEL counts to the controls. U+061C, U+200E and U+200F are directional marks; they may go with the overrides.
_ACTING = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_acting = re.compile(f"[{_ACTING}]")
# The same in the UTF-8 of a JSON text, which has no C0 control and no surrogate half.
_acting_json = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]")


def safe(text: str) -> str:
    r"""The text with everything that a terminal would act on as ``\x1b`` or ``\u202e``.

    >>> safe("\x1b[2Jgone")
    '\\x1b[2Jgone'
    """
    return _acting.sub(_escape, text.replace("\r\n", "\n"))


def one_line(text: str, width: int | None = None) -> str:
    r"""As `safe`, on one line of at most ``width`` characters: line ends and tabs as ``\n`` and ``\t``.

    >>> one_line("make\nmake test", 12)
    'make\\nmake …'
    """
    text = text.strip(" \t\r\n")
    if width is not None and len(text) > 4 * width:
        text = text[: 4 * width]  # no work for what is cut anyway
    text = safe(text).replace("\n", "\\n").replace("\t", "\\t")
    if width is not None and len(text) > width:
        text = text[: max(width - 1, 0)] + "…"
    return text


def safe_json(text: bytes) -> bytes:
    r"""A JSON text (or several) that says the same, with everything that a terminal would act on as ``\u009b``.

    JSON itself forbids C0 controls in its strings, and outside of strings nothing of the rest can stand.

    >>> safe_json('"\x9b2J"'.encode())
    b'"\\u009b2J"'
    """
    if text.isascii() and b"\x7f" not in text:
        return text
    return _acting_json.sub(_escape_json, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _escape_json(match: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % ord(match[0].decode())
