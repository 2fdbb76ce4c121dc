"""Compile every CUDA source for the named architectures with nvcc; without nvcc, print that and pass.

A source is compiled for the oldest and for the newest architecture, and for one between them if it asks which it is
(``__CUDA_ARCH__``); for the newest with every type that it names.

python tools/check_kernels.py [--arch sm_90]...
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jtgpu.device.nvcc import cubin, find_nvcc, read_source, sources
from jtgpu.errors import BackendUnavailable

ARCHITECTURES = ("sm_75", "sm_80", "sm_90")
TYPES = (("float64", "uint32"), ("float32", "uint32"), ("float64", "uint64"))
DOUBLES = ("single/dataflow", "single/levels", "graphs/betweenness")  # what scales nothing, and so is for doubles only


def variants(name: str, architectures: Sequence[str]) -> Iterator[tuple[str, str, str, str]]:
    """The source, architecture, type of reals and type of indices of each compilation that may fail by itself."""
    text = read_source(name).split("\n", 3)[3]  # without the lines that define the types
    for arch in architectures:
        if arch in (architectures[0], architectures[-1]) or "__CUDA_ARCH__" in text:
            yield name, arch, *TYPES[0]
    if "JT_REAL" in text and name not in DOUBLES:
        yield name, architectures[-1], *TYPES[1]
    if "JT_INDEX" in text:
        yield name, architectures[-1], *TYPES[2]


def main() -> int:
    """0 when nvcc takes every source, or is not there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", action="append", help=f"default: {', '.join(ARCHITECTURES)}")
    architectures = tuple(parser.parse_args().arch or ARCHITECTURES)
    if find_nvcc() is None:
        print("no nvcc on the path or below CUDA_HOME: the kernels are not compiled here")
        return 0
    jobs = [job for name in sources() for job in variants(name, architectures)]
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
        f"{len(jobs) - len(failures)} of {len(jobs)} cubins made for {', '.join(architectures)} in {seconds:.0f} s"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
