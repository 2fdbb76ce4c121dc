"""Exact posteriors on a GPU."""
