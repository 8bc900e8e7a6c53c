"""PyTorch's own analyser of flight-recorder dumps and divtrace, side by side.

    python benchmarks/torchfrtrace.py DIR --torch /path/to/venv/bin/torchfrtrace
    python benchmarks/torchfrtrace.py --scale --ranks 64 --entries 8000 --torch ...

The first looks for sets of dumps below DIR (pickles, one for each rank, in one folder), has both analyse each set in
two orders of the files, and prints what either says. The second writes dumps of that many ranks and entries, in
which one rank lacks the last operation of its group, and prints the processor time, wall time and peak memory of
both; --ours measures divtrace alone, for sizes that torchfrtrace does not finish. torch is needed for this comparison
only (`pip install torch==2.13.0` in an environment of its own).
"""

from __future__ import annotations

import argparse
import json
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measure import CommandError, in_turn

RANK = re.compile(r"_(\d+)$")
PREFIX = "trace_rank_"
LIMIT = 300
START = 1_790_000_000_000_000_000
MOST_LINES = 6


def sets(folder: Path) -> Iterator[tuple[str, dict[int, Path]]]:
    """Folders that hold dumps, with the dump of each rank."""
    for place in sorted({path.parent for path in folder.rglob("*") if RANK.search(path.name)}):
        dumps = {int(found[1]): path for path in place.iterdir() if (found := RANK.search(path.name))}
        yield str(place.relative_to(folder)), dict(sorted(dumps.items()))


