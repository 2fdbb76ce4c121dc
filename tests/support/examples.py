"""What ``make test`` leaves to ``make test-all``: most examples of hypothesis tests, some parameters of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

__all__ = ["FULL", "examples", "register_profiles", "slow", "some"]

FULL = 60  # examples of a test that does not say how many, in `make test-all`
QUICK = 8  # in `make test`


def register_profiles() -> None:
    """Register the profiles ``full``, the default, and ``quick``; ``--hypothesis-profile`` chooses."""
    for name, n in (("full", FULL), ("quick", QUICK)):
        settings.register_profile(
            name,
            derandomize=True,  # the same examples in every run; a failure prints the example itself
            deadline=None,
            max_examples=n,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        )
    settings.load_profile("full")


def examples(n: int, **options: Any) -> Callable[[Any], Any]:
    """Decorate a test in place of ``hypothesis.settings(max_examples=n)``: the profile ``quick`` runs a share of n.

    Parameters
    ----------
    n : int
        Examples in the profile ``full``.
    **options
        More of ``hypothesis.settings``.
    """
    return settings(max_examples=max(1, n * settings().max_examples // FULL), **options)


def slow(*parameters: Any) -> list[Any]:
    """Parameters of a test, tuples where it has several, that run in ``make test-all`` only."""
    return [pytest.param(*(p if isinstance(p, tuple) else (p,)), marks=pytest.mark.slow) for p in parameters]


def some(n: int, quick: int = 4) -> list[Any]:
    """Seeds 0 to n - 1 as parameters of a test; those from ``quick`` on run in ``make test-all`` only."""
    return [*range(quick), *slow(*range(quick, n))]
