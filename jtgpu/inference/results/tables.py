"""`Joint` and `Conditional`: probability tables with one labelled axis for each variable."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ...backends.base import DeviceAnswer, TableAnswer
from ...errors import EvidenceError, ImpossibleEvidence, shown
from ...model.discrete import DiscreteModel
from ...util.text_table import configurations, counted, quoted
from ..sets import Joints
from .frames import unused_name
from .marginals import CasePosteriors, Posterior, distinct_names
from .result import ByVariable, Columns, Result, as_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

# `DevicePosteriors`: posteriors of a table of cases that stay in the memory of a GPU.

class DevicePosteriors(ByVariable[Any]):
    """Posteriors of B cases on a GPU: a mapping from variable name to a (B, n_states) array of float64.

    Arrays have ``__dlpack__`` and ``__cuda_array_interface__``, so that PyTorch, CuPy and JAX share their memory:
    ``torch.from_dlpack(found["lung"])``. The memory is freed with the last array or tensor that shares it.

    Attributes
    ----------
    flat : (B, n) array
        All posteriors, contiguous; the columns of each variable are in the order of the mapping. Posteriors of
        impossible cases are zeros.
    log_evidence : (B,) array
        ln P(evidence) of each case; -inf if the case is impossible.
    """

    def __init__(
        self, model: DiscreteModel, result: DeviceAnswer, targets: Sequence[int] | None,
        joints: Joints[Any] | None = None,
    ):  # fmt: skip
        self._model, self._labels = model, model.labels
        self._joints = Joints[Any](model, {}) if joints is None else joints
        self.flat, self.log_evidence = result.posterior, result.log_evidence
        self._targets: dict[int, tuple[int, int]] = {}  # columns of each variable in `flat`
        first = 0
        for v in range(len(model)) if targets is None else targets:
            self._targets[v] = first, first + int(model.cardinality[v])
            first = self._targets[v][1]

    def _part(self, v: int) -> Any:
        return self.flat.columns(*self._targets[v])

    @property
    def joint(self) -> Joints[Any]:
        """Joint posteriors of the sets that ``joints=`` named, on the GPU: ``joint["lung", "bronc"]`` has shape (B,
        states of lung, states of bronc)."""
        return self._joints

    def to_host(self) -> CasePosteriors:
        """Copy the answers to the host."""
        log_evidence = self.log_evidence.to_host()
        result = TableAnswer(self.flat.to_host(), log_evidence, np.isneginf(log_evidence))
        joints = {scope: np.asarray(table) for scope, table in self._joints.tables.items()}
        return CasePosteriors(self._model, result, [*self._targets], None, Joints(self._model, joints))

    def __repr__(self) -> str:
        sizes = f"{counted(len(self), 'variable')} in {counted(self.flat.shape[0], 'case')}"
        return f"DevicePosteriors of {sizes} on {self.flat.device.name}"


class _AxisTable(Result):
    """Probabilities with one axis for each variable, indexed by states."""

    def __init__(self, variables: tuple[str, ...], states: tuple[tuple[str, ...], ...], table: NDArray[np.float64]):
        table.flags.writeable = False
        self.variables = variables  # names, one for each axis
        self.states = states  # names of the states of each variable
        self.probabilities = table  # float64, read-only

    @cached_property
    def _model(self) -> DiscreteModel:
        return DiscreteModel(dict(zip(self.variables, self.states, strict=True)))

    def __array__(self, dtype: object = None, copy: bool | None = None) -> NDArray[Any]:
        return as_array(self.probabilities, dtype, copy)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of states of each variable."""
        return self.probabilities.shape

    def _columns(self) -> dict[str, object]:
        """A row for each configuration; the last variable varies fastest."""
        columns = configurations([distinct_names(names) for names in self.states])
        probability = unused_name("probability", self.variables)
        return {**dict(zip(self.variables, columns, strict=True)), probability: self._masked().ravel()}

    def _masked(self) -> NDArray[np.float64]:
        """The probabilities; those that do not exist are masked."""
        return self.probabilities

    def _table(self) -> Columns:
        """A row for each configuration of all variables but the last, and a column for each state of the last one."""
        masked = self._masked()
        if not self.variables:
            return Columns(["probability"], [masked.reshape(1)], 0)
        *others, last = map(distinct_names, self.states)
        rows = masked.reshape(-1, len(last))
        if not others:
            return Columns(["", ""], [last, rows[0]])
        names = [*self.variables[:-1], *(f"{self.variables[-1]}={s}" for s in last)]
        return Columns(names, [*configurations(others), *rows.T], len(others))

    def _index(self, key: object, n: int) -> tuple[int, ...]:
        """Numbers of the states that `key` gives for the first n variables."""
        expected = f"expected one state for each of {', '.join(map(repr, self.variables[:n]))}"
        if isinstance(key, Mapping):
            states = {self._model.index(v): s for v, s in key.items()}
            if sorted(states) != list(range(n)):
                raise EvidenceError(f"{expected}, got {shown(dict(key))}")
            key = tuple(states[i] for i in range(n))
        elif not isinstance(key, tuple):
            key = (key,)
        if len(key) != n:
            raise EvidenceError(f"{expected}, got {shown(key)}")
        return tuple(self._model.state_position(i, s) for i, s in enumerate(key))


