"""`Program`: contractions of a model's factors, the one form in which every backend receives a question.

A *contraction* multiplies its input tables and eliminates, by sum or by maximum, every variable that its output does
not have. Tables 0..F-1 are the model's factors, the others are each written by one contraction; the *roots* have empty
scope, and their product is P(e) (or the largest probability). Four kinds of contraction differ in what is known of
their output:

=============  ====================================================================================================
`COLLECT`      its numbers, scale included
`DISTRIBUTE`   its numbers up to a factor that is the same for all of its entries: inputs of empty scope may be dropped
`POSTERIOR`    the distribution of one variable, normalised
`FAMILY`       the distribution of a factor's scope, normalised: what one case adds to the expected counts
=============  ====================================================================================================

The constructors make the program of a question from a plan: posteriors, a pass to the roots by sum or by maximum (most
probable explanations, samples), derivatives by every entry of every factor (sensitivity), families (expected counts).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from .arrays import COLLECT, DISTRIBUTE, POSTERIOR
from .plan import Plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

FAMILY = 3  # a kind of contraction, in addition to those of a plan
UNIT = -1  # stands for the table of empty scope that holds 1


@dataclass(frozen=True, eq=False)
class Program:
    """Contractions in an order in which every table is written before it is read; integers only.

    V variables, F factors, T tables, P contractions.
    """

    cardinality: NDArray[np.int64]  # (V,)
    axis_rank: NDArray[np.int64]  # (V,) place of each variable in the axis order of every table
    evidence_factor: NDArray[np.int64]  # (V,) the factor that evidence on a variable is multiplied into
    factor_scopes: tuple[tuple[int, ...], ...]  # variables of each factor, in the order of the model's axes
    scopes: tuple[tuple[int, ...], ...]  # of every table, in axis order; tables 0..F-1 are the factors
    outs: tuple[int, ...]  # (P,) table written by each contraction
    ins: tuple[tuple[int, ...], ...]  # (P,) tables multiplied
    maximal: tuple[bool, ...]  # (P,) whether variables are eliminated by maximum, not by sum
    roots: tuple[int, ...]  # tables of empty scope whose product is P(e) or the largest probability
    kinds: tuple[int, ...] = ()  # (P,) kind of each contraction; empty: COLLECT
    answers: tuple[int, ...] = ()  # (P,) variable of a POSTERIOR, factor of a FAMILY, else -1; empty: -1
    wanted: tuple[int, ...] = ()  # tables that are read when the program has run, besides roots and answers
    factor_root: tuple[int, ...] = ()  # (F,) for derivatives: the component, as a place among the roots, of each factor
    factor_derivative: tuple[int, ...] = ()  # (F,) and the table of its derivative; UNIT for the number 1
    chosen: frozenset[int] = field(default_factory=frozenset)  # variables that are eliminated by maximum
    # Whether a backend may leave out factors that sum to one over a variable nothing else depends on. A maximum has no
    # such factors; a sample needs every variable; a derivative is wanted by every entry.
    may_prune: bool = False

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

    @cached_property
    def posterior_ptr(self) -> NDArray[np.int64]:
        """(V+1,) first cell of each variable when posteriors stand one after the other."""
        return np.concatenate([[0], np.cumsum(self.cardinality)]).astype(np.int64)


def posterior_program(plan: Plan) -> Program:
    """All contractions of a plan: the posterior of every variable, and P(e)."""
    answer = {int(t): v for v, t in enumerate(plan.posterior_table)}
    outs, kinds = tuple(plan.op_out.tolist()), tuple(plan.op_kind.tolist())
    return replace(
        _empty(plan),
        scopes=plan.table_scopes,
        outs=outs,
        ins=plan.op_inputs,
        maximal=(False,) * len(outs),
        kinds=kinds,
        answers=tuple(answer[t] if kind == POSTERIOR else -1 for t, kind in zip(outs, kinds, strict=True)),
        may_prune=True,
    )


def collect_program(plan: Plan, maximal: bool) -> Program:
    """The contractions of a plan towards the roots, by sum or by maximum."""
    collect = [i for i, kind in enumerate(plan.op_kind.tolist()) if kind == COLLECT]
    return replace(
        _empty(plan),
        outs=tuple(int(plan.op_out[i]) for i in collect),
        ins=tuple(plan.op_inputs[i] for i in collect),
        maximal=(maximal,) * len(collect),
        chosen=frozenset(range(plan.n_variables)) if maximal else frozenset(),
    )


def derivative_program(plan: Plan) -> Program:
    """Derivatives of P(e) by every entry of every factor.

    With D_root = 1, the child a of a contraction n with siblings b has D_a = sum D_n * prod U_b (Darwiche, A
    differential approach to inference in Bayesian networks, JACM 50, 2003): P(e) is linear in each entry of a factor,
    and D is its coefficient. Nothing is divided, so entries of zero have their derivative too.
    """
    up = collect_program(plan, maximal=False)
    scopes, outs, ins = list(up.scopes), list(up.outs), list(up.ins)
    derivative: dict[int, int] = dict.fromkeys(up.roots, UNIT)
    root: dict[int, int] = {t: i for i, t in enumerate(up.roots)}
    for out, inputs in zip(reversed(up.outs), reversed(up.ins), strict=True):
        for a in inputs:
            used = [t for t in (derivative[out], *(b for b in inputs if b != a)) if t != UNIT]
            shared = {v for t in used for v in scopes[t]} & set(scopes[a])
            root[a] = root[out]
            if not used:
                derivative[a] = UNIT
            elif len(used) == 1 and len(shared) == len(scopes[used[0]]):
                derivative[a] = used[0]
            else:
                derivative[a] = len(scopes)
                scopes.append(tuple(sorted(shared, key=plan.axis_rank.__getitem__)))
                outs.append(derivative[a])
                ins.append(tuple(used))
    of_factor = tuple(derivative[f] for f in range(up.n_factors))
    return replace(
        up,
        scopes=tuple(scopes),
        outs=tuple(outs),
        ins=tuple(ins),
        maximal=(False,) * len(outs),
        wanted=tuple(sorted(set(of_factor) - {UNIT})),
        factor_root=tuple(root[f] for f in range(up.n_factors)),
        factor_derivative=of_factor,
    )


def family_program(plan: Plan) -> Program:
    """P(scope | e) of every factor: its entries times their derivatives, normalised."""
    base = derivative_program(plan)
    n_up = int((plan.op_kind == COLLECT).sum())
    scopes, outs, ins = list(base.scopes), list(base.outs), list(base.ins)
    for f, derivative in enumerate(base.factor_derivative):
        outs.append(len(scopes))
        ins.append((f,) if derivative == UNIT else (f, derivative))
        scopes.append(base.scopes[f])
    n_down = len(base.outs) - n_up
    return replace(
        base,
        scopes=tuple(scopes),
        outs=tuple(outs),
        ins=tuple(ins),
        maximal=(False,) * len(outs),
        kinds=(COLLECT,) * n_up + (DISTRIBUTE,) * n_down + (FAMILY,) * base.n_factors,
        answers=(-1,) * (n_up + n_down) + tuple(range(base.n_factors)),
        wanted=(),
        may_prune=True,
    )


def _empty(plan: Plan) -> Program:
    """A plan's factors and roots without contractions."""
    return Program(
        plan.cardinality, plan.axis_rank, plan.evidence_factor, plan.factor_scopes, plan.table_scopes, (), (), (),
        tuple(plan.root_table.tolist()),
    )  # fmt: skip
