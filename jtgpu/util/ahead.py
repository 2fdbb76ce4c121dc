"""The extension module of compiled loops, built with the package: ``python -m jtgpu.util.ahead``.

Numba compiles every declared function (`jtgpu.util.jit.compiled`) for a level of processors, and
`jtgpu.util.machine_code` keeps the machine code; this module writes the C functions that Python calls, and links both.
The result needs neither Numba nor llvmlite. `jtgpu.util.loops` loads it.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from .loop_sources import source_digest
from .loops import LEVELS, add_checksum, extension
from .machine_code import Entry
from .signatures import Array, NumberType, RecordType, Type
from .system import cores

# Builds the extension modules of compiled loops: one process a core compiles, then the C compiler links.

# The C source of an extension module: for every entry a function that reads Python's arguments and calls the loop.

C_TYPES = {"b1": "int8_t", "u1": "uint8_t", "i4": "int32_t", "i8": "int64_t", "u8": "uint64_t", "f8": "double"}
RANGES = {"u1": ("0", "UINT8_MAX"), "i4": ("INT32_MIN", "INT32_MAX"), "i8": ("INT64_MIN", "INT64_MAX")}
NUMPY = {"b1": "BOOL", "u1": "UINT8", "i4": "INT32", "i8": "INT64", "u8": "UINT64", "f8": "DOUBLE"}
FEATURES = {"x86-64-v3": ("avx2", "bmi", "bmi2", "fma", "popcnt")}
RUNTIME = Path(__file__).with_name("runtime.c")


class _Arguments:
    """Declarations, checks and arguments in C for the arguments of a function."""

    def __init__(self, types: Sequence[Type]):
        self.declared: list[str] = []
        self.checks: list[str] = []
        self.passed: list[str] = []
        self.taken: list[str] = []  # types of `passed`
        self._n = 0
        for i, kind in enumerate(types):
            self._add(kind, f"args[{i}]")

    def _add(self, kind: Type, value: str) -> None:
        name = f"a{self._n}"
        self._n += 1
        if isinstance(kind, RecordType):
            self.checks.append(f"PyTuple_Check({value}) && PyTuple_GET_SIZE({value}) == {len(kind.items)}")
            for i, item in enumerate(kind.items):
                self._add(item, f"PyTuple_GET_ITEM({value}, {i})")
        elif isinstance(kind, Array):
            self._add_array(kind, name, value)
        else:
            self._add_number(kind.code, name, value)

    def _add_array(self, kind: Array, name: str, value: str) -> None:
        self.declared.append(f"Array{kind.ndim} {name};")
        letter, size = ("b", 1) if kind.code == "b1" else (kind.code[0], int(kind.code[1]))
        self.checks.append(
            f"get_array({value}, '{letter}', {size}, {kind.ndim}, {int(kind.constant)}, "
            f"&{name}.head, {name}.shape, {name}.strides)"
        )
        self.passed += [f"{name}.head.{field}" for field in ("memory", "parent", "items", "item", "data")]
        self.taken += ["void *", "void *", "int64_t", "int64_t", "void *"]
        for field in ("shape", "strides"):
            self.passed += [f"{name}.{field}[{j}]" for j in range(kind.ndim)]
            self.taken += ["int64_t"] * kind.ndim

    def _add_number(self, code: str, name: str, value: str) -> None:
        if code == "f8":
            self.declared.append(f"double {name};")
            self.checks.append(f"get_float({value}, &{name})")
        elif code == "u8":
            self.declared.append(f"uint64_t {name};")
            self.checks.append(f"get_unsigned({value}, &{name})")
        elif code == "b1":
            self.declared.append(f"int8_t {name};")
            self.checks.append(f"get_bool({value}, &{name})")
        else:
            self.declared.append(f"int64_t {name};")
            self.checks.append(f"get_int({value}, {', '.join(RANGES[code])}, &{name})")
        self.passed.append(f"({C_TYPES[code]}){name}")
        self.taken.append(C_TYPES[code])


def _result_type(kind: Type) -> str:
    if isinstance(kind, RecordType):
        return "struct { " + " ".join(f"{_result_type(item)} f{i};" for i, item in enumerate(kind.items)) + " }"
    if isinstance(kind, Array):
        return f"Array{kind.ndim}"
    return C_TYPES[kind.code] if kind.code else "void *"


def _python_object(kind: Type, value: str) -> str:
    """An expression that makes Python's object of a result; NULL with an error set if it cannot."""
    if isinstance(kind, RecordType):
        items = ", ".join(_python_object(item, f"{value}.f{i}") for i, item in enumerate(kind.items))
        built = f'Py_BuildValue("({"N" * len(kind.items)})", {items})'
        if kind.kind is None:
            return built
        return f'make_record("{kind.kind.__module__}", "{kind.kind.__qualname__}", {built})'
    if isinstance(kind, Array):
        return f"make_array(NPY_{NUMPY[kind.code]}, {kind.ndim}, &{value}.head, {value}.shape, {value}.strides)"
    if kind.code == "f8":
        return f"PyFloat_FromDouble({value})"
    if kind.code == "b1":
        return f"PyBool_FromLong({value})"
    return f"PyLong_FromUnsignedLongLong({value})" if kind.code[0] == "u" else f"PyLong_FromLongLong({value})"


