"""Measure all figures of docs/performance.md and write them into its table.

    pip install -e ".[bench]"
    python benchmarks/run.py            # 7 runs of each command in turn, traces of 1.2 and 6.2 million events
    python benchmarks/run.py --full     # and one of 12 million events
    python benchmarks/run.py --quick    # small traces and 3 runs, to see whether it works; the page stays as it is
    python benchmarks/run.py --only jsonl startup

Traces are written to --work once and used again. What was measured before stays in the table where a section is not
measured anew, with its own date, version and load.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from figures import SECTIONS, Figure, Measuring, measured
from inputs import FULL, QUICK, USUAL, Inputs
from page import Section, section, table, write

import divtrace

RESULTS = "results.json"


def stored(path: Path) -> dict[str, Section]:
    """What earlier runs measured."""
    if not path.exists():
        return {}
    raw = json.loads(path.read_text(encoding="utf-8"))
    return {
        name: Section(**{**one, "figures": [Figure(**figure) for figure in one["figures"]]})
        for name, one in raw.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small traces, 3 runs, results to the screen only")
    size.add_argument("--full", action="store_true", help="with 12 million events: 2.6 GB, minutes to write")
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS), metavar="SECTION")
    parser.add_argument("--runs", type=int, help="of each command, in turn (default 7)")
    parser.add_argument("--limit", type=float, default=600, help="seconds after which a command is given up")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "divtrace-bench")
    given = parser.parse_args()
    runs = given.runs or (3 if given.quick else 7)
    sizes = QUICK if given.quick else FULL if given.full else USUAL
    given.work.mkdir(parents=True, exist_ok=True)
    # As `pip install` does; a checkout may never have been, and then every start would measure the compiler.
    compileall.compile_dir(Path(divtrace.__file__).parent, quiet=1)
    measuring = Measuring(Inputs(given.work, sizes), runs, given.limit)
    results = {} if given.quick else stored(given.work / RESULTS)
    for name in given.only:
        load = os.getloadavg()[0]
        results[name] = section(measured(name, measuring), runs, load)
        for figure in results[name].figures:
            value = "not measured" if figure.value is None else f"{figure.value:.2f} {figure.unit}"
            print(f"{name:16}{figure.what:62}{value:>14}  {figure.detail}", flush=True)
        if not given.quick:
            kept = {key: asdict(replace(one, figures=list(one.figures))) for key, one in results.items()}
            (given.work / RESULTS).write_text(json.dumps(kept, indent=1), encoding="utf-8")
    if given.quick:
        return
    write(table([results[name] for name in SECTIONS if name in results]))
    print("written to docs/performance.md", file=sys.stderr)


if __name__ == "__main__":
    main()
