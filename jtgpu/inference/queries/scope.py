"""The variables of a query, by number."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...errors import EvidenceError, UnknownVariable, shown
from ...model.discrete import DiscreteModel
from ...util.arguments import described, several


def as_list(names: Any, what: str) -> list[Any]:
    """Names or numbers as a list; a single one makes a list of one."""
    # raises EvidenceError: If `names` is neither a name, a number, nor a collection.
    if isinstance(names, (str, int, np.integer)):
        return [names]
    found = several(names)
    if found is None:
        raise EvidenceError(
            f"{what} must be one or several names or numbers, such as ['lung', 'bronc'], not {described(names)}"
        )
    return found


def check_single(variable: Any) -> None:
    """Raise `UnknownVariable` for several variables where a query takes one."""
    if isinstance(variable, (list, tuple, set, frozenset)):
        raise UnknownVariable(
            f"posterior takes one variable, not {shown(variable)}; joint({shown(variable)}) gives the distribution of "
            "several together, posteriors(targets=...) that of each"
        )


def targets_of(model: DiscreteModel, targets: str | int | Iterable[str | int] | None) -> list[int] | None:
    """Distinct numbers of the variables whose posteriors are computed; None: all."""
    if targets is None:
        return None
    return list(dict.fromkeys(model.index(t) for t in as_list(targets, "targets")))


def scope_of(model: DiscreteModel, variables: str | int | Iterable[str | int], what: str = "variables") -> list[int]:
    """Numbers of the variables of a query."""
    # what: Name of the argument, for messages
    # raises UnknownVariable: If the model has no such variable.
    # raises EvidenceError: If there is no variable, or one is repeated.
    scope = [model.index(v) for v in as_list(variables, what)]
    if not scope:
        raise EvidenceError(f"{what} must name at least one variable")
    for i, v in enumerate(scope):
        if v in scope[:i]:
            raise EvidenceError(f"{what} must not name {model.variables[v]!r} twice")
    return scope


def n_configurations(model: DiscreteModel, scope: Iterable[int]) -> int:
    """Product of the cardinalities of some variables."""
    return math.prod(int(model.cardinality[v]) for v in scope)
