"""Sampled graphs in files are those of `sample_dags`, as networkx and csv read them."""

from __future__ import annotations

import csv
from pathlib import Path

import networkx
import pytest

import jtgpu
from jtgpu.errors import ArgumentError
from jtgpu.learn import StructurePosterior


@pytest.fixture(scope="module")
def post() -> StructurePosterior:
    data = {"rain, or snow": [*"nnyyn"] * 4, "wet": [*"nnyyy"] * 4, "größe": [*"ababb"] * 4}
    return jtgpu.learn.posterior(data)


@pytest.mark.parametrize("suffix", [".gml", ".graphml"])
def test_a_file_for_each_graph(post: StructurePosterior, suffix: str, tmp_path: Path) -> None:
    files = post.save_graphs(tmp_path / f"g{suffix}", 12)
    assert [f.name for f in files] == [f"g-{i:02}{suffix}" for i in range(12)]
    read = networkx.read_gml if suffix == ".gml" else networkx.read_graphml
    for file, graph in zip(files, post.sample_dags(12), strict=True):
        own = read(file)
        assert ({*own.nodes}, {*own.edges}) == ({*graph.nodes}, {*graph.edges})


def test_one_table(post: StructurePosterior, tmp_path: Path) -> None:
    (file,) = post.save_graphs(tmp_path / "g.csv", 5, seed=2)
    with file.open(encoding="utf-8", newline="") as stream:
        rows = [tuple(row) for row in csv.reader(stream)]
    expected = [(str(i), u, v) for i, graph in enumerate(post.sample_dags(5, seed=2)) for u, v in graph.edges]
    assert rows == [("graph", "parent", "child"), *expected]


def test_other_suffixes(post: StructurePosterior, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"must end in \.csv, \.gml or \.graphml"):
        post.save_graphs(tmp_path / "g.dot")
