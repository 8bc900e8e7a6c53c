"""More than one fault: which is first, and what of the rest follows from it."""

from __future__ import annotations

from pathlib import Path

from simulator import At, Change, NoFault, Run, Several, simulate, write_run
from simulator.scenarios import scenario

from divtrace import analyze
from divtrace.report.model import Report
from faults.checking import analyze_run
from faults.control import shorter_or_longer


def own_coins(rank: int, step: int) -> NoFault:
    """A rank accepts otherwise for the first request of its batch in a step."""

    def where(at: At) -> bool:
        return (at.field, at.step) == ("acceptance", step) and at.req is not None and at.req.endswith("-a")

    return Change(where, frozenset({rank}), lambda accepted, _: shorter_or_longer(accepted))


def two_faults(*faults: NoFault, topology: str = "tp2-dp2", **habits: object) -> Run:
    return simulate(scenario(topology, "eagle-coins", **habits), Several(faults))


def roles(report: Report) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for finding in report.findings:
        found.setdefault(finding.role, set()).add(f"{finding.rule} {finding.replica}")
    return found


def test_shared_collectives_say_which_replica_was_first() -> None:
    """The second host's clock is ahead: by the clocks replica 0 would be first."""
    report = analyze_run(two_faults(own_coins(1, step=105), own_coins(3, step=103)))

    assert report.first is not None
    assert (report.first.rule, report.first.replica, report.first.step) == ("accept-length", 1, 103)
    assert [each.first is not None for each in report.replicas] == [True, True]


def test_faults_before_any_collective_of_both_are_independent() -> None:
    """Both in one step, with no collective of both replicas between them."""
    report = analyze_run(two_faults(own_coins(1, step=104), own_coins(3, step=104)))
    origins = [f for f in report.findings if f.role != "consequence"]

    assert report.first is not None
    assert sorted((f.rule, f.replica, f.step) for f in origins) == [
        ("accept-length", 0, 104),
        ("accept-length", 1, 104),
    ]
    assert {f.id for f in origins} == {each.first for each in report.replicas}


def test_second_fault_in_the_same_replica_comes_after_the_first() -> None:
    report = analyze_run(two_faults(own_coins(1, step=103), own_coins(0, step=105), topology="tp2"))

    assert report.first is not None
    assert report.first.step == 103
    assert "independent" not in roles(report)


def test_worlds_are_independent_of_each_other(tmp_path: Path) -> None:
    for world in (0, 1):
        run = two_faults(own_coins(1, step=103 + world), topology="tp2", world=world, seed=world)
        write_run(run, tmp_path)
    report = analyze([tmp_path])
    origins = [f for f in report.findings if f.role != "consequence"]

    assert report.first is not None
    assert (report.first.world, report.first.step, sorted(report.first.values)) == (0, 103, ["0/0", "0/1"])
    assert [(f.role, f.world) for f in origins] == [("origin", 0), ("independent", 1)]
    assert sorted(report.end) == ["0/0", "0/1", "1/0", "1/1"]


def test_fault_in_one_world_leaves_the_other_clean(tmp_path: Path) -> None:
    write_run(simulate(scenario("tp2", "eagle-coins", world=0)), tmp_path)
    write_run(two_faults(own_coins(1, step=104), topology="tp2", world=1), tmp_path)
    report = analyze([tmp_path])

    assert [(each.world, each.verdict) for each in report.replicas] == [(0, "clean"), (1, "divergence")]
    assert {f.world for f in report.findings} == {1}
