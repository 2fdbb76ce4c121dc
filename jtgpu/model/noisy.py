"""`NoisyOr` and `NoisyMax`: CPTs of children whose parents act independently, from a few numbers for each parent."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, NetworkError, TableTooLarge, shown
from ..util.arguments import check_keywords
from ..util.elementary import log, logs
from .discrete import MAX_AXES
from .states import listed, present_state

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

MAX_CELLS = 1 << 28  # of a CPT
LEAST = 1e-290  # product of numbers all of whose factors have kept their digits
EXPANDED = 1 << 8  # entries of a table up to which a network holds it in place of the strengths


def noisy_max(
    cards: Sequence[int], n_states: int, strengths: Sequence[Sequence[int]], parameters: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The CPT of a noisy-MAX node as GeNIe and SMILE define it."""
    # The child takes the strongest of the effects that its causes produce independently, and of a leak. Its first state
    # is the strongest effect and its last one stands for no effect, so with the columns c_i of the parents' states and
    # the leak c_0
    #
    #     P(effect no stronger than k) = prod_i (c_i[k] + c_i[k + 1] + ... + c_i[last]),
    #
    # and the probabilities are sums of products, since differences would lose small ones: of two causes, the first has
    # effect k and the second none that is stronger, or the second has effect k and the first a weaker one.
    #
    # cards: sequence of int: Numbers of the parents' states
    # n_states: Number of the child's states, the strongest effect first
    # strengths: sequence of sequences of int: For each parent, its states by number in the order of its columns; the
    #     last one has no effect
    # parameters: (sum(cards) + 1, n_states) float64: One row per parent state, parent after parent; the last row is the
    #     leak. Rows need not sum to 1, but must not be all zeros.
    # returns (*cards, n_states) float64
    columns = parameters / parameters.sum(axis=1, keepdims=True)
    # P(effect no stronger than k), the leak's last: (columns, n_states), 1 at k = 0
    weaker = np.minimum(np.cumsum(columns[:, ::-1], axis=1)[:, ::-1], 1.0)
    weaker[:, 0] = 1.0
    below = np.broadcast_to(weaker[-1], (*cards, n_states)).copy()
    table = np.broadcast_to(columns[-1], (*cards, n_states)).copy()
    begin = 0
    for axis, (card, order) in enumerate(zip(cards, strengths, strict=True)):
        shape = (1,) * axis + (card,) + (1,) * (len(cards) - axis - 1) + (n_states,)
        own, of_states = np.empty((2, card, n_states))
        own[list(order)], of_states[list(order)] = columns[begin : begin + card], weaker[begin : begin + card]
        begin += card
        table *= of_states.reshape(shape)
        table[..., :-1] += below[..., 1:] * own.reshape(shape)[..., :-1]
        below *= of_states.reshape(shape)
    return table


