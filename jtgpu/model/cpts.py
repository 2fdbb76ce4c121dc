"""CPTs: rows that are normalised and checked, and the tables of a network whose states, parents or CPTs change."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import EvidenceError, NetworkError, TableTooLarge, UnknownState, closest, shown
from ..util.arguments import choice
from ..util.cells import is_missing
from .directed import descendants
from .discrete import DiscreteModel
from .noisy import MAX_CELLS

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from ..util.options import ZeroRows

Attributes = Mapping[str, Mapping[str, Any]]


def new_states(variable: str, labels: Sequence[str], given: Mapping[str, str] | Sequence[str]) -> tuple[str, ...]:
    """States after a change: a mapping from old to new names, or the sequence of all names."""
    if isinstance(given, str):
        raise NetworkError(f"variable {variable!r}: its states must be a mapping or a sequence of names, not {given!r}")
    if not isinstance(given, Mapping):
        return _distinct(variable, labels, tuple(str(s) for s in given))
    for old in given:
        if labels.count(old) != 1:
            what = f"{labels.count(old)} states named" if old in labels else "no state"
            raise UnknownState(f"variable {variable!r} has {what} {old!r}{closest(str(old), labels)}")
    return _distinct(variable, labels, tuple(str(given.get(s, s)) for s in labels))


def _distinct(variable: str, labels: Sequence[str], made: tuple[str, ...]) -> tuple[str, ...]:
    """New names of states, of which no more are equal than of those that a file gave."""
    for s in made:
        if made.count(s) > max(1, labels.count(s)):
            what = f"would have {made.count(s)} states named {s!r}; give each its own name"
            raise NetworkError(f"variable {variable!r} {what}")
    return made


def new_names(variables: Sequence[str], rename: Mapping[str, str]) -> dict[str, str]:
    """The new name of every variable; raises `NetworkError` if two variables would share one."""
    names = {v: rename.get(v, v) for v in variables}
    if len(set(names.values())) < len(names):
        taken: dict[str, str] = {}
        for old, new in names.items():
            if new in taken:
                raise NetworkError(f"{taken[new]!r} and {old!r} would both have the name {new!r}")
            taken[new] = old
    return names


def renamed_attributes(attributes: Attributes, names: Mapping[str, str], changed: Sequence[str]) -> dict[str, Any]:
    """Attributes of the variables in `names` under their new names.

    The attributes of potentials whose numbers have changed are dropped: they may describe the old numbers.
    """
    kept: dict[str, Any] = dict(attributes)
    for kind in ("node", "potential"):
        if kind in attributes:
            kept[kind] = {
                names[v]: values
                for v, values in attributes[kind].items()
                if v in names and not (kind == "potential" and v in changed)
            }
    return kept


def checked_shape(variable: str, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of a new CPT; raises `TableTooLarge` before it is allocated."""
    if (cells := math.prod(shape)) > MAX_CELLS:
        raise TableTooLarge(
            f"the CPT of {variable!r} would have {cells:,} entries; the limit is {MAX_CELLS:,}: remove parents first",
            cells, 8 * cells, 8 * MAX_CELLS,
        )  # fmt: skip
    return tuple(shape)


