"""Compiled loops of shortest paths; see `jtgpu.util.jit`."""
