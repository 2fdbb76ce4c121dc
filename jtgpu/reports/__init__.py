"""Figures of order searches and of benchmarks; matplotlib is imported on first use."""
