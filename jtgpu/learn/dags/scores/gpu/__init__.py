"""Scores of families on GPUs."""
