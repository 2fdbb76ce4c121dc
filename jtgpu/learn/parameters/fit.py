"""`fit`: the CPTs of a structure from data."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ...columns import open_table
from ...columns.files import in_memory
from ...errors import ArgumentError, DataError
from ...model.mixed import MixedNetwork
from ...model.mixed_dynamic import MixedDynamicNetwork
from ...options.compute import Compute
from ...options.learning import EM, Keys
from ...options.record import require_only
from ...options.tables import OF_TABLES, ReadOptions
from ...util.arguments import check_keywords_of, choice, having, mapping, new_file_path
from ...util.cells import na_words, warn_of_few
from ...util.iteration import Iteration
from ..columns import read_interventions
from .coded_cases import CodedCases, read_cases, weighted_chunks
from .expectation import BACKENDS
from .families import read_structure, warn_of_sparse
from .mixed_slices import fit_mixed_sequences
from .numbers import fit_numbers
from .result import Fit
from .runs import FitRun, fit_rows, fit_stepwise
from .setup import Columns, Model, set_up
from .slices import fit_sequences
from .sources import open_source
from .template import Unfolded, converted, is_template, with_codes

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ...columns import Table
    from ...util.arrays import Bools
    from ...util.options import Data, EngineName, Interventions
    from ..discretisation import Discretiser

MISSING_RULES = ("em", "error", "drop", "available")

OF_EVERY_KIND = (  # of network, of EM
    "start zeros restarts seed iterations tolerance accelerate on_error order max_cpt standard_errors checkpoint resume"
)

Progress = Callable[[Iteration], None]


@check_keywords_of()
def fit(  # noqa: PLR0913
    structure: Any,
    cases: Data,
    *,
    states: Mapping[str, Iterable[Any]] | Discretiser | None = None,
    continuous: Literal["gaussian", "intervals", "states"] | Mapping[str, str] | None = None,
    bins: int | None = None,
    weights: ArrayLike | str | None = None,
    missing: Literal["em", "error", "drop", "available"] = "em",
    pseudo_counts: Any = 1.0,
    hidden: Mapping[str, int | Sequence[str]] | str | Iterable[str] = (),
    fixed: str | Iterable[str] = (),
    tied: Iterable[Sequence[str]] = (),
    likelihood: Mapping[str, Any] | None = None,
    interventions: Interventions = None,
    em: EM = EM(),
    keys: Keys = Keys(),
    read: ReadOptions = ReadOptions(),
    compute: Compute | EngineName = Compute(),
) -> Fit[Any]:
    """Estimate the CPTs of a structure from data.

    Where no cell is missing and no variable is hidden, the rows are counted in one pass. Otherwise the EM algorithm
    uses the observed cells of every row, exactly.

    Parameters
    ----------
    structure : BayesianNetwork, DynamicNetwork, mapping, networkx.DiGraph, or network of pgmpy or pyAgrum
        A mapping gives the parents of each child; with parents such as ``("rain", 1)`` it is that of a dynamic network,
        whose cases are sequences. The CPTs of a network are used by
        ``EM(start="given")``, ``pseudo_counts="net:ESS"`` and `fixed` only.
    cases : table, path, or list of paths
        A data frame, a mapping of columns, a list of mappings or an array (see `jtgpu.JunctionTree.posteriors_batch`),
        or files: CSV, compressed or not, Parquet, and folders of them, read in chunks. Columns that are not variables
        are ignored. Numbers without gaps may be tensors on a GPU.
    states : mapping or Discretiser, optional
        Variable to the names of its states. Default: those of the network, or those in the data, sorted. A
        `Discretiser` gives its intervals and where they end, as `bins` does: for `jtgpu.Posterior.mean`.
    continuous : {"gaussian", "intervals", "states"} or mapping, optional
        What columns of numbers are: normal given their parents, `bins` intervals (default 5), or states; a mapping
        names columns. With continuous variables the network of the result is a `MixedNetwork`; `pseudo_counts` rows of
        the regression of all rows are added to each configuration of a variable's discrete parents. With sequences:
        ``"gaussian"``, and the network is a `MixedDynamicNetwork`.
    bins : int, optional
        Make so many intervals, with about equal numbers of rows, of each column of more different numbers whose states
        come from the data; see `jtgpu.learn.discretise` for other intervals.
    weights : (B,) array_like, or name of a column, optional
        Weights of the rows, >= 0; of sequences, of their own.
    missing : {"em", "error", "drop", "available"}
        Rows with missing cells: used by EM, an error, dropped, or counted for the families that are complete in them.
    pseudo_counts : number, str, or mapping, default 1
        What is added to the counts of each entry: a number; ``"bdeu:ESS"``, ESS divided by the size of the CPT;
        ``"net:ESS"``, ESS times the network's joint distribution of the family; a mapping from variable to a number or
        an array. The result maximises ln P(data) + ln prior; ``pseudo_counts=0`` is maximum likelihood.
    hidden : mapping, or names
        Variables without a column, to their numbers of states or the names of these.
    fixed : names
        Variables whose CPTs stay those of the network. The names ``rain[0]``, ``rain[1]`` ... here and in
        `pseudo_counts` are the CPTs of rain in the first slices.
    tied : iterable of tuples of names
        Variables of equal shape that share one CPT, and its pseudo-counts: a mapping `pseudo_counts` names one of them.
    likelihood : mapping, optional
        Variable to likelihoods of the rows of a table in memory, (B, card), or (card,) for all rows: virtual evidence,
        also of variables without a column. Cells may be likelihoods, too, in files as well: ``"[0.4;0.8]"`` has one
        weight for each state; not with sequences or continuous variables.
    interventions : str or mapping, optional
        The variables that were set in each row, as for `jtgpu.learn.structure`: it is no case of their families. Of
        complete rows, or with ``missing="available"``; not with sequences, continuous or hidden variables.
    em : EM
        How EM runs: start, restarts, iterations, seed, standard errors, checkpoints.
    keys : Keys
        Of sequences: see `jtgpu.dynamic.DynamicTree.filter`, also for `cases` and `likelihood`.
    read : ReadOptions
        How the table is read: the dialect of a CSV file, words that mean missing cells, codes of states. Without a
        network and `states`, the names that codes stand for are the states. The fitted network keeps the codes.
    compute : Compute or {"auto", "cpu", "gpu", "reference"}
        Where the passes run. With ``"gpu"`` the rows stay on a GPU while EM iterates; ``"auto"``: the CPU, or the GPU
        if `devices` are given. The result is bit-identical for any number of threads and devices, and with a cluster,
        whose object store has to hold the rows. The memory limit is that of the CPTs while they are fitted. A function
        `progress` is called with each `Iteration`.

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
    having("keys", keys, "on_gap", "a jtgpu.learn.Keys")
    require_only(read, OF_TABLES + " codes chunk", "fit")
    compute = Compute.of(compute, "backend threads devices cluster memory_limit progress", "fit")
    backend, devices, cluster = choice("backend", compute.backend, BACKENDS), compute.devices, compute.cluster
    if em.stepwise is not None and cluster is not None:
        raise ArgumentError("stepwise EM passes chunks one after the other, which a cluster cannot share")
    if devices is not None:
        if backend not in ("auto", "gpu"):
            raise ArgumentError(f"devices are GPUs, which backend={backend!r} does not use")
        backend = "gpu"
    if cluster is not None and backend == "gpu":
        raise ArgumentError("a cluster counts on CPUs; use backend='cpu', or the GPUs of this machine without cluster=")
    if em.checkpoint is not None:
        em = em.replaced(checkpoint=new_file_path("checkpoint", em.checkpoint))
    structure, states = with_codes(converted(structure), states, read.codes)
    columns = Columns(keys, likelihood, weights, missing, read, read.na_values)
    model = Model(states, bins, pseudo_counts, em.zeros, fixed, tied, hidden, em.start, em.max_cpt, read.codes)
    tell = _tell if compute.progress is True else lambda _: None
    run = FitRun(em, compute, backend, _listener(compute.progress), tell)
    mixed = continuous is not None or isinstance(structure, MixedNetwork)
    sequences = keys != Keys() or is_template(structure)
    if interventions is not None and (mixed or sequences or hidden or em.stepwise is not None):
        raise ArgumentError("interventions= takes no sequences, continuous or hidden variables, and no stepwise EM")
    if sequences:
        require_only(compute, "backend threads progress", "sequences")
        require_only(em, OF_EVERY_KIND, "sequences")
        require_only(read, OF_TABLES + " codes", "sequences")
        if continuous is None and not isinstance(structure, MixedDynamicNetwork):
            return fit_sequences(structure, cases, columns, model, run)
        return fit_mixed_sequences(structure, cases, columns, model, run, continuous)
    if mixed:
        require_only(em, OF_EVERY_KIND, "continuous variables")
        require_only(compute, "backend threads progress", "continuous variables")
        require_only(read, OF_TABLES + " codes", "continuous variables")
        if backend not in ("auto", "cpu"):
            raise ArgumentError(f"networks with continuous variables are fitted on the CPU, not by backend={backend!r}")
        return fit_numbers(structure, cases, continuous, columns, model, run)
    return _fit_states(structure, cases, columns, model, run, interventions)


