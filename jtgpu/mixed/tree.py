"""`MixedTree`: queries of mixed networks, exact."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..columns import at_row
from ..columns.names import evidence_columns as evidence_columns_of
from ..errors import ArgumentError, EvidenceError, ImpossibleEvidence, TableTooLarge, UnknownVariable, closest
from ..inference.compiled_network import CompiledNetwork
from ..inference.queries.posteriors import as_list
from ..inference.results.case_states import Explanation, RankedExplanations
from ..inference.results.frames import make_frame
from ..inference.results.interval_numbers import ends_of
from ..inference.results.marginals import Posterior
from ..inference.results.tables import Joint
from ..inference.session import CaseSession, ask_case
from ..model.gaussian import Gaussian
from ..model.mixed import MixedNetwork
from ..util.arguments import check_keywords, choice, random_generator, whole_number
from ..util.lru import LRU
from .answers import Answerer
from .components import numbers_of
from .evidence import MixedCases, read_case, read_cases
from .information import InformationQueries, contributions
from .results import MixedCasePosteriors, MixedPosteriors, NumberColumns
from .sampling import MixedSamples, draw_bounded, draw_numbers
from .sets import SetEngine

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..inference.evidence import Cases, Findings
    from ..model.states import CodesByVariable
    from ..util.arrays import Floats
    from ..util.options import BackendName, OnProblem

MOST_CELLS = 1 << 20  # of a joint table
MOST_ENGINES = 32  # compiled discrete networks, one for each group of sets that a pattern needs
Seed = int | np.random.Generator | None
Targets = str | int | Iterable[str | int] | None


@check_keywords()
class MixedTree(CompiledNetwork[MixedNetwork], InformationQueries):
    """A compiled mixed network; created by ``net.compile()``.

    Evidence on a number is a value, or a pair ``(low, high)``: the number is between the two (``inf`` where there is no
    bound), for censored values. A pair needs every other number of its component to be observed. Answers are exact:
    observed numbers divide the others into components, and each component gives the junction tree of the discrete
    variables a likelihood of its discrete parents (Lauritzen and Jensen, Stat. Comput. 11 (2001) 191).

    Parameters
    ----------
    net : MixedNetwork
    backend, max_configurations, options
        See `MixedNetwork.compile`.
    """

    def __init__(
        self, net: MixedNetwork, backend: BackendName = "auto", *, max_configurations: int, options: Mapping[str, Any]
    ):
        most = whole_number("max_configurations", max_configurations, least=1)
        super().__init__(net, backend, {"max_configurations": most, "options": dict(options)})
        self._everything: tuple[tuple[str, ...], list[str], tuple[int, ...]] | None = None  # all variables as targets
        self._engines: LRU[tuple[tuple[int, ...], ...], SetEngine] = LRU(MOST_ENGINES)
        self.answerer = Answerer(net, numbers_of(net), self.engine, most)
        self.engine(())  # wrong options are errors at once

    def _parts(self) -> Iterable[SetEngine]:
        return self._engines.values()

    def reload(self, net: MixedNetwork) -> None:
        """Replace the parameters by those of a network of the same structure; plans stay.

        Raises
        ------
        PlanError
            If the network has other variables, states or arcs.
        """
        own = [(v, self._net.parents(v), self._net.graph.states(v)) for v in self._net]
        self._check_structure(
            net, isinstance(net, type(self._net)) and [(v, net.parents(v), net.graph.states(v)) for v in net] == own
        )
        numbers, old, self._net = numbers_of(net, self.answerer.numbers.scale), self._net, net  # sums keep their units
        self.answerer.reload(net, numbers)
        if any(not np.array_equal(net.cpt(v), old.cpt(v)) for v in net.discrete):
            for engine in self._engines.values():
                engine.reload(net.discrete)

    def engine(self, sets: tuple[tuple[int, ...], ...]) -> SetEngine:
        """The compiled discrete network that takes likelihoods of some sets of variables."""
        self._check_open()
        backend, options = self._arguments["backend"], self._arguments["options"]
        return self._engines.get_or_make(sets, lambda: SetEngine(self._net.discrete, sets, backend, options))

    # One case -------------------------------------------------------------------------------------------------

    def posteriors(
        self,
        evidence: Findings | None = None,
        *,
        likelihood: Findings | None = None,
        do: Findings | None = None,
        targets: Targets = None,
    ) -> MixedPosteriors:
        """Compute the posterior of every variable, or of some targets.

        Parameters
        ----------
        evidence : mapping or row of a data frame, optional
            Variable to its state, or to its value or ``(low, high)`` where it is a number. None and NaN mean "not
            observed".
        likelihood : mapping, optional
            Variable with states to P(observation | state).
        do : mapping, optional
            Interventions: variable to the state or number that it is set to.
        targets : str, int, or iterable of these, optional
            Default: all variables.

        Returns
        -------
        MixedPosteriors
            ``.log_evidence`` is a log density in the units of the observed numbers.

        Raises
        ------
        ImpossibleEvidence
            If the evidence has probability zero.
        EvidenceError
            If the evidence is malformed: text for a number, a number set and observed.
        TableTooLarge
            If a component of numbers depends on too many configurations of states.
        """
        cases = read_case(self._net, evidence, likelihood, do)
        names, discrete, numbers = self._targets(targets)
        if not discrete and not numbers:  # ln P(evidence) alone
            names = ()
        asked, numbers = numbers, tuple(dict.fromkeys([*numbers, *cases.bounds]))
        answers = self.answerer.answer(cases, discrete, numbers)
        self._check_possible(answers.impossible, cases, "error")
        bounds = {numbers.index(g): ends for g, ends in cases.bounds.items()}
        parts: dict[str, Posterior | int] = dict.fromkeys(names, 0)
        parts.update((v, i) for i, v in enumerate(answers.numbers.names[: len(asked)]))
        for v in discrete:
            ends = ends_of(self._net.discrete, v)
            parts[v] = Posterior(v, self._net.states(v), answers.posteriors[v][0], ends)
        return MixedPosteriors(parts, answers.numbers, bounds, float(answers.log_evidence[0]))

    def posterior(
        self, variable: str | int, evidence: Findings | None = None, *,
        likelihood: Findings | None = None, do: Findings | None = None,
    ) -> Any:  # fmt: skip
        """Compute the posterior of one variable: a `Posterior`, or a `NumberPosterior` of a number."""
        name = self._net.variables[self._net.index(variable)]
        return self.posteriors(evidence, likelihood=likelihood, do=do, targets=[name])[name]

    def log_evidence(
        self, evidence: Findings | None = None, *, likelihood: Findings | None = None,
        do: Findings | None = None,
    ) -> float:  # fmt: skip
        """Compute ln of the probability of the states times the density of the numbers, in their units."""
        return self.posteriors(evidence, likelihood=likelihood, do=do, targets=()).log_evidence

    def joint(
        self, variables: Iterable[str | int], evidence: Findings | None = None, *,
        likelihood: Findings | None = None, do: Findings | None = None,
    ) -> Joint:  # fmt: skip
        """Compute the joint posterior of some variables with states; `moments` are those of several numbers.

        Parameters
        ----------
        variables : iterable of str or int
            The variables, in the order of the result's axes.
        evidence, likelihood, do
            See `posteriors`.

        Returns
        -------
        Joint

        Raises
        ------
        ArgumentError
            If one of them is a number.
        TableTooLarge
            If the table would have more than 2^20 entries.
        """
        net = self._net
        names = [net.variables[net.index(v)] for v in as_list(variables, "variables")]
        for v in names:
            if net.is_number(v):
                raise ArgumentError(f"joint() is of variables with states, and {v!r} is a number; see moments()")
        if len({*names}) < len(names) or not names:
            raise ArgumentError(f"joint() takes different variables, at least one, not {names}")
        states = [net.states(v) for v in names]
        shape = tuple(map(len, states))
        if (cells := math.prod(shape)) > MOST_CELLS:
            raise TableTooLarge(
                f"the joint table of {len(names)} variables has {cells:,} entries, more than {MOST_CELLS:,}; ask for "
                "fewer variables, or use sample()", cells, 8 * cells, 8 * MOST_CELLS,
            )  # fmt: skip
        child = net.add("\0joint", [str(i) for i in range(cells)], names, np.eye(cells).reshape(*shape, cells))
        with MixedTree(child, **self._arguments) as tree:
            answer = tree.posteriors(evidence, likelihood=likelihood, do=do, targets=["\0joint"])
            table = np.asarray(answer["\0joint"].probabilities).reshape(shape)
        return Joint(tuple(names), tuple(states), table, answer.log_evidence)

    def map(
        self, variables: Iterable[str | int], evidence: Findings | None = None, *, k: int = 1,
        likelihood: Findings | None = None, do: Findings | None = None,
    ) -> Explanation:  # fmt: skip
        """Find the most probable configuration of some variables with states, from their joint posterior.

        Parameters
        ----------
        variables, evidence, likelihood, do
            See `joint`.
        k : int, default 1
            Number of distinct configurations to find; see `jtgpu.JunctionTree.mpe`.

        Returns
        -------
        Explanation
            ``.log_joint`` is in the units of the observed numbers.
        """
        table, net = self.joint(variables, evidence, likelihood=likelihood, do=do), self._net.discrete
        p = table.probabilities.ravel()
        best = np.argsort(-p, kind="stable")[: whole_number("k", k, least=1)]
        best = best[p[best] > 0]
        scope = [net.index(v) for v in table.variables]
        states = np.full((len(best), len(net)), -1, np.int32)
        states[:, scope] = np.transpose(np.unravel_index(best, table.probabilities.shape))
        ranked = RankedExplanations(
            net, states, np.log(p[best]) + table.log_evidence, lambda: table.log_evidence, scope
        )
        return ranked.explanations[0]

    def session(self, evidence: Findings | None = None, **more: object) -> CaseSession:
        """Start a sequence of queries with changing evidence; see `jtgpu.JunctionTree.session`."""
        return CaseSession(self, ("evidence", "likelihood", "do"), evidence, **more)

    def ask(self, question: str) -> Any:
        """Answer a question given as text, such as ``"P(sex | height=180)"``; see `jtgpu.JunctionTree.ask`."""
        return ask_case(self, question)

    def moments(
        self, numbers: str | Sequence[str], evidence: Findings | None = None, *,
        likelihood: Findings | None = None, do: Findings | None = None,
    ) -> tuple[Floats, Floats]:  # fmt: skip
        """Compute the mean vector (m,) and the covariance (m, m) of some numbers given the evidence."""
        names = [self._net.variables[self._net.index(v)] for v in as_list(numbers, "numbers")]
        for v in names:
            if not self._net.is_number(v):
                raise ArgumentError(f"moments are of numbers; {v!r} has states")
        single = self.posteriors(evidence, likelihood=likelihood, do=do, targets=names)
        mean, sd = np.array([single[v].mean for v in names]), np.array([single[v].sd for v in names])
        cov = np.diag(sd**2)
        for i, a in enumerate(names):
            for j, b in enumerate(names[:i]):
                if a == b:
                    cov[i, j] = cov[j, i] = sd[i] ** 2
                elif sd[i] and sd[j]:
                    both = self._sum_variance({a: 1 / sd[i], b: 1 / sd[j]}, evidence, likelihood, do)
                    cov[i, j] = cov[j, i] = (0.5 * both - 1.0) * sd[i] * sd[j]
        return mean, cov

    def _sum_variance(self, weights: dict[str, float], evidence: Findings | None, likelihood: Any, do: Any) -> float:
        """Variance of a weighted sum of numbers given the evidence: of a child with noise of sd 1, less the noise."""
        more = self._net.add("\0sum", float, [*weights], Gaussian(0.0, weights, sd=1.0))
        tree = MixedTree(more, **self._arguments)
        return float(tree.posterior("\0sum", evidence, likelihood=likelihood, do=do).sd) ** 2 - 1.0

    # Tables of cases ------------------------------------------------------------------------------------------

    def posteriors_batch(
        self,
        cases: Cases,
        *,
        likelihood: Findings | None = None,
        do: Findings | None = None,
        targets: Targets = None,
        on_error: OnProblem = "error",
        codes: CodesByVariable | None = None,
    ) -> MixedCasePosteriors:
        """Compute posteriors of a table of B cases.

        Parameters
        ----------
        cases : data frame, mapping of columns, list of mappings, or array
            Columns of states and of numbers; None and NaN are missing.
        likelihood, do, targets
            See `posteriors`; likelihoods are (card,) or (B, card).
        on_error : {"error", "flag"}
            Whether a case of probability zero raises, or is flagged in the result.
        codes : optional
            What cells mean; see `jtgpu.JunctionTree.posteriors_batch`.

        Returns
        -------
        MixedCasePosteriors
        """
        return self._batch(read_cases(self._net.with_codes(codes), cases, likelihood, do), targets, on_error)

    def _batch(self, read: MixedCases, targets: Targets, on_error: OnProblem) -> MixedCasePosteriors:
        names, discrete, numbers = self._targets(targets)
        answers = self.answerer.answer(read, discrete, numbers)
        self._check_possible(answers.impossible, read, on_error)
        columns = {v: NumberColumns(answers.numbers, i) for i, v in enumerate(answers.numbers.names)}
        by_name: dict[str, Any] = {**answers.posteriors, **columns}
        return MixedCasePosteriors(
            {v: self._net.states(v) for v in discrete}, {v: by_name[v] for v in names}, answers.log_evidence,
            answers.impossible, read.table,
        )  # fmt: skip

    def log_likelihood(
        self, cases: Cases, *, likelihood: Findings | None = None, do: Findings | None = None,
        codes: CodesByVariable | None = None,
    ) -> Floats:  # fmt: skip
        """Compute `log_evidence` of each of B cases, (B,): -inf for a case of probability zero."""
        flagged = self.posteriors_batch(cases, likelihood=likelihood, do=do, targets=(), on_error="flag", codes=codes)
        return flagged.log_evidence

    def predict(
        self, cases: Cases, target: str | int, *, on_error: OnProblem = "error",
        codes: CodesByVariable | None = None,
    ) -> NDArray[Any]:  # fmt: skip
        """Predict a variable of B cases given the other columns: the mean of a number, the most probable state."""
        name = self._net.variables[self._net.index(target)]
        read = read_cases(self._net.with_codes(codes), cases, None, None)
        if self._net.is_number(name):
            read.values[:, self._net.numbers.index(name)] = np.nan
        else:
            d = self._net.discrete.index(name)
            read.states.setflags(write=True)
            read.states[:, d] = -1
            read = replace(read, likelihood={v: w for v, w in read.likelihood.items() if v != d})
        is_number = self._net.is_number(name)
        g = (self._net.numbers.index(name),) if is_number else ()
        answers = self.answerer.answer(read, [] if is_number else [name], g)
        self._check_possible(answers.impossible, read, on_error)
        if is_number:
            return np.asarray(answers.numbers.mean[:, 0])
        labels: NDArray[Any] = np.array(self._net.states(name), dtype=object)
        return np.asarray(labels[answers.posteriors[name].argmax(axis=1)])

    def predict_proba(
        self, frame: object, targets: Targets = None, *, evidence_columns: str | Iterable[str] | None = None,
        keep: Iterable[str] = (), on_error: OnProblem = "error", codes: CodesByVariable | None = None,
    ) -> Any:  # fmt: skip
        """Compute posteriors of every row of a table, as a data frame of the same kind.

        Parameters
        ----------
        frame : data frame, mapping of columns, or list of mappings
            The cases; see `posteriors_batch`.
        targets : variables, optional
            Default: all variables that are not evidence; if all variables are, all of them.
        evidence_columns : names, optional
            Default: all columns that are variables and not in `targets`.
        keep : names, optional
            Columns of the frame to copy to the left of the result.
        on_error, codes
            See `posteriors_batch`.

        Returns
        -------
        data frame
            Columns ``variable=state``, ``number.mean`` and ``number.sd``, in the order of the rows.
        """
        net = self._net
        read = read_cases(net.with_codes(codes), frame, None, None)
        assert read.table is not None
        kept = [*map(str, as_list(keep, "keep"))] if keep else []
        if missing := [name for name in kept if name not in read.table.names]:
            raise UnknownVariable(f"the table has no column {missing[0]!r}{closest(missing[0], read.table.names)}")
        there = [net.variables[net.index(v)] for v in evidence_columns_of(net.graph, read.table.names)]
        asked = [] if targets is None else [net.variables[net.index(v)] for v in as_list(targets, "targets")]
        known = [v for v in there if v not in asked]
        if evidence_columns is not None:
            known = [net.variables[net.index(v)] for v in as_list(evidence_columns, "evidence_columns")]
            if missing := [v for v in known if v not in there]:
                raise EvidenceError(f"evidence_columns has {missing[0]!r}, which is no column of the table")
        hidden_states = [i for i, v in enumerate(net.discrete) if v not in known]
        hidden_values = [i for i, v in enumerate(net.numbers) if v not in known]
        states, values = read.states.copy(), read.values.copy()
        states[:, hidden_states], values[:, hidden_values] = -1, np.nan
        wanted = asked or [v for v in net.variables if v not in known] or [*net.variables]
        likelihood = {v: w for v, w in read.likelihood.items() if v not in hidden_states}
        visible = replace(read, states=states, values=values, likelihood=likelihood)
        answers = self._batch(visible, wanted, on_error)
        columns = {name: read.table.column(name) for name in kept}
        columns |= {name: column for name, column in answers._columns().items() if name != "log_evidence"}
        return make_frame(columns, cases=read.table)

    # Samples --------------------------------------------------------------------------------------------------

    def sample(
        self, n: int, evidence: Findings | None = None, *, seed: Seed = None,
        likelihood: Findings | None = None, do: Findings | None = None,
    ) -> MixedSamples:  # fmt: skip
        """Draw n exact samples of all variables given the evidence; see `JunctionTree.sample`."""
        n = whole_number("n", n, least=0)
        case = read_case(self._net, evidence, likelihood, do)
        observed = frozenset(np.flatnonzero(~np.isnan(case.values[0])).tolist())
        pattern = self.answerer.pattern(observed, case.cut, tuple(case.bounds))
        logs, _ = self.answerer.log_weights_of(case, pattern)
        rng = random_generator(seed)
        try:
            states = self.engine(pattern.sets).sample(n, case, [logs[s] for s in pattern.sets], rng)
        except ImpossibleEvidence:
            self._check_possible(np.ones(1, np.bool_), case, "error")
            raise
        values = np.repeat(case.values, n, axis=0)
        draw_bounded(self.answerer, pattern, case, states, values, rng)
        observed |= frozenset(case.bounds)
        return MixedSamples(self._net, states, draw_numbers(self.answerer, observed, case.cut, states, values, rng))

    def impute(
        self, cases: Cases, *, seed: Seed = None, on_error: OnProblem = "error",
        codes: CodesByVariable | None = None,
    ) -> MixedSamples:  # fmt: skip
        """Fill in the missing cells of B cases with an exact joint sample given the other cells of the case.

        Returns
        -------
        MixedSamples
            ``.to_frame()`` has the columns of `cases`, in a frame of the same kind.
        """
        read = read_cases(self._net.with_codes(codes), cases, None, None)
        rng = random_generator(seed)
        states, values = read.states.copy(), read.values.copy()
        for pattern, rows in self.answerer.by_pattern(read, ()):
            part, engine = read.part(rows), self.engine(pattern.sets)
            logs, _ = self.answerer.log_weights_of(part, pattern)
            states[rows] = engine.impute(part, [logs[s] for s in pattern.sets], rng)
            possible = np.maximum(states[rows], 0)
            drawn = draw_numbers(self.answerer, pattern.observed, frozenset(), possible, part.values, rng)
            values[rows] = np.where(np.any(states[rows] < 0, axis=1)[:, None], part.values, drawn)
        self._check_possible(np.any(states < 0, axis=1), read, on_error)
        return MixedSamples(self._net, states, values, read.table)

    contributions = contributions

    # Helpers --------------------------------------------------------------------------------------------------

    def _targets(self, targets: Targets) -> tuple[tuple[str, ...], list[str], tuple[int, ...]]:
        """Names of the targets, those that have states, and the numbers by number."""
        if targets is None and self._everything is not None:
            return self._everything
        net = self._net
        given = net.variables if targets is None else as_list(targets, "targets")
        names = tuple(dict.fromkeys(net.variables[net.index(t)] for t in given))
        numbers = tuple(net.numbers.index(v) for v in names if net.is_number(v))
        result = names, [v for v in names if not net.is_number(v)], numbers
        if targets is None:
            self._everything = result
        return result

    def _check_possible(self, impossible: NDArray[np.bool_], cases: MixedCases, on_error: str) -> None:
        if choice("on_error", on_error, ("error", "flag")) == "flag" or not impossible.any():
            return
        row = int(np.argmax(impossible))
        reason = f"the evidence has probability 0: {', '.join(cases.findings(self._net, row)) or 'its likelihoods'}"
        raise ImpossibleEvidence(reason if cases.table is None else at_row(cases.table, row, reason))
