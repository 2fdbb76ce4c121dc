"""Read sequences: long frames, lists of frames, and arrays, as rows of codes."""

from __future__ import annotations

import re
import warnings
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..columns import as_array, cells_of, is_frame, is_tensor, open_table, read_states
from ..columns.likelihoods import LikelihoodCells, product
from ..errors import ArgumentError, DataError, EvidenceError, UnknownState, UnknownVariable, shown
from ..inference.evidence_table import weight_rows
from ..inference.results.frames import unused_name
from ..options.learning import Keys
from ..util.arguments import mapping
from ..util.calls import outside
from .times import cells_in, check_steps, check_times, groups, index_of, is_whole, times_of, with_dates, with_gaps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..model.dynamic import DynamicNetwork
    from ..util.arrays import Bools, Floats, Ints

_LAGGED = re.compile(r".*\[t(-\d+)?\]$")
SEVERAL = (list, tuple, set, frozenset)


@dataclass(frozen=True)
class Sequences:
    """Rows of evidence, sequence after sequence, in the order of time."""

    codes: NDArray[np.int32]  # (R, V), -1: not observed
    ptr: Ints  # (N + 1,) where each sequence begins
    likelihood: Mapping[int, Floats] = field(default_factory=dict)  # variable -> (R, card)
    # variable -> (R, card) powers of two that its likelihoods are multiplied by, where these would be too small
    exponents: Mapping[int, Ints] = field(default_factory=dict)
    keys: Mapping[str, list[Any]] = field(default_factory=dict)  # columns of the answers: (R,) id and time
    source: Ints | None = None  # (R,) row of the table, -1 for slices that it lacks; None: as they stand
    time: str | None = None  # the one of them that is the time
    begin: Ints | None = None  # (N,) slices before the first row of each
    ids: list[Any] | None = None  # (N,)
    first: int = 0  # number of the first sequence among all of a file
    cuts: Mapping[int, frozenset[int]] = field(default_factory=dict)  # slice -> variables that are set in it
    cut_always: frozenset[int] = frozenset()

    @property
    def n(self) -> int:
        """Number of sequences."""
        return len(self.ptr) - 1

    @property
    def lengths(self) -> Ints:
        """(N,) slices of each."""
        return np.diff(self.ptr)

    @property
    def before(self) -> Ints:
        """(N,) slices before the first row of each."""
        return np.zeros(self.n, np.int64) if self.begin is None else self.begin

    @property
    def slices(self) -> Ints:
        """(R,) the slice of each row."""
        return np.arange(len(self.codes)) - np.repeat(self.ptr[:-1], self.lengths)

    @property
    def extended_rows(self) -> Bools:
        """(R,) whether a row has likelihoods that take extended numbers."""
        rows = np.zeros(len(self.codes), np.bool_)
        for power in self.exponents.values():
            rows |= (power != 0).any(axis=1)
        return rows

    @property
    def extended(self) -> Bools:
        """(N,) whether a sequence has such rows."""
        return np.add.reduceat(self.extended_rows, self.ptr[:-1]) > 0 if self.n else np.zeros(0, np.bool_)

    def cut(self, t: int) -> frozenset[int]:
        """The variables that are set in slice t."""
        return self.cuts.get(t, self.cut_always)

    def name(self, i: int, t: int) -> str:
        """A slice, for messages."""
        label = f" ({self.ids[i]!r})" if self.ids is not None else ""
        return f"sequence {self.first + i}{label}, slice {t}"

    def continued(self, steps: int) -> Sequences:
        """These sequences with so many slices more in which nothing is observed."""
        lengths = self.lengths + steps
        ptr = np.concatenate([[0], np.cumsum(lengths)])
        at = np.arange(len(self.codes)) + np.repeat(np.arange(self.n) * steps, self.lengths)
        codes = np.full((int(ptr[-1]), self.codes.shape[1]), -1, np.int32)
        codes[at] = self.codes
        weights = {}
        for v, w in self.likelihood.items():
            weights[v] = np.ones((len(codes), w.shape[1]))
            weights[v][at] = w
        exponents = {v: np.zeros((len(codes), e.shape[1]), np.int64) for v, e in self.exponents.items()}
        for v, e in exponents.items():
            e[at] = self.exponents[v]
        return replace(self, codes=codes, ptr=ptr, likelihood=weights, exponents=exponents, keys={}, source=None)

    def following(self, steps: int) -> Sequences:
        """So many slices behind each sequence: whole numbers of the time go on, other times become steps from 1."""
        last, ahead, keys = np.repeat(self.ptr[1:] - 1, steps), np.tile(np.arange(1, steps + 1), self.n), {}
        for name, column in self.keys.items():
            cells = [column[r] for r in last.tolist()]
            if name != self.time:
                keys[name] = cells
            elif all(type(x) is int for x in column):
                keys[name] = (np.array(cells, np.int64) + ahead).tolist()
        if self.keys and self.time not in keys:
            keys[unused_name("step", {*self.keys})] = ahead.tolist()
        codes = np.zeros((len(ahead), 0), np.int32)
        return Sequences(codes, np.arange(self.n + 1) * steps, keys=keys, begin=self.lengths, ids=self.ids)

    def some(self, chosen: Ints) -> Sequences:
        """Some of the sequences, without their names."""
        lengths = self.lengths[chosen]
        ptr = np.concatenate([[0], np.cumsum(lengths)])
        rows = np.arange(int(ptr[-1])) + np.repeat(self.ptr[:-1][chosen] - ptr[:-1], lengths)
        weights, exponents = ({v: w[rows] for v, w in x.items()} for x in (self.likelihood, self.exponents))
        return replace(
            self, codes=self.codes[rows], ptr=ptr, likelihood=weights, exponents=exponents, keys={}, source=None,
            ids=None,
        )  # fmt: skip


