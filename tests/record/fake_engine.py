"""A package with every function that a plugin hooks and nothing in it, to take some of them away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from divtrace.record.source import Target

REGISTRY = '''
"""As much of SGLang's registry as the plugin uses."""
import functools
from collections import defaultdict
from enum import Enum
from pkgutil import resolve_name


class HookType(Enum):
    AROUND = "around"


class HookRegistry:
    _hooks = defaultdict(list)
    _patched = set()

    @classmethod
    def register(cls, target, hook, hook_type):
        cls._hooks[target].append((hook_type, hook, None))

    @classmethod
    def apply_hooks(cls):
        for target, hooks in cls._hooks.items():
            if target not in cls._patched:
                holder, _, name = target.rpartition(".")
                for _, hook, _ in hooks:
                    cls._wrap(resolve_name(holder), name, hook)
                cls._patched.add(target)

    @staticmethod
    def _wrap(holder, name, hook):
        original = getattr(holder, name)

        @functools.wraps(original)
        def wrapper(*args, **kwargs):
            return hook(original, *args, **kwargs)

        setattr(holder, name, wrapper)
'''
TORCH = """
class distributed:
    is_available = is_initialized = staticmethod(lambda: False)


class version:
    hip = None
"""


def write_engine(folder: Path, package: str, targets: Iterable[Target], without: Sequence[str] = ()) -> None:
    """Writes an importable package of that name, with metadata; `without` are names of targets that it lacks."""
    functions: dict[str, dict[str, list[str]]] = {}
    words: set[str] = set()
    for target in targets:
        words.update(target.reads)
        *modules, name = target.path.split(".")
        holder = modules.pop() if modules[-1][0].isupper() else ""
        bodies = functions.setdefault("/".join(modules) + ".py", {}).setdefault(holder, [])
        if target.name not in without:
            parameters = ", ".join(target.parameters or (("self",) if holder else ()))
            bodies.append(f"def {name}({parameters}{', ' if parameters else ''}*args, **kwargs): return {name!r}")
    for path, holders in functions.items():
        text = "\n".join(bodies if not holder else _class(holder, bodies) for holder, bodies in _lines(holders))
        write(folder / path, text + "\n")
    write(folder / package / "words.py", f"words = {' '.join(sorted(words))!r}\n")
    metadata = folder / f"{package}-9.9.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 9.9\n")
    write(folder / "torch.py", TORCH)


def write(path: Path, text: str) -> None:
    """Writes a module; the folders become packages."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _lines(holders: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(holder, "\n".join(bodies)) for holder, bodies in holders.items()]


def _class(name: str, bodies: str) -> str:
    return "\n".join([f"class {name}:", "    pass", *(f"    {line}" for line in bodies.splitlines())])
