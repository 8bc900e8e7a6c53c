"""A process that dies is not passed over in silence."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from cli import traces

from divtrace.errors import DivtraceError
from divtrace.sieve import pool
from divtrace.sieve.survey import RankFiles, survey
from divtrace.sieve.task import ReplicaTask
from divtrace.topology import ReplicaGroup
from divtrace.trace.discover import discover
from divtrace.walk.settings import GroupFlags, world_topology


class Deadly(dict[int, RankFiles]):
    """Files whose name is enough to kill the process that gets them."""

    def __reduce__(self) -> tuple[Callable[[int], object], tuple[int]]:
        return os._exit, (1,)


def test_a_process_that_dies_is_an_error_that_names_a_replica(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = survey(discover([traces.clean(tmp_path)]).sources, None)
    topology = world_topology([0, 1], {rank: tuple(one.metas) for (_, rank), one in files.items()}, GroupFlags())
    here = {rank: one for (_, rank), one in files.items()}
    replica: ReplicaGroup = topology.replicas[0]
    good = ReplicaTask(0, replica, topology, here, frozenset(here))
    monkeypatch.setattr(pool, "SMALLEST", 0)

    assert len(pool.run_tasks([good, good], 2)) == 2
    with pytest.raises(DivtraceError, match=r"^replica 0 could not be analysed: its process, or one beside it, died$"):
        pool.run_tasks([ReplicaTask(0, replica, topology, Deadly(here), frozenset(here))] * 2, 2)
