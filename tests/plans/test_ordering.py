"""Elimination orders: costs, safe reductions against exhaustive search, the search's promises, files, the cache."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from jtgpu.errors import OrderError, ParseError
from jtgpu.model.markov import MarkovNetwork
from jtgpu.plans.compiler import least_clique_bits
from jtgpu.plans.ordering import METHODS, as_order, find_order, order_cost, read_num, read_td, write_num, write_td
from jtgpu.plans.ordering import files as store
from jtgpu.plans.ordering.anneal import RULES, forest_of_order, greedy_order, order_of_forest
from jtgpu.plans.ordering.elimination import atom_cost, fill_masks, perfect_order, remove_needless_fill
from jtgpu.plans.ordering.incumbents import join_orders
from jtgpu.plans.ordering.reduce import atoms, reduce_graph
from jtgpu.plans.ordering.tree_decomposition import best_order
from tests.support.examples import slow, some

Graph = list[set[int]]

# From the report of 2014: the network, the total of its clique tables by its .num order, and the number of cliques.
PUBLISHED = {
    "Mildew": (3_400_464, 1_249_280, 29),
    "Diabetes": (9_825_960, 84_480, 337),
    "Barley": (17_140_796, 7_257_600, 36),
    "Munin4": (8_860_074, 448_000, 877),
    "Water": (3_028_305, 589_824, 21),
    "Munin1": (83_735_758, 38_400_000, 162),
    "Link": (23_983_962, 2_097_152, 586),
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JTGPU_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "orders"


def random_graph(seed: int, n: int, share: float, least: int = 2) -> tuple[list[int], Graph]:
    chance = random.Random(seed)
    around: Graph = [set() for _ in range(n)]
    for v, u in itertools.combinations(range(n), 2):
        if chance.random() < share:
            around[v].add(u)
            around[u].add(v)
    return [chance.choice([least, 2, 3, 5]) for _ in range(n)], around


def random_cases() -> Iterator[tuple[int, list[int], Graph]]:
    for seed in range(60):
        yield (seed, *random_graph(seed, 3 + seed % 5, 0.2 + 0.1 * (seed % 6)))


def grid(side: int) -> tuple[list[int], Graph]:
    around: Graph = [set() for _ in range(side * side)]
    for r, c in itertools.product(range(side), repeat=2):
        for r2, c2 in ((r + 1, c), (r, c + 1)):
            if max(r2, c2) < side:
                around[r * side + c].add(r2 * side + c2)
                around[r2 * side + c2].add(r * side + c)
    return [2 + v % 3 for v in range(side * side)], around


def cliques_by_hand(cards: list[int], around: Graph, order: list[int]) -> list[int]:
    """Sizes of the maximal cliques, by the definition."""
    adjacent = [set(s) for s in around]
    found = []
    for v in order:
        found.append({v} | adjacent[v])
        for u in adjacent[v]:
            adjacent[u] |= adjacent[v] - {u}
            adjacent[u].discard(v)
    maximal = [c for i, c in enumerate(found) if not any(c < d or (c == d and j < i) for j, d in enumerate(found))]
    return [math.prod(cards[v] for v in c) for c in maximal]


# Costs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", some(30))
def test_order_cost_is_that_of_the_maximal_cliques(seed: int) -> None:
    cards, around = random_graph(seed, 9, 0.3, least=1)
    order = random.Random(seed).sample(range(9), 9)
    sizes = cliques_by_hand(cards, around, order)
    cost = order_cost(cards, around, order)
    assert (cost.entries, cost.largest, cost.n_cliques) == (sum(sizes), max(sizes), len(sizes))
    assert cost.cost == cost.entries
    assert order_cost(cards, around, order, "largest").cost == max(sizes)
    assert order_cost(cards, around, order, "time").cost > sum(sizes)


@pytest.mark.slow
def test_order_cost_does_not_overflow() -> None:
    n = 2000
    everyone = [set(range(n)) - {v} for v in range(n)]
    cost = order_cost([3] * n, everyone, range(n))
    assert cost.entries == 3**n
    assert cost.cost == math.inf
    assert (cost.n_cliques, cost.levels, cost.width) == (1, 1, n - 1)


def test_levels_of_a_chain_are_counted_from_its_centre() -> None:
    n = 9
    chain = [{u for u in (v - 1, v + 1) if 0 <= u < n} for v in range(n)]
    cost = order_cost([2] * n, chain, range(n))
    assert (cost.n_cliques, cost.levels) == (8, 5)


def test_empty_graph() -> None:
    assert order_cost([], [], []) == (0.0, 0, 0, 0, -1, 0)
    assert find_order([], []).order.shape == (0,)


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 1], [0, 1, 3], [0, 1, 2, 2]])
def test_order_cost_rejects_other_sequences_than_permutations(order: list[int]) -> None:
    with pytest.raises(OrderError, match="permutation"):
        order_cost([2, 2, 2], [[], [], []], order)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_orders_give_the_published_tables(name: str, shared_nets: Path) -> None:
    from jtgpu.formats import read

    folder = shared_nets / "RetiEsempio"
    net = read(folder / f"{name}.net")
    cost = order_cost(net.cardinality, moral_graph(net), read_num(folder / f"{name}.num", net))
    assert (cost.entries, cost.largest, cost.n_cliques) == PUBLISHED[name]


def moral_graph(net: object) -> Graph:
    around: Graph = [set() for _ in net.variables]  # type: ignore[attr-defined]
    for scope, _ in net.factors:  # type: ignore[attr-defined]
        for v in scope:
            around[v] |= set(scope) - {v}
    return around


CASES = list(random_cases())

# Reductions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "cards", "around"), CASES[:12] + slow(*CASES[12:]))
@pytest.mark.parametrize("largest", [False, True])
def test_reductions_lose_nothing(seed: int, cards: list[int], around: Graph, largest: bool) -> None:
    """The best order of the pieces, joined, is as good as the best of all orders."""
    n = len(cards)
    pick = 1 if largest else 0

    def cost(order: tuple[int, ...]) -> int:
        found = order_cost(cards, around, order)
        return found.largest if largest else found.entries

    best = min(map(cost, itertools.permutations(range(n))))
    reduction = reduce_graph(cards, around, largest=largest)
    pieces = []
    for atom in reduction.atoms:
        tried = [(atom_cost(atom, o)[pick], o) for o in itertools.permutations(range(len(atom.card)))]
        pieces.append(min(tried)[1])
    order = join_orders(around, reduction, pieces)
    assert sorted(order) == list(range(n))
    assert cost(tuple(order)) == best


def test_almost_simplicial_is_not_safe_for_the_total() -> None:
    cards, around = [3, 100, 2, 2], [{1, 3}, {0, 2}, {1, 3}, {0, 2}]  # v, a, b, u
    assert order_cost(cards, around, [0, 1, 2, 3]).entries == 1000
    assert order_cost(cards, around, [1, 0, 2, 3]).entries == 612
    assert find_order(cards, around, "best", n_steps=1000, cache=False).entries == 612


def test_chordal_graphs_are_solved_outright() -> None:
    cards, around = random_graph(4, 12, 0.3)
    order = list(range(12))
    masks = [sum(1 << u for u in s) for s in around]
    filled: Graph = [set() for _ in order]
    for v, mask in enumerate(fill_masks(masks, order)):
        for u in range(12):
            if mask >> u & 1:
                filled[v].add(u)
                filled[u].add(v)
    assert reduce_graph(cards, filled).atoms == []
    result = find_order(cards, filled)
    assert result.optimal
    assert result.lower_bound == result.cost == order_cost(cards, filled, order).entries
    assert order_cost(cards, filled, perfect_order(filled, order)).entries == result.entries


def test_atoms_of_two_cycles_that_share_an_edge() -> None:
    edges = [(0, 1), (1, 2), (2, 3), (3, 0), (2, 4), (4, 5), (5, 3)]
    masks = [0] * 6
    for v, u in edges:
        masks[v] |= 1 << u
        masks[u] |= 1 << v
    assert sorted(atoms(masks)) == [[0, 1, 2, 3], [2, 3, 4, 5]]


@pytest.mark.parametrize("seed", some(30))
def test_needless_fill_is_removed_and_the_cost_falls(seed: int) -> None:
    cards, around = random_graph(seed, 12, 0.25)
    masks = [sum(1 << u for u in s) for s in around]
    order = random.Random(seed).sample(range(12), 12)
    cleaned = remove_needless_fill(masks, order)
    assert sorted(cleaned) == list(range(12))
    assert order_cost(cards, around, cleaned).entries <= order_cost(cards, around, order).entries
    assert remove_needless_fill(masks, cleaned) == cleaned  # nothing is left to remove


@pytest.mark.parametrize("seed", range(10))
def test_a_forest_and_its_order_are_one(seed: int) -> None:
    cards, around = random_graph(seed, 15, 0.25)
    masks = [sum(1 << u for u in s) for s in around]
    order = random.Random(seed).sample(range(15), 15)
    parent = forest_of_order(masks, order)
    again = order_of_forest(parent.tolist())
    assert order_cost(cards, around, again) == order_cost(cards, around, order)
    assert np.array_equal(forest_of_order(masks, again), parent)


# The search ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", some(12))
def test_best_finds_the_optimum_of_small_graphs(seed: int) -> None:
    cards, around = random_graph(100 + seed, 7, 0.45)
    best = min(order_cost(cards, around, o).entries for o in itertools.permutations(range(7)))
    assert find_order(cards, around, "best", n_steps=20_000, cache=False).entries == best


@pytest.mark.parametrize("seed", some(20))
def test_exact_search_agrees_with_all_orders(seed: int) -> None:
    cards, around = random_graph(200 + seed, 7, 0.5)
    for atom in reduce_graph(cards, around).atoms:
        totals = [atom_cost(atom, o)[0] for o in itertools.permutations(range(len(atom.card)))]
        order, proven = best_order(atom, max(totals) + 1, 10_000)
        assert proven
        assert order is not None
        assert atom_cost(atom, order)[0] == min(totals)
        assert best_order(atom, min(totals), 10_000) == (None, True)
        assert best_order(atom, max(totals) + 1, 0) == (None, False)
    result = find_order(cards, around, "best", n_steps=2_000, cache=False)
    assert result.optimal
    assert result.lower_bound == min(order_cost(cards, around, o).entries for o in itertools.permutations(range(7)))


@pytest.mark.parametrize("method", [m for m in METHODS if m != "saved"])
@pytest.mark.parametrize("objective", ["entries", "largest", "time"])
def test_orders_are_permutations_with_the_reported_cost(method: str, objective: str) -> None:
    cards, around = random_graph(7, 30, 0.12, least=1)
    limits = {"n_steps": 20_000} if method == "best" else {}
    result = find_order(cards, around, method, objective=objective, cache=False, **limits)  # type: ignore[arg-type]
    assert sorted(result.order.tolist()) == list(range(30))
    assert not result.order.flags.writeable
    cost = order_cost(cards, around, result.order, objective)
    assert (result.cost, result.entries, result.largest) == (cost.cost, cost.entries, cost.largest)
    assert result.lower_bound <= result.cost
    assert result.trace[-1].cost == result.cost


def test_the_order_depends_on_seed_and_steps_not_on_workers() -> None:
    cards, around = grid(7)
    found = [
        find_order(cards, around, "best", n_steps=300_000, seed=3, workers=w, cache=False) for w in (1, 2, 3, 1)
    ]
    assert all(np.array_equal(found[0].order, f.order) for f in found)
    assert {f.n_steps for f in found} == {300_000}
    other = find_order(cards, around, "best", n_steps=300_000, seed=4, workers=2, cache=False)
    assert other.seed == 4
    autos = [find_order(cards, around, seed=1, workers=w, cache=False) for w in (1, 2)]
    assert np.array_equal(autos[0].order, autos[1].order)


def test_more_steps_are_never_worse_and_no_steps_give_the_portfolio() -> None:
    cards, around = grid(8)
    costs = [
        find_order(cards, around, "best", n_steps=n, cache=False).entries for n in (0, 1_000, 500_000, 2_500_000)
    ]
    assert costs[1] <= costs[0]
    assert costs[2] <= costs[0]
    assert costs[3] <= costs[2]  # whole rounds of the shorter search are rounds of the longer one
    rules = [find_order(cards, around, m).entries for m in RULES]
    assert costs[0] <= min(rules)
    assert find_order(cards, around, cache=False).entries <= min(rules)


def test_the_objective_largest_reduces_the_largest_table() -> None:
    cards, around = grid(7)
    most = find_order(cards, around, "best", n_steps=400_000, objective="largest", cache=False)
    total = find_order(cards, around, "best", n_steps=400_000, cache=False)
    assert most.largest <= total.largest
    assert most.cost == most.largest


def test_time_limit_ends_the_search_by_the_clock() -> None:
    """A clock that jumps by half the limit at every look: the search ends after a few looks."""
    cards, around = grid(6)
    ticks = itertools.count()
    looks: list[float] = []

    def clock() -> float:
        looks.append(next(ticks) * 0.5)
        return looks[-1]

    result = find_order(cards, around, "best", time_limit=40.0, cache=False, clock=clock)
    assert sorted(result.order.tolist()) == list(range(36))
    # what follows the limit looks at the clock a few times, half a second each
    assert result.seconds <= 1.2 * 40.0 + 30


def test_progress_is_reported_and_ctrl_c_returns_the_best() -> None:
    cards, around = grid(8)
    reports: list[tuple[float, float, float]] = []

    def progress(cost: float, elapsed: float, fraction: float) -> None:
        reports.append((cost, elapsed, fraction))
        if len(reports) == 3:
            raise KeyboardInterrupt

    result = find_order(cards, around, "best", n_steps=10**9, progress=progress, cache=False)
    assert result.interrupted
    assert sorted(result.order.tolist()) == list(range(64))
    assert all(0 <= f <= 1 for _, _, f in reports)
    assert result.entries <= find_order(cards, around, "min-fill").entries


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"method": "magic"}, "method"),
        ({"objective": "beauty"}, "objective"),
        ({"method": "best", "time_limit": 0}, "time_limit"),
        ({"method": "best", "time_limit": math.nan}, "time_limit"),
        ({"method": "best", "n_steps": -1}, "n_steps"),
        ({"workers": 0}, "workers"),
    ],
)
def test_options_are_checked(options: dict[str, object], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        find_order([2], [[]], **options)  # type: ignore[arg-type]


def test_greedy_rules_do_what_their_names_say() -> None:
    # a wheel's spokes: the hub has most neighbours, the rim vertices fill one edge each
    rim = [1, 2, 3, 4]
    masks = [sum(1 << v for v in rim)] + [1 | 1 << rim[i - 1] | 1 << rim[(i + 1) % 4] for i in range(4)]
    cards = [2, 2, 9, 2, 9]
    for rule in RULES.values():
        order = greedy_order(masks, [math.log(c) for c in cards], cards, rule)
        assert sorted(order) == list(range(5))
        assert order[0] != 0
    # eliminating a vertex of 2 states joins the two of 9, or the other way round
    heavy = greedy_order(masks, [math.log(c) for c in cards], cards, RULES["weighted-min-fill"])
    assert heavy[0] in (2, 4)


# Given orders ----------------------------------------------------------------------------------------------------


@pytest.fixture
def model() -> MarkovNetwork:
    states = {name: ["0", "1"] for name in ("a", "bøg", "c", "d")}
    pairs = [("a", "bøg"), ("bøg", "c"), ("c", "d"), ("d", "a")]
    return MarkovNetwork(states, [(p, np.ones((2, 2))) for p in pairs])


def test_as_order_takes_names_and_numbers(model: MarkovNetwork) -> None:
    assert as_order(model, ["d", 0, "c", 1]).tolist() == [3, 0, 2, 1]
    for order, words in (
        (["a", "bøg", "c"], "'d'.*missing"),
        (["a", "a", "c", "d"], "'a'.*twice"),
        (["a", "b", "c", "d"], "'b'"),
        ([0, 1, 2, 9], "9"),
    ):
        with pytest.raises(OrderError, match=words):
            as_order(model, order)


def test_num_round_trip_and_encodings(model: MarkovNetwork, tmp_path: Path) -> None:
    path = tmp_path / "x.num"
    write_num(path, model, [3, 1, 0, 2])
    assert path.read_text("utf-8").split() == ["d", "bøg", "a", "c"]
    assert read_num(path, model).tolist() == [3, 1, 0, 2]
    path.write_bytes("d\tbøg \r\n a c ".encode("latin-1"))
    assert read_num(path, model).tolist() == [3, 1, 0, 2]
    path.write_bytes(b"\xef\xbb\xbf" + "d bøg a c".encode())
    assert read_num(path, model).tolist() == [3, 1, 0, 2]


def test_num_errors_give_the_position(model: MarkovNetwork, tmp_path: Path) -> None:
    path = tmp_path / "x.num"
    path.write_text("a bøg\n c x d", "utf-8")
    with pytest.raises(ParseError, match=r"x\.num:2:4: .*'x'"):
        read_num(path, model)
    path.write_text("a bøg\n c a d", "utf-8")
    with pytest.raises(ParseError, match=r"x\.num:2:4: .*second time"):
        read_num(path, model)
    path.write_text("a c d", "utf-8")
    with pytest.raises(OrderError, match="bøg"):
        read_num(path, model)
    with pytest.raises(OrderError, match="cannot be read"):
        read_num(tmp_path / "absent.num", model)
    spaced = MarkovNetwork({"a b": ["0"]}, [])
    with pytest.raises(OrderError, match="white space"):
        write_num(path, spaced, [0])


def test_td_round_trip(model: MarkovNetwork, tmp_path: Path) -> None:
    path = tmp_path / "x.td"
    write_td(path, [[0, 1, 2], [0, 2, 3]], [-1, 0], 4)
    around = moral_graph(model)
    order = read_td(path, model)
    assert order_cost(model.cardinality, around, order).entries == 16
    assert np.array_equal(read_td(path, model, around), order)


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("b 1 1 2\n", ParseError, ":1:1"),
        ("s td 1 4 5\nb 1 1 2 3 4\n", ParseError, "expected the model's 4"),
        ("s td 1 4 4\nb 1 1 2 3 9\n", ParseError, ":2:1"),
        ("s td 2 4 4\nb 1 1 2 3 4\n", ParseError, "bag 2"),
        ("s td 1 4 4\nb 1 1 2 3 x\n", ParseError, ":2:1"),
        ("s td 2 4 4\nb 1 1 2 3 4\nb 2 1\n1 7\n", ParseError, ":4:1"),
        ("", ParseError, "expected one"),
        ("s td 1 3 4\nb 1 1 2 3\n", OrderError, "'d'"),
        ("s td 2 3 4\nb 1 1 2 3\nb 2 3 4\n1 2\n", OrderError, "no bag contains both"),
        ("s td 2 3 4\nb 1 1 2 3\nb 2 1 3 4\n", OrderError, "not connected"),
        ("s td 2 4 4\nb 1 1 2 3 4\nb 2 1\n1 2\n2 1\n", OrderError, "cycle"),
    ],
)
def test_td_errors(model: MarkovNetwork, tmp_path: Path, text: str, error: type[Exception], words: str) -> None:
    path = tmp_path / "x.td"
    path.write_text(text)
    with pytest.raises(error, match=words):
        read_td(path, model)


# The cache -------------------------------------------------------------------------------------------------------


def test_saved_is_the_order_of_best(own_cache: Path) -> None:
    cards, around = grid(7)
    with pytest.raises(OrderError, match='order="best" searches for one'):
        find_order(cards, around, "saved")
    first = find_order(cards, around, "best", n_steps=100_000)
    assert len(list(own_cache.iterdir())) == 1
    second = find_order(cards, around, "saved")
    assert second.from_cache
    assert not first.from_cache
    assert np.array_equal(first.order, second.order)
    assert not find_order(cards, around, "best", n_steps=100_000).from_cache  # a search by steps never uses the cache
    with pytest.raises(OrderError):
        find_order([c + 1 for c in cards], around, "saved")
    with pytest.raises(OrderError):
        find_order(cards, around, "saved", objective="largest")


def test_best_continues_from_the_saved_order(own_cache: Path) -> None:
    cards, around = grid(8)
    good = find_order(cards, around, "best", n_steps=2_000_000)
    again = find_order(cards, around, "best", time_limit=1e-9)
    assert again.from_cache
    assert np.array_equal(good.order, again.order)


@pytest.mark.slow
def test_best_improves_what_a_busy_machine_saved(own_cache: Path) -> None:
    """Once, an order that an earlier search of as many seconds had saved was never improved."""
    cards, around = grid(8)
    poor = find_order(cards, around, "best", n_steps=1)
    (path,) = own_cache.iterdir()
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data | {"rounds": 7, "seconds": 1e6}))
    better = find_order(cards, around, "best", time_limit=2.0)
    assert better.entries < poor.entries
    assert not better.from_cache
    assert any(step.rule == "saved" for step in better.trace) or poor.entries >= better.trace[0].cost
    saved = json.loads(path.read_text())
    assert saved["entries"] == better.entries
    assert saved["rounds"] > 7  # other chains than before
    assert find_order(cards, around, "best", time_limit=1e-9).entries == better.entries


def test_a_worse_order_does_not_replace_a_better_one(own_cache: Path) -> None:
    cards, around = grid(8)
    good = find_order(cards, around, "best", n_steps=2_000_000)
    poor = find_order(cards, around, "best", n_steps=1)
    assert good.entries <= poor.entries
    assert find_order(cards, around, "saved").entries == good.entries


def test_auto_does_not_depend_on_what_was_saved(own_cache: Path) -> None:
    """Once, `order="best"` changed every later "auto" plan of the machine."""
    cards, around = grid(12)  # annealed by "auto"
    net = MarkovNetwork(
        {f"v{i}": [str(s) for s in range(card)] for i, card in enumerate(cards)},
        [((f"v{i}", f"v{j}"), np.ones((cards[i], cards[j]))) for i, near in enumerate(around) for j in near if i < j],
    )
    before = net.plan(max_table=None, memory_limit=math.inf)
    best = net.plan("best", n_steps=8_000_000, max_table=None, memory_limit=math.inf)
    assert best.cost().entries < before.cost().entries
    after = net.plan(max_table=None, memory_limit=math.inf)
    assert after.plan.to_bytes() == before.plan.to_bytes()
    assert after.describe() == before.describe()
    without = net.plan(cache=False, max_table=None, memory_limit=math.inf)
    assert without.plan.to_bytes() == before.plan.to_bytes()
    saved = net.plan("saved", max_table=None, memory_limit=math.inf)
    assert saved.plan.to_bytes() == best.plan.to_bytes()
    assert 'elimination order: saved by an earlier search of order="best"' in saved.describe()
    assert "elimination order: auto, seed 0" in before.describe()
    assert "elimination order: best, seed 0" in best.describe()
    assert "elimination order: given" in net.plan(best.order, max_table=None, memory_limit=math.inf).describe()


@pytest.mark.slow
def test_auto_remembers_the_orders_that_took_long(own_cache: Path) -> None:
    cards, around = grid(12)
    first = find_order(cards, around)
    assert first.n_steps
    (memo,) = own_cache.iterdir()
    second = find_order(cards, around)
    assert not second.n_steps
    assert np.array_equal(first.order, second.order)
    same = ("cost", "entries", "largest", "n_cliques", "levels", "method", "lower_bound", "optimal", "from_cache")
    assert [getattr(first, name) for name in same] == [getattr(second, name) for name in same]
    assert find_order(cards, around, seed=1).n_steps
    for damaged in (b"", b"{", b"\xff\x00", memo.read_bytes()[:200]):
        memo.write_bytes(damaged)
        assert np.array_equal(find_order(cards, around).order, first.order)
        assert memo.read_bytes() != damaged


# SHA-256 of the orders of "auto" by AUTO_VERSION: where one differs, increase AUTO_VERSION and record the new ones
AUTO_ORDERS = {
    2: {
        "grid": "3098986600f08668e59fbd01afd49a511dc73fd8d9b8250477bafcab17673aac",
        "random": "d39bd4c1e5000500c03d4b6516e831578b65383d6f47f6594f835cc3426d4ee0",
    },
}


def test_the_orders_of_auto_are_those_of_its_version() -> None:
    graphs = {"grid": grid(12), "random": random_graph(2, 40, 0.2)}
    for name, (cards, around) in graphs.items():
        found = find_order(cards, around, cache=False)
        assert found.n_steps
        assert hashlib.sha256(found.order.astype("<i8").tobytes()).hexdigest() == AUTO_ORDERS[store.AUTO_VERSION][name]


@pytest.mark.parametrize("damage", ["cut", "json", "order", "entries", "folder", "list"])
def test_damaged_cache_entries_are_ignored(own_cache: Path, damage: str) -> None:
    cards, around = grid(7)
    first = find_order(cards, around, "best", n_steps=50_000)
    (path,) = own_cache.iterdir()
    data = json.loads(path.read_text())
    if damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        path.write_text(
            {
                "cut": path.read_text()[:100],
                "json": "\x00",
                "order": json.dumps(data | {"order": [*data["order"][:-1], 0]}),
                "entries": json.dumps(data | {"entries": 1}),
                "list": "[]",
            }[damage]
        )
    again = find_order(cards, around, "best", n_steps=50_000)
    assert not again.from_cache
    assert np.array_equal(first.order, again.order)
    if damage != "folder":
        assert np.array_equal(find_order(cards, around, "saved").order, first.order)


def test_an_unwritable_cache_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JTGPU_CACHE_DIR", str(tmp_path / "file"))
    cards, around = grid(6)
    assert sorted(find_order(cards, around, "best", n_steps=1000).order.tolist()) == list(range(36))


def test_the_key_sees_graph_cardinalities_and_objective() -> None:
    cards, around = grid(3)
    key = store.digest(cards, around, "entries")
    assert key == store.digest(cards, [sorted(s, reverse=True) for s in around], "entries")
    other = [set(s) for s in around]
    other[0].discard(1)
    other[1].discard(0)
    keys = {key, store.digest(cards, other, "entries"), store.digest([9, *cards[1:]], around, "entries")}
    assert len(keys | {store.digest(cards, around, "time")}) == 4


@pytest.mark.parametrize("seed", range(6))
def test_the_bound_of_the_largest_clique_holds_for_every_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jtgpu.plans.compiler.SPARSE", 0)
    cards, graph = random_graph(seed, 6, 0.7)
    orders = itertools.permutations(range(6))
    largest = min(order_cost(cards, graph, order, "largest").largest for order in orders)
    bound = least_clique_bits(cards, graph, 1)
    assert 0 < bound <= math.log2(largest)
    assert not least_clique_bits(cards, graph, bound + 1)


def test_the_bound_of_a_complete_bipartite_graph_is_its_width() -> None:
    n = 40
    graph = [range(n, 2 * n) if v < n else range(n) for v in range(2 * n)]
    assert least_clique_bits([2] * 2 * n, graph, n) == n + 1
    assert least_clique_bits([2] * 2 * n, graph, n + 2) == 0
