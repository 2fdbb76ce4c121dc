"""pyAgrum: ``BayesNet``, ``InfluenceDiagram``, ``KTBN``. The package is ``pyagrum``, and ``pyAgrum`` before version 2.

A table's variables are the child, then its parents, the first one varying fastest: the axes of its array are reversed.
"""

from __future__ import annotations

import importlib
import math
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError, NetworkError
from ..model.cpts import normalize_rows
from ..model.decisions import DecisionNetwork
from ..model.discrete import DiscreteModel
from ..model.dynamic import DynamicNetwork
from ..model.mixed import MixedNetwork
from ..model.network import BayesianNetwork
from ..model.noisy import NoisyMax
from ..util.arguments import flag
from ..util.arrays import Floats
from .other_kinds import as_two_slices, from_clg, from_ktbn, from_two_slices, is_clg, to_clg

MOST_COMPARED = 64  # rows of a noisy table that are compared
TOLERANCE = 1e-10  # of their probabilities, relatively


def module() -> Any:
    """The pyAgrum package, under either name."""
    # raises ImportError: If the package is not installed.
    try:
        return importlib.import_module("pyagrum")
    except ImportError:
        return importlib.import_module("pyAgrum")


def from_pyagrum(bn: Any, *, two_slices: bool = False) -> BayesianNetwork:
    """Convert a ``BayesNet``, an ``InfluenceDiagram`` or a ``KTBN``; variables are in the order of their ids.

    Parents are in the order of their tables. Noisy-OR and noisy-AND nodes of a ``BayesNet`` stay noisy. CPT rows are
    normalised; ``row_report`` lists those that did not sum to 1.

    Parameters
    ----------
    bn : pyagrum.BayesNet, pyagrum.InfluenceDiagram or pyagrum.ktbn.KTBN
    two_slices : bool
        Whether a ``BayesNet`` is a 2-TBN of ``pyAgrum.lib.dynamicBN``: ``rain0`` is a variable of slice 0, ``raint`` of
        later ones, and variables of other names are static.

    Returns
    -------
    BayesianNetwork
        A `DecisionNetwork` for an ``InfluenceDiagram``, a `MixedNetwork` for a
        ``pyagrum.clg.CLG``, a `DynamicNetwork` for a ``KTBN`` and for `two_slices`; the
        annotation names the class that is more frequent.

    Raises
    ------
    NetworkError
        If `bn` is none of these, or the network is invalid.
    """
    if hasattr(bn, "toBN") and hasattr(bn, "atemporalVarNames"):
        return cast(BayesianNetwork, from_ktbn(bn, from_pyagrum(bn.toBN())))
    if is_clg(bn):
        return cast(BayesianNetwork, from_clg(bn))
    if flag("two_slices", two_slices):
        return cast(BayesianNetwork, from_two_slices(from_pyagrum(bn)))
    if not (hasattr(bn, "cpt") and hasattr(bn, "variable") and hasattr(bn, "nodes")):
        raise NetworkError(f"expected a BayesNet, InfluenceDiagram or KTBN of pyAgrum, got a {type(bn).__name__}")
    is_diagram = hasattr(bn, "isDecisionNode")
    states, parents, cpts, utilities, noisy = {}, {}, {}, {}, {}
    for i in sorted(bn.nodes()):
        variable, v = bn.variable(i), bn.variable(i).name()
        is_utility = is_diagram and bn.isUtilityNode(i)
        if not is_utility:
            states[v] = tuple(variable.labels())
        if is_diagram and bn.isDecisionNode(i):
            parents[v] = [bn.variable(p).name() for p in sorted(bn.parents(i))]
            continue
        if not is_diagram and (strengths := _strengths(bn.cpt(i))) is not None:
            parents[v], noisy[v] = list(bn.cpt(i).names[1:]), strengths
            continue
        parents[v], table = _table(v, bn.utility(i) if is_utility else bn.cpt(i))
        if is_utility:
            utilities[v] = np.ascontiguousarray(table[..., 0])
        else:
            cpts[v] = table
    cpts, report = normalize_rows(cpts)
    try:
        name = str(bn.property("name"))
    except Exception:  # pyAgrum raises its own error if the network has no name
        name = ""
    if not is_diagram:
        return BayesianNetwork(states, parents, {**cpts, **noisy}, name=name, row_report=report)
    decisions = [v for v in states if v not in cpts]
    made = DecisionNetwork(
        states, parents, cpts, decisions=decisions, utilities=utilities, name=name, row_report=report
    )
    return cast(BayesianNetwork, made)


def _is_or(noisy: NoisyMax) -> bool:
    """Whether pyAgrum has such nodes: of two states, the first ones without effect, and of fewer than 2^63 entries."""
    has_none = not noisy.least and all(rows[0, 0] == 1 and rows[1, 1] > 0 for rows in noisy.effects if len(rows) == 2)
    return set(noisy.shape) == {2} and len(noisy.shape) < 63 and has_none


