"""Identification: every formula is compared with do() in the full network, every refusal with two models."""

from __future__ import annotations

import itertools
from typing import Any

import networkx as nx
import numpy as np
import pytest

import jtgpu
from jtgpu.causal import CausalGraph, NotIdentified, graph
from jtgpu.errors import ArgumentError, EvidenceError, UnknownVariable


def random_network(seed: int, most: int = 9) -> tuple[jtgpu.BayesianNetwork, list[str]]:
    """A network with positive CPTs, and its hidden variables."""
    random = np.random.default_rng(seed)
    n = int(random.integers(5, most + 1))
    names = [f"v{i}" for i in range(n)]
    states = {v: [f"s{k}" for k in range(random.integers(2, 4))] for v in names}
    parents = {
        names[i]: [names[p] for p in sorted(random.choice(i, min(i, int(random.integers(0, 4))), replace=False))]
        for i in range(n)
    }
    cpts = {}
    for v in names:
        shape = [len(states[p]) for p in parents[v]] + [len(states[v])]
        table = random.uniform(0.1, 1.0, shape)
        cpts[v] = table / table.sum(axis=-1, keepdims=True)
    hidden = [v for v in names if random.random() < 0.3]
    return jtgpu.BayesianNetwork(states, parents, cpts), hidden


def joint_table(net: jtgpu.BayesianNetwork, done: dict[str, int]) -> Any:
    """P(all variables | do) by the definition, with an axis for each variable."""
    names = list(net.variables)
    letters = {v: chr(97 + i) for i, v in enumerate(names)}
    terms, tables = [], []
    for v in names:
        if v in done:
            terms.append(letters[v])
            tables.append(np.eye(len(net.states(v)))[done[v]])
        else:
            terms.append("".join(letters[p] for p in (*net.parents(v), v)))
            tables.append(np.asarray(net.cpt(v)))
    return np.einsum(",".join(terms) + "->" + "".join(letters[v] for v in names), *tables, optimize=True)


def by_definition(net: jtgpu.BayesianNetwork, outcome: list[str], done: dict[str, int], given: dict[str, int]) -> Any:
    """P(outcome | do(done), given)."""
    table, names = joint_table(net, done), list(net.variables)
    at = tuple(given.get(v, slice(None)) for v in names)
    left = [v for v in names if v not in given]
    sliced = table[at]
    summed = sliced.sum(axis=tuple(i for i, v in enumerate(left) if v not in outcome))
    kept = [v for v in left if v in outcome]
    return summed.transpose([kept.index(v) for v in outcome]) / summed.sum()


def check(seed: int) -> str:
    """One random query; the method, or how the refusal was proved."""
    net, hidden = random_network(seed)
    random = np.random.default_rng(seed + 10**6)
    measured = [v for v in net.variables if v not in hidden]
    if len(measured) < 2:
        return "too few"
    picked = list(random.permutation(measured))
    n_causes = 1 + int(random.random() < 0.25 and len(picked) > 3)
    do, outcome = picked[:n_causes], picked[n_causes : n_causes + 1 + int(random.random() < 0.25)]
    rest = picked[n_causes + len(outcome) :]
    given = rest[: int(random.random() < 0.3)]
    outcome, do, given = (list(map(str, names)) for names in (outcome, do, given))
    g = graph(net, hidden=hidden)
    try:
        found = g.identify(outcome, do=do, given=given)
    except NotIdentified:
        return "refused"
    assert not {*found.uses} & {*hidden}
    table = found.evaluate(net.compile("cpu"))
    for states in itertools.product(*(range(len(net.states(v))) for v in (*do, *given))):
        done, seen = dict(zip(do, states[: len(do)], strict=True)), dict(zip(given, states[len(do) :], strict=True))
        expected = by_definition(net, outcome, done, seen)
        np.testing.assert_allclose(table.probabilities[states], expected, rtol=0, atol=1e-10)
    return str(found.method)


@pytest.mark.parametrize("first", range(0, 80, 40))
def test_a_formula_equals_the_intervention_in_the_full_network(first: int) -> None:
    methods = {check(seed) for seed in range(first, first + 40)}
    assert {"back-door", "refused", "no effect"} <= methods


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 3000, 250))
def test_two_thousand_formulas(first: int) -> None:
    assert "general" in {check(seed) for seed in range(first, first + 250)}


