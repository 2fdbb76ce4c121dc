"""`compiled`: Numba's njit with declared signatures and a cache of our own.

Numba caches compiled functions on disk, and compiles one again when its own file changes. A change of a function that
was inlined from another file goes unnoticed: after an update of one file, old machine code would run on new data. In
`jtgpu.util.jit_cache` every cached function depends on every file with compiled functions.

A function that Python calls is *declared*: its decorator lists the signatures that it is called with (see
`jtgpu.util.signatures`), for which it is compiled ahead of time.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import logging
import os
import pickle
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numba
from llvmlite import ir
from numba import njit, types
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps
from numba.extending import intrinsic as _intrinsic

from .atomic_file import write_bytes
from .loop_sources import ROOT, source_digest
from .signatures import Array, numba_types, parse
from .system import cache_folder

# Machine code of compiled loops on disk, for packages that were built without the extension module.
#
# Each function and signature is a file: a digest, then the pickled code. A file that is damaged, empty, cut off or
# foreign is ignored and written again; a folder that is full or cannot be written only costs the next process the
# compilation. Numba's own cache ends the process in these cases.
#
# The folder is ``loops`` in ``JTGPU_CACHE_DIR`` if that is set, else ``__pycache__`` in the package's folder, else in
# the user's cache folder; if none of them can be written, a private temporary one, which ends with the process.

_rebuild: Any = CompileResult._rebuild  # not public: what Numba's own cache uses
_dumps: Any = dumps
MAGIC = b"jtgpu loop 1\n"
logger = logging.getLogger("jtgpu")


def _candidates() -> list[Path]:
    if os.environ.get("JTGPU_CACHE_DIR"):
        return [cache_folder() / "loops"]
    folders = [ROOT / "__pycache__" / "loops"]
    with contextlib.suppress(RuntimeError):  # no home folder
        folders.append(cache_folder() / "loops")
    return folders


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


@functools.cache
def loops_folder() -> Path:
    """Where compiled loops are cached. Warns once if that is a temporary folder."""
    candidates = _candidates()
    for folder in candidates:
        if _is_writable(folder):
            return folder
    private = tempfile.mkdtemp(prefix="jtgpu-loops-")  # only this user may read and write it
    atexit.register(shutil.rmtree, private, ignore_errors=True)
    warnings.warn(
        f"compiled loops cannot be cached in {' or '.join(map(str, candidates))}: every process compiles them again; "
        "set JTGPU_CACHE_DIR to a folder that can be written",
        RuntimeWarning,
        stacklevel=2,
    )
    return Path(private)


class LoopCache:
    """The cache of one function, as Numba's dispatchers use it."""
    # function: The Python function

    def __init__(self, function: Any):
        self._name = f"{function.__module__}.{function.__qualname__}"

    @property
    def cache_path(self) -> str:
        """The folder."""
        return str(loops_folder())

    def _key(self, signature: Any, codegen: Any) -> bytes:
        """Digest of all that the machine code depends on."""
        key = (self._name, str(signature), codegen.magic_tuple(), numba.__version__, sys.version, source_digest())
        return hashlib.sha256(repr(key).encode()).digest()

    def path(self, signature: Any, codegen: Any) -> Path:
        """The file of a signature."""
        short = self._name.removeprefix("jtgpu.").replace(".loops.", ".")
        return loops_folder() / f"{short}-{self._key(signature, codegen).hex()[:24]}.bin"

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """The compiled function for a signature; None if there is none that can be used."""
        target_context.refresh()
        codegen = target_context.codegen()
        body = self._body(signature, codegen)
        if not body:
            return None
        try:
            return _rebuild(target_context, *pickle.loads(body))
        except Exception:
            path = self.path(signature, codegen)
            logger.debug("%s cannot be loaded; the function is compiled again", path, exc_info=True)
            return None

    def _body(self, signature: Any, codegen: Any) -> bytes:
        """The pickled code of a signature; empty if there is no file of it, or a damaged one."""
        path = self.path(signature, codegen)
        try:
            data = path.read_bytes()
        except OSError:
            return b""
        start = len(MAGIC) + hashlib.sha256().digest_size
        if data[:start] != MAGIC + hashlib.sha256(self._key(signature, codegen) + data[start:]).digest():
            logger.debug("%s is damaged; the function is compiled again", path)
            return b""
        return data[start:]

    def save_overload(self, signature: Any, result: Any) -> None:
        """Write a compiled function; without an error if that is impossible."""
        if result.library.has_dynamic_globals:  # addresses of this process
            return
        try:
            body: bytes = _dumps(result._reduce())
            digest = hashlib.sha256(self._key(signature, result.codegen) + body).digest()
            write_bytes(self.path(signature, result.codegen), MAGIC + digest + body, durable=False)
        except OSError as error:
            logger.debug("%s is not cached: %s", self._name, error)

    def contains(self, signature: Any, codegen: Any) -> bool:
        """Whether there is an undamaged file of a signature."""
        return bool(self._body(signature, codegen))

    def enable(self) -> None:
        """Part of Numba's interface."""

    def disable(self) -> None:
        """Part of Numba's interface."""

    def flush(self) -> None:
        """Part of Numba's interface."""


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
    missing = []
    for name, (function, signatures) in declared.items():
        if function.signatures:
            listed = [numba_types(signature, function.py_func.__globals__) for signature in signatures]
            missing += [f"{name}{arguments}" for arguments in function.signatures if arguments not in listed]
    return missing


def entry(function: Any) -> Any:
    """The function that Python calls in place of a declared one: constant arrays become read-only views.

    Numba would compile the function again for every combination of arrays that may and may not be written.
    """
    known = declared.get(full_name(function))
    constant = () if known is None else _constants(known[1][0], function.py_func.__globals__)
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
    overload = function.overloads[arguments]
    return int(overload.library.get_pointer_to_function(overload.fndesc.llvm_cfunc_wrapper_name))


# Intrinsics: instructions of LLVM as functions of compiled code.

Builder: TypeAlias = ir.IRBuilder
Value: TypeAlias = ir.Value
Operands: TypeAlias = Sequence[ir.Value]
Build = Callable[[Builder, Operands], Value | None]


def intrinsic(function: Callable[..., Any]) -> Any:
    """`numba.extending.intrinsic`, typed for callers in compiled code (without the typing context)."""
    return _intrinsic(function)


def operation(result: types.Type, *arguments: types.Type) -> Callable[[Build], Any]:
    """A decorator: an intrinsic of these types from a function of an LLVM builder and the values of the arguments."""

    def decorate(build: Build) -> Any:
        def generate(context: Any, builder: Builder, signature: Any, args: Operands) -> Value:
            made = build(builder, args)
            return context.get_dummy_value() if made is None else made

        pair = result(*arguments), generate
        # Numba inspects the names of the arguments
        typed = (
            lambda typing: pair,
            lambda typing, a: pair,
            lambda typing, a, b: pair,
            lambda typing, a, b, c: pair,
            lambda typing, a, b, c, d: pair,
            lambda typing, a, b, c, d, e: pair,
            lambda typing, a, b, c, d, e, f: pair,
        )[len(arguments)]
        typed.__name__, typed.__doc__ = build.__name__, build.__doc__
        return intrinsic(typed)

    return decorate
