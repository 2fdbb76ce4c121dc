"""`NoisyOr` and `NoisyMax` against their definitions, and their numbers in files."""

from __future__ import annotations

import itertools
import math
import pickle
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu import (
    ArgumentError,
    BayesianNetwork,
    NetworkError,
    NoisyAnd,
    NoisyMax,
    NoisyMin,
    NoisyOr,
    TableTooLarge,
)
from jtgpu.formats import FORMATS
from jtgpu.formats.conversion import carry
from jtgpu.formats.dsl import dumps as dsl
from jtgpu.formats.dsl import parse as parse_dsl
from jtgpu.formats.xdsl import dumps as xdsl
from jtgpu.formats.xdsl import parse as parse_xdsl

DATA = Path(__file__).parents[1] / "formats" / "data"
CPTS = {"flu": [0.9, 0.1], "drug": [0.25, 0.25, 0.5]}
WAYS = {"xdsl": (xdsl, parse_xdsl, "<noisymax"), "dsl": (dsl, parse_dsl, "NOISY_MAX")}


@given(st.lists(st.floats(0, 1), max_size=5), st.floats(0, 1), st.integers(0, 1))
def test_noisy_or_by_definition(links: list[float], leak: float, present: int) -> None:
    cpt = NoisyOr(links, leak, present=present).cpt
    assert cpt.shape == (2,) * (len(links) + 1)
    for states in itertools.product((0, 1), repeat=len(links)):
        absent = 1 - leak
        for p, s in zip(links, states, strict=True):
            absent *= 1 - p if s == present else 1
        assert abs(cpt[(*states, present)] - (1 - absent)) < 1e-12
        assert abs(cpt[states].sum() - 1) < 1e-12


@given(st.data())
def test_noisy_max_by_definition(data: st.DataObject) -> None:
    """The strongest of independent effects: the sum over all combinations of effects."""
    k = data.draw(st.integers(2, 4))
    cards = data.draw(st.lists(st.integers(1, 3), max_size=3))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    effects = [rng.dirichlet(np.ones(k), card) for card in cards]
    leak = rng.dirichlet(np.ones(k))
    strongest = data.draw(st.sampled_from(["first", "last"]))
    cpt = NoisyMax(effects, leak, strongest=strongest).cpt
    for states in itertools.product(*map(range, cards)):
        wanted = np.zeros(k)
        rows = [leak, *(e[s] for e, s in zip(effects, states, strict=True))]
        for levels in itertools.product(range(k), repeat=len(rows)):
            best = min(levels) if strongest == "first" else max(levels)
            wanted[best] += np.prod([row[level] for row, level in zip(rows, levels, strict=True)])
        assert np.abs(cpt[states] - wanted).max() < 1e-12


def fever(**changes: Any) -> BayesianNetwork:
    flu, drug = [[0.0, 0.0, 1.0], [0.5, 0.3, 0.2]], [[0.2, 0.4, 0.4], [0.0, 0.0, 1.0], [0.1, 0.1, 0.8]]
    noisy = NoisyMax([flu, drug], [0.01, 0.04, 0.95])
    given: dict[str, Any] = {
        "states": {"flu": ["no", "yes"], "drug": "abc", "fever": ["high", "mild", "none"]},
        "parents": {"fever": ["flu", "drug"]},
        "cpts": {**CPTS, "fever": noisy},
        "attributes": {"potential": {"fever": noisy.attributes}},
    }
    return BayesianNetwork(**(given | changes))


@pytest.mark.parametrize("suffix", WAYS)
def test_networks_keep_their_numbers_in_files(suffix: str) -> None:
    dumps, parse, mark = WAYS[suffix]
    net = fever()
    assert net.attributes["potential"]["fever"]["noisy_strengths"] == (1, 0, 0, 2, 1)  # the last one has no effect
    text = dumps(net)
    assert mark in text
    again = parse(text)
    assert again == net
    assert again.attributes["potential"] == net.attributes["potential"]
    assert dumps(again) == text
    other, back, _ = WAYS["dsl" if suffix == "xdsl" else "xdsl"]
    assert back(other(again)) == net
    changed = again.replace(cpt={"fever": np.full((2, 3, 3), 1 / 3)})
    assert mark not in dumps(changed)
    assert parse(dumps(changed)) == changed
    for wrong in ({"noisy_max": (0.5,)}, {"noisy_strengths": (0, 0, 0, 1, 2)}, {"noisy_max": "text"}):
        kept = {**net.attributes["potential"]["fever"], **wrong}
        given = fever(attributes={"potential": {"fever": kept}})
        assert dumps(given) == text
        table = fever(attributes={"potential": {"fever": kept}}, cpts={**CPTS, "fever": np.asarray(net.cpt("fever"))})
        assert mark not in dumps(table)


