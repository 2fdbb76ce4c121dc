"""Cases so improbable that numbers on a GPU are lost: the tests of the emulated one."""

from __future__ import annotations

import pytest

from tests.backends.gpu.test_host import *  # noqa: F403 (tests of both GPUs)

pytestmark = pytest.mark.gpu
