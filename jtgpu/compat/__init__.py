"""Drop-in replacements for inference classes of other libraries.

Replace ``from pgmpy.inference import VariableElimination`` by ``from jtgpu.compat.pgmpy import VariableElimination``,
or ``from pyagrum import LazyPropagation`` by ``from jtgpu.compat.pyagrum import LazyPropagation``. Models, evidence and
results are objects of the other library. """

from __future__ import annotations

__all__: list[str] = []
