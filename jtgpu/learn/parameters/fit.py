"""`fit`: the CPTs of a structure from data."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from ...errors import ArgumentError
from ...model.mixed import MixedNetwork
from ...model.mixed_dynamic import MixedDynamicNetwork
from ...options.tables import CsvDialect
from ...util.arguments import choice, flag, mapping, new_file_path, number, whole_number
from ...util.cells import warn_of_few
from ...util.iteration import Iteration
from .coded_cases import CodedCases, read_cases, weighted_chunks
from .em import Rule
from .expectation import BACKENDS
from .families import MAX_ENTRIES, read_structure, warn_of_sparse
from .mixed_slices import fit_mixed_sequences
from .numbers import fit_numbers
from .result import Fit
from .runs import FitRun, fit_rows, fit_stepwise
from .setup import set_up
from .slices import Columns, Model, fit_sequences
from .sources import open_source
from .template import converted, is_template, with_codes

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ...model.dynamic import DynamicNetwork
    from ...model.network import BayesianNetwork
    from ...model.states import CodesByVariable
    from ...util.options import Data, Devices, EngineName, OnProblem, Order
    from ..discretisation import Discretiser

MISSING_RULES = ("em", "error", "drop", "available")

Progress = Callable[[Iteration], None]


def fit(  # noqa: PLR0913
    structure: Any,
    cases: Data,
    *,
    states: Mapping[str, Iterable[Any]] | Discretiser | None = None,
    bins: int | None = None,
    numbers: Literal["gaussian", "intervals", "states"] | Mapping[str, str] | None = None,
    prior: Any = 1.0,
    weights: ArrayLike | str | None = None,
    likelihood: Mapping[str, Any] | None = None,
    missing: Literal["em", "error", "drop", "available"] = "em",
    zeros: Literal["keep", "free"] = "keep",
    fixed: str | Iterable[str] = (),
    tied: Iterable[Sequence[str]] = (),
    hidden: Mapping[str, int | Sequence[str]] | str | Iterable[str] = (),
    start: Literal["auto", "given", "counts", "uniform", "random"] | BayesianNetwork | DynamicNetwork
    | MixedDynamicNetwork = "auto",
    restarts: int = 1,
    seed: int = 0,
    iterations: int = 200,
    tolerance: float = 1e-7,
    accelerate: bool = True,
    step: float | None = None,
    errors: bool = False,
    on_impossible: OnProblem = "error",
    backend: EngineName = "auto",
    order: Order = "auto",
    threads: int | None = None,
    devices: Devices = None,
    cluster: Any = None,
    max_table: int = MAX_ENTRIES,
    memory_limit: int | str | None = None,
    chunk: int | None = None,
    dialect: CsvDialect | None = None,
    na_values: str | Iterable[str] | None = None,
    codes: CodesByVariable | None = None,
    progress: bool | Progress | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    id: str | None = None,
    time: str | None = None,
    on_gap: Literal["error", "empty"] = "error",
) -> Fit:
    """Estimate the CPTs of a structure from data.

    Where no cell is missing and no variable is hidden, the rows are counted in one pass. Otherwise the EM algorithm
    uses the observed cells of every row, exactly.

    Parameters
    ----------
    structure : BayesianNetwork, DynamicNetwork, mapping, networkx.DiGraph, or network of pgmpy or pyAgrum
        A mapping gives the parents of each child; with parents such as ``("rain", 1)`` it is that of a dynamic network,
        whose cases are sequences and whose result is a `SequenceFit`. The CPTs of a network are used by
        ``start="given"``, ``prior="net:ESS"`` and `fixed` only.
    cases : table, path, or list of paths
        A data frame, a mapping of columns, a list of mappings or an array (see `jtgpu.JunctionTree.posteriors_batch`),
        or files: CSV, compressed or not, Parquet, and folders of them, read in chunks. Columns that are not variables
        are ignored. Numbers without gaps may be tensors on a GPU.
    states : mapping or Discretiser, optional
        Variable to the names of its states. Default: those of the network, or those in the data, sorted. A
        `Discretiser` gives its intervals and where they end, as `bins` does: for `jtgpu.Posterior.mean`.
    bins : int, optional
        Make so many intervals, with about equal numbers of rows, of each column of more different numbers whose states
        come from the data; see `jtgpu.learn.discretise` for other intervals.
    numbers : {"gaussian", "intervals", "states"} or mapping, optional
        What columns of numbers are: normal given their parents, `bins` intervals (default 5), or states; a mapping
        names columns. With numbers the result is a `jtgpu.mixed.MixedFit`, whose network is a `MixedNetwork`;
        `prior` rows of the regression of all rows are added to each configuration of a number's discrete parents.
        With sequences: ``"gaussian"``, and the network is a `MixedDynamicNetwork`.
    prior : number, str, or mapping, default 1
        What is added to the counts of each entry: a number; ``"bdeu:ESS"``, ESS divided by the size of the CPT;
        ``"net:ESS"``, ESS times the network's joint distribution of the family; a mapping from variable to a number or
        an array. The result maximises ln P(data) + ln prior; ``prior=0`` is maximum likelihood.
    weights : (B,) array_like, or name of a column, optional
        Weights of the rows, >= 0.
    likelihood : mapping, optional
        Variable to likelihoods of the rows of a table in memory, (B, card), or (card,) for all rows: virtual evidence,
        also of variables without a column. Cells may be likelihoods, too, in files as well: ``"[0.4;0.8]"`` has one
        weight for each state.
    missing : {"em", "error", "drop", "available"}
        Rows with missing cells: used by EM, an error, dropped, or counted for the families that are complete in them.
    zeros : {"keep", "free"}
        With ``start="given"``: whether entries of 0 stay 0 whatever the prior, or may change.
    fixed : names
        Variables whose CPTs stay those of the network.
    tied : iterable of tuples of names
        Variables of equal shape that share one CPT, and one prior: a mapping `prior` names one of them.
    hidden : mapping, or names
        Variables without a column, to their numbers of states or the names of these.
    start : {"auto", "given", "counts", "uniform", "random"}, BayesianNetwork or DynamicNetwork
        Where EM starts. ``"auto"``: counts of the complete rows of each family, random families of hidden variables.
        With numbers ``"auto"``, or a `MixedNetwork` of the structure.
    restarts : int
        Number of starts; the best result is returned. All but the first are random.
    seed : int
        Of everything random.
    iterations : int
        Passes over the rows after the first one, at most.
    tolerance : float
        EM stops when the relative change of the objective is below it twice.
    accelerate : bool
        Whether to extrapolate (SQUAREM), where the objective rises.
    step : float, optional
        Stepwise EM in one pass over chunks of `chunk` rows, for what cannot be passed twice: chunk k has the share
        ``(k + 2) ** -step``, 0.5 < step <= 1. Needs states that are given, and no convergence is checked.
    errors : bool
        Whether to compute standard errors; see `Fit.standard_errors`. With numbers, on the first access.
    on_impossible : {"error", "flag"}
        Whether a row of probability 0 at the start is an error, or is left out and counted.
    backend : {"auto", "cpu", "gpu", "reference"}
        ``"gpu"``: the rows stay on a GPU while EM iterates. ``"auto"``: the CPU, or the GPU if `devices` is given.
    order : str, path or sequence
        See `jtgpu.BayesianNetwork.plan`.
    threads : int, optional
        Default: all cores. The result is bit-identical for any number.
    devices : "all" or sequence of int, optional
        GPUs that share the rows; see `jtgpu.BayesianNetwork.compile`. The result is bit-identical for any number.
    cluster : str or jtgpu.cluster.Cluster, optional
        A Ray cluster that runs the passes of EM, such as ``"local"`` or ``"auto"``. The result is bit-identical to that
        without. The rows have to fit into the cluster's object store.
    max_table : int
        Entries of the largest CPT.
    memory_limit : int or str, optional
        Bytes that the CPTs may need while they are fitted, or a text such as ``"8GiB"``. Default: 80 % of the free
        memory.
    chunk : int, optional
        Rows that are read from a file at a time, or of a chunk of stepwise EM. Default: 100,000, or 1,000.
    dialect : jtgpu.cases.query.CsvDialect, optional
        How CSV files are written.
    na_values : str or iterable of str, optional
        Words that mean a missing cell unless they are declared states, besides those of ``pandas.read_csv``
        (`jtgpu.cases.NA_VALUES`) in text files, in which empty cells are always missing; ``()``: only those.
    codes : "names", "index" or mapping, optional
        What cells mean, such as ``{"xray": {1: "yes", 0: "no"}}``; see `jtgpu.DiscreteModel.with_codes`. Without a
        network and `states`, the names that codes stand for are the states. The fitted network keeps the codes.
    progress : bool or callable, optional
        True: a line on stderr after each iteration. A function is called with each `Iteration`.
    checkpoint : path, optional
        File that is written between iterations of EM.
    resume : bool
        Whether to continue from `checkpoint` if it exists and has the same data and options.
    id, time, on_gap : optional
        Of sequences; see `jtgpu.dynamic.DynamicTree.filter`, also for `cases` and `likelihood`. The names ``rain[0]``,
        ``rain[1]`` ... in `prior` and `fixed` are the CPTs of rain in the first slices; `weights` are of sequences.

    Returns
    -------
    Fit

    Raises
    ------
    DataError
        If the table does not fit the structure: a column, a cell, a weight; the message names it.
    UnknownState, UnknownVariable, ParseError
        If a cell is not a state, a column has almost the name of a variable, or a file is malformed.
    ImpossibleEvidence
        If a row has probability 0 at the start.
    NetworkError, TableTooLarge, ArgumentError
        If the structure is no directed acyclic graph, a CPT is too large, or an option is invalid.

    Warns
    -----
    UserWarning
        If a CPT has far more rows than the data.

    Notes
    -----
    Ctrl-C returns the result of the last whole iteration, with ``interrupted=True``.

    Examples
    --------
    >>> import jtgpu
    >>> table = {"smoke": ["yes", "no", "no", None], "lung": ["yes", "no", None, "no"]}
    >>> fit = jtgpu.learn.fit({"lung": ["smoke"]}, table)
    >>> fit.converged, [round(p, 3) for p in fit.network.cpt("lung")[0].tolist()]
    (True, [0.734, 0.266])
    """
    choice("missing", missing, MISSING_RULES)
    choice("on_impossible", on_impossible, ("error", "flag"))
    choice("backend", backend, BACKENDS)
    whole_number("restarts", restarts, 1)
    whole_number("seed", seed, 0)
    rule = Rule(
        whole_number("iterations", iterations, 1), number("tolerance", tolerance, least=0),
        flag("accelerate", accelerate),
    )  # fmt: skip
    if step is not None and not 0.5 < number("step", step) <= 1:
        raise ArgumentError(f"step must be above 0.5 and at most 1, not {step!r}")
    if step is not None and cluster is not None:
        raise ArgumentError("step passes chunks one after the other, which a cluster cannot share; use step=None")
    if devices is not None:
        if backend not in ("auto", "gpu"):
            raise ArgumentError(f"devices are GPUs, which backend={backend!r} does not use")
        backend = "gpu"
    if cluster is not None and backend == "gpu":
        raise ArgumentError("a cluster counts on CPUs; use backend='cpu', or the GPUs of this machine without cluster=")
    rows = whole_number("chunk", chunk, 1) if chunk is not None else (1_000 if step is not None else 100_000)
    if checkpoint is not None:
        checkpoint = new_file_path("checkpoint", checkpoint)
    structure, states = with_codes(converted(structure), states, codes)
    columns = Columns(id, time, on_gap, likelihood, weights, missing, dialect, na_values)
    model = Model(states, bins, prior, zeros, fixed, tied, hidden, start, max_table, codes)
    run = FitRun(
        rule, restarts, seed, backend, order, threads, on_impossible == "flag", _listener(progress), checkpoint,
        resume, flag("errors", errors), devices, cluster,
    )  # fmt: skip
    if id is not None or time is not None or is_template(structure):
        _reject({
            "step": step, "cluster": cluster, "devices": devices, "chunk": chunk, "memory_limit": memory_limit,
        }, "sequences")  # fmt: skip
        if numbers is None and not isinstance(structure, MixedDynamicNetwork):
            return fit_sequences(structure, cases, columns, model, run)
        return fit_mixed_sequences(structure, cases, columns, model, run, numbers)
    if numbers is not None or isinstance(structure, MixedNetwork):
        _reject({
            "likelihood": likelihood, "step": step, "cluster": cluster, "devices": devices,
            "memory_limit": memory_limit,
        }, "numbers")  # fmt: skip
        # a MixedFit, which has no place in the type of the result
        fitted: Fit = cast(Any, fit_numbers)(structure, cases, numbers, columns, model, run)
        return fitted
    given = read_structure(structure)
    mapping("likelihood", likelihood)
    source = open_source(cases, tuple(given.parents), dialect, rows, na_values, likelihood)
    setup = set_up(
        given, source, states=states, prior=prior, weights=weights,
        zeros=choice("zeros", zeros, ("keep", "free")), fixed=fixed, tied=tied, hidden=hidden, start=start,
        max_table=max_table, bins=bins, memory_limit=memory_limit, codes=codes,
    )  # fmt: skip
    if missing == "available" and setup.hidden:
        raise ArgumentError("missing='available' cannot fit hidden variables; use missing='em'")
    if step is not None:
        blocks = (block for block, _ in weighted_chunks(setup.model, source, setup.columns, weights))
        return fit_stepwise(setup, CodedCases(setup.model, source), blocks, (rows, step), run)
    table = read_cases(setup.model, source, setup.columns, weights, missing)
    warn_of_sparse(setup.model, table.n_rows)
    if table.n_dropped:
        warn_of_few(table.n_rows, table.n_rows + table.n_dropped, table.missing(setup.columns).cells)
    with closing(table):
        return fit_rows(setup, table, run, available=missing == "available")


def _reject(options: Mapping[str, Any], kind: str) -> None:
    """Raise for an option that is given, and not offered."""
    for option, value in options.items():
        if value is not None:
            raise ArgumentError(f"{option}= is not offered with {kind}")


def _listener(progress: bool | Progress | None) -> Progress:
    if progress is None or progress is False:
        return lambda _: None
    if progress is True:
        return _print_iteration
    if not callable(progress):
        raise ArgumentError(f"progress must be True, False or a function, not {progress!r}")
    return progress


def _print_iteration(entry: Iteration) -> None:
    change = f", change {entry.change:.3g}" if entry.number and np.isfinite(entry.change) else ""
    print(f"{entry.number}: objective {entry.objective:.6g}{change}, {entry.seconds:.2f} s", file=sys.stderr)
