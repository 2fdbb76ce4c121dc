"""`CaseSolver`: answers cases by state numbers, with a tree and a query, without files, frames and processes."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from ..backends.base import Table, without_rounding
from ..columns.coded import Encoder
from ..columns.likelihoods import FIRST, LikelihoodCells
from ..errors import EvidenceError, ImpossibleEvidence, JtgpuError, TableTooLarge, UnknownState
from ..inference.evidence_table import naming_rows, read_known_cases
from ..inference.results.case_states import CaseExplanations
from ..inference.tree import JunctionTree
from ..model.states import NOT_OBSERVED
from ..options.tables import TableOptions
from ..util.arrays import Bools, Cell, Floats, Ints
from ..util.cells import POINT, Marks, na_words
from ..util.rows import Mapper, find_equal_rows
from .query import TableQuery

BLOCK = 2048  # rows transposed at a time, so that they stay in the CPU cache
MIN_EQUAL = 0.05  # share of cases that must equal earlier ones for merging them to pay
MAX_LISTED = 20  # findings in a message
_NAMES = re.compile(r"^(row \d+: )+")  # of rows, counted from another first one

RowError = Callable[[int, str, type[JtgpuError]], JtgpuError]  # row, reason, type: the error that names the row


@dataclass(frozen=True)
class ExplainedCases:
    """Most probable explanations of cases: the fields of `CaseExplanations` that a table needs."""

    states: NDArray[np.int32]  # (u, V)
    log_joint: Floats  # (u,)


@dataclass
class CaseAnswers:
    """Answers of n cases, of which u distinct ones were computed."""

    # (u, T) float64: Target after target; a view of a (T, u) array if the backend computes columns
    posterior: Floats
    log_evidence: Floats  # (u,) float64
    impossible: Bools  # (u,) bool
    inverse: Ints | None = None  # (n,) int64: Computed case of each case; None if all were computed
    explanations: ExplainedCases | CaseExplanations | None = None  # explanations of the u cases

    def expand(self, values: NDArray[Cell]) -> NDArray[Cell]:
        """Values of the u computed cases, repeated for all n cases along the last axis."""
        return values if self.inverse is None else np.take(values, self.inverse, axis=-1)


@dataclass
class AnsweredRows:
    """Rows of a table with their answers."""

    answers: CaseAnswers
    codes: NDArray[np.integer]  # (E, n) array of int: State of each evidence variable in each row
    flagged: dict[int, str]  # reason why a row has no answer, by row
    cells: LikelihoodCells  # of the codes -2 and less


class CaseSolver:
    """A tree and the results that it computes for every case of a table."""
    # options: ``na_values`` and ``do``
    # by_index: Whether numbers in cells are always numbers of states; see `jtgpu.model.states`
    # each: Maps a function over pieces of work; see `jtgpu.columns.coded.Encoder.encode`
    # report: Called with the progress by solvers that divide their work themselves; see `jtgpu.cases.progress`
    # by_columns: Whether the backend computes columns; a call then takes any number of cases
    # log_priors: list of arrays: For the conflict measure: ln P of each state of each evidence variable without
    #     evidence, and 0 for "not observed"

    def __init__(
        self, tree: JunctionTree, query: TableQuery, options: TableOptions | None = None, *, by_index: bool = False
    ):
        options = options or TableOptions()
        self.tree, self.query, self.model = tree, query, tree.model
        self.each: Mapper = map
        self.report: Callable[[int, int, int], None] | None = None
        self._coded = tree.model.with_codes(options.codes)
        self.encoders = [
            Encoder(self._coded, query.evidence, na_words(options.na_values, is_text=is_text), by_index=by_index)
            for is_text in (False, True)
        ]
        self._do = dict(options.do or {})
        self.by_columns = not self._do and not query.mpe and tree.intervened().backend.capabilities.native_columns
        self.log_priors = self._compute_log_priors() if query.conflict else []

    def _compute_log_priors(self) -> list[Floats]:
        prior = self.tree.posteriors(targets=self.query.evidence, do=self._do)
        with np.errstate(divide="ignore"):
            return [np.append(np.log(np.asarray(prior[v])), 0.0) for v in map(int, self.query.evidence)]

    def answer(
        self, columns: Sequence[object], n: int, error: RowError, rejected: Mapping[int, str] | None = None, *,
        is_text: bool = False, marks: Marks = POINT,
    ) -> AnsweredRows:  # fmt: skip
        """Encode and answer n rows."""
        # columns: The columns of evidence; see `jtgpu.columns.coded.Encoder.encode`
        # error: Makes the error for a row that has no answer; the first one is raised unless the query flags such rows
        # rejected: Rows that could not be read, and why
        # is_text: Whether they come from a text file, in which words may mean missing cells
        # marks: Of decimals and thousands in the numerals of a text file
        self.encoders[is_text].read_as(marks)
        cells = LikelihoodCells(self._coded)
        encoded = cells.encode(self.encoders[is_text], columns, n, self.each)
        flagged = dict(sorted((encoded.rejected | dict(rejected or {})).items()))
        if flagged and not self.query.flag:
            row, reason = next(iter(flagged.items()))
            raise error(row, reason, UnknownState)
        answers = self._solve_or_flag(encoded.codes, cells, flagged, error)
        for row, reason in self._impossible_rows(answers, encoded.codes, cells):
            if not self.query.flag:
                raise error(row, reason, ImpossibleEvidence)
            flagged.setdefault(row, reason)
        return AnsweredRows(answers, encoded.codes, flagged, cells)

    def _solve_or_flag(
        self, codes: NDArray[np.integer], cells: LikelihoodCells, flagged: dict[int, str], error: RowError
    ) -> CaseAnswers:
        """Answer n cases; questions that are too large are errors of their rows."""
        try:
            return self.solve(codes, cells)
        except TableTooLarge as refusal:
            first = refusal
        fits, rows = np.zeros(codes.shape[1], np.bool_), range(codes.shape[1])
        for row in rows if self.query.flag and first.row >= 0 else ():
            try:
                self.solve(codes[:, [row]], cells)
                fits[row] = True
            except TableTooLarge as refusal:
                flagged.setdefault(row, _NAMES.sub("", refusal.message))
        if first.row < 0:
            raise first
        if not self.query.flag:
            raise error(first.row, _NAMES.sub("", first.message), TableTooLarge)
        answers, inverse = self.solve(codes[:, fits], cells), np.zeros(len(fits), np.int64)
        if not fits.any():  # every row reads a case that stands for none
            blank = ExplainedCases(np.zeros((1, len(self.model)), np.int32), np.zeros(1)) if self.query.mpe else None
            posterior = np.zeros((1, answers.posterior.shape[1]))
            return CaseAnswers(posterior, np.zeros(1), np.zeros(1, np.bool_), inverse, blank)
        inverse[fits] = answers.expand(np.arange(len(answers.impossible)))
        return replace(answers, inverse=inverse)

    def solve(self, codes: NDArray[np.integer], cells: LikelihoodCells | None = None) -> CaseAnswers:
        """Answer n cases; equal cases are computed once if there are enough of them."""
        # codes: (E, n) array of int: See `jtgpu.columns.coded.Encoded`
        sets = [self.tree.plan.sets.number(scope, "joint posterior") for scope in self.query.joints]
        targets = [*self.query.targets, *dict.fromkeys(sets)]
        if self.by_columns and not cells:  # such a backend merges equal cases itself
            table = Table.by_columns(self.query.evidence, codes, len(self.model), targets)
            columns = self.tree.intervened().backend.run(table)
            posterior = self._with_joints(columns.posterior.T)
            return CaseAnswers(posterior, without_rounding(columns.log_evidence), columns.impossible)
        equal = find_equal_rows(codes.T, min_saving=MIN_EQUAL, mapper=self.each)
        inverse = None if equal is None else equal.kind
        codes = codes if equal is None else codes[:, equal.first]
        n = codes.shape[1]
        states = np.full((n, len(self.model)), NOT_OBSERVED, np.int32)
        for first_row in range(0, n, BLOCK):
            rows = slice(first_row, first_row + BLOCK)
            states[rows, list(self.query.evidence)] = codes[:, rows].T
        likelihood: dict[int, Floats] = {}
        states = states if cells is None else cells.taken(states, likelihood)
        known = read_known_cases(self._coded, states, likelihood, do=self._do)
        with naming_rows(None, None if equal is None else equal.first):
            backend = self.tree.intervened(known.intervened).backend
            result = backend.run(Table.of(known.states, known.likelihood, targets))
            posterior = self._with_joints(result.posterior)
            answers = CaseAnswers(posterior, without_rounding(result.log_evidence), result.impossible, inverse)
            if self.query.mpe:
                answers.explanations = self.tree.mpe_batch(
                    states, likelihood=likelihood, on_error="flag", do=self._do
                )
        return answers

    def _with_joints(self, posterior: Floats) -> Floats:
        """The posteriors of the targets, and the joint probabilities of each set in the order of the query."""
        if not self.query.joints:
            return posterior
        plain, joints = self.tree.plan.sets.split(posterior, self.query.targets, self.query.joints)
        return np.hstack([plain, *(joints[scope].reshape(len(plain), -1) for scope in self.query.joints)])

    def _impossible_rows(
        self, answers: CaseAnswers, codes: NDArray[np.integer], cells: LikelihoodCells
    ) -> list[tuple[int, str]]:
        """Rows of probability zero and their evidence, ascending."""
        if not answers.impossible.any():
            return []
        rows = np.flatnonzero(answers.expand(answers.impossible)).tolist()
        return [(row, self._impossible_reason(codes[:, row], cells)) for row in rows]

    def _impossible_reason(self, case: NDArray[np.integer], cells: LikelihoodCells) -> str:
        pairs = zip(self.query.evidence, case.tolist(), strict=True)
        states = [
            f"{self.model.variables[v]} = "
            + repr(self.model.states(v)[s] if s >= 0 else cells.vectors(v)[FIRST - s].tolist())
            for v, s in pairs if s != NOT_OBSERVED
        ]  # fmt: skip
        more = f" and {len(states) - MAX_LISTED} more" if len(states) > MAX_LISTED else ""
        return f"this evidence has probability 0: {'; '.join(states[:MAX_LISTED])}{more}"


# ``progress=True``: one line on stderr that counts cases, in a terminal, in a notebook, and in a log.

Progress = Callable[[int, int, int], None]  # cases answered; how much has been read, of how much

REDRAW = 0.1  # seconds between two updates of a line
LOG = 10.0  # seconds between two lines of a log


@contextmanager
def progress_of(wanted: bool | Progress | None) -> Iterator[Progress | None]:
    """The function to call with the progress of a run."""
    # wanted: True: a line on stderr. A callable: this one. False or None: nothing.
    # raises EvidenceError: If `wanted` is anything else.
    if wanted is None or wanted is False:
        yield None
    elif callable(wanted):
        yield wanted
    elif wanted is True:
        line = _Line(sys.stderr)
        try:
            yield line
        finally:
            line.close()
    else:
        raise EvidenceError(f"progress must be True, False or a function of three numbers, not {wanted!r}")


class _Line:
    """A line that is drawn again and again, or lines now and then where lines cannot be drawn again."""

    def __init__(self, stream: TextIO):
        self._stream = stream
        # of notebooks: OutStream of ipykernel
        self._redraws = stream.isatty() or type(stream).__module__.startswith("ipykernel")
        self._first: tuple[int, float] | None = None
        self._drawn, self._width, self._last = 0.0, 0, ""

    def __call__(self, cases: int, done: int, total: int) -> None:
        now = time.perf_counter()
        if self._first is None:  # the rate excludes an earlier run and the first chunk, which may compile loops
            self._first = cases, now
            if not self._redraws:
                self._drawn = now
        self._last = self._text(cases, done, total, now)
        if now - self._drawn >= (REDRAW if self._redraws else LOG):
            self._draw(now)

    def _text(self, cases: int, done: int, total: int, now: float) -> str:
        assert self._first is not None
        first, since = self._first
        share = min(done / max(total, 1), 1.0)
        text = f"{cases:,} cases  {share:4.0%}"
        if cases > first and now > since:
            text += f"  {(cases - first) / (now - since):,.0f} cases/s"
        if 0.0 < share < 1.0 and now > since:
            seconds = round((now - since) * (1.0 - share) / share)
            text += f"  {seconds // 60}:{seconds % 60:02d} left"
        return text

    def _draw(self, now: float) -> None:
        padded = self._last.ljust(self._width)
        self._stream.write(f"\r{padded}" if self._redraws else f"{self._last}\n")
        self._stream.flush()
        self._drawn, self._width, self._last = now, len(self._last), ""

    def close(self) -> None:
        """Show the last state, and end the line."""
        if self._last:
            self._draw(0.0)
        if self._redraws and self._width:
            self._stream.write("\n")
            self._stream.flush()
