"""Exact posteriors over graphs, and draws from them."""
