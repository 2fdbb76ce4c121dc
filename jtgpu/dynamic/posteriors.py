"""Posteriors of sequences, forward or forward and backward."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, TableTooLarge, format_bytes, shown
from ..util.arguments import choice, several, whole_number
from .propagation import Propagation, chunks, raise_if_impossible
from .results import SequencePosteriors
from .side_by_side import Wanted, side_by_side

if TYPE_CHECKING:
    from ..util.arrays import Bools, Floats, Ints
    from .sequences import Sequences
    from .step import Step

MOST_ANSWERS = 1 << 31  # bytes of the posteriors of a call
At = str | int | Iterable[int] | None


def posteriors(
    steps: tuple[Step, Step], read: Sequences, numbers: Sequence[int], at: At, joints: Any, on_impossible: str, *,
    smooth: bool,
) -> SequencePosteriors:  # fmt: skip
    """Posteriors of some variables of every slice, given the evidence so far or all of it."""
    # steps: the compiled slice with and without joints
    # joints: The sets that it keeps together, as the user gave them
    step, plain = steps
    net = step.net
    wanted = [*numbers, *dict.fromkeys(step.joints.values())]
    slices = slices_of(at, int(read.lengths.max()))
    shape = (read.n,) if slices is None else (read.n, len(slices))
    check_size(shape, sum(map(step.width, wanted)), 'at="last", or fewer slices')
    arrays = {v: np.zeros((*shape, step.width(v))) for v in wanted}
    compiled = side_by_side(step, plain, read, Wanted(wanted, slices, smooth, arrays))
    if compiled is None:
        log_evidence = _slice_by_slice(step, read, Wanted(wanted, slices, smooth, arrays), on_impossible)
    else:
        compiled.run()
        if compiled.unsure.any():
            for table in arrays.values():
                table[compiled.unsure] = 0.0
            again = _slice_by_slice(step, read, compiled.wanted, on_impossible, compiled.unsure)
            compiled.log_evidence[compiled.unsure] = again[compiled.unsure]
            compiled.failed[compiled.unsure] = -1
        if on_impossible == "error":
            raise_if_impossible(read, np.arange(read.n), compiled.failed)
        log_evidence = compiled.log_evidence
    joint = {}
    for given, scope in zip(several(joints) or (), step.joints, strict=True):
        joint[tuple(given)] = step.joint(step.joints[scope], scope, arrays[step.joints[scope]])
    return SequencePosteriors(net, read, slices, log_evidence, {net.variables[v]: arrays[v] for v in numbers}, joint)


def _slice_by_slice(
    step: Step, read: Sequences, wanted: Wanted, on_impossible: str, some: Bools | None = None
) -> Floats:
    """Write the posteriors, slice after slice by a backend's tables of cases; ln P of each sequence."""
    log_evidence = np.zeros(read.n)
    place = None if wanted.slices is None else {int(t): i for i, t in enumerate(wanted.slices)}
    # some: (N,) the sequences that are wanted; default: all
    for chosen in chunks(step, read, sum(step.width(v) for v in wanted.targets), some):
        run = Propagation(step, read, chosen)

        def visit(t: int, which: Ints, cells: Floats, run: Propagation = run) -> None:
            rows = run.chosen[which]
            if place is None:
                ends = run.lengths[which] == t + 1
                write(wanted.arrays, (rows[ends],), cells[ends])
            elif t in place:
                write(wanted.arrays, (rows, np.full(len(rows), place[t])), cells)

        done = run.forward(keep=True) if wanted.smooth else run.forward(wanted.targets, visit)
        if on_impossible == "error":
            raise_if_impossible(read, chosen, done.failed)
        log_evidence[chosen] = done.log_evidence
        if wanted.smooth:
            for t, which, alpha, beta in run.backward():
                if wanted.targets and (place is None or t in place):
                    visit(t, which, run.run(t, which, alpha, beta, wanted.targets).posterior)
    return log_evidence


def predictions(
    step: Step, read: Sequences, numbers: Sequence[int], steps: int, on_impossible: str
) -> SequencePosteriors:
    """Posteriors of some variables in the slices that follow, in which nothing is observed."""
    net = step.net
    check_size((read.n, steps), sum(map(step.width, numbers)), "fewer steps")
    arrays = {v: np.zeros((read.n, steps, step.width(v))) for v in numbers}
    longer, lengths = read.continued(steps), read.lengths
    log_evidence = np.zeros(read.n)
    for chosen in chunks(step, longer, sum(step.width(v) for v in numbers)):
        run = Propagation(step, longer, chosen)

        def visit(t: int, which: Ints, cells: Floats, chosen: Ints = chosen) -> None:
            late = t >= lengths[chosen[which]]
            rows = chosen[which[late]]
            write(arrays, (rows, t - lengths[rows]), cells[late])

        done = run.forward(numbers, visit)
        if on_impossible == "error":
            raise_if_impossible(longer, chosen, done.failed)
        log_evidence[chosen] = done.log_evidence
    future = type(read)(np.zeros((read.n * steps, 0), np.int32), np.arange(read.n + 1) * steps)
    named = {net.variables[v]: table for v, table in arrays.items()}
    return SequencePosteriors(net, future, np.arange(steps), log_evidence, named, {})


def slices_of(at: At, length: int) -> Ints | None:
    """The slices that are requested; None: the last one of each sequence."""
    if at is None:
        return np.arange(length)
    if isinstance(at, str):
        choice("at", at, ("last",))
        return None
    listed = [at] if isinstance(at, (int, np.integer)) else several(at)
    if not listed:
        raise ArgumentError(f'at must be "last", a slice, or a list of slices, not {shown(at)}')
    slices = [whole_number("a slice of at", t, 0) for t in listed]
    if max(slices) >= length:
        raise ArgumentError(f"at has slice {max(slices)}; the longest sequence has slices 0 to {length - 1}")
    return np.array(slices)


def check_size(shape: Sequence[int], cells: int, instead: str) -> None:
    """Raise `TableTooLarge` if the answers would not fit into memory."""
    # cells: of the targets of a slice; instead: what the caller may ask for
    size = 8 * int(np.prod(shape)) * cells
    if size > MOST_ANSWERS:
        raise TableTooLarge(
            f"the posteriors would need {format_bytes(size)}, more than {format_bytes(MOST_ANSWERS)}; "
            f"use {instead}, or fewer targets="
        )


def write(arrays: Mapping[int, Floats], where: tuple[Ints, ...], cells: Floats) -> None:
    """Write the targets' cells, side by side, to some places of each target's array."""
    at = 0
    for table in arrays.values():
        table[where] = cells[:, at : at + table.shape[-1]]
        at += table.shape[-1]
