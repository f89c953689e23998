"""What a user relies on with `headrace.drift`: nothing known is reported, anything new is, and no content ever is."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace import _backend

from .data.make_shapes import SHAPES, shapes, streams
from .engines import ENGINES, READERS
from .truth import DATA, read

RECORDINGS = DATA / "recordings"


@pytest.fixture(params=list(ENGINES))
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_backend, "Engine", ENGINES[request.param])
    monkeypatch.setattr(_backend, "Reader", READERS[request.param])


def records(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in read(RECORDINGS / name).splitlines() if line.startswith(b"{")]


def write(path: Path, values: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("folder", sorted(path.name for path in RECORDINGS.iterdir()))
def test_the_recordings_have_no_drift(folder: str) -> None:
    paths = [path for path in streams() if path.parent.name == folder]
    assert paths
    assert headrace.drift(paths) == []


def test_the_shape_files_are_made_from_the_recordings() -> None:
    written = {path.stem: set(path.read_text().splitlines()) for path in SHAPES.glob("*.txt")}
    assert written == shapes()


@pytest.mark.usefixtures("backend")
def test_new_fields_and_types_are_found_with_count_and_version(tmp_path: Path) -> None:
    values = records("claude/tools.jsonl.gz")
    version = next(value["claude_code_version"] for value in values if "claude_code_version" in value)
    replies = [value for value in values if value["type"] == "assistant"]
    for value in replies:
        value["message"]["mood"] = {"level": 3, "why": ["private words"], "8f14e45f-ceea-467f-a0f3-1b2c3d4e5f60": 1}
    replies[0]["message"]["content"].append({"type": "hologram", "data": "private"})
    values[1:1] = [{"type": "weather_report", "text": "private", "session_id": values[0]["session_id"]}] * 2
    values[2]["deep"] = {"input": {"private": "private"}}
    write(tmp_path / "run.jsonl", values)
    found = {(entry["type"], entry["field"]): entry for entry in headrace.drift(tmp_path)}
    mood = found.pop(("assistant", "message(message).mood"))
    assert mood["count"] == len(replies)
    assert mood["versions"] == [version]
    assert mood["dialect"] == "claude"
    assert mood["shape"] == "{level: number, why: [string], <key>: number}"
    assert found.pop(("assistant", "message(message).content[](hologram)"))["shape"] == "{type: string, data: string}"
    assert found.pop(("weather_report", None))["count"] == 2
    assert all("private" not in json.dumps(entry) for entry in [mood, *found.values()])


@pytest.mark.usefixtures("backend")
def test_what_tools_and_users_put_in_is_no_drift(tmp_path: Path) -> None:
    values = records("claude/tools.jsonl.gz")
    for value in values:
        for block in (value.get("message") or {}).get("content", ()):
            if isinstance(block, dict) and block.get("type") == "tool_use":
                block["input"] = {"anything": [{"goes": True}]}
        if "tool_use_result" in value:
            value["tool_use_result"] = {"new": {"things": 1}}
        if "modelUsage" in value:
            value["modelUsage"] = {"another-model": next(iter(value["modelUsage"].values()))}
    assert headrace.drift(write(tmp_path / "run.jsonl", values)) == []


@pytest.mark.usefixtures("backend")
def test_folders_and_packed_files(tmp_path: Path) -> None:
    values = records("evosci/hello.jsonl.gz")
    values[0]["brandnew"] = 1
    text = write(tmp_path / "a.jsonl", values).read_bytes()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.jsonl.gz").write_bytes(gzip.compress(text))
    zstandard = pytest.importorskip("zstandard")
    (tmp_path / "sub" / "c.json.zst").write_bytes(zstandard.compress(text))
    (tmp_path / "notes.jsonl").write_text('{"some": "thing"}\n')  # of no dialect
    (tmp_path / "d.txt").write_bytes(text)  # not looked for in folders
    (entry,) = headrace.drift(tmp_path)
    assert (entry["field"], entry["count"], entry["shape"]) == ("brandnew", 3, "number")
    assert headrace.drift([tmp_path / "d.txt", str(tmp_path / "a.jsonl")])[0]["count"] == 2


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(headrace.SourceError):
        headrace.drift(tmp_path / "none.jsonl")


SMALL = [path for path in streams() if path.stat().st_size < 6_000]
SECRET = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "Zs")), min_size=4, max_size=20).map(
    lambda text: f"Zq {text} qZ"
)
NAMES = ("type", "item_type", "sessionUpdate", "method", "subtype", "role", "version")  # what a harness calls things


@given(path=st.sampled_from(SMALL), secret=SECRET, seed=st.integers(0, 1 << 20), name=st.booleans())
def test_no_content_leaks(tmp_path: Path, path: Path, secret: str, seed: int, name: bool) -> None:
    rng = random.Random(seed)

    def plant(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            planted = {key: plant(part, key) for key, part in value.items()}
            if rng.random() < 0.3:
                planted["added"] = {"nested": [secret, {"more": secret, secret: 1}], "text": secret}
            if rng.random() < 0.1:
                planted[secret] = secret
            return planted
        if isinstance(value, list):
            return [plant(part) for part in value]
        if isinstance(value, str) and rng.random() < 0.5 and (name or key not in NAMES):
            return secret
        return value

    values = [plant(value) if isinstance(value, dict) else value for value in map(json.loads, _lines(path))]
    file = write(tmp_path / "run.jsonl", values)
    assert secret not in repr(headrace.drift(file))
    assert "Zq" not in repr(headrace.drift(file))


@given(path=st.sampled_from(SMALL), seed=st.integers(0, 1 << 20))
def test_no_value_leaks_that_reads_as_a_name(tmp_path: Path, path: Path, seed: int) -> None:
    rng = random.Random(seed)

    def plant(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {key: plant(part, key) for key, part in value.items()} | {"added": ["Zqword", {"more": "Zqword"}]}
        if isinstance(value, list):
            return [plant(part) for part in value]
        return "Zqword" if isinstance(value, str) and rng.random() < 0.5 and key not in NAMES else value

    values = [plant(value) if isinstance(value, dict) else value for value in map(json.loads, _lines(path))]
    assert "Zqword" not in repr(headrace.drift(write(tmp_path / "run.jsonl", values)))


def _lines(path: Path) -> list[bytes]:
    lines = []
    for line in read(path).split(b"\n"):
        try:
            json.loads(line)
        except ValueError:
            continue
        lines.append(line)
    return lines


def test_both_backends_tell_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if len(ENGINES) < 2:
        pytest.fail("the native extension is not built: `make build-dev`")
    values = records("pi/tools.jsonl.gz")
    for value in values:
        value["added"] = value.get("message")
    file = write(tmp_path / "run.jsonl", values)
    told = []
    for name in ENGINES:
        monkeypatch.setattr(_backend, "Engine", ENGINES[name])
        monkeypatch.setattr(_backend, "Reader", READERS[name])
        told.append(headrace.drift(file))
    assert told[0] == told[1]
    assert told[0]
