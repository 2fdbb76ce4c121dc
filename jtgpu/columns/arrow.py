"""Arrow and narwhals, imported on first use. Frames and files become Arrow columns before they are encoded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ..errors import EvidenceError, JtgpuError, shown
from ..util.arrays import Floats
from ..util.cells import POINT, Marks, is_na_word, numeral

_NEEDS = "tables of cases require {0}, which is not installed: pip install '.[frames]' in a checkout"


def arrow() -> Any:
    """The package pyarrow."""
    # raises JtgpuError: If it is not installed, naming the extra that provides it; likewise for the other functions
    #     here.
    try:
        import pyarrow
    except ImportError:
        raise JtgpuError(_NEEDS.format("pyarrow")) from None
    return pyarrow


def compute() -> Any:
    """The module pyarrow.compute."""
    arrow()
    import pyarrow.compute

    return pyarrow.compute


def arrow_csv() -> Any:
    """The module pyarrow.csv."""
    arrow()
    import pyarrow.csv

    return pyarrow.csv


def arrow_parquet() -> Any:
    """The module pyarrow.parquet."""
    arrow()
    import pyarrow.parquet

    return pyarrow.parquet


def narwhals() -> Any:
    """The package narwhals."""
    try:
        import narwhals.stable.v1 as nw
    except ImportError:
        raise JtgpuError(_NEEDS.format("narwhals")) from None
    return nw


# Columns of files with numbers in them.

def without_words(column: Any, words: frozenset[str], known: Collection[str] = ()) -> Any:
    """A column of text with null in place of the words that mean a missing cell, unless they are known states."""
    pa, pc = arrow(), compute()
    cells = [x for x in column.unique().to_pylist() if x is not None and is_na_word(x, words)]
    gone = [x for x in cells if x not in known and x.strip() not in known]
    return pc.if_else(pc.is_in(column, pa.array(gone, pa.string())), None, column) if gone else column


def to_double(column: Any) -> Any:
    """An Arrow column of numbers as float64; decimals by their text: Arrow casts 0.3 to 0.30000000000000004."""
    pa = arrow()
    # whole numbers above 2^53 are rounded, as by NumPy
    return (column.cast(pa.string()) if pa.types.is_decimal(column.type) else column).cast(pa.float64(), safe=False)


def as_floats(
    name: str, column: Any, words: frozenset[str], where: Callable[[int], str], marks: Marks = POINT
) -> Any:
    """A column of numbers, or of their texts, as an Arrow array of float64."""
    # words: those that mean a missing cell; where: the place of a row
    # marks: Of decimals and thousands in texts
    # raises EvidenceError: For a cell that is no number, and for columns of other types.
    pa, pc = arrow(), compute()
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind):
        return to_double(column)
    if not pa.types.is_string(kind):
        raise EvidenceError(f"{where(0)}: column {name!r} must hold numbers, got cells of the type {kind}")
    column = pc.utf8_trim_whitespace(without_words(column, words))

    def cast(texts: Any) -> Any:
        if marks[0] != ",":
            with suppress(pa.ArrowInvalid):
                return texts.cast(pa.float64())
        coded = texts.dictionary_encode()
        numbers = [numeral(text, marks) for text in coded.dictionary.to_pylist()]
        return None if None in numbers else pa.array(numbers, pa.float64()).take(coded.indices)

    numbers = cast(column)
    if numbers is not None:
        return numbers
    row = next(i for i in range(len(column)) if cast(column[i : i + 1]) is None)
    raise EvidenceError(
        f"{where(row)}: column {name!r}: expected a number, got {shown(column[row].as_py())}; leave cells empty that "
        "were not measured"
    )


# Tensors of other libraries as NumPy arrays, by DLPack: without a copy where they are in host memory.

# of DLPack: memory that the CPU addresses
CPU, CUDA_HOST, CUDA_MANAGED = 1, 3, 13
DEVICES = {2: "CUDA device", 4: "OpenCL device", 7: "Vulkan device", 8: "Metal device", 10: "ROCm device"}

_logged: set[str] = set()  # what has been said about copies


def is_tensor(value: object) -> bool:
    """Whether this is an array of another library: PyTorch, JAX, CuPy ..."""
    if isinstance(value, (np.ndarray, np.generic)):
        return False
    return any(hasattr(type(value), sign) for sign in ("__dlpack__", "__cuda_array_interface__"))


def as_array(value: Any, what: str) -> np.ndarray[Any, Any]:
    """The NumPy array of a tensor, sharing its memory."""
    # what: What it is, for messages
    # raises EvidenceError: If the tensor is not in host memory, requires gradients, has a dtype that NumPy does not
    #     have, or has been deleted.
    device = _device(value)
    if device:
        raise EvidenceError(f"{what}: the tensor is on {device}, but tables are read from host memory; copy it first")
    if getattr(value, "requires_grad", False) is True:
        raise EvidenceError(
            f"{what}: the tensor requires gradients, which this method does not compute; pass tensor.detach(), or use "
            "jtgpu.interop.torch"
        )
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError, AttributeError) as error:
        dtype = getattr(value, "dtype", None)
        of = "" if dtype is None else f" of dtype {dtype}"
        reason = str(error).strip().partition("\n")[0]
        raise EvidenceError(f"{what}: this {type(value).__name__}{of} cannot be read by DLPack: {reason}") from None


def is_on_device(value: object) -> bool:
    """Whether this is a tensor in memory that the CPU does not address."""
    return is_tensor(value) and bool(_device(value))


def _device(value: Any) -> str:
    """The device of a tensor that the CPU cannot read; empty for host memory."""
    if not hasattr(type(value), "__dlpack_device__"):
        return "a CUDA device" if hasattr(type(value), "__cuda_array_interface__") else ""
    try:
        kind, number = value.__dlpack_device__()
    except (RuntimeError, ValueError, TypeError, BufferError):  # `as_array` has the reason
        return ""
    if int(kind) in (CPU, CUDA_HOST, CUDA_MANAGED):
        return ""
    return f"{DEVICES.get(int(kind), f'a device of kind {int(kind)}')} {number}"


def log_copy(array: np.ndarray[Any, Any], dtype: Any, what: str) -> None:
    """Log, once for each kind, that a tensor is copied because of its dtype or its layout."""
    wanted = np.dtype(dtype)
    reason = f"dtype {array.dtype}" if array.dtype != wanted else "" if array.flags.c_contiguous else "strides"
    if reason and (key := f"{what}: {reason}") not in _logged:
        _logged.add(key)
        logging.getLogger("jtgpu").info(
            "%s: the tensor is copied because of its %s; a contiguous tensor of %s is not", what, reason, wanted
        )


def number_array(
    value: object,
    what: str,
    expected: str = "an array of numbers",
    *,
    copy: bool = True,
    states: Mapping[str, Sequence[str]] | None = None,
) -> Floats:
    """`value` as an array of float64: a copy, or `value` itself where that is one and `copy` is False."""
    # states: Of the variables of the last axes. A data frame or series that names them may have another order.
    # raises EvidenceError: If anything in it is not a real number; texts of digits are not.
    if is_tensor(value):
        value = as_array(value, what)
        if not copy:
            log_copy(value, np.float64, what)
    try:
        array = np.array(value) if copy else np.asarray(value)
        if array.dtype.kind in "biuf" or (array.dtype.kind == "O" and not any(isinstance(x, str) for x in array.flat)):
            array = array.astype(np.float64, copy=False)
            return _in_order(value, array, states) if states and type(value) is not np.ndarray else array
    except (TypeError, ValueError, OverflowError):
        pass
    raise EvidenceError(f"{what} must be {expected}, got {shown(value)}")


def _in_order(value: object, table: Floats, states: Mapping[str, Sequence[str]]) -> Floats:
    """The numbers of a data frame or series in the order of the states that its labels name."""
    own_names = getattr(value, "column_names", None)  # of Arrow
    labels = [getattr(value, "index", None), getattr(value, "columns", None) if own_names is None else own_names]
    labels = labels[: table.ndim]
    for axis, name in zip(range(-1, -1 - len(labels), -1), reversed([*states]), strict=False):
        names = labels[axis]
        if names is None or callable(names) or (getattr(names, "start", None) == 0 and names.step == 1):
            continue  # a method of a list or of polars; a frame made of an array
        given, own = [*map(str, names)], states[name]
        if sorted(given) == sorted(own):
            table = np.take(table, [given.index(s) for s in own], axis)
        elif given != [str(i) for i in range(len(own))]:
            kind = "labels" if axis < -1 or len(labels) == 1 else "columns"
            raise EvidenceError(
                f"the {kind} of {name!r} are {', '.join(map(repr, given[:8]))}; expected its states "
                f"{', '.join(map(repr, own[:8]))}, or an array"
            )
    return table
