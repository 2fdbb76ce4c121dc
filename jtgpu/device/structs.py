"""Structs of our CUDA sources as NumPy types, read from the sources, so that no layout is written twice."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from .nvcc import source_folder, with_headers

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TYPES: dict[str, Any] = {
    "int": np.int32, "short": np.int16, "long long": np.int64, "float": np.float32, "double": np.float64,
    "u32": np.uint32, "u64": np.uint64, "unsigned": np.uint32, "unsigned long long": np.uint64,
    "uint2": (np.uint32, (2,)),
}  # fmt: skip
_FIELDS = re.compile(r"(?:const\s+)?((?:unsigned )?long long|\w+)\s*(.+)", re.DOTALL)
_NAME = re.compile(r"(\**)\s*(\w+)(?:\[([^\]]+)\])?")


@cache
def _code(file: str) -> str:
    """A source with its headers, without comments."""
    text = with_headers((source_folder() / file).read_text(encoding="utf-8"))
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)


@cache
def struct(file: str, name: str) -> np.dtype[np.void]:
    """The layout of a struct as C++ makes it; pointers are unsigned 64-bit integers."""
    # file: As in the folder of the sources, with its suffix
    # raises BackendUnavailable: If the sources are missing.
    # raises KeyError: For a struct, or a type of its fields, that the file does not have.
    code = _code(file)
    body = re.search(rf"struct {name} \{{(.*?)\}};", code, re.DOTALL)
    if body is None:
        raise KeyError(f"no struct {name} in {file}")
    fields: list[tuple[str, Any]] = []
    for declaration in filter(None, map(str.strip, body[1].split(";"))):
        kind, names = _FIELDS.fullmatch(declaration).groups()  # type: ignore[union-attr]
        for pointer, field, length in _NAME.findall(names):
            of: Any = np.uint64 if pointer else _TYPES.get(kind) or struct(file, kind)
            fields.append((field, (of, (_length(code, length),)) if length else of))
    return np.dtype(fields, align=True)


def _length(code: str, length: str) -> int:
    """Elements of an array: a sum of numbers, and of macros that are numbers."""
    n = 0
    for term in length.split(" + "):
        macro = re.search(rf"#define {term} (\d+)", code)
        if macro is None and not term.isdigit():
            raise KeyError(f"{term} is no number")
        n += int(macro[1] if macro else term)
    return n


def filled(layout: np.dtype[np.void], **fields: Any) -> NDArray[Any]:
    """One struct, shape (), as a kernel's parameter; fields called ``pad`` are 0."""
    # raises KeyError: If a field is missing, or is none of the struct's.
    wrong = {*fields, "pad"} ^ {*(layout.names or ()), "pad"}
    if wrong:
        raise KeyError(f"fields of the struct that are missing, or of another one: {', '.join(sorted(wrong))}")
    made = np.zeros((), layout)
    for name, value in fields.items():
        made[name] = value
    return made


JOB = struct("published/job.cuh", "Job")  # of the published kernels
MAP = np.dtype(np.uint32)  # block_job: the job of each block
