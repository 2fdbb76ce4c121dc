"""Keywords that a method does not have are errors that suggest the closest one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from inspect import CO_VARKEYWORDS
from types import FunctionType
from typing import Any, TypeVar

from ..errors import ArgumentError, closest

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def check_keywords(unpacked: Mapping[str, Iterable[str]]) -> Callable[[type[T]], type[T]]:
    """A decorator of classes that checks the keywords of all public methods."""
    # unpacked: Annotation of a parameter ``**name``, such as ``"Unpack[More]"`` -> the keywords that it stands for.
    #     Methods with another annotation check theirs.

    def decorate(cls: type[T]) -> type[T]:
        for name, function in [*vars(cls).items()]:
            if isinstance(function, FunctionType) and not name.startswith("_"):
                setattr(cls, name, check_keywords_of(unpacked)(function))
        return cls

    return decorate


def check_keywords_of(unpacked: Mapping[str, Iterable[str]]) -> Callable[[F], F]:
    """The same as `check_keywords` for one function."""

    def decorate(function: Any) -> Any:
        code = function.__code__
        n = code.co_argcount + code.co_kwonlyargcount
        known = {*code.co_varnames[code.co_posonlyargcount : n]}
        if code.co_flags & CO_VARKEYWORDS:
            more = unpacked.get(function.__annotations__[code.co_varnames[n]])
            if more is None:
                return function
            known.update(more)
        return _checked(function, known)

    return decorate


def _checked(function: Any, known: set[str]) -> Any:
    @functools.wraps(function)
    def called(*args: Any, **keywords: Any) -> Any:
        if keywords and not keywords.keys() <= known:
            name = min(keywords.keys() - known)
            options = sorted(known - {"self"})
            hint = closest(name, options) or f"; its arguments are {', '.join(options) or 'none'}"
            raise ArgumentError(f"{function.__name__}() has no argument {name!r}{hint}")
        return function(*args, **keywords)

    return called
