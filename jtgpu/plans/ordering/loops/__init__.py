"""Compiled loops of the search for orders; see `jtgpu.util.loops`."""
