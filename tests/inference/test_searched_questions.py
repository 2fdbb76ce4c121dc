"""Questions whose tables would be too large: the search over states has the answers of the whole tree."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from jtgpu import BayesianNetwork, ImpossibleEvidence, JunctionTree, TableTooLarge
from jtgpu.inference.planning import question_plan
from jtgpu.plans.search_records import SearchTrace
from tests.inference.test_questions import compare, same, zeros
from tests.support.examples import some


def by_search(net: Any, backend: Any = "cpu", **limits: Any) -> JunctionTree:
    """A tree none of whose questions fits."""
    return question_plan(net, TableTooLarge("as if too large"), **{"max_table": 1} | limits).compile(backend)


@pytest.mark.parametrize("seed", some(300, 6))
def test_every_answer_is_that_of_the_whole_tree(seed: int) -> None:
    net = zeros(seed)
    with net.compile("reference") as whole, by_search(net) as tree:
        for i in range(3):
            compare(net, whole, tree, 1000 * seed + i, ranked=False)


def test_tables_of_cases_threads_and_other_numbers() -> None:
    net = zeros(3, 12)
    with net.compile("cpu") as whole, by_search(net) as tree:
        cases = whole.sample(30, seed=1).states
        cases[:, 4:] = -1
        one, other = (t.posteriors_batch(cases) for t in (whole, tree))
        np.testing.assert_allclose(one.log_evidence, other.log_evidence, atol=1e-12)
        for v in net.variables:
            same(one[v], other[v])
        alone = tree.posteriors({v: net.states(v)[s] for v, s in zip(net.variables[:4], cases[7], strict=False)})
        assert alone.log_evidence == other.log_evidence[7]
        v = next(v for v in net.variables if len(net.states(v)) > 1 and not net.parents(v))
        n = len(net.states(v))
        tree.reload(net.replace(cpt={v: np.full(n, 1 / n)}))
        same(tree.posterior(v), np.full(n, 1 / n))


def test_a_refused_search_keeps_no_memory() -> None:
    """The error that is cached had a traceback, and with it the trace."""
    net, answers = mastermind(8)
    gc.collect()
    before = sum(type(x) is SearchTrace for x in gc.get_objects())
    with by_search(net, memory_limit=1000) as tree:
        for _ in range(3):
            with pytest.raises(TableTooLarge, match="given up after 500 B of memory"):
                tree.mpe(answers)
        gc.collect()
        assert sum(type(x) is SearchTrace for x in gc.get_objects()) == before


def test_what_needs_tables_is_refused() -> None:
    with by_search(zeros(3)) as tree:
        with pytest.raises(TableTooLarge, match="more than one best configuration"):
            tree.mpe(k=2)
        with pytest.raises(TableTooLarge, match="question is too large"):
            tree.expected_counts([{}])


def mastermind(guesses: int, colours: int = 6, pegs: int = 6, seed: int = 0) -> tuple[BayesianNetwork, dict[str, str]]:
    """A hidden code, guesses, and how many pegs of each are right, counted by a chain of adders; and the answers."""
    rng = np.random.default_rng(seed)
    states: dict[str, Any] = {f"p{i}": [str(c) for c in range(colours)] for i in range(pegs)}
    parents: dict[str, list[str]] = {v: [] for v in states}
    cpts: dict[str, Any] = {v: np.full(colours, 1 / colours) for v in states}
    code, answers = rng.integers(colours, size=pegs), {}
    for g in range(guesses):
        guess = rng.integers(colours, size=pegs)
        for i in range(pegs):
            states[f"n{g}_{i}"] = [str(k) for k in range(i + 2)]
            before = [f"n{g}_{i - 1}"] if i else []
            parents[f"n{g}_{i}"] = [*before, f"p{i}"]
            table = np.zeros((i + 1, colours, i + 2))
            for n in range(i + 1):
                for c in range(colours):
                    table[n, c, n + (c == guess[i])] = 1.0
            cpts[f"n{g}_{i}"] = table if i else table[0]
        answers[f"n{g}_{pegs - 1}"] = str(int((guess == code).sum()))
    return BayesianNetwork(states, parents, cpts, name="mastermind"), answers


def test_a_game_of_mastermind() -> None:
    """All codes that agree with the answers are equally probable."""
    net, answers = mastermind(8)
    codes = np.indices((6,) * 6).reshape(6, -1)
    rng = np.random.default_rng(0)
    rng.integers(6, size=6)
    fits = np.ones(codes.shape[1], np.bool_)
    for n in answers.values():
        fits &= (codes == rng.integers(6, size=6)[:, None]).sum(axis=0) == int(n)
    with by_search(net, max_table=1000) as tree:
        post = tree.posteriors(answers)
        assert post.log_evidence == pytest.approx(np.log(fits.sum()) - 6 * np.log(6), abs=1e-10)
        for i in range(6):
            exact = np.bincount(codes[i, fits], minlength=6) / fits.sum()
            np.testing.assert_allclose(post[f"p{i}"], exact, atol=1e-12)
        best = tree.mpe(answers)
        assert fits[np.ravel_multi_index([int(best[f"p{i}"]) for i in range(6)], (6,) * 6)]
        cost = tree.question_cost(answers)
        assert cost.left > 6
        assert 0 < cost.bytes < 1e8


def blocks(n: int, steps: int, seed: int = 0) -> BayesianNetwork:
    """Robots on a ring; each may go on if the next place was free: positions step by step, and who is seen where."""
    rng = np.random.default_rng(seed)
    states: dict[str, list[str]] = {}
    parents: dict[str, list[str]] = {}
    cpts: dict[str, Any] = {}
    for t in range(steps):
        for i in range(n):
            name = f"x{i}_{t}"
            states[name] = ["free", "taken"]
            if not t:
                parents[name], cpts[name] = [], [0.5, 0.5]
                continue
            parents[name] = [f"x{(i - 1) % n}_{t - 1}", f"x{i}_{t - 1}", f"x{(i + 1) % n}_{t - 1}"]
            table = np.zeros((2, 2, 2, 2))
            for a, b, c in np.ndindex(2, 2, 2):  # the rule of traffic (184)
                table[a, b, c, int(a if not b else c)] = 1.0
            cpts[name] = table
        for i in range(n):
            states[f"y{i}_{t}"], parents[f"y{i}_{t}"] = ["no", "yes"], [f"x{i}_{t}"]
            cpts[f"y{i}_{t}"] = [[1.0, 0.0], [0.0, 1.0]] if rng.random() < 0.2 else [[0.9, 0.1], [0.2, 0.8]]
    return BayesianNetwork(states, parents, cpts, name="blocks")


def test_a_ring_of_places() -> None:
    net = blocks(7, 6)
    with net.compile("cpu", whole=True) as whole, by_search(net) as tree:
        case = {v: net.states(v)[s] for v, s in zip(net.variables, whole.sample(1, seed=2).states[0], strict=True)}
        seen = {v: s for v, s in case.items() if v[0] == "y" and v.endswith(("_5", "_3"))}
        one, other = whole.posteriors(seen), tree.posteriors(seen)
        np.testing.assert_allclose(one.log_evidence, other.log_evidence, atol=1e-12)
        for v in net.variables:
            np.testing.assert_allclose(one[v], other[v], atol=1e-12)


def test_impossible_evidence_is_named() -> None:
    net, answers = mastermind(8)
    with by_search(net, max_table=1000) as tree, pytest.raises(ImpossibleEvidence, match="n0_5"):
        tree.posteriors(answers | {"p0": "0", "p1": "0", "n0_5": "6"})
