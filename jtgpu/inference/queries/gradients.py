"""Derivatives of ln P(case) and of posteriors by the entries of CPTs and likelihoods.

P(e) is linear in every entry of a CPT, so its derivative by an entry, over P(e), is the expected count of the entry's
configuration over the entry. Entries of 0, whose counts are 0 whatever their derivative, and entries so small that
their counts may be too small for a number, have theirs from sweeps over single cases. A posterior is a quotient of two
such functions: of the evidence with one more likelihood, and without.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...backends.base import Evidence
from ...backends.table import Table
from ...columns import read_states
from ...columns.arrow import number_array
from ...errors import EvidenceError, NetworkError
from ...model.network import BayesianNetwork
from ...util.arguments import choice
from ...util.arrays import Bools, Floats
from ...util.system import new_lock
from ..evidence import by_number
from ..evidence_table import BatchEvidence, read_known_cases
from ..sets import of_sets as of_sets_in
from .counts import case_weights, counting_backend
from .mpe import raise_if_impossible
from .posteriors import Messages
from .reduced import question_backend

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ...backends.base import Backend
    from ...model.states import CodesByVariable
    from ..compiled import CompiledModel

TINY = 2.0**-900  # of smaller entries, a count may have lost digits that matter to its share of them

Factors = list[Floats]
Likelihoods = dict[int, Floats]


class Gradients(NamedTuple):
    """Derivatives of one number."""

    cpts: dict[str, Floats]  # mapping of str to ndarray: By every entry of a CPT, in its shape
    # mapping of str, or of tuple of str, to (B, card ...) ndarray: By the likelihoods of every case
    likelihood: dict[Any, Floats]


class _Reloaded:
    """A backend that is reloaded with the CPTs of each call."""

    def __init__(self, tree: CompiledModel):
        self._tree, self._factors, self._lock = tree, list(tree._factors), new_lock()
        name = "reference" if tree.backend == "reference" else "cpu"
        if tree.whole:
            self._backend = counting_backend(name, tree.plan.whole, self._factors, tree.threads)
        else:
            self._backend = question_backend(tree, self._factors)

    @contextmanager
    def using(self, factors: Factors) -> Iterator[Backend]:
        """The backend with these CPTs, for one user at a time."""
        with self._lock:
            if any(a is not b for a, b in zip(self._factors, factors, strict=True)):
                self._backend.reload(factors)
                self._factors = factors
            yield self._backend


class EvidenceFunction:
    """ln P(case) and posteriors of a table of B cases as functions of CPTs and likelihoods, with their derivatives.

    The bridge to libraries that differentiate; `jtgpu.interop.torch` and `jtgpu.interop.jax` are built on it. Made by
    `jtgpu.JunctionTree.evidence_function`.

    CPTs need not be normalised: P is the sum of the product of all tables, and every entry is a free parameter.

    Parameters
    ----------
    tree : CompiledModel
    cases : table
        See `jtgpu.JunctionTree.posteriors_batch`.
    on_error : {"error", "flag"}
        Whether a case of probability 0 raises an error, or has ln P = -inf and derivatives of 0.
    codes : optional
        See `jtgpu.JunctionTree.posteriors_batch`.

    Examples
    --------
    >>> import jtgpu
    >>> tree = jtgpu.load("asia").compile("cpu")
    >>> f = tree.evidence_function([{"xray": "yes"}, {"xray": "no"}])
    >>> f.log_evidence().round(3).tolist()
    [-2.205, -0.117]
    """

    def __init__(self, tree: CompiledModel, cases: Any, on_error: str = "error", codes: CodesByVariable | None = None):
        if not isinstance(tree.model, BayesianNetwork):
            raise NetworkError("derivatives by CPTs require a Bayesian network")
        self._on_impossible = choice("on_error", on_error, ("error", "flag"))
        self.tree, self.model = tree, tree.model
        states, table = read_states(tree.model.with_codes(codes), cases)
        self._known = BatchEvidence(states, {}, table=table)
        self.n_cases = len(self._known.states)

    def log_evidence(
        self, cpts: Mapping[Any, ArrayLike] | None = None, likelihood: Mapping[Any, Any] | None = None
    ) -> Floats:
        """Compute ln P of every case.

        Parameters
        ----------
        cpts : mapping, optional
            Variable to a table of the shape of its CPT, >= 0. Default: those of the model.
        likelihood : mapping, optional
            See `jtgpu.JunctionTree.posteriors_batch`.

        Returns
        -------
        (B,) ndarray of float64
        """
        factors, known = self._read(cpts, likelihood)
        with self._numbers().using(factors) as backend:
            result = backend.run(Table.of(known.states, known.likelihood, []))
        raise_if_impossible(self.tree, known, result.impossible, self._on_impossible)
        return result.log_evidence

    def posteriors(
        self, targets: Sequence[str | int], cpts: Mapping[Any, ArrayLike] | None = None,
        likelihood: Mapping[Any, Any] | None = None,
    ) -> list[Floats]:  # fmt: skip
        """Compute the posteriors of some variables: a (B, card) array each; parameters as of `log_evidence`."""
        factors, known = self._read(cpts, likelihood)
        numbers = [self.model.index(v) for v in targets]
        with self._numbers().using(factors) as backend:
            result = backend.run(Table.of(known.states, known.likelihood, numbers))
        raise_if_impossible(self.tree, known, result.impossible, self._on_impossible)
        return self._split(result.posterior, numbers)

    def gradient(
        self, weights: ArrayLike | None = None, cpts: Mapping[Any, ArrayLike] | None = None,
        likelihood: Mapping[Any, object] | None = None, *, variables: Sequence[str | int] | None = None,
    ) -> Gradients:  # fmt: skip
        """Differentiate the weighted sum of ln P over the cases.

        Parameters
        ----------
        weights : (B,) array_like, optional
            Default: ones.
        cpts, likelihood
            See `log_evidence`.
        variables : sequence of str or int, optional
            Variables by whose CPTs to differentiate. Default: all.
        """
        factors, known = self._read(cpts, likelihood)
        wanted = self._wanted(variables)
        by_cpt, by_likelihood = self._differentiate(factors, known, case_weights(weights, self.n_cases), wanted)
        return self._named(by_cpt, by_likelihood, likelihood)

    def posterior_gradient(
        self, weights: Mapping[Any, ArrayLike], cpts: Mapping[Any, ArrayLike] | None = None,
        likelihood: Mapping[Any, object] | None = None, *, variables: Sequence[str | int] | None = None,
    ) -> Gradients:  # fmt: skip
        """Differentiate a weighted sum of posterior probabilities.

        Parameters
        ----------
        weights : mapping
            Target to the weight of each state in each case, (B, card): what automatic differentiation calls cotangents.
        cpts, likelihood, variables
            See `gradient`.
        """
        factors, known = self._read(cpts, likelihood)
        wanted = self._wanted(variables)
        by_cpt = {v: np.zeros(factors[v].shape) for v in wanted}
        by_likelihood = {v: np.zeros(w.shape) for v, w in known.likelihood.items()}
        shares = np.zeros(self.n_cases)
        for v, value in by_number(self.model, weights, "weights"):
            name = self.model.variables[v]
            each = number_array(value, f"the weights of {name!r}", states={name: self.model.states(v)})
            if each.shape != (self.n_cases, int(self.model.cardinality[v])):
                raise EvidenceError(f"the weights of {name!r} have the wrong shape {each.shape}")
            each, is_constant = _positive(each, known.states[:, v] >= 0)
            more = BatchEvidence(known.states, {**known.likelihood, v: known.likelihood.get(v, 1.0) * each})
            with self._numbers().using(factors) as backend:
                posterior = backend.run(Table.of(known.states, known.likelihood, [v])).posterior
            # mean of the weights: P(e, one more likelihood) / P(e)
            mean = np.where(is_constant, 0.0, (posterior * each).sum(axis=1))
            shares -= mean
            one, other = self._differentiate(factors, more, mean, wanted)
            for u in wanted:
                by_cpt[u] += one[u]
            for u in by_likelihood:
                by_likelihood[u] += other[u] * each if u == v else other[u]
        one, other = self._differentiate(factors, known, shares, wanted)
        return self._named(
            {v: by_cpt[v] + one[v] for v in wanted}, {v: by_likelihood[v] + other[v] for v in by_likelihood}, likelihood
        )

    # ----------------------------------------------------------------------------------------------------------

    def _numbers(self) -> _Reloaded:
        return self.tree.cached("gradients", 0, lambda: _Reloaded(self.tree), 1)

    def _read(self, cpts: Any, likelihood: Any) -> tuple[Factors, BatchEvidence]:
        """The tables of all variables, and the cases with their likelihoods."""
        factors = list(self.tree._factors)
        for v, value in by_number(self.model, cpts, "cpts"):
            name, shape = self.model.variables[v], factors[v].shape
            table = np.ascontiguousarray(number_array(value, f"the CPT of {name!r}", copy=False))
            if table.shape != shape:
                raise EvidenceError(f"the CPT of {name!r} has shape {table.shape}, expected {shape}")
            if not np.isfinite(table).all() or (table < 0).any():
                raise EvidenceError(f"the CPT of {name!r} must have finite entries >= 0")
            factors[v] = table
        if not likelihood:
            return factors, self._known
        known = read_known_cases(self.model, self._known.states, likelihood, sets=self.tree.plan.sets)
        return factors, BatchEvidence(self._known.states, known.likelihood, table=self._known.table)

    def _wanted(self, variables: Sequence[str | int] | None) -> list[int]:
        if variables is None:
            return [*range(len(self.model))]
        return [self.model.index(v) for v in variables]

    def _split(self, posterior: Floats, targets: Sequence[int]) -> list[Floats]:
        cards = self.tree.plan.plan.cards_with_sets
        ends = np.cumsum([int(cards[v]) for v in targets])
        return [np.ascontiguousarray(part) for part in np.split(posterior, ends[:-1], axis=1)] if targets else []

    def _named(self, by_cpt: Likelihoods, by_likelihood: Likelihoods, likelihood: object) -> Gradients:
        names, sets = self.model.variables, self.tree.plan.sets
        of_sets = {}  # a smaller set's weights are repeated in those of the plan's set: the derivatives add up
        for scope, _ in of_sets_in(self.model, likelihood):
            v = sets.number(scope, "likelihood")
            if v not in by_likelihood:
                raise EvidenceError(f"derivatives by two likelihoods of the set {sets.names(v)}: pass their product")
            of_sets[tuple(names[u] for u in scope)] = sets.joint(v, scope, by_likelihood.pop(v))
        of_variables = {names[v]: x for v, x in by_likelihood.items()}
        return Gradients({names[v]: x for v, x in by_cpt.items()}, {**of_variables, **of_sets})

    def _differentiate(
        self, factors: Factors, known: BatchEvidence, weights: Floats, wanted: Sequence[int]
    ) -> tuple[Likelihoods, Likelihoods]:
        """Derivatives of the weighted sum of ln P by some CPTs, and by all likelihoods."""
        targets = [*known.likelihood]
        with self._numbers().using(factors) as backend:
            result = backend.run(Table.of(known.states, known.likelihood, targets))
            weights = np.where(result.impossible, 0.0, weights)
            counts = backend.run(Table.counts(known.states, weights, known.likelihood)).families if wanted else []
            posteriors = dict(zip(targets, self._split(result.posterior, targets), strict=True))
            by_likelihood = {
                v: _by_likelihood(backend, known, v, weights, (posteriors[v], result.log_evidence)) for v in targets
            }
        by_cpt = {}
        for v in wanted:
            table = factors[v]
            by_cpt[v] = np.divide(counts[v], table, out=np.zeros(table.shape), where=table > 0)
        if any((factors[v] < TINY).any() for v in wanted):
            exact = self._by_sweeps(factors, known, weights)
            for v in wanted:
                by_cpt[v] = np.where(factors[v] < TINY, exact[v], by_cpt[v])
        return by_cpt, by_likelihood

    def _by_sweeps(self, factors: Factors, known: BatchEvidence, weights: Floats) -> Factors:
        """Derivatives by all entries of all CPTs, case by case."""
        sweep = Messages(
            self.tree.plan.plan if self.tree.whole else None, factors, self.tree.backend, self.tree.threads
        ).derivative()
        program = sweep.program
        size = np.array([f.size for f in factors])
        root = np.array(program.factor_root)
        total = np.zeros(int(size.sum()))
        for row in np.flatnonzero(weights).tolist():
            case = Evidence(known.states[row], {v: w[row] for v, w in known.likelihood.items()})
            derivatives = sweep.derivatives(case)
            exponent = derivatives.exponent - np.repeat(derivatives.root_exponent[root], size)
            with np.errstate(over="ignore"):  # inf: larger than any number
                total += np.ldexp(weights[row] * derivatives.cells / np.repeat(derivatives.root[root], size), exponent)
        return [part.reshape(f.shape) for part, f in zip(np.split(total, np.cumsum(size)[:-1]), factors, strict=True)]


def _positive(weights: Floats, observed: Bools) -> tuple[Floats, Any]:
    """Weights of posteriors, (B, card), made positive, and the cases in which they change nothing.

    A constant changes no derivative, since a posterior sums to 1. Positive weights make no case impossible.
    """
    least, most = weights.min(axis=1, keepdims=True), weights.max(axis=1, keepdims=True)
    is_constant = observed | (most == least)[:, 0]
    return np.where(is_constant[:, None], 1.0, weights + (most - 2 * least)), is_constant


def _by_likelihood(
    backend: Backend, known: BatchEvidence, v: int, weights: Floats,
    result: tuple[Floats, Floats],
) -> Floats:  # fmt: skip
    """Derivatives by the likelihoods of one variable, (B, card), from its posteriors and ln P of the cases."""
    given, (posterior, log_evidence) = known.likelihood[v], result
    each = weights[:, None] * np.divide(posterior, given, out=np.zeros(given.shape), where=given > 0)
    rows, states = np.nonzero((given < TINY) & (weights != 0)[:, None])
    if len(rows):  # P(e) with the likelihood of this state alone, which is 1, over P(e)
        others = {u: w[rows] for u, w in known.likelihood.items()} | {v: np.eye(given.shape[1])[states]}
        alone = backend.run(Table.of(known.states[rows], others, []))
        with np.errstate(over="ignore"):  # inf: larger than any number
            each[rows, states] = weights[rows] * np.exp(alone.log_evidence - log_evidence[rows])
    return np.asarray(each)
