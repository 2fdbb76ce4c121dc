"""Orders, samples, structures and chains are the same for all processors and builds of the loops."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np
import pytest

from jtgpu.util.loops import extension
from tests.conftest import ROOT
from tests.support.examples import slow
from tests.support.processors import LEVELS

QUICK = ("orders", "samples", "structures", "chains", "exact", "tables", "numbers", "functions")


@cache
def figures(groups: tuple[str, ...], **variables: str) -> dict[str, Any]:
    """Digests, or numbers, of `tests.support.figures` that a process with some environment variables computes."""
    command = [sys.executable, "-m", "tests.support.figures", *groups]
    own = {name: value for name, value in os.environ.items() if name not in ("NPY_DISABLE_CPU_FEATURES", "JTGPU_LOOPS")}
    done = subprocess.run(command, cwd=ROOT, env=own | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def differing(groups: tuple[str, ...], **variables: str) -> list[str]:
    whole, other = figures(groups), figures(groups, **variables)
    assert whole.keys() == other.keys()
    return [name for name in whole if whole[name] != other[name]]


def variables_of(level: str) -> dict[str, str]:
    if level not in LEVELS:
        pytest.skip(f"level {level!r}: NumPy has no such loops for this processor")
    return LEVELS[level]


@pytest.mark.parametrize("level", slow("without AVX-512", "least"))
def test_results_do_not_depend_on_the_processor(level: str) -> None:
    assert differing(QUICK, **variables_of(level)) == []


@pytest.mark.parametrize("level", [*slow("without AVX-512"), "least"])
def test_what_blas_computes_differs_by_rounding(level: str) -> None:
    """Also with one thread; each number differs by less than the six digits that are printed."""
    whole, other = figures(("close",)), figures(("close",), **variables_of(level), OPENBLAS_NUM_THREADS="1")
    assert whole.keys() == other.keys()
    for name in whole:
        np.testing.assert_allclose(other[name], whole[name], rtol=1e-8, atol=1e-8, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["without AVX-512", "least"])
def test_no_order_depends_on_the_processor(level: str) -> None:
    assert differing(("all_orders",), **variables_of(level)) == []


@pytest.mark.slow
def test_results_do_not_depend_on_who_compiled_the_loops() -> None:
    """Numba compiles for this processor; the extension module is for x86-64-v3."""
    if extension()[0] is None:
        pytest.skip("there is no extension module of these loops")
    assert differing(QUICK, JTGPU_LOOPS="jit") == []
