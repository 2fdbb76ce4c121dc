"""The posterior over graphs and what it answers."""
