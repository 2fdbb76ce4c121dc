"""`learn.load`: a posterior over structures from the file that `StructurePosterior.save` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import ArgumentError, FormatError
from ..npz import DAMAGED
from ..scores.coded import CodedTable
from ..search.structure import Structure
from .checked_contents import check_arrays, check_header
from .facts import Facts
from .graph_sets import PROPERTIES
from .result import StructurePosterior
from .saved_file import read_file

if TYPE_CHECKING:
    from numpy.typing import NDArray


class SavedSource:
    """Graphs and parent sets from a file."""

    def __init__(
        self, graphs: NDArray[np.int64], parent_sets: list[Any] | None,
        properties: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]],
    ):  # fmt: skip
        self._graphs, self._parent_sets, self._properties = graphs, parent_sets, properties

    def property_of_graphs(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return self._properties[name]

    def graphs(self, n: int | None = None) -> NDArray[np.int64]:
        return self._graphs

    def parent_sets(self, v: int) -> list[tuple[tuple[int, ...], float, float]] | None:
        if self._parent_sets is None:
            return None
        return [(tuple(members), p, 0.0) for members, p in self._parent_sets[v]]

    def more(self, steps: int | None, seconds: float | None) -> Any:
        """A file has no chains."""
        raise ArgumentError("a posterior from a file has no chains to continue: use checkpoint= of learn.posterior")


def load(path: str | Path) -> StructurePosterior:
    """Read a posterior that `StructurePosterior.save` wrote.

    Parameters
    ----------
    path : path

    Returns
    -------
    StructurePosterior
        With the same probabilities, graphs and data; `more` is not possible.

    Raises
    ------
    ArgumentError
        If `path` is no path.
    FormatError
        If the file is no saved posterior, of another version, or damaged.
    FileError
        If it cannot be read.

    Examples
    --------
    >>> import os, tempfile, jtgpu
    >>> data = {"rain": ["no", "no", "yes", "yes", "no"] * 4, "wet": ["no", "no", "yes", "yes", "yes"] * 4}
    >>> path = os.path.join(tempfile.mkdtemp(), "rain.npz")
    >>> jtgpu.learn.posterior(data).save(path)
    >>> round(jtgpu.learn.load(path).edge("rain", "wet"), 4)
    0.4969
    """
    header, arrays = read_file(path)
    try:
        return _posterior(header, arrays)
    except DAMAGED as error:
        raise FormatError(f"{path}: a damaged posterior: {error}") from None


def _posterior(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> StructurePosterior:
    check_header(header)
    names, states = tuple(header["names"]), tuple(map(tuple, header["states"]))
    check_arrays(arrays, states)
    table = CodedTable(names, states, arrays["codes"], arrays.get("weights"), header["dropped"])
    facts = Facts(**header["facts"] | {"notes": tuple(header["facts"]["notes"])})
    best = Structure(
        names, **header["structure"], candidates=facts.candidates, _arcs=arrays["best"], _table=table,
        _ess=header["ess"],
    )  # fmt: skip
    return StructurePosterior(
        table, arrays["arcs"], arrays["errors"], best, facts, SavedSource(
            arrays["graphs"], header["parent_sets"],
            {name: (arrays[name], arrays[f"{name}_errors"]) for name in PROPERTIES},
        ),
        of_candidates=arrays["parents"], trace=arrays["trace"], ess=header["ess"], seed=header["seed"],
    )  # fmt: skip
