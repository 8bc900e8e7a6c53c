"""Ray workers give the same report as one process, and none of them is lost in silence.

Functions that workers run are nested on purpose: Ray then sends their code, so that workers need not find the tests.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import make_fixtures
import pytest
from cli import traces
from cli.command import python

from divtrace import analyze
from divtrace.api import Options, first_divergence
from divtrace.errors import DivtraceError, UsageError
from divtrace.report.model import encode
from divtrace.sieve import cluster as cluster_module
from divtrace.sieve.cluster import RETRIES, Cluster, connected
from divtrace.sieve.cursor import NotSievableError
from divtrace.sieve.run import sieve
from divtrace.sieve.task import ReplicaResult, ReplicaTask, sieve_replica
from divtrace.trace.discover import discover

FIXTURES = make_fixtures.FIXTURES
CASES = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())
ON_RAY = Options(backend="ray", sieve_from=0)
AT_HOME = Options(jobs=1, sieve_from=0)


@pytest.fixture(scope="module")
def workers() -> Iterator[Cluster]:
    """Two workers on this machine, for all tests; Ray takes seconds to start."""
    pytest.importorskip("ray")
    with connected("local", 2):
        yield Cluster(None)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was given to workers, by name."""
    names: list[str] = []
    real = Cluster.map

    def spy(self: Cluster, function, arguments, told, finished=None):  # type: ignore[no-untyped-def]
        names.extend(told)
        return real(self, function, arguments, told, finished)

    monkeypatch.setattr(Cluster, "map", spy)
    return names


def is_sievable(folder: Path) -> bool:
    """Whether the traces are in the order that the sieve needs; others are loaded as a whole."""
    try:
        sieve(discover([folder]), None, Options().groups, 1)
    except NotSievableError:
        return False
    return True


@pytest.mark.ray
@pytest.mark.parametrize("name", CASES)
def test_workers_and_one_process_write_the_same_report(name: str, workers: Cluster, sent: list[str]) -> None:
    expected = encode(analyze(FIXTURES / name, AT_HOME))

    assert encode(analyze(FIXTURES / name, ON_RAY)) == expected
    assert sent or not is_sievable(FIXTURES / name)


@pytest.mark.ray
def test_workers_load_what_has_to_be_looked_at(workers: Cluster, sent: list[str]) -> None:
    report = analyze(FIXTURES / "verify-near-tie", ON_RAY)

    assert report.verdict == "divergence"
    assert {"replica 0", "rank 0", "rank 1"} <= set(sent)


@pytest.mark.ray
def test_one_request_has_the_same_answer(workers: Cluster, tmp_path: Path) -> None:
    folder = traces.diverged(tmp_path)

    assert first_divergence([folder], "A", ON_RAY) == first_divergence([folder], "A", AT_HOME)


@pytest.mark.ray
def test_results_come_in_the_order_of_the_tasks(workers: Cluster) -> None:
    def slowest_first(number: int) -> int:
        time.sleep(0.3 if number == 0 else 0)
        return number * 10

    done: list[int] = []

    assert workers.map(slowest_first, range(5), list("abcde"), done.append) == [0, 10, 20, 30, 40]
    assert sorted(done) == list(range(5))
    assert done[0] != 0


@pytest.mark.ray
def test_no_more_tasks_run_at_once_than_asked_for(workers: Cluster, tmp_path: Path) -> None:
    running = str(tmp_path / "running")

    def alone(_: int) -> None:
        os.close(os.open(running, os.O_CREAT | os.O_EXCL))
        time.sleep(0.1)
        os.unlink(running)  # noqa: PTH108

    Cluster(1).map(alone, range(4), list("abcd"))


def dying(times: int, counter: str):  # type: ignore[no-untyped-def]
    """The sieve of a worker that is killed while it works on replica 1, the first `times` times."""
    real = sieve_replica
    kill = signal.SIGKILL

    def deadly(task: ReplicaTask) -> ReplicaResult:
        if task.name == "replica 1":
            with open(counter, "a+") as file:  # noqa: PTH123
                file.write("x")
                file.seek(0)
                tries = len(file.read())
            if tries <= times:
                os.kill(os.getpid(), kill)
        return real(task)

    return deadly


