"""`validate` of networks over time: a variable of each slice is predicted from the others up to it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..columns.files import in_memory
from ..dynamic.sequences import read_sequences
from ..dynamic.tree import DynamicTree
from ..errors import ArgumentError, DataError, ImpossibleEvidence
from ..options.learning import Keys
from ..util.arguments import described, whole_number
from ..util.text_table import counted
from .parameters.fit import fit
from .validation_result import Validation

if TYPE_CHECKING:
    from ..model.dynamic import DynamicNetwork
    from ..options.tables import ReadOptions
    from ..util.arrays import Ints


MIN_FOLDS = 2


class Folds(NamedTuple):
    """How cases are divided, and models fitted."""

    folds: Any
    seed: int
    on_error: str
    options: dict[str, Any]  # of fit; keys= is that of the sequences

    def of(self, n: int, noun: str, used: Ints | None = None, states: Ints | None = None) -> Ints:
        """(U,) the part of each of n rows or sequences that is used; states have equal shares of each part."""
        used = np.arange(n) if used is None else used
        if self.folds is None:
            if self.options:
                raise ArgumentError(f"{next(iter(self.options))}= is an option of fitting, which needs folds=")
            return np.zeros(len(used), np.int64)
        if np.ndim(self.folds):
            given = np.asarray(self.folds)
            if given.shape != (n,) or given.dtype.kind not in "iu":
                what = f"a number, or {n:,} whole numbers, one for each {noun}"
                raise ArgumentError(f"folds must be {what}, not {described(self.folds)}")
            own = np.asarray(given[used], np.int64)
            if len(np.unique(own)) < MIN_FOLDS:
                raise ArgumentError(f"folds: each {noun} is in the same part")
            return own
        wanted = whole_number("folds", self.folds, MIN_FOLDS)
        if wanted > len(used):
            raise DataError(f"{wanted} folds, but only {counted(len(used), noun)} with the target")
        order = np.random.Generator(np.random.Philox(key=[self.seed, 0])).permutation(len(used))
        if states is not None:
            order = order[np.argsort(states[order], kind="stable")]
        made = np.empty(len(used), np.int64)
        made[order] = np.arange(len(used)) % wanted
        return made


def validate_sequences(
    model: Any, net: DynamicNetwork, given: Any, target: str, read: ReadOptions, how: Folds
) -> Validation:
    """Predict a variable of each slice from the others up to it; see `jtgpu.learn.validate`."""
    v, keys = net.index(target), how.options.pop("keys", Keys())
    if target in net.static:
        raise ArgumentError(f"{target!r} is static: it has one value a sequence; validate predicts slices")
    given = in_memory(given, read, read.na_values, {v: net.states(v) for v in net})
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
    fold_of = how.of(n, "sequence")
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
