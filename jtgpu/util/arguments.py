"""Checks of arguments that are not names: numbers, choices. Each error names the argument and its value."""

from __future__ import annotations

import builtins
import collections.abc
import functools
import inspect
import math
import operator
import os
import re
import sys
import types
import typing
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import CO_VARARGS, CO_VARKEYWORDS
from itertools import islice
from numbers import Complex, Integral, Real
from types import FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin

from ..errors import ArgumentError, JtgpuError, closest, shown
from . import options
from .attributes import missing_attribute

if TYPE_CHECKING:
    from numpy.random import Generator


# Keywords that a method does not have are errors that suggest the closest one.

# former words of arguments -> those of today; until the first release
FORMER = {
    "chains": "n_chains", "errors": "standard_errors", "map": "best", "max_table": "max_cpt", "numbers": "continuous",
    "on_impossible": "on_error", "prior": "pseudo_counts graph_prior", "pseudo_count": "pseudo_counts",
    "step": "stepwise", "steps": "ahead", "table": "scores", "time": "seconds", "time_limit": "seconds",
}  # fmt: skip

RECORDS: dict[str, type] = {}  # of options, by name; `jtgpu.options.record` adds them

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def check_keywords(
    unpacked: Mapping[str, Iterable[str]] = MappingProxyType({}), but: Iterable[str] = ()
) -> Callable[[type[T]], type[T]]:
    """A decorator of classes that checks the keywords of the constructor and of all public methods."""
    # unpacked: Annotation of a parameter ``**name``, such as ``"Unpack[More]"`` -> the keywords that it stands for,
    #     unless its module has them. Methods with another annotation check theirs.
    # but: Methods of one argument that loops call, for which a check would take as long as the method

    def decorate(cls: type[T]) -> type[T]:
        if not hasattr(cls, "__getattr__"):
            cls.__getattr__ = missing_attribute  # type: ignore[attr-defined]
        is_result = getattr(vars(cls).get("__dataclass_params__"), "frozen", False)
        for name, value in [*vars(cls).items()]:
            if name in but or (name.startswith("_") and (name != "__init__" or is_result)):
                continue
            if isinstance(value, FunctionType):
                setattr(cls, name, check_keywords_of(unpacked)(value))
            elif isinstance(value, classmethod | staticmethod):
                setattr(cls, name, type(value)(check_keywords_of(unpacked)(value.__func__)))
        return cls

    return decorate


def check_keywords_of(unpacked: Mapping[str, Iterable[str]] = MappingProxyType({})) -> Callable[[F], F]:
    """The same as `check_keywords` for one function; `public_names` does it for the functions of packages."""

    def decorate(function: Any) -> Any:
        code = function.__code__
        n = code.co_argcount + code.co_kwonlyargcount
        known = {*code.co_varnames[code.co_posonlyargcount : n]}
        if code.co_flags & CO_VARKEYWORDS:
            annotation = str(function.__annotations__.get(code.co_varnames[n + bool(code.co_flags & CO_VARARGS)]))
            name = annotation.removeprefix("Unpack[").removesuffix("]")
            more = unpacked.get(annotation, getattr(function.__globals__.get(name), "__annotations__", None))
            if more is None or name == annotation:
                return _checked(function, None)
            known.update(more)
        return _checked(function, known)

    return decorate


def _checked(function: Any, known: set[str] | None) -> Any:
    @functools.wraps(function)
    def called(*args: Any, **keywords: Any) -> Any:
        if keywords and known is not None and not keywords.keys() <= known:
            raise unknown_keyword(function.__qualname__, min(keywords.keys() - known), known, function.__annotations__)
        try:
            return function(*args, **keywords)
        except Exception as error:  # of Python or NumPy: perhaps an argument is of a wrong type
            if isinstance(error, JtgpuError) and not isinstance(error, AttributeError):
                raise
            if reason := wrong_count(function, args, keywords):
                raise ArgumentError(reason) from None
            wrong = wrong_argument(function, args, keywords)
            if wrong is None:
                raise
            raise ArgumentError(f"{wrong[0]}, not {described(wrong[1])}") from None

    return called


