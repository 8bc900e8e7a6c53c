"""`--profile`: where the time went, as a table for standard error."""

from __future__ import annotations

from collections.abc import Iterator

from divtrace.timing import Cost, Profile

_HEAD = ("stage", "wall s", "CPU s", "events", "events/s", "peak MiB")


def profile_lines(profile: Profile) -> list[str]:
    """One line for every stage and part that ran, one for the time between them, and one for all of it.

    The processor time of all stages includes that of worker processes. Peak memory is that of the one process that ran
    the stage, since that process began.
    """
    rows = [_HEAD, *_rows(profile)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    return [
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _rows(profile: Profile) -> Iterator[tuple[str, ...]]:
    whole = profile.clock.cost()
    inside = wall = 0
    for stage in profile.stages.values():
        yield _row(stage.name, stage.cost)
        for name, part in stage.parts.items():
            yield _row(f"  {name}", part)
        wall += stage.cost.wall
        inside += stage.cost.cpu
        whole.cpu += sum(part.cpu for part in stage.parts.values() if part.process != whole.process)
        whole.events = max(whole.events, stage.cost.events)
        whole.peak = max(whole.peak, stage.cost.peak, *(part.peak for part in stage.parts.values()), 0)
    yield _row("other", Cost(max(0, whole.wall - wall), max(0, whole.cpu - inside)))
    yield _row("all", whole)


def _row(name: str, cost: Cost) -> tuple[str, ...]:
    events = f"{cost.events:,}" if cost.events else ""
    rate = f"{cost.events * 10**9 // cost.wall:,}" if cost.events and cost.wall else ""
    peak = f"{cost.peak / 2**20:.0f}" if cost.peak else ""
    return name, f"{cost.wall / 10**9:.2f}", f"{cost.cpu / 10**9:.2f}", events, rate, peak
