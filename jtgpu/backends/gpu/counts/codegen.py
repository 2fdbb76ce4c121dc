"""Text of generated kernels that count: a thread a case, each family's distribution as columns of numbers.

See `jtgpu.backends.gpu.batch.codegen` for the contractions, which are written the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ....plans.plan import Plan
from ..batch.codegen import Kernel, Scratch, Writer, write_kernels
from ..batch.sparsity import Sparsity
from .program import CountProgram, FamilyCells

if TYPE_CHECKING:
    from numpy.typing import NDArray


class CountWriter(Writer):
    """Writes the lines of one kernel that counts."""

    parameters = "Lane b, Weighted c"

    def __init__(
        self, plan: Plan, sparsity: Sparsity, columns: dict[int, NDArray[np.int64]], scratch: Scratch,
        roots: Sequence[int], *, weights: bool,
    ):  # fmt: skip
        super().__init__(plan, sparsity, scratch, roots, weights=weights)
        self._columns = columns

    def total(self) -> None:
        """ln P(e), and what the products of each component are multiplied by: 0 for an impossible or a lost case."""
        self.lines.append("double total = 0.0; bool good = true;")
        for i, t in enumerate(self.roots):
            value = self.entry(t, 0) if self.sparsity.nonzero[t][0] else "0.0"
            self.lines.append(f"const double root{i} = {value}; total += log_of(root{i}); good &= root{i} >= c.least;")
        self.lines.append("const double weight = good && at < c.n ? c.of_case[at] : 0.0;")
        self.lines.append("b.log_evidence[at] = good ? total : c.is_exact ? -INFINITY : NAN;")
        for i in range(len(self.roots)):
            self.lines.append(f"const double inverse{i} = good ? weight / root{i} : 0.0;")
            self._save(f"inverse{i}")

    def answer(self, table: int, component: int) -> None:
        """Store a family."""
        inverse, columns = self._load(f"inverse{component}"), self._columns[table]
        for c, column in zip(np.flatnonzero(columns >= 0).tolist(), columns[columns >= 0].tolist(), strict=True):
            value = f"{self.entry(table, c)} * {inverse}" if self.sparsity.nonzero[table][c] else "0.0"
            self.lines.append(f"row[{column} * (u64)b.n_cases] = {value};")


def generate_counting(
    plan: Plan, sparsity: Sparsity, program: CountProgram, families: FamilyCells, *, weights: bool, blocks: int
) -> tuple[list[Kernel], int]:
    """The kernels of a count program, and the scratch memory of a thread, in doubles; see
    `jtgpu.backends.gpu.batch.codegen.generate_kernels`."""
    columns = {}
    for f, table in enumerate(program.family):
        of = np.full(len(families.support[f]), -1, np.int64)
        of[families.support[f]] = np.arange(families.first[f], families.first[f + 1])
        columns[table] = of
    home = dict(zip(program.family, program.root, strict=True))
    make = partial(CountWriter, plan, sparsity, columns, weights=weights)
    return write_kernels(make, sparsity, program.roots, home, blocks)
