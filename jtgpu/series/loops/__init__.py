"""Compiled loops over time series and symmetric Toeplitz systems. Entry functions take arrays and numbers only."""
