"""`fit` of dynamic networks with numbers: EM, whose regressions are weighted by posteriors of the parents."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...columns.files import read_file
from ...dynamic.number_rows import Rows, families, read_rows, regression, sums, with_densities
from ...dynamic.posteriors import posteriors
from ...errors import ArgumentError, DataError
from ...model.gaussian import Gaussian
from ...model.mixed_dynamic import MixedDynamicNetwork
from ...util.arguments import choice, mapping, names
from ...util.cells import MissingReport
from .likelihood_cells import hidden_states
from .mixed_starts import least_sd, mixed_template, random_densities, weighted_regression
from .runs import FitRun, best_of_starts
from .sequence_fit import SequenceFit
from .slice_steps import FirstSlices, SliceExpectation
from .slices import Columns, Model, holes_of, result_of, set_up, weights_of, without_order
from .template import known_states

if TYPE_CHECKING:
    from ...util.arrays import Floats
    from ...util.options import BackendName
    from .em import EMState
    from .expectation import Evaluation
    from .setup import Setup
    from .slice_steps import Tables

FEW = 1e-6  # weight of rows below which a configuration keeps its regression


@dataclass(frozen=True, eq=False, repr=False)
class MixedSequenceFit(SequenceFit):
    """The result of `jtgpu.learn.fit` for a dynamic network with numbers; see `SequenceFit`.

    Attributes
    ----------
    network : MixedDynamicNetwork
        The template with the estimated CPTs and densities.
    """

    network: MixedDynamicNetwork  # type: ignore[assignment]

    @property
    def empty_rows(self) -> dict[str, list[dict[str, str]]]:
        """Rows of estimated CPTs without any count; see `SequenceFit.empty_rows`."""
        return self._of_states.empty_rows

    @property
    def _of_states(self) -> SequenceFit:
        given = {f.name: getattr(self, f.name) for f in fields(SequenceFit)}
        return SequenceFit(**{**given, "network": self.network.discrete})

    def _parameters(self) -> int:
        net = self.network
        joined = sum(int(np.prod(np.shape(net.discrete.cpt(v))[:-1])) * (len(net.discrete.states(v)) - 1)
                     for v in net.joined)  # fmt: skip
        densities = [(2 + len(g.coefficients)) * g.mean.size for y in net.numbers for g in net.gaussians(y)]
        return self._of_states._parameters() - joined + sum(densities)


class _NumberExpectation(SliceExpectation):
    """Expected counts of sequences with numbers. Every pass also makes the densities of the next one."""

    def __init__(
        self, net: MixedDynamicNetwork, rows: Rows, slices: FirstSlices, weights: Floats, backend: BackendName,
        options: Mapping[str, Any], held: Sequence[str],
    ):  # fmt: skip
        # held: Numbers whose densities stay as they are
        super().__init__(slices, rows.sequences, weights, backend, options)
        self._net, self._rows, self._held = net, rows, held
        self._following: Mapping[str, Sequence[Gaussian]] = {y: net.gaussians(y) for y in net.numbers}
        self.densities: Mapping[str, Sequence[Gaussian]] = self._following  # of the last pass

    def begin(self, densities: Mapping[str, Sequence[Gaussian]]) -> None:
        """Let the next pass begin with some densities."""
        self._following = densities

    def evaluate(self, tables: Tables) -> Evaluation:
        """Expected counts of all sequences under some CPTs."""
        densities: Mapping[str, Sequence[Gaussian]] = self._following
        net = self._net.replace(gaussians=densities)
        self._sequences, offset = with_densities(net, self._rows)
        evaluation = super().evaluate(tables)
        used = np.where(evaluation.impossible[0], 0.0, self.weights)
        log_density = float((used * sums(offset, self._sequences)).sum())
        self._following = self._maximised(net, used)
        self.densities = densities
        return evaluation._replace(log_likelihood=evaluation.log_likelihood + log_density)

    def _maximised(self, net: MixedDynamicNetwork, weights: Floats) -> Mapping[str, Sequence[Gaussian]]:
        """The densities of the highest likelihood given the posteriors of their parents."""
        step, read = self._step, self._sequences
        components = sorted({c for c in net.component.values() if c is not None})
        numbers = [net.discrete.index(c) for c in components]
        answer = posteriors((step, step), read, numbers, None, None, "flag", smooth=True)
        sequence, t = np.repeat(np.arange(read.n), read.lengths), read.slices
        each = weights[sequence, None]
        shares = {c: answer[c][sequence, t] * each for c in components}
        made: dict[str, list[Gaussian]] = {}
        for y in net.numbers:
            x, component = self._rows.values[y], net.component[y]
            least = least_sd(y, x)
            made[y] = []
            if y in self._held:
                made[y] += self._net.gaussians(y)
                continue
            for g, here, design in families(net, self._rows, y):
                share = each[here] if component is None else shares[component][here]
                made[y].append(_regressed(g, x[here], design, share, least))
        return made


def _regressed(g: Gaussian, x: Floats, design: Floats, share: Floats, least: float) -> Gaussian:
    """The weighted regressions of a number, one for each configuration."""
    # x, design, share: (n,), (n, 1 + parents), and (n, K) weights
    b, sd = (np.array(a) for a in regression(g))
    for k, weight in enumerate(share.sum(axis=0).tolist()):
        if weight > FEW:
            b[k], spread, _ = weighted_regression(x, design, share[:, k])
            sd[k] = max(spread, least)
    shape = g.mean.shape
    coefficients = {p: b[:, j].reshape(shape) for j, p in enumerate(g.coefficients, 1)}
    return Gaussian(b[:, 0].reshape(shape), coefficients, sd.reshape(shape))


def fit_mixed_sequences(
    structure: Any, cases: Any, columns: Columns, model: Model, run: FitRun, numbers: Any = "gaussian"
) -> MixedSequenceFit:
    """Fit a dynamic network with numbers; see `jtgpu.learn.fit`."""
    choice("missing", columns.missing, ("em", "error"))
    without_order(run.order)
    if isinstance(cases, (str, os.PathLike)):
        words = known_states(structure, model.states)
        cases = read_file(str(cases), dialect=columns.dialect, na_values=columns.na_values, states=words)
    given = model.start
    if isinstance(given, MixedDynamicNetwork):
        parents = structure if isinstance(structure, Mapping) else {v: structure.parents(v) for v in structure}
        if {v: [*given.parents(v)] for v in given if given.parents(v)} != {
            v: [p if isinstance(p, tuple) else (p, 0) for p in above] for v, above in parents.items() if above
        }:
            raise ArgumentError("start: the network has other variables or parents than the structure")
        structure, model = given, model._replace(start="given")
    has_numbers = isinstance(structure, MixedDynamicNetwork)
    choice("start", model.start, ("auto", "given", "random"))
    if model.start == "given" and not has_numbers:
        raise ArgumentError("start='given' requires a network with CPTs and Gaussians as the structure")
    net: MixedDynamicNetwork = mixed_template(structure, cases, numbers, model.states, model.hidden, model.bins)
    net = net.with_codes(model.codes)
    rows = read_rows(
        net, cases, likelihood=mapping("likelihood", columns.likelihood), keys=columns.keys,
    )  # fmt: skip
    for y in net.numbers:
        least_sd(y, rows.values[y])
    own = hidden_states(model.hidden, net.discrete, net.discrete.variables)
    hidden = (*own, *net.joined)
    weights = weights_of(columns.weights, rows.sequences, cases)
    holes = holes_of(net.discrete, rows.sequences, hidden, columns.missing)
    gaps = {y: int(np.isnan(rows.values[y]).sum()) for y in net.numbers}
    if columns.missing == "error" and any(gaps.values()):
        y = next(y for y in net.numbers if gaps[y])
        row = int(np.argmax(np.isnan(rows.values[y])))
        i = int(np.searchsorted(rows.sequences.ptr, row, side="right")) - 1
        raise DataError(
            f"{rows.sequences.name(i, row - int(rows.sequences.ptr[i]))}: the cell of {y!r} is missing "
            '(missing="em" fits with missing cells)'
        )
    holes |= {y: n for y, n in gaps.items() if n}
    slices = FirstSlices(net.discrete)
    fixed = list(names("fixed", model.fixed))
    held = [y for y in fixed if y in net.numbers]
    if held and not has_numbers:
        raise ArgumentError("fixed requires a network with CPTs and Gaussians as the structure")
    model = model._replace(fixed=[*(v for v in fixed if v not in held), *net.joined])
    setup = set_up(slices, True, model, hidden, "given")
    options: dict[str, Any] = {}
    backend: BackendName = "cpu" if run.backend == "auto" else run.backend  # type: ignore[assignment]
    if run.threads is not None and backend == "cpu":
        options["threads"] = run.threads
    engine = _NumberExpectation(net, rows, slices, weights, backend, options, held)
    rule = run.rule._replace(accelerate=False)
    best: tuple[EMState, dict[str, Any], Any] | None = None
    objectives: list[float] = []
    for n in range(run.restarts):
        first: Setup = setup
        densities: dict[str, Sequence[Gaussian]] = {y: net.gaussians(y) for y in net.numbers}
        if n or not has_numbers or model.start == "random":
            first = replace(setup, start="random")
            drawn = random_densities(net, rows, np.random.default_rng([run.seed, n]))
            densities |= {y: g for y, g in drawn.items() if y not in held}
        engine.begin(densities)
        state, more = best_of_starts(first, engine, run._replace(rule=rule, restarts=1, seed=run.seed + n), dict)
        objectives.append(state.objective)
        if best is None or state.objective > best[0].objective:
            best = state, more, engine.densities
        if state.interrupted:
            best = replace(best[0], interrupted=True, converged=False), *best[1:]
            break
    assert best is not None
    state, more, densities = best
    more |= {"restarts": tuple(objectives)}
    more |= {"n_weightless": int((weights <= 0).sum()), "missing": MissingReport(holes)}
    fit = result_of(slices, setup, state, "em", rows.sequences, engine.weights, more)
    given = {f.name: getattr(fit, f.name) for f in fields(SequenceFit)}
    given["network"] = net.replace(fit.network, densities)
    for what in ("hidden", "fixed"):
        given[what] = tuple(v for v in given[what] if v not in net.joined)
    given["fixed"] += tuple(held)
    return MixedSequenceFit(**given)
