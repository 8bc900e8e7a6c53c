"""The commands, one line each; the module of a command is imported when the command is called."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from divtrace.cli._values import PlainCommand, PlainGroup
from divtrace.collector import collector_paused
from divtrace.exitcodes import ExitCode
from divtrace.version import __version__

COMMANDS: dict[str, tuple[str, str]] = {
    "analyze": ("divtrace.cli.analyze", "Name the first place where the ranks disagreed."),
    "first-divergence": ("divtrace.cli.first_divergence", "Tell the earliest divergence of one request."),
    "check": ("divtrace.cli.check", "Analyze in CI: choose what fails the job."),
    "show": ("divtrace.cli.show", "Show the events of a request, ranks side by side."),
    "collectives": ("divtrace.cli.collectives", "List the collectives of traces, dumps and logs."),
    "convert": ("divtrace.cli.convert", "Turn traces into sorted Parquet."),
    "validate": ("divtrace.cli.validate", "List every damaged record and file."),
    "topology": ("divtrace.cli.topology", "Print the groups that parallel sizes give."),
    "explain": ("divtrace.cli.explain", "Say what a rule means, or list all rules."),
    "record": ("divtrace.cli.record", "Say what would be recorded in this environment."),
    "schema": ("divtrace.cli.schema", "Print a JSON Schema, or list them."),
}
"""Name of a command: the module that holds it as `command`, and its line in `divtrace --help`."""

DESCRIPTION = """Find the first place where the ranks of a speculative-decoding server disagreed.

Reads the traces that the ranks left (JSON Lines or Parquet; plain, gzip or zstd), offline, and names the first control,
logical-layout or shape divergence, ahead of the collective timeout that it led to."""

EPILOG = """\b
Exit status:
  0    no divergence
  1    a divergence was found
  2    wrong usage, no trace, nothing readable, or damage with --strict
  3    no divergence, but not clean: rank_failed, rank_silent,
       uniform_stall or insufficient
  101  a fault of divtrace itself

\b
Every option can be set in the environment, under one name for all commands:
DIVTRACE_FORMAT for --format, DIVTRACE_MAX_FINDINGS for --max-findings."""

SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class DeferredCommand(TyperCommand):
    """A command known by its name and its line of help, loaded when it is called."""

    def __init__(self, name: str, module: str, summary: str) -> None:
        """Remember where the command is."""
        super().__init__(name, help=summary, rich_markup_mode=None)
        self.module = module

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        """The context of the real command, which then takes the place of this one."""
        app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        with collector_paused():
            function = import_module(self.module).command
            app.command(self.name, cls=PlainCommand, context_settings=SETTINGS, epilog=EPILOG)(function)
            command = typer.main.get_command(app)
        assert isinstance(command, PlainCommand)
        command.annotations = function.__annotations__
        return command.make_context(*arguments, **more)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"divtrace {__version__}")
        raise typer.Exit


def _root(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", help="Print the version.", is_eager=True, callback=_print_version, show_default=False
        ),
    ] = False,
) -> int:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        return ExitCode.USAGE
    return ExitCode.CLEAN


def build() -> TyperGroup:
    """The whole command line."""
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    app.callback(
        cls=PlainGroup, invoke_without_command=True, context_settings=SETTINGS, help=DESCRIPTION, epilog=EPILOG
    )(_root)
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    for name, (module, summary) in COMMANDS.items():
        group.add_command(DeferredCommand(name, module, summary))
    return group
