"""The published kernels on a GPU: cuda/learn/published/families.cu."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from ..device.context import Device, Memory, open_devices
from ..device.driver import Arguments, Kernels, most_shared
from ..device.structs import struct
from ..errors import TableTooLarge, format_bytes
from ..learn.dags.scores.ranks import binomial_table, n_parent_sets
from ..util.arrays import Floats, Ints
from .ordering_scores import SetRange, split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from .ordering_scores import FamilyScores, ScoreCache

BINOMIAL_SIZES = 8
WARPS = 8  # of a block
BLOCKS = 1 << 20  # of a launch
MAX_RANGE = 1 << 14  # sets that one block sums
CACHED = 2**64 - 1
SHARE = 2.0**-52  # of the fixed-point sums of arcs

FAMILIES = struct("learn/published/families.cu", "Families")
RANGE = struct("learn/published/families.cu", "Range")
ORDERS = struct("learn/published/families.cu", "Orders")


class FamilyKernels:
    """Data on one GPU, and kernels that score families, one for each number of parents. Used inside
    ``device.active()``.
    """
    # raises TableTooLarge: If the cells of a family exceed the shared memory of a block.

    def __init__(self, device: Device, families: FamilyScores, max_parents: int):
        self.device, self.families = device, families
        coded, f = families.coded, families.functions
        card = coded.cardinality
        largest = math.prod(int(r) for r in np.sort(card)[-max_parents - 1 :])
        most = most_shared(device) - 1024
        if 4 * largest > most:
            raise TableTooLarge(
                f"a family of {max_parents} parents has {largest:,} cells, more than a block's shared memory holds; "
                "use backend='cpu'", largest, 4 * largest, most,
            )  # fmt: skip
        self._warps = min(WARPS, most // (4 * largest))
        self._shared = 4 * largest * self._warps
        self.memory, self.stream = Memory(device), device.stream()
        self.microseconds = 0.0
        self._kernels: Kernels | None = None
        try:
            names = [f"score_{k}" for k in range(max_parents + 1)]
            self._kernels = Kernels(device, "learn/published/families", names)
            for name in names:
                self._kernels.allow_shared(name, self._shared)
            s = np.zeros(1, FAMILIES)
            s["rows"], s["cards"] = self.put(families.rows), self.put(card.astype(np.uint32))
            s["allowed"] = self.memory.empty(4 * len(card))
            s["binomials"] = self.put(binomial_table(len(card), BINOMIAL_SIZES - 1).astype(np.uint64))
            if len(f.products):
                s["products"] = self.put(f.products.astype(np.uint64))
            s["shapes"], s["functions"] = self.put(f.shapes), self.put(f.values)
            s["n_rows"], s["width"] = coded.codes.shape[1], families.rows.shape[1]
            s["penalty"] = families.rule.penalty(coded.n_cases)
            s["n_functions"], s["n_tabulated"], s["cells"] = len(f.shapes), f.values.shape[1], largest
            self._arguments = s
        except BaseException:
            self.close()
            raise

    @property
    def binomials(self) -> int:
        """Address of the binomial coefficients."""
        return int(self._arguments["binomials"][0])

    def put(self, array: NDArray[Any]) -> int:
        """Copy an array to the device."""
        return self.memory.put(np.ascontiguousarray(array), self.stream)

    def queue(self, scores: int, child: int, allowed: NDArray[np.uint32], size: int, begin: int, end: int) -> None:
        """Score sets of `size` of the allowed variables, ranks begin to end - 1, into float32 at an address."""
        s, f = self._arguments, self.families.functions
        if end <= begin or self._kernels is None:
            return
        self.device.upload(int(s["allowed"][0]), np.ascontiguousarray(allowed), self.stream)
        s["scores"], s["child"], s["n_allowed"], s["begin"], s["end"] = scores, child, len(allowed), begin, end
        s["parent_row"] = max(f.parent_row(int(self.families.coded.cardinality[child])), 0)
        n_blocks = min(-(-(end - begin) // self._warps), BLOCKS)
        self._kernels.launch(
            f"score_{size}", n_blocks, 32 * self._warps, self.stream, Arguments(s), shared=self._shared
        )

    def fill(self, table: int, children: range, max_parents: int) -> None:
        """Compute the part of the table that belongs to some children."""
        n, at = len(self.families.coded.names), table
        start, stop = self.device.event(timing=True), self.device.event(timing=True)
        start.record(self.stream)
        for v in children:
            allowed = np.array([u for u in range(n) if u != v], np.uint32)
            for size in range(max_parents + 1):
                n_sets = math.comb(n - 1, size)
                self.queue(at, v, allowed, size, 0, n_sets)
                at += 4 * n_sets
        stop.record(self.stream)
        self.stream.synchronize()
        self.microseconds += stop.time_since(start) * 1e3

    def close(self) -> None:
        """Free the device's memory; may be called twice."""
        if self._kernels is not None:
            self._kernels.close()
        self._kernels = None
        self.memory.close()
        self.stream = None


