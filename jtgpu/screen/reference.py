"""The definition of every result, in float64 NumPy: one row at a time against all rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..columns import read_states
from ..errors import ArgumentError, DataError, EvidenceError, shown
from ..util.arguments import several, whole_number
from ..util.arrays import Floats
from ..util.elementary import exp
from .columns import as_array_like, like_cases, open_rows
from .engine import Measure, Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..inference.tree import JunctionTree
    from ..model.states import CodesByVariable
    from ..util.options import TableLike

def keys(measure: Measure, rows: Rows, i: int, references: Rows) -> Floats:
    """Keys of row i and each reference: numbers that ascend with the distance.

    Squared distances for ``"euclidean"``. For ``"hamming"`` and ``"gower"`` the sum over the columns that row i has; if
    references have holes, the mean over the columns that both rows have, and 1 if there is none.
    """
    x, codes = rows.numbers[i], rows.codes[i]
    total = np.zeros(len(references))
    for j in range(len(x)):
        d = np.abs(references.numbers[:, j] - x[j])
        total += d * d if measure.is_squared else np.where(np.isnan(d), 0.0, d)
    if not measure.is_share:
        return total
    both = (references.codes >= 0) & (codes != -1)
    total += (both & (references.codes != codes)).sum(axis=1)
    if not measure.has_holes:
        return total
    common = both.sum(axis=1) + (~np.isnan(references.numbers + x)).sum(axis=1)
    return np.where(common > 0, total / np.maximum(common, 1), 1.0)


def weight(measure: Measure, rows: Rows, i: int, references: Rows, k: int) -> float:
    """The sum of the k smallest distances of row i, added in ascending order."""
    near = np.sort(keys(measure, rows, i, references))[:k]
    total = 0.0
    for d in np.sqrt(near) if measure.is_squared else near:
        total += float(d)
    return total / float(rows.divisors(measure)[i])


def weights(measure: Measure, rows: Rows, references: Rows, k: int) -> Floats:
    """Weights of all rows, (B,)."""
    return np.array([weight(measure, rows, i, references, k) for i in range(len(rows))])


# Improbable rows of a table under a network, and the cell of each that is least probable given its other cells.

PIECE = 1 << 14  # cases of a query


class RareCells(NamedTuple):
    """The least probable cell of some rows."""

    variable: list[str | None]  # None: the row is impossible whichever cell is left out
    probability: Floats  # of the cell given the row's other cells; 0 if there is no such cell


def surprise(tree: JunctionTree, cases: TableLike, n: int = 50, *, codes: CodesByVariable | None = None) -> Any:
    """The improbability -ln P(case) of each row of a table; missing cells are summed out.

    Parameters
    ----------
    tree : JunctionTree
        A compiled network.
    cases : data frame, mapping of columns, list of mappings, or (N, V) array
        Columns that are not variables are ignored.
    n : int
        Number of rows, the most surprising ones, whose least probable cell is named.
    codes : optional
        What cells mean; see `jtgpu.JunctionTree.posteriors_batch`.

    Returns
    -------
    table or ndarray
        For an array the improbabilities, (N,). Otherwise a table of the kind of `cases` with the additional columns
        ``surprise``; ``cell``, the variable of the least probable cell; and ``p_cell``, its probability given the row's
        other cells. The last two are null for all rows but the n most surprising. A row of probability zero has an
        infinite surprise; its cell is the first without which it is possible, if there is one.

    Examples
    --------
    >>> import jtgpu
    >>> tree = jtgpu.load("asia").compile("reference")
    >>> cases = [{"smoke": "no", "lung": "no"}, {"smoke": "no", "lung": "yes"}]
    >>> [row["cell"] for row in jtgpu.screen.surprise(tree, cases, n=1)]
    [None, 'lung']
    """
    whole_number("n", n, 0)
    surprises = row_surprise(tree, cases, codes)
    if as_array_like(cases):
        return surprises
    rows = np.lexsort((np.arange(len(surprises)), -surprises))[:n]
    cells = cell_surprise(tree, cases, rows, codes)
    names: NDArray[Any] = np.full(len(surprises), None, object)
    names[rows] = cells.variable
    p = np.ma.MaskedArray(np.zeros(len(surprises)), np.ones(len(surprises), np.bool_))
    p[rows] = np.ma.MaskedArray(cells.probability, [v is None for v in cells.variable])
    return like_cases(cases, open_rows(cases), {"surprise": surprises, "cell": names.tolist(), "p_cell": p})


def row_surprise(tree: JunctionTree, cases: Any, codes: CodesByVariable | None = None) -> Floats:
    """The improbability -ln P(case) of each row, (N,)."""
    if not hasattr(tree, "log_likelihood") or not hasattr(tree, "model"):  # densities of numbers are no surprises
        raise ArgumentError(f"tree must be a compiled network of states, such as net.compile(), not {shown(tree)}")
    try:
        return -np.asarray(tree.log_likelihood(cases, codes=codes)) + 0.0
    except EvidenceError as error:
        raise DataError(str(error)) from None


def cell_surprise(
    tree: JunctionTree, cases: object, rows: Iterable[int], codes: CodesByVariable | None = None
) -> RareCells:
    """The least probable cell of some rows, given their other cells.

    P(cell | others) is P(row) / P(row without the cell).
    """
    states, _ = read_states(tree.model.with_codes(codes), cases)
    names: list[str | None] = []
    p = []
    listed = [int(r) for r in several(rows) or []]
    n_variables = states.shape[1]
    step = max(PIECE // (n_variables + 1), 1)
    for at in range(0, len(listed), step):
        some = states[listed[at : at + step]]
        table = np.repeat(some, n_variables + 1, axis=0).reshape(len(some), n_variables + 1, n_variables)
        each = np.arange(n_variables)
        table[:, each + 1, each] = -1  # the first copy of a row is whole
        log_likelihood = np.asarray(tree.log_likelihood(table.reshape(-1, n_variables))).reshape(len(some), -1)
        for row, log_p in zip(some, log_likelihood, strict=True):
            with np.errstate(invalid="ignore"):
                odds = log_p[0] - log_p[1:]  # NaN: impossible with and without
            odds[(row < 0) | np.isnan(odds)] = np.inf
            v = int(np.argmin(odds)) if n_variables else 0
            known = n_variables > 0 and odds[v] < np.inf
            names.append(tree.model.variables[v] if known else None)
            p.append(exp(min(float(odds[v]), 0.0)) if known else 0.0)
    return RareCells(names, np.array(p))
