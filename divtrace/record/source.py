"""Hooked functions, and whether an engine's source still has them: by parsing, without importing the engine.

Importing an engine may need a GPU and always takes long. The source tells whether a function is there and which
parameters it has, and whether the attributes that a hook reads are still named anywhere in its package.
"""

from __future__ import annotations

import ast
import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Target:
    """One hooked function: its dotted path, its layer, the parameters a hook relies on, and what else it reads.

    Without a function of its core a layer is off as a whole (`divtrace.record.layers`). Without any other function only
    what hangs on it is left out.
    """

    __slots__ = ("core", "layer", "name", "parameters", "path", "reads")

    def __init__(
        self,
        name: str,
        layer: str,
        path: str,
        parameters: Sequence[str] = (),
        reads: Sequence[str] = (),
        *,
        core: bool = False,
    ) -> None:
        self.name = name
        self.layer = layer
        self.path = path
        self.parameters = tuple(parameters)
        self.reads = tuple(reads)
        self.core = core


class Source:
    """An engine's package as text; `read` gives a file by its path below the package's parent, or None."""

    def __init__(self, read: Callable[[str], str | None], names: Callable[[], Sequence[str]]) -> None:
        self._read = read
        self._names = names
        self._trees: dict[str, ast.Module | None] = {}
        self._words: set[str] | None = None

    @classmethod
    def installed(cls, package: str) -> Source | None:
        """The source of an installed package, without importing it; None if it is not installed."""
        from importlib.util import find_spec

        try:
            spec = find_spec(package)
        except (ImportError, ValueError):
            return None
        if spec is None or not spec.submodule_search_locations:
            return None
        parent = os.path.dirname(next(iter(spec.submodule_search_locations)))
        return cls.folder(parent, package)

    @classmethod
    def folder(cls, parent: str, package: str) -> Source:
        """The source in a folder that holds the package."""

        def read(name: str) -> str | None:
            try:
                with open(os.path.join(parent, name), encoding="utf-8") as file:
                    return file.read()
            except OSError:
                return None

        def names() -> list[str]:
            found = []
            for folder, _, files in os.walk(os.path.join(parent, package)):
                found += [os.path.relpath(os.path.join(folder, name), parent) for name in files if name.endswith(".py")]
            return found

        return cls(read, names)

    def why_missing(self, target: Target) -> str | None:
        """That a target's function is not there, None if it is."""
        return f"{target.path} is not there" if self._function(target.path) is None else None

    def problems(self, target: Target) -> list[str]:
        """What a target needs and this source lacks; empty if the hook fits."""
        function = self._function(target.path)
        if function is None:
            return [f"{target.path} is not there"]
        arguments = function.args
        known = {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
        found = [f"{target.path} has no parameter {name!r}" for name in target.parameters if name not in known]
        return found + [f"nothing is named {name!r} any more" for name in target.reads if name not in self.words()]

    def words(self) -> set[str]:
        """Every identifier in the package."""
        if self._words is None:
            self._words = set()
            for name in self._names():
                self._words.update(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", self._read(name) or ""))
        return self._words

    def _function(self, path: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        parts = path.split(".")
        # The longest prefix that is a module; what follows are classes and the function.
        for length in range(len(parts) - 1, 0, -1):
            tree = self._tree("/".join(parts[:length]) + ".py") or self._tree("/".join(parts[:length]) + "/__init__.py")
            if tree is not None:
                return self._find(tree, parts[length:])
        return None

    def _find(self, tree: ast.Module, names: list[str]) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        body: list[ast.stmt] = tree.body
        for position, name in enumerate(names):
            for node in body:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
                    return node if position == len(names) - 1 else None
                if isinstance(node, ast.ClassDef) and node.name == name:
                    body = node.body
                    break
            else:
                return None
        return None

    def _tree(self, name: str) -> ast.Module | None:
        if name not in self._trees:
            text = self._read(name)
            try:
                self._trees[name] = None if text is None else ast.parse(text)
            except SyntaxError:
                self._trees[name] = None
        return self._trees[name]
