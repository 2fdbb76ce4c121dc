"""Inference: a compiled model, evidence, queries and their results.

`compiled` puts a model, a plan and a backend together; `evidence` converts names to numbers; `queries` run cases on the
backend; `results` are what they return; `tree` and `session` are the objects that users hold.
"""
