"""The options that commands share: one name, one environment variable and one sentence of help each.

A command takes structs of options; `spelled_out` turns each of their fields into an option of the command. So an option
means the same wherever it occurs, and a new one reaches every command that takes its struct. Annotations are no strings
here, since every process would have to evaluate them.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import msgspec
import typer

from divtrace.errors import UsageError
from divtrace.exitcodes import ExitCode
from divtrace.output import OUTPUTS

if TYPE_CHECKING:
    from divtrace.api import Options
    from divtrace.topology import RankGroups


def option(*names: str, help: str, **more: Any) -> Any:  # noqa: A002 - typer's own word
    """An option whose environment variable is `DIVTRACE_` and its long name."""
    long = next(name for name in names if name.startswith("--"))
    variable = "DIVTRACE_" + long.partition("/")[0].removeprefix("--").replace("-", "_").upper()
    return typer.Option(*names, envvar=variable, help=help, show_envvar=False, show_default=False, **more)


Paths = Annotated[
    list[str],  # not Path, which would make one slash of the two in s3://
    typer.Argument(
        metavar="PATH", help="Trace files, and folders to read recursively; also s3:// and gs://.", show_default=False
    ),
]


class Color(StrEnum):
    """When to colour the text report."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class Backend(StrEnum):
    """Where the work runs."""

    LOCAL = "local"
    RAY = "ray"


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes and groups that the command line states; they win over the traces' metas."""

    tp: Annotated[int | None, option("--tp", help="Tensor-parallel size.", metavar="N", min=1)] = None
    dp: Annotated[int | None, option("--dp", help="Data-parallel size.", metavar="N", min=1)] = None
    cp: Annotated[int | None, option("--cp", help="Attention context-parallel size.", metavar="N", min=1)] = None
    pp: Annotated[int | None, option("--pp", help="Pipeline-parallel size.", metavar="N", min=1)] = None
    dp_attention: Annotated[
        bool | None,
        option("--dp-attention/--no-dp-attention", help="Whether --dp splits the attention of one world."),
    ] = None
    attn_tp_group: Annotated[
        list[str] | None,
        option("--attn-tp-group", help="Global ranks of one attn_tp group, such as 0,1; repeatable.", metavar="RANKS"),
    ] = None

    def attn_tp_groups(self) -> "RankGroups":
        """The explicit attn_tp groups; raises UsageError for one that is not a list of ranks."""
        return tuple(_ranks(group) for group in self.attn_tp_group or ())


RunName = Annotated[
    str | None, option("--run", help="Read this run only, where the input holds several.", metavar="NAME")
]


class Reading(Layout, frozen=True, kw_only=True):
    """How to read and compare the traces."""

    run: RunName = None
    strict: Annotated[bool, option("--strict", help="Refuse damaged input: exit status 2 at the first damage.")] = False
    jobs: Annotated[
        int | None,
        option("--jobs", "-j", help="Worker processes; the number of cores if not given.", metavar="N", min=1),
    ] = None
    backend: Annotated[
        Backend,
        option("--backend", help="Where the work runs: local (default), or ray.", metavar="NAME", show_choices=False),
    ] = Backend.LOCAL
    ray_address: Annotated[
        str | None,
        option("--ray-address", help="The Ray cluster, such as auto; this machine if not given.", metavar="ADDRESS"),
    ] = None

    def options(self) -> "Options":
        """The same for the core."""
        from divtrace.api import Options

        if self.ray_address is not None and self.backend is not Backend.RAY:
            raise UsageError("--ray-address has no effect without Ray", hint="add --backend ray")
        return Options(
            run=self.run,
            tp=self.tp,
            dp=self.dp,
            cp=self.cp,
            pp=self.pp,
            dp_attention=self.dp_attention,
            attn_tp_groups=self.attn_tp_groups(),
            jobs=self.jobs,
            backend=self.backend.value,
            ray_address=self.ray_address,
            strict=self.strict,
        )


class Analysis(Reading, frozen=True, kw_only=True):
    """How to read and compare, and how much of what was found to list."""

    max_findings: Annotated[
        int,
        option("--max-findings", help="Findings to list, origins first (default 1000; 0: all).", metavar="N", min=0),
    ] = 1000

    def options(self) -> "Options":
        """The same for the core."""
        return dataclasses.replace(super().options(), max_findings=self.max_findings)