@pytest.mark.parametrize(("name", "mark"), [("xdsl_canonical.xdsl", "<noisymax"), ("dsl_old.dsl", "NOISY_MAX")])
def test_files_keep_their_numbers(name: str, mark: str, tmp_path: Path) -> None:
    net = jtgpu.read(DATA / name)
    for suffix, (_, _, written) in WAYS.items():
        jtgpu.write(net, tmp_path / f"a.{suffix}")
        assert written in (tmp_path / f"a.{suffix}").read_text()
        assert jtgpu.read(tmp_path / f"a.{suffix}") == net
    jtgpu.write(net, tmp_path / "a.net")  # where they are attributes
    jtgpu.write(jtgpu.read(tmp_path / "a.net"), tmp_path / "b.xdsl")
    assert "<noisymax" in (tmp_path / "b.xdsl").read_text()


def test_wrong_numbers() -> None:
    words: list[Any] = [[[0.5, "a"]]]
    wrong: list[tuple[Callable[[], NoisyMax], str]] = [
        (lambda: NoisyOr([0.5, 1.5]), "link 1 is 1.5, which is not a probability"),
        (lambda: NoisyOr([0.5], -1), "leak is -1, which is not a probability"),
        (lambda: NoisyOr([0.5], present=2), "present must be the name of a state, or its number, 0 or 1, not 2"),
        (lambda: NoisyMax([[[0.5, 0.6]]]), r"parent 0 has a row that is no distribution: \[0.5, 0.6\]"),
        (lambda: NoisyMax([[[0.5, 0.5]], [[1.0]]]), "parent 1 has rows of 1 numbers, the leak has 2"),
        (lambda: NoisyMax([[[0.5, 0.5]]], [0.5, np.nan]), "the leak has a row that is no distribution"),
        (lambda: NoisyMax([[0.5, 0.5]]), r"parent 0 must be an array with a row for each state, not of shape \(2,\)"),
        (lambda: NoisyMax(words), "parent 0 must be rows of equally many numbers"),
        (lambda: NoisyMax([], strongest="middle"), "strongest must be 'first' or 'last'"),
    ]
    for make, message in wrong:
        with pytest.raises(NetworkError, match=message):
            make()
    with pytest.raises(TableTooLarge, match="would have 1,073,741,824 numbers"):
        np.asarray(NoisyOr([0.5] * 29, present=0))
    assert repr(NoisyOr([0.5])) == "NoisyOr([0.5], leak=0, present=by name)"
    assert np.asarray(NoisyOr([0.5], present=0), np.float32).dtype == np.float32


@pytest.mark.parametrize(
    ("states", "present"),
    [
        (["no", "yes"], None), (["yes", "no"], None), (["False", "True"], None), (["absent", "present"], None),
        (["0", "1"], None), (["negative", "positive"], None), (["cool", "hot"], "hot"), (["hot", "cool"], "hot"),
    ],
)  # fmt: skip
def test_which_state_stands_for_presence(states: list[str], present: str | None) -> None:
    """The first state was taken for presence, also where it is "no"."""
    noisy = NoisyOr([0.8, 0.3], leak=0.05, present=present)
    net = BayesianNetwork(
        {"flu": states, "cold": states, "fever": states}, {"fever": ["flu", "cold"]},
        {"flu": [0.5, 0.5], "cold": [0.5, 0.5], "fever": noisy},
    )  # fmt: skip
    on = next(s for s in states if s in ("yes", "True", "present", "1", "positive", "hot"))
    off = next(s for s in states if s != on)
    fever = net.cpt("fever").to_dict()
    assert fever[off, off][on] == pytest.approx(0.05)
    assert fever[on, off][on] == pytest.approx(1 - 0.95 * 0.2)
    assert fever[on, on][on] == pytest.approx(1 - 0.95 * 0.2 * 0.7)


def test_presence_that_nobody_says() -> None:
    for states, said, message in (
        (["cool", "hot"], None, "say which, present='...'"),
        (["cool", "hot"], "warm", "there is no state 'warm'"),
        (["no", "yes", "maybe"], None, "use NoisyMax"),
    ):
        with pytest.raises(NetworkError, match=message):
            BayesianNetwork(
                {"a": states, "b": states}, {"b": ["a"]},
                {"a": [1 / len(states)] * len(states), "b": NoisyOr([0.5], present=said)},
            )  # fmt: skip
    for use in (np.asarray, lambda noisy: noisy.cpt):
        with pytest.raises(NetworkError, match="does not know yet which states stand for presence"):
            use(NoisyOr([0.5]))
    assert repr(pickle.loads(pickle.dumps(NoisyOr([0.5])))) == repr(NoisyOr([0.5]))
    with pytest.raises(ArgumentError, match="links must be a probability for each parent"):
        NoisyOr(["flu"])  # type: ignore[list-item]


