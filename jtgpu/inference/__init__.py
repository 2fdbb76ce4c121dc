"""Inference: a compiled model, evidence, queries and their results.

`compiled` puts a model, a plan and a backend together; `evidence` converts names to numbers; `queries` run cases on the
backend; `results` defines their return values; `tree` and `session` define the classes of the public API.
"""
