"""The arguments of `fit` that concern the model, checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ...columns.schema import warn_of_near_equal
from ...errors import ArgumentError, DataError, closest
from ...model.cpt import with_labels
from ...model.directed import DirectedModel
from ...model.discrete import DiscreteModel
from ...model.network import BayesianNetwork
from ...model.states import CodesByVariable
from ...options.learning import Keys
from ...util.arguments import choice, described, mapping, names, several, whole_number
from ...util.arrays import Bools, Floats
from ..discretisation import Discretiser
from .coded_cases import table_columns
from .families import (
    CptFamily,
    GivenStructure,
    Sharing,
    check_sizes,
    expected_prior_counts,
    family_scopes,
    family_shapes,
)
from .sources import CaseSource


class Columns(NamedTuple):
    """How a table of sequences is read."""

    keys: Keys
    likelihood: Mapping[str, Any] | None
    weights: Any
    missing: str
    dialect: Any
    na_values: Any


class Model(NamedTuple):
    """The arguments that concern the model; see `fit`."""

    states: Any
    bins: int | None
    prior: Any
    zeros: str
    fixed: Any
    tied: Any
    hidden: Any
    start: Any
    max_table: int
    codes: CodesByVariable | None


# Priors of CPTs: what is added to the counts of each entry.


def read_prior(prior: Any, model: DirectedModel, network: BayesianNetwork | None) -> list[Floats]:
    """The numbers that are added to the counts of each CPT.

    A Dirichlet prior with parameters alpha has its posterior mode at counts + alpha - 1, so these are alpha - 1.
    """
    # prior: A number >= 0 for every entry; ``"bdeu:ESS"``: ESS divided by the number of entries of the CPT;
    #     ``"net:ESS"``: ESS times the joint distribution of the family in `network`; a mapping from variable to a
    #     number or an array of the shape of its CPT, 0 for variables that it omits
    # raises ArgumentError: If it is nothing of that kind.
    shapes = family_shapes(model)
    if isinstance(prior, str):
        kind, _, text = prior.partition(":")
        ess = sample_size(prior, text)
        if kind == "bdeu":
            return [np.full(shape, ess / math.prod(shape)) for shape in shapes]
        if kind == "net":
            if network is None:
                raise ArgumentError(
                    f"pseudo_counts={prior!r} requires a network with CPTs as the structure, or as start="
                )
            expected = expected_prior_counts(network, ess)  # in the order of its variables
            return [expected[network.index(v)] for v in model]
        raise ArgumentError(f"pseudo_counts must be a number, 'bdeu:ESS', 'net:ESS' or a mapping, not {prior!r}")
    if isinstance(prior, Mapping):
        for v in prior:
            if v not in model:
                raise ArgumentError(f"pseudo_counts: there is no variable {v!r}{closest(str(v), model.variables)}")
        scopes = zip(model, family_scopes(model), shapes, strict=True)
        return [
            _entries(v, with_labels(model, scope, prior.get(v, 0.0), f"the table of pseudo-counts of {v!r}"), shape)
            for v, scope, shape in scopes
        ]
    if isinstance(prior, bool) or np.ndim(prior) != 0:
        raise ArgumentError(
            f"pseudo_counts must be a number, 'bdeu:ESS', 'net:ESS' or a mapping, not {described(prior)}"
        )
    return [_entries("", prior, shape) for shape in shapes]


def tied_prior(
    counts: list[Floats], prior: object, model: DirectedModel, groups: Sequence[tuple[int, ...]]
) -> list[Floats]:
    """The prior of each CPT that several variables share, at the first variable of its group.

    A mapping may name any one of them; those that it names must agree. A prior from the network, as many cases as its
    sample size, counts in each family of the group, as the cases of a table do.
    """
    tied = list(counts)
    for group in groups:
        if isinstance(prior, Mapping):
            named = [v for v in group if model.variables[v] in prior]
            if named and any(not np.array_equal(counts[v], counts[named[0]]) for v in named):
                listed = " and ".join(repr(model.variables[v]) for v in named)
                raise ArgumentError(f"tied: {listed} share one CPT, but have different priors; name one of them")
            tied[group[0]] = counts[named[0]] if named else counts[group[0]]
        elif isinstance(prior, str) and prior.startswith("net:"):
            tied[group[0]] = np.sum([counts[v] for v in group], axis=0)
    return tied


def sample_size(prior: str, text: str) -> float:
    """The equivalent sample size of a prior that is a text."""
    try:
        size = float(text)
    except ValueError:
        size = math.nan
    if not (size > 0 and math.isfinite(size)):
        raise ArgumentError(f"pseudo_counts={prior!r} needs an equivalent sample size above 0, as in 'bdeu:10'")
    return size


def _entries(name: str, value: object, shape: tuple[int, ...]) -> Floats:
    """Finite numbers >= 0 of the shape of a CPT."""
    where = f"the pseudo-counts of {name!r}" if name else "pseudo_counts"
    try:
        entries = np.asarray(value, np.float64)
        entries = np.array(np.broadcast_to(entries, shape))
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"{where} must be a number or an array of shape {shape}, not {described(value)}") from None
    if not np.isfinite(entries).all() or (entries < 0).any():
        raise ArgumentError(f"{where} must have finite numbers >= 0")
    return entries


# Starts of the EM algorithm.

STARTS = ("auto", "given", "counts", "uniform", "random")
SMALL = 1e-3  # share of a row that fills its zeros where they are free

Tables = list[Floats]


def make_start(  # noqa: PLR0913
    kind: str,
    model: DirectedModel,
    complete_counts: Callable[[], Tables],
    network: BayesianNetwork | None,
    prior: Tables,
    hidden: Sequence[int],
    rng: np.random.Generator,
    *,
    fill_zeros: bool = False,
) -> Tables:
    """CPTs to start from."""
    # kind: {"auto", "given", "counts", "uniform", "random"}: ``"given"``: those of `network`. ``"counts"``, ``"auto"``:
    #     each family from the rows in which it is complete, plus the prior and one row of equal shares, so that no
    #     entry is 0; with ``"auto"``, families with a hidden variable are random. ``"random"``: every row is uniformly
    #     distributed over all distributions.
    # complete_counts: Counts of each family over the rows in which it is complete
    # hidden: sequence of int: Hidden variables
    # fill_zeros: Whether zeros of `network` become small numbers
    # raises ArgumentError: For ``"given"`` without a network, and for ``"uniform"`` and ``"counts"`` with hidden
    #     variables: where all states of a hidden variable are alike, they stay alike.
    shapes = family_shapes(model)
    if kind == "given":
        if network is None:
            raise ArgumentError("start='given' requires a network with CPTs as the structure, or as start=")
        tables = [np.array(network.cpt(v), np.float64) for v in model]
        return [_filled(t) for t in tables] if fill_zeros else tables
    if hidden and kind in ("uniform", "counts"):
        names = ", ".join(repr(model.variables[v]) for v in hidden)
        raise ArgumentError(
            f"start={kind!r} would make all states of the hidden variables alike ({names}), and EM could not tell them "
            "apart; use start='auto' or 'random'"
        )
    if kind == "uniform":
        return [np.full(shape, 1.0 / shape[-1]) for shape in shapes]
    random = [_random(shape, rng) for shape in shapes]  # of all families, so that each one depends on the seed alone
    if kind == "random":
        return random
    counts = complete_counts()
    is_hidden = set(hidden)
    return [
        random[v] if is_hidden.intersection(scope) else _normalised(counts[v] + prior[v] + 1.0 / shapes[v][-1])
        for v, scope in enumerate(family_scopes(model))
    ]


def _random(shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    return _normalised(rng.standard_exponential(shape) + 1e-9)


def _normalised(table: Floats) -> Floats:
    return np.asarray(table / table.sum(axis=-1, keepdims=True))


def _filled(table: Floats) -> Floats:
    """The table with a small share of each row that has zeros spread evenly."""
    zero = (table == 0).any(axis=-1, keepdims=True)
    return np.where(zero, (1 - SMALL) * table + SMALL / table.shape[-1], table)


@dataclass(frozen=True)
class Setup:
    """The checked arguments of `fit`."""

    model: DirectedModel
    network: BayesianNetwork | None  # with the numbers to start from
    columns: list[str]
    hidden: tuple[str, ...]
    states_from_data: tuple[str, ...]
    prior: Tables
    sharing: Sharing
    start: str
    keep_zeros: bool
    ends: Mapping[str, tuple[float, float]]  # least and greatest number of variables that were cut into intervals
    strengths: Mapping[str, tuple[Floats, Bools]] = field(default_factory=dict)  # see `Unfolded`

    def with_strengths(self, strengths: Mapping[str, tuple[Floats, Bools]]) -> Setup:
        """The setup with strengths to start from; rows of states without effect have no prior."""
        prior = list(self.prior)
        for name, (_, free) in strengths.items():
            prior[self.model.index(name)] = prior[self.model.index(name)] * free
        return replace(self, prior=prior, strengths=strengths)

    @property
    def families(self) -> tuple[CptFamily, ...]:
        return tuple(CptFamily(group, self.prior[group[0]]) for group in self.sharing.groups)

    @property
    def hidden_numbers(self) -> list[int]:
        return [self.model.index(v) for v in self.hidden]

    @property
    def keeps_zeros(self) -> bool:
        """Whether entries of 0 of the start stay 0: then a row may be impossible."""
        if self.sharing.fixed:
            return True
        network = self.network
        return (
            self.keep_zeros
            and self.start == "given"
            and network is not None
            and any((network.cpt(v) == 0).any() for v in network)
        )

    def start_tables(self, complete_counts: Callable[[], Tables], seed: int, n: int) -> Tables:
        """The n-th start: the first by `start`, the others random where that alone would repeat it."""
        rng = np.random.default_rng([seed, n])
        kind = self.start if n == 0 or (self.start == "auto" and self.hidden) else "random"
        tables = make_start(
            kind, self.model, complete_counts, self.network, self.prior, self.hidden_numbers, rng,
            fill_zeros=not self.keep_zeros,
        )  # fmt: skip
        for name, (rows, free) in self.strengths.items():
            v = self.model.index(name)
            tables[v] = np.where(free, _filled(rows) if self.start == "auto" and n == 0 else tables[v], rows)
        if self.sharing.fixed:
            assert self.network is not None
            for v in self.sharing.fixed:
                tables[v] = np.array(self.network.cpt(v))
        for group in self.sharing.groups:
            for v in group[1:]:
                tables[v] = tables[group[0]]
        return tables


def set_up(
    given: GivenStructure, source: CaseSource, asked: Model, weights: object, memory_limit: float | str | None
) -> Setup:
    """Check the arguments that concern the model."""
    variables = tuple(given.parents)
    network, start = given.network, asked.start
    if isinstance(start, BayesianNetwork):
        network, start = start, "given"
        if set(network.variables) != set(variables) or any(network.parents(v) != given.parents[v] for v in variables):
            raise ArgumentError("start: the network has other variables or parents than the structure")
    choice("start", start, STARTS)
    name = network.name if network is not None else ""
    shell = DirectedModel(dict.fromkeys(variables, ("",)), given.parents, name=name)
    hide = hidden_states(asked.hidden, network, variables)
    columns = table_columns(shell, source, tuple(hide), weights if isinstance(weights, str) else None)
    states, ends = of_discretiser(asked.states, variables)
    known = states_given(states, network, variables) | hide
    unknown = [c for c in columns if c not in known]
    schema = source.schema(unknown, None if asked.bins is None else whole_number("bins", asked.bins, 2))
    known |= schema.states
    schema.warn()
    warn_of_near_equal({v: known[v] for v in unknown})
    for v in source.likelihood:
        if v not in known:
            raise without_states(v)
    model = DirectedModel({v: known[v] for v in variables}, given.parents, name=name)
    model = model.with_codes(network.state_codes if network is not None and asked.codes is None else asked.codes)
    check_sizes(model, asked.max_table, memory_limit)
    if network is not None and any(network.states(v) != model.states(v) for v in variables):
        if start == "given" or asked.fixed:
            v = next(v for v in variables if network.states(v) != model.states(v))
            raise ArgumentError(f"states: {v!r} has other states in the network, so its CPT cannot be used")
        network = None
    sharing = read_sharing(model, network, asked.fixed, asked.tied)
    keep = asked.zeros == "keep"
    counts = kept_prior(asked.prior, model, network, sharing, keeps=keep and start == "given")
    ends |= schema.ends
    return Setup(model, network, columns, tuple(hide), tuple(unknown), counts, sharing, start, keep, ends)


def kept_prior(
    prior: object, model: DirectedModel, network: BayesianNetwork | None, sharing: Sharing, *, keeps: bool
) -> Tables:
    """The prior of every CPT; `keeps`: none where the network has an entry of 0."""
    counts = tied_prior(read_prior(prior, model, network), prior, model, sharing.groups)
    if keeps and network is not None:
        counts = [c * (network.cpt(v) > 0) for v, c in zip(model, counts, strict=True)]
    return [np.asarray(c, np.float64) for c in counts]


def read_sharing(model: DirectedModel, network: BayesianNetwork | None, fixed: object, tied: object) -> Sharing:
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


# The states of every variable of a fit: given, of the network, or those in the data.

def hidden_states(
    hidden: object, network: DiscreteModel | None, variables: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """States of the hidden variables."""
    # hidden: mapping, name, or iterable of names: Variable to its number of states or their names; None, or a name
    #     alone: the states of the network
    # raises ArgumentError: If a variable or its states are unknown, differ from the network's, or are fewer than 2.
    given = dict(hidden) if isinstance(hidden, Mapping) else dict.fromkeys(names("hidden", hidden))
    labels = {}
    for v, states in given.items():
        if v not in variables:
            raise ArgumentError(f"hidden: there is no variable {v!r}{closest(str(v), variables)}")
        known = network.states(v) if network is not None else None
        if isinstance(states, int) and not isinstance(states, bool):
            own: tuple[str, ...] = tuple(map(str, range(states)))
            if known is not None and len(known) == states:
                own = known
        elif states is None:
            if known is None:
                raise ArgumentError(f"hidden variable {v!r}: give its number of states, as in hidden={{{v!r}: 2}}")
            own = known
        else:
            own = tuple(map(str, several(states) or ()))
        if known is not None and own != known:
            raise ArgumentError(f"hidden variable {v!r} has {len(known)} states in the network, not {states!r}")
        if len(own) < 2 or len(set(own)) < len(own):
            wrong = f"the network's {list(own)}" if states is None else repr(states)
            raise ArgumentError(f"hidden variable {v!r} needs at least 2 different states, not {wrong}")
        labels[v] = own
    return labels


def states_given(
    states: Mapping[str, Iterable[object]] | None, network: BayesianNetwork | None, variables: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """States that need no data: of the network, replaced by those of `states`."""
    # raises ArgumentError: If `states` names another variable, or gives a variable no or repeated states.
    labels = {v: network.states(v) for v in variables} if network is not None else {}
    for v, given in mapping("states", states).items():
        if v not in variables:
            raise ArgumentError(f"states: there is no variable {v!r}{closest(str(v), variables)}")
        own = tuple(map(str, several(given) or ()))
        if not own or len(set(own)) < len(own):
            raise ArgumentError(f"states: {v!r} needs different names of states, not {described(given)}")
        labels[v] = own
    return labels


def without_states(v: str) -> DataError:
    """The error for a variable of likelihoods alone."""
    return DataError(
        f"{v!r} has likelihoods and no column, so its states must be given: states={{{v!r}: [...]}}"
    )


def of_discretiser(states: object, variables: Iterable[str]) -> tuple[Any, dict[str, tuple[float, float]]]:
    """The argument `states`, and the ends of intervals of numbers if it is a `Discretiser`."""
    if not isinstance(states, Discretiser):
        return states, {}
    labels, scales = states.states, states.scales_
    known = [v for v in variables if v in labels]
    return {v: labels[v] for v in known}, {
        v: (scales[v].least, scales[v].greatest) for v in known if scales[v].kind == "numbers"
    }
