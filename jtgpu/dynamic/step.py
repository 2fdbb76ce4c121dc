"""The step network: one slice, and what it needs of earlier ones."""

from __future__ import annotations

import math
import weakref
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import backends
from ..backends.base import Backend
from ..errors import TableTooLarge
from ..inference.planning import split_options
from ..inference.queries.posteriors import Messages, messages_of
from ..inference.sets import Sets
from ..inference.tree import JunctionTree
from ..model.dynamic import DynamicNetwork, tables_of
from ..model.markov import MarkovNetwork, with_tables
from ..plans.compiler import rerooted
from ..util.arrays import Floats
from ..util.lru import LRU
from ..util.options import BackendName

MOST_CELLS = 1 << 26  # of the interface
MOST_VARIANTS = 16  # compiled slices: the first ones, later ones, and those with interventions


class _Slice(NamedTuple):
    """A compiled step network."""

    tree: JunctionTree
    kind: int
    cut: frozenset[int]
    release: weakref.finalize[Any, JunctionTree]


class Step:
    """A slice of a dynamic network with its interfaces, planned once (Murphy 2002, section 3.5).

    Variables 0 .. V-1 are those of the slice, and the static ones; the others are ``p[t-j]``, the earlier copies of
    variables with children in later slices. The interface before the slice is the ``p[t-1] .. p[t-L]`` and the static
    variables; the one after it has ``p[t] .. p[t-L+1]`` in the same places, so its cells are those of the next slice's.
    A copy that does not exist in one of the first slices is in state 0.
    """

    def __init__(
        self, net: DynamicNetwork, backend: BackendName, options: dict[str, Any],
        joints: tuple[tuple[int, ...], ...] = (),
    ):  # fmt: skip
        # joints: Sets of variables whose joint posteriors are wanted
        self.net, self._backend, self._options = net, backend, options
        self.n = len(net)
        self.static = frozenset(net.index(v) for v in net.static)
        self.parents = [[(net.index(p), lag) for p, lag in net.parents(v)] for v in net.variables]
        copies = [(v, lag) for v, lag in net.interface_numbers if v not in self.static]
        self.number = {(v, 0): v for v in range(self.n)} | {c: self.n + i for i, c in enumerate(copies)}
        fixed = sorted(self.static)
        self.before = (*(self.number[c] for c in copies), *fixed)
        self.after = (*(self.number[v, lag - 1] for v, lag in copies), *fixed)
        self.names = [*net.variables, *(f"{net.variables[v]}[t-{lag}]" for v, lag in copies)]
        self.origin = [*range(self.n), *(v for v, _ in copies)]
        self.shape = tuple(len(net.states(self.origin[v])) for v in self.before)
        self.cells = math.prod(self.shape)
        if self.cells > MOST_CELLS:
            raise TableTooLarge(
                f"{self._interface()}; at most {MOST_CELLS:,} are possible: use fewer lags, or fewer variables with "
                "children in later slices"
            )
        self.order = max(net.order, 1 if fixed else 0)
        sets = [tuple(self.names[v] for v in s) for s in (self.before, self.after) if len(s) > 1]
        sets += [tuple(self.names[v] for v in s) for s in joints if len(s) > 1]
        planning, running = split_options(backend, options)
        self._run = {"replan": False, **running}  # plans for patterns would make last digits depend on earlier queries
        try:
            made = self._model(self.order, frozenset()).plan(together=sets, **planning)
        except TableTooLarge as error:
            raise TableTooLarge(f"{self._interface()}; a slice: {error}") from None
        factor = made.plan.evidence_factor[self.after[0]]
        if len(self.after) > 1:
            factor = made.plan.evidence_factor[Sets(made.model, made.plan).number(self.after, "interface")]
        # messages to the next slice then take one pass
        self.plan = replace(made, plan=rerooted(made.plan, int(factor)))
        self._sets = Sets(self.plan.model, self.plan.plan)
        self.before_number, self.after_number = self._place(self.before), self._place(self.after)
        self.joints = {s: self._place(s) for s in joints}
        self._trees: LRU[Any, _Slice] = LRU(MOST_VARIANTS)  # of slices with interventions
        self._uncut: LRU[Any, _Slice] = LRU(self.order + 1)  # all others: streams hold them
        self.n_variables = len(self.names)
        self.backend(0)

    @classmethod
    def of_families(cls, net: DynamicNetwork, backend: BackendName, options: dict[str, Any]) -> Step:
        """A slice for expected counts: GPUs add up the joint posteriors of families."""
        step = cls(net, backend, options)
        if not step.backend(0).capabilities.device_name:
            return step
        step.close()
        return cls(net, backend, options, tuple(step.families))

    @property
    def families(self) -> list[tuple[int, ...]]:
        """Of each variable, the parents and itself."""
        return [(*(self.number[p] for p in above), v) for v, above in enumerate(self.parents)]

    def _interface(self) -> str:
        """The interface and its size, for messages."""
        names = [self.names[v] for v in self.before]
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        size = f"{self.cells:,}" if self.cells < 1e15 else f"about {self.cells:.1e}"
        return f"the interface between slices ({', '.join(names[:8])}{more}) has {size} configurations"

    def _place(self, scope: tuple[int, ...]) -> int:
        """The number for weights of an interface: of a variable, or of a set that the plan keeps together."""
        return scope[0] if len(scope) == 1 else self._sets.number(scope, "interface")

    def _model(self, kind: int, cut: frozenset[int]) -> MarkovNetwork:
        """The step network of slice `kind`; of all later ones if it is `order`. Variables in `cut` are set."""
        net = self.net
        # weights of one variable are multiplied into the smallest factor that contains it
        single = [(side[0],) for side in (self.before, self.after) if len(side) == 1]
        factors = zip([*self.families, *single], self._factors(kind, cut), strict=True)
        return MarkovNetwork({self.names[v]: net.states(self.origin[v]) for v in range(len(self.names))}, factors)

    def _factors(self, kind: int, cut: frozenset[int]) -> list[Floats]:
        """The tables of a step network: of families, and ones for interfaces of one variable."""
        ones = [np.ones(self.shape[0]) for side in (self.before, self.after) if len(side) == 1]
        return [*(self.table(v, kind, v in cut) for v in range(self.n)), *ones]

    def table(self, v: int, kind: int, is_cut: bool = False) -> Floats:
        """The factor of a variable: its CPT; ones if it is set, or a static variable behind the first slice."""
        net = self.net
        shape = [len(net.states(p)) for p, _ in self.parents[v]] + [len(net.states(v))]
        if is_cut or (v in self.static and kind > 0):
            return np.ones(shape)
        later, first = tables_of(net, v)
        if kind >= len(first):
            return later
        index = tuple(slice(None) if lag <= kind else None for _, lag in self.parents[v])
        return np.array(np.broadcast_to(first[kind][(*index, slice(None))], shape))

    def zeros(self) -> tuple[list[Floats], list[list[Floats]]]:
        """Zeros of the shapes of all CPTs of later slices, and of those in the first ones."""
        each = [tables_of(self.net, v) for v in range(self.n)]
        return [np.zeros(later.shape) for later, _ in each], [[np.zeros(t.shape) for t in first] for _, first in each]

    def reload(self, net: DynamicNetwork) -> None:
        """Replace the CPTs; plans and programs stay."""
        self.net = net
        for x in (*self._uncut.values(), *self._trees.values()):
            x.tree.reload(with_tables(x.tree.model, self._factors(x.kind, x.cut)))

    def close(self) -> None:
        """Free the memory of all backends."""
        for x in (*self._uncut.values(), *self._trees.values()):
            x.release.detach()
            x.tree.close()

    def tree(self, t: int, cut: frozenset[int] = frozenset()) -> JunctionTree:
        """The compiled step network of slice t, which is closed when it was dropped and nothing refers to it."""
        kind, trees = min(t, self.order), self._trees if cut else self._uncut
        known = trees.get((kind, cut))
        if known is not None:
            return known.tree

        def make() -> _Slice:
            tree = JunctionTree(self.plan.with_model(self._model(kind, cut)), self._backend, **self._run)
            release = weakref.finalize(tree, tree.intervened().backend.close)
            release.atexit = False
            return _Slice(tree, kind, cut, release)

        return trees.get_or_make((kind, cut), make).tree

    def backend(self, t: int, cut: frozenset[int] = frozenset()) -> Backend:
        """The backend that runs slice t."""
        return self.backend_of(self.tree(t, cut))

    def backend_of(self, tree: JunctionTree, maximal: bool = False) -> Backend:
        """The backend of a slice, open as long as the tree is; with `maximal` its posteriors are those by maximum."""
        return tree.cached("maximal", 0, lambda: self._maximal(tree)) if maximal else tree.intervened().backend

    def _maximal(self, tree: JunctionTree) -> Backend:
        on_cpu: dict[str, Any] = {} if tree.backend == "reference" else {"threads": tree.threads}
        prepare = backends.get("reference" if tree.backend == "reference" else "cpu")
        return prepare(tree.plan.whole, tree.intervened().factors, maximal=True, **on_cpu)

    def on_cpu(self, tree: JunctionTree, maximal: bool = False) -> Backend:
        """`backend_of` on the CPU, whatever backend the network was compiled for."""
        if tree.backend == "cpu":
            return self.backend_of(tree, maximal)
        prepare, factors = backends.get("cpu"), tree.intervened().factors
        return tree.cached("on CPU", maximal, lambda: prepare(tree.plan.whole, factors, maximal=maximal))

    def least(self, t: int, cut: frozenset[int]) -> int:
        """log2 of a number that no positive product of entries of slice t is below."""

        def make() -> int:
            tables = [self.table(v, min(t, self.order), v in cut) for v in range(self.n)]
            return sum(math.frexp(float(x.min(where=x > 0, initial=1.0)))[1] - 1 for x in tables)

        return self.tree(t, cut).cached("least", 0, make)

    def messages(self, t: int, cut: frozenset[int] = frozenset()) -> Messages:
        """The sweeps of slice t: best states and samples."""
        tree = self.tree(t, cut)
        return messages_of(tree, tree.intervened().factors)

    def first(self) -> Floats:
        """Weights (K,) of the interface before slice 0: copies that do not exist are in state 0."""
        table = np.zeros(self.shape)
        n = len(self.before) - len(self.static)
        table[(0,) * n] = 1.0
        return table.ravel()

    def cells_of(self, number: int, scope: tuple[int, ...], table: Floats) -> Floats:
        """Weights (n, K) of an interface as the backend takes them."""
        if len(scope) == 1:
            return table
        return self._sets.cells(number, scope, table.reshape(len(table), *self.shape))

    def entries(self, number: int, scope: tuple[int, ...]) -> NDArray[np.int64]:
        """The entry of an interface that each cell of its number, perhaps of a larger set, belongs to."""
        return np.asarray(self.cells_of(number, scope, np.arange(float(self.cells))[None])[0], np.int64)

    def joint_of(self, number: int, scope: tuple[int, ...], cells: Floats) -> Floats:
        """Cells of a backend's answer as (n, K) of an interface."""
        if len(scope) == 1:
            return cells
        return self._sets.joint(number, scope, cells).reshape(len(cells), -1)

    def width(self, number: int) -> int:
        """Cells of a target."""
        if number < self.n_variables:
            return len(self.net.states(self.origin[number]))
        return self._sets.size(number)

    def joint(self, number: int, scope: tuple[int, ...], cells: Floats) -> Floats:
        """Cells (..., K) of a set's answer as (..., extents of `scope`)."""
        front = cells.shape[:-1]
        table = self._sets.joint(number, scope, cells.reshape(-1, cells.shape[-1]))
        return table.reshape(*front, *table.shape[1:])
