"""``jtgpu info``: the contents of a network file, or the installation."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import Any

import numpy as np
from click import BadParameter

from ..device.nvcc import find_nvcc
from ..errors import ParseError, TableTooLarge, format_bytes
from ..formats import open_text
from ..formats.bundled import network_path
from ..formats.network_files import Comments, find_comments
from ..formats.number_cursor import parts_of, tables_of
from ..model.cpts import RowReport
from ..model.discrete import DiscreteModel
from ..model.dynamic import DynamicNetwork
from ..model.markov import MarkovNetwork
from ..model.mixed import MixedNetwork
from ..model.mixed_dynamic import MixedDynamicNetwork
from ..model.network import BayesianNetwork
from ..model.noisy import is_noisy
from ..plans.compiler import MAX_TABLE, MEMORY_SHARE, check_bound, order_graph
from ..util.loops import extension
from ..util.system import cache_folder, cores, cpu_name, free_memory
from ..util.text_table import counted
from ..util.text_table import printable as shown
from ..util.version import __version__
from .console import print_json
from .declared import Info
from .networks import warn_of_repairs
from .tables import print_report

# ``jtgpu info --system``: versions, processors, caches, and what is missing for which feature.

# what needs packages that are not always installed: the extra's name, and its packages
FEATURES = {
    "data frames": ("frames", ("narwhals", "pyarrow")),
    "server": ("serve", ("starlette", "uvicorn", "msgspec", "prometheus-client")), "plots": ("plot", ("matplotlib",)),
    "notebook page": ("notebook", ("anywidget", "msgspec")),
    "clusters": ("ray", ("ray", "fsspec", "narwhals", "pyarrow")), "GPU": ("cuda", ("pycuda", "cuda-bindings")),
}
REQUIRED = ("numpy", "numba", "networkx", "click", "platformdirs")


def _version(package: str) -> str | None:
    with suppress(PackageNotFoundError):
        return version_of(package)
    return None


def _output(*command: str) -> str:
    """Output of a program; empty if it does not run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _gpus() -> list[dict[str, str]]:
    """Name, memory and driver of each NVIDIA GPU, from nvidia-smi."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return []
    lines = _output(smi, "--query-gpu=name,memory.total,driver_version,compute_cap", "--format=csv,noheader")
    names = ("name", "memory", "driver", "capability")
    rows = (line.split(", ") for line in lines.splitlines())
    return [dict(zip(names, row, strict=True)) for row in rows if len(row) == len(names)]


def _release_of(nvcc: str) -> str:
    """The line in which nvcc names its version."""
    return next((line for line in _output(nvcc, "--version").splitlines() if "release" in line), "")


def _loops() -> str:
    """Where the loops of the CPU backend come from."""
    module, reason = extension()
    return "compiled ahead of time" if module is not None else f"compiled on first use ({reason})"


def _loop_cache() -> str:
    """The folder of loops that Numba compiles."""
    try:
        from ..util.jit import loops_folder  # imports Numba
    except ImportError as error:
        return str(error)
    return str(loops_folder())


def system_facts() -> dict[str, Any]:
    """Properties of the installation and the machine, as strings, numbers, lists and dicts."""
    features = {}
    for feature, (extra, packages) in FEATURES.items():
        versions = {package: _version(package) for package in packages}
        features[feature] = {"extra": extra, "packages": versions, "missing": [p for p, v in versions.items() if not v]}
    nvcc = find_nvcc()
    return {
        "jtgpu": __version__, "python": f"{platform.python_version()} ({sys.executable})",
        "platform": platform.platform(), "processor": cpu_name(), "cores": cores(), "free_memory": free_memory(),
        "packages": {package: _version(package) for package in REQUIRED}, "loops": _loops(),
        "cache": str(cache_folder()), "loop_cache": _loop_cache(),
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith("JTGPU_") or k == "CUDA_HOME"},
        "gpus": _gpus(), "nvcc": _release_of(nvcc) if nvcc else "", "features": features,
    }


def system_rows(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The lines of the report: a name and a value each."""
    yield from [(name, str(facts[name])) for name in ("jtgpu", "python", "platform")]
    yield "processor", f"{facts['processor']}, {format_bytes(facts['free_memory'])} of memory free"
    yield "packages", ", ".join(f"{name} {v or 'missing'}" for name, v in facts["packages"].items())
    yield from [("loops", facts["loops"]), ("caches", facts["cache"]), ("loop cache", facts["loop_cache"])]
    yield from [("environment", f"{name}={value}") for name, value in facts["environment"].items()]
    for gpu in facts["gpus"]:
        yield "GPU", f"{gpu['name']}, {gpu['memory']}, compute capability {gpu['capability']}, driver {gpu['driver']}"
    if not facts["gpus"]:
        yield "GPU", "none (nvidia-smi lists none)"
    yield "nvcc", facts["nvcc"] or "not found (CUDA_HOME and PATH)"
    for feature, about in facts["features"].items():
        missing, install = ", ".join(about["missing"]), f"pip install '.[{about['extra']}]' in a checkout"
        yield feature, f"missing: {missing}; {install}" if missing else "installed"


