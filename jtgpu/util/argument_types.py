"""Which argument of a call that failed is not of the type that its annotation declares.

Public functions check the values of their arguments themselves. An argument of a type that nobody thought of ends in an
error of Python or NumPy somewhere below: only then are the annotations read, so calls that succeed do not pay for it,
and an error that no argument explains stays as it is.
"""

from __future__ import annotations

import builtins
import collections.abc
import inspect
import os
import sys
import types
import typing
from collections.abc import Mapping, Set
from itertools import islice
from numbers import Complex, Integral, Real
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from . import options

MOST = 100  # elements of an argument that are checked
NUMBERS = {int: Integral, float: Real, complex: Complex}
WORDS: dict[Any, str] = {
    bool: "True or False", str: "a string", int: "an integer", float: "a number", type(None): "None",
    os.PathLike: "a path", Path: "a path", collections.abc.Callable: "a function", collections.abc.Mapping: "a mapping",
    collections.abc.Iterable: "an iterable", collections.abc.Sequence: "a sequence",
}  # fmt: skip


class _Unknown:
    """Stands for a type that is not imported, or has no simple check: every value is one."""

    def __class_getitem__(cls, _: object) -> type[_Unknown]:
        return cls


class _Names(dict[str, Any]):
    """The names that an annotation may use."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, _Unknown)


def wrong_count(function: Any, args: Any, keywords: Any) -> str:
    """The reason why a call fails that has too few or too many arguments; empty if it has not."""
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **keywords)
    except TypeError as error:
        called = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
        own = [p.replace(annotation=p.empty) for p in signature.parameters.values() if p.name not in ("self", "cls")]
        return f"{called}(): {error}; its arguments are {inspect.Signature(own)}"
    return ""


def wrong_argument(function: Any, args: Any, keywords: Any) -> tuple[str, Any] | None:
    """The type that the first wrong argument must have, in words, and its value; None: there is no such argument."""
    try:
        given = inspect.signature(function).bind(*args, **keywords).arguments
    except TypeError:  # too many or too few
        return None
    names = _Names({
        **vars(typing), **vars(collections.abc), **vars(options), **getattr(sys.modules.get("jtgpu"), "__dict__", {}),
        "os": os, **function.__globals__,
    })  # fmt: skip
    for name, value in given.items():
        declared = str(function.__annotations__.get(name, "_Unknown"))
        if declared.startswith("Unpack["):
            record = names[declared[7:-1]]  # a TypedDict of further keywords
            inner = names | vars(sys.modules[record.__module__])
            kinds = {k: getattr(kind, "__forward_arg__", kind) for k, kind in record.__annotations__.items()}
            pairs = [(k, v, kinds.get(k, Any), inner) for k, v in value.items()]
        else:
            pairs = [(name, value, declared, names)]
        for key, argument, text, known in pairs:
            try:
                kind = eval(text, {}, known) if isinstance(text, str) else text
            except (TypeError, AttributeError, SyntaxError):
                continue
            if not fits(argument, kind):
                return f"{key} must be {_in_words(kind, str(text))}", argument
    return None


def fits(value: Any, kind: Any) -> bool:
    """Whether a value may be of a type; true if that cannot be said."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is None:
        return value is None
    if origin in (Union, types.UnionType):
        return any(fits(value, each) for each in inner)
    if origin is Literal:
        return isinstance(value, str | int | None) and value in inner
    if origin is collections.abc.Callable:
        return callable(value)
    if origin in (collections.abc.Iterable, collections.abc.Sequence, list, tuple):
        return _is_list(value, origin, inner)
    if isinstance(origin, type):
        return isinstance(value, origin) and (
            not isinstance(value, Mapping) or len(inner) != 2
            or all(fits(k, inner[0]) and fits(v, inner[1]) for k, v in islice(value.items(), MOST))
        )  # fmt: skip
    if not isinstance(kind, type) or kind in (_Unknown, object, Any) or getattr(kind, "_is_protocol", False):
        return True
    plain = NUMBERS.get(kind, kind)  # NumPy's numbers are no Python numbers, but registered as such
    return isinstance(value, plain) or (kind is bool and type(value).__name__ == "bool_")


def _is_list(value: Any, origin: Any, inner: tuple[Any, ...]) -> bool:
    """Whether a value can be iterated, and its first elements are of a type; a text is a sequence of texts."""
    if isinstance(value, str | bytes):
        return isinstance(value, str) and fits("", inner[0])
    try:
        iter(value)
    except TypeError:  # NumPy's arrays without axes, too
        return False
    if origin is not collections.abc.Iterable and not hasattr(value, "__len__"):
        return False
    is_known = isinstance(value, list | tuple | Set) or bool(getattr(value, "ndim", None))
    return not is_known or all(fits(each, inner[0]) for each in islice(value, MOST))


def _in_words(kind: Any, declared: str) -> str:
    """A type as a message names it."""
    words: list[str] = []
    for each in get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,):
        origin = get_origin(each) or each
        if origin is Literal:
            words += map(repr, get_args(each))
        elif origin in WORDS:
            words.append(WORDS[origin])
        elif isinstance(origin, type) and origin.__module__.startswith("jtgpu") and origin is not _Unknown:
            words.append(f"{'an' if origin.__name__[0] in 'AEIO' else 'a'} {origin.__name__}")
        else:
            return declared
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
