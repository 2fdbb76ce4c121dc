"""Most probable sequences and samples: states chosen from the last slice to the first."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.base import Evidence
from ..backends.reference import ExtendedEvidence
from ..errors import ArgumentError
from ..util.elementary import log, logs
from .propagation import Propagation, chunks, raise_if_impossible
from .side_by_side import Choosing, choosing, extended_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ..model.dynamic import DynamicNetwork
    from ..util.arrays import Bools, Floats, Ints
    from .sequences import Sequences
    from .step import Step

# A forward pass by maximum (Viterbi) or by sum keeps the message into every slice. Backward, the configuration of the
# interface before a slice is chosen given that of the interface after it: the best one, or one at random. With these
# known the slices are independent cases, and all of their other variables are chosen at once.

BLOCK = 1 << 23  # random numbers that are drawn at a time
PART = 1 << 14  # slices whose states fit the cache
LN2 = log(2.0)
MOST_KEYS = 1 << 62  # configurations of a slice that have a number


def most_probable(step: Step, read: Sequences, on_error: str) -> tuple[NDArray[np.int32], Floats]:
    """The best states (R, V), -1 where the evidence is impossible, and ln P(states, evidence) of each sequence."""
    states, log_joint = _most_probable(step, read, "flag", with_evidence=False)
    if np.isfinite(log_joint).all() and states.min(initial=0) >= 0:
        return states, log_joint
    return _most_probable(step, read, on_error, with_evidence=True)


def _most_probable(
    step: Step, read: Sequences, on_error: str, *, with_evidence: bool
) -> tuple[NDArray[np.int32], Floats]:
    # with_evidence: Whether every impossible sequence is noticed, which takes more time
    chosen = _interfaces(step, read, on_error, None, with_evidence)[0]
    states = _with_others(step, read, chosen, None)
    return states, _log_joint(step, read, states)


def posterior_samples(step: Step, read: Sequences, n: int, seed: object) -> NDArray[np.int32]:
    """n samples of the states given the evidence, (n, R, V)."""
    rng = generator(seed)
    chosen = _interfaces(step, read, "error", rng.random((n, len(read.codes))))
    return np.stack([_with_others(step, read, one, rng) for one in chosen]) if n else chosen


def _interfaces(
    step: Step, read: Sequences, on_error: str, uniforms: Floats | None, with_evidence: bool = True
) -> NDArray[np.int32]:
    """States (n, R, V) of what is observed and of the interface after each slice; -2 in impossible sequences."""
    # uniforms: (n, R) numbers in [0, 1) that choose configurations; None: the best ones, n = 1
    # with_evidence: Whether every impossible sequence must be noticed
    compiled = choosing(step, read, uniforms, with_evidence)
    if compiled is None:
        chosen, failed, unsure = _slice_by_slice(step, read, uniforms)
    else:
        compiled.run()
        chosen, failed, unsure = compiled.chosen, compiled.failed, compiled.unsure
    if unsure.any():
        some, mine = read.some(np.flatnonzero(unsure)), np.repeat(unsure, read.lengths)
        table = extended_table(step, some, uniforms is None)
        again = Choosing(step, some, table, None if uniforms is None else np.ascontiguousarray(uniforms[:, mine]))
        again.run()
        chosen[:, mine], failed[unsure] = again.chosen, again.failed
    if on_error == "error":
        raise_if_impossible(read, np.arange(read.n), failed)
    states = np.empty((len(chosen), *read.codes.shape), np.int32)
    states[:] = read.codes
    configurations = np.array(np.unravel_index(np.arange(step.cells), step.shape), np.int32)
    for place, v in enumerate(step.after):
        if v < step.n:  # a variable of the slice itself, or a static one
            unknown = states[:, :, v] == -1
            if uniforms is not None:
                unknown &= chosen >= 0
            np.copyto(states[:, :, v], configurations[place].take(chosen), where=unknown)
    for v in step.static:  # chosen with the interface before any later slice
        first = np.repeat(read.ptr[:-1], read.lengths)
        states[:, :, v] = np.where(states[:, :, v] == -1, states[:, first, v], states[:, :, v])
    if (failed >= 0).any():
        states[:, np.repeat(failed >= 0, read.lengths)] = -2
    return states


def _slice_by_slice(step: Step, read: Sequences, uniforms: Floats | None) -> tuple[Ints, Ints, Bools]:
    """Configurations (n, R) chosen after each slice, see `Choosing`; the first impossible slice of each sequence.

    The last result are the sequences that take extended numbers.
    """
    n = 1 if uniforms is None else len(uniforms)
    chosen, failed, unsure = np.full((n, len(read.codes)), -1), np.full(read.n, -1), read.extended
    for part in chunks(step, read, 0, ~unsure):
        run = Propagation(step, read, part, maximal=uniforms is None)
        ahead = run.forward(keep=True)
        failed[part], unsure[part] = ahead.failed, run.unsure
        known = np.full((n, run.n), -1)  # the configuration after a slice
        if uniforms is None:
            known[0] = chosen[0, read.ptr[1:][part] - 1] = _chosen(ahead.last, None)
        for t in range(run.length - 1, 0, -1):
            which = run.active(t)
            if not len(which):
                continue
            alpha, rows = run.into(t)[which], run.rows(t, which)
            for j in range(n):
                after = known[j, which]
                beta = np.ones((len(which), step.cells))
                beta[after >= 0] = np.arange(step.cells) == after[after >= 0, None]
                cells = run.run(t, which, alpha, beta, [step.before_number]).posterior
                cells = step.joint_of(step.before_number, step.before, cells)
                known[j, which] = _chosen(cells, None if uniforms is None else uniforms[j, rows])
                chosen[j, rows - 1] = known[j, which]
    return chosen, failed, unsure


def _chosen(cells: Floats, uniforms: Floats | None) -> Ints:
    """The best cell of each row, the first of equal ones; or one at random."""
    if uniforms is None:
        return np.asarray(cells.argmax(axis=1))
    below = np.cumsum(cells, axis=1)
    return np.asarray((below <= (uniforms * below[:, -1])[:, None]).sum(axis=1))


def _slices(step: Step, read: Sequences, rows: Ints, at: Ints) -> Iterator[tuple[int, frozenset[int], Ints]]:
    """Rows whose slices have the same tables: the first slice among them, what is set, and their places in `rows`."""
    # at: the slice of each row
    rest = np.ones(len(rows), np.bool_)
    for t in sorted({*range(step.order), *read.cuts}):
        own = at == t
        if own.any():
            rest &= ~own
            yield t, read.cut(t), np.flatnonzero(own)
    if rest.any():
        yield int(at[rest].min()), read.cut_always, np.flatnonzero(rest)


def _with_copies(step: Step, states: NDArray[np.int32], rows: Ints, t: Ints) -> NDArray[np.int32]:
    """States of the step network in some rows: the slice and earlier copies, in state 0 where they do not exist."""
    # t: the slice of each row
    table = np.zeros((len(rows), step.n_variables), np.int32)
    table[:, : step.n] = states[rows]
    for (v, lag), number in step.number.items():
        if lag:
            table[:, number] = np.where(t >= lag, states[rows - np.minimum(lag, t), v], 0)
    return table


def _with_functions(net: DynamicNetwork, states: NDArray[np.int32]) -> NDArray[np.int32]:
    """Choose, in place, functions of other variables in their slice whose states are known, such as joined parents."""
    for v in _in_order(net):
        above, table = net.parents(v), np.asarray(net.cpt(v))
        if above and not any(lag for _, lag in above) and (np.count_nonzero(table, axis=-1) == 1).all():
            parents = states[:, [net.index(p) for p, _ in above]]
            rows = np.flatnonzero((states[:, v] == -1) & (parents >= 0).all(axis=1))
            states[rows, v] = table.argmax(axis=-1)[tuple(parents[rows].T)]
    return states


def _with_others(
    step: Step, read: Sequences, states: NDArray[np.int32], rng: np.random.Generator | None
) -> NDArray[np.int32]:
    """Choose the variables that neither evidence nor interfaces determine; -1 in impossible sequences."""
    states = _with_functions(step.net, states)
    all_free = np.flatnonzero(states == -1) // step.n
    all_free = all_free[np.diff(all_free, prepend=-1) > 0]
    at = all_free - read.ptr[np.searchsorted(read.ptr, all_free, side="right") - 1]
    for t, cut, own in _slices(step, read, all_free, at):
        rows = all_free[own]
        free = states[rows] == -1
        alone = np.zeros(len(rows), np.bool_)
        for v in read.likelihood:
            alone |= free[:, v]
        sweep = step.messages(t, cut).maximal() if rng is None else step.messages(t, cut).summing()
        numbers = partial(_uniforms, rng, sweep.program.n_variables)
        cases = _with_copies(step, states, rows, at[own])
        if alone.any():
            mine = {v: w[rows[alone]] for v, w in read.likelihood.items()}
            if rng is None:
                made = sweep.best_rows(cases[alone], mine).states
            else:
                made = sweep.draw_rows(cases[alone], mine, numbers)
            states[rows[alone]] = made[:, : step.n]
            for i in np.flatnonzero(alone & read.extended_rows[rows]).tolist():
                weights = ({v: w[rows[i]] for v, w in x.items()} for x in (read.likelihood, read.exponents))
                case = ExtendedEvidence(cases[i], *weights)
                one = sweep.best(case).states if rng is None else sweep.draw(case, 1, numbers)
                states[rows[i]] = one[0, : step.n]
        if alone.all():
            continue
        distinct, index = _distinct(cases[~alone], step)
        if rng is None:
            states[rows[~alone]] = sweep.best_rows(distinct, {}).states[index, : step.n]
            continue
        order, ptr = np.argsort(index, kind="stable"), np.cumsum([0, *np.bincount(index, minlength=len(distinct))])
        for i, case in enumerate(distinct):
            mine_rows = rows[~alone][order[ptr[i] : ptr[i + 1]]]
            made = sweep.draw(Evidence(case), len(mine_rows), numbers)
            states[mine_rows] = made[:, : step.n]
    for v in step.static:
        states[:, v] = states[np.repeat(read.ptr[:-1], read.lengths), v]
    return np.maximum(states, -1, out=states)


def _distinct(cases: NDArray[np.int32], step: Step) -> tuple[NDArray[np.int32], Ints]:
    """The distinct rows, in ascending order, and which of them each row is."""
    cards = [len(step.net.states(v)) + 1 for v in step.origin]
    if math.prod(cards) > MOST_KEYS:
        distinct, index = np.unique(cases, axis=0, return_inverse=True)
        return distinct, index.ravel()
    keys = np.ravel_multi_index(tuple(cases.T + 1), cards)
    _, first, index = np.unique(keys, return_index=True, return_inverse=True)
    return cases[first], index.ravel()


def _uniforms(rng: np.random.Generator | None, n_variables: int, n: int) -> Floats:
    assert rng is not None
    return rng.random((n, n_variables))


def _log_joint(step: Step, read: Sequences, states: NDArray[np.int32]) -> Floats:
    """ln P(states, evidence) of each sequence; -inf if it is impossible."""
    columns, n = np.maximum(states.T, 0, order="C"), len(states)
    total, tables = np.empty(n), _log_tables(step, step.order, read.cut_always)
    for first in range(0, n, PART):
        total[first : first + PART] = _log_slices(step, step.order, tables, columns, slice(first, min(first + PART, n)))
    for t in sorted({*range(step.order), *read.cuts}):
        rows = (read.ptr[:-1] + t)[t < read.lengths]
        kind = min(t, step.order)
        total[rows] = _log_slices(step, kind, _log_tables(step, kind, read.cut(t)), columns, rows)
    for v, w in read.likelihood.items():
        total += logs(w[np.arange(n), columns[v]])
        if v in read.exponents:
            total += read.exponents[v][np.arange(n), columns[v]] * LN2
    return np.where(states[read.ptr[:-1], 0] >= 0, np.add.reduceat(total, read.ptr[:-1]), -np.inf)


def _log_tables(step: Step, kind: int, cut: frozenset[int]) -> list[Floats]:
    """The logarithms of every variable's factor; see `Step.table`."""

    def make() -> list[Floats]:
        return [logs(step.table(v, kind, v in cut)) for v in range(step.n)]

    return step.tree(kind, cut).cached("log tables", 0, make)


