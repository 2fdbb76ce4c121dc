"""`learn.load`: a posterior over structures from the file that `StructurePosterior.save` wrote."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import ArgumentError, FormatError
from ....util.arrays import Floats, Ints
from ...state_file import DAMAGED, read_file
from ..graphs import has_cycle
from ..scores.coded import NO_STATE, CodedTable
from ..scores.numeric_table import NumericTable
from ..structure import Structure
from .averaging import PROPERTIES
from .records import Diagnostics, PosteriorRecord
from .result import StructurePosterior

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Checks of the contents of a posterior's file, which anyone may have written: types, shapes and ranges.

ARRAYS = {
    "codes": ("uint8", 2), "arcs": ("float64", 2), "errors": ("float64", 2), "best": ("bool", 2),
    "graphs": ("int64", 3), "parents": ("int64", 2), "trace": ("float64", 2),
    "path": ("float64", 2), "path_errors": ("float64", 2), "compelled": ("float64", 2),
    "compelled_errors": ("float64", 2),
}  # fmt: skip


def _is_text(x: object) -> bool:
    return isinstance(x, str)


def _is_whole(x: object) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and x >= 0


def _is_number(x: object) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and not math.isnan(x)


def _is_positive(x: Any) -> bool:
    return _is_number(x) and 0.0 < x < math.inf


def _is_flag(x: object) -> bool:
    return isinstance(x, bool)


def _list_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, list | tuple) and all(map(check, x))


def _mapping_to(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, dict) and bool(x) and all(map(check, x.values()))


def _or_none(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda x: x is None or check(x)


HEADER: dict[str, Callable[[Any], bool]] = {
    "names": _list_of(_is_text), "states": _list_of(_list_of(_is_text)), "dropped": _is_whole, "ess": _is_positive,
    "seed": _is_whole, "facts": lambda x: isinstance(x, dict), "structure": lambda x: isinstance(x, dict),
}  # fmt: skip
FACTS: dict[str, Callable[[Any], bool]] = {
    "method": _is_text, "prior": _is_text, "log_evidence": _or_none(_is_number), "converged": _is_flag,
    "rhat": _is_number, "ess_samples": _is_number, "max_difference": _is_number, "n_steps": _is_whole,
    "n_chains": _is_whole, "n_samples": _is_whole, "coverage": _or_none(_is_number), "low_coverage": _is_text,
    "candidates": _or_none(_mapping_to(_list_of(_is_text))), "moves": _or_none(_mapping_to(_is_number)),
    "notes": _list_of(_is_text), "shortfall": _list_of(_is_text), "betas": _list_of(_is_number),
    "swap_rates": _list_of(_is_number),
}  # fmt: skip
STRUCTURE: dict[str, Callable[[Any], bool]] = {
    "score": _is_number,
    "log_weight": _is_number,
    "method": _is_text,
    "order": _list_of(_is_text),
}
REQUIRED_FACTS = ("method", "prior", "notes")


def check_header(header: Mapping[str, Any]) -> None:
    """Raise a `ValueError` that names a part of the header that is absent or wrong."""
    _check(header, HEADER, HEADER, "")
    _check(header["facts"], FACTS, REQUIRED_FACTS, "facts.")
    _check(header["structure"], STRUCTURE, STRUCTURE, "structure.")
    names = header["names"]
    n = len(names)
    if not (n > 1 and len(set(names)) == n and len(header["states"]) == n):
        raise ValueError("names or states are wrong")
    if not all(len(s) != 1 and len(s) <= NO_STATE and len(set(s)) == len(s) for s in header["states"]):
        raise ValueError("states are wrong")
    if sorted(header["structure"]["order"]) != sorted(names):
        raise ValueError("structure.order is wrong")
    candidates = header["facts"].get("candidates")
    if candidates is not None and {*candidates, *(u for own in candidates.values() for u in own)} - {*names}:
        raise ValueError("facts.candidates is wrong")
    _check_parent_sets(header["parent_sets"], n)


def _check(given: Mapping[str, Any], checks: Mapping[str, Any], required: Any, where: str) -> None:
    for name in required:
        if name not in given:
            raise ValueError(f"{where}{name} is absent")
    for name, check in checks.items():
        if name in given and not check(given[name]):
            raise ValueError(f"{where}{name} is wrong")


def _check_parent_sets(every: object, n: int) -> None:
    if every is None:
        return

    def is_set(x: object) -> bool:
        return (
            isinstance(x, list)
            and len(x) == 2
            and isinstance(x[0], list)
            and all(_is_whole(u) and u < n for u in x[0])
            and _is_number(x[1])
            and 0.0 <= x[1] <= 1.0 + 1e-9
        )

    if not (isinstance(every, list) and len(every) == n and all(map(_list_of(is_set), every))):
        raise ValueError("parent_sets is wrong")


def check_arrays(arrays: Mapping[str, NDArray[Any]], states: Sequence[Sequence[str]]) -> None:
    """Raise a `ValueError` that names an array that is absent or wrong."""
    # states: Of the n variables
    n = len(states)
    for name, (kind, ndim) in ARRAYS.items():
        if name not in arrays:
            raise ValueError(f"{name} is absent")
        array = arrays[name]
        if array.dtype != np.dtype(kind) or array.ndim != ndim:
            raise ValueError(f"{name} is an array of {array.dtype} with {array.ndim} axes")
    codes, parents, graphs = arrays["codes"], arrays["parents"], arrays["graphs"]
    sizes = np.array([max(len(s), 1) for s in states])  # numbers have no states, and the code 0
    _check_values(arrays, sum(not s for s in states))
    if len(codes) != n or not codes.size or ((codes >= sizes[:, None]) & (codes != NO_STATE)).any():
        raise ValueError("codes are those of other variables")
    for name in ("arcs", "errors", "best"):
        if arrays[name].shape != (n, n):
            raise ValueError(f"{name} has the shape {arrays[name].shape}")
    if not ((arrays["arcs"] >= 0.0) & (arrays["arcs"] <= 1.0)).all() or not (arrays["errors"] >= 0.0).all():
        raise ValueError("arcs or errors are no probabilities")
    for name in ("path", "path_errors", "compelled", "compelled_errors"):
        p = arrays[name]
        if p.shape != (n, n) or not ((p >= 0.0) & (p <= 1.0)).all():
            raise ValueError(f"{name} has values that are no probabilities")
    if has_cycle(arrays["best"]):
        raise ValueError("best has a cycle")
    own = np.arange(n)[:, None]
    if parents.shape[0] != n or not 0 < parents.shape[1] < 64 or ((parents < -1) | (parents >= n)).any():
        raise ValueError("parents are those of other variables")
    known = ((parents >= 0) << np.arange(parents.shape[1])).sum(axis=1)
    if (parents == own).any() or graphs.shape[2] != n or not graphs.size or (graphs & ~known).any():
        raise ValueError("graphs of other variables")
    if np.isnan(arrays["trace"]).any():
        raise ValueError("trace has a value that is no number")
    weights = arrays.get("weights")
    if weights is not None and not (
        weights.dtype == np.int64 and weights.shape == codes.shape[1:] and (weights >= 0).all() and weights.any()
    ):
        raise ValueError("weights are those of other rows")


def _check_values(arrays: Mapping[str, NDArray[np.generic]], n_numbers: int) -> None:
    n_rows = arrays["codes"].shape[1]
    values = arrays.get("values", np.empty((0, n_rows)))
    if values.dtype != np.float64 or values.shape != (n_numbers, n_rows) or not np.isfinite(values).all():
        raise ValueError("values are those of other numbers")
    was_set = arrays.get("interventions", np.zeros(arrays["codes"].shape, np.bool_))
    if was_set.dtype != np.bool_ or was_set.shape != arrays["codes"].shape or was_set.all(axis=1).any():
        raise ValueError("interventions are those of other rows")


class SavedSource:
    """Graphs and parent sets from a file."""

    def __init__(self, graphs: Ints, parent_sets: list[Any] | None, properties: dict[str, tuple[Floats, Floats]]):
        self._graphs, self._parent_sets, self._properties = graphs, parent_sets, properties

    def property_of_graphs(self, name: str) -> tuple[Floats, Floats]:
        return self._properties[name]

    def graphs(self, n: int | None = None) -> Ints:
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
    table = CodedTable(
        names, states, arrays["codes"], arrays.get("weights"), header["dropped"],
        interventions=arrays.get("interventions"),
    )  # fmt: skip
    if not all(states):
        is_number = np.array([not s for s in states])
        table = NumericTable(**vars(table), is_number=is_number, values=arrays["values"])
    diagnostics = Diagnostics(**header["facts"] | {"notes": tuple(header["facts"]["notes"])})
    best = Structure(
        names, **header["structure"], candidates=diagnostics.candidates, _arcs=arrays["best"], _table=table,
        _ess=header["ess"],
    )  # fmt: skip
    record = PosteriorRecord(
        table, arrays["arcs"], arrays["errors"], best, diagnostics, arrays["parents"], arrays["trace"], header["ess"],
        header["seed"],
    )  # fmt: skip
    properties = {name: (arrays[name], arrays[f"{name}_errors"]) for name in PROPERTIES}
    return StructurePosterior(record, SavedSource(arrays["graphs"], header["parent_sets"], properties))