@check_keywords()
class NoisyMax:
    """The CPT of a noisy-MAX child: the strongest of the effects that its parents produce independently.

    An array as far as NumPy is concerned, so that it can be given as a CPT:
    ``BayesianNetwork(states, parents, {"fever": jtgpu.NoisyMax(...), ...})``. The network keeps the strengths
    (``net.noisy``), and where the table would be large, questions are answered from them: a child may have hundreds of
    parents.

    Parameters
    ----------
    effects : sequence of (card, k) array_like, or mapping from parents to these
        For each parent, in order or by name: a row for each of its states, the distribution of the child if this parent
        alone acts. The child's k states are ordered by strength. A state without effect has the row ``[0, ..., 0, 1]``.
    leak : (k,) array_like, optional
        The distribution of the child if no parent acts. Default: no effect.
    strongest : {"first", "last"}
        Whether the child's first state is the strongest effect and its last one no effect, or the other way round; then
        rows without effect are ``[1, 0, ..., 0]``.

    Attributes
    ----------
    cpt : (card, ..., k) ndarray of float64
        Axes: the parents in order, then the child. It is computed when it is first read.
    shape : tuple of int
        Of the CPT.
    rows : (n, k) ndarray of float64
        The strengths: the effects of each state of each parent, one parent after the other, then of the leak.
    attributes : dict
        The numbers for XDSL and DSL files, which the network is written to as a noisy-MAX node, as long as the CPT is
        unchanged; empty if the last state is the strongest effect.

    Raises
    ------
    NetworkError
        If rows have different lengths, or are no distributions. The message names the parent by its number.
    TableTooLarge
        If the CPT is read, and would have more than 2**28 numbers or more axes than NumPy has.

    Notes
    -----
    F. J. Díez, "Parameter adjustment in Bayes networks: the generalized noisy OR-gate", UAI 1993.

    Examples
    --------
    >>> import jtgpu
    >>> flu, drug = [[0.5, 0.3, 0.2], [0, 0, 1]], [[0.2, 0.4, 0.4], [0, 0, 1]]
    >>> jtgpu.NoisyMax([flu, drug]).cpt[0, 0].round(3).tolist()
    [0.6, 0.32, 0.08]
    """

    def __init__(
        self, effects: Sequence[ArrayLike] | Mapping[str, ArrayLike], leak: ArrayLike | None = None, *,
        strongest: str = "first",
    ) -> None:  # fmt: skip
        if strongest not in ("first", "last"):
            raise NetworkError(f"strongest must be 'first' or 'last', not {strongest!r}")
        names = tuple(effects) if isinstance(effects, Mapping) else range(len(effects))
        values = effects.values() if isinstance(effects, Mapping) else effects
        rows = [_rows(f"parent {name!r}", given) for name, given in zip(names, values, strict=True)]
        self.parents: tuple[str, ...] | None = names if isinstance(names, tuple) else None
        step = 1 if strongest == "first" else -1
        none = [0.0] * (rows[0].shape[1] - 1 if rows else 0) + [1.0]
        last = _rows("the leak", [none[::step] if leak is None else leak])
        k = last.shape[1]
        for name, r in zip(names, rows, strict=True):
            if r.shape[1] != k:
                raise NetworkError(f"parent {name!r} has rows of {r.shape[1]} numbers, the leak has {k}")
        self._keep(rows, last[0], step)

    def _keep(self, rows: Sequence[NDArray[np.float64]], leak: NDArray[np.float64], step: int) -> None:
        """Keep strengths that are distributions of one length; `step`: -1 if the last state is the strongest effect."""
        self.effects, self.leak_row, self._step = rows, leak, step
        self.shape = (*map(len, rows), len(leak))

    @cached_property
    def _orders(self) -> list[list[int]]:
        """The states of each parent as files have them: the one without effect last."""
        last = 0 if self._step < 0 else -1
        alone = [(r[:, last] > 0) & (np.count_nonzero(r, axis=1) == 1) for r in self.effects]
        return [sorted(range(len(of)), key=of.tolist().__getitem__) for of in alone]

    @property
    def attributes(self) -> dict[str, tuple[float, ...]]:
        """Numbers for XDSL and DSL files; empty if the last state is the strongest effect."""
        if self._step < 0:
            return {}
        return noisy_attributes(self._columns(), [s for order in self._orders for s in order])

    is_density = True  # not where an intervention has set the child

    def _columns(self) -> NDArray[np.float64]:
        """Rows of parent after parent and of the leak, the strongest effect first."""
        ordered = (r[order] for r, order in zip(self.effects, self._orders, strict=True))
        return np.concatenate([*ordered, self.leak_row[None]])[:, :: self._step]

    @property
    def rows(self) -> NDArray[np.float64]:
        """Effects of each state of each parent, one parent after the other, then of the leak."""
        return np.concatenate([*self.effects, self.leak_row[None]])

    @property
    def size(self) -> int:
        """Entries of the CPT."""
        return math.prod(self.shape)

    @property
    def least(self) -> int:
        """The child's state of no effect."""
        return 0 if self._step < 0 else self.shape[-1] - 1

    @cached_property
    def ascending(self) -> list[NDArray[np.float64]]:
        """P(effect s) by ascending effect: (card, k) for each parent, then (1, k) of the leak."""
        rows = [rows[:, :: -self._step] for rows in (*self.effects, self.leak_row[None])]
        return [r / r.sum(axis=1, keepdims=True) for r in rows] if self.is_density else rows

    @cached_property
    def weaker(self) -> list[NDArray[np.float64]]:
        """P(effect of a parent no stronger than s), (card, k) for each parent, then (1, k) of the leak; s ascends."""
        made = [np.cumsum(rows, axis=1) for rows in self.ascending]
        return [np.minimum(rows, 1.0) for rows in made] if self.is_density else made

    @cached_property
    def cpt(self) -> NDArray[np.float64]:
        if len(self.shape) > MAX_AXES:
            raise TableTooLarge(
                f"a noisy child has {len(self.shape) - 1} parents; a table can have {MAX_AXES} axes (a limit of "
                "NumPy): its strengths are in net.noisy"
            )
        if self.size > MAX_CELLS:
            raise TableTooLarge(
                f"the CPT of a noisy-MAX child would have {self.size:,} numbers: its strengths are in net.noisy, and "
                "XDSL and DSL files keep them",
                self.size, 8 * self.size, 8 * MAX_CELLS,
            )  # fmt: skip
        table = noisy_max(self.shape[:-1], self.shape[-1], self._orders, self._columns())[..., :: self._step]
        table.flags.writeable = False
        return table

    def for_parents(self, child: str, parents: Sequence[str]) -> NoisyMax:
        """The same strengths in the order of these parents, if they were given by name."""
        if self.parents is None or self.parents == tuple(parents):
            return self
        if set(self.parents) != set(parents):
            unknown = [p for p in (*self.parents, *parents) if (p in self.parents) != (p in parents)]
            raise NetworkError(
                f"the strengths of {child!r} are those of {listed(self.parents)}, and its parents are "
                f"{listed(parents)}: {unknown[0]!r} is in one of the two alone"
            )
        return self.ordered([self.parents.index(p) for p in parents], tuple(parents))

    def ordered(self, places: Sequence[int], parents: tuple[str, ...]) -> NoisyMax:
        """The same strengths, for parents at these places."""
        effects = dict(zip(parents, (self.effects[i] for i in places), strict=True))
        return NoisyMax(effects, self.leak_row, strongest="first" if self._step > 0 else "last")

    def like(
        self, effects: Sequence[NDArray[np.float64]], leak: NDArray[np.float64] | None = None, *, turned: bool = False
    ) -> NoisyMax:
        """Other strengths, of states and parents in order: names may change. `turned`: for the child's states in
        reverse."""
        made = NoisyMax.__new__(NoisyMax)
        made.parents = None
        leak = self.leak_row if leak is None else leak
        if turned:
            effects, leak = [rows[:, ::-1] for rows in effects], leak[::-1]
        made._keep(effects, leak, -self._step if turned else self._step)
        return made

    def with_neutral(self, card: int) -> NoisyMax:
        """The strengths with one more parent, the last, that has no effect."""
        return self.like([*self.effects, np.tile(np.eye(self.shape[-1])[self.least], (card, 1))])

    def without(self, weights: Mapping[int, NDArray[np.float64]]) -> NoisyMax:
        """The strengths without some parents, by place, given weights of their states: their effects go to the leak."""
        step, leak = -self._step, self.leak_row[:: -self._step]
        for i, mix in weights.items():
            row = (mix[:, None] * self.effects[i]).sum(axis=0)[::step]
            below = np.append(0.0, np.cumsum(leak)[:-1])
            leak = leak * np.cumsum(row) + below * row
        return self.like([rows for i, rows in enumerate(self.effects) if i not in weights], leak[::step])

    def without_parents(self) -> NoisyMax:
        """Ones in place of the probabilities: the node after an intervention."""
        made = copy.copy(self)
        for name in ("ascending", "weaker", "cpt"):
            made.__dict__.pop(name, None)
        neutral = np.arange(self.shape[-1]) == self.least
        made.effects = [np.tile(neutral.astype(np.float64), (card, 1)) for card in self.shape[:-1]]
        made.leak_row, made.is_density = np.ones(self.shape[-1]), False
        return made

    def at(self, states: NDArray[np.int32]) -> NDArray[np.float64]:
        """P(child | parents) of (n, parents and child) configurations."""
        return self._at(states, extended=False)[0]

    def logs_at(self, states: NDArray[np.int32]) -> NDArray[np.float64]:
        """ln P(child | parents), also where P is below the range of a double; -inf where it is 0."""
        p = self.at(states)
        far = p < LEAST
        with np.errstate(divide="ignore"):
            logs_of = logs(p)
            if far.any():
                p, exponent = self._at(states[far], extended=True)
                logs_of[far] = logs(p) + exponent * log(2.0)
        return logs_of

    def _at(self, states: NDArray[np.int32], *, extended: bool) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """P(child | parents) as numbers and, where `extended`, powers of two that multiply them."""
        effect = np.abs(states[:, -1] - self.least)
        below = np.maximum(effect - 1, 0)
        equal, weaker = np.zeros(len(states)), np.ones(len(states))  # than this effect; without a difference
        exponent = np.zeros(len(states), np.int64)
        every = [*states.T[:-1], np.zeros(len(states), np.int64)]
        for own, no_stronger, exactly in zip(every, self.weaker, self.ascending, strict=True):
            up_to, this = no_stronger[own, effect], exactly[own, effect]
            less = np.where(effect > 0, no_stronger[own, below], 0.0)
            if extended:  # the largest of each three is at least 1/2
                shift = np.frexp(up_to)[1]
                up_to, this, less = (np.ldexp(x, -shift) for x in (up_to, this, less))
                exponent += shift
            equal, weaker = equal * up_to + weaker * this, weaker * less
            if extended:
                shift = np.frexp(np.maximum(equal, weaker))[1]
                equal, weaker = np.ldexp(equal, -shift), np.ldexp(weaker, -shift)
                exponent += shift
        return equal, exponent

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.cpt, dtype)

    def __getattr__(self, name: str) -> Any:
        """All else that an array has, of the CPT."""
        if name.startswith("_") or "shape" not in self.__dict__ or not hasattr(np.ndarray, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.cpt, name)

    def __getitem__(self, key: Any) -> Any:
        return self.cpt[key]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape {self.shape})"


