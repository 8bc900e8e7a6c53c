"""The sieve over one replica whose ranks are in Parquet files."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from divtrace.sieve.columnar.cursor import ParquetCursor
from divtrace.sieve.columnar.file import ParquetTrace
from divtrace.sieve.columnar.lockstep import ColumnLockstep
from divtrace.sieve.columnar.memory import returning_pool
from divtrace.sieve.cursor import NotSievableError
from divtrace.sieve.facts import ReplicaFacts
from divtrace.sieve.operations import OperationTable

if TYPE_CHECKING:
    from divtrace.sieve.task import ReplicaTask


def sieve_columns(
    task: ReplicaTask, table: OperationTable, algorithm: str | None, progress: Callable[[int], None] | None
) -> ReplicaFacts:
    """Sieve one replica.

    Raises:
        NotSievableError: its traces have to be loaded as a whole.
    """
    cursors: list[ParquetCursor] = []
    try:
        for rank, files in sorted(task.files.items()):
            if files.parquet != len(files.sources):
                raise NotSievableError("some ranks of a replica are in Parquet and some are not")
            traces = [ParquetTrace(source) for source in files.sources]
            cursors.append(ParquetCursor(task.world, rank, traces, files.metas))
        with returning_pool():
            return ColumnLockstep(cursors, task.replica, task.topology, table, algorithm, progress, task.listing).run()
    finally:
        for cursor in cursors:
            cursor.close()
