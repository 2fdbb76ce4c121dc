"""What results print: their numbers as aligned tables, bounded in rows and columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jtgpu
from tests.conftest import ROOT

E = {"xray": "yes"}


@pytest.fixture(scope="module")
def tree() -> jtgpu.JunctionTree:
    made: jtgpu.JunctionTree = jtgpu.read(ROOT / "nets" / "asia.net").compile(backend="reference")
    return made


def test_posteriors_print_a_line_for_each_variable(tree: jtgpu.JunctionTree) -> None:
    lines = str(tree.posteriors(E)).splitlines()
    assert lines[0] == "Posteriors of 8 variables, log_evidence=-2.20464"
    assert lines[1] == "asia    yes 0.013156  no 0.986844"
    assert lines[4] == "lung    yes 0.488711  no 0.511289"
    assert len(lines) == 9
    assert repr(tree.posteriors(E)) == str(tree.posteriors(E))


def test_one_posterior_prints_a_line_for_each_state(tree: jtgpu.JunctionTree) -> None:
    posterior = tree.posterior("lung", E)
    assert str(posterior).splitlines() == ["lung  probability", "yes      0.488711", "no       0.511289"]
    assert repr(posterior) == "P(lung) = {yes: 0.488711, no: 0.511289}"
    many = jtgpu.BayesianNetwork({"v": [f"s{i}" for i in range(100)]}, {}, {"v": np.full(100, 0.01)})
    assert len(repr(many.compile("reference").posterior("v"))) < 200


def test_tables_print_the_last_variable_across(tree: jtgpu.JunctionTree) -> None:
    assert str(tree.joint(["lung", "bronc"], E)).splitlines() == [
        "Joint of lung, bronc: 2 x 2 probabilities",
        "lung  bronc=yes  bronc=no",
        "yes    0.279898  0.208813",
        "no     0.226428  0.284861",
    ]
    lines = str(tree.conditional("lung", ["either", "tub"])).splitlines()
    assert lines[0] == "P(lung | either, tub): 2 x 2 x 2"
    assert lines[1].split() == ["either", "tub", "lung=yes", "lung=no"]
    assert lines[4] == "no      yes"  # impossible


@pytest.mark.slow
def test_tables_of_cases_print_both_ends(tree: jtgpu.JunctionTree) -> None:
    found = tree.posteriors_batch(np.full((1000, 8), -1), targets=["lung"])
    lines = str(found).splitlines()
    assert lines[0] == "CasePosteriors of 1 variable in 1,000 cases"
    assert lines[1].split() == ["lung=yes", "lung=no", "log_evidence"]
    assert lines[-2].split()[0] == "999"
    assert lines[-1] == "[1,000 rows x 3 columns; to_frame() has all of them]"
    assert len(lines) == 14
    flagged = tree.posteriors_batch({"either": ["no"], "tub": ["yes"]}, targets=["lung"], on_error="flag")
    assert str(flagged).splitlines()[-1].split() == ["0", "-inf"]


def test_samples_and_explanations_print_names(tree: jtgpu.JunctionTree) -> None:
    samples = tree.sample(3, E, seed=1)
    lines = str(samples).splitlines()
    assert lines[0] == "Samples of 8 variables in 3 rows"
    assert lines[1].split() == list(tree.model.variables)
    assert lines[2].split() == ["0", *(samples[v][0] for v in samples)]
    best = tree.mpe(E, k=2)
    assert str(best).splitlines()[0].endswith("1 of the 2 in .ranked")
    assert str(best).splitlines()[1] == "asia    no"
    assert repr(best).startswith("Explanation(asia=no, ")


def test_rankings_print_their_records(tree: jtgpu.JunctionTree) -> None:
    assert str(tree.mutual_information("lung", evidence=E)).splitlines()[1] == "either  0.447801"
    lines = str(tree.value_of_information("lung", evidence=E)).splitlines()
    assert lines[0] == "Value of information about lung, in nats, best first"
    assert lines[1].split() == ["variable", "expected", "entropy", "gain", "expected", "accuracy"]
    assert "P(xray = yes | either = no)" in str(tree.sensitivity(("lung", "yes"), E))
    assert "smoke" not in str(tree.evidence_importance("lung", E))


def test_expected_counts_print_a_line_for_each_row_of_a_cpt(tree: jtgpu.JunctionTree) -> None:
    found = tree.expected_counts([{"smoke": "yes", "lung": "no"}, {"smoke": "yes"}], variables=["smoke", "lung"])
    assert str(found).splitlines() == [
        "ExpectedCounts of 2 variables in 2 cases, log_likelihood=-1.49165",
        "smoke               yes 2.00000   no 0.000000",
        "lung   smoke = yes  yes 0.100000  no 1.90000",
        "lung   smoke = no   yes 0.000000  no 0.000000",
    ]
    assert repr(found) == str(found)
    assert len(str(tree.expected_counts([{}], variables=())).splitlines()) == 1


@pytest.mark.slow
def test_large_networks_and_long_names_are_bounded() -> None:
    states = {f"variable number {i}": [f"a very long name of a state {k}" for k in range(30)] for i in range(500)}
    net = jtgpu.BayesianNetwork(states, {}, {v: np.full(30, 1 / 30) for v in states})
    tree = net.compile("reference")
    text = str(tree.posteriors())
    assert len(text.splitlines()) == 13
    assert max(map(len, text.splitlines())) <= 100
    assert "[500 rows" in text
    text = str(tree.expected_counts([{}]))
    assert len(text.splitlines()) == 13
    assert max(map(len, text.splitlines())) <= 100
    text = str(tree.sample(100, seed=1))
    assert max(map(len, text.splitlines())) <= 100


def test_counts_of_one_and_formats() -> None:
    net = jtgpu.network("a->b", "{x|y}", seed=1)
    assert str(net).startswith("Bayesian network: 2 variables, 1 arc, 3 parameters")
    assert repr(net) == "BayesianNetwork('', 2 variables, 1 arc)"
    tree = jtgpu.load("asia").compile("cpu")
    posterior = tree.posterior("lung")
    assert (f"{posterior:.3f}", f"{posterior}") == ("P(lung) = {yes: 0.055, no: 0.945}", str(posterior))
    with tree.session({"xray": "yes"}) as session:
        assert repr(session) == "Session('asia', 1 finding)"


def test_printed_names_can_be_typed_in_a_question() -> None:
    states = {"Has Kids?": ["True", "no, never"], "a=b": ["x|y", 'a "z"'], "churn": ["yes", "no"]}
    churn = [[[0.1, 0.9], [0.2, 0.8]], [[0.3, 0.7], [0.4, 0.6]]]
    cpts: dict[str, Any] = {"Has Kids?": [0.5, 0.5], "a=b": [0.5, 0.5], "churn": churn}
    tree = jtgpu.BayesianNetwork(states, {"churn": ["Has Kids?", "a=b"]}, cpts).compile("cpu")
    expected = tree.posterior("churn", {"Has Kids?": "no, never"})["yes"]
    for name in "Has Kids?", '"Has Kids?"', "'Has Kids?'":
        for state in "no, never", '"no, never"':
            assert tree.ask(f"P(churn | {name} = {state})")["yes"] == expected
    for parameter in tree.sensitivity(("churn", "yes")).top(8):
        if parameter.given:
            assert tree.ask(str(parameter)) == pytest.approx(parameter.value), str(parameter)
    assert repr(tree.posterior("a=b")) == "P(\"a=b\") = {\"x|y\": 0.5, 'a \"z\"': 0.5}"
    with pytest.raises(jtgpu.UnknownVariable, match=r"no variable '\"Has Pets.\"'"):
        tree.ask('P(churn | "Has Pets?"=True)')


def test_records_show_six_digits(tree: jtgpu.JunctionTree) -> None:
    record = next(iter(tree.value_of_information("lung", E)))
    assert repr(record).startswith("Observation(variable='")
    assert f"gain={record.gain:.6g}, " in repr(record)
