"""`StructureLearner`: the posterior over structures with the interface of scikit-learn's estimators.

scikit-learn itself is not needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..errors import DataError
from ..model.network import BayesianNetwork
from ..util.arguments import check_keywords
from ..util.arrays import Floats
from ..util.estimator import Estimator, check_table, check_width
from ..util.options import Devices, LearnBackend, MissingCells, PosteriorMethod, StructurePriorLike
from .dags.posterior.posterior import posterior
from .dags.scores.numeric_table import code_table
from .dags.scores.rules import Score

if TYPE_CHECKING:
    import networkx
    from numpy.typing import ArrayLike

    from .dags.posterior.arcs import ArcTable
    from .dags.posterior.result import StructurePosterior


@check_keywords()
@dataclass(kw_only=True, eq=False, repr=False)
class StructureLearner(Estimator):
    """Learns the structure and the CPTs of a Bayesian network, with the probabilities of its arcs.

    Parameters
    ----------
    family_score : str
        `score` of `jtgpu.learn.posterior`.
    ess, prior, max_parents, candidates, method, forbidden, required, tiers, within_tiers, states, missing, constant,
    na_values, tolerance, time, steps, chains, tempering, seed, memory_limit, threads, backend, devices, cluster,
    checkpoint, progress, start
        See `jtgpu.learn.posterior`.
    threshold : float, optional
        The graph has the arcs with a probability above this. Default: the graph of the highest posterior weight.

    Attributes
    ----------
    graph_ : networkx.DiGraph
    network_ : BayesianNetwork
        The graph with CPTs: posterior means under the Dirichlet prior of BDeu.
    edge_probabilities_ : ArcTable
        P(parent -> child).
    posterior_ : StructurePosterior
        Everything else; a copy by `pickle` has none.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Names of the columns; only defined if X in `fit` had column names.

    Examples
    --------
    >>> from jtgpu.learn import StructureLearner
    >>> data = {"rain": ["no", "no", "yes", "yes", "no"] * 4, "wet": ["no", "no", "yes", "yes", "yes"] * 4}
    >>> learner = StructureLearner(forbidden=[("wet", "rain")]).fit(data)
    >>> [*learner.graph_.edges], round(learner.edge_probabilities_["rain", "wet"], 2)
    ([('rain', 'wet')], 0.99)
    >>> round(learner.score(data), 3)
    -1.067
    """

    _fitted = "network_"

    family_score: Score = "bdeu"
    ess: float = 1.0
    prior: StructurePriorLike = "uniform"
    max_parents: int | Mapping[str, int] = 4
    candidates: int | Literal["auto", "all"] | Mapping[str, Iterable[str]] = "auto"
    method: PosteriorMethod = "auto"
    forbidden: Iterable[tuple[str, str]] = ()
    required: Iterable[tuple[str, str]] = ()
    tiers: Iterable[Iterable[str]] | None = None
    within_tiers: bool = True
    states: Mapping[str, Sequence[Any]] | BayesianNetwork | None = None
    missing: MissingCells = "error"
    constant: Literal["error", "drop"] = "error"
    na_values: str | Iterable[str] | None = None
    tolerance: float = 0.01
    time: float | None = None
    steps: int | None = None
    chains: int | Literal["auto"] = "auto"
    tempering: bool | int | Literal["auto"] = False
    seed: int = 0
    memory_limit: int | str | None = None
    threads: int | None = None
    backend: LearnBackend = "cpu"
    devices: Devices = None
    cluster: Any = None
    checkpoint: str | Path | None = None
    progress: Callable[[str], None] | None = None
    start: Any = None
    threshold: float | None = None

    graph_: networkx.DiGraph[str] = field(init=False)
    network_: BayesianNetwork = field(init=False)
    edge_probabilities_: ArcTable = field(init=False)
    posterior_: StructurePosterior = field(init=False)
    n_features_in_: int = field(init=False)

    # Interface of scikit-learn's estimators -----------------------------------------------------------------------

    def __sklearn_tags__(self) -> Any:
        tags = importlib.import_module("sklearn.utils")  # called by scikit-learn only
        return tags.Tags(
            estimator_type="density_estimator",
            target_tags=tags.TargetTags(required=False),
            input_tags=tags.InputTags(categorical=True, string=True),
        )

    def __getstate__(self) -> dict[str, Any]:
        """All attributes except the posterior with its chains."""
        return {k: v for k, v in self.__dict__.items() if k != "posterior_"}

    # Fitting ------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> StructureLearner:
        """Compute the posterior over structures and the network.

        Parameters
        ----------
        X : table of discrete data
            See `jtgpu.learn.structure`.
        y : ignored
        sample_weight : (n,) array_like of int, optional
            How often each row occurs.

        Returns
        -------
        StructureLearner
            The estimator itself.

        Raises
        ------
        DataError, NetworkError, TableTooLarge, ValueError
            See `jtgpu.learn.posterior`.
        """
        _require_cases(X)
        options = self.get_params()
        threshold = options.pop("threshold")
        learned = posterior(X, score=options.pop("family_score"), weights=sample_weight, **options)
        self.posterior_ = learned
        self.network_ = learned.network(threshold=threshold)
        self.graph_ = learned.map if threshold is None else learned.consensus(threshold)
        self.edge_probabilities_ = learned.edge_probabilities
        self.n_features_in_ = X.shape[1] if isinstance(X, np.ndarray) else len(learned.names)
        if isinstance(X, np.ndarray):
            self.__dict__.pop("feature_names_in_", None)
        else:
            self.feature_names_in_ = np.array(learned.names, object)
        return self

    def score_samples(self, X: Any) -> Floats:
        """ln P(row) of each row in the network, (n,)."""
        self._check_fitted("score_samples")
        net = self.network_
        shape = np.shape(X) if isinstance(X, np.ndarray) else ()
        if len(shape) == 2:
            check_width(self, shape[1])
        table = code_table(X, states=net, missing="error")
        at = {name: i for i, name in enumerate(table.names)}
        scores = np.zeros(table.codes.shape[1])
        with np.errstate(divide="ignore"):
            for v in net.variables:
                cells = tuple(table.codes[at[u]].astype(np.intp) for u in (*net.parents(v), v))
                scores += np.log(np.asarray(net.cpt(v))[cells])
        return scores

    def score(self, X: Any, y: Any = None) -> float:
        """Mean of ln P(row) over the rows. `y` is ignored."""
        return float(self.score_samples(X).mean())


def _require_cases(X: Any) -> None:
    """Reject arrays that hold no discrete cases, in scikit-learn's words."""
    check_table(X)
    if not isinstance(X, np.ndarray) or X.dtype.names:
        return
    for size, what in zip(X.shape, ("sample", "feature"), strict=True):
        if size < 2:
            raise DataError(f"found {size} {what}(s) (shape={X.shape}) while a minimum of 2 is required.")
    if X.dtype.kind == "f" and np.isinf(X).any():
        raise DataError("X contains infinity (inf): discretise it first")
