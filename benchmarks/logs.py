"""divtrace on large logs, beside grep with the same literals.

    python benchmarks/logs.py [DIR] [--bytes 1000000000] [--runs 3]

Writes a log in which no line matches and one in which every line is a timeout of its own, in DIR (default: the
system's temporary folder), and prints the processor time and wall time of `divtrace analyze` and of
`LC_ALL=C grep -c -F -f` with all literals that divtrace looks for, taken in turn.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from measure import CommandError, in_turn

LINES = 20_000
"""Lines written at once."""


def no_match(i: int) -> str:
    """A line of a healthy server."""
    return (
        f"[2026-08-01 10:{i // 60 % 60:02d}:{i % 60:02d} TP{i % 8}] Decode batch. #running-req: {i % 97}, #token: "
        f"{i * 31 % 99991}, token usage: 0.{i % 90:02d}, accept len: {1 + i % 4}.{i % 10}, gen throughput (token/s): "
        f"{1000 + i % 777}.{i % 100:02d}, #queue-req: {i % 5}\n"
    )


def a_match(i: int) -> str:
    """A timeout; no two lines are alike."""
    return (
        f"[rank{i % 8}]:[E714 23:{i // 60 % 60:02d}:{i % 60:02d}.{i % 1_000_000:09d} ProcessGroupNCCL.cpp:685] "
        f"[Rank {i % 8}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={i}, OpType=ALLREDUCE, "
        f"NumelIn={i % 4096}, NumelOut={i % 4096}, Timeout(ms)=600000) ran for {600_000 + i % 999} milliseconds before "
        "timing out.\n"
    )


def write(path: Path, line: Callable[[int], str], size: int) -> None:
    """Write lines until the file has at least `size` bytes."""
    written = start = 0
    with path.open("w", encoding="ascii") as file:
        while written < size:
            block = "".join(map(line, range(start, start + LINES)))
            start += LINES
            written += len(block)
            file.write(block)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", nargs="?", type=Path, help="where to write the logs")
    parser.add_argument("--cmd", default="divtrace", help="divtrace (default: divtrace)")
    parser.add_argument("--bytes", type=int, default=1_000_000_000)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    from divtrace.evidence.logs.registry import LITERALS

    os.environ["LC_ALL"] = "C"
    with tempfile.TemporaryDirectory(dir=args.dir) as temporary:
        literals = Path(temporary) / "literals"
        literals.write_text("".join(f"{literal}\n" for literal in LITERALS), encoding="ascii")
        for name, line in (("no line matches", no_match), ("every line matches", a_match)):
            folder = Path(temporary) / "run"
            folder.mkdir()
            write(folder / "server.log", line, args.bytes)
            commands = {
                "divtrace": [args.cmd, "analyze", str(folder), "--format", "json"],
                "grep": ["grep", "-c", "-F", "-f", str(literals), str(folder / "server.log")],
            }
            try:
                runs = in_turn(commands, args.runs, allowed={"divtrace": (2, 3), "grep": (0, 1)}, limit=1800)
            except CommandError as error:
                sys.exit(str(error))
            print(f"{name}: {args.bytes} bytes, {len(LITERALS)} literals")
            for tool in commands:
                figures = (runs.median(tool), runs.median(tool, "wall"), runs.median(tool, "peak"))
                print(f"  {tool:8} {figures[0]:8.2f} s cpu {figures[1]:8.2f} s wall {figures[2]:8.0f} MiB")
            for what in ("cpu", "wall"):
                print(f"  divtrace takes {runs.ratio('divtrace', 'grep', what):.1f} times the {what} time of grep")
            (folder / "server.log").unlink()
            folder.rmdir()


if __name__ == "__main__":
    main()
