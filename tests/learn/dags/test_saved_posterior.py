"""Posteriors in files: the same answers, and errors of damaged files."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import ArgumentError, FormatError
from jtgpu.learn.dags.scores.coded import CodedTable
from jtgpu.learn.state_file import file_contents, read_file
from tests.learn.dags.data import random_table


@pytest.mark.parametrize("method", ["exact", "mcmc"])
@pytest.mark.parametrize("weighted", [False, True])
def test_loaded_posteriors_give_the_same_answers(method: Any, weighted: bool, tmp_path: Path) -> None:
    table, path = random_table(4, n=5, n_rows=60, weighted=weighted), tmp_path / "post.npz"
    post = jtgpu.learn.posterior(
        table,
        method=method,
        chains=jtgpu.learn.Chains(tolerance=0.05),
        ess=2.0,
        constraints=jtgpu.learn.Constraints(forbidden=[("a", "b")]),
    )
    post.save(path)
    found = jtgpu.learn.load(path)
    assert found.describe() == post.describe()
    assert str(found) == str(post)
    assert found.columns() == post.columns()
    assert found.mcse.values.tobytes() == post.mcse.values.tobytes()
    assert found.trace.tobytes() == post.trace.tobytes()
    assert found.parent_sets("c", 5) == post.parent_sets("c", 5)
    assert [*found.map.edges] == [*post.map.edges]
    assert (found.map_score, found.structure.order) == (post.map_score, post.structure.order)
    assert [sorted(g.edges) for g in found.sample_dags(30)] == [sorted(g.edges) for g in post.sample_dags(30)]
    for v in found.names:
        assert np.array_equal(found.network().cpt(v), post.network().cpt(v))
    ours, theirs = (p.average(n_dags=20, backend="reference").posteriors({"a": "s0"}) for p in (found, post))
    assert ours["b"] == theirs["b"]
    again = tmp_path / "again.npz"
    found.save(again)
    assert again.read_bytes() == path.read_bytes()
    if method == "mcmc":
        with pytest.raises(ArgumentError, match="no chains"):
            found.more(steps=1000)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "post.npz"
    jtgpu.learn.posterior(random_table(4, n=3)).save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    for i in range(60):
        damaged = bytearray(whole)
        if i % 2:
            damaged = damaged[: rng.integers(len(whole))]
        else:
            damaged[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(damaged))
        message = ""
        try:
            found = jtgpu.learn.load(path)
        except FormatError as error:
            message = str(error)
        else:  # a bit that nothing reads, such as a time
            assert found.names == ("a", "b", "c")
        assert not message or str(path) in message
    np.save(tmp_path / "array.npy", np.zeros(3))
    for name, message in (("array.npy", "not a saved posterior"), ("table.npz", "not a saved posterior")):
        if name == "table.npz":
            jtgpu.learn.score_table(random_table(4, n=3)).save(tmp_path / name)
        with pytest.raises(FormatError, match=message):
            jtgpu.learn.load(tmp_path / name)
    path.write_bytes(file_contents({"version": 99}, {}))
    with pytest.raises(FormatError, match="version 99"):
        jtgpu.learn.load(path)
    path.write_bytes(file_contents({}, {}))
    with pytest.raises(FormatError, match="damaged posterior"):
        jtgpu.learn.load(path)
    with pytest.raises(FileNotFoundError):
        jtgpu.learn.load(tmp_path / "none.npz")


def test_data_without_rows_of_some_states(tmp_path: Path) -> None:
    table = CodedTable(("ä", "b c"), (("0", "1", "2"), ("no", "yes")), np.array([[0, 1, 1], [0, 1, 0]], np.uint8))
    jtgpu.learn.posterior(table).save(tmp_path / "x.npz")
    assert jtgpu.learn.load(tmp_path / "x.npz").network().states("ä") == ("0", "1", "2")


@pytest.mark.parametrize("path", [3.5, None, 7, ["a"], b"post.npz", {}])
def test_what_is_no_path_is_refused(path: Any) -> None:
    for load in (jtgpu.learn.load, jtgpu.learn.ScoreTable.load):
        with pytest.raises(ArgumentError, match="path must be a path, as a string or a pathlib"):
            load(path)
    post = jtgpu.learn.posterior(random_table(4, n=3))
    with pytest.raises(ArgumentError, match="path must be a path"):
        post.save(path)
    if path is not None:
        with pytest.raises(ArgumentError, match="checkpoint must be a path"):
            jtgpu.learn.posterior(random_table(4, n=3), method="mcmc", chains=jtgpu.learn.Chains(checkpoint=path))


VALUES: tuple[Any, ...] = (None, 3, -1, "x", [], {}, [1], float("nan"), [[1]], True)
WRONG: dict[str, Callable[[Any], Any]] = {
    "flat": lambda a: a.ravel(), "short": lambda a: a[:-1], "single": lambda a: a.astype(np.float32),
    "texts": lambda a: a.astype(str), "nan": lambda a: np.full(a.shape, np.nan), "empty": lambda a: a[:0],
    "number": lambda a: np.array(1), "complex": lambda a: a.astype(complex),
    "twice": lambda a: np.concatenate([a, a], axis=-1), "large": lambda a: a + (1 << 7),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("method", ["exact", "mcmc"])
def test_crafted_files_are_refused_or_harmless(method: Any, tmp_path: Path) -> None:
    """Every member absent, of another type, shape or range: an error of the format, or a posterior that works."""
    path = tmp_path / "post.npz"
    jtgpu.learn.posterior(
        random_table(4, n=4, n_rows=40, weighted=True), method=method, chains=jtgpu.learn.Chains(tolerance=0.1)
    ).save(path)
    header, arrays = read_file(path)
    header = {name: value for name, value in header.items() if name not in ("kind", "version")}
    n_refused = 0

    def refused(header: Any, arrays: Any) -> bool:
        path.write_bytes(file_contents(json.loads(json.dumps(header)), arrays))
        try:
            post = jtgpu.learn.load(path)
        except FormatError:
            return True
        assert post.describe()
        assert post.columns()
        assert post.parent_sets("a")
        assert post.average(n_dags=3, backend="reference")
        return False

    assert not refused(header, arrays)
    for name, value in header.items():
        assert refused({k: v for k, v in header.items() if k != name}, arrays)
        for part in value if isinstance(value, dict) else [None]:
            for wrong in VALUES:
                changed = copy.deepcopy(header)
                if part is None:
                    changed[name] = wrong
                else:
                    changed[name][part] = wrong
                n_refused += refused(changed, arrays)
    for name, array in arrays.items():
        if name != "weights":
            assert refused(header, {k: a for k, a in arrays.items() if k != name})
        for change in WRONG.values():
            if array.size or change is not WRONG["empty"]:
                n_refused += refused(header, arrays | {name: np.array(change(array))})
    assert n_refused > 180


def test_pickles_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "post.npz"
    jtgpu.learn.posterior(random_table(4, n=3)).save(path)
    header, arrays = read_file(path)
    header = {name: value for name, value in header.items() if name not in ("kind", "version")}
    path.write_bytes(file_contents(header, arrays | {"trace": np.array([[Path("x")]], object)}))
    with pytest.raises(FormatError, match="pickle"):
        jtgpu.learn.load(path)
