"""What is asked of every case of a table, and its answers: numbers of states in, columns of an Arrow table out.

`Solver` is what a worker holds: it knows a tree and a question, and nothing of files, frames or other workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from ..errors import EvidenceError, UnknownVariable, closest
from ..inference.tree import JunctionTree
from ..model.network import DiscreteModel
from ..util.equal_rows import find_equal_rows
from .arrow import arrow
from .encode import NOTHING, Each, Encoded

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Answers", "Question", "Solver", "Wanted", "ask"]

WORTH = 0.05  # least share of rows that must equal earlier ones for merging them to pay
AT_ONCE = 64 << 20  # bytes of posteriors and evidence of one call of the backend
BLOCK = 2048  # rows
LEAST_ROWS, MOST_ROWS = 1024, 1 << 17


@dataclass(frozen=True)
class Question:
    """What is asked of every case, by numbers of variables; made by `ask`."""

    targets: tuple[int, ...]
    evidence: tuple[int, ...]
    labels: bool = False  # the most probable state of each target, instead of all its probabilities
    log_evidence: bool = False
    conflict: bool = False
    mpe: bool = False  # the states of the targets in the most probable explanation, and its ln P with the evidence
    flag: bool = False  # rows that cannot be answered are marked, not an error

    def rows_at_once(self, model: DiscreteModel) -> int:
        """How many cases a call of the backend may have for its memory to stay small."""
        wide = 8 * int(sum(model.cardinality[v] for v in self.targets)) + 4 * len(model) + 16
        return int(min(max(AT_ONCE // wide, LEAST_ROWS), MOST_ROWS))

    def columns(self, model: DiscreteModel) -> list[str]:
        """Names of the answer's columns, in order."""
        if self.labels:
            names = [model.variables[v] for v in self.targets]
        else:
            names = [f"{model.variables[v]}={s}" for v in self.targets for s in _distinct(model.states(v))]
        names += ["log_evidence"] * self.log_evidence + ["conflict"] * self.conflict
        if self.mpe:
            names += [*(f"mpe:{model.variables[v]}" for v in self.targets), "log_mpe"]
        return names + ["error"] * self.flag

    def schema(self, model: DiscreteModel, kept: Iterable[tuple[str, Any]] = (), leave: int = 0) -> Any:
        """Arrow schema of the answer, without so many columns at its beginning, behind the columns that are taken over
        from the table of cases.

        Raises
        ------
        EvidenceError
            Where two columns would have the same name.
        """
        pa = arrow()
        fields = list(kept)
        names = self.columns(model)
        n = len(self.targets)
        first = len(names) - n - 1 - self.flag  # of the columns of explanations
        text = set(range(n)) if self.labels else set()
        text |= set(range(first, first + n)) if self.mpe else set()
        text |= {len(names) - 1} if self.flag else set()
        fields += [(name, pa.string() if i in text else pa.float64()) for i, name in enumerate(names) if i >= leave]
        met: set[str] = set()
        for name, _ in fields:
            if name in met:
                raise EvidenceError(f"the answer would have two columns called {name!r}; do not keep that of the cases")
            met.add(name)
        return pa.schema(fields)


class Wanted(TypedDict, total=False):
    """Keywords of `ask`, which all that answers tables hands on."""

    targets: str | int | Iterable[str | int] | None
    evidence_columns: str | Iterable[str] | None
    keep: str | Iterable[str]
    labels: bool
    log_evidence: bool
    conflict: bool
    mpe: bool
    on_error: str


