"""`Session`: queries with evidence that changes step by step; only what depends on a change is recomputed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..backends.base import Result
from ..errors import EvidenceError, ImpossibleEvidence, JtgpuError
from ..util.arguments import check_keywords, described, mapping
from ..util.cells import is_missing
from ..util.text_table import counted
from .compiled import CompiledModel
from .evidence import CaseEvidence, EvidenceOptions, Findings, one_case, read_known, row_findings
from .interventions import Intervened, fit_case
from .queries.joint import joint
from .queries.posteriors import check_single, targets_of
from .queries.text import NUMBER, ParsedQuestion, QuestionParser
from .results.marginals import Posterior, Posteriors
from .results.tables import Joint

if TYPE_CHECKING:
    from typing import Unpack

    from ..backends.base import Session as BackendSession


@check_keywords({"Unpack[EvidenceOptions]": EvidenceOptions.__annotations__})
class Session:
    """A sequence of queries with changing evidence; created by ``tree.session()``.

    The network and the tree are not changed. A session holds the tables of one propagation and is independent of other
    sessions of the same tree.

    Examples
    --------
    >>> from jtgpu import BayesianNetwork
    >>> net = BayesianNetwork(
    ...     {"rain": ["no", "yes"], "wet": ["no", "yes"]},
    ...     {"wet": ["rain"]},
    ...     {"rain": [0.8, 0.2], "wet": [[0.9, 0.1], [0.2, 0.8]]},
    ... )
    >>> session = net.compile(backend="cpu").session()
    >>> session.observe("wet", "yes")
    >>> round(session.posterior("rain")["yes"], 6)
    0.666667
    >>> session.retract("wet")
    >>> round(session.posterior("rain")["yes"], 6)
    0.2
    >>> session.do("wet", "yes")  # an intervention: it says nothing about rain
    >>> round(session.posterior("rain")["yes"], 6)
    0.2
    """

    def __init__(self, compiled: CompiledModel, evidence: Findings | None = None, **more: Unpack[EvidenceOptions]):
        compiled.intervened()  # raises if it is closed
        self._compiled, self._model = compiled, compiled.model
        self._known: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
        # by the variables with an intervention: that of none, and the last other one; None: closed
        self._sessions: dict[tuple[int, ...], tuple[BackendSession, Intervened]] | None = {}
        self._generation = compiled.generation
        self.set(evidence, **more)

    # Evidence ---------------------------------------------------------------------------------------------------

    @property
    def evidence(self) -> dict[str, Any]:
        """The current observations, by name; a copy."""
        return dict(self._known["evidence"])

    @property
    def likelihood(self) -> dict[str, Any]:
        """The current likelihoods, by name; a copy."""
        return dict(self._known["likelihood"])

    @property
    def known(self) -> dict[str, Any]:
        """All current evidence as keyword arguments of a query: ``tree.mpe(**session.known)``; a copy."""
        return {kind: dict(given) for kind, given in self._known.items()}

    def set(self, evidence: Findings | None = None, **more: Unpack[EvidenceOptions]) -> None:
        """Replace all evidence.

        Parameters
        ----------
        evidence, likelihood, soft, do : mapping, optional
            See `jtgpu.JunctionTree.posteriors`.

        Raises
        ------
        UnknownVariable, UnknownState, EvidenceError
            If the evidence is invalid; the session is then unchanged.
        """
        model = self._model
        given: dict[str, Any] = {"evidence": one_case(model, evidence), **more}
        read = self._read_known({kind: {} if (g := given.get(kind)) is None else g for kind in KINDS})
        self._known = {kind: {self._name(v): s for v, s in (given.get(kind) or {}).items()} for kind in KINDS}
        self._read = read

    def observe(self, variable: str | int, state: object) -> None:
        """Add or change an observation: a state, or a set of states one of which holds."""
        self._change("evidence", variable, state)

    def weigh(self, variable: str | int, weights: object) -> None:
        """Add or change virtual evidence: P(observation | state) for each state."""
        self._change("likelihood", variable, weights)

    def believe(self, variable: str | int, probabilities: object) -> None:
        """Add or change soft evidence (Jeffrey's rule): the posterior that the variable must have."""
        self._change("soft", variable, probabilities)

    def do(self, variable: str | int, state: Any) -> None:
        """Add or change an intervention: the state that the variable is set to, or probabilities of its states."""
        self._change("do", variable, state)

    def _change(self, kind: str, variable: str | int, value: object) -> None:
        if kind == "evidence" and is_missing(value):
            raise EvidenceError(f"{variable!r} cannot be observed as {value!r}; retract() removes evidence")
        changed = self.known
        changed[kind][self._name(variable)] = value
        self._read = self._read_known(changed)
        self._known = changed

    def retract(self, variable: str | int) -> None:
        """Remove all evidence on a variable.

        Raises
        ------
        EvidenceError
            If the variable has no evidence.
        """
        name = self._name(variable)
        if not any(name in given for given in self._known.values()):
            raise EvidenceError(f"{name!r} has no evidence to retract")
        for given in self._known.values():
            given.pop(name, None)
        self._read = self._read_known(self._known)

    def _read_known(self, known: dict[str, dict[str, Any]]) -> CaseEvidence:
        return read_known(self._model, known["evidence"], known["likelihood"], known["soft"], known["do"])

    def clear(self) -> None:
        """Remove all evidence."""
        self.set()

    def _name(self, variable: str | int) -> str:
        return self._model.variables[self._model.index(variable)]

    # Queries ----------------------------------------------------------------------------------------------------

    def posteriors(self, *, targets: str | int | Iterable[str | int] | None = None) -> Posteriors:
        """Compute the posterior of every variable, or of the targets; see `jtgpu.JunctionTree.posteriors`."""
        model = self._compiled.model
        wanted = targets_of(model, targets)
        result = self._run(wanted)
        ptr = self._compiled.plan.posterior_ptr
        return Posteriors(model, result.posterior, ptr, result.log_evidence, wanted, self._read)

    def posterior(self, variable: str | int) -> Posterior:
        """Compute the posterior of one variable."""
        check_single(variable)
        return self.posteriors(targets=[variable])[variable]

    def log_evidence(self) -> float:
        """Compute ln P(evidence).

        Raises
        ------
        ImpossibleEvidence
            If the evidence has probability zero.
        """
        return self._run([]).log_evidence

    def joint(self, variables: Iterable[str | int]) -> Joint:
        """Compute P(variables | evidence); see `jtgpu.JunctionTree.joint`. Later queries do not reuse its work."""
        return joint(self._compiled, variables, **self.known)

    def _run(self, targets: list[int] | None) -> Result:
        compiled = self._compiled
        known = self._read
        run = self._session(known.intervened).run
        if not known.soft:
            return compiled.answer(run, known.case, targets)
        ptr = compiled.plan.posterior_ptr
        case, log_evidence = fit_case(
            compiled.model, lambda e, wanted: compiled.answer(run, e, wanted), ptr, known.case, known.soft
        )
        return Result(compiled.answer(run, case, targets).posterior, log_evidence)

    def _session(self, intervened: tuple[int, ...]) -> BackendSession:
        """The backend's session without the arcs into some variables."""
        if self._sessions is None:
            raise JtgpuError("this session is closed")
        if self._generation != self._compiled.generation:  # the model has new numbers
            self._close_sessions()
            self._generation = self._compiled.generation
        if intervened not in self._sessions:
            held = self._compiled.intervened(intervened)
            for other in [v for v in self._sessions if v and intervened]:
                self._sessions.pop(other)[0].close()
            self._sessions[intervened] = held.backend.session(), held
        return self._sessions[intervened][0]

    def _close_sessions(self) -> None:
        while self._sessions:
            self._sessions.popitem()[1][0].close()

    def close(self) -> None:
        """Free the memory of the session. The tree stays open."""
        self._close_sessions()
        self._sessions = None

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, object]:
        """The tree and the evidence: another process computes its own tables."""
        if self._sessions is None:
            raise JtgpuError("this session is closed")
        return {"compiled": self._compiled, "known": self.known}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Session.__init__(self, state["compiled"], **state["known"])

    def __repr__(self) -> str:
        n = sum(map(len, self._known.values()))
        return f"Session({self._model.name!r}, {counted(n, 'finding')})"


