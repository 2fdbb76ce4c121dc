"""Sessions and questions as text of trees that answer one case at a time: of numbers, and of decisions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..errors import EvidenceError, ImpossibleEvidence
from ..util.arguments import check_keywords, described, mapping
from ..util.cells import is_missing
from .evidence import one_case, row_findings
from .queries.text import NUMBER, ParsedQuestion, QuestionParser
from .session import KINDS, Session

if TYPE_CHECKING:
    from .evidence import Findings


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

    def __getstate__(self) -> dict[str, Any]:
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
