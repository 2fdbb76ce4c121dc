"""The discrete part of a mixed network, with likelihoods and joint answers of sets of variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..backends.answers import Evidence
from ..backends.reference import ExtendedEvidence, Reference
from ..backends.table import Table
from ..errors import EvidenceError, ImpossibleEvidence
from ..inference.evidence_table import BatchEvidence, read_known_cases
from ..inference.queries.counts import counts_of_case, host_backend
from ..inference.queries.posteriors import Messages, messages_of
from ..inference.queries.reduced import question_backend
from ..model.states import StateNumber
from .rows import extended, is_small, scaled_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..backends.base import Backend
    from ..inference.tree import JunctionTree
    from ..model.network import BayesianNetwork
    from ..util.arrays import Floats
    from ..util.options import BackendName
    from .evidence import MixedCases

ACCEPTED = -600.0  # ln P(e) above which weights that are too small for a number change no answer
Sets = tuple[tuple[int, ...], ...]  # discrete variables, ascending in each set
Names = str | tuple[str, ...]  # a variable, or a set that the plan keeps together
WIDE = -(1 << 29)  # log2 of products of weights from which exponents of 32 bits do not suffice
WIDEST = -(1 << 38)  # and those of the reference


class SetAnswers(NamedTuple):
    """Answers of B cases."""

    posteriors: Mapping[str, Floats]  # (B, card) of the targets
    joints: tuple[Floats, ...]  # (B, K) of the sets
    log_evidence: Floats  # (B,)
    impossible: NDArray[np.bool_]  # (B,)


class SetEngine:
    """A compiled discrete network for some sets of variables."""

    def __init__(self, net: BayesianNetwork, sets: Sets, backend: BackendName, options: Mapping[str, Any]):
        self.sets, self._net = sets, net
        names = [tuple(net.variables[v] for v in s) for s in sets]
        self._keys: list[Names] = [s if len(s) > 1 else s[0] for s in names]
        self._shapes = [tuple(int(net.cardinality[v]) for v in s) for s in sets]
        self.tree: JunctionTree | None = None
        self._numbers: list[int] = []  # of the variables, and of the sets in the plan
        if len(net):
            together = [*options.get("together", ()), *(s for s in names if len(s) > 1)]
            self.tree = net.compile(backend, **{**options, "together": together} if together else options)
            kept = self.tree.plan.sets
            self._numbers = [kept.number(s, "likelihood") if len(s) > 1 else s[0] for s in sets]

    def reload(self, net: BayesianNetwork) -> None:
        """Replace the CPTs."""
        self._net = net
        if self.tree is not None:
            self.tree.reload(net)

    def close(self) -> None:
        """Free the backend's memory."""
        if self.tree is not None:
            self.tree.close()

    def run_counts(
        self, cases: MixedCases, logs: Sequence[Floats], rows: Floats
    ) -> tuple[SetAnswers, dict[str, Floats]]:
        """Joints of the sets, and expected counts of every family, the cases weighted by `rows`, (B,)."""
        answers, lost = self._run(cases, logs, [])
        if self.tree is None:
            return answers, {}
        weights, _ = scaled_weights(logs)
        ordinary = rows.copy()
        ordinary[lost] = 0.0
        expected = self.tree.expected_counts(
            cases.states, likelihood=self._weights(cases.likelihood, weights) or None, weights=ordinary,
            on_error="flag",
        )  # fmt: skip
        counts = {v: np.array(expected[v]) for v in self._net}
        for row in lost[(rows[lost] != 0) & ~answers.impossible[lost]].tolist():
            for own, table in zip(counts.values(), self._extended(cases, logs, row).counts(), strict=True):
                own += rows[row] * table
        return answers, counts

    def sample(self, n: int, cases: MixedCases, logs: Sequence[Floats], rng: Any) -> NDArray[np.int32]:
        """(n, V) states drawn given the evidence of one case."""
        if self.tree is None:
            return np.zeros((n, 0), np.int32)
        weights, _ = scaled_weights(logs)
        if is_small(logs, weights, cases.likelihood.values()).any():
            return self._extended(cases, logs, 0).draw(n, rng)
        findings = {v: StateNumber(s) for v, s in enumerate(cases.states[0].tolist()) if s >= 0}
        given: Any = {v: w[0] for v, w in self._weights(cases.likelihood, weights).items()}
        return self.tree.sample(n, findings, seed=rng, likelihood=given or None, do=cases.do or None).states

    def impute(self, cases: MixedCases, logs: Sequence[Floats], rng: Any) -> NDArray[np.int32]:
        """(B, V) states, those that are missing drawn given the others; -1 in cases of probability 0."""
        if self.tree is None:
            return cases.states
        weights, _ = scaled_weights(logs)
        given = self._weights({}, weights)
        states: NDArray[np.int32] = self.tree.impute(
            cases.states, likelihood=given or None, seed=rng, on_error="flag"
        ).states
        for row in self._run(cases, logs, [])[1].tolist():
            states[row] = -1
            with suppress(ImpossibleEvidence):
                states[row] = self._extended(cases, logs, row).draw(1, rng)[0]
        return states

    def run(self, cases: MixedCases, logs: Sequence[Floats], targets: Sequence[str]) -> SetAnswers:
        """Posteriors of the targets and joints of the sets, given ln of the (B, K) weights of each set."""
        return self._run(cases, logs, targets)[0]

    def _run(
        self, cases: MixedCases, logs: Sequence[Floats], targets: Sequence[str]
    ) -> tuple[SetAnswers, NDArray[np.intp]]:
        """`run`; and rows that were answered in extended numbers."""
        n = len(cases.states)
        if self.tree is None:  # numbers alone
            return SetAnswers({}, (), np.zeros(n), np.zeros(n, np.bool_)), np.zeros(0, np.intp)
        weights, tops = scaled_weights(logs)
        known, kept = self._known(cases, weights), self.tree.plan.sets
        asked = [self._net.index(v) for v in targets]
        wanted = [*dict.fromkeys([*asked, *sorted(self._numbers)])]  # sets are behind the variables
        backend = self.tree.intervened(known.intervened).backend
        if n == 1:  # without the set-up of tables
            log_evidence, impossible, ptr = np.zeros(1), np.zeros(1, np.bool_), backend.cell_ptr
            try:
                case = Evidence(known.states[0], {v: w[0] for v, w in known.likelihood.items()})
                answer = backend.run_case(case, wanted)
                cells = {v: answer.posterior[None, ptr[v] : ptr[v + 1]] for v in wanted}
                log_evidence[0] = answer.log_evidence
            except ImpossibleEvidence:
                cells = {v: np.zeros((1, ptr[v + 1] - ptr[v])) for v in wanted}
                log_evidence[0], impossible[0] = -np.inf, True
        else:
            result = backend.run(Table.of(known.states, known.likelihood, wanted))
            log_evidence, impossible = result.log_evidence, result.impossible
            ends = np.cumsum([0, *(kept.size(v) if v >= kept.first else int(self._net.cardinality[v]) for v in wanted)])
            cells = {v: result.posterior[:, a:b] for v, a, b in zip(wanted, ends[:-1], ends[1:], strict=True)}
        joints = [
            cells[v] if len(s) == 1 else kept.joint(v, s, cells[v]).reshape(n, -1)
            for v, s in zip(self._numbers, self.sets, strict=True)
        ]
        posteriors = {name: cells[v] for name, v in zip(targets, asked, strict=True)}
        answers = SetAnswers(posteriors, tuple(joints), log_evidence, impossible)
        lost = np.flatnonzero(is_small(logs, weights, cases.likelihood.values()))
        if len(lost):  # less than e^-700 times the largest likelihoods: nothing, where P(e) is much larger
            largest = sum((np.log(np.maximum(w[lost].max(axis=1), 1.0)) for w in cases.likelihood.values()), ACCEPTED)
            lost = lost[~(answers.log_evidence[lost] > largest)]
        for row in lost.tolist():
            one, answers.log_evidence[row] = [np.zeros(1)] * (len(asked) + len(joints)), -np.inf
            with suppress(ImpossibleEvidence):
                one, answers.log_evidence[row] = self._extended(cases, logs, row).posteriors(asked, self.sets)
            answers.impossible[row] = np.isneginf(answers.log_evidence[row])
            for table, own in zip([*posteriors.values(), *joints], one, strict=True):
                table[row] = own
        for top in tops:
            answers.log_evidence[:] += top
        return answers, lost

    def _known(self, cases: MixedCases, weights: Sequence[Floats]) -> BatchEvidence:
        """The evidence by number, weights of sets included."""
        known = BatchEvidence(cases.states, {})
        if cases.do or cases.likelihood:
            given = {self._net.variables[v]: w for v, w in cases.likelihood.items()}
            known = read_known_cases(self._net, cases.states, given, do=cases.do or None)
        assert self.tree is not None
        likelihood = dict(known.likelihood)
        for v, scope, shape, w in zip(self._numbers, self.sets, self._shapes, weights, strict=True):
            cells = w if len(scope) == 1 else self.tree.plan.sets.cells(v, scope, w.reshape(len(w), *shape))
            likelihood[v] = likelihood[v] * cells if v in likelihood else cells
        return replace(known, likelihood=likelihood)

    def _weights(self, given: Mapping[int, Floats], sets: Sequence[Floats]) -> dict[Names, Floats]:
        """Likelihoods of variables and sets by name."""
        result: dict[Names, Floats] = {self._net.variables[v]: w for v, w in given.items()}
        for key, shape, w in zip(self._keys, self._shapes, sets, strict=True):
            table = w.reshape(len(w), *shape)
            result[key] = result[key] * table if key in result else table
        return result

    def _extended(self, cases: MixedCases, logs: Sequence[Floats], row: int) -> ExtendedCase:
        assert self.tree is not None
        return ExtendedCase(self.tree, self.sets, cases, row, logs)


