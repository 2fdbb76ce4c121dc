"""Writers of mixed networks: Hugin and XDSL here, JSON in `jtgpu.formats.mixed_json`."""

from __future__ import annotations

import numpy as np

from ..errors import FormatError
from ..model.gaussian import Gaussian
from ..model.mixed import MixedNetwork
from . import mixed_json
from .hugin_values import attribute_lines, check_name
from .hugin_values import dumps as hugin_text
from .linear import linear_text
from .number_cursor import identifiers, with_decisions
from .text import number
from .xdsl import XdslWriter, ids_of
from .xdsl import dumps as xdsl_text

WRITTEN = "Hugin net, XDSL and JSON (.mixed.json)"


def dumps_mixed(net: MixedNetwork, format_name: str) -> str:
    """The text of a file with a mixed network."""
    # raises FormatError: If the format has no numbers, or cannot represent something in the network.
    if format_name == "Hugin net":
        return _hugin(net)
    if format_name == "XDSL":
        return _xdsl(net)
    if format_name == "JSON":
        return mixed_json.dumps(net)
    raise FormatError(f"a {format_name} file cannot contain numbers; formats that can are {WRITTEN}")


def _hugin(net: MixedNetwork) -> str:
    lines = [hugin_text(net.discrete)]
    for v in net.numbers:
        check_name(v)
        if any(v.lower() == "normal" or v[0].isdigit() for v in (v, *net.numeric_parents(v))):
            raise FormatError(f"{v!r} or a parent of it cannot be in an expression of a Hugin .net file: rename it")
        lines += [f"continuous node {v}", "{", *attribute_lines(net.attributes.get("node", {}).get(v, {}), v), "}", ""]
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
        lines += [f'    jtgpu_parents = "{" ".join(net.parents(v))}";'] if before != net.parents(v) else []
        lines += [f"    data = ( {data} );"]
        lines += [*attribute_lines(net.attributes.get("potential", {}).get(v, {}), v), "}", ""]
    if net.variables != (*net.discrete.variables, *net.numbers):
        lines[0] = lines[0].replace("net\n{\n", f'net\n{{\n    jtgpu_order = "{" ".join(net.variables)}";\n', 1)
    return "\n".join(lines)


def _xdsl(net: MixedNetwork) -> str:
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
    writer = XdslWriter(with_decisions(net.discrete, "an XDSL file"))
    writer.ids |= {v: v for v in net.numbers}
    looks = [line for v in net.numbers if v in net.attributes.get("node", {}) for line in writer.looks(v)]
    return (
        xdsl_text(net.discrete)
        .replace("\t\t</genie>", "\n".join([*looks, "\t\t</genie>"]), 1)
        .replace("\t</nodes>", "\n".join([*equations, "\t</nodes>"]), 1)
        .replace("\t</extensions>", f'\t\t<jtgpu_numbers order="{order}" />\n\t</extensions>')
    )


def _rows(density: Gaussian) -> list[tuple[float, dict[str, float], float]]:
    """Intercept, coefficients and sd of each configuration of the discrete parents, the first one slowest."""
    names = list(density.coefficients)
    columns = [density.mean, *density.coefficients.values(), density.sd]
    rows = np.stack([np.ravel(c) for c in columns], axis=1).tolist()
    return [(row[0], dict(zip(names, row[1:-1], strict=True)), row[-1]) for row in rows]
