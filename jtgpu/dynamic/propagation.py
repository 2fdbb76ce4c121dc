"""Messages from slice to slice, forward and backward, for many sequences side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..backends.table import Table
from ..errors import ImpossibleEvidence

if TYPE_CHECKING:
    from ..backends.base import TableAnswer
    from ..util.arrays import Bools, Floats, Ints
    from .sequences import Sequences
    from .step import Step

# Sequences are sorted by length, the longest first, so those that have a slice t are the first ones. Messages are
# normalised in every slice: ln P of the evidence is the sum of ln c over the slices, added with compensation.

KEPT = 128 << 20  # bytes of messages up to which those of all slices are kept
LEAST = -1000  # log2 of entries of messages from which on digits may be lost
MOST_BYTES = 256 << 20  # of messages and of answers of a chunk of sequences, about


class Forward(NamedTuple):
    """Results of a forward pass."""

    log_evidence: Floats  # (B,) -inf if impossible
    failed: Ints  # (B,) the first impossible slice; -1: none
    last: Floats  # (B, K) the messages out of the last slices


class Propagation:
    """The passes over some sequences."""

    def __init__(self, step: Step, sequences: Sequences, chosen: Ints, maximal: bool = False):
        # chosen: (B,) numbers of the sequences, the longest first
        # maximal: Whether messages eliminate variables by maximum; ln P of a forward pass has no meaning then
        self.step, self.sequences, self.chosen, self.maximal = step, sequences, chosen, maximal
        self.lengths = np.diff(sequences.ptr)[chosen]
        self._first = sequences.ptr[:-1][chosen]
        self.n = len(chosen)
        self.length = int(self.lengths.max(initial=0))
        self.alive = np.ones(self.n, np.bool_)
        self.unsure = np.zeros(self.n, np.bool_)  # sequences whose messages take extended numbers; not alive
        self._kept: dict[int, Floats] = {}  # messages into slices: those of all slices, or of every stride-th
        self._block: dict[int, Floats] = {}
        everything = 8 * self.n * step.cells * self.length
        self.stride = 1 if everything <= KEPT else max(math.isqrt(self.length), 1)

    def active(self, t: int) -> Ints:
        """The sequences that have a slice t and are possible so far."""
        n = int(np.searchsorted(-self.lengths, -t, side="left"))
        return np.flatnonzero(self.alive[:n])

    def rows(self, t: int, which: Ints) -> Ints:
        """Their rows of slice t."""
        return np.asarray(self._first[which] + t)

    def _certain(self, t: int, which: Ints, message: Floats) -> Ints:
        """The sequences in which no entry of the message that leaves slice t is too small for a number."""
        rows, least = self.rows(t, which), self.step.least(t, self.sequences.cut(t))
        for table in (message[which], *(w[rows] for w in self.sequences.likelihood.values())):
            least = least + np.frexp(table.min(axis=1, where=table > 0, initial=1.0))[1] - 1
        lost = which[least < LEAST]
        self.unsure[lost], self.alive[lost] = True, False
        return which[~self.unsure[which]]

    def run(
        self, t: int, which: Ints, alpha: Floats | None, beta: Floats | None, targets: Sequence[int]
    ) -> TableAnswer:
        """Run slice t with weights of the interfaces; the answer has the targets' cells side by side."""
        states, weights = self.case(t, which, alpha, beta)
        tree = self.step.tree(t, self.sequences.cut(t))
        return self.step.backend_of(tree, self.maximal).run(Table.of(states, weights, list(targets)))

    def case(
        self, t: int, which: Ints, alpha: Floats | None, beta: Floats | None
    ) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.int32]], dict[int, Floats]]:
        """States and weights of slice t."""
        return case_of(self.step, self.sequences, self.rows(t, which), alpha, beta)

    def forward(
        self, targets: Sequence[int] = (), visit: Callable[[int, Ints, Floats], None] | None = None,
        keep: bool = False,
    ) -> Forward:  # fmt: skip
        """Filter: the messages of every slice, and answers given the evidence so far.

        `visit` gets the slice, the sequences and the cells of their targets; `keep`: for a backward pass.
        """
        step = self.step
        alpha = np.tile(step.first(), (self.n, 1))
        total, rest = np.zeros(self.n), np.zeros(self.n)
        failed = np.full(self.n, -1)
        for t in range(self.length):
            which = self.active(t)
            if not len(which):
                break
            if keep and t % self.stride == 0:
                self._kept[t] = alpha.copy()
            which = self._certain(t, which, alpha)
            if not len(which):
                continue
            cells, log_c, impossible = self._filter(t, which, alpha, targets)
            _add(total, rest, which, np.where(impossible, 0.0, log_c))
            if impossible.any():
                failed[which[impossible]] = t
                self.alive[which[impossible]] = False
                which, cells = which[~impossible], cells[~impossible]
            if visit is not None:
                visit(t, which, cells)
        log_evidence = np.where(failed >= 0, -np.inf, total + rest)
        return Forward(log_evidence, failed, alpha)

    def _filter(self, t: int, which: Ints, alpha: Floats, targets: Sequence[int]) -> tuple[Floats, Floats, Bools]:
        """Run slice t and replace the messages of its sequences; the targets' cells, ln c, and which are impossible."""
        step = self.step
        answer = self.run(t, which, alpha[which], None, [*targets, step.after_number])
        at = answer.posterior.shape[1] - step.width(step.after_number)
        alpha[which] = step.joint_of(step.after_number, step.after, answer.posterior[:, at:])
        return answer.posterior[:, :at], answer.log_evidence, answer.impossible

    def into(self, t: int) -> Floats:
        """(B, K) the messages into slice t, made again from those that were kept."""
        if t in self._kept:
            return self._kept[t]
        if t not in self._block:
            self._block.clear()
            first = t - t % self.stride
            alpha = self._kept[first].copy()
            for s in range(first, t):
                self._filter(s, self.active(s), alpha, ())
                self._block[s + 1] = alpha.copy()
        return self._block[t]

    def backward(self) -> Iterator[tuple[int, Ints, Floats, Floats]]:
        """The slices from the last to the first: sequences, messages into the slice, and weights of what follows."""
        step = self.step
        beta = np.ones((self.n, step.cells))
        for t in range(self.length - 1, -1, -1):
            which = self.active(t)
            if not len(which):
                continue
            yield t, which, self.into(t)[which], beta[which]
            which = self._certain(t, which, beta)
            if t and len(which):
                answer = self.run(t, which, None, beta[which], [step.before_number])
                beta[which] = step.joint_of(step.before_number, step.before, answer.posterior)


