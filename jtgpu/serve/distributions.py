"""Posteriors as JSON or MessagePack, written from one array of numbers: no Python object for a number or a variable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ..model.discrete import DiscreteModel
from ..util.loops import loops

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..util.arrays import Floats

    Integers = NDArray[np.int64]

_loops = loops("jtgpu.serve.answer_loops")
NUMBER = 26  # bytes of a number, at most
SLACK = 32  # bytes that a number may be written beyond its end
SHORTEST = 17  # digits that tell all numbers apart
_json, _msgpack = msgspec.json.Encoder().encode, msgspec.msgpack.Encoder().encode


@cache
def _powers() -> NDArray[np.uint64]:
    """(325, 2) powers of ten in 128 bits, rounded up, the first bit of which is set."""
    rows = []
    for e in range(325):
        power = 10**e
        shift = power.bit_length() - 128
        whole = power << -shift if shift <= 0 else (power >> shift) + 1
        rows.append((whole >> 64, whole & (1 << 64) - 1))
    return np.array(rows, np.uint64)


def decimals(values: Floats, digits: int | None) -> NDArray[np.int64]:
    """(n, 2) integers and exponents of ten: numbers from 0 to 1, rounded to significant digits."""
    numbers = np.empty((len(values), 2), np.int64)
    _loops.decimals(np.ascontiguousarray(values), digits or SHORTEST, _powers(), numbers)
    return numbers


def changed(
    now: Integers, before: Integers, tolerance: float, variables: Integers, ptr: Integers
) -> tuple[Integers, Integers, Integers]:
    """`before` with the numbers of variables that differ by more than the tolerance; these variables; their cells."""
    # now, before: Of the variables, one after another; with a tolerance above 0 bits of doubles
    # ptr: (V+1,) first cell of every variable of the model
    merged, others, cells = before.copy(), np.empty_like(variables), np.empty(len(now), np.int64)
    n, n_cells = _loops.merge(now, merged, tolerance, variables, ptr, others, cells)
    return merged, others[:n], cells[:n_cells]


def flat_json(numbers: NDArray[np.int64]) -> bytes:
    """`decimals` as an array."""
    n = len(numbers)
    commas, each, ends = np.full(n, ord(","), np.uint8), np.arange(n + 1), np.array([0, n])
    out = np.empty((NUMBER + 1) * n + SLACK, np.uint8)
    size = _loops.write(numbers, ends[:1], ends, commas, each, 0, 0, out) if n else 1
    return b"[%b]" % out[1:size].tobytes()


class Distributions:
    """Writes the posteriors of some variables of a model by their names."""

    # labels: By the names of states, too
    # is_binary: As MessagePack

    def __init__(self, model: DiscreteModel, labels: bool, is_binary: bool):
        self._is_binary = is_binary
        self._ptr = np.concatenate([[0], np.cumsum(model.cardinality)]).astype(np.int64)
        heads = [*(_packed_heads if is_binary else _json_heads)(model, labels)]
        self._heads = np.frombuffer(b"".join(heads), np.uint8)
        self._head_ptr = np.concatenate([[0], np.cumsum([*map(len, heads)], dtype=np.int64)])
        self._between, self._end = (0, 0) if is_binary else (ord(","), ord("}" if labels else "]"))

    def write(self, numbers: NDArray[np.int64], variables: NDArray[np.int64]) -> msgspec.Raw:
        """The posteriors as an object."""
        # numbers: Of the variables, one after another: `decimals`, or as MessagePack (n, 1) bits of doubles
        out = np.empty(len(self._heads) + NUMBER * len(numbers) + 2 * len(variables) + SLACK, np.uint8)
        size = _loops.write(
            numbers, variables, self._ptr, self._heads, self._head_ptr, self._between, self._end, out
        )  # fmt: skip
        text = out[:size].tobytes()
        return msgspec.Raw(_map_head(len(variables)) + text if self._is_binary else b"{%b}" % text)


def _json_heads(model: DiscreteModel, labels: bool) -> Iterator[bytes]:
    """The bytes before each cell."""
    for v, name in enumerate(model.variables):
        states: Sequence[str] = model.states(v) if labels else ()
        names = [_json(state) + b":" for state in states] or [b""] * int(model.cardinality[v])
        yield _json(name) + (b":{" if labels else b":[") + names[0]
        yield from (b"," + name for name in names[1:])


def _packed_heads(model: DiscreteModel, labels: bool) -> Iterator[bytes]:
    for v, name in enumerate(model.variables):
        n = int(model.cardinality[v])
        names = [*map(_msgpack, model.states(v))] if labels else [b""] * n
        yield _msgpack(name) + (_map_head(n) if labels else _msgpack([None] * n)[:-n]) + names[0]
        yield from names[1:]


def _map_head(n: int) -> bytes:
    """How a map of n items begins."""
    return bytes([0x80 | n]) if n < 16 else b"\xde" + n.to_bytes(2, "big") if n < 1 << 16 else b"\xdf" + n.to_bytes(4)
