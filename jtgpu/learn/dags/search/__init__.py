"""The best graph: exact, by orders, greedy."""
