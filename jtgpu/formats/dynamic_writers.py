"""Writers of dynamic networks: XDSL here, JSON in `jtgpu.formats.dynamic_json`."""

from __future__ import annotations

import numpy as np

from ..errors import FormatError
from ..model.cpts import normalize_rows
from ..model.dynamic import DynamicNetwork
from ..model.mixed_dynamic import MixedDynamicNetwork
from ..model.network import BayesianNetwork
from ..util.arrays import Floats
from . import dynamic_json
from .text import number
from .xdsl import dumps as xdsl_text
from .xdsl import ids_of
from .xdsl_slices import EXTENSION

WRITTEN = "XDSL and JSON (.dynamic.json)"
NUMSLICES = 10  # that of GeNIe for a new network


def dumps_dynamic(net: DynamicNetwork | MixedDynamicNetwork, format_name: str) -> str:
    """The text of a file with a dynamic network."""
    # raises FormatError: If the format has no slices, or cannot represent something in the network.
    if format_name == "dynamic JSON":
        return dynamic_json.dumps(net)
    if isinstance(net, MixedDynamicNetwork):
        raise FormatError(
            f"a {format_name} file cannot contain a dynamic network with numbers; write .dynamic.json"
        )
    if format_name == "XDSL":
        return _xdsl(net)
    raise FormatError(
        f"a {format_name} file cannot contain a dynamic network; formats that can are {WRITTEN}, and dyn.unroll(10) is "
        "the Bayesian network of ten slices"
    )


def _xdsl(net: DynamicNetwork) -> str:
    """Slice 0 as the writer of networks without slices writes it, with the tables of later slices added."""
    static = set(net.static)
    order = {v: _by_lag(net, v) for v in net}
    tables = {v: [_table(net, v, t) for t in range(len(net.start(v)) + 1)] for v in net}
    same = {v: [p for p, lag in net.parents(v) if lag == 0] for v in net}
    first = BayesianNetwork({v: net.states(v) for v in net}, same, {v: tables[v][0] for v in net}, name=net.name)
    text, ids = xdsl_text(first), ids_of(first)
    for v in net:
        if v not in static:
            text = text.replace(f'\t\t<cpt id="{ids[v]}">', f'\t\t<cpt id="{ids[v]}" dynamic="plate">', 1)
    later = [f'\t<dynamic numslices="{NUMSLICES}">']
    mine = [f"\t\t<{EXTENSION}>"]
    for v in net:
        for t, table in enumerate(tables[v][1:], 1):
            later.append(f'\t\t<cpt id="{ids[v]}" order="{t}">')
            if before := [ids[p] for p, lag in net.parents(v) if lag == t]:
                later.append(f"\t\t\t<parents>{' '.join(before)}</parents>")
            later.append(f"\t\t\t<probabilities>{' '.join(map(number, table.ravel().tolist()))}</probabilities>")
            later.append("\t\t</cpt>")
        places = "" if order[v] == sorted(order[v]) else f' parents="{" ".join(map(str, np.argsort(order[v])))}"'
        rows = ' rows="exact"' if _inexact(tables[v][1:]) else ""
        if places or rows:
            mine.append(f'\t\t\t<template id="{ids[v]}"{places}{rows} />')
    later.append("\t</dynamic>\n\t<extensions>")
    if len(mine) > 1:
        text = text.replace("\t</extensions>", "\n".join([*mine, f"\t\t</{EXTENSION}>", "\t</extensions>"]), 1)
    return text.replace("\t<extensions>", "\n".join(later), 1)


def _by_lag(net: DynamicNetwork, v: str) -> list[int]:
    """The places of the parents of a variable in the order of the file: those of its slice, then by lag."""
    return sorted(range(len(net.parents(v))), key=lambda i: (net.parents(v)[i][1], i))


def _table(net: DynamicNetwork, v: str, t: int) -> Floats:
    """The CPT of a variable in slice t, axes in the order of the file."""
    first = t < len(net.start(v))
    cells = np.asarray(net.cpt(v, t) if first else net.cpt(v), np.float64)
    present = [i for i, (_, lag) in enumerate(net.parents(v)) if lag <= t or not first]
    axes = [present.index(i) for i in _by_lag(net, v) if i in present]
    return np.ascontiguousarray(np.transpose(cells, [*axes, len(axes)]))


def _inexact(tables: list[Floats]) -> bool:
    """Whether a reader that normalises rows would change a table."""
    again, _ = normalize_rows({str(i): table for i, table in enumerate(tables)})
    return any(not np.array_equal(again[str(i)], table) for i, table in enumerate(tables))
