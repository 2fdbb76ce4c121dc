"""Tensors of PyTorch, CuPy and JAX on a GPU: cases that are read there, answers that stay there."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

from jtgpu.device.context import Device
from jtgpu.errors import EvidenceError, UnknownState
from tests.support.bundled import bundled


def rows(name: str, n: int) -> np.ndarray:
    """Rows of a network, most cells missing."""
    states = bundled(name).compile("cpu").sample(n, seed=3).states.astype(np.int8)
    states[np.random.default_rng(4).random(states.shape) < 0.7] = -1
    return states


@pytest.fixture
def torch() -> Any:
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("PyTorch has no GPU")
    return found


def test_tensors_of_pytorch(gpu: Device, torch: Any) -> None:
    states = rows("alarm", 5_000)
    net = bundled("alarm")
    with net.compile("cpu") as tree:
        expected = tree.posteriors_batch(states)
    given: Any = None
    flat: Any = None
    with net.compile("gpu", device=gpu.ordinal) as tree:
        for dtype in (torch.int8, torch.int64):
            given = torch.from_numpy(states).to(f"cuda:{gpu.ordinal}", dtype)
            side = torch.cuda.Stream(gpu.ordinal)
            with torch.cuda.stream(side):  # work of the producer that is still running
                late = torch.full_like(given, -1)
                torch.cuda._sleep(20_000_000)
                late.copy_(given)
                found = tree.posteriors_on_device(late)
            flat, log_evidence = torch.from_dlpack(found.flat), torch.from_dlpack(found.log_evidence)
            one = torch.from_dlpack(found["LVFAILURE"])
            assert flat.is_cuda
            assert flat.data_ptr() == found.flat.__cuda_array_interface__["data"][0]
            del found
            np.testing.assert_allclose(flat.cpu().numpy(), expected.flat, atol=1e-11)
            np.testing.assert_allclose(log_evidence.cpu().numpy(), expected.log_evidence, atol=1e-10)
            np.testing.assert_array_equal(one.cpu().numpy(), flat.cpu().numpy()[:, _columns(net, "LVFAILURE")])
        host = tree.posteriors_batch(given)
        np.testing.assert_array_equal(host.flat, flat.cpu().numpy())
        with pytest.raises(EvidenceError, match="not contiguous"):
            tree.posteriors_on_device(given.t().contiguous().t())
        wrong = given.clone()
        wrong[17, 3] = 100
        with pytest.raises(UnknownState, match="neither -1 nor"):
            tree.posteriors_on_device(wrong)


def _columns(net: Any, variable: str) -> slice:
    ends = np.cumsum([0, *net.cardinality])
    v = net.index(variable)
    return slice(int(ends[v]), int(ends[v + 1]))


def _imported(name: str) -> Any:
    """The module, or None where it is not installed."""
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


def test_arrays_of_cupy_and_jax(gpu: Device) -> None:
    states = rows("asia", 300)
    with bundled("asia").compile("gpu", device=gpu.ordinal) as tree:
        expected = tree.posteriors_batch(states)
        seen = 0
        if cupy := _imported("cupy"):
            with cupy.cuda.Device(gpu.ordinal):
                found = tree.posteriors_on_device(cupy.asarray(states))
                np.testing.assert_allclose(cupy.asnumpy(cupy.from_dlpack(found.flat)), expected.flat, atol=1e-12)
                seen += 1
        jax = _imported("jax")
        if jax and jax.default_backend() == "gpu":
            given = jax.device_put(states, jax.devices()[gpu.ordinal])
            found = tree.posteriors_on_device(given)
            jax.config.update("jax_enable_x64", True)
            np.testing.assert_allclose(np.asarray(jax.dlpack.from_dlpack(found.flat)), expected.flat, atol=1e-12)
            seen += 1
        if not seen:
            pytest.skip("there is neither CuPy nor JAX with a GPU")


@pytest.mark.alone
def test_memory_stays_the_same_over_many_calls(gpu: Device, torch: Any) -> None:
    states = torch.from_numpy(rows("asia", 64)).to(f"cuda:{gpu.ordinal}")
    with bundled("asia").compile("gpu", device=gpu.ordinal) as tree:
        free = []
        found: Any = None
        for i in range(3_000):
            found = torch.from_dlpack(tree.posteriors_on_device(states).flat)
            if i % 1_000 == 10:
                with gpu.active():
                    free.append(gpu.free_memory())
        del found
        assert max(free) - min(free) <= 2 << 20
