"""Evidence by names and labels, as people type it or hand it over; evidence by numbers, as backends take it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from .backends.base import Evidence
from .errors import EvidenceError, ImpossibleEvidence, UnknownState, UnknownVariable, closest
from .network import DiscreteModel

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["Cases", "Findings", "parse_finding", "parse_findings", "read_cases", "read_findings"]

# (B, V) numbers of states, -1 for what is not observed; or variable -> B states
Cases = Union["NDArray[Any]", Mapping[Any, Any]]
Findings = Mapping[Any, Any]  # variable (name or number) -> state (name or number), or a set of states


def parse_finding(model: DiscreteModel, text: str) -> tuple[str, int | frozenset[int]]:
    """One finding, ``name=state`` or ``name=state,state`` (one of these states).

    Names and states may hold ``=``, ``,`` and spaces themselves: of all the places where the text can be cut at a
    ``=``, the longest name that the model has wins, provided that a state of it follows. What follows is taken as
    a state's name first, then as a state's number from 0, then as a list of either, cut at its commas. Spaces
    round names and states are dropped where the text does not fit with them.

    Returns
    -------
    str, int or frozenset of int
        The variable's name; the state's number, or the numbers of which one holds.

    Raises
    ------
    EvidenceError
        For a text without ``=``.
    UnknownVariable, UnknownState
        With the closest names.
    """
    cuts = [i for i, c in enumerate(text) if c == "="]
    if not cuts:
        raise EvidenceError(f"evidence is written name=state, not {text!r}{closest(text, model.variables)}")
    known = set(model.variables)
    refused: UnknownState | None = None
    for cut in reversed(cuts):
        for name in dict.fromkeys((text[:cut], text[:cut].strip())):
            if name not in known:
                continue
            try:
                return name, _states(model, name, text[cut + 1 :])
            except UnknownState as error:
                refused = refused or error
    if refused is not None:
        raise refused
    name = text[: cuts[0]].strip()
    raise UnknownVariable(f"there is no variable {name!r}{closest(name, model.variables)}")


def parse_findings(model: DiscreteModel, texts: Iterable[str]) -> dict[str, int | frozenset[int]]:
    """Several findings, as `jtgpu.tree.JunctionTree.posteriors` takes them.

    Raises
    ------
    EvidenceError
        Also for a variable that is given twice.
    UnknownVariable, UnknownState
        See `parse_finding`.
    """
    found: dict[str, int | frozenset[int]] = {}
    for text in texts:
        name, value = parse_finding(model, text)
        if name in found:
            raise EvidenceError(f"evidence on {name!r} is given twice; several states are written {name}=a,b")
        found[name] = value
    return found


def _states(model: DiscreteModel, name: str, text: str) -> int | frozenset[int]:
    whole = _state(model, name, text)
    if whole is not None:
        return whole
    if "," in text:
        parts = [_state(model, name, part) for part in text.split(",")]
        chosen = [p for p in parts if p is not None]
        if len(chosen) == len(parts):
            return frozenset(chosen)
        # name the part that is wrong, not the list
        text = text.split(",")[parts.index(None)]
    number = _number(text)
    model.state_index(name, text.strip() if number is None else number)  # raises, with the closest or the range
    raise AssertionError(f"{text!r} is a state of {name!r} after all")


def _state(model: DiscreteModel, name: str, text: str) -> int | None:
    """Number of the state that a text names; None where it names none."""
    labels = model.states(name)
    for candidate in dict.fromkeys((text, text.strip())):
        if candidate in labels:
            return model.state_index(name, candidate)  # raises for a name that several states share
    number = _number(text)
    return number if number is not None and number < len(labels) else None


def _number(text: str) -> int | None:
    """The state's number that a text is, in range or not."""
    digits = text.strip()
    # the length: Python refuses to convert thousands of digits, and no variable has so many states
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else None


