"""Most probable explanations: the k most probable configurations of all variables given the evidence.

A max-product sweep to the root, then states chosen from the root outwards, each from the slice of a table at the states
chosen before (Dawid, Applications of a general propagation algorithm for probabilistic expert systems, Statistics and
Computing 2, 1992). The answer is therefore one consistent configuration, also if several are equally probable; of
equally probable states the first is chosen. In contrast, the most probable states of the individual posteriors may be
impossible as a configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.base import Evidence
from ...columns import at_row
from ...errors import ImpossibleEvidence, TableTooLarge, format_bytes
from ...model.discrete import DiscreteModel
from ...util.arguments import choice, flag, random_generator, whole_number
from ...util.arrays import Bools, Floats
from ...util.system import free_memory
from ..evidence_table import BatchEvidence, naming_rows, read_known_cases
from ..results.case_states import CaseExplanations, Explanation, Imputed, RankedExplanations, Samples
from .posteriors import messages_of, n_configurations, named

if TYPE_CHECKING:
    from typing import Unpack

    from numpy.typing import NDArray

    from ...backends.sweep import Uniforms
    from ...model.states import CodesByVariable
    from ...util.options import ImputeMethod, OnProblem
    from ..compiled import CompiledModel
    from ..evidence import Cases, EvidenceOptions, Findings
    from ..interventions import ResolvedEvidence

FEW = 10_000  # explanations that are made without a look at the free memory
BYTES, BYTES_PER_VARIABLE = 1024, 24  # of one explanation and of what finds the next one, as measured
MEMORY_SHARE = 0.8  # of the free memory
SECONDS, SECONDS_PER_VARIABLE = 2.5e-5, 1e-7  # to find the next explanation, as measured with k from 1e3 to 1e7
MAX_SECONDS = 60


def explanations(
    model: DiscreteModel,
    states: NDArray[np.int32],
    log_joint: Floats,
    log_evidence: Callable[[], float],
    variables: Sequence[int] | None = None,
) -> Explanation:
    """The most probable of some configurations, with all of them in its ``ranked``."""
    # states: (k, V) array of int32
    # log_joint: (k,) array of float64: ln P(configuration, evidence)
    # log_evidence: Computes ln P(evidence); called at most once
    # variables: sequence of int: The variables of the query. Default: all.
    # rounding may have swapped two configurations that are equally probable
    order = np.argsort(-log_joint, kind="stable")
    return RankedExplanations(model, states[order], log_joint[order], log_evidence, variables).explanations[0]


def mpe(
    self: CompiledModel, evidence: Findings | None = None, *, k: int = 1, **more: Unpack[EvidenceOptions]
) -> Explanation:
    """Find the most probable explanation: the most probable configuration of all variables given the evidence.

    Parameters
    ----------
    evidence, likelihood, soft, do : mapping, optional
        See `posteriors`.
    k : int, default 1
        Number of distinct configurations to find; some 10 microseconds each.

    Returns
    -------
    Explanation
        The best configuration: a mapping from variable to state with ``.log_joint`` and ``.log_posterior``.
        ``.ranked`` has the k best ones, or fewer if fewer are possible.

    Raises
    ------
    TableTooLarge
        If k configurations would not fit into the free memory, or take more than a minute; raised beforehand.
    """
    tree = self.for_sets(more.get("likelihood"))
    resolved = tree.resolve(evidence, **more)
    k = check_k(tree.model, k, range(len(tree.model)), resolved.case)
    sweep = messages_of(tree, resolved.factors).maximal()
    best = named(tree, resolved.case, lambda: sweep.best(resolved.case, k))
    log_joint = sweep.score(best.states, resolved.case) + resolved.log_shift
    return explanations(tree.model, best.states, log_joint, evidence_of(tree, resolved))


def check_k(model: DiscreteModel, k: int, variables: Iterable[int], case: Evidence) -> int:
    """Check the number of explanations: at most as many as there are configurations, if the memory suffices."""
    # raises ArgumentError: If `k` is not a positive integer.
    # raises TableTooLarge: If the explanations do not fit into the free memory, or would take more than a minute.
    k = whole_number("k", k, least=1)
    if k <= FEW:
        return k
    k = min(k, n_configurations(model, [v for v in variables if case.state[v] < 0]))
    each, seconds = BYTES + BYTES_PER_VARIABLE * len(model), SECONDS + SECONDS_PER_VARIABLE * len(model)
    needed, free = k * each, int(MEMORY_SHARE * free_memory())
    most = min(free // each, int(MAX_SECONDS / seconds))
    if k > most:
        raise TableTooLarge(
            f"k={k:,} explanations need about {format_bytes(needed)} and {k * seconds:.3g} s; the limits are "
            f"{format_bytes(free)} (80 % of the free memory) and {MAX_SECONDS} s; ask for at most {most:,}, for the "
            "explanations of fewer variables (map), or for samples (sample)",
            k,
            needed,
            free,
        )
    return k


def evidence_of(tree: CompiledModel, resolved: ResolvedEvidence) -> Callable[[], float]:
    """A function that computes ln P(evidence)."""
    return lambda: tree.answer(resolved.backend.run_case, resolved.case, []).log_evidence + resolved.log_shift


def mpe_batch(
    self: CompiledModel, cases: Cases, *, likelihood: Mapping[Any, object] | None = None,
    do: Mapping[Any, object] | None = None, on_error: OnProblem = "error",
    codes: CodesByVariable | None = None,
) -> CaseExplanations:  # fmt: skip
    """Find the most probable explanations of a table of B cases.

    Parameters
    ----------
    cases, likelihood, do, on_error, codes
        See `posteriors_batch`.

    Returns
    -------
    CaseExplanations
    """
    known = read_known_cases(self.model.with_codes(codes), cases, likelihood, None, do, self.plan.sets)
    sweep = messages_of(self, self.intervened(known.intervened).factors).maximal()
    with naming_rows(known.table):
        best = sweep.best_rows(known.states, known.likelihood)
    impossible = np.isneginf(best.log_value)
    raise_if_impossible(self, known, impossible, on_error)
    return CaseExplanations(self.model, best.states, best.log_value, known.table)


def raise_if_impossible(tree: CompiledModel, known: BatchEvidence, impossible: Bools, on_error: str) -> None:
    """Raise `ImpossibleEvidence` for the first impossible case of a table, unless ``on_error="flag"``."""
    if choice("on_error", on_error, ("error", "flag")) == "flag" or not impossible.any():
        return
    row = int(np.argmax(impossible))

    def fail() -> None:
        raise ImpossibleEvidence("the evidence has probability 0")

    try:
        named(tree, Evidence(known.states[row], {v: w[row] for v, w in known.likelihood.items()}), fail)
    except ImpossibleEvidence as error:
        raise ImpossibleEvidence(at_row(known.table, row, str(error))) from None


# Exact samples of the posterior distribution, and imputation of missing cells.
#
# A sum-product sweep to the root, then states drawn from the root outwards, each from the slice of a table at the
# states drawn before (Dawid 1992, see `mpe`). Every sample is a draw from P(variables | evidence): none is rejected
# or weighted, so samples cost the same however improbable the evidence is. All samples share the sweep, and slices
# that recur.

ALWAYS_FREE = 1 << 24  # bytes that are allocated without a look at the free memory


def _uniforms(seed: object, n_variables: int) -> Uniforms:
    generator = random_generator(seed)
    return lambda n: generator.random((n, n_variables))


def _check_memory(n: int, n_variables: int) -> None:
    """Raise `TableTooLarge` for more samples than fit into the free memory."""
    needed = 4 * n * n_variables
    if needed <= ALWAYS_FREE:
        return
    free = int(MEMORY_SHARE * free_memory())
    if needed > free:
        raise TableTooLarge(
            f"n={n:,} samples of {n_variables} variables need {format_bytes(needed)}, more than the "
            f"{format_bytes(free)} that are free (80 % of the free memory); draw at most {free // (4 * n_variables):,} "
            "in one call, from a numpy.random.Generator as the seed of all calls, or write any number to a file with "
            "jtgpu sample",
            n * n_variables,
            needed,
            free,
        )


def sample(
    self: CompiledModel, n: int, evidence: Findings | None = None, *, seed: object = None, numbers: bool = False,
    **more: Unpack[EvidenceOptions],
) -> Samples:  # fmt: skip
    """Draw n exact samples from P(all variables | evidence).

    No sample is rejected or weighted, so the time does not depend on the probability of the evidence.

    Parameters
    ----------
    n : int
    evidence, likelihood, soft, do : mapping, optional
        See `posteriors`.
    seed : optional
        See `numpy.random.default_rng`. The same seed gives the same samples; a smaller n gives the first of them.
    numbers : bool
        Whether variables whose states are intervals have numbers, drawn uniformly inside; see `Posterior.mean` for
        where the outer ones end.

    Returns
    -------
    Samples
        A mapping from variable to the names of its states, (n,); ``.states`` has their numbers, (n, V) int32, and
        ``.to_frame()`` makes a data frame of names.
    """
    tree = self.for_sets(more.get("likelihood"))
    resolved = tree.resolve(evidence, **more)
    n = whole_number("n", n, least=0)
    _check_memory(n, len(tree.model))
    sweep = messages_of(tree, resolved.factors).summing()
    uniforms = _uniforms(seed, len(tree.model))
    drawn = Samples(tree.model, named(tree, resolved.case, lambda: sweep.draw(resolved.case, n, uniforms)))
    return drawn.with_numbers(seed) if flag("numbers", numbers) else drawn


def impute(  # noqa: PLR0913
    self: CompiledModel, cases: Cases, *, how: ImputeMethod = "sample", seed: Any = None, numbers: bool = False,
    likelihood: Mapping[Any, object] | None = None, do: Mapping[Any, object] | None = None,
    on_error: OnProblem = "error", codes: CodesByVariable | None = None,
) -> Imputed:  # fmt: skip
    """Fill in the missing cells of a table of B cases.

    Parameters
    ----------
    cases, likelihood, do, on_error, codes
        See `posteriors_batch`.
    how : {"sample", "mpe"}
        Whether to fill in an exact joint sample given the other cells of the case, or the most probable
        configuration.
    seed : optional
        See `numpy.random.default_rng`.
    numbers : bool
        See `sample`; numbers of the cases are kept.

    Returns
    -------
    Imputed
        ``.to_frame()`` has the columns of `cases` with all cells filled in, in a frame of the same kind.
    """
    known = read_known_cases(self.model.with_codes(codes), cases, likelihood, None, do, self.plan.sets)
    choice("how", how, ("sample", "mpe"))
    messages = messages_of(self, self.intervened(known.intervened).factors)
    with naming_rows(known.table):
        if how == "mpe":
            filled = messages.maximal().best_rows(known.states, known.likelihood).states
        else:
            filled = messages.summing().draw_rows(known.states, known.likelihood, _uniforms(seed, len(self.model)))
    imputed = Imputed(self.model, filled, known.states < 0, known.table)
    raise_if_impossible(self, known, imputed.impossible, on_error)
    return imputed.with_numbers(seed) if flag("numbers", numbers) else imputed