def torch_says(command: str, folder: Path) -> str:
    """What torchfrtrace says of the dumps in a folder, without the lines that only tell of its progress."""
    run = subprocess.run(
        [command, str(folder), "-p", PREFIX], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    said = [line.strip() for line in (run.stdout + run.stderr).splitlines() if line.strip()]
    if run.returncode:
        return f"exit {run.returncode}: {said[-1]}"
    told = [
        line for line in said if re.search(r"mismatch|not all ranks|missing|culprit|cannot decide|too many", line, re.I)
    ]
    more = f"\n  and {len(told) - MOST_LINES} more lines" if len(told) > MOST_LINES else ""
    return "\n  ".join(line[:240] for line in told[:MOST_LINES]) + more if told else "nothing"


def divtrace_says(command: str, folder: Path) -> str:
    """The verdict, who is behind, the cycle, and the first finding."""
    run = subprocess.run(
        [command, "analyze", str(folder), "--format", "json"],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    if not run.stdout:
        return f"exit {run.returncode}: {run.stderr.strip()}"
    report = json.loads(run.stdout)
    parts = [report["verdict"]]
    progress = {name: ranks for name, ranks in report["progress"].items() if ranks and name != "waits"}
    parts += [f"{name} {ranks}" for name, ranks in progress.items()]
    if report["first"]:
        first = report["first"]
        parts.append(f"{first['rule']} at {first['comm']} #{first['comm_seq']}, odd ranks {first['odd_ranks']}")
    return "; ".join(parts)


def compare(folder: Path, torch: str, ours: str) -> None:
    for name, dumps in sets(folder):
        print(f"== {name} ({len(dumps)} dumps)")
        said: dict[str, list[str]] = {"torchfrtrace": [], "divtrace": []}
        for backwards in (False, True):
            with tempfile.TemporaryDirectory() as temporary:
                # torchfrtrace takes files in the order in which the folder lists them.
                for rank, path in sorted(dumps.items(), reverse=backwards):
                    shutil.copy(path, Path(temporary) / f"{PREFIX}{rank}")
                try:
                    said["torchfrtrace"].append(torch_says(torch, Path(temporary)))
                except subprocess.TimeoutExpired:
                    said["torchfrtrace"].append(f"nothing within {LIMIT} s")
                said["divtrace"].append(divtrace_says(ours, Path(temporary)))
        for tool, (forwards, backwards_too) in said.items():
            print(f" {tool}:\n  {forwards}")
            if backwards_too != forwards:
                print(f" {tool}, files the other way round:\n  {backwards_too}")


def dump(rank: int, ranks: int, entries: int) -> dict[str, Any]:
    """Three operations of a group of four, one of all ranks, and so on; rank 5 lacks its last one."""
    mine = rank // 4
    groups = {"0": ("default_pg", list(range(ranks)))}
    groups[str(1 + mine)] = (f"attn_tp_{mine}", list(range(4 * mine, min(4 * mine + 4, ranks))))
    counters = dict.fromkeys(groups, 0)
    count = entries - 1 if rank == 5 else entries
    rows = []
    for record in range(count):
        name = "0" if record % 4 == 3 else str(1 + mine)
        counters[name] += 1
        done = record < entries - 1
        operation = ("all_reduce", "broadcast", "_all_gather_base", "all_reduce")[record % 4]
        gathered = [8 * 4, 64] if operation == "_all_gather_base" else [8, 64]
        rows.append(
            {
                "frames": [{"name": "forward", "filename": "/srv/engine/model.py", "line": 210 + record % 9}],
                "record_id": record,
                "pg_id": 0 if name == "0" else 1,
                "process_group": (name, groups[name][0]),
                "collective_seq_id": counters[name],
                "p2p_seq_id": 0,
                "op_id": counters[name],
                "profiling_name": f"nccl:{operation}",
                "time_created_ns": START + record * 1_000_000,
                "duration_ms": 0.25,
                "input_sizes": [[8, 64]],
                "input_dtypes": ["BFloat16"],
                "output_sizes": [gathered],
                "output_dtypes": ["BFloat16"],
                "state": "completed" if done else "scheduled",
                "time_discovered_started_ns": START + record * 1_000_000 + 10 if done else None,
                "time_discovered_completed_ns": START + record * 1_000_000 + 90 if done else None,
                "retired": done,
                "timeout_ms": 600_000,
                "is_p2p": False,
            }
        )
    return {
        "version": "2.9",
        "nccl_version": "2.28.9",
        "pg_config": {
            name: {"name": name, "desc": desc, "ranks": str(members)} for name, (desc, members) in groups.items()
        },
        "pg_status": {},
        "entries": rows,
    }


def scale(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(dir=args.dir) as temporary:
        for rank in range(args.ranks):
            with (Path(temporary) / f"{PREFIX}{rank}").open("wb") as file:
                # The last entry has to be one of the group of four, so that rank 5 lacks an operation of it.
                pickle.dump(
                    dump(rank, args.ranks, args.entries - 1 if args.entries % 4 == 0 else args.entries), file, 2
                )
        commands: dict[str, list[str]] = {"divtrace": [args.cmd, "analyze", temporary, "--format", "json"]}
        if not args.ours:
            commands["torchfrtrace"] = [args.torch, temporary, "-p", PREFIX]
        print(f"{args.ranks} ranks x {args.entries} entries; divtrace: {divtrace_says(args.cmd, Path(temporary))}")
        try:
            runs = in_turn(commands, args.runs, allowed={"divtrace": (0, 1, 3), "torchfrtrace": (0, 1)}, limit=1800)
        except CommandError as error:
            sys.exit(str(error))
        for name in commands:
            figures = (runs.median(name), runs.median(name, "wall"), runs.median(name, "peak"))
            print(f"{name:14} {figures[0]:8.2f} s cpu {figures[1]:8.2f} s wall {figures[2]:8.0f} MiB")
        if not args.ours:
            for what in ("cpu", "wall"):
                print(f"torchfrtrace takes {runs.ratio('torchfrtrace', 'divtrace', what):.1f} times the {what} time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", nargs="?", type=Path, help="sets of dumps; with --scale where to write them")
    parser.add_argument("--torch", default="torchfrtrace", help="torch's analyser (default: torchfrtrace)")
    parser.add_argument("--cmd", default="divtrace", help="divtrace (default: divtrace)")
    parser.add_argument("--scale", action="store_true", help="measure on synthetic dumps")
    parser.add_argument("--ours", action="store_true", help="with --scale: without torchfrtrace")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--entries", type=int, default=8000)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    if args.scale:
        scale(args)
    elif args.dir is None:
        parser.error("name a folder with sets of dumps, or --scale")
    else:
        compare(args.dir, args.torch, args.cmd)


if __name__ == "__main__":
    main()
