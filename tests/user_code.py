"""What users write, for the type checker: `mypy` holds it to the types of headrace. It is not run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headrace
from headrace.types import OutputEvent


def several_transcripts(stream: bytes, paths: list[Path], names: list[str], mixed: tuple[Path, bytes]) -> None:
    for transcripts in (paths, names, mixed):
        headrace.reduce(stream, transcript=transcripts)
    headrace.reduce(stream, transcript=paths[0])
    headrace.usage(paths)
    headrace.drift(names)


def a_handler_of_records() -> headrace.Run:
    router = headrace.Router()

    @router.on_record("turn_end")
    def ended(record: headrace.Record) -> None:
        kept.append(record)

    kept: list[headrace.Record] = []
    return router.run("run.jsonl")


def listeners(process: headrace.Process | headrace.AsyncProcess) -> None:
    @process.on("lifecycle")
    def tell(event: dict[str, Any]) -> str:
        return str(event["reason"])

    def show(event: OutputEvent) -> None: ...

    process.on("content", show)
    told: str = tell({})
    del told


def where_a_line_is(error: headrace.MalformedLine) -> tuple[str | None, int, int]:
    return error.source, error.line, error.offset


def texts(path: str) -> list[str]:
    found: list[str] = []
    for event in headrace.events(path, only={"agent_message_chunk"}):
        update = event["update"]
        if update["sessionUpdate"] == "agent_message_chunk" and update["content"]["type"] == "text":
            found.append(update["content"]["text"])
    return found
