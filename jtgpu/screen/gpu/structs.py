"""The parameters of the kernels in cuda/screen, field for field; see layout.cuh, build.cu and knn.cu."""

from __future__ import annotations

import numpy as np

LEVELS = 6  # of a tree

_P, _U = np.uint64, np.uint32


def _struct(pointers: str, numbers: str, inner: np.dtype | None = None) -> np.dtype:
    """A struct of pointers and 32-bit numbers, after a tree if there is one, padded to 8 bytes."""
    names, last = pointers.split(), numbers.split()
    fields: list[tuple[str, object]] = [] if inner is None else [("tree", inner)]
    fields += [(n, _P) for n in names] + [(n, _U) for n in last]
    return np.dtype([*fields, *([("pad", _U)] if len(last) % 2 else [])])


TREE = np.dtype(
    [
        *((n, _P) for n in ("numbers", "words", "counts", "sides", "agreed", "centres", "planes")),
        *((n, _U) for n in ("n_rows", "n_leaves", "n_numbers", "n_planes", "n_groups", "n_levels")),
        ("first", _U, LEVELS),
        ("size", _U, LEVELS),
    ]
)
SEARCH = _struct("numbers words cuts divisors weights pairs", "n k", TREE)
CURVE = _struct("x edges columns keys rows", "n n_columns n_edges n_used bits")
SORT = _struct("keys rows keys_out rows_out counts", "n n_tiles shift pad")
GATHER = _struct("cells rows groups counts counts_out empty", "n n_columns")
BOXES = _struct("", "level pad", TREE)
DIAGONALS = _struct("found", "n leaves is_squared pad", TREE)
