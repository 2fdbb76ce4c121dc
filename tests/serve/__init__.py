"""Tests of `jtgpu.serve`."""