class ExtendedCase:
    """One of some cases with weights of sets of variables, relative to the largest of each set."""

    def __init__(self, tree: JunctionTree, sets: Sequence[tuple[int, ...]], cases: MixedCases, row: int, logs: Any):
        """`logs`: of each set, ln of the weights, (B, K)."""
        self.tree, model = tree, tree.model
        given = {model.variables[v]: w[row] for v, w in cases.likelihood.items()}
        known = read_known_cases(model, cases.states[[row]], given, do=cases.do or None)
        self._intervened = tree.intervened(known.intervened)  # keeps its numbers
        tables: list[tuple[int, Any, Any]] = [(v, *np.frexp(w[0])) for v, w in known.likelihood.items()]
        lowest = 0
        for scope, values in zip(sets, logs, strict=True):
            top = values[row].max()
            own = extended(values[row] - (top if np.isfinite(top) else 0.0))
            lowest += int(own[1].min())
            tables.append((self.number(scope), *(self._of_set(scope, x) for x in own)))
        if lowest < WIDEST:
            raise EvidenceError(
                "the numbers are so many standard deviations from their means that float64 cannot tell which states "
                "are more probable; check their units"
            )
        self._is_wide = lowest < WIDE
        weights: dict[int, Floats] = {}
        powers: dict[int, NDArray[np.int64]] = {}
        for v, mantissa, power in tables:
            weights[v] = weights.get(v, 1.0) * mantissa
            powers[v] = powers.get(v, 0) + np.asarray(power, np.int64)
        self._case = ExtendedEvidence(known.states[0], weights, powers)

    def number(self, scope: tuple[int, ...]) -> int:
        """The number of a variable, or of a set."""
        return scope[0] if len(scope) == 1 else self.tree.plan.sets.number(scope, "likelihood")

    def _of_set(self, scope: tuple[int, ...], cells: Any) -> Any:
        if len(scope) == 1:
            return cells
        shape = [int(self.tree.model.cardinality[v]) for v in scope]
        return self.tree.plan.sets.cells(self.number(scope), scope, cells.reshape(shape))

    @property
    def _messages(self) -> Messages:
        tree, factors = self.tree, self._intervened.factors
        if not self._is_wide:
            return messages_of(tree, factors)
        if tree.whole:
            return Messages(tree.plan.plan, factors, "reference")
        return Messages(None, factors, "reference", questions=question_backend(tree, factors, "reference"))

    def posteriors(self, targets: Sequence[int], sets: Sequence[tuple[int, ...]]) -> tuple[list[Floats], float]:
        """Posteriors of variables, and joint posteriors of sets, flat; and ln P(e)."""
        tree, factors = self.tree, self._intervened.factors
        backend: Backend
        if not self._is_wide:
            backend = host_backend(tree, factors)
        elif tree.whole:
            backend = Reference(tree.plan.plan, factors)
        else:
            backend = question_backend(tree, factors, "reference")
        result, ptr = backend.run_case(self._case, [*targets, *map(self.number, sets)]), backend.cell_ptr
        cells = {v: result.posterior[ptr[v] : ptr[v + 1]] for v in [*targets, *map(self.number, sets)]}
        joints = [
            cells[s[0]] if len(s) == 1 else tree.plan.sets.joint(v, s, cells[v]).ravel()
            for s, v in zip(sets, map(self.number, sets), strict=True)
        ]
        return [*(cells[v] for v in targets), *joints], result.log_evidence

    def counts(self) -> list[Floats]:
        """Expected counts of all variables' families."""
        factors = self._intervened.factors
        return counts_of_case(self._messages.derivative(), factors, self._case)[: len(self.tree.model)]

    def draw(self, n: int, rng: np.random.Generator) -> NDArray[np.int32]:
        """(n, V) states."""
        width = len(self.tree.model)
        return self._messages.summing().draw(self._case, n, lambda rows: rng.random((rows, width)))