KINDS = ("evidence", "likelihood", "soft", "do")


# Sessions and questions as text of trees that answer one case at a time: of numbers, and of decisions.

@check_keywords()
class CaseSession(Session):
    """A sequence of queries with changing evidence; created by ``tree.session()`` of numbers and of decisions.

    Each query is one of the tree, which keeps what it compiled. See `Session`.
    """

    def __init__(self, tree: Any, kinds: tuple[str, ...], evidence: Findings | None = None, **more: Any):
        # kinds: of evidence that the queries of the tree take
        self._tree, self._model, self._kinds, self._is_closed = tree, tree.network, kinds, False
        self.set(evidence, **more)

    def set(self, evidence: Findings | None = None, **more: object) -> None:
        """Replace all evidence; see `Session.set`."""
        if evidence is not None and not isinstance(evidence, Mapping):
            numbers = hasattr(self._model, "is_number")
            evidence = row_findings(self._model, evidence) if numbers else one_case(self._model, evidence)
        known: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
        for kind, given in {"evidence": evidence, **more}.items():
            known[kind] = {self._name(v): x for v, x in mapping(kind, given).items() if not is_missing(x)}
        self._read_known(known)
        self._known = known

    def _read_known(self, known: dict[str, dict[str, Any]]) -> Any:
        for kind, given in known.items():
            if given and kind not in self._kinds:
                raise EvidenceError(f"a session of {self._tree!r} takes no {kind}=; it takes {', '.join(self._kinds)}")
        with suppress(ImpossibleEvidence):  # an error of each query, as in other sessions
            self._tree.log_evidence(**{kind: given for kind, given in known.items() if given})

    def _asked(self, method: str, *arguments: object, **more: object) -> Any:
        if self._is_closed:
            raise EvidenceError("this session is closed")
        known = {kind: dict(given) for kind, given in self._known.items() if given}
        return getattr(self._tree, method)(*arguments, **known, **more)

    def posteriors(self, *, targets: str | int | Iterable[str | int] | None = None) -> Any:
        """Compute the posterior of every variable, or of the targets."""
        return self._asked("posteriors", targets=targets)

    def posterior(self, variable: str | int) -> Any:
        """Compute the posterior of one variable."""
        return self._asked("posterior", variable)

    def log_evidence(self) -> float:
        """Compute ln P(evidence); where numbers are observed, the log of a density."""
        return float(self._asked("log_evidence"))

    def joint(self, variables: Iterable[str | int]) -> Any:
        """Compute the joint posterior of some variables, of a tree that has it."""
        return self._asked("joint", variables)

    def close(self) -> None:
        """End the session. The tree stays open."""
        self._is_closed = True

    def __getstate__(self) -> dict[str, object]:
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class CaseParser(QuestionParser):
    """The parser of questions whose evidence may be a number."""

    def __init__(self, net: Any, text: str):
        numbers = hasattr(net, "is_number")
        super().__init__(net.graph.with_codes(net.discrete.state_codes) if numbers else net, text)
        self.is_number: Callable[[str], bool] = net.is_number if numbers else lambda _: False

    def state(self, name: str, ends: str) -> Any:
        if not self.is_number(name):
            return super().state(name, ends)
        self.skip()
        number = self.match(NUMBER)
        if not number:
            self.fail(f"{name!r} is a number: expected a value such as {name}=1.5")
        return float(number[0])

    def read(self, q: ParsedQuestion) -> None:
        """Nothing: the query reads its evidence."""


