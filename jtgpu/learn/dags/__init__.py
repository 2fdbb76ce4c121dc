"""Structure learning: directed acyclic graphs (DAGs) from data, with their uncertainty.

`coded` converts a table to state numbers, `score_table` scores families by the `rules`, and `family_weights` adds
priors and `constraints`. `exact` computes posteriors of few variables; `search` finds the best graph, and `orders` and
`partitions` run chains, over the `candidate_tables`. `structure` is a function for users. The
definitions of what the compiled loops compute are in ``tests/support``.
"""
