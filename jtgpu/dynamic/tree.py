"""`DynamicTree`: queries of dynamic networks, exact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, EvidenceError, PlanError, TableTooLarge, format_bytes, shown
from ..inference.queries.posteriors import as_list
from ..util.arguments import choice, several, whole_number
from ..util.lru import LRU
from .propagation import Propagation, chunks
from .results import SequencePosteriors
from .sequences import read_sequences
from .step import Step
from .stream import Stream

if TYPE_CHECKING:
    from ..model.dynamic import DynamicNetwork
    from ..util.arrays import Floats, Ints
    from ..util.options import BackendName, OnProblem
    from .sequences import Sequences

MOST_ANSWERS = 1 << 31  # bytes of the posteriors of a call
At = str | int | Iterable[int] | None


class DynamicTree:
    """A compiled dynamic network; created by ``dyn.compile()``.

    One slice is planned, whatever the length of the sequences: its junction tree keeps the interfaces to the slices
    before and after it together (Murphy, Dynamic Bayesian Networks, 2002, section 3.5). Sequences are a long frame with
    columns ``id`` and ``time``, a list of frames, a mapping of variables to (B, T) arrays, or (B, T, V) state numbers.
    None, NaN and -1 mean "not observed".

    Parameters
    ----------
    net : DynamicNetwork
    backend, options
        See `BayesianNetwork.compile`.

    Raises
    ------
    TableTooLarge
        If the interface between slices has too many configurations; the message names it.
    """

    def __init__(self, net: DynamicNetwork, backend: BackendName = "auto", **options: Any):
        self._net, self._backend_name, self._options = net, backend, options
        self._steps: LRU[Any, Step] = LRU(8)
        self.step_of(())  # an interface that is too large is an error here

    def __getstate__(self) -> dict[str, Any]:
        return {"net": self._net, "backend": self._backend_name, "options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["net"], state["backend"], **state["options"])  # type: ignore[misc]

    @property
    def network(self) -> DynamicNetwork:
        """The network that was compiled."""
        return self._net

    @property
    def backend(self) -> str:
        """Name of the backend."""
        return self.step.tree(0).backend

    @property
    def step(self) -> Step:
        """The compiled slice, without joints."""
        return self.step_of(())

    def step_of(self, joints: tuple[tuple[int, ...], ...]) -> Step:
        """The compiled slice that keeps some sets together."""
        return self._steps.get_or_make(joints, lambda: Step(self._net, self._backend_name, self._options, joints))

    def reload(self, net: DynamicNetwork) -> None:
        """Replace the CPTs by those of a network with the same variables, states and arcs; the plan stays.

        Raises
        ------
        PlanError
            If the network has other variables, states or arcs.
        """
        if not self._net.has_structure_of(net):
            raise PlanError(f"{net!r} differs from {self._net!r} in variables, states or arcs, not only in numbers")
        for step in self._steps.values():
            step.reload(net)
        self._net = net

    def __repr__(self) -> str:
        return f"DynamicTree({self._net.name!r}, backend={self.backend!r})"

    # Posteriors -----------------------------------------------------------------------------------------------

    def filter(  # noqa: PLR0913
        self, sequences: Any, *, id: str | None = None, time: str | None = None,
        likelihood: Mapping[Any, Any] | None = None, do: Mapping[Any, Any] | None = None, targets: Any = None,
        at: At = None, joints: Any = None, on_gap: str = "error", on_impossible: OnProblem = "error",
    ) -> SequencePosteriors:  # fmt: skip
        """Compute posteriors in every slice given the evidence up to this slice.

        Parameters
        ----------
        sequences : data frame, list of data frames, mapping of (B, T) arrays, or (B, T, V) array of int
        id, time : str, optional
            Columns of a long frame: the sequence of each row, and its time. Times must increase in each sequence.
            Without `id` the frame is one sequence.
        likelihood : mapping, optional
            Variable to P(observation | state): (states,), (rows, states), or (B, T, states).
        do : mapping, optional
            Interventions: variable to the state that it is set to in all slices, or to ``{slice: state}``.
        targets : str or iterable of str, optional
            Default: all variables.
        at : "last", int, or iterable of int, optional
            Slices of the result, counted from 0. Default: all.
        joints : list of tuples, optional
            Sets whose joint posteriors are computed as well, such as ``[("rain[t]", "rain[t-1]")]``.
        on_gap : {"error", "empty"}
            Whether a missing integer time is an error or a slice without observations.
        on_impossible : {"error", "flag"}
            Whether an impossible sequence raises an error, or has zeros from its first impossible slice on.

        Returns
        -------
        SequencePosteriors

        Raises
        ------
        ImpossibleEvidence
            If the evidence of a sequence has probability zero; names sequence and slice.
        DataError
            If times do not increase, or one is missing.
        """
        choice("on_impossible", on_impossible, ("error", "flag"))
        read = self._read(sequences, id, time, likelihood, do, on_gap)
        return self._posteriors(read, targets, at, joints, on_impossible, smooth=False)

    def smooth(  # noqa: PLR0913
        self, sequences: Any, *, id: str | None = None, time: str | None = None,
        likelihood: Mapping[Any, Any] | None = None, do: Mapping[Any, Any] | None = None, targets: Any = None,
        at: At = None, joints: Any = None, on_gap: str = "error", on_impossible: OnProblem = "error",
    ) -> SequencePosteriors:  # fmt: skip
        """Compute posteriors in every slice given the evidence of the whole sequence; parameters as of `filter`.

        Messages of about sqrt(T) slices are stored; the others are recomputed.
        """
        choice("on_impossible", on_impossible, ("error", "flag"))
        read = self._read(sequences, id, time, likelihood, do, on_gap)
        return self._posteriors(read, targets, at, joints, on_impossible, smooth=True)

    def predict(  # noqa: PLR0913
        self, sequences: Any, *, steps: int = 1, id: str | None = None, time: str | None = None,
        likelihood: Mapping[Any, Any] | None = None, do: Mapping[Any, Any] | None = None, targets: Any = None,
        on_gap: str = "error", on_impossible: OnProblem = "error",
    ) -> SequencePosteriors:  # fmt: skip
        """Compute posteriors of the slices that follow each sequence, in which nothing is observed.

        Parameters
        ----------
        steps : int
            Number of slices.
        sequences, id, time, likelihood, do, targets, on_gap, on_impossible
            See `filter`.

        Returns
        -------
        SequencePosteriors
            Arrays (B, steps, states); ``log_evidence`` is that of the sequences.
        """
        choice("on_impossible", on_impossible, ("error", "flag"))
        steps = whole_number("steps", steps, 1)
        read = self._read(sequences, id, time, likelihood, do, on_gap)
        step, names, numbers = self.step, *self._targets(targets)
        _check_size((read.n, steps), sum(map(step.width, numbers)), "fewer steps")
        arrays = {v: np.zeros((read.n, steps, len(self._net.states(v)))) for v in names}
        longer, lengths = read.continued(steps), read.lengths
        log_evidence = np.zeros(read.n)
        for chosen in chunks(step, longer, sum(step.width(v) for v in numbers)):
            run = Propagation(step, longer, chosen)

            def visit(t: int, which: Ints, cells: Floats, chosen: Ints = chosen) -> None:
                late = t >= lengths[chosen[which]]
                rows = chosen[which[late]]
                _write(arrays, names, (rows, t - lengths[rows]), cells[late])

            done = run.forward(numbers, visit)
            if on_impossible == "error":
                run.raise_if_impossible(done.failed)
            log_evidence[chosen] = done.log_evidence
        future = type(read)(np.zeros((read.n * steps, 0), np.int32), np.arange(read.n + 1) * steps)
        return SequencePosteriors(self._net, future, np.arange(steps), log_evidence, arrays, {})

    def log_likelihood(
        self, sequences: Any, *, id: str | None = None, time: str | None = None,
        likelihood: Mapping[Any, Any] | None = None, do: Mapping[Any, Any] | None = None, on_gap: str = "error",
        on_impossible: OnProblem = "error",
    ) -> Floats:  # fmt: skip
        """Compute ln P(evidence) of each sequence, (B,); parameters as of `filter`."""
        choice("on_impossible", on_impossible, ("error", "flag"))
        read = self._read(sequences, id, time, likelihood, do, on_gap)
        return self._posteriors(read, (), "last", None, on_impossible, smooth=False).log_evidence

    # Other questions ------------------------------------------------------------------------------------------

    def stream(self) -> Stream:
        """Start a sequence whose slices come one by one."""
        return Stream(self.step)

    # Helpers --------------------------------------------------------------------------------------------------

    def _read(self, sequences: Any, id: Any, time: Any, likelihood: Any, do: Any, on_gap: str) -> Sequences:
        return read_sequences(self._net, sequences, id=id, time=time, likelihood=likelihood, do=do, on_gap=on_gap)

    def _targets(self, targets: Any) -> tuple[list[str], list[int]]:
        given = self._net.variables if targets is None else as_list(targets, "targets")
        numbers = list(dict.fromkeys(self._net.index(v) for v in given))
        return [self._net.variables[v] for v in numbers], numbers

    def _joints(self, joints: Any) -> tuple[tuple[int, ...], ...]:
        """The sets of ``joints`` as numbers of the step network."""
        known = {name: i for i, name in enumerate(self.step.names)}
        known |= {f"{v}[t]": i for i, v in enumerate(self._net.variables)}
        sets = []
        for one in several(joints) or (joints,):
            names = several(one)
            if names is None or len(names) < 2 or len({*names}) < len(names):
                raise EvidenceError(
                    f"joints must be a list of tuples such as [('rain[t]', 'rain[t-1]')], not {shown(joints)}"
                )
            for v in names:
                if v not in known:
                    raise EvidenceError(f"joints has {v!r}; a slice has {', '.join(known)}")
            sets.append(tuple(known[v] for v in names))
        return tuple(sets)

    def _posteriors(
        self, read: Sequences, targets: Any, at: At, joints: Any, on_impossible: str, *, smooth: bool
    ) -> SequencePosteriors:
        names, numbers = self._targets(targets)
        step = self.step_of(self._joints(joints) if joints else ())
        wanted = [*numbers, *dict.fromkeys(step.joints.values())]
        slices = _slices(at, int(read.lengths.max()))
        shape = (read.n,) if slices is None else (read.n, len(slices))
        keys: list[Any] = [*names, *dict.fromkeys(step.joints.values())]
        _check_size(shape, sum(map(step.width, wanted)), 'at="last", or fewer slices')
        arrays = {k: np.zeros((*shape, step.width(v))) for k, v in zip(keys, wanted, strict=True)}
        log_evidence = np.zeros(read.n)
        place = None if slices is None else {int(t): i for i, t in enumerate(slices)}
        for chosen in chunks(step, read, sum(step.width(v) for v in wanted)):
            run = Propagation(step, read, chosen)

            def write(t: int, which: Ints, cells: Floats, run: Propagation = run) -> None:
                rows = run.chosen[which]
                if place is None:
                    ends = run.lengths[which] == t + 1
                    _write(arrays, keys, (rows[ends],), cells[ends])
                elif t in place:
                    _write(arrays, keys, (rows, np.full(len(rows), place[t])), cells)

            if smooth:
                done = run.forward(keep=True)
            else:
                done = run.forward(wanted, write)
            if on_impossible == "error":
                run.raise_if_impossible(done.failed)
            log_evidence[chosen] = done.log_evidence
            if smooth:
                for t, which, alpha, beta in run.backward():
                    if wanted and (place is None or t in place):
                        write(t, which, run.run(t, which, alpha, beta, wanted).posterior)
        joint = {}
        for given, scope in zip(several(joints) or (), step.joints, strict=True):
            number = step.joints[scope]
            cells = arrays.pop(number) if number in arrays else arrays[names[numbers.index(number)]]
            joint[tuple(given)] = step.joint(number, scope, cells)
        return SequencePosteriors(self._net, read, slices, log_evidence, arrays, joint)


def _slices(at: At, length: int) -> Ints | None:
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


def _check_size(shape: Sequence[int], cells: int, instead: str) -> None:
    """Raise `TableTooLarge` if the answers would not fit into memory."""
    # cells: of the targets of a slice; instead: what the caller may ask for
    size = 8 * int(np.prod(shape)) * cells
    if size > MOST_ANSWERS:
        raise TableTooLarge(
            f"the posteriors would need {format_bytes(size)}, more than {format_bytes(MOST_ANSWERS)}; "
            f"use {instead}, or fewer targets="
        )


def _write(arrays: Mapping[Any, Floats], keys: Sequence[Any], where: tuple[Ints, ...], cells: Floats) -> None:
    """Write the targets' cells, side by side, to some places of each target's array."""
    at = 0
    for key in keys:
        table = arrays[key]
        table[where] = cells[:, at : at + table.shape[-1]]
        at += table.shape[-1]