def raise_if_impossible(sequences: Sequences, chosen: Ints, failed: Ints) -> None:
    """Raise for the first impossible one of some sequences; `failed`: its first impossible slice, else -1."""
    bad = np.flatnonzero(failed >= 0)
    if len(bad):
        i = int(bad[np.argmin(chosen[bad])])
        name = sequences.name(int(chosen[i]), int(failed[i]))
        raise ImpossibleEvidence(
            f"{name}: the evidence up to this slice has probability 0; on_error=\"flag\" answers the other "
            "sequences"
        )


def case_of(
    step: Step, sequences: Sequences, rows: Ints, alpha: Floats | None, beta: Floats | None
) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.int32]], dict[int, Floats]]:
    """States and weights of rows of slices with the same tables."""
    states = np.full((len(rows), step.n_variables), -1, np.int32)
    states[:, : step.n] = sequences.codes[rows]
    weights = {v: w[rows] for v, w in sequences.likelihood.items()}
    pairs = ((step.before_number, step.before, alpha), (step.after_number, step.after, beta))
    for number, scope, table in pairs:
        if table is not None:
            cells = step.cells_of(number, scope, table)
            weights[number] = weights[number] * cells if number in weights else cells
    return states, weights


def _add(total: Floats, rest: Floats, which: Ints, x: Floats) -> None:
    """Add with Neumaier's compensation."""
    old = total[which]
    new = old + x
    rest[which] += np.where(np.abs(old) >= np.abs(x), (old - new) + x, (x - new) + old)
    total[which] = new


def chunks(step: Step, sequences: Sequences, cells: int, which: Bools | None = None) -> Iterator[Ints]:
    """The sequences, the longest first, in parts whose messages and answers fit into memory."""
    # cells: Of the answers of a slice
    # which: (N,) the sequences that are wanted; default: all
    lengths = np.diff(sequences.ptr)
    order = np.argsort(-lengths, kind="stable")
    order = order if which is None else order[which[order]]
    at = 0
    while at < len(order):
        longest = max(int(lengths[order[at]]), 1)
        each = 8 * (2 * math.isqrt(longest) + 4) * step.cells + 8 * cells
        n = max(MOST_BYTES // each, 1)
        yield order[at : at + n]
        at += n
