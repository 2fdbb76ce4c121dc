"""Starts of the EM algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...errors import ArgumentError
from ...model.network import BayesianNetwork
from .coded_cases import CodedCases
from .families import available_counts, family_scopes, family_shapes

if TYPE_CHECKING:
    from numpy.typing import NDArray

STARTS = ("auto", "given", "counts", "uniform", "random")
SMALL = 1e-3  # share of a row that fills its zeros where they are free

Tables = list["NDArray[np.float64]"]


def make_start(
    kind: str,
    cases: CodedCases,
    network: BayesianNetwork | None,
    prior: Tables,
    hidden: Sequence[int],
    rng: np.random.Generator,
    *,
    fill_zeros: bool = False,
) -> Tables:
    """CPTs to start from."""
    # kind: {"auto", "given", "counts", "uniform", "random"}: ``"given"``: those of `network`. ``"counts"``, ``"auto"``:
    #     each family from the rows in which it is complete, plus the prior and one row of equal shares, so that no
    #     entry is 0; with ``"auto"``, families with a hidden variable are random. ``"random"``: every row is uniformly
    #     distributed over all distributions.
    # hidden: sequence of int: Hidden variables
    # fill_zeros: Whether zeros of `network` become small numbers
    # raises ArgumentError: For ``"given"`` without a network, and for ``"uniform"`` and ``"counts"`` with hidden
    #     variables: where all states of a hidden variable are alike, they stay alike.
    model = cases.model
    shapes = family_shapes(model)
    if kind == "given":
        if network is None:
            raise ArgumentError("start='given' requires a network with CPTs as the structure, or as start=")
        tables = [np.array(network.cpt(v), np.float64) for v in model]
        return [_filled(t) for t in tables] if fill_zeros else tables
    if hidden and kind in ("uniform", "counts"):
        names = ", ".join(repr(model.variables[v]) for v in hidden)
        raise ArgumentError(
            f"start={kind!r} would make all states of the hidden variables alike ({names}), and EM could not tell them "
            "apart; use start='auto' or 'random'"
        )
    if kind == "uniform":
        return [np.full(shape, 1.0 / shape[-1]) for shape in shapes]
    random = [_random(shape, rng) for shape in shapes]  # of all families, so that each one depends on the seed alone
    if kind == "random":
        return random
    counts = available_counts(cases)
    is_hidden = set(hidden)
    return [
        random[v] if is_hidden.intersection(scope) else _normalised(counts[v] + prior[v] + 1.0 / shapes[v][-1])
        for v, scope in enumerate(family_scopes(model))
    ]


def _random(shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
    return _normalised(rng.standard_exponential(shape) + 1e-9)


def _normalised(table: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(table / table.sum(axis=-1, keepdims=True))


def _filled(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """The table with a small share of each row that has zeros spread evenly."""
    zero = (table == 0).any(axis=-1, keepdims=True)
    return np.where(zero, (1 - SMALL) * table + SMALL / table.shape[-1], table)
