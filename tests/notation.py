"""A small notation for traces, one line per round, for tests that a person can read.

    ranks 0-1
    meta tp_size=2 algorithm=EAGLE
    5 -    schedule batch=A,B
    5 A.3  draft draft_tokens=5,6,7; verify target_tokens=5,6,9,1; accept correct_len=2 bonus=9 | 1: bonus=8
    5 -    collective comm=tp comm_seq=4 op=all_reduce numel=14 | 1: -
    6 A+1.0 prefill bonus=3
    6 -    host/end

A line is a step (or `-`), a key, and events parted by `;`. The key is `-` for batch-level events, `A` for a request,
`A.3` with a round, `A+1.3` with an attempt. An event is `stage`, `stage/site`, `stage/site:phase` or
`stage/site:phase#n`, then `field=value`.

A line holds for all ranks; behind `|` some ranks differ: `1: bonus=8` (in every event of the line that has the field,
else in the last one), `1: -` (they never had these events) or `2-3: lost` (they had them, and the records are gone: a
gap in `seq`). `#` at the beginning of a line makes a comment.

Lists are written with commas; `null` is null; JSON is taken as it is where it begins with `[`, `{` or `"`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from divtrace.events import FIELD

Record = dict[str, Any]
DEFAULT_SITES = {
    "init": "init",
    "schedule": "batch",
    "prefill": "target",
    "draft": "draft",
    "verify": "target",
    "accept": "accept",
    "commit": "commit",
    "collective": "target",
    "host": "heartbeat",
}
PARALLEL = {"tp_size", "dp_size", "enable_dp_attention", "attn_dp_size", "attn_cp_size", "pp_size", "ep_size"}


@dataclass
class Traces:
    """Metas and events by rank."""

    ranks: list[int] = field(default_factory=lambda: [0, 1])
    metas: dict[int, Record] = field(default_factory=dict)
    events: dict[int, list[Record]] = field(default_factory=dict)
    _next: dict[int, int] = field(default_factory=dict)

    def lines(self, rank: int) -> list[Record]:
        """The meta, if there is one, and the events of a rank."""
        meta = [self.metas[rank]] if rank in self.metas else []
        return meta + self.events.get(rank, [])

    def add(self, rank: int, record: Record, lost: bool = False) -> None:
        seq = self._next.get(rank, 0)
        self._next[rank] = seq + 1
        if not lost:
            self.events.setdefault(rank, []).append({"rank": rank, "seq": seq, **record})


def parse(text: str) -> Traces:
    """Reads the notation. Raises ValueError with the line that makes no sense."""
    traces = Traces()
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        try:
            _read_line(traces, line)
        except (ValueError, IndexError, KeyError) as error:
            raise ValueError(f"{line!r}: {error}") from error
    return traces


def write_trace(folder: Path, text: str) -> Path:
    """Writes `rank0.jsonl` and so on into `folder` and returns the folder."""
    traces = parse(text)
    folder.mkdir(parents=True, exist_ok=True)
    for rank in traces.ranks:
        content = "".join(json.dumps(record) + "\n" for record in traces.lines(rank))
        (folder / f"rank{rank}.jsonl").write_text(content, encoding="utf-8")
    return folder


def ranks_of(text: str) -> list[int]:
    """`0-2,5` as numbers."""
    ranks: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        ranks += range(int(first), int(last or first) + 1)
    return ranks


def _read_line(traces: Traces, line: str) -> None:
    common, *variants = [part.strip() for part in line.split("|")]
    changes = {rank: words for variant in variants for rank, words in _variant(variant)}
    head, _, rest = common.partition(" ")
    if head == "ranks":
        traces.ranks = ranks_of(rest)
    elif head == "meta":
        for rank in traces.ranks:
            words = f"{rest} {changes.get(rank, '')}".split()
            traces.metas[rank] = _meta(rank, dict(word.split("=", 1) for word in words))
    else:
        key, _, events = rest.strip().partition(" ")
        for rank in traces.ranks:
            _add_events(traces, rank, _identity(head, key), events.split(";"), changes.get(rank, ""))


def _variant(text: str) -> list[tuple[int, str]]:
    ranks, colon, words = text.partition(":")
    if not colon:
        raise ValueError("behind | stand ranks, a colon and what they have instead")
    return [(rank, words.strip()) for rank in ranks_of(ranks)]


def _meta(rank: int, words: dict[str, str]) -> Record:
    meta: Record = {"kind": "meta", "format": "divtrace.trace/1", "rank": rank}
    for name, text in words.items():
        value = _plain(text)
        if name in PARALLEL:
            meta.setdefault("parallel", {})[name] = value
        else:
            meta[name] = value
    return meta


def _identity(step: str, key: str) -> Record:
    identity: Record = {} if step == "-" else {"step": int(step)}
    if key == "-":
        return identity
    name, dot, number = key.rpartition(".")
    if not dot:
        name = key
    name, plus, attempt = name.partition("+")
    identity["req"] = name
    if plus:
        identity["attempt"] = int(attempt)
    if dot:
        identity["round"] = int(number)
    return identity


def _add_events(traces: Traces, rank: int, identity: Record, events: list[str], change: str) -> None:
    if change == "-":
        return
    records = [identity | _event(text) for text in events]
    changed = {} if change == "lost" else dict(word.split("=", 1) for word in change.split())
    for name, text in changed.items():
        having = [record for record in records if name in record] or records[-1:]
        for record in having:
            record[name] = _value(name, text)
    for record in records:
        traces.add(rank, record, lost=change == "lost")


def _event(text: str) -> Record:
    place, *words = text.split()
    place, hash_sign, number = place.partition("#")
    place, colon, phase = place.partition(":")
    stage, _, site = place.partition("/")
    record: Record = {"stage": stage, "site": site or DEFAULT_SITES[stage]}
    if colon:
        record["phase"] = phase
    if hash_sign:
        record["n"] = int(number)
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"{word!r} is no field=value")
        record[name] = _value(name, value)
    return record


def _value(name: str, text: str) -> Any:
    if text == "null" or text[:1] in ("[", "{", '"'):
        return json.loads(text)
    kind = FIELD[name].type
    if kind == "[int]":
        return [int(item) for item in text.split(",") if item]
    if kind == "[str]":
        return [item for item in text.split(",") if item]
    return text if kind == "str" else json.loads(text)


def _plain(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
