"""`MixedDynamicTree`: queries of dynamic networks with numbers; observed numbers are likelihoods of their parents."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import ArgumentError, DataError, ImpossibleEvidence, shown
from ..inference.queries.posteriors import as_list
from ..inference.results.printed import unused_name
from ..inference.tables import as_numbers, open_table
from ..inference.tables.columns import evidence_columns
from ..model.discrete import DiscreteModel
from ..model.mixed_dynamic import label
from ..util.elementary import exps, log, logs
from ..util.text_table import counted
from .cells import is_matrix, is_sequence
from .number_samples import MixedSequenceStates, drawn_numbers
from .results import Course, SequenceExplanations, SequencePosteriors
from .sequences import Sequences, read_sequences
from .tree import DynamicTree

if TYPE_CHECKING:
    from ..model.gaussian import Gaussian
    from ..model.mixed_dynamic import MixedDynamicNetwork
    from ..util.arrays import Floats, Ints
    from ..util.options import BackendName, OnProblem
    from .posteriors import At

HALF_LOG_2PI = 0.5 * log(2 * math.pi)


class Rows(NamedTuple):
    """Sequences with numbers."""

    sequences: Sequences  # of the variables with states
    values: Mapping[str, Floats]  # (R,) of each number; NaN: not observed

    @classmethod
    def of(cls, sequences: Sequences, values: Mapping[str, Floats]) -> Rows:
        """Sequences, and numbers in the order of the rows of their table."""
        if (rows := sequences.source) is not None:
            values = {y: np.where(rows >= 0, x[np.maximum(rows, 0)], np.nan) for y, x in values.items()}
        return cls(sequences, values)


def read_rows(net: MixedDynamicNetwork, given: Any, likelihood: Any = None, **keys: Any) -> Rows:
    """Sequences and their numbers: a long frame, a list of frames, or a mapping of (B, T) arrays."""
    is_list = isinstance(given, (list, tuple)) and len(given) > 0 and is_sequence(given[0])
    named = [k for k in (keys.get("id"), keys.get("time")) if k is not None]
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
        for y in net.numbers:
            column = part.pop(y, None)
            cells[y].append(np.full(math.prod(n), np.nan) if column is None else _numbers(y, column))
        if not any(v in part for v in net.discrete):
            part[net.discrete.variables[0]] = np.full(n, None, object)
    read = read_sequences(net.discrete, parts if is_list else parts[0], likelihood=likelihood, **keys)
    return Rows.of(read, {y: np.concatenate(columns) for y, columns in cells.items()})


def _columns(net: MixedDynamicNetwork, frame: Any, keys: Sequence[str]) -> dict[str, Any]:
    if isinstance(frame, np.ndarray):
        raise DataError(f"sequences with numbers ({', '.join(net.numbers)}) need named columns, not an array")
    table = open_table(None, frame)
    own: Any = net  # its names are all that counts
    for key in keys:
        if key not in table.names:
            raise DataError(f"{key!r} is no column of the table, which has {', '.join(map(repr, table.names))}")
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


def families(net: MixedDynamicNetwork, rows: Rows, y: str) -> list[tuple[Gaussian, Ints, Floats]]:
    """The densities of a number, the rows where each holds and y is observed, and (n, 1 + parents) ones and parents."""
    made, t = [], rows.sequences.slices
    own = net.gaussians(y)
    for k, g in enumerate(own):
        here = np.flatnonzero(~np.isnan(rows.values[y]) & (t >= k if k == len(own) - 1 else t == k))
        design = np.ones((len(here), 1 + len(g.coefficients)))
        above = [p for p in net.numeric_parents(y) if label(*p) in g.coefficients]
        for j, (p, lag) in enumerate(above, 1):
            design[:, j] = rows.values[p][here - lag]
            lost = np.isnan(design[:, j])
            if lost.any():
                row = int(here[np.argmax(lost)])
                i = int(np.searchsorted(rows.sequences.ptr, row, side="right")) - 1
                raise DataError(
                    f"{rows.sequences.name(i, int(t[row]))}: {y!r} is observed, and its parent {label(p, lag)!r} is "
                    f"not; numeric parents must be observed: leave {y!r} empty there, too"
                )
        made.append((g, here, design))
    return made


def regression(g: Gaussian) -> tuple[Floats, Floats]:
    """Coefficients (K, 1 + parents), those of 1 first, and standard deviations (K,), by configuration."""
    return np.stack([g.mean.ravel(), *(c.ravel() for c in g.coefficients.values())], axis=1), g.sd.ravel()


def with_densities(net: MixedDynamicNetwork, rows: Rows, on_lost: str = "error") -> tuple[Sequences, Floats]:
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
    weights = dict(sequences.likelihood)
    for component, each in density.items():
        top = each.max(axis=1)
        offset += top
        top = np.maximum(top, -np.finfo(np.float64).max)
        v = net.discrete.index(component)
        weights[v] = exps(each - top[:, None]) * weights.get(v, 1.0)
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
    return replace(sequences, likelihood=weights), offset


class MixedSequencePosteriors(SequencePosteriors):
    """Posteriors of variables with states in slices of sequences, and means and standard deviations of numbers.

    Attributes
    ----------
    mean, sd : dict of str to ndarray
        (B, S), or (B,) with ``at="last"``, of each number; an observed number has its value and 0. Zeros behind the end
        of a sequence and in impossible ones.
    weights, densities : dict of str to ndarray, and to Gaussian
        What they are made of: P(states of the parents), an axis more, and the density given these.
    log_evidence : (B,) ndarray of float64
        ln of a density, in the units of the numbers.
    """

    mean: dict[str, Floats]
    sd: dict[str, Floats]
    weights: dict[str, Floats]
    densities: dict[str, Gaussian]

    def _values(self) -> dict[str, Floats]:
        columns = super()._values()
        for y in self.mean:
            for what, table in (("mean", self.mean[y]), ("sd", self.sd[y])):
                columns[unused_name(f"{y}.{what}", {*columns, *self._sequences.keys})] = self._picked(table)
        return columns

    def _title(self) -> str:
        both = f"{counted(len(self), 'variable')} and {counted(len(self.mean), 'number')}"
        return f"Posteriors of {both} in {counted(len(self.lengths), 'sequence')}"

    def _courses(self) -> tuple[str, list[int], list[Course]]:
        title, slices, made = super()._courses()
        n = len(slices)
        made += [Course(y, {"mean": x[0, :n]}, self.sd[y][0, :n]) for y, x in self.mean.items() if n]
        return title, slices, made


class MixedDynamicTree:
    """A compiled dynamic network with numbers; created by ``dyn.compile()``.

    Sequences are a long frame with columns ``id`` and ``time``, a list of frames, or a mapping of variables to (B, T)
    arrays. Posteriors are exact: an observed number is a likelihood of its parents with states. Numbers with numeric
    parents may be observed, and are no targets.

    Parameters
    ----------
    net : MixedDynamicNetwork
    backend, options
        See `BayesianNetwork.compile`.
    """

    def __init__(self, net: MixedDynamicNetwork, backend: BackendName = "auto", **options: Any):
        self.network, self.discrete = net, DynamicTree(net.discrete, backend, **options)

    @property
    def backend(self) -> str:
        """Name of the backend."""
        return self.discrete.backend

    def __repr__(self) -> str:
        return f"MixedDynamicTree({self.network.name!r}, backend={self.backend!r})"

    def filter(self, sequences: Any, *, targets: Any = None, at: At = None, on_impossible: OnProblem = "error",
               **options: Any) -> MixedSequencePosteriors:  # fmt: skip
        """Compute posteriors in every slice given the evidence up to it; parameters as of `DynamicTree.filter`."""
        return self._answer("filter", sequences, targets, options, at=at, on_impossible=on_impossible)

    def smooth(self, sequences: Any, *, targets: Any = None, at: At = None, on_impossible: OnProblem = "error",
               **options: Any) -> MixedSequencePosteriors:  # fmt: skip
        """Compute posteriors in every slice given all evidence; parameters as of `DynamicTree.smooth`."""
        return self._answer("smooth", sequences, targets, options, at=at, on_impossible=on_impossible)

    def predict(self, sequences: Any, *, steps: int = 1, targets: Any = None, on_impossible: OnProblem = "error",
                **options: Any) -> MixedSequencePosteriors:  # fmt: skip
        """Compute posteriors of the slices that follow; parameters as of `DynamicTree.predict`."""
        return self._answer("predict", sequences, targets, options, steps=steps, on_impossible=on_impossible)

    def log_likelihood(self, sequences: Any, *, on_impossible: OnProblem = "error", **options: Any) -> Floats:
        """Compute ln of the density of each sequence, (B,); parameters as of `DynamicTree.log_likelihood`."""
        read, offset = with_densities(self.network, self._read(sequences, options), on_impossible)
        return self.discrete.log_likelihood(read, on_impossible=on_impossible) + sums(offset, read)

    def mpe(self, sequences: Any, *, on_impossible: OnProblem = "error", **options: Any) -> SequenceExplanations:
        """Find the most probable states given the evidence, numbers included; parameters as of `DynamicTree.mpe`."""
        net = self.network
        read, offset = with_densities(net, self._read(sequences, options), on_impossible)
        best = self.discrete.mpe(read, on_impossible=on_impossible)
        own = DiscreteModel({v: net.discrete.states(v) for v in net.discrete if v not in net.joined})
        states = best.states[np.repeat(np.arange(read.n), read.lengths), read.slices]
        return SequenceExplanations(own, read, states[:, : len(own)], best.log_joint + sums(offset, read))

    def sample(
        self, n: int, sequences: Any = None, *, length: int | None = None, seed: Any = None, **options: Any
    ) -> MixedSequenceStates:
        """Draw sequences, or n samples of all variables given each one's evidence; see `DynamicTree.sample`."""
        net, rng = self.network, np.random.default_rng(seed)
        if sequences is None:
            if options:
                raise ArgumentError("sample takes id=, time=, likelihood=, do= and on_gap= with sequences only")
            drawn = self.discrete.sample(n, length=length, seed=rng)
            read, rows = drawn._sequences, drawn._sequences.codes
            hidden = dict.fromkeys(net.numbers, np.full(len(rows), np.nan))
            values = drawn_numbers(net, read, rows[None], hidden, rng)
            return MixedSequenceStates(net, read, rows, {y: x[0] for y, x in values.items()})
        given = self._read(sequences, options)
        read, _ = with_densities(net, given)
        drawn = self.discrete.sample(n, read, length=length, seed=rng)
        sequence, place, _ = drawn._places()
        rows = drawn.states[:, sequence, place]
        return MixedSequenceStates(net, read, rows, drawn_numbers(net, read, rows, given.values, rng))

    def _read(self, sequences: Any, options: Mapping[str, Any]) -> Rows:
        for name in options:
            if name not in ("id", "time", "likelihood", "do", "on_gap"):
                raise ArgumentError(f"there is no option {name!r}; options are id, time, likelihood, do and on_gap")
        for name in ("likelihood", "do"):
            if given := [v for v in options.get(name) or () if v in self.network.numbers]:
                raise ArgumentError(f"{name} has the number {given[0]!r}; {name}= is of variables with states")
        return sequences if isinstance(sequences, Rows) else read_rows(self.network, sequences, **options)

    def _answer(self, kind: str, sequences: Any, targets: Any, options: Any, **more: Any) -> MixedSequencePosteriors:
        net = self.network
        given = net.variables if targets is None else as_list(targets, "targets")
        numbers = [y for y in net.numbers if y in given and not (targets is None and net.numeric_parents(y))]
        for y in numbers:
            if net.numeric_parents(y):
                raise ArgumentError(f"the number {y!r} has numeric parents and cannot be a target; it may be observed")
        states = list(dict.fromkeys(v for v in given if v not in net.numbers))
        components = {c for y in numbers if (c := net.component[y]) is not None}
        rows = self._read(sequences, options)
        read, offset = with_densities(net, rows, more["on_impossible"])
        answer = getattr(self.discrete, kind)(read, targets=[*states, *sorted(components - {*states})], **more)
        made = MixedSequencePosteriors(
            net.discrete, answer._sequences, answer._slices, answer.log_evidence + sums(offset, read),
            {v: answer[v] for v in states}, {},
        )  # fmt: skip
        sequence, place, t = made._places()
        where = (sequence,) if answer._slices is None else (sequence, place)
        shape = (read.n,) if answer._slices is None else (read.n, len(answer._slices))
        made.mean, made.sd, made.weights, made.densities = {}, {}, {}, {y: net.gaussian(y) for y in numbers}
        for y in numbers:
            g, component = net.gaussian(y), net.component[y]
            weights = np.zeros((*shape, 1))
            weights[where] = ~made.impossible[sequence, None]
            if component is not None:
                weights = answer[component]
            mean = np.asarray((weights * g.mean.ravel()).sum(axis=-1))
            spread = g.sd.ravel() ** 2 + (g.mean.ravel() - mean[..., None]) ** 2
            sd = np.asarray(np.sqrt((weights * spread).sum(axis=-1)))
            if kind != "predict":
                x = rows.values[y][read.ptr[:-1][sequence] + t]
                known = ~np.isnan(x) & ~made.impossible[sequence]
                here = tuple(index[known] for index in where)
                mean[here], sd[here] = x[known], 0.0
            made.mean[y], made.sd[y], made.weights[y] = mean, sd, weights
        return made


def sums(offset: Floats, read: Sequences) -> Floats:
    """Sums over the rows of each sequence."""
    return np.asarray(np.add.reduceat(offset, read.ptr[:-1]), np.float64)
