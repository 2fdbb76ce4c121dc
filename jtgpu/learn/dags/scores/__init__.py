"""Scores of families: coded tables, counts, rules, tables of scores."""
