"""Templates from networks over slices, and from the distribution that their slices converge to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import NetworkError, closest, shown
from ..util.arguments import names, plain, several, whole_number
from ..util.arrays import Floats
from .directed import find_cycle
from .discrete import DiscreteModel
from .network import BayesianNetwork

Parent = tuple[int, int]  # the number of a variable, and how many slices earlier it is


def checked_static(model: DiscreteModel, given: Iterable[str]) -> frozenset[int]:
    """The numbers of the static variables."""
    if isinstance(given, str):
        raise NetworkError(f"static must be a sequence of names, not the string {given!r}")
    listed = names("static", given)
    for v in listed:
        if v not in model:
            raise NetworkError(f"static has {v!r}, which is not declared{closest(str(v), model.variables)}")
    return frozenset(model.index(v) for v in listed)


def read_parents(
    model: DiscreteModel, static: frozenset[int], name: str, given: Sequence[str | tuple[str, int]]
) -> tuple[Parent, ...]:
    """The parents of a variable by number."""
    listed = several(given)
    if listed is None:
        what = f"the string {given!r}" if isinstance(given, str) else shown(given)
        raise NetworkError(f"variable {name!r}: its parents must be a sequence, not {what}")
    v, above = model.index(name), list[Parent]()
    for item in listed:
        p, lag = item if isinstance(item, tuple) and len(item) == 2 else (item, 0)
        p = plain(p)
        if p not in model:
            raise NetworkError(
                f"variable {name!r} has the parent {p!r}, which is not declared{closest(str(p), model.variables)}; "
                "a parent is a name, or a name and a lag such as ('rain', 1)"
            )
        if not _is_lag(lag):
            raise NetworkError(
                f"variable {name!r} has the parent {p!r} with the lag {lag!r}; a lag is 0, the same slice, or a "
                "number of slices back"
            )
        number, lag = model.index(p), int(lag)
        if number == v and lag == 0:
            raise NetworkError(f"variable {name!r} is its own parent; ({name!r}, 1) is {name!r} one slice earlier")
        if v in static and number not in static:
            raise NetworkError(f"variable {name!r} is static, and its parent {p!r} is not")
        if number in static and lag:
            raise NetworkError(f"variable {name!r} has the parent {p!r} with the lag {lag}, but {p!r} is static")
        if (number, lag) in above:
            label = f"{p}[t-{lag}]" if lag else p if number in static else f"{p}[t]"
            raise NetworkError(f"variable {name!r} has the parent {label!r} twice")
        above.append((number, lag))
    return tuple(above)


def check_cycle(variables: Sequence[str], parents: Sequence[Sequence[Parent]]) -> None:
    """Raise if the arcs inside a slice form a cycle."""
    same = [[p for p, lag in above if lag == 0] for above in parents]
    children: list[list[int]] = [[] for _ in same]
    for child, above in enumerate(same):
        for p in above:
            children[p].append(child)
    if cycle := find_cycle(same, children):
        walk = " -> ".join(repr(variables[v]) for v in cycle)
        raise NetworkError(f"the arcs inside a slice form a cycle: {walk}")


def _is_lag(lag: object) -> bool:
    """Whether a lag is an integer from 0."""
    return isinstance(lag, (int, np.integer)) and not isinstance(lag, bool) and int(lag) >= 0


def children(net: Any, name: str) -> tuple[tuple[str, int], ...]:
    """The variables with this parent, in order, and how many slices earlier it is."""
    return tuple((v, lag) for v in net for p, lag in net.parents(v) if p == name)


CONVERGED = 1e-13  # largest change of an entry of the distribution between two slices
MAX_ENTRIES = 1 << 24  # of the distribution of one slice and of what it depends on
_LABEL = re.compile(r"(.+)\[t(?:-(\d+))?\]", re.DOTALL)
Pair = tuple[str, int]
Family = tuple[Sequence[Pair], Any]  # parents, and a CPT: axes of the parents, then of the child


def from_slices(net: BayesianNetwork, start: Mapping[str, object] | None) -> dict[str, Any]:
    """The arguments of `DynamicNetwork` for a network over slices."""
    if not isinstance(net, BayesianNetwork):
        raise NetworkError(f"from_slices needs a BayesianNetwork, not a {type(net).__name__}")
    pairs = {v: _pair(v) for v in net.variables}
    now = {name: v for v, (name, lag) in pairs.items() if lag == 0}
    for v, (name, lag) in pairs.items():
        if name not in now:
            raise NetworkError(f"the network has {v!r} and no variable {name + '[t]'!r}")
        if net.states(v) != net.states(now[name]):
            raise NetworkError(
                f"{v!r} has the states {[*net.states(v)]}, and {now[name]!r} has {[*net.states(now[name])]}"
            )
        for p in net.parents(v):
            if pairs[p][1] < lag and pairs[p][0] != p:
                raise NetworkError(f"{v!r} has the parent {p!r}, which is later; reverse the arc, or learn with tiers=")
    parents = {name: [pairs[p] for p in net.parents(v)] for name, v in now.items()}
    tables = {name: net.cpt(v) for name, v in now.items()}
    first: dict[str, Any] = dict(start or {})
    tree = net.compile("cpu")
    static = [name for name, v in now.items() if v == name]
    if static and any(_LABEL.fullmatch(p) for v in static for p in net.parents(v)):
        bad = next(v for v in static if any(_LABEL.fullmatch(p) for p in net.parents(v)))
        raise NetworkError(f"{bad!r} is static by its name, and has a parent in a slice; name it {bad + '[t]'!r}")
    for name, v in now.items():
        order = max((lag for _, lag in parents[name]), default=0)
        if order and name not in first:
            families = [[p for p in net.parents(v) if pairs[p][1] <= t] for t in range(order)]
            first[name] = _one_or_all([_rows(np.asarray(tree.joint([*f, v]), np.float64)) for f in families])
    states = {name: net.states(v) for name, v in now.items()}
    return {"states": states, "parents": parents, "cpts": tables, "start": first, "static": static, "name": net.name}


def of_tables(
    net: BayesianNetwork, pairs: Mapping[str, Pair], tables: Mapping[str, Sequence[str]], static: Sequence[str]
) -> dict[str, Any]:
    """The arguments of `DynamicNetwork` for a network that has each table of a template."""
    # pairs: variable of `net` -> variable of the template, and how many slices earlier it is
    # tables: variable of the template -> variables of `net` with its CPTs in slices 0, 1, ... and all later ones
    families: dict[str, list[Family]] = {}
    for v, own in tables.items():
        families[v] = []
        for t, label in enumerate(own):
            above = [(pairs[p][0], 0 if pairs[p][0] in static else pairs[p][1] - pairs[label][1])
                     for p in net.parents(label)]  # fmt: skip
            late = next((p for p, lag in above if lag < 0), None)
            early = next((p for p, lag in above if lag > t), None)
            if late is not None:
                raise NetworkError(f"{v!r} has the parent {late!r}, which is in a later slice")
            if early is not None:
                raise NetworkError(f"{v!r} has the parent {early!r} in slice {t}, before the first slice")
            families[v].append((above, np.asarray(net.cpt(label), np.float64)))
    return from_families({v: net.states(own[-1]) for v, own in tables.items()}, families, static)


def from_families(
    states: Mapping[str, Sequence[str]], families: Mapping[str, Sequence[Family]], static: Sequence[str]
) -> dict[str, Any]:
    """The arguments of `DynamicNetwork` for variables with a family in each of the first slices."""
    # families: of slices 0, 1, ...; the last one holds in all later slices, too. A slice may have parents that later
    #     ones lack, or other numbers: tables get axes on which they do not depend
    index = {v: i for i, v in enumerate(states)}
    used = [p for given in families.values() for p in given[-1][0] if p[1]]
    parents: dict[str, list[Pair]] = {}
    cpts: dict[str, Floats] = {}
    start: dict[str, Any] = {}
    for v, given in families.items():
        own = list(given)
        while len(own) > 1 and own[-2][0] == own[-1][0] and np.array_equal(own[-2][1], own[-1][1]):
            own.pop()
        union = list(dict.fromkeys(p for above, _ in reversed(own) for p in above))
        first = len(own) - 1  # slices whose family is not that of later ones
        if first > max((lag for _, lag in union), default=0):
            # an axis that no table depends on; the lagged variable is kept between slices anyway, if there is one
            fitting = [p for p in used if p[1] >= first]
            union.append(min(fitting, key=lambda p: (len(states[p[0]]), p[1], index[p[0]]), default=(v, first)))
        m = max((lag for _, lag in union), default=0)
        parents[v] = union
        cpts[v] = _with_axes(*own[-1], union, states)
        if m:
            each = [own[min(t, first)] for t in range(m)]
            start[v] = _one_or_all([
                _with_axes(*f, [p for p in union if p[1] <= t], states) for t, f in enumerate(each)
            ])  # fmt: skip
    return {"states": states, "parents": parents, "cpts": cpts, "start": start, "static": static}


def _with_axes(
    parents: Sequence[Pair], table: Floats, wanted: Sequence[Pair], states: Mapping[str, Sequence[str]]
) -> Floats:
    """A CPT whose axes are other parents, on some of which it does not depend."""
    table = np.transpose(table, [*(parents.index(p) for p in wanted if p in parents), len(parents)])
    for axis, p in enumerate(wanted):
        if p not in parents:
            table = np.expand_dims(table, axis)
    wide: Floats = np.ascontiguousarray(np.broadcast_to(table, [*(len(states[p]) for p, _ in wanted), table.shape[-1]]))
    return wide


def _pair(name: str) -> Pair:
    """The name and the lag of ``x[t-2]``; a static variable has lag 0."""
    match = _LABEL.fullmatch(name)
    return (match[1], int(match[2] or 0)) if match else (name, 0)


def _one_or_all(tables: Sequence[Floats]) -> Any:
    return tables[0] if len(tables) == 1 else tables


def _rows(joint: Floats) -> Floats:
    """The conditional probabilities of the last variable; rows of probability 0 are uniform."""
    total = joint.sum(axis=-1, keepdims=True)
    even = np.full_like(joint, 1.0 / joint.shape[-1])
    rows: Floats = np.divide(joint, total, out=even, where=total > 0)
    return rows


def _sums(*operands: Any) -> Floats:
    """`numpy.einsum` by lists of axes: tables, each with its axes, then the axes of the result."""
    result: Floats = np.asarray(np.einsum(*operands))
    return result


def stationary(dyn: Any, limit: int) -> dict[str, Any]:
    """The CPTs of the first slices in the limit: the CPTs of a slice are multiplied until nothing changes."""
    # dyn: DynamicNetwork, which imports this module
    limit = whole_number("limit", limit, 1)
    before = list(dyn.interface)
    axis = {p: i for i, p in enumerate(before)}
    now: list[Pair] = [(v, 0) for v in dyn.variables if v not in dyn.static]
    axis |= {p: len(before) + i for i, p in enumerate(now)}
    entries = np.prod([float(len(dyn.states(v))) for v, _ in axis])
    if entries > MAX_ENTRIES:
        raise NetworkError(
            f"stationary: a slice and the variables before it have {entries:.3g} configurations, at most "
            f"{MAX_ENTRIES:.3g} are computed; give start= yourself"
        )
    slice_: list[Any] = []  # operands of einsum: the CPTs of a slice, and their axes
    for v, _ in now:
        slice_ += [np.asarray(dyn.cpt(v), np.float64), [axis[p] for p in (*dyn.parents(v), (v, 0))]]
    after = [axis[v, lag if v in dyn.static else lag - 1] for v, lag in before]
    own = [axis[p] for p in before]
    slice_ += [np.ones([len(dyn.states(v)) for v, _ in before]), own]  # lags that no CPT of the slice has
    joint: Floats = _sums(*slice_, [*range(len(axis))])
    kept = sorted({*own, *after})
    step = _sums(joint, [*range(len(axis))], kept)  # P(the variables that later slices need | those before)
    first_net = dyn.unroll(max(dyn.order, 1))
    names = [v if v in dyn.static else f"{v}[{dyn.order - lag}]" for v, lag in before]
    alpha: Floats = np.asarray(first_net.compile("cpu").joint(names), np.float64)
    change = np.inf
    for _ in range(limit):
        following = _sums(alpha, own, step, kept, after)
        following /= following.sum()
        change, alpha = float(np.abs(following - alpha).max(initial=0.0)), following
        if change <= CONVERGED:
            break
    else:
        raise NetworkError(
            f"the distribution between slices still changes by {change:.2g} after {limit} slices; a periodic chain has "
            "no limit, a slow one needs a larger limit="
        )
    first: dict[str, Any] = {}
    for v, _ in now:
        order = max((lag for _, lag in dyn.parents(v)), default=0)
        tables = []
        for t in range(order):
            family = [axis[p] for p in (*dyn.parents(v), (v, 0)) if p[1] <= t]
            tables.append(_rows(_sums(alpha, own, joint, [*range(len(axis))], family)))
        if tables:
            first[v] = _one_or_all(tables)
    return first
