"""Each kind of network: the record of what works, editing, files, pictures, sessions and questions as text."""

from __future__ import annotations

import math
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu import errors
from jtgpu.formats.registry import FORMATS
from jtgpu.model.kinds import KINDS, PAGE, TREES, VERBS
from tests.model.test_editing_kinds import decisions, dynamic, mixed, mixed_dynamic

NETS: dict[str, Any] = {
    "Bayesian": lambda: jtgpu.network("smoke->lung->xray", "{no|yes}", seed=1), "mixed": mixed, "dynamic": dynamic,
    "mixed dynamic": mixed_dynamic, "decision": decisions,
}  # fmt: skip
DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("kind", NETS)
def test_the_record_is_true(kind: str) -> None:
    """A tree has every question that the record says it has; of others the error says what to use in their place."""
    with NETS[kind]().compile("reference") as tree:
        assert TREES[type(tree).__name__] == kind
        for verb, by_kind in VERBS.items():
            assert [*by_kind] == [*KINDS]
            if not by_kind[kind]:
                assert hasattr(tree, verb), (kind, verb)
            else:
                with pytest.raises(errors.UnknownAttribute, match=re.escape(by_kind[kind])):
                    getattr(tree, verb)


def test_the_docs_have_the_record() -> None:
    text = (DOCS / "which-verb.rst").read_text(encoding="utf-8")
    for record, name in ((VERBS, r"``(\w+)``"), (PAGE, r"([a-z][a-z ]+)")):
        rows = re.findall(rf"^   \* - {name}\n((?:     - .*\n){{6}})", text, re.MULTILINE)
        found = {verb: re.findall(r"- (.*)", cells) for verb, cells in rows}
        assert found == {verb: ["no" if of[kind] else "yes" for kind in KINDS] for verb, of in record.items()}


@pytest.mark.parametrize("kind", NETS)
def test_edited_drawn_and_written(kind: str, tmp_path: Path) -> None:
    """An edited network is drawn, with its tree, and read again from every format that can hold it."""
    net = NETS[kind]().add("new", ["x", "y"]).rename("new", "added")
    with net.compile("reference") as tree:
        for thing in (net, tree):
            assert "added" in jtgpu.draw.show(thing).svg
            assert "<svg" in thing._repr_html_()
    if kind == "mixed":
        long = net.replace(rename={"height": "height of the body at the age of forty", "weight": "height of the body"})
        drawing = jtgpu.draw.show(long, {"sex": "f"}).svg
        assert re.search("height of.*: 166, sd 6<", drawing)
        assert re.search("height of.*: 52.8, sd 10.2<", drawing)
    written = 0
    for form in FORMATS:
        path = tmp_path / f"net{form.suffixes[0]}"
        try:
            jtgpu.write(net, path)
            again: Any = jtgpu.read(path)
        except errors.JtgpuError:
            continue
        written += type(again) is type(net) and {*again.variables} == {*net.variables}
    assert written >= 1


def normal(x: float, mean: Any, sd: Any) -> Any:
    return np.exp(-(((x - mean) / sd) ** 2) / 2) / sd