def average_rows(rows: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weighted sum over the first axis; equal rows are kept, bit for bit."""
    if (rows == rows[0]).all():
        return np.asarray(rows[0], np.float64)
    total = np.zeros(rows.shape[1:])
    for row, weight in zip(rows, weights, strict=True):
        total += weight * row
    return total


def numbers_by_state(model: DiscreteModel, v: int, given: object, what: str) -> NDArray[np.float64]:
    """Numbers given for the states of a variable, in order or by name."""
    name, labels = model.variables[v], model.states(v)
    if isinstance(given, Mapping) and not hasattr(given, "__array__"):
        numbers = {model.state_position(v, s): x for s, x in given.items()}
        missing = [label for s, label in enumerate(labels) if s not in numbers]
        if missing:
            raise NetworkError(f"{what} of {name!r}: there is no number for state {missing[0]!r}")
        given = [numbers[s] for s in range(len(labels))]
    try:
        array = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise NetworkError(f"{what} of {name!r}: expected {len(labels)} numbers, got {shown(given)}") from None
    if array.shape != (len(labels),):
        raise NetworkError(f"{what} of {name!r}: expected {len(labels)} numbers, got shape {array.shape}")
    return array


# Which part of a Bayesian network determines the posterior of some variables.

class KnownStates(NamedTuple):
    """Evidence as far as the graph is concerned."""

    observed: dict[int, int]  # variable -> its state
    uncertain: set[int]  # variables known to be in one of several states


def known_states(model: DiscreteModel, evidence: Mapping[Any, Any] | None) -> KnownStates:
    """Convert evidence from names to numbers."""
    # evidence: Variable to its state, or to a collection of states one of which holds
    # raises EvidenceError: If `evidence` is not a mapping, a collection is empty, or a variable is given twice.
    if evidence is not None and not isinstance(evidence, Mapping):
        raise EvidenceError(f"evidence must be a mapping such as {{'xray': 'yes'}}, not a {type(evidence).__name__}")
    known = KnownStates({}, set())
    for variable, value in (evidence or {}).items():
        if is_missing(value):
            continue  # not observed
        v = model.index(variable)
        if v in known.observed or v in known.uncertain:
            raise EvidenceError(f"evidence on {model.variables[v]!r} is given twice")
        several = isinstance(value, Iterable) and not isinstance(value, str)
        states = {model.state_index(v, s) for s in (value if several else (value,))}
        if not states:
            raise EvidenceError(f"evidence on {model.variables[v]!r} has no state")
        if len(states) == 1:
            known.observed[v] = states.pop()
        else:
            known.uncertain.add(v)
    return known


def relevant_part(parents: Sequence[Sequence[int]], targets: Iterable[int], known: KnownStates) -> list[int]:
    """The variables that determine the posterior of the targets, sorted.

    Arcs from observed variables are cut, which is exact if the tables of their children are restricted to the observed
    states. Two kinds of variables are left out: barren ones, which are no ancestors of a target or of evidence
    (Shachter, Operations Research 34, 1986), and those that are not connected to a target after the cuts, which are
    d-separated from the targets (Lauritzen et al., Networks 20, 1990).
    """
    targets = list(targets)
    ancestral = descendants(parents, [*targets, *known.observed, *known.uncertain])
    neighbours: list[list[int]] = [[] for _ in parents]
    for v in ancestral:
        for p in parents[v]:
            if p not in known.observed:
                neighbours[v].append(p)
                neighbours[p].append(v)
    return sorted(descendants(neighbours, targets))


# Rows of conditional probability tables: normalisation, checks, and read-only arrays.

ROW_TOLERANCE = 1e-6  # largest difference between 1 and the sum of a CPT row that the constructor accepts


@dataclass(frozen=True)
class RowReport:
    """Result of `normalize_rows`: the CPT rows that did not sum to one.

    Attributes
    ----------
    n_rows, n_off : int
        Number of rows, and of those whose sum differed from 1 by more than `tolerance`.
    worst_variable : str or None
        Variable of the row whose sum was furthest from 1; None if all rows summed to 1.
    worst_sum : float
        Sum of that row before normalisation.
    variables : tuple of str
        Variables with at least one such row.
    zero_rows : tuple of (str, int)
        Variables with rows of zeros, and their number; these rows were made uniform.
    tolerance : float
    """

    n_rows: int = 0
    n_off: int = 0
    worst_variable: str | None = None
    worst_sum: float = 1.0
    variables: tuple[str, ...] = ()
    zero_rows: tuple[tuple[str, int], ...] = ()
    tolerance: float = ROW_TOLERANCE

    def __str__(self) -> str:
        if not self.n_off and not self.zero_rows:
            return f"all {self.n_rows} CPT rows sum to 1"
        text = (
            f"{self.n_off} of {self.n_rows} CPT rows in {len(self.variables)} variables did not sum to 1 and were "
            f"normalised; the worst summed to {self.worst_sum:.6g} ({self.worst_variable!r})"
        )
        if self.zero_rows:
            n = sum(count for _, count in self.zero_rows)
            text += f"; {n} rows were all zeros and were made uniform ({', '.join(v for v, _ in self.zero_rows)})"
        return text


def normalize_rows(
    cpts: Mapping[str, NDArray[np.float64]],
    *,
    zero_rows: ZeroRows = "error",
    tolerance: float = ROW_TOLERANCE,
    in_place: bool = False,
) -> tuple[dict[str, NDArray[np.float64]], RowReport]:
    """Divide every row (last axis) of every CPT by its sum.

    A row of k numbers whose sum differs from 1 by at most k * 1e-15 is unchanged, bit for bit.

    Parameters
    ----------
    cpts : mapping of str to float64 arrays
        Axes: parents in order, then the variable.
    zero_rows : {"error", "uniform"}
        How to treat a row of zeros.
    tolerance : float
        Difference between a row's sum and 1 above which the row is counted in the report.
    in_place : bool
        Write to the given arrays if they are float64 and writeable, instead of allocating new ones.

    Returns
    -------
    dict of str to float64 arrays
    RowReport

    Raises
    ------
    NetworkError
        If a number is negative or not finite, or, unless ``zero_rows="uniform"``, a row is all zeros.

    Examples
    --------
    >>> import jtgpu
    >>> cpts, report = jtgpu.normalize_rows({"rain": [0.3, 0.9], "wet": [[1.0, 0.0], [0.2, 0.8]]})
    >>> cpts["rain"], report.n_off
    (array([0.25, 0.75]), 1)
    """
    choice("zero_rows", zero_rows, ("error", "uniform"))
    out: dict[str, NDArray[np.float64]] = {}
    n_rows = n_off = 0
    worst, worst_sum, worst_variable = 0.0, 1.0, None
    off_variables, zeroed = [], []
    for name, cpt in cpts.items():
        table = np.asarray(without_labels(f"variable {name!r}: its CPT", cpt), np.float64)
        check_numbers(name, table)
        table, sums, zero = _row_sums(name, table, zero_rows)
        n_rows += sums.size
        if zero.any():
            zeroed.append((name, int(zero.sum())))
        gap = np.where(zero, 0.0, np.abs(sums - 1.0))
        off = int((gap > tolerance).sum())
        if off:
            n_off += off
            off_variables.append(name)
            # by ratio: a sum of 0.01 is as far from 1 as a sum of 100
            with np.errstate(divide="ignore", over="ignore"):
                ratio = np.where(zero, 0.0, np.maximum(sums, 1.0 / sums))
            at = int(ratio.argmax())
            if ratio.flat[at] > worst:
                worst, worst_sum, worst_variable = float(ratio.flat[at]), float(sums.flat[at]), name
        exact = (gap <= 1e-15 * table.shape[-1]) & ~zero  # zero rows are ones by now and must be divided
        if not exact.all():
            mine = in_place and table is cpt and table.flags.writeable
            table = np.divide(table, np.where(exact, 1.0, sums), out=table if mine else None)
        out[name] = table
    report = RowReport(
        n_rows, n_off, worst_variable, worst_sum, tuple(off_variables), tuple(zeroed), tolerance
    )
    return out, report


def _row_sums(
    name: str, table: NDArray[np.float64], zero_rows: str
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """The table, the sums of its rows, and its rows of zeros, which become ones. A table that overflows is scaled."""
    with np.errstate(over="ignore"):
        sums = table.sum(axis=-1, keepdims=True)
    if not np.isfinite(sums).all():  # numbers near the largest double: scale before adding
        table = table / table.max(axis=-1, keepdims=True, initial=1.0)
        sums = table.sum(axis=-1, keepdims=True)
    zero = sums == 0
    if zero.any():
        if zero_rows == "error":
            row = np.argwhere(zero[..., 0])[0].tolist()
            raise NetworkError(
                f"variable {name!r}: {int(zero.sum())} rows of its CPT are all zeros (first at parent "
                f'configuration {tuple(row)}); pass zero_rows="uniform" to make them uniform'
            )
        table = np.where(zero, 1.0, table)
        sums = table.sum(axis=-1, keepdims=True)
    return table, sums, zero


def check_numbers(name: str, table: NDArray[np.float64]) -> None:
    """Raise `NetworkError` if a number is negative or not finite."""
    if table.size and not np.isfinite(table).all():
        bad = table.flat[int(np.argmax(~np.isfinite(table)))]
        raise NetworkError(f"variable {name!r}: its table holds {bad}, which is not a probability")
    if table.size and table.min() < 0:
        raise NetworkError(f"variable {name!r}: its table holds the negative number {table.min():g}")


def is_counted(labels: Iterable[Any]) -> bool:
    """Whether labels are the numbers 0, 1, ...; truth values and floats, which equal these, are names of states."""
    given = list(labels)
    plain = all(isinstance(label, (int, np.integer)) and not isinstance(label, bool) for label in given)
    return plain and given == [*range(len(given))]


def without_labels(what: str, given: Any) -> Any:
    """The argument, unless it is a data frame or series whose labels would be ignored."""
    for labels in [getattr(given, name, None) for name in ("index", "columns") if hasattr(given, "to_numpy")]:
        if labels is not None and not is_counted(labels):
            raise NetworkError(
                f"{what}: labels such as {shown(next(iter(labels)))} are not read here; sort the data frame or series "
                "in the order of the states and pass its to_numpy()"
            )
    return given


def freeze(table: ArrayLike) -> NDArray[np.float64]:
    """A read-only float64 array of `table`: the array itself if nothing can write to it, else a copy."""
    if isinstance(table, np.ndarray) and table.dtype == np.float64 and table.flags.c_contiguous:
        array: Any = table
        while isinstance(array, np.ndarray) and not array.flags.writeable:
            array = array.base
        if array is None:
            return np.asarray(table)  # without the labels of a Cpt
    frozen = np.array(table, dtype=np.float64, order="C", copy=True)
    frozen.flags.writeable = False
    return frozen
