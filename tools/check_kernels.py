"""Compile every CUDA source for the named architectures with nvcc; without nvcc, print that and pass.

python tools/check_kernels.py [--arch sm_90]...
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jtgpu.device.nvcc import cubin, find_nvcc, sources
from jtgpu.errors import BackendUnavailable

ARCHITECTURES = ("sm_75", "sm_80", "sm_90")
TYPES = (("float64", "uint32"), ("float32", "uint32"), ("float64", "uint64"))
DOUBLES = ("single/dataflow", "graphs/betweenness")  # what scales nothing, and so is for doubles only


def main() -> int:
    """0 when nvcc takes every source, or is not there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", action="append", help=f"default: {', '.join(ARCHITECTURES)}")
    architectures = tuple(parser.parse_args().arch or ARCHITECTURES)
    if find_nvcc() is None:
        print("no nvcc on the path or below CUDA_HOME: the kernels are not compiled here")
        return 0
    # every type for the newest, the usual types for the others: types and architectures fail independently
    jobs = [
        (name, arch, real, index)
        for name in sources()
        for arch in architectures
        for real, index in (TYPES if arch == architectures[-1] else TYPES[:1])
        if real == "float64" or name not in DOUBLES
    ]
    started = time.perf_counter()
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="jtgpu-kernels-") as folder, ThreadPoolExecutor(os.cpu_count()) as pool:

        def build(job: tuple[str, str, str, str]) -> None:
            name, arch, real, index = job
            try:
                # a cache of our own: what an earlier run left would prove nothing
                cubin(name, arch, real=real, index=index, cache=Path(folder))
            except BackendUnavailable as error:
                failures.append(f"{name} for {arch}, {real}, {index}: {error}")

        list(pool.map(build, jobs))
    for failure in sorted(failures):
        print(failure, file=sys.stderr)
    seconds = time.perf_counter() - started
    print(
        f"{len(jobs) - len(failures)} of {len(jobs)} kernels compiled for {', '.join(architectures)} in {seconds:.0f} s"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
