"""The events of one request of a large trace: they are loaded, whether anything is wrong with them or not."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulator.files import Form, write_run
from simulator.run import simulate
from simulator.scenarios import busy

from divtrace.api import Options, show
from divtrace.trace.load import load
from sieve.sieving import changed, no_way_around

WHOLE = Options(sieve_from=1 << 60)
SIEVED = Options(sieve_from=0, jobs=1)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.parametrize("seed", [None, 1, 2, 5])
def test_events_are_shown_as_by_loading(seed: int | None, form: Form, tmp_path: Path) -> None:
    run = simulate(busy()) if seed is None else changed(("tp2-dp2", "eagle"), seed)
    folder = write_run(run, tmp_path, form)
    records = [record.event for trace in load([folder]).ranks.values() for record in trace.records]
    for req in sorted({event.req for event in records if event.req is not None}):
        with no_way_around():
            sieved = show([folder], req, SIEVED)

        assert sieved == show([folder], req, WHOLE)
        assert sieved.events
