"""Structural zeros: contractions most of whose terms are zero in every case, as lists of the other terms.

Many networks are full of zeros: 1.5 % of water's terms remain, 15 % of mildew's. Which ones depends on the factors and
on the pattern of a program, not on the observed states. So a program that runs repeatedly is run once with ones for
numbers, and a contraction becomes a list where its remaining terms take less time one by one than all of them by vector
instructions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...util.loops import loops
from .records import (
    Records,
)
from .workspace import Numbers, Scratch, aligned

if TYPE_CHECKING:
    from numpy.typing import NDArray

_loops = loops("jtgpu.backends.cpu.loops.zeros")

# Measured on a Xeon with AVX-512: a dense term takes 0.07 to 0.2 ns, a listed one 1.3 ns; of eight cases at once, 2 ns.
MOST_LEFT = 0.08  # share of the terms of a contraction up to which those left are listed
MOST_LEFT_OF_LANES = 0.08
FEWEST_TERMS = 200  # of a contraction that may become a list


def without_zeros(
    program: Records, numbers: Numbers, cards: NDArray[np.int64], lanes: int, cells: int = 0
) -> Records:
    """A program whose contractions leave out what is zero in every case; the same one where that does not pay."""
    # numbers: The model's factors
    # cards: (V,) int64: Cardinalities by rank
    # lanes: Cases that the program answers at once
    # cells: Of the arena, where the program's own count is not all of it
    arena = aligned(max(program.cells, cells))
    numbers.fill(arena)
    factors = arena[: numbers.factor_cells]
    np.greater(factors, 0, out=factors, casting="unsafe")
    scratch = Scratch(numbers.is_maximal)
    scratch.fit(4 * program.most_inputs + 64 + program.longest_row, program.longest_row)
    _loops.support(arena, program, cards, lanes, scratch.block)
    records, record_ptr, changed = _loops.rewrite(
        arena, program.records, program.record_ptr, lanes, MOST_LEFT, MOST_LEFT_OF_LANES, FEWEST_TERMS
    )
    return program._replace(records=records, record_ptr=record_ptr) if changed else program
