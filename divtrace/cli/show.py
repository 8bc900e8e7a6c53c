"""`divtrace show`: what every rank recorded of a request, side by side."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

from divtrace.cli._console import console_for, wants_color
from divtrace.cli._files import document, is_stdout, write_answer
from divtrace.cli._options import Answer, Paths, Reading, ReplicaNumber, Request, Terminal, option, spelled_out
from divtrace.cli._text import line_width
from divtrace.exitcodes import ExitCode

if TYPE_CHECKING:
    from divtrace.output.shares import Share
    from divtrace.report.answers import Shown, ShownEvent

MOST_PLACES = 4
"""Ranks whose file and line are given, without -v."""
MOST_VALUES = 8
"""Distinct values of one field that are listed, without -v."""
NARROWEST_VALUE = 20

RoundNumber = Annotated[
    int | None, option("--round", help="Only this round; round 0 is the prefill.", metavar="K", min=0)
]


@spelled_out
def command(
    *,
    paths: Paths,
    req: Request,
    round_number: RoundNumber = None,
    replica: ReplicaNumber = None,
    reading: Reading,
    answer: Answer,
    terminal: Terminal,
) -> ExitCode:
    """Show the events of a request, or of one round, with the ranks side by side.

    Ranks that hold the same value share a line. A `!` marks the fields in which ranks that had to agree differ; other
    values, such as KV slots, may differ. Exits 0 if the request is there.
    """
    as_json = answer.as_json()
    from divtrace.api import show
    from divtrace.output.layout import finished

    console = console_for(terminal)
    with console.progress_bar(paths) as progress:
        shown = show(paths, req, reading.options(), round_number=round_number, replica=replica, progress=progress)
    if as_json:
        write_answer(answer.output, document(shown))
    else:
        color = wants_color(terminal.color, sys.stdout if is_stdout(answer.output) else None)
        write_answer(answer.output, finished(_lines(shown, verbose=terminal.verbose > 0), color=color))
    return ExitCode.CLEAN


def _lines(shown: Shown, *, verbose: bool) -> list[str]:
    from divtrace.output.escape import name
    from divtrace.output.layout import emphasised

    many = len({(event.world, event.replica) for event in shown.events}) > 1
    lines = []
    previous = None
    for event in shown.events:
        here = (event.replica, event.key.attempt, event.key.round)
        if here != previous:
            replica = f", replica {event.replica}" if many else ""
            attempt = f", attempt {event.key.attempt}" if event.key.attempt else ""
            part = "" if event.key.round is None else f", round {event.key.round}"
            lines += ["", emphasised(f"Request {name(shown.req)}{replica}{attempt}{part}", "strong")]
            previous = here
        lines += ["", *_event(event, verbose=verbose)]
    return lines[1:]


def _event(event: ShownEvent, *, verbose: bool) -> list[str]:
    """One event: where it stands, a line per value of each field, and where its records stand."""
    from divtrace.output.layout import wrapped
    from divtrace.output.ranks import ranks_words
    from divtrace.output.wording import location_words, stage_words

    width = line_width()
    step = "" if event.key.step is None else f"step {event.key.step}, "
    verdict = ""
    if event.finding is not None:
        verdict = f": ranks differ in {', '.join(event.differing)}" if event.differing else ": breaks a rule"
    lines = wrapped(step + stage_words(event.key) + verdict, width, "", "  ")
    lines += _values(event, width, verbose=verbose)
    absent = [rank for rank, values in event.values.items() if values is None]
    if absent:
        lines += wrapped(f"no such event on {ranks_words(absent)}", width, "  ")
    places = [location_words(where) for where in event.where.values()]
    most = len(places) if verbose else MOST_PLACES
    listed = places[:most] + ([f"and {len(places) - most:,} more"] if len(places) > most else [])
    return lines + wrapped("; ".join(listed), width, "  at ", "     ")


def _values(event: ShownEvent, width: int, *, verbose: bool) -> list[str]:
    from divtrace.output.escape import name
    from divtrace.output.layout import columns, emphasised, padded
    from divtrace.output.ranks import ranks_words
    from divtrace.output.shares import shares
    from divtrace.output.values import value_text

    recorded = {rank: values for rank, values in event.values.items() if values is not None}
    rows: list[tuple[str, str, Share | None]] = []
    for field in dict.fromkeys(field for values in recorded.values() for field in values):
        held = {rank: values[field] for rank, values in recorded.items() if field in values}
        different = shares(held, _first_difference(field, held.values()))
        listed = different if verbose else different[:MOST_VALUES]
        rows += [(field if share is different[0] else "", ranks_words(share.ranks), share) for share in listed]
        if len(listed) < len(different):
            rows.append(("", f"and {len(different) - len(listed):,} other values", None))
    field_width = max((columns(name(field)) for field, _, _ in rows if field), default=0)
    rank_width = max((columns(ranks) for _, ranks, share in rows if share), default=0)
    lines = []
    room = max(width - field_width - rank_width - 6, NARROWEST_VALUE)
    marked = False
    for field, ranks, share in rows:
        marked = field in event.differing if field else marked
        line = emphasised("!", "bad") if marked else " "
        line += f" {padded(name(field) if field else '', field_width)}  {padded(ranks, rank_width)}"
        if share is not None:
            line += f"  {value_text(share.value, room, share.marked if marked else frozenset())}"
        lines.append(line)
    return lines


def _first_difference(field: str, values: Iterable[object]) -> int | None:
    """Where lists first differ, the shorter length if one is a prefix; None for sets and for what is no list."""
    lists = [value for value in values if isinstance(value, list)]
    if field == "batch" or not lists:
        return None
    shortest = min(map(len, lists))
    return next((place for place in range(shortest) if any(one[place] != lists[0][place] for one in lists)), shortest)
