"""Reading and writing network files in every format, compared with pyAgrum; answers are compared first.

    python bench/bench_formats.py                          Diabetes, Mildew, Barley, Munin4, Link, pathfinder
    python bench/bench_formats.py asia alarm               others, or paths
    python bench/bench_formats.py --formats .bif .uai      some of the formats
    python bench/bench_formats.py --smoke                  two small networks, one run, nothing kept

A network is written in a format, read back and held against the original, number by number, bit for bit; then
reading is timed from a file on disk to a network that has checked itself. ``.bif`` stands here a second time, as
others write it: rows with the first parent fastest, seven digits behind the point. pyAgrum reads the same file in the
same process, where it can; its numbers are compared to 1e-6. Rows are JSON lines: bytes, seconds, bytes a second, and
the most memory that reading took at a time as a multiple of the file (`tracemalloc`, in a run of its own).
"""

from __future__ import annotations

import importlib
import itertools
import json
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rows import network, parser_of, row, store, timed

import jtgpu
from jtgpu.formats import FORMATS, bundled
from jtgpu.model.network import BayesianNetwork

NETWORKS = ("diabetes", "mildew", "barley", "munin4", "link", "pathfinder")
OTHERS = "bif, as others write it"
PEER_READS = {".bif", ".net", ".dsl", ".uai", ".xdsl", ".xmlbif", OTHERS}
PEER_TOLERANCE = 1e-6

Rows = Iterator[dict[str, Any]]


def as_others_write_it(net: BayesianNetwork) -> str:
    """A BIF file in bnlearn's manner."""
    lines = ["network unknown {", "}"]
    for v in net.variables:
        labels = ", ".join(net.states(v))
        lines += [f"variable {v} {{", f"  type discrete [ {len(net.states(v))} ] {{ {labels} }};", "}"]
    for v in net.variables:
        parents, cpt = net.parents(v), net.cpt(v)
        given = f" | {', '.join(parents)}" if parents else ""
        lines.append(f"probability ( {v}{given} ) {{")
        for key in itertools.product(*(range(len(net.states(p))) for p in reversed(parents))):
            at = key[::-1]
            states = ", ".join(net.states(p)[s] for p, s in zip(parents, at, strict=True))
            lines.append(f"  {f'({states})' if parents else 'table'} {', '.join(f'{x:.7f}' for x in cpt[at])};")
        lines.append("}")
    return "\n".join([*lines, ""])


def survives(path: Path) -> bool:
    """Does pyAgrum read a file in a process of its own? On some it ends the process that it is in."""
    code = f"import pyagrum; pyagrum.loadBN({str(path)!r})"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def peer_reads(path: Path, net: BayesianNetwork, *, named: bool) -> float | None:
    """Largest difference of a number as pyAgrum reads it; None where it does not read the file."""
    if not survives(path):
        return None
    theirs = importlib.import_module("pyagrum").loadBN(str(path))
    gap = 0.0
    for i, v in enumerate(net.variables):
        name = v if named else theirs.variable(i).name()
        table = theirs.cpt(name)
        names = list(table.names)[::-1]  # their arrays have the child last and the axes the other way round
        wanted = [p if named else theirs.variable(net.index(p)).name() for p in (*net.parents(v), v)]
        numbers = np.asarray(table[:]).transpose([names.index(p) for p in wanted])
        gap = max(gap, float(np.abs(numbers - net.cpt(v)).max()))
    return gap


def most_memory(path: Path) -> int:
    """Bytes that reading a file held at a time, at most."""
    tracemalloc.start()
    try:
        jtgpu.read(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def measure(net: BayesianNetwork, name: str, kind: str, folder: Path, budget: float, least: int) -> Rows:
    """The rows of one network in one format."""
    suffix = ".bif" if kind == OTHERS else kind
    path = folder / f"{name}{suffix}"
    write_seconds = None
    if kind == OTHERS:
        path.write_text(as_others_write_it(net), encoding="utf-8")
    else:
        write_seconds = timed(lambda _: jtgpu.write(net, path), [None], budget, least).median
    again: jtgpu.DiscreteModel = jtgpu.read(path)
    tolerance = 1e-5 if kind == OTHERS else 0.0
    for a, b in zip(net.factors, again.factors, strict=True):
        if a.scope != b.scope or np.abs(a.table - b.table).max() > tolerance:
            raise SystemExit(f"{path}: what is read is not what was written; nothing is timed")
    n_bytes = path.stat().st_size
    shared: dict[str, Any] = {"format": kind, "bytes": n_bytes, "numbers": sum(f.table.size for f in net.factors)}
    spread = timed(lambda _: jtgpu.read(path), [None], budget, least)
    yield row(
        "formats", name, "jtgpu", spread, **shared, bytes_per_second=round(n_bytes / spread.median),
        write_seconds=write_seconds, memory_times_file=round(most_memory(path) / n_bytes, 2),
    )  # fmt: skip
    if kind not in PEER_READS:
        return
    try:
        gum = importlib.import_module("pyagrum")
    except ImportError:
        return
    compared = again if isinstance(again, BayesianNetwork) else net
    gap = peer_reads(path, compared, named=suffix != ".uai")
    if gap is None or gap > PEER_TOLERANCE:
        yield row("formats", name, "pyagrum", None, **shared, refused=gap is None, difference=gap)
        return
    spread = timed(lambda _: gum.loadBN(str(path)), [None], budget, min(least, 3))
    yield row(
        "formats", name, "pyagrum", spread, **shared, bytes_per_second=round(n_bytes / spread.median), difference=gap
    )


def show(found: dict[str, Any]) -> None:
    """One line of the table."""
    if "median" not in found:
        why = "not read" if found["refused"] else f"other numbers (by {found['difference']:.2g})"
        print(f"{'':<36}{found['engine']:<9}{why}", flush=True)
        return
    head = f"{found['network']:<12}{found['format']:<24}" if found["engine"] == "jtgpu" else " " * 36
    memory = f"{found['memory_times_file']:>8.2f} x" if "memory_times_file" in found else ""
    median, low, high = (f"{1000 * found[name]:.1f}" for name in ("median", "low", "high"))
    print(
        f"{head}{found['engine']:<9}{found['bytes'] / 1e6:>8.2f} MB{median:>10} ms ({low} - {high})"
        f"{found['bytes_per_second'] / 1e6:>8.1f} MB/s{memory}",
        flush=True,
    )


def main() -> None:
    """Parse, measure, print."""
    parser = parser_of(__doc__, "formats.jsonl")
    parser.add_argument("networks", nargs="*", help="names of nets/, or paths")
    written = [f.suffixes[0] for f in FORMATS if f.dumps]
    parser.add_argument("--formats", nargs="+", default=[*written, OTHERS], help="suffixes; default: all")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each engine, network and format")
    options = parser.parse_args()
    names = options.networks or (("asia", "alarm") if options.smoke else NETWORKS)
    with tempfile.TemporaryDirectory() as folder:
        for given in names:
            path = network(given)
            net = jtgpu.read(path)
            if not isinstance(net, BayesianNetwork):
                raise SystemExit(f"{path}: no Bayesian network")
            for kind in options.formats:
                budget, least = (0.0, 1) if options.smoke else (options.seconds, 5)
                for found in measure(net, bundled.stem(path), kind, Path(folder), budget, least):
                    show(found)
                    store(options, [found])
    if options.smoke:
        print(json.dumps({"smoke": "ok", "networks": list(names)}))


if __name__ == "__main__":
    main()