def read_sequences(
    net: DynamicNetwork, given: Any, *, keys: Keys = Keys(), likelihood: Mapping[Any, object] | None = None,
    do: Mapping[Any, object] | None = None,
) -> Sequences:  # fmt: skip
    """Convert sequences of any kind to codes."""
    # given: a long frame with the columns of `keys`; a list of frames; a mapping of variables to (B, T) arrays; or
    #     (B, T, V) state numbers, -1 where nothing is observed
    # likelihood: variable -> weights: (states,), (rows, states) in the order of the frame's rows, or (B, T, states)
    # do: variable -> state in all slices, or {slice: state}
    id, time, on_gap = keys.id, keys.time, keys.on_gap
    if isinstance(given, Sequences):
        return given
    if is_tensor(given):
        given = as_array(given, "sequences")
    if isinstance(given, (list, tuple)) and given and is_sequence(given[0]):
        made = _of_list(net, given, id, time, on_gap)
    elif isinstance(given, np.ndarray) and given.ndim == 3:
        made = _of_codes(net, given)
    elif isinstance(given, Mapping) and id is None and time is None and any(is_matrix(v, x) for v, x in given.items()):
        made = _of_arrays(net, given)
    else:
        made = _of_frame(net, given, id, time, on_gap)
    if not made.n or (made.lengths == 0).any():
        at = int(np.argmin(made.lengths)) if made.n else 0
        raise DataError("there are no sequences" if not made.n else f"sequence {at} has no slices")
    if likelihood is not None:
        made = with_likelihood(net, made, likelihood)
    return made if do is None else with_do(net, made, do)


def _of_codes(net: DynamicNetwork, given: NDArray[Any]) -> Sequences:
    b, t, v = given.shape
    if v != len(net):
        raise EvidenceError(
            f"sequences has shape {given.shape}, expected (B, T, {len(net)}): a number for each variable"
        )
    if t == 0:
        raise DataError("the sequences have no slices")
    codes, _ = read_states(net, given.reshape(b * t, v))
    return Sequences(codes, np.arange(b + 1) * t)


def _of_arrays(net: DynamicNetwork, given: Mapping[Any, object]) -> Sequences:
    arrays = {v: x if isinstance(x, np.ndarray) else matrix(v, x) for v, x in given.items()}
    shapes = {v: x.shape for v, x in arrays.items()}
    shape = next(iter(shapes.values()))
    for v, other in shapes.items():
        if other != shape or len(other) != 2:
            raise EvidenceError(
                f"the array of {v!r} has shape {other}, expected {shape}: (sequences, slices) for each variable"
            )
    if shape[1] == 0:
        raise DataError("the sequences have no slices")
    codes, weights = _weighted_states(net, {v: x.reshape(-1) for v, x in arrays.items()})
    return Sequences(codes, np.arange(shape[0] + 1) * shape[1], weights)