def unknown_keyword(
    function: str, name: str, known: Iterable[str], annotations: Mapping[str, object] | None = None
) -> ArgumentError:
    """The error for a keyword that a function does not have: where it is now, the nearest one, or all of them."""
    # annotations: Of the arguments; those that are records of options have further ones
    options = sorted({*known} - {"self", "cls"})
    called = function.removesuffix(".__init__").rpartition(".")[2]
    now = {
        word: f"{keyword}={record.__name__}({word}=...)"
        for keyword, kind in (annotations or {}).items() if keyword in options
        for record in map(RECORDS.get, re.findall(r"\w+", str(kind))) if record is not None
        for word in inspect.signature(record).parameters
    } | {word: f"{word}=" for word in options}  # fmt: skip
    for word in (name, *FORMER.get(name, "").split()):
        if word in now:
            return ArgumentError(f"{called}() has no argument {name!r}; it is {now[word]}")
    # a word that is known elsewhere is not a misspelling
    is_slip = name not in FORMER and not any(name in inspect.signature(each).parameters for each in RECORDS.values())
    hint = (closest(name, now) if is_slip else "") or f"; its arguments are {', '.join(options) or 'none'}"
    for word in now.keys() - {*options}:
        hint = hint.replace(repr(word), now[word])
    return ArgumentError(f"{called}() has no argument {name!r}{hint}")


# Progress messages of long preparations: kernels to compile, engines to measure.

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("jtgpu_progress", default=None)


@contextmanager
def reporting(progress: Callable[[str], None] | None) -> Iterator[None]:
    """Make `report` call `progress` within the block, in the same thread; None: no reports."""
    before = _listener.set(progress)
    try:
        yield
    finally:
        _listener.reset(before)


def report(text: str) -> None:
    """Pass a message to the function that `reporting` has set."""
    progress = _listener.get()
    if progress is not None:
        progress(text)


def whole_number(name: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """An integer: a Python int or a NumPy integer, but no bool."""
    # name: Of the argument
    # least, most: The range that is allowed
    expected = "an integer"
    if least is not None:
        expected += f" of at least {least:,}"
    if most is not None:
        expected += f"{' and' if least is not None else ''} at most {most:,}"
    try:
        if isinstance(value, bool):
            raise TypeError
        integer = operator.index(value)  # a TypeError for NumPy's bools, too
    except TypeError:
        raise ArgumentError(f"{name} must be {expected}, not {described(value)}") from None
    if (least is not None and integer < least) or (most is not None and integer > most):
        raise ArgumentError(f"{name} must be {expected}, not {shown(integer)}")
    return integer


def number(
    name: str, value: Any, *, above: float | None = None, least: float | None = None, most: float | None = None
) -> float:
    """A real number that is not NaN, as a float; infinity is allowed."""
    expected = "a number"
    if above is not None:
        expected += f" above {above:g}"
    if least is not None:
        expected += f" of at least {least:g}"
    if most is not None:
        expected += f"{' and' if expected != 'a number' else ''} at most {most:g}"
    is_number = isinstance(value, Real) and not isinstance(value, bool)  # NumPy's numbers are registered as Real
    try:
        converted = float(value) if is_number else math.nan
    except OverflowError:
        converted = math.inf
    too_small = (above is not None and not converted > above) or (least is not None and not converted >= least)
    if math.isnan(converted) or too_small or (most is not None and converted > most):
        raise ArgumentError(f"{name} must be {expected}, not {described(value)}")
    return converted


def choice(name: str, value: object, allowed: Sequence[str]) -> str:
    """One of several words."""
    # raises ArgumentError: The message suggests the closest word.
    if isinstance(value, str) and value in allowed:
        return value
    hint = closest(value, allowed, 1) if isinstance(value, str) else ""
    words = [repr(a) for a in allowed]
    listed = f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
    raise ArgumentError(f"{name} must be {listed}, not {described(value)}{hint}")


def plain(value: object) -> Any:
    """A text of a subclass of str, such as NumPy's, as a str; anything else as it is."""
    return str.__str__(value) if isinstance(value, str) else value


def several(value: Any) -> list[Any] | None:
    """The elements of an iterable; None for a text and for anything that is not iterable."""
    if isinstance(value, (str, bytes)):
        return None
    try:
        return [plain(x) for x in value]
    except TypeError:  # also for NumPy's arrays without axes
        return None


def names(name: str, value: object) -> list[Any]:
    """The elements of an iterable of names; a name alone is one of them, None is none of them."""
    listed = [value] if isinstance(value, str) else [] if value is None else several(value)
    if listed is None or not all(isinstance(x, Hashable) for x in listed):
        raise ArgumentError(f"{name} must be a name or an iterable of names, not {described(value)}")
    return listed


def mapping(name: str, value: object) -> Mapping[Any, Any]:
    """A mapping; None is an empty one."""
    if value is not None and not isinstance(value, Mapping):
        raise ArgumentError(f"{name} must be a mapping from variable to value, not {described(value)}")
    if value and any(isinstance(key, str) and type(key) is not str for key in value):
        return {plain(key): own for key, own in value.items()}
    return value or {}


def random_generator(seed: Any) -> Generator:
    """A generator of random numbers for the argument `seed`."""
    from numpy.random import default_rng

    try:
        return default_rng(seed)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"seed must be None, an integer of at least 0, or a numpy.random.Generator, not {described(seed)}"
        ) from None


