"""`Cpt`: the conditional probability table of a variable, a read-only array that knows the names of its axes."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, NetworkError, UnknownState, UnknownVariable, closest, shown
from ..util import late_imports
from ..util.text_table import DIGITS, SMALL, WIDTH, configurations, display_width, format_table
from .cpts import ROW_TOLERANCE, check_numbers, freeze, is_counted
from .discrete import DiscreteModel
from .noisy import EXPANDED, NoisyMax, NoisyOr


class Axis(NamedTuple):
    """The variable of an axis and the names of its states."""

    variable: str
    states: tuple[str, ...]


_Base: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]


class Cpt(_Base):
    """P(variable | parents): a read-only float64 array that prints as a labelled table.

    `BayesianNetwork.cpt` returns it. Axes: parents in order, then the variable. It behaves as an array in all other
    respects: arithmetic and indexing give plain arrays, and copies and views have no labels. ``cpt[{"smoke": "yes"}]``
    selects by name: it is the part of the array for this state of this parent.

    Examples
    --------
    >>> import jtgpu
    >>> net = jtgpu.network(
    ...     "smoke{yes|no}->lung{yes|no}",
    ...     cpts={"smoke": [0.5, 0.5], "lung": {"yes": [0.1, 0.9], "no": [0.01, 0.99]}},
    ... )
    >>> net.cpt("lung")[{"smoke": "yes"}]
    array([0.1, 0.9])
    """

    _axes: tuple[Axis, ...] = ()  # empty for views and results

    @classmethod
    def of(cls, table: NDArray[np.float64], axes: Sequence[Axis]) -> Cpt:
        """A labelled view of an array."""
        made = table.view(cls)
        made._axes = tuple(axes)
        return made

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the axes: parents in order, then the variable. Empty for a part of a table."""
        return tuple(a.variable for a in self._axes)

    def states(self, variable: str) -> tuple[str, ...]:
        """Names of the states along the axis of a variable."""
        return self._axes[self._axis(variable)].states

    def to_dict(self) -> dict[tuple[str, ...], dict[str, float]]:
        """Each row by the states of the parents: ``{("yes", "no"): {"low": 0.2, "high": 0.8}, ...}``.

        `BayesianNetwork` takes this mapping in place of the array. A root has one row, with the key ``()``.

        Raises
        ------
        UnknownState
            If two states of a variable have the same name.
        """
        for a in self._axes:
            if len(set(a.states)) < len(a.states):
                raise UnknownState(f"{a.variable!r} has states of equal names, which a mapping cannot distinguish")
        keys = product(*(a.states for a in self._axes[:-1]))
        rows = np.asarray(self).reshape(-1, self.shape[-1]).tolist()
        labels = self._axes[-1].states
        return {key: dict(zip(labels, row, strict=True)) for key, row in zip(keys, rows, strict=True)}

    def __getitem__(self, key: Any) -> Any:
        """An array's item, or the part for states given by name: ``cpt[{"smoke": "yes"}]``."""
        table = np.asarray(self)
        if not isinstance(key, Mapping):
            if any(isinstance(k, str) for k in (key if isinstance(key, tuple) else (key,))):
                names = ", ".join(f"{a.variable!r}: {a.states[0]!r}" for a in self._axes)
                raise ArgumentError(f"states are chosen by variable, as in cpt[{{{names}}}]; got {shown(key)}")
            try:
                return table[key]
            except IndexError:
                for a, state in zip(self._axes, key if isinstance(key, tuple) else (key,), strict=False):
                    if isinstance(state, (int, np.integer)) and not -len(a.states) <= state < len(a.states):
                        _state_number(a, int(state))  # raises
                axes = ", ".join(self.variables) or f"{self.ndim} axes"
                raise UnknownState(
                    f"{shown(key)} is no place in this table of shape {self.shape} ({axes}): give a number of a state, "
                    "or a slice, for each axis"
                ) from None
        index: list[int | slice] = [slice(None)] * self.ndim
        for variable, state in key.items():
            axis = self._axis(variable)
            index[axis] = _state_number(self._axes[axis], state)
        return table[tuple(index)]

    def _axis(self, variable: str) -> int:
        if variable not in self.variables:
            raise UnknownVariable(f"this table has no axis {variable!r}{closest(str(variable), self.variables)}")
        return self.variables.index(variable)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **options: Any) -> Any:
        """Compute with plain arrays, so that results are plain arrays."""
        if "out" in options:  # a Cpt is read-only, which NumPy reports
            options["out"] = tuple(_plain(x) for x in options["out"])
        return getattr(ufunc, method)(*map(_plain, inputs), **options)

    def __copy__(self) -> Cpt:
        return self  # immutable

    def __deepcopy__(self, memo: object, /) -> Cpt:
        return self  # immutable

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (np.array(self), self._axes)

    def __str__(self) -> str:
        """The table with a row for each configuration of the parents; a long table without its middle."""
        if not self._axes:
            return str(np.asarray(self))
        own = self._axes[-1]
        names, columns, fixed = self._table()
        if sum(map(display_width, names)) + 2 * len(self._axes) > WIDTH:
            names = [*names[:fixed], *own.states]  # the line above the table names the variable
        digits = _digits(np.asarray(self))
        return f"{self._title()}\n{format_table(names, columns, fixed=fixed, digits=digits)}"

    def _title(self) -> str:
        *above, own = self.variables
        return f"P({own} | {', '.join(above)})" if above else f"P({own})"

    def _table(self) -> tuple[list[str], list[Any], int]:
        """Headers and columns of the table, and the number of columns that name the configuration of the parents."""
        *above, own = self._axes
        rows = np.asarray(self).reshape(-1, len(own.states))
        names = [*(a.variable for a in above), *(f"{own.variable}={s}" for s in own.states)]
        return names, [*configurations([a.states for a in above]), *rows.T], len(above)

    def _repr_html_(self) -> str | None:
        """The table for a notebook; None for a part of a table, which is shown as an array."""
        return late_imports.html(self) if self._axes else None