@check_keywords()
class NoisyMin(NoisyMax):
    """The CPT of a noisy-MIN child: the weakest of the effects that its parents produce independently.

    A `NoisyMax` of the opposite order: files and ``net.noisy`` have it as that.

    Parameters
    ----------
    effects : sequence of (card, k) array_like, or mapping from parents to these
        See `NoisyMax`; a state without effect has its row at the strongest effect.
    leak : (k,) array_like, optional
        The distribution of the child if no parent acts. Default: the strongest effect.
    strongest : {"first", "last"}
        Whether the child's first state is the strongest effect, and the last one the weakest, or the other way round.

    Raises
    ------
    NetworkError
        See `NoisyMax`.

    Examples
    --------
    >>> import jtgpu
    >>> brakes, tyres = [[1, 0, 0], [0.2, 0.3, 0.5]], [[1, 0, 0], [0.5, 0.4, 0.1]]
    >>> jtgpu.NoisyMin([brakes, tyres]).cpt[1, 1].round(3).tolist()
    [0.1, 0.35, 0.55]
    """

    def __init__(
        self, effects: Sequence[ArrayLike] | Mapping[str, ArrayLike], leak: ArrayLike | None = None, *,
        strongest: str = "first",
    ) -> None:  # fmt: skip
        super().__init__(effects, leak, strongest={"first": "last", "last": "first"}.get(strongest, strongest))


