"""`Online`: CPTs that follow a stream of cases."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ArgumentError, DataError, NetworkError, TableTooLarge, closest
from ...inference.results.printed import LazySequence, Printed, make_frame, to_frame_method
from ...inference.tree import JunctionTree
from ...model.network import BayesianNetwork
from ...util.arguments import described, names, number
from ...util.arguments import names as given_names
from ...util.arrays import Floats
from ...util.elementary import exp, exps, log
from .coded_cases import weighted_chunks
from .sources import open_source

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ...util.options import Data, OnProblem, TableLike


class Online:
    """Sequential learning: counts are stored, and each table of cases adds its expected counts.

    Parameters
    ----------
    tree : JunctionTree or BayesianNetwork
        The network to begin with. A tree is reloaded with the new CPTs after each table, so that its queries follow.
    experience : number or mapping, default 1
        How many cases each row of a CPT stands for at the beginning; a mapping from variable to a number, or to an
        array with one number for each configuration of the parents. Default of variables that a mapping omits: 1.
    fading : float, default 1
        All counts are multiplied by this after each case, in (0, 1]: 0.999 forgets what is about a thousand cases ago.
    fixed : iterable of str
        Variables whose CPTs do not change.

    Notes
    -----
    The cases of one call of `update` are all evaluated with the CPTs before it; cases of earlier rows fade more.

    Examples
    --------
    >>> import jtgpu
    >>> learner = jtgpu.learn.Online(jtgpu.network("rain", "{no|yes}", cpts={"rain": [0.5, 0.5]}), experience=2)
    >>> learner.update([{"rain": "yes"}, {"rain": "yes"}])
    >>> learner.network.cpt("rain").tolist()
    [0.25, 0.75]
    """

    def __init__(
        self, tree: JunctionTree | BayesianNetwork, *, experience: Any = 1.0, fading: float = 1.0, fixed: Any = ()
    ):
        if not 0 < number("fading", fading) <= 1:
            raise ArgumentError(f"fading must be above 0 and at most 1, not {fading!r}")
        self._tree, self._fading = _tree_of(tree), float(fading)
        net = self.network
        held = {net.index(v) for v in names("fixed", fixed)}
        self._free = [v for v in range(len(net)) if v not in held]
        rows = _experience(net, experience)
        self._counts = [rows[v][..., None] * np.asarray(net.cpt(v)) for v in range(len(net))]
        self.n_cases = 0

    @property
    def tree(self) -> JunctionTree:
        """The tree, with the present CPTs."""
        return self._tree

    @property
    def network(self) -> BayesianNetwork:
        """The network with the present CPTs."""
        assert isinstance(self._tree.model, BayesianNetwork)
        return self._tree.model

    def experience(self, variable: str | int) -> Floats:
        """Number of cases that each row of a CPT is worth now, by the configuration of the parents."""
        return np.asarray(self._counts[self.network.index(variable)].sum(axis=-1))

    def update(self, cases: TableLike, *, weights: ArrayLike | None = None, on_impossible: OnProblem = "error") -> None:
        """Learn from a table of cases.

        Parameters
        ----------
        cases : table
            See `jtgpu.JunctionTree.posteriors_batch`; a mapping from variable to one state is one case.
        weights : (B,) array_like, optional
            Weights of the cases; a negative weight takes an earlier case back.
        on_impossible : {"error", "flag"}
            Whether a case of probability 0 is an error, or ignored.

        Raises
        ------
        DataError
            If negative weights would make a count negative; nothing has changed then.
        """
        if isinstance(cases, Mapping) and cases and all(isinstance(x, (str, int, float)) for x in cases.values()):
            cases = [cases]
        net = self.network
        known = self._tree.expected_counts(cases, variables=(), on_impossible=on_impossible)
        n = known.rows
        fade = exps(log(self._fading) * np.arange(n - 1, -1, -1.0))
        each = fade if weights is None else fade * _weights(weights, n)
        expected = self._tree.expected_counts(cases, weights=each, on_impossible="flag")
        counts = list(self._counts)
        for v in self._free:
            total = exp(log(self._fading) * n) * counts[v] + expected[net.variables[v]]
            if (total < -1e-9).any():
                raise DataError(f"the weights would make counts of {net.variables[v]!r} negative")
            counts[v] = np.maximum(total, 0.0)
        self._counts = counts
        self.n_cases += n
        self._tree.reload(net.replace(cpt={net.variables[v]: self._cpt(v) for v in self._free}))

    def _cpt(self, v: int) -> Floats:
        """The CPT of the counts; rows without counts stay as they are."""
        counts = self._counts[v]
        sums = counts.sum(axis=-1, keepdims=True)
        return np.where(sums > 0, counts / np.where(sums > 0, sums, 1.0), self.network.cpt(v))


def _tree_of(given: Any) -> JunctionTree:
    """The tree of a Bayesian network."""
    if isinstance(given, BayesianNetwork):
        return given.compile("cpu")
    if isinstance(given, JunctionTree) and isinstance(given.model, BayesianNetwork):
        return given
    raise NetworkError(f"Online needs a Bayesian network, or a tree of one, not {given!r}")


def _weights(weights: ArrayLike, n: int) -> Floats:
    """Finite weights of n cases."""
    try:
        vector = np.asarray(weights, np.float64)
    except (TypeError, ValueError):
        raise DataError(f"weights must be numbers, one for each case, not {described(weights)}") from None
    if vector.shape != (n,) or np.iscomplexobj(weights) or not np.isfinite(vector).all():
        raise DataError(f"weights must be {n:,} finite numbers, one for each case, not {described(weights)}")
    return vector


def _experience(net: BayesianNetwork, given: Any) -> list[Floats]:
    """Numbers of cases by variable and configuration of the parents."""
    if isinstance(given, Mapping):
        for v in given:
            if v not in net:
                raise ArgumentError(f"experience: there is no variable {v!r}{closest(str(v), net.variables)}")
    experience = []
    for v in net:
        value = given.get(v, 1.0) if isinstance(given, Mapping) else given
        shape = net.cpt(v).shape[:-1]
        try:
            rows = np.array(np.broadcast_to(np.asarray(value, np.float64), shape))
        except (TypeError, ValueError):
            raise ArgumentError(f"the experience of {v!r} must be a number or an array of shape {shape}") from None
        if not np.isfinite(rows).all() or (rows < 0).any():
            raise ArgumentError(f"the experience of {v!r} must be finite numbers >= 0")
        experience.append(rows)
    return experience


# Predictive checks: the counts of some variables in the data against those that the fitted network predicts.

MAX_CELLS = 1_000_000  # configurations of a check


class PredictiveCheck(Printed):
    """Observed and expected counts of the joint states of some variables.

    Attributes
    ----------
    variables : tuple of str
    observed : ndarray
        Weight of the rows with each configuration, an axis for each variable; only rows in which none of the variables
        is missing.
    expected : ndarray
        What the network predicts for as many rows: n P(configuration).
    deviation : ndarray
        Standard deviation of a count of n rows drawn from the network, sqrt(n P (1 - P)).
    z : ndarray
        (observed - expected) / deviation, 0 where both counts are certain. Values beyond 3 or so in many configurations
        say that the structure misses a dependence.
    chi_squared : float
        Sum of (observed - expected)^2 / expected; about the number of free cells where the network is right.
    rows : float
        n, the weight of the complete rows.

    Examples
    --------
    >>> import jtgpu
    >>> data = jtgpu.load("asia").compile("cpu").sample(500, seed=1)
    >>> fit = jtgpu.learn.fit(jtgpu.load("asia"), data)
    >>> print(jtgpu.learn.check(fit.network, data, ["smoke", "dysp"]))
    Counts of smoke, dysp in 500 rows, chi-squared 0.187035
    smoke  dysp    observed    expected  deviation          z
    yes    yes   137.000000  139.276327  10.023998  -0.227088
    yes    no    113.000000  110.723673   9.284622   0.245172
    no     yes    83.000000   80.627636   8.223503   0.288486
    no     no    167.000000  169.372364  10.582928  -0.224169
    """

    def __init__(
        self, variables: tuple[str, ...], states: tuple[tuple[str, ...], ...], observed: Floats, probability: Floats
    ):
        self.variables, self.states, self.observed = variables, states, observed
        self.rows = float(observed.sum())
        self.expected = self.rows * probability
        self.deviation = np.sqrt(np.maximum(self.expected * (1.0 - probability), 0.0))
        difference = observed - self.expected
        is_certain = self.deviation <= 1e-12 * max(self.rows, 1.0)
        agrees = is_certain & (np.abs(difference) <= 1e-9 * max(self.rows, 1.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            z, parts = difference / self.deviation, difference**2 / self.expected
        self.z = np.where(agrees, 0.0, np.where(is_certain, np.copysign(np.inf, difference), z))
        self.chi_squared = float(np.where(agrees, 0.0, parts).sum())

    @to_frame_method
    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame with a row for each configuration.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}, optional
            The library of the frame. Default: pandas.

        Returns
        -------
        data frame
            A column for each variable, ``observed``, ``expected``, ``deviation`` and ``z``.
        """
        at = np.unravel_index(np.arange(self.observed.size), self.observed.shape)
        names = {v: [s[i] for i in index] for v, s, index in zip(self.variables, self.states, at, strict=True)}
        numbers = {n: getattr(self, n).ravel() for n in ("observed", "expected", "deviation", "z")}
        return make_frame({**names, **numbers}, backend)

    def labels(self) -> list[str]:
        """Names of the configurations, in the order of the cells: ``"yes, no"``."""
        cells = np.ndindex(*self.observed.shape)
        return [", ".join(s[i] for s, i in zip(self.states, cell, strict=True)) for cell in cells]

    def _counts(self) -> tuple[list[str], tuple[list[float], list[float], list[float]], str]:
        """The data of a chart in notebooks: labels; observed and expected counts, and deviations; and a title."""
        numbers = (self.observed, self.expected, self.deviation)
        return self.labels(), tuple(x.ravel().tolist() for x in numbers), self._title()  # type: ignore[return-value]

    def _title(self) -> str:
        return f"Counts of {', '.join(self.variables)} in {self.rows:,.6g} rows, chi-squared {self.chi_squared:.6g}"

    def _table(self) -> tuple[list[str], list[Any], int]:
        shape, n = self.observed.shape, self.observed.size

        def state(axis: int, cell: int) -> str:
            return self.states[axis][int(np.unravel_index(cell, shape)[axis])]

        front = [LazySequence(n, lambda cell, axis=axis: state(axis, cell)) for axis in range(len(shape))]  # type: ignore[misc]
        numbers = [getattr(self, name).ravel() for name in ("observed", "expected", "deviation", "z")]
        return [*self.variables, "observed", "expected", "deviation", "z"], [*front, *numbers], len(shape)


