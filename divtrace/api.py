"""The library: functions that take paths and return data. Nothing here prints or exits.

What only some of them need is imported inside of them: each module costs every process that loads it some milliseconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from divtrace.collector import collector_paused
from divtrace.errors import DamageError, DivtraceError, NoTraceError
from divtrace.sieve.listing import EVERYTHING, Listing
from divtrace.timing import stage
from divtrace.trace.discover import Discovery, discover
from divtrace.trace.model import Traces
from divtrace.walk.settings import GroupFlags

if TYPE_CHECKING:
    from divtrace.join.collectives import Collective, Wanted
    from divtrace.report.answers import FirstDivergence, Shown
    from divtrace.report.model import Report
    from divtrace.sieve.cluster import Cluster
    from divtrace.sieve.run import Beside
    from divtrace.walk.run import Walk

_LINE = 200
"""Bytes of an event as a plain line, about."""
_DENSEST = 64
"""Times that a file may be smaller than its events as plain lines; smaller input is not looked into."""

Paths = Sequence[str | os.PathLike[str]]
Backend = Literal["local", "ray"]
OnProgress = Callable[[int, int], None]
"""Called with bytes read so far and bytes in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to read and compare; every default is what a plain command does."""

    run: str | None = None
    """Which run to read where the input mixes several."""
    tp: int | None = None
    dp: int | None = None
    cp: int | None = None
    pp: int | None = None
    dp_attention: bool | None = None
    attn_tp_groups: tuple[tuple[int, ...], ...] = ()
    max_findings: int = 1000
    """Findings listed in the report; 0 for all."""
    jobs: int | None = None
    """Processes, or Ray tasks at a time, to use at most; None for the number of cores."""
    backend: Backend = "local"
    """Where large inputs are sieved: in processes of this machine, or by the workers of Ray."""
    ray_address: str | None = None
    """The Ray cluster; None for the one that RAY_ADDRESS names, else for workers on this machine."""
    sieve_from: int = 8 << 20
    """Bytes of plain JSON Lines from which on the ranks are sieved in step instead of being loaded; of compressed files
    and Parquet as many events."""
    strict: bool = False
    """Damage of any kind raises DamageError."""

    def cluster(self) -> AbstractContextManager[Cluster | None]:
        """A connection to Ray if that is the backend; raises UsageError if it is not installed or not there."""
        if self.backend != "ray":
            return nullcontext()
        from divtrace.sieve.cluster import connected

        return connected(self.ray_address, self.jobs)

    @property
    def groups(self) -> GroupFlags:
        """Sizes and groups that win over those of the traces."""
        return GroupFlags(
            tp=self.tp,
            dp=self.dp,
            cp=self.cp,
            pp=self.pp,
            dp_attention=self.dp_attention,
            attn_tp_groups=self.attn_tp_groups,
        )


def read(paths: Paths, options: Options, progress: OnProgress | None = None, found: Discovery | None = None) -> Traces:
    """Load the traces.

    Raises:
        UsageError: a path does not exist.
        NoTraceError: nothing in the input is a trace, or nothing is readable.
        RunsError: the input mixes several runs and `options.run` picks none.
        DamageError: `options.strict`, and something is damaged.
    """
    from divtrace.trace.load import load

    with stage("load") as loading:
        traces = load(paths, run=options.run, progress=progress, found=found)
        loading.events = sum(len(trace.records) for trace in traces.ranks.values())
    if options.strict:
        _refuse_damage(traces)
    return traces


def _refuse_damage(traces: Traces) -> None:
    for one in traces.damage:
        line = "" if one.line is None else f":{one.line}"
        more = f" ({len(traces.damage) - 1} more)" if len(traces.damage) > 1 else ""
        raise DamageError(f"{one.file}{line}: {one.what}{more}", hint="leave out --strict to use what is readable")
    if traces.unknown_fields:
        names = ", ".join(traces.unknown_fields)
        raise DamageError(f"fields that the format does not know: {names}", hint="leave out --strict to drop them")
    if traces.duplicates:
        raise DamageError(
            f"{traces.duplicates} records stand twice in the input",
            hint="leave out --strict to count each of them once",
        )


def _walk_found(
    paths: Paths,
    found: Discovery,
    options: Options,
    progress: OnProgress | None,
    listing: Listing = EVERYTHING,
    beside: Beside | None = None,
) -> Walk:
    """Read and walk traces; raises as `read` does, and TopologyError for sizes that do not divide.

    Large inputs that carry `seq` pass through the sieve, sorted if need be; everything else is loaded as a whole.
    `beside` adds what else is known of the run.
    """
    if options.backend == "ray":
        from divtrace.sieve.cluster import check_installed

        check_installed()
    if _is_large(found, options):
        total = sum(source.size or 0 for source in found.sources)
        told = None if progress is None else (lambda done: progress(min(done, total), total))
        sieved = _sieved(found, options, told, listing, beside)
        if sieved is not None:
            if options.strict:
                _refuse_damage(sieved.traces)
            return sieved
    from divtrace.walk.run import walk

    traces = read(paths, options, progress, found)
    with stage("walk"):
        walked = walk(traces, options.groups)
    return walked if beside is None else beside(walked)


def _is_large(found: Discovery, options: Options) -> bool:
    size = sum(source.size or 0 for source in found.sources)
    if not found.sources or size * _DENSEST < options.sieve_from:
        return False
    if size >= options.sieve_from:
        return True
    from divtrace.trace.density import bytes_per_event

    each = bytes_per_event(found.sources)
    return each is not None and size / each * _LINE >= options.sieve_from


def _sieved(
    found: Discovery,
    options: Options,
    told: Callable[[int], None] | None,
    listing: Listing,
    beside: Beside | None,
) -> Walk | None:
    """The walk of what passes through the sieve; None if the input can only be loaded as a whole."""
    # Small inputs need none of this.
    from divtrace.sieve import run
    from divtrace.sieve.cursor import DisorderError, NotSievableError

    try:
        try:
            with options.cluster() as cluster:
                return run.sieve(found, options.run, options.groups, options.jobs, told, cluster, listing, beside)
        except DisorderError:
            return _sieved_sorted(found, options, told, listing, beside)
    except NotSievableError:
        return None  # no seq, several ranks in one file


def _sieved_sorted(
    found: Discovery,
    options: Options,
    told: Callable[[int], None] | None,
    listing: Listing,
    beside: Beside | None,
) -> Walk:
    """The same over copies in the order of `seq`, in a temporary folder.

    Raises:
        DivtraceError: there is no room for the copies.
        NotSievableError: the input can only be loaded as a whole.
    """
    from tempfile import TemporaryDirectory, gettempdir

    from divtrace.convert.run import convert_in_order
    from divtrace.sieve import run

    with ExitStack() as stack:
        try:
            folder = stack.enter_context(TemporaryDirectory(prefix="divtrace-"))
            with stage("sort"):
                convert_in_order(
                    found, Path(folder), run=options.run, progress=None if told is None else lambda done, _: told(done)
                )
        except OSError as error:
            raise DivtraceError(
                f"records are not in the order of seq and could not be sorted: {error.strerror or error}",
                hint=f"they are sorted in {gettempdir()}; set TMPDIR to a folder with room for one rank's trace",
            ) from error
        return run.sieve(
            discover([folder]), options.run, options.groups, options.jobs, None, listing=listing, beside=beside
        )


def walk_input(paths: Paths, options: Options, progress: OnProgress | None = None) -> Walk:
    """Read and walk the traces, and what dumps and logs stand beside them or in their place.

    Findings that no report of `options.max_findings` lists may be counted only.

    Raises as `read` does, and TopologyError for sizes that do not divide; NoTraceError only if there is no evidence
    either.
    """
    from divtrace.join.input import candidates, without

    with stage("discover"):
        found = discover(paths)
        given = candidates(found)
    if not given.files:
        return _walk_found(paths, found, options, progress, Listing(options.max_findings))
    from divtrace.evidence.read import read_evidence

    with stage("evidence"):
        evidence = read_evidence(given.files, jobs=options.jobs)
    if not evidence.files and not evidence.unreadable:
        return _walk_found(paths, found, options, progress, Listing(options.max_findings))
    from divtrace.join.world import evidence_alone, with_evidence

    if options.strict and evidence.unreadable:
        first = evidence.unreadable[0]
        raise DamageError(f"{first.path}: {first.what}", hint="leave out --strict to use what is readable")
    found = without(found, {file.path for file in evidence.files} | {one.path for one in evidence.unreadable})

    def joined(walked: Walk) -> Walk:
        with stage("evidence"):
            return with_evidence(walked, evidence, options.groups)

    try:
        return _walk_found(paths, found, options, progress, Listing(options.max_findings), joined)
    except NoTraceError:
        if not evidence.files:
            raise
    with stage("evidence"):
        return evidence_alone(found, evidence, options.groups)


def collectives(
    paths: Paths, options: Options | None = None, wanted: Wanted | None = None, *, progress: OnProgress | None = None
) -> list[Collective]:
    """The table of all collectives in traces, dumps and logs; of several sources each operation stands once for each.

    Raises:
        NoTraceError: the input holds neither traces nor evidence.
        DivtraceError: as `analyze`.
    """
    from divtrace.evidence.read import read_evidence
    from divtrace.join.collectives import Wanted as Everything
    from divtrace.join.collectives import of_evidence, of_traces
    from divtrace.join.input import candidates, without
    from divtrace.join.world import conclude_alone, conclude_beside

    chosen, asked = options or Options(), wanted or Everything()
    found = discover(paths)
    evidence = read_evidence(candidates(found).files, jobs=chosen.jobs)
    found = without(found, {file.path for file in evidence.files} | {one.path for one in evidence.unreadable})
    rows: list[Collective] = []
    try:
        traces = read(paths, chosen, progress, found)
    except NoTraceError:
        if not evidence.files:
            raise
        report, world = conclude_alone(evidence, chosen.groups), 0
    else:
        rows += filter(asked.takes, of_traces(traces, chosen.groups))
        report, world = conclude_beside(traces, evidence, chosen.groups)
    rows += filter(asked.takes, of_evidence(report, world))
    return rows


def analyze(
    paths: Paths | str | os.PathLike[str], options: Options | None = None, *, progress: OnProgress | None = None
) -> Report:
    """Find the first divergence in what a run left: traces, flight-recorder dumps, logs.

    Args:
        paths: files and folders; one path alone is fine.
        options: how to read and compare.
        progress: called with bytes read and bytes in all.

    Returns:
        The report: verdict, first divergence, all findings, coverage.

    Raises:
        DivtraceError: see `divtrace.errors`; anything damaged in the traces is reported, not raised.
    """
    from divtrace.report.build import build

    chosen = options or Options()
    known = [paths] if isinstance(paths, str | os.PathLike) else paths
    with collector_paused():
        walked = walk_input(known, chosen, progress)
        with stage("report"):
            return build(walked, max_findings=chosen.max_findings)


def first_divergence(
    paths: Paths,
    req: str,
    options: Options | None = None,
    *,
    attempt: int | None = None,
    replica: int | None = None,
    progress: OnProgress | None = None,
) -> FirstDivergence:
    """The earliest finding of one request, and the origin that it follows from, in each replica that served it.

    Raises:
        UsageError: no replica served the request; the hint lists the nearest ids.
        DivtraceError: as `analyze`.
    """
    chosen = options or Options()
    with collector_paused():
        with stage("discover"):
            found = discover(paths)
        # What is too much for one machine is too much for a search on it too.
        if _is_large(found, chosen) and not chosen.strict and chosen.backend == "local":
            from divtrace.sieve.single import without_finding

            with stage("one request"):
                alone = without_finding(found, req, chosen.run, chosen.groups, attempt=attempt, replica=replica)
            if alone is not None:
                return alone
        from divtrace.report.request import first_divergence_of, is_judged

        # Of other requests than this one the first findings do, unless they end before its own.
        for listing in (Listing(chosen.max_findings, frozenset([req])), EVERYTHING):
            walked = _walk_found(paths, found, chosen, progress, listing)
            if is_judged(walked, req, attempt):
                break
        with stage("report"):
            return first_divergence_of(walked, req, attempt=attempt, replica=replica)


def show(
    paths: Paths,
    req: str,
    options: Options | None = None,
    *,
    round_number: int | None = None,
    replica: int | None = None,
    progress: OnProgress | None = None,
) -> Shown:
    """All events of one request, or of one of its rounds, with the ranks side by side.

    Raises:
        UsageError: no replica served the request, or it has no such round.
        DivtraceError: as `analyze`.
    """
    from divtrace.report.request import show_request

    chosen = options or Options()
    with stage("discover"):
        found = discover(paths)
    walked = _walk_found(paths, found, chosen, progress, Listing(chosen.max_findings, frozenset([req])))
    return show_request(walked, req, round_number=round_number, replica=replica)


def validate(paths: Paths, options: Options | None = None, *, progress: OnProgress | None = None) -> Traces:
    """Read the traces and return what was read and what was damaged; nothing is compared."""
    return read(paths, options or Options(), progress)
