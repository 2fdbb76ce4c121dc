"""Machine code of declared functions: each compiled by Numba, kept as an object file for the linker.

Runs in processes for which the environment names the processor (see `build`): Numba compiles just as it does at run
time, with the same options and optimisations, and only the last step, from LLVM's representation to machine code, is
made for a shared object.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite.binding as llvm

from . import jit
from .loop_sources import loop_modules
from .signatures import Type, numba_types, parse, type_of

# Functions that make Python objects for the text of an error, such as the shapes of an assignment that do not match:
# they need Numba at run time. The error is raised without.
ERROR_DETAILS = re.compile(r"^(define [^\n]*@__excinfo_unwrap_args[^\n]*\{)\n.*?^\}\n", re.MULTILINE | re.DOTALL)


class Entry(NamedTuple):
    """A function of the extension module."""

    name: str  # full name
    symbol: str  # of its machine code
    arguments: tuple[Type, ...]
    result: Type
    object_file: str
    needs: tuple[str, ...]  # symbols that it calls


def entries() -> list[str]:
    """Full names of all declared functions; imports their modules."""
    for name in loop_modules():
        importlib.import_module(name)
    return sorted(jit.declared)


def compile_entry(name: str, cpu: str, folder: str) -> Entry:
    """Compile a function for its signature."""
    # name: Full name
    # cpu: Level of processors, by LLVM's name
    # folder: For the object file
    jit.use_cache(False)  # the cache holds machine code, which cannot be linked
    importlib.import_module(name.rpartition(".")[0])
    function, (signature,) = jit.declared[name]
    names = function.py_func.__globals__
    types = numba_types(signature, names)
    function.compile(types)
    overload = function.overloads[types]
    symbol = "jtgpu_" + name.replace(".", "_")
    module = llvm.parse_assembly(ERROR_DETAILS.sub(r"\1\n  ret ptr null\n}\n", overload.library.get_llvm_str()))
    _keep(module, overload.fndesc.llvm_func_name, symbol)
    path = Path(folder, f"{symbol}.o")
    path.write_bytes(_machine(cpu).emit_object(module))
    needs = tuple(f.name for f in module.functions if f.is_declaration and not f.name.startswith("llvm."))
    return Entry(name, symbol, parse(signature, names), type_of(overload.signature.return_type), str(path), needs)


def _keep(module: Any, function: str, symbol: str) -> None:
    """Drop all that a function does not need, such as Numba's wrappers for Python; name it `symbol`."""
    for item in (*module.functions, *module.global_variables):
        if not item.is_declaration:
            if item.name == function:
                item.name = symbol
            elif item.name.startswith("_ZN08NumbaEnv") or item.linkage != llvm.Linkage.private:
                item.linkage = "internal"
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    tuning = llvm.create_pipeline_tuning_options()
    passes.run(module, llvm.create_pass_builder(_machine(""), tuning))
    left = [g.name for g in module.global_variables if g.name.startswith("_ZN08NumbaEnv")]
    if left:
        raise RuntimeError(f"{symbol} needs Numba's environment: {left}")
    module.verify()


def _machine(cpu: str) -> Any:
    """LLVM's target for code that can be linked into a shared object."""
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(cpu=cpu, features="", opt=3, reloc="pic", codemodel="default")
