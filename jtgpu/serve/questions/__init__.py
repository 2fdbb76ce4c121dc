"""Questions and their answers as plain data, without HTTP: what the server and the notebook widget have in common.

Needs msgspec, which checks the bodies.
"""

from __future__ import annotations

from .answers import QUESTIONS, answer

__all__ = ["QUESTIONS", "answer"]
