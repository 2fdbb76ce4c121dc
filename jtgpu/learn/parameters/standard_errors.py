"""Standard errors of CPT entries: the observed information of all parameters (Louis, JRSS B 44 (1982) 226).

The score of the rows is the expected score of the complete rows, which the counts of an E-step give. Its differences
between neighbouring parameters are the information of the observed cells, with what is lost because other entries are
unknown, too. A family that is complete in every row has a closed form, and needs no pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...mixed.observed_information import LEAST_ROWS, covariance
from ...util.arrays import Floats, Ints
from ...util.elementary import exp

if TYPE_CHECKING:
    from .families import Sharing

HELD = 1e-6  # expected count below which an entry counts as given

Tables = list[Floats]


class _Block(NamedTuple):
    """The free entries of one row of the CPT of some tied variables."""

    group: tuple[int, ...]
    k: int  # the row
    at: slice  # places among all parameters: logits of all free entries but the last
    free: Ints


def standard_errors(
    tables: Tables, counts: Tables, prior: Tables, sharing: Sharing, complete: Sequence[bool],
    evaluate: Callable[[Tables, tuple[int, ...], int], Tables | None] | None = None,
) -> Tables:  # fmt: skip
    """Standard errors of every entry: 0 for fixed CPTs and entries of 0, infinite where the data say nothing."""
    # tables, counts: The estimated CPTs, and the counts under them
    # prior: Pseudo-counts of each variable
    # complete: Of each variable, whether its family is complete in every row
    # evaluate: Counts, under some CPTs, of the rows that miss a part of a group's family and may have its parents in a
    #     configuration; None: there are none. None: all families are complete
    errors = [np.zeros(t.shape) for t in tables]
    blocks: list[_Block] = []
    for group in sharing.groups:
        data = _total(counts, group)
        flat = data + prior[group[0]].reshape(data.shape)
        theta = tables[group[0]].reshape(flat.shape)
        rows = errors[group[0]].reshape(flat.shape)
        rows[...] = np.where((theta > 0) & (theta < 1), np.inf, 0.0)
        whole = all(complete[v] for v in group)
        for k in np.flatnonzero(data.sum(axis=1) > LEAST_ROWS * max(float(data.sum()), 1e-300)).tolist():
            free = np.flatnonzero((theta[k] > 0) & (flat[k] > HELD))
            rows[k] = 0.0
            if whole:
                rows[k, free] = np.sqrt(theta[k, free] * (1.0 - theta[k, free]) / flat[k].sum())
            elif len(free) > 1:
                at = blocks[-1].at.stop if blocks else 0
                blocks.append(_Block(group, k, slice(at, at + len(free) - 1), free))
    if blocks and evaluate is not None:
        first = {group[0] for group in sharing.groups}
        total = [c + prior[v] if v in first else c for v, c in enumerate(counts)]
        variance, unknown = covariance(
            tables, total, blocks, partial(_score, blocks), _moved, lambda t, b: evaluate(t, b.group, b.k),
            must_peak=False,
        )  # fmt: skip
        for block in blocks:
            table = tables[block.group[0]]
            p = table.reshape(-1, table.shape[-1])[block.k, block.free]
            slope = (np.diag(p) - np.outer(p, p))[:, :-1]
            own = np.einsum("ij,jk,ik->i", slope, variance[block.at, block.at], slope)
            rows = errors[block.group[0]].reshape(-1, table.shape[-1])
            rows[block.k, block.free] = np.inf if unknown[block.at].any() else np.sqrt(np.maximum(own, 0.0))
    for group in sharing.groups:
        for v in group[1:]:
            errors[v] = errors[group[0]].reshape(tables[v].shape)
    return errors


def _total(sums: Tables, group: tuple[int, ...]) -> Floats:
    """The sum of tied variables, a row for each configuration of the parents."""
    total = sum(sums[v] for v in group)
    return np.asarray(total).reshape(-1, np.shape(total)[-1])


def _score(blocks: list[_Block], tables: Tables, sums: Tables) -> Floats:
    """Derivative of the objective by all parameters."""
    score = np.zeros(blocks[-1].at.stop)
    for block in blocks:
        total = _total(sums, block.group)
        n, p = total[block.k, block.free], tables[block.group[0]].reshape(total.shape)[block.k, block.free]
        score[block.at] = (n - n.sum() * p / p.sum())[:-1]
    return score


def _moved(tables: Tables, block: _Block, i: int, step: float) -> Tables:
    """The CPTs with one logit moved."""
    moved = list(tables)
    table = np.array(tables[block.group[0]])
    rows = table.reshape(-1, table.shape[-1])
    kept = rows[block.k, block.free].sum()
    rows[block.k, block.free[i]] *= exp(step)
    rows[block.k, block.free] *= kept / rows[block.k, block.free].sum()
    for v in block.group:
        moved[v] = table
    return moved
