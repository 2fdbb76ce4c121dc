"""A slab's kernel: what each block does, and the text that says so.

The templates are in cuda/single/slab.cuh; which contractions, says `jtgpu.backends.gpu.single.specialised.slabs`, how the warps do them,
`slab_choice`, where numbers lie, `slab_layout`. Knows no device.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .....device import nvcc as kernels
from .....plans.plan import Plan
from ...program.structs import SLAB_OUTPUT
from ...program.tiling import Binary
from .slab_choice import RESIDENT, THREADS, WARPS, Blocks, Work, chosen_codes
from .slab_layout import Sums, areas_of, cells_of, local_scope, rise_of, strides_of, tables_of
from .slabs import Region, regions

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MOST_BYTES", "THREADS", "Slab", "best_region", "make_slab"]

SMS = 132
MOST_CELLS = 14_200  # doubles that a block may have where two share an SM
CLOCK = 1.75  # in a nanosecond
MOST_BYTES = 8 * MOST_CELLS + 1024  # of shared memory, what a block has besides counted
TOO_LITTLE = 1.1  # times what the time model of a slice says an H100 took: Munin1, 188 us in all
SUMS_NS, SUM_BYTES = 7_000.0, 1500.0  # that `slab_sum` takes beside reading; bytes of sums in a nanosecond, either way
LEAST_TOP = 0x10000000  # word_of about 2^-766: a smaller largest entry of what goes out may have lost digits
MOST_RISE = 128.0  # log2 of the products that an entry of what goes out is a sum of: slab.cuh says why


@dataclass(frozen=True)
class Slab:
    """Everything that a region needs on the card.

    Attributes
    ----------
    source : str
        Of the kernels ``slab`` and ``slab_sum``, headers joined in.
    shared_bytes : int
        Dynamic, of a block of ``slab``.
    n_blocks, n_sum_blocks : int
    first, flags, runs, outputs, of_block, places, lists : arrays
        See slab.cuh.
    n_sums : int
        Cells.
    nanoseconds : float
        By the time model, both kernels.
    """

    source: str
    shared_bytes: int
    n_blocks: int
    n_sum_blocks: int
    first: NDArray[np.uint32]
    flags: NDArray[np.uint32]
    runs: NDArray[np.uint32]
    outputs: NDArray[Any]
    of_block: NDArray[np.uint32]
    places: NDArray[np.uint32]
    lists: NDArray[np.uint32]
    n_sums: int
    nanoseconds: float

    @property
    def arrays(self) -> list[NDArray[Any]]:
        """What is put on the card."""
        return [self.first, self.flags, self.runs, self.outputs, self.of_block, self.places, self.lists]

    def least(self, n_tables: int) -> NDArray[np.int32]:
        """(n_tables,) int32, `Finish.least` of single.cu."""
        made = np.zeros(n_tables, np.int32)
        made[self.outputs["table"]] = LEAST_TOP
        return made


def best_region(plan: Plan, program: Binary) -> Region | None:
    """The region that takes least time, of those with the fewest slices that leave room for two blocks on an SM and
    whose numbers cannot rise far; None where there is none."""
    sizes = [
        (plan.size(r.variables), r)
        for r in regions(plan, program)
        if cells_of(plan, program, r) <= MOST_CELLS and rise_of(plan, program, r) <= MOST_RISE
    ]
    fewest = min((n for n, _ in sizes), default=0)
    found = [(chosen_codes(plan, program, r)[1], r.variables, r) for n, r in sizes if n == fewest]
    return min(found, key=lambda f: f[:2])[2] if found else None


def make_slab(plan: Plan, program: Binary, region: Region, table_cell: Sequence[int]) -> Slab:
    """The kernels of a region, and all that they read.

    Parameters
    ----------
    plan : Plan
    program : Binary
        With the region's contractions.
    region : Region
    table_cell : sequence of int
        First cell of every table in the arena.
    """
    areas, cells = areas_of(plan, program, region)
    codes, clocks = chosen_codes(plan, program, region)
    n_slices = plan.size(region.variables)
    n_blocks = min(n_slices, SMS * RESIDENT)
    first = np.array([n_slices * b // n_blocks for b in range(n_blocks + 1)], np.uint32)
    sums = Sums(plan, program, region, table_cell, first)
    flags = sums.flags()
    text = _text(plan, program, region, table_cell, areas, codes, sums, flags)
    rounds = int(np.diff(first).max())
    return Slab(
        source=text,
        shared_bytes=8 * cells,
        n_blocks=n_blocks,
        n_sum_blocks=len(sums.of_block),
        first=first,
        flags=flags,
        runs=np.stack(sums.runs, axis=1).astype(np.uint32),
        outputs=np.array(sums.records, SLAB_OUTPUT),
        of_block=np.array(sums.of_block, np.uint32),
        places=np.concatenate(sums.places).astype(np.uint32),
        lists=np.array(sums.lists, np.uint32),
        n_sums=sums.n_cells,
        nanoseconds=TOO_LITTLE * rounds * clocks / CLOCK + SUMS_NS + 2 * 8 * sums.n_cells / SUM_BYTES,
    )


def _together(flags: NDArray[np.uint32], n: int) -> list[list[int]]:
    """The bits that are always the same."""
    made: dict[bytes, list[int]] = {}
    for k in range(n):
        made.setdefault((flags >> np.uint32(k) & np.uint32(1)).tobytes(), []).append(k)
    return list(made.values())


def _axes(plan: Plan, program: Binary, region: Region, table: int) -> list[tuple[int, int, int]]:
    """A part of a table: extents, strides in shared memory and in the arena; neighbours that are one are joined."""
    strides, local = strides_of(plan, program.scopes[table]), local_scope(program, region, table)
    inner = strides_of(plan, local)
    made: list[tuple[int, int, int]] = []
    for v in local:
        n, i, s = int(plan.cardinality[v]), inner[v], strides[v]
        if made and made[-1][2] == n * s:
            n *= made.pop()[0]
        made.append((n, i, s))
    return made


def _text(
    plan: Plan, program: Binary, region: Region, table_cell: Sequence[int], areas: dict[int, int],
    codes: Sequence[Sequence[Work]], sums: Sums, flags: NDArray[np.uint32],
) -> str:  # fmt: skip
    size = {t: plan.size(local_scope(program, region, t)) for t in tables_of(program, region)}
    kinds: dict[str, int] = {}
    for work in itertools.chain(*codes):
        kinds.setdefault(work.code.text, len(kinds))
    types = [f"using Shape{i} = {text};" for text, i in kinds.items()]
    loads, flushes = [], []
    first = 0  # thread that begins
    for group in _together(flags[:, 0], len(region.inputs)):
        loads.append(f"            if (flags.x >> {group[0]} & 1) {{")
        for k in group:
            t = region.inputs[k]
            strides, kept = strides_of(plan, program.scopes[t]), [v for v in program.scopes[t] if v in region.variables]
            base = [f"{table_cell[t]}u", *(f"d{v} * {strides[v]}u" for v in kept)]
            axes = ", ".join(f"Axis<{n}, {i}, {s}, 0>" for n, i, s in _axes(plan, program, region, t))
            loads.append(
                f"                slab_load<Nest<{axes}>, {THREADS}, {first}>"
                f"(memory + {areas[t]}, p.arena + ({' + '.join(base)}), scaled >> {k} & 1, scales[{k}], thread);"
            )
            first = (first + 32 * -(-size[t] // 32)) % THREADS
        loads.append("            }")
    for group in _together(flags[:, 2], len(region.outputs)):
        flushes.append(f"            if (last.z >> {group[0]} & 1) {{")
        for k in group:
            t = region.outputs[k]
            flushes.append(
                f"                slab_store<{size[t]}, {THREADS}, {first}>"
                f"(f.sums + ({sums.begin[k]}u + {size[t]}u * runs[slice & 1 ^ 1][{k}]), memory + {areas[t]}, thread);"
            )
            first = (first + 32 * -(-size[t] // 32)) % THREADS
        flushes.append("            }")
    number = {t: k for k, t in enumerate(region.outputs)}
    body: list[str] = []
    warp = 0
    for level in codes:
        body.append("        __syncthreads();")
        for code, passes, (a, b, out) in level:
            how = "blocks" if isinstance(code, Blocks) else "contract"
            adds, more = ("true", f"last.y >> {number[out]} & 1") if out in number else ("false", "false")
            body.append(
                f"        slab_{how}<Shape{kinds[code.text]}, {WARPS}, {warp}, {adds}>"
                f"(memory + {areas[out]}, memory + {areas[a]}, memory + {areas[b]}, warp, lane, {more});"
            )
            warp = (warp + passes) % WARPS
    digits, behind = [], 1
    for v in reversed(region.variables):
        n = int(plan.cardinality[v])
        digits.append(f"            const u32 d{v} = slice / {behind}u % {n}u;")
        behind *= n
    return kernels.with_headers(
        _SOURCE.format(
            types="\n".join(types), threads=THREADS, resident=RESIDENT, digits="\n".join(digits),
            loads="\n".join(loads), body="\n".join(body), flushes="\n".join(flushes), n_outputs=len(number),
            n_inputs=len(region.inputs), inputs=", ".join(map(str, region.inputs)),
        )
    )  # fmt: skip


_SOURCE = """#define JT_REAL double
#include "single/slab.cuh"

