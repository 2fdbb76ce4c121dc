"""`JunctionTree`: the object that users query. Evidence by name in, labelled probabilities out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import numpy as np

from ..errors import ImpossibleEvidence
from ..util import late_imports
from ..util.arguments import check_keywords, choice, flag
from .compiled import CompiledModel
from .evidence import CaseEvidence, Cases, EvidenceOptions, Findings, read_findings, read_known
from .evidence_table import read_known_cases
from .planning import FrameOptions
from .queries.counts import expected_counts, sensitivity
from .queries.gradients import EvidenceFunction
from .queries.information import (
    Importance,
    Observation,
    conflict,
    entropy,
    evidence_importance,
    mutual_information,
    value_of_information,
)
from .queries.joint import conditional, joint, joint_cost
from .queries.map import map_cost, marginal_map
from .queries.mpe import impute, mpe, mpe_batch, sample
from .queries.posteriors import check_single, posteriors, posteriors_batch, posteriors_on_device, targets_of
from .queries.text import ask
from .results.case_states import CaseExplanations, Imputed, Samples
from .results.explanations import Explanation
from .results.interval_numbers import ends_of
from .results.marginals import CasePosteriors, Posterior, Posteriors
from .results.rankings import ExpectedCounts, JointCost, MapCost, Ranking, Scores
from .results.sensitivities import Sensitivity
from .results.tables import Conditional, DevicePosteriors, Joint
from .session import Session
from .sets import scopes_of, single
from .tables import is_on_device

if TYPE_CHECKING:
    from typing import Unpack

    from numpy.typing import NDArray

    from ..model.discrete import DiscreteModel
    from ..util.late_imports import Server
    from ..util.options import BackendName, Frame, ImputeMethod, InformationUnit, JointMethod, OnProblem, TableLike

F = TypeVar("F", bound="Frame")


@check_keywords({
    "Unpack[EvidenceOptions]": EvidenceOptions.__annotations__, "Unpack[FrameOptions]": FrameOptions.__annotations__,
})  # fmt: skip
class JunctionTree(CompiledModel):
    """A compiled model, ready for queries; created by ``net.compile()`` or ``plan.compile()``.

    Parameters
    ----------
    plan : NetworkPlan
    backend : {"auto", "cpu", "gpu", "reference", "indexed"}
        Where queries run. ``"auto"`` chooses the GPU if there is one and it is estimated to be faster for this plan,
        else the CPU. ``"reference"`` is plain NumPy; ``"indexed"`` is the GPU system of Gottoli and
        Pettenuzzo (2014).
    replan : bool, default True
        Make a specialised plan for a set of observed variables that recurs often enough to repay the planning, on the
        CPU and on a single GPU. This is automatic; pass ``replan=False`` to disable it. Results of the two plans may
        differ in the last digits.
    devices : "all" or sequence of int, optional
        Numbers of the GPUs to use, for the backends ``"gpu"`` and ``"indexed"``; with ``"auto"``, this selects
        ``"gpu"``. The rows of a table of cases, and the slices of a sliced plan, are distributed over them; single
        cases run on the first one. A number that is repeated gets two workers. Results are bit-identical for any number
        of devices.
    executor : callable, optional
        For a sliced plan: creates the executor of its slices, such as `jtgpu.cluster.RaySlices`.
    progress : callable, optional
        Called with a message before steps that take seconds: compiling kernels for this machine, and measuring the CPU
        and the GPU for ``"auto"``.
    **options
        Options of the backend. ``threads``: number of CPU threads. ``dtype="float32"``: single precision on the GPU;
        tables are half as large, posteriors are accurate to about 1e-6, and ln P(e) does not underflow (if ``"auto"``
        chooses the CPU, it computes in float64). ``device``: number of the GPU. ``stream``: a CUDA stream of PyTorch,
        CuPy or PyCUDA; a query starts after the work that is queued on it.

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
        targets: str | int | Iterable[str | int] | None = None,
        joints: Iterable[Sequence[str | int]] | None = None,
    ) -> Posteriors:
        """Compute the posterior of every variable, or of some targets.

        Parameters
        ----------
        evidence : mapping or row of a data frame, optional
            Variable to its state (name or number), or to a set of states one of which holds. None, NaN and NA mean "not
            observed". A row (a pandas Series, or a frame of one row) is read as `predict_proba` reads tables: its
            columns that name no variable are ignored.
        likelihood : mapping, optional
            Virtual evidence: variable to P(observation | state), as an array or a mapping from state to weight. Several
            variables, a tuple: P(observation | states), an array with an axis for each, in the order of the tuple.
        soft : mapping, optional
            Soft evidence (Jeffrey's rule): variable to the posterior that it must have.
        do : mapping, optional
            Interventions: variable to the state that it is set to, or to the probabilities with which it is set.
            Interventions never trigger re-planning; the first one on a set of variables copies modified CPTs to the
            backend.
        targets : str, int, or iterable of these, optional
            Variables whose posteriors are computed. Default: all.
        joints : list of tuples of str or int, optional
            Sets of variables whose joint posteriors are computed, too: ``.joint["lung", "bronc"]`` is a `Joint`. A set,
            here or in `likelihood`, is a part of one that the plan keeps together (``net.compile(together=[...])``),
            or makes another plan, which is cached.

        Returns
        -------
        Posteriors
            A mapping from variable name to `Posterior`. ``.log_evidence`` is ln P(`evidence`, `likelihood`) under `do`;
            soft evidence does not contribute to it.

        Raises
        ------
        ImpossibleEvidence
            If the evidence has probability zero; the message names it.
        UnknownVariable, UnknownState
            If the model has no such name; the message suggests the closest ones.
        EvidenceError
            If the evidence is malformed, or soft evidence contradicts itself.
        """
        wanted = targets_of(self._model, targets)
        scopes = [] if joints is None else scopes_of(self._model, joints, "joints")
        if soft is not None or do is not None or scopes or single(likelihood) is not likelihood:
            tree = self.for_sets(likelihood, scopes)
            known = read_known(self._model, evidence, likelihood, soft, do, tree.plan.sets)
            return posteriors(tree, tree.resolved(known), wanted, known, scopes)
        case = read_findings(self._model, evidence, likelihood)  # the common case, an eighth faster than by `resolved`
        result = self.answer(self._open().run, case, wanted)
        ptr = self._plan.posterior_ptr
        return Posteriors(self._model, result.posterior, ptr, result.log_evidence, wanted, CaseEvidence(case))

    def posterior(
        self, variable: str | int, evidence: Findings | None = None, **more: Unpack[EvidenceOptions]
    ) -> Posterior:
        """Compute the posterior of one variable.

        Parameters
        ----------
        variable : str or int
        evidence, likelihood, soft, do : mapping, optional
            See `posteriors`.
        """
        model = self._model
        check_single(variable)
        if more:
            return self.posteriors(evidence, **more, targets=[variable])[variable]
        v, ptr = model.index(variable), self._plan.posterior_ptr
        result = self.answer(self._open().run, read_findings(model, evidence), [v])
        probabilities = result.posterior[ptr[v] : ptr[v + 1]].copy()  # not a view of the posteriors of all variables
        probabilities.flags.writeable = False
        return Posterior(model.variables[v], model.states(v), probabilities, ends_of(model, model.variables[v]))

    def log_evidence(self, evidence: Findings | None = None, **more: Unpack[EvidenceOptions]) -> float:
        """Compute ln P(evidence).

        Parameters
        ----------
        evidence, likelihood, soft, do : mapping, optional
            See `posteriors`.

        Raises
        ------
        ImpossibleEvidence
            If the evidence has probability zero.
        """
        return self.posteriors(evidence, **more, targets=()).log_evidence

    def posteriors_batch(
        self,
        cases: Cases,
        *,
        likelihood: Mapping[Any, Any] | None = None,
        soft: Mapping[Any, Any] | None = None,
        do: Mapping[Any, Any] | None = None,
        targets: str | int | Iterable[str | int] | None = None,
        joints: Iterable[Sequence[str | int]] | None = None,
        on_impossible: OnProblem = "error",
    ) -> CasePosteriors:
        """Compute posteriors of a table of B cases in one call.

        Parameters
        ----------
        cases : data frame, mapping, list of mappings, or array
            One row for each case, in any of these forms: a data frame of pandas, Polars, Arrow or another library that
            narwhals supports (needs ``jtgpu[frames]``); a mapping from variable to B states; a list of B mappings from
            variable to state; a (B, V) array with one column for each variable, in the order of the model, or a tensor
            of PyTorch, JAX or another library with DLPack, which is not copied if it is contiguous int32. Cells are
            names of states; None, NaN, -1 and texts such as ``""`` and ``"?"`` mean "not observed". Numbers in cells
            are names of states if a state's name is a number, otherwise, and always in arrays, numbers of states from
            0. Columns that are not variables are ignored, but a column whose name is almost that of a variable is an
            error.
        likelihood : mapping, optional
            Variable to weights >= 0: (B, n_states), or for all cases (n_states,) or a mapping from state to weight.
            Several variables, a tuple: an array with an axis for each, or with B of these. The tree has to keep them
            together: ``net.compile(together=[("lung", "bronc")])``.
        soft : mapping, optional
            Soft evidence: variable to probabilities, (B, n_states) or (n_states,); a row of NaN: none in this case.
        do : mapping, optional
            Interventions: variable to a state, to B states, or to probabilities, (B, n_states) or (n_states,) of float.
        targets : str, int, or iterable of these, optional
            Variables whose posteriors are computed. Default: all.
        joints : list of tuples of str or int, optional
            Sets of variables that the tree keeps together, whose joint posteriors are computed, too:
            ``.joint["lung", "bronc"]`` has shape (B, states of lung, states of bronc).
        on_impossible : {"error", "flag"}, default "error"
            Whether a case of probability zero raises an error, or is marked in ``.impossible`` with a ``.log_evidence``
            of -inf and posteriors of zero.

        Returns
        -------
        CasePosteriors
            A mapping from variable name to a (B, n_states) array; ``to_frame()`` makes a data frame.

        Raises
        ------
        ImpossibleEvidence
            If a case has probability zero, unless ``on_impossible="flag"``; the message names the first such case.
        UnknownVariable, UnknownState, EvidenceError
            See `posteriors`.
        """
        choice("on_impossible", on_impossible, ("error", "flag"))
        wanted = targets_of(self._model, targets)
        scopes = [] if joints is None else scopes_of(self._model, joints, "joints")
        device = self.intervened().backend.capabilities.device_number
        if soft is None and do is None and not scopes and is_on_device(cases) and device is not None:
            answer = posteriors_on_device(self, cases, likelihood, wanted).to_host()
            if on_impossible == "error" and answer.impossible.any():
                row = int(np.argmax(answer.impossible))
                raise ImpossibleEvidence(f"row {row}: this case has probability 0")
            return answer
        known = read_known_cases(self._model, cases, likelihood, soft, do, self._plan.sets)
        return posteriors_batch(self, known, wanted, on_impossible, scopes)

    def posteriors_on_device(
        self, cases: Cases, *, likelihood: Mapping[Any, Any] | None = None,
        targets: str | int | Iterable[str | int] | None = None,
        joints: Iterable[Sequence[str | int]] | None = None,
    ) -> DevicePosteriors:  # fmt: skip
        """Compute posteriors of a table of B cases and leave them in the memory of the GPU, for PyTorch, JAX or CuPy.

        Parameters
        ----------
        cases, likelihood, targets, joints
            See `posteriors_batch`. `cases` may also be a tensor on the tree's GPU: (B, V), contiguous, of int8, int16,
            int32 or int64, -1 means "not observed". It is read where it is, after the work of its producer.

        Returns
        -------
        DevicePosteriors
            A mapping from variable name to a (B, n_states) array that ``torch.from_dlpack`` takes without a copy. A
            case of probability zero has zeros, and a ``.log_evidence`` of -inf.

        Raises
        ------
        BackendUnavailable
            If the tree is not on one GPU.
        EvidenceError, UnknownState
            If the tensor is on another device, or has another shape or type, or a number that is no state.
        """
        scopes = [] if joints is None else scopes_of(self._model, joints, "joints")
        return posteriors_on_device(self, cases, likelihood, targets_of(self._model, targets), scopes)

    def log_likelihood(self, cases: Cases, **more: Unpack[EvidenceOptions]) -> NDArray[np.float64]:
        """Compute ln P(case) of a table of B cases; missing cells are summed out.

        The sum of the result is the log-likelihood of a table of independent cases.

        Parameters
        ----------
        cases, likelihood, soft, do
            See `posteriors_batch`.

        Returns
        -------
        (B,) ndarray of float64
            -inf for a case of probability zero.
        """
        return self.posteriors_batch(cases, **more, targets=(), on_impossible="flag").log_evidence

    @overload
    def predict_proba(
        self, frame: F, targets: str | int | Iterable[str | int] | None = None, *,
        evidence_columns: str | Iterable[str] | None = None, **more: Unpack[FrameOptions],
    ) -> F:  ...  # fmt: skip
    @overload
    def predict_proba(
        self, frame: TableLike, targets: str | int | Iterable[str | int] | None = None, *,
        evidence_columns: str | Iterable[str] | None = None, **more: Unpack[FrameOptions],
    ) -> Any:  ...  # fmt: skip
    def predict_proba(
        self, frame: TableLike, targets: str | int | Iterable[str | int] | None = None, *,
        evidence_columns: str | Iterable[str] | None = None, **more: Unpack[FrameOptions],
    ) -> Any:  # fmt: skip
        """Compute posteriors of every row of a table, as a table of the same kind.

        Parameters
        ----------
        frame : data frame, mapping, list of mappings, or array
            The cases; see `posteriors_batch`. Also a Ray dataset.
        targets : variables, optional
            Default: all variables that are not evidence; if all variables are, all of them.
        evidence_columns : names, optional
            Default: all columns that are variables and neither in `targets` nor in `joints`. Other columns are ignored,
            but a column whose name is almost that of a variable raises an error.
        joints : list of tuples of variables, optional
            Sets of variables that the tree keeps together (``net.compile(together=[...])``), whose joint probabilities
            follow those of the targets: columns ``lung,bronc=yes,no``.
        keep : names, optional
            Columns of `frame` to copy to the left of the result.
        log_evidence, conflict, mpe : bool
            Additional columns: ``log_evidence``, ln P(evidence); ``conflict``, see `conflict`; ``mpe:variable``, the
            state of each target in the row's most probable explanation, and ``log_mpe``.
        on_error : {"error", "flag"}
            Whether a row with an unknown state or probability zero raises an error, or gets nulls and the reason in the
            column ``error``.
        do : mapping, optional
            Interventions for all rows; see `posteriors`.
        na_values : str or iterable of str, optional
            Words that mean "not observed" unless they are states. Default: those of ``pandas.read_csv``
            (`jtgpu.cases.NA_VALUES`) in text files, in which empty cells are always missing; no words in other tables.
        cluster : str or jtgpu.cluster.Cluster, optional
            A Ray cluster to compute on: ``"auto"``, ``"local"`` or ``"ray://host:10001"``.
        progress : bool or callable, optional
            True: show the number of cases, their rate and the remaining time in a line on stderr. A callable: called
            with the number of cases answered, again, and the number of all cases.

        Returns
        -------
        data frame
            A frame of the same kind as `frame` with the rows in the same order and float64 columns ``variable=state``.
            The index of a pandas frame is preserved. For a mapping or an array: a mapping of columns; for a list of
            mappings: a list of mappings.

        Raises
        ------
        UnknownState, ImpossibleEvidence
            If a row is invalid; the message has the row and the column.
        UnknownVariable, EvidenceError
            If a column is invalid.
        JtgpuError
            If narwhals or pyarrow is not installed; install ``jtgpu[frames]``.
        """
        answer = late_imports.cases().answer_frame
        return answer(self, frame, targets=targets, evidence_columns=evidence_columns, **more)

    @overload
    def predict(
        self, frame: F, targets: str | int | Iterable[str | int] | None = None, *,
        evidence_columns: str | Iterable[str] | None = None, **more: Unpack[FrameOptions],
    ) -> F:  ...  # fmt: skip
    @overload
    def predict(
        self, frame: TableLike, targets: str | int | Iterable[str | int] | None = None, *,
        evidence_columns: str | Iterable[str] | None = None, **more: Unpack[FrameOptions],
    ) -> Any:  ...  # fmt: skip
    def predict(
        self, frame: TableLike, targets: str | int | Iterable[str | int] | None = None, *,
        evidence_columns: str | Iterable[str] | None = None, **more: Unpack[FrameOptions],
    ) -> Any:  # fmt: skip
        """Predict the most probable state of each target in every row of a table.

        Targets are predicted independently; see `mpe` for the most probable configuration.

        Parameters
        ----------
        frame, targets, evidence_columns, **more
            See `predict_proba`.

        Returns
        -------
        data frame
            One column of state names for each target; a table of the same kind as `frame`, see `predict_proba`.
        """
        return late_imports.cases().answer_frame(
            self, frame, targets=targets, evidence_columns=evidence_columns, labels=True, **more
        )

    def session(self, evidence: Findings | None = None, **more: Unpack[EvidenceOptions]) -> Session:
        """Start a session: a sequence of queries in which the evidence changes step by step.

        A session recomputes only what depends on the changed evidence.

        Parameters
        ----------
        evidence, likelihood, soft, do : mapping, optional
            Initial evidence; see `posteriors`.

        Returns
        -------
        Session
        """
        return Session(self, evidence, **more)

    # Joint distributions, explanations, samples, analysis ---------------------------------------------------------

    def joint(
        self, variables: Iterable[str | int], evidence: Findings | None = None, *, how: JointMethod = "auto",
        max_table: int | None = None, **more: Unpack[EvidenceOptions],
    ) -> Joint:  # fmt: skip
        """Compute the joint posterior P(variables | evidence) of any set of variables.

        Parameters
        ----------
        variables : iterable of str or int
            The variables, in the order of the result's axes.
        evidence, likelihood, soft, do : mapping, optional
            See `posteriors`.
        how : {"auto", "cases", "together"}
            The method. ``"cases"``: one case for each configuration of all but one variable, on this tree.
            ``"together"``: a second plan with the variables in one clique, in NumPy on the CPU. ``"auto"``: the cheaper
            one; see `joint_cost`.
        max_table : int, optional
            Largest number of entries of the result and of intermediate tables. Default: 100,000,000.

        Returns
        -------
        Joint

        Raises
        ------
        TableTooLarge
            If a table is too large; raised before memory is allocated.
        """
        tree = self.for_sets(more.get("likelihood"))
        return joint(tree, variables, tree.resolve(evidence, **more), how, max_table)

    def joint_cost(
        self, variables: Iterable[str | int], evidence: Findings | None = None, *, how: JointMethod = "auto",
        **more: Unpack[EvidenceOptions],
    ) -> JointCost:  # fmt: skip
        """Estimate the cost of `joint` without computing it.

        Parameters
        ----------
        variables, evidence, how, likelihood, soft, do
            See `joint`.
        """
        return joint_cost(self, variables, self.resolve(evidence, **more), how)

    def conditional(
        self, variables: str | int | Iterable[str | int], given: Iterable[str | int],
        evidence: Findings | None = None, **more: Unpack[EvidenceOptions],
    ) -> Conditional:  # fmt: skip
        """Compute the conditional table P(variables | given, evidence).

        Parameters
        ----------
        variables : str, int, or iterable of these
        given : iterable of str or int
            The variables that are conditioned on; they need not be parents. Their axes are the first ones.
        evidence, likelihood, soft, do : mapping, optional
            See `posteriors`.

        Returns
        -------
        Conditional
            The row of a configuration of `given` that has probability zero contains zeros, and ``.possible`` is False
            there.
        """
        return conditional(self, variables, given, self.resolve(evidence, **more))

    def conflict(self, evidence: Findings, *, likelihood: Findings | None = None, do: Findings | None = None) -> float:
        """Compute the conflict measure of the findings: ln(prod P(e_i) / P(e)).

        It is positive if the findings are less probable together than if they were independent (Jensen, Chamberlain,
        Nordahl, Jensen, Analysis in HUGIN of data conflict, UAI 1990).

        Parameters
        ----------
        evidence, likelihood, do : mapping
            See `posteriors`.
        """
        return conflict(self, read_known(self._model, evidence, likelihood, None, do))

    def entropy(
        self,
        variables: str | int | Iterable[str | int],
        evidence: Findings | None = None,
        *,
        unit: InformationUnit = "nats",
        **more: Unpack[EvidenceOptions],
    ) -> float:
        """Compute the entropy of the posterior of a variable, or of the joint posterior of several.

        Parameters
        ----------
        variables : str, int, or iterable of these
        evidence, likelihood, soft, do : mapping, optional
            See `posteriors`.
        unit : {"nats", "bits"}

        Returns
        -------
        float
        """
        return entropy(self, variables, self.resolve(evidence, **more), unit)

    def mutual_information(
        self, target: str | int, others: Iterable[str | int] | None = None, evidence: Findings | None = None, *,
        unit: InformationUnit = "nats", **more: Unpack[EvidenceOptions],
    ) -> Scores:  # fmt: skip
        """Compute I(target; X | evidence) for other variables X.

        The computation is one table of cases, with a case for each state of the target.

        Parameters
        ----------
        target : str or int
        others : iterable, optional
            The variables X. Default: all other variables.
        evidence, likelihood, soft, do : mapping, optional
            See `posteriors`.
        unit : {"nats", "bits"}

        Returns
        -------
        dict of str to float
            Mutual information by variable name, largest first. Its attribute ``unit`` and the printed table name it.
        """
        return mutual_information(self, target, others, self.resolve(evidence, **more), unit)

    def value_of_information(
        self, target: str | int, candidates: Iterable[str | int] | None = None, evidence: Findings | None = None, *,
        unit: InformationUnit = "nats", **more: Unpack[EvidenceOptions],
    ) -> Ranking[Observation]:  # fmt: skip
        """Rank variables by the expected information that observing them gives about a target.

        Parameters
        ----------
        target : str or int
        candidates : iterable, optional
            Variables that could be observed. Default: all that are not observed yet.
        evidence, likelihood, soft, do : mapping, optional
            See `posteriors`.
        unit : {"nats", "bits"}
            Of gains and entropies; ``jtgpu voi`` and the page have bits. The printed table names it.

        Returns
        -------
        list of Observation
            For each candidate, the expected entropy of the target after the observation, and the expected probability
            of the target's most probable state; best first.
        """
        return value_of_information(self, target, candidates, self.resolve(evidence, **more), unit)

    def evidence_importance(
        self, target: str | int, evidence: Findings, *, likelihood: Findings | None = None, do: Findings | None = None
    ) -> Ranking[Importance]:
        """Compute the effect of each finding on the posterior of a target.

        Parameters
        ----------
        target : str or int
        evidence, likelihood, do : mapping
            See `posteriors`.

        Returns
        -------
        list of Importance
            For each finding, the posterior without it and with it alone, and their distances; most important first.
        """
        return evidence_importance(self, target, read_known(self._model, evidence, likelihood, None, do))

    def mpe(self, evidence: Findings | None = None, *, k: int = 1, **more: Unpack[EvidenceOptions]) -> Explanation:
        """Find the most probable explanation: the most probable configuration of all variables given the evidence.

        Parameters
        ----------
        evidence, likelihood, soft, do : mapping, optional
            See `posteriors`.
        k : int, default 1
            Number of distinct configurations to find; some 10 microseconds each.

        Returns
        -------
        Explanation
            The best configuration: a mapping from variable to state with ``.log_joint`` and ``.log_posterior``.
            ``.ranked`` has the k best ones, or fewer if fewer are possible.

        Raises
        ------
        TableTooLarge
            If k configurations would not fit into the free memory, or take more than a minute; raised beforehand.
        """
        tree = self.for_sets(more.get("likelihood"))
        return mpe(tree, tree.resolve(evidence, **more), k)

    def mpe_batch(
        self, cases: Cases, *, likelihood: Mapping[Any, Any] | None = None, do: Mapping[Any, Any] | None = None,
        on_impossible: OnProblem = "error",
    ) -> CaseExplanations:  # fmt: skip
        """Find the most probable explanations of a table of B cases.

        Parameters
        ----------
        cases, likelihood, do, on_impossible
            See `posteriors_batch`.

        Returns
        -------
        CaseExplanations
        """
        known = read_known_cases(self._model, cases, likelihood, None, do, self._plan.sets)
        return mpe_batch(self, known, on_impossible)

    def map(
        self, variables: Iterable[str | int], evidence: Findings | None = None, *, k: int = 1,
        memory_limit: int | float | str | None = None, max_table: int | None = None, **more: Unpack[EvidenceOptions],
    ) -> Explanation:  # fmt: skip
        """Find the most probable configuration of some variables, with all others summed out (marginal MAP).

        The result is exact. In general this is far harder than `mpe`; see `map_cost`.

        Parameters
        ----------
        variables : iterable of str or int
        evidence, likelihood, soft, do : mapping, optional
            See `posteriors`.
        k : int, default 1
            Number of distinct configurations to find; see `mpe`.
        memory_limit : int or str, optional
            Bytes, or a string such as ``"8GiB"``. Default: 80 % of the free memory.
        max_table : int, optional
            Largest number of entries of an intermediate table. Default: 100,000,000.

        Returns
        -------
        Explanation

        Raises
        ------
        TableTooLarge
            If a limit is exceeded; raised before memory is allocated.
        """
        return marginal_map(self, variables, self.resolve(evidence, **more), k, memory_limit, max_table)

    def map_cost(
        self, variables: Iterable[str | int], evidence: Findings | None = None, **more: Unpack[EvidenceOptions]
    ) -> MapCost:
        """Compute the cost of `map` without running it.

        Parameters
        ----------
        variables, evidence, likelihood, soft, do
            See `map`.
        """
        return map_cost(self, variables, self.resolve(evidence, **more))

    def sample(
        self, n: int, evidence: Findings | None = None, *, seed: Any = None, numbers: bool = False,
        **more: Unpack[EvidenceOptions],
    ) -> Samples:  # fmt: skip
        """Draw n exact samples from P(all variables | evidence).

        No sample is rejected or weighted, so the time does not depend on the probability of the evidence.

        Parameters
        ----------
        n : int
        evidence, likelihood, soft, do : mapping, optional
            See `posteriors`.
        seed : optional
            See `numpy.random.default_rng`. The same seed gives the same samples; a smaller n gives the first of them.
        numbers : bool
            Whether variables whose states are intervals have numbers, drawn uniformly inside; see `Posterior.mean` for
            where the outer ones end.

        Returns
        -------
        Samples
            A mapping from variable to the names of its states, (n,); ``.states`` has their numbers, (n, V) int32, and
            ``.to_frame()`` makes a data frame of names.
        """
        tree = self.for_sets(more.get("likelihood"))
        drawn = sample(tree, tree.resolve(evidence, **more), n, seed)
        return drawn.with_numbers(seed) if flag("numbers", numbers) else drawn

    def impute(
        self, cases: Cases, *, how: ImputeMethod = "sample", seed: Any = None, numbers: bool = False,
        likelihood: Mapping[Any, Any] | None = None, do: Mapping[Any, Any] | None = None,
        on_impossible: OnProblem = "error",
    ) -> Imputed:  # fmt: skip
        """Fill in the missing cells of a table of B cases.

        Parameters
        ----------
        cases, likelihood, do, on_impossible
            See `posteriors_batch`.
        how : {"sample", "mpe"}
            Whether to fill in an exact joint sample given the other cells of the case, or the most probable
            configuration.
        seed : optional
            See `numpy.random.default_rng`.
        numbers : bool
            See `sample`; numbers of the cases are kept.

        Returns
        -------
        Imputed
            ``.to_frame()`` has the columns of `cases` with all cells filled in, in a frame of the same kind.
        """
        known = read_known_cases(self._model, cases, likelihood, None, do, self._plan.sets)
        filled = impute(self, known, how, seed, on_impossible)
        return filled.with_numbers(seed) if flag("numbers", numbers) else filled

    def expected_counts(
        self, cases: Cases, *, weights: Any = None, likelihood: Mapping[Any, Any] | None = None,
        variables: str | int | Iterable[str | int] | None = None, on_impossible: OnProblem = "error",
        cluster: Any = None,
    ) -> ExpectedCounts:  # fmt: skip
        """Compute the expected counts of every family over a table of B cases: the E-step of the EM algorithm.

        Parameters
        ----------
        cases, likelihood, on_impossible
            See `posteriors_batch`.
        weights : (B,) array_like or tensor, optional
            Weight of each case, of any sign. Default: ones.
        variables : str, int, or iterable of these, optional
            The variables of the result. Default: all.
        cluster : str or jtgpu.cluster.Cluster, optional
            A Ray cluster that counts parts of the table on its CPUs, such as ``"local"`` or ``"auto"``.

        Returns
        -------
        ExpectedCounts
            A mapping from variable to an array of the shape of its CPT: entry x is the sum over the cases of
            ``weight * P(family = x | case)``. ``.log_likelihood`` is the weighted sum of ``.log_evidence``, (B,). A
            case of probability zero adds nothing.

        Notes
        -----
        Equal cases are computed once. A tree on a GPU, or on several, counts there, in float64; other trees count on
        the CPU. The counts are bit-identical for any number of threads or GPUs.
        """
        known = read_known_cases(self._model, cases, likelihood, sets=self._plan.sets)
        return expected_counts(self, known, weights, variables, on_impossible, cluster)

    def evidence_function(self, cases: Cases, *, on_impossible: OnProblem = "error") -> EvidenceFunction:
        """Return ln P and the posteriors of B cases as functions of CPTs and likelihoods, with their derivatives.

        `jtgpu.interop.torch` and `jtgpu.interop.jax` make differentiable functions of it.

        Parameters
        ----------
        cases, on_impossible
            See `posteriors_batch`. An impossible case that is flagged has derivatives of 0.

        Returns
        -------
        EvidenceFunction
            ``.log_evidence(cpts, likelihood)``, ``.gradient(weights, cpts, likelihood)`` and the same for posteriors.

        Examples
        --------
        >>> import jtgpu
        >>> net = jtgpu.network("rain->wet", "{no|yes}", cpts={"rain": [0.8, 0.2], "wet": [[0.9, 0.1], [0.2, 0.8]]})
        >>> function = net.compile("reference").evidence_function([{"wet": "yes"}])
        >>> function.gradient().cpts["rain"].round(3).tolist()
        [0.417, 3.333]
        """
        return EvidenceFunction(self, cases, on_impossible)

    def with_numbers(self, model: DiscreteModel) -> JunctionTree:
        """Create a tree with the plan, backend and options of this one for a model with other numbers.

        Nothing is planned again. To replace the numbers of this tree itself, use `reload`.

        Parameters
        ----------
        model : DiscreteModel
            With the variables, states and scopes of this tree's model, such as ``net.replace(cpt={...})``.

        Raises
        ------
        PlanError
            If the models differ in more than numbers.
        """
        self._open()
        more = {} if self._devices is None else {"devices": self._devices}
        backend = cast("BackendName", self._name)
        return JunctionTree(self._plan.with_model(model), backend, replan=self._replan, **more, **self._options)

    def sensitivity(
        self, target: tuple[str | int, str | int], evidence: Findings | None = None, **more: Unpack[EvidenceOptions]
    ) -> Sensitivity:
        """Compute the sensitivity of P(target | evidence) to every parameter of every CPT.

        Parameters
        ----------
        target : (variable, state)
        evidence, likelihood, soft, do : mapping, optional
            See `posteriors`. Soft evidence is converted to likelihoods, which are then constant.

        Returns
        -------
        Sensitivity
            A mapping from variable to derivatives in the shape of its CPT; ``.top(n)`` and ``.tornado(n)`` list the
            most influential parameters.
        """
        return sensitivity(self, target, self.resolve(evidence, **more))

    def ask(self, question: str) -> Any:
        """Answer a question given as text, such as ``"P(lung | xray=yes)"`` or ``"MI(lung)"``.

        Returns
        -------
        The result of the corresponding method. The user guide lists all kinds of questions.
        """
        return ask(self, question)

    def serve(self, *, host: str = "127.0.0.1", port: int = 0, **options: Any) -> Server:
        """Serve this network over HTTP, with a page, in a thread; needs ``jtgpu[serve]``.

        Parameters
        ----------
        host : str, default "127.0.0.1"
            The address to listen at. Other machines need a token, which is made if none is given.
        port : int, default 0
            0: a free one.
        **options
            See `jtgpu.serve.serve`.

        Returns
        -------
        jtgpu.serve.Server
            Ready: ``.url`` is the address for a browser, ``.close()`` stops it. The tree stays open.
        """
        server: Server = late_imports.serving().serve(self, host=host, port=port, **options)
        return server

    def _repr_html_(self) -> str:
        return late_imports.html(self)
