"""The E-step of sequences: expected counts of a dynamic network, as those of the network of its first slices.

A dynamic network of order k has the CPTs of its unrolled network of k + 1 slices, where those of slices with equal
parents are one. Learning over time is `fit` of that network with tied variables, whose counts are added over slices.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dynamic.counts import SliceCounts, complete_counts, expected_counts
from ...dynamic.step import Step
from ...errors import ArgumentError, ImpossibleEvidence, closest
from ...model.dynamic import DynamicNetwork, with_tables
from .expectation import PassResult

if TYPE_CHECKING:
    from ...dynamic.sequences import Sequences
    from ...model.network import BayesianNetwork
    from ...util.arrays import Bools, Floats
    from ...util.options import BackendName
    from .runs import FitRun

Tables = list["Floats"]


class FirstSlices:
    """The CPTs of a dynamic network by names in its first slices.

    ``rain[0]`` is the CPT in slice 0. The CPT of later slices has the names of all slices in which all parents exist.
    """

    def __init__(self, dyn: DynamicNetwork):
        self.dyn, self.n = dyn, dyn.order + 1
        self.network: BayesianNetwork = dyn.unroll(self.n)
        self._n_start = {v: len(dyn.start(v)) for v in dyn.variables}
        index = self.network.index
        self._places = [(index(self.later(v)[0]), [index(name) for name in self.start(v)]) for v in dyn.variables]

    def _name(self, v: str, t: int) -> str:
        return v if v in self.dyn.static else f"{v}[{t}]"

    def start(self, v: str) -> list[str]:
        """Names of the CPTs of a variable in the first slices."""
        return [self._name(v, t) for t in range(self._n_start[v])]

    def later(self, v: str) -> list[str]:
        """Names of the CPT of a variable in later slices."""
        return [self._name(v, t) for t in range(self._n_start[v], 1 if v in self.dyn.static else self.n)]

    def every(self, v: str) -> list[str]:
        """All names of a variable."""
        return self.start(v) + self.later(v)

    def named(self, option: str, given: Any) -> list[str]:
        """The names that an option means: of a variable all, or of one of the first slices."""
        if given in self.dyn:
            return self.every(str(given))
        starts = [name for v in self.dyn.variables for name in self.start(v)]
        if given not in starts:
            raise ArgumentError(
                f"{option}: there is no variable {given!r}{closest(str(given), [*self.dyn.variables, *starts])}"
            )
        return [str(given)]

    def title(self, name: str) -> str | None:
        """The name of a CPT in a result: ``rain`` for later slices, ``rain[0]``; None for further names of it."""
        for v in self.dyn.variables:
            if name in self.start(v):
                return name
            if name == self.later(v)[0]:
                return v
        return None

    def groups(self) -> list[list[str]]:
        """Names that are of one CPT."""
        return [self.later(v) for v in self.dyn.variables]

    def network_of(self, tables: Tables) -> DynamicNetwork:
        """The dynamic network of the CPTs of the first slices."""
        cpts, starts = self._by_variable(tables)
        start = {v: own[0] if len(own) == 1 else own for v, own in zip(self.dyn, starts, strict=True) if own}
        return self.dyn.replace(cpt=dict(zip(self.dyn, cpts, strict=True)), start=start)

    def of_pass(self, tables: Tables) -> DynamicNetwork:
        """`network_of`, without the checks of a new network."""
        return with_tables(self.dyn, *self._by_variable(tables))

    def _by_variable(self, tables: Tables) -> tuple[list[Floats], list[list[Floats]]]:
        """The CPTs of later slices, and those of the first ones."""
        places = self._places
        return [tables[later] for later, _ in places], [[tables[i] for i in first] for _, first in places]

    def tables_of(self, counts: SliceCounts) -> Tables:
        """Counts by names: those of a CPT stand at its first name."""
        tables = [np.zeros(np.shape(self.network.cpt(v))) for v in self.network]
        for (later, first), cpt, start in zip(self._places, counts.cpts, counts.start, strict=True):
            tables[later] = cpt
            for i, table in zip(first, start, strict=True):
                tables[i] = table
        return tables


class SliceExpectation:
    """Expected counts of sequences; the plan and the programs are made once."""

    # weights: (N,) of the sequences; those that are left out have 0

    def __init__(self, slices: FirstSlices, sequences: Sequences, weights: Floats, run: FitRun):
        self._slices, self._sequences, self.weights = slices, sequences, weights
        backend: BackendName = "cpu" if run.backend == "auto" else run.backend  # type: ignore[assignment]
        threads = {"threads": run.compute.threads} if run.compute.threads is not None and backend == "cpu" else {}
        self._step = Step.of_families(slices.dyn, backend, threads)
        self._loaded: Tables | None = [np.asarray(slices.network.cpt(v)) for v in slices.network]

    def evaluate(self, tables: Tables) -> PassResult:
        """Expected counts of all sequences under some CPTs."""
        if self._loaded is None or not all(map(np.array_equal, tables, self._loaded)):  # most starts are those of `dyn`
            self._step.reload(self._slices.of_pass(tables))
            self._loaded = [*map(np.array, tables)]
        counts = expected_counts(self._step, self._sequences, self.weights)
        dead: Bools = (counts.failed >= 0) & (self.weights > 0)
        used = (counts.failed < 0) & (self.weights > 0)
        log_likelihood = float((self.weights[used] * counts.log_evidence[used]).sum())
        tables = self._slices.tables_of(counts)
        return PassResult(tables, log_likelihood, [dead], float(tables[0].sum()))

    def complete_counts(self) -> Tables:
        """Counts of each family over the slices in which it is complete."""
        return self._slices.tables_of(complete_counts(self._step, self._sequences, self.weights))

    def incomplete(self, members: object, k: int) -> bool:
        """Any sequence may depend on any parameter."""
        return True

    def some(self, theta: Tables, members: Any, tables: Sequence[Floats], rows: bool) -> Iterator[Tables]:
        """Expected counts of all sequences with each of some tables of a family."""
        for table in tables:
            yield self.evaluate([table if v in members else own for v, own in enumerate(theta)]).sums

    def each(self, theta: Tables) -> Iterator[tuple[float, Tables]]:
        """The weight of each sequence, and its own expected counts."""
        self._step.reload(self._slices.of_pass(theta))
        self._loaded = None
        for i in np.flatnonzero(self.weights > 0).tolist():
            counts = expected_counts(self._step, self._sequences.some(np.array([i])), np.ones(1))
            yield float(self.weights[i]), self._slices.tables_of(counts)

    def error(self, evaluation: PassResult) -> ImpossibleEvidence | None:
        """The error for the first sequence of probability 0."""
        dead = np.flatnonzero(evaluation.impossible[0])
        if not len(dead):
            return None
        i = int(dead[0])
        alone = expected_counts(self._step, self._sequences, self.weights)
        return ImpossibleEvidence(
            f"{self._sequences.name(i, int(alone.failed[i]))}: the evidence up to this slice has probability 0 at the "
            'start (on_error="flag" leaves such sequences out; zeros="free" lets zeros of the network change)'
        )

    def leave_out(self, evaluation: PassResult) -> tuple[int, bool]:
        """Leave out the sequences of probability 0."""
        dead = evaluation.impossible[0]
        self.weights = np.where(dead, 0.0, self.weights)
        return int(dead.sum()), bool((self.weights > 0).any())

    def digest(self) -> str:
        """A hash of all sequences."""
        data = hashlib.sha256()
        for array in (self._sequences.codes, self._sequences.ptr, self.weights):
            data.update(np.ascontiguousarray(array).tobytes())
        for v, weights in sorted(self._sequences.likelihood.items()):
            data.update(repr(v).encode() + np.ascontiguousarray(weights).tobytes())
        return data.hexdigest()

    def close(self) -> None:
        """Free the backend's memory."""
        self._step.close()
