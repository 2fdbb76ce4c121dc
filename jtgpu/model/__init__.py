"""Models: names, states and numbers. Knows nothing of files, plans and devices."""
