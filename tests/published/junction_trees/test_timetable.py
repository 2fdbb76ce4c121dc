"""The published table of times: every row, its formats, its figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from jtgpu.plans.compiler import model_factors
from jtgpu.published.junction_trees.measure import measure
from jtgpu.published.junction_trees.timetable import PUBLISHED, PUBLISHED_ROWS, RATIOS, ROWS, TimeTable
from tests.plans.test_plan import chain


@pytest.fixture
def table() -> TimeTable:
    """A measured table of a small network under a published name."""
    model = chain(6, 80)
    plan = model.plan(order="min-fill", cache=False).plan
    factors = [f.table for f in model_factors(model)]
    column = measure("Water", plan, factors, runs=2, tuned={"ways": 8})
    return TimeTable([column], {"device": "emulated"})


@pytest.mark.slow
def test_every_published_row_is_measured(table: TimeTable) -> None:
    values = table.columns[0].values
    assert set(PUBLISHED_ROWS) <= set(values)
    assert {r.key for r in ROWS} <= set(values)
    assert values["cliques"] == 5
    assert values["speedup"] == pytest.approx(values["cpu"] / values["gpu"])
    gain = table.columns[0].gain("resident_scatter")
    assert gain is not None
    assert gain == pytest.approx(5 / values["resident_scatter"])


def test_the_table_is_written_in_three_formats(table: TimeTable) -> None:
    assert TimeTable.from_json(table.to_json()) == table
    lines = table.to_csv().splitlines()
    assert lines[0].startswith("network,group,row")
    assert any(line.startswith("Water,total,gpu,ms,") and ",140," in line for line in lines)
    text = table.to_rst()
    assert ".. list-table::" in text
    assert "(140)" in text
    assert len({len(row) for row in table.rows()}) == 1


def test_published_speed_ups_are_those_of_their_times() -> None:
    """The published figures, held to themselves: a slip in copying would show. Two are rounded from finer times."""
    for name, column in PUBLISHED.items():
        for key, (over, under) in RATIOS.items():
            assert column[key] == pytest.approx(column[over] / column[under], rel=0.1), (name, key)
        assert column["average"] == column["entries"] // column["cliques"], name


@pytest.mark.slow
def test_the_published_figures_are_drawn(table: TimeTable, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from jtgpu.published.junction_trees.measure import draw

    paths = draw(table, tmp_path / "figures")
    assert [p.name for p in paths] == [
        "index-tables.png", "clique-tables.png", "water-without-transfers.png", "water-with-transfers.png",
    ]  # fmt: skip
    assert all(p.read_bytes()[:4] == b"\x89PNG" for p in paths)