@pytest.mark.parametrize("suffix", WAYS)
def test_files_keep_strengths_of_any_number_of_causes(suffix: str) -> None:
    """Also where the first state is that of no effect, which is the last one in these formats."""
    dumps, parse, mark = WAYS[suffix]
    rng = np.random.default_rng(0)
    names = [f"d{i}" for i in range(100)]
    parents = {"f": names, "g": [*names[:50], "f"], "h": ["f", "g"]}
    effects: dict[str, Any] = {v: np.vstack([[1, 0, 0], rng.dirichlet(np.ones(3))]) for v in names[:50]}
    effects["f"] = np.vstack([[1, 0, 0], rng.dirichlet(np.ones(3))])
    net = BayesianNetwork(
        {**{v: ["no", "yes"] for v in names}, "f": ["no", "yes"], "g": [*"abc"], "h": ["on", "off"]}, parents,
        {**{v: [1 - p, p] for v, p in zip(names, rng.random(100), strict=True)},
         "f": NoisyOr(dict(zip(names, rng.random(100).tolist(), strict=True)), 0.1),
         "g": NoisyMax(effects, rng.dirichlet(np.ones(3)), strongest="last"), "h": rng.dirichlet(np.ones(2), (2, 3))},
    )  # fmt: skip
    text = dumps(net)
    again = parse(text)
    assert again == net
    assert [*again.noisy] == ["f", "g"]
    for v in again.noisy:
        assert all(np.array_equal(a, b) for a, b in zip(again.noisy[v].effects, net.noisy[v].effects, strict=True))
        assert again.noisy[v].leak_row.tolist() == net.noisy[v].leak_row.tolist()
    assert text.count(mark) == 2
    assert dumps(again) == text
    assert again.attributes["potential"] == {}
    turned = net.replace(cpt={"f": NoisyOr(dict.fromkeys(names, 0.5), present="no")})
    assert parse(dumps(turned)) == turned
    other = carry(net, next(f for f in FORMATS if f.name == {"xdsl": "DSL", "dsl": "XDSL"}[suffix]))
    assert WAYS[{"xdsl": "dsl", "dsl": "xdsl"}[suffix]][1](other.text) == net
    assert other.losses == ()


def test_changes_keep_strengths() -> None:
    """Of a child with three parents as of its table, and of one whose table would be too large."""
    rng = np.random.default_rng(0)
    effects = {p: np.vstack([[1, 0, 0], rng.dirichlet(np.ones(3), 2)]) for p in "xyz"}
    net = BayesianNetwork(
        {v: [*"abc"] for v in "xyze"}, {"y": ["x"], "e": ["x", "y", "z"]},
        {"x": rng.dirichlet(np.ones(3)), "y": rng.dirichlet(np.ones(3), 3), "z": rng.dirichlet(np.ones(3)),
         "e": NoisyMax(effects, [0.7, 0.2, 0.1], strongest="last")},
    )  # fmt: skip
    table = net.expand()
    changes: list[Callable[[BayesianNetwork], BayesianNetwork]] = [
        lambda n: n.remove("z"), lambda n: n.remove_arc("y", "e"), lambda n: n.remove_arc("y", "e", weights="uniform"),
        lambda n: n.replace(parents={"e": ["z", "x", "y"]}), lambda n: n.prune("e", {"x": "b", "z": "c"}),
        lambda n: n.prune("x", {"e": "c"}), lambda n: n.merge_states("z", ["a", "c"], "ac"),
        lambda n: n.add("w", ["0", "1"]).add_arc("w", "e"),
    ]  # fmt: skip
    for change in changes:
        one, two = change(net), change(table)
        assert [*one.noisy] == ["e"]
        assert not two.noisy
        assert one.parents("e") == two.parents("e")
        assert np.abs(np.asarray(one.cpt("e")) - np.asarray(two.cpt("e"))).max() < 1e-15
    names = [f"d{i}" for i in range(100)]
    large = BayesianNetwork(
        {v: ["no", "yes"] for v in [*names, "f"]}, {"f": names},
        {**{v: [0.9, 0.1] for v in names}, "f": NoisyOr(dict.fromkeys(names, 0.25), 0.1)},
    )  # fmt: skip
    assert large.remove("d3").noisy["f"].leak_row[1] == pytest.approx(1 - 0.9 * 0.975)
    assert large.replace(parents={"f": names[::-1]}).parents("f")[0] == "d99"
    assert large.add_state("d3", "perhaps").noisy["f"].effects[3][2].tolist() == [0.5, 0.5]
    left = large.prune("f", dict.fromkeys(names[1:], "yes"))
    assert left.cpt("f")[0, 0] == pytest.approx(0.9 * 0.75**99)


