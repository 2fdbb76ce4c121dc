"""Derivatives by CPTs and likelihoods: against differences, and as functions of PyTorch and JAX."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import EvidenceError, ImpossibleEvidence, JtgpuError, NetworkError
from tests.support.bundled import bundled

STEP = 1e-5


def tree_and_cases(name: str = "cancer", backend: Any = "reference") -> tuple[jtgpu.JunctionTree, np.ndarray]:
    """A tree, and four cases with missing cells."""
    tree = bundled(name).compile(backend)
    states = tree.sample(4, seed=1).states.astype(np.int32)
    states[np.random.default_rng(0).random(states.shape) < 0.6] = -1
    return tree, states


def differences(function: Any, table: np.ndarray) -> np.ndarray:
    """Derivatives of a number by the entries of a table; central where the entry is above 0."""
    found = np.zeros(table.shape)
    for i in np.ndindex(table.shape):
        up, down = table.copy(), table.copy()
        up[i] += STEP
        down[i] -= STEP if table[i] > 0 else 0.0
        found[i] = (function(up) - function(down)) / (up[i] - down[i])
    return found


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_gradients_are_differences(backend: Any) -> None:
    tree, states = tree_and_cases("asia", backend)  # P(either | tub, lung) has zeros
    rng = np.random.default_rng(3)
    states[0, tree.model.index("lung")] = -1
    function = tree.evidence_function(states)
    likelihood = {"lung": rng.random((4, 2)), "xray": rng.random((4, 2))}
    likelihood["lung"][0, 0] = 0.0
    weights = rng.normal(size=4)
    cotangents = {"bronc": rng.normal(size=(4, 2)), "lung": rng.normal(size=(4, 2))}
    by_evidence = function.gradient(weights, likelihood=likelihood)
    by_posterior = function.posterior_gradient(cotangents, likelihood=likelihood)

    def evidence(cpts: Any, likelihood: Any) -> float:
        return float(weights @ function.log_evidence(cpts, likelihood))

    def posterior(cpts: Any, likelihood: Any) -> float:
        found = function.posteriors([*cotangents], cpts, likelihood)
        return sum(float((g * p).sum()) for g, p in zip(cotangents.values(), found, strict=True))

    assert isinstance(tree.model, jtgpu.BayesianNetwork)
    for v in ("smoke", "either", "dysp"):
        table = np.array(tree.model.cpt(v))
        for number, found in ((evidence, by_evidence), (posterior, by_posterior)):
            expected = differences(lambda t, n=number, v=v: n({v: t}, likelihood), table)
            np.testing.assert_allclose(found.cpts[v], expected, rtol=2e-3, atol=2e-4)
    for v in likelihood:
        for number, found in ((evidence, by_evidence), (posterior, by_posterior)):
            expected = differences(lambda t, n=number, v=v: n(None, {**likelihood, v: t}), likelihood[v])
            np.testing.assert_allclose(found.likelihood[v], expected, rtol=2e-3, atol=2e-4)


def test_gradients_of_impossible_cases_are_zero() -> None:
    net = jtgpu.network("a->b", "{x|y}", cpts={"a": [1.0, 0.0], "b": [[0.5, 0.5], [0.3, 0.7]]})
    tree, cases = net.compile("reference"), [{"a": "y"}, {"b": "y"}]
    function = tree.evidence_function(cases, on_error="flag")
    assert function.log_evidence().tolist() == [-np.inf, np.log(0.5)]
    found = function.gradient([1.0, 0.0], likelihood={"b": [1.0, 1.0]})
    assert not any(g.any() for g in (*found.cpts.values(), *found.likelihood.values()))
    assert function.gradient(variables=["a"]).cpts["a"].tolist() == pytest.approx([1.0, 1.4])  # an entry of 0, too
    with pytest.raises(ImpossibleEvidence, match="row 0: this evidence has probability 0: a = 'y'"):
        tree.evidence_function(cases).log_evidence()


def test_wrong_arguments() -> None:
    tree, states = tree_and_cases()
    function = tree.evidence_function(states)
    with pytest.raises(EvidenceError, match=r"the CPT of 'Smoker' has shape \(3,\), expected \(2,\)"):
        function.gradient(cpts={"Smoker": [0.2, 0.3, 0.5]})
    with pytest.raises(EvidenceError, match="must have finite entries >= 0"):
        function.log_evidence({"Smoker": [0.2, np.nan]})
    with pytest.raises(jtgpu.UnknownVariable, match="Smoke"):
        function.log_evidence({"Smoke": [0.2, 0.8]})
    with pytest.raises(EvidenceError, match="have the wrong shape"):
        function.posterior_gradient({"Smoker": [[1.0, 2.0]]})
    markov = jtgpu.MarkovNetwork({"a": ["x", "y"]}, [(["a"], [1.0, 2.0])])
    with pytest.raises(NetworkError, match="Bayesian"):
        markov.compile("reference").evidence_function([{}])


# PyTorch ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="PyTorch is not installed")


def parameters(torch: Any, tree: Any, *names: str) -> list[Any]:
    """CPTs as tensors that require gradients."""
    return [torch.from_dlpack(np.array(tree.model.cpt(v))).clone().requires_grad_() for v in names]


def test_gradcheck_of_pytorch(torch: Any) -> None:
    from jtgpu.interop import torch as bridge

    tree, states = tree_and_cases()
    names = ("Cancer", "Smoker")
    states[:, tree.model.index("Xray")] = -1
    weights = torch.rand(4, 2, dtype=torch.float64, requires_grad=True)
    shared = torch.rand(2, dtype=torch.float64, requires_grad=True)

    def given(*tables: Any) -> tuple[Any, Any]:
        return dict(zip(names, tables[:2], strict=True)), {"Xray": tables[2], "Dyspnoea": tables[3]}

    inputs = (*parameters(torch, tree, *names), weights, shared)
    assert torch.autograd.gradcheck(lambda *t: bridge.log_evidence(tree, states, *given(*t)), inputs)
    assert torch.autograd.gradcheck(
        lambda *t: tuple(bridge.posteriors(tree, states, ["Pollution", "Xray"], *given(*t)).values()), inputs
    )


def test_double_backward_is_refused(torch: Any) -> None:
    from jtgpu.interop import torch as bridge

    tree, states = tree_and_cases()
    (table,) = parameters(torch, tree, "Cancer")
    total = bridge.log_evidence(tree, states, {"Cancer": table}).sum()
    (slope,) = torch.autograd.grad(total, table, create_graph=True)
    with pytest.raises(JtgpuError, match="no second derivatives"):
        slope.sum().backward()


def test_likelihoods_of_a_network_train(torch: Any) -> None:
    """A sensor's likelihoods, made by a linear layer, learn to say what the other findings imply."""
    from jtgpu.interop import torch as bridge

    torch.manual_seed(0)
    tree = bundled("asia").compile("reference")
    states = tree.sample(16, seed=2).states.astype(np.int32)
    v = tree.model.index("smoke")
    signal = torch.from_dlpack(np.eye(2)[states[:, v]])
    states[:, v] = -1
    layer = torch.nn.Linear(2, 2, dtype=torch.float64)
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.2)
    losses = []
    for _ in range(15):
        optimiser.zero_grad()
        found = bridge.posteriors(tree, states, "smoke", likelihood={"smoke": layer(signal).softmax(-1)})["smoke"]
        loss = -(found * signal).sum(-1).log().mean()
        loss.backward()
        optimiser.step()
        losses.append(float(loss))
    assert losses[-1] < 0.2 * losses[0]


