"""A slab's kernel: what each block does, and the text that says so.

The templates are in cuda/resident/slab.cuh; which contractions, says `jtgpu.backends.gpu.slabs`, how the warps do them,
`slab_choice`, where numbers lie, `slab_layout`. Knows no device.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...plan import Plan
from .. import kernels
from .records import SLAB_OUTPUT
from .shapes import Binary
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
TOO_LITTLE = 1.34  # times what the time model of a slice says an H100 took: Munin1, 151 us with the sums' writing
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
    text = _text(plan, program, region, table_cell, areas, codes, sums)
    rounds = int(np.diff(first).max())
    return Slab(
        source=text,
        shared_bytes=8 * cells,
        n_blocks=n_blocks,
        n_sum_blocks=len(sums.of_block),
        first=first,
        flags=sums.flags(),
        runs=np.stack(sums.runs, axis=1).astype(np.uint32),
        outputs=np.array(sums.records, SLAB_OUTPUT),
        of_block=np.array(sums.of_block, np.uint32),
        places=np.concatenate(sums.places).astype(np.uint32),
        lists=np.array(sums.lists, np.uint32),
        n_sums=sums.n_cells,
        nanoseconds=TOO_LITTLE * rounds * clocks / CLOCK + SUMS_NS + 2 * 8 * sums.n_cells / SUM_BYTES,
    )


def _text(
    plan: Plan, program: Binary, region: Region, table_cell: Sequence[int], areas: dict[int, int],
    codes: Sequence[Sequence[Work]], sums: Sums,
) -> str:  # fmt: skip
    size = {t: plan.size(local_scope(program, region, t)) for t in tables_of(program, region)}
    kinds: dict[str, int] = {}
    for work in itertools.chain(*codes):
        kinds.setdefault(work.code.text, len(kinds))
    types = [f"using Shape{i} = {text};" for text, i in kinds.items()]
    loads, flushes = [], []
    for k, t in enumerate(region.inputs):
        scope = program.scopes[t]
        strides = strides_of(plan, scope)
        kept, local = [v for v in scope if v in region.variables], local_scope(program, region, t)
        inner = strides_of(plan, local)
        axes = ", ".join(f"Axis<{plan.cardinality[v]}, {inner[v]}, {strides[v]}, 0>" for v in local)
        base = [f"{table_cell[t]}u", *(f"d{v} * {strides[v]}u" for v in kept)]
        loads.append(
            f"        if (flags.x >> {k} & 1)\n"
            f"            slab_load<Nest<{axes}>, {THREADS}>(memory + {areas[t]}, p.arena + ({' + '.join(base)}), "
            f"scales[{k}], thread);"
        )
    for k, t in enumerate(region.outputs):
        flushes.append(
            f"        if (flags.z >> {k} & 1)\n"
            f"            slab_store<{size[t]}, {THREADS}>(f.sums + ({sums.begin[k]}u + {size[t]}u * runs[{k}]), "
            f"memory + {areas[t]}, thread);"
        )
    number = {t: k for k, t in enumerate(region.outputs)}
    body: list[str] = []
    warp = 0
    for level in codes:
        if body:
            body.append("        __syncthreads();")
        for code, passes, (a, b, out) in level:
            how = "blocks" if isinstance(code, Blocks) else "contract"
            adds, more = ("true", f"flags.y >> {number[out]} & 1") if out in number else ("false", "false")
            body.append(
                f"        slab_{how}<Shape{kinds[code.text]}, {WARPS}, {warp}, {adds}>"
                f"(memory + {areas[out]}, memory + {areas[a]}, memory + {areas[b]}, warp, lane, {more});"
            )
            warp = (warp + passes) % WARPS
    digits, behind = [], 1
    for v in reversed(region.variables):
        n = int(plan.cardinality[v])
        digits.append(f"        const u32 d{v} = slice / {behind}u % {n}u;")
        behind *= n
    return kernels.with_headers(
        _SOURCE.format(
            types="\n".join(types), threads=THREADS, resident=RESIDENT, digits="\n".join(digits),
            loads="\n".join(loads), body="\n".join(body), flushes="\n".join(flushes), n_outputs=len(number),
            n_inputs=len(region.inputs), inputs=", ".join(map(str, region.inputs)),
        )
    )  # fmt: skip


_SOURCE = """#define JT_REAL double
#include "resident/slab.cuh"

{types}

extern "C" __global__ void __launch_bounds__({threads}, {resident}) slab(Program p, Slab f) {{
    SLAB_MEMORY
    __shared__ real scales[{n_inputs}];
    const u32 inputs[{n_inputs}] = {{{inputs}}};
    const u32 thread = threadIdx.x, warp = thread >> 5, lane = thread & 31;
    const u32 first = f.first[blockIdx.x], behind = f.first[blockIdx.x + 1];
    let_next_start();
    wait_for_previous();
    for (u32 k = thread; k < {n_inputs}; k += {threads}) scales[k] = power_of_two(-slab_shift(p.slots[inputs[k]]));
    __syncthreads();
    for (u32 slice = first; slice < behind; slice++) {{
        const uint4 flags = f.flags[slice];
        const u32* runs = f.runs + slice * {n_outputs}u;
{digits}
{loads}
        slab_loaded();
        __syncthreads();
{body}
        __syncthreads();
{flushes}
    }}
}}
"""
