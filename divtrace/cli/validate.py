"""`divtrace validate`: is every record of the input what the format says?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from divtrace.cli._console import console_for
from divtrace.cli._files import document, write_answer
from divtrace.cli._options import Answer, Paths, RunName, Terminal, spelled_out
from divtrace.exitcodes import ExitCode

if TYPE_CHECKING:
    from divtrace.trace.model import Traces


@spelled_out
def command(*, paths: Paths, run: RunName = None, answer: Answer, terminal: Terminal) -> ExitCode:
    """List every damaged record and file, with file and line.

    Checks the traces against the format: bad lines, damaged files, unknown fields, duplicates. Exits 0 if everything is
    as it should be, and 2 if anything is damaged.
    """
    as_json = answer.as_json()
    from divtrace.api import Options, validate

    console = console_for(terminal)
    with console.progress_bar(paths) as progress:
        traces = validate(paths, Options(run=run), progress=progress)
    write_answer(answer.output, _as_json(traces) if as_json else _as_text(traces))
    return ExitCode.USAGE if traces.damage or traces.unknown_fields else ExitCode.CLEAN


def _counts(traces: Traces) -> dict[str, int]:
    return {
        "files": len(traces.files),
        "ignored_files": traces.ignored_files,
        "ranks": len(traces.ranks),
        "events": sum(len(trace.records) for trace in traces.ranks.values()),
        "bad_lines": traces.bad_lines,
        "duplicates": traces.duplicates,
    }


def _as_json(traces: Traces) -> bytes:
    answer = {
        "schema": "divtrace.validation/1",
        **_counts(traces),
        "unknown_fields": traces.unknown_fields,
        "damage": [{"file": one.file, "line": one.line, "what": one.what} for one in traces.damage],
        "notes": traces.notes,
    }
    return document(answer)


def _as_text(traces: Traces) -> str:
    from divtrace.output.escape import name, terminal
    from divtrace.output.quantities import count

    lines = [
        f"{name(one.file)}{'' if one.line is None else f':{one.line}'}: {terminal(one.what)}" for one in traces.damage
    ]
    lines += [
        f"unknown field {name(field)} in {count(number, 'record')}" for field, number in traces.unknown_fields.items()
    ]
    counts = _counts(traces)
    lines.append(
        f"{count(counts['files'], 'file')}, {count(counts['ranks'], 'rank')}, {count(counts['events'], 'event')}; "
        f"{count(len(traces.damage), 'problem')}, {count(counts['bad_lines'], 'bad line')}, "
        f"{count(len(traces.unknown_fields), 'unknown field')}, {count(counts['duplicates'], 'duplicate')}"
    )
    lines += [f"note: {terminal(note)}" for note in traces.notes]
    return "\n".join(lines) + "\n"
