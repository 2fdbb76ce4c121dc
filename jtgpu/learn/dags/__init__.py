"""Structure learning: directed acyclic graphs (DAGs) from data, with their uncertainty.

`coded` converts a table to state numbers, `score_table` scores families by the `rules`, and `family_weights` adds
priors and `constraints`. `exact` computes posteriors of few variables; `search` finds the best graph, and `orders` and
`partitions` run chains, over the `candidate_tables`. `structure` is a function for users. `reference` and
`reference_partitions` define what the compiled loops compute.
"""