def read_findings(model: DiscreteModel, findings: Findings | None, likelihood: Findings | None = None) -> Evidence:
    """Evidence by names as evidence by numbers.

    Parameters
    ----------
    model : DiscreteModel
    findings : mapping, optional
        Variable to a state, or to a set (list, tuple) of states of which one holds.
    likelihood : mapping, optional
        Variable to weights >= 0: an array in the order of the states, or a mapping from state to weight in which
        every state stands.

    Raises
    ------
    UnknownVariable, UnknownState
        With the closest names.
    EvidenceError
        For a value of another type, a wrong length, a negative weight, the same variable twice.
    ImpossibleEvidence
        For a set without states, or weights that are all zero.
    """
    state = np.full(len(model), -1, np.int32)
    weights: dict[int, NDArray[np.float64]] = {}
    for variable, value in _items(findings, "evidence"):
        v = model.index(variable)
        name = model.variables[v]
        if state[v] >= 0 or v in weights:
            raise EvidenceError(f"evidence names the variable {name!r} twice (by name and by number)")
        if isinstance(value, (AbstractSet, list, tuple)):
            chosen = sorted({model.state_index(v, s) for s in value})
            if not chosen:
                raise ImpossibleEvidence(f"the evidence on {name!r} is a set without states")
            if len(chosen) == 1:
                state[v] = chosen[0]
            else:
                weights[v] = np.zeros(int(model.cardinality[v]))
                weights[v][chosen] = 1.0
        elif value is None or (isinstance(value, float) and math.isnan(value)):
            raise EvidenceError(f"the evidence on {name!r} is {value!r}; leave out what is not observed")
        elif isinstance(value, Mapping) or np.ndim(value) > 0:
            raise EvidenceError(
                f"the evidence on {name!r} is {value!r}; weights are given as likelihood={{{name!r}: ...}}"
            )
        else:
            state[v] = model.state_index(v, value)
    soft: set[int] = set()
    for variable, value in _items(likelihood, "likelihood"):
        v = model.index(variable)
        if v in soft:
            raise EvidenceError(f"likelihood names the variable {model.variables[v]!r} twice (by name and by number)")
        soft.add(v)
        vector = _weights(model, v, value)
        weights[v] = weights[v] * vector if v in weights else vector
    return Evidence(state, weights)


def _items(given: Findings | None, what: str) -> Iterable[tuple[Any, Any]]:
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise EvidenceError(
            f"{what} maps variables to what is known of them; this is {type(given).__name__}: {given!r}"
        )
    return given.items()


def _weights(model: DiscreteModel, v: int, value: Mapping[Any, float] | ArrayLike) -> NDArray[np.float64]:
    name, card = model.variables[v], int(model.cardinality[v])
    if isinstance(value, Mapping):
        vector = np.full(card, np.nan)
        for s, w in value.items():
            vector[model.state_index(v, s)] = w
        if np.isnan(vector).any():
            missing = [model.states(v)[i] for i in np.flatnonzero(np.isnan(vector)).tolist()]
            raise EvidenceError(f"the likelihood of {name!r} has no weight for {', '.join(map(repr, missing))}")
    else:
        try:
            vector = np.array(value, np.float64)
        except (TypeError, ValueError):
            raise EvidenceError(f"the likelihood of {name!r} is no array of numbers: {value!r}") from None
    if vector.shape != (card,):
        raise EvidenceError(f"the likelihood of {name!r} has shape {vector.shape}; it has {card} states")
    if not np.isfinite(vector).all() or (vector < 0).any():
        raise EvidenceError(f"the likelihood of {name!r} needs finite weights >= 0, not {vector.tolist()}")
    if not vector.any():
        raise ImpossibleEvidence(f"the likelihood of {name!r} is zero in every state")
    return vector


