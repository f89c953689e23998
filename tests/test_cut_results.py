"""``max_result_bytes``: a run keeps the beginning of each tool result, and says where the rest is."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace import _backend
from headrace.pure import event as ev

from .bundled import streams
from .engines import ENGINES, same
from .test_fuse import PAIRS, files_of
from .truth import Stream

RECORDINGS = Path(__file__).parent / "data" / "recordings"
SMALL = [stream for stream in streams() if 500 < len(stream.data) < 40_000]


def lines(result: Any, name: str = "execute", **more: Any) -> bytes:
    call = {"type": "tool_call", "name": name, "args": {"command": "ls"}, "id": "t1"}
    told = {"type": "tool_result", "name": name, "content": result, "success": True, "id": "t1", **more}
    return b"".join(json.dumps(record).encode() + b"\n" for record in (call, told))


def cut(data: bytes, most: int | None) -> dict[str, Any]:
    (call,) = headrace.reduce(data, dialect="evosci", max_result_bytes=most).tool_calls
    return call


def test_a_result_that_fits_is_whole() -> None:
    for most in (None, 4, 5, 1 << 70 if _backend.backend == "python" else 1 << 62):
        call = cut(lines("four"), most)
        assert (call["result"], "cut" in call) == ("four", False)


def test_a_cut_result_says_how_long_it_was_and_where_it_is() -> None:
    data = lines("0123456789")
    first = data.index(b"\n") + 1
    call = cut(data, 4)
    assert call["result"] == "0123"
    assert call["cut"] == {
        "result": {"bytes": 10, "span": {"line": 2, "offset": first, "bytes": len(data) - first - 1}}
    }
    assert cut(data, 0)["result"] == ""


@pytest.mark.parametrize(("most", "kept"), list(enumerate(["", "", "é", "é", "é", "é", "é🙂", "é🙂x", "é🙂x"])))
def test_characters_stay_whole(most: int, kept: str) -> None:
    call = cut(lines("é🙂x"), most)
    assert call["result"] == kept
    assert ("cut" in call) == (most < 7)


def test_a_negative_number_is_refused() -> None:
    for make in ENGINES.values():
        with pytest.raises(ValueError, match="negative"):
            make(max_result_bytes=-1)


def test_a_later_result_takes_the_place_of_one_that_was_cut() -> None:
    def update(text: str) -> bytes:
        content = [{"type": "content", "content": {"type": "text", "text": text}}]
        told = {"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "in_progress", "content": content}
        return json.dumps({"update": told}).encode() + b"\n"

    call = {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "ls", "kind": "execute", "status": "pending"}
    data = json.dumps({"update": call}).encode() + b"\n" + update("0123456789")
    assert cut_of(data, 5) == ("01234", ["result"])
    assert cut_of(data + update("0"), 5) == ("0", [])


def cut_of(data: bytes, most: int) -> tuple[str, list[str]]:
    (call,) = headrace.reduce(data, max_result_bytes=most).tool_calls
    return call["result"], list(call.get("cut", ()))


def test_structured_results_are_kept_whole_or_not_at_all() -> None:
    path = RECORDINGS / "pi" / "tools.jsonl.gz"
    whole = headrace.reduce(path).tool_calls
    sizes = [ev.size(call["raw_output"]) for call in whole]
    assert any(sizes)
    for most in (0, 60, 128, 10_000):
        for call, mine, size in zip(headrace.reduce(path, max_result_bytes=most).tool_calls, whole, sizes, strict=True):
            if mine["raw_output"] is None or size <= most:
                assert call["raw_output"] == mine["raw_output"]
                assert "raw_output" not in call.get("cut", {})
            else:
                assert call["raw_output"] is None
                assert call["cut"]["raw_output"]["bytes"] == size


@pytest.mark.once
@pytest.mark.parametrize("most", [0, 3, 50, 400])
def test_both_backends_cut_alike_and_nothing_else_changes(most: int) -> None:
    for stream in SMALL:
        told = []
        for make in ENGINES.values():
            engine = make(kinds=(), max_result_bytes=most)
            engine.feed(stream.data)
            engine.close()
            run = engine.run()
            told.append(run)
        assert all(same(run, told[0]) for run in told), stream.name
        plain = make(kinds=())
        plain.feed(stream.data)
        plain.close()
        assert same(told[0], shortened(plain.run(), told[0], most)), stream.name


def shortened(run: dict[str, Any], told: dict[str, Any], most: int) -> dict[str, Any]:
    """The whole run as it should be when it is cut; only the spans are taken from what was told."""
    for call, cut in zip(run["tool_calls"], told["tool_calls"], strict=True):
        sizes = {
            "result": len((call["result"] or "").encode()),
            "raw_output": 0 if call["raw_output"] is None else ev.size(call["raw_output"]),
        }
        over = {name: size for name, size in sizes.items() if size > most}
        if "raw_output" in cut.get("cut", {}) and sizes["raw_output"] == 0:
            over["raw_output"] = 8  # a null that was told
        if "result" in over:
            call["result"] = call["result"].encode()[:most].decode("utf-8", "ignore")
        if "raw_output" in over:
            call["raw_output"] = None
        if over:
            call["cut"] = {name: {"bytes": size, "span": cut["cut"][name]["span"]} for name, size in over.items()}
    results = {call["id"]: call["result"] for call in run["tool_calls"]}
    for agent in run["subagents"]:
        if agent["result"] is not None:
            agent["result"] = results[agent["tool_call_id"]]
    return run


def test_the_rest_can_be_read_back() -> None:
    """The record that a span names has the whole, and the events of that record do."""
    for stream in SMALL:
        data, told = stream.data, {}
        for event in headrace.events(data, spans=True, only={"tool_call", "tool_call_update"}):
            span = event["extra"]["span"]
            told[span["offset"], event["update"]["toolCallId"]] = event["update"]
        run, whole = headrace.reduce(data, max_result_bytes=10), headrace.reduce(data)
        for call, mine in zip(run.tool_calls, whole.tool_calls, strict=True):
            for name, cut in call.get("cut", {}).items():
                span = cut["span"]
                update = told[span["offset"], call["id"]]
                record = data[span["offset"] : span["offset"] + span["bytes"]]
                assert data[: span["offset"]].count(b"\n") + 1 == span["line"]
                assert record.startswith(b"{")
                if name == "raw_output":
                    assert ev.writable(mine[name]) == update["rawOutput"]
                else:
                    assert len(mine[name].encode()) == cut["bytes"]
                    assert mine[name].startswith(call[name])


def test_each_way_to_a_run_takes_it(tmp_path: Path) -> None:
    data = lines("0123456789")
    path = tmp_path / "run.jsonl"
    path.write_bytes(data)
    options: dict[str, Any] = {"dialect": "evosci", "max_result_bytes": 4}
    parser = headrace.Parser(**options)
    parser.feed(data)
    events, followed = headrace.events(data, **options), headrace.follow(path, idle_timeout=0, **options)
    assert [list(events), list(followed)] == [list(headrace.events(data, dialect="evosci"))] * 2  # never cut
    (run,) = headrace.runs(data, **options)
    for told in (parser.run, events.run, followed.run, run, headrace.Router().run(data, **options)):
        assert told.tool_calls == headrace.reduce(data, **options).tool_calls
        assert told.tool_calls[0]["result"] == "0123"


def test_events_are_never_cut() -> None:
    data = lines("0123456789")
    assert list(headrace.events(data, max_result_bytes=0)) == list(headrace.events(data))


@pytest.mark.parametrize("stream", PAIRS, ids=[stream.name for stream in PAIRS])
def test_with_a_transcript_nothing_else_changes(stream: Stream) -> None:
    """Streams and files are matched by what they say, before that is cut."""
    files = files_of(stream)
    whole = headrace.reduce(stream.path, transcript=files)
    run = headrace.reduce(stream.path, transcript=files, max_result_bytes=20)
    assert run.sources == whole.sources
    for call, mine in zip(run.tool_calls, whole.tool_calls, strict=True):
        assert mine["result"] == call["result"] or len(call["result"].encode()) <= 20
        cut = call.pop("cut", {})
        assert ("result" in cut) == (mine["result"] is not None and len(mine["result"].encode()) > 20)
        call.update({name: mine[name] for name in cut})
    for agent, mine in zip(run.subagents, whole.subagents, strict=True):
        assert len((agent["result"] or "").encode()) <= 20
        agent["result"] = mine["result"]
    assert run == whole


BIG, CALLS = 100_000, 200


def big_results() -> Iterator[bytes]:
    for number in range(CALLS):
        call = {"type": "tool_call", "name": "execute", "args": {"command": "ls"}, "id": f"t{number}"}
        yield json.dumps(call).encode() + b"\n"
        content = f"{number:06}" + "é" * (BIG // 2)
        told = {"type": "tool_result", "name": "execute", "content": content, "id": f"t{number}"}
        yield json.dumps(told, ensure_ascii=False).encode() + b"\n"


@pytest.mark.once
@pytest.mark.parametrize("name", list(ENGINES))
def test_memory_is_bounded(name: str) -> None:
    """20 MB of results, of which 1 KB each is kept: the rest is gone as soon as its line was read."""
    engine = ENGINES[name](kinds=(), dialect="evosci", max_result_bytes=1000)
    before = resident()
    tracemalloc.start()
    for line in big_results():
        engine.feed(line)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    engine.close()
    assert peak < 3 << 20  # a few lines, and 200 KB of results
    if name == "native" and before:
        assert resident() - before < 8 << 20
    calls = engine.run()["tool_calls"]
    assert [call["result"][:6] for call in calls] == [f"{number:06}" for number in range(CALLS)]
    assert all(len(call["result"].encode()) == 1000 and call["cut"]["result"]["bytes"] == BIG + 6 for call in calls)
    data = b"".join(big_results())
    for call in calls:
        span = call["cut"]["result"]["span"]
        assert json.loads(data[span["offset"] : span["offset"] + span["bytes"]])["content"].startswith(call["result"])


def resident() -> int:
    """Bytes of this process in memory; 0 where there is no /proc."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    except OSError:
        return 0
