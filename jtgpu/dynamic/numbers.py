"""`MixedDynamicTree`: queries of dynamic networks with numbers; observed numbers are likelihoods of their parents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np

from ..errors import ArgumentError, DataError
from ..inference.compiled_network import CompiledNetwork
from ..inference.results.frames import unused_name
from ..model.discrete import DiscreteModel
from ..model.editing import coefficient_name
from ..model.mixed_dynamic import MixedDynamicNetwork
from ..options.learning import Keys
from ..util.arguments import check_keywords, mapping, names, random_generator
from ..util.text_table import counted
from .number_rows import NumberRows, read_rows, regression, with_densities, with_offset
from .results import Course, SequenceExplanations, SequencePosteriors, SequenceStates
from .stream import MixedStream
from .tree import DynamicTree

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..model.states import CodesByVariable
    from ..util.arrays import Floats, Ints
    from ..util.options import BackendName, OnProblem
    from .posteriors import At
    from .sequences import Sequences


class Given(TypedDict, total=False):
    """Keywords of all queries of sequences; see `DynamicTree.filter`."""

    likelihood: Mapping[Any, Any] | None
    do: Mapping[Any, Any] | None
    codes: CodesByVariable | None


class MixedSequencePosteriors(SequencePosteriors):
    """Posteriors of variables with states in slices of sequences, and means and standard deviations of numbers.

    Attributes
    ----------
    mean, sd : dict of str to ndarray
        (B, S), or (B,) with ``at="last"``, of each number; an observed number has its value and 0. Zeros behind the end
        of a sequence and in impossible ones.
    weights, means, sds : dict of str to ndarray
        The mixtures that they are made of, with an axis more: P(states of the parents), and means and standard
        deviations given these; of a number without numeric parents the latter are (K,), the same in all slices.
    log_evidence : (B,) ndarray of float64
        ln of a density, in the units of the numbers.
    """

    mean: dict[str, Floats]
    sd: dict[str, Floats]
    weights: dict[str, Floats]
    means: dict[str, Floats]
    sds: dict[str, Floats]

    def _values(self) -> dict[str, Floats]:
        columns = super()._values()
        for y in self.mean:
            for what, table in (("mean", self.mean[y]), ("sd", self.sd[y])):
                columns[unused_name(f"{y}.{what}", {*columns, *self._sequences.keys})] = self._picked(table)
        return columns

    def _title(self) -> str:
        both = f"{counted(len(self), 'variable')} and {counted(len(self.mean), 'number')}"
        return f"Posteriors of {both} in {counted(len(self.lengths), 'sequence')}"

    def _courses(self) -> tuple[str, list[int], list[Course]]:
        title, slices, made = super()._courses()
        n = len(slices)
        made += [Course(y, {"mean": x[0, :n]}, self.sd[y][0, :n]) for y, x in self.mean.items() if n]
        return title, slices, made


@check_keywords()
class MixedDynamicTree(CompiledNetwork[MixedDynamicNetwork]):
    """A compiled dynamic network with numbers; created by ``dyn.compile()``.

    Sequences are a long frame with columns of `jtgpu.learn.Keys`, a list of frames, or a mapping of variables to (B, T)
    arrays. Posteriors are exact: an observed number is a likelihood of its parents with states. A number with numeric
    parents is a target if it is named, in slices where it or all of these are observed.

    Parameters
    ----------
    net : MixedDynamicNetwork
    backend, options
        See `BayesianNetwork.compile`.
    """

    def __init__(self, net: MixedDynamicNetwork, backend: BackendName = "auto", **options: Any):
        super().__init__(net, backend, options)
        self.discrete = DynamicTree(net.discrete, backend, **options)

    @property
    def backend(self) -> str:
        """Name of the backend."""
        return self.discrete.backend

    def _parts(self) -> tuple[DynamicTree]:
        return (self.discrete,)

    def reload(self, net: MixedDynamicNetwork) -> None:
        """Replace CPTs and densities by those of a network with the same variables and parents; the plan stays."""
        own = [(v, self._net.parents(v)) for v in self._net]
        self._check_structure(net, isinstance(net, type(self._net)) and [(v, net.parents(v)) for v in net] == own)
        self.discrete.reload(net.discrete)
        self._net = net

    def filter(self, sequences: object, *, targets: object = None, at: At = None, joints: object = None,
               on_error: OnProblem = "error", keys: Keys = Keys(),
               **options: Unpack[Given]) -> MixedSequencePosteriors:  # fmt: skip
        """Compute posteriors in every slice given the evidence up to it; parameters as of `DynamicTree.filter`."""
        return self._answer("filter", sequences, targets, keys, options, at=at, joints=joints, on_error=on_error)

    def smooth(self, sequences: object, *, targets: object = None, at: At = None, joints: object = None,
               on_error: OnProblem = "error", keys: Keys = Keys(),
               **options: Unpack[Given]) -> MixedSequencePosteriors:  # fmt: skip
        """Compute posteriors in every slice given all evidence; parameters as of `DynamicTree.smooth`."""
        return self._answer("smooth", sequences, targets, keys, options, at=at, joints=joints, on_error=on_error)

    def predict(self, sequences: object, *, ahead: int = 1, targets: object = None, on_error: OnProblem = "error",
                keys: Keys = Keys(), **options: Unpack[Given]) -> MixedSequencePosteriors:  # fmt: skip
        """Compute posteriors of the slices that follow; parameters as of `DynamicTree.predict`."""
        return self._answer("predict", sequences, targets, keys, options, ahead=ahead, on_error=on_error)

    def log_likelihood(self, sequences: Any, *, keys: Keys = Keys(), **options: Unpack[Given]) -> Floats:
        """Compute ln of the density of each sequence, (B,); parameters as of `DynamicTree.log_likelihood`."""
        read, offset = with_densities(self.network, self._read(sequences, keys, options), "flag")
        return with_offset(self.discrete.log_likelihood(read), offset, read)

    def mpe(
        self, sequences: object, *, on_error: OnProblem = "error", keys: Keys = Keys(), **options: Unpack[Given]
    ) -> SequenceExplanations:
        """Find the most probable states given the evidence, numbers included; parameters as of `DynamicTree.mpe`."""
        net = self.network
        read, offset = with_densities(net, self._read(sequences, keys, options), on_error)
        best = self.discrete.mpe(read, on_error=on_error)
        own = DiscreteModel({v: net.discrete.states(v) for v in net.discrete if v not in net.joined})
        states = best.states[np.repeat(np.arange(read.n), read.lengths), read.slices]
        return SequenceExplanations(own, read, states[:, : len(own)], with_offset(best.log_joint, offset, read))

    def sample(
        self, n: int, sequences: object = None, *, length: int | None = None, seed: object = None,
        keys: Keys = Keys(), **options: Unpack[Given],
    ) -> MixedSequenceStates:  # fmt: skip
        """Draw sequences, or n samples of all variables given each one's evidence; see `DynamicTree.sample`."""
        net, rng = self.network, random_generator(seed)
        if sequences is None:
            if options or keys != Keys():
                raise ArgumentError("sample takes keys=, likelihood=, do= and codes= with sequences only")
            drawn = self.discrete.sample(n, length=length, seed=rng)
            read, rows = drawn._sequences, drawn._sequences.codes
            hidden = dict.fromkeys(net.numbers, np.full(len(rows), np.nan))
            values = drawn_numbers(net, read, rows[None], hidden, rng)
            return MixedSequenceStates(net, read, rows, {y: x[0] for y, x in values.items()})
        given = self._read(sequences, keys, options)
        read, offset = with_densities(net, given)
        if read.exponents:
            with_offset(self.discrete.log_likelihood(read), offset, read)
        drawn = self.discrete.sample(n, read, length=length, seed=rng)
        sequence, place, _ = drawn._places()
        rows = drawn.states[:, sequence, place]
        return MixedSequenceStates(net, read, rows, drawn_numbers(net, read, rows, given.values, rng))

    def stream(self) -> MixedStream:
        """Start a sequence whose slices come one by one."""
        return MixedStream(self.network, self.discrete.stream())

    def _read(self, sequences: Any, keys: Keys, options: Given) -> NumberRows:
        if given := [v for v in mapping("likelihood", options.get("likelihood")) if v in self.network.numbers]:
            raise ArgumentError(f"likelihood has the number {given[0]!r}; likelihood= is of variables with states")
        if isinstance(sequences, NumberRows):
            return sequences
        do = mapping("do", options.get("do"))
        states = {v: x for v, x in do.items() if v not in self.network.numbers}
        net = self.network.with_codes(options.get("codes"))
        rows = read_rows(net, sequences, options.get("likelihood"), keys, states)
        return rows.setting({y: x for y, x in do.items() if y not in states}) if len(states) < len(do) else rows

    def _answer(
        self, kind: str, sequences: object, targets: object, keys: Keys, options: Given, **more: Any
    ) -> MixedSequencePosteriors:
        net = self.network
        given = net.variables if targets is None else names("targets", targets)
        numbers = [y for y in net.numbers if y in given and not (targets is None and net.numeric_parents(y))]
        states = list(dict.fromkeys(v for v in given if v not in net.numbers))
        components = {c for y in numbers if (c := net.component[y]) is not None}
        rows = self._read(sequences, keys, options)
        read, offset = with_densities(net, rows, more["on_error"])
        answer = getattr(self.discrete, kind)(read, targets=[*states, *sorted(components - {*states})], **more)
        made = MixedSequencePosteriors(
            net.discrete, answer._sequences, answer._slices, with_offset(answer.log_evidence, offset, read),
            {v: answer[v] for v in states}, answer.joint,
        )  # fmt: skip
        sequence, place, t = made._places()
        where = (sequence,) if answer._slices is None else (sequence, place)
        shape = (read.n,) if answer._slices is None else (read.n, len(answer._slices))
        made.mean, made.sd, made.weights, made.means, made.sds = {}, {}, {}, {}, {}
        for y in numbers:
            component, regressions = net.component[y], [regression(g) for g in net.gaussians(y)]
            weights = np.zeros((*shape, 1))
            weights[where] = ~made.impossible[sequence, None]
            if component is not None:
                weights = answer[component]
            x = _at(rows, y, sequence, t)
            known = ~np.isnan(x) & ~made.impossible[sequence]
            b, sds = regressions[-1]
            means = b[:, 0]
            if net.numeric_parents(y):
                means, sds = np.zeros((*shape, len(sds))), np.ones((*shape, len(sds)))
                for k, (b, sd) in enumerate(regressions):
                    some = t >= k if k == len(regressions) - 1 else t == k
                    design = _design(net, rows, y, sequence[some], t[some], k)
                    lost = np.isnan(design).any(axis=1) & np.isnan(x[some]) & ~made.impossible[sequence[some]]
                    if lost.any():
                        at = int(np.flatnonzero(some)[np.argmax(lost)])
                        raise DataError(
                            f"{read.name(int(sequence[at]), int(t[at]))}: {y!r} is a target, and a numeric parent of "
                            "it is not observed; ask about other slices (at=), or the unrolled network"
                        )
                    here = tuple(index[some] for index in where)
                    means[here], sds[here] = np.nan_to_num(design) @ b.T, sd
            mean = np.asarray((weights * means).sum(axis=-1))
            spread = sds**2 + (means - mean[..., None]) ** 2
            sd = np.asarray(np.sqrt((weights * spread).sum(axis=-1)))
            here = tuple(index[known] for index in where)
            mean[here], sd[here] = x[known], 0.0
            made.mean[y], made.sd[y], made.weights[y] = mean, sd, weights
            made.means[y], made.sds[y] = means, sds
        return made


