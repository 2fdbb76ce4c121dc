"""Structure learning: directed acyclic graphs (DAGs) from data, with their uncertainty.

A `task` has the checked data, the scores of families (`scores`: `coded` converts a table to state numbers, `rules` are
the scores, `score_table` computes them), priors and `constraints`. `structure` finds one graph by the searches of
`best_graph`. `posterior` weighs all of them: `exact` for few variables, by `chains` over the `candidate_tables` for
many. The definitions of what the compiled loops compute are in ``tests/support``.
"""
