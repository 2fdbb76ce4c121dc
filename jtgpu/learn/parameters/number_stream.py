"""Sums of numbers and counts of states that follow a stream of cases, for `Online`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any

import numpy as np

from ...errors import DataError
from ...mixed.evidence import read_cases
from ...mixed.fitting import density_of, lines_of, one_pass, regressions
from ...mixed.moments import joint_parts
from ...mixed.regressions import warn_of_errors
from ...mixed.tree import MixedTree
from ...util.arrays import Floats
from ...util.elementary import exp, exps, log
from .families import CptFamily


class NumberStream:
    """The state of `Online` for a network with numbers."""

    def __init__(self, tree: MixedTree, experience: Mapping[str, Floats], fading: float, fixed: Iterable[str]):
        # experience: of each variable, cases by configuration of its discrete parents
        net = tree.network
        self.tree, self._fading, self._free = tree, fading, [v for v in net if v not in set(fixed)]
        self.counts = {v: experience[v][..., None] * np.asarray(net.cpt(v)) for v in net.discrete}
        self.moments = [_sums(tree, g, experience[v].ravel()) for g, v in enumerate(net.numbers)]

    def experience(self, variable: str) -> Floats:
        """Cases that each configuration of the discrete parents is worth."""
        net = self.tree.network
        if not net.is_number(variable):
            return np.asarray(self.counts[variable].sum(axis=-1))
        shape = net.gaussian(variable).mean.shape
        return np.array(self.moments[net.numbers.index(variable)][:, 0, 0].reshape(shape))

    def update(self, cases: Any, weights: Callable[[int], Floats], on_error: str) -> int:
        """Add a table of cases; their number."""
        # weights: of n cases
        tree, net = self.tree, self.tree.network
        read = read_cases(net, cases, None, None)
        n = len(read.states)
        each = exps(log(self._fading) * np.arange(n - 1, -1, -1.0)) * weights(n)
        answers = tree.posteriors_batch(cases, targets=(), on_error=on_error)  # type: ignore[arg-type]
        possible = np.flatnonzero(~answers.impossible)
        new = one_pass(tree, read.part(possible), each[possible])
        fade = exp(log(self._fading) * n)
        counts = {v: fade * old + new.counts[v] if v in self._free else old for v, old in self.counts.items()}
        sums = zip(net.numbers, self.moments, new.moments, strict=True)
        moments = [fade * old + more if v in self._free else old for v, old, more in sums]
        for v in self._free:
            least = moments[net.numbers.index(v)][:, 0, 0].min() if net.is_number(v) else counts[v].min()
            if least < -1e-9:
                raise DataError(f"the weights would make counts of {v!r} negative")
        counts = {v: np.maximum(table, 0.0) for v, table in counts.items()}
        numbers, learned, errors = tree.answerer.numbers, dict[str, Any](), dict[str, float]()
        for v in self._free:
            if not net.is_number(v):
                learned[v] = CptFamily((0,), np.zeros(counts[v].shape)).maximise([counts[v]], np.asarray(net.cpt(v)))
                continue
            g = net.numbers.index(v)
            try:
                lines, errors[v] = regressions(numbers, g, moments[g], lines_of(numbers, g, net.gaussian(v)))
            except DataError as error:
                raise DataError(str(error).replace("a prior > 0", "experience= above 0")) from None
            learned[v] = density_of(numbers, g, lines)
        warn_of_errors(errors)
        self.counts, self.moments = counts, moments
        tree.reload(net.replace(cpt=learned))
        return n


def _sums(tree: MixedTree, g: int, experience: Floats) -> Floats:
    """Sums of z z', z = (1, numeric parents, number), of cases that the network itself predicts."""
    numbers = tree.answerer.numbers
    n = prod(numbers.cards[d] for d in numbers.scope[g])
    by_cell = joint_parts(tree, (*numbers.parents[g], g), numbers.scope[g]).sums(n)
    total = by_cell[:, :1, :1]
    impossible = total[:, 0, 0] <= 0  # a configuration of probability 0: all of its parts count the same
    if impossible.any():
        parts = joint_parts(tree, (*numbers.parents[g], g), numbers.scope[g])
        by_cell[impossible] = parts._replace(weights=np.ones(len(parts.weights))).sums(n)[impossible]
        total = by_cell[:, :1, :1]
    return np.asarray(by_cell / total * experience[:, None, None])
