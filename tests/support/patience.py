"""How long tests wait for other processes: longer on a busy machine."""

from __future__ import annotations

import os

__all__ = ["patience"]


def patience(seconds: float) -> float:
    """A time limit, scaled by JTGPU_TEST_PATIENCE or, by default, by the load of the machine per core (at least 1)."""
    given = os.environ.get("JTGPU_TEST_PATIENCE")
    if given:
        return seconds * float(given)
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
