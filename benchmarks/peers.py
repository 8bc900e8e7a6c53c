"""What else could do the comparison, and the floor under it, measured on the same files in one run.

    python benchmarks/peers.py DIR [--cmd "divtrace analyze {dir} --format json --jobs 1"] [--runs 7]

DIR holds rank*.jsonl or rank*.parquet of gen_trace.py. Runs the command and the contenders in turn, and prints for each
the median CPU seconds (user and system, children included), wall seconds and peak memory (of the largest process), and
the median of the pairwise CPU ratio of the command to it. Contenders:

- decode: the floor. Decode every line with msgspec, or every compared column with pyarrow, and do nothing.
- duckdb: one SQL statement, on one thread, that groups by key and counts distinct values.
- script: the loop that a person writes: json, a dict of keys, ==.
- polars: group_by.

None of them finds an origin, classifies, checks invariants or explains: they only tell whether anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from measure import Command, CommandError, Runs, in_turn


def _words(text: str) -> list[str]:
    return text.split()


INTEGERS = _words(
    "rank seq ts step round correct_len bonus commit_len seq_len new_seq_len row verify_len verify_budget draft_root "
    "draft_steps num_draft_tokens num_tokens padded_tokens batch_size comm_seq numel"
)
TEXTS = _words("kind req stage site branch finished forward_mode graph comm op state dtype")
LISTS = _words("draft_tokens target_tokens out_tokens accept_path positions kv_positions kv_slots comm_ranks")
COMPARED = _words(
    "draft_root draft_tokens target_tokens out_tokens draft_steps num_draft_tokens verify_len verify_budget branch "
    "accept_path correct_len bonus commit_len finished forward_mode batch row seq_len new_seq_len positions "
    "kv_positions num_tokens padded_tokens batch_size graph"
)
KEY = _words("step req round stage site")
OTHERS = _words("rank seq kv_slots comm comm_ranks comm_seq op numel dtype state")
WIDTH = int(os.environ.get("ATTN_TP", "2"))
"""Ranks of one attn_tp group."""


def files(folder: Path, suffix: str) -> list[Path]:
    """The traces of one format."""
    return sorted(folder.glob(f"*.{suffix}"))


def decode(folder: Path) -> str:
    """Decode what an analysis needs."""
    count = 0
    if traces := files(folder, "jsonl"):
        import msgspec

        fields: list[tuple[str, object, None]] = [(name, int | None, None) for name in INTEGERS]
        fields += [(name, str | None, None) for name in TEXTS]
        fields += [(name, list[int] | None, None) for name in LISTS]
        fields.append(("batch", list[str] | None, None))
        line = msgspec.json.Decoder(msgspec.defstruct("Line", fields, gc=False)).decode
        for path in traces:
            with path.open("rb") as lines:
                count += sum(1 for _ in map(line, lines))
    else:
        import pyarrow.parquet as pq

        for path in files(folder, "parquet"):
            source = pq.ParquetFile(path)
            columns = [name for name in (*OTHERS, *KEY, *COMPARED) if name in source.schema_arrow.names]
            count += sum(batch.num_rows for batch in source.iter_batches(batch_size=1 << 16, columns=columns))
    return f"{count} records"


def duckdb(folder: Path) -> str:
    """Compare with one SQL statement."""
    import duckdb as library

    connection = library.connect(config={"threads": 1})
    if files(folder, "jsonl"):
        table = f"read_json('{folder}/*.jsonl', format='newline_delimited', union_by_name=true)"
    else:
        table = f"read_parquet('{folder}/*.parquet', union_by_name=true)"
    columns = {row[0] for row in connection.sql(f"describe select * from {table}").fetchall()}
    values = ", ".join(f'"{name}"' for name in COMPARED if name in columns)
    rows = connection.sql(
        f"""select count(*) from (
            select rank // {WIDTH} g, step, req, round, stage, site, count(*) n, count(distinct hash({values})) v
            from {table} where stage is not null and stage not in ('host', 'collective')
            group by all having n <> {WIDTH} or v <> 1)"""
    ).fetchall()
    return f"{rows[0][0]} keys that differ"


def script(folder: Path) -> str:
    """Compare as a person would in ten minutes."""
    seen: dict[tuple[object, ...], list[object]] = {}
    bad = 0
    for path in files(folder, "jsonl"):
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                event = json.loads(line)
                if "stage" not in event or event["stage"] in ("host", "collective"):
                    continue
                key = (event["rank"] // WIDTH, *[event.get(name) for name in KEY])
                value = [event.get(name) for name in COMPARED]
                bad += seen.setdefault(key, value) != value
    return f"{bad} keys that differ"


def polars(folder: Path) -> str:
    """Compare with a group_by."""
    import polars as pl

    if traces := files(folder, "jsonl"):
        frames = [pl.scan_ndjson(path, infer_schema_length=2000) for path in traces]
        frame = pl.concat(frames, how="diagonal_relaxed")
    else:
        frame = pl.scan_parquet(f"{folder}/*.parquet")
    columns = [name for name in COMPARED if name in frame.collect_schema().names()]
    groups = frame.filter(~pl.col("stage").is_in(["host", "collective"])).group_by(pl.col("rank") // WIDTH, *KEY)
    counted = groups.agg(pl.len().alias("n"), pl.struct(columns).hash().n_unique().alias("v"))
    differing = counted.filter((pl.col("n") != WIDTH) | (pl.col("v") != 1)).select(pl.len())
    return f"{differing.collect(engine='streaming').item()} keys that differ"


CONTENDERS: dict[str, Callable[[Path], str]] = {
    "decode": decode,
    "duckdb": duckdb,
    "script": script,
    "polars": polars,
}


def contender(name: str, folder: Path) -> Command:
    """The command line that runs one contender in a process of its own."""
    return [sys.executable, __file__, name, str(folder)]


def compare(command: Command, folder: Path, names: list[str], runs: int, statuses: tuple[int, ...] = (0,)) -> Runs:
    """Measure the command (as "command") and the contenders in turn."""
    commands = {"command": command, **{name: contender(name, folder) for name in names}}
    return in_turn(commands, runs, allowed={"command": statuses})


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] in CONTENDERS:
        print(CONTENDERS[sys.argv[1]](Path(sys.argv[2])))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path, help="folder with rank*.jsonl or rank*.parquet of gen_trace.py")
    parser.add_argument("--cmd", default="divtrace analyze {dir} --format json --jobs 1", help="what to measure")
    parser.add_argument("--runs", type=int, default=7, help="of each, in turn (default 7)")
    parser.add_argument("--only", nargs="*", default=list(CONTENDERS), choices=list(CONTENDERS))
    given = parser.parse_args()
    if not (files(given.dir, "jsonl") or files(given.dir, "parquet")):
        sys.exit(f"{given.dir}: no rank*.jsonl or rank*.parquet; make some with gen_trace.py")
    command = shlex.split(given.cmd.format(dir=given.dir))
    if not shutil.which(command[0]):
        sys.exit(f"{command[0]}: not found; install it or give --cmd")
    names = [name for name in given.only if name != "script" or files(given.dir, "jsonl")]
    try:
        measured = compare(command, given.dir, names, given.runs, (0, 1, 3))
    except CommandError as error:
        sys.exit(str(error))
    for name in ("command", *names):
        cpu, wall, peak = (measured.median(name, what) for what in ("cpu", "wall", "peak"))
        ratio, said = measured.ratio("command", name), measured.samples[name][-1].said
        took = f"cpu {cpu:7.2f} s  wall {wall:7.2f} s  peak {peak:6.0f} MiB"
        print(f"{name:8} {took}  command/this {ratio:5.2f}  {said[:60]}")


if __name__ == "__main__":
    main()
