"""What notebooks show: every object that users hold, as well-formed HTML without scripts."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import jtgpu
from jtgpu.draw.html import draw_curve
from jtgpu.model.states import StateNumber
from tests.support.bundled import bundled

LIMIT = 200_000  # bytes


def shown(thing: Any) -> str:
    text: str = thing._repr_html_()
    assert len(text.encode()) <= LIMIT
    ElementTree.fromstring(f"<body>{text}</body>")
    assert "<script" not in text
    assert "href" not in text
    assert text == thing._repr_html_()
    return text


@pytest.fixture(scope="module")
def asia() -> jtgpu.JunctionTree:
    return jtgpu.load("asia").compile("reference")


def things(tree: jtgpu.JunctionTree) -> dict[str, Any]:
    e = {"xray": "yes"}
    cases = {"xray": ["yes", "no", "yes"]}
    return {
        "network": tree.model, "cpt": bundled("asia").cpt("dysp"), "plan": tree.plan,
        "tree": tree, "posterior": tree.posterior("lung", e),
        "posteriors": tree.posteriors(e), "some posteriors": tree.posteriors(e, targets=["lung", "tub"]),
        "cases": tree.posteriors_batch(cases), "joint": tree.joint(["lung", "bronc"], e),
        "conditional": tree.conditional("lung", given=["smoke"]), "mpe": tree.mpe(e, k=2),
        "importance": tree.evidence_importance("lung", {**e, "smoke": "yes"}),
        "information": tree.value_of_information("lung", evidence=e), "mutual": tree.mutual_information("lung"),
        "sensitivity": tree.sensitivity(("lung", "yes"), e), "samples": tree.sample(5, seed=1),
        "counts": tree.expected_counts(cases), "imputed": tree.impute(cases), "drawing": jtgpu.draw.show(tree),
    }  # fmt: skip


def test_every_result_has_html(asia: jtgpu.JunctionTree) -> None:
    for name, thing in things(asia).items():
        text = shown(thing)
        assert "lung" in text or "bronc" in text, name
        assert not repr(thing).startswith("<"), name


def test_a_result_with_its_evidence(asia: jtgpu.JunctionTree) -> None:
    text = shown(asia.posteriors({"xray": "yes"}))
    assert "xray; observed: yes" in text
    assert "log_evidence=-2.2046" in text
    assert "tub; do: no" in shown(asia.posteriors({"xray": "yes"}, do={"tub": "no"}))
    with asia.session() as session:
        session.set({"dysp": "yes"})
        assert "dysp; observed: yes" in shown(session.posteriors())


def test_a_cpt_is_a_table_and_a_part_of_it_an_array() -> None:
    cpt = bundled("asia").cpt("dysp")
    text = shown(cpt)
    assert "P(dysp | bronc, either)" in text
    assert "<th>dysp=yes</th>" in text
    assert cpt.view()._repr_html_() is None


def test_a_table_has_bars(asia: jtgpu.JunctionTree) -> None:
    text = shown(asia.mutual_information("lung"))
    widths = [int(w) for w in re.findall(r"width:(\d+)px", text)]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] == 60


def test_bars_of_a_ranking_are_the_quantity_that_it_is_sorted_by(asia: jtgpu.JunctionTree) -> None:
    text = shown(asia.value_of_information("lung", evidence={"dysp": "yes"}))
    first, second = re.findall(r"width:(\d+)px\"></i>([0-9.]+)", text)[:2]
    assert (first, second) == (("60", "0.280682"), ("45", "0.209155"))


def test_tornado(asia: jtgpu.JunctionTree) -> None:
    found = asia.sensitivity(("lung", "yes"), {"xray": "yes"})
    text = shown(found)
    assert str(found.tornado()[0].parameter) in text
    assert text.count("<rect") == 2 * len(found.tornado())


def test_a_fit_has_a_curve() -> None:
    net = jtgpu.network("a->b; a->c", "{yes|no}", seed=1)
    with net.compile("reference") as tree:
        states = tree.sample(60, seed=1).states.copy()
    states[::3, 0] = -1
    cases = {v: [None if s < 0 else net.states(v)[s] for s in states[:, i]] for i, v in enumerate(net.variables)}
    text = shown(jtgpu.learn.fit(net, cases, compute="reference"))
    assert "ln P(data)" in text
    assert 'class="l"' in text
    assert 'class="l"' not in shown(jtgpu.learn.fit(net, {v: ["yes", "no"] for v in net.variables}))


def test_labels_of_axes_have_six_digits() -> None:
    curve = draw_curve([-1034.091234, -1033.012345], "ln P(data)", "iteration")
    assert curve is not None
    assert ">-1034.09<" in curve.svg
    assert ">-1033.01<" in curve.svg


@pytest.mark.slow
def test_large_objects_stay_small() -> None:
    net = jtgpu.load("munin")
    text = shown(net)
    assert "1,041 variables" in text
    shown(net.plan("min-fill"))
    states = [f"state {i} <b>" for i in range(1000)]
    rng = np.random.default_rng(1)
    wide = jtgpu.BayesianNetwork(
        {"a" * 200: states, "b": states}, {"b": ["a" * 200]},
        {"a" * 200: rng.dirichlet(np.ones(1000)), "b": rng.dirichlet(np.ones(1000), 1000)},
    )  # fmt: skip
    with wide.compile("reference") as tree:
        shown(tree.posteriors())
        shown(tree.posterior("b"))
        shown(tree.joint(["b", "a" * 200]))
        shown(tree.posteriors_batch({"b": states[:100]}))


def test_long_names_make_a_picture_smaller() -> None:
    names = [f"{'&' * 2000}{i}" for i in range(60)]
    states = ["&" * 3000 + str(k) for k in range(8)]
    table = np.full(8, 0.125)
    net = jtgpu.BayesianNetwork(dict.fromkeys(names, states), {}, dict.fromkeys(names, table), name="&" * 9000)
    with net.compile("reference") as tree:
        for thing in (net, net.plan(), tree, tree.posteriors(), tree.posterior(names[0]), tree.mpe()):
            shown(thing)


def test_hostile_names() -> None:
    name, state = "<img src=x onerror=alert(1)>", '"</td><script>'
    net = jtgpu.BayesianNetwork(
        {name: [state, "b"], "c": ["", ""]}, {"c": [name]}, {name: [0.5, 0.5], "c": [[0.5, 0.5], [0.1, 0.9]]}, name=name
    )
    with net.compile("reference") as tree:
        for thing in (
            net, net.plan(), tree, tree.posteriors(), tree.posterior(name), tree.joint([name, "c"]), tree.mpe(),
            tree.sensitivity((name, StateNumber(0))), tree.sample(3, seed=1), tree.mutual_information(name),
            tree.posteriors_batch({"c": [StateNumber(0), StateNumber(1)]}),
        ):  # fmt: skip
            assert "<img" not in shown(thing)


def test_markov_networks() -> None:
    net = jtgpu.MarkovNetwork({"a": "01", "b": "01"}, [(("a", "b"), [[1, 2], [3, 4]])])
    shown(net)
    shown(net.compile("reference").posteriors())


@pytest.mark.slow
def test_notebooks_import_pictures_only_when_needed() -> None:
    import subprocess
    import sys

    code = (
        "import sys, jtgpu; t = jtgpu.load('asia').compile('reference'); p = t.posteriors(); "
        "print('jtgpu.draw' in sys.modules, end=' '); p._repr_html_(); "
        "print('jtgpu.draw' in sys.modules, 'matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False"]


def test_a_tree_is_the_picture_of_its_network(asia: jtgpu.JunctionTree) -> None:
    text = shown(asia)
    assert all(f">{name}</text>" in text for name in asia.plan.model.variables)
    assert "entries" not in text  # of cliques
    assert "entries" in shown(asia.plan)
