"""`validate` of networks over time: a variable of each slice is predicted from the others up to it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..dynamic.sequences import read_sequences
from ..dynamic.tree import DynamicTree
from ..errors import ArgumentError, DataError, ImpossibleEvidence
from ..options.learning import Keys
from ..util.arguments import whole_number
from .parameters.fit import fit
from .validation_result import Validation

if TYPE_CHECKING:
    from ..model.dynamic import DynamicNetwork
    from ..util.arrays import Ints


class Folds(NamedTuple):
    """How cases are divided, and models fitted."""

    folds: Any
    seed: int
    on_error: str
    options: dict[str, Any]  # of fit; keys= is that of the sequences

    def of(self, n: int) -> Ints:
        """(N,) the part of each sequence."""
        if self.folds is None:
            if self.options:
                raise ArgumentError(f"{next(iter(self.options))}= is an option of fitting, which needs folds=")
            return np.zeros(n, np.int64)
        if np.ndim(self.folds):
            given = np.asarray(self.folds)
            if given.shape != (n,) or given.dtype.kind not in "iu" or len(np.unique(given)) < 2:
                what = f"a number, or {n:,} whole numbers, one for each sequence, not all equal"
                raise ArgumentError(f"folds must be {what}")
            return given
        if (wanted := whole_number("folds", self.folds, 2)) > n:
            raise DataError(f"{wanted} folds, but only {n} sequences")
        made: Ints = np.random.Generator(np.random.Philox(key=[self.seed, 0])).permutation(n) % wanted
        return made


def validate_sequences(model: Any, net: DynamicNetwork, given: Any, target: str, how: Folds) -> Validation:
    """Predict a variable of each slice from the others up to it; see `jtgpu.learn.validate`."""
    v, keys = net.index(target), how.options.pop("keys", Keys())
    if target in net.static:
        raise ArgumentError(f"{target!r} is static: it has one value a sequence; validate predicts slices")
    all_rows = read_sequences(net, given, keys=keys)
    observed = all_rows.codes[:, v]
    if not (observed >= 0).any():
        raise DataError(f"the target {target!r} is observed in no slice")
    codes = all_rows.codes.copy()
    codes[:, v] = -1
    weights = {u: w for u, w in all_rows.likelihood.items() if u != v}
    exponents = {u: e for u, e in all_rows.exponents.items() if u != v}
    hidden = replace(all_rows, codes=codes, likelihood=weights, exponents=exponents)
    n = all_rows.n
    fold_of = how.of(n)
    probabilities = np.zeros((len(codes), len(net.states(target))))
    impossible = np.zeros(n, np.bool_)
    for number in np.unique(fold_of).tolist():
        own = np.flatnonzero(fold_of == number)
        fitted = model
        if how.folds is not None:
            train: Any = all_rows.some(np.flatnonzero(fold_of != number))
            fitted = fit(net, train, **how.options).network
        tree = fitted if isinstance(fitted, DynamicTree) else fitted.compile("cpu")
        answer = tree.filter(hidden.some(own), targets=[target], on_error="flag")
        impossible[own] = answer.impossible
        for i, k in enumerate(own.tolist()):
            a, b = all_rows.ptr[k], all_rows.ptr[k + 1]
            probabilities[a:b] = answer[target][i, : b - a]
    if impossible.any() and how.on_error == "error":
        raise ImpossibleEvidence(
            f"{all_rows.name(int(np.argmax(impossible)), 0).partition(', slice')[0]} has probability 0 under the "
            'model; fit with pseudo_counts above 0, or on_error="flag"'
        )
    sequence = np.repeat(np.arange(n), all_rows.lengths)
    used = np.flatnonzero((observed >= 0) & ~impossible[sequence])
    if not len(used):
        raise DataError("all sequences have probability 0 under the model")
    rows = used if all_rows.source is None else all_rows.source[used]
    return Validation(
        target, net.states(target), probabilities[used], observed[used].astype(np.int64), rows, fold_of[sequence[used]],
        int((observed < 0).sum()), int(((observed >= 0) & impossible[sequence]).sum()),
    )  # fmt: skip
