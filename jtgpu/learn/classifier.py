"""`JunctionTreeClassifier`: a Bayesian network as a classifier, by the conventions of scikit-learn and without it.

The arcs are given; the CPTs are counted. A row with empty cells is classified by what it has: exactly, by summing the
others out.
"""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import EvidenceError, ImpossibleEvidence, JtgpuError, NetworkError, TableTooLarge, closest
from ..model.network import BayesianNetwork

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from ..inference.tree import JunctionTree

__all__ = ["JunctionTreeClassifier", "NotFitted"]

MOST_COUNTS = 100_000_000  # entries of a CPT


class NotFitted(JtgpuError, ValueError, AttributeError):
    """A classifier that was asked before it was fitted. Of the classes that scikit-learn's own error has."""


class JunctionTreeClassifier:
    """A Bayesian network of given arcs, its CPTs counted from rows, that answers with P(class | row).

    Parameters
    ----------
    structure : mapping or BayesianNetwork, optional
        Parents of each variable, the class among the variables, by the names of the columns; or a network whose arcs
        and states are taken. Default: the class is the one parent of every feature (naive Bayes).
    target : str, default "class"
        The class's name in `structure`.
    pseudo_count : float, default 1.0
        Added to every count before rows are divided by their sums. With 0, a CPT's row that no case visits is uniform.
    states : mapping, optional
        A feature's values in order; default: those that `fit` sees (or the network's states).
    unknown : {"error", "missing"}
        What a value is that `fit` did not see: refused, or taken as an empty cell.
    order, backend : str
        As `jtgpu.BayesianNetwork.plan` and `compile` take them.

    Attributes
    ----------
    classes_ : array
        Values of y, ascending: columns of `predict_proba`.
    n_features_in_ : int
    feature_names_in_ : array of str
        Names of the columns; absent where `fit` got a plain array.
    network_ : BayesianNetwork
        What was fitted.

    Notes
    -----
    X is a table with named columns (a data frame, or a mapping of columns), or a plain array, whose columns are
    `structure`'s variables in order without the class. Cells that are None or NaN are empty: in `fit` a family counts
    the rows in which it is complete.

    Examples
    --------
    >>> from jtgpu import JunctionTreeClassifier
    >>> model = JunctionTreeClassifier(backend="reference").fit({"fever": [1, 1, 0, 0]}, ["flu", "flu", "well", "flu"])
    >>> model.predict({"fever": [1, None]}).tolist()
    ['flu', 'flu']
    """

    _estimator_type = "classifier"  # what older versions of scikit-learn look at

    classes_: NDArray[Any]
    n_features_in_: int
    network_: BayesianNetwork

    def __init__(
        self,
        structure: Mapping[str, Sequence[str]] | BayesianNetwork | None = None,
        *,
        target: str = "class",
        pseudo_count: float = 1.0,
        states: Mapping[str, Sequence[Any]] | None = None,
        unknown: str = "error",
        order: Any = "auto",
        backend: str = "auto",
    ):
        self.structure = structure
        self.target = target
        self.pseudo_count = pseudo_count
        self.states = states
        self.unknown = unknown
        self.order = order
        self.backend = backend

    # Parameters, as scikit-learn handles them -------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name."""
        return {name: getattr(self, name) for name in _PARAMETERS}

    def set_params(self, **params: Any) -> JunctionTreeClassifier:
        """Change parameters.

        Raises
        ------
        ValueError
            For a name that is none.
        """
        for name, value in params.items():
            if name not in _PARAMETERS:
                raise ValueError(f"there is no parameter {name!r}{closest(name, _PARAMETERS)}")
            setattr(self, name, value)
        return self

    def __sklearn_clone__(self) -> JunctionTreeClassifier:
        return type(self)(**self.get_params())

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "network_")

    def __sklearn_tags__(self) -> Any:
        tags = importlib.import_module("sklearn.utils")  # only scikit-learn asks
        return tags.Tags(
            estimator_type="classifier",
            target_tags=tags.TargetTags(required=True),
            classifier_tags=tags.ClassifierTags(),
            input_tags=tags.InputTags(categorical=True, string=True, allow_nan=True),
        )

    def __getstate__(self) -> dict[str, Any]:
        """Without the tree, which is made again on use: a device is of one process."""
        state = {k: v for k, v in self.__dict__.items() if k != "_tree"}
        return {k: _Packed(v) if isinstance(v, BayesianNetwork) else v for k, v in state.items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({k: v.unpack() if isinstance(v, _Packed) else v for k, v in state.items()})

    def __repr__(self) -> str:
        plain = inspect.signature(type(self)).parameters
        told = [f"{k}={v!r}" for k, v in self.get_params().items() if v is not plain[k].default]
        return f"JunctionTreeClassifier({', '.join(told)})"

    # Fitting ----------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> JunctionTreeClassifier:
        """Count the CPTs.

        Parameters
        ----------
        X : table of n rows
        y : (n,)
            Classes; none may be missing.
        sample_weight : (n,), optional
            How often each row counts, >= 0.

        Raises
        ------
        NetworkError
            For a structure that does not fit the columns, or is no acyclic graph.
        EvidenceError
            For a table without rows, of another shape, or values that `states` does not have.
        TableTooLarge
            For a CPT of more than 1e8 entries.
        """
        if self.unknown not in ("error", "missing"):
            raise ValueError(f"unknown is 'error' or 'missing', not {self.unknown!r}")
        if not (self.pseudo_count >= 0 and math.isfinite(self.pseudo_count)):
            raise ValueError(f"pseudo_count is a number >= 0, not {self.pseudo_count!r}")
        names, columns, named = self._columns(X)
        n = len(columns[0]) if columns else 0
        classes = _class_column(y)
        if len(classes) != n or not n:
            raise EvidenceError(f"X has {n} rows and y {len(classes)}; both need the same number, at least one")
        weight = np.ones(n) if sample_weight is None else np.asarray(sample_weight, np.float64)
        if weight.shape != (n,) or not (weight >= 0).all() or not np.isfinite(weight).all():
            raise EvidenceError(f"sample_weight is {n} numbers >= 0")
        parents = self._parents(names)
        self.classes_, of_class = np.unique(classes, return_inverse=True)
        values: dict[str, list[Any]] = {self.target: self.classes_.tolist()}
        numbers: dict[str, NDArray[np.int64]] = {self.target: of_class.reshape(-1)}
        for name, column in zip(names, columns, strict=True):
            values[name] = self._values(name, column)
            numbers[name] = _numbers(name, column, values[name], "error")
        order = [*names, self.target]
        self.network_ = BayesianNetwork(
            {v: _labels(values[v]) for v in order},
            parents,
            {v: self._count([numbers[u] for u in (*parents[v], v)], [len(values[u]) for u in (*parents[v], v)], weight)
             for v in order},
        )  # fmt: skip
        self._features, self._known_values = names, values
        self.n_features_in_ = len(names)
        if named:
            self.feature_names_in_ = np.array(names, object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.__dict__.pop("_tree", None)
        return self

    def _columns(self, X: Any) -> tuple[list[str], list[NDArray[Any]], bool]:
        """Names, columns, and whether the table itself had the names."""
        if isinstance(X, Mapping) or hasattr(X, "columns"):
            names = [str(c) for c in (X if isinstance(X, Mapping) else X.columns)]
            columns = [_array(X[c]) for c in (X if isinstance(X, Mapping) else X.columns)]
            if len(set(names)) < len(names):
                raise EvidenceError("two columns of X have the same name")
            if len({len(c) for c in columns}) > 1:
                raise EvidenceError("the columns of X have different lengths")
            return names, columns, True
        table = np.asarray(X) if isinstance(X, np.ndarray) else np.array(X, object)
        if table.ndim != 2:
            raise EvidenceError(f"X is a table of rows and columns; this has shape {table.shape}")
        names = [v for v in self._structure() if v != self.target] or [f"x{i}" for i in range(table.shape[1])]
        if len(names) != table.shape[1]:
            raise EvidenceError(f"X has {table.shape[1]} columns; the structure has {len(names)} features")
        return names, [table[:, i] for i in range(table.shape[1])], False

    def _structure(self) -> Mapping[str, Sequence[str]]:
        if self.structure is None:
            return {}
        if isinstance(self.structure, BayesianNetwork):
            return {v: self.structure.parents(v) for v in self.structure.variables}
        return self.structure

    def _parents(self, names: list[str]) -> dict[str, tuple[str, ...]]:
        """Parents of every column and of the class."""
        if self.target in names:
            raise NetworkError(f"X has a column {self.target!r}, which is the class's name (target=...)")
        everybody = [*names, self.target]
        if self.structure is None:
            return {**dict.fromkeys(names, (self.target,)), self.target: ()}
        given = self._structure()
        mentioned = dict.fromkeys([*given, *(p for parents in given.values() for p in parents)])
        for v in mentioned:
            if v not in everybody:
                raise NetworkError(f"the structure has {v!r}, X has no such column{closest(v, everybody)}")
        if self.target not in mentioned:
            raise NetworkError(f"the structure does not have the class {self.target!r} (target=...)")
        for v in names:
            if v not in mentioned:
                raise NetworkError(f"X has the column {v!r}, which the structure does not have{closest(v, mentioned)}")
        return {v: tuple(given.get(v, ())) for v in everybody}

    def _values(self, name: str, column: NDArray[Any]) -> list[Any]:
        """A feature's values, in the order of its states."""
        if self.states is not None and name in self.states:
            return list(self.states[name])
        if isinstance(self.structure, BayesianNetwork):
            return list(self.structure.states(name))
        found = list(dict.fromkeys(v for v in column.tolist() if not _is_missing(v)))
        if not found:
            raise EvidenceError(f"the column {name!r} is empty; its values are given as states={{{name!r}: [...]}}")
        try:
            return sorted(found)
        except TypeError:  # of several types
            return sorted(found, key=lambda v: (type(v).__name__, str(v)))

    def _count(
        self, family: list[NDArray[np.int64]], cards: list[int], weight: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """P(child | parents), the child last."""
        size = math.prod(cards)
        if size > MOST_COUNTS:
            raise TableTooLarge(f"a CPT would have {size:,} entries, more than {MOST_COUNTS:,}", size, 8 * size, -1)
        complete = np.logical_and.reduce([column >= 0 for column in family])
        at = np.ravel_multi_index([column[complete] for column in family], cards)
        table = np.bincount(at, weight[complete], minlength=size).reshape(cards) + self.pseudo_count
        sums = table.sum(axis=-1, keepdims=True)
        return np.asarray(np.where(sums > 0, table / np.where(sums > 0, sums, 1.0), 1.0 / cards[-1]), np.float64)

    # Asking -----------------------------------------------------------------------------------------------------

    @property
    def tree_(self) -> JunctionTree:
        """The compiled network; made on first use."""
        if not hasattr(self, "network_"):
            raise NotFitted("this classifier has not been fitted yet; call fit first")
        if "_tree" not in self.__dict__:
            self._tree: JunctionTree = self.network_.compile(self.backend, order=self.order)
        return self._tree

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """P(class | row): (n, classes), columns as `classes_`.

        Raises
        ------
        ImpossibleEvidence
            For a row that the model gives no probability, which takes a ``pseudo_count`` of 0.
        EvidenceError
            For columns that `fit` did not see, or values, unless ``unknown="missing"``.
        """
        tree = self.tree_
        names, columns, _ = self._columns(X)
        at = {name: i for i, name in enumerate(names)}
        missing = [v for v in self._features if v not in at]
        if missing:
            raise EvidenceError(f"X has no column {missing[0]!r}, which fit saw{closest(missing[0], names)}")
        states = np.full((len(columns[0]) if columns else 0, len(tree.model)), -1, np.int32)
        for v, name in enumerate(self._features):
            states[:, v] = _numbers(name, columns[at[name]], self._known_values[name], self.unknown)
        found = tree.posteriors_batch(states, targets=[self.target], on_impossible="flag")
        if found.impossible.any():
            row = int(np.argmax(found.impossible))
            raise ImpossibleEvidence(f"row {row} has probability 0; a pseudo_count above 0 gives it some")
        return found[self.target]

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """ln P(class | row); -inf where the probability is 0."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)), np.float64)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row; the first of equals."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Share of rows whose class is predicted right."""
        right = self.predict(X) == _class_column(y)
        return float(np.average(right, weights=None if sample_weight is None else np.asarray(sample_weight)))


_PARAMETERS = tuple(p for p in inspect.signature(JunctionTreeClassifier.__init__).parameters if p != "self")


class _Packed:
    """A network as plain containers, which pickle takes."""

    def __init__(self, net: BayesianNetwork):
        names = net.variables
        self.states = {v: net.states(v) for v in names}
        self.parents = {v: net.parents(v) for v in names}
        self.cpts = {v: net.cpt(v) for v in names}
        self.name = net.name

    def unpack(self) -> BayesianNetwork:
        """The network."""
        return BayesianNetwork(self.states, self.parents, self.cpts, name=self.name)


def _array(column: Any) -> NDArray[Any]:
    """One column; a list may mix labels, numbers and None and is not to be made strings of."""
    found = column if isinstance(column, np.ndarray) else np.asarray(getattr(column, "array", column), object)
    if found.ndim != 1:
        raise EvidenceError(f"a column of X has shape {found.shape}")
    return found


def _class_column(y: Any) -> NDArray[Any]:
    classes = np.asarray(y)
    if classes.ndim != 1:
        raise EvidenceError(f"y is one class a row; this has shape {classes.shape}")
    if classes.dtype.kind in "fO" and any(_is_missing(v) for v in classes.tolist()):
        raise EvidenceError("y has an empty cell; rows without a class teach nothing here")
    return classes


def _is_missing(value: Any) -> bool:
    # what is not equal to itself: NaN, NaT; pandas.NA answers with itself, which has no truth
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and math.isnan(value))


def _labels(values: list[Any]) -> list[str]:
    """Names of states; values of several types may read the same."""
    names = [str(v) for v in values]
    return names if len(set(names)) == len(names) else [f"{type(v).__name__}:{v}" for v in values]


def _numbers(name: str, column: NDArray[Any], values: list[Any], unknown: str) -> NDArray[np.int64]:
    """Numbers of a column's values, -1 for what is empty."""
    place = {v: i for i, v in enumerate(values)}
    by_name = {str(v): i for i, v in enumerate(values)} if all(isinstance(v, str) for v in values) else {}
    found: dict[Any, int] = {}
    numbers = np.empty(len(column), np.int64)
    for row, value in enumerate(column.tolist()):
        try:
            number = found.get(value)
        except TypeError:
            raise EvidenceError(f"row {row}: {value!r} is no value of the column {name!r}") from None
        if number is None:
            number = -1 if _is_missing(value) else place.get(value, by_name.get(str(value)))
            if number is None:
                if unknown == "error":
                    raise EvidenceError(
                        f"row {row}: the column {name!r} has the unknown value {value!r}{closest(str(value), by_name)}"
                        ' (unknown="missing" takes it as empty)'
                    )
                number = -1
            found[value] = number
        numbers[row] = number
    return numbers
