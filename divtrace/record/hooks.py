"""Wrapping functions of an engine so that nothing of ours can hurt it.

The original runs exactly once, with its own arguments, result and exceptions. What a hook raises is swallowed; a hook
that keeps failing is turned off.
"""

from __future__ import annotations

import functools
import importlib
from pkgutil import resolve_name

from divtrace.record.report import inform, warn_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MARK = "__divtrace_hook__"
_MOST_FAILURES = 20


class Hook:
    """What to do around one function: `before(*args)` gives a token that `after` and `failed` get back."""

    def __init__(
        self,
        name: str,
        *,
        before: Callable[..., Any] | None = None,
        after: Callable[..., Any] | None = None,
        failed: Callable[..., Any] | None = None,
    ) -> None:
        self.name = name
        self._before = before
        self._after = after
        self._failed = failed
        self._failures = 0

    @property
    def off(self) -> bool:
        """Whether it failed too often."""
        return self._failures >= _MOST_FAILURES

    def around(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls the original with the hook around it."""
        token = self.run_before(args, kwargs)
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            self.run_failed(token, error, args, kwargs)
            raise
        self.run_after(token, result, args, kwargs)
        return result

    def run_before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls `before`; None if that fails."""
        return None if self._before is None or self.off else self._guard(self._before, *args, **kwargs)

    def run_after(self, token: Any, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Calls `after(token, result, *args)`."""
        if self._after is not None and not self.off:
            self._guard(self._after, token, result, *args, **kwargs)

    def run_failed(self, token: Any, error: BaseException, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Calls `failed(token, error, *args)`; the original's exception goes on to the engine."""
        if self._failed is not None and not self.off:
            self._guard(self._failed, token, error, *args, **kwargs)

    def _guard(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            self._failures += 1
            warn_once(f"the hook on {self.name} failed: {type(error).__name__}: {error}")
            if self.off:
                warn_once(f"the hook on {self.name} failed {_MOST_FAILURES} times and is off")
            return None


def wrap(original: Callable[..., Any], hook: Hook) -> Callable[..., Any]:
    """The function with the hook around it."""

    @functools.wraps(original)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        return hook.around(original, args, kwargs)

    setattr(hooked, MARK, hook.name)
    return hooked


def attach(holder: Any, name: str, hook: Hook) -> bool:
    """Puts a hook around an attribute of a class, module or instance; False, with one line, if there is none.

    On an instance the hook gets the arguments without `self`. A second time changes nothing.
    """
    original = getattr(holder, name, None)
    if not callable(original):
        warn_once(f"{hook.name} is not there; it is not recorded")
        return False
    if getattr(original, MARK, None) == hook.name:
        return True
    try:
        setattr(holder, name, wrap(original, hook))
    except (AttributeError, TypeError) as error:
        warn_once(f"{hook.name} cannot be hooked: {error}")
        return False
    return True


def resolve(path: str) -> Any:
    """The object of a dotted path `package.module:Class.method`, None if any part is missing."""
    module_name, _, attributes = path.partition(":")
    try:
        found = importlib.import_module(module_name)
        for attribute in attributes.split(".") if attributes else ():
            found = getattr(found, attribute)
    except Exception as error:
        inform(f"{path} does not resolve: {type(error).__name__}: {error}")
        return None
    return found


def why_unresolved(path: str) -> str | None:
    """Why the object of a dotted path `package.module.Class.method` cannot be had, None if it can."""
    try:
        resolve_name(path)
    except Exception as error:
        reason = _failed_import(path) or error
        # Some reasons have several lines; a log line takes one.
        return " ".join(f"{type(reason).__name__}: {reason}".split())
    return None


def _failed_import(path: str) -> Exception | None:
    # `resolve_name` takes a module that fails to import for an attribute that its package does not have.
    parts = path.split(".")
    for length in range(1, len(parts) + 1):
        module = ".".join(parts[:length])
        try:
            importlib.import_module(module)
        except Exception as error:
            return None if isinstance(error, ImportError) and error.name == module else error
    return None
