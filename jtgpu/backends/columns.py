"""Tables of cases as frames have them: by columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ColumnBackend", "ColumnResult"]


@dataclass(frozen=True)
class ColumnResult:
    """A `BatchResult` by columns: each column of a frame is one piece of memory."""

    posterior: NDArray[np.float64]  # (sum of the targets' cardinalities, B), target after target; 0 if impossible
    log_evidence: NDArray[np.float64]  # (B,) natural logarithms of P(e); -inf if impossible
    impossible: NDArray[np.bool_]  # (B,)


@runtime_checkable
class ColumnBackend(Protocol):
    """What a backend may offer besides: tables of cases as frames have them, with nothing turned round on the host."""

    def run_columns(
        self, variables: Sequence[int], codes: NDArray[Any], targets: Sequence[int] | None = None
    ) -> ColumnResult:
        """Answer B cases; equal ones are not looked for.

        Parameters
        ----------
        variables : sequence of int
            The E variables that some case observes.
        codes : (E, B) array of int
            Observed states, -1 = not observed; int8 is the quickest.
        targets : sequence of int, optional
            See `Backend.run_batch`.

        Raises
        ------
        EvidenceError
            For an array of another shape, or a state that a variable does not have.
        """
