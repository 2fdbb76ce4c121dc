"""Parts of a table of cases on one GPU: rows stay there while numbers change, and sums come back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ....device.context import Device, Memory
from ....errors import EvidenceError
from ...table import CountSums, RowCases, Table
from ..batch.buffers import GROUP
from ..batch.table import Weights, scale_weights
from ..lower import flat_factors
from .chunk import CountChunk, CountKernels
from .generated import FamilyCells
from .records import ChunkScratch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ....plans.plan import Plan
    from ..host import Host

    Likelihoods = Mapping[int, NDArray[np.float64]]

# The cases of one table on the host: states, weights, likelihoods, and the rows of each part.

class CaseArrays(NamedTuple):
    """Host arrays of a table of B cases."""

    states: NDArray[Any]  # (B, V) signed integers, -1 = not observed
    of_case: NDArray[np.float64]  # (B,) weights of the cases
    likelihood: Weights
    dtype: np.dtype[Any]  # of the states on the device
    given: Likelihoods  # variable to weights that have not been scaled, (B, card)

    @property
    def n(self) -> int:
        """B."""
        return int(self.states.shape[0])

    @property
    def is_scaled(self) -> bool:
        """Whether powers of two were taken out of likelihoods."""
        return bool(self.likelihood.values.shape[1])

    @property
    def row_bytes(self) -> int:
        """Bytes of a row on the device, without ln P(e)."""
        n_weights = self.likelihood.values.shape[1]
        return int(self.dtype.itemsize * self.states.shape[1] + 8 * (1 + n_weights + self.is_scaled))

    def rows(self, which: slice | NDArray[np.int64]) -> CaseArrays:
        """Some of the rows, contiguous."""
        w = self.likelihood
        some = w._replace(values=np.ascontiguousarray(w.values[which]), log_scale=w.log_scale[which])
        states = np.ascontiguousarray(self.states[which], self.dtype)
        given = {v: x[which] for v, x in self.given.items()}
        return CaseArrays(states, np.ascontiguousarray(self.of_case[which]), some, self.dtype, given)


def read_cases(table: Table[CountSums], cardinality: NDArray[np.int64]) -> CaseArrays:
    """A table by rows, checked for shape; states are copied part by part."""
    states = table.feed.states if isinstance(table.feed, RowCases) else table.feed.rows()
    if states.ndim != 2 or states.shape[1] != len(cardinality):
        raise EvidenceError(f"cases have shape {states.shape}, not (B, {len(cardinality)})")
    most = int(cardinality.max(initial=1))
    dtype = np.dtype(np.int8 if most <= 128 else np.int16 if most <= 32768 else np.int32)
    given = {int(v): np.asarray(w, np.float64) for v, w in table.likelihood.items()}
    return CaseArrays(states, table.weights_or_ones, scale_weights(given, len(states), cardinality), dtype, given)


HELD_SHARE = 0.8  # of the memory that is free after the scratch memory has been allocated, for rows


class Counting(Protocol):
    """The part of `jtgpu.backends.gpu.counts.engine.CountEngine` that its tables call."""

    device: Device
    stream: Any
    lock: Any
    device_us: float
    families: FamilyCells
    generation_number: int
    host: Host
    plan: Plan

    def by_warps(self, states: NDArray[Any]) -> bool:
        """Whether a table's cases observe so much that a warp a case counts them quickest."""

    def part_of(self, n: int, *, warps: bool) -> int:
        """Cases of a part of a table of n cases."""

    @property
    def width(self) -> int:
        """Sums of a block of cases."""

    def block(self, kernels: CountKernels) -> int:
        """Cases that are summed together."""

    def kernels(self, *, weights: bool, smallest: float, warps: bool) -> CountKernels:
        """The kernels for a table."""

    def least(self, kernels: CountKernels, smallest: float) -> float:
        """ln P(e) below which cases are lost."""

    def records(self) -> CountKernels:
        """The kernels that take any network and any weights."""

    def scratch(self, kernels: CountKernels, n: int, n_weights: int) -> ChunkScratch:
        """Scratch memory for chunks of n cases, or fewer."""

    def check_open(self) -> None:
        """Raise if the engine is closed."""


