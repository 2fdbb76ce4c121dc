"""Codes of CSV files: different texts stay different states, and thousands are no decimal points."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import jtgpu
from jtgpu import learn
from tests.cli.commands import run

pytest.importorskip("pyarrow", reason="pyarrow is not installed")


@pytest.mark.parametrize(
    ("cells", "states"),
    [
        (("01", "1"), ("01", "1")), (("007", "7"), ("007", "7")), (("1E2", "100"), ("100", "1E2")),
        (("+1", "1"), ("+1", "1")), (("true", "1"), ("1", "true")), (("1", "2"), ("1", "2")),
        (("12345678901234567890", "12345678901234567891"), ("12345678901234567890", "12345678901234567891")),
        (("true", "FALSE"), ("False", "True")), (("1.0", "2"), ("1", "2")),
    ],
)  # fmt: skip
def test_different_texts_are_different_states(
    cells: tuple[str, str], states: tuple[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "c.csv"
    path.write_text("code,y\n" + f"{cells[0]},a\n{cells[1]},b\n" * 50)
    found = learn.structure(path)
    net = found.network()
    assert tuple(sorted(net.states("code"))) == states
    assert len(found.arcs) == 1  # y depends on the code alone
    assert learn.fit(net, path).n_rows == 100  # the network reads its file


def test_commas_that_may_be_thousands_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "price.tsv"
    path.write_text("price\tclass\n" + "500\tlow\n900\tlow\n1,200\thigh\n4,000\thigh\n" * 20)
    with pytest.raises(jtgpu.DataError, match=r"column 'price': 1,200 may be 1200 or 1\.200"):
        learn.structure(path)
    path.write_text("price\tclass\n" + "500,5\tlow\n900\tlow\n1,200\thigh\n4,000\thigh\n" * 20)
    assert run("learn", str(path), "--bins", "2", "-o", str(tmp_path / "p.net")).exit_code == 0  # 500,5: decimal commas


def test_declared_categories_are_the_states(tmp_path: Path) -> None:
    """T4: in order, with those that do not occur, whatever the table is."""
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    declared, cells = ["low", "mid", "high"], ["low", "high"] * 50
    more = {"y": ["a", "b"] * 50}
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 2] * 50, pa.int8()), pa.array(declared))
    frames: dict[str, Any] = {
        "pandas": pd.DataFrame({"dose": pd.Categorical(cells, declared), **more}),
        "Polars": pl.DataFrame({"dose": pl.Series(cells, dtype=pl.Enum(declared)), **more}),
        "Arrow": pa.table({"dose": coded, **more}),
        "Parquet": tmp_path / "c.parquet",
    }
    pq.write_table(pa.Table.from_pandas(frames["pandas"]), frames["Parquet"], row_group_size=30)
    for name, data in frames.items():
        fit = jtgpu.learn.fit({"y": ["dose"]}, data)
        assert fit.network.states("dose") == tuple(declared), name
        assert fit.network.states("dose") == jtgpu.learn.structure(data).network().states("dose")
    rows = frames["pandas"].assign(id=[i // 10 for i in range(100)], t=[i % 10 for i in range(100)], z=range(100))
    by_number = jtgpu.learn.fit({"y": ["dose"], "z": ["dose"]}, rows, continuous={"z": "gaussian"})
    slices = jtgpu.learn.fit({"y": ["dose"], "dose": [("dose", 1)]}, rows, keys=jtgpu.learn.Keys(id="id", time="t"))
    for found in (by_number.network, slices.network):
        assert found.states("dose") == tuple(declared)
    (tmp_path / "c.csv").write_text("dose,y\n" + "low,a\nhigh,b\n" * 9)
    assert jtgpu.learn.fit({"y": ["dose"]}, tmp_path / "c.csv").network.states("dose") == ("high", "low")
    by_polars = pl.DataFrame({"dose": pl.Series(cells, dtype=pl.Categorical), **more})
    assert jtgpu.learn.fit({"y": ["dose"]}, by_polars).network.states("dose") == ("high", "low")
    assert jtgpu.learn.structure(by_polars).network().states("dose") == ("high", "low")
