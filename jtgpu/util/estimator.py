"""`Estimator`: what scikit-learn expects of every estimator. scikit-learn itself is not needed."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Mapping, Sequence, Set
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, DataError, JtgpuError, closest
from .arguments import described


class NotFitted(JtgpuError, ValueError, AttributeError):
    """The estimator has not been fitted. Has the base classes of scikit-learn's ``NotFittedError``."""


class Estimator:
    """Base class of estimators; ``__init__`` stores each parameter in the attribute of its name."""

    _fitted: ClassVar[str]  # the attribute that `fit` sets
    n_features_in_: int
    feature_names_in_: NDArray[Any]
    _records: ClassVar[Mapping[str, type[Any]]] = {}  # parameter -> its record of options; None is one without

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Get the parameters of this estimator by name; `deep`: with options of records, such as ``chains__steps``."""
        own = {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}
        records = {name: own[name] for name in self._records if deep and hasattr(own[name], "__dict__")}
        return own | {f"{name}__{option}": x for name, record in records.items() for option, x in vars(record).items()}

    def set_params(self, **params: object) -> Self:
        """Set parameters of this estimator.

        Raises
        ------
        ArgumentError
            If there is no parameter of that name.
        """
        known = [*inspect.signature(type(self)).parameters]
        for name, value in params.items():
            record, _, option = name.partition("__")
            if option and record in self._records:
                before = getattr(self, record)
                options = vars(before) if hasattr(before, "__dict__") else {}
                setattr(self, record, self._records[record](**{**options, option: value}))
                continue
            if name not in known:
                raise ArgumentError(f"there is no parameter {name!r}{closest(name, known)}")
            setattr(self, name, value)
        return self

    def __sklearn_clone__(self) -> Self:
        return type(self)(**self.get_params(deep=False))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, self._fitted)

    def _check_fitted(self, name: str) -> None:
        """Raise scikit-learn's ``NotFittedError`` if it is loaded, else `NotFitted`."""
        if not self.__sklearn_is_fitted__():
            loaded = sys.modules.get("sklearn.exceptions")
            error = NotFitted if loaded is None else type("NotFitted", (NotFitted, loaded.NotFittedError), {})
            raise error(f"this {type(self).__name__} is not fitted yet; call fit first, then {name}")

    def _set_features(self, names: Sequence[object], *, named: bool) -> None:
        """Note the columns of a table, and their names if the table itself has them."""
        self.n_features_in_ = len(names)
        self.__dict__.pop("feature_names_in_", None)
        if named:
            self.feature_names_in_ = np.array(names, object)

    @staticmethod
    def _tags(kind: str, *, required: bool = False, **inputs: bool) -> Any:
        """scikit-learn's tags of an estimator; called by scikit-learn only."""
        # required: Whether `fit` needs y
        tags = importlib.import_module("sklearn.utils")
        more = {"classifier_tags": tags.ClassifierTags()} if kind == "classifier" else {}
        target, accepted = tags.TargetTags(required=required), tags.InputTags(**inputs)
        return tags.Tags(estimator_type=kind, target_tags=target, input_tags=accepted, **more)

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        given = self.get_params(deep=False).items()
        changed = [f"{k}={v!r}" for k, v in given if not _equal(v, defaults[k].default)]
        return f"{type(self).__name__}({', '.join(changed)})"


def _equal(value: object, default: object) -> bool:
    """Whether a parameter has its default; pickled numbers are other objects."""
    return value is default or (isinstance(default, (str, float)) and type(value) is type(default) and value == default)


def check_table(X: object) -> None:
    """Reject arrays that are no table of samples and features; the messages are those of scikit-learn's checks."""
    if hasattr(X, "toarray"):
        raise ArgumentError("sparse input is not supported; pass X.toarray()")
    if not isinstance(X, np.ndarray) or X.dtype.names:
        return
    if X.dtype.kind == "c":
        raise DataError("Complex data not supported")
    if X.ndim != 2:
        raise DataError(f"expected a 2D array, got shape {X.shape}. Reshape your data: one column is X.reshape(-1, 1)")
    for size, what in zip(X.shape, ("sample", "feature"), strict=True):
        if not size:
            raise DataError(f"0 {what}(s) (shape={X.shape}) while a minimum of 1 is required.")
    if X.dtype == object:
        for cell in X.flat:
            if isinstance(cell, (Mapping, Set, list)):
                raise ArgumentError(f"argument must be a string or a number, not {described(cell)}")


def check_width(estimator: Any, n_columns: int) -> None:
    """Reject a table of another number of columns than in ``fit``."""
    if n_columns != estimator.n_features_in_:
        raise DataError(
            f"X has {n_columns} features, but {type(estimator).__name__} is expecting {estimator.n_features_in_} "
            "features as input"
        )


def feature_names_out(estimator: Any, input_features: object) -> NDArray[Any]:
    """Names of the columns of a result that has those of the table, (n,) of str."""
    own = getattr(estimator, "feature_names_in_", None)
    n = estimator.n_features_in_
    if input_features is None:
        return np.array([f"x{i}" for i in range(n)], object) if own is None else np.array(own)
    given = np.asarray(input_features, object)
    if given.ndim != 1:
        raise ArgumentError(f"input_features must be names of the features, not {described(input_features)}")
    if own is not None and not np.array_equal(own, given):
        raise ArgumentError("input_features is not equal to feature_names_in_")
    if len(given) != n:
        raise ArgumentError(f"input_features should have length equal to number of features ({n}), got {len(given)}")
    return given