def test_known_graphs() -> None:
    front = graph("smoke -> tar -> cancer; smoke <-> cancer").identify("cancer", do="smoke")
    assert (front.method, front.adjusted, front.uses) == ("front-door", {"tar"}, ("smoke", "tar", "cancer"))
    assert front.formula == (
        "P(cancer | do(smoke)) = [sum over tar: P(tar | smoke) [sum over smoke': P(cancer | smoke', tar) P(smoke')]]"
    )
    napkin = graph("w -> z -> x -> y; w <-> x; w <-> y").identify("y", do="x")
    assert napkin.method == "general"
    assert r"\frac{" in napkin.latex
    bias = graph("x <- a -> m <- b -> y; x -> y")
    assert bias.adjustment_sets("x", "y") == [set()]
    assert not bias.is_adjustment_set("m", "x", "y")
    assert str(bias.is_adjustment_set("m", "x", "y")) == "the path x <- a -> m <- b -> y is open"


@pytest.mark.parametrize(
    ("text", "hedge"),
    [("x -> y; x <-> y", ({"x", "y"}, {"y"})), ("x -> z -> y; x <-> z", ({"x", "z"}, {"z"}))],
)
def test_bows_are_not_identified(text: str, hedge: tuple[set[str], set[str]]) -> None:
    """pgmpy#3465 gives the second as identifiable."""
    with pytest.raises(NotIdentified, match=r"it would be if the common cause of x and [yz] were measured") as caught:
        graph(text).identify("y", do="x")
    assert caught.value.hedge == hedge


def test_two_models_of_a_bow_agree_and_differ_in_the_effect() -> None:
    """Z is X or the exclusive or of X and a fair hidden cause of X: the same distribution of X, Z and Y."""
    states = {v: ["0", "1"] for v in ("u", "x", "z", "y")}
    parents = {"x": ["u"], "z": ["x", "u"], "y": ["z"]}
    copy = np.eye(2)
    shared: dict[str, Any] = {"u": [0.5, 0.5], "x": copy, "y": [[0.9, 0.1], [0.2, 0.8]]}
    first = jtgpu.BayesianNetwork(states, parents, shared | {"z": [[[1, 0], [1, 0]], [[0, 1], [0, 1]]]})
    second = jtgpu.BayesianNetwork(states, parents, shared | {"z": [[[1, 0], [0, 1]], [[1, 0], [0, 1]]]})
    one, two = first.compile("cpu"), second.compile("cpu")
    names = ["x", "z", "y"]
    np.testing.assert_allclose(one.joint(names).probabilities, two.joint(names).probabilities, atol=1e-12)
    assert abs(one.posterior("y", do={"x": "1"})["1"] - two.posterior("y", do={"x": "1"})["1"]) > 0.1
    with pytest.raises(NotIdentified):
        graph(first, hidden="u").identify("y", do="x")


def test_positivity() -> None:
    net = jtgpu.BayesianNetwork(
        {"z": ["0", "1"], "x": ["0", "1"], "y": ["0", "1"]}, {"x": ["z"], "y": ["x", "z"]},
        {"z": [0.5, 0.5], "x": [[1.0, 0.0], [0.5, 0.5]], "y": [[[0.9, 0.1], [0.8, 0.2]], [[0.3, 0.7], [0.4, 0.6]]]},
    )  # fmt: skip
    with pytest.raises(EvidenceError, match=r"P\(y \| x, z\) is needed where x = 1, z = 0, which has probability 0"):
        graph(net).identify("y", do="x").evaluate(net.compile("cpu"))
    effect = graph(net).identify("y", do="z").evaluate(net.compile("cpu"))  # x = 1 never occurs where z = 0
    np.testing.assert_allclose(effect.probabilities, [[0.9, 0.1], [0.6, 0.4]], atol=1e-12)


def test_another_adjustment_set_is_tried_where_positivity_fails() -> None:
    """x = 1 never occurs where b = 1, but occurs for each state of a."""
    net = jtgpu.BayesianNetwork(
        {v: ["0", "1"] for v in "abxy"}, {"b": ["a"], "x": ["b"], "y": ["x", "a"]},
        {"a": [0.4, 0.6], "b": [[0.7, 0.3], [0.2, 0.8]], "x": [[0.5, 0.5], [1.0, 0.0]],
         "y": [[[0.9, 0.1], [0.3, 0.7]], [[0.6, 0.4], [0.2, 0.8]]]},
    )  # fmt: skip
    found = graph(net).identify("y", do="x")
    assert found.adjusted == {"b"}
    table = found.evaluate(net.compile("cpu")).probabilities
    for s in range(2):
        np.testing.assert_allclose(table[s], by_definition(net, ["y"], {"x": s}, {}), atol=1e-12)
    hidden = graph(net, hidden="a").identify("y", do="x")
    with pytest.raises(EvidenceError, match="positivity"):
        hidden.evaluate(net.compile("cpu"))


