"""Findings as text: ``name=state``."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import EvidenceError, UnknownState, UnknownVariable, closest
from .discrete import DiscreteModel
from .state_values import StateNumber


def parse_finding(model: DiscreteModel, text: str) -> tuple[str, int | frozenset[int]]:
    """Parse a finding, ``name=state`` or ``name=state,state`` (one of these states).

    Names and states may contain ``=``, ``,`` and spaces. Of all positions of ``=``, the one with the longest variable
    name that is followed by one of its states is used. The state is matched as a name first, then as a number (see
    `jtgpu.model.state_values`), then as a comma-separated list of either. Spaces around names and states are dropped
    if the text does not match with them.
    """
    # returns Name of the variable.
    # returns int or frozenset of int: Number of the state, or of several states one of which holds.
    # raises EvidenceError: If the text contains no ``=``.
    # raises UnknownVariable, UnknownState: If the model has no such name; the message suggests the closest ones.
    cuts = [i for i, c in enumerate(text) if c == "="]
    if not cuts:
        hint = "" if text in model.variables else closest(text, model.variables)
        raise EvidenceError(f"expected evidence as name=state, got {text!r}{hint}")
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
    """Parse several findings into the argument `evidence` of `jtgpu.JunctionTree.posteriors`."""
    # raises EvidenceError: As `parse_finding`; also if a variable is given twice.
    # raises UnknownVariable, UnknownState: See `parse_finding`.
    found: dict[str, int | frozenset[int]] = {}
    for text in texts:
        name, value = parse_finding(model, text)
        if name in found:
            raise EvidenceError(f"evidence on {name!r} is given twice; write {name}=a,b for several states")
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
        # report the part that is wrong, not the whole list
        text = text.split(",")[parts.index(None)]
    return state_of_text(model, name, text)


def state_of_text(model: DiscreteModel, name: str, text: str) -> StateNumber:
    """The state that a text names."""
    found = _state(model, name, text)
    if found is not None:
        return found
    digits = text.strip()
    # limited, since Python refuses to convert thousands of digits
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 10
    return model.state_index(name, int(digits) if is_number else digits)  # raises


def _state(model: DiscreteModel, name: str, text: str) -> StateNumber | None:
    """Number of the state that a text names, or None."""
    found = model.state_values(model.index(name)).find_text(text)
    return None if found is None else StateNumber(found)
