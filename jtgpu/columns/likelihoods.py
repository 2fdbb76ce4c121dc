"""Cells that are likelihoods, such as ``[0.4;0.8]``: one weight for each state, as in Merlin's tables.

Each distinct likelihood of a variable has a number k, and the code -2 - k in place of a state, so that rows with such
cells are stored, merged and counted as all others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import EvidenceError
from ..model.discrete import DiscreteModel
from ..model.states import NOT_OBSERVED, REJECTED, StateLookup, likelihood_of
from ..util.arrays import Floats, Ints
from ..util.cells import as_text, is_likelihood
from ..util.rows import Mapper, find_equal_rows
from .coded import Encoded, Encoder
from .column import Column, distinct

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

    def encode(
        self, encoder: Encoder, columns: Sequence[object], n: int, each: Mapper = map, *, first_only: bool = False
    ) -> Encoded:
        """Encode columns some of whose cells are likelihoods; see `Encoder.encode`."""
        # returns Encoded: A cell whose weights are wrong remains rejected
        encoded = encoder.encode(columns, n, each, first_only=first_only)
        if not encoded.rejected:
            return encoded
        split = [self._split(*both) for both in zip(columns, encoder.lookups, encoder.variables, strict=True)]
        if not any(codes is not None for _, codes in split):
            return encoded
        encoded = encoder.encode([column for column, _ in split], n, each, first_only=first_only)
        least = min(int(codes.min()) for _, codes in split if codes is not None)
        dtype = next(t for t in (np.int8, np.int16, np.int32) if np.iinfo(t).max >= -least)
        encoded.codes = encoded.codes.astype(np.promote_types(encoded.codes.dtype, dtype))
        for j, (_, codes) in enumerate(split):
            if codes is not None:
                encoded.codes[j] = np.where(codes < 0, codes, encoded.codes[j])
        encoded.codes[:, [*encoded.rejected]] = NOT_OBSERVED
        return encoded

    def _split(self, column: object, lookup: StateLookup, v: int) -> tuple[Any, Ints | None]:
        """A column without its likelihoods, and their codes, 0 in other cells; None if there are none."""
        read = distinct(lookup.name, column)
        codes = np.zeros(len(read.cells) + 1, np.int64)
        for i, value in enumerate(read.cells):
            text = as_text(value)
            if is_likelihood(text) and lookup.number(value) == REJECTED:
                codes[i] = self._code(v, text)
        if not codes.any():
            return column, None
        rows = codes[read.index]  # of an index of -1, the last one
        return Column(np.where(rows < 0, -1, read.index), read.cells), rows

    def _code(self, v: int, text: str) -> int:
        """The code of a text; 0 if its weights are wrong."""
        code = self._codes.get((v, text))
        if code is None:
            weights = likelihood_of(text, self._model.states(v))
            code = 0 if isinstance(weights, str) else FIRST - self._add(v, weights[None, :])
            self._codes[v, text] = code
        return code

    def enter(self, states: NDArray[np.integer], v: int, given: Floats) -> NDArray[Any]:
        """Enter likelihoods, (n, card), into the codes of n rows."""
        # states: (n, V) integers
        # returns (n, V) ndarray: `states`, or a copy.
        present = states[:, v].astype(np.int64)
        weights = np.array(given)
        soft, observed = present <= FIRST, present >= 0
        if soft.any():
            weights[soft] = product(self._model, v, weights[soft], self.vectors(v)[FIRST - present[soft]])
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

    def decode(self, codes: NDArray[np.integer]) -> tuple[NDArray[np.int32], dict[int, Floats]]:
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

    def taken(self, codes: NDArray[np.integer], likelihood: dict[int, Floats]) -> NDArray[Any]:
        """States, (n, V), after multiplying the likelihoods into those given by variable."""
        if not self:
            return codes
        states, own = self.decode(codes)
        likelihood |= {v: product(self._model, v, w, likelihood[v]) if v in likelihood else w for v, w in own.items()}
        return states

    def digest(self) -> str:
        """A hash of all likelihoods."""
        digest = hashlib.sha256()
        for v in sorted(self._parts):
            digest.update(repr((v, self.vectors(v).shape)).encode())
            digest.update(np.ascontiguousarray(self.vectors(v)).tobytes())
        return digest.hexdigest()


def product(model: DiscreteModel, v: int, a: Floats, b: Floats) -> Floats:
    """The product of two likelihoods of a variable."""
    with np.errstate(over="ignore"):
        both: Floats = a * b
    if not np.isfinite(both).all():
        raise EvidenceError(
            f"the product of the likelihoods of {model.variables[v]!r} is too large for a number; scale one of them"
        )
    return both
