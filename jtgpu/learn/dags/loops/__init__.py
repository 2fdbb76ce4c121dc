"""Compiled loops of structure learning. Each module's entry functions take arrays and numbers only."""