class Joint(_AxisTable):
    """P(variables | evidence): a table with one axis for each variable.

    ``j["yes", "no"]``, ``j[0, 1]`` and ``j[{"lung": "yes", "bronc": "no"}]`` give one probability;
    ``numpy.asarray(j)`` gives the table. The data frame has a row for each configuration, the last variable varying
    fastest: a column of state names for each variable, and ``probability``.

    Attributes
    ----------
    variables : tuple of str
    states : tuple of tuples of str
        Names of the states of each variable.
    probabilities : ndarray of float64
        Read-only; sums to 1.
    log_evidence : float
        ln P(evidence).

    Examples
    --------
    >>> import jtgpu
    >>> tree = jtgpu.load("asia").compile("cpu")
    >>> print(tree.joint(["tub", "lung"], {"xray": "yes"}))
    Joint of tub, lung: 2 x 2 probabilities
    tub  lung=yes   lung=no
    yes  0.005083  0.087328
    no   0.483629  0.423960
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

    def __getitem__(self, key: object) -> float:
        """Return the probability of one configuration."""
        # key: One state for each variable, by name or number
        return float(self.probabilities[self._index(key, len(self.variables))])

    def items(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """Iterate over all configurations and their probabilities; the last variable varies fastest."""
        return zip(itertools.product(*self.states), self.probabilities.ravel().tolist(), strict=True)

    def marginal(self, *variables: str | int) -> Joint:
        """Sum out all other variables.

        Parameters
        ----------
        *variables : str or int
            The variables to keep, in the order of the result's axes.
        """
        kept = [self._model.index(v) for v in variables]
        if len(set(kept)) < len(kept):
            raise EvidenceError(f"a variable is repeated in {shown(variables)}")
        rest = tuple(i for i in range(len(self.variables)) if i not in kept)
        table = self.probabilities.sum(axis=rest)  # its axes ascend
        table = np.ascontiguousarray(table.transpose([sorted(kept).index(i) for i in kept]))
        names = tuple(self.variables[i] for i in kept)
        return Joint(names, tuple(self.states[i] for i in kept), table, self.log_evidence)

    @property
    def mode(self) -> tuple[str, ...]:
        """Names of the states of the most probable configuration; the first one in case of a tie."""
        at = np.unravel_index(int(self.probabilities.argmax()), self.shape)
        return tuple(labels[int(i)] for labels, i in zip(self.states, at, strict=True))

    def _title(self) -> str:
        return f"Joint of {', '.join(self.variables)}: {' x '.join(map(str, self.shape))} probabilities"


class Conditional(_AxisTable):
    """P(targets | given, evidence): a table in the layout of a CPT, the axes of `given` first.

    ``c["yes"]`` and ``c[{"smoke": "yes"}]`` give one row: a `Posterior`, or a `Joint` if there are several targets. The
    data frame is like that of a `Joint`; probabilities of impossible configurations are null.

    Attributes
    ----------
    given, targets : tuple of str
        Names of the variables; ``variables`` holds both, in the order of the axes.
    states : tuple of tuples of str
        Names of the states of each variable.
    probabilities : ndarray of float64
        Read-only. Each row sums to 1; rows of impossible configurations are zeros.
    possible : ndarray of bool
        For each configuration of `given`, whether its probability is positive; one axis for each variable.

    Examples
    --------
    >>> import jtgpu
    >>> tree = jtgpu.load("asia").compile("cpu")
    >>> print(tree.conditional("lung", "smoke", {"xray": "yes"}))
    P(lung | smoke): 2 x 2
    smoke  lung=yes   lung=no
    yes    0.645991  0.354009
    no     0.142286  0.857714
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

    def __getitem__(self, key: object) -> Posterior | Joint:
        """Return the distribution of the targets for one configuration of `given`."""
        # raises ImpossibleEvidence: If the configuration has probability zero.
        at = self._index(key, len(self.given))
        if not self.possible[at]:
            labels = [f"{v} = {self.states[i][at[i]]!r}" for i, v in enumerate(self.given)]
            raise ImpossibleEvidence(f"this configuration has probability 0: {'; '.join(labels)}")
        row = self.probabilities[at].copy()
        states = self.states[len(self.given) :]
        if len(self.targets) > 1:
            return Joint(self.targets, states, row, 0.0)
        row.flags.writeable = False
        return Posterior(self.targets[0], states[0], row)

    def _masked(self) -> NDArray[np.float64]:
        if self.possible.all():
            return self.probabilities
        impossible = ~self.possible.reshape(self.possible.shape + (1,) * len(self.targets))
        masked = np.ma.masked_array(self.probabilities, np.broadcast_to(impossible, self.shape))
        return cast("NDArray[np.float64]", masked)

    def _title(self) -> str:
        targets, given = (", ".join(map(quoted, names)) for names in (self.targets, self.given))
        return f"P({targets} | {given}): {' x '.join(map(str, self.shape))}"
