"""The Emitter: mappers tell it what the wire says, it makes the events.

It keeps what every dialect needs alike, so that no mapper has to: text is never doubled (deltas, closing blocks and
repeats are matched here), surrogate halves that a harness split over two deltas are joined, tool results find their
call even if they come first or if ids are used again, and everything emitted can be encoded as UTF-8.

Words: a *thread* is the main agent (None) or one sub-agent (the id of the call that delegated). A *block* is one run of
text of one kind in one thread; its texts in order are what `run.texts` shows. An *attempt* is everything a thread said
since the last ``commit``: a retry can take it back.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from . import event as ev
from . import tool
from .event import Event, Stamp

_FORWARDED = "forwarded"  # key of the block that forwarded chunks go on with
_TERMINAL = ("completed", "failed")
NAMELESS = "tool:"
"""How the ids begin of calls that the wire gives none."""


class Block:
    __slots__ = ("half", "number", "order", "shown", "stamp", "text")

    def __init__(self, number: int, stamp: Stamp, order: str | None) -> None:
        self.number = number
        self.stamp = stamp
        self.order = order
        self.text = ""  # as emitted
        self.half = ""  # a high surrogate that waits for its low half
        self.shown = order is not None  # it has its place: by its order, or that of its first chunk


class TextLog:
    """The blocks of one thread and kind that can still change, in order."""

    __slots__ = ("blocks", "open")

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.open: dict[Hashable, Block] = {}


class Thread:
    """What is remembered of the main agent or of one sub-agent."""

    __slots__ = ("attempt", "logs")

    def __init__(self) -> None:
        self.logs = {kind: TextLog() for kind in ev.CHUNKS}
        self.attempt: list[str] = []  # ids of the calls of the attempt


class Call:
    """One tool call: its number, and how far the wire has told of it."""

    __slots__ = ("announced", "closed", "id", "number", "status", "thread", "turn", "twins")

    def __init__(self, call_id: str, number: int, thread: str | None, turn: int) -> None:
        self.id = call_id
        self.number = number
        self.thread = thread
        self.turn = turn
        self.twins = 0  # further calls with its id in the same message, whose keys are numbered
        self.announced = False  # a tool_call event was emitted
        self.closed = False  # its result was seen
        self.status: str | None = None


class Emitter:
    """Turns what mappers say into events for a sink.

    ``line``, ``offset``, ``size`` and ``surrogates`` are set by the parser before each record; ``lossy`` tells it
    afterwards that a text of the record could not be shown as it was.
    """

    def __init__(self, sink: Callable[[Event], None], dialect: str) -> None:
        self.sink = sink
        self.dialect = dialect
        self.line = 0
        self.offset = 0
        self.size = 0
        self.surrogates = False  # the record may hold halves of surrogate pairs
        self.lossy = False
        self.session: dict[str, str] = {}  # what session() said so far
        self._threads: dict[str | None, Thread] = {}
        self._blocks = 0
        self._calls: dict[str, Call] = {}  # by key: the id, unless the mapper gives one
        self._call_count = 0
        self._turn = 0
        self._told: dict[str, int] | None = None  # characters that the main agent said, by kind, for `rewind`
        self._usages: dict[str, str] = {}  # what was last said of each model call
        self._over = False  # a turn or a run has ended, and none begun since
        self._told_start = False  # the start of the next turn was told, with the first record of its process

    # ------------------------------------------------------------ text

    def delta(self, kind: str, key: Hashable, text: str, stamp: Stamp) -> None:
        """Adds streamed text to the open block ``key`` of its thread and kind; opens it if there is none."""
        block = self._open(kind, key, stamp)
        text, block.half = block.half + text, ""
        if text and ev.is_high(text[-1]):
            text, block.half = text[:-1], text[-1]
        self._append(kind, block, self._join(text), stamp)

    def final(self, kind: str, key: Hashable, text: str, stamp: Stamp) -> None:
        """The whole text of block ``key`` by the authority: emits only what was not streamed yet.

        Where it contradicts what was streamed, the differing tail is taken back. It may come again (closing block,
        whole message): the key names the same block until ``close``.
        """
        if not text and key not in self._log(kind, stamp.parent).open:
            return
        block = self._open(kind, key, stamp)
        block.half = ""
        self._replace(kind, block, self.clean(text), stamp)

    def whole(self, kind: str, text: str, stamp: Stamp, *, order: str | None = None) -> None:
        """A block that comes in one piece.

        ``order`` is for harnesses that print blocks in another order than the model said them: a block goes before
        those of the same attempt whose order is greater (as strings). What they said is taken back and said again.
        """
        if text:
            order = None if order is None else self.clean(order)
            self._append(kind, self._new_block(kind, stamp, order), self.clean(text), stamp)

    def forward(self, kind: str, text: str, retract: int, stamp: Stamp) -> None:
        """A text chunk that comes as an event: it goes out as it came in, and on with the thread's block of its kind
        until ``commit``."""
        block = self._open(kind, _FORWARDED, stamp)
        joined, block.half = block.half + text, ""
        if joined and ev.is_high(joined[-1]):
            joined, block.half = joined[:-1], joined[-1]
        if joined or retract or not text:
            self._chunk(kind, block.number, self._join(joined), retract, stamp)

    def image(self, kind: str, block: dict[str, Any], stamp: Stamp) -> None:
        """A chunk that holds an image block (``event.image_block``)."""
        event = self._event({"sessionUpdate": kind, "content": self._value(block)}, stamp)
        self._blocks += 1
        event.block = self._blocks
        self.sink(event)

    def blank(self, kind: str, stamp: Stamp) -> None:
        """A chunk for a content block that events have no shape for: the stamp's ``extra`` holds it."""
        self.image(kind, ev.text_block(""), stamp)

    def streamed(self, kind: str, key: Hashable, thread: str | None) -> str | None:
        """The text so far of the open block ``key``; None if no such block is open."""
        block = self._log(kind, thread).open.get(key)
        return None if block is None else block.text

    def open_keys(self, kind: str, thread: str | None) -> list[Hashable]:
        """The keys of the open blocks, in the order in which they were opened."""
        return list(self._log(kind, thread).open)

    def close(self, thread: str | None) -> None:
        """Closes the open blocks of a thread: the same keys will open new ones. Their texts can still be taken back."""
        logs = self._thread(thread).logs
        for kind, log in logs.items():
            self._flush_halves(kind, log)
        for log in logs.values():
            log.open.clear()

    def settle(self, kind: str, key: Hashable, thread: str | None) -> None:
        """Closes the one block ``key`` for good, and leaves the others of its thread open (streams that interleave)."""
        log = self._log(kind, thread)
        block = log.open.pop(key, None)
        if block is not None and block.half:
            block.half = ""
            self.lossy = True
            self._append(kind, block, "\ufffd", block.stamp)
        self._settle_first(log)

    def settle_closed(self, thread: str | None) -> None:
        """What the thread said in blocks that are closed stands, and so do its calls; open blocks stay open."""
        said = self._thread(thread)
        for log in said.logs.values():
            self._settle_first(log)
        said.attempt.clear()

    def commit(self, thread: str | None) -> None:
        """Closes the thread's blocks and ends its attempt: nothing said so far can be taken back any more."""
        self.close(thread)
        self.settle_closed(thread)

    def mark(self) -> dict[str, int]:
        """How much the main agent has said so far, for ``rewind``: of what came after the first call of this."""
        if self._told is None:
            self._told = dict.fromkeys(ev.CHUNKS, 0)
        return self._told.copy()

    def rewind(self, mark: dict[str, int], stamp: Stamp) -> None:
        """Takes back what the main agent said since the mark, though it was committed."""
        self.commit(None)
        for kind, told in self.mark().items():
            if told > mark[kind]:
                self._chunk(kind, 0, "", told - mark[kind], stamp)

    def abandon(self, thread: str | None, stamp: Stamp) -> None:
        """A retry takes back the attempt: its texts and thoughts go, its calls without a result have failed."""
        for kind in (ev.MESSAGE, ev.THOUGHT):
            log = self._log(kind, thread)
            log.open.clear()
            self.take_back(kind, sum(len(block.text) for block in log.blocks), stamp)
            log.blocks.clear()
        said = self._thread(thread)
        attempt, said.attempt = said.attempt, []
        for key in attempt:
            call = self._calls[key]
            if not call.closed:
                self.update(call.id, stamp, key=key, status="failed")

    def take_back(self, kind: str, count: int, stamp: Stamp) -> None:
        """Takes back the last ``count`` characters of the stamp's thread, as far as its attempt goes."""
        blocks = self._log(kind, stamp.parent).blocks
        taken = 0
        number = blocks[-1].number if blocks else 0
        for block in reversed(blocks):
            if taken == count:
                break
            block.half = ""
            part = min(count - taken, len(block.text))
            block.text = block.text[: len(block.text) - part]
            taken += part
        if taken:
            self._chunk(kind, number, "", taken, stamp)

    def drop(self, kind: str, key: Hashable, stamp: Stamp) -> None:
        """Takes back the open block ``key`` and forgets it."""
        log = self._log(kind, stamp.parent)
        block = log.open.pop(key, None)
        if block is not None:
            block.half = ""
            self._replace(kind, block, "", stamp)

    # ------------------------------------------------------------ tools

    def next_turn(self) -> None:
        """A new model message: an id that comes again from here on names a new call, even if the old one is open."""
        self._turn += 1

    def nameless(self) -> str:
        """An id for the next call, which the wire gives none."""
        return f"{NAMELESS}{self._call_count + 1}"

    def call_count(self) -> int:
        """How many calls there were, which is the number of the last one."""
        return self._call_count

    def knows(self, key: str) -> bool:
        """True if a ``tool_call`` event with this id (or key) was emitted."""
        call = self._calls.get(ev.clean(key))
        return call is not None and call.announced

    def is_open(self, key: str) -> bool:
        """True if the latest call with this id (or key) was announced and has no result yet."""
        call = self._calls.get(ev.clean(key))
        return call is not None and call.announced and not call.closed

    def thread_of(self, call_id: str) -> str | None:
        """The thread that the latest call with this id belongs to."""
        call = self._calls.get(ev.clean(call_id))
        return None if call is None else call.thread

    def open_calls(self, thread: str | None = None) -> list[str]:
        """Keys of the thread's announced calls without a result, in order."""
        calls = [(c.number, i) for i, c in self._calls.items() if c.announced and not c.closed and c.thread == thread]
        return [key for _, key in sorted(calls)]

    def call(
        self,
        call_id: str,
        name: str | None,
        input: Any,
        stamp: Stamp,
        *,
        key: str | None = None,
        status: str = "pending",
        kind: str | None = None,
        title: str | None = None,
        content: list[dict[str, Any]] | None = None,
        locations: list[dict[str, Any]] | None = None,
        again: bool = False,
        twin: bool = False,
        **facts: Any,
    ) -> bool:
        """Announces a tool call. Kind, title, locations and diffs come from the tool table unless given.

        A call that is still open in this turn is the same call printed again and gives no event (False), unless
        ``again``; or, for a harness that prints each call once, a ``twin`` to which the model gave the same id: its
        result is the next one with that id. ``key`` tells calls apart where their ids alone do not: sub-agents that
        number their own from 0.
        Facts for the reducer: ``started_at``, ``order`` (see ``whole``; it places the call in the run), ``no_result``
        (the content is about the call, not its result).
        """
        wire_id, call_id = call_id, ev.clean(call_id)
        key = call_id if key is None else ev.clean(key)
        call = self._calls.get(key)
        early = call is not None and not call.announced  # its result came first
        if call is not None and not early and not call.closed and call.turn == self._turn and not again:
            if not twin:
                return False
            call.twins += 1
            key, call = _twin_key(key, call.twins), None
        if call is None or not early:
            call = self._new_call(key, call_id, stamp.parent)
        self.clean(wire_id)
        call.announced = True
        status = call.status = call.status or status
        input = self._value(input)
        name = None if name is None else self.clean(name)
        facts_of = tool.describe(self.dialect, name, input)
        update: dict[str, Any] = {
            "sessionUpdate": ev.TOOL_CALL,
            "toolCallId": call_id,
            "title": self.clean(title) if title else facts_of.title,
            "kind": kind or facts_of.kind,
            "status": status,
        }
        if name is not None:
            update["toolName"] = name
        if isinstance(input, dict):
            update["rawInput"] = input
        for field, value in (
            ("content", facts_of.content if content is None else self._value(content)),
            ("locations", facts_of.locations if locations is None else self._value(locations)),
        ):
            if value:
                update[field] = value
        event = self._event(update, stamp)
        event.call = call.number
        event.facts = {"input": input, **{key: self._value(value) for key, value in facts.items()}}
        self.sink(event)
        self._thread(stamp.parent).attempt.append(key)
        return True

    def update(
        self,
        call_id: str,
        stamp: Stamp,
        *,
        key: str | None = None,
        status: str | None = None,
        done: bool | None = None,
        title: str | None = None,
        content: list[dict[str, Any]] | None = None,
        locations: list[dict[str, Any]] | None = None,
        raw_output: Any = ...,
        again: bool = False,
        **facts: Any,
    ) -> bool:
        """Tells how a call goes on or ended. It may come before its call.

        ``done`` says that this is the result; left out, a terminal status says so. A second result for a closed call
        is dropped (False) unless ``again``: the first stands. Facts for the reducer: ``input`` (arguments that came
        late), ``name``, ``kind``, ``exit_code``, ``duration_ms``, ``ended_at`` (if it is not the line's own time),
        ``result`` (only if it is not the content's text), ``no_result`` (the content is about the call, not its
        result).
        """
        wire_id, call_id = call_id, ev.clean(call_id)
        key = call_id if key is None else ev.clean(key)
        call = self._calls.get(key) or self._new_call(key, call_id, stamp.parent)
        done = status in _TERMINAL if done is None else done
        if call.closed and not again:
            twins = (self._calls.get(_twin_key(key, number)) for number in range(1, call.twins + 1))
            twin = next((twin for twin in twins if twin is not None and not twin.closed), None)
            if twin is None:
                return False
            call = twin
        self.clean(wire_id)
        call.closed = call.closed or done
        call.status = status or call.status
        update: dict[str, Any] = {"sessionUpdate": ev.TOOL_CALL_UPDATE, "toolCallId": call_id}
        if status is not None:
            update["status"] = status
        if title:
            update["title"] = self.clean(title)
        if content:
            update["content"] = self._value(content)
        if locations:
            update["locations"] = self._value(locations)
        if raw_output is not ...:
            update["rawOutput"] = self._value(raw_output)
        event = self._event(update, stamp)
        event.call = call.number
        event.facts = {key: self._value(value) for key, value in facts.items() if value is not None}
        event.facts["done"] = done
        self.sink(event)
        return True

    # ------------------------------------------------------------ the rest

    def plan(self, entries: list[dict[str, str]], stamp: Stamp) -> None:
        """The whole plan, as ``{content, status, priority}`` entries (see ``tool.plan_entry``)."""
        self.sink(self._event({"sessionUpdate": ev.PLAN, "entries": self._value(entries)}, stamp))

    def error(self, message: str, stamp: Stamp, *, fatal: bool, notice: bool = False) -> None:
        """What the harness says went wrong. A ``notice`` (retry, warning) is an event but no error of the run."""
        event = self._event({"sessionUpdate": ev.ERROR, "message": self.clean(message), "fatal": fatal}, stamp)
        event.facts = {"notice": notice}
        self.sink(event)

    def usage(
        self,
        scope: str,
        usage: dict[str, Any],
        stamp: Stamp,
        *,
        key: str | None = None,
        side: bool = False,
        begun: bool = False,
        total: dict[str, Any] | None = None,
        models: dict[str, dict[str, Any]] | None = None,
        beyond: str | None = None,
    ) -> None:
        """Token counts of one model call (``scope`` "call") or the harness's own total ("run").

        ``usage`` has the keys of ``types.TokenUsage``; None values are left out (see ``tokens``). ``key`` names the
        model call: the last usage of a key counts; without one each is a call of its own. ``side`` marks a call that
        is not the main loop's (compaction, title), ``begun`` counts that are those of the call's beginning. ``total``:
        what ``run.usage.run`` becomes, where the record tells only a share of it. ``models``: the harness's own total
        of each model. ``beyond``: which model calls are in its totals and not on the wire.
        """
        usage = {name: value for name, value in self._value(usage).items() if value is not None}
        if not usage:
            return
        if key is not None:
            if self._usages.get(key) == repr(usage):
                return
            self._usages[key] = repr(usage)
        event = self._event({"sessionUpdate": ev.USAGE, "scope": scope, "usage": usage}, stamp)
        event.facts = {"key": key, "side": side, "begun": begun, "total": total, "models": models, "beyond": beyond}
        self.sink(event)

    def state(self, state: str, stamp: Stamp, **details: Any) -> None:
        """One of the states of ``types.StateUpdate``; details that are None are left out."""
        starts = state == "turn" and details.get("phase") == "start"
        if starts and self._told_start:
            self._told_start = False
            return
        if state in ("turn", "end"):
            self._over, self._told_start = not starts, False
        update = {"sessionUpdate": ev.STATE, "state": state}
        update.update((key, self._value(value)) for key, value in details.items() if value is not None)
        self.sink(self._event(update, stamp))

    def another_run(self, stamp: Stamp) -> None:
        """Another process of the harness begins in the same source: how the run before it ended is not how this one
        does."""
        if self._over:
            self.state("turn", stamp, phase="start")
            self._told_start = True

    def session_state(self, stamp: Stamp, **details: Any) -> None:
        """The ``session`` state, if it says anything new: sessionId, version, model, cwd, title."""
        told = {key: value for key, value in details.items() if isinstance(value, str)}
        news = {key: self.clean(value) for key, value in told.items() if self.session.get(key) != ev.clean(value)}
        if news:
            self.session.update(news)
            self.state("session", stamp, **news)

    def finish(self) -> None:
        """The stream is over: surrogate halves that still wait become U+FFFD."""
        for thread in self._threads.values():
            for kind, log in thread.logs.items():
                self._flush_halves(kind, log)

    def clean(self, text: str) -> str:
        """The text as it can be encoded; marks the record lossy if that changed it."""
        cleaned = ev.clean(text)
        if cleaned is not text and self.surrogates:
            self.lossy = True
        return cleaned

    def clean_value(self, value: Any) -> Any:
        """The same for all texts in a value that comes from inside a text, or from an earlier record."""
        cleaned = ev.clean_value(value)
        if cleaned is not value:
            self.lossy = True
        return cleaned

    # ------------------------------------------------------------ inside

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.clean(value)
        if not self.surrogates or not isinstance(value, (dict, list)):
            return value
        return self.clean_value(value)

    def _event(self, update: dict[str, Any], stamp: Stamp) -> Event:
        for name in Stamp.__slots__:
            setattr(stamp, name, self._value(getattr(stamp, name)))
        return Event(update, stamp, self.line, self.offset, self.size)

    def _thread(self, name: str | None) -> Thread:
        thread = self._threads.get(name)
        if thread is None:
            thread = self._threads[name] = Thread()
        return thread

    def _log(self, kind: str, thread: str | None) -> TextLog:
        return self._thread(thread).logs[kind]

    def _open(self, kind: str, key: Hashable, stamp: Stamp) -> Block:
        log = self._log(kind, stamp.parent)
        block = log.open.get(key)
        if block is None:
            block = log.open[key] = self._new_block(kind, stamp)
        block.stamp = stamp
        return block

    def _new_block(self, kind: str, stamp: Stamp, order: str | None = None) -> Block:
        self._blocks += 1
        block = Block(self._blocks, stamp, order)
        blocks = self._log(kind, stamp.parent).blocks
        at = len(blocks)
        while at and _comes_after(blocks[at - 1].order, order):
            at -= 1
        blocks.insert(at, block)
        return block

    def _settle_first(self, log: TextLog) -> None:
        """Forgets the blocks before the first open one: nothing can change them any more."""
        still_open = {block.number for block in log.open.values()}
        while log.blocks and log.blocks[0].number not in still_open:
            del log.blocks[0]

    def _join(self, text: str) -> str:
        """Text whose halves may have come over two deltas: pairs joined, what stays alone replaced."""
        try:
            text.encode()
        except UnicodeEncodeError:
            paired = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
            text = ev.clean(paired)
            if text is not paired:
                self.lossy = True
        return text

    def _append(self, kind: str, block: Block, text: str, stamp: Stamp) -> None:
        if not text:
            return
        later = self._later(kind, block, stamp)
        block.text += text
        self._chunk(kind, block.number, text, sum(len(b.text) for b in later), stamp)
        self._again(kind, later, stamp)

    def _replace(self, kind: str, block: Block, text: str, stamp: Stamp) -> None:
        if text == block.text:
            return
        same = 0
        if text.startswith(block.text):
            same = len(block.text)
        else:
            while same < min(len(text), len(block.text)) and text[same] == block.text[same]:
                same += 1
        later = self._later(kind, block, stamp)
        gone = len(block.text) - same + sum(len(b.text) for b in later)
        block.text = text
        self._chunk(kind, block.number, text[same:], gone, stamp)
        self._again(kind, later, stamp)

    def _later(self, kind: str, block: Block, stamp: Stamp) -> list[Block]:
        """The blocks after this one that have text: what is emitted for this one must move them back."""
        blocks = self._log(kind, stamp.parent).blocks
        if not block.shown:  # its place is that of its first chunk, which comes now
            block.shown = True
            blocks.remove(block)
            blocks.append(block)
        if blocks[-1] is block:
            return []
        return [b for b in blocks[blocks.index(block) + 1 :] if b.text]

    def _again(self, kind: str, blocks: list[Block], stamp: Stamp) -> None:
        for block in blocks:
            self._chunk(kind, block.number, block.text, 0, stamp)

    def _chunk(self, kind: str, number: int, text: str, retract: int, stamp: Stamp) -> None:
        event = self._event({"sessionUpdate": kind, "content": ev.text_block(text)}, stamp)
        event.block = number
        event.retract = retract
        if self._told is not None and stamp.parent is None:
            self._told[kind] += len(text) - retract
        self.sink(event)

    def _flush_halves(self, kind: str, log: TextLog) -> None:
        for block in log.open.values():
            if block.half:
                block.half = ""
                self.lossy = True
                self._append(kind, block, "\ufffd", block.stamp)

    def _new_call(self, key: str, call_id: str, thread: str | None) -> Call:
        self._call_count += 1
        call = self._calls[key] = Call(call_id, self._call_count, thread, self._turn)
        return call