def read_cases(
    model: DiscreteModel, cases: Cases, likelihood: Mapping[Any, ArrayLike] | None = None
) -> tuple[NDArray[np.int32], dict[int, NDArray[np.float64]]]:
    """A table of cases by numbers: states, (B, V) int32, -1 for what is not observed; and weights, (B, card).

    Parameters
    ----------
    model : DiscreteModel
    cases : (B, V) array of int, or mapping
        See `jtgpu.JunctionTree.posteriors_batch`.
    likelihood : mapping, optional
        Variable to weights >= 0, (B, card) or (card,).

    Raises
    ------
    UnknownVariable, UnknownState
        Naming the row, with the closest names.
    EvidenceError
        For another shape or type, columns of different lengths, the same variable twice, a negative weight.
    """
    states = _columns(model, cases) if isinstance(cases, Mapping) else _matrix(model, cases)
    weights: dict[int, NDArray[np.float64]] = {}
    for variable, value in _items(likelihood, "likelihood"):
        v = model.index(variable)
        name, card = model.variables[v], int(model.cardinality[v])
        if v in weights:
            raise EvidenceError(f"likelihood names the variable {name!r} twice (by name and by number)")
        table = np.asarray(value, np.float64)
        if table.shape not in ((card,), (len(states), card)):
            raise EvidenceError(
                f"the likelihood of {name!r} has shape {table.shape}; {len(states)} cases of {card} states need "
                f"({len(states)}, {card}) or ({card},)"
            )
        if not np.isfinite(table).all() or (table < 0).any():
            raise EvidenceError(f"the likelihood of {name!r} needs finite weights >= 0")
        weights[v] = np.ascontiguousarray(np.broadcast_to(table, (len(states), card)))
    return states, weights


def _matrix(model: DiscreteModel, cases: ArrayLike) -> NDArray[np.int32]:
    table = np.asarray(cases)
    if table.ndim != 2 or table.shape[1] != len(model):
        raise EvidenceError(f"cases have shape {table.shape}; a table of this model is (cases, {len(model)})")
    if table.dtype.kind not in "iu":
        raise EvidenceError(
            f"cases by number are integers, not {table.dtype}; labels and empty cells are given as a mapping from "
            "variable to column"
        )
    bad = (table < -1) | (table >= model.cardinality)
    if bad.any():
        row, v = (int(x) for x in np.argwhere(bad)[0])
        raise UnknownState(
            f"case {row}: {model.variables[v]!r} has no state {int(table[row, v])} (0 to {model.cardinality[v] - 1}; "
            "-1: not observed)"
        )
    return np.ascontiguousarray(table, np.int32)


def _columns(model: DiscreteModel, cases: Mapping[Any, ArrayLike]) -> NDArray[np.int32]:
    n = -1
    states = np.zeros((0, len(model)), np.int32)
    met: set[int] = set()
    for variable, column in cases.items():
        v = model.index(variable)
        name = model.variables[v]
        if v in met:
            raise EvidenceError(f"cases name the variable {name!r} twice (by name and by number)")
        met.add(v)
        # a list may mix labels, numbers and None: not to be made strings of
        values = column if isinstance(column, np.ndarray) else np.array(column, object)
        if values.ndim != 1 or (n >= 0 and len(values) != n):
            others = f"; others have {n} rows" if n >= 0 else ""
            raise EvidenceError(f"the column of {name!r} has shape {values.shape}{others}")
        if n < 0:
            n = len(values)
            states = np.full((n, len(model)), -1, np.int32)
        states[:, v] = _column(model, v, values)
    return states


def _column(model: DiscreteModel, v: int, values: NDArray[Any]) -> NDArray[np.int32]:
    """Numbers of a column's states; every different value is looked up once."""
    if values.dtype.kind in "iu":
        bad = (values < -1) | (values >= model.cardinality[v])
        if not bad.any():
            return values.astype(np.int32)
    found: dict[Any, int] = {}
    numbers = np.empty(len(values), np.int32)
    for row, value in enumerate(values.tolist()):
        if value not in found:
            try:
                found[value] = -1 if _is_missing(value) else model.state_index(v, value)
            except UnknownState as error:
                raise UnknownState(f"case {row}: {error.args[0]}") from None
        numbers[row] = found[value]
    return numbers


def _is_missing(value: Any) -> bool:
    return value is None or value == -1 or (isinstance(value, float) and math.isnan(value))