@check_keywords()
class NoisyOr(NoisyMax):
    """The CPT of a noisy-OR child: each parent that is present produces the effect with a probability of its own.

    Parameters
    ----------
    links : sequence of float, or mapping from parents to floats
        For each parent, in order or by name: the probability that it alone, being present, produces the effect.
    leak : float, default 0
        The probability of the effect if no parent is present.
    present : str or int, optional
        The state that stands for presence, of the parents and of the child, which have two states each: its name, or
        its number, 0 or 1. Default: by the names of each variable's states, when the network is made: ``yes`` and not
        ``no``, ``true`` and not ``false``, ``present`` and not ``absent``, ``positive`` and not ``negative``, ``1`` and
        not ``0``, ``on`` and not ``off``.

    Raises
    ------
    ArgumentError
        If the links are no sequence of numbers.
    NetworkError
        If a number is no probability; when the network is made, if the names of states do not say which one stands for
        presence.

    Notes
    -----
    J. Pearl, Probabilistic Reasoning in Intelligent Systems, 1988, section 4.3.2. See `NoisyMax` for what can be done
    with it.

    Examples
    --------
    >>> import jtgpu
    >>> jtgpu.NoisyOr([0.8, 0.5], leak=0.1, present=0).cpt[..., 0].round(3).tolist()
    [[0.91, 0.82], [0.55, 0.1]]
    >>> net = jtgpu.BayesianNetwork(
    ...     {"flu": ["no", "yes"], "cold": ["no", "yes"], "fever": ["no", "yes"]}, {"fever": ["flu", "cold"]},
    ...     {"flu": [0.9, 0.1], "cold": [0.8, 0.2], "fever": jtgpu.NoisyOr([0.8, 0.5], leak=0.1)},
    ... )
    >>> net.cpt("fever").round(3)[1, 0].tolist()  # flu, no cold
    [0.18, 0.82]
    """

    def __init__(
        self, links: Sequence[float] | Mapping[str, float], leak: float = 0.0, *, present: str | int | None = None
    ) -> None:
        self.parents = tuple(links) if isinstance(links, Mapping) else None
        try:
            self.links = tuple(float(p) for p in (links.values() if isinstance(links, Mapping) else links))
            self.leak = float(leak)
        except (TypeError, ValueError):
            raise ArgumentError(
                f"links must be a probability for each parent, in the order of the parents, and leak one; got "
                f"{shown(links)} and {shown(leak)}"
            ) from None
        names = self.parents or range(len(self.links))
        for name, p in (*zip([f"link {v}" for v in names], self.links, strict=True), ("leak", self.leak)):
            if not 0 <= p <= 1:
                raise NetworkError(f"{name} is {p:g}, which is not a probability")
        if present is not None and not isinstance(present, str) and present not in (0, 1):
            raise NetworkError(f"present must be the name of a state, or its number, 0 or 1, not {present!r}")
        self.present = present
        if not (present is None or isinstance(present, str)):
            self._fill([int(present)] * (len(self.links) + 1))

    @classmethod
    def from_compound(
        cls, probabilities: Sequence[float] | Mapping[str, float], leak: float = 0.0, *,
        present: str | int | None = None,
    ) -> NoisyOr:  # fmt: skip
        """Make it of Henrion's parameters, which contain the leak.

        Parameters
        ----------
        probabilities : sequence of float, or mapping from parents to floats
            For each parent: the probability of the effect where it alone is present, produced by it or by the leak.
        leak : float, default 0
            The probability of the effect if no parent is present.
        present : str or int, optional
            See `NoisyOr`.

        Raises
        ------
        NetworkError
            If a probability is below the leak, or the leak is 1.

        Notes
        -----
        M. Henrion, "Some practical issues in constructing belief networks", UAI 1987.

        Examples
        --------
        >>> import jtgpu
        >>> jtgpu.NoisyOr.from_compound({"flu": 0.75, "cold": 0.625}, leak=0.5).links
        (0.5, 0.25)
        """
        given = cls(probabilities, leak, present=present)
        for v, p in zip(given.parents or range(len(given.links)), given.links, strict=True):
            if p < given.leak or given.leak == 1:
                raise NetworkError(
                    f"the compound probability of {v!r} is {p:g}, the leak, which it contains, {given.leak:g}: it must "
                    "not be smaller, and the leak below 1; NoisyOr takes the probability that the parent alone does it"
                )
        links = [(p - given.leak) / (1 - given.leak) for p in given.links]
        by_name = None if given.parents is None else dict(zip(given.parents, links, strict=True))
        return cls(links if by_name is None else by_name, leak, present=present)

    def _fill(self, present: Sequence[int]) -> None:
        """Make the CPT; `present`: the state that stands for presence, of each parent and the child."""
        step = -1 if present[-1] else 1  # columns: the effect, none
        links, own = np.array(self.links), np.array(present[:-1], np.int64)
        effects = np.zeros((len(links), 2, 2))
        at = np.arange(len(links))
        effects[at, own, 0], effects[at, own, 1], effects[at, 1 - own, 1] = links, 1 - links, 1.0
        self._keep(list(effects[:, :, ::step]), np.array([self.leak, 1 - self.leak])[::step], step)

    def ordered(self, places: Sequence[int], parents: tuple[str, ...]) -> NoisyOr:
        """The same strengths, for parents at these places."""
        links = {v: self.links[i] for v, i in zip(parents, places, strict=True)}
        return type(self)(links, self.leak, present=self.present)

    def of_states(self, child: str, states: Mapping[str, Sequence[str]]) -> NoisyOr:
        """The CPT for variables with these states, the parents in order and the child."""
        if not (self.present is None or isinstance(self.present, str)):
            return self
        numbers = []
        for v, names in states.items():
            number = names.index(self.present) if self.present in names else None
            if self.present is None and len(names) == 2:
                number = present_state(names)
            if number is None or len(names) != 2:
                raise NetworkError(
                    f"the {type(self).__name__} of {child!r} needs two states of {v!r}, one of which stands for "
                    f"presence, and these are {listed(names)}: " + (
                        f"there is no state {self.present!r}" if self.present is not None and len(names) == 2
                        else "say which, present='...', the name or the number of a state" if len(names) == 2
                        else "use NoisyMax"
                    )
                )  # fmt: skip
            numbers.append(number)
        if len(numbers) != len(self.links) + 1:
            raise NetworkError(f"the NoisyOr of {child!r} has {len(self.links)} links for {len(numbers) - 1} parents")
        made = copy.copy(self)
        made._fill(numbers)
        return made

    def __getattr__(self, name: str) -> Any:
        if name in ("shape", "effects", "cpt"):
            raise NetworkError(
                "this NoisyOr does not know yet which states stand for presence: give it to a network as a CPT, or say "
                "present=0 or present=1"
            )
        return super().__getattr__(name)

    def __repr__(self) -> str:
        presence = "by name" if self.present is None else repr(self.present)
        links = list(self.links) if self.parents is None else dict(zip(self.parents, self.links, strict=True))
        return f"{type(self).__name__}({links}, leak={self.leak:g}, present={presence})"


