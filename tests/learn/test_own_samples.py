"""Every bundled network is learned back from its own sample: no word that is a state is taken for a missing cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.cases import NA_VALUES
from jtgpu.cases.answer_table import write_file
from jtgpu.formats.bundled import networks
from jtgpu.learn import fit, structure
from tests.support.bundled import bundled
from tests.support.examples import slow

pytest.importorskip("pandas", reason="pandas is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

QUICK = ("asia", "child", "insurance")
WITH_NONE = ("child", "hailfinder", "insurance", "pathfinder")  # have a state "None"
ROWS = 2000


def drawn_from(name: str) -> tuple[jtgpu.BayesianNetwork, Any, dict[str, list[str]]]:
    """A network, a sample, and the states that occur in it."""
    net = bundled(name)
    with net.compile("cpu") as tree:
        drawn = tree.sample(ROWS, seed=1)
    return net, drawn, {v: [net.states(v)[s] for s in np.unique(drawn.states[:, i])] for i, v in enumerate(net)}


def states_of(net: jtgpu.BayesianNetwork) -> dict[str, list[str]]:
    return {v: sorted(net.states(v)) for v in net}


@pytest.mark.parametrize("name", [*QUICK, *slow(*(n for n in networks() if n not in QUICK))])
def test_no_state_of_a_sample_is_lost(name: str) -> None:
    net, drawn, seen = drawn_from(name)
    found = fit({v: net.parents(v) for v in net}, drawn.to_frame("pandas"))
    assert states_of(found.network) == {v: sorted(s) for v, s in seen.items()}
    assert (found.method, found.n_rows, dict(found.missing.cells)) == ("counts", ROWS, {})


@pytest.mark.parametrize("name", ["asia", "child", *slow("cancer", "earthquake", "insurance", "sachs", "survey")])
def test_the_structure_of_a_sample_has_its_states(name: str) -> None:
    _, drawn, seen = drawn_from(name)
    frame = drawn.to_frame("pandas")[[v for v in seen if len(seen[v]) > 1]]
    found = structure(frame)
    assert states_of(found.network()) == {v: sorted(seen[v]) for v in frame}
    assert (found.n_dropped, dict(found.missing.cells)) == (0, {})


@pytest.mark.parametrize("name", ["child", *slow(*WITH_NONE[1:])])
def test_a_state_called_none_in_files(name: str, tmp_path: Path) -> None:
    net, drawn, seen = drawn_from(name)
    arcs = {v: net.parents(v) for v in net}
    lost = {v: words for v in net if (words := tuple(s for s in sorted(seen[v]) if s in NA_VALUES))}
    text, parquet = tmp_path / "cases.csv", tmp_path / "cases.parquet"
    for path in (text, parquet):
        write_file(drawn.to_frame("pyarrow"), path)
        given = fit(net, path)  # its states are declared
        assert (given.method, dict(given.missing.cells)) == ("counts", {})
    for whole in (fit(arcs, parquet), fit(arcs, text, read=jtgpu.ReadOptions(na_values=()))):
        assert states_of(whole.network) == {v: sorted(s) for v, s in seen.items()}
    found = fit(arcs, text, missing="available")
    assert found.missing.words == lost
    assert found.missing.cells == {v: int(np.isin(drawn[v], lost[v]).sum()) for v in lost}
    assert f"{', '.join(map(repr, lost[next(iter(lost))]))} in {next(iter(lost))}" in str(found)
    assert "na_values" in str(found)


def test_words_in_a_file_whose_structure_is_learned(tmp_path: Path) -> None:
    net, drawn, _ = drawn_from("child")
    write_file(drawn.to_frame("pyarrow"), tmp_path / "cases.csv")
    with pytest.raises(jtgpu.DataError, match=r"'None' in CardiacMixing .*na_values"):
        structure(tmp_path / "cases.csv")
    found = structure(tmp_path / "cases.csv", missing="drop", method="greedy")
    gone = [drawn[v] == "None" for v in ("DuctFlow", "CardiacMixing")]
    n, flow, mixing = (int(rows.sum()) for rows in (gone[0] | gone[1], *gone))
    assert (found.n_dropped, dict(found.missing.cells)) == (n, {"DuctFlow": flow, "CardiacMixing": mixing})
    listed = f"cells missing in 2 columns (DuctFlow {flow}, CardiacMixing {mixing})"
    assert f"{n} of 2,000 rows left out: {listed}; read as missing cells: 'None' in DuctFlow;" in repr(found)
    for options in (
        {"states": net},
        {"states": {v: net.states(v) for v in net}},
        {"read": jtgpu.ReadOptions(na_values=())},
    ):
        whole = structure(tmp_path / "cases.csv", method="greedy", **options)
        assert (whole.n_dropped, "None" in whole.network().states("CardiacMixing")) == (0, True)
