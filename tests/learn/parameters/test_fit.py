"""`jtgpu.learn.fit`: counting, EM, priors, tied, fixed and hidden variables."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import jtgpu
from jtgpu.learn import fit
from jtgpu.learn.parameters import expectation, families
from jtgpu.util.iteration import Iteration
from tests.support import random_nets
from tests.support.bundled import bundled
from tests.support.examples import examples


def drawn(net: jtgpu.BayesianNetwork, n: int, missing: float = 0.0, seed: int = 0) -> np.ndarray:
    """(n, V) states drawn from a network, cells missing at random."""
    states = net.compile("reference").sample(n, seed=seed).states.astype(np.int32)
    states[np.random.default_rng(seed).random(states.shape) < missing] = -1
    return states


def counted(net: jtgpu.BayesianNetwork, states: np.ndarray, v: str) -> np.ndarray:
    """Counts of a family over complete rows, one row after the other."""
    table = np.zeros(net.cpt(v).shape)
    for row in states.tolist():
        table[tuple(row[net.index(u)] for u in (*net.parents(v), v))] += 1.0
    return table


@pytest.mark.parametrize("missing", ["em", "error", "drop", "available"])
def test_complete_rows_are_counted_to_the_bit(missing: Any) -> None:
    net = bundled("asia")
    states = drawn(net, 200)
    found = fit(net, states, pseudo_counts=0.5, missing=missing)
    assert found.method == "counts"
    assert found.converged
    assert len(found.history) == 1
    for v in net:
        counts = counted(net, states, v)
        np.testing.assert_array_equal(found.counts[v], counts)
        np.testing.assert_array_equal(found.network.cpt(v), (counts + 0.5) / (counts + 0.5).sum(axis=-1, keepdims=True))
    assert found.log_likelihood == pytest.approx(found.network.compile("reference").log_likelihood(states).sum())


def test_em_on_complete_rows_is_counting() -> None:
    """Zeros of the start make EM run; its counts are those of counting."""
    net = bundled("asia")
    states = drawn(net, 300)
    found = fit(net, states, em=jtgpu.learn.EM(start="given"), pseudo_counts=1)
    assert found.method == "em"
    assert found.converged
    for v in net:
        np.testing.assert_array_equal(found.counts[v], counted(net, states, v))
        assert ((found.network.cpt(v) > 0) == (net.cpt(v) > 0)).all() or (net.cpt(v) > 0).all()
    either = found.network.cpt("either")
    np.testing.assert_array_equal(either, net.cpt("either"))  # its zeros stay, whatever the prior
    free = fit(net, states, em=jtgpu.learn.EM(start="given", zeros="free"), pseudo_counts=1)
    assert (free.network.cpt("either") > 0).all()


def test_weights_are_repeated_rows() -> None:
    net = bundled("asia")
    states = drawn(net, 60, 0.3)
    weights = np.random.default_rng(0).integers(0, 4, 60)
    whole = fit(net, states, weights=weights)
    repeated = fit(net, np.repeat(states, weights, axis=0))
    assert whole.log_likelihood == pytest.approx(repeated.log_likelihood, rel=1e-9)
    for v in net:
        np.testing.assert_allclose(whole.network.cpt(v), repeated.network.cpt(v), atol=1e-9)


@pytest.mark.parametrize("accelerate", [False, True])
def test_a_fixed_point_stays(accelerate: bool) -> None:
    net = bundled("asia")
    states = drawn(net, 200, 0.2)
    first = fit(net, states, em=jtgpu.learn.EM(tolerance=1e-15, iterations=3000, accelerate=accelerate))
    again = fit(first.network, states, em=jtgpu.learn.EM(start="given", iterations=3))
    for v in net:
        np.testing.assert_allclose(again.network.cpt(v), first.network.cpt(v), atol=1e-7)
    assert again.objective == pytest.approx(first.objective, rel=1e-12)


def test_the_result_does_not_depend_on_threads() -> None:
    net = bundled("alarm")
    states = drawn(net, 400, 0.1)
    one, two = (fit(net, states, em=jtgpu.learn.EM(iterations=4), compute=jtgpu.Compute(threads=n)) for n in (1, 2))
    assert one.objective == two.objective
    assert one.network == two.network


def test_the_reference_backend_agrees() -> None:
    net = bundled("survey")
    states = drawn(net, 50, 0.3)
    fast, slow = (fit(net, states, compute=name, em=jtgpu.learn.EM(iterations=5)) for name in ("cpu", "reference"))
    assert fast.objective == pytest.approx(slow.objective, rel=1e-12)
    for v in net:
        np.testing.assert_allclose(fast.network.cpt(v), slow.network.cpt(v), rtol=1e-9)


@pytest.mark.slow
@given(data=st.data())
@examples(200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_objective_never_falls(data: st.DataObject) -> None:
    """For any network, holes, prior, and tied, fixed and hidden variables; and the last counts fit the network."""
    net = data.draw(random_nets.bayesian_networks(most=5))
    if not len(net):
        return
    seed = data.draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    states = np.stack([rng.integers(0, c, 15) for c in net.cardinality.tolist()], axis=1).astype(np.int32)
    states[rng.random(states.shape) < data.draw(st.sampled_from([0.1, 0.5]))] = -1
    shapes = families.family_shapes(net)
    twins = [(i, j) for i in range(len(net)) for j in range(i) if shapes[i] == shapes[j]]
    ties = bool(twins) and data.draw(st.booleans())
    tied = [[net.variables[i] for i in data.draw(st.sampled_from(twins))]] if ties else []
    free = [v for v in net if not any(v in group for group in tied)]
    fixes = bool(free) and data.draw(st.booleans())
    fixed = [free[0]] if fixes else []
    hidden = [v for v in net if len(net.states(v)) > 1][: data.draw(st.integers(0, 1))]
    columns = {v: states[:, i] for i, v in enumerate(net) if v not in hidden}
    if not columns:
        return
    found = fit(
        net,
        columns,
        pseudo_counts=data.draw(st.sampled_from([0, 0.5, "bdeu:3"])),
        tied=tied,
        fixed=fixed,
        hidden=hidden,
        em=jtgpu.learn.EM(iterations=12, accelerate=data.draw(st.booleans()), on_error="flag", seed=seed % 1000),
        compute="reference",
    )
    objectives = [entry.objective for entry in found.history]
    assert all(b >= a - 1e-9 * abs(a) for a, b in itertools.pairwise(objectives))
    for group in tied:
        np.testing.assert_array_equal(found.network.cpt(group[0]), found.network.cpt(group[1]))
    for v in fixed:
        np.testing.assert_array_equal(found.network.cpt(v), net.cpt(v))
        assert v not in found.counts
    assert all(np.isfinite(found.network.cpt(v)).all() for v in net)


def test_a_fall_of_the_objective_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    net = bundled("cancer")
    evaluate = expectation.Expectation.evaluate
    calls = iter(range(100))

    def falling(self: Any, tables: Any) -> Any:
        found = evaluate(self, tables)
        return found._replace(log_likelihood=found.log_likelihood - next(calls))

    monkeypatch.setattr(expectation.Expectation, "evaluate", falling)
    with pytest.raises(jtgpu.JtgpuError, match=r"iteration \d+: the objective fell"):
        fit(net, drawn(net, 50, 0.3))


def test_a_hidden_chain_is_forward_backward() -> None:
    """A hidden Markov model: one EM step equals Baum and Welch's, written here."""
    rng = np.random.default_rng(3)
    n, length, k, m = 40, 4, 3, 4
    start = rng.dirichlet(np.ones(k))
    move, emit = rng.dirichlet(np.ones(k), k), rng.dirichlet(np.ones(m), k)
    seen = rng.integers(0, m, (n, length))
    hidden = [f"h{t}" for t in range(length)]
    parents = {h: [f"h{t - 1}"] if t else [] for t, h in enumerate(hidden)} | {
        f"o{t}": [f"h{t}"] for t in range(length)
    }
    names = {h: [*"abc"] for h in hidden} | {f"o{t}": [*"wxyz"] for t in range(length)}
    cpts = {h: move if t else start for t, h in enumerate(hidden)} | {f"o{t}": emit for t in range(length)}
    net = jtgpu.BayesianNetwork(names, parents, cpts)
    found = fit(
        net,
        {f"o{t}": ["wxyz"[s] for s in seen[:, t]] for t in range(length)},
        hidden=hidden,
        em=jtgpu.learn.EM(start="given", iterations=1),
        pseudo_counts=0,
        tied=[hidden[1:], [f"o{t}" for t in range(length)]],
    )
    first, moves, emissions, log_likelihood = np.zeros(k), np.zeros((k, k)), np.zeros((k, m)), 0.0
    for row in seen:
        forward = [start * emit[:, row[0]]]
        for o in row[1:]:
            forward.append(forward[-1] @ move * emit[:, o])
        backward = [np.ones(k)]
        for o in row[:0:-1]:
            backward.insert(0, move @ (emit[:, o] * backward[0]))
        total = forward[-1].sum()
        log_likelihood += np.log(total)
        for t in range(length):
            posterior = forward[t] * backward[t] / total
            emissions[:, row[t]] += posterior
            first += posterior if t == 0 else 0
            if t:
                moves += forward[t - 1][:, None] * move * (emit[:, row[t]] * backward[t]) / total
    assert found.history[0].log_likelihood == pytest.approx(log_likelihood)
    np.testing.assert_allclose(found.network.cpt("h0"), first / n, rtol=1e-10)
    np.testing.assert_allclose(found.network.cpt("h2"), moves / moves.sum(axis=1, keepdims=True), rtol=1e-10)
    np.testing.assert_allclose(found.network.cpt("o3"), emissions / emissions.sum(axis=1, keepdims=True), rtol=1e-10)


