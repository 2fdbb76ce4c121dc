"""`compiled`: Numba's njit with declared signatures and a cache of our own.

Numba caches compiled functions on disk, and compiles one again when its own file changes. A change of a function that
was inlined from another file goes unnoticed: after an update of one file, old machine code would run on new data. In
`jtgpu.util.jit_cache` every cached function depends on every file with compiled functions.

A function that Python calls is *declared*: its decorator lists the signatures that it is called with (see
`jtgpu.util.ahead.signatures`), for which it is compiled ahead of time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numba import njit

from .ahead.signatures import Array, numba_types, parse
from .jit_cache import LoopCache

_cached = True


def use_cache(chosen: bool) -> None:
    """Whether functions of modules that are imported from now on use the cache on disk."""
    global _cached
    _cached = chosen


declared: dict[str, tuple[Any, tuple[str, ...]]] = {}  # by full name: the dispatcher, its signatures


def compiled(*signatures: str, allocates: bool = True, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: ``numba.njit`` without the interpreter's lock, dividing as NumPy does, cached."""
    # *signatures: Types of the arguments with which Python calls the function; none for a function that only compiled
    #     code calls
    # allocates: False for a function that makes no array, as some callees of compiled functions: then Numba counts no
    #     references, which takes longer than the work where arrays of NamedTuples are used in loops
    # **options: Options of ``numba.njit``

    def decorate(function: Callable[..., Any]) -> Any:
        jit: Any = njit  # its types know no _nrt
        dispatcher = jit(nogil=True, error_model="numpy", _nrt=allocates, **options)(function)
        if _cached:
            dispatcher._cache = LoopCache(function)
        if signatures:
            declared[full_name(function)] = dispatcher, signatures
        return dispatcher

    return decorate


def full_name(function: Any) -> str:
    """Name of a function with its module's."""
    return f"{function.__module__}.{function.__qualname__}"


def undeclared() -> list[str]:
    """Declared functions that were compiled for arguments which no signature of theirs lists, with these; for tests."""
    found = []
    for name, (function, signatures) in declared.items():
        if function.signatures:
            listed = [numba_types(signature, function.py_func.__globals__) for signature in signatures]
            found += [f"{name}{arguments}" for arguments in function.signatures if arguments not in listed]
    return found


def entry(function: Any) -> Any:
    """What Python calls in place of a declared function: constant arrays become read-only views.

    Numba would compile the function again for every combination of arrays that may and may not be written.
    """
    found = declared.get(full_name(function))
    constant = () if found is None else _constants(found[1][0], function.py_func.__globals__)
    if not constant:
        return function

    def call(*arguments: Any) -> Any:
        given = list(arguments)
        for i in constant:
            array = given[i]
            if array.flags.writeable:
                given[i] = array = array.view()
                array.flags.writeable = False
        return function(*given)

    return call


def _constants(signature: str, names: Mapping[str, Any]) -> tuple[int, ...]:
    """Places of the arguments that are constant arrays."""
    return tuple(i for i, kind in enumerate(parse(signature, names)) if isinstance(kind, Array) and kind.constant)


def inlined(function: Callable[..., Any]) -> Any:
    """A decorator for a part of a `compiled` function, which Numba inlines and never compiles alone.

    A call would pass a NamedTuple of arrays as dozens of arguments.
    """
    return njit(nogil=True, error_model="numpy", inline="always")(function)


def is_compiled(function: Any) -> bool:
    """Whether a declared function is compiled, in this process or in the cache."""
    if function.signatures:
        return True
    _, signatures = declared[full_name(function)]
    codegen = function.targetctx.codegen()
    return all(
        function._cache.contains(numba_types(signature, function.py_func.__globals__), codegen)
        for signature in signatures
    )


def address_of(function: Any) -> int:
    """Address of a declared function for callers by the C convention; compiles it if necessary.

    Numba builds a callee into each of its callers. A large function that has many callers is called by its address
    instead, so that it is compiled once.
    """
    # function: Made by `compiled` with one signature; must not raise
    _, (signature,) = declared[full_name(function)]
    arguments = numba_types(signature, function.py_func.__globals__)
    function.compile(arguments)
    found = function.overloads[arguments]
    return int(found.library.get_pointer_to_function(found.fndesc.llvm_cfunc_wrapper_name))
