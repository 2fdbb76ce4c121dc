"""Layouts of structs that are read from the CUDA sources."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from jtgpu.device.structs import filled, struct


@pytest.mark.parametrize(
    ("file", "name", "size"),
    [
        ("common/types.cuh", "Op", 256), ("common/types.cuh", "Digit", 24), ("common/types.cuh", "Slot", 8),
        ("batch/batch.cuh", "Tile", 112), ("batch/products.cu", "Product", 608), ("batch/counts.cu", "Cells", 128),
        ("batch/batch.cuh", "Batch", 152), ("single/levels.cu", "Answer", 12), ("published/job.cuh", "Job", 64),
    ],
)  # fmt: skip
def test_structs_have_the_sizes_that_the_sources_name(file: str, name: str, size: int) -> None:
    assert struct(file, name).itemsize == size


def test_fields_are_aligned_as_in_c() -> None:
    class Finish(ctypes.Structure):
        _fields_ = [
            ("log_evidence", ctypes.c_void_p), ("log_scale", ctypes.c_void_p), ("rows", ctypes.c_void_p),
            ("lost", ctypes.c_void_p), ("least", ctypes.c_double), ("n", ctypes.c_uint32), ("n_out", ctypes.c_uint32),
        ]  # fmt: skip

    read = struct("batch/counts.cu", "Finish")
    assert read.itemsize == ctypes.sizeof(Finish)
    assert {n: read.fields[n][1] for n in read.names or () if read.fields} == {
        field[0]: getattr(Finish, field[0]).offset for field in Finish._fields_
    }
    chunk = struct("single/levels.cu", "Entry")  # a comment with a semicolon, pointers to structs
    assert chunk.names == ("chunks", "known", "pristine", "state", "weights", "dirty")
    assert chunk.itemsize == 6 * 8


def test_a_wrong_field_is_an_error() -> None:
    digit = struct("common/types.cuh", "Digit")
    made = filled(digit, extent=3, magic=1, shift=2, out=4, a=5, b=6)
    assert made.tobytes() == np.array([3, 1, 2, 4, 5, 6], np.uint32).tobytes()
    with pytest.raises(KeyError, match="stride"):
        filled(digit, extent=3, magic=1, shift=2, out=4, a=5, b=6, stride=1)
    with pytest.raises(KeyError, match="magic"):
        filled(digit, extent=3, shift=2, out=4, a=5, b=6)
    with pytest.raises(KeyError, match="no struct Nothing"):
        struct("common/types.cuh", "Nothing")