def ask(
    model: DiscreteModel,
    columns: Sequence[str],
    *,
    targets: str | int | Iterable[str | int] | None = None,
    evidence_columns: str | Iterable[str] | None = None,
    keep: str | Iterable[str] = (),
    source: str = "the table",
    labels: bool = False,
    log_evidence: bool = False,
    conflict: bool = False,
    mpe: bool = False,
    on_error: str = "error",
) -> tuple[Question, list[str]]:
    """Settle what is asked of a table with these columns, and which of them are kept.

    Parameters
    ----------
    model : DiscreteModel
    columns : sequence of str
        Names of the table's columns.
    targets : variables, optional
        Default: the variables that are no evidence; where all are, all of them.
    evidence_columns : names, optional
        Columns that are evidence. Default: every column that is a variable of the model, without the targets that are
        named: a prediction of a column does not look at that column. Columns that are no variables are then left
        alone, but one that differs from a variable only in case, spaces or punctuation is an error.
    keep : names
        Columns taken over to the answer.
    source : str
        What the table is called in messages.

    Raises
    ------
    UnknownVariable
        For a target or a column that is not there, with the closest names.
    EvidenceError
        For a column that stands twice, or a table none of whose columns is a variable.
    """
    if on_error not in ("error", "flag"):
        raise ValueError(f"on_error is 'error' or 'flag', not {on_error!r}")
    named = None if targets is None else _list(targets)
    asked = None if named is None else list(dict.fromkeys(model.index(t) for t in named))
    kept = list(dict.fromkeys(str(k) for k in _list(keep)))
    if evidence_columns is None:
        seen = [c for c in columns if c in model.variables and model.index(c) not in (asked or ())]
        if not seen:
            _refuse_none(model, columns, asked, source)
        _refuse_near(model, columns, seen, source)
    else:
        seen = list(dict.fromkeys(str(c) for c in _list(evidence_columns)))
    for name in [*seen, *kept]:
        if columns.count(name) != 1:
            n = columns.count(name)
            if not n:
                raise UnknownVariable(f"{source} has no column {name!r}{closest(name, columns)}")
            raise EvidenceError(f"{source} has {n} columns called {name!r}")
    evidence = tuple(model.index(c) for c in seen)
    if asked is None:
        asked = [v for v in range(len(model)) if v not in set(evidence)] or list(range(len(model)))
    flag = on_error == "flag"
    return Question(tuple(asked), evidence, labels, log_evidence, conflict, mpe, flag), kept


def _list(names: Any) -> list[Any]:
    return [names] if isinstance(names, (str, int, np.integer)) else list(names)


def _refuse_none(model: DiscreteModel, columns: Sequence[str], asked: list[int] | None, source: str) -> None:
    """No column is evidence; that is meant only where the table has nothing but targets."""
    known = [c for c in columns if c in model.variables]
    some = ", ".join(map(repr, list(columns)[:5])) + (", ..." if len(columns) > 5 else "")
    hint = closest(columns[0], model.variables) if columns else ""
    if known and asked is not None:
        raise EvidenceError(
            f"{source} has no evidence: its only columns that are variables are the targets; evidence_columns= says "
            "which of them are observed"
        )
    raise UnknownVariable(f"no column of {source} is a variable of {model.name!r}: {some or 'it has none'}{hint}")


def _refuse_near(model: DiscreteModel, columns: Sequence[str], seen: list[str], source: str) -> None:
    """A column that is all but called like a variable is meant to be one."""
    free = {_folded(v): v for v in model.variables if v not in columns}
    for name in columns:
        meant = free.get(_folded(name)) if name not in model.variables else None
        if meant:
            raise UnknownVariable(
                f"{source} has a column {name!r}, and the model a variable {meant!r}: rename the column, or say "
                "evidence_columns= without it"
            )


def _folded(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum()) or name


def _distinct(states: Sequence[str]) -> list[str]:
    """States' names; those that several states share with their numbers behind."""
    return [s if states.count(s) == 1 else f"{s}#{i}" for i, s in enumerate(states)]


@dataclass
class Answers:
    """Answers of n cases, of which u different ones were computed.

    Attributes
    ----------
    posterior : (u, T) float64
        Target after target; a view of (T, u) where columns are what the backend gives.
    log_evidence : (u,) float64
    impossible : (u,) bool
    inverse : (n,) int64, optional
        Which of the u a case is; None: all, in order.
    explanations : CaseExplanations, optional
        Of the u cases, where they were asked for.
    """

    posterior: NDArray[np.float64]
    log_evidence: NDArray[np.float64]
    impossible: NDArray[np.bool_]
    inverse: NDArray[np.int64] | None = None
    explanations: Any = None

    def spread(self, values: NDArray[Any]) -> NDArray[Any]:
        """Something of each computed case, for every case: along the last axis."""
        return values if self.inverse is None else np.take(values, self.inverse, axis=-1)

    def spread_out(self, each: Each) -> Answers:
        """The same answers with a case of their own for each of the n, copied by several threads."""
        if self.inverse is None:
            return self
        inverse, columns = self.inverse, self.posterior.T
        whole = np.empty((len(columns), len(inverse)))

        def copy(j: int) -> None:
            np.take(columns[j], inverse, out=whole[j], mode="clip")

        list(each(copy, range(len(columns))))
        return Answers(whole.T, self.log_evidence[inverse], self.impossible[inverse])


