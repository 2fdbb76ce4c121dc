"""Functions for writers: rows that a reader would change, and identifiers for formats that allow nothing else."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...model.cpts import normalize_rows
from ...model.network import BayesianNetwork

_OTHER = re.compile(r"[^A-Za-z0-9_]+")


def inexact(net: BayesianNetwork) -> frozenset[str]:
    """Variables whose rows change when a reader normalises them: they sum to 1 within the tolerance only."""
    found = set()
    for v in net.variables:
        again, _ = normalize_rows({v: net.cpt(v)})
        if not np.array_equal(again[v], net.cpt(v)):
            found.add(v)
    return frozenset(found)


def identifiers(names: Iterable[str], fallback: str) -> list[str]:
    """Distinct identifiers (a letter followed by letters, digits and ``_``) that resemble the given names.

    A name that is an identifier is unchanged; the result depends on the names only.

    Examples
    --------
    >>> identifiers(["a", "20_MG/L", "x-ray", "x ray", "", "é"], "s")
    ['a', 's20_MG_L', 'x_ray', 'x_ray_2', 's', 'e']
    """
    # fallback: Prefix for names that do not begin with a letter
    names = list(names)
    plain = [_plain(name, fallback) for name in names]
    taken = {name for name, made in zip(names, plain, strict=True) if name == made}
    kept: set[str] = set()
    last: dict[str, int] = {}
    out = []
    for name, made in zip(names, plain, strict=True):
        chosen = made
        if name != made or name in kept:
            n = last.get(made, 1)
            while chosen in taken:
                n += 1
                chosen = f"{made}_{n}"
            last[made] = n
            taken.add(chosen)
        kept.add(chosen)
        out.append(chosen)
    return out


def _plain(name: str, fallback: str) -> str:
    ascii_only = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    made = _OTHER.sub("_", ascii_only).strip("_") if _OTHER.search(name) else name
    if not made or not made[0].isalpha():
        made = f"{fallback}{made}"
    return made


def whole_numbers(value: Any, n: int) -> tuple[int, ...]:
    """An attribute of `n` numbers, rounded to integers; empty for anything else."""
    if not isinstance(value, (tuple, list)) or len(value) != n:
        return ()
    if not all(isinstance(x, (int, float)) and abs(x) < 1e9 for x in value):  # also excludes NaN
        return ()
    return tuple(round(x) for x in value)