def _of_list(net: DynamicNetwork, given: Any, id: str | None, time: str | None, on_gap: str) -> Sequences:
    if id is not None:
        raise DataError(f"id={id!r} names a column of a long frame; a list has one sequence in each frame")
    parts = []
    for i, frame in enumerate(given):
        try:
            parts.append(_of_frame(net, frame, None, time, on_gap, alone=False))
        except (DataError, EvidenceError) as error:
            raise type(error)(f"sequence {i}: {error}") from None
    lengths = [len(p.codes) for p in parts]
    keys: dict[str, list[Any]] = {}
    if time is not None:
        keys = {"sequence": np.repeat(np.arange(len(parts)), lengths).tolist()}
        keys[time] = [x for p in parts for x in p.keys[time]]
    sources, begin = list[Any](), 0
    for p in parts:
        own = np.arange(len(p.codes)) if p.source is None else p.source
        sources.append(np.where(own >= 0, own + begin, -1))
        begin += int((own >= 0).sum())
    ptr = np.concatenate([[0], np.cumsum(lengths)])
    codes = np.concatenate([p.codes for p in parts])
    weights = {}
    for v in dict.fromkeys(v for p in parts for v in p.likelihood):
        ones = np.ones(len(net.states(v)))
        weights[v] = np.concatenate([p.likelihood.get(v, np.tile(ones, (len(p.codes), 1))) for p in parts])
    return Sequences(codes, ptr, weights, keys=keys, source=np.concatenate(sources), time=time)


def _of_frame(
    net: DynamicNetwork, given: object, id: str | None, time: str | None, on_gap: str, alone: bool = True
) -> Sequences:
    # alone: Whether this is no frame of a list
    if isinstance(given, np.ndarray) and given.ndim == 2:
        return Sequences(read_states(net, given)[0], np.array([0, len(given)]))
    table = open_table(None, given)
    name: Any
    for what, name in (("id", id), ("time", time)):
        if name is not None and (not isinstance(name, Hashable) or name not in table.names):
            levels = [*getattr(getattr(given, "index", None), "names", ())]
            hint = "; it is a level of the index: pass frame.reset_index()" if name in levels else ""
            listed = ", ".join(map(repr, table.names))
            raise DataError(f"{what}={shown(name)} is no column of the table, which has {listed}{hint}")
    if on_gap == "empty" and time is None:
        raise ArgumentError('on_gap="empty" makes slices of missing times, which need time=, the column of the times')
    lagged = [c for c in table.names if _LAGGED.match(c) and c not in net]
    if lagged:
        raise DataError(
            f"the table has the column {lagged[0]!r}: these are rows of two_slices, and a sequence has a row for each "
            "slice; pass the table that they were made of"
        )
    names = [c for c in table.names if c not in (id, time)]
    if not names:
        if not table.n:
            raise DataError("there are no sequences")
        listed = ", ".join(map(repr, table.names))
        raise UnknownVariable(f"the table has no observations: its only columns are {listed}")
    codes, weights = _weighted_states(net, {c: table.column(c) for c in names})
    ignored = [c for c in names if c not in net]
    if alone and ignored and id is None and time is None:
        warnings.warn(
            f"no variable has the name of the columns {', '.join(map(repr, ignored[:5]))}, which are ignored; without "
            "id= and time= all rows are one sequence, in the order of the table", UserWarning, stacklevel=outside(),
        )  # fmt: skip
    made = in_order(codes, table, id, time, on_gap)
    return replace(made, likelihood=by_row(weights, made.source))