def test_wrong_tensors(torch: Any) -> None:
    from jtgpu.interop import torch as bridge

    tree, states = tree_and_cases()
    table = torch.ones(2, dtype=torch.float64, requires_grad=True)
    with pytest.raises(EvidenceError, match=r"'Smoker' must be a tensor, not str"):
        bridge.log_evidence(tree, states, {"Smoker": "no"})
    with pytest.raises(EvidenceError, match=r"has dtype torch\.bool"):
        bridge.log_evidence(tree, states, {"Smoker": torch.ones(2, dtype=torch.bool)})
    with pytest.raises(EvidenceError, match=r"requires gradients.*jtgpu\.interop\.torch"):
        tree.posteriors_batch(states, likelihood={"Smoker": table})
    with pytest.raises(EvidenceError, match="cases: the tensor requires gradients"):
        tree.posteriors_batch(torch.zeros(2, 5, requires_grad=True))
    assert bridge.posteriors(tree, states, []) == {}
    with pytest.raises(ImpossibleEvidence):
        bridge.log_evidence(tree, [{"Smoker": "True"}], {"Smoker": torch.zeros(2, dtype=torch.float64)})


# JAX --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def jax() -> Iterator[Any]:
    found: Any = pytest.importorskip("jax", reason="JAX is not installed")
    before = found.config.jax_enable_x64
    found.config.update("jax_enable_x64", True)
    yield found
    found.config.update("jax_enable_x64", before)


def test_gradients_of_jax(jax: Any) -> None:
    from jtgpu.interop import jax as bridge

    tree, states = tree_and_cases()
    states[:, tree.model.index("Xray")] = -1
    function = tree.evidence_function(states)
    weights = np.random.default_rng(1).random((4, 2))
    tables = {"Cancer": np.array(bundled("cancer").cpt("Cancer"))}
    expected = function.gradient(cpts=tables, likelihood={"Xray": weights}, variables=["Cancer"])

    def total(cpts: Any, likelihood: Any) -> Any:
        return bridge.log_evidence(tree, states, cpts, likelihood).sum()

    found = jax.jit(jax.grad(total, argnums=(0, 1)))(tables, {"Xray": weights})
    np.testing.assert_allclose(found[0]["Cancer"], expected.cpts["Cancer"], rtol=1e-12)
    np.testing.assert_allclose(found[1]["Xray"], expected.likelihood["Xray"], rtol=1e-12)

    def mean(cpts: Any) -> Any:
        return bridge.posteriors(tree, states, ["Pollution"], cpts)["Pollution"][:, 0].sum()

    (one, _), zero = np.eye(2), np.zeros((4, 2))
    expected = function.posterior_gradient({"Pollution": zero + one}, tables, variables=["Cancer"])
    np.testing.assert_allclose(jax.grad(mean)(tables)["Cancer"], expected.cpts["Cancer"], rtol=1e-10, atol=1e-14)
    with pytest.raises(JtgpuError, match="no second derivatives"):
        jax.grad(lambda c: jax.grad(mean)(c)["Cancer"].sum())(tables)


def test_jax_without_64_bits_has_float32(jax: Any) -> None:
    from jtgpu.interop import jax as bridge

    jax.config.update("jax_enable_x64", False)
    tree, states = tree_and_cases()
    found = bridge.log_evidence(tree, states, likelihood={"Xray": jax.numpy.array([0.5, 0.5])})
    assert found.dtype == np.float32
    plain = tree.log_likelihood(states, likelihood={"Xray": [0.5, 0.5]})
    np.testing.assert_allclose(np.asarray(found), plain, rtol=1e-6)
