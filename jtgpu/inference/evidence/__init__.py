"""Conversion of evidence from names and labels (user input) to numbers (input of backends)."""

from __future__ import annotations

from .case_table import read_known_cases
from .one_case import Cases, Findings, Known, KnownCases, More, one_case, read_findings, read_known

__all__ = [
    "Cases",
    "Findings",
    "Known",
    "KnownCases",
    "More",
    "one_case",
    "read_findings",
    "read_known",
    "read_known_cases",
]