def text(name: str, value: object) -> str:
    """A string."""
    if not isinstance(value, str):
        raise ArgumentError(f"{name} must be a string, not {described(value)}")
    return value


def file_path(name: str, value: object) -> str:
    """The path of a file: a string or an `os.PathLike` of a string."""
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(path, str):
        raise ArgumentError(f"{name} must be a path, as a string or a pathlib.Path, not {described(value)}")
    return path


def new_file_path(name: str, value: object) -> str:
    """The path of a file that will be written: its folder exists, and it is no folder itself."""
    path = file_path(name, value)
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise ArgumentError(f"{name} {path!r}: there is no folder {folder!r}; create it first")
    if os.path.isdir(path):
        raise ArgumentError(f"{name} {path!r} is a folder; name a file in it")
    return path


def flag(name: str, value: object) -> bool:
    """True or False."""
    if isinstance(value, bool) or type(value).__name__ == "bool_":  # NumPy is not imported here
        return bool(value)
    raise ArgumentError(f"{name} must be True or False, not {described(value)}")


def described(value: object) -> str:
    """The value; for most types with the type, since ``'3'`` and ``3`` look alike."""
    if value is None or isinstance(value, (bool, float)):
        return shown(value)
    return f"the {type(value).__name__} {shown(value)}"


def callback(name: str, value: object) -> None:
    """Check for a function, or None."""
    if value is not None and not callable(value):
        raise ArgumentError(f"{name} must be a function or None, not {described(value)}")


def having(name: str, value: object, attribute: str, expected: str) -> None:
    """Check for an object by an attribute that only objects of its class have; so that the class is not imported."""
    if not hasattr(value, attribute):
        raise ArgumentError(f"{name} must be {expected}, not {described(value)}")


MOST = 100  # elements of an argument that are checked
NUMBERS = {int: Integral, float: Real, complex: Complex}
WORDS: dict[Any, str] = {
    bool: "True or False", str: "a string", int: "an integer", float: "a number", type(None): "None",
    collections.abc.Callable: "a function", collections.abc.Mapping: "a mapping",
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


# An argument of a type that nobody thought of ends in an error of Python or NumPy somewhere below. Only then are the
# annotations read: calls that succeed do not pay for it, and an error that no argument explains stays as it is.


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
    """The type that the first wrong argument must have, in words, and its value. None if all types are right."""
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


def fits(value: object, kind: object) -> bool:
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


def _is_list(value: Any, origin: Any, inner: tuple[object, ...]) -> bool:
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


def _in_words(kind: object, declared: str) -> str:
    """A type as a message names it."""
    words: list[str] = []
    for each in get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,):
        origin = get_origin(each) or each
        if origin is Literal:
            words += map(repr, get_args(each))
        elif origin in WORDS:
            words.append(WORDS[origin])
        elif isinstance(origin, type) and issubclass(origin, os.PathLike):
            words.append("a path")
        elif isinstance(origin, type) and origin.__module__.startswith("jtgpu") and origin is not _Unknown:
            words.append(f"{'an' if origin.__name__[0] in 'AEIO' else 'a'} {origin.__name__}")
        else:
            return declared
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
