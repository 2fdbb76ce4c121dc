"""Posteriors of sequences, forward or forward and backward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, TableTooLarge, format_bytes, shown
from ..util.arguments import choice, several, whole_number
from .propagation import Propagation, chunks, raise_if_impossible
from .results import SequencePosteriors
from .side_by_side import SideBySide, SliceTargets, extended_table, side_by_side

if TYPE_CHECKING:
    from ..util.arrays import Bools, Floats, Ints
    from .sequences import Sequences
    from .step import Step

MOST_ANSWERS = 1 << 31  # bytes of the posteriors of a call
NEAR = 64  # slices by which lengths may differ in a part of a prediction
MOST_SPAN = 1 << 24  # cells of the answers of such a part
At = str | int | Iterable[int] | None


def posteriors(
    steps: tuple[Step, Step], read: Sequences, numbers: Sequence[int], at: At, joints: Any, on_error: str, *,
    smooth: bool,
) -> SequencePosteriors:  # fmt: skip
    """Posteriors of some variables of every slice, given the evidence so far or all of it."""
    # steps: the compiled slice with and without joints
    # joints: The sets that it keeps together, as the user gave them
    step = steps[0]
    net = step.net
    together = several(joints) or ()
    scopes = step.joints if together else {}  # a slice may keep sets together that nobody asks for
    wanted = [*numbers, *dict.fromkeys(scopes.values())]
    slices = slices_of(at, int(read.lengths.max()))
    shape = (read.n,) if slices is None else (read.n, len(slices))
    width = sum(map(step.width, wanted))
    check_size(shape, width, f'at="last" ({format_bytes(8 * read.n * width)}), fewer slices, or fewer targets=')
    arrays = {v: np.zeros((*shape, step.width(v))) for v in wanted}
    log_evidence, failed = _write_all(steps, read, SliceTargets(wanted, slices, smooth, arrays))
    if on_error == "error":
        raise_if_impossible(read, np.arange(read.n), failed)
    joint = {}
    for given, scope in zip(together, scopes, strict=True):
        table = step.joint(step.joints[scope], scope, arrays[step.joints[scope]])
        earlier = max(lag for (_, lag), number in step.number.items() if number in scope)
        table[read.lengths <= earlier if slices is None else (slice(None), slices < earlier)] = 0.0
        joint[tuple(given)] = table
    return SequencePosteriors(net, read, slices, log_evidence, {net.variables[v]: arrays[v] for v in numbers}, joint)


def _write_all(steps: tuple[Step, Step], read: Sequences, wanted: SliceTargets) -> tuple[Floats, Ints]:
    """Write the posteriors; ln P of each sequence, and its first impossible slice, else -1."""
    step, plain = steps
    compiled = side_by_side(step, plain, read, wanted)
    if compiled is None:
        log_evidence, failed, unsure = _slice_by_slice(step, read, wanted)
    else:
        compiled.run()
        log_evidence, failed, unsure = compiled.log_evidence, compiled.failed, compiled.unsure
    if unsure.any():
        rows = np.flatnonzero(unsure)
        some, arrays = read.some(rows), {v: np.zeros((len(rows), *x.shape[1:])) for v, x in wanted.arrays.items()}
        table = extended_table(step, some, False, wanted.targets)
        again = SideBySide(step, step, some, table, wanted._replace(arrays=arrays))
        again.run()
        for v, x in again.wanted.arrays.items():
            wanted.arrays[v][rows] = x
        log_evidence[rows], failed[rows] = again.log_evidence, again.failed
    return log_evidence, failed


def _slice_by_slice(step: Step, read: Sequences, wanted: SliceTargets) -> tuple[Floats, Ints, Bools]:
    """`_write_all`, slice after slice by a backend's tables of cases; and the sequences that take extended numbers."""
    log_evidence, failed, unsure = np.zeros(read.n), np.full(read.n, -1), read.extended
    place = None if wanted.slices is None else {int(t): i for i, t in enumerate(wanted.slices)}
    for chosen in chunks(step, read, sum(step.width(v) for v in wanted.targets), ~unsure):
        run = Propagation(step, read, chosen)

        def visit(t: int, which: Ints, cells: Floats, run: Propagation = run) -> None:
            rows = run.chosen[which]
            if place is None:
                ends = run.lengths[which] == t + 1
                write(wanted.arrays, (rows[ends],), cells[ends])
            elif t in place:
                write(wanted.arrays, (rows, np.full(len(rows), place[t])), cells)

        done = run.forward(keep=True) if wanted.smooth else run.forward(wanted.targets, visit)
        log_evidence[chosen], failed[chosen] = done.log_evidence, done.failed
        if wanted.smooth:
            for t, which, alpha, beta in run.backward():
                if wanted.targets and (place is None or t in place):
                    visit(t, which, run.run(t, which, alpha, beta, wanted.targets).posterior)
        unsure[chosen] |= run.unsure
    return log_evidence, failed, unsure


def predictions(
    step: Step, read: Sequences, numbers: Sequence[int], steps: int, on_error: str
) -> SequencePosteriors:
    """Posteriors of some variables in the slices that follow, in which nothing is observed."""
    net = step.net
    check_size((read.n, steps), sum(map(step.width, numbers)), "fewer steps, or fewer targets=")
    arrays = {v: np.zeros((read.n, steps, step.width(v))) for v in numbers}
    longer, lengths = read.continued(steps), read.lengths
    log_evidence, failed = np.zeros(read.n), np.full(read.n, -1)
    for part in _of_similar_length(lengths, sum(arrays[v].shape[-1] for v in numbers) + 1, steps):
        own, first = lengths[part], int(lengths[part].min())
        slices = np.arange(first, int(own.max()) + steps)
        wide = {v: np.zeros((len(part), len(slices), step.width(v))) for v in numbers}
        some = longer if len(part) == read.n else longer.some(part)
        wanted = SliceTargets([*numbers], slices, False, wide)
        log_evidence[part], failed[part] = _write_all((step, step), some, wanted)
        places = np.arange(len(part))[:, None], (own - first)[:, None] + np.arange(steps)
        for v, table in wide.items():
            arrays[v][part] = table[places]
    if on_error == "error":
        raise_if_impossible(longer, np.arange(read.n), failed)
    named = {net.variables[v]: table for v, table in arrays.items()}
    return SequencePosteriors(net, read.following(steps), np.arange(steps), log_evidence, named, {})


def _of_similar_length(lengths: Ints, cells: int, steps: int) -> Iterator[Ints]:
    """The sequences in parts, each in ascending order, whose slices behind the shortest one's end fit into memory."""
    # cells, steps: Of the answers of a slice, and slices behind each end
    order = np.argsort(lengths, kind="stable")
    by_length, at = lengths[order], 0
    while at < len(order):
        end = int(np.searchsorted(by_length, by_length[at] + max(steps, NEAR), side="right"))
        span = int(by_length[end - 1] - by_length[at]) + steps
        if span > steps:
            end = min(end, at + max(MOST_SPAN // (span * cells), 1))
        yield np.sort(order[at:end])
        at = end


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
            f"the answers would need {format_bytes(size)}, more than {format_bytes(MOST_ANSWERS)}; "
            f"use {instead}"
        )


def write(arrays: Mapping[int, Floats], where: tuple[Ints, ...], cells: Floats) -> None:
    """Write the targets' cells, side by side, to some places of each target's array."""
    at = 0
    for table in arrays.values():
        table[where] = cells[:, at : at + table.shape[-1]]
        at += table.shape[-1]
