"""Findings as people type them: ``name=state``."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import EvidenceError, UnknownState, UnknownVariable, closest
from .network import DiscreteModel

__all__ = ["parse_finding", "parse_findings"]


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
        hint = "" if text in model.variables else closest(text, model.variables)
        raise EvidenceError(f"evidence is written name=state, not {text!r}{hint}")
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
    """Several findings, as `jtgpu.inference.tree.JunctionTree.posteriors` takes them.

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