def test_what_is_impossible_after_the_intervention_is_not_given() -> None:
    """The formula takes the condition for an intervention, and has a number for it."""
    net = jtgpu.load("asia")
    table = graph(net).identify("dysp", do=["lung", "tub"], given="either").evaluate(net.compile("reference"))
    assert table.possible.tolist() == [[[True, False], [True, False]], [[True, False], [False, True]]]
    assert not table.probabilities[0, 0, 1].any()
    tree = net.remove("tub").compile("reference")  # it does not tell
    assert graph(net, hidden=["tub"]).identify("dysp", do="lung", given="either").evaluate(tree).possible[1].all()


def test_an_estimate_converges_to_the_effect() -> None:
    net, truth = jtgpu.load("asia"), jtgpu.load("asia").compile("cpu")
    g = graph(net, hidden=["smoke"])
    cases = truth.sample(20_000, seed=1).to_frame("pandas").drop(columns="smoke")
    found = g.identify("dysp", do="lung")
    assert found.method == "back-door"
    estimated = found.fit(cases, pseudo_counts=0.1, states={v: net.states(v) for v in net.variables if v != "smoke"})
    for i, state in enumerate(net.states("lung")):
        expected = truth.posterior("dysp", do={"lung": state}).probabilities
        np.testing.assert_allclose(estimated.table.probabilities[i], expected, atol=0.05)
    draws = estimated.bootstrap(3, seed=2)
    assert draws.shape == (3, 2, 2)
    assert np.abs(draws - estimated.table.probabilities).max() < 0.1


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda g: g.identify("x", do="x"), ArgumentError, "'x' is the outcome and a cause"),
        (lambda g: g.identify("q", do="x"), UnknownVariable, "outcome: there is no variable 'q'"),
        (lambda g: g.identify("y", do=()), ArgumentError, "an outcome and a cause are needed"),
        (lambda g: g.adjustment_sets("x", "x"), ArgumentError, "the cause and the outcome"),
        (lambda g: g.adjustment_sets("x", "y", required="m"), ArgumentError, "required: m is an effect"),
        (lambda g: g.adjustment_set("x", "y", cost={"z": float("nan")}), ArgumentError, "cost of 'z' must be a number"),
        (lambda g: graph("a -> b -> a"), jtgpu.errors.NetworkError, "the arcs form a cycle: a -> b -> a"),
        (lambda g: graph("a <-> a"), jtgpu.errors.NetworkError, "a variable is not its own cause"),
        (lambda g: graph("a -> "), ArgumentError, "is not a path such as"),
        (lambda g: graph("a -> b", hidden="c"), UnknownVariable, "hidden: there is no variable 'c'"),
        (lambda g: graph(3), ArgumentError, "a causal graph is a text, a network or a networkx.DiGraph"),
        (lambda g: graph(nx.Graph([(1, 2)])), ArgumentError, "a causal graph is directed"),
    ],
)
def test_bad_input(call: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(graph("z -> x -> m -> y; z -> y"))  # type: ignore[operator]


def test_graphs_are_read_and_printed() -> None:
    assert graph("a -> b <- c; b <-> d; e") == CausalGraph("abcde", [("a", "b"), ("c", "b")], [("d", "b")])
    dagitty = 'dag { bb="0,0,1,1"\n U [latent,pos="0,1"]\n X [exposure]\n U -> {X Y}\n X -> Y }'
    assert graph(dagitty) == graph("X -> Y; X <-> Y")
    assert graph("a -> {b, c} -> d") == CausalGraph("abcd", [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])
    assert str(graph(str(graph(dagitty)))) == "X -> Y; X <-> Y"
    assert graph(nx.DiGraph([("a", "b")]), hidden="b") == CausalGraph("a")
    assert graph(jtgpu.network("h->a; h->b; a->k->b"), hidden=["h", "k"]) == graph("a -> b; a <-> b")


def test_a_name_like_latent_is_not_hidden() -> None:
    assert graph("latent_heat; latent; latent_heat -> melts").variables == ("latent_heat", "latent", "melts")
    assert graph('U [label="latent"]; U -> X').variables == ("U", "X")
    assert graph("U [unobserved]; U -> X; U -> Y").variables == ("X", "Y")


def test_undirected_edges_of_a_text_are_refused() -> None:
    for text in ("a -- b", "a --b", "a -> b; b--c", "a - b"):
        with pytest.raises(ArgumentError, match="is not a path"):
            graph(text)
    assert graph("to-do -> done").variables == ("to-do", "done")


@pytest.mark.parametrize(
    "text", ["a -> b, c -> d", "a, b -> c", "my var -> c", "a b", "X [latent] Y", "U [latent] -> X", "a -> {b", "a->{}"]
)
def test_several_variables_stand_in_braces(text: str) -> None:
    """Four arcs were read from the first text, and two variables from a name with a space."""
    with pytest.raises(ArgumentError, match=r"is not a path .* several variables in braces, 'a -> \{b c\}'"):
        graph(text)


def test_groups_in_braces() -> None:
    assert graph("a -> {b, c} -> d") == graph("a -> {b c}; b -> d; c -> d")


@pytest.mark.parametrize("source", ["", " ;\n", "dag { }", nx.DiGraph()])
def test_a_graph_has_variables(source: object) -> None:
    with pytest.raises(ArgumentError, match="a causal graph needs variables"):
        graph(source)


def test_names_in_quotes_are_read_and_printed() -> None:
    g = CausalGraph(["my var", "a->b", "x[1]", "p;q"], [("my var", "a->b"), ("x[1]", "p;q")], [("p;q", "my var")])
    assert graph(str(g)) == g
    assert graph('X [label="a;b"]; X -> Y').variables == ("X", "Y")
    assert CausalGraph([1, 2], [(1, 2)]) == graph("1 -> 2")


def test_the_edges_of_a_cpdag_have_no_direction() -> None:
    for source in (jtgpu.load("asia").cpdag(), "a -> b -> c -> a; a -> c"):
        with pytest.raises(jtgpu.errors.NetworkError, match=r"cycle: (\w+) -> \w+ -> \1; jtgpu.causal.cpdag takes"):
            graph(source)


def test_latex_escapes_every_name() -> None:
    found = CausalGraph(["do_it", "y^2", "z\\n"], [("do_it", "y^2")]).identify("y^2", do="do_it", given="z\\n")
    left = r"P(\text{y\^{}2} \mid \mathrm{do}(\text{do\_it}), \text{z\textbackslash{}n})"
    assert found.latex == left + r" = P(\text{y\^{}2} \mid \text{do\_it})"


def test_a_refusal_makes_no_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph of 50 variables took 1.2 s: a formula for each hidden common cause that might be measured."""

    def refuse(*_: object) -> None:
        raise AssertionError

    for name in ("product", "quotient", "total"):
        monkeypatch.setattr(f"jtgpu.causal.identify.{name}", refuse)
    with pytest.raises(NotIdentified, match="it would be if the common cause of x and y were measured"):
        graph("x -> y; x <-> y; a -> x; a <-> y").identify("y", do="x")


def test_the_states_of_a_fit_are_those_of_measured_variables() -> None:
    cases = [{"x": "0", "y": "1"}, {"x": "1", "y": "0"}]
    found = graph("x -> y; z").identify("y", do="x")
    assert found.fit(cases, states={"y": ["0", "1", "2"], "z": ["0", "1"]}).table.shape == (2, 3)
    with pytest.raises(UnknownVariable, match="states: there is no variable 'yy'; did you mean 'y'"):
        found.fit(cases, states={"yy": ["0", "1", "2"]})
    with pytest.raises(ArgumentError, match="seed must be None, an integer of at least 0"):
        found.fit(cases).bootstrap(2, seed="one")
    with pytest.raises(ArgumentError, match="tree must be a JunctionTree"):
        found.evaluate(jtgpu.load("asia"))


@pytest.mark.parametrize(("text", "given"), [("x; y; z", ()), ("x -> y; z", "z"), ("y -> x; z", ())])
def test_a_fit_has_the_variables_of_the_effect(text: str, given: str) -> None:
    """A cause without an effect, or a condition that the formula does not use, was an unknown variable."""
    cases = [{"x": "0", "y": "1", "z": "a"}, {"x": "1", "y": "1", "z": "b"}, {"x": "1", "y": "0", "z": "b"}]
    table = graph(text).identify("y", do="x", given=given).fit(cases, pseudo_counts=0).table
    rows = [[0.0, 1.0], [0.5, 0.5]] if "->" in text and given else [[1 / 3, 2 / 3]] * 2
    np.testing.assert_allclose(table.probabilities, np.stack([rows] * 2, 1) if given else rows, atol=1e-12)


def test_a_notebook_shows_the_graph() -> None:
    shown = graph('"my var" -> x -> y; x <-> y')._repr_html_()
    assert shown.startswith("<div>&quot;my var&quot; -&gt; x; x -&gt; y; x &lt;-&gt; y</div>")
    assert "<svg" in shown
    assert '<path class="a d"' in shown  # the hidden common cause
    assert "1 hidden common cause" in shown
    assert '<path class="a d"' not in graph("x -> y")._repr_html_()
    assert "<svg" not in graph("a", hidden="a")._repr_html_()
