"""The kinds of evidence: observations, likelihoods, soft evidence and interventions; by name and by number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from ...backends.base import Evidence
from ...util.options import TableLike
from ..tables import Table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Row(Protocol):
    """A row of a data frame, or a frame of one row."""

    def to_dict(self, *args: Any, **options: Any) -> Any: ...  # of pandas and Polars; not called


# variable (name or number) -> state (name or number), or a set of states; rows: observations only
Findings = Mapping[Any, Any] | Row
Cases = TableLike


class More(TypedDict, total=False):
    """Evidence other than observations: keyword arguments of every query.

    Each maps variables, by name or number, to a value:

    likelihood
        Virtual evidence: P(observation | state), weights >= 0, as an array or as a mapping from state to weight.
    soft
        Soft evidence (Jeffrey's rule): the posterior that the variable must have, as an array or as a mapping from
        state to probability.
    do
        Interventions: the state that the variable is set to, or the probabilities with which it is set. This removes
        the arcs from its parents.
    """

    likelihood: Mapping[Any, Any] | None
    soft: Mapping[Any, Any] | None
    do: Mapping[Any, Any] | None


@dataclass(frozen=True)
class Known:
    """All evidence of one case, by number."""

    case: Evidence  # observations and likelihoods; interventions are entered as observations, too
    soft: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)  # variable -> (card,) probabilities
    intervened: tuple[int, ...] = ()  # variables with an intervention, ascending


@dataclass(frozen=True)
class KnownCases:
    """All evidence of a table of B cases, by number."""

    states: NDArray[np.int32]  # (B, V), -1: not observed
    likelihood: Mapping[int, NDArray[np.float64]]  # variable -> (B, card) weights
    # variable -> (B, card) probabilities, NaN in cases without soft evidence
    soft: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)
    intervened: tuple[int, ...] = ()  # variables with an intervention, ascending
    table: Table | None = None  # that the cases were read from; None: an array of state numbers
