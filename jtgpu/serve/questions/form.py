"""Conversions that several questions share: evidence of a body, distributions, and the size of an answer."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...errors import ArgumentError, TableTooLarge
from ...inference.results.marginals import Posterior
from ...model.discrete import DiscreteModel
from .bodies import Case

MAX_NUMBERS = 5_000_000  # numbers of an answer


class Form(NamedTuple):
    """How an answer is written."""

    labels: bool = False  # objects by the names of states in place of arrays
    digits: int | None = None  # significant digits


def known_of(case: Case, *, soft: bool = True) -> dict[str, Any]:
    """The evidence of a body as keywords of a query; those that are absent are left out."""
    # raises ArgumentError: If there is soft evidence and the query does not support it.
    found = {
        name: value
        for name, value in (
            ("evidence", case.evidence), ("likelihood", case.likelihood), ("soft", case.soft), ("do", case.do),
        )
        if value is not None
    }  # fmt: skip
    if not soft and "soft" in found:
        raise ArgumentError("this question does not support soft evidence; pass likelihood")
    return found


def by_state(model: DiscreteModel, posterior: Posterior, form: Form) -> list[float] | dict[str, float]:
    """A distribution: an array, or by the names of states."""
    values: list[float] = posterior.probabilities.tolist()
    return with_labels(model, model.index(posterior.variable), values) if form.labels else values


def with_labels(model: DiscreteModel, v: int, values: list[float]) -> dict[str, float]:
    """Numbers by the names of a variable's states."""
    # raises ArgumentError: If names are equal.
    names = model.states(v)
    if len(set(names)) < len(names):
        raise ArgumentError(f"labels=1: {model.variables[v]!r} has states with equal names; omit labels")
    return dict(zip(names, values, strict=True))


def check_size(numbers: int, what: str) -> None:
    """Raise `TableTooLarge` if an answer would have too many numbers."""
    if numbers > MAX_NUMBERS:
        raise TableTooLarge(
            f"this answer would have {numbers:,} numbers ({what}), more than the limit of {MAX_NUMBERS:,}",
            numbers, 8 * numbers, 8 * MAX_NUMBERS,
        )  # fmt: skip
