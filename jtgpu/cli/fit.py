"""``jtgpu fit``: the tables of a network from a file of cases."""

from __future__ import annotations

import json as encoder
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click import BadParameter
from click.exceptions import Exit

from ..cluster import Cluster
from ..errors import JtgpuError, OutputExists
from ..formats import write
from ..formats.registry import format_of_suffix
from ..learn.parameters.numbers import KINDS
from ..model.dynamic import DynamicNetwork
from ..model.mixed import MixedNetwork
from ..model.mixed_dynamic import MixedDynamicNetwork
from ..model.network import BayesianNetwork
from ..model.quick import parse_codes
from ..options.compute import Compute
from ..options.learning import EM, Keys
from ..options.tables import FileOptions, ReadOptions, TableOptions
from ..util.atomic_file import write_text
from ..util.text_table import printable as shown
from . import INTERRUPTED
from .batch import check_cluster
from .console import format_seconds, print_json, reading, warn
from .declared import Dynamic, Fit, FitCases, FitModel, Workers
from .networks import check_outputs, load_any, split_names, with_codes
from .planning import require_no_decisions
from .saving import output_format, save_network
from .tables import status

if TYPE_CHECKING:
    from ..util.iteration import Iteration

DYNAMIC = ("XDSL", "dynamic JSON")  # formats of dynamic networks; the last one contains numbers


def model_keywords(model: FitModel, variables: Sequence[str]) -> dict[str, Any]:
    """The keywords of `jtgpu.learn.fit`."""
    hidden: dict[str, int | None] = {}
    for text in model.hidden:
        name, equals, number = text.rpartition("=")
        is_counted = equals and number.strip().isascii() and number.strip().isdigit()
        hidden[(name if is_counted else text).strip()] = int(number) if is_counted else None
    return {
        "pseudo_counts": _number_or_text(model.pseudo_counts), "hidden": hidden,
        "fixed": split_names(model.fixed, variables, "variable"),
        "tied": [split_names([group], variables, "variable") for group in model.tie],
    }  # fmt: skip


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def fit(o: Fit, model: FitModel, em: EM, data: FitCases, read: ReadOptions, run: Compute, on: Workers) -> None:
    """Run ``jtgpu fit``."""
    check_cluster(on, run)
    where = None if run.cluster is None else Cluster(run.cluster, on.workers, run.threads)
    checkpoint = Path(f"{o.output}.unfinished")
    net = with_codes(load_any(o.file), o.codes)
    with_numbers = data.continuous is not None or isinstance(net, MixedNetwork)
    wanted = output_format(o.output, with_numbers)  # fails before the computation starts
    check_outputs(o.force or o.resume, o.output, o.report)
    check_run(checkpoint, o.resume or o.force)
    require_no_decisions(net, o.file)
    if not isinstance(net, BayesianNetwork | MixedNetwork):
        raise JtgpuError(f"{o.file}: only Bayesian networks have tables that can be fitted")
    if (with_numbers or data.interventions is not None) and len(o.cases) == 1:
        reading(o.cases[0], read)
    from_data = data.states == "data" or (data.states is None and data.bins is not None)
    kinds = None if data.continuous is None else kinds_of(data.continuous, [*net])
    structure: Any = net
    states: dict[str, Any] | None = None
    if not isinstance(net, MixedNetwork) and (from_data or with_numbers):
        structure = {v: net.parents(v) for v in net}
        if from_data and o.codes and not with_numbers:
            read = read.replaced(codes=parse_codes(net.variables, o.codes))
        if isinstance(kinds, dict) and not from_data:
            states = {v: net.states(v) for v in net if v not in kinds}
    from ..learn.parameters.fit import fit as fit_parameters

    begun = time.perf_counter()
    with status("reading the cases", run.progress) as step, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        fitted: Any = fit_parameters(
            structure, [*o.cases], continuous=kinds, states=states, weights=data.weights, missing=data.missing,
            bins=data.bins, interventions=data.interventions, read=read,
            em=em.replaced(checkpoint=checkpoint, resume=o.resume),
            compute=run.replaced(cluster=where, progress=shown_in(step)), **model_keywords(model, net.variables),
        )  # fmt: skip
    seconds = time.perf_counter() - begun
    for text in dict.fromkeys(str(w.message) for w in caught):
        warn(text)
    if (refused := save_network(fitted.network, o.output, wanted)) is not None:
        raise refused
    summary = fitted.report() | {"output": o.output, "seconds": seconds}
    if o.report is not None:
        write_text(o.report, encoder.dumps(summary, indent=2, allow_nan=False) + "\n")
    finish(fitted, summary, wanted.name, checkpoint, o.json)