def test_acceleration_reaches_at_least_the_same_objective_in_fewer_passes() -> None:
    net = bundled("asia")
    states = drawn(net, 300, 0.2)
    columns = {v: states[:, i] for i, v in enumerate(net) if v != "smoke"}
    plain, fast = (
        fit(net, columns, hidden=["smoke"], em=jtgpu.learn.EM(accelerate=a, iterations=600, tolerance=1e-8, seed=1))
        for a in (False, True)
    )
    assert fast.objective >= plain.objective - 1e-3
    assert fast.history[-1].number < plain.history[-1].number
    assert any(entry.accelerated for entry in fast.history)


def test_restarts_keep_the_best() -> None:
    net = bundled("asia")
    states = drawn(net, 200, 0.1)
    columns = {v: states[:, i] for i, v in enumerate(net) if v != "smoke"}
    found = fit(net, columns, hidden="smoke", em=jtgpu.learn.EM(restarts=4, iterations=30))
    assert len(found.restarts) == 4
    assert found.objective == max(found.restarts)
    assert found.network == fit(net, columns, hidden="smoke", em=jtgpu.learn.EM(restarts=4, iterations=30)).network


def test_rows_without_data() -> None:
    net = jtgpu.network("a->b", "{x|y}", cpts={"a": [0.5, 0.5], "b": [[0.9, 0.1], [0.2, 0.8]]})
    table = {"a": ["x", "x"], "b": ["x", "y"]}
    assert fit(net, table, pseudo_counts=0).network.cpt("b")[1].tolist() == [0.5, 0.5]
    given_start = fit(net, table, pseudo_counts=0, em=jtgpu.learn.EM(start="given"))
    assert given_start.network.cpt("b")[1].tolist() == [0.2, 0.8]
    assert given_start.empty_rows == {"b": [{"a": "y"}]}
    assert given_start.unseen == {"a": ("y",)}
    assert "a: no row has 'y'" in str(given_start)
    mean = fit(net, table, pseudo_counts={"b": [[0, 0], [1, 3]]})
    pd = pytest.importorskip("pandas")  # once, its labels were ignored
    frame = pd.DataFrame([[3, 1], [0, 0]], net.states("a")[::-1], net.states("b")[::-1])
    assert fit(net, table, pseudo_counts={"b": frame}).network == mean.network
    with pytest.raises(jtgpu.NetworkError, match=r"pseudo-counts of 'b' is wrong: .*no state 'z'"):
        fit(net, table, pseudo_counts={"b": frame.set_axis(["z", "y"], axis=1)})
    assert mean.network.cpt("b")[1].tolist() == [0.25, 0.75]


