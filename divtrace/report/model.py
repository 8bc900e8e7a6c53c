"""The report, `divtrace.report/1`: plain frozen data, complete before any reporter sees it.

A reporter renders these values and computes none. Keys by rank are strings, `"3"`, or `"world/rank"` as soon as the
input holds more than one world. The JSON Schema in `schemas/report.schema.json` is generated from these structs.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType, field

REPORT_FORMAT = "divtrace.report/1"

Verdict = Literal["divergence", "rank_failed", "rank_silent", "uniform_stall", "insufficient", "clean"]
VERDICTS: tuple[Verdict, ...] = ("divergence", "rank_failed", "rank_silent", "uniform_stall", "insufficient", "clean")
RuleClass = Literal["control", "logical-layout", "shape"]
Role = Literal["origin", "consequence", "independent"]
Precedence = Literal["shown", "not shown", "no timeout known"]
RankName = int | str
"""A rank in a list: its number, or `"world/rank"` where there is more than one world."""


class Where(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a record stands: its file, relative to the input, and its line or (Parquet) row, both from 1."""

    file: str
    line: int | None = None
    row: int | None = None


class FieldDifference(msgspec.Struct, frozen=True):
    """One field in which the ranks of a finding differ."""

    name: str
    index: int | None
    """First differing element of a list; the shorter length if one is a prefix of the other; null for other values."""
    values: dict[str, Any]


class Lag(msgspec.Struct, frozen=True):
    """How far behind the finding at the head of its chain a consequence stands; null where the records do not tell."""

    rounds: int | None
    steps: int | None
    events: int | None
    """On the lowest rank that recorded both."""
    ns: int | None
    """On the clock of that same rank."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One event at which ranks disagree or an invariant breaks."""

    id: str
    rule: str
    also: tuple[str, ...]
    """The other rules broken by the same event."""
    rule_class: RuleClass = field(name="class")
    role: Role
    world: int
    ranks: tuple[int, ...]
    replica: int
    req: str | None
    attempt: int | None
    round: int | None
    step: int | None
    stage: str
    site: str | None
    phase: str
    n: int
    comm: str | UnsetType | None = UNSET
    comm_ranks: tuple[int, ...] | UnsetType | None = UNSET
    comm_seq: int | UnsetType | None = UNSET
    field: str | None
    index: int | None
    values: dict[str, Any]
    fields: tuple[FieldDifference, ...]
    odd_ranks: tuple[int, ...]
    attribution: str
    """One sentence: what is observed, and what follows from what."""
    where: dict[str, Where]
    decided_on: dict[str, Any] | UnsetType = UNSET
    """Per rank, the recorded input of the decision."""
    caused_by: str | UnsetType = UNSET
    link: Literal["derived", "after"] | UnsetType = UNSET
    lag: Lag | UnsetType = UNSET


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The key of an event: where in the run it stands."""

    req: str | None
    attempt: int | None
    round: int | None
    step: int | None
    stage: str
    site: str | None
    phase: str
    n: int


class SiteCount(msgspec.Struct, frozen=True):
    """How often a harmless difference was seen at one site and field."""

    site: str | None
    field: str
    count: int


class Wait(msgspec.Struct, frozen=True):
    """One rank is stuck in an operation that another has not issued."""

    rank: RankName
    waits_for: RankName
    comm: str
    comm_seq: int | None


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who is waited for, who went further than the rest, and the first crossed order, flat."""

    behind: tuple[RankName, ...]
    ahead: tuple[RankName, ...]
    cycle: tuple[RankName, ...]
    waits: tuple[Wait, ...] = ()
    """For every rank that waits for somebody who is behind, one operation; of a crossed order those of the cycle."""


class Replica(msgspec.Struct, frozen=True):
    """One replica: its ranks, its attn_tp groups, and what was found in it."""

    id: int
    world: int
    ranks: tuple[int, ...]
    attn_tp: tuple[tuple[int, ...], ...]
    verdict: Verdict
    requests: int
    rounds: int
    first: str | None