def ask_case(tree: Any, question: str | ParsedQuestion) -> Any:
    """Answer a question given as text; the result is that of the corresponding method of the tree."""
    if not isinstance(question, (str, ParsedQuestion)):
        raise EvidenceError(f"question must be a text such as 'P(lung | xray=yes)', not {described(question)}")
    q = CaseParser(tree.network, question).question() if isinstance(question, str) else question
    if q.kind in ("P", "lnP") and q.event:
        return _event(tree, q)
    if q.kind == "P" and not q.given:
        return tree.joint(q.targets, **q.known) if len(q.targets) > 1 else tree.posterior(q.targets[0], **q.known)
    methods = {
        "P": "conditional", "H": "entropy", "MI": "mutual_information", "VOI": "value_of_information",
        "IMPORTANCE": "evidence_importance", "CONFLICT": "conflict", "MPE": "mpe", "MAP": "map",
        "EFFECT": "effect", "ADJUST": "effect",
    }  # fmt: skip
    method = getattr(tree, methods[q.kind])  # the error says what to use in its place
    if q.kind == "MPE":
        return method(k=q.k, **q.known)
    arguments: tuple[Any, ...] = (q.targets,) if q.kind in ("H", "MAP", "P") else (q.targets[0],)
    arguments += {"H": (), "MAP": (), "P": (q.given,)}.get(q.kind, (q.others,))
    return method(*arguments, **q.known)


def _event(tree: Any, q: ParsedQuestion) -> float:
    """P(event | evidence), or its logarithm."""
    net, before, given = tree.network, tree.log_evidence(**q.known), q.known.get("evidence", {})
    tree, known = tree._with_chance(**q.known) if hasattr(tree, "_with_chance") else (tree, dict(q.known))
    evidence = dict(known.pop("evidence", {}))
    for name, states in q.event.items():
        if getattr(net, "is_number", lambda _: False)(name):
            raise EvidenceError(f"{name!r} is a number, whose single values have probability 0: ask P({name} | ...)")
        if name in given:
            raise EvidenceError(f"{name!r} is in the event and in the evidence of {q.text!r}")
        evidence[name] = [net.states(name)[s] for s in states] if isinstance(states, frozenset) else states
    try:
        log_p = min(0.0, tree.log_evidence(evidence, **known) - before)
    except ImpossibleEvidence:
        log_p = -math.inf
    return log_p if q.kind == "lnP" else math.exp(log_p)