def test_priors() -> None:
    net = bundled("cancer")
    states = drawn(net, 20)
    bdeu = fit(net, states, pseudo_counts="bdeu:10")
    counts = counted(net, states, "Cancer") + 10 / net.cpt("Cancer").size
    np.testing.assert_allclose(bdeu.network.cpt("Cancer"), counts / counts.sum(axis=-1, keepdims=True), rtol=1e-14)
    strong = fit(net, states, pseudo_counts="net:1e9")
    for v in net:
        np.testing.assert_allclose(strong.network.cpt(v), net.cpt(v), atol=1e-6)


def test_standard_errors_of_counting_are_binomial() -> None:
    net = jtgpu.network("a->b", "{x|y}")
    rng = np.random.default_rng(0)
    states = rng.integers(0, 2, (400, 2)).astype(np.int32)
    states[:, 0] = 0
    found = fit(net, states, pseudo_counts=0, em=jtgpu.learn.EM(standard_errors="information"))
    p, n = found.network.cpt("b")[0, 0], 400
    np.testing.assert_allclose(found.standard_errors("b")[0], np.sqrt(p * (1 - p) / n), rtol=1e-9)
    assert np.isinf(found.standard_errors("b")[1]).all()
    assert found.report()["undetermined"] == {"b": 2}
    with pytest.raises(jtgpu.JtgpuError, match="standard_errors="):
        fit(net, states).standard_errors("b")


