"""Standard error for talk, standard output for answers, and neither gets a control character from a trace."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from divtrace.cli._options import Terminal
    from divtrace.trace.load import Progress


def say(text: str) -> None:
    """One line on standard error, if there is one; what it quotes from a trace or a path is made harmless."""
    from divtrace.output.escape import sentence

    if sys.stderr is not None:
        sys.stderr.write(sentence(text) + "\n")
        sys.stderr.flush()


def say_error(message: str, *, hint: str | None = None) -> None:
    """What went wrong, in one line, and in a second one what to do about it."""
    say(f"divtrace: error: {message}")
    if hint:
        say(f"hint: {hint}")


@dataclass(frozen=True, slots=True)
class Console:
    """What one command may say on standard error."""

    quiet: bool
    verbosity: int
    progress: bool

    def warn(self, text: str) -> None:
        """Something the reader should know even if all went well."""
        if not self.quiet:
            say(f"divtrace: warning: {text}")

    def note(self, text: str) -> None:
        """Something for those who asked with -v."""
        if self.verbosity and not self.quiet:
            say(f"divtrace: {text}")

    @contextmanager
    def progress_bar(self, paths: Sequence[str]) -> Iterator[Progress | None]:
        """A function that takes bytes read and bytes in all, and draws a bar of them; None if nobody would see it.

        Nothing is drawn in the first half second: most inputs are read by then.
        """
        if not self.progress:
            yield None
            return
        from divtrace.cli._progress import Bar

        with Bar(paths) as bar:
            yield bar.update


def console_for(terminal: Terminal) -> Console:
    """The console that these options ask for."""
    return Console(
        quiet=terminal.quiet,
        verbosity=terminal.verbose,
        progress=not (terminal.quiet or terminal.no_progress) and is_terminal(sys.stderr),
    )


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person watches this stream."""
    return stream is not None and stream.isatty()


def wants_color(choice: str, stream: TextIO | None) -> bool:
    """Whether to colour what goes to this stream (None: a file): as asked, else as environment and terminal say."""
    if choice != "auto":
        return choice == "always"
    if stream is None or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or is_terminal(stream)
