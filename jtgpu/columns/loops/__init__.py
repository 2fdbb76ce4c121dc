"""Compiled loops; see `jtgpu.util.loops`."""