def test_standard_errors_of_hidden_classes_are_those_of_all_parameters() -> None:
    """Against the second differences of ln P of the rows, by enumeration; each row of a CPT alone was 8 times off."""
    rng = np.random.default_rng(0)
    n = 2000
    h = rng.random(n) < 0.5
    x = np.stack([rng.random(n) < np.where(h, 0.7, 0.4) for _ in range(3)], axis=1)
    data = {f"x{i}": np.where(x[:, i], "yes", "no").tolist() for i in range(3)}
    found = fit(
        {v: ["h"] for v in data},
        data,
        hidden={"h": 2},
        pseudo_counts=0,
        em=jtgpu.learn.EM(standard_errors="information", seed=1, tolerance=1e-11, iterations=100_000),
    )
    yes = [found.network.states(v).index("yes") for v in data]

    def log_likelihood(theta: np.ndarray) -> float:
        row = np.stack([theta[0] * np.prod(np.where(x, theta[1:4], 1 - theta[1:4]), axis=1),
                        (1 - theta[0]) * np.prod(np.where(x, theta[4:], 1 - theta[4:]), axis=1)])  # fmt: skip
        return float(np.log(row.sum(axis=0)).sum())

    cpts = [found.network.cpt(v) for v in data]
    theta = np.array([found.network.cpt("h")[0], *(c[k, s] for k in range(2) for c, s in zip(cpts, yes, strict=True))])
    step, unit = 1e-4, np.eye(7)
    hessian = np.array([[sum(
        a * b * log_likelihood(theta + step * (a * unit[i] + b * unit[j])) for a in (1, -1) for b in (1, -1)
    ) / (4 * step**2) for j in range(7)] for i in range(7)])  # fmt: skip
    expected = np.sqrt(np.diagonal(np.linalg.inv(-hessian)))
    errors = [found.standard_errors("h")[0]]
    errors += [found.standard_errors(v)[k, s] for k in range(2) for v, s in zip(data, yes, strict=True)]
    np.testing.assert_allclose(errors, expected, rtol=1e-3)


