"""Runs divtrace on simulated runs and compares its report with the expected answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import Phase, settings
from simulator import Form, Run, Scenario, write_run
from simulator.scenarios import scenario

from divtrace import analyze
from divtrace.report.model import Finding, Report
from faults.model import Case, Expected, FaultKind, Injected, UnsuitableError

TRIES = 20
MODEST = settings(deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate))
"""The same examples every time. A run with a fault has no smaller one that tells more, so nothing is shrunk."""


def analyze_run(run: Run, form: Form = "jsonl") -> Report:
    """The report on the traces of a run, written to files and read back."""
    with TemporaryDirectory() as folder:
        return analyze([write_run(run, Path(folder) / "trace", form)])


def inject(kind: FaultKind, place: tuple[str, str], seed: int = 0) -> Injected:
    """The fault in a scenario at this place. Seeds with which the fault changes nothing are passed over."""
    return inject_into(kind, scenario(*place, **dict(kind.changes)), seed)


def inject_into(kind: FaultKind, plan: Scenario, seed: int) -> Injected:
    for attempt in range(TRIES):
        try:
            return kind.inject(Case(plan, seed + 1000 * attempt, kind.everyone))
        except UnsuitableError as error:
            last = error
    raise last


def mismatches(report: Report, expected: Expected, run: Run) -> Iterator[str]:
    """What of the expected answer the report does not say."""
    if report.verdict != "divergence":
        yield f"verdict: want divergence, got {report.verdict}: {report.summary}"
    first = report.first
    if first is None:
        yield "first: want a finding, got none"
        return
    wanted = {name: value for name, value in vars(expected).items() if name not in ("ranks", "odd_ranks", "also")}
    for name, value in wanted.items():
        if getattr(first, name) != value:
            yield f"{name}: want {value!r}, got {getattr(first, name)!r}"
    for name in ("ranks", "odd_ranks"):
        value = getattr(expected, name)
        if value is not None and getattr(first, name) != value:
            yield f"{name}: want {value}, got {getattr(first, name)}"
    for rule in expected.also:
        if rule not in first.also:
            yield f"also: {rule} is missing in {first.also}"
    if first not in report.findings:
        yield "findings: the first one is missing"
    yield from _wrong_places(first, run)
    yield from _loose_ends(report, first)


def _loose_ends(report: Report, first: Finding) -> Iterator[str]:
    """One fault was injected, so everything else must lead back to it."""
    by_id = {finding.id: finding for finding in report.findings}
    if len(by_id) < len(report.findings):
        yield "findings: ids occur twice"
    for finding in report.findings:
        followed: set[str] = set()
        cause = finding
        while isinstance(cause.caused_by, str) and cause.id not in followed:
            followed.add(cause.id)
            cause = by_id[cause.caused_by]
        wanted = "origin" if finding.id == first.id else "consequence"
        if finding.role != wanted or cause.id != first.id:
            yield f"findings: {finding.rule} at step {finding.step} is {finding.role} of {cause.rule}"


def _wrong_places(first: Finding, run: Run) -> Iterator[str]:
    """File and line of a finding must be those of a record of that very event."""
    if first.rule in ("skipped-event", "init-config"):
        return
    for rank in first.ranks:
        where = first.where.get(str(rank))
        if where is None or where.line is None:
            yield f"where: nothing for rank {rank}"
            continue
        record = run.records[rank][where.line - 2]
        key = (record["stage"], record.get("req"), record.get("round"), record.get("phase", "used"))
        if where.file != f"rank{rank}.jsonl" or key != (first.stage, first.req, first.round, first.phase):
            yield f"where: rank {rank} {where} is {key}"


def assert_reported(injected: Injected) -> None:
    """The report names the injected fault, and exactly it."""
    report = analyze_run(injected.run)
    wrong = list(mismatches(report, injected.expected, injected.run))
    assert not wrong, "\n".join(wrong)