def _at(rows: NumberRows, y: str, sequence: Ints, t: Ints) -> Floats:
    """Values of a number in some slices of sequences; NaN where it was not observed, or outside of these."""
    read = rows.sequences
    inside = (t >= 0) & (t < read.lengths[sequence])
    return np.where(inside, rows.values[y][read.ptr[:-1][sequence] + np.where(inside, t, 0)], np.nan)


def _design(net: MixedDynamicNetwork, rows: NumberRows, y: str, sequence: Ints, t: Ints, kind: int) -> Floats:
    """Ones, and the numeric parents of a number in slices of a kind, (n, 1 + parents)."""
    above = [(p, lag) for p, lag in net.numeric_parents(y) if lag <= kind]
    return np.stack([np.ones(len(t)), *(_at(rows, p, sequence, t - lag) for p, lag in above)], axis=1)


class MixedSequenceStates(SequenceStates):
    """States and values of all variables in all slices of B sequences; see `SequenceStates`.

    ``result["load"]`` of a number has its values, (B, T) or (n, B, T) ndarray of float64, NaN behind the end of a
    sequence.
    """

    def __init__(
        self, net: MixedDynamicNetwork, sequences: Sequences, rows: NDArray[np.int32], values: Mapping[str, Floats]
    ):
        super().__init__(net.discrete, sequences, rows)
        sequence, place, _ = self._places()
        self._order = net.variables
        self._values: dict[str, Floats] = {}
        for y, x in values.items():
            self._values[y] = np.full(self.states.shape[:-1], np.nan)
            self._values[y][..., sequence, place] = x

    def __getitem__(self, variable: str | int) -> NDArray[Any]:
        known = isinstance(variable, str) and variable in self._values
        return self._values[str(variable)] if known else super().__getitem__(variable)

    def __iter__(self) -> Iterator[str]:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)