def check(
    network: BayesianNetwork,
    cases: Data,
    variables: str | Iterable[str],
    *,
    weights: ArrayLike | str | None = None,
    na_values: str | Iterable[str] | None = None,
) -> PredictiveCheck:
    """Compare the counts of some variables in a table with those that a network predicts.

    Parameters
    ----------
    network : BayesianNetwork
        Such as ``fit.network``.
    cases : table, path, or list of paths
        See `jtgpu.learn.fit`; only columns of `variables` are read.
    variables : str, or iterable of str
        A name alone stands for its family, the parents and the variable. Other sets, such as two variables without an
        arc, show what the structure misses.
    weights : (B,) array_like, or name of a column, optional
    na_values : str or iterable of str, optional
        See `jtgpu.learn.fit`.

    Returns
    -------
    PredictiveCheck
        ``.observed``, ``.expected``, ``.z``; prints as a table. `jtgpu.draw.plots.counts` plots it.

    Raises
    ------
    DataError
        If a variable has no column, or no row has all of them.
    TableTooLarge
        If the variables have too many configurations.

    Examples
    --------
    >>> import jtgpu
    >>> net = jtgpu.network("a; b", "{x|y}", cpts={"a": [0.5, 0.5], "b": [0.5, 0.5]})
    >>> found = jtgpu.learn.check(net, {"a": [*"xxyy"] * 5, "b": [*"xxyy"] * 5}, ["a", "b"])
    >>> found.expected.tolist(), found.z.round(1).tolist()
    ([[5.0, 5.0], [5.0, 5.0]], [[2.6, -2.6], [-2.6, 2.6]])
    """
    if not isinstance(network, BayesianNetwork):
        raise ArgumentError(f"check needs a Bayesian network, such as fit.network, not {described(network)}")
    if isinstance(variables, str):
        names = [*network.parents(variables), network.variables[network.index(variables)]]
    else:
        names = list(dict.fromkeys(network.variables[network.index(v)] for v in given_names("variables", variables)))
    if not names:
        raise ArgumentError("check needs at least one variable")
    source = open_source(cases, network.variables, na_values=na_values)
    for v in names:
        if v not in source.names:
            raise DataError(f"the table has no column {v!r}")
    shape = tuple(len(network.states(v)) for v in names)
    if math.prod(shape) > MAX_CELLS:
        raise TableTooLarge(
            f"{len(names)} variables have {math.prod(shape):,} configurations, more than the limit of {MAX_CELLS:,}",
            math.prod(shape), 8 * math.prod(shape), -1,
        )  # fmt: skip
    numbers = [network.index(v) for v in names]
    observed = np.zeros(math.prod(shape))
    for block, _ in weighted_chunks(network, source, names, weights):
        chosen = block.states[:, numbers]
        complete = (chosen >= 0).all(axis=1)
        at = np.ravel_multi_index(tuple(chosen[complete].T.astype(np.int64)), shape)
        observed += np.bincount(at, block.weights[complete], len(observed))
    if not observed.any():
        raise DataError(f"no row has all of {', '.join(names)}")
    with network.compile("cpu") as tree:
        probability = np.asarray(tree.joint(names).probabilities)
    return PredictiveCheck(
        tuple(names), tuple(network.states(v) for v in names), observed.reshape(shape), probability.reshape(shape)
    )
