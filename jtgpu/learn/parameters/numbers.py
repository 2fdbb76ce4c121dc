"""`fit` with numbers: which columns are numbers, intervals or states, and a `MixedNetwork` of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from ...columns import Table as Cells
from ...columns import as_numbers, open_table, read_column
from ...columns.files import in_memory
from ...columns.memory import first_text
from ...columns.schema import MANY_NUMBERS, Schema
from ...errors import ArgumentError, DataError, closest, shown
from ...mixed.evidence import MixedCases, read_cases
from ...mixed.fitting import Strength, uniform_network, with_spread
from ...mixed.regressions import warn_of_errors
from ...model.directed import DirectedModel
from ...model.mixed import MixedNetwork
from ...util.arguments import choice, mapping, names, number
from ...util.arrays import Floats, Ints
from ...util.calls import outside
from ...util.cells import MissingReport, is_likelihood, is_missing, warn_of_few
from ..columns import sample_weights
from .families import check_sizes, read_structure
from .result import Fit
from .runs import FitRun, best_of_starts
from .setup import Columns, Model, hidden_states, of_discretiser, read_sharing, sample_size, without_states
from .sources import require_rows
from .value_steps import Values, errors_of

KINDS = ("gaussian", "intervals", "states")
DEFAULT_BINS = 5


def fit_numbers(
    structure: object, cases: object, numbers: str | Mapping[str, str] | None, columns: Columns, model: Model,
    run: FitRun,
) -> Fit[MixedNetwork]:
    """Fit a network with numbers; see `jtgpu.learn.fit`."""
    choice("missing", columns.missing, ("em", "error", "drop"))
    choice("zeros", model.zeros, ("keep", "free"))
    start, codes = model.start, model.codes
    if not isinstance(start, MixedNetwork):
        choice("start", start, ("auto", "given", "random"))
        if start == "given" and not isinstance(structure, MixedNetwork):
            raise ArgumentError("start='given' requires a network with CPTs and Gaussians as the structure")
    kinds: str | Mapping[str, str] = numbers or "gaussian"
    known: Mapping[str, Any] | None
    if isinstance(structure, MixedNetwork):
        start = structure if start == "given" else start
        parents: dict[str, tuple[str, ...]] = {v: structure.parents(v) for v in structure}
        known, _ = of_discretiser(model.states, parents)
        codes = structure.discrete.state_codes if codes is None else codes
        known = {**{v: structure.states(v) for v in structure.discrete}, **(known or {})}
        if numbers is None:
            kinds = dict.fromkeys((v for v in structure.numbers if v not in known), "gaussian")
    else:
        parents = read_structure(structure).parents
        known, _ = of_discretiser(model.states, parents)
    hide = hidden_states(model.hidden, structure.discrete if isinstance(structure, MixedNetwork) else None, [*parents])
    cases = in_memory(cases, columns.dialect, columns.na_values, mapping("states", known))
    given = start if isinstance(start, MixedNetwork) else structure if isinstance(structure, MixedNetwork) else None
    model = model._replace(states={**mapping("states", known), **hide}, hidden=tuple(hide), start=start, codes=codes)
    return _fit_table(open_table(None, cases), parents, kinds, columns, model, run, given)


def _fit_table(
    table: Cells, parents: Mapping[str, Sequence[str]], numbers: str | Mapping[str, str], columns: Columns,
    model: Model, run: FitRun, given: MixedNetwork | None,
) -> Fit[MixedNetwork]:  # fmt: skip
    # given: a network whose parameters fixed variables keep
    require_rows(table.n, "the table")
    likelihood = mapping("likelihood", columns.likelihood)
    alone = [v for v in likelihood if v in parents and v not in table.names]  # variables without a column
    if unknown := [v for v in alone if v not in model.states]:
        raise without_states(unknown[0])
    observed = [v for v in parents if v not in model.hidden and v not in alone]
    kinds = column_kinds(table, observed, numbers, model.states)
    row_weights = sample_weights(column_weights(table, columns.weights), table.n)
    cells: dict[str, Any] = {v: table.column(v) for v in observed}
    labels = {v: _labels(table, v, kinds.get(v, "states"), model) for v in parents}
    strength = Strength(*_prior(model.prior), model.zeros == "keep" and isinstance(model.start, MixedNetwork))
    for v in kinds:
        if kinds[v] == "gaussian" and len(np.unique(np.asarray(as_numbers(cells[v])))) == 2:
            warnings.warn(
                f"the column {v!r} has two values and is fitted as a number; continuous={{{v!r}: 'states'}} makes "
                "states of them", stacklevel=outside(),
            )  # fmt: skip
    discrete = {v: [p for p in above if labels[p] is not float] for v, above in parents.items()}
    sizes = {v: ("",) if own is float else own for v, own in labels.items()}  # of a number its configurations
    check_sizes(DirectedModel(sizes, discrete), model.max_table)
    shell = uniform_network(labels, parents).with_codes(model.codes)
    read = read_cases(shell, cells, likelihood, None)
    rows, gaps, dropped = _with_rule(read, row_weights, columns.missing, [*observed], shell, table)
    whole, read, row_weights = row_weights, replace(read.part(rows), table=None), row_weights[rows]
    first = _in_order(model.start, shell) if isinstance(model.start, MixedNetwork) else None
    first = first or with_spread(shell, read, row_weights)
    fixed = _fixed(model.fixed, shell)
    if fixed:
        if given is None:
            raise ArgumentError("fixed requires a network with CPTs and Gaussians as the structure, or as start=")
        own: Any = _in_order(given, shell)
        first = first.replace(cpt={v: own.gaussian(v) if own.is_number(v) else own.cpt(v) for v in fixed})
    held = [v for v in fixed if not shell.is_number(v)]
    sharing = read_sharing(shell.discrete, shell.discrete, held, model.tied)
    values = Values(
        first, read, row_weights, strength, {"threads": run.compute.threads, "order": run.em.order}, fixed=fixed,
        sharing=sharing, hidden=model.hidden, source=(table, rows),
        is_random=model.start == "random" or (bool(model.hidden) and model.start == "auto"),
    )  # fmt: skip
    more: dict[str, Any] = {}
    with closing(values):
        if values.is_complete and not fixed:  # that may make a row impossible
            state, method = values.counted(run.listen), "counts"
        else:
            method = "em"
            state, more = best_of_starts(values, values, run, values.digests)
        if not state.interrupted:
            warn_of_errors(values.errors)
    network, used = values.network(state.tables), values.weights > 0
    counts = {
        v: sums[:, 0, 0].reshape(network.gaussian(v).mean.shape) if network.is_number(v) else sums
        for v, sums in zip(network, state.evaluation.sums, strict=True) if v not in fixed
    }  # fmt: skip
    kept = read.part(np.flatnonzero(used)), row_weights[used], strength, fixed, sharing, model.hidden
    if run.em.standard_errors and not state.interrupted:
        more["_errors"] = errors_of(network, method, *kept, **run.kind_of_errors)
    return Fit._of(
        network.with_codes(model.codes), state, method, counts, int(used.sum()), n_dropped=dropped, fixed=fixed,
        hidden=model.hidden, missing=MissingReport(gaps), **more,
        states_from_data=tuple(v for v, own in labels.items() if own is not float and v not in model.states),
        n_weightless=int((whole <= 0).sum()),
        _rows=kept,
    )  # fmt: skip


def _labels(table: Cells, v: str, kind: str, model: Model) -> Any:
    """The states of a variable, or float."""
    if kind == "gaussian":
        return float
    if v in model.states:
        return tuple(map(str, model.states[v]))
    column = read_column(v, table)
    at_most = (model.bins or DEFAULT_BINS) if kind == "intervals" else None
    schema = Schema(bins=at_most)
    schema.add(v, *column.used(is_likelihood)[1:], declared=column.declared, chosen=True)
    schema.settle()
    return schema.states[v]


def _fixed(given: object, net: MixedNetwork) -> tuple[str, ...]:
    """The variables whose parameters stay."""
    for v in (fixed := tuple(names("fixed", given))):
        if v not in net:
            raise ArgumentError(f"fixed: there is no variable {v!r}{closest(v, net.variables)}")
    return fixed


def column_weights(table: Cells, weights: object) -> Any:
    """The weights of rows that a column has if this is its name."""
    if not isinstance(weights, str):
        return weights
    if weights not in table.names:
        raise DataError(f"there is no column {weights!r} of weights{closest(weights, table.names)}")
    numbers = as_numbers(table.column(weights))
    if numbers is None:
        row, cell = first_text(table.column(weights))
        raise DataError(f"{table.row_name(row)}, column {weights!r}: the weight is {shown(cell)}, not a finite number")
    return numbers


def column_kinds(
    table: Cells, variables: Iterable[str], numbers: str | Mapping[str, str], states: Mapping[str, object]
) -> dict[str, str]:
    """Kind of each variable: "gaussian", "intervals" or "states"."""
    variables = [*variables]
    for v in variables:
        if v not in table.names:
            _no_column(v, table.names)
    if isinstance(numbers, str):
        choice("continuous", numbers, KINDS)
        kinds = {v: numbers if v not in states and _is_numeric(table.column(v)) else "states" for v in variables}
        return kinds
    given = mapping("continuous", numbers)
    for v, kind in given.items():
        if v not in variables:
            raise ArgumentError(f"continuous: there is no variable {v!r}{closest(str(v), variables)}")
        choice(f"continuous[{v!r}]", kind, KINDS)
        if kind != "states" and not _is_numeric(table.column(v)):
            row, cell = first_text(table.column(v))
            if is_missing(cell):
                raise DataError(f"column {v!r} has no number and cannot be {kind!r}")
            what = "holds text," if isinstance(cell, str) else "has"
            raise DataError(
                f"column {v!r} {what} {shown(cell)} in {table.row_name(row)}, and cannot be {kind!r}: remove "
                f"{'the text' if isinstance(cell, str) else 'such cells'}, or leave it as states"
            )
    for v in variables:
        if v in given or v in states:
            continue
        x = as_numbers(table.column(v))
        if x is not None and len(np.unique(x[~np.isnan(x)])) > MANY_NUMBERS:
            raise DataError(
                f"column {v!r} has more than {MANY_NUMBERS} different numbers; name its kind: continuous={{{v!r}: "
                "'gaussian'} or 'intervals'"
            )
    return {v: given.get(v, "states") for v in variables}


def _is_numeric(column: object) -> bool:
    x = as_numbers(column)
    return x is not None and bool((~np.isnan(x)).any())


def _no_column(name: str, names: Sequence[str]) -> Any:
    hint = f"if it is never observed, declare it: hidden={{{name!r}: 2}}"
    raise DataError(f"the table has no column {name!r}{closest(name, names)}; {hint}")


def _prior(prior: object) -> tuple[float, float | str]:
    """Rows of the pooled regression, and counts of CPTs."""
    if isinstance(prior, str) and prior.startswith("bdeu:"):
        return sample_size(prior, prior[5:]), prior
    if isinstance(prior, (str, Mapping)):
        raise ArgumentError(f"with continuous variables, pseudo_counts must be a number or 'bdeu:ESS', not {prior!r}")
    value = number("pseudo_counts", prior, least=0)
    return value, value


def _in_order(start: MixedNetwork, shell: MixedNetwork) -> MixedNetwork:
    """The network where EM starts, with the variables in the order of the cases."""
    own = {v: (start.states(v), start.is_number(v), start.parents(v)) for v in start}
    if own != {v: (shell.states(v), shell.is_number(v), shell.parents(v)) for v in shell}:
        raise ArgumentError("start: the network has other variables, states or parents than the structure")
    return shell.replace(cpt={v: start.gaussian(v) if start.is_number(v) else start.cpt(v) for v in shell})


def _with_rule(
    read: MixedCases, weights: Floats, missing: str, observed: Sequence[str], net: MixedNetwork, table: Cells
) -> tuple[Ints, dict[str, int], int]:
    """The rows that are fitted, missing cells by column, and how many rows were left out."""
    holes = {v: read.missing(i) for i, v in enumerate(net.discrete.variables) if v in observed}
    holes |= {v: np.isnan(read.values[:, i]) for i, v in enumerate(net.numbers)}
    gaps = {v: int(h.sum()) for v, h in holes.items() if h.any()}
    used = weights > 0
    dropped = 0
    if gaps and missing == "error":
        v = min(gaps, key=lambda name: int(np.argmax(holes[name])))
        raise DataError(f"{table.row_name(int(np.argmax(holes[v])))}, column {v!r}: missing cell; use missing='em'")
    if gaps and missing == "drop":
        complete = ~np.logical_or.reduce([*holes.values()])
        dropped = int((used & ~complete).sum())
        used &= complete
        if not used.any():
            raise DataError("every row has a missing cell; use missing='em'")
        warn_of_few(int(used.sum()), dropped + int(used.sum()), gaps)
    return np.flatnonzero(used), gaps, dropped
