"""Large contractions on the CPU: products of packed matrices next to loops over rows, the same records in one run.

    python bench/bench_products.py [munin1 barley ... | paths] [--smoke]

Rows of bench/results/cpu.jsonl, question `products`: every contraction of two tables of at least 3,000 terms of a case
without evidence, without impossible states and with other structural zeros, run both ways in turn on one core.
`rows_us` and `packed_us` are sums of the smallest CPU times, `chosen_us` those of the way that `panels.is_packed`
chooses, `best_us` of the faster one.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from rows import network, parser_of, row, store

import jtgpu
from jtgpu.backends.base import Evidence
from jtgpu.backends.cpu import records as rec
from jtgpu.backends.cpu.loops import panels
from jtgpu.backends.cpu.runner import Runner
from jtgpu.backends.make import make
from jtgpu.formats import bundled
from jtgpu.plans.compiler import plan_tables
from jtgpu.util.loops import extension, loops

FEWEST = 3000  # terms
NETWORKS = ("munin1", "mildew", "barley", "water", "link", "andes", "diabetes", "munin", "munin2", "munin4", "pigs")
_kernels = loops("jtgpu.backends.cpu.loops.kernels")


def is_suitable(record: Any, least: int) -> int:
    """The terms of a record that both ways can run; otherwise 0."""
    if record[rec.LISTED] != 0 or record[rec.INPUTS] != 2:
        return 0
    n = int(record[rec.KEPT] + record[rec.REDUCED])
    of_loops = record[rec.FIRST_LOOP : rec.FIRST_LOOP + 4 * n].reshape(n, 4)
    every = np.vstack([of_loops, record[[rec.ROW, rec.ROW_OUT, rec.ROW_A, rec.ROW_B]]])
    extent, o, a, b = every.T
    terms, alone = int(extent.prod()), int(extent[(o == 0) & ((a == 0) != (b == 0))].prod())
    left, right = int(extent[(o != 0) & (b == 0)].prod()), int(extent[(o != 0) & (a == 0)].prod())
    return terms if terms >= least and alone <= panels.MOST_ALONE and min(left, right) > 1 else 0


def measure(path: Path, rounds: int) -> dict[str, Any]:
    """The row of one network."""
    net: Any = jtgpu.read(path)
    plan = net.plan(memory_limit=None).plan
    backend: Any = make("cpu", plan, plan_tables(plan, net), threads=1, replan=False)
    runner: Runner = getattr(backend, "backend", backend).runner  # of the possible states
    nothing = np.full(plan.n_variables, -1, np.int32)
    cached = runner.model.programs.get(nothing >= 0, (), None)
    space = runner.acquire()
    runner.run(space, cached, Evidence(nothing))
    code = cached.records
    records, buffer = code.records.copy(), np.zeros(panels.CELLS + 64)
    scratch = int(space.block[rec.WORK]), int(space.block[rec.OFFSETS]), buffer.ctypes.data
    totals, n, n_packed, all_terms = np.zeros(4), 0, 0, 0
    for first, last in zip(code.record_ptr[:-1], code.record_ptr[1:], strict=True):
        record = records[first:last]
        terms = is_suitable(record, FEWEST)
        if not terms:
            continue
        chosen, best = int(record[rec.PACKED]), [np.inf, np.inf]
        for _ in range(rounds if terms > 1e6 else 4 * rounds):
            for packed in (0, 1):
                record[rec.PACKED] = packed
                begun = time.thread_time()
                _kernels.contract_sum(space.arena.ctypes.data, record.ctypes.data, *scratch)
                best[packed] = min(best[packed], time.thread_time() - begun)
        totals += best[0], best[1], best[chosen], min(best)
        n, n_packed, all_terms = n + 1, n_packed + chosen, all_terms + terms
    rows_us, packed_us, chosen_us, best_us = (1e6 * totals).tolist()
    return row(
        "cpu", bundled.stem(path), "jtgpu cpu", None, question="products", threads=1, contractions=n, packed=n_packed,
        terms=all_terms, rows_us=rows_us, packed_us=packed_us, chosen_us=chosen_us, best_us=best_us,
        loops="extension" if extension()[0] else f"compiled for {os.environ.get('NUMBA_CPU_NAME', 'this processor')}",
    )  # fmt: skip


def main() -> None:
    """Measure, print and store."""
    parser = parser_of(__doc__, "cpu.jsonl")
    parser.add_argument("networks", nargs="*")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    names = ["andes"] if options.smoke else options.networks or NETWORKS
    for name in names:
        made = measure(network(name), 1 if options.smoke else options.rounds)
        print(f"{made['network']:24} {made['packed']:4} of {made['contractions']:4} packed: {made['rows_us']:9.0f} us, "
              f"chosen {made['chosen_us']:9.0f}, best {made['best_us']:9.0f}, "
              f"{1e-3 * made['terms'] / made['chosen_us']:5.1f}e9 terms/s")  # fmt: skip
        store(options, [made])


if __name__ == "__main__":
    main()
