"""Expected counts: what a table of cases, complete or not, says about every entry of every CPT.

The count of a configuration of a family is the sum of its posterior probabilities over the cases: the E-step of the EM
algorithm (Lauritzen, Computational Statistics and Data Analysis 19, 1995). Every family is part of a clique, so one
sweep of a case has all of them.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.base import CountSums, Evidence, Table
from ...backends.make import make
from ...columns import as_array, is_tensor
from ...errors import EvidenceError, ImpossibleEvidence, NetworkError, TableTooLarge, shown
from ...model.discrete import DiscreteModel
from ...model.network import BayesianNetwork
from ...util import late_imports
from ...util.arrays import Floats, Ints
from ...util.rows import find_equal_rows
from ..evidence_table import naming_rows, read_known_cases
from ..results.rankings import ExpectedCounts
from ..results.sensitivities import Parameters, Sensitivity
from .mpe import raise_if_impossible
from .posteriors import messages_of, named, targets_of
from .reduced import question_backend, questions_of

if TYPE_CHECKING:
    from typing import Unpack

    from numpy.typing import ArrayLike, NDArray

    from ...backends.base import Backend
    from ...backends.sweep import Derivatives, Sweep
    from ...model.states import CodesByVariable
    from ...plans.plan import Plan
    from ...plans.program import Program
    from ...util.options import OnProblem
    from ..compiled import CompiledModel
    from ..evidence import Cases, EvidenceOptions, Findings
    from ..interventions import Intervened

PART_CELLS = 1 << 20  # cells of a part of a table that a worker of a cluster counts at a time
MIN_EQUAL = 0.05  # share of cases that must equal earlier ones for merging them to pay


def counting_backend(
    name: str, plan: Plan, factors: Sequence[Floats], threads: int | None = None, devices: object = None
) -> Backend:
    """A backend that makes expected counts: ``"reference"`` in NumPy, ``"gpu"`` on one GPU or several, all others in
    compiled loops on the CPU."""
    if name == "gpu":
        return make("gpu", plan, factors, devices=devices, replan=False, single=False)
    options: dict[str, Any] = {} if name == "reference" else {"threads": threads}
    return make("reference" if name == "reference" else "cpu", plan, factors, replan=False, **options)


def case_weights(weights: ArrayLike | None, n: int) -> Floats:
    """Weights of n cases, finite and of any sign, (n,); ones by default."""
    # raises EvidenceError: If the shape is wrong, or a weight is not finite; the message names the first such row.
    if weights is None:
        return np.ones(n)
    if is_tensor(weights):
        weights = as_array(weights, "weights")
    try:
        values = np.asarray(weights, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise EvidenceError(f"weights must be {n} numbers, one for each case") from None
    if values.shape != (n,):
        raise EvidenceError(f"weights has shape {values.shape}, expected ({n},): one for each case")
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise EvidenceError(f"row {int(bad[0])}: the weight {values[bad[0]]} is not a finite number")
    return np.ascontiguousarray(values)


def expected_counts(  # noqa: PLR0913
    self: CompiledModel, cases: Cases, *, weights: Any = None, likelihood: Mapping[Any, Any] | None = None,
    variables: str | int | Iterable[str | int] | None = None, on_error: OnProblem = "error",
    cluster: object = None, codes: CodesByVariable | None = None,
) -> ExpectedCounts:  # fmt: skip
    """Compute the expected counts of every family over a table of B cases: the E-step of the EM algorithm.

    Parameters
    ----------
    cases, likelihood, on_error, codes
        See `posteriors_batch`.
    weights : (B,) array_like or tensor, optional
        Weight of each case, of any sign. Default: ones.
    variables : str, int, or iterable of these, optional
        The variables of the result. Default: all.
    cluster : str or jtgpu.cluster.Cluster, optional
        A Ray cluster that counts parts of the table on its CPUs, such as ``"local"`` or ``"auto"``.

    Returns
    -------
    ExpectedCounts
        A mapping from variable to an array of the shape of its CPT: entry x is the sum over the cases of
        ``weight * P(family = x | case)``. ``.log_likelihood`` is the weighted sum of ``.log_evidence``, (B,). A
        case of probability zero adds nothing.

    Notes
    -----
    Equal cases are computed once. A tree on a GPU, or on several, counts there, in float64; other trees count on
    the CPU. The counts are bit-identical for any number of threads or GPUs.
    """
    known = read_known_cases(self.model.with_codes(codes), cases, likelihood, sets=self.plan.sets)
    model = self.model
    if not isinstance(model, BayesianNetwork):
        raise NetworkError("expected counts of families require a Bayesian network")
    wanted = range(len(model)) if variables is None else targets_of(model, variables) or ()
    each = case_weights(weights, len(known.states))
    resolved = self.intervened(known.intervened)
    if cluster is None:
        count = partial(_counted, self, resolved)
    else:
        count = partial(_counted_on_cluster, self, resolved, cluster)
    equal = find_equal_rows(known.states, *known.likelihood.values(), min_saving=MIN_EQUAL)
    if equal is None:
        with naming_rows(known.table):
            counts = count(known.states, each, known.likelihood)
        log_evidence, impossible = counts.log_evidence, counts.impossible
    else:
        likelihood = {v: w[equal.first] for v, w in known.likelihood.items()}
        summed = np.asarray(np.bincount(equal.kind, each, len(equal.first)), np.float64)
        with naming_rows(known.table, equal.first):
            counts = count(known.states[equal.first], summed, likelihood)
        log_evidence, impossible = counts.log_evidence[equal.kind], counts.impossible[equal.kind]
    raise_if_impossible(self, known, impossible, on_error)
    return ExpectedCounts(model, counts.families[: len(model)], tuple(wanted), each, log_evidence, impossible)


def _counted(
    tree: CompiledModel, resolved: Intervened, states: NDArray[np.int32], weights: Floats,
    likelihood: Mapping[int, Floats],
) -> CountSums:  # fmt: skip
    """Counts by the backend of the tree if it is on a GPU with enough memory, otherwise on the CPU."""
    if not tree.whole:
        return questions_of(tree, resolved.factors).run(Table.counts(states, weights, likelihood))
    if resolved.backend.capabilities.holds_cases:
        try:
            return resolved.backend.run(Table.counts(states, weights, likelihood))
        except TableTooLarge as error:
            logging.getLogger("jtgpu").info("expected counts are made on the CPU: %s", error)
    return host_backend(tree, resolved.factors).run(Table.counts(states, weights, likelihood))


def host_backend(tree: CompiledModel, factors: Sequence[Floats]) -> Backend:
    """A backend in compiled loops on the CPU, or the reference, for the numbers of a query; cached."""
    name = "reference" if tree.backend == "reference" else "cpu"

    def make() -> tuple[Any, Backend]:
        if not tree.whole:
            return factors, question_backend(tree, factors, name)
        return factors, counting_backend(name, tree.plan.plan, factors, tree.threads)

    return tree.cached("counts", id(factors), make, 1)[1]


def counts_of_case(sweep: Sweep, factors: Sequence[Floats], case: Evidence) -> list[Floats]:
    """Expected counts of a case, an array for each factor, from derivatives: as exact for weights of any size."""
    program = sweep.program
    result = sweep.derivatives(case)
    if not (result.root > 0).all():
        raise ImpossibleEvidence("the evidence has probability 0")
    size = np.array([program.size(scope) for scope in program.factor_scopes], np.int64)
    cells, exponent = _over_evidence(result, result, size, program)
    theta, more = np.frexp(np.concatenate([np.ravel(f) for f in factors]))
    flat = np.ldexp(cells * theta, exponent + more)
    return [part.reshape(f.shape) for part, f in zip(np.split(flat, np.cumsum(size)[:-1]), factors, strict=True)]


def _counted_on_cluster(
    tree: CompiledModel, resolved: Intervened, cluster: object, states: NDArray[np.int32], weights: Floats,
    likelihood: Mapping[int, Floats],
) -> CountSums:  # fmt: skip
    """Counts of parts of the table on a cluster, added in the order of the parts."""
    step = max(PART_CELLS // max(states.shape[1], 1), 1)
    parts = [slice(at, at + step) for at in range(0, len(states), step)] or [slice(0, 0)]
    whole = Table.counts(states, weights, likelihood)
    pieces = ([whole.some(p)] for p in parts)
    name = "reference" if tree.backend == "reference" else "cpu"
    workers = late_imports.cluster().ClusterCounts(cluster, tree.plan.whole, resolved.factors, name, pieces)
    try:
        counted = [one for [one] in workers.count(resolved.factors)]
    finally:
        workers.close()
    families = [np.sum(family, axis=0) for family in zip(*(one.families for one in counted), strict=True)]
    log_evidence = np.concatenate([one.log_evidence for one in counted])
    return CountSums.of(families, log_evidence, weights)


# Sensitivity of a probability to every parameter of every CPT, from two passes over the tree.
#
# P(e) is linear in each entry of a CPT. Its coefficient is the product of all other factors, summed onto the entry's
# configuration; a sweep to the root and back gives the coefficients of all entries at once (Darwiche, JACM 50, 2003).
# With the same for P(t, e), the posterior P(t | e) as a function of one parameter is a quotient of two linear functions
# (Castillo, Gutierrez, Hadi, Networks 28, 1996): exact, not only a slope. Nothing is divided by a parameter, so
# parameters of value zero have derivatives, too.
#
# A parameter does not change alone, since its row sums to 1: the other entries of the row keep their proportions,
# that is, they are multiplied by (1 - x) / (1 - theta) (Chan and Darwiche, When do numbers really matter?, JAIR 17,
# 2002). If all of them are zero, they get equal shares.

MAX_PARAMETERS = 4  # sets of CPTs whose parameters are cached


def sensitivity(
    self: CompiledModel, target: tuple[str | int, str | int], evidence: Findings | None = None,
    **more: Unpack[EvidenceOptions],
) -> Sensitivity:  # fmt: skip
    """Compute the sensitivity of P(target | evidence) to every parameter of every CPT.

    Parameters
    ----------
    target : (variable, state)
    evidence, likelihood, soft, do : mapping, optional
        See `posteriors`. Soft evidence is converted to likelihoods, which are then constant.

    Returns
    -------
    Sensitivity
        A mapping from variable to derivatives in the shape of its CPT; ``.top(n)`` and ``.tornado(n)`` list the
        most influential parameters.
    """
    self = self.for_sets(more.get("likelihood"))
    resolved = self.resolve(evidence, **more)
    model, case = self.model, resolved.case
    if not isinstance(model, BayesianNetwork):
        raise NetworkError(
            "sensitivity requires a Bayesian network: the factors of a Markov network have no rows that sum to 1"
        )
    v, state = _target(model, target, case)
    cpts = resolved.factors[: len(model)]  # the factors of sets have no parameters
    sweep = messages_of(self, resolved.factors).derivative()
    parameters = self.cached("parameters", id(resolved.factors), lambda: Parameters(cpts), MAX_PARAMETERS)

    def derivatives() -> Derivatives:
        result = sweep.derivatives(case)
        if not (result.root > 0).all():
            raise ImpossibleEvidence("the evidence has probability 0")
        return result

    of_evidence = named(self, case, derivatives)
    program, n_parameters = sweep.program, len(parameters.theta)
    size = np.array([program.size(scope) for scope in program.factor_scopes], np.int64)
    cells, exponent = _over_evidence(of_evidence, of_evidence, size, program)
    probability, partial_joint = 0.0, (np.zeros(len(cells)), exponent.copy())
    weights = np.zeros(int(model.cardinality[v]))
    weights[state] = case.likelihood[v][state] if v in case.likelihood else 1.0
    if weights.any():  # else its likelihood, and with it the probability, is 0
        of_joint = sweep.derivatives(Evidence(case.state, {**case.likelihood, v: weights}))
        c = program.factor_root[v]
        shift = of_joint.log_scale - of_evidence.log_scale
        power = round(shift / math.log(2.0))
        factor = math.exp(shift - power * math.log(2.0))
        ratio = of_joint.root[c] / of_evidence.root[c] * factor
        probability = math.ldexp(ratio, int(of_joint.root_exponent[c] - of_evidence.root_exponent[c]) + power)
        joint_cells, joint_exponent = _over_evidence(of_joint, of_evidence, size, program)
        partial_joint = joint_cells * factor, joint_exponent + power
    # factors in other components than the target's only change the probability of the evidence
    others = np.repeat(np.array(program.factor_root) != program.factor_root[v], size)
    for mine, of_both in zip(partial_joint, (probability * cells, exponent), strict=True):
        mine[others] = of_both[others]
    log_root = np.log(of_evidence.root) + of_evidence.root_exponent * np.log(2.0)
    return Sensitivity(
        model,
        (model.variables[v], model.states(v)[state]),
        min(probability, 1.0),
        float(log_root.sum()) + of_evidence.log_scale + resolved.log_shift,
        tuple((c[:n_parameters], e[:n_parameters]) for c, e in (partial_joint, (cells, exponent))),
        parameters,
    )


def _target(model: DiscreteModel, target: object, case: Evidence) -> tuple[int, int]:
    """Numbers of the target's variable and state."""
    if not isinstance(target, (tuple, list)) or len(target) != 2:
        raise EvidenceError(
            f"the target of a sensitivity analysis must be a pair (variable, state), got {shown(target)}"
        )
    v = model.index(target[0])
    state = model.state_index(v, target[1])
    if case.state[v] >= 0:
        raise EvidenceError(f"the target {model.variables[v]!r} is observed: no parameter changes its probability")
    return v, state


def _over_evidence(
    derivatives: Derivatives, evidence: Derivatives, size: Ints, program: Program
) -> tuple[Floats, Ints]:
    """Derivatives divided by P(e) of each factor's component: below 1, and exponents of two."""
    root = np.array(program.factor_root)
    cells, more = np.frexp(derivatives.cells / np.repeat(evidence.root[root], size))
    exponent = derivatives.exponent - np.repeat(evidence.root_exponent[root], size) + more
    return cells, np.where(cells > 0, exponent, 0)
