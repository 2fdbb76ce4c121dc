"""The extension module of compiled loops, built with the package: ``python -m jtgpu.util.ahead``.

Numba compiles every declared function (`jtgpu.util.jit.compiled`) for a level of processors, `objects` keeps the
machine code, `glue` writes the C functions that Python calls, and `build` links both. The result needs neither Numba
nor llvmlite. `jtgpu.util.loops` loads it.
"""