def test_questions_of_numbers() -> None:
    """Joint posteriors, questions as text, sessions and tables of a mixed network, against densities by hand."""
    net = mixed().add("smoke", ["no", "yes"], ["sex"], [[0.8, 0.2], [0.7, 0.3]])
    tree = net.compile("reference")
    weights = np.array([0.4, 0.6]) * normal(180, np.array([166, 179]), np.array([6, 7]))
    p = weights / weights.sum()
    table = p[:, None] * [[0.8, 0.2], [0.7, 0.3]]
    found = tree.joint(["sex", "smoke"], {"height": 180.0})
    np.testing.assert_allclose(found.probabilities, table, rtol=1e-9)
    assert found.log_evidence == pytest.approx(math.log(weights.sum() / math.sqrt(2 * math.pi)))
    np.testing.assert_allclose(tree.ask("P(smoke, sex | height=180)").probabilities, table.T, rtol=1e-9)
    best = tree.map(["smoke", "sex"], {"height": 180.0}, k=9)
    assert (best["sex"], best["smoke"], len(best.ranked)) == ("m", "no", 4)
    assert best.log_joint == pytest.approx(math.log(table[1, 0]) + found.log_evidence)
    assert tree.ask("MAP(sex | height=180)")["sex"] == "m"
    assert tree.ask("P(sex=m, smoke=yes | height=180)") == pytest.approx(table[1, 1])
    assert tree.ask("lnP(sex={f, m} | height=180)") == pytest.approx(0)
    assert tree.ask("P(height | sex=m)").mean == pytest.approx(179)
    assert tree.ask("P(sex | do(height=180))")["f"] == pytest.approx(0.4)
    assert tree.ask("MI(sex; height)")["height"] > 0
    assert net.with_codes("index").compile("reference").ask("P(height | sex=1)").mean == pytest.approx(179)
    with tree.session({"height": 180.0}) as session:
        assert session.posterior("sex")["m"] == pytest.approx(p[1])
        session.observe("smoke", "yes")
        assert session.posterior("sex")["m"] == pytest.approx(table[1, 1] / table[:, 1].sum())
        session.retract("height")
        session.weigh("sex", [0.5, 1.0])
        assert session.posterior("sex")["m"] == pytest.approx(0.18 / (0.18 + 0.04))
        assert session.joint(["sex"]).probabilities[1] == pytest.approx(0.18 / (0.18 + 0.04))
        with pytest.raises(errors.EvidenceError, match="takes no soft="):
            session.believe("sex", [0.5, 0.5])
        assert session.known["soft"] == {}
        with pytest.raises(errors.UnknownState):
            session.set({"sex": "x"})
        assert session.evidence == {"smoke": "yes"}
    with pytest.raises(errors.EvidenceError, match="session is closed"):
        session.posteriors()
    assert pickle.loads(pickle.dumps(tree.session({"sex": "f"}))).posterior("height").mean == pytest.approx(166)
    with pytest.raises(errors.ArgumentError, match="'height' is a number; see moments"):
        tree.joint(["sex", "height"])
    with pytest.raises(errors.EvidenceError, match="'height' is a number: expected a value"):
        tree.ask("P(sex | height=tall)")
    with pytest.raises(errors.EvidenceError, match="single values have probability 0"):
        tree.ask("P(height=180)")
    wide = net
    for i in range(21):
        wide = wide.add(f"b{i}", ["0", "1"])
    with pytest.raises(errors.TableTooLarge, match="2,097,152 entries"):
        wide.compile("reference").joint([f"b{i}" for i in range(21)])


def test_a_table_of_numbers() -> None:
    pd = pytest.importorskip("pandas")
    tree = mixed().compile("reference")
    frame = pd.DataFrame({"id": [7, 8], "sex": ["f", "m"], "height": [180.0, 166.0]}, index=[3, 5])
    found = tree.predict_proba(frame, ["sex", "weight"], keep=["id"])
    assert [*found.columns] == ["id", "sex=f", "sex=m", "weight.mean", "weight.sd"]
    assert [*found.index] == [3, 5]
    one = tree.posteriors({"height": 180.0})
    assert jtgpu.graphs.betweenness(mixed()) == {"sex": 0.0, "height": 0.0, "weight": 0.0}
    assert jtgpu.draw.layout(mixed()).nodes == ("sex", "height", "weight")
    assert found["sex=m"].iloc[0] == pytest.approx(one["sex"]["m"])
    assert found["weight.mean"].iloc[0] == pytest.approx(one["weight"].mean)
    assert [*tree.predict_proba(frame).columns] == ["weight.mean", "weight.sd"]
    assert "height.mean" in tree.predict_proba(frame, evidence_columns=["sex"]).columns
    with pytest.raises(errors.EvidenceError, match="'weight', which is no column"):
        tree.predict_proba(frame, evidence_columns=["weight"])
    with pytest.raises(errors.UnknownVariable, match="the table has no column 'ids'; did you mean 'id'"):
        tree.predict_proba(frame, keep=["ids"])


