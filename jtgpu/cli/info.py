"""``jtgpu info``: what a network file holds."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.table import Table

from ..errors import format_bytes
from ..network import BayesianNetwork, DiscreteModel
from .console import cell, guarded, print_json, print_table
from .options import File, Json, read_network

__all__ = ["facts", "info"]


def facts(net: DiscreteModel) -> dict[str, Any]:
    """What a model holds, as plain numbers and strings."""
    sizes = [f.table.size for f in net.factors]
    widest = int(np.argmax(sizes)) if sizes else -1
    cards = net.cardinality
    found: dict[str, Any] = {
        "name": net.name,
        "kind": "Bayesian network" if isinstance(net, BayesianNetwork) else "Markov network",
        "variables": len(net),
        "states": int(cards.sum()),
        "fewest_states": int(cards.min()) if len(cards) else 0,
        "most_states": int(cards.max(initial=0)),
        "tables": len(sizes),
        "entries": sum(sizes),
        "nonzero_entries": sum(int(np.count_nonzero(f.table)) for f in net.factors),
        "largest_table": max(sizes, default=0),
        "largest_table_variables": [net.variables[v] for v in net.factors[widest].scope] if sizes else [],
        "bytes": 8 * sum(sizes),
        "odd_states": [v for v in net.variables if len(set(net.states(v))) < len(net.states(v)) or "" in net.states(v)],
    }
    if isinstance(net, BayesianNetwork):
        n_parents = [len(net.parents(v)) for v in net.variables]
        found |= {
            "arcs": net.n_arcs,
            "most_parents": max(n_parents, default=0),
            "roots": n_parents.count(0),
            "parameters": sum(f.table.size // f.table.shape[-1] * (f.table.shape[-1] - 1) for f in net.factors),
            "rows": str(net.row_report) if net.row_report is not None else "",
        }
    return found


@guarded
def info(file: File, json: Json = False) -> None:
    """Say what a network file holds."""
    net = read_network(file)
    found = facts(net)
    if json:
        print_json({"file": file, **found})
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    rows = [
        ("file", file),
        ("network", found["name"] or "(no name)"),
        ("kind", found["kind"]),
        ("variables", f"{found['variables']:,}, with {found['fewest_states']} to {found['most_states']} states"),
    ]
    if "arcs" in found:
        rows += [
            ("arcs", f"{found['arcs']:,}; {found['roots']:,} roots, at most {found['most_parents']} parents"),
            ("parameters", f"{found['parameters']:,}"),
        ]
    rows += [
        ("table entries", f"{found['entries']:,}, {found['nonzero_entries']:,} of them not zero"),
        ("largest table", f"{found['largest_table']:,} entries ({', '.join(found['largest_table_variables'])})"),
        ("memory", format_bytes(found["bytes"])),
    ]
    if found.get("rows"):
        rows.append(("rows", found["rows"]))
    if found["odd_states"]:
        rows.append(("empty or equal state names", ", ".join(found["odd_states"])))
    for name, value in rows:
        table.add_row(cell(name, "bold"), cell(value))
    print_table(table)
