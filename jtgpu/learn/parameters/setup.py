"""The arguments of `fit` that concern the model, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ArgumentError, DataError, closest
from ...model.directed import DirectedModel
from ...model.network import BayesianNetwork
from ...util.arguments import choice, described, names, several, whole_number
from .coded_cases import CodedCases, table_columns
from .families import Sharing, check_sizes, family_shapes
from .priors import read_prior, tied_prior
from .sources import CaseSource
from .starts import STARTS, make_start
from .state_names import hidden_states, states_given

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .structures import GivenStructure

Tables = list["NDArray[np.float64]"]


@dataclass(frozen=True)
class Setup:
    """What the arguments of `fit` say, checked."""

    model: DirectedModel
    network: BayesianNetwork | None  # with the numbers to start from
    source: CaseSource
    columns: list[str]
    hidden: tuple[str, ...]
    states_from_data: tuple[str, ...]
    prior: Tables
    sharing: Sharing
    start: str
    keep_zeros: bool

    @property
    def hidden_numbers(self) -> list[int]:
        return [self.model.index(v) for v in self.hidden]

    @property
    def keeps_zeros(self) -> bool:
        """Whether entries of 0 of the start stay 0: then a row may be impossible."""
        if self.sharing.fixed:
            return True
        network = self.network
        return self.keep_zeros and self.start == "given" and network is not None and any(
            (network.cpt(v) == 0).any() for v in network
        )  # fmt: skip

    def start_tables(self, cases: CodedCases, seed: int, n: int) -> Tables:
        """The n-th start: the first by `start`, the others random where that alone would repeat it."""
        rng = np.random.default_rng([seed, n])
        kind = self.start if n == 0 or (self.start == "auto" and self.hidden) else "random"
        tables = make_start(
            kind, cases, self.network, self.prior, self.hidden_numbers, rng, fill_zeros=not self.keep_zeros
        )
        if self.sharing.fixed:
            assert self.network is not None
            for v in self.sharing.fixed:
                tables[v] = np.array(self.network.cpt(v))
        for group in self.sharing.groups:
            for v in group[1:]:
                tables[v] = tables[group[0]]
        return tables


def set_up(  # noqa: PLR0913
    given: GivenStructure, source: CaseSource, *, states: Any, prior: Any, weights: Any, zeros: str, fixed: Any,
    tied: Any, hidden: Any, start: Any, max_table: int, bins: int | None,
) -> Setup:  # fmt: skip
    """Check the arguments that concern the model."""
    variables = tuple(given.parents)
    network = given.network
    if isinstance(start, BayesianNetwork):
        network, start = start, "given"
        if set(network.variables) != set(variables) or any(network.parents(v) != given.parents[v] for v in variables):
            raise ArgumentError("start: the network has other variables or parents than the structure")
    choice("start", start, STARTS)
    name = network.name if network is not None else ""
    shell = DirectedModel(dict.fromkeys(variables, ("",)), given.parents, name=name)
    hide = hidden_states(hidden, network, variables)
    columns = table_columns(shell, source, tuple(hide), weights if isinstance(weights, str) else None)
    known = states_given(states, network, variables) | hide
    unknown = [c for c in columns if c not in known]
    known |= source.states(unknown, None if bins is None else whole_number("bins", bins, 2))
    for v in source.likelihood:
        if v not in known:
            raise DataError(
                f"{v!r} has likelihoods and no column, so its states must be given: states={{{v!r}: [...]}}"
            )
    model = DirectedModel({v: known[v] for v in variables}, given.parents, name=name)
    check_sizes(model, whole_number("max_table", max_table, 1))
    if network is not None and any(network.states(v) != model.states(v) for v in variables):
        if start == "given" or fixed:
            v = next(v for v in variables if network.states(v) != model.states(v))
            raise ArgumentError(f"states: {v!r} has other states in the network, so its CPT cannot be used")
        network = None
    sharing = _sharing(model, network, fixed, tied)
    counts = tied_prior(read_prior(prior, model, network), prior, model, sharing.groups)
    keep = zeros == "keep"
    if keep and start == "given" and network is not None:
        counts = [c * (network.cpt(v) > 0) for v, c in zip(model, counts, strict=True)]
    counts = [np.asarray(c, np.float64) for c in counts]
    return Setup(model, network, source, columns, tuple(hide), tuple(unknown), counts, sharing, start, keep)


def _sharing(model: DirectedModel, network: BayesianNetwork | None, fixed: Any, tied: Any) -> Sharing:
    """Groups of tied variables, and fixed ones."""
    held = []
    for v in names("fixed", fixed):
        if v not in model:
            raise ArgumentError(f"fixed: there is no variable {v!r}{closest(str(v), model.variables)}")
        held.append(model.index(v))
    if held and network is None:
        raise ArgumentError("fixed requires a network with CPTs as the structure")
    shapes = family_shapes(model)
    group_of: dict[int, int] = {}
    groups: list[tuple[int, ...]] = []
    given = [] if tied is None else several(tied)
    if given is None or any(several(members) is None for members in given):
        raise ArgumentError(f"tied must be groups of names, such as [('a', 'b')], not {described(tied)}")
    for members in given:
        own = names("tied", members)
        for v in own:
            if v not in model:
                raise ArgumentError(f"tied: there is no variable {v!r}{closest(str(v), model.variables)}")
            if model.index(v) in group_of:
                raise ArgumentError(f"tied: {v!r} occurs twice")
            if model.index(v) in held:
                raise ArgumentError(f"tied: {v!r} is fixed")
            group_of[model.index(v)] = len(groups)
        if len(own) < 2:
            raise ArgumentError(f"tied: a group needs at least two variables, not {members!r}")
        numbers = tuple(model.index(v) for v in own)
        for v in numbers[1:]:
            if shapes[v] != shapes[numbers[0]]:
                raise ArgumentError(
                    f"tied: the CPTs of {own[0]!r} and {model.variables[v]!r} have the shapes {shapes[numbers[0]]} and "
                    f"{shapes[v]}, and cannot be one"
                )
        groups.append(numbers)
    alone = [(v,) for v in range(len(model)) if v not in group_of and v not in held]
    return Sharing(sorted([*groups, *alone]), tuple(sorted(set(held))))
