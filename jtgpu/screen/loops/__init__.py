"""Compiled loops of screening; nothing imports them (see `jtgpu.util.loops`)."""
