"""Records of slices of a dynamic network: what the compiled loops read and write; see `jtgpu.backends.cpu.slices`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ...util.array_types import Cube, Matrix


class LaneCounts(NamedTuple):
    """Where expected counts of all lanes are added to."""

    cells: NDArray[np.float64]  # every factor's cells, as in an arena
    weights: NDArray[np.float64]  # (L,) weights of the sequences
    scale: NDArray[np.float64]  # (L,) scratch memory


class Slices(NamedTuple):
    """Consecutive slices of some sequences that run in one call, a sequence in each of L lanes; R rows in all."""

    first: NDArray[np.int64]  # (L,) first row of each sequence
    lengths: NDArray[np.int64]  # (L,) slices of each; 0 for lanes that are left over
    codes: Matrix[np.int32]  # (R, C) observed states, -1 = not observed
    ranks: NDArray[np.int64]  # the variables that a program needs states of, by rank
    columns: NDArray[np.int64]  # the column of `codes` of each of them
    weights: Matrix[np.float64]  # (R, W) likelihoods, variable after variable
    log_scale: NDArray[np.float64]  # (R,) ln of what the likelihoods were divided by; empty: zeros


class Passing(NamedTuple):
    """How messages of K entries pass a slice, and what becomes of them."""

    message: Matrix[np.float64]  # (K, L) into the first slice of the call; gets that out of the last
    source: NDArray[np.int64]  # (K,) place of each entry among the cells of the variable that it is a weight of
    target: NDArray[np.int64]  # (K,) and among the answer's cells
    numbers: NDArray[np.int64]  # (2,) column of the message; column of a likelihood of the same variable, -1: none
    total: NDArray[np.float64]  # (L,) P of the slices so far, times 2**-exponent
    exponent: NDArray[np.int64]
    log_scale: NDArray[np.float64]  # (L,) and ln of what their likelihoods were divided by
    failed: NDArray[np.int64]  # (L,) the first impossible slice; -1: none
    loss: NDArray[np.float64]  # (L,) bound of what numbers that were too small changed in a message, whose sum is 1
    late: NDArray[np.float64]  # (L,) and of what they changed in the message from later slices
    unsure: NDArray[np.bool_]  # (L,) whether that may change answers
    kept: Cube[np.float64]  # messages from earlier slices into slices base, base + stride ...
    later: Cube[np.float64]  # messages from later slices out of slices base, base + 1 ...; empty: not kept
    base: int
    stride: int
    before: NDArray[np.int64]  # (K,) places of the entries of `kept` as weights, where these are used as well
    before_column: int


class Choices(NamedTuple):
    """Entries of messages that are chosen."""

    chosen: NDArray[np.int64]  # (R,) gets the entry after each row's slice; unchanged at the last if entries are drawn
    uniforms: NDArray[np.float64]  # (R,) numbers in [0, 1) that choose; empty: the best entries
    best: NDArray[np.int64]  # (L,) scratch memory: the present entries
    ranks: NDArray[np.int64]  # variables that a message is about; empty: messages are weights
    states: Matrix[np.int32]  # (variables, K) the states of these in each entry


class Marginals(NamedTuple):
    """Where the distributions of variables between slices are written to."""

    cells: Matrix[np.float64]  # rows of answers
    rows: NDArray[np.int64]  # (L,) first row of each lane
    place: NDArray[np.int64]  # (T,) row of each slice behind the first one, -1: none; empty: the last slice alone
    states: Matrix[np.int64]  # (targets, K) state of each variable in each entry of a message
    columns: NDArray[np.int64]  # (targets + 1,) first column of each


class Line(NamedTuple):
    """A sequence of T slices in extended numbers, and its message of K entries; see `loops.extended_slices`."""

    value: Matrix[np.float64]  # (T, W) likelihoods, variable after variable
    power: Matrix[np.int64]
    cell: NDArray[np.float64]  # (K,) the message
    power_of: NDArray[np.int64]
    total: NDArray[np.float64]  # (1,) P of the slices so far, times 2**-exponent
    exponent: NDArray[np.int64]
    failed: NDArray[np.int64]  # (1,) the first impossible slice; -1: none


class Ends(NamedTuple):
    """Where messages stand among the weights of a program in extended numbers."""

    before: NDArray[np.int64]  # entry of the message of each weight of the interface before a slice
    after: NDArray[np.int64]  # and of the one after it
    first_before: int  # its first weight; of both interfaces, if they are one, those that the program reads come last
    first_after: int
    own_before: int  # first number of a likelihood of the same variable; 0: none
    own_after: int
    maximal: bool  # whether the program eliminates variables by maximum
