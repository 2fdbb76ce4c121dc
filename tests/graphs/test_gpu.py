"""Betweenness on the emulated GPU."""

from __future__ import annotations

import pytest

from tests.graphs.gpu_checks import *  # noqa: F403 (tests of both GPUs)

pytestmark = pytest.mark.usefixtures("emulated_gpu")
