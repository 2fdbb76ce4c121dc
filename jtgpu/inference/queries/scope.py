"""The variables of a query, by number."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ...errors import EvidenceError
from ...model.network import DiscreteModel

__all__ = ["n_configurations", "scope_of"]


def scope_of(model: DiscreteModel, variables: str | int | Iterable[str | int], what: str = "query") -> list[int]:
    """Numbers of the variables of a query.

    Parameters
    ----------
    model : DiscreteModel
    variables : str, int, or iterable of these
    what : str
        What the variables belong to, for messages.

    Raises
    ------
    UnknownVariable
        If the model has no such variable.
    EvidenceError
        If there is no variable, or one is repeated.
    """
    if isinstance(variables, (str, int, np.integer)):
        variables = [variables]
    scope = [model.index(v) for v in variables]
    if not scope:
        raise EvidenceError(f"the {what} has no variables; give at least one")
    for i, v in enumerate(scope):
        if v in scope[:i]:
            raise EvidenceError(f"the {what} has the variable {model.variables[v]!r} twice")
    return scope


def n_configurations(model: DiscreteModel, scope: Iterable[int]) -> int:
    """Product of the cardinalities of some variables."""
    return math.prod(int(model.cardinality[v]) for v in scope)
