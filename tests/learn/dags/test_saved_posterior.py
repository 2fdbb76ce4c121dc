"""Posteriors in files: the same answers, and errors of damaged files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import ArgumentError, FormatError
from jtgpu.learn.dags.posterior.saved_file import file_contents
from jtgpu.learn.dags.scores.coded import CodedTable
from tests.learn.dags.data import random_table


@pytest.mark.parametrize("method", ["exact", "mcmc"])
@pytest.mark.parametrize("weighted", [False, True])
def test_loaded_posteriors_give_the_same_answers(method: str, weighted: bool, tmp_path: Path) -> None:
    table, path = random_table(4, n=5, n_rows=60, weighted=weighted), tmp_path / "post.npz"
    post = jtgpu.learn.posterior(table, method=method, tolerance=0.05, ess=2.0, forbidden=[("a", "b")])
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
