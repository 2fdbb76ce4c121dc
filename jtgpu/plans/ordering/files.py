"""Elimination orders given by users: sequences of variables, and ``.num`` files of names."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import OrderError, ParseError, UnknownVariable, shown
from ...model.discrete import DiscreteModel
from ...util import atomic_file
from ...util.system import cache_folder
from .elimination import OrderCost, as_order_array, order_cost


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
    for match in re.finditer(r"\S+", text):
        name = match[0]
        if name not in model.variables or name in seen:
            what = "a second time" if name in seen else "which is not a variable of the model"
            message = f"found {shown(name)} {what}, expected each variable's name once"
            raise parse_error(path, text, match.start(), message)
        seen.add(name)
    try:
        return as_order(model, (match[0] for match in re.finditer(r"\S+", text)))
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


# Elimination orders on disk: saved ones, and a memo of "auto".
#
# "best" saves the best order of a graph, for later searches and for "saved". The memo contains what "auto" computed:
# it depends on graph, seed and algorithm only, so that it saves time and never changes an order. Both have one file
# per key, named by its SHA-256, in the folder ``orders`` of `jtgpu.util.system.cache_folder`. Files that cannot be
# read, or whose order does not have the recorded cost, are ignored and replaced.

_VERSION = 1
# Version of "auto": increase it when the order of any graph changes (a test compares orders with recorded ones).
AUTO_VERSION = 2


class SavedOrder(NamedTuple):
    """An order from the cache, with its cost, the steps and rounds of its search, and what the search proved."""

    order: list[int]
    cost: OrderCost
    n_steps: int
    lower_bound: float = 0.0
    optimal: bool = False
    rounds: int = 0


def digest(cards: Sequence[int], neighbours: Sequence[Iterable[int]], objective: str) -> str:
    """A key for the graph, its cardinalities and the objective: 64 hexadecimal digits."""
    import hashlib  # takes longer than to plan a small network, which needs no key

    pairs = {(v, int(u)) if v < u else (int(u), v) for v, around in enumerate(neighbours) for u in around if u != v}
    edges = np.array(sorted(pairs), "<i8")
    hashed = hashlib.sha256(f"jtgpu order {_VERSION} {objective} {len(cards)} {len(pairs)} ".encode())
    hashed.update(np.array(cards, "<i8").tobytes())
    hashed.update(edges.tobytes())
    return hashed.hexdigest()


def auto_key(key: str, seed: int) -> str:
    """The key of "auto" with a seed, for the graph and objective of a `digest`."""
    import hashlib

    return hashlib.sha256(f"auto {AUTO_VERSION} {seed} {key}".encode()).hexdigest()


def recall(
    key: str, cards: Sequence[int], neighbours: Sequence[Iterable[int]], objective: str
) -> SavedOrder | None:
    """The order saved under `key`, checked against the graph; None if there is no valid one."""
    try:
        data = json.loads((cache_folder() / "orders" / f"{key}.json").read_text("utf-8"))
        order = [int(v) for v in data["order"]]
        cost = order_cost(cards, neighbours, order, objective)
        n_steps, rounds = int(data["n_steps"]), int(data.get("rounds", 0))
        lower_bound, optimal = float(data.get("lower_bound", 0.0)), data.get("optimal") is True
        if (data["version"], data["entries"]) != (_VERSION, cost.entries) or not math.isfinite(lower_bound + rounds):
            return None
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError, OrderError):
        return None
    return SavedOrder(order, cost, n_steps, lower_bound, optimal, max(rounds, 0))


def save(key: str, order: SavedOrder) -> None:
    """Save an order; a folder that is not writable is ignored."""
    data = {
        "version": _VERSION,
        "entries": order.cost.entries,
        "n_steps": order.n_steps,
        "order": [int(v) for v in order.order],
    }
    if order.rounds:
        data["rounds"] = order.rounds
    if order.lower_bound:
        data |= {"lower_bound": order.lower_bound, "optimal": order.optimal}
    with contextlib.suppress(OSError):
        path = cache_folder() / "orders" / f"{key}.json"
        atomic_file.write_text(path, json.dumps(data), durable=False, make_folders=True)


# The result of a search for an elimination order.

class Improvement(NamedTuple):
    """One improvement during a search."""

    seconds: float  # time since the search began
    cost: float  # new value of the objective
    rule: str  # how it was found: a greedy rule, "anneal", "exact", "cache"


@dataclass(frozen=True)
class OrderResult:
    """An elimination order and how it was found."""

    order: NDArray[np.int64]  # (V,) int64: First eliminated first; read-only
    cost: float  # value of the objective (see `jtgpu.plans.ordering.OrderCost`)
    # entries, largest: Sum of the maximal cliques' table entries, and the largest of them
    entries: int
    largest: int
    # n_cliques, levels: Number of maximal cliques, and levels of their forest rooted at its centre (an estimate, see
    #     `OrderCost`)
    n_cliques: int
    levels: int
    # method, objective: The options of the search
    method: str
    objective: str
    trace: tuple[Improvement, ...] = field(default=(), repr=False)  # tuple of Improvement: The improvements, in order
    lower_bound: float = 0.0  # no order costs less; 0 if nothing was proven
    optimal: bool = False  # whether the cost equals the lower bound
    seed: int = 0
    n_steps: int = 0  # annealing steps of all workers
    seconds: float = 0.0  # wall-clock time
    from_cache: bool = False  # whether the order was saved by an earlier search ("best" and "saved" only)
    interrupted: bool = False  # whether Ctrl-C ended the search early
