"""The picture of a network that has numbers: their means and standard deviations follow their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..inference.evidence import read_known
from ..model.directed import DirectedModel
from ..model.mixed import MixedNetwork
from .drawing import MAX_NAME, Drawing
from .network import draw_network
from .svg import Mark, marks, shortened, text_width


def marks_of_values(net: MixedNetwork, evidence: Mapping[Any, Any] | None, more: Mapping[str, Any]) -> dict[int, Mark]:
    """The marks of all variables with evidence, by their number among all variables."""
    given = {"evidence": evidence, **more}
    by_name = {kind: {net.variables[net.index(v)]: x for v, x in (own or {}).items()} for kind, own in given.items()}
    states: dict[str, Any] = {
        kind: {v: x for v, x in own.items() if not net.is_number(v)} for kind, own in by_name.items()
    }
    marked = {net.index(net.discrete.variables[v]): m for v, m in marks(read_known(net.discrete, **states)).items()}
    for kind, own in by_name.items():
        marked |= {net.index(v): Mark("do" if kind == "do" else "observed") for v in own if net.is_number(v)}
    return marked


def draw_values(
    net: MixedNetwork, ids: Sequence[int], posteriors: Any, priors: Any, marked: Mapping[int, Mark],
    targets: Sequence[int], note: str,
) -> Drawing:  # fmt: skip
    """Draw some variables, with their posteriors if there are some."""
    values = [] if posteriors is None else [v for v in posteriors if net.is_number(v)]
    names: dict[str, str] = {}
    for v in net:
        label = _label(v, posteriors[v]) if v in values else v
        while label in names.values():  # of names that were shortened
            label += " "
        names[v] = label
    graph = DirectedModel(
        {names[v]: net.graph.states(v) for v in net}, {names[v]: [names[p] for p in net.parents(v)] for v in net},
        name=net.name,
    )  # fmt: skip
    bars, ticks = (
        None if all_of is None else {net.index(v): p for v, p in all_of.items() if not net.is_number(v)}
        for all_of in (posteriors, priors)
    )
    return draw_network(graph, ids, posteriors=bars, priors=ticks, marks=marked, targets=targets, note=note)


def _label(name: str, posterior: Any) -> str:
    value = f": {posterior.mean:.4g}, sd {posterior.sd:.3g}" if posterior.sd else f" = {posterior.mean:.4g}"
    return shortened(name, MAX_NAME - text_width(value) - 8) + value
