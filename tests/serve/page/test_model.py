"""The page's changes of networks, run by Node.js without a browser, against NumPy and the server's own reading."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import jtgpu
from jtgpu.serve.edited import EditedNetwork, edited_network, network_of_page
from jtgpu.serve.page_module import FOLDER
from tests.decisions.test_policies import oil
from tests.dynamic.test_posteriors import umbrella
from tests.model.test_editing_kinds import mixed_dynamic
from tests.serve.test_edited import body, markov, noisy

Run = Callable[..., list[Any]]


@pytest.fixture(scope="module")
def run() -> Run:
    """Answers of the page's modules to several tasks: one process for all."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed")
    check = Path(__file__).with_name("model_check.mjs")

    def answers(*tasks: dict[str, Any]) -> list[Any]:
        done = subprocess.run(
            [node, check, FOLDER], input=json.dumps(tasks), capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        found: list[Any] = json.loads(done.stdout)
        return found

    return answers


def edited(net: Any) -> Any:
    return msgspec.to_builtins(edited_network(net))


def made(answer: Any) -> Any:
    """The network that the server makes of an answer."""
    return network_of_page(msgspec.convert(answer, EditedNetwork))


def test_every_kind_stays_itself(run: Run) -> None:
    nets = [jtgpu.load("asia"), oil(), umbrella(), body(), mixed_dynamic(), markov()]
    assert [made(answer) for answer in run(*({"net": edited(net), "steps": []} for net in nets))] == nets


def test_arcs_repeat_rows_and_average_them(run: Run) -> None:
    asia = jtgpu.load("asia")
    more, less, turned = map(made, run(
        {"net": edited(asia), "steps": [["setParents", "lung", ["smoke", "asia"]]]},
        {"net": edited(asia), "steps": [["setParents", "dysp", ["either"]]]},
        {"net": edited(asia), "steps": [["setParents", "dysp", ["either", "bronc"]]]},
    ))  # fmt: skip
    np.testing.assert_allclose(more.cpt("lung"), np.repeat(np.asarray(asia.cpt("lung"))[:, None], 2, 1))
    axes = asia.parents("dysp")
    np.testing.assert_allclose(less.cpt("dysp"), np.asarray(asia.cpt("dysp")).mean(axes.index("bronc")))
    np.testing.assert_allclose(turned.cpt("dysp"), np.asarray(asia.cpt("dysp")).swapaxes(0, 1))


def test_nodes_of_decisions_numbers_and_slices(run: Run) -> None:
    wells, people, rain = oil(), body(), umbrella()
    a, b, c, d, e = map(made, run(
        {"net": edited(wells), "steps": [["addVariable", "utility"], ["setParents", "utility_1", ["oil"]]]},
        {"net": edited(wells), "steps": [["removeVariable", "drill"]]},
        {"net": edited(people), "steps": [["setStates", "sex", ["f", "m", "x"]], ["renameVariable", "age", "years"]]},
        {"net": edited(people), "steps": [["setParents", "age", ["sex"]], ["removeVariable", "height"]]},
        {"net": edited(rain), "steps": [["setParents", "umbrella", ["rain", "umbrella\0" + "1"]]]},
    ))  # fmt: skip
    assert a.utility("utility_1").tolist() == [0, 0, 0]
    assert "drill" not in b
    np.testing.assert_allclose(b.utility("gain"), wells.utility("gain").mean(wells.parents("gain").index("drill")))
    assert c.gaussian("height").mean.tolist() == [165, 178, 165]
    assert c.parents("height") == ("years", "sex")
    assert d.gaussian("age").mean.tolist() == [40, 40]
    assert e.parents("umbrella") == (("rain", 0), ("umbrella", 1))
    np.testing.assert_allclose(e.cpt("umbrella", 0), rain.cpt("umbrella"))


def test_numbers_over_time(run: Run) -> None:
    """Each density of the first slices keeps its numbers, and lacks the parents that do not exist there."""
    net = mixed_dynamic()
    arc, fewer, states, names, fresh = map(made, run(
        {"net": edited(net), "steps": [["setParents", "load", ["state", "load\0" + "1", "load\0" + "2"]]]},
        {"net": edited(net), "steps": [["setParents", "load", ["load\0" + "1"]]]},
        {"net": edited(net), "steps": [["setStates", "state", ["calm", "busy", "mad"]]]},
        {"net": edited(net), "steps": [["renameVariable", "load", "work"]]},
        {"net": edited(net), "steps": [["addVariable", "number"], ["setParents", "number_1", ["load"]]]},
    ))  # fmt: skip
    assert arc == net.replace(
        parents={"load": ["state", ("load", 1), ("load", 2)]},
        cpt={"load": jtgpu.Gaussian([1, 4], {"load[t-1]": [0.5, 0.2], "load[t-2]": [0, 0]})},
        start={"load": [jtgpu.Gaussian([1, 4]), jtgpu.Gaussian([1, 4], {"load[t-1]": [0.5, 0.2]})]},
    )
    assert (fewer.gaussian("load", 0).mean, fewer.gaussian("load").coefficients["load[t-1]"]) == (2.5, 0.35)
    assert states.gaussian("load", 0).mean.tolist() == [1, 4, 1]
    assert names == net.rename("load", "work")
    assert fresh.gaussian("number_1").coefficients == {"load": 0}
    text = "state has states: it can be a parent of a number in the same slice only."
    assert run({"net": edited(net), "ask": ["whyNoArc", "state\0" + "1", "load"]}) == [text]


def test_strengths_and_their_table(run: Run) -> None:
    net = edited(noisy())
    table, states, more, fresh, fewer = run(
        {"net": net, "steps": [["withoutStrengths", "fever"]]},
        {"net": net, "steps": [["setStates", "fever", ["high", "some", "no"]], ["withoutStrengths", "fever"]]},
        {"net": net, "steps": [["addVariable", "chance"], ["setParents", "fever", ["flu", "cold", "chance_1"]]]},
        {"net": edited(jtgpu.load("asia")), "steps": [["withStrengths", "dysp"]]},
        {"net": net, "steps": [["setParents", "fever", ["flu"]], ["setStates", "flu", ["yes", "mild", "no"]]]},
    )
    np.testing.assert_allclose(made(table).cpt("fever"), noisy().cpt("fever"), atol=1e-12)
    assert made(table).attributes == {}
    assert made(states).cpt("fever").shape == (2, 2, 3)
    expected = jtgpu.NoisyOr([0.8, 0.5, 0.5], leak=0.1, present=0).cpt
    np.testing.assert_allclose(made(more).cpt("fever"), expected, atol=1e-12)
    np.testing.assert_allclose(made(fewer).cpt("fever")[:, 0], [1 - 0.2 * 0.9, 0.1, 0.1], atol=1e-12)
    np.testing.assert_allclose(made(fresh).cpt("dysp"), jtgpu.NoisyOr([0.5, 0.5], present=0).cpt, atol=1e-12)


def test_arcs_that_cannot_be(run: Run) -> None:
    wells, people, rain = edited(oil()), edited(body()), edited(umbrella())
    assert run(
        {"net": wells, "ask": ["whyNoArc", "gain", "oil"]},
        {"net": wells, "ask": ["whyNoArc", "drill", "test"]},
        {"net": wells, "ask": ["whyNoArc", "oil", "drill"]},
        {"net": people, "ask": ["whyNoArc", "age", "sex"]},
        {"net": rain, "ask": ["whyNoArc", "umbrella\0" + "1", "rain"]},
    ) == [
        "A utility has no children.",
        "The arc from drill to test would close a cycle.",
        "",
        "The number age can be a parent of numbers only.",
        "",
    ]  # fmt: skip


def test_cells_of_a_spreadsheet(run: Run) -> None:
    texts = ["0,5\t0,25\r\n1\t2\n", "0.5;1\n2;3", "0.1, 0.9\n0.2 0.8", "50 %\t-1", "a\t"]
    assert run(*({"ask": ["pastedNumbers", text]} for text in texts)) == [
        [[0.5, 0.25], [1, 2]], [[0.5, 1], [2, 3]], [[0.1, 0.9], [0.2, 0.8]], [[0.5, -1]], [["NaN", "NaN"]],
    ]  # fmt: skip


def test_factors_of_a_markov_network(run: Run) -> None:
    """As the methods of `MarkovNetwork` do it: what is removed is summed out."""
    pair = markov()
    three = pair.add("c", ["0", "1", "2"]).add_factor(["c", "b"], np.arange(9.0).reshape(3, 3) + 1)
    less, joined, parted, renamed, more, wide, gone = map(made, run(
        {"net": edited(three), "steps": [["removeVariable", "b"]]},
        {"net": edited(three), "steps": [["toggleEdge", "a", "c"]]},
        {"net": edited(three), "steps": [["toggleEdge", "c", "b"]]},
        {"net": edited(three), "steps": [["renameVariable", "b", "d"], ["setStates", "a", ["no", "yes"]]]},
        {"net": edited(three), "steps": [["addVariable", "chance"], ["toggleEdge", "chance_1", "a"]]},
        {"net": edited(three), "steps": [["setScope", 0, ["a", "c", "b"]], ["setStates", "b", ["z", "x", "new", "y"]]]},
        {"net": edited(pair), "steps": [["setScope", 1, []], ["removeVariable", "a"]]},
    ))  # fmt: skip
    before, after = (net.compile("reference").joint(["a", "c"]).probabilities for net in (three, less))
    np.testing.assert_allclose(after, before, rtol=1e-12)
    assert joined.factors[-1].table.tolist() == [[1] * 3] * 2
    assert parted == pair.add("c", ["0", "1", "2"])
    assert renamed == three.replace(rename={"b": "d"}, states={"a": ["no", "yes"]})
    assert more == three.add("chance_1", ["yes", "no"]).add_factor(["chance_1", "a"], np.ones((2, 2)))
    table = np.asarray(pair.factors[0].table)[[2, 0, 0, 1]].T[:, None]  # a new state has the numbers of the first
    assert [wide.variables[v] for v in wide.factors[0].scope] == ["a", "c", "b"]
    np.testing.assert_allclose(wide.factors[0].table, np.repeat(table, 3, 1))
    np.testing.assert_allclose(gone.compile("reference").posterior("b").probabilities, np.array([3, 7, 1]) / 11)
