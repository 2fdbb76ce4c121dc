"""Kernels: sources as jtgpu passes them to nvcc, compiled by g++, loaded on a device and queued."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray

from tests.support.emulated.cards import CUresult, EmulatedLogicError, Stream, counts, current, lock, queued

CALLS = """
#include <type_traits>
#include <utility>
namespace emulated {
template <class... A, size_t... I>
void call(void (*kernel)(A...), void** p, std::index_sequence<I...>) {
    kernel(*(std::remove_cv_t<std::remove_reference_t<A>>*)p[I]...);
}
template <class... A>
void launch(void (*kernel)(A...), unsigned blocks, unsigned threads, void** p) {
    host::launch(blocks, threads, [=] { call(kernel, p, std::index_sequence_for<A...>()); });
}
template <class... A>
unsigned sizes(void (*)(A...), unsigned* out) {
    const unsigned all[] = {(unsigned)sizeof(A)..., 0};
    for (unsigned i = 0; i < sizeof...(A); i++) out[i] = all[i];
    return sizeof...(A);
}
}
"""
CALL = """
extern "C" void emulated_{0}(unsigned blocks, unsigned threads, void** p) {{
    emulated::launch({0}, blocks, threads, p);
}}
extern "C" unsigned sizes_{0}(unsigned* out) {{ return emulated::sizes({0}, out); }}
"""
ROOT = Path(__file__).parents[3]
SHIM = Path(__file__).with_name("host_cuda.hpp")
# kernels whose blocks wait for each other
TOGETHER = (
    ("dataflow",),
    ("schur_predict", "schur_solve"),
)
_NAMES = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\s*\([^;{]*?\)\s*)?(\w+)\s*\(")
_CONSTANT = re.compile(r"__constant__\s+(\w+)\s+(\w+)\[([^\]]+)\];")
_TIMER = re.compile(r'asm volatile\("mov.u64 %0, %%globaltimer;" : "=l"\((\w+)\)\);')
# Compiled kernels are named by a hash of their source, shared by processes and kept from run to run.
FOLDER = Path(os.environ.get("JTGPU_EMULATED_KERNELS") or ROOT / ".pytest_cache" / "emulated-kernels")
_building: dict[str, threading.Lock] = {}
order = int(os.environ.get("JTGPU_EMULATED_THREADS", "0"))  # order of threads between two barriers, see host_cuda.hpp


def library(text: str, names: tuple[str, ...]) -> Path:
    """Compile a source, as jtgpu passes it to nvcc, by g++, with an entry point for each of its kernels."""
    constants = _CONSTANT.findall(text)
    if constants:  # as on a device: a variable of the module, written by the host
        text = re.sub(r"#ifdef __CUDACC__\s+(__constant__)", r"#if 1\n\1", text)
        text = _CONSTANT.sub(r'extern "C" { \1 \2[\3]; unsigned long bytes_\2 = sizeof(\2); }', text)
    text = _TIMER.sub(r"\1 = (u64)(nanoseconds += 1e15);", text)  # hold.cu ends at once
    text = re.sub(r'extern "C" __global__', "__global__", text)
    calls = "".join(CALL.format(name) for name in names)
    text = f"static double nanoseconds;\n{text}"
    whole = f"{SHIM.read_text(encoding='utf-8')}\n{text}\n{CALLS}\n{calls}"
    # thousands of lines without loops: compiling them takes longer than running them
    options = ["-O0", f"-DHOST_STACK={1 << 20}"] if "batch_lane(Lane" in text else ["-O1"]
    if names in TOGETHER:
        options += ["-DHOST_TOGETHER", "-pthread"]
    key = hashlib.sha256(" ".join([whole, *options]).encode()).hexdigest()[:24]
    out = FOLDER / f"{key}.so"
    with _building.setdefault(key, threading.Lock()):
        if not out.exists():
            start = time.perf_counter()
            out.parent.mkdir(exist_ok=True, parents=True)
            with tempfile.TemporaryDirectory(dir=out.parent) as folder:
                path, part = Path(folder, "kernel.cpp"), Path(folder, "kernel.so")
                path.write_text(whole, encoding="utf-8")
                command = ["g++", *options, "-std=c++17", "-shared", "-fPIC", "-w", "-o", str(part), str(path)]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise AssertionError(f"g++ refuses {names}:\n{done.stderr[:3000]}")
                os.replace(part, out)
            counts["built"] += time.perf_counter() - start
    return out


@lru_cache(maxsize=64)
def names_of(text: str) -> tuple[str, ...]:
    """The kernels of a source, those that macros define included."""
    if "##" in text:
        command = ["g++", "-E", "-P", "-x", "c++", "-"]
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    return tuple(dict.fromkeys(_NAMES.findall(text)))


def kernel(text: str, name: str) -> Callable[..., None]:
    """A kernel as a function, to test it alone: it runs at once, on the arrays whose addresses it gets.

    Parameters
    ----------
    text : str
        A source, as `jtgpu.device.nvcc.read_source` returns it.
    name : str

    Returns
    -------
    callable
        Of the number of blocks, of threads per block, and the parameters as arrays of their bytes.
    """
    call = getattr(ctypes.CDLL(str(library(text, names_of(text)))), f"emulated_{name}")

    def run(blocks: int, threads: int, *parameters: NDArray[Any]) -> None:
        pointers = (ctypes.c_void_p * max(len(parameters), 1))(*[a.ctypes.data for a in parameters])
        with lock:
            call(blocks, threads, pointers)

    return run


class Module:
    """A compiled source, loaded on a device."""

    functions: ClassVar[dict[int, Function]] = {}
    last = 0x100000

    def __init__(self, image: bytes):
        assert image.startswith(b"emulated\n"), "an image that was not compiled here"
        self.card = current()
        self.text = image[len(b"emulated\n") :].decode()
        self.names = names_of(self.text)
        self.open: dict[tuple[str, ...], ctypes.CDLL] = {}
        self.copy: Path | None = None
        self.made: list[Function] = []
        self.symbols: dict[str, tuple[int, int]] = {}
        self.own = bool(_CONSTANT.search(self.text))
        Module.last += 8
        self.number = Module.last

    def loaded(self, names: tuple[str, ...]) -> ctypes.CDLL:
        if names not in self.open:
            path = library(self.text, names)
            if self.own:  # every module has its own constant memory
                folder = tempfile.mkdtemp(prefix="jtgpu-emulated-")
                self.copy = Path(folder, "own.so")
                self.copy.write_bytes(path.read_bytes())
                path = self.copy
            self.open[names] = ctypes.CDLL(str(path))
            if self.own:
                assert self.copy is not None
                self.copy.unlink()
                self.copy.parent.rmdir()
        return self.open[names]

    def function(self, name: str) -> Function:
        if name not in self.names:
            raise EmulatedLogicError(CUresult.CUDA_ERROR_NOT_FOUND, name)
        made = Function(self, name, self.loaded(self.names))
        self.made.append(made)
        return made

    def symbol(self, name: str) -> tuple[int, int]:
        """Address and bytes of its constant memory."""
        if name not in self.symbols:
            found = self.loaded(self.names)
            n_bytes = ctypes.c_ulong.in_dll(found, f"bytes_{name}").value
            address = ctypes.addressof(ctypes.c_char.in_dll(found, name))
            self.symbols[name] = address, n_bytes
            self.card.globals[address] = n_bytes
        return self.symbols[name]

    def unload(self) -> None:
        self.card.drain()
        for address, _ in self.symbols.values():
            del self.card.globals[address]
        for f in self.made:
            Module.functions.pop(f.number, None)
        if self.own:
            for x in self.open.values():
                ctypes_close(x._handle)
        self.open.clear()


ctypes_close = ctypes.CDLL(None).dlclose
ctypes_close.argtypes = [ctypes.c_void_p]


class Function:
    """A kernel: ``pycuda.driver.Function``, and the target of a CUfunction."""

    def __init__(self, module: Module, name: str, found: ctypes.CDLL):
        self.module, self.name = module, name
        self.call = getattr(found, f"emulated_{name}")
        self.call.restype = None
        self.order = ctypes.c_uint.in_dll(found, "host_order")
        sizes = (ctypes.c_uint * 16)()
        n = getattr(found, f"sizes_{name}")(sizes)
        self.sizes = list(sizes)[:n]
        self.allowed = 48 << 10
        self.most_cluster = 8
        Module.last += 8
        self.number = Module.last
        Module.functions[self.number] = self

    def queue(self, stream: Stream, blocks: int, threads: int, parameters: list[bytes]) -> None:
        """Queue it with the current contents of its parameters."""
        kept = [ctypes.create_string_buffer(p, len(p)) for p in parameters]
        pointers = (ctypes.c_void_p * max(len(kept), 1))(*[ctypes.addressof(k) for k in kept])

        def run(_kept: Any = kept) -> None:
            start = time.perf_counter()
            self.order.value = order
            self.call(blocks, threads, pointers)
            counts["seconds"] += time.perf_counter() - start

        counts["launches"] += 1
        queued.append(self.name)
        stream.put(run)

    # PyCUDA's

    def prepare(self, types: str) -> Function:
        assert types == "P" * len(self.sizes)
        return self

    def _launch_kernel(self, grid: Any, block: Any, parameters: bytes, shared: int, stream: Stream | None) -> None:
        with lock:
            assert len(parameters) == sum(self.sizes)
            assert grid[1] == grid[2] == block[1] == block[2] == 1
            if not 0 < block[0] <= 1024 or grid[0] <= 0:
                raise EmulatedLogicError(CUresult.CUDA_ERROR_INVALID_VALUE, f"{grid} {block}")
            parts = [parameters[i : i + 8] for i in range(0, len(parameters), 8)]
            self.queue(stream or current().legacy, grid[0], block[0], parts)
