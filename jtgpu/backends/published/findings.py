"""Evidence of a run on the device: weights are copied and multiplied into the clique tables there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...device.context import Device, Launch
from ...device.job import JOB, MAP
from .arithmetic import scaled_weights
from .schedule import Schedule

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

    def multiply(self, vectors: Mapping[int, NDArray[np.float64]], stream: Any) -> float:
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
