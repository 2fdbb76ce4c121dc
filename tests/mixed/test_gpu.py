"""Networks with numbers whose discrete part is on an emulated GPU, against the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.device.context import Device
from jtgpu.errors import EvidenceError
from tests.mixed.test_lauritzen import incinerator
from tests.support.emulated.install import needs_compiler

pytestmark = needs_compiler


@pytest.fixture
def gpu(emulated_gpu: Device) -> Device:
    """The first emulated GPU; tests/on_gpu has a real one."""
    return emulated_gpu


def check(n: int) -> None:
    """Hold answers to cases of the incinerator with gaps to those of the CPU."""
    net, rng = incinerator(), np.random.default_rng(1)
    table = net.compile("cpu").sample(n, seed=1).to_frame()
    cases = {v: [None if rng.random() < 0.3 else x for x in table[v].tolist()] for v in table}
    with net.compile("gpu") as tree, net.compile("cpu") as exact:
        one, other = (t.posteriors({"W": "industrial", "L": 1.1})["E"].mean for t in (tree, exact))
        assert one == pytest.approx(other, rel=1e-10)
        found, expected = (t.posteriors_batch(cases) for t in (tree, exact))
        np.testing.assert_allclose(found.log_evidence, expected.log_evidence, rtol=1e-12, atol=1e-10)
        for v in net.numbers:
            np.testing.assert_allclose(found[v].mean, expected[v].mean, rtol=1e-10, atol=1e-10)
            np.testing.assert_allclose(found[v].sd, expected[v].sd, rtol=1e-10, atol=1e-10)
        for v in net.discrete:
            np.testing.assert_allclose(found[v], expected[v], atol=1e-10)


def test_the_discrete_part_is_on_the_gpu(gpu: Device) -> None:
    check(8)


def test_fits_do_not_use_a_gpu() -> None:
    """Once, the backend was ignored."""
    cases = {"c": ["n", "y", "n"], "x": [1.0, 2.0, 4.0]}
    for backend in ("gpu", "reference"):
        with pytest.raises(jtgpu.ArgumentError, match=f"fitted on the CPU, not by backend='{backend}'"):
            jtgpu.learn.fit({"c": [], "x": ["c"]}, cases, continuous="gaussian", compute=backend)
    with pytest.raises(jtgpu.ArgumentError, match="devices= is not offered with continuous variables"):
        jtgpu.learn.fit({"x": []}, cases, continuous="gaussian", compute=jtgpu.Compute(devices=[0]))


def test_tables_of_numbers_are_read_in_host_memory() -> None:
    class OnDevice:
        shape = (3, 2)

        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            return {"shape": self.shape, "typestr": "<f8", "data": (1024, False), "version": 3}

    with pytest.raises(EvidenceError, match="copy it first"):
        jtgpu.learn.fit({"x": [], "y": ["x"]}, OnDevice(), continuous="gaussian")  # type: ignore[arg-type]
