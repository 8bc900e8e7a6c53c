"""Write a large trace in the format of divtrace for measurements.

    python benchmarks/gen_trace.py OUT --ranks 8 --attn-tp 2 --requests 64 --rounds 400

Six events a request and round (draft, plan, layout, target, accept, commit) and three a step (batch, launch, one
collective): greedy chains whose arithmetic satisfies every invariant. Slots differ between ranks, as they may.

With --fault-round the last rank of the first group flips the deciding target token of one request in that round: its
bonus and next root differ with it, nothing else. With --fork-round the last rank of every group goes its own way from
that round on: first the targets, then accepted lengths, tokens and positions; each rank's own arithmetic holds.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DRAFTS = 4
VOCABULARY = 150_000
META = {
    "kind": "meta",
    "format": "divtrace.trace/1",
    "run": "bench",
    "algorithm": "EAGLE3",
    "device": "cuda",
    "backend": "nccl",
    "engine": {"name": "bench", "version": "0"},
    "dropped": 0,
}
SHUFFLED_LINES = 50_000
"""Lines that are shuffled at a time."""


@dataclass(frozen=True)
class Plan:
    """What to write; see the options of the command."""

    ranks: int = 8
    attn_tp: int = 2
    requests: int = 64
    rounds: int = 400
    fault_round: int | None = None
    fork_round: int | None = None
    fork_requests: int | None = None
    """Requests of each group that fork; None for all."""

    @property
    def parallel(self) -> dict[str, object]:
        """Of the meta record."""
        return {
            "tp_size": self.ranks,
            "dp_size": self.ranks // self.attn_tp,
            "enable_dp_attention": self.ranks > self.attn_tp,
            "attn_cp_size": 1,
            "pp_size": 1,
            "ep_size": 1,
        }

    def group(self, rank: int) -> list[int]:
        """The attn_tp group of a rank."""
        first = rank // self.attn_tp * self.attn_tp
        return list(range(first, first + self.attn_tp))


@dataclass
class Request:
    """Where one request stands on one rank."""

    id: str
    length: int
    root: int


class RankWriter:
    """Writes the lines of one rank. All ranks of a group draw the same numbers, so they agree by construction."""

    def __init__(self, plan: Plan, rank: int) -> None:
        self._plan, self._rank, self._group = plan, rank, plan.group(rank)
        self._shared, self._own = random.Random(self._group[0]), random.Random(1000 + rank)
        draw = self._shared.randrange
        lengths = [draw(100, 2000) for _ in range(plan.requests)]
        roots = [draw(VOCABULARY) for _ in range(plan.requests)]
        self._requests = [
            Request(f"g{self._group[0]}-req-{i:05d}", length, root)
            for i, (length, root) in enumerate(zip(lengths, roots, strict=True))
        ]
        self._fork_requests = plan.requests if plan.fork_requests is None else plan.fork_requests
        self._next_slot = 17 * rank
        self._seq = 0

    def lines(self) -> Iterator[str]:
        """The meta record, one piece of text for every round, and the record that closes the trace."""
        yield _compact(META | {"rank": self._rank, "parallel": self._plan.parallel})
        for number in range(1, self._plan.rounds + 1):
            yield "\n".join(f'{{"rank":{self._rank},"seq":{self._seq_of()},{event}}}' for event in self._step(number))
        yield f'{{"rank":{self._rank},"seq":{self._seq},"stage":"host","site":"end"}}'

    @property
    def events(self) -> int:
        """Events written so far; with the closing record once that is written."""
        return self._seq

    def _seq_of(self) -> int:
        self._seq += 1
        return self._seq - 1

    def _step(self, number: int) -> Iterator[str]:
        at = f'"ts":{1_700_000_000_000_000_000 + number * 20_000_000 + self._rank * 1000},"step":{number}'
        count = self._plan.requests
        batch = _compact([request.id for request in self._requests])
        yield (f'{at},"stage":"schedule","site":"batch","forward_mode":"decode","batch":{batch},"batch_size":{count}')
        for row, request in enumerate(self._requests):
            yield from self._round(at, number, row, request)
        rows = count * (DRAFTS + 1)
        yield (f'{at},"stage":"verify","site":"launch","num_tokens":{rows},"padded_tokens":{rows},"graph":"{rows}"')
        yield (
            f'{at},"stage":"collective","site":"lm-head","comm":"attn_tp","comm_ranks":{_compact(self._group)},'
            f'"comm_seq":{number},"op":"all_gather","numel":{rows * 1024},"dtype":"bf16","state":"completed"'
        )

    def _round(self, at: str, number: int, row: int, request: Request) -> Iterator[str]:
        drafts, correct, target = self._decide(number, row)
        length, bonus = request.length, target[correct]
        positions = _compact(list(range(length, length + DRAFTS + 1)))
        slots = _compact(list(range(self._next_slot, self._next_slot + DRAFTS + 1)))
        self._next_slot += DRAFTS + 1
        key = f'{at},"req":"{request.id}","round":{number}'
        yield (
            f'{key},"stage":"draft","site":"eagle-draft","draft_root":{request.root},'
            f'"draft_tokens":{_compact(drafts)},"draft_steps":{DRAFTS},"num_draft_tokens":{DRAFTS + 1}'
        )
        yield f'{key},"stage":"verify","site":"plan","verify_len":{DRAFTS + 1},"verify_budget":-1'
        yield (
            f'{key},"stage":"verify","site":"layout","row":{row},"seq_len":{length},"positions":{positions},'
            f'"kv_slots":{slots},"kv_positions":{positions}'
        )
        yield f'{key},"stage":"verify","site":"target","branch":"greedy","target_tokens":{_compact(target)}'
        yield (
            f'{key},"stage":"accept","site":"eagle-greedy","branch":"greedy","correct_len":{correct},'
            f'"bonus":{bonus},"accept_path":{_compact(list(range(correct + 1)))}'
        )
        request.length, request.root = length + correct + 1, bonus
        yield (
            f'{key},"stage":"commit","site":"commit","commit_len":{correct + 1},"seq_len":{length},'
            f'"new_seq_len":{request.length},"out_tokens":{_compact([*drafts[:correct], bonus])},"finished":""'
        )

    def _decide(self, number: int, row: int) -> tuple[list[int], int, list[int]]:
        """Drafts, accepted drafts, and the target's tokens of one round."""
        plan = self._plan
        last = self._rank == self._group[-1]
        drafts, correct, target = _drawn(self._shared, None)
        if plan.fork_round is not None and number >= plan.fork_round and last and row < self._fork_requests:
            return _drawn(self._own, drafts if number == plan.fork_round else None)
        if plan.fault_round == number and last and row == plan.requests // 2 and self._group[0] == 0:
            target[correct] += VOCABULARY
        return drafts, correct, target


