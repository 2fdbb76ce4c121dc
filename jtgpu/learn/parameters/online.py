"""`Online`: CPTs that follow a stream of cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ...errors import ArgumentError, DataError, NetworkError, closest
from ...inference.tree import JunctionTree
from ...mixed.evidence import read_cases
from ...mixed.fitting import density_of, lines_of, one_pass, regressions
from ...mixed.regressions import joint_parts, warn_of_errors
from ...mixed.tree import MixedTree
from ...model.mixed import MixedNetwork
from ...model.network import BayesianNetwork
from ...util.arguments import check_keywords, described, names, number
from ...util.arrays import Floats
from ...util.elementary import exp, exps, log
from .families import CptFamily

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ...util.options import OnProblem, TableLike


@check_keywords()
class Online:
    """Sequential learning: counts are stored, and each table of cases adds its expected counts.

    Parameters
    ----------
    tree : JunctionTree, MixedTree, BayesianNetwork or MixedNetwork
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
    The cases of one call of `update` are all evaluated with the CPTs before it; cases of earlier rows fade more. A case
    adds nothing to the regression of a number that its evidence does not depend on.

    Examples
    --------
    >>> import jtgpu
    >>> learner = jtgpu.learn.Online(jtgpu.network("rain", "{no|yes}", cpts={"rain": [0.5, 0.5]}), experience=2)
    >>> learner.update([{"rain": "yes"}, {"rain": "yes"}])
    >>> learner.network.cpt("rain").tolist()
    [0.25, 0.75]
    """

    def __init__(
        self,
        tree: JunctionTree | MixedTree | BayesianNetwork | MixedNetwork,
        *,
        experience: Any = 1.0,
        fading: float = 1.0,
        fixed: Any = (),
    ):
        if not 0 < number("fading", fading) <= 1:
            raise ArgumentError(f"fading must be above 0 and at most 1, not {fading!r}")
        self._fading, self.n_cases = float(fading), 0
        self._numbers: NumberStream | None = None
        if isinstance(tree, (MixedNetwork, MixedTree)):
            mixed = tree if isinstance(tree, MixedTree) else tree.compile("cpu")
            shapes: dict[str, tuple[int, ...]] = {
                v: mixed.network.gaussian(v).mean.shape if mixed.network.is_number(v)
                else mixed.network.cpt(v).shape[:-1] for v in mixed.network
            }  # fmt: skip
            kept = [mixed.network.variables[mixed.network.index(v)] for v in names("fixed", fixed)]
            self._numbers = NumberStream(mixed, _experience(shapes, experience), self._fading, kept)
            return
        self._tree = _tree_of(tree)
        net = self.network
        held = {net.index(v) for v in names("fixed", fixed)}
        self._free = [v for v in range(len(net)) if v not in held]
        rows = _experience({v: net.cpt(v).shape[:-1] for v in net}, experience)
        self._counts = [rows[v][..., None] * np.asarray(net.cpt(v)) for v in net]

    @property
    def tree(self) -> JunctionTree:
        """The tree, with the present CPTs; a `jtgpu.mixed.MixedTree` of a network with numbers."""
        return cast(JunctionTree, self._numbers.tree) if self._numbers else self._tree

    @property
    def network(self) -> BayesianNetwork:
        """The network with the present CPTs; a `jtgpu.MixedNetwork` if it has numbers."""
        if self._numbers:
            return cast(BayesianNetwork, self._numbers.tree.network)
        assert isinstance(self._tree.model, BayesianNetwork)
        return self._tree.model

    def experience(self, variable: str | int) -> Floats:
        """Number of cases that each row of a CPT is worth now, by the configuration of the parents."""
        if self._numbers:
            net = self._numbers.tree.network
            return self._numbers.experience(net.variables[net.index(variable)])
        return np.asarray(self._counts[self.network.index(variable)].sum(axis=-1))

    def update(self, cases: TableLike, *, weights: ArrayLike | None = None, on_error: OnProblem = "error") -> None:
        """Learn from a table of cases.

        Parameters
        ----------
        cases : table
            See `jtgpu.JunctionTree.posteriors_batch`; a mapping from variable to one state is one case.
        weights : (B,) array_like, optional
            Weights of the cases; a negative weight takes an earlier case back.
        on_error : {"error", "flag"}
            Whether a case of probability 0 is an error, or ignored.

        Raises
        ------
        DataError
            If negative weights would make a count negative; nothing has changed then.
        """
        if isinstance(cases, Mapping) and cases and all(isinstance(x, (str, int, float)) for x in cases.values()):
            cases = [cases]
        if self._numbers:
            self.n_cases += self._numbers.update(
                cases, lambda n: np.ones(n) if weights is None else _weights(weights, n), on_error
            )
            return
        net = self.network
        known = self._tree.expected_counts(cases, variables=(), on_error=on_error)
        n = known.rows
        fade = exps(log(self._fading) * np.arange(n - 1, -1, -1.0))
        each = fade if weights is None else fade * _weights(weights, n)
        expected = self._tree.expected_counts(cases, weights=each, on_error="flag")
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


def _tree_of(given: object) -> JunctionTree:
    """The tree of a Bayesian network."""
    if isinstance(given, BayesianNetwork):
        return given.compile("cpu")
    if isinstance(given, JunctionTree) and isinstance(given.model, BayesianNetwork):
        return given
    raise NetworkError(f"Online needs a Bayesian network, or one with numbers, or a tree of one, not {given!r}")


def _weights(weights: ArrayLike, n: int) -> Floats:
    """Finite weights of n cases."""
    try:
        vector = np.asarray(weights, np.float64)
    except (TypeError, ValueError):
        raise DataError(f"weights must be numbers, one for each case, not {described(weights)}") from None
    if vector.shape != (n,) or np.iscomplexobj(weights) or not np.isfinite(vector).all():
        raise DataError(f"weights must be {n:,} finite numbers, one for each case, not {described(weights)}")
    return vector


def _experience(shapes: Mapping[str, tuple[int, ...]], given: object) -> dict[str, Floats]:
    """Numbers of cases by variable and configuration of the parents."""
    if isinstance(given, Mapping):
        for v in given:
            if v not in shapes:
                raise ArgumentError(f"experience: there is no variable {v!r}{closest(str(v), [*shapes])}")
    experience = {}
    for v, shape in shapes.items():
        value = given.get(v, 1.0) if isinstance(given, Mapping) else given
        try:
            rows = np.array(np.broadcast_to(np.asarray(value, np.float64), shape))
        except (TypeError, ValueError):
            raise ArgumentError(f"the experience of {v!r} must be a number or an array of shape {shape}") from None
        if not np.isfinite(rows).all() or (rows < 0).any():
            raise ArgumentError(f"the experience of {v!r} must be finite numbers >= 0")
        experience[v] = rows
    return experience


# Sums of numbers and counts of states that follow a stream of cases, for `Online`.

class NumberStream:
    """The state of `Online` for a network with numbers."""

    def __init__(self, tree: MixedTree, experience: Mapping[str, Floats], fading: float, fixed: Iterable[str]):
        # experience: of each variable, cases by configuration of its discrete parents
        net = tree.network
        self.tree, self._fading, self._free = tree, fading, [v for v in net if v not in set(fixed)]
        self.counts = {v: experience[v][..., None] * np.asarray(net.cpt(v)) for v in net.discrete}
        self.moments = [_sums(tree, g, experience[v].ravel()) for g, v in enumerate(net.numbers)]

    def experience(self, variable: str) -> Floats:
        """Cases that each configuration of the discrete parents is worth."""
        net = self.tree.network
        if not net.is_number(variable):
            return np.asarray(self.counts[variable].sum(axis=-1))
        shape = net.gaussian(variable).mean.shape
        return np.array(self.moments[net.numbers.index(variable)][:, 0, 0].reshape(shape))

    def update(self, cases: object, weights: Callable[[int], Floats], on_error: str) -> int:
        """Add a table of cases; their number."""
        # weights: of n cases
        tree, net = self.tree, self.tree.network
        read = read_cases(net, cases, None, None)
        n = len(read.states)
        each = exps(log(self._fading) * np.arange(n - 1, -1, -1.0)) * weights(n)
        answers = tree.posteriors_batch(cases, targets=(), on_error=on_error)  # type: ignore[arg-type]
        possible = np.flatnonzero(~answers.impossible)
        new = one_pass(tree, read.part(possible), each[possible])
        fade = exp(log(self._fading) * n)
        counts = {v: fade * old + new.counts[v] if v in self._free else old for v, old in self.counts.items()}
        sums = zip(net.numbers, self.moments, new.moments, strict=True)
        moments = [fade * old + more if v in self._free else old for v, old, more in sums]
        for v in self._free:
            least = moments[net.numbers.index(v)][:, 0, 0].min() if net.is_number(v) else counts[v].min()
            if least < -1e-9:
                raise DataError(f"the weights would make counts of {v!r} negative")
        counts = {v: np.maximum(table, 0.0) for v, table in counts.items()}
        numbers, learned, errors = tree.answerer.numbers, dict[str, Any](), dict[str, float]()
        for v in self._free:
            if not net.is_number(v):
                learned[v] = CptFamily((0,), np.zeros(counts[v].shape)).maximise([counts[v]], np.asarray(net.cpt(v)))
                continue
            g = net.numbers.index(v)
            try:
                lines, errors[v] = regressions(numbers, g, moments[g], lines_of(numbers, g, net.gaussian(v)))
            except DataError as error:
                raise DataError(str(error).replace("a prior > 0", "experience= above 0")) from None
            learned[v] = density_of(numbers, g, lines)
        warn_of_errors(errors)
        self.counts, self.moments = counts, moments
        tree.reload(net.replace(cpt=learned))
        return n


def _sums(tree: MixedTree, g: int, experience: Floats) -> Floats:
    """Sums of z z', z = (1, numeric parents, number), of cases that the network itself predicts."""
    numbers = tree.answerer.numbers
    n = prod(numbers.cards[d] for d in numbers.scope[g])
    by_cell = joint_parts(tree, (*numbers.parents[g], g), numbers.scope[g]).sums(n)
    total = by_cell[:, :1, :1]
    impossible = total[:, 0, 0] <= 0  # a configuration of probability 0: all of its parts count the same
    if impossible.any():
        parts = joint_parts(tree, (*numbers.parents[g], g), numbers.scope[g])
        by_cell[impossible] = parts._replace(weights=np.ones(len(parts.weights))).sums(n)[impossible]
        total = by_cell[:, :1, :1]
    return np.asarray(by_cell / total * experience[:, None, None])
