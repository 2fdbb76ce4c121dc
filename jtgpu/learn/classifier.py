"""`JunctionTreeClassifier`: a Bayesian network as a classifier with the interface of scikit-learn.

The structure is given or learned; the CPTs are estimated from counts. Rows with missing values are classified exactly,
by summing the missing variables out. scikit-learn itself is not needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..columns import open_data, read_column
from ..columns.column import Column
from ..columns.kinds import in_order, names_of
from ..errors import ArgumentError, DataError, EvidenceError, ImpossibleEvidence, NetworkError, closest, shown
from ..model.network import BayesianNetwork
from ..model.states import StateLookup, StateValues
from ..options.learning import EM
from ..util.arguments import check_keywords, choice, described, number, several, text
from ..util.arrays import Floats, Ints
from ..util.elementary import logs
from ..util.estimator import Estimator, check_table, check_width
from ..util.loops import loops
from .columns import class_column, cpt_from_counts, sample_weights, state_numbers, warn_of_many
from .dags.scores.coded import CodedTable
from .dags.scores.numeric_table import code_table
from .dags.structure import structure
from .parameters.fit import fit as fit_parameters

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from ..inference.tree import JunctionTree
    from ..util.options import BackendName

_loops = loops("jtgpu.learn.naive_loops")

# The structure of a classifier: the parents of each variable.

Structure = Mapping[str, Sequence[str]] | BayesianNetwork | str | None
NAMED = ("naive", "tan", "learned")  # structures that `fit` makes

Parents = dict[str, tuple[str, ...]]


def arcs_of(structure: Structure) -> Mapping[str, Sequence[str]]:
    """Parents of each variable as the user gave them."""
    # raises ArgumentError: If the structure is none.
    if structure is None:
        return {}
    if isinstance(structure, str):
        choice("structure", structure, NAMED)
        return {}
    if isinstance(structure, BayesianNetwork):
        return {v: structure.parents(v) for v in structure.variables}
    if not isinstance(structure, Mapping):
        raise ArgumentError(
            "structure must be a network, a mapping from each variable to its parents, 'naive', 'tan' or 'learned', or "
            f"None for naive Bayes, not {described(structure)}"
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
    if structure is None or isinstance(structure, str):
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


@check_keywords()
@dataclass(eq=False, repr=False)
class JunctionTreeClassifier(Estimator):
    """A Bayesian network as a classifier: P(class | row).

    Parameters
    ----------
    structure : {"naive", "tan", "learned"}, mapping or BayesianNetwork, optional
        ``"naive"``, the default: the class is the only parent of every feature. ``"tan"``: each feature but one has
        another feature as a second parent, by the tree of the largest conditional mutual information (Friedman et al.,
        1997). ``"learned"``: the graph that `jtgpu.learn.structure` finds for features and class. Mapping from each
        variable, the class included, to its parents; variables are named like the columns of X. Or a network whose arcs
        and states are used.
    target : str, default "class"
        Name of the class in `structure`.
    pseudo_counts : float, default 1.0
        Added to every count (Laplace smoothing). If 0, rows of a CPT without counts are uniform.
    states : mapping, optional
        Mapping from a feature to its values, in order. Default: the values in the training data, or the states of the
        network.
    unknown : {"error", "missing"}, default "error"
        How to treat values that are not in the training data.
    missing : {"available", "em"}, default "available"
        How `fit` treats rows with missing values: each CPT is counted over the rows in which its family is complete, or
        the EM algorithm uses the observed cells of every row (`jtgpu.learn.fit`).
    order, backend : str
        See `jtgpu.BayesianNetwork.plan` and `jtgpu.BayesianNetwork.compile`.

    Attributes
    ----------
    classes_ : ndarray
        Distinct values of y, ascending; the columns of `predict_proba`.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Names of the columns; only defined if X in `fit` had column names.
    network_ : BayesianNetwork
        The fitted network.

    Notes
    -----
    Probabilities of naive Bayes are products, one for each class, of any size and on any backend; those of other
    structures are posteriors of the junction tree.

    X is a data frame (pandas, Polars, Arrow ...), a mapping of columns, a list of mappings, or an array whose columns
    are the variables of `structure` in order, without the class. None, NaN and pandas.NA are missing values.

    Examples
    --------
    >>> from jtgpu import JunctionTreeClassifier
    >>> model = JunctionTreeClassifier(backend="reference").fit({"fever": [1, 1, 0, 0]}, ["flu", "flu", "well", "flu"])
    >>> model.predict({"fever": [1, None]}).tolist()
    ['flu', 'flu']
    """

    _fitted = "network_"

    _estimator_type = "classifier"  # read by older versions of scikit-learn

    structure: Mapping[str, Sequence[str]] | BayesianNetwork | Literal["naive", "tan", "learned"] | None = None
    _: KW_ONLY
    target: str = "class"
    pseudo_counts: float = 1.0
    states: Mapping[str, Sequence[Any]] | None = None
    unknown: Literal["error", "missing"] = "error"
    missing: Literal["available", "em"] = "available"
    order: Any = "auto"
    backend: BackendName = "auto"

    _tree: JunctionTree = field(init=False)

    # Interface of scikit-learn's estimators -----------------------------------------------------------------------

    def __sklearn_tags__(self) -> Any:
        return self._tags("classifier", required=True, categorical=True, string=True, allow_nan=True)

    def __getstate__(self) -> dict[str, object]:
        """All attributes except the compiled tree, which is compiled again on use."""
        return {k: v for k, v in self.__dict__.items() if k != "_tree"}

    # Fitting ----------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> JunctionTreeClassifier:
        """Estimate the CPTs from training data.

        Parameters
        ----------
        X : table of n rows
        y : (n,) array_like
            Classes, without missing values.
        sample_weight : (n,) array_like, optional
            Weight of each row, >= 0.

        Returns
        -------
        JunctionTreeClassifier
            The estimator itself.

        Raises
        ------
        NetworkError
            If the structure does not match the columns, or has a cycle.
        ArgumentError
            If a parameter of the estimator is none of those listed.
        DataError
            If the table is empty or has another shape, or `y` or `sample_weight` do not fit it.
        EvidenceError
            If a value is not among `states`.
        TableTooLarge
            If a CPT has more than 1e8 entries, or the junction tree is too large.
        """
        choice("unknown", self.unknown, ("error", "missing"))
        choice("missing", self.missing, ("available", "em"))
        text("target", self.target)
        if self.states is not None and not isinstance(self.states, Mapping):
            raise ArgumentError(f"states must be a mapping from features to values, not {described(self.states)}")
        if number("pseudo_counts", self.pseudo_counts, least=0) == math.inf:
            raise ArgumentError("pseudo_counts must be finite")
        check_table(X)
        names, columns, has_names = self._columns(X)
        n = len(columns[0]) if columns else 0
        classes = class_column(y)
        if len(classes) != n or not n:
            raise DataError(f"X has {n} rows and y {len(classes)}; expected equal numbers of rows, at least one")
        weights = sample_weights(sample_weight, n, "sample_weight")
        parents = parents_of(self.structure, names, self.target)
        self.classes_, of_class = np.unique(classes, return_inverse=True)
        labels = {name: self._labels(name, column) for name, column in zip(names, columns, strict=True)}
        self._lookups = {name: StateLookup(name, StateValues(own)) for name, own in labels.items()}
        numbers = {v: state_numbers(c, self._lookups[v], "error") for v, c in zip(names, columns, strict=True)}
        labels[self.target] = names_of(self.target, self.classes_.tolist())
        numbers[self.target] = of_class.reshape(-1)
        if len(set(labels[self.target])) < len(self.classes_):
            raise DataError(f"several classes of y have one name: {shown(self.classes_.tolist())}")
        if isinstance(self.structure, str):
            parents = named_structure(self.structure, numbers, labels, self.target, weights)
        if self.missing == "em" and any((numbers[v] < 0).any() for v in names):
            arcs, table = {v: parents[v] for v in labels}, np.column_stack([numbers[v] for v in labels])
            fitted = fit_parameters(
                arcs, table, states=labels, pseudo_counts=self.pseudo_counts, weights=weights, em=EM(order=self.order)
            )
            self.network_ = fitted.network
        else:
            cpts = {}
            for v in labels:
                family = (*parents[v], v)
                cards = [len(labels[u]) for u in family]
                cpts[v] = cpt_from_counts([numbers[u] for u in family], cards, weights, self.pseudo_counts)
            self.network_ = BayesianNetwork(labels, parents, cpts)
        self._features = names
        self._set_features(names, named=has_names)
        self._tree = self.network_.compile(self.backend, order=self.order)
        return self

    @property
    def _is_naive(self) -> bool:
        """Whether the class is the only parent of every feature."""
        net, target = self.network_, self.target
        return not net.parents(target) and all(net.parents(v) == (target,) for v in self._features)

    def _columns(self, X: object) -> tuple[list[str], list[Column], bool]:
        """Names of the columns, the columns, and whether X itself had the names."""
        table = open_data(X)
        names, columns, has_names = table.names, [read_column(v, table) for v in table.names], not table.by_index
        features = [v for v in arcs_of(self.structure) if v != self.target]
        if has_names or not features:
            return names, columns, has_names
        if len(features) != len(names):
            raise DataError(f"X has {len(names)} columns, but the structure has {len(features)} features")
        return features, columns, False

    def _labels(self, name: str, column: Column) -> list[str]:
        """The states of a feature."""
        if self.states is not None and name in self.states:
            given = several(self.states[name])
            if not given:
                raise ArgumentError(f"states[{name!r}] must be a list of values, not {described(self.states[name])}")
            return names_of(name, given)
        if isinstance(self.structure, BayesianNetwork):
            return list(self.structure.states(name))
        names = names_of(name, column.used()[1])
        if not names:
            raise EvidenceError(
                f"column {name!r} has only missing values; give its values as states={{{name!r}: [...]}}"
            )
        labels = [*dict.fromkeys(names)] if column.declared else [*in_order(names)]
        warn_of_many(name, len(labels))
        return labels

    # Prediction -------------------------------------------------------------------------------------------------

    @property
    def tree_(self) -> JunctionTree:
        """The compiled network."""
        self._check_fitted("predict")
        if "_tree" not in self.__dict__:
            self._tree = self.network_.compile(self.backend, order=self.order)
        return self._tree

    def predict_proba(self, X: Any) -> Floats:
        """P(class | row) of each row.

        Returns
        -------
        (n, n_classes) ndarray of float64
            Columns in the order of `classes_`.

        Raises
        ------
        ImpossibleEvidence
            If a row has probability zero, which requires ``pseudo_counts=0``.
        EvidenceError
            If a column is missing, or, unless ``unknown="missing"``, if a value is not in the training data.
        DataError
            If an array has another number of columns than in `fit`.
        """
        states = self._states(X)
        if self._is_naive:
            p = np.ldexp(*self._products(states))
            return np.asarray(p / p.sum(axis=1, keepdims=True))
        posteriors = self.tree_.posteriors_batch(states, targets=[self.target], on_error="flag")
        self._check_possible(posteriors.impossible)
        return posteriors[self.target]

    def predict_log_proba(self, X: Any) -> Floats:
        """ln P(class | row) of each row, (n, n_classes), however small P is; -inf if it is 0."""
        states = self._states(X)
        if self._is_naive:
            cells, power = self._products(states)
            with np.errstate(divide="ignore"):
                logs = np.log(cells) + power * math.log(2.0)
        else:
            n, classes, tree = len(states), len(self.classes_), self.tree_
            each = np.repeat(states, classes, axis=0)
            each[:, tree.model.index(self.target)] = np.tile(np.arange(classes), n)
            logs = tree.posteriors_batch(each, targets=[], on_error="flag").log_evidence.reshape(n, classes)
        best = logs.max(axis=1, keepdims=True)
        self._check_possible(np.isneginf(best[:, 0]))
        return np.asarray(logs - best - np.log(np.exp(logs - best).sum(axis=1, keepdims=True)))

    def _states(self, X: object) -> NDArray[np.int32]:
        """The rows as states of the network's variables, (n, V); the class is missing."""
        self._check_fitted("predict")
        check_table(X)
        names, columns, has_names = self._columns(X)
        if not has_names:
            check_width(self, len(names))
        at = {name: i for i, name in enumerate(names)}
        missing = [v for v in self._features if v not in at]
        if missing:
            raise EvidenceError(f"X has no column {missing[0]!r}, which was in fit{closest(missing[0], names)}")
        states = np.full((len(columns[0]) if columns else 0, len(self.network_)), -1, np.int32)
        for v, name in enumerate(self._features):
            states[:, v] = state_numbers(columns[at[name]], self._lookups[name], self.unknown)
        return states

    def _products(self, states: NDArray[np.int32]) -> tuple[Floats, Ints]:
        """P(class, row) of naive Bayes, each row over a power of two, as ``cells * 2**power``, (n, classes)."""
        net = self.network_
        tables = [net.cpt(self.target)[None], *(net.cpt(v).T for v in self._features)]
        mantissa, exponent = np.frexp(np.ascontiguousarray(np.concatenate(tables)))
        first = np.cumsum([len(t) for t in tables])[:-1]
        shape = len(states), len(self.classes_)
        cells, power = np.empty(shape), np.empty(shape, np.int64)
        _loops.products(np.ascontiguousarray(states[:, : len(first)]), first, mantissa, exponent, cells, power)
        self._check_possible(~np.any(cells, axis=1))
        return cells, power - power.max(axis=1, keepdims=True, where=cells > 0, initial=-(1 << 40))

    def _check_possible(self, impossible: NDArray[np.bool_]) -> None:
        if impossible.any():
            row = int(np.argmax(impossible))
            raise ImpossibleEvidence(f"row {row} has probability 0; fit with a pseudo_counts above 0 to avoid this")

    def predict(self, X: object) -> NDArray[Any]:
        """The most probable class of each row, (n,); the first one in case of a tie."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy: the fraction of rows, weighted by `sample_weight`, whose class is predicted correctly."""
        right = self.predict(X) == class_column(y)
        return float(np.average(right, weights=None if sample_weight is None else np.asarray(sample_weight)))


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


def _learned(numbers: Mapping[str, Ints], labels: Mapping[str, Sequence[str]], target: str, weights: Floats) -> Parents:
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
