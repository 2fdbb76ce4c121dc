"""Records of contractions for the kernels of single cases: struct Op of cuda/common/types.cuh and its arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ....errors import ImpossibleEvidence
from ....plans.arrays import POSTERIOR
from ....plans.plan import Plan
from ...base import Evidence

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Evidence as the kernels read it, and ln P(e) from what they write.

WEIGHTS = -2  # state of a variable whose evidence is a vector of weights
LN2 = math.log(2.0)


def write_evidence(
    evidence: Evidence, weight_cell: Sequence[int], state: NDArray[Any], weights: NDArray[np.float64]
) -> int:
    """Fill `state` and `weights`; the power of two by which the weights were divided."""
    # weight_cell: (V,) sequence of int: First cell of each variable in `weights`; negative: its weights are left out
    # state: (V,) array of int: Becomes the observed states, -1 = not observed, `WEIGHTS` = a vector of weights
    # weights: Becomes the weights, divided by a power of two so that the largest of a vector is between 1/2 and 1
    # raises ImpossibleEvidence: For a vector of zeros.
    state[:] = evidence.state
    exponent = 0
    for v, given in evidence.likelihood.items():
        at = weight_cell[v]
        if at < 0:
            continue
        vector = np.asarray(given, np.float64)
        hard = int(evidence.state[v])
        if hard >= 0:
            vector = np.where(np.arange(len(vector)) == hard, vector, 0.0)
        top = float(vector.max(initial=0.0))
        if not top > 0:
            raise ImpossibleEvidence("the evidence has probability 0")
        shift = math.frexp(top)[1]
        weights[at : at + len(vector)] = np.ldexp(vector, -shift)
        state[v] = WEIGHTS
        exponent += shift
    return exponent


def log_evidence(root: NDArray[np.float64], exponent: NDArray[np.int32], shift: int) -> float:
    """ln P(e): ln(root) + exponent * ln 2 summed over the components, plus shift * ln 2."""
    # raises ImpossibleEvidence: When a component has probability 0.
    total = shift * LN2
    for value, e in zip(root.tolist(), exponent.tolist(), strict=True):
        if not value > 0:
            raise ImpossibleEvidence("the evidence has probability 0")
        total += math.log(value) + e * LN2
    return total


# The records that the kernels read: NumPy layouts of the structs in cuda/common, cuda/single and cuda/batch.

WARPS = 8  # warps of a block of the level kernels
NONE = 0xFFFFFFFF
MAX_AXES = 64  # variables of a factor that evidence may be multiplied into


REALS = ("float64", "float32")  # types of an arena


def _u32(*names: str) -> np.dtype[np.void]:
    return np.dtype([(n, np.uint32) for n in names])


SLOT = np.dtype([("top", np.int32), ("exponent", np.int32)])
DIGIT = _u32("extent", "magic", "shift", "out", "a", "b")
STEP = _u32("a", "b")
CHECK = _u32("table", "root")
TASK = _u32("op", "unit")
INLINE_DIGITS = 6  # digits of a contraction that are part of its record
SIDE = ("digit", "extent", "step", "stride")
OP = _u32(
    *("a", "b", "out", "slot_a", "slot_b", "slot_out", "n_tiles", "n_steps", "steps", "digits", "n_digits", "shape"),
    *("log_lanes", "wide", "splits", "scratch", "counter", "out_m", "out_n", "pad"),
    *(f"m_{s}" for s in SIDE),
    *(f"n_{s}" for s in SIDE),
    *(f"digit{i}_{s}" for i in range(INLINE_DIGITS) for s in DIGIT.names or ()),
)
CASE_FACTOR = _u32("cell", "from", "table", "known", "n_known", "to", "used", "pad")
KNOWN = _u32("variable", "inner", "card", "weight")
CHUNK = _u32("cell", "from", "n", "table", "known", "n_known", "top", "pad")
ANSWER = _u32("cell", "card", "at")
CASE_ANSWER = _u32("cell", "card", "at", "pad")


# A plan's contractions as the GPU engines run them: at most two tables each, neighbouring axes merged.

OUT, A, B = 0, 1, 2  # places of a loop's strides


@dataclass(frozen=True)
class Step:
    """One contraction of at most two tables; tables from T on are intermediate ones, not of the plan."""

    out: int
    ins: tuple[int, ...]
    posterior: bool


@dataclass(frozen=True)
class Binary:
    """A plan's program as contractions of at most two tables."""

    steps: tuple[Step, ...]  # in an order in which they can run
    scopes: tuple[tuple[int, ...], ...]  # of every table: the plan's, then the intermediate ones
    level: tuple[int, ...]  # of every step, from 1 on


