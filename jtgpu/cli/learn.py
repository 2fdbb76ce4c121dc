"""``jtgpu learn``: a network from a table of cases."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click import BadParameter, echo

from ..draw import arcs, heat_map
from ..errors import NetworkError
from ..learn.dags.posterior.posterior import posterior
from ..learn.dags.scores.coded import DRAWN, CodedTable
from ..learn.dags.scores.numeric_table import code_table, table_of
from ..learn.dags.scores.rules import ScoreRule
from ..learn.dags.structure import Structure, structure
from ..learn.dags.task import require_feasible
from ..learn.discretisation import discretise
from ..model.network import BayesianNetwork
from ..options.compute import Compute
from ..options.learning import Chains, Constraints, Search
from ..options.tables import ReadOptions
from ..util.atomic_file import write_text
from ..util.text_table import counted
from .console import csv_text, print_json, read_cases, reading, warn
from .declared import Learn, LearnConstraints, LearnFiles, LearnModel, LearnTable
from .networks import check_outputs, check_picture, read_network, split_names
from .saving import output_format, save_network
from .tables import print_note, print_rows, status

if TYPE_CHECKING:
    from ..learn.dags.posterior.result import StructurePosterior

ARCS = {"forbidden": "--forbid", "required": "--require"}


def compute_posterior(
    table: CodedTable, files: LearnFiles, chains: Chains, progress: Any, options: dict[str, Any]
) -> StructurePosterior:
    """Compute the posterior, and write all files but the network."""
    if chains.checkpoint is not None and not files.resume:
        Path(chains.checkpoint).unlink(missing_ok=True)  # --force: another run may have written it
    with status("scoring families", progress) as step, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        options["compute"] = options["compute"].replaced(progress=step)
        learned = posterior(table, chains=chains, seconds=files.seconds, **options)
        text = ""
        if files.edges is not None:
            step("computing paths and equivalence classes")
            columns = learned.columns()
            text = csv_text(columns, zip(*columns.values(), strict=True))
    again = "--resume" if chains.checkpoint is not None else "--checkpoint FILE, and then --resume"
    for warning in caught:
        warn(str(warning.message).replace("posterior.more()", again))
    if files.edges is not None:
        write_text(files.edges, text)
    for path, picture in ((files.draw, heat_map), (files.draw_network, arcs)):
        if path is not None:
            write_text(path, picture(learned).text(path.suffix))
    if files.save is not None:
        learned.save(files.save)
    return learned


def _print_posterior(learned: StructurePosterior) -> None:
    chosen, listed = learned.printed_arcs()
    rows: list[tuple[str, ...]] = [(a.parent, a.child, f"{a.probability:.4f}", f"{a.mcse:.4f}") for a in listed]
    columns = 4 if learned.n_chains else 3  # exact probabilities have no standard errors
    print_rows(("parent", "child", "probability", "mcse")[:columns], [row[:columns] for row in rows])
    if chosen:
        print_note(chosen)
    print_note(learned.summary())
    echo(learned.describe(), err=True)


def _report_posterior(
    learned: StructurePosterior, table: CodedTable, files: LearnFiles, output: str | None, data: str
) -> dict[str, Any]:
    """The result as values that JSON can hold."""
    return {
        **_data_as_json(data, table), "variables": list(learned.names), "method": learned.method,
        "converged": learned.converged, "rhat": learned.rhat, "largest_mcse": float(learned.mcse.values.max()),
        "steps": learned.n_steps, "chains": learned.n_chains, "coverage": learned.coverage,
        "log_evidence": learned.log_evidence, "edges": [list(arc) for arc in learned.edges(0.01)],
        "arcs": [list(arc) for arc in learned.structure.arcs], "score": learned.structure.score,
        "log_weight": learned.map_score, "not_converged_because": list(learned.shortfall), "output": output,
        "edges_file": files.edges and str(files.edges),
        "pictures": [str(path) for path in (files.draw, files.draw_network) if path is not None],
        "saved": files.save and str(files.save),
    }  # fmt: skip


def _data_as_json(data: str, table: CodedTable) -> dict[str, Any]:
    words = {v: list(words) for v, words in table.missing.words.items()}
    return {
        "data": data, "cases": table.n_cases, "dropped": table.dropped, "missing_cells": dict(table.missing.cells),
        "missing_words": words,
    }


def learn(  # noqa: PLR0913 (records)
    o: Learn, model: LearnModel, columns: LearnTable, constraints: LearnConstraints, search: Search, files: LearnFiles,
    chains: Chains, read: ReadOptions, run: Compute,
) -> None:  # fmt: skip
    """Run ``jtgpu learn``."""
    writer = output_format(o.output, ScoreRule(model.score).takes_numbers)
    check_outputs(o.force, o.output)
    is_wanted = (
        model.method == "mcmc" or model.graph_prior == "order" or run.cluster is not None
        or files != LearnFiles() or chains != Chains() or columns.missing == "augment"
    )  # fmt: skip
    if is_wanted and columns.missing == "em":
        raise BadParameter("em finds a graph; augment computes the probabilities of arcs", param_hint="--missing")
    _check(o, model, files, chains, is_wanted)
    table = _read(o.data, read, model, columns, run.memory_limit)
    options: dict[str, Any] = vars(model) | {
        "constraints": _constraints(constraints, table.names),
        "search": search.replaced(start=None if search.start is None else _network(search.start)),
        "compute": run.replaced(progress=None),
    }  # fmt: skip
    if columns.missing in DRAWN:
        options["missing"] = columns.missing
    best: StructurePosterior | Structure
    keywords: dict[str, Any] = {}
    if is_wanted:
        best = compute_posterior(table, files, chains, run.progress, options)
        keywords["threshold"] = None if files.threshold == "map" else files.threshold
    else:
        with status("searching for the best graph", run.progress):
            best = structure(table, **options)
    refused = None if o.output is None else save_network(best.network(**keywords), o.output, writer)
    if isinstance(best, Structure):
        _report(best, table, o.data if o.json else None, o.output)
    elif o.json:
        print_json(_report_posterior(best, table, files, o.output, o.data))
    else:
        _print_posterior(best)
    if refused is not None:
        raise refused


def _check(o: Learn, model: LearnModel, files: LearnFiles, chains: Chains, is_wanted: bool) -> None:
    """Reject contradictions and outputs before anything is computed."""
    if is_wanted and model.method in ("order", "greedy", "tabu"):
        raise BadParameter(
            f"{model.method} finds a graph, not the probabilities of arcs: use auto, exact or mcmc",
            param_hint="--method",
        )
    for picture, option in ((files.draw, "--draw"), (files.draw_network, "--draw-network")):
        check_picture(picture, o.force, option)
    if files.resume and chains.checkpoint is None:
        raise BadParameter("--resume requires --checkpoint", param_hint="--resume")
    if files.resume and chains.checkpoint is not None and not Path(chains.checkpoint).is_file():
        raise BadParameter(f"{chains.checkpoint}: there is no run to continue", param_hint="--resume")
    check_outputs(o.force, files.edges, files.save, None if files.resume else chains.checkpoint)


def _network(file: str) -> BayesianNetwork:
    net = read_network(file)
    if not isinstance(net, BayesianNetwork):
        raise NetworkError(f"{file} is not a Bayesian network")
    return net


def _constraints(given: LearnConstraints, names: Sequence[str]) -> Constraints:
    """The constraints, with names of columns."""
    lines = [*(given.tiers or ())]
    if given.tiers_file is not None:
        if lines:
            raise BadParameter("--tier and --tiers exclude each other", param_hint="--tiers")
        try:
            text = given.tiers_file.read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise BadParameter(f"{given.tiers_file}: {error}", param_hint="--tiers") from None
        lines = [line for row in text.splitlines() if (line := row.partition("#")[0].strip())]
    arcs: dict[str, Any] = {
        name: [split_names([text], names, "column") for text in getattr(given, name)] for name in ARCS
    }
    for name, option in ARCS.items():
        for arc, text in zip(arcs[name], getattr(given, name), strict=True):
            if len(arc) != 2:
                raise BadParameter(f"{text!r} is not an arc A,B", param_hint=option)
    tiers = [split_names([line], names, "column") for line in lines] or None
    return Constraints(**arcs, tiers=tiers, within_tiers=given.within_tiers)


def _read(
    data: str, read: ReadOptions, model: LearnModel, columns: LearnTable, memory: Any
) -> CodedTable:  # fmt: skip
    """The columns that are kept, with intervals in place of numbers unless states or numbers are declared."""
    declared = None if columns.states == "data" else _network(columns.states)
    rule = ScoreRule(model.score, model.ess)
    if not any((columns.exclude, columns.columns, columns.bins, columns.continuous, rule.takes_numbers)):
        if declared is None:
            require_feasible(data, memory, dialect=read)
        return code_table(
            data, states=declared, missing=columns.missing, constant=read.constant, dialect=reading(data, read),
            na_values=read.na_values, interventions=columns.interventions,
        )  # fmt: skip
    states = {} if declared is None else {v: declared.states(v) for v in declared.variables}
    table = read_cases(data, read, states)
    names = table.column_names
    numbers: Any = columns.continuous
    numbers = True if numbers == ("all",) else numbers and split_names(numbers, names, "column")
    out = set(split_names(columns.exclude, names, "column"))
    chosen = set(names) if columns.columns is None else set(split_names(columns.columns, names, "column"))
    chosen |= {columns.interventions} - {None}
    table = table.select([name for name in names if name in chosen and name not in out])
    if columns.bins is not None and not (numbers is True or (numbers is None and rule.takes_numbers)):
        free = [name for name in table.column_names if name not in {*states, *(numbers or ()), columns.interventions}]
        table = discretise(table.select(free), bins=columns.bins).apply(table)
    constant = ReadOptions(constant=read.constant)
    return table_of(
        table, rule, numbers, states=declared, missing=columns.missing, read=constant,
        interventions=columns.interventions,
    )  # fmt: skip


def _report(best: Structure, table: CodedTable, data: str | None, output: str | None) -> None:
    """Print the graph; as JSON if there is a name of the data."""
    if data is not None:
        arcs = [list(arc) for arc in best.arcs]
        print_json({
            **_data_as_json(data, table), "variables": list(table.names), "arcs": arcs, "score": best.score,
            "log_weight": best.log_weight, "method": best.method, "output": output,
        })
        return
    print_rows(("parent", "child"), best.arcs)
    known = {
        "exact": "no graph has a higher score", "order": "found by search over orders",
        "em": "found by structural EM; BIC of the observed cells",
    }  # fmt: skip
    found_by = known.get(best.method, f"found by {best.method} search")
    n_arcs = counted(len(best.arcs), "arc")
    echo(f"{counted(table.n_cases, 'case')}, {n_arcs}, ln score {best.score:.6g}: {found_by}", err=True)
    for line in table.missing_lines():
        echo(line, err=True)
