"""`DecisionNetwork`: variables that chance draws, variables that somebody decides, and utilities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np

from ..errors import ArgumentError, NetworkError, UnknownVariable, closest, shown
from ..util import late_imports
from ..util.arguments import check_keywords, choice, mapping
from ..util.text_table import counted
from .cpt import Axis, Cpt, checked_cpt, with_labels
from .cpts import DescribedModel
from .editing import UTILITY, Editable, NetworkParts
from .network import BayesianNetwork
from .network_text import summary

if TYPE_CHECKING:
    from typing import Self

    from numpy.typing import ArrayLike, NDArray

    from ..util.late_imports import DecisionTree
    from .cpt import CptLike
    from .cpts import RowReport

MAX_UTILITY = 1e150  # squares of totals are finite


@check_keywords()
class DecisionNetwork(Editable, DescribedModel):
    """A limited-memory influence diagram: a network with decisions and utilities; immutable, checked on construction.

    Parameters
    ----------
    states : mapping of str to sequences of str
        Chance variables and decisions in order, with the names of their states: a decision's states are its options.
    parents : mapping of str to sequences of str
        Parents of each variable and utility, in the order of its axes. The parents of a decision are what is known when
        deciding. Variables that are left out have no parents.
    cpts : mapping of str to array_like or mapping
        A CPT for each chance variable, as for `BayesianNetwork`; decisions have none.
    decisions : sequence of str
        The variables that are decided. Their order is that of `states`.
    utilities : mapping of str to array_like
        Tables of finite numbers; axes: the parents of the utility, in order.
    combine : {"sum", "product"}
        How several utilities make the total.
    name : str, optional
    attributes : mapping, optional
        Further contents of a file, as for `BayesianNetwork`; keys of ``node`` and ``potential`` include utilities.
    row_report : RowReport, optional
        Rows that the reader of a file normalised.

    Raises
    ------
    NetworkError
        As `BayesianNetwork`; if a decision is unknown or has a CPT, a utility has a child, the name of a variable, a
        table of other axes, or a number that is NaN or infinite.

    Notes
    -----
    S. L. Lauritzen and D. Nilsson, "Representing and solving decision problems with limited information", Management
    Science 47 (2001) 1235.

    Examples
    --------
    >>> from jtgpu import DecisionNetwork
    >>> net = DecisionNetwork(
    ...     {"ill": ["yes", "no"], "test": ["positive", "negative"], "treat": ["yes", "no"]},
    ...     {"test": ["ill"], "treat": ["test"], "health": ["ill", "treat"]},
    ...     {"ill": [0.1, 0.9], "test": [[0.9, 0.1], [0.2, 0.8]]},
    ...     decisions=["treat"],
    ...     utilities={"health": [[80, 20], [90, 100]]},
    ... )
    >>> net.decisions, net.utilities, net.parents("health")
    (('treat',), ('health',), ('ill', 'treat'))
    """

    def __init__(  # noqa: PLR0913 (public API)
        self,
        states: Mapping[str, Sequence[str]],
        parents: Mapping[str, Sequence[str]],
        cpts: Mapping[str, CptLike],
        *,
        decisions: Sequence[str] = (),
        utilities: Mapping[str, ArrayLike] | None = None,
        combine: str = "sum",
        name: str = "",
        attributes: Mapping[str, Mapping[str, object]] | None = None,
        row_report: RowReport | None = None,
    ):
        utilities = dict(mapping("utilities", utilities))
        _check_names(states, parents, decisions, utilities)
        among_variables = {v: p for v, p in parents.items() if v not in utilities}
        super().__init__(states, among_variables, name=name, attributes=attributes, row_report=row_report)
        if combine not in ("sum", "product"):
            raise ArgumentError(f"combine must be 'sum' or 'product', not {shown(combine)}")
        self.combine = combine
        decided = set(decisions)
        self._decisions = tuple(v for v in self._variables if v in decided)
        for v in cpts:
            if v in decided:
                raise NetworkError(f"the decision {v!r} has a CPT; what is decided has no probabilities")
            if v not in self._index:
                raise NetworkError(f"a CPT given for {v!r}, which is not declared{closest(str(v), self._index)}")
        self._cpts: dict[str, NDArray[np.float64]] = {}
        for i, v in enumerate(self._variables):
            if v not in cpts and v not in decided:
                raise NetworkError(f"variable {v!r} has no CPT, and is not among the decisions")
            if v not in decided:
                self._cpts[v] = checked_cpt(self, (*self._parents[i], i), cpts[v])
        self._utility_parents = {u: self._checked_parents(u, parents.get(u, ())) for u in utilities}
        self._utility_tables = {u: self._checked_utility(u, table) for u, table in utilities.items()}

    def _checked_utility(self, name: str, given: ArrayLike) -> NDArray[np.float64]:
        try:
            table = np.array(with_labels(self, self._utility_parents[name], given, f"utility {name!r}"), np.float64)
        except (TypeError, ValueError) as error:
            raise NetworkError(f"utility {name!r}: its table must be an array of numbers ({error})") from None
        shape = tuple(int(self._cardinality[p]) for p in self._utility_parents[name])
        if table.shape != shape:
            axes = ", ".join(self._named(self._utility_parents[name]))
            raise NetworkError(
                f"utility {name!r}: its table has shape {table.shape}, expected {shape} for the axes ({axes})"
            )
        bad = table[~(np.abs(table) <= MAX_UTILITY)]
        if bad.size:
            raise NetworkError(f"utility {name!r} has the number {bad[0]}, expected one within {MAX_UTILITY:g}")
        table.flags.writeable = False
        return table

    # Attributes -----------------------------------------------------------------------------------------------

    @property
    def decisions(self) -> tuple[str, ...]:
        """Names of the decisions, in the order of the variables."""
        return self._decisions

    @property
    def utilities(self) -> tuple[str, ...]:
        """Names of the utilities, in order."""
        return tuple(self._utility_tables)

    def parents(self, variable: str | int) -> tuple[str, ...]:
        """Names of the parents of a variable or utility, in the order of its axes; of a decision: what is known."""
        if variable in self._utility_parents:
            return self._named(self._utility_parents[str(variable)])
        return super().parents(variable)

    def cpt(self, variable: str | int) -> Cpt:
        """P(variable | parents) of a chance variable: float64, read-only; axes: parents in order, then the variable.

        Raises
        ------
        UnknownVariable
            If it is no variable of the network, or a decision.
        """
        i = self.index(variable)
        name = self._variables[i]
        if name not in self._cpts:
            raise UnknownVariable(f"{name!r} is a decision, which has no CPT")
        return Cpt.of(self._cpts[name], [Axis(self._variables[v], self._states[v]) for v in (*self._parents[i], i)])

    def utility(self, name: str) -> NDArray[np.float64]:
        """The table of a utility: float64, read-only; axes: its parents in order.

        Raises
        ------
        UnknownVariable
            If the network has no such utility.
        """
        if name not in self._utility_tables:
            raise UnknownVariable(f"there is no utility {shown(name)}{closest(str(name), self._utility_tables)}")
        return self._utility_tables[name]

    # Editing --------------------------------------------------------------------------------------------------

    def add_decision(self, decision: str, options: Sequence[str], parents: Sequence[str] = ()) -> Self:
        """Return this network with one more decision, the last variable.

        Parameters
        ----------
        decision : str
            Its name.
        options : sequence of str
            What can be decided.
        parents : sequence of str
            What is known when deciding.

        Raises
        ------
        NetworkError
            If there is a node of this name, or the parents are wrong.

        Examples
        --------
        >>> import jtgpu
        >>> net = jtgpu.DecisionNetwork({"rain": ["no", "yes"]}, {}, {"rain": [0.7, 0.3]})
        >>> net = net.add_decision("umbrella", ["leave", "take"])
        >>> net = net.add_utility("comfort", ["rain", "umbrella"], [[10, 8], [0, 7]])
        >>> round(net.compile("reference").policy().expected_utility, 6)
        7.7
        """
        parts = self._with_node(decision, options, parents, ())
        del parts.tables[decision]
        parts.decisions.append(decision)
        return self._changed(parts)

    def add_utility(self, utility: str, parents: Sequence[str] = (), table: ArrayLike | None = None) -> Self:
        """Return this network with one more utility; `replace` changes its table, as ``cpt=``.

        Parameters
        ----------
        utility : str
            Its name.
        parents : sequence of str
            Variables and decisions, in the order of the axes of its table.
        table : array_like, optional
            Finite numbers. Default: zeros.

        Raises
        ------
        NetworkError
            If there is a node of this name, or the parents or the table are wrong.
        """
        return self._changed(self._with_node(utility, UTILITY, parents, table))

    def _parts(self) -> NetworkParts:
        parts = NetworkParts(self)
        parts.states |= dict.fromkeys(self.utilities, UTILITY)
        parts.parents |= {u: [(p, 0) for p in self.parents(u)] for u in self.utilities}
        parts.tables, parts.decisions = {**self._cpts, **self._utility_tables}, [*self._decisions]
        return parts

    def _made(self, parts: NetworkParts, name: str) -> DecisionNetwork:
        utilities = [u for u, states in parts.states.items() if states is UTILITY]
        return DecisionNetwork(
            {v: states for v, states in parts.states.items() if states is not UTILITY}, parts.own_parents(),
            {v: table for v, table in parts.tables.items() if v not in utilities}, decisions=parts.decisions,
            utilities={u: parts.tables[u] for u in utilities}, combine=self.combine, name=name,
            attributes=parts.attributes, row_report=self._row_report,
        )  # fmt: skip

    def _at(self, p: str, t: int) -> tuple[BayesianNetwork, str]:
        return self.with_policy({}), p

    # Comparison and text --------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        """Whether names, states, parents and tables are equal, bit for bit. Attributes are not compared."""
        if not isinstance(other, DecisionNetwork):
            return NotImplemented
        return self.has_structure_of(other) and all(
            np.array_equal(table, given[name])
            for tables, given in ((self._cpts, other._cpts), (self._utility_tables, other._utility_tables))
            for name, table in tables.items()
        )

    def has_structure_of(self, other: object) -> bool:
        """Whether a network has the same variables, states, decisions, utilities and arcs."""
        if not isinstance(other, DecisionNetwork):
            return False
        mine, theirs = (
            (net._variables, net._states, net._parents, net._decisions, net.combine, list(net._utility_parents.items()))
            for net in (self, other)
        )
        return mine == theirs

    def __hash__(self) -> int:
        return hash((self._variables, self._states, self._parents, self._decisions, self.utilities))

    def __repr__(self) -> str:
        parts = f"{counted(len(self), 'variable')}, {counted(len(self._decisions), 'decision')}"
        n = len(self._utility_tables)
        return f"DecisionNetwork({self._name!r}, {parts}, {n} {'utility' if n == 1 else 'utilities'})"

    def __str__(self) -> str:
        """Variables and decisions with their states and parents, as an aligned table, and the utilities."""
        sizes = counted(len(self._cpts), "chance variable"), counted(len(self._decisions), "decision")
        names = [f"{v} (decision)" if v in self._decisions else v for v in self._variables]
        above = [self.parents(v) for v in self._variables]
        lines = [summary("Decision network", self._name, sizes, names, self._states, above)]
        lines += [f"utility {u}: {', '.join(self.parents(u)) or 'constant'}" for u in self.utilities]
        return "\n".join(lines)

    # Solving --------------------------------------------------------------------------------------------------

    def plan(self, *_: object, **__: Any) -> NoReturn:
        """Decisions have no probabilities: a network with a policy has a plan."""
        named = ", ".join(map(repr, self._decisions[:5])) or "none"
        raise NetworkError(
            f"a network with decisions ({named}) has no plan of its own: net.compile() finds "
            "policies (jtgpu decide), net.with_policy(policy) is a Bayesian network, and "
            'jtgpu.read(path, decisions="chance") makes uniform chance variables of decisions'
        )

    def compile(  # type: ignore[override]
        self, backend: Literal["auto", "cpu", "reference"] = "auto", **options: Any
    ) -> DecisionTree:
        """Compile for policies and queries under them.

        Parameters
        ----------
        backend : {"auto", "cpu", "reference"}
            Where propagations run.
        **options
            Options of plans; see `BayesianNetwork.plan`.

        Returns
        -------
        jtgpu.decisions.DecisionTree
        """
        name = choice("backend", backend, ("auto", "cpu", "reference"))
        made: DecisionTree = late_imports.decisions().DecisionTree(self, "cpu" if name == "auto" else name, **options)
        return made

    def with_policy(self, policy: Mapping[str, ArrayLike]) -> BayesianNetwork:
        """Return the Bayesian network in which decisions are chance variables that follow a policy.

        Parameters
        ----------
        policy : jtgpu.decisions.Policy or mapping
            Decision to a table over its parents and itself, whose rows sum to 1; decisions that it lacks are uniform.
        """
        cpts: dict[str, Any] = dict(self._cpts)
        if not isinstance(policy, Mapping):
            raise ArgumentError(f"policy must be a Policy or a mapping from decisions to tables, not {shown(policy)}")
        for d in self._decisions:
            shape = tuple(len(self.states(v)) for v in (*self.parents(d), d))
            cpts[d] = np.asarray(policy[d]) if d in policy else np.full(shape, 1.0 / shape[-1])
        return PolicyNetwork(self, cpts)

    def with_information(self, parents: Mapping[str, Sequence[str]]) -> Self:
        """Return the network with other information: decision to what is known when deciding."""
        for d in parents:
            if d not in self._decisions:
                raise NetworkError(f"{d!r} is no decision; the decisions are {list(self._decisions)}")
        return self.replace(parents=parents)

    def no_forgetting(self, order: Sequence[str] | None = None) -> DecisionNetwork:
        """Return the network in which every decision knows earlier decisions and what was known at them.

        Parameters
        ----------
        order : sequence of str, optional
            The decisions in the order in which they are made; needed where the arcs do not determine it.
        """
        recalled = late_imports.relevance().recalled_information(self, order)
        return self.with_information({self._variables[d]: self._named(known) for d, known in recalled.items()})

    def requisite(self, decision: str) -> tuple[str, ...]:
        """Names of the parents that a best policy of a decision depends on (Nielsen and Jensen 1999)."""
        if decision not in self._decisions:
            raise NetworkError(f"{decision!r} is no decision; the decisions are {list(self._decisions)}")
        information = late_imports.relevance().requisite_information(self)
        return self._named(information[self.index(decision)])


class PolicyNetwork(BayesianNetwork):
    """The chance variables and decisions of a network under a policy; it knows the network."""

    def __init__(self, net: DecisionNetwork, cpts: Mapping[str, Any]):
        super().__init__(
            {v: net.states(v) for v in net.variables}, {v: net.parents(v) for v in net.variables}, cpts, name=net.name
        )
        self.decision_network, self.state_codes = net, net.state_codes


def _check_names(
    states: Mapping[str, object],
    parents: Mapping[str, Iterable[str]],
    decisions: Sequence[str],
    utilities: Mapping[str, object],
) -> None:
    """Check that decisions are variables, utilities are none, and nothing depends on a utility."""
    if isinstance(decisions, str):
        raise NetworkError(f"decisions must be a sequence of names, not the string {decisions!r}")
    for d in decisions:
        if d not in states:
            raise NetworkError(f"the decision {d!r} is not declared{closest(str(d), states)}")
    for u in utilities:
        if u in states:
            raise NetworkError(f"the utility {u!r} has the name of a variable; utilities have no states")
    for v, above in parents.items():
        for p in () if isinstance(above, str) else above:
            if p in utilities:
                raise NetworkError(f"{v!r} has the parent {p!r}, which is a utility; nothing can depend on a utility")
