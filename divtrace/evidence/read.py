"""Reading all evidence files of an input into one set of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from divtrace.collector import collector_paused
from divtrace.evidence.dump import Dump, build_dump
from divtrace.evidence.dump_schema import parse_dump
from divtrace.evidence.facts import EvidenceFile, Fact, Operation, Unreadable
from divtrace.evidence.inspector import read_inspector
from divtrace.evidence.logs.scan import scan
from divtrace.evidence.opening import CutFileError, TooLargeError, head, whole
from divtrace.evidence.pool import read_parts, split
from divtrace.evidence.ras_json import read_ras
from divtrace.evidence.recognise import looks_like_dump_name, rank_in_name, ranks_by_varying_number, recognise


@dataclass(slots=True)
class Evidence:
    """Everything that was read, before anything is concluded from it."""

    dumps: list[Dump] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    """From logs and Inspector files; those of dumps stay in columns."""
    facts: list[Fact] = field(default_factory=list)
    files: list[EvidenceFile] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    not_understood: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    """By literal: log lines that were not read because one file repeated it too often."""
    duplicates: int = 0
    file_ranks: dict[str, int] = field(default_factory=dict)
    """Rank by name of the file, for logs."""


def read_evidence(files: Mapping[str, Path] | Iterable[Path], *, jobs: int | None = 1) -> Evidence:
    """Read all files that are evidence; whatever goes wrong with one costs that one only.

    Args:
        files: paths, or paths by the name that places shall use. Order does not matter.
        jobs: processes to use at most for many dumps; None for the number of cores. The result is the same.

    Raises:
        DivtraceError: a process died.
    """
    named = dict(files) if isinstance(files, Mapping) else {str(path): path for path in files}
    parts = split(sorted(named.items()), jobs)
    read = [_read_all(parts[0])] if len(parts) == 1 else read_parts(_read_all, parts, jobs)
    evidence = merged(read)
    _name_ranks(evidence)
    return evidence


def merged(parts: Iterable[Evidence]) -> Evidence:
    """The evidence of several lots of files as one, in their order."""
    whole = Evidence()
    for part in parts:
        whole.dumps += part.dumps
        whole.operations += part.operations
        whole.facts += part.facts
        whole.files += part.files
        whole.ignored += part.ignored
        whole.unreadable += part.unreadable
        whole.duplicates += part.duplicates
        whole.file_ranks |= part.file_ranks
        for own, more in ((whole.not_understood, part.not_understood), (whole.left_out, part.left_out)):
            for name, count in more.items():
                own[name] = own.get(name, 0) + count
    return whole


def _read_all(files: Iterable[tuple[str, Path]]) -> Evidence:
    evidence = Evidence()
    for name, path in files:
        try:
            _read_one(name, path, evidence)
        except (CutFileError, TooLargeError, ValueError) as error:
            evidence.unreadable.append(Unreadable(name, str(error)))
        except OSError as error:
            evidence.unreadable.append(Unreadable(name, error.strerror or str(error)))
    return evidence


def _read_one(name: str, path: Path, evidence: Evidence) -> None:
    kind = recognise(head(path))
    if kind in ("dump-pickle", "dump-json"):
        with collector_paused():
            raw = parse_dump(whole(path), pickled=kind == "dump-pickle")
            dump = build_dump(raw, name, rank_in_name(name, dump=True))
        evidence.dumps.append(dump)
        if raw.bad_entries:
            evidence.unreadable.append(
                Unreadable(name, f"{raw.bad_entries} entries are not understood; {raw.first_problem}")
            )
        evidence.files.append(EvidenceFile(path=name, kind="flight-recorder", rank=dump.rank, operations=dump.count))
    elif kind == "ras-json":
        facts = read_ras(whole(path), name)
        evidence.facts += facts
        evidence.files.append(EvidenceFile(path=name, kind="ras", facts=len(facts)))
    elif kind == "inspector":
        operations, bad = read_inspector(whole(path), name)
        evidence.operations += operations
        if bad:
            evidence.not_understood["nccl-inspector"] = evidence.not_understood.get("nccl-inspector", 0) + bad
        evidence.files.append(EvidenceFile(path=name, kind="inspector", operations=len(operations)))
    elif kind == "text":
        result = scan(path, name)
        if not result.recognised:
            evidence.ignored.append(name)
            return
        rank = rank_in_name(name, dump=False)
        if rank is not None:
            evidence.file_ranks[name] = rank
        evidence.operations += result.operations
        evidence.facts += result.facts
        evidence.duplicates += result.duplicates
        for family, count in result.not_understood.items():
            evidence.not_understood[family] = evidence.not_understood.get(family, 0) + count
        for literal, count in result.left_out.items():
            evidence.left_out[literal] = evidence.left_out.get(literal, 0) + count
        if result.problem:
            evidence.unreadable.append(Unreadable(name, result.problem, result.lines))
        evidence.files.append(
            EvidenceFile(path=name, kind="log", rank=rank, operations=len(result.operations), facts=len(result.facts))
        )
    elif kind == "foreign-pickle" and looks_like_dump_name(name):
        evidence.unreadable.append(Unreadable(name, "is a pickle whose first key is none of a dump's; not unpickled"))
    else:
        evidence.ignored.append(name)


def _name_ranks(evidence: Evidence) -> None:
    """Ranks of dumps: the name's, unless the process groups in the dump contradict it or settle it alone."""
    unnamed = [dump for dump in evidence.dumps if dump.rank is None]
    varying = ranks_by_varying_number(dump.path for dump in unnamed)
    for dump in unnamed:
        dump.rank = varying.get(dump.path)
    for dump in evidence.dumps:
        own = [set(ranks) for ranks in dump.configured.values() if ranks]
        possible = set.intersection(*own) if own else set()
        if len(possible) == 1 and dump.rank not in possible:
            # Every listed group holds the process itself: a single common rank is the process.
            (dump.rank,) = possible
        elif possible and dump.rank is not None and dump.rank not in possible:
            evidence.unreadable.append(
                Unreadable(dump.path, f"is named for rank {dump.rank}, which is in none of its process groups")
            )
            dump.rank = None
        elif dump.rank is None:
            evidence.unreadable.append(Unreadable(dump.path, "neither its name nor its process groups tell its rank"))
    ranks = {dump.path: dump.rank for dump in evidence.dumps}
    evidence.files = [
        EvidenceFile(path=f.path, kind=f.kind, rank=ranks.get(f.path, f.rank), operations=f.operations, facts=f.facts)
        for f in evidence.files
    ]
