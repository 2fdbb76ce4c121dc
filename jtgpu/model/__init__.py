"""Models: names, states and numbers. Independent of files, plans and devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..util.late_imports import public_names

if TYPE_CHECKING:
    from .cpt import Cpt

__all__ = ["Cpt"]

__getattr__, __dir__ = public_names(__name__, {"cpt": "Cpt"})
