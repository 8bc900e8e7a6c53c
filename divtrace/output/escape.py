"""Text from a trace made harmless: for a terminal, and for what Markdown and GitHub would take for markup.

Request ids, sites, file names and log texts come from clients, recorders and engines; any of them may hold control
characters, markup or a workflow command. Every output passes them through `terminal` or `name` first.
"""

from __future__ import annotations

import re

LONGEST_NAME = 160
"""A name longer than this is cut in people's outputs; the JSON report has it in full."""

_NOT_PLAIN = re.compile(r"[^\x20-\x5b\x5d-\x7e]")
# Python calls these printable, but they leave no mark on the screen: fillers, variation selectors and the like.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_SHORT = {"\\": r"\\", "\n": r"\n", "\r": r"\r", "\t": r"\t"}
# GitHub reads `::` at the start of a line as a command, leading blanks ignored, and `##[` anywhere; Azure `##vso[`.
# Lines are broken at blanks only, so a word that starts with `::` may come to stand at the start of one.
_COMMAND = re.compile(r"(?:(?<=^)|(?<= )):(?=:)|#(?=#(?:vso)?\[)")
_BARE_NAME = re.compile(r"[A-Za-z0-9_./~+-][A-Za-z0-9_./~+:@%=#-]*")
_STRUCTURE = re.compile(r"[\\`*_{}\[\]<>|~!$&+=]|:(?=\S)")
_AT_START = re.compile(r"^(?:-|\d+(?=[.)]))")


def _shows(character: str) -> bool:
    return character.isprintable() and not _INVISIBLE.match(character)


def _escape(found: re.Match[str]) -> str:
    character = found.group()
    if character in _SHORT:
        return _SHORT[character]
    if _shows(character):
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escape_but_backslash(found: re.Match[str]) -> str:
    return "\\" if found.group() == "\\" else _escape(found)


def _hexadecimal(found: re.Match[str]) -> str:
    return f"\\x{ord(found.group()):02x}"


def terminal(text: str) -> str:
    """One line that shows every character that a terminal would obey or hide as an escape such as `\\x1b`.

    A backslash is doubled, so the original can be told from the result. The result never holds a control character,
    a direction override, a lone surrogate or a line separator, and no line break of ours makes it a command to a CI
    runner.
    """
    return _COMMAND.sub(_hexadecimal, _NOT_PLAIN.sub(_escape, text))


def sentence(text: str) -> str:
    """A sentence of the report, which may quote names from a trace: as `terminal`, but a backslash stays single.

    A sentence is read and not looked up; names in it may have been escaped already.
    """
    return _COMMAND.sub(_hexadecimal, _NOT_PLAIN.sub(_escape_but_backslash, text))


def json_text(document: str) -> str:
    """A JSON document, unchanged in meaning, that holds nothing that a terminal or a CI runner would obey."""
    return re.sub("#(?=#)", r"\\u0023", _NOT_PLAIN.sub(_json_escape, document))


def _json_escape(found: re.Match[str]) -> str:
    character = found.group()
    # Outside its strings a document has no other character than these; inside, JSON has escaped them already.
    if character in "\n\\" or _shows(character):
        return character
    code = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{code[at : at + 2].hex()}" for at in range(0, len(code), 2))


def name(text: str, limit: int = LONGEST_NAME) -> str:
    """A request id, site or file name: as it is if it is plain, else in quotes and escaped."""
    rest = len(text) - limit
    if rest > 0:
        return f"{name(text[:limit], limit)} ({rest:,} more characters)"
    if _BARE_NAME.fullmatch(text):
        return terminal(text)
    return '"' + terminal(text).replace('"', '\\"') + '"'


def markdown_code(escaped: str) -> str:
    """Text that went through `terminal` or `name` as a code span, in which nothing is markup, also inside a table."""
    inert = escaped.replace("`", r"\x60").replace("|", r"\x7c")
    return f"`{inert}`" if inert.strip() else "` `"


def markdown_prose(text: str) -> str:
    """A sentence, possibly with names from a trace in it, without any markup, link or mention.

    The comment behind `@` and `#` does not show; it keeps GitHub from finding people, teams and issues.
    """
    structured = _STRUCTURE.sub(r"\\\g<0>", sentence(text.strip(" ")))
    unlinked = re.sub(r"[@#]", r"\\\g<0><!-- -->", structured).replace("www.", r"www\.")
    return _AT_START.sub(lambda found: "\\-" if found.group() == "-" else found.group() + "\\", unlinked)


def github_message(text: str) -> str:
    """The message of a workflow command; line breaks become breaks of the annotation."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def github_property(text: str) -> str:
    """A property of a workflow command, such as its file or title."""
    return github_message(text).replace(":", "%3A").replace(",", "%2C")
