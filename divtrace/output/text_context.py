"""What stands around the findings in the text report: the input, harmless differences, the end, and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import UNSET

from divtrace.output.base import OutputOptions
from divtrace.output.escape import name, sentence
from divtrace.output.layout import emphasised, wrapped
from divtrace.output.quantities import count
from divtrace.output.ranks import rank_key, rank_ranges, ranks_words
from divtrace.output.wording import many_worlds, named_ranks, verdict_line, verdict_words
from divtrace.report.model import Coverage, Damage, End, RankName, Replica, Report, SiteCount, Wait, Window

HEALED = "Healed by a sync"
DRIFT = "Drift, in rows that decide nothing"
_SOURCES = {"trace": "trace", "flight-recorder": "flight recorder", "log": "log"}
_KINDS = {"flight-recorder": "flight-recorder dump", "ras": "RAS report", "inspector": "Inspector file", "log": "log"}
MOST_REPLICAS = 12
MOST_GROUPS = 8
MOST_DAMAGE = 5
MOST_LINES = 12
LONGEST_TIMEOUT = 300
"""Characters of a timeout's text."""


def input_section(report: Report, options: OutputOptions) -> list[str]:
    """Files, ranks and groups, and how much of them could be used."""
    coverage = report.coverage
    parts = [count(coverage.files, "file"), count(coverage.ranks, "rank")]
    if coverage.events or report.evidence is UNSET:
        parts.append(count(coverage.events, "event"))
    if report.evidence is not UNSET and report.evidence.operations:
        parts.append(count(report.evidence.operations, "logged operation"))
    lines = wrapped(f"divtrace {report.tool.version}: {', '.join(parts)}", options.width, "", "  ")
    listed = report.replicas if options.verbose else report.replicas[:MOST_REPLICAS]
    worlds = many_worlds(report)
    for replica in listed:
        lines += wrapped(_replica_words(replica, worlds=worlds, traced=traced(report)), options.width, "  ", "    ")
    if len(listed) < len(report.replicas):
        verdicts = Counter(replica.verdict for replica in report.replicas[len(listed) :])
        summary = ", ".join(f"{verdict_words(verdict)} {number:,}" for verdict, number in sorted(verdicts.items()))
        lines += wrapped(f"and {verdicts.total():,} more replicas: {summary}", options.width, "  ", "    ")
    unusual = _unusual(coverage)
    lines += wrapped("; ".join(unusual), options.width, "  ", "    ") if unusual else []
    damage = coverage.damage if options.verbose else coverage.damage[:MOST_DAMAGE]
    for damaged in damage:
        lines += wrapped(_damage_words(damaged), options.width, "    ", "      ")
    if len(damage) < len(coverage.damage):
        lines.append(f"    and {len(coverage.damage) - len(damage):,} more")
    return lines


def traced(report: Report) -> bool:
    """Whether the input holds traces, and not only other evidence."""
    return report.coverage.events > 0 or report.evidence is UNSET


def verdict_section(report: Report, options: OutputOptions) -> list[str]:
    """The verdict in one line."""
    style = {"clean": "good", "divergence": "bad"}.get(report.verdict, "strong")
    title, rest = verdict_line(report)
    return wrapped(f"{emphasised(title + ':', style)} {rest}", options.width, "", "  ")


def harmless_section(report: Report, options: OutputOptions) -> list[str]:
    """Differences that a sync healed, and those that decide nothing, by site."""
    lines: list[str] = []
    for title, counts in ((HEALED, report.healed), (DRIFT, report.drift)):
        if counts:
            lines.append(emphasised(title, "strong"))
            lines += _listed([site_words(entry) for entry in counts], options)
    return lines


