"""`fit` of a dynamic network from sequences: EM with tied slices, or counting where nothing is missing.

The E-step of sequences: expected counts of a dynamic network, as those of the network of its first slices.

A dynamic network of order k has the CPTs of its unrolled network of k + 1 slices, where those of slices with equal
parents are one. Learning over time is `fit` of that network with tied variables, whose counts are added over slices.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ...columns import as_numbers, is_frame, open_table
from ...columns.files import in_memory
from ...dynamic.counts import SliceCounts, complete_counts, expected_counts
from ...dynamic.sequences import Sequences, read_sequences
from ...dynamic.step import Step
from ...errors import ArgumentError, DataError, ImpossibleEvidence, closest
from ...model.directed import DirectedModel
from ...model.dynamic import DynamicNetwork, with_tables
from ...util.arguments import choice, mapping, names, several
from ...util.arrays import Bools, Floats
from ...util.calls import outside
from ...util.cells import MissingReport
from .em import EMState, fingerprints
from .expectation import PassResult
from .families import Sharing, check_sizes
from .result import Fit
from .runs import FitRun, best_of_starts, counted, named_errors
from .setup import STARTS, Columns, Model, Setup, hidden_states, kept_prior, read_sharing
from .template import known_states, template_of

if TYPE_CHECKING:
    from ...model.network import BayesianNetwork
    from ...util.options import BackendName


def fit_sequences(structure: Any, cases: Any, columns: Columns, model: Model, run: FitRun) -> Fit[DynamicNetwork]:
    """Fit a dynamic network; see `jtgpu.learn.fit`."""
    choice("missing", columns.missing, ("em", "error"))
    choice("zeros", model.zeros, ("keep", "free"))
    without_order(run.em.order)
    cases = in_memory(cases, columns.dialect, columns.na_values, known_states(structure, model.states))
    has_numbers = isinstance(structure, DynamicNetwork)
    start = model.start
    if isinstance(start, DynamicNetwork):
        dyn = template_of(structure, cases, model.states, model.hidden, model.bins)
        if not dyn.has_structure_of(start):
            raise ArgumentError("start: the network has other variables, states or parents than the structure")
        dyn, has_numbers, start = start, True, "given"
    else:
        dyn = template_of(structure, cases, model.states, model.hidden, model.bins)
    dyn = dyn.with_codes(model.codes)
    choice("start", start, STARTS)
    hidden = tuple(hidden_states(model.hidden, dyn, dyn.variables))
    sequences = read_sequences(
        dyn, cases, keys=columns.keys, likelihood=mapping("likelihood", columns.likelihood),
    )  # fmt: skip
    weights = weights_of(columns.weights, sequences, cases)
    holes = holes_of(dyn, sequences, hidden, columns.missing)
    slices = FirstSlices(dyn)
    setup = set_up(slices, has_numbers, model, hidden, start)
    _warn_of_few(slices, setup.sharing, sequences.lengths[weights > 0])
    with closing(SliceExpectation(slices, sequences, weights, run)) as engine:
        method = "em"
        if not hidden and not any(holes.values()) and not setup.keeps_zeros and _is_plain(dyn, sequences):
            state, method = counted(setup, engine.complete_counts, run.em.seed), "counts"
            more: dict[str, Any] = {"restarts": (state.objective,)}
        else:
            state, more = best_of_starts(setup, engine, run, lambda: fingerprints(setup, engine.digest()))
        if run.em.standard_errors:
            errors = named_errors(setup, state, engine if method == "em" else None, run)
            more["_errors"] = {title: errors[v] for v in errors if (title := slices.title(v)) is not None}
    weightless = {"n_weightless": int((weights <= 0).sum()), "missing": MissingReport(holes)}
    return result_of(slices, setup, state, method, sequences, engine.weights, {**more, **weightless})


def without_order(order: object) -> None:
    """Raise if an elimination order is given."""
    if not isinstance(order, str) or order != "auto":
        raise ArgumentError("order= is for networks without slices: the plan of a slice keeps its interfaces together")


def set_up(slices: FirstSlices, has_numbers: bool, given: Model, hidden: tuple[str, ...], start: str) -> Setup:
    """The fit of the network of the first slices, with tied variables."""
    net = slices.network
    model = DirectedModel({v: net.states(v) for v in net}, {v: net.parents(v) for v in net}, name=slices.dyn.name)
    check_sizes(model, given.max_table)
    network = net if has_numbers else None
    fixed = [name for one in names("fixed", given.fixed) for name in slices.named("fixed", one)]
    sharing = read_sharing(model, network, fixed, _tied(slices, given.tied, fixed))
    prior = kept_prior(
        _prior(slices, given.prior), model, network, sharing, keeps=given.zeros == "keep" and start == "given"
    )
    concealed = tuple(name for v in hidden for name in slices.every(v))
    return Setup(model, network, [], concealed, (), prior, sharing, start, given.zeros == "keep", {})


def _tied(slices: FirstSlices, given: object, fixed: list[str]) -> list[list[str]]:
    """Groups of names that share a CPT: those of later slices, and those of variables that are tied."""
    listed = [] if given is None else several(given)
    if listed is None or any(several(members) is None for members in listed):
        raise ArgumentError("tied must be groups of names, such as [('a', 'b')]")
    groups: list[list[str]] = []
    joined: set[str] = set()
    for members in listed:
        own = names("tied", members)
        for v in own:
            if v not in slices.dyn:
                raise ArgumentError(f"tied: there is no variable {v!r}{closest(str(v), slices.dyn.variables)}")
        joined |= {*own}
        groups.append([name for v in own for name in slices.later(v)])
        starts = [slices.start(v) for v in own]
        groups += [[first[t] for first in starts if t < len(first)] for t in range(max(map(len, starts)))]
    held = set(fixed)
    groups += [g for v, g in zip(slices.dyn.variables, slices.groups(), strict=True) if v not in joined]
    return [g for g in groups if len(g) > 1 and not (held.issuperset(g))]


def _prior(slices: FirstSlices, given: object) -> Any:
    """A prior by names of the first slices: numbers of a variable hold for all its CPTs, arrays for later slices."""
    if not isinstance(given, Mapping):
        return given
    made: dict[str, Any] = {}
    for v, value in sorted(given.items(), key=lambda item: item[0] not in slices.dyn):
        own = slices.named("prior", v)
        if v in slices.dyn and np.ndim(value) > 0:
            own = slices.later(v)
        made |= dict.fromkeys(own, value)
    return made


# Sequences.


def weights_of(given: object, sequences: Sequences, cases: object) -> Floats:
    """Weights of the sequences, (N,)."""
    if given is None:
        return np.ones(sequences.n)
    if isinstance(given, str):
        if not (is_frame(cases) or isinstance(cases, Mapping)) or sequences.source is None:
            raise DataError(f"weights={given!r} names a column of a long frame; give a number for each sequence")
        table = open_table(None, cases)
        column = as_numbers(table.column(given)) if given in table.names else None
        if column is None:
            raise DataError(f"there is no column {given!r} of weights that are numbers{closest(given, table.names)}")
        own = sequences.source >= 0
        number = np.repeat(np.arange(sequences.n), sequences.lengths)[own]
        each = column[sequences.source[own]]
        weights = np.zeros(sequences.n)
        weights[number] = each
        bad = np.flatnonzero(weights[number] != each)
        if len(bad):
            raise DataError(
                f"{sequences.name(int(number[bad[0]]), 0)}: column {given!r} has several weights; a sequence has one"
            )
    else:
        try:
            weights = np.array(given, np.float64)
        except (TypeError, ValueError, OverflowError):
            raise DataError("weights must be numbers, one for each sequence, or the name of a column") from None
    if weights.shape != (sequences.n,):
        raise DataError(f"weights has shape {weights.shape}, expected ({sequences.n},): one number for each sequence")
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        raise DataError(f"sequence {wrong[0]}: the weight {weights[wrong[0]]:g} must be finite and at least 0")
    if not weights.any():
        raise DataError("all weights are zero")
    return weights


def _observed(dyn: DynamicNetwork, sequences: Sequences, v: int) -> Bools:
    """The slices in which a variable is observed, (R,); in all of a sequence, a static variable that is in one."""
    seen: Bools = sequences.codes[:, v] >= 0
    if v in sequences.likelihood:
        seen = seen | (sequences.likelihood[v] != 1.0).any(axis=1)
    if dyn.variables[v] in dyn.static:
        seen = np.repeat(np.logical_or.reduceat(seen, sequences.ptr[:-1]), sequences.lengths)
    return seen


def holes_of(
    dyn: DynamicNetwork, sequences: Sequences, hidden: tuple[str, ...], rule: str,
    values: Mapping[str, Floats] = MappingProxyType({}),
) -> dict[str, int]:  # fmt: skip
    """Missing cells of each variable that is not hidden, and of numbers with these values."""
    holes = {}
    every = {name: _observed(dyn, sequences, v) for v, name in enumerate(dyn.variables)}
    for name, seen in (every | {y: ~np.isnan(x) for y, x in values.items()}).items():
        if name in hidden:
            if seen.any():
                raise DataError(f"{name!r} is declared hidden, but the sequences have states of it")
            continue
        if not seen.any():
            raise DataError(
                f"no sequence has a state of {name!r}; if the variable is never observed, declare it: "
                f"hidden={{{name!r}: {len(dyn.states(name))}}}"
            )
        if rule == "error" and not seen.all():
            row = int(np.argmax(~seen))
            i = int(np.searchsorted(sequences.ptr, row, side="right")) - 1
            raise DataError(
                f"{sequences.name(i, row - int(sequences.ptr[i]))}: the cell of {name!r} is missing "
                '(missing="em" fits with missing cells)'
            )
        if not seen.all():
            holes[name] = int((~seen).sum())
    return holes


def _is_plain(dyn: DynamicNetwork, sequences: Sequences) -> bool:
    """Whether there are no likelihoods, and static variables have one state in each sequence."""
    if sequences.likelihood:
        return False
    for v in dyn.static:
        codes = sequences.codes[:, dyn.index(v)]
        highest = np.repeat(np.maximum.reduceat(codes, sequences.ptr[:-1]), sequences.lengths)
        if ((codes >= 0) & (codes != highest)).any():
            return False
    return True


def _warn_of_few(slices: FirstSlices, sharing: Sharing, lengths: Any) -> None:
    """Warn of CPTs that one sequence decides."""
    few = [
        name for v in slices.dyn.variables for t, name in enumerate(slices.start(v))
        if slices.network.index(name) not in sharing.fixed and int((lengths > t).sum()) == 1
    ]  # fmt: skip
    if few:
        warnings.warn(
            f"one sequence does not determine the CPTs of the first slices ({', '.join(few)}): fixed={few} keeps those "
            "of the network, and fit.network.stationary() starts from the limit", UserWarning, stacklevel=outside(),
        )  # fmt: skip


def result_of(
    slices: FirstSlices, setup: Setup, state: EMState, method: str, sequences: Sequences, weights: Floats,
    more: Mapping[str, object],
) -> Fit[DynamicNetwork]:  # fmt: skip
    """The fit of some CPTs and counts."""
    dyn, evaluation = slices.dyn, state.evaluation
    estimated = {v for group in setup.sharing.groups for v in group}
    counts = {}
    for v, name in enumerate(setup.model):
        title = slices.title(name)
        if title is not None and v in estimated:
            counts[title] = evaluation.sums[v]
    unseen = {}
    for v, name in enumerate(dyn.variables):
        present = np.unique(sequences.codes[:, v])
        if not _observed(dyn, sequences, v).any() or v in sequences.likelihood:
            continue
        absent = tuple(s for k, s in enumerate(dyn.states(name)) if k not in present)
        if absent:
            unseen[name] = absent
    titles = [slices.title(setup.model.variables[v]) for v in setup.sharing.fixed]
    used = weights > 0
    return Fit._of(
        slices.network_of(state.tables), state, method, counts, int(sequences.lengths[used].sum()), unseen=unseen,
        hidden=tuple(v for v in dyn.variables if setup.hidden and slices.every(v)[0] in setup.hidden),
        fixed=tuple(t for t in titles if t is not None), n_sequences=int(used.sum()), **more,
    )  # fmt: skip


Tables = list["Floats"]


class FirstSlices:
    """The CPTs of a dynamic network by names in its first slices.

    ``rain[0]`` is the CPT in slice 0. The CPT of later slices has the names of all slices in which all parents exist.
    """

    def __init__(self, dyn: DynamicNetwork):
        self.dyn, self.n = dyn, dyn.order + 1
        self.network: BayesianNetwork = dyn.unroll(self.n)
        self._n_start = {v: len(dyn.start(v)) for v in dyn.variables}
        index = self.network.index
        self._places = [(index(self.later(v)[0]), [index(name) for name in self.start(v)]) for v in dyn.variables]

    def _name(self, v: str, t: int) -> str:
        return v if v in self.dyn.static else f"{v}[{t}]"

    def start(self, v: str) -> list[str]:
        """Names of the CPTs of a variable in the first slices."""
        return [self._name(v, t) for t in range(self._n_start[v])]

    def later(self, v: str) -> list[str]:
        """Names of the CPT of a variable in later slices."""
        return [self._name(v, t) for t in range(self._n_start[v], 1 if v in self.dyn.static else self.n)]

    def every(self, v: str) -> list[str]:
        """All names of a variable."""
        return self.start(v) + self.later(v)

    def named(self, option: str, given: Any) -> list[str]:
        """The names that an option means: of a variable all, or of one of the first slices."""
        if given in self.dyn:
            return self.every(str(given))
        starts = [name for v in self.dyn.variables for name in self.start(v)]
        if given not in starts:
            raise ArgumentError(
                f"{option}: there is no variable {given!r}{closest(str(given), [*self.dyn.variables, *starts])}"
            )
        return [str(given)]

    def title(self, name: str) -> str | None:
        """The name of a CPT in a result: ``rain`` for later slices, ``rain[0]``; None for further names of it."""
        for v in self.dyn.variables:
            if name in self.start(v):
                return name
            if name == self.later(v)[0]:
                return v
        return None

    def groups(self) -> list[list[str]]:
        """Names that are of one CPT."""
        return [self.later(v) for v in self.dyn.variables]

    def network_of(self, tables: Tables) -> DynamicNetwork:
        """The dynamic network of the CPTs of the first slices."""
        cpts, starts = self._by_variable(tables)
        start = {v: own[0] if len(own) == 1 else own for v, own in zip(self.dyn, starts, strict=True) if own}
        return self.dyn.replace(cpt=dict(zip(self.dyn, cpts, strict=True)), start=start)

    def of_pass(self, tables: Tables) -> DynamicNetwork:
        """`network_of`, without the checks of a new network."""
        return with_tables(self.dyn, *self._by_variable(tables))

    def _by_variable(self, tables: Tables) -> tuple[list[Floats], list[list[Floats]]]:
        """The CPTs of later slices, and those of the first ones."""
        places = self._places
        return [tables[later] for later, _ in places], [[tables[i] for i in first] for _, first in places]

    def tables_of(self, counts: SliceCounts) -> Tables:
        """Counts by names: those of a CPT stand at its first name."""
        tables = [np.zeros(np.shape(self.network.cpt(v))) for v in self.network]
        for (later, first), cpt, start in zip(self._places, counts.cpts, counts.start, strict=True):
            tables[later] = cpt
            for i, table in zip(first, start, strict=True):
                tables[i] = table
        return tables


class SliceExpectation:
    """Expected counts of sequences; the plan and the programs are made once."""

    # weights: (N,) of the sequences; those that are left out have 0

    def __init__(self, slices: FirstSlices, sequences: Sequences, weights: Floats, run: FitRun):
        self._slices, self._sequences, self.weights = slices, sequences, weights
        backend: BackendName = "cpu" if run.backend == "auto" else run.backend  # type: ignore[assignment]
        threads = {"threads": run.compute.threads} if run.compute.threads is not None and backend == "cpu" else {}
        self._step = Step.of_families(slices.dyn, backend, threads)
        self._loaded: Tables | None = [np.asarray(slices.network.cpt(v)) for v in slices.network]

    def evaluate(self, tables: Tables) -> PassResult:
        """Expected counts of all sequences under some CPTs."""
        if self._loaded is None or not all(map(np.array_equal, tables, self._loaded)):  # most starts are those of `dyn`
            self._step.reload(self._slices.of_pass(tables))
            self._loaded = [*map(np.array, tables)]
        counts = expected_counts(self._step, self._sequences, self.weights)
        dead: Bools = (counts.failed >= 0) & (self.weights > 0)
        used = (counts.failed < 0) & (self.weights > 0)
        log_likelihood = float((self.weights[used] * counts.log_evidence[used]).sum())
        tables = self._slices.tables_of(counts)
        return PassResult(tables, log_likelihood, [dead], float(tables[0].sum()))

    def complete_counts(self) -> Tables:
        """Counts of each family over the slices in which it is complete."""
        return self._slices.tables_of(complete_counts(self._step, self._sequences, self.weights))

    def incomplete(self, members: object, k: int) -> bool:
        """Any sequence may depend on any parameter."""
        return True

    def some(self, theta: Tables, members: Any, tables: Sequence[Floats], rows: bool) -> Iterator[Tables]:
        """Expected counts of all sequences with each of some tables of a family."""
        for table in tables:
            yield self.evaluate([table if v in members else own for v, own in enumerate(theta)]).sums

    def each(self, theta: Tables) -> Iterator[tuple[float, Tables]]:
        """The weight of each sequence, and its own expected counts."""
        self._step.reload(self._slices.of_pass(theta))
        self._loaded = None
        for i in np.flatnonzero(self.weights > 0).tolist():
            counts = expected_counts(self._step, self._sequences.some(np.array([i])), np.ones(1))
            yield float(self.weights[i]), self._slices.tables_of(counts)

    def error(self, evaluation: PassResult) -> ImpossibleEvidence | None:
        """The error for the first sequence of probability 0."""
        dead = np.flatnonzero(evaluation.impossible[0])
        if not len(dead):
            return None
        i = int(dead[0])
        alone = expected_counts(self._step, self._sequences, self.weights)
        return ImpossibleEvidence(
            f"{self._sequences.name(i, int(alone.failed[i]))}: the evidence up to this slice has probability 0 at the "
            'start (on_error="flag" leaves such sequences out; zeros="free" lets zeros of the network change)'
        )

    def leave_out(self, evaluation: PassResult) -> tuple[int, bool]:
        """Leave out the sequences of probability 0."""
        dead = evaluation.impossible[0]
        self.weights = np.where(dead, 0.0, self.weights)
        return int(dead.sum()), bool((self.weights > 0).any())

    def digest(self) -> str:
        """A hash of all sequences."""
        data = hashlib.sha256()
        for array in (self._sequences.codes, self._sequences.ptr, self.weights):
            data.update(np.ascontiguousarray(array).tobytes())
        for v, weights in sorted(self._sequences.likelihood.items()):
            data.update(repr(v).encode() + np.ascontiguousarray(weights).tobytes())
        return data.hexdigest()

    def close(self) -> None:
        """Free the backend's memory."""
        self._step.close()
