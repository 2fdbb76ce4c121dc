"""Cells that are likelihoods, such as ``[0.4;0.8]``: one weight for each state, as in Merlin's tables.

Each distinct likelihood of a variable has a number k, and the code -2 - k in place of a state, so that rows with such
cells are stored, merged and counted as all others.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...columns.coded import Encoder
from ...columns.column import Column, distinct
from ...errors import ArgumentError, DataError, closest
from ...inference.evidence_table import weight_rows
from ...model.discrete import DiscreteModel
from ...model.network import BayesianNetwork
from ...model.states import REJECTED, StateLookup, StateValues
from ...util.arguments import described, mapping, names, several
from ...util.arrays import Floats, Ints
from ...util.cells import LIKELIHOOD, is_likelihood
from ...util.rows import find_equal_rows
from ..discretisation import Discretiser

if TYPE_CHECKING:
    from numpy.typing import NDArray

FIRST = -2  # code of likelihood 0


class LikelihoodCells:
    """The likelihoods in the cells of a table."""

    def __init__(self, model: DiscreteModel):
        self._model = model
        self._parts: dict[int, list[Floats]] = {}  # distinct likelihoods by variable
        self._codes: dict[tuple[int, str], int] = {}  # of texts

    def __bool__(self) -> bool:
        return bool(self._parts)

    def vectors(self, v: int) -> Floats:
        """The likelihoods of a variable by their numbers, (K, card)."""
        parts = self._parts[v]
        if len(parts) > 1:
            parts[:] = [np.concatenate(parts)]
        return parts[0]

    def _add(self, v: int, vectors: Floats) -> int:
        """Add likelihoods; the number of the first."""
        parts = self._parts.setdefault(v, [])
        first = sum(map(len, parts))
        parts.append(vectors)
        return first

    def encode(self, encoder: Encoder, columns: Sequence[Any], variables: Sequence[int], n: int) -> Any:
        """Encode columns some of whose cells are likelihoods; see `Encoder.encode`."""
        # raises DataError: If the number of weights is not that of the states, or a weight is negative; without the
        #     row.
        encoded = encoder.encode(columns, n, first_only=True)
        if not encoded.rejected:
            return encoded
        split = [self._split(column, lookup, v) for column, lookup, v in
                 zip(columns, encoder.lookups, variables, strict=True)]  # fmt: skip
        if not any(codes is not None for _, codes in split):
            return encoded
        encoded = encoder.encode([column for column, _ in split], n, first_only=True)
        least = min(int(codes.min()) for _, codes in split if codes is not None)
        dtype = next(t for t in (np.int8, np.int16, np.int32) if np.iinfo(t).max >= -least)
        encoded.codes = encoded.codes.astype(np.promote_types(encoded.codes.dtype, dtype))
        for j, (_, codes) in enumerate(split):
            if codes is not None:
                encoded.codes[j] = np.where(codes < 0, codes, encoded.codes[j])
        return encoded

    def _split(self, column: Any, lookup: Any, v: int) -> tuple[Any, Ints | None]:
        """A column without its likelihoods, and their codes, 0 in other cells; None if there are none."""
        read = distinct(lookup.name, column)
        codes = np.zeros(len(read.cells) + 1, np.int64)
        for i, value in enumerate(read.cells):
            if is_likelihood(value) and lookup.number(value) == REJECTED:
                codes[i] = self._code(v, value)
        if not codes.any():
            return column, None
        rows = codes[read.index]  # of an index of -1, the last one
        return Column(np.where(rows < 0, -1, read.index), read.cells), rows

    def without(self, v: int, column: Any, given: Any) -> tuple[Any, Floats | None]:
        """A column without its likelihoods, and these times the given ones, (n, card); None if it has none."""
        name = self._model.variables[v]
        rest, codes = self._split(column, StateLookup(name, StateValues(self._model.states(name))), v)
        if codes is None:
            return column, None
        weights = np.ones((len(codes), int(self._model.cardinality[v])))
        weights[codes < 0] = self.vectors(v)[FIRST - codes[codes < 0]]
        return rest, weights * (1.0 if given is None else weight_rows(self._model, v, given, len(codes)))

    def _code(self, v: int, text: str) -> int:
        """The code of a text."""
        code = self._codes.get((v, text))
        if code is None:
            code = FIRST - self._add(v, _parsed(self._model, v, text)[None, :])
            self._codes[v, text] = code
        return code

    def enter(self, states: NDArray[Any], v: int, value: Any, rows: slice, n: int) -> NDArray[Any]:
        """Enter likelihoods that are given as an array into the codes of some rows."""
        # states: (k, V) integers: Codes of rows `rows` of the table
        # value: (n, card), or (card,) for all rows
        # n: Rows of the table
        # returns (k, V) ndarray: `states`, or a copy.
        given = weight_rows(self._model, v, value, n)[rows]
        present = states[:, v].astype(np.int64)
        weights = np.array(given)
        soft, observed = present <= FIRST, present >= 0
        if soft.any():
            weights[soft] *= self.vectors(v)[FIRST - present[soft]]
        weights[observed] *= np.eye(weights.shape[1])[present[observed]]
        says = (given != 1.0).any(axis=1) & (weights.shape[1] > 0)
        if not says.any():
            return states
        wanted = np.ascontiguousarray(weights[says])
        equal = find_equal_rows(wanted)
        kinds = np.arange(len(wanted)) if equal is None else equal.kind
        first = self._add(v, wanted if equal is None else wanted[equal.first])
        present[says] = FIRST - first - kinds
        least = int(present.min())
        dtype = next(t for t in (np.int8, np.int16, np.int32) if np.iinfo(t).max >= -least)
        states = states.astype(np.promote_types(states.dtype, dtype), order="C")
        states[:, v] = present
        return states

    def decode(self, codes: NDArray[Any]) -> tuple[NDArray[np.int32], dict[int, Floats]]:
        """States, (n, V), and likelihoods by variable, (n, card): ones in rows without one."""
        states = np.array(codes, np.int32, order="C")
        decoded = {}
        for v in sorted(self._parts):
            soft = states[:, v] <= FIRST
            if soft.any():
                weights = np.ones((len(states), int(self._model.cardinality[v])))
                weights[soft] = self.vectors(v)[FIRST - states[soft, v]]
                decoded[v] = weights
                states[soft, v] = -1
        return states, decoded

    def digest(self) -> str:
        """A hash of all likelihoods."""
        digest = hashlib.sha256()
        for v in sorted(self._parts):
            digest.update(repr((v, self.vectors(v).shape)).encode())
            digest.update(np.ascontiguousarray(self.vectors(v)).tobytes())
        return digest.hexdigest()


def _parsed(model: DiscreteModel, v: int, text: str) -> Floats:
    """The weights of a cell."""
    match = LIKELIHOOD.fullmatch(text)
    assert match is not None
    states = model.states(v)
    try:
        weights = [float(x) for x in match[1].split(";")]
    except ValueError:
        raise DataError(f"column {model.variables[v]!r}: the likelihood {text.strip()[:60]!r} has parts that are not "
                        "numbers") from None  # fmt: skip
    if len(weights) != len(states):
        listed = f"{', '.join(states[:8])}{', ...' if len(states) > 8 else ''}"
        raise DataError(
            f"column {model.variables[v]!r}: the likelihood {text.strip()[:60]!r} has {len(weights)} weights, but the "
            f"variable has {len(states)} states ({listed})"
        )
    if not all(math.isfinite(x) and x >= 0 for x in weights) or not any(weights):
        raise DataError(
            f"column {model.variables[v]!r}: the weights of the likelihood {text.strip()[:60]!r} must be finite, >= 0 "
            "and not all 0"
        )
    return np.array(weights)


# The states of every variable: given, of the network, or those in the data.

def hidden_states(hidden: Any, network: DiscreteModel | None, variables: Sequence[str]) -> dict[str, tuple[str, ...]]:
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
    states: Mapping[str, Iterable[Any]] | None, network: BayesianNetwork | None, variables: Sequence[str]
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


def of_discretiser(states: Any, variables: Iterable[str]) -> tuple[Any, dict[str, tuple[float, float]]]:
    """The argument `states`, and the ends of intervals of numbers if it is a `Discretiser`."""
    if not isinstance(states, Discretiser):
        return states, {}
    labels, scales = states.states, states.scales_
    known = [v for v in variables if v in labels]
    return {v: labels[v] for v in known}, {
        v: (scales[v].least, scales[v].greatest) for v in known if scales[v].kind == "numbers"
    }