def _plain(x: object) -> Any:
    return np.asarray(x) if isinstance(x, Cpt) else x


def _digits(numbers: NDArray[np.float64]) -> int:
    """The fewest digits after the decimal point that show all numbers as `DIGITS` would."""
    if numbers.size > 100_000 or ((numbers > 0) & (numbers < SMALL)).any():  # small ones are shown with an exponent
        return DIGITS
    return next(
        (d for d in range(1, DIGITS) if np.array_equal(np.round(numbers, d), np.round(numbers, DIGITS))), DIGITS
    )


def _state_number(axis: Axis, state: str | int) -> int:
    """Number of a state that is given by name or number."""
    if isinstance(state, str):
        if axis.states.count(state) == 1:
            return axis.states.index(state)
        what = f"{axis.states.count(state)} states named" if state in axis.states else "no state"
        raise UnknownState(f"{axis.variable!r} has {what} {state!r}{closest(state, axis.states)}")
    number = operator.index(state)
    if not 0 <= number < len(axis.states):
        raise UnknownState(f"{axis.variable!r} has no state number {number}; it has 0 to {len(axis.states) - 1}")
    return number


def _restore(table: NDArray[np.float64], axes: Sequence[Axis]) -> Cpt:
    """Restore a pickled table. Unpickled arrays are writeable; those of a network are not."""
    table.flags.writeable = False
    return Cpt.of(table, axes)


# CPTs as users give them: arrays, or mappings such as ``{"yes": [0.1, 0.9], "no": {"yes": 0.01, "no": 0.99}}``.

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    CptLike: TypeAlias = ArrayLike | Mapping[Any, Any]


def checked_cpt(model: DiscreteModel, scope: tuple[int, ...], given: CptLike) -> NDArray[np.float64]:
    """The read-only array of a CPT."""
    # scope: tuple of int: Parents in order, then the variable
    # given: See `cpt_from_mapping`
    # raises NetworkError: If the shape is wrong, a number is negative or not finite, or a row does not sum to 1.
    name = model.variables[scope[-1]]
    if isinstance(given, NoisyMax):
        given = bound_noisy(model, scope, given)
    try:
        given = with_labels(model, scope, given)
        table = freeze(cpt_from_mapping(model, scope, given) if isinstance(given, Mapping) else given)
    except (TypeError, ValueError) as error:
        raise NetworkError(f"variable {name!r}: its CPT must be an array of numbers ({error})") from None
    shape = tuple(int(model.cardinality[v]) for v in scope)
    if table.shape != shape:
        axes = ", ".join(model.variables[v] for v in scope)
        hint = ""
        if len(shape) > 1 and table.shape == (shape[-1], *shape[:-1]):
            hint = "; if its first axis is the variable itself, use numpy.moveaxis(cpt, 0, -1)"
        raise NetworkError(
            f"variable {name!r}: its CPT has shape {table.shape}, expected {shape} for the axes ({axes}){hint}"
        )
    check_numbers(name, table)
    sums = table.sum(axis=-1)
    gap = np.abs(sums - 1.0)
    if gap.max() > ROW_TOLERANCE:
        row = tuple(int(r) for r in np.unravel_index(int(gap.argmax()), gap.shape))
        where = configuration(model, scope, row)
        off = int((gap > ROW_TOLERANCE).sum())
        others = f"; {off} of its {gap.size} rows do not sum to 1" if off > 1 else ""
        raise NetworkError(
            f"variable {name!r}: {f'the row of its CPT for {where}' if where else 'its CPT'} sums to "
            f"{sums[row]:.9g}, expected 1{others} (jtgpu.normalize_rows divides rows by their sums)"
        )
    return table


