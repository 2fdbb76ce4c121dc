"""A table of cases that one card answers, or several cards together: read once, one pair of answer arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ...wrappers.row_queue import Deal

if TYPE_CHECKING:
    from .cases import TableCases

__all__ = ["Answers", "SharedTable"]

R = TypeVar("R")


class Answers(Protocol):
    """A card: `jtgpu.backends.gpu.batch.engine.BatchEngine`, or what holds one."""

    def answer(self, cases: TableCases, wanted: Sequence[int], deal: Deal) -> None:
        """Answer chunks from the deal until none is left; gives back what it took and did not answer."""


class SharedTable(Generic[R]):
    """`jtgpu.backends.wrappers.devices.Shared` of cards.

    Which kernels answer depends on the whole table, never on the card or on how the rows are dealt out, and each row
    is answered by itself: so the bits are the same for any number of cards.

    Parameters
    ----------
    cases : TableCases
    wanted : sequence of int
        Variables whose posteriors are computed.
    finish : callable
        Makes the result, once all rows are answered.
    """

    def __init__(self, cases: TableCases, wanted: Sequence[int], finish: Callable[[], R]):
        self.cases, self.wanted, self._finish = cases, wanted, finish

    @property
    def n(self) -> int:
        """Rows to deal."""
        return self.cases.n

    def answer(self, worker: Answers, deal: Deal) -> None:
        """See `jtgpu.backends.wrappers.devices.Shared.answer`."""
        worker.answer(self.cases, self.wanted, deal)

    def result(self) -> R:
        """The answer."""
        return self._finish()

    def alone(self, worker: Answers) -> R:
        """All of it on one card."""
        self.answer(worker, Deal(self.n))
        return self._finish()
