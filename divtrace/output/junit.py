"""JUnit XML: a suite for each replica, a case for each request, and one more for the rest.

An origin or an independent finding is a `failure` of its request, a request that was compared only in part is
`skipped`, and consequences are mentioned in `system-out`, for they fail with their origin. The last case of a suite
carries the findings without a request and the verdict of the replica: a rank that failed or fell silent, or a stall, is
an `error`, too little evidence is `skipped`. GitLab shows only the text of these elements, so all that matters stands
there too. There are no times and no host names: the same report gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from msgspec import UNSET

from divtrace.output.base import OutputOptions
from divtrace.output.escape import name, sentence
from divtrace.output.layout import plain
from divtrace.output.quantities import count
from divtrace.output.text_findings import labels
from divtrace.output.value_rows import value_lines
from divtrace.output.wording import (
    brief_words,
    differences,
    field_words,
    link_words,
    many_worlds,
    odd_words,
    place_words,
    rule_words,
    verdict_words,
)
from divtrace.report.model import Finding, Report, RequestSummary, Verdict

WIDTH = 100
MOST_CONSEQUENCES = 20
"""Consequences that one case mentions."""
BAD_ENDS: frozenset[Verdict] = frozenset({"rank_failed", "rank_silent", "uniform_stall"})

ReplicaKey = tuple[int, int]
"""(world, replica)."""


@dataclass(frozen=True, slots=True)
class _Context:
    """What all cases of a report share."""

    report: Report
    names: dict[str, str]

    def of(self, key: ReplicaKey, req: str | None) -> list[Finding]:
        return [one for one in self.report.findings if (one.world, one.replica) == key and one.req == req]


def render(report: Report, _options: OutputOptions) -> str:
    """The suites in the order of their replicas, the cases in the order of the requests."""
    context = _Context(report, labels(report))
    requests = () if report.requests is UNSET else report.requests
    verdicts: dict[ReplicaKey, Verdict] = {(one.world, one.id): one.verdict for one in report.replicas}
    found = {(one.world, one.replica) for one in report.findings}
    root = Element("testsuites", name="divtrace")
    for key in sorted({*verdicts, *found}):
        summaries = {one.req: one for one in requests if (one.world, one.replica) == key}
        suite = SubElement(root, "testsuite", name=_suite_name(report, key))
        known = {one.req for one in report.findings if one.req is not None and (one.world, one.replica) == key}
        for req in sorted({*summaries, *known}):
            _request_case(suite, req, summaries.get(req), context.of(key, req), context)
        _rest_case(suite, verdicts.get(key, report.verdict), context.of(key, None), context)
        _count(suite, [suite])
    _count(root, root.findall("testsuite"))
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _suite_name(report: Report, key: ReplicaKey) -> str:
    world, replica = key
    return f"world {world}, replica {replica}" if many_worlds(report) else f"replica {replica}"


def _count(element: Element, suites: Sequence[Element]) -> None:
    for attribute, path in (
        ("tests", "testcase"),
        ("failures", "testcase/failure"),
        ("errors", "testcase/error"),
        ("skipped", "testcase/skipped"),
    ):
        element.set(attribute, str(sum(len(suite.findall(path)) for suite in suites)))


def _request_case(
    suite: Element, req: str, summary: RequestSummary | None, findings: Sequence[Finding], context: _Context
) -> None:
    case = SubElement(suite, "testcase", classname=f"divtrace.{suite.get('name')}.request", name=name(req))
    failed = _failures(case, findings, context)
    said = [] if summary is None else [f"{count(summary.rounds, 'round')}, compared in {summary.compared}"]
    if summary is not None and summary.compared == "part":
        why = sentence(summary.why or "no reason is known")
        if failed:
            said.append(why)
        else:
            _say(case, "skipped", "compared only in part", [why])
    _system_out(case, said, findings, context)


def _rest_case(suite: Element, verdict: Verdict, findings: Sequence[Finding], context: _Context) -> None:
    case = SubElement(suite, "testcase", classname=f"divtrace.{suite.get('name')}", name="verdict")
    report = context.report
    said = [f"verdict of this replica: {verdict_words(verdict)}", f"of the whole: {verdict_words(report.verdict)}"]
    said += [sentence(report.summary), *(f"next check: {sentence(step)}" for step in report.next)]
    if not _failures(case, findings, context):
        if verdict in BAD_ENDS:
            _say(case, "error", verdict_words(verdict), said, kind=verdict)
        elif verdict == "insufficient":
            _say(case, "skipped", "insufficient evidence", said)
    _system_out(case, said, findings, context)


def _failures(case: Element, findings: Sequence[Finding], context: _Context) -> bool:
    """One failure for all findings of a case that have no cause, since readers expect one; False if there are none."""
    heads = [finding for finding in findings if finding.role != "consequence"]
    if not heads:
        return False
    lines: list[str] = []
    for finding in heads:
        lines += ["", *_full(finding, context)] if lines else _full(finding, context)
    message = f"{heads[0].rule}: {plain(brief_words(heads[0]))}"
    _say(case, "failure", message, lines, kind=heads[0].rule)
    return True


def _full(finding: Finding, context: _Context) -> list[str]:
    lines = [f"{context.names[finding.id]} {finding.role}: {rule_words(finding)}", place_words(finding)]
    for difference in differences(finding):
        if difference.name:
            lines.append(f"{field_words(difference.name, difference.index)}:")
        lines += [plain(line) for line in value_lines(finding, difference, WIDTH, "  ")]
    odd = odd_words(finding)
    return [*lines, *([odd] if odd else []), sentence(finding.attribution)]


def _system_out(case: Element, said: Sequence[str], findings: Sequence[Finding], context: _Context) -> None:
    chain = [finding for finding in findings if finding.role == "consequence"]
    lines = list(said)
    for finding in chain[:MOST_CONSEQUENCES]:
        lines.append(f"{context.names[finding.id]} {finding.rule}, {place_words(finding)}")
        lines += [f"  {link_words(finding, context.names)}", f"  {plain(brief_words(finding))}"]
    if len(chain) > MOST_CONSEQUENCES:
        lines.append(f"and {count(len(chain) - MOST_CONSEQUENCES, 'more consequence')}")
    if lines:
        SubElement(case, "system-out").text = "\n".join(lines)


def _say(case: Element, element: str, message: str, lines: Sequence[str], *, kind: str | None = None) -> None:
    said = SubElement(case, element, message=message)
    if kind is not None:
        said.set("type", kind)
    said.text = "\n".join((message, *lines))
