"""`Rules`: every choice of the published system, as an option."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...device.context import Device, Launch
from ...device.structs import JOB, MAP
from ...util.arrays import Floats
from .host import scaled_weights
from .indextables import MAX_ENTRIES, padded
from .schedule import Schedule


@dataclass(frozen=True)
class Rules:
    """Options of the published engine; the defaults are the published values."""
    # raises ValueError: For a value outside of its range.

    # {"each", "resident"}: ``"each"``: every message copies its tables to the device and back, as published.
    #     ``"resident"``: tables stay on the device from the evidence to the posteriors, and the messages of a level
    #     share their launches.
    transfers: str = "each"
    dtype: str = "float64"  # {"float64", "float32"}: Type of the tables
    # Separators of fewer configurations are marginalised in parallel over m, others over n. At most 1025.
    split_n: int = 512
    # marginalise_threads, scatter_threads: Largest block size: a power of two from 32 to 1024
    marginalise_threads: int = 512
    scatter_threads: int = 256
    # Clique tables of fewer entries are marginalised, or multiplied into, on the CPU; the two are decided
    #     independently. None: 5000 with ``transfers="each"``, 0 with ``"resident"``.
    min_entries: int | None = None
    # {"auto", "cublas", "kernel"}: ``"auto"``: cuBLAS with ``transfers="each"`` if scikit-cuda is installed, otherwise
    #     our kernels
    normalise: str = "auto"
    ways: int = 2  # cells that a thread of a marginalisation kernel adds in one launch: 2 (published), 4, 8 or 16
    scatter_ways: int = 1  # cells that a thread of the scattering kernel multiplies: 1 (published), 2, 4 or 8
    # {"syncwarp", "shuffle"}: Kernel that is parallel over m: the published one, or
    #     cuda/published/trials/marginalise_m_shuffle.cu
    marginalise_m: str = "syncwarp"
    # {"two_phase", "fused"}: Scattering kernel: the published one, or cuda/published/trials/scatter_fused.cu
    scatter: str = "two_phase"
    # {"once", "each"}: With ``transfers="each"``: whether every message also copies its index tables, which never
    #     change
    index_transfers: str = "once"
    streams: int = 4  # CUDA streams of ``transfers="each"``, 1 to 64; 1 is the published sequential order
    # ``transfers="resident"``: replay the sweeps as one CUDA graph. Without cuda-bindings, kernels are launched one by
    #     one.
    graph: bool = True
    max_entries: int | None = MAX_ENTRIES  # size limit of a clique table
    device: int | None = None  # device ordinal. None: the device of highest compute capability.

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {allowed}, not {getattr(self, name)!r}")
        for name in ("marginalise_threads", "scatter_threads"):
            threads = getattr(self, name)
            if threads != padded(threads) or not 32 <= threads <= 1024:
                raise ValueError(f"{name} must be a power of two from 32 to 1024, not {threads!r}")
        if not 1 <= self.split_n <= 1025:
            raise ValueError(f"split_n must be from 1 to 1025, not {self.split_n!r}")
        if not 1 <= self.streams <= 64:
            raise ValueError(f"streams must be from 1 to 64, not {self.streams!r}")

    @property
    def threshold(self) -> int:
        """Entries from which the GPU processes a table."""
        if self.min_entries is not None:
            return self.min_entries
        return 5000 if self.transfers == "each" else 0

    @property
    def file_m(self) -> str:
        """Kernel file of the m-parallel marginalisation."""
        return f"published/{'marginalise_m' if self.marginalise_m == 'syncwarp' else 'trials/marginalise_m_shuffle'}"

    @property
    def file_scatter(self) -> str:
        """Kernel file of scattering."""
        return "published/scatter" if self.scatter == "two_phase" else "published/trials/scatter_fused"

    def replaced(self, **changes: Any) -> Rules:
        """A copy with some fields replaced."""
        return replace(self, **changes)


_CHOICES: dict[str, tuple[Any, ...]] = {
    "transfers": ("each", "resident"),
    "dtype": ("float64", "float32"),
    "normalise": ("auto", "cublas", "kernel"),
    "ways": (2, 4, 8, 16),
    "scatter_ways": (1, 2, 4, 8),
    "marginalise_m": ("syncwarp", "shuffle"),
    "scatter": ("two_phase", "fused"),
    "index_transfers": ("once", "each"),
}


# Which rules win, from measurements of every choice.

@dataclass(frozen=True)
class Row:
    """One measurement: the seconds of an operation on an (n, m) table with one choice."""

    operation: str  # "marginalise_m", "marginalise_n", "scatter", "gpu_...", "cpu_..."
    n: int
    m: int
    choice: int  # threads per block; for "..._ways" cells per thread (negative: fused); 0 without a choice
    seconds: float


def best_rules(rows: Sequence[Row]) -> dict[str, Any]:
    """The rules of least loss: the mean logarithm, over all tables, of a choice's time relative to the best."""
    scatter = _least_loss(rows, ("scatter_ways",))
    rules: dict[str, Any] = {
        "marginalise_threads": max(_least_loss(rows, ("marginalise_m", "marginalise_n")), 64),
        "scatter_threads": _least_loss(rows, ("scatter",)),
        "ways": _least_loss(rows, ("marginalise_m_ways", "marginalise_n_ways")),
        "scatter": "fused" if scatter < 0 else "two_phase",
        "scatter_ways": abs(scatter),
    }
    rules["split_n"] = _split(rows, rules["ways"])
    rules["min_entries"] = _threshold(rows)
    return rules


