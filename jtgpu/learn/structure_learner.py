"""`StructureLearner`: the posterior over structures with the interface of scikit-learn's estimators.

scikit-learn itself is not needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from ..errors import DataError
from ..model.network import BayesianNetwork
from ..options.compute import Compute
from ..options.learning import Chains, Constraints, Search
from ..options.tables import ReadOptions
from ..util.arguments import check_keywords
from ..util.arrays import Floats
from ..util.estimator import Estimator, check_table, check_width
from ..util.options import LearnBackend, MissingCells, PosteriorMethod, StructurePriorLike
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
    method, ess, graph_prior, max_parents, states, continuous, missing, seed, seconds
        See `jtgpu.learn.posterior`.
    constraints, search, chains, read, compute : optional
        See `jtgpu.learn.posterior`; None is the record without options. ``set_params(chains__steps=1000)`` sets one.
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
    >>> from jtgpu.learn import Constraints, StructureLearner
    >>> data = {"rain": ["no", "no", "yes", "yes", "no"] * 4, "wet": ["no", "no", "yes", "yes", "yes"] * 4}
    >>> learner = StructureLearner(constraints=Constraints(forbidden=[("wet", "rain")])).fit(data)
    >>> [*learner.graph_.edges], round(learner.edge_probabilities_["rain", "wet"], 2)
    ([('rain', 'wet')], 0.99)
    >>> round(learner.score(data), 3)
    -1.067
    """

    _fitted = "network_"
    _records: ClassVar[Mapping[str, type[Any]]] = {
        "constraints": Constraints,
        "search": Search,
        "chains": Chains,
        "read": ReadOptions,
        "compute": Compute,
    }

    family_score: Score = "bdeu"
    method: PosteriorMethod = "auto"
    ess: float = 1.0
    graph_prior: StructurePriorLike = "uniform"
    max_parents: int | Mapping[str, int] = 4
    states: Mapping[str, Sequence[Any]] | BayesianNetwork | None = None
    continuous: bool | Iterable[str] | None = None
    missing: MissingCells = "error"
    seed: int = 0
    seconds: float | None = None
    constraints: Constraints | None = None
    search: Search | None = None
    chains: Chains | None = None
    read: ReadOptions | None = None
    compute: Compute | LearnBackend | Literal["auto"] | None = None
    threshold: float | None = None

    graph_: networkx.DiGraph[str] = field(init=False)
    network_: BayesianNetwork = field(init=False)
    edge_probabilities_: ArcTable = field(init=False)
    posterior_: StructurePosterior = field(init=False)

    # Interface of scikit-learn's estimators -----------------------------------------------------------------------

    def __sklearn_tags__(self) -> Any:
        return self._tags("density_estimator", categorical=True, string=True)

    def __getstate__(self) -> dict[str, object]:
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
        options = {name: value for name, value in self.get_params(deep=False).items() if value is not None}
        threshold = options.pop("threshold", None)
        learned = posterior(X, score=options.pop("family_score"), weights=sample_weight, **options)
        self.posterior_ = learned
        self.network_ = learned.network(threshold=threshold)
        self.graph_ = learned.map if threshold is None else learned.consensus(threshold)
        self.edge_probabilities_ = learned.edge_probabilities
        is_array = isinstance(X, np.ndarray)
        self._set_features(range(X.shape[1]) if is_array else learned.names, named=not is_array)
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


def _require_cases(X: object) -> None:
    """Reject arrays that hold no discrete cases, in scikit-learn's words."""
    check_table(X)
    if not isinstance(X, np.ndarray) or X.dtype.names:
        return
    for size, what in zip(X.shape, ("sample", "feature"), strict=True):
        if size < 2:
            raise DataError(f"found {size} {what}(s) (shape={X.shape}) while a minimum of 2 is required.")
    if X.dtype.kind == "f" and np.isinf(X).any():
        raise DataError("X contains infinity (inf): discretise it first")
