"""Contraction forests: what the questions run that need messages, not only posteriors.

A *contraction forest* has a model's factors as leaves. An inner node multiplies its children and takes out, by sum or
by maximum, every variable that its own table does not have; the roots are numbers. Every variable is taken out at
exactly one node. So a sweep from the leaves to the roots keeps all that is needed to go back down, node by node: once
the variables of a node's table are known, those that it took out are chosen from the slice of its children at these
states, which is small however large the tables are. The largest cell of each slice gives a most probable explanation,
a cell at random an exact sample of the posterior.

`collect_forest` and `derivative_forest` are made from a plan; a constrained elimination order gives others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ..plans.plan import COLLECT, Plan
from .base import Evidence

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["UNIT", "Best", "Derivatives", "Forest", "Sweep", "Uniforms", "collect_forest", "derivative_forest"]

UNIT = -1  # stands for the table of empty scope that holds 1

Uniforms = Callable[[int], "NDArray[np.float64]"]  # n -> the next n rows, (n, V), of numbers in [0, 1)


@dataclass(frozen=True, eq=False)
class Forest:
    """Contractions towards the roots. V variables, F factors, T tables, P contractions; integers only."""

    cardinality: NDArray[np.int64]  # (V,)
    axis_rank: NDArray[np.int64]  # (V,) place of each variable in the axis order of every table
    evidence_factor: NDArray[np.int64]  # (V,) the factor that evidence on a variable is multiplied into
    factor_scopes: tuple[tuple[int, ...], ...]  # variables of each factor, in the order of the model's axes
    scopes: tuple[tuple[int, ...], ...]  # of every table, in axis order; tables 0..F-1 are the factors
    outs: tuple[int, ...]  # (P,) table written by each contraction, after all that it reads
    ins: tuple[tuple[int, ...], ...]  # (P,) tables multiplied
    maximal: tuple[bool, ...]  # (P,) whether variables go by maximum, not by sum
    roots: tuple[int, ...]  # tables of empty scope, whose product is what is asked
    kept: tuple[int, ...] = ()  # tables that are wanted besides
    factor_root: tuple[int, ...] = ()  # (F,) for derivatives: the place among the roots that a factor belongs to
    factor_down: tuple[int, ...] = ()  # (F,) and the table of its derivative; UNIT for the number 1
    chosen: frozenset[int] = field(default_factory=frozenset)  # variables that go by maximum

    @property
    def n_factors(self) -> int:
        """F."""
        return len(self.factor_scopes)

    @property
    def n_variables(self) -> int:
        """V."""
        return len(self.cardinality)

    def size(self, scope: Sequence[int]) -> int:
        """Entries of a table over `scope`."""
        return math.prod(int(self.cardinality[v]) for v in scope)

    @cached_property
    def by_rank(self) -> NDArray[np.int64]:
        """(V,) variables in the axis order."""
        return np.argsort(self.axis_rank)


@dataclass(frozen=True)
class Best:
    """The best configurations of the variables that go by maximum, best first; of equals the one found first."""

    states: NDArray[np.int32]  # (n, V); -1 for a variable that was summed out
    log_value: NDArray[np.float64]  # (n,) natural logarithms of what the forest makes of them


@dataclass(frozen=True)
class Derivatives:
    """Derivatives of P(e) by every entry of every factor, as ``cells * 2**exponent``."""

    cells: NDArray[np.float64]  # (all entries,) factor after factor, in the order of the model's axes
    exponent: NDArray[np.int64]  # (F,)
    root: NDArray[np.float64]  # (components,) P(e) of each component, as root * 2**root_exponent
    root_exponent: NDArray[np.int64]  # (components,)
    log_scale: float = 0.0  # ln of what all of them are to be multiplied with besides


class Sweep(Protocol):
    """A forest and a model's numbers, ready to run; see `jtgpu.backends.reference.ReferenceSweep`, the definition."""

    forest: Forest

    def best(self, evidence: Evidence, k: int = 1) -> Best:
        """The k best configurations; fewer where fewer have a value above 0.

        Raises
        ------
        ImpossibleEvidence
            Where none has.
        """

    def best_rows(self, states: NDArray[np.int32], likelihood: Mapping[int, NDArray[np.float64]]) -> Best:
        """The best configuration of each case: (B, V) observed states, -1 = not observed, and (B, card) weights. A case
        of probability zero has -1 in every cell and -inf."""

    def draw(self, evidence: Evidence, n: int, uniforms: Uniforms) -> NDArray[np.int32]:
        """n samples, (n, V); of a forest that only sums. Of each row of `uniforms` a sample uses the number of every
        variable, so equal rows give equal samples.

        Raises
        ------
        ImpossibleEvidence
            When P(e) = 0.
        """

    def draw_rows(
        self, states: NDArray[np.int32], likelihood: Mapping[int, NDArray[np.float64]], uniforms: Uniforms
    ) -> NDArray[np.int32]:
        """One sample a case, each with its own row of `uniforms`; -1 in every cell of a case of probability zero."""

    def derivatives(self, evidence: Evidence) -> Derivatives:
        """Of a forest made by `derivative_forest`; also where P(e) = 0."""

    def score(self, states: NDArray[np.int32], evidence: Evidence) -> NDArray[np.float64]:
        """(n,) ln of the product of all factors, and of the weights of the evidence, at whole configurations."""


