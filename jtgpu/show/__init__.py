"""Figures. matplotlib is imported here only, on first use."""
