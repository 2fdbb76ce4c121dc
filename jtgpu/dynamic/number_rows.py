"""Sequences with numbers: their rows, and densities of observed numbers as likelihoods of the parents."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..columns import as_numbers, open_table
from ..columns.names import evidence_columns
from ..errors import DataError, EvidenceError, ImpossibleEvidence, shown
from ..model.editing import coefficient_name
from ..options.learning import Keys
from ..util.arguments import number
from ..util.elementary import exps, log, logs
from .sequences import Sequences, is_matrix, is_sequence, read_sequences

if TYPE_CHECKING:
    from ..model.gaussian import Gaussian
    from ..model.mixed_dynamic import MixedDynamicNetwork
    from ..util.arrays import Bools, Floats, Ints

HALF_LOG_2PI, LN2 = 0.5 * log(2 * math.pi), log(2.0)
TINY = 2.0**-1000  # smaller likelihoods are numbers with an exponent of their own
LEAST_EXPONENT = -(1 << 38)  # lower densities count as this, unless the evidence is about as improbable


class NumberRows(NamedTuple):
    """Sequences with numbers."""

    sequences: Sequences  # of the variables with states
    values: Mapping[str, Floats]  # (R,) of each number; NaN: not observed
    cut: Mapping[str, Bools] = {}  # (R,) where a number is set, so that its density does not hold

    def setting(self, do: Mapping[str, object]) -> NumberRows:
        """Set numbers: to a value in all slices, or in some, ``{slice: value}``."""
        values, cut, t = dict(self.values), dict(self.cut), self.sequences.slices
        for y, given in do.items():
            values[y], cut[y] = values[y].copy(), np.zeros(len(t), np.bool_)
            for at, x in given.items() if isinstance(given, Mapping) else [(None, given)]:
                is_slice = isinstance(at, (int, np.integer)) and not isinstance(at, bool)
                if at is not None and not (is_slice and 0 <= at <= t.max()):
                    raise EvidenceError(f"do on {y!r} has the slice {shown(at)}; slices are 0 to {int(t.max())}")
                here = np.ones(len(t), np.bool_) if at is None else t == at
                values[y][here], cut[y][here] = number(f"do on {y!r}", x), True
            if not np.isfinite(values[y][cut[y]]).all():
                raise EvidenceError(f"do on {y!r} must be a finite number")
            odd = cut[y] & ~np.isnan(self.values[y]) & (self.values[y] != values[y])
            if odd.any():
                row = int(np.argmax(odd))
                i = int(np.searchsorted(self.sequences.ptr, row, side="right")) - 1
                what = f"do sets {y!r} to {values[y][row]:g}, and it is observed as {self.values[y][row]:g}"
                raise EvidenceError(f"{self.sequences.name(i, int(t[row]))}: {what}")
        return self._replace(values=values, cut=cut)

    @classmethod
    def of(cls, sequences: Sequences, values: Mapping[str, Floats]) -> NumberRows:
        """Sequences, and numbers in the order of the rows of their table."""
        if (rows := sequences.source) is not None:
            values = {y: np.where(rows >= 0, x[np.maximum(rows, 0)], np.nan) for y, x in values.items()}
        return cls(sequences, values)


def read_rows(
    net: MixedDynamicNetwork, given: Any, likelihood: Any = None, keys: Keys = Keys(), do: Any = None
) -> NumberRows:
    """Sequences and their numbers: a long frame, a list of frames, or a mapping of (B, T) arrays."""
    is_list = isinstance(given, (list, tuple)) and len(given) > 0 and is_sequence(given[0])
    named = [k for k in (keys.id, keys.time) if k is not None]
    is_wide = False
    if is_list:
        parts = [_columns(net, frame, named) for frame in given]
    elif isinstance(given, Mapping) and not named and any(is_matrix(v, x) for v, x in given.items()):
        is_wide, parts = True, [dict(given)]
    else:
        parts = [_columns(net, given, named)]
    cells: dict[str, list[Any]] = {y: [] for y in net.numbers}
    for part in parts:
        n = next(((len(x), len(x[0])) if is_wide else (len(x),) for x in part.values()), (0,))
        for v, x in part.items():
            if is_wide and is_matrix(v, x) and (len(x), len(x[0])) != n:
                raise DataError(
                    f"the array of {v!r} has shape {(len(x), len(x[0]))}, expected {n}: (sequences, slices) for each "
                    "variable"
                )
        for y in net.numbers:
            column = part.pop(y, None)
            cells[y].append(np.full(math.prod(n), np.nan) if column is None else _numbers(y, column))
        if not any(v in part for v in net.discrete):
            part[net.discrete.variables[0]] = np.full(n, None, object)
    read = read_sequences(net.discrete, parts if is_list else parts[0], likelihood=likelihood, keys=keys, do=do)
    return NumberRows.of(read, {y: np.concatenate(columns) for y, columns in cells.items()})


def _columns(net: MixedDynamicNetwork, frame: object, keys: Sequence[Any]) -> dict[str, Any]:
    if isinstance(frame, np.ndarray):
        raise DataError(f"sequences with numbers ({', '.join(net.numbers)}) need named columns, not an array")
    table = open_table(None, frame)
    own: Any = net  # its names are all that counts
    for key in keys:
        if not isinstance(key, Hashable) or key not in table.names:
            raise DataError(f"{shown(key)} is no column of the table, which has {', '.join(map(repr, table.names))}")
    evidence_columns(own, [c for c in table.names if c not in keys])
    return {name: table.column(name) for name in table.names}


def _numbers(name: str, column: Any) -> Floats:
    """A column of numbers, NaN where they are missing."""
    flat = column
    if np.ndim(column) == 2:
        array = np.asarray(column)
        flat = array.ravel() if array.dtype.kind in "iuf" else np.array(column, object).ravel().tolist()
    cells = list(flat) if isinstance(flat, tuple) else flat
    if not len(cells):  # of any type: a file without rows has columns of text
        return np.zeros(0)
    numbers = as_numbers(cells)
    if numbers is None:
        listed = cells.to_pylist() if hasattr(cells, "to_pylist") else list(cells)
        at, odd = next((i, c) for i, c in enumerate(listed) if as_numbers([c]) is None)
        raise DataError(
            f"row {at}, column {name!r}: expected a number, got {shown(odd)}; cells that were not measured are None or "
            "NaN"
        )
    return finite(name, numbers, "row {}".format)


def finite(name: str, numbers: Floats, where: Callable[[int], str]) -> Floats:
    """Numbers of a column, none of which is infinite."""
    if np.isinf(numbers).any():
        raise DataError(f"{where(int(np.argmax(np.isinf(numbers))))}, column {name!r}: the value is infinite")
    return numbers


def families(net: MixedDynamicNetwork, rows: NumberRows, y: str) -> list[tuple[Gaussian, Ints, Floats]]:
    """The densities of a number, the rows where each holds and y is observed, and (n, 1 + parents) ones and parents."""
    made, t = [], rows.sequences.slices
    own = net.gaussians(y)
    for k, g in enumerate(own):
        known = ~np.isnan(rows.values[y]) & ~rows.cut.get(y, np.zeros(1, np.bool_))
        here = np.flatnonzero(known & (t >= k if k == len(own) - 1 else t == k))
        design = np.ones((len(here), 1 + len(g.coefficients)))
        above = [p for p in net.numeric_parents(y) if coefficient_name(*p) in g.coefficients]
        for j, (p, lag) in enumerate(above, 1):
            design[:, j] = rows.values[p][here - lag]
            lost = np.isnan(design[:, j])
            if lost.any():
                row = int(here[np.argmax(lost)])
                i = int(np.searchsorted(rows.sequences.ptr, row, side="right")) - 1
                raise DataError(
                    f"{rows.sequences.name(i, int(t[row]))}: {y!r} is observed, and its parent "
                    f"{coefficient_name(p, lag)!r} is not; numeric parents must be observed: leave {y!r} empty there, "
                    "too"
                )
        made.append((g, here, design))
    return made


def regression(g: Gaussian) -> tuple[Floats, Floats]:
    """Coefficients (K, 1 + parents), those of 1 first, and standard deviations (K,), by configuration."""
    return np.stack([g.mean.ravel(), *(c.ravel() for c in g.coefficients.values())], axis=1), g.sd.ravel()


def with_densities(net: MixedDynamicNetwork, rows: NumberRows, on_lost: str = "error") -> tuple[Sequences, Floats]:
    """The sequences with densities of numbers as likelihoods, and (R,) ln of what these were divided by."""
    # on_lost: "flag" makes sequences impossible in which a density is 0 in every state
    sequences, offset = rows.sequences, np.zeros(len(rows.sequences.codes))
    density: dict[str, Floats] = {}
    for y in net.numbers:
        component = net.component[y]
        for g, here, design in families(net, rows, y):
            b, sd = regression(g)
            with np.errstate(over="ignore"):  # density 0
                z = (rows.values[y][here, None] - design @ b.T) / sd
                log_density = -0.5 * z * z - logs(sd) - HALF_LOG_2PI
            if component is None:
                offset[here] += log_density[:, 0]
            else:
                each = density.setdefault(component, np.zeros((len(offset), b.shape[0])))
                each[here] += log_density
    weights, exponents = dict(sequences.likelihood), dict(sequences.exponents)
    for component, each in density.items():
        top = each.max(axis=1)
        offset += top
        top = np.maximum(top, -np.finfo(np.float64).max)
        v = net.discrete.index(component)
        weights[v], powers = scaled_densities(each - top[:, None], weights.get(v, np.ones((len(each), 1))))
        if powers.any():
            exponents[v] = powers
    lost = np.flatnonzero(np.isneginf(offset))
    if lost.size and on_lost == "flag":
        weights[0] = np.array(weights.get(0, np.ones((len(offset), len(net.discrete.states(0))))))
        weights[0][lost], offset[lost] = 0.0, 0.0
    elif lost.size:
        i = int(np.searchsorted(sequences.ptr, lost[0], side="right")) - 1
        raise ImpossibleEvidence(
            f"{sequences.name(i, int(lost[0] - sequences.ptr[i]))}: the numbers have density 0 in every state: they "
            "are too many standard deviations from the means"
        )
    return replace(sequences, likelihood=weights, exponents=exponents), offset


def scaled_densities(log_density: Floats, weights: Floats) -> tuple[Floats, Ints]:
    """Densities (R, K), times weights, and powers of two that they are multiplied by; 0 in ordinary rows."""
    made, powers = exps(log_density) * weights, np.zeros(log_density.shape, np.int64)
    tiny = ((made < TINY) & (weights > 0) & np.isfinite(log_density)).any(axis=1)
    if tiny.any():
        mantissa, shift = np.frexp(np.broadcast_to(weights, made.shape)[tiny])
        own = np.maximum(np.where(np.isfinite(log_density[tiny]), log_density[tiny], 0.0), LEAST_EXPONENT * LN2)
        log2 = np.floor(own / LN2)
        made[tiny] = np.where(np.isfinite(log_density[tiny]), exps(own - log2 * LN2), 0.0) * mantissa
        powers[tiny] = log2.astype(np.int64) + shift
    return made, powers


def with_offset(log_evidence: Floats, offset: Floats, read: Sequences) -> Floats:
    """ln of the density of each sequence, of what the backend made of `with_densities`."""
    lost = np.flatnonzero((log_evidence < 0.5 * LEAST_EXPONENT * LN2) & np.isfinite(log_evidence))
    if lost.size and read.exponents:
        raise too_far(read.name(int(lost[0]), 0).rsplit(",", 1)[0])
    return log_evidence + sums(offset, read)


def too_far(where: str) -> EvidenceError:
    """The error where rounding of densities hides which states are more probable."""
    return EvidenceError(
        f"{where}: the numbers are so many standard deviations from their means that float64 cannot tell which states "
        "are more probable; check their units"
    )


def sums(offset: Floats, read: Sequences) -> Floats:
    """Sums over the rows of each sequence."""
    return np.asarray(np.add.reduceat(offset, read.ptr[:-1]), np.float64)
