"""Numbers in network files: what readers collect of them, the `MixedNetwork` they make, and its writers.

Readers list a continuous node among the nodes that cannot be read (`Draft.refused`) and its densities in
`Draft.numbers`; `accept` removes it from the former if every node of the file can be read.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ..errors import FormatError
from ..model.gaussian import Gaussian
from ..model.mixed import MixedNetwork
from .linear import linear_text
from .number_cursor import identifiers
from .text import number

if TYPE_CHECKING:
    from ..model.network import BayesianNetwork
    from .draft import Draft

WRITTEN = "Hugin net, XDSL and JSON (.mixed.json)"


def accept(draft: Draft) -> bool:
    """Whether the file is a mixed network; its numbers are then no longer refused."""
    # raises ParseError: If a number has a child with states.
    if not draft.numbers or draft.decisions or draft.utilities or set(draft.refused) - set(draft.numbers):
        return False
    if any(not found.densities for found in draft.numbers.values()):
        return False
    for family in draft.families.values():
        for p, at in family.parents:
            if p in draft.numbers:
                raise draft.source.error(
                    at, f"the number {p!r} is a parent of {family.child!r}, which has states: exact answers need arcs "
                    "from states to numbers only"
                )  # fmt: skip
    draft.refused.clear()
    return True


def mixed_network(draft: Draft, discrete: BayesianNetwork) -> MixedNetwork:
    """The network of a draft whose numbers were accepted, with the finished network of its states."""
    # raises ParseError, NetworkError: If parents are not declared, or a density does not fit them.
    gaussians: dict[str, Gaussian] = {}
    parents = {v: discrete.parents(v) for v in discrete}
    for v, found in draft.numbers.items():
        for p, at in found.parents:
            if p not in draft.numbers and p not in draft.states:
                raise draft.source.error(at, f"{v!r} has the parent {p!r}, which is not declared")
        parents[v] = tuple(p for p, _ in found.parents)
        numeric = [p for p in parents[v] if p in draft.numbers]
        shape = tuple(len(draft.states[p]) for p in parents[v] if p not in draft.numbers)
        if len(found.densities) != math.prod(shape):
            axes = " x ".join(str(c) for c in shape) or "1"
            raise draft.source.error(
                found.data_at, f"found {len(found.densities)} densities for {v!r}, expected {math.prod(shape)} = {axes}"
            )
        for row in found.densities:
            odd = next((p for p in row.coefficients if p not in numeric), None)
            if odd is not None:
                raise draft.source.error(
                    found.data_at, f"the density of {v!r} depends on {odd!r}; its numeric parents are {numeric}"
                )
        gaussians[v] = Gaussian(
            np.reshape([row.constant for row in found.densities], shape),
            {p: np.reshape([row.coefficients.get(p, 0.0) for row in found.densities], shape) for p in numeric},
            np.reshape([row.sd for row in found.densities], shape),
        )
    at_of = {v: draft.declared[v] for v in draft.states} | {v: found.at for v, found in draft.numbers.items()}
    order = draft.order if set(draft.order) == set(at_of) and len(draft.order) == len(at_of) else ()
    names = order or sorted(at_of, key=lambda v: at_of[v])
    net = MixedNetwork(
        {v: float if v in gaussians else draft.states[v] for v in names},
        parents,
        {v: gaussians[v] if v in gaussians else discrete.cpt(v) for v in names},
        name=draft.name,
    )
    if net.discrete == discrete:
        net.discrete = discrete  # with its attributes and the report of its rows
    return net


# Writers ------------------------------------------------------------------------------------------------------


def dumps_mixed(net: MixedNetwork, format_name: str) -> str:
    """The text of a file with a mixed network."""
    # raises FormatError: If the format has no numbers, or cannot represent something in the network.
    if format_name == "Hugin net":
        return _hugin(net)
    if format_name == "XDSL":
        return _xdsl(net)
    raise FormatError(f"a {format_name} file cannot contain numbers; formats that can are {WRITTEN}")


def _hugin(net: MixedNetwork) -> str:
    from .hugin_values import check_name, dumps

    lines = [dumps(net.discrete)]
    for v in net.numbers:
        check_name(v)
        if any(v.lower() == "normal" or v[0].isdigit() for v in (v, *net.numeric_parents(v))):
            raise FormatError(f"the number {v!r} or a parent of it cannot be part of an expression in a Hugin .net file")
        lines += [f"continuous node {v}", "{", "}", ""]
    for v in net.numbers:
        density = net.gaussian(v)
        variance = np.square(density.sd)
        if not (np.sqrt(variance) == density.sd).all():
            raise FormatError(f"the variance of {v!r} is too small or too large for a Hugin .net file")
        before = (*net.discrete_parents(v), *net.numeric_parents(v))  # states first, as HUGIN writes them
        rows = _rows(density)
        data = "\n            ".join(
            f"normal ( {linear_text(m, c)}, {number(s)} )"
            for (m, c, _), s in zip(rows, variance.ravel().tolist(), strict=True)
        )
        lines += [f"potential ({v} | {' '.join(before)})" if before else f"potential ({v})", "{"]
        lines += [f"    data = ( {data} );", "}", ""]
    if net.variables != (*net.discrete.variables, *net.numbers):
        lines[0] = lines[0].replace("net\n{\n", f'net\n{{\n    jtgpu_order = "{" ".join(net.variables)}";\n', 1)
    return "\n".join(lines)


def _xdsl(net: MixedNetwork) -> str:
    from .xdsl_writer import dumps, ids_of

    odd = next((v for v in net.numbers if net.discrete_parents(v)), None)
    if odd is not None:
        raise FormatError(
            f"the number {odd!r} has the parent {net.discrete_parents(odd)[0]!r}, which has states: equations of XDSL "
            "have numeric parents only; write a Hugin .net or .mixed.json file"
        )
    ids = ids_of(net.discrete)
    if identifiers([*ids.values(), *net.numbers], "node_") != [*ids.values(), *net.numbers]:
        raise FormatError("names of numbers must be identifiers in an XDSL file, and differ from those of other nodes")
    equations = []
    for v in (v for v in net.topological_order() if net.is_number(v)):
        ((mean, coefficients, sd),) = _rows(net.gaussian(v))
        if v.lower() == "normal":
            raise FormatError(f"the number {v!r} cannot be part of an equation in an XDSL file")
        terms = linear_text(mean, coefficients)
        equations += [f'\t\t<equation id="{v}">']
        if net.parents(v):
            equations += [f"\t\t\t<parents>{' '.join(net.parents(v))}</parents>"]
        equations += [f"\t\t\t<definition>{v}={terms} + Normal(0, {number(sd)})</definition>", "\t\t</equation>"]
    order = " ".join(ids.get(v, v) for v in net.variables)
    return dumps(net.discrete).replace("\t</nodes>", "\n".join([*equations, "\t</nodes>"]), 1).replace(
        "\t</extensions>", f'\t\t<jtgpu_numbers order="{order}" />\n\t</extensions>'
    )


def _rows(density: Gaussian) -> list[tuple[float, dict[str, float], float]]:
    """Intercept, coefficients and sd of each configuration of the discrete parents, the first one slowest."""
    names = list(density.coefficients)
    columns = [density.mean, *density.coefficients.values(), density.sd]
    rows = np.stack([np.ravel(c) for c in columns], axis=1).tolist()
    return [(row[0], dict(zip(names, row[1:-1], strict=True)), row[-1]) for row in rows]