def _fit_states(
    structure: object, cases: object, columns: Columns, asked: Model, run: FitRun, interventions: object
) -> Fit[Any]:  # fmt: skip
    """`fit` of a network of states from rows."""
    read, missing, weights, em = columns.dialect, columns.missing, columns.weights, run.em
    given = read_structure(structure)
    mapping("likelihood", columns.likelihood)
    was_set, unfolded = None, None
    is_noisy = given.network is not None and bool(given.network.noisy)
    if interventions is not None:
        if is_noisy:
            raise ArgumentError("interventions= takes no noisy variables; pass net.expand()")
        cases = in_memory(cases, read, read.na_values, mapping("states", asked.states))
        was_set = _rows_set(interventions, open_table(None, cases), [*given.parents], read)
    if given.network is not None and is_noisy:
        if missing == "available":
            raise ArgumentError("missing='available' takes no noisy variables; use missing='em', or pass net.expand()")
        unfolded = Unfolded.of(given.network, em.start)
        given, asked = unfolded.structure, unfolded.asked(asked)
    rows = read.chunk or (100_000 if em.stepwise is None else 1_000)
    source = open_source(cases, tuple(given.parents), read, rows, read.na_values, columns.likelihood)
    setup = set_up(given, source, asked, weights, run.compute.memory_limit)
    if unfolded is not None:
        setup = setup.with_strengths(unfolded.strengths)
    if missing == "available" and setup.hidden:
        raise ArgumentError("missing='available' cannot fit hidden variables; use missing='em'")
    if em.stepwise is not None:
        blocks = (block for block, _ in weighted_chunks(setup.model, source, setup.columns, weights))
        made = fit_stepwise(setup, CodedCases(setup.model, source), blocks, (rows, em.stepwise), run)
        return made if unfolded is None else unfolded.folded(made)
    table = read_cases(setup.model, source, setup.columns, weights, missing, was_set)
    warn_of_sparse(setup.model, table.n_rows)
    if table.n_dropped:
        warn_of_few(table.n_rows, table.n_rows + table.n_dropped, table.missing(setup.columns).cells)
    with closing(table):
        made = fit_rows(setup, table, run, available=missing == "available" or was_set is not None)
    return made if unfolded is None else unfolded.folded(made)


def _rows_set(given: object, table: Table, variables: list[str], read: ReadOptions) -> Bools:
    """The rows in which each variable of the structure was set, (V, N); other columns may be set, too."""
    if isinstance(given, str) and (given not in table.names or given in variables):
        raise DataError(f"interventions={given!r} must name a column that is no variable")
    others, words = {*table.names}.difference(variables), na_words(read.na_values, is_text=False)
    return read_interventions(given, table, variables, others, words)


def _listener(progress: bool | Progress | None) -> Progress:
    if progress is None or progress is False:
        return lambda _: None
    if progress is True:
        return _print_iteration
    if not callable(progress):
        raise ArgumentError(f"progress must be True, False or a function, not {progress!r}")
    return progress


def _tell(text: str) -> None:
    print(text, file=sys.stderr)


def _print_iteration(entry: Iteration) -> None:
    change = f", change {entry.change:.3g}" if entry.number and np.isfinite(entry.change) else ""
    print(f"{entry.number}: objective {entry.objective:.6g}{change}, {entry.seconds:.2f} s", file=sys.stderr)
