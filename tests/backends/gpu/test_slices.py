"""Sequences of dynamic networks on a GPU, emulated or (tests/on_gpu) real: the answers of the CPU, the same bits."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.backends.gpu.backend import Gpu
from jtgpu.backends.gpu.slices import engine, kernels, place
from jtgpu.device.context import Device, Memory, device_numbers
from jtgpu.dynamic import posteriors, step
from jtgpu.dynamic.side_by_side import extended_table
from jtgpu.errors import TableTooLarge
from tests.dynamic.random_templates import random_question, random_template
from tests.support.emulated import built
from tests.support.emulated.install import needs_compiler
from tests.support.examples import slow, some

pytestmark = needs_compiler


def only_kernels(patch: pytest.MonkeyPatch) -> None:
    """Refuse slices one after the other."""

    def refuse(*_: object) -> None:
        raise AssertionError("not by the kernels of slices")

    patch.setattr(posteriors, "_slice_by_slice", refuse)


def assert_close(made: Any, expected: Any, variables: Any) -> None:
    np.testing.assert_allclose(made.log_evidence, expected.log_evidence, rtol=1e-12, atol=1e-12)
    for v in variables:
        np.testing.assert_allclose(made[v], expected[v], rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", some(12, 3))
def test_answers_are_those_of_the_cpu(seed: int, gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    dyn = random_template(rng)
    frame, options = random_question(rng, dyn, seed, int(rng.integers(1, 40)))
    options["at"] = [None, "last", [0]][seed % 3]
    if seed % 4 == 2:
        monkeypatch.setattr(engine, "MOST_KEPT", 0)  # messages of some slices are kept
    tree, cpu = dyn.compile("gpu"), dyn.compile("cpu")
    expected = [cpu.filter(frame, **options), cpu.smooth(frame, **options)]
    if not expected[0].impossible.any():
        only_kernels(monkeypatch)
    assert_close(tree.filter(frame, **options), expected[0], dyn)
    assert_close(tree.smooth(frame, **options), expected[1], dyn)
    tree.close()


@pytest.mark.parametrize("seed", [18, *slow(10, 14, 20, 29, 35)])
def test_bits_do_not_depend_on_the_order_of_threads(seed: int, gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    dyn = random_template(rng)
    frame, options = random_question(rng, dyn, seed, int(rng.integers(1, 40)))
    expected = [dyn.compile("cpu").smooth(frame, **options), dyn.compile("cpu").filter(frame, **options)]
    first: Any = None
    with dyn.compile("gpu") as tree:
        for order in range(3):  # where a barrier is missing, it matters
            monkeypatch.setattr(built, "order", order)
            made = [tree.smooth(frame, **options), tree.filter(frame, **options)]
            first = first or made
            for x, same, other in zip(made, first, expected, strict=True):
                assert_close(x, other, dyn)
                for v in dyn:
                    np.testing.assert_array_equal(x[v], same[v])


def lagged() -> jtgpu.DynamicNetwork:
    """Two hidden variables, one of them with two lags, and observations."""
    rng = np.random.default_rng(4)
    states = {"a": ["0", "1", "2"], "b": ["0", "1"], "x": ["0", "1", "2"], "y": ["0", "1"]}
    parents: dict[str, Any] = {"a": [("a", 1)], "b": [("b", 1), ("b", 2), "a"], "x": ["a"], "y": ["a", "b"]}
    shapes = {"a": (3, 3), "b": (2, 2, 3, 2), "x": (3, 3), "y": (3, 2, 2)}
    cpts = {v: rng.dirichlet(np.ones(s[-1]), s[:-1]) for v, s in shapes.items()}
    first = [rng.dirichlet(np.ones(2), s) for s in ((3,), (2, 3))]
    return jtgpu.DynamicNetwork(states, parents, cpts, start={"a": [0.2, 0.3, 0.5], "b": first})


def holes(n: int, length: int) -> np.ndarray:
    """(n, length, 4) observations of `lagged`, some missing."""
    rng = np.random.default_rng(5)
    codes = np.full((n, length, 4), -1)
    codes[:, :, 2], codes[:, :, 3] = rng.integers(0, 3, (n, length)), rng.integers(0, 2, (n, length))
    codes[rng.random(codes.shape) < 0.3] = -1
    return codes


@pytest.mark.parametrize("shared", [1024, 3000, 1 << 17])
def test_tables_in_shared_or_in_global_memory(shared: int, gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (engine, kernels):
        monkeypatch.setattr(module, "most_shared", lambda _: shared + 1024)
    only_kernels(monkeypatch)
    dyn = lagged()
    tree, cpu, codes = dyn.compile("gpu"), dyn.compile("cpu"), holes(70, 9)
    for name in ("filter", "smooth"):
        assert_close(getattr(tree, name)(codes), getattr(cpu, name)(codes), dyn)
    tree.close()


def test_bits_depend_neither_on_groups_nor_on_devices(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    only_kernels(monkeypatch)
    dyn, codes = lagged(), holes(150, 7)
    found = []
    sizes: Any = ((1 << 16, 1 << 30, None), (64, 1 << 30, None), (1 << 16, 0, None), (32, 0, "two"))
    for group, kept, devices in sizes:
        monkeypatch.setattr(engine, "MOST_GROUP", group)
        monkeypatch.setattr(engine, "LEAST_GROUP", group)
        monkeypatch.setattr(engine, "MOST_KEPT", kept)
        tree = dyn.compile("gpu", devices=device_numbers("all")[:2] if devices else None)
        found += [tree.smooth(codes), tree.smooth(codes[::-1])]
        tree.close()
    for i, other in enumerate(found[1:], 1):
        turn = slice(None, None, -1 if i % 2 else 1)
        np.testing.assert_array_equal(other.log_evidence[turn], found[0].log_evidence)
        for v in dyn:
            np.testing.assert_array_equal(other[v][turn], found[0][v])


@pytest.mark.parametrize(
    ("what", "targets"), [("ring", "some"), ("parts", "all"), *slow(("chain", "all"), ("chain", "some"))]
)
def test_rings_chains_and_parts(what: str, targets: str, gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    only_kernels(monkeypatch)
    rng = np.random.default_rng(7)
    dyn = {"ring": ring(3), "chain": chain(), "parts": parts()}[what]
    hidden = [v for v in dyn if v.startswith("h")]
    codes = rng.integers(0, 2, (40, 6, len(dyn)))
    codes[:, :, [dyn.index(v) for v in hidden]] = -1
    if targets == "all":
        codes[rng.random(codes.shape) < 0.3] = -1
    options: Any = {"targets": hidden} if targets == "some" else {}
    with dyn.compile("gpu") as tree:
        cpu, variables = dyn.compile("cpu"), options.get("targets", dyn)
        assert_close(tree.smooth(codes, **options), cpu.smooth(codes, **options), variables)
        assert_close(tree.filter(codes, **options), cpu.filter(codes, **options), variables)
        assert_close(tree.filter(codes, at="last"), cpu.filter(codes, at="last"), dyn)


def ring(n: int = 4, least: int = 2) -> jtgpu.DynamicNetwork:
    """Hidden variables whose parents are themselves and their left neighbour, one slice earlier; observations."""
    rng = np.random.default_rng(3)
    states = {f"h{i}": ["0", "1", "2"][: max(2 + i % 2, least)] for i in range(n)}
    states |= {f"o{i}": ["0", "1"] for i in range(n)}
    size = {v: len(s) for v, s in states.items()}
    parents: dict[str, Any] = {f"h{i}": [(f"h{(i - 1) % n}", 1), (f"h{i}", 1)] for i in range(n)}
    parents |= {f"o{i}": [f"h{i}"] for i in range(n)}
    cpts = {}
    for v, given in parents.items():
        shape = [size[p if isinstance(p, str) else p[0]] for p in given]
        cpts[v] = rng.dirichlet(np.ones(size[v]), shape)
    start = {f"h{i}": rng.dirichlet(np.ones(size[f"h{i}"])) for i in range(n)}
    return jtgpu.DynamicNetwork(states, parents, cpts, start=start)


def chain() -> jtgpu.DynamicNetwork:
    """A hidden Markov model of 8 states."""
    rng = np.random.default_rng(1)
    cpts = {"h": rng.dirichlet(np.ones(8), 8), "o": rng.dirichlet(np.ones(3), 8)}
    states = {"h": [*"01234567"], "o": ["a", "b", "c"]}
    return jtgpu.DynamicNetwork(states, {"h": [("h", 1)], "o": ["h"]}, cpts, start={"h": rng.dirichlet(np.ones(8))})


def parts() -> jtgpu.DynamicNetwork:
    """A chain, and variables of each slice that have nothing to do with it."""
    rng = np.random.default_rng(2)
    states = {"h": ["0", "1", "2"], "o": ["0", "1"], "x": ["0", "1"], "y": ["0", "1", "2"]}
    cpts = {v: rng.dirichlet(np.ones(n), s) for v, n, s in (("h", 3, 3), ("o", 2, 3), ("x", 2, 1), ("y", 3, 2))}
    cpts["x"] = cpts["x"][0]
    start = {"h": rng.dirichlet(np.ones(3))}
    return jtgpu.DynamicNetwork(states, {"h": [("h", 1)], "o": ["h"], "y": ["x"]}, cpts, start=start)


def test_slices_that_are_dropped_are_closed(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "MOST_VARIANTS", 2)
    only_kernels(monkeypatch)
    closed, close = list[int](), Gpu.close

    def counted(backend: Gpu) -> None:
        closed.append(1)
        close(backend)

    monkeypatch.setattr(Gpu, "close", counted)
    dyn, codes = lagged(), holes(20, 6)
    with dyn.compile("gpu") as tree:
        for t in range(4):
            do = {"a": dict.fromkeys(range(t + 1), "1"), "b": {t: "0"}}
            expected = dyn.compile("cpu").smooth(codes, do=do, on_error="flag")
            assert_close(tree.smooth(codes, do=do, on_error="flag"), expected, dyn)
        gc.collect()
        assert len(closed) >= 4
    gc.collect()


def test_answers_come_through_buffers(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    only_kernels(monkeypatch)
    for name, size in (("LARGE", 1), ("BUFFER", 60), ("SHARE", 16)):
        monkeypatch.setattr(place, name, size)
    dyn, codes = lagged(), holes(50, 6)
    with dyn.compile("gpu") as tree:
        for _ in range(2):
            assert_close(tree.smooth(codes), dyn.compile("cpu").smooth(codes), dyn)
    monkeypatch.setattr(place, "Memory", Unlocked)
    with dyn.compile("gpu") as tree:
        assert_close(tree.smooth(codes), dyn.compile("cpu").smooth(codes), dyn)


class Unlocked(Memory):
    """Memory where the system locks no more pages."""

    def host(self, *_: object) -> Any:
        raise TableTooLarge("no page can be locked", needed=1)


def test_improbable_and_impossible_sequences_are_those_of_the_cpu(gpu: Device) -> None:
    dyn = lagged()
    codes = holes(40, 6)
    soft = np.random.default_rng(1).random((40, 6, 3)) + 0.1
    soft[3, 2] *= 1e-300
    soft[7, 4] = [1e-290, 0.0, 1e-300]
    codes[7, 4, 2] = -1
    soft[9, 1] = 0.0
    tree, cpu = dyn.compile("gpu"), dyn.compile("cpu")
    for name in ("filter", "smooth"):
        made, expected = (
            getattr(t, name)(codes, likelihood={"x": soft}, on_error="flag") for t in (tree, cpu)
        )
        assert_close(made, expected, dyn)
    with pytest.raises(jtgpu.ImpossibleEvidence, match="slice 1"):
        tree.filter(codes, likelihood={"x": soft})
    tree.close()


def test_evidence_too_improbable_for_a_slice_without_scaling(gpu: Device) -> None:
    names = {"h": ["0", "1"], **{f"o{i}": ["0", "1"] for i in range(12)}}
    parents: dict[str, Any] = {"h": [("h", 1)], **{f"o{i}": ["h"] for i in range(12)}}
    cpts: dict[str, Any] = {"h": [[0.7, 0.3], [0.4, 0.6]]}
    cpts |= {f"o{i}": [[1e-40, 1 - 1e-40], [2e-40, 1 - 2e-40]] for i in range(12)}
    dyn = jtgpu.DynamicNetwork(names, parents, cpts, start={"h": [0.5, 0.5]})
    codes = np.zeros((3, 4, 13), int)
    codes[:, :, 0] = -1
    codes[1, :, 1:] = 1
    tree, cpu = dyn.compile("gpu"), dyn.compile("cpu")
    for name in ("filter", "smooth"):
        assert_close(getattr(tree, name)(codes), getattr(cpu, name)(codes), dyn)
    tree.close()


def test_counts_of_improbable_sequences_are_those_of_the_cpu(gpu: Device) -> None:
    dyn, codes = lagged(), holes(12, 4)
    soft = np.random.default_rng(1).random((12, 4, 3)) + 0.1
    soft[7, 2] = [1e-290, 0.0, 1e-300]
    codes[7, 2, 2] = -1
    options: Any = {
        "em": jtgpu.learn.EM(start="given", iterations=2, tolerance=0),
        "hidden": ["a", "b"],
        "likelihood": {"x": soft},
    }
    fits = [jtgpu.learn.fit(dyn, codes, compute=b, **options) for b in ("gpu", "cpu")]
    for v in dyn:
        np.testing.assert_allclose(fits[0].network.cpt(v), fits[1].network.cpt(v), atol=1e-9)


def test_other_questions_on_a_gpu_have_the_answers_of_the_cpu(gpu: Device) -> None:
    dyn, codes = lagged(), holes(20, 5)
    tree, cpu = dyn.compile("gpu"), dyn.compile("cpu")
    joints = [("a[t]", "b[t]"), ("y[t]", "x[t]")]
    made, expected = tree.smooth(codes, joints=joints), cpu.smooth(codes, joints=joints)
    for key in expected.joint:
        np.testing.assert_allclose(made.joint[key], expected.joint[key], rtol=0, atol=1e-12)
    np.testing.assert_allclose(tree.mpe(codes).log_joint, cpu.mpe(codes).log_joint, rtol=1e-12)
    np.testing.assert_allclose(tree.log_likelihood(codes), cpu.log_likelihood(codes), rtol=1e-12)
    assert tree.sample(2, codes, seed=1).states.shape == (2, 20, 5, 4)
    fits = [
        jtgpu.learn.fit(
            dyn, codes, em=jtgpu.learn.EM(start="given", iterations=3, tolerance=0), compute=b, hidden=["a", "b"]
        )
        for b in ("gpu", "cpu")
    ]
    for v in dyn:
        np.testing.assert_allclose(fits[0].network.cpt(v), fits[1].network.cpt(v), atol=1e-9)
    tree.close()


def test_a_message_that_passes_a_slice_unchanged(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    only_kernels(monkeypatch)
    states = {"s": ["0", "1", "2"], "x": ["0"], "y": ["0", "1"]}
    cpts: dict[str, Any] = {"s": [0.2, 0.3, 0.5], "x": [[1.0]], "y": [[[0.1, 0.9]], [[0.7, 0.3]], [[0.4, 0.6]]]}
    parents: dict[str, Any] = {"x": [("x", 1)], "y": ["s", "x"]}
    dyn = jtgpu.DynamicNetwork(states, parents, cpts, start={"x": [1.0]}, static=["s"])
    codes = np.full((5, 4, 3), -1)
    codes[:, :, 2] = np.random.default_rng(0).integers(-1, 2, (5, 4))
    with dyn.compile("gpu") as tree, dyn.compile("cpu") as cpu:
        for name in ("filter", "smooth"):
            assert_close(getattr(tree, name)(codes), getattr(cpu, name)(codes), dyn)


def static_class(error: float) -> jtgpu.DynamicNetwork:
    """A state that never changes, and a sensor that is wrong with some probability."""
    cpts: Any = {"s": np.eye(2), "x": [[1 - error, error], [error, 1 - error]]}
    states = {"s": ["n", "y"], "x": ["A", "B"]}
    return jtgpu.DynamicNetwork(states, {"s": [("s", 1)], "x": ["s"]}, cpts, start={"s": [0.5, 0.5]})


def test_a_state_that_comes_back(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its message falls below 1e-308 of the other one's: noticed on the device, computed in extended numbers."""
    again: list[int] = []

    def noted(step: Any, some: Any, *rest: Any) -> Any:
        again.append(some.n)
        return extended_table(step, some, *rest)

    monkeypatch.setattr(posteriors, "extended_table", noted)
    firsts, length = [341, 682, 1023, 520, 0], 1023
    codes = np.array([[[-1, int(t >= k)] for t in range(length)] for k in firsts])
    with static_class(0.1).compile("gpu") as tree:
        for found in (tree.filter(codes, at="last"), tree.smooth(codes, at="last"), tree.smooth(codes, at=[0, 500])):
            for i, k in enumerate(firsts):
                logs = np.log(0.5) + np.array([k, length - k]) * np.log(0.9) + np.array([length - k, k]) * np.log(0.1)
                log_evidence = np.logaddexp(*logs)
                assert found.log_evidence[i] == pytest.approx(log_evidence, rel=1e-12)
                last = found["s"][i] if found["s"].ndim == 2 else found["s"][i, -1]
                np.testing.assert_allclose(last, np.exp(logs - log_evidence), atol=1e-12)
        assert again == [3, 3, 3]  # what the others lost is far below the state that is left
        again.clear()
        ordinary = np.full((5, 200, 2), -1)
        ordinary[..., 1] = np.arange(200) % 2
        tree.smooth(ordinary)
        assert not again
        # without the bound nothing is noticed, and the wrong state is certain
        monkeypatch.setattr("jtgpu.backends.gpu.slices.group.LEAST_PRODUCT", -1e6)
        assert tree.filter(codes, at="last")["s"][0, 0] == 1.0


def test_impossible_sequences_that_are_shorter_than_others(gpu: Device) -> None:
    states = {"x": ["a", "b"], "y": ["0", "1", "2"]}
    parents: Any = {"x": [("x", 1)], "y": ["x"]}
    cpts: Any = {"x": [[0.9, 0.1], [0.2, 0.8]], "y": [[0.5, 0.5, 0.0], [0.3, 0.7, 0.0]]}
    dyn = jtgpu.DynamicNetwork(states, parents, cpts, start={"x": [0.5, 0.5]})
    codes = [np.array([[-1, 0], [-1, 1], [-1, 0], [-1, 1]]), np.array([[-1, 0], [-1, 2]])]  # computed again: the second
    with dyn.compile("gpu") as tree, dyn.compile("cpu") as cpu:
        made, expected = (t.smooth(codes, on_error="flag") for t in (tree, cpu))
    assert made.impossible.tolist() == expected.impossible.tolist() == [False, True]
    assert_close(made, expected, dyn)