def _least_loss(rows: Sequence[Row], operations: tuple[str, ...]) -> int:
    best: dict[tuple[str, int, int], float] = {}
    for r in rows:
        if r.operation in operations:
            key = (r.operation, r.n, r.m)
            best[key] = min(best.get(key, math.inf), r.seconds)
    losses: dict[int, list[float]] = {}
    for r in rows:
        if r.operation in operations:
            losses.setdefault(r.choice, []).append(math.log(r.seconds / best[r.operation, r.n, r.m]))
    return min(sorted(losses), key=lambda c: sum(losses[c]) / len(losses[c]))


def _split(rows: Sequence[Row], ways: int) -> int:
    """The least n from which the n-parallel kernel is faster over all measured tables of that n."""
    over_m: dict[int, float] = {}
    over_n: dict[int, float] = {}
    for r in rows:
        if r.operation == "marginalise_m_ways" and r.choice == ways:
            over_m[r.n] = over_m.get(r.n, 0.0) + math.log(r.seconds)
        if r.operation == "marginalise_n_ways" and r.choice == ways:
            over_n[r.n] = over_n.get(r.n, 0.0) + math.log(r.seconds)
    both = sorted(set(over_m) & set(over_n))
    for at, n in enumerate(both):
        if all(over_n[later] <= over_m[later] for later in both[at:]):
            return n
    return min(both[-1] + 1, 1025) if both else 512


def _threshold(rows: Sequence[Row]) -> int:
    """The least table size from which the device, transfers included, is faster than the CPU on both operations."""
    cpu: dict[int, float] = {}
    gpu: dict[int, float] = {}
    for r in rows:
        for seconds, prefix in ((cpu, "cpu_"), (gpu, "gpu_")):
            if r.operation.startswith(prefix):
                seconds[r.n * r.m] = seconds.get(r.n * r.m, 0.0) + r.seconds
    sizes = sorted(set(cpu) & set(gpu))
    for at, size in enumerate(sizes):
        if all(gpu[later] <= cpu[later] for later in sizes[at:]):
            return size
    return sizes[-1] + 1 if sizes else 5000


# Evidence of a run on the device: weights are copied and multiplied into the clique tables there.

_THREADS = 256


class _Finding(NamedTuple):
    """Weights of the states of one variable, for one clique."""

    variable: int
    clique: int
    weights: NDArray[np.floating]


