"""`Facts` about the computation of a posterior, and the `Source` of its graphs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ....errors import ArgumentError, UnknownVariable, closest
from ....inference.results.printed import Printed, make_frame, to_frame_method, unused_name
from ....inference.results.rankings import Ranking

if TYPE_CHECKING:
    from numpy.typing import NDArray

class Source(Protocol):
    """Where graphs come from: an exact posterior, chains, or a file."""

    def graphs(self, n: int | None = None) -> NDArray[np.int64]:
        """Graphs as bits of the candidates, (T, C, n): T graphs of C chains, or of C groups of independent draws."""

    def property_of_graphs(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Probabilities of ``"path"`` or ``"compelled"`` for each pair, and standard errors: 0 where they are exact."""

    def parent_sets(self, v: int) -> list[tuple[tuple[int, ...], float, float]] | None:
        """Exact probabilities of the parent sets of a variable, the largest first; None if they are estimated."""

    def more(self, steps: int | None, seconds: float | None) -> Any:
        """A `StructurePosterior` after more steps."""


class Facts(NamedTuple):
    """What is known about the computation of a posterior."""

    method: str
    prior: str
    log_evidence: float | None = None
    converged: bool = True
    rhat: float = 1.0
    ess_samples: float = math.inf
    max_difference: float = 0.0
    n_steps: int = 0
    n_chains: int = 0
    n_samples: int = 0
    coverage: float | None = None
    low_coverage: str = ""
    candidates: dict[str, list[str]] | None = None
    moves: dict[str, float] | None = None
    notes: tuple[str, ...] = ()
    # betas, swap_rates: list of float: Levels of tempered chains, and the shares of accepted exchanges of neighbouring
    #     levels; else empty
    betas: Sequence[float] = ()
    swap_rates: Sequence[float] = ()
    shortfall: Sequence[str] = ()  # tuple of str: The criteria of convergence that chains do not meet

    def summary(self, largest_error: float) -> str:
        """How precise the posterior is, in one line."""
        if not self.n_chains:
            return "exact probabilities"
        text = f"largest standard error {largest_error:.4f}, R-hat {self.rhat:.3f}"
        if self.converged:
            return f"converged: {text}"
        return f"NOT converged ({'; '.join(self.shortfall)}): {text}" if self.shortfall else f"NOT converged: {text}"

    def describe(self, largest_error: float) -> list[str]:
        """How precise the posterior is, in some lines."""
        lines = []
        if self.n_chains:
            lines.append(
                f"{self.summary(largest_error)}, largest difference between halves of the chains "
                f"{self.max_difference:.4f}"
            )
            lines.append(
                f"{self.n_chains} chains of {self.n_steps:,} steps, {self.n_samples:,} samples after the burn-in, "
                f"effective samples {self.ess_samples:,.0f}"
            )
        if self.moves:
            lines.append("accepted: " + ", ".join(f"{name} {100 * share:.1f} %" for name, share in self.moves.items()))
        if self.betas:
            rates = ", ".join(f"{rate:.2f}" for rate in self.swap_rates)
            lines.append(
                f"tempered: {len(self.betas)} replicas of each chain, beta "
                f"{', '.join(f'{beta:.3g}' for beta in self.betas)}; exchanges accepted {rates}"
            )
        if self.candidates is not None:
            k = max(map(len, self.candidates.values()))
            coverage = "" if self.coverage is None else f", coverage at least {self.coverage:.4f}"
            lines.append(f"{k} candidate parents of each variable{coverage}")
        if self.low_coverage:
            lines.append(self.low_coverage)
        return [*lines, *self.notes]


# `ArcTable` and records of arcs and parent sets: how posteriors over structures print and convert to frames.

def variable_number(names: Sequence[str], name: str | int) -> int:
    """Number of a variable."""
    if isinstance(name, (int, np.integer)) and not isinstance(name, bool) and 0 <= name < len(names):
        return int(name)
    if name in names:
        return list(names).index(str(name))
    raise UnknownVariable(f"there is no variable {name!r}{closest(str(name), names)}")


class ArcTable(Printed):
    """A number for each ordered pair of variables: ``table["rain", "wet"]`` is that of the arc from rain to wet.

    ``numpy.asarray(table)`` is an array [parent, child].

    Attributes
    ----------
    names : tuple of str
    values : (n, n) ndarray of float64
        Read-only.
    title : str
    """

    def __init__(self, names: Sequence[str], values: NDArray[np.float64], title: str):
        values.flags.writeable = False
        self.names, self.values, self.title = tuple(names), values, title

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype) if copy or dtype is not None else self.values

    def __getitem__(self, arc: tuple[str | int, str | int]) -> float:
        if len(arc) != 2:
            raise ArgumentError(f"expected [parent, child], got {arc!r}")
        u, v = (variable_number(self.names, x) for x in arc)
        return float(self.values[u, v])

    @to_frame_method
    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame: a row for each parent, with its name in the column ``parent``, and a column per child.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}, optional
            The library of the frame; also any other one that narwhals supports. Default: pandas.
        """
        columns: dict[str, Any] = {unused_name("parent", self.names): np.array(self.names, object)}
        return make_frame(columns | {v: self.values[:, i].copy() for i, v in enumerate(self.names)}, backend)

    def _title(self) -> str:
        return self.title

    def _table(self) -> tuple[list[str], list[Any], int]:
        columns = [[round(float(x), 3) for x in self.values[:, i]] for i in range(len(self.names))]
        texts = [[f"{x:.3f}" for x in column] for column in columns]
        return ["", *self.names], [[*self.names], *texts], 1


@dataclass(frozen=True)
class Arc:
    """An arc with its probability; unpacks as (parent, child, probability, mcse).

    Attributes
    ----------
    parent, child : str
    probability : float
    mcse : float
        Monte Carlo standard error of the probability; 0 if it is exact.
    """

    parent: str
    child: str
    probability: float
    mcse: float

    def __iter__(self) -> Iterator[Any]:
        return iter(astuple(self))


@dataclass(frozen=True)
class ParentSet:
    """A set of parents with its probability; unpacks as (parents, probability, mcse)."""

    parents: tuple[str, ...]
    probability: float
    mcse: float

    def __iter__(self) -> Iterator[Any]:
        return iter((self.parents, self.probability, self.mcse))


class ParentSets(Ranking[ParentSet]):
    """Parent sets of a variable, the most probable first."""

    def _columns(self) -> dict[str, list[Any]]:
        return {
            "parents": [", ".join(s.parents) or "(none)" for s in self],
            "probability": [s.probability for s in self],
            "mcse": [s.mcse for s in self],
        }
