"""``jtgpu rank``: the variables or edges with the most shortest paths through them."""

from __future__ import annotations

from typing import Any

from click import BadParameter

from ..graphs.centrality import betweenness
from ..model.discrete import DiscreteModel
from ..model.mixed import MixedNetwork
from ..options.compute import Compute
from ..options.tables import ReadOptions
from ..util.atomic_file import write_text
from .console import print_json, read_cases, warn
from .declared import Rank
from .networks import check_picture, load_any
from .tables import print_rows, status

TABLES = (".csv", ".tsv", ".parquet")


def rank(o: Rank, read: ReadOptions, run: Compute) -> None:
    """Run ``jtgpu rank``."""
    graph = _read(o.file, read)
    if o.published:
        _print_published(graph)
        return
    is_network = isinstance(graph, DiscreteModel)
    if is_network and o.directed:
        raise BadParameter("the arcs of a network have a direction already", param_hint="--directed")
    if not is_network and o.skeleton:
        raise BadParameter("edges of a table have no direction unless --directed", param_hint="--skeleton")
    if o.output is not None:
        if o.edges or not is_network:
            raise BadParameter("only the variables of a network can be drawn", param_hint="--output")
        check_picture(o.output, o.force)
    with status("ranking") as report:
        values: dict[Any, float] = betweenness(
            graph, directed=False if o.skeleton else o.directed or None, weight=o.weight, k=o.samples, seed=o.seed,
            edges=o.edges,
            compute=run.replaced(progress=lambda done, total, _: report(f"{done:,} of {total:,} sources")),
        )  # fmt: skip
    if o.output is not None:
        from ..draw import show_ranks

        write_text(o.output, show_ranks(graph, values).text(o.output.suffix))
    ranked = sorted(values.items(), key=lambda item: -item[1])  # stable: ties in the order of the file
    ranks = {x: i for i, (_, x) in reversed([*enumerate(ranked, 1)])}
    if o.json:
        names = ("from", "to") if o.edges else ("variable",)
        rows = [
            dict(zip((*names, "rank", "betweenness"), (*_cells(key, o.edges), ranks[x], x), strict=True))
            for key, x in ranked[:o.top]
        ]
        print_json({"file": o.file, "edges" if o.edges else "variables": len(ranked), "ranking": rows})
        return
    header = ("rank", "from", "to", "betweenness") if o.edges else ("rank", "variable", "betweenness")
    print_rows(header, [(ranks[x], *_cells(key, o.edges), x) for key, x in ranked[:o.top]])


def _print_published(graph: object) -> None:
    """The published program over its parameters."""
    from ..published.betweenness import measure

    with status("timing") as report:
        rows = [
            r.cells() for r in measure(graph, progress=lambda done, total, _: report(f"{done} of {total} settings"))
        ]
    print_rows(("program", "streams", "neighbours", "block", "seconds", "sources measured"), rows)


def _read(file: str, read: ReadOptions) -> Any:
    """A network, or a table of edges."""
    is_table = file.lower().removesuffix(".gz").endswith(TABLES)
    if not is_table:
        net = load_any(file)
        return net.graph if isinstance(net, MixedNetwork) else net
    table = read_cases(file, read)
    names: list[str] = getattr(table, "column_names", [])
    if len(names) > 2 and not {"from", "to"} <= {*names}:
        warn(f"{file} has no columns from and to: its edges are those between {names[0]} and {names[1]}")
    return table


def _cells(key: Any, edges: bool) -> list[str]:
    return [str(part) for part in key] if edges else [str(key)]