class Findings:
    """Multiplies weights into clique tables of the device, with a buffer for their copies. Inside ``device.active()``.
    """
    # real: Type of the tables
    # index: {"uint32", "uint64"}: Index type; part of the kernel's compilation
    # clique_at: Address of a clique's table

    def __init__(
        self, device: Device, schedule: Schedule, real: np.dtype[Any], index: str, clique_at: Callable[[int], int]
    ):
        self._device, self._schedule, self._real, self._clique_at = device, schedule, real, clique_at
        self._function = device.function("published/evidence", "evidence", real=real.name, index=index)
        self._memory: Any = None
        self._n_bytes = 0

    def multiply(self, vectors: Mapping[int, Floats], stream: Any) -> float:
        """Queue the multiplication; return ln of the factor by which the weights were scaled."""
        # vectors: mapping of variable to (cardinality,) float64
        # raises ImpossibleEvidence: For weights that are all 0.
        log_scale = 0.0
        rounds: list[list[_Finding]] = []  # one finding per clique in each
        n_findings: dict[int, int] = {}
        for v, weights in vectors.items():
            scaled, log_factor = scaled_weights(weights)
            log_scale += log_factor
            c = self._schedule.evidence_clique[v]
            i = n_findings.get(c, 0)
            n_findings[c] = i + 1
            if i == len(rounds):
                rounds.append([])
            rounds[i].append(_Finding(v, c, scaled.astype(self._real)))
        if rounds:
            self._queue(rounds, stream)
        return log_scale

    def _queue(self, rounds: list[list[_Finding]], stream: Any) -> None:
        """Copy job lists, maps and weights at once, then launch a kernel for each round."""
        plan = self._schedule.plan
        jobs, maps, weights, n_blocks = [], [], [], []
        weight_cells = 0
        for findings in rounds:
            block = 0
            for i, (v, c, scaled) in enumerate(findings):
                cells, clique = self._schedule.clique_entries[c], plan.cliques[c]
                stride = plan.size(clique[clique.index(v) + 1 :])
                blocks = -(-cells // _THREADS)
                jobs.append((0, 0, weight_cells, self._clique_at(c), cells, len(scaled), 0, block, stride, 0))
                maps.append(np.full(blocks, i, MAP))
                weights.append(scaled)
                weight_cells += len(scaled)
                block += blocks
            n_blocks.append(block)
        packed_jobs = np.array(jobs, JOB)
        map_ = np.concatenate(maps)
        numbers = np.concatenate(weights)
        map_at = packed_jobs.nbytes
        weights_at = map_at + -(-map_.nbytes // 8) * 8
        base = self._room_for(weights_at + numbers.nbytes, stream)
        packed_jobs["other"] = base + weights_at + packed_jobs["other"] * np.uint64(self._real.itemsize)
        packed = np.zeros(weights_at + numbers.nbytes, np.uint8)
        packed[:map_at] = packed_jobs.view(np.uint8)
        packed[map_at : map_at + map_.nbytes] = map_.view(np.uint8)
        packed[weights_at:] = numbers.view(np.uint8)
        self._device.upload(base, packed, stream)
        job, block = base, base + map_at
        for findings, blocks in zip(rounds, n_blocks, strict=True):
            self._device.launch(Launch(self._function, (blocks, 1, 1), (_THREADS, 1, 1), job, block), stream)
            job += len(findings) * JOB.itemsize
            block += blocks * MAP.itemsize

    def _room_for(self, n_bytes: int, stream: Any) -> int:
        """Address of a buffer of at least `n_bytes`, which grows by doubling."""
        if n_bytes > self._n_bytes:
            stream.synchronize()
            self.close()
            self._memory = self._device.alloc(2 * n_bytes)
            self._n_bytes = 2 * n_bytes
        return int(self._memory)

    def close(self) -> None:
        """Free the buffer."""
        if self._memory is not None:
            self._memory.free()
        self._memory, self._n_bytes = None, 0
