"""CPTs as users give them: arrays, or mappings such as ``{"yes": [0.1, 0.9], "no": {"yes": 0.01, "no": 0.99}}``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..errors import NetworkError, UnknownState
from .cpts import ROW_TOLERANCE, check_numbers, freeze
from .discrete import DiscreteModel

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    CptLike: TypeAlias = ArrayLike | Mapping[Any, Any]


def checked_cpt(model: DiscreteModel, scope: tuple[int, ...], given: CptLike) -> NDArray[np.float64]:
    """The read-only array of a CPT."""
    # scope: tuple of int: Parents in order, then the variable
    # given: See `cpt_from_mapping`
    # raises NetworkError: If the shape is wrong, a number is negative or not finite, or a row does not sum to 1.
    name = model.variables[scope[-1]]
    try:
        table = freeze(cpt_from_mapping(model, scope, given) if isinstance(given, Mapping) else given)
    except (TypeError, ValueError) as error:
        raise NetworkError(f"variable {name!r}: its CPT must be an array of numbers ({error})") from None
    shape = tuple(int(model.cardinality[v]) for v in scope)
    if table.shape != shape:
        axes = ", ".join(model.variables[v] for v in scope)
        hint = ""
        if len(shape) > 1 and table.shape == (shape[-1], *shape[:-1]):
            hint = "; if its first axis is the variable itself, use numpy.moveaxis(cpt, 0, -1)"
        raise NetworkError(
            f"variable {name!r}: its CPT has shape {table.shape}, expected {shape} for the axes ({axes}){hint}"
        )
    check_numbers(name, table)
    sums = table.sum(axis=-1)
    gap = np.abs(sums - 1.0)
    if gap.max() > ROW_TOLERANCE:
        row = tuple(int(r) for r in np.unravel_index(int(gap.argmax()), gap.shape))
        where = configuration(model, scope, row)
        off = int((gap > ROW_TOLERANCE).sum())
        others = f"; {off} of its {gap.size} rows do not sum to 1" if off > 1 else ""
        raise NetworkError(
            f"variable {name!r}: {f'the row of its CPT for {where}' if where else 'its CPT'} sums to "
            f"{sums[row]:.9g}, expected 1{others} (jtgpu.normalize_rows divides rows by their sums)"
        )
    return table


def cpt_from_mapping(model: DiscreteModel, scope: tuple[int, ...], given: Mapping[Any, Any]) -> NDArray[np.float64]:
    """The array of a CPT that is given as a mapping."""
    # scope: tuple of int: Parents in order, then the variable
    # given: A key is a state of the next axis, or a tuple of states of the next axes. A value is a mapping for the axes
    #     that remain, or an array over them. The parents' axes come first, in order: ``{("yes", "no"): [0.2, 0.8],
    #     ...}`` and ``{"yes": {"no": {"low": 0.2, "high": 0.8}, ...}, ...}`` are the same.
    # raises NetworkError: If a key is not a state, a configuration is missing or given twice, or an array has the wrong
    #     shape.
    reader = _Reader(model, scope)
    reader.fill((), given)
    if not reader.is_set.all():
        missing = tuple(np.argwhere(~reader.is_set)[0].tolist())
        whole_row = not reader.is_set[missing[:-1]].any()
        what = "row for" if whole_row else "number for"
        at = configuration(model, scope, missing[:-1] if whole_row else missing)
        raise NetworkError(f"variable {reader.name!r}: its CPT has no {what} {at or 'any state'}")
    return reader.table


def configuration(model: DiscreteModel, scope: tuple[int, ...], states: tuple[int, ...]) -> str:
    """States as text: ``"rain=yes, sprinkler=off"``. States that share a name are given by number."""
    parts = []
    for v, number in zip(scope, states, strict=False):
        labels = model.states(v)
        label = labels[number] if labels.count(labels[number]) == 1 else f"state number {number}"
        parts.append(f"{model.variables[v]}={label}")
    return ", ".join(parts)


class _Reader:
    """Fills a table from a mapping, level by level."""

    def __init__(self, model: DiscreteModel, scope: tuple[int, ...]):
        self.model, self.scope = model, scope
        self.name = model.variables[scope[-1]]
        shape = tuple(int(model.cardinality[v]) for v in scope)
        self.table = np.zeros(shape)
        self.is_set = np.zeros(shape, np.bool_)

    def fill(self, at: tuple[int, ...], given: Any) -> None:
        """Enter what is given for the configuration `at` of the first axes."""
        if isinstance(given, Mapping):
            if len(at) == len(self.scope):
                raise self.error(f"for {self.text(at)} it has a mapping where a number is expected")
            for key, inner in given.items():
                self.fill((*at, *self.states(at, key)), inner)
            return
        where = f"for {self.text(at)} it has" if at else "it has"
        try:
            part = np.asarray(given, np.float64)
        except (TypeError, ValueError):
            raise self.error(f"{where} {given!r}, expected numbers") from None
        shape = self.table.shape[len(at) :]
        if part.shape != shape:
            axes = ", ".join(self.model.variables[v] for v in self.scope[len(at) :])
            wanted = f"expected {shape} for the axes ({axes})" if shape else "expected a number"
            raise self.error(f"{where} numbers of shape {part.shape}, {wanted}")
        if self.is_set[at].any():
            raise self.error(f"{self.text(at)} is given twice")
        self.table[at], self.is_set[at] = part, True

    def states(self, at: tuple[int, ...], key: Any) -> list[int]:
        """Numbers of the states that a key names, along the axes that follow `at`."""
        keys = key if isinstance(key, tuple) else (key,)
        axes = self.scope[len(at) :]
        if len(keys) > len(axes):
            names = ", ".join(self.model.variables[v] for v in axes)
            raise self.error(f"the key {key!r} has {len(keys)} states for the axes ({names})")
        return [self.state(v, k) for v, k in zip(axes, keys, strict=False)]

    def state(self, v: int, key: Any) -> int:
        try:
            return self.model.state_index(v, key)
        except UnknownState as error:
            raise self.error(f"a key is not a state: {error}") from None

    def text(self, at: tuple[int, ...]) -> str:
        return configuration(self.model, self.scope, at)

    def error(self, what: str) -> NetworkError:
        return NetworkError(f"variable {self.name!r}: its CPT is wrong: {what}")
