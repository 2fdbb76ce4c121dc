"""Arcs and hidden common causes: what the graph implies, and which sets may be adjusted for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ArgumentError, JtgpuError, NetworkError, UnknownVariable, closest
from ..model.directed import descendants, find_cycle, reachable
from ..plans.ordering.reduce import bits
from ..util import late_imports
from ..util.arguments import described, mapping, number, several, whole_number
from .separators import Moral, minimal_separator

if TYPE_CHECKING:
    from typing import Self

Names = str | Iterable[str]
UNDIRECTED = "; jtgpu.causal.cpdag takes the undirected edges of a CPDAG"


class Reason(NamedTuple):
    """Whether a set may be adjusted for, and why not; true or false as a condition."""

    holds: bool
    text: str

    def __bool__(self) -> bool:
        return self.holds

    def __str__(self) -> str:
        return self.text


class NotIdentified(JtgpuError):
    """An effect that the distribution of the measured variables does not determine.

    Attributes
    ----------
    hedge : tuple of two frozensets of str, or None
        Two sets of variables, the second within the first, that hidden common causes join and whose common descendants
        are the same: two models exist that agree about all that is measured, and differ in the effect.
    """

    def __init__(self, message: str, hedge: tuple[frozenset[str], frozenset[str]] | None = None):
        super().__init__(message)
        self.hedge = hedge


class AdjustableGraph:
    """Measured variables, arcs between them, and pairs with a hidden common cause; the base of `CausalGraph`."""

    def __init__(
        self, variables: Iterable[str], arcs: Iterable[tuple[str, str]] = (),
        common_causes: Iterable[tuple[str, str]] = (),
    ):  # fmt: skip
        self.variables = tuple(dict.fromkeys(map(str, variables)))
        self._index = {name: v for v, name in enumerate(self.variables)}
        self.arcs = tuple(dict.fromkeys((str(u), str(v)) for u, v in arcs))
        pairs = [self._two(u, v, "<->") for u, v in common_causes]
        self.common_causes = tuple(dict.fromkeys((self.variables[a], self.variables[b]) for a, b in map(sorted, pairs)))
        n = len(self.variables)
        self._parents: list[list[int]] = [[] for _ in range(n)]
        self._children: list[list[int]] = [[] for _ in range(n)]
        for a, b in (self._two(u, v, "->") for u, v in self.arcs):
            self._parents[b].append(a)
            self._children[a].append(b)
        cycle = find_cycle(self._parents, self._children)
        if cycle:
            both = next((pair for pair in self.arcs if pair[::-1] in self.arcs), None)
            path = " -> ".join((*both, both[0]) if both else (self.variables[v] for v in cycle))
            raise NetworkError(f"the arcs form a cycle: {path}{UNDIRECTED if both else ''}")
        # a hidden common cause is a vertex of its own, after the variables
        self._common = [(self._index[u], self._index[v]) for u, v in self.common_causes]
        self._all_parents = [list(p) for p in self._parents] + [[] for _ in self._common]
        for k, pair in enumerate(self._common):
            for v in pair:
                self._all_parents[v].append(n + k)
        self._order = sorted(range(n), key=self._depths().__getitem__)
        self._next, self._before = self._children, self._parents  # of paths that may be causal

    def _two(self, u: str, v: str, mark: str) -> tuple[int, int]:
        for name in (u, v):
            if name not in self._index:
                raise UnknownVariable(f"{u} {mark} {v}: there is no variable {name!r}{closest(name, self._index)}")
        if u == v:
            raise NetworkError(f"{u} {mark} {v}: a variable is not its own cause")
        return self._index[u], self._index[v]

    def _depths(self) -> list[int]:
        depths = [-1] * len(self.variables)
        waiting = [len(p) for p in self._parents]
        ready = [v for v, n in enumerate(waiting) if not n]
        for v in ready:
            depths[v] = 1 + max((depths[p] for p in self._parents[v]), default=-1)
            for c in self._children[v]:
                waiting[c] -= 1
                if not waiting[c]:
                    ready.append(c)
        return depths

    def __repr__(self) -> str:
        sizes = f"{len(self.variables)} variables, {len(self.arcs)} arcs, {len(self._common)} common causes"
        return f"{type(self).__name__}({sizes})"

    def _repr_html_(self) -> str:
        return late_imports.html(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AdjustableGraph) and all(
            {*ours} == {*theirs} for ours, theirs in zip(self._key(), other._key(), strict=True)
        )

    def __hash__(self) -> int:
        return hash(tuple(map(frozenset, self._key())))

    def _key(self) -> tuple[Iterable[object], ...]:
        return self.variables, self.arcs, map(frozenset, self.common_causes)

    # Names ------------------------------------------------------------------------------------------------------

    def numbers(self, names: Names, what: str = "variables") -> set[int]:
        """Numbers of variables given by name."""
        listed = [names] if isinstance(names, str) else several(names)
        if listed is None:
            raise ArgumentError(f"{what} must be a name or names, not {described(names)}")
        for name in listed:
            if name not in self._index:
                raise UnknownVariable(
                    f"{what}: there is no variable {name!r}{closest(str(name), self._index)} "
                    "(a hidden variable is not measured)"
                )
        return {self._index[name] for name in listed}

    def names(self, vertices: Iterable[int]) -> set[str]:
        """Names of measured variables by number."""
        return {self.variables[v] for v in vertices}

    def in_order(self, vertices: Iterable[int]) -> list[int]:
        """Causes before effects."""
        wanted = set(vertices)
        return [v for v in self._order if v in wanted]

    def _pair(self, cause: Names, outcome: Names) -> tuple[set[int], set[int]]:
        x, y = self.numbers(cause, "the cause"), self.numbers(outcome, "the outcome")
        if not x or not y:
            raise ArgumentError("a cause and an outcome are needed")
        if x & y:
            raise ArgumentError(f"{', '.join(sorted(self.names(x & y)))!r} is the cause and the outcome")
        return x, y

    # The graph --------------------------------------------------------------------------------------------------

    def project(self, hidden: Names) -> Self:
        """The graph of the variables that are not hidden; see `graph`."""
        gone = self.numbers(hidden, "hidden")
        if not gone:
            return self
        n = len(self.variables)
        arcs: dict[tuple[int, int], None] = {}
        reach: dict[int, set[int]] = {}

        def measured(v: int) -> set[int]:  # that paths through hidden variables lead to from v
            if v not in reach:
                reach[v] = set()
                for c in self._children[v]:
                    reach[v] |= measured(c) if c in gone else {c}
            return reach[v]

        for v in reversed(self._order):
            measured(v)
        for v in range(n):
            if v not in gone:
                arcs.update(dict.fromkeys((v, c) for c in sorted(measured(v))))
        ends = [measured(v) for v in gone]
        ends += [set().union(*(measured(v) if v in gone else {v} for v in pair)) for pair in self._common]
        pairs = {(a, b): None for result in ends for a in sorted(result) for b in sorted(result) if a < b}
        # a common cause of a hidden variable and others reaches what that variable leads to; two are joined by pairs
        name = self.variables
        return type(self)(
            [v for k, v in enumerate(name) if k not in gone], [(name[u], name[v]) for u, v in arcs],
            [(name[u], name[v]) for u, v in pairs],
        )  # fmt: skip

    def ancestors_of(self, vertices: Iterable[int], without: set[int] = frozenset()) -> set[int]:  # type: ignore
        """The variables and their ancestors, where no arc leads into those of `without`."""
        parents = [[] if v in without else p for v, p in enumerate(self._parents)] if without else self._parents
        return descendants(parents, vertices)

    def parents_of(self, v: int) -> list[int]:
        """The measured direct causes of a variable."""
        return self._parents[v]

    def ancestors_within(self, vertices: set[int], kept: set[int]) -> set[int]:
        """The variables and their ancestors in the graph of `kept` alone."""
        return descendants([[p for p in above if p in kept] for above in self._parents], vertices)

    def descendants_of(self, vertices: Iterable[int]) -> set[int]:
        """The variables and their descendants."""
        return descendants(self._children, vertices)

    def districts(self, vertices: Iterable[int]) -> list[set[int]]:
        """The variables in groups that hidden common causes join, in the subgraph of these variables."""
        left = set(vertices)
        joined: dict[int, list[int]] = {v: [] for v in left}
        for a, b in self._common:
            if a in left and b in left:
                joined[a].append(b)
                joined[b].append(a)
        result = []
        while left:
            group = descendants(joined, [min(left)])  # type: ignore[arg-type]
            result.append(group)
            left -= group
        return result

    def d_separated(self, x: Names, y: Names, given: Names = ()) -> bool:
        """Whether the graph implies that x and y are independent given other variables."""
        a, b = self._pair(x, y)
        observed = self.numbers(given, "given")
        if observed & (a | b):
            raise NetworkError(f"d_separated takes disjoint sets: {self._listed(observed & (a | b))} is given")
        return not self._connected(self._all_parents, a, b, observed)

    def connected_after(
        self, x: set[int], y: set[int], given: set[int], no_arcs_into: set[int], out_of: set[int]
    ) -> bool:
        """Whether x and y are connected given variables where some arcs are removed."""
        parents = [
            [] if v in no_arcs_into else [p for p in above if p not in out_of]
            for v, above in enumerate(self._all_parents)
        ]
        return self._connected(parents, x, y, given)

    def _connected(self, parents: Sequence[list[int]], x: set[int], y: set[int], given: set[int]) -> bool:
        return bool(reachable(parents, children_of(parents), x - given, given, y) & y)

    # Adjustment ---------------------------------------------------------------------------------------------------

    def causal_vertices(self, x: set[int], y: set[int]) -> set[int]:
        """The variables on causal paths from x to y that leave x at once, but for those of x."""
        children = [[c for c in below if c not in x] for below in self._next]
        parents = [[p for p in above if p not in x] for above in self._before]
        return (descendants(children, x) - x) & descendants(parents, y)

    def _back_door(self, x: set[int], y: set[int]) -> tuple[list[list[int]], set[int]]:
        """Parents in the proper back-door graph, and the variables that must not be adjusted for."""
        causal = self.causal_vertices(x, y)
        parents = [
            [p for p in above if p not in x] if v in causal else above for v, above in enumerate(self._all_parents)
        ]
        return parents, descendants(self._next, causal) | x | y

    def is_adjustment_set(self, adjusted: Names, cause: Names, outcome: Names) -> Reason:
        """Whether P(outcome | do(cause)) is the mean of P(outcome | cause, adjusted) over P(adjusted).

        Parameters
        ----------
        adjusted, cause, outcome : str or iterable of str

        Returns
        -------
        Reason
            True or false; its text names a path that stays open, or a variable that the cause changes.

        Examples
        --------
        >>> import jtgpu.causal
        >>> g = jtgpu.causal.graph("age -> drug -> cure <- age")
        >>> print(g.is_adjustment_set([], "drug", "cure"))
        the path drug <- age -> cure is open
        """
        x, y = self._pair(cause, outcome)
        z = self.numbers(adjusted, "the adjustment set")
        parents, forbidden = self._back_door(x, y)
        if z & (x | y):
            return Reason(False, f"{self._listed(z & (x | y))} is the cause or the outcome")
        if z & forbidden:
            v = min(z & forbidden)
            causal = self.causal_vertices(x, y)
            way = self._directed_path(x, next(c for c in causal if v in descendants(self._next, [c])), v)
            return Reason(False, f"{self.variables[v]} is an effect of the cause: {way}")
        path = self._open_path(parents, x, y, z)
        return Reason(path is None, f"the path {path} is open" if path else "every path that is not causal is blocked")

    def _listed(self, vertices: Iterable[int]) -> str:
        return ", ".join(self.variables[v] for v in sorted(vertices))

    def _directed_path(self, x: set[int], through: int, end: int) -> str:
        def walk(starts: set[int], goal: int) -> list[int]:
            came: dict[int, int] = dict.fromkeys(starts, -1)
            line = list(starts)
            for v in line:
                for c in self._next[v]:
                    if c not in came:
                        came[c] = v
                        line.append(c)
            path = [goal]
            while came[path[-1]] >= 0:
                path.append(came[path[-1]])
            return path[::-1]

        return " -> ".join(self.variables[v] for v in walk(x, through) + walk({through}, end)[1:])

    def _open_path(self, parents: Sequence[list[int]], x: set[int], y: set[int], z: set[int]) -> str | None:
        """A path from x to y that is open given z, as text; None: there is none."""
        if not self._connected(parents, x, y, z):
            return None
        children, observed_above = children_of(parents), descendants(parents, z)
        start = [(v, True) for v in sorted(x)]
        came: dict[tuple[int, bool], tuple[int, bool] | None] = dict.fromkeys(start)
        line = list(start)
        for step in line:
            v, from_child = step
            if v in y:
                break
            following: list[tuple[int, bool]] = []
            if (from_child and v not in z) or (not from_child and v in observed_above):
                following += [(p, True) for p in parents[v]]
            if v not in z:
                following += [(c, False) for c in children[v]]
            for other in following:
                if other not in came:
                    came[other] = step
                    line.append(other)
        path: list[tuple[int, bool]] = []
        at: tuple[int, bool] | None = step
        while at is not None:
            path.append(at)
            at = came[at]
        path.reverse()
        text, n, after_hidden = self.variables[path[0][0]], len(self.variables), False
        for v, from_child in path[1:]:
            if v >= n:
                after_hidden = True
                continue
            text += f" {'<->' if after_hidden else '<-' if from_child else '->'} {self.variables[v]}"
            after_hidden = False
        return text

    def _allowed(self, x: set[int], y: set[int], required: Names, forbidden: Names) -> tuple[Any, set[int], set[int]]:
        parents, never = self._back_door(x, y)
        needed = self.numbers(required, "required")
        if needed & never:
            raise ArgumentError(f"required: {self._listed(needed & never)} is an effect of the cause")
        excluded = self.numbers(forbidden, "forbidden")
        twice = sorted(self.names(needed & excluded))
        if twice:
            raise ArgumentError(f"{', '.join(map(repr, twice))} is required and forbidden")
        return parents, set(range(len(self.variables))) - never - excluded, needed

    def adjustment_set(
        self, cause: Names, outcome: Names, *, required: Names = (), forbidden: Names = (),
        cost: Mapping[str, float] | None = None,
    ) -> set[str] | None:  # fmt: skip
        """One adjustment set: a minimal one, or that of least cost. None: there is none.

        Parameters
        ----------
        cause, outcome : str or iterable of str
        required, forbidden : str or iterable of str
            Variables that are in the set, or not.
        cost : mapping of str to float, optional
            Costs >= 0 of measuring variables; 1 where it has none.

        Returns
        -------
        set of str or None
        """
        x, y = self._pair(cause, outcome)
        parents, allowed, needed = self._allowed(x, y, required, forbidden)
        if cost is None:
            result = minimal_separator(parents, x, y, allowed, needed)
        else:
            self.numbers(mapping("cost", cost), "cost")
            every = {name: cost.get(name, 1.0) for name in self.variables}
            costs = {v: number(f"cost of {name!r}", c, least=0) for v, (name, c) in enumerate(every.items())}
            cut = Moral.of(parents, x, y, allowed, needed).cheapest(costs)
            result = None if cut is None else {*bits(cut)} | needed
        return None if result is None else self.names(result)

    def adjustment_sets(
        self, cause: Names, outcome: Names, *, limit: int | None = 1000, required: Names = (), forbidden: Names = (),
    ) -> list[set[str]]:  # fmt: skip
        """All minimal adjustment sets, or the first `limit` ones.

        Parameters
        ----------
        cause, outcome : str or iterable of str
        limit : int or None
        required, forbidden : str or iterable of str
            Variables that are in every set, or in none; sets are minimal apart from the required variables.

        Returns
        -------
        list of sets of str
            Empty if there is none; ``[set()]`` if nothing has to be adjusted for.

        Examples
        --------
        >>> import jtgpu.causal
        >>> jtgpu.causal.graph("age -> drug -> cure <- age").adjustment_sets("drug", "cure")
        [{'age'}]
        """
        n = None if limit is None else whole_number("limit", limit, least=1)
        return list(islice(self.iterate_adjustment_sets(cause, outcome, required, forbidden), n))

    def iterate_adjustment_sets(
        self, cause: Names, outcome: Names, required: Names = (), forbidden: Names = ()
    ) -> Iterator[set[str]]:
        """The sets of `adjustment_sets`, one after the other."""
        x, y = self._pair(cause, outcome)
        parents, allowed, needed = self._allowed(x, y, required, forbidden)
        for result in Moral.of(parents, x, y, allowed, needed).all_minimal():
            yield self.names({*bits(result)} | needed)

    def best_adjustment_set(self, cause: Names, outcome: Names) -> set[str]:
        """The adjustment set by which an effect is estimated with the least asymptotic variance.

        The parents of the variables on causal paths (Henckel, Perkovic and Maathuis, JRSS-B 84, 2022). With hidden
        common causes it is best if these parents can be adjusted for; otherwise there may be no best set.

        Raises
        ------
        NotIdentified
            If no set is known to be best; `adjustment_sets` lists those that are valid.
        """
        x, y = self._pair(cause, outcome)
        causal = self.causal_vertices(x, y)
        above = {p for v in causal for p in self._parents[v]}
        result = above - x - descendants(self._next, causal)
        hidden = [pair for pair in self._common if causal & {*pair}]
        reason = self.is_adjustment_set(self.names(result), self.names(x), self.names(y))
        if not reason or hidden:
            why = reason.text if not reason else "a variable on a causal path has a hidden common cause with another"
            raise NotIdentified(f"no adjustment set is known to be best: {why}; adjustment_sets() lists valid ones")
        return self.names(result)

    def front_door_set(self, cause: str, outcome: str) -> set[str] | None:
        """A minimal set on every causal path through which the effect can be computed; None: there is none.

        H. Jeong, J. Tian and E. Bareinboim, NeurIPS 2022.
        """
        x, y = self._pair(cause, outcome)
        if self._intercepts(set(), x, y):
            return set()
        result = self._largest_door(set(range(len(self.variables))) - x - y - self._connected_to(x, set(), x), x, y)
        if result:  # most of it is seldom needed
            result = self._largest_door(result & self.causal_vertices(x, y), x, y) or result
        for v in self.in_order(result or ()):
            if result and v in result:  # without v others may have to go, too
                result = self._largest_door(result - {v}, x, y) or result
        return None if result is None else self.names(result)

    def _largest_door(self, allowed: set[int], x: set[int], y: set[int]) -> set[int] | None:
        while bad := allowed & self._connected_to(y, x, allowed):
            allowed = allowed - bad  # a path that is open stays open in a smaller set, which removes fewer arcs
        return allowed if self._intercepts(allowed, x, y) else None

    def _connected_to(self, x: set[int], given: set[int], out_of: set[int]) -> set[int]:
        """Vertices that are connected with x given variables where arcs out of some are removed."""
        parents = [[p for p in above if p not in out_of] for above in self._all_parents]
        return reachable(parents, children_of(parents), x, given)

    def _intercepts(self, z: set[int], x: set[int], y: set[int]) -> bool:
        children = [[c for c in below if c not in z] for below in self._children]
        return not descendants(children, x) & y


def children_of(parents: Sequence[list[int]]) -> list[list[int]]:
    """Lists of children from lists of parents."""
    children: list[list[int]] = [[] for _ in parents]
    for v, above in enumerate(parents):
        for p in above:
            children[p].append(v)
    return children
