"""`StructurePosterior`: the posterior over graphs, as probabilities of arcs, paths and parent sets, and as samples."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import ArgumentError, BackendUnavailable
from ....formats.files import write_bytes
from ....model.equivalence import digraph
from ....model.network import BayesianNetwork
from ....util import late_imports
from ....util.arguments import check_keywords, file_path, number, whole_number
from ....util.arrays import Bools, Floats, Ints
from ....util.text_table import counted
from ...state_file import file_contents
from ..graphs import fitted_network
from ..scores.numeric_table import NumericTable, cases_like, with_states
from .arcs import ArcProbabilities, ArcTable
from .averaging import AveragedNetworks, arcs_of, clique_entries, distinct, evenly, fewest_errors, most_probable_first
from .effects import effect_over_graphs
from .records import GraphSource, MissingCells, PosteriorRecord

if TYPE_CHECKING:
    import networkx
    from numpy.typing import NDArray

    from ....util.late_imports import Drawing
    from ....util.options import BackendName

SUFFIXES = (".csv", ".gml", ".graphml")


@check_keywords()
class StructurePosterior(ArcProbabilities):
    """The posterior over directed acyclic graphs, given data; `jtgpu.learn.posterior` has an example.

    The data frame has a row for each ordered pair of variables, the most probable arcs first: ``parent``, ``child``,
    ``probability``, ``mcse``, ``skeleton``, ``path``, ``path_mcse``, ``compelled`` and ``compelled_mcse``.

    Attributes
    ----------
    names : tuple of str
        Names of the variables, in the order of the columns.
    method : str
        ``"exact"``, ``"order MCMC"`` or ``"partition MCMC"``.
    prior : str
    edge_probabilities : ArcTable
        P(parent -> child), [parent, child].
    mcse : ArcTable
        Their Monte Carlo standard errors: 0 if they are exact.
    structure : Structure
        The graph of the highest posterior weight that was found; if the posterior is exact, no graph has a higher one.
    log_evidence : float or None
        ln of the sum over all graphs of prior weight times P(data | graph); None if it is unknown. Prior weights are
        not normalised.
    converged : bool
        Whether all standard errors are within the tolerance and R-hat is at most 1.05; True if exact.
    shortfall : tuple of str
        The criteria of convergence that are not met; empty if `converged`.
    rhat, ess_samples, max_difference : float
        The largest R-hat; the effective number of samples of the weight; the largest difference of a probability
        between two halves of the chains.
    n_steps, n_chains, n_samples : int
        Steps of each chain, chains, and samples of all chains after the burn-in; 0 if exact.
    coverage : float or None
        Share of the posterior of a variable's parents that chains sum, the least of all variables; None if they sum
        everything.
    low_coverage : str
        If that is below 0.99: a warning that says what to try; else empty.
    candidates : dict or None
        Candidate parents of each variable, whose sets are tabulated; None if all variables are.
    missing : MissingReport
        Missing cells of the data by column (``missing.cells``), and the words that were read as such; empty if loaded.
    n_dropped : int
        Rows that were left out because of missing cells.
    trace : (C, T) ndarray of float64
        ln weight of the states of the chains; empty if exact.
    cells : Cells or None
        With ``missing="augment"``, the probabilities of the missing cells: ``cells.missing_mean``. None if loaded.
    """

    cells: MissingCells | None = None

    def __init__(self, record: PosteriorRecord, source: GraphSource):
        table, d = record.table, record.diagnostics
        self.names = table.names
        self.edge_probabilities = ArcTable(table.names, record.arcs, "Probability of each arc: parents by rows")
        self.mcse = ArcTable(table.names, record.errors, "Standard error of the probability of each arc")
        self.structure, self.trace = record.structure, record.trace
        self.method, self.prior, self.log_evidence = d.method, d.prior, d.log_evidence
        self.converged, self.rhat, self.ess_samples = d.converged, d.rhat, d.ess_samples
        self.max_difference, self.n_steps, self.n_chains = d.max_difference, d.n_steps, d.n_chains
        self.n_samples, self.coverage, self.candidates = d.n_samples, d.coverage, d.candidates
        self.shortfall = tuple(d.shortfall)
        self.moves, self.notes, self.low_coverage = d.moves, d.notes, d.low_coverage
        self.missing, self.n_dropped = table.missing, table.dropped
        self._record, self._source = record, source

    # Graphs -------------------------------------------------------------------------------------------------------

    @property
    def map(self) -> networkx.DiGraph[str]:
        """The graph of the highest posterior weight."""
        return self.structure.dag

    @property
    def map_score(self) -> float:
        """Its ln score plus the ln of its prior weight, by which graphs compare; `Structure.score` is without prior."""
        return self.structure.log_weight

    @property
    def cpdag(self) -> networkx.DiGraph[str]:
        """The equivalence class of `map`: an undirected edge is a pair of arcs in both directions."""
        return self.structure.cpdag

    def consensus(self, threshold: float | None = 0.5) -> networkx.DiGraph[str]:
        """A graph of probable arcs.

        Parameters
        ----------
        threshold : float or None
            The arcs above this probability: the most probable first, each unless it closes a cycle. None: the graph
            that maximises the sum of P(arc) - 1/2 over its arcs, which has the fewest expected errors.
        """
        return digraph(self.names, self._consensus(threshold))

    def _consensus(self, threshold: float | None) -> Bools:
        p = self.edge_probabilities.values
        return fewest_errors(p) if threshold is None else most_probable_first(p, number("threshold", threshold))

    def sample_dags(
        self, n: int = 100, *, max_entries: int | None = None, seed: int | None = None
    ) -> list[networkx.DiGraph[str]]:
        """Graphs from the posterior: independent ones if it is exact, evenly spaced ones of the chains otherwise.

        Parameters
        ----------
        n : int
        max_entries : int, optional
            Leave graphs out whose junction trees have more clique table entries (see `Structure.clique_entries`), so
            that fewer may be returned.
        seed : int, optional
            Choose graphs at random, other ones for another seed. Default: the same graphs in every call.

        Raises
        ------
        ArgumentError
            If the chains have kept fewer graphs.
        """
        graphs = self._some_graphs(whole_number("n", n, 1), None if seed is None else whole_number("seed", seed, 0))
        arcs = arcs_of(graphs, self._record.parents)
        if max_entries is not None:
            limit, known = whole_number("max_entries", max_entries, 1), dict[tuple[int, ...], Any]()
            table = with_states(self._record.table, "max_entries")
            nets = (fitted_network(table, a, self._record.ess, known) for a in arcs)
            arcs = arcs[[clique_entries(net) <= limit for net in nets]]
        return [digraph(self.names, a) for a in arcs]

    def _some_graphs(self, n: int, seed: int | None = None) -> Ints:
        """n graphs, (n, variables)."""
        graphs = self._source.graphs(n)
        graphs = graphs.reshape(-1, graphs.shape[-1])
        if len(graphs) < n:
            raise ArgumentError(f"the chains have kept {len(graphs):,} graphs, fewer than n={n:,}")
        if seed is not None:
            return graphs[np.random.default_rng(seed).permutation(len(graphs))[:n]]
        return graphs[evenly(len(graphs), n)]

    # Networks -----------------------------------------------------------------------------------------------------

    def network(self, data: object = None, *, threshold: float | None = None) -> BayesianNetwork:
        """The network of the best graph, with CPTs from data; a `jtgpu.MixedNetwork` if there are numbers.

        Parameters
        ----------
        data : table, optional
            Cases for the CPTs, with the same columns and states. Default: those of the posterior.
        threshold : float, optional
            Use the graph `consensus` of this threshold instead.
        """
        best = np.array([[self.structure.dag.has_edge(u, v) for v in self.names] for u in self.names])
        arcs = best if threshold is None else self._consensus(threshold)
        return fitted_network(cases_like(self._record.table, data), arcs, self._record.ess)

    def average(
        self,
        data: object = None,
        *,
        n_dags: int = 200,
        max_entries: int | None = None,
        backend: BackendName = "auto",
        threads: int | None = None,
    ) -> AveragedNetworks:
        """Networks of sampled graphs, for exact inference averaged over them.

        Parameters
        ----------
        data : table, optional
            Cases for the CPTs, with the same columns and states. Default: those of the posterior.
        n_dags : int
            Number of graphs to sample; equal ones are one network with more weight. Chains may have kept fewer, of
            which all are used.
        max_entries : int, optional
            Leave graphs out whose junction trees have more clique table entries.
        backend : str
            Where the networks compute, as in `jtgpu.BayesianNetwork.compile`.
        threads : int, optional

        Raises
        ------
        TableTooLarge
            If no graph is left.
        """
        wanted = whole_number("n_dags", n_dags, 1)
        limit = None if max_entries is None else whole_number("max_entries", max_entries, 1)
        graphs = self._source.graphs(wanted)
        graphs = graphs.reshape(-1, graphs.shape[-1])
        graphs, weights = distinct(graphs[evenly(len(graphs), wanted)])
        cases, known = cases_like(with_states(self._record.table, "average"), data), dict[tuple[int, ...], Any]()
        every = arcs_of(graphs, self._record.parents)
        networks = [fitted_network(cases, arcs, self._record.ess, known) for arcs in every]
        return AveragedNetworks(networks, weights, max_entries=limit, backend=backend, threads=threads)

    effect = effect_over_graphs

    def more(self, *, steps: int | None = None, seconds: float | None = None) -> StructurePosterior:
        """Continue the chains: the posterior after more steps; itself if it is exact.

        Parameters
        ----------
        steps : int, optional
            Further steps of each chain. Default: as many as for the tolerance.
        seconds : float, optional
            Time at most.
        """
        steps = None if steps is None else whole_number("steps", steps, 1)
        seconds = None if seconds is None else number("seconds", seconds, above=0.0)
        longer: StructurePosterior = self._source.more(steps, seconds)
        return longer

    def save_graphs(self, path: str | Path, n: int = 100, *, seed: int | None = None) -> list[Path]:
        """Write sampled graphs for other programs; see `sample_dags`.

        Parameters
        ----------
        path : path
            ``.csv``: one file with the columns ``graph``, ``parent`` and ``child``. ``.gml`` or ``.graphml``: a file
            for each graph, with its number after the name.
        n, seed : int
            See `sample_dags`.

        Returns
        -------
        list of Path
            The files.

        Raises
        ------
        ArgumentError
            If the suffix is none of these, or the chains have kept fewer graphs.
        FileError
            If a file cannot be written.
        """
        return write_graphs(Path(file_path("path", path)), self.sample_dags(n, seed=seed))

    def to_arviz(self) -> Any:
        """Return the chains for ArviZ: ``arc`` of the kept graphs, ``log_weight`` of all samples, burn-in included."""
        return arviz_data(self.names, self._source.graphs(), self._record.parents, self.trace)

    def save(self, path: str | Path) -> None:
        """Write the posterior to a file, which `jtgpu.learn.load` reads: probabilities, sampled graphs and the data.

        Equal posteriors give equal bytes. The chains are not saved: see `checkpoint` of `jtgpu.learn.posterior`.

        Raises
        ------
        FileError
            If the file cannot be written; an older file stays as it was.
        """
        where = file_path("path", path)
        record, table, best = self._record, self._record.table, self.structure
        every = [self._source.parent_sets(v) for v in range(len(self.names))]
        header = {
            "names": self.names, "states": table.states, "dropped": table.dropped,
            "facts": record.diagnostics._asdict(),
            "structure": {
                "score": best.score, "log_weight": best.log_weight, "method": best.method, "order": best.order,
            },
            "ess": record.ess, "seed": record.seed,
            "parent_sets": None if None in every else [[(s, p) for s, p, _ in own or ()] for own in every],
        }  # fmt: skip
        arcs = np.array([[best.dag.has_edge(u, v) for v in self.names] for u in self.names])
        arrays: dict[str, NDArray[Any]] = {
            "codes": table.codes, "arcs": self.edge_probabilities.values, "errors": self.mcse.values, "best": arcs,
            "graphs": self._source.graphs(), "parents": record.parents, "trace": self.trace,
        }  # fmt: skip
        for name, (p, errors) in self._of_graphs.items():
            arrays |= {name: p, f"{name}_errors": errors}
        if isinstance(table, NumericTable):
            arrays["values"] = table.values
        if table.weights is not None:
            arrays["weights"] = table.weights
        if table.interventions is not None:
            arrays["interventions"] = table.interventions
        write_bytes(where, file_contents(header, arrays))

    # Pictures -----------------------------------------------------------------------------------------------------

    def draw(self) -> Drawing:
        """Draw the probability of every arc as a heat map: see `jtgpu.draw.heat_map`.

        Returns
        -------
        Drawing
            A notebook shows it; ``.save(path)`` writes an SVG or HTML file.
        """
        drawn: Drawing = late_imports.structures().heat_map(self)
        return drawn

    def draw_network(self, threshold: float = 0.1) -> Drawing:
        """Draw the probable arcs as a graph, with their probabilities: see `jtgpu.draw.arcs`."""
        drawn: Drawing = late_imports.structures().arcs(self, threshold)
        return drawn

    def plot_trace(self) -> Drawing:
        """Draw the weights that the chains visited: see `jtgpu.draw.trace`."""
        drawn: Drawing = late_imports.structures().trace(self)
        return drawn

    # Texts --------------------------------------------------------------------------------------------------------

    def summary(self) -> str:
        """How precise the probabilities are, in one line."""
        return self._record.diagnostics.summary(float(self.mcse.values.max()))

    def describe(self) -> str:
        """How the posterior was computed, and how precise it is, in some lines."""
        n, cases = len(self.names), self._record.table.n_cases
        lines = [f"{n} variables, {cases:,} cases, prior {self.prior}: {self.method}"]
        lines += self._record.table.missing_lines()
        if self.log_evidence is not None:
            lines.append(f"ln of the sum over all graphs: {self.log_evidence:.6g}")
        lines.append(
            f"best graph: {counted(len(self.structure.arcs), 'arc')}, "
            f"ln score {self.structure.score:.6g}, with its prior weight {self.map_score:.6g}"
        )
        return "\n".join([*lines, *self._record.diagnostics.describe(float(self.mcse.values.max()))])

    def _curve(self) -> tuple[Sequence[float], str, str]:
        """The weight of the first chain's states, for a picture."""
        return (self.trace[0].tolist() if len(self.trace) else []), "ln weight of the first chain", "sample"

    def _title(self) -> str:
        n = len(self.edges(0.5))
        state = "exact" if not self.n_chains else self.method if self.converged else f"{self.method}, NOT converged"
        arcs = f"{n} arc{'s' * (n != 1)} with a probability of at least 0.5"
        text = f"Posterior of {len(self.names)} variables, {state}: {arcs}"
        parts = [text, *self._record.table.missing_lines()]
        return "\n".join(filter(None, ["; ".join(parts), self.printed_arcs()[0]]))


def arviz_data(names: tuple[str, ...], graphs: Ints, parents: Ints, trace: Floats) -> Any:
    """Kept graphs as ``arc``, (chain, draw, parent, child), and the trace as ``log_weight`` of the statistics."""
    # graphs: (T, C, n) bits of the candidates `parents`, (n, m); trace: (C, S), with the burn-in
    # raises ArgumentError: If there are no chains.
    if not trace.size:
        raise ArgumentError("an exact posterior has no chains; to_arviz requires method='mcmc'")
    try:
        import arviz
    except ImportError:
        raise BackendUnavailable("to_arviz requires the package arviz: pip install arviz") from None
    arcs = arcs_of(graphs.swapaxes(0, 1), parents)
    groups = {"posterior": {"arc": arcs.astype(np.int8)}, "sample_stats": {"log_weight": trace}}
    named: dict[str, Any] = {
        "coords": {"parent": [*names], "child": [*names]}, "dims": {"arc": ["parent", "child"]},
    }  # fmt: skip
    if hasattr(arviz, "InferenceData"):  # before 1.0
        return arviz.from_dict(**groups, **named)
    return arviz.from_dict(groups, **named)


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