def test_sessions_take_rows_of_frames() -> None:
    pd, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    frame = pd.DataFrame({"id": [7], "sex": ["m"], "height": [180.0], "weight": [math.nan]})
    tree = mixed().compile("reference")
    for row in (frame.iloc[0], frame, polars.DataFrame({"id": [7], "sex": ["m"], "height": [180.0]})):
        assert tree.session(row).evidence == {"sex": "m", "height": 180.0}
        assert tree.posterior("weight", row).mean == pytest.approx(87)
    with pytest.raises(errors.JtgpuError, match="evidence"):
        tree.session(pd.concat([frame, frame]))
    row = pd.Series({"test": "yes", "id": 3})
    with_decisions = decisions().compile("reference")
    for given in (row, row.to_frame().T):
        session = with_decisions.session(given)
        assert session.posterior("ill")["yes"] == with_decisions.posterior("ill", row)["yes"] > 0.3


def test_questions_of_decisions() -> None:
    """Under the best policy; a decision among the findings is fixed."""
    net = decisions()
    tree = net.compile("reference")
    p = np.array([0.9, 0.1]) * [0.2, 0.9]
    assert tree.posterior("ill", {"test": "yes"})["yes"] == pytest.approx(p[1] / p.sum())
    assert tree.log_evidence({"test": "yes"}) == pytest.approx(math.log(p.sum()))
    assert tree.ask("P(ill=yes | test=yes)") == pytest.approx(p[1] / p.sum())
    session = tree.session({"test": "yes"})
    session.observe("treat", "no")
    assert session.posterior("ill")["yes"] == pytest.approx(p[1] / p.sum())
    # the best policy treats after a positive test: in an event a decision has probabilities, among findings it is fixed
    assert tree.policy()["treat"].tolist() == [[1, 0], [0, 1]]
    assert tree.ask("P(treat=yes)") == pytest.approx(p.sum())
    assert tree.ask("P(treat=yes, ill=yes)") == pytest.approx(p[1])
    assert tree.ask("lnP(treat=yes | ill=yes)") == pytest.approx(math.log(0.9))
    assert tree.ask("P(test=yes | treat=yes)") == pytest.approx(p.sum())
    with pytest.raises(errors.EvidenceError, match="'treat' is in the event and in the evidence"):
        tree.ask("P(treat=yes | treat=yes)")
    for fixed in ({"treat": ["yes"]}, pytest.importorskip("pandas").Series({"treat": "yes"})):
        assert tree.posterior("test", fixed)["yes"] == pytest.approx(p.sum())
        assert tree.utility(fixed).mean == pytest.approx(0.9 * 90 + 0.1 * 80)
    tree.reload(net.replace(cpt={"ill": [0.5, 0.5], "health": [[0, 1], [0, 1]]}))
    assert tree.posterior("ill")["yes"] == pytest.approx(0.5)
    assert tree.policy().expected_utility == pytest.approx(1)
    with pytest.raises(errors.PlanError):
        tree.reload(net.remove("health"))


def test_value_of_information_over_time() -> None:
    """That of the unrolled network."""
    tree = dynamic().compile("reference")
    found = tree.value_of_information("rain", sequences={"wet": [["yes", None]]})
    flat = dynamic().unroll(2).compile("reference")
    expected = flat.value_of_information("rain[1]", ["kind", "wet[1]"], {"wet[0]": "yes"})
    assert [one.variable for one in found] == ["wet", "kind"]
    np.testing.assert_allclose([one.gain for one in found], [one.gain for one in expected], atol=1e-12)
    assert len(tree.value_of_information("rain", "wet")) == 1
    with pytest.raises(errors.ArgumentError, match="takes one sequence, got 2"):
        tree.value_of_information("rain", sequences={"wet": [["yes"], ["no"]]})
    with pytest.raises(errors.ArgumentError, match="is the target and among the candidates"):
        tree.value_of_information("rain", ["rain"])


