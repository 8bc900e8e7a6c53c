"""Lines of a given width: wrapping by columns, and emphasis that can be left out.

Emphasis is carried by control characters inside the lines. No text from a trace holds one, because all of it is
escaped; so they can be turned into colours, or dropped, when the report is complete.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_STYLES = {
    "strong": ("\x01", "bold"),
    "bad": ("\x02", "bold red"),
    "good": ("\x03", "bold green"),
    "dim": ("\x04", "dim"),
}
_END = "\x05"
_ANY_MARK = re.compile("[\x01-\x05]")
_STYLED = re.compile("([\x01-\x04])([^\x05]*)\x05")


def emphasised(text: str, style: str) -> str:
    """The text with an emphasis: `strong`, `bad`, `good` or `dim`."""
    return f"{_STYLES[style][0]}{text}{_END}"


def finished(lines: Iterable[str], *, color: bool) -> str:
    """The lines as one text, with colours for a terminal or without any emphasis."""
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    if not color:
        return plain(text)
    from rich.color import ColorSystem
    from rich.style import Style

    styles = {mark: Style.parse(style) for mark, style in _STYLES.values()}
    return _STYLED.sub(lambda found: styles[found[1]].render(found[2], color_system=ColorSystem.STANDARD), text)


def plain(text: str) -> str:
    """The text without its emphasis."""
    return _ANY_MARK.sub("", text)


def columns(text: str) -> int:
    """How many columns of a terminal the text takes; wide characters take two."""
    from rich.cells import cell_len

    return cell_len(plain(text))


def padded(text: str, width: int) -> str:
    """The text filled up with blanks to `width` columns."""
    return text + " " * (width - columns(text))


def wrapped(text: str, width: int, first: str = "", rest: str | None = None) -> list[str]:
    """The text broken at blanks into lines of at most `width` columns; a word is never broken.

    `first` stands before the first line, `rest` (by default blanks of the same width) before the others.
    """
    rest = " " * columns(first) if rest is None else rest
    lines: list[str] = []
    line, empty = first, True
    for word in text.split(" "):
        if not empty and columns(line) + 1 + columns(word) > width:
            lines.append(line)
            line, empty = rest, True
        line += word if empty else " " + word
        empty = False
    return [*lines, line]
