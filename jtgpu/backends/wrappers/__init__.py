"""Backends that wrap backends: plans for recurring patterns, several devices, sums over the states of a cutset."""