def _comes_after(order: str | None, other: str | None) -> bool:
    return order is not None and other is not None and order > other


def _twin_key(key: str, number: int) -> str:
    return f"{key} #{number}"


def scoped(call_id: str, stamp: Stamp) -> str:
    """A key for calls where sub-agents number theirs as the main agent does."""
    return call_id if stamp.parent is None else f"{stamp.parent} {call_id}"


def tokens(
    prompt: int | None = None,
    completion: int | None = None,
    cached: int | None = None,
    cost: float | None = None,
    extra: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A ``types.TokenUsage``; what the wire did not print stays None and is left out."""
    return {
        "promptTokens": prompt,
        "completionTokens": completion,
        "cachedTokens": cached,
        "costUsd": cost,
        "extra": extra or None,
    }


_LARGEST = 2**53  # beyond it a float is no count any more


def total(*counts: Any) -> int | None:
    """The sum of the counts that the wire printed; None if it printed none of them."""
    known = [number for number in map(count, counts) if number is not None]
    return sum(known) if known else None


def count(value: Any) -> int | None:
    """A token count as printed: an integer of a sensible size, else None."""
    return value if type(value) is int and -_LARGEST <= value <= _LARGEST else None


def price(value: Any) -> float | None:
    """A cost, duration or other measure as printed: a number of a sensible size, else None."""
    return value if type(value) in (int, float) and -_LARGEST <= value <= _LARGEST else None
