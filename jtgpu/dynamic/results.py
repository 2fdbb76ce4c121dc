"""Answers about sequences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..inference.results.frames import unused_name
from ..inference.results.marginals import distinct_names
from ..inference.results.result import ByName, ByVariable, Columns, Result
from ..util.text_table import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..model.discrete import DiscreteModel
    from ..util.arrays import Bools, Floats, Ints
    from .sequences import Sequences


class Course(NamedTuple):
    """A variable in the slices of a sequence."""

    name: str
    lines: dict[str, Floats]  # of each state, or the mean
    sd: Floats | None  # of a number


class _OfSlices(Result):
    """Answers for some slices of B sequences."""

    _model: DiscreteModel

    def __init__(self, model: DiscreteModel, sequences: Sequences, slices: Ints | None):
        # slices: (S,) those that are answered; None: the last one of each sequence
        self._model, self._sequences, self._slices = model, sequences, slices
        self.lengths: Ints = sequences.lengths

    def _places(self) -> tuple[Ints, Ints, Ints]:
        """Sequence, place among the answered slices, and slice of every answer, those beyond the end left out."""
        n = len(self.lengths)
        if self._slices is None:
            return np.arange(n), np.zeros(n, np.int64), self.lengths - 1 + self._sequences.before
        order = np.argsort(self._slices, kind="stable")  # not (B, S) numbers: one of many sequences may be long
        exists = np.searchsorted(self._slices[order], self.lengths)
        sequence = np.repeat(np.arange(n), exists)
        place = order[np.arange(len(sequence)) - np.repeat(np.cumsum(exists) - exists, exists)]
        if (np.diff(order) < 0).any():
            place = place[np.lexsort((place, sequence))]
        return sequence, place, self._slices[place] + self._sequences.before[sequence]

    def _keys(self) -> dict[str, Any]:
        """Columns that name the rows of a frame: those of the sequences' table, else number and slice."""
        sequence, _, t = self._places()
        if self._sequences.keys:
            rows = (self._sequences.ptr[:-1] - self._sequences.before)[sequence] + t
            return {name: [column[r] for r in rows.tolist()] for name, column in self._sequences.keys.items()}
        names = set(self._model.variables)
        return {unused_name("sequence", names): sequence, unused_name("slice", names): t}

    def _table(self) -> Columns:
        return super()._table()._replace(keys=len(self._sequences.keys) or 2)


class SequencePosteriors(_OfSlices, ByName[Any]):
    """Posteriors of variables in slices of B sequences.

    ``result["rain"]`` is an array of float64, (B, S, states), S the number of slices that were requested: all T, or
    those in ``at``. With ``at="last"`` it is (B, states). Slices behind the end of a sequence, and impossible ones, are
    zeros. The data frame has a row for each slice: the keys, and a column ``rain=yes`` for each state; answers about
    impossible sequences are null.

    Attributes
    ----------
    log_evidence : (B,) ndarray of float64
        Natural logarithm of the probability of the evidence of each sequence; -inf if it is impossible.
    lengths : (B,) ndarray of int64
        Slices of each sequence.
    impossible : (B,) ndarray of bool
    joint : dict of tuple of str to ndarray
        Joint posteriors of the sets in ``joints``, an axis for each variable behind those of sequence and slice. Zeros
        where ``rain[t-1]`` would be before the first slice.
    """

    _picture = "courses"
    _argument = "targets"

    def __init__(
        self, model: DiscreteModel, sequences: Sequences, slices: Ints | None, log_evidence: Floats,
        arrays: Mapping[str, Floats], joint: Mapping[tuple[str, ...], Floats],
    ):  # fmt: skip
        super().__init__(model, sequences, slices)
        self.log_evidence = log_evidence
        self.impossible: Bools = np.isneginf(log_evidence)
        self._parts, self.joint = dict(arrays), dict(joint)

    def modes(self) -> dict[str, NDArray[Any]]:
        """Return the most probable state of each variable by name, (B, S) or (B,); None where there is no posterior."""
        return {
            v: np.array([*self._model.states(v), None], object)[np.where(x.any(axis=-1), x.argmax(axis=-1), -1)]
            for v, x in self.items()
        }

    def _columns(self) -> dict[str, object]:
        values: dict[str, Any] = self._values()
        if self.impossible.any():
            lost = self.impossible[self._places()[0]]
            values = {name: np.ma.masked_array(x, lost) for name, x in values.items()}
        return self._keys() | values

    def _picked(self, table: Floats) -> Floats:
        """The rows of the answers in an array of all sequences and slices."""
        sequence, place, _ = self._places()
        return table[sequence] if self._slices is None else table[sequence, place]

    def _values(self) -> dict[str, Floats]:
        """The columns of the answers."""
        columns = {}
        for v, table in self.items():
            picked = self._picked(table)
            for s, name in enumerate(distinct_names(self._model.states(v))):
                columns[f"{v}={name}"] = picked[:, s]
        return columns

    def _title(self) -> str:
        return f"Posteriors of {counted(len(self), 'variable')} in {counted(len(self.lengths), 'sequence')}"

    def _courses(self) -> tuple[str, list[int], list[Course]]:
        """The first sequence for a picture: its name, slices, and for each variable the course of each state."""
        n = 0 if self._slices is None else int((self._slices < self.lengths[0]).sum())
        slices = [] if self._slices is None else (self._slices[:n] + self._sequences.before[0]).tolist()
        made = [Course(v, {s: x[0, :n, i] for i, s in enumerate(self._model.states(v))}, None)
                for v, x in self.items() if n]  # fmt: skip
        name = "" if self._sequences.ids is None else f" ({self._sequences.ids[0]})"
        return f"{self._title()}: sequence 0{name}", slices, made