{types}

extern "C" __global__ void __launch_bounds__({threads}, {resident}) slab(Program p, Slab f) {{
    SLAB_MEMORY
    __shared__ real scales[32];
    __shared__ u32 scaled_tables, runs[2][{n_outputs}];
    const u32 inputs[{n_inputs}] = {{{inputs}}};
    const u32 thread = threadIdx.x, warp = thread >> 5, lane = thread & 31;
    const u32 first = f.first[blockIdx.x], behind = f.first[blockIdx.x + 1];
    uint4 flags = f.flags[first], last = flags;
    let_next_start();
    wait_for_previous();
    if (warp == 0) {{
        const int shift = lane < {n_inputs} ? slab_shift(p.slots[inputs[lane < {n_inputs} ? lane : 0]]) : 0;
        const u32 which = __ballot_sync(0xffffffffu, shift != 0);
        scales[lane] = power_of_two(-shift);
        if (lane == 0) scaled_tables = which;
    }}
    __syncthreads();
    const u32 scaled = scaled_tables;
    for (u32 slice = first;; slice++) {{  // what comes in is on its way while what the slice before made goes out
        if (slice < behind) {{
{digits}
            if (thread < {n_outputs}) slab_fetch(runs[slice & 1] + thread, f.runs + (slice * {n_outputs}u + thread));
{loads}
        }}
        if (slice > first) {{
{flushes}
        }}
        if (slice == behind) break;
        last = flags;
        flags = f.flags[slice + 1 < behind ? slice + 1 : slice];
        slab_loaded();
{body}
        __syncthreads();
    }}
}}
"""
