"""The interaction graph of a model: variables are neighbours if a factor contains both.

For a Bayesian network this is the moral graph. Variables are numbers; names and states do not occur here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def interaction_graph(n_variables: int, scopes: Iterable[Sequence[int]]) -> list[tuple[int, ...]]:
    """The graph in which the variables of each scope are pairwise neighbours.

    If the scopes are the families of a Bayesian network, this is its moral graph (Lauritzen and Spiegelhalter,
    Journal of the Royal Statistical Society B 50, 1988, section 4).
    """
    # scopes: iterable of sequences of int: Variables that are pairwise neighbours
    # returns list of tuple of int: The neighbours of every variable, sorted.
    around: list[set[int]] = [set() for _ in range(n_variables)]
    for scope in scopes:
        for v in scope:
            around[v].update(scope)
    return [tuple(sorted(found - {v})) for v, found in enumerate(around)]