def _function(entry: Entry) -> str:
    arguments = _Arguments(entry.arguments)
    short = entry.symbol
    taken = ", ".join([f"result_{short} *", "const Error **", *arguments.taken])
    passed = ", ".join(["&result", "&error", *arguments.passed])
    nothing = isinstance(entry.result, NumberType) and not entry.result.code
    returned = "Py_RETURN_NONE;" if nothing else f"return {_python_object(entry.result, 'result')};"
    checks = "\n        || ".join(f"!({check})" for check in arguments.checks)
    text = f"""
typedef {_result_type(entry.result)} result_{short};
extern int {short}({taken});

static PyObject *call_{short}(PyObject *self, PyObject *const *args, Py_ssize_t n)
{{
    {" ".join(arguments.declared)}
    result_{short} result;
    const Error *error = NULL;
    int status;
    if (n != {len(entry.arguments)}
        || {checks})
        return call_fallback("{entry.name}", args, n);
    Py_BEGIN_ALLOW_THREADS
    status = {short}({passed});
    Py_END_ALLOW_THREADS
    if (status != 0 && status != -2)
        return raise_error(status, error);
    {returned}
}}
static PyMethodDef method_{short} = {{
    "{entry.name.rpartition(".")[2]}", (PyCFunction)(void (*)(void))call_{short}, METH_FASTCALL, NULL}};
"""
    if has_address(entry):
        names = [f"a{i}" for i in range(len(arguments.taken))]
        text += f"""
static {_result_type(entry.result)} plain_{short}({", ".join(map(" ".join, zip(arguments.taken, names, strict=True)))})
{{
    result_{short} result;
    const Error *error = NULL;
    {short}({", ".join(["&result", "&error", *names])});
    return result;
}}
"""
    return text


def has_address(entry: Entry) -> bool:
    """Whether compiled code may call an entry by its address: its arguments and its result are numbers."""
    return all(isinstance(t, NumberType) and t.code for t in (*entry.arguments, entry.result))


def source(entries: Sequence[Entry], module: str, level: str, digest: str) -> str:
    """The C source of an extension module."""
    # module: Its name
    # level: Of the processors that it runs on
    # digest: See `jtgpu.util.loop_sources.source_digest`
    lacking = " || ".join(f'!__builtin_cpu_supports("{f}")' for f in FEATURES.get(level, ())) or "0"
    functions = "\n".join(
        f'    if (add(functions, "{e.name}", PyCFunction_New(&method_{e.symbol}, NULL)) < 0) goto failed;'
        for e in entries
    )
    addresses = "\n".join(
        f'    if (add(addresses, "{e.name}", PyLong_FromVoidPtr((void *)plain_{e.symbol})) < 0) goto failed;'
        for e in entries
        if has_address(e)
    )
    return (
        RUNTIME.read_text(encoding="utf-8")
        + "".join(map(_function, entries))
        + f"""
static int add(PyObject *to, const char *name, PyObject *value)
{{
    int done = value == NULL ? -1 : PyDict_SetItemString(to, name, value);
    Py_XDECREF(value);
    return done;
}}

static PyMethodDef methods[] = {{
    {{"set_fallback", set_fallback, METH_O, "Set what is called with a name and arguments that no signature fits."}},
    {{NULL, NULL, 0, NULL}}}};
static struct PyModuleDef definition = {{
    PyModuleDef_HEAD_INIT, "jtgpu.{module}", "Compiled loops for {level}; see jtgpu.util.loops.", -1, methods,
    NULL, NULL, NULL, NULL}};

PyMODINIT_FUNC PyInit_{module}(void)
{{
    if ({lacking}) {{
        PyErr_SetString(PyExc_ImportError, "this processor is older than {level}");
        return NULL;
    }}
    import_array();
    PyObject *made = PyModule_Create(&definition), *functions = PyDict_New(), *addresses = PyDict_New();
    if (made == NULL || functions == NULL || addresses == NULL) goto failed;
{functions}
{addresses}
    Py_INCREF(functions);
    Py_INCREF(addresses);
    if (PyModule_AddObject(made, "functions", functions) < 0 || PyModule_AddObject(made, "addresses", addresses) < 0
        || PyModule_AddStringConstant(made, "digest", "{digest}") < 0
        || PyModule_AddStringConstant(made, "level", "{level}") < 0) goto failed;
    return made;
failed:
    Py_XDECREF(made);
    return NULL;
}}
"""
    )


