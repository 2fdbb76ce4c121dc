"""Structures of classifiers from data: naive Bayes, TAN, and the graph of the highest score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..errors import ArgumentError
from ..util.arrays import Floats, Ints
from ..util.elementary import logs
from .dags.scores.coded import CodedTable
from .dags.scores.numeric_table import code_table
from .dags.structure import structure

NAMED = ("naive", "tan", "learned")  # structures that `fit` makes

Parents = dict[str, tuple[str, ...]]


def named_structure(
    kind: str, numbers: Mapping[str, Ints], labels: Mapping[str, Sequence[str]], target: str, weights: Floats
) -> Parents:
    """The parents of every feature and of the class."""
    # numbers: (n,) state of each row, -1 if missing, by variable
    names = [v for v in numbers if v != target]
    if kind == "naive":
        return {**dict.fromkeys(names, (target,)), target: ()}
    if kind == "tan":
        return tree_augmented(numbers, {v: len(s) for v, s in labels.items()}, target, weights)
    return _learned(numbers, labels, target, weights)


def tree_augmented(numbers: Mapping[str, Ints], cards: Mapping[str, int], target: str, weights: Floats) -> Parents:
    """Naive Bayes with the tree of the features of the largest conditional mutual information given the class.

    Friedman, Geiger, Goldszmidt, Machine Learning 29, 1997. Of equal trees, the first in the order of the pairs; the
    first feature is its root.
    """
    names = [v for v in numbers if v != target]
    n = len(names)
    gain = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1, n):
            family = [names[i], names[j], target]
            gain[i, j] = gain[j, i] = _information([numbers[v] for v in family], [cards[v] for v in family], weights)
    parents: Parents = {**dict.fromkeys(names, (target,)), target: ()}
    link, best = np.zeros(n, np.int64), gain[0].copy() if n else np.zeros(0)
    left = np.ones(n, np.bool_)
    left[:1] = False
    while left.any():  # Prim's algorithm
        v = int(np.argmax(np.where(left, best, -np.inf)))
        left[v] = False
        parents[names[v]] = (names[int(link[v])], target)
        closer = left & (gain[v] > best)
        best[closer], link[closer] = gain[v][closer], v
    return parents


def _information(columns: Sequence[Ints], cards: Sequence[int], weights: Floats) -> float:
    """Conditional mutual information in nats of two columns given a third, over the rows in which all are known."""
    known = np.logical_and.reduce([c >= 0 for c in columns])
    if not weights[known].any():
        return 0.0
    cell = np.ravel_multi_index([c[known] for c in columns], tuple(cards))
    p = np.bincount(cell, weights[known], int(np.prod(cards))).reshape(cards)
    ratio = p * p.sum(axis=(0, 1)), p.sum(axis=0) * p.sum(axis=1, keepdims=True)
    some = p > 0.0
    terms = p[some] * (logs(ratio[0][some]) - logs(np.broadcast_to(ratio[1], p.shape)[some]))
    return float(terms.sum() / p.sum())


def _learned(
    numbers: Mapping[str, Ints], labels: Mapping[str, Sequence[str]], target: str, weights: Floats
) -> Parents:
    """The graph of the highest BDeu score of the complete rows; columns of one value have no arcs."""
    names = [v for v in numbers if len(labels[v]) > 1]
    parents: Parents = dict.fromkeys(numbers, ())
    if len(names) < 2:
        return parents
    known = np.logical_and.reduce([numbers[v] >= 0 for v in names])
    if (weights[known] % 1.0).any():
        raise ArgumentError("structure='learned' counts rows, so sample_weight must be whole numbers; use 'tan'")
    codes = {v: [labels[v][k] for k in numbers[v][known].tolist()] for v in names}
    states = {v: labels[v] for v in names}
    table: CodedTable = code_table(codes, states=states, weights=weights[known].astype(np.int64))
    best = structure(table)
    return parents | {v: best.parents(v) for v in names}
