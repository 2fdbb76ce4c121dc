"""Commands on networks with numbers: evidence as ``age=41.5`` and ``age=30..40``, posteriors, contents of files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from click import BadParameter

from ..errors import EvidenceError, FormatError
from ..formats import writer_of
from ..formats.registry import MIXED, Format, format_of_suffix
from ..model.mixed import MixedNetwork
from ..model.quick import parse_finding
from ..util.cells import UNDECIDED, numeral
from .console import print_json
from .tables import print_rows

if TYPE_CHECKING:
    from ..mixed import MixedTree
    from ..options.compute import Compute, Planning

QUANTILES = (0.05, 0.95)


def numeric_writer_of(path: str) -> Format:
    """The format of a file's suffix; raises `FormatError` if it cannot contain numbers."""
    if not path.lower().endswith(".mixed.json"):
        chosen = writer_of(path)
        if chosen.name in ("Hugin net", "XDSL"):
            return chosen
        raise FormatError(f"a {chosen.name} file cannot contain numbers; formats that can are {MIXED}")
    chosen_json = format_of_suffix(path)
    assert chosen_json is not None
    return chosen_json


def mixed_findings(net: MixedNetwork, texts: Sequence[str]) -> dict[str, Any]:
    """The evidence of ``--evidence``: states by number, values of numbers, and pairs of bounds."""
    # raises EvidenceError, UnknownVariable, UnknownState: See `jtgpu.model.quick.parse_finding`.
    findings: dict[str, Any] = {}
    for text in texts:
        name, value = _number_finding(net, text) or parse_finding(net.discrete, text)
        if name in findings:
            raise EvidenceError(f"evidence on {name!r} is given twice")
        findings[name] = value
    return findings


def _number_finding(net: MixedNetwork, text: str) -> tuple[str, Any] | None:
    """A finding of a number; None if the text begins with no number's name."""
    cuts = [i for i, c in enumerate(text) if c == "="]
    at = next((i for i in reversed(cuts) if text[:i].strip() in net.numbers), None)
    if at is None:
        return None
    name, value = text[:at].strip(), text[at + 1 :]
    low, dots, high = value.partition("..")
    try:
        bounds = (_number(low) if low.strip() else -math.inf, _number(high) if high.strip() else math.inf)
        return name, bounds if dots else _number(value)
    except ValueError:
        raise EvidenceError(
            f"{name!r} is a number: expected a value such as {name}=41.5, or an interval such as {name}=30..40 or "
            f"{name}=30.., got {value.strip()!r}"
        ) from None


def _number(text: str) -> float:
    """A finite number; "nan" would be read as a missing value, which is no evidence."""
    if (x := numeral(text, UNDECIDED)) is None:
        raise ValueError(text)
    return x


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
            "file": file, "evidence": as_json(findings), "log_evidence": posteriors.log_evidence, "posteriors": answers,
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


def as_json(findings: Mapping[str, Any]) -> dict[str, Any]:
    """Evidence as JSON, whose numbers are finite: null where an interval has no bound."""
    return {
        v: sorted(x)
        if isinstance(x, frozenset)
        else [end if math.isfinite(end) else None for end in x]
        if isinstance(x, tuple)
        else x
        for v, x in findings.items()
    }


def mixed_facts(net: MixedNetwork) -> dict[str, Any]:
    """Properties of a network with numbers, for ``jtgpu info``."""
    return {
        "name": net.name, "kind": "mixed network", "variables": len(net), "numbers": list(net.numbers),
        "arcs": len(net.arcs), "most_parents": max((len(net.parents(v)) for v in net), default=0),
        "densities": sum(net.gaussian(v).mean.size for v in net.numbers),
    }  # fmt: skip


def compiled_numbers(net: MixedNetwork, file: str, plan: Planning, run: Compute) -> MixedTree:
    """The compiled network; options that it does not take are an error."""
    if plan.plan is not None or run.compile_options():
        option = "--plan" if plan.plan is not None else "--devices, --dtype"
        raise BadParameter(
            f"{file} has numbers, whose plans depend on what is observed: --backend, --threads and options of the "
            "order are taken, --order saved among them", param_hint=option,
        )  # fmt: skip
    options: dict[str, Any] = run.threads_option()
    if plan != type(plan)():
        from .planning import order_of  # most commands on files have no tree

        options |= {"order": order_of(plan, net.discrete, file), **plan.keywords()}
    return net.compile(run.backend, **options)