def bound_noisy(model: DiscreteModel, scope: tuple[int, ...], given: NoisyMax) -> NoisyMax:
    """The strengths of a child for its parents, in order, and their states."""
    # scope: Parents in order, then the child
    # raises NetworkError: If the strengths are those of other parents or states
    *parents, name = (model.variables[v] for v in scope)
    given = given.for_parents(name, parents)
    if isinstance(given, NoisyOr):
        given = given.of_states(name, {model.variables[v]: model.states(v) for v in scope})
    shape = tuple(int(model.cardinality[v]) for v in scope)
    if given.size > EXPANDED and given.shape != shape:
        raise NetworkError(
            f"variable {name!r}: its CPT has shape {shown(given.shape)}, expected {shown(shape)}: the states "
            "of each parent, then of the variable"
        )
    return given.like(given.effects)


def cpt_from_mapping(
    model: DiscreteModel, scope: tuple[int, ...], given: Mapping[Any, object], what: str = ""
) -> NDArray[np.float64]:
    """The array of a CPT that is given as a mapping."""
    # scope: tuple of int: Parents in order, then the variable
    # given: A key is a state of the next axis, or a tuple of states of the next axes. A value is a mapping for the axes
    #     that remain, or an array over them. The parents' axes come first, in order: ``{("yes", "no"): [0.2, 0.8],
    #     ...}`` and ``{"yes": {"no": {"low": 0.2, "high": 0.8}, ...}, ...}`` are the same.
    # raises NetworkError: If a key is not a state, a configuration is missing or given twice, or an array has the wrong
    #     shape.
    reader = _Reader(model, scope, what)
    reader.fill((), given)
    if not reader.is_set.all():
        missing = tuple(np.argwhere(~reader.is_set)[0].tolist())
        whole_row = not reader.is_set[missing[:-1]].any()
        part = "row for" if whole_row else "number for"
        at = configuration(model, scope, missing[:-1] if whole_row else missing)
        raise NetworkError(f"{reader.what} has no {part} {at or 'any state'}")
    return reader.table


def with_labels(model: DiscreteModel, scope: tuple[int, ...], given: Any, what: str = "") -> Any:
    """A data frame or series whose labels are states, as its array; one without labels, and anything else, as it is."""
    # scope: tuple of int: Parents in order, then the variable
    # what: Words for the table
    # raises NetworkError: If labels are not states, or name other variables than the axes.
    has_columns = hasattr(given, "columns")
    if not hasattr(given, "to_numpy") or len(scope) <= has_columns or not (has_columns or hasattr(given, "index")):
        return given
    parts = [(scope[:-1], getattr(given, "index", None)), (scope[-1:], given.columns)] if has_columns else [
        (scope, given.index)
    ]  # fmt: skip
    what = what or f"variable {model.variables[scope[-1]]!r}: its CPT"
    keys, is_labelled = [], False
    for axes, labels in parts:
        order = _axis_order(model, axes, list(getattr(labels, "names", [])), what)
        plain = range(len(given) if labels is None else len(labels))
        if labels is None or is_counted(labels):
            if len(axes) > 1 or len(plain) != model.cardinality[axes[0]]:
                return given  # its shape is wrong, or it has that of the table: it is read by position
            (v,) = axes
            states = model.states(v)
            if {*states} == {str(i) for i in plain} and states != tuple(str(i) for i in plain):
                name = model.variables[v]
                raise NetworkError(
                    f"{what}: the labels 0 to {len(plain) - 1} of the data frame may be positions, or states "
                    f"of {name!r} ({', '.join(states)}): pass frame.to_numpy(), or texts as labels"
                )
            named = {i: label for label, i in model.state_values(v).names.items()}
            keys.append([(named[i],) for i in plain])
        else:
            is_labelled = True
            tuples = [label if isinstance(label, tuple) else (label,) for label in labels]
            keys.append([tuple(key[i] for i in order) if len(key) == len(axes) else key for key in tuples])
    if not is_labelled:
        return given
    rows = given.to_numpy().tolist() if has_columns else [given.to_numpy().tolist()]
    above, own = keys if has_columns else ([()], keys[0])
    pairs = [((*a, *b), x) for a, row in zip(above, rows, strict=True) for b, x in zip(own, row, strict=True)]
    if len(table := dict(pairs)) < len(pairs):
        raise NetworkError(f"{what}: two rows or columns have the same label")
    try:
        return cpt_from_mapping(model, scope, table, what)
    except NetworkError as error:
        hint = "a data frame is read by its labels; pass frame.to_numpy() for positions"
        raise NetworkError(f"{error} ({hint})") from None