def timeout_section(report: Report, options: OutputOptions) -> list[str]:
    """The operations that timed out, and whether the first divergence is shown to come before them."""
    if not report.timeouts:
        return [] if report.first is None else [f"{emphasised('Timeouts', 'strong')}: none known"]
    lines = [emphasised("Timeouts", "strong")]
    listed = report.timeouts if options.verbose else report.timeouts[:MOST_GROUPS]
    for timeout in listed:
        operation = "an operation" if timeout.comm_seq is None else f"operation {timeout.comm_seq}"
        parts = (name(timeout.op) if timeout.op else "", f"on {name(timeout.comm)}" if timeout.comm else "", operation)
        source = _SOURCES[timeout.source]
        where = f"{' '.join(part for part in parts if part)}: {ranks_words(timeout.ranks)} (from the {source})"
        lines += wrapped(where, options.width, "  ", "    ")
        if timeout.text:
            cut = timeout.text[:LONGEST_TIMEOUT] + ("..." if len(timeout.text) > LONGEST_TIMEOUT else "")
            lines += wrapped(sentence(cut), options.width, "    ")
    if len(listed) < len(report.timeouts):
        lines.append(f"  and {len(report.timeouts) - len(listed):,} more")
    if report.first is None:
        return lines
    precedence = {
        "shown": "the first divergence comes before the timeout on its own ranks: shown",
        "not shown": "that the first divergence comes before the timeout is not shown",
        "no timeout known": "no timeout known",
    }[report.precedence]
    return lines + wrapped(precedence, options.width, "  ", "    ")


def progress_section(report: Report, options: OutputOptions) -> list[str]:
    """Who is waited for, who went on alone, and where every rank stopped."""
    progress = report.progress
    lines: list[str] = []
    if progress.behind:
        lines += wrapped(f"behind: {ranks_words(progress.behind)}; others wait for it", options.width, "  ", "    ")
    if progress.ahead:
        ahead = f"ahead: {ranks_words(progress.ahead)}; in an operation that most members have not issued"
        lines += wrapped(ahead, options.width, "  ", "    ")
    if progress.cycle:
        cycle = " -> ".join(rank_ranges([rank]) for rank in (*progress.cycle, progress.cycle[0]))
        lines += wrapped(f"crossed order, each waits for the next: ranks {cycle}", options.width, "  ", "    ")
    waits = progress.waits if options.verbose else progress.waits[:MOST_GROUPS]
    lines += [line for wait in waits for line in wrapped(wait_words(wait), options.width, "  ", "    ")]
    if len(waits) < len(progress.waits):
        lines.append(f"  and {len(progress.waits) - len(waits):,} more waits")
    if report.verdict != "clean" or options.verbose:
        ends: dict[str, list[RankName]] = {}
        for rank in sorted(report.end, key=rank_key):
            ends.setdefault(_end_words(report.end[rank]), []).append(rank)
        lines += _listed([f"{ranks_words(ranks)}: last event at {where}" for where, ranks in ends.items()], options)
    return [emphasised("Progress", "strong"), *lines] if lines else []


def wait_words(wait: Wait) -> str:
    """`rank 2 waits for rank 1 in tp #17`."""
    number = "" if wait.comm_seq is None else f" #{wait.comm_seq}"
    return f"{ranks_words([wait.rank])} waits for {ranks_words([wait.waits_for])} in {name(wait.comm)}{number}"


def evidence_section(report: Report, options: OutputOptions) -> list[str]:
    """What dumps and logs there are, and how far each dump reaches."""
    if report.evidence is UNSET:
        return []
    kinds = Counter(file.kind for file in report.evidence.files)
    held = [count(number, _KINDS[kind]) for kind, number in sorted(kinds.items())]
    lines = wrapped(", ".join(held) if held else "no file could be read", options.width, "  ", "    ")
    windows: dict[str, list[RankName]] = {}
    for rank in sorted(report.evidence.windows, key=rank_key):
        windows.setdefault(_window_words(report.evidence.windows[rank]), []).append(rank)
    lines += _listed([f"{ranks_words(ranks)}: {words}" for words, ranks in windows.items()], options)
    return [emphasised("Evidence", "strong"), *lines]


def _window_words(window: Window) -> str:
    if window.file is None:
        return "no dump"
    if window.last is None:
        return "an empty dump"
    number = "" if window.last.comm_seq is None else f" #{window.last.comm_seq}"
    parts = [f"last {name(window.last.op)} in {name(window.last.comm)}{number}, {window.last.state}"]
    if window.active_only:
        parts.append("active operations only")
    elif not window.from_start and window.first_record is not None:
        parts.append(f"the ring begins at record {window.first_record:,}")
    if window.horizon is not None:
        parts.append(f"nothing is said past its end: {sentence(window.horizon)}")
    return "; ".join(parts)


