"""Signatures of declared functions, as text, as a tree of types, and as Numba's types.

A signature lists the types of the arguments: ``f8`` is a number, ``f8[:, :]`` a C-contiguous array with two axes,
``const(f8[:])`` an array that is only read and may be read-only, ``(f8[:], i8)`` a tuple, and any other name a
NamedTuple of the function's module, whose annotations say the types of its fields.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.np.numpy_support import as_dtype, from_dtype

NUMBERS = ("b1", "u1", "i4", "i8", "u8", "f4", "f8")
FIELDS = {"int": "i8", "float": "f8", "bool": "b1"}
AXES = {"NDArray": 1, "Matrix": 2, "Cube": 3}  # of an annotation


class NumberType(NamedTuple):
    """A number."""

    code: str  # of NUMBERS; empty: None


class Array(NamedTuple):
    """A C-contiguous array; a result may have any strides."""

    code: str
    ndim: int
    constant: bool = False


class RecordType(NamedTuple):
    """A tuple, or a NamedTuple."""

    items: tuple[Type, ...]
    kind: type | None = None


Type = NumberType | Array | RecordType


def parse(signature: str, names: Mapping[str, Any]) -> tuple[Type, ...]:
    """The types of a signature; `names`: the globals of the function."""
    return tuple(_parsed(node, names) for node in _elements(ast.parse(f"({signature},)", mode="eval").body))


def _elements(node: ast.expr) -> list[ast.expr]:
    if not isinstance(node, ast.Tuple):
        raise TypeError(f"no tuple: {ast.unparse(node)}")
    return node.elts


def _parsed(node: ast.expr, names: Mapping[str, Any]) -> Type:
    if isinstance(node, ast.Tuple):
        return RecordType(tuple(_parsed(item, names) for item in node.elts))
    if isinstance(node, ast.Name) and node.id in NUMBERS:
        return NumberType(node.id)
    if isinstance(node, ast.Name):
        return _fields(names[node.id])
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in NUMBERS:
        return Array(node.value.id, len(node.slice.elts) if isinstance(node.slice, ast.Tuple) else 1)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "const":
        inner = _parsed(node.args[0], names)
        if isinstance(inner, Array):
            return inner._replace(constant=True)
    raise TypeError(f"no type: {ast.unparse(node)}")


def _fields(kind: Any) -> RecordType:
    """The types of a NamedTuple's fields, by their annotations."""
    items: list[Type] = []
    for name in kind._fields:
        text = kind.__annotations__[name]
        node = ast.parse(getattr(text, "__forward_arg__", text), mode="eval").body
        if isinstance(node, ast.Subscript):
            scalar = getattr(np, ast.unparse(node.slice).removeprefix("np."))
            items.append(Array(np.dtype(scalar).str[1:], AXES[ast.unparse(node.value)]))
        else:
            items.append(NumberType(FIELDS[ast.unparse(node)]))
    return RecordType(tuple(items), kind)


def numba_types(signature: str, names: Mapping[str, Any]) -> tuple[Any, ...]:
    """A signature as Numba's types."""
    return tuple(_numba_type(t) for t in parse(signature, names))


def _numba_type(kind: Type) -> Any:
    if isinstance(kind, RecordType):
        from_types: Any = types.BaseTuple.from_types
        return from_types([_numba_type(item) for item in kind.items], kind.kind)
    number = from_dtype(np.dtype(kind.code))
    if isinstance(kind, Array):
        return types.Array(number, kind.ndim, "C", readonly=kind.constant)
    return number


def type_of(result: Any) -> Type:
    """The type of a result that Numba infers."""
    if isinstance(result, types.NoneType):
        return NumberType("")
    if isinstance(result, types.BaseTuple):
        items: Any = result
        return RecordType(tuple(map(type_of, items.types)), getattr(result, "instance_class", None))
    if isinstance(result, types.Array):
        return Array(as_dtype(result.dtype).str[1:], result.ndim)
    code = as_dtype(result).str[1:]
    if code not in NUMBERS:
        raise TypeError(f"a compiled function that Python calls cannot return {result}")
    return NumberType(code)
