"""The fast CPU backend: compiled loops, a plan specialised to what is observed and asked, tables of cases, sessions.

`records` turns what `jtgpu.plans.specialise` leaves of a plan into a program, `kernels` has the loops of one contraction,
`sweep` runs a program for one case, `parallel` on several cores, `lanes` for many cases at once; `engine` is what the
rest of jtgpu sees.
"""

from .engine import Cpu, prepare

__all__ = ["Cpu", "prepare"]
