"""Scores of each variable with every set of a few candidate parents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from ....errors import ArgumentError
from ....util.arrays import Floats, Ints
from .coded import CodedTable
from .numeric_scores import bge_scores, bic_cg_scores
from .numeric_table import NumericTable, require_takes_numbers
from .ranks import binomial_table, n_parent_sets
from .set_values import MAX_CELLS, score_child, set_values

if TYPE_CHECKING:
    from .rules import CellFunctions, ScoreRule


def counted_scores(
    table: CodedTable, rule: ScoreRule, max_parents: int, functions: CellFunctions | None = None
) -> Floats:
    """Scores of the last variable with every set of at most `max_parents` others, by size and rank."""
    n, penalty = len(table.names), rule.penalty(table.n_cases)
    if functions is None:
        functions = rule.functions(table.cardinality, max_parents + 1, MAX_CELLS, table.n_cases)
    values = set_values(table, functions, max_parents, ess=float(rule.ess), threads=1, only_last=True)
    scores = np.empty(n_parent_sets(n, max_parents))
    score_child(n - 1, table.cardinality, functions, values, penalty, binomial_table(n, max_parents + 2), scores)
    return scores


def numeric_scores(
    table: NumericTable, rule: ScoreRule, candidates: Sequence[Ints], max_parents: int, threads: int | None = None
) -> list[Floats]:
    """Scores of each variable with every set of at most `max_parents` candidates, by size and rank."""
    # candidates: of each variable, ascending
    scores: list[Floats] = [np.zeros(0)] * len(candidates)
    for part, members in table.parts:
        few = [own if v in members else own[:0] for v, own in enumerate(candidates)]
        if rule.name == "bge":
            values = bge_scores(cast(NumericTable, part), few, max_parents, threads)
        else:
            values = bic_cg_scores(cast(NumericTable, part), few, max_parents, counted_scores, threads)
        for v in members:
            scores[v] = values[v]
    return scores


def candidate_scores(
    coded: CodedTable, rule: ScoreRule, candidates: Sequence[Ints], max_parents: int, threads: int | None = None
) -> Callable[[int], Floats]:
    """A function from a variable to its scores with every set of at most `max_parents` candidates."""
    require_kind(coded, rule)
    if isinstance(coded, NumericTable):
        return numeric_scores(coded, rule, candidates, max_parents, threads).__getitem__
    of_child = {}
    for part, members in coded.parts:
        functions = rule.functions(part.cardinality, max_parents + 1, MAX_CELLS, part.n_cases, part.has_gaps)
        of_child.update(dict.fromkeys(members, (part, functions)))

    def scores(v: int) -> Floats:
        chosen = [*candidates[v].tolist(), v]  # the child is the last variable: sets with it have the last ranks
        names, states = tuple(coded.names[u] for u in chosen), tuple(coded.states[u] for u in chosen)
        part, functions = of_child[v]
        few = CodedTable(names, states, part.codes[chosen], part.weights)
        return counted_scores(few, rule, min(max_parents, len(chosen) - 1), functions)

    return scores


def require_kind(coded: CodedTable, rule: ScoreRule) -> None:
    """Reject a score of states for a table with numbers."""
    if isinstance(coded, NumericTable):
        require_takes_numbers(rule)
    elif rule.takes_numbers:
        raise ArgumentError(
            f"score={rule.name!r} takes tables with numbers; give continuous=True, or a list of columns"
        )
