"""What kind of trouble an error message tells of: what a caller needs to know to go on, wait, or ask a person."""

from __future__ import annotations

import re
from typing import Literal

__all__ = ["ErrorClass", "error_class"]

ErrorClass = Literal[
    "rate_limit",
    "auth",
    "context_window",
    "overloaded",
    "network",
    "invalid_request",
    "harness",
    "tool",
    "unknown",
]
"""``rate_limit``: too many requests, a usage limit, a quota, no credit. ``auth``: no key, a wrong one, no access.
``context_window``: the prompt or the answer is longer than the model takes. ``overloaded``: the provider fails or is
busy. ``network``: the connection. ``invalid_request``: the provider refuses the request as it is, or its content.
``harness``: the harness's own caps, settings and faults. ``tool``: a tool or an MCP server. ``unknown``: none of them
can be told."""

_CODES: dict[int, ErrorClass] = {
    400: "invalid_request",
    401: "auth",
    402: "rate_limit",
    403: "auth",
    404: "invalid_request",
    408: "network",
    413: "context_window",
    422: "invalid_request",
    429: "rate_limit",
    500: "overloaded",
    502: "overloaded",
    503: "overloaded",
    504: "overloaded",
    529: "overloaded",
}

# where providers and harnesses put an HTTP status; a number elsewhere in a text is none
_CODE = re.compile(
    r"(?:^[^\w]*(?:byok error: |internal error: |agent error: |api error: )*"
    r"|\b(?:status|http|api error|error code|code)\b[\"':= ]{1,4}|rejected \()([45]\d\d)\b"
)

# how the wire says it, in the order in which it counts
_BEFORE_CODES: tuple[tuple[ErrorClass, str], ...] = (
    (
        "context_window",
        r"(?:prompt|input|context|conversation|request|content) (?:is |was )?too (?:long|large)"
        r"|maximum context|prompt_too_long|context_length_exceeded|too many tokens"
        r"|context[ _-]?(?:length|window|limit|overflow)s?[ _-]?(?:is |was |has been )?"
        r"(?:exceed|overflow|recovery|reached|full)"
        r"|exceeds? (?:the )?(?:model's )?(?:maximum )?context"
        r"|output token maximum|max_?(?:imum )?output_?tokens",
    ),
    ("rate_limit", r"insufficient_quota|quota exceeded|exceeded your current quota|usage limit|credit balance"),
)
_AFTER_CODES: tuple[tuple[ErrorClass, str], ...] = (
    ("rate_limit", r"rate[ _-]?limit|too many requests|resource_exhausted|hit your .{0,40}limit|\bquota\b"),
    (
        "auth",
        r"api[ _-]?key|authenticat|unauthori[sz]ed|permission_error|permission_denied|not logged in|log in again"
        r"|access token|may not have access|forbidden|unauthenticated|invalid credentials",
    ),
    (
        "harness",
        r"max(?:imum)?[ _]?(?:number of )?(?:session )?(?:turns|steps|tool calls)|\bbudget\b"
        r"|fatalturnlimited|recursion limit|loop detect|run exceeded timeout|insufficient permission to proceed"
        r"|ede_diagnostic|provider (?:is not )?configured|configuration_error|prompt is required|no conversation found"
        r"|not valid json|not json compliant|not msgpack serializable|cannot instantiate|cannot read propert|crashed"
        r"|handler failed|compaction failed|internal_error|empty response|only thinking content|no final response text",
    ),
    ("overloaded", r"overloaded|at capacity|high demand|server[ _]error|unavailable|bad gateway|provider_overload"),
    (
        "network",
        r"\be(?:connreset|connrefused|connaborted|timedout|notfound|pipe)\b|und_err|socket|\bdns\b|getaddrinfo|\btls\b"
        r"|connection (?:dropped|failed|reset|closed|refused|error|lost|aborted)|peer closed|other side closed"
        r"|stream (?:disconnected|closed)|network|fetch failed|transport error|idle timeout|timed out"
        r"|incomplete chunked|error decoding response|error sending request|\[api error: terminated\]",
    ),
    ("tool", r"\bmcp\b|tool[ _](?:call|execution)?.{0,40}(?:failed|error|not found)|^command failed|unknown tool"),
    (
        "invalid_request",
        r"invalid_request|invalid_argument|bad request|unsupported parameter|issue with the selected model"
        r"|model.{0,40}(?:not found|not exist)|unknown model|content ?filter|refused to complete|safeguards flagged"
        r"|was blocked",
    ),
    ("harness", r"internal error"),
)
_PATTERNS = {text: re.compile(text) for _, text in _BEFORE_CODES + _AFTER_CODES}


def error_class(message: str) -> ErrorClass:
    """The class of an error, by a code in its message or by its words.

    >>> error_class('529 {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}')
    'overloaded'
    >>> error_class("Reached maximum number of turns (2)")
    'harness'
    """
    lower = message.lower()
    if "\n" in lower:  # some harnesses wrap their messages, in the middle of words too
        lower = lower.replace("\n", " ") + "\n" + lower.replace("\n", "")
    return _by_words(lower, _BEFORE_CODES) or _by_code(lower) or _by_words(lower, _AFTER_CODES) or "unknown"


def _by_code(message: str) -> ErrorClass | None:
    for found in _CODE.finditer(message):
        known = _CODES.get(int(found[1]))
        if known is not None:
            return known
    return None


def _by_words(message: str, table: tuple[tuple[ErrorClass, str], ...]) -> ErrorClass | None:
    return next((name for name, text in table if _PATTERNS[text].search(message)), None)