def drawn_numbers(
    net: MixedDynamicNetwork, read: Sequences, states: NDArray[np.int32], values: Mapping[str, Floats], rng: Any
) -> dict[str, Floats]:
    """Values of the numbers, (n, R), given states (n, R, V): the observed ones, and draws of the others."""
    # A number that is not observed has no children that are: it is independent of all but its parents.
    n, lengths = len(states), read.lengths
    made = {y: np.tile(x, (n, 1)) for y, x in values.items()}
    order = [*TopologicalSorter({y: [p for p, lag in net.numeric_parents(y) if not lag] for y in made}).static_order()]
    for t in range(int(lengths.max(initial=0))):
        rows = read.ptr[:-1][lengths > t] + t
        for y in order:
            g, component = net.gaussian(y, t), net.component[y]
            k = np.zeros((n, len(rows)), np.int64)
            if component is not None:
                k += states[:, rows, net.discrete.index(component)]
            mean = g.mean.ravel()[k]
            for p, lag in net.numeric_parents(y):
                if (name := coefficient_name(p, lag)) in g.coefficients:
                    mean = mean + g.coefficients[name].ravel()[k] * made[p][:, rows - lag]
            draws = mean + g.sd.ravel()[k] * rng.standard_normal(mean.shape)
            made[y][:, rows] = np.where(np.isnan(made[y][:, rows]), draws, made[y][:, rows])
    return made