def not_compared_section(report: Report, options: OutputOptions) -> list[str]:
    """Ranks and decisions about which nothing is said, and why."""
    entries = [f"{ranks}: {sentence(why)}" for ranks, why in reasons(report.coverage)]
    lines = _listed(entries, options)
    if report.coverage.missing_fields and traced(report):
        fields = ", ".join(name(field) for field in report.coverage.missing_fields)
        lines += wrapped(f"recorded by no rank: {fields}", options.width, "  ", "    ")
    return [emphasised("Not compared", "strong"), *lines] if lines else []


def reasons(coverage: Coverage) -> list[tuple[str, str]]:
    """Why something was not compared, each reason once, behind the ranks it holds for."""
    ranks: dict[str, list[RankName]] = {}
    for entry in coverage.not_compared:
        ranks.setdefault(entry.why, []).append(entry.rank)
    return [(ranks_words(members) + (", each" if len(members) > 1 else ""), why) for why, members in ranks.items()]


def sentences_section(title: str, sentences: Sequence[str], options: OutputOptions) -> list[str]:
    """A titled list of sentences, or nothing."""
    if not sentences:
        return []
    return [emphasised(title, "strong"), *_listed([sentence(one) for one in sentences], options)]


def _listed(entries: Sequence[str], options: OutputOptions) -> list[str]:
    shown = entries if options.verbose else entries[:MOST_LINES]
    lines = [line for entry in shown for line in wrapped(entry, options.width, "  ", "    ")]
    return lines + ([f"  and {len(entries) - len(shown):,} more"] if len(shown) < len(entries) else [])


def _replica_words(replica: Replica, *, worlds: bool, traced: bool) -> str:
    world = f"world {replica.world}, " if worlds else ""
    groups = " ".join(f"[{rank_ranges(group)}]" for group in replica.attn_tp[:MOST_GROUPS])
    more = f" and {len(replica.attn_tp) - MOST_GROUPS:,} more" if len(replica.attn_tp) > MOST_GROUPS else ""
    ranks = ranks_words(named_ranks(replica.world, replica.ranks, worlds=worlds))
    served = f"{count(replica.requests, 'request')}, {count(replica.rounds, 'round')}; " if traced else ""
    return f"{world}replica {replica.id}: {ranks}; attn_tp {groups}{more}; {served}{verdict_words(replica.verdict)}"


def _unusual(coverage: Coverage) -> list[str]:
    parts = [
        count(number, noun, plural)
        for number, noun, plural in (
            (coverage.ignored_files, "other file ignored", "other files ignored"),
            (coverage.bad_lines, "bad line", None),
            (coverage.lost_events, "lost event", None),
            (coverage.duplicates, "duplicate record", None),
        )
        if number
    ]
    if coverage.unknown_fields:
        known = sorted(coverage.unknown_fields.items(), key=lambda pair: (-pair[1], pair[0]))
        fields = ", ".join(f"{name(field)} ({number:,})" for field, number in known[:MOST_DAMAGE])
        more = f" and {len(known) - MOST_DAMAGE:,} more" if len(known) > MOST_DAMAGE else ""
        parts.append(f"unknown fields: {fields}{more}")
    return parts


def _damage_words(damage: Damage) -> str:
    line = "" if damage.line is None else f":{damage.line}"
    return f"{name(damage.file)}{line}: {sentence(damage.what)}"


def site_words(entry: SiteCount) -> str:
    """`dspark-plan verify_len: 12 times`."""
    site = "" if entry.site is None else f"{name(entry.site)} "
    return f"{site}{name(entry.field)}: {count(entry.count, 'time')}"


def _end_words(end: End) -> str:
    parts: Iterable[str] = (
        "" if end.req is None else f"request {name(end.req)}",
        "" if end.round is None else f"round {end.round}",
        "" if end.step is None else f"step {end.step}",
        end.stage + ("" if end.site is None else f"/{name(end.site)}"),
        "trace closed" if end.clean else "",
    )
    return ", ".join(part for part in parts if part)