def test_and_and_min_are_reversed() -> None:
    """By De Morgan's rule; compound parameters contain the leak."""
    states = {v: ["no", "yes"] for v in ("a", "b", "c")}
    priors = {"a": [0.5, 0.5], "b": [0.5, 0.5]}
    net = BayesianNetwork(states, {"c": ["a", "b"]}, {**priors, "c": NoisyAnd({"b": 0.5, "a": 0.8}, 0.1)})
    assert net.cpt("c")[..., 1].round(12).tolist() == [[0.09, 0.18], [0.45, 0.9]]
    gate = net.replace(cpt={"c": NoisyAnd([1, 1])})
    assert gate.cpt("c")[..., 1].tolist() == [[0, 0], [0, 1]]
    assert repr(NoisyAnd([1])) == "NoisyAnd([1.0], leak=0, present=by name)"
    rows = [[[0.2, 0.3, 0.5], [0.0, 0.0, 1.0]], [[0.1, 0.8, 0.1], [0.5, 0.25, 0.25]]]
    for end in ("first", "last"):
        made = NoisyMin(rows, [0.3, 0.3, 0.4], strongest=end).cpt
        step = 1 if end == "first" else -1  # the state of a larger number is the weaker one, or the other way round
        for i, j in itertools.product(range(2), repeat=2):
            expected = np.zeros(3)
            for own in itertools.product(range(3), repeat=3):
                p = rows[0][i][own[0]] * rows[1][j][own[1]] * [0.3, 0.3, 0.4][own[2]]
                expected[max(own) if step > 0 else min(own)] += p
            assert np.abs(made[i, j] - expected).max() < 1e-15
    henrion = NoisyOr.from_compound({"a": 0.82, "b": 0.55}, leak=0.1)
    assert henrion.parents == ("a", "b")
    assert np.abs(np.array(henrion.links) - [0.8, 0.5]).max() < 1e-15
    assert net.replace(cpt={"c": henrion}).cpt("c")[1, 0, 1] == pytest.approx(0.82)
    for p, leak in ((0.05, 0.1), (1.0, 1.0)):
        with pytest.raises(NetworkError, match="the compound probability of 0 is"):
            NoisyOr.from_compound([p], leak)


@given(seed=st.integers(0, 2**32 - 1))
def test_small_strengths_keep_their_digits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cards, k = rng.integers(1, 4, rng.integers(0, 4)).tolist(), int(rng.integers(1, 5))
    rows = 10.0 ** rng.uniform(-60, 0, (sum(cards) + 1, k)) * (rng.random((sum(cards) + 1, k)) < 0.8)
    rows[:, -1] += rows.sum(axis=1) == 0
    rows /= rows.sum(axis=1, keepdims=True)
    effects = np.split(rows[:-1], np.cumsum(cards)[:-1]) if cards else []
    table = jtgpu.NoisyMax(effects, rows[-1]).cpt
    exact = [[Fraction(x) / sum(map(Fraction, row)) for x in row] for row in rows.tolist()]
    first = np.cumsum([0, *cards])
    for states in itertools.product(*map(range, cards)):
        acting = [*(exact[first[i] + s] for i, s in enumerate(states)), exact[-1]]
        weaker = [math.prod(sum(row[j:]) for row in acting) for j in range(k + 1)]
        for j in range(k):
            assert float(table[(*states, j)]) == pytest.approx(float(weaker[j] - weaker[j + 1]), rel=1e-12, abs=0)


@pytest.mark.parametrize("suffix", ["xdsl", "dsl", "net"])
def test_a_strength_of_1e_17_is_not_none(suffix: str, tmp_path: Path) -> None:
    strengths = jtgpu.NoisyMax([[[0.0, 1.0], [1e-17, 1.0]], [[0.3, 0.7], [0.0, 1.0]]])
    states = {"a": ["x", "y"], "b": ["x", "y"], "c": ["y", "n"]}
    net = jtgpu.BayesianNetwork(states, {"c": ["a", "b"]}, {"a": [0.5, 0.5], "b": [0.5, 0.5], "c": strengths})
    jtgpu.write(net, tmp_path / f"n.{suffix}")
    for each in (net, jtgpu.read(tmp_path / f"n.{suffix}", kind=jtgpu.BayesianNetwork)):
        tree = each.compile("reference")
        assert tree.posterior("a", {"b": "y", "c": "y"})["y"] == 1.0
        assert tree.log_evidence({"b": "y", "c": "y"}) == pytest.approx(math.log(0.25e-17))
