"""Tensors as tables of cases, likelihoods and weights: by DLPack, without a copy where the layout allows."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

import numpy as np
import pytest

import jtgpu
from jtgpu.columns import arrow, as_array, is_tensor, read_states
from jtgpu.errors import EvidenceError
from jtgpu.learn import fit
from tests.support.bundled import bundled


class Tensor:
    """An array that can be read by DLPack only."""

    def __init__(self, array: np.ndarray, device: tuple[int, int] = (1, 0), requires_grad: bool = False):
        self.array, self.device, self.requires_grad = array, device, requires_grad
        self.dtype = array.dtype

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


class OnDevice:
    """An array of a library without DLPack, such as PyCUDA."""

    __cuda_array_interface__: ClassVar[Any] = {"shape": (2, 2), "typestr": "<i4", "data": (0, False), "version": 3}


def tree_and_states() -> tuple[jtgpu.JunctionTree, np.ndarray]:
    tree = bundled("cancer").compile("reference")
    states = tree.sample(6, seed=1).states.astype(np.int32)
    states[::2, 1] = -1
    return tree, states


def test_contiguous_int32_is_not_copied() -> None:
    tree, states = tree_and_states()
    found, table = read_states(tree.model, Tensor(states))
    assert table is None
    assert np.shares_memory(found, states)
    assert not np.shares_memory(read_states(tree.model, Tensor(states.astype(np.int64)))[0], states)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.float32])
def test_answers_are_those_of_the_array(dtype: Any) -> None:
    tree, states = tree_and_states()
    rng = np.random.default_rng(0)
    weights, likelihood = rng.random(6), {"Xray": rng.random((6, 2))}
    soft = {v: Tensor(w) for v, w in likelihood.items()}
    cases = Tensor(states.astype(dtype))
    plain, found = (tree.posteriors_batch(c, likelihood=w) for c, w in ((states, likelihood), (cases, soft)))
    np.testing.assert_array_equal(found.flat, plain.flat)
    np.testing.assert_array_equal(tree.log_likelihood(cases, likelihood=soft), plain.log_evidence)
    counts = tree.expected_counts(states, weights=weights, likelihood=likelihood)
    own = tree.expected_counts(cases, weights=Tensor(weights), likelihood=soft)
    for v in counts:
        np.testing.assert_array_equal(own[v], counts[v])
    by_name = {v: Tensor(np.ascontiguousarray(states[:, i].astype(dtype))) for i, v in enumerate(tree.model.variables)}
    np.testing.assert_array_equal(tree.log_likelihood(by_name), tree.log_likelihood(states))


def test_answers_are_read_by_dlpack_without_a_copy() -> None:
    tree, states = tree_and_states()
    found = tree.posteriors_batch(states)
    assert np.shares_memory(np.from_dlpack(found.flat), found.flat)
    assert np.shares_memory(np.from_dlpack(found["Xray"]), found.flat)


def test_fit_takes_tensors() -> None:
    tree, states = tree_and_states()
    assert fit(tree.model, Tensor(states)).network == fit(tree.model, states).network


def test_copies_are_logged_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, states = tree_and_states()
    monkeypatch.setattr(arrow, "_logged", set())
    logger = logging.getLogger("jtgpu")  # libraries of other tests configure logging for the whole process
    monkeypatch.setattr(logger, "disabled", False)
    monkeypatch.setattr(logger, "propagate", True)
    with caplog.at_level(logging.INFO, "jtgpu"):
        for _ in range(3):
            tree.log_likelihood(Tensor(states.astype(np.int64)))
            tree.log_likelihood(Tensor(np.asfortranarray(states)))
            tree.log_likelihood(Tensor(states))
    assert [r.message.partition(";")[0] for r in caplog.records if "tensor" in r.message] == [
        "cases: the tensor is copied because of its dtype int64", "cases: the tensor is copied because of its strides"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("cases", "text"),
    [
        (Tensor(np.zeros((2, 5), np.int32), (2, 1)), "cases: the tensor is on CUDA device 1, but tables are read from"),
        (OnDevice(), "cases: the tensor is on a CUDA device"),
        (Tensor(np.zeros((2, 5)), requires_grad=True), "cases: the tensor requires gradients"),
        (Tensor(np.zeros((2, 5), np.complex64)), "column 'Pollution' has dtype complex64"),
        (Tensor(np.zeros((2, 4), np.int32)), r"cases has shape \(2, 4\), expected \(n_cases, 5\)"),
        (Tensor(np.zeros(5, np.int32)), r"cases has shape \(5,\)"),
        (Tensor(np.array([["a"] * 5])), "this Tensor of dtype <U1 cannot be read by DLPack"),
    ],
)
def test_wrong_tensors(cases: Any, text: str) -> None:
    tree, _ = tree_and_states()
    with pytest.raises(EvidenceError, match=text):
        tree.posteriors_batch(cases)
    with pytest.raises(EvidenceError, match="likelihood"):
        tree.posteriors_batch([{}] * 2, likelihood={"Xray": cases})


def test_jax_arrays() -> None:
    jax: Any = pytest.importorskip("jax", reason="JAX is not installed")
    tree, states = tree_and_states()
    array = jax.device_put(states, jax.devices("cpu")[0])  # the default device may be a GPU
    assert is_tensor(array)
    pointers = [x.__array_interface__["data"][0] for x in (as_array(array, "cases"), read_states(tree.model, array)[0])]
    assert pointers[0] == pointers[1] == array.unsafe_buffer_pointer()
    found = tree.posteriors_batch(array)
    np.testing.assert_array_equal(found.flat, tree.posteriors_batch(states).flat)
    np.testing.assert_allclose(np.asarray(jax.dlpack.from_dlpack(found.flat)), found.flat, rtol=1e-6)  # perhaps float32
    array.delete()
    with pytest.raises(EvidenceError, match="cannot be read by DLPack: Array has been deleted"):
        tree.posteriors_batch(array)


def test_torch_tensors() -> None:
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
    tree, states = tree_and_states()
    tensor = torch.from_dlpack(states)
    assert np.shares_memory(read_states(tree.model, tensor)[0], states)
    found = tree.posteriors_batch(tensor)
    shared = torch.from_dlpack(found["Xray"])
    shared[0, 0] = 0.125
    assert found["Xray"][0, 0] == 0.125
