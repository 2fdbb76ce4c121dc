"""The structure of a classifier: the parents of each variable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import ArgumentError, NetworkError, closest
from ..model.network import BayesianNetwork
from ..util.arguments import described, several

Structure = Mapping[str, Sequence[str]] | BayesianNetwork | None


def arcs_of(structure: Structure) -> Mapping[str, Sequence[str]]:
    """Parents of each variable as the user gave them."""
    # raises ArgumentError: If the structure is none.
    if structure is None:
        return {}
    if isinstance(structure, BayesianNetwork):
        return {v: structure.parents(v) for v in structure.variables}
    if not isinstance(structure, Mapping):
        raise ArgumentError(
            "structure must be a network, or a mapping from each variable to its parents, or None for naive Bayes, "
            f"not {described(structure)}"
        )
    for v, parents in structure.items():
        if several(parents) is None:
            raise ArgumentError(f"the parents of {v!r} in structure must be a list of names, not {described(parents)}")
    return structure


def parents_of(structure: Structure, names: list[str], target: str) -> dict[str, tuple[str, ...]]:
    """Parents of every column and of the class."""
    # structure: None: naive Bayes
    # names: list of str: Names of the columns
    # target: Name of the class
    # raises NetworkError: If the structure does not have the same variables as the columns and the class.
    if target in names:
        raise NetworkError(f"X has a column {target!r}, which is the name of the class; change target=")
    known = [*names, target]
    if structure is None:
        return {**dict.fromkeys(names, (target,)), target: ()}
    given = arcs_of(structure)
    mentioned = dict.fromkeys([*given, *(p for parents in given.values() for p in parents)])
    for v in mentioned:
        if v not in known:
            raise NetworkError(f"the structure has {v!r}, but X has no such column{closest(v, known)}")
    if target not in mentioned:
        raise NetworkError(f"the structure does not have the class {target!r}; change target=")
    for v in names:
        if v not in mentioned:
            raise NetworkError(f"X has the column {v!r}, but the structure does not{closest(v, mentioned)}")
    return {v: tuple(given.get(v, ())) for v in known}
