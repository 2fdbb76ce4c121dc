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
    "int": np.int32, "short": np.int16, "u32": np.uint32, "u64": np.uint64, "double": np.float64,
    "uint2": (np.uint32, (2,)),
}  # fmt: skip
_FIELDS = re.compile(r"(?:const\s+)?(\w+)\s*(.+)", re.DOTALL)
_NAME = re.compile(r"(\**)\s*(\w+)(?:\[(\w+)\])?")


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
    """Elements of an array: a number, or a macro that is one."""
    if length.isdigit():
        return int(length)
    macro = re.search(rf"#define {length} (\d+)", code)
    if macro is None:
        raise KeyError(f"{length} is no number")
    return int(macro[1])


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
