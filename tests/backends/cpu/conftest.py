"""The tests of this folder are about the engine: impossible states stay in its models."""

from __future__ import annotations

import pytest

from jtgpu.backends.wrappers import possible_states


@pytest.fixture(autouse=True)
def with_all_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(possible_states, "LEAST_WORK", 1 << 62)
