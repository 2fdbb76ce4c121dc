"""`fit` with numbers: which columns are numbers, intervals or states, and a `MixedNetwork` of them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...columns import as_numbers, open_table, read_column
from ...columns.files import read_file
from ...errors import ArgumentError, DataError, closest, shown
from ...mixed.evidence import MixedCases, first_text, read_cases
from ...mixed.fit_result import MixedFit
from ...mixed.fitting import Strength, empty_configurations, run, starting_network
from ...mixed.gpu_fit import device_columns, fit_on_device
from ...model.gaussian import Gaussian
from ...model.mixed import MixedNetwork
from ...options.tables import CsvDialect
from ...util.arguments import choice, described, mapping, number, whole_number
from ...util.calls import outside
from ...util.cells import is_missing, warn_of_few
from ..columns import MANY_NUMBERS, sample_weights
from .families import read_structure
from .likelihood_cells import labels_of, of_discretiser

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from ...columns import Table
    from ...model.states import CodesByVariable

KINDS = ("gaussian", "intervals", "states")
DEFAULT_BINS = 5


def fit_numbers(  # noqa: PLR0913
    structure: Any,
    cases: Any,
    numbers: str | Mapping[str, str] | None,
    *,
    states: Mapping[str, Iterable[Any]] | None,
    bins: int | None,
    prior: Any,
    weights: ArrayLike | str | None,
    missing: str,
    start: Any,
    iterations: int,
    tolerance: float,
    threads: int | None,
    zeros: str,
    dialect: CsvDialect | None,
    na_values: str | Iterable[str] | None,
    progress: Callable[[Any], None],
    codes: CodesByVariable | None,
) -> MixedFit:
    """Fit a network with numbers; see `jtgpu.learn.fit`."""
    choice("missing", missing, ("em", "error", "drop"))
    words = ("auto", "given") if isinstance(structure, MixedNetwork) else ("auto",)
    if not isinstance(start, MixedNetwork) and not (isinstance(start, str) and start in words):
        raise ArgumentError(f"with numbers, start must be 'auto' or a MixedNetwork, not {described(start)}")
    kinds: str | Mapping[str, str] = numbers or "gaussian"
    if isinstance(structure, MixedNetwork):
        start = structure if isinstance(start, str) and start == "given" else start
        parents: dict[str, tuple[str, ...]] = {v: structure.parents(v) for v in structure}
        states, _ = of_discretiser(states, parents)
        codes = structure.discrete.state_codes if codes is None else codes
        states = {**{v: structure.states(v) for v in structure.discrete}, **(states or {})}
        if numbers is None:
            kinds = dict.fromkeys((v for v in structure.numbers if v not in states), "gaussian")
    else:
        parents = read_structure(structure).parents
        states, _ = of_discretiser(states, parents)
    if isinstance(cases, (str, os.PathLike)):
        cases = read_file(str(cases), dialect=dialect, na_values=na_values, states=mapping("states", states))
    columns = device_columns(cases, [*parents])
    if columns is not None:
        own = {v: kinds.get(v) if isinstance(kinds, Mapping) else kinds for v in parents}
        odd = next((v for v in parents if own[v] != "gaussian" or v in (states or {})), None)
        if odd is not None or weights is not None:
            what = "weights" if odd is None else f"{odd!r} as states"
            raise ArgumentError(f"a table on a GPU is fitted as numbers='gaussian', without {what}; copy it first")
        return fit_on_device(parents, columns, _prior(prior)[0], progress)
    return _fit_table(
        open_table(None, cases), parents, kinds, mapping("states", states), bins, prior, weights, missing, start,
        (whole_number("iterations", iterations, 1), number("tolerance", tolerance, least=0)), threads, progress, codes,
        keeps_zeros=choice("zeros", zeros, ("keep", "free")) == "keep" and isinstance(start, MixedNetwork),
    )  # fmt: skip


def _fit_table(  # noqa: PLR0913
    table: Table, parents: Mapping[str, Sequence[str]], numbers: str | Mapping[str, str], states: Mapping[str, Any],
    bins: int | None, prior: Any, weights: Any, missing: str, start: Any, rule: tuple[int, float], threads: int | None,
    progress: Callable[[Any], None], codes: CodesByVariable | None, *, keeps_zeros: bool,
) -> MixedFit:  # fmt: skip
    kinds = column_kinds(table, parents, numbers, states)
    row_weights = sample_weights(column_weights(table, weights), table.n)
    columns: dict[str, Any] = {v: table.column(v) for v in parents}
    cut = [v for v in parents if kinds[v] == "intervals"]
    labels: dict[str, Any] = {}
    for v in parents:
        if kinds[v] == "gaussian":
            labels[v] = float
        elif v in states:
            labels[v] = tuple(map(str, states[v]))
        else:
            cells = read_column(v, table)
            at_most = (bins or DEFAULT_BINS) if v in cut else None
            labels[v] = labels_of(v, cells.counts(), ordered=cells.declared, bins=at_most, chosen=True)
    strength = Strength(*_prior(prior), keeps_zeros)
    for v in kinds:
        if kinds[v] == "gaussian" and len(np.unique(np.asarray(as_numbers(columns[v])))) == 2:
            warnings.warn(
                f"the column {v!r} has two values and is fitted as a number; numbers={{{v!r}: 'states'}} makes states "
                "of them", stacklevel=outside(),
            )  # fmt: skip
    shell = _shell(labels, parents).with_codes(codes)
    read = read_cases(shell, columns, None, None)
    read, row_weights, gaps, dropped = _with_rule(read, row_weights, missing, shell, table)
    first = _in_order(start, shell) if isinstance(start, MixedNetwork) else None
    first = first or starting_network(labels, parents, read, row_weights)
    fitted = run(
        first, read, row_weights, strength, iterations=rule[0], tolerance=rule[1], progress=progress,
        options={"threads": threads},
    )  # fmt: skip
    last = fitted.history[-1]
    empty, n_empty = empty_configurations(fitted.network, fitted.sums)
    return MixedFit(
        fitted.network.with_codes(codes), last.log_likelihood, last.objective, tuple(fitted.history), fitted.converged,
        fitted.method, len(read.states), dropped, empty, gaps, fitted.interrupted, n_empty,
        (read, row_weights, strength),
    )  # fmt: skip


def column_weights(table: Table, weights: Any) -> Any:
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
    table: Table, variables: Iterable[str], numbers: str | Mapping[str, str], states: Mapping[str, Any]
) -> dict[str, str]:
    """Kind of each variable: "gaussian", "intervals" or "states"."""
    variables = [*variables]
    for v in variables:
        if v not in table.names:
            _no_column(v, table.names)
    if isinstance(numbers, str):
        choice("numbers", numbers, KINDS)
        kinds = {v: numbers if v not in states and _is_numeric(table.column(v)) else "states" for v in variables}
        return kinds
    given = mapping("numbers", numbers)
    for v, kind in given.items():
        if v not in variables:
            raise ArgumentError(f"numbers: there is no variable {v!r}{closest(str(v), variables)}")
        choice(f"numbers[{v!r}]", kind, KINDS)
        if kind != "states" and not _is_numeric(table.column(v)):
            row, cell = first_text(table.column(v))
            reason = "has no number" if is_missing(cell) else f"holds text, {shown(cell)} in {table.row_name(row)},"
            raise DataError(f"column {v!r} {reason} and cannot be {kind!r}: remove the text, or leave it as states")
    for v in variables:
        if v in given or v in states:
            continue
        x = as_numbers(table.column(v))
        if x is not None and len(np.unique(x[~np.isnan(x)])) > MANY_NUMBERS:
            raise DataError(
                f"column {v!r} has more than {MANY_NUMBERS} different numbers; name its kind: numbers={{{v!r}: "
                "'gaussian'} or 'intervals'"
            )
    return {v: given.get(v, "states") for v in variables}


def _is_numeric(column: Any) -> bool:
    x = as_numbers(column)
    return x is not None and bool((~np.isnan(x)).any())


def _no_column(name: str, names: Sequence[str]) -> Any:
    raise DataError(f"the table has no column {name!r}{closest(name, names)}; a hidden variable needs numbers=None")


def _prior(prior: Any) -> tuple[float, float | str]:
    """Rows of the pooled regression, and counts of CPTs."""
    if isinstance(prior, str) and prior.startswith("bdeu:"):
        return number("prior", float(prior[5:]), least=0), prior
    if isinstance(prior, (str, Mapping)):
        raise ArgumentError(f"with numbers, prior must be a number or 'bdeu:ESS', not {prior!r}")
    value = number("prior", prior, least=0)
    return value, value


def _shell(labels: Mapping[str, Any], parents: Mapping[str, Sequence[str]]) -> MixedNetwork:
    """A network with these variables and arcs, to read the cases by."""
    cpts: dict[str, Any] = {}
    for v, s in labels.items():
        shape = tuple(len(labels[p]) for p in parents[v] if labels[p] is not float)
        numeric = {p: 0.0 for p in parents[v] if labels[p] is float}
        cpts[v] = Gaussian(0.0, numeric) if s is float else np.full((*shape, len(s)), 1.0 / len(s))
    return MixedNetwork(labels, parents, cpts)


def _in_order(start: MixedNetwork, shell: MixedNetwork) -> MixedNetwork:
    """The network where EM starts, with the variables in the order of the cases."""
    own = {v: (start.states(v), start.is_number(v), start.parents(v)) for v in start}
    if own != {v: (shell.states(v), shell.is_number(v), shell.parents(v)) for v in shell}:
        raise ArgumentError("start: the network has other variables, states or parents than the structure")
    return MixedNetwork(
        {v: float if start.is_number(v) else start.states(v) for v in shell}, {v: start.parents(v) for v in shell},
        {v: start.gaussian(v) if start.is_number(v) else start.cpt(v) for v in shell},
    )  # fmt: skip


def _with_rule(
    read: MixedCases, weights: NDArray[np.float64], missing: str, net: MixedNetwork, table: Table
) -> tuple[MixedCases, NDArray[np.float64], dict[str, int], int]:
    """The rows that are fitted, missing cells by column, and how many rows were left out."""
    holes = {v: read.states[:, i] < 0 for i, v in enumerate(net.discrete.variables)}
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
    part = MixedCases(read.states[used], read.values[used])
    return part, weights[used], gaps, dropped
