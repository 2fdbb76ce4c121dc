"""Sequences of dynamic networks on GPUs: smoothing, on one and on all, and a dense chain in JAX on the same GPU.

    python bench/dynamic_gpu.py            rows to bench/results/dynamic.jsonl, or to the file that --out names
    python bench/dynamic_gpu.py --smoke    few sequences, nothing stored
    python bench/dynamic_gpu.py --counts   expected counts (EM) alone

The networks are those of `bench_dynamic`, sequences have 100 slices, a quarter of the observations is missing where a
name ends in "holes". Kernels' times come from events on the devices, of one group of sequences at a time; calls are
wall-clock times from arrays to arrays. Answers are compared with those of the CPU first, and of any number of GPUs with
each other, bit by bit.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from bench_dynamic import RESULTS, Template, hmm, ring
from peers.dynamic_peers import DenseChain, available
from rows import TOLERANCE, append, row

from jtgpu import timing
from jtgpu.backends.gpu.slices import engine
from jtgpu.device.context import device_numbers, open_device
from jtgpu.dynamic.counts import expected_counts
from jtgpu.dynamic.sequences import read_sequences
from jtgpu.dynamic.step import Step

RUNS, LENGTH, COMPARED = 7, 100, 64
PEER_CELLS = 1 << 22  # of the messages of a slice: JAX keeps several tables of all slices
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX would take most of the memory
ALONE = {"WORKERS": 1, "ROUNDS": 1}  # constants of the engine: nothing overlaps


def compared(made: Template, tree: Any, codes: Any, targets: list[str]) -> Any:
    """Answers, after those of some sequences have been compared with the CPU's."""
    answer = tree.smooth(arrays(made, codes), targets=targets)
    same = by_cpu(made, codes[:COMPARED], targets)
    gap = max(float(np.abs(answer[v][:COMPARED] - same[v]).max()) for v in targets)
    if not gap <= TOLERANCE or not np.allclose(answer.log_evidence[:COMPARED], same.log_evidence, rtol=1e-10):
        raise SystemExit(f"{made.net.name}: posteriors differ by {gap:g}; nothing is timed")
    return answer


def by_cpu(made: Template, codes: Any, targets: list[str]) -> Any:
    """Answers to compare with."""
    return made.net.compile("cpu").smooth(arrays(made, codes), targets=targets)


def arrays(made: Template, codes: Any) -> dict[str, Any]:
    """What `smooth` takes."""
    return {v: codes[:, :, i] for i, v in enumerate(made.observed)}


def times_of(
    made: Template, codes: Any, targets: list[str], devices: list[int]
) -> tuple[Any, list[float], list[float]]:
    """Answers, and seconds of kernels and of calls."""
    given = arrays(made, codes)
    own = {key: getattr(engine, key) for key in ALONE}
    with made.net.compile("gpu", devices=devices) as tree:
        answer = compared(made, tree, codes, targets)
        kernels = []
        calls = [seconds_of(lambda: tree.smooth(given, targets=targets)) for _ in range(RUNS)]
        vars(engine).update(ALONE)
        for _ in range(RUNS):
            tree.smooth(given, targets=targets)
            passes: Any = tree.step.backend(0).slices()
            kernels.append(max(passes.times.values()) * 1e-6)
        vars(engine).update(own)
    return answer, kernels, calls


def smoothing(made: Template, n: int, holes: bool = False) -> Iterator[dict[str, Any]]:
    """Rows of one network: one GPU, all of them, and JAX."""
    codes = made.codes(n, LENGTH)
    if holes:
        codes[np.random.default_rng(2).random(codes.shape) < 0.25] = -1
    targets = list(made.net) if holes else made.hidden
    name = f"{made.net.name} T={LENGTH}{' holes' if holes else ''}"
    first: Any = None
    numbers = device_numbers("all")
    for devices in [[0]] if len(numbers) == 1 else [[0], numbers]:
        answer, kernels, calls = times_of(made, codes, targets, devices)
        first = first or answer
        if any(not np.array_equal(answer[v], first[v]) for v in targets):
            raise SystemExit(f"{name}: {len(devices)} GPUs have other bits; nothing is timed")
        for what, seconds in (("kernels", kernels), ("call", calls)):
            yield made_row(name, f"jtgpu gpu {what}", seconds, n, devices)
    if available("jax") and not holes:
        os.environ["JAX_PLATFORMS"] = "cuda"
        peer = DenseChain(made.net, made.hidden, made.observed)
        theirs = peer.smooth(codes[:COMPARED])[0]
        gap = max(np.abs(theirs[:, :, i] - first[v][:COMPARED]).max() for i, v in enumerate(targets))
        if not gap <= TOLERANCE:
            raise SystemExit(f"{name}: JAX differs by {gap:g}; nothing is timed")
        codes = codes[: PEER_CELLS // len(peer.start)]
        there = importlib.import_module("jax").device_put(codes)
        computed: dict[str, Callable[[], Any]] = {
            "jax dense chain on the GPU": lambda: peer._smooth(there)[0].block_until_ready(),
            "jax dense chain call": lambda: peer.smooth(codes),
        }
        for engine_name, work in computed.items():
            work()
            yield made_row(name, engine_name, [seconds_of(work) for _ in range(RUNS)], len(codes), [0])


def counting(made: Template, n: int) -> Iterator[dict[str, Any]]:
    """Rows of the expected counts of a pass of EM: all cores of the CPU, and one GPU."""
    read, weights, first = read_sequences(made.net, arrays(made, made.codes(n, LENGTH))), np.ones(n), None
    for backend in ("cpu", "gpu"):
        step = Step.of_families(made.net, backend, {})
        counts = expected_counts(step, read, weights)
        first = first or counts
        gap = max(float(np.abs(x - y).max() / y.max()) for x, y in zip(counts.cpts, first.cpts, strict=True))
        if not gap <= TOLERANCE:
            raise SystemExit(f"{made.net.name}: counts differ by {gap:g}; nothing is timed")
        seconds = []
        for _ in range(RUNS):
            step.reload(made.net)  # as every pass does
            begin = time.perf_counter()
            expected_counts(step, read, weights)
            seconds.append(time.perf_counter() - begin)
        step.close()
        yield made_row(f"{made.net.name} T={LENGTH}", f"jtgpu {backend} counts", seconds, n, [0])


def seconds_of(work: Callable[[], Any]) -> float:
    """Of a call."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def made_row(name: str, engine_name: str, seconds: list[float], n: int, devices: list[int]) -> dict[str, Any]:
    """A row, printed."""
    spread, device = timing.Spread.of(seconds), open_device(devices[0]).name
    rate = f"{n / spread.median:.3g} sequences a second ({n / spread.high:.3g} to {n / spread.low:.3g})"
    print(f"{name:20} {engine_name:28} {len(devices)} x {device}: {rate}", flush=True)
    more = {"sequences": n, "slices": LENGTH, "devices": len(devices), "device": device}
    return row("dynamic", name, engine_name, spread, **more)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--counts", action="store_true", help="expected counts alone")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    many, chain, half = (96, 96, 96) if arguments.smoke else (1 << 15, 1 << 18, 1 << 17)
    cases = ((ring(), many, False), (hmm(), chain, False), (hmm(), half, True))
    smoothed = (one for made, n, holes in cases if not arguments.counts for one in smoothing(made, n, holes))
    counted = (one for made, n in ((ring(), many // 2), (hmm(), half // 2)) for one in counting(made, n))
    for one in itertools.chain(smoothed, counted):
        if not arguments.smoke:
            append(arguments.out, [one])


if __name__ == "__main__":
    main()