MAX_LISTED = 12  # names in the table; --json lists all of them


def facts(net: DiscreteModel) -> dict[str, Any]:
    """Properties of a model as numbers, strings, lists and dicts."""
    noisy = net.noisy if isinstance(net, BayesianNetwork) else {}
    tables = [(scope, table.rows if is_noisy(table) else table) for scope, table in tables_of(net)]
    sizes = [table.size for _, table in tables]
    widest = int(np.argmax(sizes)) if sizes else -1
    cards = net.cardinality
    properties: dict[str, Any] = {
        "name": net.name,
        "kind": "Markov network" if isinstance(net, MarkovNetwork) else
                "Bayesian network" if isinstance(net, BayesianNetwork) else "decision network",
        "variables": len(net),
        "states": int(cards.sum()),
        "fewest_states": int(cards.min()) if len(cards) else 0,
        "most_states": int(cards.max(initial=0)),
        "tables": len(sizes),
        "entries": sum(sizes),
        "nonzero_entries": sum(int(np.count_nonzero(table)) for _, table in tables),
        "largest_table": max(sizes, default=0),
        "largest_table_variables": [net.variables[v] for v in tables[widest][0]] if sizes else [],
        "bytes": 8 * sum(sizes),
        "odd_states": [v for v in net.variables if len(set(net.states(v))) < len(net.states(v)) or "" in net.states(v)],
        "empty_states": [v for v in net.variables if "" in net.states(v)],
        "equal_states": [v for v in net.variables if len(set(net.states(v))) < len(net.states(v))],
        "one_state": [v for v, card in zip(net.variables, cards.tolist(), strict=True) if card == 1],
        "isolated": _isolated(net), "whole_tree": _whole_tree(net),
    }
    if isinstance(net, MarkovNetwork):
        return properties
    parts = parts_of(net)
    n_parents = [len(parts.net.parents(v)) for v in net.variables]
    report, about = parts.net.row_report, parts.net.attributes
    properties |= {
        "arcs": parts.net.n_arcs, "most_parents": max(n_parents, default=0), "roots": n_parents.count(0),
        "parameters": net.n_parameters if isinstance(net, BayesianNetwork) else
                      sum(cpt.size // cpt.shape[-1] * (cpt.shape[-1] - 1) for cpt in parts.cpts().values()),
        "noisy": {v: {"parents": len(n.effects), "strengths": n.rows.size, "expanded": n.size}
                  for v, n in noisy.items()},
        "rows": str(report) if report is not None else "", "row_repairs": _repairs(report),
        "attributes": _attributes(about), "notes": list(about.get("read", {}).get("notes", ())),
        "left_out": list(about.get("read", {}).get("skipped", ())),
    }
    if parts.decisions or parts.utilities:
        properties |= {
            "decisions": [*parts.decisions], "utilities": [*parts.utilities],
            "arcs_to_utilities": sum(table.ndim for table in parts.utilities.values()),
        }
    return properties


def _whole_tree(net: DiscreteModel) -> str:
    """Why the junction tree of the whole network does not fit in memory; empty if a look does not show that."""
    try:
        check_bound(net.cardinality.tolist(), order_graph(net), int(MEMORY_SHARE * free_memory()), MAX_TABLE)
    except TableTooLarge as error:
        return error.message.split(";")[0]
    return ""


def _isolated(net: DiscreteModel) -> list[str]:
    """Variables that share no table with another variable."""
    used = {v for scope, _ in tables_of(net) if len(scope) > 1 for v in scope}
    return [name for v, name in enumerate(net.variables) if v not in used]


def _repairs(report: RowReport | None) -> dict[str, Any]:
    if report is None:
        return {}
    return {
        "rows": report.n_rows, "normalised": report.n_off, "variables": list(report.variables),
        "worst_variable": report.worst_variable, "worst_sum": report.worst_sum, "zero_rows": dict(report.zero_rows),
    }


def _attributes(about: Mapping[str, Any]) -> dict[str, list[str]]:
    """Names of the attributes of the network, its nodes and its tables."""
    names = {"net": sorted(about.get("net", {}))}
    for kind in ("node", "potential"):
        names[kind] = sorted({key for values in about.get(kind, {}).values() for key in values})
    return names


def info(o: Info) -> None:
    """Run ``jtgpu info``."""
    if o.system == (o.file is not None):
        raise BadParameter("name a network file, or use --system", param_hint="FILE")
    if o.file is None:
        _report_system(o.json)
        return
    opened = open_text(network_path(o.file))
    try:
        net: Any = opened.format.parse(opened.text, o.file, decisions="chance" if o.chance_only else "network")
    except ParseError as error:
        if error.nodes and o.json:
            print_json({"file": o.file, "format": opened.format.name, "unreadable": list(error.nodes)})
        elif error.nodes:
            print("\n".join(shown(node) for node in error.nodes))
        raise
    comments = find_comments(opened.text, opened.format.name)
    if isinstance(net, (MixedNetwork, DynamicNetwork, MixedDynamicNetwork)):
        about = mixed_facts(net) if isinstance(net, MixedNetwork) else dynamic_facts(net)
        contents = {"format": opened.format.name, **about}
        if o.json:
            print_json({"file": o.file, **contents})
        else:
            facts_of = {"file": o.file, **contents, "name": net.name or "(no name)"}
            texts = {k.replace("_", " "): ", ".join(x) if isinstance(x, list) else f"{x}" for k, x in facts_of.items()}
            print_report(("", ""), [row for row in texts.items() if row[1]], "ll", named=False)
            if not isinstance(net, MixedNetwork):
                print(f"\n{net}")
        return
    warn_of_repairs(net, o.file)
    about = {
        "format": opened.format.name, "file_bytes": opened.n_bytes, **facts(net),
        "comments": {"n": comments.n, "head": list(comments.head), "legal": list(comments.legal)},
    }
    if o.json:
        print_json({"file": o.file, **about})
        return
    print_report(("", ""), [*_rows(o.file, about, comments)], "ll", named=False)


def mixed_facts(net: MixedNetwork) -> dict[str, Any]:
    """Properties of a network with numbers, for ``jtgpu info``."""
    return {
        "name": net.name, "kind": "mixed network", "variables": len(net), "numbers": list(net.numbers),
        "arcs": len(net.arcs), "most_parents": max((len(net.parents(v)) for v in net), default=0),
        "densities": sum(net.gaussian(v).mean.size for v in net.numbers),
    }  # fmt: skip


def dynamic_facts(net: DynamicNetwork | MixedDynamicNetwork) -> dict[str, Any]:
    """Properties of a template."""
    dyn = net if isinstance(net, DynamicNetwork) else net.discrete
    own = [v for v in net if v in dyn]
    tables = [dyn.cpt(v) for v in own] + [table for v in own for table in dyn.start(v)]
    between = [v if v in dyn.static else f"{v}[t-{lag}]" for v, lag in dyn.interface if v in own]
    about = {
        "name": net.name, "kind": "dynamic network", "variables": len(net), "order": net.order,
        "static": list(net.static), "states": sum(len(dyn.states(v)) for v in own),
        "arcs": sum(len(net.parents(v)) for v in net), "most_parents": max(len(net.parents(v)) for v in net),
        "between_slices": between, "entries": sum(np.asarray(table).size for table in tables),
    }  # fmt: skip
    if isinstance(net, MixedDynamicNetwork):
        densities = sum(g.mean.size for y in net.numbers for g in net.gaussians(y))
        about |= {"kind": "dynamic network with numbers", "numbers": list(net.numbers), "densities": densities}
    return about


def _report_system(json: bool) -> None:
    about = system_facts()
    if json:
        print_json(about)
    else:
        print_report(("", ""), [*system_rows(about)], "ll", named=False)


def _rows(file: str, about: dict[str, Any], comments: Comments) -> Iterator[tuple[str, str]]:
    """The rows of the table on a terminal: a name and a value per line."""
    yield from [
        ("file", file), ("format", f"{about['format']}, {format_bytes(about['file_bytes'])} of text"),
        ("network", about["name"] or "(no name)"), ("kind", about["kind"]),
        ("variables", f"{about['variables']:,}, with {_states(about)}"),
    ]
    if "arcs" in about:
        most = counted(about["most_parents"], "parent")
        utilities = f", and {about['arcs_to_utilities']:,} to utilities" if about.get("utilities") else ""
        yield "arcs", f"{about['arcs']:,}{utilities}; {counted(about['roots'], 'root')}, at most {most}"
        yield "parameters", f"{about['parameters']:,}"
    nodes = [f"{v}, {n['strengths']:,} strengths for {_power(n['expanded'])} entries"
             for v, n in sorted(about.get("noisy", {}).items(), key=lambda item: -item[1]["expanded"])]  # fmt: skip
    for i, node in enumerate(_listed(nodes)):
        yield "" if i else "noisy nodes", node
    widest = ", ".join(_listed(about["largest_table_variables"]))
    yield from [
        ("table entries", f"{about['entries']:,}, {about['nonzero_entries']:,} of them nonzero"),
        ("largest table", f"{about['largest_table']:,} entries ({widest})"),
        ("memory", format_bytes(about["bytes"])),
    ]
    if about["whole_tree"]:
        yield "whole tree", f"does not fit: {about['whole_tree']}; questions are planned one by one"
    if about.get("rows"):
        yield "rows", about["rows"]
    for key, what in (
        ("empty_states", "empty state names"), ("equal_states", "equal state names"), ("one_state", "single state"),
        ("isolated", "isolated"),
    ):
        if about[key]:
            yield what, ", ".join(_listed(about[key]))
    for key in ("decisions", "utilities"):
        if about.get(key):
            yield key, ", ".join(_listed(about[key]))
    for i, node in enumerate(about.get("left_out", [])):
        yield "" if i else "left out", node
    named = {kind: keys for kind, keys in about.get("attributes", {}).items() if keys}
    if named:
        yield "attributes", "; ".join(f"{kind}: {', '.join(keys)}" for kind, keys in named.items())
    for i, note in enumerate(_listed(about.get("notes", []))):
        yield "" if i else "notes", note
    if comments.n:
        yield "comments", f"{comments.n:,}"
        for line in _listed(list(dict.fromkeys([*comments.head, *comments.legal]))):
            yield "", line


def _power(n: int) -> str:
    bits = n.bit_length()
    return f"{n:,}" if bits <= 40 else f"2^{bits - 1}" if n == 1 << (bits - 1) else f"more than 2^{bits - 1}"


def _states(about: dict[str, Any]) -> str:
    fewest, most = about["fewest_states"], about["most_states"]
    return f"{fewest} to {most} states" if fewest < most else f"{counted(most, 'state')} each"


def _listed(names: list[str]) -> list[str]:
    more = len(names) - MAX_LISTED
    return names[:MAX_LISTED] + ([f"... and {more:,} more"] if more > 0 else [])
