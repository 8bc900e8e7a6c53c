"""Values of options as they are nearly always given, converted without typer, which imports pydantic for that.

Its import takes longer than many an analysis. Whatever is not plain (a wrong value above all) is left to typer, so that
what is allowed, and what is said about the rest, is in one hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from typer.core import TyperCommand, TyperGroup


class PlainCommand(TyperCommand):
    """A command that converts plain values by itself."""

    annotations: Mapping[str, Any] = {}
    """Of its parameters by name: the type, annotated with the option that describes it."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, that for the help among them."""
        return [_converting(one, self.annotations) for one in super().get_params(ctx)]


class PlainGroup(TyperGroup):
    """A group whose options are not converted if they are not given."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, those for help and completion among them."""
        return [_converting(one, {}) for one in super().get_params(ctx)]


class _NotPlainError(Exception):
    """The value is for typer to convert, or to refuse."""


def _converting(parameter: Any, annotations: Mapping[str, Any]) -> Any:
    if not isinstance(parameter.process_value, partial):
        annotation = annotations.get(parameter.name)
        parameter.process_value = partial(_process, parameter, parameter.process_value, annotation)
    return parameter


def _process(parameter: Any, by_typer: Callable[..., Any], annotation: Any, context: Any, value: Any) -> Any:
    """What typer's own method does, for a plain value."""
    try:
        if value is not None:
            value = _converted(annotation, value)
        elif parameter.required:
            return by_typer(context, value)
        elif parameter.multiple or parameter.nargs == -1:
            value = ()
    except _NotPlainError:
        return by_typer(context, value)
    return value if parameter.callback is None else parameter.callback(context, parameter, value)


def _converted(annotation: Any, value: Any) -> Any:
    if not hasattr(annotation, "__metadata__"):
        raise _NotPlainError
    kind, about = annotation.__origin__, annotation.__metadata__[0]
    if get_origin(kind) in (Union, UnionType):
        kind = next(one for one in get_args(kind) if one is not NoneType)
    if kind == list[str] and type(value) in (tuple, list) and value and all(type(one) is str for one in value):
        return list(value)
    if kind in (str, bool) and type(value) is kind:
        return value
    if kind is int:
        return _integer(about, value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        for member in kind:
            if value is member or (type(value) is str and value == member.value):
                return member
    raise _NotPlainError


def _integer(about: Any, value: Any) -> int:
    if type(value) is str and value.isascii() and value.isdigit() and len(value) < 19:
        value = int(value)
    if type(value) is not int or about.max is not None or (about.min is not None and value < about.min):
        raise _NotPlainError
    return value
