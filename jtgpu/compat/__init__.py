"""Other libraries' inference classes over jtgpu: change one import, keep the script.

``from jtgpu.compat.pgmpy import VariableElimination`` for ``from pgmpy.inference import VariableElimination``, and
``from jtgpu.compat.pyagrum import LazyPropagation`` for ``from pyagrum import LazyPropagation``. Models, evidence and
answers are the other library's own objects.
"""

from __future__ import annotations

__all__: list[str] = []
