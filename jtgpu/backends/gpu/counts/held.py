"""Parts of a table of cases on one GPU: rows stay there while numbers change, and sums come back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ....device.context import Memory
from ...table import CountSums, Table
from ..batch.buffers import GROUP
from ..batch.table import HostCases, read_rows
from ..lower import flat_factors
from .chunk import CountChunk, CountKernels
from .engine import CountEngine
from .records import ChunkScratch

if TYPE_CHECKING:
    from numpy.typing import NDArray

HELD_SHARE = 0.8  # of the memory that is free after the scratch memory has been allocated, for rows


@dataclass
class CountPart:
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
    """A `jtgpu.backends.wrappers.row_queue.HeldParts`. Made inside ``CountEngine.using()``.

    Rows that do not fit into the memory are copied there in every pass.
    """
    # share: (i, n): Every n-th part from the i-th on

    def __init__(
        self, engine: CountEngine, cases: HostCases, share: tuple[int, int] = (0, 1), *, by_records: bool = False
    ):
        self._engine, self._cases, self._by_records = engine, cases, by_records
        self._by_warps = not by_records and engine.by_warps(cases.states)
        step, (i, n) = engine.part_of(cases.n, warps=self._by_warps), share
        firsts = range(0, cases.n, step)
        self._parts = [CountPart(k, at, min(at + step, cases.n)) for k, at in enumerate(firsts) if k % n == i]
        self._dtype = np.min_scalar_type(-engine.plan.cardinality.max(initial=1))
        n_weights = cases.weights.values.shape[1]
        row = self._dtype.itemsize * cases.states.shape[1], 8 * n_weights, 8, 8 * (n_weights > 0)
        self._row_bytes = tuple(map(int, row))  # of each of `CountPart.addresses`
        self._memory: Memory | None = Memory(engine.device)
        self._weight_row = self._sums = self._log_evidence = 0
        self._widths = 0
        self._staging_addresses: tuple[int, ...] = ()
        if self._parts:
            try:
                self._store(self._memory)
            except BaseException:
                self._memory.close()
                raise

    def _store(self, memory: Memory) -> None:
        """Allocate memory, and copy the rows that fit."""
        engine, of_case = self._engine, self._cases.of_case
        most, each = max(p.size for p in self._parts), sum(self._row_bytes)
        self._scratch(most)  # first, since rows may have what is left
        self._weight_row = memory.put(self._cases.weights.first, engine.stream)
        self._log_evidence = memory.empty(8 * sum(p.size for p in self._parts))
        self._allocate_sums()
        room = int(HELD_SHARE * engine.device.free_memory()) - most * each
        for part in self._parts:
            part.magnitude = float(np.abs(of_case[part.first : part.last]).sum())
        for part in self._parts:
            room -= part.size * each
            if room < 0:
                self._staging_addresses = self._allocated(memory, most)
                break
            part.addresses = self._allocated(memory, part.size)
            self._upload(part, part.addresses)

    def _allocated(self, memory: Memory, n: int) -> tuple[int, ...]:
        """Memory of n rows."""
        return tuple(memory.empty(n * x) if x else 0 for x in self._row_bytes)

    def _upload(self, part: CountPart, addresses: tuple[int, ...]) -> None:
        """Copy a part's rows to the device."""
        engine, cases, rows = self._engine, self._cases, slice(part.first, part.last)
        states = np.ascontiguousarray(cases.states[rows], self._dtype)
        arrays = (states, cases.weights.values[rows], cases.of_case[rows], cases.weights.log_scale[rows])
        for address, array in zip(addresses, arrays, strict=True):
            if address and array.nbytes:
                engine.device.upload(address, array, engine.stream)
        engine.stream.synchronize()  # the arrays are not page-locked, and freed now

    def _kernels(self) -> CountKernels:
        choice = self._engine.choice
        if self._by_warps:
            return self._engine.warps()
        return choice.records() if self._by_records else choice.of(self._cases.weights)

    def _scratch(self, n: int) -> ChunkScratch:
        return self._engine.scratch(self._kernels(), n, self._cases.weights.values.shape[1])

    def _allocate_sums(self) -> None:
        """Memory of the sums of every part; again if the number of cells has changed."""
        engine = self._engine
        if self._widths != engine.generation_number:
            assert self._memory is not None
            self._sums = self._memory.empty(8 * engine.width * len(self._parts))
            self._widths = engine.generation_number

    def part_sums(self) -> dict[int, NDArray[np.float64]]:
        with self._engine.using():
            return self._pass() if self._parts else {}

    def _pass(self) -> dict[int, NDArray[np.float64]]:
        """Count all parts."""
        engine, stream, results, at = self._engine, self._engine.stream, {}, 0
        scratch = self._scratch(max(p.size for p in self._parts))
        self._allocate_sums()
        start, stop = engine.device.event(timing=True), engine.device.event(timing=True)
        start.record(stream)
        for i, part in enumerate(self._parts):
            addresses = part.addresses
            if not addresses:
                addresses = self._staging_addresses
                stream.synchronize()  # the part before is read from the same memory
                self._upload(part, addresses)
            self._queue(part, addresses, scratch, self._log_evidence + 8 * at, self._sums + 8 * engine.width * i)
            at += part.size
        stop.record(stream)
        sums = engine.read(self._sums, np.empty((len(self._parts), engine.width)))
        device_us = stop.time_since(start) * 1e3
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
        self, part: CountPart, addresses: tuple[int, ...], scratch: ChunkScratch, log_evidence: int, total: int
    ) -> None:
        """Queue the kernels of a part, chunk by chunk."""
        engine, kernels, weights = self._engine, scratch.kernels, self._cases.weights
        block = engine.block(kernels)
        step = min(scratch.size, max(kernels.most_cases, block)) // block * block
        least = engine.least(kernels, weights.smallest)
        for first in range(0, part.n, step):
            n = min(step, part.n - first)
            at = [a + first * x if a else 0 for a, x in zip(addresses, self._row_bytes, strict=True)]
            chunk = CountChunk(
                n=n, size=-(-n // GROUP) * GROUP, block=block, width=self._dtype.itemsize,
                n_weights=weights.values.shape[1], codes=at[0], weights=at[1], of_case=at[2], log_scale=at[3],
                log_evidence=log_evidence + 8 * first, state=scratch.state, weight=scratch.weight,
                weight_row=self._weight_row, partial=scratch.partial, smallest=weights.smallest,
                total=total, magnitude=part.magnitude, is_first=first == 0, least=least,
            )  # fmt: skip
            kernels.queue(chunk, scratch.tables, engine.stream)

    def _recounted(self, part: CountPart) -> NDArray[np.float64]:
        """Sums of a part's lost cases: by records of those that are outside of a double's range without scaling, or
        observe little, which stay on the device as long as they are the same; of all others by the host."""
        rows = part.first + np.flatnonzero(np.isnan(self._part_log_evidence(part)))
        if self._kernels().kind == "tables":
            return self._by_host(part, rows)
        if part.again is None or part.lost is None or not np.array_equal(part.lost[0], rows):
            if part.again is not None:
                part.again.close()
            part.lost, part.again = None, PartsOnDevice(self._engine, self._cases.some(rows), by_records=True)
        part_sums = part.again.part_sums()
        values = np.empty(len(rows))
        part.again.write_log_evidence(values)
        part.lost = rows, values
        total: NDArray[np.float64] = sum(part_sums[number] for number in sorted(part_sums))  # type: ignore[assignment]
        return total

    def _by_host(self, part: CountPart, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Sums of some of a part's cases on the host."""
        engine, some = self._engine, self._cases.some(rows)
        sums = engine.host.run(Table.counts(some.states, some.of_case, some.given))
        part.lost, engine.device_us = (rows, sums.log_evidence), 0.0
        last = np.array([sums.log_likelihood, sums.n_impossible])
        return np.concatenate([*flat_factors(engine.plan, sums.families), last])

    def _part_log_evidence(self, part: CountPart) -> NDArray[np.float64]:
        """ln P(e) of a part's cases, as the kernels wrote it."""
        at = sum(p.size for p in self._parts if p.number < part.number)
        return self._engine.read(self._log_evidence + 8 * at, np.empty(part.n))

    def write_log_evidence(self, out: NDArray[np.float64]) -> None:
        with self._engine.using():
            for part in self._parts:
                out[part.first : part.last] = self._part_log_evidence(part)
                if part.lost is not None:
                    out[part.lost[0]] = part.lost[1]

    def close(self) -> None:
        with self._engine.lock:
            for part in self._parts:
                if part.again is not None:
                    part.again.close()
            if self._memory is not None:
                with self._engine.device.active():
                    self._memory.close()
            self._memory, self._parts = None, []


def hold(engine: CountEngine, table: Table[CountSums], share: tuple[int, int]) -> PartsOnDevice:
    """Store every n-th part of a table from the i-th on, ``share=(i, n)``."""
    cases = read_rows(table, engine.plan.cardinality)._replace(of_case=table.weights_or_ones)
    with engine.using():
        return PartsOnDevice(engine, cases, share)
