"""Tensors in device memory: states that are read there, answers that stay there, and their exchange by DLPack."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.backends.gpu.batch import buffers, engine
from jtgpu.device import arrays as dlpack
from jtgpu.device.context import Device, Memory
from jtgpu.errors import BackendUnavailable, EvidenceError, ImpossibleEvidence, TableTooLarge, UnknownState
from tests.backends.gpu.test_counts import two_parts
from tests.backends.test_counts import random_states
from tests.support.emulated.install import emulated_gpu, needs_compiler

__all__ = ["emulated_gpu"]

pytestmark = needs_compiler


class Interface:
    """A tensor of a library that has only ``__cuda_array_interface__``."""

    def __init__(self, address: int, array: np.ndarray, stream: int | None = None):
        self.__cuda_array_interface__ = {
            "shape": array.shape, "typestr": array.dtype.str, "data": (address, False), "strides": None, "version": 3,
            "stream": stream,
        }  # fmt: skip
        self.shape, self.dtype = array.shape, array.dtype


class Exchanged(Interface):
    """A tensor of a library that has DLPack, on a device of some number."""

    def __init__(self, address: int, array: np.ndarray, number: int = 0):
        super().__init__(address, array)
        self._array, self._address, self._number = array, address, number
        self.streams: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self._number

    def __dlpack__(self, *, stream: int | None = None) -> Any:
        assert stream is not None
        self.streams.append(stream)
        a = self._array
        strides, device = dlpack.contiguous_strides(a.shape, a.itemsize), (dlpack.CUDA, self._number)
        return dlpack.make_capsule(dlpack.Tensor(self._address, a.shape, strides, a.dtype, device, lambda: None), self)


class Interfaces(Interface):
    """Its class has the attribute, as those of libraries do."""

    @property
    def __cuda_array_interface__(self) -> Any:
        return self._interface

    @__cuda_array_interface__.setter
    def __cuda_array_interface__(self, value: Any) -> None:
        self._interface = value


@contextmanager
def on_device(gpu: Device, array: np.ndarray) -> Iterator[int]:
    """An array in device memory; its address."""
    with gpu.active():
        memory = Memory(gpu)
        address = memory.put(np.ascontiguousarray(array), gpu.stream())
    yield address
    with gpu.active():
        memory.close()


@pytest.fixture
def net() -> jtgpu.BayesianNetwork:
    return two_parts()


@pytest.mark.parametrize("flops", [2_000_000, -1])  # generated kernels, records
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_states_are_read_on_the_device(
    net: jtgpu.BayesianNetwork, dtype: Any, flops: int, emulated_gpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "GENERATED_FLOPS", flops)
    states = random_states(net, 75, 0.4, 3)
    soft = {"b": np.random.default_rng(1).random((75, 3)) * 1e-40}
    with net.compile("cpu") as tree:
        expected = [tree.posteriors_batch(states, likelihood=w, on_error="flag") for w in (None, soft)]
    on_card: Any
    with net.compile("gpu") as tree, on_device(emulated_gpu, states.astype(dtype)) as address:
        tensor = Exchanged(address, states.astype(dtype))
        for on_card in (Interfaces(address, states.astype(dtype)), tensor):
            for likelihood, theirs in zip((None, soft), expected, strict=True):
                found = tree.posteriors_on_device(on_card, likelihood=likelihood)
                mine = found.to_host()
                np.testing.assert_allclose(mine.flat, theirs.flat, atol=1e-12)
                np.testing.assert_allclose(mine.log_evidence, theirs.log_evidence, atol=1e-10)
                np.testing.assert_array_equal(np.asarray(found["c"]), mine["c"])
                del found
        host = tree.posteriors_batch(tensor, on_error="flag", targets=["c", "a"])
        np.testing.assert_allclose(host["c"], expected[0]["c"], atol=1e-12)
        assert list(host) == ["c", "a"]
        np.testing.assert_allclose(tree.log_likelihood(tensor), expected[0].log_evidence, atol=1e-10)
        with pytest.raises(ImpossibleEvidence, match=r"row \d+: this case has probability 0"):
            tree.posteriors_batch(tensor)
        given = tree.posteriors_on_device(states)  # from the host to the device
        np.testing.assert_array_equal(given.to_host().flat, tree.posteriors_on_device(tensor).to_host().flat)
        del given


def test_chunks_have_the_bits_of_one_call(
    net: jtgpu.BayesianNetwork, emulated_gpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = random_states(net, 1000, 0.4, 3)
    found = []
    for least in (buffers.LARGE, 32):
        monkeypatch.setattr(buffers, "LARGE", least)
        with net.compile("gpu", replan=False) as tree:
            found.append(tree.posteriors_on_device(states, targets=["b"]).to_host())
    np.testing.assert_array_equal(found[0].flat, found[1].flat)
    np.testing.assert_array_equal(found[0].log_evidence, found[1].log_evidence)


@pytest.mark.slow
def test_answers_outlive_the_tree_and_are_freed_with_the_last_array(
    net: jtgpu.BayesianNetwork, emulated_gpu: Device
) -> None:
    with net.compile("gpu") as tree:
        found = tree.posteriors_on_device(random_states(net, 40, 0.4, 3))
        expected = found.to_host()
    lung = found["b"]
    assert lung.__cuda_array_interface__["strides"] == (8 * 10, 8)
    assert found.flat.__cuda_array_interface__["strides"] is None
    capsule = lung.__dlpack__(stream=None)
    address = lung.__cuda_array_interface__["data"][0]
    del found, lung
    gc.collect()
    assert len(dlpack._exported) == 1
    tensor = dlpack.read_capsule(capsule)
    assert (tensor.address, tensor.shape, tensor.strides) == (address, (40, 3), (80, 8))
    assert tensor.device == (dlpack.CUDA, 0)
    with pytest.raises(BufferError, match="has been used"):
        dlpack.read_capsule(capsule)
    with emulated_gpu.active():
        stream, cells = emulated_gpu.stream(), np.empty(39 * 10 + 3)
        emulated_gpu.download(cells, tensor.address, stream)
        stream.synchronize()
        del stream
    read = np.lib.stride_tricks.as_strided(cells, (40, 3), (80, 8))
    np.testing.assert_array_equal(read, expected["b"])
    tensor.release()  # frees the memory, or the fixture fails
    assert not dlpack._exported


def test_a_capsule_that_nobody_takes_is_freed(net: jtgpu.BayesianNetwork, emulated_gpu: Device) -> None:
    with net.compile("gpu") as tree:
        found = tree.posteriors_on_device(random_states(net, 4, 0.4, 3))
        capsule = found.flat.__dlpack__()
        assert len(dlpack._exported) == 1
        del capsule
        assert not dlpack._exported
        with pytest.raises(BufferError, match="not a copy"):
            found.flat.__dlpack__(copy=True)
        assert "4, 10" in repr(found.flat)
        assert "in 4 cases" in repr(found)
        del found


def test_no_memory_is_copied_to_the_host(net: jtgpu.BayesianNetwork, emulated_gpu: Device) -> None:
    states = random_states(net, 64, 0.4, 3)
    with net.compile("gpu") as tree, on_device(emulated_gpu, states) as address:
        tensor = Exchanged(address, states)
        downloads: list[int] = []
        original = Device.download

        def noted(self: Device, array: Any, address: int, stream: Any) -> None:
            downloads.append(array.nbytes)
            original(self, array, address, stream)

        tree.posteriors_on_device(tensor)  # kernels, scratch memory
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Device, "download", noted)
            patch.setattr(Device, "upload", lambda *_: pytest.fail("copied to the device"))
            for _ in range(3):
                tree.posteriors_on_device(tensor)
        assert downloads == [8] * 3  # whether a state is wrong, and a case too improbable
        assert len(set(tensor.streams)) == 1


def test_memory_stays_the_same_over_many_calls(net: jtgpu.BayesianNetwork, emulated_gpu: Device) -> None:
    states = random_states(net, 64, 0.4, 3)
    with net.compile("gpu") as tree, on_device(emulated_gpu, states) as address:
        tensor = Exchanged(address, states)
        free = set()
        for _ in range(30):
            tree.posteriors_on_device(tensor)
            with emulated_gpu.active():
                free.add(emulated_gpu.free_memory())
        assert len(free) == 1
        assert not dlpack._exported


def test_wrong_tensors(net: jtgpu.BayesianNetwork, emulated_gpu: Device) -> None:
    states = random_states(net, 12, 0.4, 3)
    states[7, 1] = 3
    with net.compile("gpu") as tree, on_device(emulated_gpu, states) as address:
        for _ in range(2):
            with pytest.raises(UnknownState, match="neither -1 nor the number of a state"):
                tree.posteriors_on_device(Exchanged(address, states))
        with pytest.raises(EvidenceError, match="is on CUDA device 1, the tree on CUDA device 0"):
            tree.posteriors_on_device(Exchanged(address, states, number=1))
        with pytest.raises(EvidenceError, match=r"shape \(12, 4\), expected \(B, 5\)"):
            tree.posteriors_on_device(Exchanged(address, states[:, :4]))
        with pytest.raises(EvidenceError, match="not float32"):
            tree.posteriors_on_device(Exchanged(address, states.astype(np.float32)))
        strided: Any = Interfaces(address, states)
        strided._interface["strides"] = (8, 4)
        with pytest.raises(EvidenceError, match="not contiguous"):
            tree.posteriors_on_device(strided)
        learned = Exchanged(address, states)
        learned.requires_grad = True  # type: ignore[attr-defined]
        with pytest.raises(EvidenceError, match="requires gradients"):
            tree.posteriors_on_device(learned)
        closed = Exchanged(address, states)
        closed.__class__ = type("Closed", (Exchanged,), {"__dlpack__": _closed})
        with pytest.raises(EvidenceError, match="cannot be read: the tensor was deleted"):
            tree.posteriors_on_device(closed)
        assert len(tree.posteriors_on_device(np.zeros((0, 5), np.int32)).to_host().log_evidence) == 0
    with net.compile("cpu") as tree:
        with pytest.raises(BackendUnavailable, match="backend='cpu'"):
            tree.posteriors_on_device(states)
        with pytest.raises(EvidenceError, match="on CUDA device 0"):
            tree.posteriors_batch(Exchanged(0, states))
    with net.compile("gpu", devices=[0, 1]) as tree, pytest.raises(BackendUnavailable, match="several GPUs"):
        tree.posteriors_on_device(states)


def _closed(self: Any, *, stream: Any = None) -> Any:
    raise RuntimeError("the tensor was deleted")


def test_too_little_memory(
    net: jtgpu.BayesianNetwork, emulated_gpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    with net.compile("gpu") as tree:
        with emulated_gpu.active():
            free = emulated_gpu.free_memory()
        monkeypatch.setattr("jtgpu.backends.gpu.batch.buffers.MEMORY_SHARE", 2000 / free)
        with pytest.raises(TableTooLarge, match="32 cases take"):
            tree.posteriors_on_device(random_states(net, 40, 0.4, 3))

