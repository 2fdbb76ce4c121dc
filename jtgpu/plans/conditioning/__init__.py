"""Models with some variables fixed: split at observed variables, restricted to the others, or summed over a cutset."""