def in_order(
    codes: NDArray[np.int32], table: Any, id: str | None, time: str | None, on_gap: str, before: int = 0
) -> Sequences:
    """The rows of a table with the states that were read from it, by sequence and time."""
    # before: sequences of the file before this table
    if not table.n:
        return Sequences(codes, np.zeros(1, np.int64))
    group, ids = np.zeros(table.n, np.int64), None
    if id is not None:
        group, ids = groups(id, table)
    order = np.argsort(group, kind="stable")
    ptr = np.concatenate([[0], np.cumsum(np.bincount(group))])
    keys: dict[str, list[Any]] = {} if id is None or ids is None else {id: [ids[g] for g in group[order].tolist()]}
    source = order

    def label(s: int) -> str:
        return f"sequence {before + s}" + ("" if ids is None else f" ({ids[s]!r})")

    if time is not None:
        column = with_dates(given := table.column(time))
        times = times_of(time, column, table.row_name)[order]
        check_times(times, ptr, order, table, f"column {time!r}", label, given)
        if is_whole(times, column):
            codes_at, ptr, times = with_gaps(times, ptr, on_gap, order, table, time, label)
            source = np.where(codes_at >= 0, order[np.maximum(codes_at, 0)], -1)
            if id is not None and ids is not None:
                keys[id] = [ids[g] for g in np.repeat(np.arange(len(ptr) - 1), np.diff(ptr)).tolist()]
            keys[time] = times.astype(np.int64).tolist()
        else:
            check_steps(times, ptr, on_gap, time, column)
            cells = cells_in(given)
            keys[time] = [cells[i] for i in order.tolist()]
    elif (dates := index_of(table)) is not None:
        check_times(dates[order], ptr, order, table, "the index", label, [*table.index])
    rows = np.where((source >= 0)[:, None], codes[np.maximum(source, 0)], np.int32(-1)).astype(np.int32)
    return Sequences(rows, ptr, keys=keys, source=source, first=before, time=time, ids=ids)


def with_likelihood(net: DynamicNetwork, made: Sequences, likelihood: Mapping[Any, object]) -> Sequences:
    """Enter likelihoods: weights of the states, in all slices or by row of the table."""
    weights = dict(made.likelihood)
    n = len(made.codes) if made.source is None else int((made.source >= 0).sum())
    for variable, value in mapping("likelihood", likelihood).items():
        if isinstance(variable, tuple):
            raise EvidenceError(f"sequences take likelihoods of single variables, not of {shown(variable)} together")
        v = net.index(variable)
        if np.ndim(value) == 3:
            shape = np.shape(value)
            if shape[0] * shape[1] != n or shape[0] != made.n:
                raise EvidenceError(
                    f"the likelihood of {net.variables[v]!r} has shape {shape}, expected ({made.n}, slices, "
                    f"{len(net.states(v))}) for {n} slices"
                )
            value = np.asarray(value).reshape(n, shape[2])
        table = weight_rows(net, v, value, n)
        if made.source is not None:
            rows = np.ones((len(made.codes), table.shape[1]))
            rows[made.source >= 0] = table[made.source[made.source >= 0]]
            table = rows
        if net.variables[v] in net.static:
            table = np.where(made.slices[:, None] > 0, 1.0, table)
        weights[v] = product(net, v, table, weights[v]) if v in weights else table
    return replace(made, likelihood=weights)


def with_do(net: DynamicNetwork, made: Sequences, do: Mapping[Any, object]) -> Sequences:
    """Enter interventions: the state that a variable is set to, in all slices or in some."""
    codes, weights = made.codes.copy(), dict(made.likelihood)
    at = made.slices
    always: set[int] = set()
    single: dict[int, set[int]] = {}
    for variable, value in mapping("do", do).items():
        v = net.index(variable)
        name = net.variables[v]
        if not isinstance(value, Mapping):
            always.add(v)
            parts = [(np.ones(len(codes), np.bool_), net.state_index(v, value))]
        else:
            if name in net.static:
                raise EvidenceError(f"do sets the static variable {name!r} in some slices; give its state alone")
            parts = []
            for t, state in value.items():
                if isinstance(t, bool) or not isinstance(t, (int, np.integer)) or not 0 <= t < made.lengths.max():
                    raise EvidenceError(
                        f"do on {name!r} has the slice {shown(t)}; slices are 0 to {int(made.lengths.max()) - 1}"
                    )
                single.setdefault(int(t), set()).add(v)
                parts.append((at == t, net.state_index(v, state)))
        for rows, s in parts:
            other = rows & (codes[:, v] >= 0) & (codes[:, v] != s)
            codes[rows & (codes[:, v] < 0), v] = s
            if other.any():  # observed in another state: impossible
                table = weights.get(v, np.ones((len(codes), len(net.states(v))))).copy()
                table[other] = 0.0
                weights[v] = table
    fixed = frozenset(always)
    return replace(
        made, codes=codes, likelihood=weights, cut_always=fixed,
        cuts={t: fixed | vs for t, vs in single.items()},
    )  # fmt: skip


