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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from .arrays import COLLECT, DISTRIBUTE, POSTERIOR
from .balance import ContractionForest
from .plan import Plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The program of a contraction forest: messages to the roots, derivatives back, posteriors.

UNIT = -1  # in place of a table of empty scope that contains 1


@dataclass
class ContractionProgram:
    """Tables and contractions before they become arrays of a plan; table t < F is factor t."""

    scopes: list[tuple[int, ...]]  # of every table, in axis order
    kinds: list[int] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    outs: list[int] = field(default_factory=list)
    ins: list[tuple[int, ...]] = field(default_factory=list)
    posterior_table: list[int] = field(default_factory=list)
    root_table: list[int] = field(default_factory=list)


class _ProgramWriter:
    """Collects tables and contractions, and the level of each."""

    def __init__(self, scopes: Sequence[Iterable[int]], axis_rank: Sequence[int]):
        self.rank = axis_rank
        self.program = ContractionProgram([self.ordered(s) for s in scopes])
        self.table_level = [0] * len(scopes)

    def ordered(self, scope: Iterable[int]) -> tuple[int, ...]:
        return tuple(sorted(scope, key=self.rank.__getitem__))

    def add(self, kind: int, scope: Iterable[int], ins: Iterable[int]) -> int:
        used = tuple(t for t in ins if t != UNIT)
        out = len(self.program.scopes)
        level = 1 + max(self.table_level[t] for t in used)
        self.program.scopes.append(self.ordered(scope))
        self.table_level.append(level)
        self.program.kinds.append(kind)
        self.program.levels.append(level)
        self.program.outs.append(out)
        self.program.ins.append(used)
        return out


def emit(
    forest: ContractionForest, roots: list[int], axis_rank: Sequence[int], all_derivatives: bool = True,
    sets: Sequence[int] = (),
) -> ContractionProgram:  # fmt: skip
    """The forward sweep, the reverse sweep and all posteriors of a finished forest."""
    # roots: list of int: Its roots
    # axis_rank: (V,): Position of each variable in the axis order
    # all_derivatives: Compute D of every inner node; False: only where a posterior is read at the node or below
    # sets: Factors whose scopes have posteriors of their own: U times D of the leaf. Their tables are the last ones.
    n_factors = sum(1 for c in forest.children if not c)
    writer = _ProgramWriter([forest.scope[f] for f in range(n_factors)], axis_rank)
    up = list(range(n_factors))  # table of U of each node
    for n in range(n_factors, len(forest.children)):
        up.append(writer.add(COLLECT, forest.scope[n], (up[c] for c in forest.children[n])))
    down: dict[int, int] = dict.fromkeys(roots, UNIT)  # table of D of each node; children on demand for leaves
    where = _posterior_places(forest, n_factors)
    wanted = _wanted(forest, [*where, *((f, "down") for f in sets)])
    if all_derivatives:
        wanted.update(range(n_factors, len(forest.children)))
    scopes = writer.program.scopes
    for n in reversed(range(n_factors, len(forest.children))):
        for a in forest.children[n]:
            if a not in wanted:
                continue
            ins = [down[n], *(up[b] for b in forest.children[n] if b != a)]
            used = [t for t in ins if t != UNIT]
            seen = frozenset(v for t in used for v in scopes[t]) & forest.scope[a]
            if not used:
                down[a] = UNIT
            elif len(used) == 1 and len(seen) == len(scopes[used[0]]):
                down[a] = used[0]  # nothing to sum or multiply: the same table
            else:
                down[a] = writer.add(DISTRIBUTE, seen, used)
    posterior = []
    for v, (n, through) in enumerate(where):
        above = [up[n]] if through == "down" else [up[c] for c in forest.children[n]]
        posterior.append(writer.add(POSTERIOR, (v,), [*above, down[n]]))
    posterior += [writer.add(POSTERIOR, forest.scope[f], (up[f], down[f])) for f in sets]
    program = writer.program
    program.posterior_table, program.root_table = posterior, [up[r] for r in roots]
    by_level = sorted(range(len(program.outs)), key=lambda i: (program.levels[i], i))
    program.kinds = [program.kinds[i] for i in by_level]
    program.levels = [program.levels[i] for i in by_level]
    program.outs = [program.outs[i] for i in by_level]
    program.ins = [program.ins[i] for i in by_level]
    return program


def _wanted(forest: ContractionForest, where: Sequence[tuple[int, str]]) -> set[int]:
    """Nodes whose D is needed for posteriors read at the given places."""
    parent = {c: n for n, children in enumerate(forest.children) for c in children}
    wanted: set[int] = set()
    for n in {n for n, _ in where}:
        at: int | None = n
        while at is not None and at not in wanted:
            wanted.add(at)
            at = parent.get(at)
    return wanted


