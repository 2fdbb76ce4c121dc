"""Models: names, states and numbers. Independent of files, plans and devices."""
