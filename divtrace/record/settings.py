"""What the environment says about recording.

Every process of a serving engine reads the same variables, so that a server needs no code change. A value that
cannot be used is replaced by its default and named in `problems`; nothing here raises.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MEGABYTE = 1 << 20

DIRECTORY = "DIVTRACE_DIR"
RUN = "DIVTRACE_RUN"
RUN_MADE_HERE = "DIVTRACE_RUN_MADE_HERE"
LAYERS = "DIVTRACE_LAYERS"

TOKEN_MODES = ("plain", "hash", "off")
COMPRESSIONS = ("gzip", "zstd", "off")
ALL_LAYERS = ("base", "stage", "sync")


class Settings:
    """Limits and switches of one recorder; sizes in bytes.

    `queue_bytes` bounds what waits for the writer, `file_bytes` one file, `total_bytes` all files of one recorder,
    `ring_rounds` turns on the memory-mapped ring (0: off) and `flush_seconds` is the longest time that an event
    waits for the file.
    """

    __slots__ = (
        "compression",
        "debug",
        "dump_signal",
        "file_bytes",
        "flush_seconds",
        "layers",
        "problems",
        "queue_bytes",
        "ring_rounds",
        "synchronous",
        "token_key",
        "token_key_file",
        "token_mode",
        "total_bytes",
    )

    def __init__(
        self,
        *,
        queue_bytes: int = 64 * MEGABYTE,
        file_bytes: int = 64 * MEGABYTE,
        total_bytes: int = 2048 * MEGABYTE,
        compression: str = "gzip",
        ring_rounds: int = 0,
        synchronous: bool = False,
        debug: bool = False,
        token_mode: str = "plain",
        token_key: str | None = None,
        token_key_file: str | None = None,
        dump_signal: str | None = None,
        layers: tuple[str, ...] = ALL_LAYERS,
        flush_seconds: float = 0.08,
        problems: tuple[str, ...] = (),
    ) -> None:
        self.queue_bytes = queue_bytes
        self.file_bytes = file_bytes
        self.total_bytes = max(total_bytes, 2 * file_bytes)
        self.compression = compression
        self.ring_rounds = ring_rounds
        self.synchronous = synchronous
        self.debug = debug
        self.token_mode = token_mode
        self.token_key = token_key
        self.token_key_file = token_key_file
        self.dump_signal = dump_signal
        self.layers = layers
        self.flush_seconds = flush_seconds
        self.problems = problems


def from_environment(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings that the variables `DIVTRACE_*` give."""
    values = os.environ if environment is None else environment
    problems: list[str] = []

    def number(name: str, default: float, least: float) -> float:
        text = values.get(name, "").strip()
        if not text:
            return default
        try:
            found = float(text)
            if found >= least:
                return found
        except ValueError:
            pass
        problems.append(f"{name}={text!r} is not a number of at least {least:g}; {default:g} is used")
        return default

    def choice(name: str, allowed: tuple[str, ...], default: str) -> str:
        text = values.get(name, "").strip().lower()
        if text in allowed or not text:
            return text or default
        problems.append(f"{name}={text!r} is not one of {', '.join(allowed)}; {default} is used")
        return default

    def switch(name: str) -> bool:
        return values.get(name, "").strip().lower() in ("1", "true", "yes", "on")

    layers = tuple(part.strip().lower() for part in values.get(LAYERS, "").split(",") if part.strip())
    if unknown := [layer for layer in layers if layer not in ALL_LAYERS]:
        problems.append(f"{LAYERS}: unknown {', '.join(map(repr, unknown))}; known are {', '.join(ALL_LAYERS)}")
    # Whoever mistypes the mode of privacy must not get the open one.
    tokens = values.get("DIVTRACE_TOKENS", "").strip().lower()
    if tokens and tokens not in TOKEN_MODES:
        problems.append(f"DIVTRACE_TOKENS={tokens!r} is not one of {', '.join(TOKEN_MODES)}; tokens are left out")
        tokens = "off"
    return Settings(
        queue_bytes=int(number("DIVTRACE_QUEUE_MB", 64, 0.0625) * MEGABYTE),
        file_bytes=int(number("DIVTRACE_FILE_MB", 64, 0.0625) * MEGABYTE),
        total_bytes=int(number("DIVTRACE_TOTAL_MB", 2048, 0.125) * MEGABYTE),
        compression=choice("DIVTRACE_COMPRESS", COMPRESSIONS, "gzip"),
        ring_rounds=int(number("DIVTRACE_RING", 0, 0)),
        synchronous=switch("DIVTRACE_SYNC"),
        debug=switch("DIVTRACE_DEBUG"),
        token_mode=tokens or "plain",
        token_key=values.get("DIVTRACE_TOKENS_KEY") or None,
        token_key_file=values.get("DIVTRACE_TOKENS_KEY_FILE") or None,
        dump_signal=values.get("DIVTRACE_DUMP_SIGNAL") or None,
        layers=tuple(layer for layer in layers if layer in ALL_LAYERS) if layers else ALL_LAYERS,
        problems=tuple(problems),
    )


def run_name(environment: Mapping[str, str] | None = None, *, several_nodes: bool = False) -> str | None:
    """The name of the run, None if unknown.

    A name that the first process of a node made up holds for that node only: a run over several nodes has none then.
    """
    values = os.environ if environment is None else environment
    name = values.get(RUN) or None
    if name is not None and several_nodes and values.get(RUN_MADE_HERE) == name:
        return None
    return name


def ensure_run_name() -> None:
    """Makes up a run name in the first process that loads a plugin; its children inherit it."""
    if not os.environ.get(RUN):
        name = f"run-{os.urandom(4).hex()}"
        os.environ[RUN] = name
        os.environ[RUN_MADE_HERE] = name