def _axis_order(model: DiscreteModel, axes: tuple[int, ...], names: Sequence[object], what: str) -> list[int]:
    """Where each axis is among the levels of the labels, whose names may be those of the variables."""
    wanted = [model.variables[v] for v in axes]
    if len(names) == len(wanted) and {*names} == {*wanted}:
        return [names.index(v) for v in wanted]
    if other := [name for name in names if name in model.variables and name not in wanted]:
        raise NetworkError(f"{what}: labels of {other[0]!r} are where those of {', '.join(wanted)} are expected")
    return [*range(len(wanted))]


def configuration(model: DiscreteModel, scope: tuple[int, ...], states: tuple[int, ...]) -> str:
    """States as text: ``"rain=yes, sprinkler=off"``. States that share a name are given by number."""
    parts = []
    for v, number in zip(scope, states, strict=False):
        labels = model.states(v)
        label = labels[number] if labels.count(labels[number]) == 1 else f"state number {number}"
        parts.append(f"{model.variables[v]}={label}")
    return ", ".join(parts)


class _Reader:
    """Fills a table from a mapping, level by level."""

    def __init__(self, model: DiscreteModel, scope: tuple[int, ...], what: str = ""):
        self.model, self.scope = model, scope
        self.what = what or f"variable {model.variables[scope[-1]]!r}: its CPT"
        shape = tuple(int(model.cardinality[v]) for v in scope)
        self.table = np.zeros(shape)
        self.is_set = np.zeros(shape, np.bool_)

    def fill(self, at: tuple[int, ...], given: object) -> None:
        """Enter what is given for the configuration `at` of the first axes."""
        if isinstance(given, Mapping):
            if len(at) == len(self.scope):
                raise self.error(f"for {self.text(at)} it has a mapping where a number is expected")
            for key, inner in given.items():
                self.fill((*at, *self.states(at, key)), inner)
            return
        where = f"for {self.text(at)} it has" if at else "it has"
        try:
            part = np.asarray(given, np.float64)
        except (TypeError, ValueError):
            raise self.error(f"{where} {given!r}, expected numbers") from None
        shape = self.table.shape[len(at) :]
        if part.shape != shape:
            axes = ", ".join(self.model.variables[v] for v in self.scope[len(at) :])
            wanted = f"expected {shape} for the axes ({axes})" if shape else "expected a number"
            raise self.error(f"{where} numbers of shape {part.shape}, {wanted}")
        if self.is_set[at].any():
            raise self.error(f"{self.text(at)} is given twice")
        self.table[at], self.is_set[at] = part, True

    def states(self, at: tuple[int, ...], key: object) -> list[int]:
        """Numbers of the states that a key names, along the axes that follow `at`."""
        keys = key if isinstance(key, tuple) else (key,)
        axes = self.scope[len(at) :]
        if len(keys) > len(axes):
            names = ", ".join(self.model.variables[v] for v in axes)
            raise self.error(f"the key {key!r} has {len(keys)} states for the axes ({names})")
        return [self.state(v, k) for v, k in zip(axes, keys, strict=False)]

    def state(self, v: int, key: Any) -> int:
        try:
            return self.model.state_position(v, key)
        except UnknownState as error:
            raise self.error(f"a key is not a state: {error}") from None

    def text(self, at: tuple[int, ...]) -> str:
        return configuration(self.model, self.scope, at)

    def error(self, what: str) -> NetworkError:
        return NetworkError(f"{self.what} is wrong: {what}")
