"""Answers of tables in memory that is lent, on a real GPU."""

from __future__ import annotations

from tests.backends.gpu.test_lent_answers import *  # noqa: F403 (tests of both GPUs)
