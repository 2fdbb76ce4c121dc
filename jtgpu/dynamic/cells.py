"""Cells of sequences: matrices of them, and those that allow several states, which are likelihoods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..columns import cells_of, is_frame
from ..errors import EvidenceError, UnknownState

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..model.dynamic import DynamicNetwork
    from ..util.arrays import Floats, Ints

SEVERAL = (list, tuple, set, frozenset)


def is_sequence(x: Any) -> bool:
    """Whether this is a sequence of its own in a list: a frame, an array, or a mapping of columns."""
    if isinstance(x, Mapping):
        return all(isinstance(c, (list, tuple, np.ndarray)) or (hasattr(c, "__len__") and not isinstance(c, str))
                   for c in x.values())
    return is_frame(x) or (isinstance(x, np.ndarray) and x.ndim == 2)


def is_matrix(name: Any, x: Any) -> bool:
    """Whether a column of a mapping is an array of sequences and slices."""
    try:
        return np.ndim(x) >= 2
    except ValueError:  # some cells allow several states, or rows have different lengths
        if not all(isinstance(row, (list, tuple, np.ndarray)) for row in x):
            return False
        if len({*map(len, x)}) == 1:
            return True
        raise EvidenceError(
            f"the rows of {name!r} have different lengths; sequences of several lengths are a list of mappings, one "
            "for each, or a long frame with id="
        ) from None


def matrix(name: Any, x: Any) -> NDArray[Any]:
    """(sequences, slices) cells, some of which may be lists of states."""
    known = np.array(x, object)
    if not is_matrix(name, x) or known.ndim == 2:
        return known
    made = np.empty((len(x), len(x[0])), object)
    for i, row in enumerate(x):
        for t, cell in enumerate(row):
            made[i, t] = cell
    return made


def without_sets(net: DynamicNetwork, columns: Mapping[str, Any]) -> tuple[dict[str, Any], dict[int, Floats]]:
    """Columns whose cells are single states, and (n, states) weights: 1 for each state that a cell allows."""
    plain: dict[str, Any] = {}
    sets: dict[int, Floats] = {}
    for name, column in columns.items():
        plain[name] = column
        kind = str(getattr(column, "type", getattr(column, "dtype", "object")))  # of Arrow and NumPy; lists have none
        if name not in net or not kind.startswith(("object", "list", "large_list")):
            continue
        cells = cells_of(column)
        at = [i for i, cell in enumerate(cells) if isinstance(cell, SEVERAL)]
        if at:
            v = net.index(name)
            sets[v] = np.ones((len(cells), len(net.states(v))))
            for i in at:
                if not cells[i]:
                    raise EvidenceError(
                        f"row {i}, column {name!r}: the list is empty, so no state is possible; a cell that was not "
                        "observed is None"
                    )
                try:
                    allowed = [net.state_index(v, s) for s in cells[i]]
                except UnknownState as error:
                    raise UnknownState(f"row {i}, column {name!r}: {error}") from None
                sets[v][i] = np.bincount(allowed, minlength=sets[v].shape[1]) > 0
            plain[name] = [None if isinstance(cell, SEVERAL) else cell for cell in cells]
    return plain, sets


def by_row(sets: Mapping[int, Floats], source: Ints | None) -> dict[int, Floats]:
    """Weights of the rows of a table as those of the rows of its sequences."""
    # source: Of the sequences
    return {v: w if source is None else np.where(source[:, None] >= 0, w[source], 1.0) for v, w in sets.items()}