@dataclass
class Part:
    """Some successive rows, and where they are on the device."""

    number: int
    first: int
    last: int
    addresses: tuple[int, ...] = ()  # states, weights of states, weights of cases, ln of scales; empty: not there
    magnitude: float = 0.0  # sum of the absolute weights of its cases
    # rows that records or the host counted, and their ln P(e)
    lost: tuple[NDArray[np.int64], NDArray[np.float64]] | None = None
    again: PartsOnDevice | None = None  # these rows

    @property
    def n(self) -> int:
        return self.last - self.first

    @property
    def size(self) -> int:
        return -(-self.n // GROUP) * GROUP


class PartsOnDevice:
    """A `jtgpu.backends.wrappers.row_queue.HeldParts`; made by a `Counting`.

    Rows that do not fit into the memory are copied there in every pass.
    """

    def __init__(
        self, engine: Counting, cases: CaseArrays, share: tuple[int, int] = (0, 1), *, by_records: bool = False
    ):
        self._engine, self._cases, self._by_records = engine, cases, by_records
        self._by_warps = not by_records and engine.by_warps(cases.states)
        step, (i, n) = engine.part_of(cases.n, warps=self._by_warps), share
        firsts = range(0, cases.n, step)
        self._parts = [Part(k, at, min(at + step, cases.n)) for k, at in enumerate(firsts) if k % n == i]
        self._memory: Memory | None = Memory(engine.device)
        self._weight_row = self._sums = self._log_evidence = 0
        self._widths = 0
        self._staging_addresses: tuple[int, ...] = ()
        if self._parts:
            try:
                self._store()
            except BaseException:
                self._memory.close()
                raise

    def _store(self) -> None:
        """Allocate memory, and copy the rows that fit."""
        engine, memory, stream = self._engine, self._memory, self._engine.stream
        assert memory is not None
        cases, most = self._cases, max(p.size for p in self._parts)
        self._scratch(most)  # first, since rows may have what is left
        self._weight_row = memory.put(cases.likelihood.first, stream)
        self._log_evidence = memory.empty(8 * sum(p.size for p in self._parts))
        self._allocate_sums()
        room = int(HELD_SHARE * engine.device.free_memory()) - most * cases.row_bytes
        for part in self._parts:
            part.magnitude = float(np.abs(cases.of_case[part.first : part.last]).sum())
        for part in self._parts:
            room -= part.size * cases.row_bytes
            if room < 0:
                break
            part.addresses = self._allocated(memory, part.size)
            self._upload(part, part.addresses)
        if room < 0:
            self._staging_addresses = self._allocated(memory, most)
        stream.synchronize()

    def _allocated(self, memory: Memory, n: int) -> tuple[int, ...]:
        """Memory of n rows."""
        cases, n_weights = self._cases, self._cases.likelihood.values.shape[1]
        each = (cases.dtype.itemsize * cases.states.shape[1], 8 * n_weights, 8, 8 * cases.is_scaled)
        return tuple(memory.empty(n * x) if x else 0 for x in each)

    def _upload(self, part: Part, addresses: tuple[int, ...]) -> None:
        """Copy a part's rows to the device."""
        engine, some = self._engine, self._cases.rows(slice(part.first, part.last))
        arrays = (some.states, some.likelihood.values, some.of_case, np.ascontiguousarray(some.likelihood.log_scale))
        for address, array in zip(addresses, arrays, strict=True):
            if address and array.nbytes:
                engine.device.upload(address, array, engine.stream)
        engine.stream.synchronize()  # the arrays are not page-locked, and freed now

    def _kernels(self) -> CountKernels:
        if self._by_records:
            return self._engine.records()
        cases = self._cases
        return self._engine.kernels(
            weights=cases.is_scaled, smallest=cases.likelihood.smallest, warps=self._by_warps
        )

    def _scratch(self, n: int) -> ChunkScratch:
        return self._engine.scratch(self._kernels(), n, self._cases.likelihood.values.shape[1])

    def _allocate_sums(self) -> None:
        """Memory of the sums of every part; again if the number of cells has changed."""
        engine = self._engine
        if self._widths != engine.generation_number:
            assert self._memory is not None
            self._sums = self._memory.empty(8 * engine.width * len(self._parts))
            self._widths = engine.generation_number

    def part_sums(self) -> dict[int, NDArray[np.float64]]:
        engine = self._engine
        with engine.lock:
            engine.check_open()
            if not self._parts:
                return {}
            with engine.device.active():
                return self._pass()

    def _pass(self) -> dict[int, NDArray[np.float64]]:
        """Count all parts."""
        engine, stream = self._engine, self._engine.stream
        scratch = self._scratch(max(p.size for p in self._parts))
        self._allocate_sums()
        start, stop = engine.device.event(timing=True), engine.device.event(timing=True)
        start.record(stream)
        at = 0
        for i, part in enumerate(self._parts):
            addresses = part.addresses
            if not addresses:
                addresses = self._staging_addresses
                stream.synchronize()  # the part before is read from the same memory
                self._upload(part, addresses)
            self._queue(part, addresses, scratch, self._log_evidence + 8 * at, self._sums + 8 * engine.width * i)
            at += part.size
        stop.record(stream)
        sums = np.empty((len(self._parts), engine.width))
        engine.device.download(sums, self._sums, stream)
        stream.synchronize()
        device_us = stop.time_since(start) * 1e3
        results = {}
        for part, row in zip(self._parts, sums, strict=True):
            full = engine.families.spread(row)
            results[part.number] = full[:-1]
            if full[-1]:
                results[part.number] += self._recounted(part)
                device_us += engine.device_us
            else:
                part.lost = None
        engine.device_us = device_us
        return results

    def _queue(
        self, part: Part, addresses: tuple[int, ...], scratch: ChunkScratch, log_evidence: int, total: int
    ) -> None:
        """Queue the kernels of a part, chunk by chunk."""
        cases, (codes, weights, of_case, log_scale) = self._cases, addresses
        width, n_weights = cases.dtype.itemsize, cases.likelihood.values.shape[1]
        block = self._engine.block(scratch.kernels)
        step = min(scratch.size, max(scratch.kernels.most_cases, block)) // block * block
        least = self._engine.least(scratch.kernels, cases.likelihood.smallest)
        for first in range(0, part.n, step):
            n = min(step, part.n - first)
            chunk = CountChunk(
                n=n, size=-(-n // GROUP) * GROUP, block=block, width=width, n_weights=n_weights,
                codes=codes + first * width * cases.states.shape[1], weights=weights + 8 * first * n_weights,
                of_case=of_case + 8 * first, log_scale=log_scale + 8 * first if log_scale else 0,
                log_evidence=log_evidence + 8 * first, state=scratch.state, weight=scratch.weight,
                weight_row=self._weight_row, partial=scratch.partial, smallest=cases.likelihood.smallest,
                total=total, magnitude=part.magnitude, is_first=first == 0, least=least,
            )  # fmt: skip
            scratch.kernels.queue(chunk, scratch.tables, self._engine.stream)

    def _recounted(self, part: Part) -> NDArray[np.float64]:
        """Sums of a part's lost cases: by records of those that are outside of a double's range without scaling, or
        observe little, which stay on the device as long as they are the same; of all others by the host."""
        rows = part.first + np.flatnonzero(np.isnan(self._part_log_evidence(part)))
        if self._kernels().kind == "tables":
            return self._by_host(part, rows)
        if part.again is None or part.lost is None or not np.array_equal(part.lost[0], rows):
            if part.again is not None:
                part.again.close()
            part.lost, part.again = None, PartsOnDevice(self._engine, self._cases.rows(rows), by_records=True)
        part_sums = part.again.part_sums()
        values = np.empty(len(rows))
        part.again.write_log_evidence(values)
        part.lost = rows, values
        total: NDArray[np.float64] = sum(part_sums[number] for number in sorted(part_sums))  # type: ignore[assignment]
        return total

    def _by_host(self, part: Part, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Sums of some of a part's cases on the host."""
        engine, some = self._engine, self._cases.rows(rows)
        sums = engine.host.run(Table.counts(some.states, some.of_case, some.given))
        part.lost, engine.device_us = (rows, sums.log_evidence), 0.0
        last = np.array([sums.log_likelihood, sums.n_impossible])
        return np.concatenate([*flat_factors(engine.plan, sums.families), last])

    def _part_log_evidence(self, part: Part) -> NDArray[np.float64]:
        """ln P(e) of a part's cases, as the kernels wrote it."""
        at = sum(p.size for p in self._parts if p.number < part.number)
        out = np.empty(part.n)
        self._engine.device.download(out, self._log_evidence + 8 * at, self._engine.stream)
        self._engine.stream.synchronize()
        return out

    def write_log_evidence(self, out: NDArray[np.float64]) -> None:
        engine = self._engine
        with engine.lock:
            engine.check_open()
            with engine.device.active():
                for part in self._parts:
                    out[part.first : part.last] = self._part_log_evidence(part)
                    if part.lost is not None:
                        out[part.lost[0]] = part.lost[1]

    def close(self) -> None:
        with self._engine.lock:
            for again in [p.again for p in self._parts if p.again is not None]:
                again.close()
            if self._memory is not None:
                with self._engine.device.active():
                    self._memory.close()
            self._memory, self._parts = None, []
