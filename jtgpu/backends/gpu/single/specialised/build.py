"""Sources of the kernels that have codes, and their compilation, side by side, through the cache of cubins."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from .....device import nvcc as kernels
from .shape_plan import Kernel

__all__ = ["Progress", "build", "built_slab", "source_of"]

Progress = Callable[[int, int], None]

_REAL = {"float64": "double", "float32": "float"}

_SOURCE = """#define BLOCKS {blocks}
#include "single/shape.cuh"

{types}

__device__ __forceinline__ void run_shape(const Program& p, const Job& job, u32 warp, u32 lane, real* shared,
                                          int* tops) {{
    switch (job.shape) {{
{cases}
        default: __trap();
    }}
}}

#include "single/shaped.cuh"
"""


def source_of(kernel: Kernel, real: str = "float64") -> str:
    """One kernel, whole: headers joined in, types chosen."""
    codes = kernel.codes
    types = "\n".join(f"using Shape{i} = {c.text};" for i, c in enumerate(codes))
    call = "run_contraction<Shape{0}>(p, job, warp, lane, shared, tops); break;"
    cases = "\n".join(f"        case {i}: {call.format(i)}" for i in range(len(codes)))
    return f"#define JT_REAL {_REAL[real]}\n" + kernels.with_headers(
        _SOURCE.format(blocks=kernel.resident, types=types, cases=cases)
    )


def build(wanted: Sequence[Kernel], arch: str, real: str, progress: Progress | None = None) -> list[bytes]:
    """The kernels' cubins, from the cache or compiled on all processors.

    Parameters
    ----------
    wanted : sequence of Kernel
    arch : str
    real : {"float64", "float32"}
    progress : callable, optional
        Called as ``progress(done, all)``, kernels, from this thread.

    Raises
    ------
    BackendUnavailable
        When nvcc is missing or refuses one, and it is not in the cache.
    """
    made: list[bytes] = []
    with ThreadPoolExecutor(os.cpu_count() or 1, "jtgpu-nvcc") as pool:
        waiting = [pool.submit(kernels.compiled, "single/shaped", source_of(k, real), arch) for k in wanted]
        for i, one in enumerate(waiting):
            made.append(one.result())
            if progress is not None:
                progress(i + 1, len(waiting))
    return made


def built_slab(source: str, arch: str) -> bytes:
    """A slab's cubin, from the cache or compiled; raises as `build` does."""
    return kernels.compiled("single/slab", source, arch)
