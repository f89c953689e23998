"""Gemini CLI: ``gemini -p PROMPT --output-format stream-json`` and ``json`` (recorded: 0.12.0, 0.33.0, 0.61.0).

Six record types, always with deltas and without message ids: a text block ends where any other record comes, and an
attempt that was retried in mid-answer stays glued to the next one, since nothing marks it. A `result` of status
"success" is none when the loop guard, a hook or the turn limit stopped the run: a warning just before it says so.
SIGINT leaves the stream without a `result`, like a kill, at exit code 0. Thoughts, sub-agents and the usage of single
calls are in the session file only (`gemini_chat`).
"""

from __future__ import annotations

from typing import Any

from .. import event as ev
from .. import tool
from ..emit import Emitter, count, tokens, total
from ..event import Stamp
from ..record import Record
from ..run import Ending, Exit, Reducer
from ..wire import as_text
from . import SURE, UNKNOWN, Outcome, Sign

NAME = "gemini"

#: `error.type` of a failed result: how the run ended; any other is a failure
OUTCOMES = {
    "FatalTurnLimitedError": "limit",
    "FatalCancellationError": "cancelled",
    "TerminalQuotaError": "limit",
}
#: how the `error` records begin after which the run stops, although its `result` is a success
STOPS = (
    ("Loop detected", "failed"),
    ("Agent execution blocked", "denied"),
    ("Maximum session turns exceeded", "limit"),
    ("Model response was truncated because it exceeded the token limit", "limit"),
)
#: `error.type` of a call that a policy refused
REFUSED = "policy_violation"
#: what else `stats` counts; thoughts and prompts of tools are in the total only
COUNTERS = ("total_tokens", "input", "tool_calls", "duration_ms", "models")
#: what a `thought` record (proposed, in no release seen) may call its text
_THOUGHT_KEYS = ("content", "thought", "thinking", "text")


def sign(record: dict[str, Any]) -> Sign | None:
    kind = record.get("type")
    if kind is None:
        if _is_document(record):
            return Sign(SURE, "one object with response and stats (json mode)", document=True)
        return None
    if not isinstance(record.get("timestamp"), str):
        return None
    if kind == "init" and "session_id" in record and "model" in record:
        return Sign(SURE, "an init record with session_id and model")
    if kind == "message" and "role" in record and isinstance(record.get("content"), str):
        return Sign(SURE, "a message with role and a text as content")
    if kind == "tool_use" and "tool_name" in record and "tool_id" in record:
        return Sign(SURE, "a tool_use with tool_name and tool_id")
    if kind == "tool_result" and "tool_id" in record and "status" in record:
        return Sign(SURE, "a tool_result with tool_id and status")
    if kind == "error" and "severity" in record and "message" in record:
        return Sign(SURE, "an error with severity")
    if kind == "result" and "status" in record and isinstance(record.get("stats"), dict):
        return Sign(SURE, "a result with status and stats")
    return None


def _is_document(record: dict[str, Any]) -> bool:
    stats = record.get("stats")
    return "response" in record and isinstance(stats, dict) and isinstance(stats.get("models"), dict)


