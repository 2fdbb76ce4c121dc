"""`SequenceFit`: a fitted dynamic network, and how it was found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np

from ...errors import ArgumentError
from ...model.dynamic import DynamicNetwork
from ...util.arguments import check_keywords
from .result import MAX_LISTED, Fit


@check_keywords()
@dataclass(frozen=True, eq=False, repr=False)
class SequenceFit(Fit):
    """The result of `jtgpu.learn.fit` for a dynamic network.

    Attributes
    ----------
    network : DynamicNetwork
        The template with the estimated CPTs.
    n_sequences : int
        Sequences that were fitted; `n_rows` is the number of their slices.
    n_impossible, n_weightless : int
        Sequences that were left out because their probability was 0 at the start, or because their weight is 0.
    counts : mapping of str to ndarray
        (Expected) counts of each estimated CPT, summed over the slices in which it holds: ``counts["rain"]``, and
        ``counts["rain[0]"]`` of its CPT in slice 0.

    Examples
    --------
    >>> import jtgpu
    >>> table = {"day": [1, 2, 3, 4], "place": ["a", "a", "a", "b"], "rain": ["no", "no", "yes", "no"]}
    >>> keys = jtgpu.learn.Keys(id="place", time="day")
    >>> fit = jtgpu.learn.fit({"rain": [("rain", 1)]}, table, keys=keys, pseudo_counts=0)
    >>> fit.counts["rain"].tolist(), fit.counts["rain[0]"].tolist()
    ([[1.0, 1.0], [0.0, 0.0]], [2.0, 0.0])
    """

    network: DynamicNetwork  # type: ignore[assignment]
    n_sequences: int = 0
    _CASES: ClassVar[str] = "sequences"

    def credible(self, *_: Any, **__: Any) -> NoReturn:
        """Not available for dynamic networks."""
        raise ArgumentError("credible intervals are not available for dynamic networks")

    @property
    def empty_rows(self) -> dict[str, list[dict[str, str]]]:
        """Rows of estimated CPTs without any count, as states of the parents: these are those of the prior or start."""
        rows = {}
        for title, counts in self.counts.items():
            empty = np.argwhere(counts.sum(axis=-1) <= 0)
            if len(empty):
                v, _, t = title.removesuffix("]").rpartition("[")
                cpt = self.network.cpt(title) if title in self.network else self.network.cpt(v, int(t))
                rows[title] = [
                    {p: cpt.states(p)[s] for p, s in zip(cpt.variables[:-1], row, strict=True)}
                    for row in empty[:MAX_LISTED].tolist()
                ]
        return rows

    def _parameters(self) -> int:
        tables = [np.shape(c) for v in self.network for c in (self.network.cpt(v), *self.network.start(v))]
        return sum(int(np.prod(shape[:-1])) * (shape[-1] - 1) for shape in tables)

    def _sizes(self) -> dict[str, int]:
        return {"sequences": self.n_sequences, "slices": self.n_rows}
