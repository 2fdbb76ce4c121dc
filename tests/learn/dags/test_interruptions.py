"""Ctrl-C and full disks while chains run: the result is that of the complete rounds, and files are whole or absent."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import JtgpuError
from jtgpu.learn.dags.chains import run as driver
from jtgpu.learn.dags.posterior import chain_posterior
from jtgpu.learn.dags.posterior.result import StructurePosterior
from jtgpu.util import atomic_file
from tests.learn.dags.data import in_records, random_table


def posterior(**options: Any) -> StructurePosterior:
    table = random_table(8, n=6, n_rows=90)
    options = {"steps": 1_000_000, "candidates": 5, "tolerance": 1e-9, **options}
    return jtgpu.learn.posterior(table, method="mcmc", seed=4, **in_records(options))


def after_calls(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, calls: int, error: BaseException) -> None:
    """Let call number `calls` of a function raise an error."""
    original, count = getattr(owner, name), [0]

    def failing(*given: Any, **more: Any) -> Any:
        count[0] += 1
        if count[0] == calls:
            raise error
        return original(*given, **more)

    monkeypatch.setattr(owner, name, failing)


@pytest.mark.parametrize(
    ("owner", "name", "calls"),
    [
        (driver, "estimate_of", 3), (driver.ChainHistory, "extended", 3),
        pytest.param(driver.ChainRun, "_run_round", 3, marks=pytest.mark.slow),
        pytest.param(driver.ChainRun, "shortfall", 3, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_ctrl_c_anywhere_gives_the_complete_rounds(
    owner: Any, name: str, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_calls(monkeypatch, owner, name, calls, KeyboardInterrupt())
    with pytest.warns(UserWarning, match="not converged"):
        found = posterior()
    monkeypatch.undo()
    assert not found.converged
    with pytest.warns(UserWarning, match="not converged"):
        whole = posterior(steps=found.n_steps)
    assert whole.n_steps == found.n_steps > 0
    assert whole.edge_probabilities.values.tobytes() == found.edge_probabilities.values.tobytes()
    assert whole.describe() == found.describe()


@pytest.mark.parametrize("calls", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_ctrl_c_while_a_checkpoint_is_written(calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The older file stays as it was or the new one is whole; the run continues with bit-identical results."""
    monkeypatch.setattr(chain_posterior, "INTERVAL", 0.0)
    path = tmp_path / "run.npz"
    with monkeypatch.context() as patch:
        after_calls(patch, os, "replace", calls, KeyboardInterrupt())
        with pytest.warns(UserWarning, match="not converged"):
            found = posterior(checkpoint=path, progress=[].append)
    assert [file.name for file in tmp_path.iterdir()] == ["run.npz"]
    assert not found.converged
    assert found.edge_probabilities.values.max() > 0.4
    with pytest.warns(UserWarning, match="not converged"):
        whole, resumed = (
            posterior(steps=40_000),
            posterior(steps=40_000, checkpoint=path),
        )
    assert whole.edge_probabilities.values.tobytes() == resumed.edge_probabilities.values.tobytes()


def test_ctrl_c_while_the_last_checkpoint_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    after_calls(monkeypatch, os, "replace", 2, KeyboardInterrupt())  # the first one is that of round 1
    found = posterior(checkpoint=tmp_path / "run.npz", tolerance=0.05)
    assert found.converged
    assert [file.name for file in tmp_path.iterdir()] == ["run.npz"]


@contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No file of this package can be created."""

    def refuse(path: str) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    with monkeypatch.context() as patch:
        patch.setattr(atomic_file, "_create", refuse)
        yield


def test_a_full_disk_does_not_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_posterior, "INTERVAL", 0.0)
    whole = posterior(tolerance=0.05)
    path = tmp_path / "run.npz"
    with (
        full_disk(monkeypatch),
        pytest.warns(UserWarning, match="run.npz cannot be written: No space left") as warned,
    ):
        found = posterior(tolerance=0.05, checkpoint=path)
    assert len(warned) == 1
    assert not path.exists()
    assert found.converged
    assert found.edge_probabilities.values.tobytes() == whole.edge_probabilities.values.tobytes()


@pytest.mark.slow
def test_a_full_disk_leaves_the_older_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_posterior, "INTERVAL", 0.0)
    path = tmp_path / "run.npz"
    with pytest.warns(UserWarning, match="not converged"):
        posterior(steps=20_000, checkpoint=path)
    older = path.read_bytes()
    with full_disk(monkeypatch), pytest.warns(UserWarning, match="written|converged") as warned:
        posterior(steps=40_000, checkpoint=path)
    assert "cannot be written" in str(warned[0].message)
    assert "not converged" in str(warned[1].message)
    assert path.read_bytes() == older
    with pytest.warns(UserWarning, match="not converged"):
        whole, resumed = (
            posterior(steps=40_000),
            posterior(steps=40_000, checkpoint=path),
        )
    assert np.array_equal(whole.trace, resumed.trace)


@pytest.mark.parametrize(
    "name",
    [
        "state_part",
        *(pytest.param(name, marks=pytest.mark.slow)
          for name in ("state_arcs", "best", "graphs", "traces", "snapshot_1", "state_moves")),
    ],
)  # fmt: skip
def test_damaged_checkpoints_are_refused(name: str, tmp_path: Path) -> None:
    """Compiled loops do not check shapes and ranges, so what is read is checked."""
    path = tmp_path / "run.npz"
    with pytest.warns(UserWarning, match="not converged"):
        posterior(steps=20_000, checkpoint=path, tempering=3)
    with np.load(path) as file:
        arrays = dict(file)
    whole = arrays[name]
    for wrong in (whole[:-1], whole.astype(np.float32), whole[..., None], None):
        changed = {k: a for k, a in arrays.items() if k != name} | ({} if wrong is None else {name: wrong})
        if name in ("graphs", "traces", "best") and wrong is not None and wrong.dtype == np.float32:
            continue
        np.savez(path, **changed)
        with pytest.raises(JtgpuError, match=r"run\.npz is damaged"):
            posterior(steps=40_000, checkpoint=path, tempering=3)
    if name == "state_part":
        for wrong in (whole + 100, whole - 100):
            np.savez(path, **(arrays | {name: wrong}))
            with pytest.raises(JtgpuError, match="out of range"):
                posterior(steps=40_000, checkpoint=path, tempering=3)
