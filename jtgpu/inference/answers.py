"""What queries answer: probabilities with the names of variables and states, labelled only when looked at."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import EvidenceError, ImpossibleEvidence
from ..model.network import DiscreteModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CasePosteriors", "Conditional", "Joint", "Posterior", "Posteriors"]


class Posterior:
    """P(variable | evidence) with the states' names.

    ``numpy.asarray(p)`` gives the probabilities in the order of the states; ``p["yes"]`` and ``p[0]`` give one.
    """

    __slots__ = ("probabilities", "states", "variable")

    def __init__(self, variable: str, states: tuple[str, ...], probabilities: NDArray[np.float64]):
        self.variable = variable  # name
        self.states = states  # names, in order
        self.probabilities = probabilities  # (states,) float64, read-only, sums to 1

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if dtype is None or np.dtype(dtype) == self.probabilities.dtype:
            return self.probabilities.copy() if copy else self.probabilities
        return self.probabilities.astype(dtype)

    def __getitem__(self, state: str | int) -> float:
        """Probability of one state by name or number.

        Raises
        ------
        UnknownState
            A `KeyError` too; names the states there are.
        """
        if isinstance(state, str) and self.states.count(state) == 1:
            return float(self.probabilities[self.states.index(state)])
        model = DiscreteModel({self.variable: self.states})
        return float(self.probabilities[model.state_index(0, state)])

    def __iter__(self) -> Iterator[float]:
        return iter(self.probabilities.tolist())

    def __len__(self) -> int:
        return len(self.states)

    def as_dict(self) -> dict[str, float]:
        """State's name to probability; of states with equal names the last one stays."""
        return dict(zip(self.states, self.probabilities.tolist(), strict=True))

    @property
    def mode(self) -> str:
        """Name of the most probable state; the first of equals."""
        return self.states[int(self.probabilities.argmax())]

    def __repr__(self) -> str:
        inner = ", ".join(f"{s}: {p:.6g}" for s, p in zip(self.states, self.probabilities.tolist(), strict=True))
        return f"P({self.variable}) = {{{inner}}}"


class Posteriors(Mapping[str, Posterior]):
    """Posteriors of several variables: a mapping from name to `Posterior`, labelled only when looked at.

    Attributes
    ----------
    log_evidence : float
        Natural logarithm of the probability of the evidence (0 without evidence); for a Markov network of the
        partition function.
    """

    def __init__(
        self,
        model: DiscreteModel,
        flat: NDArray[np.float64],
        ptr: NDArray[np.int64],
        log_evidence: float,
        targets: Sequence[int] | None = None,
    ):
        flat.flags.writeable = False
        self._model, self._flat, self._ptr = model, flat, ptr
        self._targets = None if targets is None else dict.fromkeys(targets)
        self.log_evidence = log_evidence

    def __getitem__(self, variable: str | int) -> Posterior:
        v = self._model.index(variable)
        if self._targets is not None and v not in self._targets:
            raise KeyError(f"{self._model.variables[v]!r} was not among the targets of this query")
        return Posterior(
            self._model.variables[v], self._model.states(v), self._flat[self._ptr[v] : self._ptr[v + 1]]
        )

    def __iter__(self) -> Iterator[str]:
        ids: Iterable[int] = range(len(self._model)) if self._targets is None else self._targets
        return (self._model.variables[v] for v in ids)

    def __len__(self) -> int:
        return len(self._model) if self._targets is None else len(self._targets)

    def __repr__(self) -> str:
        return f"Posteriors of {len(self)} variables, log_evidence={self.log_evidence:.9g}"


class CasePosteriors(Mapping[str, "NDArray[np.float64]"]):
    """Posteriors of a table of B cases: a mapping from a variable's name to its probabilities, (B, states) float64.

    Attributes
    ----------
    flat : (B, n) float64
        All of them, variable after variable.
    log_evidence : (B,) float64
        Natural logarithms of the probabilities of the evidence; -inf for an impossible case.
    impossible : (B,) bool
        Cases whose evidence has probability zero; their posteriors are zeros.
    """

    def __init__(
        self,
        model: DiscreteModel,
        flat: NDArray[np.float64],
        log_evidence: NDArray[np.float64],
        impossible: NDArray[np.bool_],
        targets: Sequence[int] | None = None,
    ):
        self._model = model
        self.flat, self.log_evidence, self.impossible = flat, log_evidence, impossible
        self._at: dict[int, tuple[int, int]] = {}
        at = 0
        for v in range(len(model)) if targets is None else targets:
            card = int(model.cardinality[v])
            self._at[v] = at, at + card
            at += card

    def __getitem__(self, variable: str | int) -> NDArray[np.float64]:
        v = self._model.index(variable)
        if v not in self._at:
            raise KeyError(f"{self._model.variables[v]!r} was not among the targets of this query")
        first, last = self._at[v]
        return self.flat[:, first:last]

    def __iter__(self) -> Iterator[str]:
        return (self._model.variables[v] for v in self._at)

    def __len__(self) -> int:
        return len(self._at)

    def __repr__(self) -> str:
        return f"CasePosteriors of {len(self)} variables in {len(self.flat)} cases"


