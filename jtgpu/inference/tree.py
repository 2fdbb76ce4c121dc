"""`JunctionTree`: what users hold. Names and labels in, labelled probabilities out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..util import doors
from .compiled import CompiledModel
from .evidence import Cases, Findings, More, read_findings, read_known, read_known_cases
from .frame_options import FrameOptions
from .queries.evidence_analysis import Importance, conflict, evidence_importance
from .queries.information import Observation, entropy, mutual_information, value_of_information
from .queries.joint import conditional, joint, joint_cost
from .queries.map import map_cost, marginal_map
from .queries.mpe import mpe, mpe_batch
from .queries.posteriors import posteriors, posteriors_batch
from .queries.sample import impute, sample
from .queries.sensitivity import sensitivity
from .queries.text import ask
from .results.configurations import CaseExplanations, Explanation, Imputed, Samples
from .results.costs import JointCost, MapCost
from .results.marginals import CasePosteriors, Posterior, Posteriors
from .results.sensitivities import Sensitivity
from .results.tables import Conditional, Joint
from .session import Session

if TYPE_CHECKING:
    from typing import Unpack

    from numpy.typing import ArrayLike, NDArray

__all__ = ["JunctionTree"]


class JunctionTree(CompiledModel):
    """A compiled model, ready for queries; made by ``net.compile()`` or ``plan.compile()``.

    Parameters
    ----------
    plan : NetworkPlan
    backend : str
        ``"reference"``, ``"cpu"``, ``"indexed"``, ``"gpu"``, or ``"auto"``: the GPU where there is one and it
        should be quicker for this plan, else the CPU.
    replan : bool
        Make a plan of its own for a set of observed variables once its queries have cost as much as that takes, on the
        CPU and on one GPU; see `jtgpu.backends.wrappers.pattern_cache`. Answers before and after may differ in the last digits.
    devices : "all", int or sequence of int, optional
        GPUs of this machine, by number, that work together, for ``"gpu"`` (which ``"auto"`` then is) and ``"indexed"``:
        the rows of a table of cases, and slices, are dealt out to them; single cases go to the first. A number that
        stands twice has two workers. Answers have the same bits for any number of devices.
    executor : callable, optional
        Of a plan of slices: makes what answers them; see `jtgpu.backends.wrappers.conditioned`.
    progress : callable, optional
        Called with a line of text whenever something begins that takes seconds: kernels compiled for this machine,
        the CPU and the GPU measured for ``"auto"``.
    **options
        Of the backend: ``threads`` of the CPU; ``dtype="float32"`` of the GPU, with which tables are half as large,
        posteriors right to some 1e-6 and ln P(e) right however small P(e) is (where ``"auto"`` takes the CPU, that
        computes in float64); ``stream``, ``device`` and ``lists`` of the GPU, see `jtgpu.backends.gpu.backend.Gpu`.

    Examples
    --------
    >>> from jtgpu import BayesianNetwork
    >>> net = BayesianNetwork(
    ...     {"rain": ["no", "yes"], "wet": ["no", "yes"]},
    ...     {"wet": ["rain"]},
    ...     {"rain": [0.8, 0.2], "wet": [[0.9, 0.1], [0.2, 0.8]]},
    ... )
    >>> tree = net.compile(backend="reference")
    >>> round(tree.posterior("rain", evidence={"wet": "yes"})["yes"], 6)
    0.666667
    """

    # Queries --------------------------------------------------------------------------------------------------

    def posteriors(
        self,
        evidence: Findings | None = None,
        *,
        likelihood: Findings | None = None,
        soft: Findings | None = None,
        do: Findings | None = None,
        targets: Iterable[str | int] | None = None,
    ) -> Posteriors:
        """Posterior of every variable, or of the targets.

        Parameters
        ----------
        evidence : mapping, optional
            Variable to a state (name or number) or to a set of states of which one holds.
        likelihood : mapping, optional
            Virtual evidence: variable to P(observation | state), an array or a mapping from state to weight.
        soft : mapping, optional
            Soft evidence by Jeffrey's rule: variable to the probabilities that it has once all is taken into account.
        do : mapping, optional
            Interventions: variable to the state that it is set to from outside, or the probabilities with which it
            is set. Nothing is planned or changed for it; the CPTs are given to the backend once a set of variables.
        targets : iterable, optional
            Variables whose posteriors are wanted; default: all.

        Returns
        -------
        Posteriors
            With ``.log_evidence``, natural logarithm of the probability of `evidence` and `likelihood` (under `do`):
            soft evidence is no event and has none.

        Raises
        ------
        ImpossibleEvidence
            When the evidence has probability zero, naming the evidence.
        UnknownVariable, UnknownState, EvidenceError
            See `jtgpu.inference.evidence.read_known`; also for soft evidence that contradicts itself.
        """
        if isinstance(targets, str):
            targets = [targets]
        wanted = None if targets is None else [self._model.index(t) for t in targets]
        if soft or do:
            return posteriors(self, self.settle(evidence, likelihood=likelihood, soft=soft, do=do), wanted)
        result = self._run(read_findings(self._model, evidence, likelihood), wanted)
        return Posteriors(self._model, result.posterior, self._plan.posterior_ptr, result.log_evidence, wanted)

    def posterior(
        self, variable: str | int, evidence: Findings | None = None, **more: Unpack[More]
    ) -> Posterior:
        """Posterior of one variable; see `posteriors`."""
        return self.posteriors(evidence, **more, targets=[variable])[variable]

    def log_evidence(self, evidence: Findings | None = None, **more: Unpack[More]) -> float:
        """ln P(evidence), natural logarithm; see `posteriors`. Impossible evidence is an error, never -inf."""
        return self.posteriors(evidence, **more, targets=()).log_evidence

    def posteriors_batch(
        self,
        cases: Cases,
        *,
        likelihood: Mapping[Any, ArrayLike] | None = None,
        soft: Mapping[Any, Any] | None = None,
        do: Mapping[Any, Any] | None = None,
        targets: Iterable[str | int] | None = None,
        on_impossible: str = "error",
    ) -> CasePosteriors:
        """Posteriors of B cases in one call.

        Parameters
        ----------
        cases : (B, V) array of int, mapping, or data frame
            Number of the observed state of each variable, in the model's order, -1 for what is not observed; or
            variable to B states (names or numbers; -1, None and NaN: not observed) for those that some case observes;
            or a frame, as `predict_proba` reads it.
        likelihood : mapping, optional
            Variable to weights >= 0, (B, card), or (card,) for the same in every case.
        soft : mapping, optional
            Soft evidence: variable to probabilities, (B, card) or (card,); a row of NaN: none in this case.
        do : mapping, optional
            Interventions: variable to a state, to B states, or to probabilities, (B, card) or (card,) of float.
        targets : iterable, optional
            Variables whose posteriors are wanted; default: all.
        on_impossible : str
            ``"error"``, or ``"flag"``: a case of probability zero is marked in ``.impossible``, its ``.log_evidence``
            is -inf and its posteriors are zeros.

        Raises
        ------
        ImpossibleEvidence
            Naming the first case of probability zero and its evidence, unless flagged.
        UnknownVariable, UnknownState, EvidenceError
            See `jtgpu.inference.evidence.read_known_cases`.
        """
        if on_impossible not in ("error", "flag"):
            raise ValueError(f"on_impossible is 'error' or 'flag', not {on_impossible!r}")
        given: Any = cases
        if not isinstance(given, (np.ndarray, Mapping)) and doors.cases().is_frame(given):
            cases = doors.cases().frame_states(self._model, given)
        known = read_known_cases(self._model, cases, likelihood, soft, do)
        if isinstance(targets, str):
            targets = [targets]
        wanted = None if targets is None else list(dict.fromkeys(self._model.index(t) for t in targets))
        return posteriors_batch(self, known, wanted, on_impossible)

    def log_likelihood(self, cases: Cases, **more: Any) -> NDArray[np.float64]:
        """ln P(case) of B cases, missing cells summed out: (B,) float64; -inf for a case of probability zero.

        Takes what `posteriors_batch` takes; the sum is the log-likelihood of a table of independent cases.
        """
        return self.posteriors_batch(cases, **more, targets=(), on_impossible="flag").log_evidence

    def predict_proba(
        self, frame: Any, targets: str | int | Iterable[str | int] | None = None, *,
        evidence_columns: str | Iterable[str] | None = None, **more: Unpack[FrameOptions],
    ) -> Any:  # fmt: skip
        """Posteriors of every row of a data frame, as a frame of the same kind, in the same order.

        Parameters
        ----------
        frame : pandas, Polars or Arrow table, another frame that narwhals knows, or a dataset of Ray
            A column a variable; null, NaN and empty text are "not observed". Cells are states by name, or by number
            where no state is called by a number; `jtgpu.cases.encode` has the rules.
        targets : variables, optional
            Default: those that are no evidence; where all are, all.
        evidence_columns : names, optional
            Default: the columns that are variables, without the targets that are named. Other columns are left
            alone, but one whose name is nearly a variable's is an error.
        keep : names, optional
            Columns of `frame` that go in front of the answer's.
        log_evidence, conflict, mpe : bool
            More columns: ``log_evidence`` is ln P(evidence); ``conflict`` as `conflict` has it; ``mpe:variable`` each
            target's state in the row's most probable explanation, and ``log_mpe``.
        on_error : {"error", "flag"}
            What a row is that names an unknown state or has probability zero: an error, or a row of nulls with the
            reason in the column ``error``.
        do : mapping, optional
            Interventions that hold in every row; see `posteriors`.
        missing : iterable of str
            Texts that mean "not observed" unless they are states; default: `jtgpu.cases.MISSING`.
        cluster : str or jtgpu.cluster.Cluster, optional
            A cluster of Ray whose workers answer: ``"auto"``, ``"local"``, ``"ray://host:10001"``.

        Returns
        -------
        frame
            Columns ``variable=state`` of float64. A pandas frame has the index of `frame`.

        Raises
        ------
        UnknownState, ImpossibleEvidence
            Naming the row and the column.
        UnknownVariable, EvidenceError
            For columns.
        JtgpuError
            Where narwhals or pyarrow are missing: they come with ``jtgpu[frames]``.
        """
        return doors.cases().answer_frame(self, frame, targets=targets, evidence_columns=evidence_columns, **more)

    def predict(
        self, frame: Any, targets: str | int | Iterable[str | int] | None = None, *,
        evidence_columns: str | Iterable[str] | None = None, **more: Unpack[FrameOptions],
    ) -> Any:  # fmt: skip
        """The most probable state of each target in every row of a data frame: a column each, called like it.

        Each target by itself: see `mpe` for the most probable configuration. Parameters as `predict_proba`.
        """
        return doors.cases().answer_frame(self, frame, targets=targets, evidence_columns=evidence_columns, labels=True, **more)

    def session(self, evidence: Findings | None = None, **more: Unpack[More]) -> Session:
        """Queries one after another in which little changes: what they have in common is computed once.

        Parameters
        ----------
        evidence, likelihood, soft, do : mapping, optional
            What is known at the beginning; see `posteriors`.
        """
        return Session(self, evidence, **more)

    # More questions, each in a module of jtgpu.inference.queries --------------------------------------------------------

    def joint(
        self, variables: Iterable[str | int], evidence: Findings | None = None, *, how: str = "auto",
        max_table: int | None = None, **more: Unpack[More],
    ) -> Joint:  # fmt: skip
        """P(variables | evidence) of any set of variables, however far apart; see `jtgpu.inference.queries.joint`.

        Parameters
        ----------
        variables : iterable
            Names or numbers, in the order of the answer's axes.
        evidence, likelihood, soft, do : mapping, optional
            See `posteriors`.
        how : {"auto", "cases", "together"}
            By a table of cases on this tree; by a plan of its own that keeps the variables together, on the CPU in
            NumPy; or what `joint_cost` finds cheaper.
        max_table : int, optional
            Entries that the answer or a table on the way may have; default 100,000,000.

        Raises
        ------
        TableTooLarge
            Before memory is taken.
        """
        return joint(self, variables, self.settle(evidence, **more), how, max_table)

    def joint_cost(
        self, variables: Iterable[str | int], evidence: Findings | None = None, *, how: str = "auto",
        **more: Unpack[More],
    ) -> JointCost:  # fmt: skip
        """What `joint` would do for such a question, and how much of it, without doing it."""
        return joint_cost(self, variables, self.settle(evidence, **more), how)

    def conditional(
        self, variables: str | int | Iterable[str | int], given: Iterable[str | int],
        evidence: Findings | None = None, **more: Unpack[More],
    ) -> Conditional:  # fmt: skip
        """The table P(variables | given, evidence), whatever the arcs between them: axes of `given` first.

        Rows whose configuration of `given` has probability zero are zeros, and False in the answer's ``.possible``.
        """
        return conditional(self, variables, given, self.settle(evidence, **more))

    def conflict(
        self, evidence: Findings, *, likelihood: Findings | None = None, do: Findings | None = None
    ) -> float:
        """How much findings contradict each other: ln(prod P(e_i) / P(e)).

        Positive where they are less probable together than if they were independent (Jensen, Chamberlain, Nordahl,
        Jensen: Analysis in HUGIN of data conflict, UAI 1990).
        """
        return conflict(self, read_known(self._model, evidence, likelihood, None, do))

    def entropy(
        self, variables: str | int | Iterable[str | int], evidence: Findings | None = None, **more: Unpack[More]
    ) -> float:
        """Entropy of a variable's posterior, or of a set's joint one, in nats (``/ math.log(2)``: bits)."""
        return entropy(self, variables, self.settle(evidence, **more))

    def mutual_information(
        self, target: str | int, others: Iterable[str | int] | None = None, evidence: Findings | None = None,
        **more: Unpack[More],
    ) -> dict[str, float]:  # fmt: skip
        """I(target; other | evidence) in nats, by the other's name, largest first; default: every other variable.

        All of them from one table with a case for each state of the target.
        """
        return mutual_information(self, target, others, self.settle(evidence, **more))

    def value_of_information(
        self, target: str | int, candidates: Iterable[str | int] | None = None, evidence: Findings | None = None,
        **more: Unpack[More],
    ) -> list[Observation]:  # fmt: skip
        """What to observe next to learn about a target: for each candidate the expected entropy of the target after
        it is observed, and the expected probability of its most probable state; best first."""
        return value_of_information(self, target, candidates, self.settle(evidence, **more))

    def evidence_importance(
        self, target: str | int, evidence: Findings, *, likelihood: Findings | None = None, do: Findings | None = None
    ) -> list[Importance]:
        """What each finding does to a target's posterior, left out and alone; most important first."""
        return evidence_importance(self, target, read_known(self._model, evidence, likelihood, None, do))

    def mpe(self, evidence: Findings | None = None, *, k: int = 1, **more: Unpack[More]) -> Explanation:
        """The most probable explanation: the configuration of all variables that is most probable given the evidence.

        Parameters
        ----------
        evidence, likelihood, soft, do : mapping, optional
            See `posteriors`.
        k : int
            How many to find, each once, most probable first: ``.ranked`` of the answer. Fewer where fewer are possible.

        Returns
        -------
        Explanation
            The best one: a mapping from variable to state, with ``.log_joint`` and ``.log_posterior``.
        """
        return mpe(self, self.settle(evidence, **more), k)

    def mpe_batch(
        self, cases: Cases, *, likelihood: Mapping[Any, ArrayLike] | None = None, do: Mapping[Any, Any] | None = None,
        on_impossible: str = "error",
    ) -> CaseExplanations:  # fmt: skip
        """Most probable explanations of B cases; the arguments are those of `posteriors_batch`."""
        return mpe_batch(self, read_known_cases(self._model, cases, likelihood, None, do), on_impossible)

    def map(
        self, variables: Iterable[str | int], evidence: Findings | None = None, *, k: int = 1,
        memory_limit: int | float | str | None = None, max_table: int | None = None, **more: Unpack[More],
    ) -> Explanation:  # fmt: skip
        """Marginal MAP: the most probable configuration of some variables, all others summed out; exact.

        Far harder than `mpe` in general: `map_cost` tells what it takes.

        Parameters
        ----------
        variables : iterable
            Names or numbers.
        evidence, likelihood, soft, do : mapping, optional
            See `posteriors`.
        k : int
            How many to find; see `mpe`.
        memory_limit : int or str, optional
            Bytes that it may take; default: 80 % of what is free.
        max_table : int, optional
            Entries that a table on the way may have; default 100,000,000.

        Raises
        ------
        TableTooLarge
            Before memory is taken.
        """
        return marginal_map(self, variables, self.settle(evidence, **more), k, memory_limit, max_table)

    def map_cost(
        self, variables: Iterable[str | int], evidence: Findings | None = None, **more: Unpack[More]
    ) -> MapCost:
        """What `map` takes for such a question, without doing it."""
        return map_cost(self, variables, self.settle(evidence, **more))

    def sample(
        self, n: int, evidence: Findings | None = None, *, seed: Any = None, **more: Unpack[More]
    ) -> Samples:
        """n exact samples of P(all variables | evidence); rare evidence costs nothing extra.

        Parameters
        ----------
        n : int
        evidence, likelihood, soft, do : mapping, optional
            See `posteriors`.
        seed : optional
            As `numpy.random.default_rng` takes it. The same seed gives the same samples, and of a smaller n the first
            of them.

        Returns
        -------
        Samples
            A mapping from variable to the names of its states, (n,); ``.states`` has their numbers, (n, V) int32.
        """
        return sample(self, self.settle(evidence, **more), n, seed)

    def impute(
        self, cases: Cases, *, how: str = "sample", seed: Any = None, likelihood: Mapping[Any, ArrayLike] | None = None,
        do: Mapping[Any, Any] | None = None, on_impossible: str = "error",
    ) -> Imputed:  # fmt: skip
        """B cases with their missing cells filled in, all cells of a case together.

        Parameters
        ----------
        cases, likelihood, do, on_impossible
            See `posteriors_batch`.
        how : {"sample", "mpe"}
            One exact sample given the case's other cells, or the most probable configuration.
        seed : optional
            As `numpy.random.default_rng` takes it.
        """
        return impute(self, read_known_cases(self._model, cases, likelihood, None, do), how, seed, on_impossible)

    def sensitivity(
        self, target: tuple[str | int, str | int], evidence: Findings | None = None, **more: Unpack[More]
    ) -> Sensitivity:
        """How P(target | evidence) depends on every parameter of every CPT.

        Parameters
        ----------
        target : (variable, state)
        evidence, likelihood, soft, do : mapping, optional
            See `posteriors`. Soft evidence stands as the weights that bring it about now.

        Returns
        -------
        Sensitivity
            A mapping from variable to derivatives, of the shape of its CPT; with ``.top(n)`` and ``.tornado(n)``.
        """
        return sensitivity(self, target, self.settle(evidence, **more))

    def ask(self, question: str) -> Any:
        """The answer to a question as people write it: ``"P(lung | xray=yes)"``, ``"MI(lung)"``.

        Returns what the method that answers it returns; see `jtgpu.inference.queries.text` for all there are.
        """
        return ask(self, question)
