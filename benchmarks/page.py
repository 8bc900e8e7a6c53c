"""The table of figures in docs/performance.md, between two markers; the rest of that page is written by hand."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from figures import ROOT, Figure

PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
LIBRARIES = ("divtrace", "msgspec", "pyarrow", "polars", "duckdb", "typer")


@dataclass(frozen=True)
class Section:
    """What one section measured, and when."""

    figures: Sequence[Figure]
    date: str
    commit: str
    runs: int
    load: float
    """Processes that wanted a core in the minute before."""


def section(figures: Sequence[Figure], runs: int, load: float) -> Section:
    """Figures measured now."""
    now = datetime.datetime.now(datetime.UTC)
    return Section(figures, f"{now:%Y-%m-%d %H:%M} UTC", commit(), runs, load)


def commit() -> str:
    """The version that was measured, with a mark if files were changed since."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, encoding="utf-8", check=False
    )
    return described.stdout.strip() or "unknown"


def table(sections: Sequence[Section]) -> str:
    """The whole text between the markers."""
    return "\n".join([*_machine(), "", *_rows(sections)])


def _machine() -> Iterator[str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = ", ".join(f"{name} {_version(name)}" for name in LIBRARIES)
    system = f"{platform.system()} {platform.release()}"
    yield f"Machine: {_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB; {system}."
    yield f"Python {platform.python_version()}, {versions}."


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _rows(sections: Sequence[Section]) -> Iterator[str]:
    yield "| figure | target | measured | met | medians | runs | load | when, version |"
    yield "|---|---|---|---|---|---|---|---|"
    for one in sections:
        for figure in one.figures:
            cells = (
                figure.what,
                _target(figure),
                "not measured" if figure.value is None else _number(figure.value, figure.unit),
                {True: "yes", False: "**no**", None: ""}[figure.met],
                figure.detail,
                str(figure.runs or one.runs),
                f"{one.load:.1f}",
                f"{one.date}, {one.commit}",
            )
            yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _target(figure: Figure) -> str:
    if figure.target is None:
        return ""
    return ("under " if figure.below else "at most ") + _number(figure.target, figure.unit)


def _number(value: float, unit: str) -> str:
    if unit:
        return f"{value:.0f} {unit}"
    return f"{value:.0f}" if value == int(value) and value < 1 else f"{value:.2f}"


def write(text: str) -> None:
    """Put the text between the markers of the page; raises ValueError if it has none."""
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} lacks {BEGIN} or {END}")
    PAGE.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")
