"""Commands on networks with numbers: evidence as ``age=41.5`` and ``age=30..40``, posteriors, contents of files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import FormatError
from ..formats import writer_of
from ..formats.mixed_writers import WRITTEN
from ..formats.registry import Format, format_of_suffix
from ..model.mixed import MixedNetwork
from .console import print_json
from .networks import findings_as_json
from .tables import print_rows

if TYPE_CHECKING:
    pass

QUANTILES = (0.05, 0.95)


def numeric_writer_of(path: str) -> Format:
    """The format of a file's suffix; raises `FormatError` if it cannot contain numbers."""
    if not path.lower().endswith(".mixed.json"):
        chosen = writer_of(path)
        if chosen.name in ("Hugin net", "XDSL"):
            return chosen
        raise FormatError(f"a {chosen.name} file cannot contain numbers; formats that can are {WRITTEN}")
    chosen_json = format_of_suffix(path)
    assert chosen_json is not None
    return chosen_json


def print_mixed(net: MixedNetwork, file: str, findings: dict[str, Any], posteriors: Any, json: bool) -> None:
    """Print posteriors: probabilities of states, then mean, sd and two quantiles of each number."""
    numbers = [v for v in posteriors if net.is_number(v)]
    quantiles = {v: posteriors[v].quantiles(QUANTILES).tolist() for v in numbers}
    if json:
        answers = {
            v: {"mean": p.mean, "sd": p.sd, "quantiles": dict(zip(map(str, QUANTILES), quantiles[v], strict=True))}
            if v in quantiles
            else {"states": list(p.states), "probabilities": p.probabilities.tolist()}
            for v, p in posteriors.items()
        }
        print_json({
            "file": file, "evidence": findings_as_json(findings), "log_evidence": posteriors.log_evidence,
            "posteriors": answers,
        })  # fmt: skip
        return
    rows = [
        (v, state, p)
        for v, post in posteriors.items()
        if v not in quantiles
        for state, p in zip(post.states, post.probabilities.tolist(), strict=True)
    ]
    if rows:
        print_rows(("variable", "state", "P"), rows)
    if numbers:
        header = ("number", "mean", "sd", *(f"{100 * q:g} %" for q in QUANTILES))
        print_rows(header, [(v, posteriors[v].mean, posteriors[v].sd, *quantiles[v]) for v in numbers])


def mixed_facts(net: MixedNetwork) -> dict[str, Any]:
    """Properties of a network with numbers, for ``jtgpu info``."""
    return {
        "name": net.name, "kind": "mixed network", "variables": len(net), "numbers": list(net.numbers),
        "arcs": len(net.arcs), "most_parents": max((len(net.parents(v)) for v in net), default=0),
        "densities": sum(net.gaussian(v).mean.size for v in net.numbers),
    }  # fmt: skip
