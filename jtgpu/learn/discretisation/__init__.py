"""Numeric columns as intervals; see `jtgpu.learn.discretise`."""
