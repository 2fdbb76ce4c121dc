"""The records that the kernels read: NumPy layouts of the structs in cuda/common, cuda/single and cuda/batch."""

from __future__ import annotations

import numpy as np

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
CASE_FACTOR = _u32("cell", "n", "table", "known", "n_known", "to")
KNOWN = _u32("variable", "inner", "card", "weight")
CHUNK = _u32("cell", "from", "n", "table", "known", "n_known", "top", "pad")
ANSWER = _u32("cell", "card", "at")
