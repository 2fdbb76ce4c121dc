"""Candidate parents and the tables of their sets."""
