"""`Estimator`: what scikit-learn expects of every estimator. scikit-learn itself is not needed."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, Self

from ..errors import JtgpuError, closest

__all__ = ["Estimator", "NotFitted"]


class NotFitted(JtgpuError, ValueError, AttributeError):
    """The estimator has not been fitted. Has the base classes of scikit-learn's ``NotFittedError``."""


class Estimator:
    """Base class of estimators; ``__init__`` stores each parameter in the attribute of its name."""

    _fitted: ClassVar[str]  # the attribute that `fit` sets

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Get the parameters of this estimator by name. `deep` has no effect."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Set parameters of this estimator.

        Raises
        ------
        ValueError
            If there is no parameter of that name.
        """
        known = [*inspect.signature(type(self)).parameters]
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"there is no parameter {name!r}{closest(name, known)}")
            setattr(self, name, value)
        return self

    def __sklearn_clone__(self) -> Self:
        return type(self)(**self.get_params())

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, self._fitted)

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        changed = [f"{k}={v!r}" for k, v in self.get_params().items() if v is not defaults[k].default]
        return f"{type(self).__name__}({', '.join(changed)})"