def test_names_of_a_markov_network() -> None:
    net = jtgpu.MarkovNetwork({"a": ["0", "1"], "b": ["0", "1"]}, [(("a", "b"), [[4.0, 1.0], [1.0, 4.0]])])
    new = net.replace(rename={"a": "x"}, states={"b": {"1": "yes"}}, name="pair")
    assert (new.variables, new.states("b"), new.name) == (("x", "b"), ("0", "yes"), "pair")
    assert net.with_codes("index").replace(name="pair").state_codes == "index"
    assert new.compile("reference").posterior("x", {"b": "yes"})["1"] == pytest.approx(0.8)
    with pytest.raises(errors.NetworkError, match="both have the name 'b'"):
        net.replace(rename={"a": "b"})
    assert net.rename("a", "x").variables == ("x", "b")
    with pytest.raises(errors.NetworkError, match="shape"):
        net.replace(states={"a": ["0", "1", "2"]})


def test_a_markov_network_is_edited() -> None:
    """A variable that is removed is summed out: the others keep their distribution."""
    rng, three = np.random.default_rng(1), {v: ["0", "1", "2"] for v in "abcd"}
    factors = [(("c", "a"), rng.random((3, 3))), (("b", "c", "d"), rng.random((3, 3, 3))), (("d",), rng.random(3))]
    net: Any = jtgpu.MarkovNetwork(three, factors).with_codes({"a": {"x": "0"}})
    less, before = net.remove("c"), net.compile("reference")
    assert [f.scope for f in less.factors] == [(2,), (0, 1, 2)]
    assert less.state_codes == {"a": {"x": "0"}}
    found, expected = less.compile("reference").joint(["b", "d", "a"]), before.joint(["b", "d", "a"])
    np.testing.assert_allclose(found.probabilities, expected.probabilities, rtol=1e-12)
    more = net.add("e", ["x", "y"])
    assert (more.variables[-1], more.compile("reference").posterior("e")["x"]) == ("e", 0.5)
    assert more.remove("e") == net
    assert more.add_factor(["e", "a"], rng.random((2, 3))).remove_factor(["a", "e"]) == more
    wrong: Any = (
        (lambda: net.add("a", ["x"]), "already a variable 'a'"),
        (lambda: net.remove_factor(["a", "b"]), "no factor of a, b"),
        (lambda: net.add_factor("a", [1e-300, 1, 1]).add_factor("a", [1e-300, 1, 1]).remove("a"), "leave the range"),
        (lambda: net.add_arc("a", "b"), "did you mean 'add_factor'"),
    )
    for change, message in wrong:
        with pytest.raises(errors.JtgpuError, match=message):
            change()


def test_joints_of_slices_with_numbers() -> None:
    """Of variables with states, given the numbers: against the unrolled network."""
    net = mixed_dynamic().add("kind", ["x", "y"], ["state"], [[0.9, 0.1], [0.3, 0.7]])
    given = {"load": [[1.0, 2.0]]}
    found = net.compile("reference").smooth(given, joints=[("state", "kind"), ("state[t]", "state[t-1]")])
    flat = net.unroll(2).compile("reference")
    evidence = {"load[0]": 1.0, "load[1]": 2.0}
    expected = flat.joint(["state[1]", "kind[1]"], evidence).probabilities
    np.testing.assert_allclose(found.joint["state", "kind"][0, 1], expected, rtol=1e-9)
    expected = flat.joint(["state[1]", "state[0]"], evidence).probabilities
    np.testing.assert_allclose(found.joint["state[t]", "state[t-1]"][0, 1], expected, rtol=1e-9)


def test_the_record_of_markov_networks_is_true() -> None:
    """Their tree is of the class of Bayesian networks: it has all methods, and some say why they do not answer."""
    net = jtgpu.MarkovNetwork({"a": ["0", "1"], "b": ["0", "1"]}, [(("a", "b"), [[4.0, 1.0], [1.0, 4.0]])])
    tree = net.compile("reference")
    refused: dict[str, Any] = {
        "sensitivity": lambda: tree.sensitivity(("a", "1")), "effect": lambda: tree.effect("a", of="b"),
        "probability_of_causation": lambda: tree.probability_of_causation("a", of="b"),
        "counterfactual": lambda: tree.counterfactual("a", do={"b": "1"}),
    }  # fmt: skip
    assert {verb for verb, of in VERBS.items() if of["Markov"]} == {*refused}
    for call in refused.values():
        with pytest.raises(errors.JtgpuError, match=r"Bayesian ?[nN]etwork"):
            call()
