"""Markov chains over orders and partitions."""
