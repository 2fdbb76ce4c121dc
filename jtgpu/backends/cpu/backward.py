"""The backward pass of a program: states chosen where variables were eliminated, slice by slice.

A *step* belongs to a contraction that eliminates variables. The variables of its output are eliminated by later
contractions, so their states are chosen before; given these, the step's *slice* is the product of its inputs over the
variables that it eliminates. The step chooses the slice's largest cell (a most probable explanation), or one at random
in proportion to the cells (a sample of the posterior).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...plans.specialise import FlatProgram, reduce
from ...util.loops import loops
from .records import Records

if TYPE_CHECKING:
    from numpy.typing import NDArray

_loops = loops("jtgpu.backends.cpu.loops.backward")

# A step: the fields up to PLACES, then (variable, states) of each variable that is eliminated, slowest first;
# (variable, stride) of each of the output; and for each input its cell, its strides in the eliminated variables, the
# number of its other variables and (variable, stride) of each. Variables by rank.
(
    N_INPUTS,
    N_TAKEN,  # variables that are eliminated
    CELLS,  # of a slice
    N_SEEN,  # variables of the output
    CHANCES,  # first of the numbers that hold the running sums of its slices; UNSHARED
    CHANCES_MADE,  # first of the flags that say which of them are computed
    PLACES,
) = range(7)
UNSHARED = -1  # CHANCES of a step whose slices are computed for every sample


class BackwardSteps(NamedTuple):
    """The backward pass of a program, in the order of its contractions."""

    steps: NDArray[np.int64]
    step_ptr: NDArray[np.int64]  # (n+1,)
    counts: NDArray[np.int64]  # (4,) largest slice, most inputs or variables of a step, shared numbers, shared slices

    @property
    def unshared(self) -> BackwardSteps:
        """The steps for samples that share no slices."""
        steps = self.steps.copy()
        steps[self.step_ptr[:-1] + CHANCES] = UNSHARED
        return self._replace(steps=steps)


def steps_of(
    program: FlatProgram, pattern: NDArray[np.uint8], records: Records, *, maximal_only: bool
) -> BackwardSteps:
    """The backward pass of a program."""
    # pattern: (V,) uint8: `jtgpu.plans.specialise.FREE`, ``HARD`` or ``SOFT`` for each variable, by rank
    # records: Lowered for the pattern
    # maximal_only: Whether only the variables that are eliminated by maximum are chosen: none if all of these are
    #     observed
    with_step = (program.op_maximal != 0) | (not maximal_only)
    left = reduce(program, pattern, np.ones(len(pattern), np.bool_))
    return BackwardSteps(*_loops.make_steps(program, left, with_step, records.records, records.record_ptr))
