"""`Gaussian`: the density of a number given its parents, a linear regression for each configuration of states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import NetworkError, shown
from ..util.arguments import check_keywords
from .cpts import without_labels

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


LARGEST = 1e150  # squares are finite, and those of its reciprocal above 0


@check_keywords()
class Gaussian:
    """Density of a number given its parents: normal, with a mean that is linear in the numeric parents.

    Parameters
    ----------
    mean : array_like
        Intercept, float64; axes: the states of the discrete parents, in the order of the parents. A number if there are
        none.
    coefficients : mapping of str to array_like, optional
        Numeric parent to its coefficient: an array of the same axes, or a number for all configurations. Default: none.
    sd : array_like, default 1
        Standard deviation, > 0; an array of the same axes, or a number.

    Examples
    --------
    >>> import jtgpu
    >>> jtgpu.Gaussian([170.0, 180.0], {"age": 0.1}, sd=7)
    Gaussian(mean=[170, 180], coefficients={'age': 0.1}, sd=7)
    """

    __slots__ = ("coefficients", "mean", "sd")

    mean: NDArray[np.float64]
    coefficients: dict[str, NDArray[np.float64]]
    sd: NDArray[np.float64]

    def __init__(self, mean: ArrayLike, coefficients: Mapping[str, ArrayLike] | None = None, sd: ArrayLike = 1.0):
        if coefficients is not None and not isinstance(coefficients, Mapping):
            raise NetworkError(
                "coefficients must be a mapping from a numeric parent to its coefficient, such as {'age': 0.1}, not "
                f"{shown(coefficients)}"
            )
        self.mean = _numbers(mean, "mean")
        self.coefficients = {str(p): _numbers(c, f"coefficient of {p!r}") for p, c in (coefficients or {}).items()}
        self.sd = _numbers(sd, "sd")
        if not (self.sd > 0).all():
            raise NetworkError(
                f"the sd of a Gaussian must be > 0, got {shown(self.sd.tolist())}; give the children of a "
                "deterministic number their coefficients directly"
            )

    def __repr__(self) -> str:
        return format(self, ".6g")

    def __format__(self, spec: str) -> str:
        """The numbers with some digits: ``f"{gaussian:.17g}"`` has all of them, ``repr`` and ``print`` six."""

        def text(numbers: Any) -> str:
            if isinstance(numbers, list):
                return f"[{', '.join(map(text, numbers))}]"
            return format(float(numbers), spec or ".6g")

        coefficients = ", ".join(f"{p!r}: {text(c.tolist())}" for p, c in self.coefficients.items())
        mean, sd = text(self.mean.tolist()), text(self.sd.tolist())
        return f"Gaussian(mean={mean}, coefficients={{{coefficients}}}, sd={sd})"

    def __eq__(self, other: object) -> bool:
        """Whether all numbers are equal, bit for bit."""
        if not isinstance(other, Gaussian):
            return NotImplemented
        return (
            np.array_equal(self.mean, other.mean)
            and np.array_equal(self.sd, other.sd)
            and self.coefficients.keys() == other.coefficients.keys()
            and all(np.array_equal(c, other.coefficients[p]) for p, c in self.coefficients.items())
        )

    def __hash__(self) -> int:
        return hash((self.mean.tobytes(), self.sd.tobytes(), tuple(sorted(self.coefficients))))


def checked_gaussian(
    variable: str,
    given: object,
    numeric: Sequence[str],  # numeric parents, in order
    axes: Sequence[str],  # discrete parents, in order
    cards: tuple[int, ...],  # of these
) -> Gaussian:
    """A density with arrays of all axes, coefficients in the order of the parents."""
    if not isinstance(given, Gaussian):
        raise NetworkError(
            f"{variable!r} is a number and needs a jtgpu.Gaussian, got {shown(given)}; a variable with states has a CPT"
        )
    missing = [p for p in numeric if p not in given.coefficients]
    more = [p for p in given.coefficients if p not in numeric]
    if missing or more:
        name, what = (missing or more)[0], "has no coefficient for its" if missing else "has a coefficient for"
        ending = "numeric parent" if missing else "which is no numeric parent"
        sentence = f"{what} {ending} {name!r}" if missing else f"{what} {name!r}, {ending}"
        raise NetworkError(f"the Gaussian of {variable!r} {sentence}; its numeric parents are {list(numeric)}")

    def full(array: NDArray[np.float64], what: str) -> NDArray[np.float64]:
        if array.shape not in ((), cards):
            expected = f"{cards}, the states of {', '.join(map(repr, axes))}" if axes else "(), a number"
            raise NetworkError(f"the {what} of {variable!r} has shape {array.shape}, expected {expected}")
        if (np.abs(array) > LARGEST).any() or (what == "sd" and (array < 1 / LARGEST).any()):
            bounds = f"{1 / LARGEST:g} to {LARGEST:g}" if what == "sd" else f"one within {LARGEST:g}"
            raise NetworkError(
                f"the {what} of {variable!r} is {shown(array.tolist())}, expected {bounds}, whose squares are ordinary "
                "numbers; change its unit"
            )
        result = np.array(np.broadcast_to(array, cards), np.float64)
        result.flags.writeable = False
        return result

    checked = Gaussian.__new__(Gaussian)
    checked.mean = full(given.mean, "mean")
    checked.coefficients = {p: full(given.coefficients[p], f"coefficient of {p!r}") for p in numeric}
    checked.sd = full(given.sd, "sd")
    return checked


def _numbers(value: ArrayLike, what: str) -> NDArray[np.float64]:
    """Finite numbers."""
    try:
        array = np.array(without_labels(f"the {what} of a Gaussian", value), np.float64)
    except (TypeError, ValueError):
        raise NetworkError(f"the {what} of a Gaussian must be numbers, got {shown(value)}") from None
    if not np.isfinite(array).all():
        raise NetworkError(f"the {what} of a Gaussian must be finite, got {shown(array.tolist())}")
    array.flags.writeable = False
    return array
