"""A fit that was killed goes on from its checkpoint, with the bits of one that was not, for networks of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.learn import EM, Keys, fit

KINDS = ["states", "numbers", "slices", "slices with numbers"]


class Killed(Exception):
    """Ends a process at once, as far as a fit can see."""


def killing(entries: int) -> Any:
    """A function of `progress` that ends the process at one of its calls."""
    left = iter(range(entries - 1))

    def end(_: Any) -> None:
        if next(left, None) is None:
            raise Killed

    return end


def hidden_group(kind: str) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """A structure with a hidden variable of two states, a table with gaps, and the options of a fit."""
    rng, n = np.random.default_rng(0), 200
    group = (rng.random((10, 20)) < 0.15).cumsum(axis=1).ravel() % 2 if "slices" in kind else rng.integers(0, 2, n)
    table: dict[str, Any] = {v: np.where(rng.random(n) < 0.8, group, 1 - group).astype(str).tolist() for v in "abc"}
    structure: dict[str, Any] = {"h": [], "a": ["h"], "b": ["h"], "c": ["h"]}
    options: dict[str, Any] = {"hidden": {"h": 2}}
    for v in "abc":
        table[v][:: 7 + ord(v) % 5] = [None] * len(table[v][:: 7 + ord(v) % 5])
    if "numbers" in kind:
        table["x"] = np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n) + 2 * group)
        structure["x"], options["continuous"] = ["h"], "gaussian"
    if "slices" in kind:
        table |= {"id": np.repeat(np.arange(10), 20), "t": np.tile(np.arange(20), 10)}
        structure["h"], options["keys"] = [("h", 1)], Keys(id="id", time="t")
    return structure, table, options


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_fit_goes_on_with_the_same_bits(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jtgpu.learn.parameters.em.INTERVAL", 0.0)
    structure, table, options = hidden_group(kind)
    em = EM(restarts=2, seed=1, tolerance=1e-9, iterations=15)
    whole = fit(structure, table, em=em, **options)
    saved = em.replaced(checkpoint=tmp_path / "checkpoint", resume=True)
    for entries in (4, 12):  # in the first and in the second start
        with pytest.raises(Killed):
            fit(structure, table, em=saved, compute=jtgpu.Compute(progress=killing(entries)), **options)
        assert (tmp_path / "checkpoint").exists()
    found = fit(structure, table, em=saved, **options)
    assert found.network == whole.network
    assert (found.restarts, found.objective) == (whole.restarts, whole.objective)
    assert [e.objective for e in found.history] == [e.objective for e in whole.history]