class Mapper:
    def __init__(self, out: Emitter) -> None:
        self.out = out
        self.model: str | None = None  # as asked for
        self.stop: str | None = None  # what an error record says of how the run will end
        self.refused = False  # the last thing that happened is a refused call
        self.unheard = False  # the model was asked something and has not answered

    def map(self, record: Record) -> Outcome:
        value = record.value
        kind = value.get("type")
        if kind == "message":
            return self._message(value)
        if kind == "tool_use":
            return self._call(value)
        if kind == "tool_result":
            return self._result(value)
        if kind == "init":
            self.out.commit(None)
            model = as_text(value.get("model"))
            self.model = None if model is None else ev.clean(model)
            stamp = Stamp(timestamp=as_text(value.get("timestamp")), model=model)
            self.out.another_run(stamp)
            self.out.session_state(stamp, sessionId=as_text(value.get("session_id")), model=model)
            return None
        if kind == "error":
            return self._error(value)
        if kind == "result":
            return self._end(value)
        if kind in ("thought", "thinking"):
            return self._thought(value)
        if kind is None and _is_document(value):
            return self._document(value)
        return UNKNOWN

    def close(self) -> None:
        pass

    def judge(self, run: Reducer, exit: Exit) -> Ending | None:
        return None

    # ------------------------------------------------------------ records

    def _message(self, value: dict[str, Any]) -> Outcome:
        text, role = as_text(value.get("content")), value.get("role")
        if role == "user":
            self.out.commit(None)
            self.stop, self.refused = None, False
            self.out.state("turn", self._stamp(value), phase="start")
            self.unheard = not (text or "").startswith("/")  # commands are for the harness
            self.out.whole(ev.USER, text or "", self._stamp(value))
            return None
        if role != "assistant":
            return "message of another role"
        if not text:
            return "empty text"
        self.refused = self.unheard = False
        self.out.delta(ev.MESSAGE, "text", text, self._stamp(value))
        return None

    def _thought(self, value: dict[str, Any]) -> Outcome:
        self.unheard = False
        for key in _THOUGHT_KEYS:
            if isinstance(value.get(key), str):
                self.out.delta(ev.THOUGHT, "thought", value[key], self._stamp(value))
                return None
        return UNKNOWN

    def _call(self, value: dict[str, Any]) -> Outcome:
        call_id, name, arguments = (
            as_text(value.get("tool_id")),
            as_text(value.get("tool_name")),
            value.get("parameters"),
        )
        if call_id is None:
            return UNKNOWN
        self.out.commit(None)
        self.refused = self.unheard = False
        stamp = self._stamp(value)
        self.out.call(call_id, name, arguments, stamp, twin=True)
        plan(self.out, name, arguments, stamp)
        return None

    def _result(self, value: dict[str, Any]) -> Outcome:
        call_id = as_text(value.get("tool_id"))
        if call_id is None:
            return UNKNOWN
        self.out.commit(None)
        self.out.next_turn()
        status, output, error = value.get("status"), as_text(value.get("output")), value.get("error")
        failure: dict[str, Any] = error if isinstance(error, dict) else {}
        if output is None:
            output = as_text(failure.get("message"))
        self.refused = failure.get("type") == REFUSED
        self.out.update(
            call_id,
            self._stamp(value),
            status={"success": "completed", "error": "failed"}.get(status) if isinstance(status, str) else None,
            done=True,
            content=None if output is None else ev.text_content(output),
            raw_output={"error": failure} if failure else ...,
        )
        return None

    def _error(self, value: dict[str, Any]) -> Outcome:
        message, fatal = as_text(value.get("message")) or "", value.get("severity") == "error"
        self.out.commit(None)
        stop = stop_of(message)
        self.stop = stop or self.stop
        self.out.error(message, self._stamp(value), fatal=fatal, notice=not fatal and stop is None)
        return None

    def _end(self, value: dict[str, Any]) -> Outcome:
        self.out.commit(None)
        stamp, stats, error = self._stamp(value), value.get("stats"), value.get("error")
        if isinstance(stats, dict):
            extra = {key: stats[key] for key in COUNTERS if key in stats}
            self.out.usage(
                "run",
                tokens(
                    count(stats.get("input_tokens")),
                    count(stats.get("output_tokens")),
                    count(stats.get("cached")),
                    extra=extra,
                ),
                stamp,
                models=_models(stats.get("models"), None, ("input_tokens", "output_tokens", "cached")),
            )
            # A hook stopped the run, which 0.61.0 does not say: the model was not asked, or its answer not taken.
            models = stats.get("models")
            is_used = isinstance(models, dict) and bool(models)
            if self.unheard and count(stats.get("total_tokens")) == 0 and not is_used:
                self.refused = True
        self._finish(error if isinstance(error, dict) else None, value.get("status") == "error", stamp)
        return None

    def _finish(self, error: dict[str, Any] | None, failed: bool, stamp: Stamp) -> None:
        """The terminal record: what it says, unless an error record has said better."""
        reason = as_text(error.get("type")) if error is not None else None
        message = as_text(error.get("message")) if error is not None else None
        if message is not None:
            self.out.error(message, stamp, fatal=True)
        outcome = "denied" if self.refused else "completed"
        if failed:  # it is the name of a class, before which old bundles put underscores
            outcome = OUTCOMES.get((reason or "").lstrip("_"), "failed")
        self.out.state("end", stamp, outcome=self.stop or outcome, reason=reason or ("error" if failed else "success"))

    # ------------------------------------------------------------ json mode

    def _document(self, value: dict[str, Any]) -> Outcome:
        """The one object of `--output-format json`: the text of the last turn, counters, what failed."""
        error, warnings, models = value.get("error"), value.get("warnings"), value["stats"]["models"]
        self.out.session_state(Stamp(), sessionId=as_text(value.get("session_id")))
        self.out.whole(ev.MESSAGE, as_text(value.get("response")) or "", Stamp())
        for warning in warnings if isinstance(warnings, list) else []:
            if isinstance(warning, str):
                stop = stop_of(warning)
                self.stop = stop or self.stop
                self.out.error(warning, Stamp(), fatal=False, notice=stop is None)
        counters = [m["tokens"] for m in models.values() if isinstance(m, dict) and isinstance(m.get("tokens"), dict)]
        self.out.usage(
            "run",
            tokens(
                total(*[c.get("prompt") for c in counters]),
                total(*[c.get("candidates") for c in counters]),
                total(*[c.get("cached") for c in counters]),
                extra={"models": models},
            ),
            Stamp(),
            models=_models(models, "tokens", ("prompt", "candidates", "cached")),
        )
        self._finish(error if isinstance(error, dict) else None, isinstance(error, dict), Stamp())
        return None

    def _stamp(self, value: dict[str, Any]) -> Stamp:
        return Stamp(timestamp=as_text(value.get("timestamp")), model=self.model)


def _models(models: Any, inside: str | None, names: tuple[str, str, str]) -> dict[str, dict[str, Any]]:
    """The total of each model: prompt, completion and cached tokens by their names."""
    told = {}
    for name, model in models.items() if isinstance(models, dict) else ():
        counters = model.get(inside) if inside is not None and isinstance(model, dict) else model
        if isinstance(counters, dict):
            prompt, completion, cached = (count(counters.get(key)) for key in names)
            told[ev.clean(name)] = tokens(prompt, completion, cached)
    return told


def stop_of(message: str) -> str | None:
    """How the run will end after an error record with this message; None if it goes on."""
    for beginning, outcome in STOPS:
        if message.startswith(beginning):
            return outcome
    return None


def plan(out: Emitter, name: str | None, arguments: Any, stamp: Stamp) -> None:
    """The plan in the arguments of the todo tool."""
    if name == "write_todos" and isinstance(arguments, dict):
        entries = tool.plan_of(arguments.get("todos"), "description")
        if entries is not None:
            out.plan(entries, stamp)
