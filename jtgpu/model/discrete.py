"""`DiscreteModel`: variables with states, and factors over them."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import NetworkError, UnknownState, UnknownVariable, closest, shown
from ..util import late_imports
from ..util.arguments import check_keywords, choice, mapping
from ..util.cells import as_text, is_likelihood
from .states import (
    Codes,
    CodesByVariable,
    StateNumber,
    StateValues,
    likelihood_of,
    listed,
    no_likelihood,
    numbered,
)

if TYPE_CHECKING:
    from typing import Self, Unpack

    from numpy.typing import NDArray

    from ..util.late_imports import JunctionTree, NetworkPlan
    from ..util.options import BackendName, CompileOptions, Order, PlanOptions

MAX_AXES = 64 if int(np.__version__.split(".")[0]) > 1 else 32  # of a table: NumPy's limit
MAX_STATES = 1 << 22  # of all variables of a model; limits the memory that a short file or call can claim


class Factor(NamedTuple):
    """A non-negative table over some variables of a model."""

    scope: tuple[int, ...]  # variable ids, one an axis of the table, in the order of the axes
    table: NDArray[np.float64]  # shape: the cardinalities of the scope


class Labels(NamedTuple):
    """Names of a model by number, for results, which look them up more often than anything else.

    A look-up by an attribute of a model takes twice as long: its class has a `__getattr__`, for hints.
    """

    positions: dict[str, int]
    variables: tuple[str, ...]
    states: tuple[tuple[str, ...], ...]
    ends: dict[str, Any]  # least and greatest number of variables whose states are intervals, as attributes have them


@check_keywords(but=("index", "states", "state_index"))
class DiscreteModel(late_imports.Shown):
    """Variables with states, and factors over them.

    The base of Bayesian, Markov and decision networks, and of networks over time without numbers.

    Parameters
    ----------
    states : mapping of str to sequences of str
        The variables in order, with the names of their states.
    name : str, optional
    """

    state_codes: CodesByVariable = "names"  # see `with_codes`

    def __init__(self, states: Mapping[str, Sequence[str]], *, name: str = ""):
        self._name, states = str(name), mapping("states", states)
        self._variables = tuple(states)
        self._index = {v: i for i, v in enumerate(self._variables)}
        self._states = tuple(checked_states(v, states[v]) for v in self._variables)
        self._cardinality = np.array([len(s) for s in self._states], np.int64)
        self._cardinality.flags.writeable = False
        if (total := int(self._cardinality.sum())) > MAX_STATES:
            raise NetworkError(f"all variables have {total:,} states in total; a model can have {MAX_STATES:,}")
        self._factors: tuple[Factor, ...] = ()

    # Attributes -----------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Name of the model; may be empty."""
        return self._name

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the variables. The position of a name is the variable's number."""
        return self._variables

    @property
    def cardinality(self) -> NDArray[np.int64]:
        """Number of states of each variable, (V,) int64, read-only."""
        return self._cardinality

    @property
    def factors(self) -> tuple[Factor, ...]:
        """The factors whose product is the joint distribution, up to normalisation for a Markov network."""
        return self._factors

    def states(self, variable: str | int) -> tuple[str, ...]:
        """Names of the states of a variable, in order. They may be empty or equal, as in some files."""
        return self._states[self.index(variable)]

    def index(self, variable: str | int) -> int:
        """Number of a variable.

        Parameters
        ----------
        variable : str or int
            Name or number.

        Raises
        ------
        UnknownVariable
            If the model has no such variable; the message suggests the closest names.
        """
        if isinstance(variable, str):
            number = self._index.get(variable)
            if number is None:
                raise UnknownVariable(
                    f"there is no variable {shown(variable)}{closest(variable, self._variables)}"
                )
            return number
        try:
            i = _as_int(variable)
        except TypeError:
            raise UnknownVariable(
                f"a variable must be given by name (a string) or number, got {shown(variable)}"
            ) from None
        if not 0 <= i < len(self._variables):
            raise UnknownVariable(f"there is no variable number {i}; the model has 0 to {len(self._variables) - 1}")
        return i

    def state_index(self, variable: str | int, state: str | float) -> StateNumber:
        """Number of a state.

        Parameters
        ----------
        variable : str or int
            Name or number.
        state : str, int, float or bool
            Name. A number is a name, too (1 and 1.0 mean the state ``"1"``); where the states are intervals
            (``"[2.5, 4)"``), it is the interval that contains it. See `with_codes` for other codes.

        Returns
        -------
        int
            Evidence on this state whatever the names of the states are.

        Raises
        ------
        UnknownState
            If the variable has no such state, or several states of that name; the message suggests the closest names,
            and what to write for codes.
        """
        v = self.index(variable)
        labels = self._states[v]
        if isinstance(text := as_text(state), str):
            state = text
            if state not in labels:
                values = self.state_values(v)
                number = values.find_text(state)
                if number is not None:
                    return StateNumber(number)
                if is_likelihood(state) and not isinstance(weights := likelihood_of(state, labels), str):
                    raise UnknownState(no_likelihood(self._variables[v], state, weights))
                near = closest(state, labels)
                raise UnknownState(
                    f"variable {self._variables[v]!r} has no state {shown(state)}{near} (its states are "
                    f"{listed(labels)}){'' if near else values.hint(self._variables[v], state)}"
                )
            if labels.count(state) > 1:
                texts = [text for text, i in numbered(labels).items() if labels[i] == state]
                raise UnknownState(
                    f"variable {self._variables[v]!r} has {labels.count(state)} states named {shown(state)}; "
                    f"write {listed(texts, 3)}, or rename them"
                )
            return StateNumber(labels.index(state))
        values = self.state_values(v)
        try:
            number = values.find(state)
        except TypeError:
            # an interval of pandas, a period, a UUID: by its text, as in tables
            if getattr(state, "__hash__", None) and labels.count(text := str(state)) == 1:
                return StateNumber(labels.index(text))
            raise UnknownState(f"a state of {self._variables[v]!r} must be given by name, got {shown(state)}") from None
        if number is None:
            raise UnknownState(values.refusal(self._variables[v], state))
        return StateNumber(number)

    def state_position(self, variable: str | int, state: str | float) -> int:
        """Position of a state in the model's tables: `state_index`, or itself unless numbers are names."""
        v = self.index(variable)
        values = self.state_values(v)
        by_name = not values.by_index and (values.numbers or values.intervals)
        is_position = not by_name and not isinstance(state, (bool, str))
        if is_position and isinstance(state, (int, np.integer)) and 0 <= state < len(self._states[v]):
            return int(state)
        return int(self.state_index(v, state))

    def state_values(self, v: int) -> StateValues:
        """The states of a variable by the values that numbers, truth values and typed texts have."""
        cached = self._values.get(v)
        if cached is None:
            codes = self.state_codes
            own: Codes = codes if isinstance(codes, str) else codes.get(self._variables[v], "names")
            cached = self._values[v] = StateValues(self._states[v], own)
        return cached

    def with_codes(self, codes: CodesByVariable | None) -> Self:
        """This model, which also understands codes of states in evidence and tables.

        Parameters
        ----------
        codes : "names", "index" or mapping
            ``"names"``: a number is the name of a state (the default of every model). ``"index"``: a number is the
            number of a state, from 0. A mapping from variables to ``{code: state}``, such as
            ``{"xray": {1: "yes", 0: "no"}}``: these codes, for these variables; a code is a number or a text.

        Returns
        -------
        model
            A copy that shares all numbers with this one. Other CPTs, as of a fit, keep its codes; another name of a
            variable or a state drops them.

        Raises
        ------
        ArgumentError
            If a code stands for no state.
        UnknownVariable
            If the model has no such variable.

        Examples
        --------
        >>> import jtgpu
        >>> net = jtgpu.load("asia").with_codes({"xray": {1: "yes", 0: "no"}})
        >>> round(float(net.compile().posterior("lung", {"xray": 1})["yes"]), 6)
        0.488711
        """
        if codes is None:
            return self
        if isinstance(codes, str):
            choice("codes", codes, ("names", "index"))
        else:
            mapping("codes", codes)
            codes = {self._variables[self.index(v)]: mapping(f"codes of {v!r}", given) for v, given in codes.items()}
        model = copy.copy(self)
        model.__dict__.pop("codes", None)
        model.__dict__.pop("_values", None)
        model.state_codes = codes
        for name in () if isinstance(codes, str) else codes:
            model.state_values(model.index(name))  # raises now
        return model

    def __len__(self) -> int:
        return len(self._variables)

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __contains__(self, variable: object) -> bool:
        """Whether the model has a variable of this name."""
        return isinstance(variable, str) and variable in self._index

    @cached_property
    def _values(self) -> dict[int, StateValues]:
        return {}

    @cached_property
    def codes(self) -> Mapping[str, tuple[int, dict[str | int, int]]]:
        """The number of each variable by name, and of its states by name and number; without names that are not unique.

        For readers of evidence: two look-ups a finding in place of all checks of `index` and `state_index`.
        """
        return _Codes(self)

    @cached_property
    def labels(self) -> Labels:
        """Names by number."""
        nodes: Mapping[str, Mapping[str, Any]] = getattr(self, "attributes", {}).get("node", {})
        ends = {v: node["ends"] for v, node in nodes.items() if "ends" in node}
        return Labels(self._index, self._variables, self._states, ends)

    # Pickling ----------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name not in ("codes", "labels", "_values")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled model. Unpickled arrays are writeable; those of a model are not."""
        self.__dict__.update(state)
        for array in (self._cardinality, *(f.table for f in self._factors)):
            if isinstance(array, np.ndarray):
                array.flags.writeable = False

    # Planning and compiling, by the layers above; imported on use -------------------------------------------

    def plan(self, order: Order = "auto", **options: Unpack[PlanOptions]) -> NetworkPlan:
        """Choose an elimination order and plan the computation, without allocating tables.

        Parameters
        ----------
        order : str, path or sequence, default "auto"
            ``"auto"`` (about a second at most; the same order whatever was computed before), ``"best"`` (searches for
            `time_limit` seconds and saves the order), ``"saved"`` (the order that ``"best"`` saved on this machine),
            the name of a greedy rule such as ``"min-fill"``, the path of a ``.num`` or ``.td`` file, or the variables
            themselves, first eliminated first.
        time_limit : float, optional
            Seconds that ``"best"`` may search.
        memory_limit : int or str, optional
            Bytes (or ``"8GiB"``) that one propagation may take. Default: 80 % of the free memory.
        max_table : int or None, default 100,000,000
            Entries of the largest table; None lifts the limit.
        seed : int, default 0
            The same seed and options give the same plan.
        slices : sequence or "auto", optional
            Variables whose states are enumerated, for models that do not fit into the memory; ``"auto"`` chooses them.
        **options : `jtgpu.util.options.PlanOptions`
            ``lowering``: ``"pairwise"`` (default), ``"clique"`` (a table for each clique) or ``"shallow"`` (fewer
            levels, more work). ``together``: sets of variables that must share a clique. ``backend`` and ``devices``:
            whose free memory limits the plan.

        Returns
        -------
        jtgpu.NetworkPlan
            ``plan.describe()`` reports its cost, and ``plan.compile()`` creates a tree that answers queries.

        Raises
        ------
        TableTooLarge
            If the plan exceeds a limit; the message has the sizes and what to try.
        OrderError
            If `order` is neither a method nor a permutation of the variables.
        TypeError
            If there is no such option; the message suggests the closest one.
        """
        made: NetworkPlan = late_imports.planning().make_plan(self, order, **options)
        return made

    def compile(
        self, backend: BackendName = "auto", *, order: Order = "auto", whole: bool = False,
        **options: Unpack[CompileOptions],
    ) -> JunctionTree:
        """Plan the model and prepare a backend: ``net.plan(order).compile(backend)`` in one call.

        Parameters
        ----------
        backend : {"auto", "cpu", "gpu", "reference", "indexed"}
            Where to compute. ``"auto"`` chooses the GPU if there is one and it is expected to be faster, else the CPU.
        order : str, path or sequence, default "auto"
            See `plan`.
        whole : bool, default False
            Raise `TableTooLarge` if the tree of the whole model does not fit. Otherwise the tree is then one whose
            questions are planned one by one, ``tree.whole`` is False, and a question that is too large raises.
        devices : "all" or sequence of int, optional
            Numbers of the GPUs to use.
        dtype : {"float64", "float32"}
            ``"float32"`` halves the memory of tables of cases on a GPU; their posteriors are then accurate to about
            1e-6. The GPU backend answers single cases in float64.
        threads : int, optional
            Number of CPU threads. Default: all cores for a table of cases, as many as are faster for a single case.
        **options : `jtgpu.util.options.CompileOptions`
            Options of `plan` (``memory_limit``, ``slices``, ``seed`` ...) and of `jtgpu.JunctionTree` (``replan``,
            ``progress``, ``stream`` ...); each goes where it belongs.

        Returns
        -------
        jtgpu.JunctionTree

        Raises
        ------
        TypeError
            If there is no such option; the message suggests the closest one.
        """
        planning = late_imports.planning()
        for_plan, for_tree = planning.split_options(backend, options)
        plan: NetworkPlan = (type(self).plan if whole else planning.plan_or_questions)(self, order, **for_plan)
        return plan.compile(backend, **for_tree)


def checked_states(variable: str, given: Sequence[str]) -> tuple[str, ...]:
    """The names of a variable's states."""
    if not isinstance(variable, str):
        raise NetworkError(f"a variable name must be a string, got {variable!r}")
    if not isinstance(given, Iterable):
        raise NetworkError(f"variable {variable!r}: its states must be a sequence of names, not {given!r}")
    labels = tuple(str(s) for s in given)
    if not labels:
        raise NetworkError(f"variable {variable!r} has no states")
    return labels


def _as_int(value: Any) -> int:
    """Convert an int or a NumPy integer; anything else, floats and bools included, raises a TypeError."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeError
    return operator.index(value)


class _Codes(dict[str, tuple[int, dict[str | int, int]]]):
    """`DiscreteModel.codes`, made for each variable on first use."""

    def __init__(self, model: DiscreteModel):
        super().__init__()
        self._model = model

    def __missing__(self, name: str) -> tuple[int, dict[str | int, int]]:
        if name not in self._model:
            raise KeyError(name)
        v = self._model.index(name)
        values = self._model.state_values(v)
        states: dict[str | int, int] = {s: i for s, i in values.names.items() if i >= 0}
        states.update(values.by_integer())
        self[name] = v, states
        return self[name]