@check_keywords()
class NoisyAnd(NoisyOr):
    """The CPT of a noisy-AND child: each parent that is absent prevents the effect with a probability of its own.

    Without any such event, and none of a leak, the effect is present: ``NoisyAnd([1, 1])`` is the logical AND.

    Parameters
    ----------
    links : sequence of float, or mapping from parents to floats
        For each parent, in order or by name: the probability that it alone, being absent, prevents the effect.
    leak : float, default 0
        The probability that there is no effect though all parents are present.
    present : str or int, optional
        See `NoisyOr`.

    Raises
    ------
    ArgumentError, NetworkError
        See `NoisyOr`.

    Examples
    --------
    >>> import jtgpu
    >>> jtgpu.NoisyAnd([0.8, 0.5], leak=0.1, present=1).cpt[..., 1].round(3).tolist()
    [[0.09, 0.18], [0.45, 0.9]]
    """

    def _fill(self, present: Sequence[int]) -> None:
        super()._fill([1 - state for state in present])


def noisy_attributes(parameters: NDArray[np.float64], strengths: Sequence[int]) -> dict[str, tuple[float, ...]]:
    """The numbers of `noisy_max` as attributes of a potential."""
    return {"noisy_max": tuple(parameters.ravel().tolist()), "noisy_strengths": tuple(int(s) for s in strengths)}


def _rows(name: str, given: object) -> NDArray[np.float64]:
    try:
        rows = np.array(given, np.float64)
    except (TypeError, ValueError):
        raise NetworkError(f"{name} must be rows of equally many numbers, not {given!r}") from None
    if rows.ndim != 2 or not rows.size:
        raise NetworkError(f"{name} must be an array with a row for each state, not of shape {rows.shape}")
    sums = rows.sum(axis=1)
    if not (np.isfinite(rows).all() and rows.min() >= 0 and np.abs(sums - 1).max() <= 1e-6):
        raise NetworkError(f"{name} has a row that is no distribution: {rows[int(np.abs(sums - 1).argmax())].tolist()}")
    return rows


def is_noisy(table: object) -> TypeGuard[NoisyMax]:
    """Whether strengths stand in place of a table of a model."""
    return isinstance(table, NoisyMax)
