"""Runs the tasks of the sieve as Ray core tasks: on this machine, or on the machines of a Ray cluster.

Workers get names of files, not their content: they read them where they run, and send back what is small. Results come
in the order of the tasks, so that an answer does not depend on who computed what.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from divtrace.errors import DivtraceError, UsageError
from divtrace.sieve.facts import RankFacts
from divtrace.sieve.select import Wanted, load_wanted, needs_reading
from divtrace.sieve.task import ReplicaResult, ReplicaTask, sieve_replica
from divtrace.trace.model import RankId, Record
from divtrace.version import __version__

RETRIES = 3
"""How often a task is run again after its worker died."""

Argument = TypeVar("Argument")
Result = TypeVar("Result")


class Cluster(msgspec.Struct, frozen=True):
    """A connection to Ray; made by `connected`."""

    at_once: int | None
    """Tasks that may run at the same time; None leaves it to Ray, which runs one for each processor."""

    def map(
        self,
        function: Callable[[Argument], Result],
        arguments: Sequence[Argument],
        names: Sequence[str],
        finished: Callable[[int], None] | None = None,
    ) -> list[Result]:
        """The result of `function` for every argument, in the order of the arguments.

        Args:
            function: one that a worker can import, of the same version of divtrace.
            arguments: what each task gets; it is pickled.
            names: what each task is about, for errors.
            finished: called with the index of every task that is done.

        Raises:
            DivtraceError: a task's worker died `RETRIES` times more than once, or has another version of divtrace.
            Exception: what `function` raised.
        """
        import ray

        remote = ray.remote(num_cpus=1, max_retries=RETRIES, scheduling_strategy="SPREAD")(_perform)
        results: dict[int, Result] = {}
        running: dict[Any, int] = {}
        waiting = iter(enumerate(arguments))
        # After an error, tasks that still run are left alone: they end with the connection, and cancelling a task that
        # is about to end has Ray abort this process.
        while True:
            while self.at_once is None or len(running) < self.at_once:
                index, argument = next(waiting, (None, None))
                if index is None:
                    break
                running[remote.remote(__version__, function, argument)] = index
            if not running:
                return [results[index] for index in range(len(arguments))]
            for reference in ray.wait(list(running), num_returns=1)[0]:
                index = running.pop(reference)
                results[index] = _result(reference, names[index])
                if finished is not None:
                    finished(index)


def run_on(
    cluster: Cluster, tasks: Sequence[ReplicaTask], progress: Callable[[int], None] | None = None
) -> list[ReplicaResult]:
    """The result of every task of the sieve, in the order of the tasks; `progress` hears of bytes of finished ones.

    Raises:
        NotSievableError: one of the tasks raised it.
        DivtraceError: as `Cluster.map`.
    """
    done = 0

    def finished(index: int) -> None:
        nonlocal done
        done += tasks[index].size
        if progress is not None:
            progress(done)

    return cluster.map(sieve_replica, tasks, [task.name for task in tasks], finished)


def load_on(cluster: Cluster, todo: Mapping[RankId, tuple[RankFacts, Wanted]]) -> Iterator[tuple[RankId, list[Record]]]:
    """The wanted records of ranks, as `load_wanted` gives them, in the order of `todo`."""
    far = {rank: one for rank, one in todo.items() if needs_reading(*one)}
    names = [f"rank {rank} of world {world}" if world else f"rank {rank}" for world, rank in far]
    loaded = dict(zip(far, cluster.map(_load, [_small(*one) for one in far.values()], names), strict=True))
    for rank, (facts, _) in todo.items():
        yield rank, loaded.get(rank, facts.kept)


def _small(facts: RankFacts, wanted: Wanted) -> tuple[RankFacts, Wanted]:
    """The facts without the steps that nobody asks for, which are most of what there is to send."""
    first = {step: facts.first_of_step[step] for step in wanted.steps if step in facts.first_of_step}
    last = {step: facts.last_of_step[step] for step in wanted.steps if step in facts.last_of_step}
    return msgspec.structs.replace(facts, first_of_step=first, last_of_step=last), wanted


def _load(what: tuple[RankFacts, Wanted]) -> list[Record]:
    return load_wanted(*what)


def check_installed() -> None:
    """Raise UsageError if Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise UsageError("the backend ray needs Ray, which is not installed", hint="pip install 'divtrace[ray]'")


@contextlib.contextmanager
def connected(address: str | None, jobs: int | None) -> Iterator[Cluster]:
    """Connect to Ray, and let go of it at the end.

    A process that is connected already stays so, and its connection is used.

    Args:
        address: of a cluster, as `ray.init` takes it; None for the one that RAY_ADDRESS names, and if there is none for
            workers on this machine that live as long as the connection.
        jobs: tasks that may run at the same time; None for the number of processors.

    Raises:
        UsageError: Ray is not installed, or there is no cluster at the address.
    """
    check_installed()
    import ray

    if ray.is_initialized():
        yield Cluster(jobs)
        return
    where = address or os.environ.get("RAY_ADDRESS") or "local"
    here: dict[str, Any] = {"num_cpus": jobs, "include_dashboard": False} if where == "local" else {}
    # Ray prints what becomes of its workers to standard output, where the report goes.
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                ray.init(address=where, log_to_driver=False, logging_level="ERROR", **here)
        except (OSError, RuntimeError, ValueError) as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            if where == "local":
                raise UsageError(f"Ray does not start: {reason}", hint="leave out --backend ray") from error
            raise UsageError(
                f"no Ray cluster at {where}: {reason}",
                hint="check --ray-address; a cluster with a token needs RAY_AUTH_MODE=token",
            ) from error
        try:
            yield Cluster(jobs)
        finally:
            ray.shutdown()


def _result(reference: Any, name: str) -> Any:
    import ray
    from ray.exceptions import RayError, RayTaskError

    try:
        return ray.get(reference)
    except RayTaskError as error:
        # What the function raised, as if it had run here.
        raise error.cause from error
    except RayError as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise DivtraceError(
            f"{name} could not be analysed: its worker died: {reason}",
            hint="nothing is reported, as this part would be missing; see Ray's logs, and whether memory ran out",
        ) from error


def _perform(version: str, function: Callable[[Argument], Result], argument: Argument) -> Result:
    """Runs on a worker."""
    if version != __version__:
        raise DivtraceError(
            f"a Ray worker has divtrace {__version__}, and this is divtrace {version}",
            hint="install the same version on all nodes",
        )
    return function(argument)
