"""Messages through the slices of a dynamic network: the interface of backends that pass them; see `Backend.slices`.

A message is a table over the variables between two slices, for each of some sequences. Messages of many sequences pass
all slices in a few compiled calls, in the memory of the backend: the caller says which slices, and which messages are
kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ..util.rows import thread_map

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK, BLOCKS = 1 << 19, 2  # cells between two uses of the interpreter's lock, and how often a task has those

Messages = Any  # n messages, of a group; on the CPU an array (n, K, lanes)


class Side(NamedTuple):
    """The variables on one side of a slice."""

    number: int  # the variable, or set variable, that messages are weights of
    place: NDArray[np.int64]  # (K,) its cell of each entry of a message


class Between(NamedTuple):
    """Distributions of variables between slices and of others, and where they are written to."""

    cells: NDArray[np.float64]  # (rows, columns of all targets)
    place: NDArray[np.int64]  # (T,) row of each slice behind the sequence's first one, -1: none; empty: the last alone
    states: NDArray[np.int64]  # (targets, K) state of each variable in each entry of a message
    columns: NDArray[np.int64]  # (targets + others + 1,) first column of each
    others: tuple[int, ...] = ()  # variables that are not between slices


class SlicePasses(Protocol):
    """The compiled passes of one backend: of slices with the same tables."""

    def slice_table(
        self, states: NDArray[np.int32], likelihood: Mapping[int, NDArray[np.float64]], before: Side, after: Side,
        lengths: NDArray[np.int64], most_kept: int,
    ) -> SliceTable | None:  # fmt: skip
        """The evidence of a call; None if there is no memory for it."""
        # states: (R, V) observed states of all slices, -1 = not observed
        # likelihood: Variable to weights, (R, card)
        # before, after: Where messages stand; their variables may be observed
        # lengths: (N,) slices of each sequence
        # most_kept: Bytes of messages that may be kept in the host's memory

    def joined(self, others: Sequence[Any]) -> SlicePasses:
        """The passes on this and other devices."""


class SliceTable(Protocol):
    """The evidence of a call, and the programs that are right for every row."""

    lanes: int  # sequences of a group
    most_kept: int  # bytes of messages of a group that may be kept
    takes_others: bool  # whether `Between` may have others
    chooses: bool  # whether `SliceGroup.choose` is supported
    counts: bool  # whether `SliceGroup.count` is
    adds: bool  # whether `SliceGroup.adding` is
    with_evidence: bool  # whether `SliceGroup.forward` computes P, and notices every impossible sequence

    def group(self, first: NDArray[np.int64], lengths: NDArray[np.int64], message: NDArray[np.float64]) -> SliceGroup:
        """Some sequences, at most as many as there are lanes."""
        # first, lengths: (n,) first row of each, and slices
        # message: (K,) into slice 0

    def leave_room(self, n_bytes: int) -> None:
        """Choose the number of lanes so that `SliceGroup.adding` has so many bytes for each sequence."""

    def run_all(self, work: Callable[[Any], None], parts: Sequence[Any], each: int) -> None:
        """Call a function with every part, in parallel; each call takes so many bytes of the host's memory."""


class SliceGroup(Protocol):
    """Sequences side by side, and one message of each; for one thread."""

    first: NDArray[np.int64]  # (n or more,) first row of each sequence
    lengths: NDArray[np.int64]

    @property
    def failed(self) -> NDArray[np.int64]:
        """(n or more,) the first impossible slice; -1: none."""

    @property
    def log_evidence(self) -> NDArray[np.float64]:
        """(n,) ln P of the evidence of each sequence; -inf if it is impossible."""

    def messages(self, n: int) -> Messages:
        """Memory for n messages."""

    def ones(self) -> Messages:
        """One message of ones."""

    def load(self, messages: Messages, i: int) -> None:
        """One of some messages becomes that of the group."""

    def store(self, messages: Messages, i: int) -> None:
        """The message of the group becomes one of some messages."""

    def read(self, messages: Messages) -> NDArray[np.float64]:
        """Messages as an array (n, K, lanes)."""

    def marginals(self, between: Between | None, rows: NDArray[np.int64]) -> Any:
        """The argument of `forward` and `backward` that says which distributions they write; None: none."""
        # rows: (n,) first row of each sequence

    def forward(
        self, passes: Any, begin: int, end: int, kept: Messages, base: int, stride: int, out: Any
    ) -> None:
        """The message passes some slices; messages into slices base, base + stride ... are kept."""

    def again(self, passes: Any, begin: int, end: int, kept: Messages, base: int) -> None:
        """`forward` through slices whose evidence has been counted."""

    def backward(
        self, passes: Any, begin: int, end: int, kept: Messages, base: int, later: Messages, out: Any
    ) -> bool:
        """The message passes some slices from the last to the first; whether a product was too small for a number."""
        # kept: into slices base, base + 1 ..., one more than the last slice; later: gets those out of the same slices

    def choose(
        self, passes: Any, begin: int, end: int, kept: Messages, base: int, chosen: NDArray[np.int64],
        uniforms: NDArray[np.float64],
    ) -> None:  # fmt: skip
        """The message passes some slices backward and becomes certain of the entry that is chosen before each."""
        # chosen: (R,) gets the entry after each row's slice; the last of a sequence only where the best ones are chosen
        # uniforms: (R,) numbers in [0, 1) that choose the entry before each slice; empty: the best entries

    def count(
        self, passes: Any, begin: int, end: int, messages: Sequence[Messages], base: int,
        weights: NDArray[np.float64], cells: NDArray[np.float64] | None,
    ) -> NDArray[np.float64]:  # fmt: skip
        """Add the expected counts of some slices, the last first, to `cells` (default: new ones); see `families`."""
        # messages: Into and out of slices base, base + 1 ...
        # weights: (n,) of the sequences

    def families(self, passes: Any, cells: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """The expected counts of every factor, with the model's axes."""

    def adding(self, numbers: Sequence[int], columns: Sequence[int]) -> Any:
        """An argument of `backward` with which it adds up distributions of some variables and sets over slices."""
        # columns: (numbers + 1,) the first one of each

    def added(self, out: Any, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """(blocks, columns) the sums of 32 sequences each, without those that have no answer (see `finish`)."""
        # weights: (n,) of the sequences

    def finish(self) -> NDArray[np.bool_]:
        """End the passes, and free the memory; (n,) whether a sequence is too improbable and has no answer."""


def observed(states: NDArray[np.int32]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether each variable is observed in some row, and in every row, of (R, V) states."""
    some, always = np.zeros(states.shape[1], np.bool_), np.ones(states.shape[1], np.bool_)

    def look(rows: slice) -> None:
        block = np.ascontiguousarray(states[rows].T)  # along the first axis NumPy is slow
        some[block.max(axis=1) >= 0] = True  # threads write the same
        always[block.min(axis=1) < 0] = False

    for_blocks(look, states)
    return some, always


def for_blocks(work: Callable[[slice], None], states: NDArray[np.int32]) -> None:
    """Call a function with some rows after others, on several threads if there are many."""
    each, n = max(BLOCK // max(states.shape[1], 1), 1), len(states)

    def task(first: int) -> None:
        for at in range(first, min(first + BLOCKS * each, n), each):
            work(slice(at, at + each))

    with thread_map(states.nbytes) as mapper:
        list(mapper(task, range(0, n, BLOCKS * each)))
