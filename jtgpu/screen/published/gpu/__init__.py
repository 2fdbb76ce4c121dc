"""The published kernels on a GPU."""