def binary_program(plan: Plan) -> Binary:
    """Split contractions of more than two tables: multiply the two that leave the smallest table first."""
    kinds = [kind == POSTERIOR for kind in plan.op_kind.tolist()]
    steps = [Step(*x) for x in zip(plan.op_out.tolist(), plan.op_inputs, kinds, strict=True)]
    return binary_steps(plan, plan.table_scopes, steps)


def binary_steps(plan: Plan, table_scopes: Sequence[tuple[int, ...]], contractions: Iterable[Step]) -> Binary:
    """The same of any contractions of a plan's factors, which are the first tables."""
    scopes = list(table_scopes)
    steps: list[Step] = []
    for out, ins, posterior in ((x.out, x.ins, x.posterior) for x in contractions):
        left = list(ins)
        while len(left) > 2:
            pairs = [(i, j) for i in range(len(left)) for j in range(i)]
            options = []
            for i, j in pairs:
                others = set(scopes[out]).union(*(scopes[t] for k, t in enumerate(left) if k not in (i, j)))
                joint = set(scopes[left[i]]) | set(scopes[left[j]])
                options.append((plan.size(tuple(joint)), i, j, joint & others))
            _, i, j, kept = min(options, key=lambda o: o[:3])
            scopes.append(tuple(sorted(kept, key=lambda v: int(plan.axis_rank[v]))))
            made = len(scopes) - 1
            steps.append(Step(made, (left[j], left[i]), False))
            left = [t for k, t in enumerate(left) if k not in (i, j)] + [made]
        steps.append(Step(out, tuple(left), posterior))
    return Binary(tuple(steps), tuple(scopes), levels_of(plan, steps))


def levels_of(plan: Plan, steps: Iterable[Step]) -> tuple[int, ...]:
    """The level of each step, from 1 on: steps of one level are independent."""
    level_of = dict.fromkeys(range(plan.n_factors), 0)
    level = []
    for s in steps:
        level_of[s.out] = 1 + max(level_of[t] for t in s.ins)
        level.append(level_of[s.out])
    return tuple(level)


Loop = tuple[int, tuple[int, int, int]]  # extent; strides in the output, A and B


def loops_of(plan: Plan, scopes: Sequence[tuple[int, ...]], step: Step) -> tuple[Loop, ...]:
    """The joint axes of a contraction, slowest first; neighbours that every table walks alike are one axis."""
    cards = plan.cardinality
    ins = step.ins if len(step.ins) == 2 else (step.ins[0], None)
    strides: list[dict[int, int]] = []
    for t in (step.out, *ins):
        at, of = 1, {}
        for v in reversed(scopes[t] if t is not None else ()):
            of[v] = at
            at *= int(cards[v])
        strides.append(of)
    joint = sorted({v for of in strides for v in of if cards[v] > 1}, key=lambda v: int(plan.axis_rank[v]))
    loops: list[Loop] = []
    for v in joint:
        n, walk = int(cards[v]), (strides[OUT].get(v, 0), strides[A].get(v, 0), strides[B].get(v, 0))
        if loops and all(before == here * n for before, here in zip(loops[-1][1], walk, strict=True)):
            loops[-1] = (loops[-1][0] * n, walk)
        else:
            loops.append((n, walk))
    return tuple(loops)


