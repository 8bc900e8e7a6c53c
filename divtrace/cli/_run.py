"""From arguments to an exit status: the one place where exceptions become words and numbers."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from divtrace.cli._console import say, say_error
from divtrace.cli._files import write_stdout
from divtrace.collector import collector_paused
from divtrace.errors import DivtraceError, UsageError
from divtrace.exitcodes import ExitCode

if TYPE_CHECKING:
    from typer import TyperException

    from divtrace.timing import Profile

PROGRAM = "divtrace"
COMPLETION_VARIABLE = "_DIVTRACE_COMPLETE"
INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""
OUTPUT_CLOSED = 141
"""128 + SIGPIPE, as shells report it: whoever read the output went away. Never 1, which would claim a divergence."""


@dataclass(slots=True)
class Session:
    """What has to be known about a command after it failed; commands find it as `ctx.obj`."""

    verbosity: int = 0
    profile: bool = False


def run(arguments: list[str]) -> int:
    """Run one command. Every exception ends here, so that no crash can look like a divergence (exit status 1)."""
    session = Session()
    try:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        status = _dispatch(arguments, session)
    except DivtraceError as error:
        say_error(str(error), hint=error.hint)
        return ExitCode.USAGE
    except KeyboardInterrupt:
        say_error("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        return OUTPUT_CLOSED
    except Exception as error:
        return _crash(error, session)
    return status


def _dispatch(arguments: list[str], session: Session) -> int:
    if arguments in (["--version"], ["-V"]):
        from divtrace.version import __version__

        write_stdout(f"{PROGRAM} {__version__}\n")
        return ExitCode.CLEAN

    with collector_paused():
        import typer

        from divtrace.cli.app import build
        from divtrace.timing import collecting

        command = build()
    if os.environ.get(COMPLETION_VARIABLE):
        command.main(arguments, prog_name=PROGRAM, complete_var=COMPLETION_VARIABLE)
    try:
        # Not command.main(): typer turns a broken pipe into exit status 1 there.
        with collecting() as profile, command.make_context(PROGRAM, arguments, obj=session) as context:
            try:
                return int(command.invoke(context) or ExitCode.CLEAN)
            finally:
                if session.profile:
                    _say_profile(profile)
    except typer.Exit as end:
        return end.exit_code
    except typer.TyperException as error:
        _refuse(error)


def _say_profile(profile: Profile) -> None:
    from divtrace.cli._profile import profile_lines

    for line in profile_lines(profile):
        say(line)


def _refuse(error: TyperException) -> NoReturn:
    """Turn an error of the command line's syntax into one of ours: one line, and where to read on."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else PROGRAM
    message = " ".join(error.format_message().split()).rstrip(".")
    parameter = getattr(error, "param", None)
    if parameter is not None and context is not None:
        source = context.get_parameter_source(parameter.name)
        if source is not None and source.name == "ENVIRONMENT":
            message += f" (from {parameter.envvar})"
    raise UsageError(message, hint=f"{path} --help lists what it takes") from None


def _crash(error: Exception, session: Session) -> int:
    if session.verbosity >= 2:
        import traceback

        for line in "".join(traceback.format_exception(error)).splitlines():
            say(line)
    name = type(error).__name__
    say_error(
        f"internal error: {name}: {error}" if str(error) else f"internal error: {name}",
        hint="this is a fault of divtrace, not of the traces; please report it with the traceback that -vv prints",
    )
    return ExitCode.INTERNAL
