"""What the tests share: one way to read a stream, over each backend that is there."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings

from headrace.pure import source
from headrace.pure.record import Intake

settings.register_profile("headrace", deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
settings.load_profile("headrace")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # as where a shell has started the tests in the background: their children would not hear of Ctrl-C either
    signal.signal(signal.SIGINT, signal.default_int_handler)

SHARED = next((up / "shared" for up in Path(__file__).parents if (up / "shared" / "cases").is_dir()), Path("shared"))
"""Test material that lies beside the project and is never copied into it."""


class Reading(NamedTuple):
    """What became of a stream: every record as (line, offset, share, lossy, salvaged, raw, value), and the report."""

    records: list[tuple[int, int, int, bool, bool, bytes, Any]]
    report: dict[str, Any]

    @property
    def values(self) -> list[Any]:
        return [record[-1] for record in self.records]


class Pure:
    """The pure-Python backend."""

    name = "python"

    def read(self, chunks: Iterable[bytes], **options: Any) -> Reading:
        intake = Intake(**options)
        records = []

        def take(found: Iterable[Any]) -> None:
            for record in found:
                intake.report.event(record)
                records.append(
                    (
                        record.line,
                        record.offset,
                        record.share,
                        record.lossy,
                        record.salvaged,
                        bytes(record.raw),
                        record.value,
                    )
                )

        for chunk in chunks:
            take(intake.feed(chunk))
        take(intake.close())
        return Reading(records, intake.report.to_dict())

    def read_source(self, given: Any, **options: Any) -> Reading:
        return self.read(source.chunks(given)[0], **options)


BACKENDS = [Pure()]


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend.name)
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param