class End(msgspec.Struct, frozen=True):
    """The last event of a rank."""

    seq: int | None
    step: int | None
    stage: str
    site: str | None
    req: str | None
    round: int | None
    clean: bool
    """An `end` record was read: the trace was closed on purpose."""


class Timeout(msgspec.Struct, frozen=True):
    """One operation that timed out."""

    ranks: tuple[RankName, ...]
    comm: str | None
    comm_seq: int | None
    op: str | None
    source: Literal["trace", "flight-recorder", "log"]
    text: str


class NotCompared(msgspec.Struct, frozen=True):
    """A rank that is absent, or of which a part was not compared."""

    rank: RankName
    why: str


class Damage(msgspec.Struct, frozen=True):
    """One record or file that could not be used as it stands."""

    file: str
    line: int | None
    what: str


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """What was read, and what was not."""

    files: int
    ignored_files: int
    events: int
    ranks: int
    bad_lines: int
    unknown_fields: dict[str, int]
    duplicates: int
    lost_events: int
    """Events missing in `seq`, or counted by the recorder as dropped."""
    not_compared: tuple[NotCompared, ...]
    missing_fields: tuple[str, ...]
    """Decisions that no rank recorded."""
    damage: tuple[Damage, ...]
    """The first of the bad lines and damaged files, with file and line."""


class EvidenceFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file that is no trace and told something."""

    path: str
    kind: Literal["flight-recorder", "ras", "inspector", "log"]
    rank: int | None
    """The rank of the whole file, if it belongs to one."""
    operations: int
    facts: int
    """Other things that it told: timeouts, exceptions, batches and so on."""


class LastOperation(msgspec.Struct, frozen=True):
    """The last operation that a dump holds."""

    comm: str
    comm_seq: int | None
    op: str
    state: str
    """As the recorder states it; `retired` is completed or given up, which gloo does not tell."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank's dump shows: from its first to its last entry, and no further."""

    file: str | None
    """Null: the rank left no dump."""
    first_record: int | None
    last_record: int | None
    from_start: bool
    """Nothing was dropped before the first entry."""
    active_only: bool
    """Completed operations are not in the dump: what it lacks may have been issued."""
    horizon: str | None
    """Why nothing is said past its end; null where its end is the rank's own."""
    last: LastOperation | None


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Dumps and logs among the input."""

    files: tuple[EvidenceFile, ...]
    operations: int
    not_understood: dict[str, int]
    """By format: lines that look like it and are not understood."""
    windows: dict[str, Window]


class RequestSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One request of one replica, for reporters that list them all."""

    world: int
    replica: int
    req: str
    rounds: int
    compared: Literal["full", "part"]
    why: str | None
    """Why only a part was compared."""


class Tool(msgspec.Struct, frozen=True):
    """What wrote the report."""

    version: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer for one input."""

    format: str = field(name="schema", default=REPORT_FORMAT)
    tool: Tool
    verdict: Verdict
    summary: str
    """The verdict in one line, with how far the ranks were compared."""
    first: Finding | None
    findings: tuple[Finding, ...]
    findings_left_out: dict[str, int]
    last_agreement: Place | None
    precedence: Precedence
    healed: tuple[SiteCount, ...]
    drift: tuple[SiteCount, ...]
    progress: Progress
    replicas: tuple[Replica, ...]
    end: dict[str, End]
    timeouts: tuple[Timeout, ...]
    coverage: Coverage
    notes: tuple[str, ...]
    next: tuple[str, ...]
    """One check that would separate the remaining explanations."""
    evidence: Evidence | UnsetType = UNSET
    """Absent if the input holds traces only."""
    requests: tuple[RequestSummary, ...] | UnsetType = UNSET
    """Every request, for reporters; too many for the JSON report, which leaves them out."""


def encode(report: Report) -> bytes:
    """The report as JSON: keys in the order of the structs, two spaces of indentation, one line break at the end."""
    listed = msgspec.structs.replace(report, requests=UNSET)
    return msgspec.json.format(msgspec.json.encode(listed), indent=2) + b"\n"
