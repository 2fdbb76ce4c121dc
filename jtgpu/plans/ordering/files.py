"""Elimination orders given by users: sequences of variables, and ``.num`` files of names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import OrderError, ParseError, UnknownVariable, shown
from ...model.discrete import DiscreteModel
from ...util import atomic_file
from .elimination import as_order_array


def as_order(model: DiscreteModel, order: Iterable[str | int]) -> NDArray[np.int64]:
    """Convert an elimination order given by names or numbers (first eliminated first) to an array of numbers."""
    # returns (V,) int64: Read-only.
    # raises OrderError: If variables are unknown, missing or repeated; the message names them.
    ids: list[int] = []
    seen: set[int] = set()
    for v in order:
        try:
            i = model.index(v)
        except UnknownVariable as error:
            raise OrderError(f"elimination order: {error}") from None
        if i in seen:
            raise OrderError(f"elimination order: {model.variables[i]!r} occurs twice")
        seen.add(i)
        ids.append(i)
    missing = [v for i, v in enumerate(model.variables) if i not in seen]
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise OrderError(f"elimination order: {', '.join(map(repr, missing[:5]))}{more} missing")
    return as_order_array(ids)


def read_num(path: str | os.PathLike[str], model: DiscreteModel) -> NDArray[np.int64]:
    """Read a ``.num`` file: the names of all variables, separated by white space, first eliminated first."""
    # raises ParseError: If a name is unknown or repeated, with its position.
    # raises OrderError: If names are missing, or the file cannot be read.
    text = read_text(path)
    seen: set[str] = set()
    for found in re.finditer(r"\S+", text):
        name = found[0]
        if name not in model.variables or name in seen:
            what = "a second time" if name in seen else "which is not a variable of the model"
            message = f"found {shown(name)} {what}, expected each variable's name once"
            raise parse_error(path, text, found.start(), message)
        seen.add(name)
    try:
        return as_order(model, (found[0] for found in re.finditer(r"\S+", text)))
    except OrderError as error:
        raise OrderError(f"{os.fspath(path)}: {error}") from None


def write_num(path: str | os.PathLike[str], model: DiscreteModel, order: Sequence[int]) -> None:
    """Write an elimination order to a ``.num`` file, completely or not at all."""
    # raises OrderError: If the order is not a permutation, or a name contains white space, which the format cannot
    #     represent.
    names = [model.variables[i] for i in as_order(model, [int(v) for v in order]).tolist()]
    for name in names:
        if not name or re.search(r"\s", name):
            raise OrderError(f"a .num file separates names by white space and cannot represent {name!r}")
    write_text(path, " ".join(names) + "\n")


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a file in UTF-8 (or else Latin-1), without a byte order mark; `OrderError` if it is unreadable."""
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise OrderError(f"{os.fspath(path)}: cannot be read: {reason}") from None
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file completely or not at all; `OrderError` if that is impossible."""
    try:
        atomic_file.write_text(path, text)
    except OSError as error:
        raise OrderError(f"{os.fspath(path)}: cannot be written: {error.strerror or error}") from None


def parse_error(path: str | os.PathLike[str], text: str, at: int, message: str) -> ParseError:
    """An error at character `at` of a file, with line and column."""
    line = text.count("\n", 0, at) + 1
    return ParseError(message, os.fspath(path), line, at - text.rfind("\n", 0, at))
