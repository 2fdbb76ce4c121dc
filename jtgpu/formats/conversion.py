"""Conversion to another format: losses are detected by writing the model, reading it back and comparing.

Therefore no table of the formats' capabilities is needed, which could become outdated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import FormatError, NetworkError
from ..model.cpts import ROW_TOLERANCE
from ..model.discrete import DiscreteModel
from ..model.dynamic import DynamicNetwork
from ..model.markov import MarkovNetwork
from ..model.mixed import MixedNetwork
from ..model.mixed_dynamic import MixedDynamicNetwork
from ..model.network import BayesianNetwork
from ..model.noisy import is_noisy
from ..util.text_table import counted
from .number_cursor import identifiers, parts_of, tables_of, whole_numbers
from .registry import Format, dumps_dynamic, dumps_mixed

_IN_PROPERTIES = ("BIF", "XMLBIF")  # formats whose only attributes are properties (texts)
_POSITION = re.compile(r"position\s*=\s*\(\s*(-?\d{1,9})(?:\.\d*)?\s*,\s*(-?\d{1,9})(?:\.\d*)?\s*\)")
_LABEL = re.compile(r"label = (.*)", re.DOTALL)
MAX_NAMED = 3  # examples in a message


@dataclass(frozen=True)
class Conversion:
    """A model as text in a format, and the losses of the conversion."""

    text: str
    losses: tuple[str, ...]  # tuple of str: Everything that the format cannot represent, one phrase each
    notes: tuple[str, ...] = ()  # tuple of str: Changes to the model that lose nothing, one sentence each


def carry(model: DiscreteModel | MixedNetwork | MixedDynamicNetwork, target: Format) -> Conversion:
    """Write a model in a format, adapting what the format does not allow, and report changes and losses."""
    # raises FormatError: If the model cannot be written at all.
    if isinstance(model, MixedNetwork):
        return Conversion(dumps_mixed(model, target.name), ())
    if isinstance(model, (DynamicNetwork, MixedDynamicNetwork)):
        return Conversion(dumps_dynamic(model, target.name), ())
    if target.dumps is None:
        raise FormatError(f"{target.name} can be read but not written")
    notes: list[str] = []
    wanted = _adapted(model, target.name)
    if isinstance(wanted, MarkovNetwork):
        try:
            text = target.dumps(wanted)
        except FormatError as error:
            network = as_bayesian(wanted)
            if network is None:
                raise FormatError(f"{error}; its factors are not conditional tables") from None
            wanted = network
            notes.append("the factors are conditional tables, child last: written as a Bayesian network")
    first: FormatError | None = None
    for attempt in (wanted, _renamed(wanted), _bare(_renamed(wanted))):
        try:
            text = target.dumps(attempt)
            text.encode("utf-8")
        except (FormatError, UnicodeEncodeError) as error:
            if not isinstance(error, FormatError):
                error = FormatError(f"a name is not valid text: {error}")
            first = first or error
            continue
        return Conversion(text, tuple(losses(wanted, target.parse(text, target.name))), tuple(notes))
    raise first or AssertionError("an attempt without a result")


# Comparing ----------------------------------------------------------------------------------------------------


def losses(wanted: DiscreteModel, written: DiscreteModel) -> Iterator[str]:
    """The differences between a model and the model read back, one phrase each; variables are matched by position."""
    if len(wanted) != len(written) or not np.array_equal(wanted.cardinality, written.cardinality):
        yield f"the variables: {len(wanted)} were written, {len(written)} with other numbers of states came back"
        return
    if wanted.name != written.name and wanted.name:
        yield f"the network's name ({wanted.name!r})"
    changed = [(a, b) for a, b in zip(wanted.variables, written.variables, strict=True) if a != b]
    if changed:
        yield f"names of {counted(len(changed), 'variable')}: {_listed([f'{a!r} is {b!r}' for a, b in changed])}"
    states = [v for i, v in enumerate(wanted.variables) if wanted.states(i) != written.states(i)]
    if states:
        example = wanted.index(states[0])
        pair = next((a, b) for a, b in zip(wanted.states(example), written.states(example), strict=True) if a != b)
        yield f"state names of {counted(len(states), 'variable')}: in {states[0]!r}, {pair[0]!r} is {pair[1]!r}"
    yield from _structure(wanted, written)
    if not isinstance(wanted, MarkovNetwork):
        yield from _attributes(wanted, getattr(written, "attributes", {}), written)


def _structure(wanted: DiscreteModel, written: DiscreteModel) -> Iterator[str]:
    if isinstance(wanted, BayesianNetwork) and not isinstance(written, BayesianNetwork):
        yield "the direction of the arcs: it reads back as a Markov network"
    ours, theirs = tables_of(wanted), tables_of(written)
    if [scope for scope, _ in ours] != [scope for scope, _ in theirs]:
        yield "the order of the tables or of their variables"
        return
    both = ((a, b) for (_, a), (_, b) in zip(ours, theirs, strict=True))
    pairs = ((a.rows, b.rows) if is_noisy(a) and is_noisy(b) else (a, b) for a, b in both)
    gaps = (float(np.abs(a - b).max(initial=0.0)) for a, b in pairs)
    worst = max(gaps, default=0.0)
    if worst:
        yield f"the last digits of the numbers: they differ by up to {worst:.2g}"


def _attributes(
    wanted: Any, kept: Mapping[str, Mapping[str, Any]], written: DiscreteModel
) -> Iterator[str]:
    about = kept.get("net", {})
    for key, value in wanted.attributes.get("net", {}).items():
        if key != "name" and about.get(key) != value:
            yield f"the network's attribute {key!r}"
    for kind in ("node", "potential"):
        missing: dict[str, list[str]] = {}
        for v, values in wanted.attributes.get(kind, {}).items():
            new = written.variables[wanted.index(v)] if v in wanted.variables else v
            there = kept.get(kind, {}).get(new, {})
            for key, value in values.items():
                if there.get(key) != value and not (key == "label" and value == v):
                    missing.setdefault(key, []).append(v)
        for key, names in missing.items():
            what = "nodes" if kind == "node" else "tables"
            yield f"the attribute {key!r} of {len(names)} {what}: {_listed([repr(n) for n in names])}"


def _listed(examples: list[str]) -> str:
    more = ", ..." if len(examples) > MAX_NAMED else ""
    return f"{', '.join(examples[:MAX_NAMED])}{more}"


# Changing what a format does not allow ------------------------------------------------------------------------


def as_bayesian(model: MarkovNetwork) -> BayesianNetwork | None:
    """The Bayesian network with the same factors, child last in each; None if the factors are not CPTs."""
    if len(model.factors) != len(model):
        return None
    tables: dict[int, tuple[tuple[int, ...], Any]] = {}
    for scope, table in model.factors:
        if not scope or scope[-1] in tables or np.abs(table.sum(axis=-1) - 1).max() > ROW_TOLERANCE:
            return None
        tables[scope[-1]] = scope, table
    names = model.variables
    try:
        return BayesianNetwork(
            {v: model.states(v) for v in names},
            {names[v]: [names[p] for p in scope[:-1]] for v, (scope, _) in tables.items()},
            {names[v]: table for v, (_, table) in tables.items()},
            name=model.name,
        )
    except NetworkError:  # a cycle
        return None


def _like(
    model: DiscreteModel, new: Mapping[str, str], attributes: Mapping[str, Mapping[str, object]]
) -> DiscreteModel:
    """The model with other names and attributes."""
    states = {new[v]: model.states(v) for v in model.variables}
    if isinstance(model, MarkovNetwork):
        return MarkovNetwork(states, [(scope, table) for scope, table in model.factors], name=model.name)
    parts = parts_of(model)
    parents = {new[v]: [new[p] for p in parts.net.parents(v)] for v in (*model.variables, *parts.utilities)}
    noisy = getattr(parts.net, "noisy", {})
    cpts: dict[str, Any] = {new[v]: cpt for v, cpt in (parts.cpts(apart=noisy) | noisy).items()}
    more: dict[str, Any] = {"name": model.name, "attributes": attributes, "row_report": parts.net.row_report}
    if parts.decisions or parts.utilities:
        more["decisions"] = [new[v] for v in parts.decisions]
        more["utilities"] = {new[u]: table for u, table in parts.utilities.items()}
    made: DiscreteModel = type(parts.net)(states, parents, cpts, **more)
    return made


def _renamed(model: DiscreteModel) -> DiscreteModel:
    """The model with names that every format allows; the old names become labels."""
    names = _names(model)
    new = dict(zip(names, identifiers(names, "v"), strict=True))
    attributes: dict[str, dict[str, Any]] = {}
    if not isinstance(model, MarkovNetwork):
        given: Mapping[str, Any] = parts_of(model).net.attributes
        attributes = {kind: dict(x) for kind, x in given.items() if kind in ("net", "node", "potential")}
        for kind in ("node", "potential"):
            attributes[kind] = {new[v]: dict(x) for v, x in attributes.get(kind, {}).items()}
        for v, made in new.items():
            if v != made:
                attributes["node"].setdefault(made, {}).setdefault("label", v)
    return _like(model, new, attributes)


def _bare(model: DiscreteModel) -> DiscreteModel:
    """The model without attributes, and with identifiers as state names."""
    plain = _like(model, {v: v for v in _names(model)}, {})
    plain._states = tuple(tuple(identifiers(labels, "s")) for labels in plain._states)
    return plain


def _adapted(model: DiscreteModel, target: str) -> DiscreteModel:
    """Labels and positions as the reader of the format stores them: among the properties or as attributes."""
    if isinstance(model, MarkovNetwork):
        return model
    given: Mapping[str, Any] = parts_of(model).net.attributes
    kinds: dict[str, dict[str, Any]] = {kind: dict(given.get(kind, {})) for kind in ("net", "node", "potential")}
    kinds["net"] = _properties(kinds["net"], target)
    for kind in ("node", "potential"):
        kinds[kind] = {v: made for v, kept in kinds[kind].items() if (made := _properties(dict(kept), target))}
    return _like(model, {v: v for v in _names(model)}, kinds)


def _names(model: DiscreteModel) -> list[str]:
    return [*model.variables, *(() if isinstance(model, MarkovNetwork) else parts_of(model).utilities)]


def _properties(kept: dict[str, Any], target: str) -> dict[str, Any]:
    texts = kept.pop("property", ())
    texts = texts.split("\n") if isinstance(texts, str) else [str(t) for t in texts]
    if target in _IN_PROPERTIES:
        position = whole_numbers(kept.get("position"), 2)
        if position:
            del kept["position"]
            texts = [t for t in texts if _POSITION.fullmatch(t) is None]
            texts.append(f"position = ({position[0]}, {position[1]})")
        if isinstance(kept.get("label"), str):
            texts.append(f"label = {kept.pop('label')}")
    else:
        for text in list(texts):
            if match := _POSITION.fullmatch(text):
                kept.setdefault("position", (int(match[1]), int(match[2])))
            elif match := _LABEL.fullmatch(text):
                kept.setdefault("label", match[1])
            else:
                continue
            texts.remove(text)
    if texts:
        kept["property"] = "\n".join(texts) if target == "Hugin net" else tuple(texts)
    return kept