TEXT_OR_JSON = ("text", "json")


def _complete_text_or_json(incomplete: str) -> list[str]:
    return [name for name in TEXT_OR_JSON if name.startswith(incomplete)]


def _complete_format(incomplete: str) -> list[str]:
    return [name for name in OUTPUTS if name.startswith(incomplete)]


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """Where the answer goes."""

    output: Annotated[
        str | None,
        option("--output", "-o", help="Write to this file, whole or not at all; - is standard output.", metavar="FILE"),
    ] = None


class Answer(Output, frozen=True, kw_only=True):
    """Where the answer goes, of commands that know text and JSON."""

    format: Annotated[
        str,
        option(
            "--format", "-f", help="text (default) or json.", metavar="FORMAT", autocompletion=_complete_text_or_json
        ),
    ] = "text"

    def as_json(self) -> bool:
        """Whether JSON was asked for; raises UsageError for a format that this command does not know."""
        if self.format not in TEXT_OR_JSON:
            raise UsageError(f"this command does not write {self.format!r}", hint="--format is text or json here")
        return self.format == "json"


class Reporting(Output, frozen=True, kw_only=True):
    """Where the report goes, and in which formats."""

    format: Annotated[
        str,
        option(
            "--format",
            "-f",
            help=f"{', '.join(OUTPUTS)}; text if not given.",
            metavar="FORMAT",
            autocompletion=_complete_format,
        ),
    ] = "text"
    report: Annotated[
        list[str] | None,
        option(
            "--report",
            help="Also write the report in FORMAT to FILE; repeatable. FILE - is standard output, replacing the text.",
            metavar="FORMAT=FILE",
        ),
    ] = None


Request = Annotated[str, option("--req", help="The request's id, whole and as recorded.", metavar="ID")]
ReplicaNumber = Annotated[
    int | None, option("--replica", help="Only this replica, as analyze numbers them.", metavar="N", min=0)
]


def _remember_verbosity(context: typer.Context, value: int) -> int:
    if context.obj is not None:
        context.obj.verbosity = value
    return value


def _remember_profile(context: typer.Context, value: bool) -> bool:
    if context.obj is not None:
        context.obj.profile = value
    return value


class Terminal(msgspec.Struct, frozen=True, kw_only=True):
    """How the command talks."""

    quiet: Annotated[bool, option("--quiet", "-q", help="No warnings and no progress.")] = False
    verbose: Annotated[
        int,
        option(
            "--verbose",
            "-v",
            help="Say more on standard error; -vv: tracebacks too.",
            count=True,
            callback=_remember_verbosity,
        ),
    ] = 0
    color: Annotated[
        Color,
        option("--color", help="Colour the text: auto (default), always, never.", metavar="WHEN", show_choices=False),
    ] = Color.AUTO
    no_progress: Annotated[bool, option("--no-progress", help="No progress bar.")] = False
    profile: Annotated[
        bool,
        option("--profile", help="Tell on standard error where time and memory went.", callback=_remember_profile),
    ] = False


def spelled_out(function: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
    """Offer the fields of every struct that `function` takes as options of its own; each has a default."""
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, type[msgspec.Struct]] = {
        name: hint for name, hint in hints.items() if isinstance(hint, type) and issubclass(hint, msgspec.Struct)
    }
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        group = groups[name]
        annotations = get_type_hints(group, include_extras=True)
        parameters.extend(
            inspect.Parameter(field, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotations[field])
            for field, default in zip(group.__struct_fields__, group.__struct_defaults__, strict=True)
        )

    @functools.wraps(function)
    def call(**values: Any) -> ExitCode:
        for name, group in groups.items():
            values[name] = group(**{field: values.pop(field) for field in group.__struct_fields__})
        return function(**values)

    call.__signature__ = inspect.Signature(parameters, return_annotation=ExitCode)  # type: ignore[attr-defined]  # what typer reads
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters} | {"return": ExitCode}
    return call


def _ranks(text: str) -> tuple[int, ...]:
    try:
        ranks = tuple(int(part) for part in text.split(","))
    except ValueError:
        ranks = ()
    if not ranks or min(ranks) < 0:
        raise UsageError(f"--attn-tp-group {text!r} is not a list of ranks", hint="write global ranks, such as 0,1")
    return ranks
