"""Sampled graphs as files of other programs: CSV, GML and GraphML."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ....errors import ArgumentError
from ....formats.files import write_bytes

if TYPE_CHECKING:
    import networkx

SUFFIXES = (".csv", ".gml", ".graphml")


def write_graphs(path: Path, graphs: Sequence[networkx.DiGraph[str]]) -> list[Path]:
    """Write graphs, those of CSV to one file, others to a file each; the files that were written."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ArgumentError(f"the path must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, not {suffix!r}")
    if suffix == ".csv":
        buffer = io.StringIO()
        rows = csv.writer(buffer, lineterminator="\n")
        rows.writerow(("graph", "parent", "child"))
        rows.writerows((i, u, v) for i, graph in enumerate(graphs) for u, v in graph.edges)
        write_bytes(path, buffer.getvalue().encode())
        return [path]
    import networkx

    generate = networkx.generate_gml if suffix == ".gml" else networkx.generate_graphml
    width = len(str(len(graphs) - 1))
    files = [path.with_name(f"{path.stem}-{i:0{width}}{path.suffix}") for i in range(len(graphs))]
    for file, graph in zip(files, graphs, strict=True):
        write_bytes(file, ("\n".join(generate(graph)) + "\n").encode())
    return files
