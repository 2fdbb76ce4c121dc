"""Given elimination orders: lists, ``.num`` files of names, ``.td`` tree decompositions (PACE 2017 format)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import OrderError, ParseError, UnknownVariable
from ...model.network import DiscreteModel
from ...util import atomic_file
from .elimination import as_order_array

__all__ = ["as_order", "read_num", "read_td", "write_num", "write_td"]


def as_order(model: DiscreteModel, order: Iterable[str | int]) -> NDArray[np.int64]:
    """An elimination order given as variables, first eliminated first, as checked numbers.

    Raises
    ------
    OrderError
        Naming what is unknown, missing or there twice.
    """
    ids: list[int] = []
    seen: set[int] = set()
    for v in order:
        try:
            i = model.index(v)
        except UnknownVariable as error:
            raise OrderError(f"elimination order: {error}") from None
        if i in seen:
            raise OrderError(f"elimination order: {model.variables[i]!r} stands twice")
        seen.add(i)
        ids.append(i)
    missing = [v for i, v in enumerate(model.variables) if i not in seen]
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise OrderError(f"elimination order: {', '.join(map(repr, missing[:5]))}{more} not named")
    return as_order_array(ids)


def read_num(path: str | os.PathLike[str], model: DiscreteModel) -> NDArray[np.int64]:
    """Read a ``.num`` file: names of all variables between white space, first eliminated first.

    Raises
    ------
    ParseError
        With the place of a name that the model does not have or that stands twice.
    OrderError
        When names are missing, or the file cannot be read.
    """
    text = _read_text(path)
    seen: set[str] = set()
    for found in re.finditer(r"\S+", text):
        name = found[0]
        if name not in model.variables or name in seen:
            what = "a second time" if name in seen else "which the model does not have"
            raise _parse_error(path, text, found.start(), f"found {name!r} {what}, expected each variable's name once")
        seen.add(name)
    try:
        return as_order(model, (found[0] for found in re.finditer(r"\S+", text)))
    except OrderError as error:
        raise OrderError(f"{os.fspath(path)}: {error}") from None


def write_num(path: str | os.PathLike[str], model: DiscreteModel, order: Sequence[int]) -> None:
    """Write an elimination order as a ``.num`` file, whole or not at all.

    Raises
    ------
    OrderError
        For an order that is no permutation, or a name with white space in it, which the format cannot carry.
    """
    names = [model.variables[i] for i in as_order(model, [int(v) for v in order]).tolist()]
    for name in names:
        if not name or re.search(r"\s", name):
            raise OrderError(f"a .num file separates names by white space and cannot carry {name!r}")
    _write_text(path, " ".join(names) + "\n")


def read_td(
    path: str | os.PathLike[str], model: DiscreteModel, neighbours: Sequence[Iterable[int]] | None = None
) -> NDArray[np.int64]:
    """Read a tree decomposition of the model's graph (vertex i + 1 is variable number i) as an elimination order.

    The order's cliques lie within the bags, so its tables are never larger than the decomposition's.

    Parameters
    ----------
    neighbours : sequence of iterables of int, optional
        The graph that the decomposition must cover; default: the model's interaction graph.

    Raises
    ------
    ParseError
        For a line that is no ``c``, ``s``, ``b`` or edge line, or that breaks the declared numbers.
    OrderError
        For bags that miss a vertex or an edge, that are no tree, or that split a vertex's bags.
    """
    n = len(model)
    bags, edges = _parse_td(path, _read_text(path), n)
    if neighbours is None:
        around: list[set[int]] = [set() for _ in range(n)]
        for scope, _ in model.factors:
            for v in scope:
                around[v].update(scope)
        neighbours = [sorted(s - {v}) for v, s in enumerate(around)]
    _check_td(path, bags, edges, neighbours, model)
    return as_order_array(_td_order(bags, edges, n))


def write_td(
    path: str | os.PathLike[str], cliques: Sequence[Sequence[int]], parent: Sequence[int], n_variables: int
) -> None:
    """Write a junction forest as a PACE tree decomposition; several components are joined at their roots."""
    roots = [c for c, up in enumerate(parent) if up < 0]
    edges = sorted((min(c, up), max(c, up)) for c, up in enumerate(parent) if up >= 0)
    edges += list(pairwise(roots))
    lines = [f"s td {len(cliques)} {max(map(len, cliques), default=0)} {n_variables}"]
    lines += [" ".join(["b", str(c + 1), *(str(v + 1) for v in sorted(bag))]) for c, bag in enumerate(cliques)]
    lines += [f"{a + 1} {b + 1}" for a, b in edges]
    _write_text(path, "\n".join(lines) + "\n")


def _parse_td(path: str | os.PathLike[str], text: str, n: int) -> tuple[list[set[int]], list[tuple[int, int]]]:
    bags: list[set[int] | None] = []
    edges: list[tuple[int, int]] = []
    head = False
    at = 0
    for raw in text.splitlines(keepends=True):
        words = raw.split()
        where, at = at, at + len(raw)
        if not words or words[0] == "c":
            continue
        numbers = words[2:] if words[0] == "s" else words[1:] if words[0] == "b" else words
        if not all(re.fullmatch(r"[0-9]{1,9}", w) for w in numbers):
            raise _parse_error(path, text, where, f"found {raw.strip()[:60]!r}, expected numbers")
        values = [int(w) for w in numbers]
        if words[0] == "s":
            if head or words[:2] != ["s", "td"] or len(values) != 3 or values[0] > 10**7:
                raise _parse_error(path, text, where, f"found {raw.strip()[:60]!r}, expected one 's td bags width n'")
            if values[2] != n:
                raise _parse_error(path, text, where, f"found {values[2]} vertices, expected the model's {n}")
            head = True
            bags = [None] * values[0]
        elif not head:
            raise _parse_error(path, text, where, f"found {raw.strip()[:60]!r}, expected the line 's td bags width n'")
        elif words[0] == "b":
            if not values or not 1 <= values[0] <= len(bags) or bags[values[0] - 1] is not None:
                raise _parse_error(path, text, where, f"found a bag line {raw.strip()[:60]!r}, expected each bag once")
            if any(not 1 <= v <= n for v in values[1:]):
                raise _parse_error(path, text, where, f"found a vertex outside 1..{n} in {raw.strip()[:60]!r}")
            bags[values[0] - 1] = {v - 1 for v in values[1:]}
        else:
            if len(values) != 2 or any(not 1 <= b <= len(bags) for b in values) or values[0] == values[1]:
                raise _parse_error(path, text, where, f"found {raw.strip()[:60]!r}, expected an edge of two bags")
            edges.append((values[0] - 1, values[1] - 1))
    if not head:
        raise ParseError("found no line 's td bags width n', expected one", os.fspath(path))
    missing = [i + 1 for i, b in enumerate(bags) if b is None]
    if missing:
        raise ParseError(f"found no bag {missing[0]}, expected {len(bags)} bags", os.fspath(path))
    return [b for b in bags if b is not None], edges


def _check_td(
    path: str | os.PathLike[str],
    bags: list[set[int]],
    edges: list[tuple[int, int]],
    neighbours: Sequence[Iterable[int]],
    model: DiscreteModel,
) -> None:
    name = os.fspath(path)
    group = list(range(len(bags)))

    def find(b: int) -> int:
        while group[b] != b:
            group[b] = group[group[b]]
            b = group[b]
        return b

    for a, b in edges:
        if find(a) == find(b):
            raise OrderError(f"{name}: the bags are no tree: the edge {a + 1} {b + 1} closes a cycle")
        group[find(a)] = find(b)
    holders: list[list[int]] = [[] for _ in neighbours]
    for b, bag in enumerate(bags):
        for v in bag:
            holders[v].append(b)
    shared = [0] * len(holders)
    for a, b in edges:
        for v in bags[a] & bags[b]:
            shared[v] += 1
    for v, found in enumerate(holders):
        if not found:
            raise OrderError(f"{name}: no bag holds vertex {v + 1} ({model.variables[v]!r})")
        if shared[v] != len(found) - 1:
            raise OrderError(f"{name}: the bags of vertex {v + 1} ({model.variables[v]!r}) are not connected")
        for u in neighbours[v]:
            if u > v and not any(u in bags[b] for b in found):
                raise OrderError(
                    f"{name}: no bag holds both {model.variables[v]!r} and {model.variables[u]!r}, which are neighbours"
                )


def _td_order(bags: list[set[int]], edges: list[tuple[int, int]], n: int) -> list[int]:
    """Take leaf bags off the forest; what a leaf shares with no other bag is eliminated then."""
    around: list[set[int]] = [set() for _ in bags]
    for a, b in edges:
        around[a].add(b)
        around[b].add(a)
    left = [0] * n
    for bag in bags:
        for v in bag:
            left[v] += 1
    order: list[int] = []
    leaves = [b for b in range(len(bags)) if len(around[b]) <= 1]
    gone: set[int] = set()
    while leaves:
        b = leaves.pop()
        if b in gone:
            continue
        gone.add(b)
        for v in sorted(bags[b]):
            left[v] -= 1
            if left[v] == 0:
                order.append(v)
        for other in sorted(around[b]):
            around[other].discard(b)
            if len(around[other]) <= 1:
                leaves.append(other)
    return order


def _read_text(path: str | os.PathLike[str]) -> str:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise OrderError(f"{os.fspath(path)}: cannot be read: {error.strerror or error}") from None
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _write_text(path: str | os.PathLike[str], text: str) -> None:
    try:
        atomic_file.write_text(path, text)
    except OSError as error:
        raise OrderError(f"{os.fspath(path)}: cannot be written: {error.strerror or error}") from None


def _parse_error(path: str | os.PathLike[str], text: str, at: int, message: str) -> ParseError:
    line = text.count("\n", 0, at) + 1
    return ParseError(message, os.fspath(path), line, at - text.rfind("\n", 0, at))
