"""Structure learning: directed acyclic graphs (DAGs) from data, with their uncertainty.

`coded` converts a table to state numbers; `tables` counts and scores families, with the rules of `rules`; `exact`
computes posteriors and the best DAG of few variables; `orders` samples and searches orders of many. `reference` is the
definition that the compiled loops are held to.
"""
