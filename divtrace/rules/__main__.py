"""Prints the rule pages as Markdown; with `--write` it brings `docs/rules.md` of this checkout up to date."""

from __future__ import annotations

import sys
from pathlib import Path

from divtrace.rules import RULES
from divtrace.rules.page import markdown_pages

PAGE = Path(__file__).resolve().parents[2] / "docs" / "rules.md"


def main(arguments: list[str]) -> int:
    """Run the command with these arguments and return its exit status."""
    if arguments == ["--write"]:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(markdown_pages(RULES), encoding="utf-8")
        return 0
    if arguments:
        sys.stderr.write("usage: python -m divtrace.rules [--write]\n")
        return 2
    sys.stdout.write(markdown_pages(RULES))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