class _Table:
    """Probabilities with an axis a variable, looked up by states."""

    def __init__(self, variables: tuple[str, ...], states: tuple[tuple[str, ...], ...], table: NDArray[np.float64]):
        table.flags.writeable = False
        self.variables = variables  # names, one an axis
        self.states = states  # names of each variable's states
        self.probabilities = table  # float64, read-only

    @cached_property
    def _model(self) -> DiscreteModel:
        return DiscreteModel(dict(zip(self.variables, self.states, strict=True)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if dtype is None or np.dtype(dtype) == self.probabilities.dtype:
            return self.probabilities.copy() if copy else self.probabilities
        return self.probabilities.astype(dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of states."""
        return self.probabilities.shape

    def _at(self, key: Any, n: int) -> tuple[int, ...]:
        """States, by number, of the first n variables."""
        names = self.variables[:n]
        if isinstance(key, Mapping):
            found = {self._model.index(v): s for v, s in key.items()}
            if sorted(found) != list(range(n)):
                raise EvidenceError(f"one state for each of {', '.join(map(repr, names))}, not {dict(key)!r}")
            key = tuple(found[i] for i in range(n))
        elif not isinstance(key, tuple):
            key = (key,)
        if len(key) != n:
            raise EvidenceError(f"one state for each of {', '.join(map(repr, names))}, not {key!r}")
        return tuple(self._model.state_index(i, s) for i, s in enumerate(key))


class Joint(_Table):
    """P(variables | evidence), labelled: an axis a variable.

    ``numpy.asarray(j)`` gives the table; ``j["yes", "no"]``, ``j[0, 1]`` and ``j[{"lung": "yes", "bronc": "no"}]`` one
    probability.

    Attributes
    ----------
    variables : tuple of str
    states : tuple of tuples of str
    probabilities : array
        float64, read-only, sums to 1.
    log_evidence : float
        Natural logarithm of the probability of the evidence.
    """

    def __init__(
        self,
        variables: tuple[str, ...],
        states: tuple[tuple[str, ...], ...],
        table: NDArray[np.float64],
        log_evidence: float,
    ):
        super().__init__(variables, states, table)
        self.log_evidence = log_evidence

    def __getitem__(self, key: Any) -> float:
        """Probability of one configuration.

        Raises
        ------
        UnknownState, UnknownVariable, EvidenceError
        """
        return float(self.probabilities[self._at(key, len(self.variables))])

    def items(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """Names of the states and probability of every configuration, the last variable's states next to each other."""
        return zip(itertools.product(*self.states), self.probabilities.ravel().tolist(), strict=True)

    def marginal(self, *variables: str | int) -> Joint:
        """The table of some of the variables, in this order."""
        kept = [self._model.index(v) for v in variables]
        if len(set(kept)) < len(kept):
            raise EvidenceError("a variable stands twice")
        rest = tuple(i for i in range(len(self.variables)) if i not in kept)
        table = self.probabilities.sum(axis=rest)  # its axes ascend
        table = np.ascontiguousarray(table.transpose([sorted(kept).index(i) for i in kept]))
        names = tuple(self.variables[i] for i in kept)
        return Joint(names, tuple(self.states[i] for i in kept), table, self.log_evidence)

    @property
    def mode(self) -> tuple[str, ...]:
        """Names of the states of the most probable configuration; the first of equals."""
        at = np.unravel_index(int(self.probabilities.argmax()), self.shape)
        return tuple(labels[int(i)] for labels, i in zip(self.states, at, strict=True))

    def __repr__(self) -> str:
        return f"Joint of {', '.join(self.variables)}: {' x '.join(map(str, self.shape))} probabilities"


class Conditional(_Table):
    """P(variables | given, evidence), labelled: the axes of what is given first, as in a CPT.

    ``c["yes"]`` or ``c[{"smoke": "yes"}]`` is one row: a `Posterior`, or a `Joint` of several variables.

    Attributes
    ----------
    given, targets : tuple of str
        Their names; ``variables`` has both, in the order of the axes.
    states : tuple of tuples of str
    probabilities : array
        float64, read-only. Rows sum to 1; those of impossible configurations are zeros.
    possible : array of bool
        Which configurations of `given` have a probability, one axis each.
    """

    def __init__(
        self,
        given: tuple[str, ...],
        targets: tuple[str, ...],
        states: tuple[tuple[str, ...], ...],
        table: NDArray[np.float64],
        possible: NDArray[np.bool_],
    ):
        super().__init__((*given, *targets), states, table)
        possible.flags.writeable = False
        self.given, self.targets, self.possible = given, targets, possible

    def __getitem__(self, key: Any) -> Posterior | Joint:
        """The distribution for one configuration of what is given.

        Raises
        ------
        ImpossibleEvidence
            For a configuration of probability zero.
        UnknownState, UnknownVariable, EvidenceError
        """
        at = self._at(key, len(self.given))
        if not self.possible[at]:
            labels = [f"{v} = {self.states[i][at[i]]!r}" for i, v in enumerate(self.given)]
            raise ImpossibleEvidence(f"this has probability 0: {'; '.join(labels)}")
        row = self.probabilities[at].copy()
        states = self.states[len(self.given) :]
        if len(self.targets) > 1:
            return Joint(self.targets, states, row, 0.0)
        row.flags.writeable = False
        return Posterior(self.targets[0], states[0], row)

    def __repr__(self) -> str:
        return f"P({', '.join(self.targets)} | {', '.join(self.given)}): {' x '.join(map(str, self.shape))}"