@pytest.mark.ray
def test_a_worker_that_dies_once_changes_nothing(
    workers: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = encode(analyze(FIXTURES / "clean-dp-attention", AT_HOME))
    counter = tmp_path / "tries"
    monkeypatch.setattr(cluster_module, "sieve_replica", dying(1, str(counter)))

    assert encode(analyze(FIXTURES / "clean-dp-attention", ON_RAY)) == expected
    assert counter.read_text() == "xx"


@pytest.mark.ray
def test_a_replica_whose_workers_keep_dying_is_an_error_that_names_it(
    workers: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = tmp_path / "tries"
    monkeypatch.setattr(cluster_module, "sieve_replica", dying(100, str(counter)))

    with pytest.raises(DivtraceError, match=r"^replica 1 could not be analysed: its worker died"):
        analyze(FIXTURES / "clean-dp-attention", ON_RAY)
    assert counter.read_text() == "x" * (RETRIES + 1)


@pytest.mark.ray
def test_what_a_task_raises_is_raised_here(workers: Cluster) -> None:
    def refuse(number: int) -> int:
        raise NotSievableError(f"not {number}")

    with pytest.raises(NotSievableError, match=r"^not 7$") as caught:
        workers.map(refuse, [7], ["seven"])
    assert type(caught.value) is NotSievableError


@pytest.mark.ray
def test_input_that_workers_cannot_sieve_is_loaded_here(workers: Cluster, sent: list[str], tmp_path: Path) -> None:
    folder = traces.diverged(tmp_path)
    lines = (folder / "rank1.jsonl").read_text().splitlines(keepends=True)
    lines[2], lines[4] = lines[4], lines[2]
    (folder / "rank1.jsonl").write_text("".join(lines))

    assert encode(analyze(folder, ON_RAY)) == encode(analyze(folder, Options()))
    assert sent


@pytest.mark.ray
def test_workers_of_another_version_are_refused(workers: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "__version__", "0.0.1")

    with pytest.raises(DivtraceError, match=r"and this is divtrace 0\.0\.1") as caught:
        analyze(FIXTURES / "verify-near-tie", ON_RAY)
    assert caught.value.hint == "install the same version on all nodes"


@pytest.mark.ray
def test_ray_keeps_silent_even_about_workers_that_die(tmp_path: Path) -> None:
    """Standard output is the report's, standard error the progress bar's."""
    pytest.importorskip("ray")
    code = """
import os, sys
from divtrace.sieve.cluster import connected
def run(path):
    if not os.path.exists(path):
        open(path, "x").close()
        print("noise")
        os.kill(os.getpid(), 9)
    return "answer"
with connected("local", 1) as workers:
    print(*workers.map(run, sys.argv[1:], ["one"]), file=sys.__stdout__)
"""
    result = python(code, tmp_path / "mark")

    assert (result.returncode, result.stdout, result.stderr) == (0, "answer\n", "")


@pytest.mark.ray
def test_a_connection_that_was_there_stays(workers: Cluster) -> None:
    import ray

    with connected(None, None):
        pass

    assert ray.is_initialized()
    assert logging.getLogger("ray").level == logging.ERROR


def test_without_ray_the_error_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = traces.clean(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    with pytest.raises(UsageError, match="not installed") as caught:
        analyze(folder, Options(backend="ray"))
    assert caught.value.hint == "pip install 'divtrace[ray]'"


def test_the_command_line_is_as_fast_without_ray(tmp_path: Path) -> None:
    """Whether Ray is installed or not: nothing of it is imported unless it is asked for."""
    code = "import sys, divtrace; divtrace.analyze([sys.argv[1]]); print('ray' in sys.modules)"

    assert python(code, traces.clean(tmp_path)).stdout == "False\n"