def collect_forest(plan: Plan, maximal: bool) -> Forest:
    """The collecting half of a plan, by sum or by maximum."""
    ops = [i for i, kind in enumerate(plan.op_kind.tolist()) if kind == COLLECT]
    return Forest(
        plan.cardinality,
        plan.axis_rank,
        plan.evidence_factor,
        plan.factor_scopes,
        plan.table_scopes,
        tuple(int(plan.op_out[i]) for i in ops),
        tuple(plan.op_inputs[i] for i in ops),
        (maximal,) * len(ops),
        tuple(plan.root_table.tolist()),
        chosen=frozenset(range(plan.n_variables)) if maximal else frozenset(),
    )


def derivative_forest(plan: Plan) -> Forest:
    """The collecting half of a plan, and the way back down to every factor.

    With D_root = 1, the child a of a node n with siblings b has D_a = sum D_n * prod U_b (Darwiche, A differential
    approach to inference in Bayesian networks, JACM 50, 2003): P(e) is linear in each entry of a factor, and D is its
    coefficient. Nothing is divided, so entries of zero have their derivative too.
    """
    up = collect_forest(plan, maximal=False)
    n_factors, scopes = up.n_factors, list(up.scopes)
    rank = plan.axis_rank
    down: dict[int, int] = dict.fromkeys(up.roots, UNIT)
    root: dict[int, int] = {t: i for i, t in enumerate(up.roots)}
    outs, ins = list(up.outs), list(up.ins)
    for out, inputs in zip(reversed(up.outs), reversed(up.ins), strict=True):
        for a in inputs:
            used = [t for t in (down[out], *(b for b in inputs if b != a)) if t != UNIT]
            seen = {v for t in used for v in scopes[t]} & set(scopes[a])
            root[a] = root[out]
            if not used:
                down[a] = UNIT
            elif len(used) == 1 and len(seen) == len(scopes[used[0]]):
                down[a] = used[0]
            else:
                down[a] = len(scopes)
                scopes.append(tuple(sorted(seen, key=rank.__getitem__)))
                outs.append(down[a])
                ins.append(tuple(used))
    return Forest(
        up.cardinality,
        up.axis_rank,
        up.evidence_factor,
        up.factor_scopes,
        tuple(scopes),
        tuple(outs),
        tuple(ins),
        (False,) * len(outs),
        up.roots,
        kept=tuple(sorted({down[f] for f in range(n_factors)} - {UNIT})),
        factor_root=tuple(root[f] for f in range(n_factors)),
        factor_down=tuple(down[f] for f in range(n_factors)),
    )
