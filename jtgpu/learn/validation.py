"""`validate`: how well a model predicts a variable, on other cases or by cross-validation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from ..columns import read_column
from ..columns.column import Column
from ..columns.files import in_memory
from ..columns.kinds import names_of, ordered
from ..columns.schema import Schema
from ..dynamic.numbers import MixedDynamicTree
from ..dynamic.sequences import read_sequences
from ..dynamic.tree import DynamicTree
from ..errors import ArgumentError, DataError, ImpossibleEvidence, UnknownState, UnknownVariable, closest
from ..inference.tree import JunctionTree
from ..mixed.tree import MixedTree
from ..model.discrete import DiscreteModel
from ..model.dynamic import DynamicNetwork
from ..model.mixed import MixedNetwork
from ..model.mixed_dynamic import MixedDynamicNetwork
from ..model.network import BayesianNetwork
from ..model.states import NOT_OBSERVED, REJECTED, StateLookup
from ..options.learning import Keys
from ..options.record import require_only
from ..options.tables import OF_TABLES, ReadOptions
from ..util.arguments import choice, described, mapping, text, unknown_keyword, whole_number
from ..util.arrays import Bools, Floats, Ints
from ..util.cells import is_na_word
from ..util.text_table import counted
from .columns import read_data
from .discretisation import Discretiser
from .parameters.families import read_structure
from .parameters.fit import fit
from .validation_result import NumberValidation, Validation

if TYPE_CHECKING:
    from ..util.options import Data, OnProblem

NUMBER = [(name, "f8") for name in ("mean", "sd", "log_densities", "pit")]  # predictions of a number


def validate(
    model: object, frame: Data, target: str | None = None, *, folds: int | object = None, seed: int = 0,
    on_error: OnProblem = "error", read: ReadOptions = ReadOptions(), **options: object,
) -> Validation:  # fmt: skip
    """Measure how well a model predicts a variable from the other cells of a row.

    Parameters
    ----------
    model : network, tree, classifier, structure, or callable
        A network or a compiled tree. Any object with ``predict_proba`` and ``classes_``, such as a fitted
        `jtgpu.JunctionTreeClassifier`. With `folds`: also a structure, as for `jtgpu.learn.fit`, and a function that
        takes a table of training cases, a mapping of columns, and returns a network, a tree or a classifier.
    frame : data frame, mapping of columns, list of mappings, array, or path of a CSV or Parquet file
        The cases. Columns that the model does not have are ignored; other cells than the target may be missing. Of a
        network over time: sequences, as for `jtgpu.dynamic.DynamicTree.filter`, with ``keys=`` for a long frame. The
        target of each slice is predicted from the other variables up to this slice; `folds` has sequences.
    target : str, optional
        The variable to predict: one with states, or a number of a `jtgpu.MixedNetwork`. Default: the one of a
        `jtgpu.JunctionTreeClassifier`.
    folds : int or (N,) array_like of int, optional
        Number of parts, each of which is predicted by a model that is fitted to the others: networks and structures by
        `jtgpu.learn.fit`, classifiers by ``fit``. Parts have equal shares of each state, and of small and large
        numbers. Or the part of each row.
        Default: the model itself predicts all rows.
    seed : int
        Of the random parts.
    on_error : {"error", "flag"}
        Whether a row of probability 0 is an error, or is left out and counted.
    read : ReadOptions
        How the table is read; see `jtgpu.learn.fit`.
    **options
        Options of `jtgpu.learn.fit` for networks and structures with `folds`, such as ``pseudo_counts=0.5``.

    Returns
    -------
    Validation
        ``.accuracy``, ``.log_loss``, ``.brier``, ``.confusion``, ``.auc()``, ``.calibration()``; prints as a table,
        ``.draw()`` draws it. Of a number a `jtgpu.learn.NumberValidation`, with ``.rmse``, ``.r_squared``,
        ``.log_density`` and ``.coverage()``.

    Raises
    ------
    UnknownVariable
        If the model or the table has no such target.
    DataError
        If no row has a target, or a fold or a state has too few.
    ImpossibleEvidence
        If a row has probability 0, unless ``on_error="flag"``.
    ArgumentError
        If the model is none of those listed, or an option has no such value.

    Examples
    --------
    >>> import jtgpu
    >>> net = jtgpu.load("asia")
    >>> cases = net.compile("cpu").sample(500, seed=1).to_frame()
    >>> result = jtgpu.learn.validate(net, cases, "bronc", folds=5)
    >>> result.accuracy > result.baseline, result.states
    (True, ('yes', 'no'))
    """
    known = [*signature(validate).parameters.values()][:-1] + [*signature(fit).parameters.values()][2:]
    for name in options.keys() - {p.name for p in known}:
        raise unknown_keyword("validate", name, [p.name for p in known], {p.name: p.annotation for p in known})
    choice("on_error", on_error, ("error", "flag"))
    require_only(read, OF_TABLES + " codes", "validate")
    target = getattr(model, "target", None) if target is None else target
    net = model.network if isinstance(model, (DynamicTree, MixedDynamicTree)) else model
    if isinstance(net, MixedDynamicNetwork):
        raise ArgumentError(
            "validate takes no dynamic network with numbers; compare log_likelihood() of other sequences"
        )
    how = Folds(folds, whole_number("seed", seed, 0), on_error, options)
    if isinstance(net, DynamicNetwork):
        return validate_sequences(model, net.with_codes(read.codes), frame, text("target", target), read, how)
    table = _Cases(frame, _network(model), text("target", target), read)
    fold_of = how.of(table.n_rows, "row", table.used, table.observed)
    impossible, parts = np.zeros(len(table.used), np.bool_), []
    for number in np.unique(fold_of).tolist():
        own = np.flatnonzero(fold_of == number)
        rows = table.used[own]
        fitted = model if folds is None else _fitted(model, table, table.used[fold_of != number], options)
        predicted, impossible[own] = _predicted(fitted, table, rows)
        parts.append((own, predicted))
    if impossible.any() and on_error == "error":
        row = int(table.used[int(np.argmax(impossible))])
        raise ImpossibleEvidence(
            f'row {row} has probability 0 under the model; fit with pseudo_counts above 0, or on_error="flag"'
        )
    if impossible.all():
        raise DataError("all rows have probability 0 under the model")
    kept = ~impossible
    predictions = np.empty((len(kept), *parts[0][1].shape[1:]), parts[0][1].dtype)
    for own, predicted in parts:
        predictions[own] = predicted
    if predictions.dtype.names:
        of_number: Validation = cast(Any, NumberValidation)(  # has no place in the type of the result
            table.target, *(predictions[name][kept] for name in predictions.dtype.names),
            np.array([table.values[k] for k in table.observed[kept]], np.float64), table.used[kept], fold_of[kept],
            table.n_missing, int(impossible.sum()),
        )  # fmt: skip
        return of_number
    return Validation(
        table.target, table.states, predictions[kept], table.observed[kept], table.used[kept], fold_of[kept],
        table.n_missing, int(impossible.sum()),
    )  # fmt: skip


class _Cases:
    """The columns of a table, and the states of the target in the rows in which it is known."""

    def __init__(self, frame: Any, net: BayesianNetwork | MixedNetwork | None, target: str, read: ReadOptions):
        codes: Any = read.codes
        net, self.codes = None if net is None else net.with_codes(codes), codes
        numbers = net.numbers if isinstance(net, MixedNetwork) else ()
        states = None if net is None else {v: net.states(v) for v in net if v not in numbers}
        table, words = read_data(frame, states, read.na_values, read)
        if target not in table.names:
            raise UnknownVariable(f"the table has no column {target!r}, the target{closest(target, table.names)}")
        if net is not None and target not in net:
            raise UnknownVariable(f"the network has no variable {target!r}, the target{closest(target, net.variables)}")
        known = {} if net is None else {v: frozenset(net.states(v)) for v in net}
        self.target = target
        self._columns: dict[str, Column] = {}
        for name in table.names:
            if net is None or name in net:
                self._columns[name] = _known(read_column(name, table), words, known.get(name, frozenset()))
        cells = self._columns[target].tolist()
        own: DiscreteModel | None = net.discrete if isinstance(net, MixedNetwork) else net
        if net is None and isinstance(codes, Mapping) and target in codes:
            meanings = mapping(f"codes of {target!r}", codes[target])
            own = DiscreteModel({target: [*dict.fromkeys(meanings.values())]}).with_codes({target: meanings})
        if own is not None and target not in numbers:
            lookup = StateLookup(target, own.state_values(own.index(target)))
            codes = [NOT_OBSERVED if x is None else lookup.number(x) for x in cells]
            if REJECTED in codes:
                i = codes.index(REJECTED)
                raise UnknownState(f"row {i}, column {target!r}: {lookup.reason(cells[i])}")
            self.values: list[Any] = [*lookup.states]
            self.states = tuple(self.values)
        else:
            column = ordered(target, self._columns[target])
            # whole numbers with gaps are floats in pandas
            self.values = [int(x) if isinstance(x, float) and x.is_integer() else x for x in column.cells]
            self.states, codes = tuple(names_of(target, column.cells)), column.index.tolist()
        given = [i for i, code in enumerate(codes) if code >= 0]
        self.used, self.n_missing = np.array(given, np.int64), len(cells) - len(given)
        if not given:
            raise DataError(f"column {target!r}, the target, has only missing values")
        if target in numbers and (texts := [x for x in self.values if not isinstance(x, (int, float))]):
            raise DataError(f"column {target!r}, the target, is a number, and has text: {described(texts[-1])}")
        self.observed = np.array([codes[i] for i in given], np.int64)

    def table(self, rows: Ints, with_target: bool) -> dict[str, list[Any]]:
        """Some rows as a mapping of columns."""
        return {v: Column(c.index[rows], c.cells).tolist() for v, c in self._columns.items()
                if with_target or v != self.target}  # fmt: skip

    def states_of(self, variables: Iterable[str], bins: int | None) -> dict[str, tuple[str, ...]]:
        """The states of variables in all rows, which a part of the rows may not have; of none that is cut."""
        schema, states = Schema(bins=bins), {}
        for v in self._columns.keys() & {*variables}:
            column = self._columns[v]
            if schema.add(v, *column.used()[1:], declared=column.declared) and v in schema.states:
                states[v] = schema.states[v]
        return states

    @property
    def n_rows(self) -> int:
        """Rows, with those whose target is missing."""
        return len(self._columns[self.target].index)


def _known(column: Column, words: frozenset[str], states: frozenset[str]) -> Column:
    """The column without words that mean a missing cell."""
    gone = [i for i, v in enumerate(column.cells) if is_na_word(v, words) and v.strip() not in states]
    index = np.where(np.isin(column.index, gone), -1, column.index) if gone else column.index
    return Column(index, column.cells, column.declared)


def _network(model: object) -> BayesianNetwork | MixedNetwork | None:
    """The network of a network or a tree; None for other models."""
    net = model.model if isinstance(model, JunctionTree) else model.network if isinstance(model, MixedTree) else model
    return net if isinstance(net, (BayesianNetwork, MixedNetwork)) else None


def _fitted(model: Any, table: _Cases, rows: Ints, options: Mapping[str, Any]) -> Any:
    """The model of some training rows."""
    if all(hasattr(model, name) for name in ("predict_proba", "fit", "get_params")):
        copy = type(model)(**model.get_params(deep=False))
        return copy.fit(table.table(rows, False), [table.values[k] for k in _of_rows(table, rows)])
    train = table.table(rows, True)
    if callable(model) and _network(model) is None:
        return model(train)
    net = _network(model)
    if net is None and options.get("continuous") is None and table.codes in (None, "names"):
        given = mapping("states", options.get("states")) if not isinstance(options.get("states"), Discretiser) else None
        if given is not None:
            declared = table.states_of(read_structure(model).parents, options.get("bins"))
            options = {**options, "states": {**declared, **given}}
    fitted: Any = fit(net if net is not None else model, train, read=ReadOptions(codes=table.codes), **options)
    return fitted.network


def _of_rows(table: _Cases, rows: Ints) -> list[int]:
    return [int(k) for k in table.observed[np.searchsorted(table.used, rows)]]


def _predicted(model: Any, table: _Cases, rows: Ints) -> tuple[Floats, Bools]:
    """Probabilities of the states of some rows, or predictions of a number, and which rows are impossible."""
    if not hasattr(model, "predict_proba") or isinstance(model, (JunctionTree, MixedTree)):
        net = _network(model)
        if net is None:
            raise ArgumentError(
                "validate needs a network, a tree, or a fitted classifier; with folds= also a structure, or a function "
                f"from training cases to one of these, not {described(model)}"
            )
        tree: Any = model if isinstance(model, (JunctionTree, MixedTree)) else net.compile("cpu")
        cells = table.table(rows, False) or {table.target: [None] * len(rows)}
        try:
            answer = tree.posteriors_batch(cells, targets=[table.target], on_error="flag", codes=table.codes)
        except UnknownState as error:  # of a model of other rows
            named = re.sub(r"\brow (\d+)", lambda m: f"row {rows[int(m[1])]}", str(error))
            advice = "(the rows that a model is fitted to may not have all: states= declares them)"
            raise UnknownState(f"{named} {advice}") from None
        if isinstance(net, MixedNetwork) and net.is_number(table.target):
            posterior = answer[table.target]
            x = np.array([table.values[k] for k in _of_rows(table, rows)], np.float64)
            columns = (posterior.mean, posterior.sd, posterior.log_density(x), posterior.cdf(x))
            return np.rec.fromarrays(columns, NUMBER), answer.impossible
        return _in_order(answer[table.target], net.states(table.target), table), answer.impossible
    return _in_order(
        np.asarray(model.predict_proba(table.table(rows, False)), np.float64), model.classes_.tolist(), table
    ), np.zeros(len(rows), np.bool_)


def _in_order(probabilities: Floats, states: Any, table: _Cases) -> Floats:
    """Columns in the order of the target's states; 0 for those that the model does not have."""
    number = {x: k for k, x in enumerate(table.values)} | {s: k for k, s in enumerate(table.states)}
    ordered = np.zeros((len(probabilities), len(table.states)))
    for k, x in enumerate(states):
        at = number.get(x, number.get(str(x)))
        if at is None:
            raise DataError(
                f"the model has the state {x!r} of {table.target!r}, which no row of the table has; make intervals of "
                "a target once for all folds: jtgpu.learn.discretise(frame).transform(frame)"
            )
        ordered[:, at] = probabilities[:, k]
    return ordered


# `validate` of networks over time: a variable of each slice is predicted from the others up to it.

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