def test_standard_errors_of_what_the_data_do_not_determine_are_infinite() -> None:
    cells = {"x": ["yes"] * 60 + ["no"] * 40}
    em = jtgpu.learn.EM(standard_errors="information", seed=1)
    found = fit({"x": ["h"]}, cells, hidden={"h": 2}, pseudo_counts=0, em=em)
    assert np.isinf(found.standard_errors("h")).all()
    assert np.isinf(found.standard_errors("x")).all()


def test_standard_errors_from_scores_are_those_of_the_information_where_the_model_is_right(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    net = jtgpu.BayesianNetwork(
        {"a": ["x", "y"], "b": ["x", "y"], "c": ["x", "y", "z"]}, {"b": ["a"], "c": ["a", "b"]},
        {"a": [0.4, 0.6], "b": [[0.7, 0.3], [0.2, 0.8]], "c": [[[0.2, 0.3, 0.5], [0.6, 0.2, 0.2]]] * 2},
    )  # fmt: skip
    rng, states = np.random.default_rng(4), np.array(net.compile("reference").sample(4000, seed=2).states)
    states[rng.random(states.shape) < 0.1] = -1
    by: Any = {"information": jtgpu.Compute(progress=True), "scores": jtgpu.Compute()}
    found = [
        fit(net, states, pseudo_counts=0.1, em=jtgpu.learn.EM(standard_errors=how, tolerance=1e-9), compute=compute)
        for how, compute in by.items()
    ]
    for v in net:
        np.testing.assert_allclose(found[1].standard_errors(v), found[0].standard_errors(v), rtol=0.1)
    assert found[0].network == found[1].network
    assert "standard errors: parameter" in capsys.readouterr().err
    monkeypatch.setattr("jtgpu.learn.parameters.information.MOST_PARAMETERS", 5)
    with pytest.raises(jtgpu.ArgumentError, match=r"more than 5: about .* s; fit with standard_errors='scores'"):
        fit(net, states, em=jtgpu.learn.EM(standard_errors="information"))
    assert np.isfinite(fit(net, states, em=jtgpu.learn.EM(standard_errors="scores")).standard_errors("c")).all()


def test_standard_errors_of_complete_families_among_missing_cells() -> None:
    net = bundled("asia")
    states = drawn(net, 500)
    states[::3, net.index("dysp")] = -1
    found = fit(net, states, pseudo_counts=0, em=jtgpu.learn.EM(standard_errors="information"))
    p = found.network.cpt("smoke")[0]
    np.testing.assert_allclose(found.standard_errors("smoke"), np.sqrt(p * (1 - p) / 500), rtol=1e-12)
    em = jtgpu.learn.EM(standard_errors="information")
    alone = fit(net, states[states[:, net.index("dysp")] >= 0], pseudo_counts=0, em=em)
    for k in np.ndindex(2, 2):  # rows whose child is missing say nothing
        if np.isfinite(alone.standard_errors("dysp")[k]).all():
            np.testing.assert_allclose(found.standard_errors("dysp")[k], alone.standard_errors("dysp")[k], rtol=0.05)


@pytest.mark.slow
def test_stepwise_approaches_em() -> None:
    net = bundled("survey")
    states = drawn(net, 4000, 0.1)
    whole, passed = (
        fit(net, states),
        fit(net, states, em=jtgpu.learn.EM(stepwise=0.7), read=jtgpu.ReadOptions(chunk=200)),
    )
    assert passed.method == "stepwise"
    assert len(passed.history) == 20
    assert not passed.converged
    for v in net:
        np.testing.assert_allclose(passed.network.cpt(v), whole.network.cpt(v), atol=0.15)


def test_ctrl_c_returns_the_last_whole_iteration() -> None:
    net = bundled("asia")
    states = drawn(net, 100, 0.2)

    def stop(entry: Iteration) -> None:
        if entry.number == 2:
            raise KeyboardInterrupt

    found = fit(net, states, em=jtgpu.learn.EM(tolerance=0, accelerate=False), compute=jtgpu.Compute(progress=stop))
    assert found.interrupted
    assert not found.converged
    assert found.network == fit(net, states, em=jtgpu.learn.EM(tolerance=0, accelerate=False, iterations=2)).network


def test_a_run_continues_from_its_checkpoint(tmp_path: Any) -> None:
    net = bundled("asia")
    states = drawn(net, 100, 0.2)
    path = tmp_path / "run.npz"

    def stop(entry: Iteration) -> None:
        if entry.number == 3:
            raise KeyboardInterrupt

    em = jtgpu.learn.EM(tolerance=0, iterations=6, checkpoint=path)
    fit(net, states, compute=jtgpu.Compute(progress=stop), em=em)
    assert path.exists()
    with pytest.raises(jtgpu.JtgpuError, match="another run: other prior"):
        fit(net, states, pseudo_counts=2, em=em.replaced(resume=True))
    seen: list[Iteration] = []
    found = fit(net, states, em=em.replaced(resume=True), compute=jtgpu.Compute(progress=seen.append))
    assert [entry.number for entry in found.history][-1] == 6
    assert seen[0].number > 3
    assert not path.exists()
    assert found.network == fit(net, states, em=jtgpu.learn.EM(tolerance=0, iterations=6)).network


def test_the_prior_of_a_network_does_not_depend_on_the_order_of_its_variables() -> None:
    states = {v: ["n", "y"] for v in "abc"}
    cpts: dict[str, Any] = {"a": [0.9, 0.1], "b": [0.2, 0.8], "c": [[0.7, 0.3], [0.4, 0.6]]}
    cases = {"a": [*"nny"], "b": [*"yyn"], "c": [*"nyy"]}
    fits = [
        jtgpu.learn.fit(
            {"a": [], "b": [], "c": ["a"]}, cases, pseudo_counts="net:10",
            em=jtgpu.learn.EM(start=jtgpu.BayesianNetwork({v: states[v] for v in order}, {"c": ["a"]}, cpts)),
        ).network
        for order in ("abc", "cba", "bac")
    ]  # fmt: skip
    assert np.asarray(fits[0].cpt("a")) == pytest.approx([11 / 13, 2 / 13])
    for other in fits[1:]:
        for v in "abc":
            assert np.asarray(other.cpt(v)) == pytest.approx(np.asarray(fits[0].cpt(v)), abs=1e-15)


def test_zeros_of_the_start_stay_zero_with_numbers() -> None:
    net = jtgpu.MixedNetwork(
        {"c": ["n", "y"], "d": ["n", "y"], "x": float}, {"d": ["c"], "x": ["c"]},
        {"c": [0.5, 0.5], "d": [[1, 0], [0, 1]], "x": jtgpu.Gaussian([0.0, 5.0])},
    )  # fmt: skip
    data = {"c": ["n", "n", None, "y"], "d": ["n", "n", "y", "y"], "x": [0.1, 0.2, 5.0, None]}
    assert jtgpu.learn.fit(net, data, em=jtgpu.learn.EM(start="given"), pseudo_counts=1).network.cpt("d").tolist() == [
        [1, 0],
        [0, 1],
    ]
    free = jtgpu.learn.fit(net, data, em=jtgpu.learn.EM(start="given", zeros="free"), pseudo_counts=1).network.cpt("d")
    assert free.min() > 0.1
    with pytest.raises(jtgpu.JtgpuError, match="zeros must be 'keep' or 'free'"):
        jtgpu.learn.fit(net, data, em=jtgpu.learn.EM(start="given", zeros="fixed"))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(12))
