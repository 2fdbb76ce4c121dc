"""Priors of CPTs: what is added to the counts of each entry."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ArgumentError, closest
from ...model.directed import DirectedModel
from ...model.network import BayesianNetwork
from ...util.arguments import described
from .families import expected_prior_counts, family_shapes

if TYPE_CHECKING:
    from numpy.typing import NDArray


def read_prior(prior: Any, model: DirectedModel, network: BayesianNetwork | None) -> list[NDArray[np.float64]]:
    """The numbers that are added to the counts of each CPT.

    A Dirichlet prior with parameters alpha has its posterior mode at counts + alpha - 1, so these are alpha - 1.
    """
    # prior: A number >= 0 for every entry; ``"bdeu:ESS"``: ESS divided by the number of entries of the CPT;
    #     ``"net:ESS"``: ESS times the joint distribution of the family in `network`; a mapping from variable to a
    #     number or an array of the shape of its CPT, 0 for variables that it omits
    # raises ArgumentError: If it is nothing of that kind.
    shapes = family_shapes(model)
    if isinstance(prior, str):
        kind, _, text = prior.partition(":")
        ess = _sample_size(prior, text)
        if kind == "bdeu":
            return [np.full(shape, ess / math.prod(shape)) for shape in shapes]
        if kind == "net":
            if network is None:
                raise ArgumentError(f"prior={prior!r} requires a network with CPTs as the structure, or as start=")
            return expected_prior_counts(network, ess)
        raise ArgumentError(f"prior must be a number, 'bdeu:ESS', 'net:ESS' or a mapping, not {prior!r}")
    if isinstance(prior, Mapping):
        for v in prior:
            if v not in model:
                raise ArgumentError(f"prior: there is no variable {v!r}{closest(str(v), model.variables)}")
        return [_entries(v, prior.get(v, 0.0), shape) for v, shape in zip(model, shapes, strict=True)]
    if isinstance(prior, bool) or np.ndim(prior) != 0:
        raise ArgumentError(f"prior must be a number, 'bdeu:ESS', 'net:ESS' or a mapping, not {described(prior)}")
    return [_entries("", prior, shape) for shape in shapes]


def tied_prior(
    counts: list[NDArray[np.float64]], prior: Any, model: DirectedModel, groups: Sequence[tuple[int, ...]]
) -> list[NDArray[np.float64]]:
    """The prior of each CPT that several variables share, at the first variable of its group.

    A mapping may name any one of them; those that it names must agree. A prior from the network, as many cases as its
    sample size, counts in each family of the group, as the cases of a table do.
    """
    found = list(counts)
    for group in groups:
        if isinstance(prior, Mapping):
            named = [v for v in group if model.variables[v] in prior]
            if named and any(not np.array_equal(counts[v], counts[named[0]]) for v in named):
                listed = " and ".join(repr(model.variables[v]) for v in named)
                raise ArgumentError(f"tied: {listed} share one CPT, but have different priors; name one of them")
            found[group[0]] = counts[named[0]] if named else counts[group[0]]
        elif isinstance(prior, str) and prior.startswith("net:"):
            found[group[0]] = np.sum([counts[v] for v in group], axis=0)
    return found


def _sample_size(prior: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not (found > 0 and math.isfinite(found)):
        raise ArgumentError(f"prior={prior!r} needs an equivalent sample size above 0, as in 'bdeu:10'")
    return found


def _entries(name: str, value: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Finite numbers >= 0 of the shape of a CPT."""
    where = f"the prior of {name!r}" if name else "prior"
    try:
        found = np.asarray(value, np.float64)
        found = np.array(np.broadcast_to(found, shape))
    except (TypeError, ValueError):
        raise ArgumentError(f"{where} must be a number or an array of shape {shape}, not {described(value)}") from None
    if not np.isfinite(found).all() or (found < 0).any():
        raise ArgumentError(f"{where} must have finite numbers >= 0")
    return found
