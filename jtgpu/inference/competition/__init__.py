"""The tasks of the UAI inference competitions, solved exactly: PR, MAR, MPE and MMAP, in their file format.

A case is conditioned on before planning: observed variables are removed from every table, and for PR so are barren
variables. This makes trees narrower, and models fit into memory that otherwise would not. A model that does not fit
raises an error with its width before memory is allocated.
"""

from __future__ import annotations

from .limits import Limits, fitting_plan, width_at_least
from .observed_model import conditioned
from .tasks import TASKS, solve_text

__all__ = ["TASKS", "Limits", "conditioned", "fitting_plan", "solve_text", "width_at_least"]