def mirrored(loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
    """The loops of the same contraction with its inputs exchanged."""
    return tuple((n, (s[OUT], s[B], s[A])) for n, s in loops)


def offsets(loops: Iterable[Loop], table: int) -> list[int]:
    """Offsets in one table of every configuration of some axes, the last axis fastest."""
    at = [0]
    for n, s in loops:
        at = [x + i * s[table] for x in at for i in range(n)]
    return at


DIGIT_NAMES = [[f"digit{d}_{name}" for name in DIGIT.names or ()] for d in range(INLINE_DIGITS)]


class Tile(Protocol):
    """How threads cover a contraction, as far as its record describes it."""

    @property
    def sides(self) -> Mapping[int, int]:
        """Outputs of a tile along the loops on which its sides M and N lie."""

    @property
    def m_axis(self) -> int:
        """Loop of side M; -1: none."""

    @property
    def n_axis(self) -> int:
        """Loop of side N; -1: none."""

    @property
    def n_tiles(self) -> int:
        """Tiles of the whole contraction."""

    @property
    def log_lanes(self) -> int:
        """log2 of the lanes that share a sum."""

    @property
    def splits(self) -> int:
        """Parts into which a sum is divided."""


class RecordPool:
    """Digits and summed offsets that records refer to by position; equal lists are stored once."""

    def __init__(self) -> None:
        self._digits: list[tuple[int, ...]] = []
        self._steps: list[NDArray[Any]] = []
        self._n_steps = 0
        self._digits_at: dict[tuple[tuple[int, ...], ...], int] = {}
        self._steps_at: dict[tuple[Loop, ...], int] = {}

    def add_digits(self, digits: tuple[tuple[int, ...], ...]) -> int:
        """Position of a list of DIGIT rows."""
        if digits not in self._digits_at:
            self._digits_at[digits] = len(self._digits)
            self._digits += digits
        return self._digits_at[digits]

    def add_steps(self, summed: tuple[Loop, ...]) -> int:
        """Position of the offsets in A and B of every configuration of the summed loops."""
        key = tuple((n, (0, *s[1:])) for n, s in summed)
        if key not in self._steps_at:
            self._steps_at[key] = self._n_steps
            made = np.zeros(math.prod(n for n, _ in summed), STEP)
            made["a"], made["b"] = offsets(summed, A), offsets(summed, B)
            self._steps.append(made)
            self._n_steps += len(made)
        return self._steps_at[key]

    def arrays(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """All digits (D,) DIGIT and all offsets (K,) STEP."""
        steps = np.concatenate(self._steps) if self._steps else np.zeros(0, STEP)
        return np.array(self._digits, DIGIT), steps


def contraction_record(pool: RecordPool, loops: tuple[Loop, ...], tile: Tile, cells: Sequence[int]) -> dict[str, int]:
    """Fields of a contraction's OP record, but for those that only one engine has."""
    # loops: tuple of Loop: Joint axes, slowest first
    # cells: (int, int, int): First cells of A, B and the output in the arena
    sides = tile.sides
    places: dict[int, int] = {}
    digits: list[tuple[int, ...]] = []
    for i in (i for i in reversed(range(len(loops))) if loops[i][1][OUT]):
        n, s = loops[i]
        extent = -(-n // sides[i]) if i in sides else n
        if extent > 1:
            places[i] = len(digits)
            digits.append((extent, *reciprocal(extent), *s))
    summed = tuple(x for x in loops if not x[1][OUT])
    op = dict(zip(("a", "b", "out"), cells, strict=True))
    op |= {"n_tiles": tile.n_tiles, "n_steps": math.prod(n for n, _ in summed), "steps": pool.add_steps(summed)}
    op |= {"digits": pool.add_digits(tuple(digits[INLINE_DIGITS:])), "n_digits": len(digits)}
    op |= {"log_lanes": tile.log_lanes, "splits": tile.splits}
    for name, axis, table in (("m", tile.m_axis, A), ("n", tile.n_axis, B)):
        side = {"digit": NONE, "extent": 1, "step": 1, "stride": 0}
        if axis >= 0:
            n, strides = loops[axis]
            step = -(-n // sides[axis])
            side = {"digit": places.get(axis, NONE), "extent": n, "step": step, "stride": strides[table]}
            op[f"out_{name}"] = step * strides[OUT]
        op |= {f"{name}_{key}": value for key, value in side.items()}
    for d in range(INLINE_DIGITS):
        digit = digits[d] if d < len(digits) else (1, 0, 0, 0, 0, 0)
        op |= zip(DIGIT_NAMES[d], digit, strict=True)
    return op


def record_array(ops: Sequence[Mapping[str, int]]) -> NDArray[Any]:
    """(N,) OP of records as mappings; fields that a mapping does not name are 0."""
    made = np.zeros(len(ops), OP)
    for name in OP.names or ():
        made[name] = [op.get(name, 0) for op in ops]
    return made


def reciprocal(extent: int) -> tuple[int, int]:
    """Multiplier and shift that divide by a constant: ``n // extent == (n * multiplier >> 32) >> shift``.

    For 0 <= n < 2^31 and extent >= 2 (Granlund and Montgomery, "Division by invariant integers using
    multiplication", PLDI 1994).
    """
    log = (extent - 1).bit_length()
    return (1 << 31 + log) // extent + 1, log - 1