def _log_slices(
    step: Step, kind: int, tables: list[Floats], columns: NDArray[np.int32], rows: slice | Ints
) -> Floats:
    """ln P of the states of some slices of a kind, given those before; of a slice of rows the very first are wrong."""
    # columns: (V, R) states
    n = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
    total = np.zeros(n)
    lags = {number: (v, lag) for (v, lag), number in step.number.items()}
    for v, table in enumerate(tables):
        cell, size = columns[v, rows].astype(np.int64), table.shape[-1]
        for p, card in zip(reversed(step.parents[v]), table.shape[-2::-1], strict=True):
            own, lag = lags[step.number[p]]
            stride, size = np.int64(size), size * card
            if lag > kind:  # no such slice: state 0
                continue
            if isinstance(rows, slice):
                missing = max(lag - rows.start, 0)
                cell[missing:] += columns[own, max(rows.start - lag, 0) : max(rows.stop - lag, 0)] * stride
            else:
                cell += columns[own, rows - lag] * stride
        total += table.ravel().take(cell)
    return total


def prior_samples(net: DynamicNetwork, n: int, length: int, seed: object) -> NDArray[np.int32]:
    """n sequences (n, length, V), drawn slice by slice from the first to the last."""
    rng, n_vars = generator(seed), len(net)
    order = _in_order(net)
    states = np.empty((n, length, n_vars), np.int32)
    each = max(BLOCK // (length * n_vars), 1)
    for first in range(0, n, each):
        part = states[first : first + each]
        uniforms = rng.random(part.shape)
        for t in range(length):
            for v in order:
                name = net.variables[v]
                if name in net.static and t:
                    part[:, t, v] = part[:, 0, v]
                    continue
                above = [(net.index(p), lag) for p, lag in net.parents(v) if lag <= t]
                table = np.asarray(net.cpt(v, t), np.float64)
                cells = np.atleast_2d(table[tuple(part[:, t - lag, p] for p, lag in above)])
                part[:, t, v] = _chosen(cells, uniforms[:, t, v])
    return states


def _in_order(net: DynamicNetwork) -> list[int]:
    """The variables of a slice, parents of the same slice first."""
    above = {v: {net.index(p) for p, lag in net.parents(v) if lag == 0} for v in range(len(net))}
    order: list[int] = []
    while above:
        ready = min(v for v, parents in above.items() if not parents - set(order))
        order.append(ready)
        del above[ready]
    return order


def generator(seed: Any) -> np.random.Generator:
    """The generator of a seed."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"seed must be None, an integer of at least 0, or a numpy.random.Generator, not {seed!r}"
        ) from None
