"""The exploration of a table: a network learned step by step, its certainty and its accuracy, in a limited time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import JtgpuError, TableTooLarge
from ..model.network import BayesianNetwork
from ..options.compute import Compute
from .column_facts import ColumnFacts
from .dags.best_graph import TimeLimit
from .dags.posterior.posterior import posterior
from .dags.structure import Structure, structure
from .parameters.fit import fit
from .parameters.sources import open_source
from .validation import validate
from .validation_result import NumberValidation

if TYPE_CHECKING:
    from .dags.posterior.result import StructurePosterior
    from .validation_result import Validation

MIN_COMPLETE = 0.5  # share of the rows without a missing cell from which the others are left out for the structure
MAX_VARIABLES = 60  # whose arcs get probabilities
FOLDS = 5  # of the cross-validation
SHARE_OF_STRUCTURE, SHARE_OF_EM, SHARE_OF_CHAINS = 0.3, 0.2, 0.5  # of the time that is left when they begin
LEAST = 0.2  # seconds of a step
LEAST_PASSES = 10  # of EM: if so many do not fit into the time, it does not begin
SECONDS_OF_ENTRY = 2e-9  # of a clique table and row, of a pass over the rows


def options_of(cases: Any, seed: int) -> dict[str, Any]:
    """Options of the structure: rows with gaps are left out, or, where too few remain, families use what they have."""
    n = cases.num_rows
    complete = n - int(np.logical_or.reduce([column.is_null().to_numpy() for column in cases.columns]).sum())
    if complete == n:
        return {"seed": seed}
    if complete >= MIN_COMPLETE * n:
        return {"seed": seed, "missing": "drop"}
    return {"seed": seed, "missing": "available", "score": "bic"}


def numeric_options(cases: Any, numeric: Sequence[str], seed: int) -> dict[str, Any]:
    """Options of the structure of a table with numbers."""
    gaps = any(column.null_count for column in cases.columns)
    only_numbers = len(numeric) == cases.num_columns
    return {
        "seed": seed, "score": "bge" if only_numbers else "bic-cg", "continuous": list(numeric),
        "missing": "drop" if gaps else "error",
    }  # fmt: skip


@dataclass(frozen=True)
class Learning:
    """How networks are learned from the columns that are kept, in a limited time."""

    cases: Any
    numeric: Sequence[str] | None  # columns that are numbers. None: they are intervals
    options: dict[str, Any]  # of the structure
    limit: TimeLimit
    notes: list[str]  # what users should know

    @property
    def kinds(self) -> dict[str, str] | None:
        """The argument `numbers` of `jtgpu.learn.fit`."""
        return None if self.numeric is None else dict.fromkeys(self.numeric, "gaussian")

    @cached_property
    def has_gaps(self) -> bool:
        """Whether cells are missing."""
        return any(column.null_count for column in self.cases.columns)

    @cached_property
    def declared(self) -> dict[str, list[str]]:
        """The states of all columns, which parts of the rows may not have."""
        names = [name for name in self.cases.column_names if name not in (self.numeric or ())]
        return {name: [*own] for name, own in open_source(self.cases, names).schema(names).states.items()}

    def seconds(self, share: float) -> float | None:
        """A share of the time that is left; None: there is no limit."""
        return max(share * self.limit.left, LEAST) if self.limit.is_set else None

    def structure(self, cases: Any, seconds: float | None) -> Structure:
        """The graph of some rows."""
        return structure(cases, states=self.declared, seconds=seconds, **self.options)

    def network(self, learned: Structure, cases: Any, seconds: float | None) -> Any:
        """The network of a graph: by EM where cells are missing, unless that takes too long."""
        until, options = TimeLimit.of(seconds), dict[str, Any]()
        if self.numeric is None and seconds is not None and self.has_gaps:
            pass_seconds = SECONDS_OF_ENTRY * _entries(learned) * self.cases.num_rows
            if LEAST_PASSES * pass_seconds > seconds:
                options["missing"] = "available"
                self.notes.append(
                    "the CPTs are by the rows that are complete in each family, not by EM, because of the time limit"
                )

        def out_of_time(entry: Any) -> None:
            if self.has_gaps and entry.number and not until.left:  # before the first one there is nothing to keep
                self.notes.append("EM ended before it had converged, because of the time limit")
                raise KeyboardInterrupt

        return fit(
            learned, cases, pseudo_counts="bdeu:1", states=self.declared, continuous=self.kinds,
            compute=Compute(progress=out_of_time), **options,
        ).network  # fmt: skip

    def judged(self, target: str, seconds_of_one: float, entries: float) -> Validation | NumberValidation | None:
        """Predictions of networks that the rows did not help to learn; None: there are too few rows, or no time."""
        # seconds_of_one: that learning a network has taken
        cases, n = self.cases, self.cases.num_rows
        one = seconds_of_one + SECONDS_OF_ENTRY * entries * n / FOLDS
        folds = FOLDS if FOLDS * one <= self.limit.left else 1
        if folds == 1 and one > self.limit.left + LEAST:
            self.notes.append("predictions were not judged, because of the time limit")
            return None

        def network(training: Any) -> Any:
            share = self.seconds(0.5 / folds)
            return self.network(self.structure(training, share), training, share)

        with suppress(JtgpuError):  # too few rows, or a network that is too large for exact inference
            if folds > 1:
                return validate(network, cases, target, folds=folds, seed=self.options["seed"])
            order = np.random.Generator(np.random.Philox(key=[self.options["seed"], 1])).permutation(n)
            fifth = n // FOLDS
            return validate(network(cases.take(order[fifth:])), cases.take(order[:fifth]), target, on_error="flag")
        return None


def _entries(learned: Structure) -> float:
    """Entries of the clique tables of the network; infinity: more than any machine has."""
    try:
        return learned.clique_entries
    except TableTooLarge:
        return math.inf


@dataclass
class Exploration:
    """A table and what was learned from it, as far as the time allowed."""

    data: str
    n: int  # rows
    facts: Sequence[ColumnFacts]
    goal: str
    options: dict[str, Any] = field(default_factory=dict)  # of the structure
    learned: Structure | None = None
    network: BayesianNetwork | None = None
    certainty: StructurePosterior | None = None
    accuracy: Validation | NumberValidation | None = None

    def learn(self, learn: Learning, step: Callable[[str], None], is_certain: bool) -> None:
        """Learn one thing after the other."""
        begin = monotonic()
        step("learning the structure")
        self.learned = learn.structure(learn.cases, learn.seconds(SHARE_OF_STRUCTURE))
        step("estimating the CPTs")
        self.network = learn.network(self.learned, learn.cases, learn.seconds(SHARE_OF_EM))
        seconds = monotonic() - begin
        if is_certain:
            step("computing the probabilities of the arcs")
            self.certainty = posterior(learn.cases, seconds=learn.seconds(SHARE_OF_CHAINS), **self.options)
        step("judging the predictions")
        entries = _entries(self.learned) if learn.numeric is None and learn.limit.is_set else 0.0
        self.accuracy = learn.judged(self.goal, seconds, entries)

    def as_json(self) -> dict[str, Any]:
        """The same as values that JSON can hold."""
        edges = None if self.certainty is None else [list(arc) for arc in self.certainty.edges(0.01)]
        return {
            "data": self.data, "rows": self.n, "columns": [vars(f) for f in self.facts],
            "arcs": [list(arc) for arc in (self.learned.arcs if self.learned else ())], "edges": edges,
            "target": self.goal, "accuracy": self._accuracy(),
        }

    def _accuracy(self) -> dict[str, Any] | None:
        a = self.accuracy
        if isinstance(a, NumberValidation):
            return {"n": len(a.observed), "rmse": a.rmse, "baseline_rmse": a.baseline, "coverage_90": a.coverage(0.9)}
        if a is None:
            return None
        return {"n": len(a.observed), "accuracy": a.accuracy, "baseline": a.baseline, "log_loss": a.log_loss}
