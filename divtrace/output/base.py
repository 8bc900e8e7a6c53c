"""What an output is: a name, and a function from a finished report to text."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from divtrace.report.model import Report


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """How a report is laid out. Only the text output uses them all; none of them changes what is reported."""

    width: int = 80
    """Columns of the terminal."""
    color: bool = False
    verbose: bool = False
    """List in full what is otherwise counted beyond a limit."""


DEFAULT_OPTIONS = OutputOptions()


class Render(Protocol):
    """Lays a report out. It computes nothing about divergences, and escapes everything that comes from a trace."""

    def __call__(self, report: Report, options: OutputOptions) -> str:
        """The whole text, ending with a line break unless it is empty."""


@dataclass(frozen=True, slots=True)
class Output:
    """One format; its module is imported when it is first used."""

    name: str
    meaning: str
    module: str
    """Full name of the module, which has a function `render`."""

    def render(self, report: Report, options: OutputOptions = DEFAULT_OPTIONS) -> str:
        """The report in this format, ending with a line break unless it is empty."""
        render: Render = import_module(self.module).render
        return render(report, options)