def gpu_table(families: FamilyScores, max_parents: int, devices: Any = None) -> NDArray[np.float32]:
    """The published table of scores, each GPU a range of children; as many at a time as fit its memory."""
    n = len(families.coded.names)
    n_sets = n_parent_sets(n, max_parents)
    opened = open_devices(devices)
    table = np.empty((n, n_sets), np.float32)
    bounds = [n * i // len(opened) for i in range(len(opened) + 1)]

    def work(i: int) -> None:
        device = opened[i]
        with device.active():
            kernels = FamilyKernels(device, families, max_parents)
            try:
                at_once = min(int(0.9 * device.free_memory()) // (4 * n_sets), bounds[i + 1] - bounds[i])
                if bounds[i + 1] > bounds[i] and at_once < 1:
                    raise TableTooLarge(
                        f"the scores of one variable need {format_bytes(4 * n_sets)}, more than {device.name} has "
                        "free; lower max_parents", n_sets, 4 * n_sets, device.free_memory(),
                    )  # fmt: skip
                address = kernels.memory.empty(4 * n_sets * max(at_once, 1))
                for first in range(bounds[i], bounds[i + 1], max(at_once, 1)):
                    last = min(first + at_once, bounds[i + 1])
                    kernels.fill(address, range(first, last), max_parents)
                    device.download(table[first:last], address, kernels.stream)
                    kernels.stream.synchronize()
            finally:
                kernels.close()

    with ThreadPoolExecutor(len(opened), "jtgpu-published") as pool:
        list(pool.map(work, range(len(opened))))
    return table.reshape(-1)


class OrderKernels:
    """A table of scores on one GPU, and kernels that sum it for an order. `close` frees it."""

    def __init__(self, cache: ScoreCache, device: Device):
        self.device, self.cache = device, cache
        n = len(cache.names)
        with device.active():
            self._families = FamilyKernels(device, cache.families, cache.max_parents)
            try:
                self._kernels = Kernels(device, "learn/published/families", ("order_sums", "order_edges"))
                s = np.zeros(1, ORDERS)
                s["cache"], s["binomials"] = self._families.put(cache.scores), self._families.binomials
                s["order"], s["edges"] = self._families.memory.empty(4 * n), self._families.memory.empty(8 * n * n)
                s["totals"], s["n"] = self._families.memory.empty(8 * n), n
                s["n_sets"] = n_parent_sets(n, cache.stored_parents)
                self._arguments = s
            except BaseException:
                self._families.close()
                raise

    def sums(self, order: Ints, ranges: Sequence[SetRange]) -> list[tuple[float, float]]:
        """(largest score, sum of exp(score - largest)) of each range; the sum of an empty one is 0."""
        parts = split(list(ranges), MAX_RANGE)
        sums = np.empty((len(parts), 2))
        with self.device.active(), Memory(self.device) as memory:
            out = memory.empty(16 * len(parts))
            self._arguments["sums"] = out
            self._launch("order_sums", order, parts, memory)
            self.device.download(sums, out, self._families.stream)
            self._families.stream.synchronize()
        return _join(ranges, sums)

    def edges(self, order: Ints, ranges: Sequence[SetRange], totals: Floats) -> Floats:
        """P(u -> v | order), (n, n)."""
        n, s, stream = len(order), self._arguments, self._families.stream
        counts = np.zeros((n, n), np.uint64)
        with self.device.active(), Memory(self.device) as memory:
            self.device.upload(int(s["edges"][0]), counts, stream)
            self.device.upload(int(s["totals"][0]), np.ascontiguousarray(totals), stream)
            self._launch("order_edges", order, split(list(ranges), MAX_RANGE), memory)
            self.device.download(counts, int(s["edges"][0]), stream)
            stream.synchronize()
        return np.asarray(counts * SHARE, np.float64)

    def _launch(self, name: str, order: Ints, parts: Sequence[SetRange], memory: Memory) -> None:
        s, device, stream = self._arguments, self.device, self._families.stream
        order32 = order.astype(np.uint32)
        device.upload(int(s["order"][0]), order32, stream)
        records = np.zeros(len(parts), RANGE)
        records["first"] = CACHED
        for i, part in enumerate(parts):
            records[i]["begin"], records[i]["end"] = part.begin, part.end
            records[i]["child"], records[i]["size"] = part.child, part.size
            records[i]["n_predecessors"] = part.n_predecessors
        missing = [i for i, part in enumerate(parts) if part.size > self.cache.stored_parents]
        if missing:  # all missing scores in one pass
            ends = np.cumsum([parts[i].end - parts[i].begin for i in missing])
            scored = memory.empty(4 * int(ends[-1]))
            for i, end in zip(missing, ends.tolist(), strict=True):
                part = parts[i]
                first = end - (part.end - part.begin)
                records[i]["first"] = first
                self._families.queue(
                    scored + 4 * first, part.child, order32[: part.n_predecessors], part.size, part.begin, part.end
                )
            s["scored"] = scored
        s["ranges"] = memory.put(records, stream)
        self._kernels.launch(name, len(parts), 32 * WARPS, stream, Arguments(s))
        stream.synchronize()

    def close(self) -> None:
        """Free the device's memory."""
        with self.device.active():
            self._kernels.close()
            self._families.close()


def _join(ranges: Sequence[SetRange], sums: Floats) -> list[tuple[float, float]]:
    """The sums of ranges from those of their parts, which follow one another."""
    joined, at = [], 0
    for r in ranges:
        largest, total = -math.inf, 0.0
        n_parts = -(-(r.end - r.begin) // MAX_RANGE)
        rows = [row for row in sums[at : at + n_parts].tolist() if row[1] > 0.0]
        if rows:
            largest = max(row[0] for row in rows)
            total = math.fsum(row[1] * math.exp(row[0] - largest) for row in rows)
        at += n_parts
        joined.append((largest, total))
    return joined
