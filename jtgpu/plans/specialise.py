"""Restriction of a program to the observed variables and the targets.

A *pattern* says which variables are observed, not in which state. Given one, much of a program's work is unnecessary:

* an observed variable has extent 1: a factor is restricted to the observed states when it is *loaded*, and no other
  table has that axis;
* a variable that is no target and that only its own conditional table mentions is *barren* (Shachter, Evaluating
  influence diagrams, Operations Research 34, 1986): variable and table are removed, repeatedly;
* a table known to be a conditional density, P(heads | rest), sums to one over its heads: a contraction that sums out
  all of them, while no other input mentions them, leaves the table out; tables of ones are never made. So subtrees
  without evidence send no message towards the model's ancestors;
* components that evidence separates from the targets contribute a number to P(e) and are otherwise not visited; a
  contraction that no target and no root needs is not made.

Everything here is integers, derived by compiled code over flat arrays, for a thousand variables in well under a
millisecond. Variables are numbered by their place in the program's axis order, so that every scope ascends. Backends
lower what remains to their own records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..model.noisy import is_noisy
from ..util.loops import loops
from .arrays import COLLECT, POSTERIOR, ragged
from .program import Program

if TYPE_CHECKING:
    from numpy.typing import NDArray

_loops = loops("jtgpu.plans.loops.specialise")

FREE, HARD, SOFT = 0, 1, 2  # what a pattern knows of a variable: nothing, its state, a weight for each state
HEAD_TOLERANCE = 1e-14  # a number: how far the sums of a table may be from 1 for it to be a conditional density


class FlatProgram(NamedTuple):
    """A program as `reduce` takes it. Variables by rank in the axis order; V, the last one, is the *case axis*."""

    card: NDArray[np.int64]  # (V+1,) the last one: cases that are answered at once
    table_ptr: NDArray[np.int64]  # (T,) where scopes begin; each leaves room for the case axis
    table_end: NDArray[np.int64]  # (T,)
    table_var: NDArray[np.int64]  # scopes, ascending
    op_kind: NDArray[np.int64]  # (P,)
    op_out: NDArray[np.int64]  # (P,)
    op_in_ptr: NDArray[np.int64]  # (P+1,)
    op_in: NDArray[np.int64]
    op_maximal: NDArray[np.int64]  # (P,) 0 or 1
    answers: NDArray[np.int64]  # (P,) variable of a POSTERIOR, factor of a FAMILY, else -1
    factor_head: NDArray[np.int64]  # (F,) the variable over which the factor sums to one, -1
    head_factor: NDArray[np.int64]  # (V+1,) and back
    evidence_factor: NDArray[np.int64]  # (V,)
    roots: NDArray[np.int64]  # tables whose product is P(e)
    wanted: NDArray[np.int64]  # other tables that are read
    uses: NDArray[np.int64]  # (V+1,) factors that contain each variable


def pack(sk: FlatProgram) -> NDArray[np.int64]:
    """A flat program in one array: where each field begins and where the last one ends, then the fields.

    Compiled code takes it apart again; a NamedTuple of many arrays is slow to pass to compiled code.
    """
    ends = np.cumsum([len(sk) + 1, *map(len, sk)])
    return np.concatenate([ends, *sk])


def large_outputs(program: FlatProgram, cells: int) -> list[int]:
    """Contractions that sum to a table of so many cells that is no answer, those of the largest first."""
    sizes = np.multiply.reduceat(program.card[program.table_var].astype(np.float64), program.table_ptr)[program.op_out]
    usable = (sizes >= cells) & (program.op_kind < POSTERIOR) & (program.op_maximal == 0)
    return [i for i in np.argsort(-sizes, kind="stable").tolist() if usable[i]]


class Reduced(NamedTuple):
    """A program restricted to the observed variables of a pattern."""

    stands_for: NDArray[np.int64]  # (T,) the table whose numbers a table has: itself, its only input, or UNIT
    length: NDArray[np.int64]  # (T,) variables left in its scope
    scope: NDArray[np.int64]  # as FlatProgram.table_var: the first `length` of each scope are what is left
    use: NDArray[np.int64]  # as FlatProgram.op_in: the input of a contraction, UNIT where it falls away
    needed: NDArray[np.bool_]  # (T,) for a target or for P(e)
    cut: NDArray[np.bool_]  # (F,) needed factors that are observed or weighed, and so depend on the case


class Shrinking(NamedTuple):
    """Tables under a pattern, and scratch memory, while a compiled loop goes through the contractions.

    T tables, F factors, S entries of all scopes, V variables and the case axis. Flags are 0 or 1.
    """

    rep: NDArray[np.int64]  # (T,) Reduced.stands_for
    length: NDArray[np.int64]  # (T,)
    scope: NDArray[np.int64]  # (S,)
    use: NDArray[np.int64]  # inputs of the contractions
    below: NDArray[np.int64]  # (S,) factors with the variable in the subtree; not written if nothing is pruned
    remaining: NDArray[np.int64]  # (V+1,) factors that are left of each variable
    outside: NDArray[np.int64]  # (V+1,) the contraction that keeps the variable
    holders: NDArray[np.int64]  # (V+1,) zeros: inputs of this contraction that contain the variable
    factors: NDArray[np.int64]  # (V+1,) scratch memory, zeros
    stack: NDArray[np.int64]  # (V+1,) scratch memory
    head: NDArray[np.uint8]  # (S,) as scope: whether the variable is a head of the table
    tainted: NDArray[np.uint8]  # (T,) tables that are no conditional densities
    gone: NDArray[np.uint8]  # (F,) factors of barren variables
    cut: NDArray[np.uint8]  # (F,) Reduced.cut
    empty: NDArray[np.uint8]  # (T,) tables without a remaining factor
    reached: NDArray[np.uint8]  # (T,) tables that an answer may depend on
    needed: NDArray[np.uint8]  # (T,) Reduced.needed
    heads: NDArray[np.uint8]  # (V+1,) zeros: heads of the inputs of this contraction


def conditional_heads(
    factors: Sequence[NDArray[np.float64]], scopes: Sequence[Sequence[int]], n_variables: int
) -> list[int]:
    """For each factor the variable over which it sums to one whatever the others are; -1 for none.

    No variable stands twice, and the arcs from the other variables of each such factor to its head form no cycle: so
    the product of any ancestral set of them is a density. Every variable is a head or in a factor without one.
    """
    return without(*densities(factors, scopes, n_variables), scopes)


def densities(
    factors: Sequence[NDArray[np.float64]], scopes: Sequence[Sequence[int]], n_variables: int
) -> tuple[list[int], frozenset[int]]:
    """Heads for patterns that observe some variables, and these: only densities of others mention them.

    Where one of them is not observed, its sum, and its posterior, would be lost with the densities: see `without`.
    """
    heads = [_head(table, scope) for table, scope in zip(factors, scopes, strict=True)]
    heads = _acyclic(heads, scopes, n_variables)
    kept = {v for v in heads if v >= 0}
    kept.update(u for v, scope in zip(heads, scopes, strict=True) if v < 0 for u in scope)
    return heads, frozenset(u for scope in scopes for u in scope) - kept


def without(heads: Sequence[int], loose: frozenset[int], scopes: Sequence[Sequence[int]]) -> list[int]:
    """The heads, less those of factors that mention a variable of `loose`: these factors are never left out."""
    return [-1 if loose.intersection(scope) else v for v, scope in zip(heads, scopes, strict=True)]


def _head(table: NDArray[np.float64], scope: Sequence[int]) -> int:
    """The variable over which a table sums to one whatever the others are; -1 for none. The last axis, by preference:
    there a conditional table has its child."""
    if is_noisy(table):
        return scope[-1] if table.is_density else -1
    for axis in range(table.ndim - 1, -1, -1):
        sums = table.sum(axis=axis)
        if np.abs(sums - 1.0).max(initial=0.0) <= HEAD_TOLERANCE * table.shape[axis]:
            return scope[axis]
    return -1


def _acyclic(heads: list[int], scopes: Sequence[Sequence[int]], n_variables: int) -> list[int]:
    """The heads, less all that stand twice, or all when the arcs to them form a cycle."""
    count = np.zeros(n_variables, np.int64)
    for v in heads:
        if v >= 0:
            count[v] += 1
    heads = [v if v >= 0 and count[v] == 1 else -1 for v in heads]
    children: list[list[int]] = [[] for _ in range(n_variables)]
    waiting = [0] * n_variables
    for v, scope in zip(heads, scopes, strict=True):
        if v >= 0:
            for u in scope:
                if u != v:
                    children[u].append(v)
                    waiting[v] += 1
    ready = [v for v in range(n_variables) if not waiting[v]]
    for v in ready:
        for u in children[v]:
            waiting[u] -= 1
            if not waiting[u]:
                ready.append(u)
    return heads if len(ready) == n_variables else [-1] * len(heads)


def flatten(program: Program, heads: Sequence[int] | None = None) -> FlatProgram:
    """A program's arrays as `reduce` takes them."""
    # heads: (F,): See `conditional_heads`. Default: no factor is known to be a conditional density, and nothing is left
    #     out.
    rank, by_rank = program.axis_rank, program.by_rank
    n, n_ops = len(program.scopes), len(program.outs)
    head = np.array([-1 if v < 0 else rank[v] for v in (heads or [-1] * program.n_factors)], np.int64)
    head_factor = np.full(program.n_variables + 1, -1, np.int64)
    for f, v in enumerate(head.tolist()):
        if v >= 0:
            head_factor[v] = f
    kinds = np.array(program.kinds or (COLLECT,) * n_ops, np.int64)
    answers = np.array(program.answers or (-1,) * n_ops, np.int64)
    posteriors = kinds == POSTERIOR
    answers[posteriors] = rank[answers[posteriors]]
    ptr, scope = ragged(program.scopes)
    in_ptr, ins = ragged(program.ins)
    in_factors = rank[scope[: ptr[program.n_factors]]]
    return FlatProgram(
        np.append(program.cardinality[by_rank], 1),
        ptr[:-1] + np.arange(n),
        ptr[1:] + np.arange(n),
        np.insert(rank[scope], ptr[1:], -1),
        kinds,
        np.array(program.outs, np.int64),
        in_ptr,
        ins,
        np.array(program.maximal, np.int64),
        answers,
        head,
        head_factor,
        program.evidence_factor[by_rank],
        np.array(program.roots, np.int64),
        np.array(program.wanted, np.int64),
        np.bincount(in_factors, minlength=program.n_variables + 1).astype(np.int64),
    )


def reduce(sk: FlatProgram, seen: NDArray[np.uint8], target: NDArray[np.bool_]) -> Reduced:
    """Restrict a program to a pattern and targets."""
    # sk: Where its case axis is longer than 1, every table that depends on the evidence has that axis, its fastest
    # seen: (V,) uint8: `FREE`, `HARD` or `SOFT` for each variable, by rank
    # target: (V,) bool: Variables whose posteriors are wanted, by rank; those of observed ones are never made
    flags = np.append(target, True).view(np.uint8)
    rep, length, scope, use, needed, cut = _loops.reduce(sk, np.append(seen, np.uint8(0)), flags)
    return Reduced(rep, length, scope, use, needed.view(np.bool_), cut.view(np.bool_))
