"""Compiled loops of the published versions of PolyBench's ``durbin``."""