def _drawn(numbers: random.Random, drafts: list[int] | None) -> tuple[list[int], int, list[int]]:
    draw = numbers.randrange
    drafts = [draw(VOCABULARY) for _ in range(DRAFTS)] if drafts is None else drafts
    correct = draw(DRAFTS + 1)
    tail = [draw(VOCABULARY) for _ in range(DRAFTS + 1 - correct)]
    if correct < DRAFTS and tail[0] == drafts[correct]:
        tail[0] += VOCABULARY
    return drafts, correct, drafts[:correct] + tail


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def shuffle(path: Path) -> None:
    """Put the lines behind the meta record in another order, without holding the file."""
    numbers = random.Random(path.name)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        pieces: list[Path] = []
        with path.open("rb") as lines:
            first = lines.readline()
            while piece := list(itertools.islice(lines, SHUFFLED_LINES)):
                numbers.shuffle(piece)
                pieces.append(Path(folder) / str(len(pieces)))
                pieces[-1].write_bytes(b"".join(piece))
        numbers.shuffle(pieces)
        with path.open("wb") as out:
            out.write(first)
            for part in pieces:
                with part.open("rb") as content:
                    shutil.copyfileobj(content, out, 1 << 20)


def compress(path: Path, how: str) -> None:
    """Replace a file by its `gzip` or `zstd` form."""
    with path.open("rb") as content:
        if how == "gzip":
            with gzip.open(f"{path}.gz", "wb", compresslevel=1) as out:
                shutil.copyfileobj(content, out, 1 << 20)
        else:
            import zstandard

            with Path(f"{path}.zst").open("wb") as packed:
                zstandard.ZstdCompressor().copy_stream(content, packed)
    path.unlink()


def to_parquet(path: Path) -> None:
    """Replace a JSON Lines file by Parquet in the same order, written by a library that knows nothing of traces."""
    import polars as pl

    with path.open(encoding="utf-8") as lines:
        meta = lines.readline().strip()
    frame = pl.read_ndjson(path, infer_schema_length=None, ignore_errors=True)
    only_meta = json.loads(meta).keys() - {"rank"}
    frame = frame.filter(pl.col("kind").is_null()).drop([name for name in only_meta if name in frame.columns])
    frame.write_parquet(path.with_suffix(".parquet"), metadata={"divtrace.meta": meta}, row_group_size=1 << 17)
    path.unlink()


def generate(
    out: Path, plan: Plan, *, parquet: bool = False, unsorted: bool = False, compression: str | None = None
) -> int:
    """Write the files of all ranks to `out`, and return the number of events."""
    out.mkdir(parents=True, exist_ok=True)
    events = 0
    for rank in range(plan.ranks):
        path = out / f"rank{rank}.jsonl"
        writer = RankWriter(plan, rank)
        with path.open("w", encoding="utf-8", buffering=1 << 20) as file:
            file.writelines(f"{text}\n" for text in writer.lines())
        events += writer.events + 1
        if unsorted:
            shuffle(path)
        if parquet:
            to_parquet(path)
        elif compression is not None:
            compress(path, compression)
    return events


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--ranks", type=int, default=8, help="default 8")
    parser.add_argument("--attn-tp", type=int, default=2, help="ranks of one group, default 2")
    parser.add_argument("--requests", type=int, default=64, help="requests of one group, default 64")
    parser.add_argument("--rounds", type=int, default=400, help="default 400: 1.24 million events")
    parser.add_argument("--fault-round", type=int, help="one token differs in this round")
    parser.add_argument("--fork-round", type=int, help="one rank of each group goes its own way from this round on")
    parser.add_argument("--fork-requests", type=int, help="requests of each group that fork; all if not given")
    parser.add_argument("--unsorted", action="store_true", help="records in no order")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--parquet", action="store_true")
    form.add_argument("--compression", choices=["gzip", "zstd"])
    given = vars(parser.parse_args())
    out, parquet, unsorted, compression = (given.pop(name) for name in ("out", "parquet", "unsorted", "compression"))
    events = generate(out, Plan(**given), parquet=parquet, unsorted=unsorted, compression=compression)
    print(f"{events} events, {sum(file.stat().st_size for file in out.iterdir()) / 1e6:.1f} MB in {out}")


if __name__ == "__main__":
    main()