class Solver:
    """A tree and a question: what is asked of every case of a table.

    Parameters
    ----------
    tree : JunctionTree
    question : Question
    do : mapping, optional
        Interventions that hold in every case; see `jtgpu.JunctionTree.posteriors`.

    Attributes
    ----------
    each : callable
        How pieces of work are gone through; see `jtgpu.cases.encode.Encoder.encode`.
    """

    def __init__(self, tree: JunctionTree, question: Question, do: Mapping[Any, Any] | None = None):
        self.tree, self.question = tree, question
        self.each: Each = map
        self.model = tree.model
        self._more: dict[str, Any] = {"do": do} if do else {}
        self._log_prior = self._priors() if question.conflict else []
        cards = [int(self.model.cardinality[v]) for v in question.targets]
        self._first = np.cumsum([0, *cards])  # first column of each target

    @property
    def by_columns(self) -> bool:
        """Whether the backend takes and gives columns: then a call has as many cases as there are."""
        plain = not self._more and not self.question.mpe
        return plain and self.tree.intervened().backend.native_columns

    def _priors(self) -> list[NDArray[np.float64]]:
        """ln P of each state of each evidence variable without evidence, and 0 behind them for "not observed"."""
        prior = self.tree.posteriors(targets=self.question.evidence, **self._more)
        with np.errstate(divide="ignore"):
            return [np.append(np.log(np.asarray(prior[v])), 0.0) for v in map(int, self.question.evidence)]

    def solve(self, codes: NDArray[Any]) -> Answers:
        """Answer n cases, equal ones once where it is worth looking for them.

        Parameters
        ----------
        codes : (E, n) array of int
            See `jtgpu.cases.encode.Encoded`.
        """
        if self.by_columns:  # such a backend merges equal cases itself
            backend = self.tree.intervened().backend
            given = backend.run_columns(self.question.evidence, codes, self.question.targets)
            return Answers(given.posterior.T, given.log_evidence, given.impossible, None)
        equal = find_equal_rows(codes.T, worth=WORTH, each=self.each)
        inverse = None if equal is None else equal.kind
        different = codes if equal is None else codes[:, equal.first]
        n = different.shape[1]
        states = np.full((n, len(self.model)), NOTHING, np.int32)
        for first in range(0, n, BLOCK):  # a block at a time stays in the cache, on both sides
            states[first : first + BLOCK, list(self.question.evidence)] = different[:, first : first + BLOCK].T
        found = self.tree.posteriors_batch(states, targets=self.question.targets, on_impossible="flag", **self._more)
        answers = Answers(found.flat, found.log_evidence, found.impossible, inverse)
        if self.question.mpe:
            answers.explanations = self.tree.mpe_batch(states, on_impossible="flag", **self._more)
        return answers

    def impossible_rows(self, answers: Answers, encoded: Encoded) -> dict[int, str]:
        """Rows of probability zero, with their evidence in words; ascending."""
        if not answers.impossible.any():
            return {}
        rows = np.flatnonzero(answers.spread(answers.impossible)).tolist()
        return {r: self._told(encoded.codes[:, r]) for r in rows}

    def _told(self, case: NDArray[Any]) -> str:
        pairs = zip(self.question.evidence, case.tolist(), strict=True)
        found = [f"{self.model.variables[v]} = {self.model.states(v)[s]!r}" for v, s in pairs if s >= 0]
        more = f" and {len(found) - 20} more" if len(found) > 20 else ""
        return f"this evidence has probability 0: {'; '.join(found[:20])}{more}"

    def table(
        self, answers: Answers, encoded: Encoded, flagged: Mapping[int, str], kept: Sequence[Any] = (),
        first: int = 0,
    ) -> Any:  # fmt: skip
        """The answers as an Arrow table.

        Parameters
        ----------
        answers, encoded
            Of the same n cases.
        flagged : mapping
            Row to why it has no answer: its cells are null.
        kept : sequence of (Arrow field, Arrow array)
            Columns that go in front.
        first : int
            Columns of probabilities that are left out: none, or all.
        """
        pa = arrow()
        n = encoded.codes.shape[1]
        bad = np.zeros(n, np.bool_)
        bad[list(flagged)] = True
        mask = bad if flagged else None
        columns = [pa.array(x, mask=mask) for x in self._numbers(answers)] if not first else []
        if self.question.labels:
            columns = self._labels(answers, mask)
        if self.question.log_evidence:
            columns.append(pa.array(answers.spread(answers.log_evidence), mask=mask))
        if self.question.conflict:
            columns.append(pa.array(self._conflicts(answers, encoded, bad), mask=mask))
        if self.question.mpe:
            best = answers.explanations.states[:, list(self.question.targets)]
            columns += self._named(answers, np.where(answers.impossible[:, None], 0, best), mask)
            columns.append(pa.array(answers.spread(answers.explanations.log_joint), mask=mask))
        if self.question.flag:
            errors: list[str | None] = [None] * n
            for row, why in flagged.items():
                errors[row] = why
            columns.append(pa.array(errors, pa.string()) if flagged else pa.nulls(n, pa.string()))
        types = [(k.name, k.type) for k in (f for f, _ in kept)]
        schema = self.question.schema(self.model, types, first)
        return pa.Table.from_arrays([a for _, a in kept] + columns, schema=schema)

    def _numbers(self, answers: Answers) -> Iterable[NDArray[np.float64]]:
        if self.question.labels:
            return
        by_column = np.ascontiguousarray(answers.posterior.T)
        for values in by_column:
            yield answers.spread(values)

    def _labels(self, answers: Answers, mask: NDArray[np.bool_] | None) -> list[Any]:
        """The most probable states' names; the first of equals."""
        posterior = answers.posterior

        def label(i: int) -> Any:
            part = posterior[:, self._first[i] : self._first[i + 1]]
            best = _highest(part.T) if part.flags.f_contiguous else part.argmax(axis=1)
            return self._name(answers, self.question.targets[i], best, mask)

        return list(self.each(label, range(len(self.question.targets))))

    def _named(self, answers: Answers, states: NDArray[Any], mask: NDArray[np.bool_] | None) -> list[Any]:
        """Names of the targets' states: (u, targets) numbers in, a column of text each out."""
        pairs = zip(self.question.targets, states.T, strict=True)
        return [self._name(answers, v, numbers, mask) for v, numbers in pairs]

    def _name(self, answers: Answers, v: int, numbers: NDArray[Any], mask: NDArray[np.bool_] | None) -> Any:
        pa = arrow()
        indices = pa.array(answers.spread(numbers.astype(np.int32)), mask=mask)
        return pa.DictionaryArray.from_arrays(indices, pa.array(self.model.states(v))).cast(pa.string())

    def _conflicts(self, answers: Answers, encoded: Encoded, bad: NDArray[np.bool_]) -> NDArray[np.float64]:
        """ln(prod P(e_i) / P(e)) of each case; see `jtgpu.JunctionTree.conflict`."""
        total = np.zeros(len(bad))
        for prior, codes in zip(self._log_prior, encoded.codes, strict=True):
            total += prior[codes]
        log_evidence = np.where(bad, 0.0, answers.spread(answers.log_evidence))
        return np.where(bad, 0.0, total) - log_evidence


def _highest(columns: NDArray[np.float64]) -> NDArray[np.int32]:
    """``columns.argmax(axis=0)`` in one pass over each column."""
    best, top = np.zeros(columns.shape[1], np.int32), columns[0].copy()
    for k, column in enumerate(columns[1:], 1):
        best[column > top] = k
        np.maximum(top, column, out=top)
    return best