def test_numbers_without_residual_are_an_error(seed: int) -> None:
    """As many rows as coefficients: the residual is rounding, and which one depends on BLAS."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 4))
    x = rng.normal(size=(m + 1, m)) * 10.0 ** rng.integers(-2, 3, m) + rng.normal(size=m) * 10.0 ** rng.integers(0, 3)
    data = {f"x{i}": x[:, i] for i in range(m)} | {"y": rng.normal(size=m + 1) * 10.0 ** rng.integers(-2, 3) + 50.0}
    with pytest.raises(jtgpu.DataError, match=r"constant, or a function of its parents|collinear"):
        jtgpu.learn.fit(
            {"y": [f"x{i}" for i in range(m)]}, data, continuous=dict.fromkeys(data, "gaussian"), pseudo_counts=0
        )


def test_the_number_of_rows_without_data_is_the_true_one() -> None:
    """T7: at most 1,000 were counted."""
    rng = np.random.default_rng(0)
    data = {f"p{i}": rng.integers(0, 8, 500) for i in range(4)} | {"c": rng.integers(0, 2, 500)}
    fitted = jtgpu.learn.fit({"c": ["p0", "p1", "p2", "p3"]}, data)
    n = 8**4 - len({tuple(row) for row in np.array([data[f"p{i}"] for i in range(4)]).T.tolist()})
    assert fitted.n_empty_rows == {"c": n} == fitted.report()["n_empty_rows"]
    assert f"c ({n:,} of 4,096)" in str(fitted)
    assert len(fitted.empty_rows["c"]) == 1000
    numbers: Any = data | {"x": rng.normal(size=500)}
    mixed = jtgpu.learn.fit({"x": ["p0", "p1", "p2", "p3"]}, numbers, continuous={"x": "gaussian"})
    assert mixed.n_empty_rows == {"x": n}
    assert f"x ({n:,} of 4,096)" in str(mixed)
    assert mixed.report()["parameters"] == sum(card - 1 for card in (8,) * 4) + 2 * 4096


def test_tables_that_are_far_larger_than_the_data() -> None:
    """T9: five parents of 20 values and 5,000 rows took 3.6 GB for a table of the prior."""
    rng = np.random.default_rng(0)
    cards = {"p0": 12, "p1": 12, "p2": 12, "p3": 12, "c": 8}
    data = {v: rng.integers(0, card, 300).astype(str) for v, card in cards.items()}
    structure = {"c": ["p0", "p1", "p2", "p3"]}
    with pytest.warns(UserWarning, match=r"the CPT of 'c' has 20,736 rows, .* the data have 300"):
        jtgpu.learn.fit(structure, data)
    with pytest.raises(jtgpu.TableTooLarge, match=r"more than the limit of 1\.0 MiB; .* of 'c', has 165,888"):
        jtgpu.learn.fit(structure, data, compute=jtgpu.Compute(memory_limit="1MiB"))


@pytest.mark.parametrize("options", [{}, {"continuous": "gaussian"}])
def test_a_structure_without_variables(options: dict[str, Any]) -> None:
    """T10: the error spoke of columns."""
    with pytest.raises(jtgpu.NetworkError, match=r"names no variable; \{'X': \[\]\}"):
        jtgpu.learn.fit({}, {"X": ["a", "b"]}, **options)
    assert (
        jtgpu.learn.structure(
            {"a": ["x", "y"] * 5, "b": ["x", "y"] * 5}, search=jtgpu.learn.Search(start={}), max_parents=0
        ).arcs
        == []
    )