def _posterior_places(forest: ContractionForest, n_factors: int) -> list[tuple[int, str]]:
    """Where each variable's posterior is computed: ``(node, "down")`` from U and D of the node, ``(node, "joint")``
    from the children of the node and its D.

    A variable in the scope of inner nodes is read at the smallest of them. Any other variable is summed out where its
    factors meet; computing the D of a leaf pays off if several such variables share the leaf.
    """
    parent = [-1] * len(forest.children)
    for n, children in enumerate(forest.children):
        for c in children:
            parent[c] = n
    place: list[tuple[int, str] | None] = [None] * len(forest.cardinality)
    best = [math.inf] * len(forest.cardinality)
    for n in range(n_factors, len(forest.children)):
        size = forest.size(forest.scope[n])
        for v in forest.scope[n]:
            if size < best[v]:
                best[v], place[v] = size, (n, "down")
    leaf_only: dict[int, list[int]] = {}
    smallest: dict[int, tuple[int, int]] = {}
    for f in range(n_factors):
        size = forest.size(forest.scope[f])
        for v in sorted(forest.scope[f]):
            if place[v] is None and (v not in smallest or (size, f) < smallest[v]):
                smallest[v] = (size, f)
    for v, (_, f) in sorted(smallest.items()):
        leaf_only.setdefault(f, []).append(v)
    for f, variables in leaf_only.items():
        n = parent[f]
        joint = forest.size(frozenset().union(*(forest.scope[c] for c in forest.children[n])))
        # D of the leaf from two tables over the joint scope, then products over the leaf, against one product of
        # three tables over the joint scope per variable
        with_leaf = 2 * joint + 2 * len(variables) * forest.size(forest.scope[f])
        alone = len(forest.children[n]) == 1
        choice = "down" if alone or with_leaf < 3 * joint * len(variables) else "joint"
        for v in variables:
            place[v] = (f, "down") if choice == "down" else (n, "joint")
    assert all(p is not None for p in place)
    return [p for p in place if p is not None]


FAMILY = 3  # a kind of contraction, in addition to those of a plan


@dataclass(frozen=True, eq=False)
class Program:
    """Contractions in an order in which every table is written before it is read; integers only.

    V variables, F factors, T tables, P contractions. The last variables may be *set variables*: one for each set of
    variables that the plan keeps together, whose states are the cells of the set's factor. No table has their axis;
    their weights are multiplied into that factor, cell by cell, and their posterior is that of its scope.
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

    n_sets: int = 0  # set variables, the last of the V

    @property
    def n_factors(self) -> int:
        """F."""
        return len(self.factor_scopes)

    @property
    def n_variables(self) -> int:
        """V."""
        return len(self.cardinality)

    @property
    def n_plain(self) -> int:
        """The variables that are not set variables."""
        return len(self.cardinality) - self.n_sets

    def weighed_scope(self, v: int) -> tuple[int, ...]:
        """The variables that weights of v are about: v itself; of a set variable, those of its set."""
        return (v,) if v < self.n_plain else self.factor_scopes[self.evidence_factor[v]]

    def shape(self, scope: Sequence[int]) -> tuple[int, ...]:
        """Extents of a table over `scope`."""
        return tuple(int(self.cardinality[v]) for v in scope)

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


def posterior_program(plan: Plan, maximal: bool = False) -> Program:
    """All contractions of a plan: the posterior of every variable, and P(e).

    With `maximal` all variables are eliminated by maximum: in place of a posterior stands the largest probability of a
    configuration with each state, normalised, in place of P(e) the largest one.
    """
    answer = {int(t): v for v, t in enumerate(plan.posterior_table)}
    outs, kinds = tuple(plan.op_out.tolist()), tuple(plan.op_kind.tolist())
    return replace(
        bare_program(plan),
        scopes=plan.table_scopes,
        outs=outs,
        ins=plan.op_inputs,
        maximal=(maximal,) * len(outs),
        kinds=kinds,
        answers=tuple(answer[t] if kind == POSTERIOR else -1 for t, kind in zip(outs, kinds, strict=True)),
        may_prune=not maximal,
    )


def collect_program(plan: Plan, maximal: bool) -> Program:
    """The contractions of a plan towards the roots, by sum or by maximum."""
    collect = [i for i, kind in enumerate(plan.op_kind.tolist()) if kind == COLLECT]
    return replace(
        bare_program(plan),
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


def bare_program(plan: Plan) -> Program:
    """A plan's factors and roots without contractions."""
    first, last = plan.n_variables, len(plan.evidence_factor)
    rank = np.concatenate([plan.axis_rank, np.arange(first, last)]) if last > first else plan.axis_rank
    return Program(
        plan.cards_with_sets, rank, plan.evidence_factor, plan.factor_scopes, plan.table_scopes, (), (), (),
        tuple(plan.root_table.tolist()), n_sets=last - first,
    )  # fmt: skip
