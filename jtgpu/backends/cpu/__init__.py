"""The fast CPU backend: compiled loops, programs specialised to evidence and targets, tables of cases, sessions.

`lower` turns what `jtgpu.plans.specialise` leaves of a program into `records`, one array for each pattern; `kernels`
has the loops of one contraction; `sweep` runs records for one case, `parallel` on several cores, `lanes` for many cases
at once. `runner` joins a program and a model's numbers, with the `programs` that are cached and a `workspace` for each
query. `engine` is the backend; `batch` and `counts` answer tables of cases; `queries` runs what needs a `backward` pass
or derivatives.
"""

from .engine import Cpu, prepare

__all__ = ["Cpu", "prepare"]
