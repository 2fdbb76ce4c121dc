"""One error lists all columns that cannot be used; what learns networks and explores tables says the same of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu import learn
from jtgpu.columns.schema import Schema
from tests.cli.commands import run

N = 60
ILL: dict[str, list[Any]] = {
    "id": [f"p{i}" for i in range(N)], "one": ["x"] * N, "none": [None] * N, "dose": [i / 7 for i in range(N)],
    "age": [*map(str, range(20, 20 + N - 1)), "unknown"], "day": list(np.datetime64("2024-01-01") + np.arange(N)),
    "a": ["u", "v"] * (N // 2), "b": ["u", "v", "v"] * (N // 3),
}  # fmt: skip
WHY = {
    "id": "has a different value in each of its 60 rows", "dose": "has 60 different numbers with fractions",
    "age": r"has 59 different numbers except for 'unknown' \(1\)", "day": "has 60 different dates",
}  # fmt: skip


@pytest.mark.parametrize("learner", [learn.structure, learn.posterior, learn.score_table])
def test_one_error_lists_all_columns_of_a_graph(learner: Any) -> None:
    """N18: one column a run."""
    lines = [f"column {name!r} {why}" for name, why in WHY.items()]
    lines.append("2 columns have only one value or none: 'one', 'none'; read=ReadOptions.constant='drop'. leaves")
    with pytest.raises(jtgpu.DataError, match="(?s)^6 columns cannot be used:.*" + ".*".join(lines)) as refused:
        learner(ILL)
    assert str(refused.value).count("\n") == 5


def test_one_error_lists_all_columns_of_a_fit() -> None:
    lines = [f"column {name!r} {why}" for name, why in WHY.items() if name != "id"]  # a fit takes any words
    with pytest.raises(jtgpu.DataError, match="(?s)^4 columns cannot be used:.*" + ".*".join(lines)):
        learn.fit({"b": ["id", "one", "none", "dose", "age", "day", "a"]}, ILL)


def test_explore_leaves_them_out_in_the_same_words(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "ill.csv"
    rows = zip(*({**ILL, "none": [""] * N}).values(), strict=True)
    path.write_text("\n".join([",".join(ILL), *(",".join(map(str, row)) for row in rows)]))
    done = run("explore", str(path), "--no-serve", "--seconds", "0")
    assert done.exit_code == 0, done.output
    found = dict(line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line)
    for name in ("age", "day"):
        assert "left out: " + WHY[name].replace("\\", "").removeprefix("has ") in found[name]
    assert "left out: only one value" in found["one"]
    assert "left out: only missing cells" in found["none"]


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([], "constant"), (["x"], "constant"), ([f"w{i}" for i in range(256)], "text"), ([*range(256)], "numbers"),
        ([i / 3 for i in range(21)], "numbers"), ([f"{i},5" for i in range(21)], "numbers"), ([1.5, "inf"], "numbers"),
        ([*range(21), "?"], "text"), ([object()], "text"),
        (list(np.datetime64("2024-01-01") + np.arange(21)), "dates"),
    ],
)  # fmt: skip
def test_kinds(cells: list[Any], kind: str) -> None:
    schema = Schema(of_graph=True)
    schema.add("x", cells, [2] * len(cells), 2 * len(cells))
    assert [f.kind for f in schema.findings] == [kind]
    assert not schema.states


@pytest.mark.parametrize("learner", [learn.structure, learn.posterior])
def test_graphs_take_no_likelihoods(learner: Callable[..., Any]) -> None:
    with pytest.raises(jtgpu.DataError, match=r"'x' has likelihoods, such as '\[0.4;0.8\]', which no graph is"):
        learner({"x": ["[0.4;0.8]", "a", "b"] * 4, "y": ["u", "v"] * 6})
