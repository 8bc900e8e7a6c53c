"""Small shapes of plain text: wrapped paragraphs and aligned columns. No cell is cut: a request id may be looked up."""

from __future__ import annotations

import difflib
import shutil
import textwrap
from collections.abc import Iterable, Sequence

WIDEST = 100
"""Lines longer than this are hard to read, however wide the terminal."""


def line_width() -> int:
    """Columns to fill: the terminal's or `COLUMNS`, 80 where neither is known, and never more than reads well."""
    return max(20, min(shutil.get_terminal_size().columns, WIDEST))


def paragraph(text: str, *, first: str = "", rest: str | None = None) -> str:
    """The text wrapped to the line width; `first` starts its first line, `rest` (as blank if not given) the others."""
    return textwrap.fill(
        " ".join(text.split()),
        width=line_width(),
        initial_indent=first,
        subsequent_indent=" " * len(first) if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as lines whose cells stand below each other; the last column is wrapped to the line width."""
    widths = [max(len(row[index]) for row in (head, *rows)) for index in range(len(head) - 1)]
    return [
        paragraph(row[-1], first="".join(f"{cell:<{width}}  " for cell, width in zip(row, widths, strict=False)))
        for row in (head, *rows)
    ]


def nearest(word: str, known: Iterable[str]) -> str | None:
    """A hint with the known words that look most like this one, or None."""
    found = difflib.get_close_matches(word, list(known), n=3)
    return f"did you mean {' or '.join(found)}?" if found else None