def _strengths(tensor: Any) -> NoisyMax | None:
    """The strengths of a noisy-OR or noisy-AND table, which pyAgrum computes and does not name; None for another."""
    # Only tables that are computed take less memory than their numbers. One state of the child has products of a number
    # for each parent, which the rows with one parent apart give; other rows have to agree with them.
    n = tensor.nbrDim() - 1
    if any(tensor.variable(i).domainSize() != 2 for i in range(n + 1)) or tensor.memoryFootprint() >= 8 << (n + 1):
        return None
    at = module().Instantiation(tensor)

    def entry(states: NDArray[np.int64]) -> float:
        for i, s in enumerate(states.tolist()):
            at.chgVal(tensor.variable(i), s)
        return float(tensor.get(at))

    fitting: list[tuple[float, int, NoisyMax]] = []  # where one state is all but certain, several forms may fit
    random = np.random.default_rng(0).integers(0, 2, (MOST_COMPARED, n))
    for least, rest in ((0, 0), (1, 0), (1, 1)):
        base = np.append(least, np.full(n, rest))
        first = entry(base)
        if not first > 0:
            continue
        ratios = [entry(np.where(np.arange(n + 1) == i, 1 - base, base)) / first for i in range(1, n + 1)]
        factors = np.array([[1.0, r][:: 1 - 2 * rest] for r in ratios]) / np.maximum(ratios, 1.0)[:, None]
        none = min(first * math.prod(max(r, 1.0) for r in ratios), 1.0)
        rows = np.stack([factors, 1 - factors], axis=-1)[..., :: 1 - 2 * least]
        made = NoisyMax([*rows], [none, 1 - none][:: 1 - 2 * least], strongest="first" if least else "last")
        errors = []
        for state in (least, 1 - least):
            known = np.array([entry(np.append(state, row)) for row in random])
            own = made.at(np.insert(random, n, state, axis=1).astype(np.int32))
            errors.append(float((np.abs(own - known) / np.maximum(np.maximum(own, known), 1e-300)).max()))
        if errors[0] <= TOLERANCE:
            fitting.append((max(errors), least, made))
    return min(fitting, key=lambda one: one[:2])[2] if fitting else None


def _table(v: str, tensor: Any) -> tuple[list[str], Floats]:
    """The parents of a table, and its numbers: the parents in order, the child last."""
    child, *before = tensor.names
    if child != v:
        raise NetworkError(f"the first variable of the table of {v!r} is {child!r}")
    # a copy: the array is a view of memory that pyAgrum owns
    axes = range(len(before), -1, -1)
    table = np.array(tensor.toarray(), np.float64).transpose(list(axes))  # child, then parents in order
    return before, np.ascontiguousarray(np.moveaxis(table, 0, -1))


def to_pyagrum(net: DiscreteModel | MixedNetwork, *, two_slices: bool = False) -> Any:
    """Convert a Bayesian network to a ``BayesNet``, a dynamic network to a ``KTBN``; ids are numbers of variables.

    Parameters
    ----------
    net : BayesianNetwork, DynamicNetwork or MixedNetwork
        A `MixedNetwork` of numbers only becomes a ``pyagrum.clg.CLG``.
    two_slices : bool
        Whether a dynamic network becomes a ``BayesNet`` of two slices, ``rain0`` and ``raint``, for
        ``pyAgrum.lib.dynamicBN``.

    Raises
    ------
    FormatError
        If the model is neither, a variable has several states of the same name, or a 2-TBN cannot represent it.
    ImportError
        If pyAgrum is not installed.
    """
    if isinstance(net, MixedNetwork):
        return to_clg(net)
    gum = module()
    if isinstance(net, DynamicNetwork):
        if flag("two_slices", two_slices):
            return to_pyagrum(as_two_slices(net))
        ktbn: Any = importlib.import_module("pyagrum.ktbn").KTBN
        return ktbn.fromBN(to_pyagrum(net.unroll(net.order + 1)), set(net.static))
    if not isinstance(net, BayesianNetwork):
        raise FormatError(f"a BayesNet of pyAgrum cannot represent a {type(net).__name__}")
    bn = gum.BayesNet(net.name)
    for v in net.variables:
        labels = net.states(v)
        if len(set(labels)) < len(labels):
            raise FormatError(f"pyAgrum needs distinct state names: {v!r} has {list(labels)}")
        noisy = net.noisy.get(v)
        if noisy is None or not _is_or(noisy):
            net.cpt(v)  # pyAgrum would end the process for one that is too large
            bn.add(gum.LabelizedVariable(v, v, list(labels)))
        else:
            bn.addNoisyORNet(gum.LabelizedVariable(v, v, list(labels)), float(noisy.leak_row[1]))
    for v in net.variables:
        if v in net.noisy and _is_or(net.noisy[v]):
            for p, rows in zip(net.parents(v), net.noisy[v].effects, strict=True):
                bn.addWeightedArc(p, v, float(rows[1, 1]))
            continue
        for p in net.parents(v):
            bn.addArc(p, v)
        before = bn.cpt(v).names[1:]
        order = [net.parents(v).index(p) for p in before]
        # the child varies fastest, then its first parent
        table = net.cpt(v).transpose([*reversed(order), len(order)])
        bn.cpt(v).fillWith(np.ascontiguousarray(table).ravel().tolist())
    return bn