def is_sequence(x: object) -> bool:
    """Whether this is a sequence of its own in a list: a frame, an array, or a mapping of columns."""
    if isinstance(x, Mapping):
        return all(
            isinstance(c, (list, tuple, np.ndarray)) or (hasattr(c, "__len__") and not isinstance(c, str))
            for c in x.values()
        )
    return is_frame(x) or (isinstance(x, np.ndarray) and x.ndim == 2)


def is_matrix(name: Any, x: Any) -> bool:
    """Whether a column of a mapping is an array of sequences and slices."""
    try:
        return np.ndim(x) >= 2
    except ValueError:  # some cells allow several states, or rows have different lengths
        if not all(isinstance(row, (list, tuple, np.ndarray)) for row in x):
            return False
        if len({*map(len, x)}) == 1:
            return True
        raise EvidenceError(
            f"the rows of {name!r} have different lengths; sequences of several lengths are a list of mappings, one "
            "for each, or a long frame with id="
        ) from None


def matrix(name: Any, x: Any) -> NDArray[Any]:
    """(sequences, slices) cells, some of which may be lists of states."""
    known = np.array(x, object)
    if not is_matrix(name, x) or known.ndim == 2:
        return known
    made = np.empty((len(x), len(x[0])), object)
    for i, row in enumerate(x):
        for t, cell in enumerate(row):
            made[i, t] = cell
    return made


def _weighted_states(net: DynamicNetwork, columns: Mapping[str, object]) -> tuple[NDArray[np.int32], dict[int, Floats]]:
    """States of columns, and the weights of cells that are sets of states or likelihoods."""
    plain, weights = without_sets(net, columns)
    cells = LikelihoodCells(net)
    codes, _ = read_states(net, plain, cells)
    return cells.taken(codes, weights), weights


def without_sets(net: DynamicNetwork, columns: Mapping[str, object]) -> tuple[dict[str, Any], dict[int, Floats]]:
    """Columns whose cells are single states, and (n, states) weights: 1 for each state that a cell allows."""
    plain: dict[str, Any] = {}
    sets: dict[int, Floats] = {}
    for name, column in columns.items():
        plain[name] = column
        kind = str(getattr(column, "type", getattr(column, "dtype", "object")))  # of Arrow and NumPy; lists have none
        if name not in net or not kind.startswith(("object", "list", "large_list")):
            continue
        cells = cells_of(column)
        at = [i for i, cell in enumerate(cells) if isinstance(cell, SEVERAL)]
        if at:
            v = net.index(name)
            sets[v] = np.ones((len(cells), len(net.states(v))))
            for i in at:
                if not cells[i]:
                    raise EvidenceError(
                        f"row {i}, column {name!r}: the list is empty, so no state is possible; a cell that was not "
                        "observed is None"
                    )
                try:
                    allowed = [net.state_index(v, s) for s in cells[i]]
                except UnknownState as error:
                    raise UnknownState(f"row {i}, column {name!r}: {error}") from None
                sets[v][i] = np.bincount(allowed, minlength=sets[v].shape[1]) > 0
            plain[name] = [None if isinstance(cell, SEVERAL) else cell for cell in cells]
    return plain, sets


def by_row(sets: Mapping[int, Floats], source: Ints | None) -> dict[int, Floats]:
    """Weights of the rows of a table as those of the rows of its sequences."""
    # source: Of the sequences
    return {v: w if source is None else np.where(source[:, None] >= 0, w[source], 1.0) for v, w in sets.items()}
