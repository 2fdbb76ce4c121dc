"""Sensitivity of a probability to every parameter of every CPT, from two passes over the tree.

P(e) is linear in each entry of a CPT. Its coefficient is the product of all other factors, summed onto the entry's
configuration; a sweep to the root and back gives the coefficients of all entries at once (Darwiche, JACM 50, 2003).
With the same for P(t, e), the posterior P(t | e) as a function of one parameter is a quotient of two linear functions
(Castillo, Gutierrez, Hadi, Networks 28, 1996): exact, not only a slope. Nothing is divided by a parameter, so
parameters of value zero have derivatives, too.

A parameter does not change alone, since its row sums to 1: the other entries of the row keep their proportions, that
is, they are multiplied by (1 - x) / (1 - theta) (Chan and Darwiche, When do numbers really matter?, JAIR 17, 2002). If
all of them are zero, they get equal shares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.base import Evidence
from ...errors import EvidenceError, ImpossibleEvidence, NetworkError, shown
from ...model.discrete import DiscreteModel
from ...model.network import BayesianNetwork
from ..results.sensitivities import Parameters, Sensitivity
from .messages import messages_of, named

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...backends.sweep import Derivatives
    from ...plans.program import Program
    from ..compiled import CompiledModel
    from ..interventions import Settled

MAX_PARAMETERS = 4  # sets of CPTs whose parameters are cached


def sensitivity(tree: CompiledModel, target: tuple[Any, Any], settled: Settled) -> Sensitivity:
    model, case = tree.model, settled.case
    if not isinstance(model, BayesianNetwork):
        raise NetworkError(
            "sensitivity requires a Bayesian network: the factors of a Markov network have no rows that sum to 1"
        )
    v, state = _target(model, target, case)
    sweep = messages_of(tree, settled.factors).derivative()
    parameters = tree.cached("parameters", id(settled.factors), lambda: Parameters(settled.factors), MAX_PARAMETERS)

    def derivatives() -> Derivatives:
        found = sweep.derivatives(case)
        if not (found.root > 0).all():
            raise ImpossibleEvidence("the evidence has probability 0")
        return found

    of_evidence = named(tree, case, derivatives)
    size = np.diff(parameters.first)
    program = sweep.program
    partial_evidence = _over_evidence(of_evidence, of_evidence, size, program)
    probability, partial_joint = 0.0, np.zeros(len(partial_evidence))
    weights = np.zeros(int(model.cardinality[v]))
    weights[state] = case.likelihood[v][state] if v in case.likelihood else 1.0
    if weights.any():  # else its likelihood, and with it the probability, is 0
        of_joint = sweep.derivatives(Evidence(case.state, {**case.likelihood, v: weights}))
        c = program.factor_root[v]
        shift = of_joint.log_scale - of_evidence.log_scale
        ratio = of_joint.root[c] / of_evidence.root[c]
        exponent = int(of_joint.root_exponent[c] - of_evidence.root_exponent[c])
        probability = float(np.ldexp(ratio * np.exp(shift), exponent))
        partial_joint = _over_evidence(of_joint, of_evidence, size, program) * np.exp(shift)
    # factors in other components than the target's only change the probability of the evidence
    others = np.repeat(np.array(program.factor_root) != program.factor_root[v], size)
    partial_joint[others] = probability * partial_evidence[others]
    log_root = np.log(of_evidence.root) + of_evidence.root_exponent * np.log(2.0)
    return Sensitivity(
        model,
        (model.variables[v], model.states(v)[state]),
        min(probability, 1.0),
        float(log_root.sum()) + of_evidence.log_scale + settled.log_shift,
        (partial_joint, partial_evidence),
        parameters,
    )


def _target(model: DiscreteModel, target: Any, case: Evidence) -> tuple[int, int]:
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
    found: Derivatives, evidence: Derivatives, size: NDArray[np.int64], program: Program
) -> NDArray[np.float64]:
    """Derivatives divided by P(e) of each factor's component."""
    root = np.array(program.factor_root)
    exponent = found.exponent - evidence.root_exponent[root]
    return np.asarray(np.ldexp(found.cells / np.repeat(evidence.root[root], size), np.repeat(exponent, size)))
