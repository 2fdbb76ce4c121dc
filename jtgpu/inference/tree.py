"""`JunctionTree`: the object that users query. Evidence by name in, labelled probabilities out."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..util.arguments import check_keywords
from .compiled import CompiledModel
from .compiled_network import Served
from .evidence import CaseEvidence, Cases, EvidenceOptions, Findings, read_findings, read_known
from .interventions import ResolvedEvidence
from .planning import FrameOptions
from .queries import contributions as explained
from .queries import counts, effects, findings, frames, information
from .queries import joint as joints
from .queries import map as maximal
from .queries import mpe as explanations
from .queries import posteriors as tables
from .queries.gradients import EvidenceFunction
from .queries.text import ask
from .results.interval_numbers import ends_of
from .results.marginals import Posterior, Posteriors
from .session import Session
from .sets import scopes_of, single

if TYPE_CHECKING:
    from typing import Unpack

    from numpy.typing import NDArray

    from ..model.discrete import DiscreteModel
    from ..model.states import CodesByVariable
    from ..util.options import BackendName, OnProblem


@check_keywords({
    "Unpack[EvidenceOptions]": EvidenceOptions.__annotations__, "Unpack[FrameOptions]": FrameOptions.__annotations__,
})  # fmt: skip
class JunctionTree(CompiledModel, Served):
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
        Options of the backend. ``threads``: number of CPU threads. ``dtype="float32"``: single precision for tables of
        cases on the GPU; it takes half of the memory, posteriors are accurate to about 1e-6, and ln P(e) does not
        underflow (single cases are computed in float64, and everything is if ``"auto"`` chooses the CPU).
        ``device``: number of the GPU. ``stream``: a CUDA stream of PyTorch, CuPy or PyCUDA; a query starts after the
        work that is queued on it.

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

    # Methods that are written where their topic is: posteriors of tables, explanations, samples, analysis ----------

    reload = CompiledModel.reload
    posteriors_batch = tables.posteriors_batch
    posteriors_on_device = tables.posteriors_on_device
    predict_proba = frames.predict_proba
    predict = frames.predict
    joint = joints.joint
    joint_cost = joints.joint_cost
    question_cost = tables.question_cost
    conditional = joints.conditional
    conflict = findings.conflict
    entropy = information.entropy
    mutual_information = information.mutual_information
    value_of_information = information.value_of_information
    evidence_importance = findings.evidence_importance
    contributions = explained.contributions
    contributions_batch = explained.contributions_batch
    effect = effects.effect
    probability_of_causation = effects.probability_of_causation
    counterfactual = effects.counterfactual
    counterfactual_batch = effects.counterfactual_batch
    mpe = explanations.mpe
    mpe_batch = explanations.mpe_batch
    map = maximal.map
    map_cost = maximal.map_cost
    sample = explanations.sample
    impute = explanations.impute
    expected_counts = counts.expected_counts
    sensitivity = counts.sensitivity

    # Queries of one case ----------------------------------------------------------------------------------------

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
        model = self._model  # once: classes with hints look their attributes up slowly
        wanted = tables.targets_of(model, targets)
        scopes = [] if joints is None else scopes_of(model, joints, "joints")
        if soft is not None or do is not None or scopes or single(likelihood) is not likelihood:
            tree = self.for_sets(likelihood, scopes)
            known = read_known(model, evidence, likelihood, soft, do, tree.plan.sets)
            return tables.posteriors(tree, tree.resolved(known), wanted, known, scopes)
        case = read_findings(model, evidence, likelihood)  # the common case, an eighth faster than by `resolved`
        result = self.answer(self._open().run_case, case, wanted)
        ptr = self._plan.posterior_ptr
        return Posteriors(model, result.posterior, ptr, result.log_evidence, wanted, CaseEvidence(case))

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
        tables.check_single(variable)
        if more:
            return self.posteriors(evidence, **more, targets=[variable])[variable]
        v, ptr = model.index(variable), self._plan.posterior_ptr
        result = self.answer(self._open().run_case, read_findings(model, evidence), [v])
        probabilities = result.posterior[ptr[v] : ptr[v + 1]].copy()  # not a view of the posteriors of all variables
        probabilities.flags.writeable = False
        _, names, states, ends = model.labels
        return Posterior(names[v], states[v], probabilities, ends_of(model, names[v]) if ends else None)

    def resolve(self, evidence: Findings | None = None, **more: Unpack[EvidenceOptions]) -> ResolvedEvidence:
        """Evidence of all kinds as one case that a backend answers."""
        known = read_known(self._model, evidence, **more, sets=self._plan.sets)
        resolved = self.resolved(known)
        resolved.intervened.origin = weakref.WeakMethod(self.intervened), known.intervened
        return resolved

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

    def log_likelihood(
        self, cases: Cases, *, codes: CodesByVariable | None = None, **more: Unpack[EvidenceOptions]
    ) -> NDArray[np.float64]:
        """Compute ln P(case) of a table of B cases; missing cells are summed out.

        The sum of the result is the log-likelihood of a table of independent cases.

        Parameters
        ----------
        cases, likelihood, soft, do, codes
            See `posteriors_batch`.

        Returns
        -------
        (B,) ndarray of float64
            -inf for a case of probability zero.
        """
        return self.posteriors_batch(cases, **more, targets=(), on_error="flag", codes=codes).log_evidence

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

    # More -------------------------------------------------------------------------------------------------------

    def evidence_function(
        self, cases: Cases, *, on_error: OnProblem = "error", codes: CodesByVariable | None = None
    ) -> EvidenceFunction:
        """Return ln P and the posteriors of B cases as functions of CPTs and likelihoods, with their derivatives.

        `jtgpu.interop.torch` and `jtgpu.interop.jax` make differentiable functions of it.

        Parameters
        ----------
        cases, on_error, codes
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
        return EvidenceFunction(self, cases, on_error, codes)

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

    def ask(self, question: str) -> Any:
        """Answer a question given as text, such as ``"P(lung | xray=yes)"`` or ``"MI(lung)"``.

        Returns
        -------
        The result of the corresponding method. The user guide lists all kinds of questions.
        """
        return ask(self, question)
