"""CPTs given by fewer numbers: noisy-OR, noisy-MAX and deterministic nodes.

A noisy-MAX child takes the strongest of the effects that its causes produce independently, and of a leak (Díez,
"Parameter adjustment in Bayes networks: the generalized noisy OR-gate", UAI 1993). Its first state is the strongest
effect and its last one stands for no effect, so with the columns c_i of the parents' states and the leak c_0

    P(effect no stronger than k) = prod_i (c_i[k] + c_i[k + 1] + ... + c_i[last]),

and the probabilities are the differences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MAX_EXPANDED = 1 << 24  # entries of all such tables of a file; limits the memory that a short file can claim


def noisy_max(
    cards: Sequence[int], n_states: int, strengths: Sequence[Sequence[int]], parameters: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The CPT of a noisy-MAX node as GeNIe and SMILE define it."""
    # cards: sequence of int: Numbers of the parents' states
    # n_states: Number of the child's states, the strongest effect first
    # strengths: sequence of sequences of int: For each parent, its states by number in the order of its columns; the
    #     last one has no effect
    # parameters: (sum(cards) + 1, n_states) float64: One row per parent state, parent after parent; the last row is the
    #     leak. Rows need not sum to 1, but must not be all zeros.
    # returns (*cards, n_states) float64
    columns = parameters / parameters.sum(axis=1, keepdims=True)
    # P(effect no stronger than k), the leak's first: (columns, n_states), 1 at k = 0
    weaker = np.minimum(np.cumsum(columns[:, ::-1], axis=1)[:, ::-1], 1.0)
    weaker[:, 0] = 1.0
    table = np.broadcast_to(weaker[-1], (*cards, n_states)).copy()
    begin = 0
    for axis, (card, order) in enumerate(zip(cards, strengths, strict=True)):
        of_states = np.empty((card, n_states))
        of_states[list(order)] = weaker[begin : begin + card]
        begin += card
        table *= of_states.reshape((1,) * axis + (card,) + (1,) * (len(cards) - axis - 1) + (n_states,))
    table[..., :-1] -= table[..., 1:].copy()
    np.maximum(table, 0.0, out=table)
    return table


def deterministic(cards: Sequence[int], n_states: int, results: NDArray[np.int64]) -> NDArray[np.float64]:
    """The CPT of a node whose state is a function of its parents' states."""
    # results: (product of cards,) int64: Number of the child's state for each configuration of the parents, the first
    #     parent slowest
    # returns (*cards, n_states) float64
    table = np.zeros((math.prod(cards), n_states))
    table[np.arange(len(results)), results] = 1.0
    return table.reshape((*cards, n_states))