def kinds_of(given: Sequence[str], variables: Sequence[str]) -> Any:
    """The argument `continuous` of `jtgpu.learn.fit` from ``--continuous``."""
    if len(given) == 1 and given[0] in KINDS:
        return given[0]
    kinds: dict[str, str] = {}
    for text in ",".join(given).split(","):
        name, equals, kind = text.rpartition("=")
        if kind.strip() not in KINDS or not equals:
            raise BadParameter(
                f"{text!r} is neither {', '.join(KINDS)}, nor NAME=KIND of these", param_hint="--continuous"
            )
        kinds[split_names([name], variables, "variable")[0]] = kind.strip()
    return kinds


def fit_sequences(  # noqa: PLR0913 (records)
    o: Dynamic, net: DynamicNetwork | MixedDynamicNetwork, keys: Keys, query: TableOptions, writing: FileOptions,
    model: FitModel, em: EM, read: ReadOptions, run: Compute,
) -> None:  # fmt: skip
    """Run ``jtgpu dynamic fit``: estimate the CPTs, and the densities of numbers, and write the network."""
    from ..learn.parameters.fit import fit as fit_parameters

    output, checkpoint, known = str(o.output), Path(f"{o.output}.unfinished"), format_of_suffix(str(o.output))
    with_numbers = isinstance(net, MixedDynamicNetwork)
    if known is None or known.name not in DYNAMIC[with_numbers:]:
        ends = ".dynamic.json, the format" if with_numbers else ".dynamic.json or .xdsl, the formats"
        what = "networks with numbers" if with_numbers else "networks"
        raise BadParameter(f"{shown(output)!r} must end in {ends} of dynamic {what}", param_hint="--output")
    check_run(checkpoint, writing.resume or writing.force)
    begun = time.perf_counter()
    with status("reading the sequences", run.progress) as step:
        fitted: Any = fit_parameters(
            net, str(o.sequences), keys=keys, weights=o.weights,
            em=em.replaced(
                seed=o.seed or 0, on_error=query.on_error, checkpoint=checkpoint, resume=writing.resume
            ),
            read=read, compute=run.replaced(progress=shown_in(step)), **model_keywords(model, net.variables),
        )  # fmt: skip
    write(fitted.network, output)
    summary = fitted.report() | {"output": output, "seconds": time.perf_counter() - begun}
    finish(fitted, summary, known.name, checkpoint, o.json)


def check_run(checkpoint: Path, may_exist: bool) -> None:
    """Raise `OutputExists` if an earlier run was interrupted."""
    if checkpoint.exists() and not may_exist:
        raise OutputExists(f"{checkpoint} is that of an interrupted run: --resume continues it, --force starts again")


def finish(fitted: Any, summary: dict[str, Any], format_name: str, checkpoint: Path, json: bool) -> None:
    """Print a fit, and exit as its end requires."""
    output = summary["output"]
    if json:
        print_json(summary)
    else:
        print("\n".join(map(shown, str(fitted).splitlines())))
        print(f"{shown(output)}: {format_name}, {format_seconds(summary['seconds'])}")
    if not fitted.interrupted:
        checkpoint.unlink(missing_ok=True)
        return
    more = "; the same command with --resume continues" if checkpoint.exists() else ""
    warn(f"interrupted: {output} has the last whole iteration{more}")
    raise Exit(INTERRUPTED)


def shown_in(step: Callable[[str], None]) -> Callable[[Iteration], None]:
    """Show each iteration in the status line."""

    def show(entry: Iteration) -> None:
        change = f", change {entry.change:.3g}" if entry.number else ""
        step(f"pass {entry.number}: objective {entry.objective:.6g}{change}, {format_seconds(entry.seconds)}")

    return show