PAUSE = 10.0  # seconds between two lines about the progress


def _report(line: str) -> None:
    print(line, flush=True)  # make and CI read a pipe


class BuildError(Exception):
    """The loops cannot be compiled ahead; the message says what is missing."""


def build(folder: Path, level: str = "x86-64-v3", report: Callable[[str], None] = _report) -> Path:
    """Build the extension module for a level of processors; returns its path."""
    # folder: Where to write it; the package's folder, in a build
    # level: A key of `jtgpu.util.loops.LEVELS`
    # report: Gets lines about the progress
    # raises BuildError: If Numba or the C compiler is missing or fails.
    started = time.perf_counter()
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise BuildError(f"there is no way to build them for {platform.machine()} on {sys.platform} yet")
    module = LEVELS[level]
    target = folder / f"{module}{sysconfig.get_config_var('EXT_SUFFIX')}"
    # Numba reads these when it is imported, in the processes of the pool
    os.environ.update(NUMBA_CPU_NAME=level, NUMBA_CPU_FEATURES="", NUMBA_OPT="3")
    try:
        # imports Numba
        from .machine_code import compile_entry, entries
    except ImportError as error:
        raise BuildError(f"{error.name or error} is not installed") from error
    with tempfile.TemporaryDirectory(prefix="jtgpu-loops-") as scratch:
        names = entries()
        report(f"compiling {len(names)} loops for {level} on {cores()} cores")
        with ProcessPoolExecutor(cores(), get_context("spawn")) as pool:
            compiled, shown = [], started
            for entry in pool.map(compile_entry, names, [level] * len(names), [scratch] * len(names)):
                compiled.append(entry)
                if time.perf_counter() - shown > PAUSE:
                    shown = time.perf_counter()
                    report(f"  {len(compiled)} of {len(names)} loops, {shown - started:.0f} s")
        _check(compiled)
        text = Path(scratch, "loops.c")
        text.write_text(source(compiled, module, level, source_digest()), encoding="utf-8")
        _link(text, [entry.object_file for entry in compiled], target)
    seconds, size = time.perf_counter() - started, target.stat().st_size / 2**20
    report(f"built {target.name}: {len(names)} loops, {size:.1f} MiB, in {seconds:.0f} s")
    return target


def current() -> Path | None:
    """The package's extension module, if it was built from these sources."""
    module, _ = extension()
    return None if module is None else Path(module.__file__)


def _check(entries: list[Entry]) -> None:
    """Make sure that the runtime has what the loops call of Numba's."""

    text = RUNTIME.read_text(encoding="utf-8")
    for entry in entries:
        missing = [name for name in entry.needs if name.startswith(("NRT_", "numba_")) and f"{name}(" not in text]
        if missing:
            raise BuildError(f"{entry.name} calls {', '.join(missing)}, which runtime.c lacks")


def _link(text: Path, objects: list[str], target: Path) -> None:
    import numpy

    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    command = [
        *compiler, "-O2", "-fPIC", "-shared", "-s", "-fvisibility=hidden", f"-I{sysconfig.get_path('include')}",
        f"-I{numpy.get_include()}", str(text), *objects, "-lm", "-o", str(target),
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BuildError(f"the C compiler {compiler[0]} cannot be run ({error.strerror})") from error
    if done.returncode:
        raise BuildError(f"the C compiler failed: {done.stderr.strip()[-2000:]}")
    add_checksum(target)


def main(arguments: list[str]) -> int:
    """Build into a folder, the package's by default; returns the exit code.

    Where the package has an extension module of these sources already, it is copied.
    """
    folder = Path(arguments[0]) if arguments else Path(__file__).parents[1]
    try:
        if existing := current():
            print(f"{existing.name} is up to date")
            if existing.parent.resolve() != folder.resolve():
                shutil.copy2(existing, folder)
        else:
            build(folder)
    except Exception as error:  # whatever Numba or the linker reports: the package works without
        text = error if isinstance(error, BuildError) else f"{type(error).__name__}: {error}"
        print(f"jtgpu: no compiled loops ({text}); they are compiled on first use", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
