"""Measure the analysis of one trace with 1 and 2 workers, as processes and as Ray tasks: the figures of docs/scale.md.

    pip install -e ".[ray]"
    python benchmarks/gen_trace.py /tmp/clean
    python benchmarks/scale.py /tmp/clean --runs 3

The commands run in turn. Printed are the medians: seconds that Ray takes to start, wall of the analysis without that,
its ratio to one process, processor time of all workers, and the most memory that one of them held.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

from divtrace import analyze
from divtrace.api import Options
from divtrace.report.model import encode
from divtrace.sieve.cluster import connected
from divtrace.timing import collecting

KINDS = [("local", 1), ("local", 2), ("ray", 1), ("ray", 2)]


def one(folder: str, backend: str, jobs: int) -> dict[str, float | str]:
    """Measure one analysis in this process."""
    begin = time.perf_counter()
    options = Options(backend="ray" if backend == "ray" else "local", jobs=jobs)
    with connected("local", jobs) if backend == "ray" else nullcontext(), collecting() as profile:
        started = time.perf_counter()
        report = analyze(folder, options)
        ended = time.perf_counter()
    parts = profile.stages["sieve"].parts.values()
    return {
        "start": started - begin,
        "wall": ended - started,
        "cpu": sum(part.cpu for part in parts) / 1e9,
        "peak": max(part.peak for part in parts) / (1 << 20),
        "events": sum(part.events for part in parts),
        "report": encode(report).decode(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--one", nargs=2, metavar=("BACKEND", "JOBS"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one(str(given.folder), given.one[0], int(given.one[1]))))
        return
    measured: dict[tuple[str, int], list[dict[str, float]]] = {kind: [] for kind in KINDS}
    reports = set()
    load = os.getloadavg()[0]
    for _ in range(given.runs):
        for kind, results in measured.items():
            command = [sys.executable, __file__, str(given.folder), "--one", kind[0], str(kind[1])]
            result = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
            reports.add(result.pop("report"))
            results.append(result)
            print(kind, {name: round(value, 2) for name, value in result.items()}, file=sys.stderr, flush=True)
    base = statistics.median(result["wall"] for result in measured[KINDS[0]])
    print(f"load {load:.1f} before, {os.getloadavg()[0]:.1f} after; {len(reports)} different report(s)")
    print("| workers | start s | wall s | of one process | CPU s | peak MiB | events/s of CPU |")
    print("|---|---|---|---|---|---|---|")
    for (backend, jobs), results in measured.items():
        middle = {name: statistics.median(result[name] for result in results) for name in results[0]}
        print(
            f"| {backend}, {jobs} | {middle['start']:.1f} | {middle['wall']:.1f} | {middle['wall'] / base:.2f} "
            f"| {middle['cpu']:.1f} | {middle['peak']:.0f} | {middle['events'] / middle['cpu']:,.0f} |"
        )


if __name__ == "__main__":
    main()