class SequenceStates(_OfSlices, ByVariable["NDArray[Any]"]):
    """States of all variables in all slices of B sequences.

    ``result["rain"]`` has the names of the states, (B, T) ndarray of object, and (n, B, T) of n samples of each
    sequence; None behind the end of a sequence and in impossible ones. The data frame has a row for each slice: the
    keys, and a column of state names for each variable; of n samples of each sequence n times as many rows, whose
    numbers are in the column ``sample``.

    Attributes
    ----------
    states : (B, T, V) or (n, B, T, V) ndarray of int32
        State numbers; -1 where there is none.
    lengths : (B,) ndarray of int64
        Slices of each sequence.
    """

    _targets = None

    def __init__(self, model: DiscreteModel, sequences: Sequences, rows: NDArray[np.int32]):
        # rows: ([n,] R, V) states, sequence after sequence
        self._labels = model.labels
        lengths = sequences.lengths
        length = int(lengths.max(initial=0))
        super().__init__(model, sequences, np.arange(length))
        shape = (*rows.shape[:-2], len(lengths), length, rows.shape[-1])
        if (lengths == length).all():
            self.states = np.ascontiguousarray(rows, np.int32).reshape(shape)
            return
        sequence, place, _ = self._places()
        self.states = np.full(shape, -1, np.int32)
        self.states[..., sequence, place, :] = rows

    def _part(self, v: int) -> NDArray[Any]:
        return np.asarray(np.array([*self._model.states(v), None], object)[self.states[..., v]])

    def _columns(self) -> dict[str, object]:
        sequence, place, _ = self._places()
        keys, columns = self._keys(), {v: self[v][..., sequence, place] for v in self}
        if self.states.ndim == 4:
            n = len(self.states)
            keys = {name: np.tile(np.array(column, object), n) for name, column in keys.items()}
            name = unused_name("sample", {*self._model.variables, *keys})
            keys = {name: np.repeat(np.arange(n), len(sequence)), **keys}
        return {**keys, **{v: column.ravel() for v, column in columns.items()}}

    def _title(self) -> str:
        return f"States of {counted(len(self), 'variable')} in {counted(len(self.lengths), 'sequence')}"

    def _table(self) -> Columns:
        table = super()._table()
        return table if self.states.ndim == 3 else table._replace(keys=table.keys + 1)


class SequenceExplanations(SequenceStates):
    """The most probable states of each sequence given its evidence; see `SequenceStates`.

    Attributes
    ----------
    log_joint : (B,) ndarray of float64
        ln P(states, evidence); -inf if the evidence is impossible.
    impossible : (B,) ndarray of bool
    """

    def __init__(self, model: DiscreteModel, sequences: Sequences, rows: NDArray[np.int32], log_joint: Floats):
        super().__init__(model, sequences, rows)
        self.log_joint = log_joint
        self.impossible = np.isneginf(log_joint)
